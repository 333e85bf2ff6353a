"""Questions and studies by the mixture law, from a bound engine and from draws, through the one front."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition import ask
from labelzoo.data import LabelData
from labelzoo.inference.fit import fit
from labelzoo.inference.posterior import load, save
from labelzoo.inference.predict import mean_prob, mixture_law
from labelzoo.study import database, read_skipped
from labelzoo.study.run import check_plan
from tests.study.small import run_here, small_data, small_plan, whole_study

DATA = small_data(40)
MODEL = "gp_bernoulli_mixture"
NAMES = ("gp_b2m", "gp_b2m_standardised", "label_logdet", "gate_variance")
SHORT = {"num_warmup": 60, "num_samples": 60, "num_chains": 2}


def with_pool(hidden: int) -> LabelData:
    """The small data, the last rows without labels."""
    Y = DATA.Y.toarray().astype(float)
    Y[-hidden:] = np.nan
    return LabelData.from_arrays(DATA.X, Y)


@pytest.fixture(scope="module")
def trees() -> dict[str, Any]:
    """Posteriors by their factors, by draws from these, and by a sampler (made when asked for)."""
    return {}


def tree_of(trees: dict[str, Any], kind: str) -> Any:
    if kind not in trees:
        words = SHORT if kind == "gibbs" else {}
        engine = "structured" if kind == "draws" else kind
        trees[kind] = fit(MODEL, with_pool(25), engine, seed=0, num_components=3, **words)
        if kind == "draws":
            del trees[kind]["engine_state"]
    return trees[kind]


KINDS = ["structured", "draws", "sparse", pytest.param("gibbs", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_laws_mean_is_the_prediction(trees: dict[str, Any], kind: str, tmp_path: Path) -> None:
    tree, X = tree_of(trees, kind), DATA.X[-25:]
    law = mixture_law(tree, X)
    assert law.shape == (25, DATA.num_labels)
    mean, sd = mean_prob(tree, X, with_sd=True)
    draws = law.report.get("draws", tree["posterior"].sizes["draw"])
    assert np.abs(law.mean() - mean).max() < 6 * np.sqrt(2) * sd.max() / np.sqrt(draws)
    assert (law.weight_variance > 0).all() and (law.weight_variance < 0.25).all()
    again = mixture_law(load(save(tree, tmp_path / "f.nc")), X)
    np.testing.assert_array_equal(again.weights, law.weights)
    np.testing.assert_array_equal(again.parts, law.parts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_asked_by_name(trees: dict[str, Any], kind: str, name: str) -> None:
    table = ask(tree_of(trees, kind), with_pool(25), acquire=name, batch=3)
    assert len(table) == 3 == table["obs"].nunique() and np.isfinite(table["gain"]).all()


def test_draws_of_the_factors_give_their_law_within_chance(trees: dict[str, Any]) -> None:
    exact, drawn = (mixture_law(tree_of(trees, kind), DATA.X[-25:]) for kind in ("structured", "draws"))
    draws = drawn.report["draws"]
    assert np.abs(drawn.mean() - exact.mean()).max() < 5 * 0.5 / np.sqrt(draws)
    gaps = [np.abs(drawn.covariance(row) - exact.covariance(row)).max() for row in range(25)]
    assert max(gaps) < 5 * 0.25 / np.sqrt(draws)
    assert np.corrcoef(drawn.weight_variance, exact.weight_variance)[0, 1] > 0.5


def test_models_without_a_law_are_named() -> None:
    tree = fit("label_gp", with_pool(25), "conjugate", seed=0)
    with pytest.raises(ValueError, match="'gp_b2m' reads the mixture law .* model 'label_gp' has none"):
        ask(tree, with_pool(25), acquire="gp_b2m")
    with pytest.raises(ValueError, match="model 'label_gp' has no mixture law"):
        mixture_law(tree, DATA.X)


def test_a_study_runs_by_the_law_and_skips_learners_without(tmp_path: Path) -> None:
    words = {"learner": MODEL, "engine": "structured", "seeds": (0,), "rounds": 2, "batch": 2}
    plan = small_plan(DATA, acquire=("gp_b2m", "gate_variance", "random"), **words)
    for targets in ("predict", "pool"):
        check_plan(small_plan(DATA, acquire=("gp_b2m", "random"), targets=targets, **words), DATA)
    rows = whole_study(plan, DATA, tmp_path / "a.db")
    assert read_skipped(tmp_path / "a.db") == {}
    for name in ("gp_b2m", "gate_variance"):
        asked = [row.asked for row in rows if row.acquire == name and row.round > 0]
        assert len(asked) == 2 and all(len(set(queries)) == 2 for queries in asked)
    plan = small_plan(DATA, acquire=("gp_b2m", "random"), seeds=(0,))
    with pytest.raises(ValueError, match="gp_b2m needs the mixture law .* learner label_gp has none"):
        check_plan(plan, DATA)
    database.create(tmp_path / "b.db", plan, {})
    run_here(plan, DATA, tmp_path / "b.db", plan.cells())
    (reason,) = read_skipped(tmp_path / "b.db").values()
    assert "needs the mixture law of a row's labels, and learner label_gp has none" in reason
