"""Sweeps of bpca: a joint test, agreement with NUTS, and the planted faults of the cases."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.bpca import enumeration, gibbs, order
from labelzoo.inference.bpca.updates import NOISE
from labelzoo.inference.checks.agreement import agreement, check_agreement, sequential_agreement
from labelzoo.inference.checks.case_rungs import FAR
from labelzoo.inference.checks.marginal import compare_at, residual
from labelzoo.inference.checks.order import order_rung
from labelzoo.inference.checks.reference_posterior import reference_posterior
from labelzoo.inference.fit import fit
from labelzoo.models.bpca_card import spec

PRIOR = {
    "precision_shape": 3.0,
    "precision_rate": 2.0,
    "noise_shape": 3.0,
    "noise_rate": 2.0,
    "mean_precision": 1.0,
}


@pytest.mark.parametrize("case", enumeration.CASES, ids=lambda case: case.name)
def test_views_marginalise_and_wrong_ones_do_not(case: Any) -> None:
    found = compare_at(case, spec.views[case.view_to], 0)
    view = spec.views[case.view_from]
    assert residual(found, view) < case.threshold
    for name, wrong in case.mutants:
        assert residual(found, wrong) > FAR * case.threshold, name
    for name, change in case.wrong_inputs:
        assert residual(found, view, change) > FAR * case.threshold, name


@pytest.mark.parametrize("case", order.CASES, ids=lambda case: case.name)
def test_sweeps_leave_the_posterior_as_it_is(case: Any) -> None:
    checks, mutants = order_rung(case, spec)
    assert checks[0].passed, checks[0].detail
    assert [row.mutant for row in mutants if row.killed_by is None] == []


def test_the_cases_hold_all_conditionals_of_gibbs_but_the_size() -> None:
    held = {update.name for case in order.CASES for update in case.updates}
    assert set(gibbs.engine.conditionals) - held == {"size_given_rest"}


M, D, P = 4, 2, 2


def _inputs(R: Any) -> dict[str, Any]:
    mean = R.mean(axis=0)
    return {
        **PRIOR,
        "num_components": P,
        "compressed": R,
        "row_mean": mean,
        "scatter": (R - mean).T @ (R - mean),
    }


def _prior(key: Any) -> dict[str, Any]:
    keys = jax.random.split(key, 5)
    alpha = jax.random.gamma(keys[0], PRIOR["precision_shape"], (P,)) / PRIOR["precision_rate"]
    return {
        "precision": alpha,
        "noise_precision": jax.random.gamma(keys[1], PRIOR["noise_shape"]) / PRIOR["noise_rate"],
        "mean": jax.random.normal(keys[2], (D,)) / jnp.sqrt(PRIOR["mean_precision"]),
        "loadings": jax.random.normal(keys[3], (D, P)) / jnp.sqrt(alpha),
        "scores": jax.random.normal(keys[4], (M, P)),
    }


def _rows(key: Any, sites: dict[str, Any]) -> Any:
    fit_ = sites["scores"] @ sites["loadings"].T + sites["mean"]
    return fit_ + jax.random.normal(key, (M, D)) / jnp.sqrt(sites["noise_precision"])


def _functions(sites: dict[str, Any], R: Any) -> Any:
    """Return bounded functions of parameters and rows, and products of them."""
    W = sites["loadings"]
    flat = jnp.concatenate(
        [
            jnp.log(sites["precision"]),
            jnp.log(sites["noise_precision"])[None],
            sites["mean"],
            jnp.log((W**2).sum(axis=0)),
            jnp.log((sites["scores"] ** 2).sum(axis=0)),
            (sites["scores"][0] @ W.T),
            R[0],
            jnp.log(R.var())[None],
        ]
    )
    t = jnp.tanh(flat)
    return jnp.concatenate([t, t**2, jnp.outer(t, t)[np.triu_indices(len(t), 1)]])


def joint_z(sweep: Any, chains: int = 8_000, rounds: int = 4, seed: int = 3) -> float:
    """Return the largest z between prior draws and what sweeps and fresh rows in turn make of others.

    Every chain starts with a draw from the joint prior, so it has that law after any number of rounds.
    """

    def once(carry: tuple[Any, Any], key: Any) -> tuple[tuple[Any, Any], None]:
        sweep_key, row_key = jax.random.split(key)
        sites, _ = sweep(sweep_key, carry[0], (), _inputs(carry[1]))
        return (sites, _rows(row_key, sites)), None

    def one(key: Any) -> tuple[Any, Any]:
        prior_key, row_key, sweeps_key = jax.random.split(key, 3)
        sites = _prior(prior_key)
        start = (sites, _rows(row_key, sites))
        end, _ = jax.lax.scan(once, start, jax.random.split(sweeps_key, rounds))
        return _functions(*start), _functions(*end)

    first, last = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), chains))
    change = np.asarray(last - first)
    return float(np.abs(change.mean(axis=0) / (change.std(axis=0) / np.sqrt(chains))).max())


def test_sweeps_and_fresh_rows_keep_the_joint_prior() -> None:
    z = joint_z(gibbs.sweep)
    assert z < 5, f"z = {z:.1f}, seed 3"


@pytest.mark.parametrize(
    ("update", "name"),
    [(NOISE, "shape c + rows / 2"), (None, "a missing from the shape of the size")],
)
def test_planted_faults_move_the_joint_prior(update: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if update is None:
        right = gibbs.size_given_rest
        wrong = lambda state, inputs: right(state, {**inputs, "precision_shape": 0.0})  # noqa: E731
        monkeypatch.setattr(gibbs, "size_given_rest", wrong)
    else:
        monkeypatch.setattr(gibbs, update.name, {m.name: m.given for m in update.mutants}[name])
    assert joint_z(gibbs.sweep, chains=3_000) > 8


def test_resizing_keeps_the_fit() -> None:
    sites = _prior(jax.random.key(1))
    new = gibbs.resize(jax.random.key(2), sites, _inputs(_rows(jax.random.key(3), sites)))
    np.testing.assert_allclose(
        new["scores"] @ new["loadings"].T, sites["scores"] @ sites["loadings"].T, atol=1e-12
    )
    ratio = (new["scores"] ** 2).sum(axis=0) / (sites["scores"] ** 2).sum(axis=0)
    np.testing.assert_allclose(new["precision"], sites["precision"] * ratio, rtol=1e-12)
    assert (np.abs(ratio - 1) > 1e-3).all()


def test_gibbs_agrees_with_the_stored_reference() -> None:
    found = check_agreement("bpca_tiny", "gibbs", num_samples=2500)
    assert found.passed, found.detail


SMALL = {**PRIOR, "num_measurements": 3, "num_components": 2}


def small_data() -> LabelData:
    """Return twelve rows of three labels, the first two mostly alike."""
    rng = np.random.default_rng(11)
    labels = (rng.random((12, 2)) < 0.5).astype(int)[:, [0, 0, 1]]
    labels ^= (rng.random(labels.shape) < 0.15).astype(int)
    return LabelData(np.zeros((12, 1)), labels)


@pytest.fixture(scope="module")
def by_nuts() -> dict[str, Any]:
    options = {"min_ess": 1500, "num_warmup": 500, "num_samples": 1500, "dense_mass": False}
    return reference_posterior(spec, small_data(), seed=0, **options, **SMALL)


def gibbs_run(seed: int, factor: int) -> Any:
    options = {"num_warmup": 200, "num_samples": 1500 * factor, "thinning": 1}
    return fit("bpca", small_data(), "gibbs", seed=seed, **options, **SMALL)


@pytest.mark.slow
def test_gibbs_and_nuts_agree_on_what_does_not_rotate(by_nuts: dict[str, Any]) -> None:
    found = sequential_agreement(gibbs_run, by_nuts, seed=21, data=small_data())
    assert found.passed, found.detail


@pytest.mark.slow
def test_a_wrong_sampler_and_a_shifted_reference_are_refuted(
    by_nuts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one run each: a noise of too small a shape, and a mean three tenths of an sd away."""
    right = gibbs_run(22, 1)
    for name, row in by_nuts["functionals"].items():
        shifted = {**by_nuts["functionals"], name: {**row, "mean": row["mean"] + 0.3 * row["sd"]}}
        found = agreement(right, {**by_nuts, "functionals": shifted}, data=small_data())
        assert found.passed is False, f"{name}: {found.detail}"
    wrong = {mutant.name: mutant.given for mutant in NOISE.mutants}["shape c + rows / 2"]
    monkeypatch.setattr(gibbs, NOISE.name, wrong)
    found = agreement(gibbs_run(21, 1), by_nuts, data=small_data())
    assert found.passed is False, found.detail


def test_vague_priors_are_named_by_nuts() -> None:
    data = LabelData(np.zeros((5, 1)), np.eye(5, dtype=int))
    options = {"num_warmup": 2, "num_samples": 2, "num_chains": 1, "max_tree_depth": 2}
    tree = fit("bpca", data, "nuts", seed=0, **options)
    assert (
        "precision_shape, precision_rate, noise_shape, noise_rate below 0.01 can make funnels"
        in tree.attrs["message"]
    )
    strong = fit("bpca", data, "nuts", seed=0, **options, **spec.small_settings)
    assert "funnels" not in strong.attrs["message"]
