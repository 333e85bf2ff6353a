"""Features and seeds as scikit-learn users give them."""

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from labelzoo.data.plain import checked_sparse
from labelzoo.models.spec import nan_columns

IMPUTE = "impute them first, say make_pipeline(labelzoo.preparation.prepare('impute'), classifier)"


def read_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X as a float64 ndarray or csr matrix, names and number of columns checked or, on `reset`, kept.

    Raises
    ------
    ValueError
        For NaN and infinite values, with the columns; for another number, other names or another order of
        columns than in `fit`.
    """
    if sparse.issparse(X):
        checked_sparse(X, "X")  # before anything converts it: SciPy trusts its positions
    masked = isinstance(X, np.ma.MaskedArray) and bool(np.ma.getmaskarray(X).any())
    array = validate_data(
        estimator, filled(X), reset=reset, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False
    )
    values = array.data if sparse.issparse(array) else array
    if np.isfinite(values).all():
        return array
    names = getattr(estimator, "feature_names_in_", None)
    if np.isinf(values).any():
        raise ValueError("X has infinite values (inf): clip or drop them")
    way_out = IMPUTE + ", which reads masked values as missing" if masked else IMPUTE
    raise ValueError(f"X has {nan_columns(array, names)}: {way_out}")


def filled(values: Any) -> Any:
    """Return a masked array as floats with NaN where it is masked, and anything else as it is."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        return np.ma.filled(values.astype(float), np.nan)
    return values


def seed_of(random_state: Any) -> int:
    """Return a seed: the integer itself, a draw from a generator, or fresh entropy for None.

    NumPy's global random state is neither read nor moved.
    """
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if whole and 0 <= random_state < 2**32:
        return int(random_state)
    raise ValueError(
        "random_state must be None, an integer from 0 to 2**32 - 1, or a generator of NumPy, "
        f"got {random_state!r}"
    )
