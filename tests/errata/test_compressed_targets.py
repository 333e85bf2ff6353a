"""Shi and Yu (2019): what our copy prints against what its model of the targets gives."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, stats

Effect = Callable[[float], None]
Matrix = NDArray[np.float64]


def correlation(U: Matrix) -> float:
    """Return the largest absolute correlation between two columns."""
    return float(np.abs(np.corrcoef(U.T) - np.eye(U.shape[1])).max())


def planted(seed: int, scales: tuple[float, ...], noise: float, rows: int = 60) -> Matrix:
    """Return centred data with factors of the given scales under a random rotation, plus noise."""
    rng = np.random.default_rng(seed)
    d = 5
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0][:, : len(scales)]
    R = rng.normal(size=(rows, len(scales))) * scales @ basis.T + noise * rng.normal(size=(rows, d))
    return R - R.mean(axis=0)


def test_targets_are_orthogonal_only_without_rotation(effect: Effect) -> None:
    R, p = planted(1, (1.5, 0.7), 0.5), 2
    values, vectors = np.linalg.eigh(R.T @ R / len(R))
    values, vectors = values[::-1], vectors[:, ::-1]
    s2 = values[p:].mean()  # maximum likelihood
    cos = np.sqrt(0.5)

    def targets(rotation: Matrix) -> Matrix:  # eqs. 3 and 4, with M = W'W + sigma^2 I
        W = vectors[:, :p] * np.sqrt(values[:p] - s2) @ rotation
        return R @ W @ np.linalg.inv(W.T @ W + s2 * np.eye(p))

    turn = np.array([[cos, -cos], [cos, cos]])
    np.testing.assert_allclose(
        np.cov(targets(turn).T, bias=True),
        turn.T @ np.diag(1 - s2 / values[:p]) @ turn,
        atol=1e-12,
    )
    assert correlation(targets(np.eye(p))) < 1e-12 and correlation(targets(np.eye(p)[::-1])) < 1e-12
    effect(correlation(targets(turn)))


def test_variational_targets_before_convergence(effect: Effect) -> None:
    R, p, a, b = planted(2, (1.5, 0.9), 0.3), 2, 1e-3, 1e-3
    (m, d), rng = R.shape, np.random.default_rng(4)
    W, SW, alpha, t = rng.normal(size=(d, p)), 0.01 * np.eye(p), np.ones(p), 1.0
    history = []
    for sweep in range(10_000):
        Om = W.T @ W + d * SW
        SU = np.linalg.inv(np.eye(p) + t * Om)
        U = t * R @ W @ SU
        Phi = U.T @ U + m * SU
        SW = np.linalg.inv(np.diag(alpha) + t * Phi)
        W = t * R.T @ U @ SW
        Om = W.T @ W + d * SW
        alpha = (a + d / 2) / (b + 0.5 * np.diag(Om))
        t = (a + m * d / 2) / (b + 0.5 * ((R**2).sum() + (Om * Phi).sum() - 2 * (R * (U @ W.T)).sum()))
        if sweep in (19, 9_999):
            left = linalg.svd(U @ W.T, full_matrices=False)[0][:, :p]  # canonical targets, at any sweep
            assert correlation(left) < 1e-10
            history.append(correlation(U))
    assert history[1] < 1e-6  # orthogonal in the end
    effect(history[0])


def test_noise_matrix_holds_variances(effect: Effect) -> None:
    x, z, beta = np.array([0.0, 0.6, 1.5]), 0.9, np.array([4.0, 25.0])
    Kf = np.array([[1.0, 0.5], [0.5, 1.0]])
    everything = np.append(x, z)
    K = np.exp(-0.5 * (everything[:, None] - everything) ** 2)
    full = np.kron(Kf, K) + np.kron(np.diag(1 / beta), np.eye(4))  # eqs. 6 and 7
    new, old = [3, 7], [0, 1, 2, 4, 5, 6]
    wanted = full[np.ix_(new, new)] - full[np.ix_(new, old)] @ np.linalg.solve(
        full[np.ix_(old, old)], full[np.ix_(old, new)]
    )

    def predictive(D: Matrix) -> Matrix:  # eq. 9
        C = np.kron(Kf, K[:3, :3]) + np.kron(D, np.eye(3))
        cross = np.kron(Kf, K[:3, 3:])
        return Kf * K[3, 3] + D - cross.T @ np.linalg.solve(C, cross)

    right, printed = predictive(np.diag(1 / beta)), predictive(np.diag(beta))
    np.testing.assert_allclose(right, wanted, atol=1e-12)
    effect(printed[0, 0] / right[0, 0])


def test_orthogonal_targets_do_not_make_functions_independent(effect: Effect) -> None:
    m, rng = 200, np.random.default_rng(10)
    x = np.linspace(0, 24, m)
    K = np.exp(-0.5 * (x[:, None] - x) ** 2) + 1e-9 * np.eye(m)
    smooth = np.linalg.cholesky(K) @ rng.normal(size=m)
    rough = rng.normal(size=m)
    rough *= np.linalg.norm(smooth) / np.linalg.norm(rough)
    U = np.stack([smooth + rough, smooth - rough])  # the same function twice, plus noise
    assert abs(U[0] @ U[1]) < 1e-10  # yet orthogonal as observed

    # The sum and the difference of the two targets have covariance (1 +- rho) K + noise (eqs. 6 and 7).
    values, vectors = np.linalg.eigh(K)
    plus, minus = (vectors.T @ (U[0] + sign * U[1]) / np.sqrt(2) for sign in (1, -1))
    noise = float(np.mean(rough**2))

    def log_likelihood(rho: float) -> float:
        parts = [stats.norm.logpdf(plus, 0, np.sqrt((1 + rho) * values + noise))]
        parts.append(stats.norm.logpdf(minus, 0, np.sqrt((1 - rho) * values + noise)))
        return float(np.sum(parts))

    best = optimize.minimize_scalar(lambda r: -log_likelihood(r), bounds=(-0.99, 0.99), method="bounded").x
    assert log_likelihood(best) > log_likelihood(0.0) + 3
    effect(best)


def test_sign_of_the_sampling_function(effect: Effect) -> None:
    x, noise, lam = np.array([-1.0, 0.0, 1.0]), np.array([0.1, 0.2]), np.array([2.0, 1.0])
    pool = np.array([0.1, 0.5, 4.0])  # the last candidate is far from all that was seen

    def log_variance(z: float, s: float) -> float:
        C = np.exp(-0.5 * (x[:, None] - x) ** 2) + s * np.eye(3)
        k = np.exp(-0.5 * (x - z) ** 2)
        return float(np.log(1 + s - k @ np.linalg.solve(C, k)))

    terms = np.array([[log_variance(z, s) for s in noise] for z in pool])
    entropy_pick = int(np.argmax(terms.sum(axis=1)))  # eq. 10 with independent targets
    printed, right = int(np.argmax(-(terms @ lam))), int(np.argmax(terms @ lam))
    assert entropy_pick == right == 2 and printed == int(np.argmin(terms @ lam))
    effect(float((terms @ lam)[right] - (terms @ lam)[printed]))
