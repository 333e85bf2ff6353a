"""Each engine rests where the gradient of its bound by definition vanishes; wrong updates do not."""

import numpy as np
import pytest

from labelzoo.inference.checks.stationarity import (
    MUTANT_FLOOR,
    THRESHOLD,
    Gradients,
    StationarityCase,
)
from labelzoo.inference.gp_bernoulli_mixture.stationarity import CASES
from tests.inference.gp_bernoulli_mixture.problems import small


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.engine)
def test_the_gradient_vanishes_at_rest_and_not_for_mutants(case: StationarityCase) -> None:
    inputs = {f"gate mean {m}": small(7, 3, 2, gate_mean=m, seed=3) for m in (-1.0, 0.5)}
    gradients = Gradients(case, inputs)
    for name in inputs:
        worst, where = gradients.largest(case.fixed_point, name)
        assert worst < THRESHOLD, (name, where)
    for what, wrong in case.mutants:
        found = max(gradients.largest(wrong, name)[0] for name in inputs)
        assert found > MUTANT_FLOOR, what
        assert not np.isnan(found)
