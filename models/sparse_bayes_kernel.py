"""Kernels of sparse_bayes: linear, rbf, cosine, or any function of two tables of rows, kept by name.

* ``linear``: z'x / features on standardised features (scaled but not centred where X is sparse);
* ``rbf``, ``cosine``, ``auto``: as in `labelzoo.models.gp_kernel`;
* ``package.module:function``, ``path/file.py:function`` or a name given to `register_kernel`:
  ``function(A, B) -> (a, b)`` on raw dense features.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import eigh, eigvalsh
from scipy.linalg.lapack import dpstrf

from labelzoo.models.gp_kernel import GPKernel, feature_map, standardisation

Array = Any

KINDS = ("linear", "rbf", "cosine", "callable")
"""Kept as their position."""
RANK_CUT = 1e-12
"""Pivots below this share of the largest diagonal entry end the factor of a kernel."""
NEGATIVE = 1e-8
"""A smallest eigenvalue below minus this share of the largest diagonal entry refuses a kernel."""

_registered: dict[str, Callable[[Array, Array], Array]] = {}


def register_kernel(name: Any, function: Any) -> None:
    """Give a kernel a name, so that ``kernel=name`` finds it; a new process must register it again.

    Parameters
    ----------
    name : str
        Not one of linear, rbf, cosine, auto, and without a colon.
    function : callable
        ``function(A, B) -> (a, b)`` for dense rows A (a, feature), B (b, feature), symmetric and positive
        semidefinite.

    Raises
    ------
    ValueError
        If the name is taken by a built-in kernel or `function` cannot be called.
    """
    if not isinstance(name, str) or not name or ":" in name or name in (*KINDS, "auto"):
        raise ValueError(f"name must be a name without a colon, none of {(*KINDS, 'auto')}, got {name!r}")
    if not callable(function):
        raise ValueError(f"function must be callable as function(A, B), got {function!r}")
    _registered[name] = function


def find_kernel(name: Any) -> Callable[[Array, Array], Array]:
    """Return a kernel that was registered, or that a module or file holds.

    Raises
    ------
    ValueError
        If there is none, with what exists.
    """
    if not isinstance(name, str):
        raise ValueError(f"kernel must be a name, got {name!r}; register_kernel(name, function) gives it one")
    if name in _registered:
        return _registered[name]
    place, colon, attribute = name.rpartition(":")
    if not colon:
        names = ", ".join(("auto", *KINDS[:3], *sorted(_registered)))
        raise ValueError(
            f"kernel must be one of {names}, package.module:function or path/file.py:function, got {name!r}; "
            "labelzoo.models.sparse_bayes_kernel.register_kernel gives a function a name, in every process"
        )
    function = getattr(_module(place, name), attribute, None)
    if not callable(function):
        raise ValueError(f"kernel {name!r}: {place!r} has no function {attribute!r}")
    return function


def _module(place: str, name: str) -> Any:
    try:
        absent = place.endswith(".py") and not Path(place).is_file()
    except OSError as error:
        raise ValueError(f"kernel: {error.strerror}: {place[:100]!r}") from error
    if absent:
        raise ValueError(f"kernel {name!r}: there is no file {place!r}; put the one used in the fit there")
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        found = importlib.util.spec_from_file_location(f"labelzoo_kernel_{Path(place).stem}", place)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module  # dataclasses look their module up while it is being run
        found.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as error:
        raise ValueError(f"kernel {name!r}: {type(error).__name__}: {error}") from error


class GraphKernel(NamedTuple):
    """A kernel with what it needs at new rows.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    name : str
        As the user gave it.
    center, feature_scale : float (feature,)
        Rows are mapped first, (x - center) * feature_scale.
    length2 : float
        Squared length scale of rbf.
    """

    kind: str
    name: str
    center: Array
    feature_scale: Array
    length2: float = 1.0

    def mapped(self, X: Array) -> Array:
        """Return the rows as the kernel reads them: dense (row, feature)."""
        if self.kind == "callable":
            return X.toarray() if sparse.issparse(X) else np.asarray(X, float)
        Z = self._plain().mapped(X)
        return Z.toarray() if sparse.issparse(Z) else np.asarray(Z)

    def of_mapped(self, A: Array, B: Array) -> Array:
        """Return k of mapped rows: (a, b).

        Raises
        ------
        ValueError
            If a user's kernel gives another shape, NaN or infinity.
        """
        if self.kind == "linear":
            return A @ B.T / max(A.shape[1], 1)
        if self.kind == "callable":
            return _called(self.name, A, B)
        return self._plain().of_mapped(A, B)

    def diagonal(self, A: Array) -> Array:
        """Return k(x, x) of mapped rows: (a,)."""
        if self.kind == "rbf":
            return np.ones(A.shape[0])
        if self.kind == "callable":
            return np.array([self.of_mapped(A[i : i + 1], A[i : i + 1])[0, 0] for i in range(A.shape[0])])
        return (A * A).sum(axis=1) / (max(A.shape[1], 1) if self.kind == "linear" else 1)

    def _plain(self) -> GPKernel:
        return GPKernel(self.kind == "cosine", self.center, self.feature_scale, self.length2)


def _called(name: str, A: Array, B: Array) -> Array:
    function = find_kernel(name)
    try:
        K = np.asarray(function(A.copy(), B.copy()), float)
    except (Exception, SystemExit) as error:
        raise ValueError(f"kernel {name!r} raised {type(error).__name__}: {error}") from error
    if K.shape != (A.shape[0], B.shape[0]):
        raise ValueError(f"kernel {name!r} gave shape {K.shape} for {A.shape[0]} and {B.shape[0]} rows")
    bad = np.argwhere(~np.isfinite(K))
    if len(bad):
        i, j = bad[0]
        raise ValueError(f"kernel {name!r} gave {K[i, j]} for row {i} and row {j}: it must be finite")
    return K


def graph_kernel(X: Array, name: Any) -> GraphKernel:
    """Return the kernel with its map of the features, from the rows `X`.

    Raises
    ------
    ValueError
        If there is no such kernel or a feature is not finite.
    """
    if name in ("rbf", "cosine", "auto"):
        plain = feature_map(X, name)
        kind = "cosine" if plain.is_cosine else "rbf"
        return GraphKernel(kind, kind, plain.center, plain.scale)
    if name == "linear":
        feature_map(X, "rbf")  # refuses what cannot be squared
        return GraphKernel("linear", "linear", *standardisation(X))
    find_kernel(name)
    return GraphKernel("callable", name, np.zeros(X.shape[1]), np.ones(X.shape[1]))


def kernel_factor(K: Array, name: str) -> Array:
    """Return F (row, component) with F F' = K by a Cholesky factorisation with pivots, row^2 rank flops.

    Raises
    ------
    ValueError
        If K is not symmetric or not positive semidefinite, with its smallest eigenvalue.
    """
    largest = max(float(np.abs(K).max(initial=0.0)), 1e-300)
    gap = float(np.abs(K - K.T).max(initial=0.0))
    if gap > NEGATIVE * largest:
        raise ValueError(f"kernel {name!r} is not symmetric: k(a, b) and k(b, a) differ by {gap:.3g}")
    packed, pivots, rank, _ = dpstrf(K, tol=RANK_CUT * largest, lower=1)
    factor = np.zeros((len(K), max(int(rank), 1)))
    factor[pivots - 1, :rank] = np.tril(packed)[:, :rank]
    if np.abs(K - factor @ factor.T).max(initial=0.0) <= 100 * len(K) * RANK_CUT * largest:
        return factor
    smallest = float(eigvalsh(K, subset_by_index=[0, 0])[0])
    if smallest < -NEGATIVE * largest:
        raise ValueError(
            f"kernel {name!r} is not positive definite: its smallest eigenvalue at these {len(K)} rows is "
            f"{smallest:.4g}"
        )
    values, vectors = eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))
