"""What every engine of every registered model owes its caller, on tiny data with missing labels."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import arviz as az
import jax
import numpy as np
import pytest
import xarray as xr

from labelzoo.data import LabelData
from labelzoo.inference.checks.states import coin_labels
from labelzoo.inference.engine import Engine
from labelzoo.inference.posterior import load, save
from labelzoo.inference.predict import label_prob, mean_prob
from labelzoo.models import registry
from labelzoo.models.spec import ALLOWED_DIMS

FEW: dict[str, Any] = {
    "num_warmup": 5,
    "num_samples": 5,
    "num_chains": 2,
    "num_steps": 30,
    "max_iter": 3,
    "max_tree_depth": 3,
    "khat_samples": 0,
}
"""The smallest run an engine makes; it takes those of its own options."""

PAIRS = [(model, engine) for model in registry.names() for engine in registry.get(model).engines]

# The scope puts the tests of one engine next to one another: two workers then do not both fit it.
every_engine = pytest.mark.parametrize(
    ("model", "name"), PAIRS, ids=[f"{m}-{e}" for m, e in PAIRS], scope="module"
)


@cache
def tiny_data(model: str) -> LabelData:
    """Return the model's own tiny data, one cell surely positive, another and a whole row unobserved."""
    spec = registry.get(model).spec
    data = spec.simulate(jax.random.key(9), spec.tiny)[0] if spec.simulate else coin_labels(spec.tiny, 9)
    Y = data.Y.toarray().astype(float)
    Y[0, 0], Y[1], Y[2, 0] = np.nan, np.nan, 1.0
    X = data.X if isinstance(data.X, np.ndarray) else data.X.toarray()
    return LabelData(X, Y, label_names=[f"genre {i}" for i in range(Y.shape[1])])


def small_options(model: str, name: str) -> dict[str, Any]:
    """Return the options of a run of a few draws, and settings of the model's tiny size."""
    entry = registry.get(model)
    sizes = {name: size for name, size in entry.spec.tiny.items() if name in entry.spec.settings}
    return sizes | {option: value for option, value in FEW.items() if option in entry.engines[name].options}


@cache
def fitted(model: str, name: str) -> xr.DataTree:
    """Fit once for all tests, and see that the global NumPy state is left alone."""
    entry = registry.get(model)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    tree = entry.engines[name](entry.spec, tiny_data(model), rng_key=3, **small_options(model, name))
    assert (np.random.get_state()[1] == before).all(), "the global NumPy state was touched"  # noqa: NPY002
    return tree


def engine_of(model: str, name: str) -> Engine:
    return registry.get(model).engines[name]


@every_engine
def test_draws_have_chain_draw_and_allowed_dims(model: str, name: str) -> None:
    posterior = fitted(model, name)["posterior"].to_dataset()
    assert posterior.data_vars
    dims = registry.get(model).spec.dims
    for site, values in posterior.data_vars.items():
        assert values.dims[:2] == ("chain", "draw")
        assert values.dims[2:] == dims[site]
        assert set(values.dims[2:]) <= ALLOWED_DIMS
        assert np.isfinite(values.values).all(), site
    kind = engine_of(model, name).kind
    shape = {"mcmc": (2, 5), "bound": (1, 5), "point": (1, 1)}.get(kind)
    assert shape is None or (posterior.sizes["chain"], posterior.sizes["draw"]) == shape
    if any("labels" in values.dims for values in posterior.data_vars.values()):
        assert list(posterior["labels"].values) == list(tiny_data(model).label_names)


@every_engine
def test_groups_and_types(model: str, name: str) -> None:
    tree = fitted(model, name)
    groups = set(tree.children)
    assert {"posterior", "observed_data", "constant_data"} <= groups
    if engine_of(model, name).kind == "mcmc":
        assert "sample_stats" in groups
    if engine_of(model, name).kind == "bound":
        assert "objective" in tree["optimization"]
    for group in groups:
        for variable, values in tree[group].data_vars.items():
            assert values.dtype != bool, f"{group}/{variable} is bool: az.summary and netCDF refuse it"


@every_engine
def test_attributes_are_plain_and_complete(model: str, name: str) -> None:
    attrs = fitted(model, name).attrs
    assert all(type(value) in (str, int, float) for value in attrs.values())
    json.dumps(attrs)
    assert attrs["model"], attrs["engine"] == (model, name)
    assert attrs["kind"] == engine_of(model, name).kind
    assert attrs["seed"] == 3
    assert attrs["data_hash"] == tiny_data(model).hash()
    assert attrs["compile_seconds"] >= 0
    assert attrs["run_seconds"] > 0
    sites = set(fitted(model, name)["posterior"].data_vars)
    declared = set(json.loads(attrs["random_sites"]))
    assert declared <= set(registry.get(model).spec.dims)
    if engine_of(model, name).kind == "mcmc":
        assert declared & sites
    settings = json.loads(attrs["settings"])
    assert set(settings) == set(registry.get(model).spec.settings)


@every_engine
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_arviz_summarises_the_posterior(model: str, name: str) -> None:
    """Five draws are few: ArviZ may warn of that, and of nothing else."""
    posterior = fitted(model, name)["posterior"].to_dataset()
    table = az.summary(fitted(model, name), kind="stats")
    assert len(table) == sum(math.prod(v.shape[2:]) for v in posterior.data_vars.values())


@every_engine
def test_saved_posteriors_load_and_predict_probabilities(model: str, name: str, tmp_path: Path) -> None:
    tree = fitted(model, name)
    loaded = load(save(tree, tmp_path / "posterior.nc"))
    assert loaded.attrs == tree.attrs
    for group in tree.children:
        xr.testing.assert_identical(loaded[group].to_dataset(), tree[group].to_dataset())
    rows = tiny_data(model).X[:3] + 0.25
    probs = label_prob(loaded, rows)
    posterior = tree["posterior"]
    sizes = (posterior.sizes["chain"], posterior.sizes["draw"], 3, tiny_data(model).num_labels)
    assert probs.dims == ("chain", "draw", "obs", "labels")
    assert probs.shape == sizes
    assert probs.values.min() >= 0
    assert probs.values.max() <= 1
    exact = 1e-15 if registry.get(model).spec.predict_moments is None else 1e-12  # by another formula
    np.testing.assert_allclose(mean_prob(tree, rows), probs.mean(("chain", "draw")), rtol=1e-12, atol=exact)


@every_engine
def test_functionals_are_finite_at_a_draw(model: str, name: str) -> None:
    tree, spec = fitted(model, name), registry.get(model).spec
    draw = {str(site): values.values[0, 0] for site, values in tree["posterior"].data_vars.items()}
    with jax.enable_x64(True):
        inputs = spec.prepare(tiny_data(model), json.loads(tree.attrs["settings"]))
        found = spec.functionals(draw, inputs)
    assert found
    assert all(np.isfinite(np.asarray(value)).all() for value in found.values())


@every_engine
def test_unknown_settings_are_refused_by_name(model: str, name: str) -> None:
    entry = registry.get(model)
    with pytest.raises(ValueError, match=f"engine '{name}' knows no setting 'no_such_setting'; settings: "):
        entry.engines[name](entry.spec, tiny_data(model), rng_key=0, no_such_setting=1)
