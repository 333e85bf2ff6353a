"""The summary of a data set as text: grouped, aligned, with the reason of every value that is undefined."""

from collections.abc import Mapping, Sequence
from typing import Any

from labelzoo.data.statistics import PAIR_LIMIT

NAMES_SHOWN = 5
WIDTH = 28

SIZES = (
    ("rows", "rows"),
    ("features", "features"),
    ("labels", "labels"),
    ("positives", "positive cells"),
    ("empty_rows", "rows without a positive"),
    ("missing_cells", "unobserved label cells"),
    ("unlabelled_rows", "rows without any label seen"),
    ("missing_feature_cells", "missing feature cells"),
)
RATES = (
    ("cardinality", "cardinality"),
    ("density", "density"),
    ("mean_imbalance_ratio", "mean imbalance ratio"),
    ("cvir", "CV of imbalance ratios"),
    ("labels_without_ratio", "labels without a ratio"),
    ("scumble", "SCUMBLE"),
    ("scumble_cv", "CV of SCUMBLE"),
)
SETS = (
    ("label_sets", "distinct"),
    ("label_sets_proportion", "distinct / rows"),
    ("label_set_diversity", "distinct / most possible"),
    ("label_sets_once", "occur once"),
    ("largest_label_set_rows", "rows of the most frequent"),
)
REASONS = {
    "cardinality": "no row has an observed label",
    "density": "no cell is observed",
    "mean_imbalance_ratio": "no label has a positive",
    "cvir": "fewer than two labels have a positive",
    "scumble": "no row has an observed label",
    "scumble_cv": "SCUMBLE is 0 or rests on fewer than two rows",
    "label_sets_proportion": "no row has an observed label",
    "label_set_diversity": "no row has an observed label",
    "frequent_pairs": f"counting pairs would take more than {PAIR_LIMIT:,} products",
}


def describe_text(summary: Mapping[str, Any]) -> str:
    """Return the dict of `labelzoo.data.describe.describe` as readable lines without a final newline.

    Parameters
    ----------
    summary : mapping
        From `describe`; a key ``label_names``, where given, shows the first labels. Keys that are absent are
        left out, values that are None are shown with the reason.
    """
    groups = [
        ("Size", _values(summary, SIZES)),
        ("Labels", [*_names(summary), *_positives(summary), *_values(summary, RATES)]),
        ("Label sets", _values(summary, SETS)),
        ("Most frequent pairs", _pairs(summary)),
    ]
    return "\n\n".join("\n".join([title, *lines]) for title, lines in groups if lines)


def _line(label: str, value: str) -> str:
    return f"  {label:<{WIDTH}}  {value}".rstrip()


def _number(value: Any, key: str) -> str:
    """Format one value; None is explained."""
    if value is None:
        return f"undefined: {REASONS.get(key, 'not computed')}"
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def _values(summary: Mapping[str, Any], keys: Sequence[tuple[str, str]]) -> list[str]:
    return [_line(label, _number(summary[key], key)) for key, label in keys if key in summary]


def _names(summary: Mapping[str, Any]) -> list[str]:
    """Lines of the label names, of the labels never and always positive."""
    kinds = (
        ("label_names", "names"),
        ("never_positive", "never positive"),
        ("always_positive", "always positive"),
    )
    return [_line(label, _listed(summary[key])) for key, label in kinds if key in summary]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(" ".join(str(name).split()) for name in names[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return f"{len(names):,}: {shown}{more}" if names else "none"


def _positives(summary: Mapping[str, Any]) -> list[str]:
    if "positives_per_label" not in summary:
        return []
    found = summary["positives_per_label"]
    text = f"min {found['min']:,}, median {found['median']:.4g}, max {found['max']:,}"
    return [_line("positives a label", text)]


def _pairs(summary: Mapping[str, Any]) -> list[str]:
    if "frequent_pairs" not in summary:
        return []
    pairs = summary["frequent_pairs"]
    if pairs is None:
        return [f"  {_number(None, 'frequent_pairs')}"]
    if not pairs:
        return ["  none: no row has two positives"]
    texts = [" + ".join(" ".join(str(n).split()) for n in pair["labels"]) for pair in pairs]
    width = max(WIDTH, *(len(text) for text in texts))
    return [f"  {text:<{width}}  {pair['rows']:,}" for text, pair in zip(texts, pairs, strict=True)]
