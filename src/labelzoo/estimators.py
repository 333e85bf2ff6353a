"""The scikit-learn face: fit, predict_proba, predict, with names kept."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from labelzoo.data import LabelData
from labelzoo.inference.fit import fit
from labelzoo.inference.predict import label_prob, mean_prob
from labelzoo.models import registry


class LabelClassifier(ClassifierMixin, BaseEstimator):
    """A model of the zoo as a scikit-learn multi-label classifier.

    Parameters
    ----------
    model : str
        Registry name (``labelzoo list``).
    engine : str
        One of the model's engines.
    random_state : int
        The same seed gives the same posterior.
    **settings
        Settings of the program and options of the engine; they are parameters like the others, so
        ``get_params``, ``set_params`` and ``clone`` know them.

    Attributes
    ----------
    classes_ : ndarray (labels,)
        Label names.
    label_names_ : ndarray (labels,)
        The same.
    n_features_in_ : int
    feature_names_in_ : ndarray (feature,)
        Only when X was a data frame with string columns.
    trace_ : xarray.DataTree
        The posterior.

    Examples
    --------
    >>> from labelzoo.estimators import LabelClassifier
    >>> classifier = LabelClassifier(model="bernoulli_poisson_topics", engine="map_em", num_topics=5)
    >>> classifier.get_params()["num_topics"]
    5
    """

    def __init__(
        self,
        model: str = "label_logistic",
        engine: str = "mean_field",
        *,
        random_state: int = 0,
        **settings: Any,
    ) -> None:
        self.model = model
        self.engine = engine
        self.random_state = random_state
        self._settings = dict(settings)

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("_settings", {})
        if name in settings:
            return settings[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters, settings of the model and the engine included."""
        own = {"model": self.model, "engine": self.engine, "random_state": self.random_state}
        return {**own, **self._settings}

    def set_params(self, **params: Any) -> "LabelClassifier":
        """Set parameters; names other than model, engine and random_state are settings."""
        for name, value in params.items():
            if name in ("model", "engine", "random_state"):
                setattr(self, name, value)
            else:
                self._settings[name] = value
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, Y: Any) -> "LabelClassifier":
        """Fit on features (row, feature) and labels (row, labels) of 0, 1 and NaN (not observed).

        Parameters
        ----------
        X : ndarray, sparse matrix or pandas.DataFrame
        Y : ndarray, sparse matrix or pandas.DataFrame
            Column names of a frame become label names.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For labels other than 0, 1, NaN; NaN or infinite features; unknown model, engine or setting.
        """
        data = LabelData.from_arrays(X, Y)
        self.trace_ = fit(self.model, data, self.engine, seed=self.random_state, **self._settings)
        self.label_names_ = np.array(data.label_names, dtype=object)
        self.classes_ = self.label_names_
        self.n_features_in_ = data.num_features
        self._sparse_labels = sparse.issparse(Y)
        columns = getattr(X, "columns", None)
        if columns is not None and all(isinstance(name, str) for name in columns):
            self.feature_names_in_ = np.array(list(columns), dtype=object)
        return self

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self, "trace_")
        names = getattr(self, "feature_names_in_", None)
        columns = getattr(X, "columns", None)
        if names is not None and columns is not None and list(columns) != list(names):
            raise ValueError("The feature names should match those that were passed during fit.")
        return X.to_numpy(float) if columns is not None else X

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the posterior mean of P(label = 1): float (row, labels)."""
        rows = self._rows(X)
        return mean_prob(self.trace_, rows)

    def predict_samples(self, X: Any, num_draws: int | None = None) -> np.ndarray:
        """Return P(label = 1) draw by draw: float (sample, row, labels)."""
        rows = self._rows(X)
        array = label_prob(self.trace_, rows, num_draws=num_draws)
        return array.values.reshape(-1, array.sizes["obs"], array.sizes["labels"])

    def predict(self, X: Any) -> Any:
        """Return int8 labels (row, labels): 1 where the probability is at least one half.

        A csr array if the labels were sparse in `fit`.
        """
        labels = (self.predict_proba(X) >= 0.5).astype(np.int8)
        return sparse.csr_array(labels) if self._sparse_labels else labels

    def score(self, X: Any, Y: Any, sample_weight: Any = None) -> float:
        """Return the mean log score of the rows, nats summed over labels (higher is better)."""
        from labelzoo.data.metrics import log_score

        data = LabelData.from_arrays(X, Y)
        return log_score(data.Y, self.predict_proba(X), data.observed_mask()).value


def available() -> list[tuple[str, str]]:
    """Return every (model, engine) pair that `LabelClassifier` accepts."""
    return [(name, engine) for name in registry.names() for engine in registry.get(name).engines]
