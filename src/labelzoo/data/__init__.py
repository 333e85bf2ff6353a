"""Label data: the table type, its loaders, the built-in data set, and held-out metrics."""

from labelzoo.data.build import from_arrays, from_frame
from labelzoo.data.files import BUILTIN, from_npz, load, save_npz
from labelzoo.data.labeldata import LabelData
from labelzoo.data.missing import Missing, missing_from_cells, missing_from_observed

__all__ = [
    "BUILTIN",
    "LabelData",
    "Missing",
    "from_arrays",
    "from_frame",
    "from_npz",
    "load",
    "missing_from_cells",
    "missing_from_observed",
    "save_npz",
]
