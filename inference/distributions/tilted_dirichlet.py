r"""Dirichlet law with an exponential tilt: the conditional of a topic given first-arrival times.

Density on the simplex proportional to :math:`\prod_l v_l^{a_l - 1} e^{-c_l v_l}`. Adding a constant to
every :math:`c_l` changes nothing. The proposal takes :math:`y_l` ~ Gamma(:math:`a_l`, rate
:math:`c_l + \theta`) and :math:`v = y / \sum y`; its density is proportional to
:math:`\prod v_l^{a_l - 1} / S^A` with :math:`S = \sum (c_l + \theta) v_l` and :math:`A = \sum a_l`. The
importance weight :math:`S^A e^{-S}` is at most :math:`A^A e^{-A}`, so that rejection is exact and an
independence Metropolis-Hastings step is uniformly ergodic. Any :math:`\theta > -\min c` is valid; the root of
:math:`\sum a_l / (c_l + \theta) = 1` centres S at A.

All draws are made on the log scale: with :math:`a_l` = 1e-3 most coordinates are below the smallest float.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample

from labelzoo.inference.distributions.log_gamma import finite_log_gamma
from labelzoo.inference.stable import as_floats

NEWTON_STEPS = 8
MAX_PROPOSALS = 100_000


class TiltedStep(NamedTuple):
    """One Metropolis-Hastings step: the new point, its logarithm, whether the proposal was taken."""

    v: Array
    log_v: Array
    accepted: Array


def proposal_rates(concentration: Array, tilt: Array) -> Array:
    """Return c_l + theta, shape (..., L), at the root theta of sum a_l / (c_l + theta) = 1.

    Newton's method on 1 / sum a_l / (c_l + theta), which is concave and increasing in theta: from the lower
    bound it climbs to the root without overshooting (eight steps reach rounding).
    """
    shifted = tilt - tilt.min(-1, keepdims=True)
    total = concentration.sum(-1, keepdims=True)
    at_minimum = jnp.where(shifted == 0, concentration, 0.0).sum(-1, keepdims=True)
    average = (concentration / total * shifted).sum(-1, keepdims=True)

    def newton(_: Any, theta: Array) -> Array:
        value = (concentration / (shifted + theta)).sum(-1, keepdims=True)
        slope = (concentration / (shifted + theta) / (shifted + theta)).sum(-1, keepdims=True)
        return jnp.minimum(theta + value * (value - 1.0) / slope, total)

    start = jnp.maximum(at_minimum, total - average)
    return shifted + jax.lax.fori_loop(0, NEWTON_STEPS, newton, start)


def _propose(key: Array, concentration: Array, rates: Array) -> Array:
    log_y = finite_log_gamma(key, concentration) - jnp.log(rates)
    return log_y - logsumexp(log_y, axis=-1, keepdims=True)


def _log_weight(log_v: Array, concentration: Array, rates: Array) -> Array:
    """Log importance weight over its bound, A (log1p(d) - d) with d = S/A - 1: at most 0, shape (...)."""
    total = concentration.sum(-1)
    excess = (rates * jnp.exp(log_v)).sum(-1) / total - 1.0
    return total * (jnp.log1p(excess) - excess)


def tilted_dirichlet_step(key: Array, log_v: Any, concentration: Any, tilt: Any) -> TiltedStep:
    """Make one independence Metropolis-Hastings step that leaves the tilted Dirichlet law invariant.

    Parameters
    ----------
    key : Array
        Typed JAX key.
    log_v : array, shape (..., L)
        Logarithm of the current points of the simplex.
    concentration : array, shape (..., L)
        Exponents a > 0.
    tilt : array, shape (..., L)
        Tilts c, finite reals.

    Returns
    -------
    TiltedStep
        ``v`` and ``log_v`` of shape (..., L), ``accepted`` boolean of shape (...).
    """
    log_v, concentration, tilt = jnp.broadcast_arrays(*as_floats(log_v, concentration, tilt))
    propose_key, accept_key = jax.random.split(key)
    rates = proposal_rates(concentration, tilt)
    proposed = _propose(propose_key, concentration, rates)
    gain = _log_weight(proposed, concentration, rates) - _log_weight(log_v, concentration, rates)
    accepted = -jax.random.exponential(accept_key, gain.shape, gain.dtype) < gain
    new = jnp.where(accepted[..., None], proposed, log_v)
    return TiltedStep(jnp.exp(new), new, accepted)


def log_tilted_dirichlet(key: Array, concentration: Any, tilt: Any) -> Array:
    """Draw log v exactly, by rejection, shape (..., L).

    A row that sees 100 000 rejections (a law concentrated where the untilted one is negligible) or a NaN
    comes back as NaN: the loop cannot hang and never returns an inexact draw.
    """
    concentration, tilt = jnp.broadcast_arrays(*as_floats(concentration, tilt))
    rates = proposal_rates(concentration, tilt)
    pending = jnp.all(jnp.isfinite(rates) & (concentration > 0), axis=-1)

    def unfinished(state: tuple[Array, Array, Array, Array]) -> Array:
        return jnp.any(state[2]) & (state[3] < MAX_PROPOSALS)

    def propose(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        key, log_v, pending, tries = state
        key, propose_key, accept_key = jax.random.split(key, 3)
        proposed = _propose(propose_key, concentration, rates)
        log_accept = _log_weight(proposed, concentration, rates)
        threshold = -jax.random.exponential(accept_key, log_accept.shape, log_accept.dtype)
        taken = pending & (threshold < log_accept)
        return key, jnp.where(taken[..., None], proposed, log_v), pending & ~taken, tries + 1

    start = (key, jnp.full_like(concentration, jnp.nan), pending, jnp.zeros((), int))
    return jax.lax.while_loop(unfinished, propose, start)[1]


class TiltedDirichlet(Distribution):
    r"""Law on the simplex with density proportional to :math:`\prod_l v_l^{a_l - 1} e^{-c_l v_l}`.

    The normalising constant has no closed form: ``log_prob`` is **unnormalised** (``normalized = False``),
    right up to a constant that depends on the parameters alone. With tilt 0 it is a Dirichlet law.

    Parameters
    ----------
    concentration : array, shape (..., L)
        Exponents a > 0; tested down to 1e-3.
    tilt : array, shape (..., L) or broadcastable
        Tilts c, finite reals.
    """

    arg_constraints = {
        "concentration": constraints.independent(constraints.positive, 1),
        "tilt": constraints.real_vector,
    }
    support = constraints.simplex
    normalized = False

    def __init__(self, concentration: Any, tilt: Any, *, validate_args: bool | None = None) -> None:
        concentration, tilt = as_floats(concentration, tilt)
        if jnp.ndim(concentration) < 1 or jnp.shape(concentration)[-1] < 1:
            raise ValueError("TiltedDirichlet: concentration needs a last axis of labels")
        self.concentration, self.tilt = jnp.broadcast_arrays(concentration, tilt)
        shape = jnp.shape(self.concentration)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def sample_log(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw log v exactly: finite where v itself underflows; see ``log_tilted_dirichlet``."""
        shape = sample_shape + jnp.shape(self.concentration)
        return log_tilted_dirichlet(key, jnp.broadcast_to(self.concentration, shape), self.tilt)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw v exactly by rejection."""
        return jnp.exp(self.sample_log(key, sample_shape))

    @validate_sample
    def log_prob(self, value: Any) -> Array:
        """Unnormalised log density at v, with respect to the first L - 1 coordinates."""
        v = jnp.asarray(value, self.concentration.dtype)
        positive = v > 0
        log_v = jnp.where(positive, jnp.log(jnp.where(positive, v, 1.0)), -jnp.inf)
        return self._from_log(log_v, v)

    def log_prob_at_log(self, log_v: Any) -> Array:
        """Unnormalised log density at v = exp(log_v): the same density in v, no Jacobian, no underflow."""
        log_v = jnp.asarray(log_v, self.concentration.dtype)
        return self._from_log(log_v, jnp.exp(log_v))

    def _from_log(self, log_v: Array, v: Array) -> Array:
        power = self.concentration - 1.0
        terms = jnp.where(power == 0, 0.0, power * jnp.where(power == 0, 0.0, log_v))
        return (terms - self.tilt * v).sum(-1)
