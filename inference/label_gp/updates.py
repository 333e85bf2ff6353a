"""The one conditional of label_gp, which is its posterior, and wrong versions of it."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from labelzoo.inference.distributions import GaussianNatural
from labelzoo.inference.update import Mutant, Update

Array = Any
State = Mapping[str, Any]
Inputs = Mapping[str, Any]


def white_given_labels(state: State, inputs: Inputs) -> GaussianNatural:
    """Return p(white_l | y_l): batch (labels,), event (component,).

    With F the factor at the rows where label l is observed, precision I + F'F / ratio, in which the amplitude
    cancels, and potential F' (y_l - mean_l) / (ratio amplitude_l^(1/2)). Rasmussen and Williams (2.8) in the
    weights of F. Cost labels x rows x component^2.
    """
    factor, ratio = inputs["factor"], inputs["noise_ratio"]
    seen = jnp.where(inputs["observed"], 1.0, 0.0)
    residual = seen * (inputs["Y"] - inputs["mean"]) / jnp.sqrt(inputs["amplitude"])
    potential = residual.T @ factor / ratio
    eye = jnp.eye(factor.shape[1])
    precision = jax.lax.map(lambda s: eye + (factor * s[:, None]).T @ factor / ratio, seen.T)
    return GaussianNatural(potential, precision)


def _wrong(**change: Any) -> Any:
    return lambda state, inputs: white_given_labels(
        state, {**inputs, **{name: wrong(inputs) for name, wrong in change.items()}}
    )


def _noise_not_ratio(state: State, inputs: Inputs) -> GaussianNatural:
    """Take the noise ratio for the noise variance: the amplitude no longer cancels."""
    law = white_given_labels(state, inputs)
    eye = jnp.eye(law.precision.shape[-1])
    amplitude = inputs["amplitude"]
    precision = eye + (law.precision - eye) * amplitude[:, None, None]
    return GaussianNatural(law.potential * amplitude[:, None], precision)


UPDATES = (
    Update(
        name="white_given_labels",
        sites=("white",),
        view="summed",
        given=white_given_labels,
        mutants=(
            Mutant("labels not centred", _wrong(mean=lambda i: jnp.zeros_like(i["mean"]))),
            Mutant("noise ratio taken for its root", _wrong(noise_ratio=lambda i: i["noise_ratio"] ** 0.5)),
            Mutant("missing cells read as zeros", _wrong(observed=lambda i: jnp.ones_like(i["observed"]))),
            Mutant("amplitude taken for its root", _wrong(amplitude=lambda i: i["amplitude"] ** 0.5)),
            Mutant("noise ratio taken for the noise variance", _noise_not_ratio),
        ),
        equation="Rasmussen and Williams 2006, (2.8)",
    ),
)
