"""The card of Bernoulli-Poisson topics: settings, prediction (eq. 19), scores and simulation."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO
from jax.scipy.special import digamma, gammaln, logsumexp
from scipy import sparse

from labelzoo.inference.gamma_draws import blocked_log_gamma
from labelzoo.inference.stable import log1mexp
from labelzoo.models.bernoulli_poisson_topics import VIEWS, log_likelihood
from labelzoo.models.bernoulli_poisson_topics_settings import SETTINGS, check_settings, refuse
from labelzoo.models.design import binary_unit, column_moments, design_matrix, sparse_design
from labelzoo.models.label_cells import exposed_mass, list_cells, negative_mass, positive_sum_by_row
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec, refuse_missing_features

Array = Any

SCALES = 1e-50, 1e50
"""Least and largest absolute feature that a program takes as it is, neither standardised nor row-scaled."""


def prepare(
    data: Any, settings: Mapping[str, Any], constants: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of every view for `data` (LabelData).

    Parameters
    ----------
    data : LabelData
    settings : mapping
    constants : mapping or None
        What `constants` returned for the training rows, when `data` are new rows to score.

    Raises
    ------
    ValueError
        If a setting is out of range, or the dense features would pass the memory cap.

    Notes
    -----
    ``X`` is a csr matrix where ``sparse_features`` is set and the features are sparse, else an array.
    """
    settings = {"sparse_features": False, **settings}  # posteriors stored before this setting existed
    check_settings(settings, data.num_labels)
    refuse_missing_features(data, "bernoulli_poisson_topics")
    mean, scale = _standardization(data, settings) if constants is None else _stored(constants)
    X = _features(data, settings, mean, scale)
    positives, negatives = list_cells(data)
    eta = settings["topic_concentration"]
    topics, learned = settings["num_topics"], settings["precision_prior"]
    if learned is not None and constants is None:
        _mean_square(X[:, :-1] if settings["intercept"] else X)
    return {
        "X": X,
        "positives": jax.tree.map(jnp.asarray, positives),
        "negatives": jax.tree.map(jnp.asarray, negatives),
        "num_labels": data.num_labels,
        "num_topics": min(10, data.num_labels) if topics is None else int(topics),
        "topic_concentration": min(0.01, 1.0 / data.num_labels) if eta is None else float(eta),
        "shape": settings["shape"],
        "shape_prior": tuple(float(v) for v in settings["shape_prior"]),
        "precision": None if learned is not None else _precision(X, settings, constants),
        "precision_prior": None if learned is None else tuple(float(v) for v in learned),
        "feature_mean": mean,
        "feature_scale": scale,
    }


def _features(data: Any, settings: Mapping[str, Any], mean: Array | None, scale: Array | None) -> Any:
    options = {"intercept": settings["intercept"], "scale_rows": settings["scale_rows"]}
    dense = isinstance(data.X, np.ndarray)
    if settings["sparse_features"] and not dense and mean is None:
        return sparse_design(data.X, **options)
    size = 8 * data.num_rows * (data.num_features + 1)
    if size > MAX_DENSE_BYTES:
        way = "pass them as a sparse matrix" if dense else "take them sparse as they are"
        raise ValueError(
            f"X: dense features take {size / 2**30:.1f} GiB; the engines map_em, vb_em and online_em {way}; "
            "else pass fewer rows or features"
        )
    raw = data.X if dense else data.X.toarray()
    return design_matrix(jnp.asarray(raw), mean=mean, scale=scale, **options)


def _standardization(data: Any, settings: Mapping[str, Any]) -> tuple[Array | None, Array | None]:
    """Return mean and sd of the features, one for the intercept's column added, or (None, None)."""
    wanted = settings["standardize"]
    dense = isinstance(data.X, np.ndarray)
    if wanted is None:
        wanted = dense and not np.isin(data.X, (0.0, 1.0)).all()
    if not wanted:
        return None, None
    if not dense:
        raise ValueError(
            "standardize=True would densify the sparse features; scale them yourself or pass an array"
        )
    mean, sd = column_moments(data.X)
    if settings["intercept"]:
        mean, sd = np.append(mean, 0.0), np.append(sd, 1.0)
    return jnp.asarray(mean), jnp.asarray(sd)


def _stored(constants: Mapping[str, Any]) -> tuple[Array | None, Array | None]:
    return constants.get("feature_mean"), constants.get("feature_scale")


def _precision(X: Any, settings: Mapping[str, Any], constants: Mapping[str, Any] | None) -> Array:
    """Return the fixed precisions: those of the training rows, where `constants` are given."""
    kept = None if constants is None else constants.get("prior_precision")
    return _fixed_precision(X, settings) if kept is None else jnp.asarray(kept)


def _fixed_precision(X: Any, settings: Mapping[str, Any]) -> Array:
    """Return precisions that give the linear predictor the standard deviation `prior_scale`: (feature,)."""
    features = X[:, :-1] if settings["intercept"] else X
    precision = jnp.full(X.shape[1], _mean_square(features) / float(settings["prior_scale"]) ** 2)
    return precision.at[-1].set(settings["intercept_precision"]) if settings["intercept"] else precision


def _mean_square(features: Any) -> float:
    """Return the mean squared length of the rows, 1e-12 where all features are zero.

    Raises
    ------
    ValueError
        If the features, left as they are, are too small or too large to be squared.
    """
    values = features.data if sparse.issparse(features) else np.asarray(features)
    peak = np.abs(values).max(initial=0.0)
    if peak == 0:
        return 1e-12
    if not SCALES[0] <= peak <= SCALES[1]:
        raise ValueError(
            f"X: the largest feature is {peak:.3g}, outside [{SCALES[0]:g}, {SCALES[1]:g}], with neither "
            "standardize nor scale_rows: turn one of them on, or rescale the features"
        )
    unit = float(binary_unit(peak, np))
    return float(((values / unit) ** 2).sum() / features.shape[0]) * unit**2


def constants(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fixed prior precisions and the standardisation, kept with the posterior."""
    kept = {
        "prior_precision": inputs["precision"],
        "feature_mean": inputs["feature_mean"],
        "feature_scale": inputs["feature_scale"],
    }
    return {name: value for name, value in kept.items() if value is not None}


def predict(draw: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any]) -> Array:
    """Return P(y = 1 | x, V, W, r) = 1 - prod_k (1 + v_kl e^psi_k)^(-r_k), eq. 19: (row, labels).

    Exact with u integrated out. Cost 40 rows x labels x topics flops; the topics are scanned, so memory
    is (row, labels).
    """
    mean, scale = _stored(constants)
    options = {"intercept": constants["intercept"], "scale_rows": constants["scale_rows"]}
    X = design_matrix(X_new, mean=mean, scale=scale, **options)
    psi = X @ draw["weights"].T
    log_topics = jnp.log(draw["topics"])

    def add_topic(total: Array, k: Array) -> tuple[Array, None]:
        return total + draw["shape"][k] * jax.nn.softplus(psi[:, k, None] + log_topics[k]), None

    start = jnp.zeros((X.shape[0], log_topics.shape[1]), psi.dtype)
    total, _ = jax.lax.scan(add_topic, start, jnp.arange(psi.shape[1]))
    return -jnp.expm1(-total)


def functionals(draw: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return quantities that do not depend on the order of the topics.

    ``cell_prob`` P(y = 1 | u) at 200 fixed cells of the training rows, ``log_likelihood``, ``sum_shape``,
    ``sum_weight_squares`` and ``topic_gram``, entries of V'V.
    """
    topics, embedding, positives = draw["topics"], draw["embedding"], inputs["positives"]
    rows, labels = functional_cells(embedding.shape[0], topics.shape[1])
    rates = (embedding[rows] * topics.T[labels]).sum(axis=1)
    few = topics[:, : min(6, topics.shape[1])]
    gram = few.T @ few
    out = {
        "cell_prob": -jnp.expm1(-rates),
        "log_likelihood": log_likelihood(topics, embedding, positives, inputs["negatives"]),
        "sum_shape": draw["shape"].sum(),
        "sum_weight_squares": (draw["weights"] ** 2).sum(),
        "topic_gram": gram[np.triu_indices(gram.shape[0])],
    }
    return {**out, "log_precision": jnp.log(draw["precision"])} if "precision" in draw else out


def functional_cells(num_rows: int, num_labels: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return `count` fixed cells spread over the label matrix (all of them if there are fewer)."""
    total = num_rows * num_labels
    flat = np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(np.int64))
    # A stride coprime to the number of labels walks over all columns.
    flat = np.unique((flat * 7919) % total)
    return flat // num_labels, flat % num_labels


def log_score(
    draw: Mapping[str, Any], inputs: Mapping[str, Any], key: Array, num_samples: int = 256, sweeps: int = 10
) -> Array:
    """Return an estimate of log p(y_n | x_n, V, W, r), the labels of a row jointly: (row,), nats.

    The embedding is integrated by importance sampling, one half from its law given the zeros,
    Gamma(r, s0 + e^-psi) with s0 the mass of the observed zeros, one half from Gamma(r + M, s + e^-psi) with
    M from a mean-field fixed point: the weights are then at most twice the likelihood of the positives. The
    estimate of p is unbiased; its logarithm is low by about half the relative variance.
    Labels stay dependent given (V, W, r), so this exceeds the sum of the marginals where the model has
    learnt dependence.

    Parameters
    ----------
    draw : mapping
        ``topics``, ``weights``, ``shape`` at one draw.
    inputs : mapping
        What `prepare` returned for the rows to score.
    """
    topics, r = draw["topics"], draw["shape"]
    positives, negatives = inputs["positives"], inputs["negatives"]
    X = inputs["X"]
    psi = (BCOO.from_scipy_sparse(X) if sparse.issparse(X) else X) @ draw["weights"].T
    a, rate = _row_factors(topics, r, psi, positives, negatives, sweeps)
    zeros = negative_mass(topics, negatives)
    base_rate = zeros + jnp.exp(-psi)
    log_zeros = -(r * jnp.log1p(zeros * jnp.exp(psi))).sum(axis=1)

    def one(key: Array) -> Array:
        from_prior, from_factor = jax.random.split(key)
        log_prior_u = blocked_log_gamma(from_prior, jnp.broadcast_to(r, psi.shape)) - jnp.log(base_rate)
        log_factor_u = blocked_log_gamma(from_factor, a) - jnp.log(rate)
        return jnp.stack([log_weight(log_prior_u), log_weight(log_factor_u)])

    def log_weight(log_u: Array) -> Array:
        u = jnp.exp(log_u)
        rates = (topics.T[positives.label] * u[positives.row]).sum(axis=1)
        fit = positive_sum_by_row(log1mexp(rates)[:, None], positives, u.shape[0])[:, 0]
        log_prior = (r * (log_u + jnp.log(base_rate)) - base_rate * u - gammaln(r)).sum(axis=1)
        log_factor = (a * (log_u + jnp.log(rate)) - rate * u - gammaln(a)).sum(axis=1)
        return fit + log_prior - jnp.logaddexp(log_prior, log_factor) + jnp.log(2.0)

    weights = jax.lax.map(one, jax.random.split(key, num_samples // 2))
    return log_zeros + logsumexp(weights, axis=(0, 1)) - jnp.log(2.0 * (num_samples // 2))


def _row_factors(
    topics: Array, r: Array, psi: Array, positives: Any, negatives: Any, sweeps: int
) -> tuple[Array, Array]:
    """Mean-field factor Gamma(a, rate) of each row's embedding given the globals: two (row, topic) arrays."""
    rate = exposed_mass(topics, jnp.ones(positives.row.shape[0]), positives, negatives) + jnp.exp(-psi)
    log_topic = jnp.log(topics.T[positives.label])

    def sweep(_: Array, a: Array) -> Array:
        log_u = digamma(a) - jnp.log(rate)
        log_rates = log_topic + log_u[positives.row]
        total = jnp.exp(logsumexp(log_rates, axis=1, keepdims=True))
        expected = jnp.where(total > 1e-8, total / -jnp.expm1(-jnp.maximum(total, 1e-30)), 1.0 + total / 2)
        return r + positive_sum_by_row(jax.nn.softmax(log_rates, axis=1) * expected, positives, psi.shape[0])

    return jax.lax.fori_loop(0, sweeps, sweep, jnp.broadcast_to(r, psi.shape) + 0.0), rate


def draw_labels(
    draw: Mapping[str, Any], X: Array, constants: Mapping[str, Any], key: Array
) -> tuple[Array, dict[str, Array]]:
    """Draw the embedding of new rows, then their labels.

    Parameters
    ----------
    draw : mapping
        ``topics``, ``weights``, ``shape`` at one draw.
    X : array (row, feature)
        Raw features.

    Returns
    -------
    labels : int8 array (row, labels)
    sites : dict
        ``embedding`` (row, topic), and ``log_unit_embedding``, its non-centred form in the summed view.
    """
    mean, scale = _stored(constants)
    options = {"intercept": constants["intercept"], "scale_rows": constants["scale_rows"]}
    psi = design_matrix(X, mean=mean, scale=scale, **options) @ draw["weights"].T
    embedding_key, label_key = jax.random.split(key)
    log_unit = blocked_log_gamma(embedding_key, jnp.broadcast_to(draw["shape"], psi.shape))
    embedding = jnp.exp(log_unit + psi)
    labels = jax.random.exponential(label_key, (psi.shape[0], draw["topics"].shape[1]))
    return (labels < embedding @ draw["topics"]).astype(jnp.int8), {
        "embedding": embedding,
        "log_unit_embedding": log_unit,
    }


def simulate(key: Array, sizes: Mapping[str, int], **overrides: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Draw features, globals, embeddings and labels from the prior.

    Parameters
    ----------
    key : jax.random.key
    sizes : mapping
        ``num_obs``, ``num_features``, ``num_labels``, ``num_topics``.
    **overrides
        Settings of the program.

    Returns
    -------
    data : LabelData
    sites : dict
        ``topics``, ``weights``, ``shape``, ``embedding`` (and ``precision`` where it is learned).
    """
    from labelzoo.data import LabelData

    n, num_labels = sizes["num_obs"], sizes["num_labels"]
    settings = spec.resolve({"num_topics": sizes["num_topics"], **overrides})
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    raw = rng.standard_normal((n, sizes["num_features"]))
    empty = LabelData.from_arrays(raw, sparse.csr_array((n, num_labels), dtype=np.int8))
    inputs = prepare(empty, settings)
    sites = _simulate_globals(rng, inputs)
    psi = np.asarray(inputs["X"]) @ sites["weights"].T
    sites["embedding"] = rng.gamma(np.broadcast_to(sites["shape"], psi.shape)) * np.exp(psi)
    labels = rng.random((n, num_labels)) < -np.expm1(-sites["embedding"] @ sites["topics"])
    return LabelData.from_arrays(raw, labels.astype(np.int8)), sites


def _simulate_globals(rng: np.random.Generator, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    k, d = inputs["num_topics"], inputs["X"].shape[1]
    sites: dict[str, np.ndarray] = {}
    precision = inputs["precision"]
    if precision is None:
        a, b = inputs["precision_prior"]
        precision = sites["precision"] = rng.gamma(a, 1 / b, d)
    sites["weights"] = rng.standard_normal((k, d)) / np.sqrt(np.asarray(precision))
    sites["topics"] = rng.dirichlet(np.full(inputs["num_labels"], inputs["topic_concentration"]), k)
    e0, f0 = inputs["shape_prior"]
    fixed = inputs["shape"]
    sites["shape"] = rng.gamma(e0, 1 / f0, k) if fixed is None else np.full(k, float(fixed))
    return sites


spec = ModelSpec(
    name="bernoulli_poisson_topics",
    views=VIEWS,
    predict=predict,
    prepare=prepare,
    constants=constants,
    settings=SETTINGS,
    dims={
        "topics": ("topic", "labels"),
        "weights": ("topic", "feature"),
        "shape": ("topic",),
        "precision": ("feature",),
        "prior_precision": ("feature",),
        "feature_mean": ("feature",),
        "feature_scale": ("feature",),
        "embedding": ("obs", "topic"),
    },
    functionals=functionals,
    log_score=log_score,
    simulate=simulate,
    draw_labels=draw_labels,
    tiny={"num_obs": 5, "num_features": 2, "num_labels": 4, "num_topics": 2},
    default={"num_obs": 100, "num_features": 5, "num_labels": 20, "num_topics": 3},
    check_settings={"precision_prior": (2.0, 1.0), "topic_concentration": 0.5},
    small_settings={"num_topics": 3, "topic_concentration": 0.5, "shape": 1.0},
    refuse=refuse,
    paper="Rai, Hu, Henao, Carin: Large-scale Bayesian multi-label learning via topic-based label "
    "embeddings, NIPS 2015",
    equations="eqs. 1-19",
)
