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
from labelzoo.inference.label_logistic.climb import climb_labels, labels_first, one_blas_thread
from labelzoo.inference.label_logistic.draws import draw_weights, log_weights
from labelzoo.inference.label_logistic.forms import form_of
from labelzoo.inference.label_logistic.memory import refuse_large
from labelzoo.inference.label_logistic.updates import weights_given_omega
from labelzoo.inference.polya_gamma import log_cosh_half, mean
from labelzoo.inference.reference.khat import MIN_WEIGHTS, psis_khat
from labelzoo.models.spec import ModelSpec

Array = Any
Inputs = Mapping[str, Any]

OPTIONS: dict[str, Any] = {"max_iter": 300, "tolerance": 1e-6, "num_samples": 1000, "khat_samples": 1000}

"""`tolerance` is of probabilities: 1e-6 is a step or two beyond 1e-4, as Newton's method doubles digits."""

MAX_ITER = 100_000
"""Most steps that can be asked for: their trace is kept."""


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


def refuse_limits(max_iter: Any, tolerance: Any) -> None:
    """Refuse a number of steps or a tolerance that is out of range.

    Raises
    ------
    ValueError
    """
    if not isinstance(max_iter, int | np.integer) or isinstance(max_iter, bool) or max_iter < 1:
        raise ValueError(f"max_iter must be an integer of at least 1, got {max_iter!r}")
    if max_iter > MAX_ITER:
        raise ValueError(f"max_iter must be at most {MAX_ITER}, got {max_iter!r}")
    if not isinstance(tolerance, int | float | np.number) or not tolerance >= 0:
        raise ValueError(f"tolerance must be a number of at least 0, got {tolerance!r}")


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
    max_iter: Any = OPTIONS["max_iter"],
    tolerance: Any = OPTIONS["tolerance"],
    num_samples: Any = OPTIONS["num_samples"],
    khat_samples: Any = OPTIONS["khat_samples"],
) -> EngineResult:
    """Climb to where coordinate ascent rests, by Newton's method on each label's tilts; then draw.

    Cost: labels x iterations (about a dozen) x (rows features^2 + features^3), or x rows^3 where there are
    fewer rows than features. Memory: X, the tables (row, labels), and the draws (sample, labels, feature).

    Parameters
    ----------
    max_iter : int
        Most steps a label.
    tolerance : float
        A label is at rest when a full Newton step changes no probability at its rows by more.
    num_samples : int
        Draws from q(w).
    khat_samples : int
        Importance weights for k-hat (0, or at least 100).

    Raises
    ------
    ValueError
        If an option is out of range, or the tables would pass the memory cap.
    FloatingPointError
        If the bound is not finite; the message names the label by its number.
    """
    refuse_options(num_samples, khat_samples)
    refuse_limits(max_iter, tolerance)
    _refuse_large(inputs, int(num_samples), int(khat_samples))
    rows = labels_first(inputs)
    form = form_of(rows.X, inputs["precision"])
    begin = time.perf_counter()
    limits: dict[str, Any] = {"max_iter": int(max_iter), "tolerance": float(tolerance), "progress": progress}
    with one_blas_thread():
        climb = climb_labels(form, rows, inputs["precision"], **limits)
        draw_key, khat_key = jax.random.split(rng_key)
        omega = np.asarray(jnp.where(rows.observed, mean(1.0, climb.tilt), 0.0))
        weights = draw_weights(
            draw_key, form, rows.X, inputs["precision"], omega, rows.kappa, int(num_samples)
        )
        attrs = {}
        if khat_samples:
            ratios = log_weights(khat_key, form, omega, rows.kappa, rows.observed, int(khat_samples))
            attrs["khat"] = psis_khat(ratios)
    return EngineResult(
        draws={"weights": weights[None]},
        optimization={"objective": climb.objective},
        compile_seconds=climb.compile_seconds,
        run_seconds=time.perf_counter() - begin - climb.compile_seconds,
        converged=climb.converged,
        message=climb.message,
        attrs=attrs,
    )


def _refuse_large(inputs: Inputs, num_samples: int, khat_samples: int) -> None:
    (n, d), num_labels = inputs["X"].shape, inputs["Y"].shape[1]
    work = 8 * n**2 if n < d else 4 * n * d + 3 * d**2
    tables = {
        "tilts": 4.0 * n * num_labels,
        "work": float(work + 3 * max(num_samples * (n + d), khat_samples * n)),
        f"{num_samples} draws": (1.0 if n < d else 2.0) * num_samples * num_labels * d,
    }
    refuse_large(inputs, "mean_field", tables, "fewer num_samples")


engine = Engine(
    "mean_field",
    "bound",
    run_mean_field,
    random_sites=("weights",),
    options=OPTIONS,
    conditionals=("omega_given_weights", "weights_given_omega"),
    description="Coordinate ascent on the Jaakkola-Jordan bound: fast; variances too small, means close.",
)
