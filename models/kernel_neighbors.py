"""Class kernels by LogDet projection (pKNN) as NumPyro programs.

The density of a class kernel is proportional to exp(-Dld(K^l | K0) / 2), Dld(K | K0) = tr(K K0^-1)
- log det(K K0^-1) - n, which is the Wishart law with n + 2 degrees of freedom and scale K0: its mode is K0.
With s_l(i) the mean of K^l(x_i, x_j) over the rows j of class l, the training labels enter only through

    sum_l s_l(i) - s_y(i) / alpha <= 0,   s_c(i) / beta - sum_l s_l(i) <= 0  for c != y = y_i,

and, where asked, -sum_l s_l(i) <= 0. Hard, they leave a truncated Wishart law whose mode is the projection of
the paper; softened, a violation costs price / 2 nats, and NUTS gives the Bayesian version at a few rows. A
new row has the similarities K0(x, X) K0^-1 K^l v_l, what the Wishart law expects there, and its label is
categorical with their shares.

No joint law of kernels and training labels is meant: the constraints are a product of experts, so that the
program cannot simulate its training labels.

Jain and Kapoor, "Active learning for large multi-class problems", CVPR 2009, eqs. 2 to 4.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

Array = Any

NEGATIVE = ("clip", "raw")
NO_TOTAL = 1e-12
"""Share of sum_l |s_l| below which sum_l s_l is no normaliser."""


def summed(
    K0: Array,
    y: Array,
    num_classes: int,
    alpha: Array,
    beta: Array,
    price: Array,
    positive_total: bool = True,
    cross: Array | None = None,
    y_new: Array | None = None,
    **rest: Any,
) -> None:
    """The program with softened constraints: what NUTS runs, at a few rows.

    Parameters
    ----------
    K0 : array (obs, obs)
        Prior kernel of the training rows, positive definite.
    y : int array (obs,)
        Class of each training row, from 0; each class has a row.
    num_classes : int
    alpha, beta : float
    price : float
        Of a unit of violation, on the scale of the divergence: minus the log density has half of it.
    positive_total : bool
    cross : array (obs_bis, obs) or None
        K0 between new rows and the training rows; without it there are no labels in the program.
    y_new : int array (obs_bis,) or None
        Labels of the new rows where known.
    **rest
        Not read here.
    """
    similarity = _sample_similarity(K0, y, num_classes)
    g = violations(similarity, y, alpha, beta, positive_total)
    numpyro.factor("constraints", -0.5 * price * jnp.maximum(g, 0.0).sum())
    _label_new_rows(K0, similarity, cross, y_new)


def constrained(
    K0: Array,
    y: Array,
    num_classes: int,
    alpha: Array,
    beta: Array,
    positive_total: bool = True,
    slack: Array = 0.0,
    cross: Array | None = None,
    y_new: Array | None = None,
    **rest: Any,
) -> None:
    """The program with hard constraints, whose mode is the LogDet projection; arguments as in `summed`.

    Parameters
    ----------
    slack : float
        Violation that still counts as none: rounding, at the mode, where constraints are met with equality.
    """
    similarity = _sample_similarity(K0, y, num_classes)
    g = violations(similarity, y, alpha, beta, positive_total)
    numpyro.factor("constraints", jnp.where((g <= slack).all(), 0.0, -jnp.inf))
    _label_new_rows(K0, similarity, cross, y_new)


def violations(similarity: Array, y: Array, alpha: Array, beta: Array, positive_total: bool) -> Array:
    """Return g (obs, class), and a last column for the total where asked: feasible where not above 0."""
    total = similarity.sum(axis=1, keepdims=True)
    own = y[:, None] == jnp.arange(similarity.shape[1])
    g = jnp.where(own, total - similarity / alpha, similarity / beta - total)
    return jnp.concatenate([g, -total], axis=1) if positive_total else g


def class_probs(similarity: Array, negative: str = "clip", xp: Any = np) -> Array:
    """Return p_l = s_l / sum_m s_m: (row, class).

    Parameters
    ----------
    similarity : (row, class)
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
    total = kept.sum(axis=1, keepdims=True)
    usable = total > NO_TOTAL * xp.abs(kept).sum(axis=1, keepdims=True)
    return xp.where(usable, kept / xp.where(usable, total, 1.0), 1.0 / kept.shape[1])


def _sample_similarity(K0: Array, y: Array, num_classes: int) -> Array:
    """Sample the kernels and return s (obs, class)."""
    rows = K0.shape[0]
    with numpyro.plate("class", num_classes):
        kernels = numpyro.sample("kernels", dist.Wishart(rows + 2.0, scale_matrix=K0))
    member = y[:, None] == jnp.arange(num_classes)
    return jnp.einsum("lij,jl->il", kernels, member / member.sum(axis=0))


def _label_new_rows(K0: Array, similarity: Array, cross: Array | None, y_new: Array | None) -> None:
    if cross is None:
        return
    probs = class_probs(cross @ jnp.linalg.solve(K0, similarity), xp=jnp)
    with numpyro.plate("obs_bis", cross.shape[0]):
        numpyro.sample("y_new", dist.Categorical(probs=probs), obs=y_new)
