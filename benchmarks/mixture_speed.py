"""How long the variational engines of gp_bernoulli_mixture take, beside Cholesky factorisations in one run.

    python benchmarks/mixture_speed.py sweep [--rows 1000] [--components 20] [--labels 159]
    python benchmarks/mixture_speed.py traces --data enron.npz [--rows 1123] [--components 10]
    python benchmarks/mixture_speed.py sparse --data debtags.npz [--components 30] [--inducing 200]

Set OPENBLAS_NUM_THREADS to the cores. Times hang on the machine; their ratios hang on it less. `traces`
counts sweeps, not seconds: a sweep of either engine costs the same factorisations, a refused long step one
more, which is counted as part of its sweep. The gain is from the bound after the first sweep, so that it does
not hang on how the start is counted.
"""

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from labelzoo.data import LabelData
from labelzoo.inference.fixed_point import iterate
from labelzoo.inference.gp_bernoulli_mixture import bounds, sparse, sparse_steps, starts, structured
from labelzoo.inference.gp_bernoulli_mixture.factors import Problem, problem_of
from labelzoo.models.gp_bernoulli_mixture_card import spec

Array = Any
SHARES = (0.9, 0.99, 0.999)
WAYS = ("k-means", "Bernoulli mixture", "random")


def made_up(rows: int, labels: int, features: int = 20, seed: int = 0) -> LabelData:
    """Return normal rows and labels of four groups of rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    theta = rng.beta(0.4, 1.6, (4, labels))
    group = (X[:, 0] > 0) + 2 * (X[:, 1] > 0)
    return LabelData(X, (rng.random((rows, labels)) < theta[group]).astype(np.int8))


def seconds_of(work: Any) -> float:
    """Return wall-clock seconds of `work()`."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def sweep(rows: int, components: int, labels: int, repeats: int = 5) -> None:
    """Print the time of one sweep against as many Cholesky factorisations as there are components."""
    settings = spec.resolve({"num_components": components})
    problem = problem_of(spec.prepare(made_up(rows, labels), settings))
    phi = starts.responsibilities_of(problem, 2, np.random.default_rng(0))
    state = structured.sweep(problem, structured.start_from(problem, phi))
    assert problem.covariance is not None
    C = np.ascontiguousarray(problem.covariance) + np.eye(rows)
    print(f"{rows} rows, {components} components, {labels} labels, basis {problem.factor.shape[1]}")
    ratios = []
    for _ in range(repeats):
        unit = seconds_of(lambda: [np.linalg.cholesky(C) for _ in range(components)])
        whole = seconds_of(lambda: structured.sweep(problem, state))
        ratios.append(whole / unit)
        print(f"  {components} x numpy Cholesky {unit:7.3f} s   sweep {whole:7.3f} s   {whole / unit:.2f} x")
    print(f"  median ratio {np.median(ratios):.2f}; goal at most 3")


def climbs() -> dict[str, bounds.Climb]:
    """Return what is traced: plain sweeps of both engines, and both as they run."""
    return {
        "structured, plain": bounds.climb_of("structured", False),
        "structured, as it runs": bounds.climb_of("structured", True),
        "mean_field, as published": bounds.climb_of("mean_field", False, "iterate"),
        "mean_field, as it runs": bounds.climb_of("mean_field", True),
    }


def subset(data: LabelData, rows: int, seed: int = 0) -> LabelData:
    """Return some rows at random."""
    chosen = np.random.default_rng(seed).permutation(data.num_rows)[:rows]
    return data.subset(rows=np.sort(chosen))


def traced(problem: Problem, climb: bounds.Climb, phi: Array, most: int) -> Array:
    """Return the bound after every sweep from responsibilities `phi`."""
    start = climb.start(problem, phi)
    return iterate(bounds.step_of(climb, problem), start, max_iter=most, tolerance=1e-9).objective


def traces(data: LabelData, rows: int, components: int, gate_means: list[float], most: int) -> None:
    """Print how many sweeps each climb takes to a share of its gain, and the traces."""
    part = subset(data, rows)
    for gate_mean in gate_means:
        settings = spec.resolve({"num_components": components, "gate_mean": gate_mean})
        problem = problem_of(spec.prepare(part, settings))
        for number, way in enumerate(WAYS):
            phi = starts.responsibilities_of(problem, number, np.random.default_rng(0))
            print(f"gate_mean {gate_mean:g}, start {way}, {part.num_rows} rows, K = {components}")
            for name, climb in climbs().items():
                values = traced(problem, climb, phi, most)
                gain = (values - values[0]) / max(float(values[-1] - values[0]), 1e-300)
                counts = "  ".join(f"{100 * s:g} %: {int(np.argmax(gain >= s)) + 1:4d}" for s in SHARES)
                near = int(np.argmax(values >= values[-1] - 0.01 * abs(values[-1]))) + 1
                shown = values[np.unique(np.minimum([0, 1, 2, 4, 9, 19, 49, 99, 299], len(values) - 1))]
                text = " ".join(f"{value:.1f}" for value in shown)
                ended = "at rest" if len(values) < most else "not at rest"
                counts += f"  within 1 % of the end: {near:4d}"
                print(f"  {name:26s} sweeps to {counts}   of {len(values)} ({ended})")
                print(f"    bound after sweeps 1 2 3 5 10 20 50 100 300 as far as made: {text}")


def peak_memory() -> float:
    """Return the largest memory of the process so far, GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def passes(data: LabelData, components: int, inducing: int, count: int) -> None:
    """Print the time of passes of the sparse engine, in both precisions, and the peak memory."""
    begin = time.perf_counter()
    inputs = spec.prepare(data, spec.resolve({"num_components": components, "num_inducing": inducing}))
    print(f"{data.num_rows} rows, {data.num_labels} labels, {inducing} inducing rows, K = {components}")
    print(f"  prepared in {time.perf_counter() - begin:.1f} s; {peak_memory():.2f} GiB so far")
    ends = []
    for name, kind in (("64-bit", np.float64), ("32-bit products", np.float32)):
        task = sparse_steps.task_of(inputs, kind)
        begin = time.perf_counter()
        natural = sparse.best_start(task, 1, np.random.default_rng(0))
        print(f"  {name}: start {time.perf_counter() - begin:.2f} s")
        values = []
        for number in range(count):
            begin = time.perf_counter()
            natural, value = sparse_steps.whole_pass(task, natural)
            values.append(value)
            print(f"    pass {number + 1} {time.perf_counter() - begin:6.2f} s, bound {value:.2f}")
        ends.append(values[-1])
    print(f"  relative difference of the bounds {abs(ends[1] / ends[0] - 1):.1e}")
    print(f"  peak memory of the process {peak_memory():.2f} GiB; goals: 5 s a pass, 4 GiB")


def main() -> None:
    """Read the options and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("sweep", "traces", "sparse"))
    parser.add_argument("--data", type=Path, help="npz file for traces and sparse")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--components", type=int)
    parser.add_argument("--labels", type=int, default=159)
    parser.add_argument("--inducing", type=int, default=200)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--gate-means", type=float, nargs="+", default=[0.0, -6.0])
    parser.add_argument("--sweeps", type=int, default=300, help="most sweeps of a trace")
    options = parser.parse_args()
    if options.what == "sweep":
        sweep(options.rows or 1000, options.components or 20, options.labels)
        return
    if options.data is None:
        parser.error(f"{options.what} needs --data")
    data = LabelData.from_npz(options.data)
    if options.what == "traces":
        traces(data, options.rows or 400, options.components or 10, options.gate_means, options.sweeps)
    else:
        passes(data, options.components or 30, options.inducing, options.passes)


if __name__ == "__main__":
    main()
