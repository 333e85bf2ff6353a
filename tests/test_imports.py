"""Import order and import weight, each in a process of its own."""

import subprocess
import sys

import pytest


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("first", ["arviz", "arviz_stats", "labelzoo.inference.compare", "numpyro"])
def test_factor_works_whatever_is_imported_first(first: str) -> None:
    """ArviZ's lazy stand-in for numpyro must not leave a second, broken numpyro.distributions."""
    code = (
        f"import {first}\nfrom labelzoo.models import registry\n"
        "registry.get('bernoulli_poisson_topics')\n"
        "import numpyro\nwith numpyro.handlers.trace() as t:\n    numpyro.factor('f', 1.0)\n"
        "print(sorted(t))"
    )
    assert run(code) == "['f']"


def test_public_names_resolve() -> None:
    assert run("import labelzoo\nprint([getattr(labelzoo, n) for n in labelzoo.__all__] and 'ok')") == "ok"
    code = "import labelzoo\ntry:\n    labelzoo.nonsense\nexcept AttributeError as error:\n    print(error)"
    assert run(code) == "module 'labelzoo' has no attribute 'nonsense'"
