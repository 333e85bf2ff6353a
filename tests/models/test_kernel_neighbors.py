"""The programs: their density is the divergence, the projection is their mode, one is the other summed."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import numpyro.handlers as handlers
import pytest
from numpyro.infer import MCMC, NUTS, init_to_value
from numpyro.infer.util import log_density

from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.predict import kernel, probabilities
from labelzoo.inference.kernel_neighbors.problem import read_problem
from labelzoo.models.kernel_neighbors import (
    class_means,
    class_probs,
    constrained,
    of_problems,
    reflected,
    similarity_of,
    summed,
    violations,
    wishart,
)
from tests.inference.kernel_neighbors.problems import features, rbf

ROWS, CLASSES = 6, 2
X, Y = features(11, ROWS, CLASSES)
NEW = features(12, 3, CLASSES)[0]
K0 = rbf(X, X)


def inputs_of(problem: Any) -> dict[str, Any]:
    """The program's arguments, from a problem."""
    names = {name: getattr(problem, name) for name in ("K0", "alpha", "beta", "positive_total")}
    codes = {"codes": problem.y[None], "num_classes": len(problem.classes)}
    return {**names, **codes, "price": problem.upper}


def excess(similarity: Any, problem: Any) -> Any:
    """g (row, column) of similarities (class, row)."""
    return violations(similarity.T[None], problem.y[None], problem.alpha, problem.beta, True)[0]


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
    free, program = jitted(constrained, {**inputs, "slack": np.inf}), wishart if gamma else constrained
    density, base = jitted(program, inputs), free(np.array([K0, K0]))
    for _ in range(4):
        kernels = near(np.array([K0, K0]), 0.4, rng)
        s = np.array([K[:, c == Y].mean(axis=1) for c, K in enumerate(kernels)])
        g = np.asarray(excess(jnp.asarray(s), p))
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
        return (fit.lam * excess(jnp.einsum("lij,jl->li", kernels, member), p)).sum()

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
    program, inputs = (constrained if gamma is None else wishart), {**inputs_of(p), "slack": 1e-8}
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
    found, codes_new = formed(fit), np.array([[0, 1, 1]])
    given = {**inputs, "cross": rbf(NEW, X), "codes_new": codes_new}
    got = jitted(wishart, given)(found) - jitted(wishart, inputs)(found)
    wanted = np.log(probabilities(fit, rbf(NEW, X))[np.arange(3), codes_new[0]]).sum()
    np.testing.assert_allclose(got, wanted, atol=1e-8)


def test_shares_are_alike_in_both_libraries() -> None:
    s = np.random.default_rng(4).normal(size=(20, 3))
    s[0], s[1] = 0.0, -1.0
    for negative in ("clip", "raw"):
        other = class_probs(jnp.asarray(s), negative, xp=jnp)
        np.testing.assert_allclose(other, class_probs(s, negative), rtol=1e-12)
    assert class_probs(s)[:2].tolist() == [[1 / 3] * 3] * 2


def two_problems() -> dict[str, Any]:
    """Six rows in two problems of two classes."""
    codes = np.array([[0, 1, 0, 1, 1, 0], [1, 1, 1, 0, 1, 0]])
    settings = {"alpha": 0.6, "beta": 0.4, "price": 0.8, "positive_total": True}
    return {"K0": K0, "codes": codes, "num_classes": 2, **settings}


def bartlett(rng: np.random.Generator, draws: int = 1) -> dict[str, np.ndarray]:
    """Prior draws of the sites of `two_problems` in ``summed``."""
    square = rng.chisquare(ROWS + 2, size=(draws, 4))
    return {"square": square, "white": rng.normal(size=(draws, 4, ROWS - 1))}


def test_constraints_of_the_summed_program_are_those_of_its_similarities() -> None:
    inputs, rng = two_problems(), np.random.default_rng(5)
    draw = {name: value[0] for name, value in bartlett(rng).items()}
    root, means = np.linalg.cholesky(K0), class_means(inputs["codes"], 2, np)
    u = np.asarray(similarity_of(root, means, draw["square"], draw["white"]))
    g = np.maximum(violations(of_problems(u, inputs["codes"]), inputs["codes"], 0.6, 0.4, True), 0.0).sum()
    assert g > 0.1
    density = jax.jit(lambda draw, given: log_density(summed, (), {**inputs, **given}, draw)[0])
    # The similarities that are taken for new rows on top of training rows are those of the rows themselves.
    new = {"cross": K0[:3], "codes_new": np.array([[0, 1, 1], [1, 0, 0]])}
    free, bare, whole = (float(density(draw, given)) for given in ({"price": 0.0}, {}, new))
    np.testing.assert_allclose(bare - free, -0.4 * float(g), atol=1e-9)
    shares = class_probs(of_problems(u, inputs["codes"]))[:, :3]
    wanted = np.take_along_axis(shares, new["codes_new"][..., None], axis=-1)
    np.testing.assert_allclose(whole - bare, np.log(wanted).sum(), atol=1e-7)
    trace = handlers.trace(handlers.substitute(handlers.seed(summed, 0), draw)).get_trace(**inputs)
    np.testing.assert_allclose(np.asarray(trace["coefficients"]["value"]) @ K0, u, atol=1e-8)


def moments(u: np.ndarray) -> np.ndarray:
    """Monomials up to the third degree of similarities (draw, row): (draw, monomial)."""
    scaled = u / np.sqrt(ROWS + 2.0)
    i, j = np.triu_indices(ROWS)
    return np.concatenate([scaled, scaled[:, i] * scaled[:, j], scaled**2 * scaled[:, :1]], axis=1)


def furthest(one: np.ndarray, other: np.ndarray) -> float:
    """Largest z of the differences of mean moments."""
    a, b = moments(one), moments(other)
    error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
    return float((np.abs(a.mean(axis=0) - b.mean(axis=0)) / error).max())


def test_similarities_have_the_law_of_those_of_wishart_kernels() -> None:
    """33 moments of each of four classes; false alarms below 1 in 10,000 (|z| > 5.1, 132 of them)."""
    inputs, rng, draws = two_problems(), np.random.default_rng(6), 10_000
    root, means = np.linalg.cholesky(K0), class_means(inputs["codes"], 2, np)
    sites = bartlett(rng, draws)
    u = np.asarray(jax.vmap(lambda s, w: similarity_of(root, means, s, w))(sites["square"], sites["white"]))
    kernels = np.asarray(dist.Wishart(ROWS + 2.0, scale_matrix=K0).sample(jax.random.key(7), (draws,)))
    fewer = np.asarray(dist.Wishart(ROWS + 1.0, scale_matrix=K0).sample(jax.random.key(8), (draws,)))
    for c, v in enumerate(means):
        assert (z := furthest(u[:, c], kernels @ v)) < 5.1, f"seeds 6 and 7, class {c}, z {z:.2f}"
        assert furthest(u[:, c], fewer @ v) > 7


@pytest.mark.parametrize("library", [np, jnp])
def test_reflections_are_orthogonal_and_take_the_first_axis_where_they_should(library: Any) -> None:
    rng, size = np.random.default_rng(9), 5
    unit = rng.normal(size=(6, size))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    unit[0], unit[1] = np.eye(size)[0], -np.eye(size)[0]
    unit[2, 0] = 1e-9
    unit[2] /= np.linalg.norm(unit[2])
    unit[3] = np.r_[1.0, 1e-9, np.zeros(size - 2)]
    H = np.stack(
        [np.asarray(reflected(unit, np.tile(axis, (6, 1)), library)) for axis in np.eye(size)], axis=-1
    )
    np.testing.assert_allclose(H[:, :, 0], unit, atol=1e-15)
    np.testing.assert_allclose(H @ H.swapaxes(1, 2), np.tile(np.eye(size), (6, 1, 1)), atol=1e-14)


def run_nuts(price: float, warmup: int, samples: int, seed: int) -> tuple[Any, Any]:
    """Four chains of the softened program at 4 rows: kernels (chain, draw, class, row, row), its MCMC."""
    small, y = K0[:4, :4], np.array([0, 1, 0, 1])
    inputs = {**inputs_of(read_problem(small, y, gamma=1.0)), "price": price}
    start = init_to_value(values={"kernels": jnp.stack([jnp.asarray(small)] * 2)})
    mcmc = MCMC(
        NUTS(wishart, init_strategy=start),
        num_warmup=warmup,
        num_samples=samples,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), **inputs)
    return mcmc.get_samples(group_by_chain=True), small


@pytest.mark.slow
def test_nuts_without_a_price_draws_from_the_wishart_law() -> None:
    """The mean of K0^-1 K's trace is 24, its variance 2 * 6 * 4; false alarms 1 in 1000 for two classes."""
    draws, small = run_nuts(1e-12, 500, 2000, 1)
    ratio = np.einsum("ij,abcji->abc", np.linalg.inv(small), np.asarray(draws["kernels"]))
    for c in range(2):
        means = ratio[:, :, c].reshape(4, 20, 100).mean(axis=2).ravel()
        z = (means.mean() - 24.0) / (means.std(ddof=1) / np.sqrt(means.size))
        assert abs(z) < 3.5, f"seed 1, z {z:.2f} from 80 batches"
