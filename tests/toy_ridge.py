"""A small model for the tests of the scikit-learn face: least squares, exact in batches, no JAX to fit."""

import json
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.models.registry import register
from labelzoo.models.spec import ModelSpec, prepare_dense

NAME = "toy_ridge"


def summed(X: Any, Y: Any, observed: Any, penalty: float) -> None:
    """Labels given weights with a normal prior."""
    with numpyro.plate("labels", Y.shape[1]):
        weights = numpyro.sample(
            "weights", dist.Normal(0.0, penalty**-0.5).expand((X.shape[1] + 1,)).to_event(1)
        )
    with numpyro.plate("obs", X.shape[0]):
        logits = with_ones(X) @ weights.T
        mask = True if observed is None else observed
        numpyro.sample("Y", dist.Bernoulli(logits=logits).mask(mask).to_event(1), obs=Y)


def with_ones(X: Any) -> Any:
    """Return X with a last column of ones."""
    return jnp.concatenate([X, jnp.ones((X.shape[0], 1))], axis=1)


def predict(draw: Mapping[str, Any], X: Any, constants: Mapping[str, Any]) -> Any:
    """Return probabilities (row, labels)."""
    return jax.nn.sigmoid(4.0 * with_ones(X) @ draw["weights"].T)


def _solve(gram: np.ndarray, moment: np.ndarray) -> EngineResult:
    weights = np.linalg.solve(gram, moment[..., None])[..., 0]
    return EngineResult(
        draws={"weights": weights[None, None]}, converged=True, state={"gram": gram, "moment": moment}
    )


def _sums(inputs: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    X = np.hstack([inputs["X"], np.ones((len(inputs["X"]), 1))])
    seen = np.ones_like(inputs["Y"]) if inputs["observed"] is None else inputs["observed"].astype(float)
    target = seen * (inputs["Y"] - 0.5)
    return np.einsum("nd,nl,ne->lde", X, seen, X), np.einsum("nl,nd->ld", target, X)


def run(
    spec: ModelSpec, inputs: Mapping[str, Any], *, rng_key: Any, progress: bool = False, steps: int = 1
) -> EngineResult:
    """Solve the normal equations of every label."""
    gram, moment = _sums(inputs)
    return _solve(gram + inputs["penalty"] * np.eye(gram.shape[-1]), moment)


def more(
    spec: ModelSpec,
    inputs: Mapping[str, Any],
    previous: Any,
    *,
    rng_key: Any,
    progress: bool = False,
    steps: int = 1,
) -> EngineResult:
    """Add the sums of new rows to those of the rows before."""
    gram, moment = _sums(inputs)
    state = previous["engine_state"]
    assert json.loads(previous.attrs["options"]) == {"steps": steps}
    return _solve(state["gram"].values + gram, state["moment"].values + moment)


spec = register(
    ModelSpec(
        name=NAME,
        views={"summed": summed},
        predict=predict,
        prepare=prepare_dense,
        settings={"penalty": 0.1},
        dims={"weights": ("labels", "feature")},
    ),
    engines=[
        Engine("batch", "point", run, options={"steps": 1}),
        Engine("online", "point", run, options={"steps": 1}, continue_from=more),
    ],
)
