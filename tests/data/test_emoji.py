"""The built-in data set: sizes, notices, and that the script rebuilds it."""

import os
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from labelzoo.data import LabelData, load
from labelzoo.data.build_emoji import build, build_from_folders, main


@pytest.fixture(scope="module")
def emoji() -> LabelData:
    return load("emoji")


def test_sizes(emoji: LabelData) -> None:
    summary = emoji.summary()
    assert (summary["rows"], summary["features"], summary["labels"]) == (1885, 658, 1513)
    assert summary["positives"] == 10456
    assert summary["empty_rows"] == summary["missing_cells"] == 0
    assert summary["never_positive"] == []
    assert emoji.example_names[0] == "😀"
    assert emoji.Y[[0]].indices.size == 7
    assert emoji.hash() == "c2cf4452b9df159b1a326c4d3678eb277a884e343c4c5311f5bfbc754f3bc28f"


def test_file_is_small_and_its_notices_ship_with_it() -> None:
    folder = resources.files("labelzoo.data")
    assert len((folder / "emoji.npz").read_bytes()) < 100_000
    notice = (folder / "emoji_NOTICE.md").read_text(encoding="utf-8")
    for words in ("(c) 2014 Mu-An Chiou", "(c) 2019 Mu-An Chiou", "UNICODE LICENSE V3", "emojilib 4.0.3"):
        assert words in notice


def test_same_as_the_reference_file(shared_data: Path, emoji: LabelData) -> None:
    assert load(shared_data / "emoji_embed.npz").hash() == emoji.hash()


def test_rules_on_a_tiny_example() -> None:
    records = {
        "\U0001f600": {"name": "Grinning Face", "group": "Smileys", "emoji_version": "1.0"},
        "\U0001f601": {"name": "beaming face", "group": "Smileys", "emoji_version": "0.6"},
        "\u2764": {"name": "red heart", "group": "Smileys", "emoji_version": "0.6"},
        "\u2765": {"name": "no keywords", "group": "Other", "emoji_version": "9.0"},
    }
    keywords = {
        "\U0001f600": ["grinning_face", "smile", "joy", "joy"],
        "\U0001f601": ["smile", "joy", "happy"],
        "\u2764": ["joy", "smile", "love"],
    }
    data = build(keywords, records)
    assert data.feature_names == ("cp:1f60", "group=Smileys", "version=0.6", "w:face")
    assert data.label_names == ("joy", "smile")
    np.testing.assert_array_equal(data.X.toarray(), [[1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 0]])
    np.testing.assert_array_equal(data.Y.toarray(), [[1, 1], [1, 0], [0, 1]])


def test_script_rebuilds_the_file(tmp_path: Path, emoji: LabelData, capsys: pytest.CaptureFixture) -> None:
    packages = os.environ.get("LABELZOO_EMOJI_PACKAGES")
    if not packages:
        pytest.skip(
            "LABELZOO_EMOJI_PACKAGES is not set: a folder with emojilib/ and unicode-emoji-json/ unpacked"
        )
    folders = Path(packages) / "emojilib", Path(packages) / "unicode-emoji-json"
    assert build_from_folders(*folders).hash() == emoji.hash()
    main([*map(str, folders), "--out", str(tmp_path / "emoji.npz")])
    assert "1885 rows" in capsys.readouterr().out
    shipped = (resources.files("labelzoo.data") / "emoji.npz").read_bytes()
    assert load(tmp_path / "emoji.npz").hash() == emoji.hash()
    assert len(shipped) == len((tmp_path / "emoji.npz").read_bytes())
