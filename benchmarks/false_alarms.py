"""How often right updates are called wrong: identity and stationarity over many seeds.

    python benchmarks/false_alarms.py [MODEL ...] [--seeds 1000] [--data-sets 10]
        [--fixed-points 10] [--draws 50]

Every seed draws other states and block values. Another data set is simulated --data-sets times in all, and
the first --fixed-points of them are brought to rest by every coordinate-ascent and EM engine. Draws and
kernels are tested under --draws seeds, as the fast tier does. The exit code is 1 after a false alarm.
"""

import argparse
import sys
import time
from dataclasses import replace

import jax

from labelzoo.inference.checks.case_rungs import stationarity_rung
from labelzoo.inference.checks.cases import find_cases
from labelzoo.inference.checks.draws import VALUES
from labelzoo.inference.checks.identity import (
    THRESHOLD,
    log_claim,
    make_bench,
    old_value_effect,
    other_own_values,
    swapped_blocks,
    worst_of,
)
from labelzoo.inference.checks.rungs import Setting, placed, read_claim, update_checks
from labelzoo.inference.checks.states import DataCase, data_cases
from labelzoo.inference.update import Update
from labelzoo.models import registry


def residual(update: Update, setting: Setting) -> float:
    """Return the worst residual of one update at fresh states, old values included."""
    for case in setting.cases:
        at = placed(setting, update.view, case, update.sites)
        if at is None:
            continue
        inputs, about = read_claim(update, at, case)
        blocks = swapped_blocks(at.states, update.sites, VALUES)
        bench = make_bench(case.name, inputs, at.inputs, setting.spec.views[update.view], at.states, blocks)
        count = len(about.parameters)
        claimed = log_claim(bench, update.given, update.sites, count)
        states = other_own_values(bench, update.sites)
        after = log_claim(bench, update.given, update.sites, count, states=states)
        return max(worst_of(bench, claimed)[0], old_value_effect(claimed, after))
    raise ValueError(f"{update.name}: no data set has its sites")


def run(model: str, seeds: int, data_sets: int, fixed_points: int, draws: int) -> int:
    """Print what was seen of one model and return the number of false alarms."""
    entry, alarms, worst, tried = registry.get(model), 0, 0.0, 0
    start = time.perf_counter()
    cases: list[DataCase] = []
    for seed in range(seeds):
        if seed % -(-seeds // data_sets) == 0:
            cases = data_cases(entry.spec, seed)
        setting = Setting(entry.spec, cases, {}, {}, 16, seed, 1, False, set())
        for update in entry.updates:
            found, tried = residual(update, setting), tried + 1
            worst, alarms = max(worst, found), alarms + (found > THRESHOLD)
            if found > THRESHOLD:
                print(f"{model} {update.name} seed {seed}: residual {found:.1e}", flush=True)
    print(f"{model}: identity {tried} times at {seeds} seeds, worst residual {worst:.1e}, {alarms} alarms")
    alarms += stationary(entry, fixed_points)
    alarms += drawn(entry, draws)
    print(f"{model}: {time.perf_counter() - start:.0f} s", flush=True)
    return alarms


def stationary(entry: registry.Entry, count: int) -> int:
    """Return the number of right engines whose gradient did not vanish on `count` data sets."""
    alarms, worst = 0, 0.0
    found = find_cases(entry.spec, "stationarity")
    for seed in range(count):
        setting = Setting(entry.spec, data_cases(entry.spec, seed), {}, {}, 16, seed, 1, False, set())
        for case in found:
            row = stationarity_rung(case, setting, lambda line: None).checks[0]
            worst, alarms = max(worst, row.statistic), alarms + (not row.passed)
            if not row.passed:
                print(f"{case.name} seed {seed}: {row.detail} {row.statistic:.1e}")
    said = f"{len(found)} fixed points of {count} data sets, worst gradient {worst:.1e}, {alarms} alarms"
    print(f"{entry.spec.name}: {said}")
    return alarms


def drawn(entry: registry.Entry, seeds: int) -> int:
    """Return the number of right samplers and kernels that fail at `seeds` seeds, one data set."""
    alarms, tried = 0, 0
    cases = data_cases(entry.spec, 0)
    plain = [replace(update, mutants=()) for update in entry.updates]
    for seed in range(seeds):
        setting = Setting(entry.spec, cases, {}, {}, 16, seed, 2 * len(plain), False, set())
        for update in plain:
            for row in update_checks(update, setting):
                tried, alarms = tried + 1, alarms + (row.passed is False)
                if row.passed is False:
                    print(f"{entry.spec.name} {update.name} {row.kind} seed {seed}: {row.detail}", flush=True)
    print(f"{entry.spec.name}: identity, draws and kernels {tried} times at {seeds} seeds, {alarms} alarms")
    return alarms


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*", default=registry.names())
    for name, default in (("seeds", 1000), ("data-sets", 10), ("fixed-points", 10), ("draws", 50)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with jax.enable_x64(True):
        alarms = sum(
            run(model, options.seeds, options.data_sets, options.fixed_points, options.draws)
            for model in options.models
        )
    sys.exit(1 if alarms else 0)


if __name__ == "__main__":
    main()
