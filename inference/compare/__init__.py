"""Engines of one model side by side: time, efficiency, agreement with a reference, held-out score."""

from labelzoo.inference.compare.driver import Comparison, compare

__all__ = ["Comparison", "compare"]
