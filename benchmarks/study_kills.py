"""Kill a study at random moments, resume it, and compare the end with a run that nobody disturbed.

    python benchmarks/study_kills.py [--kills 100] [--seed 0] [--data FILE]

Each kill is a SIGKILL, either to the whole process group or to the parent alone, at a moment drawn either
from the start-up or shortly after a round was written. The study is made longer while it ends too early.
Exit code 1 if a written round is lost or changed, if the final database differs from the undisturbed one in
anything but seconds, or if a process outlives its killed parent.
"""

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ACQUIRE = "ivr,k_center,density_random"
SEEDS = 4
START_UP_SECONDS = 4.0
LINGER_SECONDS = 0.4
STEP_ROUNDS = 8
TABLES = {
    "study": "SELECT format, identity, plan, versions FROM study",
    "rounds": "SELECT acquire, seed, round, asked, metrics, report FROM rounds ORDER BY 1, 2, 3",
    "skipped": "SELECT * FROM skipped ORDER BY 1, 2",
    "failed": "SELECT * FROM failed ORDER BY 1, 2",
}
"""Everything but the seconds."""


def main() -> int:
    """Run the experiment and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=24, help="rounds to begin with")
    parser.add_argument("--data", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = given.data or emotions() or synthetic(Path(folder))
        return experiment(Path(folder), data, given.kills, given.rounds, random.Random(given.seed))


def emotions() -> Path | None:
    """Return the file of the emotions data where it is at hand."""
    folder = Path(os.environ.get("LABELZOO_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "npz" / "emotions.npz"
    return path if path.is_file() else None


def synthetic(folder: Path) -> Path:
    """Write simulated data of about the size of emotions."""
    import numpy as np

    from labelzoo.data import LabelData, save_npz

    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 20))
    Y = (X @ rng.normal(size=(20, 6)) + rng.normal(size=(600, 6)) > 1.0).astype(float)
    save_npz(LabelData.from_arrays(X, Y), folder / "synthetic.npz")
    return folder / "synthetic.npz"


def experiment(folder: Path, data: Path, kills: int, rounds: int, rng: random.Random) -> int:
    """Kill and resume until `kills` kills happened and the study is done; compare and print."""
    begin, counts, faults = time.monotonic(), Counter[str](), list[str]()
    out, before, groups = folder / "killed", dict[Any, Any](), list[int]()
    while True:
        process = start(out, data, rounds)
        groups.append(process.pid)
        how = "ended" if counts["kills"] >= kills else disturb(process, out / "study.db", rng)
        code = process.wait()
        counts[how] += 1
        counts["kills"] += how != "ended"
        if how == "ended" and code != 0:
            faults.append(f"a run ended with exit code {code}")
        after = written_rounds(out / "study.db")
        faults += [f"round {key} lost or changed" for key in before if after.get(key) != before[key]]
        counts["kills after which something new was kept"] += how != "ended" and len(after) > len(before)
        before = after
        seconds = time.monotonic() - begin
        if counts["kills"] % 10 == 0 and how != "ended":
            print(f"{counts['kills']} kills, {len(after)} rounds, {seconds:.0f} s", flush=True)
        if faults or (how == "ended" and counts["kills"] >= kills):
            break
        rounds += STEP_ROUNDS if how == "ended" else 0
    faults += survivors(groups)
    start(folder / "whole", data, rounds).wait()
    faults += differences(out / "study.db", folder / "whole" / "study.db")
    print(f"{dict(counts)}, {len(before)} rounds of {rounds} a cell, {time.monotonic() - begin:.0f} s")
    print("\n".join(faults[:20]) or "nothing lost, nothing repeated, identical to the undisturbed study")
    return 1 if faults else 0


def start(out: Path, data: Path, rounds: int) -> Any:
    """Start or resume the study in a process group of its own."""
    command = [
        sys.executable, "-m", "labelzoo", "active", "--data", str(data), "--learner", "label_gp:conjugate",
        "--acquire", f"{ACQUIRE},random", "--start", "10", "--rounds", str(rounds), "--batch", "3",
        "--seeds", str(SEEDS), "--evaluator", "own", "--processes", "2", "--out", str(out), "--json",
    ]  # fmt: skip
    if (out / "study.db").exists():
        command.append("--resume")
    quiet = subprocess.DEVNULL  # the semaphores of a killed parent are mourned there
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=quiet, start_new_session=True)


def disturb(process: Any, database: Path, rng: random.Random) -> str:
    """Kill at a random moment and return how; ``ended`` if the process was quicker."""
    if rng.random() < 0.5:
        end, start_size = time.monotonic() + rng.uniform(0, START_UP_SECONDS), None
    else:
        end, start_size = float("inf"), count_rounds(database)
    linger = rng.uniform(0, LINGER_SECONDS)
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.005 if start_size is None else 0.03)
        if start_size is not None and end == float("inf") and count_rounds(database) > start_size:
            end = time.monotonic() + linger
    if process.poll() is not None:
        return "ended"
    if rng.random() < 0.5:
        os.killpg(process.pid, signal.SIGKILL)
        return "group killed"
    os.kill(process.pid, signal.SIGKILL)
    return "parent killed"


def count_rounds(database: Path) -> int:
    """Return the number of rounds written so far."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM rounds").fetchone()[0])


def written_rounds(database: Path) -> dict[Any, Any]:
    """Return all rounds by (acquisition, seed, round)."""
    return {row[:3]: row for row in table(database, "rounds")} if database.exists() else {}


def table(database: Path, name: str) -> list[Any]:
    """Return a table without its seconds."""
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        return list(connection.execute(TABLES[name]).fetchall())


def survivors(groups: list[int], patience: float = 10.0) -> list[str]:
    """Return a line for each process group that still lives."""
    end = time.monotonic() + patience
    alive = set(groups)
    while alive and time.monotonic() < end:
        for group in sorted(alive):
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                alive.discard(group)
        time.sleep(0.1)
    return [f"processes of group {group} outlive their parent" for group in sorted(alive)]


def differences(database: Path, whole: Path) -> list[str]:
    """Return what differs between two databases."""
    out = []
    for name in TABLES:
        mine, theirs = table(database, name), table(whole, name)
        if mine != theirs:
            unlike = sum(a != b for a, b in zip(mine, theirs, strict=False))
            out.append(f"table {name}: {len(mine)} rows and {len(theirs)} rows, {unlike} differ")
    return out


if __name__ == "__main__":
    sys.exit(main())
