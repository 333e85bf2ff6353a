"""Memory that an engine of label_logistic will need, counted before anything is allocated."""

from collections.abc import Mapping
from typing import Any

from labelzoo.models.spec import MAX_DENSE_BYTES

Inputs = Mapping[str, Any]


def refuse_large(inputs: Inputs, engine: str, tables: Mapping[str, float], way_out: str) -> None:
    """Refuse data whose tables together pass the memory cap.

    Parameters
    ----------
    inputs : mapping
        What ``spec.prepare`` returned; X, Y and the mask are counted.
    engine : str
    tables : mapping
        Name of a further table to its number of 8-byte values.
    way_out : str
        What the user can do, besides fewer rows or labels.

    Raises
    ------
    ValueError
        Listing the tables and their sizes.
    """
    (n, d), num_labels = inputs["X"].shape, inputs["Y"].shape[1]
    values = {"X": n * d, "Y and its mask": 1.125 * n * num_labels, **tables}
    size = 8 * sum(values.values())
    if size > MAX_DENSE_BYTES:
        parts = ", ".join(f"{name} {8 * value / 2**30:.2f}" for name, value in values.items())
        raise ValueError(
            f"data: {engine} of label_logistic on {n} rows x {num_labels} labels x {d} features would need "
            f"{size / 2**30:.1f} GiB ({parts}), above the cap of {MAX_DENSE_BYTES / 2**30:.0f} GiB; pass "
            f"fewer rows or labels, {way_out}, or use a model whose cost follows the positives "
            "(bernoulli_poisson_topics)"
        )


def refuse_large_precisions(
    inputs: Inputs, engine: str = "gibbs", num_samples: int = 0, copies: float = 3.0
) -> None:
    """Refuse data whose precision matrices (labels, feature, feature) and draws would pass the memory cap.

    Raises
    ------
    ValueError
    """
    (n, d), num_labels = inputs["X"].shape, inputs["Y"].shape[1]
    tables = {
        f"{num_labels} precision matrices of {d} x {d}": copies * num_labels * d**2,
        "omega and psi": 3.0 * n * num_labels,
        f"{num_samples} draws": 2.0 * num_samples * num_labels * d,
    }
    refuse_large(inputs, engine, tables, "fewer features, fewer num_samples")
