"""New rows of gp_bernoulli_mixture given draws of the gates and of the components' label probabilities.

A new row x has f_k = gate_mean + c(x) white_k + rest, where c(x) = amplitude k(x, mapped) whitener and the
rest is normal with what variance the basis does not hold. Its labels are those of one component, drawn by its
gates: dependent given the draw, so that `log_score` is more than a sum over labels.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.special import log_expit, softmax

from labelzoo.models.gp_bernoulli_mixture import label_scores, log_gate
from labelzoo.models.gp_kernel import LARGEST
from labelzoo.models.sparse_bayes_kernel import GraphKernel
from labelzoo.models.sparse_bayes_predict import kernel_of

Array = Any

LOWEST, HIGHEST = 1e-12, 1.0 - 1e-12
"""Range of label probabilities in predictions."""
MAX_NEW_ROWS = 5000
"""Most new rows drawn jointly: their covariance is dense."""
ROUNDING = 1e-12
"""Of a row's variance: less than this share beyond the basis is rounding, and none."""
SCORE_SAMPLES = 64
"""Gates that `log_score` averages over at a row that is not in the basis, 32 and their mirrors."""


def clipped(probs: Array, xp: Any = np) -> Array:
    """Return probabilities within [1e-12, 1 - 1e-12]."""
    return xp.clip(probs, LOWEST, HIGHEST)


def basis_rows(constants: Mapping[str, Any], X: Array) -> tuple[Array, Array]:
    """Return c(x) (row, basis) and the variance of f that the basis does not hold (row,), in NumPy.

    Raises
    ------
    ValueError
        If a user's kernel is no longer what it was in the fit, or a row is beyond what a kernel can hold.
    """
    refuse_far(X)
    kernel = kernel_of(constants)
    if kernel.kind == "callable":
        _refuse_other_kernel(kernel, constants)
    mapped = kernel.mapped(X)
    amplitude = float(constants["fitted_amplitude"])
    cross = amplitude * kernel.of_mapped(mapped, constants["mapped"]) @ constants["whitener"]
    own = amplitude * kernel.diagonal(mapped)
    bad = np.flatnonzero(~(np.isfinite(own) & np.isfinite(cross).all(axis=1)))
    if bad.size:
        raise ValueError(f"X: the kernel {kernel.name!r} is not finite at row {bad[0]}")
    rest = own - (cross**2).sum(axis=1)
    return cross, np.where(rest > ROUNDING * own, rest, 0.0)


def refuse_far(X: Array) -> None:
    """Refuse features beyond `LARGEST`, whose squares a number cannot hold.

    Raises
    ------
    ValueError
        That names row and feature.
    """
    values = X.data if sparse.issparse(X) else np.asarray(X)
    if values.size and float(np.abs(values).max()) > LARGEST:
        row, column = (int(places[0]) for places in (abs(X) > LARGEST).nonzero())
        raise ValueError(
            f"X: row {row}, feature {column} is beyond {LARGEST:g}, whose square a number cannot "
            "hold: rescale it"
        )


def _refuse_other_kernel(kernel: GraphKernel, constants: Mapping[str, Any]) -> None:
    """Refuse a function under which the whitener no longer whitens the rows of the basis."""
    rows, whitener = constants["mapped"], np.asarray(constants["whitener"])
    K = float(constants["fitted_amplitude"]) * kernel.of_mapped(rows, rows)
    gap = float(np.abs(whitener.T @ K @ whitener - np.eye(whitener.shape[1])).max())
    if not gap <= 1e-3:
        raise ValueError(
            f"kernel {kernel.name!r} is not the function of the fit: at the {len(rows)} rows of the basis it "
            f"differs by {gap:.3g} of its size"
        )


def traced_basis_rows(constants: Mapping[str, Any], X: Array) -> tuple[Array, Array]:
    """Return what `basis_rows` does, traceable by JAX."""
    kernel = kernel_of(constants)
    if kernel.kind == "callable":
        rows, basis = X.shape[0], constants["whitener"].shape[1]
        shapes = (jax.ShapeDtypeStruct((rows, basis), float), jax.ShapeDtypeStruct((rows,), float))
        return jax.pure_callback(
            lambda x: basis_rows(constants, np.asarray(x, float)), shapes, X, vmap_method="sequential"
        )
    Z = (X - kernel.center) * kernel.feature_scale
    rows = jnp.asarray(constants["mapped"])
    if kernel.kind == "rbf":
        square = (Z**2).sum(1)[:, None] + (rows**2).sum(1)[None, :] - 2.0 * Z @ rows.T
        K, own = jnp.exp(jnp.maximum(square, 0.0) / (-2.0 * kernel.length2)), jnp.ones(Z.shape[0])
    else:
        if kernel.kind == "cosine":
            norm = jnp.linalg.norm(Z, axis=1, keepdims=True)
            Z = jnp.where(norm > 0, Z / jnp.where(norm > 0, norm, 1.0), 0.0)
        share = max(Z.shape[1], 1) if kernel.kind == "linear" else 1
        K, own = Z @ rows.T / share, (Z**2).sum(axis=1) / share
    amplitude = constants["fitted_amplitude"]
    cross = amplitude * K @ constants["whitener"]
    return cross, jnp.maximum(amplitude * own - (cross**2).sum(axis=1), 0.0)


def kept_components(draw: Mapping[str, Any], constants: Mapping[str, Any], xp: Any = np) -> Array | None:
    """Return which components of a draw (or of draws) predict: bool (..., component); None: all.

    A component stays where labels (prior_strength + component_size) is at least rho times its mean over
    components, and where it is the largest.

    Raises
    ------
    ValueError
        If rho is above 0 and the draws hold no ``component_size``.
    """
    rho = float(constants["rho"])
    if rho == 0.0:
        return None
    if "component_size" not in draw:
        raise ValueError("rho is above 0, but the posterior has no component_size to choose components by")
    strength = float(constants["prior_strength"]) + xp.asarray(draw["component_size"])
    largest = strength == strength.max(axis=-1, keepdims=True)
    return (strength >= rho * strength.mean(axis=-1, keepdims=True)) | largest


def restricted_log_gate(f: Array, kept: Array | None) -> Array:
    """Return log pi of gate values (row, component), over the kept components alone; JAX."""
    logs = jax.nn.log_sigmoid(f)
    return jax.nn.log_softmax(logs if kept is None else jnp.where(kept, logs, -jnp.inf), axis=-1)


def predict(draw: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any]) -> Array:
    """Return P(label = 1) with the gates at their mean given those of the basis: (row, labels).

    `predict_draws` draws what new rows do not share with the basis.
    """
    cross, _ = traced_basis_rows(constants, X_new)
    f = constants["gate_mean"] + cross @ draw["white"].T
    gate = jnp.exp(restricted_log_gate(f, kept_components(draw, constants, jnp)))
    return clipped(gate @ draw["component_probs"], jnp)


def gate_draws(
    white: Array,
    X_new: Array,
    constants: Mapping[str, Any],
    rng: Any,
    kept: Array | None = None,
) -> Iterator[Array]:
    """Yield pi of new rows, one draw after another and joint over the rows: (row, component).

    Parameters
    ----------
    white : (sample, component, basis)
    X_new : dense or csr (row, feature)
    rng : numpy Generator
    kept : bool (sample, component) or None
        Components that predict.

    Raises
    ------
    ValueError
        For more than `MAX_NEW_ROWS` rows, whose covariance is dense.
    """
    rows = X_new.shape[0]
    if rows > MAX_NEW_ROWS:
        raise ValueError(
            f"X has {rows} rows, gp_bernoulli_mixture draws at most {MAX_NEW_ROWS} jointly: pass fewer rows"
        )
    cross, variance = basis_rows(constants, X_new)
    root = rest_root(cross, variance, X_new, constants)
    for sample in range(len(white)):
        fresh = rng.standard_normal((white.shape[1], rows)).T
        logs = log_expit(float(constants["gate_mean"]) + cross @ white[sample].T + root @ fresh)
        if kept is not None:
            logs[:, ~kept[sample]] = -np.inf
        yield softmax(logs, axis=1)


def rest_root(cross: Array, variance: Array, X_new: Array, constants: Mapping[str, Any]) -> Array:
    """Return a root of the rows' covariance beyond the basis: (row, row).

    By the eigenvectors of the correlations, so that a row of large variance does not drown the others.
    """
    kernel = kernel_of(constants)
    mapped = kernel.mapped(X_new)
    rest = float(constants["fitted_amplitude"]) * kernel.of_mapped(mapped, mapped) - cross @ cross.T
    sd = np.sqrt(variance)
    safe = np.where(sd > 0, sd, 1.0)
    values, vectors = np.linalg.eigh(np.where(np.outer(sd, sd) > 0, rest / safe[:, None] / safe, 0.0))
    return sd[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))


def prob_draws(
    draws: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any], rng: Any
) -> Iterator[Array]:
    """Yield P(label = 1) of new rows, one draw after another: (row, labels)."""
    probs = np.asarray(draws["component_probs"], float)
    white = np.asarray(draws["white"], float)
    gates = gate_draws(white, X_new, constants, rng, kept_components(draws, constants))
    for gate, each in zip(gates, probs, strict=True):
        yield clipped(gate @ each)


def predict_draws(draws: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any], rng: Any) -> Array:
    """Return P(label = 1) of new rows, draw by draw and joint over the rows: (sample, row, labels).

    The gates of the rows are drawn given those of the basis. Cost 4 rows^3 / 3 + 2 sample rows component
    (rows + basis + labels) flops.

    Raises
    ------
    ValueError
        For more than `MAX_NEW_ROWS` rows.
    """
    shape = (len(draws["white"]), X_new.shape[0], np.shape(draws["component_probs"])[2])
    out = np.empty(shape)
    for sample, probs in enumerate(prob_draws(draws, X_new, constants, rng)):
        out[sample] = probs
    return out


def predict_moments(
    draws: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any], rng: Any
) -> tuple[Array, Array]:
    """Return mean and sd over draws of `predict_draws`, (row, labels) each, without holding the draws."""
    mean = np.zeros((X_new.shape[0], np.shape(draws["component_probs"])[2]))
    square = np.zeros_like(mean)
    for count, probs in enumerate(prob_draws(draws, X_new, constants, rng), start=1):
        gap = probs - mean
        mean += gap / count
        square += gap * (probs - mean)
    return mean, np.sqrt(square / len(draws["white"]))


def log_score(
    draw: Mapping[str, Any], inputs: Mapping[str, Any], key: Array, num_samples: int = SCORE_SAMPLES
) -> Array:
    """Return log p(observed labels of a row | draw), jointly over the labels: (row,), nats.

    log of E[sum_k pi_k p(y | theta_k)], the expectation over what the basis does not hold of the row's gates
    by pairs of mirrored normals, an unbiased estimate of p; exact where nothing is missing.

    Parameters
    ----------
    draw : mapping
        ``white``, ``component_probs`` (and ``component_size`` where rho is above 0) at one draw.
    inputs : mapping
        What `prepare` returned for the rows to score.
    """
    scores = label_scores(clipped(draw["component_probs"], jnp), inputs["Y"], inputs["observed"])
    kept = kept_components(draw, inputs, jnp)
    f = inputs["gate_mean"] + inputs["factor"] @ draw["white"].T
    if inputs.get("residual") is None:
        return jax.nn.logsumexp(restricted_log_gate(f, kept) + scores, axis=1)
    sd = jnp.sqrt(jnp.asarray(inputs["residual"]))[:, None]

    def one(key: Array) -> Array:
        noise = sd * jax.random.normal(key, f.shape, f.dtype)
        both = [restricted_log_gate(f + sign * noise, kept) + scores for sign in (1.0, -1.0)]
        return jnp.stack([jax.nn.logsumexp(each, axis=1) for each in both])

    found = jax.lax.map(one, jax.random.split(key, max(num_samples // 2, 1)))
    return jax.nn.logsumexp(found, axis=(0, 1)) - jnp.log(found.shape[0] * 2.0)


def draw_labels(
    draw: Mapping[str, Any], X: Array, constants: Mapping[str, Any], key: Array
) -> tuple[Array, dict[str, Array]]:
    """Draw gates, components and labels of raw rows given the gates of the basis, each row on its own.

    Rows outside the basis share nothing beyond it here; the rows of the fit are all inside it.

    Returns
    -------
    labels : int8 array (row, labels)
    sites : dict
        ``assignment`` (row,).
    """
    cross, residual = traced_basis_rows(constants, X)
    gate_key, component_key, label_key = jax.random.split(key, 3)
    f = constants["gate_mean"] + cross @ draw["white"].T
    f = f + jnp.sqrt(residual)[:, None] * jax.random.normal(gate_key, f.shape, f.dtype)
    z = jax.random.categorical(component_key, log_gate(f), axis=1)
    labels = jax.random.bernoulli(label_key, draw["component_probs"][z])
    return labels.astype(jnp.int8), {"assignment": z}
