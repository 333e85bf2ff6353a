"""Which engine for which sizes: a rule fitted to measurements, in words for `compare`.

``python benchmarks/crossover.py`` measured the smallest effective sample size a second of 200 label
probabilities for `gibbs`, `gibbs_counts` and NUTS on simulated data, and fitted log(engine / NUTS) by a
constant and the logarithms of the sizes. The coefficients here are those that it printed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

MEASURED = {"rows": (100, 2000), "labels": (20, 300), "positives_a_row": (2, 15), "topics": (2, 15)}
"""Smallest and largest sizes of the measurements."""

BASE = {"rows": 500, "labels": 50, "positives_a_row": 5, "topics": 5}
MANY_ROWS = 20_000


class Rule(NamedTuple):
    """log(engine / NUTS), minimum effective draws a second, at sizes over those of `BASE`.

    Attributes
    ----------
    constant : float
    slopes : dict
        By size.
    factor : float
        Residual standard deviation, as a factor.
    """

    constant: float
    slopes: Mapping[str, float]
    factor: float

    def ratio(self, sizes: Mapping[str, float]) -> float:
        """Return the expected ratio at `sizes`, those outside the measured range moved to its end."""
        logs = {name: np.log(np.clip(value, *MEASURED[name]) / BASE[name]) for name, value in sizes.items()}
        return float(np.exp(self.constant + sum(self.slopes[name] * logs[name] for name in logs)))


RULES: dict[str, Rule] = {}


def sizes_of(data: Any, settings: Mapping[str, Any]) -> dict[str, float]:
    """Return rows, labels, positives a row and topics of a fit."""
    topics = settings["num_topics"]
    return {
        "rows": data.num_rows,
        "labels": data.num_labels,
        "positives_a_row": max(data.num_positives, 1) / max(data.num_rows, 1),
        "topics": min(10, data.num_labels) if topics is None else topics,
    }


def advise(data: Any, settings: Mapping[str, Any]) -> str:
    """Say in two sentences which engine to expect most of, and where that is known from.

    Parameters
    ----------
    data : LabelData
        The rows to fit.
    settings : mapping
        Of the program.
    """
    sizes = sizes_of(data, settings)
    if sizes["rows"] > MANY_ROWS:
        return (
            f"{data.num_rows} rows: the samplers keep an embedding of every row and are for thousands of "
            "rows; use map_em or vb_em, or online_em where the rows do not fit at once."
        )
    shown = ", ".join(f"{name} {rule.ratio(sizes):.2g} times" for name, rule in RULES.items())
    factor = max(rule.factor for rule in RULES.values())
    outside = [
        name.replace("_", " ") for name, (low, high) in MEASURED.items() if not low <= sizes[name] <= high
    ]
    beyond = f"; {', '.join(outside)} lie outside what was measured" if outside else ""
    return (
        f"At these sizes expect, in minimum effective draws a second of nuts: {shown}, give or take a factor "
        f"of {factor:.1f} (benchmarks/crossover.py, simulated data{beyond}). Chains that disagree make such "
        "figures void: look at R-hat; for point estimates use vb_em or map_em."
    )
