"""Methods that stand beside Bernoulli-Poisson topics in its tables, each as a grid and one function.

Logistic regression one-vs-rest, ridge on all labels, PLST (Tai and Lin 2012), napkinXC (binary relevance and
probabilistic label trees) and MLkNN. The last two packages are no dependencies of labelzoo; where one is not
installed its rows say so:

    pip install --no-deps napkinxc scikit-multilearn-ng

Logistic regression is scikit-learn's with liblinear, the fastest on sparse rows; liblinear penalises the
intercept, here a hundred times less than a weight (``intercept_scaling=10``), so that it is nearly free.
"""

import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from labelzoo.data import LabelData

Array = Any
Setting = dict[str, Any]

FORMS = ("raw", "row", "tfidf")
CLIP = 1e-3
"""Ridge and PLST give scores, no probabilities; for the log score they are cut to [CLIP, 1 - CLIP]."""


class Predicted(NamedTuple):
    """What a fitted method says about some sets of new rows.

    Attributes
    ----------
    scores : list of float array (row, labels)
        To rank by.
    probs : list of float array (row, labels)
        Within [0, 1], for the log score.
    seconds, compile_seconds : float
        Of fitting, wall clock.
    """

    scores: list[Array]
    probs: list[Array]
    seconds: float
    compile_seconds: float = 0.0


class Method(NamedTuple):
    """A method and what may be tuned in it.

    Attributes
    ----------
    name : str
    grid : tuple of dict
        Settings that the validation rows choose from.
    predict : callable
        (training rows, list of new rows, setting, seed) to `Predicted`.
    ours : bool
    absent : str
        Why it cannot run here, empty where it can.
    """

    name: str
    grid: tuple[Setting, ...]
    predict: Callable[[LabelData, Sequence[LabelData], Setting, int], Predicted]
    ours: bool = False
    absent: str = ""


def csr32(X: Any) -> sparse.csr_matrix:
    """Return a csr matrix with the 32-bit indices that liblinear and napkinXC ask for."""
    X = sparse.csr_matrix(X, dtype=float, copy=True)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def formed(train: LabelData, new: Sequence[LabelData], form: str) -> tuple[Any, list[Any]]:
    """Return the features raw, with rows of unit length, or by tf-idf learnt on the training rows.

    Raises
    ------
    ValueError
        If `form` is none of `FORMS`.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    tables = [csr32(train.X), *(csr32(rows.X) for rows in new)]
    if form == "row":
        tables = [normalize(X) for X in tables]
    if form == "tfidf":
        tfidf = TfidfTransformer().fit(tables[0])
        tables = [csr32(tfidf.transform(X)) for X in tables]
    return tables[0], tables[1:]


def observed_by_label(train: LabelData, positives_only: bool) -> Iterator[tuple[Array, Array]]:
    """Yield (observed rows, their 0/1 labels) of every label; `positives_only` counts gaps as zeros."""
    Y = train.Y.tocsc()
    seen = None
    if train.missing is not None and not positives_only:
        seen = train.observed_mask(max_bytes=train.num_rows * train.num_labels)
    every = np.arange(train.num_rows)
    for label in range(train.num_labels):
        y = Y[:, [label]].toarray().ravel()
        rows = every if seen is None else np.flatnonzero(seen[:, label])
        yield rows, y[rows]


def logistic(train: LabelData, new: Sequence[LabelData], setting: Setting, seed: int) -> Predicted:
    """Fit one logistic regression a label; labels of one class only keep their smoothed frequency."""
    X, X_new = formed(train, new, setting["form"])
    stacked = sparse.vstack(X_new, format="csr")
    probs = np.empty((stacked.shape[0], train.num_labels))
    start = time.perf_counter()
    spent = 0.0  # on predicting, which is not fitting
    for label, (rows, y) in enumerate(observed_by_label(train, setting.get("positives_only", False))):
        if not 0 < y.sum() < y.size:
            probs[:, label] = (y.sum() + 0.5) / (y.size + 1.0)
            continue
        model = LogisticRegression(C=setting["C"], solver="liblinear", intercept_scaling=10.0)
        model.fit(X if len(rows) == X.shape[0] else X[rows], y)
        paused = time.perf_counter()
        probs[:, label] = model.predict_proba(stacked)[:, 1]
        spent += time.perf_counter() - paused
    seconds = time.perf_counter() - start - spent
    tables = np.split(probs, np.cumsum([rows.num_rows for rows in new])[:-1])
    return Predicted(tables, tables, seconds)


def ridge_weights(X: Any, Y: Any, penalty: float) -> tuple[Array, Array]:
    """Return weights (feature, labels) and intercepts (labels,) of least squares with a free intercept."""
    mean_x, mean_y = np.asarray(X.mean(axis=0)).ravel(), np.asarray(Y.mean(axis=0)).ravel()
    n = X.shape[0]
    gram = (X.T @ X).toarray() - n * np.outer(mean_x, mean_x)
    gram[np.diag_indices_from(gram)] += penalty
    cross = (X.T @ Y).toarray() - n * np.outer(mean_x, mean_y)
    weights = linalg.solve(gram, cross, assume_a="pos")
    return weights, mean_y - mean_x @ weights


def label_directions(Y: Any, count: int) -> Array:
    """Return the leading right singular vectors of the centred labels: (labels, count)."""
    mean = np.asarray(Y.mean(axis=0)).ravel()
    gram = (Y.T @ Y).toarray() - Y.shape[0] * np.outer(mean, mean)
    return linalg.eigh(gram)[1][:, ::-1][:, :count]


def ridge(train: LabelData, new: Sequence[LabelData], setting: Setting, seed: int) -> Predicted:
    """Fit ridge regression of all labels; with ``share``, PLST: of their leading principal directions.

    Principal label space transformation (Tai and Lin 2012) regresses the projections of the centred labels
    on K of their right singular vectors and decodes by the same vectors. Ridge being linear in the labels,
    that is its prediction projected on them.
    """
    X, X_new = formed(train, new, setting["form"])
    start = time.perf_counter()
    Y = sparse.csr_matrix(train.Y, dtype=float)
    weights, intercept = ridge_weights(X, Y, setting["penalty"])
    if "share" in setting:
        mean = np.asarray(Y.mean(axis=0)).ravel()
        V = label_directions(Y, max(1, round(setting["share"] * train.num_labels)))
        weights, intercept = (weights @ V) @ V.T, mean + ((intercept - mean) @ V) @ V.T
    seconds = time.perf_counter() - start
    scores = [table @ weights + intercept for table in X_new]
    return Predicted(scores, [np.clip(s, CLIP, 1 - CLIP) for s in scores], seconds)


def napkin(train: LabelData, new: Sequence[LabelData], setting: Setting, seed: int) -> Predicted:
    """Fit napkinXC's binary relevance ("BR") or probabilistic label tree ("PLT"), one thread."""
    models: Any = importlib.import_module("napkinxc.models")
    X, X_new = formed(train, new, setting["form"])
    Y = [train.Y.indices[a:b].tolist() for a, b in zip(train.Y.indptr[:-1], train.Y.indptr[1:], strict=True)]
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        options = {"optimizer": "liblinear", "liblinearC": setting["C"], "threads": 1, "seed": seed}
        model = getattr(models, setting["model"])(str(Path(folder) / "model"), verbose=0, **options)
        start = time.perf_counter()
        model.fit(X, Y)
        seconds = time.perf_counter() - start
        for rows in X_new:
            table = np.zeros((rows.shape[0], train.num_labels))
            for i, pairs in enumerate(model.predict_proba(rows, top_k=train.num_labels)):
                labels, probs = zip(*pairs, strict=True)
                table[i, list(labels)] = probs
            tables.append(np.clip(table, 0.0, 1.0))
    return Predicted(tables, tables, seconds)


def mlknn(train: LabelData, new: Sequence[LabelData], setting: Setting, seed: int) -> Predicted:
    """Fit MLkNN (Zhang and Zhou 2007) of scikit-multilearn-ng."""
    adapt: Any = importlib.import_module("skmultilearn.adapt")
    X, X_new = formed(train, new, setting["form"])
    model = adapt.MLkNN(k=setting["k"], s=1.0)
    start = time.perf_counter()
    model.fit(X.tolil(), sparse.lil_matrix(train.Y.astype(int)))
    seconds = time.perf_counter() - start
    tables = [np.clip(model.predict_proba(rows.tolil()).toarray(), 0.0, 1.0) for rows in X_new]
    return Predicted(tables, tables, seconds)


def frequencies(train: LabelData, new: Sequence[LabelData], setting: Setting, seed: int) -> Predicted:
    """Predict (positives + 1/2) / (rows + 1) of every label, whatever the features."""
    share = (np.asarray(train.Y.sum(axis=0)).ravel() + 0.5) / (train.num_rows + 1.0)
    tables = [np.tile(share, (rows.num_rows, 1)) for rows in new]
    return Predicted(tables, tables, 0.0)


def settings(form: str, **values: Sequence[Any]) -> list[Setting]:
    """Return one setting a value, of one form of the features: ``settings("row", C=(1, 3))``."""
    ((name, options),) = values.items()
    return [{"form": form, name: value} for value in options]


def absent(package: str, wheel: str) -> str:
    """Return why a package cannot be used, empty where it can."""
    found = importlib.util.find_spec(package) is not None
    return "" if found else f"not installed (pip install --no-deps {wheel})"


def baselines(size: str = "full") -> tuple[Method, ...]:
    """Return the baselines with their grids: "full", or "small" for large data and many re-splits."""
    full = size == "full"
    by_c = settings("row", C=(1, 3, 10, 30) if full else (1, 3, 10))
    by_c += settings("tfidf", C=(1, 3, 10) if full else (1, 3))
    by_c += settings("raw", C=(0.1, 0.3, 1)) if full else []
    penalties = {"raw": (30, 100), "row": (1, 3, 10), "tfidf": (1, 3, 10)}
    if not full:
        penalties = {"row": (3, 10), "tfidf": (3, 10)}
    by_penalty = [one for form, values in penalties.items() for one in settings(form, penalty=values)]
    shares = (0.2, 0.4, 0.6, 0.8) if full else (0.2, 0.6)
    plst = [one | {"share": share} for one in by_penalty if one["form"] != "raw" for share in shares]
    napkin_grid = settings("row", C=(3, 10, 30)) if full else settings("row", C=(10,))
    napkin_grid += settings("tfidf", C=(1, 3, 10)) if full else settings("tfidf", C=(3,))
    trees = [one | {"model": "PLT"} for one in napkin_grid]
    singles = [one | {"model": "BR"} for one in napkin_grid]
    near = settings("tfidf", k=(10, 30)) if full else settings("tfidf", k=(20,))
    no_napkin = absent("napkinxc", "napkinxc")
    no_mlknn = absent("skmultilearn", "scikit-multilearn-ng")
    return (
        Method("label frequencies", ({},), frequencies),
        Method("logistic regression", tuple(by_c), logistic),
        Method("ridge", tuple(by_penalty), ridge),
        Method("PLST", tuple(plst), ridge),
        Method("napkinXC BR", tuple(singles), napkin, absent=no_napkin),
        Method("napkinXC PLT", tuple(trees), napkin, absent=no_napkin),
        Method("MLkNN", tuple(near), mlknn, absent=no_mlknn),
    )
