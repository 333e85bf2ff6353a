"""Labels of compressed rows: exact support recovery, least squares on the support, edge cases."""

import jax
import numpy as np
import pytest

from labelzoo.inference.compressed_gp import decoding
from labelzoo.inference.compressed_gp.ranking import decode

TABLE = {
    (40, 20, 3): (1.00, 0.93, 0.40),
    (40, 20, 6): (1.00, 0.28, 0.03),
    (100, 20, 5): (0.85, 0.15, 0.00),
    (157, 79, 6): (1.00, 1.00, 0.53),
}
"""By (labels, measurements, ones): shares of exact supports in 40 trials by bp, omp and corr."""


def trials(shape, count, seed):
    """Random supports, each with a projection of its own."""
    labels, d, k = shape
    rng = np.random.default_rng(seed)
    for _ in range(count):
        A = rng.normal(0, d**-0.5, (d, labels))
        y = np.zeros(labels)
        y[rng.choice(labels, k, replace=False)] = 1.0
        yield A, y


def recovered(shape, count, methods, seed=11):
    hits = np.zeros(len(methods))
    for A, y in trials(shape, count, seed):
        for i, method in enumerate(methods):
            got = decode((A @ y)[None], A, levels=shape[2], method=method).labels[0]
            hits[i] += np.array_equal(got, y == 1)
    return hits / count


def agree(got, want, count):
    """Difference over the error of both shares, the stated one of 40 trials, by Agresti's estimate."""
    p = (got * count + want * 40 + 2) / (count + 40 + 4)
    return abs(got - want) / np.sqrt(p * (1 - p) * (1 / count + 1 / 40))


@pytest.mark.parametrize("method", ["bp", "omp", "corr"])
def test_exact_support_recovery(method):
    shape = (40, 20, 3)
    want = TABLE[shape][["bp", "omp", "corr"].index(method)]
    (got,) = recovered(shape, 25, (method,))
    z = agree(got, want, 25)
    assert z < 4, f"{method}: share {got}, stated {want}, z {z:.1f}, seed 11"


@pytest.mark.slow
@pytest.mark.parametrize("shape", TABLE)
def test_exact_support_recovery_table(shape):
    got = recovered(shape, 200, ("bp", "omp", "corr"))
    z = [agree(g, w, 200) for g, w in zip(got, TABLE[shape], strict=True)]
    assert max(z) < 4, f"{shape}: shares {got}, stated {TABLE[shape]}, z {np.round(z, 1)}, seed 11"


def test_matching_pursuit_is_the_greedy_loop():
    rng = np.random.default_rng(2)
    A, R, levels = rng.normal(size=(5, 8)), rng.normal(size=(6, 5)), np.array([0, 1, 2, 3, 4, 5])
    got = decoding.matching_pursuit(R, A, levels)
    for r, level, c, selected in zip(R, levels, *got, strict=True):
        support, rest, solution = [], r, np.zeros(0)
        for _ in range(level):
            score = np.abs(rest @ A) / np.linalg.norm(A, axis=0)
            score[support] = -1
            support.append(int(score.argmax()))
            solution = np.linalg.lstsq(A[:, support], r)[0]
            rest = r - A[:, support] @ solution
        assert np.flatnonzero(selected).tolist() == sorted(support)
        np.testing.assert_allclose(c[support], solution, atol=1e-10)
        assert np.count_nonzero(c) == len(support)


def test_matching_pursuit_stops_at_no_residual_and_passes_over_empty_and_equal_columns():
    A = np.array([[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    got = decoding.matching_pursuit([[2.0, 0.0], [0.0, 0.0], [1.0, 3.0]], A, 4)
    assert got.selected.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]]
    np.testing.assert_allclose(got.coefficients, [[0, 2, 0, 0], [0] * 4, [0, 1, 0, 3]], atol=1e-12)


def test_pursuit_inside_jit():
    with jax.enable_x64(True):
        rng = np.random.default_rng(2)
        A, R = rng.normal(size=(5, 8)), rng.normal(size=(3, 5))
        levels = np.full(3, 2)
        got, _ = jax.jit(lambda r: decoding.pursue(r, A, levels, 2))(R)
        np.testing.assert_allclose(got, decoding.matching_pursuit(R, A, 2).coefficients, atol=1e-12)


def test_basis_pursuit_against_every_vertex():
    """The optimum of the exact program over all y in a fine grid of an example of one dimension."""
    A = np.array([[1.0, 2.0, -1.0]])
    got = decoding.basis_pursuit([[1.0]], A, form="exact")
    np.testing.assert_allclose(got, [[0.0, 0.5, 0.0]], atol=1e-9)


def test_noisy_program_minimises_its_objective():
    rng = np.random.default_rng(4)
    A, r = rng.normal(size=(3, 4)), rng.normal(size=3)

    def cost(y):
        return np.abs(y @ A.T - r).sum(-1) + 0.1 * y.sum(-1)

    got = decoding.basis_pursuit(r[None], A, form="noisy")[0]
    axes = np.meshgrid(*[np.linspace(0, 1, 21)] * 4)
    rivals = np.stack(axes, axis=-1).reshape(-1, 4)
    assert cost(got) <= cost(rivals).min() + 1e-9
    near = np.clip(got + 1e-3 * rng.normal(size=(2000, 4)), 0, 1)
    assert cost(got) <= cost(near).min() + 1e-9


@pytest.mark.parametrize(("size", "want"), [(0.3, 1.0), (0.12, 1.0), (0.08, 0.0)])
def test_a_label_is_taken_where_it_explains_more_than_a_tenth(size, want):
    """|size y - 1| + .1 y falls with y where size is above .1: a larger cost would drop the label."""
    for form in ("noisy", "auto"):
        np.testing.assert_allclose(decoding.basis_pursuit([[1.0]], [[size]], form=form), want, atol=1e-9)


def test_auto_takes_the_noisy_form_where_there_is_no_solution():
    A = np.eye(2)
    np.testing.assert_allclose(decoding.basis_pursuit([[0.3, 1.0], [1.4, -0.2]], A), [[0.3, 1], [1, 0]])
    with pytest.raises(ValueError, match="compressed row 1 has no y"):
        decoding.basis_pursuit([[0.3, 1.0], [1.4, -0.2]], A, form="exact")


def test_bad_input_is_named():
    A = np.eye(2)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=f"compressed has {bad} at row 1, column 0"):
            decoding.correlation([[0.0, 1.0], [bad, 0.0]], A)
    with pytest.raises(ValueError, match=r"compressed must have shape \(rows, 2\)"):
        decoding.basis_pursuit([[1.0]], A)
    with pytest.raises(ValueError, match="form must be"):
        decoding.basis_pursuit([[1.0, 0.0]], A, form="l2")
    with pytest.raises(ValueError, match="levels must be at least 0, got -1"):
        decoding.matching_pursuit([[1.0, 0.0]], A, -1)
    with pytest.raises(ValueError, match="levels must be one int or 1 of them"):
        decoding.matching_pursuit([[1.0, 0.0]], A, 1.5)
