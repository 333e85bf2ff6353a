"""The records of docs/errata.toml, and the comparison of a computed effect with the recorded one."""

import tomllib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[2] / "docs" / "errata.toml"


def load() -> dict[str, Any]:
    """Return papers and records; numbers stay decimal, so that their digits count."""
    with DATA.open("rb") as stream:
        return tomllib.load(stream, parse_float=Decimal)


@pytest.fixture(scope="session")
def errata() -> dict[str, Any]:
    """All papers and records."""
    return load()


@pytest.fixture
def effect(request: pytest.FixtureRequest, errata: dict[str, Any]) -> Callable[[float], None]:
    """Return a function that holds a number against the effect recorded for the running test."""
    (record,) = [r for r in errata["record"] if r.get("check") == request.node.nodeid]

    def agrees(value: float) -> None:
        recorded: Decimal = record["effect"]
        exponent = recorded.as_tuple().exponent
        assert isinstance(exponent, int)
        half_unit = 0.5001 * 10.0**exponent
        assert abs(value - float(recorded)) <= half_unit, f"{record['id']}: {value:.8g}, recorded {recorded}"

    return agrees
