"""Where mean_field, structured and sparse must come to rest: bounds by definition, and wrong updates.

The bounds are E log(joint / q), term by term from the augmented program (`labelzoo.models`), for any q of the
factorisation: nothing is put at its optimum and nothing is taken from the updates. All is on the inputs with
priors set `apart`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, digamma, gammaln

from labelzoo.inference.checks.stationarity import StationarityCase
from labelzoo.inference.gp_bernoulli_mixture import (
    local,
    mean_field,
    sparse,
    sparse_steps,
    starts,
    structured,
)
from labelzoo.inference.gp_bernoulli_mixture.factors import Factors, Problem, problem_of
from labelzoo.inference.gp_bernoulli_mixture.gates import basis_factor, gate_step
from labelzoo.inference.gp_bernoulli_mixture.rest import Steps, at_rest, counts_of
from labelzoo.inference.gp_bernoulli_mixture.terms import expected_logs, label_scores

Array = Any
Inputs = Mapping[str, Any]
Params = dict[str, Array]

EULER = 0.5772156649015329


def apart(inputs: Inputs) -> dict[str, Any]:
    """Return the inputs with priors that differ between components.

    With equal priors a few rows often rest at equal responsibilities, where wrong updates of z rest as well.
    """
    a0 = np.asarray(inputs["prior_positive"])
    component, label = np.indices(a0.shape)
    return {**inputs, "prior_positive": a0 * (1.0 + 3.0 * ((component + label) % max(len(a0), 2)))}


def _shared(params: Mapping[str, Array], inputs: Inputs) -> tuple[Array, Array, Array, Array]:
    """Return the terms of theta, white, z and the labels, with phi, E f and E f^2 (obs, component)."""
    a, b = jnp.exp(params["log_positive"]), jnp.exp(params["log_negative"])
    a0, b0 = inputs["prior_positive"], inputs["prior_negative"]
    on, off = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    prior = (a0 - 1.0) * on + (b0 - 1.0) * off - betaln(a0, b0)
    own = (a - 1.0) * on + (b - 1.0) * off - betaln(a, b)
    phi = jax.nn.softmax(params["logits"], axis=1)
    observed, Y = jnp.asarray(inputs["observed"]), jnp.asarray(inputs["Y"])
    cells = Y[:, None, :] * on + (1.0 - Y)[:, None, :] * off
    labels = jnp.where(observed[:, None, :], cells, 0.0).sum(axis=2)
    z = (phi * (labels - jnp.log(phi))).sum()
    mean, root, F = params["white_mean"], params["white_root"], jnp.asarray(inputs["factor"])
    white = -0.5 * ((mean**2).sum() + (root**2).sum()) + jnp.linalg.slogdet(root)[1].sum()
    white = white + 0.5 * mean.size
    f = inputs["gate_mean"] + F @ mean.T
    spread = (jnp.einsum("nd,kde->nke", F, root) ** 2).sum(axis=2)
    rest = inputs.get("residual")
    spread = spread if rest is None else spread + jnp.asarray(rest)[:, None]
    return (prior - own).sum() + z + white, phi, f, f**2 + spread


def _trials(trials: Array, signs: Array, f: Array, square: Array, c: Array) -> Array:
    """Return E of the sigmoid terms 2^-b exp(s f / 2 - omega f^2 / 2) and of PG(b, 0) / PG(b, c).

    `trials` is E b, b = z + v; `signs` is E(z - v). PG(omega | b, c) = cosh(c / 2)^b exp(-c^2 omega / 2)
    PG(omega | b, 0), with mean b tanh(c / 2) / (2 c).
    """
    omega = trials * jnp.tanh(c / 2) / (2 * c)
    relative = 0.5 * c**2 * omega - trials * jnp.log(jnp.cosh(c / 2))
    return (0.5 * signs * f - 0.5 * omega * square - trials * jnp.log(2.0) + relative).sum()


def field_objective(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return the bound of q(theta) q(white) q(lambda) q(z) q(v) q(omega | z, v).

    Parameters
    ----------
    params : mapping
        ``log_positive``, ``log_negative`` (component, labels); ``logits`` (obs, component); ``white_mean``
        (component, basis), ``white_root`` (component, basis, basis), any A with covariance A A'; ``tilt``,
        ``log_count`` (obs, component); ``log_shape``, ``log_rate`` (obs,).
    inputs : mapping
    """
    common, phi, f, square = _shared(params, apart(inputs))
    gamma, shape, rate = (jnp.exp(params[name]) for name in ("log_count", "log_shape", "log_rate"))
    log_lambda, expected = digamma(shape) - jnp.log(rate), shape / rate
    poisson = gamma * log_lambda[:, None] - expected[:, None] - (gamma * params["log_count"] - gamma)
    entropy = shape - jnp.log(rate) + gammaln(shape) + (1.0 - shape) * digamma(shape)
    return (
        common + poisson.sum() + entropy.sum() + _trials(phi + gamma, phi - gamma, f, square, params["tilt"])
    )


def block_objective(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return the bound of q(theta) q(white) q(z) q(lambda) q(v | lambda) q(omega | z, v).

    q(lambda_n) = Exponential(rate_n) and q(v_nk | lambda_n) = Poisson(lambda_n s_nk), any rate and s.

    Parameters
    ----------
    params : mapping
        As in `field_objective`, with ``log_share`` (obs, component), ln s, for count and shape.
    inputs : mapping
    """
    common, phi, f, square = _shared(params, apart(inputs))
    rate, share = jnp.exp(params["log_rate"])[:, None], jnp.exp(params["log_share"])
    count = share / rate
    poisson = (share - 1.0) / rate - count * params["log_share"]
    entropy = 1.0 - params["log_rate"]
    return (
        common + poisson.sum() + entropy.sum() + _trials(phi + count, phi - count, f, square, params["tilt"])
    )


def start_phi(problem: Any) -> Array:
    """Return responsibilities by k-means on the labels, moved off ties by small draws."""
    rng = np.random.default_rng(0)
    return 0.8 * starts.by_kmeans(problem, rng) + 0.2 * starts.by_draw(problem, rng)


def _common_params(factors: Factors, white: tuple[Array, Array]) -> Params:
    return {
        "log_positive": np.log(factors.positive),
        "log_negative": np.log(factors.negative),
        "logits": np.log(factors.responsibility),
        "white_mean": white[0],
        "white_root": white[1],
    }


def white_of(problem: Problem, weight: Array, beta: Array) -> tuple[Array, Array]:
    """Return mean and root of q(white) under the sites, one component after another."""
    means, roots = [], []
    for k in range(weight.shape[1]):
        L = basis_factor(problem.factor, weight[:, k], k)
        roots.append(np.linalg.inv(L).T)
        means.append(roots[-1] @ (roots[-1].T @ (problem.factor.T @ beta[:, k])))
    return np.stack(means), np.stack(roots)


def point(inputs: Inputs, *, method: str, wrong: Steps | None = None, read: Any = dict) -> Params:
    """Iterate the sweep of `method`, or one with wrong steps in it, on inputs that `read` may change."""
    problem = problem_of(read(apart(inputs)))
    phi = start_phi(problem)
    if wrong is not None:
        return _params_of(problem, method, *at_rest(problem, phi, method, wrong))
    if method == "structured":
        step: Callable[[Any], Any] = partial(structured.sweep, problem)
        state: Any = structured.start_from(problem, phi)
    else:
        step, state = partial(mean_field.sweep, problem), mean_field.start_from(problem, phi)
    factors = _until_rest(step, state).factors
    c = local.tilt(factors.gate_mean_q, factors.gate_variance)
    beta = factors.potential - problem.gate_mean * factors.weight
    return _params_of(problem, method, factors, c, beta, None)


MOST_SWEEPS = 20_000


def _until_rest(step: Callable[[Any], Any], state: Any) -> Any:
    """Iterate until neither gates nor responsibilities move."""
    for _ in range(MOST_SWEEPS):
        new = step(state)
        old, state = state, new
        pairs = zip(old.factors[2:4], new.factors[2:4], strict=True)
        if max(float(np.abs(a - b).max()) for a, b in pairs) < 1e-11:
            break
    return state


def _params_of(
    problem: Problem, method: str, factors: Factors, c: Array, beta: Array, count: Array | None
) -> Params:
    m = factors.gate_mean_q
    J = -local.log_two_cosh_half(c)
    common = {**_common_params(factors, white_of(problem, factors.weight, beta)), "tilt": c}
    if method == "structured":
        log_s = local.log_miss(m, J)
        rate = local.hit(log_s).sum(axis=1)
        log_share = log_s if count is None else np.log(count * rate[:, None])
        return {**common, "log_share": log_share, "log_rate": np.log(rate)}
    shape = np.empty(len(m))
    if count is None:
        count, shape = mean_field.rest_of_counts(m, J)
    else:
        shape = mean_field.shape_step(count)
    log_rate = np.full(len(m), np.log(m.shape[1]))
    return {**common, "log_count": np.log(count), "log_shape": np.log(shape), "log_rate": log_rate}


def fewer(inputs: Inputs) -> dict[str, Any]:
    """Return the inputs with half of the basis, and what it does not hold as the residual."""
    F = np.asarray(inputs["factor"])
    kept = max(1, (F.shape[1] + 1) // 2)
    return {**inputs, "factor": F[:, :kept], "residual": (F[:, kept:] ** 2).sum(axis=1)}


def sparse_objective(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return `block_objective` with half of the basis and the residual's factor at its prior."""
    return block_objective(params, fewer(inputs))


def sparse_point(inputs: Inputs, *, read: Callable[[Inputs], Inputs] = lambda inputs: inputs) -> Params:
    """Iterate full passes of the sparse engine until q rests, on inputs that `read` may change."""
    task = sparse_steps.task_of(read(fewer(apart(inputs))))
    table = sparse.start_problem(task)
    state = sparse.first_state(task, sparse_steps.start_from(task, start_phi(table)))
    for _ in range(MOST_SWEEPS):
        old, state = state, sparse.full_sweep(task, state)
        moves = (np.abs(a - b).max() for a, b in zip(old.natural, state.natural, strict=True))
        if max(map(float, moves)) < 1e-11:
            break
    rows, _, white = sparse_steps.last_pass(task, state.natural)
    mean, variance = sparse_steps.gates_of(task, white, np.arange(len(task.factor)))
    c = local.tilt(mean, variance)
    log_s = local.log_miss(mean, -local.log_two_cosh_half(c))
    return {
        "log_positive": np.log(state.natural.positive),
        "log_negative": np.log(state.natural.negative),
        "logits": np.log(rows["responsibility"]),
        "white_mean": white.mean,
        "white_root": sparse.white_roots(white),
        "tilt": c,
        "log_share": log_s,
        "log_rate": np.log(local.hit(log_s).sum(axis=1)),
    }


def _missing_as_zeros(inputs: Inputs) -> dict[str, Any]:
    Y, observed = np.asarray(inputs["Y"]), np.asarray(inputs["observed"])
    return {**inputs, "Y": np.where(observed, Y, 0.0), "observed": np.ones_like(observed)}


def _no_gate_mean(inputs: Inputs) -> dict[str, Any]:
    return {**inputs, "gate_mean": 0.0}


def _no_residual(inputs: Inputs) -> dict[str, Any]:
    return {**inputs, "residual": np.zeros(len(inputs["factor"]))}


def _prior_twice(inputs: Inputs) -> dict[str, Any]:
    return {**inputs, "prior_positive": 2.0 * np.asarray(inputs["prior_positive"])}


def _printed_no_cosh(problem: Problem, factors: Factors, c: Array) -> Array:
    scores = label_scores(problem.labels, factors.positive, factors.negative)
    return local.responsibilities(scores + 0.5 * factors.gate_mean_q)


def _printed_no_negatives(problem: Problem, factors: Factors, c: Array) -> Array:
    on, _ = expected_logs(factors.positive, factors.negative)
    scores = np.asarray(problem.labels.positive @ on.T)
    return local.responsibilities(scores + 0.5 * factors.gate_mean_q - local.log_two_cosh_half(c))


def _printed_omega(phi: Array, count: Array, c: Array) -> tuple[Array, Array]:
    return count * local.omega_share(c), 0.5 * (phi - count)


def _prior_variance(problem: Problem, weight: Array, potential: Array) -> Any:
    gate = gate_step(problem, weight, potential)
    return gate._replace(variance=np.broadcast_to(problem.own_variance[:, None], weight.shape))


def _gate_mean_dropped(problem: Problem, weight: Array, potential: Array) -> Any:
    gate = gate_step(problem._replace(gate_mean=0.0), weight, potential)
    return gate._replace(mean=gate.mean + problem.gate_mean)


def _counts_without_components(method: str) -> Callable[[Problem, Array, Array], Array]:
    """Return gamma without the -ln K of E ln lambda, K times as large."""

    def counts(problem: Problem, mean: Array, c: Array) -> Array:
        return problem.num_components * counts_of(method)(problem, mean, c)

    return counts


MUTANTS: tuple[tuple[str, Steps], ...] = (
    ("equation 9 as printed, without -ln 2cosh(c / 2)", Steps(responsibility=_printed_no_cosh)),
    ("equation 9 as printed, without the observed negatives", Steps(responsibility=_printed_no_negatives)),
    ("equation 11 as printed, omega of shape gamma", Steps(sites=_printed_omega)),
    ("variances of the gates without W", Steps(gate=_prior_variance)),
    ("gate mean dropped from the sites", Steps(gate=_gate_mean_dropped, keeps_mean=False)),
    ("tilts left at their start", Steps(stale_tilt=True)),
)


def _case(method: str, objective: Any) -> StationarityCase:
    wrong = tuple((name, partial(point, method=method, wrong=steps)) for name, steps in MUTANTS)
    many = Steps(counts=_counts_without_components(method))
    count = ("gamma without the rate K of lambda", partial(point, method=method, wrong=many))
    zeros = ("missing cells read as zeros", partial(point, method=method, read=_missing_as_zeros))
    prior = ("a0 doubled", partial(point, method=method, read=_prior_twice))
    return StationarityCase(
        name=f"bound of {method}, by definition",
        engine=method,
        fixed_point=partial(point, method=method),
        objective=objective,
        mutants=(*wrong, count, zeros, prior),
    )


CASES = (
    _case("mean_field", field_objective),
    _case("structured", block_objective),
    StationarityCase(
        name="bound of structured through half of the basis, by definition",
        engine="sparse",
        fixed_point=sparse_point,
        objective=sparse_objective,
        mutants=(
            ("missing cells read as zeros", partial(sparse_point, read=_missing_as_zeros)),
            ("gate mean 0", partial(sparse_point, read=_no_gate_mean)),
            ("residual left out", partial(sparse_point, read=_no_residual)),
            ("a0 doubled", partial(sparse_point, read=_prior_twice)),
        ),
    ),
)
