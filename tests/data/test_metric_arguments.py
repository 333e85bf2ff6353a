"""Arguments of metrics that are no numbers, or too large; ties at a threshold."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from labelzoo.data import metrics

NAN = float("nan")
Y = np.eye(4)[[0, 1, 2, 3, 0]]
P = np.random.default_rng(0).random((5, 4))

REFUSED: list[tuple[str, Callable[[], Any]]] = [
    *[("threshold must be one number, or one a label", lambda t=t: metrics.evaluate(Y, P, threshold=t))
      for t in (NAN, "0.5", [0.1, 0.2], None, True)],
    *[("bins must be ", lambda b=b: metrics.reliability(Y, P, bins=b))
      for b in (2.5, True, "3", NAN, 0, 10**12)],
    *[("ks? must be ", lambda k=k: metrics.evaluate(Y, P, ks=k)) for k in (3, "3", [1, 2.5], [0], None)],
    *[("min_positives must be ", lambda m=m: metrics.tune_thresholds(Y, P, min_positives=m))
      for m in (NAN, "1", 1.5, True, -1)],
    *[("zero_division must be NaN or a number", lambda z=z: metrics.f_score(Y, Y, zero_division=z))
      for z in ("warn", None, 2, True)],
    *[("beta must be ", lambda b=b: metrics.f_score(Y, Y, beta=b)) for b in (1e200, "1", 0, NAN, 10**400)],
    ("TopK scores must be numbers", lambda: metrics.TopK([[1]], [["a"]], 3)),
    ("TopK labels is no array of one shape", lambda: metrics.TopK([[1], [1, 2]], [[1.0]], 3)),
    ("k must be an integer", lambda: metrics.precision_at_k(Y, P, 2.0)),
    ("TopK has labels outside 0..2: 18446744073709551615",
     lambda: metrics.TopK(np.array([[2**64 - 1]], dtype=np.uint64), [[1.0]], 3)),
    ("clip must lie", lambda: metrics.log_score(Y, P, clip="0.1")),
    ("empty must lie", lambda: metrics.decide(P[None], "f1_example", empty="1")),
    ("cost must be two numbers", lambda: metrics.decide(P[None], "cost", cost=("a", "b"))),
    ("a and b must be positive", lambda: metrics.label_propensities(Y, a="1")),
    ("propensities must have one number a label", lambda: metrics.psp_at_k(Y, P, list("abcd"))),
    (r"use draws\[None\] for a single table", lambda: metrics.decide(P)),
    ("'f1_example' is the F1 of a row, 'f1_macro' that of a label", lambda: metrics.decide(P[None], "f1")),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_bad_arguments_are_one_clear_error(case: int) -> None:
    message, attempt = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        attempt()


def test_k_beyond_the_labels_costs_nothing() -> None:
    p = np.full(4, 0.5)
    for k in (4, 10**9, 10**15):
        assert metrics.precision_at_k(Y, P, k).value == 0.25
        assert metrics.recall_at_k(Y, P, k).value == 1.0
        assert metrics.ndcg_at_k(Y, P, k).value == metrics.ndcg_at_k(Y, P, 4).value
        assert metrics.psp_at_k(Y, P, p, k).raw.value == metrics.psp_at_k(Y, P, p, 4).raw.value
        assert metrics.psndcg_at_k(Y, P, p, k).normalised == metrics.psndcg_at_k(Y, P, p, 4).normalised


def test_beta_at_the_edges_is_recall_or_precision() -> None:
    H = (P > 0.5).astype(int)
    for beta, other in ((1e100, metrics.recall), (1e-200, metrics.precision)):
        assert metrics.f_score(Y, H, "micro", beta).value == pytest.approx(
            other(Y, H, "micro").value, rel=1e-9
        )


def test_a_tie_with_the_threshold_is_negative_everywhere() -> None:
    truth, probs = [[1, 0], [0, 1]], [[0.5, 0.2], [0.2, 0.5]]
    assert metrics.apply_thresholds(probs, 0.5).nnz == 0
    assert metrics.evaluate(truth, probs)["f1_micro"] == 0.0
    assert metrics.evaluate(truth, probs, threshold=0.49)["f1_micro"] == 1.0
    assert metrics.decide(np.array([probs]), "hamming").labels.nnz == 0


@pytest.mark.parametrize("metric", ["f1", "accuracy", "balanced_accuracy"])
def test_tuned_thresholds_decide_as_they_were_tuned(metric: str) -> None:
    rng = np.random.default_rng(3)
    truth, probs = (
        rng.integers(0, 2, (30, 6)),
        rng.integers(0, 4, (30, 6)) / 3,
    )  # many ties, 0 and 1 among them
    truth[:, 0] = 1  # every row is best chosen
    found = metrics.tune_thresholds(truth, probs, metric, min_positives=1)
    decided = metrics.apply_thresholds(probs, found).toarray()
    for label in range(6):
        alone = metrics.tune_thresholds(truth[:, [label]], probs[:, [label]], metric, min_positives=1)
        assert alone.thresholds[0] == found.thresholds[label]
        y, h = truth[:, label], decided[:, label]
        value = {
            "f1": lambda y=y, h=h: 2 * (y & h).sum() / (y.sum() + h.sum()),
            "accuracy": lambda y=y, h=h: (y == h).mean(),
            "balanced_accuracy": lambda y=y, h=h: (h[y == 1].mean() + (1 - h[y == 0]).mean()) / 2,
        }[metric]
        if np.isnan(found.values[label]):
            continue
        assert value() == pytest.approx(found.values[label])
    evaluated = metrics.evaluate(truth, probs, threshold=found)
    assert evaluated["f1_macro"] == pytest.approx(metrics.f_score(truth, decided).value)
