"""Rai et al. (2015): what our copy prints against what the model's own equations give."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, optimize, stats

Effect = Callable[[float], None]
Vector = NDArray[np.float64]


def truncated(rate: float, size: int = 60) -> Vector:
    """Return P(m = 0, 1, ...) of a zero-truncated Poisson variable."""
    mass = stats.poisson.pmf(np.arange(size), rate)
    mass[0] = 0.0
    return mass / mass.sum()


def test_sum_of_truncated_counts(effect: Effect) -> None:
    rates, size = (0.4, 0.7), 60
    wanted = truncated(sum(rates), size)  # eq. 10
    plain = [stats.poisson.pmf(np.arange(size), rate) for rate in rates]
    pairs = np.outer(*plain)
    pairs[0, 0] = 0.0  # plain counts given a positive sum
    pairs /= pairs.sum()
    right = np.array([np.trace(pairs[::-1, :], k - size + 1) for k in range(size)])
    np.testing.assert_allclose(right, wanted, atol=1e-14)
    split = [pairs[i, 3 - i] / right[3] for i in range(4)]  # eq. 11
    np.testing.assert_allclose(split, stats.binom.pmf(range(4), 3, rates[0] / sum(rates)), atol=1e-14)
    printed = np.convolve(truncated(rates[0]), truncated(rates[1]))[:size]
    assert printed[1] == 0.0 and wanted[1] > 0.5
    effect(0.5 * np.abs(printed - wanted).sum())


def test_truncated_counts_in_the_negative_binomial(effect: Effect) -> None:
    topic, r, p = np.array([0.5, 0.3, 0.2]), 1.3, 0.4
    counts, u = np.arange(60), 1.7
    plain, cut = np.array([1.0]), np.array([1.0])
    for v in topic:
        plain = np.convolve(plain, stats.poisson.pmf(counts, v * u))[:60]
        cut = np.convolve(cut, truncated(v * u))[:60]
    np.testing.assert_allclose(plain, stats.poisson.pmf(counts, u), atol=1e-14)
    assert np.all(cut[: topic.size] == 0.0)
    prior = stats.gamma(r, scale=p / (1 - p))
    wanted = stats.nbinom.pmf(counts, r, 1 - p)  # mass proportional to p^m (1 - p)^r
    for m in range(4):
        mixed = integrate.quad(lambda x, m=m: stats.poisson.pmf(m, x) * prior.pdf(x), 0, np.inf)[0]
        assert abs(mixed - wanted[m]) < 1e-8
    effect(wanted[: topic.size].sum())


def test_improper_hyperprior(effect: Effect) -> None:
    odds = np.array([0.3, 0.8])  # v_k exp(psi_k) of the two topics of one positive label

    def likelihood(log_r: float, other: float = 1.0) -> float:
        return 1.0 - float((1 + odds[0]) ** -np.exp(log_r) * (1 + odds[1]) ** -other)

    def mass(lower: float, shape: float, rate: float) -> float:
        def density(s: float) -> float:
            return likelihood(s) * float(np.exp(shape * s - rate * np.exp(s)))

        return integrate.quad(density, np.log(lower), 0.0, limit=200)[0]

    floor = likelihood(-np.inf)  # the first topic is empty, the second explains the label
    assert floor > 0
    growth = [(mass(10.0 ** -(k + 1), 0, 0) - mass(10.0**-k, 0, 0)) / floor for k in (6, 7, 8)]
    np.testing.assert_allclose(growth, np.log(10), rtol=1e-6)  # never converges
    assert abs(mass(1e-60, 1.0, 1.0) - mass(1e-30, 1.0, 1.0)) < 1e-12
    # p(tau) proportional to 1/tau: K = 2 weights of a feature have density prop. to |w|^-2 in the plane.
    at = [integrate.quad(lambda t, w=w: t * np.exp(-0.5 * t * w**2) / t, 0, np.inf)[0] for w in (0.1, 0.2)]
    assert abs(at[0] / at[1] - 4) < 1e-6
    effect(growth[0])


def test_listed_order_of_updates(effect: Effect) -> None:
    r, psi, u = 0.5, np.array([-2.0, 0.0, 2.0]), np.geomspace(1e-3, 60, 80)
    counts = np.arange(1, 90)  # one row, one label, y = 1, so the count is positive
    prior = u**r * np.exp(-u * np.exp(-psi)[:, None])  # gamma on a geometric grid of u
    prior /= prior.sum(axis=1, keepdims=True)
    law = stats.poisson.pmf(counts, u[:, None])
    joint = prior[:, :, None] * law / (prior[:, :, None] * law).sum()  # (psi, u, m)
    pair = joint.sum(axis=1)
    u_given, psi_given = joint / joint.sum(axis=1, keepdims=True), pair / pair.sum(axis=0)
    m_given = law / law.sum(axis=1, keepdims=True)
    # From (psi, m) to (psi', m'): the weights are drawn with u integrated out, as in the paper.
    right = np.einsum("bm,bum,un->mbn", psi_given, u_given, m_given)
    right_step = np.einsum("am,mbn->bn", pair, right)
    np.testing.assert_allclose(right_step, pair, atol=1e-14)
    now = pair
    for _ in range(400):  # U with the old weights, then W
        now = np.einsum("am,aum,bm,un->bn", now, u_given, psi_given, m_given, optimize=True)
    effect(0.5 * np.abs(now.sum(axis=1) - pair.sum(axis=1)).sum())


def test_plug_in_expectations(effect: Effect) -> None:
    r, tau = 0.5, 0.25

    def objective(w: float) -> float:  # one label, one row, x = 1: eq. 19 and the normal prior
        return float(np.log(-np.expm1(-r * np.logaddexp(0, w))) - 0.5 * tau * w**2)

    def plug_in(w: float) -> float:
        m = 1.0
        for _ in range(500):
            u = (r + m) / (1 + np.exp(-w))
            m = u / -np.expm1(-u)
        return m

    def exact(w: float) -> float:  # E[m | y = 1] with u integrated out
        return float(r * np.exp(w) / -np.expm1(-r * np.logaddexp(0, w)))

    def weight_step(w: float, m: float) -> float:  # eqs. 17 and 18
        return float(0.5 * (m - r) / ((m + r) * np.tanh(w / 2) / (2 * w) + tau))

    best = optimize.minimize_scalar(lambda w: -objective(w), bracket=(0.1, 1.0), tol=1e-12).x
    assert abs(weight_step(best, exact(best)) - best) < 1e-6
    w = best
    for _ in range(200):
        w = weight_step(w, plug_in(w))
    assert objective(weight_step(best, plug_in(best))) < objective(best) - 1e-3
    effect(objective(best) - objective(w))


def test_simplex_mode_of_a_topic(effect: Effect) -> None:
    eta, counts = 0.5, np.array([3.0, 1.0, 0.0])
    mode = (counts + eta - 1) / (counts + eta - 1).sum()
    assert mode.min() < 0  # the closed form leaves the simplex

    def objective(last: float, power: float) -> float:
        v = np.append(np.array([0.7, 0.3]) * (1 - last), last)
        return float(((counts + eta + power) * np.log(v)).sum())

    climb = [objective(10.0 ** -(k + 1), -1) - objective(10.0**-k, -1) for k in (6, 7, 8)]
    np.testing.assert_allclose(climb, (1 - eta) * np.log(10), rtol=1e-5)  # no maximum
    v = (counts + eta) / (counts + eta).sum()
    found = optimize.minimize(
        lambda s: -((counts + eta) * (s - np.logaddexp.reduce(s))).sum(), np.zeros(3), method="BFGS"
    ).x
    np.testing.assert_allclose(np.exp(found - np.logaddexp.reduce(found)), v, atol=1e-5)
    effect(climb[0])


def online_problem() -> tuple[Vector, Vector, Vector, Vector]:
    """Return X (feature, obs), omega, kappa and the prior precision of a small regression step."""
    rng = np.random.default_rng(5)
    return (
        rng.normal(size=(3, 40)),
        rng.gamma(2.0, 0.1, 40),
        rng.normal(0, 0.5, 40),
        np.array([4.0, 4.0, 4.0]),
    )


def test_online_statistic_loses_the_prior(effect: Effect) -> None:
    X, omega, kappa, tau = online_problem()
    batch = X * omega @ X.T + np.diag(tau)  # S_k of eq. 18
    S, G = batch.copy(), X * omega @ X.T
    for t in range(1, 400):  # every minibatch is the whole data set
        step = (t + 1) ** -0.6
        S, G = (1 - step) * S + step * (X * omega @ X.T), (1 - step) * G + step * (X * omega @ X.T)
    wanted = np.linalg.solve(batch, X @ kappa)
    np.testing.assert_allclose(np.linalg.solve(G + np.diag(tau), X @ kappa), wanted, rtol=1e-12)
    printed = np.linalg.solve(S, X @ kappa)
    effect(float(np.linalg.norm(printed - wanted) / np.linalg.norm(wanted)))


def test_online_statistics_need_the_batch_scale(effect: Effect) -> None:
    X, omega, kappa, tau = online_problem()
    size = 4
    S, d, scaled_S, scaled_d = np.zeros((3, 3)), np.zeros(3), np.zeros((3, 3)), np.zeros(3)
    for t in range(10):  # steps 1/t over one pass: the plain average of the minibatches
        part = slice(size * t, size * (t + 1))
        step, scale = 1 / (t + 1), 40 / size
        A, b = X[:, part] * omega[part] @ X[:, part].T, X[:, part] @ kappa[part]
        S, d = (1 - step) * S + step * A, (1 - step) * d + step * b
        scaled_S, scaled_d = (
            (1 - step) * scaled_S + step * scale * A,
            (1 - step) * scaled_d + step * scale * b,
        )
    wanted = np.linalg.solve(X * omega @ X.T + np.diag(tau), X @ kappa)
    np.testing.assert_allclose(np.linalg.solve(scaled_S + np.diag(tau), scaled_d), wanted, rtol=1e-10)
    printed = np.linalg.solve(S + np.diag(tau), d)
    effect(float(np.linalg.norm(printed - wanted) / np.linalg.norm(wanted)))
