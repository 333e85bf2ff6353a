"""A run of active learning on compressed targets: what is kept equals what is computed anew."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse

from labelzoo.acquisition.weighted_entropy import weighted_entropy
from labelzoo.inference.compressed_gp import active
from labelzoo.inference.compressed_gp import kernel14 as k14
from labelzoo.inference.compressed_gp import targets as reductions
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
    return ActiveTargets(
        X, Y, pool, **{"search": "gradient", "period": 4, "compression": "bpca", **options}
    ), answers


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
    with pytest.raises(ValueError, match="labels must be 0 or 1, got numbers of type"):
        run.tell(4, answers[4].astype(str))
    with pytest.raises(ValueError, match="labels must be dense"):
        run.tell(4, sparse.csr_array(answers[4][None]))
    X, Y, pool, _ = made_up()
    with pytest.raises(ValueError, match="search must be one of s_opt, b_opt, gradient"):
        ActiveTargets(X, Y, pool, search="simplex")
    with pytest.raises(ValueError, match="period"):
        ActiveTargets(X, Y, pool, period=0)


def quick(**options):
    """A run whose searches find what is given: no time goes into theta."""

    def search(targets, caches, *, theta):
        return constant(targets.shape[1])

    return begun(**{"search": search, "period": 100, "compression": "ppca", **options})


INTERRUPTED = [
    (reductions, "compress", "bpca"),
    (active, "targets_of", "ppca"),
    (active, "extend", "ppca"),
    (active, "downdated", "ppca"),
    (active, "cdist", "ppca"),
    (k14, "squared_distances", "ppca"),
]


@pytest.mark.parametrize(("module", "name", "compression"), INTERRUPTED)
def test_an_interrupted_row_is_not_told_and_can_be_told_again(module, name, compression, tmp_path):
    run, answers = quick(compression=compression)
    other, _ = quick(compression=compression)
    for row in (5, 2):
        run.tell(row, answers[row])
        other.tell(row, answers[row])
    before, spent = run.scores(), []

    def interrupted(*args, **options):
        spent.append(name)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.tell(7, answers[7])
    assert spent and len(run) == 18 and 7 in run.remaining
    np.testing.assert_array_equal(run.scores(), before)
    assert run.predict(run._pool).shape == (24, 7)
    run.save(tmp_path / "run.npz")
    assert read_state(tmp_path / "run.npz").asked.tolist() == [5, 2]
    for row in (9, 7):
        run.tell(row, answers[row])
        other.tell(row, answers[row])
        np.testing.assert_array_equal(run.scores(), other.scores())
        np.testing.assert_allclose(run.variance, anew(run)[0], rtol=1e-9)


def told(count=3, **options):
    run, answers = quick(**options)
    for row in range(count):
        run.tell(row, answers[row])
    return run.state()


def unchanged(run, before):
    assert len(run) == 16 and len(run.remaining) == 24
    np.testing.assert_array_equal(run.scores(), before)


WRONG = {
    "asked distinct": ("asked", lambda a: np.array([0, 0, 1]), "state.asked names a row more than once"),
    "asked in the pool": ("asked", lambda a: np.array([0, 1, 24]), "state.asked has row 24"),
    "asked not negative": ("asked", lambda a: np.array([0, 1, -1]), "state.asked has row -1"),
    "asked whole": ("asked", lambda a: a + 0.5, "state.asked must be integers"),
    "labels shape": ("labels", lambda a: a[:2], r"state.labels must have shape \(3, 14\), got \(2, 14\)"),
    "labels 0 or 1": ("labels", lambda a: a + 2, "state.labels has [23] at row 0, label 0"),
    "theta shape": ("theta", lambda a: a[:-1], "state.theta must have shape"),
    "theta width": ("theta", lambda a: a[:, :4], "state.theta must have shape"),
    "theta positive": ("theta", lambda a: -a, "state.theta has -1.0 at row 0, column 0"),
    "theta finite": ("theta", lambda a: a * np.nan, "state.theta has nan at row 0"),
    "theta numbers": ("theta", lambda a: a.astype(str).astype("U3") + np.array("x"), "state.theta"),
    "age": ("age", lambda a: np.asarray(-1), "state.age must be an integer from 0 to 100, got -1"),
    "age too high": ("age", lambda a: np.asarray(101), "state.age must be an integer from 0 to 100"),
    "age whole": ("age", lambda a: np.asarray(1.5), "state.age must be an integer from 0 to 100, got 1.5"),
    "age one": ("age", lambda a: np.ones(2, int), "state.age must be an integer"),
    "variance shape": ("variance", lambda a: a[:-1], "state.variance must have shape"),
    "variance finite": ("variance", lambda a: a * np.inf, "state.variance has inf at row 0"),
    "variance positive": ("variance", lambda a: 0 * a, "state.variance has 0.0 at row 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(case):
    field, spoil, words = WRONG[case]
    state = told()
    run, _ = quick()
    before = run.scores()
    with pytest.raises(ValueError, match=words):
        run.restore(state._replace(**{field: spoil(getattr(state, field))}))
    unchanged(run, before)
    run.restore(state)
    assert run.state().asked.tolist() == [0, 1, 2]


def test_an_interrupted_restore_changes_nothing():
    state, (run, _) = told(), quick()
    before = run.scores()

    def interrupted(*args):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active, "condition", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.restore(state)
    unchanged(run, before)
    with pytest.raises(ValueError, match="state must be a State, got dict"):
        run.restore(state._asdict())
    unchanged(run, before)


def test_a_state_is_of_one_period_search_and_compression():
    def other(targets, caches, *, theta):
        return constant(targets.shape[1])

    state = told()
    for options in ({"period": 99}, {"compression": "none"}, {"search": other}, {"search": partial(other)}):
        run, _ = quick(**options)
        with pytest.raises(ValueError, match="other features, labels or settings"):
            run.restore(state)
    names = [active.name_of(one) for one in (other, partial(other, budget=3), partial(other, budget=4))]
    assert names == ["other", "other(budget=3)", "other(budget=4)"]


def test_a_file_that_holds_no_state_is_named(tmp_path):
    run, _ = quick()
    run.save(tmp_path / "whole.npz")
    whole = (tmp_path / "whole.npz").read_bytes()
    np.savez(tmp_path / "foreign.npz", X=np.ones(3))
    np.save(tmp_path / "one.npy", np.ones(3))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    files = {"empty.npz": b"", "text.npz": b"no archive", "cut.npz": whole[: len(whole) // 2]}
    for name, content in {**files, "flipped.npz": bytes(flipped)}.items():
        (tmp_path / name).write_bytes(content)
    for name in (*files, "flipped.npz", "foreign.npz", "one.npy"):
        with pytest.raises(ValueError, match=f"{name} is not a whole file"):
            read_state(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "missing.npz")


def test_what_is_given_can_be_overwritten_afterwards():
    X, Y, pool, answers = made_up()
    options = {"search": lambda targets, caches, theta: constant(targets.shape[1]), "period": 100}
    first = ActiveTargets(X.copy(), Y.copy(), pool.copy(), **options)
    second = ActiveTargets(X, Y, pool, **options)
    for given in (X, Y, pool):
        given[:] = 0
    state = second.state()
    state.theta[:], state.variance[:] = 7.0, 7.0
    for row in range(2):
        first.tell(row, answers[row])
        second.tell(row, answers[row])
    np.testing.assert_array_equal(first.scores(), second.scores())


@pytest.mark.parametrize("compression", ["bpca", "ppca", "none"])
def test_each_compression_gives_its_targets(compression):
    run, answers = quick(compression=compression)
    for row in range(4):
        run.tell(row, answers[row])
        wanted = reductions.targets_of(run._now.inputs, compression)
        np.testing.assert_array_equal(run.targets.targets, wanted.targets)
        variance, _ = anew(run)
        np.testing.assert_allclose(run.variance, variance, rtol=1e-9)
        np.testing.assert_allclose(run.scores(), weighted_entropy(variance, wanted.weights), atol=1e-8)
    X, Y, pool, _ = made_up()
    if compression == "ppca":
        plain = ActiveTargets(X, Y, pool, search=lambda targets, caches, theta: constant(targets.shape[1]))
        wanted = reductions.targets_of(plain._now.inputs, "ppca")
        np.testing.assert_array_equal(plain.targets.targets, wanted.targets)


@pytest.mark.parametrize("name", ["X", "pool"])
def test_features_that_cannot_be_squared_are_refused(name):
    X, Y, pool, _ = made_up()
    given = {"X": X, "Y": Y, "pool": pool}
    given[name][3, 1] = 1e160
    with pytest.raises(ValueError, match=f"{name}: row 3 is too far from zero"):
        ActiveTargets(**given)
    run, _ = quick()
    with pytest.raises(ValueError, match="X: row 3 is too far from zero"):
        run.predict(given[name])


@pytest.mark.parametrize("name", ["X", "Y", "pool"])
def test_sparse_tables_are_refused(name):
    X, Y, pool, _ = made_up()
    given = {"X": X, "Y": Y, "pool": pool}
    given[name] = sparse.csr_array(given[name])
    with pytest.raises(ValueError, match=f"{name} must be dense, got csr_array"):
        ActiveTargets(**given)


WORDS = {
    "search": (["s_opt"], {"a": 1}, None, np.array(["s_opt"])),
    "settings": ([("projection_seed", 1)], [], 3, "seed"),
    "compression": (["ppca"], "pca", None, np.array(["ppca", "none"])),
}


@pytest.mark.parametrize("name", WORDS)
def test_options_of_another_kind_are_refused(name):
    X, Y, pool, _ = made_up()
    for value in WORDS[name]:
        with pytest.raises(ValueError, match=f"^{name} must be"):
            ActiveTargets(X, Y, pool, **{name: value})
