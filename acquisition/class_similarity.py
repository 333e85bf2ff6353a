"""Similarities of pool rows to classes: for scores that compare a row's classes with one another."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelzoo.models.kernel_neighbors import class_probs

Array = Any


@dataclass(frozen=True, eq=False, repr=False)
class ClassSimilarity:
    """Mean similarity of each of some rows to the labelled rows of each class.

    Attributes
    ----------
    similarity : (sample, row, problem, class)
        One sample for a point. Where rows have one class there is one problem; where they have several
        labels each label is a problem of two classes, off and on.
    one_class : bool
        Whether rows have one class.

    Raises
    ------
    ValueError
        If the similarities are not finite numbers on four axes, or there is no sample.
    """

    similarity: Any
    one_class: bool = True

    def __post_init__(self) -> None:
        """Refuse what is no table of similarities."""
        try:
            s = np.asarray(self.similarity, float)
        except (TypeError, ValueError) as error:
            raise ValueError("class_similarity: similarity must be numbers") from error
        if s.ndim != 4 or not len(s):
            raise ValueError(
                f"class_similarity: similarity must be (sample, row, problem, class), got shape {s.shape}"
            )
        bad = np.argwhere(~np.isfinite(s))
        if len(bad):
            raise ValueError(
                f"class_similarity: similarity[{', '.join(map(str, bad[0]))}] is {s[tuple(bad[0])]}"
            )
        object.__setattr__(self, "similarity", s)

    def __repr__(self) -> str:
        """Return the sizes in words."""
        samples, rows, problems, classes = self.similarity.shape
        return f"ClassSimilarity({rows} rows, {problems} problems of {classes} classes, {samples} samples)"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and problems."""
        return self.similarity.shape[1:3]

    def probs(self, negative: str = "clip") -> Array:
        """Return the mean over samples of the shares of each problem's classes: (row, problem, class)."""
        return class_probs(self.similarity, negative).mean(axis=0)

    def subset(self, rows: Array) -> "ClassSimilarity":
        """Return the similarities of some of the rows, in that order."""
        return ClassSimilarity(self.similarity[:, np.asarray(rows)], self.one_class)
