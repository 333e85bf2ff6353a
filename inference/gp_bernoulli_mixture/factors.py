"""The variational factors that structured, mean_field and sparse share, and the problem they fit.

q(theta_kl) = Beta(positive, negative); q(z_n) = Categorical(responsibility); q(f_k) is the gate's Gaussian
process with one site a row, exp(potential f - weight f^2 / 2), so that with f_k = gate_mean + F white_k

    q(white_k) = N(P^-1 F' (potential - gate_mean weight), P^-1),   P = I + F' diag(weight) F.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.gp_bernoulli_mixture.terms import Labels, labels_of

Array = Any


class Factors(NamedTuple):
    """What defines q, with what is read from it at the rows.

    Attributes
    ----------
    positive, negative : (component, labels)
        a and b of the Beta factors.
    responsibility : (obs, component)
        phi, rows sum to 1.
    gate_mean_q, gate_variance : (obs, component)
        Mean and variance of q(f_nk).
    weight, potential : (obs, component)
        W > 0 and r = (phi - gamma) / 2 of the sites, the latter before the shift by -gate_mean W.
    """

    positive: Array
    negative: Array
    responsibility: Array
    gate_mean_q: Array
    gate_variance: Array
    weight: Array
    potential: Array


class Problem(NamedTuple):
    """What no update changes.

    Attributes
    ----------
    labels : Labels
    factor : (obs, basis)
        F with F F' = Sigma, one for all components.
    covariance : (obs, obs) or None
        Sigma, kept where the basis is not much smaller than the rows.
    gate_mean : float
        m0.
    prior_positive, prior_negative : (component, labels)
    """

    labels: Labels
    factor: Array
    covariance: Array | None
    gate_mean: float
    prior_positive: Array
    prior_negative: Array

    @property
    def num_components(self) -> int:
        """Return K."""
        return int(self.prior_positive.shape[0])

    @property
    def own_variance(self) -> Array:
        """Return Sigma_nn: (obs,)."""
        if self.covariance is not None:
            return np.diagonal(self.covariance)
        return np.einsum("nd,nd->n", self.factor, self.factor)


class Gate(NamedTuple):
    """The Gaussian factors at the rows.

    Attributes
    ----------
    mean, variance : (obs, component)
    divergence : (component,)
        KL(q(f_k) || N(gate_mean, Sigma)), nats.
    """

    mean: Array
    variance: Array
    divergence: Array


LOW_RANK = 0.6
"""Below this share of the rows a basis is cheaper than the rows: obs basis^2 flops against obs^3 / 1.5."""


def problem_of(inputs: Mapping[str, Any], dtype: Any = None) -> Problem:
    """Return the problem from what ``prepare`` returned.

    Parameters
    ----------
    inputs : mapping
        ``factor``, ``Y``, ``observed``, ``gate_mean``, ``prior_positive``, ``prior_negative``.
    dtype : dtype or None
        float32 or float64; None: that of `factor`.

    Raises
    ------
    ValueError
        If an array has another shape, or is not finite, or a prior number is not above 0.
    """
    factor = np.asarray(inputs["factor"], dtype)
    if factor.dtype not in (np.float32, np.float64):
        factor = factor.astype(np.float64)
    a0 = np.asarray(inputs["prior_positive"], factor.dtype)
    b0 = np.asarray(inputs["prior_negative"], factor.dtype)
    labels = labels_of(inputs["Y"], inputs.get("observed"), factor.dtype)
    if factor.ndim != 2 or factor.shape[0] != labels.positive.shape[0] or not factor.shape[0]:
        raise ValueError(f"factor must have {labels.positive.shape[0]} rows, at least 1, got {factor.shape}")
    if a0.ndim != 2 or a0.shape != b0.shape or a0.shape[1] != labels.positive.shape[1] or not len(a0):
        raise ValueError(
            "prior_positive and prior_negative must have shape (component, labels), labels = "
            f"{labels.positive.shape[1]}, got {a0.shape} and {b0.shape}"
        )
    for name, array in (("prior_positive", a0), ("prior_negative", b0)):
        if not (np.isfinite(array) & (array > 0)).all():
            raise ValueError(f"{name} must be finite and above 0")
    if not np.isfinite(factor).all() or not np.isfinite(inputs["gate_mean"]):
        raise ValueError("factor and gate_mean must be finite")
    rows, basis = factor.shape
    covariance = None if basis < LOW_RANK * rows else np.asfortranarray(factor @ factor.T)
    return Problem(labels, factor, covariance, float(inputs["gate_mean"]), a0, b0)
