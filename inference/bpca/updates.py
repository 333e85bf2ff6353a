"""The conditionals of bpca as the distributions they claim, and wrong versions of them."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist

from labelzoo.inference.update import Mutant, Update
from labelzoo.models.bpca_card import covariance_of

Array = Any
State = Mapping[str, Any]
Inputs = Mapping[str, Any]


def scores_given_rest(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(U | rest): rows N(tau S W'(r_n - mu), S), S = (I + tau W'W)^-1, shared by all rows.

    rows x measurement x component flops, and component^3.
    """
    W, tau = state["loadings"], state["noise_precision"]
    precision = jnp.eye(W.shape[1]) + tau * W.T @ W
    potential = tau * (inputs["compressed"] - state["mean"]) @ W
    loc = jnp.linalg.solve(precision, potential.T).T
    return dist.MultivariateNormal(loc, precision_matrix=precision).to_event(1)


def loadings_given_rest(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(W | rest): rows N(tau S sum_n u_n (r_nj - mu_j), S), S = (diag alpha + tau U'U)^-1."""
    U, tau = state["scores"], state["noise_precision"]
    precision = jnp.diag(state["precision"]) + tau * U.T @ U
    potential = tau * (inputs["compressed"] - state["mean"]).T @ U
    loc = jnp.linalg.solve(precision, potential.T).T
    return dist.MultivariateNormal(loc, precision_matrix=precision).to_event(1)


def mean_given_scores(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(mu | U, rest): N(tau v sum_n (r_n - W u_n), v I), v = 1 / (beta + rows tau)."""
    tau = state["noise_precision"]
    residual = inputs["compressed"] - state["scores"] @ state["loadings"].T
    variance = 1.0 / (inputs["mean_precision"] + residual.shape[0] * tau)
    return dist.Normal(tau * variance * residual.sum(axis=0), jnp.sqrt(variance)).to_event(1)


def mean_given_loadings(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(mu | W, tau), U integrated out: precision beta I + rows C^-1, C = W W' + I / tau.

    In the eigenvectors of C every coordinate is by itself. measurement^3 flops; the compressed rows enter by
    their mean.
    """
    values, vectors = jnp.linalg.eigh(covariance_of(state))
    m = inputs["compressed"].shape[0]
    share = m / (m + inputs["mean_precision"] * values)
    loc = vectors @ (share * (vectors.T @ inputs["row_mean"]))
    covariance = (vectors * (values * share / m)) @ vectors.T
    return dist.MultivariateNormal(loc, covariance_matrix=covariance)


def precision_given_loadings(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(alpha | W): Gamma(a + measurement / 2, b + norm(w_i)^2 / 2)."""
    W = state["loadings"]
    rate = inputs["precision_rate"] + 0.5 * (W**2).sum(axis=0)
    shape = jnp.full_like(rate, inputs["precision_shape"] + 0.5 * W.shape[0])
    return dist.Gamma(shape, rate).to_event(1)


def noise_given_rest(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(tau | rest): Gamma(c + rows measurement / 2, d + sum_n norm(r_n - W u_n - mu)^2 / 2)."""
    residual = inputs["compressed"] - state["scores"] @ state["loadings"].T - state["mean"]
    rate = inputs["noise_rate"] + 0.5 * (residual**2).sum()
    return dist.Gamma(inputs["noise_shape"] + 0.5 * residual.size, rate)


def size_given_rest(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(s | rest) under ``stretched``: Gamma(rows / 2 + a, 1 / 2 + b alpha~_i), s_i = norm(U_i)^2.

    The fit does not depend on s, so a sweep moves along U_i -> c U_i, w_i -> w_i / c, alpha_i -> c^2 alpha_i
    at once, where conditionals of U given W and of W given U take small steps.
    """
    rate = 0.5 + inputs["precision_rate"] * state["scaled_precision"]
    shape = 0.5 * inputs["compressed"].shape[0] + inputs["precision_shape"]
    return dist.Gamma(jnp.full_like(rate, shape), rate).to_event(1)


Given = Callable[[State, Inputs], Any]


def _state_wrong(given: Given, **change: Callable[[State], Any]) -> Given:
    """Return `given` on a state that `change` maps to a wrong one."""
    return lambda state, inputs: given(
        {**state, **{name: wrong(state) for name, wrong in change.items()}}, inputs
    )


def _inputs_wrong(given: Given, **change: Callable[[Inputs], Any]) -> Given:
    """Return `given` on inputs that `change` maps to wrong ones."""
    return lambda state, inputs: given(
        state, {**inputs, **{name: wrong(inputs) for name, wrong in change.items()}}
    )


def _no_prior_of_scores(state: State, inputs: Inputs) -> Any:
    W, tau = state["loadings"], state["noise_precision"]
    precision = 1e-3 * jnp.eye(W.shape[1]) + tau * W.T @ W
    loc = jnp.linalg.solve(precision, tau * W.T @ (inputs["compressed"] - state["mean"]).T).T
    return dist.MultivariateNormal(loc, precision_matrix=precision).to_event(1)


def _tau_left_out(state: State, inputs: Inputs) -> Any:
    W = state["loadings"]
    precision = jnp.eye(W.shape[1]) + W.T @ W
    loc = jnp.linalg.solve(precision, W.T @ (inputs["compressed"] - state["mean"]).T).T
    return dist.MultivariateNormal(loc, precision_matrix=precision).to_event(1)


def _tau_left_out_of_potential(state: State, inputs: Inputs) -> Any:
    law = loadings_given_rest(state, inputs).base_dist
    return dist.MultivariateNormal(
        law.loc / state["noise_precision"], scale_tril=jnp.linalg.cholesky(law.covariance_matrix)
    ).to_event(1)


def _no_prior_of_mean(state: State, inputs: Inputs) -> Any:
    return mean_given_scores(state, {**inputs, "mean_precision": 0.0})


def _beta_as_variance(inputs: Inputs) -> Any:
    return 1.0 / inputs["mean_precision"]


def _noise_alone(state: State, inputs: Inputs) -> Any:
    return mean_given_loadings({**state, "loadings": 0.0 * state["loadings"]}, inputs)


def _alpha(half: float = 1.0, rate: float = 0.5, transpose: bool = False) -> Given:
    def given(state: State, inputs: Inputs) -> Any:
        W = state["loadings"]
        rates = inputs["precision_rate"] + rate * (W**2).sum(axis=0)
        count = W.shape[1] if transpose else W.shape[0]
        shape = inputs["precision_shape"] + 0.5 * half * count
        return dist.Gamma(jnp.full_like(rates, shape), rates).to_event(1)

    return given


def _tau(share: Callable[[Array], float] = lambda R: 0.5 * R.size, rate: float = 0.5) -> Given:
    def given(state: State, inputs: Inputs) -> Any:
        R = inputs["compressed"] - state["scores"] @ state["loadings"].T - state["mean"]
        rates = inputs["noise_rate"] + rate * (R**2).sum()
        return dist.Gamma(inputs["noise_shape"] + share(R), rates)

    return given


def _size(
    shape: Callable[[State, Inputs], Any], rate: Callable[[Inputs], Any] = lambda i: i["precision_rate"]
) -> Given:
    def given(state: State, inputs: Inputs) -> Any:
        rates = 0.5 + rate(inputs) * state["scaled_precision"]
        return dist.Gamma(jnp.full_like(rates, shape(state, inputs)), rates).to_event(1)

    return given


def _no_mean(state: State) -> Array:
    return 0.0 * state["mean"]


SCORES = Update(
    name="scores_given_rest",
    sites=("scores",),
    view="augmented",
    given=scores_given_rest,
    mutants=(
        Mutant("the prior of the scores left out: M = tau W'W", _no_prior_of_scores),
        Mutant("tau left out", _tau_left_out),
        Mutant("mu not taken off", _state_wrong(scores_given_rest, mean=_no_mean)),
        Mutant(
            "the noise variance for tau",
            _state_wrong(scores_given_rest, noise_precision=lambda state: 1.0 / state["noise_precision"]),
        ),
    ),
    equation="Shi and Yu 2019, (4), with M = W'W + I / tau: see docs/errata.md",
)
LOADINGS = Update(
    name="loadings_given_rest",
    sites=("loadings",),
    view="augmented",
    given=loadings_given_rest,
    mutants=(
        Mutant("tau left out of the potential", _tau_left_out_of_potential),
        Mutant("mu not taken off", _state_wrong(loadings_given_rest, mean=_no_mean)),
        Mutant(
            "alpha taken for a variance",
            _state_wrong(loadings_given_rest, precision=lambda state: 1.0 / state["precision"]),
        ),
        Mutant(
            "one alpha for all columns",
            _state_wrong(
                loadings_given_rest, precision=lambda state: 0.0 * state["precision"] + state["precision"][0]
            ),
        ),
    ),
    equation="Bishop 1999, (13), conditional on the scores",
)
MEAN = Update(
    name="mean_given_scores",
    sites=("mean",),
    view="augmented",
    given=mean_given_scores,
    mutants=(
        Mutant("beta left out", _no_prior_of_mean),
        Mutant(
            "beta taken for a variance", _inputs_wrong(mean_given_scores, mean_precision=_beta_as_variance)
        ),
        Mutant("W u not taken off", _state_wrong(mean_given_scores, scores=lambda s: 0.0 * s["scores"])),
    ),
    equation="Bishop 1999, (12), conditional on the scores",
)
MEAN_ALONE = Update(
    name="mean_given_loadings",
    sites=("mean",),
    view="centred",
    given=mean_given_loadings,
    mutants=(
        Mutant("noise alone for C", _noise_alone),
        Mutant(
            "beta taken for a variance", _inputs_wrong(mean_given_loadings, mean_precision=_beta_as_variance)
        ),
        Mutant("beta left out", _inputs_wrong(mean_given_loadings, mean_precision=lambda inputs: 0.0)),
        Mutant(
            "the noise variance for tau",
            _state_wrong(mean_given_loadings, noise_precision=lambda s: 1.0 / s["noise_precision"]),
        ),
    ),
    equation="this project: rows are Normal(mu, W W' + I / tau) with the scores out",
)
PRECISION = Update(
    name="precision_given_loadings",
    sites=("precision",),
    view="augmented",
    given=precision_given_loadings,
    mutants=(
        Mutant("shape a, measurement / 2 missing", _alpha(half=0.0)),
        Mutant("shape a + measurement, the 1/2 missing", _alpha(half=2.0)),
        Mutant("shape a + component / 2", _alpha(transpose=True)),
        Mutant("rate b + norm^2, the 1/2 missing", _alpha(rate=1.0)),
        Mutant("rate b", _alpha(rate=0.0)),
    ),
    equation="Bishop 1999, (14), conditional on W",
)
NOISE = Update(
    name="noise_given_rest",
    sites=("noise_precision",),
    view="augmented",
    given=noise_given_rest,
    mutants=(
        Mutant("shape c + rows / 2", _tau(share=lambda R: 0.5 * R.shape[0])),
        Mutant("shape c + rows measurement", _tau(share=lambda R: float(R.size))),
        Mutant("rate d + Q, the 1/2 missing", _tau(rate=1.0)),
        Mutant("mu not taken off", _state_wrong(noise_given_rest, mean=_no_mean)),
        Mutant("W u not taken off", _state_wrong(noise_given_rest, scores=lambda s: 0.0 * s["scores"])),
    ),
    equation="Bishop 1999, (15), conditional on the scores and W",
)
SIZE = Update(
    name="size_given_rest",
    sites=("score_size",),
    view="stretched",
    given=size_given_rest,
    mutants=(
        Mutant("shape rows / 2, a missing", _size(lambda s, i: 0.5 * i["compressed"].shape[0])),
        Mutant(
            "the Jacobian of W left in: shape rows / 2 + a - measurement / 2",
            _size(
                lambda s, i: (
                    0.5 * (i["compressed"].shape[0] - i["compressed"].shape[1]) + i["precision_shape"]
                )
            ),
        ),
        Mutant(
            "rate 1/2, the prior of alpha missing",
            _size(lambda s, i: 0.5 * i["compressed"].shape[0] + i["precision_shape"], rate=lambda i: 0.0),
        ),
    ),
    equation="this project",
)

UPDATES = (MEAN_ALONE, SCORES, LOADINGS, PRECISION, NOISE, SIZE, MEAN)
