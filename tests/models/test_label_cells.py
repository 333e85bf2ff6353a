"""Sums over label cells against their dense definitions, whatever is missing."""

import jax.numpy as jnp
import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.models.label_cells import exposed_embedding, exposed_mass, list_cells, missing_embedding


def label_matrix(kind: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    Y = (rng.random((9, 7)) < 0.3).astype(float)
    Y[0], Y[1] = 0.0, 1.0
    Y[2, :6] = 1.0
    hidden = {"none": 0.0, "few": 0.2, "most": 0.8}[kind]
    Y[rng.random(Y.shape) < hidden] = np.nan
    if kind != "none":
        Y[4] = np.nan
    return Y


@pytest.mark.parametrize("kind", ["none", "few", "most"])
def test_sums_equal_dense_ones(kind: str) -> None:
    Y = label_matrix(kind)
    data = LabelData.from_arrays(np.ones((9, 2)), Y)
    positives, negatives = list_cells(data)
    rng = np.random.default_rng(4)
    topics = jnp.asarray(rng.dirichlet(np.ones(7), 3))
    embedding = jnp.asarray(rng.gamma(1.0, size=(9, 3)))
    time = rng.random(positives.row.size)
    exposure = (Y == 0).astype(float)
    exposure[positives.row, positives.label] = time
    np.testing.assert_allclose(
        exposed_mass(topics, jnp.asarray(time), positives, negatives), exposure @ topics.T, atol=1e-14
    )
    np.testing.assert_allclose(
        exposed_embedding(embedding, jnp.asarray(time), positives, negatives, 7),
        embedding.T @ exposure,
        atol=1e-13,
    )
    np.testing.assert_allclose(
        missing_embedding(embedding, positives, negatives, 7), embedding.T @ np.isnan(Y), atol=1e-12
    )


def test_the_shorter_list_is_kept() -> None:
    Y = np.ones((50, 40))
    Y[:, 0] = 0.0
    _, negatives = list_cells(LabelData.from_arrays(np.ones((50, 1)), Y))
    assert negatives.row.size == 50
    assert not negatives.base.any()
