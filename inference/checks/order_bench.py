"""Tables of claims: the conditional of an update at every combination of a few values of what it reads."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import roots_genlaguerre

from labelzoo.inference.checks.marginal import Nodes, joint_grid
from labelzoo.inference.checks.order_table import Table
from labelzoo.inference.checks.programs import (
    ClaimError,
    Program,
    State,
    abstract_trace,
    claim_log_prob,
    claim_of,
    join_inputs,
    split_inputs,
)
from labelzoo.inference.update import Update
from labelzoo.models.spec import ModelSpec

Array = Any
Inputs = Mapping[str, Any]


def gauss_gamma(shape: float, rate: float, count: int) -> Nodes:
    """Return Gauss-Laguerre nodes of (0, inf) for u^(shape - 1) e^(-rate u) times a smooth function.

    Exact for polynomials of degree 2 count - 1; for a rate that differs by the factor 1 + d the error falls
    like (d / (2 + d))^(2 count).
    """
    x, w = roots_genlaguerre(count, shape - 1.0)
    return Nodes(x / rate, np.log(w) - np.log(rate) - (shape - 1.0) * np.log(x) + x)


def points(*values: Any) -> Nodes:
    """Return a few values of a site, each of weight one: enough where no view integrates the site out."""
    return Nodes(np.stack([np.asarray(value) for value in values]), np.zeros(len(values)))


class Bench(NamedTuple):
    """A case made ready: the tables of its view and of the claims met so far.

    Attributes
    ----------
    spec, inputs, nodes
        As given by the case.
    joint : Table
        Posterior over the sites of the case's view.
    kept : tuple of str
    claims : dict
        Tables of q by claim.
    sites : dict
        Sites by view.
    """

    spec: ModelSpec
    inputs: Inputs
    nodes: Mapping[str, Nodes]
    joint: Table
    kept: tuple[str, ...]
    claims: dict[Any, Table]
    sites: dict[str, tuple[str, ...]]


class Read(Mapping[str, Any]):
    """A state that remembers which of its sites were read."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        value = self.state[name]
        self.names.add(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self.state)

    def __len__(self) -> int:
        return len(self.state)


def sites_of(view: Any, inputs: Inputs) -> tuple[str, ...]:
    """Return the sites that a program samples, in its order; nothing is computed."""

    def read(trace: dict[str, Any]) -> tuple[str, ...]:
        return tuple(n for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"])

    return abstract_trace(view, inputs, read)


def view_sites(bench: Bench, view: str) -> tuple[str, ...]:
    """Return the sites of a view, each of which must have nodes."""
    if view not in bench.spec.views:
        raise ValueError(f"{bench.spec.name} has no view {view!r}; views: {', '.join(bench.spec.views)}")
    if view not in bench.sites:
        bench.sites[view] = sites_of(bench.spec.views[view], bench.inputs)
    missing = [site for site in bench.sites[view] if site not in bench.nodes]
    if missing:
        raise ValueError(f"view {view!r}: no nodes for the sites {', '.join(missing)}")
    return bench.sites[view]


def claim_table(update: Update, bench: Bench) -> Table:
    """Return q(block | read) on the nodes, axes (sites read, block), each conditional summing to one.

    Raises
    ------
    ClaimError
        If the claim reads a site that its view lacks, or draws one.
    """
    key = (update.given, update.view, update.sites)
    if key not in bench.claims:
        sites = view_sites(bench, update.view)
        foreign = [site for site in update.sites if site not in sites]
        if foreign:
            raise ClaimError(f"{update.name} draws {foreign}, which the view {update.view!r} lacks: {sites}")
        first = {site: np.asarray(bench.nodes[site].values)[0] for site in sites}
        read = sites_read(update, first, bench.inputs)
        bench.claims[key] = _evaluate(update, read, first, bench)
    return bench.claims[key]


def sites_read(update: Update, state: State, inputs: Inputs) -> tuple[str, ...]:
    """Return which sites of its view a claim looks at, its own block apart."""
    seen: set[str] = set()

    arrays, static = split_inputs(inputs)

    def run(arrays: list[Array], state: State) -> Array:
        recorder = Read(state)
        claim = claim_of(update.given, recorder, join_inputs(arrays, static), update.sites)
        value, _ = claim_log_prob(claim, {site: state[site] for site in update.sites})
        seen.update(recorder.names)
        return value

    jax.eval_shape(run, arrays, state)
    return tuple(site for site in state if site in seen and site not in update.sites)


def _evaluate(update: Update, read: tuple[str, ...], first: State, bench: Bench) -> Table:
    states = joint_grid({site: bench.nodes[site] for site in read})[0] if read else {}
    blocks, log_weights = joint_grid({site: bench.nodes[site] for site in update.sites})
    rest = {site: value for site, value in first.items() if site not in read}
    count = len(next(iter(states.values()))) if read else 1
    arrays, static = split_inputs(bench.inputs)
    index = np.arange(count)
    parts = (arrays, states, rest, blocks, log_weights, index)
    q = claim_on_nodes(*parts, static=static, given=update.given, sites=update.sites)
    axes = (*read, *update.sites)
    return Table(axes, np.asarray(q).reshape([len(bench.nodes[site].log_weights) for site in axes]))


@Program
def claim_on_nodes(
    arrays: list[Array],
    states: State,
    rest: State,
    blocks: State,
    log_weights: Array,
    index: Array,
    *,
    static: Any,
    given: Any,
    sites: tuple[str, ...],
) -> Array:
    """Return q(block | state) times its weight, normalised over the nodes: (state, node).

    `states` has leaves (state, ...), `rest` one value of every site that the claim does not look at, `blocks`
    leaves (node, ...). A state at which every node is excluded gets zeros, and so loses its mass.
    """
    inputs = join_inputs(arrays, static)

    def one(position: Array) -> Array:
        state = {**rest, **{site: leaf[position] for site, leaf in states.items()}}
        claim = claim_of(given, state, inputs, sites)
        log_q = jax.vmap(lambda block: claim_log_prob(claim, block)[0])(blocks) + log_weights
        top = log_q.max()
        q = jnp.exp(log_q - jnp.where(top > -np.inf, top, 0.0))
        return q / jnp.maximum(q.sum(), np.finfo(float).tiny)

    return jax.lax.map(one, index)
