"""The two sweeps of sparse_bayes on two cells: jointly, and row by row with compressed labels and weights."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from labelzoo.inference.checks.marginal import Nodes, product_nodes
from labelzoo.inference.checks.order import OrderCase, aged, points
from labelzoo.inference.sparse_bayes.enumeration import tiny_inputs
from labelzoo.inference.sparse_bayes.updates import COMPRESSED, LABELS, LABELS_BY_ROW, PRECISION, WEIGHTS
from labelzoo.inference.update import Update


def tiny_nodes(inputs: Mapping[str, Any]) -> dict[str, Nodes]:
    """Return a few values: no view that a sweep reads integrates out what the sweep reads."""
    return {
        "y_unobserved": product_nodes(points(-0.8, 0.1, 0.9), (2,)),
        "precision": product_nodes(points(0.3, 1.1, 2.5), (2,)),
        "compressed": product_nodes(points(-0.9, 0.2, 1.0), (2, 1)),
        "weights": product_nodes(points(-0.7, 0.4, 1.2), (1, 1)),
    }


def planted(update: Update, name: str) -> Update:
    """Return `update` with one of its planted faults in place of its claim."""
    return replace(update, given={mutant.name: mutant.given for mutant in update.mutants}[name])


JOINT = (LABELS, PRECISION)
ROWS = (LABELS_BY_ROW, PRECISION, COMPRESSED, WEIGHTS)

CASES = (
    OrderCase(
        name="joint sweep: labels, precisions",
        engine="gibbs",
        view="precisions",
        inputs=tiny_inputs,
        nodes=tiny_nodes,
        updates=JOINT,
        threshold=1e-12,
        mutants=(
            ("both drawn from the old state", aged(JOINT, PRECISION, "y_unobserved")),
            ("shape a0", (LABELS, planted(PRECISION, "shape a0, the 1/2 missing"))),
            ("observed labels read as zeros", (planted(LABELS, "observed labels read as zeros"), PRECISION)),
        ),
    ),
    OrderCase(
        name="sweep by rows: labels, precisions, compressed labels, weights",
        engine="gibbs",
        view="augmented",
        inputs=tiny_inputs,
        nodes=tiny_nodes,
        updates=ROWS,
        threshold=1e-12,
        mutants=(
            ("compressed labels from the old labels", aged(ROWS, COMPRESSED, "y_unobserved")),
            ("weights from the old compressed labels", aged(ROWS, WEIGHTS, "compressed")),
            (
                "joint law of the labels among explicit weights",
                (LABELS, PRECISION, COMPRESSED, WEIGHTS),
            ),
            (
                "chi2 alone",
                (LABELS_BY_ROW, PRECISION, planted(COMPRESSED, "chi2 for the joint variance"), WEIGHTS),
            ),
        ),
    ),
)
