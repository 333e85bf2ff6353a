r"""Newton's method on the tilts of one label: where coordinate ascent rests, in a dozen steps.

Let s_n = c_n^2 and g_n(s) = E psi_n^2 under the best q(w) for s. Coordinate ascent is s <- g(s); it needs
hundreds of sweeps, thousands where a label is rare. As function of omega the bound has the gradient
(s - g) / 2 and the Hessian -(W^-1 - M) / 2, W_nn = -d omega_n / d s_n > 0, M as in
`labelzoo.inference.label_logistic.forms`. Newton's step solves (I - W^1/2 M W^1/2) x = W^1/2 (g - s), by
conjugate gradients cut short, and at negative curvature (Nocedal and Wright, "Numerical optimization", 2006,
section 7.1). Every step that would lower the bound is refused and shortened; at worst it is coordinate
ascent's own, which never lowers it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from labelzoo.inference.label_logistic.forms import (
    Form,
    bound_at,
    core_of,
    psi_given_omega,
    second_moment_change,
)
from labelzoo.inference.polya_gamma import mean as mean_omega

Array = Any

MAX_PRODUCTS = 40
"""Most products with M a Newton step."""

MAX_STEP = 3.0
"""Longest step in log c^2."""

AT_REST = 1e-10
"""Where a step of either kind would change no log c^2 by more, a label is at rest whatever the tolerance."""

SLACK = 1e-10
"""Rounding of the bound, relatively: a step that lowers it by more is refused."""


class Point(NamedTuple):
    """One label's tilts, and what the best q(w) makes of them.

    Attributes
    ----------
    log_square : (row,)
        log c^2.
    second : (row,)
        E psi^2: where coordinate ascent would go next.
    bound : scalar
    mean, prob : (row,)
        E psi, and about E sigmoid(psi): sigmoid(mean / (1 + pi variance / 8)^(1/2)).
    core : matrix
        `core_of` the law.
    """

    log_square: Array
    second: Array
    bound: Array
    mean: Array
    prob: Array
    core: Array


class Ascent(NamedTuple):
    """Where one label's ascent ended.

    Attributes
    ----------
    tilt : (row,)
        c, zero at unobserved cells.
    trace : (max_iter + 1,)
        The bound after every step, its last value repeated to the end.
    count : int
    converged : bool
    """

    tilt: Array
    trace: Array
    count: Array
    converged: Array


def omega_of(log_square: Array, observed: Array) -> Array:
    """Return E omega at log c^2; zero at unobserved cells."""
    return jnp.where(observed, mean_omega(1.0, jnp.exp(0.5 * log_square)), 0.0)


def omega_slope(square: Array) -> Array:
    """Return -d E omega / d c^2 = (tanh x - x / cosh^2 x) / (4 c^3), x = c / 2; by its series near zero."""
    c = jnp.sqrt(square)
    x = jnp.minimum(0.5 * c, 300.0)
    far = (jnp.tanh(x) - x / jnp.cosh(x) ** 2) / (4.0 * jnp.maximum(c, 0.2) ** 3)
    return jnp.where(c < 0.2, (1 / 12 - square / 60 + 17 * square**2 / 6720) / 4, far)


def look(form: Form, log_square: Array, kappa: Array, observed: Array) -> Point:
    """Return the point at log c^2."""
    omega = omega_of(log_square, observed)
    psi = psi_given_omega(form, omega, kappa)
    prob = jax.nn.sigmoid(psi.mean / jnp.sqrt(1.0 + jnp.pi * psi.variance / 8.0))
    bound = bound_at(psi, omega, kappa, observed)
    second = jnp.maximum(psi.mean**2 + psi.variance, jnp.finfo(float).tiny)
    return Point(log_square, second, bound, psi.mean, prob, core_of(form, psi))


def newton_step(form: Form, point: Point, observed: Array) -> Array:
    """Return Newton's change of log c^2: (row,), zero at unobserved cells."""
    square = jnp.exp(point.log_square)
    root = jnp.where(observed, jnp.sqrt(omega_slope(square)), 0.0)
    gap = jnp.where(observed, point.second - square, 0.0)
    goal = root * gap

    def product(v: Array) -> Array:
        return second_moment_change(form, point.core, point.mean, root * v)

    x = _conjugate_gradients(lambda v: v - root * product(v), goal)
    return jnp.where(observed, (gap + product(x)) / square, 0.0)


def _conjugate_gradients(product: Any, goal: Array) -> Array:
    """Solve until the residual is small beside the goal, or a direction of no curvature turns up."""
    size = goal @ goal
    enough = (0.01 * jnp.minimum(1.0, 10.0 * jnp.sqrt(size))) ** 2 * size

    def going(carry: tuple[Array, ...]) -> Array:
        count, _, _, _, left, curved = carry
        return (count < MAX_PRODUCTS) & (left > enough) & curved

    def once(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        count, x, residual, way, left, _ = carry
        image = product(way)
        curvature = way @ image
        curved = curvature > 1e-10 * (way @ way)
        length = jnp.where(curved, left / jnp.where(curved, curvature, 1.0), 0.0)
        x = jnp.where((count == 0) & ~curved, goal, x + length * way)
        residual = residual - length * image
        new = residual @ residual
        return count + 1, x, residual, residual + new / left * way, new, curved

    zero = jnp.zeros_like(goal)
    return jax.lax.while_loop(going, once, (0, zero, goal, goal, size, True))[1]


def ascend(
    form: Form, start: Array, kappa: Array, observed: Array, tolerance: Array, *, max_iter: int
) -> Ascent:
    """Climb from log c^2 = `start` (row,) until a full step changes no probability by more than `tolerance`.

    Parameters
    ----------
    form : ByFeatures or ByRows
    start : (row,)
    kappa, observed : (row,)
        y - 1/2, zero at unobserved cells; whether a cell is observed.
    tolerance : float
    max_iter : int
    """
    first = look(form, start, kappa, observed)
    trace = jnp.full(max_iter + 1, first.bound)

    def going(carry: tuple[Any, ...]) -> Array:
        count, point, _, _, done = carry
        return (count < max_iter) & ~done & jnp.isfinite(point.bound)

    def once(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        count, point, reach, trace, _ = carry
        point, reach, done = _step(form, point, reach, kappa, observed, tolerance)
        return count + 1, point, reach, trace.at[count + 1].set(point.bound), done

    count, point, _, trace, done = jax.lax.while_loop(going, once, (0, first, 1.0, trace, False))
    trace = jnp.where(jnp.arange(max_iter + 1) <= count, trace, point.bound)
    return Ascent(jnp.where(observed, jnp.exp(0.5 * point.log_square), 0.0), trace, count, done)


def _step(
    form: Form, point: Point, reach: Array, kappa: Array, observed: Array, tolerance: Array
) -> tuple[Point, Array, Array]:
    """Try one step no longer than `reach`; return the point, the next reach, and whether it is at rest."""
    plain = jnp.where(observed, jnp.log(point.second) - point.log_square, 0.0)
    shortest = jnp.abs(plain).max()
    newton = newton_step(form, point, observed)
    length = jnp.abs(newton).max()
    is_plain = (reach <= shortest) | ~jnp.isfinite(length)
    shrunk = newton * jnp.minimum(1.0, reach / jnp.maximum(length, 1e-300))
    tried = look(form, point.log_square + jnp.where(is_plain, plain, shrunk), kappa, observed)
    taken = tried.bound >= point.bound - SLACK * (1.0 + jnp.abs(point.bound))
    full = taken & ~is_plain & (length <= reach)
    settled = full & (jnp.abs(tried.prob - point.prob).max() <= tolerance)
    shorter, longer = 0.25 * jnp.minimum(reach, length), jnp.minimum(2.0 * reach, MAX_STEP)
    reach = jnp.where(is_plain, 4.0 * shortest, jnp.where(taken, longer, shorter))
    point = jax.tree.map(lambda new, old: jnp.where(taken, new, old), tried, point)
    return point, reach, settled | (shortest <= AT_REST) | (length <= AT_REST)
