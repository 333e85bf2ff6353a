"""The helpers behind the experiments of the sparse Bayesian model, on tiny data."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import sparse_toy
import sparse_toy_data
import sparse_variance

TINY = {**sparse_toy.SETTINGS, "pool": 60, "test": 30, "seeds": 8, "picks": 4, "every": 2, "sweeps": 3}


def test_toy_rows_have_seven_labels_on_average():
    toy = sparse_toy_data.toy_data(np.random.default_rng(3), 1000, 200)
    assert toy.Y.mean() * 35 == pytest.approx(7, abs=0.01)
    assert toy.X_test.shape == (200, 2)
    assert set(np.unique(toy.Y_test)) == {0.0, 1.0}
    again = sparse_toy_data.toy_data(np.random.default_rng(3), 1000, 200)
    np.testing.assert_array_equal(again.Y_test, toy.Y_test)


def test_a_run_is_kept_and_taken_up_again(tmp_path, monkeypatch):
    run = sparse_toy.kept_run(tmp_path, 2, TINY)
    for predictor in sparse_toy.PREDICTORS:
        scores = np.array([run["scores"][predictor][name] for name in sparse_toy.CHOOSERS])
        assert scores.shape == (3, 3, 3)
        assert (scores[:, 0] == scores[0, 0]).all(), "before the first pick all choosers have the same rows"
        assert ((scores >= 0) & (scores <= 1)).all()
    monkeypatch.setattr(sparse_toy, "one_run", lambda *_: pytest.fail("the run was there"))
    assert sparse_toy.kept_run(tmp_path, 2, TINY) == run
    with pytest.raises(SystemExit, match="other settings"):
        sparse_toy.kept_run(tmp_path, 2, {**TINY, "sweeps": 4})


def test_summary_has_paired_intervals():
    runs = [sparse_toy.one_run(number, TINY) for number in range(3)]
    found = sparse_toy.summary(runs)
    ends = [np.array([r["scores"]["ml_oss"][c][-1] for r in runs]) for c in ("miml", "random")]
    differences = (ends[0] - ends[1])[:, 1]
    told = found["paired"]["ml_oss"]["miml - random"][1]
    assert told["mean"] == pytest.approx(differences.mean())
    assert told["high"] - told["mean"] == pytest.approx(4.302653 * differences.std(ddof=1) / np.sqrt(3))
    assert found["rows"] == [8, 10, 12]
    assert json.loads(json.dumps(found))["runs"] == 3
    assert "miml - uncertainty at 12 rows" in sparse_toy.table(found)


@pytest.mark.parametrize("extra", [0.0, 0.5])
def test_entropy_by_another_quadrature(extra):
    scale = 1e-2

    def density(x):
        return np.exp(-((x - 0.8) ** 2)) * (1 + x**2 / (2 * scale)) ** -(scale + extra)

    points = {"points": [-0.1, 0.0, 0.1, 0.8], "limit": 400}
    total = quad(density, -12, 12, **points)[0]
    part = quad(lambda x: density(x) * np.log(density(x)) if density(x) > 0 else 0.0, -12, 12, **points)[0]
    found = sparse_variance.one_dimension(scale, scale, extra)
    assert found == pytest.approx(np.log(total) - part / total, abs=1e-7)


def test_limit_of_the_theorem():
    """With exponent a0 the Gaussian's entropy and information are reached, with a0 + 1/2 they are lost."""
    entropies = [sparse_variance.one_dimension(s, s, 0.0) for s in (1e-2, 1e-4, 1e-6)]
    assert np.abs(np.diff([*entropies, 1.072365])).max() < 2e-3
    assert entropies[-1] == pytest.approx(1.072365, abs=1e-6)
    falling = [sparse_variance.one_dimension(s, s, 0.5) for s in (1e-2, 1e-4, 1e-6, 1e-8)]
    assert (np.diff(falling) < -0.5).all()
    assert sparse_variance.two_dimensions(1e-8, 1e-8, 0.0) == pytest.approx(0.223144, abs=1e-6)
    assert sparse_variance.two_dimensions(1e-8, 1e-8, 0.5) < 0.01


def test_variances_of_the_two_inferences(tmp_path, monkeypatch):
    monkeypatch.setattr(sparse_variance, "TRAIN", 30)
    monkeypatch.setattr(sparse_variance, "TEST", 20)
    result = sparse_variance.compare(None, 1)
    equal, one = (result["numbers"][part] for part in ("equal_precision", "precision_one"))
    assert equal["largest_mean_difference"] < 1e-9
    assert equal["smallest_eigenvalue"] > -1e-9
    assert equal["share_of_cells_ml_oss_larger"] == 1.0
    assert one["rank_correlation_with_v_ml_oss"] == pytest.approx(1.0)
    assert np.isnan(one["rank_correlation_with_v_bml_cs"])
    sparse_variance.picture(result["arrays"], tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert "precision 1" in sparse_variance.comparison_text(result["numbers"])
