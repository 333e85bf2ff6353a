"""The law of compressed targets at pool rows: for scores that read their variances, not draws of labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True, eq=False, repr=False)
class TargetLaw:
    """For each of some rows a few independent Gaussian targets given the labelled rows.

    Attributes
    ----------
    variance : (row, target)
        Of each target at each row, noise included, above 0; no column where there is no target.
    weights : (target,)
        lambda_g, the variance that the target carries in the compressed labels, at least 0.
    prior_variance : (row,)
        Variance of a row before any label, above 0: read only where there is no target.
    covariance : callable
        ``covariance(i) -> (row, target)``, between row i and every row, without noise: what asking for row i
        tells of the others.
    report : mapping
        How the law was made: posterior draws.

    Raises
    ------
    ValueError
        If shapes do not fit or a number is out of range, with row and target.
    """

    variance: Any
    weights: Any
    prior_variance: Any
    covariance: Any
    report: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse pieces that do not fit together."""
        for name, axes in (("variance", 2), ("weights", 1), ("prior_variance", 1)):
            try:
                value = np.asarray(getattr(self, name), float)
            except (TypeError, ValueError) as error:
                raise ValueError(f"target_law: {name} must be numbers") from error
            if value.ndim != axes:
                raise ValueError(f"target_law: {name} must have {axes} axes, got shape {value.shape}")
            positive = name != "weights"
            bad = np.argwhere(~(np.isfinite(value) & ((value > 0) | ((value == 0) & (not positive)))))
            if len(bad):
                wanted = "above 0" if positive else "of at least 0"
                at = ", ".join(map(str, bad[0]))
                raise ValueError(
                    f"target_law: {name}[{at}] is {value[tuple(bad[0])]}, not a finite number {wanted}"
                )
            object.__setattr__(self, name, value)
        rows, targets = self.variance.shape
        if self.weights.shape != (targets,):
            raise ValueError(f"target_law: variance has {targets} targets, weights {self.weights.shape[0]}")
        if self.prior_variance.shape != (rows,):
            raise ValueError(
                f"target_law: variance has {rows} rows, prior_variance {self.prior_variance.shape[0]}"
            )
        if not callable(self.covariance):
            raise ValueError("target_law: covariance must be a function of a row's number")

    def __repr__(self) -> str:
        """Return the sizes in words."""
        rows, targets = self.shape
        return f"TargetLaw({rows} rows, {targets} targets)"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and targets."""
        return self.variance.shape

    def cross(self, row: int) -> Array:
        """Return the covariance between one row and every row, without noise, checked: (row, target)."""
        value = np.asarray(self.covariance(int(row)), float)
        if value.shape != self.shape or not np.isfinite(value).all():
            raise ValueError(
                f"target_law: covariance({row}) must be finite numbers {self.shape}, got shape {value.shape}"
            )
        return value

    def subset(self, rows: Array) -> "TargetLaw":
        """Return the law of some of the rows, in that order."""
        rows = np.asarray(rows)
        return TargetLaw(
            self.variance[rows],
            self.weights,
            self.prior_variance[rows],
            lambda i: self.cross(int(rows[i]))[rows],
            self.report,
        )
