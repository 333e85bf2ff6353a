"""How the kernel of a score is chosen: bare evidence, with a floor, with a prior as well, or fixed.

``python benchmarks/guarded_kernel.py [--data emotions,medical,scene,yeast] [--seeds 10] [--rounds 20]`` runs
``ivr`` with the deployment rows T as targets under each rule, scores it on E by the learner and by a common
classifier, and prints the area under mean P@1-3 less that of random, in points, with its standard error
over the splits (Nadeau and Bengio). The learner itself keeps its default. Data are read from LABELZOO_DATA
(default ../shared/data); sets that are absent are named.
"""

import argparse
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labelzoo.data import load
from labelzoo.models.gp_kernel import RULES
from labelzoo.study import Plan, read_rounds, run_study
from labelzoo.study.analysis import area, curves

FOLDER = Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))


def differences(plan: Plan, data: Any, folder: Path, processes: int) -> dict[str, np.ndarray]:
    """Return area(ivr) - area(random) by seed for each evaluator."""
    out = run_study(plan, data, folder / f"{plan.score_kernel}.db", processes=processes)
    found = curves(plan, read_rounds(out), data.num_labels)
    places = {e: (e, "E", "precision") for e in plan.evaluators}
    return {
        e: area(found.values[("ivr", *at)]) - area(found.values[("random", *at)]) for e, at in places.items()
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", default="emotions,medical,scene,yeast")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for name in options.data.split(","):
        path = FOLDER / "npz" / f"{name}.npz"
        if not path.is_file():
            print(f"{name}: not run, no file {path}")
            continue
        data = load(path)
        base = Plan(
            name,
            data.hash(),
            "label_gp",
            "conjugate",
            {},
            ("ivr", "random"),
            rounds=options.rounds,
            seeds=tuple(range(options.seeds)),
        )
        share = base.test_fraction / (1 - base.test_fraction) / 2
        with tempfile.TemporaryDirectory() as folder:
            for rule in RULES:
                plan = replace(base, score_kernel=rule)
                gaps = differences(plan, data, Path(folder), options.processes)
                row: dict[str, Any] = {"data": name, "rule": rule, "seeds": options.seeds}
                for evaluator, gap in gaps.items():
                    row[evaluator] = 100 * float(gap.mean())
                    row[f"{evaluator}_error"] = 100 * float(gap.std(ddof=1) * np.sqrt(1 / len(gap) + share))
                rows.append(row)
                if not options.json:
                    own, common = (f"{row[e]:+.2f} +- {row[f'{e}_error']:.2f}" for e in ("own", "common"))
                    print(f"{name:<10}{rule:<10}own {own}   common {common}", flush=True)
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
