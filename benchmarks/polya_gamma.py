"""Nanoseconds a Polya-Gamma draw: this package in float32 and float64, augax, and the polyagamma package.

Run ``python benchmarks/polya_gamma.py --draws 1000000``. Every figure is the fastest of ``--repeats`` calls
that each draw ``--draws`` values at one (b, c), compile time apart; figures of one run are comparable,
those of two machines are not. CPU time is printed beside wall time because a shared machine inflates the
latter. The last column says how far the mean was from the exact one, in standard errors: a fast
wrong sampler is no peer.
"""

import argparse
import functools
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
Draw = Callable[[int, np.ndarray, np.ndarray], np.ndarray]


def compiled_sampler(sample: Callable[..., jax.Array], dtype: str, draws: int) -> tuple[Draw, float]:
    """Compile ``sample(key, b, c)`` once for arrays of ``draws``; return the call and the seconds it took."""
    blank = jax.ShapeDtypeStruct((draws,), jnp.dtype(dtype))
    start = time.perf_counter()
    compiled = jax.jit(sample).lower(jax.random.key(0), blank, blank).compile()
    seconds = time.perf_counter() - start

    def draw(seed: int, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return compiled(
            jax.random.key(seed), jnp.asarray(b, dtype), jnp.asarray(c, dtype)
        ).block_until_ready()

    return draw, seconds


def samplers(draws: int) -> dict[str, tuple[Draw, float]]:
    """Build what can run here: name to (call, seconds to compile)."""
    jax_only = functools.partial(sample_polya_gamma, backend="jax")
    found = {f"jax {dtype}": compiled_sampler(jax_only, dtype, draws) for dtype in ("float32", "float64")}
    if importlib.util.find_spec("augax") and jax.default_backend() == "cpu":
        import augax

        guarded = functools.partial(sample_polya_gamma, backend="augax")
        found["augax guarded"] = compiled_sampler(guarded, "float64", draws)
        found["augax"] = compiled_sampler(lambda key, b, c: augax.pg_sample(b, c, key), "float64", draws)
    if importlib.util.find_spec("polyagamma"):
        from polyagamma import random_polyagamma

        found["polyagamma"] = (lambda seed, b, c: random_polyagamma(b, c, random_state=seed), 0.0)
    return found


def measure(draw: Draw, b: np.ndarray, c: np.ndarray, repeats: int) -> tuple[float, float, np.ndarray]:
    """Return the fastest wall and CPU nanoseconds a draw, and the last draws."""
    draw(0, b, c)
    wall, cpu = [], []
    for seed in range(1, repeats + 1):
        start, start_cpu = time.perf_counter(), time.process_time()
        values = draw(seed, b, c)
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    return 1e9 * min(wall) / b.size, 1e9 * min(cpu) / b.size, np.asarray(values, np.float64)


def cases(draws: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return the constant pairs, and one mixed array as a count model meets: b from .01 to 100, c normal."""
    listed = [(f"b={b:g} c={c:g}", np.full(draws, b), np.full(draws, c)) for b in SHAPES for c in TILTS]
    rng = np.random.default_rng(0)
    mixed = np.exp(rng.uniform(np.log(0.01), np.log(100), draws))
    return [*listed, ("mixed b .01-100", mixed, rng.normal(0, 3, draws))]


def run(draws: int, repeats: int) -> list[dict[str, Any]]:
    """Measure every sampler at every case."""
    rows, built = [], samplers(draws)
    for label, b, c in cases(draws):
        exact, spread = np.asarray(mean(b, c)), np.asarray(variance(b, c))
        for name, (draw, seconds) in built.items():
            wall, cpu, values = measure(draw, b, c, repeats)
            z = float(np.sum(values - exact) / np.sqrt(np.sum(spread)))
            timing = {"ns": wall, "cpu_ns": cpu, "compile_s": seconds}
            rows.append({"case": label, "sampler": name, **timing, "mean_z": z})
        print(f"{label} done", file=sys.stderr)
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
