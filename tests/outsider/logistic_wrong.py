"""Wrong versions of label_logistic's conditionals, by update; each says its own slip."""

import jax.numpy as jnp
import numpyro.distributions as dist

from labelzoo.inference.distributions import GaussianNatural
from labelzoo.inference.polya_gamma import PolyaGamma
from labelzoo.inference.polya_gamma import mean as pg_mean
from labelzoo.inference.polya_gamma import variance as pg_variance


def _parts(state, inputs, observed=None):
    """Return omega and kappa, zero where unobserved: (obs, labels)."""
    observed = inputs["observed"] if observed is None else observed
    return jnp.where(observed, state["omega"], 0.0), jnp.where(observed, inputs["Y"] - 0.5, 0.0)


def _gaussian(inputs, omega, kappa, prior=None):
    X = inputs["X"]
    prior = jnp.diag(inputs["precision"] if prior is None else prior)
    return GaussianNatural(kappa.T @ X, prior + jnp.einsum("nd,nl,ne->lde", X, omega, X))


def working_response_unweighted(state, inputs):
    """The potential is X'(kappa / omega), the working response without its weight: it is X' kappa."""
    omega, kappa = _parts(state, inputs)
    return _gaussian(inputs, omega, kappa / jnp.where(omega > 0, omega, 1.0))


def omega_summed_over_labels(state, inputs):
    """The precision of every label sums omega over labels: label l uses its own column omega_nl."""
    omega, kappa = _parts(state, inputs)
    return _gaussian(inputs, jnp.broadcast_to(omega.sum(axis=1, keepdims=True), omega.shape), kappa)


def prior_variance_added(state, inputs):
    """The prior variance 1 / tau is added to the precision: add tau. Right only where tau is 1."""
    return _gaussian(inputs, *_parts(state, inputs), prior=1.0 / inputs["precision"])


def missing_as_negative_in_potential(state, inputs):
    """Missing cells, stored as 0, enter the potential with kappa = -1/2 (omega is masked): mask kappa too."""
    return _gaussian(inputs, _parts(state, inputs)[0], inputs["Y"] - 0.5)


def rows_with_gaps_dropped(state, inputs):
    """Rows with any missing label are dropped for all labels: drop the missing cells only."""
    whole = jnp.broadcast_to(inputs["observed"].all(axis=1, keepdims=True), inputs["Y"].shape)
    return _gaussian(inputs, *_parts(state, inputs, whole))


def potential_reshaped(state, inputs):
    """X' kappa, (feature, labels), is reshaped to (labels, feature) where it should be transposed."""
    omega, kappa = _parts(state, inputs)
    right = _gaussian(inputs, omega, kappa)
    return GaussianNatural((inputs["X"].T @ kappa).reshape(right.potential.shape), right.precision)


def precision_as_covariance(state, inputs):
    """P is handed over as the covariance (the mean is right): pass it as precision_matrix."""
    right = _gaussian(inputs, *_parts(state, inputs))
    return dist.MultivariateNormal(right.mean, covariance_matrix=right.precision)


def response_of_signs(state, inputs):
    """kappa is 2y - 1, the label as a sign: it is y - 1/2."""
    omega, kappa = _parts(state, inputs)
    return _gaussian(inputs, omega, 2.0 * kappa)


def half_the_likelihood(state, inputs):
    """The likelihood is tempered to the power 1/2 (omega and kappa halved): use both whole."""
    omega, kappa = _parts(state, inputs)
    return _gaussian(inputs, 0.5 * omega, 0.5 * kappa)


def standard_deviation_for_precision(state, inputs):
    """sqrt(tau) stands on the diagonal of the prior precision: it is tau."""
    return _gaussian(inputs, *_parts(state, inputs), prior=inputs["precision"] ** 0.5)


def _tilt(state, inputs):
    psi = inputs["X"] @ state["weights"].T
    return jnp.where(inputs["observed"], psi, 0.0)


def tilt_squared(state, inputs):
    """The tilt is psi^2: it is psi."""
    tilt = _tilt(state, inputs) ** 2
    return PolyaGamma(jnp.ones_like(tilt), tilt).to_event(1)


def negative_binomial_b(state, inputs):
    """b is y + 1, the negative binomial's m + r with r = 1: it is 1. Right at zeros and missing cells."""
    b = 1.0 + jnp.where(inputs["observed"], inputs["Y"], 0.0)
    return PolyaGamma(b, _tilt(state, inputs)).to_event(1)


def row_mask(state, inputs):
    """A row with any missing label has no tilt at all: untilt its missing cells only."""
    whole = inputs["observed"].all(axis=1, keepdims=True)
    tilt = jnp.where(whole, _tilt(state, inputs), 0.0)
    return PolyaGamma(jnp.ones_like(tilt), tilt).to_event(1)


def gamma_of_same_moments(state, inputs):
    """PG(1, psi) is replaced by the gamma law of the same mean and variance: draw from PG itself."""
    tilt = _tilt(state, inputs)
    mean, variance = pg_mean(1.0, tilt), pg_variance(1.0, tilt)
    return dist.Gamma(mean**2 / variance, mean / variance).to_event(1)


def intercept_left_out(state, inputs):
    """psi leaves out the last column of X, the intercept: use all columns."""
    psi = inputs["X"][:, :-1] @ state["weights"][:, :-1].T
    tilt = jnp.where(inputs["observed"], psi, 0.0)
    return PolyaGamma(jnp.ones_like(tilt), tilt).to_event(1)


def kappa_as_offset(state, inputs):
    """The tilt is psi - (y - 1/2), kappa taken for an offset: omega given w does not depend on y."""
    tilt = _tilt(state, inputs) - jnp.where(inputs["observed"], inputs["Y"] - 0.5, 0.0)
    return PolyaGamma(jnp.ones_like(tilt), tilt).to_event(1)


WEIGHTS, OMEGA = "weights_given_omega", "omega_given_weights"

GIVEN = {
    WEIGHTS: (
        working_response_unweighted,
        omega_summed_over_labels,
        prior_variance_added,
        missing_as_negative_in_potential,
        rows_with_gaps_dropped,
        potential_reshaped,
        precision_as_covariance,
        response_of_signs,
        half_the_likelihood,
        standard_deviation_for_precision,
    ),
    OMEGA: (
        tilt_squared,
        negative_binomial_b,
        row_mask,
        gamma_of_same_moments,
        intercept_left_out,
        kappa_as_offset,
    ),
}
