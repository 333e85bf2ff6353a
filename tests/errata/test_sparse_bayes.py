"""Vasisht et al. (2014): what our copy prints against what the factor graph of eq. 1 gives."""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, linalg, optimize, stats

Effect = Callable[[float], None]
Matrix = NDArray[np.float64]


def log_det(C: Matrix, index: Sequence[int]) -> float:
    """Return log |C_index,index|; zero for the empty set."""
    return float(np.linalg.slogdet(C[np.ix_(index, index)])[1])


def information(C: Matrix, chosen: Sequence[int]) -> float:
    """Return eq. 5 for a Gaussian: I(chosen; the rest), in nats."""
    rest = [i for i in range(len(C)) if i not in chosen]
    return 0.5 * (log_det(C, list(chosen)) + log_det(C, rest) - log_det(C, range(len(C))))


def rbf(points: Sequence[float], noise: float) -> Matrix:
    """Return the kernel matrix exp(-(x - x')^2 / 2) plus noise on the diagonal."""
    x = np.asarray(points, dtype=float)
    return np.exp(-0.5 * (x[:, None] - x) ** 2) + noise * np.eye(x.size)


def entropy(log_density: Callable[[Matrix], Matrix], grid: Matrix) -> float:
    """Return the entropy of an unnormalised log density by the trapezoid rule on the grid."""
    values = log_density(grid)
    weight = np.exp(values - values.max())
    mass = integrate.trapezoid(weight, grid)
    return float(np.log(mass) + values.max() - integrate.trapezoid(weight * values, grid) / mass)


def test_exponent_of_the_sparsity_term(effect: Effect) -> None:
    a0, b0 = 0.7, 0.4

    def marginal(y: float) -> float:
        prior = stats.gamma(a0, scale=1 / b0)
        return integrate.quad(lambda a: stats.norm.pdf(y, 0, a**-0.5) * prior.pdf(a), 0, np.inf)[0]

    pairs = [(0.3, 1.0), (1.0, 2.0), (2.0, 4.0)]
    slopes = [
        np.log(marginal(x) / marginal(y)) / np.log((1 + x**2 / (2 * b0)) / (1 + y**2 / (2 * b0)))
        for x, y in pairs
    ]
    np.testing.assert_allclose(slopes, -(a0 + 0.5), rtol=1e-5)
    assert np.all(np.abs(np.array(slopes) + a0) > 0.4)
    effect(-slopes[0] - a0)


def test_inflection_of_the_sparsity_term(effect: Effect) -> None:
    a0 = b0 = 1e-3

    def curvature(y: float) -> float:
        c = a0 + 0.5  # second derivative of (1 + y^2 / (2 b0))^-c, up to a positive factor
        return float((2 * c + 1) * y**2 / (2 * b0) - 1)

    h, y = 1e-4, 0.03
    f = (1 + np.array([y - h, y, y + h]) ** 2 / (2 * b0)) ** -(a0 + 0.5)
    assert np.sign(f[0] - 2 * f[1] + f[2]) == np.sign(curvature(y))
    right, printed = np.sqrt(b0 / (a0 + 1)), np.sqrt(2 * b0 / (2 * a0 + 1))
    root = optimize.brentq(curvature, 1e-4, 1.0, xtol=1e-14)
    assert abs(root - right) < 1e-10 and curvature(printed) > 0.9
    effect(printed / root)


def test_rate_update_needs_the_mean(effect: Effect) -> None:
    a0, b0, mean, variance = 0.01, 0.01, 0.8, 0.05
    a = a0 + 0.5

    log_alpha = np.linspace(-60, 8, 20_001)
    alpha = np.exp(log_alpha)
    normal = 0.5 * log_alpha - 0.5 * np.log(2 * np.pi) - 0.5 * alpha * (mean**2 + variance)
    prior = stats.gamma(a0, scale=1 / b0).logpdf(alpha)

    def bound(b: float) -> float:  # the part of the bound that holds q(alpha) = Gamma(a, b), by quadrature
        q = stats.gamma(a, scale=1 / b).logpdf(alpha)
        return float(integrate.trapezoid(np.exp(q) * alpha * (normal + prior - q), log_alpha))

    right, printed = b0 + 0.5 * (mean**2 + variance), b0 + 0.5 * variance
    best = optimize.minimize_scalar(lambda s: -bound(np.exp(s)), bracket=(-1.2, -0.9), tol=1e-9).x
    assert abs(np.exp(best) - right) < 1e-4
    effect(bound(right) - bound(printed))


def test_conditioning_belongs_inside_the_loop(effect: Effect) -> None:
    b0, Phi = 1e-6, np.random.default_rng(2).normal(size=(2, 3)) / np.sqrt(2)
    P0 = np.kron(np.linalg.inv(rbf([0.0, 0.3], 0.1)), Phi.T @ Phi)
    seen, hidden, y = [0, 1, 2], [3, 4, 5], np.array([1.0, 0.0, 0.0])  # the second point is unlabelled

    def conditional(alpha: Matrix) -> tuple[Matrix, Matrix]:
        precision = np.diag(alpha[hidden]) + P0[np.ix_(hidden, hidden)]
        return -np.linalg.solve(precision, P0[np.ix_(hidden, seen)] @ y), np.linalg.inv(precision)

    free, inside = np.ones(6), np.ones(6)
    for _ in range(200):
        free = (b0 + 0.5) / (b0 + 0.5 * np.diag(np.linalg.inv(np.diag(free) + P0)))
        mean, S = conditional(inside)
        inside[hidden] = (b0 + 0.5) / (b0 + 0.5 * (mean**2 + np.diag(S)))
    right, printed = conditional(inside)[0], conditional(free)[0]
    assert np.argmax(right) == 0 and right[0] > 0.5
    assert free.min() > 100 and np.abs(printed).max() < 0.02  # all labels predicted as zero
    effect(right[0] - printed[0])


def test_theorem_1_depends_on_the_exponent(effect: Effect) -> None:
    m, s2, limit = 0.8, 0.5, 0.5 * np.log(2 * np.pi * np.e * 0.5)
    near = np.geomspace(1e-9, 9, 20001)
    grid = np.concatenate([-near[::-1], [0.0], near])

    def gap(eps: float, extra: float) -> float:
        c = eps + extra  # a0 = b0 = eps
        return limit - entropy(lambda x: -0.5 * (x - m) ** 2 / s2 - c * np.log1p(x**2 / (2 * eps)), grid)

    scales = (1e-2, 1e-3, 1e-4)
    potential, normalised = ([gap(eps, extra) for eps in scales] for extra in (0.0, 0.5))
    assert potential[0] > potential[1] > potential[2] > 0 and potential[2] < 2e-5  # exponent -a0: holds
    assert 0 < normalised[0] < normalised[1] < normalised[2]  # exponent -(a0 + 1/2): moves away
    effect(normalised[2])


def test_conditional_of_the_proof_sketch(effect: Effect) -> None:
    a0 = b0 = 0.1
    x = np.linspace(-8, 8, 1601)
    mean, C = np.array([0.6, 0.6]), np.array([[0.5, 0.4], [0.4, 0.5]])  # two unobserved labels given A
    centred = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1) - mean
    factor = (1 + x**2 / (2 * b0)) ** -a0
    joint = np.exp(-0.5 * np.einsum("...i,ij,...j", centred, np.linalg.inv(C), centred))
    right = (joint * factor[:, None] * factor).sum(axis=1)
    printed = np.exp(-0.5 * (x - mean[0]) ** 2 / C[0, 0]) * factor
    right, printed = right / right.sum(), printed / printed.sum()
    given = joint[:, 900] * factor  # exact once every other coordinate is given
    m = mean[0] + C[0, 1] / C[1, 1] * (x[900] - mean[1])
    alone = np.exp(-0.5 * (x - m) ** 2 / (C[0, 0] - C[0, 1] ** 2 / C[1, 1])) * factor
    np.testing.assert_allclose(given / given.sum(), alone / alone.sum(), atol=1e-12)
    effect(0.5 * np.abs(right - printed).sum())


def test_proposition_2_is_not_the_objective(effect: Effect) -> None:
    C = rbf([0.0, 0.5, 1.5, 3.0], 0.2)
    unit = 0.5 * np.log(2 * np.pi * np.e)

    def entropy_of(index: Sequence[int]) -> float:
        return unit * len(index) + 0.5 * log_det(C, index)

    gaps = []
    for chosen in ([0], [1, 2], [0, 2, 3]):
        rest = [i for i in range(4) if i not in chosen]
        given = C[np.ix_(rest, rest)] - C[np.ix_(rest, chosen)] @ np.linalg.solve(
            C[np.ix_(chosen, chosen)], C[np.ix_(chosen, rest)]
        )
        remaining = unit * len(rest) + 0.5 * float(np.linalg.slogdet(given)[1])
        printed = entropy_of(range(4)) - remaining  # H(U) - H(U \ A | A)
        assert abs(printed - entropy_of(chosen)) < 1e-12  # is H(A)
        objective = entropy_of(rest) - remaining  # eq. 5
        assert abs(objective - information(C, chosen)) < 1e-12
        gaps.append(printed - objective)
    effect(gaps[0])


def test_objective_is_submodular_but_not_monotone(effect: Effect) -> None:
    C = rbf([0.0, 0.5, 1.5, 3.0, 4.0], 0.2)
    subsets = [A for n in range(6) for A in combinations(range(5), n)]
    F = {A: information(C, A) for A in subsets}

    def gain(A: tuple[int, ...], i: int) -> float:
        return F[tuple(sorted((*A, i)))] - F[A]

    for small in subsets:
        for large in subsets:
            if set(small) <= set(large):
                outside = [i for i in range(5) if i not in large]
                assert all(gain(small, i) >= gain(large, i) - 1e-12 for i in outside)
    assert abs(F[()]) < 1e-12 and abs(F[tuple(range(5))]) < 1e-12
    effect(max(F.values()) - F[tuple(range(5))])


def test_greedy_guarantee_needs_monotonicity(effect: Effect) -> None:
    C = rbf([0.0, 1.0, 2.0, 5.0], 1.0)
    ratios = []
    chosen: tuple[int, ...] = ()
    for n in (1, 2, 3):
        candidates = [tuple(sorted((*chosen, i))) for i in range(4) if i not in chosen]
        chosen = max(candidates, key=lambda A: information(C, A))
        best = max(information(C, A) for A in combinations(range(4), n))
        ratios.append(information(C, chosen) / best)
    assert min(ratios[:2]) > 1 - 1 / np.e  # small sets
    assert ratios[2] < 1 - 1 / np.e
    effect(ratios[2])


def test_single_labels_and_the_singular_precision(effect: Effect) -> None:
    rng = np.random.default_rng(2)
    k, labels = 2, 4
    Phi, C = rng.normal(size=(k, labels)), rbf([0.0, 0.7], 0.1)

    def mutual(precision: Matrix, first: Sequence[int]) -> float:
        return information(linalg.inv(precision), first)

    whole, single = [], []
    for eps in (1e-4, 1e-5, 1e-6):
        both = np.kron(np.linalg.inv(C), Phi.T @ Phi) + eps * np.eye(2 * labels)
        whole.append(mutual(both, range(labels)))
        single.append(mutual(Phi.T @ Phi + eps * np.eye(labels), [0]))
    np.testing.assert_allclose(whole, k * information(C, [0]), atol=1e-3)  # points: a finite limit
    assert abs(whole[2] - k * information(C, [0])) < 1e-5
    effect(single[2] - single[1])
