"""Conditionals of the samplers against the joint at edge cases of the labels, and their planted faults."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpyro.infer.util import log_density

from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics.arrivals import ARRIVAL_UPDATES
from labelzoo.inference.bernoulli_poisson_topics.counts import COUNT_UPDATES, PositivePoissons
from labelzoo.inference.bernoulli_poisson_topics.row_scale import ROW_SCALE_UPDATE
from labelzoo.inference.update import Update
from labelzoo.models.bernoulli_poisson_topics import VIEWS
from labelzoo.models.bernoulli_poisson_topics_card import spec
from labelzoo.models.label_cells import missing_embedding

ROWS, LABELS, FEATURES, TOPICS = 7, 4, 2, 2
LIMIT = 1e-9
GLOBALS = ("topics", "weights", "shape", "precision")
VIEW_SITES = {
    "arrivals": (*GLOBALS, "embedding", "arrival_time", "arrival_topic"),
    "arrivals_polar": (*GLOBALS, "embedding_size", "embedding_share", "scaled_time", "arrival_topic"),
    "arrivals_collapsed": (*GLOBALS, "arrival_time", "arrival_topic"),
    "counts": (*GLOBALS, "embedding", "counts", "hidden_counts"),
    "counts_observed": (*GLOBALS, "embedding", "counts"),
    "counts_tables": (*GLOBALS, "counts", "tables"),
    "counts_polya_gamma": (*GLOBALS, "counts", "omega"),
}
ALL_UPDATES = (*ARRIVAL_UPDATES, ROW_SCALE_UPDATE, *COUNT_UPDATES)
UPDATES = {f"{update.view}.{update.name}": update for update in ALL_UPDATES}


def _labels(missing: bool) -> np.ndarray:
    """Rows of zeros and of ones; with `missing`, a wholly missing row and partly missing rows."""
    Y = (np.random.default_rng(0).random((ROWS, LABELS)) < 0.5).astype(float)
    Y[0], Y[1] = 0.0, 1.0
    if missing:
        Y[2] = np.nan
        Y[0, 2], Y[1, 0], Y[3, 1:] = np.nan, np.nan, np.nan
    return Y


def _inputs(missing: bool) -> dict[str, Any]:
    X = np.random.default_rng(1).standard_normal((ROWS, FEATURES))
    settings = {"num_topics": TOPICS, "topic_concentration": 0.4, "precision_prior": (2.0, 1.0)}
    return spec.prepare(LabelData.from_arrays(X, _labels(missing)), spec.resolve(settings))


INPUTS = {"complete": _inputs(False), "missing": _inputs(True)}


def _state(inputs: dict[str, Any], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw every site of every view from wide laws (not from the program)."""
    row = np.asarray(inputs["positives"].row)
    m = rng.poisson(1.0, (row.size, TOPICS))
    m[:, 0] += m.sum(axis=1) == 0
    embedding = rng.gamma(1.0, 1.0, (ROWS, TOPICS))
    cells = (inputs["positives"], inputs["negatives"], LABELS)
    hidden = np.asarray(missing_embedding(jnp.asarray(embedding), *cells)) > 0
    return {
        "topics": rng.dirichlet(np.ones(LABELS), TOPICS),
        "weights": rng.standard_normal((TOPICS, inputs["X"].shape[1])),
        "shape": rng.gamma(2.0, 1.0, TOPICS),
        "precision": rng.gamma(2.0, 1.0, inputs["X"].shape[1]),
        "embedding": embedding,
        # Sizes above 1 and scaled times below it: every state has positive density.
        "embedding_size": 1.0 + rng.gamma(2.0, 1.0, ROWS),
        "embedding_share": rng.dirichlet(np.ones(TOPICS), ROWS),
        "scaled_time": rng.random(row.size),
        "arrival_time": rng.random(row.size),
        "arrival_topic": rng.integers(0, TOPICS, row.size),
        "counts": m,
        "hidden_counts": np.where(hidden, rng.poisson(1.0, (TOPICS, LABELS)), 0),
        "omega": rng.gamma(1.0, 0.3, (ROWS, TOPICS)),
        "tables": _tables(m, row, rng),
    }


def _tables(m: np.ndarray, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    total = np.zeros((ROWS, TOPICS), int)
    np.add.at(total, row, m)
    return np.where(total > 0, 1 + rng.integers(0, 1000, total.shape) % np.maximum(total, 1), 0)


def _block(update: Update, state: dict[str, np.ndarray], inputs: dict[str, Any], rng: Any) -> dict[str, Any]:
    other = _state(inputs, rng)
    other["tables"] = _tables(state["counts"], np.asarray(inputs["positives"].row), rng)
    return {site: other[site] for site in update.sites}


def _log_claim(claim: Any, block: dict[str, Any]) -> float:
    if isinstance(claim, dict):
        return float(sum(jnp.sum(claim[site].log_prob(block[site])) for site in block))
    if hasattr(claim, "log_prob"):
        return float(jnp.sum(claim.log_prob(next(iter(block.values())))))
    return float(claim(block))


def _residual(update: Update, given: Any, inputs: dict[str, Any]) -> float:
    """Return the spread, over values of the block, of log joint less log claim, over its size."""
    rng, worst = np.random.default_rng(2), 0.0
    for _ in range(2):
        state = _state(inputs, rng)
        claim, gaps, sizes = given(state, inputs), [], []
        for block in (_block(update, state, inputs, rng) for _ in range(3)):
            values = {site: {**state, **block}[site] for site in VIEW_SITES[update.view]}
            log_p = float(log_density(VIEWS[update.view], (), inputs, values)[0])
            gaps.append(log_p - _log_claim(claim, block))
            sizes.append(abs(log_p))
        assert np.isfinite(sizes).all(), "the states of this test must have positive density"
        spread = np.ptp(gaps) if np.isfinite(gaps).all() else np.inf
        worst = max(worst, spread / max(1.0, *sizes))
    return worst


@pytest.mark.parametrize("labels", INPUTS)
@pytest.mark.parametrize("name", UPDATES)
def test_conditional_is_that_of_the_joint(name: str, labels: str) -> None:
    worst = _residual(UPDATES[name], UPDATES[name].given, INPUTS[labels])
    assert worst < LIMIT, f"{name}, {labels} labels: relative residual {worst:.2g}"


@pytest.mark.filterwarnings("ignore:Out-of-support values:UserWarning")
@pytest.mark.parametrize("name", [name for name, update in UPDATES.items() if update.mutants])
def test_planted_faults_are_rejected(name: str) -> None:
    update = UPDATES[name]
    for mutant in update.mutants:
        noticed = any(
            _residual(update, mutant.given, INPUTS[labels]) > 1e-4 for labels in ("missing", "complete")
        )
        assert noticed, f"{name}: fault not noticed: {mutant.name}"


def test_shapes_that_are_fixed_leave_the_target_of_the_weights() -> None:
    """With the shape a setting, the density of the weights still matches the view."""
    inputs = {**INPUTS["missing"], "shape": 0.7}
    update = next(u for u in ARRIVAL_UPDATES if u.name == "shape_and_weights_given_arrivals")
    rng = np.random.default_rng(3)
    state, gaps = _state(inputs, rng), []
    for _ in range(4):
        block = {"weights": _state(inputs, rng)["weights"]}
        values = {**{s: state[s] for s in VIEW_SITES[update.view]}, **block}
        del values["shape"]
        log_p = float(log_density(VIEWS[update.view], (), inputs, values)[0])
        gaps.append(log_p - float(update.given(state, inputs)(block)))
    assert np.ptp(gaps) < 1e-9 * max(1.0, np.abs(gaps).max())


def test_positive_poissons_draw_the_law_they_claim() -> None:
    """Frequencies of 6e4 draws against probabilities, rates from 1e-3 to 3; seed 4."""
    rates = jnp.array([[0.001, 0.002], [0.4, 0.3], [3.0, 0.5]])
    claim, size = PositivePoissons(jnp.log(rates)), 60_000
    draws = np.asarray(jax.jit(claim.sample, static_argnums=1)(jax.random.key(4), (size,)))
    assert (draws.sum(axis=2) > 0).all()
    table: Array = jnp.stack(jnp.meshgrid(jnp.arange(40), jnp.arange(40), indexing="ij"), axis=-1)
    p = np.exp(jax.vmap(jax.vmap(lambda value: claim.log_prob(jnp.broadcast_to(value, (3, 2)))))(table))
    np.testing.assert_allclose(p.sum(axis=(0, 1)), 1.0, rtol=1e-10)
    for first, second in np.ndindex(5, 4):
        found = (draws == (first, second)).all(axis=2).mean(axis=0)
        error = np.sqrt(p[first, second] * (1 - p[first, second]) / size + 25 / size**2)
        z = (found - p[first, second]) / error
        assert np.abs(z).max() < 5, f"counts {first}, {second}: z {z}, seed 4"
