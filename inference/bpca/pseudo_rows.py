"""Rows of bpca replaced by at most measurement + 1 others that fit alike, whatever the number of rows.

The rows R enter mean field through the inner products of the columns of [1, R] alone. With [1, R] = Q T, Q of
orthonormal columns, [1~, R~] = T has the same ones; scores mU~ that fit it belong to mU = Q mU~, and all
that is summed over rows is the same for both.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.bpca.factors import Factors

Array = Any
Inputs = Mapping[str, Any]

READ = (
    "compressed",
    "row_mean",
    "scatter",
    "precision_shape",
    "precision_rate",
    "noise_shape",
    "noise_rate",
    "mean_precision",
)


def arrays_of(inputs: Inputs) -> dict[str, Array]:
    """Return what the updates read, as arrays, of the rows as they are."""
    arrays = {name: np.asarray(inputs[name], float) for name in READ}
    m = len(arrays["compressed"])
    return arrays | {"ones": np.ones(m), "num_rows": np.asarray(float(m))}


class PseudoRows(NamedTuple):
    """What the updates read of pseudo-rows, and the way back.

    Attributes
    ----------
    arrays : dict
    basis : (graph, pseudo-row)
        Q, orthonormal columns; zero columns where pseudo-rows are padding.
    """

    arrays: dict[str, Array]
    basis: Array

    def reduced(self, factors: Factors) -> Factors:
        """Return factors of the rows as those of the pseudo-rows."""
        return factors._replace(scores_mean=self.basis.T @ np.asarray(factors.scores_mean))

    def expanded(self, factors: Factors) -> Factors:
        """Return factors of the pseudo-rows as those of the rows."""
        return factors._replace(scores_mean=self.basis @ np.asarray(factors.scores_mean))


def pseudo_rows(inputs: Inputs, size: int | None = None) -> PseudoRows:
    """Return min(rows, measurement + 1) pseudo-rows, or `size` of them, which may not be less.

    Further ones are zero, and so are their scores. rows measurement^2 flops, once.
    """
    arrays = arrays_of(inputs)
    Q, T = np.linalg.qr(np.column_stack([arrays["ones"], arrays["compressed"]]))
    more = 0 if size is None else size - len(T)
    T, Q = np.pad(T, ((0, more), (0, 0))), np.pad(Q, ((0, 0), (0, more)))
    return PseudoRows(arrays | {"ones": T[:, 0], "compressed": T[:, 1:]}, Q)
