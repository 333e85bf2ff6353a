"""New rows of sparse_bayes, one at a time, given the completed labels of the training rows.

A new row x meets the training rows through t = T' C^-1 c(x), its compressed labels' mean given T = Y Phi',
and their variance v = C(x, x) - c(x)' C^-1 c(x), noise included. Its labels then have the potential
exp(-|Phi y - t|^2 / 2 v) and their own sparsity prior. New rows do not see each other: with an unlabelled row
of its own prior in the graph, the other rows' posterior would change (docs/sparse_bayes.md).

Labels are real numbers here. A rule, and no inference, makes probabilities of them: `soft_clip` of the mean.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_solve
from scipy.special import ndtr, ndtri

from labelzoo.models.label_gp import probit_slope
from labelzoo.models.sparse_bayes_kernel import KINDS, GraphKernel

Array = Any

EDGE = 0.05
"""Values this far inside [0, 1] are probabilities as they are; beyond, tails that never reach 0 or 1."""
LOWEST, HIGHEST = 1e-300, 1 - 1e-15
"""Range of a mean about which draws are spread: the order of labels holds up to means of about 2.5."""

CHECKED = 20
"""Training rows at which a user's kernel is compared with the fit."""
LARGEST_SHARE = 0.98
"""Part of p (1 - p) that the variance of a probability may be; as in `probit_slope`."""


def soft_clip(value: Array, xp: Any = np) -> Array:
    """Return the value in [e, 1 - e], e = `EDGE`; e exp((value - e) / e) and its mirror beyond.

    Strictly increasing with a continuous slope, so that the order of labels is that of the values.
    """
    low = EDGE * xp.exp((xp.minimum(value, EDGE) - EDGE) / EDGE)
    high = 1.0 - EDGE * xp.exp((1.0 - EDGE - xp.maximum(value, 1.0 - EDGE)) / EDGE)
    return xp.where(value < EDGE, low, xp.where(value > 1.0 - EDGE, high, value))


def kernel_of(constants: Mapping[str, Any]) -> GraphKernel:
    """Return the kernel from saved constants and settings."""
    kind = KINDS[int(constants["kernel_kind"])]
    name = str(constants["kernel"]) if kind == "callable" else kind
    return GraphKernel(
        kind, name, constants["center"], constants["feature_scale"], float(constants["length2"])
    )


def cross_and_own(constants: Mapping[str, Any], X_new: Array) -> tuple[Array, Array]:
    """Return scale K between training and new rows (obs, row), and scale k(x, x) + noise (row,)."""
    kernel = kernel_of(constants)
    if kernel.kind == "callable":
        _refuse_other_kernel(kernel, constants)
    mapped = kernel.mapped(X_new)
    scale = float(constants["fitted_scale"])
    cross = scale * kernel.of_mapped(constants["mapped"], mapped)
    return cross, scale * kernel.diagonal(mapped) + float(constants["fitted_noise"])


def _refuse_other_kernel(kernel: GraphKernel, constants: Mapping[str, Any]) -> None:
    """Refuse a function that no longer gives, at some training rows, what it gave in the fit."""
    some = np.unique(np.linspace(0, len(constants["mapped"]) - 1, CHECKED).round().astype(int))
    rows, root = constants["mapped"][some], np.asarray(constants["cholesky"])[some]
    now = float(constants["fitted_scale"]) * kernel.of_mapped(rows, rows)
    now = now + float(constants["fitted_noise"]) * np.eye(len(some))
    before = root @ root.T
    gap, size = float(np.abs(now - before).max()), float(np.abs(before).max())
    if not gap <= 1e-6 * size:
        raise ValueError(
            f"kernel {kernel.name!r} is not the function of the fit: at {len(some)} training rows the "
            f"covariance differs by {gap:.3g} of {size:.3g}"
        )


def completed(constants: Mapping[str, Any], y_unobserved: Array) -> Array:
    """Return the training labels with the cells at `y_unobserved` (cell,): (obs, labels)."""
    Y = np.array(constants["Y"], float)
    Y[constants["cell_row"], constants["cell_label"]] = y_unobserved
    return Y


def predict(draw: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any]) -> Array:
    """Return `soft_clip` of the new rows' means given one draw of the training labels: (row, labels).

    The mean is that of the fixed point of each row (``ml_oss``), whatever ``new_rows`` says. Traceable.
    """
    rows, n = X_new.shape[0], constants["mapped"].shape[0]
    shapes = (jax.ShapeDtypeStruct((n, rows), float), jax.ShapeDtypeStruct((rows,), float))
    cross, own = jax.pure_callback(lambda X: cross_and_own(constants, np.asarray(X, float)), shapes, X_new)
    L, projection = jnp.asarray(constants["cholesky"]), jnp.asarray(constants["projection"])
    Y = jnp.asarray(constants["Y"], float)
    Y = Y.at[constants["cell_row"], constants["cell_label"]].set(draw["y_unobserved"])
    half = jax.scipy.linalg.solve_triangular(L, cross, lower=True)
    t = half.T @ jax.scipy.linalg.solve_triangular(L, Y @ projection.T, lower=True)
    v = own - (half**2).sum(axis=0)
    return soft_clip(row_means(t, v, projection, constants), jnp)


def row_means(t: Array, v: Array, projection: Array, constants: Mapping[str, Any]) -> Array:
    """Return the means (row, labels) after so many sweeps of q(y), q(alpha), in JAX."""
    shape, rate = constants["precision_shape"], constants["precision_rate"]
    eye = jnp.eye(projection.shape[0])

    def sweep(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        weights, _mean = carry
        B = v[:, None, None] * eye + jnp.einsum("kl,rl,ml->rkm", projection, weights, projection)
        solved = jnp.linalg.solve(B, jnp.broadcast_to(projection, (*weights.shape[:1], *projection.shape)))
        mean = weights * jnp.einsum("rkl,rk->rl", solved, t)
        variance = weights - weights**2 * jnp.einsum("kl,rkl->rl", projection, solved)
        return ((rate + 0.5 * (mean**2 + variance)) / (shape + 0.5), mean), None

    start = jnp.ones((t.shape[0], projection.shape[1]))
    (_, mean), _ = jax.lax.scan(sweep, (start, jnp.zeros_like(start)), None, length=int(constants["sweeps"]))
    return mean


def predict_draws(draws: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any], rng: Any) -> Array:
    """Return P(label = 1) of new rows, draw by draw: (sample, row, labels).

    ``gibbs``: beside the draws of the training labels a chain over each new row's labels and precisions, one
    sweep a draw. ``ml_oss`` and ``bml_cs``: the fixed point of each row with the training labels at their
    mean over draws (a plug-in: their uncertainty does not reach new rows), and stratified normal quantiles
    about it, each label on its own. The mean over draws is `soft_clip` of the mean of the label; the spread
    is that of the label, squashed into (0, 1).
    """
    y = np.asarray(draws["y_unobserved"], float)
    cross, own = cross_and_own(constants, X_new)
    if constants["new_rows"] == "gibbs":
        mean, values = chain(y, cross, own, constants, rng)
        sd = values.std(axis=0)
        centred = values - values.mean(axis=0)
        z = np.divide(centred, sd, out=np.zeros_like(values), where=sd > 0)
        return spread(soft_clip(mean), sd**2, z)
    T = completed(constants, y.mean(axis=0)) @ constants["projection"].T
    mean, variance = fixed_point(T, cross, own, constants)
    quantiles = ndtri((np.arange(len(y)) + 0.5) / len(y))
    z = rng.permuted(np.broadcast_to(quantiles[:, None], (len(y), mean.size)), axis=0)
    return spread(soft_clip(mean), variance, z.reshape(len(y), *mean.shape))


def predict_moments(
    draws: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any], rng: Any
) -> tuple[Array, Array]:
    """Return mean and sd over draws of `predict_draws`, (row, labels) each, without making the draws.

    The mean is exact; the sd is that of Phi(a + b z) with z normal, which the draws have up to their number.
    """
    y = np.asarray(draws["y_unobserved"], float)
    cross, own = cross_and_own(constants, X_new)
    if constants["new_rows"] == "gibbs":
        mean, values = chain(y, cross, own, constants, rng)
        variance = values.var(axis=0)
    else:
        T = completed(constants, y.mean(axis=0)) @ constants["projection"].T
        mean, variance = fixed_point(T, cross, own, constants)
    prob = np.clip(soft_clip(mean), LOWEST, HIGHEST)
    return prob, np.sqrt(np.minimum(variance, LARGEST_SHARE * prob * (1.0 - prob)))


def fixed_point(T: Array, cross: Array, own: Array, constants: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return means and variances (row, labels) of new rows by the engine that ``new_rows`` names."""
    from labelzoo.inference.sparse_bayes.bml_cs import new_rows as bml_cs_rows
    from labelzoo.inference.sparse_bayes.inductive import condition, fit_rows

    t, v = condition(constants["cholesky"], cross, own, T)
    prior = {
        "shape": float(constants["precision_shape"]),
        "rate": float(constants["precision_rate"]),
        "sweeps": int(constants["sweeps"]),
    }
    if constants["new_rows"] == "bml_cs":
        chi2 = (1.0 - float(constants["noise_share"])) * float(constants["fitted_noise"])
        fit = bml_cs_rows(t, v, constants["projection"], chi2=chi2, **prior)
    else:
        fit = fit_rows(t, v, constants["projection"], **prior)
    return fit.mean, fit.variance


def spread(mean: Array, variance: Array, z: Array) -> Array:
    """Return probabilities with exactly this mean over draws, and about this variance: (sample, row, labels).

    p = Phi(a + b z) with z (sample, row, labels) of mean 0 and variance 1: b from the variance by
    `probit_slope`, then a by Newton's method so that the mean of these very draws is right.
    """
    mean = np.clip(mean, LOWEST, HIGHEST)
    b = probit_slope(mean, variance)
    a = ndtri(mean) * np.sqrt(1 + b**2)
    low, high = a - 1.0 - 4.0 * b, a + 1.0 + 4.0 * b
    for _ in range(60):
        gap = ndtr(a + b * z).mean(axis=0) - mean
        if np.abs(gap).max(initial=0.0) < 1e-13:
            break
        low, high = np.where(gap < 0, a, low), np.where(gap < 0, high, a)
        slope = np.exp(-0.5 * (a + b * z) ** 2).mean(axis=0) / np.sqrt(2 * np.pi)
        step = a - gap / np.maximum(slope, 1e-300)
        a = np.where((step > low) & (step < high), step, 0.5 * (low + high))
    return ndtr(a + b * z)


def chain(y: Array, cross: Array, own: Array, constants: Mapping[str, Any], rng: Any) -> tuple[Array, Array]:
    """Return means (row, labels) and draws (sample, row, labels) of new rows' labels by Gibbs sampling.

    Given the precisions a row's labels are normal, drawn by Matheron's rule with B = v I + Phi W Phi', W =
    diag(1 / alpha); given labels the precisions are gamma. Each draw of the training labels `y` (sample,
    cell) serves one sweep, the first one ``sweeps`` more before it. The means are averages of the
    conditional means. labels measurement^2 + measurement^3 flops a row and sweep.
    """
    from labelzoo.inference.sparse_bayes.inductive import check_variance

    projection, L = np.asarray(constants["projection"]), np.asarray(constants["cholesky"])
    gain = cho_solve((L, True), cross)
    v = own - (cross * gain).sum(axis=0)
    check_variance(v)
    shape, rate = float(constants["precision_shape"]), float(constants["precision_rate"])
    rows, (k, labels) = cross.shape[1], projection.shape
    fixed = gain.T @ (completed(constants, 0.0) @ projection.T)
    alpha = np.ones((rows, labels))
    total, values = np.zeros((rows, labels)), np.empty((len(y), rows, labels))
    diagonal = np.arange(k)
    for sample in range(len(y)):
        t = fixed
        if y.shape[1]:
            cells = np.zeros((len(cross), labels))
            cells[constants["cell_row"], constants["cell_label"]] = y[sample]
            t = fixed + gain.T @ (cells @ projection.T)
        for _ in range(1 + (int(constants["sweeps"]) if sample == 0 else 0)):
            weights = 1.0 / alpha
            B = np.matmul(projection[None] * weights[:, None, :], projection.T)
            B[:, diagonal, diagonal] += v[:, None]
            prior = np.sqrt(weights) * rng.standard_normal((rows, labels))
            noise = np.sqrt(v)[:, None] * rng.standard_normal((rows, k))
            right = np.stack([t, t - prior @ projection.T - noise], axis=2)
            solved = np.swapaxes(np.linalg.solve(B, right), 1, 2) @ projection
            mean = weights * solved[:, 0]
            label = prior + weights * solved[:, 1]
            alpha = np.maximum(rng.gamma(shape + 0.5, 1.0 / (rate + 0.5 * label**2)), 1e-300)
        total += mean
        values[sample] = label
    return total / len(y), values
