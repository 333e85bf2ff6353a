"""Settings of Bernoulli-Poisson topics: their defaults, what is refused of them, and of them with data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from labelzoo.arguments import real

SETTINGS: dict[str, Any] = {
    "num_topics": None,
    "topic_concentration": None,
    "shape": None,
    "shape_prior": (2.0, 2.0),
    "prior_scale": 2.0,
    "precision_prior": None,
    "intercept": True,
    "intercept_precision": 0.01,
    "standardize": None,
    "scale_rows": True,
    "sparse_features": False,
}
"""Defaults: num_topics None means min(10, labels); topic_concentration None means min(.01, 1 / labels);
shape None means drawn from its prior; prior_scale is the prior standard deviation of the linear predictor;
precision_prior (a, b) learns one precision a feature (ARD); standardize None centres and scales dense
features unless they are all 0 or 1, and leaves sparse ones alone; scale_rows then gives every row unit
length. sparse_features keeps a sparse X sparse, where the engine can work so: the EM engines can and do; the
programs and the samplers need an array."""


PRIOR_SCALES = 1e-100, 1e100
"""Least and largest prior_scale: its square has to be a number."""


def check_settings(settings: Mapping[str, Any], num_labels: int) -> None:
    """Refuse settings out of range.

    Raises
    ------
    ValueError
        Naming the setting and its value.
    """
    topics = 1 if settings["num_topics"] is None else settings["num_topics"]
    if not isinstance(topics, int | np.integer) or isinstance(topics, bool) or topics < 1:
        raise ValueError(f"num_topics must be a positive integer, got {topics!r}")
    if topics > num_labels:
        raise ValueError(f"num_topics={topics} exceeds the number of labels, {num_labels}")
    for name in ("topic_concentration", "shape", "prior_scale", "intercept_precision"):
        value = settings[name]
        if value is None and name in ("topic_concentration", "shape"):
            continue
        if not 0 < real(value) < np.inf:
            raise ValueError(f"{name} must be positive and finite, got {value!r}")
    low, high = PRIOR_SCALES
    if not low <= real(settings["prior_scale"]) <= high:
        raise ValueError(f"prior_scale must lie in [{low:g}, {high:g}], got {settings['prior_scale']!r}")
    for name in ("shape_prior", "precision_prior"):
        value = settings[name]
        if value is None and name == "precision_prior":
            continue
        pair = isinstance(value, tuple | list | np.ndarray) and len(np.shape(value)) == 1 and len(value) == 2
        if not pair or not all(0 < real(v) < np.inf for v in value):
            raise ValueError(
                f"{name} must be two positive numbers (shape, rate): the prior must be proper; got {value!r}"
            )
    for name in ("intercept", "scale_rows", "standardize", "sparse_features"):
        if not isinstance(settings[name], bool) and not (name == "standardize" and settings[name] is None):
            raise ValueError(f"{name} must be true or false, got {settings[name]!r}")


def refuse(data: Any, settings: Mapping[str, Any]) -> None:
    """Refuse more topics, named by hand, than there are positive labels.

    Raises
    ------
    ValueError
        Naming both numbers.
    """
    topics = settings.get("num_topics")
    whole = isinstance(topics, int | np.integer) and not isinstance(topics, bool)
    if whole and topics > data.num_positives:
        raise ValueError(
            f"num_topics={topics} exceeds the number of positive labels, {data.num_positives}: a topic "
            "without a positive is a draw from its prior; take fewer topics, or leave num_topics out"
        )
