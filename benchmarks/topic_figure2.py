"""Figure 2 of the topic model's experiments, after Rai, Hu, Henao and Carin (2015), sections 7.3 and 7.4.

    python benchmarks/topic_figure2.py --part left [--picture left.png] [--out out/left]
    python benchmarks/topic_figure2.py --part right [--seconds 120] [--picture right.png] [--out out/right]

Left: CPU seconds of one sweep of EM (``vb_em``, two conjugate-gradient steps) on bibtex and debtags as 20 to
100 % of the positives are kept and the others turned into zeros, with the line fitted through them. Right:
per-example AUC on the test rows of bibtex, K = .4 L, against seconds of fitting, for the sampler ``gibbs``
(probabilities averaged over the later half of the draws so far) and for ``vb_em`` with exact and with
conjugate-gradient weight steps. Seconds are without compilation and without scoring; every engine stops after
``--seconds`` or ``--sweeps``. Rows of unit length, the engines' defaults otherwise.

Data: npz/NAME.npz in LABELZOO_DATA (default ../shared/data). ``--out FOLDER`` keeps finished curves, so that
an interrupted run goes on; ``--json`` prints the numbers.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import em_scale
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import topic_protocol as protocol
from topic_tables import data_path

from labelzoo.data import LabelData, load, metrics
from labelzoo.inference.bernoulli_poisson_topics.em import begin, em_config
from labelzoo.inference.bernoulli_poisson_topics.em_data import em_data
from labelzoo.inference.bernoulli_poisson_topics.em_steps import sweep
from labelzoo.inference.bernoulli_poisson_topics.starts import make_start
from labelzoo.inference.fit import fit
from labelzoo.models.bernoulli_poisson_topics_card import prepare, spec
from labelzoo.whole_file import whole_file

Array = Any

SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
LEFT = {"bibtex": 64, "debtags": 100}
CHECKPOINTS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 75, 100)
WARM_UP = 10
WIDTH = 0.4
"""Topics as a share of the labels (right)."""


def line(x: Array, y: Array) -> dict[str, float]:
    """Return y = level + slope x by least squares, and the share of the variance that it explains."""
    slope, level = np.polyfit(x, y, 1)
    rest = np.asarray(y) - level - slope * np.asarray(x)
    return {
        "level": float(level),
        "slope": float(slope),
        "explained": float(1 - rest.var() / np.var(y)) if np.var(y) > 0 else float("nan"),
    }


def left(name: str, topics: int) -> dict[str, Any]:
    """Return CPU seconds a sweep against the positives that are kept."""
    data = load(str(data_path(name)))
    settings = {"num_topics": topics, "shape": 1.0, "sparse_features": True}
    inputs = prepare(data, spec.resolve(settings))
    counts, seconds = [], []
    for share in SHARES:
        part = em_scale.thinned(inputs, share)
        call, *_ = em_scale.iteration(part, "vb", "cg", "float32", warm=1)
        counts.append(int(part["positives"].row.shape[0]))
        seconds.append(em_scale.best_seconds(call, repeats=7)[1])
        protocol.note(f"{name}: {share:.0%} of the positives, {seconds[-1]:.4f} CPU s a sweep")
    sizes = {"rows": data.num_rows, "features": data.num_features, "labels": data.num_labels}
    return {"positives": counts, "seconds": seconds, "topics": topics, **sizes, **line(counts, seconds)}


def one_set(name: str, cells: protocol.Cells) -> dict[str, Any]:
    """Return `left` of one data set, from the cells where it is kept."""
    plan = {"data": name, "topics": LEFT[name]}
    return dict(cells.get(f"left {name}", plan, lambda: left(name, LEFT[name])))


def label_probs(X: Array, topics: Array, weights: Array, shape: Array) -> Array:
    """Return p(y = 1 | x) of eq. 19: (row, labels), in blocks of rows.

    Parameters
    ----------
    X : float array (row, feature)
    topics : float array (topic, labels)
    weights : float array (topic, feature)
    shape : float array (topic,)
    """
    odds = np.exp(np.minimum(X @ weights.T, 700.0))
    out = np.empty((X.shape[0], topics.shape[1]))
    for start in range(0, len(out), 200):
        rows = slice(start, start + 200)
        out[rows] = -np.expm1(-np.einsum("k,nkl->nl", shape, np.log1p(odds[rows, :, None] * topics)))
    return out


def em_curve(train: LabelData, test: LabelData, w_step: str, options: Any) -> list[dict[str, float]]:
    """Sweep `vb_em` and score at the checkpoints; the clock stops while it is scored."""
    topics = round(WIDTH * train.num_labels)
    settings = spec.resolve({"num_topics": topics, "shape": 1.0, "sparse_features": True})
    inputs, X = prepare(train, settings), prepare(test, settings)["X"]
    data, config = em_data(inputs, dtype=jnp.float32), em_config("vb", inputs, w_step=w_step)
    first = jax.jit(lambda start, data: begin(start, data, config, 1.0))
    began = time.perf_counter()
    start = make_start(inputs, jax.random.key(options.seed), "auto", 1.0)
    spent = time.perf_counter() - began  # the start belongs to the fit
    state = jax.block_until_ready(first(start, data))
    step = jax.jit(lambda state, data: sweep(state, data, config)).lower(state, data).compile()
    points = []
    for count in range(1, options.sweeps + 1):
        began = time.perf_counter()
        state = jax.block_until_ready(step(state, data))
        spent += time.perf_counter() - began
        if count in CHECKPOINTS or spent > options.seconds:
            V, W = np.exp(np.asarray(state.log_topics, float)).T, np.asarray(state.weights, float).T
            probs = label_probs(X, V, W, np.asarray(state.shape, float))
            points.append(point(test, probs, spent, count))
            protocol.note(f"vb_em {w_step}: {points[-1]}")
        if spent > options.seconds:
            break
    return points


def point(test: LabelData, probs: Array, seconds: float, count: int) -> dict[str, float]:
    """Return one point of a curve, with the standard error of the AUC over test rows."""
    each = metrics.per_example_auc(test.Y, probs).each
    each = each[~np.isnan(each)]
    error = float(each.std(ddof=1) / np.sqrt(len(each)))
    return {"sweep": count, "seconds": seconds, "auc": float(each.mean()), "error": error}


def gibbs_curve(train: LabelData, test: LabelData, options: Any) -> list[dict[str, float]]:
    """Draw by `gibbs`, one chain, and score the mean of the later half of the draws so far.

    The warm-up, in which step sizes adapt, counts as time; a sweep is taken to last the same throughout.
    """
    topics = round(WIDTH * train.num_labels)
    settings: dict[str, Any] = {
        "num_topics": topics,
        "num_chains": 1,
        "num_warmup": WARM_UP,
        "keep_embedding": False,
    }
    settings |= {"num_samples": 10 * max(1, options.sweeps // 10), "max_seconds": options.seconds}
    tree = fit("bernoulli_poisson_topics", train, "gibbs", seed=options.seed, **settings)
    posterior = tree["posterior"].to_dataset().isel(chain=0)
    resolved = spec.resolve({"num_topics": topics, "sparse_features": True})
    X = prepare(test, resolved)["X"]
    draws = posterior.sizes["draw"]
    each = float(tree.attrs["run_seconds"]) / (WARM_UP + draws)
    sites = [posterior[name].values for name in ("topics", "weights", "shape")]
    probs = [label_probs(X, *(site[d] for site in sites)) for d in range(draws)]
    points = []
    for count in sorted({c for c in CHECKPOINTS if c <= draws} | {draws}):
        mean = np.mean(probs[count // 2 : count], axis=0)
        points.append(point(test, mean, each * (WARM_UP + count), WARM_UP + count))
        protocol.note(f"gibbs: {points[-1]}")
    return points


def right(options: Any, cells: protocol.Cells) -> dict[str, Any]:
    """Return the three curves."""
    train, test = protocol.train_and_test(load(str(data_path("bibtex"))), options.seed)
    limits = {"seconds": options.seconds, "sweeps": options.sweeps, "seed": options.seed}
    engines = {
        "EM, conjugate gradients": lambda: em_curve(train, test, "cg", options),
        "EM, exact weight step": lambda: em_curve(train, test, "exact", options),
        "Gibbs": lambda: gibbs_curve(train, test, options),
    }
    curves = {
        name: cells.get(f"right {name}", limits | {"engine": name}, run) for name, run in engines.items()
    }
    return {"part": "right", "topics": round(WIDTH * train.num_labels), "curves": curves, **limits}


def draw_left(found: dict[str, Any]) -> Any:
    """Draw seconds a sweep against the share of positives."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(5.6, 3.8))
    for color, (name, one) in zip(("tab:blue", "tab:orange"), found["sets"].items(), strict=False):
        x, scale = np.array(one["positives"]) / 1e3, 1e3
        axis.plot(x, scale * np.array(one["seconds"]), "o", color=color)
        ends = np.array([0, x.max()])
        fitted = scale * (one["level"] + one["slope"] * 1e3 * ends)
        axis.plot(ends, fitted, color=color, lw=1, label=f"{name}, K = {one['topics']}")
    axis.set(xlabel="positives kept, thousands", ylabel="ms of CPU a sweep", ylim=(0, None), xlim=(0, None))
    axis.legend(frameon=False)
    return figure


def draw_right(found: dict[str, Any]) -> Any:
    """Draw AUC against seconds."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(5.6, 3.8))
    for marker, (name, points) in zip("osD", found["curves"].items(), strict=False):
        x, y, error = ([one[key] for one in points] for key in ("seconds", "auc", "error"))
        axis.errorbar(x, y, error, marker=marker, ms=4, lw=1, capsize=2, label=name)
    axis.set_xscale("log")
    ticks = [1, 3, 10, 30, 100, 300]
    low, high = axis.get_xlim()
    axis.set_xticks([one for one in ticks if low <= one <= high])
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("")
    axis.set(xlabel="seconds of fitting", ylabel="per-example AUC, test rows of bibtex")
    axis.legend(frameon=False, loc="center", bbox_to_anchor=(0.37, 0.42))
    return figure


def pyplot() -> Any:
    """Return pyplot, drawing to files."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def as_text(found: dict[str, Any]) -> str:
    """Return the numbers in Markdown."""
    if found["part"] == "left":
        lines = ["| data | K | positives | ms of CPU a sweep, 20 to 100 % | line | R² |", "|---" * 6 + "|"]
        for name, one in found["sets"].items():
            ms = ", ".join(f"{1e3 * s:.1f}" for s in one["seconds"])
            fitted = f"{1e3 * one['level']:.1f} ms + {1e9 * one['slope']:.0f} ns a positive"
            numbers = f"{one['positives'][-1]} | {ms} | {fitted} | {one['explained']:.3f}"
            lines.append(f"| {name} | {one['topics']} | {numbers} |")
        return "\n".join(lines)
    lines = ["| engine | sweeps | seconds | per-example AUC |", "|---" * 4 + "|"]
    for name, points in found["curves"].items():
        for one in points:
            auc = f"{one['auc']:.4f} ± {one['error']:.4f}"
            lines.append(f"| {name} | {one['sweep']} | {one['seconds']:.1f} | {auc} |")
    return "\n".join(lines)


def main() -> None:
    """Measure one part, draw and print it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--part", choices=("left", "right"), required=True)
    parser.add_argument("--seconds", type=float, default=120.0, help="limit of each engine (right)")
    parser.add_argument("--sweeps", type=int, default=100, help="limit of each engine (right)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="PNG")
    parser.add_argument("--out", type=Path, help="folder for cells, figure.md and figure.json")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cells = protocol.Cells(options.out)
    if options.part == "left":
        with jax.enable_x64(True):
            sets = {name: one_set(name, cells) for name in LEFT}
        found: dict[str, Any] = {"part": "left", "sets": sets}
    else:
        with jax.enable_x64(True):
            found = right(options, cells)
    finish(found, options)


def finish(found: dict[str, Any], options: Any) -> None:
    """Write the picture and the numbers, and print these."""
    if options.picture is not None:
        figure = (draw_left if found["part"] == "left" else draw_right)(found)
        with whole_file(options.picture) as temporary:
            figure.savefig(temporary, dpi=130, bbox_inches="tight")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        for file, content in (("figure.md", as_text(found) + "\n"), ("figure.json", json.dumps(found))):
            with whole_file(options.out / file) as temporary:
                temporary.write_text(content)
    print(json.dumps(found) if options.json else as_text(found))


if __name__ == "__main__":
    main()
