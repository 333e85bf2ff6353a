"""Mulan and MEKA files as LabelData: which columns are labels, what values mean, refusals, and writing."""

import time
from pathlib import Path
from typing import Any

import arff as liac
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.data.errors import DataError
from labelzoo.data.mulan import read_arff
from labelzoo.data.mulan_labels import companion_xml, read_label_xml
from labelzoo.data.mulan_write import write_arff

NAN = np.nan
BODY = """
@attribute f numeric
@attribute 'p q' {0,1}
@attribute r {0,1}
@attribute s {0,1}
@data
1.5,1,0,0
2.5,0,?,1
"""


def put(folder: Path, text: str, name: str = "m.arff") -> Path:
    """Write a file."""
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def put_xml(folder: Path, *names: str, name: str = "m.xml") -> Path:
    """Write a label list."""
    labels = "".join(f'<label name="{label}"></label>\n' for label in names)
    return put(folder, f'<labels xmlns="http://mulan.sourceforge.net/labels">\n{labels}</labels>', name)


def values(data: LabelData) -> Any:
    """Return the labels as a dense table with NaN where unobserved."""
    return data.to_frame()[list(data.label_names)].to_numpy()


def features(data: LabelData) -> Any:
    """Return dense features."""
    return data.X.toarray() if sparse.issparse(data.X) else data.X


def labelled(folder: Path, declaration: str, rows: str) -> Any:
    """Return the values of the one label declared, below a numeric feature."""
    text = f"@relation r\n@attribute f numeric\n@attribute l {declaration}\n@data\n{rows}\n"
    return values(read_arff(put(folder, text), labels=-1)).ravel().tolist()


def with_feature(folder: Path, declaration: str, rows: str, **options: Any) -> LabelData:
    """Return data with the one feature declared, above a label."""
    text = f"@relation r\n@attribute f {declaration}\n@attribute l {{0,1}}\n@data\n{rows}\n"
    return read_arff(put(folder, text), labels=["l"], **options)


# Which columns are labels


def test_sign_of_the_option(tmp_path: Path) -> None:
    last = read_arff(put(tmp_path, "@relation 'M: -C -2'" + BODY))
    assert (last.label_names, last.feature_names) == (("r", "s"), ("f", "p q"))
    text = BODY.replace("@attribute f numeric\n", "", 1).replace("@data", "@attribute f numeric\n@data")
    first = read_arff(
        put(
            tmp_path,
            "@relation 'M: -C 2'" + text.replace("1.5,1,0,0", "1,0,0,1.5").replace("2.5,0,?,1", "0,?,1,2.5"),
        )
    )
    assert (first.label_names, first.feature_names) == (("p q", "r"), ("s", "f"))
    np.testing.assert_array_equal(values(first), [[1, 0], [0, NAN]])


@pytest.mark.parametrize(
    "relation",
    ["M: -C -2", "'M:-x 3 -C -2 -split-number 4'", "'M: -C -2-weka.filters.unsupervised.Remove-R1'"],
)
def test_other_options_around(tmp_path: Path, relation: str) -> None:
    assert read_arff(put(tmp_path, f"@relation {relation}" + BODY)).label_names == ("r", "s")


@pytest.mark.parametrize("relation", ["'M -c -2'", "'M-C -2'", "'M: -C -2.5'", "'M: -C x'", "M"])
def test_what_is_no_option(tmp_path: Path, relation: str) -> None:
    with pytest.raises(DataError, match="has no label specification: give labels=n"):
        read_arff(put(tmp_path, f"@relation {relation}" + BODY))


@pytest.mark.parametrize("count", ["5", "-5", "0", "99999999999", "9" * 5000])
def test_counts_beyond_the_columns(tmp_path: Path, count: str) -> None:
    with pytest.raises(DataError, match=r"-C -?\d+ in the relation: expected 1 to 4 labels"):
        read_arff(put(tmp_path, f"@relation 'M: -C {count}'" + BODY))


def test_xml_wins_over_the_option_and_gives_the_order(tmp_path: Path) -> None:
    path = put(tmp_path, "@relation 'M: -C -1'" + BODY)
    put_xml(tmp_path, "s", "p q")
    data = read_arff(path, allow_missing_features=True)
    assert (data.label_names, data.feature_names) == (("s", "p q"), ("f", "r"))


def test_xml_order_maps_by_name(tmp_path: Path) -> None:
    path = put(tmp_path, "@relation M" + BODY)
    put_xml(tmp_path, "s", "r", "p q")
    data = read_arff(path)
    assert data.label_names == ("s", "r", "p q")
    np.testing.assert_array_equal(values(data), [[0, 0, 1], [1, NAN, 0]])
    assert read_arff(path, labels=-3).label_names == ("p q", "r", "s")


def test_xml_may_name_columns_between_features(tmp_path: Path) -> None:
    path = put(tmp_path, "@relation M" + BODY)
    put_xml(tmp_path, "p q")
    data = read_arff(path, allow_missing_features=True)
    assert (data.feature_names, data.label_names) == (("f", "r", "s"), ("p q",))
    np.testing.assert_array_equal(data.X, [[1.5, 0, 0], [2.5, NAN, 1]])


def test_false_ignores_the_xml(tmp_path: Path) -> None:
    path = put(tmp_path, "@relation 'M: -C -2'" + BODY)
    put_xml(tmp_path, "s", "r", "p q")
    assert read_arff(path, xml=False).label_names == ("r", "s")


@pytest.mark.parametrize(
    ("arff", "xml", "found"),
    [
        ("n.arff", "n.xml", True),
        ("n-train.arff", "n.xml", True),
        ("n-test.arff", "n-test.xml", True),
        ("n-other.arff", "n.xml", False),
        ("n.arff", "other.xml", False),
        ("n.v2.arff", "n.v2.xml", True),
    ],
)
def test_xml_beside_by_stem_only(tmp_path: Path, arff: str, xml: str, found: bool) -> None:
    path = put(tmp_path, "@relation 'M: -C -1'" + BODY, arff)
    put_xml(tmp_path, "s", "r", name=xml)
    labels = read_arff(path, allow_missing_features=True).label_names
    assert labels == (("s", "r") if found else ("s",))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(-2, ("r", "s")), (np.int64(-2), ("r", "s")), (["s", "r"], ("s", "r")), (("r",), ("r",))],
)
def test_labels_argument_overrides(tmp_path: Path, labels: Any, expected: tuple[str, ...]) -> None:
    path = put(tmp_path, "@relation 'M: -C -3'" + BODY)
    put_xml(tmp_path, "nonsense")
    assert read_arff(path, labels=labels).label_names == expected
    other = put_xml(tmp_path, "r", "p q", name="list.xml")
    assert read_arff(path, labels=other).label_names == ("r", "p q")


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (5, "labels=5: expected 1 to 4 labels"),
        (0, "labels=0: expected 1 to 4 labels"),
        (True, "labels=True: give labels=n"),
        (1.5, "labels=1.5: give labels=n"),
        ([], r"labels=\[\]: give labels=n"),
        ([1, 2], r"labels=\[1, 2\]: give labels=n"),
        ("r", r"labels='r' is not an XML path: give one label as a list, \['r'\]"),
        (["r", "z", "y"], "has no attribute for labels of labels: 'z'; 'y'"),
        (["r", "r"], "labels lists labels twice: 'r'"),
        ("absent.xml", "absent.xml: cannot be read: No such file"),
    ],
)
def test_bad_labels_argument(tmp_path: Path, labels: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read_arff(put(tmp_path, "@relation M" + BODY), labels=labels)


def test_xml_names_without_a_column(tmp_path: Path) -> None:
    path = put(tmp_path, "@relation M" + BODY)
    put_xml(tmp_path, "s", "ghost", "phantom")
    with pytest.raises(DataError, match=r"has no attribute for labels of .*m\.xml: 'ghost'; 'phantom'"):
        read_arff(path)


BAD_XML = [
    ("<labels>\n<label name='b'>", 2, "is not well-formed XML"),
    ("<labels>\n<label/></labels>", 2, "<label> has no attribute 'name'"),
    ("<labels>\n<label name='b'/>\n<label name='b'/></labels>", 3, "'b' is listed twice, first in line 2"),
    ("<data/>", 1, "its root is <data>, not <labels>"),
    ("", 1, "is not well-formed XML"),
    ("<labels/>", None, "lists no label"),
    ("<?xml version='1.0' encoding='foo'?><labels/>", None, "cannot be read as XML"),
    (
        '<!DOCTYPE l [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>\n<labels><label name="&b;"/></labels>',
        1,
        "document type",
    ),
    ("\n<!DOCTYPE l SYSTEM 'file:///etc/passwd'>\n<labels/>", 2, "document type"),
    ("<labels><label name='&ghost;'/></labels>", 1, "undefined entity"),
]


@pytest.mark.parametrize(("text", "line", "reason"), BAD_XML)
def test_bad_xml(tmp_path: Path, text: str, line: int | None, reason: str) -> None:
    with pytest.raises(DataError) as error:
        read_label_xml(put(tmp_path, text, "bad.xml"))
    assert (error.value.line, reason in str(error.value)) == (line, True), str(error.value)
    assert str(error.value).startswith(str(tmp_path / "bad.xml"))


def test_nested_labels_in_document_order_and_other_encodings(tmp_path: Path) -> None:
    nested = (
        "<labels><label name='b'><label name='a'><label name='d'/></label></label><label name='c'/></labels>"
    )
    assert read_label_xml(put(tmp_path, nested, "h.xml")) == ["b", "a", "d", "c"]
    old = "<?xml version='1.0' encoding='iso-8859-1'?><labels><label name='café'/></labels>"
    (tmp_path / "l.xml").write_bytes(old.encode("latin-1"))
    assert read_label_xml(tmp_path / "l.xml") == ["café"]


# What label values mean


@pytest.mark.parametrize(
    ("declaration", "rows", "expected"),
    [
        ("{0,1}", "1,0\n2,1\n3,?", [0, 1, NAN]),
        ("{1,0}", "1,0\n2,1\n3,?", [0, 1, NAN]),
        ("{'1', '0'}", "1,0\n2,'1'", [0, 1]),
        ("{YES,NO}", "1,YES\n2,NO\n3,?", [1, 0, NAN]),
        ("{no,yes}", "1,yes\n2,no", [1, 0]),
        ("{TRUE, FALSE}", "1,FALSE\n2,TRUE", [0, 1]),
        ("{-1,+1}", "1,-1\n2,+1", [0, 1]),
        ("{1,-1}", "1,-1\n2,1", [0, 1]),
        ("{Present,Absent}", "1,Present\n2,Absent", [1, 0]),
        ("{n,y}", "1,y\n2,n", [1, 0]),
        ("{1.0,0.0}", "1,0.0\n2,1.0", [0, 1]),
        ("{1}", "1,1\n2,?", [1, NAN]),
        ("{0}", "1,0\n2,?", [0, NAN]),
        ("numeric", "1,1\n2,0.0\n3,?\n{0 1}", [1, 0, NAN, 0]),
        ("{0,1}", "{0 2}\n{1 1}\n{1 ?}\n{}", [0, 1, NAN, 0]),
        ("{YES,NO}", "{0 2}\n{1 NO}\n{1 ?}\n{1 YES}", [1, 0, NAN, 1]),
    ],
)
def test_label_values(tmp_path: Path, declaration: str, rows: str, expected: list[float]) -> None:
    np.testing.assert_array_equal(labelled(tmp_path, declaration, rows), expected)


@pytest.mark.parametrize(
    ("declaration", "rows", "line", "reason"),
    [
        (
            "{0,1,2}",
            "1,0",
            3,
            "labelzoo models are binary per label, .*multi-target file: label 'l' .* values '0'; '1'; '2'",
        ),
        ("numeric", "1,0\n2,3", 6, "labelzoo models are binary per label, .*: label 'l' holds 3"),
        ("numeric", "1,0.5", 5, "label 'l' holds 0.5"),
        (
            "{cat,dog}",
            "1,cat",
            3,
            "label 'l' has the values 'cat' and 'dog', which do not say which one is positive",
        ),
        ("{0,yes}", "1,0", 3, "do not say which one is positive"),
        ("string", "1,0", 3, "label 'l' is of type string: labels take 0 or 1"),
    ],
)
def test_labels_that_are_not_binary(
    tmp_path: Path, declaration: str, rows: str, line: int, reason: str
) -> None:
    with pytest.raises(DataError, match=reason) as error:
        labelled(tmp_path, declaration, rows)
    assert error.value.line == line


# Features


@pytest.mark.parametrize("declaration", ["{0,1}", "{1,0}", "{'1','0'}", "{1, 0}"])
@pytest.mark.parametrize("encode", ["onehot", "none"])
def test_zero_one_features_by_value(tmp_path: Path, declaration: str, encode: str) -> None:
    data = with_feature(tmp_path, declaration, "1,0\n0,1\n1,1", encode=encode)
    assert data.feature_names == ("f",)
    np.testing.assert_array_equal(features(data).ravel(), [1, 0, 1])


def test_zero_one_with_decimals(tmp_path: Path) -> None:
    data = with_feature(tmp_path, "{1.0,0.0}", "1.0,0\n0.0,1\n?,0", allow_missing_features=True)
    np.testing.assert_array_equal(features(data).ravel(), [1, 0, NAN])


def test_one_hot_names_order_and_missing(tmp_path: Path) -> None:
    data = with_feature(
        tmp_path, "{red,'light blue',green}", "green,0\n?,1\n'light blue',0", allow_missing_features=True
    )
    assert data.feature_names == ("f=red", "f=light blue", "f=green")
    np.testing.assert_array_equal(features(data), [[0, 0, 1], [NAN] * 3, [0, 1, 0]])
    assert with_feature(tmp_path, "{F,M}", "F,0\nM,1").feature_names == ("f=F", "f=M")


def test_none_keeps_numbers_and_positions(tmp_path: Path) -> None:
    words = with_feature(
        tmp_path, "{YES,NO,x}", "x,0\nYES,1\n?,1", encode="none", allow_missing_features=True
    )
    np.testing.assert_array_equal(features(words).ravel(), [2, 0, NAN])
    numbers = with_feature(
        tmp_path, "{2,10,-1}", "10,0\n2,1\n?,1\n-1,0", encode="none", allow_missing_features=True
    )
    np.testing.assert_array_equal(features(numbers).ravel(), [10, 2, NAN, -1])


def test_omitted_cells_hold_the_first_value(tmp_path: Path) -> None:
    data = with_feature(tmp_path, "{YES,NO}", "{}\n{0 NO,1 1}\n{0 YES}\n{0 ?}", allow_missing_features=True)
    assert sparse.issparse(data.X)
    np.testing.assert_array_equal(features(data), [[1, 0], [0, 1], [1, 0], [NAN, NAN]])
    one_first = with_feature(tmp_path, "{1,0}", "{}\n{0 0}\n{0 1}")
    np.testing.assert_array_equal(features(one_first).ravel(), [1, 0, 1])


def test_dense_or_sparse_by_content(tmp_path: Path) -> None:
    zeros = ",".join("0" * 19)
    few = (
        "@relation 'r: -C -1'\n"
        + "".join(f"@attribute a{i} real\n" for i in range(20))
        + "@attribute l {0,1}\n@data\n"
    )
    assert sparse.issparse(read_arff(put(tmp_path, few + f"5,{zeros},1\n")).X)
    assert isinstance(read_arff(put(tmp_path, few + f"5,6,{zeros[2:]},1\n")).X, np.ndarray)
    full = ",".join(f"{i} {i + 1}" for i in range(20))
    assert sparse.issparse(read_arff(put(tmp_path, few + f"{{{full}}}\n")).X)


def test_no_feature_is_left(tmp_path: Path) -> None:
    data = with_feature(tmp_path, "numeric", "1,0\n2,1", drop=["f"])
    assert (data.num_rows, data.num_features) == (2, 0)


def test_missing_features_are_refused_by_name(tmp_path: Path) -> None:
    head = "@relation 'M: -C -1'\n@attribute a real\n@attribute b {x,y}\n@attribute l {0,1}\n@data\n"
    text = head + "?,x,1\n?,?,0\n1,y,?\n"
    reason = (
        "has 3 missing feature cells .*: 'a' has 2; 'b' has 1; pass allow_missing_features=True and impute"
    )
    with pytest.raises(DataError, match=reason):
        read_arff(put(tmp_path, text))
    data = read_arff(put(tmp_path, text), allow_missing_features=True)
    np.testing.assert_array_equal(data.X, [[NAN, 1, 0], [NAN, NAN, NAN], [1, 0, 1]])
    assert read_arff(put(tmp_path, text), drop=["a", "b"]).num_missing_cells == 1


@pytest.mark.parametrize("kind", ["string", "date", "date 'yyyy'", "relational\n@attribute in real\n@end f"])
def test_text_features_are_refused_with_the_remedy(tmp_path: Path, kind: str) -> None:
    word = kind.split()[0]
    with pytest.raises(DataError, match=rf"not text: 'f' \({word}\); leave them out with drop=\['f'\]"):
        with_feature(tmp_path, kind, "abc,1")
    assert with_feature(tmp_path, kind, "abc,1", drop=["f"]).num_features == 0


def test_drop(tmp_path: Path) -> None:
    path = put(tmp_path, "@relation 'M: -C -2'" + BODY)
    assert read_arff(path, drop=["f"]).feature_names == ("p q",)
    assert read_arff(path, drop="p q").feature_names == ("f",)
    with pytest.raises(DataError, match="drop names no attribute of the file: 'z'"):
        read_arff(path, drop=["f", "z"])
    with pytest.raises(DataError, match="drop names labels, not features: 's'"):
        read_arff(path, drop=["s"])
    with pytest.raises(ValueError, match="drop must be a list of attribute names, got 3"):
        read_arff(path, drop=3)


def test_other_bad_arguments(tmp_path: Path) -> None:
    path = put(tmp_path, "@relation 'M: -C -2'" + BODY)
    with pytest.raises(ValueError, match="encode must be 'onehot' or 'none', got 'ordinal'"):
        read_arff(path, encode="ordinal")
    with pytest.raises(DataError, match="xml must be a path, None or False, got True"):
        read_arff(path, xml=True)
    with pytest.raises(DataError, match=r"none\.arff: cannot be read: No such file"):
        read_arff(tmp_path / "none.arff")
    with pytest.raises(DataError, match="has no rows after @data"):
        read_arff(put(tmp_path, "@relation 'M: -C -2'" + BODY.split("1.5")[0]))


# Writing

ODD = [
    "a b",
    "it's",
    'say "x"',
    "c,d",
    "50%",
    "b\\s",
    "{z}",
    "café ☕",
    "?",
    "",
    "new\nline",
    "\ttab",
    "@data",
    "% c",
]
ODD += [r"\u0041", "-C 3", "a'", "\u2028", "\xa0nb\xa0", "<&>"]


def table_of_odd_names(seed: int, make: Any) -> LabelData:
    """Return data whose names and numbers are awkward to write."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(7, len(ODD))) * (rng.random((7, len(ODD))) < 0.6)
    X[0, :5] = [1e300, -5e-324, NAN, 0.1 + 0.2, 3.0]
    Y = (rng.random((7, len(ODD))) < 0.3).astype(float)
    Y[1] = NAN
    Y[2, ::2] = NAN
    names = [f"feature {name}" for name in ODD]
    return LabelData(X=make(X), Y=Y, feature_names=names, label_names=ODD, allow_missing_features=True)


@pytest.mark.parametrize("suffix", ["arff", "arff.gz", "arff.bz2"])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_round_trip_is_exact(tmp_path: Path, suffix: str, make: Any) -> None:
    data = table_of_odd_names(3, make)
    path = tmp_path / f"some name.{suffix}"
    write_arff(data, path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([path.name, "some name.xml"])
    back = read_arff(path, allow_missing_features=True)
    assert back.label_names == data.label_names and back.feature_names == data.feature_names
    assert sparse.issparse(back.X) == sparse.issparse(data.X)
    assert back.hash() == data.hash()
    by_option = read_arff(path, xml=False, allow_missing_features=True)
    assert by_option.hash() == data.hash()


def test_same_data_same_bytes(tmp_path: Path) -> None:
    data = table_of_odd_names(4, sparse.csr_array)
    write_arff(data, tmp_path / "a.arff.gz")
    first = (tmp_path / "a.arff.gz").read_bytes()
    write_arff(data, tmp_path / "a.arff.gz")
    assert (tmp_path / "a.arff.gz").read_bytes() == first


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_liac_arff_reads_what_is_written(tmp_path: Path, make: Any) -> None:
    X = np.array([[0.5, 0, NAN], [0, -2, 3]])
    names = ["two words", "plain", "a,b"]
    data = LabelData(
        X=make(X),
        Y=[[1, 0], [NAN, 1]],
        feature_names=names,
        label_names=["l m", "n"],
        allow_missing_features=True,
    )
    write_arff(data, tmp_path / "w.arff")
    theirs = liac.loads((tmp_path / "w.arff").read_text("utf-8"))
    assert theirs["relation"] == "w: -C -2"
    assert theirs["attributes"] == [*((n, "NUMERIC") for n in names), ("l m", ["0", "1"]), ("n", ["0", "1"])]
    assert theirs["data"] == [[0.5, 0, None, "1", "0"], [0, -2, 3, None, "1"]]


@given(
    st.lists(
        st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=8),
        min_size=2,
        max_size=6,
        unique=True,
    ),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
    st.booleans(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_table_comes_back(
    tmp_path: Path, names: list[str], numbers: list[float], as_sparse: bool
) -> None:
    X = np.array(numbers)[:, None]
    Y = np.array([[(i + j) % 3 for j in range(len(names) - 1)] for i in range(2)], dtype=float)
    Y[Y == 2] = NAN
    data = LabelData(
        X=sparse.csr_array(X) if as_sparse else X, Y=Y, feature_names=names[:1], label_names=names[1:]
    )
    write_arff(data, tmp_path / "h.arff")
    assert read_arff(tmp_path / "h.arff").hash() == data.hash()


@pytest.mark.parametrize(
    ("features", "labels", "reason"),
    [
        (["a", "b"], ["b"], "distinct attribute names; features and labels share 'b'"),
        (["a", "a"], ["b"], "features and labels share 'a'"),
        (["a", "b"], ["\x01"], "label names hold control characters, which XML cannot hold: '.x01'"),
        (["a", "\ud800"], ["l"], "half of a surrogate pair"),
    ],
)
def test_names_that_cannot_be_written(
    tmp_path: Path, features: list[str], labels: list[str], reason: str
) -> None:
    data = LabelData(X=[[1.0, 2.0]], Y=[[1]], feature_names=features, label_names=labels)
    with pytest.raises(ValueError, match=reason):
        write_arff(data, tmp_path / "n.arff")
    assert not list(tmp_path.iterdir())


def test_other_endings_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    data = LabelData(X=[[1.0]], Y=[[1]])
    for name in ("a.xml", "a.csv", "a.gz"):
        with pytest.raises(ValueError, match=r"path must end in \.arff, \.arff\.gz or \.arff\.bz2"):
            write_arff(data, tmp_path / name)
    with pytest.raises(ValueError, match="cannot write"):
        write_arff(data, tmp_path / "absent" / "a.arff")
    assert not list(tmp_path.iterdir())


def test_a_table_the_size_of_bibtex(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = sparse.random_array((7395, 1836), density=0.037, format="csr", rng=rng)
    Y = sparse.random_array((7395, 159), density=0.015, format="csr", rng=rng)
    Y.data[:] = 1
    data = LabelData(X=X, Y=Y)
    write_arff(data, tmp_path / "big.arff")
    start = time.perf_counter()
    back = read_arff(tmp_path / "big.arff")
    seconds = time.perf_counter() - start
    assert back.hash() == data.hash()
    assert seconds < 15, f"took {seconds:.1f} s"


@pytest.mark.parametrize(
    "name", ["music.arff", "music-test.arff", "music-train.crlf.DERIVED.arff", "music.v2.arff.gz"]
)
def test_the_list_beside_a_file_is_found_by_its_stem(tmp_path: Path, name: str) -> None:
    (tmp_path / "music.xml").write_text("<labels/>", encoding="utf-8")
    (tmp_path / "other.xml").write_text("<labels/>", encoding="utf-8")
    assert companion_xml(str(tmp_path / name)) == tmp_path / "music.xml"
    assert companion_xml(str(tmp_path / "musical.arff")) is None
