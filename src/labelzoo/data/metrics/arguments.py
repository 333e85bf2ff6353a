"""Checks of the plain arguments of metrics: one clear ValueError each."""

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from labelzoo.data.metrics.averages import Floats
from labelzoo.data.validate import plain_array

MAX_BINS = 1_000_000


def whole_number(value: Any, name: str, least: int, most: int | None = None) -> int:
    """Return ``value`` as an int between ``least`` and ``most``, or raise ValueError; bool is none."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}, got {value}")
    return int(value)


def checked_k(k: Any) -> int:
    """Return ``k`` as an int of at least 1, or raise ValueError."""
    return whole_number(k, "k", 1)


def checked_ks(ks: Any) -> list[int]:
    """Return ``ks`` as a list of integers of at least 1, or raise ValueError."""
    if isinstance(ks, (str, bytes)) or not isinstance(ks, Iterable) or getattr(ks, "ndim", 1) != 1:
        raise ValueError(f"ks must be a list of integers, such as (1, 3, 5), got {ks!r}")
    return [checked_k(k) for k in ks]


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a real number; bool is none."""
    return isinstance(value, (Real, np.floating, np.integer)) and not isinstance(value, (bool, np.bool_))


def checked_beta(beta: Any) -> float:
    """Return the beta of an F score: positive, its square within the range of floats."""
    if not is_number(beta) or not 0 < beta <= 1e100:
        raise ValueError(f"beta must be a positive number of at most 1e100, got {beta!r}")
    return float(beta)


def checked_zero_division(value: Any) -> float:
    """Return what 0/0 counts: NaN (left out) or a number in [0, 1]."""
    if not is_number(value) or not (np.isnan(value) or 0 <= value <= 1):
        raise ValueError(f"zero_division must be NaN or a number in [0, 1], got {value!r}")
    return float(value)


def checked_thresholds(thresholds: Any, num_labels: int, name: str) -> Floats:
    """Return thresholds as float () or (l,): not NaN; infinite ones decide all or nothing."""
    given = getattr(thresholds, "thresholds", thresholds)
    cut = plain_array(given, name)
    if cut.dtype.kind not in "iuf" or cut.shape not in ((), (num_labels,)) or np.isnan(cut).any():
        got = f"shape {cut.shape}" if cut.shape else repr(given)
        raise ValueError(f"{name} must be one number, or one a label, ({num_labels},), not NaN; got {got}")
    return cut.astype(np.float64)
