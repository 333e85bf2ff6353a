"""The Polya-Gamma sweep of label_logistic on two rows: omega, then weights."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from labelzoo.data import LabelData
from labelzoo.inference.checks.marginal import Nodes, product_nodes
from labelzoo.inference.checks.order import OrderCase, aged, points
from labelzoo.inference.label_logistic.updates import UPDATES
from labelzoo.inference.update import Update
from labelzoo.models.label_logistic import spec

WEIGHTS, OMEGA = UPDATES


def tiny_inputs() -> dict[str, Any]:
    """Return one label at two rows, once positive and once not, one feature and an intercept."""
    return spec.prepare(LabelData(np.array([[0.7], [-1.3]]), np.array([[1], [0]])), spec.settings)


def tiny_nodes(inputs: Mapping[str, Any]) -> dict[str, Nodes]:
    """Return a few values: no view of the sweep integrates a site out, so any will do."""
    weights = product_nodes(points(-1.5, -0.3, 0.6, 1.8), (1, 2))
    return {"weights": weights, "omega": product_nodes(points(0.05, 0.15, 0.3, 0.7), (2, 1))}


def planted(update: Update, name: str) -> Update:
    """Return `update` with one of its planted faults in place of its claim."""
    wrong = {mutant.name: mutant.given for mutant in update.mutants}
    return replace(update, given=wrong[name])


CASES = (
    OrderCase(
        name="Polya-Gamma sweep: omega, weights",
        engine="gibbs",
        view="polya_gamma",
        inputs=tiny_inputs,
        nodes=tiny_nodes,
        updates=(OMEGA, WEIGHTS),
        threshold=1e-12,
        mutants=(
            ("both drawn from the old state", aged((OMEGA, WEIGHTS), WEIGHTS, "omega")),
            ("omega ~ PG(2, psi)", (planted(OMEGA, "b = 2"), WEIGHTS)),
            ("kappa = y, the 1/2 dropped", (OMEGA, planted(WEIGHTS, "kappa = y, the 1/2 dropped"))),
        ),
    ),
)
