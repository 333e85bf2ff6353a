"""The examples of the pages on data and metrics are real."""

import re
from pathlib import Path

import numpy as np
import pytest

from labelzoo.data import LabelData

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    """Return the Python examples of a page in order."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_path_that_the_metrics_page_begins_with(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, object] = {}
    exec(compile(blocks("metrics.md")[0], "metrics.md", "exec"), found)
    numbers = [float(text) for text in re.findall(r"(-?\d+\.\d+)", capsys.readouterr().out)]
    assert len(numbers) == 5
    assert numbers[1] > 0.7
    assert min(numbers[2:]) > 0.4


def test_labels_in_another_shape() -> None:
    recipes = [block for block in blocks("data.md") if "MultiLabelBinarizer" in block or "signs" in block]
    assert len(recipes) == 2
    found: dict[str, object] = {}
    exec(compile(recipes[0], "data.md", "exec"), found)
    sets = found["data"]
    assert isinstance(sets, LabelData)
    assert sets.label_names == ("comedy", "crime", "drama")
    assert sets.Y.toarray().tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    exec(compile(recipes[1], "data.md", "exec"), found)
    signs = found["data"]
    assert isinstance(signs, LabelData)
    assert signs.Y.toarray().tolist() == [[1, 0], [0, 1], [0, 1]]
    np.testing.assert_array_equal(np.argwhere(~signs.observed_mask()), [[2, 0]])
