"""Data frames of features: columns found by their names, in the order of the posterior's."""

from collections.abc import Sequence
from typing import Any


def by_name(trained: Sequence[str], frame: Any) -> Any:
    """Return the values of a data frame, columns in the order of `trained`; numbered ones keep theirs."""
    from labelzoo.data.convert import frame_columns

    names = frame_columns(frame)
    if names is None:
        return frame.to_numpy(dtype=float)
    parts = []
    for what, found in (
        ("lacks the columns", [name for name in trained if name not in set(names)]),
        ("has columns that the posterior does not know:", [n for n in names if n not in set(trained)]),
        ("has twice", sorted({name for name in names if names.count(name) > 1})),
    ):
        if found:
            more = ", ..." if len(found) > 5 else ""
            parts.append(f"the frame {what} {', '.join(map(repr, found[:5]))}{more}")
    if parts:
        raise ValueError(f"{'; '.join(parts)} (columns are matched by name; to_numpy() matches by position)")
    at = [names.index(name) for name in trained]
    return frame.iloc[:, at].to_numpy(dtype=float)
