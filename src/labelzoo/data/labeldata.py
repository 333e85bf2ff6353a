"""The table every model, engine and study reads: features, positive labels, and what is unobserved."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelzoo.data.convert import as_features, as_labels
from labelzoo.data.describe import content_hash, describe
from labelzoo.data.missing import Missing, canonical_missing, refuse_positive_missing, select_missing
from labelzoo.data.splits import absent_labels, fold_rows, split_rows, warn_absent
from labelzoo.data.validate import checked_names, checked_split, positions, refuse_duplicates

MASK_BYTES = 64 * 2**20  # default memory cap of the dense tables made on request


@dataclass(frozen=True, eq=False)
class LabelData:
    """Features and labels of n rows, validated and read-only.

    The constructor takes any array-like; `LabelData.from_arrays` also keeps the names of data frames, and
    `LabelData.from_classes` takes one class a row.

    Attributes
    ----------
    X : float64 ndarray (n, d) or csr_array (n, d)
        Features. A sparse ``X`` stays sparse.
    Y : int8 csr_array (n, l)
        Ones at the positive labels, sorted by row and label. Never densified.
    missing : Missing or None
        Unobserved labels. NaN in a dense ``Y`` lands here. None where every label is observed.
    feature_names, label_names, example_names : tuple of str
        Default to ``"feature 0"``, ``"label 0"``, ``"row 0"`` and so on. Label names are distinct.
    train_index, test_index : int64 ndarray or None
        A published split: two disjoint sets of rows, together or not at all.
    allow_missing_features : bool
        Whether NaN in ``X`` is accepted.

    Raises
    ------
    ValueError
        With one line that names the rows, columns and values at fault.
    """

    X: Any
    Y: Any
    missing: Missing | None = None
    feature_names: Any = ()
    label_names: Any = ()
    example_names: Any = ()
    train_index: Any = None
    test_index: Any = None
    allow_missing_features: bool = False

    def __post_init__(self) -> None:
        """Convert and check every field."""
        refuse_other_lengths(self.X, self.Y)
        X = as_features(self.X, self.feature_names, self.allow_missing_features)
        Y, missing = as_labels(self.Y, self.label_names)
        refuse_other_lengths(X, Y)
        store = self.__dict__
        store["X"], store["Y"] = X, Y
        store["feature_names"] = checked_names(
            self.feature_names, X.shape[1], "feature_names", "feature", "feature"
        )
        store["label_names"] = checked_names(self.label_names, Y.shape[1], "label_names", "labels", "label")
        refuse_duplicates(self.label_names, "label_names")
        store["example_names"] = checked_names(self.example_names, X.shape[0], "example_names", "obs", "row")
        store["missing"] = self._checked_missing(missing)
        store["train_index"], store["test_index"] = checked_split(
            self.train_index, self.test_index, X.shape[0]
        )

    def _checked_missing(self, from_nan: Missing | None) -> Missing | None:
        """Merge what NaN in Y says with the ``missing`` argument, of which only one may be given."""
        if self.missing is None:
            return from_nan
        if from_nan is not None:
            raise ValueError("unobserved labels are given twice: as NaN in Y and as missing")
        missing = canonical_missing(self.missing, self.Y.shape)
        if missing is not None:
            refuse_positive_missing(missing, self.Y, self.label_names)
        return missing

    @property
    def num_rows(self) -> int:
        """Number of rows, n."""
        return int(self.Y.shape[0])

    @property
    def num_features(self) -> int:
        """Number of features, d."""
        return int(self.X.shape[1])

    @property
    def num_labels(self) -> int:
        """Number of labels, l."""
        return int(self.Y.shape[1])

    @property
    def num_positives(self) -> int:
        """Number of positive cells of Y."""
        return int(self.Y.nnz)

    @property
    def num_missing_cells(self) -> int:
        """Number of unobserved cells of Y, those of wholly unlabelled rows included."""
        if self.missing is None:
            return 0
        listed = len(self.missing.cells[0])
        if self.missing.cells_are == "observed":
            listed = len(np.unique(self.missing.cells[0])) * self.num_labels - listed
        return int(np.count_nonzero(self.missing.rows)) * self.num_labels + listed

    @property
    def unlabelled_rows(self) -> NDArray[np.bool_]:
        """Flags of the rows without any observed label, bool (n,)."""
        return np.zeros(self.num_rows, dtype=bool) if self.missing is None else self.missing.rows

    @property
    def has_missing_features(self) -> bool:
        """Whether X holds NaN, which only ``allow_missing_features`` lets in."""
        return bool(np.isnan(self.X.data if issparse(self.X) else self.X).any())

    def observed_mask(self, rows: Any = None, max_bytes: int = MASK_BYTES) -> NDArray[np.bool_]:
        """Return which labels of the given rows are observed, dense bool (len(rows), l).

        Parameters
        ----------
        rows : positions, boolean mask or example names; None for all rows
        max_bytes : int
            Refuse, with ValueError, to make a larger mask.
        """
        index = positions(rows, self.example_names, "rows")
        refuse_large("observed_mask", (len(index), self.num_labels), 1, max_bytes)
        mask = np.ones((len(index), self.num_labels), dtype=bool)
        if self.missing is None:
            return mask
        row, label = self.missing.cells
        cells = csr_array((np.ones(len(row), np.int8), (row, label)), shape=self.Y.shape)[index]
        listed = cells.toarray().astype(bool)
        if self.missing.cells_are == "observed":
            listed = ~listed & listed.any(axis=1, keepdims=True)
        mask &= ~listed
        mask[self.missing.rows[index]] = False
        return mask

    def missing_cells(self, max_cells: int = 10_000_000) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """List every unobserved cell as (rows, labels), int64 (m,) each, sorted by row and label.

        The cells of wholly unlabelled rows are among them; where that makes more than ``max_cells``,
        ValueError says so: read ``missing.rows`` and ``missing.cells`` instead.
        """
        count = self.num_missing_cells
        if count > max_cells:
            raise ValueError(f"missing_cells would list {count} cells, more than max_cells={max_cells}")
        rows = [np.zeros(0, np.int64)]
        labels = [np.zeros(0, np.int64)]
        touched = self.unlabelled_rows.copy()
        if self.missing is not None:
            touched[self.missing.cells[0]] = True
        step = max(1, 1_000_000 // self.num_labels)
        chosen = np.flatnonzero(touched)
        for first in range(0, len(chosen), step):
            block = chosen[first : first + step]
            at, label = np.nonzero(~self.observed_mask(block, max_bytes=len(block) * self.num_labels))
            rows.append(block[at])
            labels.append(label)
        return np.concatenate(rows), np.concatenate(labels)

    def subset(self, rows: Any = None, labels: Any = None, features: Any = None) -> "LabelData":
        """Return the selected rows, labels and features, in the order given, with their names.

        Each selector is None (all), positions, a boolean mask, a slice or names. A published split is
        remapped to the rows that remain; it is dropped where a row repeats or one side ends up empty.
        """
        index = positions(rows, self.example_names, "rows")
        columns = positions(labels, self.label_names, "labels")
        inputs = positions(features, self.feature_names, "features")
        refuse_duplicates([self.label_names[i] for i in columns], "labels")
        train, test = self._remapped_split(index)
        missing = self.missing
        if missing is not None and len(index) and len(columns):
            missing = select_missing(missing, index, columns, self.num_labels)
        return LabelData(
            X=self.X[index] if features is None else self.X[index][:, inputs],
            Y=self.Y[index] if labels is None else self.Y[index][:, columns],
            missing=missing,
            feature_names=tuple(self.feature_names[i] for i in inputs),
            label_names=tuple(self.label_names[i] for i in columns),
            example_names=tuple(self.example_names[i] for i in index),
            train_index=train,
            test_index=test,
            allow_missing_features=self.allow_missing_features,
        )

    def _remapped_split(self, index: NDArray[np.int64]) -> tuple[Any, Any]:
        """Return the published split in the numbering of ``index``, or (None, None)."""
        if self.train_index is None or len(np.unique(index)) != len(index):
            return None, None
        place = np.full(self.num_rows, -1)
        place[index] = np.arange(len(index))
        train, test = (place[part][place[part] >= 0] for part in (self.train_index, self.test_index))
        return (train, test) if len(train) and len(test) else (None, None)

    def split(
        self, test_fraction: Any = 0.2, seed: Any = 0, *, method: Any = "random", order: Any = 1
    ) -> tuple["LabelData", "LabelData"]:
        """Return a (train, test) pair with disjoint rows, each in the order of this table.

        At least one row goes to either side; NumPy's global random state is not touched. A warning names
        labels that have a positive here, but none on one side.

        Parameters
        ----------
        test_fraction : float in (0, 1)
        seed : int or numpy Generator
        method : "random" or "stratified"
            Stratified keeps the share of each label on both sides as even as its rows allow.
        order : 1 or 2
            Stratify by labels, or by labels and pairs of labels.
        """
        found = split_rows(self, test_fraction, seed, method=method, order=order)
        return self.subset(rows=found.train), self.subset(rows=found.test)

    def folds(
        self, k: Any = 5, seed: Any = 0, *, method: Any = "random", order: Any = 1
    ) -> Iterator[tuple["LabelData", "LabelData"]]:
        """Return an iterator over k (train, test) pairs; each row is in the test table of exactly one.

        The rows are dealt out, and absent labels warned of, before the first pair is asked for; the tables
        are made one pair at a time. `labelzoo.data.splits.fold_rows` gives the row numbers.
        """
        found = fold_rows(self, k, seed, method=method, order=order)
        return ((self.subset(rows=train), self.subset(rows=test)) for train, test in found)

    def published_split(self) -> tuple["LabelData", "LabelData"]:
        """Return the (train, test) pair published with the data, or raise ValueError where there is none.

        A warning names labels that have a positive in the pair, but none on one side.
        """
        if self.train_index is None:
            raise ValueError("no published split: train_index and test_index are not set; use split()")
        absent = absent_labels(self.Y, (self.train_index, self.test_index))
        warn_absent(absent, self.label_names, ("train", "test"))
        return self.subset(rows=self.train_index), self.subset(rows=self.test_index)

    def summary(self) -> dict[str, Any]:
        """Return sizes and curiosities; see `labelzoo.data.describe.describe` for the keys."""
        return describe(self)

    @cached_property
    def _hash(self) -> str:
        return content_hash(self)

    def hash(self) -> str:
        """Return the SHA-256 (hex) of features, labels, missingness and names.

        The same contents give the same hash whether X is dense or sparse. The published split is left
        out: no posterior depends on it.
        """
        return self._hash

    def to_frame(self, max_bytes: int = 4 * MASK_BYTES) -> Any:
        """Return one dense pandas DataFrame: features, then labels as 0.0, 1.0 or NaN (unobserved)."""
        import pandas as pd

        refuse_large("to_frame", (self.num_rows, self.num_features + self.num_labels), 8, max_bytes)
        labels = self.Y.toarray().astype(np.float64)
        labels[~self.observed_mask(max_bytes=max_bytes)] = np.nan
        inputs = self.X.toarray() if issparse(self.X) else self.X
        columns = [*self.feature_names, *self.label_names]
        return pd.DataFrame(np.hstack([inputs, labels]), columns=columns, index=list(self.example_names))

    @classmethod
    def from_arrays(cls, X: Any, Y: Any, **options: Any) -> "LabelData":
        """Build from arrays, sparse matrices or data frames; see `labelzoo.data.from_arrays`."""
        from labelzoo.data.build import from_arrays

        return from_arrays(X, Y, **options)

    @classmethod
    def from_classes(cls, X: Any, y: Any, **options: Any) -> "LabelData":
        """Build from one class a row, which becomes one label a class; see `labelzoo.data.from_classes`."""
        from labelzoo.data.classes import from_classes

        return from_classes(X, y, **options)

    @classmethod
    def from_frame(cls, frame: Any, label_columns: Any, **options: Any) -> "LabelData":
        """Build from one data frame; see `labelzoo.data.from_frame`."""
        from labelzoo.data.build import from_frame

        return from_frame(frame, label_columns, **options)

    @classmethod
    def from_npz(cls, path: str | os.PathLike[str], **options: Any) -> "LabelData":
        """Read an .npz file; see `labelzoo.data.from_npz`."""
        from labelzoo.data.npz import from_npz

        return from_npz(path, **options)

    def save_npz(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz file at once or not at all; see `labelzoo.data.save_npz`."""
        from labelzoo.data.npz import save_npz

        save_npz(self, path)

    def __repr__(self) -> str:
        """Return the sizes on one line."""
        kind = "sparse" if issparse(self.X) else "dense"
        return (
            f"LabelData({self.num_rows} rows, {self.num_features} {kind} features, {self.num_labels} labels, "
            f"{self.num_positives} positives, {self.num_missing_cells} unobserved)"
        )


def refuse_other_lengths(X: Any, Y: Any) -> None:
    """Raise ValueError where X and Y have rows, but not equally many; before anything is said of a cell."""
    counts = [
        int(one.shape[0])
        if getattr(one, "ndim", 0) == 2
        else len(one)
        if isinstance(one, (list, tuple))
        else 0
        for one in (X, Y)
    ]
    if all(counts) and counts[0] != counts[1]:
        raise ValueError(f"X and Y differ in their number of rows: {counts[0]} and {counts[1]}")


def refuse_large(what: str, shape: tuple[int, int], itemsize: int, max_bytes: int) -> None:
    """Raise ValueError where a dense table of ``shape`` would need more than ``max_bytes``."""
    size = shape[0] * shape[1] * itemsize
    if size > max_bytes:
        raise ValueError(
            f"{what} would make a dense table of {shape[0]} x {shape[1]} ({size} bytes), more than "
            f"max_bytes={max_bytes}: ask for fewer rows or raise max_bytes"
        )
