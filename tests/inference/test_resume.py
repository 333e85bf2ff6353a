"""Runs that go on from where another stopped: the same draws, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelzoo.data import LabelData
from labelzoo.inference.posterior import load, save
from labelzoo.models import registry

ENTRY = registry.get("bernoulli_poisson_topics")
OPTIONS = {"num_topics": 2, "num_warmup": 10, "num_chains": 2, "thinning": 2}


def _data(seed: int = 0) -> LabelData:
    rng = np.random.default_rng(seed)
    Y = (rng.random((9, 5)) < 0.4).astype(float)
    Y[2], Y[3, 2:] = np.nan, np.nan
    return LabelData.from_arrays(rng.standard_normal((9, 2)), Y)


def _run(**options: Any) -> xr.DataTree:
    return ENTRY.engines["gibbs"](ENTRY.spec, _data(), rng_key=1, **options)


@pytest.fixture(scope="module")
def half() -> xr.DataTree:
    return _run(num_samples=6, **OPTIONS)


def test_a_resumed_run_is_the_longer_run_bit_for_bit(half: xr.DataTree, tmp_path: Path) -> None:
    whole = _run(num_samples=11, **OPTIONS)
    path = save(half, tmp_path / "half.nc")
    engine = ENTRY.engines["gibbs"]
    resumed = engine(ENTRY.spec, _data(), rng_key=77, resume_from=str(path), num_samples=5)
    for group in ("posterior", "sample_stats", "engine_state"):
        for name, values in whole[group].data_vars.items():
            np.testing.assert_array_equal(resumed[group][name].values, values.values, err_msg=name)
    assert resumed.attrs["options"] == whole.attrs["options"]
    assert resumed.attrs["resumed"] == 1
    np.testing.assert_array_equal(resumed.posterior.draw, np.arange(11))
    assert load(save(resumed, tmp_path / "whole.nc")).posterior.sizes["draw"] == 11


def test_chains_that_run_one_by_one_resume_bit_for_bit() -> None:
    apart = {**OPTIONS, "chain_method": "sequential"}
    whole, part = _run(num_samples=5, **apart), _run(num_samples=2, **apart)
    resumed = _run(resume_from=part, num_samples=3)
    np.testing.assert_array_equal(resumed.posterior.topics, whole.posterior.topics)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"), [("gibbs_counts", "vectorized"), ("nuts", "vectorized"), ("nuts", "sequential")]
)
def test_other_samplers_resume_bit_for_bit(name: str, method: str) -> None:
    engine, options = ENTRY.engines[name], {**OPTIONS, "chain_method": method}
    whole = engine(ENTRY.spec, _data(), rng_key=1, num_samples=7, **options)
    part = engine(ENTRY.spec, _data(), rng_key=1, num_samples=3, **options)
    resumed = engine(ENTRY.spec, _data(), rng_key=9, resume_from=part, num_samples=4)
    for site, values in whole["posterior"].data_vars.items():
        np.testing.assert_array_equal(resumed["posterior"][site].values, values.values, err_msg=site)


@pytest.mark.slow
def test_an_embedding_that_is_not_kept_is_still_there_to_go_on_from() -> None:
    few = {**OPTIONS, "keep_embedding": False}
    whole, part = _run(num_samples=5, **few), _run(num_samples=3, **few)
    resumed = _run(resume_from=part, num_samples=2)
    assert "embedding" not in resumed.posterior and "sites__embedding" in resumed.engine_state
    np.testing.assert_array_equal(resumed.posterior.topics, whole.posterior.topics)


def test_other_data_settings_engines_and_posteriors_are_refused(half: xr.DataTree) -> None:
    engine, spec = ENTRY.engines["gibbs"], ENTRY.spec
    with pytest.raises(ValueError, match="resume_from is of other data: hash"):
        engine(spec, _data(5), rng_key=1, resume_from=half)
    for name, value in (("num_topics", 3), ("thinning", 1), ("row_scale", False), ("num_chains", 4)):
        with pytest.raises(ValueError, match=f"resume_from had {name}=.*, not {value}"):
            engine(spec, _data(), rng_key=1, resume_from=half, **{name: value})
    with pytest.raises(ValueError, match="is of engine 'gibbs', not 'gibbs_counts'"):
        ENTRY.engines["gibbs_counts"](spec, _data(), rng_key=1, resume_from=half)
    bare = half.copy()
    del bare["engine_state"]
    with pytest.raises(ValueError, match="keeps no group 'engine_state'"):
        engine(spec, _data(), rng_key=1, resume_from=bare)
    with pytest.raises(ValueError, match="no file 'absent.nc'"):
        engine(spec, _data(), rng_key=1, resume_from="absent.nc")
    with pytest.raises(ValueError, match="num_topic"):
        engine(spec, _data(), rng_key=1, resume_from=half, num_topic=2)


def test_a_posterior_stored_before_an_option_existed_goes_on(half: xr.DataTree) -> None:
    old = half.copy()
    stored = json.loads(old.attrs["options"])
    del stored["max_bytes"]
    old.attrs["options"] = json.dumps(stored)
    for given in ({}, {"max_bytes": 10**9}):
        resumed = _run(resume_from=old, num_samples=2, **given)
        assert resumed.posterior.sizes["draw"] == 8
        kept = json.loads(resumed.attrs["options"])["max_bytes"]
        assert kept == given.get("max_bytes", ENTRY.engines["gibbs"].options["max_bytes"])


def test_a_cut_warm_up_is_not_forgotten_when_a_run_goes_on() -> None:
    cut = _run(num_samples=10, max_seconds=1e-9, **OPTIONS)
    assert cut.attrs["converged"] == "no"
    resumed = _run(resume_from=cut, num_samples=2)
    assert resumed.attrs["converged"] == "no"
    assert "cut the warm-up after 0 of 10 sweeps" in resumed.attrs["message"]


@pytest.mark.parametrize("name", ["gibbs", "gibbs_counts", "nuts"])
def test_draws_that_would_not_fit_are_refused_before_a_chain_starts(name: str) -> None:
    engine = ENTRY.engines[name]
    with pytest.raises(
        ValueError, match=r"would hold .* GiB, above max_bytes=.*4 x 1000000000 draws"
    ) as told:
        engine(ENTRY.spec, _data(), rng_key=1, num_samples=10**9)
    assert "fewer num_samples" in str(told.value)
    assert ("keep_embedding=False" in str(told.value)) == (name != "nuts")
    with pytest.raises(ValueError, match="max_bytes must be a positive number, got True"):
        engine(ENTRY.spec, _data(), rng_key=1, max_bytes=True)
    with pytest.raises(ValueError, match="num_samples must be an integer of at least 1, got True"):
        engine(ENTRY.spec, _data(), rng_key=1, num_samples=True)


def test_what_is_not_kept_does_not_count() -> None:
    # 5 draws of 1 chain: topics 2 x 5, weights 2 x 3, shape 2; embedding 9 x 2.
    options = {"num_topics": 2, "num_warmup": 0, "num_samples": 5, "num_chains": 1}
    _run(keep_embedding=False, max_bytes=8 * 5 * (10 + 6 + 2), **options)
    with pytest.raises(ValueError, match=r"keep_embedding=False"):
        _run(max_bytes=8 * 5 * (10 + 6 + 2 + 18) - 1, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gibbs", "gibbs_counts"])
def test_positives_only_reads_missing_cells_as_zeros(name: str) -> None:
    data = _data()
    Y = np.asarray(data.Y.toarray(), float)
    zeros = LabelData.from_arrays(data.X, Y)
    engine, few = ENTRY.engines[name], {"num_warmup": 2, "num_samples": 3, "num_chains": 1, "num_topics": 2}
    one = engine(ENTRY.spec, data, rng_key=1, positives_only=True, **few)
    other = engine(ENTRY.spec, zeros, rng_key=1, **few)
    exact = engine(ENTRY.spec, data, rng_key=1, **few)
    np.testing.assert_allclose(one.posterior.topics, other.posterior.topics, rtol=1e-6)
    assert not np.allclose(one.posterior.topics, exact.posterior.topics)
    with pytest.raises(ValueError, match="positives_only must be True or False"):
        engine(ENTRY.spec, data, rng_key=1, positives_only="yes", **few)
