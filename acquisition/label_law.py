"""The Gaussian law of a row's labels given the labelled rows: for scores that read no draws."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True, eq=False)
class LabelLaw:
    """For each of some rows the precision of its labels: diag(diagonal_i) + Phi'Phi / variance_i.

    Attributes
    ----------
    diagonal : (row, labels)
        Precision that each label has by itself, above 0.
    projection : (measurement, labels)
        Phi, the same for all rows.
    variance : (row,)
        Variance of each measurement of a row given the labelled rows, noise included, above 0.
    covariance : (row, row) or callable or None
        Of the measurements of all the rows given the labelled rows, noise included; its diagonal is
        `variance`. Then the labels of all rows together, row by row, have the precision
        diag(diagonal) + covariance^-1 (x) Phi'Phi. A function without arguments makes it when asked for.

    Raises
    ------
    ValueError
        If shapes do not fit or a number is not finite, or not above 0 where it must be; with row and label.
    """

    diagonal: Any
    projection: Any
    variance: Any
    covariance: Array | Callable[[], Array] | None = None

    def __post_init__(self) -> None:
        """Refuse pieces that do not fit together."""
        for name, axes in (("diagonal", 2), ("projection", 2), ("variance", 1)):
            value = np.asarray(getattr(self, name), float)
            if value.ndim != axes:
                raise ValueError(f"label_law: {name} must have {axes} axes, got shape {value.shape}")
            positive = name != "projection"
            bad = np.argwhere(~(np.isfinite(value) & ((value > 0) | (not positive))))
            if len(bad):
                wanted = "a finite number above 0" if positive else "a finite number"
                at = ", ".join(map(str, bad[0]))
                raise ValueError(f"label_law: {name}[{at}] is {value[tuple(bad[0])]}, not {wanted}")
            object.__setattr__(self, name, value)
        if self.diagonal.shape[1] != self.projection.shape[1]:
            raise ValueError(
                f"label_law: diagonal has {self.diagonal.shape[1]} labels, "
                f"projection {self.projection.shape[1]}"
            )
        if self.diagonal.shape[0] != self.variance.shape[0]:
            raise ValueError(
                f"label_law: diagonal has {self.diagonal.shape[0]} rows, variance {self.variance.shape[0]}"
            )
        if self.covariance is not None and not callable(self.covariance):
            object.__setattr__(self, "covariance", self._checked(self.covariance))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and labels."""
        return (self.diagonal.shape[0], self.diagonal.shape[1])

    def precision(self, row: int) -> Array:
        """Return the precision of one row's labels: (labels, labels)."""
        own = self.projection.T @ self.projection / self.variance[row]
        return np.asarray(np.diag(self.diagonal[row]) + own)

    def joint_covariance(self) -> Array:
        """Return the covariance of the measurements over rows, made now if it is a function: (row, row).

        Raises
        ------
        ValueError
            If the law has none, or it does not fit.
        """
        if self.covariance is None:
            raise ValueError("label_law has no covariance over rows: its rows stand alone")
        return self._checked(self.covariance()) if callable(self.covariance) else self.covariance

    def subset(self, rows: Array) -> "LabelLaw":
        """Return the law of some of the rows, in that order."""
        rows = np.asarray(rows)
        joint = None if self.covariance is None else lambda: self.joint_covariance()[np.ix_(rows, rows)]
        return LabelLaw(self.diagonal[rows], self.projection, self.variance[rows], joint)

    def _checked(self, covariance: Any) -> Array:
        C = np.asarray(covariance, float)
        rows = self.diagonal.shape[0]
        if C.shape != (rows, rows):
            raise ValueError(f"label_law: covariance must be ({rows}, {rows}), got shape {C.shape}")
        bad = np.argwhere(~np.isfinite(C))
        if len(bad):
            raise ValueError(f"label_law: covariance row {bad[0, 0]}, column {bad[0, 1]} is no number")
        gap = np.abs(C.diagonal() - self.variance) > 1e-6 * self.variance
        if gap.any():
            row = int(np.argmax(gap))
            raise ValueError(
                f"label_law: covariance has the variance {C[row, row]:g} for row {row}, variance says "
                f"{self.variance[row]:g}"
            )
        return C
