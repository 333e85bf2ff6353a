"""`LabelClassifier`: fit, predict and score a model of the zoo the way scikit-learn users expect."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from labelzoo.data import LabelData
from labelzoo.data.convert import frame_columns, is_frame
from labelzoo.data.metrics import TopK
from labelzoo.estimators import output
from labelzoo.estimators.continuing import refuse_changed
from labelzoo.estimators.features import read_features, seed_of
from labelzoo.estimators.output import Shape, cut_points, iterations, labelled, log_odds
from labelzoo.estimators.scores import class_scores, row_scores, weighted_mean
from labelzoo.estimators.targets import (
    Target,
    aligned,
    declared,
    explained,
    frame_rows_of,
    read_target,
    refuse_other_index,
)
from labelzoo.inference.fit import find_engine
from labelzoo.inference.predict import (
    DEFAULT_MAX_BYTES,
    WORK_BYTES,
    label_prob,
    mean_blocks,
    mean_prob,
    predict_topk,
)
from labelzoo.models import registry

OWN = ("model", "engine", "random_state", "threshold")
"""Parameters of the classifier itself; all others are settings of the model or options of the engine."""

MAX_RESULT_BYTES = 2**32
"""Largest table of probabilities that `LabelClassifier.predict_proba` returns unasked (4 GiB)."""


def _is_online(classifier: "LabelClassifier") -> bool:
    try:
        return classifier._entry()[1].continue_from is not None
    except ValueError:
        return False


class LabelClassifier(ClassifierMixin, BaseEstimator):
    """A model of the zoo as a scikit-learn classifier of many labels, or of classes.

    Parameters
    ----------
    model : str
        Registry name (``labelzoo list``), or ``path/to/file.py:spec``.
    engine : str
        One of the model's engines.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None
        The same integer gives the same posterior. None takes fresh entropy; NumPy's global state is never
        read.
    threshold : float, sequence (labels,), or mapping of label to float
        `predict` gives 1 where the probability lies above it, 0 where it equals it. Where each row has one
        label it only weighs labels against one another, see the notes.
    **settings
        Settings of the program and options of the engine; they are parameters like the others, so
        ``get_params``, ``set_params``, ``clone`` and ``GridSearchCV`` know them. ``progress=True`` shows a
        bar on stderr in `fit`.

    Notes
    -----
    A y of more than two classes becomes a label each, and `predict_proba` scales their probabilities to sum
    to 1, as scikit-learn's one-vs-rest classifier does. `predict` gives a row one label there, and where the
    model says that rows have one (`labelzoo.estimators.output.one_label_a_row`; ``kernel_neighbors`` where
    each training row has one): the label whose log odds lie furthest above those of its threshold, with one
    threshold for all the most probable. All other labels are cut at the threshold one by one.

    Cost of the default, mean field of ``label_logistic``: labels x a dozen iterations x
    (rows features^2 + features^3), or rows^3 where there are fewer rows than features; a few seconds for 333
    rows, 1449 features and 45 labels. Each draw kept takes labels x features numbers.

    Attributes
    ----------
    classes_ : ndarray
        The label names where y named its columns, else 0 .. labels - 1; for one-dimensional y its classes.
    label_names_ : ndarray (labels,)
        Names of the labels, made up (``label 0``) where none were given.
    n_features_in_ : int
    feature_names_in_ : ndarray (feature,)
        Only when X was a data frame with string columns.
    n_iter_ : int
        Iterations or draws of the engine.
    trace_ : xarray.DataTree
        The posterior.

    Examples
    --------
    >>> from labelzoo.estimators import LabelClassifier
    >>> classifier = LabelClassifier(model="bernoulli_poisson_topics", engine="map_em", num_topics=5)
    >>> classifier.get_params()["num_topics"]
    5
    """

    trace_: xr.DataTree

    def __init__(
        self,
        model: Any = "label_logistic",
        engine: Any = "mean_field",
        *,
        random_state: Any = 0,
        threshold: Any = 0.5,
        **settings: Any,
    ) -> None:
        self.model = model
        self.engine = engine
        self.random_state = random_state
        self.threshold = threshold
        self._settings = dict(settings)

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("_settings", {})
        if name in settings:
            return settings[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_settings", {}):
            self._settings[name] = value
        else:
            super().__setattr__(name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters, settings of the model and the engine included."""
        return {**{name: getattr(self, name) for name in OWN}, **self._settings}

    def set_params(self, **params: Any) -> "LabelClassifier":
        """Set parameters; names that are not the classifier's own are settings, which `fit` checks."""
        for name, value in params.items():
            if name in OWN:
                setattr(self, name, value)
            else:
                self._settings[name] = value
        return self

    def set_output(self, *, predict: Any = None, transform: Any = None) -> "LabelClassifier":
        """Choose what `predict` and `predict_proba` return: ``"default"`` arrays or ``"pandas"`` frames.

        Frames carry the label names and the row names of X. None changes nothing; ``clone`` keeps the choice.
        `transform` is the word of scikit-learn's transformers for the same thing.
        """
        if predict is not None and transform is not None and predict != transform:
            raise ValueError(f"predict={predict!r} and transform={transform!r} mean the same: give one")
        predict = transform if predict is None else predict
        if predict not in (None, "default", "pandas"):
            raise ValueError(f"predict must be 'default', 'pandas' or None, got {predict!r}")
        if predict is not None:
            self._sklearn_output_config = {"predict": predict}
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = True
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, *, label_names: Any = None) -> "LabelClassifier":
        """Fit on features (row, feature) and labels (row, labels) of 0, 1 and NaN (not observed).

        Parameters
        ----------
        X : ndarray, JAX array, list, sparse matrix of any format, or pandas.DataFrame
        y : the same, or one-dimensional
            NaN, None and pandas' NA mean not observed. Column names of a frame become label names. A vector
            holds classes, numbers or words; more than two become a label each.
        label_names : sequence of str or None
            All labels there are. Those that y (a frame then) lacks get a column from the prior alone. For an
            array, its names. Refused for more than two classes, which name their labels themselves.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For labels other than 0, 1, NaN; NaN or infinite features; unknown model, engine or setting.
        """
        entry, engine = self._entry()
        data, target = self._read(X, y, reset=True, label_names=label_names)
        cut_points(self.threshold, data.label_names)
        seed = seed_of(self.random_state)
        if entry.spec.refuse is not None:
            entry.spec.refuse(data, self._settings)
        self._keep(engine(entry.spec, data, rng_key=seed, **self._settings), data, target, label_names)
        return self

    @available_if(_is_online)
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, *, label_names: Any = None
    ) -> "LabelClassifier":
        """Take up new rows: the posterior so far is what they are added to. For online engines only.

        ``streaming`` of ``label_logistic`` reads each row once; ``online_em`` of ``bernoulli_poisson_topics``
        passes over the new rows `epochs` times, and keeps running statistics of all rows before them.

        Parameters
        ----------
        X, y
            As in `fit`; a frame's labels may come in any order.
        classes : array or None
            At the first call, the classes of a one-dimensional y, where its first rows may lack one.
        label_names : sequence of str or None
            At the first call, all labels there will be. The frames of any call may lack some: unobserved.

        Returns
        -------
        self
        """
        if not hasattr(self, "trace_"):
            entry, engine = self._entry()
            data, target = self._read(X, y, reset=True, label_names=label_names, classes=classes)
            tree = engine(entry.spec, data, rng_key=seed_of(self.random_state), **self._settings)
            self._keep(tree, data, target, label_names)
            return self
        self._refuse_other_engine()
        data = self._like_before(X, y, lacking=True)
        self._know_model()
        entry = registry.get(str(self.trace_.attrs["model"]))
        engine = find_engine(entry, str(self.trace_.attrs["engine"]))
        batch = int(self.trace_.attrs["batches"])
        seed = seed_of(np.random.default_rng([seed_of(self.random_state), batch]))
        self.trace_ = engine.update(entry.spec, self.trace_, data, rng_key=seed)
        self.n_iter_ = iterations(self.trace_)
        return self

    def _refuse_other_engine(self) -> None:
        """Refuse to continue a posterior of another model, engine or settings than the parameters now say."""
        entry, engine = self._entry()
        before = {what: self.trace_.attrs[what] for what in ("model", "engine")}
        now = {"model": entry.spec.name, "engine": engine.name}
        refuse_changed({**before, **self._fitted_settings}, {**now, **self._settings})

    def _entry(self) -> tuple[registry.Entry, Any]:
        """Return the model's entry and the engine, or raise ValueError naming those that exist."""
        for name in ("model", "engine"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a name, got {getattr(self, name)!r}")
        entry = registry.get(self.model)
        return entry, find_engine(entry, self.engine)

    def _read(
        self, X: Any, Y: Any, *, reset: bool, label_names: Any = None, classes: Any = None
    ) -> tuple[LabelData, Target]:
        """Return the table that engines read, and the target as it came."""
        target = read_target(Y, classes)
        features = read_features(self, X, reset=reset)
        refuse_other_index(X, Y)
        names = {
            "feature_names": frame_columns(X) if is_frame(X) else None,
            "label_names": target.names,
            "example_names": target.rows or frame_rows_of(X),
        }
        try:
            data = LabelData.from_arrays(features, target.table, missing=target.missing, **names)
        except ValueError as error:
            if "may hold 0, 1 or NaN" in str(error):
                raise explained(error) from None
            raise
        return (data if label_names is None else declared(data, label_names, target)), target

    def _keep(self, tree: xr.DataTree, data: LabelData, target: Target, label_names: Any) -> None:
        """Store a posterior and how to speak of it."""
        named = target.names is not None or label_names is not None
        names = np.array(data.label_names, dtype=object)
        self.trace_ = tree
        self._fitted_settings = dict(self._settings)
        self.label_names_ = names
        self.classes_ = target.classes
        if target.classes is None:
            self.classes_ = names if named else np.arange(data.num_labels)
        self._shape = Shape(target.classes, target.is_sparse, named)
        self.n_iter_ = iterations(tree)

    def _like_before(self, X: Any, Y: Any, *, lacking: bool = False) -> LabelData:
        """Return rows with the labels of `fit`, in their order; those that are `lacking` are unobserved."""
        shape = self._shape
        data, target = self._read(X, Y, reset=False, classes=shape.classes)
        if (target.classes is None) != (shape.classes is None):
            raise ValueError("y must have as many dims as in fit: one for classes, two for labels")
        named = shape.named and target.names is not None
        data = aligned(data, list(self.label_names_), named=named, lacking=lacking)
        features = tuple(json.loads(self.trace_.attrs["feature_names"]))
        return replace(data, feature_names=features, label_names=tuple(self.label_names_))

    def _know_model(self) -> None:
        """Read the user's file again where a process, that unpickled the classifier say, has not yet."""
        if self.trace_.attrs["model"] not in registry.names():
            registry.get(self.model)

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self, "trace_")
        self._know_model()
        return read_features(self, X, reset=False)

    def _output(self, values: Any, X: Any, columns: Any) -> Any:
        config = getattr(self, "_sklearn_output_config", {})
        return labelled(values, X, columns) if config.get("predict") == "pandas" else values

    def predict_proba(self, X: Any, *, max_bytes: int = MAX_RESULT_BYTES) -> Any:
        """Return the posterior mean of P(label = 1): float (row, labels).

        For a one-dimensional y the columns are its classes, and rows sum to 1. Working memory does not grow
        with draws or rows; a result above `max_bytes` is refused (`predict_topk` and a sparse `predict` need
        no such table).
        """
        probs = self._probs("predict_proba", self._rows(X), max_bytes)
        columns = self.label_names_ if self._shape.classes is None else self._shape.classes
        return self._output(output.as_in_fit(probs, self._shape), X, columns)

    def _probs(self, method: str, rows: Any, max_bytes: int) -> Any:
        """Return the table of probabilities, or refuse it where it would pass `max_bytes`."""
        size = 8 * rows.shape[0] * len(self.label_names_)
        if size > max_bytes:
            raise ValueError(
                f"{method} of {rows.shape[0]} rows x {len(self.label_names_)} labels takes "
                f"{size / 2**30:.2f} GiB, above max_bytes: use predict_topk, or fewer rows at a time"
            )
        return mean_prob(self.trace_, rows)

    def decision_function(self, X: Any, *, max_bytes: int = MAX_RESULT_BYTES) -> np.ndarray:
        """Return the log odds of P(label = 1) less those of the threshold: above 0 where `predict` says 1.

        Float (row, labels), or (row,) for two classes; finite. Where `predict` gives each row one label, it
        is the label with the largest. A result above `max_bytes` is refused.
        """
        probs = self._probs("decision_function", self._rows(X), max_bytes)
        odds = log_odds(probs) - log_odds(cut_points(self.threshold, self.label_names_))
        return odds if self._shape.classes is None or self._shape.is_multiclass else odds[:, 0]

    def predict_samples(
        self, X: Any, num_draws: Any = None, *, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> np.ndarray:
        """Return P(label = 1) draw by draw: float (sample, row, labels), refused above `max_bytes`."""
        rows = self._rows(X)
        array = label_prob(self.trace_, rows, num_draws=num_draws, max_bytes=max_bytes)
        return array.values.reshape(-1, array.sizes["obs"], array.sizes["labels"])

    def predict_topk(self, X: Any, k: Any = 5, *, max_bytes: int = WORK_BYTES) -> TopK:
        """Return the `k` most probable labels of each row, best first, without a rows x labels table.

        Returns
        -------
        labelzoo.data.metrics.TopK
            ``labels`` int (row, k), positions in ``label_names_``; ``scores`` (row, k); ``num_labels``.
        """
        rows = self._rows(X)
        return predict_topk(self.trace_, rows, k, max_bytes=max_bytes)

    def predict(self, X: Any) -> Any:
        """Return int8 labels (row, labels): 1 where the probability lies above the threshold.

        Exactly one a row where the model says so, see the notes of the class. A csr array if the labels were
        sparse in `fit`; the class of each row if y was one-dimensional.
        """
        rows = self._rows(X)
        cut = cut_points(self.threshold, self.label_names_)
        blocks = (block[0] for _, block in mean_blocks(self.trace_, rows))
        one_label = output.one_label_a_row(self.trace_)
        labels = output.decided(blocks, cut, self._shape, one_label=one_label)
        columns = self.label_names_ if self._shape.classes is None else None
        return labels if sparse.issparse(labels) else self._output(labels, X, columns)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the mean log score of the rows, nats summed over observed labels (higher is better).

        For a vector of classes, ln of what `predict_proba` gives a row's class. Columns of a frame are
        matched to the labels of `fit` by name. Rows without an observed label do not count; `sample_weight`
        (row,) weighs the others. Rows are taken in blocks: no table of rows x labels.
        """
        check_is_fitted(self, "trace_")
        data = self._like_before(X, y)
        self._know_model()
        scores = class_scores if self._shape.is_multiclass else row_scores
        return weighted_mean(scores(self.trace_, data), sample_weight)


def available() -> list[tuple[str, str]]:
    """Return every (model, engine) pair that `LabelClassifier` accepts."""
    return [(name, engine) for name in registry.names() for engine in registry.get(name).engines]
