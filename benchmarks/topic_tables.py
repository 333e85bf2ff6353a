"""Tables of the topic model's experiments, after Rai, Hu, Henao and Carin (2015), section 7.

    python benchmarks/topic_tables.py --table 2 --data bibtex [--out out/table2_bibtex]
    python benchmarks/topic_tables.py --table 2 --data corel5k --resplits 10 --size small
    python benchmarks/topic_tables.py --table 3 [--masks 5] [--share 0.2]
    python benchmarks/topic_tables.py --table 4 --data emoji-keywords [--topics 20] [--picture FILE.png]

Table 2: held-out scores of `vb_em`, `map_em` and the paper's set-up beside the baselines of
`topic_baselines`, all tuned, recalibrated and scored alike (`topic_protocol`). With ``--resplits``, random
re-splits (a tenth for testing) and the interval of Nadeau and Bengio for ours minus the baseline. Table 3:
a share of the training labels observed. Table 4: the most probable labels of topics.

NAME of ``--data NAME`` is NAME.npz in the folder npz of LABELZOO_DATA (default ../shared/data), or a path.
``--out FOLDER`` keeps every cell as it is done, so that an interrupted run goes on where it was, and the
finished table as table.md and table.json. ``--json`` prints the latter. Progress goes to stderr.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import topic_missing
import topic_protocol as protocol
import topic_scores
from topic_baselines import Method, baselines

from labelzoo.data import LabelData, load
from labelzoo.inference.fit import fit
from labelzoo.study.analysis import paired
from labelzoo.topics import as_json, topic_table
from labelzoo.topics_picture import topics_png
from labelzoo.whole_file import whole_file

PUBLISHED = {"bibtex": {"CPLST": 0.8882, "BCS": 0.8614, "WSABIE": 0.9182, "LEML": 0.9040, "BMLPL": 0.9210}}
SENTENCE = "The paper does not define its AUC (macro, micro or per example) and no match is claimed."
TEST_SHARE = 0.1
RESPLIT_METRICS = ("macro_auc", "micro_auc", "p_at_1", "log_score")
SHOWN = ("form", "prior_scale", "C", "penalty", "share", "k")
MAX_LISTED = 5


def data_path(name: str) -> Path:
    """Return the file of a data set."""
    if name.endswith(".npz"):
        return Path(name)
    default = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    return Path(os.environ.get("LABELZOO_DATA", default)) / "npz" / f"{name}.npz"


def chosen_words(setting: dict[str, Any]) -> str:
    """Return what was tuned, in words."""
    return ", ".join(f"{name} {setting[name]}" for name in SHOWN if name in setting)


def selected(size: str, only: list[str] | None) -> list[Method]:
    """Return the methods whose names hold one of `only`, all where that is None."""
    every = [*protocol.our_methods(size), *baselines(size)]
    return [one for one in every if only is None or any(word in one.name for word in only)]


def table2(data: LabelData, name: str, options: Any, cells: protocol.Cells) -> dict[str, Any]:
    """Judge every method on the published split, or on a random one."""
    parts = protocol.parts_of(*protocol.train_and_test(data, options.seed), options.seed)
    rows = []
    for method in selected(options.size, options.only):
        if method.absent:
            rows.append({"method": method.name, "absent": method.absent})
            continue
        rows.append(protocol.judged(method, parts, options.seed, cells, options.tune))
    sizes = {key: getattr(parts, key).num_rows for key in parts._fields}
    found = {"table": 2, "data": name, "tuned_for": options.tune, "rows": rows, "sizes": sizes}
    return found | {"size": options.size, "published": PUBLISHED.get(name, {})}


def table2_text(found: dict[str, Any]) -> str:
    """Return table 2 in Markdown, differences and published numbers below."""
    columns = [*topic_scores.COLUMNS, "ece"]
    lines = []
    for row in found["rows"]:
        if "absent" in row:
            lines.append([row["method"], row["absent"], *[""] * (len(columns) + 1)])
            continue
        scores = topic_scores.from_json(row["scores"])
        numbers = [topic_scores.shown(c, scores.get(c)) for c in columns]
        seconds = f"{row['seconds']:.1f}" + (f" + {row['compile_seconds']:.1f}" if row["ours"] else "")
        lines.append([row["method"], *numbers, seconds, chosen_words(row["setting"])])
    header = ["method", *(topic_scores.TITLES[c] for c in columns), "s (+ compile)", "chosen"]
    text = [topic_scores.markdown(header, lines), "", *differences(found, header), ""]
    published = ", ".join(f"{name} {value:.4f}" for name, value in found["published"].items())
    text.append(f"Published AUC on {found['data']}: {published or 'none in the paper'}. {SENTENCE}")
    sizes = ", ".join(f"{key} {value}" for key, value in found["sizes"].items())
    text.append(f"Tuned for {found['tuned_for']} on the same rows; grids: {found['size']}; rows: {sizes}.")
    text.append("± is the standard error over test rows. Log scores are nats a row, larger is better.")
    return "\n".join(text)


def differences(found: dict[str, Any], header: list[str]) -> list[str]:
    """Return what the best of ours, by the validation rows, has over each baseline, paired over test rows."""
    run = [row for row in found["rows"] if "absent" not in row]
    ours, others = ([row for row in run if row["ours"] == kind] for kind in (True, False))
    if not ours or not others:
        return []
    best = max(ours, key=lambda row: row["validation"][found["tuned_for"]])
    mine, lines = topic_scores.from_json(best["scores"]), []
    for row in others:
        gaps = [
            topic_scores.shown(name, topic_scores.difference(mine[name], theirs), sign=True)
            for name, theirs in topic_scores.from_json(row["scores"]).items()
            if name in topic_scores.COLUMNS
        ]
        lines.append([f"minus {row['method']}", *gaps])
    words = [
        f"{best['method']} (best of ours on validation rows)",
        *header[1 : 1 + len(topic_scores.COLUMNS)],
    ]
    return [topic_scores.markdown(words, lines)]


def resplits(data: LabelData, name: str, options: Any, cells: protocol.Cells) -> dict[str, Any]:
    """Judge every method on random re-splits, tuned for each metric by itself; only values are kept."""
    values: dict[str, dict[str, list[float]]] = {}
    checked: dict[str, dict[str, list[float]]] = {}
    methods = [one for one in selected(options.size, options.only) if not one.absent]
    for seed in range(options.seed, options.seed + options.resplits):
        parts = protocol.parts_of(*protocol.random_split(data, seed, TEST_SHARE), seed)
        for method in methods:
            tuned = protocol.tune(method, parts, seed, cells)
            for metric in RESPLIT_METRICS:
                best = int(np.argmax([one[metric] for one in tuned]))
                value = test_value(method, method.grid[best], parts, seed, cells, metric)
                values.setdefault(metric, {}).setdefault(method.name, []).append(value)
                checked.setdefault(metric, {}).setdefault(method.name, []).append(tuned[best][metric])
    ours = [one.name for one in methods if one.ours]
    absent = [one.name for one in selected(options.size, options.only) if one.absent]
    found = {"table": 2, "data": name, "resplits": options.resplits, "values": values, "validation": checked}
    return found | {"ours": ours, "absent": absent, "size": options.size}


def test_value(
    method: Method, setting: Any, parts: protocol.Parts, seed: int, cells: protocol.Cells, metric: str
) -> float:
    """Return one score on the test rows of the method refitted on all training rows."""

    def compute() -> dict[str, float]:
        predicted = method.predict(parts.train, [parts.test], setting, seed)
        return protocol.validation(parts.test, predicted.scores[0], predicted.probs[0])

    plan = protocol.plan_of(method, setting, parts, seed, "value")
    return float(cells.get(f"{method.name}-{seed}-value", plan, compute)[metric])


def verdict(low: float, high: float) -> str:
    """Return beat, tie or lose from an interval of ours minus theirs."""
    return "beat" if low > 0 else "lose" if high < 0 else "tie"


def resplits_text(found: dict[str, Any]) -> str:
    """Return means over re-splits, and ours minus the best baseline with its interval and verdict."""
    metrics = list(found["values"])
    names = list(found["values"][metrics[0]])
    header = ["method", *(topic_scores.TITLES[m] for m in metrics)]
    lines = [[name, *(f"{np.mean(found['values'][m][name]):.4f}" for m in metrics)] for name in names]
    lines += [[name, "not installed", *[""] * (len(metrics) - 1)] for name in found["absent"]]
    gaps = []
    for metric in metrics:
        values, checked = found["values"][metric], found["validation"][metric]
        ours = max(found["ours"], key=lambda name: np.mean(checked[name]))
        other = max((n for n in names if n not in found["ours"]), key=lambda n: np.mean(values[n]))
        gap = np.array(values[ours]) - np.array(values[other])
        test = paired(gap, TEST_SHARE / (1 - TEST_SHARE), 1)
        low, high = test.interval
        interval = f"{test.difference:+.4f} ({low:+.4f} to {high:+.4f})"
        gaps.append([topic_scores.TITLES[metric], ours, other, interval, verdict(low, high)])
    words = ["metric", "ours (best on validation rows)", "best baseline (on test rows)", "difference", "ours"]
    text = [topic_scores.markdown(header, lines), "", topic_scores.markdown(words, gaps), ""]
    text.append(
        f"{found['resplits']} random re-splits of {found['data']}, a tenth of the rows for testing; every "
        "method tuned for each metric by itself on the same validation rows, grids: "
        f"{found['size']}. Intervals: 95 %, Nadeau and Bengio (2003). The baseline is the best one on the "
        "test rows, which favours the baseline."
    )
    return "\n".join(text)


def table4(data: LabelData, name: str, options: Any, cells: protocol.Cells) -> dict[str, Any]:
    """Fit few topics with `vb_em` and list the most probable labels; the picture goes beside."""
    settings = {"num_topics": options.topics, "dtype": "float32", "max_iter": 200}
    tree = fit("bernoulli_poisson_topics", data, "vb_em", seed=options.seed, **settings)
    table = topic_table(tree, num_labels=8)
    if options.picture is not None:
        with whole_file(options.picture) as temporary:
            temporary.write_bytes(topics_png(table.head(MAX_LISTED + 4)))
    seconds = float(tree.attrs["run_seconds"])
    found = {"table": 4, "data": name, "topics": as_json(table), "seconds": seconds}
    return found | {"num_topics": options.topics, "sweeps": int(tree.attrs["num_sweeps"])}


def table4_text(found: dict[str, Any]) -> str:
    """Return the five topics that explain most positives side by side, whatever their coherence."""
    listed = found["topics"][:MAX_LISTED]
    header = [f"{one['name'].split(',')[0]} ({one['weight']:.1%})" for one in listed]
    lines = [[one["probable"][i]["label"] for one in listed] for i in range(MAX_LISTED)]
    fits = (float("nan") if one["coherence"] is None else one["coherence"] for one in listed)
    lines.append([f"NPMI {fit:+.2f}" for fit in fits])
    every = [one["coherence"] for one in found["topics"] if one["coherence"] is not None]
    return "\n".join([
        topic_scores.markdown(header, lines),
        "",
        f"The {MAX_LISTED} of {found['num_topics']} topics of {found['data']} that explain most of the "
        "positives (share in brackets), most probable labels first. "
        f"vb_em, {found['sweeps']} sweeps, "
        f"{found['seconds']:.1f} s. Mean coherence (NPMI) of all topics {np.mean(every):+.2f}.",
    ])  # fmt: skip


def arguments() -> Any:
    """Read the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--table", type=int, choices=(2, 3, 4), required=True)
    parser.add_argument("--data", default="bibtex")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=("full", "small"), default=None, help="grids; debtags: small")
    parser.add_argument("--tune", default="per_example_auc", choices=(*protocol.TUNED_FOR, "log_score"))
    parser.add_argument("--only", nargs="+", help="words of method names (table 2)")
    parser.add_argument("--resplits", type=int, default=0)
    parser.add_argument("--masks", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.2, help="share of labels observed (table 3)")
    parser.add_argument("--topics", type=int, default=20, help="number of topics (table 4)")
    parser.add_argument("--picture", type=Path, help="PNG of table 4")
    parser.add_argument("--out", type=Path, help="folder for cells, table.md and table.json")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.size = options.size or ("small" if options.data == "debtags" else "full")
    return options


def main() -> None:
    """Run one table, keep it and print it."""
    options = arguments()
    name = Path(options.data).name.removesuffix(".npz")
    data, cells = load(str(data_path(options.data))), protocol.Cells(options.out)
    if options.table == 2 and options.resplits:
        found = resplits(data, name, options, cells)
        text = resplits_text(found)
    elif options.table == 2:
        found = table2(data, name, options, cells)
        text = table2_text(found)
    elif options.table == 3:
        found = topic_missing.run(data, options.masks, options.share, options.seed, cells)
        text = topic_missing.as_text(found)
    else:
        found = table4(data, name, options, cells)
        text = table4_text(found)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        for file, content in (("table.md", text + "\n"), ("table.json", json.dumps(found))):
            with whole_file(options.out / file) as temporary:
                temporary.write_text(content)
    print(json.dumps(found) if options.json else text)


if __name__ == "__main__":
    main()
