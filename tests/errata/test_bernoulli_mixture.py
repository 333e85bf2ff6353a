"""Shi, Yu and Yu (2021): what our copy prints against what the logistic-softmax model gives."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, optimize, special, stats

from labelzoo.inference.gp_bernoulli_mixture import local, structured
from labelzoo.inference.gp_bernoulli_mixture.factors import problem_of
from labelzoo.inference.gp_bernoulli_mixture.gates import gate_step
from labelzoo.inference.gp_bernoulli_mixture.updates import omega_given_count
from labelzoo.inference.polya_gamma.density import log_density

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
    state = {"white": np.array([[2.0], [-1.0]]), "assignment": np.array([0]), "count": np.array([[3.0, 2.0]])}
    inputs = {"factor": np.ones((1, 1)), "gate_mean": 0.0, "prior_positive": np.ones((2, 1))}
    own = omega_given_count(state, inputs)  # what the sampler draws: PG(z + v, f), not PG(v, f)
    means = np.array([[4.0, 2.0]]) * np.tanh([[1.0, -0.5]]) / np.array([[4.0, -2.0]])
    np.testing.assert_allclose(own.mean, means, rtol=1e-6)
    effect(ratios[0])


def test_labels_and_counts_share_a_factor(effect: Effect) -> None:
    """With q(z) apart, the best q(omega | v) is the geometric mean of PG(v + 1, c) and PG(v, c): no PG."""
    x = np.linspace(0.0, 10.0, 6_001)[1:]
    phi, v = 0.5, 1.0
    logs = [np.asarray(log_density(x, b)) for b in (v + 1.0, v)]  # c = 0

    def moment(density: Vector, power: int) -> float:
        return float(integrate.trapezoid(x**power * density, x))

    best = np.exp(phi * logs[0] + (1 - phi) * logs[1])
    best /= moment(best, 0)
    wanted = [moment(best, 1), moment(best, 2) - moment(best, 1) ** 2]

    def family(b: float, tilt: float) -> Vector:
        density = np.exp(np.asarray(log_density(x, b)) - tilt * x)
        return np.asarray(density / moment(density, 0))

    def gap(at: Vector) -> list[float]:
        density = family(*at)
        first = moment(density, 1)
        return [first - wanted[0], moment(density, 2) - first**2 - wanted[1]]

    # PG(b, c) is PG(b, 0) exp(-c^2 x / 2): the member with the same mean and variance is another density.
    nearest = optimize.fsolve(gap, [1.5, 0.0])
    assert np.abs(gap(nearest)).max() < 1e-8
    distance = float(integrate.trapezoid(np.abs(best - family(*nearest)), x)) / 2
    assert distance > 0.001
    # At v = 0 one is a point at 0, the other continuous: with phi inside (0, 1) no density serves both.
    assert polya_gamma_transform(0.0, 1e9) == 1.0 and polya_gamma_transform(1.0, 1e9) < 1e-6
    printed_mean = 0.25 * (v + phi)
    effect(wanted[0] / printed_mean)


def test_weights_of_the_gaussian_factor(effect: Effect) -> None:
    """The bound of the package's own structured engine is largest at E omega of shape phi + E v."""
    Y, observed = np.array([[1.0, 0.0]]), np.ones((1, 2), bool)
    prior = {"prior_positive": np.array([[3.0, 1.0], [1.0, 1.0]]), "prior_negative": np.ones((2, 2))}
    problem = problem_of(
        {"factor": np.array([[np.sqrt(2.0)]]), "Y": Y, "observed": observed, "gate_mean": 0.5, **prior}
    )
    state = structured.start_from(problem, np.array([[0.7, 0.3]]))
    for _ in range(500):
        state = structured.sweep(problem, state)
    factors = state.factors
    phi, mean = factors.responsibility, factors.gate_mean_q
    c = local.tilt(mean, factors.gate_variance)
    gamma = local.structured_counts(local.log_miss(mean, local.curve(mean, factors.gate_variance)))

    def bound(weight: Vector) -> float:
        gate = gate_step(problem, weight, factors.potential)
        moved = factors._replace(weight=weight, gate_mean_q=gate.mean, gate_variance=gate.variance)
        return float(structured.bound(problem, moved, gate.divergence))

    right = (phi + gamma) * np.tanh(c / 2) / (2 * c)
    printed = gamma * np.tanh(c / 2) / (2 * c)  # the mean over q(omega, v) with the shape of eq. 7
    np.testing.assert_allclose(factors.weight, right, rtol=1e-8)
    for shift in (0.97, 1.03):
        assert bound(right) > bound(right * shift)
    assert bound(right) > bound(printed) + 1e-3
    effect(bound(right) - bound(printed))


def test_assignment_update(effect: Effect) -> None:
    labels = np.log([0.3, 0.5])  # expected log probability of the labels under each component
    m, second = np.array([2.0, 0.0]), np.array([2.2**2, 0.6**2])  # E f and E f^2 under q(f)
    best = np.array([np.log(polya_gamma_transform(1, s / 2)) for s in second])  # best q(omega | z = 1)
    np.testing.assert_allclose(best, np.log(2) - np.log(2 * np.cosh(np.sqrt(second) / 2)), atol=1e-8)

    def bound(phi: float) -> float:
        q = np.array([phi, 1 - phi])
        return float((q * (labels + m / 2 - np.log(2) + best)).sum() + special.entr(q).sum())

    right = special.softmax(labels + m / 2 - np.log(2 * np.cosh(np.sqrt(second) / 2)))[0]
    own = labels + m / 2 + local.curve(m, second - m**2)
    np.testing.assert_allclose(local.responsibilities(own[None])[0, 0], right)  # what the engines run
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
