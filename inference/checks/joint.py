"""Independent draws of (sites, data) from the joint prior, stacked so that one program runs on all of them.

The arrays of a model that lists positives have a shape that depends on the labels. Only data sets of one
shape are kept. That costs no exactness: a sampler leaves the posterior of each data set invariant, so given
any set of data sets the pair (sites, data) keeps its law, and ranks stay uniform. Nor do missing cells, whose
pattern is fixed before any label is drawn.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import Unit

from labelzoo.data import LabelData
from labelzoo.inference.checks.programs import (
    TRACING,
    State,
    Static,
    abstract_trace,
    join_inputs,
    split_inputs,
)
from labelzoo.models.spec import ModelSpec

Array = Any
Say = Callable[[str], None]

PILOT = 400
"""Data sets drawn to choose the shape that is kept."""
MOST_DRAWS = 40
"""Most data sets drawn for each one kept, beyond which fewer are returned."""
BLOCK = 4096
"""Joint draws made together."""
NEARLY = 0.4
"""Among shapes at least so frequent, relative to the most frequent, the one with most positives is kept."""


class NoJointPriorError(ValueError):
    """A model without joint draws of sites and labels, with the reason."""


class Replicates(NamedTuple):
    """Joint draws of sites and data, one shape.

    Attributes
    ----------
    arrays : list of ndarray
        Arrays of the inputs, leaves (replicate, ...).
    static : Static
        The rest of the inputs.
    sites : dict of str to ndarray
        Leaves (replicate, ...).
    share : float
        Share of the simulated data sets that had this shape.
    """

    arrays: list[Array]
    static: Static
    sites: State
    share: float

    @property
    def size(self) -> int:
        """Number of replicates."""
        return len(next(iter(self.sites.values())))

    def inputs(self, index: int) -> dict[str, Any]:
        """Return the inputs of one replicate."""
        return join_inputs([jnp.asarray(leaf[index]) for leaf in self.arrays], self.static)

    def part(self, start: int, stop: int) -> "Replicates":
        """Return replicates `start` to `stop`."""
        sites = {name: value[start:stop] for name, value in self.sites.items()}
        return self._replace(arrays=[leaf[start:stop] for leaf in self.arrays], sites=sites)


def joint_settings(spec: ModelSpec) -> dict[str, Any]:
    """Return the settings that joint tests run under: the tiny sizes, and the card's `check_settings`."""
    return {**{n: v for n, v in spec.tiny.items() if n in spec.settings}, **spec.check_settings}


def missing_cells(num_rows: int, num_labels: int, share: Any) -> np.ndarray:
    """Return a fixed pattern of about `share` missing cells, no row or label wholly missing.

    A pattern, a bool array (obs, labels), is returned as it is.
    """
    if np.ndim(share) == 2:
        return np.asarray(share, bool)
    rng = np.random.default_rng([num_rows, num_labels])
    hidden = np.zeros((num_rows, num_labels), bool)
    hidden.flat[rng.permutation(hidden.size)[: int(share * hidden.size)]] = True
    hidden[np.arange(num_rows), np.arange(num_rows) % num_labels] = False
    hidden[np.arange(num_labels) % num_rows, np.arange(num_labels)] = False
    return hidden


def replicates(
    spec: ModelSpec,
    seed: int,
    count: int,
    *,
    sizes: Mapping[str, int] | None = None,
    settings: Mapping[str, Any] | None = None,
    missing: Any = 0.0,
    say: Say = lambda line: None,
) -> Replicates:
    """Draw `count` pairs of sites and data of one shape from the joint prior.

    Parameters
    ----------
    spec : ModelSpec
    seed, count : int
        Fewer are returned where the shape is rarer than one data set in `MOST_DRAWS`.
    sizes : mapping, optional
        Sizes of the data; default the card's tiny ones.
    settings : mapping, optional
        Settings of the program; default `joint_settings`.
    missing : float or bool array (obs, labels)
        Share of cells whose labels are then hidden, in a pattern that is the same in all data sets; or the
        pattern.

    Raises
    ------
    NoJointPriorError
        If the model neither simulates nor has a program that can.
    """
    chosen = dict(joint_settings(spec) if settings is None else settings)
    wanted = {"num_obs": 5, "num_features": 2, "num_labels": 3, **spec.tiny, **(sizes or {})}
    say(f"{spec.name}: drawing {count} data sets from the joint prior")
    with jax.enable_x64(True):
        return _collect(joint_source(spec, seed, wanted, chosen, missing), count)


def _collect(source: "Callable[[int], Simulated]", count: int) -> Replicates:
    """Return the first `count` draws of a frequent shape."""
    pilot = [source(index) for index in range(PILOT)]
    signature, sizes_kept, share = _choose(pilot)
    most, index = int(min(MOST_DRAWS, 3 / share) * count), 0
    kept: list[tuple[list[Array], State]] = []
    while len(kept) < count and index < max(most, PILOT):
        one = source(index)
        index += 1
        if one.size in sizes_kept and (found := one.split())[1] == signature:
            kept.append((found[0], one.sites))
    return _stack(kept, signature[0], len(kept) / index)


def joint_source(
    spec: ModelSpec, seed: int, sizes: Mapping[str, int], settings: Mapping[str, Any], missing: Any
) -> "Callable[[int], Simulated]":
    """Return ``source(index)``: the program with its labels drawn where it can draw them, else `simulate`."""
    rng = np.random.default_rng([seed, 3])
    X = rng.standard_normal((sizes["num_obs"], sizes["num_features"]))
    shape = (sizes["num_obs"], sizes["num_labels"])
    fair = rng.integers(0, 2, shape)
    resolved = spec.resolve(settings)
    inputs = spec.prepare(LabelData.from_arrays(X, fair), resolved)
    try:
        draw = program_draw(spec, inputs, X, shape, resolved)
    except NoJointPriorError:
        if spec.simulate is None:
            raise
        return _simulating(spec, seed, dict(sizes), settings, missing)
    return _drawing(spec, draw, seed, X, resolved, missing_cells(*shape, missing))


class Simulated(NamedTuple):
    """One joint draw before its inputs are prepared; `size` is the number of positives, 0 where unknown."""

    sites: State
    size: int
    prepare: Callable[[], dict[str, Any]]

    def split(self) -> tuple[list[Array], tuple[Static, tuple[Any, ...]]]:
        """Return the arrays of the inputs and their signature: the rest, and the shapes."""
        arrays, static = split_inputs(self.prepare())
        return arrays, (static, tuple(np.shape(leaf) for leaf in arrays))


def _choose(pilot: list[Simulated]) -> tuple[Any, set[int], float]:
    """Return a frequent signature, the numbers of positives it occurs with, and its share of the pilot."""
    signatures = [one.split()[1] for one in pilot]
    found = Counter(signatures)
    sizes = {key: {one.size for one, s in zip(pilot, signatures, strict=True) if s == key} for key in found}
    frequent = [key for key, times in found.items() if times >= NEARLY * max(found.values())]
    best = max(frequent, key=lambda key: max(sizes[key]))
    return best, set(range(1 << 16)) if len(sizes[best]) > 1 else sizes[best], found[best] / len(pilot)


def _stack(kept: list[tuple[list[Array], State]], static: Static, share: float) -> Replicates:
    columns = zip(*(one[0] for one in kept), strict=True)
    arrays = [np.stack([np.asarray(leaf) for leaf in leaves]) for leaves in columns]
    sites = {name: np.stack([np.asarray(one[1][name]) for one in kept]) for name in kept[0][1]}
    return Replicates(arrays, static, sites, share)


def _with_hidden(data: LabelData, hidden: np.ndarray) -> LabelData:
    if not hidden.any():
        return data
    X = data.X if isinstance(data.X, np.ndarray) else data.X.toarray()
    return LabelData.from_arrays(X, np.where(hidden, np.nan, data.Y.toarray().astype(float)))


def _simulating(
    spec: ModelSpec, seed: int, sizes: dict[str, int], settings: Mapping[str, Any], missing: Any
) -> Callable[[int], Simulated]:
    """Return ``source(index)``, one draw of ``spec.simulate``."""
    simulate, resolved = spec.simulate, spec.resolve(settings)
    root = jax.random.key(seed)
    overrides = {name: value for name, value in settings.items() if name not in sizes}

    def source(index: int) -> Simulated:
        data, sites = simulate(jax.random.fold_in(root, index), sizes, **overrides)  # type: ignore[misc]
        if not isinstance(data, LabelData):
            return Simulated(sites, 0, lambda: dict(data))
        hidden = missing_cells(data.num_rows, data.num_labels, missing)
        seen = int((data.Y.toarray() * ~hidden).sum())
        return Simulated(sites, seen, lambda: spec.prepare(_with_hidden(data, hidden), resolved))

    return source


def program_draw(
    spec: ModelSpec,
    inputs: Mapping[str, Any],
    X: np.ndarray,
    shape: tuple[int, int],
    settings: Mapping[str, Any],
) -> Callable[[Array], tuple[State, Array]]:
    """Return ``draw(key) -> (sites, labels)`` that runs the summed view with its labels drawn.

    Where the labels enter by a factor, the sites of the rows and the labels come from ``spec.draw_labels``.

    Raises
    ------
    NoJointPriorError
        If the program cannot draw labels and there is no ``draw_labels``.
    """
    try:
        label_site, names = _label_site(spec, inputs, shape)
    except NoJointPriorError:
        if spec.draw_labels is None:
            raise
        return _by_draw_labels(spec, inputs, X, settings)
    program = numpyro.handlers.uncondition(spec.views["summed"])

    def draw(key: Array) -> tuple[State, Array]:
        trace = numpyro.handlers.trace(numpyro.handlers.seed(program, key)).get_trace(**inputs)
        return {name: trace[name]["value"] for name in names}, trace[label_site]["value"]

    return draw


def _by_draw_labels(
    spec: ModelSpec, inputs: Mapping[str, Any], X: np.ndarray, settings: Mapping[str, Any]
) -> Callable[[Array], tuple[State, Array]]:
    """Return a draw of the sites of no row from the program, and of the rest from ``spec.draw_labels``."""
    constants = {**settings, **spec.constants(dict(inputs))}

    def draw(key: Array) -> tuple[State, Array]:
        prior_key, label_key = jax.random.split(key)
        seeded = numpyro.handlers.seed(spec.views["summed"], prior_key)
        trace = numpyro.handlers.trace(seeded).get_trace(**inputs)
        sites = {name: site["value"] for name, site in trace.items() if _of_no_row(spec, name, site)}
        labels, local = spec.draw_labels(sites, jnp.asarray(X), constants, label_key)  # type: ignore[misc]
        return {**sites, **local}, labels

    return draw


def _of_no_row(spec: ModelSpec, name: str, site: Mapping[str, Any]) -> bool:
    """Return whether a site is latent and belongs to no row: neither its dims nor its plates are `obs`."""
    if site["type"] not in ("sample", "deterministic") or site.get("is_observed", False):
        return False
    plates = {frame.name for frame in site.get("cond_indep_stack", ())}
    # A deterministic is computed under no plate: only its dims tell.
    known = site["type"] == "sample" or name in spec.dims
    return known and "obs" not in plates and "obs" not in spec.dims.get(name, ())


def _drawing(
    spec: ModelSpec, draw: Any, seed: int, X: np.ndarray, settings: Mapping[str, Any], hidden: np.ndarray
) -> Callable[[int], Simulated]:
    """Return ``source(index)`` that runs `draw` a block at a time; the features are `X` throughout."""
    root, compiled = jax.random.key(seed), jax.jit(jax.vmap(draw))
    blocks: dict[int, tuple[State, np.ndarray]] = {}
    prepared: dict[bytes, dict[str, Any]] = {}

    def block_of(number: int) -> tuple[State, np.ndarray]:
        if number not in blocks:
            with TRACING:
                sites, labels = compiled(jax.random.split(jax.random.fold_in(root, number), BLOCK))
            blocks.clear()
            blocks[number] = (
                {name: np.asarray(value) for name, value in sites.items()},
                np.asarray(labels).astype(np.int8),
            )
        return blocks[number]

    def source(index: int) -> Simulated:
        sites, labels = block_of(index // BLOCK)
        at = index % BLOCK
        Y = labels[at]

        def prepare() -> dict[str, Any]:
            # Tiny tables of labels recur.
            place = Y[~hidden].tobytes()
            if place not in prepared:
                table = np.where(hidden, np.nan, Y.astype(float)) if hidden.any() else Y
                prepared[place] = spec.prepare(LabelData.from_arrays(X, table), settings)
            return prepared[place]

        return Simulated({name: value[at] for name, value in sites.items()}, int(Y[~hidden].sum()), prepare)

    return source


def _label_site(spec: ModelSpec, inputs: Mapping[str, Any], shape: tuple[int, int]) -> tuple[str, list[str]]:
    """Return the observed site that holds the labels, and the sites that are not observed.

    Raises
    ------
    NoJointPriorError
        If a factor or a second observed site stands in the program, or none of the labels' shape.
    """
    return abstract_trace(spec.views["summed"], inputs, partial(_read_labels, spec, shape))


def _read_labels(spec: ModelSpec, shape: tuple[int, int], trace: Mapping[str, Any]) -> tuple[str, list[str]]:
    samples = {name: site for name, site in trace.items() if site["type"] == "sample"}
    reason = f"{spec.name} has no simulate" + (f" ({spec.no_simulate})" if spec.no_simulate else "")
    factors = [name for name, site in samples.items() if isinstance(_base(site["fn"]), Unit)]
    if factors:
        raise NoJointPriorError(
            f"{reason}, and its program cannot draw labels: {', '.join(factors)} is a factor, not a sample "
            "statement"
        )
    observed = [name for name, site in samples.items() if site["is_observed"]]
    if len(observed) != 1 or np.shape(samples[observed[0]]["value"]) != shape:
        raise NoJointPriorError(
            f"{reason}, and its program has not one observed site of shape (obs, labels) but: "
            f"{', '.join(observed) or 'none'}"
        )
    if not samples[observed[0]]["fn"].support.is_discrete:
        raise NoJointPriorError(f"{reason}, and its program draws real numbers for the labels {observed[0]}")
    kept = [name for name, site in trace.items() if site["type"] in ("sample", "deterministic")]
    return observed[0], [name for name in kept if name not in observed]


def _base(distribution: Any) -> Any:
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    return distribution
