"""Single labels of many rows at once: gains over the ground set of all (row, label) cells.

P = diag(a) + C^-1 (x) Phi'Phi over N rows and l labels is never built. With phi~ = e_i (x) phi_j for cell
(i, j), M_U = C (x) I + sum_U phi~ phi~' / a and M_L the same over revealed cells,

    S = 1/a - phi~' M_U^-1 phi~ / a^2,   `mi`: a + phi~' M_L^-1 phi~,   `cond`: a + (C^-1)_ii |phi_j|^2.
"""

from typing import Any

import numpy as np

from labelzoo.acquisition.label_gains import check_criterion, woodbury_gain
from labelzoo.acquisition.label_law import LabelLaw
from labelzoo.acquisition.mutual_information_greedy import inverse_column, inverse_triangle

Array = Any

LARGEST = 4000
"""Rows x measurements up to which the matrix is inverted: 128 MB for each of the two."""


class CellGains:
    """Gains of all cells that are not revealed, cell by cell.

    Cost: (N k)^3 flops and 16 (N k)^2 bytes once for N rows and k measurements (``cond``: half of that),
    N l k^2 for the first gains, N k (l + cells revealed since) a cell.

    Parameters
    ----------
    law : LabelLaw
        With a covariance over rows.
    revealed : bool (row, labels)
        Cells that are known.
    criterion : str
        ``mi`` or ``cond``.
    room : int
        Number of cells that will be revealed.

    Raises
    ------
    ValueError
        If rows x measurements are more than 4000, or the covariance is not positive definite.
    """

    def __init__(self, law: LabelLaw, revealed: Array, criterion: str, room: int) -> None:
        check_criterion(criterion)
        rows, k = law.shape[0], len(law.projection)
        if rows * k > LARGEST:
            raise ValueError(
                f"cells of {rows} rows and {k} measurements together need a matrix of {rows * k} rows, above "
                f"{LARGEST}: take fewer rows, the labels of each row alone (label_mi, label_cond), or rows "
                "first and labels within them (label_two_way)"
            )
        C = law.joint_covariance()
        self._a, self._Phi, self.revealed = law.diagonal, law.projection, revealed.copy()
        self._open = _Columns(C, law.projection, np.where(revealed, 0.0, 1 / self._a), room)
        self._known: _Columns | None = None
        if criterion == "mi":
            self._known = _Columns(C, law.projection, np.where(revealed, 1 / self._a, 0.0), room)
        else:
            least = inverse_triangle(C.copy(), "label_law: covariance")[0].diagonal()
            self._fixed = least[:, None] * (law.projection**2).sum(axis=0)

    def scores(self) -> Array:
        """Return the gain of every cell, nats; NaN where it is revealed: (row, labels)."""
        s = np.where(self.revealed, 0.0, self._open.forms)
        q = self._fixed if self._known is None else self._known.forms
        return np.where(self.revealed, np.nan, woodbury_gain(self._a, s, q))

    def variances(self) -> Array:
        """Return the variance of every cell given those revealed; NaN where it is one: (row, labels)."""
        return np.where(self.revealed, np.nan, 1 / self._a - self._open.forms / self._a**2)

    def reveal(self, row: int, label: int) -> None:
        """Let a cell be known."""
        a = self._a[row, label]
        self._open.change(row, label, -a)
        if self._known is not None:
            self._known.change(row, label, a)
        self.revealed[row, label] = True


class _Columns:
    """phi~' M^-1 phi~ of all cells, as cells join M or leave it; columns of M^-1 are made on demand."""

    def __init__(self, C: Array, Phi: Array, weights: Array, room: int) -> None:
        rows, k = len(C), len(Phi)
        self._k, self._Phi = k, Phi
        M = np.kron(C, np.eye(k))
        for row in range(rows):
            at = slice(row * k, (row + 1) * k)
            M[at, at] += (Phi * weights[row]) @ Phi.T
        self._inverse = inverse_triangle(M, "label_law: the matrix of rows and measurements")[0]
        self.forms = np.empty(weights.shape)
        for row in range(rows):
            at = slice(row * k, (row + 1) * k)
            own = np.tril(self._inverse[at, at])
            own = own + np.tril(own, -1).T
            self.forms[row] = np.einsum("kj,kj->j", Phi, own @ Phi)
        self._used, self._taken = 0, np.zeros((room, rows * k))
        self._signs = np.zeros(room)

    def change(self, row: int, label: int, a: float) -> None:
        """Add phi~ phi~' / a to M; `a` is below 0 where the cell leaves."""
        taken, signs = self._taken[: self._used], self._signs[: self._used]
        first, phi = row * self._k, self._Phi[:, label]
        column = sum(
            (phi[m] * inverse_column(self._inverse, first + m) for m in range(self._k)),
            np.zeros(self._inverse.shape[0]),
        )
        column = column - (signs * (taken[:, first : first + self._k] @ phi)) @ taken
        total = a + self.forms[row, label]
        total = np.sign(a) * max(abs(total), 1e-15 * abs(a))
        projected = column.reshape(-1, self._k) @ self._Phi
        self.forms = self.forms - projected**2 / total
        if self._used < len(self._taken):
            self._taken[self._used] = column / np.sqrt(abs(total))
            self._signs[self._used] = np.sign(total)
            self._used += 1
