"""How every method is tuned, refitted, recalibrated and scored, alike; and cells kept on disk between runs.

Training rows are cut (seeded): 15 % calibration rows, and of the others 20 % validation rows. A method is
fitted with every setting of its grid on the remaining rows, and the setting that is best on the validation
rows by the one metric asked for is kept. Two numbers (`labelzoo.calibration.calibrate`) are fitted on the
calibration rows for the method refitted on fitting and validation rows; the scores are those of the method
refitted on all training rows, its log score with and without these two numbers.
"""

import hashlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import topic_scores
from topic_baselines import Method, Predicted, Setting, settings

from labelzoo.calibration import calibrate
from labelzoo.data import LabelData, metrics
from labelzoo.data.describe import content_hash
from labelzoo.inference.fit import fit
from labelzoo.inference.predict import mean_prob
from labelzoo.preparation import prepare, prepare_data
from labelzoo.whole_file import whole_file

Array = Any

MAX_SWEEPS = 50
TUNED_FOR: dict[str, Callable[[Any, Array, Any], float]] = {
    "per_example_auc": lambda y, p, gaps: metrics.per_example_auc(y, p, missing=gaps).value,
    "macro_auc": lambda y, p, gaps: metrics.macro_auc(y, p, missing=gaps).value,
    "micro_auc": lambda y, p, gaps: metrics.micro_auc(y, p, missing=gaps),
    "p_at_1": lambda y, p, gaps: metrics.precision_at_k(y, p, k=1, missing=gaps).value,
}
"""What may be tuned for; "log_score" too, of the probabilities."""


def note(text: str) -> None:
    """Say on stderr how far the run is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Cells(NamedTuple):
    """Results kept one file a cell, so that an interrupted run goes on where it was.

    Attributes
    ----------
    folder : Path or None
        None: nothing is kept.
    """

    folder: Path | None

    def get(self, name: str, plan: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Return the stored result of `plan` (plain values), or compute and store it whole."""
        if self.folder is None:
            return compute()
        code = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:12]
        path = self.folder / "cells" / f"{name.replace(' ', '_')}-{code}.json"
        if path.exists():
            return json.loads(path.read_text())["result"]
        result = compute()
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            temporary.write_text(json.dumps({"plan": plan, "result": result}))
        return result


class Parts(NamedTuple):
    """Rows: `train` holds `fit`, `validate` and `calibrate`, which are disjoint; `core` is the first two."""

    train: LabelData
    core: LabelData
    fit: LabelData
    validate: LabelData
    calibrate: LabelData
    test: LabelData


def parts_of(train: LabelData, test: LabelData, seed: int) -> Parts:
    """Cut the training rows; the warnings of labels absent from a part are not wanted here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        core, held = train.split(0.15, seed=seed + 1)
        fitted, validate = core.split(0.2, seed=seed + 2)
    return Parts(train, core, fitted, validate, held, test)


def random_split(data: LabelData, seed: int, share: float) -> tuple[LabelData, LabelData]:
    """Return training and test rows at random; labels absent from either are no news here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return data.split(share, seed=seed)


def train_and_test(data: LabelData, seed: int, share: float = 0.2) -> tuple[LabelData, LabelData]:
    """Return the published split, or a random one where there is none."""
    if data.train_index is None:
        return random_split(data, seed, share)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return data.published_split()


def topics_em(train: LabelData, new: Sequence[LabelData], setting: Setting, seed: int) -> Predicted:
    """Fit Bernoulli-Poisson topics by EM (single precision) with K = ``share`` times the labels."""
    options = {name: value for name, value in setting.items() if name not in ("form", "share", "engine")}
    if setting["form"] == "tfidf":
        pipeline = prepare("tfidf")
        train = prepare_data(train, pipeline, fit="all")
        new = [prepare_data(rows, pipeline, fit=False) for rows in new]
    topics = max(1, round(setting["share"] * train.num_labels))
    options |= {"num_topics": topics, "scale_rows": setting["form"] != "raw", "dtype": "float32"}
    options = {"max_iter": MAX_SWEEPS} | options
    tree = fit("bernoulli_poisson_topics", train, setting["engine"], seed=seed, **options)
    tables = [np.asarray(mean_prob(tree, rows), float) for rows in new]
    times = (float(tree.attrs[name]) for name in ("run_seconds", "compile_seconds"))
    return Predicted(tables, tables, *times)


def em_method(name: str, forms: Mapping[str, Sequence[float]], **fixed: Any) -> Method:
    """Return a `topics_em` method whose prior scale is tuned for each form of the features."""
    grid = [one | fixed for form, scales in forms.items() for one in settings(form, prior_scale=scales)]
    return Method(name, tuple(grid), topics_em, ours=True)


def our_methods(size: str = "full") -> tuple[Method, ...]:
    """Return the topic model by `vb_em` and `map_em`, and set up as the paper seems to have had it."""
    full = size == "full"
    forms: dict[str, Sequence[float]] = {"row": (2, 3), "tfidf": (1.5, 2, 3)}
    if not full:
        forms = {"row": (1.5, 3), "tfidf": (2,)}
    paper = {"share": 0.4, "engine": "map_em", "w_step": "cg", "start": "random", "intercept": False}
    paper |= {"shape": 0.5, "topic_concentration": 0.1}
    return (
        em_method("topics vb_em, K = L", forms, share=1.0, engine="vb_em"),
        em_method("topics map_em, K = L", forms, share=1.0, engine="map_em"),
        em_method("topics vb_em, K = .4 L", forms, share=0.4, engine="vb_em"),
        em_method("topics map_em, K = .4 L", forms, share=0.4, engine="map_em"),
        em_method("topics paper-like, K = .4 L", {"raw": (2, 3)}, **paper),
    )


def validation(test: LabelData, scores: Array, probs: Array) -> dict[str, float]:
    """Return every metric that may be tuned for, on the observed cells."""
    found = {name: float(metric(test.Y, scores, test.missing)) for name, metric in TUNED_FOR.items()}
    return found | {"log_score": float(metrics.log_score(test.Y, probs, missing=test.missing).value)}


def plan_of(method: Method, setting: Setting, parts: Parts, seed: int, stage: str) -> dict[str, Any]:
    """Return what decides a cell, the rows by their hash."""
    hashes = [content_hash(rows) for rows in (parts.train, parts.test)]
    sweeps = {"sweeps": MAX_SWEEPS} if method.ours else {}
    return {
        "method": method.name, "setting": setting, "rows": hashes, "seed": seed, "stage": stage, **sweeps
    }  # fmt: skip


def tune(method: Method, parts: Parts, seed: int, cells: Cells) -> list[dict[str, float]]:
    """Return the validation scores of every setting of the grid."""
    found = []
    for setting in method.grid:

        def one(setting: Setting = setting) -> dict[str, float]:
            predicted = method.predict(parts.fit, [parts.validate], setting, seed)
            return validation(parts.validate, predicted.scores[0], predicted.probs[0])

        plan = plan_of(method, setting, parts, seed, "tune")
        found.append(cells.get(f"{method.name}-{seed}-tune", plan, one))
        note(f"{method.name} {setting}: per-example AUC {found[-1]['per_example_auc']:.4f} (validation)")
    return found


def final(method: Method, setting: Setting, parts: Parts, seed: int) -> dict[str, Any]:
    """Refit on all training rows, recalibrate, and score the test rows."""
    inner = method.predict(parts.core, [parts.calibrate], setting, seed)
    pair = calibrate(inner.probs[0], parts.calibrate, apart_from=[parts.core, parts.test])
    outer = method.predict(parts.train, [parts.test], setting, seed)
    probs = outer.probs[0]
    scores = topic_scores.all_scores(parts.test, outer.scores[0], probs, pair.apply(probs))
    return {
        "scores": topic_scores.to_json(scores),
        "seconds": outer.seconds,
        "compile_seconds": outer.compile_seconds,
        "slope": pair.slope,
        "intercept": pair.intercept,
    }


def judged(method: Method, parts: Parts, seed: int, cells: Cells, metric: str) -> dict[str, Any]:
    """Tune by `metric`, refit on all training rows, and score the test rows."""
    tuned = tune(method, parts, seed, cells)
    best = int(np.argmax([one[metric] for one in tuned]))
    setting = method.grid[best]
    plan = plan_of(method, setting, parts, seed, "final")
    found = cells.get(f"{method.name}-{seed}-final", plan, lambda: final(method, setting, parts, seed))
    value = topic_scores.from_json(found["scores"])["per_example_auc"].value
    note(f"{method.name} refitted with {setting}: per-example AUC {value:.4f} (test)")
    return found | {"method": method.name, "setting": setting, "ours": method.ours, "validation": tuned[best]}
