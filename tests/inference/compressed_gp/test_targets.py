"""Targets of the three compressions: same form, same fitted rows, nothing where nothing varies."""

from typing import Any

import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.compressed_gp.targets import COMPRESSIONS, targets_of
from labelzoo.models import bpca_card

Array = Any


def prepared(Y: Array, **settings: Any) -> dict[str, Any]:
    data = LabelData(np.zeros((len(Y), 1)), Y)
    return bpca_card.prepare(data, bpca_card.spec.resolve(settings))


@pytest.fixture
def labels() -> Array:
    rng = np.random.default_rng(5)
    scores = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 12))
    return (scores + rng.standard_normal((60, 12)) > 1.0).astype(np.int8)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_targets_are_centred_and_lead_back_to_the_rows(labels: Array, compression: str) -> None:
    inputs = prepared(labels)
    found = targets_of(inputs, compression)
    U, R = found.targets, inputs["compressed"]
    np.testing.assert_allclose(U.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose((U**2).mean(axis=0), 1.0, atol=1e-10)
    back = found.offset + U @ found.loadings.T
    if compression == "none":
        np.testing.assert_allclose(back, R, atol=1e-10)
        np.testing.assert_allclose(found.weights, R.var(axis=0), atol=1e-12)
    else:
        np.testing.assert_allclose(U.T @ U, len(U) * np.eye(U.shape[1]), atol=1e-8)
        assert (np.diff(found.weights) <= 0).all()
        assert ((R - back) ** 2).sum() < ((R - R.mean(axis=0)) ** 2).sum()


def test_maximum_likelihood_keeps_every_direction(labels: Array) -> None:
    inputs = prepared(labels, num_components=4)
    found = targets_of(inputs, "ppca")
    eigenvalues = np.linalg.eigvalsh(np.cov(inputs["compressed"].T, bias=True))[::-1]
    np.testing.assert_allclose(found.weights, eigenvalues[:4], rtol=1e-8)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("rows", [1, 8])
def test_rows_that_are_alike_have_no_target(compression: str, rows: int) -> None:
    found = targets_of(prepared(np.zeros((rows, 6), np.int8)), compression)
    assert found.targets.shape == (rows, 0)
    assert found.loadings.shape == (3, 0) and found.weights.shape == (0,)
    np.testing.assert_allclose(found.offset, 0.0, atol=1e-12)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("ones", [1, 4, 6])
@pytest.mark.parametrize("measurements", [None, 6])
def test_any_repeated_row_has_no_target(compression: str, ones: int, measurements: int | None) -> None:
    """The mean of equal numbers is not exactly theirs: what is left of the variance is rounding."""
    for rows in (3, 7, 50):
        labels = np.tile(np.arange(6) < ones, (rows, 1)).astype(np.int8)
        inputs = prepared(labels, num_measurements=measurements)
        found = targets_of(inputs, compression)
        assert found.targets.shape == (rows, 0)
        # The mean of bpca is shrunk by its prior.
        np.testing.assert_allclose(found.offset, inputs["row_mean"], rtol=1e-2, atol=1e-3)


def test_measurements_that_vary_little_or_not_are_told_apart() -> None:
    R = 1e3 / 3 + np.array([[0.0, 0.0, 1.0], [0.0, 1e-3, -1.0], [0.0, -1e-3, 0.0]])
    R[:, 0] = 0.1
    found = targets_of({"compressed": R}, "none")
    np.testing.assert_allclose(found.weights, R.var(axis=0)[1:])


def test_another_compression_is_refused(labels: Array) -> None:
    with pytest.raises(ValueError, match="compression must be one of bpca, ppca, none, got 'pca'"):
        targets_of(prepared(labels), "pca")
