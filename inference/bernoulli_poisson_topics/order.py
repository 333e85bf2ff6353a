"""The sweeps of both Gibbs samplers of Bernoulli-Poisson topics on one row of labels, and wrong orders.

(r, W) are drawn with the embedding U integrated out, so nothing may read U before it is drawn again; the
counts of the missing cells and the Polya-Gamma variables are stale in the same way. U, the hidden counts and
omega therefore have Gauss nodes or all values that matter; of the other sites any few values do.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import Uniform

from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics.arrivals import ARRIVAL_UPDATES
from labelzoo.inference.bernoulli_poisson_topics.counts import COUNT_UPDATES
from labelzoo.inference.bernoulli_poisson_topics.row_scale import ROW_SCALE_UPDATE, row_scale_given_rest
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import KEPT
from labelzoo.inference.checks.marginal import Nodes, log_scale_nodes, product_nodes, whole_numbers
from labelzoo.inference.checks.order import OrderCase, aged, gauss_gamma, moved, points
from labelzoo.inference.update import Update
from labelzoo.models.bernoulli_poisson_topics import arrivals
from labelzoo.models.bernoulli_poisson_topics_card import spec

Inputs = Mapping[str, Any]

ARRIVALS, TOPICS, SHAPE_WEIGHTS, EMBEDDING, PRECISION = ARRIVAL_UPDATES
(
    COUNTS,
    HIDDEN,
    COUNT_TOPICS,
    TABLES,
    SHAPE,
    OMEGA,
    WEIGHTS,
    COUNT_EMBEDDING,
    COUNT_PRECISION,
) = COUNT_UPDATES

SETTINGS = {
    "topic_concentration": 0.7,
    "precision_prior": (2.0, 1.0),
    "intercept": False,
    "scale_rows": False,
    "standardize": False,
}
EMBEDDING_RATE = 1.4
"""Rates s + e^-psi of the embedding lie between .7 and 2.5 on these nodes."""
MOST_COUNTS, MOST_HIDDEN = 4, 22


def inputs_of(labels: list[float], num_topics: int) -> dict[str, Any]:
    """Prepare one row with one feature and these labels (NaN: missing)."""
    data = LabelData.from_arrays(np.array([[0.8]]), np.array([labels]))
    return spec.prepare(data, spec.resolve({**SETTINGS, "num_topics": num_topics}))


def shared_nodes(num_topics: int, embedding: int) -> dict[str, Nodes]:
    """Return nodes of what both sweeps have but the topics; whole shapes suit the embedding's nodes."""
    k = num_topics
    return {
        "weights": product_nodes(points(-0.5, 0.6), (k, 1)),
        "shape": product_nodes(points(1.0, 2.0), (k,)),
        "precision": points([0.6], [2.5]),
        "embedding": product_nodes(gauss_gamma(1.0, EMBEDDING_RATE, embedding), (1, k)),
    }


def arrival_nodes(inputs: Inputs) -> dict[str, Nodes]:
    """Return nodes for two topics, two labels and one positive."""
    simplex = [np.array([v, 1.0 - v]) for v in (0.25, 0.6)]
    pairs = [np.stack([one, other]) for one in simplex for other in simplex]
    return {
        **shared_nodes(2, 12),
        "topics": points(*pairs),
        "arrival_time": points([0.2], [0.7]),
        "arrival_topic": points([0], [1]),
    }


def count_nodes(inputs: Inputs) -> dict[str, Nodes]:
    """Return nodes for one topic and three labels: positive, zero, missing."""
    hidden = np.zeros((MOST_HIDDEN + 1, 1, 3), int)
    hidden[:, 0, 2] = np.arange(MOST_HIDDEN + 1)
    return {
        **shared_nodes(1, 20),
        "topics": points([[0.5, 0.3, 0.2]], [[0.2, 0.5, 0.3]], [[0.35, 0.25, 0.4]]),
        "counts": product_nodes(whole_numbers(1, MOST_COUNTS), (1, 1)),
        "hidden_counts": points(*hidden),
        "tables": product_nodes(whole_numbers(0, MOST_COUNTS), (1, 1)),
        "omega": product_nodes(log_scale_nodes(-4.5, 2.4, 60), (1, 1)),
    }


RATIO = float(np.exp(0.33))
"""Of neighbouring nodes of the embedding and of the times: their products are nodes again."""


def lattice_nodes(inputs: Inputs) -> dict[str, Nodes]:
    """Return nodes for one topic, a positive and a zero: u and t on powers of one number.

    The trapezoidal rule in log u integrates the embedding out to 1e-10.
    """
    power = np.arange(-42, 14)
    size, times = RATIO**power, RATIO ** -np.arange(4.0)
    scaled = RATIO ** np.arange(-45.0, 14.0)
    return {
        **shared_nodes(1, 1),
        "embedding": Nodes(size.reshape(-1, 1, 1), np.log(size)),
        "topics": points([[0.7, 0.3]], [[0.4, 0.6]]),
        "arrival_time": Nodes(times[:, None], np.log(times)),
        "arrival_topic": points([0]),
        "scaled_time": points(*scaled[:, None]),
    }


def arrivals_scaled(X: Any, positives: Any, negatives: Any, **globals_: Any) -> None:
    """The program with e = t u beside t and u: one topic."""
    arrivals(X, positives, negatives, **globals_)
    with numpyro.plate("positive", positives.row.shape[0]):
        numpyro.sample("scaled_time", Uniform(0.0, 1.0))


def _same(one: Any, other: Any) -> Any:
    return jnp.where(jnp.abs(jnp.log(one) - jnp.log(other)).max() < 1e-9, 0.0, -jnp.inf)


def _scaled_times(state: Any, inputs: Inputs) -> Any:
    expected = state["arrival_time"] * state["embedding"][:, 0]
    return lambda block: _same(block["scaled_time"], expected)


def _rescaled(state: Any, inputs: Inputs) -> Any:
    """Return the claim of the row scale move as a law of (u, t) on the line t u = e."""
    polar = {**state, "embedding_share": jnp.ones((1, 1))}
    claim = row_scale_given_rest(polar, inputs)

    def log_density(block: Mapping[str, Any]) -> Any:
        size = block["embedding"][:, 0]
        on_line = _same(block["arrival_time"] * size, state["scaled_time"])
        # Rounding must not move t = 1 over the cut; the nodes of the line are even in log c.
        cut = claim({"embedding_size": size * (1.0 + 1e-12)})
        return on_line + cut + jnp.log(size).sum()

    return log_density


SCALED_TIMES = Update(
    name="scaled_times", sites=("scaled_time",), view="arrivals_scaled", given=_scaled_times
)
ROW_SCALE = Update(
    name=ROW_SCALE_UPDATE.name,
    sites=("embedding", "arrival_time"),
    view="arrivals_scaled",
    given=_rescaled,
)
SCALED_SWEEP = (ARRIVALS, SCALED_TIMES, ROW_SCALE, TOPICS, SHAPE_WEIGHTS, EMBEDDING, PRECISION)


def _scaled_late(after: Update) -> tuple[Update, ...]:
    """Return the sweep with the row scale move at another place."""
    rest = (ARRIVALS, TOPICS, SHAPE_WEIGHTS, EMBEDDING, PRECISION)
    at = rest.index(after) + 1
    return (*rest[:at], SCALED_TIMES, ROW_SCALE, *rest[at:])


CASES = (
    OrderCase(
        name="first-arrival sweep: (t, z), V, (r, W), U, tau",
        engine="gibbs",
        view="arrivals",
        inputs=lambda: inputs_of([1.0, 0.0], 2),
        nodes=arrival_nodes,
        updates=ARRIVAL_UPDATES,
        kept=KEPT,
        mutants=(
            ("U before (r, W) and not redrawn", moved(ARRIVAL_UPDATES, EMBEDDING, after=TOPICS)),
            ("V between (r, W) and U", moved(ARRIVAL_UPDATES, TOPICS, after=SHAPE_WEIGHTS)),
            ("(t, z) between (r, W) and U", moved(ARRIVAL_UPDATES, ARRIVALS, after=SHAPE_WEIGHTS)),
            ("(r, W) given the old V", aged(ARRIVAL_UPDATES, SHAPE_WEIGHTS, "topics")),
            ("(r, W) given the old t", aged(ARRIVAL_UPDATES, SHAPE_WEIGHTS, "arrival_time")),
            ("U given the old (r, W)", aged(ARRIVAL_UPDATES, EMBEDDING, "shape", "weights")),
            ("U given the old V", aged(ARRIVAL_UPDATES, EMBEDDING, "topics")),
            ("U given the old (t, z)", aged(ARRIVAL_UPDATES, EMBEDDING, "arrival_time", "arrival_topic")),
            ("U never redrawn", (ARRIVALS, TOPICS, SHAPE_WEIGHTS, PRECISION)),
            ("tau given the old W", aged(ARRIVAL_UPDATES, PRECISION, "weights")),
        ),
    ),
    OrderCase(
        name="first-arrival sweep with the row scale move: (t, z), scale, V, (r, W), U, tau",
        engine="gibbs",
        view="arrivals",
        inputs=lambda: inputs_of([1.0, 0.0], 1),
        nodes=lattice_nodes,
        updates=SCALED_SWEEP,
        kept=KEPT,
        mutants=(
            ("row scale between (r, W) and U", _scaled_late(SHAPE_WEIGHTS)),
            ("V given the t from before the scaling", aged(SCALED_SWEEP, TOPICS, "arrival_time")),
            ("U given the old V", aged(SCALED_SWEEP, EMBEDDING, "topics")),
        ),
        views={"arrivals_scaled": arrivals_scaled},
    ),
    OrderCase(
        name="count sweep: m, hidden, V, tables, r, omega, W, U, tau",
        engine="gibbs_counts",
        view="counts",
        inputs=lambda: inputs_of([1.0, 0.0, np.nan], 1),
        nodes=count_nodes,
        updates=COUNT_UPDATES,
        kept=KEPT,
        mutants=(
            ("U before (r, W) and not redrawn", moved(COUNT_UPDATES, COUNT_EMBEDDING, after=COUNT_TOPICS)),
            ("U between r and W", moved(COUNT_UPDATES, COUNT_EMBEDDING, after=SHAPE)),
            ("omega before r", moved(COUNT_UPDATES, OMEGA, after=COUNT_TOPICS)),
            ("hidden counts between (r, W) and U", moved(COUNT_UPDATES, HIDDEN, after=WEIGHTS)),
            ("V after (r, W), of stale hidden counts", moved(COUNT_UPDATES, COUNT_TOPICS, after=WEIGHTS)),
            ("m between (r, W) and U", moved(COUNT_UPDATES, COUNTS, after=WEIGHTS)),
            ("tables of the old counts", aged(COUNT_UPDATES, TABLES, "counts")),
            ("r given the old V", aged(COUNT_UPDATES, SHAPE, "topics")),
            ("W given the old r", aged(COUNT_UPDATES, WEIGHTS, "shape")),
            ("U given the old W", aged(COUNT_UPDATES, COUNT_EMBEDDING, "weights")),
        ),
    ),
)
