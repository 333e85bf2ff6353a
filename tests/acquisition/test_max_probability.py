"""The largest class probability by hand: negative similarities, no total, ties, an empty pool."""

import re
from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition.max_probability import (
    first_queries,
    largest_probability,
)

S = np.array(
    [
        [3.0, 1.0, 0.0],  # shares 3/4, 1/4, 0
        [2.0, -1.0, 1.0],  # raw 1, clipped 2/3
        [-1.0, -2.0, -3.0],  # no total
        [0.0, 0.0, 0.0],
        [5.0, -4.999999, 0.0],  # a tiny total looks certain when raw
        [1.0, -1.0, 0.0],  # cancels to nothing
    ]
)


def test_scores_by_hand() -> None:
    np.testing.assert_allclose(largest_probability(S), [-3 / 4, -2 / 3, -1 / 3, -1 / 3, -1, -1])
    raw = largest_probability(S, "raw")
    np.testing.assert_allclose(raw, [-3 / 4, -1, -1 / 3, -1 / 3, -5e6, -1 / 3], rtol=1e-6)


@pytest.mark.parametrize("negative", ["clip", "raw"])
def test_no_largest_share_is_below_one_in_c_and_scale_is_nothing(negative: str) -> None:
    s = np.random.default_rng(0).normal(size=(200, 4))
    score = largest_probability(s, negative)
    assert (score <= -1 / 4 + 1e-12).all()
    np.testing.assert_allclose(largest_probability(7.0 * s, negative), score)
    assert (score >= -1).all() == (negative == "clip")


def test_first_queries_are_the_largest_scores_and_ties_go_to_the_smaller_row() -> None:
    assert list(first_queries(largest_probability(S), 3)) == [2, 3, 1]
    assert list(first_queries(largest_probability(S), 99)) == [2, 3, 1, 0, 4, 5]
    assert first_queries(largest_probability(np.zeros((0, 3))), 2).shape == (0,)


BAD: dict[str, Any] = {
    "similarity has nan at row 0, column 1": lambda: largest_probability([[1.0, np.nan]]),
    "similarity must have at least one class": lambda: largest_probability(np.zeros((2, 0))),
    "negative must be 'clip' or 'raw', got 'abs'": lambda: largest_probability(S, "abs"),
    "batch must be an integer of at least 1, got 0": lambda: first_queries([1.0], 0),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        BAD[message]()
