"""Statistics against published values, against brute force on tiny tables, and with unobserved cells."""

import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import LabelData, load
from labelzoo.data import statistics as stats
from labelzoo.data.describe import describe
from labelzoo.data.describe_text import describe_text

# Cardinality, density, distinct label sets, mean imbalance ratio and SCUMBLE to the digits published in the
# tables of mldr.datasets and Cometa (Charte, Rivera, Charte, del Jesus and Herrera 2018, Neurocomputing 289).
# Rows, labels and features of our copies are those of the published sets: nothing is excused.
TABLES = {
    "enron": (1702, 53, 3.378, 0.064, 753, 73.953, 0.303),
    "yeast": (2417, 14, 4.237, 0.303, 198, 7.197, 0.104),
    "bibtex": (7395, 159, 2.402, 0.015, 2856, 12.498, 0.094),
    "medical": (978, 45, 1.245, 0.028, 94, 89.501, 0.047),
    "corel5k": (5000, 374, 3.522, 0.009, 3175, 189.568, 0.394),
}

# The output of `medical$measures`, `genbase$measures` (mldr.datasets 0.4.2) and `summary(emotions)` (mldr
# 0.4.3) printed in the R reference pages: cardinality, density, label sets, sets that occur once, rows of the
# largest, MeanIR, SCUMBLE, CV of SCUMBLE.
R_OUTPUT = {
    "medical": (1.245399, 0.02767553, 94, 33, 155, 89.50136, 0.04705599, 3.043226),
    "genbase": (1.252266, 0.04638022, 32, 10, 170, 37.31458, 0.0287591, 3.614486),
    "emotions": (1.868465, 0.3114109, 27, 4, 81, 1.478068, 0.01095238, 1.26456),
}
EMOTIONS_RATIOS = [1.526012, 1.590361, 1.000000, 1.783784, 1.571429, 1.396825]  # IRLbl, same page

# Diversity and average imbalance ratio in the table of the KDIS multi-label data repository.
KDIS = {"birds": (0.206, 5.407), "cal500": (1.0, 20.578)}


@pytest.mark.parametrize("name", TABLES)
def test_published_tables(shared_data: Path, name: str) -> None:
    found = describe(load(shared_data / "npz" / f"{name}.npz"))
    keys = ("rows", "labels", "cardinality", "density", "label_sets", "mean_imbalance_ratio", "scumble")
    assert tuple(round(found[key], 3) for key in keys) == TABLES[name]


@pytest.mark.filterwarnings("ignore:.*train_index dropped from test_index")  # genbase overlaps in one row
@pytest.mark.parametrize("name", R_OUTPUT)
def test_output_of_the_r_packages(shared_data: Path, name: str) -> None:
    found = describe(load(shared_data / "npz" / f"{name}.npz"))
    keys = ("cardinality", "density", "label_sets", "label_sets_once", "largest_label_set_rows")
    keys += ("mean_imbalance_ratio", "scumble", "scumble_cv")
    assert [found[key] for key in keys] == pytest.approx(R_OUTPUT[name], rel=1e-6)
    if name == "emotions":
        assert sorted(found["imbalance_ratios"]) == pytest.approx(sorted(EMOTIONS_RATIOS), rel=1e-6)


@pytest.mark.parametrize("name", KDIS)
def test_diversity_of_the_kdis_table(shared_data: Path, name: str) -> None:
    found = describe(load(shared_data / "npz" / f"{name}.npz"))
    assert (round(found["label_set_diversity"], 3), round(found["mean_imbalance_ratio"], 3)) == KDIS[name]


def brute(Y: np.ndarray) -> dict:
    """Every statistic by loops over a dense table with NaN at unobserved cells."""
    rows = [row for row in Y if not np.isnan(row).all()]
    sets = Counter(tuple(np.flatnonzero(row == 1)) for row in rows)
    share = []
    for column in Y.T:
        seen = [v for v in column if not np.isnan(v)]
        share.append(sum(v == 1 for v in seen) / len(seen) if seen else 0.0)
    ratios = [max(share) / p if p > 0 else None for p in share]
    some = [r for r in ratios if r is not None]
    atkinson = []
    for row in rows:
        values = [ratios[i] for i in np.flatnonzero(row == 1)]
        atkinson.append(1 - np.prod(values) ** (1 / len(values)) / mean(values) if values else 0.0)
    positives = [int((column == 1).sum()) for column in Y.T]
    together = Counter(pair for row in rows for pair in combinations(np.flatnonzero(row == 1).tolist(), 2))
    top = sorted(together.items(), key=lambda item: (-item[1], item[0]))[:10]
    spread = stdev(atkinson) if len(atkinson) > 1 else 0.0
    return {
        "cardinality": sum(positives) / len(rows) if rows else None,
        "density": sum(positives) / np.count_nonzero(~np.isnan(Y)) if rows else None,
        "label_sets": len(sets),
        "label_sets_once": sum(t == 1 for t in sets.values()),
        "largest_label_set_rows": max(sets.values(), default=0),
        "label_sets_proportion": len(sets) / len(rows) if rows else None,
        "label_set_diversity": len(sets) / min(2 ** Y.shape[1], len(rows)) if rows else None,
        "imbalance_ratios": ratios,
        "mean_imbalance_ratio": mean(some) if some else None,
        "cvir": stdev(some) / mean(some) if len(some) > 1 else None,
        "labels_without_ratio": len(ratios) - len(some),
        "scumble": mean(atkinson) if rows else None,
        "scumble_cv": spread / mean(atkinson) if len(rows) > 1 and mean(atkinson) > 1e-15 else None,
        "positives_per_label": {"min": min(positives), "median": median(positives), "max": max(positives)},
        "never_positive": [f"label {i}" for i, c in enumerate(positives) if c == 0],
        "empty_rows": sum(not (row == 1).any() for row in rows),
        "missing_cells": int(np.isnan(Y).sum()),
        "unlabelled_rows": len(Y) - len(rows),
        "frequent_pairs": [{"labels": [f"label {i}", f"label {j}"], "rows": t} for (i, j), t in top],
    }


def random_table(seed: int) -> np.ndarray:
    """A tiny table whose density and share of unobserved cells vary with the seed."""
    rng = np.random.default_rng(seed)
    shape = (rng.integers(1, 9), rng.integers(1, 6))
    Y = (rng.random(shape) < rng.choice([0.1, 0.5, 0.9])).astype(float)
    Y[rng.random(shape) < rng.choice([0.0, 0.3, 0.8])] = np.nan
    Y[rng.random(shape[0]) < 0.15] = np.nan
    return Y


@pytest.mark.parametrize("seed", range(60))
def test_brute_force_on_tiny_tables(seed: int) -> None:
    Y = random_table(seed)
    found, expected = describe(LabelData(np.zeros((len(Y), 1)), Y)), brute(Y)
    for key, value in expected.items():
        if isinstance(value, float):
            assert found[key] == pytest.approx(value, rel=1e-9, abs=1e-12), (key, Y)
        elif key == "imbalance_ratios":
            assert [r is None for r in value] == [r is None for r in found[key]], (key, Y)
            assert [r for r in found[key] if r] == pytest.approx([r for r in value if r]), (key, Y)
        else:
            assert found[key] == value, (key, Y)
    json.dumps(found, allow_nan=False)


def test_unobserved_cells_are_not_negatives() -> None:
    """Hiding half of a label's negatives makes it more frequent, hiding rows changes nothing for the rest."""
    Y = np.array([[1, 1], [1, 0], [0, 1], [0, 0]], dtype=float)
    Y[[1, 3], 1] = np.nan
    found = describe(LabelData(np.zeros((4, 1)), Y))
    assert found["density"] == 4 / 6
    assert found["imbalance_ratios"] == [2.0, 1.0]  # 2 of 4 against 2 of 2
    assert found["always_positive"] == ["label 1"]
    more = np.vstack([Y, np.full((3, 2), np.nan)])
    other = describe(LabelData(np.zeros((7, 1)), more))
    assert other["unlabelled_rows"] == 3
    assert other["missing_cells"] == 8
    skip = ("rows", "unlabelled_rows", "missing_cells")
    assert {k: v for k, v in other.items() if k not in skip} == {
        k: v for k, v in found.items() if k not in skip
    }


def test_missing_feature_cells() -> None:
    X = np.array([[np.nan, 1.0], [0.0, np.nan], [1.0, 1.0]])
    for table in (X, sparse.csr_array(X)):
        data = LabelData(table, np.eye(3), allow_missing_features=True)
        assert describe(data)["missing_feature_cells"] == 2
    assert describe(LabelData(np.ones((3, 1)), np.eye(3)))["missing_feature_cells"] == 0


def test_pairs_in_blocks_and_beyond_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 rows with the same pair overflow int8; blocks of any size give the same pairs."""
    rng = np.random.default_rng(3)
    Y = (rng.random((300, 40)) < 0.2).astype(np.int8)
    Y[:, :2] = 1
    csr = sparse.csr_array(Y)
    whole = stats.frequent_pairs(csr)
    assert whole is not None
    assert whole[0] == (0, 1, 300)
    for block in (1, 700, 5000):
        monkeypatch.setattr(stats, "PAIR_BLOCK", block)
        assert stats.frequent_pairs(csr) == whole


def test_pairs_that_cost_too_much_are_left_out() -> None:
    csr = sparse.csr_array(np.ones((3, 4), dtype=np.int8))
    assert stats.pair_products(csr) == 48
    assert stats.frequent_pairs(csr, limit=47) is None
    assert stats.frequent_pairs(csr, limit=48) is not None
    assert "more than 200,000,000 products" in describe_text({"frequent_pairs": None})


def test_diversity_of_many_labels() -> None:
    assert stats.diversity(3, 4, 2) == 0.75
    assert stats.diversity(2, 100, 1) == 1.0
    assert stats.diversity(5, 10, 100_000) == 0.5
    assert stats.diversity(0, 0, 3) is None


def test_text_shows_groups_names_and_reasons() -> None:
    Y = np.zeros((2, 7))
    data = LabelData(np.ones((2, 1)), Y, label_names=[f"n{i}" for i in range(6)] + ["two\nlines"])
    text = describe_text({**describe(data), "label_names": list(data.label_names)})
    lines = text.split("\n")
    for title in ("Size", "Labels", "Label sets", "Most frequent pairs"):
        assert title in lines
    assert "  names                         7: n0, n1, n2, n3, n4 and 2 more" in lines
    assert "  mean imbalance ratio          undefined: no label has a positive" in lines
    assert "  CV of SCUMBLE                 undefined: SCUMBLE is 0 or rests on fewer than two rows" in lines
    assert "  none: no row has two positives" in lines
    assert "None" not in text
    unseen = describe(LabelData(np.ones((2, 1)), np.full((2, 2), np.nan)))
    assert describe_text(unseen).count("undefined") == 8
    assert describe_text({"rows": 3}) == "Size\n  rows                          3"
    assert describe_text({}) == ""
