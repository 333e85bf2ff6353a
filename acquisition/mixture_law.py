"""The mixture law of a row's labels: for scores that read covariances between labels, not draws."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any

SUM_SLACK = 1e-6
"""How far the weights of a row may be from a sum of 1."""


@dataclass(frozen=True, eq=False, repr=False)
class MixtureLaw:
    """For each of some rows a mixture of parts, in each of which the labels are independent.

    Labels of row n have the mean sum_p w_np T_pl and the covariance D + U U',
    D_l = sum_p w_np T_pl (1 - T_pl), U_lp = w_np^(1/2) (T_pl - mean_l): its diagonal is mean (1 - mean).

    Attributes
    ----------
    weights : (row, part)
        w, at least 0; each row sums to 1.
    parts : (part, labels)
        T, probabilities, the same for all rows.
    weight_variance : (row,)
        Mean over components of the variance of their weight at the row: how little the row's features say.
    report : mapping
        How the parts were made: posterior draws, components kept.

    Raises
    ------
    ValueError
        If shapes do not fit or a number is out of range, with row, part or label.
    """

    weights: Any
    parts: Any
    weight_variance: Any
    report: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse pieces that do not fit together."""
        for name, axes, high in (("weights", 2, np.inf), ("parts", 2, 1.0), ("weight_variance", 1, np.inf)):
            try:
                value = np.asarray(getattr(self, name), float)
            except (TypeError, ValueError) as error:
                raise ValueError(f"mixture_law: {name} must be numbers") from error
            if value.ndim != axes:
                raise ValueError(f"mixture_law: {name} must have {axes} axes, got shape {value.shape}")
            bad = ~(np.isfinite(value) & (value >= 0) & (value <= high))
            if bad.any():
                place = tuple(np.argwhere(bad)[0])
                wanted = "a probability" if name == "parts" else "a finite number of at least 0"
                at = ", ".join(map(str, place))
                raise ValueError(f"mixture_law: {name}[{at}] is {value[place]}, not {wanted}")
            object.__setattr__(self, name, value)
        if not self.parts.size:
            raise ValueError(
                f"mixture_law: parts must be (part, labels), at least (1, 1), got {self.parts.shape}"
            )
        if self.weights.shape[1] != len(self.parts):
            raise ValueError(
                f"mixture_law: weights are of {self.weights.shape[1]} parts, parts has {len(self.parts)}"
            )
        if len(self.weights) != len(self.weight_variance):
            raise ValueError(
                f"mixture_law: weights has {len(self.weights)} rows, "
                f"weight_variance {len(self.weight_variance)}"
            )
        sums = self.weights.sum(axis=1)
        off = np.flatnonzero(np.abs(sums - 1) > SUM_SLACK)
        if len(off):
            raise ValueError(f"mixture_law: weights of row {off[0]} sum to {sums[off[0]]:.8g}, not to 1")

    def __repr__(self) -> str:
        """Return the sizes in words."""
        rows, labels = self.shape
        return f"MixtureLaw({rows} rows, {len(self.parts)} parts, {labels} labels)"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and labels."""
        return (len(self.weights), self.parts.shape[1])

    def mean(self) -> Array:
        """Return the probability of each label: (row, labels)."""
        return self.weights @ self.parts

    def covariance(self, row: int) -> Array:
        """Return the covariance of one row's labels: (labels, labels)."""
        w, T = self.weights[row], self.parts
        apart = T - w @ T
        return np.diag(w @ (T * (1 - T))) + (apart.T * w) @ apart

    def subset(self, rows: Array) -> "MixtureLaw":
        """Return the law of some of the rows, in that order."""
        rows = np.asarray(rows)
        return MixtureLaw(self.weights[rows], self.parts, self.weight_variance[rows], self.report)
