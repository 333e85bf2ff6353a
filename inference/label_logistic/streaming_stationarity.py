"""Where streaming mean field must come to rest at its second batch, and wrong ways to get there."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import numpyro.handlers as handlers

from labelzoo.inference.checks.programs import Program, Static, join_inputs, split_inputs
from labelzoo.inference.checks.stationarity import StationarityCase
from labelzoo.inference.distributions import GaussianNatural
from labelzoo.inference.label_logistic import mean_field, streaming
from labelzoo.inference.label_logistic.mean_field import Factors
from labelzoo.models.label_logistic import polya_gamma

Array = Any
Inputs = Mapping[str, Any]
Carry = Callable[[GaussianNatural, Inputs], streaming.Prior]
Change = Callable[[Inputs], dict[str, Array]]


def halves(inputs: Inputs) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first and the second half of the rows."""
    middle = inputs["X"].shape[0] // 2
    parts = (slice(None, middle), slice(middle, None))
    first, second = ({name: inputs[name][part] for name in ("X", "Y", "observed")} for part in parts)
    return {**inputs, **first}, {**inputs, **second}


def rest(
    step: Callable[[Factors], Factors], start: Factors, tolerance: float = 1e-12, max_iter: int = 20_000
) -> Factors:
    """Repeat `step` until no factor moves by more than `tolerance`."""

    def moving(carry: tuple[Array, Factors, Array]) -> Array:
        return (carry[0] < max_iter) & (carry[2] > tolerance)

    def once(carry: tuple[Array, Factors, Array]) -> tuple[Array, Factors, Array]:
        count, old, _ = carry
        new = step(old)
        change = [jnp.abs(a - b).max() for a, b in zip(new, old, strict=True)]
        return count + 1, new, jnp.stack(change).max()

    return jax.lax.while_loop(moving, once, (0, start, jnp.inf))[1]


def objective(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return the bound of the second half: its likelihood from the program, its prior from mean field.

    The prior is the normal law where mean field, checked by its own case, rests on the first half. Given
    omega the log density is quadratic in w and linear in omega beside PG(omega | 1, 0): its expectation is
    its value at the means plus half the trace of its Hessian times the covariance, less
    KL(q(omega) || PG(1, 0)) and plus the entropy of q(w).

    Parameters
    ----------
    params : mapping
        ``mean`` (labels, feature); ``root`` (labels, feature, feature), any A with covariance A A'; ``tilt``
        (second half, labels).
    inputs : mapping
        What ``spec.prepare`` returned for both halves.
    """
    first, second = halves(inputs)
    before = rest(lambda factors: mean_field.sweep(factors, first), mean_field.start(first))
    prior = dist.MultivariateNormal(before.mean, covariance_matrix=before.covariance)
    c = jnp.where(params["tilt"] == 0.0, 1e-6, params["tilt"])
    omega = jnp.tanh(c / 2) / (2 * c)
    relative = jnp.logaddexp(c / 2, -c / 2) - jnp.log(2.0) - c * jnp.tanh(c / 2) / 4

    def log_density(weights: Array) -> Array:
        seeded = handlers.seed(polya_gamma, jax.random.key(0))
        sites = handlers.trace(handlers.substitute(seeded, {"weights": weights, "omega": omega})).get_trace(
            **second
        )
        return sites["Y"]["fn"].log_prob(sites["Y"]["value"]).sum() + prior.log_prob(weights).sum()

    root = params["root"]
    hessian = jnp.einsum("ldle->lde", jax.hessian(log_density)(params["mean"]))
    curvature = 0.5 * jnp.einsum("lde,ldk,lek->", hessian, root, root)
    entropy = jnp.linalg.slogdet(root)[1].sum() + 0.5 * params["mean"].size * (1 + jnp.log(2 * jnp.pi))
    return log_density(params["mean"]) + curvature + entropy - relative.sum()


def carry(law: GaussianNatural, inputs: Inputs) -> streaming.Prior:
    """Return the prior of the next batch: the law, as it is."""
    return streaming.Prior(law.potential, law.precision)


def unchanged(inputs: Inputs) -> dict[str, Array]:
    """Return no change to the inputs."""
    return {}


def fixed_point(
    inputs: Inputs, carried: Carry = carry, changed: Change = unchanged, sweep: Any = streaming.sweep
) -> dict[str, Array]:
    """Take the first half, carry its law on, and return `objective`'s parameters at rest on the second."""
    arrays, static = split_inputs(inputs)
    return dict(_two_batches(arrays, static=static, carried=carried, changed=changed, sweep=sweep))


@Program
def _two_batches(
    arrays: list[Array], *, static: Static, carried: Carry, changed: Change, sweep: Any
) -> dict[str, Array]:
    inputs = join_inputs(arrays, static)
    first, second = halves({**inputs, **changed(inputs)})
    prior = streaming.first_prior(first)
    at = rest(lambda factors: streaming.sweep(factors, first, prior), streaming.start(first, prior))
    prior = carried(streaming.update_weights(at.tilt, first, prior), second)
    at = rest(lambda factors: sweep(factors, second, prior), streaming.start(second, prior))
    return {"mean": at.mean, "root": jnp.linalg.cholesky(at.covariance), "tilt": at.tilt}


def _forgotten(law: GaussianNatural, inputs: Inputs) -> streaming.Prior:
    return streaming.first_prior(inputs)


def _twice(law: GaussianNatural, inputs: Inputs) -> streaming.Prior:
    return streaming.Prior(2.0 * law.potential, 2.0 * law.precision)


def _mean_as_potential(law: GaussianNatural, inputs: Inputs) -> streaming.Prior:
    return streaming.Prior(law.mean, law.precision)


def _diagonal(law: GaussianNatural, inputs: Inputs) -> streaming.Prior:
    kept = law.precision * jnp.eye(law.precision.shape[-1])
    return streaming.Prior(jnp.einsum("lde,le->ld", kept, law.mean), kept)


def _no_half(inputs: Inputs) -> dict[str, Array]:
    return {"Y": inputs["Y"] + 0.5}


def _all_observed(inputs: Inputs) -> dict[str, Array]:
    return {"observed": jnp.ones_like(inputs["observed"])}


def _two_trials(factors: Factors, inputs: Inputs, prior: streaming.Prior) -> Factors:
    half = {**inputs, "X": inputs["X"] * 2.0**0.5, "Y": (inputs["Y"] - 0.5) / 2.0**0.5 + 0.5}
    law = streaming.update_weights(factors.tilt, half, prior)
    return Factors(law.mean, law.covariance_matrix, _tilt(law.mean, law.covariance_matrix, inputs))


def _no_spread(factors: Factors, inputs: Inputs, prior: streaming.Prior) -> Factors:
    law = streaming.update_weights(factors.tilt, inputs, prior)
    m, S = law.mean, law.covariance_matrix
    return Factors(m, S, _tilt(m, jnp.zeros_like(S), inputs))


_tilt = mean_field.update_tilt


def _with(**wrong: Any) -> Callable[[Inputs], dict[str, Array]]:
    return lambda inputs: fixed_point(inputs, **wrong)


CASES = (
    StationarityCase(
        name="Jaakkola-Jordan bound of the second batch, the first one's law its prior",
        engine="streaming",
        fixed_point=fixed_point,
        objective=objective,
        mutants=(
            ("first batch forgotten", _with(carried=_forgotten)),
            ("first batch counted twice", _with(carried=_twice)),
            ("mean carried as if it were the potential", _with(carried=_mean_as_potential)),
            ("only the precision's diagonal carried", _with(carried=_diagonal)),
            ("kappa = y, the 1/2 dropped", _with(changed=_no_half)),
            ("missing cells read as zeros", _with(changed=_all_observed)),
            ("E omega with b = 2", _with(sweep=_two_trials)),
            ("tilt without the covariance", _with(sweep=_no_spread)),
        ),
    ),
)
