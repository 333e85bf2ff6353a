"""The ARFF layer: what a header and a row may look like, and one line with file and line for the rest."""

import sys
import types
from pathlib import Path
from typing import Any

import arff as liac
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labelzoo.data import arff_words
from labelzoo.data.arff import ArffTable, read_table
from labelzoo.data.arff_words import liac_arff, next_word, quoted
from labelzoo.data.errors import DataError
from labelzoo.data.mulan import read_arff

HEAD = "@relation r\n@attribute a numeric\n@attribute b {x,y}\n@attribute c {0,1}\n@data\n"
NAN = np.nan


def table(folder: Path, text: str | bytes) -> ArffTable:
    """Write a file and read it."""
    path = folder / "t.arff"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_table(path)


def codes(folder: Path, text: str) -> list[list[float]]:
    """Return the codes of some rows below `HEAD`."""
    return table(folder, HEAD + text).codes.toarray().tolist()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("1,x,1", [1, 0, 1]),
        (" 1.0 ,\ty , 0 ", [1, 1, 0]),
        ("-2e3,'y',\"1\"", [-2000, 1, 1]),
        (".5,y,1 % a comment, with a comma", [0.5, 1, 1]),
        ("{0 2,2 1}", [2, 0, 1]),
        ("{2 1 , 0\t.5}", [0.5, 0, 1]),
        ("{}", [0, 0, 0]),
        ("{ }", [0, 0, 0]),
        ("{1 y}", [0, 1, 0]),
        ("{1 'y', 2 \"1\"} % note", [0, 1, 1]),
        ("1,x,1,{1}", [1, 0, 1]),
        ("{0 1}, {1.0}", [1, 0, 0]),
    ],
)
def test_rows(tmp_path: Path, row: str, expected: list[float]) -> None:
    assert codes(tmp_path, row) == [expected]


def test_question_marks(tmp_path: Path) -> None:
    found = table(tmp_path, HEAD + "?,?,1\n{0 ?,2 ?}\n")
    np.testing.assert_array_equal(found.codes.toarray(), [[NAN, NAN, 1], [NAN, 0, NAN]])
    assert found.num_missing_cells == 4
    quoted_mark = "@relation r\n@attribute a {'?',b}\n@data\n'?'\n?\nb\n"
    np.testing.assert_array_equal(table(tmp_path, quoted_mark).codes.toarray(), [[0], [NAN], [1]])


def test_blank_lines_comments_line_ends_and_mark(tmp_path: Path) -> None:
    text = f"% first\n\n{HEAD}\n% between\n1,x,1\n\n2,y,0"
    plain = table(tmp_path, text)
    assert plain.lines.tolist() == [10, 12]
    windows = table(tmp_path, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    old_mac = table(tmp_path, text.replace("\n", "\r").encode())
    for other in (windows, old_mac):
        assert (other.codes != plain.codes).nnz == 0
        assert other.lines.tolist() == plain.lines.tolist()


@pytest.mark.parametrize(
    ("declaration", "name", "kind"),
    [
        ("@attribute a numeric", "a", "numeric"),
        ("@ATTRIBUTE\ta\tREAL", "a", "numeric"),
        ("  @Attribute 007 Integer % note", "007", "numeric"),
        ("@attribute a real [0, 1]", "a", "numeric"),
        (r"@attribute 'it\'s 50\% \\ \"x\"' numeric", r"""it's 50% \ "x\"""", "numeric"),
        (r'@attribute "two words \u00e9\n" numeric', "two words é\n", "numeric"),
        ("@attribute 'a'{0,1}", "a", "nominal"),
        ("@attribute don't string", "don't", "string"),
        ("@attribute when DATE 'yyyy-MM-dd HH:mm'", "when", "date"),
        ("@attribute bag relational\n@attribute inner numeric\n@end bag", "bag", "relational"),
        ("@attribute caf\u00e9\u00a0bar numeric", "caf\u00e9\u00a0bar", "numeric"),
    ],
)
def test_attributes(tmp_path: Path, declaration: str, name: str, kind: str) -> None:
    found = table(tmp_path, f"@relation r\n{declaration}\n@data\n").attributes
    assert [(attribute.name, attribute.kind) for attribute in found] == [(name.replace('\\"', '"'), kind)]


def test_nominal_values(tmp_path: Path) -> None:
    text = "@relation r\n@attribute a { 'two words' , \"b,c\",%d, '}' ,7 }\n@data\n".replace("%d", "d%")
    assert table(tmp_path, text).attributes[0].values == ("two words", "b,c", "d%", "}", "7")


@pytest.mark.parametrize(
    ("relation", "name"),
    [("r", "r"), ("'Music: -C 6'", "Music: -C 6"), ("Music: -C -6", "Music: -C -6"), ("\"a 'b'\"", "a 'b'")],
)
def test_relation(tmp_path: Path, relation: str, name: str) -> None:
    assert table(tmp_path, f"@Relation {relation}\n@attribute a real\n@data\n").relation == name


def test_sparse_cells_in_any_order(tmp_path: Path) -> None:
    found = table(tmp_path, HEAD + "{2 1,0 5}\n{2 '1',0 6}").codes
    assert found.indices.tolist() == [0, 2, 0, 2]
    assert found.data.tolist() == [5, 1, 6, 1]


def test_strings_keep_their_text(tmp_path: Path) -> None:
    found = table(tmp_path, "@relation r\n@attribute s string\n@data\n'a b'\nc\n'a b'\n?\n{}\n")
    np.testing.assert_array_equal(found.codes.toarray().ravel(), [1, 2, 1, NAN, 0])
    assert found.strings == {0: ["a b", "c"]}


def test_mixed_rows(tmp_path: Path) -> None:
    found = table(tmp_path, HEAD + "1,y,0\n{1 y}\n")
    assert (found.codes.toarray().tolist(), found.num_sparse_rows) == ([[1, 1, 0], [0, 1, 0]], 1)


BAD_ROWS = [
    ("1,x", 6, "the row has 2 cells, but there are 3 attributes"),
    ("1,x,1,0", 6, "the row has 4 cells, but there are 3 attributes"),
    ("1,z,1", 6, "attribute 'b': 'z' is not one of its values {x, y}"),
    ("1,X,1", 6, "attribute 'b': 'X' is not one of its values {x, y}"),
    ("1,x,1\nlow,x,1", 7, "attribute 'a': 'low' is not a finite number"),
    ("1_0,x,1", 6, "attribute 'a': '1_0' is not a finite number"),
    ("inf,x,1", 6, "attribute 'a': 'inf' is not a finite number"),
    ("1e999,x,1", 6, "attribute 'a': '1e999' is not a finite number"),
    ("nan,x,1", 6, "write ? for a missing value"),
    ("1,,1", 6, "cell 2 is empty: write ? for a missing value"),
    ("1,x,", 6, "cell 3 is empty"),
    ("1 2,x,1", 6, "cell 1: a comma must follow '1'"),
    ("1,'x,1", 6, "cell 2: a quote ' is never closed"),
    ("{0 1,0 2}", 6, "sparse index 0 stands twice in one row"),
    ("{-1 1}", 6, "sparse index -1 is outside 0..2"),
    ("{3 1}", 6, "sparse index 3 is outside 0..2"),
    ("{99999999999999999999999 1}", 6, "sparse index 99999999999999999999999 is outside 0..2"),
    ("{0 1", 6, "sparse cell 0: a comma or } must follow '1'"),
    ("{0}", 6, "sparse cell 1: expected 'index value', found '0}'"),
    ("{0 1,}", 6, "sparse cell 2: expected 'index value'"),
    ("{0 }", 6, "sparse cell 0 is empty"),
    ("{0 1} 2", 6, "text after the sparse row: '2'"),
    ("{1 z}", 6, "attribute 'b': 'z' is not one of its values {x, y}"),
    ("1,x,1,{2.5}", 6, "the row has weight '2.5': labelzoo does not weigh rows"),
    ("{0 1},{2}", 6, "the row has weight '2'"),
    ("'\\ud800',x,1", 6, "half of a surrogate pair"),
]


@pytest.mark.parametrize(("rows", "line", "reason"), BAD_ROWS)
def test_bad_rows(tmp_path: Path, rows: str, line: int, reason: str) -> None:
    with pytest.raises(DataError) as error:
        table(tmp_path, HEAD + rows)
    assert error.value.line == line
    assert str(error.value).startswith(f"{tmp_path / 't.arff'}:{line}: ")
    assert reason in str(error.value)


BAD_HEADERS = [
    ("", None, "has no @data line"),
    ("@relation r\n@attribute a real\n", 2, "has no @data line"),
    ("a,b\n1,2\n", 1, "is not ARFF: expected @relation or @attribute, found 'a,b'"),
    ("@attribute a real\n@data\n", 1, "is not ARFF"),
    ("@relation r\n@data\n1", 2, "has no @attribute before @data"),
    ("@relation\n@attribute a real\n@data\n", 1, "@relation has no name"),
    ("@relation r\n@relation s\n@data\n", 2, "unexpected declaration '@relation s'"),
    ("@relation r\n@inputs a\n@data\n", 2, "unexpected declaration '@inputs a'"),
    (
        "@relation r\n@attribute a real\n@attribute a real\n@data\n",
        3,
        "name 'a' is used twice, first in line 2",
    ),
    ("@relation r\n@attribute a\n@data\n", 2, "attribute 'a' has no type"),
    ("@relation r\n@attribute 'a real\n@data\n", 2, "a quote ' is never closed"),
    ("@relation r\n@attribute a float\n@data\n", 2, "attribute 'a' has unknown type 'float'"),
    ("@relation r\n@attribute a real {2}\n@data\n", 2, "attribute 'a' has text after its type"),
    ("@relation r\n@attribute a {}\n@data\n", 2, "values of attribute 'a': found '}'"),
    ("@relation r\n@attribute a {x,x}\n@data\n", 2, "attribute 'a' lists the value 'x' twice"),
    ("@relation r\n@attribute a {x y}\n@data\n", 2, "quote values that hold spaces"),
    ("@relation r\n@attribute a {x,y\n@data\n", 2, "a comma or } must follow"),
    (
        "@relation r\n@attribute a relational\n@attribute b real\n@data\n",
        2,
        "a relational attribute has no @end",
    ),
]


@pytest.mark.parametrize(("text", "line", "reason"), BAD_HEADERS)
def test_bad_headers(tmp_path: Path, text: str, line: int | None, reason: str) -> None:
    with pytest.raises(DataError) as error:
        table(tmp_path, text)
    assert (error.value.line, reason in str(error.value)) == (line, True), str(error.value)


def test_encoding_is_utf8_unless_named(tmp_path: Path) -> None:
    text = "@relation r\n@attribute café numeric\n@data\n1\n"
    (tmp_path / "l.arff").write_bytes(text.encode("latin-1"))
    assert read_table(tmp_path / "l.arff", "latin-1").attributes[0].name == "café"
    with pytest.raises(DataError, match="try encoding='latin-1'"):
        read_table(tmp_path / "l.arff")


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "'" * 2_000_000,
        HEAD + "'" + "\\" * 2_000_000,
        HEAD + "{" * 2_000_000,
        HEAD + "1," * 1_000_000,
        HEAD + "{" + "1" * 2_000_000 + " 1}",
        "@relation r\n@attribute a {" + "'a'," * 500_000 + "b c",
        "@relation r\n@attribute a {" + ",".join(f"'v{i}'" for i in range(50_000)) + " x\n@data\n",
        "@relation '" + "x" * 2_000_000,
    ],
)
def test_absurd_lines_end_soon_in_a_short_message(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError) as error:
        table(tmp_path, text)
    assert len(error.value.reason) < 300


NAMES = [
    "a b",
    "it's",
    'say "x"',
    "c,d",
    "50%",
    "b\\s",
    "{z}",
    "café",
    "?",
    "",
    "new\nline",
    "\ttab",
    "@data",
    "% c",
]


@pytest.mark.parametrize("name", [*NAMES, r"\u0041", "a'", "\u2028", "\xa0", "\x00", "\x1f", "-C 3", "plain"])
def test_a_quoted_name_is_one_word(name: str) -> None:
    word = next_word(f"  {quoted(name)} numeric", 0)
    assert word is not None
    assert (word.text, word.end) == (name, 2 + len(quoted(name)))


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
@settings(max_examples=200, deadline=None)
def test_any_name_is_read_back(name: str) -> None:
    word = next_word(quoted(name) + ",", 0)
    assert word is not None and word.text == name


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 7))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_a_table_or_a_data_error(tmp_path: Path, junk: bytes, place: int, bit: int) -> None:
    whole = bytearray(HEAD.encode() + b"1,x,1\n{0 1,1 'y'}\n?,y,\"0\"\n")
    at = min(place, len(whole) - 1)
    whole[at] ^= 1 << bit
    for text in (bytes(whole), bytes(whole[:at]), bytes(whole[:at]) + junk + bytes(whole[at:]), junk):
        path = tmp_path / "j.arff"
        path.write_bytes(text)
        try:
            read_arff(path, labels=["c"], allow_missing_features=True)
        except DataError as error:
            assert "\n" not in str(error)


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_plain_and_careful_rows_agree_with_liac_arff(tmp_path: Path, data: Any) -> None:
    numbers = st.floats(allow_nan=False, allow_infinity=False).map(repr)
    row = st.tuples(
        numbers, st.sampled_from(["x", "y", "'x'", '"y"', " y "]), st.sampled_from(["0", "1", "?"])
    )
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    sparse = data.draw(st.booleans())
    lines = [
        "{" + ",".join(f"{i} {c}" for i, c in enumerate(r)) + "}" if sparse else ",".join(r) for r in rows
    ]
    text = HEAD + "\n".join(lines)
    theirs = np.array(liac.loads(text, encode_nominal=True)["data"], dtype=np.float64)
    np.testing.assert_array_equal(table(tmp_path, text).codes.toarray(), theirs)


def test_the_other_package_named_arff_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    other = types.ModuleType("arff")
    other.__file__ = "/somewhere/arff/__init__.py"
    other.__dict__["__version__"] = "0.9"
    monkeypatch.setitem(sys.modules, "arff", other)
    liac_arff.cache_clear()
    try:
        with pytest.raises(
            ImportError, match=r"'arff' at /somewhere/arff/__init__.py .*0\.9.* is not liac-arff: pip"
        ):
            quoted("a b")
        monkeypatch.setitem(sys.modules, "arff", None)
        with pytest.raises(ImportError, match="needs liac-arff, which is not installed"):
            quoted("a b")
    finally:
        arff_words.liac_arff.cache_clear()


def test_reading_needs_no_package_named_arff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arff", None)
    assert codes(tmp_path, "1,'x',1") == [[1, 0, 1]]
