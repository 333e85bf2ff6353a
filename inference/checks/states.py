"""Data and states to check at: spread out, extreme, and at the edge cases of labels.

A conditional that is wrong only when a label is positive or a count is zero passes at an easy state. So the
data hold rows of zeros, rows of ones, rows without labels, partly masked rows, a label that is never and one
that is always positive. The states are spread in unconstrained space by .3, 1 and 2.5 units, and a quarter of
them have a few coordinates moved by 10 (rates down to e^-10 and up to e^10); counts start from zero.
Identities hold at improbable states as well, so nothing is gained by drawing all of them from the prior, and
the samplers of most sites need not be compiled; on request a quarter of the states are prior draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
from numpyro.distributions import constraints

from labelzoo.data import LabelData
from labelzoo.inference.checks.coordinates import free_shape, spread_over
from labelzoo.inference.checks.draws import VALUES
from labelzoo.inference.checks.programs import (
    ClaimError,
    Program,
    State,
    abstract_trace,
    base_support,
    bijection_of,
    join_inputs,
    log_terms,
    split_inputs,
)
from labelzoo.models.spec import ModelSpec

ROUNDS = 6
"""How often more candidates are drawn for states of finite density."""


@dataclass(frozen=True)
class DataCase:
    """Inputs of a model and what is peculiar about their labels."""

    name: str
    inputs: Mapping[str, Any]
    data: LabelData | None = None
    settings: Mapping[str, Any] | None = None


def data_cases(spec: ModelSpec, seed: int) -> list[DataCase]:
    """Return inputs that cover the edge cases of labels, of the model's tiny size.

    Incomplete labels, complete ones, and complete ones under the card's `check_settings` if there are any.
    A `simulate` that returns inputs instead of LabelData is taken as it is.
    """
    data = simulated(spec, seed)
    sizes = {name: size for name, size in spec.tiny.items() if name in spec.settings}
    settings = spec.resolve(sizes)
    if not isinstance(data, LabelData):
        return [DataCase("simulated", data)]
    X = data.X if isinstance(data.X, np.ndarray) else data.X.toarray()
    Y = data.Y.toarray().astype(float)
    rng = np.random.default_rng([seed, 1])
    complete = LabelData.from_arrays(X, complete_labels(Y))
    incomplete = LabelData.from_arrays(X, incomplete_labels(Y, rng))
    cases = [
        DataCase("incomplete", spec.prepare(incomplete, settings), incomplete, settings),
        DataCase("complete", spec.prepare(complete, settings), complete, settings),
    ]
    if spec.check_settings:
        other = spec.resolve({**sizes, **spec.check_settings})
        inputs = spec.prepare(complete, other)
        cases.append(DataCase("complete, other settings", inputs, complete, other))
    return cases


def relabelled(spec: ModelSpec, case: DataCase) -> dict[str, Mapping[str, Any]]:
    """Return inputs of the same features with the labels altered, by what was done to them."""
    if case.data is None or case.settings is None:
        return {}
    X = case.data.X if isinstance(case.data.X, np.ndarray) else case.data.X.toarray()
    seen = case.data.observed_mask()
    Y = np.where(seen, case.data.Y.toarray().astype(float), np.nan)
    tables = {
        "missing cells are read as zeros": np.where(seen, Y, 0.0),
        "missing cells are read as ones": np.where(seen, Y, 1.0),
        "zeros and ones are exchanged": 1.0 - Y,
        "labels are those of the next row": np.roll(Y, -1, axis=0),
        "labels are those of the row before": np.roll(Y, 1, axis=0),
        "labels are read one column off": np.roll(Y, 1, axis=1),
    }
    if seen.all():
        tables = {words: table for words, table in tables.items() if not words.startswith("missing")}
    return {
        words: spec.prepare(LabelData.from_arrays(X, table), case.settings) for words, table in tables.items()
    }


def simulated(spec: ModelSpec, seed: int) -> Any:
    """Return tiny data from the model's own prior, or fair coin labels where it cannot simulate."""
    sizes = {"num_obs": 6, "num_features": 2, "num_labels": 4, **spec.tiny}
    sizes["num_obs"], sizes["num_labels"] = max(sizes["num_obs"], 6), max(sizes["num_labels"], 3)
    if spec.simulate is not None:
        return spec.simulate(jax.random.key(seed), sizes)[0]
    return coin_labels(sizes, seed)


def coin_labels(sizes: Mapping[str, int], seed: int) -> Any:
    """Return standard normal features and fair coin labels, for models that cannot simulate."""
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
    """Return `Y` with a row of NaN, rows all one and all zero, masked cells, and labels of one value only.

    Label 0 is never positive and label 1 always, where they are observed.
    """
    table = Y.copy()
    table[rng.random(table.shape) < 0.25] = np.nan
    table[:, 0], table[:, 1] = 0.0, 1.0
    table[0] = np.nan
    table[1], table[1, 0] = 1.0, np.nan
    table[2], table[2, 1] = 0.0, np.nan
    table[3, 2:], table[3, -1] = np.nan, 1.0
    return table


def states_of(view: Any, inputs: Mapping[str, Any], count: int, seed: int, *, prior: bool = False) -> State:
    """Return `count` states of `view` with finite density, leaves (state, ...); deterministic sites as well.

    Parameters
    ----------
    view : callable
    inputs : mapping
    count, seed : int
    prior : bool
        Make up to a quarter of the states prior draws.

    Raises
    ------
    ClaimError
        If too few candidates have finite density.
    """
    arrays, static = split_inputs(inputs)
    supports = latent_supports(view, inputs)
    rng = np.random.default_rng([seed, 2])
    # As many candidates as there are block values later: one program evaluates both.
    tried = VALUES * count
    plain = (np.arange(tried) % 4 == 0) & prior
    kept: list[State] = []
    for _ in range(ROUNDS):
        keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), tried)
        values = _spread_out(supports, tried, rng)
        batch = drawn_states(arrays, values, keys, static=static, view=view)
        if prior:
            drawn = drawn_states(arrays, {}, keys, static=static, view=view)
            batch = {site: _pick(plain, drawn[site], value) for site, value in batch.items()}
        terms, valid = log_terms(arrays, batch, static=static, view=view)
        usable = np.isfinite(np.stack([np.asarray(term) for term in terms.values()])).all(0) & np.asarray(
            valid
        )
        kept.append({site: np.asarray(leaf)[usable] for site, leaf in batch.items()})
        joined = {site: np.concatenate([part[site] for part in kept]) for site in batch}
        found = len(next(iter(joined.values())))
        if found >= count:
            return {site: leaf[:count] for site, leaf in joined.items()}
    name = getattr(view, "__name__", str(view))
    raise ClaimError(
        f"view {name!r}: {found} of {tried * ROUNDS} drawn states have finite density, {count} "
        "needed; write a hard constraint as the support of a site (a truncated distribution), not as a "
        "factor of minus infinity"
    )


def _pick(first: np.ndarray, one: Any, other: Any) -> np.ndarray:
    """Return rows of `one` where `first` is True and of `other` elsewhere."""
    return np.where(first.reshape(-1, *[1] * (np.ndim(other) - 1)), np.asarray(one), np.asarray(other))


class Support(NamedTuple):
    """Where a latent site lives: its shape and dtype, its constraint, and whether it is discrete."""

    like: Any
    constraint: Any
    is_discrete: bool


def latent_supports(view: Any, inputs: Mapping[str, Any]) -> dict[str, Support]:
    """Return the support of every site that can be placed without drawing it from the program.

    These are counts without an upper end and continuous sites, but for supports that depend on other sites.
    Traces the program, computes nothing.
    """

    def read(trace: dict[str, Any]) -> dict[str, Support]:
        sites = {name: s for name, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        found = {name: _support(site) for name, site in sites.items()}
        return {name: support for name, support in found.items() if _can_be_placed(support)}

    return abstract_trace(view, inputs, read)


def _support(site: Mapping[str, Any]) -> Support:
    like = jax.ShapeDtypeStruct(np.shape(site["value"]), jax.numpy.result_type(site["value"]))
    return Support(like, site["fn"].support, bool(site["fn"].is_discrete))


def latent_sites(view: Any, inputs: Mapping[str, Any]) -> set[str]:
    """Return the names of the latent and deterministic sites of a view; computes nothing."""
    wanted = ("sample", "deterministic")

    def read(trace: dict[str, Any]) -> set[str]:
        return {n for n, s in trace.items() if s["type"] in wanted and not s.get("is_observed", False)}

    return abstract_trace(view, inputs, read)


def _can_be_placed(support: Support) -> bool:
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(support.constraint)):
        return False
    if support.is_discrete:
        return isinstance(base_support(support.constraint)[0], type(constraints.nonnegative_integer))
    return bijection_of(support.constraint) is not None


@Program
def drawn_states(arrays: Any, values: State, keys: Any, *, static: Any, view: Any) -> State:
    """Draw the sites of `view` that are not in `values`, given those that are; leaves (state, ...)."""

    def one(values: State, key: Any) -> State:
        substituted = numpyro.handlers.substitute(view, data=values)
        seeded = numpyro.handlers.seed(substituted, key)
        trace = numpyro.handlers.trace(seeded).get_trace(**join_inputs(arrays, static))
        wanted = ("sample", "deterministic")
        return {
            name: site["value"]
            for name, site in trace.items()
            if site["type"] in wanted and not site.get("is_observed", False)
        }

    return jax.vmap(one)(values, keys)


def _spread_out(supports: Mapping[str, Support], count: int, rng: np.random.Generator) -> State:
    """Return values of the sites in `supports`, leaves (state, ...); the program draws the others."""
    out = {}
    for name, (like, constraint, is_discrete) in supports.items():
        if is_discrete:
            zero = np.zeros((count, *like.shape), like.dtype)
            # Not at every state: a count whose rate is zero must stay zero.
            out[name] = _pick(rng.random(count) < 0.6, _raised_counts(zero, rng), zero)
        else:
            out[name] = _spread_value(like, constraint, count, rng)
    return out


def _raised_counts(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add small counts, at least one along the last axis: a positive label has at least one arrival."""
    raised = value + rng.poisson(0.7, value.shape).astype(value.dtype)
    if value.ndim > 1 and value.shape[-1]:
        empty = raised.sum(-1, keepdims=True) == 0
        place = rng.integers(value.shape[-1], size=empty.shape)
        raised = raised + (empty & (np.arange(value.shape[-1]) == place)).astype(value.dtype)
    return raised


def _spread_value(like: Any, constraint: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return state i with a scale that goes with i modulo 4, a few coordinates of every fourth far out."""
    shape = (count, *free_shape(constraint, like.shape))
    style = (np.arange(count) % 4).reshape(-1, *[1] * (len(shape) - 1))
    free = np.array([0.3, 1.0, 2.5, 1.0])[style] * rng.standard_normal(shape)
    far = rng.random(shape) < 0.15
    if far[0].size:
        far.reshape(count, -1)[np.arange(count), rng.integers(far[0].size, size=count)] = True
    far &= style == 3
    return spread_over(constraint, free + far * rng.choice([-10.0, 10.0], shape)).astype(like.dtype)
