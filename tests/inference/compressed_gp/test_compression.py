"""One call from rows of labels to targets."""

import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.compressed_gp.compression import compress
from labelzoo.models.bpca_card import spec


def inputs_of(Y, **settings):
    return spec.prepare(LabelData(np.zeros((len(Y), 1)), Y), spec.resolve(settings))


def planted(rows=40, labels=12, groups=3, seed=2):
    rng = np.random.default_rng(seed)
    share = rng.beta(0.3, 1.0, (groups, labels))
    return (rng.random((rows, labels)) < share[rng.integers(groups, size=rows)]).astype(int)


def test_targets_are_those_of_the_engine():
    inputs = inputs_of(planted())
    found = compress(inputs)
    U = found.canonical.targets
    assert found.converged and U.shape[1] == len(found.canonical.weights) > 0
    np.testing.assert_allclose(U.T @ U, 40 * np.eye(U.shape[1]), atol=1e-8)
    fitted = found.factors.scores_mean @ found.factors.loadings_mean.T + found.factors.mean_mean
    back = U @ found.canonical.loadings.T + found.canonical.offset
    np.testing.assert_allclose(back, fitted, atol=1e-9)
    assert (np.diff(found.canonical.weights) <= 0).all()
    gap = ((inputs["compressed"] - fitted) ** 2).mean()
    assert gap < 1.2 * found.noise_variance


def test_rows_that_are_alike_leave_no_target():
    found = compress(inputs_of(np.tile([1, 0, 0, 1], (5, 1))))
    assert found.canonical.targets.shape == (5, 0)


def test_the_budget():
    assert not compress(inputs_of(planted()), max_iter=2).converged
    with pytest.raises(ValueError, match="max_iter"):
        compress(inputs_of(planted()), max_iter=0)
