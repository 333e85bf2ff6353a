"""Compiled programs are dropped before the memory maps of a process run out."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import labelzoo
from labelzoo.data import LabelData
from labelzoo.inference import program_memory
from labelzoo.inference.program_memory import tidy_programs


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_memory, "EVERY", 1)


def test_programs_are_dropped_above_the_share_and_kept_below(
    always: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maps, limit = tmp_path / "maps", tmp_path / "limit"
    monkeypatch.setattr(program_memory, "MAPS", maps)
    monkeypatch.setattr(program_memory, "LIMIT", limit)
    assert not tidy_programs()  # a system that does not say
    limit.write_text("10\n", encoding="ascii")
    program = jax.jit(lambda x: x + 1)
    program(jnp.zeros(()))
    maps.write_text("map\n" * 5, encoding="ascii")
    assert not tidy_programs() and program._cache_size() == 1
    maps.write_text("map\n" * 6, encoding="ascii")
    assert tidy_programs() and program._cache_size() == 0
    assert program(jnp.zeros(())) == 1


def test_every_fit_looks(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[bool] = []
    monkeypatch.setattr(program_memory, "SHARE", 0.0)
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(True))
    rng = np.random.default_rng(0)
    data = LabelData.from_arrays(rng.standard_normal((8, 2)), np.eye(8, 3, dtype=np.int8))
    labelzoo.fit("label_gp", data, engine="conjugate")
    assert cleared == ([True] if program_memory.LIMIT.exists() else [])
