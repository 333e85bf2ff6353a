"""Questions for a person: what was asked, of which pool, by which posterior; kept in a JSON file."""

import codecs
import csv
import json
import os
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.data.errors import DataError
from labelzoo.data.missing import Missing
from labelzoo.data.validate import listed
from labelzoo.whole_file import whole_file

FORMAT = 1
"""Number of the file layout, checked on reading."""
POSTERIOR_ATTRS = ("model", "engine", "kind", "seed", "data_hash")


@dataclass(frozen=True)
class Question:
    """One row to label, or one label of a row.

    Attributes
    ----------
    id : str
        Name of the row.
    gain : float or None
        Score when it was chosen; None where it is not finite.
    label : str or None
        The label that is asked; None: all of them.
    """

    id: str
    gain: float | None = None
    label: str | None = None


@dataclass(frozen=True)
class Questions:
    """What was asked.

    Attributes
    ----------
    pool_hash : str
        Hash of the pool's features and names, labels left out: answers do not change it.
    data_hash : str
        Hash of the pool as it was asked about, labels included.
    acquisition, query, units : str
        Name of the catalogue, ``row`` or ``cell``, units of the gains.
    seed : int
    label_names : tuple of str
    questions : tuple of Question
        In order of choice.
    posterior : dict
        Model, engine, kind, seed, data hash; the file and its SHA-256 where it came from one.
    inputs : dict
        Names of the files that were read.
    report : dict
        What the acquisition function tells beside the gains.
    version : str
        Of labelzoo.
    """

    pool_hash: str
    data_hash: str
    acquisition: str
    query: str
    units: str
    seed: int
    label_names: tuple[str, ...]
    questions: tuple[Question, ...]
    posterior: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    version: str = field(default_factory=lambda: version("labelzoo"))

    @property
    def asked(self) -> dict[str, tuple[str, ...]]:
        """Return the labels asked of each row, in order of choice: id to label names."""
        found: dict[str, list[str]] = {}
        for one in self.questions:
            found.setdefault(one.id, []).extend(self.label_names if one.label is None else [one.label])
        return {name: tuple(labels) for name, labels in found.items()}


def make_questions(
    tree: Any, pool: LabelData, table: Any, *, acquire: str, seed: int = 0, inputs: Any = None
) -> Questions:
    """Gather what `labelzoo.acquisition.ask` answered into something that can be saved and answered.

    Parameters
    ----------
    tree : DataTree
        The posterior that was asked.
    pool : LabelData
    table : pandas.DataFrame
        The answer of `labelzoo.acquisition.ask`.
    acquire : str
    seed : int
    inputs : dict or None
        Names of files, for the record.

    Raises
    ------
    ValueError
        If a chosen row shares its name with another: answers are told by name.
    """
    from labelzoo.acquisition.catalogue import find
    from labelzoo.acquisition.problem_checks import check_seed

    chosen = [str(name) for name in table["obs"]]
    refuse_shared_names(pool, set(chosen))
    labels = table["label"] if "label" in table else [None] * len(chosen)
    report = {str(name): plain(value) for name, value in table.attrs.get("report", {}).items()}
    units = str(report.pop("units", find(acquire).units))
    questions = (
        Question(name, plain(float(gain)), label)
        for name, gain, label in zip(chosen, table["gain"], labels, strict=True)
    )
    return Questions(
        pool_hash(pool), pool.hash(), acquire, find(acquire).query, units, check_seed(seed),
        tuple(pool.label_names), tuple(questions),
        {name: plain(tree.attrs[name]) for name in POSTERIOR_ATTRS if name in tree.attrs},
        {str(name): plain(value) for name, value in dict(inputs or {}).items()}, report,
    )  # fmt: skip


def pool_hash(data: LabelData) -> str:
    """Return the hash of features and names alone, the same before and after labels are told."""
    nothing = sparse.csr_array((data.num_rows, data.num_labels), dtype=np.int8)
    bare = LabelData(
        X=data.X,
        Y=nothing,
        missing=Missing(np.ones(data.num_rows, bool)),
        feature_names=data.feature_names,
        label_names=data.label_names,
        example_names=data.example_names,
        allow_missing_features=True,
    )
    return bare.hash()


def refuse_shared_names(pool: LabelData, ids: set[str]) -> None:
    """Raise ValueError where one of `ids` names several rows of the pool."""
    seen: set[str] = set()
    shared = []
    for name in pool.example_names:
        if name in ids and name in seen and name not in shared:
            shared.append(name)
        seen.add(name)
    if shared:
        raise ValueError(
            f"several rows of the pool are called {listed([repr(name) for name in shared])}: "
            "answers are told by row name, so rows need distinct names"
        )


def plain(value: Any) -> Any:
    """Return a number, text or list that JSON can hold; None for NaN and infinite numbers."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, int | str | type(None)) else str(value)


def save_questions(questions: Questions, path: str | os.PathLike[str]) -> Path:
    """Write a questions file, at once or not at all.

    Raises
    ------
    ValueError
        If `load_questions` would not read it back, or the file cannot be written.
    """
    target = Path(path)
    try:
        _from_plain(json.loads(json.dumps(asdict(questions))))
        payload = {"labelzoo_questions": FORMAT, **asdict(questions)}
        content = (json.dumps(payload, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"these questions cannot be written: {error}") from error
    with whole_file(target) as temporary:
        temporary.write_bytes(content)
    return target


def load_questions(path: str | os.PathLike[str]) -> Questions:
    """Read what `save_questions` wrote.

    Raises
    ------
    DataError
        If the file is absent, damaged, or of another kind or version; one line that begins with the path.
    """
    values = read_json(path)
    if not isinstance(values, dict) or "labelzoo_questions" not in values:
        raise DataError("is no questions file: 'labelzoo ask --out' writes one", path)
    number = values.pop("labelzoo_questions")
    if number != FORMAT:
        raise DataError(f"is a questions file of layout {number!r}; this labelzoo reads {FORMAT}", path)
    try:
        found = _from_plain(values)
    except (TypeError, KeyError, ValueError) as error:
        raise DataError(f"is a damaged questions file: {error}", path) from error
    return found


def _from_plain(values: dict[str, Any]) -> Questions:
    for name in ("pool_hash", "data_hash", "acquisition", "query", "units", "version"):
        if not isinstance(values[name], str):
            raise ValueError(f"{name} is no text")
    for name in ("posterior", "inputs", "report"):
        if not isinstance(values[name], dict):
            raise ValueError(f"{name} is no object")
    names, asked = values["label_names"], values["questions"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("label_names is no list of names")
    if values["query"] not in ("row", "cell"):
        raise ValueError(f"query is {values['query']!r}, neither 'row' nor 'cell'")
    seed = values["seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
    if not isinstance(asked, list) or not asked:
        raise ValueError("it holds no questions")
    questions = tuple(_question(one, values["query"], names) for one in asked)
    if len({(one.id, one.label) for one in questions}) < len(questions):
        raise ValueError("a question stands in it twice")
    return Questions(**{**values, "label_names": tuple(names), "questions": questions})


def _question(one: Any, query: str, names: list[str]) -> Question:
    if not isinstance(one, dict) or not isinstance(one.get("id"), str):
        raise ValueError(f"a question is {one!r}: it has no id")
    label, gain = one.get("label"), one.get("gain")
    if not (label is None or label in names):
        raise ValueError(f"the question about {one['id']!r} has the label {label!r}")
    number = isinstance(gain, int | float) and not isinstance(gain, bool) and np.isfinite(gain)
    if not (gain is None or number):
        raise ValueError(f"the question about {one['id']!r} has the gain {gain!r}")
    if (label is None) != (query == "row"):
        raise ValueError(f"the question about {one['id']!r} is no query of kind {query!r}")
    return Question(one["id"], None if gain is None else float(gain), label)


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read JSON; a name that stands twice in one object is refused, with DataError as for all damage."""
    from labelzoo.data.text_files import open_text

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, value in pairs:
            if name in out:
                raise ValueError(f"{name!r} stands twice")
            out[name] = value
        return out

    with open_text(path, encoding_of(path)) as stream:
        try:
            return json.load(stream, object_pairs_hook=once)
        except json.JSONDecodeError as error:
            raise DataError(f"is no JSON: {error.msg}", path, error.lineno) from error
        except RecursionError as error:
            raise DataError("is no JSON that can be read: nested too deeply", path) from error
        except UnicodeDecodeError:
            raise
        except ValueError as error:
            raise DataError(str(error), path) from error


def encoding_of(path: str | os.PathLike[str]) -> str:
    """Return ``utf-16`` where a byte-order mark says so ("Unicode text" of spreadsheets), else ``utf-8``."""
    from labelzoo.data.text_files import refuse_irregular

    refuse_irregular(path)
    try:
        with open(path, "rb") as stream:
            return "utf-16" if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from error


def write_form(questions: Questions, path: str | os.PathLike[str]) -> Path:
    """Write an empty answer form: CSV with the asked ids and one column a label, at once or not at all.

    For queries of single labels the columns are the labels that were asked at least once; a cell that was not
    asked holds ``-``.
    """
    target = Path(path)
    asked = questions.asked
    wanted = {label for labels in asked.values() for label in labels}
    columns = [name for name in questions.label_names if name in wanted]
    with whole_file(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["id", *columns])
        for name, labels in asked.items():
            own = set(labels)
            writer.writerow([name, *("" if label in own else NOT_ASKED for label in columns)])
    return target


NOT_ASKED = "-"
"""What an answer form holds where nothing was asked."""
