"""Information that a batch of rows gives about the parameters, picked greedily; draws shared by all rows."""

import math
from typing import Any, NamedTuple

import numpy as np

from labelzoo.acquisition.draws import binary_entropy, entropy_of, log_odds, outcome_table, whole
from labelzoo.acquisition.information import ENUMERATED_LABELS, SATURATED, bald, bald_joint
from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.selectors import check_batch, top

Array = Any

OUTCOMES = 4096
"""Label configurations of a batch that are enumerated; beyond, they are drawn."""

_NEW_OUTCOMES = 64  # of the row that is added: enumerated up to here, drawn beyond
_BLOCK = 2**21  # numbers of a temporary array


class Batch(NamedTuple):
    """A batch and its information.

    Attributes
    ----------
    rows : int (batch,)
        In order of choice, distinct.
    gains : float (batch,)
        Information added by each, in nats; NaN for rows drawn at random after saturation.
    information : float
        Of the rows before saturation.
    error : float
        Its Monte Carlo standard error; 0 where every configuration was enumerated.
    saturated_after : int or None
        Number of rows after which the rest is drawn at random; None if never.
    form : str
        ``joint``, or ``labels`` (a sum over the labels).
    """

    rows: Array
    gains: Array
    information: float
    error: float
    saturated_after: int | None
    form: str


class _Enumerated(NamedTuple):
    table: Array  # (sample, configurations) P(configuration of the batch | draw)
    conditional: float  # E[entropy of the batch | draw]


class _Drawn(NamedTuple):
    ratios: Array  # (vector, sample) P(vector | sample) / P(vector | the draw it came from)
    own: Array  # (vector,) the draw that it came from


_State = _Enumerated | _Drawn


def batch_bald(
    probs: Any,
    batch: int,
    *,
    form: str = "auto",
    outcomes: int = OUTCOMES,
    vectors: int = 1000,
    saturation: float = SATURATED,
    seed: int = 0,
) -> Batch:
    """Pick `batch` rows greedily by I(all labels of the batch; parameters).

    The draws are shared: index s is one parameter for every row, labels are independent given it. The
    2^(rows labels) configurations are enumerated while there are at most `outcomes`; then label vectors of
    the chosen rows are drawn, stratified over the draws, extended by each new choice and used for every
    candidate, whose own outcomes are summed exactly up to 64 and drawn with shared random numbers beyond.
    Greedy is within 1 - 1/e of the best batch, as the information is submodular (Kirsch et al. 2019, section
    3).

    Parameters
    ----------
    probs : array (sample, row, labels) or RowBlocks
    batch : int
    form : str
        ``joint``; ``labels``: the sum over labels of the information of that label alone, an upper bound that
        ignores label correlation and saturates late; ``auto``: ``joint`` up to 12 labels.
    outcomes, vectors : int
        Configurations to enumerate; label vectors to draw beyond (rounded up to 2 or more a draw).
    saturation : float
        Share of log(samples) after which the rest of the batch is drawn at random: no estimate from so many
        draws can pass log(samples), and near it differences between candidates are noise. Never: ``inf``.
    seed : int
        Of ties, drawn labels, and rows after saturation.

    Raises
    ------
    ValueError
        At a bad number, named by sample, row and label; at an unknown form.
    PoolExhausted
        If there are no rows.

    Notes
    -----
    Cost a pick: rows samples 2^(rows chosen labels) multiplications, or rows samples vectors 2^labels.
    """
    draws = whole(probs)
    samples, pool, labels = draws.shape
    batch = check_batch(batch, pool)
    parts, form = _parts(draws, form)
    cap = len(parts) * math.log(samples) if samples > 1 else math.inf
    rng = np.random.default_rng(seed)
    states: list[_State] = [_Enumerated(np.ones((samples, 1)), 0.0) for _ in parts]
    rows: list[int] = []
    gains: list[float] = []
    while len(rows) < batch and sum(_information(state)[0] for state in states) <= saturation * cap:
        states = [_within(*both, rows, outcomes, vectors, rng) for both in zip(states, parts, strict=True)]
        uniforms = rng.random((_vectors(samples, vectors), labels))
        scores = sum(_gains(*both, uniforms) for both in zip(states, parts, strict=True))
        row = int(top(_without(scores, rows), 1, seed=seed + len(rows))[0])
        states = [_extended(*both, row, rng) for both in zip(states, parts, strict=True)]
        rows.append(row)
        gains.append(float(scores[row]))
    known = np.array([_information(state) for state in states])
    saturated = len(rows) if len(rows) < batch else None
    rest = rng.permutation(np.setdiff1d(np.arange(pool), rows))[: batch - len(rows)]
    return Batch(
        np.concatenate([rows, rest]).astype(int),
        np.concatenate([gains, np.full(len(rest), np.nan)]),
        float(known[:, 0].sum()),
        float(np.sqrt((known[:, 1] ** 2).sum())),
        saturated,
        form,
    )


def batch_information(probs: Any, rows: Any, *, form: str = "joint") -> float:
    """Return I(labels of `rows`; parameters) in nats by enumeration of every configuration.

    Raises
    ------
    ValueError
        If there are more than 2^22 configurations.
    """
    parts, _ = _parts(whole(probs)[:, np.asarray(rows, int)], form)
    total = 0.0
    for part in parts:
        cells = part.reshape(len(part), 1, -1)
        if cells.shape[2] > 22:
            raise ValueError(f"2^{cells.shape[2]} configurations are too many to enumerate")
        mixture = outcome_table(cells)[:, 0].mean(axis=0)
        total += float(entropy_of(mixture)) - binary_entropy(cells).sum(axis=2).mean()
    return total


def _parts(draws: Array, form: str) -> tuple[list[Array], str]:
    # The problems whose information is summed: all labels together, or each label alone.
    if form not in ("auto", "joint", "labels"):
        raise ValueError(f"form must be 'auto', 'joint' or 'labels', got {form!r}")
    if form == "joint" or (form == "auto" and draws.shape[2] <= ENUMERATED_LABELS):
        return [draws], "joint"
    return [draws[:, :, [label]] for label in range(draws.shape[2])], "labels"


def _information(state: _State) -> tuple[float, float]:
    if isinstance(state, _Enumerated):
        return float(entropy_of(state.table.mean(axis=0))) - state.conditional, 0.0
    gains = -np.log(state.ratios.mean(axis=1)).reshape(state.ratios.shape[1], -1)
    error = math.sqrt(gains.var(axis=1, ddof=1).sum() / gains.shape[1]) / len(gains)
    return float(gains.mean()), error


def _vectors(samples: int, vectors: int) -> int:
    return samples * max(2, -(-vectors // samples))


def _within(
    state: _State, part: Array, rows: list[int], outcomes: int, vectors: int, rng: np.random.Generator
) -> _State:
    # Goes over from configurations to drawn vectors when one more row would make too many.
    samples, _, labels = part.shape
    if isinstance(state, _Drawn) or (labels < 40 and state.table.shape[1] * 2**labels <= outcomes):
        return state
    total = _vectors(samples, vectors)
    fresh: _State = _Drawn(np.ones((total, samples)), np.repeat(np.arange(samples), total // samples))
    for row in rows:
        fresh = _extended(fresh, part, row, rng)
    return fresh


def _extended(state: _State, part: Array, row: int, rng: np.random.Generator) -> _State:
    p = part[:, row]
    if isinstance(state, _Enumerated):
        new = outcome_table(part[:, [row]])[:, 0]
        table = (state.table[:, :, None] * new[:, None, :]).reshape(len(p), -1)
        return _Enumerated(table, state.conditional + float(binary_entropy(p).sum(axis=1).mean()))
    return _Drawn(state.ratios * _ratios(p, state.own, rng.random((len(state.own), p.shape[1]))), state.own)


def _ratios(p: Array, own: Array, uniforms: Array) -> Array:
    # Labels of one row, each vector from its own draw; their probability under every draw over that.
    odds, no = log_odds(p)
    y = (uniforms < p[own]).astype(float)
    under = y @ odds.T + no.sum(axis=1)
    return np.exp(under - under[np.arange(len(own)), own][:, None])


def _gains(state: _State, part: Array, uniforms: Array) -> Array:
    samples, pool, labels = part.shape
    known = _information(state)[0]
    if isinstance(state, _Drawn) and 2**labels > _NEW_OUTCOMES:
        shares = (state.ratios * _ratios(part[:, n], state.own, uniforms[:, :labels]) for n in range(pool))
        return np.array([-np.log(share.mean(axis=1)).mean() for share in shares]) - known
    height = state.table.shape[1] if isinstance(state, _Enumerated) else len(state.own)
    step = max(1, _BLOCK // (max(height, samples) * 2**labels))
    blocks = [_block_gains(state, part[:, start : start + step]) for start in range(0, pool, step)]
    return np.concatenate(blocks) - known


def _block_gains(state: _State, block: Array) -> Array:
    # Information of the batch with each row of the block: (row,).
    samples, rows, _ = block.shape
    new = outcome_table(block)
    inside = binary_entropy(block).sum(axis=2)
    flat = new.reshape(samples, -1) / samples
    if isinstance(state, _Enumerated):
        mixture = (state.table.T @ flat).reshape(-1, rows, new.shape[2])
        return entropy_of(mixture, axis=(0, 2)) - state.conditional - inside.mean(axis=0)
    mixture = np.maximum(state.ratios @ flat, np.finfo(float).tiny)
    logs = np.log(mixture, out=mixture).reshape(samples, -1, rows, new.shape[2])
    return -np.einsum("sknc,snc->n", logs, new) / len(state.own) - inside.mean(axis=0)


def _without(scores: Array, rows: list[int]) -> Array:
    left = np.array(scores)
    left[rows] = -np.inf
    return left


def _score(problem: Problem) -> Array:
    probs = whole(problem.need("probs", by="batchbald"))
    return bald_joint(probs, seed=problem.seed).score if probs.shape[2] <= ENUMERATED_LABELS else bald(probs)


def _choose(problem: Problem, batch: int) -> Choice:
    found = batch_bald(problem.need("probs", by="batchbald"), batch, seed=problem.seed)
    report = {
        "information": found.information,
        "monte_carlo_error": found.error,
        "saturated_after": found.saturated_after,
        "form": found.form,
    }
    return Choice(found.rows, found.gains, report=report)


ENTRIES = (
    Acquisition(
        name="batchbald",
        query="row",
        units="nats",
        needs=("probs",),
        bias="never above log S: rows after 0.8 log S are drawn at random and reported; beyond 4096 label "
        "configurations Monte Carlo with its standard error in the report; over 12 labels a sum over "
        "the labels, "
        "an upper bound",
        cost="a pick: S N 2^(b L) multiplications while 2^(b L) <= 4096, then 1000 S N 2^L",
        helps="over bald in a batch: does not buy the same row twice; like bald it asks about the "
        "parameters, not about predictions",
        source="Kirsch et al. 2019, section 3 and algorithm 1",
        score=_score,
        choose=_choose,
    ),
)
"""Acquisition functions of this module."""
