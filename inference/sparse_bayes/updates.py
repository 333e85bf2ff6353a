"""The conditionals of sparse_bayes as the distributions they claim, and wrong versions of them."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular

from labelzoo.inference.sparse_bayes.normal_cells import CompletedGraph, CompletedRows
from labelzoo.inference.update import Mutant, Update
from labelzoo.models.sparse_bayes import filled

Array = Any
State = Mapping[str, Any]
Inputs = Mapping[str, Any]

GRAPH = ("Y", "cell_row", "cell_label", "projection")


def labels_given_precision(state: State, inputs: Inputs) -> CompletedGraph:
    """Return p(y_U | alpha, y_O), all cells of the graph jointly: (cell,)."""
    arguments = {name: inputs[name] for name in (*GRAPH, "cholesky")}
    return CompletedGraph(state["precision"], **arguments)


def labels_given_compressed(state: State, inputs: Inputs) -> CompletedRows:
    """Return p(y_U | alpha, Z, y_O), row by row: (cell,)."""
    arguments = {name: inputs[name] for name in (*GRAPH, "chi2")}
    return CompletedRows(state["precision"], compressed=state["compressed"], **arguments)


def precision_given_labels(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(alpha | y) = Gamma(a0 + 1/2, b0 + y^2 / 2) at the cells: (cell,)."""
    rate = inputs["precision_rate"] + 0.5 * state["y_unobserved"] ** 2
    return dist.Gamma(jnp.full_like(rate, inputs["precision_shape"] + 0.5), rate)


def compressed_given_rest(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(Z | W, Y): variance s = 1 / (1 / sigma2 + 1 / chi2), mean s (F W / sigma2 + Y Phi' / chi2)."""
    sigma2, chi2 = inputs["sigma2"], inputs["chi2"]
    Y = filled(inputs["Y"], inputs["cell_row"], inputs["cell_label"], state.get("y_unobserved", jnp.zeros(0)))
    variance = 1.0 / (1.0 / sigma2 + 1.0 / chi2)
    mean = variance * (inputs["factor"] @ state["weights"] / sigma2 + Y @ inputs["projection"].T / chi2)
    return dist.Normal(mean, jnp.sqrt(variance)).to_event(2)


def weights_root(F: Array, sigma2: Array) -> Array:
    """Return the lower root of P^-1, P = I + F' F / sigma2: (component, component)."""
    eye = jnp.eye(F.shape[1])
    # With R R' = P reversed in both axes, the reversal of R^-T is a lower root of P^-1.
    flipped = jnp.linalg.cholesky((eye + F.T @ F / sigma2)[::-1, ::-1])
    return solve_triangular(flipped, eye, lower=True).T[::-1, ::-1]


def weights_given_compressed(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(W | Z), columns N(P^-1 F' z_j / sigma2, P^-1) with P = I + F' F / sigma2.

    component^2 (obs + component) flops, less where a sampler has put `weights_root` among the inputs.
    """
    F, sigma2 = jnp.asarray(inputs["factor"]), inputs["sigma2"]
    root = inputs["weights_root"] if "weights_root" in inputs else weights_root(F, sigma2)
    mean = root @ (root.T @ (F.T @ state["compressed"] / sigma2))
    columns = jnp.eye(state["compressed"].shape[1])
    return dist.MatrixNormal(mean, root, columns)


def _inputs_wrong(given: Callable[..., Any], **change: Callable[[Inputs], Any]) -> Any:
    """Return `given` on inputs that `change` maps to wrong ones."""
    return lambda state, inputs: given(
        state, {**inputs, **{name: wrong(inputs) for name, wrong in change.items()}}
    )


def _double_noise(inputs: Inputs) -> Array:
    """Return the factor of C with the noise counted twice."""
    L = jnp.tril(jnp.asarray(inputs["cholesky"]))
    noise = inputs["sigma2"] + inputs["chi2"]
    return jnp.linalg.cholesky(L @ L.T + noise * jnp.eye(L.shape[0]))


def _without_regression_noise(inputs: Inputs) -> Array:
    L = jnp.tril(jnp.asarray(inputs["cholesky"]))
    return jnp.linalg.cholesky(L @ L.T - inputs["sigma2"] * jnp.eye(L.shape[0]))


def _no_labels(inputs: Inputs) -> Array:
    return jnp.zeros_like(inputs["Y"])


def _negative(inputs: Inputs) -> Array:
    return -jnp.asarray(inputs["Y"])


def _gamma(shape: float = 0.5, rate: Callable[[Array], Array] = lambda y: 0.5 * y**2) -> Any:
    def given(state: State, inputs: Inputs) -> dist.Distribution:
        rates = inputs["precision_rate"] + rate(state["y_unobserved"])
        return dist.Gamma(jnp.full_like(rates, inputs["precision_shape"] + shape), rates)

    return given


def _chi2_alone(state: State, inputs: Inputs) -> dist.Distribution:
    law = compressed_given_rest(state, inputs).base_dist
    return dist.Normal(law.loc, jnp.sqrt(inputs["chi2"])).to_event(2)


def _swapped(inputs: Inputs) -> Any:
    return 3.0 * inputs["sigma2"]


def _no_prior(state: State, inputs: Inputs) -> dist.Distribution:
    F, sigma2 = jnp.asarray(inputs["factor"]), inputs["sigma2"]
    precision = 1e-3 * jnp.eye(F.shape[1]) + F.T @ F / sigma2
    mean = jnp.linalg.solve(precision, F.T @ state["compressed"] / sigma2)
    root = jnp.linalg.cholesky(jnp.linalg.inv(precision))
    return dist.MatrixNormal(mean, root, jnp.eye(state["compressed"].shape[1]))


LABELS = Update(
    name="labels_given_precision",
    sites=("y_unobserved",),
    view="precisions",
    given=labels_given_precision,
    mutants=(
        Mutant("the mean's sign is wrong", _inputs_wrong(labels_given_precision, Y=_negative)),
        Mutant("observed labels read as zeros", _inputs_wrong(labels_given_precision, Y=_no_labels)),
        Mutant("the noise counted twice", _inputs_wrong(labels_given_precision, cholesky=_double_noise)),
        Mutant(
            "chi2 for sigma2 + chi2",
            _inputs_wrong(labels_given_precision, cholesky=_without_regression_noise),
        ),
        Mutant(
            "precision taken for a variance",
            lambda state, inputs: labels_given_precision({"precision": 1.0 / state["precision"]}, inputs),
        ),
    ),
    equation="Vasisht et al. 2014, section 4.1, labels conditioned on inside the sweep",
)
PRECISION = Update(
    name="precision_given_labels",
    sites=("precision",),
    view="precisions",
    given=precision_given_labels,
    mutants=(
        Mutant("shape a0, the 1/2 missing", _gamma(shape=0.0)),
        Mutant("shape a0 + 1", _gamma(shape=1.0)),
        Mutant("rate without the label", _gamma(rate=lambda y: 0.0 * y)),
        Mutant("rate with y for y^2", _gamma(rate=lambda y: 0.5 * jnp.abs(y))),
        Mutant("rate with y^2, the 1/2 missing", _gamma(rate=lambda y: y**2)),
    ),
    equation="Vasisht et al. 2014, section 4.1: a = a0 + 1/2, b corrected, see docs/errata.md",
)
LABELS_BY_ROW = Update(
    name="labels_given_compressed",
    sites=("y_unobserved",),
    view="augmented",
    given=labels_given_compressed,
    mutants=(
        Mutant("observed labels read as zeros", _inputs_wrong(labels_given_compressed, Y=_no_labels)),
        Mutant(
            "sigma2 + chi2 for chi2",
            _inputs_wrong(labels_given_compressed, chi2=lambda inputs: inputs["sigma2"] + inputs["chi2"]),
        ),
        Mutant(
            "the mean's sign is wrong",
            lambda state, inputs: labels_given_compressed(
                {**state, "compressed": -state["compressed"]}, inputs
            ),
        ),
    ),
    equation="Kapoor et al. 2012, section 3.1",
)
COMPRESSED = Update(
    name="compressed_given_rest",
    sites=("compressed",),
    view="augmented",
    given=compressed_given_rest,
    mutants=(
        Mutant("chi2 for the joint variance", _chi2_alone),
        Mutant("sigma2 three times too large", _inputs_wrong(compressed_given_rest, sigma2=_swapped)),
        Mutant("observed labels read as zeros", _inputs_wrong(compressed_given_rest, Y=_no_labels)),
    ),
    equation="Kapoor et al. 2012, section 3.1",
)
WEIGHTS = Update(
    name="weights_given_compressed",
    sites=("weights",),
    view="augmented",
    given=weights_given_compressed,
    mutants=(
        Mutant("the prior of the weights left out", _no_prior),
        Mutant(
            "sigma2 + chi2 for sigma2",
            _inputs_wrong(weights_given_compressed, sigma2=lambda inputs: inputs["sigma2"] + inputs["chi2"]),
        ),
        Mutant(
            "the mean's sign is wrong",
            lambda state, inputs: weights_given_compressed({"compressed": -state["compressed"]}, inputs),
        ),
    ),
    equation="Kapoor et al. 2012, section 3.1",
)

UPDATES = (LABELS, PRECISION, LABELS_BY_ROW, COMPRESSED, WEIGHTS)
