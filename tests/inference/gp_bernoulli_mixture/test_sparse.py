"""The sparse engine's steps: equal to the exact ones where all rows are inducing, csr throughout."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse as sp

from labelzoo.inference.gp_bernoulli_mixture import sparse, sparse_steps, starts, structured
from labelzoo.inference.gp_bernoulli_mixture.factors import problem_of
from tests.inference.gp_bernoulli_mixture.problems import small

Array = Any


def csr_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs with csr positives and csr unobserved cells, as `prepare` gives them."""
    rest = {name: value for name, value in inputs.items() if name != "observed"}
    missing = sp.csr_array((~inputs["observed"]).astype(float))
    return {**rest, "Y": sp.csr_array(inputs["Y"]), "missing": missing, "residual": None}


def split(inputs: dict[str, Any], basis: int) -> dict[str, Any]:
    """Return the inputs with the first columns of the basis, the rest as residual."""
    F = inputs["factor"]
    return {**inputs, "factor": F[:, :basis], "residual": (F[:, basis:] ** 2).sum(axis=1)}


def test_with_all_rows_inducing_a_pass_is_the_exact_sweep() -> None:
    inputs = small(25, 6, 3, gate_mean=-3.0)
    problem, task = problem_of(inputs), sparse_steps.task_of(csr_inputs(inputs))
    phi = starts.by_kmeans(problem, np.random.default_rng(0))
    exact = structured.start_from(problem, phi)
    natural = sparse_steps.start_from(task, phi)
    for _ in range(400):
        exact = structured.sweep(problem, exact, repeats=1)
        natural, _ = sparse_steps.whole_pass(task, natural)
    rows, value, white = sparse_steps.last_pass(task, natural)
    assert value == pytest.approx(exact.objective, rel=1e-10)
    np.testing.assert_allclose(rows["responsibility"], exact.factors.responsibility, atol=1e-7)
    np.testing.assert_allclose(rows["weight"], exact.factors.weight, rtol=1e-6)
    mean, variance = sparse_steps.gates_of(task, white, np.arange(25))
    np.testing.assert_allclose(mean, exact.factors.gate_mean_q, rtol=1e-6)
    np.testing.assert_allclose(variance, exact.factors.gate_variance, rtol=1e-6)


@pytest.mark.parametrize("gate_mean", [0.0, -6.0])
def test_full_passes_and_long_ones_never_lower_the_bound(gate_mean: float) -> None:
    inputs = split(small(40, 6, 4, gate_mean=gate_mean, features=5), 9)
    task = sparse_steps.task_of(csr_inputs(inputs) | {"residual": inputs["residual"]})
    rng = np.random.default_rng(0)
    for accelerate in (False, True):
        start = sparse.best_start(task, 1, rng)
        limits: dict[str, Any] = {"epochs": 60, "tolerance": 0.0}
        result = sparse.climb(task, start, rng, accelerate=accelerate, **limits)
        values = result.objective
        assert (np.diff(values) >= -1e-9 * np.abs(values[1:])).all()
        assert sparse_steps.last_pass(task, result.state.natural)[1] == pytest.approx(values[-1], rel=1e-10)


def test_damped_steps_climb_and_a_batch_of_all_rows_is_a_pass() -> None:
    task = sparse_steps.task_of(csr_inputs(small(30, 5, 3)))
    rng = np.random.default_rng(0)
    natural = sparse.best_start(task, 1, rng)
    values = []
    for _ in range(30):
        new, value = sparse_steps.whole_pass(task, natural)
        natural = sparse_steps.blended(natural, new, 0.3)
        values.append(value)
    assert (np.diff(values) >= -1e-9 * np.abs(values[1:])).all()
    whole, _ = sparse_steps.whole_pass(task, natural)
    batch, _, steps = sparse_steps.epoch(task, natural, 30, lambda t: 1.0, 0, rng)
    assert steps == 1
    for a, b in zip(whole, batch, strict=True):
        np.testing.assert_allclose(np.tril(a), np.tril(b), rtol=1e-9, atol=1e-9)


def test_batches_of_natural_steps_reach_the_neighbourhood_of_the_full_climb() -> None:
    inputs = small(400, 8, 3, gate_mean=-1.0, seen=1.0)
    task = sparse_steps.task_of(csr_inputs(split(inputs, 12)) | {"residual": split(inputs, 12)["residual"]})
    rng = np.random.default_rng(0)
    start = sparse.best_start(task, 1, rng)
    full = sparse.climb(task, start, rng, epochs=40, tolerance=1e-9)
    batches = sparse.climb(task, start, rng, epochs=40, tolerance=0.0, batch_size=50)
    value = sparse_steps.last_pass(task, batches.state.natural)[1]
    gain = full.objective[-1] - full.objective[0]
    assert value > full.objective[-1] - 0.05 * gain


def test_single_precision_loses_what_it_says() -> None:
    inputs = csr_inputs(small(300, 8, 3, gate_mean=-6.0))
    wide, narrow = sparse_steps.task_of(inputs), sparse_steps.task_of(inputs, np.float32)
    start = sparse.best_start(wide, 1, np.random.default_rng(0))
    for _ in range(5):
        exact, value = sparse_steps.whole_pass(wide, start)
        near, other = sparse_steps.whole_pass(narrow, start)
        assert other == pytest.approx(value, rel=1e-6)
        scale = np.abs(exact.precision).max()
        np.testing.assert_allclose(np.tril(near.precision), np.tril(exact.precision), atol=1e-5 * scale)
        start = exact


def test_dense_and_csr_labels_give_the_same_pass() -> None:
    inputs = small(20, 5, 3)
    dense, csr = sparse_steps.task_of(inputs), sparse_steps.task_of(csr_inputs(inputs))
    start = sparse.best_start(csr, 1, np.random.default_rng(0))
    (a, one), (b, other) = sparse_steps.whole_pass(dense, start), sparse_steps.whole_pass(csr, start)
    assert one == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(np.tril(a.precision), np.tril(b.precision), rtol=1e-10, atol=1e-12)


def test_a_pass_over_many_rows_and_labels_holds_neither_table() -> None:
    rows, labels, K = 20_000, 20_000, 3
    rng = np.random.default_rng(0)
    cells = (rng.integers(rows, size=50_000), rng.integers(labels, size=50_000))
    Y = sp.csr_array((np.ones(50_000), cells), (rows, labels))
    Y.data[:] = 1.0
    inputs = {
        "factor": rng.normal(size=(rows, 10)) / 3.0,
        "residual": np.full(rows, 0.1),
        "Y": Y,
        "missing": sp.csr_array((rows, labels)),
        "gate_mean": -3.0,
        "prior_positive": np.full((K, labels), 0.1),
        "prior_negative": np.full((K, labels), 0.9),
    }
    tracemalloc.start()
    task = sparse_steps.task_of(inputs)
    start = sparse.best_start(task, 1, rng)
    _, value = sparse_steps.whole_pass(task, start)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(value)
    assert peak < 8 * rows * labels / 40


def test_a_long_step_that_leaves_no_normal_law_is_refused() -> None:
    task = sparse_steps.task_of(csr_inputs(small(20, 5, 3, gate_mean=-6.0)))
    state = sparse.first_state(task, sparse.best_start(task, 1, np.random.default_rng(0)))
    for _ in range(5):
        state = sparse.full_sweep(task, state)
    far = sparse.full_sweep(task, state._replace(target=sparse_steps.prior_of(task)), 50.0)
    assert far.objective == -np.inf


@pytest.mark.parametrize("step", ["quick", 0.0, 1.5, None, True])
def test_wrong_steps_are_named(step: Any) -> None:
    with pytest.raises(ValueError, match="step must be"):
        sparse.share_of(step)
