"""Columns that arrive as text or categories: 0/1 labels, numbers, and one-hot features where asked for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelzoo.data.convert import REAL, is_missing, real
from labelzoo.data.validate import listed

NOT_THERE = frozenset(["", "na", "n/a", "nan", "null", "none", "<na>", "?"])
"""Cells, in lower case, that stand for a missing value."""

LABEL_WORDS = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}
"""Label cells, in lower case, and what they mean; `NOT_THERE` means unobserved."""

ENCODINGS = ("none", "onehot")


def is_absent(value: Any) -> bool:
    """Return whether a cell stands for a missing value: None, NaN, pandas' NA and NaT, or a word for it."""
    if isinstance(value, str):
        return value.strip().lower() in NOT_THERE
    absent = isinstance(value, (float, np.floating)) and value != value
    return is_missing(value) or bool(absent)


def label_value(value: Any) -> float | None:
    """Return 0.0, 1.0 or NaN (unobserved) of a label cell, None where it is none of these."""
    if isinstance(value, str):
        word = value.strip().lower()
        return np.nan if word in NOT_THERE else LABEL_WORDS.get(word)
    if is_absent(value):
        return np.nan
    return float(value) if isinstance(value, REAL) and value in (0, 1) else None


def number_value(value: Any) -> float | None:
    """Return the number of a cell, NaN where it is missing, None where it is text."""
    if isinstance(value, str):
        if value.strip().lower() in NOT_THERE:
            return np.nan
        if "_" in value:  # 1_000 is a number to Python only
            return None
        try:
            return float(value)
        except ValueError:
            return None
    return np.nan if is_absent(value) else real(value)


def truth_value(value: Any) -> float | None:
    """Return 1.0 or 0.0 for the words true and false, NaN for a missing cell, None for anything else."""
    word = value.strip().lower() if isinstance(value, str) else ""
    return LABEL_WORDS[word] if word in ("true", "false") else np.nan if is_absent(value) else None


def numbers_or_texts(cells: Sequence[Any]) -> NDArray[np.float64] | None:
    """Return a column as float64, or None where a cell of it is text; true and false alone are 1 and 0."""
    try:
        meaning = {cell: number_value(cell) for cell in set(cells)}
        if any(value is None for value in meaning.values()):
            meaning = {cell: truth_value(cell) for cell in meaning}
    except TypeError:  # a list, say, is neither number nor hashable
        return None
    if any(value is None for value in meaning.values()):
        return None
    return np.array([meaning[cell] for cell in cells], dtype=np.float64)


def one_hot_columns(name: str, cells: Sequence[Any]) -> tuple[list[str], list[NDArray[np.float64]]]:
    """Return names ``"name=value"`` and 0/1 columns of a text column, values sorted; missing gives NaN."""
    texts = [None if is_absent(cell) else str(cell).strip() for cell in cells]
    values = sorted({text for text in texts if text is not None})
    place = {value: j for j, value in enumerate(values)}
    table = np.zeros((len(values), len(texts)))
    for i, text in enumerate(texts):
        if text is None:
            table[:, i] = np.nan
        else:
            table[place[text], i] = 1.0
    return [f"{name}={value}" for value in values], list(table)


def refuse_text_features(examples: dict[str, str]) -> None:
    """Raise ValueError where feature columns hold text: ``examples`` says what each holds, and where."""
    if not examples:
        return
    texts = [f"{name!r} ({example})" for name, example in examples.items()]
    names = " ".join(str(list(examples)[:3]).split())
    raise ValueError(
        f"feature columns hold text: {listed(texts)}. Give encode='onehot' for one 0/1 column a value, leave "
        f"them out with drop={names}, or name them among the labels"
    )


def checked_encoding(encode: Any) -> str:
    """Return ``"none"`` or ``"onehot"``; None means ``"none"``."""
    if encode is None:
        return "none"
    if encode not in ENCODINGS:
        raise ValueError(f"encode must be 'onehot' or 'none', got {encode!r}")
    return str(encode)


def without_dropped(columns: Sequence[str], drop: Any) -> list[str]:
    """Return the columns that are not in ``drop``; names that are no columns raise ValueError."""
    if drop is not None and not hasattr(drop, "__iter__"):
        raise ValueError(f"drop must be a list of column names, got {drop!r}")
    left_out = [drop] if isinstance(drop, str) else [] if drop is None else list(drop)
    absent = [repr(name) for name in left_out if name not in columns]
    if absent:
        raise ValueError(f"drop names columns that are not there: {listed(absent)}")
    return [name for name in columns if name not in set(left_out)]
