"""Nanoseconds a Polya-Gamma draw: this package in float32 and float64, augax, and the polyagamma package.

Run ``python benchmarks/polya_gamma.py --draws 1000000``. Every figure is the fastest of ``--repeats`` calls
that each draw ``--draws`` values at one (b, c), compile time apart; figures of one run are comparable,
those of two machines are not. CPU time is printed beside wall time because a shared machine inflates the
latter. The last columns of a row say how far the mean was from the exact one, in standard errors: a fast
wrong sampler is no peer.
"""

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from labelzoo.inference.polya_gamma import mean, sample_polya_gamma, variance

SHAPES = (0.001, 0.05, 0.3, 1.0, 2.7, 8.0, 20.0, 170.5)
TILTS = (0.0, 2.0, 10.0)
Draw = Callable[[int], np.ndarray]


def jax_sampler(dtype: str, backend: str, b: np.ndarray, c: np.ndarray) -> tuple[Draw, float]:
    """Compile one call of the package's sampler; return it and the seconds to trace and compile."""
    shape, tilt = jnp.asarray(b, dtype), jnp.asarray(c, dtype)
    draw = jax.jit(lambda key, b, c: sample_polya_gamma(key, b, c, backend=backend))
    start = time.perf_counter()
    compiled = draw.lower(jax.random.key(0), shape, tilt).compile()
    seconds = time.perf_counter() - start
    return lambda seed: compiled(jax.random.key(seed), shape, tilt).block_until_ready(), seconds


def raw_augax(b: np.ndarray, c: np.ndarray) -> tuple[Draw, float]:
    """Compile one call of augax itself, without this package's guards."""
    import augax

    shape, tilt = jnp.asarray(b), jnp.asarray(c)
    start = time.perf_counter()
    compiled = jax.jit(augax.pg_sample).lower(shape, tilt, jax.random.key(0)).compile()
    seconds = time.perf_counter() - start
    return lambda seed: compiled(shape, tilt, jax.random.key(seed)).block_until_ready(), seconds


def raw_polyagamma(b: np.ndarray, c: np.ndarray) -> tuple[Draw, float]:
    """Return one call of the polyagamma package with its default method."""
    from polyagamma import random_polyagamma

    return lambda seed: random_polyagamma(b, c, random_state=np.random.default_rng(seed)), 0.0


def samplers() -> dict[str, Callable[[np.ndarray, np.ndarray], tuple[Draw, float]]]:
    """Name what can run here."""
    found: dict[str, Callable[[np.ndarray, np.ndarray], tuple[Draw, float]]] = {
        "jax float32": lambda b, c: jax_sampler("float32", "jax", b, c),
        "jax float64": lambda b, c: jax_sampler("float64", "jax", b, c),
    }
    if importlib.util.find_spec("augax") and jax.default_backend() == "cpu":
        found["augax guarded"] = lambda b, c: jax_sampler("float64", "augax", b, c)
        found["augax"] = raw_augax
    if importlib.util.find_spec("polyagamma"):
        found["polyagamma"] = raw_polyagamma
    return found


def measure(draw: Draw, draws: int, repeats: int) -> tuple[float, float, np.ndarray]:
    """Return the fastest wall and CPU nanoseconds a draw, and the last draws."""
    draw(0)
    wall, cpu = [], []
    for seed in range(1, repeats + 1):
        start, start_cpu = time.perf_counter(), time.process_time()
        values = draw(seed)
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    return 1e9 * min(wall) / draws, 1e9 * min(cpu) / draws, np.asarray(values, np.float64)


def cases(draws: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return the constant pairs, and one mixed array as a count model meets: b from .01 to 100, c normal."""
    listed = [(f"b={b:g} c={c:g}", np.full(draws, b), np.full(draws, c)) for b in SHAPES for c in TILTS]
    rng = np.random.default_rng(0)
    mixed = np.exp(rng.uniform(np.log(0.01), np.log(100), draws))
    return [*listed, ("mixed b .01-100", mixed, rng.normal(0, 3, draws))]


def run(draws: int, repeats: int) -> list[dict[str, Any]]:
    """Measure every sampler at every case."""
    rows = []
    for label, b, c in cases(draws):
        exact, spread = np.asarray(mean(b, c)), np.asarray(variance(b, c))
        for name, build in samplers().items():
            draw, seconds = build(b, c)
            wall, cpu, values = measure(draw, draws, repeats)
            z = float(np.sum(values - exact) / np.sqrt(np.sum(spread)))
            timing = {"ns": wall, "cpu_ns": cpu, "compile_s": seconds}
            rows.append({"case": label, "sampler": name, **timing, "mean_z": z})
            print(f"{label:16s} {name:14s} done", file=sys.stderr)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Lay the rows out as text."""
    lines = [
        f"{'case':16s} {'sampler':14s} {'ns/draw':>8s} {'cpu ns':>8s} {'compile s':>9s} {'z of mean':>9s}"
    ]
    for row in rows:
        figures = f"{row['ns']:8.0f} {row['cpu_ns']:8.0f} {row['compile_s']:9.2f} {row['mean_z']:9.1f}"
        lines.append(f"{row['case']:16s} {row['sampler']:14s} {figures}")
    return "\n".join(lines)


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    with jax.enable_x64(True):
        rows = run(arguments.draws, arguments.repeats)
    facts = {"draws": arguments.draws, "device": str(jax.devices()[0]), "jax": jax.__version__}
    print(json.dumps({**facts, "rows": rows}) if arguments.json else f"{facts}\n{table(rows)}")


if __name__ == "__main__":
    main()
