"""Shi, Yu and Yu (2021): what our copy prints against what the logistic-softmax model gives."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, optimize, special, stats

Effect = Callable[[float], None]
Vector = NDArray[np.float64]


def weights(f: Vector) -> Vector:
    """Return eq. 4 along the last axis."""
    log_sigma = -np.logaddexp(0, -f)
    return special.softmax(log_sigma, axis=-1)


def moments(mean: Vector, variance: float, function: Callable[[Vector], Vector]) -> float:
    """Return E function(pi) for two independent normal f, by a tensor Gauss-Hermite rule."""
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    f = mean + np.sqrt(variance) * np.stack(np.meshgrid(node, node, indexing="ij"), axis=-1)
    return float((np.outer(weight, weight) * function(weights(f))).sum() / weight.sum() ** 2)


def polya_gamma_transform(b: float, t: float) -> float:
    """Return E exp(-omega t) for omega ~ PG(b, 0), from its definition as a sum of gamma variables."""
    rate = 2 * np.pi**2 * (np.arange(1, 200_001) - 0.5) ** 2
    tail = t / (2 * np.pi**2 * rate.size)  # sum over the terms left out
    return float(np.exp(-b * (np.log1p(t / rate).sum() + tail)))


def test_mean_of_the_latent_functions(effect: Effect) -> None:
    f = np.array([1.0, -1.0])
    np.testing.assert_allclose(special.softmax(f - 5), special.softmax(f))  # true of the softmax
    assert np.abs(weights(f - 5) - weights(f)).max() > 0.1  # not of eq. 4
    np.testing.assert_allclose(weights(f - 40), special.softmax(f))

    def largest(mean: float) -> float:
        return moments(np.full(2, mean), 4.0, lambda pi: pi.max(axis=-1))

    samples = np.random.default_rng(1).normal(0, 2, size=(200_000, 2))
    draws = weights(samples).max(axis=1)
    assert abs(draws.mean() - largest(0.0)) < 5 * draws.std() / np.sqrt(draws.size) + 2e-3
    effect(largest(-4.0) - largest(0.0))


def test_shape_of_the_polya_gamma_variable(effect: Effect) -> None:
    ratios = []
    for z, v, f in [(1, 0, 2.0), (1, 3, -1.0), (0, 2, 0.7), (1, 1, 2.0)]:
        wanted = special.expit(f) ** z * special.expit(-f) ** v  # the factor of eq. 6
        outer = 2.0 ** -(z + v) * np.exp((z - v) * f / 2)  # eq. 7 before the average over omega
        right = outer * polya_gamma_transform(z + v, f**2 / 2)
        printed = outer * polya_gamma_transform(v, f**2 / 2)
        assert abs(right / wanted - 1) < 1e-8
        np.testing.assert_allclose(printed / wanted, np.cosh(f / 2) ** z, rtol=1e-8)
        ratios.append(printed / wanted)
    effect(ratios[0])


def test_assignment_update(effect: Effect) -> None:
    labels = np.log([0.3, 0.5])  # expected log probability of the labels under each component
    m, second = np.array([2.0, 0.0]), np.array([2.2**2, 0.6**2])  # E f and E f^2 under q(f)
    best = np.array([np.log(polya_gamma_transform(1, s / 2)) for s in second])  # best q(omega | z = 1)
    np.testing.assert_allclose(best, np.log(2) - np.log(2 * np.cosh(np.sqrt(second) / 2)), atol=1e-8)

    def bound(phi: float) -> float:
        q = np.array([phi, 1 - phi])
        return float((q * (labels + m / 2 - np.log(2) + best)).sum() + special.entr(q).sum())

    right = special.softmax(labels + m / 2 - np.log(2 * np.cosh(np.sqrt(second) / 2)))[0]
    printed = special.softmax(labels + m / 2)[0]
    found = optimize.minimize_scalar(lambda p: -bound(p), bounds=(1e-6, 1 - 1e-6), method="bounded").x
    assert abs(found - right) < 1e-4 and bound(printed) < bound(right) - 0.01
    effect(printed - right)


def test_gaussian_entropy_has_a_half(effect: Effect) -> None:
    x = np.linspace(-12, 12, 801)
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)

    def entropy(C: Vector) -> float:
        density = stats.multivariate_normal(np.zeros(2), C).pdf(grid)
        return float(integrate.trapezoid(integrate.trapezoid(special.entr(density), x), x))

    narrow, wide = np.array([[0.5, 0.2], [0.2, 0.4]]), np.array([[2.0, 0.5], [0.5, 1.5]])
    change = np.linalg.slogdet(wide)[1] - np.linalg.slogdet(narrow)[1]
    slope = (entropy(wide) - entropy(narrow)) / change
    assert abs(slope - 0.5) < 1e-6
    effect(slope)


def test_weight_variance_need_not_grow_with_distance(effect: Effect) -> None:
    def variance(mean: float, s2: float) -> float:
        centre = np.full(2, mean)
        first = moments(centre, s2, lambda pi: pi[..., 0])
        return moments(centre, s2, lambda pi: pi[..., 0] ** 2) - first**2

    # Near the data f is negative and known better than far away, where the prior (mean 0) is back.
    near, far = variance(-3.0, 0.3), variance(0.0, 0.5)
    draws = weights(np.random.default_rng(2).normal(-3.0, np.sqrt(0.3), size=(200_000, 2)))[:, 0]
    assert abs(draws.var() - near) < 1e-3
    assert near > far  # although 0.3 < 0.5
    effect(near / far)
