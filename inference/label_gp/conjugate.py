"""The closed form: independent exact draws of the whitened function."""

import time
from typing import Any

import jax
import numpy as np
from scipy.linalg import solve_triangular

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec

OPTIONS: dict[str, Any] = {"num_samples": 400}


def run(
    spec: ModelSpec, inputs: dict[str, Any], *, rng_key: Any, progress: bool, num_samples: int
) -> EngineResult:
    """Draw from the posterior, labels with the same observed rows together.

    Raises
    ------
    ValueError
        If the draws would pass the memory cap.
    """
    if not isinstance(num_samples, int | np.integer) or num_samples < 1:
        raise ValueError(f"num_samples must be a positive integer, got {num_samples!r}")
    num_labels, rank = inputs["Y"].shape[1], inputs["factor"].shape[1]
    size = 8 * num_samples * num_labels * rank
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"num_samples: {num_samples} draws of {num_labels} labels x {rank} components take "
            f"{size / 2**30:.1f} GiB, above the cap of {MAX_DENSE_BYTES / 2**30:.0f} GiB"
        )
    start = time.perf_counter()
    rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).ravel())
    white = draw_white(inputs, rng.standard_normal((num_samples, num_labels, rank)))
    seconds = time.perf_counter() - start
    attrs = {"fitted_length2": float(inputs["length2"]), "fitted_noise_ratio": float(inputs["noise_ratio"])}
    message = f"closed form, {num_samples} independent draws"
    return EngineResult({"white": white[None]}, {}, {}, 0.0, seconds, True, message, attrs)


def draw_white(inputs: dict[str, Any], normal: Any) -> Any:
    """Turn standard normals (sample, labels, component) into draws of `white_given_labels`.

    One Cholesky factor, component^3 / 3 flops, for each distinct set of observed rows.
    """
    factor, ratio = inputs["factor"], float(inputs["noise_ratio"])
    residual = (inputs["Y"] - inputs["mean"]) / np.sqrt(inputs["amplitude"])
    out = np.empty_like(normal)
    columns, inverse = np.unique(np.asarray(inputs["observed"]).T, axis=0, return_inverse=True)
    for group, column in enumerate(columns):
        labels = np.flatnonzero(inverse.ravel() == group)
        F = factor[column]
        lower = np.linalg.cholesky(np.eye(F.shape[1]) + F.T @ F / ratio)
        half = solve_triangular(lower, F.T @ residual[np.ix_(column, labels)] / ratio, lower=True)
        shifted = normal[:, labels] + half.T
        flat = solve_triangular(lower, shifted.reshape(-1, F.shape[1]).T, lower=True, trans="T")
        out[:, labels] = flat.T.reshape(shifted.shape)
    return out


engine = Engine(
    name="conjugate",
    kind="conjugate",
    run=run,
    random_sites=("white",),
    options=OPTIONS,
    conditionals=("white_given_labels",),
    description="closed form; independent exact draws",
)
