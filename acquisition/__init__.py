"""What to ask next: scores on arrays, the catalogue of them, and the front that reads a DataTree."""

from labelzoo.acquisition.catalogue import catalogue, find, register_acquisition
from labelzoo.acquisition.ensemble import Ensemble, condition, make_ensemble, variance_reduction
from labelzoo.acquisition.front import ask, next_rows, score
from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.selectors import PoolExhausted, greedy, lazy_greedy, top

__all__ = [
    "Acquisition",
    "Choice",
    "Ensemble",
    "PoolExhausted",
    "Problem",
    "ask",
    "catalogue",
    "condition",
    "find",
    "greedy",
    "lazy_greedy",
    "make_ensemble",
    "next_rows",
    "register_acquisition",
    "score",
    "top",
    "variance_reduction",
]
