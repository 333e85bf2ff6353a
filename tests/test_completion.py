"""Completing labels from known ones, label sets, marginal scores and leave-one-out, on fitted posteriors."""

import itertools
from typing import Any

import numpy as np
import pytest
import xarray as xr

import labelzoo
from labelzoo.completion import complete, complete_top
from labelzoo.data import LabelData
from labelzoo.inference.engine import EngineResult
from labelzoo.inference.posterior import load, save, to_datatree
from labelzoo.inference.predict import constants_of
from labelzoo.label_sets import joint_prob
from labelzoo.marginal import loo, row_log_likelihood
from labelzoo.models import registry

SPEC = registry.get("bernoulli_poisson_topics").spec


def small(n: int = 24, seed: int = 0, num_labels: int = 5) -> LabelData:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    Y = rng.random((n, num_labels)) < 1 / (1 + np.exp(0.5 - X @ rng.standard_normal((2, num_labels))))
    return LabelData.from_arrays(X, Y.astype(np.int8))


def prior_draws(rng: np.random.Generator, count: int, num_labels: int) -> dict[str, Any]:
    """Draw globals of two topics, (1, draw, ...): milder than the default prior."""
    return {
        "topics": rng.dirichlet(np.full(num_labels, 0.7), (1, count, 2)),
        "weights": rng.standard_normal((1, count, 2, 3)) * [1.5, 1.5, 0.7],
        "shape": rng.gamma(4.0, 0.3, (1, count, 2)),
    }


def tree_of(data: LabelData, sites: dict[str, Any]) -> xr.DataTree:
    """Return the DataTree that a sampler with these draws would have given."""
    settings = SPEC.resolve({"num_topics": 2})
    engine = registry.get(SPEC).engines["gibbs"]
    inputs = SPEC.prepare(data, settings)
    return to_datatree(SPEC, engine, data, inputs, settings, {}, EngineResult(sites), 0)


def hidden(data: LabelData, seed: int = 1) -> LabelData:
    Y = data.Y.toarray().astype(float)
    Y[np.random.default_rng(seed).random(Y.shape) < 0.4] = np.nan
    Y[3] = np.nan
    return LabelData.from_arrays(data.X, Y, label_names=data.label_names, example_names=data.example_names)


@pytest.fixture(scope="module")
def data() -> LabelData:
    return small()


@pytest.fixture(scope="module")
def draws(data: LabelData) -> xr.DataTree:
    sites = prior_draws(np.random.default_rng(4), 20, 5)
    return tree_of(data, {name: site.reshape(2, 10, *site.shape[2:]) for name, site in sites.items()})


def test_known_labels_are_kept_and_unlabelled_rows_get_the_ordinary_prediction(
    data: LabelData, draws: xr.DataTree
) -> None:
    rows = hidden(data)
    found = complete(draws, rows, num_draws=None, weighting="equal")
    seen = rows.observed_mask()
    assert np.array_equal(found["prob"].values[seen], rows.Y.toarray()[seen])
    assert (found["error"].values[seen] == 0).all()
    assert ((found["prob"] >= 0) & (found["prob"] <= 1)).all()
    np.testing.assert_allclose(found["prob"][3], labelzoo.mean_prob(draws, rows)[3], rtol=1e-9)
    assert found["log_known"][3] == 0


def test_rows_equal_the_ratio_of_joint_probabilities(data: LabelData, draws: xr.DataTree) -> None:
    rows = hidden(data, seed=2)
    found = complete(draws, rows, num_draws=None, weighting="by_known_labels")
    table = joint_prob(draws, rows, range(5))
    patterns = np.array([[int(c) for c in name] for name in table["pattern"].values])
    for n in range(data.num_rows):
        seen = rows.observed_mask(np.array([n]))[0]
        fits = (patterns[:, seen] == rows.Y.toarray()[n, seen]).all(axis=1)
        weight = table["prob"].values[n, fits]
        np.testing.assert_allclose(found["prob"].values[n], weight @ patterns[fits] / weight.sum(), atol=1e-6)
        assert np.isclose(found["log_known"][n], np.log(weight.sum()), atol=1e-6)


def test_training_rows_weigh_draws_equally(data: LabelData, draws: xr.DataTree) -> None:
    assert complete(draws, data, num_draws=3).attrs["weighting"] == "equal"
    assert complete(draws, hidden(data), num_draws=3).attrs["weighting"] == "by_known_labels"


def test_top_labels_are_missing_ones_and_equal_the_dense_table(data: LabelData, draws: xr.DataTree) -> None:
    rows = hidden(data)
    best = complete_top(draws, rows, 2, num_draws=5)
    dense = complete(draws, rows, num_draws=5)["prob"].values
    dense[rows.observed_mask()] = -np.inf
    assert np.array_equal(best.scores[:, 0], dense.max(axis=1))
    taken = best.labels >= 0
    at = np.broadcast_to(np.arange(len(dense))[:, None], best.labels.shape)
    assert np.array_equal(best.scores[taken], dense[at[taken], best.labels[taken]])


def test_blocks_do_not_change_the_answer(
    data: LabelData, draws: xr.DataTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = hidden(data)

    def answers() -> list[xr.Dataset]:
        return [
            complete(draws, rows, num_draws=3),
            row_log_likelihood(draws, rows, num_draws=2),
            joint_prob(draws, rows, [0, 3], num_draws=2),
        ]

    whole = answers()
    monkeypatch.setattr("labelzoo.completion.ROWS_AT_ONCE", 7)
    for found, expected in zip(answers(), whole, strict=True):
        xr.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 1}, "num_samples must be an integer of at least 2"),
        ({"seed": -1}, "seed must be"),
        ({"num_draws": 0}, "num_draws must be"),
        ({"weighting": "both"}, "weighting must be"),
        ({"max_bytes": 10}, "use complete_top"),
    ],
)
def test_bad_options_are_named(
    data: LabelData, draws: xr.DataTree, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        complete(draws, data, **options)


def test_other_labels_and_models_are_refused(data: LabelData, draws: xr.DataTree) -> None:
    other = LabelData.from_arrays(data.X, data.Y, label_names=("a", "b", "c", "d", "e"))
    with pytest.raises(ValueError, match="label 0 of data is 'a', in the posterior 'label 0'"):
        complete(draws, other)
    with pytest.raises(ValueError, match="data has 4 labels, the posterior has 5"):
        complete(draws, data.subset(labels=range(4)))
    wrong = draws.copy()
    wrong.attrs["model"] = "label_gp"
    with pytest.raises(ValueError, match="'label_gp'"):
        complete(wrong, data)


def test_joint_marginals_are_the_predictions(data: LabelData, draws: xr.DataTree) -> None:
    table = joint_prob(draws, data, ["label 4", "label 1"])
    assert np.allclose(table["prob"].sum("pattern"), 1)
    first = table["prob"].sel(pattern=["10", "11"]).sum("pattern")
    np.testing.assert_allclose(first, labelzoo.mean_prob(draws, data)[:, 4], rtol=1e-9)
    with pytest.raises(ValueError, match="distinct labels"):
        joint_prob(draws, data, [1, 1])


def test_row_likelihoods_agree_with_the_card(data: LabelData, draws: xr.DataTree) -> None:
    import jax

    rows = hidden(data)
    found = row_log_likelihood(draws, rows, num_draws=2)
    assert found["log_likelihood"].shape == (2, 1, data.num_rows)
    one = {name: draws["posterior"][name].values[0, 0] for name in ("topics", "weights", "shape")}
    constants = constants_of(draws)
    inputs = SPEC.prepare(rows, SPEC.resolve({"num_topics": 2}), constants)
    assert SPEC.log_score is not None
    estimate = SPEC.log_score(one, inputs, jax.random.key(0), num_samples=40_000)
    np.testing.assert_allclose(found["log_likelihood"][0, 0], estimate, atol=0.05)


def pattern_probs(data: LabelData, sites: dict[str, Any]) -> Any:
    """Return p(y_n | draw) of three labels, (draw, row), as a product of 8 signed zero-set probabilities."""
    X = np.asarray(SPEC.prepare(data, SPEC.resolve({"num_topics": 2}))["X"])
    psi = np.einsum("nd,skd->snk", X, sites["weights"][0])
    Y, out = data.Y.toarray(), 0.0
    for flags in itertools.product([0, 1], repeat=3):
        # (1 - e^-lambda) expands at the positives; at a zero only e^-lambda is left.
        sign = np.where((Y == 0) & (np.array(flags) == 0), 0, np.where((Y == 1) & flags, -1, 1)).prod(axis=1)
        mass = (sites["topics"][0] * np.array(flags)).sum(axis=-1)
        zero = (1 + mass[:, None] * np.exp(psi)) ** -sites["shape"][0][:, None]
        out = out + sign * zero.prod(axis=-1)
    return out


def test_loo_equals_exact_leave_one_out() -> None:
    """The posterior of 6 rows by weighted prior draws, and the same with each row left out in turn."""
    seed = 11
    data, rng = small(6, seed, 3), np.random.default_rng(seed)
    sites = prior_draws(rng, 100_000, 3)
    p = pattern_probs(data, sites)
    joint = p.prod(axis=1)
    others = np.stack([np.delete(p, n, axis=1).prod(axis=1) for n in range(6)], axis=1)
    exact = np.log(joint.sum() / others.sum(axis=0))
    kept = rng.choice(len(joint), 3000, p=joint / joint.sum())
    tree = tree_of(data, {name: site[:, kept] for name, site in sites.items()})
    found = row_log_likelihood(tree, data, num_draws=50)
    at = np.linspace(0, 2999, 50).round().astype(int)
    np.testing.assert_allclose(found["log_likelihood"][0], np.log(p[kept[at]]), rtol=1e-8)
    result = loo(tree, data, num_draws=None)
    inverse = 1 / p[kept]
    error = np.hypot(
        inverse.std(axis=0) / inverse.mean(axis=0) / np.sqrt(3000),
        # Of the weighted prior draws: the exact side has a Monte Carlo error too.
        np.sqrt(((joint[:, None] / joint.sum() - others / others.sum(axis=0)) ** 2).sum(axis=0)),
    )
    z = (result.elpd_i.values - exact) / error
    assert np.abs(z).max() < 4, f"seed {seed}: z {z}"
    assert result.pareto_k.values.max() < 0.7
    in_sample = np.log((joint @ p) / joint.sum())
    assert np.max((in_sample - exact) / error) > 8  # the test tells left out from left in


def test_loo_refuses_points_and_other_rows(data: LabelData, draws: xr.DataTree) -> None:
    point = labelzoo.fit("bernoulli_poisson_topics", data, "vb_em", num_topics=2, max_iter=3)
    with pytest.raises(ValueError, match="topics, weights are points"):
        loo(point, data)
    with pytest.raises(ValueError, match="hash differs"):
        loo(draws, small(seed=9))


def test_a_saved_posterior_completes_alike(tmp_path: Any, data: LabelData, draws: xr.DataTree) -> None:
    save(draws, tmp_path / "f.nc")
    rows = hidden(data)
    again = complete(load(tmp_path / "f.nc"), rows, num_draws=4)
    xr.testing.assert_identical(again, complete(draws, rows, num_draws=4))
