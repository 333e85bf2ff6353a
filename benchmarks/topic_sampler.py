"""Samplers of Bernoulli-Poisson topics against NUTS on three simulated problems.

``python benchmarks/topic_sampler.py --problem b`` simulates one data set of the sizes below, runs every
engine in replicates of 4 chains from scattered starts, and prints, over 200 fixed label probabilities: the
minimum of the rank-normalised multi-chain effective sample size a CPU second of kept draws, the largest split
R-hat, and the seconds to a minimum of 400 with compilation and warm-up. Intervals are 95 % over replicates;
the ratio of two engines has a Welch interval on its logarithm. Runs whose R-hat exceeds 1.05 are marked: an
effective sample size over chains that disagree means nothing.

``--rhat`` instead follows one run of ``gibbs``: R-hat and minimum ESS against the number of sweeps.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.stats import t as student

from labelzoo.data import LabelData
from labelzoo.inference.compare.functionals import evaluate
from labelzoo.inference.compare.verdict import moments
from labelzoo.models import registry

MODEL = "bernoulli_poisson_topics"
PROBLEMS: dict[str, dict[str, Any]] = {
    "a": {"rows": 100, "features": 5, "labels": 20, "topics": 3, "positives": 553, "eta": 0.5, "var": 5},
    "b": {"rows": 500, "features": 10, "labels": 50, "topics": 5, "positives": 8396, "eta": 0.5, "var": 10},
    "c": {"rows": 2000, "features": 20, "labels": 300, "topics": 10, "positives": 5435, "eta": 0.1, "var": 1},
}  # fmt: skip
"""Sizes; the constant of the regression is set so that the number of positives comes out. ``var``: variance
of the linear predictor, in the simulation and in the prior: the smaller, the less the features say
about the topics of a row, and the harder topics are to tell apart."""

LENGTHS = {
    "a": {"gibbs": (1000, 8000, 4), "gibbs_counts": (1000, 8000, 4), "nuts": (500, 1500, 1)},
    "b": {"gibbs": (1000, 2400, 4), "gibbs_counts": (1000, 2000, 4), "nuts": (300, 400, 1)},
    "c": {"gibbs": (800, 1200, 4), "gibbs_counts": (500, 1000, 4), "nuts": (300, 500, 1)},
}
"""Warm-up, kept and thinning: sweeps or draws a chain."""

CHAIN_METHODS = {"nuts": "sequential"}
"""Chains of NUTS that go together wait for the longest trajectory of the four; one by one they need not."""

TARGET_ESS, RHAT_LIMIT, FIRST_DRAWS, TRIAL_DRAWS, MAX_TRIAL = 400.0, 1.05, 4, 20, 1280


def simulate(name: str, seed: int = 0) -> tuple[LabelData, dict[str, Any]]:
    """Return data of a problem and the settings that fit them: the same prior, shapes learned."""
    return simulate_sizes(PROBLEMS[name], np.random.default_rng([seed, ord(name)]))


def simulate_sizes(size: dict[str, Any], rng: np.random.Generator) -> tuple[LabelData, dict[str, Any]]:
    """Return data of these sizes (the keys of `PROBLEMS`) and the settings that fit them."""
    n, d, num_labels, k = (size[key] for key in ("rows", "features", "labels", "topics"))
    X = rng.standard_normal((n, d))
    topics = rng.dirichlet(np.full(num_labels, size["eta"]), k)
    psi = X @ rng.standard_normal((d, k)) * np.sqrt(size["var"] / d)
    unit = rng.gamma(rng.gamma(2.0, 0.5, k) + 0.1, 1.0, (n, k))
    threshold = rng.exponential(size=(n, num_labels))
    rates = (unit * np.exp(psi)) @ topics
    # A positive is a rate above its threshold: the constant that gives the wanted number is a quantile.
    factor = np.sort((threshold / rates).ravel())[size["positives"] - 1 : size["positives"] + 1].mean()
    Y = (threshold < factor * rates).astype(np.int8)
    settings = {
        "num_topics": k,
        "topic_concentration": size["eta"],
        "prior_scale": float(np.sqrt(size["var"])),
        "intercept_precision": 0.1,
        "scale_rows": False,
        "standardize": False,
    }
    return LabelData.from_arrays(X, Y), settings


def probabilities(spec: Any, tree: Any, data: Any, settings: Any) -> np.ndarray:
    """Return 200 fixed label probabilities by draw, the first draws left out: (chain, draw, cell)."""
    with jax.enable_x64(True):
        inputs = spec.prepare(data, spec.resolve(settings))
    values, names = evaluate(spec, tree, inputs)
    chosen = [i for i, name in enumerate(names) if name.startswith("cell_prob")]
    return np.asarray(values)[:, FIRST_DRAWS:, chosen]


class Run(NamedTuple):
    """One engine run on: its draws, and CPU seconds.

    Attributes
    ----------
    tree : DataTree
        `FIRST_DRAWS` draws, then the kept ones.
    kept : int
        Draws a chain after the first.
    first, lasted, fixed : float
        CPU seconds until the first draws, compilation and warm-up included; of the kept draws alone; of
        compiling and reading, which every call pays.
    """

    tree: Any
    kept: int
    first: float
    lasted: float
    fixed: float


def run_engine(
    engine: Any,
    spec: Any,
    data: Any,
    kept: int | Callable[[float, float], int],
    seed: int,
    **options: Any,
) -> Run:
    """Run 4 chains: a warm-up and a few draws, then `kept` draws a chain.

    CPU seconds, since a machine is seldom idle. What a run that goes on pays once (it compiles and reads
    again) is known from a run of one draw, and taken off. Where `kept` depends on the seconds until the first
    draws and those of a draw, some more draws tell the latter.
    """
    clock = time.process_time
    began = clock()
    start = engine(
        spec,
        data,
        rng_key=seed,
        num_chains=4,
        num_samples=FIRST_DRAWS,
        chain_method=CHAIN_METHODS.get(engine.name, "vectorized"),
        **options,
    )
    first, began = clock() - began, clock()
    engine(spec, data, rng_key=seed, resume_from=start, num_samples=1)
    fixed = clock() - began

    def go_on(count: int) -> tuple[Any, float]:
        began = clock()
        tree = engine(spec, data, rng_key=seed, resume_from=start, num_samples=count)
        return tree, max(clock() - began - fixed, 1e-3) * count / (count - 1)

    count = kept if isinstance(kept, int) else kept(first, seconds_of_a_draw(go_on, fixed))
    count = max(TRIAL_DRAWS, count)
    whole, lasted = go_on(count)
    return Run(whole, count, first, lasted, fixed)


def seconds_of_a_draw(go_on: Callable[[int], tuple[Any, float]], fixed: float) -> float:
    """Return the CPU seconds of a draw; compiling does not always take the same time, so try some more."""
    count = TRIAL_DRAWS
    trial = go_on(count)[1]
    while trial < 0.25 * fixed and count < MAX_TRIAL:
        count *= 4
        trial = go_on(count)[1]
    return trial / count


def run_once(
    entry: Any,
    data: Any,
    settings: Any,
    name: str,
    lengths: tuple[int, int, int],
    seed: int,
    seconds: float | None = None,
) -> dict[str, float]:
    """Run one engine once and return its figures, CPU seconds throughout.

    `seconds`, where given, are for all of it; `lengths` then gives the warm-up and the thinning alone.
    """
    warmup, samples, thinning = lengths

    def in_time(first: float, each: float) -> int:
        return int(((seconds or 0.0) - first) / each)  # compilation counts against it

    kept = samples // thinning if seconds is None else in_time
    run = run_engine(
        entry.engines[name], entry.spec, data, kept, seed, num_warmup=warmup, thinning=thinning, **settings
    )
    m = moments(probabilities(entry.spec, run.tree, data, settings))
    rate = float(np.nanmin(m.ess_bulk)) / run.lasted
    sweeps = 4 * run.kept * thinning
    return {
        "min_ess_per_second": rate,
        "median_ess_per_second": float(np.nanmedian(m.ess_bulk)) / run.lasted,
        "sweeps_per_min_ess": sweeps / float(np.nanmin(m.ess_bulk)),
        "chain_sweeps_per_second": sweeps / run.lasted,
        "seconds_to_ess_400": run.first + TARGET_ESS / rate,
        "max_rhat": float(np.nanmax(m.rhat)),
        "seconds": run.first + run.lasted,
        "fixed_seconds": run.fixed,
    }


def interval(values: list[float]) -> tuple[float, float]:
    """Return the mean and the half width of its 95 % t interval."""
    array = np.asarray(values)
    if array.size < 2:
        return float(array.mean()), float("nan")
    half = student.ppf(0.975, array.size - 1) * array.std(ddof=1) / np.sqrt(array.size)
    return float(array.mean()), float(half)


def ratio(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Return the ratio of geometric means and its 95 % interval (Welch, on logarithms)."""
    a, b = np.log(ours), np.log(theirs)
    middle = a.mean() - b.mean()
    if min(a.size, b.size) < 2:
        return float(np.exp(middle)), float("nan"), float("nan")
    parts = np.array([a.var(ddof=1) / a.size, b.var(ddof=1) / b.size])
    freedom = parts.sum() ** 2 / (parts**2 / np.array([a.size - 1, b.size - 1])).sum()
    half = student.ppf(0.975, freedom) * np.sqrt(parts.sum())
    return tuple(float(np.exp(middle + s * half)) for s in (0, -1, 1))


def race(args: argparse.Namespace) -> dict[str, Any]:
    """Run all engines on a problem and return their figures."""
    entry = registry.get(MODEL)
    data, settings = simulate(args.problem)
    report: dict[str, Any] = {"problem": args.problem, "positives": data.num_positives, "engines": {}}
    rates: dict[str, list[float]] = {}
    longest = 0.0
    for name in args.engines.split(","):
        warmup, samples, thinning = LENGTHS[args.problem][name]
        lengths = (max(10, int(warmup * args.scale)), int(samples * args.scale), thinning)
        given = args.nuts_times * longest if name == "nuts" and args.nuts_times else None
        replicates = args.nuts_replicates if name == "nuts" and args.nuts_replicates else args.replicates
        runs = []
        for index in range(replicates):
            runs.append(run_once(entry, data, settings, name, lengths, args.seed + index, given))
            print(f"{name}: {json.dumps(runs[-1])}", file=sys.stderr)
            longest = max(longest, runs[-1]["seconds"] - runs[-1]["fixed_seconds"])
        rates[name] = [run["min_ess_per_second"] for run in runs]
        figures = {key: interval([run[key] for run in runs]) for key in runs[0]}
        agree = all(run["max_rhat"] < RHAT_LIMIT for run in runs)
        report["engines"][name] = {**figures, "chains_agree": agree}
    if "nuts" in rates:
        others = [name for name in rates if name != "nuts"]
        report["over_nuts"] = {name: ratio(rates[name], rates["nuts"]) for name in others}
    return report


def follow(args: argparse.Namespace) -> dict[str, Any]:
    """Return R-hat and minimum ESS of one run of ``gibbs`` against its number of sweeps."""
    entry = registry.get(MODEL)
    data, settings = simulate(args.problem)
    _, samples, thinning = LENGTHS[args.problem]["gibbs"]
    steps = max(20, int(samples * args.scale / thinning))
    rows: list[dict[str, float]] = []
    tree = entry.engines["gibbs"](
        entry.spec,
        data,
        rng_key=args.seed,
        num_chains=4,
        num_warmup=int(samples * args.scale),
        num_samples=steps,
        thinning=thinning,
        **settings,
    )
    for part in range(args.parts):
        if part:
            tree = entry.engines["gibbs"](entry.spec, data, rng_key=0, resume_from=tree, num_samples=steps)
        # The second half of what is there: the start is forgotten more and more.
        values = probabilities(entry.spec, tree, data, settings)
        m = moments(values[:, values.shape[1] // 2 :] if part else values)
        level = tree.sample_stats["log_likelihood"].values[:, -steps:].mean(axis=1)
        rows.append(
            {
                "sweeps": int(tree.posterior.sizes["draw"] * thinning),
                "max_rhat": float(np.nanmax(m.rhat)),
                "share_above_1.05": float(np.mean(m.rhat > RHAT_LIMIT)),
                "min_ess": float(np.nanmin(m.ess_bulk)),
                "log_likelihood_of_chains": [round(float(v), 1) for v in level],
            }
        )
        print(json.dumps(rows[-1]), file=sys.stderr)
    return {"problem": args.problem, "rows": rows}


def as_text(report: dict[str, Any]) -> str:
    """Return the figures as lines."""
    if "rows" in report:
        return "\n".join(json.dumps(row) for row in report["rows"])
    lines = [f"problem {report['problem']}: {report['positives']} positives"]
    for name, figures in report["engines"].items():
        lines.append(f"{name}{'' if figures['chains_agree'] else ': CHAINS DISAGREE (R-hat)'}")
        pairs = [(k, v) for k, v in figures.items() if isinstance(v, tuple)]
        lines += [f"  {key:26}{value[0]:>10.4g} +- {value[1]:.2g}" for key, value in pairs]
    for name, (middle, low, high) in report.get("over_nuts", {}).items():
        lines.append(f"{name} / nuts, minimum ESS a second: {middle:.2f} [{low:.2f}, {high:.2f}]")
    return "\n".join(lines)


def main() -> None:
    """Parse the options, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", choices=sorted(PROBLEMS), default="b")
    parser.add_argument("--engines", default="gibbs,gibbs_counts,nuts")
    parser.add_argument("--replicates", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="multiply all run lengths")
    parser.add_argument(
        "--nuts-times",
        type=float,
        help="give NUTS so many times the seconds of the longest run before it, compilation not counted",
    )
    parser.add_argument("--nuts-replicates", type=int, help="replicates of NUTS, where not --replicates")
    parser.add_argument("--rhat", action="store_true")
    parser.add_argument("--parts", type=int, default=5, help="with --rhat: how often to look")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    report = follow(args) if args.rhat else race(args)
    print(json.dumps(report) if args.json else as_text(report))


if __name__ == "__main__":
    main()
