"""The normal law of the gate's functions f at new rows, from the factors of a bound engine.

A row x has f_k = gate_mean + c'white_k + rest, c = amplitude k(x, mapped) whitener, with rest ~
N(0, amplitude k(x, x) - |c|^2) independent of white_k. Under q(white_k) = N(P^-1 F'(r - gate_mean W), P^-1),
P = I + F' diag(W) F,

    E f_k = gate_mean + c'E[white_k],    Var f_k = amplitude k(x, x) - |c|^2 + c' P^-1 c.

P has the eigenvalues of I + W^(1/2) F F' W^(1/2) and ones, so that one Cholesky factor of it a component does
without any inverse, whatever rows are alike and whatever W is 0. Shi, Yu and Yu, NeurIPS 2021, section 3.3.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from labelzoo.models.gp_bernoulli_mixture_predict import basis_rows
from labelzoo.models.sparse_bayes_predict import kernel_of

Array = Any
BLOCK_ROWS = 2048
"""New rows at a time."""


class Whites(NamedTuple):
    """q(white_k): its mean and a root of its covariance, or the lower triangular root of its precision.

    Attributes
    ----------
    mean : (component, basis)
    root : (component, basis, basis)
    of_precision : bool
    """

    mean: Array
    root: Array
    of_precision: bool

    def variance(self, load: Array) -> Array:
        """Return c' Cov[white_k] c of each row: (row, component)."""
        out = np.empty((len(load), len(self.mean)))
        for k, root in enumerate(self.root):
            half = solve_triangular(root, load.T, lower=True).T if self.of_precision else load @ root
            out[:, k] = (half**2).sum(axis=1)
        return out


def whites(state: Mapping[str, Any], constants: Mapping[str, Any]) -> Whites:
    """Return q(white) from the state that a bound engine keeps.

    Parameters
    ----------
    state : mapping
        ``weight`` W and ``potential`` r, each (obs, component); of engine ``sparse`` ``white_mean``
        (component, basis) and ``white_root`` (component, basis, basis), covariance root root'.
    constants : mapping
        ``mapped`` and ``whitener``, the kernel, ``fitted_amplitude`` and ``gate_mean``. The factor F at the
        training rows is made again from them; basis^2 (obs + basis / 3) flops a component.

    Raises
    ------
    ValueError
        If the state holds neither, or its shapes are not those of the training rows.
    """
    if "white_mean" in state:
        mean, root = (np.asarray(state[name], float) for name in ("white_mean", "white_root"))
        return Whites(mean, root, False)
    for name in ("weight", "potential"):
        if name not in state:
            raise ValueError(f"engine_state has no {name}: the posterior is of no engine of the gate's bound")
    W, r = (np.asarray(state[name], float) for name in ("weight", "potential"))
    kernel, rows = kernel_of(constants), constants["mapped"]
    F = float(constants["fitted_amplitude"]) * kernel.of_mapped(rows, rows) @ constants["whitener"]
    if W.shape != r.shape or W.ndim != 2 or len(W) != len(F):
        raise ValueError(
            f"engine_state: weight {W.shape} and potential {r.shape} must be ({len(F)}, component)"
        )
    right = F.T @ (r - float(constants["gate_mean"]) * W)
    root = np.stack([_precision_root(F, W[:, k]) for k in range(W.shape[1])])
    mean = np.stack([cho_solve((lower, True), right[:, k]) for k, lower in enumerate(root)])
    return Whites(mean, root, True)


def _precision_root(F: Array, weight: Array) -> Array:
    P = (F.T * weight) @ F
    P[np.diag_indices_from(P)] += 1.0
    return cholesky(P, lower=True, overwrite_a=True)


def latent_moments(
    state: Mapping[str, Any], constants: Mapping[str, Any], X_new: Array
) -> Iterator[tuple[slice, Array, Array]]:
    """Yield rows, E f and Var f (row, component) of blocks of new rows under the factors of a bound engine.

    Cost rows component basis^2 flops beside `whites`; see there for the arguments.
    """
    white = whites(state, constants)
    for begin in range(0, X_new.shape[0], BLOCK_ROWS):
        rows = slice(begin, min(begin + BLOCK_ROWS, X_new.shape[0]))
        load, rest = basis_rows(constants, X_new[rows])
        mean = float(constants["gate_mean"]) + load @ white.mean.T
        yield rows, mean, rest[:, None] + white.variance(load)
