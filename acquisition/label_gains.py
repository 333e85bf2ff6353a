"""What revealing one label of a row tells about its other labels, for a Gaussian law with precision P.

Two criteria, U the labels not revealed, L those that are, S = (P_UU)^-1 their covariance given L:

* ``mi``: I(L + j; rest) - I(L; rest) = 1/2 log(S_jj (P_UU - P_UL P_LL^-1 P_LU)_jj), the greedy step on
  I(L; rest);
* ``cond``: I(j; rest | L) = 1/2 log(S_jj P_jj), the step once the labels in L are really known.

With P = diag(a) + Phi'Phi / v no matrix over labels is needed: with E_M = (v I + sum_M phi phi' / a)^-1,
S_jj = 1/a_j - phi_j' E_U phi_j / a_j^2, and the other factor is a_j + phi_j' E_L phi_j (``mi``) or
a_j + |phi_j|^2 / v (``cond``).
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from labelzoo.acquisition.mutual_information_greedy import TIE
from labelzoo.acquisition.selectors import PoolExhausted, check_batch

Array = Any

CRITERIA = ("mi", "cond")
RANK = 1e-9
"""Eigenvalues below this part of the largest count as 0."""


class Diagnosis(NamedTuple):
    """Labels of one row in the order in which they should be asked.

    Attributes
    ----------
    labels : int (asked,)
    gains : (asked,)
        Of each when it was chosen, nats.
    """

    labels: Array
    gains: Array


def check_criterion(criterion: Any) -> str:
    """Return the criterion, or raise ValueError with those that exist."""
    if criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {', '.join(CRITERIA)}, got {criterion!r}")
    return str(criterion)


def check_revealed(revealed: Any, size: int) -> Array:
    """Return which labels are revealed as bool (labels,), from a mask or from positions."""
    values = np.asarray(revealed)
    if values.dtype == bool and values.shape == (size,):
        return values.copy()
    values = values.astype(int) if values.size == 0 else values
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ValueError(f"revealed must be label numbers, or a bool of {size} labels, got {revealed!r}")
    bad = values[(values < 0) | (values >= size)]
    if len(bad):
        raise ValueError(f"revealed: label {bad[0]} is outside 0 to {size - 1}")
    if len(np.unique(values)) < len(values):
        raise ValueError("revealed: a label is given twice")
    out = np.zeros(size, bool)
    out[values] = True
    return out


class DenseGains:
    """Gains of the labels of one row from its whole precision, label by label.

    Cost: labels^3 flops once, labels^2 a label revealed; memory 16 labels^2 bytes.

    Parameters
    ----------
    P : (labels, labels)
        Positive definite precision.
    revealed : bool (labels,)
    criterion : str
        ``mi`` or ``cond``.
    """

    def __init__(self, P: Array, revealed: Array, criterion: str) -> None:
        self.revealed, self._criterion = revealed.copy(), criterion
        U, L = np.flatnonzero(~revealed), np.flatnonzero(revealed)
        self._S, self._Q = np.zeros_like(P), np.zeros_like(P)
        open_block = P[np.ix_(U, U)]
        self._S[np.ix_(U, U)] = _inverse(open_block)
        if criterion == "mi" and len(L):
            open_block = open_block - P[np.ix_(U, L)] @ _inverse(P[np.ix_(L, L)]) @ P[np.ix_(L, U)]
        self._Q[np.ix_(U, U)] = open_block

    def scores(self) -> Array:
        """Return the gain of every label, nats; NaN where it is revealed: (labels,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = 0.5 * np.log(self._S.diagonal() * self._Q.diagonal())
        return np.where(self.revealed, np.nan, gains)

    def variances(self) -> Array:
        """Return the variance of every label given those revealed; NaN where it is one: (labels,)."""
        return np.where(self.revealed, np.nan, self._S.diagonal())

    def reveal(self, label: int) -> None:
        """Let a label be known."""
        self._S = _dropped(self._S, label)
        if self._criterion == "mi":
            self._Q = _dropped(self._Q, label)
        self.revealed[label] = True


class WoodburyGains:
    """Gains of the labels of one row whose precision is diag(a) + Phi'Phi / v.

    Cost: labels k^2 flops once and labels k a label revealed, k measurements; memory 8 labels k bytes.

    Parameters
    ----------
    a : (labels,)
    projection : (measurement, labels)
    variance : float
        v.
    revealed : bool (labels,)
    criterion : str
        ``mi`` or ``cond``.
    """

    def __init__(self, a: Array, projection: Array, variance: float, revealed: Array, criterion: str) -> None:
        self._a, self._Phi, self.revealed = a, projection, revealed.copy()
        own = variance * np.eye(len(projection))
        self._E_U = _inverse(own + (projection * np.where(revealed, 0.0, 1 / a)) @ projection.T)
        self._s = np.einsum("kj,kj->j", projection, self._E_U @ projection)
        self._E_L = None
        self._q = (projection**2).sum(axis=0) / variance
        if criterion == "mi":
            self._E_L = _inverse(own + (projection * np.where(revealed, 1 / a, 0.0)) @ projection.T)
            self._q = np.einsum("kj,kj->j", projection, self._E_L @ projection)

    def scores(self) -> Array:
        """Return the gain of every label, nats; NaN where it is revealed: (labels,)."""
        gains = woodbury_gain(self._a, np.where(self.revealed, 0.0, self._s), self._q)
        return np.where(self.revealed, np.nan, gains)

    def variances(self) -> Array:
        """Return the variance of every label given those revealed; NaN where it is one: (labels,)."""
        return np.where(self.revealed, np.nan, 1 / self._a - self._s / self._a**2)

    def reveal(self, label: int) -> None:
        """Let a label be known: a rank less in E_U^-1, a rank more in E_L^-1."""
        phi, a = self._Phi[:, label], self._a[label]
        column = self._E_U @ phi
        left = max(a - phi @ column, 1e-15 * a)
        self._s = self._s + (column @ self._Phi) ** 2 / left
        self._E_U = self._E_U + np.outer(column, column / left)
        if self._E_L is not None:
            column = self._E_L @ phi
            joined = a + phi @ column
            self._q = self._q - (column @ self._Phi) ** 2 / joined
            self._E_L = self._E_L - np.outer(column, column / joined)
        self.revealed[label] = True


def woodbury_gain(a: Array, s: Array, q: Array) -> Array:
    """Return 1/2 log((1/a - s/a^2) (a + q)) without cancellation where the labels hang together little."""
    left = np.maximum(1 - s / a, 1e-15)
    return 0.5 * (np.log(left) + np.log1p(np.maximum(q, 0.0) / a))


def label_gains(P: Any, revealed: Any = (), criterion: str = "mi") -> Array:
    """Return what each label of a row tells about its other labels, by the whole precision.

    Parameters
    ----------
    P : (labels, labels)
        Positive definite precision of the labels of one row.
    revealed : sequence of int, or bool (labels,)
        Labels that are known.
    criterion : str
        ``mi`` or ``cond``, see the module. With two labels left ``cond`` always ties.

    Returns
    -------
    ndarray (labels,)
        Gains in nats, NaN for the revealed.

    Raises
    ------
    ValueError
        If `P` is no precision (the message has its smallest eigenvalue), `revealed` no labels of it, or the
        criterion unknown.
    """
    P = _check_precision(P)
    return DenseGains(P, check_revealed(revealed, len(P)), check_criterion(criterion)).scores()


def diagnose(P: Any, budget: Any, criterion: str = "mi", revealed: Any = ()) -> Diagnosis:
    """Choose labels of a row one after another, each of the largest gain given those before it.

    Parameters
    ----------
    P, criterion, revealed
        As in `label_gains`.
    budget : int
        Number of labels; with more than are left all are chosen, with a warning. Gains of ``mi`` may be
        negative towards the end, as I(all; nothing) = 0.

    Returns
    -------
    Diagnosis
        Ties go to the lowest label. ``mi``: the gains add up to I(L; rest).
    """
    P = _check_precision(P)
    state = DenseGains(P, check_revealed(revealed, len(P)), check_criterion(criterion))
    return greedy_labels(state, budget)


def greedy_labels(state: Any, budget: Any) -> Diagnosis:
    """Choose labels by the largest ``state.scores()`` (NaN where revealed), each revealed at once."""
    still = int((~state.revealed).sum())
    if not still:
        raise PoolExhausted("every label is revealed: there is nothing left to ask")
    budget = check_batch(budget, still)
    labels, gains = [], []
    for _ in range(budget):
        scores = state.scores()
        label = int(np.flatnonzero(scores >= np.nanmax(scores) - TIE)[0])
        labels.append(label)
        gains.append(float(scores[label]))
        state.reveal(label)
    return Diagnosis(np.asarray(labels), np.asarray(gains))


def limit_keys(projection: Any, v: Any, revealed: Any = (), criterion: str = "mi") -> tuple[Array, Array]:
    """Return the order of the gains as all of diag(a) goes to 0 together: a = eps, eps -> 0.

    The gain of label j is 1/2 (order_j log(1/eps) + constant_j) + o(1): compare order first, then constant.
    For a Phi of general position all labels have one order.

    Parameters
    ----------
    projection : (measurement, labels)
        Phi; P = eps I + Phi'Phi / v.
    v : float
    revealed, criterion
        As in `label_gains`.

    Returns
    -------
    order, constant : ndarray (labels,)
        NaN for the revealed.
    """
    Phi, v = np.asarray(projection, float), float(v)
    if Phi.ndim != 2 or not np.isfinite(Phi).all():
        raise ValueError(f"projection must be finite numbers (measurement, labels), got shape {Phi.shape}")
    if not (np.isfinite(v) and v > 0):
        raise ValueError(f"v must be a finite number above 0, got {v!r}")
    check_criterion(criterion)
    known = check_revealed(revealed, Phi.shape[1])
    order, constant = np.full(Phi.shape[1], np.nan), np.full(Phi.shape[1], np.nan)
    if known.all():
        return order, constant
    variance_order, variance = _limit_variance(Phi[:, ~known], v)
    precision_order, precision = _limit_precision(Phi, v, known, criterion)
    order[~known] = variance_order + precision_order
    constant[~known] = np.log(variance) + np.log(precision)
    return order, constant


def limit_ranking(order: Array, constant: Array) -> Array:
    """Return the labels that are not revealed, best first by (order, constant), ties to the lowest label."""
    still = np.flatnonzero(~np.isnan(order))
    return still[np.lexsort((still, -constant[still], -order[still]))]


def _limit_variance(Phi: Array, v: float) -> tuple[Array, Array]:
    # var(j | L) = n_j / eps + f_j + O(eps): the part of label j that no measurement sees, or what is left.
    left, size, right = np.linalg.svd(Phi, full_matrices=False)
    kept = size > np.sqrt(RANK) * max(size.max(initial=0.0), 1e-300)
    right = right[kept]
    unseen = 1 - (right**2).sum(axis=0)
    fixed = v * ((right / size[kept, None]) ** 2).sum(axis=0)
    free = unseen > RANK
    return free.astype(float), np.where(free, unseen, fixed)


def _limit_precision(Phi: Array, v: float, known: Array, criterion: str) -> tuple[Array, Array]:
    # 1 / var(j | rest) = g_j + eps h_j; `cond`: P_jj = |phi_j|^2 / v + eps.
    own = Phi[:, ~known]
    total = (own**2).sum(axis=0)
    outside, inside = own, np.zeros_like(total)
    if criterion == "mi" and known.any():
        left, size, _ = np.linalg.svd(Phi[:, known], full_matrices=False)
        kept = size > np.sqrt(RANK) * max(size.max(initial=0.0), 1e-300)
        part = left[:, kept].T @ own
        outside = own - left[:, kept] @ part
        inside = ((part / size[kept, None]) ** 2).sum(axis=0)
    seen = (outside**2).sum(axis=0)
    zero = seen <= RANK * np.maximum(total, 1e-300)
    return -zero.astype(float), np.where(zero, 1 + inside, seen / v)


def _check_precision(P: Any) -> Array:
    P = np.asarray(P, float)
    if P.ndim != 2 or P.shape[0] != P.shape[1] or not P.shape[0]:
        raise ValueError(f"P must be (labels, labels), got shape {P.shape}")
    bad = np.argwhere(~np.isfinite(P))
    if len(bad):
        raise ValueError(f"P row {bad[0, 0]}, column {bad[0, 1]} is no number")
    if np.abs(P - P.T).max() > 1e-8 * np.abs(P).max():
        raise ValueError("P is not symmetric")
    least = np.linalg.eigvalsh(P)[0]
    if least <= 0:
        raise ValueError(
            f"P is not positive definite: its smallest eigenvalue is {least:.3g}; of a precision without "
            "full rank limit_keys ranks the labels"
        )
    return P


def _inverse(A: Array) -> Array:
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(A), np.eye(len(A))) if len(A) else A


def _dropped(A: Array, at: int) -> Array:
    out = A - np.outer(A[:, at], A[at] / A[at, at])
    out[at], out[:, at] = 0.0, 0.0
    return out
