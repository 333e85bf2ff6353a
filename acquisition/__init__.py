"""What to ask next: scores on arrays, selectors, and the front that reads a DataTree."""

from labelzoo.acquisition.ensemble import Ensemble, condition, make_ensemble, variance_reduction
from labelzoo.acquisition.front import SCORES, next_rows, score
from labelzoo.acquisition.selectors import PoolExhausted, greedy, top

__all__ = [
    "SCORES",
    "Ensemble",
    "PoolExhausted",
    "condition",
    "greedy",
    "make_ensemble",
    "next_rows",
    "score",
    "top",
    "variance_reduction",
]
