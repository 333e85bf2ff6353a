"""Cores of the sparse Bayesian model against dense Gaussian algebra, quadrature and finite differences."""

import numpy as np
import pytest
from scipy.special import gammaln

from labelzoo.inference.sparse_bayes.bml_cs import at_alpha as bml_cs_at_alpha
from labelzoo.inference.sparse_bayes.bml_cs import mean_field, new_rows
from labelzoo.inference.sparse_bayes.complete import choose_method, complete, draw, num_normals
from labelzoo.inference.sparse_bayes.inductive import at_alpha, condition, fit_rows, row_precision
from labelzoo.inference.sparse_bayes.plain_gp import plain_gp, plain_gp_variance

PRIOR = {"shape": 0.5, "rate": 0.5}
SPARSE = {"shape": 1e-6, "rate": 1e-6}


def kernel(X, Z):
    return np.exp(-0.5 * ((X[:, None] - Z[None]) ** 2).sum(axis=2))


def problem(seed, rows=7, labels=5, k=3, missing=0.4, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 2))
    Phi = rng.standard_normal((k, labels)) / np.sqrt(k)
    Y = (rng.random((rows, labels)) < 0.4).astype(float)
    Y[rng.random(Y.shape) < missing] = np.nan
    Y[0, 0] = 1.0
    return X, kernel(X, X) + noise * np.eye(rows), Phi, Y


def dense_law(C, Phi, Y, alpha):
    """Mean and covariance of q(Y_U) from the whole precision C^-1 kron Phi'Phi."""
    whole = np.kron(np.linalg.inv(C), Phi.T @ Phi)
    free = np.isnan(Y).ravel()
    given = np.where(np.isnan(Y), 0.0, Y).ravel()
    precision = np.diag(alpha) + whole[np.ix_(free, free)]
    covariance = np.linalg.inv(precision)
    return -covariance @ (whole[free] @ given), covariance


def new_row_inputs(C, T, cross, own):
    return condition(np.linalg.cholesky(C), cross, own, T)


def inductive_problem(seed, train=8, rows=4, labels=5, k=3, noise=0.3):
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((train, 2)), rng.standard_normal((rows, 2))
    Phi = rng.standard_normal((k, labels)) / np.sqrt(k)
    Y = (rng.random((train, labels)) < 0.4).astype(float)
    C = kernel(X, X) + noise * np.eye(train)
    t, v = new_row_inputs(C, Y @ Phi.T, kernel(X, Z), np.full(rows, 1 + noise))
    return X, Z, C, Phi, Y, t, v


@pytest.mark.parametrize("k", [3, 5, 7])
@pytest.mark.parametrize("method", ["dense", "woodbury", "cg"])
def test_completion_is_the_conditional_gaussian(method, k):
    rng = np.random.default_rng(3)
    _, C, Phi, Y = problem(1, k=k)
    Y[2] = [1, 0, 0, 1, 0]  # a row with all labels
    Y[4] = np.nan  # and one with none
    alpha = np.exp(rng.uniform(np.log(0.1), np.log(1e6), np.isnan(Y).sum()))
    mean, covariance = dense_law(C, Phi, Y, alpha)
    found = complete(C, Phi, Y, start=alpha, hold=True, sweeps=1, method=method, tolerance=1e-12, **PRIOR)
    assert found.method == method
    np.testing.assert_array_equal(found.cells, np.argwhere(np.isnan(Y)))
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.variance, np.diag(covariance), rtol=1e-8, atol=1e-12)
    assert (found.residual is None) == (method != "cg")


def test_three_methods_agree_over_sweeps():
    _, C, Phi, Y = problem(2, rows=9, labels=6, k=3)
    fits = [
        complete(C, Phi, Y, sweeps=20, method=m, tolerance=1e-11, **SPARSE)
        for m in ("dense", "woodbury", "cg")
    ]
    for other in fits[1:]:
        np.testing.assert_allclose(other.mean, fits[0].mean, atol=1e-7)
        np.testing.assert_allclose(other.variance, fits[0].variance, atol=1e-7)
        np.testing.assert_allclose(other.precision, fits[0].precision, rtol=1e-5)
    np.testing.assert_allclose(fits[1].bound, fits[0].bound, atol=1e-7)
    assert fits[2].bound is None


def test_one_new_row_is_the_graph_with_one_more_row():
    X, Z, _, Phi, Y, t, v = inductive_problem(4)
    fit = fit_rows(t, v, Phi, sweeps=15, **SPARSE)
    for row in range(len(Z)):
        everything = np.vstack([X, Z[[row]]])
        C = kernel(everything, everything) + 0.3 * np.eye(len(everything))
        labels = np.vstack([Y, np.full(Y.shape[1], np.nan)])
        for method in ("dense", "woodbury"):
            joint = complete(C, Phi, labels, sweeps=15, method=method, **SPARSE)
            np.testing.assert_allclose(joint.mean, fit.mean[row], atol=1e-9)
            np.testing.assert_allclose(joint.variance, fit.variance[row], atol=1e-9)
            whole = -0.5 * np.trace((Y @ Phi.T).T @ np.linalg.solve(C[:-1, :-1], Y @ Phi.T))
            np.testing.assert_allclose(joint.bound, fit.bound[:, row] + whole, atol=1e-8)


def test_row_with_some_labels_observed():
    X, Z, _, Phi, Y, t, v = inductive_problem(5, rows=1)
    partial = np.array([[np.nan, 1.0, np.nan, 0.0, np.nan]])
    fit = fit_rows(t, v, Phi, sweeps=6, Y=partial, **PRIOR)
    everything = np.vstack([X, Z])
    C = kernel(everything, everything) + 0.3 * np.eye(len(everything))
    joint = complete(C, Phi, np.vstack([Y, partial]), sweeps=6, **PRIOR)
    free = np.isnan(partial[0])
    np.testing.assert_allclose(fit.mean[0, free], joint.mean, atol=1e-10)
    np.testing.assert_allclose(fit.variance[0, free], joint.variance, atol=1e-10)
    np.testing.assert_array_equal(fit.mean[0, ~free], partial[0, ~free])
    assert (fit.variance[0, ~free] == 0).all()
    whole = -0.5 * np.trace((Y @ Phi.T).T @ np.linalg.solve(C[:-1, :-1], Y @ Phi.T))
    np.testing.assert_allclose(joint.bound, fit.bound[:, 0] + whole, atol=1e-9)


def test_condition_is_gaussian_conditioning():
    X, Z, C, Phi, Y, t, v = inductive_problem(6)
    np.testing.assert_allclose(t, kernel(X, Z).T @ np.linalg.solve(C, Y @ Phi.T), atol=1e-12)
    for row in range(len(Z)):
        both = np.vstack([X, Z[[row]]])
        whole = kernel(both, both) + 0.3 * np.eye(len(both))
        np.testing.assert_allclose(v[row], 1 / np.linalg.inv(whole)[-1, -1], rtol=1e-10)


def test_row_precision_is_that_of_the_law():
    _, _, _, Phi, _, t, v = inductive_problem(7)
    fit = fit_rows(t, v, Phi, sweeps=4, **PRIOR)
    P = row_precision(fit.used[2], v[2], Phi)
    np.testing.assert_allclose(np.diag(np.linalg.inv(P)), fit.variance[2], atol=1e-12)
    np.testing.assert_allclose(np.linalg.solve(P, Phi.T @ t[2] / v[2]), fit.mean[2], atol=1e-12)


def test_blocks_and_wide_projections_change_nothing(monkeypatch):
    _, _, _, Phi, _, t, v = inductive_problem(8, rows=9)
    whole = fit_rows(t, v, Phi, sweeps=5, **SPARSE)
    monkeypatch.setattr("labelzoo.inference.sparse_bayes.terms.BLOCK_NUMBERS", 30)
    monkeypatch.setattr("labelzoo.inference.sparse_bayes.terms.LARGEST_OUTER", 1)
    for one, other in zip(whole, fit_rows(t, v, Phi, sweeps=5, **SPARSE), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def student(y, shape, rate):
    a = shape + 0.5
    constant = gammaln(a) - gammaln(shape) + shape * np.log(rate) - 0.5 * np.log(2 * np.pi)
    return constant - a * np.log(rate + 0.5 * y**2)


def test_bound_lies_below_the_integral():
    _, _, _, Phi, _, t, v = inductive_problem(9, rows=3, labels=2, k=1)
    grid = np.linspace(-40, 40, 1601)
    y = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    prior = student(y[..., 0], 0.7, 0.5) + student(y[..., 1], 0.7, 0.5)
    fit = fit_rows(t, v, Phi, shape=0.7, rate=0.5, sweeps=200)
    for row in range(3):
        logs = prior - 0.5 * ((y @ Phi.T - t[row]) ** 2).sum(axis=2) / v[row]
        exact = np.log(np.exp(logs).sum() * (grid[1] - grid[0]) ** 2)
        gap = exact - fit.bound[-1, row]
        assert 0 <= gap < 0.6, f"row {row}: gap {gap}"


def test_bound_is_exact_in_its_gaussian_part():
    """The bound is E[log joint] + entropies, taken here by dense algebra at q of the last sweep."""
    _, C, Phi, Y = problem(10)
    fit = complete(C, Phi, Y, sweeps=3, **PRIOR)
    mean, covariance = dense_law(C, Phi, Y, fit.used)
    free = np.isnan(Y).ravel()
    whole = np.kron(np.linalg.inv(C), Phi.T @ Phi)
    filled = np.where(free, 0.0, np.nan_to_num(Y).ravel())
    filled[free] = mean
    second = mean**2 + np.diag(covariance)
    value = -0.5 * (filled @ whole @ filled + np.trace(whole[np.ix_(free, free)] @ covariance))
    value += (
        student(np.sqrt(second), **PRIOR).sum() + 0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1]
    )
    np.testing.assert_allclose(fit.bound[-1], value, atol=1e-9)
    np.testing.assert_allclose(fit.precision, 1.0 / (0.5 + second / 2), rtol=1e-10)


def awkward(seed):
    """Problems of many kinds: k >= labels, equal rows, an all-zero row, a label that is never positive."""
    rng = np.random.default_rng([20, seed])
    rows, labels = int(rng.integers(4, 10)), int(rng.integers(3, 7))
    k = labels + seed % 3 if seed % 4 == 0 else int(rng.integers(1, labels))
    X, _, Phi, Y = problem(seed, rows, labels, k, missing=rng.choice([0.1, 0.5, 0.9]))
    if seed % 3 == 0:
        X[1] = X[2]
    X[3] = 0.0
    Y[0] = 0.0
    Y[:, -1] = np.where(np.isnan(Y[:, -1]), np.nan, 0.0)
    F = np.linalg.cholesky(kernel(X, X) + 1e-10 * np.eye(rows))
    noise = float(rng.choice([1e-3, 0.1, 2.0]))
    prior = SPARSE if seed % 2 else PRIOR
    return F, F @ F.T + noise * np.eye(rows), noise, Phi, Y, prior


def rises(bound):
    slack = 1e-8 * np.maximum(1.0, np.abs(bound[1:]))
    return bool((np.diff(bound, axis=0) >= -slack).all())


@pytest.mark.parametrize("seed", range(20))
def test_bounds_never_fall(seed):
    F, C, noise, Phi, Y, prior = awkward(seed)
    for method in ("dense", "woodbury"):
        found = complete(C, Phi, Y, sweeps=40, method=method, **prior)
        assert rises(found.bound), f"seed {seed}, {method}: {np.diff(found.bound).min()}"
        assert np.isfinite(found.mean).all()
        assert (found.variance > 0).all()
    field = mean_field(F, Phi, Y, sigma2=noise / 3, chi2=noise * 2 / 3, sweeps=40, **prior)
    assert rises(field.bound), f"seed {seed}, mean field: {np.diff(field.bound).min()}"
    rng = np.random.default_rng(seed)
    t, v = rng.standard_normal((5, len(Phi))), rng.uniform(noise, 1 + noise, 5)
    assert rises(fit_rows(t, v, Phi, sweeps=40, **prior).bound)
    assert rises(new_rows(t, v, Phi, chi2=noise * 2 / 3, sweeps=40, **prior).bound)


def test_continuing_from_the_precision_is_one_run():
    _, C, Phi, Y = problem(11)
    whole = complete(C, Phi, Y, sweeps=9, **SPARSE)
    rest = complete(C, Phi, Y, sweeps=5, start=complete(C, Phi, Y, sweeps=4, **SPARSE).precision, **SPARSE)
    np.testing.assert_allclose(rest.mean, whole.mean, atol=1e-9)
    np.testing.assert_allclose(rest.bound, whole.bound[4:], atol=1e-9)


def test_equal_precisions_give_equal_means_and_smaller_covariance():
    X, _, Phi, Y = problem(12)
    F = np.linalg.cholesky(kernel(X, X))
    sigma2, chi2 = 0.2, 0.15
    C = kernel(X, X) + (sigma2 + chi2) * np.eye(len(X))
    rng = np.random.default_rng(12)
    alpha = np.exp(rng.uniform(-2, 5, np.isnan(Y).sum()))
    exact = complete(C, Phi, Y, start=alpha, hold=True, sweeps=1, **PRIOR)
    options = {"start": alpha, "hold": True, "sigma2": sigma2, "chi2": chi2}
    field = mean_field(F, Phi, Y, sweeps=1000, **options, **PRIOR)
    np.testing.assert_allclose(field.mean, exact.mean, atol=1e-8)
    assert (field.variance < exact.variance).all()
    # q(alpha) of a bound follows q(y): to compare them, the prior's terms are taken at the common alpha
    values = []
    for fit in (field, exact):
        second = fit.mean**2 + fit.variance
        prior = student(np.sqrt(second), **PRIOR).sum()
        values.append(fit.bound[-1] - prior - 0.5 * (alpha * second).sum())
    assert values[0] < values[1]


def test_mean_field_bound_is_dense_algebra():
    """E[log joint] + entropies over Y, Z, W, with the normaliser that `complete` leaves out put back."""
    X, _, Phi, Y = problem(13, rows=4, labels=3, k=2)
    F, sigma2, chi2 = np.random.default_rng(1).standard_normal((4, 2)), 0.4, 0.3
    field = mean_field(F, Phi, Y, sigma2=sigma2, chi2=chi2, sweeps=3, **PRIOR)
    n, k, d = 4, 2, 2
    free = np.isnan(Y)
    mean = np.nan_to_num(Y)
    mean[free] = field.mean
    second = field.mean**2 + field.variance
    log_2pi = np.log(2 * np.pi)
    Sw, s = field.weights_covariance, field.compressed_variance
    gauss = lambda scale, square, count: -0.5 * (square / scale + count * (log_2pi + np.log(scale)))  # noqa: E731
    spread, entropy, cell = 0.0, 0.0, 0
    for row in range(n):
        cols = np.flatnonzero(free[row])
        alpha = field.used[cell : cell + len(cols)]
        cell += len(cols)
        cov = np.linalg.inv(np.diag(alpha) + Phi[:, cols].T @ Phi[:, cols] / chi2)
        spread += np.trace(Phi[:, cols] @ cov @ Phi[:, cols].T)
        entropy += 0.5 * np.linalg.slogdet(2 * np.pi * np.e * cov)[1]
    W, Z = field.weights_mean, field.compressed_mean
    value = gauss(1.0, (W**2).sum() + k * np.trace(Sw), d * k)
    value += gauss(sigma2, ((Z - F @ W) ** 2).sum() + n * k * s + k * np.trace(F @ Sw @ F.T), n * k)
    value += gauss(chi2, ((mean @ Phi.T - Z) ** 2).sum() + n * k * s + spread, n * k)
    value += entropy + 0.5 * n * k * (log_2pi + 1 + np.log(s))
    value += 0.5 * k * np.linalg.slogdet(2 * np.pi * np.e * Sw)[1]
    value += student(np.sqrt(second), **PRIOR).sum()
    C = F @ F.T + (sigma2 + chi2) * np.eye(n)
    value += 0.5 * n * k * log_2pi + 0.5 * k * np.linalg.slogdet(C)[1]
    np.testing.assert_allclose(field.bound[-1], value, atol=1e-9)


def test_mean_field_of_one_new_row_ends_where_the_sweeps_end():
    X, Z, _, Phi, Y, _, _ = inductive_problem(14, train=5, rows=1)
    sigma2, chi2 = 0.2, 0.2
    both = np.vstack([X, Z])
    C = kernel(both, both) + 0.4 * np.eye(6)
    t, v = new_row_inputs(C[:-1, :-1], Y @ Phi.T, C[:-1, -1:], C[-1:, -1])
    row = new_rows(t, v, Phi, chi2=chi2, sweeps=400, **PRIOR)
    labels = np.vstack([Y, np.full((1, 5), np.nan)])
    F = np.linalg.cholesky(kernel(both, both))
    field = mean_field(F, Phi, labels, sigma2=sigma2, chi2=chi2, sweeps=1500, **PRIOR)
    np.testing.assert_allclose(field.mean, row.mean[0], atol=1e-6)
    np.testing.assert_allclose(field.variance, row.variance[0], atol=1e-6)


def test_at_alpha_means_agree_and_covariances_are_ordered():
    _, _, _, Phi, _, t, v = inductive_problem(15, noise=0.3)
    alpha = np.exp(np.random.default_rng(2).uniform(-2, 6, (4, 5)))
    mean, variance = at_alpha(t, v, Phi, alpha)
    other, narrow = bml_cs_at_alpha(t, v, Phi, alpha, chi2=0.2)
    np.testing.assert_allclose(mean, other, atol=1e-12)
    assert (narrow < variance).all()
    for row in range(4):
        wide, tight = (np.linalg.inv(row_precision(alpha[row], s, Phi)) for s in (v[row], 0.2))
        assert np.linalg.eigvalsh(wide - tight).min() > -1e-12
        np.testing.assert_allclose(np.diag(tight), narrow[row], atol=1e-12)


@pytest.mark.parametrize("method", ["dense", "woodbury", "cg"])
def test_draws_have_the_law_exactly(method):
    """The draw is affine in the normals: its matrix and shift are read off unit vectors."""
    _, C, Phi, Y = problem(16, rows=6, labels=4, k=2)
    Y[1] = [0, 1, 0, 0]
    fit = complete(C, Phi, Y, sweeps=3, method=method, tolerance=1e-12, **PRIOR)
    size = num_normals(fit)
    shift = draw(fit, np.zeros((1, size)), tolerance=1e-12)[0]
    A = draw(fit, np.eye(size), tolerance=1e-12) - shift
    mean, covariance = dense_law(C, Phi, Y, fit.used)
    np.testing.assert_allclose(shift, mean, atol=1e-9)
    np.testing.assert_allclose(A.T @ A, covariance, atol=1e-9)


def test_the_published_order_collapses_to_zeros():
    """q(Y) fitted before any label is seen, then conditioned on the labels: all precisions huge, means 0."""
    _, C, Phi, Y = problem(17)
    nothing = complete(C, Phi, np.full(Y.shape, np.nan), sweeps=600, **SPARSE)
    assert "no label is observed" in nothing.note
    assert (nothing.mean == 0).all()
    free = np.isnan(Y).ravel()
    literal = complete(C, Phi, Y, start=nothing.precision[free], hold=True, sweeps=1, **SPARSE)
    right = complete(C, Phi, Y, sweeps=20, **SPARSE)
    assert np.abs(literal.mean).max() < 0.01
    assert np.abs(right.mean).max() > 0.3
    assert nothing.precision.min() > 50


def test_nothing_left_to_complete():
    _, C, Phi, Y = problem(18, missing=0.0)
    found = complete(C, Phi, Y, sweeps=2, **PRIOR)
    T = Y @ Phi.T
    assert found.mean.shape == (0,)
    np.testing.assert_allclose(found.bound, -0.5 * np.trace(T.T @ np.linalg.solve(C, T)))
    assert draw(found, np.zeros((3, num_normals(found)))).shape == (3, 0)


def test_auto_takes_the_smaller_matrix():
    assert choose_method(100, 10, 900) == "dense"
    assert choose_method(100, 10, 1100) == "woodbury"
    assert choose_method(5000, 10, 60000) == "cg"


def test_plain_gp_is_gaussian_conditioning():
    X, Z, C, _, Y, _, _ = inductive_problem(19)
    factor, cross = np.linalg.cholesky(C), kernel(X, Z)
    np.testing.assert_allclose(plain_gp(factor, cross, Y), cross.T @ np.linalg.solve(C, Y), atol=1e-12)
    expected = 1 - np.einsum("ij,ij->j", cross, np.linalg.solve(C, cross))
    np.testing.assert_allclose(plain_gp_variance(factor, cross, np.ones(4)), expected, atol=1e-12)


def test_bad_input_is_named():
    _, C, Phi, Y = problem(21)
    t, v = np.zeros((2, 3)), np.ones(2)
    cases = (
        (lambda: fit_rows(t, np.array([1.0, 0.0]), Phi, sweeps=1, **PRIOR), "at row 1"),
        (lambda: fit_rows(t[:, :2], v, Phi, sweeps=1, **PRIOR), "compressed_mean"),
        (lambda: fit_rows(t, v, Phi, sweeps=0, **PRIOR), "sweeps"),
        (lambda: fit_rows(t, v, Phi, sweeps=1, shape=0.0, rate=1.0), "shape"),
        (lambda: fit_rows(t, v, Phi, sweeps=1, start=-np.ones((2, 5)), **PRIOR), "start"),
        (
            lambda: complete(-C, Phi, Y, sweeps=1, **PRIOR),
            "not positive definite: its smallest eigenvalue is -",
        ),
        (lambda: complete(C, Phi, np.where(np.isnan(Y), np.inf, Y), sweeps=1, **PRIOR), "row 0, column"),
        (lambda: complete(C, Phi, Y, sweeps=1, method="fast", **PRIOR), "method must be one of"),
        (lambda: new_rows(t, v, Phi, chi2=1.5, sweeps=1, **PRIOR), "chi2"),
        (lambda: plain_gp(C[:2], np.zeros((7, 1)), Y * 0 + 1), "Y has nan"),
    )
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
