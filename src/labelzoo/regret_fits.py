"""Fits behind a measured regret: rows split, exact draws that converge, and runs of the engines."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats

from labelzoo.inference.compare.verdict import RHAT_LIMIT
from labelzoo.inference.fit import fit
from labelzoo.inference.predict import label_prob
from labelzoo.regret import QUARTERS, Draws, check_pool
from labelzoo.study.learners import stacked

Array = Any

ATTEMPTS = 3
"""Times a reference is run, each with four times the thinning, until it converges."""

CHECKED_CELLS = 400
"""Probabilities whose R-hat is looked at, evenly spaced over rows and labels."""

EXACT_KINDS = ("mcmc", "conjugate")

ENGINE_SEED = 1000
"""Seeds of engines begin here after the reference's, so that no random number is shared."""


class Parts(NamedTuple):
    """Rows whose labels are read, candidates, and rows to be predicted: all disjoint LabelData."""

    labelled: Any
    pool: Any
    targets: Any


@dataclass(frozen=True)
class Reference:
    """Exact draws: `sets` is (repeats x 4) of Draws, or empty where the chains did not converge."""

    engine: str
    sets: tuple[tuple[Draws, ...], ...]
    rhat: float | None
    divergences: int
    seconds: float
    thinning: int

    @property
    def converged(self) -> bool:
        """Return whether the draws may judge."""
        return self.rhat is None or self.rhat < RHAT_LIMIT


def small_enough(model: Any, data: Any, rows: int, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return data on which exact chains can converge, and `options` with the model's settings for them."""
    from labelzoo.inference.compare.subset import needs_subset, small_subset
    from labelzoo.models import registry

    _refuse_blank(data)
    if not needs_subset(data, {"mcmc"}):
        return data, dict(options)
    small = registry.get(model).spec.small_settings
    return small_subset(data, rows=rows, seed=options.get("seed", 0)), {**small, **options}


def default_reference(entry: Any) -> str:
    """Return the closed form of a model where there is one, else ``nuts``."""
    return next((name for name, engine in entry.engines.items() if engine.kind == "conjugate"), "nuts")


def split_parts(data: Any, rows: int, pool: int, targets: int, batch: int, seed: int) -> Parts:
    """Split at random: `rows` labelled; pool and targets as asked, or halves of what is left.

    Labelled are only rows with an observed label; where there are others, pool and targets are drawn from
    these and from the labelled ones that are left.

    Raises
    ------
    ValueError
        If too few rows have labels, or too few are left for a pool larger than the batch.
    """
    _refuse_blank(data)
    order = np.random.default_rng(seed).permutation(data.num_rows)
    known = ~data.unlabelled_rows[order]
    if known.sum() < rows:
        raise ValueError(
            f"rows: {rows} labelled rows are asked for, but {known.sum()} of the {data.num_rows} rows of the "
            "data have an observed label: give fewer (--rows)"
        )
    first = np.flatnonzero(known)[:rows]
    order = np.concatenate([order[first], np.delete(order, first)])
    left = data.num_rows - rows
    found = (pool, targets) if pool + targets <= left else (min(pool, (left + 1) // 2), left // 2)
    if pool > batch >= found[0]:
        raise ValueError(
            f"rows: {rows} labelled of {data.num_rows} leave {left} where a pool of {pool} and {targets} "
            f"targets are asked for; a batch of {batch} needs a pool of more than {batch} rows and about as "
            "many targets: give fewer labelled rows (--rows) or a smaller --batch"
        )
    pool = found[0]
    check_pool(pool, batch)
    cuts = np.cumsum([rows, pool, min(found[1], targets, left - pool)])
    labelled, candidates, predicted = (np.sort(part) for part in np.split(order, cuts)[:3])
    return Parts(*(data.subset(rows=part) for part in (labelled, candidates, predicted)))


def _refuse_blank(data: Any) -> None:
    if data.unlabelled_rows.all():
        raise ValueError(
            f"none of the {data.num_rows} rows of the data has an observed label: every posterior would be "
            "its prior, and there is nothing to judge"
        )


def reference_draws(
    entry: Any, parts: Parts, name: str, repeats: int, draws: int, seed: int, settings: Mapping[str, Any],
    say: Callable[[str], None] = lambda message: None,
) -> Reference:  # fmt: skip
    """Return `repeats` groups of four independent sets of exact draws, of one chain each.

    A sampler is run again with four times the thinning and twice the warm-up while its R-hat, the largest
    over the probabilities that the scores read, is 1.01 or more; after three runs it is returned as it is.
    """
    engine = entry.engines[name]
    if engine.kind not in EXACT_KINDS:
        raise ValueError(f"reference {name!r} is a {engine.kind}: exact is an mcmc or conjugate engine")
    began, chains = time.perf_counter(), QUARTERS * repeats
    if engine.kind == "conjugate":
        tree = engine(entry.spec, parts.labelled, rng_key=seed, **{**settings, "num_samples": chains * draws})
        found = _probs(tree, parts)
        sets = [_part(found, slice(i * draws, (i + 1) * draws)) for i in range(chains)]
        return Reference(name, _grouped(sets), None, 0, time.perf_counter() - began, 1)
    options = {**engine.options, **settings, "num_samples": draws, "num_chains": chains}
    for attempt in range(ATTEMPTS):
        say(
            f"{name}: exact draws, {chains} chains of {draws} with thinning {options['thinning']} after "
            f"{options['num_warmup']} of warm-up" + f" (run {attempt + 1} of {ATTEMPTS} at most)"
        )
        tree = engine(entry.spec, parts.labelled, rng_key=seed, **options)
        found = _probs(tree, parts)
        rhat, thinning = largest_rhat(found.pool.reshape(chains, draws, -1)), int(options["thinning"])
        say(f"{name}: R-hat {rhat:.3f} after {time.perf_counter() - began:.0f} s")
        if rhat < RHAT_LIMIT:
            break
        options |= {"thinning": 4 * thinning, "num_warmup": 2 * options["num_warmup"]}
    sets = [_part(found, slice(i * draws, (i + 1) * draws)) for i in range(chains)]
    return Reference(name, _grouped(sets), rhat, _divergences(tree), time.perf_counter() - began, thinning)


def largest_rhat(values: Array) -> float:
    """Return the largest split R-hat (by ranks) of draws (chain, draw, cell), over evenly spaced cells."""
    keep = np.unique(np.linspace(0, values.shape[2] - 1, CHECKED_CELLS).astype(int))
    moving = values[:, :, keep]
    moving = moving[:, :, np.ptp(moving, axis=(0, 1)) > 0]
    if not moving.size:
        return 1.0
    return float(np.nanmax(array_stats.rhat(moving, chain_axis=0, draw_axis=1)))


def engine_draws(
    entry: Any, parts: Parts, name: str, repeats: int, draws: int, seed: int, settings: Mapping[str, Any]
) -> list[Draws]:
    """Run an engine `repeats` times with its own seeds; of each run `draws` draws, evenly spaced."""
    first = seed + ENGINE_SEED
    trees = (fit(entry.spec, parts.labelled, name, seed=first + i, **settings) for i in range(repeats))
    return [_probs(tree, parts, draws) for tree in trees]


def _probs(tree: Any, parts: Parts, draws: int | None = None) -> Draws:
    # One call for both parts: where new rows have latent variables of their own, they are drawn jointly.
    X = stacked(parts.pool.X, parts.targets.X)
    found = label_prob(tree, X, num_draws=draws).values
    flat = found.reshape(-1, *found.shape[2:])
    return Draws(flat[:, : parts.pool.num_rows], flat[:, parts.pool.num_rows :])


def _part(draws: Draws, keep: slice) -> Draws:
    return Draws(draws.pool[keep], None if draws.targets is None else draws.targets[keep])


def _grouped(sets: Sequence[Draws]) -> tuple[tuple[Draws, ...], ...]:
    return tuple(tuple(sets[i : i + QUARTERS]) for i in range(0, len(sets), QUARTERS))


def _divergences(tree: Any) -> int:
    stats = tree["sample_stats"] if "sample_stats" in tree.children else {}
    return int(stats["diverging"].values.sum()) if "diverging" in stats else 0
