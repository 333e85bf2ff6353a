"""Rung 3: one view of a model is another with sites summed or integrated out, on a tiny case.

Both sides are evaluated on explicit grids: all values of a discrete site, Gauss nodes of a continuous one.
Views may differ by one constant (a base measure), so the difference of the two log densities is compared
between states.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from labelzoo.inference.checks.programs import Program, State, log_joint, split_inputs
from labelzoo.inference.checks.report import CheckResult
from labelzoo.models.spec import ModelSpec

Array = Any
MAX_NODES = 400_000


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
    index = np.array(list(product(range(count), repeat=size)), dtype=int).reshape(-1, size)
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


@Program
def log_marginals(
    arrays: list[Array], states: State, values: State, log_weights: Array, *, static: Any, view: Any
) -> Array:
    """Return the log of the sum over nodes of exp(log joint + log weight) at each state: (state,).

    `values` has leaves (state, node, ...) for the sites of the grid, `log_weights` (state, node).
    """

    def one(arguments: tuple[State, State, Array]) -> Array:
        state, nodes, weights = arguments
        count = weights.shape[0]
        full = {name: jnp.broadcast_to(value, (count, *jnp.shape(value))) for name, value in state.items()}
        value, _ = log_joint.function(arrays, {**full, **nodes}, static=static, view=view)
        return logsumexp(value + weights)

    return jax.lax.map(one, (states, values, log_weights))


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
    arrays, static = split_inputs(inputs)
    pairs = [joint_grid(grid) if grid else ({}, np.zeros(1)) for grid in grids]
    stacked, values, weights = jax.tree.map(
        lambda *leaves: np.stack(leaves),
        *[(dict(state), *pair) for state, pair in zip(states, pairs, strict=True)],
    )
    return np.asarray(log_marginals(arrays, stacked, values, weights, static=static, view=view))


def spread(case: EnumerationCase, view_from: Any, view_to: Any, seed: int) -> tuple[float, int]:
    """Return the spread over states of log p_from - log p_to, relative, and the number of states."""
    inputs = case.inputs()
    states = case.states(np.random.default_rng([seed, 3]), inputs)
    carried = [case.carry(state, inputs) for state in states]
    log_jacobian = np.array([float(jacobian) for _, jacobian in carried])
    left = marginals(view_from, inputs, [s for s, _ in carried], [case.grid(s, inputs) for s, _ in carried])
    right = marginals(view_to, inputs, states, [case.grid_to(s, inputs) for s in states])
    gap = left + log_jacobian - right
    if not np.isfinite(gap).all():
        return np.inf, len(states)
    return float(np.ptp(gap) / max(1.0, np.abs(right).max())), len(states)


def check_marginal(case: EnumerationCase, spec: ModelSpec, seed: int) -> CheckResult:
    """Check that one view marginalises to another."""
    worst, count = spread(case, spec.views[case.view_from], spec.views[case.view_to], seed)
    passed = worst <= case.threshold
    words = "verified numerically" if passed else "the views differ"
    detail = f"{words} at {count} states, worst residual {worst:.1e}"
    return CheckResult(case.name, "enumeration", ",".join(case.sites), passed, worst, case.threshold, detail)
