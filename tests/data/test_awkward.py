"""Real ARFF files that break naive parsers: every figure of their published right parse."""

import json
import os
from pathlib import Path
from typing import Any

import arff as liac
import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.data.arff import read_table
from labelzoo.data.errors import DataError
from labelzoo.data.mulan import read_arff

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("LABELZOO_DATA", ROOT / "../shared/data")) / "awkward"
EXPECTED = FOLDER / "expected.json"
pytestmark = pytest.mark.skipif(not EXPECTED.is_file(), reason=f"no real data at {FOLDER}: set LABELZOO_DATA")
ENTRIES = json.loads(EXPECTED.read_text("utf-8")) if EXPECTED.is_file() else []
LABELLED = [entry for entry in ENTRIES if "N" in entry]
BY_FILE = {entry["file"]: entry for entry in ENTRIES}


def read(entry: dict[str, Any], **options: Any) -> LabelData:
    """Read one of the files with the XML that belongs to it."""
    xml = FOLDER / entry["xml"] if entry.get("xml") else None
    return read_arff(FOLDER / entry["file"], xml=xml, **options)


def found(entry: dict[str, Any], data: LabelData) -> dict[str, Any]:
    """Compute each figure of ``expected.json`` from our parse."""
    table = read_table(FOLDER / entry["file"])
    names = [attribute.name for attribute in table.attributes]
    columns = [names.index(label) for label in data.label_names]
    rows = [[data.label_names[j] for j in data.Y[[i]].indices] for i in (0, data.num_rows - 1)]
    summary = data.summary()
    unlabelled = data.num_missing_cells == data.num_rows * data.num_labels
    x_nnz = data.X.nnz if sparse.issparse(data.X) else np.count_nonzero(data.X)
    assert sorted(columns) == list(range(min(columns), max(columns) + 1))
    return {
        "sparse_rows": table.num_sparse_rows > 0,
        "missing_cells": table.num_missing_cells,
        "attributes": len(table.attributes),
        "relation": table.relation,
        "N": data.num_rows,
        "D": data.num_features,
        "L": data.num_labels,
        "label_columns": f"{min(columns)}..{max(columns)}",
        "xml_order_is_column_order": columns == sorted(columns),
        "first_labels": list(data.label_names[:3]),
        "last_label": data.label_names[-1],
        "first_feature": data.feature_names[0],
        "last_feature": data.feature_names[-1],
        "label_missing_cells": data.num_missing_cells,
        "total_positive": data.num_positives,
        "empty_label_rows": None if unlabelled else int((data.Y.sum(axis=1) == 0).sum()),
        "row0_labels": None if unlabelled else rows[0],
        "row_last_labels": None if unlabelled else rows[1],
        "unused_labels": None if unlabelled else len(summary["never_positive"]),
        "x_nnz": int(x_nnz),
    }


@pytest.mark.parametrize("entry", LABELLED, ids=lambda entry: entry["file"])
def test_every_figure(entry: dict[str, Any]) -> None:
    ours = found(entry, read(entry, encode="none"))
    keys = set(entry) - {"file", "xml", "note"}
    assert keys <= set(ours)
    wanted = {key: entry[key] for key in keys}
    for key in ("row0_labels", "row_last_labels"):  # a set of labels: the file gives them in column order
        if wanted.get(key) is not None:
            wanted[key], ours[key] = sorted(wanted[key]), sorted(ours[key])
    if "relation" in wanted:  # the list of figures cuts the longest name
        ours["relation"] = ours["relation"][: len(wanted["relation"])]
    assert {key: ours[key] for key in keys} == wanted


def test_mixed_rows_without_labels() -> None:
    entry = BY_FILE["FilterTest.arff"]
    table = read_table(FOLDER / "FilterTest.arff")
    assert (table.num_missing_cells, len(table.attributes)) == (entry["missing_cells"], entry["attributes"])
    assert table.relation == entry["relation"]
    assert (table.codes.shape, table.num_sparse_rows) == ((21, 7), 2)
    kinds = [attribute.kind for attribute in table.attributes]
    assert kinds == ["string", "nominal", "numeric", "string", "nominal", "numeric", "date"]
    codes = table.codes.toarray()
    np.testing.assert_array_equal(codes[0, [1, 2, 4, 5]], [1, 1, 0, -2.3])
    np.testing.assert_array_equal(codes[19, [1, 2, 4, 5]], [0, 4.3, 3, 0])
    texts = table.strings[0]
    assert [texts[int(code) - 1] for code in codes[[0, 5, 19, 20], 0]] == ["humpty", "wall", "wall", "humpty"]
    assert [int(line) for line in table.lines[[0, 20]]] == [10, 30]
    with pytest.raises(
        DataError, match=r"FilterTest\.arff: has no label specification: give labels=n"
    ) as error:
        read_arff(FOLDER / "FilterTest.arff")
    assert all(way in str(error.value) for way in ("labels=-n", "names", "XML", "-C n"))
    with pytest.raises(DataError, match=r"not text: 'StringAtt1' \(string\); .*'DateAtt1' \(date\).*drop=\["):
        read_arff(FOLDER / "FilterTest.arff", labels=["NominalAtt1"])


@pytest.mark.parametrize("name", ["enron-test.arff", "genbase-test.arff.gz", "foodtruck.arff"])
def test_xml_beside_the_file_is_found(name: str) -> None:
    entry = BY_FILE[name]
    drop = ["protein"] if name.startswith("genbase") else []
    assert read_arff(FOLDER / name, drop=drop).hash() == read(entry, drop=drop).hash()


def test_text_of_unknown_classes_is_unobserved_not_negative() -> None:
    data = read(BY_FILE["Music_missing_classes.arff"])
    assert data.unlabelled_rows.all()
    assert data.num_positives == 0


def test_words_are_one_hot() -> None:
    data = read(BY_FILE["foodtruck.arff"])
    names = [name for name in data.feature_names if "=" in name]
    assert len(names) == 5 + 5 + 2 + 3
    assert data.num_features == 21 - 4 + 15
    assert "motivation=by_chance" in names and "marital.status=single" in names
    columns = data.X[:, [i for i, name in enumerate(data.feature_names) if name.startswith("time=")]]
    np.testing.assert_array_equal(columns.sum(axis=1), 1)


def test_identifier_dropped_and_yes_no_by_meaning() -> None:
    data = read(BY_FILE["genbase-test.arff.gz"], drop=["protein"])
    assert data.num_features == 2 * 1185
    yes = [i for i, name in enumerate(data.feature_names) if name.endswith("=YES")]
    no = [i for i, name in enumerate(data.feature_names) if name.endswith("=NO")]
    X = data.X.toarray() if sparse.issparse(data.X) else data.X
    assert X[:, yes].sum() < 0.01 * X[:, no].sum()
    raw = read(BY_FILE["genbase-test.arff.gz"], drop="protein", encode="none")
    assert raw.num_features == 1185
    np.testing.assert_array_equal(raw.X.toarray() if sparse.issparse(raw.X) else raw.X, X[:, no])


def test_dense_rows_of_zeros_and_wide_tables_stay_sparse() -> None:
    for name in ("eukaryote-go-test.arff.gz", "stackex-coffee.arff.gz", "enron-test.arff"):
        assert sparse.issparse(read(BY_FILE[name]).X)
    for name in ("foodtruck.arff", "weather-sparse.arff", "birds-test.arff.gz"):
        assert isinstance(read(BY_FILE[name]).X, np.ndarray)


@pytest.mark.parametrize(
    "name", ["Music-test.arff", "weather-sparse.arff", "enron-test.arff", "foodtruck.arff"]
)
def test_codes_agree_with_liac_arff(name: str) -> None:
    theirs = liac.loads((FOLDER / name).read_text("utf-8"), encode_nominal=True)
    ours = read_table(FOLDER / name)
    assert [attribute.name for attribute in ours.attributes] == [name for name, _ in theirs["attributes"]]
    np.testing.assert_array_equal(ours.codes.toarray(), np.array(theirs["data"], dtype=np.float64))
