"""Where mean field and maximum likelihood must come to rest: their objectives written from the program."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.handlers as handlers
from jax.scipy.special import digamma, gammaln
from jax.scipy.stats import multivariate_normal

from labelzoo.inference.bpca import factors as steps
from labelzoo.inference.bpca.factors import Factors, score_moment, symmetric_inverse
from labelzoo.inference.bpca.mean_field import start
from labelzoo.inference.bpca.ml import Ppca, ppca
from labelzoo.inference.bpca.pseudo_rows import pseudo_rows
from labelzoo.inference.bpca.rotation import rotated, rotation_step
from labelzoo.inference.checks.programs import Program
from labelzoo.inference.checks.stationarity import StationarityCase
from labelzoo.models.bpca import augmented

Array = Any
Inputs = Mapping[str, Any]
Sweep = Callable[[Factors, dict[str, Array]], Factors]


def _curvature(f: Callable[[Array], Array], mean: Array, directions: Array) -> Array:
    """Return sum_k d^2/de^2 f(mean + e directions_k) at e = 0."""

    def second(k: Array) -> Array:
        def slope(e: Array) -> Array:
            return jax.jvp(lambda s: f(mean + s * k), (e,), (jnp.ones(()),))[1]

        return jax.jvp(slope, (jnp.zeros(()),), (jnp.ones(()),))[1]

    return jax.vmap(second)(directions).sum()


def objective(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return the evidence lower bound of q(U) q(W) q(mu) q(alpha) q(tau) from the program's log joint.

    The log joint is quadratic in U, in W and in mu, without products of two rows of U, two rows of W or two
    entries of mu, so each expectation adds half a second derivative along the roots of the covariance, all
    rows at once; that along mu depends on nothing that is random beside tau. In alpha_i and in tau it is
    A log x - B x with A = -x^2 d^2/dx^2 a number. Nothing is taken from the updates.

    Parameters
    ----------
    params : mapping
        ``scores``, ``loadings``, ``mean``: means; ``scores_root``, ``loadings_root``: any A with covariance
        A A'; ``mean_log_sd``; ``precision_log`` and ``noise_log``, logarithms of shape and rate, stacked.
    inputs : mapping
        What ``spec.prepare`` returned.
    """
    (m, d), p = inputs["compressed"].shape, params["scores"].shape[1]
    alpha_shape, alpha_rate = jnp.exp(params["precision_log"])
    tau_shape, tau_rate = jnp.exp(params["noise_log"])

    def log_joint(U: Array, W: Array, mu: Array, alpha: Array, tau: Array) -> Array:
        sites = {"scores": U, "loadings": W, "mean": mu, "precision": alpha, "noise_precision": tau}
        seeded = handlers.seed(augmented, jax.random.key(0))
        trace = handlers.trace(handlers.substitute(seeded, sites)).get_trace(**inputs)
        return sum(site["fn"].log_prob(site["value"]).sum() for site in trace.values())

    t, means = tau_shape / tau_rate, alpha_shape / alpha_rate
    at = (params["scores"], params["loadings"], params["mean"], means, t)

    def over_scores(W: Array) -> Array:
        rows = jnp.broadcast_to(params["scores_root"].T[:, None], (p, m, p))
        f = lambda U: log_joint(U, W, *at[2:])  # noqa: E731
        return f(at[0]) + 0.5 * _curvature(f, at[0], rows)

    rows = jnp.broadcast_to(params["loadings_root"].T[:, None], (p, d, p))
    total = over_scores(at[1]) + 0.5 * _curvature(over_scores, at[1], rows)
    along = jnp.exp(params["mean_log_sd"]) * jnp.ones((1, d))
    total += 0.5 * _curvature(lambda mu: log_joint(*at[:2], mu, *at[3:]), at[2], along)
    by_tau = -(t**2) * _curvature(lambda x: log_joint(*at[:4], x), t, jnp.ones(1))
    total += by_tau * (digamma(tau_shape) - jnp.log(tau_rate) - jnp.log(t))
    gaps = jnp.log(means) - digamma(alpha_shape) + jnp.log(alpha_rate)  # positive: E log x < log E x
    scaled = jnp.diag(means * jnp.sqrt(gaps))
    total += _curvature(lambda x: log_joint(*at[:3], x, t), means, scaled)
    entropy = m * jnp.linalg.slogdet(params["scores_root"])[1]
    entropy += d * jnp.linalg.slogdet(params["loadings_root"])[1] + d * params["mean_log_sd"]
    for shape, rate in ((alpha_shape, alpha_rate), (tau_shape, tau_rate)):
        entropy += (shape - jnp.log(rate) + gammaln(shape) + (1.0 - shape) * digamma(shape)).sum()
    return total + entropy


def parameters_of(factors: Factors) -> dict[str, Array]:
    """Return `objective`'s parameters of the factors."""
    rate = factors.precision_rate
    return {
        "scores": factors.scores_mean,
        "scores_root": jnp.linalg.cholesky(factors.scores_covariance),
        "loadings": factors.loadings_mean,
        "loadings_root": jnp.linalg.cholesky(factors.loadings_covariance),
        "mean": factors.mean_mean,
        "mean_log_sd": 0.5 * jnp.log(factors.mean_variance),
        "precision_log": jnp.log(jnp.stack([jnp.broadcast_to(factors.precision_shape, rate.shape), rate])),
        "noise_log": jnp.log(jnp.stack([factors.noise_shape, factors.noise_rate])),
    }


def step(factors: Factors, inputs: dict[str, Array]) -> Factors:
    """What the engine repeats: a sweep and the rotation step."""
    return rotation_step(steps.sweep(factors, inputs), inputs)[0]


def fixed_point(inputs: Inputs, sweep: Sweep = step) -> dict[str, Array]:
    """Iterate `sweep` until no factor moves, without pruning, and return `objective`'s parameters.

    On pseudo-rows, as the engine does; the objective is that of the rows themselves.
    """
    first = start(jax.random.key(0), inputs, inputs["num_components"])
    pseudo = pseudo_rows(inputs)
    found = _iterated(pseudo.reduced(first), pseudo.arrays, sweep=sweep)
    return {**found, "scores": pseudo.basis @ found["scores"]}


@Program
def _iterated(first: Factors, arrays: dict[str, Array], *, sweep: Sweep) -> dict[str, Array]:
    def moving(carry: tuple[Array, Factors, Array]) -> Array:
        return (carry[0] < MAX_ITER) & (carry[2] > AT_REST)

    def once(carry: tuple[Array, Factors, Array]) -> tuple[Array, Factors, Array]:
        count, old, _ = carry
        new = sweep(old, arrays)
        change = [(jnp.abs(a - b) / (jnp.abs(b).max() + 1e-3)).max() for a, b in zip(new, old, strict=True)]
        return count + 1, new, jnp.stack(change).max()

    _, factors, _ = jax.lax.while_loop(moving, once, (0, jax.tree.map(jnp.asarray, first), jnp.inf))
    return parameters_of(factors)


MAX_ITER, AT_REST = 50_000, 1e-11


def _with(**wrong: Any) -> Callable[[Inputs], dict[str, Array]]:
    """Return the fixed point of a sweep in which some updates are wrong ones."""
    updates = tuple(wrong.get(update.__name__, update) for update in steps.UPDATES)
    return partial(fixed_point, sweep=partial(_sweep_of, updates=updates))


def _sweep_of(factors: Factors, inputs: dict[str, Array], updates: Any) -> Factors:
    for update in updates:
        factors = update(factors, inputs)
    return factors


def _loadings(factors: Factors, inputs: Inputs, *, with_t: bool) -> Factors:
    """q(W) with Phi for t Phi in the precision, or with mU'mU for Phi."""
    t, mU = steps.noise_mean(factors), factors.scores_mean
    prior = jnp.diag(factors.precision_shape / factors.precision_rate)
    moment = t * mU.T @ mU if with_t else score_moment(factors, inputs)
    covariance = symmetric_inverse(prior + moment)
    mean = t * steps.residual(factors, inputs).T @ mU @ covariance
    return factors._replace(loadings_mean=mean, loadings_covariance=covariance)


def _scores_without_spread(factors: Factors, inputs: Inputs) -> Factors:
    certain = factors._replace(loadings_covariance=0.0 * factors.loadings_covariance)
    new = steps.update_scores(certain, inputs)
    return new._replace(loadings_covariance=factors.loadings_covariance)


def _scores_without_t(factors: Factors, inputs: Inputs) -> Factors:
    return steps.update_scores(factors._replace(noise_rate=factors.noise_shape), inputs)._replace(
        noise_rate=factors.noise_rate
    )


def _mean_without_beta(factors: Factors, inputs: Inputs) -> Factors:
    return steps.update_mean(factors, {**inputs, "mean_precision": 0.0})


def _precision_without_half_d(factors: Factors, inputs: Inputs) -> Factors:
    new = steps.update_precision(factors, inputs)
    return new._replace(precision_shape=jnp.asarray(inputs["precision_shape"]))


def _precision_without_spread(factors: Factors, inputs: Inputs) -> Factors:
    certain = factors._replace(loadings_covariance=0.0 * factors.loadings_covariance)
    return factors._replace(precision_rate=steps.update_precision(certain, inputs).precision_rate)


def _noise_at_means(factors: Factors, inputs: Inputs) -> Factors:
    zero = 0.0 * factors.scores_covariance
    certain = factors._replace(scores_covariance=zero, loadings_covariance=zero)
    return factors._replace(noise_rate=steps.update_noise(certain, inputs).noise_rate)


def _blindly_rotated(factors: Factors, inputs: dict[str, Array]) -> Factors:
    return rotated(steps.sweep(factors, inputs), inputs)


def likelihood(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return the log likelihood of the rows, Normal(mu, W W' + sigma2 I), nats."""
    W = params["loadings"]
    C = W @ W.T + jnp.exp(params["log_noise"]) * jnp.eye(W.shape[0])
    return jnp.sum(multivariate_normal.logpdf(jnp.asarray(inputs["compressed"]), params["mean"], C))


def closed_form(
    inputs: Inputs, change: Callable[[Ppca, Inputs], Ppca] = lambda fit, inputs: fit
) -> dict[str, Array]:
    """Return `likelihood`'s parameters of the fit by maximum likelihood, made wrong by `change`."""
    fit = change(ppca(inputs, inputs["num_components"]), inputs)
    noise = np.log(fit.noise_variance)
    return {"mean": fit.mean, "loadings": fit.loadings, "log_noise": np.asarray(noise)}


def _noise_left_in(fit: Ppca, inputs: Inputs) -> Ppca:
    size = np.linalg.norm(fit.loadings, axis=0)
    return fit._replace(loadings=fit.loadings * np.sqrt(1.0 + fit.noise_variance / size**2))


def _divisor_less_one(fit: Ppca, inputs: Inputs) -> Ppca:
    m = inputs["compressed"].shape[0]
    factor = m / (m - 1.0)
    return fit._replace(loadings=fit.loadings * np.sqrt(factor), noise_variance=fit.noise_variance * factor)


CASES = (
    StationarityCase(
        name="evidence lower bound of the mean-field factors",
        engine="mean_field",
        fixed_point=fixed_point,
        objective=objective,
        mutants=(
            ("t dropped from the precision of W", _with(update_loadings=partial(_loadings, with_t=False))),
            ("Phi without m SU", _with(update_loadings=partial(_loadings, with_t=True))),
            ("Omega without d SW in q(U)", _with(update_scores=_scores_without_spread)),
            ("t dropped from q(U)", _with(update_scores=_scores_without_t)),
            ("beta missing from the precision of mu", _with(update_mean=_mean_without_beta)),
            ("shape of alpha without d / 2", _with(update_precision=_precision_without_half_d)),
            ("rate of alpha without d SW_ii / 2", _with(update_precision=_precision_without_spread)),
            ("Q at the means of U and W", _with(update_noise=_noise_at_means)),
            ("rotation accepted blindly", partial(fixed_point, sweep=_blindly_rotated)),
        ),
    ),
    StationarityCase(
        name="likelihood of probabilistic principal components",
        engine="ml",
        fixed_point=closed_form,
        objective=likelihood,
        mutants=(
            ("sigma2 not taken off the eigenvalues", partial(closed_form, change=_noise_left_in)),
            ("divisor rows - 1", partial(closed_form, change=_divisor_less_one)),
            (
                "sum of the discarded eigenvalues for their mean",
                partial(
                    closed_form,
                    change=lambda fit, inputs: fit._replace(
                        noise_variance=float(fit.eigenvalues[fit.loadings.shape[1] :].sum())
                    ),
                ),
            ),
            ("mean 0", partial(closed_form, change=lambda fit, inputs: fit._replace(mean=0.0 * fit.mean))),
        ),
    ),
)
