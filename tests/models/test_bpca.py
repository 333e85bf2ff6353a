"""The card of bpca: compression, refusals, prediction and functionals."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.inference.fit import fit
from labelzoo.models.bpca_card import (
    MIN_PROB,
    covariance_of,
    decode,
    fitted_probs,
    functionals,
    predict,
    spec,
)

RNG = np.random.default_rng(7)
Y = (RNG.random((20, 6)) < 0.4).astype(float)


def data(labels: Any = Y) -> LabelData:
    return LabelData(np.zeros((len(labels), 2)), np.asarray(labels, float))


def inputs_of(labels: Any = Y, **settings: Any) -> dict[str, Any]:
    return spec.prepare(data(labels), spec.resolve(settings))


def test_rows_are_compressed_and_scaled_but_not_centred() -> None:
    inputs = inputs_of()
    A, scale = inputs["projection"], inputs["compressed_scale"]
    assert A.shape == (3, 6)
    assert inputs["num_components"] == 2
    np.testing.assert_allclose(inputs["compressed"], scale * Y @ A.T)
    assert inputs["compressed"].var(axis=0).mean() == pytest.approx(1.0)
    assert np.abs(inputs["row_mean"]).max() > 0.1
    np.testing.assert_allclose(inputs["scatter"] / 20, np.cov(inputs["compressed"].T, bias=True))


def test_projection_depends_on_its_seed_alone_and_has_the_stated_variance() -> None:
    first, again = inputs_of(), inputs_of(Y[:5])
    np.testing.assert_array_equal(first["projection"], again["projection"])
    assert (first["projection"] != inputs_of(projection_seed=1)["projection"]).all()
    A = inputs_of(np.eye(400), num_measurements=100)["projection"]
    z = (A.var() * 100 - 1) / np.sqrt(2 / A.size)
    assert abs(z) < 5, f"z = {z:.1f}"


@pytest.mark.parametrize("count", [6, 7, 50])
def test_with_as_many_measurements_as_labels_nothing_is_compressed(count: int) -> None:
    inputs = inputs_of(num_measurements=count)
    np.testing.assert_array_equal(inputs["projection"], np.eye(6))
    assert inputs["num_components"] == 5


def test_unlabelled_rows_are_left_out_and_partial_ones_refused() -> None:
    labels = Y.copy()
    labels[3] = np.nan
    np.testing.assert_array_equal(inputs_of(labels)["fitted_row"], np.delete(np.arange(20), 3))
    labels[5, 2] = np.nan
    words = (
        r"1 of 20 rows are observed in part, the first being 'row 5', which lacks 'label 2'.*drop_incomplete"
        r""".*to labelzoo tell, \{"row 5": \{"label 2": 0\}\} in JSON, or 0 in a CSV cell"""
    )
    with pytest.raises(ValueError, match=words):
        inputs_of(labels)
    dropped = inputs_of(labels, drop_incomplete=True)
    np.testing.assert_array_equal(dropped["fitted_row"], np.delete(np.arange(20), [3, 5]))
    np.testing.assert_allclose(
        dropped["compressed"], inputs_of(np.delete(labels, [3, 5], axis=0))["compressed"]
    )


def test_complete_rows_among_mostly_unobserved_ones_are_found() -> None:
    """Most cells are missing, so the observed ones are listed."""
    labels = np.full((20, 6), np.nan)
    labels[:, 0] = 1.0
    labels[4], labels[9] = Y[4], Y[9]
    np.testing.assert_array_equal(inputs_of(labels, drop_incomplete=True)["fitted_row"], [4, 9])


def test_no_complete_row_is_refused() -> None:
    labels = np.full((3, 2), np.nan)
    labels[0, 0] = 1.0
    with pytest.raises(ValueError, match="of 3 rows 2 have none and 1 some"):
        inputs_of(labels, drop_incomplete=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_measurements": 0}, "num_measurements must be an integer of at least 1, got 0"),
        ({"num_measurements": 2.5}, "num_measurements must be an integer"),
        ({"num_components": 4}, "num_components=4 is more than the 3 measurements"),
        ({"num_components": True}, "num_components must be an integer"),
        ({"projection_seed": -1}, "projection_seed must be an integer of at least 0"),
        ({"precision_shape": 0}, "precision_shape must be a number between 1e-100 and 1e100, got 0"),
        ({"noise_rate": float("nan")}, "noise_rate must be a number"),
        ({"mean_precision": "vague"}, "mean_precision must be a number"),
        ({"drop_incomplete": "yes"}, "drop_incomplete must be True or False, got 'yes'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        inputs_of(**settings)


@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        ("mean_field", {"prune": 1.0}, "prune must be a number of at least 0 and below 1, got 1.0"),
        ("mean_field", {"rotation": 1}, "rotation must be True or False, got 1"),
        ("mean_field", {"max_iter": 0}, "max_iter must be an integer of at least 1"),
        ("mean_field", {"tolerance": -1.0}, "tolerance must be a number of at least 0"),
        ("mean_field", {"khat_samples": 50}, "khat_samples must be an integer of at least 100, got 50"),
        ("mean_field", {"num_samples": 0}, "num_samples must be an integer of at least 1"),
        ("gibbs", {"keep_scores": "all"}, "keep_scores must be True or False, got 'all'"),
        ("gibbs", {"max_bytes": 100}, "max_bytes"),
        ("ml", {"max_iter": 3}, "knows no setting 'max_iter'"),
    ],
)
def test_bad_options_are_refused(engine: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit("bpca", data(), engine, seed=0, **options)


def test_too_large_a_projection_is_refused_before_it_is_made() -> None:
    huge = LabelData(np.zeros((2, 1)), sparse.csr_array((2, 200_000), dtype=np.int8))
    with pytest.raises(ValueError, match="num_measurements: a projection of 200000 labels to 100000"):
        spec.prepare(huge, spec.settings)


@pytest.mark.parametrize(
    "labels",
    [np.zeros((4, 6)), np.ones((1, 6)), np.ones((3, 1)), np.eye(2)],
    ids=["all zero", "one row", "one label", "two labels"],
)
def test_edge_cases_are_finite(labels: np.ndarray) -> None:
    inputs = inputs_of(labels)
    assert all(np.isfinite(value).all() for value in inputs.values())
    d, p = inputs["compressed"].shape[1], inputs["num_components"]
    assert p == max(1, d - 1)
    draw = {"loadings": np.ones((d, p)), "mean": np.zeros(d), "noise_precision": np.asarray(2.0)}
    found = functionals(draw, inputs)
    assert all(np.isfinite(np.asarray(value)).all() for value in found.values())
    assert ("correlation" in found) == (d > 1)


def test_prediction_is_the_decoded_mean_clipped() -> None:
    inputs = inputs_of(num_measurements=6)
    constants = {**spec.settings, **spec.constants(inputs)}
    draw = {"mean": inputs["row_mean"]}
    probs = np.asarray(predict(draw, np.zeros((3, 2)), constants))
    np.testing.assert_allclose(probs, np.tile(np.clip(Y.mean(axis=0), MIN_PROB, 1 - MIN_PROB), (3, 1)))
    far = np.asarray(decode(1e3 * np.ones((1, 6)), inputs["projection"], inputs["compressed_scale"]))
    assert far.max() == 1 - MIN_PROB


def test_decoding_solves_the_compressed_equations_nearest_to_zero() -> None:
    inputs = inputs_of()
    A, scale = inputs["projection"], inputs["compressed_scale"]
    y = 0.5 * A.T @ np.linalg.solve(A @ A.T, A @ np.ones(6))  # of the row space, so it is its own answer
    inside = y if ((y > MIN_PROB) & (y < 1 - MIN_PROB)).all() else np.clip(y, MIN_PROB, 1 - MIN_PROB)
    np.testing.assert_allclose(decode((scale * A @ y)[None], A, scale)[0], inside, atol=1e-10)


def test_training_rows_are_decoded_from_their_scores() -> None:
    inputs = inputs_of(num_measurements=6, num_components=6)
    rng = np.random.default_rng(1)
    draw = {"loadings": rng.standard_normal((6, 6)), "mean": inputs["row_mean"], "noise_precision": 1e9}
    probs = np.asarray(fitted_probs(draw, inputs))
    np.testing.assert_allclose(probs, np.clip(Y, MIN_PROB, 1 - MIN_PROB), atol=1e-4)
    known = {**draw, "scores": np.zeros((20, 6))}
    np.testing.assert_allclose(
        np.asarray(fitted_probs(known, inputs)),
        np.tile(np.clip(Y.mean(axis=0), MIN_PROB, 1 - MIN_PROB), (20, 1)),
    )


def test_functionals_do_not_change_under_rotation_and_signs() -> None:
    inputs = inputs_of()
    rng = np.random.default_rng(2)
    draw = {"loadings": rng.standard_normal((3, 2)), "mean": rng.standard_normal(3), "noise_precision": 0.7}
    turn = np.linalg.qr(rng.standard_normal((2, 2)))[0] * [1, -1]
    before, after = (
        functionals({**draw, "loadings": draw["loadings"] @ T}, inputs) for T in (np.eye(2), turn)
    )
    assert set(before) == {
        "covariance", "log_det", "log_noise", "mean", "eigenvalues", "log_likelihood", "correlation",
    }  # fmt: skip
    for name, value in before.items():
        np.testing.assert_allclose(value, after[name], atol=1e-12, err_msg=name)
    C = np.asarray(covariance_of(draw))
    np.testing.assert_allclose(before["eigenvalues"], np.linalg.eigvalsh(C)[::-1][:2] - 1 / 0.7, atol=1e-12)


def test_a_fit_predicts_new_rows_and_keeps_scores_on_request() -> None:
    options = {"num_warmup": 3, "num_samples": 4, "num_chains": 2, "keep_scores": True}
    tree = fit("bpca", data(), "gibbs", seed=1, **options)
    assert tree["posterior"]["scores"].dims == ("chain", "draw", "graph", "component")
    assert tree["posterior"]["scores"].shape == (2, 4, 20, 2)
    draw = {name: values.values[0, 0] for name, values in tree["posterior"].data_vars.items()}
    with jax.enable_x64(True):
        assert np.asarray(fitted_probs(draw, inputs_of())).shape == (20, 6)
