"""How uncertain a row's own labels are, and how much of that uncertainty the parameters explain."""

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from labelzoo.acquisition.draws import (
    as_blocks,
    binary_entropy,
    check_block,
    entropy_of,
    log_odds,
    mean_and_entropy,
    mean_over_draws,
    outcome_table,
    over_rows,
    read_blocks,
)
from labelzoo.acquisition.problem import Acquisition, Choice, Problem, best

Array = Any

ENUMERATED_LABELS = 12
"""Up to so many labels the 2^labels outcomes of a row are enumerated."""

SATURATED = 0.8
"""Share of log(samples) above which an estimate from that many draws says little about the order of rows."""


def mean_prob(probs: Any) -> Array:
    """Return the mean over the draws of `probs` (array or `RowBlocks`): (row, labels)."""
    return over_rows(mean_over_draws, probs)


def entropy(probs: Any) -> Array:
    """Return sum_l h(E[p_l]), the entropy of a row's labels one by one, in nats: (row,).

    An upper bound of the entropy of the labels together (the labels' dependence is left out).

    Parameters
    ----------
    probs : array (sample, row, labels) or RowBlocks
        Draws of P(label = 1). An array (row, labels) is read as the posterior mean itself.

    Raises
    ------
    ValueError
        At a number outside [0, 1] or NaN, with its sample, row and label.
    """
    return binary_entropy(_mean(probs)).sum(axis=-1)


def margin(probs: Any) -> Array:
    """Return -min_l |2 E[p_l] - 1|, minus the smallest margin of a row, between -1 and 0: (row,).

    The one least certain label decides: with many labels some label nearly always sits at 1/2, so most rows
    tie near 0 and the order is that of the noise of one label. Reads `probs` as `entropy` does.
    """
    return -np.abs(2 * _mean(probs) - 1).min(axis=-1)


def bald(probs: Any) -> Array:
    """Return sum_l I(y_l; parameters) = sum_l h(E[p_l]) - E[h(p_l)] in nats: (row,).

    Never below the information of the labels together (`bald_joint`), and equal to it where at most one
    label of a row moves with the parameters.
    Houlsby et al. 2011, equation 2, per label. The plug-in is low by Var(p) / (2 S pbar (1 - pbar)) a label.
    Reads `probs` (array or `RowBlocks`) block by block; float32 draws cost about 1e-6 nats a label.
    """
    return np.maximum(over_rows(_bald_block, probs), 0.0)


class JointInformation(NamedTuple):
    """Information of all labels of a row together.

    Attributes
    ----------
    score : float (row,)
        In nats; Monte Carlo estimates may fall below 0 by their error.
    error : float (row,)
        Monte Carlo standard error; 0 where the outcomes were enumerated.
    saturation : float (row,)
        score / log(samples), of which 1 cannot be passed.
    """

    score: Array
    error: Array
    saturation: Array


def bald_joint(
    probs: Any, *, repeats: int = 4, seed: int = 0, enumerate_to: int = ENUMERATED_LABELS
) -> JointInformation:
    """Return I(y_1..y_L; parameters) of every row, labels independent given a draw.

    Enumerated where there are at most `enumerate_to` labels: H(mixture of the draws) - E[sum_l h(p_l)].
    Otherwise `repeats` label vectors y are drawn from each draw s and log p_s(y) - log mean_s' p_s'(y) is
    averaged, which is unbiased for the mixture of the draws at hand. All rows share the random numbers,
    so equal rows have equal scores.

    Parameters
    ----------
    probs : array (sample, row, labels) or RowBlocks
    repeats : int
        Label vectors per draw, 2 or more for a standard error.
    seed : int
        Of the label vectors.
    enumerate_to : int
        Largest number of labels whose outcomes are enumerated.

    Warns
    -----
    UserWarning
        If the largest score passes 0.8 log(samples): such rows are not told apart by so few draws.

    Notes
    -----
    Cost: rows samples 2^labels multiplications, or rows samples^2 repeats labels.
    """
    samples, _, labels = as_blocks(probs).shape
    if repeats < 2:
        raise ValueError(f"repeats must be 2 or more, got {repeats}")
    enumerated = labels <= enumerate_to
    uniforms = None if enumerated else np.random.default_rng(seed).random((samples, repeats, labels))
    size = samples * 2 ** ((labels + 1) // 2) + 2**labels if enumerated else samples * samples * repeats
    parts = [np.zeros((2, 0))]
    for _, block in read_blocks(probs, rows=max(1, 2**21 // size)):
        parts.append(_enumerated(block) if uniforms is None else _drawn(block, uniforms))
    score, error = np.concatenate(parts, axis=1)
    saturation = score / math.log(samples) if samples > 1 else np.zeros_like(score)
    if saturation.max(initial=0.0) > SATURATED:
        warnings.warn(
            f"bald_joint: the largest score is {saturation.max():.2f} of log(samples = {samples}), the "
            f"most that "
            "so many draws can show: rows near it are in no order; take more draws, or bald",
            stacklevel=2,
        )
    return JointInformation(score, error, saturation)


def _mean(probs: Any) -> Array:
    if np.ndim(probs) != 2:
        return mean_prob(probs)
    mean = np.asarray(probs, float)
    check_block(mean[None], 0, "mean_probs")
    return mean


def _bald_block(block: Array) -> Array:
    mean, conditional = mean_and_entropy(block)
    return (binary_entropy(mean) - conditional).sum(axis=-1)


def _enumerated(block: Array) -> Array:
    # The outcomes of two halves of the labels meet in one matrix product, so no (sample, 2^labels) is made.
    samples, rows, labels = block.shape
    left = outcome_table(block[:, :, : labels // 2]).transpose(1, 2, 0)
    right = outcome_table(block[:, :, labels // 2 :]).transpose(1, 0, 2)
    mixture = (left @ right / samples).reshape(rows, -1)
    conditional = mean_and_entropy(np.asarray(block, float))[1].sum(axis=-1)
    return np.stack([np.maximum(entropy_of(mixture) - conditional, 0.0), np.zeros(rows)])


def _drawn(block: Array, uniforms: Array) -> Array:
    samples, repeats, labels = uniforms.shape
    odds, no = log_odds(block)
    out = np.empty((2, block.shape[1]))
    for row in range(block.shape[1]):
        y = (uniforms < block[:, None, row]).reshape(-1, labels).astype(float)
        under = y @ odds[:, row].T + no[:, row].sum(axis=-1)  # log p_s'(y): (sample repeats, sample)
        own = under[np.arange(len(y)), np.repeat(np.arange(samples), repeats)]
        ratios = np.exp(under - own[:, None], out=under).mean(axis=1)
        gains = -np.log(ratios).reshape(samples, repeats)
        error = math.sqrt(gains.var(axis=1, ddof=1).sum() / repeats) / samples
        out[:, row] = gains.mean(), error
    return out


def _mean_of(problem: Problem) -> Any:
    # The mean is the mean of the draws where only these are known.
    return problem.get("mean_probs") if problem.has("mean_probs") else problem.need("probs", by="entropy")


def _joint_choice(problem: Problem, batch: int) -> Choice:
    joint = bald_joint(problem.need("probs", by="bald_joint"), seed=problem.seed)
    choice = best(joint.score, batch, problem)
    report = {
        "monte_carlo_error": float(joint.error.max(initial=0.0)),
        "saturation": float(joint.saturation.max(initial=0.0)),
    }
    return choice._replace(report=report)


ENTRIES = (
    Acquisition(
        name="entropy",
        query="row",
        units="nats, summed over labels",
        needs=("mean_probs",),
        bias="from S draws low by Var(p) / (2 S pbar (1 - pbar)) a label; no Monte Carlo error otherwise",
        cost="S N L additions and N L logarithms",
        helps="a baseline: asks noisy rows again and again",
        source="Settles 2009, section 3.1, per label",
        score=lambda problem: entropy(_mean_of(problem)),
    ),
    Acquisition(
        name="margin",
        query="row",
        units="minus the smallest |2 p - 1|, from -1 to 0",
        needs=("mean_probs",),
        bias="none given the mean; one label decides",
        cost="N L",
        helps="a baseline for few balanced labels; a rare label always owns the smallest margin",
        source="Brinker 2006 (binmin), probabilities for margins",
        score=lambda problem: margin(_mean_of(problem)),
    ),
    Acquisition(
        name="bald",
        query="row",
        units="nats, summed over labels",
        needs=("probs",),
        bias="low by about Var(p) / (2 S pbar (1 - pbar)) a label; ignores that labels repeat each other",
        cost="2 S N L logarithms, in blocks of rows",
        helps="rarely: it asks about the parameters, not about predictions; most with rare labels",
        source="Houlsby et al. 2011, equation 2, per label",
        score=lambda problem: bald(problem.need("probs", by="bald")),
    ),
    Acquisition(
        name="bald_joint",
        query="row",
        units="nats",
        needs=("probs",),
        bias="low against the true posterior, never above log S; standard error reported where L > 12",
        cost="S N 2^L multiplications for L <= 12, else 4 S^2 N L and as many exponentials over L",
        helps="over bald only where one latent moves several labels; equals it for independent labels",
        source="Houlsby et al. 2011, equation 2, labels together",
        score=lambda problem: bald_joint(problem.need("probs", by="bald_joint"), seed=problem.seed).score,
        choose=_joint_choice,
    ),
)
"""Acquisition functions of this module."""
