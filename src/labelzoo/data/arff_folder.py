"""A folder as the Mulan and MEKA sites pack it: NAME.arff, or train and test files, and perhaps NAME.xml."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from labelzoo.data.errors import DataError
from labelzoo.data.labeldata import LabelData
from labelzoo.data.missing import Missing, complement
from labelzoo.data.validate import listed

ARFF = re.compile(r"(.+)\.arff(?:\.gz|\.bz2)?", re.IGNORECASE)
PART = re.compile(r"(.+)[-_.](train|test)", re.IGNORECASE)


def read_folder(folder: Path, **options: Any) -> LabelData:
    """Read the one data set of a folder; a train and a test file become one table with a published split.

    Where both NAME.arff and such a pair are there, the pair is read: its rows are the same, and it has the
    split. The XML is NAME.xml, else the only one in the folder; ``xml=`` wins.

    Raises
    ------
    DataError
        Where the folder holds no data set or several, or where the two files differ in their attributes.
    """
    from labelzoo.data.mulan import read_arff

    name, files = found_files(folder)
    options.setdefault("xml", found_xml(folder, name))
    if len(files) == 1:
        return read_arff(files[0], **options)
    return stacked(read_arff(files[0], **options), read_arff(files[1], **options), folder)


def found_files(folder: Path) -> tuple[str, list[Path]]:
    """Return the name of the data set of a folder and its files: one, or (train, test)."""
    stems = {match[1]: path for path in sorted(folder.iterdir()) if (match := ARFF.fullmatch(path.name))}
    pairs: dict[str, dict[str, Path]] = {}
    whole: dict[str, Path] = {}
    for stem, path in stems.items():
        part = PART.fullmatch(stem)
        if part:
            pairs.setdefault(part[1], {})[part[2].lower()] = path
        else:
            whole[stem] = path
    found = {name: [path] for name, path in whole.items()}
    for name, parts in pairs.items():
        if len(parts) == 2:
            found[name] = [parts["train"], parts["test"]]
        elif name not in found:
            found[name] = list(parts.values())
    if not found:
        raise DataError("is a folder without an .arff file", folder)
    if len(found) > 1:
        raise DataError(f"holds several data sets, give one file: {listed(sorted(found))}", folder)
    return next(iter(found.items()))


def found_xml(folder: Path, name: str) -> Path | None:
    """Return NAME.xml, else the only .xml file of the folder, else None."""
    files = [path for path in sorted(folder.iterdir()) if path.suffix.lower() == ".xml"]
    same = [path for path in files if path.stem.lower() == name.lower()]
    return same[0] if same else files[0] if len(files) == 1 else None


def stacked(train: LabelData, test: LabelData, folder: Path) -> LabelData:
    """Return one table of two with the same features and labels, and where each row came from as the split.

    Raises
    ------
    DataError
        Saying which features or labels differ.
    """
    for what, a, b in (
        ("features", train.feature_names, test.feature_names),
        ("labels", train.label_names, test.label_names),
    ):
        if a != b:
            only = [f"{n!r} (train only)" for n in a if n not in set(b)]
            only += [f"{n!r} (test only)" for n in b if n not in set(a)]
            raise DataError(
                f"the train and test files differ in their {what}: {differing(a, b, only)}", folder
            )
    parts = (train, test)
    if any(sparse.issparse(part.X) for part in parts):
        X = sparse.csr_array(sparse.vstack([sparse.csr_array(part.X) for part in parts]))
    else:
        X = np.concatenate([part.X for part in parts])
    given = any(name != f"row {i}" for part in parts for i, name in enumerate(part.example_names))
    return LabelData(
        X=X,
        Y=sparse.csr_array(sparse.vstack([train.Y, test.Y])),
        missing=stacked_missing(train, test),
        feature_names=train.feature_names,
        label_names=train.label_names,
        example_names=[*train.example_names, *test.example_names] if given else None,
        train_index=np.arange(train.num_rows),
        test_index=train.num_rows + np.arange(test.num_rows),
        allow_missing_features=train.allow_missing_features or test.allow_missing_features,
    )


def differing(a: tuple[str, ...], b: tuple[str, ...], only: list[str]) -> str:
    """Say how two lists of names differ: by their members, else by the first place where the order does."""
    if only:
        return listed(only)
    place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"in their order from number {place} on"


def stacked_missing(train: LabelData, test: LabelData) -> Missing | None:
    """Return the unobserved labels of both tables, the second one's rows numbered after the first one's."""
    flags = np.concatenate([train.unlabelled_rows, test.unlabelled_rows])
    rows, labels = [], []
    for part, offset in ((train, 0), (test, train.num_rows)):
        if part.missing is None:
            continue
        cells = part.missing.cells
        if part.missing.cells_are == "observed":
            cells = complement(cells, part.num_labels)
        rows.append(cells[0] + offset)
        labels.append(cells[1])
    if not rows:
        return None
    return Missing(flags, (np.concatenate(rows), np.concatenate(labels)))
