"""The sweep of gp_bernoulli_mixture on one row: z, lambda, v, omega, then gates and probabilities.

Views that leave v and omega out need all of their values: lambda is kept at small values, so that few counts
are possible, and omega has the nodes of a trapezoid rule in log omega. Of lambda any values do: given the
gates its law on them does not depend on z.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from labelzoo.inference.checks.marginal import Nodes, product_nodes
from labelzoo.inference.checks.order import OrderCase, aged, moved, points
from labelzoo.inference.gp_bernoulli_mixture.enumeration import tiny_inputs
from labelzoo.inference.gp_bernoulli_mixture.updates import ASSIGNMENT, COUNT, OMEGA, PROBS, RATE, WHITE
from labelzoo.inference.update import Update

RATES = (0.02, 0.06)
MOST_COUNT = 4
"""Counts beyond have 6e-9 of the mass of a Poisson law of rate .06."""
LOG_OMEGA, OMEGA_STEP = (-5.3, 1.9), 0.45
"""PG(1, 0) has e^-25 of its mass below, PG(5, 0) less than e^-20 above."""


def one_row() -> dict[str, Any]:
    """Return one row, two components, two labels, one of them hidden."""
    return tiny_inputs(1)


def omega_nodes() -> Nodes:
    """Return the trapezoid rule in log omega, and the atom at 0."""
    logs = np.arange(*LOG_OMEGA, OMEGA_STEP)
    return Nodes(np.append(np.exp(logs), 0.0), np.append(logs + np.log(OMEGA_STEP), 0.0))


def tiny_nodes(inputs: Mapping[str, Any]) -> dict[str, Nodes]:
    """Return two values of gates and of probabilities, and what is left out in some view in full."""
    counts = np.arange(MOST_COUNT + 1.0)
    return {
        "white": points(np.array([[-0.8], [0.3]]), np.array([[0.9], [-0.2]])),
        "component_probs": points(np.array([[0.7, 0.2], [0.3, 0.6]]), np.array([[0.4, 0.5], [0.8, 0.1]])),
        "assignment": product_nodes(points(0, 1), (1,)),
        "rate": product_nodes(points(*RATES), (1,)),
        "count": product_nodes(points(*counts), (1, 2)),
        "omega": product_nodes(omega_nodes(), (1, 2)),
    }


def planted(update: Update, name: str) -> Update:
    """Return `update` with one of its planted faults in place of its claim."""
    return replace(update, given={mutant.name: mutant.given for mutant in update.mutants}[name])


SWEEP = (ASSIGNMENT, RATE, COUNT, OMEGA, WHITE, PROBS)


def wrong(update: Update, name: str) -> tuple[Update, ...]:
    """Return the sweep with a planted fault in one of its updates."""
    return tuple(planted(update, name) if step is update else step for step in SWEEP)


CASES = (
    OrderCase(
        name="sweep: z, lambda, v, omega, gates, probabilities",
        engine="gibbs",
        view="augmented",
        inputs=one_row,
        nodes=tiny_nodes,
        updates=SWEEP,
        kept=("white", "component_probs"),
        threshold=1e-8,
        mutants=(
            ("z after omega, which its law leaves out", moved(SWEEP, ASSIGNMENT, OMEGA)),
            ("v after omega, which its law leaves out", moved(SWEEP, COUNT, OMEGA)),
            ("lambda after v, which its law leaves out", moved(SWEEP, RATE, COUNT)),
            ("omega from the old v", aged(SWEEP, OMEGA, "count")),
            ("omega from the old z", aged(SWEEP, OMEGA, "assignment")),
            ("probabilities from the old z", aged(SWEEP, PROBS, "assignment")),
            ("PG(v, f), as printed in equation 7", wrong(OMEGA, "PG(v, f), as printed in equation 7")),
            ("lambda ~ Exponential(K)", wrong(RATE, "rate K, that of v given")),
            ("gate mean missing", wrong(WHITE, "gate mean missing")),
            ("e^(f / 2) for sigma(f)", wrong(ASSIGNMENT, "gate of PG(v, 0): e^(f / 2) for sigma(f)")),
        ),
    ),
)
