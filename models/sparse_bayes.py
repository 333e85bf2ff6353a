"""The sparse Bayesian multilabel model as NumPyro programs.

With features in F (row n is f_n), a projection Phi (measurement, labels) and real-valued labels y_n,

    w_j ~ Normal(0, I),   z_nj ~ Normal(f_n' w_j, sigma2),   Phi y_n ~ Normal(z_n, chi2),
    y_nl ~ Normal(0, 1 / alpha_nl),   alpha_nl ~ Gamma(a0, b0)

is a product of experts: y_n has two laws at once. Labels that are observed enter as data. W and Z integrate
to exp(-1/2 tr(Phi Y' C^-1 Y Phi')) with C = F F' + (sigma2 + chi2) I, so that only the sum of the two
variances is a parameter of what is left; alpha integrates to a Student t law.

The precision of an observed label is left out of all programs: given the label it is independent of
everything else, Gamma(a0 + 1/2, b0 + y^2 / 2). A "cell" is a pair (row, label) that is not observed.

The normaliser of the product depends on C, Phi, a0 and b0, so priors on these must not be added here: they
are chosen by the evidence of the fully observed rows (`labelzoo.inference.sparse_bayes.evidence`).

Kapoor, Viswanadham and Jain, NIPS 2012, section 3; Vasisht, Damianou, Varma and Kapoor, KDD 2014, sections 3
and 4, equations (1) to (4), with the corrections in docs/errata.md.
"""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular

Array = Any


def filled(Y: Array, cell_row: Array, cell_label: Array, y_unobserved: Array) -> Array:
    """Return the labels (obs, labels) with the cells at `y_unobserved` (cell,)."""
    return jnp.asarray(Y).at[cell_row, cell_label].set(y_unobserved)


def log_regression(T: Array, cholesky: Array) -> Array:
    """Return -1/2 tr(T' C^-1 T), T (obs, measurement), by a triangular solve with C's Cholesky factor."""
    return -0.5 * (solve_triangular(cholesky, T, lower=True) ** 2).sum()


def summed(
    projection: Array,
    Y: Array,
    cell_row: Array,
    cell_label: Array,
    cholesky: Array,
    precision_shape: Array,
    precision_rate: Array,
    **rest: Any,
) -> None:
    """The program with Z, W and alpha integrated out: what NUTS and SVI run.

    Parameters
    ----------
    projection : array (measurement, labels)
        Phi.
    Y : array (obs, labels)
        Labels of the graph's rows; what stands at the cells is not read.
    cell_row, cell_label : int array (cell,)
        The unobserved pairs, row by row.
    cholesky : array (obs, obs)
        Lower factor of C.
    precision_shape, precision_rate : float
        a0 and b0.
    **rest
        What other views and prediction need; not read here.
    """
    y = jnp.zeros(0)
    if cell_row.shape[0]:
        with numpyro.plate("cell", cell_row.shape[0]):
            scale = jnp.sqrt(precision_rate / precision_shape)
            y = numpyro.sample("y_unobserved", dist.StudentT(2.0 * precision_shape, 0.0, scale))
    T = filled(Y, cell_row, cell_label, y) @ projection.T
    numpyro.factor("regression", log_regression(T, cholesky))


def _cells(cell_row: Array, precision_shape: Array, precision_rate: Array) -> Array:
    """Sample precisions and labels of the cells; nothing where there are none."""
    if not cell_row.shape[0]:
        return jnp.zeros(0)
    with numpyro.plate("cell", cell_row.shape[0]):
        precision = numpyro.sample("precision", dist.Gamma(precision_shape, precision_rate))
        return numpyro.sample("y_unobserved", dist.Normal(0.0, precision**-0.5))


def precisions(
    projection: Array,
    Y: Array,
    cell_row: Array,
    cell_label: Array,
    cholesky: Array,
    precision_shape: Array,
    precision_rate: Array,
    **rest: Any,
) -> None:
    """The program with the precisions explicit, Z and W integrated out; arguments as in `summed`."""
    y = _cells(cell_row, precision_shape, precision_rate)
    T = filled(Y, cell_row, cell_label, y) @ projection.T
    numpyro.factor("regression", log_regression(T, cholesky))


def augmented(
    projection: Array,
    Y: Array,
    cell_row: Array,
    cell_label: Array,
    cholesky: Array,
    precision_shape: Array,
    precision_rate: Array,
    factor: Array,
    sigma2: Array,
    chi2: Array,
    **rest: Any,
) -> None:
    """The whole graph: ``weights``, ``compressed``, ``precision`` and ``y_unobserved``.

    Integrated over weights and compressed labels it is `precisions`, constants included: the factor carries
    (measurement / 2) (log|C| + obs log 2 pi).

    Parameters
    ----------
    factor : array (obs, component)
        F with F F' = C - (sigma2 + chi2) I, so that any kernel will do; where the kernel is linear, features
        times weights are F times these weights.
    sigma2, chi2 : float
        Noise of the regression and of the compression.
    """
    n, k = Y.shape[0], projection.shape[0]
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([factor.shape[1], k]).to_event(2))
    compressed = numpyro.sample("compressed", dist.Normal(factor @ weights, jnp.sqrt(sigma2)).to_event(2))
    y = _cells(cell_row, precision_shape, precision_rate)
    T = filled(Y, cell_row, cell_label, y) @ projection.T
    log_volume = 2.0 * jnp.log(jnp.diagonal(cholesky)).sum() + n * jnp.log(2.0 * jnp.pi)
    fit = dist.Normal(compressed, jnp.sqrt(chi2)).log_prob(T).sum()
    numpyro.factor("compression", fit + 0.5 * k * log_volume)
