"""The batched gradient is the gradient, and padding changes nothing."""

import jax
import numpy as np
import pytest

from labelzoo.inference.compressed_gp import gradient_jax as jaxed
from labelzoo.inference.compressed_gp import hyperparameters as hyper
from labelzoo.inference.compressed_gp import kernel14 as k14
from tests.inference.compressed_gp.test_hyperparameters import planted


@pytest.mark.parametrize("multiple", [1, 64])
def test_objective_and_gradient_are_the_analytic_ones(multiple, monkeypatch):
    monkeypatch.setattr(jaxed, "MULTIPLE", multiple)
    U, caches = planted(targets=3)
    x = np.random.default_rng(2).normal(size=(3, 5))
    tables = jaxed.padded(U, caches)
    assert tables[0].shape == (3, 20 if multiple == 1 else 64)
    with jax.enable_x64(True):
        value, slope = jaxed.evaluated(x, *tables)
    want = hyper.objective_gradient(x, U, caches)
    np.testing.assert_allclose(value, want.value, rtol=1e-11)
    np.testing.assert_allclose(slope, want.gradient, atol=1e-9)


def test_the_batch_goes_the_way_of_the_gradient():
    U, caches = planted(targets=4)
    one, other = jaxed.gradient_jax(U, caches), hyper.gradient(U, caches)
    np.testing.assert_allclose(one.objective, other.objective, atol=1e-7)
    assert (np.abs(one.evaluations - other.evaluations) <= 5).all() and one.converged.all()
    again = jaxed.gradient_jax(U, caches, theta=one.theta)
    assert (again.evaluations < one.evaluations).all()
    np.testing.assert_allclose(again.objective, one.objective, atol=1e-6)


def test_no_target_and_what_does_not_fit():
    caches = k14.Caches(np.ones((3, 2)))
    assert jaxed.gradient_jax(np.empty((3, 0)), caches).theta.shape == (0, 5)
    with pytest.raises(ValueError, match="targets must have 3 rows"):
        jaxed.gradient_jax(np.ones((2, 1)), caches)


def test_searches_of_unlike_length_and_an_error_end():
    centers = np.array([[0.0] * 5, [1.0] * 5, [-7.0] * 5])
    calls = []

    def square(points):
        calls.append(len(points))
        gap = points - centers
        return (gap**4).sum(axis=1) + gap[:, 0] ** 2, 4 * gap**3 + 2 * gap * np.eye(5)[0]

    found = jaxed.in_lock_step(np.zeros((3, 5)), square)
    np.testing.assert_allclose([one.x for one in found], centers, atol=0.1)
    assert set(calls) == {3} and len(calls) == max(one.nfev for one in found)
    assert found[0].nfev == 1

    def broken(points):
        raise RuntimeError("no value")

    with pytest.raises(RuntimeError, match="no value"):
        jaxed.in_lock_step(np.zeros((2, 5)), broken)
