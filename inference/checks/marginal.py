"""Rung 3: one view of a model is another with sites summed or integrated out, on a tiny case.

Both sides are evaluated on explicit grids: all values of a discrete site, Gauss nodes of a continuous one.
Views may differ by one constant (a base measure), so the difference of the two log densities is compared
between states.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from labelzoo.inference.checks.programs import State, log_joint, split_inputs
from labelzoo.inference.checks.report import CheckResult
from labelzoo.models.spec import ModelSpec

Array = Any
MAX_NODES = 400_000
CHUNK = 2048
"""Points a call of a view's joint: the last call is filled up, so that grids of all sizes share a program."""


class Nodes(NamedTuple):
    """Values of one site, (node, *site shape), and the log weight of each, (node,)."""

    values: Array
    log_weights: Array


Grid = Mapping[str, Nodes]
Inputs = Mapping[str, Any]


def no_grid(state: Mapping[str, Any], inputs: Inputs) -> Grid:
    """Integrate nothing out."""
    return {}


def same_state(state: Mapping[str, Any], inputs: Inputs) -> tuple[Mapping[str, Any], float]:
    """Use the state of one view in the other as it is, with log Jacobian 0."""
    return state, 0.0


@dataclass(frozen=True)
class EnumerationCase:
    """Two views, a tiny data set, and how to get from one to the other.

    Parameters
    ----------
    name : str
        ``"arrivals -> summed"``.
    view_from, view_to : str
        Names of two views: `view_from` with `grid` summed out must equal `view_to` up to a constant.
    sites : tuple of str
        What is summed or integrated out.
    inputs : callable
        ``inputs() -> dict`` for both views: two rows and two topics, say.
    states : callable
        ``states(rng, inputs) -> list`` of states of `view_to` (a NumPy generator draws them).
    grid : callable
        ``grid(state, inputs) -> {site: Nodes}`` for `view_from`; all grids of one case have one shape.
    carry : callable
        ``carry(state, inputs) -> (state of view_from, log Jacobian)``: the log of
        |d state_from / d state_to| where the views write a variable differently.
    grid_to : callable
        As `grid`, for sites of `view_to` that `view_from` lacks.
    threshold : float
        Largest spread of the difference between states, relative to the size of the log densities.
    mutants : tuple of (str, callable)
        Wrong versions of `view_from`, which the check must reject.
    wrong_inputs : tuple of (str, callable)
        The same, but as ``change(inputs) -> inputs``, what `view_from` alone reads instead: where only
        arrays differ, nothing is compiled anew.
    """

    name: str
    view_from: str
    view_to: str
    sites: tuple[str, ...]
    inputs: Callable[[], dict[str, Any]]
    states: Callable[[np.random.Generator, Inputs], list[State]]
    grid: Callable[[Mapping[str, Any], Inputs], Grid]
    carry: Callable[[Mapping[str, Any], Inputs], tuple[Mapping[str, Any], Any]] = same_state
    grid_to: Callable[[Mapping[str, Any], Inputs], Grid] = no_grid
    threshold: float = 1e-8
    mutants: tuple[tuple[str, Callable[..., Any]], ...] = ()
    wrong_inputs: tuple[tuple[str, Callable[[Inputs], Inputs]], ...] = ()


def product_nodes(nodes: Nodes, shape: tuple[int, ...]) -> Nodes:
    """Return the product grid of a site of `shape` whose entries each take the scalar `nodes`.

    Raises
    ------
    ValueError
        If the grid would have more than `MAX_NODES` nodes.
    """
    size, count = int(np.prod(shape)), len(nodes.log_weights)
    if count**size > MAX_NODES:
        raise ValueError(f"{count} nodes for each of {size} entries are {count**size}, above {MAX_NODES}")
    index = np.indices((count,) * size).reshape(size, -1).T
    values = np.asarray(nodes.values)[index].reshape(-1, *shape)
    return Nodes(values, np.asarray(nodes.log_weights)[index].sum(axis=1))


def gauss_legendre(lower: float, upper: float, count: int) -> Nodes:
    """Return Gauss-Legendre nodes on an interval."""
    x, w = np.polynomial.legendre.leggauss(count)
    return Nodes(lower + (upper - lower) * (x + 1) / 2, np.log(w * (upper - lower) / 2))


def log_scale_nodes(lower: float, upper: float, count: int) -> Nodes:
    """Return Gauss-Legendre nodes for a positive variable whose logarithm runs over an interval."""
    log_x, log_w = gauss_legendre(lower, upper, count)
    return Nodes(np.exp(log_x), log_w + log_x)


def whole_numbers(lower: int, upper: int) -> Nodes:
    """Return the whole numbers from `lower` to `upper`, both included, with weight one."""
    values = np.arange(lower, upper + 1)
    return Nodes(values, np.zeros(len(values)))


def joint_grid(grid: Grid) -> tuple[State, np.ndarray]:
    """Return the product of the grids of several sites: values (node, ...) by site, log weights (node,)."""
    sizes = [len(nodes.log_weights) for nodes in grid.values()]
    if np.prod(sizes, dtype=float) > MAX_NODES:
        raise ValueError(
            f"the product of the grids {dict(zip(grid, sizes, strict=True))} is above {MAX_NODES} nodes"
        )
    index = np.indices(sizes).reshape(len(sizes), -1)
    values = {
        site: np.asarray(nodes.values)[rows] for (site, nodes), rows in zip(grid.items(), index, strict=True)
    }
    weights = [np.asarray(nodes.log_weights)[rows] for nodes, rows in zip(grid.values(), index, strict=True)]
    return values, np.sum(weights, axis=0)


def marginals(
    view: Any, inputs: Inputs, states: Sequence[Mapping[str, Any]], grids: Sequence[Grid]
) -> np.ndarray:
    """Return the log density of `view` with the sites of the grids summed out, at each state."""
    pairs = [joint_grid(grid) if grid else ({}, np.zeros(1)) for grid in grids]
    weights = np.stack([log_weights for _, log_weights in pairs])
    at, nodes = _stacked(states), _stacked([values for values, _ in pairs])
    nodes = {site: leaf.reshape(-1, *leaf.shape[2:]) for site, leaf in nodes.items()}
    arrays, static = split_inputs(inputs)
    parts = []
    for point in _chunks(weights.size):
        chunk = {site: leaf[point // weights.shape[1]] for site, leaf in at.items() if site not in nodes}
        chunk |= {site: leaf[point] for site, leaf in nodes.items()}
        parts.append(np.asarray(log_joint(arrays, chunk, static=static, view=view)[0]))
    values = np.concatenate(parts)[: weights.size].reshape(weights.shape)
    with np.errstate(divide="ignore"):  # log 0 where no node has mass
        return np.asarray(logsumexp(values + weights, axis=1))


def _stacked(states: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    return {site: np.stack([np.asarray(state[site]) for state in states]) for site in states[0]}


def _chunks(total: int) -> Iterator[np.ndarray]:
    """Yield the points 0, ..., total - 1 in calls of one size, the last filled up with the last point."""
    for start in range(0, total, CHUNK):
        yield np.minimum(np.arange(start, start + CHUNK), total - 1)


class Comparison(NamedTuple):
    """What all versions of `view_from` are compared at, drawn and evaluated once.

    Attributes
    ----------
    inputs : mapping
    states : list of dict
        Of `view_from`.
    grids : list of mapping
        Of `view_from`, one a state.
    target : ndarray (state,)
        Log density of `view_to` less the log Jacobian.
    size : float
        Largest log density of `view_to`, at least one.
    """

    inputs: Inputs
    states: list[Mapping[str, Any]]
    grids: list[Grid]
    target: np.ndarray
    size: float


def compare_at(case: EnumerationCase, view_to: Any, seed: int) -> Comparison:
    """Draw the states of a case and evaluate `view_to` there."""
    inputs = case.inputs()
    states = case.states(np.random.default_rng([seed, 3]), inputs)
    carried = [case.carry(state, inputs) for state in states]
    right = marginals(view_to, inputs, states, [case.grid_to(state, inputs) for state in states])
    return Comparison(
        inputs,
        [state for state, _ in carried],
        [case.grid(state, inputs) for state, _ in carried],
        right - np.array([float(log_jacobian) for _, log_jacobian in carried]),
        max(1.0, np.abs(right).max()),
    )


def residual(found: Comparison, view_from: Any, change: Callable[[Inputs], Inputs] | None = None) -> float:
    """Return the spread over states of log p_from - log p_to, relative; `change` is one of wrong_inputs."""
    inputs = found.inputs if change is None else change(found.inputs)
    gap = marginals(view_from, inputs, found.states, found.grids) - found.target
    return float(np.ptp(gap) / found.size) if np.isfinite(gap).all() else np.inf


def spread(case: EnumerationCase, view_from: Any, view_to: Any, seed: int) -> tuple[float, int]:
    """Return `residual` of a view and the number of states."""
    found = compare_at(case, view_to, seed)
    return residual(found, view_from), len(found.states)


def check_marginal(case: EnumerationCase, spec: ModelSpec, seed: int) -> CheckResult:
    """Check that one view marginalises to another."""
    return check_at(case, compare_at(case, spec.views[case.view_to], seed), spec.views[case.view_from])


def check_at(case: EnumerationCase, found: Comparison, view_from: Any) -> CheckResult:
    """As `check_marginal`, at states that are drawn and with the other side evaluated."""
    worst = residual(found, view_from)
    passed = worst <= case.threshold
    words = "verified numerically" if passed else "the views differ"
    detail = f"{words} at {len(found.states)} states, worst residual {worst:.1e}"
    return CheckResult(case.name, "enumeration", ",".join(case.sites), passed, worst, case.threshold, detail)
