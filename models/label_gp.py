"""Multi-output Gaussian process regression on the 0/1 labels, one kernel for all: quick, and exact.

y_nl = mean_l + amplitude_l^(1/2) f_l(x_n) + noise, f_l a Gaussian process with kernel k (k(x, x) = 1) and
noise of variance noise_ratio amplitude_l. The posterior is closed form and its covariance does not read the
labels. The program is written with K = F F', f_l = F white_l and white_l standard normal, so that rows that
are alike make no singular covariance.

What is modelled is a number, not a 0/1 outcome: the program cannot simulate labels, and turning its posterior
into probabilities is a stated rule (`predict_draws`), not part of the law. The mean is the smoothed label
frequency, (positives + 1/2) / (observed rows + 1); kernel and amplitudes come from the evidence
(`labelzoo.inference.label_gp.evidence`).

Rasmussen and Williams, "Gaussian processes for machine learning", 2006, sections 2.2 and 6.5.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import sparse
from scipy.special import ndtr, ndtri, owens_t

from labelzoo.models.gp_kernel import KINDS, GPKernel, feature_map
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec

Array = Any

SETTINGS: dict[str, Any] = {
    "kernel": "auto",
    "hyperparameters": "guarded",
    "length_factor": None,
    "noise_ratio": None,
}
"""Defaults. kernel: auto, rbf or cosine. hyperparameters: guarded (evidence with a prior and a floor),
floor (without the prior), evidence (the best of a wide grid) or fixed (length2 = median squared distance,
noise ratio 1). length_factor: length2 over that median; noise_ratio; a number overrides what hyperparameters
would choose."""

MAX_ROWS = 5000
"""Most rows, labelled or not: the kernel's eigenvectors cost rows^3."""
MIN_PROB = 1e-3
"""Probabilities stay this far from 0 and 1."""
RANK_CUT = 1e-10
"""Eigenvalues of the kernel below this share of the largest are dropped."""


def summed(
    factor: Array, Y: Array, observed: Array, mean: Array, amplitude: Array, noise_ratio: Array, **kernel: Any
) -> None:
    """The program: what NUTS and SVI run.

    Parameters
    ----------
    factor : array (obs, component)
        F with F F' = K, the kernel among the rows.
    Y : array (obs, labels)
        0 or 1; the values at unobserved cells are not read.
    observed : bool array (obs, labels)
    mean, amplitude : array (labels,)
    noise_ratio : float
    **kernel
        What prediction needs; not read here.
    """
    with numpyro.plate("labels", Y.shape[1]):
        white = numpyro.sample("white", dist.Normal(0.0, 1.0).expand([factor.shape[1]]).to_event(1))
    loc = mean + factor @ white.T * jnp.sqrt(amplitude)
    noise = jnp.sqrt(noise_ratio * amplitude)
    with numpyro.plate("obs", Y.shape[0]):
        numpyro.sample("Y", dist.Normal(loc, noise).mask(observed).to_event(1), obs=Y)


def prepare(
    data: Any, settings: Mapping[str, Any], constants: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of every view for `data` (LabelData).

    Rows without any observed label take part in the kernel's features and factor, so that a posterior fitted
    with its pool is joint over pool and labelled rows. With `constants`, the kernel, mean and amplitudes are
    those of the training rows.

    Raises
    ------
    ValueError
        If a setting is out of range, a feature is missing, or there are more than `MAX_ROWS` rows.
    """
    from labelzoo.inference.label_gp.evidence import choose_hyperparameters

    _check_settings(settings)
    _refuse_large(data)
    observed = data.observed_mask(max_bytes=MAX_DENSE_BYTES)
    Y = data.Y.toarray().astype(float)
    if constants is None:
        kernel = feature_map(data.X, settings["kernel"])
        chosen = choose_hyperparameters(kernel, data.X, Y, observed, settings)
        kernel, mean, amplitude = chosen.kernel, chosen.mean, chosen.amplitude
    else:
        kernel, mean, amplitude = kernel_of(constants), constants["mean"], constants["amplitude"]
    mapped = _dense(kernel.mapped(data.X))
    factor, whitener = kernel_factor(kernel.of_mapped(mapped, mapped))
    return {
        "factor": factor,
        "Y": Y,
        "observed": observed,
        "mean": mean,
        "amplitude": amplitude,
        "noise_ratio": kernel.noise_ratio,
        "whitener": whitener,
        "mapped": mapped,
        "is_cosine": np.int8(kernel.is_cosine),
        "center": kernel.center,
        "scale": kernel.scale,
        "length2": kernel.length2,
    }


def kernel_factor(K: Array) -> tuple[Array, Array]:
    """Return F (n, c) with F F' = K and W (n, c) with F = K W, from the eigenvalues above `RANK_CUT`."""
    values, vectors = np.linalg.eigh(K)
    keep = values > RANK_CUT * max(float(values[-1]), 1e-300)
    if not keep.any():
        raise ValueError("X has no feature that the kernel can see: every row is empty")
    root = np.sqrt(values[keep])
    return vectors[:, keep] * root, vectors[:, keep] / root


CONSTANTS = ("whitener", "mapped", "is_cosine", "center", "scale", "length2")


def constants(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what prediction needs besides the draws: the kernel, the mapped rows and their whitening."""
    numbers = {"fitted_noise_ratio": inputs["noise_ratio"]}
    return numbers | {name: inputs[name] for name in (*CONSTANTS, "mean", "amplitude")}


def kernel_of(constants: Mapping[str, Any]) -> GPKernel:
    """Return the kernel from saved constants."""
    return GPKernel(
        bool(constants["is_cosine"]),
        constants["center"],
        constants["scale"],
        float(constants["length2"]),
        float(constants["fitted_noise_ratio"]),
    )


def _dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


def _check_settings(settings: Mapping[str, Any]) -> None:
    if settings["kernel"] not in KINDS:
        raise ValueError(f"kernel must be one of {', '.join(KINDS)}, got {settings['kernel']!r}")
    for name in ("length_factor", "noise_ratio"):
        value = settings[name]
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if value is not None and not (number and np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive finite number or None, got {value!r}")


def _refuse_large(data: Any) -> None:
    n, d = data.num_rows, data.num_features
    if n > MAX_ROWS:
        raise ValueError(f"data: label_gp works on at most {MAX_ROWS} rows, got {n}: pass a subset of rows")
    if 8 * n * max(d, data.num_labels) > MAX_DENSE_BYTES:
        raise ValueError(
            f"data: label_gp keeps its rows as dense tables, here {n} rows x {d} features and "
            f"{data.num_labels} labels, above the cap of {MAX_DENSE_BYTES / 2**30:.0f} GiB"
        )


def predict(draw: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any]) -> Array:
    """Return the mean of the label given the function at the training rows, clipped: (row, labels).

    What the new rows do not share with the training rows is left at its mean; `predict_draws` draws it.
    """
    Z = (X_new - constants["center"]) * constants["scale"]
    rows = constants["mapped"]
    if bool(constants["is_cosine"]):
        norm = jnp.linalg.norm(Z, axis=1, keepdims=True)
        cross = jnp.where(norm > 0, Z / jnp.where(norm > 0, norm, 1.0), 0.0) @ rows.T
    else:
        square = (Z**2).sum(1)[:, None] + (rows**2).sum(1)[None, :] - 2.0 * Z @ rows.T
        cross = jnp.exp(-jnp.maximum(square, 0.0) / (2.0 * constants["length2"]))
    field = cross @ constants["whitener"] @ draw["white"].T * jnp.sqrt(constants["amplitude"])
    return jnp.clip(constants["mean"] + field, MIN_PROB, 1 - MIN_PROB)


def predict_draws(draws: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any], rng: Any) -> Array:
    """Return P(label = 1) of new rows, draw by draw and joint over the rows: (sample, row, labels).

    The function at the new rows is drawn given that at the training rows. A Gaussian field is no probability,
    so each cell is squashed, p = Phi(a + b z) with z the standardised field: increasing in z, with the mean
    (kept within `MIN_PROB` of 0 and 1) and the variance (below mean (1 - mean)) of the field at that cell.
    Cost rows^3 / 3 + 2 sample labels rows^2 flops.

    Raises
    ------
    ValueError
        For more than `MAX_ROWS` new rows at once: their covariance is dense.
    """
    if X_new.shape[0] > MAX_ROWS:
        raise ValueError(
            f"X has {X_new.shape[0]} rows, label_gp draws at most {MAX_ROWS} jointly: pass fewer rows"
        )
    kernel = kernel_of(constants)
    Z = _dense(kernel.mapped(X_new))
    cross = kernel.of_mapped(Z, constants["mapped"]) @ constants["whitener"]
    rest = kernel.of_mapped(Z, Z) - cross @ cross.T
    values, vectors = np.linalg.eigh(rest)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    white = np.asarray(draws["white"], float)
    fresh = rng.standard_normal((*white.shape[:2], Z.shape[0]))
    field = np.swapaxes(white @ cross.T + fresh @ root.T, 1, 2)
    return squash(np.asarray(constants["mean"]) + field * np.sqrt(constants["amplitude"]))


def squash(values: Array) -> Array:
    """Return probabilities with the mean and variance over draws of `values`: (sample, row, labels)."""
    mean, sd = values.mean(axis=0), values.std(axis=0)
    z = np.divide(values - mean, sd, out=np.zeros_like(values), where=sd > 0)
    p = np.clip(mean, MIN_PROB, 1 - MIN_PROB)
    b = probit_slope(p, sd**2)
    return ndtr(ndtri(p) * np.sqrt(1 + b**2) + b * z)


def probit_slope(mean: Array, variance: Array, steps: int = 40) -> Array:
    """Return b such that Phi(a + b z), z standard normal, has the given mean and variance.

    With a = Phi^-1(mean) (1 + b^2)^(1/2) the mean is exact, and with r = b^2 / (1 + b^2) the second moment is
    mean - 2 T(Phi^-1(mean), ((1 - r) / (1 + r))^(1/2)), T Owen's function; r by bisection. A variance of .98
    mean (1 - mean) or more is taken as that.
    """
    h = ndtri(mean)
    wanted = np.minimum(variance, 0.98 * mean * (1 - mean))
    low, high = np.zeros_like(wanted), np.full_like(wanted, 1 - 1e-6)
    for _ in range(steps):
        r = 0.5 * (low + high)
        found = mean - 2 * owens_t(h, np.sqrt((1 - r) / (1 + r))) - mean**2
        low, high = np.where(found < wanted, r, low), np.where(found < wanted, high, r)
    r = 0.5 * (low + high)
    return np.where(wanted > 0, np.sqrt(r / (1 - r)), 0.0)


def functionals(draw: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return what does not change when K is factored otherwise.

    ``field`` (at most 200 values of mean + function, evenly spaced over rows and labels), ``label_rate``
    (labels,), its mean over rows; ``square`` (labels,), the mean squared function.
    """
    white = draw["white"]
    function = inputs["factor"] @ white.T * jnp.sqrt(inputs["amplitude"])
    flat = (inputs["mean"] + function).reshape(-1)
    keep = np.unique(np.linspace(0, flat.shape[0] - 1, min(200, flat.shape[0])).astype(int))
    rate = inputs["mean"] + function.mean(axis=0)
    return {"field": flat[keep], "label_rate": rate, "square": (function**2).mean(axis=0)}


spec = ModelSpec(
    name="label_gp",
    views={"summed": summed},
    predict=predict,
    predict_draws=predict_draws,
    prepare=prepare,
    constants=constants,
    settings=SETTINGS,
    dims={
        "white": ("labels", "component"),
        "whitener": ("obs", "component"),
        "mapped": ("obs", "feature"),
        "center": ("feature",),
        "scale": ("feature",),
        "mean": ("labels",),
        "amplitude": ("labels",),
    },
    functionals=functionals,
    no_simulate="its law is of real numbers, labels are 0 and 1",
    tiny={"num_obs": 6, "num_features": 2, "num_labels": 3},
    default={"num_obs": 200, "num_features": 5, "num_labels": 10},
    check_settings={"kernel": "cosine", "hyperparameters": "fixed"},
    paper="Rasmussen, Williams: Gaussian processes for machine learning, 2006",
    equations="(2.25), (2.26), section 6.5",
)
