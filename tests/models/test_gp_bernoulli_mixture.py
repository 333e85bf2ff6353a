"""The programs and the card of gp_bernoulli_mixture: data in, bases, new rows, and what cannot be."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.inference.checks.programs import log_joint, split_inputs
from labelzoo.models import gp_bernoulli_mixture_predict as prediction
from labelzoo.models import gp_bernoulli_mixture_settings as limits
from labelzoo.models.gp_bernoulli_mixture import label_scores, log_gate
from labelzoo.models.gp_bernoulli_mixture_card import constants, prepare, spec
from labelzoo.models.gp_bernoulli_mixture_predict import predict_draws, predict_moments
from labelzoo.models.sparse_bayes_kernel import register_kernel
from labelzoo.models.sparse_bayes_predict import kernel_of

Array = Any


def data_of(rows: int = 8, labels: int = 3, seed: int = 0) -> LabelData:
    rng = np.random.default_rng(seed)
    Y = (rng.random((rows, labels)) < 0.4).astype(float)
    Y[0, 0] = np.nan
    return LabelData(rng.standard_normal((rows, 2)), Y)


def settings_of(**changed: Any) -> dict[str, Any]:
    return spec.resolve({"num_components": 3, "gate_mean": -1.0, **changed})


def draws_of(inputs: dict[str, Any], count: int = 4, seed: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    shape = inputs["prior_positive"].shape
    return {
        "white": rng.standard_normal((count, shape[0], inputs["factor"].shape[1])),
        "component_probs": rng.uniform(0.05, 0.95, (count, *shape)),
        "component_size": rng.uniform(0.0, 5.0, (count, shape[0])),
    }


def constants_of(inputs: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings, **spec.constants(inputs)}


def density(inputs: dict[str, Any], state: dict[str, Array]) -> float:
    arrays, static = split_inputs(inputs)
    values = {name: np.asarray(value)[None] for name, value in state.items()}
    return float(log_joint(arrays, values, static=static, view=spec.views["summed"])[0][0])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_gates_are_finite_at_every_size(kind: Any) -> None:
    f = np.array([[-1e30, -1e30], [-800.0, -801.0], [0.0, 900.0], [1e30, 1e30], [-1e30, 0.0]], kind)
    found = np.asarray(log_gate(f))
    assert found.dtype == kind
    assert not np.isnan(found).any()
    np.testing.assert_allclose(np.exp(found[1]), [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))], rtol=1e-4)
    np.testing.assert_allclose(np.exp(found[3]), 0.5, rtol=1e-6)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_probabilities_of_0_and_1_give_finite_scores(kind: Any) -> None:
    probs = np.array([[0.0, 1.0], [1.0, 0.0]], kind)
    Y = np.array([[1.0, 1.0], [0.0, 1.0]], kind)
    found = np.asarray(label_scores(probs, Y, np.array([[True, True], [True, False]])))
    assert np.isfinite(found).all()
    assert abs(found[1, 0]) < 1e-37


def test_no_residual_is_a_residual_of_0() -> None:
    inputs = prepare(data_of(), settings_of())
    draw = {name: value[0] for name, value in draws_of(inputs, 1).items() if name != "component_size"}
    rows = len(inputs["Y"])
    noise = np.random.default_rng(0).standard_normal((rows, 3))
    prior = -0.5 * (noise**2).sum() - 0.5 * noise.size * np.log(2 * np.pi)
    with_rest = density({**inputs, "residual": np.zeros(rows)}, {**draw, "residual_white": noise})
    assert with_rest == pytest.approx(density(inputs, draw) + prior, rel=1e-12)
    moved = density({**inputs, "residual": np.ones(rows)}, {**draw, "residual_white": noise})
    assert moved != pytest.approx(with_rest, rel=1e-6)


def test_rows_without_labels_are_left_out() -> None:
    whole = data_of()
    Y = np.where(whole.observed_mask(), whole.Y.toarray(), np.nan)
    Y[3] = np.nan
    inputs = prepare(LabelData(whole.X, Y), settings_of())
    assert inputs["fitted_row"].tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert inputs["Y"].shape == inputs["observed"].shape == (7, 3)
    assert inputs["Y"][0, 0] == 0.0
    assert not inputs["observed"][0, 0]


def test_factor_and_whitener_are_those_of_the_kernel() -> None:
    settings = settings_of(amplitude=2.5)
    for kernel in ("rbf", "cosine", "linear"):
        inputs = prepare(data_of(), {**settings, "kernel": kernel})
        K = kernel_of(constants_of(inputs, settings)).of_mapped(inputs["mapped"], inputs["mapped"])
        F = inputs["factor"]
        np.testing.assert_allclose(F @ F.T, 2.5 * K, atol=1e-9)
        np.testing.assert_allclose(2.5 * K @ inputs["whitener"], F, atol=1e-9)


def test_inducing_rows_hold_what_they_can() -> None:
    settings = settings_of(num_inducing=4, kernel="rbf")
    data = data_of(12)
    full = prepare(data, {**settings, "num_inducing": None})
    K = full["factor"] @ full["factor"].T
    few, all_ = prepare(data, settings), prepare(data, {**settings, "num_inducing": 100})
    for inputs in (few, all_):
        F, rest = inputs["factor"], inputs["residual"]
        np.testing.assert_allclose((F**2).sum(axis=1) + rest, np.diag(K), atol=1e-9)
        cross, left = prediction.basis_rows(constants_of(inputs, settings), data.X)
        np.testing.assert_allclose(cross, F, atol=1e-7)
        np.testing.assert_allclose(left, rest, atol=1e-7)
    assert few["factor"].shape == (12, 4)
    assert few["residual"].max() > 1e-3
    np.testing.assert_allclose(all_["factor"] @ all_["factor"].T, K, atol=1e-4)


def test_inducing_inputs_hold_positives_and_unobserved_cells_alone() -> None:
    inputs = prepare(data_of(), settings_of(num_inducing=4))
    dense = prepare(data_of(), settings_of())
    assert sparse.issparse(inputs["Y"])
    assert "observed" not in inputs
    np.testing.assert_array_equal(inputs["Y"].toarray(), dense["Y"])
    np.testing.assert_array_equal(inputs["missing"].toarray() > 0, ~dense["observed"])
    draw = {name: value[0] for name, value in draws_of(inputs, 1).items()}
    observed = {"Y": dense["Y"], "observed": dense["observed"]}
    for name, value in spec.functionals(draw, inputs).items():
        other = spec.functionals(draw, {**inputs, **observed})[name]
        np.testing.assert_allclose(value, other, rtol=1e-12, err_msg=name)


def test_sparse_features_give_the_same_inducing_basis() -> None:
    data = data_of(10)
    X = np.abs(data.X) * (np.abs(data.X) > 0.4) + 0.1
    dense = prepare(LabelData(X, data.Y), settings_of(num_inducing=3, kernel="cosine"))
    csr = prepare(LabelData(sparse.csr_array(X), data.Y), settings_of(num_inducing=3, kernel="cosine"))
    np.testing.assert_allclose(csr["factor"], dense["factor"], atol=1e-12)


@pytest.mark.parametrize(
    ("X", "Y"),
    [
        ([[0.3, 1.0]], [[1, 0]]),
        ([[0.3, 1.0]] * 4, [[1, 0], [0, 1], [1, 1], [0, 0]]),
        ([[0.1, 2.0], [1.0, -1.0], [3.0, 0.0]], [[1, 0], [1, 0], [1, 0]]),
    ],
    ids=["one row", "duplicates", "constant labels"],
)
def test_poor_data_have_a_posterior(X: Any, Y: Any) -> None:
    data, settings = LabelData(np.array(X), np.array(Y)), settings_of(num_components=7, kernel="rbf")
    inputs = prepare(data, settings)
    assert inputs["prior_positive"].shape == (7, 2)
    draws = draws_of(inputs)
    draw = {name: value[0] for name, value in draws.items()}
    assert np.isfinite(density(inputs, {k: v for k, v in draw.items() if k != "component_size"}))
    rows = np.array([[0.3, 1.0], [-4.0, 2.0]])
    probs = spec.predict_draws(draws, rows, constants_of(inputs, settings), np.random.default_rng(0))
    assert np.isfinite(probs).all()
    assert all(np.isfinite(np.asarray(value)).all() for value in spec.functionals(draw, inputs).values())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("num_components", 0, "num_components must be an integer of at least 1"),
        ("num_components", 2.5, "num_components must be an integer"),
        ("gate_mean", float("nan"), "gate_mean must be a number from -50 to 50"),
        ("gate_mean", -51, "gate_mean must be"),
        ("amplitude", 0.0, "amplitude must be a number"),
        ("length_factor", -1.0, "length_factor must be a number from 1e-6 to 1e6 or None"),
        ("prior_strength", None, "prior_strength must be"),
        ("prior_mean", 1.0, "prior_mean must be"),
        ("prior_mean", "rate", "prior_mean must be"),
        ("hyperparameters", "evidence", "hyperparameters must be fixed or bound"),
        ("num_inducing", 0, "num_inducing must be an integer"),
        ("rho", 1.5, "rho must be a number from 0 to 1"),
        ("start_seed", -1, "start_seed must be"),
        ("kernel", "no_such", "kernel must be one of"),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        prepare(data_of(), settings_of(**{name: value}))


def test_data_that_cannot_be_fitted_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = np.zeros((3, 2)), np.zeros((3, 2))
    with pytest.raises(ValueError, match="no label is observed"):
        prepare(LabelData(X, np.full((3, 2), np.nan)), settings_of())
    holes = LabelData(np.array([[np.nan, 1.0]] * 3), Y.astype(int), allow_missing_features=True)
    with pytest.raises(ValueError, match="no model for missing features"):
        prepare(holes, settings_of())
    monkeypatch.setattr(limits, "MAX_ROWS", 5)
    with pytest.raises(ValueError, match="takes at most 5 rows with labels, got 8"):
        prepare(data_of(), settings_of())
    prepare(data_of(), settings_of(num_inducing=2))
    monkeypatch.setattr(limits, "MAX_DENSE_BYTES", 100)
    with pytest.raises(ValueError, match="dense table of 8 rows x 3 components, above the cap"):
        prepare(data_of(), settings_of(num_inducing=2))


def test_prior_by_frequency() -> None:
    inputs = prepare(data_of(), settings_of(prior_mean="frequency", prior_strength=4.0))
    mean = (inputs["Y"].sum(axis=0) + 0.5) / (inputs["observed"].sum(axis=0) + 1.0)
    np.testing.assert_allclose(inputs["prior_positive"], np.tile(4.0 * mean, (3, 1)))
    np.testing.assert_allclose(inputs["prior_negative"], np.tile(4.0 * (1 - mean), (3, 1)))


def test_predictions_at_the_training_rows_are_those_of_the_program() -> None:
    settings = settings_of(kernel="rbf")
    data = data_of()
    inputs = prepare(data, settings)
    draws, constants = draws_of(inputs), constants_of(inputs, settings)
    f = inputs["gate_mean"] + np.einsum("nb,skb->snk", inputs["factor"], draws["white"])
    wanted = np.exp(np.asarray(log_gate(f))) @ draws["component_probs"]
    found = spec.predict_draws(draws, data.X, constants, np.random.default_rng(0))
    np.testing.assert_allclose(found, wanted, atol=2e-4)  # the square root of rounding in what is left
    for s in range(4):
        one = spec.predict({name: value[s] for name, value in draws.items()}, data.X, constants)
        np.testing.assert_allclose(one, wanted[s], atol=1e-6)


def test_new_rows_are_drawn_jointly_and_moments_are_theirs() -> None:
    settings = settings_of(kernel="rbf")
    inputs = prepare(data_of(), settings)
    one = draws_of(inputs, 1)
    draws = {name: np.repeat(value, 4000, axis=0) for name, value in one.items()}
    constants = constants_of(inputs, settings)
    rows = np.array([[3.0, 3.0], [3.0, 3.0], [-4.0, 9.0]])
    found = spec.predict_draws(draws, rows, constants, np.random.default_rng(0))
    np.testing.assert_allclose(found[:, 0], found[:, 1], atol=1e-5)
    mean, sd = spec.predict_moments(draws, rows, constants, np.random.default_rng(0))
    np.testing.assert_allclose(mean, found.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(sd, found.std(axis=0), rtol=1e-9)
    # A row far from all others has its prior: independent gates of variance 4.
    f = -1.0 + 2.0 * np.random.default_rng(3).standard_normal((200_000, 3))
    wanted = np.exp(np.asarray(log_gate(f))) @ one["component_probs"][0]
    error = np.sqrt(found[:, 2].var(axis=0) / 4000 + wanted.var(axis=0) / 200_000)
    z = (found[:, 2].mean(axis=0) - wanted.mean(axis=0)) / error
    assert np.abs(z).max() < 5, z


def test_log_scores_are_joint_laws_of_the_labels() -> None:
    settings = settings_of()
    inputs = prepare(data_of(), settings)
    draw = {name: jnp.asarray(value[0]) for name, value in draws_of(inputs, 1).items()}
    constants = constants_of(inputs, settings)
    tables = np.array(list(product((0.0, 1.0), repeat=3)))
    new = prepare(LabelData(np.tile([[0.5, 2.0]], (8, 1)), tables), settings, constants)
    assert new["residual"].max() > 0.1
    # The same normals are drawn for each row only where there is one row a call.
    scores = [
        spec.log_score(draw, {**new, **{n: new[n][i : i + 1] for n in ROWS}}, jax.random.key(0))[0]
        for i in range(8)
    ]
    assert np.exp(scores).sum() == pytest.approx(1.0, rel=1e-10)
    hidden = LabelData(np.array([[0.5, 2.0]]), np.array([[1.0, 0.0, np.nan]]))
    part = prepare(hidden, settings, constants)
    score = float(spec.log_score(draw, part, jax.random.key(0))[0])
    assert score == pytest.approx(float(np.logaddexp(scores[4], scores[5])), rel=1e-10)


ROWS = ("factor", "residual", "Y", "observed")


def test_components_left_out_by_rho() -> None:
    settings = settings_of(rho=0.8)
    inputs = prepare(data_of(), settings)
    draws, constants = draws_of(inputs, 1), constants_of(inputs, settings)
    draws["component_size"] = np.array([[20.0, 0.1, 18.0]])
    assert prediction.kept_components(draws, constants).tolist() == [[True, False, True]]
    one = {name: value[0] for name, value in draws.items()}
    without = {n: np.delete(v, 1, axis=0) for n, v in one.items()}
    found = spec.predict(one, data_of().X, constants)
    wanted = spec.predict(without, data_of().X, {**constants, "rho": 0.0})
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    drawn = spec.predict_draws(draws, data_of().X, constants, np.random.default_rng(0))
    np.testing.assert_allclose(drawn[0], wanted, atol=2e-4)
    del draws["component_size"]
    with pytest.raises(ValueError, match="no component_size"):
        spec.predict_draws(draws, data_of().X, constants, np.random.default_rng(0))
    equal = {"component_size": np.ones((2, 3))}
    assert prediction.kept_components(equal, {**constants, "rho": 1.0}).all()


def test_a_users_kernel_is_kept_by_name_and_held_to_its_word() -> None:
    register_kernel("mixture_test", lambda A, B: np.exp(-np.abs(A[:, None] - B[None]).sum(axis=2)))
    settings = settings_of(kernel="mixture_test")
    inputs = prepare(data_of(), settings)
    draws, constants = draws_of(inputs), constants_of(inputs, settings)
    found = spec.predict_draws(draws, data_of().X, constants, np.random.default_rng(0))
    one = {name: value[0] for name, value in draws.items()}
    traced = jax.jit(lambda X: spec.predict(one, X, constants))(jnp.asarray(data_of().X))
    np.testing.assert_allclose(traced, found[0], atol=2e-4)
    register_kernel("mixture_test", lambda A, B: np.exp(-0.5 * np.abs(A[:, None] - B[None]).sum(axis=2)))
    with pytest.raises(ValueError, match="is not the function of the fit"):
        spec.predict_draws(draws, data_of().X, constants, np.random.default_rng(0))
    register_kernel("mixture_test", lambda A, B: -(A @ B.T))
    with pytest.raises(ValueError, match="not positive definite"):
        prepare(data_of(), settings)


def test_drawn_labels_follow_the_predictions() -> None:
    settings = settings_of()
    data = data_of()
    inputs = prepare(data, settings)
    draw = {name: jnp.asarray(value[0]) for name, value in draws_of(inputs, 1).items()}
    constants = constants_of(inputs, settings)
    keys = jax.random.split(jax.random.key(2), 4000)
    labels, sites = jax.vmap(lambda key: spec.draw_labels(draw, jnp.asarray(data.X), constants, key))(keys)
    wanted = np.asarray(spec.predict(draw, data.X, constants))
    z = (np.asarray(labels).mean(axis=0) - wanted) / np.sqrt(wanted * (1 - wanted) / 4000)
    assert np.abs(z).max() < 5, z
    assert set(np.unique(sites["assignment"])) <= {0, 1, 2}


def test_simulated_data_follow_the_prior() -> None:
    sizes = {"num_obs": 2000, "num_features": 2, "num_labels": 2, "num_components": 3, "prior_mean": 0.2}
    data, sites = spec.simulate(jax.random.key(0), sizes, gate_mean=-2.0)
    inputs = prepare(data, settings_of(gate_mean=-2.0, prior_mean=0.2))
    f = -2.0 + inputs["factor"] @ sites["white"].T
    pi = np.exp(np.asarray(log_gate(f)))
    own = np.bincount(sites["assignment"], minlength=3)
    error = np.sqrt((pi * (1 - pi)).sum(axis=0))
    assert np.abs((own - pi.sum(axis=0)) / error).max() < 5
    expected = sites["component_probs"][sites["assignment"]]
    z = (data.Y.toarray() - expected).sum(axis=0) / np.sqrt((expected * (1 - expected)).sum(axis=0))
    assert np.abs(z).max() < 5
    for name, value in (("prior_mean", "frequency"), ("hyperparameters", "bound")):
        with pytest.raises(ValueError, match=f"{name}='{value}' reads the labels"):
            spec.simulate(jax.random.key(0), sizes, **{name: value})


def test_verdicts_do_not_depend_on_the_numbering_of_components() -> None:
    inputs = prepare(data_of(), settings_of())
    draw = {name: value[0] for name, value in draws_of(inputs, 1).items()}
    order = [2, 0, 1]
    moved = {name: value[order] for name, value in draw.items()}
    found, other = spec.functionals(draw, inputs), spec.functionals(moved, inputs)
    assert set(found) == {
        "label_mean", "label_rate", "co_clustering", "gate_square", "gate_sum", "gate_sum_square",
        "component_share",
    }  # fmt: skip
    for name, value in found.items():
        np.testing.assert_allclose(other[name], value, rtol=1e-12, err_msg=name)


def test_a_length_that_no_kernel_reads_is_refused() -> None:
    csr = LabelData(sparse.csr_array(np.abs(data_of().X)), data_of().Y)
    with pytest.raises(ValueError, match="length_factor is not read by the kernel 'cosine'"):
        spec.refuse(csr, {"length_factor": 2.0})
    spec.refuse(data_of(), {"length_factor": 2.0})
    spec.refuse(csr, {"kernel": "cosine"})


def test_a_far_row_is_refused_and_spoils_no_other() -> None:
    """The law of a row does not depend on which rows it is asked with."""
    data = data_of()
    settings = settings_of(kernel="linear", amplitude=9.0)
    kept = {**settings, **constants(prepare(data, settings))}
    rng = np.random.default_rng(3)
    white = rng.standard_normal((4000, 3, kept["whitener"].shape[1]))
    draws = {"white": white, "component_probs": rng.uniform(size=(4000, 3, data.num_labels))}
    X = rng.standard_normal((6, data.num_features))
    far = np.concatenate([X, 1e9 * X[:1]])
    alone, sd = predict_moments(draws, X, kept, np.random.default_rng(0))
    beside, _ = predict_moments(draws, far, kept, np.random.default_rng(1))
    assert np.abs((beside[:6] - alone) / (sd * np.sqrt(2 / 4000))).max() < 5
    joint = predict_draws({name: site[:500] for name, site in draws.items()}, far, kept, rng)
    assert np.abs((joint[:, :6].mean(axis=0) - alone) / (sd / np.sqrt(500))).max() < 5
    for value in (1e154, np.sqrt(np.finfo(float).max)):
        far[6, 1] = value
        for X_far in (far, sparse.csr_array(far)):
            with pytest.raises(ValueError, match="X: row 6, feature 1 is beyond"):
                predict_moments(draws, X_far, kept, rng)
