"""The sweep of bpca on two rows of one label: mu with the scores out, then U, W, alpha and tau.

The last step of the sweep, the size of the scores, moves along a curve that no finite set of values holds; it
is checked by itself, as an update under its view ``stretched``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from labelzoo.inference.bpca.enumeration import tiny_inputs
from labelzoo.inference.bpca.updates import LOADINGS, MEAN, MEAN_ALONE, NOISE, PRECISION, SCORES
from labelzoo.inference.checks.marginal import Nodes, gauss_legendre, product_nodes
from labelzoo.inference.checks.order import OrderCase, aged, moved, points
from labelzoo.inference.update import Update

WIDTH, NODES = 7.0, 40
"""Scores, which one view integrates out: Gauss nodes; any values do for the other sites."""


def tiny_nodes(inputs: Mapping[str, Any]) -> dict[str, Nodes]:
    """Return the nodes of every site."""
    return {
        "precision": product_nodes(points(0.5, 1.4), (1,)),
        "noise_precision": points(0.6, 1.7),
        "mean": product_nodes(points(-0.4, 0.5, 1.3), (1,)),
        "loadings": product_nodes(points(-0.8, 0.3, 1.1), (1, 1)),
        "scores": product_nodes(gauss_legendre(-WIDTH, WIDTH, NODES), (2, 1)),
    }


def planted(update: Update, name: str) -> Update:
    """Return `update` with one of its planted faults in place of its claim."""
    return replace(update, given={mutant.name: mutant.given for mutant in update.mutants}[name])


SWEEP = (MEAN_ALONE, SCORES, LOADINGS, PRECISION, NOISE)

CASES = (
    OrderCase(
        name="sweep: mu without U, U, W, alpha, tau",
        engine="gibbs",
        view="augmented",
        inputs=tiny_inputs,
        nodes=tiny_nodes,
        updates=SWEEP,
        mutants=(
            ("mu without U after U: a stale U in W", moved(SWEEP, MEAN_ALONE, SCORES)),
            ("W from the old mu", aged(SWEEP, LOADINGS, "mean")),
            ("alpha from the old W", aged(SWEEP, PRECISION, "loadings")),
            ("tau from the old W", aged(SWEEP, NOISE, "loadings")),
            (
                "shape c + rows measurement in tau",
                (*SWEEP[:4], planted(NOISE, "shape c + rows measurement")),
            ),
        ),
    ),
    OrderCase(
        name="sweep: U, W, mu given U, alpha, tau",
        engine="gibbs",
        view="augmented",
        inputs=tiny_inputs,
        nodes=tiny_nodes,
        updates=(SCORES, LOADINGS, MEAN, PRECISION, NOISE),
        mutants=(
            (
                "beta taken for a variance",
                (SCORES, LOADINGS, planted(MEAN, "beta taken for a variance"), PRECISION, NOISE),
            ),
        ),
    ),
)
