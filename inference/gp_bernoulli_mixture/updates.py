"""The conditionals of gp_bernoulli_mixture as the distributions they claim, and wrong versions of them."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from labelzoo.inference.distributions import AtomPolyaGamma, FloatPoisson, GaussianNatural
from labelzoo.inference.gp_bernoulli_mixture.draws import draw_beta, draw_white
from labelzoo.inference.update import Mutant, Update
from labelzoo.models.gp_bernoulli_mixture import gate_values, label_scores, log_gate

Array = Any
State = Mapping[str, Any]
Inputs = Mapping[str, Any]

SMALLEST_RATE = 1e-280
"""Floor of sum_j sigma(f_nj): all gate values of a row below -640."""


def gates_of(state: State, inputs: Inputs) -> Array:
    """Return f: (obs, component)."""
    return gate_values(state["white"], inputs["factor"], inputs["gate_mean"])


def one_hot(state: State, inputs: Inputs) -> Array:
    """Return z as indicators: (obs, component)."""
    components = inputs["prior_positive"].shape[0]
    return jax.nn.one_hot(state["assignment"], components, dtype=jnp.asarray(inputs["factor"]).dtype)


def assignment_given_gates(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(z_n = k | f, theta, y), proportional to sigma(f_nk) p(y_n | theta_k), auxiliaries out: (obs,).

    2 obs component (basis + labels) flops.
    """
    scores = label_scores(state["component_probs"], inputs["Y"], inputs["observed"])
    return dist.Categorical(logits=log_gate(gates_of(state, inputs)) + scores)


def rate_given_gates(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(lambda_n | f) = Exponential(sum_j sigma(f_nj)), counts and omega out: (obs,)."""
    total = jax.nn.sigmoid(gates_of(state, inputs)).sum(axis=1)
    return dist.Exponential(jnp.maximum(total, SMALLEST_RATE))


def rate_given_count(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(lambda_n | v) = Gamma(1 + sum_k v_nk, K), the full conditional: (obs,)."""
    v = state["count"]
    return dist.Gamma(1.0 + v.sum(axis=1), 1.0 * v.shape[1])


def count_given_rate(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(v_nk | lambda, f) = Poisson(lambda_n sigma(-f_nk)), omega out: (obs, component)."""
    return FloatPoisson(state["rate"][:, None] * jax.nn.sigmoid(-gates_of(state, inputs)))


def omega_given_count(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(omega_nk | z, v, f) = PG(z_nk + v_nk, f_nk), 0 where z + v = 0: (obs, component)."""
    return AtomPolyaGamma(one_hot(state, inputs) + state["count"], gates_of(state, inputs))


def gate_potential(state: State, inputs: Inputs) -> Array:
    """Return (z - v) / 2 - gate_mean omega, the linear term of f - gate_mean: (obs, component)."""
    return 0.5 * (one_hot(state, inputs) - state["count"]) - inputs["gate_mean"] * state["omega"]


def white_given_omega(state: State, inputs: Inputs) -> GaussianNatural:
    """Return p(white_k | z, v, omega): batch (component,), event (basis,).

    Precision I + F' diag(omega_k) F, potential F'((z_k - v_k) / 2 - gate_mean omega_k); component basis^2
    (obs + basis / 3) flops and component basis^2 numbers.
    """
    F = jnp.asarray(inputs["factor"])
    eye = jnp.eye(F.shape[1])
    precision = jax.lax.map(lambda omega: eye + (F * omega[:, None]).T @ F, state["omega"].T)
    return GaussianNatural(gate_potential(state, inputs).T @ F, precision)


def probs_given_assignment(state: State, inputs: Inputs) -> dist.Distribution:
    """Return p(theta_kl | z, y) = Beta(a0 + positives, b0 + negatives) of the rows of k: (component, labels).

    Sums over observed cells; 4 obs component labels flops.
    """
    own = one_hot(state, inputs)
    observed, Y = jnp.asarray(inputs["observed"]), jnp.asarray(inputs["Y"])
    on = own.T @ jnp.where(observed, Y, 0.0)
    off = own.T @ jnp.where(observed, 1.0 - Y, 0.0)
    return dist.Beta(inputs["prior_positive"] + on, inputs["prior_negative"] + off).to_event(1)


def draw_gates(key: Array, state: State, inputs: Inputs) -> dict[str, Any]:
    """Draw `white_given_omega` in place, see `labelzoo.inference.gp_bernoulli_mixture.draws.draw_white`."""
    return {**state, "white": draw_white(key, state["omega"], gate_potential(state, inputs), inputs)}


def draw_probs(key: Array, state: State, inputs: Inputs) -> dict[str, Any]:
    """Draw `probs_given_assignment` in place."""
    law = probs_given_assignment(state, inputs).base_dist
    return {**state, "component_probs": draw_beta(key, law.concentration1, law.concentration0)}


def _inputs_wrong(given: Callable[..., Any], **change: Callable[[Inputs], Any]) -> Any:
    """Return `given` on inputs that `change` maps to wrong ones."""
    return lambda state, inputs: given(
        state, {**inputs, **{name: wrong(inputs) for name, wrong in change.items()}}
    )


def _state_wrong(given: Callable[..., Any], change: Callable[[dict[str, Any], Inputs], State]) -> Any:
    """Return `given` at a state that `change` maps to a wrong one."""
    return lambda state, inputs: given(change(dict(state), inputs), inputs)


def _all_observed(inputs: Inputs) -> Array:
    return jnp.ones_like(inputs["observed"])


def _no_mean(inputs: Inputs) -> Array:
    return 0.0 * jnp.asarray(inputs["gate_mean"])


def _softmax_gate(state: State, inputs: Inputs) -> dist.Distribution:
    scores = label_scores(state["component_probs"], inputs["Y"], inputs["observed"])
    return dist.Categorical(logits=gates_of(state, inputs) + scores)


def _positives_only(state: State, inputs: Inputs) -> dist.Distribution:
    on = jnp.where(jnp.asarray(inputs["observed"]), inputs["Y"], 0.0)
    scores = on @ jnp.log(state["component_probs"]).T
    return dist.Categorical(logits=log_gate(gates_of(state, inputs)) + scores)


def _half_gate(state: State, inputs: Inputs) -> dist.Distribution:
    """Weight a component by e^(f / 2) / 2, which is what PG(v, 0) leaves of sigma(f)."""
    scores = label_scores(state["component_probs"], inputs["Y"], inputs["observed"])
    return dist.Categorical(logits=0.5 * gates_of(state, inputs) + scores)


def _total(change: Callable[[Array], Array]) -> Any:
    def given(state: State, inputs: Inputs) -> dist.Distribution:
        return dist.Exponential(change(gates_of(state, inputs)))

    return given


def _poisson(change: Callable[[Array, Array], Array]) -> Any:
    def given(state: State, inputs: Inputs) -> dist.Distribution:
        return FloatPoisson(change(state["rate"][:, None], gates_of(state, inputs)))

    return given


def _gamma(shape: Callable[[Array], Array], rate: Callable[[int], float]) -> Any:
    def given(state: State, inputs: Inputs) -> dist.Distribution:
        v = state["count"]
        return dist.Gamma(shape(v), rate(v.shape[1]))

    return given


def _polya_gamma(change: Callable[[Array, Array, Array], tuple[Array, Array]]) -> Any:
    def given(state: State, inputs: Inputs) -> dist.Distribution:
        f = gates_of(state, inputs)
        return AtomPolyaGamma(*change(one_hot(state, inputs), state["count"], f))

    return given


def _white(change: Callable[[Array, Array, Array, Array], Array], prior: float = 1.0) -> Any:
    """Return a wrong law of white, from ``change(z, v, omega, gate_mean)`` for its potential."""

    def given(state: State, inputs: Inputs) -> GaussianNatural:
        F = jnp.asarray(inputs["factor"])
        right = white_given_omega(state, inputs)
        potential = change(one_hot(state, inputs), state["count"], state["omega"], inputs["gate_mean"])
        return GaussianNatural(potential.T @ F, right.precision + (prior - 1.0) * jnp.eye(F.shape[1]))

    return given


ASSIGNMENT = Update(
    name="assignment_given_gates",
    sites=("assignment",),
    view="assigned",
    given=assignment_given_gates,
    mutants=(
        Mutant("gate of PG(v, 0): e^(f / 2) for sigma(f)", _half_gate),
        Mutant("softmax of f for sigma(f)", _softmax_gate),
        Mutant("negatives left out", _positives_only),
        Mutant("gate mean missing", _inputs_wrong(assignment_given_gates, gate_mean=_no_mean)),
        Mutant("missing cells read as zeros", _inputs_wrong(assignment_given_gates, observed=_all_observed)),
    ),
    equation="Shi, Yu, Yu 2021, section 3.1, with sigma(f) in full",
)
RATE = Update(
    name="rate_given_gates",
    sites=("rate",),
    view="waiting",
    given=rate_given_gates,
    mutants=(
        Mutant("rate K, that of v given", _total(lambda f: jnp.full(f.shape[0], 1.0 * f.shape[1]))),
        Mutant("sum of sigma(-f)", _total(lambda f: jax.nn.sigmoid(-f).sum(axis=1))),
        Mutant("sum of e^f", _total(lambda f: jnp.exp(f).sum(axis=1))),
        Mutant("1 + sum of sigma(f)", _total(lambda f: 1.0 + jax.nn.sigmoid(f).sum(axis=1))),
    ),
    equation="Shi, Yu, Yu 2021, equation 5",
)
RATE_BY_COUNT = Update(
    name="rate_given_count",
    sites=("rate",),
    view="counted",
    given=rate_given_count,
    mutants=(
        Mutant("shape sum v, the 1 missing", _gamma(lambda v: 1e-3 + v.sum(axis=1), lambda k: 1.0 * k)),
        Mutant("rate 1 for K", _gamma(lambda v: 1.0 + v.sum(axis=1), lambda k: 1.0)),
        Mutant("mean over components", _gamma(lambda v: 1.0 + v.mean(axis=1), lambda k: 1.0 * k)),
    ),
    equation="this project",
)
COUNT = Update(
    name="count_given_rate",
    sites=("count",),
    view="counted",
    given=count_given_rate,
    mutants=(
        Mutant("sigma(f) for sigma(-f)", _poisson(lambda rate, f: rate * jax.nn.sigmoid(f))),
        Mutant("the prior rate lambda", _poisson(lambda rate, f: rate * jnp.ones_like(f))),
        Mutant("rate e^-f", _poisson(lambda rate, f: rate * jnp.exp(-f))),
    ),
    equation="Shi, Yu, Yu 2021, equation 6",
)
OMEGA = Update(
    name="omega_given_count",
    sites=("omega",),
    view="augmented",
    given=omega_given_count,
    mutants=(
        Mutant("PG(v, f), as printed in equation 7", _polya_gamma(lambda z, v, f: (v, f))),
        Mutant("PG(z, f)", _polya_gamma(lambda z, v, f: (z, f))),
        Mutant("PG(1 + v, f)", _polya_gamma(lambda z, v, f: (1.0 + v, f))),
        Mutant("tilt 0", _polya_gamma(lambda z, v, f: (z + v, 0.0 * f))),
        Mutant("tilt f / 2", _polya_gamma(lambda z, v, f: (z + v, 0.5 * f))),
        Mutant("gate mean missing", _inputs_wrong(omega_given_count, gate_mean=_no_mean)),
    ),
    equation="Shi, Yu, Yu 2021, equation 7, corrected: PG(z + v, f)",
)
WHITE = Update(
    name="white_given_omega",
    sites=("white",),
    view="augmented",
    given=white_given_omega,
    kernel=draw_gates,
    mutants=(
        Mutant("the 1/2 dropped", _white(lambda z, v, omega, mean: z - v - mean * omega)),
        Mutant("gate mean missing", _white(lambda z, v, omega, mean: 0.5 * (z - v))),
        Mutant("gate mean not weighted", _white(lambda z, v, omega, mean: 0.5 * (z - v) - mean)),
        Mutant("z left out, as PG(v, 0) would", _white(lambda z, v, omega, mean: -0.5 * v - mean * omega)),
        Mutant("z + v for z - v", _white(lambda z, v, omega, mean: 0.5 * (z + v) - mean * omega)),
        Mutant("prior twice", _white(lambda z, v, omega, mean: 0.5 * (z - v) - mean * omega, prior=2.0)),
        Mutant(
            "omega doubled",
            _state_wrong(white_given_omega, lambda state, _: {**state, "omega": 2.0 * state["omega"]}),
        ),
    ),
    equation="Shi, Yu, Yu 2021, section 3.2, with a gate mean",
)
PROBS = Update(
    name="probs_given_assignment",
    sites=("component_probs",),
    view="augmented",
    given=probs_given_assignment,
    kernel=draw_probs,
    mutants=(
        Mutant("missing cells read as zeros", _inputs_wrong(probs_given_assignment, observed=_all_observed)),
        Mutant(
            "prior twice",
            _inputs_wrong(
                probs_given_assignment,
                prior_positive=lambda inputs: 2.0 * jnp.asarray(inputs["prior_positive"]),
                prior_negative=lambda inputs: 2.0 * jnp.asarray(inputs["prior_negative"]),
            ),
        ),
        Mutant(
            "negatives left out",
            lambda state, inputs: dist.Beta(
                probs_given_assignment(state, inputs).base_dist.concentration1, inputs["prior_negative"]
            ).to_event(1),
        ),
        Mutant(
            "all rows in every component",
            lambda state, inputs: dist.Beta(
                inputs["prior_positive"] + jnp.where(inputs["observed"], inputs["Y"], 0.0).sum(axis=0),
                inputs["prior_negative"] + jnp.where(inputs["observed"], 1.0 - inputs["Y"], 0.0).sum(axis=0),
            ).to_event(1),
        ),
    ),
    equation="Shi, Yu, Yu 2021, section 3.2",
)

UPDATES = (ASSIGNMENT, RATE, COUNT, OMEGA, WHITE, PROBS, RATE_BY_COUNT)
