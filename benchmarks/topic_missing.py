"""Table 3 of the topic model's experiments: bibtex with a share of the training labels observed.

Used by ``python benchmarks/topic_tables.py --table 3``. Settings are tuned by micro AUC on the observed cells
of the validation rows under the first mask, and kept for the other masks; no method sees a hidden cell.
"""

from typing import Any

import numpy as np
import topic_protocol as protocol
import topic_scores
from scipy.stats import t as student
from topic_baselines import Method, logistic, settings

from labelzoo.data import LabelData
from labelzoo.data.missing import missing_from_observed

Array = Any

PUBLISHED = {"BCS": 0.7871, "LEML": 0.8332, "BMLPL": 0.8420}
COLUMNS = ("macro_auc", "micro_auc", "per_example_auc", "p_at_1", "log_score")
PAIRS = (
    ("topics mask-exact, K = L", "topics positives-only, K = L"),
    ("topics mask-exact, K = .4 L", "topics positives-only, K = .4 L"),
    ("topics mask-exact, K = L", "logistic regression, observed rows"),
)


def methods() -> tuple[Method, ...]:
    """Return the topic model and logistic regression, each with gaps left out and with gaps as zeros."""
    by_c = settings("row", C=(10, 30)) + settings("tfidf", C=(3, 10, 30))
    found = []
    for words, only in (("mask-exact", False), ("positives-only", True)):
        for share, name in ((1.0, "L"), (0.4, ".4 L")):
            forms = {"row": (3, 5), "tfidf": (2, 3, 5, 8)}
            options = {"share": share, "engine": "vb_em", "positives_only": only}
            found.append(protocol.em_method(f"topics {words}, K = {name}", forms, **options))
    for words, only in (("observed rows", False), ("positives-only", True)):
        grid = tuple(one | {"positives_only": only} for one in by_c)
        found.append(Method(f"logistic regression, {words}", grid, logistic))
    return tuple(found)


def masked(data: LabelData, share: float, seed: int) -> LabelData:
    """Return `data` where each label of each row is observed with probability `share`."""
    seen = np.random.default_rng([seed, 20]).random((data.num_rows, data.num_labels)) < share
    Y = data.Y.toarray()
    Y[~seen] = 0
    return LabelData(
        data.X, Y, missing=missing_from_observed(seen), feature_names=data.feature_names,
        label_names=data.label_names, example_names=data.example_names,
    )  # fmt: skip


def run(data: LabelData, masks: int, share: float, seed: int, cells: protocol.Cells) -> dict[str, Any]:
    """Tune under the first mask, then fit and score under every mask."""
    train, test = protocol.train_and_test(data, seed)
    first = protocol.parts_of(masked(train, share, seed), test, seed)
    chosen: dict[str, Any] = {}
    values: dict[str, list[dict[str, float]]] = {}
    for method in methods():
        tuned = protocol.tune(method, first, seed, cells)
        chosen[method.name] = method.grid[int(np.argmax([one["micro_auc"] for one in tuned]))]
    for mask in range(masks):
        part = first._replace(train=masked(train, share, seed + mask))
        for method in methods():
            found = one_mask(method, chosen[method.name], part, seed + mask, cells)
            values.setdefault(method.name, []).append(found)
            protocol.note(f"mask {mask}, {method.name}: micro AUC {found['micro_auc']:.4f}")
    return {"share": share, "masks": masks, "chosen": chosen, "values": values, "published": PUBLISHED}


def one_mask(
    method: Method, setting: dict[str, Any], parts: protocol.Parts, seed: int, cells: protocol.Cells
) -> dict[str, float]:
    """Return the test scores under one mask, and seconds of fitting."""

    def compute() -> dict[str, float]:
        predicted = method.predict(parts.train, [parts.test], setting, seed)
        found = topic_scores.all_scores(parts.test, predicted.scores[0], predicted.probs[0], None)
        return {name: one.value for name, one in found.items()} | {"seconds": predicted.seconds}

    plan = protocol.plan_of(method, setting, parts, seed, "mask")
    return dict(cells.get(f"{method.name}-{seed}-mask", plan, compute))


def over_masks(gap: Array) -> tuple[float, float, float]:
    """Return mean, and the 95 % interval of Student's t over masks."""
    mean = float(np.mean(gap))
    if len(gap) < 2:
        return mean, float("-inf"), float("inf")
    half = float(student.isf(0.025, len(gap) - 1) * np.std(gap, ddof=1) / np.sqrt(len(gap)))
    return mean, mean - half, mean + half


def as_text(found: dict[str, Any]) -> str:
    """Return the table, the paired differences and the published numbers."""
    lines = []
    for name, rows in found["values"].items():
        numbers = []
        for column in COLUMNS:
            each = np.array([one[column] for one in rows])
            error = each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else float("nan")
            digits = 3 if column == "log_score" else 4
            numbers.append(f"{each.mean():.{digits}f} ± {error:.{digits}f}")
        seconds = np.mean([one["seconds"] for one in rows])
        setting = ", ".join(f"{k} {v}" for k, v in found["chosen"][name].items() if k in SHOWN)
        lines.append([name, *numbers, f"{seconds:.1f}", setting])
    header = ["method", *(topic_scores.TITLES[c] for c in COLUMNS), "s", "chosen"]
    text = [topic_scores.markdown(header, lines), ""]
    gaps = []
    for one, other in PAIRS:
        numbers = []
        for column in COLUMNS:
            gap = [a[column] - b[column] for a, b in both(found["values"], one, other)]
            mean, low, high = over_masks(np.array(gap))
            numbers.append(f"{mean:+.4f} ({low:+.4f} to {high:+.4f})")
        gaps.append([f"{one} minus {other}", *numbers])
    text += [topic_scores.markdown(["paired difference", *header[1:-2]], gaps), ""]
    published = ", ".join(f"{name} {value:.4f}" for name, value in found["published"].items())
    text.append(
        f"± is the standard error over {found['masks']} masks of one split; intervals are 95 % of "
        f"Student's t over masks. Published AUC, {found['share']:.0%} of labels observed, K = .4 L: "
        f"{published}. The paper does not define its AUC and its mask is not published; no match is claimed."
    )
    return "\n".join(text)


SHOWN = ("form", "prior_scale", "C")


def both(values: dict[str, Any], one: str, other: str) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return the masks of two methods side by side."""
    return list(zip(values[one], values[other], strict=True))
