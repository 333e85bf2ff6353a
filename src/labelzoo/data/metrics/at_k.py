"""Precision, recall and nDCG at k, and their propensity-scored forms for labels whose positives go missing.

``scores`` may be dense, a `TopK`, or csr (absent labels stand below all stored ones). Ties are resolved by
their expectation under a random order; a `TopK` has none. Unobserved labels are not ranked. In a `TopK` with
fewer than k observed predictions the empty places count as misses; ``num_short`` counts such rows.
"""

from typing import Any, NamedTuple

import numpy as np

from labelzoo.data.metrics.arguments import checked_k, is_number
from labelzoo.data.metrics.averages import (
    AveragedAtK,
    Floats,
    averaged_at_k,
    ratio,
)
from labelzoo.data.metrics.names import same_names
from labelzoo.data.metrics.places import Places, expected_gain, find_places
from labelzoo.data.metrics.truth import as_truth
from labelzoo.data.validate import plain_array


def precision_at_k(
    Y_true: Any, scores: Any, k: Any = 5, observed: Any = None, missing: Any = None
) -> AveragedAtK:
    """Average over rows of the share of positives among the k labels with the highest scores.

    Where fewer than k labels of a row are observed, all of them are taken. Rows without a positive count 0;
    only rows without any observed label are undefined.
    """
    places = find_places(Y_true, scores, checked_k(k), observed, missing)
    return averaged_at_k(_precision(places, k), places.num_short)


def _within(k: int, places: Places) -> int:
    """Return k, or the number of labels where that is less: arrays of k places are made."""
    return min(k, max(places.num_labels, 1))


def _precision(places: Places, k: int, weights: Any = None) -> Floats:
    k = _within(k, places)
    return ratio(expected_gain(places, np.ones(k), weights), np.minimum(k, places.num_observed))


def recall_at_k(
    Y_true: Any, scores: Any, k: Any = 5, observed: Any = None, missing: Any = None
) -> AveragedAtK:
    """Average over rows of the share of the row's positives that the k labels with the highest scores hold.

    Rows without an observed positive are undefined.
    """
    places = find_places(Y_true, scores, checked_k(k), observed, missing)
    return averaged_at_k(
        ratio(expected_gain(places, np.ones(_within(k, places))), places.num_positives), places.num_short
    )


def ndcg_at_k(Y_true: Any, scores: Any, k: Any = 5, observed: Any = None, missing: Any = None) -> AveragedAtK:
    """Average over rows of DCG@k / its largest possible value, with DCG@k = sum_(i<=k) y_(i) / log2(i + 1).

    Rows without an observed positive are undefined (scikit-learn's ``ndcg_score`` counts them as 0).
    """
    places = find_places(Y_true, scores, checked_k(k), observed, missing)
    k = _within(k, places)
    gain = expected_gain(places, _discounts(k))
    return averaged_at_k(ratio(gain, _ideal_dcg(places, k)), places.num_short)


def _discounts(k: int) -> Floats:
    return 1 / np.log2(np.arange(2, k + 2))


def _ideal_dcg(places: Places, k: int) -> Floats:
    """Return the DCG@k of a ranking with all positives first, (n,)."""
    total = np.concatenate([[0.0], np.cumsum(_discounts(k))])
    return total[np.minimum(k, places.num_positives)]


def label_propensities(Y_train: Any, a: Any = 0.55, b: Any = 1.5, missing: Any = None) -> Floats:
    """Return the probability that a positive of each label was recorded, float (l,).

    The model of Jain, Prabhu and Varma (2016, section 4): p_l = 1 / (1 + C exp(-a log(N_l + b))) with
    C = (log N - 1) (b + 1)^a, N rows and N_l positives of label l in the training data. The authors fit
    a = 0.5, b = 0.4 for Wikipedia, a = 0.6, b = 2.6 for Amazon, and advise a = 0.55, b = 1.5 elsewhere.

    Raises
    ------
    ValueError
        For fewer than 3 rows (log N <= 1), or a, b that are not positive.
    """
    truth = as_truth(Y_train, None, missing)
    n, num_labels = truth.Y.shape
    if n < 3:
        raise ValueError(f"label_propensities needs at least 3 training rows, got {n}")
    if not (is_number(a) and is_number(b) and 0 < a < np.inf and 0 < b < np.inf):
        raise ValueError(f"a and b must be positive, got a={a!r}, b={b!r}")
    counts = np.bincount(truth.Y.indices, minlength=num_labels)
    scale = (np.log(n) - 1) * (b + 1) ** a
    return 1 / (1 + scale * (counts + b) ** -a)


class PropensityScored(NamedTuple):
    """A propensity-scored metric in both forms.

    Attributes
    ----------
    normalised : float
        Sum over rows of the raw metric over the sum of the largest value each row allows: the ratio of sums
        that extreme-classification tables report (there times 100). NaN where no row has a positive.
    raw : AveragedAtK
        The metric as defined, averaged over rows. It can pass 1, as each hit counts 1 / p_l.
    ideal : AveragedAtK
        The same of a ranking by y_l / p_l.
    """

    normalised: float
    raw: AveragedAtK
    ideal: AveragedAtK


def psp_at_k(
    Y_true: Any, scores: Any, propensities: Any, k: Any = 5, observed: Any = None, missing: Any = None
) -> PropensityScored:
    """Propensity-scored precision at k, PSP@k = (1 / k) sum_(i<=k) y_(i) / p_(i) (Jain et al. 2016).

    Rows without a positive count 0 in both sums. Where fewer than k labels are observed, their number
    replaces k.
    """
    places = find_places(Y_true, scores, checked_k(k), observed, missing)
    same_names(Y_true=Y_true, scores=scores, propensities=propensities)
    weights = _weights(propensities, places.num_labels)
    best = _ideal_places(Y_true, places, weights, observed, missing)
    return _scored(_precision(places, k, weights), _precision(best, k, weights), places.num_short)


def psndcg_at_k(
    Y_true: Any, scores: Any, propensities: Any, k: Any = 5, observed: Any = None, missing: Any = None
) -> PropensityScored:
    """Propensity-scored nDCG at k (Jain et al. 2016).

    The sum over i <= k of y_(i) / (p_(i) log2(i + 1)), over that of 1 / log2(i + 1) for i <= min(k, |y|).
    The denominator stops at the row's number of positives, as in the evaluation code of the extreme
    classification repository; Jain et al. (2016) sum to k. Rows without a positive are undefined.
    """
    places = find_places(Y_true, scores, checked_k(k), observed, missing)
    same_names(Y_true=Y_true, scores=scores, propensities=propensities)
    weights = _weights(propensities, places.num_labels)
    best = _ideal_places(Y_true, places, weights, observed, missing)
    k = _within(k, places)
    under = _ideal_dcg(places, k)
    raw, ideal = (ratio(expected_gain(p, _discounts(k), weights), under) for p in (places, best))
    return _scored(raw, ideal, places.num_short)


def _scored(raw: Floats, ideal: Floats, num_short: int) -> PropensityScored:
    share = float(ratio(np.nansum(raw), np.nansum(ideal)))
    return PropensityScored(share, averaged_at_k(raw, num_short), averaged_at_k(ideal, 0))


def _weights(propensities: Any, num_labels: int) -> Floats:
    """Return 1 / propensity of each label, or raise ValueError naming the labels at fault."""
    values = plain_array(propensities, "propensities")
    if values.shape != (num_labels,) or values.dtype.kind not in "biuf":
        got = f"{values.dtype} of shape {values.shape}"
        raise ValueError(f"propensities must have one number a label, ({num_labels},), got {got}")
    values = values.astype(np.float64)
    bad = np.flatnonzero(~((values > 0) & (values <= 1)))
    if bad.size:
        raise ValueError(
            f"propensities must lie in (0, 1]: label {bad[0]}: {values[bad[0]]} ({bad.size} such labels)"
        )
    return 1 / values


def _ideal_places(Y_true: Any, places: Places, weights: Floats, observed: Any, missing: Any) -> Places:
    """Return the places of the positives when each row is ranked by y / p: the rarest positives first."""
    truth = as_truth(Y_true, observed, missing)
    row = np.repeat(np.arange(truth.Y.shape[0]), np.diff(truth.Y.indptr))
    label = truth.Y.indices.astype(np.int64)
    order = np.lexsort((label, -weights[label], row))
    start = np.arange(len(row)) - truth.Y.indptr[row]
    return places._replace(row=row[order], label=label[order], start=start, end=start + 1)
