"""The mixture law of new rows' labels: from variational factors and from posterior draws, by brute force."""

from typing import Any

import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.gp_bernoulli_mixture import structured
from labelzoo.inference.gp_bernoulli_mixture.factors import problem_of
from labelzoo.models.gp_bernoulli_mixture_card import constants as constants_of_inputs
from labelzoo.models.gp_bernoulli_mixture_card import prepare, spec
from labelzoo.models.gp_bernoulli_mixture_gate import gate_moments, log_gate
from labelzoo.models.gp_bernoulli_mixture_latent import latent_moments, whites
from labelzoo.models.gp_bernoulli_mixture_law import (
    MAX_DRAWS,
    WIDE_DRAWS,
    effective,
    kept_weights,
    mixture_law,
)

Array = Any
ROWS, NEW, LABELS, COMPONENTS = 14, 5, 4, 3


def fitted(**settings: Any) -> tuple[dict[str, Any], dict[str, Array], Array, Any]:
    """Return constants, engine state, new features and the factors after some sweeps."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((ROWS, 2))
    X[1] = X[0]  # rows that are alike
    Y = (rng.uniform(size=(ROWS, LABELS)) < 0.4).astype(float)
    Y[2, 1] = np.nan
    program = spec.resolve(
        {"num_components": COMPONENTS, "gate_mean": -1.5, "length_factor": 0.3, **settings}
    )
    inputs = prepare(LabelData.from_arrays(X, Y), program)
    problem = problem_of(inputs)
    state = structured.start_from(problem, rng.dirichlet(np.ones(COMPONENTS), ROWS))
    for _ in range(3):
        state = structured.sweep(problem, state)
    found = state.factors
    kept = {
        "positive": found.positive,
        "negative": found.negative,
        "responsibility": found.responsibility,
        "weight": found.weight,
        "potential": found.potential,
    }
    new = np.concatenate([rng.standard_normal((NEW - 1, 2)), [[60.0, -60.0]]])
    return {**program, **constants_of_inputs(inputs)}, kept, np.concatenate([X, new]), found


def brute(constants: dict[str, Any], state: dict[str, Array], X: Array) -> tuple[Array, Array]:
    """Return mean and variance of f by the kernel matrix itself and inverses."""
    Z = (X - constants["center"]) * constants["feature_scale"]
    square = ((Z[:, None] - Z) ** 2).sum(axis=2)
    K = float(constants["fitted_amplitude"]) * np.exp(-square / (2 * float(constants["length2"])))
    m0, N = float(constants["gate_mean"]), ROWS
    mean, variance = np.empty((len(X), COMPONENTS)), np.empty((len(X), COMPONENTS))
    for k in range(COMPONENTS):
        W, r = state["weight"][:, k], state["potential"][:, k]
        inverse = np.linalg.inv(np.diag(1 / W) + K[:N, :N])
        mean[:, k] = m0 + K[:, :N] @ (np.eye(N) - inverse @ K[:N, :N]) @ (r - W * m0)
        variance[:, k] = np.diag(K - K[:, :N] @ inverse @ K[:N])
    return mean, variance


def test_the_functions_law_at_old_and_new_rows() -> None:
    constants, state, X, factors = fitted()
    ((rows, mean, variance),) = latent_moments(state, constants, X)
    assert rows == slice(0, len(X))
    expected = brute(constants, state, X)
    np.testing.assert_allclose(mean, expected[0], atol=1e-8)
    np.testing.assert_allclose(variance, expected[1], atol=1e-8)
    np.testing.assert_allclose(mean[:ROWS], factors.gate_mean_q, atol=1e-8)
    np.testing.assert_allclose(variance[:ROWS], factors.gate_variance, atol=1e-8)
    far = len(X) - 1  # back at the prior
    np.testing.assert_allclose(mean[far], -1.5, atol=1e-8)
    np.testing.assert_allclose(variance[far], 4.0, atol=1e-8)


def test_rows_come_in_blocks_and_sparse_roots_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    constants, state, X, _ = fitted()
    ((_, mean, variance),) = latent_moments(state, constants, X)
    white = whites(state, constants)
    roots = [np.linalg.cholesky(np.linalg.inv(L @ L.T)) for L in white.root]
    sparse = {"white_mean": white.mean, "white_root": np.stack(roots)}
    monkeypatch.setattr("labelzoo.models.gp_bernoulli_mixture_latent.BLOCK_ROWS", 4)
    for kept in (state, sparse):
        blocks = list(latent_moments(kept, constants, X))
        assert [rows.stop - rows.start for rows, _, _ in blocks] == [4, 4, 4, 4, 3]
        np.testing.assert_allclose(np.concatenate([b[1] for b in blocks]), mean, atol=1e-8)
        np.testing.assert_allclose(np.concatenate([b[2] for b in blocks]), variance, atol=1e-8)


def test_rows_without_weight_leave_the_prior() -> None:
    constants, state, X, _ = fitted()
    state = {**state, "weight": 0.0 * state["weight"], "potential": 0.0 * state["potential"]}
    ((_, mean, variance),) = latent_moments(state, constants, X)
    np.testing.assert_allclose(mean, -1.5, atol=1e-12)
    np.testing.assert_allclose(variance, 4.0, atol=1e-8)


def test_the_law_of_factors_by_draws_of_q() -> None:
    """Draw f, theta, z and y from q: frequencies of pairs of labels against the covariance."""
    constants, state, X, _ = fitted()
    law = mixture_law({}, X, constants, state)
    assert law.shape == (len(X), LABELS)
    mean, variance = brute(constants, state, X)
    rng, draws = np.random.default_rng(7), 40_000
    for row in (0, ROWS, len(X) - 1):
        f = mean[row] + np.sqrt(variance[row]) * rng.standard_normal((draws, COMPONENTS))
        pi = np.exp(log_gate(f))
        theta = rng.beta(state["positive"], state["negative"], (draws, COMPONENTS, LABELS))
        second = np.einsum("sk,skl,skm->lm", pi, theta, theta) / draws
        first = np.einsum("sk,skl->l", pi, theta) / draws
        second[np.diag_indices(LABELS)] = first
        found = law.covariance(row)
        off = ~np.eye(LABELS, dtype=bool)
        np.testing.assert_allclose(law.mean()[row], first, atol=5 * 0.5 / np.sqrt(draws))
        np.testing.assert_allclose(
            found[off], (second - np.outer(first, first))[off], atol=5 * 0.5 / np.sqrt(draws)
        )
        np.testing.assert_allclose(np.diag(found), law.mean()[row] * (1 - law.mean()[row]), atol=1e-12)
        spread = pi.var(axis=0).mean()
        assert abs(law.weight_variance[row] - spread) < 5 * 0.25 / np.sqrt(draws)


def test_components_below_rho_go_and_the_largest_stays() -> None:
    np.testing.assert_array_equal(effective(np.array([1.0, 4.0, 7.0]), 0.0), True)
    np.testing.assert_array_equal(effective(np.array([1.0, 4.0, 7.0]), 1.0), [False, True, True])
    np.testing.assert_array_equal(effective(np.array([1.0, 3.9, 7.0]), 1.0), [False, False, True])
    np.testing.assert_array_equal(effective(np.array([2.0, 3.0]), 2.0), [False, True])
    weights = kept_weights(np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]), np.array([False, True, True]))
    np.testing.assert_allclose(weights, [[0.0, 0.375, 0.625], [0.0, 0.5, 0.5]])
    constants, state, X, _ = fitted()
    state = {**state, "positive": state["positive"].copy()}
    state["positive"][1] += 30.0
    whole = mixture_law({}, X, constants, state)
    law = mixture_law({}, X, {**constants, "rho": 1.0}, state)
    assert law.report == {"components": 3, "kept": 1, "fitted_rows": 14}
    np.testing.assert_array_equal(law.weights, 1.0)
    np.testing.assert_array_equal(law.parts, whole.parts[[1]])
    np.testing.assert_array_equal(law.weight_variance, whole.weight_variance)


def chains(basis: int, count: int = 2, each: int = 6) -> dict[str, Array]:
    rng = np.random.default_rng(9)
    return {
        "component_probs": rng.beta(1.0, 2.0, (count, each, COMPONENTS, LABELS)),
        "white": 0.7 * rng.standard_normal((count, each, COMPONENTS, basis)),
        "component_size": rng.uniform(0, 9, (count, each, COMPONENTS)),
    }


def test_the_law_of_draws_by_brute_force() -> None:
    """At training rows f is known given a draw: no chance enters, and everything can be summed."""
    constants, _, X, _ = fitted()
    draws = chains(constants["whitener"].shape[1])
    law = mixture_law(draws, X[:ROWS], constants, {})
    assert law.report == {"components": 3, "draws": 12, "parts": 36, "kept": 3.0, "fitted_rows": 14}
    Z = (X[:ROWS] - constants["center"]) * constants["feature_scale"]
    square = ((Z[:, None] - Z) ** 2).sum(axis=2)
    load = 4.0 * np.exp(-square / (2 * float(constants["length2"]))) @ constants["whitener"]
    f = -1.5 + np.einsum("nb,cskb->ncsk", load, draws["white"])
    pi, theta = np.exp(log_gate(f)), draws["component_probs"]
    first = np.einsum("ncsk,cskl->nl", pi, theta) / 12
    second = np.einsum("ncsk,cskl,cskm->nlm", pi, theta, theta) / 12
    for row in range(ROWS):
        expected = second[row] - np.outer(first[row], first[row])
        expected[np.diag_indices(LABELS)] = first[row] * (1 - first[row])
        np.testing.assert_allclose(law.covariance(row), expected, atol=1e-6)
    np.testing.assert_allclose(law.mean(), first, atol=1e-6)
    np.testing.assert_allclose(law.weight_variance, pi.var(axis=2).mean(axis=(1, 2)), atol=1e-6)
    kept = mixture_law(draws, X[:ROWS], {**constants, "rho": 1.0}, {})
    strength = 2.0 + draws["component_size"]
    stay = strength >= strength.mean(axis=2, keepdims=True)
    part = np.where(stay, pi, 0.0)
    part /= part.sum(axis=3, keepdims=True)
    np.testing.assert_allclose(kept.mean(), np.einsum("ncsk,cskl->nl", part, theta) / 12, atol=1e-6)
    with pytest.raises(ValueError, match="component_size"):
        mixture_law({k: v for k, v in draws.items() if "size" not in k}, X, {**constants, "rho": 0.5}, {})


def test_new_rows_of_draws_have_the_gates_own_variance() -> None:
    constants, _, X, _ = fitted()
    draws = chains(constants["whitener"].shape[1], 2, 25)
    law = mixture_law(draws, X, constants, {})
    far = len(X) - 1
    u = np.random.default_rng(3).standard_normal((200_000, COMPONENTS))
    pi = np.exp(log_gate(-1.5 + 2.0 * u))
    error = pi.std(axis=0).max() / np.sqrt(2 * 25 * 4)
    weights = law.weights[far].reshape(-1, COMPONENTS).sum(axis=0)
    assert np.abs(weights - pi.mean(axis=0)).max() < 4.5 * error
    assert law.weight_variance[far] == pytest.approx(pi.var(axis=0).mean(), rel=0.4)


def test_swapped_components_change_neither_mean_nor_covariance() -> None:
    """Chains that number components differently: only a switch within a chain moves the weights' variance."""
    constants, _, X, _ = fitted()
    rows, draws = X[:ROWS], chains(constants["whitener"].shape[1])
    law = mixture_law(draws, rows, constants, {})
    swapped = {name: site.copy() for name, site in draws.items()}
    for site in swapped.values():
        site[1] = site[1][:, [2, 0, 1]]
    other = mixture_law(swapped, rows, constants, {})
    np.testing.assert_allclose(other.covariance(3), law.covariance(3), atol=1e-6)
    np.testing.assert_allclose(other.weight_variance, law.weight_variance, atol=1e-6)
    for site in swapped.values():
        site[0, 3:] = site[0, 3:][:, [1, 2, 0]]
    within = mixture_law(swapped, rows, constants, {})
    np.testing.assert_allclose(within.covariance(3), law.covariance(3), atol=1e-6)
    assert np.abs(within.weight_variance - law.weight_variance).max() > 1e-4


def test_draws_are_thinned_and_missing_sites_named() -> None:
    constants, state, X, _ = fitted()
    draws = chains(constants["whitener"].shape[1], 3, 40)
    law = mixture_law(draws, X, constants, {})
    assert law.report["draws"] == 48 <= MAX_DRAWS and len(law.parts) == 144
    np.testing.assert_array_equal(law.parts[:3], draws["component_probs"][0, 0])
    np.testing.assert_array_equal(law.parts[-3:], draws["component_probs"][2, 39])
    with pytest.raises(ValueError, match="has no draws of white, which the mixture law reads"):
        mixture_law({"component_probs": draws["component_probs"]}, X, constants, {})
    with pytest.raises(ValueError, match="engine_state has no potential"):
        mixture_law({}, X, constants, {k: v for k, v in state.items() if k != "potential"})
    short = {**state, "weight": state["weight"][1:]}
    with pytest.raises(
        ValueError, match=r"weight \(13, 3\) and potential \(14, 3\) must be \(14, component\)"
    ):
        mixture_law({}, X, constants, short)


def test_one_component() -> None:
    constants, state, X, _ = fitted()
    single = {name: value[:1] if len(value) == COMPONENTS else value[:, :1] for name, value in state.items()}
    law = mixture_law({}, X, constants, single)
    np.testing.assert_array_equal(law.weights, 1.0)
    assert not law.weight_variance.any()


def test_gates_of_a_wide_law_are_drawn() -> None:
    """Above `WIDE` the moments come from shared draws; they agree with the integral within their error."""
    constants, state, X, _ = fitted(amplitude=500.0)
    law = mixture_law({}, X, constants, state)
    assert law.report["gates_by_draws"] >= 1
    ((_, mean, variance),) = latent_moments(state, constants, X)
    exact = gate_moments(mean, variance)
    error = np.sqrt(np.maximum(exact.variance, 1e-12) / WIDE_DRAWS)
    assert np.abs((law.weights - exact.mean) / error).max() < 5
    plain = mixture_law({}, X, {**constants, "fitted_amplitude": 4.0}, state)
    assert "gates_by_draws" not in plain.report
