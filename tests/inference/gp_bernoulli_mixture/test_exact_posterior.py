"""Samplers against the exact posterior of three rows, two components and two labels.

Sums over the assignments and products of Gauss-Hermite rules over the gates. Every component has its own
beta prior, so that components keep their numbers. On such data co-clustering and label means do not notice a
wrong law of the rates or of omega: the moments of the gates do.
"""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import betaln, log_expit, logsumexp

from labelzoo.data import LabelData
from labelzoo.inference.compare.verdict import moments
from labelzoo.inference.gp_bernoulli_mixture import gibbs, updates
from labelzoo.inference.gp_bernoulli_mixture import spec as card
from labelzoo.models import registry

X = np.array([[0.0], [0.4], [2.0]])
Y = np.array([[1.0, 0.0], [1.0, np.nan], [0.0, 1.0]])
PRIOR = {
    "prior_positive": np.array([[8.0, 1.5], [1.0, 6.0]]),
    "prior_negative": np.array([[1.0, 6.0], [7.0, 1.2]]),
}
NODES = 11
ERRORS = 4.0


def inputs_of(gate_mean: float = -0.7) -> dict[str, Any]:
    settings = card.resolve(
        {"num_components": 2, "kernel": "rbf", "amplitude": 2.5, "gate_mean": gate_mean, "length_factor": 0.5}
    )
    return card.prepare(LabelData(X, Y), settings) | PRIOR


def log_marginals(inputs: Mapping[str, Any]) -> dict[tuple[int, ...], float]:
    """Return log p(Y | z) of every assignment, theta integrated out."""
    a0, b0, seen = inputs["prior_positive"], inputs["prior_negative"], inputs["observed"]
    found = {}
    for z in product(range(2), repeat=len(X)):
        own = np.eye(2)[list(z)]
        on, off = own.T @ (inputs["Y"] * seen), own.T @ ((1 - inputs["Y"]) * seen)
        found[z] = float((betaln(a0 + on, b0 + off) - betaln(a0, b0)).sum())
    return found


@cache
def exact(nodes: int = NODES) -> dict[str, np.ndarray]:
    inputs = inputs_of()
    x, w = hermegauss(nodes)
    log_w = np.log(w / np.sqrt(2 * np.pi))
    basis = inputs["factor"].shape[1]
    one = np.array(list(product(range(nodes), repeat=basis)))
    f = inputs["gate_mean"] + x[one] @ inputs["factor"].T  # (node, obs) of one component
    weight, log_sigma = log_w[one].sum(axis=1), log_expit(f)
    marginal = log_marginals(inputs)
    tables: dict[tuple[int, ...], Any] = {}
    a0, b0 = inputs["prior_positive"], inputs["prior_negative"]
    total, first, square, together, label = [], [], [], [], []
    log_sum = np.logaddexp(log_sigma[:, None, :], log_sigma[None, :, :]).sum(axis=2)
    for z, log_y in marginal.items():
        own = np.eye(2)[list(z)]
        parts = [(log_sigma * own[:, k]).sum(axis=1) + weight for k in range(2)]
        tables[z] = log_y + parts[0][:, None] + parts[1][None, :] - log_sum
    top = max(table.max() for table in tables.values())
    pi = np.exp(log_sigma[:, None, :] - np.logaddexp(log_sigma[:, None, :], log_sigma[None, :, :]))
    for z, table in tables.items():
        p = np.exp(table - top)
        own = np.eye(2)[list(z)]
        on, off = own.T @ inputs["Y"], own.T @ ((1 - inputs["Y"]) * inputs["observed"])
        theta = (a0 + on) / (a0 + on + b0 + off)
        sides = [p.sum(axis=1), p.sum(axis=0)]
        total.append(p.sum())
        first.append(np.stack([side @ f for side in sides], axis=1))
        square.append(np.stack([side @ f**2 for side in sides], axis=1))
        together.append(p.sum() * np.array([z[0] == z[1], z[0] == z[2], z[1] == z[2]]))
        gate = np.einsum("ij,ijn->n", p, pi)
        label.append(gate[:, None] * theta[0] + (p.sum() - gate)[:, None] * theta[1])
    scale = np.sum(total)
    names = ("f", "f squared", "co-clustering", "label mean")
    parts_ = (first, square, together, label)
    return {name: np.sum(part, axis=0) / scale for name, part in zip(names, parts_, strict=True)}


def of_draws(white: np.ndarray, probs: np.ndarray, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the same quantities draw by draw, (chain, draw, ...)."""
    f = inputs["gate_mean"] + np.einsum("nb,cskb->csnk", inputs["factor"], white)
    log_pi = log_expit(f) - logsumexp(log_expit(f), axis=-1, keepdims=True)
    on, off = inputs["Y"], (1 - inputs["Y"]) * inputs["observed"]
    scores = np.einsum("nl,cskl->csnk", on, np.log(probs)) + np.einsum("nl,cskl->csnk", off, np.log1p(-probs))
    own = np.exp(log_pi + scores - logsumexp(log_pi + scores, axis=-1, keepdims=True))
    pairs = [(own[:, :, i] * own[:, :, j]).sum(-1) for i, j in ((0, 1), (0, 2), (1, 2))]
    return {
        "f": f,
        "f squared": f**2,
        "co-clustering": np.stack(pairs, axis=-1),
        "label mean": np.exp(log_pi) @ probs,
    }


def z_scores(white: np.ndarray, probs: np.ndarray) -> dict[str, np.ndarray]:
    found, truth = of_draws(white, probs, inputs_of()), exact()
    scores = {}
    for name, values in found.items():
        flat = values.reshape(*values.shape[:2], -1)
        about = moments(flat)
        scores[name] = (about.mean - truth[name].ravel()) / about.mcse
    return scores


def run(engine: str, **options: Any) -> dict[str, np.ndarray]:
    with jax.enable_x64(True):
        found = registry.get("gp_bernoulli_mixture").engines[engine]
        settings = {**found.options, **options}
        result = found.run(card, inputs_of(), rng_key=jax.random.key(5), progress=False, **settings)
    return z_scores(result.draws["white"], result.draws["component_probs"])


def largest(scores: Mapping[str, np.ndarray], *names: str) -> float:
    return max(float(np.abs(scores[name]).max()) for name in names or scores)


def test_quadrature_has_converged() -> None:
    for name, values in exact().items():
        np.testing.assert_allclose(exact(NODES - 2)[name], values, rtol=3e-4, atol=3e-4, err_msg=name)


def test_gibbs_matches_enumeration() -> None:
    scores = run("gibbs", num_warmup=500, num_samples=6000, thinning=2)
    assert largest(scores) < ERRORS, scores


def test_nuts_matches_enumeration() -> None:
    scores = run("nuts", num_warmup=600, num_samples=3000, target_accept_prob=0.9)
    assert largest(scores) < ERRORS, scores


WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "PG(v, f) for PG(z + v, f)": (
        "omega_given_count",
        next(m.given for m in updates.OMEGA.mutants if m.name.startswith("PG(v, f)")),
    ),
    "lambda ~ Exponential(K)": (
        "rate_given_gates",
        next(m.given for m in updates.RATE.mutants if m.name.startswith("rate K")),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_moments_of_the_gates_notice_wrong_sweeps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, wrong = WRONG[name]
    monkeypatch.setattr(gibbs, function, wrong)
    scores = run("gibbs", num_warmup=300, num_samples=3000)
    assert largest(scores, "f", "f squared") > 2 * ERRORS, scores
