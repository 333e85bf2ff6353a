"""The programs: their density is the divergence, the projection is their mode, NUTS runs at a few rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS, Predictive, init_to_value
from numpyro.infer.util import log_density

from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.predict import kernel, probabilities
from labelzoo.inference.kernel_neighbors.problem import read_problem
from labelzoo.models.kernel_neighbors import class_probs, constrained, summed, violations
from tests.inference.kernel_neighbors.problems import features, rbf

ROWS, CLASSES = 6, 2
X, Y = features(11, ROWS, CLASSES)
NEW = features(12, 3, CLASSES)[0]
K0 = rbf(X, X)


def inputs_of(problem: Any) -> dict[str, Any]:
    """The program's arguments, from a problem."""
    names = {name: getattr(problem, name) for name in ("K0", "y", "alpha", "beta", "positive_total")}
    return {**names, "num_classes": len(problem.classes), "price": problem.upper}


def formed(fit: Any) -> np.ndarray:
    K = fit.problem.K0
    return np.array([kernel(fit, c, K, K, K) for c in range(len(fit.problem.classes))])


def log_prob(program: Any, inputs: dict[str, Any], kernels: Any) -> Any:
    return log_density(program, (), inputs, {"kernels": kernels})[0]


def jitted(program: Any, inputs: dict[str, Any]) -> Any:
    return jax.jit(lambda kernels: log_prob(program, inputs, kernels))


def divergence(kernels: np.ndarray) -> float:
    ratios = [K @ np.linalg.inv(K0) for K in kernels]
    return sum(float(np.trace(R) - np.linalg.slogdet(R)[1] - len(R)) for R in ratios)


def near(kernels: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
    """Symmetric moves of kernels that stay positive definite."""
    roots = np.linalg.cholesky(kernels)
    move = np.eye(ROWS) + size * rng.normal(size=kernels.shape)
    return roots @ move @ move.transpose(0, 2, 1) @ roots.transpose(0, 2, 1)


@pytest.mark.parametrize("gamma", [None, 0.4])
def test_log_density_is_minus_half_the_objective(gamma: float | None) -> None:
    p = read_problem(K0, Y, gamma=gamma)
    inputs, rng = inputs_of(p), np.random.default_rng(1)
    free, program = jitted(constrained, {**inputs, "slack": np.inf}), summed if gamma else constrained
    density, base = jitted(program, inputs), free(np.array([K0, K0]))
    for _ in range(4):
        kernels = near(np.array([K0, K0]), 0.4, rng)
        s = np.array([K[:, c == Y].mean(axis=1) for c, K in enumerate(kernels)]).T
        g = np.asarray(violations(jnp.asarray(s), p.y, p.alpha, p.beta, True))
        cost = divergence(kernels)
        if gamma is None:
            assert (density(kernels) == -np.inf) == bool((g > 0).any())
            got = free(kernels)
        else:
            got, cost = density(kernels), cost + gamma * np.maximum(g, 0).sum()
        np.testing.assert_allclose(got - base, -0.5 * cost, atol=1e-8)


def test_projection_is_stationary_for_the_constrained_program() -> None:
    p = read_problem(K0, Y)
    fit = dual(p)
    inputs = {**inputs_of(p), "slack": 1e-8}

    def pull(kernels: Any) -> Any:
        member = (p.y[:, None] == np.arange(CLASSES)) / p.counts
        s = jnp.einsum("lij,jl->il", kernels, member)
        return (fit.lam * violations(s, p.y, p.alpha, p.beta, True)).sum()

    found = jnp.asarray(formed(fit))
    density = jax.value_and_grad(lambda kernels: log_prob(constrained, inputs, kernels))
    value, up = jax.jit(density)(found)
    down = 0.5 * jax.jit(jax.grad(pull))(found)
    left = up - down
    assert np.isfinite(value) and fit.lam.max() > 0.1
    assert float(jnp.abs(left + left.transpose(0, 2, 1)).max()) < 1e-7
    assert float(jnp.abs(up + up.transpose(0, 2, 1)).max()) > 1e-2


@pytest.mark.parametrize("gamma", [None, 0.4])
def test_no_point_near_the_projection_is_likelier(gamma: float | None) -> None:
    p = read_problem(K0, Y, gamma=gamma)
    fit = dual(p)
    program, inputs = (constrained if gamma is None else summed), {**inputs_of(p), "slack": 1e-8}
    density = jitted(program, inputs)
    best, rng, feasible = float(density(formed(fit))), np.random.default_rng(2), 0
    for size in (1e-3, 1e-2, 1e-1) * 30:
        value = float(density(near(formed(fit), size, rng)))
        feasible += bool(np.isfinite(value))
        assert value <= best + 1e-9
    # Towards the interior the hard constraints hold.
    inner = np.array([np.diag(1.0 * (c == Y)) for c in range(CLASSES)]) + 0.01 * K0
    for share in (1e-3, 1e-2, 1e-1, 1.0):
        value = float(density((1 - share) * formed(fit) + share * inner))
        feasible += bool(np.isfinite(value))
        assert value <= best + 1e-9
    assert feasible >= 4


def test_labels_enter_at_new_rows_alone() -> None:
    p = read_problem(K0, Y, gamma=1.0)
    fit, inputs = dual(p), inputs_of(p)
    found, y_new = formed(fit), np.array([0, 1, 1])
    bare = jitted(summed, inputs)(found)
    got = jitted(summed, {**inputs, "cross": rbf(NEW, X), "y_new": y_new})(found) - bare
    wanted = np.log(probabilities(fit, rbf(NEW, X))[np.arange(3), y_new]).sum()
    np.testing.assert_allclose(got, wanted, atol=1e-8)


def test_shares_are_alike_in_both_libraries() -> None:
    s = np.random.default_rng(4).normal(size=(20, 3))
    s[0], s[1] = 0.0, -1.0
    for negative in ("clip", "raw"):
        other = class_probs(jnp.asarray(s), negative, xp=jnp)
        np.testing.assert_allclose(other, class_probs(s, negative), rtol=1e-12)
    assert class_probs(s)[:2].tolist() == [[1 / 3] * 3] * 2


def run_nuts(price: float, warmup: int, samples: int, seed: int) -> tuple[Any, Any]:
    """Four chains of the softened program at 4 rows: kernels (chain, draw, class, row, row), its MCMC."""
    small, y = K0[:4, :4], np.array([0, 1, 0, 1])
    inputs = {**inputs_of(read_problem(small, y, gamma=1.0)), "price": price}
    start = init_to_value(values={"kernels": jnp.stack([jnp.asarray(small)] * 2)})
    mcmc = MCMC(
        NUTS(summed, init_strategy=start),
        num_warmup=warmup,
        num_samples=samples,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), **inputs)
    return mcmc.get_samples(group_by_chain=True), small


def test_nuts_runs_at_a_few_rows() -> None:
    draws, small = run_nuts(8.0, 100, 100, 0)
    kernels = np.asarray(draws["kernels"])
    assert np.linalg.eigvalsh(kernels).min() > 0
    inputs = {**inputs_of(read_problem(small, [0, 1, 0, 1], gamma=1.0)), "cross": rbf(NEW, X[:4])}
    labels = Predictive(summed, draws, batch_ndims=2)(jax.random.key(3), **inputs)["y_new"]
    assert labels.shape == (4, 100, 3) and set(np.unique(labels)) == {0, 1}
    own = kernels[:, :, 0, 0][:, :, [0, 2]].mean(axis=-1) - kernels[:, :, 1, 0][:, :, [1, 3]].mean(axis=-1)
    # The row's own class gains over the prior, of which the expectation is 6 K0.
    prior = 6 * (small[0, [0, 2]].mean() - small[0, [1, 3]].mean())
    assert np.isfinite(own).all() and own.mean(axis=1).min() > prior


@pytest.mark.slow
def test_nuts_without_a_price_draws_from_the_wishart_law() -> None:
    """The mean of K0^-1 K's trace is 24, its variance 2 * 6 * 4; false alarms 1 in 1000 for two classes."""
    draws, small = run_nuts(1e-12, 500, 2000, 1)
    ratio = np.einsum("ij,abcji->abc", np.linalg.inv(small), np.asarray(draws["kernels"]))
    for c in range(2):
        means = ratio[:, :, c].reshape(4, 20, 100).mean(axis=2).ravel()
        z = (means.mean() - 24.0) / (means.std(ddof=1) / np.sqrt(means.size))
        assert abs(z) < 3.5, f"seed 1, z {z:.2f} from 80 batches"
