"""Tables of probabilities with named axes: sums and products over sites that take a few values each."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

MAX_CELLS = 20_000_000
"""Largest product of a table and a conditional that is formed."""


class Table(NamedTuple):
    """Numbers with one named axis a site.

    Attributes
    ----------
    axes : tuple of str
    values : ndarray
        As many axes as names.
    """

    axes: tuple[str, ...]
    values: np.ndarray


def marginal(table: Table, kept: tuple[str, ...]) -> Table:
    """Return the table with all axes but `kept` summed out, in the order of `kept`."""
    label = {axis: index for index, axis in enumerate(table.axes)}
    values = np.einsum(table.values, list(range(len(label))), [label[axis] for axis in kept])
    return Table(tuple(kept), values)


def with_copies(table: Table, wanted: Collection[str], suffix: str) -> Table:
    """Return the table of the `wanted` axes, where a name that ends in `suffix` is a copy of the other axis.

    A copy of an axis that is wanted too is diagonal: both hold one value.
    """
    base = {axis: axis.removesuffix(suffix) for axis in sorted(wanted)}
    kept = tuple(axis for axis in table.axes if axis in base.values())
    table = marginal(table, kept)
    for axis, site in base.items():
        if axis == site:
            continue
        at = table.axes.index(site)
        if site not in base:
            table = Table((*table.axes[:at], axis, *table.axes[at + 1 :]), table.values)
            continue
        size = table.values.shape[at]
        here = list(range(len(table.axes)))
        values = np.einsum(table.values, here, np.eye(size), [at, len(here)], [*here, len(here)])
        table = Table((*table.axes, axis), values)
    return table


def push(table: Table, conditional: Table, block: tuple[str, ...], wanted: Collection[str]) -> Table:
    """Sum the block out of `table`, multiply by its new conditional, and keep the `wanted` axes.

    Parameters
    ----------
    table : Table
    conditional : Table
        Axes: what is read, and the block.
    block : tuple of str
    wanted : collection of str

    Raises
    ------
    ValueError
        If the product would have more than `MAX_CELLS` entries.
    """
    gone = tuple(axis for axis in table.axes if axis in block or axis not in {*wanted, *conditional.axes})
    table = marginal(table, tuple(axis for axis in table.axes if axis not in gone))
    axes = (*table.axes, *(axis for axis in conditional.axes if axis not in table.axes))
    label = {axis: index for index, axis in enumerate(axes)}
    sizes = dict(zip(table.axes, table.values.shape, strict=True))
    sizes |= dict(zip(conditional.axes, conditional.values.shape, strict=True))
    if np.prod(list(sizes.values()), dtype=float) > MAX_CELLS:
        raise ValueError(f"an update of {', '.join(block)} would fill a table of {sizes}: take fewer nodes")
    out = tuple(axis for axis in axes if axis in wanted)
    values = np.einsum(
        table.values,
        [label[axis] for axis in table.axes],
        conditional.values,
        [label[axis] for axis in conditional.axes],
        [label[axis] for axis in out],
    )
    return Table(out, values)
