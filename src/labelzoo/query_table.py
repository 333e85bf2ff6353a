"""What to label next, from the posteriors of a comparison."""

import unicodedata
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

MAX_POOL = 200
"""Rows among which the next ones are chosen."""

MAX_LABELS = 200
"""Choosing costs rows x labels^3: with more labels it is left out."""

REGIONAL_A = 0x1F1E6
"""Code point of the first of the 26 letters that spell flags."""

NUM_DRAWS = 400
"""Draws of the label probabilities."""


class Queries(NamedTuple):
    """Rows to label, the engine whose posterior chose them, and a sentence about both."""

    rows: list[dict[str, Any]]
    engine: str | None
    summary: str


def best_sampler(rows: list[dict[str, Any]], trees: Mapping[str, xr.DataTree]) -> str | None:
    """Return the sampler with the smallest R-hat, else a bound, else None.

    Parameters
    ----------
    rows : list of dict
        ``name, kind, max_rhat`` of each engine.
    """
    samplers = [r for r in rows if r["kind"] == "mcmc" and r["name"] in trees and r["max_rhat"] is not None]
    if samplers:
        return str(min(samplers, key=lambda r: r["max_rhat"])["name"])
    return next(
        (str(r["name"]) for r in rows if r["kind"] in ("bound", "conjugate") and r["name"] in trees), None
    )


def choose_next(
    trees: Mapping[str, xr.DataTree], engine: str | None, pool: Any, *, batch: int = 5, seed: int = 0
) -> Queries:
    """Choose the next rows of `pool` (LabelData whose labels the engines have not seen).

    Returns
    -------
    Queries
        Rows with ``obs, gain, description, likely_labels, hidden_labels``; empty, with the reason, where no
        engine has draws or the problem is too large.
    """
    if engine is None:
        return Queries([], None, "What to label next: no engine with posterior draws was run.")
    if pool.num_labels > MAX_LABELS:
        return Queries([], engine, f"What to label next is left out: more than {MAX_LABELS} labels.")
    from labelzoo.acquisition.front import next_rows
    from labelzoo.inference.predictions import add_predictions

    if pool.num_rows > MAX_POOL:
        rng = np.random.default_rng(seed)
        pool = pool.subset(rows=np.sort(rng.choice(pool.num_rows, MAX_POOL, replace=False)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        frame = next_rows(add_predictions(trees[engine], pool, num_draws=NUM_DRAWS), batch, seed=seed)
    place = {name: i for i, name in enumerate(pool.example_names)}
    rows = [
        {
            "obs": str(row["obs"]),
            "gain": float(row["gain"]),
            "description": symbol_name(str(row["obs"])),
            "likely_labels": str(row["likely_labels"]),
            "hidden_labels": known_labels(pool, place[row["obs"]]),
        }
        for row in frame.to_dict(orient="records")
    ]
    summary = (
        f"The next {len(rows)} of {pool.num_rows} rows whose labels the engines have not seen, by {engine}: "
        "each removes most variance of the label predictions at the others, given the ones before it."
    )
    summary += "".join(f" Caution: {w.message}." for w in caught if "ensemble" in str(w.message))
    return Queries(rows, engine, summary)


def known_labels(pool: Any, row: int) -> str:
    """Return the labels of a pool row where the data hold them (they were only kept from the engines)."""
    start, stop = pool.Y.indptr[row], pool.Y.indptr[row + 1]
    return ", ".join(pool.label_names[j] for j in pool.Y.indices[start:stop])


def symbol_name(text: str) -> str:
    """Return the Unicode name of a row that is one symbol (of a sequence: its parts), else nothing."""
    if len(text) > 12 or not any(unicodedata.category(character) == "So" for character in text):
        return ""
    letters = [chr(ord(c) - REGIONAL_A + ord("A")) for c in text if 0 <= ord(c) - REGIONAL_A < 26]
    if letters and len(letters) == len(text):
        return f"flag {''.join(letters)}"
    names = [unicodedata.name(c, "") for c in text if unicodedata.category(c) not in ("Mn", "Cf")]
    return " + ".join(name.lower() for name in names) if all(names) else ""
