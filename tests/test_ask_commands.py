"""``labelzoo ask`` and ``tell``: questions with names, answers that only ever fill what was answered."""

import csv
import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelzoo.answers import Cells as AnsweredCells
from labelzoo.answers import tell, with_cells, with_earlier
from labelzoo.ask_files import SAY_AFTER, one_writer
from labelzoo.cli import run
from labelzoo.data import LabelData, load, save_data
from labelzoo.inference.fit import fit
from labelzoo.inference.posterior import load as load_posterior
from labelzoo.inference.posterior import save
from labelzoo.questions import Question, Questions, load_questions, plain, pool_hash, save_questions

LABELS = ["a", "b", "c"]


def made(rows: int, seed: int, prefix: str) -> LabelData:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 2))
    Y = (X @ rng.standard_normal((2, 3)) + 0.3 * rng.standard_normal((rows, 3)) > 0).astype(int)
    names = [f"{prefix}{i}" for i in range(rows)]
    return LabelData.from_arrays(X, Y, label_names=LABELS, example_names=names)


def unlabelled(data: LabelData) -> LabelData:
    Y = np.full((data.num_rows, data.num_labels), np.nan)
    return LabelData.from_arrays(data.X, Y, label_names=data.label_names, example_names=data.example_names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ask")
    train, truth = made(20, 0, "t"), made(15, 1, "p")
    train.save_npz(place / "train.npz")
    truth.save_npz(place / "truth.npz")
    unlabelled(truth).save_npz(place / "pool.npz")
    made(8, 2, "x").save_npz(place / "targets.npz")
    save(fit("label_gp", train, "conjugate", seed=0, num_samples=200), place / "f.nc")
    save(fit("bernoulli_poisson_topics", train, "map_em", seed=0, num_topics=2, max_iter=3), place / "em.nc")
    return place


class Session:
    """A folder of its own and the command line, which answers by exit code, JSON and stderr."""

    def __init__(self, shared: Path, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.shared, self.own, self.capsys = shared, own, capsys

    def __call__(self, *args: Any) -> tuple[int, Any, str]:
        code = run([str(a) for a in args] + ["--json"])
        out, err = self.capsys.readouterr()
        return code, json.loads(out) if code == 0 else None, err

    def ask(self, *more: Any, pool: Any = None, posterior: Any = None) -> tuple[int, Any, str]:
        files = (posterior or self.shared / "f.nc", "--pool", pool or self.shared / "pool.npz")
        return self("ask", *files, "--labelled", self.shared / "train.npz", *more)

    def questions(self, *more: Any, name: str = "q.json") -> list[dict[str, Any]]:
        code, found, err = self.ask("--out", self.own / name, "--force", *more)
        assert code == 0, err
        return list(found["questions"])

    def tell(self, answers: Any, *more: Any, pool: Any = None, out: str = "new.npz") -> tuple[int, Any, str]:
        files = (self.own / "q.json", answers, "--pool", pool or self.shared / "pool.npz")
        return self("tell", *files, "--out", self.own / out, *more)

    def answers(self, ids: list[str], name: str = "answers.csv", change: Any = None) -> Path:
        truth = load(self.shared / "truth.npz").to_frame()
        path = self.own / name
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["id", *LABELS])
            for one in ids:
                writer.writerow([one, *(change or truth.loc[one, LABELS].astype(int).tolist())])
        return path


@pytest.fixture
def session(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Session:
    return Session(folder, tmp_path, capsys)


def test_ask_names_rows_and_writes_questions(session: Session) -> None:
    form = session.own / "form.csv"
    code, found, err = session.ask(
        "--acquire", "ivr", "--batch", 4, "--targets", session.shared / "targets.npz",
        "--out", session.own / "q.json", "--form", form,
    )  # fmt: skip
    assert (code, err) == (0, "")
    ids = [row["id"] for row in found["questions"]]
    assert len(set(ids)) == 4 and set(ids) <= {f"p{i}" for i in range(15)}
    assert found["units"].startswith("variance of the latent function")
    assert all(re.fullmatch(r"([abc] \d\.\d\d(, )?){3}", row["likely_labels"]) for row in found["questions"])
    gains = [row["gain"] for row in found["questions"]]
    assert min(gains) > 0
    saved = load_questions(session.own / "q.json")
    pool = load(session.shared / "pool.npz")
    assert [one.id for one in saved.questions] == ids and saved.acquisition == "ivr"
    assert saved.pool_hash == pool_hash(pool) and saved.data_hash == pool.hash()
    assert saved.posterior["data_hash"] == load(session.shared / "train.npz").hash()
    assert len(saved.posterior["sha256"]) == 64
    assert form.read_text() == "id,a,b,c\n" + "".join(f"{one},,,\n" for one in ids)
    assert session.tell(form)[1]["open_cells"] == 12  # an empty form answers nothing


def test_same_seed_same_questions(session: Session) -> None:
    found = [session.questions("--acquire", "random", "--seed", seed) for seed in (3, 3, 4)]
    assert found[0] == found[1] and found[0] != found[2]
    first = (session.own / "q.json").read_bytes()
    session.questions("--acquire", "random", "--seed", 4)
    assert (session.own / "q.json").read_bytes() == first


def test_text_shows_the_table(session: Session) -> None:
    args = ["ask", session.shared / "f.nc", "--pool", session.shared / "pool.npz", "--batch", 2]
    assert run([str(a) for a in args]) == 0
    out, _ = session.capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("2 rows to label next by ensemble_ivr; gain: variance of a probability")
    assert lines[1].split() == ["id", "gain", "likely_labels"] and len(lines) == 4


def test_part_by_part_is_the_same_file_as_at_once(session: Session) -> None:
    ids = [row["id"] for row in session.questions("--acquire", "ivr", "--batch", 6)]
    every = session.answers(ids, "all.csv")
    assert session.tell(every, out="once.npz")[0] == 0
    code, first, _ = session.tell(session.answers(ids[:2], "1.csv"))
    assert (code, first["new_cells"], first["open_cells"]) == (0, 6, 12)
    assert first["open_rows"] == ids[2:]
    code, second, err = session.tell(session.answers(ids[2:], "2.csv"))  # the same --pool and --out again
    assert (code, second["new_cells"], second["open_cells"]) == (0, 12, 0), err
    once, parts = session.own / "once.npz", session.own / "new.npz"
    assert once.read_bytes() == parts.read_bytes()
    other = {"pool": session.own / "new.npz", "out": "chained.npz"}  # or the new file as the next pool
    assert session.tell(every, **other)[1]["same_cells"] == 18
    assert (session.own / "chained.npz").read_bytes() == once.read_bytes()
    stamp = once.stat().st_mtime_ns
    assert session.tell(every, out="once.npz")[1]["new_cells"] == 0
    assert once.stat().st_mtime_ns == stamp  # nothing new: not even written
    told, truth = load(once), load(session.shared / "truth.npz")
    rows = [int(one[1:]) for one in ids]
    np.testing.assert_array_equal(told.Y[rows].toarray(), truth.Y[rows].toarray())
    assert np.flatnonzero(~told.unlabelled_rows).tolist() == sorted(rows) and told.missing.cells[0].size == 0


def test_unanswered_cells_stay_unobserved(session: Session) -> None:
    ids = [row["id"] for row in session.questions("--acquire", "ivr", "--batch", 3)]
    path = session.own / "some.csv"
    path.write_text(f"id,c,a\n{ids[0]},1,\n{ids[1]},,0\n")
    code, found, _ = session.tell(path, out="new.nc")
    assert code == 0 and (found["new_cells"], found["open_cells"]) == (2, 7)
    told = load(session.own / "new.nc")
    table = told.to_frame().loc[ids, LABELS].to_numpy()
    np.testing.assert_array_equal(table, [[np.nan, np.nan, 1], [0, np.nan, np.nan], [np.nan] * 3])
    assert told.num_missing_cells == 15 * 3 - 2


def test_json_lists_and_mappings(session: Session) -> None:
    ids = [row["id"] for row in session.questions("--acquire", "ivr", "--batch", 3)]
    path = session.own / "answers.json"
    path.write_text(json.dumps({ids[0]: ["b"], ids[1]: [], ids[2]: {"a": 1, "b": None, "c": False}}))
    assert session.tell(path)[0] == 0
    table = load(session.own / "new.npz").to_frame().loc[ids, LABELS].to_numpy()
    np.testing.assert_array_equal(table, [[0, 1, 0], [0, 0, 0], [1, np.nan, 0]])


def test_single_labels(session: Session) -> None:
    found = session.questions("--acquire", "random_cells", "--batch", 5, "--form", session.own / "form.csv")
    pairs = [(row["id"], row["label"]) for row in found]
    assert len(set(pairs)) == 5
    with (session.own / "form.csv").open() as stream:
        form = list(csv.DictReader(stream))
    assert {(r["id"], label) for r in form for label in LABELS if r.get(label) == ""} == set(pairs)
    row, label = pairs[0]
    others = [name for name in LABELS if (row, name) not in pairs]
    path = session.own / "answers.json"
    path.write_text(json.dumps({row: [label]}))
    assert session.tell(path)[1]["new_cells"] == 1  # a list says nothing of labels that were not asked
    path.write_text(json.dumps({row: {others[0]: 0}}))
    code, _, err = session.tell(path)
    assert code == 2 and f"row {row!r}, label {others[0]!r} was not asked" in err
    assert session.tell(path, "--force")[1]["new_cells"] == 1
    path.write_text(json.dumps({row: []}))
    assert "was not asked whole" in session.tell(path)[2]


def test_contradictions_name_row_and_label(session: Session) -> None:
    ids = [row["id"] for row in session.questions("--acquire", "ivr", "--batch", 2)]
    assert session.tell(session.answers(ids, change=[1, 0, 1]))[0] == 0
    before = (session.own / "new.npz").read_bytes()
    other = session.answers(ids[1:], "other.csv", change=[1, 1, 1])
    for pool in (None, session.own / "new.npz"):
        code, _, err = session.tell(other, pool=pool)
        assert code == 2 and f"row {ids[1]!r}, label 'b': the data say 0, the answer 1" in err
        assert err.count("\n") == 1 and (session.own / "new.npz").read_bytes() == before
    code, found, _ = session.tell(other, "--force")
    assert code == 0 and (found["changed_cells"], found["same_cells"]) == (1, 2)
    assert load(session.own / "new.npz").to_frame().loc[ids[1], "b"] == 1
    assert load(session.own / "new.npz").to_frame().loc[ids[0], "b"] == 0


def test_rows_that_were_not_asked(session: Session) -> None:
    ids = [row["id"] for row in session.questions("--acquire", "ivr", "--batch", 2)]
    other = next(f"p{i}" for i in range(15) if f"p{i}" not in ids)
    path = session.own / "answers.json"
    path.write_text(json.dumps({other: {"a": 1}}))
    code, _, err = session.tell(path)
    assert code == 2 and f"row {other!r} was not asked" in err
    code, found, _ = session.tell(path, "--force")
    assert code == 0 and found["new_cells"] == 1
    path.write_text(json.dumps({"nobody": {"a": 1}}))
    assert "row 'nobody' is not in the pool" in session.tell(path, "--force")[2]


def test_two_question_files_of_one_pool(session: Session) -> None:
    """What the first file's answers made of the pool does not make it another pool for the second."""
    first = [row["id"] for row in session.questions("--acquire", "random", "--batch", 3)]
    assert session.tell(session.answers(first))[0] == 0
    second = [row["id"] for row in session.questions("--acquire", "ivr", "--batch", 12)]
    mine = [one for one in second if one not in first]
    code, found, err = session.tell(session.answers(mine), pool=session.own / "new.npz")
    assert code == 0 and found["labelled_rows"] == 3 + len(mine), err


def test_loop_fit_ask_tell_fit(session: Session) -> None:
    train, pool = load(session.shared / "train.npz"), load(session.shared / "pool.npz")
    Y = np.vstack([train.Y.toarray(), np.full((15, 3), np.nan)])
    X, names = np.vstack([train.X, pool.X]), [*train.example_names, *pool.example_names]
    data = session.own / "data.npz"
    LabelData.from_arrays(X, Y, label_names=LABELS, example_names=names).save_npz(data)
    for number in range(2):
        out = session.own / f"f{number}.nc"
        assert session("fit", "label_gp", "--data", data, "--engine", "conjugate", "--out", out)[0] == 0
        asked = session.own / f"q{number}.json"
        code, found, err = session(
            "ask", out, "--pool", data, "--acquire", "ivr", "--batch", 4, "--out", asked
        )  # fmt: skip
        assert code == 0, err
        ids = [row["id"] for row in found["questions"]]
        asked.rename(session.own / "q.json")
        code, found, err = session.tell(session.answers(ids), pool=data, out="data.npz")
        assert code == 0 and found["labelled_rows"] == 20 + 4 * (number + 1), err


def test_a_class_is_told_by_all_labels_of_its_row(session: Session) -> None:
    rng = np.random.default_rng(3)
    codes, X = np.arange(24) % 3, rng.standard_normal((24, 2))
    Y = np.where(np.arange(24)[:, None] < 18, np.eye(3)[codes], np.nan)
    data, model = session.own / "data.npz", session.own / "f.nc"
    names = [f"r{i}" for i in range(24)]
    LabelData.from_arrays(X, Y, label_names=LABELS, example_names=names).save_npz(data)
    fit_again = ("fit", "kernel_neighbors", "--data", data, "--engine", "dual", "--out", model)
    assert session(*fit_again)[0] == 0
    more = ("--acquire", "max_probability", "--batch", 2, "--out", session.own / "q.json")
    code, asked, err = session("ask", model, "--pool", data, *more)
    assert code == 0, err
    first, second = (row["id"] for row in asked["questions"])
    (answers := session.own / "answers.json").write_text(json.dumps({first: {"a": 1}}))
    assert session.tell(answers, pool=data, out="data.npz")[0] == 0
    code, _, err = session(*fit_again)
    assert code == 2 and f"the first being {first!r}, which lacks 'b'" in err
    # What the message says is what mends it, label by label; a list of labels says 0 of all others.
    for label in ("b", "c"):
        said = re.search(r"tell, (\{.*\}\}) in JSON", err)
        assert said is not None and json.loads(said[1]) == {first: {label: 0}}
        answers.write_text(said[1])
        assert session.tell(answers, pool=data, out="data.npz")[0] == 0
        code, _, err = session(*fit_again)
    assert code == 0, err
    answers.write_text(json.dumps({second: ["b"]}))
    assert session.tell(answers, pool=data, out="data.npz")[0] == 0
    assert session(*fit_again)[0] == 0
    assert load_posterior(model)["constant_data"]["fitted_row"].size == 20


ASK_FAULTS: dict[str, tuple[Callable[[Session], list[Any]], str]] = {
    "unknown function": (lambda s: ["--acquire", "best"], "no acquisition function 'best'; functions: ivr"),
    "nothing left": (
        lambda s: ["--pool", s.shared / "truth.npz"],
        "the pool has no row left to ask",
    ),
    "no pool": (lambda s: ["--pool", s.own / "none.npz"], "no such file"),
    "point engine": (lambda s: [s.shared / "em.nc"], "engine 'map_em' gives points"),
    "targets": (lambda s: ["--targets", wide(s)], r"--targets \S+: X has shape \(4, 5\), the posterior was"),
    "labels": (
        lambda s: ["--pool", relabelled(s)],
        "labels differ between pool and posterior: pool lacks 1: c",
    ),
    "NaN": (lambda s: [broken(s), "--acquire", "entropy"], r"gives no probability \(NaN\) for row 'p0'"),
    "NaN draws": (lambda s: [broken(s)], "NaN|finite|outside"),
    "out": (lambda s: ["--out", s.own / "no" / "q.json"], "--out .*No such file or directory"),
    "batch": (lambda s: ["--batch", 0], "'--batch'"),
    "not a posterior": (lambda s: [s.shared / "pool.npz"], "is not a readable netCDF file"),
    "shared names": (lambda s: ["--pool", twins(s)], "several rows of the pool are called 'same'"),
}


def wide(session: Session) -> Path:
    path = session.own / "wide.npz"
    LabelData.from_arrays(np.ones((4, 5)), np.zeros((4, 3)), label_names=LABELS).save_npz(path)
    return path


def relabelled(session: Session) -> Path:
    path = session.own / "labels.npz"
    load(session.shared / "pool.npz").subset(labels=["a", "b"]).save_npz(path)
    return path


def twins(session: Session) -> Path:
    path = session.own / "twins.npz"
    names = ["same"] * 4
    Y = np.full((4, 3), np.nan)
    LabelData.from_arrays(np.eye(4)[:, :2], Y, label_names=LABELS, example_names=names).save_npz(path)
    return path


def broken(session: Session) -> Path:
    tree = load_posterior(session.shared / "f.nc")
    tree["posterior"]["white"][:] = np.nan
    tree["constant_data"]["mean"][:] = np.nan
    return save(tree, session.own / "nan.nc")


@pytest.mark.parametrize("fault", ASK_FAULTS)
def test_ask_refuses_in_one_line(session: Session, fault: str) -> None:
    make, message = ASK_FAULTS[fault]
    args = make(session)
    posterior = args.pop(0) if not str(args[0]).startswith("--") else session.shared / "f.nc"
    if "--pool" not in args:
        args += ["--pool", session.shared / "pool.npz"]
    code, _, err = session("ask", posterior, *args)
    assert code == 2 and err.count("\n") == 1 and err.startswith("labelzoo: ")
    assert re.search(message, err), err


def test_batch_larger_than_the_pool_warns(session: Session) -> None:
    code, found, err = session.ask("--acquire", "random", "--batch", 99)
    assert code == 0 and len(found["questions"]) == 15
    assert err == "labelzoo: warning: batch of 99 from a pool of 15: the whole pool is returned\n"


def test_kernel_needs_labelled_rows(session: Session) -> None:
    args = (session.shared / "f.nc", "--pool", session.shared / "pool.npz", "--acquire", "ivr")
    code, _, err = session("ask", *args)
    assert code == 2 and "the pool has none: give labelled=" in err


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another file": (lambda q: {"a": 1}, "is no questions file"),
    "a list": (lambda q: [1], "is no questions file"),
    "layout": (lambda q: q | {"labelzoo_questions": 9}, "of layout 9"),
    "no questions": (lambda q: q | {"questions": []}, "it holds no questions"),
    "a field lacks": (lambda q: {k: v for k, v in q.items() if k != "pool_hash"}, "damaged.*pool_hash"),
    "foreign field": (lambda q: q | {"colour": 1}, "damaged.*colour"),
    "bad label": (
        lambda q: q | {"query": "cell", "questions": [{"id": "p0", "label": "z"}]},
        "the label 'z'",
    ),
    "bad id": (lambda q: q | {"questions": [{"id": 3}]}, "it has no id"),
    "bad gain": (lambda q: q | {"questions": [{"id": "p0", "gain": "x"}]}, "the gain 'x'"),
    "posterior": (lambda q: q | {"posterior": []}, "posterior is no object"),
    "seed text": (lambda q: q | {"seed": "x"}, "seed must be an integer of at least 0, got 'x'"),
    "seed": (lambda q: q | {"seed": -1}, "seed must be an integer of at least 0, got -1"),
    "query": (lambda q: q | {"query": "column"}, "query is 'column', neither 'row' nor 'cell'"),
    "gain is NaN": (lambda q: q | {"questions": [{"id": "p0", "gain": float("nan")}]}, "the gain nan"),
    "kind": (lambda q: q | {"query": "cell"}, "is no query of kind 'cell'"),
    "twice": (lambda q: q | {"questions": [{"id": "p0"}] * 2}, "stands in it twice"),
    "foreign row": (lambda q: q | {"questions": [{"id": "zz"}]}, "the pool has no row 'zz'"),
    "another pool": (lambda q: q | {"pool_hash": "0" * 64}, "another pool: its rows, features or names"),
    "other labels": (lambda q: q | {"label_names": ["a", "b"]}, "another pool: its labels differ"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_questions(session: Session, damage: str) -> None:
    session.questions("--acquire", "random", "--batch", 2)
    change, message = DAMAGE[damage]
    path = session.own / "q.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    answers = session.own / "answers.json"
    answers.write_text("{}")
    code, _, err = session.tell(answers)
    assert code == 2 and err.count("\n") == 1 and re.search(message, err), err
    assert not (session.own / "new.npz").exists()


def test_truncated_questions(session: Session) -> None:
    session.questions("--acquire", "random", "--batch", 2)
    path = session.own / "q.json"
    path.write_bytes(path.read_bytes()[:200])
    code, _, err = session.tell(session.answers(["p0"]))
    assert code == 2 and re.search(r"q\.json:\d+: is no JSON", err), err


ANSWER_FAULTS = {
    "value": ("id,a\np0,2\n", r"a\.csv:2: label 'a' is '2': write 0, 1 or nothing"),
    "label": ("id,z\np0,1\n", "row 'p0': the pool has no label 'z'"),
    "header": ("a,b\n1,0\n", r"a\.csv:1: the first column must be 'id'"),
    "empty": ("", r"a\.csv:1: the first column must be 'id'"),
    "repeated label": ("id,a,a\np0,1,0\n", "the header repeats a"),
    "repeated row": ("id,a\np0,1\np0,1\n", r"a\.csv:3: row 'p0' stands twice"),
    "semicolons": ("id;a;b\np0;1;0\n", r"a\.csv:1: .*separated by ';'"),
    "cells": ("id,a\np0,1,0\n", r"a\.csv:2: has 3 cells, the header 2"),
    "json value": ('{"p0": {"a": 3}}', "row 'p0', label 'a': the answer is 3, not 0, 1"),
    "json kind": ('{"p0": "a"}', "row 'p0': answer with a list of labels"),
    "json label": ('{"p0": [1]}', "row 'p0': 1 is no name of a label"),
    "json twice": ('{"p0": [], "p0": []}', "'p0' stands twice"),
    "json broken": ('{"p0": [', r"a\.csv:1: is no JSON"),
}


@pytest.mark.parametrize("fault", ANSWER_FAULTS)
def test_bad_answers(session: Session, fault: str) -> None:
    session.questions("--acquire", "random", "--batch", 15)
    text, message = ANSWER_FAULTS[fault]
    path = session.own / "a.csv"
    path.write_text(text)
    code, _, err = session.tell(path)
    assert code == 2 and err.count("\n") == 1 and re.search(message, err), err
    assert not (session.own / "new.npz").exists()


def test_bad_out(session: Session) -> None:
    session.questions("--acquire", "random", "--batch", 2)
    answers = session.own / "answers.json"
    answers.write_text("{}")
    code, _, err = session.tell(answers, out="new.xyz")
    assert code == 2 and "the suffix names no format" in err
    code, _, err = session.tell(answers, out="new.svm")
    assert code == 2 and "npz" in err and not (session.own / "new.svm").exists()
    made(4, 5, "other").save_npz(session.own / "new.npz")
    code, _, err = session.tell(answers)
    assert code == 2 and "it is not this pool with answers" in err


def some_data(seed: int, missing: float) -> LabelData:
    rng = np.random.default_rng(seed)
    Y = (rng.random((9, 4)) < 0.5).astype(float)
    Y[rng.random((9, 4)) < missing] = np.nan
    return LabelData.from_arrays(sparse.csr_array(rng.random((9, 3)) * (rng.random((9, 3)) < 0.5)), Y)


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_with_cells_equals_the_dense_table(missing: float) -> None:
    for seed in range(20):
        data = some_data(seed, missing)
        rng = np.random.default_rng([seed, 1])
        keys = rng.choice(36, rng.integers(0, 20), replace=False)
        cells = AnsweredCells(keys // 4, keys % 4, rng.integers(0, 2, len(keys)).astype(np.int8))
        table = data.Y.toarray().astype(float)
        table[~data.observed_mask()] = np.nan
        table[cells.rows, cells.labels] = cells.values
        wanted = LabelData.from_arrays(data.X, table)
        assert with_cells(data, cells).hash() == wanted.hash()


def test_with_earlier_is_the_union() -> None:
    truth = some_data(0, 0.0).Y.toarray().astype(float)
    rng = np.random.default_rng(3)
    one, two = truth.copy(), truth.copy()
    one[rng.random(truth.shape) < 0.6], two[rng.random(truth.shape) < 0.6] = np.nan, np.nan
    X = rng.standard_normal((9, 3))
    both = with_earlier(LabelData.from_arrays(X, one), LabelData.from_arrays(X, two))
    assert both.hash() == LabelData.from_arrays(X, np.where(np.isnan(one), two, one)).hash()
    two[0, 0], one[0, 0] = 1 - truth[0, 0], truth[0, 0]
    pair = LabelData.from_arrays(X, one), LabelData.from_arrays(X, two)
    with pytest.raises(ValueError, match="row 'row 0', label 'label 0'"):
        with_earlier(*pair)
    assert with_earlier(*pair, force=True).Y[0, 0] == two[0, 0]


def test_tell_in_python_keeps_the_split(tmp_path: Path) -> None:
    X, Y = np.arange(8.0).reshape(4, 2), np.full((4, 2), np.nan)
    pool = LabelData(X, Y, label_names=["a", "b"], train_index=[0, 1], test_index=[2, 3])
    asked = Questions(pool_hash(pool), pool.hash(), "random", "row", "-", 0, ("a", "b"), (Question("row 2"),))
    again = load_questions(save_questions(asked, tmp_path / "q.json"))
    assert again == asked
    result = tell(pool, again, {"row 2": ["b"]})
    assert (result.new, result.open, result.open_ids) == (2, 0, ())
    np.testing.assert_array_equal(result.data.train_index, [0, 1])
    save_data(result.data, tmp_path / "d.nc")
    assert load(tmp_path / "d.nc").hash() == result.data.hash()


def test_plain_numbers() -> None:
    values = [np.float64("nan"), np.int64(3), np.array([1.0, np.inf]), "x", None]
    assert plain(values) == [None, 3, [1.0, None], "x", None]


OVERWRITES: dict[str, tuple[list[str], str]] = {
    "posterior": (["--out", "f.nc"], "--out .*f.nc' is the file that is read as the posterior"),
    "pool": (["--out", "pool.npz"], "--out .* read as --pool"),
    "form on pool": (["--form", "pool.npz"], "--form .* read as --pool"),
    "targets": (["--targets", "targets.npz", "--out", "targets.npz"], "--out .* read as --targets"),
    "labelled": (["--labelled", "train.npz", "--form", "train.npz"], "--form .* read as --labelled"),
    "symbolic link": (["--out", "link.npz"], "--out .* read as --pool"),
    "hard link": (["--out", "hard.npz"], "--out .* read as --pool"),
    "another spelling": (["--out", "folder/../pool.npz"], "--out .* read as --pool"),
    "in the pool's folder": (["--pool", "folder", "--out", "folder/a.arff"], "--out .* read as --pool"),
    "one file twice": (["--out", "q.json", "--form", "folder/../q.json"], "--out and --form are one file"),
    "dangling links": (["--out", "a.json", "--form", "b.json"], "--out and --form are one file"),
}


@pytest.mark.parametrize("case", OVERWRITES)
@pytest.mark.parametrize("force", [False, True])
def test_ask_never_replaces_what_it_reads(session: Session, case: str, force: bool) -> None:
    for name in ("f.nc", "pool.npz", "targets.npz", "train.npz"):
        (session.own / name).write_bytes((session.shared / name).read_bytes())
    (session.own / "folder").mkdir()
    (session.own / "folder/a.arff").touch()
    (session.own / "link.npz").symlink_to("pool.npz")
    (session.own / "hard.npz").hardlink_to(session.own / "pool.npz")
    for name in ("a.json", "b.json"):
        (session.own / name).symlink_to("made.json")
    options, message = OVERWRITES[case]
    args = [part if part.startswith("--") else session.own / part for part in options]
    files = [session.own / "f.nc", "--pool", session.own / "pool.npz", "--acquire", "random"]
    before = {p.name: p.read_bytes() for p in session.own.iterdir() if p.is_file()}
    code, _, err = session("ask", *files, *args, *(["--force"] if force else []))
    assert code == 2 and err.count("\n") == 1 and re.search(message, err), err
    assert {p.name: p.read_bytes() for p in session.own.iterdir() if p.is_file()} == before


def test_a_filled_form_is_not_emptied(session: Session) -> None:
    form, out = session.own / "filled.csv", session.own / "q.json"
    args = ("--acquire", "random", "--batch", 2, "--form", form)
    assert session.ask(*args)[0] == 0
    form.write_text(form.read_text().replace(",,,", ",1,0,1"))
    filled = form.read_bytes()
    code, _, err = session.ask(*args, "--out", out)
    assert code == 2 and re.search(r"--form .*filled\.csv' is there already and answers .* --force", err), err
    assert form.read_bytes() == filled and not out.exists()
    out.write_text("{}")
    code, _, err = session.ask("--acquire", "random", "--out", out)
    assert code == 2 and "--out" in err and "--force" in err and out.read_text() == "{}"
    assert session.ask(*args, "--out", out, "--force")[0] == 0
    assert form.read_bytes() != filled and len(load_questions(out).questions) == 2


def test_tell_never_replaces_questions_or_answers(session: Session) -> None:
    ids = [row["id"] for row in session.questions("--acquire", "random", "--batch", 2)]
    answers = session.answers(ids)
    (session.own / "link.npz").symlink_to("q.json")
    (session.own / "more.npz").symlink_to("answers.csv")
    before = [(session.own / "q.json").read_bytes(), answers.read_bytes()]
    for out, what in (("link.npz", "the questions"), ("more.npz", "the answers")):
        code, _, err = session.tell(answers, out=out)
        assert code == 2 and f"is the file that is read as {what}" in err, err
    assert [(session.own / "q.json").read_bytes(), answers.read_bytes()] == before


def test_two_tells_at_once_lose_nothing(session: Session) -> None:
    """What another process writes while it holds the lock is read after the lock was taken."""
    ids = [row["id"] for row in session.questions("--acquire", "random", "--batch", 4)]
    mine, out = session.answers(ids[:2], "mine.csv"), session.own / "new.npz"
    args = ["tell", session.own / "q.json", mine, "--pool", session.shared / "pool.npz", "--out", out]
    codes: list[int] = []
    second = threading.Thread(target=lambda: codes.append(run([str(a) for a in args])))
    pool, asked = load(session.shared / "pool.npz"), load_questions(session.own / "q.json")
    with one_writer(out):
        second.start()
        time.sleep(SAY_AFTER + 1)
        assert second.is_alive() and not out.exists(), "the second did not wait"
        save_data(tell(pool, asked, {one: ["b"] for one in ids[2:]}).data, out)
    second.join(60)
    assert codes == [0]
    assert (
        f"waiting for another 'labelzoo tell' to finish with {str(out)!r}" in session.capsys.readouterr().err
    )
    assert int((~load(out).unlabelled_rows).sum()) == 4
    assert [path.name for path in session.own.iterdir() if "lock" in path.name] == []


def test_a_stale_lock_file_blocks_nobody(session: Session) -> None:
    ids = [row["id"] for row in session.questions("--acquire", "random", "--batch", 2)]
    (session.own / ".new.npz.lock").write_text("of a process that was killed")
    code, _, err = session.tell(session.answers(ids))
    assert (code, err) == (0, "")


@pytest.mark.parametrize("name", ["label_names", "model", "settings", "posterior", "constant_data"])
def test_damaged_posteriors_in_one_line(session: Session, name: str) -> None:
    tree = load_posterior(session.shared / "f.nc")
    if name in tree.attrs:
        del tree.attrs[name]
    else:
        del tree[name]
    path = session.own / "damaged.nc"
    tree.to_netcdf(path, engine="h5netcdf")
    code, _, err = session.ask("--acquire", "random", posterior=path)
    assert code == 2 and err.count("\n") == 1, err
    assert re.search(rf"damaged\.nc: the posterior is damaged: it lacks the \w+ '{name}'", err), err


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_answers_are_read(session: Session, coding: str) -> None:
    """Spreadsheets write "Unicode text" so; a byte-order mark says it."""
    ids = [row["id"] for row in session.questions("--acquire", "random", "--batch", 2)]
    mark = "" if coding == "utf-16" else "\ufeff"
    path = session.own / "a.csv"
    path.write_bytes((mark + f"id,a\r\n{ids[0]},1\r\n").encode(coding))
    code, found, err = session.tell(path)
    assert code == 0 and found["new_cells"] == 1, err
    path = session.own / "a.json"
    path.write_bytes((mark + json.dumps({ids[1]: ["b"]})).encode(coding))
    assert session.tell(path)[1]["new_cells"] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [({"seed": -1}, "seed"), ({"query": "column"}, "query"), ({"inputs": {"pool": Path("p")}}, "JSON")],
)
def test_what_cannot_be_read_is_not_written(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"seed": 0, "query": "row", "inputs": {}} | change
    head = ("h", "h", "random", fields["query"], "-", fields["seed"])
    asked = Questions(*head, ("a",), (Question("r"),), {}, fields["inputs"])
    with pytest.raises(ValueError, match=f"these questions cannot be written: .*{message}"):
        save_questions(asked, tmp_path / "q.json")
    assert list(tmp_path.iterdir()) == []
