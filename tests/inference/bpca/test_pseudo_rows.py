"""Pseudo-rows stand for the rows, and a column that is switched off for one that is not there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from labelzoo.inference.bpca import factors as steps
from labelzoo.inference.bpca import fixed_shape
from labelzoo.inference.bpca.factors import Factors, bound, expected_square
from labelzoo.inference.bpca.fixed_shape import climb_padded, switched_off
from labelzoo.inference.bpca.mean_field import climb, dropped, start
from labelzoo.inference.bpca.pseudo_rows import arrays_of, pseudo_rows
from labelzoo.inference.bpca.rotation import rotation_step
from tests.inference.bpca.test_factors import planted, rows_of


def close(one: Factors, other: Factors) -> None:
    for name, a, b in zip(Factors._fields, one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize(("rows", "size"), [(40, None), (40, 7), (4, None), (4, 9), (1, 5)])
def test_pseudo_rows_fit_as_the_rows_do(rows, size):
    inputs = rows_of(planted(0, m=40, d=4, rank=2)[:rows], num_components=3)
    first, whole = start(jax.random.key(0), inputs, 3), arrays_of(inputs)
    pseudo = pseudo_rows(inputs, size)
    assert len(pseudo.arrays["ones"]) == (size or min(rows, 5))
    own, other = jax.tree.map(jnp.asarray, (first, pseudo.reduced(first)))
    for update in (*steps.UPDATES, lambda f, arrays: rotation_step(f, arrays)[0]):
        own, other = update(own, whole), update(other, pseudo.arrays)
        close(own, pseudo.expanded(other))
        assert float(bound(other, pseudo.arrays)) == pytest.approx(float(bound(own, whole)), rel=1e-11)
        square = float(expected_square(other, pseudo.arrays))
        assert square == pytest.approx(float(expected_square(own, whole)), rel=1e-11)


def test_a_column_switched_off_is_one_that_is_not_there():
    inputs = rows_of(planted(0, m=12, d=4, rank=2), num_components=4)
    arrays = arrays_of(inputs)
    first = steps.sweep(start(jax.random.key(0), inputs, 4), arrays)
    keep = np.array([True, False, True, False])
    fewer, off = dropped(first, keep), switched_off(first, keep)
    for _ in range(20):
        fewer, value = rotation_step(steps.sweep(fewer, arrays), arrays)
        off, same = rotation_step(steps.sweep(off, arrays), arrays)
        assert float(same) == pytest.approx(float(value), rel=1e-12)
    assert (np.asarray(off.loadings_mean)[:, 2:] == 0).all() and (
        np.asarray(off.scores_mean)[:, 2:] == 0
    ).all()
    np.testing.assert_array_equal(np.asarray(off.scores_covariance)[2:], np.eye(4)[2:])
    close(fewer, dropped(off, np.array([True, True, False, False])))


def test_the_padded_climb_is_the_climb_and_is_compiled_once():
    programs = fixed_shape._ascend._cache_size()
    limits = {"max_iter": 2000, "tolerance": 1e-9, "prune": 1e-3}
    for rows in (6, 30, 31):
        inputs = rows_of(planted(1, m=31, d=8)[:rows])
        first = start(jax.random.key(0), inputs, 7)
        plain = climb(first, inputs, rotation=True, **limits)
        padded = climb_padded(first, inputs, **limits)
        assert padded.converged and abs(padded.iterations - plain.iterations) <= 2
        assert padded.objective[-1] == pytest.approx(plain.objective[-1], rel=1e-10)
        fits = [f.scores_mean @ np.asarray(f.loadings_mean).T for f in (padded.factors, plain.factors)]
        assert padded.factors.loadings_mean.shape == plain.factors.loadings_mean.shape
        np.testing.assert_allclose(*fits, atol=1e-9)
    assert fixed_shape._ascend._cache_size() == programs + 1


def test_the_budget_and_a_bound_that_is_none():
    inputs = rows_of(planted(1, m=30, d=8))
    first = start(jax.random.key(0), inputs, 7)
    few = climb_padded(first, inputs, max_iter=3, tolerance=1e-9, prune=1e-3)
    assert (few.iterations, few.converged) == (3, False) and "max_iter=3" in few.message
    bad = first._replace(noise_rate=np.asarray(np.nan))
    with pytest.raises(FloatingPointError, match="bound of bpca is nan"):
        climb_padded(bad, inputs, max_iter=3, tolerance=1e-9, prune=1e-3)
