"""Held-out metrics of multi-label scores, probabilities and decisions.

Every function takes ``Y_true`` (n, l) of 0 and 1 (dense, csr, DataFrame or `labelzoo.data.LabelData`) and
skips unobserved cells: NaN in the truth, False in a mask ``observed`` (n, l), or the cells of ``missing``.
Scores are dense, and then a sparse truth is expanded beside them, one byte a cell; the metrics at k also take
a `TopK` or csr scores, without any dense table.

A metric that is undefined for a row or a label (an AUC without both classes, say) is NaN there; means are
taken over the rest, are NaN where nothing is left, and carry the number of undefined items beside them.
"""

from labelzoo.data.metrics.at_k import (
    PropensityScored,
    label_propensities,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
)
from labelzoo.data.metrics.averages import CLIP, Averaged, AveragedAtK, averaged
from labelzoo.data.metrics.calibration import (
    expected_calibration_error,
    label_calibration_error,
    reliability,
    squared_calibration_error,
    top_label_calibration_error,
)
from labelzoo.data.metrics.decisions import (
    Counts,
    confusion,
    f_score,
    hamming_loss,
    jaccard,
    precision,
    recall,
    subset_accuracy,
)
from labelzoo.data.metrics.expected_utility import Decision, decide
from labelzoo.data.metrics.picture import reliability_plot
from labelzoo.data.metrics.proper import brier_score, brier_score_per_cell, log_score
from labelzoo.data.metrics.ranking import (
    coverage_error,
    lrap,
    macro_auc,
    macro_average_precision,
    micro_auc,
    micro_average_precision,
    per_example_auc,
    ranking_loss,
)
from labelzoo.data.metrics.summary import evaluate
from labelzoo.data.metrics.thresholds import Thresholds, apply_thresholds, tune_thresholds
from labelzoo.data.metrics.topk import TopK, top_k

__all__ = [
    "CLIP",
    "Averaged",
    "AveragedAtK",
    "Counts",
    "Decision",
    "PropensityScored",
    "Thresholds",
    "TopK",
    "apply_thresholds",
    "averaged",
    "brier_score",
    "brier_score_per_cell",
    "confusion",
    "coverage_error",
    "decide",
    "evaluate",
    "expected_calibration_error",
    "f_score",
    "hamming_loss",
    "jaccard",
    "label_calibration_error",
    "label_propensities",
    "log_score",
    "lrap",
    "macro_auc",
    "macro_average_precision",
    "micro_auc",
    "micro_average_precision",
    "ndcg_at_k",
    "per_example_auc",
    "precision",
    "precision_at_k",
    "psndcg_at_k",
    "psp_at_k",
    "ranking_loss",
    "recall",
    "recall_at_k",
    "reliability",
    "reliability_plot",
    "squared_calibration_error",
    "subset_accuracy",
    "top_k",
    "top_label_calibration_error",
    "tune_thresholds",
]
