"""The names that tables carry: named against named, both must be the same names in the same order.

Data frames name rows and columns, a `labelzoo.data.LabelData` its rows and labels, a Series (propensities,
thresholds) its labels. Arrays have no names and are taken as they come. A frame numbered 0, 1, ... in order
is unnamed, too, unless the names of the other side are the same numbers in another order.
"""

from itertools import combinations
from typing import Any, NamedTuple

from labelzoo.data.convert import is_frame
from labelzoo.data.labeldata import LabelData


class Names(NamedTuple):
    """Names of rows and columns as text, None where there are none."""

    rows: tuple[str, ...] | None
    columns: tuple[str, ...] | None


def same_names(**tables: Any) -> None:
    """Raise ValueError where two of the tables name their rows or columns differently.

    Parameters
    ----------
    **tables : anything, by the name of the argument
    """
    carriers = {argument: table for argument, table in tables.items() if carries_names(table)}
    if len(carriers) < 2:  # the names of a large table are not looked at in vain
        return
    named = [(argument, names_of(table)) for argument, table in carriers.items()]
    for (first, a), (second, b) in combinations(named, 2):
        for kind in Names._fields:
            refuse_others(getattr(a, kind), getattr(b, kind), f"{first} and {second} differ in their {kind}")


def carries_names(table: Any) -> bool:
    """Return whether `names_of` finds names."""
    series = hasattr(table, "index") and hasattr(table, "to_frame")
    thresholds = getattr(table, "thresholds", None)
    return isinstance(table, LabelData) or is_frame(table) or series or hasattr(thresholds, "index")


def names_of(table: Any) -> Names:
    """Return the names of a table; a Series names columns."""
    if isinstance(table, LabelData):
        return Names(shown(table.example_names, "row "), shown(table.label_names, "label "))
    if is_frame(table):
        return Names(shown(table.index, "row "), shown(table.columns, "label "))
    if hasattr(table, "index") and hasattr(table, "to_frame"):
        return Names(None, shown(table.index, "label "))
    thresholds = getattr(table, "thresholds", None)
    return Names(None, None) if thresholds is None else names_of(thresholds)


def shown(names: Any, default: str) -> tuple[str, ...]:
    """Return names as text; a default name, ``"row 7"``, is the number 7 whoever carries it."""
    texts = [str(name) for name in names]
    numbers = [text.removeprefix(default) for text in texts]
    return tuple(number if number.isdecimal() else text for number, text in zip(numbers, texts, strict=True))


def refuse_others(a: Any, b: Any, what: str) -> None:
    """Raise ValueError unless both lists of names are the same or one of them is none."""
    if a is None or b is None or a == b or len(a) != len(b):
        return
    numbers = tuple(map(str, range(len(a))))
    again = sorted(a) == sorted(b)
    if numbers in (a, b) and not again:
        return
    i = next(i for i, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1])
    order = " (the same names in another order)" if again else ""
    raise ValueError(f"{what}: {a[i]!r} and {b[i]!r} at {i}{order}")
