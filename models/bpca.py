"""Bayesian principal components of compressed labels as NumPyro programs.

Row n of the labels is compressed to r_n = A y_n, with A (measurement, labels) drawn once, and

    alpha_i ~ Gamma(a, b),   tau ~ Gamma(c, d),   mu ~ Normal(0, I / beta),
    w_i ~ Normal(0, I / alpha_i),   u_n ~ Normal(0, I),   r_n ~ Normal(W u_n + mu, I / tau)

where w_i is column i of W. A large alpha_i switches a column off (automatic relevance determination). With U
integrated out the rows are Normal(mu, C), C = W W' + I / tau. The posterior is symmetric under signs and
permutations of the columns, so verdicts are reached on C and its like alone.

What is modelled is the compressed row, a vector of real numbers, and not the labels: the program reads no
feature, cannot simulate labels, and how it predicts is a stated rule (`labelzoo.models.bpca_card.predict`).

Shi and Yu, "Fast direct search in an optimally compressed continuous target space for efficient multi-label
active learning", ICML 2019, section 3, with the priors of Bishop, "Variational principal components", ICANN
1999, equations (3) to (7).
"""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

Array = Any


def sample_parameters(
    num_measurements: int,
    num_components: int,
    precision_shape: Array,
    precision_rate: Array,
    noise_shape: Array,
    noise_rate: Array,
    mean_precision: Array,
) -> tuple[Array, Array, Array]:
    """Sample alpha (component,), tau and mu (measurement,)."""
    prior = dist.Gamma(precision_shape, precision_rate).expand([num_components])
    precision = numpyro.sample("precision", prior.to_event(1))
    noise_precision = numpyro.sample("noise_precision", dist.Gamma(noise_shape, noise_rate))
    center = dist.Normal(0.0, mean_precision**-0.5).expand([num_measurements])
    mean = numpyro.sample("mean", center.to_event(1))
    return precision, noise_precision, mean


def observe_rows(compressed: Array, loadings: Array, mean: Array, noise_precision: Array) -> None:
    """Observe the rows, Normal(mu, W W' + I / tau)."""
    diagonal = jnp.full(compressed.shape[1], 1.0) / noise_precision
    with numpyro.plate("graph", compressed.shape[0]):
        numpyro.sample("compressed", dist.LowRankMultivariateNormal(mean, loadings, diagonal), obs=compressed)


def summed(
    compressed: Array,
    num_components: int,
    precision_shape: Array,
    precision_rate: Array,
    noise_shape: Array,
    noise_rate: Array,
    mean_precision: Array,
    **rest: Any,
) -> None:
    """The program with U integrated out and W = V / alpha^(1/2): what NUTS and SVI run.

    Parameters
    ----------
    compressed : array (graph, measurement)
        r_n of the rows with all labels observed, scaled.
    num_components : int
    precision_shape, precision_rate : float
        a and b.
    noise_shape, noise_rate : float
        c and d.
    mean_precision : float
        beta.
    **rest
        What updates and prediction need; not read here.
    """
    d = compressed.shape[1]
    hyper = (precision_shape, precision_rate, noise_shape, noise_rate, mean_precision)
    precision, noise_precision, mean = sample_parameters(d, num_components, *hyper)
    white = dist.Normal(0.0, 1.0).expand([d, num_components]).to_event(2)
    V = numpyro.sample("loadings_white", white)
    loadings = numpyro.deterministic("loadings", V / jnp.sqrt(precision))
    observe_rows(compressed, loadings, mean, noise_precision)


def _loadings(num_measurements: int, num_components: int, precision: Array) -> Array:
    """Sample W (measurement, component), column i Normal(0, I / alpha_i)."""
    shape = (num_measurements, num_components)
    return numpyro.sample("loadings", dist.Normal(0.0, precision**-0.5).expand(shape).to_event(2))


def centred(
    compressed: Array,
    num_components: int,
    precision_shape: Array,
    precision_rate: Array,
    noise_shape: Array,
    noise_rate: Array,
    mean_precision: Array,
    **rest: Any,
) -> None:
    """The program with U integrated out and W itself a site; arguments as in `summed`."""
    d = compressed.shape[1]
    hyper = (precision_shape, precision_rate, noise_shape, noise_rate, mean_precision)
    precision, noise_precision, mean = sample_parameters(d, num_components, *hyper)
    loadings = _loadings(d, num_components, precision)
    observe_rows(compressed, loadings, mean, noise_precision)


def augmented(
    compressed: Array,
    num_components: int,
    precision_shape: Array,
    precision_rate: Array,
    noise_shape: Array,
    noise_rate: Array,
    mean_precision: Array,
    **rest: Any,
) -> None:
    """The whole program: U (graph, component) is the site ``scores``; arguments as in `summed`."""
    m, d = compressed.shape
    hyper = (precision_shape, precision_rate, noise_shape, noise_rate, mean_precision)
    precision, noise_precision, mean = sample_parameters(d, num_components, *hyper)
    loadings = _loadings(d, num_components, precision)
    scores = numpyro.sample("scores", dist.Normal(0.0, 1.0).expand([m, num_components]).to_event(2))
    law = dist.Normal(mean + scores @ loadings.T, noise_precision**-0.5)
    numpyro.sample("compressed", law.to_event(2), obs=compressed)


def stretched(
    compressed: Array,
    num_components: int,
    precision_shape: Array,
    precision_rate: Array,
    noise_shape: Array,
    noise_rate: Array,
    mean_precision: Array,
    **rest: Any,
) -> None:
    """`augmented` with the size s_i = norm(column i of U)^2 apart from everything that it scales.

    Sites: ``score_size`` s; ``white``, of which only the direction of each column counts, so that column i
    of U is s_i^(1/2) times it; ``scaled_loadings`` w_i s_i^(1/2) and ``scaled_precision`` alpha_i / s_i. The
    fit depends on directions and scaled loadings alone. Arguments as in `summed`.
    """
    m, d = compressed.shape
    noise_precision = numpyro.sample("noise_precision", dist.Gamma(noise_shape, noise_rate))
    center = dist.Normal(0.0, mean_precision**-0.5).expand([d])
    mean = numpyro.sample("mean", center.to_event(1))
    size = numpyro.sample("score_size", dist.Gamma(0.5 * m, 0.5).expand([num_components]).to_event(1))
    prior = dist.Gamma(precision_shape, precision_rate * size)
    scaled_precision = numpyro.sample("scaled_precision", prior.to_event(1))
    columns = dist.Normal(0.0, scaled_precision**-0.5).expand([d, num_components])
    scaled_loadings = numpyro.sample("scaled_loadings", columns.to_event(2))
    white = numpyro.sample("white", dist.Normal(0.0, 1.0).expand([m, num_components]).to_event(2))
    directions = white / jnp.linalg.norm(white, axis=0)
    law = dist.Normal(mean + directions @ scaled_loadings.T, noise_precision**-0.5)
    numpyro.sample("compressed", law.to_event(2), obs=compressed)
