"""The two comparisons that were fixed before they were run.

``python benchmarks/primary_comparison.py [--out primary] [--processes 2]``

Primary: ``ivr`` with the deployment rows T as targets (features only) against ``random``, scored on the
disjoint rows E by the common classifier, area under mean P@1-3; emotions and medical, twenty random
re-splits each (seeds 100 to 119); the 95 % interval of Nadeau and Bengio must lie above 0 on both.
Secondary: ``miml`` with the pool alone against ``random`` on four sets; on scene and yeast it must not be
worse by more than 1 point (lower end of the interval above -1). The transductive column scores T itself.

20 rows to start with, 20 rounds of 10; learner ``label_gp`` by ``conjugate``; one third deployment rows, half
of them T. Everything else that the studies write is exploratory. Data are read from LABELZOO_DATA (default
../shared/data); sets that are absent are named. Stopped at any moment it continues where it was.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from labelzoo.data import load
from labelzoo.study import Plan, read_rounds, run_study
from labelzoo.study.analysis import Paired, area, curves, paired

FOLDER = Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
SEEDS = tuple(range(100, 120))
MARGIN = 0.01
PRIMARY = [("emotions", "ivr", "predict"), ("medical", "ivr", "predict")]
SECONDARY = [(name, "miml", "pool") for name in ("emotions", "medical", "scene", "yeast")]


def run(name: str, acquire: str, targets: str, folder: Path, processes: int) -> dict[str, Any] | None:
    """Run or continue one comparison; None where the data are absent."""
    path = FOLDER / "npz" / f"{name}.npz"
    if not path.is_file():
        return None
    data = load(path)
    plan = Plan(
        name,
        data.hash(),
        "label_gp",
        "conjugate",
        {},
        (acquire, "random"),
        seeds=SEEDS,
        targets=targets,
        evaluators=("common", "own"),
    )
    out = folder / f"{name}_{acquire}_{targets}.db"
    run_study(plan, data, out, processes=processes, resume=out.exists())
    found = curves(plan, read_rounds(out), data.num_labels)
    share = plan.test_fraction / 2 / (1 - plan.test_fraction)
    result: dict[str, Any] = {"data": name, "acquire": acquire, "targets": targets, "seeds": len(SEEDS)}
    for evaluator in plan.evaluators:
        for part in ("E", "T"):
            at = (evaluator, part, "precision")
            gap = area(found.values[(acquire, *at)]) - area(found.values[("random", *at)])
            result[f"{evaluator}_{part}"] = paired(gap, share, 1)
    return result


def shown(test: Paired) -> str:
    """Return difference and interval in points."""
    low, high = test.interval
    return f"{100 * test.difference:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"


def main() -> int:
    """Run from the command line; the exit code is 0 whatever the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("primary"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for kind, jobs in (("primary", PRIMARY), ("secondary", SECONDARY)):
        for job in jobs:
            result = run(*job, options.out, options.processes)
            if result is None:
                print(f"{kind}: {job[0]} not run: no data in {FOLDER}", file=sys.stderr)
                continue
            low = result["common_E"].interval[0]
            if kind == "primary":
                words = "above 0" if low > 0 else "NOT shown to be above 0"
            else:
                words = "not inferior by 1 point" if low > -MARGIN else "non-inferiority NOT shown"
                words = words if job[0] in ("scene", "yeast") else ""
            rows.append({"kind": kind, **result, "verdict": words})
            if not options.json:
                numbers = "  ".join(
                    f"{key} {shown(result[key])}" for key in ("common_E", "common_T", "own_E")
                )
                print(f"{kind:<10}{job[0]:<9}{job[1]:<5}{numbers}  {words}", flush=True)
    if options.json:
        print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
