"""Which engine for which sizes, and what the number of topics is good for: sentences for `compare`.

What is said of samplers is a measurement at the nearest sizes that were measured, never an extrapolation.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

MANY_ROWS = 20_000
AXES = ("rows", "labels", "positives_a_row", "topics")


class Measurement(NamedTuple):
    """Minimum effective draws a second over those of NUTS, on simulated data of these sizes.

    Attributes
    ----------
    rows, labels, positives_a_row, topics : float
    gibbs, gibbs_counts : float or None
        None where not measured, or where the four chains had not settled.
    command : str
        What printed it.
    """

    rows: float
    labels: float
    positives_a_row: float
    topics: float
    gibbs: float
    gibbs_counts: float | None
    command: str


MEASUREMENTS = (
    Measurement(100, 20, 5.3, 3, 12.2, 0.43, "benchmarks/samplers.py"),
    Measurement(500, 50, 16.8, 5, 8.8, None, "benchmarks/topic_sampler.py --problem b"),
    Measurement(2000, 300, 2.7, 10, 15.3, None, "benchmarks/topic_sampler.py --problem c"),
    Measurement(500, 50, 5, 5, 3.8, None, "benchmarks/crossover.py"),
    Measurement(500, 50, 15, 5, 3.8, None, "benchmarks/crossover.py"),
    Measurement(100, 50, 5, 5, 1.5, None, "benchmarks/crossover.py"),
    Measurement(500, 300, 5, 5, 7.5, None, "benchmarks/crossover.py"),
    Measurement(500, 20, 5, 5, 6.6, None, "benchmarks/crossover.py"),
    Measurement(500, 50, 5, 2, 3.2, 0.45, "benchmarks/crossover.py"),
)


def sizes_of(data: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return rows, labels, positives a row and topics of a fit."""
    topics = settings["num_topics"]
    return {
        "rows": data.num_rows,
        "labels": data.num_labels,
        "positives_a_row": max(data.num_positives, 1) / max(data.num_rows, 1),
        "topics": min(10, data.num_labels) if topics is None else topics,
    }


def nearest(sizes: Mapping[str, Any]) -> Measurement:
    """Return the measurement whose sizes are nearest in logarithms."""

    def distance(one: Measurement) -> float:
        return float(sum(np.log(sizes[name] / getattr(one, name)) ** 2 for name in AXES))

    return min(MEASUREMENTS, key=distance)


def advise(data: Any, settings: Mapping[str, Any]) -> str:
    """Say what the number of topics is good for, which engine to expect most of, and how that is known.

    Parameters
    ----------
    data : LabelData
        The rows to fit.
    settings : mapping
        Of the program.
    """
    sizes = sizes_of(data, settings)
    return " ".join(filter(None, [_about_topics(sizes), _about_engines(sizes)]))


def _about_topics(sizes: Mapping[str, Any]) -> str:
    if sizes["topics"] >= sizes["labels"]:
        return ""
    return (
        f"{sizes['topics']} topics for {sizes['labels']} labels: good to read and to complete partly known "
        "rows; prediction from features alone is best with about as many topics as labels (docs/topics.md)."
    )


def _about_engines(sizes: Mapping[str, Any]) -> str:
    if sizes["rows"] > MANY_ROWS:
        return (
            f"{sizes['rows']} rows: the samplers keep an embedding of every row and are for thousands of "
            "rows; use map_em or vb_em, or online_em where the rows do not fit at once."
        )
    one = nearest(sizes)
    counts = "" if one.gibbs_counts is None else f", gibbs_counts {one.gibbs_counts:.2g} times"
    return (
        f"Of the sizes measured the nearest are {one.rows:g} rows, {one.labels:g} labels, "
        f"{one.positives_a_row:.2g} positives a row, {one.topics:g} topics: there gibbs had {one.gibbs:.2g} "
        f"times the minimum effective draws a second of nuts{counts} ({one.command}, simulated data). Chains "
        "that disagree make such figures void: look at R-hat; for point estimates use vb_em or map_em."
    )
