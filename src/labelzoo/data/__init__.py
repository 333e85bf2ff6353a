"""Label data: the table type, loaders and writers of every format, splits, statistics, held-out metrics."""

from labelzoo.data.build import from_arrays, from_frame, from_openml
from labelzoo.data.classes import from_classes
from labelzoo.data.describe_text import describe_text
from labelzoo.data.errors import DataError
from labelzoo.data.files import BUILTIN, FORMATS, from_npz, load, save_data, save_npz
from labelzoo.data.labeldata import LabelData
from labelzoo.data.missing import Missing, missing_from_cells, missing_from_observed
from labelzoo.data.splits import (
    AbsentLabelsWarning,
    Folds,
    Split,
    StratifiedLabelFolds,
    fold_rows,
    split_rows,
)

__all__ = [
    "BUILTIN",
    "FORMATS",
    "AbsentLabelsWarning",
    "DataError",
    "Folds",
    "LabelData",
    "Missing",
    "Split",
    "StratifiedLabelFolds",
    "describe_text",
    "fold_rows",
    "from_arrays",
    "from_classes",
    "from_frame",
    "from_npz",
    "from_openml",
    "load",
    "missing_from_cells",
    "missing_from_observed",
    "save_data",
    "save_npz",
    "split_rows",
]
