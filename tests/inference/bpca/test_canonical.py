"""Closed-form maximum likelihood and canonical targets: exact orthogonality, weights and edge cases."""

from typing import Any

import jax
import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.bpca.canonical import canonical_of, canonical_targets, targets_of_scores
from labelzoo.inference.bpca.mean_field import climb, start
from labelzoo.inference.bpca.ml import FLOOR, ppca, score_means
from labelzoo.inference.fit import fit
from labelzoo.models.bpca_card import log_likelihood, spec

RNG = np.random.default_rng(4)
Y = (RNG.random((40, 12)) < 0.4).astype(int)


def data(labels: Any = Y) -> LabelData:
    return LabelData(np.zeros((len(labels), 1)), np.asarray(labels))


def inputs_of(labels: Any = Y, **settings: Any) -> dict[str, Any]:
    return spec.prepare(data(labels), spec.resolve(settings))


def orthogonality(targets: np.ndarray) -> float:
    m, q = targets.shape
    return float(max(np.abs(targets.T @ targets / m - np.eye(q)).max(), np.abs(targets.mean(axis=0)).max()))


def test_no_rival_has_a_larger_likelihood() -> None:
    inputs = inputs_of()
    best = ppca(inputs, 3)
    at_best = {"mean": best.mean, "loadings": best.loadings, "noise_precision": 1 / best.noise_variance}
    value = float(log_likelihood(at_best, inputs))
    rng = np.random.default_rng(1)
    for scale in np.repeat([1e-3, 1e-2, 0.1, 0.5], 10):
        rival = {
            "mean": best.mean + scale * rng.standard_normal(6),
            "loadings": best.loadings + scale * rng.standard_normal((6, 3)),
            "noise_precision": np.exp(scale * rng.standard_normal()) / best.noise_variance,
        }
        assert float(log_likelihood(rival, inputs)) < value


def test_targets_of_ppca_are_orthogonal_and_weights_its_eigenvalues() -> None:
    inputs = inputs_of()
    best = ppca(inputs, 4)
    scores = score_means(best, inputs["compressed"])
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((4, 4)))[0]
    for rotation in (np.eye(4), turn):
        found = canonical_targets(scores @ rotation, best.loadings @ rotation, best.mean, best.noise_variance)
        np.testing.assert_allclose(found.weights, best.eigenvalues[:4], rtol=1e-10)
        assert orthogonality(found.targets) < 1e-10
    # The scores themselves are orthogonal without the rotation alone.
    turned = scores @ turn
    centred = turned - turned.mean(axis=0)
    covariance = centred.T @ centred / len(Y)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 1e-3


@pytest.mark.parametrize("sweeps", [1, 3, 10, 200])
def test_targets_are_orthogonal_at_any_stopping_point(sweeps: int) -> None:
    inputs = inputs_of()
    limits: dict[str, Any] = {"max_iter": sweeps, "tolerance": 0.0, "prune": 0.0}
    found = climb(start(jax.random.key(0), inputs, 5), inputs, rotation=False, **limits).factors
    noise = float(found.noise_rate / found.noise_shape)
    targets = canonical_targets(found.scores_mean, found.loadings_mean, found.mean_mean, noise)
    assert orthogonality(targets.targets) < 1e-10
    fitted = found.scores_mean @ found.loadings_mean.T + found.mean_mean
    np.testing.assert_allclose(targets.offset + targets.targets @ targets.loadings.T, fitted, atol=1e-9)
    np.testing.assert_allclose(targets_of_scores(targets, found.scores_mean), targets.targets, atol=1e-8)
    at = np.abs(targets.loadings).argmax(axis=0)
    assert (targets.loadings[at, np.arange(len(at))] > 0).all()
    assert (np.diff(targets.weights) <= 0).all()


def test_weights_of_mean_field_are_near_the_eigenvalues() -> None:
    rng = np.random.default_rng(3)
    labels = (rng.random((400, 2)) < 0.5).astype(int)[:, [0, 0, 0, 1, 1, 1]]
    labels ^= (rng.random(labels.shape) < 0.05).astype(int)
    tree = fit("bpca", data(labels), "mean_field", seed=0, num_measurements=6, khat_samples=0)
    found = canonical_of(tree)
    eigenvalues = ppca(inputs_of(labels, num_measurements=6), 2).eigenvalues
    assert int(tree.attrs["components_kept"]) >= 2
    np.testing.assert_allclose(found.weights[:2], eigenvalues[:2], rtol=0.05)


@pytest.mark.parametrize("engine", ["ml", "mean_field"])
@pytest.mark.parametrize(
    "labels",
    [np.zeros((5, 4), int), np.array([[1, 0, 1]]), np.ones((4, 2), int), np.tile([[1, 0, 1, 0]], (6, 1))],
    ids=["all zero", "one row", "all one", "all rows alike"],
)
def test_where_nothing_varies_there_are_no_targets(engine: str, labels: np.ndarray) -> None:
    options = {} if engine == "ml" else {"max_iter": 4, "khat_samples": 0, "num_samples": 3}
    tree = fit("bpca", data(labels), engine, seed=0, **options)
    found = canonical_of(tree)
    assert found.targets.shape == (len(labels), 0)
    assert found.weights.shape == (0,)
    assert found.loadings.shape[1] == 0
    assert np.isfinite(found.offset).all()
    assert all(np.isfinite(values.values).all() for values in tree["posterior"].data_vars.values())


def test_one_label_is_finite_and_its_noise_unidentified() -> None:
    labels = np.array([[1], [0], [0], [1], [0]])
    tree = fit("bpca", data(labels), "ml", seed=0)
    assert tree.attrs["converged"] == "no"
    assert "no maximum in the noise variance" in tree.attrs["message"]
    assert float(tree["posterior"]["noise_precision"].values.squeeze()) == pytest.approx(1 / FLOOR)
    mean_field = fit("bpca", data(labels), "mean_field", seed=0, khat_samples=0, num_samples=3)
    assert np.isfinite(mean_field["optimization"]["objective"].values).all()
    assert canonical_of(mean_field).targets.shape[0] == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scores": np.zeros((3, 1))}, "do not fit"),
        ({"mean": np.zeros(4)}, "do not fit"),
        ({"loadings": np.full((5, 2), np.nan)}, "loadings has a number that is not finite"),
        ({"noise_variance": 0.0}, "noise_variance must be a positive number"),
    ],
)
def test_bad_fits_are_refused(change: dict[str, Any], words: str) -> None:
    right = {
        "scores": np.eye(3)[:, :2],
        "loadings": np.ones((5, 2)),
        "mean": np.zeros(5),
        "noise_variance": 1.0,
    }
    with pytest.raises(ValueError, match=words):
        canonical_targets(**{**right, **change})


def test_other_engines_have_no_targets() -> None:
    tree = fit("bpca", data(), "gibbs", seed=0, num_warmup=2, num_samples=2, num_chains=1)
    with pytest.raises(ValueError, match=r"canonical targets need .* by 'gibbs'"):
        canonical_of(tree)
