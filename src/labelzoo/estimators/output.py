"""From probabilities to what scikit-learn users get back: labels, log odds, data frames."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from labelzoo.data.convert import is_frame
from labelzoo.data.validate import listed


class Shape(NamedTuple):
    """How the target of `fit` looked, so that predictions look like it.

    Attributes
    ----------
    classes : ndarray (2,) or None
        Of a one-dimensional target.
    is_sparse, named : bool
        Whether labels were sparse, and whether they had names.
    """

    classes: np.ndarray | None
    is_sparse: bool
    named: bool


def cut_points(threshold: Any, label_names: Any) -> np.ndarray:
    """Return one threshold a label, float (labels,).

    Parameters
    ----------
    threshold : number, sequence (labels,), or mapping (a pandas.Series too) from every label name
    label_names : sequence of str

    Raises
    ------
    ValueError
        If a threshold is outside (0, 1), or labels are missing.
    """
    names = [str(name) for name in label_names]
    if isinstance(threshold, Mapping) or hasattr(threshold, "to_dict"):
        given = dict(threshold if isinstance(threshold, Mapping) else threshold.to_dict())
        absent = [repr(name) for name in names if name not in given]
        unknown = [repr(name) for name in given if name not in set(names)]
        if absent or unknown:
            what = f"lacks the labels {listed(absent)}" if absent else f"has unknown labels {listed(unknown)}"
            raise ValueError(f"threshold {what}")
        threshold = [given[name] for name in names]
    try:
        if np.asarray(threshold).dtype.kind in "US":
            raise ValueError
        cut = np.asarray(threshold, float)
    except (TypeError, ValueError):
        raise ValueError(f"threshold must be a number, or one a label, got {threshold!r}") from None
    if cut.shape not in ((), (len(names),)):
        raise ValueError(f"threshold must be a number or {len(names)} of them, got shape {cut.shape}")
    if not ((cut > 0) & (cut < 1)).all():
        raise ValueError(f"threshold must lie between 0 and 1, got {threshold!r}")
    return np.broadcast_to(cut, (len(names),))


def log_odds(probs: np.ndarray) -> np.ndarray:
    """Return log p - log(1 - p), finite: p is kept one rounding away from 0 and 1."""
    p = np.clip(probs, np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg)
    return np.asarray(np.log(p) - np.log1p(-p))


def positives(blocks: Iterable[np.ndarray], cut: np.ndarray, *, is_sparse: bool) -> Any:
    """Return int8 labels, 1 where a probability lies above its label's threshold, from blocks of rows."""
    parts: list[Any] = [(block > cut).astype(np.int8) for block in blocks] if not is_sparse else []
    if not is_sparse:
        return np.concatenate(parts)
    return sparse.csr_array(
        sparse.vstack([sparse.csr_array(block > cut) for block in blocks]).astype(np.int8)
    )


def labelled(values: np.ndarray, X: Any, columns: Any) -> Any:
    """Return a data frame (a series where `columns` is None) with the rows' names of X, if it has any."""
    import pandas as pd

    index = X.index if is_frame(X) else None
    return pd.Series(values, index=index) if columns is None else pd.DataFrame(values, index, list(columns))
