"""Every acquisition function against random, on one data set at a time: exploratory tables.

``python benchmarks/races.py [--data emotions,...] [--split random|published] [--seeds 10] [--out races]``
runs
``labelzoo active`` with every row function of the catalogue for each data set: learner ``label_gp`` by
``conjugate``, deployment rows T as targets, scored on E, twenty rounds of ten rows (ten rounds where there
are more than a hundred labels). A function that costs too much is printed as not run. A race that was stopped
goes on where it was. Each folder of --out holds the database, the report and the pictures; the table printed
is the area under mean P@1-3 less that of random, by the common classifier, with intervals that hold for all
functions of the table together. Data are read from LABELZOO_DATA (default ../shared/data).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from labelzoo.acquisition import catalogue

FOLDER = Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
DATA = ("emotions", "medical", "scene", "yeast", "enron", "mediamill_small", "corel5k")
COST_CAP = 60.0
"""CPU seconds of choosing, all rounds of one seed together; what takes longer is not run with any seed."""
MANY_LABELS = 100


def race(path: Path, split: str, seeds: int, out: Path, processes: int) -> dict[str, object]:
    """Run or continue one race and return the results that the command wrote."""
    with np.load(path) as arrays:
        num_labels = int(arrays["Y_shape"][1])
    names = [entry.name for entry in catalogue().values() if entry.query == "row"]
    command = [sys.executable, "-m", "labelzoo", "active", "--data", str(path)]
    command += ["--learner", "label_gp:conjugate", "--acquire", ",".join(names), "--seeds", str(seeds)]
    command += ["--split", split, "--rounds", "10" if num_labels > MANY_LABELS else "20"]
    command += ["--cost-cap", str(COST_CAP), "--processes", str(processes), "--out", str(out)]
    command += ["--resume"] if (out / "study.db").exists() else []
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)
    return json.loads((out / "results.json").read_text(encoding="utf-8"))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--split", default="random", choices=("random", "published"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("races"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    for name in options.data.split(","):
        path = FOLDER / "npz" / f"{name}.npz"
        if not path.is_file():
            print(f"{name}: not run, no file {path}")
            continue
        begin = time.perf_counter()
        out = options.out / f"{name}_{options.split}"
        found = race(path, options.split, options.seeds, out, options.processes)
        print(f"{name}, {options.split}: {time.perf_counter() - begin:.0f} s, report in {out}")
        rows = [
            row
            for row in found["comparison"]  # type: ignore[attr-defined]
            if (row["evaluator"], row["part"], row["metric"]) == ("common", "E", "precision")
        ]
        for row in sorted(rows, key=lambda row: -row["difference"]):
            print(f"  {row['verdict']}")
        reasons = {row["acquire"]: row["reason"] for row in reversed(found["not_run"])}  # type: ignore[call-overload]
        reasons |= {row["acquire"]: f"FAILED, {row['reason']}" for row in found["failed"]}  # type: ignore[attr-defined]
        for acquire, reason in reasons.items():
            print(f"  {acquire}: {reason}")


if __name__ == "__main__":
    main()
