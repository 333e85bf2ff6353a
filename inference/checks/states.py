"""Data and states to check at: prior draws, perturbed ones, extremes, and the edge cases of labels.

A conditional that is wrong only when a label is positive or a count is zero passes at an easy state. So the
data hold rows of zeros, rows of ones, rows without labels, partly masked rows, a label that is never and one
that is always positive; the states hold prior draws, draws moved by .5 and 2 units in unconstrained space,
and draws with a few coordinates moved by 10 (rates down to e^-10 and up to e^10).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import biject_to, constraints

from labelzoo.data import LabelData
from labelzoo.inference.checks.programs import ClaimError, State, log_joint, split_inputs
from labelzoo.models.spec import ModelSpec

ROUNDS = 6
"""How often more candidates are drawn for states of finite density."""


@dataclass(frozen=True)
class DataCase:
    """Inputs of a model and what is peculiar about their labels."""

    name: str
    inputs: Mapping[str, Any]


def data_cases(spec: ModelSpec, seed: int) -> list[DataCase]:
    """Return inputs that cover the edge cases of labels, of the model's tiny size.

    A `simulate` that returns inputs instead of LabelData is taken as it is.
    """
    data = simulated(spec, seed)
    settings = spec.resolve({name: size for name, size in spec.tiny.items() if name in spec.settings})
    if not isinstance(data, LabelData):
        return [DataCase("simulated", data)]
    X = data.X if isinstance(data.X, np.ndarray) else data.X.toarray()
    Y = data.Y.toarray().astype(float)
    rng = np.random.default_rng([seed, 1])
    tables = {"complete": complete_labels(Y), "incomplete": incomplete_labels(Y, rng)}
    cases = []
    for name, table in tables.items():
        cases.append(DataCase(name, spec.prepare(LabelData.from_arrays(X, table), settings)))
    return cases


def simulated(spec: ModelSpec, seed: int) -> Any:
    """Return tiny data from the model's own prior, or fair coin labels where it cannot simulate."""
    sizes = {"num_obs": 6, "num_features": 2, "num_labels": 4, **spec.tiny}
    sizes["num_obs"], sizes["num_labels"] = max(sizes["num_obs"], 6), max(sizes["num_labels"], 3)
    if spec.simulate is not None:
        return spec.simulate(jax.random.key(seed), sizes)[0]
    rng = np.random.default_rng([seed, 0])
    X = rng.standard_normal((sizes["num_obs"], sizes["num_features"]))
    return LabelData.from_arrays(X, rng.integers(0, 2, (sizes["num_obs"], sizes["num_labels"])))


def complete_labels(Y: np.ndarray) -> np.ndarray:
    """Return `Y` with row 0 all zero, row 1 all one, and both values present in the rest."""
    table = Y.copy()
    table[0], table[1] = 0.0, 1.0
    table[2, 0], table[2, -1] = 1.0, 0.0
    return table


def incomplete_labels(Y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return `Y` with a row of NaN, masked rows, and labels that are never and always positive."""
    table = Y.copy()
    table[:, 0], table[:, 1] = 0.0, 1.0
    table[0] = np.nan
    table[1, 0], table[1, -1] = np.nan, 1.0
    table[2, 1:] = np.nan
    hidden = rng.random(table[3:].shape) < 0.25
    table[3:][hidden] = np.nan
    return table


def states_of(view: Any, inputs: Mapping[str, Any], count: int, seed: int) -> State:
    """Return `count` states of `view` with finite density, leaves (state, ...); deterministic sites as well.

    Raises
    ------
    ClaimError
        If too few candidates have finite density.
    """
    arrays, static = split_inputs(inputs)
    kept: list[State] = []
    candidates = _candidates(view, inputs, seed)
    for _ in range(ROUNDS):
        batch = [next(candidates) for _ in range(2 * count)]
        stacked = stack(batch)
        value, _ = log_joint(arrays, stacked, static=static, view=view)
        kept += [state for state, finite in zip(batch, np.isfinite(value), strict=True) if finite]
        if len(kept) >= count:
            return stack(kept[:count])
    name = getattr(view, "__name__", str(view))
    raise ClaimError(
        f"view {name!r}: {len(kept)} of {2 * count * ROUNDS} drawn states have finite density, {count} needed"
    )


def stack(states: list[State]) -> State:
    """Stack states of equal shapes along a new first axis."""
    return {name: np.stack([np.asarray(state[name]) for state in states]) for name in states[0]}


def _candidates(view: Any, inputs: Mapping[str, Any], seed: int) -> Iterator[State]:
    """Yield states without end: every fourth is a plain prior draw, the others are moved."""
    rng = np.random.default_rng([seed, 2])
    index = 0
    while True:
        prior = _trace(view, inputs, rng, {})
        moved = _moved(prior, rng, style=index % 4) if index % 4 or index >= 8 else {}
        yield _values(_trace(view, inputs, rng, moved) if moved else prior)
        index += 1


def _trace(view: Any, inputs: Mapping[str, Any], rng: np.random.Generator, values: State) -> Any:
    key = jax.random.key(int(rng.integers(2**31)))
    substituted = numpyro.handlers.substitute(view, data=values)
    return numpyro.handlers.trace(numpyro.handlers.seed(substituted, key)).get_trace(**inputs)


def latent_sites(trace: Any) -> dict[str, Any]:
    """Return the sites of a trace that are neither observed nor factors."""
    return {
        name: site for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]
    }


def _values(trace: Any) -> State:
    kept = {name: site["value"] for name, site in latent_sites(trace).items()}
    fixed = {name: site["value"] for name, site in trace.items() if site["type"] == "deterministic"}
    return {**kept, **fixed}


def _moved(trace: Any, rng: np.random.Generator, style: int) -> State:
    """Move continuous sites in unconstrained space and raise counts; the program redraws the others."""
    out = {}
    for name, site in latent_sites(trace).items():
        value = np.asarray(site["value"])
        if not site["fn"].is_discrete:
            out[name] = _moved_value(value, site["fn"].support, rng, style)
        elif _unbounded(site["fn"].support):
            out[name] = value + rng.poisson(1.0, value.shape).astype(value.dtype)
    return out


def _unbounded(support: Any) -> bool:
    while isinstance(support, type(constraints.independent(constraints.real, 1))):
        support = support.base_constraint
    return isinstance(support, type(constraints.nonnegative_integer))


def _moved_value(value: np.ndarray, support: Any, rng: np.random.Generator, style: int) -> np.ndarray:
    transform = biject_to(support)
    with np.errstate(all="ignore"):
        free = np.asarray(transform._inverse(jnp.asarray(value)))
    free = np.where(np.isfinite(free), free, rng.standard_normal(free.shape))
    scale = (0.5, 0.5, 2.0, 0.5)[style]
    free = np.clip(free, -30.0, 30.0) + scale * rng.standard_normal(free.shape)
    if style == 3:
        far = rng.random(free.shape) < 0.15
        free = free + far * rng.choice([-10.0, 10.0], free.shape)
    return np.asarray(transform(jnp.asarray(free)))
