"""Bayesian multi-label models on NumPyro: programs, checked hand-derived inference, what to label next.

The public names are imported when they are first used, so that ``import labelzoo`` is quick.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "LabelData": "labelzoo.data",
    "ModelSpec": "labelzoo.models.spec",
    "register": "labelzoo.models.registry",
    "Engine": "labelzoo.inference.engine",
    "EngineResult": "labelzoo.inference.engine",
    "Update": "labelzoo.inference.update",
    "Mutant": "labelzoo.inference.update",
    "fit": "labelzoo.inference.fit",
    "save": "labelzoo.inference.posterior",
    "load": "labelzoo.inference.posterior",
    "label_prob": "labelzoo.inference.predict",
    "mean_prob": "labelzoo.inference.predict",
    "add_predictions": "labelzoo.inference.predictions",
    "check": "labelzoo.inference.checks",
    "compare": "labelzoo.inference.compare",
    "align": "labelzoo.inference.align",
    "complete": "labelzoo.completion",
    "joint_prob": "labelzoo.label_sets",
    "loo": "labelzoo.marginal",
    "calibrate": "labelzoo.calibration",
    "tune": "labelzoo.tuning",
}

__all__ = [*_WHERE, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'labelzoo' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
