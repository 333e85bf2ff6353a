"""The collapsed bound of the kernel: value, derivatives, and a climb that never falls."""

from typing import Any

import numpy as np
import pytest

from labelzoo.inference.gp_bernoulli_mixture import kernel_learning as learning
from labelzoo.inference.gp_bernoulli_mixture.factors import problem_of
from labelzoo.inference.gp_bernoulli_mixture.gates import gate_step
from labelzoo.models.gp_kernel import median_squared_distance
from labelzoo.models.sparse_bayes_kernel import graph_kernel
from tests.inference.gp_bernoulli_mixture.problems import small

SETTINGS: dict[str, Any] = {
    "num_components": 3,
    "gate_mean": -3.0,
    "amplitude": 4.0,
    "prior_mean": 0.2,
    "prior_strength": 2.0,
    "start_seed": 0,
}


def rows_of(seed: int = 0, count: int = 40) -> tuple[Any, Any, Any]:
    """Return features, labels in two groups, and which are observed."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3))
    Y = (rng.random((count, 5)) < np.where(X[:, :1] > 0, 0.8, 0.1)).astype(float)
    return X, Y, rng.random((count, 5)) < 0.9


def test_derivatives_are_those_of_differences() -> None:
    X, _, _ = rows_of()
    kernel = graph_kernel(X, "rbf")
    mapped = kernel.mapped(X)
    family = learning._family(kernel, mapped, median_squared_distance(mapped))
    rng = np.random.default_rng(1)
    W, beta = rng.gamma(1.0, size=(40, 3)), rng.normal(size=(40, 3))
    point = np.array([np.log(3.0), 0.4])

    def value(at: Any) -> float:
        return learning.collapsed(family.at(at)[0], W, beta).value

    found = learning.collapsed(*(family.at(point)[0], W, beta, family.at(point)[1]))
    for j in range(2):
        step = 1e-5 * np.eye(2)[j]
        slope = (value(point + step) - value(point - step)) / 2e-5
        assert found.gradient[j] == pytest.approx(slope, rel=1e-6)


def test_the_collapsed_value_is_the_gates_share_of_the_bound() -> None:
    problem = problem_of(small(gate_mean=-2.0))
    rng = np.random.default_rng(1)
    W, r = rng.gamma(1.0, size=(12, 3)), rng.normal(size=(12, 3))
    gate = gate_step(problem, W, r)
    m, S = gate.mean, gate.variance
    sites = (r * m - 0.5 * W * (m**2 + S)).sum()
    constant = (r * problem.gate_mean - 0.5 * W * problem.gate_mean**2).sum()
    Sigma = problem.factor @ problem.factor.T
    found = learning.collapsed(Sigma, W, r - problem.gate_mean * W)
    assert found.value == pytest.approx(sites - constant - gate.divergence.sum(), rel=1e-9)


@pytest.mark.parametrize("name", ["rbf", "cosine", "linear"])
@pytest.mark.parametrize("gate_mean", [0.0, -6.0])
def test_the_climb_never_falls_and_stays_in_its_range(name: str, gate_mean: float) -> None:
    X, Y, observed = rows_of()
    kernel = graph_kernel(X, name)
    mapped = kernel.mapped(X)
    median = median_squared_distance(mapped)
    kernel = kernel._replace(length2=median)
    learned = learning.learn_kernel(kernel, mapped, Y, observed, {**SETTINGS, "gate_mean": gate_mean})
    assert (np.diff(learned.trace) >= 0).all()
    assert learned.trace[-1] > learned.trace[0]
    assert 0.1 * (1 - 1e-9) <= learned.amplitude <= 100.0 * (1 + 1e-9)
    assert 0.1 * (1 - 1e-9) <= learned.length2 / median <= 10.0 * (1 + 1e-9)
    assert name == "rbf" or learned.length2 == pytest.approx(median)
    assert learned.responsibility.shape == (40, 3)


def test_the_same_kernel_from_the_same_rows() -> None:
    X, Y, observed = rows_of()
    kernel = graph_kernel(X, "rbf")
    mapped = kernel.mapped(X)
    first, again = (learning.learn_kernel(kernel, mapped, Y, observed, SETTINGS) for _ in range(2))
    assert (first.amplitude, first.length2) == (again.amplitude, again.length2)
    hidden = np.where(observed, Y, 1.0 - Y)
    other = learning.learn_kernel(kernel, mapped, hidden, observed, SETTINGS)
    assert other.amplitude == first.amplitude
