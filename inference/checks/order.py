r"""Rung 'order': one whole sweep leaves the posterior of a tiny case as it is, computed without drawing.

A conditional that is right under its own view can stand at a wrong place of a partially collapsed sweep: a
site that was integrated out is stale until it is drawn again, and an update that reads it in between has
another stationary law. No check of single updates sees that. Here every site takes a few values, so that the
posterior :math:`\pi` is a table with one axis a site, and an update acts on it exactly,

.. math:: \pi'(b, \text{rest}) = q(b \mid \text{read}) \sum_{b'} \pi(b', \text{rest}),

where q is the claim at the block's values, normalised over them, and reads nothing but the sites of its own
view. Sites integrated out in that view keep their axis and their stale values. After all updates the table
of the sites that the sampler stores, and of those that the next sweep reads, must be as before: total
variation :math:`\tfrac12 \sum |\pi P - \pi|` at rounding error where all sites are discrete, at quadrature
error where a view integrates a continuous one out (its values must then be Gauss nodes; any values do for the
others).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from labelzoo.inference.checks.marginal import Nodes, joint_grid
from labelzoo.inference.checks.order_bench import Bench, claim_table, gauss_gamma, points, view_sites
from labelzoo.inference.checks.order_table import Table, marginal, push, with_copies
from labelzoo.inference.checks.programs import log_joint, split_inputs
from labelzoo.inference.checks.report import CheckResult, MutantResult
from labelzoo.inference.update import Update
from labelzoo.models.spec import ModelSpec

__all__ = [
    "OrderCase",
    "Step",
    "aged",
    "check_order",
    "gauss_gamma",
    "make_bench",
    "moved",
    "order_mutants",
    "order_rung",
    "points",
    "total_variation",
    "transition_matrix",
]

Inputs = Mapping[str, Any]

MUTANT_FACTOR = 100
"""A wrong order must miss by so many thresholds, so that a quadrature error cannot pass for the fault."""


@dataclass(frozen=True)
class Step:
    """An update at its place in a sweep, which reads old values of some sites.

    Parameters
    ----------
    update : Update
    stale : tuple of str
        Sites that it reads as they were when the sweep began: a fault to plant.
    """

    update: Update
    stale: tuple[str, ...] = ()


Order = tuple[Any, ...]
"""The steps of a sweep: each an `Update` or a `Step`."""


def as_steps(order: Order) -> list[Step]:
    """Return every entry of a sweep as a `Step`."""
    return [step if isinstance(step, Step) else Step(step) for step in order]


def moved(order: Order, update: Update, after: Update | None) -> Order:
    """Return `order` with `update` right after another one; None: first."""
    rest = [step for step in order if step is not update]
    at = 0 if after is None else rest.index(after) + 1
    return (*rest[:at], update, *rest[at:])


def aged(order: Order, update: Update, *stale: str) -> Order:
    """Return `order` with `update` reading these sites as they were when the sweep began."""
    return tuple(Step(update, stale) if step is update else step for step in order)


@dataclass(frozen=True)
class OrderCase:
    """The sweep of one engine on a case so small that its posterior is a table.

    Parameters
    ----------
    name : str
        ``"first arrivals: (t, z), V, (r, W), U, tau"``.
    engine : str
        Name of the engine in the registry, whose `conditionals` are these updates in this order.
    view : str
        The fullest view: its log density, plus the log weights of the nodes, is the table's logarithm.
    inputs : callable
        ``inputs() -> dict`` for every view that an update names.
    nodes : callable
        ``nodes(inputs) -> {site: Nodes}`` for the sites of all those views.
    updates : tuple of Update
        In the order of the sweep; the last draw of a site is what the next sweep finds.
    kept : tuple of str
        Sites whose joint law must be left as it is: what the engine stores. Default: all of `view`.
    threshold : float
        Largest total variation between the tables before and after one sweep.
    mutants : tuple of (str, tuple of Update or Step)
        Wrong sweeps, which the check must reject.
    views : mapping
        Further programs that updates may name, for steps that exist on the nodes of this case alone.
    """

    name: str
    engine: str
    view: str
    inputs: Callable[[], dict[str, Any]]
    nodes: Callable[[Inputs], Mapping[str, Nodes]]
    updates: Order
    kept: tuple[str, ...] = ()
    threshold: float = 1e-9
    mutants: tuple[tuple[str, Order], ...] = ()
    views: Mapping[str, Any] = field(default_factory=dict)


def make_bench(case: OrderCase, spec: ModelSpec) -> Bench:
    """Evaluate the posterior of a case on its nodes.

    Raises
    ------
    ValueError
        If a view does not exist, a site has no nodes, the table would be too large, or its density is zero.
    """
    inputs = case.inputs()
    nodes = dict(case.nodes(inputs))
    spec = replace(spec, views={**spec.views, **case.views}) if case.views else spec
    bench = Bench(spec, inputs, nodes, Table((), np.ones(())), case.kept, {}, {})
    sites = view_sites(bench, case.view)
    unknown = sorted(set(case.kept) - set(sites))
    if unknown:
        raise ValueError(f"{case.name}: kept names {unknown}, which the view {case.view!r} lacks: {sites}")
    values, log_weights = joint_grid({site: nodes[site] for site in sites})
    arrays, static = split_inputs(inputs)
    log_p = np.asarray(log_joint(arrays, values, static=static, view=spec.views[case.view])[0]) + log_weights
    total = logsumexp(log_p)
    if not np.isfinite(total):
        raise ValueError(f"{case.name}: the view {case.view!r} has no finite density on the nodes")
    table = np.exp(log_p - total).reshape([len(nodes[site].log_weights) for site in sites])
    return bench._replace(joint=Table(sites, table), kept=case.kept or sites)


class Plan(NamedTuple):
    """A sweep made ready to run.

    Attributes
    ----------
    blocks : list of tuple of str
        What each step draws.
    claims : list of Table
        Its conditional; axes of stale reads end in `OLD`.
    wanted : list of set of str
        Axes that something reads, or that are kept, after each step.
    carried : set of str
        Axes that the sweep takes over from the last one.
    """

    blocks: list[tuple[str, ...]]
    claims: list[Table]
    wanted: list[set[str]]
    carried: set[str]


OLD = " (old)"
"""Suffix of the axis that holds a site's value at the start of the sweep."""


def plan_sweep(bench: Bench, order: Order, kept: tuple[str, ...]) -> Plan:
    """Find which axes each step of a sweep needs: one is summed out once nothing reads it any more.

    Raises
    ------
    ValueError
        If an update reads a site that has no value yet.
    """
    steps = as_steps(order)
    blocks = [step.update.sites for step in steps]
    claims = [_with_stale(claim_table(step.update, bench), step) for step in steps]
    wanted: list[set[str]] = []
    live = set(kept)
    for block, claim in zip(reversed(blocks), reversed(claims), strict=True):
        wanted.insert(0, live)
        live = (live - set(block)) | (set(claim.axes) - set(block))
    return Plan(blocks, claims, wanted, live)


def _with_stale(claim: Table, step: Step) -> Table:
    read = [site for site in claim.axes if site not in step.update.sites]
    unread = [site for site in step.stale if site not in read]
    if unread:
        raise ValueError(f"{step.update.name} does not read {', '.join(unread)}, which a step calls stale")
    axes = tuple(site + OLD if site in step.stale and site in read else site for site in claim.axes)
    return Table(axes, claim.values)


def run_plan(plan: Plan, start: Table, kept: tuple[str, ...]) -> Table:
    """Apply a sweep to the table `start` and return the table of `kept`."""
    missing = sorted(site for site in plan.carried if site.removesuffix(OLD) not in start.axes)
    if missing:
        raise ValueError(f"{', '.join(missing)}: read before it is drawn, and not in the view of the case")
    table = with_copies(start, plan.carried, OLD)
    for block, claim, wanted in zip(plan.blocks, plan.claims, plan.wanted, strict=True):
        table = push(table, claim, block, wanted)
    return marginal(table, kept)


def total_variation(bench: Bench, order: Order) -> float:
    """Return half the sum of the absolute differences that one sweep makes.

    Compared is the joint law of the kept sites and of those that the next sweep reads before it draws them.
    """
    carried = {site.removesuffix(OLD) for site in plan_sweep(bench, order, bench.kept).carried}
    kept = tuple(site for site in bench.joint.axes if site in carried or site in bench.kept)
    after = run_plan(plan_sweep(bench, order, kept), bench.joint, kept)
    return float(0.5 * np.abs(after.values - marginal(bench.joint, kept).values).sum())


def transition_matrix(bench: Bench, order: Order) -> np.ndarray:
    """Return P of one sweep over all sites of the case's view, rows summing to one, in the table's C order.

    For cases of a few hundred states; `total_variation` needs no matrix.
    """
    shape, axes = bench.joint.values.shape, bench.joint.axes
    size = int(np.prod(shape))
    origin = tuple(f"{axis} (origin)" for axis in axes)
    start = Table((*origin, *axes), np.eye(size).reshape(*shape, *shape))
    kept = (*origin, *axes)
    return run_plan(plan_sweep(bench, order, kept), start, kept).values.reshape(size, size)


def check_order(case: OrderCase, spec: ModelSpec, seed: int = 0, bench: Bench | None = None) -> CheckResult:
    """Check that one sweep leaves the posterior of a tiny case as it is.

    Parameters
    ----------
    case : OrderCase
    spec : ModelSpec
    seed : int
        Taken like that of the other rungs; nothing here is random.
    bench : Bench, optional
        What `make_bench` returned for this case.

    Raises
    ------
    ValueError
        If the case is incomplete: a site without nodes, a site that no update draws.
    """
    bench = make_bench(case, spec) if bench is None else bench
    drawn = {site for step in as_steps(case.updates) for site in step.update.sites}
    idle = [site for site in bench.joint.axes if site not in drawn]
    if idle:
        raise ValueError(f"{case.name}: no update draws {', '.join(idle)}")
    tv = total_variation(bench, case.updates)
    passed = tv <= case.threshold
    words = "verified numerically" if passed else "one sweep changes the posterior"
    size = bench.joint.values.size
    detail = f"{words} on {size} nodes: total variation {tv:.1e} after {len(case.updates)} updates in order"
    return CheckResult(case.name, "order", ",".join(bench.kept), passed, tv, case.threshold, detail)


def order_mutants(
    case: OrderCase, spec: ModelSpec, bench: Bench | None = None
) -> list[tuple[MutantResult, float]]:
    """Return each wrong sweep of a case, whether it is rejected, and its total variation."""
    bench = make_bench(case, spec) if bench is None else bench
    found = []
    for name, order in case.mutants:
        tv = total_variation(bench, order)
        killed = tv > MUTANT_FACTOR * case.threshold
        found.append((MutantResult(case.name, name, "order" if killed else None), tv))
    return found


def order_rung(
    case: OrderCase, spec: ModelSpec, seed: int = 0
) -> tuple[list[CheckResult], list[MutantResult]]:
    """Check the sweep of a case and its wrong versions; what is raised becomes a failed check.

    The detail of the check gives the total variation of every wrong version.
    """
    try:
        bench = make_bench(case, spec)
        check = check_order(case, spec, seed, bench)
        wrong = order_mutants(case, spec, bench)
    except Exception as error:
        detail = f"could not be evaluated: {type(error).__name__}: {error}"
        failed = CheckResult(case.name, "order", ",".join(case.kept), False, np.inf, case.threshold, detail)
        return [failed], [MutantResult(case.name, name, None) for name, _ in case.mutants]
    said = "; ".join(f"{row.mutant} {tv:.1e}" for row, tv in wrong)
    detail = f"{check.detail}; planted: {said}" if wrong else check.detail
    return [replace(check, detail=detail)], [row for row, _ in wrong]
