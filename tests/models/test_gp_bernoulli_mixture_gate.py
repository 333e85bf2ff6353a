"""Moments of the logistic-softmax gate: the integral against tensor quadrature and draws, its edges."""

from typing import Any

import numpy as np
import pytest

from labelzoo.models.gp_bernoulli_mixture_gate import gate_moments, log_gate

Array = Any


def tensor(mean: Array, variance: Array, nodes: int = 160) -> tuple[Array, Array]:
    """Return E pi and Var pi of one row by a tensor Gauss-Hermite rule."""
    u, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    f = np.stack(
        np.meshgrid(*[m + s * u for m, s in zip(mean, np.sqrt(variance), strict=True)], indexing="ij")
    )
    weight = np.prod(np.meshgrid(*[w] * len(mean), indexing="ij"), axis=0)
    pi = np.exp(log_gate(np.moveaxis(f, 0, -1)))
    first = np.tensordot(weight, pi, len(mean))
    return first, np.tensordot(weight, pi**2, len(mean)) - first**2


@pytest.mark.parametrize(
    ("components", "centre", "largest"),
    [
        (2, 0.0, 1.0),
        (2, -6.0, 4.0),
        (3, -6.0, 4.0),
        (2, -3.0, 16.0),
        (2, -60.0, 4.0),
        (3, 5.0, 1.0),
        (2, 0.0, 1e-4),
    ],
)
def test_the_integral_equals_tensor_quadrature(components: int, centre: float, largest: float) -> None:
    rng = np.random.default_rng(components)
    mean = centre + 2.0 * rng.standard_normal((3, components))
    variance = largest * rng.uniform(0.1, 1.0, (3, components))
    variance[2, 0] = 0.0
    found = gate_moments(mean, variance)
    for row in range(3):
        first, second = tensor(mean[row], variance[row])
        np.testing.assert_allclose(found.mean[row], first, atol=2e-8)
        np.testing.assert_allclose(found.variance[row], second, atol=2e-8)
    assert found.error.max() < 1e-8


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    """Rows share nodes and steps; blocks are cut by memory."""
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(-6, 2, (3000, 8)), rng.uniform(0, 6, (3000, 8)) ** 2 / 6
    together = gate_moments(mean, variance)
    rows = [0, 7, 1500, 2999]
    for row in rows:
        alone = gate_moments(mean[[row]], variance[[row]])
        np.testing.assert_allclose(together.mean[row], alone.mean[0], atol=2e-8)
        np.testing.assert_allclose(together.variance[row], alone.variance[0], atol=2e-8)
    np.testing.assert_allclose(together.mean.sum(axis=1), 1.0, rtol=1e-12)


def test_draws_agree_within_their_error() -> None:
    rng = np.random.default_rng(1)
    mean, variance = rng.normal(-2, 1, (40, 4)), rng.uniform(0, 2, (40, 4))
    exact, drawn = gate_moments(mean, variance), gate_moments(mean, variance, "draws", draws=4000, seed=3)
    z = np.abs(drawn.mean - exact.mean) / drawn.error
    assert z.max() < 4.5, f"largest of 160 z-values {z.max():.2f}, seed 3"
    assert drawn.error.max() <= 0.5 / np.sqrt(4000)
    assert np.abs(drawn.variance - exact.variance).max() < 5 * 0.25 / np.sqrt(4000)


def test_draws_are_shared_by_all_rows() -> None:
    mean, variance = np.zeros((3, 3)), np.ones((3, 3))
    mean[1] += [0.0, 1e-6, 0.0]
    drawn = gate_moments(mean, variance, "draws", draws=50, seed=5)
    np.testing.assert_array_equal(drawn.mean[0], drawn.mean[2])
    assert 0 < drawn.mean[1, 1] - drawn.mean[0, 1] < 1e-6
    again = gate_moments(mean, variance, "draws", draws=50, seed=5)
    np.testing.assert_array_equal(drawn.mean, again.mean)
    assert (gate_moments(mean, variance, "draws", draws=50, seed=6).mean != drawn.mean).any()


def test_points_are_exact_and_one_component_is_certain() -> None:
    f = np.array([[-800.0, -801.0], [700.0, 0.0], [-1e4, 1e4]])
    found = gate_moments(f, np.zeros((3, 2)))
    expected = [[1 / (1 + np.exp(-1)), 1 / (1 + np.e)], [2 / 3, 1 / 3], [0.0, 1.0]]
    np.testing.assert_allclose(found.mean, expected, atol=1e-15)
    assert not found.variance.any()
    one = gate_moments([[-3.0], [2.0]], [[1.0], [0.0]])
    np.testing.assert_array_equal(one.mean, 1.0)
    np.testing.assert_array_equal(one.variance, 0.0)


def test_very_negative_means_are_the_softmax_and_far_ones_are_finite() -> None:
    mean, variance = np.array([[-1.0, 0.3]]), np.array([[0.5, 2.0]])
    low, lower = gate_moments(mean - 50, variance), gate_moments(mean - 800, variance)
    np.testing.assert_allclose(low.mean, lower.mean, atol=1e-8)
    u, w = np.polynomial.hermite_e.hermegauss(200)
    softmax = (w / (1 + np.exp(-(1.3 + np.sqrt(2.5) * u)))).sum() / w.sum()
    assert lower.mean[0, 1] == pytest.approx(softmax, abs=1e-8)
    wild = gate_moments([[-800.0, -700.0, 30.0], [0.0, 5.0, -5.0]], [[1.0, 0.0, 2.0], [1e4, 1.0, 0.0]])
    assert np.isfinite(wild.mean).all() and np.isfinite(wild.variance).all()
    assert ((wild.variance >= 0) & (wild.variance <= 0.25)).all()


def test_no_rows_give_no_rows() -> None:
    for method in ("integral", "draws"):
        assert gate_moments(np.zeros((0, 3)), np.zeros((0, 3)), method).mean.shape == (0, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": [[0.0, np.nan]]}, r"mean of f: row 0, component 1 is nan, not a finite number"),
        ({"variance": [[0.0, -1e-9]]}, r"variance of f: row 0, component 1 is -1e-09, not .* at least 0"),
        ({"variance": [[0.0, np.inf]]}, r"variance of f: row 0, component 1 is inf"),
        ({"variance": [[0.0, 1e5]]}, r"row 0 has 100000, above 10000: use method='draws'"),
        ({"mean": [0.0, 1.0]}, r"must both be \(row, component\), got shapes \(2,\) and \(1, 2\)"),
        ({"variance": [[1.0, 1.0, 1.0]]}, r"got shapes \(1, 2\) and \(1, 3\)"),
        ({"method": "exact"}, "method must be one of integral, draws, got 'exact'"),
        ({"method": "draws", "draws": 1}, "draws must be an integer of at least 2, got 1"),
        ({"method": "draws", "seed": -1}, "seed must be an integer of at least 0, got -1"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"mean": [[0.0, 1.0]], "variance": [[1.0, 1.0]]}
    with pytest.raises(ValueError, match=message):
        gate_moments(**{**good, **change})
