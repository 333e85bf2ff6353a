"""Rows given some of their labels, label sets, and marginal scores, against quadrature over the embedding."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.special import roots_genlaguerre

from labelzoo.inference.bernoulli_poisson_topics import given_labels as module
from labelzoo.inference.bernoulli_poisson_topics.given_labels import exact, gibbs, given_labels
from labelzoo.inference.bernoulli_poisson_topics.joint import joint_table
from labelzoo.inference.bernoulli_poisson_topics.marginal_score import marginal_score
from labelzoo.inference.bernoulli_poisson_topics.row_posterior import known_row, samples

TOPICS = np.array([[0.4, 0.3, 0.1, 0.05, 0.15], [0.05, 0.1, 0.35, 0.3, 0.2]])
SHAPE = np.array([0.7, 1.6])
PSI = np.array([1.2, 0.3])


def nodes(shape: Any, psi: Any) -> tuple[Any, Any]:
    """Return nodes (node, topic) and weights of quadrature over the embedding given x (two topics)."""
    sides = []
    for r, p in zip(shape, psi, strict=True):
        x, w = roots_genlaguerre(90, r - 1)
        sides.append((x * np.exp(p), w / w.sum()))
    (u1, w1), (u2, w2) = sides
    grid = np.stack(np.meshgrid(u1, u2, indexing="ij"), axis=-1).reshape(-1, 2)
    return grid, np.outer(w1, w2).ravel()


def by_quadrature(known: dict[int, int]) -> tuple[float, Any]:
    """Return p(known labels) and p(y_l = 1 | known) for all labels."""
    u, w = nodes(SHAPE, PSI)
    p = -np.expm1(-(u @ TOPICS))
    for label, value in known.items():
        w = w * (p[:, label] if value else 1 - p[:, label])
    return w.sum(), (w @ p) / w.sum()


def split(known: dict[int, int]) -> tuple[Any, list[int]]:
    zeros = TOPICS[:, [label for label, value in known.items() if not value]].sum(axis=1)
    return zeros, [label for label, value in known.items() if value]


@pytest.mark.parametrize("values", list(itertools.product([0, 1, None], repeat=3)))
def test_exact_equals_quadrature_for_all_patterns_of_three_labels(values: tuple[int | None, ...]) -> None:
    known = {label: value for label, value in enumerate(values) if value is not None}
    total, prob = by_quadrature(known)
    zeros, positives = split(known)
    found = given_labels(TOPICS, SHAPE, PSI, zeros, positives, np.random.default_rng(0))
    assert found.method == "exact"
    assert np.isclose(found.log_known, np.log(total), atol=1e-6, rtol=0)
    np.testing.assert_allclose(found.prob, prob, atol=1e-6, rtol=0)
    assert found.error.max() < 1e-8


def test_nothing_known_is_equation_19() -> None:
    found = given_labels(TOPICS, SHAPE, PSI, np.zeros(2), [], np.random.default_rng(0))
    direct = 1 - np.prod((1 + TOPICS * np.exp(PSI)[:, None]) ** -SHAPE[:, None], axis=0)
    np.testing.assert_allclose(found.prob, direct, rtol=1e-13)


KNOWN = {0: 1, 1: 0, 2: 1, 3: 1}


def test_importance_samples_agree_with_quadrature() -> None:
    total, prob = by_quadrature(KNOWN)
    zeros, positives = split(KNOWN)
    seed = 7
    found = given_labels(
        TOPICS, SHAPE, PSI, zeros, positives, np.random.default_rng(seed), num_samples=20_000, max_exact=0
    )
    assert found.method == "importance"
    z = np.append(
        (found.prob - prob) / found.error, (found.log_known - np.log(total)) / found.log_known_error
    )
    assert np.abs(z).max() < 4, f"seed {seed}: z {z}"
    assert found.error.max() < 0.01


def test_gibbs_agrees_with_quadrature(monkeypatch: pytest.MonkeyPatch) -> None:
    _, prob = by_quadrature(KNOWN)
    zeros, positives = split(KNOWN)
    monkeypatch.setattr(module, "CHAINS", 400)
    seed = 8
    row = known_row(TOPICS, SHAPE, PSI, zeros, positives)
    mean, error = gibbs(row, TOPICS, np.random.default_rng(seed))
    z = (mean - prob) / error
    assert np.abs(z).max() < 4, f"seed {seed}: z {z}"
    assert error.max() < 0.01


def test_errors_of_importance_sampling_are_of_the_right_size() -> None:
    _, prob = by_quadrature(KNOWN)
    zeros, positives = split(KNOWN)
    rng = np.random.default_rng(3)
    runs = [
        given_labels(TOPICS, SHAPE, PSI, zeros, positives, rng, num_samples=400, max_exact=0)
        for _ in range(300)
    ]
    z = np.array([(run.prob - prob) / run.error for run in runs])
    assert np.all(np.abs(np.sqrt((z**2).mean(axis=0)) - 1) < 0.2)


def test_labels_are_scored_in_blocks_with_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros, positives = split(KNOWN)

    def one() -> module.GivenLabels:
        return given_labels(TOPICS, SHAPE, PSI, zeros, positives, np.random.default_rng(0), max_exact=0)

    whole = one()
    monkeypatch.setattr(module, "CELLS_AT_ONCE", 800)  # two labels at a time
    parts = one()
    assert (whole.method, parts.method) == ("importance", "importance")
    np.testing.assert_allclose(parts.prob, whole.prob, rtol=1e-12)
    np.testing.assert_allclose(parts.error, whole.error, rtol=1e-9)


def test_few_effective_samples_give_way_to_gibbs() -> None:
    zeros, positives = split(KNOWN)
    found = given_labels(
        TOPICS, SHAPE, PSI, zeros, positives, np.random.default_rng(0), max_exact=0, min_effective=1e9
    )
    assert found.method == "gibbs"


def test_a_sum_that_rounding_eats_is_refused() -> None:
    row = known_row(np.full((2, 200), 1 / 200), SHAPE, PSI - 8, np.zeros(2), np.arange(6))
    assert exact(row, np.full((2, 200), 1 / 200)) is None


def test_extreme_predictors_stay_finite() -> None:
    for psi in (np.array([900.0, -900.0]), np.array([-900.0, -900.0]), np.array([900.0, 900.0])):
        for positives in ([], [0], [0, 2]):
            found = given_labels(TOPICS, SHAPE, psi, np.zeros(2), positives, np.random.default_rng(0))
            assert np.isfinite(found.prob).all()
            assert np.all((found.prob >= 0) & (found.prob <= 1))
            assert np.isfinite(found.log_known)


def test_joint_table_equals_quadrature_and_sums_to_one() -> None:
    labels = [0, 2, 3]
    prob, error = joint_table(TOPICS[:, labels], SHAPE, np.stack([PSI, PSI - 1]), np.random.default_rng(0))
    assert np.allclose(prob.sum(axis=1), 1, atol=1e-12)
    for pattern in range(8):
        known = {label: pattern >> i & 1 for i, label in enumerate(labels)}
        total, _ = by_quadrature(known)
        assert np.isclose(prob[0, pattern], total, rtol=1e-6), pattern
    assert (error < 1e-6 * prob).all()


def test_joint_table_samples_what_rounding_eats() -> None:
    topics = np.full((2, 6), 1 / 3000)
    psi = np.full((1, 2), -2.0)
    seed = 1
    prob, error = joint_table(topics, SHAPE, psi, np.random.default_rng(seed), num_samples=20_000)
    u, w = nodes(SHAPE, psi[0])
    p = -np.expm1(-(u @ topics[:, 0]))
    z = (prob[0, -1] - w @ p**6) / error[0, -1]
    assert abs(z) < 4, f"seed {seed}: z {z}"
    assert error[0, -1] > 1e-6 * prob[0, -1]
    assert (prob > 0).all()


def test_marginal_scores_are_exact_or_within_their_error() -> None:
    known = [{0: 1, 1: 0}, {0: 0, 3: 0, 4: 0}, KNOWN]
    zeros, positives = zip(*(split(one) for one in known), strict=True)
    psi = np.tile(PSI, (3, 1))
    found = marginal_score(TOPICS, SHAPE, psi, np.array(zeros), positives, np.random.default_rng(0))
    truth = np.log([by_quadrature(one)[0] for one in known])
    assert found.exact.all()
    np.testing.assert_allclose(found.log_likelihood, truth, atol=1e-6)


def test_marginal_score_samples_where_digits_cancel() -> None:
    count, seed = 6, 5
    topics = np.full((2, 200), 1 / 200)
    found = marginal_score(
        topics, SHAPE, PSI[None] - 3, np.zeros((1, 2)), [np.arange(count)],
        np.random.default_rng(seed), num_samples=20_000,
    )  # fmt: skip
    u, w = nodes(SHAPE, PSI - 3)
    truth = np.log(w @ (-np.expm1(-u.sum(axis=1) / 200)) ** count)
    assert not found.exact[0]
    z = (found.log_likelihood[0] - truth) / found.error[0]
    assert abs(z) < 4, f"seed {seed}: z {z}"


def test_weights_are_bounded() -> None:
    zeros, positives = split(KNOWN)
    row = known_row(TOPICS, SHAPE, PSI, zeros, positives)
    drawn = samples(row, np.random.default_rng(0), 5000)
    assert drawn.weight.max() * 5000 <= 2 / np.exp(drawn.log_mean)
