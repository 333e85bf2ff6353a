"""The cores of structured and mean_field against dense algebra, definitions, Monte Carlo and enumeration."""

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import betaln, digamma, log_expit, logsumexp

from labelzoo.inference.gp_bernoulli_mixture import (
    local,
    mean_field,
    starts,
    stationarity,
    structured,
    terms,
)
from labelzoo.inference.gp_bernoulli_mixture.ascent import guarded
from labelzoo.inference.gp_bernoulli_mixture.factors import Factors, problem_of
from labelzoo.inference.gp_bernoulli_mixture.gates import gate_step
from tests.inference.gp_bernoulli_mixture.problems import small

Array = Any


def dense_gate(Sigma: Array, W: Array, r: Array, gate_mean: float) -> tuple[Array, Array, float]:
    """Return mean, covariance and divergence of one gate by the textbook."""
    s = np.sqrt(W)
    B = np.eye(len(W)) + s[:, None] * Sigma * s
    S = Sigma - (Sigma * s) @ np.linalg.solve(B, s[:, None] * Sigma)
    beta = r - gate_mean * W
    alpha = beta - s * np.linalg.solve(B, s * (Sigma @ beta))
    trace, log_det = np.trace(np.linalg.inv(B)), np.linalg.slogdet(B)[1]
    return gate_mean + S @ beta, S, 0.5 * (trace - len(W) + alpha @ Sigma @ alpha + log_det)


@pytest.mark.parametrize("rows_form", [True, False])
def test_gates_are_those_of_dense_algebra(rows_form: bool) -> None:
    problem = problem_of(small(40, features=8))
    Sigma = problem.factor @ problem.factor.T
    problem = problem._replace(covariance=np.asfortranarray(Sigma) if rows_form else None)
    rng = np.random.default_rng(1)
    W, r = rng.gamma(1.0, size=(40, 3)), rng.normal(size=(40, 3))
    W[:15] *= 10.0 ** -rng.uniform(3, 14, (15, 3))
    gate = gate_step(problem, W, r)
    for k in range(3):
        mean, S, divergence = dense_gate(Sigma, W[:, k], r[:, k], problem.gate_mean)
        np.testing.assert_allclose(gate.mean[:, k], mean, rtol=1e-9)
        np.testing.assert_allclose(gate.variance[:, k], np.diag(S), rtol=1e-8)
        assert gate.divergence[k] == pytest.approx(divergence, rel=1e-8)


def test_gates_of_duplicate_rows_in_float32() -> None:
    inputs = small(30)
    twice = {name: np.concatenate([inputs[name]] * 2) for name in ("factor", "Y", "observed")}
    double, single = problem_of({**inputs, **twice}), problem_of({**inputs, **twice}, np.float32)
    rng = np.random.default_rng(1)
    W, r = rng.gamma(1.0, size=(60, 3)), rng.normal(size=(60, 3))
    for covariance in (True, False):
        a, b = double, single
        if covariance:
            a, b = (p._replace(covariance=np.asfortranarray(p.factor @ p.factor.T)) for p in (a, b))
        wide, narrow = gate_step(a, W, r), gate_step(b, W.astype(np.float32), r.astype(np.float32))
        np.testing.assert_allclose(narrow.variance, wide.variance, rtol=2e-3)
        np.testing.assert_allclose(narrow.mean, wide.mean, atol=1e-3)
        np.testing.assert_allclose(wide.mean[:30], wide.mean[30:], rtol=1e-9)


def test_the_shape_of_lambda_is_the_root_in_its_bracket() -> None:
    kappa = np.array([0.0, 1e-12, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9])
    al = local.lambda_shape(kappa)
    np.testing.assert_allclose(al, 1.0 + kappa * np.exp(digamma(al)), rtol=1e-12)
    assert (al >= 1.0).all()
    assert (al <= 1.0 / (1.0 - kappa) * (1 + 1e-9)).all()


def test_the_iterated_counts_come_to_the_root() -> None:
    rng = np.random.default_rng(0)
    m, c = rng.normal(size=(5, 3)), None
    J = local.curve(m, rng.gamma(1.0, size=(5, 3)), c)
    shape = np.full(5, 2.5)
    for _ in range(3000):
        count = mean_field.count_step(m, J, shape)
        shape = mean_field.shape_step(count)
    np.testing.assert_allclose(shape, mean_field.rest_of_counts(m, J)[1], rtol=1e-10)


def test_local_terms_at_the_ends() -> None:
    c = np.array([0.0, 1e-8, 9.99e-4, 1.001e-3, 1.0, 50.0, 1000.0])
    share = local.omega_share(c)
    np.testing.assert_allclose(share[:4], 0.25 - c[:4] ** 2 / 48, rtol=1e-12)
    np.testing.assert_allclose(share[4:], np.tanh(c[4:] / 2) / (2 * c[4:]), rtol=1e-15)
    log_s = local.log_miss(np.array([-700.0, 0.0, 700.0]), -local.log_two_cosh_half(np.full(3, 700.001)))
    gamma = local.structured_counts(log_s[None])
    assert np.isfinite(gamma).all()
    assert (local.hit(log_s) > 0).all()


def random_factors(problem: Any, seed: int) -> tuple[Factors, Array]:
    """Return factors anywhere, and the divergence of their gates."""
    rng = np.random.default_rng(seed)
    shape = (problem.labels.positive.shape[0], problem.num_components)
    a, b = rng.gamma(2.0, size=(2, *problem.prior_positive.shape)) + 0.1
    phi = rng.dirichlet(np.ones(shape[1]), shape[0])
    W, r = rng.gamma(1.0, size=shape), rng.normal(size=shape)
    gate = gate_step(problem, W, r)
    return Factors(a, b, phi, gate.mean, gate.variance, W, r), gate.divergence


def definition(problem: Any, factors: Factors, c: Array, method: str, extra: dict[str, Array]) -> float:
    """Return the bound as `stationarity` writes it, term by term in JAX."""
    inputs = {
        "factor": problem.factor,
        "Y": problem.labels.positive,
        "observed": problem.labels.missing == 0,
        "gate_mean": problem.gate_mean,
        "prior_positive": problem.prior_positive,
        "prior_negative": problem.prior_negative,
    }
    ratio = stationarity.apart(inputs)["prior_positive"] / problem.prior_positive
    inputs["prior_positive"] = problem.prior_positive / ratio
    beta = factors.potential - problem.gate_mean * factors.weight
    white = stationarity.white_of(problem, factors.weight, beta)
    params = {**stationarity._common_params(factors, white), "tilt": c, **extra}
    chosen = stationarity.block_objective if method == "structured" else stationarity.field_objective
    return float(chosen(params, inputs))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_both_bounds_are_their_definitions_at_any_factors(seed: int) -> None:
    problem = problem_of(small(seed=seed, gate_mean=[-1.0, 0.7, -6.0][seed]))
    factors, divergence = random_factors(problem, seed)
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.2, 4.0, factors.weight.shape)
    J = local.curve(factors.gate_mean_q, factors.gate_variance, c)
    log_s = local.log_miss(factors.gate_mean_q, J)
    block = {"log_share": log_s, "log_rate": np.log(local.hit(log_s).sum(axis=1))}
    found = structured.bound(problem, factors, divergence, c)
    assert found == pytest.approx(definition(problem, factors, c, "structured", block), rel=1e-10)
    count, shape = rng.gamma(2.0, size=c.shape), rng.gamma(3.0, size=len(c))
    rate = rng.gamma(3.0, size=len(c))
    field = {"log_count": np.log(count), "log_shape": np.log(shape), "log_rate": np.log(rate)}
    found = mean_field.bound(problem, factors, divergence, tilt=c, count=count, shape=shape, rate=rate)
    assert found == pytest.approx(definition(problem, factors, c, "mean_field", field), rel=1e-10)


def test_the_structured_bound_is_its_monte_carlo_mean() -> None:
    seed, draws = 3, 200_000
    problem = problem_of(small(3, 2, 2, seed=seed))
    factors, divergence = random_factors(problem, seed)
    rng = np.random.default_rng(seed)
    m, S, phi = factors.gate_mean_q, factors.gate_variance, factors.responsibility
    c = local.tilt(m, S) * 1.3
    log_s = local.log_miss(m, local.curve(m, S, c))
    theta = rng.beta(factors.positive, factors.negative, (draws, *factors.positive.shape))
    f = m + np.sqrt(S) * rng.standard_normal((draws, *m.shape))
    z = (rng.random((draws, *phi.shape[:1], 1)) > phi.cumsum(axis=1)).sum(axis=2)
    lam = rng.standard_exponential((draws, len(m))) / local.hit(log_s).sum(axis=1)
    v = rng.poisson(lam[:, :, None] * np.exp(log_s))
    one = np.eye(2)[z]
    b = one + v
    omega = 0.25 * b * np.tanh(c / 2) / c * (c**2 - f**2) - b * np.log(2 * np.cosh(c / 2))
    value = (0.5 * (one - v) * f + omega).sum(axis=(1, 2))
    rate = local.hit(log_s).sum(axis=1)
    value += (-lam[:, :, None] * local.hit(log_s) - v * log_s).sum(axis=(1, 2))
    value -= (np.log(rate) - rate * lam).sum(axis=1) + np.log(phi)[np.arange(3), z].sum(axis=1)
    Y, seen = problem.labels.positive, 1.0 - problem.labels.missing
    chosen = np.take_along_axis(theta, np.broadcast_to(z[:, :, None], (draws, 3, 2)), axis=1)
    value += (seen * (Y * np.log(chosen) + (1 - Y) * np.log1p(-chosen))).sum(axis=(1, 2))
    prior = (problem.prior_positive, problem.prior_negative)
    expected = structured.bound(problem, factors, divergence, c)
    expected += terms.beta_divergence(factors.positive, factors.negative, *prior) + divergence.sum()
    gap, error = value.mean() - expected, value.std() / np.sqrt(draws)
    assert abs(gap) < 5 * error, f"{gap / error:.1f} Monte Carlo errors, seed {seed}"


def test_no_update_of_structured_lowers_the_bound() -> None:
    for seed in range(5):
        problem = problem_of(small(15, seed=seed, gate_mean=[-6.0, -1.0, 0.0, 1.0, -3.0][seed]))
        factors, divergence = random_factors(problem, seed)
        value = structured.bound(problem, factors, divergence, factors.weight + 0.5)
        for _ in range(4):
            for step in ("tilt", "theta", "gate", "z"):
                if step == "theta":
                    a, b = structured.theta_step(problem, factors.responsibility)
                    factors = factors._replace(positive=a, negative=b)
                elif step == "gate":
                    pair = structured.site_step(
                        factors.responsibility, factors.gate_mean_q, factors.gate_variance
                    )
                    gate = gate_step(problem, *pair)
                    divergence = gate.divergence
                    factors = Factors(*factors[:3], gate.mean, gate.variance, *pair)
                elif step == "z":
                    phi = structured.responsibility_step(problem, factors)
                    factors = factors._replace(responsibility=phi)
                new = structured.bound(problem, factors, divergence)
                assert new >= value - 1e-9 * abs(value), (seed, step)
                value = new


def test_no_update_of_mean_field_lowers_the_bound() -> None:
    for seed in range(5):
        problem = problem_of(small(15, seed=seed, gate_mean=[-6.0, -1.0, 0.0, 1.0, -3.0][seed]))
        factors, divergence = random_factors(problem, seed)
        c, count = factors.weight + 0.5, np.full_like(factors.weight, 0.5)
        shape = np.full(len(count), 2.0)
        value = partial(mean_field.bound, problem)
        last = value(factors, divergence, tilt=c, count=count, shape=shape)
        for step in ["theta", "tilt", "count", "shape", "gate", "tilt", "z", "root"] * 4:
            m, S = factors.gate_mean_q, factors.gate_variance
            if step == "theta":
                a, b = structured.theta_step(problem, factors.responsibility)
                factors = factors._replace(positive=a, negative=b)
            elif step == "tilt":
                c = local.tilt(m, S)
            elif step == "count":
                count = mean_field.count_step(m, local.curve(m, S, c), shape)
            elif step == "shape":
                shape = mean_field.shape_step(count)
            elif step == "gate":
                pair = mean_field.site_step(factors.responsibility, count, c)
                gate = gate_step(problem, *pair)
                divergence, factors = gate.divergence, Factors(*factors[:3], gate.mean, gate.variance, *pair)
            elif step == "z":
                phi = structured.responsibility_step(problem, factors, c)
                factors = factors._replace(responsibility=phi)
            else:
                count, shape = mean_field.rest_of_counts(m, local.curve(m, S, c))
            new = value(factors, divergence, tilt=c, count=count, shape=shape)
            assert new >= last - 1e-9 * abs(last), (seed, step)
            last = new


def exact_evidence(problem: Any, nodes: int = 24) -> float:
    """Return ln p(Y): all assignments, with p(z) by Gauss-Hermite quadrature over the gates of all rows."""
    rows, K = problem.labels.positive.shape[0], problem.num_components
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    basis = problem.factor.shape[1]
    grid = np.stack(np.meshgrid(*[x] * (basis * K), indexing="ij"), axis=-1).reshape(-1, K, basis)
    weight = np.prod(
        np.stack(np.meshgrid(*[w / w.sum()] * (basis * K), indexing="ij"), axis=-1).reshape(len(grid), -1),
        axis=1,
    )
    log_sigma = log_expit(problem.gate_mean + np.einsum("nd,gkd->gnk", problem.factor, grid))
    log_pi = log_sigma - logsumexp(log_sigma, axis=2, keepdims=True)
    values = []
    for z in itertools.product(range(K), repeat=rows):
        phi = np.eye(K)[list(z)]
        on, off = terms.label_counts(problem.labels, phi)
        a0, b0 = problem.prior_positive, problem.prior_negative
        gates = weight @ np.exp(log_pi[:, np.arange(rows), list(z)].sum(axis=1))
        values.append(np.log(gates) + (betaln(a0 + on, b0 + off) - betaln(a0, b0)).sum())
    return float(logsumexp(values))


@pytest.mark.parametrize(("gate_mean", "seed"), [(-1.0, 0), (0.0, 1), (-4.0, 2)])
def test_the_bounds_are_in_order_below_the_exact_evidence(gate_mean: float, seed: int) -> None:
    problem = problem_of(small(2, 3, 2, seed=seed, gate_mean=gate_mean, amplitude=2.0))
    phi = starts.by_draw(problem, np.random.default_rng(seed))
    state: Any = mean_field.start_from(problem, phi)
    for _ in range(200):
        state = mean_field.sweep(problem, state)
    factors, draws = state.factors, 40_000
    tighter = structured.bound(problem, factors, state.divergence)
    rng = np.random.default_rng(seed)
    f = factors.gate_mean_q + np.sqrt(factors.gate_variance) * rng.standard_normal((draws, 2, 2))
    theta = rng.beta(factors.positive, factors.negative, (draws, *factors.positive.shape))
    log_sigma = log_expit(f)
    Y, seen = problem.labels.positive, 1.0 if problem.labels.missing is None else 1 - problem.labels.missing
    scores = np.einsum("nl,skl->snk", Y, np.log(theta)) + np.einsum(
        "nl,skl->snk", seen * (1 - Y), np.log1p(-theta)
    )
    log_pi = log_sigma - logsumexp(log_sigma, axis=2, keepdims=True)
    fit = logsumexp(log_pi + scores, axis=2).sum(axis=1)
    prior = (problem.prior_positive, problem.prior_negative)
    rest = terms.beta_divergence(factors.positive, factors.negative, *prior) + state.divergence.sum()
    error = fit.std() / np.sqrt(draws)
    summed = fit.mean() - rest
    exact = exact_evidence(problem)
    assert state.objective < tighter - 1e-3
    assert tighter < summed + 5 * error, f"seed {seed}"
    assert summed - 5 * error < exact, f"seed {seed}"
    climbed: Any = structured.start_from(problem, phi)
    for _ in range(200):
        climbed = structured.sweep(problem, climbed)
    assert state.objective < climbed.objective < exact


def test_a_label_that_nobody_observed_is_as_if_it_were_not_there() -> None:
    inputs = small(10, 4)
    hidden = inputs["observed"].copy()
    hidden[:, 3] = False
    fewer = {name: inputs[name][:, :3] for name in ("Y", "observed", "prior_positive", "prior_negative")}
    whole, part = problem_of({**inputs, "observed": hidden}), problem_of({**inputs, **fewer})
    phi = starts.by_draw(whole, np.random.default_rng(0))
    a, b = structured.start_from(whole, phi), structured.start_from(part, phi)
    for _ in range(5):
        a, b = structured.sweep(whole, a), structured.sweep(part, b)
    assert a.objective == pytest.approx(b.objective, rel=1e-12)
    np.testing.assert_allclose(a.factors.responsibility, b.factors.responsibility, rtol=1e-9)
    np.testing.assert_allclose(a.factors.positive[:, 3], whole.prior_positive[:, 3], rtol=1e-12)


def test_sums_over_csr_labels_are_those_over_dense_ones() -> None:
    inputs = small(9, 5)
    dense = terms.labels_of(inputs["Y"], inputs["observed"])
    missing = sparse.csr_array((~inputs["observed"]).astype(float))
    csr = terms.labels_of(sparse.csr_array(inputs["Y"]), missing=missing)
    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.ones(3), 9)
    a, b = rng.gamma(2.0, size=(2, 3, 5))
    np.testing.assert_allclose(terms.label_scores(csr, a, b), terms.label_scores(dense, a, b), rtol=1e-12)
    pairs = zip(terms.label_counts(csr, phi), terms.label_counts(dense, phi), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("method", ["structured", "mean_field"])
@pytest.mark.parametrize(
    ("rows", "components", "gate_mean"), [(1, 1, 0.0), (1, 4, -6.0), (3, 8, -40.0), (6, 2, 30.0)]
)
def test_odd_sizes_and_gate_means_are_finite(
    rows: int, components: int, gate_mean: float, method: str
) -> None:
    inputs = small(rows, 3, components, gate_mean=gate_mean)
    inputs["Y"][:, 1] = 0.0
    problem = problem_of(inputs)
    module: Any = structured if method == "structured" else mean_field
    state = module.start_from(problem, starts.by_kmeans(problem, np.random.default_rng(0)))
    values = []
    for _ in range(30):
        state = module.sweep(problem, state)
        values.append(state.objective)
    assert np.isfinite(values).all()
    assert (np.diff(values) >= -1e-9 * np.abs(values[1:])).all()
    assert all(np.isfinite(array).all() for array in state.factors)


def test_float32_follows_float64() -> None:
    inputs = small(40, 6, 3, features=4, gate_mean=-6.0)
    wide, narrow = problem_of(inputs), problem_of(inputs, np.float32)
    phi = starts.by_kmeans(wide, np.random.default_rng(0))
    a, b = structured.start_from(wide, phi), structured.start_from(narrow, phi)
    for _ in range(10):
        a, b = structured.sweep(wide, a), structured.sweep(narrow, b)
    assert b.factors.gate_variance.dtype == np.float32
    assert b.objective == pytest.approx(a.objective, rel=1e-3)
    np.testing.assert_allclose(b.factors.responsibility, a.factors.responsibility, atol=1e-2)


def test_longer_steps_rest_where_plain_ones_do_and_never_fall() -> None:
    problem = problem_of(small(30, 6, 3, gate_mean=-6.0))
    phi = starts.by_kmeans(problem, np.random.default_rng(0))
    plain, fast = structured.start_from(problem, phi), structured.start_from(problem, phi)
    values = []
    for _ in range(150):
        plain = structured.sweep(problem, plain)
        fast = guarded(partial(structured.sweep, problem), fast)
        values.append(fast.objective)
    assert (np.diff(values) >= -1e-9 * np.abs(values[1:])).all()
    after = structured.sweep(problem, fast)
    np.testing.assert_allclose(after.factors.gate_mean_q, fast.factors.gate_mean_q, atol=1e-4)
    assert fast.objective == pytest.approx(plain.objective, rel=1e-2)


def test_an_even_start_is_a_saddle_that_no_start_uses() -> None:
    inputs = small(20, 5, 3)
    inputs["prior_positive"], inputs["prior_negative"] = np.full((3, 5), 0.4), np.full((3, 5), 1.6)
    problem = problem_of(inputs)
    state = structured.start_from(problem, np.full((20, 3), 1.0 / 3.0))
    for _ in range(20):
        state = structured.sweep(problem, state)
    np.testing.assert_allclose(state.factors.responsibility, 1.0 / 3.0, atol=1e-9)
    for number in range(3):
        phi = starts.responsibilities_of(problem, number, np.random.default_rng(0))
        np.testing.assert_allclose(phi.sum(axis=1), 1.0)
        assert np.ptp(phi, axis=1).max() > 0.1


def test_kmeans_finds_groups_and_takes_equal_rows() -> None:
    rng = np.random.default_rng(0)
    table = np.repeat(np.eye(4), 10, axis=0)
    cluster = starts.kmeans(sparse.csr_array(table), 4, rng)
    assert len(np.unique(cluster.reshape(4, 10), axis=1).T) == 1
    assert (starts.kmeans(np.ones((5, 3)), 4, rng) == 0).any()


def test_a_new_row_starts_at_its_prediction() -> None:
    inputs = small(30, 6, 3, gate_mean=-3.0)
    problem = problem_of(inputs)
    first = {**inputs, **{name: inputs[name][:25] for name in ("factor", "Y", "observed")}}
    part = problem_of(first)
    state = structured.start_from(part, starts.by_kmeans(part, np.random.default_rng(0)))
    for _ in range(60):
        state = structured.sweep(part, state)
    kept = {name: getattr(state.factors, name) for name in starts.STATE}
    same = np.r_[np.arange(25), -np.ones(5, int)]
    phi, factors = starts.warm_start(problem, kept, same)
    assert factors is not None
    np.testing.assert_array_equal(phi[:25], state.factors.responsibility)
    for row in range(25, 30):
        for k in range(3):
            P = np.eye(problem.factor.shape[1]) + (part.factor.T * state.factors.weight[:, k]) @ part.factor
            beta = state.factors.potential[:, k] - part.gate_mean * state.factors.weight[:, k]
            F = problem.factor[row]
            mean = part.gate_mean + F @ np.linalg.solve(P, part.factor.T @ beta)
            assert factors.gate_mean_q[row, k] == pytest.approx(mean, rel=1e-6)
            variance = F @ np.linalg.solve(P, F)
            assert factors.gate_variance[row, k] == pytest.approx(variance, rel=1e-6)
    with pytest.raises(ValueError, match="same must name"):
        starts.warm_start(problem, kept, same[:-1])
    with pytest.raises(ValueError, match="components, labels"):
        starts.warm_start(problem_of(small(30, 5, 3)), kept, same)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Y": np.full((12, 4), 2.0)}, "row 0, label 0"),
        ({"factor": np.ones((3, 2))}, "factor must have 12 rows"),
        ({"prior_positive": np.zeros((3, 4))}, "above 0"),
        ({"prior_negative": np.ones((3, 9))}, "component, labels"),
        ({"gate_mean": np.nan}, "finite"),
        ({"observed": np.ones((2, 2), bool)}, "one shape"),
    ],
)
def test_wrong_inputs_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        problem_of({**small(), **change})
