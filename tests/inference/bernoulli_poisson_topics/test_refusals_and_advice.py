"""What a user's data and settings together are refused for, and what `compare` is told of the engines."""

import numpy as np
import pytest

import labelzoo
from labelzoo.data import LabelData
from labelzoo.estimators import LabelClassifier
from labelzoo.inference.bernoulli_poisson_topics.advice import (
    AXES,
    MANY_ROWS,
    MEASUREMENTS,
    advise,
    nearest,
    sizes_of,
)
from labelzoo.inference.compare import compare
from labelzoo.models import registry

MODEL = "bernoulli_poisson_topics"


def data(positives: int, rows: int = 20, labels: int = 12) -> LabelData:
    rng = np.random.default_rng(0)
    Y = np.zeros(rows * labels, np.int8)
    Y[rng.choice(Y.size, positives, replace=False)] = 1
    return LabelData.from_arrays(rng.standard_normal((rows, 3)), Y.reshape(rows, labels))


@pytest.mark.parametrize("way", ["fit", "compare", "tune", "classifier"])
def test_more_topics_than_positives_are_refused_with_both_numbers(way: str) -> None:
    few = data(3)
    calls = {
        "fit": lambda: labelzoo.fit(MODEL, few, engine="vb_em", num_topics=10),
        "compare": lambda: compare(MODEL, few, ["vb_em"], test=few, num_topics=10),
        "tune": lambda: labelzoo.tune(MODEL, few, "vb_em", {"num_topics": [10]}),
        "classifier": lambda: LabelClassifier(MODEL, "vb_em", num_topics=10).fit(few.X, few.Y),
    }
    with pytest.raises(ValueError, match=r"num_topics=10 exceeds the number of positive labels, [23]:"):
        calls[way]()


def test_as_many_topics_as_positives_are_not_refused() -> None:
    entry = registry.get(MODEL)
    assert entry.spec.refuse is not None
    entry.spec.refuse(data(10), {"num_topics": 10})
    entry.spec.refuse(data(3), {})


def test_advice_is_the_nearest_measurement_and_says_where_it_is_from() -> None:
    settings = registry.get(MODEL).spec.settings
    small = advise(data(500, rows=100, labels=20), {**settings, "num_topics": 3})
    assert "3 topics for 20 labels" in small
    assert "100 rows, 20 labels" in small and "benchmarks/samplers.py" in small and "R-hat" in small
    as_many = advise(data(500, rows=100, labels=20), {**settings, "num_topics": 20})
    assert "topics for" not in as_many
    for one in MEASUREMENTS:
        assert nearest({name: getattr(one, name) for name in AXES}) == one


def test_advice_for_many_rows_names_engines_that_can() -> None:
    settings = registry.get(MODEL).spec.settings
    many = advise(data(500, rows=MANY_ROWS + 1, labels=10), settings)
    assert "online_em" in many and "effective draws" not in many


def test_compare_passes_the_advice_on() -> None:
    found = compare(MODEL, data(60, rows=30, labels=6), ["vb_em"], seed=0)
    assert "minimum effective draws a second" in found.advice
    assert found.to_json()["advice"] == found.advice
    assert sizes_of(found.train, {"num_topics": None})["topics"] == 6
