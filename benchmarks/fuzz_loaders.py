"""Throw damaged files at every loader: each must give data or one DataError, in bounded time and memory.

    python benchmarks/fuzz_loaders.py [--inputs 10000] [--seed 0] [--seconds-each 10] [--keep FOLDER]

Valid small files of every format are cut, bit-flipped, spliced, shuffled and edited, then loaded in a child
process under an alarm and a limit on its address space. Input i depends on the seed and i only. Counted are
the outcomes; printed are errors of another class, hangs, deaths of the child and warnings that do not name
the file. Exit code 1 if there is any. ``--keep`` copies the inputs at fault.
"""

import argparse
import bz2
import gzip
import io
import json
import multiprocessing
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from labelzoo.data import netcdf
from labelzoo.data.errors import DataError
from labelzoo.data.files import load, save_data
from labelzoo.data.labeldata import LabelData

MEMORY_GROWTH = 2**30
"""Bytes by which the address space of the child may grow."""

ODD = [b"-1", b"0", b"1", b"2", b"7", b"99", b"1e309", b"nan", b"-inf", b"0.5", b"1_0", b"999999999999", b"?"]
ODD += [b"4294967296", b"9223372036854775808", b"", b",", b"'", b'"', b"{", b"}", b":", b"%", b"#", b"\x00"]
ODD += [b"\xff", "\u0663".encode(), b"\r", b"\t", b"<", b"&x;", b"\\"]
MUTANTS = ("truncated", "bit-flipped", "inserted", "deleted", "spliced", "line-shuffled", "header-edited")

MEKA = """@relation 'meka: -C -2'
@attribute rain {0,1}
@attribute 'it''s sun' {0,1}
@attribute size numeric
@attribute colour {red,'dark blue'}
@data
{0 1, 2 0.5}
{}
{1 1, 3 'dark blue'}
% a comment
{0 ?, 2 -3e2, 3 red}
"""


def valid_files(folder: Path) -> list[Path]:
    """Write small valid files of every format."""
    rng = np.random.default_rng(0)
    X = np.round(rng.standard_normal((6, 4)), 3) * (rng.random((6, 4)) < 0.6)
    Y = (rng.random((6, 3)) < 0.4).astype(float)
    holes, gaps = Y.copy(), X.copy()
    holes[1, 2] = holes[4] = gaps[2, 1] = np.nan
    names = {"label_names": ["café", "b c", "it's"], "feature_names": ["1", "a b", "x%", "y"]}
    split = {"train_index": [0, 2, 3], "test_index": [1, 4]}
    plain = LabelData(X, Y, **names, **split)
    thin = LabelData(sparse.csr_array(X), Y, **names, **split)
    full = LabelData(gaps, holes, allow_missing_features=True, **names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the text formats lose is no matter here
        for name in (
            "npz",
            "nc",
            "svm",
            "svm.gz",
            "csv",
            "csv.bz2",
            "tsv",
            "arff",
            "arff.gz",
            "xmc",
            "xmc.gz",
        ):
            save_data(plain, folder / f"plain.{name}")
            save_data(thin, folder / f"thin.{name}")
            if name[:3] not in ("svm", "xmc"):
                save_data(full, folder / f"full.{name}")
    (folder / "meka.arff").write_text(MEKA, encoding="utf-8")
    (folder / "bare.svm").write_text("1,2 1:0.5 3:2 # note\n3:1\n0 2:-1e-3\n")
    (folder / "bare.txt").write_text("3 4 2\n0,1 0:1 2:0.5\n 3:1\n1 0:2\n")
    (folder / "bare_trSplit.txt").write_text("1 2\n3 1\n")
    (folder / "bare_tstSplit.txt").write_text("2 3\n")
    np.savez(
        folder / "classes.npz", X=X, y=np.array([0, 1, 2, 0, 1, 2]), class_names=np.array(["a", "b", "c"])
    )
    return sorted(path for path in folder.iterdir() if not path.name.endswith(("Split.txt", ".xml")))


def unpacked(path: Path) -> tuple[bytes, Any]:
    """Return the contents of a file without its compression, and what compresses them again."""
    content = path.read_bytes()
    packers = {".gz": (gzip.decompress, gzip.compress), ".bz2": (bz2.decompress, bz2.compress)}
    unpack, pack = packers.get(path.suffix, (bytes, bytes))
    return unpack(content), pack


def mutate(content: bytes, other: bytes, kind: str, rng: np.random.Generator) -> bytes:
    """Return damaged contents."""
    at = int(rng.integers(len(content) + 1))
    span = int(rng.integers(1, 20))
    if kind == "truncated":
        return content[:at]
    if kind == "bit-flipped":
        damaged = bytearray(content)
        for place in rng.integers(len(content), size=int(rng.integers(1, 4))).tolist():
            damaged[place] ^= 1 << int(rng.integers(8))
        return bytes(damaged)
    if kind == "inserted":
        odd = ODD[int(rng.integers(len(ODD)))] if rng.random() < 0.6 else rng.bytes(span)
        return content[:at] + odd + content[at:]
    if kind == "deleted":
        return content[:at] + content[at + span :]
    if kind == "spliced":
        return content[:at] + other[int(rng.integers(len(other) + 1)) :]
    if kind == "line-shuffled":
        lines = content.split(b"\n")
        return b"\n".join(lines[i] for i in rng.permutation(len(lines)).tolist())
    return header_edited(content, rng)


def header_edited(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace one word or number, mostly of the first lines, by something odd."""
    limit = 200 if rng.random() < 0.7 else len(content)
    words = [found.span() for found in re.finditer(rb"[\w.+-]+", content[:limit])]
    if not words:
        return content
    first, last = words[int(rng.integers(len(words)))]
    return content[:first] + ODD[int(rng.integers(len(ODD)))] + content[last:]


def npz_edited(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace or lose one array of an .npz file, which stays a sound archive."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = dict(archive)
    if rng.random() < 0.8:
        arrays.pop("content_hash", None)  # so that the loader looks at the arrays themselves
    key = sorted(arrays)[int(rng.integers(len(arrays)))]
    old = arrays[key]
    numbers = old.dtype.kind in "iuf"
    choices: list[Any] = [
        np.array(3), np.zeros(0), np.zeros((2, 2, 2)), old[..., None], old.astype(np.str_), old.ravel()[:1],
        np.array([10**12, 10**12]), np.array([len(old) if old.ndim else 1, 10**12]), np.array([-1, -1]),
        np.array([np.nan] * 6), np.array([1e300] * 6), np.array([2**63], np.uint64), np.array([True] * 6),
        np.array([1j]), np.array(["2020-01-01"], "datetime64[D]"), np.array([b"\xff"]),
        old.astype(np.float64) if numbers else old, -old if numbers else old, old.astype("U1"),
    ]  # fmt: skip
    pick = int(rng.integers(len(choices) + 1))
    if pick == len(choices):
        del arrays[key]
    else:
        arrays[key] = choices[pick]
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def build(i: int, seed: int, sources: list[Path], folder: Path) -> tuple[Path, str]:
    """Write input i into an empty folder and return the path to load and what was done to it."""
    rng = np.random.default_rng([seed, i])
    source = sources[int(rng.integers(len(sources)))]
    other = sources[int(rng.integers(len(sources)))].read_bytes()
    for mate in source.parent.glob(source.name.split(".")[0] + "*"):
        if mate.suffix in (".xml",) or mate.name.endswith("Split.txt"):
            shutil.copy(mate, folder / mate.name)
    kind = MUTANTS[int(rng.integers(len(MUTANTS)))]
    mates = sorted(path for path in folder.iterdir() if source.suffix in (".arff", ".xml", ".txt"))
    target = mates[int(rng.integers(len(mates)))] if mates and rng.random() < 0.25 else None
    shutil.copy(source, folder / source.name)
    damaged = target or folder / source.name
    content, pack = unpacked(damaged)
    if rng.random() < 0.5 or not damaged.suffix.startswith((".gz", ".bz")):
        if damaged.suffix == ".npz" and rng.random() < 0.5:
            kind, content = "array-edited", npz_edited(content, rng)
        else:
            if damaged.suffix == ".nc" and rng.random() < 0.5:
                content = content[: -netcdf.TRAILER]  # as a file of other software, without our hash
            content = mutate(content, other, kind, rng)
        damaged.write_bytes(pack(content))
    else:
        damaged.write_bytes(mutate(damaged.read_bytes(), other, kind, rng))
    whole = source.suffix in (".arff", ".xml") and rng.random() < 0.3
    return (folder if whole else folder / source.name), kind


def options_for(path: Path, rng: np.random.Generator) -> dict[str, Any]:
    """Return options for the reader: all files are read with and without missing features."""
    options: dict[str, Any] = {"allow_missing_features": bool(rng.random() < 0.5)}
    if path.is_dir() or path.suffix in (".arff", ".csv"):
        options["encode"] = ("none", "onehot")[int(rng.integers(2))]
    return options


class Hang(BaseException):
    """The alarm rang; no loader can take it for an error of its own."""


def ring(signum: int, frame: Any) -> None:
    """Handle the alarm."""
    raise Hang


def outcome_of(path: Path, options: dict[str, Any], seconds: float) -> tuple[str, str]:
    """Load and say how it went: ("loaded" or "refused" or a fault, detail)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sys.unraisablehook = lambda raised: warnings.warn(f"ignored: {raised.exc_value!r}", stacklevel=1)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            load(path, **options)
            result = ("loaded", "")
        except DataError as error:
            if isinstance(error.__cause__, MemoryError):
                return ("memory", f"more than {MEMORY_GROWTH} bytes: {error}")
            one_line = "\n" not in str(error) and str(path.parent) in str(error)
            result = ("refused", "") if one_line else ("message", repr(error))
        except Hang:
            return ("hang", f"longer than {seconds} s")
        except BaseException as error:
            result = ("crash", f"{type(error).__name__}: {error}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    odd = [w for w in caught if w.category is not UserWarning or str(path.parent) not in str(w.message)]
    if odd and result[0] in ("loaded", "refused"):
        return ("warning", f"{odd[0].category.__name__}: {odd[0].message}")
    return result


def work(first: int, last: int, seed: int, seconds: float, sources: list[Path], channel: Connection) -> None:
    """Load inputs first..last-1 in this process and tell each outcome."""
    signal.signal(signal.SIGALRM, ring)
    if sys.platform.startswith("linux"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY_GROWTH
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for i in range(first, last):
        with tempfile.TemporaryDirectory(prefix="labelzoo-fuzz-") as name:
            folder = Path(name)
            path, kind = build(i, seed, sources, folder)
            label = f"{'folder' if path.is_dir() else path.name} {kind}"
            channel.send((i, "started", label))
            rng = np.random.default_rng([seed, i, 1])
            channel.send((i, *outcome_of(path, options_for(path, rng), seconds)))
    channel.send((last, "end", ""))


def fuzz(inputs: int, seed: int, seconds: float, keep: Path | None = None) -> dict[str, Any]:
    """Run all inputs and return counts by outcome and format, and the faults."""
    counts: Counter[str] = Counter()
    table: dict[str, Counter[str]] = {}
    faults: list[dict[str, Any]] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="labelzoo-fuzz-") as name:
        sources = valid_files(Path(name))
        nxt = 0
        while nxt < inputs:
            receiver, sender = multiprocessing.Pipe(duplex=False)
            child = multiprocessing.get_context("fork").Process(
                target=work, args=(nxt, inputs, seed, seconds, sources, sender)
            )
            child.start()
            sender.close()
            label = "?"
            while True:
                try:
                    # A loop inside C code never sees the alarm: the parent waits a little longer, then kills.
                    ready = receiver.poll(seconds + 20)
                    i, what, detail = receiver.recv() if ready else (nxt, "hang", "no answer from the child")
                except EOFError:
                    child.join()
                    i, what, detail = nxt, "died", f"exit code {child.exitcode}"
                if what == "end":
                    nxt = inputs
                    break
                if what == "started":
                    label = detail
                    continue
                nxt = i + 1
                counts[what] += 1
                table.setdefault(label.split()[0].partition(".")[2] or "folder", Counter())[what] += 1
                if what not in ("loaded", "refused"):
                    faults.append({"input": i, "file": label, "what": what, "detail": detail[:300]})
                    keep_input(keep, i, seed, sources)
                if sys.stderr.isatty() and nxt % 100 == 0:
                    print(f"\r{nxt}/{inputs} {dict(counts)}", end="", file=sys.stderr, flush=True)
                if what == "died" or not ready:
                    break
            child.kill()
            child.join()
    return {
        "inputs": inputs,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        "outcomes": dict(counts),
        "by_format": {key: dict(value) for key, value in sorted(table.items())},
        "faults": faults,
    }


def keep_input(keep: Path | None, i: int, seed: int, sources: list[Path]) -> None:
    """Write input i again into a folder of its own."""
    if keep is not None:
        folder = keep / str(i)
        folder.mkdir(parents=True, exist_ok=True)
        build(i, seed, sources, folder)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds-each", type=float, default=10.0)
    parser.add_argument("--keep", type=Path, help="folder for the inputs at fault")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    report = fuzz(options.inputs, options.seed, options.seconds_each, options.keep)
    if options.json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        print(
            f"{report['inputs']} inputs, seed {report['seed']}, {report['seconds']} s: {report['outcomes']}"
        )
        for key, value in report["by_format"].items():
            print(f"  {key:<10} {value}")
        for fault in report["faults"]:
            print(f"input {fault['input']} ({fault['file']}): {fault['what']}: {fault['detail']}")
    return 1 if report["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
