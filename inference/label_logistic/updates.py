"""The two conditionals of label_logistic under its Polya-Gamma view, and wrong versions of them."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from labelzoo.inference.distributions import GaussianNatural
from labelzoo.inference.polya_gamma import PolyaGamma
from labelzoo.inference.update import Mutant, Update

Array = Any
State = Mapping[str, Any]
Inputs = Mapping[str, Any]


def weights_given_omega(state: State, inputs: Inputs) -> GaussianNatural:
    """Return p(w_l | omega, y): batch (labels,), event (feature,).

    Precision P_l = diag(tau) + sum_n omega_nl x_n x_n', potential h_l = sum_n (y_nl - 1/2) x_n, sums over
    the rows where label l is observed. Cost labels x (rows x feature^2 + feature^3); one label at a time, so
    that memory beyond the result is that of X.
    """
    X, observed = inputs["X"], inputs["observed"]
    omega = jnp.where(observed, state["omega"], 0.0)
    potential = jnp.where(observed, inputs["Y"] - 0.5, 0.0).T @ X
    prior = jnp.diag(inputs["precision"])
    precision = jax.lax.map(lambda omega_l: prior + (X * omega_l[:, None]).T @ X, omega.T)
    return GaussianNatural(potential, precision)


def omega_given_weights(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(omega | w): PG(1, x_n' w_l) at observed cells, the prior PG(1, 0) at the others."""
    psi = inputs["X"] @ state["weights"].T
    tilt = jnp.where(inputs["observed"], psi, 0.0)
    return PolyaGamma(jnp.ones_like(tilt), tilt).to_event(1)


def _weights_wrong(**change: Any) -> Any:
    """Return `weights_given_omega` on inputs that `change` maps to wrong ones."""
    return lambda state, inputs: weights_given_omega(
        state, {**inputs, **{name: wrong(inputs) for name, wrong in change.items()}}
    )


def _prior_twice(inputs: Inputs) -> Array:
    return 2.0 * inputs["precision"]


def _intercept_as_others(inputs: Inputs) -> Array:
    return inputs["precision"].at[-1].set(2.0 * inputs["precision"][0])


def _all_observed(inputs: Inputs) -> Array:
    return jnp.ones_like(inputs["observed"])


def _no_half(inputs: Inputs) -> Array:
    return inputs["Y"] + 0.5


def _omega_doubled(state: State, inputs: Inputs) -> GaussianNatural:
    return weights_given_omega({**state, "omega": 2.0 * state["omega"]}, inputs)


def _two_trials(state: State, inputs: Inputs) -> dist.Distribution:
    law = omega_given_weights(state, inputs).base_dist
    return PolyaGamma(2.0 * law.concentration, law.tilting).to_event(1)


def _half_tilt(state: State, inputs: Inputs) -> dist.Distribution:
    law = omega_given_weights(state, inputs).base_dist
    return PolyaGamma(law.concentration, 0.5 * law.tilting).to_event(1)


def _tilt_unobserved(state: State, inputs: Inputs) -> dist.Distribution:
    return omega_given_weights(state, {**inputs, "observed": _all_observed(inputs)})


UPDATES = (
    Update(
        name="weights_given_omega",
        sites=("weights",),
        view="polya_gamma",
        given=weights_given_omega,
        mutants=(
            Mutant("kappa = y, the 1/2 dropped", _weights_wrong(Y=_no_half)),
            Mutant("prior precision counted twice", _weights_wrong(precision=_prior_twice)),
            Mutant("intercept given a weight's precision", _weights_wrong(precision=_intercept_as_others)),
            Mutant("omega doubled", _omega_doubled),
            Mutant("missing cells read as zeros", _weights_wrong(observed=_all_observed)),
        ),
        equation="Polson, Scott, Windle 2013, section 3.1",
    ),
    Update(
        name="omega_given_weights",
        sites=("omega",),
        view="polya_gamma",
        given=omega_given_weights,
        mutants=(
            Mutant("b = 2", _two_trials),
            Mutant("tilt halved", _half_tilt),
            Mutant("missing cells tilted", _tilt_unobserved),
        ),
        equation="Polson, Scott, Windle 2013, section 3.1",
    ),
)
