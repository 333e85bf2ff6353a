"""Multi-label uncertainty as the literature has it: margins, losses, inconsistencies. Documented baselines.

Where the problem brings ``mean_probs``, those are the probabilities q and the margins are f = 2 q - 1; else
one linear classifier a label is fitted here. ``li_adaptive``, ``one_vs_all_svm`` and ``one_vs_all_gp`` are
tied to a learner of their own and always fit it. A batch is the top of the score, nothing retrained inside.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from labelzoo.acquisition import li_adaptive, margin_scores
from labelzoo.acquisition.binary_relevance import (
    both_classes,
    check_features,
    check_probs,
    known_labels,
    labelled_rows,
    out_of_fold,
    own_predictions,
    pool_predictions,
)
from labelzoo.acquisition.problem import Acquisition, Problem

Array = Any

GP_NOISE = 1e-5
"""Noise variance of the one-vs-all Gaussian processes, in units of the kernel."""


def brm_uncertainty(problem: Problem) -> Array:
    """Sum over labels of the entropy of q: (pool,), nats."""
    return margin_scores.binary_entropy(pool_predictions(problem, "brm_uncertainty").probs)


def min_margin(problem: Problem) -> Array:
    """Minus the smallest absolute margin abs(2 q - 1) over labels with two classes: (pool,)."""
    found = pool_predictions(problem, "min_margin")
    return margin_scores.smallest_margin(found.margins, found.usable)


def ml(problem: Problem) -> Array:
    """Hinge loss of "only the label with the largest margin": (pool,)."""
    return margin_scores.max_loss(pool_predictions(problem, "ml", "svm").margins)


def mml(problem: Problem) -> Array:
    """Mean hinge loss of "only this label" over the labels predicted positive: (pool,)."""
    return margin_scores.mean_max_loss(pool_predictions(problem, "mml", "svm").margins)


def mmc(problem: Problem) -> Array:
    """Expected loss of the labelling with the predicted number of labels, f = 2 q - 1: (pool,)."""
    Y = known_labels(problem, "mmc")
    found = pool_predictions(problem, "mmc")
    Q_labelled = problem.get("labelled_probs")
    if Q_labelled is None:
        Q_labelled = out_of_fold(*labelled_rows(problem, "mmc"), seed=problem.seed)
    Q_labelled = check_probs(Q_labelled, "labelled_probs")
    if Q_labelled.shape != Y.shape:
        raise ValueError(f"labelled_probs has shape {Q_labelled.shape}, Y_labelled {Y.shape}")
    count = margin_scores.predicted_cardinality(Q_labelled, Y, found.probs)
    return margin_scores.loss_reduction(found.margins, count)


def cvirs(problem: Problem) -> Array:
    """Borda score of small margins times mean entropy distance to the labelled rows: (pool,)."""
    Y = known_labels(problem, "cvirs")
    probs = pool_predictions(problem, "cvirs").probs
    return margin_scores.borda(probs) * margin_scores.inconsistency(probs > 0.5, Y)


def one_vs_all_svm(problem: Problem) -> Array:
    """Minus the smallest absolute decision value over labels with two classes: (pool,)."""
    found = own_predictions(problem, "one_vs_all_svm", "svm")
    return margin_scores.smallest_margin(found.margins, found.usable)


def one_vs_all_gp(problem: Problem) -> Array:
    """-min_l abs(mean_l) / sqrt(variance + noise) of GP regression on -1 and +1: (pool,)."""
    X, Y = labelled_rows(problem, "one_vs_all_gp")
    pool = check_features(problem.need("X_pool", "one_vs_all_gp"), "X_pool")
    kernel = problem.need("kernel", "one_vs_all_gp")
    K, K_pool = (np.asarray(kernel.between(rows, X), float) for rows in (X, pool))
    posterior = margin_scores.gp_margins(K, K_pool, np.asarray(kernel.diagonal(pool), float), Y, GP_NOISE)
    return margin_scores.gp_uncertainty(posterior, GP_NOISE, both_classes(Y))


_OWN = "; without mean_probs one logistic or SVM fit a label first"
_BATCH = "none of sampling; a batch is the top of the score, so near copies are asked together"
_LEARNER = "the classifiers' regularisation is fixed (C = 1), which shrinks q towards 1/2 early on"


def _entry(name: str, score: Callable[[Problem], Array], **words: Any) -> Acquisition:
    return Acquisition(name=name, query="row", score=score, **words)


def _li(name: str, missing: str, empty: str) -> Acquisition:
    return _entry(
        name,
        partial(li_adaptive.score, name=name, missing=missing),
        choose=partial(li_adaptive.choose, name=name, missing=missing),
        units="minus hinge loss, mean over pool rows",
        needs=("X_pool", "X_labelled", "Y_labelled"),
        bias=f"no predicted positive, or no negative: {empty}; predictions stand in for answers",
        cost="11 x labels SVM fits of labelled^2 features for the first pick, fewer after; "
        f"refused above {li_adaptive.MOST_LABELS} labels",
        helps="a baseline, the dearest of these",
        source="Li and Guo (2013), SVM margins, C = 1",
    )


ENTRIES = (
    _entry(
        "brm_uncertainty",
        brm_uncertainty,
        units="nats, summed over labels",
        needs=(),
        bias=f"{_BATCH}; {_LEARNER}",
        cost="pool labels" + _OWN,
        helps="a baseline: asks for noisy rows",
        source="Esuli and Sebastiani (2009), sum over one-vs-rest classifiers",
    ),
    _entry(
        "min_margin",
        min_margin,
        units="minus a margin 2 q - 1",
        needs=(),
        bias=f"{_BATCH}; one label decides, labels with one class so far are left out",
        cost="pool labels" + _OWN,
        helps="few balanced labels; a rare label always owns the smallest margin",
        source="Brinker (2006), binmin",
    ),
    _entry(
        "ml",
        ml,
        units="hinge loss",
        needs=(),
        bias=f"{_BATCH}; supposes one true label; with mean_probs f = 2 q - 1, and no hinge is cut",
        cost="pool labels" + _OWN,
        helps="a baseline for about one label a row",
        source="Li, Wang and Sung (2004), max loss, as secondary sources give it",
    ),
    _entry(
        "mml",
        mml,
        units="hinge loss",
        needs=(),
        bias=f"{_BATCH}; rows without a predicted positive fall back on max loss",
        cost="pool labels" + _OWN,
        helps="a baseline for rows with several labels",
        source="Li, Wang and Sung (2004), mean max loss, as secondary sources give it",
    ),
    _entry(
        "mmc",
        mmc,
        units="expected number of wrong labels",
        needs=("Y_labelled",),
        bias=f"{_BATCH}; f = 2 q - 1, since raw SVM margins have no bound; {_LEARNER}",
        cost="pool labels log labels, one multinomial fit; without labelled_probs 5 fits a label more",
        helps="seldom: where the number of labels of a row can be predicted; else much like entropy",
        source="Yang, Sun, Wang and Chen (2009); cardinality from out-of-fold probabilities",
    ),
    _li("li_adaptive", "inf", "no uncertainty, chosen by label count only"),
    _li("li_adaptive_one_sided", "one_sided", "the distance of the side that exists from 0"),
    _entry(
        "cvirs",
        cvirs,
        units="none, from 0 to 1",
        needs=("Y_labelled",),
        bias=f"{_BATCH}; tied margins share the mean rank",
        cost="pool labelled labels + pool labels log pool" + _OWN,
        helps="a baseline for many rare labels: margins and unusual label sets together",
        source="Reyes, Morell and Ventura (2018)",
    ),
    _entry(
        "one_vs_all_svm",
        one_vs_all_svm,
        units="minus an SVM decision value",
        needs=("X_pool", "X_labelled", "Y_labelled"),
        bias=f"{_BATCH}; one label decides; C = 1, mean_probs is not read",
        cost="labels SVM fits of labelled^2 features, then pool features labels",
        helps="few balanced labels; a rare label always owns the smallest margin",
        source="Tong and Koller (2001) with Brinker (2006) over labels",
    ),
    _entry(
        "one_vs_all_gp",
        one_vs_all_gp,
        units="minus standard deviations from 0",
        needs=("X_pool", "X_labelled", "Y_labelled", "kernel"),
        bias=f"{_BATCH}; regression on -1 and +1; noise {GP_NOISE:g} fits the labels almost exactly",
        cost="labelled^3 / 3 + pool labelled^2, shared by labels asked on the same rows",
        helps="a baseline for few balanced classes",
        source="Kapoor, Grauman, Urtasun and Darrell (2010)",
    ),
)
"""The margin baselines."""
