"""Stationarity cases of the EM engines: their resting points, and their objectives written from the program.

The objectives here share no formula with `em_objective`: the joint density comes from NumPyro's
``log_density`` of the program with the Jacobians of the softmax and log bases, the bound from NumPyro's
divergence of gamma distributions and the power series of a truncated Poisson.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import digamma, logsumexp
from numpyro.infer.util import log_density
from scipy import special

from labelzoo.inference.bernoulli_poisson_topics.em import START_SHAPE, begin, em_config
from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData, em_data
from labelzoo.inference.bernoulli_poisson_topics.em_mutants import MUTANTS, EMMutant, step_with_faults
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState
from labelzoo.inference.bernoulli_poisson_topics.em_steps import STEPS, sweep
from labelzoo.inference.bernoulli_poisson_topics.em_weights import prior_precision
from labelzoo.inference.bernoulli_poisson_topics.starts import make_start
from labelzoo.inference.checks.programs import Program
from labelzoo.inference.checks.stationarity import StationarityCase
from labelzoo.models.bernoulli_poisson_topics import globals_prior, summed
from labelzoo.models.label_cells import Cells, Negatives

Array = Any
Params = dict[str, Array]
Faults = tuple[EMMutant, ...]

SWEEPS = 200_000
"""Upper limit of sweeps to rest; small inputs need a few hundred, rarely tens of thousands, at 10 us each."""

COUNTS = ("log_mass", "row_counts", "label_counts", "positive_term")
"""What the step called "counts" fills in."""

_REST = 1e-12
_SERIES_TERMS = 150


class Variant(NamedTuple):
    """Which algorithm, on which data.

    Attributes
    ----------
    algorithm : {"map", "vb"}
    missing : bool
        Hide some cells first.
    learn_shape : bool
    w_step : {"newton", "cg", "exact"}
    """

    algorithm: Literal["map", "vb"]
    missing: bool = False
    learn_shape: bool = False
    w_step: Literal["newton", "cg", "exact"] = "newton"


def hide_cells(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return `inputs` with every fourth cell missing, and all cells of the last row.

    Even rows list their positives and missing cells, odd rows their observed zeros.
    """
    num_rows, num_labels = np.asarray(inputs["X"]).shape[0], inputs["num_labels"]
    positive = np.zeros((num_rows, num_labels), bool)
    positive[np.asarray(inputs["positives"].row), np.asarray(inputs["positives"].label)] = True
    hidden = np.arange(num_rows * num_labels).reshape(num_rows, num_labels) % 4 == 1
    hidden[-1] = True
    complement = (np.arange(num_rows) % 2 == 0) & (np.arange(num_rows) < num_rows - 1)
    positive &= ~hidden
    listed = np.where(complement[:, None], positive | hidden, ~positive & ~hidden)
    listed[-1] = False
    row, label = (index.astype(np.int32) for index in np.nonzero(listed))
    negatives = Negatives(complement.astype(float), row, label, np.where(complement[row], -1.0, 1.0))
    cells = Cells(*(index.astype(np.int32) for index in np.nonzero(positive)))
    return {**inputs, "positives": cells, "negatives": negatives}


def seen_inputs(inputs: Mapping[str, Any], variant: Variant) -> dict[str, Any]:
    """Return the arguments of the program as `variant` sees them; shapes are fixed at 1 where not given."""
    shape = None if variant.learn_shape else (1.0 if inputs["shape"] is None else inputs["shape"])
    return {**(hide_cells(inputs) if variant.missing else inputs), "shape": shape}


def rest(
    inputs: Mapping[str, Any], variant: Variant, fault: EMMutant | None = None, faults: Faults = ()
) -> Params:
    """Sweep from a random start until nothing moves, with the block of `fault` wrong.

    Parameters
    ----------
    inputs : mapping
    variant : Variant
    fault : EMMutant, optional
        One of `faults`.
    faults : tuple of EMMutant
        All that are compiled into one program with the right steps.

    Returns
    -------
    dict
        ``topic_logits`` (topic, labels), ``weights``, ``log_embedding`` ("map") or ``log_concentration`` and
        ``log_rate`` ("vb"); ``log_shape`` and ``log_precision`` where learned.
    """
    inputs = seen_inputs(inputs, variant)
    config = em_config(variant.algorithm, inputs, w_step=variant.w_step, shape_floor=1e-3)
    shape = START_SHAPE if config.learn_shape else float(inputs["shape"])
    start = make_start(inputs, jax.random.key(0), "random", shape)
    number = -1 if fault is None else faults.index(fault)
    return dict(
        _sweeps(start, em_data(inputs), np.asarray(number), config=config, shape=shape, faults=faults)
    )


@Program
def _sweeps(
    start: Any, data: EMData, fault: Array, *, config: EMConfig, shape: float, faults: Faults
) -> Params:
    steps = {}
    # The counts come first, though a start has them: a sweep is compiled once only.
    for name in ("counts", *(name for name in STEPS if name != "counts")):
        own = [(number, mutant.change) for number, mutant in enumerate(faults) if mutant.block == name]
        steps[name] = step_with_faults(STEPS[name], own, fault)

    def body(carry: tuple[Array, EMState, Array]) -> tuple[Array, EMState, Array]:
        count, old, _ = carry
        new = sweep(old, data, config, steps)
        return count + 1, new, _largest_change(old, new)

    first = begin(start, data, config, shape)
    empty = jax.tree.map(jnp.zeros_like, first)
    counts = {name: getattr(empty, name) for name in COUNTS}
    carry = (jnp.asarray(0), first._replace(**counts), jnp.asarray(jnp.inf))
    last = jax.lax.while_loop(lambda c: (c[0] < SWEEPS) & (c[2] > _REST), body, carry)[1]
    return _params(last, data, config)


def _largest_change(old: EMState, new: EMState) -> Array:
    names = ("log_topics", "psi", "log_rate", "concentration", "shape")
    return jnp.stack([jnp.abs(getattr(old, name) - getattr(new, name)).max() for name in names]).max()


def _params(state: EMState, data: EMData, config: EMConfig) -> Params:
    params = {"topic_logits": state.log_topics.T, "weights": state.weights.T}
    if config.algorithm == "map":
        params["log_embedding"] = jnp.log(state.concentration) - state.log_rate
    else:
        params["log_concentration"], params["log_rate"] = jnp.log(state.concentration), state.log_rate
    if config.learn_shape:
        params["log_shape"] = jnp.log(state.shape)
    if config.precision_prior is not None:
        params["log_precision"] = jnp.log(prior_precision(state.weights, data, config))
    return params


def _sites(params: Params) -> tuple[dict[str, Array], Array]:
    """Return the constrained sites and the log Jacobian of softmax (and of log precisions).

    Precisions that are integrated out leave the same stationary weights as precisions at the mode of their
    logarithm, so they stand here as parameters.
    """
    topics = jax.nn.softmax(params["topic_logits"], axis=1)
    sites, jacobian = {"topics": topics, "weights": params["weights"]}, jnp.log(topics).sum()
    if "log_shape" in params:
        sites["shape"] = jnp.exp(params["log_shape"])
    if "log_precision" in params:
        sites["precision"] = jnp.exp(params["log_precision"])
        jacobian = jacobian + params["log_precision"].sum()
    return sites, jacobian


def log_joint(params: Params, inputs: Mapping[str, Any], variant: Variant) -> Array:
    """Return log p(Y, log U, V, W): the program's density, V in softmax and U in log coordinates."""
    inputs = seen_inputs(inputs, variant)
    sites, jacobian = _sites(params)
    sites["log_unit_embedding"] = params["log_embedding"] - inputs["X"] @ params["weights"].T
    return log_density(summed, (), inputs, sites)[0] + jacobian


def evidence_bound(params: Params, inputs: Mapping[str, Any], variant: Variant) -> Array:
    """Return E_q log p(Y, counts, U, V, W) / q(counts, U): gamma factors, best count factors, points V, W.

    Shapes, where learned, enter with the density of the program (no Jacobian), topics in softmax coordinates.
    """
    inputs = seen_inputs(inputs, variant)
    sites, jacobian = _sites(params)
    names = {k: v for k, v in inputs.items() if k not in ("positives", "negatives")}
    prior, _ = log_density(globals_prior, (), names, sites)
    shape = sites.get("shape", inputs["shape"])
    factor = dist.Gamma(jnp.exp(params["log_concentration"]), jnp.exp(params["log_rate"]))
    program = dist.Gamma(shape, jnp.exp(-inputs["X"] @ params["weights"].T))
    divergence = dist.kl_divergence(factor, program).sum()
    return prior + jacobian - divergence + _count_term(sites["topics"], factor, inputs)


def _count_term(topics: Array, factor: Any, inputs: Mapping[str, Any]) -> Array:
    """E log p(Y, counts | U, V) + entropy of q(counts), the latter at its best given the gamma factors.

    Given E log u, the best factor of a positive's counts is a product of Poissons of rates v exp(E log u)
    conditioned on a total of at least one: the term is the logarithm of sum over m >= 1 of total^m / m!.
    """
    row, label, observed = _dense_cells(inputs)
    log_u = digamma(factor.concentration) - jnp.log(factor.rate)
    log_total = logsumexp(label @ jnp.log(topics.T) + row @ log_u, axis=1)
    m = np.arange(1.0, _SERIES_TERMS)
    series = logsumexp(m * log_total[:, None] - special.gammaln(m + 1), axis=1).sum()
    return series - (observed @ topics.T * factor.mean).sum()


def _dense_cells(inputs: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return tables (positive, obs) and (positive, labels) of the positives, and (obs, labels) of seen cells.

    The data are tiny, and products with tables are compiled sooner than lists are gathered and scattered.
    """
    positives, negatives = inputs["positives"], inputs["negatives"]
    base = np.asarray(negatives.base)
    row, label = np.eye(base.size)[np.asarray(positives.row)], np.eye(inputs["num_labels"])[positives.label]
    zeros = np.repeat(base[:, None], inputs["num_labels"], axis=1)
    np.add.at(zeros, (np.asarray(negatives.row), np.asarray(negatives.label)), np.asarray(negatives.sign))
    return row, label, zeros + row.T @ label


def _case(name: str, variant: Variant, shows: str) -> StationarityCase:
    objective = log_joint if variant.algorithm == "map" else evidence_bound
    faults = tuple(mutant for mutant in MUTANTS if mutant.shown_by == shows)
    right = partial(rest, variant=variant, faults=faults)
    return StationarityCase(
        name=name,
        engine=f"{variant.algorithm}_em",
        fixed_point=right,
        objective=partial(objective, variant=variant),
        mutants=tuple((mutant.name, partial(right, fault=mutant)) for mutant in faults),
    )


CASES = (
    _case(
        "log joint density of topics (softmax), embedding (log) and weights",
        Variant("map", w_step="cg"),
        "map",
    ),
    _case("log joint density, some cells missing", Variant("map", missing=True), "missing"),
    _case("evidence bound, gamma factors of the embedding", Variant("vb"), "vb"),
    _case(
        "evidence bound, cells missing, shapes learned",
        Variant("vb", missing=True, learn_shape=True),
        "shape",
    ),
)
