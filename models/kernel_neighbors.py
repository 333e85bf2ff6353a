"""Class kernels by LogDet projection (pKNN) as NumPyro programs.

The density of a class kernel is proportional to exp(-Dld(K^l | K0) / 2), Dld(K | K0) = tr(K K0^-1)
- log det(K K0^-1) - n, which is the Wishart law with n + 2 degrees of freedom and scale K0: its mode is K0.
With s_l(i) the mean of K^l(x_i, x_j) over the rows j of class l, the training labels enter only through

    sum_l s_l(i) - s_y(i) / alpha <= 0,   s_c(i) / beta - sum_l s_l(i) <= 0  for c != y = y_i,

and, where asked, -sum_l s_l(i) <= 0. Hard, they leave a truncated Wishart law whose mode is the projection of
the paper; softened, a violation costs price / 2 nats.

``wishart`` has the kernels themselves. The constraints read each kernel only through u = K v, v the mean over
a class's rows, and the rest of it can be integrated out: with R the Cholesky factor of K0 and H the
reflection that takes R'v to its length along the first axis, Bartlett's decomposition (Muirhead, "Aspects of
multivariate statistical theory", 1982, theorem 3.2.14) gives

    u = a^(1/2) radius R H (radius, white),   radius^2 ~ chi^2 with n + 2 degrees of freedom,  a = v'K0 v,

and white standard normal, n - 1 numbers. That is ``summed``, which NUTS and SVI run.

A new row has the similarities K0(x, X) K0^-1 u_l, what the Wishart law expects there given the kernels, and
its class is categorical with their shares. One problem tells the classes of the rows apart; with several
labels a row each label is a problem of two classes, off and on, under the same K0.

No joint law of kernels and training labels is meant: the constraints are a product of experts, so that the
program cannot simulate its training labels.

Jain and Kapoor, "Active learning for large multi-class problems", CVPR 2009, eqs. 2 to 4; the Bayesian
version and several labels are this project's.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.linalg import cho_solve

Array = Any

NEGATIVE = ("clip", "raw")
NO_TOTAL = 1e-12
"""Share of sum_l |s_l| below which sum_l s_l is no normaliser."""


def summed(
    K0: Array,
    codes: Array,
    num_classes: int,
    alpha: Array,
    beta: Array,
    price: Array,
    positive_total: bool = True,
    cross: Array | None = None,
    codes_new: Array | None = None,
    **rest: Any,
) -> None:
    """The program with the kernels integrated out but for their similarities: what NUTS and SVI run.

    Parameters
    ----------
    K0 : array (graph, graph)
        Prior kernel of the training rows, positive definite.
    codes : int array (problem, graph)
        Class of each training row in each problem, from 0; each class has a row.
    num_classes : int
        Of each problem.
    alpha, beta : float
    price : float
        Of a unit of violation, on the scale of the divergence: minus the log density has half of it.
    positive_total : bool
    cross : array (new, graph) or None
        K0 between new rows and the training rows; without it there are no labels in the program.
    codes_new : int array (problem, new) or None
        Classes of the new rows where known.
    **rest
        Not read here.

    Notes
    -----
    2 graph^2 problem class flops a density, beside graph^3 / 3 once for the factor.
    """
    n, count = K0.shape[0], codes.shape[0] * num_classes
    with numpyro.plate("class", count):
        square = numpyro.sample("square", dist.Chi2(n + 2.0))
        white = numpyro.sample("white", dist.Normal(0.0, 1.0).expand([n - 1]).to_event(1))
    root = jnp.linalg.cholesky(K0)
    similarity = similarity_of(root, class_means(codes, num_classes), square, white)
    _constrain(similarity, codes, alpha, beta, price, positive_total)
    coefficients = cho_solve((root, True), similarity.T).T
    numpyro.deterministic("coefficients", coefficients)
    _label_new_rows(coefficients, codes, cross, codes_new)


def wishart(
    K0: Array,
    codes: Array,
    num_classes: int,
    alpha: Array,
    beta: Array,
    price: Array,
    positive_total: bool = True,
    cross: Array | None = None,
    codes_new: Array | None = None,
    excess: float = 2.0,
    **rest: Any,
) -> None:
    """The program with the class kernels as sites; arguments as in `summed`.

    Parameters
    ----------
    excess : float
        Degrees of freedom above the number of rows; with 2 the mode of a kernel is K0.
    """
    similarity = _sample_kernels(K0, codes, num_classes, excess)
    _constrain(similarity, codes, alpha, beta, price, positive_total)
    _label_new_rows(jnp.linalg.solve(K0, similarity.T).T, codes, cross, codes_new)


def constrained(
    K0: Array,
    codes: Array,
    num_classes: int,
    alpha: Array,
    beta: Array,
    positive_total: bool = True,
    slack: Array = 0.0,
    cross: Array | None = None,
    codes_new: Array | None = None,
    **rest: Any,
) -> None:
    """The program ``wishart`` with hard constraints, whose mode is the projection; arguments as in `summed`.

    Parameters
    ----------
    slack : float
        Violation that still counts as none: rounding, at the mode, where constraints are met with equality.
    """
    similarity = _sample_kernels(K0, codes, num_classes)
    g = violations(of_problems(similarity, codes), codes, alpha, beta, positive_total)
    numpyro.factor("constraints", jnp.where((g <= slack).all(), 0.0, -jnp.inf))
    _label_new_rows(jnp.linalg.solve(K0, similarity.T).T, codes, cross, codes_new)


def class_means(codes: Array, num_classes: int, xp: Any = jnp) -> Array:
    """Return v of every class of every problem, 1 / n_l at its rows and 0 elsewhere: (class, graph)."""
    member = (xp.asarray(codes)[:, None, :] == xp.arange(num_classes)[:, None]).astype(float)
    flat = member.reshape(-1, codes.shape[1])
    return flat / flat.sum(axis=1, keepdims=True)


def similarity_of(root: Array, means: Array, square: Array, white: Array) -> Array:
    """Return u = K v of each class from its Bartlett numbers: (class, graph).

    Parameters
    ----------
    root : (graph, graph)
        Lower Cholesky factor of K0.
    means : (class, graph)
        v.
    square : (class,)
        radius^2.
    white : (class, graph - 1)
    """
    direction = means @ root
    length = jnp.linalg.norm(direction, axis=1)
    radius = jnp.sqrt(square)
    column = jnp.concatenate([radius[:, None], white], axis=1)
    return (length * radius)[:, None] * (reflected(direction / length[:, None], column) @ root.T)


def reflected(unit: Array, x: Array, xp: Any = jnp) -> Array:
    """Return H x, H the reflection that takes the first axis to `unit`: (class, graph).

    A reflection to -unit with its sign changed where unit_1 > 0, so that nothing cancels.
    """
    sign = xp.where(unit[:, :1] > 0, -1.0, 1.0)
    first = xp.zeros_like(unit) + (xp.arange(unit.shape[1]) == 0)
    normal = first - sign * unit
    share = 2.0 * (normal * x).sum(axis=1, keepdims=True) / (normal**2).sum(axis=1, keepdims=True)
    return sign * (x - share * normal)


def of_problems(similarity: Array, codes: Array) -> Array:
    """Return similarities (class, graph) as (problem, graph, class of the problem)."""
    problems, n = codes.shape
    return similarity.reshape(problems, -1, n).swapaxes(1, 2)


def violations(similarity: Array, codes: Array, alpha: Array, beta: Array, positive_total: bool) -> Array:
    """Return g (problem, graph, column), its last column of the total where asked: feasible where <= 0.

    Parameters
    ----------
    similarity : (problem, graph, class)
    codes : int (problem, graph)
    """
    total = similarity.sum(axis=-1, keepdims=True)
    own = codes[..., None] == jnp.arange(similarity.shape[-1])
    g = jnp.where(own, total - similarity / alpha, similarity / beta - total)
    return jnp.concatenate([g, -total], axis=-1) if positive_total else g


def class_probs(similarity: Array, negative: str = "clip", xp: Any = np) -> Array:
    """Return p_l = s_l / sum_m s_m, classes along the last axis.

    Parameters
    ----------
    similarity : (..., class)
    negative : {"clip", "raw"}
        Kernels may have negative entries. "clip" takes negative similarities as 0; "raw" takes them as they
        are (the paper's form), so that shares may leave the unit interval. Where nothing positive is left to
        divide by, all classes get 1 / C.
    xp : module
        ``numpy`` or ``jax.numpy``.

    Raises
    ------
    ValueError
        If `negative` is unknown.
    """
    if negative not in NEGATIVE:
        raise ValueError(f"negative must be 'clip' or 'raw', got {negative!r}")
    kept = xp.maximum(similarity, 0.0) if negative == "clip" else similarity
    total = kept.sum(axis=-1, keepdims=True)
    usable = total > NO_TOTAL * xp.abs(kept).sum(axis=-1, keepdims=True)
    return xp.where(usable, kept / xp.where(usable, total, 1.0), 1.0 / kept.shape[-1])


def _sample_kernels(K0: Array, codes: Array, num_classes: int, excess: float = 2.0) -> Array:
    """Sample the kernels and return u (class, graph)."""
    n, count = K0.shape[0], codes.shape[0] * num_classes
    with numpyro.plate("class", count):
        kernels = numpyro.sample("kernels", dist.Wishart(n + excess, scale_matrix=K0))
    return jnp.einsum("lij,lj->li", kernels, class_means(codes, num_classes))


def _constrain(
    similarity: Array, codes: Array, alpha: Array, beta: Array, price: Array, positive_total: bool
) -> None:
    g = violations(of_problems(similarity, codes), codes, alpha, beta, positive_total)
    numpyro.factor("constraints", -0.5 * price * jnp.maximum(g, 0.0).sum())


def _label_new_rows(coefficients: Array, codes: Array, cross: Array | None, codes_new: Array | None) -> None:
    if cross is None:
        return
    similarity = of_problems(coefficients @ cross.T, jnp.zeros((codes.shape[0], cross.shape[0])))
    with numpyro.plate("new", cross.shape[0]), numpyro.plate("problem", codes.shape[0]):
        numpyro.sample("codes_new", dist.Categorical(probs=class_probs(similarity, xp=jnp)), obs=codes_new)
