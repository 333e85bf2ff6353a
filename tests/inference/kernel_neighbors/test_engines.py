"""Engines of kernel_neighbors: two ways to one mode, messages, refusals, the paper's rules, the checks."""

import re
import warnings
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.inference.checks.marginal import compare_at, residual
from labelzoo.inference.checks.stationarity import MUTANT_FLOOR, THRESHOLD, Gradients
from labelzoo.inference.compare.verdict import moments
from labelzoo.inference.fit import fit
from labelzoo.inference.kernel_neighbors import classified, enumeration, stationarity
from labelzoo.inference.kernel_neighbors.answers import RULES, fits_of
from labelzoo.inference.kernel_neighbors.bregman import bregman
from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.engines import ENGINES, coefficients_of
from labelzoo.inference.kernel_neighbors.predict import (
    classify,
    classify_by_neighbors,
    classify_by_svm,
    similarity,
)
from labelzoo.inference.kernel_neighbors.problem import read_problem
from labelzoo.inference.posterior import load, save
from labelzoo.inference.predict import constants_of, mean_prob
from labelzoo.models.kernel_neighbors import class_means, of_problems, similarity_of, violations
from labelzoo.models.kernel_neighbors_card import spec
from labelzoo.models.kernel_neighbors_predict import kernel_of
from tests.inference.kernel_neighbors.problems import features

X, y = features(13, 18, 3)
ONE_HOT = np.eye(4, dtype=int)[np.array([0, 2, 3])[y]]
"""Label 1 is never seen."""
LABELS = np.column_stack([X[:, 0] > 0.7, np.ones(18), X[:, 1] > 0, np.zeros(18)]).astype(int)
LABELS[[0, 5], [0, 2]] ^= 1
NEW = features(14, 7, 3)[0]
DATA = {"classes": ONE_HOT, "labels": LABELS}
GAMMAS = {"soft": 0.2, "hard": None}


def data_of(labels: Any, rows: Any = X) -> LabelData:
    return LabelData.from_arrays(rows, labels)


@cache
def tree_of(form: str, engine: str, price: str = "soft", **options: Any) -> xr.DataTree:
    return fit("kernel_neighbors", data_of(DATA[form]), engine, gamma=GAMMAS[price], **options)


@cache
def inputs_of(form: str, **settings: Any) -> dict[str, Any]:
    return spec.prepare(data_of(DATA[form]), spec.resolve(settings))


@pytest.mark.parametrize("price", GAMMAS)
@pytest.mark.parametrize("form", DATA)
def test_both_engines_find_one_mode_and_it_is_that_of_the_array_core(form: str, price: str) -> None:
    one, other = tree_of(form, "bregman", price), tree_of(form, "dual", price)
    found = one["posterior"]["coefficients"].values
    np.testing.assert_allclose(found, other["posterior"]["coefficients"].values, atol=1e-6)
    gap = one["optimization"]["objective"].values - other["optimization"]["objective"].values
    assert abs(gap[-1]) < 1e-8
    kernel = kernel_of(constants_of(one))
    K = kernel.between(X, X)
    codes = [y] if form == "classes" else list(LABELS[:, [0, 2]].T)
    fits = [dual(read_problem(K, each, gamma=GAMMAS[price])) for each in codes]
    weights = np.concatenate([coefficients_of(each) for each in fits])
    np.testing.assert_allclose(found[0, 0], weights, atol=1e-6)
    inside = np.concatenate([each.similarity.T for each in fits])
    np.testing.assert_allclose(found[0, 0] @ K, inside, atol=1e-6)
    assert found.shape == (1, 1, len(weights), 18)
    objective = float(one["optimization"]["objective"].values[-1])
    assert objective == pytest.approx(-0.5 * sum(each.dual for each in fits), abs=1e-8) and objective < -0.1
    np.testing.assert_allclose(mean_prob(one, NEW), mean_prob(other, NEW), atol=1e-6)
    lam = other["engine_state"]["multipliers"].values
    if price == "soft":
        assert np.isclose(lam, 0.2, rtol=1e-6).any() and lam.max() <= 0.2 + 1e-12
    else:
        assert lam.max() > 0.2


@pytest.mark.parametrize("engine", ["bregman", "dual"])
def test_engines_say_what_they_are_and_found(engine: str) -> None:
    attrs = tree_of("classes", engine).attrs
    assert (attrs["kind"], attrs["random_sites"], attrs["converged"]) == ("point", "[]", "yes")
    work = r"\d+ sweeps( and \d+ Newton steps)?" if engine == "bregman" else r"\d+ Newton steps"
    assert re.fullmatch(rf"converged: gap \S+, violation 0.0e\+00 after {work}", attrs["message"])
    assert 0 <= attrs["duality_gap"] < 1e-7 and attrs["nonpositive_totals"] == 0
    assert attrs["projections" if engine == "bregman" else "newton_steps"] > 0
    said = tree_of("labels", engine).attrs["message"]
    assert re.fullmatch(r"2 of 2 labels converged: gaps up to \S+, violations up to 0.0e\+00", said)
    assert tree_of("classes", engine, "hard").attrs["violation"] < 1e-8


def test_a_label_never_seen_gets_no_similarity() -> None:
    tree = tree_of("classes", "dual")
    assert constants_of(tree)["class_label"].tolist() == [0, 2, 3]
    assert tree["posterior"]["coefficients"].sizes["class"] == 3
    probs = mean_prob(tree, NEW)
    np.testing.assert_allclose(probs[:, 1], 1e-3 / 4)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)


EDGES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "one class": (np.tile([0, 1, 0], (6, 1)), X[:6], {"form": "classes"}),
    "one row": (ONE_HOT[:1], X[:1], {}),
    "one row, hard": (ONE_HOT[:1], X[:1], {"gamma": None}),
    "one row of labels": (np.array([[1, 1, 0]]), X[:1], {}),
    "a row a class": (np.eye(3, dtype=int), X[:3], {"gamma": None}),
    "constant features": (ONE_HOT[:5], np.ones((5, 2)), {"tolerance": 1e-6}),
    "duplicates": (np.repeat(ONE_HOT[:4], 2, axis=0), np.repeat(X[:4], 2, axis=0), {}),
}


@pytest.mark.filterwarnings("ignore:.*training rows have a total")
@pytest.mark.parametrize("edge", EDGES)
def test_edge_cases_are_fitted_by_both_saved_and_answered(edge: str, tmp_path: Path) -> None:
    labels, rows, settings = EDGES[edge]
    new = NEW[:, : rows.shape[1]]
    both = []
    for engine in ("bregman", "dual"):
        tree = fit("kernel_neighbors", data_of(labels, rows), engine, **settings)
        assert tree.attrs["converged"] == "yes", tree.attrs["message"]
        loaded = load(save(tree, tmp_path / f"{engine}.nc"))
        probs = mean_prob(loaded, new)
        assert probs.shape == (7, labels.shape[1]) and np.isfinite(probs).all()
        assert probs.min() > 0 and probs.max() < 1
        both.append(probs)
        for rule in ("similarity", "neighbors"):
            answers = classified(loaded, new, rule=rule)
            if edge != "one row of labels":
                assert (answers.sum(axis=1) == 1).all()
    np.testing.assert_allclose(*both, atol=1e-5)
    if edge.startswith("one"):
        assert (classified(loaded, new) == (labels[0] > 0)).all()
        np.testing.assert_array_equal(probs > 0.5, np.tile(labels[0] > 0, (7, 1)))


@pytest.mark.parametrize("engine", ["bregman", "dual"])
def test_without_a_problem_the_constants_are_kept(engine: str, tmp_path: Path) -> None:
    labels = np.tile([0, 1, 1], (18, 1))
    tree = fit("kernel_neighbors", data_of(labels), engine, gamma=None)
    assert tree.attrs["message"] == "no problem: every label is the same in all training rows"
    assert tree.attrs["converged"] == "yes" and tree.attrs["projections"] == 0
    loaded = load(save(tree, tmp_path / "constant.nc"))
    np.testing.assert_allclose(mean_prob(loaded, NEW), np.tile([5e-4, 1 - 5e-4, 1 - 5e-4], (7, 1)))
    for rule in RULES:
        assert (classified(loaded, NEW, rule=rule) == np.tile([False, True, True], (7, 1))).all()


@pytest.mark.parametrize(("engine", "options"), [("bregman", {"max_sweeps": 1}), ("dual", {"max_steps": 1})])
def test_engines_cut_short_say_so(engine: str, options: dict[str, int]) -> None:
    one, many = tree_of("classes", engine, "hard", **options), tree_of("labels", engine, "hard", **options)
    assert one.attrs["converged"] == many.attrs["converged"] == "no"
    assert one.attrs["message"].startswith("not converged: gap")
    assert one.attrs["message"].endswith("after 1 sweep" if engine == "bregman" else "after 1 Newton step")
    words = r"0 of 2 labels converged: gaps up to \S+, violations up to \S+; the first other: not converged"
    assert re.match(words, many.attrs["message"])


@pytest.mark.parametrize("kind", [sparse.lil_matrix, sparse.dok_array, sparse.csc_array])
def test_sparse_new_rows_of_any_format_are_answered_like_dense_ones(kind: Any) -> None:
    tree = tree_of("classes", "dual")
    np.testing.assert_allclose(mean_prob(tree, kind(NEW)), mean_prob(tree, NEW), atol=1e-12)


BAD_OPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("bregman", {"tolerance": 0.0}, "tolerance must be a number above 0 and below 1, got 0.0"),
    ("bregman", {"tolerance": "fine"}, "tolerance must be a number above 0 and below 1, got 'fine'"),
    ("dual", {"tolerance": 1}, "tolerance must be a number above 0 and below 1, got 1"),
    ("bregman", {"max_sweeps": 0}, "max_sweeps must be an integer of at least 1, got 0"),
    ("dual", {"max_steps": 1.5}, "max_steps must be an integer of at least 1, got 1.5"),
    ("dual", {"max_sweeps": 5}, "engine 'dual' knows no setting 'max_sweeps'"),
    ("bregman", {"max_steps": 5}, "engine 'bregman' knows no setting 'max_steps'"),
]


@pytest.mark.parametrize(("engine", "options", "message"), BAD_OPTIONS)
def test_bad_options_are_refused(engine: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        fit("kernel_neighbors", data_of(ONE_HOT), engine, **options)


def test_more_multipliers_than_dual_takes_are_refused() -> None:
    rng = np.random.default_rng(0)
    many = LabelData.from_arrays(rng.normal(size=(1400, 2)), np.eye(2, dtype=int)[np.arange(1400) % 2])
    with pytest.raises(
        ValueError, match="1400 rows with 3 multipliers each are 4200, above the 4000.*use br"
    ):
        fit("kernel_neighbors", many, "dual")


@pytest.mark.parametrize("engine", ["nuts", "svi"])
def test_samplers_need_a_price_and_a_problem(engine: str) -> None:
    with pytest.raises(ValueError, match=f"^{engine} needs soft constraints.*: set gamma"):
        fit("kernel_neighbors", data_of(ONE_HOT), engine, gamma=None)
    constant = data_of(np.tile([0, 1], (18, 1)))
    with pytest.raises(ValueError, match=f"nothing to sample for {engine}: every label.*in all 18 rows"):
        fit("kernel_neighbors", constant, engine, form="labels")


def test_totals_that_are_not_positive_are_warned_of_and_counted() -> None:
    settings = {"gamma": None, "alpha": 0.66, "beta": 1 / 6, "positive_total": False}
    far, codes = features(1, 30, 3)
    data = data_of(np.eye(3, dtype=int)[codes], far)
    with pytest.warns(UserWarning, match="of 30 training rows have a total similarity that is not positive"):
        tree = fit("kernel_neighbors", data, "dual", length_factor=1.0, **settings)
    low = tree.attrs["nonpositive_totals"]
    assert low > 0
    assert tree.attrs["message"].endswith(f"; {low} training rows have no positive total similarity")
    inputs = spec.prepare(data, spec.resolve({"length_factor": 1.0, **settings}))
    total = (tree["posterior"]["coefficients"].values[0, 0] @ inputs["K0"]).sum(axis=0)
    assert low == (total <= 1e-9).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once, by the engine
        classified(tree, far[:3])
    with pytest.warns(UserWarning, match="the prior gives .* of 18 rows a total similarity that is not pos"):
        spec.prepare(data_of(ONE_HOT), spec.resolve({"kernel": "cosine"}))


def fits_by_hand(form: str, price: str) -> tuple[list[Any], Any, Any]:
    """Fits of the array core, K0 to the new rows, and their diagonal."""
    kernel = kernel_of(constants_of(tree_of(form, "bregman", price)))
    codes = [y] if form == "classes" else list(LABELS[:, [0, 2]].T)
    K = kernel.between(X, X)
    fits = [bregman(read_problem(K, each, gamma=GAMMAS[price])) for each in codes]
    return fits, kernel.between(NEW, X), kernel.diagonal(NEW)


@pytest.mark.parametrize("price", GAMMAS)
@pytest.mark.parametrize("engine", ["bregman", "dual"])
@pytest.mark.parametrize("form", DATA)
def test_rules_are_those_of_the_array_core(form: str, engine: str, price: str, tmp_path: Path) -> None:
    tree = load(save(tree_of(form, engine, price), tmp_path / "tree.nc"))
    fits, cross, own = fits_by_hand(form, price)
    for again, each in zip(fits_of(tree), fits, strict=True):
        np.testing.assert_allclose(similarity(again, cross), similarity(each, cross), atol=1e-6)
        assert again.dual == pytest.approx(each.dual, abs=1e-7) and again.converged
    rules: Mapping[str, Any] = {
        "similarity": lambda each: classify(each, cross),
        "neighbors": lambda each: classify_by_neighbors(each, cross, own, neighbors=3),
        "svm": lambda each: classify_by_svm(each, cross, penalty=10.0),
    }
    assert tuple(rules) == RULES
    for rule, apply in rules.items():
        found = classified(tree, NEW, rule=rule, neighbors=3, penalty=10.0)
        assert found.dtype == bool and found.shape == (7, 4)
        answers = [apply(each) for each in fits]
        wanted = np.tile([False, form == "labels", False, False], (7, 1))
        if form == "classes":
            wanted[np.arange(7), np.array([0, 2, 3])[answers[0]]] = True
        else:
            wanted[:, [0, 2]] = np.stack(answers, axis=1) == 1
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("form", DATA)
def test_kernels_come_back_with_the_jitter_of_the_fit(form: str) -> None:
    tree = tree_of(form, "dual", jitter=0.05)
    fits = fits_of(tree)
    for each in fits:
        np.testing.assert_allclose(np.diag(each.problem.K0), 1.05)
    weights = np.concatenate([coefficients_of(each) for each in fits])
    np.testing.assert_allclose(weights, tree["posterior"]["coefficients"].values[0, 0], atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_rules_tell_clouds_apart_that_are_far_apart(rule: str) -> None:
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    codes = np.arange(15) % 3
    rows = centres[codes] + 0.3 * rng.normal(size=(15, 2))
    wanted = np.eye(3, dtype=bool)[[2, 0, 1, 1]]
    new = centres[[2, 0, 1, 1]] + 0.3 * rng.normal(size=(4, 2))
    for form in ("classes", "labels"):
        tree = fit("kernel_neighbors", data_of(np.eye(3, dtype=int)[codes], rows), "dual", form=form)
        np.testing.assert_array_equal(classified(tree, new, rule=rule), wanted)
        frame = LabelData.from_arrays(new, wanted.astype(int))
        np.testing.assert_array_equal(classified(tree, frame, rule=rule), wanted)


def test_rules_refuse_what_they_cannot_answer_from() -> None:
    tree = tree_of("classes", "dual")
    sampled = nuts_tree()
    other = fit("label_gp", data_of(LABELS), "conjugate", num_samples=3)
    for bad, words in (
        (sampled, "posterior of the engine 'nuts', which keeps no class kernels: fit with bregman or dual"),
        (other, "tree must be a posterior of kernel_neighbors, got 'label_gp'"),
        (np.eye(3), "tree must be a posterior of kernel_neighbors, got 'ndarray'"),
    ):
        with pytest.raises(ValueError, match=words):
            classified(bad, NEW)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"rule": "vote"}, "rule must be one of similarity, neighbors, svm, got 'vote'"),
        ({"rule": "neighbors", "neighbors": 0}, "neighbors must be an integer from 1 to 18, got 0"),
        ({"rule": "neighbors", "neighbors": 19}, "neighbors must be an integer from 1 to 18, got 19"),
        ({"rule": "svm", "penalty": 0}, "penalty must be a finite number above 0, got 0"),
        ({"penalty": 0}, "penalty must be a finite number above 0, got 0"),
        ({"neighbors": 0}, "neighbors must be an integer from 1 to 18, got 0"),
    ]
    for options, words in refused:
        with pytest.raises(ValueError, match=words):
            classified(tree, NEW, **options)
    with pytest.raises(ValueError, match=r"X has shape \(7, 2\), the posterior was fitted on 3 features"):
        classified(tree, NEW[:, :2])


CASES = {
    "three classes": partial(inputs_of, "classes", gamma=0.05),
    "three classes, hard": partial(inputs_of, "classes", gamma=None),
    "labels, hard": partial(inputs_of, "labels", gamma=None),
    "no constraint of totals": partial(inputs_of, "classes", gamma=0.3, positive_total=False),
}


@pytest.mark.parametrize(
    "name", [*list(CASES)[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in list(CASES)[2:])]
)
def test_engines_rest_where_the_programs_gradient_vanishes(name: str) -> None:
    with jax.enable_x64(True):
        # Both engines have one objective, which is compiled once.
        gradients = Gradients(stationarity.CASES[0], {name: CASES[name]()})
        for case in stationarity.CASES:
            worst, where = gradients.largest(case.fixed_point, name)
            assert worst < THRESHOLD, f"{case.engine}: {worst:.1e} of {where}"
            for words, wrong in case.mutants:
                assert gradients.largest(wrong, name)[0] > MUTANT_FLOOR, f"{case.engine}: {words}"


def test_checks_are_of_both_engines() -> None:
    assert {case.engine for case in stationarity.CASES} == {engine.name for engine in ENGINES}
    assert len({case.objective for case in stationarity.CASES}) == 1


@pytest.mark.parametrize("case", enumeration.CASES, ids=lambda case: case.name)
def test_views_marginalise_and_wrong_inputs_are_noticed(case: Any) -> None:
    """Wrong views, each of which is compiled, are left to the check of the model."""
    with jax.enable_x64(True):
        found, program = compare_at(case, spec.views[case.view_to], 11), spec.views[case.view_from]
        assert residual(found, program) <= case.threshold
        faults = [residual(found, program, change) for _, change in case.wrong_inputs]
    assert len(faults) == 7 and min(faults) > 1e3 * case.threshold, faults


SMALL, CODES = X[:7], np.array([0, 1, 0, 1, 0, 1, 0])


@cache
def nuts_tree() -> xr.DataTree:
    """Four chains at seven rows of two classes, two of the rows on the wrong side."""
    sizes = {"num_warmup": 150, "num_samples": 200, "num_chains": 4}
    return fit("kernel_neighbors", data_of(np.eye(2, dtype=int)[CODES], SMALL), "nuts", seed=5, **sizes)


def test_nuts_agrees_with_the_prior_weighted_by_the_constraints() -> None:
    """Mean similarities, 14 of them; false alarms below 1 in 10,000 (|z| > 4.5)."""
    inputs = spec.prepare(data_of(np.eye(2, dtype=int)[CODES], SMALL), spec.settings)
    rng, draws, n = np.random.default_rng(6), 100_000, 7
    K0, codes = inputs["K0"], inputs["codes"]
    square, white = rng.chisquare(n + 2, size=(draws, 2)), rng.normal(size=(draws, 2, n - 1))
    root, means = np.linalg.cholesky(K0), class_means(codes, 2, np)
    u = np.asarray(jax.vmap(lambda s, w: similarity_of(root, means, s, w))(square, white))
    g = jax.vmap(lambda s: violations(of_problems(s, codes), codes, inputs["alpha"], inputs["beta"], True))(u)
    log_weight = -0.5 * inputs["price"] * np.maximum(np.asarray(g), 0.0).sum(axis=(1, 2, 3))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = np.einsum("d,dli->li", weight, u)
    error = np.sqrt(np.einsum("d,dli->li", weight**2, (u - mean) ** 2))
    assert 1.0 / (weight**2).sum() > 1000
    assert np.abs(mean - u.mean(axis=0)).max() > 10 * error.max()
    found = nuts_tree()["posterior"]["coefficients"].values @ K0
    law = moments(found.reshape(*found.shape[:2], -1))
    z = (law.mean.reshape(2, n) - mean) / np.hypot(law.mcse.reshape(2, n), error)
    assert np.abs(z).max() < 4.5, f"seeds 5 and 6, z {np.abs(z).max():.2f}, ess {law.ess_bulk.min():.0f}"
    # The rows' own classes gain over the prior.
    own = u.mean(axis=0)[CODES, np.arange(n)] / u.mean(axis=0).sum(axis=0)
    assert (mean[CODES, np.arange(n)] / mean.sum(axis=0) - own).mean() > 0.05
