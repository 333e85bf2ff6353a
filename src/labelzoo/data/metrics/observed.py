"""Which cells of a table are observed, asked of a dense mask or of a `labelzoo.data.Missing`."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from labelzoo.data.metrics.averages import Bools, Ints
from labelzoo.data.missing import Missing, check_range
from labelzoo.data.validate import plain_array


def among(keys: Ints, sorted_keys: Ints) -> Bools:
    """Return whether each key occurs in ``sorted_keys``."""
    if not sorted_keys.size:
        return np.zeros(keys.shape, dtype=bool)
    place = np.minimum(np.searchsorted(sorted_keys, keys), sorted_keys.size - 1)
    return sorted_keys[place] == keys


@dataclass(frozen=True, eq=False)
class Observed:
    """Which cells of an (n, l) table are observed: a dense mask, a `Missing`, or neither (all are)."""

    shape: tuple[int, int]
    mask: Any = None
    missing: Any = None

    @cached_property
    def _keys(self) -> Ints:
        """Sorted numbers row * l + label of the cells listed by ``missing``."""
        row, label = self.missing.cells
        return np.sort(row * self.shape[1] + label)

    @cached_property
    def _partial(self) -> Bools:
        """Rows of which ``missing`` lists cells, bool (n,)."""
        flags = np.zeros(self.shape[0], dtype=bool)
        flags[self.missing.cells[0]] = True
        return flags

    def at(self, rows: Ints, labels: Ints) -> Bools:
        """Return whether each of the given cells is observed."""
        if self.mask is not None:
            return self.mask[rows, labels]
        if self.missing is None:
            return np.ones(rows.shape, dtype=bool)
        inside = among(rows * self.shape[1] + labels, self._keys)
        if self.missing.cells_are == "observed":
            inside = self._partial[rows] & ~inside
        return ~inside & ~self.missing.rows[rows]

    def rows(self, first: int, last: int) -> Bools:
        """Return the mask of the rows first..last - 1, dense bool (last - first, l)."""
        if self.mask is not None:
            return self.mask[first:last]
        block = np.ones((last - first, self.shape[1]), dtype=bool)
        if self.missing is None:
            return block
        a, b = np.searchsorted(self._keys, [first * self.shape[1], last * self.shape[1]])
        if self.missing.cells_are == "observed":
            block[self._partial[first:last]] = False
        block.ravel()[self._keys[a:b] - first * self.shape[1]] = self.missing.cells_are == "observed"
        block[self.missing.rows[first:last]] = False
        return block

    def per_row(self) -> Ints:
        """Count the observed labels of each row, (n,)."""
        n, num_labels = self.shape
        if self.mask is not None:
            return self.mask.sum(axis=1, dtype=np.int64)
        counts = np.full(n, num_labels, dtype=np.int64)
        if self.missing is None:
            return counts
        listed_cells = np.bincount(self.missing.cells[0], minlength=n)
        if self.missing.cells_are == "observed":
            counts[self._partial] = listed_cells[self._partial]
        else:
            counts -= listed_cells
        counts[self.missing.rows] = 0
        return counts

    def per_label(self) -> Ints:
        """Count the observed rows of each label, (l,)."""
        n, num_labels = self.shape
        if self.mask is not None:
            return self.mask.sum(axis=0, dtype=np.int64)
        if self.missing is None:
            return np.full(num_labels, n, dtype=np.int64)
        listed_cells = np.bincount(self.missing.cells[1], minlength=num_labels)
        if self.missing.cells_are == "observed":
            return int(np.count_nonzero(~self._partial & ~self.missing.rows)) + listed_cells
        return int(np.count_nonzero(~self.missing.rows)) - listed_cells


def checked_mask(observed: Any, shape: tuple[int, ...]) -> Bools:
    """Return the mask ``observed`` as a bool array of the given shape, or raise ValueError."""
    mask = plain_array(observed, "observed")
    if mask.shape != shape or mask.dtype.kind != "b":
        raise ValueError(f"observed must be bool of shape {shape}, got {mask.dtype} of {mask.shape}")
    return mask


def checked_missing(missing: Any, shape: tuple[int, int]) -> Any:
    """Return ``missing`` after a check of its type and range, or raise ValueError."""
    if not isinstance(missing, Missing):
        raise ValueError(f"missing must be a labelzoo.data.Missing, got {type(missing).__name__}")
    check_range(missing, shape)
    return missing


def dense_mask(missing: Missing, shape: tuple[int, int]) -> Bools:
    """Expand ``missing`` to a bool mask of the observed cells (for tables that are dense already)."""
    return Observed(shape, missing=missing).rows(0, shape[0])
