"""Bad options and odd data are refused in one line that names them, before a start or a compilation."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from scipy import sparse

import labelzoo
from labelzoo.arguments import size_words
from labelzoo.calibration import calibrate
from labelzoo.completion import complete, complete_top
from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics import em, exact_em, online_em
from labelzoo.inference.bernoulli_poisson_topics.memory_plan import refuse_large
from labelzoo.inference.posterior import load
from labelzoo.inference.predict import mean_prob
from labelzoo.label_sets import joint_prob
from labelzoo.marginal import loo, row_log_likelihood
from labelzoo.models.design import column_moments, design_matrix, sparse_design

MODEL = "bernoulli_poisson_topics"
EM = ("vb_em", "map_em", "online_em", "exact_em")


def toy(rows: int = 20, scale: float = 1.0, num_labels: int = 5) -> LabelData:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((rows, 3)) + [0.0, 2.0, -1.0]
    Y = rng.random((rows, num_labels)) < 1 / (1 + np.exp(1 - X @ rng.standard_normal((3, num_labels))))
    return LabelData.from_arrays(X * scale, Y.astype(np.int8))


@pytest.fixture(scope="module")
def fitted() -> xr.DataTree:
    return labelzoo.fit(MODEL, toy(), "vb_em", num_topics=2, max_iter=3)


@pytest.fixture
def no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a start was made before the options were looked at")

    for module in (em, online_em, exact_em):
        monkeypatch.setattr(module, "make_start", begun)


def refused(call: Callable[[], Any], *parts: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize("engine", EM)
@pytest.mark.parametrize("value", ["no", "yes", 1, None])
@pytest.mark.usefixtures("no_start")
def test_positives_only_is_a_switch(engine: str, value: Any) -> None:
    call = lambda: labelzoo.fit(MODEL, toy(), engine, num_topics=2, positives_only=value)  # noqa: E731
    refused(call, "positives_only must be True or False", repr(value))


@pytest.mark.parametrize(
    ("engines", "name", "values"),
    [
        (("vb_em", "online_em"), "shape_floor", ["abc", None, [], True]),
        (("vb_em", "online_em"), "dtype", [{"a": 1}, [], None]),
        (("vb_em", "online_em"), "cg_steps", [10**6, True, 1.5, "x"]),
        (("vb_em",), "cg_tolerance", [True, None, "x"]),
        (("online_em",), "step_power", [True, "x"]),
        (("online_em",), "step_offset", [True, "x", 10**400]),
        (("vb_em", "exact_em"), "max_iter", [0, True, 1.5, "x"]),
        (("vb_em", "exact_em"), "tolerance", [True, -1, "x"]),
        (("vb_em", "exact_em"), "gradient_tolerance", [True, 0, "x"]),
        (("exact_em",), "max_positives", [True, 17]),
        (("exact_em",), "max_relative_error", ["x", None]),
        (("vb_em", "online_em"), "max_bytes", [True, "x", None]),
    ],
)
@pytest.mark.usefixtures("no_start")
def test_engine_options_are_named(engines: tuple[str, ...], name: str, values: list[Any]) -> None:
    for engine in engines:
        for value in values:
            refused(
                lambda engine=engine, value=value: labelzoo.fit(
                    MODEL, toy(), engine, num_topics=2, **{name: value}
                ),
                name,
                repr(value)[:20],
            )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prior_scale", 1e300),
        ("prior_scale", 1e-300),
        ("prior_scale", 10**400),
        ("prior_scale", True),
        ("shape", True),
        ("topic_concentration", True),
        ("intercept_precision", True),
        ("precision_prior", (True, 1.0)),
        ("precision_prior", 5),
        ("shape_prior", (1.0, True)),
        ("shape_prior", np.array([1.0, -1.0])),
    ],
)
@pytest.mark.usefixtures("no_start")
def test_settings_are_named(name: str, value: Any) -> None:
    refused(lambda: labelzoo.fit(MODEL, toy(), "vb_em", **{"num_topics": 2, name: value}), name)


def test_arrays_and_numpy_numbers_are_kept_with_the_posterior() -> None:
    tree = labelzoo.fit(
        MODEL,
        toy(),
        "vb_em",
        num_topics=np.int64(2),
        precision_prior=np.array([1.0, 2.0]),
        shape_prior=(np.float32(2.0), 3),
        max_iter=np.int32(2),
    )
    assert '"precision_prior": [1.0, 2.0]' in tree.attrs["settings"]
    assert '"max_iter": 2' in tree.attrs["options"]


@pytest.mark.parametrize("value", [{1, 2}, object(), LabelData])
@pytest.mark.usefixtures("no_start")
def test_what_could_not_be_kept_is_refused_before_the_run(value: Any) -> None:
    refused(lambda: labelzoo.fit(MODEL, toy(), "vb_em", start=value), "start must be a number, a string")


@pytest.mark.parametrize("value", [5, {"a": 1}])
def test_resume_from_and_load_want_a_path(value: Any) -> None:
    refused(lambda: labelzoo.fit(MODEL, toy(), "gibbs", resume_from=value), "resume_from", repr(value))
    refused(lambda: load(value), "path must be", repr(value))


@pytest.mark.parametrize("seed", ["x", 1.5, None, True, -1, 2**32, 2**70, np.ones(2)])
def test_seeds_are_named(seed: Any) -> None:
    refused(lambda: labelzoo.fit(MODEL, toy(), "vb_em", seed=seed), "seed must be an integer from 0 to")
    refused(lambda: labelzoo.tune(MODEL, toy(), grid={"num_topics": [2]}, seed=seed), "seed must be")


def test_a_seed_and_its_key_agree() -> None:
    options = {"num_topics": 2, "max_iter": 2, "start": "random"}
    one = labelzoo.fit(MODEL, toy(), "vb_em", seed=np.int64(2**32 - 1), **options)
    other = labelzoo.fit(MODEL, toy(), "vb_em", seed=jax.random.key(2**32 - 1), **options)
    np.testing.assert_array_equal(one["posterior"]["weights"], other["posterior"]["weights"])


def test_tables_that_are_no_label_data_are_named(fitted: xr.DataTree) -> None:
    X = toy().X
    for call in (
        lambda: labelzoo.fit(MODEL, X, "vb_em"),
        lambda: joint_prob(fitted, X, [0]),
        lambda: complete(fitted, X),
        lambda: complete_top(fitted, X, 1),
        lambda: row_log_likelihood(fitted, X),
        lambda: calibrate(np.full((20, 5), 0.5), X, apart_from=[]),
    ):
        refused(call, "data must be a LabelData, got ndarray")
    draws = fitted.copy()
    draws.attrs["random_sites"] = '["topics", "weights", "shape"]'
    refused(lambda: loo(draws, X), "data must be a LabelData, got ndarray")


def test_numbers_of_functions_on_posteriors_are_named(fitted: xr.DataTree) -> None:
    data, half = toy(), np.full((20, 5), 0.5)
    for name, value in (("num_samples", 0), ("num_samples", "x"), ("num_samples", True), ("seed", "x")):
        refused(lambda n=name, v=value: joint_prob(fitted, data, [0], **{n: v}), name, repr(value))
        refused(lambda n=name, v=value: row_log_likelihood(fitted, data, **{n: v}), name, repr(value))
        refused(lambda n=name, v=value: complete(fitted, data, **{n: v}), name, repr(value))
    for value in ("x", None, True, 0):
        refused(lambda v=value: complete(fitted, data, max_bytes=v), "max_bytes", repr(value))
        refused(lambda v=value: calibrate(half, data, apart_from=[], max_iter=v), "max_iter", repr(value))
    refused(lambda: complete(fitted, data, max_bytes=10), "1600 bytes, above max_bytes=10")


def test_joint_probabilities_do_not_look_at_labels(fitted: xr.DataTree) -> None:
    data = toy()
    other = LabelData.from_arrays(data.X, np.zeros((20, 9), np.int8))
    expected = joint_prob(fitted, data, [0, 3])
    np.testing.assert_array_equal(joint_prob(fitted, other, [0, 3])["prob"], expected["prob"])


def test_small_plans_are_told_in_units_that_show_them() -> None:
    assert [size_words(v) for v in (900, 3 * 2**20, 2**31)] == ["900 bytes", "3.00 MiB", "2.00 GiB"]
    refused(lambda: refuse_large({"a": 2000}, 1000, switch="s"), "hold 2000 bytes", "(1000 bytes)")


SCALES = (1e-13, 1e-170, 1e-300, 1e160, 1e300)


@pytest.mark.parametrize("scale", SCALES)
def test_columns_and_rows_of_any_scale_are_the_same_design(scale: float) -> None:
    X = np.random.default_rng(3).standard_normal((40, 3)) * [1.0, 10.0, 0.3] + [0.0, 2.0, 5.0]
    X[4] = 0.0
    norm = np.sqrt((X**2).sum(axis=1, keepdims=True))
    unit = X / np.where(norm > 0, norm, 1.0)
    how = {"intercept": False, "scale_rows": True}
    np.testing.assert_allclose(design_matrix(jax.numpy.asarray(X * scale), **how), unit, rtol=1e-13)
    np.testing.assert_allclose(sparse_design(sparse.csr_array(X * scale), **how).toarray(), unit, rtol=1e-13)
    mean, sd = column_moments(X * scale)
    np.testing.assert_allclose(mean / scale, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(sd / scale, X.std(axis=0), rtol=1e-12)


def test_ordinary_features_keep_their_moments_and_constant_columns_their_unit() -> None:
    X = np.random.default_rng(3).standard_normal((40, 3)) * [1.0, 1e5, 1e-3] + [0.0, 2.0, 5.0]
    mean, sd = column_moments(X)
    np.testing.assert_array_equal(mean, X.mean(axis=0))
    np.testing.assert_array_equal(sd, X.std(axis=0))
    assert column_moments(np.full((7, 1), 0.1) * [1.0, 1e-200, 0.0, 1e300])[1].tolist() == [1.0] * 4


@pytest.mark.parametrize("sparse_features", [False, True])
@pytest.mark.parametrize("scale", [1e-13, 1e-300, 1e300])
def test_predictions_do_not_depend_on_the_unit_of_the_features(scale: float, sparse_features: bool) -> None:
    def fit_predict(s: float) -> Any:
        data = toy(60, s)
        if sparse_features:
            data = LabelData.from_arrays(sparse.csr_array(data.X), data.Y)
        return mean_prob(labelzoo.fit(MODEL, data, "vb_em", num_topics=2, max_iter=10), data)

    plain = fit_predict(1.0)
    assert plain.std(axis=0).max() > 0.05
    np.testing.assert_allclose(fit_predict(scale), plain, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-170, 1e160])
@pytest.mark.parametrize("more", [{}, {"precision_prior": (1.0, 1.0)}])
def test_features_left_as_they_are_must_be_of_a_scale_with_squares(scale: float, more: Any) -> None:
    asis = {"standardize": False, "scale_rows": False, "num_topics": 2, **more}
    refused(lambda: labelzoo.fit(MODEL, toy(scale=scale), "vb_em", **asis), "X: the largest feature is")


def test_small_features_left_as_they_are_predict_as_large_ones() -> None:
    asis = {"standardize": False, "scale_rows": False, "num_topics": 2, "max_iter": 5}
    asis |= {"w_step": "exact", "start": "random"}  # a ridge start has a penalty in the unit of the features
    found = [mean_prob(labelzoo.fit(MODEL, toy(60, s), "vb_em", **asis), toy(60, s)) for s in (1.0, 1e-12)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_tune_keeps_the_fits_beside_a_refused_one_and_refuses_repeated_values() -> None:
    data = toy(40)
    found = labelzoo.tune(
        MODEL, data, "vb_em", {"cg_steps": [2, 10**6]}, num_topics=2, max_iter=2, metric="micro_auc"
    )
    assert found.best == {"cg_steps": 2}
    assert "cg_steps must be an integer from 1 to 1000" in found.table["problem"][1]
    assert np.isfinite(found.table["mean"][0]) and np.isnan(found.table["mean"][1])
    for values in ([2, 3, 2], np.array([2, 2]), [2, 2.0]):
        refused(
            lambda v=values: labelzoo.tune(MODEL, data, grid={"num_topics": v}),
            "grid: num_topics has the value 2",
            "more than once",
        )
