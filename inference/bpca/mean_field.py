"""The engine ``mean_field`` of bpca: coordinate ascent with the rotation step, pruning, and draws from q."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from labelzoo.arguments import real, whole_number
from labelzoo.inference.bpca.factors import (
    Factors,
    bound,
    noise_mean,
    sweep,
    update_noise,
    update_precision,
    update_scores,
)
from labelzoo.inference.bpca.ml import ppca, score_means
from labelzoo.inference.bpca.pseudo_rows import arrays_of, pseudo_rows
from labelzoo.inference.bpca.rotation import rotation_step
from labelzoo.inference.compile_time import compile_clock
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.fixed_point import check_options, iterate
from labelzoo.inference.reference.khat import MIN_WEIGHTS, psis_khat
from labelzoo.models.bpca_card import log_likelihood
from labelzoo.models.spec import ModelSpec

Array = Any
Inputs = Mapping[str, Any]

OPTIONS: dict[str, Any] = {
    "max_iter": 5000,
    "tolerance": 1e-9,
    "rotation": True,
    "prune": 1e-3,
    "num_samples": 1000,
    "khat_samples": 1000,
}
"""``prune``: a column of W is dropped at rest where the square of its mean is below this share of the largest
(0: none is). ``tolerance``: of the bound's change, relative to 1 + |bound|."""

JITTER = 1e-3
"""Standard deviation of what breaks exact zeros at the start."""


def start(key: Array, inputs: Inputs, num_components: int) -> Factors:
    """Return factors about the fit by maximum likelihood, the noise at least a thousandth of the variance.

    Where no row varies all means are exactly zero, and stay so.
    """
    R = np.asarray(inputs["compressed"])
    (m, d), p = R.shape, num_components
    fit = ppca(inputs, p)
    variance = float(fit.eigenvalues.mean())
    noise = max(fit.discarded, 1e-3 * (variance or 1.0))
    jitter = np.asarray(jax.random.normal(key, (d, p)), float) * JITTER * np.sqrt(variance)
    W = fit.loadings + jitter
    shape = float(inputs["noise_shape"]) + 0.5 * m * d
    return Factors(
        scores_mean=score_means(fit._replace(loadings=W, noise_variance=noise), R),
        scores_covariance=np.eye(p),
        loadings_mean=W,
        loadings_covariance=1e-2 * np.eye(p),
        mean_mean=fit.mean,
        mean_variance=np.asarray(1e-2),
        precision_shape=np.asarray(1.0),
        precision_rate=np.ones(p),
        noise_shape=np.asarray(shape),
        noise_rate=np.asarray(shape * noise),
    )


@partial(jax.jit, static_argnames="rotation")
def _step(factors: Factors, inputs: dict[str, Array], rotation: bool) -> tuple[Factors, Array]:
    new = sweep(factors, inputs)
    return rotation_step(new, inputs) if rotation else (new, bound(new, inputs))


@jax.jit
def settled(factors: Factors, inputs: dict[str, Array]) -> tuple[Factors, Array]:
    """Return the factors with q(U), q(alpha) and q(tau) made to fit the rest, and their bound."""
    for update in (update_scores, update_precision, update_noise):
        factors = update(factors, inputs)
    return factors, bound(factors, inputs)


def kept_columns(loadings_mean: Any, prune: float) -> Array:
    """Return which columns hold norm(mW_i)^2 >= prune times the largest; never none: bool (component,).

    The expected square would not do: that of a dead column has a floor, d SW_ii.
    """
    size = (np.asarray(loadings_mean) ** 2).sum(axis=0)
    keep = size >= prune * size.max()
    keep[size.argmax()] = True
    return keep


def dropped(factors: Factors, keep: Array) -> Factors:
    """Return the factors of the columns to keep; q(U), q(alpha) and q(tau) no longer fit the rest.

    `keep` may also be the columns' numbers in a new order.
    """
    square, factors = np.ix_(keep, keep), Factors(*map(np.asarray, factors))
    return factors._replace(
        scores_mean=factors.scores_mean[:, keep],
        scores_covariance=factors.scores_covariance[square],
        loadings_mean=factors.loadings_mean[:, keep],
        loadings_covariance=factors.loadings_covariance[square],
        precision_rate=factors.precision_rate[keep],
    )


class Climb(NamedTuple):
    """Where the ascent ended: factors, the bound of the last round (iteration,), how and when it stopped."""

    factors: Factors
    objective: Array
    converged: bool
    message: str
    iterations: int


def climb(
    factors: Factors,
    inputs: Inputs,
    *,
    max_iter: int,
    tolerance: float,
    rotation: bool,
    prune: float,
    progress: bool = False,
) -> Climb:
    """Ascend, prune at rest, and ascend again until no column is dropped.

    On pseudo-rows: measurement^2 component + component^3 flops a sweep. Bounds before and after a column is
    dropped are of different models, so the trace is of the last round.
    """
    pseudo = pseudo_rows(inputs)
    arrays, factors = pseudo.arrays, pseudo.reduced(factors)
    step = partial(_step, inputs=arrays, rotation=rotation)
    used = 0
    while True:
        factors, begun = settled(factors, arrays)
        found = iterate(
            step,
            factors,
            float(begun),
            max_iter=max_iter - used,
            tolerance=tolerance,
            blocks=lambda state: state._asdict(),
            progress=progress,
            name="mean_field",
        )
        used += len(found.objective) - 1
        factors, trace = found.state, found.objective
        keep = kept_columns(factors.loadings_mean, prune)
        if keep.all():
            break
        factors = dropped(factors, keep)
        if used >= max_iter:
            factors, begun = settled(factors, arrays)
            words = f"stopped at max_iter={max_iter} when columns had just been dropped"
            return Climb(pseudo.expanded(factors), np.asarray([float(begun)]), False, words, used)
    return Climb(pseudo.expanded(factors), trace, found.converged, found.message, used)


@partial(jax.jit, static_argnames="num_samples")
def draw(key: Array, factors: Factors, num_samples: int) -> dict[str, Array]:
    """Draw alpha, tau, mu and W from q: leaves (sample, ...)."""
    keys = jax.random.split(key, 4)
    d, p = factors.loadings_mean.shape
    root = jnp.linalg.cholesky(factors.loadings_covariance)
    white = jax.random.normal(keys[3], (num_samples, d, p))
    noise = jax.random.normal(keys[2], (num_samples, d))
    alpha = dist.Gamma(jnp.full(p, factors.precision_shape), factors.precision_rate)
    return {
        "precision": alpha.sample(keys[0], (num_samples,)),
        "noise_precision": dist.Gamma(factors.noise_shape, factors.noise_rate).sample(
            keys[1], (num_samples,)
        ),
        "mean": factors.mean_mean + jnp.sqrt(factors.mean_variance) * noise,
        "loadings": factors.loadings_mean + white @ root.T,
    }


@jax.jit
def log_weights(draws: dict[str, Array], factors: Factors, inputs: dict[str, Array]) -> Array:
    """Return log p(R, alpha, tau, mu, W) - log q of draws, the scores integrated out: (sample,), nats."""
    d, p = factors.loadings_mean.shape
    prior_alpha = dist.Gamma(inputs["precision_shape"], inputs["precision_rate"])
    q_alpha = dist.Gamma(jnp.full(p, factors.precision_shape), factors.precision_rate)
    q_rows = dist.MultivariateNormal(factors.loadings_mean, factors.loadings_covariance)
    q_mean = dist.Normal(factors.mean_mean, jnp.sqrt(factors.mean_variance))
    q_noise = dist.Gamma(factors.noise_shape, factors.noise_rate)
    prior_noise = dist.Gamma(inputs["noise_shape"], inputs["noise_rate"])
    prior_mean = dist.Normal(0.0, inputs["mean_precision"] ** -0.5)

    def one(site: dict[str, Array]) -> Array:
        alpha, tau, mu, W = (site[name] for name in ("precision", "noise_precision", "mean", "loadings"))
        joint = log_likelihood(site, inputs) + dist.Normal(0.0, alpha**-0.5).log_prob(W).sum()
        joint += prior_alpha.log_prob(alpha).sum() + prior_noise.log_prob(tau) + prior_mean.log_prob(mu).sum()
        q = q_alpha.log_prob(alpha).sum() + q_noise.log_prob(tau)
        return joint - q - q_mean.log_prob(mu).sum() - q_rows.log_prob(W).sum()

    return jax.lax.map(one, draws)


def run_mean_field(
    spec: ModelSpec,
    inputs: Inputs,
    *,
    rng_key: Any,
    progress: bool = False,
    max_iter: Any = OPTIONS["max_iter"],
    tolerance: Any = OPTIONS["tolerance"],
    rotation: Any = True,
    prune: Any = OPTIONS["prune"],
    num_samples: Any = OPTIONS["num_samples"],
    khat_samples: Any = OPTIONS["khat_samples"],
) -> EngineResult:
    """Climb from the fit by maximum likelihood to where coordinate ascent rests, prune, and draw from q.

    Cost: rows measurement^2 flops once, and iterations x (measurement^2 component + component^3).

    Parameters
    ----------
    max_iter, tolerance
        As in `labelzoo.inference.fixed_point.iterate`.
    rotation : bool
        Try the rotation step after every sweep.
    prune : number
        At least 0 and below 1; see `OPTIONS`.
    num_samples : int
        Draws from q.
    khat_samples : int
        Importance weights for k-hat (0, or at least 100).

    Raises
    ------
    ValueError
        If an option is out of range.
    FloatingPointError
        If the bound is not finite; the message names the factor.
    """
    check_options(max_iter, tolerance)
    _check_options(rotation, prune, num_samples, khat_samples)
    start_key, draw_key, khat_key = jax.random.split(rng_key, 3)
    begin = time.perf_counter()
    limits: dict[str, Any] = {"max_iter": int(max_iter), "tolerance": float(tolerance), "progress": progress}
    attrs: dict[str, Any] = {}
    with compile_clock() as clock:
        first = start(start_key, inputs, inputs["num_components"])
        found = climb(first, inputs, rotation=rotation, prune=float(prune), **limits)
        factors = found.factors
        if khat_samples:
            draws = draw(khat_key, factors, int(khat_samples))
            attrs["khat"] = psis_khat(np.asarray(log_weights(draws, factors, arrays_of(inputs))))
        sites = jax.block_until_ready(draw(draw_key, factors, int(num_samples)))
    elapsed, compiling = time.perf_counter() - begin, clock.seconds()
    attrs |= {"iterations": found.iterations, "components_kept": int(factors.loadings_mean.shape[1])}
    return EngineResult(
        draws={name: np.asarray(value)[None] for name, value in sites.items()},
        optimization={"objective": found.objective},
        compile_seconds=compiling,
        run_seconds=max(elapsed - compiling, 0.0),
        converged=found.converged,
        message=f"{found.message}; {attrs['components_kept']} of {inputs['num_components']} columns kept",
        attrs=attrs,
        state={
            **{name: np.asarray(value) for name, value in factors._asdict().items()},
            "noise_variance": np.asarray(1.0 / noise_mean(factors)),
        },
    )


def _check_options(rotation: Any, prune: Any, num_samples: Any, khat_samples: Any) -> None:
    if not isinstance(rotation, bool):
        raise ValueError(f"rotation must be True or False, got {rotation!r}")
    if not 0.0 <= real(prune) < 1.0:
        raise ValueError(f"prune must be a number of at least 0 and below 1, got {prune!r}")
    whole_number("num_samples", num_samples, 1)
    if khat_samples != 0 or isinstance(khat_samples, bool):
        whole_number("khat_samples", khat_samples, MIN_WEIGHTS)


engine = Engine(
    "mean_field",
    "bound",
    run_mean_field,
    random_sites=("precision", "noise_precision", "mean", "loadings"),
    options=OPTIONS,
    conditionals=(
        "scores_given_rest",
        "loadings_given_rest",
        "mean_given_scores",
        "precision_given_loadings",
        "noise_given_rest",
    ),
    description="Variational principal components with a rotation step; columns that explain nothing go.",
)
