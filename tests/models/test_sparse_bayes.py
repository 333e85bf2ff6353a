"""The programs of sparse_bayes against their formulas: views, constants, and graphs without a cell."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy.stats import gamma, multivariate_normal, norm, t

from labelzoo.data import LabelData
from labelzoo.inference.reference.sites import find_sites
from labelzoo.models.sparse_bayes import augmented, precisions, summed
from labelzoo.models.sparse_bayes_card import spec

RNG = np.random.default_rng(5)
X = RNG.standard_normal((5, 2))
Y = (RNG.random((5, 4)) < 0.5).astype(float)
Y[0, 1] = Y[2, 0] = Y[2, 3] = Y[4, 2] = np.nan


def inputs(table: np.ndarray = Y, **settings: Any) -> dict[str, Any]:
    with jax.enable_x64(True):
        return spec.prepare(LabelData(X, table), spec.resolve({"hyperparameters": "fixed", **settings}))


def log_p(view: Any, given: dict[str, Any], **state: Any) -> float:
    with jax.enable_x64(True):
        values = {name: jnp.asarray(value) for name, value in state.items()}
        return float(log_density(view, (), given, values)[0])


def regression(given: dict[str, Any], y: np.ndarray) -> float:
    """-1/2 vec(Y)' (C^-1 kron Phi'Phi) vec(Y), the big matrix formed."""
    C, Phi = given["cholesky"] @ given["cholesky"].T, given["projection"]
    whole = np.array(given["Y"])
    whole[given["cell_row"], given["cell_label"]] = y
    return float(-0.5 * whole.ravel() @ np.kron(np.linalg.inv(C), Phi.T @ Phi) @ whole.ravel())


def test_summed_is_the_student_prior_and_the_quadratic_form() -> None:
    given = inputs(precision_shape=1.7, precision_rate=0.6)
    for scale in (0.1, 1.0, 4.0):
        y = scale * RNG.standard_normal(4)
        prior = t.logpdf(y, 2 * 1.7, scale=np.sqrt(0.6 / 1.7)).sum()
        assert log_p(summed, given, y_unobserved=y) == pytest.approx(prior + regression(given, y), rel=1e-10)


def test_precisions_are_gamma_and_labels_normal_given_them() -> None:
    given, alpha, y = inputs(), RNG.gamma(1.0, 1.0, 4), RNG.standard_normal(4)
    prior = gamma.logpdf(alpha, 0.5, scale=2.0).sum() + norm.logpdf(y, scale=alpha**-0.5).sum()
    found = log_p(precisions, given, y_unobserved=y, precision=alpha)
    assert found == pytest.approx(prior + regression(given, y), rel=1e-10)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_augmented_integrates_to_precisions_constants_included(kernel: str) -> None:
    """Integrate the Gaussian in (W, Z) by its value and Hessian at the mode, which is exact."""
    given = inputs(kernel=kernel, noise=0.4, scale=0.7, noise_share=0.3)
    alpha, y = RNG.gamma(1.0, 1.0, 4), RNG.standard_normal(4)
    c, k, n = given["factor"].shape[1], given["projection"].shape[0], 5

    def joint(flat: Any) -> Any:
        state = {
            "weights": flat[: c * k].reshape(c, k),
            "compressed": flat[c * k :].reshape(n, k),
            "precision": jnp.asarray(alpha),
            "y_unobserved": jnp.asarray(y),
        }
        return log_density(augmented, (), given, state)[0]

    with jax.enable_x64(True):
        zero = jnp.zeros(c * k + n * k)
        both = jax.jit(lambda at: (jax.hessian(joint)(at), jax.grad(joint)(at)))(zero)
        hessian, slope = (np.asarray(part) for part in both)
        mode = -np.linalg.solve(hessian, slope)
        top = float(joint(jnp.asarray(mode)))
    integral = top + 0.5 * len(mode) * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(-hessian)[1]
    assert integral == pytest.approx(log_p(precisions, given, y_unobserved=y, precision=alpha), rel=1e-8)


def test_compressed_labels_have_the_law_of_a_gaussian_process() -> None:
    """With W and Z out the columns of Phi Y' meet N(0, C) up to its normaliser."""
    given, y = inputs(), RNG.standard_normal(4)
    C, Phi = given["cholesky"] @ given["cholesky"].T, given["projection"]
    whole = np.array(given["Y"])
    whole[given["cell_row"], given["cell_label"]] = y
    log_law = multivariate_normal(np.zeros(5), C).logpdf((whole @ Phi.T).T).sum()
    top = multivariate_normal(np.zeros(5), C).logpdf(np.zeros(5)) * len(Phi)
    assert regression(given, y) == pytest.approx(log_law - top, rel=1e-9)


def test_values_at_the_cells_are_not_read() -> None:
    given, y = inputs(), RNG.standard_normal(4)
    other = np.array(given["Y"])
    other[given["cell_row"], given["cell_label"]] = 9.0
    changed = {**given, "Y": other}
    assert log_p(summed, given, y_unobserved=y) == log_p(summed, changed, y_unobserved=y)


def test_a_graph_without_cells_has_no_latent_site() -> None:
    complete = inputs(np.nan_to_num(Y))
    with pytest.raises(ValueError, match="no latent site with these data and settings"):
        find_sites(spec, complete)
    assert log_p(summed, complete) == pytest.approx(regression(complete, np.zeros(0)), rel=1e-10)


def test_functionals_are_the_labels_and_the_pieces_of_the_density() -> None:
    given, y = inputs(), RNG.standard_normal(4)
    with jax.enable_x64(True):
        found = {
            k: np.asarray(v) for k, v in spec.functionals({"y_unobserved": jnp.asarray(y)}, given).items()
        }
    np.testing.assert_array_equal(found["y_unobserved"], y)
    np.testing.assert_allclose(found["label_mean"], y[[1, 0, 3, 2]], rtol=1e-12)
    whole = found["log_regression"] + found["log_prior"]
    assert whole == pytest.approx(log_p(summed, given, y_unobserved=y), rel=1e-10)
