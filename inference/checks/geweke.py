r"""Rung 4: sweeps from exact draws of the joint law stay in the joint law.

Geweke, "Getting it right: joint distribution tests of posterior simulators", JASA 99, 2004, with exact and
independent starts as in Gandy and Scott, "Unit testing for MCMC and other Monte Carlo methods", 2021: if
(theta, y) follows the joint law and theta' is where a kernel that leaves p(theta | y) invariant ends, then
(theta', y) follows it too, whatever the number of sweeps. So f(theta', y) - f(theta, y) has mean zero over
independent replicates, for every f.

Every coordinate is mapped to t = 2 F(x) - 1, F the share of starting values below it, which bounds it and
does not care for its scale. The functions are t, t^2, products of two coordinates, and products of a
coordinate with a number in the data: means alone pass a wrong rate and PG(v) in place of PG(z + v).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from labelzoo.inference.checks.chains import NotApplicableError, kernel_of, moved, run_all
from labelzoo.inference.checks.draws import FAMILY_RATE
from labelzoo.inference.checks.joint import NoJointPriorError, Replicates, replicates
from labelzoo.inference.checks.report import CheckResult, Kind
from labelzoo.inference.engine import Engine
from labelzoo.models.spec import ModelSpec

Array = Any
Say = Callable[[str], None]

REPLICATES, SWEEPS = 3000, 5
MISSING = 0.5
"""Share of labels hidden: where all are seen, some blocks do not depend on one another."""
MOST_FUNCTIONS = 2000
"""Products are chosen at random, once and for all, where there are more."""
FEWEST_CHANGED = 50
"""A function that changes in fewer replicates (counted by weight) has no normal mean and is left out."""


class Drift(NamedTuple):
    """What sweeps changed: z by function, names, replicates."""

    z: np.ndarray
    names: list[str]
    size: int

    @property
    def largest(self) -> float:
        """Largest absolute z."""
        return float(np.abs(self.z).max(initial=0.0))

    @property
    def worst(self) -> str:
        """Name of the function with the largest z."""
        return self.names[int(np.abs(self.z).argmax())] if self.names else "nothing"


def normal_limit(tests: int, families: int) -> float:
    """Return the two-sided normal limit for `tests` scores in each of `families` checks (Bonferroni)."""
    return float(norm.isf(FAMILY_RATE / (2.0 * max(tests, 1) * max(families, 1))))


def geweke_check(
    spec: ModelSpec,
    engine: Engine,
    seed: int = 0,
    families: int = 1,
    say: Say = lambda line: None,
    *,
    count: int = REPLICATES,
    sweeps: int = SWEEPS,
    missing: Any = MISSING,
    settings: Any = None,
    sizes: Any = None,
    joint: Replicates | None = None,
) -> CheckResult:
    """Start an engine's kernel at joint draws, make a few sweeps and compare.

    On failure one fresh seed with four times the replicates decides.

    Parameters
    ----------
    spec : ModelSpec
    engine : Engine
        With a `kernel`.
    seed, families : int
        `families` checks share the false alarm rate of .001.
    say : callable
        Told what is being done.
    count, sweeps : int
    missing : float or bool array (obs, labels)
        Share of labels hidden, or which.
    settings, sizes : mapping, optional
        Settings of the program, default `joint_settings`, and sizes of the data, default the tiny ones.
    joint : Replicates, optional
        Joint draws to start from, where they are at hand.

    Returns
    -------
    CheckResult
        Without a verdict, with the reason, where the model has no joint draws or the engine no kernel.
    """
    try:
        kernel_of(spec, engine)
        draw = partial(replicates, spec, settings=settings, sizes=sizes, missing=missing, say=say)
        found = joint_drift(spec, engine, seed, draw(seed, count) if joint is None else joint, sweeps, say)
        repeated = ""
        if found.largest > normal_limit(found.z.size, families):
            repeated = " (repeated with a fresh seed and four times the replicates)"
            say(f"{spec.name}: {engine.name}, joint test repeated, z {found.largest:.1f} at {found.worst}")
            found = joint_drift(spec, engine, seed + 1, draw(seed + 1, 4 * count), sweeps, say)
    except (NotApplicableError, NoJointPriorError) as error:
        return not_applicable(engine, "geweke", error)
    return _verdict(engine, found, families, sweeps, repeated)


def _verdict(engine: Engine, found: Drift, families: int, sweeps: int, repeated: str) -> CheckResult:
    if not found.z.size:
        return not_applicable(
            engine, "geweke", f"{sweeps} sweeps from {found.size} joint draws moved nothing"
        )
    limit = normal_limit(found.z.size, families)
    passed = found.largest <= limit
    detail = (
        f"{found.size} joint draws, {sweeps} sweeps from each: largest of {found.z.size} z-scores at "
        f"{found.worst}{repeated}"
    )
    site = found.worst if not passed else ",".join(engine.random_sites)
    return CheckResult(engine.name, "geweke", site, passed, found.largest, limit, detail)


def not_applicable(engine: Engine, kind: Kind, reason: Exception | str) -> CheckResult:
    """Return a result without verdict that says why."""
    return CheckResult(engine.name, kind, "", None, np.nan, np.nan, f"not applicable: {reason}")


def joint_drift(
    spec: ModelSpec, engine: Engine, seed: int, joint: Replicates, sweeps: int, say: Say
) -> Drift:
    """Return what `sweeps` sweeps of an engine's kernel change from exact starts: one attempt, no verdict."""
    say(f"{spec.name}: {engine.name}, joint test of {sweeps} sweeps from {joint.size} joint draws")
    kernel = kernel_of(spec, engine)
    before, after = run_all(moved, joint, seed + 10_000, spec=spec, kernel=kernel, sweeps=sweeps)
    return drift(before, after, joint.arrays)


def drift(before: dict[str, np.ndarray], after: dict[str, np.ndarray], data: list[np.ndarray]) -> Drift:
    """Return z-scores of the change of bounded functions.

    Parameters
    ----------
    before, after : dict of str to array (replicate, value)
    data : list of array (replicate, ...)
    """
    lost = {name: int(np.isnan(leaf).any(axis=1).sum()) for name, leaf in after.items()}
    if any(lost.values()):
        worst = max(lost, key=lambda name: lost[name])
        return Drift(np.array([np.inf]), [f"{worst}, NaN in {lost[worst]} replicates"], len(after[worst]))
    start, names = _columns(before)
    end, _ = _columns(after)
    given, places = _columns({f"data{i}": leaf.reshape(len(leaf), -1) for i, leaf in enumerate(data)})
    t0, t1, d = _bounded(start, start), _bounded(start, end), _bounded(given, given)
    z, kept = [], []
    for name, f0, f1 in _functions(t0, t1, d, names, places):
        change = f1 - f0
        weight = (change**2).sum()
        if weight > 0 and weight**2 >= FEWEST_CHANGED * (change**4).sum():
            z.append(change.mean() / (change.std(ddof=1) / np.sqrt(len(change))))
            kept.append(name)
    return Drift(np.asarray(z), kept, len(start))


def _columns(values: dict[str, np.ndarray]) -> tuple[np.ndarray, list[str]]:
    """Return the varying numbers of all arrays as columns, and their names."""
    columns, names = [], []
    for name, leaf in values.items():
        for index in range(leaf.shape[1]):
            columns.append(np.asarray(leaf[:, index], float))
            names.append(f"{name}[{index}]" if leaf.shape[1] > 1 else name)
    table = np.stack(columns, axis=1) if columns else np.zeros((0, 0))
    return table, names


def _bounded(reference: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return 2 F(x) - 1 with F the empirical distribution of the reference, ties half."""
    out = np.empty(values.shape)
    for column in range(values.shape[1]):
        order = np.sort(reference[:, column])
        low, high = (np.searchsorted(order, values[:, column], side) for side in ("left", "right"))
        out[:, column] = (low + high) / len(order) - 1.0
    return out


def _functions(t0: np.ndarray, t1: np.ndarray, d: np.ndarray, names: list[str], places: list[str]) -> Any:
    """Yield name, values before and values after of every function."""
    for i, name in enumerate(names):
        yield name, t0[:, i], t1[:, i]
        yield f"{name}^2", t0[:, i] ** 2, t1[:, i] ** 2
    pairs = [(i, j) for i in range(len(names)) for j in range(i)]
    varying = [j for j in range(len(places)) if np.ptp(d[:, j]) > 0]
    with_data = [(i, j) for i in range(len(names)) for j in varying]
    rng = np.random.default_rng(0)
    room = max(MOST_FUNCTIONS - 2 * len(names), 200)
    for i, j in _some(pairs, room - min(len(with_data), room // 3), rng):
        yield f"{names[i]} x {names[j]}", t0[:, i] * t0[:, j], t1[:, i] * t1[:, j]
    for i, j in _some(with_data, room // 3, rng):
        yield f"{names[i]} x {places[j]}", t0[:, i] * d[:, j], t1[:, i] * d[:, j]


def _some(pairs: list[tuple[int, int]], most: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    if len(pairs) <= most:
        return pairs
    return [pairs[k] for k in np.sort(rng.choice(len(pairs), most, replace=False))]
