"""Reading and writing .npz files, with real files where they are at hand."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import LabelData, from_npz, load, save_npz

NAN = np.nan
SIZES = {
    "emotions": (593, 72, 6),
    "flags": (194, 19, 7),
    "scene": (2407, 294, 6),
    "yeast": (2417, 103, 14),
    "birds": (645, 260, 19),
    "medical": (978, 1449, 45),
    "enron": (1702, 1001, 53),
    "slashdot": (3782, 1079, 22),
    "mediamill_small": (2500, 120, 101),
    "bibtex": (7395, 1836, 159),
    "cal500": (502, 68, 174),
    "stackex-chess": (1675, 585, 227),
    "corel5k": (5000, 499, 374),
    "debtags": (29770, 2326, 527),
    "emoji-keywords": (1914, 658, 1513),
    "imdb": (120919, 1001, 28),
    "uci_iris": (150, 4, 3),
    "uci_glass": (214, 9, 7),
}
CARDINALITY = {"emotions": 1.87, "yeast": 4.24, "enron": 3.38, "bibtex": 2.40, "cal500": 26.04, "imdb": 2.00}
SPLITS = {"emotions": (391, 202), "yeast": (1500, 917), "bibtex": (4880, 2515), "corel5k": (4500, 500)}


@pytest.mark.parametrize("name", SIZES)
def test_real_files(shared_data: Path, name: str) -> None:
    data = load(shared_data / "npz" / f"{name}.npz")
    assert (data.num_rows, data.num_features, data.num_labels) == SIZES[name]
    summary = data.summary()
    assert summary["cardinality"] == pytest.approx(CARDINALITY.get(name, summary["cardinality"]), abs=0.005)
    if name in SPLITS:
        assert (len(data.train_index), len(data.test_index)) == SPLITS[name]
    with np.load(shared_data / "npz" / f"{name}.npz") as raw:
        assert sparse.issparse(data.X) == ("X_data" in raw.files)


def test_known_curiosities_of_real_files(shared_data: Path) -> None:
    assert load(shared_data / "npz" / "birds.npz").summary()["empty_rows"] == 294
    assert load(shared_data / "npz" / "mediamill_small.npz").summary()["empty_rows"] == 74
    assert len(load(shared_data / "npz" / "slashdot.npz").summary()["never_positive"]) == 2


def test_class_index_becomes_one_label_a_class(shared_data: Path) -> None:
    data = load(shared_data / "npz" / "uci_iris.npz")
    assert data.label_names == ("Iris-setosa", "Iris-versicolor", "Iris-virginica")
    np.testing.assert_array_equal(data.Y.sum(axis=0), [50, 50, 50])
    np.testing.assert_array_equal(data.Y.sum(axis=1), np.ones(150))


def test_missing_features_of_a_real_file(shared_data: Path) -> None:
    path = shared_data / "npz" / "mi-complications.npz"
    with pytest.raises(
        ValueError, match=r"mi-complications\.npz: X has missing values \(NaN\), impute first: row 0"
    ):
        load(path)
    data = load(path, allow_missing_features=True)
    assert np.isnan(data.X).sum() == 15974
    assert data.subset(rows=[0, 1]).has_missing_features


def test_overlap_of_a_published_split_leaves_the_test_side(shared_data: Path) -> None:
    with pytest.warns(UserWarning, match=r"genbase\.npz: rows of train_index dropped from test_index: \d+$"):
        data = load(shared_data / "npz" / "genbase.npz")
    assert (len(data.train_index), len(data.test_index)) == (463, 198)


def example(X: object) -> LabelData:
    Y = np.array([[1, 0, NAN, 0], [NAN] * 4, [0, 0, 0, 0], [NAN, NAN, NAN, 1]])
    names = ["café", "日本", "c", "d"]
    return LabelData(X, Y, label_names=names, train_index=[0, 1], test_index=[3])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_save_and_load_is_exact(tmp_path: Path, kind: type, scale: float) -> None:
    data = example(kind(scale * np.arange(8.0).reshape(4, 2)))
    path = tmp_path / "data.npz"
    save_npz(data, path)
    again = load(path)
    assert again.hash() == data.hash()
    assert again.label_names == data.label_names
    np.testing.assert_array_equal(again.train_index, [0, 1])
    np.testing.assert_array_equal(again.test_index, [3])
    assert sparse.issparse(again.X) == sparse.issparse(data.X)


def test_saving_is_atomic_deterministic_and_readable_by_others(tmp_path: Path) -> None:
    data = example(np.eye(4))
    data.save_npz(tmp_path / "a.npz")
    data.save_npz(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "b.npz"]
    if os.name == "posix":
        mode = stat.S_IMODE((tmp_path / "a.npz").stat().st_mode)
        (tmp_path / "plain").write_text("x")
        assert mode == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    example(np.eye(4)).save_npz(path)
    before = path.read_bytes()

    def fail(stream: object, **arrays: object) -> None:
        stream.write(b"half")  # type: ignore[attr-defined]
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(ValueError, match="cannot write .*a.npz.*disk full"):
        example(np.ones((4, 1))).save_npz(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_truncated_file_is_one_clear_line(tmp_path: Path, share: float) -> None:
    path = tmp_path / "cut.npz"
    example(np.eye(4)).save_npz(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"cut\.npz: cannot be read as \.npz: ") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_damaged_bytes_never_pass_silently(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    data = example(np.arange(8.0).reshape(4, 2))
    data.save_npz(path)
    content = path.read_bytes()
    for at in range(0, len(content), 23):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        try:
            assert load(path).hash() == data.hash()
        except ValueError as error:
            assert "bad.npz" in str(error)  # noqa: PT017


def test_absent_and_unknown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^nothing: no such file, and no built-in data set .*emoji\)$"):
        load("nothing")
    with pytest.raises(ValueError, match=r"gone\.npz: cannot be read: No such file"):
        from_npz(tmp_path / "gone.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"Y_indices": [0]}, r"has no array 'X' \(found Y_indices\)"),
        ({"X": [[1.0]]}, r"has no array 'Y_indices' \(found X\)"),
        ({"X": [[1.0]], "y": [2], "class_names": ["a", "b"]}, r"y has classes outside 0\.\.1: row 0: 2"),
        ({"X": [[1.0]], "y": [0.5], "class_names": ["a", "b"]}, r"y must be one class index a row"),
        ({"X": [[1.0]], "Y_indices": [7], "Y_indptr": [0, 1], "Y_shape": [1, 2]}, r"x\.npz: .*ind"),
        (
            {"X": [[1.0]], "Y_indices": [0, 0], "Y_indptr": [0, 2], "Y_shape": [1, 2]},
            r"more than once: row 0",
        ),
        (
            {
                "X": [[1.0]],
                "Y_indices": [0],
                "Y_indptr": [0, 1],
                "Y_shape": [1, 2],
                "label_names": ["a", "a"],
            },
            r"x\.npz: label_names has duplicate names: 'a'",
        ),
    ],
)
def test_wrong_layouts(tmp_path: Path, arrays: dict, message: str) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=message) as caught:
        load(path)
    assert "x.npz" in str(caught.value)


def test_pickles_and_single_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, X=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        load(path)
    with path.open("wb") as stream:
        np.save(stream, np.ones(3))
    with pytest.raises(ValueError, match="it holds one array"):
        load(path)


def test_edited_contents_do_not_fit_the_stored_hash(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    example(np.eye(4)).save_npz(path)
    with np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files if not key.startswith("missing")}
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=r"x\.npz: content_hash does not fit the contents"):
        load(path)
