"""The conditionals of compressed_gp: targets of new rows, slopes and constants; wrong versions of them."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.linalg import cho_solve, solve_triangular

from labelzoo.inference.distributions import GaussianNatural
from labelzoo.inference.update import Mutant, Update
from labelzoo.models.compressed_gp import (
    DECIBEL,
    SITES,
    Logs,
    function_covariance,
    line_log_variance,
    signal_covariance,
    with_noise,
    with_one,
)

Array = Any
State = Mapping[str, Any]
Inputs = Mapping[str, Any]


def logs_in(state: State) -> Logs:
    """Return the five logarithms of a state, whose sites they are or, in decibels, one site."""
    if "decibels" in state:
        return Logs(*(DECIBEL * jnp.asarray(state["decibels"]).T))
    return Logs(*(state[name] for name in SITES))


def new_targets_given_observed(state: State, inputs: Inputs) -> dist.MultivariateNormal:
    """Return p(new targets | observed targets): batch (target,), event (new,).

    With C the covariance of the observed targets, noise included, and k that between observed and new rows,
    the mean is k'C^-1 u and the covariance k** + noise I - k'C^-1 k. Shi and Yu, ICML 2019, eqs. 11 and 12,
    jointly over new rows. Cost rows^3 / 3 + rows^2 new + rows new^2 flops a target.
    """
    return _conditional(logs_in(state), inputs)


def _conditional(
    logs: Logs,
    inputs: Inputs,
    *,
    noise_of_observed: bool = True,
    noise_of_new: bool = True,
    shrink: float = 1.0,
    together: bool = True,
) -> dist.MultivariateNormal:
    """Return the conditional, or with an argument changed a wrong one."""
    n = len(inputs["distances2"])
    far, inner = jnp.asarray(inputs["new_distances2"]), jnp.asarray(inputs["new_products"])
    C = function_covariance(logs, inputs["distances2"], inputs["products"])
    C = with_noise(C, logs) if noise_of_observed else C + 1e-3 * jnp.eye(n)
    k = function_covariance(logs, far[:, :n].T, inner[:, :n].T)
    own = function_covariance(logs, far[:, n:], inner[:, n:])
    lower = jnp.linalg.cholesky(C)
    half = solve_triangular(lower, k, lower=True)
    white = solve_triangular(lower, jnp.asarray(inputs["targets"]).T[..., None], lower=True)
    mean = (half.mT @ white)[..., 0]
    rest = own - shrink * half.mT @ half
    rest = with_noise(rest, logs) if noise_of_new else rest + 1e-3 * jnp.eye(len(far))
    rest = rest if together else rest * jnp.eye(len(far))
    return dist.MultivariateNormal(mean, covariance_matrix=rest)


def line_given_targets(state: State, inputs: Inputs) -> GaussianNatural:
    """Return p(slopes and constant | targets): batch (target,), event (feature + 1,).

    With H the mapped features and a column of ones, S the covariance of signal and noise: precision
    diag(1 / th2, ..., 1 / th3) + H'S^-1 H, potential H'S^-1 u. This project.
    """
    return _line(logs_in(state), inputs)


def _line(logs: Logs, inputs: Inputs, *, change: Callable[[Array], Array] = lambda S: S) -> GaussianNatural:
    H, U = with_one(inputs["mapped"]), jnp.asarray(inputs["targets"]).T
    S = with_noise(change(signal_covariance(logs, inputs["distances2"])), logs)
    lower = jnp.linalg.cholesky(S)
    solved = cho_solve((lower, True), jnp.broadcast_to(H, (len(U), *H.shape)))
    prior = jnp.exp(-line_log_variance(logs, H.shape[1]))
    precision = prior[:, :, None] * jnp.eye(H.shape[1]) + solved.mT @ H
    return GaussianNatural((solved.mT @ U[..., None])[..., 0], 0.5 * (precision + precision.mT))


def _wrong_logs(claim: Callable[..., Any], **change: Callable[[Logs], Array]) -> Callable[..., Any]:
    """Return a claim that reads some logarithms wrongly."""

    def wrong(state: State, inputs: Inputs) -> Any:
        logs = logs_in(state)
        return claim(logs._replace(**{name: f(logs) for name, f in change.items()}), inputs)

    return wrong


def _wrong(**change: Any) -> Callable[..., Any]:
    return lambda state, inputs: _conditional(logs_in(state), inputs, **change)


UPDATES = (
    Update(
        name="new_targets_given_observed",
        sites=("new_targets",),
        view="predictive",
        given=new_targets_given_observed,
        mutants=(
            Mutant("observed targets without noise", _wrong(noise_of_observed=False)),
            Mutant("new targets without noise", _wrong(noise_of_new=False)),
            Mutant("half of what is known taken off the variance", _wrong(shrink=0.5)),
            Mutant("new rows taken one by one (eq. 12 as printed)", _wrong(together=False)),
            Mutant(
                "noise precision taken for its variance", _wrong_logs(_conditional, noise=lambda s: -s.noise)
            ),
            Mutant(
                "half of th1 forgotten",
                _wrong_logs(_conditional, inverse_length2=lambda s: s.inverse_length2 + jnp.log(2.0)),
            ),
            Mutant(
                "linear part and constant exchanged", _wrong_logs(_conditional, linear=lambda s: s.constant)
            ),
        ),
        equation="Shi and Yu 2019, (11), (12)",
    ),
    Update(
        name="line_given_targets",
        sites=("line",),
        view="linear",
        given=line_given_targets,
        mutants=(
            Mutant("signal forgotten", lambda s, i: _line(logs_in(s), i, change=jnp.zeros_like)),
            Mutant("th2 taken for a precision", _wrong_logs(_line, linear=lambda s: -s.linear)),
            Mutant("constant has the slopes' variance", _wrong_logs(_line, constant=lambda s: s.linear)),
            Mutant(
                "noise taken for its standard deviation", _wrong_logs(_line, noise=lambda s: 0.5 * s.noise)
            ),
        ),
        equation="this project",
    ),
)
