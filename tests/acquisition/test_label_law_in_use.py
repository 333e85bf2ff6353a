"""Studies and questions by the law of a row's labels, and what happens where miml stops early."""

import json
from pathlib import Path

import numpy as np
import pytest

from labelzoo.acquisition import ask
from labelzoo.acquisition.mutual_information import miml_with
from labelzoo.acquisition.problem import Problem
from labelzoo.cli import run
from labelzoo.data import LabelData
from labelzoo.inference.fit import fit
from labelzoo.inference.posterior import save
from labelzoo.inference.predict import constants_of, label_law, point_draws
from labelzoo.models.sparse_bayes_predict import completed, cross_and_own, fixed_point
from labelzoo.study import database, read_skipped
from labelzoo.study.results import notes
from labelzoo.study.run import check_plan
from tests.study.small import results, run_here, small_data, small_plan, whole_study

DATA = small_data(40)


def with_pool(hidden: int) -> LabelData:
    """The small data, the last rows without labels."""
    Y = DATA.Y.toarray().astype(float)
    Y[-hidden:] = np.nan
    return LabelData.from_arrays(DATA.X, Y)


@pytest.fixture(scope="module")
def tree() -> object:
    return fit("sparse_bayes", with_pool(25), "ml_oss", seed=0)


def test_the_law_of_sparse_bayes_has_the_variances_of_its_predictions(tree: object) -> None:
    X = DATA.X[-25:]
    law = label_law(tree, X)
    constants, draws = constants_of(tree), point_draws(tree)
    T = completed(constants, draws["y_unobserved"].mean(axis=0)) @ constants["projection"].T
    _, variance = fixed_point(T, *cross_and_own(constants, X), constants)
    expected = [np.diag(np.linalg.inv(law.precision(row))) for row in range(25)]
    np.testing.assert_allclose(variance, expected, rtol=1e-8)
    C = law.joint_covariance()
    np.testing.assert_allclose(C.diagonal(), law.variance, rtol=1e-10)
    assert np.linalg.eigvalsh(C)[0] > 0
    both = cross_and_own(constants, X)[0]
    lengths = ((X[0] - X[1]) * constants["feature_scale"]) ** 2
    kernel = constants["fitted_scale"] * np.exp(-lengths.sum() / (2 * constants["length2"]))
    L = constants["cholesky"]
    given = both[:, 0] @ np.linalg.solve(L @ L.T, both[:, 1])
    assert C[0, 1] == pytest.approx(kernel - given, abs=1e-9)


def test_single_labels_are_asked_by_name(tree: object) -> None:
    for name in ("label_mi", "label_cond", "label_uncertainty", "label_mi_joint", "label_two_way"):
        table = ask(tree, with_pool(25), acquire=name, batch=3)
        assert len(table) == 3 and set(table["label"]) <= set(DATA.label_names), name
        assert len(table[["obs", "label"]].drop_duplicates()) == 3


def test_models_without_a_law_are_named() -> None:
    tree = fit("label_gp", with_pool(25), "conjugate", seed=0)
    with pytest.raises(ValueError, match="'label_mi' reads the Gaussian law .* model 'label_gp' has none"):
        ask(tree, with_pool(25), acquire="label_mi")
    with pytest.raises(ValueError, match="model 'label_gp' has no Gaussian law"):
        label_law(tree, DATA.X)


def test_a_study_asks_single_labels_and_skips_learners_without_a_law(tmp_path: Path) -> None:
    words = {"learner": "sparse_bayes", "engine": "ml_oss", "seeds": (0,), "rounds": 2, "batch": 2}
    plan = small_plan(DATA, acquire=("label_mi", "label_two_way", "random"), **words)
    rows = whole_study(plan, DATA, tmp_path / "a.db")
    assert read_skipped(tmp_path / "a.db") == {}
    for name in ("label_mi", "label_two_way"):
        asked = [query for row in rows if row.acquire == name and row.round > 0 for query in row.asked]
        assert len(asked) == 12 and all(len(query) == 2 for query in asked)
        assert len(set(map(tuple, asked))) == 12
    plan = small_plan(DATA, acquire=("label_mi", "random"), seeds=(0,))
    database.create(tmp_path / "b.db", plan, {})
    run_here(plan, DATA, tmp_path / "b.db", plan.cells())
    (reason,) = read_skipped(tmp_path / "b.db").values()
    assert "learner label_gp has none" in reason


def test_a_plan_of_single_labels_is_taken_where_the_learner_has_a_law_and_refused_where_not() -> None:
    words = {"learner": "sparse_bayes", "engine": "ml_oss", "seeds": (0,)}
    for targets in ("predict", "pool"):
        acquire = ("label_mi", "label_two_way", "random")
        check_plan(small_plan(DATA, acquire=acquire, targets=targets, **words), DATA)
    with pytest.raises(ValueError, match="label_mi needs the Gaussian law .* learner label_gp has none"):
        check_plan(small_plan(DATA, acquire=("label_mi", "random"), seeds=(0,)), DATA)


def test_a_study_goes_on_after_an_early_stop(tmp_path: Path) -> None:
    """On the pool alone miml stops when most of it is labelled; rounds go on, and a note says why."""
    plan = small_plan(DATA, acquire=("miml", "random"), seeds=(0,), rounds=5, batch=5, targets="pool")
    rows = [row for row in whole_study(plan, DATA, tmp_path / "a.db") if row.acquire == "miml"]
    assert len(rows) == 6
    stopped = [row for row in rows if "stopped" in row.report]
    assert stopped and rows[-1].asked == [] and len(rows[1].asked) == 5
    said = [line for line in notes(plan, results(tmp_path / "a.db")) if line.startswith("Early stops")]
    assert f"in {len(stopped)} rounds, from round {stopped[0].round} on" in said[0]


@pytest.mark.parametrize("name", ["miml"])
def test_ask_says_that_nothing_is_worth_asking(
    tree: object, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few rows beside many labelled ones: an empty answer, exit 0, no file."""
    posterior, pool = tmp_path / "f.nc", tmp_path / "pool.npz"
    data = with_pool(4)
    save(fit("label_gp", data, "conjugate", seed=0, num_samples=50), posterior)
    data.save_npz(pool)
    command = ["ask", str(posterior), "--pool", str(pool), "--acquire", name, "--batch", "2"]
    files = ["--out", str(tmp_path / "q.json"), "--form", str(tmp_path / "form.csv")]
    assert run([*command, *files]) == 0
    said = capsys.readouterr().out
    assert "0 rows to label next by miml" in said and "stopped: 0 of 2 rows picked" in said
    assert "nothing was written" in said
    assert run([*command, *files, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["questions"] == [] and found["out"] is None and "stopped" in found["report"]
    assert not (tmp_path / "q.json").exists() and not (tmp_path / "form.csv").exists()


def test_scores_do_not_depend_on_the_stop() -> None:
    rng = np.random.default_rng(0)

    class Linear:
        noise_ratio = 0.5

        def between(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
            return A @ B.T

        def diagonal(self, A: np.ndarray) -> np.ndarray:
            return (A**2).sum(axis=1)

    problem = Problem(X_pool=rng.normal(size=(6, 2)), kernel=Linear())
    np.testing.assert_array_equal(miml_with(stop=False).score(problem), miml_with().score(problem))
