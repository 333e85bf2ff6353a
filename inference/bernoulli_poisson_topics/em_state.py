"""The configuration and the state of an EM run."""

from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from labelzoo.inference.bernoulli_poisson_topics.fast_functions import positive_digamma

Array = Any
WStep = Literal["newton", "cg", "exact", "preconditioned", "newton_preconditioned"]


class EMConfig(NamedTuple):
    """What a sweep does; hashable, so that it is static under ``jit``.

    Attributes
    ----------
    algorithm : {"map", "vb"}
    topic_concentration : float
        eta.
    shape_prior : tuple of float
        (e0, f0) of the gamma prior of the shapes.
    learn_shape : bool
        Maximise the bound over the shapes ("vb" only).
    shape_floor : float
        Lower limit of learned shapes.
    precision_prior : tuple of float or None
        (a, b) of the gamma prior of the feature precisions, where they are learned.
    w_step : {"newton", "cg", "exact", "preconditioned", "newton_preconditioned"}
    cg_steps : int
    cg_tolerance : float
        Where the preconditioned steps stop.
    """

    algorithm: Literal["map", "vb"]
    topic_concentration: float
    shape_prior: tuple[float, float] = (2.0, 2.0)
    learn_shape: bool = False
    shape_floor: float = 0.3
    precision_prior: tuple[float, float] | None = None
    w_step: WStep = "newton"
    cg_steps: int = 2
    cg_tolerance: float = 1e-4


class EMState(NamedTuple):
    """A point of the iteration with its expected counts.

    Attributes
    ----------
    log_topics : (labels, topic)
    weights : (feature, topic)
    psi : (obs, topic)
        X times the weights.
    concentration, log_rate : (obs, topic)
        u = concentration / rate: the mode of log u ("map"), or the mean of the gamma factor ("vb").
    log_embedding : (obs, topic)
        log u at its mode ("map"), or E log u under the gamma factor ("vb").
    shape : (topic,)
    log_mass : (obs, topic) or None
        log s_nk; None where every cell is observed (s = 1).
    row_counts : (obs, topic)
        Expected counts by row.
    label_counts : (labels, topic)
        Expected counts by label.
    positive_term : ()
        Sum over positives of log(e^lambda - 1) at this point.
    """

    log_topics: Array
    weights: Array
    psi: Array
    concentration: Array
    log_rate: Array
    log_embedding: Array
    shape: Array
    log_mass: Array | None
    row_counts: Array
    label_counts: Array
    positive_term: Array


def with_embedding(state: EMState, concentration: Array, log_rate: Array, algorithm: str) -> EMState:
    """Set the embedding, with log u at its mode ("map") or its expectation under the gamma factor ("vb")."""
    center = (positive_digamma if algorithm == "vb" else jnp.log)(concentration)
    return state._replace(concentration=concentration, log_rate=log_rate, log_embedding=center - log_rate)
