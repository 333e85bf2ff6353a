"""The ensemble score against brute-force Gaussian conditioning, and the selectors' promises."""

import numpy as np
import pytest
import xarray as xr

from labelzoo.acquisition import (
    PoolExhausted,
    condition,
    greedy,
    make_ensemble,
    next_rows,
    score,
    top,
    variance_reduction,
)


def draws(samples: int = 300, rows: int = 6, labels: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((samples, 2))
    load = rng.standard_normal((2, rows * labels))
    return 1 / (1 + np.exp(-(factor @ load).reshape(samples, rows, labels)))


def dense_posterior(probs: np.ndarray, asked: list[int]) -> np.ndarray:
    """Covariance of all cells after the labels of the rows `asked`, by dense linear algebra."""
    samples, rows, labels = probs.shape
    covariance = np.cov(probs.reshape(samples, -1), rowvar=False)
    noise = (probs * (1 - probs)).mean(axis=0).ravel()
    cells = np.concatenate([np.arange(labels) + row * labels for row in asked])
    gain = covariance[:, cells] @ np.linalg.inv(covariance[np.ix_(cells, cells)] + np.diag(noise[cells]))
    return covariance - gain @ covariance[cells]


def removed(probs: np.ndarray, row: int) -> float:
    samples, rows, labels = probs.shape
    before = np.cov(probs.reshape(samples, -1), rowvar=False)
    others = np.setdiff1d(np.arange(rows * labels), np.arange(labels) + row * labels)
    return float(np.trace((before - dense_posterior(probs, [row]))[np.ix_(others, others)]))


def test_score_equals_dense_conditioning() -> None:
    probs = draws()
    expected = [removed(probs, row) for row in range(probs.shape[1])]
    np.testing.assert_allclose(variance_reduction(make_ensemble(probs)), expected, rtol=1e-9)


def test_score_is_not_the_row_variance() -> None:
    """A row that varies alone teaches nothing about the others, however uncertain it is."""
    probs = draws()
    probs[:, 0] = np.random.default_rng(1).uniform(0.01, 0.99, probs[:, 0].shape)
    scores = variance_reduction(make_ensemble(probs))
    assert probs[:, 0].var(axis=0).sum() > probs[:, 1:].var(axis=0).sum(axis=1).max()
    assert scores[0] < scores[1:].max() / 5


def test_conditioning_leaves_the_posterior_covariance() -> None:
    probs = draws()
    after = condition(make_ensemble(probs), 2).anomalies.reshape(len(probs), -1)
    np.testing.assert_allclose(after.T @ after, dense_posterior(probs, [2]), atol=1e-12)


def test_greedy_conditions_on_its_picks() -> None:
    """Two copies of the best row: the second copy is worth less once the first is asked."""
    probs = draws(rows=5)
    best = int(np.argmax(variance_reduction(make_ensemble(probs))))
    doubled = np.concatenate([probs, probs[:, [best]]], axis=1)
    rows, gains = greedy(make_ensemble(doubled), 6)
    assert sorted(rows) == list(range(6))
    assert (np.diff(gains) <= 1e-9).all()


def test_weights_move_the_choice() -> None:
    probs = draws()
    weights = np.zeros(6)
    weights[3] = 1.0
    scores = variance_reduction(make_ensemble(probs), weights)
    assert scores[3] < 1e-12 * scores.max()
    with pytest.raises(ValueError, match="weights must be 6 finite numbers"):
        variance_reduction(make_ensemble(probs), weights[:4])


def test_bad_probs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"probs must be \(sample, row, labels\)"):
        make_ensemble(np.ones((4, 2)))
    with pytest.raises(ValueError, match="probabilities between 0 and 1"):
        make_ensemble(np.full((4, 2, 2), 1.5))
    with pytest.warns(UserWarning, match="20 draws: ensemble scores need at least 200"):
        make_ensemble(draws(samples=20))


def test_top_breaks_ties_by_seed_and_returns_distinct_ids() -> None:
    scores = np.array([1.0, 1.0, 1.0, 0.0, np.nan])
    picked = {tuple(top(scores, 3, seed=seed)) for seed in range(20)}
    assert len(picked) > 1
    assert all(set(choice) == {0, 1, 2} for choice in picked)
    assert list(top(scores, 3, seed=4)) == list(top(scores, 3, seed=4))
    assert top(scores, 5)[-1] == 4


def test_small_pools_are_said() -> None:
    with pytest.warns(UserWarning, match="whole pool is returned"):
        assert sorted(top(np.arange(3.0), 5)) == [0, 1, 2]
    with pytest.raises(PoolExhausted):
        top(np.array([]), 1)
    with pytest.raises(ValueError, match="batch must be a positive integer"):
        top(np.arange(3.0), 0)


def tree_of(probs: np.ndarray, kind: str = "mcmc") -> xr.DataTree:
    array = xr.DataArray(
        probs[None],
        dims=("chain", "draw", "obs", "labels"),
        coords={"obs": [f"row {i}" for i in range(probs.shape[1])], "labels": list("abc")},
    )
    tree = xr.DataTree.from_dict({"predictions": xr.Dataset({"label_prob": array})})
    tree.attrs = {"kind": kind, "engine": "probe"}
    return tree


def test_front_reads_a_datatree() -> None:
    probs = draws()
    scores = score(tree_of(probs))
    assert scores.dims == ("obs",)
    np.testing.assert_allclose(scores.values, variance_reduction(make_ensemble(probs)))
    table = next_rows(tree_of(probs), 3)
    assert table["obs"][0] == scores["obs"].values[np.argmax(scores.values)]
    assert len(set(table["obs"])) == 3


def test_front_refuses_what_it_cannot_read() -> None:
    with pytest.raises(ValueError, match="points for its global sites"):
        score(tree_of(draws(), kind="point"))
    with pytest.raises(ValueError, match="no predictions/label_prob"):
        score(xr.DataTree())
    with pytest.raises(ValueError, match="no acquisition function 'nonsense'"):
        score(tree_of(draws()), "nonsense")
