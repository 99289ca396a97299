"""A Bayesian linear layer against the closed form of Bayesian linear regression."""

import gpflow
import numpy as np
import pytest
from gpflow.utilities import set_trainable
from scipy.stats import multivariate_normal

from gpflow_deep import BayesianLinearLayer, DeepGP, SVGPLayer


def test_best_posterior_is_that_of_bayesian_linear_regression(rng: np.random.Generator) -> None:
    """One natural gradient step of size 1 makes the bound log N(y; 0, v (X X' + 1) + s I), and predictions follow."""
    X, v, s = rng.standard_normal((12, 3)), 0.7, 0.2
    Y = X @ [[1.0], [-2.0], [0.3]] + 0.5 + 0.3 * rng.standard_normal((12, 1))
    layer = BayesianLinearLayer(3, 1, variance=v)
    model = DeepGP([layer], gpflow.likelihoods.Gaussian(s), num_data=12)
    for part in (layer.q_mu, layer.q_sqrt):
        set_trainable(part, False)
    closure = model.training_loss_closure((X, Y))
    gpflow.optimizers.NaturalGradient(gamma=1.0).minimize(closure, [(layer.q_mu, layer.q_sqrt)])
    wide = np.concatenate([X, np.ones((12, 1))], axis=1)
    cov = v * wide @ wide.T + s * np.eye(12)
    np.testing.assert_allclose(model.elbo((X, Y)), multivariate_normal(np.zeros(12), cov).logpdf(Y[:, 0]), rtol=1e-8)
    new = np.concatenate([rng.standard_normal((4, 3)), np.ones((4, 1))], axis=1)
    A = np.linalg.solve(cov, v * wide @ new.T)
    mean, covariance = model.predict_f(new[:, :3], full_cov=True)
    np.testing.assert_allclose(mean, A.T @ Y, rtol=1e-8)
    np.testing.assert_allclose(covariance[0], v * new @ new.T - v * new @ wide.T @ A, rtol=1e-6, atol=1e-9)


def test_it_is_a_gp_with_a_linear_kernel(rng: np.random.Generator) -> None:
    """At D + 1 inducing inputs the GP says the same: with q(u) of the same weights, K = v (X X' + 1)."""
    layer = BayesianLinearLayer(2, 1, variance=0.6)
    layer.q_mu.assign(rng.standard_normal((3, 1)))
    layer.q_sqrt.assign(np.linalg.cholesky(np.cov(rng.standard_normal((3, 20))))[None])
    Z = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]])
    root = np.sqrt(0.6) * np.concatenate([Z, np.ones((3, 1))], axis=1)  # u = root V
    kernel = gpflow.kernels.Linear(variance=0.6) + gpflow.kernels.Constant(variance=0.6)
    q_sqrt = np.linalg.cholesky(root @ layer.q_sqrt[0] @ np.transpose(layer.q_sqrt[0]) @ root.T)[None]
    gp = SVGPLayer(kernel, Z, q_mu=root @ layer.q_mu, q_sqrt=q_sqrt, whiten=False)
    X = rng.standard_normal((5, 2))
    mean, cov = layer.outputs(X, layer.latent_moments(X, layer.factors(), full_cov=True), full_cov=True)
    expected_mean, expected_cov = gp.predict(X, full_cov=True)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-4)  # the GP has a jitter of 1e-6
    np.testing.assert_allclose(cov, expected_cov, atol=1e-4)
    np.testing.assert_allclose(layer.prior_kl(), gp.prior_kl(), atol=1e-3)


def test_start(rng: np.random.Generator) -> None:
    """At the prior; or with `q_sqrt_scale` near the mean, whose KL from the prior is known."""
    np.testing.assert_allclose(BayesianLinearLayer(4, 2).prior_kl(), 0.0, atol=1e-12)
    narrow = BayesianLinearLayer(4, 2, q_sqrt_scale=1e-3)
    np.testing.assert_allclose(narrow.prior_kl(), 10 * (0.5e-6 - 0.5 - np.log(1e-3)), rtol=1e-9)
    with pytest.raises(ValueError, match=r"variance and q_sqrt_scale must be positive, got 1\.0 and 0\.0"):
        BayesianLinearLayer(4, 2, q_sqrt_scale=0.0)
    with pytest.raises(ValueError, match="output_dim must be at least 1, got 0"):
        BayesianLinearLayer(4, 0)
