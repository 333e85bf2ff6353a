"""Largest class probability: similarities checked, scores by hand, and questions through the one front."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelzoo.acquisition import ask
from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.class_similarity import ClassSimilarity
from labelzoo.acquisition.max_probability import largest_probability, similarity_scores
from labelzoo.acquisition.problem import Problem
from labelzoo.data import LabelData
from labelzoo.inference.fit import fit
from labelzoo.inference.posterior import load, save
from labelzoo.inference.predict import class_similarity, constants_of, point_draws
from labelzoo.models.kernel_neighbors import class_probs
from labelzoo.models.kernel_neighbors_predict import kernel_of
from labelzoo.study import read_skipped
from labelzoo.study.run import check_plan
from tests.study.small import small_data, small_plan, whole_study

RNG = np.random.default_rng(31)
X = RNG.normal(size=(20, 3))
CODES = np.argmax(X + 0.4 * RNG.normal(size=X.shape), axis=1)
LABELS = (X[:, :2] + 0.4 * RNG.normal(size=(20, 2)) > 0).astype(float)
KNOWN = 9
ENTRIES = {"max_probability": "clip", "max_probability_raw": "raw"}


@cache
def pool(form: str) -> LabelData:
    """Nine rows with labels and eleven without."""
    Y = np.eye(3)[CODES] if form == "classes" else LABELS.copy()
    Y[KNOWN:] = np.nan
    return LabelData.from_arrays(X, Y)


@cache
def fitted(form: str, engine: str) -> xr.DataTree:
    words = {"num_warmup": 30, "num_samples": 10, "num_chains": 2} if engine == "nuts" else {}
    return fit("kernel_neighbors", pool(form), engine, **words)


@cache
def with_draws(form: str) -> xr.DataTree:
    """A posterior whose two chains of ten draws lie about the mode: no sampler is compiled."""
    tree = fitted(form, "dual").copy(deep=True)
    posterior = tree["posterior"].to_dataset()
    mode = posterior["coefficients"]
    moved = mode.values + 0.3 * np.random.default_rng(4).normal(size=(2, 10, *mode.shape[2:]))
    sizes = {"chain": 2, "draw": 10}
    coords = {name: np.arange(size) for name, size in sizes.items()}
    tree["posterior"] = xr.DataTree(xr.Dataset({"coefficients": (mode.dims, moved)}, coords=coords))
    return tree


SOURCES = {
    "point": lambda form: fitted(form, "dual"),
    "draws": with_draws,
    "nuts": lambda form: fitted(form, "nuts"),
}


def made_up(problems: int = 1, samples: int = 1) -> ClassSimilarity:
    s = np.random.default_rng(1).normal(size=(samples, 6, problems, 3 if problems == 1 else 2)) + 0.3
    return ClassSimilarity(s, problems == 1)


@pytest.mark.parametrize("name", ENTRIES)
def test_scores_are_those_of_the_array_core_and_of_means_over_draws(name: str) -> None:
    law, negative = made_up(), ENTRIES[name]
    wanted = largest_probability(law.similarity[0, :, 0], negative)
    np.testing.assert_allclose(similarity_scores(law, negative), wanted)
    entry = find(name)
    choice = entry(Problem(class_similarity=law), 3)
    assert choice.rows.tolist() == np.argsort(-wanted, kind="stable")[:3].tolist()
    np.testing.assert_allclose(choice.gains, np.sort(wanted)[::-1][:3])
    several = made_up(samples=4)
    shares = [class_probs(one[:, 0], negative) for one in several.similarity]
    np.testing.assert_allclose(similarity_scores(several, negative), -np.mean(shares, axis=0).max(axis=1))
    many = made_up(problems=2, samples=3)
    p = class_probs(many.similarity, negative).mean(axis=0)[:, :, 1]
    np.testing.assert_allclose(similarity_scores(many, negative), -np.maximum(p, 1 - p).mean(axis=1))


def test_raw_and_clipped_scores_differ_where_a_similarity_is_negative_alone() -> None:
    law = made_up()
    clip, raw = (similarity_scores(law, negative) for negative in ENTRIES.values())
    total = law.similarity.sum(axis=-1)[0, :, 0]
    negative = (law.similarity < 0).any(axis=-1)[0, :, 0]
    assert negative.any() and not negative.all()
    np.testing.assert_allclose(raw[~negative], clip[~negative])
    assert (raw != clip)[negative & (total > 0)].all()


def test_without_a_problem_the_seed_decides() -> None:
    none = ClassSimilarity(np.zeros((1, 30, 0, 2)), False)
    assert none.shape == (30, 0) and not similarity_scores(none).any()
    entry = find("max_probability")
    picks = {tuple(entry(Problem(class_similarity=none, seed=seed), 3).rows) for seed in (0, 1, 2)}
    assert len(picks) == 3 and all(len(set(rows)) == 3 for rows in picks)


def test_subsets_and_words() -> None:
    law = made_up(samples=2)
    some = law.subset([4, 0])
    np.testing.assert_array_equal(some.similarity, law.similarity[:, [4, 0]])
    assert some.one_class and some.shape == (2, 1)
    np.testing.assert_array_equal(some.probs(), law.probs()[[4, 0]])
    many = made_up(problems=2).subset(np.array([1]))
    assert not many.one_class
    assert repr(many) == "ClassSimilarity(1 rows, 2 problems of 2 classes, 1 samples)"


@pytest.mark.parametrize(
    ("similarity", "message"),
    [
        ("much", "similarity must be numbers"),
        (np.zeros((2, 3)), r"similarity must be \(sample, row, problem, class\), got shape \(2, 3\)"),
        (np.zeros((0, 2, 1, 3)), r".*got shape \(0, 2, 1, 3\)"),
        (np.array([[[[1.0, np.nan]]]]), r"similarity\[0, 0, 0, 1\] is nan"),
        (np.array([[[[1.0, 2.0]], [[-np.inf, 0.0]]]]), r"similarity\[0, 1, 0, 0\] is -inf"),
    ],
)
def test_bad_similarities_are_refused(similarity: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^class_similarity: {message}"):
        ClassSimilarity(similarity)


@pytest.mark.parametrize("name", ENTRIES)
def test_bad_problems_are_refused(name: str) -> None:
    entry, law = find(name), made_up()
    with pytest.raises(ValueError, match=f"'{name}' needs class_similarity: the similarities of each pool"):
        entry(Problem(), 1)
    with pytest.raises(ValueError, match="class_similarity must be a ClassSimilarity, got ndarray"):
        entry(Problem(class_similarity=np.zeros((1, 6, 1, 3))), 1)
    with pytest.raises(ValueError, match="class_similarity has 6 rows, the pool has 5"):
        entry(Problem(class_similarity=law, X_pool=np.zeros((5, 2))), 1)
    with pytest.raises(ValueError, match="this score can be negative, so it cannot be divided by a cost"):
        entry(Problem(class_similarity=law, costs=np.ones(6)), 1)


@pytest.mark.parametrize("form", ["classes", "labels"])
@pytest.mark.parametrize("source", ["point", "draws", pytest.param("nuts", marks=pytest.mark.slow)])
def test_questions_are_asked_from_a_file_and_agree_with_hand_computation(
    form: str, source: str, tmp_path: Path
) -> None:
    tree = load(save(SOURCES[source](form), tmp_path / "tree.nc"))
    data = pool(form)
    draws = point_draws(tree)["coefficients"]
    assert len(draws) == (1 if source == "point" else 20)
    cross = kernel_of(constants_of(tree)).between(X[KNOWN:], X[:KNOWN])
    problems, classes = (1, 3) if form == "classes" else (2, 2)
    s = np.einsum("dcj,rj->drc", draws, cross).reshape(len(draws), 20 - KNOWN, problems, classes)
    np.testing.assert_allclose(class_similarity(tree, X[KNOWN:]).similarity, s, atol=1e-10)
    for name, negative in ENTRIES.items():
        score = -class_probs(s, negative).mean(axis=0).max(axis=-1).mean(axis=1)
        best = np.argsort(-score, kind="stable")[:4]
        table = ask(tree, data, acquire=name, batch=4)
        assert table["obs"].tolist() == [data.example_names[KNOWN + i] for i in best]
        np.testing.assert_allclose(table["gain"], score[best])
        assert table.attrs["report"]["units"] == "minus the largest probability"


def test_models_without_similarities_are_refused_by_name() -> None:
    other = fit("label_gp", pool("labels"), "conjugate", num_samples=3)
    with pytest.raises(
        ValueError, match="reads the similarities to the classes, and model 'label_gp' has none; kernel_neigh"
    ):
        ask(other, pool("labels"), acquire="max_probability", batch=2)
    with pytest.raises(ValueError, match="model 'label_gp' has no similarities to classes"):
        class_similarity(other, X)


def test_draws_of_a_point_are_refused_where_they_are_needed() -> None:
    with pytest.raises(ValueError, match="engine 'dual' gives points for its global sites"):
        ask(fitted("classes", "dual"), pool("classes"), acquire="bald", batch=2)


def test_a_study_runs_by_it_and_refuses_learners_without(tmp_path: Path) -> None:
    data = small_data(40)
    words: dict[str, Any] = {"learner": "kernel_neighbors", "engine": "dual", "seeds": (0,), "rounds": 1}
    plan = small_plan(data, acquire=("max_probability", "random"), **words)
    rows = whole_study(plan, data, tmp_path / "a.db")
    assert read_skipped(tmp_path / "a.db") == {}
    (asked,) = [row for row in rows if row.acquire == "max_probability" and row.round > 0]
    assert len(set(asked.asked)) == 3
    (started,) = [row for row in rows if row.acquire == "max_probability" and row.round == 0]
    assert not set(asked.asked) & set(started.asked)
    plan = small_plan(data, acquire=("max_probability", "random"), seeds=(0,))
    with pytest.raises(
        ValueError, match="max_probability needs the similarities to the classes, and learner"
    ):
        check_plan(plan, data)
