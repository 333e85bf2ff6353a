"""What the EM engines of Bernoulli-Poisson topics cost at scale: seconds, bytes and how they grow.

    python benchmarks/em_scale.py --shape paper [--topics 100] [--dense] [--dtype float32] [--json]
    python benchmarks/em_scale.py --shape debtags --data PATH_OF_NPZ [--engine vb_em]
    python benchmarks/em_scale.py --shape emoji [--data PATH_OF_NPZ]
    python benchmarks/em_scale.py --shape online

``paper``: simulated, 12920 rows, 500 sparse features, 983 labels, 246088 positives. ``online``: simulated,
200 000 rows, 200 sparse features, 100 000 labels, 1 000 000 positives, 32 topics. CPU seconds stand beside
wall seconds; set ``OPENBLAS_NUM_THREADS=1`` and pin to a core (``taskset -c 0``) for figures of one core.
The peak memory is that of the whole process, imports and compilation included.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from labelzoo.data import LabelData, load
from labelzoo.inference.bernoulli_poisson_topics.em import begin, em_config
from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData, em_data, transposed_times
from labelzoo.inference.bernoulli_poisson_topics.em_gradient import BLOCKS, gradient_norms
from labelzoo.inference.bernoulli_poisson_topics.em_objective import objective
from labelzoo.inference.bernoulli_poisson_topics.em_steps import expected_counts, sweep
from labelzoo.inference.bernoulli_poisson_topics.em_weights import exact_weights, preconditioned_weights
from labelzoo.inference.bernoulli_poisson_topics.memory_plan import memory_plan
from labelzoo.inference.bernoulli_poisson_topics.starts import make_start
from labelzoo.inference.polya_gamma import mean as polya_gamma_mean
from labelzoo.models import registry
from labelzoo.models.bernoulli_poisson_topics_card import prepare, spec

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)


def simulated(rows: int, features: int, labels: int, positives: int, seed: int, per_row: float) -> LabelData:
    """Draw sparse features of Zipf frequencies, and positives from topics that the features choose."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / np.arange(1, features + 1) ** 0.8
    entries = rng.choice(features, size=int(1.4 * per_row * rows), p=weight / weight.sum())
    owner = rng.integers(0, rows, entries.size)
    X = sparse.csr_array((np.ones(entries.size), (owner, entries)), shape=(rows, features))
    X.sum_duplicates()
    X.data[:] = 1.0
    topic_of_feature = rng.integers(0, 40, features)
    codes = np.zeros(0, np.int64)
    while codes.size < positives:
        count = int(1.3 * (positives - codes.size)) + 1000
        row = rng.integers(0, rows, count)
        length = np.diff(X.indptr)[row]
        at = X.indptr[row] + (rng.random(count) * np.maximum(length, 1)).astype(np.int64)
        topic = topic_of_feature[X.indices[np.minimum(at, X.nnz - 1)]]
        rank = (labels ** rng.random(count)).astype(np.int64) - 1
        label = (rank + topic * (labels // 40)) % labels
        codes = np.unique(np.concatenate([codes, row * labels + label]))
    codes = np.sort(rng.choice(codes, positives, replace=False))
    Y = sparse.csr_array(
        (np.ones(positives, np.int8), (codes // labels, codes % labels)), shape=(rows, labels)
    )
    return LabelData(X, Y)


def best_seconds(call: Callable[[], Any], repeats: int = 5) -> tuple[float, float]:
    """Return the least wall and CPU seconds of `repeats` calls, after one to warm up."""
    jax.block_until_ready(call())
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(call())
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus)


def peak_gib() -> float:
    """Return the largest resident size of this process so far, GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def thinned(inputs: dict[str, Any], share: float) -> dict[str, Any]:
    """Return the inputs with a random share of the positives, the others turned into zeros."""
    cells = inputs["positives"]
    total = cells.row.shape[0]
    kept = np.sort(np.random.default_rng(7).choice(total, round(share * total), replace=False))
    rows, labels = np.asarray(cells.row)[kept], np.asarray(cells.label)[kept]
    negatives = inputs["negatives"]._replace(row=rows, label=labels, sign=-np.ones(kept.size))
    return {**inputs, "positives": cells._replace(row=rows, label=labels), "negatives": negatives}


def iteration(
    inputs: dict[str, Any], algorithm: Any, w_step: str, dtype: str, warm: int = 3
) -> tuple[Callable[[], Any], EMData, Any, Any]:
    """Return a compiled sweep with objective at a state some sweeps after the start, and what it reads."""
    data = em_data(inputs, dtype={"float32": jnp.float32, "float64": jnp.float64}[dtype])
    config = em_config(algorithm, inputs, w_step=w_step)
    state = begin(make_start(inputs, jax.random.key(0), "random"), data, config, 1.0)

    def advance(state: Any, data: Any) -> Any:
        new = sweep(state, data, config)
        return new, objective(new, data, config)

    step = jax.jit(advance)
    for _ in range(warm):
        state = step(state, data)[0]
    return (lambda: step(state, data)), data, config, state


def paper(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds an iteration, how they follow the positives, and how right the preconditioned weights are."""
    data = simulated(12920, 500, 983, 246088, 0, 18.5)
    settings = {"num_topics": args.topics, "shape": 1.0, "sparse_features": not args.dense}
    inputs = prepare(data, spec.resolve(settings))
    out: dict[str, Any] = {"topics": args.topics, "dtype": args.dtype, "features_a_row": data.X.nnz / 12920}
    plan = memory_plan(inputs, dtype=args.dtype)
    out["planned_gib"] = sum(plan.values()) / 2**30
    if args.memory_only:
        call, cells, config, state = iteration(inputs, "vb", "newton", args.dtype)
        jax.block_until_ready(jax.jit(lambda s, d: gradient_norms(s, d, config))(state, cells))
        return out
    for w_step in ("newton", "cg", "preconditioned", "newton_preconditioned"):
        call, cells, config, state = iteration(inputs, "vb", w_step, args.dtype)
        out[f"seconds {w_step} (wall, cpu)"] = best_seconds(call)
        if w_step == "newton":
            out |= gradient_figures(state, cells, config)
    out |= weight_error(inputs, args.dtype) | growth(inputs, args.dtype)
    return out


def gradient_figures(state: Any, data: EMData, config: Any) -> dict[str, Any]:
    """Seconds of the gradient norm, and its blocks 30 sweeps later."""
    norms, step = jax.jit(gradient_norms, static_argnums=2), jax.jit(sweep, static_argnums=2)
    seconds = best_seconds(lambda: norms(state, data, config))
    later = state
    for _ in range(30):
        later = step(later, data, config)
    return {
        "seconds of the gradient norm (wall, cpu)": seconds,
        "relative gradient norm after 33 sweeps": dict(
            zip(BLOCKS, map(float, norms(later, data, config)), strict=True)
        ),
    }


def weight_error(inputs: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Relative error of the preconditioned weights from zero, and the steps they took."""
    _, data, _, state = iteration(inputs, "vb", "newton", dtype)
    omega = polya_gamma_mean(state.row_counts + state.shape, state.psi)
    target = 0.5 * (state.row_counts - state.shape)
    # The judge works in float64 on the same omega and target: a float32 factor is itself off by 1e-4.
    wide = jax.tree.map(lambda a: a.astype(jnp.float64) if a.dtype == jnp.float32 else a, data)
    exact = exact_weights(wide, omega.astype(jnp.float64), target.astype(jnp.float64), wide.precision)
    out: dict[str, Any] = {}
    for name, start in (("zero", 0.0), ("the weights before", 1.0)):
        first = state._replace(weights=start * state.weights, psi=start * state.psi)
        solve = jax.jit(lambda f: preconditioned_weights(data, omega, target, data.precision, f, (2, 1e-4)))
        weights, _, steps = solve(first)
        error = float(jnp.linalg.norm(weights - exact) / jnp.linalg.norm(exact))
        out[f"preconditioned from {name} (relative error, steps)"] = (error, int(steps))
    # One step beside one product with X: what a factor costs.
    out["seconds X'r (wall, cpu)"] = best_seconds(lambda: jax.jit(transposed_times)(data, target))
    return out


def growth(inputs: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Fit seconds = a + b positives of a whole iteration, and the exponent of the E step alone."""
    counts, whole, estep = [], [], []
    for share in SHARES:
        part = thinned(inputs, share)
        call, data, _, state = iteration(part, "vb", "newton", dtype, warm=1)
        count = jax.jit(expected_counts)
        counts.append(part["positives"].row.shape[0])
        whole.append(best_seconds(call)[1])
        estep.append(best_seconds(partial(count, state.log_topics, state.log_embedding, data.positives))[1])
    slope, level = np.polyfit(counts, whole, 1)
    exponent = np.polyfit(np.log(counts), np.log(estep), 1)[0]
    return {
        "positives": counts,
        "CPU seconds an iteration": whole,
        "CPU seconds of the E step": estep,
        "iteration = a + b x positives (a s, b ns)": (level, 1e9 * slope),
        "log-log exponent of the E step, 20 to 100 %": exponent,
    }


def to_convergence(args: argparse.Namespace) -> dict[str, Any]:
    """Fit with the engine's defaults to convergence."""
    data = load("emoji") if args.data is None else LabelData.from_npz(args.data)
    engine = registry.get(spec.name).engines[args.engine]
    options: dict[str, Any] = {"dtype": args.dtype}
    if args.max_iter:
        options["max_iter"] = args.max_iter
    wall, cpu = time.perf_counter(), time.process_time()
    topics = min(args.topics, data.num_labels)
    tree = engine(spec, data, rng_key=0, num_topics=topics, **options)
    return {
        "rows, features, labels": (data.num_rows, data.num_features, data.num_labels),
        "topics": topics,
        "wall seconds": time.perf_counter() - wall,
        "CPU seconds": time.process_time() - cpu,
        "compile seconds": tree.attrs["compile_seconds"],
        "converged": tree.attrs["converged"],
        "message": tree.attrs["message"],
        "sweeps": tree.attrs.get("num_sweeps"),
    }


def online(args: argparse.Namespace) -> dict[str, Any]:
    """One epoch of online EM on simulated rows."""
    data = simulated(200_000, 200, 100_000, 1_000_000, 0, 10.0)
    before = peak_gib()
    engine = registry.get(spec.name).engines["online_em"]
    wall, cpu = time.perf_counter(), time.process_time()
    tree = engine(spec, data, rng_key=0, num_topics=32, epochs=1)
    return {
        "peak GiB before the fit": before,
        "wall seconds": time.perf_counter() - wall,
        "CPU seconds": time.process_time() - cpu,
        "message": tree.attrs["message"],
        "objective a row": tree["optimization"]["objective"].values[[0, -1]].tolist(),
    }


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=["paper", "debtags", "emoji", "online"], required=True)
    parser.add_argument("--data", help="npz file of the real sets")
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--engine", default="vb_em")
    parser.add_argument("--max-iter", type=int, default=0)
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    parser.add_argument("--dense", action="store_true", help="give the features as an array")
    parser.add_argument("--memory-only", action="store_true", help="a few sweeps, for the peak memory")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with jax.enable_x64(True):
        run = {"paper": paper, "online": online}.get(args.shape, to_convergence)
        result = {**run(args), "peak GiB": peak_gib()}
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
