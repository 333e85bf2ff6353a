"""Wrong versions of the hand-derived updates, written by someone who has not seen the checks."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class OutsiderMutant:
    """A wrong `given` of one update.

    Parameters
    ----------
    model, update : str
        Registry name of the model, and the update's name.
    name : str
        Short and unique.
    slip : str
        What is wrong, where, and what would mend it.
    given : callable
        The wrong claim, with the signature of `Update.given`.
    """

    model: str
    update: str
    name: str
    slip: str
    given: Callable[..., Any]


def _read(file: str, model: str) -> tuple[OutsiderMutant, ...]:
    # By path: the folder is no package.
    spec = importlib.util.spec_from_file_location(f"outsider_{Path(file).stem}", HERE / file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return tuple(
        OutsiderMutant(model, update, given.__name__, " ".join(given.__doc__.split()), given)
        for update, wrong in module.GIVEN.items()
        for given in wrong
    )


OUTSIDER = (
    *_read("arrivals_wrong.py", "bernoulli_poisson_topics"),
    *_read("counts_wrong.py", "bernoulli_poisson_topics"),
    *_read("counts_collapsed_wrong.py", "bernoulli_poisson_topics"),
    *_read("logistic_wrong.py", "label_logistic"),
)
