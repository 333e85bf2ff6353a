"""What a study fits in each round: a model of the zoo, through the quickest way to its predictions."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.models.gp_kernel import GPKernel, feature_map

Array = Any


class Fitted(NamedTuple):
    """A learner after one fit.

    Attributes
    ----------
    mean : callable
        ``mean(X) -> (row, labels)`` posterior mean of P(label = 1).
    draws : callable or None
        ``draws(X, count, seed) -> (sample, row, labels)``, joint over the rows; None for a point.
    label_law : callable or None
        ``label_law(X) -> LabelLaw``, the Gaussian law of each row's labels; None where the model has none.
    mixture_law : callable or None
        ``mixture_law(X) -> MixtureLaw``, the mixture law of each row's labels, likewise.
    target_law : callable or None
        ``target_law(X) -> TargetLaw``, the law of each row's compressed targets, likewise.
    class_similarity : callable or None
        ``class_similarity(X) -> ClassSimilarity``, each row's similarities to the classes, likewise.
    """

    mean: Callable[[Any], Array]
    draws: Callable[[Any, int, int], Array] | None
    label_law: Callable[[Any], Any] | None = None
    mixture_law: Callable[[Any], Any] | None = None
    target_law: Callable[[Any], Any] | None = None
    class_similarity: Callable[[Any], Any] | None = None


def fit_learner(
    model: str, engine: str, settings: dict[str, Any], labelled: LabelData, features: GPKernel, seed: int
) -> Fitted:
    """Fit `model` by `engine` on the labelled rows.

    Parameters
    ----------
    features : GPKernel
        The map of the features, from all rows of the pool.
    """
    if (model, engine) == ("label_gp", "conjugate"):
        return _fit_gp(settings, labelled, features)
    return _fit_model(model, engine, settings, labelled, seed)


def _fit_gp(settings: dict[str, Any], labelled: LabelData, features: GPKernel) -> Fitted:
    """Fit the closed form without a DataTree: the same numbers, milliseconds."""
    from labelzoo.inference.label_gp.regression import fit_regression, regression_draws, regression_mean

    Y = label_table(labelled)
    own = {name: value for name, value in settings.items() if name != "num_samples"}
    fitted = fit_regression(labelled.X, Y, features=features, settings=own)
    observed = ~np.isnan(Y)
    return Fitted(
        lambda X: regression_mean(fitted, X),
        lambda X, count, seed: regression_draws(fitted, X, observed, count, np.random.default_rng(seed)),
    )


def _fit_model(model: str, engine: str, settings: dict[str, Any], labelled: LabelData, seed: int) -> Fitted:
    from labelzoo.inference import predict
    from labelzoo.inference.fit import fit
    from labelzoo.models import registry

    tree = fit(model, labelled, engine, seed=seed, **settings)

    def draws(X: Any, count: int, seed: int) -> Array:
        array = predict.label_prob(tree, X, num_draws=count).values
        return array.reshape(-1, *array.shape[2:])

    spec = registry.get(model).spec
    return Fitted(
        lambda X: predict.mean_prob(tree, X),
        None if tree.attrs["kind"] == "point" else draws,
        *(
            None if getattr(spec, name) is None else partial(getattr(predict, name), tree)
            for name in Fitted._fields[2:]
        ),
    )


def label_table(data: LabelData) -> Array:
    """Return labels as 0, 1 and NaN (not observed): float (row, labels)."""
    Y = data.Y.toarray().astype(float)
    Y[~data.observed_mask(max_bytes=max(Y.size, 1))] = np.nan
    return Y


def stacked(A: Any, B: Any) -> Any:
    """Return two blocks of rows as one, sparse if they are."""
    return sparse.csr_array(sparse.vstack([A, B])) if sparse.issparse(A) else np.concatenate([A, B])


def pool_features(X: Any, settings: dict[str, Any]) -> GPKernel:
    """Return the map of the features that the study's kernels share."""
    return feature_map(X, settings.get("kernel", "auto"))


def acquisition_kernel(features: GPKernel, X: Any, Y: Array, rule: str) -> GPKernel:
    """Return the kernel that scores read, its length and noise chosen by `rule` from the labelled rows."""
    from labelzoo.inference.label_gp.evidence import choose_hyperparameters
    from labelzoo.models.label_gp import SETTINGS

    observed = ~np.isnan(Y)
    filled = np.where(observed, Y, 0.0)
    return choose_hyperparameters(features, X, filled, observed, {**SETTINGS, "hyperparameters": rule}).kernel
