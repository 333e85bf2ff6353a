"""Bayesian logistic regression, one a label: the baseline, and the smallest complete card.

Weights (labels, feature) are normal given fixed precisions, and y_nl ~ Bernoulli(sigmoid(x_n' w_l)) where the
label is observed. Labels are independent given the weights. Every pass costs rows x labels x features by
nature, so tables of labels above a memory cap are refused.

Polya-Gamma augmentation: Polson, Scott and Windle, "Bayesian inference for logistic models using Polya-Gamma
latent variables", JASA 108, 2013, theorem 1.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import sparse

from labelzoo.inference.polya_gamma import PolyaGamma
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec, refuse_missing_features

Array = Any

SETTINGS: dict[str, Any] = {"prior_scale": 1.0, "intercept": True, "intercept_precision": 0.01}
"""Defaults: prior_scale is the prior standard deviation of every weight but the intercept's, whose precision
is intercept_precision; intercept False leaves the constant feature out."""

MAX_FUNCTIONALS = 200
"""Most weights that `functionals` returns."""


def _weights_prior(precision: Array, num_labels: int) -> Array:
    """Sample weights (labels, feature), each Normal(0, precision^-1/2)."""
    with numpyro.plate("labels", num_labels):
        return numpyro.sample("weights", dist.Normal(0.0, precision**-0.5).to_event(1))


def summed(X: Array, Y: Array, observed: Array, precision: Array) -> None:
    """The program as it stands: what NUTS and SVI run.

    Parameters
    ----------
    X : array (obs, feature)
        Design matrix, intercept column included.
    Y : array (obs, labels)
        0 or 1; the values at unobserved cells are not read.
    observed : bool array (obs, labels)
    precision : array (feature,)
        Prior precisions of the weights.
    """
    psi = X @ _weights_prior(precision, Y.shape[1]).T
    with numpyro.plate("obs", X.shape[0]):
        numpyro.sample("Y", dist.Bernoulli(logits=psi).mask(observed).to_event(1), obs=Y)


def polya_gamma(X: Array, Y: Array, observed: Array, precision: Array) -> None:
    """The same program with a Polya-Gamma variable explicit at every cell.

    sigmoid(psi)^y sigmoid(-psi)^(1-y) = (1/2) e^((y - 1/2) psi) E[e^(-omega psi^2 / 2)] with
    omega ~ PG(1, 0). At unobserved cells omega keeps its prior and touches nothing.
    """
    psi = X @ _weights_prior(precision, Y.shape[1]).T
    with numpyro.plate("obs", X.shape[0]):
        omega = numpyro.sample("omega", PolyaGamma(jnp.ones_like(psi), 0.0).to_event(1))
    cells = (Y - 0.5) * psi - 0.5 * omega * psi**2 - jnp.log(2.0)
    numpyro.factor("Y", jnp.where(observed, cells, 0.0).sum())


def design_matrix(X: Array, *, intercept: bool) -> Array:
    """Return the features, with a last column of ones if `intercept`."""
    return jnp.concatenate([X, jnp.ones((X.shape[0], 1), X.dtype)], axis=1) if intercept else jnp.asarray(X)


def prepare(
    data: Any, settings: Mapping[str, Any], constants: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of every view for `data` (LabelData); `constants` are not needed here.

    Raises
    ------
    ValueError
        If a setting is out of range, a feature is missing, or a dense table would pass the memory cap.
    """
    _check_settings(settings)
    _refuse_large(data)
    refuse_missing_features(data, "label_logistic")
    X = design_matrix(jnp.asarray(_dense(data.X), float), intercept=settings["intercept"])
    precision = jnp.full(X.shape[1], settings["prior_scale"] ** -2.0)
    if settings["intercept"]:
        precision = precision.at[-1].set(settings["intercept_precision"])
    return {
        "X": X,
        "Y": jnp.asarray(_dense(data.Y), float),
        "observed": jnp.asarray(data.observed_mask(max_bytes=MAX_DENSE_BYTES)),
        "precision": precision,
    }


def _dense(matrix: Any) -> np.ndarray:
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


def _check_settings(settings: Mapping[str, Any]) -> None:
    for name in ("prior_scale", "intercept_precision"):
        value = settings[name]
        if not (isinstance(value, int | float | np.number) and np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a positive finite number, got {value!r}")
    if not isinstance(settings["intercept"], bool | np.bool_):
        raise ValueError(f"intercept must be True or False, got {settings['intercept']!r}")


def _refuse_large(data: Any) -> None:
    n, num_labels, d = data.num_rows, data.num_labels, data.num_features + 1
    size = 8 * n * d + 9 * n * num_labels
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"data: label_logistic works on dense tables, here {n} rows x {num_labels} labels and "
            f"{data.num_features} features: {size / 2**30:.1f} GiB together, above the cap of "
            f"{MAX_DENSE_BYTES / 2**30:.0f} GiB; pass a subset of rows or labels, or use a model whose cost "
            "follows the positives (bernoulli_poisson_topics)"
        )


def predict(draw: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any]) -> Array:
    """Return P(y = 1 | x, w) = sigmoid(x' w): (row, labels)."""
    return jax.nn.sigmoid(design_matrix(X_new, intercept=constants["intercept"]) @ draw["weights"].T)


def log_likelihood(weights: Array, inputs: Mapping[str, Any]) -> Array:
    """Return the log probability of the observed labels: scalar, nats."""
    psi = inputs["X"] @ weights.T
    cells = inputs["Y"] * psi - jax.nn.softplus(psi)
    return jnp.where(inputs["observed"], cells, 0.0).sum()


def functionals(draw: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return what verdicts are reached on; nothing here can be relabelled or rotated.

    ``weights``, at most 200 of them evenly spaced; ``label_rate`` (labels,), the mean of P(y = 1) over the
    rows; ``log_likelihood``.
    """
    weights = draw["weights"]
    flat = weights.reshape(-1)
    keep = np.unique(np.linspace(0, flat.shape[0] - 1, min(MAX_FUNCTIONALS, flat.shape[0])).astype(int))
    return {
        "weights": flat[keep],
        "label_rate": jax.nn.sigmoid(inputs["X"] @ weights.T).mean(axis=0),
        "log_likelihood": log_likelihood(weights, inputs),
    }


def simulate(key: Array, sizes: Mapping[str, int], **overrides: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Draw features, weights and labels from the prior.

    Parameters
    ----------
    key : jax.random.key
    sizes : mapping
        ``num_obs``, ``num_features``, ``num_labels``.
    **overrides
        Settings of the program.

    Returns
    -------
    data : LabelData
        Every label observed; features standard normal.
    sites : dict
        ``weights`` (labels, feature).
    """
    from labelzoo.data import LabelData

    n, num_labels = sizes["num_obs"], sizes["num_labels"]
    settings = spec.resolve(overrides)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    raw = rng.standard_normal((n, sizes["num_features"]))
    empty = LabelData(raw, sparse.csr_array((n, num_labels), dtype=np.int8))
    inputs = prepare(empty, settings)
    X, sd = np.asarray(inputs["X"]), np.asarray(inputs["precision"]) ** -0.5
    weights = rng.standard_normal((num_labels, X.shape[1])) * sd
    Y = rng.random((n, num_labels)) < 0.5 * (1 + np.tanh(X @ weights.T / 2))
    return LabelData(raw, Y.astype(np.int8)), {"weights": weights}


spec = ModelSpec(
    name="label_logistic",
    views={"summed": summed, "polya_gamma": polya_gamma},
    predict=predict,
    prepare=prepare,
    settings=SETTINGS,
    dims={"weights": ("labels", "feature")},
    functionals=functionals,
    simulate=simulate,
    tiny={"num_obs": 6, "num_features": 2, "num_labels": 3},
    default={"num_obs": 200, "num_features": 5, "num_labels": 10},
    check_settings={"intercept_precision": 1.0},
    paper="Polson, Scott, Windle: Bayesian inference for logistic models using Polya-Gamma latent variables, "
    "JASA 108, 2013",
    equations="theorem 1, section 3.1",
)
