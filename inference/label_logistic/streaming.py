r"""Streaming mean field of label_logistic: the posterior of the rows so far is the prior of the next batch.

q_t(w_l) is the best normal law, under the bound of `labelzoo.inference.label_logistic.mean_field`, for the
labels of batch t and the prior q_{t-1}(w_l): Broderick, Boyd, Wibisono, Wilson and Jordan, "Streaming
variational Bayes", NeurIPS 2013, section 2. A batch is read once. With all rows in one batch it is mean
field; with several, the tilts of earlier rows stay where they were, so that the result depends on the batches
and their order, a little.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from labelzoo.inference.distributions import GaussianNatural
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.fixed_point import iterate
from labelzoo.inference.label_logistic.climb import one_blas_thread
from labelzoo.inference.label_logistic.draws import solve_draws
from labelzoo.inference.label_logistic.mean_field import Factors, refuse_options, update_tilt
from labelzoo.inference.label_logistic.memory import refuse_large_precisions
from labelzoo.inference.polya_gamma import log_cosh_half, mean
from labelzoo.inference.reference.khat import psis_khat
from labelzoo.models.label_logistic import log_likelihood
from labelzoo.models.spec import ModelSpec

Array = Any
Inputs = Mapping[str, Any]

OPTIONS: dict[str, Any] = {"max_iter": 3000, "tolerance": 1e-8, "num_samples": 1000, "khat_samples": 1000}
"""`tolerance` is of the bound's relative change a sweep."""

_solve = jax.jit(solve_draws)


class Prior(NamedTuple):
    """A normal law a label, by potential and precision.

    Attributes
    ----------
    potential : (labels, feature)
        Precision times mean.
    precision : (labels, feature, feature)
    """

    potential: Array
    precision: Array


def first_prior(inputs: Inputs) -> Prior:
    """Return the prior of the program: zero potential, the same diagonal precision for every label."""
    num_labels, d = inputs["Y"].shape[1], inputs["X"].shape[1]
    precision = jnp.broadcast_to(jnp.diag(inputs["precision"]), (num_labels, d, d))
    return Prior(jnp.zeros((num_labels, d), inputs["X"].dtype), precision)


def update_weights(tilt: Array, inputs: Inputs, prior: Prior) -> GaussianNatural:
    """Return q(w): what the batch alone gives, by the conditional at E omega, added to the prior."""
    potential, precision = _natural(mean(1.0, tilt), inputs)
    return GaussianNatural(prior.potential + potential, prior.precision + precision)


def _natural(omega: Array, inputs: Inputs) -> tuple[Array, Array]:
    """Return the batch's potential sum_n (y_nl - 1/2) x_n and precision sum_n omega_nl x_n x_n'."""
    X, observed = inputs["X"], inputs["observed"]
    omega = jnp.where(observed, omega, 0.0)
    potential = jnp.where(observed, inputs["Y"] - 0.5, 0.0).T @ X
    return potential, jax.lax.map(lambda omega_l: (X * omega_l[:, None]).T @ X, omega.T)


def bound(factors: Factors, inputs: Inputs, prior: Prior) -> Array:
    """Return the evidence lower bound of the batch at the best tilt for q(w), nats.

    sum_nl [(y_nl - 1/2) x_n' m_l - log 2 - log cosh(c_nl / 2)] - sum_l KL(q(w_l) || prior_l).
    """
    m, S, P = factors.mean, factors.covariance, prior.precision
    cells = (inputs["Y"] - 0.5) * (inputs["X"] @ m.T) - jnp.log(2.0) - log_cosh_half(factors.tilt)
    fit = jnp.where(inputs["observed"], cells, 0.0).sum()
    away = m - GaussianNatural(prior.potential, P).mean
    square = jnp.einsum("ld,lde,le->", away, P, away) + jnp.einsum("lde,led->", P, S)
    log_dets = jnp.linalg.slogdet(P)[1].sum() + jnp.linalg.slogdet(S)[1].sum()
    return fit - 0.5 * (square - m.size - log_dets)


def start(inputs: Inputs, prior: Prior) -> Factors:
    """Return the prior's means and its covariance, variances cut at 1, and the tilt that fits them."""
    law = GaussianNatural(prior.potential, prior.precision)
    m, S = law.mean, law.covariance_matrix
    shrink = jnp.minimum(jnp.diagonal(S, axis1=1, axis2=2) ** -0.5, 1.0)
    S = shrink[:, :, None] * S * shrink[:, None, :]
    return Factors(m, S, update_tilt(m, S, inputs))


def sweep(factors: Factors, inputs: Inputs, prior: Prior) -> Factors:
    """Update q(w), then q(omega) of the batch: coordinate ascent, so `bound` never falls."""
    law = update_weights(factors.tilt, inputs, prior)
    m, S = law.mean, law.covariance_matrix
    return Factors(m, S, update_tilt(m, S, inputs))


@jax.jit
def _first(inputs: dict[str, Array], prior: Prior) -> tuple[Factors, Array]:
    factors = start(inputs, prior)
    return factors, bound(factors, inputs, prior)


@jax.jit
def _step(state: tuple[Factors, dict[str, Array], Prior]) -> tuple[Any, Array]:
    _, inputs, prior = state
    factors = sweep(*state)
    return (factors, inputs, prior), bound(factors, inputs, prior)


_law = jax.jit(update_weights)


def run_streaming(
    spec: ModelSpec, inputs: Inputs, *, rng_key: Any, progress: bool = False, **options: Any
) -> EngineResult:
    """Take the first batch: the prior is the program's. `options` are those of mean field.

    Raises
    ------
    ValueError
        If an option is out of range.
    FloatingPointError
        If the bound is not finite.
    """
    options = _checked(inputs, options)
    with one_blas_thread():
        return _absorb(dict(inputs), first_prior(inputs), rng_key, progress, **options)


def continue_streaming(
    spec: ModelSpec,
    inputs: Inputs,
    previous: xr.DataTree,
    *,
    rng_key: Any,
    progress: bool = False,
    **options: Any,
) -> EngineResult:
    """Take the next batch: the prior is the group ``engine_state`` of `previous`.

    Raises
    ------
    ValueError, FloatingPointError
        As `run_streaming`.
    """
    options = _checked(inputs, options)
    state = previous["engine_state"].to_dataset()
    prior = Prior(jnp.asarray(state["potential"].values), jnp.asarray(state["precision"].values))
    with one_blas_thread():
        return _absorb(dict(inputs), prior, rng_key, progress, **options)


def _checked(inputs: Inputs, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options; refuse those out of range, and data whose tables would pass the memory cap."""
    full = {**OPTIONS, **options}
    refuse_options(full["num_samples"], full["khat_samples"])
    refuse_large_precisions(inputs, "streaming", int(full["num_samples"]), copies=6.0)
    return full


def _absorb(
    inputs: dict[str, Array],
    prior: Prior,
    rng_key: Any,
    progress: bool,
    *,
    max_iter: Any,
    tolerance: Any,
    num_samples: Any,
    khat_samples: Any,
) -> EngineResult:
    """Ascend the bound of one batch, then draw; k-hat judges this step, its prior taken as exact."""
    first, first_bound = _first(inputs, prior)
    result = iterate(
        _step,
        (first, inputs, prior),
        float(first_bound),
        max_iter=max_iter,
        tolerance=tolerance,
        blocks=lambda state: state[0]._asdict(),
        progress=progress,
        name="streaming mean field",
    )
    begin = time.perf_counter()
    draw_key, khat_key = jax.random.split(rng_key)
    law = _law(result.state[0].tilt, inputs, prior)
    weights = _draws(draw_key, law, int(num_samples))[None]
    attrs = {}
    if khat_samples:
        attrs["khat"] = psis_khat(_log_weights(khat_key, law, inputs, prior, khat_samples))
    return EngineResult(
        draws={"weights": weights},
        optimization={"objective": result.objective},
        compile_seconds=result.compile_seconds,
        run_seconds=result.run_seconds + time.perf_counter() - begin,
        converged=result.converged,
        message=result.message,
        attrs=attrs,
        state={"potential": np.asarray(law.potential), "precision": np.asarray(law.precision)},
    )


def _draws(key: Array, law: GaussianNatural, num_samples: int) -> np.ndarray:
    """Return draws (sample, labels, feature), a label at a time: no factor is copied for every draw."""
    noise = jax.random.normal(key, (num_samples, *law.potential.shape), law.potential.dtype)
    draws = [_solve(*one) for one in zip(law.factor, law.potential, jnp.moveaxis(noise, 1, 0), strict=True)]
    return np.stack(draws, axis=1)


def _log_weights(
    key: Array, law: GaussianNatural, inputs: dict[str, Array], prior: Prior, num_samples: Any
) -> np.ndarray:
    """Return log p(y | w_s) + log prior(w_s) - log q(w_s) for draws from q: (sample,), nats."""
    before = GaussianNatural(prior.potential, prior.precision)

    def one(key: Array) -> Array:
        w = law.sample(key)
        return log_likelihood(w, inputs) + before.log_prob(w).sum() - law.log_prob(w).sum()

    return np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(key, int(num_samples))))


engine = Engine(
    "streaming",
    "bound",
    run_streaming,
    random_sites=("weights",),
    options=OPTIONS,
    conditionals=("omega_given_weights", "weights_given_omega"),
    description="Mean field a batch of rows at a time, each read once: for partial_fit and data that arrive.",
    continue_from=continue_streaming,
)
