"""Verdicts on draws whose truth is known: agreement, refutation, and when to keep silent."""

import numpy as np
import pytest

from labelzoo.inference.compare.verdict import Moments, converged, difference, is_refuted, moments, verdict


def draws(shift: float = 0.0, scale: float = 1.0, count: int = 2000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return shift + scale * rng.standard_normal((4, count, 30))


def sentence(kind: str, engine: np.ndarray, reference: np.ndarray) -> str:
    own, ref = moments(engine), moments(reference)
    return verdict(kind, own, ref, difference(own, ref, kind), "nuts")


def test_equal_laws_agree() -> None:
    text = sentence("mcmc", draws(seed=1), draws(seed=2))
    assert text.startswith("agrees with nuts: |difference| < 0.")
    assert not is_refuted(text)


def test_a_shift_is_refuted() -> None:
    text = sentence("mcmc", draws(shift=0.15, seed=1), draws(seed=2))
    assert is_refuted(text), text


def test_few_draws_neither_agree_nor_refute() -> None:
    ones, nothing = np.ones(5), np.zeros(5)
    few = Moments(nothing, ones, 0.1 * ones, ones, 100 * ones, 100 * ones)
    text = verdict("mcmc", few, few, difference(few, few, "mcmc"), "nuts")
    assert text.startswith("no difference from nuts seen"), text
    assert "> 0.23 posterior sd" in text


@pytest.mark.parametrize("side", ["engine", "reference"])
def test_unconverged_chains_get_no_verdict(side: str) -> None:
    apart = draws(seed=1)
    apart[0] += 1.0
    pair = (apart, draws(seed=2)) if side == "engine" else (draws(seed=2), apart)
    text = sentence("mcmc", *pair)
    assert text.startswith("no verdict"), text
    assert ("reference" in text) == (side == "reference")


def test_points_have_no_interval() -> None:
    point = moments(np.full((1, 1, 30), 0.3))
    found = difference(point, moments(draws()), "point")
    assert found.upper is None
    assert found.max_z is None
    assert np.isnan(point.rhat).all()
    assert found.max_difference == pytest.approx(0.3, abs=0.1)


def test_bounds_report_their_spread() -> None:
    text = sentence("bound", draws(scale=0.5, seed=1)[:1], draws(seed=2))
    assert "sds 0.5 times its own" in text


def test_constants_are_left_out() -> None:
    values = draws()
    values[:, :, 0] = 7.0
    summary = moments(values)
    assert summary.sd[0] == 0.0
    assert np.isnan(summary.rhat[0])
    assert converged(summary)


def test_the_false_alarm_rate_holds() -> None:
    """Thirty comparisons of equal laws at a family-wise rate of .001 each."""
    texts = [sentence("mcmc", draws(count=500, seed=s), draws(count=500, seed=s + 999)) for s in range(30)]
    assert sum(text.startswith("no verdict") for text in texts) < 5
    assert sum(is_refuted(text) for text in texts) <= 1
