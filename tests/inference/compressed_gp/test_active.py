"""A run of active learning on compressed targets: what is kept equals what is computed anew."""

import numpy as np
import pytest

from labelzoo.acquisition.weighted_entropy import weighted_entropy
from labelzoo.inference.compressed_gp import active
from labelzoo.inference.compressed_gp import kernel14 as k14
from labelzoo.inference.compressed_gp.active import ActiveTargets, read_state
from labelzoo.inference.compressed_gp.hyperparameters import Fit


def made_up(seed=7, rows=16, pool=24, labels=14, groups=6):
    """Rows of some groups: features tell the group, and the group the labels."""
    rng = np.random.default_rng(seed)
    group = rng.integers(groups, size=rows + pool)
    X = rng.normal(size=(groups, 4))[group] + 0.5 * rng.normal(size=(rows + pool, 4))
    share = rng.beta(0.1, 0.2, (groups, labels))
    Y = (rng.random((rows + pool, labels)) < share[group]).astype(np.int8)
    return X[:rows], Y[:rows], X[rows:], Y[rows:]


def begun(**options):
    X, Y, pool, answers = made_up()
    return ActiveTargets(X, Y, pool, **{"search": "gradient", "period": 4, "compression": "bpca", **options}), answers


def asked(run, answers, count):
    for _ in range(count):
        row = run.remaining[run.scores().argmax()]
        run.tell(row, answers[row])
    return run


def anew(run):
    """Variances and expected compressed rows of the remaining pool, from nothing but rows and theta."""
    X, pool = np.array(run._caches.X), run._pool[run.remaining]
    caches = k14.Caches(X)
    posterior = k14.condition(run.posterior.theta, run.targets.targets, caches)
    found = k14.predict(posterior, caches, pool)
    canonical = run.targets
    return found.variance, canonical.offset + found.mean @ canonical.loadings.T


@pytest.mark.parametrize("period", [1, 4, 50])
def test_scores_and_predictions_are_those_from_scratch(period):
    run, answers = begun(period=period)
    counts = []
    for row in range(9):
        run.tell(row, answers[row])
        variance, rows = anew(run)
        np.testing.assert_allclose(run.variance, variance, rtol=1e-9)
        weights = run.targets.weights
        np.testing.assert_allclose(run.scores(), weighted_entropy(variance, weights), atol=1e-8)
        scale = run._now.inputs["compressed_scale"]
        np.testing.assert_allclose(run.predict(run._pool[run.remaining]) * scale, rows, atol=1e-8)
        counts.append(len(weights))
    # Targets came and went: these data take all ways of bringing the tables up to date.
    assert set(np.sign(np.diff(counts))) == {-1, 0, 1}
    assert len(run) == 25 and run.remaining.tolist() == list(range(9, 24))


@pytest.mark.parametrize("wrong", ["noise left out", "last row left out"])
def test_a_wrong_downdate_is_noticed(wrong, monkeypatch):
    right = active.downdated

    def planted(variance, posterior, caches, pool, far):
        if wrong == "noise left out":
            out = right(variance, posterior, caches, pool, far)
            corner2 = posterior.factors[:, -1, -1] ** 2
            factor = corner2 / (corner2 - posterior.theta[:, 4])
            return variance - (variance - out) * factor[: out.shape[1]]
        return variance

    monkeypatch.setattr(active, "downdated", planted)
    run, answers = begun(period=50)
    asked(run, answers, 2)
    assert np.abs(run.variance / anew(run)[0] - 1).max() > 1e-3


def test_new_targets_alone_are_searched_between_searches_of_all():
    searched = []

    def search(targets, caches, *, theta):
        searched.append((targets.shape[1], None if theta is None else theta.shape))
        p = targets.shape[1]
        return Fit(np.ones((p, 5)), np.zeros(p), np.zeros(p, int), np.ones(p, bool))

    run, answers = begun(search=search, period=100)
    counts = [len(run.targets.weights)]
    for row in range(12):
        run.tell(row, answers[row])
        counts.append(len(run.targets.weights))
    more = [b - a for a, b in zip(counts, counts[1:], strict=False) if b > a]
    assert more and searched == [(counts[0], None), *((n, (n, 5)) for n in more)]


def test_a_run_cut_midway_goes_on_as_if_nothing_had_been(tmp_path):
    whole, answers = begun(search="s_opt", period=3)
    asked(whole, answers, 7)
    first, _ = begun(search="s_opt", period=3)
    asked(first, answers, 4)
    first.save(tmp_path / "run.npz")
    second, _ = begun(search="s_opt", period=3)
    second.restore(read_state(tmp_path / "run.npz"))
    np.testing.assert_array_equal(second.scores(), first.scores())
    asked(second, answers, 3)
    np.testing.assert_array_equal(second.state().asked, whole.state().asked)
    np.testing.assert_array_equal(second.posterior.theta, whole.posterior.theta)
    np.testing.assert_allclose(second.scores(), whole.scores(), atol=1e-9)
    with pytest.raises(ValueError, match="3 rows have been told already|7 rows have been told already"):
        whole.restore(first.state())
    with pytest.raises(ValueError, match="other features, labels or settings"):
        begun(settings={"projection_seed": 1})[0].restore(first.state())


def test_rows_that_are_alike_score_alike():
    X, Y, pool, answers = made_up(rows=2)
    run = ActiveTargets(X, np.ones_like(Y), pool, search="gradient")
    assert run.scores().tolist() == [0.0] * len(pool)
    assert run.predict(pool).shape == (len(pool), 7)
    for row in range(12):
        run.tell(row, answers[row])
    assert run.variance.shape[1] > 0 and np.ptp(run.scores()) > 0
    np.testing.assert_allclose(run.variance, anew(run)[0], rtol=1e-9)


def test_what_is_kept_grows_by_rows():
    run, answers = begun(search=lambda targets, caches, theta: constant(targets.shape[1]), period=100)
    sizes, targets = [], []
    for row in range(20):
        run.tell(row, answers[row])
        sizes.append(run.nbytes)
        targets.append(len(run.posterior.theta))
    added = np.diff(sizes)[np.diff(targets) == 0]
    m = np.arange(17, 36)[np.diff(targets) == 0]
    most = 8 * (2 * (2 * m + 1) + 4 + 24 + max(targets) * (2 * m + 2)) + 14
    assert len(added) > 5 and (added <= most).all()


def constant(p):
    return Fit(np.ones((p, 5)), np.zeros(p), np.zeros(p, int), np.ones(p, bool))


def test_what_does_not_fit_is_refused():
    run, answers = begun()
    run.tell(3, answers[3])
    for row, words in ((3, "row 3 of the pool has been told"), (24, "from 0 to 23, got 24")):
        with pytest.raises(ValueError, match=words):
            run.tell(row, answers[3])
    with pytest.raises(ValueError, match=r"shape \(1, 14\), got \(1, 13\)"):
        run.tell(4, answers[4][:13])
    with pytest.raises(ValueError, match="has 2 at row 0, label 13"):
        run.tell(4, np.append(answers[4][:13], np.int8(2)))
    X, Y, pool, _ = made_up()
    with pytest.raises(ValueError, match="search must be one of s_opt, b_opt, gradient"):
        ActiveTargets(X, Y, pool, search="simplex")
    with pytest.raises(ValueError, match="period"):
        ActiveTargets(X, Y, pool, period=0)
