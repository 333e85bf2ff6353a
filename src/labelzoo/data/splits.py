"""Splits of a table into parts: random or stratified, two parts or k folds, with the labels they lack.

The functions take a LabelData, a label matrix (dense with NaN for unobserved, or sparse) or a data frame, and
return row numbers; `LabelData.split`, `LabelData.folds` and `LabelData.published_split` return tables.
Everything is a function of the seed alone; NumPy's global random state is neither read nor changed.
"""

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelzoo.data.convert import as_labels, frame_columns, is_frame
from labelzoo.data.stratification import stratified_parts
from labelzoo.data.validate import frozen_array, listed

METHODS = ("random", "stratified")
NAME_SHOWN = 60  # characters of a name that a warning shows
HERE = os.path.dirname(__file__)  # warnings name the caller's line, not one of this folder
Ints = NDArray[np.int64]


class AbsentLabelsWarning(UserWarning):
    """A part of a split has no positive of a label that has positives elsewhere."""


class Absent(NamedTuple):
    """Labels that have a positive, but none in some part.

    Attributes
    ----------
    labels : int64 (a,)
        Their columns.
    positives : int64 (a,)
        Their positives in all parts together; fewer than the number of parts cannot reach every part.
    lacking : bool (a, parts)
        The parts without a positive.
    """

    labels: Ints
    positives: Ints
    lacking: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of two parts.

    Attributes
    ----------
    train, test : int64 (n_train,), (n_test,)
        Disjoint row numbers in rising order, read-only.
    absent : Absent
        Labels without a positive in one part; the columns of ``lacking`` are train and test.
    """

    train: Ints
    test: Ints
    absent: Absent


@dataclass(frozen=True, eq=False)
class Folds:
    """Rows of k folds; iterating gives k pairs (train rows, test rows), test being the fold.

    Attributes
    ----------
    folds : tuple of k int64 arrays
        Row numbers in rising order, read-only; every row stands in exactly one fold.
    absent : Absent
        Labels without a positive in some fold.
    """

    folds: tuple[Ints, ...]
    absent: Absent

    def __len__(self) -> int:
        """Return the number of folds."""
        return len(self.folds)

    def __iter__(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield (train rows, test rows) for each fold."""
        for j, test in enumerate(self.folds):
            yield np.sort(np.concatenate([fold for i, fold in enumerate(self.folds) if i != j])), test


class _Labels(NamedTuple):
    """What a split needs to know of the labels."""

    Y: csr_array
    unlabelled: NDArray[np.bool_]
    names: Any


def _labels_of(data: Any) -> _Labels:
    """Read a LabelData, matrix or frame of labels."""
    if hasattr(data, "unlabelled_rows"):
        return _Labels(data.Y, data.unlabelled_rows, data.label_names)
    names = frame_columns(data) if is_frame(data) else None
    flat = getattr(data, "ndim", None) == 1  # one label, as scikit-learn passes a binary target
    if flat and getattr(data, "name", None) is not None:  # a Series
        names = [str(data.name)]
    Y, missing = as_labels(np.asarray(data)[:, None] if flat else data, names)
    unlabelled = np.zeros(Y.shape[0], dtype=bool) if missing is None else missing.rows
    return _Labels(Y, unlabelled, names)


def split_rows(
    data: Any, test_fraction: Any = 0.2, seed: Any = 0, *, method: Any = "random", order: Any = 1
) -> Split:
    """Split the rows in two.

    Parameters
    ----------
    data : LabelData, or labels (n, l) of 0, 1 and NaN (unobserved): array, sparse matrix or data frame
    test_fraction : float in (0, 1)
        The test part has ``round(n * test_fraction)`` rows, at least 1 and at most n - 1.
    seed : int or numpy Generator
    method : "random" or "stratified"
        Stratified keeps the share of each label in both parts as even as its rows allow; see
        `labelzoo.data.stratification` for the algorithm and its cost.
    order : 1 or 2
        Stratify by labels, or by labels and pairs of labels.

    Warns
    -----
    AbsentLabelsWarning
        Names labels that have a positive, but none in one part.

    Raises
    ------
    ValueError
        For a fraction outside (0, 1) or NaN, fewer than 2 rows, an unknown method or order, a bad seed.
    """
    fraction = checked_fraction(test_fraction)
    labels = _labels_of(data)
    count = labels.Y.shape[0]
    if count < 2:
        raise ValueError(f"a split needs at least 2 rows, got {count}")
    num_test = min(max(round(count * fraction), 1), count - 1)
    sizes = np.array([count - num_test, num_test])
    part = _parts(labels, sizes, sizes / count, method, order, checked_seed(seed))
    train, test = (frozen_array(np.flatnonzero(part == j)) for j in (0, 1))
    absent = absent_labels(labels.Y, [train, test])
    warn_absent(absent, labels.names, ("train", "test"))
    return Split(train, test, absent)


def fold_rows(data: Any, k: Any = 5, seed: Any = 0, *, method: Any = "random", order: Any = 1) -> Folds:
    """Deal the rows out to k folds whose sizes differ by at most one.

    Parameters are those of `split_rows`, with ``k`` folds, 2 <= k <= n. For nested use call it again on the
    labels of the train rows, with another seed.

    Warns
    -----
    AbsentLabelsWarning
        Names labels that have a positive, but none in some fold.

    Raises
    ------
    ValueError
        For k below 2 or above the number of rows, an unknown method or order, a bad seed.
    """
    labels = _labels_of(data)
    k = checked_folds(k, labels.Y.shape[0])
    rng = checked_seed(seed)
    sizes = np.full(k, labels.Y.shape[0] // k)
    sizes[rng.permutation(k)[: labels.Y.shape[0] % k]] += 1
    part = _parts(labels, sizes, np.full(k, 1 / k), method, order, rng)
    folds = tuple(frozen_array(np.flatnonzero(part == j)) for j in range(k))
    absent = absent_labels(labels.Y, folds)
    warn_absent(absent, labels.names, tuple(f"fold {j}" for j in range(k)))
    return Folds(folds, absent)


def _parts(
    labels: _Labels, sizes: Ints, share: NDArray[Any], method: Any, order: Any, rng: np.random.Generator
) -> Ints:
    """Return the part of each row."""
    if method not in METHODS:
        raise ValueError(f"method must be 'random' or 'stratified', got {method!r}")
    if isinstance(order, bool) or order not in (1, 2):
        raise ValueError(f"order must be 1 (labels) or 2 (labels and pairs of labels), got {order!r}")
    if method == "stratified":
        return stratified_parts(labels.Y, labels.unlabelled, sizes, share, rng, int(order))
    part = np.empty(labels.Y.shape[0], dtype=np.int64)
    # The last part takes the first rows of the permutation: a random split by a seed stays what it was.
    part[rng.permutation(len(part))] = np.repeat(np.arange(len(sizes))[::-1], sizes[::-1])
    return part


def checked_fraction(value: Any) -> float:
    """Return a fraction strictly between 0 and 1, or raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"test_fraction must lie between 0 and 1, got {value!r}")
    return float(value)


def checked_folds(k: Any, num_rows: int) -> int:
    """Return the number of folds, or raise ValueError."""
    if isinstance(k, bool) or not isinstance(k, Integral):
        raise ValueError(f"k must be a whole number of folds, got {k!r}")
    if int(k) < 2:
        raise ValueError(f"k must be at least 2 folds, got {k}")
    if int(k) > num_rows:
        raise ValueError(f"k={k} folds need at least {k} rows, got {num_rows}")
    return int(k)


def checked_seed(seed: Any) -> np.random.Generator:
    """Return a generator for an int seed, or the generator given; anything else raises ValueError."""
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, Integral) or int(seed) < 0:
        raise ValueError(f"seed must be a whole number from 0 or a numpy Generator, got {seed!r}")
    return np.random.default_rng(int(seed))


def absent_labels(Y: csr_array, parts: Any) -> Absent:
    """Find the labels that have a positive in the parts together, but none in some part.

    Rows that stand in no part, as a published split may leave out, do not count.
    """
    counts = np.array([np.bincount(Y[rows].indices, minlength=Y.shape[1]) for rows in parts])
    total = counts.sum(axis=0)
    labels = np.flatnonzero((total > 0) & (counts == 0).any(axis=0))
    lacking = (counts[:, labels] == 0).T
    return Absent(frozen_array(labels), frozen_array(total[labels]), frozen_array(lacking))


def warn_absent(absent: Absent, names: Any, parts: tuple[str, ...]) -> None:
    """Warn of absent labels: five names (most positives first) with their parts, and the counts.

    Labels with fewer positives than parts, which no split can bring to every part, are counted apart.
    """
    count = len(absent.labels)
    if not count:
        return
    shown = []
    for i in np.argsort(-absent.positives, kind="stable")[:5]:
        label, where = absent.labels[i], [parts[j] for j in np.flatnonzero(absent.lacking[i])]
        name = str(names[label]) if names is not None else f"label {label}"
        name = name if len(name) <= NAME_SHOWN else f"{name[:NAME_SHOWN]}..."
        shown.append(f"{name!r} ({_few(where)})")
    text = f"no positive in some part for {count} label{'s' * (count > 1)}: {listed(shown, count)}"
    if rare := int(np.count_nonzero(absent.positives < len(parts))):
        text += f". With fewer positives than the {len(parts)} parts: {rare} of {count}"
    alone = np.count_nonzero(absent.lacking.sum(axis=1) == len(parts) - 1)
    if len(parts) > 2 and alone:
        text += f". In one fold only, so that its train rows have none: {alone}"
    warnings.warn(text, AbsentLabelsWarning, stacklevel=2, skip_file_prefixes=(HERE,))


def _few(where: list[str]) -> str:
    """Join the parts a label lacks, of many only the number."""
    return ", ".join(where) if len(where) <= 2 else f"{len(where)} folds"


class StratifiedLabelFolds:
    """Stratified folds for several labels, as a cross-validation splitter of scikit-learn.

    Give it as ``cv`` to ``cross_val_score``, ``cross_validate`` or ``GridSearchCV``. ``Y`` may be dense, with
    NaN for unobserved cells, or sparse (scikit-learn 1.9 takes a sparse ``Y`` in ``GridSearchCV.fit``, not in
    ``cross_val_score`` and ``cross_validate``). Rows are always shuffled: ``random_state`` decides how. For
    nested cross-validation pass one splitter inside and one, with another ``random_state``, outside; the
    inner one stratifies the train rows it is given.

    Parameters
    ----------
    n_splits : int
        Folds, 2 or more.
    order : 1 or 2
        Balance labels, or labels and pairs of labels.
    random_state : int, numpy Generator or RandomState, or None
        An int gives the same folds at every call of `split`; None gives other folds each time. Neither
        touches NumPy's global state.
    """

    def __init__(self, n_splits: Any = 5, order: Any = 1, random_state: Any = 0) -> None:
        self.n_splits = n_splits
        self.order = order
        self.random_state = random_state

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Ints, Ints]]:
        """Yield (train rows, test rows), int64 each, for every fold.

        Parameters
        ----------
        X : (n, d), or None
            Read for its number of rows only.
        y : labels (n, l) of 0, 1 and NaN, dense or sparse
        groups : None
            Ignored, for compatibility.

        Raises
        ------
        ValueError
            Without labels, or where X and Y differ in their number of rows; else as `fold_rows`.
        """
        if y is None:
            raise ValueError("StratifiedLabelFolds needs the labels: split(X, Y)")
        rows = X.shape[0] if hasattr(X, "shape") else None if X is None else len(X)
        count = y.shape[0] if hasattr(y, "shape") else len(y)
        if rows is not None and rows != count:
            raise ValueError(f"X and Y differ in their number of rows: {rows} and {count}")
        folds = fold_rows(y, self.n_splits, self._seed(), method="stratified", order=self.order)
        return iter(folds)

    def _seed(self) -> Any:
        """Turn ``random_state`` into a seed or a Generator."""
        if self.random_state is None:
            return np.random.default_rng()
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(2**31))
        return self.random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds; the arguments are ignored."""
        return int(self.n_splits)

    def __repr__(self) -> str:
        """Return the settings."""
        return (
            f"StratifiedLabelFolds(n_splits={self.n_splits!r}, order={self.order!r}, "
            f"random_state={self.random_state!r})"
        )
