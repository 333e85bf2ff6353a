"""Stationarity cases of the EM engines: their resting points, and their objectives written from the program.

The objectives here share no formula with `em_objective`: the joint density comes from NumPyro's
``log_density`` of the program with the Jacobians of the softmax and log bases, the bound from NumPyro's
divergence of gamma distributions and the power series of a truncated Poisson.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import digamma, gammaln, logsumexp
from numpyro.infer.util import log_density

from labelzoo.inference.bernoulli_poisson_topics.em import START_SHAPE, begin, em_config
from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData, em_data
from labelzoo.inference.bernoulli_poisson_topics.em_mutants import MUTANTS
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState
from labelzoo.inference.bernoulli_poisson_topics.em_steps import STEPS, Step, sweep
from labelzoo.inference.bernoulli_poisson_topics.em_weights import prior_precision
from labelzoo.inference.bernoulli_poisson_topics.starts import make_start
from labelzoo.inference.checks.stationarity import StationarityCase
from labelzoo.models.bernoulli_poisson_topics import globals_prior, summed
from labelzoo.models.label_cells import Cells, Negatives, exposed_mass

Array = Any
Params = dict[str, Array]

SWEEPS = 20_000
"""Upper limit of sweeps to rest; small inputs need a few hundred to some thousands."""

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
    return {
        **inputs,
        "positives": jax.tree.map(jnp.asarray, cells),
        "negatives": jax.tree.map(jnp.asarray, negatives),
    }


def seen_inputs(inputs: Mapping[str, Any], variant: Variant) -> dict[str, Any]:
    """Return the arguments of the program as `variant` sees them; shapes are fixed at 1 where not given."""
    shape = None if variant.learn_shape else (1.0 if inputs["shape"] is None else inputs["shape"])
    return {**(hide_cells(inputs) if variant.missing else inputs), "shape": shape}


def rest(
    inputs: Mapping[str, Any], variant: Variant, changes: Mapping[str, Step] = MappingProxyType({})
) -> Params:
    """Sweep from a random start until nothing moves, with `changes` in place of the right steps.

    Returns
    -------
    dict
        ``topic_logits`` (topic, labels), ``weights``, ``log_embedding`` ("map") or ``log_concentration`` and
        ``log_rate`` ("vb"); ``log_shape`` and ``log_precision`` where learned.
    """
    inputs = seen_inputs(inputs, variant)
    config = em_config(variant.algorithm, inputs, w_step=variant.w_step, shape_floor=1e-3)
    shape = START_SHAPE if config.learn_shape else float(inputs["shape"])
    data = em_data(inputs)
    start = make_start(inputs, jax.random.key(0), "random", shape)
    steps = {**STEPS, **changes}

    def body(carry: tuple[Array, EMState, Array]) -> tuple[Array, EMState, Array]:
        count, old, _ = carry
        new = sweep(old, data, config, steps)
        return count + 1, new, _largest_change(old, new)

    @jax.jit
    def run() -> Params:
        first = (jnp.asarray(0), begin(start, data, config, shape), jnp.asarray(jnp.inf))
        last = jax.lax.while_loop(lambda c: (c[0] < SWEEPS) & (c[2] > _REST), body, first)[1]
        return _params(last, data, config)

    return run()


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
    positives = inputs["positives"]
    log_u = digamma(factor.concentration) - jnp.log(factor.rate)
    log_total = logsumexp(jnp.log(topics.T[positives.label]) + log_u[positives.row], axis=1)
    m = jnp.arange(1.0, _SERIES_TERMS)
    series = logsumexp(m * log_total[:, None] - gammaln(m + 1), axis=1).sum()
    seen = exposed_mass(topics, jnp.ones(positives.row.shape[0]), positives, inputs["negatives"])
    return series - (seen * factor.mean).sum()


def _case(name: str, variant: Variant, shows: str) -> StationarityCase:
    objective = log_joint if variant.algorithm == "map" else evidence_bound
    wrong = [
        (m.name, partial(rest, variant=variant, changes=m.steps)) for m in MUTANTS if m.shown_by == shows
    ]
    return StationarityCase(
        name=name,
        engine=f"{variant.algorithm}_em",
        fixed_point=partial(rest, variant=variant),
        objective=partial(objective, variant=variant),
        mutants=tuple(wrong),
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
