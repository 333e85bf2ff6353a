"""The ensemble score against brute-force Gaussian conditioning, and the selectors' promises."""

import numpy as np
import pytest
import xarray as xr

from labelzoo.acquisition import (
    PoolExhausted,
    anomalies,
    condition,
    greedy,
    make_ensemble,
    next_rows,
    score,
    top,
    variance_reduction,
)
from labelzoo.acquisition.ensemble import ENTRIES, greedy_for_targets, target_gram
from labelzoo.acquisition.problem import Problem

ENTRY = ENTRIES[0]


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
    np.testing.assert_allclose(scores.values, variance_reduction(make_ensemble(probs), debias=True))
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


def removed_at_targets(probs: np.ndarray, targets: np.ndarray, asked: list[int]) -> float:
    """Variance at the targets before minus after the labels of `asked`, by dense linear algebra."""
    both = np.concatenate([probs, targets], axis=1)
    cells = slice(probs[0].size, None)
    before = np.cov(both.reshape(len(both), -1), rowvar=False)
    return float(np.trace((before - dense_posterior(both, asked))[cells, cells]))


@pytest.mark.parametrize(("samples", "labels"), [(300, 3), (220, 230)])
def test_targets_equal_dense_conditioning(samples: int, labels: int) -> None:
    """Both spaces: fewer labels than draws and more."""
    both = draws(samples, rows=5, labels=labels, seed=4)
    both += 0.01 * (np.random.default_rng(5).random(both.shape) - both)
    probs, targets = both[:, :3], both[:, 3:]
    gram = target_gram(targets)
    expected = [removed_at_targets(probs, targets, [row]) for row in range(3)]
    np.testing.assert_allclose(variance_reduction(make_ensemble(probs), gram=gram), expected, rtol=1e-8)
    rows, gains = greedy_for_targets(make_ensemble(probs), gram, 3)
    together = [removed_at_targets(probs, targets, list(rows[: b + 1])) for b in range(3)]
    np.testing.assert_allclose(np.cumsum(gains), together, rtol=1e-8)


def test_kept_terms_choose_as_scoring_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    both = draws(samples=200, rows=60, labels=5, seed=8)
    ensemble, gram = make_ensemble(both[:, :35]), target_gram(both[:, 35:])
    for debias in (False, True):
        kept = greedy_for_targets(ensemble, gram, 9, seed=1, debias=debias)
        with monkeypatch.context() as patch:
            patch.setattr("labelzoo.acquisition.ensemble.fits", lambda _: False)
            anew = greedy_for_targets(ensemble, gram, 9, seed=1, debias=debias)
        np.testing.assert_array_equal(kept[0], anew[0])
        np.testing.assert_allclose(kept[1], anew[1], rtol=1e-9)
    with pytest.raises(ValueError, match="the targets have 199 draws, the pool has 200"):
        greedy_for_targets(ensemble, gram[1:, 1:], 9)


@pytest.mark.parametrize(("labels", "own"), [(2, False), (2, True), (230, False), (230, True)])
def test_unrelated_draws_are_worth_nothing_once_their_share_is_taken_off(labels: int, own: bool) -> None:
    plain, debiased = [], []
    for seed in range(40 if labels == 2 else 8):
        both = np.random.default_rng(seed).uniform(0.2, 0.8, (210, 12, labels))
        ensemble = make_ensemble(both if own else both[:, :6])
        gram = None if own else target_gram(both[:, 6:])
        plain.append(variance_reduction(ensemble, gram=gram).mean())
        debiased.append(variance_reduction(ensemble, gram=gram, debias=True).mean())
    z = np.mean(debiased) / (np.std(debiased, ddof=1) / np.sqrt(len(debiased)))
    assert abs(z) < 5, f"z {z:.1f}, seeds from 0"
    assert np.mean(plain) > 20 * abs(np.mean(debiased))


def test_the_debiased_score_is_nearer_to_that_of_many_draws() -> None:
    """Rows 0 to 2 move with the targets a little, row 3 alone and much: few draws prefer row 3, wrongly."""
    rng = np.random.default_rng(3)
    load = np.concatenate([np.full(3, 0.03), np.zeros(1), np.full(40, 0.03)])[:, None]
    alone = np.concatenate([np.full(3, 0.02), np.full(1, 0.25), np.full(40, 0.1)])[:, None]

    def scores(samples: int, debias: bool) -> np.ndarray:
        shared = rng.standard_normal((samples, 1, 1))
        both = np.clip(0.5 + shared * load + alone * rng.standard_normal((samples, 44, 1)), 0, 1)
        return variance_reduction(make_ensemble(both[:, :4]), gram=target_gram(both[:, 4:]), debias=debias)

    exact = np.array([*[40 * (0.03 * 0.03) ** 2 / 0.25] * 3, 0.0])  # sum of cov^2 / (var + noise)
    plain, debiased = (np.mean([scores(200, flag) for _ in range(300)], axis=0) for flag in (False, True))
    assert plain[3] > 2 * plain[:3].max()
    assert debiased[:3].min() > 2 * debiased[3]
    assert np.abs(debiased - exact).max() < 0.1 * (plain - exact)[3]


@pytest.mark.parametrize("share", [0.0, 1 / 209])
def test_both_spaces_agree_on_the_pool_itself(share: float) -> None:
    probs = draws(samples=210, rows=4, labels=9, seed=6)
    own = make_ensemble(probs).anomalies.transpose(1, 0, 2)
    noise, weights = make_ensemble(probs).noise, np.arange(4.0)[:, None, None]
    gram = target_gram(probs, np.arange(4.0))
    np.testing.assert_allclose(
        anomalies._by_labels(own, noise, weights, gram, share),
        anomalies._by_samples(own, noise, weights, gram, share),
        rtol=1e-9,
        atol=1e-12,
    )


def test_a_gaussian_ensemble_gives_the_closed_form() -> None:
    """One label: cov^2 / (var + noise) at every target, from the covariance that made the draws."""
    rng = np.random.default_rng(2)
    root = np.linalg.cholesky([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])
    white = rng.standard_normal((500, 3))
    white = np.linalg.solve(np.linalg.cholesky(np.cov(white, rowvar=False)), (white - white.mean(axis=0)).T).T
    probs = (0.5 + 0.05 * white @ root.T)[:, :, None]
    covariance = 0.0025 * root @ root.T
    noise = 0.25 - 0.0025 * 499 / 500
    gram = target_gram(probs[:, 2:], [2.0])
    expected = 2 * covariance[:2, 2] ** 2 / (np.diag(covariance)[:2] + noise)
    np.testing.assert_allclose(
        variance_reduction(make_ensemble(probs[:, :2]), gram=gram), expected, rtol=1e-10
    )


def test_the_row_that_moves_with_the_targets_wins() -> None:
    targets = draws(samples=400, rows=3, seed=8)
    noise = np.random.default_rng(9).uniform(0.01, 0.99, (400, 5, 3))
    probs = np.concatenate([noise[:, :2], targets[:, [1]], noise[:, 2:]], axis=1)
    problem = Problem(probs=probs, target_probs=lambda: targets)
    assert ENTRY(problem, 2).rows[0] == 2
    assert np.argmax(ENTRY.score(problem)) == 2


def test_entry_reads_targets_and_weights() -> None:
    probs, targets = draws(rows=8)[:, :5], draws(rows=8)[:, 5:]
    weights = np.array([0.0, 3.0, 1.0])
    given = ENTRY.score(Problem(probs=probs, target_probs=targets, weights=weights))
    ensemble, grams = make_ensemble(probs), [target_gram(targets[:, [at]]) for at in (1, 2)]
    by_hand = 3 * variance_reduction(ensemble, gram=grams[0], debias=True)
    by_hand = by_hand + variance_reduction(ensemble, gram=grams[1], debias=True)
    np.testing.assert_allclose(given, by_hand, rtol=1e-10)
    pool = ENTRY.score(Problem(probs=probs))
    np.testing.assert_allclose(pool, variance_reduction(ensemble, debias=True))
    choice = ENTRY(Problem(probs=probs), 3)
    rows, gains = greedy(ensemble, 3, debias=True)
    assert (choice.rows == rows).all() and (choice.gains == gains).all()
    assert choice.report["samples"] == 300


def test_order_of_draws_and_labels_does_not_matter() -> None:
    probs = draws(rows=8)
    rng = np.random.default_rng(3)
    other = probs[rng.permutation(300)][:, :, rng.permutation(3)]
    scores = [ENTRY.score(Problem(probs=p[:, :5], target_probs=p[:, 5:])) for p in (probs, other)]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-9)


def test_draws_of_pool_and_targets_must_match() -> None:
    with pytest.raises(ValueError, match="the targets have 250 draws, the pool has 300"):
        variance_reduction(make_ensemble(draws()), gram=target_gram(draws(samples=250)))
    with pytest.raises(ValueError, match="target_probs must be .* two samples or more"):
        target_gram(draws(samples=1))
    bad = draws()
    bad[7, 4, 1] = np.nan
    with pytest.raises(ValueError, match="target_probs .*sample 7, row 4, label 1 is nan"):
        target_gram(bad)
