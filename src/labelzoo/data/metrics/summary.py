"""All metrics of one set of predictions, as one flat dict."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelzoo.data.metrics import calibration, decisions, proper, ranking
from labelzoo.data.metrics.arguments import checked_ks, checked_thresholds
from labelzoo.data.metrics.at_k import ndcg_at_k, precision_at_k, psndcg_at_k, psp_at_k, recall_at_k
from labelzoo.data.metrics.averages import Averaged, Floats, averaged
from labelzoo.data.metrics.names import same_names
from labelzoo.data.metrics.observed import Observed
from labelzoo.data.metrics.topk import TopK
from labelzoo.data.metrics.truth import (
    Truth,
    as_truth,
    probability_table,
    take_label_data,
)


def evaluate(
    Y_true: Any,
    probs: Any,
    observed: Any = None,
    ks: Any = (1, 3, 5),
    missing: Any = None,
    propensities: Any = None,
    threshold: Any = 0.5,
) -> dict[str, Any]:
    """Return the metrics of probabilities as one flat dict of numbers.

    Parameters
    ----------
    Y_true : (n, l) of 0, 1 or NaN; dense, csr, DataFrame or a `labelzoo.data.LabelData`
    probs : float (n, l), `TopK` or csr
        Of a `TopK` or csr scores only the metrics at k are computed: the other keys are absent, since they
        need the probability of every cell. No dense table is made of them.
    observed : bool (n, l), optional
    ks : tuple of int
    missing : labelzoo.data.Missing, optional
    propensities : float (l,), optional
        As `label_propensities` gives them, for the propensity-scored metrics.
    threshold : float, float (l,) or `Thresholds`
        Labels whose probability lies above it are decided to be positive.

    Returns
    -------
    dict
        ``rows, labels, observed_cells``;
        each with the number of rows or labels left out under ``..._undefined``: ``per_example_auc, macro_auc,
        macro_average_precision, log_score, lrap, coverage_error, ranking_loss, brier_score,
        label_calibration_error, f1_macro, f1_micro, f1_example, jaccard_example, subset_accuracy`` and
        ``precision_at_K, recall_at_K, ndcg_at_K``;
        ``precision_at_K_short`` (rows of a `TopK` with too few observed predictions; 0 otherwise);
        ``psp_at_K, psndcg_at_K`` (normalised) with ``propensities``;
        ``micro_auc, micro_average_precision, brier_score_per_cell, hamming_loss, calibration_error,
        calibration_error_equal_mass, squared_calibration_error, top_label_calibration_error``.
        NaN where nothing is defined.
    """
    ks = checked_ks(ks)
    same_names(Y_true=Y_true, scores=probs, observed=observed, propensities=propensities, threshold=threshold)
    if isinstance(probs, TopK) or issparse(probs):
        cells = as_truth(Y_true, observed, missing)
        known = {"observed": cells.observed.mask, "missing": cells.observed.missing}
        result = _sizes(cells.Y.shape, int(cells.observed.per_row().sum()))
        return result | _at_k(cells.Y, probs, ks, propensities, known)
    Y_true, missing = take_label_data(Y_true, missing)
    truth, values = probability_table(Y_true, probs, observed, missing)
    seen = truth >= 0
    threshold = checked_thresholds(threshold, truth.shape[1], "threshold")
    Y = (truth == 1).astype(np.int8)
    result = _sizes(truth.shape, int(np.count_nonzero(seen)))
    result |= _counted(_rankings(truth, values) | _probabilities(Y, values, seen))
    result |= _decided(truth, values, threshold)
    result |= _at_k(Y, values, ks, propensities, {"observed": seen})
    return result | {
        "micro_auc": ranking.micro_auc(Y, values, seen),
        "micro_average_precision": ranking.micro_average_precision(Y, values, seen),
        "brier_score_per_cell": proper.brier_score_per_cell(Y, values, seen),
        "calibration_error": calibration.expected_calibration_error(Y, values, seen),
        "calibration_error_equal_mass": calibration.expected_calibration_error(
            Y, values, seen, strategy="mass"
        ),
        "squared_calibration_error": calibration.squared_calibration_error(Y, values, seen),
        "top_label_calibration_error": calibration.top_label_calibration_error(Y, values, seen),
    }


def _sizes(shape: tuple[int, ...], observed_cells: int) -> dict[str, Any]:
    return {"rows": int(shape[0]), "labels": int(shape[1]), "observed_cells": observed_cells}


def _counted(means: dict[str, Averaged]) -> dict[str, Any]:
    """Return value and number of undefined items of each mean under two keys."""
    result: dict[str, Any] = {}
    for name, mean in means.items():
        result |= {name: mean.value, f"{name}_undefined": mean.num_undefined}
    return result


def _rankings(truth: NDArray[np.int8], values: Floats) -> dict[str, Averaged]:
    rows, labels = ranking.rankings(truth, values), ranking.rankings(truth.T, values.T)
    return {
        "per_example_auc": averaged(rows.auc),
        "macro_auc": averaged(labels.auc),
        "macro_average_precision": averaged(labels.average_precision),
        "lrap": ranking.row_ranking(rows, "average_precision", "undefined"),
        "coverage_error": ranking.row_ranking(rows, "coverage", "undefined"),
        "ranking_loss": ranking.row_ranking(rows, "loss", "undefined"),
    }


def _probabilities(Y: Any, values: Floats, seen: Any) -> dict[str, Averaged]:
    return {
        "log_score": proper.log_score(Y, values, seen),
        "brier_score": proper.brier_score(Y, values, seen),
        "label_calibration_error": calibration.label_calibration_error(Y, values, seen),
    }


def _decided(truth: NDArray[np.int8], values: Floats, threshold: Any) -> dict[str, Any]:
    """Return the metrics of the labels whose probability lies above the threshold."""
    seen = truth >= 0
    known = Truth(csr_array(truth == 1, dtype=np.int8), Observed(seen.shape, mask=seen))
    predicted = csr_array(seen & (np.where(seen, values, 0.0) > threshold), dtype=np.int8)
    counts = {name: decisions.counted(known, predicted, name) for name in decisions.AVERAGES}
    means = {
        f"f1_{name}": decisions.averaged_ratio(found, *decisions.f_parts(found), float("nan"))
        for name, found in counts.items()
    }
    rows = counts["example"]
    union = rows.tp + rows.fp + rows.fn
    means["jaccard_example"] = decisions.averaged_ratio(rows, rows.tp, union, float("nan"))
    means["subset_accuracy"] = decisions.subset_from(rows)
    return _counted(means) | {"hamming_loss": decisions.hamming_from(counts["micro"])}


def _at_k(Y: Any, scores: Any, ks: Any, propensities: Any, known: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for k in ks:
        hits = precision_at_k(Y, scores, k, **known)
        result |= _counted({f"precision_at_{k}": hits}) | {f"precision_at_{k}_short": hits.num_short}
        result |= _counted({f"recall_at_{k}": recall_at_k(Y, scores, k, **known)})
        result |= _counted({f"ndcg_at_{k}": ndcg_at_k(Y, scores, k, **known)})
        if propensities is not None:
            result[f"psp_at_{k}"] = psp_at_k(Y, scores, propensities, k, **known).normalised
            result[f"psndcg_at_{k}"] = psndcg_at_k(Y, scores, propensities, k, **known).normalised
    return result
