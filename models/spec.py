"""What a model is here: a card that ties named NumPyro programs to what can be read from them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import sparse

View = Callable[..., Any]
Inputs = dict[str, Any]

ALLOWED_DIMS = frozenset(
    [
        "obs",
        "labels",
        "feature",
        "topic",
        "component",
        "target",
        "measurement",
        "inducing",
        "class",
        "neighbor",
        "iteration",
        "labels_bis",
        "obs_bis",
        "topic_bis",
        "feature_bis",
        "positive",
        "cell",
        "graph",
        "graph_bis",
        "basis",
        "problem",
    ]
)
"""Names of event axes. ``label`` is not among them: a dim of that name breaks ``arviz.summary``."""

MAX_DENSE_BYTES = 2**31
"""Largest dense array that a model prepares without being asked for more (2 GiB)."""


def nan_columns(X: Any, names: Any = None) -> str:
    """Say in words where the features are missing: number of values, number of columns, the first names.

    Parameters
    ----------
    X : array or sparse matrix (obs, feature)
    names : sequence of str or None
    """
    if sparse.issparse(X):
        cells = X.tocoo()
        at = cells.col[np.isnan(cells.data)]
        counts = np.bincount(at, minlength=X.shape[1])
    else:
        counts = np.isnan(np.asarray(X, float)).sum(axis=0)
    columns = np.flatnonzero(counts)
    shown = [
        f"{str(names[j]) if names is not None and len(names) else f'feature {j}'!r} ({counts[j]})"
        for j in columns[:5].tolist()
    ]
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    plural = "" if len(columns) == 1 else "s"
    return (
        f"missing features (NaN), {counts.sum()} in {len(columns)} column{plural}: {', '.join(shown)}{more}"
    )


def refuse_missing_features(data: Any, model: str) -> None:
    """Refuse NaN features for a model that has no law for them.

    Parameters
    ----------
    data : labelzoo.data.LabelData
    model : str
        For the message.

    Raises
    ------
    ValueError
        Naming the columns, how many values each lacks, and what to do.
    """
    if data.has_missing_features:
        raise ValueError(
            f"X has {nan_columns(data.X, data.feature_names)}; {model} has no model for missing features: "
            "impute them (labelzoo.preparation.prepare_data(data, prepare('impute')))"
        )


def prepare_dense(
    data: Any, settings: Mapping[str, Any], constants: Mapping[str, Any] | None = None
) -> Inputs:
    """Return ``X``, ``Y``, ``observed`` as dense arrays beside the settings: for plain programs.

    Parameters
    ----------
    data : labelzoo.data.LabelData
        Rows to condition on.
    settings : mapping
        The program's settings, passed through.
    constants : mapping or None
        Not needed here.

    Returns
    -------
    dict
        ``X`` (obs, feature) float, ``Y`` (obs, labels) float 0/1, ``observed`` (obs, labels) bool or
        None where every label is observed, and the settings.

    Raises
    ------
    ValueError
        If a dense array would take more than `MAX_DENSE_BYTES`, or features are missing: a program that
        has a law for missing features brings its own ``prepare``.
    """
    refuse_missing_features(data, "a plain program")
    size = 8 * data.num_rows * max(data.num_labels, data.num_features)
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"data: this model needs dense arrays of {size / 2**30:.1f} GiB ({data.num_rows} rows, "
            f"{data.num_features} features, {data.num_labels} labels); pass a subset of rows or labels"
        )
    X = data.X if isinstance(data.X, np.ndarray) else data.X.toarray()
    observed = None if data.missing is None else data.observed_mask(max_bytes=MAX_DENSE_BYTES)
    return {"X": X, "Y": data.Y.toarray().astype(float), "observed": observed, **settings}


def no_functionals(draw: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return every site as it is: right where no latent component can be relabelled."""
    return dict(draw)


class RepeatedWarning(UserWarning):
    """What a model says of its training rows at every fit; studies, which fit in every round, ignore it."""


@dataclass(frozen=True)
class ModelSpec:
    """The card of one model.

    A program and `predict` are enough to run ``nuts`` and ``svi``, to compare and to acquire; the rest
    is asked for when an update is checked or published.

    Parameters
    ----------
    name : str
        Registry name.
    views : mapping of str to callable
        NumPyro programs of the same model, called as ``view(**inputs)``. ``summed`` (no discrete and no
        auxiliary variable) is required: it is what NUTS and SVI run.
    predict : callable
        ``predict(draw, X_new, constants) -> probs (row, labels)``: `draw` maps site names to one draw,
        `X_new` is a dense (row, feature) array of raw features, `constants` is what `constants` returned.
        Must be traceable by JAX.
    prepare : callable
        ``prepare(data, settings, constants=None) -> inputs``: the keyword arguments of every view. When
        new rows are scored, `constants` is what the function below returned for the training rows.
    constants : callable
        ``constants(inputs) -> dict`` of arrays that prediction needs besides the draws and the settings.
    settings : mapping
        Defaults of the program's settings (numbers, strings, None, or short tuples of numbers).
    dims : mapping of str to tuple of str
        Names of the axes of each site, out of `ALLOWED_DIMS`.
    functionals : callable
        ``functionals(draw, inputs) -> dict`` of arrays that do not change when latent components are
        relabelled or rotated; verdicts are reached on these alone.
    log_score : callable or None
        ``log_score(draw, inputs, key) -> (row,)`` joint log predictive density of a row's labels at one
        draw, nats, where `inputs` is what `prepare` returned for the rows to score. None: labels are
        independent given the draw, and the sum of the marginals is the joint.
    simulate : callable or None
        ``simulate(key, sizes, **settings) -> (LabelData, sites)``: a joint draw from the prior; None where
        there is none, with the reason in `no_simulate`.
    draw_labels : callable or None
        ``draw_labels(draw, X, constants, key) -> (labels, sites)``: labels (row, labels), 0 or 1, of the raw
        rows `X` given the sites of `draw` that belong to no row, and the sites of those rows drawn on the
        way. The joint tests need it where the program's likelihood is a factor or a count and there is no
        `simulate`; posterior calibration falls back on independent draws from `predict` where `log_score` is
        None. Traceable by JAX.
    predict_draws : callable or None
        ``predict_draws(draws, X_new, constants, rng) -> probs (sample, row, labels)`` for models whose new
        rows have latent variables of their own (a Gaussian process): `draws` maps site names to all draws,
        `X_new` is dense or csr, `rng` a NumPy generator; joint over the rows of one call. None: `predict`,
        draw by draw.
    predict_moments : callable or None
        ``predict_moments(draws, X_new, constants, rng) -> (mean, sd)`` over draws of what `predict_draws`
        gives, each (row, labels), where they are had without the draws. None: of `predict_draws`.
    label_law : callable or None
        ``label_law(draws, X_new, constants) -> LabelLaw`` of `labelzoo.acquisition.label_law`: the Gaussian
        law of each new row's labels given the training rows, where the model has one; acquisition of single
        labels by covariance reads it. Arguments as in `predict_draws`.
    mixture_law : callable or None
        ``mixture_law(draws, X_new, constants, state) -> MixtureLaw`` of `labelzoo.acquisition.mixture_law`:
        the mixture that the labels of each new row follow, where the model has one; acquisition of rows by
        label covariance reads it. `draws` maps site names to (chain, draw, ...), `state` is what the engine
        kept in ``engine_state``, empty where it kept nothing.
    target_law : callable or None
        ``target_law(draws, X_new, constants) -> TargetLaw`` of `labelzoo.acquisition.target_law`: the
        Gaussian law of each new row's compressed targets, where the model has one; acquisition of rows by
        weighted entropy reads it. Arguments as in `predict_draws`.
    class_similarity : callable or None
        ``class_similarity(draws, X_new, constants) -> ClassSimilarity`` of
        `labelzoo.acquisition.class_similarity`: the similarities of each new row to the classes, where the
        model has them; acquisition of rows by their largest class probability reads them. Arguments as in
        `predict_draws`.
    tiny, default : mapping
        Sizes for checks and for examples, and settings where these need others than the defaults.
    small_settings : mapping
        Settings for a comparison on a small subset, chosen so that a reference sampler converges there.
    check_settings : mapping
        Settings under which the updates are checked besides the defaults, so that every block of an update
        exists under one of the two (a learned precision, say).
    refuse : callable or None
        ``refuse(data, settings)``: raises ValueError where a user's data and settings (those named by hand)
        make no sense together, though the program would run; asked by `labelzoo.fit` and `compare`, not by
        checks, whose simulated data may be that small.
    for_comparison : callable or None
        ``for_comparison(data, seed) -> LabelData``: what `labelzoo.compare` gives the engines in place of the
        training rows, where the posterior is over unobserved labels and complete rows have none. None: the
        training rows.
    paper, equations : str
        What is implemented, and where it stands.
    """

    name: str
    views: Mapping[str, View]
    predict: Callable[..., Any]
    prepare: Callable[..., Inputs] = prepare_dense
    constants: Callable[[Inputs], dict[str, Any]] = lambda inputs: {}
    settings: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    functionals: Callable[..., dict[str, Any]] = no_functionals
    log_score: Callable[..., Any] | None = None
    simulate: Callable[..., Any] | None = None
    no_simulate: str = ""
    draw_labels: Callable[..., Any] | None = None
    predict_draws: Callable[..., Any] | None = None
    predict_moments: Callable[..., Any] | None = None
    label_law: Callable[..., Any] | None = None
    mixture_law: Callable[..., Any] | None = None
    target_law: Callable[..., Any] | None = None
    class_similarity: Callable[..., Any] | None = None
    tiny: Mapping[str, Any] = field(default_factory=dict)
    default: Mapping[str, Any] = field(default_factory=dict)
    small_settings: Mapping[str, Any] = field(default_factory=dict)
    check_settings: Mapping[str, Any] = field(default_factory=dict)
    refuse: Callable[[Any, Mapping[str, Any]], None] | None = None
    for_comparison: Callable[[Any, int], Any] | None = None
    paper: str = ""
    equations: str = ""

    def __post_init__(self) -> None:
        if "summed" not in self.views:
            raise ValueError(f"model {self.name!r}: views must contain 'summed', got {sorted(self.views)}")
        for site, names in self.dims.items():
            unknown = [name for name in names if name not in ALLOWED_DIMS]
            if unknown:
                raise ValueError(
                    f"model {self.name!r}: site {site!r} has unknown dims {unknown}; "
                    f"dims: {', '.join(sorted(ALLOWED_DIMS))}"
                )
            if len(set(names)) < len(names):
                raise ValueError(f"model {self.name!r}: site {site!r} repeats a dim: {names}")
        for attribute in ("views", "settings", "dims", "tiny", "default", "small_settings", "check_settings"):
            object.__setattr__(self, attribute, MappingProxyType(dict(getattr(self, attribute))))

    def resolve(self, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with `overrides` applied.

        Raises
        ------
        ValueError
            If an override is not a setting of this model.
        """
        unknown = sorted(set(overrides) - set(self.settings))
        if unknown:
            raise ValueError(
                f"model {self.name!r} has no setting {', '.join(map(repr, unknown))}; "
                f"settings: {', '.join(sorted(self.settings)) or 'none'}"
            )
        return {**self.settings, **overrides}
