"""The log-determinant of a row's label covariance and the variance of its gate: gp_b2m and its halves.

Under a mixture law (`labelzoo.acquisition.mixture_law`) the covariance of a row's labels is D + U U', D
diagonal and U (labels, part), so that

    ln |D + U U'| = sum_l ln D_l + ln |I + U' D^-1 U|

costs labels part^2 instead of labels^3. Where some D_l (nearly) vanish, with their labels called s and the
others b, it is ln |D_b + U_b U_b'| + ln |D_s + U_s (I + U_b' D_b^-1 U_b)^-1 U_s'|, exact even at D_l = 0.

Shi, Yu and Yu, NeurIPS 2021, eq. 13 and the sampling function of section 3.3. The paper calls ln |cov| the
entropy of a Gaussian, which is half of it: eta means twice what it would mean beside an entropy. It gives no
value and no schedule for eta; those here are ours.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from labelzoo.acquisition.mixture_law import MixtureLaw
from labelzoo.acquisition.problem import Acquisition, Problem
from labelzoo.arguments import real

Array = Any

EPS = 1e-6
"""Added to D by the entries, so that a label that is known for certain costs no row its score."""
SMALL = 1e-10
"""Labels with D_l up to this go to the Schur complement."""
SINGULAR = 1e-14
"""What is left of the small labels is singular where its correlations have an eigenvalue below this times
their number."""
BLOCK_BYTES = 2**23
DECAY = 100.0
"""Labelled rows in which eta falls by e: 20 rounds of 5 rows."""


def log_determinants(weights: Any, parts: Any, eps: Any = 0.0) -> Array:
    """Return ln |diag(D + eps) + U U'| of each row, nats; -inf where it is singular: (row,).

    Parameters
    ----------
    weights : (row, part)
        At least 0, each row summing to 1.
    parts : (part, labels)
        Probabilities.
    eps : float
        Added to D, at least 0.

    Notes
    -----
    rows labels part^2 flops; with more parts than labels the covariance itself is made, rows (labels^2 part +
    labels^3 / 3). Memory beside the arguments: blocks of 8 MiB, or one row.

    Raises
    ------
    ValueError
        As `MixtureLaw`, or if `eps` is not a finite number of at least 0.
    """
    law = MixtureLaw(weights, parts, np.zeros(np.shape(weights)[:1]))
    return _log_determinants(law, _number(eps, "eps"))


def _log_determinants(law: MixtureLaw, eps: float) -> Array:
    T, out = law.parts, np.empty(len(law.weights))
    variance = T * (1 - T)
    count, labels = T.shape
    dense = count > labels
    block = max(1, BLOCK_BYTES // (8 * labels * (labels if dense else count)))
    for begin in range(0, len(out), block):
        rows = slice(begin, begin + block)
        w = law.weights[rows]
        D = w @ variance + eps
        small = D <= SMALL
        plain = ~small.any(axis=1)
        of_block = np.empty(len(w))
        of_block[plain] = (_dense if dense else _low_rank)(w[plain], T, D[plain])
        for row in np.flatnonzero(~plain):
            of_block[row] = _with_small(w[row], T, D[row], small[row])
        out[rows] = of_block
    return out


def _low_rank(w: Array, T: Array, D: Array) -> Array:
    """Return sum ln D + ln |I + U' D^-1 U|: (row,)."""
    if not len(w):
        return np.empty(0)
    V = T - (w @ T)[:, None, :]
    V /= np.sqrt(D)[:, None, :]
    V *= np.sqrt(w)[:, :, None]
    M = V @ V.swapaxes(1, 2)
    at = np.arange(len(T))
    M[:, at, at] += 1.0
    return np.log(D).sum(axis=1) + _of_roots(np.linalg.cholesky(M))


def _dense(w: Array, T: Array, D: Array) -> Array:
    """Return ln |cov| from the covariance itself, row by row in one table of parts: (row,)."""
    out = np.empty(len(w))
    at = np.arange(T.shape[1])
    for row in range(len(w)):
        apart = (T - w[row] @ T) * np.sqrt(w[row])[:, None]
        C = apart.T @ apart
        C[at, at] += D[row]
        out[row] = _of_roots(np.linalg.cholesky(C))
    return out


def _of_roots(lower: Array) -> Array:
    return 2.0 * np.log(np.diagonal(lower, axis1=-2, axis2=-1)).sum(axis=-1)


def _with_small(w: Array, T: Array, D: Array, small: Array) -> float:
    """Return ln |cov| of one row by the Schur complement of the labels that are not small."""
    U = ((T - w @ T) * np.sqrt(w)[:, None]).T
    big = U[~small] / np.sqrt(D[~small])[:, None]
    lower = np.linalg.cholesky(np.eye(len(T)) + big.T @ big)
    half = solve_triangular(lower, U[small].T, lower=True)
    rest = np.diag(D[small]) + half.T @ half
    own = rest.diagonal()
    if not own.all():
        return -np.inf
    values = np.linalg.eigvalsh(rest / np.sqrt(np.outer(own, own)))
    if values[0] <= SINGULAR * len(values):
        return -np.inf
    return float(np.log(D[~small]).sum() + _of_roots(lower) + np.log(own).sum() + np.log(values).sum())


def eta_at(labelled: int, eta0: float, eta_inf: float, decay: float = DECAY) -> float:
    """Return eta_inf + (eta0 - eta_inf) e^(-labelled / decay)."""
    return eta_inf + (eta0 - eta_inf) * float(np.exp(-labelled / decay))


def standardised(values: Array) -> Array:
    """Return z-scores over the pool; zeros where all values are alike: (row,)."""
    sd = values.std()
    return (values - values.mean()) / sd if sd > 1e-12 * max(np.abs(values).max(), 1e-300) else 0.0 * values


def read_mixture(problem: Problem, name: str) -> MixtureLaw:
    """Return the law of the pool rows, or raise ValueError where it does not fit the problem."""
    law = problem.need("mixture_law", name)
    if not isinstance(law, MixtureLaw):
        raise ValueError(f"mixture_law must be a MixtureLaw, got {type(law).__name__}")
    size = problem.get("X_pool").shape[0] if problem.has("X_pool") else law.shape[0]
    if size != law.shape[0]:
        raise ValueError(f"mixture_law has {law.shape[0]} rows, the pool has {size}")
    return law


def labelled_rows(problem: Problem, law: MixtureLaw) -> int:
    """Return how many rows have a known label: of the problem, or else those that the law was fitted on."""
    Y = problem.get("Y_labelled")
    if Y is None or not len(Y):
        return int(law.report.get("fitted_rows", 0))
    return int((~np.isnan(np.asarray(Y, float))).any(axis=1).sum())


def gp_b2m_with(
    *,
    eta0: Any = 10.0,
    eta_inf: Any = 1.0,
    decay: Any = DECAY,
    standardise: Any = False,
    eps: Any = EPS,
    name: Any = "gp_b2m",
) -> Acquisition:
    """Return ``gp_b2m`` with its numbers chosen by hand: ln |cov| + eta_t mean_k Var[pi_k].

    Parameters
    ----------
    eta0, eta_inf, decay : float
        eta_t = eta_inf + (eta0 - eta_inf) e^(-t / decay), t the rows that have labels so far, decay above 0;
        one number twice is a constant eta. eta at least 0.
    standardise : bool
        Bring both halves to mean 0 and standard deviation 1 over the pool first: ln |cov| grows with the
        labels, the variance is at most 1/4, so that otherwise eta means something else on each data set.
    eps : float
        Added to the variance of each label within a part, above 0.
    name : str

    Raises
    ------
    ValueError
        If a number is out of range.
    """
    first, last = _number(eta0, "eta0"), _number(eta_inf, "eta_inf")
    pace, added = _number(decay, "decay", above=True), _number(eps, "eps", above=True)
    if not isinstance(standardise, bool):
        raise ValueError(f"standardise must be True or False, got {standardise!r}")

    def score(problem: Problem) -> Array:
        law = read_mixture(problem, str(name))
        values, feature = _log_determinants(law, added), law.weight_variance
        if standardise:
            values, feature = standardised(values), standardised(feature)
        return values + eta_at(labelled_rows(problem, law), first, last, pace) * feature

    units = (
        "standard deviations over the pool" if standardise else "nats, twice those of a Gaussian's entropy"
    )
    return _entry(str(name), score, units=units, **(STANDARD if standardise else RAW))


def _number(value: Any, name: str, above: bool = False) -> float:
    number = real(value)
    if not (np.isfinite(number) and (number > 0 if above else number >= 0)):
        raise ValueError(
            f"{name} must be a finite number {'above' if above else 'of at least'} 0, got {value!r}"
        )
    return number


def _log_determinant_score(problem: Problem) -> Array:
    return _log_determinants(read_mixture(problem, "label_logdet"), EPS)


def _gate_score(problem: Problem) -> Array:
    return np.array(read_mixture(problem, "gate_variance").weight_variance)


def _entry(name: str, score: Callable[[Problem], Array], **words: Any) -> Acquisition:
    return Acquisition(name=name, query="row", needs=("mixture_law",), score=score, **{**SHARED, **words})


SHARED: dict[str, Any] = {
    "bias": "none in the covariance given the parts (variational factors or posterior draws); 1e-6 is added "
    "to each label's variance within a part; the determinant stands in for the labels' entropy, of which it "
    "sees second moments only",
    "cost": "labels part^2 flops a row, labels^2 part + labels^3 / 3 with more parts than labels (posterior "
    "draws); the gate's moments beside it",
    "source": "Shi, Yu and Yu 2021, eq. 13 and the sampling function of section 3.3",
}
RAW: dict[str, Any] = {
    "helps": "with a mixture of label patterns behind the gate; eta falls from 10 to 1 with the labelled "
    "rows, numbers that are ours: the paper gives none",
}
STANDARD: dict[str, Any] = {
    "helps": "as gp_b2m, both halves at one scale whatever the number of labels; eta falls from 1 to 0.1",
}

ENTRIES = (
    gp_b2m_with(),
    gp_b2m_with(eta0=1.0, eta_inf=0.1, standardise=True, name="gp_b2m_standardised"),
    _entry(
        "label_logdet",
        _log_determinant_score,
        units="nats, twice those of a Gaussian's entropy",
        helps="as the half of gp_b2m that reads labels (eta = 0): rows whose labels are least determined",
    ),
    _entry(
        "gate_variance",
        _gate_score,
        units="variance of a weight",
        bias="none under variational factors; over posterior draws labels of components that switch within a "
        "chain add to it",
        cost="of the gate's moments alone",
        helps="as the half of gp_b2m that reads features: rows far from all that is labelled",
    ),
)
