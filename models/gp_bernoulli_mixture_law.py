"""The mixture law of new rows' labels under gp_bernoulli_mixture, which acquisition by covariance reads.

Under variational factors q(f) and q(theta) are independent and q(theta) factorises, so that the labels of a
row are exactly a mixture over components with weights E[pi_k] and probabilities E[theta_kl]: neither
Var[theta] nor Var[pi] is to be added (Shi, Yu and Yu, NeurIPS 2021, eqs. 12 and 13).

Over posterior draws E[pi_k theta_kl theta_kl'] does not factor: there the parts are the pairs of a draw and a
component, with weights pi_sk / draws, and the covariance is that of the draw-wise mixture.

Means and covariances do not change when components swap their numbers, from draw to draw or from chain to
chain. The variance of the weights does: it is taken within a chain and then averaged over chains, which is
right as long as components keep their numbers within each chain, and too large where they do not.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from labelzoo.acquisition.mixture_law import MixtureLaw
from labelzoo.models.gp_bernoulli_mixture_gate import gate_moments, log_gate
from labelzoo.models.gp_bernoulli_mixture_latent import BLOCK_ROWS, latent_moments
from labelzoo.models.gp_bernoulli_mixture_predict import basis_rows, kept_components

Array = Any

MAX_DRAWS = 50
"""Most posterior draws in a law, evenly spaced over the chains; parts are so many times the components."""
SITES = ("component_probs", "white", "component_size")
GATE_DRAWS = 4
"""Draws of f at a new row given each posterior draw."""
WIDE, WIDE_DRAWS = 400.0, 4000
"""Above this variance of f the integral needs too many nodes: so many normal draws, shared by the rows, take
its place there, with an error of at most .008 of a weight; the report counts such rows."""


def mixture_law(
    draws: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any], state: Mapping[str, Any]
) -> MixtureLaw:
    """Return the law of each new row's labels.

    Parameters
    ----------
    draws : mapping
        Sites (chain, draw, ...): ``component_probs`` and ``white``; read where `state` is empty.
    X_new : (row, feature)
        Dense or csr.
    constants : mapping
        As saved with the posterior, settings among them (``rho``).
    state : mapping
        What a bound engine keeps (``positive``, ``negative``, ``weight``, ``potential``, ...), or nothing.
    """
    if "positive" in state:
        return law_of_factors(X_new, constants, state)
    return law_of_draws(draws, X_new, constants)


def law_of_factors(X_new: Array, constants: Mapping[str, Any], state: Mapping[str, Any]) -> MixtureLaw:
    """Return the law under variational factors: exact moments by the gate's integral (see `WIDE`)."""
    a, b = np.asarray(state["positive"], float), np.asarray(state["negative"], float)
    rows = X_new.shape[0]
    weights, variance = np.empty((rows, len(a))), np.empty(rows)
    drawn = 0
    for at, mean, spread in latent_moments(state, constants, X_new):
        wide = spread.max(axis=1) > WIDE
        drawn += int(wide.sum())
        for rows_of, method in ((~wide, "integral"), (wide, "draws")):
            if rows_of.any():
                moments = gate_moments(mean[rows_of], spread[rows_of], method, draws=WIDE_DRAWS)
                place = np.arange(at.start, at.stop)[rows_of]
                weights[place], variance[place] = moments.mean, moments.variance.mean(axis=1)
    kept = effective((a + b).sum(axis=1), float(constants.get("rho", 0.0)))
    report = {"components": len(a), "kept": int(kept.sum()), "fitted_rows": fitted_rows(constants)}
    if drawn:
        report["gates_by_draws"] = drawn
    return MixtureLaw(kept_weights(weights, kept)[:, kept], (a / (a + b))[kept], variance, report)


def fitted_rows(constants: Mapping[str, Any]) -> int:
    """Return how many rows with labels the posterior has seen."""
    return len(constants["fitted_row"]) if "fitted_row" in constants else 0


def effective(size: Array, rho: float) -> Array:
    """Say which components stay: g_k >= rho mean(g), g_k = sum_l (a_kl + b_kl), and always the largest.

    Parameters
    ----------
    size : (component,)
        g.
    rho : float
        0 keeps all.
    """
    kept = np.asarray(size >= rho * np.mean(size))
    kept[int(np.argmax(size))] = True
    return kept


def kept_weights(weights: Array, kept: Array) -> Array:
    """Return the weights (row, component) with those of components that go at 0, the others renormalised.

    A row without any weight on the others gets them all alike.
    """
    chosen = np.where(kept, weights, 0.0)
    total = chosen.sum(axis=1, keepdims=True)
    return np.where(total > 0, chosen / np.where(total > 0, total, 1.0), kept / kept.sum())


def law_of_draws(draws: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any]) -> MixtureLaw:
    """Return the law of the draw-wise mixture, of at most `MAX_DRAWS` draws.

    Row, draw and component cost basis + `GATE_DRAWS` flops.

    Parameters
    ----------
    draws : mapping
        ``component_probs`` (chain, draw, component, labels), ``white`` (chain, draw, component, basis), and
        where ``rho`` is above 0 ``component_size`` (chain, draw, component).

    Raises
    ------
    ValueError
        If a site is missing (``component_size`` where rho is above 0).
    """
    missing = [name for name in ("component_probs", "white") if name not in draws]
    if missing:
        raise ValueError(f"the posterior has no draws of {', '.join(missing)}, which the mixture law reads")
    sites = {name: _thinned(draws[name]) for name in SITES if name in draws}
    theta, white = sites["component_probs"], sites["white"]
    chains, each, components, labels = theta.shape
    kept = kept_components(sites, constants)
    kept = np.ones((chains, each, components), bool) if kept is None else kept
    rows = X_new.shape[0]
    weights, variance = np.empty((rows, chains, each, components)), np.empty(rows)
    normals = np.random.default_rng(0).standard_normal((chains, each, GATE_DRAWS, components))
    for begin in range(0, rows, BLOCK_ROWS):
        at = slice(begin, begin + BLOCK_ROWS)
        cross = basis_rows(constants, X_new[at])
        weights[at], variance[at] = _draw_weights(cross, white, normals, float(constants["gate_mean"]))
    for chain, draw in np.ndindex(chains, each):
        weights[:, chain, draw] = kept_weights(weights[:, chain, draw], kept[chain, draw])
    parts = np.clip(theta.reshape(-1, labels), 0.0, 1.0)
    report = {
        "components": components,
        "draws": chains * each,
        "parts": len(parts),
        "kept": float(kept.sum(2).mean()),
        "fitted_rows": fitted_rows(constants),
    }
    return MixtureLaw(weights.reshape(rows, -1) / (chains * each), parts, variance, report)


def _thinned(site: Array) -> Array:
    """Return at most `MAX_DRAWS` draws in all, evenly spaced within each chain: (chain, draw, ...)."""
    values = np.asarray(site, float)
    chains = np.unique(np.linspace(0, len(values) - 1, min(len(values), MAX_DRAWS)).round().astype(int))
    each = min(values.shape[1], max(1, MAX_DRAWS // len(chains)))
    return values[chains][:, np.linspace(0, values.shape[1] - 1, each).round().astype(int)]


def _draw_weights(
    cross: tuple[Array, Array], white: Array, normals: Array, gate_mean: float
) -> tuple[Array, Array]:
    """Return pi of each draw, averaged over the draws of f given it, and the mean variance within chains.

    (row, chain, draw, component) and (row,).
    """
    chains, each, components, _ = white.shape
    load, rest = cross
    rows, sd = len(load), np.sqrt(rest)[:, None]
    weights, variance = np.empty((rows, chains, each, components)), np.zeros(rows)
    for chain in range(chains):
        second = np.zeros((rows, components))
        for draw in range(each):
            centre = gate_mean + load @ white[chain, draw].T
            pi = np.exp(log_gate(centre + sd * normals[chain, draw][:, None, :]))
            weights[:, chain, draw] = pi.mean(axis=0)
            second += (pi**2).mean(axis=0) / each
        first = weights[:, chain].mean(axis=1)
        variance += np.maximum(second - first**2, 0.0).mean(axis=1) / chains
    return weights, variance
