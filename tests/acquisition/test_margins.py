"""Margin baselines by hand and by loops; each known slip of public implementations gives another answer."""

import math
import warnings
from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition import li_adaptive, margin_scores, margins
from labelzoo.acquisition.binary_relevance import fit_linear, mean_cardinality, out_of_fold, predict_linear
from labelzoo.acquisition.problem import Problem

ENTRIES = {entry.name: entry for entry in margins.ENTRIES}
RNG = np.random.default_rng(5)
F = RNG.normal(size=(12, 4)) * 1.5
Q = RNG.uniform(size=(12, 4))
Y = (RNG.uniform(size=(7, 4)) < 0.4).astype(float)
READS_PROBS = ("brm_uncertainty", "min_margin", "ml", "mml", "mmc", "cvirs")


class Rbf:
    noise_ratio = 0.5

    def between(self, A: Any, B: Any) -> np.ndarray:
        return np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(axis=-1))

    def diagonal(self, A: Any) -> np.ndarray:
        return np.ones(len(A))


def make_problem(labels: int = 4, seed: int = 1, **more: Any) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(32, 3))
    known = (X[20:] @ rng.normal(size=(3, labels)) + 0.5 * rng.normal(size=(12, labels)) > 0).astype(float)
    base = {"X_pool": X[:20], "X_labelled": X[20:], "Y_labelled": known, "kernel": Rbf(), "seed": seed}
    return Problem(**{**base, **more})


def hinge(f: np.ndarray, y: int) -> float:
    signs = -np.ones(f.size)
    signs[y] = 1
    return float(np.maximum(1 - signs * f, 0).sum())


class TestLosses:
    def test_ml_and_mml_by_loops(self) -> None:
        ml = [hinge(f, int(np.argmax(f))) for f in F]
        mml = [
            np.mean([hinge(f, y) for y in np.nonzero(f > 0)[0]])
            if (f > 0).any()
            else hinge(f, int(np.argmax(f)))
            for f in F
        ]
        np.testing.assert_allclose(margin_scores.max_loss(F), ml, rtol=1e-12)
        np.testing.assert_allclose(margin_scores.mean_max_loss(F), mml, rtol=1e-12)
        assert not np.allclose(margin_scores.max_loss(np.abs(F)), ml), "absolute margins before the hinge"
        assert not np.allclose(np.trunc(ml), ml), "truncation to an integer"

    def test_by_hand(self) -> None:
        f = [[0.5, 2.0, -3.0]]
        assert margin_scores.max_loss(f)[0] == 1.5
        assert margin_scores.mean_max_loss(f)[0] == (1.5 + 3.5) / 2
        assert (
            margin_scores.mean_max_loss([[-0.5, -2.0]])[0] == margin_scores.max_loss([[-0.5, -2.0]])[0] == 1.5
        )

    def test_smallest_margin(self) -> None:
        f = [[0.5, -0.1, 0.0], [1.0, -2.0, 0.3]]
        assert margin_scores.smallest_margin(f).tolist() == [0, -0.3]
        assert margin_scores.smallest_margin(f, np.array([True, True, False])).tolist() == [-0.1, -1]
        assert margin_scores.smallest_margin(f, np.zeros(3, bool)).tolist() == [0, 0]

    def test_entropy(self) -> None:
        by_hand = [-sum(q * math.log(q) + (1 - q) * math.log(1 - q) for q in row) for row in Q]
        np.testing.assert_allclose(margin_scores.binary_entropy(Q), by_hand, rtol=1e-12)
        assert margin_scores.binary_entropy([[0.0, 1.0]])[0] == 0


class TestMMC:
    def test_loss_reduction_is_the_expected_number_of_wrong_labels(self) -> None:
        count = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 2, 1])
        expected = []
        for q, m in zip(Q, count, strict=True):
            guess = np.zeros(4)
            guess[np.argsort(-q)[:m]] = 1
            expected.append(np.where(guess == 1, 1 - q, q).sum())
        np.testing.assert_allclose(margin_scores.loss_reduction(2 * Q - 1, count), expected, rtol=1e-12)

    def test_features(self) -> None:
        found = margin_scores.cardinality_features([[0.1, 0.6, 0.3], [0.0, 0.0, 0.0]])
        np.testing.assert_allclose(found, [[0.6, 0.3, 0.1], [1 / 3] * 3])

    def test_cardinality_is_learned_constant_or_refused(self) -> None:
        q = np.array([[0.95, 0.05, 0.05], [0.9, 0.9, 0.9]] * 20)
        y = np.array([[1.0, 0, 0], [1, 1, 1]] * 20)
        assert margin_scores.predicted_cardinality(q, y, q[:2]).tolist() == [1, 3]
        assert margin_scores.predicted_cardinality(q[:1], y[:1], q[:2]).tolist() == [1, 1]
        y[0, 0] = np.nan
        assert margin_scores.predicted_cardinality(q, y, q[:2]).tolist() == [1, 3]
        with pytest.raises(ValueError, match="no row with all labels known"):
            margin_scores.predicted_cardinality(q[:1], y[:1], q[:2])

    def test_cardinality_zero_predicts_nothing(self) -> None:
        problem = Problem(mean_probs=Q, Y_labelled=np.zeros((3, 4)), labelled_probs=Q[:3])
        np.testing.assert_allclose(ENTRIES["mmc"].score(problem), Q.sum(axis=1))

    def test_out_of_fold_rows_do_not_see_their_labels(self) -> None:
        X = np.random.default_rng(0).normal(size=(15, 3))
        y = (X[:, :1] > 0).astype(float)
        base = out_of_fold(X, y, seed=2)
        for row in (0, 6, 14):
            changed = y.copy()
            changed[row] = 1 - changed[row]
            assert out_of_fold(X, changed, seed=2)[row, 0] == pytest.approx(base[row, 0], abs=1e-12)
        inside = predict_linear(fit_linear(X, y), X).probs
        assert not np.allclose(inside, base), "in-sample probabilities"


def table_entropy(*vectors: np.ndarray) -> float:
    _, counts = np.unique(np.stack(vectors), axis=1, return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log(share)).sum())


def slow_distance(a: np.ndarray, b: np.ndarray) -> float:
    if (a != b).all():
        return 1.0
    joint = table_entropy(a, b)
    return 0.0 if joint == 0 else (2 * joint - table_entropy(a) - table_entropy(b)) / joint


class TestCVIRS:
    def test_borda_by_loops(self) -> None:
        q = np.vstack([Q, Q[:2], 1 - Q[:1]])
        m, rows = np.round(np.abs(2 * q - 1), 12), len(q)
        tau = [
            [(m[:, k] < m[i, k]).sum() + ((m[:, k] == m[i, k]).sum() + 1) / 2 for k in range(4)]
            for i in range(rows)
        ]
        expected = (rows - np.array(tau)).sum(axis=1) / (4 * (rows - 1))
        np.testing.assert_allclose(margin_scores.borda(q), expected, rtol=1e-12)
        slip = (rows - 1 - np.argsort(m, axis=0)).mean(axis=1) / (rows - 1)
        assert not np.allclose(slip, expected), "argsort as ranks"
        against_sum = np.abs(2 * q - q.sum(axis=1, keepdims=True))
        assert (np.argsort(against_sum, axis=0) != np.argsort(m, axis=0)).any(), "margin against the row sum"
        assert margin_scores.borda(Q[:1]).tolist() == [1]

    def test_distance_by_tables(self) -> None:
        bits = np.array([[int(c) for c in f"{k:04b}"] for k in range(16)], float)
        found = margin_scores.entropy_distance(bits, bits)
        expected = [[slow_distance(a, b) for b in bits] for a in bits]
        np.testing.assert_allclose(found, expected, atol=1e-12)
        np.testing.assert_allclose(found, found.T, atol=1e-12)
        hamming = np.abs(bits[:, None] - bits[None]).mean(axis=-1)
        assert not np.allclose(found, hamming), "Hamming in place of the entropy distance"

    def test_contingency_form_is_the_same_number(self) -> None:
        def h(*p: float) -> float:
            return -sum(x * math.log(x) for x in p if x > 0)

        a, b = np.array([1.0, 1, 0, 0, 1]), np.array([1.0, 0, 0, 1, 1])
        n = [[((a == i) & (b == j)).sum() / 5 for j in (0, 1)] for i in (0, 1)]
        off, on = n[0][1] + n[1][0], n[0][0] + n[1][1]
        joint = h(off, on) + off * h(n[0][1] / off, n[1][0] / off) + on * h(n[0][0] / on, n[1][1] / on)
        value = (2 * joint - table_entropy(a) - table_entropy(b)) / joint
        assert margin_scores.entropy_distance(a[None], b[None])[0, 0] == pytest.approx(value, abs=1e-12)

    def test_inconsistency_is_a_mean_over_labelled_rows(self) -> None:
        yhat = Q > 0.5
        expected = np.array([sum(slow_distance(a, b) for b in Y) / len(Y) for a in yhat.astype(float)])
        np.testing.assert_allclose(margin_scores.inconsistency(yhat, Y), expected, atol=1e-12)
        assert len(Y) != len(Q), "else division by the pool size would not show"
        score = ENTRIES["cvirs"].score(Problem(mean_probs=Q, Y_labelled=Y))
        np.testing.assert_allclose(score, margin_scores.borda(Q) * expected, atol=1e-12)

    def test_unknown_cells_leave_the_table(self) -> None:
        part = np.array([[1.0, np.nan, 0.0, 1.0]])
        row = np.array([[1.0, 1.0, 1.0, 0.0]])
        expected = slow_distance(row[0, [0, 2, 3]], part[0, [0, 2, 3]])
        assert margin_scores.entropy_distance(row, part)[0, 0] == pytest.approx(expected, abs=1e-12)


class TestLiAdaptive:
    def test_separation_in_both_readings(self) -> None:
        f, all_labels = np.array([[0.5, 2.0, -0.3], [-1.0, -0.4, 0.0], [0.2, 0.7, 1.0]]), np.ones(3, bool)
        assert li_adaptive.separation(f, all_labels).tolist() == [0.8, np.inf, np.inf]
        assert li_adaptive.separation(f, all_labels, "one_sided").tolist() == [0.8, 0.0, 0.2]
        assert li_adaptive.separation(f, np.array([False, True, True])).tolist() == [2.3, np.inf, np.inf]
        with pytest.raises(ValueError, match="missing must be one of"):
            li_adaptive.separation(f, all_labels, "none")

    def test_trade_offs(self) -> None:
        f, all_labels = np.array([[0.5, 2.0, -0.3], [-1.0, -0.4, -0.2]]), np.ones(3, bool)
        found = li_adaptive.trade_offs(f, all_labels, 2.0)
        assert found.shape == (11, 2)
        np.testing.assert_allclose(found[0], [0, 2])
        np.testing.assert_allclose(found[10], [1 / 0.8, 0])
        np.testing.assert_allclose(found[5], [0, 0])

    def test_approximate_loss_cuts_negative_parts(self) -> None:
        f = np.array([[0.4, 3.0, -2.0], [1.5, 2.0, -1.2]])
        assert li_adaptive.approximate_loss(f, np.ones(3, bool)) == pytest.approx(0.6)
        uncut = sum(1 - row[row > 0].min() + 1 + row[row <= 0].max() for row in f)
        assert uncut != pytest.approx(0.6), "negative hinge parts"
        assert li_adaptive.approximate_loss(f, np.zeros(3, bool)) == 0

    def test_asks_the_candidate_with_the_least_loss_after_a_refit(self) -> None:
        problem = make_problem()
        X, known, pool = problem.X_labelled, problem.Y_labelled, problem.X_pool
        base = predict_linear(fit_linear(X, known, "svm"), pool)
        values = li_adaptive.trade_offs(base.margins, base.usable, known.sum(axis=1).mean())
        found = li_adaptive.candidates(values, np.ones(20, bool), problem.seed)
        losses = {}
        for row in found:
            model = fit_linear(np.vstack([X, pool[row]]), np.vstack([known, base.margins[row] > 0]), "svm")
            f = predict_linear(model, pool).margins
            losses[row] = np.mean(
                [
                    max((max(1 - v, 0) for v in line if v > 0), default=0)
                    + max((max(1 + v, 0) for v in line if v <= 0), default=0)
                    for line in f
                ]
            )
        choice = ENTRIES["li_adaptive"](problem, 1)
        assert len(losses) > 1
        assert choice.rows[0] == min(losses, key=losses.__getitem__)
        assert choice.gains[0] == pytest.approx(-min(losses.values()), rel=1e-9)
        assert int(np.argmax(ENTRIES["li_adaptive"].score(problem))) == choice.rows[0]

    def test_many_labels_are_refused_with_the_cost(self) -> None:
        wide = make_problem(labels=51)
        with pytest.raises(
            ValueError, match="not run: cost of 'li_adaptive' is up to 11 x 51 classifier fits"
        ):
            ENTRIES["li_adaptive"](wide, 1)


class TestGaussianProcess:
    def test_by_dense_algebra(self) -> None:
        problem, kernel = make_problem(), Rbf()
        K = kernel.between(problem.X_labelled, problem.X_labelled) + 1e-5 * np.eye(12)
        cross = kernel.between(problem.X_pool, problem.X_labelled)
        mean = cross @ np.linalg.solve(K, 2 * problem.Y_labelled - 1)
        variance = 1 - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T))
        expected = -np.abs(mean).min(axis=1) / np.sqrt(variance + 1e-5)
        np.testing.assert_allclose(ENTRIES["one_vs_all_gp"].score(problem), expected, rtol=1e-7)

    def test_unknown_cells_leave_their_row_out_of_that_label(self) -> None:
        problem = make_problem()
        known = problem.Y_labelled.copy()
        known[2, 1] = np.nan
        K, cross = (
            Rbf().between(problem.X_labelled, problem.X_labelled),
            Rbf().between(problem.X_pool, problem.X_labelled),
        )
        found = margin_scores.gp_margins(K, cross, np.ones(20), known, 0.1)
        kept = np.arange(12) != 2
        part = margin_scores.gp_margins(K[np.ix_(kept, kept)], cross[:, kept], np.ones(20), known[kept], 0.1)
        full = margin_scores.gp_margins(K, cross, np.ones(20), problem.Y_labelled, 0.1)
        np.testing.assert_allclose(found.mean[:, 1], part.mean[:, 1], rtol=1e-9)
        np.testing.assert_allclose(found.variance[:, 1], part.variance[:, 1], rtol=1e-9)
        np.testing.assert_allclose(found.mean[:, 0], full.mean[:, 0], rtol=1e-9)


class TestEdgeCases:
    def test_label_of_one_class_has_the_constant_and_no_margin(self) -> None:
        problem = make_problem()
        known = problem.Y_labelled.copy()
        known[:, 0], known[:, 3] = 0, 1
        model = predict_linear(fit_linear(problem.X_labelled, known), problem.X_pool)
        np.testing.assert_allclose(model.probs[:, [0, 3]], [[1 / 14, 13 / 14]] * 20)
        assert model.usable.tolist() == [False, True, True, False]
        for name in ("min_margin", "one_vs_all_svm", "one_vs_all_gp"):
            fewer = make_problem(Y_labelled=known[:, 1:3])
            both = ENTRIES[name].score(make_problem(Y_labelled=known))
            np.testing.assert_allclose(both, ENTRIES[name].score(fewer), rtol=1e-9, err_msg=name)

    @pytest.mark.parametrize("name", sorted(ENTRIES))
    def test_without_any_usable_label_all_scores_are_equal(self, name: str) -> None:
        scores = ENTRIES[name].score(make_problem(Y_labelled=np.zeros((12, 4))))
        if name.startswith("li_adaptive"):
            # One candidate is drawn by seed, no other row is preferred.
            assert np.unique(scores).size <= 2
        else:
            np.testing.assert_allclose(scores, scores[0], rtol=1e-12)

    @pytest.mark.parametrize("name", sorted(ENTRIES))
    def test_identical_rows_share_a_score(self, name: str) -> None:
        if name.startswith("li_adaptive"):
            pytest.skip("of identical rows one is the candidate, drawn by seed")
        problem = make_problem()
        twice = np.vstack([problem.X_pool, problem.X_pool])
        scores = ENTRIES[name].score(make_problem(X_pool=twice))
        np.testing.assert_allclose(scores[:20], scores[20:], rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("name", ["mmc", "cvirs", "li_adaptive", "one_vs_all_svm", "one_vs_all_gp", "ml"])
    def test_no_labelled_row_is_refused(self, name: str) -> None:
        empty = make_problem(X_labelled=np.zeros((0, 3)), Y_labelled=np.zeros((0, 4)))
        with pytest.raises(ValueError, match="needs labelled rows; without any use random or k_center"):
            ENTRIES[name].score(empty)

    @pytest.mark.parametrize("name", READS_PROBS)
    @pytest.mark.parametrize("bad", [np.nan, 1.5, -0.1])
    def test_bad_probabilities_are_named(self, name: str, bad: float) -> None:
        probs = np.full((20, 4), 0.5)
        probs[3, 2] = bad
        with pytest.raises(ValueError, match="mean_probs: row 3, label 2 is"):
            ENTRIES[name].score(make_problem(mean_probs=probs))

    @pytest.mark.parametrize("core", [margin_scores.max_loss, margin_scores.smallest_margin])
    def test_bad_margins_are_named(self, core: Any) -> None:
        with pytest.raises(ValueError, match="margins: row 1, label 0 is inf"):
            core([[0.0, 1.0], [np.inf, 2.0]])

    def test_bad_labels_and_shapes_are_named(self) -> None:
        known = make_problem().Y_labelled.copy()
        known[5, 1] = 2
        with pytest.raises(ValueError, match=r"Y_labelled: row 5, label 1 is 2\.0"):
            ENTRIES["min_margin"].score(make_problem(Y_labelled=known))
        with pytest.raises(ValueError, match="mean_probs has 3 labels, Y_labelled 4"):
            ENTRIES["cvirs"].score(make_problem(mean_probs=np.full((20, 3), 0.5)))
        with pytest.raises(ValueError, match="needs mean_probs, or X_pool with X_labelled and Y_labelled"):
            ENTRIES["ml"].score(Problem())
        with pytest.raises(ValueError, match="X_pool has 2 features, X_labelled 3"):
            ENTRIES["ml"].score(make_problem(X_pool=np.zeros((4, 2))))

    def test_one_label_is_the_binary_score(self) -> None:
        problem = make_problem(labels=1)
        q = predict_linear(fit_linear(problem.X_labelled, problem.Y_labelled), problem.X_pool).probs[:, 0]
        np.testing.assert_allclose(ENTRIES["min_margin"].score(problem), -np.abs(2 * q - 1))

    def test_unknown_cells_leave_the_fit_of_their_label(self) -> None:
        problem = make_problem()
        known = problem.Y_labelled.copy()
        known[2, 1] = np.nan
        found = fit_linear(problem.X_labelled, known)
        kept = np.arange(12) != 2
        part = fit_linear(problem.X_labelled[kept], known[kept])
        np.testing.assert_allclose(found.coef[:, 1], part.coef[:, 1], rtol=1e-9)
        full = fit_linear(problem.X_labelled, problem.Y_labelled)
        np.testing.assert_allclose(found.coef[:, 0], full.coef[:, 0], rtol=1e-9)
        assert mean_cardinality(known) == known[kept].sum(axis=1).mean()
        known[:, 1] = np.nan
        assert mean_cardinality(known) == pytest.approx(np.nansum(known) / 12)

    def test_the_model_s_probabilities_win_over_the_own_fit(self) -> None:
        probs = np.random.default_rng(0).uniform(size=(20, 4))
        found = ENTRIES["min_margin"].score(make_problem(mean_probs=probs))
        np.testing.assert_allclose(found, -np.abs(2 * probs - 1).min(axis=1))

    def test_the_fit_is_that_of_scikit_learn_and_warnings_stay_inside(self) -> None:
        rng = np.random.default_rng(0)
        X, y = 1e6 * rng.normal(size=(40, 3)), (rng.uniform(size=(40, 2)) < 0.5).astype(float)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.isfinite(predict_linear(fit_linear(X, y, "svm"), X).margins).all()
        with pytest.raises(ValueError, match="no classifier 'tree'"):
            fit_linear(X, y, "tree")
