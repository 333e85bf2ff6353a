"""gp_b2m and its halves: determinants against dense ones, covariances against enumeration, options."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.label_covariance import (
    EPS,
    eta_at,
    gp_b2m_with,
    log_determinants,
    standardised,
)
from labelzoo.acquisition.mixture_law import MixtureLaw
from labelzoo.acquisition.problem import Problem

Array = Any
NAMES = ("gp_b2m", "gp_b2m_standardised", "label_logdet", "gate_variance")


def mixture(rows: int, count: int, labels: int, seed: int = 0) -> MixtureLaw:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(count, 0.5), rows)
    return MixtureLaw(weights, rng.beta(0.5, 1.5, (count, labels)), rng.uniform(0, 0.2, rows))


def dense(law: MixtureLaw, eps: float = 0.0) -> Array:
    """Return ln |cov + eps I| by the covariances."""
    eye = eps * np.eye(law.shape[1])
    return np.array([np.linalg.slogdet(law.covariance(row) + eye)[1] for row in range(law.shape[0])])


@pytest.mark.parametrize(
    ("count", "labels"), [(1, 1), (1, 6), (3, 1), (4, 9), (9, 4), (6, 6), (2, 40), (40, 2)]
)
@pytest.mark.parametrize("eps", [0.0, EPS])
def test_equals_dense_log_determinants(count: int, labels: int, eps: float) -> None:
    law = mixture(7, count, labels)
    np.testing.assert_allclose(log_determinants(law.weights, law.parts, eps), dense(law, eps), atol=1e-8)


def test_the_covariance_is_that_of_all_label_vectors() -> None:
    law = mixture(5, 3, 4)
    vectors = np.array(list(product([0, 1], repeat=4)))
    for row in range(5):
        chance = np.array(
            [(law.weights[row] * np.where(y, law.parts, 1 - law.parts).prod(axis=1)).sum() for y in vectors]
        )
        assert chance.sum() == pytest.approx(1.0)
        mean = chance @ vectors
        C = (vectors.T * chance) @ vectors - np.outer(mean, mean)
        np.testing.assert_allclose(law.covariance(row), C, atol=1e-12)
        np.testing.assert_allclose(law.mean()[row], mean, atol=1e-12)
        np.testing.assert_allclose(np.diag(C), mean * (1 - mean), atol=1e-12)
        assert log_determinants(law.weights, law.parts)[row] == pytest.approx(
            np.linalg.slogdet(C)[1], abs=1e-8
        )


@pytest.mark.parametrize("count", [3, 8])
def test_labels_known_within_every_part(count: int) -> None:
    """D_l = 0 and U_l not: the determinant is not 0, and the Schur complement gives it."""
    law = mixture(6, count, 5)
    law.parts[:, 1] = np.arange(count) % 2
    law.parts[:, 3] = np.arange(count) == 0
    np.testing.assert_allclose(log_determinants(law.weights, law.parts), dense(law), atol=1e-8)
    near = law.parts.copy()
    near[:, 1] = np.clip(near[:, 1], 1e-12, 1 - 1e-12)
    found = log_determinants(law.weights, near)
    np.testing.assert_allclose(found, dense(MixtureLaw(law.weights, near, law.weight_variance)), atol=1e-6)


def test_tiny_variances_exact_against_high_precision() -> None:
    """Two labels, of which one has D = 1e-13: ln(C11 C22 - C12^2) in rational numbers."""
    from fractions import Fraction

    weights, tiny = [Fraction(1, 4), Fraction(3, 4)], Fraction(1, 2**43)
    parts = [[Fraction(1, 2), tiny], [Fraction(1, 8), 1 - tiny]]
    mean = [sum(w * T[label] for w, T in zip(weights, parts, strict=True)) for label in range(2)]
    cross = sum(w * T[0] * T[1] for w, T in zip(weights, parts, strict=True)) - mean[0] * mean[1]
    determinant = mean[0] * (1 - mean[0]) * mean[1] * (1 - mean[1]) - cross**2
    found = log_determinants(np.array([weights], float), np.array(parts, float))
    assert found[0] == pytest.approx(np.log(float(determinant)), abs=1e-10)


def test_labels_that_are_rare_in_every_part() -> None:
    """Variances of 1e-12 and 1e-18 beside a label that the part decides: independent, so products."""
    weights = np.array([[0.25, 0.75]])
    parts = np.array([[1.0, 1e-12, 1e-18], [0.0, 1e-12, 1e-18]])
    expected = np.log(0.25 * 0.75) + np.log(1e-12) + np.log(1e-18)
    assert log_determinants(weights, parts)[0] == pytest.approx(expected, abs=1e-9)


def test_singular_covariances_are_minus_infinity_and_finite_with_eps() -> None:
    law = mixture(4, 3, 5)
    law.parts[:, 2] = 0.0
    assert (log_determinants(law.weights, law.parts) == -np.inf).all()
    np.testing.assert_allclose(log_determinants(law.weights, law.parts, EPS), dense(law, EPS), atol=1e-8)
    law.parts[:] = law.parts > 0.3  # every label certain within every part: rank below the labels
    assert (log_determinants(law.weights, law.parts) == -np.inf).all()
    np.testing.assert_allclose(log_determinants(law.weights, law.parts, 1e-3), dense(law, 1e-3), atol=1e-8)
    certain = np.eye(3)[[0]]  # all weight on one part
    assert log_determinants(certain, law.parts)[0] == -np.inf
    assert log_determinants(np.ones((1, 1)), np.ones((1, 1)))[0] == -np.inf


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, labels in ((4, 9), (9, 4)):
        law = mixture(23, count, labels)
        whole = log_determinants(law.weights, law.parts)
        monkeypatch.setattr("labelzoo.acquisition.label_covariance.BLOCK_BYTES", 900)
        np.testing.assert_allclose(log_determinants(law.weights, law.parts), whole, rtol=1e-12)


def test_score_is_the_formula() -> None:
    law = mixture(9, 3, 5)
    Y = np.array([[1.0, np.nan], [np.nan, np.nan], [0.0, 1.0]])
    problem = Problem(mixture_law=law, Y_labelled=Y)
    logdet = dense(law, EPS)
    eta = 1.0 + 9.0 * np.exp(-2 / 100)  # two rows have a label
    np.testing.assert_allclose(find("gp_b2m").scores(problem), logdet + eta * law.weight_variance, atol=1e-8)
    np.testing.assert_allclose(find("label_logdet").scores(problem), logdet, atol=1e-8)
    np.testing.assert_array_equal(find("gate_variance").scores(problem), law.weight_variance)

    def z(values: Array) -> Array:
        return (values - values.mean()) / values.std()

    eta = 0.1 + 0.9 * np.exp(-2 / 100)
    found = find("gp_b2m_standardised").scores(problem)
    np.testing.assert_allclose(found, z(logdet) + eta * z(law.weight_variance), atol=1e-7)
    with_none = gp_b2m_with(eta0=0.0, eta_inf=0.0).scores(problem)
    np.testing.assert_allclose(with_none, logdet, atol=1e-8)


def test_schedule_and_flat_pools() -> None:
    assert eta_at(0, 5.0, 1.0) == 5.0
    assert eta_at(100, 5.0, 1.0) == pytest.approx(1 + 4 / np.e)
    assert eta_at(10**6, 5.0, 1.0) == 1.0
    np.testing.assert_array_equal(standardised(np.full(4, 0.3)), 0.0)
    law = MixtureLaw(np.tile([0.5, 0.5], (4, 1)), [[0.1, 0.9], [0.4, 0.2]], np.zeros(4))
    assert np.isfinite(find("gp_b2m_standardised").scores(Problem(mixture_law=law))).all()


@pytest.mark.parametrize("name", NAMES)
def test_batches_hold_the_highest_scores_and_costs_count(name: str) -> None:
    law = mixture(12, 3, 5)
    problem = Problem(mixture_law=law, seed=4)
    scores = find(name).scores(problem)
    choice = find(name)(problem, 4)
    np.testing.assert_array_equal(choice.rows, np.argsort(-scores)[:4])
    with pytest.raises(ValueError, match=f"'{name}' needs mixture_law: the mixture law"):
        find(name)(Problem(X_pool=np.zeros((2, 1))), 1)
    made = Problem(mixture_law=lambda: law)
    np.testing.assert_array_equal(find(name).scores(made), scores)
    with pytest.raises(ValueError, match="mixture_law must be a MixtureLaw, got ndarray"):
        find(name)(Problem(mixture_law=np.eye(3)), 1)
    with pytest.raises(ValueError, match="mixture_law has 12 rows, the pool has 3"):
        find(name)(Problem(mixture_law=law, X_pool=np.zeros((3, 1))), 1)


def test_subset_and_shape() -> None:
    law = mixture(6, 3, 4)
    some = law.subset([4, 1])
    assert law.shape == (6, 4) and some.shape == (2, 4)
    np.testing.assert_array_equal(some.covariance(0), law.covariance(4))
    assert some.weight_variance[1] == law.weight_variance[1]


GOOD: dict[str, Any] = {
    "weights": [[0.5, 0.5], [1.0, 0.0]],
    "parts": [[0.1, 0.2, 0.3], [0.0, 1.0, 0.5]],
    "weight_variance": [0.1, 0.0],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"weights": [[0.5, 0.5], [np.nan, 1]]},
            r"weights\[1, 0\] is nan, not a finite number of at least 0",
        ),
        ({"weights": [[0.5, 0.5], [1.5, -0.5]]}, r"weights\[1, 1\] is -0.5"),
        ({"weights": [[0.5, 0.5], [0.6, 0.5]]}, "weights of row 1 sum to 1.1, not to 1"),
        ({"weights": [[1.0], [1.0]]}, "weights are of 1 parts, parts has 2"),
        ({"weights": [0.5, 0.5]}, r"weights must have 2 axes, got shape \(2,\)"),
        ({"weights": [["a", "b"]]}, "weights must be numbers"),
        ({"parts": [[0.1, 1.2], [0.0, 1.0]]}, r"parts\[0, 1\] is 1.2, not a probability"),
        ({"parts": np.zeros((2, 0))}, r"parts must be \(part, labels\), at least \(1, 1\), got \(2, 0\)"),
        ({"weight_variance": [0.1]}, "weights has 2 rows, weight_variance 1"),
        ({"weight_variance": [0.1, -1.0]}, r"weight_variance\[1\] is -1.0"),
    ],
)
def test_laws_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    MixtureLaw(**GOOD)
    with pytest.raises(ValueError, match=f"mixture_law: .*{message}"):
        MixtureLaw(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"eta0": -1.0}, "eta0 must be a finite number of at least 0, got -1.0"),
        ({"eta_inf": np.nan}, "eta_inf must be a finite number"),
        ({"decay": 0.0}, "decay must be a finite number above 0"),
        ({"eps": 0.0}, "eps must be a finite number above 0"),
        ({"standardise": 1}, "standardise must be True or False, got 1"),
    ],
)
def test_bad_options(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gp_b2m_with(**words)
