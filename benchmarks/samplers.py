"""Agreement and efficiency of the samplers of Bernoulli-Poisson topics on simulated data.

``python benchmarks/samplers.py`` simulates N=100, D=5, L=20, K=3 once, runs every engine several times from
different seeds, and prints for each: effective draws a second on label-switching-free functionals (bulk and
tail; median and minimum), seconds to a minimum ESS of 400 with compilation and warm-up counted, split R-hat,
and the 95 % upper limit of |difference| / posterior sd from pooled NUTS. Intervals are over replicates.
"""

import argparse
import json
import sys
import time
from typing import Any

import jax
import numpy as np
from topic_sampler import interval

from labelzoo.inference.compare.functionals import evaluate
from labelzoo.inference.compare.verdict import AGREE_SD, difference, moments
from labelzoo.models import registry

MODEL = "bernoulli_poisson_topics"
SIZES = {"num_obs": 100, "num_features": 5, "num_labels": 20, "num_topics": 3}
SETTINGS = {
    "num_topics": 3,
    "topic_concentration": 0.5,
    "shape_prior": (8.0, 8.0),
    "prior_scale": 1.0,
    "intercept_precision": 4.0,
}
"""A quarter of the labels positive, shapes learned: a posterior that NUTS can be made to converge on."""

LENGTHS = {"gibbs": (1000, 8000), "gibbs_counts": (1000, 10000), "nuts": (600, 1200)}
THINNING = {"gibbs": 4, "gibbs_counts": 5, "nuts": 1}


def run_once(entry: Any, data: Any, name: str, seed: int, scale: float) -> tuple[dict[str, float], Any]:
    """Run one engine once; return its figures and its draws of the functionals (chain, draw, functional)."""
    warmup, samples = (max(10, int(n * scale)) for n in LENGTHS[name])
    thinning = THINNING[name]
    engine = entry.engines[name]
    options = {"num_warmup": warmup, "num_samples": max(10, samples // thinning), "thinning": thinning}
    tree = engine(entry.spec, data, rng_key=seed, num_chains=4, **options, **SETTINGS)
    with jax.enable_x64(True):
        inputs = entry.spec.prepare(data, entry.spec.resolve(SETTINGS))
    values, _ = evaluate(entry.spec, tree, inputs)
    m = moments(values)
    run, compiling = tree.attrs["run_seconds"], tree.attrs["compile_seconds"]
    kept = run * samples / (samples + warmup)
    minimum = float(np.nanmin(np.minimum(m.ess_bulk, m.ess_tail)))
    figures = {
        "compile_seconds": compiling,
        "sweeps_per_second": 4 * samples / kept,
        "bulk_median_per_second": float(np.nanmedian(m.ess_bulk)) / kept,
        "bulk_min_per_second": float(np.nanmin(m.ess_bulk)) / kept,
        "tail_median_per_second": float(np.nanmedian(m.ess_tail)) / kept,
        "tail_min_per_second": float(np.nanmin(m.ess_tail)) / kept,
        "seconds_to_ess_400": compiling + run - kept + kept * 400 / minimum,
        "max_rhat": float(np.nanmax(m.rhat)),
    }
    return figures, values


def main() -> None:
    """Parse the options, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", default="gibbs,gibbs_counts,nuts")
    parser.add_argument("--replicates", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="multiply all run lengths")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    entry = registry.get(MODEL)
    data, _ = entry.spec.simulate(jax.random.key(0), SIZES, **SETTINGS)
    report: dict[str, Any] = {"positives": data.num_positives, "replicates": args.replicates, "engines": {}}
    pooled = {}
    for name in args.engines.split(","):
        began = time.perf_counter()
        runs = [run_once(entry, data, name, args.seed + i, args.scale) for i in range(args.replicates)]
        pooled[name] = np.concatenate([values for _, values in runs], axis=0)
        figures = {key: interval([f[key] for f, _ in runs]) for key in runs[0][0]}
        report["engines"][name] = figures
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    summaries = {name: moments(values) for name, values in pooled.items()}
    for name, m in summaries.items():
        entry_report = report["engines"][name]
        entry_report["pooled_max_rhat"] = float(np.nanmax(m.rhat))
        entry_report["pooled_min_ess"] = float(np.nanmin(np.minimum(m.ess_bulk, m.ess_tail)))
        if name != "nuts" and "nuts" in summaries:
            gap = difference(m, summaries["nuts"], "mcmc")
            entry_report |= {
                "upper": gap.upper,
                "max_z": gap.max_z,
                "agrees": bool((gap.upper or 9) < AGREE_SD),
            }
    if {"gibbs", "nuts"} <= set(report["engines"]):
        ours, theirs = (report["engines"][n]["bulk_min_per_second"][0] for n in ("gibbs", "nuts"))
        report["gibbs_over_nuts_min_bulk"] = ours / theirs
    print(json.dumps(report) if args.json else as_text(report))


def as_text(report: dict[str, Any]) -> str:
    """Return the figures as a table."""
    names = list(report["engines"])
    lines = [f"{report['positives']} positives, {report['replicates']} replicates of 4 chains", ""]
    lines.append(f"{'':26}" + "".join(f"{name:>24}" for name in names))
    for key in [k for k, v in report["engines"][names[0]].items() if isinstance(v, tuple)]:
        cells = []
        for name in names:
            value = report["engines"][name].get(key)
            if isinstance(value, tuple):
                cells.append(f"{value[0]:.4g} +- {value[1]:.2g}")
            else:
                cells.append("-" if value is None else f"{value:.4g}")
        lines.append(f"{key:26}" + "".join(f"{cell:>24}" for cell in cells))
    for key in ("pooled_max_rhat", "pooled_min_ess", "upper", "max_z", "agrees"):
        cells = [report["engines"][name].get(key) for name in names]
        lines.append(
            f"{key:26}"
            + "".join(
                f"{'-' if c is None else format(c, '.3g') if key != 'agrees' else str(c):>24}" for c in cells
            )
        )
    if "gibbs_over_nuts_min_bulk" in report:
        lines.append(
            f"\ngibbs over nuts, minimum bulk ESS a second: {report['gibbs_over_nuts_min_bulk']:.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
