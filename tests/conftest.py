"""Shared test set-up: float64, a persistent compilation cache, the folder with real data, a toy model."""

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parents[1]

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def data_folder() -> Path:
    """Return the folder of real data sets: ``LABELZOO_DATA``, or ``../shared/data`` beside the checkout."""
    return Path(os.environ.get("LABELZOO_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real data; the test is skipped, with the reason, where it is absent."""
    folder = data_folder()
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set LABELZOO_DATA")
    return folder


@pytest.fixture(scope="module")
def toy_model() -> Iterator[None]:
    """Register ``toy_ridge`` for the module that asks, alone."""
    from labelzoo.models import registry

    registry.get(f"{Path(__file__).parent / 'toy_ridge.py'}:spec")
    yield
    registry._registry.pop("toy_ridge", None)
