"""The card of compressed_gp: targets, refusals, prediction by each decoder, edge cases."""

from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.inference.compressed_gp import decoded
from labelzoo.inference.compressed_gp import kernel14 as k14
from labelzoo.inference.compressed_gp.answers import _left_out
from labelzoo.inference.compressed_gp.decoding import correlation
from labelzoo.inference.compressed_gp.ranking import decode
from labelzoo.inference.fit import fit
from labelzoo.inference.posterior import load, save
from labelzoo.inference.predict import constants_of, label_prob, mean_prob, point_draws, target_law
from labelzoo.models import compressed_gp_predict
from labelzoo.models.compressed_gp_card import functionals, spec
from labelzoo.models.compressed_gp_predict import (
    DECODERS,
    MIN_PROB,
    compressed_of,
    draw_means,
    mean_targets,
    predict,
    predict_draws,
    predict_moments,
    regressed,
    squeezed,
)

RNG = np.random.default_rng(3)
X = RNG.standard_normal((24, 3))
Y = (X @ RNG.standard_normal((3, 6)) + 0.3 * RNG.standard_normal((24, 6)) > 0.4).astype(float)
NEW = RNG.standard_normal((5, 3))


def data(labels: Any = Y, features: Any = X) -> LabelData:
    labels = np.asarray(labels, float)
    return LabelData.from_arrays(np.asarray(features, float)[: len(labels)], labels)


@cache
def inputs() -> dict[str, Any]:
    return spec.prepare(data(), spec.settings)


@cache
def tree_of(**settings: Any) -> xr.DataTree:
    return fit("compressed_gp", data(), "gradient", **settings)


def some_draws(count: int = 3) -> dict[str, Any]:
    rng, targets = np.random.default_rng(1), inputs()["targets"].shape[1]
    sites = ("log_signal", "log_inverse_length2", "log_linear", "log_constant", "log_noise")
    return {name: rng.standard_normal((count, targets)) for name in sites}


def constants(**settings: Any) -> dict[str, Any]:
    return {**spec.settings, **settings, **spec.constants(inputs())}


def test_targets_are_canonical_and_go_back_to_compressed_rows() -> None:
    given = inputs()
    U = given["targets"]
    np.testing.assert_allclose(U.T @ U / len(U), np.eye(U.shape[1]), atol=1e-9)
    np.testing.assert_allclose(U.mean(axis=0), 0.0, atol=1e-9)
    R = compressed_of(U, given)
    exact = Y @ given["projection"].T
    assert ((R - exact) ** 2).mean() < 0.35 * exact.var(axis=0).mean()  # p of d directions are kept
    np.testing.assert_allclose(given["label_coefficients"], U.T @ (Y - Y.mean(axis=0)) / len(Y), atol=1e-9)
    np.testing.assert_allclose(given["label_frequency"], (Y.sum(axis=0) + 0.5) / 25)
    assert given["training_level"] == round(Y.sum(axis=1).mean())


def test_other_rows_get_the_targets_of_the_training_rows_map() -> None:
    again = spec.prepare(data(Y[:7]), spec.settings, spec.constants(inputs()))
    np.testing.assert_allclose(again["targets"], inputs()["targets"][:7], atol=1e-6)
    np.testing.assert_allclose(again["distances2"], inputs()["distances2"][:7, :7], atol=1e-12)


def test_features_are_of_order_one_and_rows_without_labels_are_new_rows() -> None:
    labels = Y.copy()
    labels[[2, 20]] = np.nan
    given = spec.prepare(data(labels), spec.settings)
    assert len(given["targets"]) == 22 and given["new_distances2"].shape == (2, 24)
    whole = given["mapped"]
    np.testing.assert_allclose((whole**2).sum(axis=1).mean(), 1.0, atol=0.2)
    np.testing.assert_allclose(
        given["new_distances2"][0, 0], ((X[2] - X[0]) ** 2 * given["scale"] ** 2).sum() / 3
    )
    assert given["new_distances2"][1, 23] == 0
    cosine = spec.prepare(data(labels), spec.resolve({"kernel": "cosine"}))
    np.testing.assert_allclose((cosine["mapped"] ** 2).sum(axis=1), 1.0)


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_traced_prediction_is_that_of_numpy(decoder: str) -> None:
    kept, draws = constants(decoder=decoder), some_draws()
    probs = predict_draws(draws, NEW, kept, None)
    with jax.enable_x64(True):
        traced = jax.jit(lambda one: jax.lax.map(lambda d: predict(d, NEW, kept), one))(draws)
    np.testing.assert_allclose(np.asarray(traced), probs, atol=1e-9)
    assert probs.min() > MIN_PROB - 1e-12 and probs.max() < 1 - MIN_PROB + 1e-12
    mean, sd = predict_moments(draws, NEW, kept, None)
    np.testing.assert_allclose(mean, probs.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(sd, probs.std(axis=0), atol=1e-12)


@pytest.mark.parametrize("decoder", ["bp", "omp", "corr"])
def test_scores_rank_labels_as_the_decoder_does(decoder: str) -> None:
    kept, draws = constants(decoder=decoder), some_draws(1)
    (means,) = draw_means(draws, NEW, kept)
    wanted = decode(
        compressed_of(means, kept), kept["projection"], levels=int(kept["training_level"]),
        frequency=kept["label_frequency"], method=decoder,
    ).scores  # fmt: skip
    probs = predict_draws(draws, NEW, kept, None)[0]
    assert np.array_equal(np.argsort(-probs, axis=1), np.argsort(-wanted, axis=1))


@pytest.mark.parametrize("decoder", ["bp", "omp", "corr"])
def test_scores_follow_correlations_beyond_the_sigmoid_traced_as_well(decoder: str) -> None:
    """Units of the compressed rows so small that every sigmoid is 0 or 1."""
    kept, draws = constants(decoder=decoder), some_draws(1)
    kept["compressed_scale"] = kept["compressed_scale"] * 1e-4
    (means,) = draw_means(draws, NEW, kept)
    R = compressed_of(means, kept)
    level = int(kept["training_level"])
    wanted = decode(
        R, kept["projection"], levels=level, frequency=kept["label_frequency"], method=decoder
    ).scores
    c = correlation(R, kept["projection"])
    assert (np.abs(c) > 800).mean() > 0.5
    if decoder == "corr":
        assert np.array_equal(np.argsort(-wanted, axis=1), np.argsort(-c, axis=1))
    probs = predict_draws(draws, NEW, kept, None)[0]
    assert np.array_equal(np.argsort(-probs, axis=1), np.argsort(-wanted, axis=1))
    with jax.enable_x64(True):
        traced = np.asarray(jax.jit(lambda d: predict(d, NEW, kept))({n: v[0] for n, v in draws.items()}))
    assert np.array_equal(np.argsort(-traced, axis=1), np.argsort(-wanted, axis=1))


def test_scores_brought_together_by_rounding_stay_apart() -> None:
    one = 0.3
    near = np.array([[one, np.nextafter(one, 1), 0.0, np.nextafter(one, 0)]])
    out = squeezed(near, "omp")
    assert np.array_equal(np.argsort(-out), [[1, 0, 3, 2]])
    assert len(np.unique(out)) == 4


def test_regression_is_the_frequency_and_the_targets_part_clipped() -> None:
    kept, draws = constants(), some_draws(1)
    (means,) = draw_means(draws, NEW, kept)
    b = kept["targets"].T @ (Y - Y.mean(axis=0)) / len(Y)
    wanted = np.clip((Y.sum(axis=0) + 0.5) / 25 + means @ b, MIN_PROB, 1 - MIN_PROB)
    np.testing.assert_allclose(predict_draws(draws, NEW, kept, None)[0], wanted, atol=1e-9)


def test_features_decide() -> None:
    """A model that has learned beats the frequencies on rows that it has not seen."""
    rng = np.random.default_rng(8)
    far = rng.standard_normal((200, 3))
    coefficients = np.random.default_rng(3)
    coefficients.standard_normal((24, 3))
    truth = far @ coefficients.standard_normal((3, 6)) > 0.4
    probs, base = mean_prob(tree_of(), far), inputs()["label_frequency"]
    score = np.where(truth, np.log(probs), np.log1p(-probs)).sum(axis=1)
    plain = np.where(truth, np.log(base), np.log1p(-base)).sum(axis=1)
    gap = score - plain
    assert gap.mean() > 4 * gap.std() / np.sqrt(len(gap)), f"{gap.mean():.2f} nats a row"


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("level", ["mean", "item"])
def test_answers_have_exactly_as_many_labels_as_their_level(decoder: str, level: str) -> None:
    tree = tree_of(decoder=decoder, level=level)
    found = decoded(tree, NEW)
    counts = found.labels.sum(axis=1)
    if level == "mean":
        assert (counts == constants_of(tree)["training_level"]).all()
    else:
        assert ((counts >= 1) & (counts <= 6)).all()
    assert all(len(np.unique(row)) == 6 for row in found.scores)
    lowest_in = np.where(found.labels, found.scores, np.inf).min(axis=1)
    assert (lowest_in > np.where(found.labels, -np.inf, found.scores).max(axis=1)).all()


def test_levels_by_item_follow_the_number_of_labels() -> None:
    """With as many measurements as labels their number is linear in the row: found from features."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((24, 3))
    labels = (features[:, :1] > rng.standard_normal(6) * 0.7).astype(float)
    tree = fit("compressed_gp", data(labels, features), "gradient", level="item", num_measurements=6)
    found = decoded(tree, np.array([[-2.0, 0, 0], [2.0, 0, 0]])).labels.sum(axis=1)
    assert found[0] < found[1]


def test_left_out_means_are_those_without_the_row() -> None:
    given, theta = inputs(), np.exp(np.stack([value[0] for value in some_draws(1).values()], axis=-1))
    U, mapped = given["targets"], given["mapped"]
    found = _left_out(theta, U, k14.Caches(mapped))
    for row in (0, 11, 23):
        others = np.delete(np.arange(len(U)), row)
        caches = k14.Caches(mapped[others])
        law = k14.predict(k14.condition(theta, U[others], caches), caches, mapped[row : row + 1])
        np.testing.assert_allclose(found[row], law.mean[0], atol=1e-8)


def test_answers_over_draws_are_made_by_blocks_and_factored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, draws, rows = constants(), some_draws(4), np.repeat(NEW, 3, axis=0)
    wanted = np.mean(list(draw_means(draws, rows, kept)), axis=0)
    compressed_gp_predict._kept_weights.cache_clear()
    seen: list[int] = []
    mapped, factored = compressed_gp_predict.mapped_rows, k14.condition

    def counted(*given: Any) -> Any:
        seen.append(0)
        return factored(*given)

    def small(kernel: Any, block: Any, first: int = 0) -> Any:
        assert block.shape[0] <= 2
        return mapped(kernel, block, first)

    monkeypatch.setattr(k14, "condition", counted)
    monkeypatch.setattr(compressed_gp_predict, "mapped_rows", small)
    monkeypatch.setattr(compressed_gp_predict, "BLOCK_BYTES", 2 * 8 * (3 + 2 * 24))
    np.testing.assert_allclose(mean_targets(draws, rows, kept), wanted, atol=1e-12)
    np.testing.assert_allclose(mean_targets(draws, sparse.csr_array(rows), kept), wanted, atol=1e-12)
    assert len(seen) == 4
    rows[13] = 1e160
    with pytest.raises(ValueError, match="X: row 13 is too far from the training rows"):
        mean_targets(draws, rows, kept)


@pytest.mark.parametrize("wrong", [3, None, "tree.nc"])
def test_only_posteriors_of_this_model_are_answered(wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"a DataTree, got {type(wrong).__name__}"):
        decoded(wrong, NEW)
    with pytest.raises(ValueError, match="needs a posterior of compressed_gp, got one of None"):
        decoded(xr.DataTree(), NEW)


@pytest.mark.parametrize("labels", [1, 2])
def test_one_measurement_is_noise_to_bpca_and_kept_by_the_others(labels: int) -> None:
    separable = np.repeat(X[:, :1] > 0, labels, axis=1).astype(float)
    words = {"engine": "gradient", "num_measurements": 1}
    tree = fit("compressed_gp", data(separable), compression="bpca", **words)
    assert tree.attrs["message"] == (
        "no target: the compressed labels are alike, or the compression takes them for noise, as bpca does "
        "with a single measurement (compression='none' keeps whatever varies)"
    )
    with pytest.raises(ValueError, match="as bpca does with a single measurement .compression='none'"):
        fit("compressed_gp", data(separable), "svi", compression="bpca", num_measurements=1)
    for compression in ("ppca", "none"):
        assert fit("compressed_gp", data(separable), compression=compression, **words).attrs["targets"] == 1


EDGES = {
    "one label": (Y[:, :1], X, {}),
    "as many measurements as labels": (Y, X, {"num_measurements": 9}),
    "all labels zero": (0 * Y, X, {}),
    "constant features": (Y, np.ones_like(X), {}),
    "duplicate rows": (np.repeat(Y[:12], 2, axis=0), np.repeat(X[:12], 2, axis=0), {}),
    "one row": (Y[:1], X, {}),
    "a label never seen": (Y * (np.arange(6) > 0), X, {}),
}


@pytest.mark.parametrize("decoder", ["regression", "bp", "omp"])
@pytest.mark.parametrize("edge", EDGES)
def test_edge_cases_are_fitted_saved_and_predicted(edge: str, decoder: str, tmp_path: Path) -> None:
    labels, features, settings = EDGES[edge]
    tree = edge_tree(edge)
    tree = tree.copy()
    tree.attrs["settings"] = tree.attrs["settings"].replace('"regression"', f'"{decoder}"')
    loaded = load(save(tree, tmp_path / "edge.nc"))
    probs = mean_prob(loaded, NEW)
    assert probs.shape == (5, labels.shape[1])
    assert np.isfinite(probs).all() and probs.min() > 0 and probs.max() < 1
    kept = constants_of(loaded)
    level = min(max(1, round(labels.sum(axis=1).mean())), labels.shape[1])
    assert (decoded(loaded, NEW).labels.sum(axis=1) == level).all()
    loaded.attrs["settings"] = loaded.attrs["settings"].replace('"mean"', '"item"')
    own = decoded(loaded, NEW).labels.sum(axis=1)
    assert own.min() >= 1 and own.max() <= labels.shape[1]
    law = target_law(loaded, NEW)
    assert law.shape == (5, kept["targets"].shape[1]) and (law.variance > 0).all()
    assert np.isfinite(law.cross(2)).all()
    draw = {name: value[0] for name, value in point_draws(loaded).items()}
    with jax.enable_x64(True):
        np.testing.assert_allclose(np.asarray(predict(draw, NEW, kept)), probs, atol=1e-9)
        given = spec.prepare(data(labels, features), spec.resolve(settings))
        assert all(np.isfinite(np.asarray(v)).all() for v in functionals(draw, given).values())


@cache
def edge_tree(edge: str) -> xr.DataTree:
    labels, features, settings = EDGES[edge]
    return fit("compressed_gp", data(labels, features), "gradient", level="mean", **settings)


@pytest.mark.parametrize("edge", ["all labels zero", "one row"])
@pytest.mark.parametrize("engine", ["s_opt", "b_opt"])
def test_without_a_target_the_frequencies_are_predicted(edge: str, engine: str) -> None:
    labels, features, settings = EDGES[edge]
    tree = fit("compressed_gp", data(labels, features), engine, **settings)
    assert "no target" in tree.attrs["message"] and tree.attrs["converged"] == "yes"
    rate = (labels.sum(axis=0) + 0.5) / (len(labels) + 1.0)
    np.testing.assert_allclose(label_prob(tree, NEW).values[0, 0], np.tile(rate, (5, 1)))
    for name in ("nuts", "svi"):
        with pytest.raises(ValueError, match=f"nothing to sample for {name}: no target is left"):
            fit("compressed_gp", data(labels, features), name, **settings)


def test_a_label_never_seen_is_found_by_the_projection_alone() -> None:
    """Regression keeps to what training rows have: its probability is that of the smoothed frequency."""
    tree = edge_tree("a label never seen")
    np.testing.assert_allclose(mean_prob(tree, NEW)[:, 0], 0.5 / 25, atol=1e-9)
    kept = {**constants_of(tree), "decoder": "corr"}
    draws = point_draws(tree)
    assert np.ptp(predict_draws(draws, NEW, kept, None)[0, :, 0]) > 1e-3


def test_duplicate_rows_share_their_law() -> None:
    law = target_law(edge_tree("duplicate rows"), np.repeat(NEW[:1], 2, axis=0))
    np.testing.assert_allclose(law.variance[0], law.variance[1], rtol=1e-12)
    theta = np.exp([v[0] for v in point_draws(edge_tree("duplicate rows")).values()])
    np.testing.assert_allclose(law.cross(0)[1], law.variance[0] - theta[-1], rtol=1e-6, atol=1e-9)


def test_missing_features_are_refused_where_they_stand() -> None:
    features, labels = X.copy(), Y.copy()
    features[4, 1], labels[4] = np.nan, np.nan
    holed = LabelData.from_arrays(features, labels, allow_missing_features=True)
    with pytest.raises(
        ValueError, match="1 in 1 column: 'feature 1'.*compressed_gp has no model for missing"
    ):
        spec.prepare(holed, spec.settings)
    pool = NEW.copy()
    pool[3, 2] = np.nan
    with pytest.raises(ValueError, match="X has NaN or infinite values at the rows to predict"):
        target_law(tree_of(), pool)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "linear"}, "kernel must be one of auto, rbf, cosine, got 'linear'"),
        ({"decoder": "l2"}, "decoder must be one of regression, bp, omp, corr, got 'l2'"),
        ({"level": 3}, "level must be one of mean, item, got 3"),
        ({"num_components": 9}, "num_components=9 is more than the 3 measurements"),
        ({"noise_shape": -1}, "noise_shape must be a number"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spec.prepare(data(), spec.resolve(settings))


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("s_opt", {"max_evaluations": 5}, "max_evaluations must be an integer of at least 6, got 5"),
        ("b_opt", {"improvement": "pi"}, "improvement must be 'ei' or 'ei95', got 'pi'"),
        ("b_opt", {"levels": 0}, "levels must be an integer of at least 1"),
        ("gradient", {"max_evaluations": 9}, "knows no setting 'max_evaluations'"),
    ],
)
def test_bad_options_are_refused(engine: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit("compressed_gp", data(), engine, **options)


def test_partly_observed_rows_are_refused_or_dropped() -> None:
    labels = Y.copy()
    labels[5, 2] = np.nan
    with pytest.raises(ValueError, match="the first being 'row 5'.*drop_incomplete"):
        spec.prepare(data(labels), spec.settings)
    dropped = spec.prepare(data(labels), spec.resolve({"drop_incomplete": True}))
    assert len(dropped["targets"]) == 23 and dropped["new_products"].shape == (1, 24)


def test_more_rows_than_fit_are_refused_before_any_work() -> None:
    many = LabelData.from_arrays(np.zeros((12_000, 1)), np.zeros((12_000, 2)))
    with pytest.raises(ValueError, match="keeps its 12000 rows with labels as dense tables"):
        spec.prepare(many, spec.settings)


def test_a_row_beyond_all_numbers_is_named() -> None:
    far = NEW.copy()
    far[2] = 1e160
    with pytest.raises(ValueError, match="X: row 2 is too far from the training rows"):
        mean_prob(tree_of(), far)


def test_left_out_functionals_are_those_of_refits() -> None:
    draw = {name: value[0] for name, value in some_draws(1).items()}
    given = inputs()
    with jax.enable_x64(True):
        found = {name: np.asarray(value) for name, value in functionals(draw, given).items()}
    n, count = given["targets"].shape
    keep = np.unique(np.linspace(0, n * count - 1, min(60, n * count)).round().astype(int))
    row = keep[0] % n
    others = np.delete(np.arange(n), row)
    theta = np.exp(np.stack(list(draw.values()), axis=-1))
    caches = k14.Caches(given["mapped"][others])
    refit = k14.condition(theta, given["targets"][others], caches)
    law = k14.predict(refit, caches, given["mapped"][row : row + 1])
    np.testing.assert_allclose(found["left_out_mean"][0], law.mean[0, keep[0] // n], rtol=1e-8)
    np.testing.assert_allclose(found["left_out_log_variance"][0], np.log(law.variance[0, keep[0] // n]))
    whole = k14.log_likelihood(theta, given["targets"], k14.Caches(given["mapped"]))
    np.testing.assert_allclose(found["log_likelihood"], whole, rtol=1e-9)


def test_regressed_is_linear() -> None:
    kept = constants()
    zero = np.zeros((1, kept["targets"].shape[1]))
    np.testing.assert_allclose(regressed(zero, kept)[0], kept["label_frequency"])


@pytest.mark.parametrize("compression", ["ppca", "none"])
def test_other_compressions_predict_and_are_kept(compression: str, tmp_path: Path) -> None:
    tree = fit("compressed_gp", data(), "gradient", compression=compression, num_measurements=4, level="mean")
    kept = constants_of(tree)
    U = np.asarray(kept["targets"])
    np.testing.assert_allclose(U.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose((U**2).mean(axis=0), 1.0, atol=1e-9)
    slope = np.linalg.lstsq(U, Y - Y.mean(axis=0), rcond=1e-10)[0]
    np.testing.assert_allclose(kept["label_coefficients"], slope, atol=1e-8)
    path = tmp_path / "tree.nc"
    save(tree, path)
    again = load(path)
    np.testing.assert_array_equal(mean_prob(again, NEW), mean_prob(tree, NEW))
    assert decoded(again, NEW).labels.sum(axis=1).tolist() == [int(kept["training_level"])] * 5


def test_unknown_compression_is_refused() -> None:
    with pytest.raises(ValueError, match="compression must be one of bpca, ppca, none, got 'svd'"):
        fit("compressed_gp", data(), "gradient", compression="svd")
