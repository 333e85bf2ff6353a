"""Posterior draws of label probabilities, read by blocks of rows: checked, never all in memory at once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any

BLOCK_BYTES = 32 * 2**20
"""Size of a block of draws in float64."""

_CHUNK = 2**16  # numbers that stay in the cache while logarithms are taken
_GROUP = 16  # draws added in the input's precision before the sum goes on in float64


@dataclass(frozen=True)
class RowBlocks:
    """Draws of P(label = 1) that are made block by block, for pools whose draws do not fit in memory.

    Attributes
    ----------
    make : callable
        ``make(rows: slice) -> (sample, rows, labels)``; float32 is kept, everything else becomes float64.
        The same slice gives the same numbers each time.
    samples, rows, labels : int
        Sizes of the whole.
    """

    make: Callable[[slice], Array]
    samples: int
    rows: int
    labels: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """(sample, row, labels)."""
        return self.samples, self.rows, self.labels


def as_blocks(probs: Any, name: str = "probs") -> RowBlocks:
    """Return `probs`, an array (sample, row, labels) or `RowBlocks`, as `RowBlocks`.

    Raises
    ------
    ValueError
        If it is not 3-d, or has no draw or no label.
    """
    if isinstance(probs, RowBlocks):
        blocks = probs
    else:
        array = np.asarray(probs)
        if array.ndim != 3:
            raise ValueError(f"{name} must be (sample, row, labels), got shape {array.shape}")
        blocks = RowBlocks(lambda rows: array[:, rows], *array.shape)
    if blocks.samples < 1 or blocks.labels < 1:
        raise ValueError(f"{name} must have one draw and one label or more, got shape {blocks.shape}")
    return blocks


def read_blocks(probs: Any, name: str = "probs", rows: int | None = None) -> Iterator[tuple[slice, Array]]:
    """Yield (rows, block) pairs that cover `probs`; each block is checked.

    Parameters
    ----------
    probs : array (sample, row, labels) or RowBlocks
    name : str
        Of the argument, for messages.
    rows : int or None
        Rows of a block; default as many as `BLOCK_BYTES` hold.

    Raises
    ------
    ValueError
        At the first number outside [0, 1], with its sample, row and label; if a block has a wrong shape.
    """
    blocks = as_blocks(probs, name)
    step = rows or max(1, BLOCK_BYTES // (8 * blocks.samples * blocks.labels))
    for start in range(0, blocks.rows, step):
        part = slice(start, min(start + step, blocks.rows))
        block = np.asarray(blocks.make(part))
        if block.dtype != np.float32:
            block = block.astype(float, copy=False)
        if block.shape != (blocks.samples, part.stop - start, blocks.labels):
            raise ValueError(f"{name}: rows {start} to {part.stop} came with shape {block.shape}")
        check_block(block, start, name)
        yield part, block


def check_block(block: Array, start: int, name: str) -> None:
    """Refuse numbers outside [0, 1] and NaN, naming sample, row (counted from `start`) and label."""
    # Minimum and maximum hand NaN through, so both comparisons fail on it.
    if block.min(initial=0.0) >= 0 and block.max(initial=1.0) <= 1:
        return
    sample, row, label = np.argwhere(~((block >= 0) & (block <= 1)))[0]
    raise ValueError(
        f"{name} must be probabilities between 0 and 1, without NaN: sample {sample}, row {start + row}, "
        f"label {label} is {block[sample, row, label]}"
    )


def whole(probs: Any, name: str = "probs") -> Array:
    """Return all of `probs` as one checked float64 array (sample, row, labels)."""
    blocks = as_blocks(probs, name)
    if not isinstance(probs, RowBlocks):
        array = np.asarray(probs, float)
        check_block(array, 0, name)
        return array
    out = np.empty(blocks.shape)
    for part, block in read_blocks(probs, name):
        out[:, part] = block
    return out


def over_rows(kernel: Callable[[Array], Array], probs: Any, name: str = "probs") -> Array:
    """Return `kernel` of every block, joined along the rows: ``kernel(block) -> (rows, ...)``."""
    blocks = as_blocks(probs, name)
    parts = [kernel(block) for _, block in read_blocks(probs, name)]
    return np.concatenate(parts) if parts else kernel(np.zeros((blocks.samples, 0, blocks.labels)))


def binary_entropy(p: Array) -> Array:
    """Return h(p) = -p log p - (1 - p) log(1 - p) in nats, 0 at 0 and 1."""
    # The floor is the smallest normal number: no p above it is moved, and 0 log(floor) is exactly 0.
    tiny = np.finfo(p.dtype).tiny
    total = np.maximum(p, tiny)
    np.log(total, out=total)
    total *= p
    q = 1 - p
    logs = np.maximum(q, tiny)
    np.log(logs, out=logs)
    logs *= q
    total += logs
    return np.negative(total, out=total)


def entropy_of(table: Array, axis: Any = -1) -> Array:
    """Return -sum p log p in nats along `axis`, with 0 log 0 = 0."""
    logs = np.maximum(table, np.finfo(float).tiny)
    np.log(logs, out=logs)
    logs *= table
    return -logs.sum(axis=axis)


def mean_over_draws(block: Array) -> Array:
    """Return the mean of a block (sample, row, labels) over its draws in float64: (row, labels)."""
    return block.mean(axis=0, dtype=float)


def mean_and_entropy(block: Array) -> tuple[Array, Array]:
    """Return E[p] and E[h(p)] over the draws of a block, both float64 (row, labels).

    Logarithms are taken in the precision of the block: float32 costs about 3e-8 nats a label.
    """
    samples, rows, labels = block.shape
    mean, conditional = np.zeros((2, rows, labels))
    step = max(1, _CHUNK // (_GROUP * labels))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        for first in range(0, samples, _GROUP):
            chunk = block[first : first + _GROUP, part]
            mean[part] += chunk.sum(axis=0)
            conditional[part] += binary_entropy(chunk).sum(axis=0)
    return mean / samples, conditional / samples


def outcome_table(block: Array) -> Array:
    """Return P(all labels of a row = outcome | draw) of every outcome: (sample, row, 2^labels).

    Outcome k has label l positive where bit l of k (counted from the highest) is set.
    """
    samples, rows, labels = block.shape
    table = np.ones((samples, rows, 1))
    for label in range(labels):
        p = block[:, :, label, None]
        table = np.stack([table * (1 - p), table * p], axis=-1).reshape(samples, rows, 2 ** (label + 1))
    return table


def log_odds(block: Array) -> tuple[Array, Array]:
    """Return (log p - log(1 - p), log(1 - p)) in float64, -1e4 in place of log 0.

    exp(-1e4) is 0 in float64, so an outcome that a draw excludes gets no weight, and 0 times it stays 0.
    """
    p = np.asarray(block, float)
    yes, no = np.full(p.shape, -1e4), np.full(p.shape, -1e4)
    np.log(p, out=yes, where=p > 0)
    np.log1p(-p, out=no, where=p < 1)
    return yes - no, no
