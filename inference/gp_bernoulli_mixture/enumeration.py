"""The views marginalise to one another: sums over z and v, quadrature over lambda and omega, on two rows."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from labelzoo.data import LabelData
from labelzoo.inference.checks.marginal import (
    EnumerationCase,
    Nodes,
    log_scale_nodes,
    product_nodes,
    whole_numbers,
)
from labelzoo.inference.distributions import AtomPolyaGamma
from labelzoo.models import gp_bernoulli_mixture as model
from labelzoo.models.gp_bernoulli_mixture_card import spec

Array = Any
Inputs = Mapping[str, Any]

RATE_NODES, LOG_RATE = 220, (-26.0, 9.0)
"""log lambda; below e^-26 the integrand has e^-26 of its mass, above e^9 nothing where sum sigma(f) > .01."""
MOST_COUNT = 70
"""Counts beyond have less than 1e-17 of the mass of a Poisson law of rate 12."""
OMEGA_NODES, LOG_OMEGA = 90, (-6.5, 3.2)


def tiny_inputs(rows: int = 2, *, gate_mean: float = -0.4) -> dict[str, Any]:
    """Return `rows` rows, two components and two labels, one label hidden, each component its own prior."""
    Y = np.array([[1.0, np.nan], [0.0, 1.0], [0.0, 0.0]])[:rows]
    settings = spec.resolve({"num_components": 2, "gate_mean": gate_mean, "amplitude": 1.5, "kernel": "rbf"})
    inputs = spec.prepare(LabelData(np.array([[0.7], [-1.3], [0.2]])[:rows], Y), settings)
    prior = {"prior_positive": [[2.0, 0.7], [0.6, 1.5]], "prior_negative": [[0.8, 1.2], [2.2, 0.5]]}
    return {**inputs, **{name: np.array(value) for name, value in prior.items()}}


def draw_states(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw gates from near their mean to far out, and probabilities."""
    components, labels = inputs["prior_positive"].shape
    basis = inputs["factor"].shape[1]
    return [
        {
            "white": scale * rng.standard_normal((components, basis)),
            "component_probs": rng.uniform(0.1, 0.9, (components, labels)),
        }
        for scale in (0.0, 0.3, 0.6, 0.9, 1.2)
    ]


def draw_assigned(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw states with assignments, all four of two rows among them."""
    rows = inputs["Y"].shape[0]
    values = [np.array([i % 2, (i // 2) % 2])[:rows] for i in range(5)]
    return [{**s, "assignment": z} for s, z in zip(draw_states(rng, inputs), values, strict=True)]


def draw_waiting(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw states with assignments and rates up to 12."""
    rows = inputs["Y"].shape[0]
    rates = (np.full(rows, 0.1), np.full(rows, 12.0), *rng.gamma(1.0, 2.0, (3, rows)).clip(0.01, 12.0))
    return [{**s, "rate": rate} for s, rate in zip(draw_assigned(rng, inputs), rates, strict=True)]


def draw_counted(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw states with counts, the same ones in all of them but the first, zeros among them."""
    counts = [[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 2.0]], [[1.0, 1.0]], [[3.0, 1.0]]]
    return [{**s, "count": np.array(v)} for s, v in zip(draw_waiting(rng, inputs), counts, strict=True)]


def assignment_grid(state: Mapping[str, Any], inputs: Inputs) -> dict[str, Nodes]:
    """Return all K^N assignments."""
    K, rows = inputs["prior_positive"].shape[0], inputs["Y"].shape[0]
    return {"assignment": product_nodes(whole_numbers(0, K - 1), (rows,))}


def rate_grid(state: Mapping[str, Any], inputs: Inputs) -> dict[str, Nodes]:
    """Return Gauss nodes for log lambda of every row."""
    return {"rate": product_nodes(log_scale_nodes(*LOG_RATE, RATE_NODES), inputs["Y"].shape[:1])}


def count_grid(state: Mapping[str, Any], inputs: Inputs) -> dict[str, Nodes]:
    """Return all counts up to `MOST_COUNT` of one row's components."""
    shape = (inputs["Y"].shape[0], inputs["prior_positive"].shape[0])
    nodes = whole_numbers(0, MOST_COUNT)
    return {"count": product_nodes(Nodes(1.0 * nodes.values, nodes.log_weights), shape)}


def omega_grid(state: Mapping[str, Any], inputs: Inputs) -> dict[str, Nodes]:
    """Return Gauss nodes for log omega of every gate, and the atom at 0 as a node of its own."""
    positive = log_scale_nodes(*LOG_OMEGA, OMEGA_NODES)
    nodes = Nodes(np.append(positive.values, 0.0), np.append(positive.log_weights, 0.0))
    return {"omega": product_nodes(nodes, (inputs["Y"].shape[0], inputs["prior_positive"].shape[0]))}


def one_row() -> dict[str, Any]:
    """Return one row, of two counts and two omega."""
    return tiny_inputs(1)


def three_rows() -> dict[str, Any]:
    """Return three rows, of eight assignments."""
    return tiny_inputs(3)


def _shared(inputs: Inputs) -> model.Gated:
    names = ("factor", "prior_positive", "prior_negative", "gate_mean")
    factor, a0, b0, mean = (inputs[name] for name in names)
    return model.gated(factor, a0, b0, mean, None)


def _softmax(**inputs: Any) -> None:
    """`assigned` with the softmax of f for its gate."""
    probs, f = _shared(inputs)
    with numpyro.plate("obs", f.shape[0]):
        z = numpyro.sample("assignment", dist.Categorical(logits=f))
    scores = model.label_scores(probs, inputs["Y"], inputs["observed"])
    numpyro.factor("Y", model.chosen(scores, z).sum())


def _proper_rate(**inputs: Any) -> None:
    """`waiting` with the prior Exponential(1) of lambda for the flat one."""
    with numpyro.handlers.block(hide=["flat"]):
        model.waiting(**inputs)


def _without_waiting(**inputs: Any) -> None:
    """`counted` with the counts of all components but the assigned one left out of the gate."""
    shared = _shared(inputs)
    z, rate = model.assignment_and_rate(shared, inputs["Y"], inputs["observed"])
    v = model.sample_counts(shared, rate)
    gate = jax.nn.log_sigmoid(shared.f) + v * jax.nn.log_sigmoid(-shared.f)
    numpyro.factor("gate", model.chosen(gate, z).sum())


def _omega_view(shape: Any, powers: Any) -> Any:
    """Return `augmented` with omega ~ PG(shape(z, v), 0) and 2^-powers(z, v)."""

    def view(**inputs: Any) -> None:
        shared = _shared(inputs)
        z, rate = model.assignment_and_rate(shared, inputs["Y"], inputs["observed"])
        v = model.sample_counts(shared, rate)
        own = jax.nn.one_hot(z, shared.f.shape[1], dtype=shared.f.dtype)
        with numpyro.plate("obs", shared.f.shape[0]):
            omega = numpyro.sample("omega", AtomPolyaGamma(shape(own, v), 0.0).to_event(1))
        fit = 0.5 * (own - v) * shared.f - 0.5 * omega * shared.f**2
        numpyro.factor("gate", (fit - powers(own, v) * np.log(2.0)).sum())

    return view


def _all_observed(inputs: Inputs) -> dict[str, Any]:
    return {**inputs, "observed": np.ones_like(inputs["observed"])}


def _without_mean(inputs: Inputs) -> dict[str, Any]:
    return {**inputs, "gate_mean": 0.0}


CASES = (
    EnumerationCase(
        name="assigned -> summed",
        view_from="assigned",
        view_to="summed",
        sites=("assignment",),
        inputs=three_rows,
        states=draw_states,
        grid=assignment_grid,
        mutants=(("softmax of f for the gate", _softmax),),
        wrong_inputs=(("missing cells read as zeros", _all_observed), ("gate mean missing", _without_mean)),
    ),
    EnumerationCase(
        name="waiting -> assigned",
        view_from="waiting",
        view_to="assigned",
        sites=("rate",),
        inputs=one_row,
        states=draw_assigned,
        grid=rate_grid,
        mutants=(("prior Exponential(1) of lambda", _proper_rate),),
        wrong_inputs=(("gate mean missing", _without_mean),),
    ),
    EnumerationCase(
        name="counted -> waiting",
        view_from="counted",
        view_to="waiting",
        sites=("count",),
        inputs=one_row,
        states=draw_waiting,
        grid=count_grid,
        mutants=(("counts of the assigned component alone", _without_waiting),),
        wrong_inputs=(("gate mean missing", _without_mean),),
    ),
    EnumerationCase(
        name="augmented -> counted",
        view_from="augmented",
        view_to="counted",
        sites=("omega",),
        inputs=one_row,
        states=draw_counted,
        grid=omega_grid,
        mutants=(
            ("omega ~ PG(v, 0), as printed in equation 7", _omega_view(lambda z, v: v, lambda z, v: z + v)),
            ("2^-z for 2^-(z + v)", _omega_view(lambda z, v: z + v, lambda z, v: z + 0.0 * v)),
            ("omega ~ PG(1 + v, 0)", _omega_view(lambda z, v: 1.0 + v, lambda z, v: z + v)),
        ),
    ),
)
