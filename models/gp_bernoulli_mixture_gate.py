"""Moments of the logistic-softmax gate pi_k = sigma(f_k) / sum_j sigma(f_j) for independent normal f.

Two ways, for many rows at once:

* ``integral``, without chance: with 1/x = int_0^inf e^(-lambda x) d lambda, x = sum_j sigma(f_j), components
  separate under the integral,

      E pi_k   = int       E[sigma_k e^(-lambda sigma_k)]   prod_(j != k) E[e^(-lambda sigma_j)] d lambda
      E pi_k^2 = int lambda E[sigma_k^2 e^(-lambda sigma_k)] prod_(j != k) E[e^(-lambda sigma_j)] d lambda,

  by the trapezoidal rule in t = ln lambda, and by the same rule over each f_k. All functions are analytic and
  bounded where |Im| < pi/2, so that both rules converge geometrically; over f the rule needs fewer nodes than
  Gauss-Hermite, whose nodes are too far apart for a standard deviation of f of 2 and more.
* ``draws``: normal numbers shared by all rows (common random numbers), so that rows compare without noise of
  their own; standard error at most 0.5 / sqrt(draws).

Shi, Yu and Yu, NeurIPS 2021, eq. 4 and section 3.3; the identity is the first step of its augmentation.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

Array = Any

REACH = 6.5
"""Standard deviations of f on each side; 8e-11 lies outside."""
STRIP = 0.47
"""Largest step over f, in units of f: error e^(-pi^2 / 0.47) = 8e-10."""
STEP = 0.4
"""Step in ln lambda: error |Gamma(2 + 2 pi i / 0.4)| = 3e-9 of the second moment, less of the first."""
LEFT, RIGHT = 10.0, 22.0
"""The rule over t begins at lambda sum sigma = e^-10 for large f (what lies before is a geometric series) and
ends where lambda sigma is 22 for the smallest f that count."""
BLOCK_BYTES = 2**21
"""Of one table (row, component, node); a few are held."""
METHODS = ("integral", "draws")


LARGEST = 1e4
"""Largest variance of f that the integral takes: 2800 nodes over f."""


class GateMoments(NamedTuple):
    """Moments of the weights of each row.

    Attributes
    ----------
    mean, variance : (row, component)
        E[pi] and Var[pi] under the normal law of f.
    error : (row, component)
        Monte Carlo standard error of `mean`; for the integral, how far its weights were from a sum of 1.
    """

    mean: Array
    variance: Array
    error: Array


def log_gate(f: Array) -> Array:
    """Return ln pi = log_sigmoid(f) - logsumexp(log_sigmoid(f)) along the last axis, finite for finite f."""
    log_sigma = -np.logaddexp(0.0, -np.asarray(f, float))
    top = log_sigma.max(axis=-1, keepdims=True)
    return log_sigma - top - np.log(np.exp(log_sigma - top).sum(axis=-1, keepdims=True))


def gate_moments(
    mean: Any, variance: Any, method: Any = "integral", *, draws: Any = 400, seed: Any = 0
) -> GateMoments:
    """Return mean and variance of the gate's weights where f_k ~ N(mean_k, variance_k), independent.

    Parameters
    ----------
    mean, variance : (row, component)
        Of f. A variance of 0 is a point; means may be as negative as floats go.
    method : {"integral", "draws"}
        The integral takes about rows components (35 + 30 sd) (28 sd) exponentials for the largest standard
        deviation sd of f (at least 17 nodes over f); draws take rows components draws of them.
        The integral agrees with tensor quadrature to 1e-7.
    draws, seed : int
        Number and seed of the normal numbers, shared by all rows.

    Raises
    ------
    ValueError
        If shapes do not fit, a number is not finite or a variance is negative, with row and component, or
        method, draws or seed are unknown.
    """
    m, v = _checked(mean, variance)
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if method == "draws":
        return _by_draws(m, v, _count(draws, "draws", 2), _count(seed, "seed", 0))
    return _by_integral(m, v)


def _checked(mean: Any, variance: Any) -> tuple[Array, Array]:
    m, v = np.asarray(mean, float), np.asarray(variance, float)
    if m.ndim != 2 or m.shape != v.shape or m.shape[1] == 0:
        raise ValueError(
            f"mean and variance of f must both be (row, component), got shapes {m.shape} and {v.shape}"
        )
    for name, value, bad in (("mean", m, ~np.isfinite(m)), ("variance", v, ~(np.isfinite(v) & (v >= 0)))):
        at = np.argwhere(bad)
        if len(at):
            row, component = at[0]
            wanted = "a finite number" if name == "mean" else "a finite number of at least 0"
            raise ValueError(
                f"{name} of f: row {row}, component {component} is {value[row, component]}, not {wanted}"
            )
    return m, v


def _count(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def _by_draws(m: Array, v: Array, draws: int, seed: int) -> GateMoments:
    normals = np.random.default_rng(seed).standard_normal((draws, m.shape[1]))
    sd, out = np.sqrt(v), np.zeros((3, *m.shape))
    block = max(1, BLOCK_BYTES // (8 * draws * m.shape[1]))
    for begin in range(0, len(m), block):
        rows = slice(begin, begin + block)
        pi = np.exp(log_gate(m[rows, None] + sd[rows, None] * normals))
        out[0, rows], out[1, rows] = pi.mean(axis=1), pi.var(axis=1)
    out[2] = np.sqrt(out[1] / draws)
    return GateMoments(*out)


def _by_integral(m: Array, v: Array) -> GateMoments:
    mean, variance, error = np.exp(log_gate(m)), np.zeros(m.shape), np.zeros(m.shape)
    largest = v.max(axis=1)
    if len(m) and largest.max() > LARGEST:
        row = int(np.argmax(largest))
        raise ValueError(
            f"variance of f: row {row} has {largest[row]:g}, above {LARGEST:g}: use method='draws'"
        )
    if m.shape[1] > 1:
        order = np.argsort(largest, kind="stable")
        order = order[largest[order] > 0]  # rows without any variance are points, exactly
        while len(order):
            rows = order[-_rows_of_block(float(largest[order[-1]]), m.shape[1]) :]
            order = order[: len(order) - len(rows)]
            mean[rows], variance[rows], error[rows] = _block(m[rows], np.sqrt(v[rows]))
    return GateMoments(mean, variance, error)


def _nodes(sd: float) -> tuple[Array, Array]:
    """Return nodes of a standard normal, close enough for functions of f = m + sd u, and their weights."""
    half = int(np.ceil(REACH / min(0.9, STRIP / sd)))
    u = np.linspace(-REACH, REACH, 2 * half + 1)
    return u, softmax(-0.5 * u**2)


def _rows_of_block(largest: float, components: int) -> int:
    sd = np.sqrt(largest)
    nodes = 2 * np.ceil(REACH / min(0.9, STRIP / sd)) + 1
    return max(1, int(BLOCK_BYTES / (8 * nodes * components)))


def _block(m: Array, sd: Array) -> tuple[Array, Array, Array]:
    """Return E pi, Var pi and the gap of the sum for rows of like standard deviation: each (row, component).

    With q = lambda sigma(f), the integrands over t are E[q_k e^-q_k] and E[q_k^2 e^-q_k] times the product of
    E[e^-q_j] over the others: no number over- or underflows whatever the scale of sigma.
    """
    u, weight = _nodes(float(sd.max()))
    log_sigma = -np.logaddexp(0.0, -(m[:, :, None] + sd[:, :, None] * u))
    scale = log_sigma[:, :, len(u) // 2].max(axis=1)  # of the largest sigma at its mean
    begin, end = _range(log_sigma, scale)
    steps = int(np.ceil((end - begin).max() / STEP)) + 1
    ratio = np.exp(log_sigma - scale[:, None, None])
    total, second = np.zeros(m.shape), np.zeros(m.shape)
    first: tuple[Array, Array] | None = None
    for step in range(steps):
        q = np.minimum(ratio * np.exp(begin + step * STEP)[:, None, None], 700.0)
        none, one, two = _expectations(q, weight)
        others = np.log(none)
        others = np.exp(others.sum(axis=1, keepdims=True) - others)
        one, two = one * others, two * others
        total += one
        second += two
        first = first or (one, two)
    assert first is not None
    shrink = np.exp(-STEP * np.array([1.0, 2.0]))
    total = STEP * (total + first[0] * shrink[0] / (1 - shrink[0]))
    second = STEP * (second + first[1] * shrink[1] / (1 - shrink[1]))
    sums = total.sum(axis=1, keepdims=True)
    mean = total / sums
    variance = np.clip(second / sums - mean**2, 0.0, mean * (1 - mean))
    return mean, variance, np.broadcast_to(np.abs(sums - 1), m.shape)


def _expectations(q: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Return E[e^-q], E[q e^-q] and E[q^2 e^-q] over the nodes: each (row, component)."""
    decay = np.exp(-q)
    once = q * decay
    return decay @ weight, once @ weight, (q * once) @ weight


def _range(log_sigma: Array, scale: Array) -> tuple[Array, Array]:
    """Return where the rule over t + scale begins and ends, for each row: (row,), (row,)."""
    node = log_sigma.shape[2]
    high = log_sigma[:, :, int(0.85 * node)]  # 4.5 standard deviations up
    top = high.max(axis=1)
    total = top + np.log(np.exp(high - top[:, None]).sum(axis=1))
    low = log_sigma[:, :, 0].max(axis=1)
    return scale - total - LEFT, scale - low + np.log(RIGHT)
