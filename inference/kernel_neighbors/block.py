"""The projection onto the constraints of one row, seen from its multipliers.

An increment delta of the row's multipliers moves w_l(i) by tau_l = (sig + own_l delta_l) / 2,
sig = sum_c sign_c delta_c, and the dual by sum_l log(1 + 2 tau_l s_l - tau_l^2 rho_l), with
rho_l = (a_l K0_ii - kv_il^2) / D_l. It is maximised over -lam <= delta <= upper - lam: what was given may be
given back, which is the correction of Bregman's method. Given sig the classes separate, so that the Hessian
is diagonal plus rank two, and a Newton step costs O(C).

Jain and Kapoor, CVPR 2009, eq. 9.
"""

from typing import Any, NamedTuple

import numpy as np

Array = Any

MAX_STEPS = 60
MAX_HALVINGS = 60
ARMIJO = 1e-4
LAST = 1e-2
"""A Newton step whose first-order gain is below this share of the first step's is the last."""
ROUNDING = 1e-13
"""Of the objective, a sum of logarithms: steps may lose as much."""
TINY = 1e-300


class Side(NamedTuple):
    """Of a row's class, alike for all rows of it.

    Attributes
    ----------
    own : (class,)
        -1 / alpha at the class itself, 1 / beta elsewhere.
    sign : (column,)
        1 at the class itself, -1 elsewhere, and -1 for the total where it is constrained.
    ratio : (class,)
        sign / own: -alpha, -beta.
    """

    own: Array
    sign: Array
    ratio: Array


class Step(NamedTuple):
    """Increments delta (column,) of the multipliers, tau (class,) of the weights, factors of D (class,)."""

    delta: Array
    tau: Array
    factor: Array


def sides(own: Array, columns: int) -> list[Side]:
    """Return the `Side` of each class from the table of `own_weights`."""
    number = len(own)
    out = []
    for y in range(number):
        sign = np.full(columns, -1.0)
        sign[y] = 1.0
        out.append(Side(own[y], sign, sign[:number] / own[y]))
    return out


def project(s: Array, rho: Array, lam: Array, side: Side, upper: float) -> Step:
    """Return the maximiser by projected Newton from delta = 0.

    The last step is one that gains less than `LAST` of the first: Newton's method squares its error, and the
    row is visited again.

    Parameters
    ----------
    s, rho : (class,)
        Similarities of the row and a d_ii - s^2, not negative.
    lam : (column,)
        Multipliers that the row holds.
    side : Side
    upper : float
    """
    number = len(s)
    pair = roots(s, rho)
    low, high = -lam, upper - lam
    delta, tau, value = np.zeros(len(lam)), np.zeros(number), 0.0
    first, second, enough = np.ones(number), np.ones(number), 0.0
    for _ in range(MAX_STEPS):
        p, q = pair[0] / first, pair[1] / second
        slope = p + q
        g = gradient(slope, side)
        free = ((delta > low) | (g > 0)) & ((delta < high) | (g < 0))
        step = newton_step(slope, p * p + q * q + TINY, free, side)
        found = _search(delta, step, g, value, (low, high), pair, side)
        if found is None:
            break
        gain = abs(float(g @ (found[0] - delta)))
        delta, tau, first, second, value = found
        enough = enough or LAST * gain
        if gain <= max(enough, ROUNDING):
            break
    return Step(delta, tau, first * second)


def roots(s: Array, rho: Array) -> tuple[Array, Array]:
    """Return p >= 0 and q <= 0 with 1 + 2 t s - t^2 rho = (1 + t p)(1 + t q).

    s +- sqrt(s^2 + rho), the cancelling one as -rho over the other.
    """
    size = np.abs(s) + np.sqrt(s * s + rho)
    other = -rho / np.maximum(size, TINY)
    positive = s >= 0
    return np.where(positive, size, -other), np.where(positive, other, -size)


def gradient(slope: Array, side: Side) -> Array:
    """Return A' f' / 2 (column,) from f' (class,)."""
    total = float(slope.sum())
    g = side.sign * total
    g[: len(slope)] += side.own * slope
    return 0.5 * g


def newton_step(slope: Array, phi: Array, free: Array, side: Side) -> Array:
    """Return the maximiser of sum_l f'_l t_l - phi_l t_l^2 / 2 over the free increments: (column,).

    t_l = (sig + own_l d_l) / 2. With mu the multiplier of sig = sum sign d,
    t_l = (f'_l - 2 mu ratio_l) / phi_l at free classes, and for k = 1 + sum_free ratio

        k mu - (sum_fixed phi) sig / 4 = -(sum_fixed f') / 2,
        4 (sum_free ratio^2 / phi) mu + k sig = 2 sum_free ratio f' / phi.

    A free total has mu = 0. Where sig is arbitrary (alpha + (C - 1) beta = 1) it is 0.
    """
    number = len(slope)
    held = 1.0 - free[:number]
    ratio = side.ratio * free[:number]
    fixed_slope, fixed_phi = float(slope @ held), float(phi @ held)
    total_free = len(free) > number and bool(free[number])
    if total_free:
        mu, sig = 0.0, (2.0 * fixed_slope / fixed_phi if fixed_phi > 0 else 0.0)
    else:
        mu, sig = _two_unknowns(1.0 + float(ratio.sum()), ratio, slope, phi, fixed_slope, fixed_phi)
    t = (slope - (2.0 * mu) * ratio) / phi
    step = np.zeros(len(free))
    step[:number] = (2.0 * t - sig) / side.own * free[:number]
    if total_free:
        step[number] = float(side.sign[:number] @ step[:number]) - sig
    return step


def _two_unknowns(
    k: float, ratio: Array, slope: Array, phi: Array, fixed_slope: float, fixed_phi: float
) -> tuple[float, float]:
    weighted = ratio / phi
    q, r = float(weighted @ ratio), float(weighted @ slope)
    determinant = k * k + q * fixed_phi
    if determinant <= 1e-24:
        return (r / (2.0 * q) if q > 0 else 0.0), 0.0
    mu = (0.5 * fixed_phi * r - 0.5 * k * fixed_slope) / determinant
    return mu, 2.0 * (k * r + q * fixed_slope) / determinant


def _search(
    delta: Array,
    step: Array,
    g: Array,
    value: float,
    box: tuple[Array, Array],
    pair: tuple[Array, Array],
    side: Side,
) -> Any:
    """Return the first point of the projected arc that is inside the domain and rises enough, or None."""
    number, size = len(side.own), 1.0
    for _ in range(MAX_HALVINGS):
        moved = np.minimum(np.maximum(delta + size * step, box[0]), box[1])
        tau = 0.5 * (float(side.sign @ moved) + side.own * moved[:number])
        first, second = 1.0 + tau * pair[0], 1.0 + tau * pair[1]
        if first.min() > 0 and second.min() > 0:
            gained = float(np.log(first * second).sum())
            if gained >= value + ARMIJO * float(g @ (moved - delta)) - ROUNDING:
                return moved, tau, first, second, gained
        size *= 0.5
    return None
