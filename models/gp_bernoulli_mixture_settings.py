"""Settings of gp_bernoulli_mixture, what they may be, and the numbers that they stand for."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from labelzoo.arguments import real, whole_number
from labelzoo.models.spec import MAX_DENSE_BYTES, refuse_missing_features

Array = Any

SETTINGS: dict[str, Any] = {
    "num_components": 10,
    "gate_mean": -6.0,
    "amplitude": 4.0,
    "length_factor": None,
    "kernel": "auto",
    "hyperparameters": "fixed",
    "prior_mean": "frequency",
    "prior_strength": 2.0,
    "num_inducing": None,
    "rho": 0.0,
    "start_seed": 0,
}
"""Defaults.

num_components : K, at least 1; more than there are rows is allowed, components without rows keep their prior.
gate_mean : prior mean of every gate value; 0, as published, allows only blurred gates.
amplitude : variance of the gate values, times k(x, x) = 1.
length_factor : squared length of rbf over the median squared distance; None: 1.
kernel : linear, rbf, cosine, auto, a registered name, package.module:function or path/file.py:function.
hyperparameters : fixed, or bound: amplitude and length climb the bound of structured mean field, from the
    fixed values.
prior_mean : mean of the probabilities' beta prior; "frequency": (positives + 1/2) / (observed + 1), by label.
prior_strength : a0 + b0.
num_inducing : None, or so many rows (at most) whose gate values carry all others; engine ``sparse`` only.
rho : components are left out of predictions whose labels' posterior strength, a0 + b0 + expected rows summed
    over labels, is below rho times the mean over components; the largest one always stays.
start_seed : of whatever is random before inference: starts of the bound that chooses hyperparameters.
"""

RULES = ("fixed", "bound")
MAX_ROWS = 5000
"""Most rows without inducing points: the eigenvectors of their kernel cost rows^3."""
FARTHEST_MEAN = 50.0
"""Largest size of gate_mean."""
LEAST, MOST = 1e-6, 1e6
"""Range of amplitude, length_factor and prior_strength."""


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings out of range.

    Raises
    ------
    ValueError
        That names the setting.
    """
    whole_number("num_components", settings["num_components"], 1)
    whole_number("start_seed", settings["start_seed"], 0)
    if settings["num_inducing"] is not None:
        whole_number("num_inducing", settings["num_inducing"], 1)
    if not abs(real(settings["gate_mean"])) <= FARTHEST_MEAN:
        raise ValueError(f"gate_mean must be a number from -50 to 50, got {settings['gate_mean']!r}")
    for name in ("amplitude", "length_factor", "prior_strength"):
        value = settings[name]
        absent = name == "length_factor" and value is None
        if not absent and not LEAST <= real(value) <= MOST:
            words = " or None" if name == "length_factor" else ""
            raise ValueError(f"{name} must be a number from 1e-6 to 1e6{words}, got {value!r}")
    if settings["hyperparameters"] not in RULES:
        raise ValueError(f"hyperparameters must be fixed or bound, got {settings['hyperparameters']!r}")
    mean = settings["prior_mean"]
    if mean != "frequency" and not 0.0 < real(mean) < 1.0:
        raise ValueError(f"prior_mean must be a number between 0 and 1 or 'frequency', got {mean!r}")
    if not 0.0 <= real(settings["rho"]) <= 1.0:
        raise ValueError(f"rho must be a number from 0 to 1, got {settings['rho']!r}")


def labelled_rows(data: Any, settings: Mapping[str, Any]) -> Array:
    """Return the rows of the data with at least one observed label: (obs,).

    Raises
    ------
    ValueError
        If nothing is observed, features are missing, or tables or the kernel would be too large.
    """
    refuse_missing_features(data, "gp_bernoulli_mixture")
    rows = np.flatnonzero(~data.unlabelled_rows)
    if not len(rows):
        raise ValueError("data: no label is observed, so there is nothing to learn from")
    if settings["num_inducing"] is None and len(rows) > MAX_ROWS:
        raise ValueError(
            f"data: gp_bernoulli_mixture takes at most {MAX_ROWS} rows with labels, got {len(rows)}: pass a "
            "subset of rows, or use engine sparse, which works by num_inducing rows"
        )
    refuse_large_tables(data, len(rows), settings)
    return rows


def refuse_large_tables(data: Any, rows: int, settings: Mapping[str, Any]) -> None:
    """Refuse dense tables above `MAX_DENSE_BYTES`.

    Raises
    ------
    ValueError
        With what the tables hold.
    """
    components, inducing = int(settings["num_components"]), settings["num_inducing"]
    parts = {
        f"{components} components x {data.num_labels} labels": components * data.num_labels,
        f"{rows} rows x {components} components": rows * components,
    }
    if inducing is None:
        parts[f"{rows} rows x {data.num_labels} labels"] = rows * data.num_labels
        parts[f"{rows} rows x {data.num_features} features"] = rows * data.num_features
    else:
        parts[f"{rows} rows x {inducing} inducing rows"] = rows * min(rows, int(inducing))
    words, size = max(parts.items(), key=lambda item: item[1])
    if 8 * size > MAX_DENSE_BYTES:
        raise ValueError(
            f"data: gp_bernoulli_mixture would hold a dense table of {words}, above the cap of "
            f"{MAX_DENSE_BYTES / 2**30:.0f} GiB"
        )


def prior_tables(positives: Array, observed: Array, settings: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return a0 and b0, both (component, labels), from counts of each label, (labels,) each."""
    mean = np.full(len(positives), 0.5)
    if settings["prior_mean"] == "frequency":
        mean = (positives + 0.5) / (observed + 1.0)
    else:
        mean[:] = float(settings["prior_mean"])
    strength = float(settings["prior_strength"])
    shape = (int(settings["num_components"]), len(mean))
    return np.broadcast_to(mean * strength, shape).copy(), np.broadcast_to(
        (1.0 - mean) * strength, shape
    ).copy()
