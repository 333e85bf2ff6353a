"""The kernel: the same numbers for dense and sparse rows, and what it refuses."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics.pairwise import cosine_similarity, rbf_kernel
from sklearn.preprocessing import StandardScaler

from labelzoo.models.gp_kernel import feature_map, median_squared_distance

RNG = np.random.default_rng(5)
DENSE = RNG.normal(3.0, [1.0, 20.0, 0.1], (12, 3))
COUNTS = RNG.poisson(0.7, (12, 8)).astype(float)
COUNTS[4] = 0.0


def test_rbf_is_that_of_standardised_features() -> None:
    kernel = feature_map(DENSE, "rbf")._replace(length2=1.7)
    Z = StandardScaler().fit_transform(DENSE)
    np.testing.assert_allclose(kernel.between(DENSE, DENSE[:4]), rbf_kernel(Z, Z[:4], 1 / 3.4), atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(DENSE), 1.0)


def test_cosine_is_that_of_tf_idf() -> None:
    kernel = feature_map(sparse.csr_array(COUNTS))
    assert kernel.is_cosine
    Z = TfidfTransformer().fit_transform(sparse.csr_matrix(COUNTS))
    np.testing.assert_allclose(kernel.between(COUNTS, COUNTS), cosine_similarity(Z, Z), atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(COUNTS), np.arange(12) != 4)


@pytest.mark.parametrize("kind", ["rbf", "cosine"])
def test_sparse_rows_give_the_numbers_of_dense_ones(kind: str) -> None:
    X = sparse.csr_array(COUNTS)
    kernel = feature_map(X, kind)
    dense = kernel.between(COUNTS, COUNTS[:5])
    assert sparse.issparse(kernel.mapped(X))
    np.testing.assert_allclose(kernel.between(X, X[:5]), dense, atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(X), kernel.diagonal(COUNTS), atol=1e-12)


def test_auto_takes_rbf_for_dense_and_for_negative_features() -> None:
    assert not feature_map(DENSE).is_cosine
    assert not feature_map(sparse.csr_array(COUNTS - 1.0)).is_cosine


def test_constant_features_and_equal_rows_do_no_harm() -> None:
    X = np.column_stack([np.full(5, 7.0), np.zeros(5)])
    kernel = feature_map(X, "rbf")
    assert np.isfinite(kernel.between(X, X)).all()
    assert median_squared_distance(kernel.mapped(X)) == 1.0


def test_median_is_over_distinct_pairs() -> None:
    Z = np.array([[0.0], [0.0], [1.0], [3.0]])
    assert median_squared_distance(Z) == np.median([1.0, 1.0, 9.0, 9.0, 4.0])


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="kernel must be one of auto, rbf, cosine, got 'linear'"):
        feature_map(DENSE, "linear")
    with pytest.raises(ValueError, match="missing or infinite features"):
        feature_map(np.where(DENSE > 3, np.nan, DENSE))
