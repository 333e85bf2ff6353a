r"""Mean field of label_logistic: q(w_l) normal with a full covariance, q(omega_nl) Polya-Gamma.

The bound is that of Jaakkola and Jordan, "Bayesian parameter estimation via variational methods", Statistics
and Computing 10, 2000, whose equivalence to Polya-Gamma mean field is Durante and Rigon, "Conditionally
conjugate mean-field variational Bayes for logistic models", Statistical Science 34, 2019.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from labelzoo.inference.distributions import GaussianNatural
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.fixed_point import iterate
from labelzoo.inference.label_logistic.updates import refuse_large_precisions, weights_given_omega
from labelzoo.inference.polya_gamma import log_cosh_half, mean
from labelzoo.inference.reference.khat import MIN_WEIGHTS, psis_khat
from labelzoo.models.label_logistic import log_likelihood
from labelzoo.models.spec import ModelSpec

Array = Any
Inputs = Mapping[str, Any]

OPTIONS: dict[str, Any] = {"max_iter": 3000, "tolerance": 1e-8, "num_samples": 1000, "khat_samples": 1000}


class Factors(NamedTuple):
    """The mean-field factors.

    Attributes
    ----------
    mean : (labels, feature)
    covariance : (labels, feature, feature)
        Of q(w_l).
    tilt : (obs, labels)
        c of q(omega_nl) = PG(1, c_nl); zero at unobserved cells.
    """

    mean: Array
    covariance: Array
    tilt: Array


def update_weights(tilt: Array, inputs: Inputs) -> GaussianNatural:
    """Return q(w): the conditional at the mean of omega, in which its natural parameters are linear."""
    return weights_given_omega({"omega": mean(1.0, tilt)}, inputs)


def update_tilt(weights_mean: Array, covariance: Array, inputs: Inputs) -> Array:
    """Return c_nl = (E psi_nl^2)^(1/2) = ((x_n' m_l)^2 + x_n' S_l x_n)^(1/2): (obs, labels)."""
    X = inputs["X"]
    spread = jax.lax.map(lambda S: ((X @ S) * X).sum(axis=1), covariance).T
    square = (X @ weights_mean.T) ** 2 + jnp.maximum(spread, 0.0)
    return jnp.where(inputs["observed"], jnp.sqrt(square), 0.0)


def bound(factors: Factors, inputs: Inputs) -> Array:
    """Return the evidence lower bound at the best tilt for q(w), nats.

    sum_nl [(y_nl - 1/2) x_n' m_l - log 2 - log cosh(c_nl / 2)] - sum_l KL(q(w_l) || p(w_l)).
    """
    m, S, tau = factors.mean, factors.covariance, inputs["precision"]
    cells = (inputs["Y"] - 0.5) * (inputs["X"] @ m.T) - jnp.log(2.0) - log_cosh_half(factors.tilt)
    fit = jnp.where(inputs["observed"], cells, 0.0).sum()
    second = jnp.diagonal(S, axis1=1, axis2=2) + m**2
    log_det = jnp.linalg.slogdet(S)[1].sum() + m.shape[0] * jnp.log(tau).sum()
    return fit - 0.5 * ((second * tau).sum() - m.size - log_det)


def start(inputs: Inputs) -> Factors:
    """Return zero means, the prior's covariance cut at 1, and the tilt that fits them."""
    num_labels, d = inputs["Y"].shape[1], inputs["X"].shape[1]
    covariance = jnp.tile(jnp.diag(jnp.minimum(1.0 / inputs["precision"], 1.0)), (num_labels, 1, 1))
    m = jnp.zeros((num_labels, d), inputs["X"].dtype)
    return Factors(m, covariance, update_tilt(m, covariance, inputs))


def sweep(factors: Factors, inputs: Inputs) -> Factors:
    """Update q(w), then q(omega): coordinate ascent, so `bound` never falls."""
    law = update_weights(factors.tilt, inputs)
    m, S = law.mean, law.covariance_matrix
    return Factors(m, S, update_tilt(m, S, inputs))


@jax.jit
def _first(inputs: dict[str, Array]) -> tuple[Factors, Array]:
    factors = start(inputs)
    return factors, bound(factors, inputs)


@jax.jit
def _step(state: tuple[Factors, dict[str, Array]]) -> tuple[tuple[Factors, dict[str, Array]], Array]:
    """Sweep once. The inputs travel with the state, so that one program serves all data of a shape."""
    factors, inputs = sweep(*state), state[1]
    return (factors, inputs), bound(factors, inputs)


_law = jax.jit(update_weights)


def refuse_options(num_samples: Any, khat_samples: Any) -> None:
    """Refuse numbers of draws that are out of range.

    Raises
    ------
    ValueError
    """
    if not isinstance(num_samples, int | np.integer) or num_samples < 1:
        raise ValueError(f"num_samples must be a positive integer, got {num_samples!r}")
    if not isinstance(khat_samples, int | np.integer) or 0 != khat_samples < MIN_WEIGHTS:
        raise ValueError(
            f"khat_samples must be 0 or an integer of at least {MIN_WEIGHTS}, got {khat_samples!r}"
        )


def run_mean_field(
    spec: ModelSpec,
    inputs: Inputs,
    *,
    rng_key: Any,
    progress: bool = False,
    max_iter: Any = 3000,
    tolerance: Any = 1e-8,
    num_samples: Any = 1000,
    khat_samples: Any = 1000,
) -> EngineResult:
    """Ascend the bound to its maximum (it is concave in neither, but each update is exact), then draw.

    Parameters
    ----------
    max_iter, tolerance
        As in `labelzoo.inference.fixed_point.iterate`.
    num_samples : int
        Draws from q(w).
    khat_samples : int
        Importance weights for k-hat (0, or at least 100).

    Raises
    ------
    ValueError
        If an option is out of range.
    FloatingPointError
        If the bound is not finite.
    """
    refuse_options(num_samples, khat_samples)
    refuse_large_precisions(inputs)
    inputs = dict(inputs)
    first, first_bound = _first(inputs)
    result = iterate(
        _step,
        (first, inputs),
        float(first_bound),
        max_iter=max_iter,
        tolerance=tolerance,
        blocks=lambda state: state[0]._asdict(),
        progress=progress,
        name="mean field",
    )
    begin = time.perf_counter()
    draw_key, khat_key = jax.random.split(rng_key)
    law = _law(result.state[0].tilt, inputs)
    weights = np.asarray(law.sample(draw_key, (int(num_samples),)))[None]
    khat = {"khat": psis_khat(log_weights(khat_key, law, inputs, int(khat_samples)))} if khat_samples else {}
    return EngineResult(
        draws={"weights": weights},
        optimization={"objective": result.objective},
        compile_seconds=result.compile_seconds,
        run_seconds=result.run_seconds + time.perf_counter() - begin,
        converged=result.converged,
        message=result.message,
        attrs=khat,
    )


def log_weights(key: Array, law: GaussianNatural, inputs: Inputs, num_samples: int) -> np.ndarray:
    """Return log p(w_s, y) - log q(w_s) for draws from q, all labels jointly: (sample,), nats."""
    tau = inputs["precision"]

    def one(key: Array) -> Array:
        w = law.sample(key)
        log_prior = 0.5 * (jnp.log(tau / (2 * jnp.pi)) - tau * w**2).sum()
        return log_likelihood(w, inputs) + log_prior - law.log_prob(w).sum()

    return np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(key, int(num_samples))))


engine = Engine(
    "mean_field",
    "bound",
    run_mean_field,
    random_sites=("weights",),
    options=OPTIONS,
    conditionals=("omega_given_weights", "weights_given_omega"),
    description="Coordinate ascent on the Jaakkola-Jordan bound: fast; variances too small, means close.",
)
