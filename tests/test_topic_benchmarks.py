"""The helpers behind the tables of the topic model's experiments, on tiny data."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score

from labelzoo.data import LabelData, metrics
from labelzoo.data.missing import missing_from_observed
from labelzoo.inference.fit import fit
from labelzoo.inference.predict import mean_prob

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import topic_baselines
import topic_figure2
import topic_missing
import topic_protocol
import topic_scores
import topic_tables


def toy(rows: int = 60, features: int = 7, labels: int = 4, seed: int = 0) -> LabelData:
    """Draw labels that follow sparse features, every label with both classes."""
    rng = np.random.default_rng(seed)
    X = (rng.random((rows, features)) < 0.4) * rng.integers(1, 4, (rows, features))
    logits = X @ rng.normal(size=(features, labels)) - 1.0
    Y = (rng.random((rows, labels)) < 1 / (1 + np.exp(-logits))).astype(int)
    Y[0], Y[1] = 1, 0
    return LabelData(sparse.csr_array(X.astype(float)), Y)


def tied_scores(data: LabelData, seed: int = 1) -> np.ndarray:
    """Return scores with many ties."""
    return np.random.default_rng(seed).integers(0, 6, data.Y.shape) / 6


def test_auc_scores_equal_the_metrics_and_their_influence_is_the_derivative_by_row_weights() -> None:
    data = toy()
    Y, scores = data.Y.toarray().astype(bool), tied_scores(data)
    found = topic_scores.all_scores(data, scores, scores, scores)
    assert found["micro_auc"].value == pytest.approx(metrics.micro_auc(data.Y, scores), abs=1e-12)
    assert found["macro_auc"].value == pytest.approx(metrics.macro_auc(data.Y, scores).value, abs=1e-12)
    for row in (0, 5, 17):
        weight = np.ones(len(Y))
        weight[row] += 1e-4
        cells = np.repeat(weight, Y.shape[1])
        micro = roc_auc_score(Y.ravel(), scores.ravel(), sample_weight=cells)
        macro = np.mean(
            [roc_auc_score(y, s, sample_weight=weight) for y, s in zip(Y.T, scores.T, strict=True)]
        )
        for name, value in (("micro_auc", micro), ("macro_auc", macro)):
            slope = (value - found[name].value) / 1e-4
            assert found[name].influence[row] == pytest.approx(slope, abs=1e-5), (name, row)


def test_mean_scores_have_the_usual_standard_error_and_leave_undefined_rows_out() -> None:
    each = np.array([1.0, 0.0, np.nan, 1.0, 0.5])
    known = each[~np.isnan(each)]
    found = topic_scores.mean_score(each)
    assert found.value == pytest.approx(known.mean())
    assert found.error == pytest.approx(known.std(ddof=0) / np.sqrt(4))
    assert found.influence[2] == 0


def test_calibration_error_is_that_of_the_metrics() -> None:
    data = toy()
    probs = np.random.default_rng(2).random(data.Y.shape)
    found = topic_scores.calibration_error(data.Y.toarray().astype(bool), probs)
    wanted = metrics.expected_calibration_error(data.Y, probs, bins=topic_scores.BINS)
    assert found.value == pytest.approx(float(wanted), abs=1e-12)
    assert 0 < found.error < 0.1


def test_scores_survive_storage_and_differences_are_paired() -> None:
    data = toy()
    one = topic_scores.all_scores(data, tied_scores(data), tied_scores(data), None)
    again = topic_scores.from_json(topic_scores.to_json(one))
    assert again["micro_auc"].error == pytest.approx(one["micro_auc"].error, rel=1e-3)
    assert topic_scores.difference(one["p_at_1"], one["p_at_1"]).error == 0


@pytest.mark.parametrize("form", topic_baselines.FORMS)
def test_ridge_is_scikit_learns_with_a_free_intercept(form: str) -> None:
    train, test = toy(), toy(seed=3)
    setting = {"form": form, "penalty": 2.0}
    found = topic_baselines.ridge(train, [test], setting, 0).scores[0]
    X, (X_new,) = topic_baselines.formed(train, [test], form)
    wanted = Ridge(alpha=2.0).fit(X.toarray(), train.Y.toarray()).predict(X_new.toarray())
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_plst_is_ridge_on_the_leading_directions_of_the_labels() -> None:
    train, test = toy(), toy(seed=3)
    setting = {"form": "row", "penalty": 2.0, "share": 0.5}
    found = topic_baselines.ridge(train, [test], setting, 0).scores[0]
    X, (X_new,) = topic_baselines.formed(train, [test], "row")
    Y = train.Y.toarray().astype(float)
    centre = Y.mean(axis=0)
    V = np.linalg.svd(Y - centre, full_matrices=False)[2][:2].T
    codes = Ridge(alpha=2.0).fit(X.toarray(), (Y - centre) @ V).predict(X_new.toarray())
    np.testing.assert_allclose(found, codes @ V.T + centre, atol=1e-9)
    whole = topic_baselines.ridge(train, [test], setting | {"share": 1.0}, 0).scores[0]
    plain = topic_baselines.ridge(train, [test], {"form": "row", "penalty": 2.0}, 0).scores[0]
    np.testing.assert_allclose(whole, plain, atol=1e-9)


def test_logistic_regression_reads_the_observed_rows_of_a_label_only() -> None:
    data, test = toy(80), toy(seed=3)
    seen = np.random.default_rng(4).random(data.Y.shape) < 0.6
    Y = data.Y.toarray() * seen
    train = LabelData(data.X, Y, missing=missing_from_observed(seen))
    found = topic_baselines.logistic(train, [test, data], {"form": "row", "C": 3.0}, 0)
    assert [table.shape for table in found.probs] == [(60, 4), (80, 4)]
    X, (X_new,) = topic_baselines.formed(train, [test], "row")
    rows = np.flatnonzero(seen[:, 1])
    model = LogisticRegression(C=3.0, solver="liblinear", intercept_scaling=10.0).fit(X[rows], Y[rows, 1])
    np.testing.assert_allclose(found.probs[0][:, 1], model.predict_proba(X_new)[:, 1], atol=1e-9)
    zeros = topic_baselines.logistic(train, [test], {"form": "row", "C": 3.0, "positives_only": True}, 0)
    assert zeros.probs[0].mean() < found.probs[0].mean()


def test_features_are_weighed_by_the_training_rows_alone() -> None:
    train = toy()
    few, many = toy(seed=3).subset(rows=slice(0, 5)), toy(seed=3)
    alone = topic_baselines.formed(train, [few], "tfidf")[1][0]
    beside = topic_baselines.formed(train, [many], "tfidf")[1][0]
    np.testing.assert_allclose(alone.toarray(), beside[:5].toarray())
    with pytest.raises(ValueError, match="form must be one of"):
        topic_baselines.formed(train, [few], "other")


def test_parts_are_disjoint_and_cover_the_training_rows() -> None:
    parts = topic_protocol.parts_of(toy(100), toy(20, seed=5), 0)
    names = [set(getattr(parts, key).example_names) for key in ("fit", "validate", "calibrate")]
    assert [len(one) for one in names] == [68, 17, 15]
    assert set.union(*names) == set(parts.train.example_names)
    assert set(parts.core.example_names) == names[0] | names[1]


def test_a_cell_is_computed_once_a_plan(tmp_path: Path) -> None:
    calls = []
    cells = topic_protocol.Cells(tmp_path)
    for plan in ({"a": 1}, {"a": 1}, {"a": 2}):
        found = cells.get("one", plan, lambda plan=plan: calls.append(plan) or {"value": plan["a"]})
        assert found == {"value": plan["a"]}
    assert calls == [{"a": 1}, {"a": 2}]


def test_masks_hide_cells_by_seed() -> None:
    data = toy(200)
    one, other = topic_missing.masked(data, 0.2, 0), topic_missing.masked(data, 0.2, 1)
    seen = one.observed_mask()
    assert abs(seen.mean() - 0.2) < 0.06
    assert (one.Y.toarray()[seen] == data.Y.toarray()[seen]).all()
    assert not one.Y.toarray()[~seen].any()
    assert (seen != other.observed_mask()).any()
    mean, low, high = topic_missing.over_masks(np.array([1.0, 2.0, 3.0]))
    assert (mean, high - mean) == pytest.approx((2.0, 4.302653 / np.sqrt(3)), rel=1e-5)
    assert low == pytest.approx(4.0 - high)


def test_probabilities_of_the_figure_are_those_of_the_model() -> None:
    data = toy()
    tree = fit("bernoulli_poisson_topics", data, "vb_em", num_topics=3, seed=0, max_iter=5)
    posterior = tree["posterior"].to_dataset().isel(chain=0, draw=0)
    settings = topic_figure2.spec.resolve({"num_topics": 3, "sparse_features": True})
    X = topic_figure2.prepare(data, settings)["X"]
    found = topic_figure2.label_probs(X, *(posterior[s].values for s in ("topics", "weights", "shape")))
    np.testing.assert_allclose(found, mean_prob(tree, data), atol=1e-9)


def test_a_line_is_recovered() -> None:
    x = np.array([1.0, 2.0, 4.0])
    assert topic_figure2.line(x, 3 + 2 * x) == pytest.approx({"level": 3.0, "slope": 2.0, "explained": 1.0})


def test_a_package_that_is_absent_stands_in_the_table_and_verdicts_follow_intervals() -> None:
    row = {"method": "napkinXC BR", "absent": topic_baselines.absent("no_such_package", "napkinxc")}
    found = {"rows": [row], "published": {}, "data": "toy", "sizes": {}, "tuned_for": "x", "size": "full"}
    assert "| napkinXC BR | not installed (pip install --no-deps napkinxc)" in topic_tables.table2_text(found)
    assert [topic_tables.verdict(*ends) for ends in ((1, 2), (-1, 1), (-2, -1))] == ["beat", "tie", "lose"]


def test_a_small_table_2_from_end_to_end(tmp_path: Path) -> None:
    options = type("Options", (), {"seed": 0, "size": "small", "tune": "per_example_auc", "only": ["ridge"]})
    cells, data = topic_protocol.Cells(tmp_path), toy(150)
    found = topic_tables.table2(data, "toy", options, cells)
    assert [row["method"] for row in found["rows"]] == ["ridge"]
    scores = topic_scores.from_json(found["rows"][0]["scores"])
    assert set(scores) == {*topic_scores.COLUMNS, "ece"}
    assert 0.5 < scores["per_example_auc"].value < 1
    assert "no match is claimed" in topic_tables.table2_text(found)
    assert topic_tables.table2(data, "toy", options, cells) == found


def test_re_splits_name_the_best_baseline_on_test_rows_and_say_who_wins() -> None:
    values = {"p_at_1": {"ours": [0.6, 0.61, 0.62], "a": [0.5, 0.5, 0.53], "b": [0.4, 0.42, 0.41]}}
    found = {"values": values, "validation": values, "ours": ["ours"], "absent": ["MLkNN"], "resplits": 3}
    text = topic_tables.resplits_text(found | {"data": "toy", "size": "small"})
    assert "| P@1 | ours | a | +0.1000 (" in text
    assert "| MLkNN | not installed |" in text
    gap = np.array([0.1, 0.11, 0.09])
    half = 4.302653 * gap.std(ddof=1) * np.sqrt(1 / 3 + 1 / 9)  # Nadeau and Bengio, a tenth for testing
    assert f"({0.1 - half:+.4f} to {0.1 + half:+.4f}) | beat |" in text


def test_topics_are_listed_by_what_they_explain_whatever_their_coherence() -> None:
    probable = [{"label": f"label {i}", "prob": 0.2} for i in range(5)]
    topics = [
        {"name": f"t{k}, u", "weight": w, "coherence": c, "probable": probable}
        for k, w, c in ((0, 0.6, -0.3), (1, 0.4, None))
    ]
    found = {"topics": topics, "num_topics": 2, "data": "toy", "sweeps": 3, "seconds": 1.0}
    lines = topic_tables.table4_text(found).splitlines()
    assert lines[0] == "| t0 (60.0%) | t1 (40.0%) |"
    assert lines[7] == "| NPMI -0.30 | NPMI +nan |"
