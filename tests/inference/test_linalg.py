"""Cholesky with recorded jitter, the two Gaussian samplers against the dense formula, conjugate gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from labelzoo.inference.linalg import (
    MAX_ESCALATIONS,
    checked_cholesky,
    cholesky_with_jitter,
    conjugate_gradient,
    draw_gaussian_natural,
    jitter_ladder,
)

INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])


def kernel_with_equal_rows(dtype):
    """Rank-deficient covariance of 30 points, ten of them twice: scale 50, no nugget."""
    x = np.random.default_rng(1).normal(size=(20, 2))
    x = np.concatenate([x, x[:10]])
    distance = ((x[:, None] - x[None]) ** 2).sum(-1)
    return jnp.asarray(50 * np.exp(-distance / 2), dtype)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_regular_matrix_gets_exactly_no_jitter(dtype):
    root = np.random.default_rng(2).normal(size=(3, 6, 6))
    matrix = jnp.asarray(root @ np.swapaxes(root, 1, 2) + np.eye(6), dtype)
    result = jax.jit(cholesky_with_jitter)(matrix)
    assert result.factor.dtype == dtype
    np.testing.assert_array_equal(result.factor, jnp.linalg.cholesky(matrix))
    np.testing.assert_array_equal(result.jitter, 0.0)
    np.testing.assert_array_equal(result.escalations, 0)


def test_badly_scaled_but_definite_matrix_is_left_alone():
    matrix = jnp.diag(jnp.asarray([1e12, 1.0, 1e-12]))
    result = checked_cholesky(matrix, name="precision")
    assert result.escalations == 0
    np.testing.assert_allclose(result.factor @ result.factor.T, matrix, rtol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_equal_rows_are_factored_and_the_jitter_is_recorded(dtype):
    matrix = kernel_with_equal_rows(dtype)
    assert bool(jnp.isnan(jnp.linalg.cholesky(matrix)).any())  # what the plain factorisation does
    result = checked_cholesky(matrix, name="kernel")
    assert 1 <= int(result.escalations) <= 2
    expected = jitter_ladder(dtype)[int(result.escalations)] * 50
    np.testing.assert_allclose(result.jitter, expected, rtol=1e-6)
    rebuilt = result.factor @ result.factor.T - result.jitter * jnp.eye(30)
    np.testing.assert_allclose(rebuilt, matrix, atol=1e-4 if dtype == jnp.float32 else 1e-12)


def test_only_the_failing_matrices_of_a_batch_are_jittered():
    regular = jnp.eye(30) * 3
    batch = jnp.stack([regular, kernel_with_equal_rows(jnp.float64), regular])
    for function in (cholesky_with_jitter, jax.vmap(cholesky_with_jitter), jax.jit(cholesky_with_jitter)):
        result = function(batch)
        np.testing.assert_array_equal(result.escalations > 0, [False, True, False])
        np.testing.assert_array_equal(result.factor[0], jnp.linalg.cholesky(regular))
        assert bool(jnp.isfinite(result.factor).all())


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_indefinite_matrix_is_an_error_that_names_the_site(dtype):
    result = jax.jit(cholesky_with_jitter)(jnp.asarray(INDEFINITE, dtype))
    assert result.escalations == MAX_ESCALATIONS + 1 and bool(jnp.isnan(result.factor).all())
    with pytest.raises(ValueError, match="kernel of target 3: not positive definite"):
        checked_cholesky(jnp.asarray(INDEFINITE, dtype), name="kernel of target 3")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.stack([np.eye(2), INDEFINITE]), r"W: not positive definite at batch index \(1,\)"),
        (np.ones((2, 3)), "W: a square matrix"),
        (np.ones(3), "W: a square matrix"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "W: the matrix has NaN"),
        (np.array([[1.0, 0.5], [0.1, 1.0]]), "W: the matrix is not symmetric"),
        (-np.eye(2), "W: not positive definite"),
        (np.zeros((2, 2)), "W: not positive definite"),
    ],
)
def test_bad_matrices(matrix, message):
    with pytest.raises(ValueError, match=message):
        checked_cholesky(matrix, name="W")


def test_gradient_of_the_factor_is_that_of_the_plain_factorisation():
    root = np.random.default_rng(3).normal(size=(2, 4, 4))
    matrix = jnp.asarray(root @ np.swapaxes(root, 1, 2) + np.eye(4))
    weights = jnp.asarray(np.random.default_rng(4).normal(size=(2, 4, 4)))
    ours = jax.jit(jax.grad(lambda a: (weights * cholesky_with_jitter(a).factor ** 2).sum()))(matrix)
    plain = jax.jit(jax.grad(lambda a: (weights * jnp.linalg.cholesky(a) ** 2).sum()))(matrix)
    np.testing.assert_allclose(ours, plain, rtol=1e-9, atol=1e-12)


# Gaussian draws -----------------------------------------------------------------------------------------


def problem(rows, columns, topics, seed):
    """Random regression; some weights are exactly 0, as Polya-Gamma draws of tiny shape are."""
    rng = np.random.default_rng(seed)
    omega = rng.gamma(0.3, 1.0, size=(topics, rows)) * (rng.random((topics, rows)) < 0.8)
    features, tau = rng.normal(size=(rows, columns)), rng.gamma(2.0, 1.0, columns)
    potential = rng.normal(size=(topics, columns))
    precision = np.einsum("nd,kn,ne->kde", features, omega, features) + np.diag(tau)
    covariance = np.linalg.inv(precision)
    mean = np.einsum("kde,ke->kd", covariance, potential)
    return (features, omega, potential, tau), mean, covariance


@pytest.mark.parametrize("method", ["precision", "woodbury"])
@pytest.mark.parametrize(("rows", "columns"), [(12, 4), (3, 7)])
def test_both_samplers_match_the_dense_formula(method, rows, columns):
    given, mean, covariance = problem(rows, columns, 2, seed=5)
    seed, draws = 6, 40_000
    keys = jax.random.split(jax.random.key(seed), draws)
    sample = jax.jit(jax.vmap(lambda key: draw_gaussian_natural(key, *given, method=method)))
    centred = np.asarray(sample(keys)) - mean
    z = centred.mean(0) / np.sqrt(np.diagonal(covariance, axis1=1, axis2=2) / draws)
    assert np.abs(z).max() < 5, f"mean by {method}, seed {seed}: z {z}"
    products = centred[..., :, None] * centred[..., None, :]
    z = (products.mean(0) - covariance) / (products.std(0) / np.sqrt(draws))
    assert np.abs(z).max() < 5, f"covariance by {method}, seed {seed}: z {z}"


def test_method_follows_the_shape_and_topics_in_chunks_agree(monkeypatch):
    key = jax.random.key(8)
    for (rows, columns), method in [((3, 7), "woodbury"), ((12, 4), "precision")]:
        given, _, _ = problem(rows, columns, 4, seed=7)
        together = jax.jit(lambda *a: draw_gaussian_natural(*a))(key, *given)
        named = jax.jit(lambda *a, m=method: draw_gaussian_natural(*a, method=m))(key, *given)
        np.testing.assert_array_equal(together, named)
        with monkeypatch.context() as patch:
            patch.setattr("labelzoo.inference.linalg.MAX_BATCHED_CELLS", 2 * rows * columns)
            in_pairs = jax.jit(lambda *a: draw_gaussian_natural(*a))(key, *given)
        np.testing.assert_allclose(in_pairs, together, rtol=1e-10)


def test_shapes_of_one_regression_and_of_shared_pieces():
    (features, omega, potential, tau), _, _ = problem(12, 4, 3, seed=7)

    def shape(*arrays):
        return jax.eval_shape(draw_gaussian_natural, jax.random.key(0), features, *arrays).shape

    assert shape(omega[0], potential[0], tau) == (4,)
    assert shape(omega[0], potential[0], 2.0) == (4,)
    assert shape(omega, potential[0], 2.0) == shape(omega[0], potential, np.tile(tau, (3, 1))) == (3, 4)


def test_wide_problem_makes_no_square_matrix_of_features():
    rows, columns = 5, 3000
    shapes = []

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            shapes.extend(v.aval.shape for v in equation.outvars if hasattr(v.aval, "shape"))
            for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: x is None):
                inner = getattr(parameter, "jaxpr", parameter)
                if hasattr(inner, "eqns"):
                    visit(inner)

    arrays = (np.ones((rows, columns)), np.ones((2, rows)), np.ones((2, columns)), np.ones(columns))
    visit(jax.make_jaxpr(draw_gaussian_natural)(jax.random.key(0), *arrays).jaxpr)
    assert len(shapes) > 20
    assert max(np.prod(shape, dtype=int) for shape in shapes) <= 2 * rows * columns


@pytest.mark.parametrize("method", ["precision", "woodbury"])
def test_float32_draw_is_close_to_float64(method):
    given, mean, covariance = problem(12, 4, 2, seed=9)
    single = [jnp.asarray(a, jnp.float32) for a in given]
    keys = jax.random.split(jax.random.key(10), 20_000)
    draws = jax.jit(jax.vmap(lambda key: draw_gaussian_natural(key, *single, method=method)))(keys)
    assert draws.dtype == jnp.float32
    z = (np.asarray(draws, float).mean(0) - mean) / np.sqrt(
        np.diagonal(covariance, axis1=1, axis2=2) / 20_000
    )
    assert np.abs(z).max() < 5, z


def test_bad_shapes_and_methods_are_named():
    given, _, _ = problem(12, 4, 2, seed=9)
    with pytest.raises(ValueError, match="omega: last axis of length 4"):
        draw_gaussian_natural(jax.random.key(0), given[0].T, *given[1:])
    with pytest.raises(ValueError, match="tau: last axis of length 4"):
        draw_gaussian_natural(jax.random.key(0), *given[:3], np.ones(5))
    with pytest.raises(ValueError, match="topics"):
        draw_gaussian_natural(jax.random.key(0), given[0], given[1], np.ones((3, 4)), 1.0)


# Conjugate gradients -----------------------------------------------------------------------------------


def systems():
    rng = np.random.default_rng(11)
    root = rng.normal(size=(3, 9, 9))
    matrices = root @ np.swapaxes(root, 1, 2) + np.eye(9)
    return jnp.asarray(matrices), jnp.asarray(rng.normal(size=(3, 9))), jnp.asarray(rng.normal(size=(3, 9)))


def test_full_number_of_steps_solves_every_system():
    matrices, rhs, start = systems()
    result = jax.jit(conjugate_gradient, static_argnums=(0, 3))(
        lambda x: jnp.einsum("kij,kj->ki", matrices, x), rhs, start, 12
    )
    exact = np.linalg.solve(matrices, rhs[..., None])[..., 0]
    np.testing.assert_allclose(result.solution, exact, rtol=1e-8)
    residual = rhs - np.einsum("kij,kj->ki", matrices, result.solution)
    np.testing.assert_allclose(result.residual, residual, atol=1e-10)


def test_every_step_lowers_the_objective_and_a_solution_is_a_fixed_point():
    matrices, rhs, start = systems()

    def matvec(x):
        return jnp.einsum("kij,kj->ki", matrices, x)

    def objective(x):
        return np.asarray((x * matvec(x) / 2 - rhs * x).sum(-1))

    values = [objective(conjugate_gradient(matvec, rhs, start, steps).solution) for steps in range(6)]
    np.testing.assert_array_equal(values[0], objective(start))
    assert (np.diff(values, axis=0) < 0).all()
    solved = conjugate_gradient(matvec, jnp.zeros((3, 9)), jnp.zeros((3, 9)), 5).solution
    np.testing.assert_array_equal(solved, 0.0)


def test_exact_preconditioner_solves_in_one_step_and_gradients_pass():
    matrices, rhs, start = systems()

    def matvec(x):
        return jnp.einsum("kij,kj->ki", matrices, x)

    def inverse(x):
        return jnp.linalg.solve(matrices, x[..., None])[..., 0]

    exact = inverse(rhs)
    one = conjugate_gradient(matvec, rhs, start, 1, precondition=inverse)
    np.testing.assert_allclose(one.solution, exact, rtol=1e-9)
    slope = jax.jit(jax.grad(lambda b: conjugate_gradient(matvec, b, start, 12).solution.sum()))(rhs)
    np.testing.assert_allclose(slope, inverse(jnp.ones_like(rhs)), rtol=1e-6)
