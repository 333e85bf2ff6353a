"""Where mean field must come to rest: its bound written from the program, and wrong updates that miss it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.handlers as handlers

from labelzoo.inference.checks.programs import Program, Static, join_inputs, split_inputs
from labelzoo.inference.checks.stationarity import StationarityCase
from labelzoo.inference.label_logistic import mean_field, streaming_stationarity
from labelzoo.inference.label_logistic.ascent import ascend
from labelzoo.inference.label_logistic.climb import first_log_square
from labelzoo.inference.label_logistic.forms import form_of
from labelzoo.inference.label_logistic.updates import weights_given_omega
from labelzoo.inference.polya_gamma import mean
from labelzoo.models.label_logistic import polya_gamma

Array = Any
Inputs = Mapping[str, Any]
Sweep = Callable[[mean_field.Factors, Inputs], mean_field.Factors]


def objective(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return the evidence lower bound of q(w) q(omega) from the program's log joint.

    Given omega the log joint is quadratic in w, and linear in omega beside PG(omega | 1, 0). So its
    expectation is its value at the means plus half the trace of its Hessian times the covariance, less
    KL(q(omega) || PG(1, 0)) and plus the entropy of q(w). Nothing is taken from the updates.

    Parameters
    ----------
    params : mapping
        ``mean`` (labels, feature); ``root`` (labels, feature, feature), any A with covariance A A';
        ``tilt`` (obs, labels).
    inputs : mapping
        What ``spec.prepare`` returned.
    """
    c = jnp.where(params["tilt"] == 0.0, 1e-6, params["tilt"])
    omega = jnp.tanh(c / 2) / (2 * c)
    relative = jnp.logaddexp(c / 2, -c / 2) - jnp.log(2.0) - c * jnp.tanh(c / 2) / 4

    def log_joint(weights: Array) -> Array:
        seeded = handlers.seed(polya_gamma, jax.random.key(0))
        sites = handlers.trace(handlers.substitute(seeded, {"weights": weights, "omega": omega})).get_trace(
            **inputs
        )
        return sum(sites[name]["fn"].log_prob(sites[name]["value"]).sum() for name in ("weights", "Y"))

    root = params["root"]
    hessian = jnp.einsum("ldle->lde", jax.hessian(log_joint)(params["mean"]))
    curvature = 0.5 * jnp.einsum("lde,ldk,lek->", hessian, root, root)
    entropy = jnp.linalg.slogdet(root)[1].sum() + 0.5 * params["mean"].size * (1 + jnp.log(2 * jnp.pi))
    return log_joint(params["mean"]) + curvature + entropy - relative.sum()


def fixed_point(
    inputs: Inputs, tolerance: float = 1e-12, max_iter: int = 20_000, sweep: Sweep = mean_field.sweep
) -> dict[str, Array]:
    """Iterate `sweep` until no factor moves by more than `tolerance`, and return `objective`'s parameters."""
    arrays, static = split_inputs(inputs)
    limits = {"tolerance": tolerance, "max_iter": max_iter}
    return dict(_iterated(arrays, static=static, sweep=sweep, **limits))


@Program
def _iterated(
    arrays: list[Array], *, static: Static, sweep: Sweep, tolerance: float, max_iter: int
) -> dict[str, Array]:
    inputs = join_inputs(arrays, static)

    def moving(carry: tuple[Array, Any, Array]) -> Array:
        return (carry[0] < max_iter) & (carry[2] > tolerance)

    def once(carry: tuple[Array, Any, Array]) -> tuple[Array, Any, Array]:
        count, old, _ = carry
        new = sweep(old, inputs)
        change = [jnp.abs(a - b).max() for a, b in zip(new, old, strict=True)]
        return count + 1, new, jnp.stack(change).max()

    _, factors, _ = jax.lax.while_loop(moving, once, (0, mean_field.start(inputs), jnp.inf))
    return {"mean": factors.mean, "root": jnp.linalg.cholesky(factors.covariance), "tilt": factors.tilt}


def newton_fixed_point(
    inputs: Inputs, by_rows: bool = True, changed: Callable[[Inputs], Mapping[str, Array]] | None = None
) -> dict[str, Array]:
    """Climb as the engine does, in the form asked for, and return `objective`'s parameters at rest."""
    arrays, static = split_inputs({**inputs, **(changed(inputs) if changed else {})})
    return dict(_climbed(arrays, static=static, by_rows=by_rows))


@Program
def _climbed(arrays: list[Array], *, static: Static, by_rows: bool) -> dict[str, Array]:
    inputs = join_inputs(arrays, static)
    observed = jnp.asarray(inputs["observed"]).T
    kappa = jnp.where(observed, jnp.asarray(inputs["Y"]).T - 0.5, 0.0)
    form = form_of(inputs["X"], inputs["precision"], by_rows=by_rows)
    start = first_log_square(inputs["X"], inputs["precision"])
    ends = jax.lax.map(
        lambda one: ascend(form, start, one[0], one[1], 1e-13, max_iter=300), (kappa, observed)
    )
    law = mean_field.update_weights(ends.tilt.T, inputs)
    root = jnp.linalg.cholesky(law.covariance_matrix)
    return {"mean": law.mean, "root": root, "tilt": ends.tilt.T}


def _by_rows(change: Callable[[Inputs], Mapping[str, Array]]) -> Callable[[Inputs], dict[str, Array]]:
    """Return Newton's fixed point on inputs made wrong."""
    return lambda inputs: newton_fixed_point(inputs, changed=change)


def _with(change: Callable[[Inputs], Mapping[str, Array]]) -> Callable[[Inputs], dict[str, Array]]:
    """Return a fixed point of the right updates on inputs made wrong."""
    return lambda inputs: fixed_point({**inputs, **change(inputs)})


def _intercept_wrong(inputs: Inputs) -> dict[str, Array]:
    precision = np.array(inputs["precision"])
    precision[-1] *= 3.0
    return {"precision": precision}


def _two_trials(factors: mean_field.Factors, inputs: Inputs) -> mean_field.Factors:
    law = weights_given_omega({"omega": 2.0 * mean(1.0, factors.tilt)}, inputs)
    m, S = law.mean, law.covariance_matrix
    return mean_field.Factors(m, S, mean_field.update_tilt(m, S, inputs))


def _no_spread(factors: mean_field.Factors, inputs: Inputs) -> mean_field.Factors:
    law = mean_field.update_weights(factors.tilt, inputs)
    m, S = law.mean, law.covariance_matrix
    return mean_field.Factors(m, S, mean_field.update_tilt(m, jnp.zeros_like(S), inputs))


CASES = (
    StationarityCase(
        name="Jaakkola-Jordan bound of the mean-field factors",
        engine="mean_field",
        fixed_point=fixed_point,
        objective=objective,
        mutants=(
            ("kappa = y, the 1/2 dropped", _with(lambda inputs: {"Y": np.asarray(inputs["Y"]) + 0.5})),
            (
                "prior precision counted twice",
                _with(lambda inputs: {"precision": 2.0 * np.asarray(inputs["precision"])}),
            ),
            ("intercept's precision wrong", _with(_intercept_wrong)),
            (
                "missing cells read as zeros",
                _with(lambda inputs: {"observed": np.ones_like(inputs["observed"])}),
            ),
            ("E omega with b = 2", lambda inputs: fixed_point(inputs, sweep=_two_trials)),
            ("tilt without the covariance", lambda inputs: fixed_point(inputs, sweep=_no_spread)),
        ),
    ),
    *(
        StationarityCase(
            name=f"Jaakkola-Jordan bound where Newton's method rests, by {name}",
            engine="mean_field",
            fixed_point=partial(newton_fixed_point, by_rows=name == "rows"),
            objective=objective,
            mutants=(
                ("kappa = y, the 1/2 dropped", _by_rows(lambda inputs: {"Y": np.asarray(inputs["Y"]) + 0.5})),
                ("intercept's precision wrong", _by_rows(_intercept_wrong)),
                (
                    "missing cells read as zeros",
                    _by_rows(lambda inputs: {"observed": np.ones_like(inputs["observed"])}),
                ),
            ),
        )
        for name in ("rows", "features")
    ),
    *streaming_stationarity.CASES,
)
