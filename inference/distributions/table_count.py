"""Number of tables that m customers occupy in a Chinese restaurant process: exact draws with no cap on m.

Customer i opens a table with probability r / (r + i - 1), so t = sum_i Bernoulli(r / (r + i - 1)). Instead
of visiting all m customers the draw jumps from one opening to the next. From an opening at customer j, a
process that opens at i with probability

    q_i = 1 - ((i - 3/2) / (i - 1/2))^r

stays silent up to n with probability ((j - 1/2) / (n - 1/2))^r: a telescoping product, inverted in closed
form. With x = i - 1, log((x + 1/2) / (x - 1/2)) = 2 atanh(1 / (2x)) >= 1/x, so -log(1 - q_i) >= r/x >=
log(1 + r/x) = -log(1 - p_i), p_i = r / (r + i - 1): the proposals dominate for every r > 0 and i >= 2, and
keeping each with probability p_i / q_i (never below .74) thins them to the exact process.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample

from labelzoo.inference.rejection import map_blocks
from labelzoo.inference.stable import as_floats, log_rising


def draw_table_counts(key: Array, count: Any, concentration: Any) -> Array:
    """Draw the number of occupied tables for each cell, exactly and without a cap on the counts.

    Parameters
    ----------
    key : Array
        Typed JAX key.
    count : array
        Numbers of customers m, whole and non-negative (integers or whole floats), any shape.
    concentration : array
        Concentrations r > 0, broadcast against ``count``; its dtype is that of the arithmetic, so m must
        stay below 2^24 in float32.

    Returns
    -------
    Array
        Integers in [0, m], of the broadcast shape; 0 exactly where m = 0.

    Notes
    -----
    The work of a block of cells is the largest number of proposals in it: about 1.3 times the largest number
    of tables, never more than the largest count.
    """
    concentration = as_floats(concentration)[0]
    count = jnp.asarray(count, concentration.dtype)
    count, concentration = jnp.broadcast_arrays(count, concentration)
    tables = map_blocks(_tables_by_jumps, key, (count, concentration), (0.0, 1.0))
    return tables.astype(jnp.result_type(int))


def _tables_by_jumps(key: Array, count: Array, concentration: Array) -> Array:
    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        return jnp.any(state[1] < count)

    def jump(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        key, last, tables = state
        key, jump_key, keep_key = jax.random.split(key, 3)
        wait = jax.random.exponential(jump_key, count.shape, count.dtype) / concentration
        proposed = jnp.floor((last - 0.5) * jnp.exp(wait) + 0.5) + 1.0
        proposed = jnp.maximum(proposed, last + 1.0)
        opens = concentration / (concentration + proposed - 1.0)
        bound = -jnp.expm1(-concentration * jnp.log1p(1.0 / (proposed - 1.5)))
        uniform = jax.random.uniform(keep_key, count.shape, count.dtype)
        kept = (proposed <= count) & (uniform * bound < opens)
        return key, proposed, tables + kept

    start = (key, jnp.ones_like(count), jnp.where(count > 0, 1.0, 0.0).astype(count.dtype))
    return jax.lax.while_loop(unfinished, jump, start)[2]


@lru_cache(maxsize=8)
def log_stirling_first(max_count: int) -> np.ndarray:
    """Return the table of log unsigned Stirling numbers of the first kind.

    By the recursion |s(n+1, k)| = n |s(n, k)| + |s(n, k-1)| in logs, on the host, in float64.

    Parameters
    ----------
    max_count : int
        Largest n; the table takes 8 (max_count + 1)^2 bytes.

    Returns
    -------
    ndarray, shape (max_count + 1, max_count + 1)
        Entry (n, k) is log |s(n, k)|, ``-inf`` where the number is 0. Read-only.
    """
    table = np.full((max_count + 1, max_count + 1), -np.inf)
    table[0, 0] = 0.0
    for n in range(max_count):
        log_n = np.log(n) if n > 0 else -np.inf
        table[n + 1, 0] = -np.inf
        table[n + 1, 1:] = np.logaddexp(log_n + table[n, 1:], table[n, :-1])
    table.flags.writeable = False
    return table


class TableCount(Distribution):
    r"""Number of tables t of a Chinese restaurant process with m customers.

    :math:`P(t) = |s(m, t)|\, r^t\, \Gamma(r) / \Gamma(r + m)`, t = 1..m, and t = 0 if and only if m = 0
    (Zhou and Carin 2015, negative binomial process). Drawing needs no limit on m; ``log_prob`` needs a
    Stirling table up to the largest count.

    Parameters
    ----------
    count : array
        Whole numbers m >= 0.
    concentration : array
        r > 0, broadcast against ``count``.
    max_count : int, optional
        Size of the Stirling table of ``log_prob``; needed only where ``count`` is traced (an argument of a
        jitted function).
        Probabilities of larger counts are NaN.
    """

    arg_constraints = {"count": constraints.nonnegative_integer, "concentration": constraints.positive}
    pytree_data_fields = ("count", "concentration")
    pytree_aux_fields = ("max_count",)

    def __init__(
        self,
        count: Any,
        concentration: Any,
        *,
        max_count: int | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (concentration,) = as_floats(concentration)
        known = not isinstance(count, jax.core.Tracer)
        if max_count is None and known and isinstance(concentration, jax.core.Tracer):
            max_count = int(np.max(np.asarray(count), initial=0))  # the broadcast below hides the counts
        self.count, self.concentration = jnp.broadcast_arrays(jnp.asarray(count), concentration)
        self.max_count = max_count
        super().__init__(jnp.shape(self.concentration), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """Whole numbers from min(1, m) to m."""
        return constraints.integer_interval(jnp.minimum(self.count, 1), self.count)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw exactly, for any m."""
        shape = sample_shape + jnp.shape(self.concentration)
        return draw_table_counts(key, self.count, jnp.broadcast_to(self.concentration, shape))

    def log_prob(self, value: Any) -> Array:
        """Log probability of t tables; raises ValueError if ``count`` is traced and ``max_count`` absent."""
        return self._log_prob(jnp.asarray(value))  # the support has bounds that may be traced: no NumPy here

    @validate_sample
    def _log_prob(self, value: Array) -> Array:
        size = self._table_size()
        table = jnp.asarray(log_stirling_first(size), self.concentration.dtype)
        m, t = self.count.astype(int), value.astype(int)
        stirling = table[jnp.clip(m, 0, size), jnp.clip(t, 0, size)]
        some = m > 0
        # r^t Gamma(r) / Gamma(r + m) with one power of r taken into Gamma(1 + r): finite for tiny r.
        rising = log_rising(1.0 + self.concentration, jnp.maximum(m - 1, 0))
        power = (t - 1) * jnp.log(self.concentration) - rising
        inside = (t >= jnp.minimum(m, 1)) & (t <= m)
        value_inside = jnp.where(some, jnp.where(inside, stirling, 0.0) + power, 0.0)
        return jnp.where(m > size, jnp.nan, jnp.where(inside, value_inside, -jnp.inf))

    def _table_size(self) -> int:
        if self.max_count is not None:
            return self.max_count
        if isinstance(self.count, jax.core.Tracer):
            raise ValueError("TableCount.log_prob: count is traced; give max_count when building TableCount")
        return int(np.max(np.asarray(self.count), initial=0))

    def _slopes(self) -> tuple[Array, Array]:
        """First and second derivative in r of log(Gamma(r + m) / Gamma(r + 1)), for m >= 1."""
        later = jnp.maximum(jnp.asarray(self.count, self.concentration.dtype) - 1.0, 0.0)
        r, one = self.concentration, jnp.ones_like(self.concentration)

        def slope(s: Array) -> Array:
            return jax.jvp(lambda v: log_rising(1.0 + v, later), (s,), (one,))[1]

        return jax.jvp(slope, (r,), (one,))

    @property
    def mean(self) -> Array:
        """sum_i r / (r + i - 1) = 1 + r (digamma(r + m) - digamma(r + 1)) for m >= 1."""
        return jnp.where(self.count > 0, 1.0 + self.concentration * self._slopes()[0], 0.0)

    @property
    def variance(self) -> Array:
        """mean - 1 + r^2 (trigamma(r + m) - trigamma(r + 1)) for m >= 1."""
        slope, curvature = self._slopes()
        return jnp.where(self.count > 0, self.concentration * (slope + self.concentration * curvature), 0.0)
