"""Random Fourier features against the kernels that they are of."""

import gpflow.kernels as k
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep.functions.spectral import draw_prior, terms_of
from tests.statistical import assert_mean_close

KERNELS = {
    "squared exponential": lambda: k.SquaredExponential(variance=1.7, lengthscales=[0.7, 2.0]),
    "matern12": lambda: k.Matern12(lengthscales=1.5),
    "matern32": lambda: k.Matern32(variance=0.6, lengthscales=[1.0, 3.0]),
    "matern52": lambda: k.Matern52(active_dims=[1], lengthscales=0.8),
    "exponential": lambda: k.Exponential(lengthscales=0.7, active_dims=slice(0, 1)),
    "rational quadratic": lambda: k.RationalQuadratic(alpha=0.6, lengthscales=[1.2, 0.9]),
    "cosine": lambda: k.Cosine(lengthscales=[3.0, 5.0]),
    "product": lambda: k.Matern32(active_dims=[1], variance=2.0) * k.SquaredExponential(lengthscales=[0.9, 1.4]),
    "sums in a product": lambda: (k.Matern52(active_dims=[0]) + k.Constant(0.4)) * (k.Cosine() + k.Constant(0.3)),
}
INPUTS = np.array([[0.0, 0.0], [0.3, -0.2], [-0.5, 0.9], [1.4, 1.1]])


@pytest.mark.parametrize("name", KERNELS)
def test_mean_of_the_features_products_is_the_kernel(name: str, seed: tf.Tensor) -> None:
    """Over the weights: the mean over the frequencies of `variance cos(omega (x - x'))`, of 4096 shifted Sobol points:
    by their number alone an error below 4096^-1/2 = 0.016 of the variance, whatever they do together."""
    kernel = KERNELS[name]()
    prior, terms = draw_prior(kernel, 2, 1, 1, 8192, seed), terms_of(kernel)
    differences = INPUTS[:, None] - INPUTS[None]  # [4, 4, 2]
    stationary = [term for term in terms if term.factors]
    assert len(prior.frequencies) == len(stationary)
    found = np.full((4, 4), float(sum(term.variance for term in terms if not term.factors)))
    for term, omega in zip(stationary, prior.frequencies, strict=True):
        found += float(term.variance) * np.cos(differences @ omega.numpy()[0].T).mean(axis=-1)
    expected = kernel(tf.constant(INPUTS)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.016 * expected[0, 0])
    np.testing.assert_allclose(np.diag(found), np.diag(expected), rtol=1e-12)


@pytest.mark.parametrize("num_features", [2, 64])
def test_covariance_of_draws_is_exact_for_any_number_of_features(num_features: int, seed: tf.Tensor) -> None:
    kernel = k.Matern32(lengthscales=0.8) + k.Linear(variance=[0.5, 0.2]) + k.Constant(0.3) + k.White(0.2)
    prior = draw_prior(kernel, 2, 6000, 2, num_features, seed)
    draws = prior(tf.constant(INPUTS)).numpy()  # [S, 4, 2]
    expected = kernel(tf.constant(INPUTS)).numpy() - 0.2 * np.eye(4)
    np.testing.assert_allclose(prior.noise_variance, 0.2)
    for output in range(2):
        products = draws[:, :, None, output] * draws[:, None, :, output]
        assert_mean_close(products, expected, min_detectable=0.4)
    assert_mean_close(draws[:, :, 0] * draws[:, :, 1], 0.0, min_detectable=0.4)


def test_inputs_of_each_function(rng: np.random.Generator, seed: tf.Tensor) -> None:
    prior = draw_prior(k.SquaredExponential() + k.Linear() + k.Constant(), 2, 3, 2, 8, seed)
    X = rng.standard_normal((3, 5, 2))
    expected = np.stack([prior(tf.constant(X[s])).numpy()[s] for s in range(3)])
    np.testing.assert_allclose(prior(tf.constant(X)), expected, rtol=1e-12)


class Own(k.SquaredExponential):
    """A kernel that might be anything."""


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (k.Periodic(k.SquaredExponential()), "got Periodic; use predict_f_samples"),
        (k.ArcCosine(), "got ArcCosine"),
        (k.SquaredExponential() + k.Polynomial(), "got Polynomial"),
        (k.ChangePoints([k.Matern12(), k.Matern12()], [0.0]), "got ChangePoints"),
        (Own(), "got Own"),
        (k.Linear() * k.SquaredExponential(), "got a product with Linear"),
        (k.Linear() * k.White(), "got a product of Linear and White"),
    ],
)
def test_other_kernels_are_refused_by_name(kernel: k.Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        terms_of(kernel)
