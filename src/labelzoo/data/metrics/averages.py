"""What a metric returns: a mean over rows or labels, the items behind it, and how many are undefined."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelzoo.data.validate import listed

CLIP = 1e-12  # probabilities are moved this far away from 0 and 1 before their logarithm is taken
BLOCK_CELLS = 2_000_000  # cells ranked at one time

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Averaged(NamedTuple):
    """A mean over rows or labels, the items behind it (NaN where undefined), and how many are undefined."""

    value: float
    each: Floats
    num_undefined: int


class AveragedAtK(Averaged):
    """An `Averaged` over rows that also knows how many rows had fewer than k predictions to judge.

    Attributes
    ----------
    num_short : int
        Rows of a `TopK` whose observed predictions are fewer than k and fewer than the row's observed labels.
        Their empty places count as misses, so the value is a lower bound where this is not 0.
    """

    num_short: int = 0


def averaged(each: Floats) -> Averaged:
    """Average over the items that are not NaN, without a warning where there are none."""
    defined = ~np.isnan(each)
    return Averaged(mean_or_nan(each[defined]), each, int(np.count_nonzero(~defined)))


def averaged_at_k(each: Floats, num_short: int) -> AveragedAtK:
    """Like `averaged`, with the number of rows that had too few predictions."""
    result = AveragedAtK(*averaged(each))
    result.num_short = num_short
    return result


def filled(each: Floats, undefined: Bools, zero_division: Any) -> Averaged:
    """Average after 0/0 items were given the value ``zero_division``; they are counted all the same.

    Items that are NaN without being 0/0 (nothing observed) stay NaN and are counted too.
    """
    values = np.where(undefined, zero_division, each)
    left_out = int(np.count_nonzero(undefined | np.isnan(each)))
    return Averaged(mean_or_nan(values[~np.isnan(values)]), values, left_out)


def mean_or_nan(values: Floats) -> float:
    """Return the mean, NaN where there is nothing to average."""
    return float(values.mean()) if values.size else float("nan")


def ratio(over: Any, under: Any) -> Floats:
    """Divide elementwise, NaN where ``under`` is 0, without a warning."""
    top, bottom = np.broadcast_arrays(np.asarray(over, np.float64), np.asarray(under, np.float64))
    result = np.full(bottom.shape, np.nan)
    np.divide(top, bottom, out=result, where=bottom != 0)
    return result


def refuse_cells(message: str, values: NDArray[Any], bad: Bools) -> None:
    """Raise ValueError naming the first cells where ``bad``."""
    if bad.any():
        rows, columns = np.nonzero(bad)
        cells = zip(rows[:5].tolist(), columns[:5].tolist(), strict=True)
        texts = [f"row {i}, label {j}: {values[i, j].item()!r}" for i, j in cells]
        raise ValueError(f"{message}: {listed(texts, len(rows))}")
