"""Rebuild the built-in data set ``emoji`` from two unpacked npm packages.

``python -m labelzoo.data.build_emoji EMOJILIB_DIR UNICODE_EMOJI_JSON_DIR --out emoji.npz``, where the folders
are those of emojilib 4.0.3 and unicode-emoji-json 0.9.0, as ``npm pack NAME@VERSION`` fetches them.

Rows are the emoji of unicode-emoji-json, in its order. Features are binary: ``cp:H``, one for each block of
sixteen code points (H is the code point in hexadecimal without its last digit), ``group=G``, ``version=V``
(emoji version), and ``w:W``, one for each run of the letters a-z in the lower-case name. Labels are the
emojilib keywords of the emoji without the first one, which repeats its name. Features and labels found in
fewer than two emoji are left out, then rows without a label. Columns are sorted by code point.
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from labelzoo.data.labeldata import LabelData
from labelzoo.data.npz import save_npz

MIN_ROWS = 2  # a feature or label of a single emoji can be neither learnt nor tested


def features_of(emoji: str, record: dict[str, Any]) -> set[str]:
    """Return the names of the features that are 1 for one emoji."""
    blocks = {f"cp:{ord(character) >> 4:x}" for character in emoji}
    words = {f"w:{word}" for word in re.findall("[a-z]+", record["name"].lower())}
    return blocks | words | {f"group={record['group']}", f"version={record['emoji_version']}"}


def indicator_table(rows: list[set[str]]) -> tuple[csr_array, list[str]]:
    """Return the 0/1 table (rows, kept names) and the sorted names found in at least two rows."""
    counts = Counter(name for row in rows for name in row)
    names = sorted(name for name, count in counts.items() if count >= MIN_ROWS)
    place = {name: i for i, name in enumerate(names)}
    cells = [(i, place[name]) for i, row in enumerate(rows) for name in row if name in place]
    at = np.array(cells, dtype=np.int64).reshape(-1, 2)
    table = csr_array((np.ones(len(at), np.int8), (at[:, 0], at[:, 1])), shape=(len(rows), len(names)))
    return table, names


def build(keywords: dict[str, list[str]], records: dict[str, dict[str, Any]]) -> LabelData:
    """Build the data set from the contents of the two packages.

    Parameters
    ----------
    keywords : emoji to keywords, from emojilib's ``dist/emoji-en-US.json``
    records : emoji to name, group and version, from unicode-emoji-json's ``data-by-emoji.json``
    """
    emoji = [one for one in records if one in keywords]
    X, feature_names = indicator_table([features_of(one, records[one]) for one in emoji])
    Y, label_names = indicator_table([set(keywords[one][1:]) for one in emoji])
    keep = np.flatnonzero(np.diff(Y.indptr))
    return LabelData(
        X=X[keep],
        Y=Y[keep],
        feature_names=feature_names,
        label_names=label_names,
        example_names=[emoji[i] for i in keep],
    )


def build_from_folders(emojilib: Path, unicode_emoji_json: Path) -> LabelData:
    """Read the two package folders (those that hold ``package.json``) and build the data set."""
    keywords = json.loads((emojilib / "dist" / "emoji-en-US.json").read_text(encoding="utf-8"))
    records = json.loads((unicode_emoji_json / "data-by-emoji.json").read_text(encoding="utf-8"))
    return build(keywords, records)


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m labelzoo.data.build_emoji", description=__doc__)
    parser.add_argument("emojilib", type=Path, help="folder of emojilib 4.0.3")
    parser.add_argument("unicode_emoji_json", type=Path, help="folder of unicode-emoji-json 0.9.0")
    parser.add_argument("--out", type=Path, required=True, help="the .npz file to write")
    options = parser.parse_args(arguments)
    data = build_from_folders(options.emojilib, options.unicode_emoji_json)
    save_npz(data, options.out)
    print(f"{options.out}: {data}")


if __name__ == "__main__":
    main()
