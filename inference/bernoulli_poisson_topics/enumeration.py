"""The views of Bernoulli-Poisson topics are one model: sums and quadrature on one row of labels.

Each case leaves one row, two or three labels and one or two topics, so that arrival times and embeddings fit
on product grids of Gauss nodes and topics, counts and tables on grids of whole numbers.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from labelzoo.data import LabelData
from labelzoo.inference.checks.marginal import (
    EnumerationCase,
    Nodes,
    gauss_legendre,
    log_scale_nodes,
    product_nodes,
    whole_numbers,
)
from labelzoo.models.bernoulli_poisson_topics_card import spec

Inputs = Mapping[str, Any]
State = Mapping[str, Any]

SETTINGS = {"topic_concentration": 0.7, "standardize": False, "scale_rows": False, "intercept": False}
LOG_EMBEDDING = (-45.0, 6.0)
"""Range of log u: with shapes above .8 less than e^-36 of the mass lies outside."""
MOST_COUNTS = 6
"""Largest count of a topic in the states of the views that condition on counts."""


def inputs_of(labels: list[float], num_topics: int) -> Callable[[], dict[str, Any]]:
    """Return a function that prepares one row with these labels (NaN: missing) and its features as they are.

    Standardised, the features of a single row would be zero.
    """

    def prepare() -> dict[str, Any]:
        data = LabelData.from_arrays(np.array([[0.8, -0.5]]), np.array([labels]))
        return spec.prepare(data, spec.resolve({**SETTINGS, "num_topics": num_topics}))

    return prepare


def draw_globals(rng: np.random.Generator, inputs: Inputs) -> dict[str, Any]:
    """Draw topics, weights and shapes of moderate size."""
    k = inputs["num_topics"]
    return {
        "topics": rng.dirichlet(np.full(inputs["num_labels"], 1.5), k),
        "weights": 0.4 * rng.standard_normal((k, inputs["X"].shape[1])),
        "shape": rng.uniform(0.8, 3.0, k),
    }


def summed_states(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw states of ``summed``."""
    size = (inputs["X"].shape[0], inputs["num_topics"])
    return [
        {**draw_globals(rng, inputs), "log_unit_embedding": rng.uniform(-1.5, 1.0, size)} for _ in range(6)
    ]


def arrival_states(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw states of ``arrivals_collapsed``."""
    size, k = len(inputs["positives"].row), inputs["num_topics"]
    return [
        {
            **draw_globals(rng, inputs),
            "arrival_time": rng.uniform(0.05, 0.95, size),
            "arrival_topic": rng.integers(0, k, size),
        }
        for _ in range(6)
    ]


def count_states(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw states of the views that have counts and no embedding; the first has a zero count."""
    size = (len(inputs["positives"].row), inputs["num_topics"])
    states = []
    for index in range(6):
        m = rng.integers(1, MOST_COUNTS // size[0] + 1, size)
        m[0, 1:] = 0 if index == 0 else m[0, 1:]
        states.append({**draw_globals(rng, inputs), "counts": m})
    return states


def embedded_states(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw states of ``counts_observed``."""
    size = (inputs["X"].shape[0], inputs["num_topics"])
    return [{**state, "embedding": rng.uniform(0.2, 2.0, size)} for state in count_states(rng, inputs)]


def with_embedding(state: State, inputs: Inputs) -> tuple[State, Any]:
    """Write u = g exp(psi) for log g: log |du / d log g| = log u."""
    rest = dict(state)
    log_u = rest.pop("log_unit_embedding") + np.asarray(inputs["X"]) @ rest["weights"].T
    return {**rest, "embedding": np.exp(log_u)}, log_u.sum()


def arrival_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return Gauss nodes of the arrival times and all topics, at every positive."""
    size = (len(inputs["positives"].row),)
    return {
        "arrival_time": product_nodes(gauss_legendre(0.0, 1.0, 14), size),
        "arrival_topic": product_nodes(whole_numbers(0, inputs["num_topics"] - 1), size),
    }


def embedding_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return Gauss nodes of log u at every topic."""
    size = (inputs["X"].shape[0], inputs["num_topics"])
    return {"embedding": product_nodes(log_scale_nodes(*LOG_EMBEDDING, 150), size)}


def counts_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return all counts up to 45 a topic: rates are a few units."""
    size = (len(inputs["positives"].row), inputs["num_topics"])
    return {"counts": product_nodes(whole_numbers(0, 45), size)}


def hidden_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return hidden counts of one topic up to 25 for the last label, up to 3 for those that are observed.

    Only the last label is missing; the rates of the others are zero, those of the last one below 2.
    """
    num_labels = inputs["num_labels"]
    index = np.indices((*(4,) * (num_labels - 1), 26)).reshape(num_labels, -1)
    return {"hidden_counts": Nodes(index.T[:, None, :], np.zeros(index.shape[1]))}


def tables_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return all numbers of tables of up to `MOST_COUNTS` customers."""
    size = (inputs["X"].shape[0], inputs["num_topics"])
    return {"tables": product_nodes(whole_numbers(0, MOST_COUNTS), size)}


def omega_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return Gauss nodes of log omega at every topic."""
    size = (inputs["X"].shape[0], inputs["num_topics"])
    return {"omega": product_nodes(log_scale_nodes(-7.0, 3.5, 120), size)}


def _zeros_times(factor: float) -> Callable[[Inputs], Inputs]:
    """Return a change of the inputs that counts every observed zero `factor` times."""

    def change(inputs: Inputs) -> Inputs:
        zeros = inputs["negatives"]
        base, sign = factor * np.asarray(zeros.base), factor * np.asarray(zeros.sign)
        return {**inputs, "negatives": zeros._replace(base=base, sign=sign)}

    return change


def _reversed(inputs: Inputs) -> Inputs:
    return {**inputs, "X": -np.asarray(inputs["X"])}


UNEXPOSED = ("exposure of the observed zeros dropped", _zeros_times(0.0))
DOUBLED = ("observed zeros counted twice", _zeros_times(2.0))
PSI_REVERSED = ("sign of psi", _reversed)

CASES = (
    EnumerationCase(
        name="arrivals -> summed",
        view_from="arrivals",
        view_to="summed",
        sites=("arrival_time", "arrival_topic"),
        inputs=inputs_of([1.0, 0.0, 1.0], num_topics=2),
        states=summed_states,
        grid=arrival_grid,
        carry=with_embedding,
        wrong_inputs=(UNEXPOSED, PSI_REVERSED),
    ),
    EnumerationCase(
        name="arrivals -> arrivals_collapsed",
        view_from="arrivals",
        view_to="arrivals_collapsed",
        sites=("embedding",),
        inputs=inputs_of([1.0, 0.0, 1.0], num_topics=2),
        states=arrival_states,
        grid=embedding_grid,
        wrong_inputs=(UNEXPOSED, PSI_REVERSED),
    ),
    EnumerationCase(
        name="counts_observed -> summed",
        view_from="counts_observed",
        view_to="summed",
        sites=("counts",),
        inputs=inputs_of([1.0, 0.0], num_topics=2),
        states=summed_states,
        grid=counts_grid,
        carry=with_embedding,
        wrong_inputs=(UNEXPOSED,),
    ),
    EnumerationCase(
        name="counts -> counts_observed",
        view_from="counts",
        view_to="counts_observed",
        sites=("hidden_counts",),
        inputs=inputs_of([1.0, 0.0, 1.0, np.nan], num_topics=1),
        states=embedded_states,
        grid=hidden_grid,
        wrong_inputs=(DOUBLED,),
    ),
    EnumerationCase(
        name="counts_observed -> counts_tables",
        view_from="counts_observed",
        view_to="counts_tables",
        sites=("embedding", "tables"),
        inputs=inputs_of([1.0, 0.0], num_topics=2),
        states=count_states,
        grid=embedding_grid,
        grid_to=tables_grid,
        wrong_inputs=(UNEXPOSED, PSI_REVERSED),
    ),
    EnumerationCase(
        name="counts_observed -> counts_polya_gamma",
        view_from="counts_observed",
        view_to="counts_polya_gamma",
        sites=("embedding", "omega"),
        inputs=inputs_of([1.0, 0.0, 1.0, np.nan], num_topics=1),
        states=count_states,
        grid=embedding_grid,
        grid_to=omega_grid,
        wrong_inputs=(UNEXPOSED, PSI_REVERSED),
    ),
)
