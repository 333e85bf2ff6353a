"""What users hand to the front, looked at before anything is computed: one line that names the argument."""

import json
from typing import Any

import numpy as np
import xarray as xr

GROUPS = ("posterior", "constant_data")
ATTRS = ("model", "settings", "seed", "num_features", "feature_names", "label_names")
"""What `labelzoo.inference.predict` reads of a posterior."""


def check_tree(tree: Any) -> None:
    """Raise TypeError where `tree` is no DataTree."""
    if not isinstance(tree, xr.DataTree):
        raise TypeError(f"tree must be a posterior, the DataTree of a fit, got {type(tree).__name__}")


def check_posterior(tree: Any) -> None:
    """Raise TypeError where `tree` is no DataTree, ValueError where it lacks what predictions need."""
    check_tree(tree)
    lacking = [f"the group {name!r}" for name in GROUPS if name not in tree.children]
    lacking += [f"the attribute {name!r}" for name in ATTRS if name not in tree.attrs]
    if not lacking and not {"chain", "draw"} <= set(tree["posterior"].sizes):
        lacking = ["the dims chain and draw in its group 'posterior'"]
    if lacking:
        raise ValueError(f"the posterior is damaged: it lacks {', '.join(lacking)}")
    for name in ("label_names", "feature_names", "settings"):
        try:
            json.loads(tree.attrs[name])
        except (TypeError, ValueError) as error:
            raise ValueError(f"the posterior is damaged: its attribute {name!r} is no JSON") from error


def check_size(batch: Any) -> int:
    """Return a batch size as an int, or raise ValueError."""
    if isinstance(batch, bool | np.bool_) or not isinstance(batch, int | np.integer) or batch < 1:
        raise ValueError(f"batch must be a positive integer, got {batch!r}")
    return int(batch)


def check_data(data: Any, argument: str) -> None:
    """Raise TypeError where `data` is no LabelData."""
    from labelzoo.data import LabelData

    if not isinstance(data, LabelData):
        raise TypeError(
            f"{argument} must be a LabelData, got {type(data).__name__}: LabelData.from_arrays(X, Y) makes "
            "one, with NaN in Y where a label was not asked"
        )


def check_same_labels(tree: xr.DataTree, data: Any, argument: str) -> None:
    """Raise ValueError where the labels of `data` are not those of the posterior, in their order."""
    trained = json.loads(tree.attrs["label_names"])
    names = list(data.label_names)
    if names == trained:
        return
    if set(names) == set(trained):
        raise ValueError(
            f"{argument} has the labels of the posterior in another order: use data.subset(labels=)"
        )
    lacking = sorted(set(trained) - set(names))
    foreign = sorted(set(names) - set(trained))
    parts = [f"{argument} lacks {len(lacking)}: {', '.join(lacking[:5])}"] if lacking else []
    parts += [f"the posterior does not know {len(foreign)}: {', '.join(foreign[:5])}"] if foreign else []
    raise ValueError(f"labels differ between {argument} and posterior: {'; '.join(parts)}")
