"""From probabilities to what scikit-learn users get back: labels, log odds, data frames."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy import sparse

from labelzoo.data.classes import one_hot
from labelzoo.data.convert import is_frame
from labelzoo.data.validate import listed


class Shape(NamedTuple):
    """How the target of `fit` looked, so that predictions look like it.

    Attributes
    ----------
    classes : ndarray (class,) or None
        Of a one-dimensional target: one label where there are two, a label each where there are more.
    is_sparse, named : bool
        Whether labels were sparse, and whether they had names.
    """

    classes: np.ndarray | None
    is_sparse: bool
    named: bool

    @property
    def is_multiclass(self) -> bool:
        """Whether the target was a vector of more than two classes."""
        return self.classes is not None and len(self.classes) > 2


def one_label_a_row(tree: xr.DataTree) -> bool:
    """Return whether the model of a posterior gives each row exactly one label.

    A card says so by a constant ``one_class`` that is true, as ``kernel_neighbors`` does where each of its
    training rows has one label. Probabilities of such labels sum to 1, and few pass 1/2.
    """
    if "constant_data" not in tree.children or "one_class" not in tree["constant_data"].data_vars:
        return False
    return bool(tree["constant_data"]["one_class"].values)


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


def largest(blocks: Iterable[np.ndarray], cut: np.ndarray) -> np.ndarray:
    """Return the label of each row whose log odds lie furthest above those of its threshold: int (row,).

    With one threshold for all it is the most probable label; the first of those that tie.
    """
    return np.concatenate([(log_odds(block) - log_odds(cut)).argmax(axis=1) for block in blocks])


def shares(probs: np.ndarray) -> np.ndarray:
    """Return probabilities of labels, scaled to sum to 1 in each row: of its classes, where it has one."""
    totals = probs.sum(axis=1, keepdims=True)
    even = np.full_like(probs, 1.0 / probs.shape[1])
    return np.divide(probs, totals, out=even, where=totals > 0)


def as_in_fit(probs: np.ndarray, shape: Shape) -> np.ndarray:
    """Return probabilities of labels as those of the target's columns, or of its classes."""
    if shape.classes is None:
        return probs
    return shares(probs) if shape.is_multiclass else np.hstack([1.0 - probs, probs])


def decided(blocks: Iterable[np.ndarray], cut: np.ndarray, shape: Shape, *, one_label: bool) -> Any:
    """Return classes (row,) where the target was a vector, else int8 labels (row, labels).

    With more than two classes, or `one_label`, each row gets one: the `largest`.
    """
    if shape.classes is not None and shape.is_multiclass:
        return shape.classes[largest(blocks, cut)]
    if shape.classes is not None:
        return shape.classes[positives(blocks, cut, is_sparse=False)[:, 0]]
    if one_label:
        labels = one_hot(largest(blocks, cut), len(cut))
        return labels if shape.is_sparse else labels.toarray()
    return positives(blocks, cut, is_sparse=shape.is_sparse)


def labelled(values: np.ndarray, X: Any, columns: Any) -> Any:
    """Return a data frame (a series where `columns` is None) with the rows' names of X, if it has any."""
    import pandas as pd

    index = X.index if is_frame(X) else None
    return pd.Series(values, index=index) if columns is None else pd.DataFrame(values, index, list(columns))


def iterations(tree: xr.DataTree) -> int:
    """Return the iterations of a deterministic engine, or the draws of a sampler; at least 1."""
    if "optimization" in tree.children:
        return max(1, int(tree["optimization"].sizes.get("iteration", 2)) - 1)
    return max(1, int(tree["posterior"].sizes["draw"]))
