"""Entries that ask single labels by the Gaussian law of each row's labels (`LabelLaw`), not by draws.

The labels of a row hang together through the row's own precision; rows stand alone given the labelled rows
(``label_mi``, ``label_cond``, ``label_uncertainty``), or hang together through their covariance
(``label_mi_joint``, ``label_cond_joint``), or rows are chosen first by mutual information and labels within
them (``label_two_way``).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from labelzoo.acquisition.label_gains import WoodburyGains, check_criterion, greedy_labels, woodbury_gain
from labelzoo.acquisition.label_joint import CellGains
from labelzoo.acquisition.label_law import LabelLaw
from labelzoo.acquisition.mutual_information import miml_with
from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.selectors import PoolExhausted, check_batch

Array = Any

WORK_BYTES = 2**27
"""Of matrices over measurements that are held at once."""


def row_scores(law: LabelLaw, revealed: Array, criterion: str) -> Array:
    """Return the gain, or with ``uncertainty`` the variance, of every label of every row taken alone.

    Parameters
    ----------
    law : LabelLaw
    revealed : bool (row, labels)
        Labels that are known.
    criterion : str
        ``mi``, ``cond`` or ``uncertainty``.

    Returns
    -------
    ndarray (row, labels)
        Nats, or a variance; 0 where the label is revealed.

    Notes
    -----
    Cost: rows labels k^2 flops for k measurements, in blocks of rows.
    """
    rows, k = law.shape[0], len(law.projection)
    step = max(1, WORK_BYTES // (16 * k * max(k, law.shape[1])))
    out = np.zeros(law.shape)
    for begin in range(0, rows, step):
        part = np.arange(begin, min(begin + step, rows))
        out[part] = _block_scores(law.subset(part), revealed[part], criterion)
    return out


def _block_scores(law: LabelLaw, revealed: Array, criterion: str) -> Array:
    a, Phi = law.diagonal, law.projection
    s = _forms(Phi, law.variance, np.where(revealed, 0.0, 1 / a))
    if criterion == "uncertainty":
        return np.where(revealed, 0.0, 1 / a - s / a**2)
    if check_criterion(criterion) == "mi":
        q = _forms(Phi, law.variance, np.where(revealed, 1 / a, 0.0))
    else:
        q = (Phi**2).sum(axis=0) / law.variance[:, None]
    return np.where(revealed, 0.0, woodbury_gain(a, np.where(revealed, 0.0, s), q))


def _forms(Phi: Array, variance: Array, weights: Array) -> Array:
    """Return phi_j' (v I + Phi diag(w) Phi')^-1 phi_j: (row, labels)."""
    M = np.matmul(Phi * weights[:, None, :], Phi.T)
    M[:, np.arange(len(Phi)), np.arange(len(Phi))] += variance[:, None]
    return np.asarray((np.linalg.solve(M, np.broadcast_to(Phi, (len(M), *Phi.shape))) * Phi).sum(axis=1))


def choose_cells(law: LabelLaw, revealed: Array, criterion: str, batch: int, seed: int) -> Choice:
    """Choose cells one after another, each given those chosen before in its row.

    A row's state is made when its first label is chosen. Ties between cells go by `seed`.
    """
    batch = check_batch(batch, int((~revealed).sum()))
    values = np.where(revealed, -np.inf, row_scores(law, revealed, criterion))
    rng = np.random.default_rng(seed)
    row_order, label_order = (rng.permutation(size) for size in values.shape)
    best = values.max(axis=1)
    states: dict[int, WoodburyGains] = {}
    rows, labels, gains = [], [], []
    for _ in range(batch):
        row = _first(best, row_order)
        label = _first(values[row], label_order)
        rows.append(row)
        labels.append(label)
        gains.append(float(values[row, label]))
        if row not in states:
            own = "mi" if criterion == "uncertainty" else criterion
            states[row] = WoodburyGains(
                law.diagonal[row], law.projection, float(law.variance[row]), revealed[row], own
            )
        state = states[row]
        state.reveal(label)
        new = state.variances() if criterion == "uncertainty" else state.scores()
        values[row] = np.where(np.isnan(new), -np.inf, new)
        best[row] = values[row].max()
    return Choice(np.asarray(rows), np.asarray(gains), np.asarray(labels))


def _first(values: Array, order: Array) -> int:
    best = values.max()
    tied = np.flatnonzero(values >= best - 1e-12 * abs(best))
    return int(tied[np.argmin(order[tied])])


def choose_joint(law: LabelLaw, revealed: Array, criterion: str, batch: int, seed: int) -> Choice:
    """Choose cells one after another over the ground set of all of them."""
    batch = check_batch(batch, int((~revealed).sum()))
    state = CellGains(law, revealed, criterion, batch)
    order = np.random.default_rng(seed).permutation(revealed.size)
    cells, gains = [], []
    for _ in range(batch):
        scores = np.where(state.revealed, -np.inf, state.scores()).ravel()
        cell = _first(scores, order)
        row, label = divmod(cell, revealed.shape[1])
        cells.append((row, label))
        gains.append(float(scores[cell]))
        state.reveal(row, label)
    rows, labels = np.asarray(cells).T
    return Choice(rows, np.asarray(gains), labels)


def choose_two_way(problem: Problem, batch: int, labels_per_row: int | None) -> Choice:
    """Choose rows by ``miml``, then labels within each by ``mi`` given the labels of it that are known.

    `batch` counts labels; each row gives `labels_per_row` of those it has left (None: half of all, rounded
    up), the last one what remains of the batch.
    """
    law, revealed = read_law(problem, "label_two_way")
    batch = check_batch(batch, int((~revealed).sum()))
    still = np.flatnonzero(~revealed.all(axis=1))
    share = -(-law.shape[1] // 2) if labels_per_row is None else labels_per_row
    names = ("X_pool", "X_labelled", "Y_labelled", "X_targets", "kernel")
    known = {name: problem.get(name) for name in names}
    inner = Problem(**{**known, "X_pool": known["X_pool"][still]}, seed=problem.seed)
    wanted = min(len(still), -(-batch // share) + int((revealed.sum(axis=1) > 0).sum()))
    found = miml_with(stop=False)(inner, wanted)  # a row is looked at for its labels too
    cells: list[tuple[int, int]] = []
    gains: list[float] = []
    for row in still[found.rows].tolist():
        count = min(share, int((~revealed[row]).sum()), batch - len(cells))
        if count <= 0:
            break
        state = WoodburyGains(
            law.diagonal[row], law.projection, float(law.variance[row]), revealed[row], "mi"
        )
        inside = greedy_labels(state, count)
        cells += [(row, label) for label in inside.labels.tolist()]
        gains += inside.gains.tolist()
    table = np.asarray(cells, int).reshape(-1, 2)
    report = {**found.report, "rows_chosen": len(np.unique(table[:, 0]))}
    return Choice(table[:, 0], np.asarray(gains), table[:, 1], report)


def read_law(problem: Problem, name: str) -> tuple[LabelLaw, Array]:
    """Return the law of the pool rows and which cells are known; ValueError where they do not fit."""
    law = problem.need("label_law", name)
    if not isinstance(law, LabelLaw):
        raise ValueError(f"label_law must be a LabelLaw, got {type(law).__name__}")
    size = problem.get("X_pool").shape[0] if problem.has("X_pool") else law.shape[0]
    if size != law.shape[0]:
        raise ValueError(f"label_law has {law.shape[0]} rows, the pool has {size}")
    if not problem.has("asked"):
        return law, np.zeros(law.shape, bool)
    asked = np.asarray(problem.get("asked"))
    if asked.shape != law.shape or asked.dtype != bool:
        raise ValueError(f"asked must be bool {law.shape} (pool, labels), got {asked.dtype} {asked.shape}")
    if asked.all():
        raise PoolExhausted("every label of the pool is known: there is nothing left to ask")
    return law, asked


def _score(problem: Problem, name: str, criterion: str) -> Array:
    return row_scores(*read_law(problem, name), criterion)


def _score_joint(problem: Problem, name: str, criterion: str) -> Array:
    law, revealed = read_law(problem, name)
    return np.where(revealed, 0.0, CellGains(law, revealed, criterion, 0).scores())


def _choose(choose: Callable[..., Choice], name: str, criterion: str, problem: Problem, batch: int) -> Choice:
    law, revealed = read_law(problem, name)
    return choose(law, revealed, criterion, batch, problem.seed)


def _entry(name: str, criterion: str, joint: bool = False, **words: Any) -> Acquisition:
    return Acquisition(
        name=name,
        query="cell",
        needs=("label_law",),
        score=partial(_score_joint if joint else _score, name=name, criterion=criterion),
        choose=partial(_choose, choose_joint if joint else choose_cells, name, criterion),
        **{**(JOINT if joint else ALONE), **words},
    )


def two_way_with(*, labels_per_row: int | None = None) -> Acquisition:
    """Return the entry ``label_two_way``: rows by ``miml``, then so many labels within each (None: half)."""
    whole = isinstance(labels_per_row, int | np.integer) and not isinstance(labels_per_row, bool)
    if labels_per_row is not None and not (whole and labels_per_row >= 1):
        raise ValueError(f"labels_per_row must be an integer of at least 1, got {labels_per_row!r}")
    return Acquisition(
        name="label_two_way",
        query="cell",
        units="nats, within the row",
        needs=("X_pool", "kernel", "label_law"),
        bias="of miml for the rows, then as label_mi within each; half of a row's labels are asked",
        cost="of miml for the rows; labels k^2 a row and labels k a label asked",
        helps="where a row costs something to look at: few rows, the telling half of their labels",
        source="Vasisht, Damianou, Varma and Kapoor 2014, sections 4 and 5.2, one after the other",
        score=partial(_score, name="label_two_way", criterion="mi"),
        choose=lambda problem, batch: choose_two_way(problem, batch, labels_per_row),
    )


ALONE: dict[str, Any] = {
    "units": "nats",
    "cost": "pool labels k^2 flops for k measurements once, labels k a label asked",
    "bias": "rows stand alone given the labelled rows; none within a row given its precision, which the "
    "labels seen so far have made",
    "source": "Vasisht, Damianou, Varma and Kapoor 2014, section 5.2",
}
JOINT: dict[str, Any] = {
    "units": "nats",
    "cost": "(pool k)^3 flops and 16 (pool k)^2 bytes for k measurements once, refused above pool k = 4000; "
    "pool k (labels + batch) a label asked",
    "bias": "none given the precision over all cells, which the labels seen so far have made",
    "source": "Vasisht, Damianou, Varma and Kapoor 2014, section 5.2, generalised learning",
}

ENTRIES = (
    _entry("label_mi", "mi", helps="asking the labels that say most about the others of their row"),
    _entry(
        "label_cond",
        "cond",
        helps="as label_mi, with the labels asked before taken as known; the last two labels of a row tie",
    ),
    _entry(
        "label_uncertainty",
        "uncertainty",
        units="variance of the label",
        helps="as the control of label_mi: the labels known least, whatever they say of others",
        source="the largest variance first",
    ),
    _entry("label_mi_joint", "mi", True, helps="in small pools: labels that say most about all other cells"),
    _entry("label_cond_joint", "cond", True, helps="as label_mi_joint, labels asked before taken as known"),
    two_way_with(),
)
