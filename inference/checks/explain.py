r"""What slip a failed identity looks like.

With d(a, b) the difference between the claimed and the joint log-density ratio of two block values, four
families of hypotheses are tried, and one counts as found only if it leaves nothing but rounding:

1. *parameter*: the claim is right once one of its parameters is altered (rate -> 1 / rate);
2. *term*: d is a multiple of one site's log density (-1: left out, +1: counted twice), of the whole joint, or
   of a power of the block's own value (an off-by-one count, or a missing Jacobian); or of two of these;
3. *reading*: the claim is right once one of the sites or inputs that it reads is altered (a wrong index);
4. *program*: the claim is right for another program, in which an input, a site or the labels are altered (a
   prior precision counted twice, missing cells read as zeros).

Where none fits exactly the answer is "unknown"; what the parameters should have been is then read off the
joint (`labelzoo.inference.checks.recover`) or, where that cannot be done, the term that explains most of d is
named. The same mismatch can have several names; all that fit are true descriptions, simplest first.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpyro.distributions import constraints

from labelzoo.inference.checks.alterations import (
    ALTERATIONS,
    array_leaves,
    rolled,
    transposed,
    with_leaf,
)
from labelzoo.inference.checks.coordinates import Described
from labelzoo.inference.checks.identity import (
    THRESHOLD,
    Bench,
    Claimed,
    joint_terms,
    log_claim,
    varying,
    worst_of,
)
from labelzoo.inference.checks.parameters import no_changes
from labelzoo.inference.checks.programs import base_support
from labelzoo.inference.checks.recover import recovered_text
from labelzoo.inference.checks.states import latent_supports

WHOLE = "the whole log joint"
COEFFICIENTS = (-1.0, 1.0, -0.5, 0.5, -2.0, 2.0)
"""Multiples that a pair of terms may have; a single term may have any."""
WORTH_SAYING = 0.5
"""Share of the mismatch that the nearest term may leave and still be named."""
READ_OFF = 0.0
"""Residual of an unknown slip whose right parameters were read off the joint."""
NOTHING = 1e-6
"""A smaller multiple of a term is rounding and no slip."""
MOST_ALSO = 2
"""Further names of the same mismatch that are shown."""


class Slip(NamedTuple):
    """One explanation of a mismatch.

    Attributes
    ----------
    family : str
        ``parameter``, ``term``, ``reading``, ``program`` or ``unknown``.
    text : str
        What is wrong, in words.
    residual : float
        What is left of the mismatch, relative to the size of the log densities; for ``unknown`` the share
        of its sum of squares that the nearest term leaves.
    """

    family: str
    text: str
    residual: float
    is_odd: bool = False
    """Whether it takes two terms or an unusual factor, so that a simpler name is likelier."""


class Mismatch(NamedTuple):
    """A wrong claim at a bench and what the hypotheses need to know of it."""

    given: Any
    sites: tuple[str, ...]
    bench: Bench
    claimed: Claimed
    described: Described
    others: Mapping[str, Mapping[str, Any]] = {}
    """Inputs of the same model with the labels altered, by what was done to them."""


def explain(mismatch: Mismatch) -> list[Slip]:
    """Return the slips that fit exactly, simplest first, or one slip of family ``unknown``."""
    found: list[Slip] = []
    for family in (parameter_slips, term_slips, reading_slips, program_slips):
        found += family(mismatch)
    found.sort(key=lambda slip: slip.is_odd)
    if found and not found[0].is_odd:
        return found
    # Two slips at once, or a factor out of the ordinary: what the parameters should be tells more.
    unknown = unknown_slip(mismatch)
    return [unknown, *found] if unknown.residual == READ_OFF or not found else found


def sentence(slips: Sequence[Slip]) -> str:
    """Say what `explain` found."""
    first = slips[0]
    also = "".join(f"; or: {slip.text}" for slip in slips[1 : 1 + MOST_ALSO])
    if first.family == "unknown":
        return f"unknown slip; {first.text}{also}"
    return f"{first.text} (leaves a residual of {first.residual:.1e}){also}"


def parameter_slips(mismatch: Mismatch) -> Iterator[Slip]:
    """Yield the alterations of one parameter that mend the claim."""
    parameters = mismatch.described.parameters
    for way in ALTERATIONS:
        for row, parameter in enumerate(parameters):
            changes = no_changes(len(parameters))
            changes[row] = way.factor, way.power, way.term
            residual = _claim_residual(mismatch, changes=changes)
            if residual <= THRESHOLD:
                yield Slip("parameter", f"{parameter.name} of {parameter.site} is {way.too}", residual)


def reading_slips(mismatch: Mismatch) -> Iterator[Slip]:
    """Yield the alterations of one site or input, as the claim reads it, that mend the claim."""
    bench = mismatch.bench
    for site, value in bench.states.items():
        if site in mismatch.sites:
            continue
        for words, changed in _altered(value, lead=1):
            residual = _claim_residual(mismatch, states={**bench.states, site: changed})
            if residual <= THRESHOLD:
                yield Slip("reading", f"{site} as the claim reads it is {words}", residual)
    for path, value in array_leaves(bench.inputs):
        for words, changed in _altered(value, lead=0):
            inputs = with_leaf(bench.inputs, path, changed)
            residual = _claim_residual(mismatch, inputs=inputs)
            if residual <= THRESHOLD:
                yield Slip("reading", f"input {path} as the claim reads it is {words}", residual)


def program_slips(mismatch: Mismatch) -> Iterator[Slip]:
    """Yield the alterations of the program that the claim is right for."""
    bench = mismatch.bench
    for words, inputs in mismatch.others.items():
        residual = _program_residual(mismatch, inputs=inputs)
        if residual <= THRESHOLD:
            yield Slip("program", f"the claim is right for a program in which {words}", residual)
    for path, value in array_leaves(bench.view_inputs):
        for words, changed in _alternatives(value, lead=0):
            inputs = with_leaf(bench.view_inputs, path, changed)
            residual = _program_residual(mismatch, inputs=inputs)
            if residual <= THRESHOLD:
                yield Slip("program", f"the claim is right for a program whose {path} is {words}", residual)
    for site, value in bench.states.items():
        if site not in mismatch.sites:
            for words, changed in _alternatives(value, lead=1):
                residual = _program_residual(mismatch, states={**bench.states, site: changed})
                if residual <= THRESHOLD:
                    text = f"the claim is right for a state whose {site} is {words}"
                    yield Slip("program", text, residual)


def _altered(value: Any, lead: int) -> Iterator[tuple[str, Any]]:
    """Yield (what the value is if this mends it, the value mended); the first `lead` axes count states."""
    if np.issubdtype(value.dtype, np.inexact):
        for way in ALTERATIONS:
            yield way.too, way(value)
    elif np.issubdtype(value.dtype, np.integer):
        yield "one too large (off by one)", value - 1
        yield "one too small (off by one)", value + 1
    yield from (("at a wrong index, " + words, moved) for words, moved in _moved(value, lead))


def _alternatives(value: Any, lead: int) -> Iterator[tuple[str, Any]]:
    """Yield (what is done, the value after it)."""
    if value.dtype == bool:
        yield "true everywhere: the mask is ignored", np.ones_like(value)
        yield "inverted", ~value
    elif np.issubdtype(value.dtype, np.inexact):
        yield from ((way.name, way(value)) for way in ALTERATIONS)
        yield "left out (ones in its place)", np.ones_like(value)
        yield "left out (zeros in its place)", np.zeros_like(value)
    else:
        yield "plus one", value + 1
        yield "minus one", value - 1
        yield "left out (zeros in its place)", np.zeros_like(value)
    yield from (("read at a wrong index, " + words, moved) for words, moved in _moved(value, lead))


def _moved(value: Any, lead: int) -> Iterator[tuple[str, Any]]:
    for words, moved in rolled(value):
        axis = int(words.split()[1])
        if axis >= lead:
            yield f"one place off along axis {axis - lead}", moved
            if value.shape[axis] > 2:
                yield f"one place off along axis {axis - lead}", np.roll(value, -1, axis)
    turned = transposed(value) if value.ndim >= lead + 2 else None
    if turned is not None:
        yield "transposed", turned


def _claim_residual(mismatch: Mismatch, **altered: Any) -> float:
    """Return the worst residual of the claim read with alterations, infinite where it cannot be read."""
    count = len(mismatch.described.parameters)
    try:
        claimed = log_claim(mismatch.bench, mismatch.given, mismatch.sites, count, **altered)
    except Exception:
        return np.inf
    return _honest(mismatch, mismatch.bench, claimed)


def _program_residual(mismatch: Mismatch, states: Any = None, inputs: Any = None) -> float:
    """Return the worst residual of the claim against an altered program, infinite where that does not run."""
    bench = mismatch.bench
    try:
        terms, valid = joint_terms(
            bench.view,
            bench.view_inputs if inputs is None else inputs,
            bench.states if states is None else states,
            bench.blocks,
        )
    except Exception:
        return np.inf
    table = varying(np.stack(list(terms.values())))
    with np.errstate(invalid="ignore"):
        log_p = np.where(valid, table.sum(0), -np.inf)
    other = bench._replace(log_p=log_p, size=np.abs(table).sum(0), terms=terms)
    return _honest(mismatch, other, mismatch.claimed)


def _honest(mismatch: Mismatch, bench: Bench, claimed: Claimed) -> float:
    """Return the worst residual; infinite where an alteration left less than nearly all pairs to compare."""
    own = mismatch.bench
    most = worst_of(own, Claimed(own.log_p, own.size))[2]
    with np.errstate(invalid="ignore"):
        worst, _, compared = worst_of(bench, claimed)
    return worst if most and compared >= 0.9 * most else np.inf


class Feature(NamedTuple):
    """A function of the block that may be missing from the claim, (state, value), and its words."""

    name: str
    value: np.ndarray
    is_power: bool = False

    def words(self, coefficient: float) -> str:
        """Say what a mismatch of `coefficient` times this feature means."""
        if self.is_power:
            return (
                f"the power of {self.name} is too {'large' if coefficient > 0 else 'small'} by "
                f"{abs(coefficient):.3g} (an off-by-one count, or a Jacobian)"
            )
        known = {-1.0: "is left out", 1.0: "is counted twice", -0.5: "is counted by half"}
        for value, text in known.items():
            if abs(coefficient - value) < 1e-6:
                return f"{self.name} {text}"
        return f"{self.name} is counted {1 + coefficient:.4g} times"


def features_of(bench: Bench, sites: tuple[str, ...]) -> list[Feature]:
    """Return the log densities of the sites that change with the block, their total, and the block's logs."""
    out = [
        Feature(f"the log density of {site}", value)
        for site, value in bench.terms.items()
        if np.ptp(np.where(np.isfinite(value), value, 0.0), axis=1).max(initial=0.0) > 0
    ]
    if len(out) > 1:
        out.append(Feature(WHOLE, np.sum([feature.value for feature in out], axis=0)))
    supports = latent_supports(bench.view, bench.view_inputs)
    for site in sites:
        if site in supports and not supports[site].is_discrete:
            out += _powers(site, bench.blocks[site], supports[site].constraint)
    return out


def _powers(site: str, value: np.ndarray, constraint: Any) -> list[Feature]:
    """Return the sums of log x (and of log(1 - x) on the unit interval) over the entries of a site."""
    base, _ = base_support(constraint)
    flat = value.reshape(*value.shape[:2], -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        if base in (constraints.positive, constraints.nonnegative, constraints.simplex):
            return [Feature(site, np.log(flat).sum(-1), True)]
        if base is constraints.unit_interval:
            powers = (Feature(site, np.log(flat), True), Feature(f"1 - {site}", np.log1p(-flat), True))
            return [power._replace(value=power.value.sum(-1)) for power in powers]
    return []


def term_slips(mismatch: Mismatch) -> Iterator[Slip]:
    """Yield one term, or where none does a pair of them, whose multiple is the mismatch."""
    gap, scale, features = _centred(mismatch)
    if not gap.size:
        return
    single = [_fitted(gap, scale, [feature]) for feature in features]
    exact = [slip for slip in single if slip.residual <= THRESHOLD and slip.text]
    yield from exact
    if not exact:
        parts = [feature for feature in features if feature.name != WHOLE]
        for pair in combinations(parts, 2):
            slip = _fitted(gap, scale, list(pair), nice=True)
            if slip.residual <= THRESHOLD:
                yield slip


def unknown_slip(mismatch: Mismatch) -> Slip:
    """Return where the claim's parameters differ from the right ones, or else the nearest term."""
    text = recovered_text(mismatch.given, mismatch.sites, mismatch.bench, mismatch.described)
    return Slip("unknown", text, READ_OFF) if text else nearest_term(mismatch)


def nearest_term(mismatch: Mismatch) -> Slip:
    """Return the single term that explains most of the mismatch, as a slip of family ``unknown``."""
    gap, scale, features = _centred(mismatch)
    if not gap.size or not features:
        return Slip("unknown", "nothing in the dictionary can be compared", 1.0)
    # Relative to the size of the log densities, or the few largest decide alone.
    gap, features = gap / scale, [feature._replace(value=feature.value / scale) for feature in features]
    total = float((gap**2).sum())
    fits = [float(_least_squares(gap, [feature])[0]) for feature in features]
    left = [float(((gap - c * f.value) ** 2).sum()) / total for c, f in zip(fits, features, strict=True)]
    best = int(np.argmin(left))
    if left[best] > WORTH_SAYING:
        return Slip("unknown", "no single term explains half of the mismatch", left[best])
    words = features[best].words(fits[best])
    text = f"nearest: {words}, which leaves {100 * left[best]:.2g} % of the mismatch"
    return Slip("unknown", text, left[best])


def _centred(mismatch: Mismatch) -> tuple[np.ndarray, np.ndarray, list[Feature]]:
    """Return mismatch and features as differences from each state's first usable value, flattened."""
    bench, claimed = mismatch.bench, mismatch.claimed
    features = features_of(bench, mismatch.sites)
    usable = np.isfinite(bench.log_p) & np.isfinite(claimed.log_q)
    for feature in features:
        usable &= np.isfinite(feature.value)
    first = np.argmax(usable, axis=1)[:, None]

    def difference(table: np.ndarray) -> np.ndarray:
        kept = np.where(usable, table, 0.0)
        return (kept - np.take_along_axis(kept, first, axis=1))[usable]

    size = np.where(usable, bench.size + claimed.size, 0.0)
    scale = np.maximum(np.maximum(1.0, size), np.take_along_axis(size, first, axis=1))[usable]
    log_p, log_q = (np.where(usable, table, 0.0) for table in (bench.log_p, claimed.log_q))
    moved = [feature._replace(value=difference(feature.value)) for feature in features]
    return difference(log_q - log_p), scale, moved


def _fitted(gap: np.ndarray, scale: np.ndarray, features: list[Feature], *, nice: bool = False) -> Slip:
    coefficients = _least_squares(gap, features)
    if nice:
        allowed = np.asarray(COEFFICIENTS)
        rounded = allowed[np.abs(coefficients[:, None] - allowed).argmin(axis=1)]
        if np.abs(rounded - coefficients).max() > 1e-4:
            return Slip("term", "", np.inf)
        coefficients = rounded
    if np.abs(coefficients).min() < NOTHING:
        return Slip("term", "", np.inf)
    left = np.abs(gap - coefficients @ np.stack([feature.value for feature in features])) / scale
    pairs = zip(features, coefficients, strict=True)
    text = " and ".join(feature.words(float(coefficient)) for feature, coefficient in pairs)
    is_pair = len(features) > 1 and not all(feature.is_power for feature in features)
    is_odd = is_pair or any(
        not f.is_power and np.abs(c - np.asarray(COEFFICIENTS)).min() > 1e-6
        for f, c in zip(features, coefficients, strict=True)
    )
    return Slip("term", text, float(left.max()), is_odd)


def _least_squares(gap: np.ndarray, features: list[Feature]) -> np.ndarray:
    """Return the coefficients; each feature is scaled first, as log densities range over many decades."""
    table = np.stack([feature.value for feature in features], axis=1)
    size = np.maximum(np.abs(table).max(axis=0, initial=0.0), 1e-300)
    return np.asarray(np.linalg.lstsq(table / size, gap, rcond=None)[0] / size)
