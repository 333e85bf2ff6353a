"""Features made ready for the models, by scikit-learn's transformers in one pipeline; nothing is densified.

A pipeline learns from the rows it is fitted on and from no others. Put it before a classifier, and a cross
validation fits it on the training rows of each fold; `prepare_data` fits it on the training rows of a
published split. Sparse features stay sparse in every step.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from labelzoo.data import LabelData
from labelzoo.estimators.features import filled
from labelzoo.inference.posterior import INTERCEPT

STEPS = ("impute", "standardise", "max_abs", "tfidf", "intercept")
"""Names that `prepare` knows."""


class Impute(SimpleImputer):
    """scikit-learn's `SimpleImputer`, which also fills what a masked array masks."""

    def fit(self, X: Any, y: Any = None) -> "Impute":
        """Learn what fills the gaps of each column of X (row, feature)."""
        super().fit(filled(X), y)
        return self

    def transform(self, X: Any) -> Any:
        """Return X with its gaps filled."""
        return super().transform(filled(X))


class Standardise(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale to unit variance, and centre where the features are dense.

    Sparse features are divided by their standard deviation and not centred, because centring would fill
    every zero. The kind of X in `fit` decides. Constant features keep their scale; NaN is passed through.

    Attributes
    ----------
    scaler_ : sklearn.preprocessing.StandardScaler
    n_features_in_ : int
    feature_names_in_ : ndarray (feature,)
        Only when X was a data frame with string columns.
    """

    def fit(self, X: Any, y: Any = None) -> "Standardise":
        """Learn means and standard deviations of the columns of X (row, feature)."""
        X = self._read(X, reset=True)
        self.scaler_ = StandardScaler(with_mean=not sparse.issparse(X)).fit(X)
        return self

    def transform(self, X: Any) -> Any:
        """Return X scaled: an array, or a sparse matrix where X is one.

        Raises
        ------
        ValueError
            If X is sparse and was dense in `fit`: centring it would densify it.
        """
        check_is_fitted(self, "scaler_")
        X = self._read(X, reset=False)
        if sparse.issparse(X) and self.scaler_.with_mean:
            raise ValueError(
                "X is sparse here and was dense in fit: centring would densify it; fit on sparse features, "
                "or pass an array"
            )
        return self.scaler_.transform(X)

    def _read(self, X: Any, *, reset: bool) -> Any:
        options = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": "allow-nan"}
        return validate_data(self, filled(X), reset=reset, **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


class AddIntercept(TransformerMixin, BaseEstimator):
    """Add a last column of ones; a sparse X stays sparse (csr).

    The models of the zoo add their own (setting ``intercept``): use one or the other, since the prior of the
    model's own is wide and that of an added column is a weight's.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray (feature,)
        Only when X was a data frame with string columns.
    """

    def fit(self, X: Any, y: Any = None) -> "AddIntercept":
        """Check X (row, feature) and keep its names; nothing is learnt."""
        self._read(X, reset=True)
        return self

    def transform(self, X: Any) -> Any:
        """Return X with the column of ones: (row, feature + 1)."""
        check_is_fitted(self)
        X = self._read(X, reset=False)
        ones = np.ones((X.shape[0], 1))
        if not sparse.issparse(X):
            return np.hstack([X, ones])
        wrap = sparse.csr_array if isinstance(X, sparse.sparray) else sparse.csr_matrix
        return wrap(sparse.hstack([X, wrap(ones)], format="csr"))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the features and ``(intercept)``."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        return np.append(np.asarray(names, dtype=object), INTERCEPT)

    def _read(self, X: Any, *, reset: bool) -> Any:
        options = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": "allow-nan"}
        return validate_data(self, filled(X), reset=reset, **options)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def prepare(*steps: Any, strategy: str = "mean", add_indicator: bool = False) -> Pipeline:
    """Build a pipeline of preparation steps, to be fitted alone or before a classifier.

    Parameters
    ----------
    *steps : str or transformer
        ``"impute"`` fills NaN (`SimpleImputer`); zeros of a sparse X are values, not gaps, and count in its
        means. A column without any value is kept and filled with 0. ``"standardise"`` is `Standardise`;
        ``"max_abs"`` divides by the largest absolute value; ``"tfidf"`` weighs counts (sparse result);
        ``"intercept"`` adds a column of ones and comes last. A transformer of your own stands for itself.
    strategy : {"mean", "median", "most_frequent"}
        What fills NaN.
    add_indicator : bool
        Add a 0/1 column for each feature that has gaps in `fit`, so that a model can use the gap itself.

    Returns
    -------
    sklearn.pipeline.Pipeline
        Its steps carry the names given, so ``prepare("impute")`` has the parameter ``impute__strategy``.

    Raises
    ------
    ValueError
        For an unknown or repeated step, none at all, or an intercept that is not last.

    Examples
    --------
    >>> from labelzoo.preparation import prepare
    >>> [name for name, step in prepare("impute", "standardise").steps]
    ['impute', 'standardise']
    """
    if strategy not in ("mean", "median", "most_frequent"):
        raise ValueError(f"strategy must be 'mean', 'median' or 'most_frequent', got {strategy!r}")
    made: list[tuple[str, Any]] = [_step(step, strategy, add_indicator) for step in steps]
    names = [name for name, _ in made]
    if not made:
        raise ValueError(f"prepare needs at least one step of: {', '.join(STEPS)}")
    if len(set(names)) < len(names):
        raise ValueError(f"prepare has a step twice: {', '.join(names)}")
    if "intercept" in names[:-1]:
        raise ValueError("the step 'intercept' must come last: a later step would scale the ones")
    return Pipeline(made)


def _step(step: Any, strategy: str, add_indicator: bool) -> tuple[str, Any]:
    if not isinstance(step, str):
        if not hasattr(step, "transform"):
            raise ValueError(f"a step must be a name or a transformer, got {step!r}")
        return type(step).__name__.lower(), step
    known = {
        "impute": lambda: Impute(strategy=strategy, add_indicator=add_indicator, keep_empty_features=True),
        "standardise": Standardise,
        "max_abs": MaxAbsScaler,
        "tfidf": TfidfTransformer,
        "intercept": AddIntercept,
    }
    if step not in known:
        raise ValueError(f"no preparation step {step!r}; steps: {', '.join(STEPS)}, or a transformer")
    return step, known[step]()


def prepare_data(data: Any, pipeline: Any, *, fit: Any = True) -> LabelData:
    """Return `data` with its features transformed; labels, gaps in them, rows and split stay as they are.

    Parameters
    ----------
    data : LabelData
    pipeline : transformer
        What `prepare` returned, or any scikit-learn transformer; it is fitted in place if `fit` says so.
    fit : {True, "all", False}
        True fits on the training rows of the published split, or on all rows where there is none; ``"all"``
        fits on the test rows too; False uses the pipeline as fitted before, for new rows.

    Returns
    -------
    LabelData
        Features named by ``pipeline.get_feature_names_out``.

    Raises
    ------
    ValueError
        If `fit` is none of these, or the transformed features do not fit the data.

    Examples
    --------
    >>> from labelzoo.data import LabelData
    >>> from labelzoo.preparation import prepare, prepare_data
    >>> train, test = LabelData([[1.0], [3.0]], [[0], [1]]), LabelData([[5.0]], [[1]])
    >>> pipeline = prepare("standardise")
    >>> prepare_data(train, pipeline).X.ravel().tolist()
    [-1.0, 1.0]
    >>> prepare_data(test, pipeline, fit=False).X.ravel().tolist()
    [3.0]
    """
    if not isinstance(data, LabelData):
        raise ValueError(f"data must be a LabelData, got {type(data).__name__}")
    if not any(fit is choice for choice in (True, False)) and fit != "all":
        raise ValueError(f"fit must be True, False or 'all', got {fit!r}")
    if fit is True and data.train_index is not None:
        pipeline.fit(data.X[data.train_index])
    elif fit is not False:
        pipeline.fit(data.X)
    X = pipeline.transform(data.X)
    names = pipeline.get_feature_names_out(list(data.feature_names))
    return replace(data, X=X, feature_names=tuple(str(name) for name in names))
