import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf
from scipy import stats

from ebp.network.forward import Layer, forward, layer_covariance, layer_inputs, product, sign_covariance, sign_mean
from ebp.network.network import EBPNetwork
from ebp.network.posterior import BinaryWeights, FiniteSetWeights, TernaryWeights, WeightPrior
from tests.ebp import oracles
from tests.statistical import assert_mean_close

PRIORS: dict[str, WeightPrior] = {
    "binary": BinaryWeights(),
    "ternary": TernaryWeights(nu=0.6),
    "levels": FiniteSetWeights((-2, -0.5, 1), (0.0, 0.4, -0.3)),
}


@pytest.mark.parametrize(("name", "n_in"), [("binary", 12), ("ternary", 7), ("levels", 7)])
@pytest.mark.parametrize("for_xla", [False, True])
def test_first_layer_moments_by_enumeration(name: str, n_in: int, for_xla: bool, rng: np.random.Generator) -> None:
    """Eqs. (4.1) and (4.2) are exact in the first layer: only the sum's order and var_from_mean's floor differ."""
    h, x, b = rng.normal(size=(n_in, 3)), rng.normal(size=n_in), rng.normal(size=3)
    prior, H = PRIORS[name], tf.constant(h)
    mean = prior.mean(H)
    mu, sigma2 = layer_inputs(
        tf.constant(x[None]), mean, prior.var(H), tf.constant(b), fan_in=n_in + 1, is_first=True, for_xla=for_xla
    )
    exact = [oracles.input_moments(x, h[:, k], b[k], oracles.VALUES[name]) for k in range(3)]
    np.testing.assert_allclose(mu[0], [one[0] for one in exact], rtol=0, atol=1e-12)
    np.testing.assert_allclose(sigma2[0], [one[1] for one in exact], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "n_in"), [("binary", 6), ("ternary", 5), ("levels", 5)])
@pytest.mark.parametrize("for_xla", [False, True])
def test_later_layer_moments_by_enumeration(name: str, n_in: int, for_xla: bool, rng: np.random.Generator) -> None:
    h, v, b = rng.normal(size=(n_in, 2)), rng.uniform(-1, 1, size=n_in), rng.normal(size=2)
    prior, H = PRIORS[name], tf.constant(h)
    mu, sigma2 = layer_inputs(
        tf.constant(v[None]),
        prior.mean(H),
        prior.var(H),
        tf.constant(b),
        fan_in=n_in + 1,
        is_first=False,
        for_xla=for_xla,
    )
    exact = [oracles.hidden_moments(v, h[:, k], b[k], oracles.VALUES[name]) for k in range(2)]
    np.testing.assert_allclose(mu[0], [one[0] for one in exact], rtol=0, atol=1e-12)
    np.testing.assert_allclose(sigma2[0], [one[1] for one in exact], rtol=0, atol=1e-12)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("for_xla", [True, False])
def test_a_scalar_variance_is_that_of_every_weight(is_first: bool, for_xla: bool, rng: np.random.Generator) -> None:
    v, mean = tf.constant(rng.uniform(-1, 1, (1, 70))), tf.constant(rng.normal(size=(70, 3)))
    options: dict[str, Any] = {"fan_in": 71, "is_first": is_first, "for_xla": for_xla}
    one = layer_inputs(v, mean, tf.constant(0.25, tf.float64), None, **options)
    all_equal = layer_inputs(v, mean, tf.fill([70, 3], tf.constant(0.25, tf.float64)), None, **options)
    np.testing.assert_allclose(one[1], all_equal[1], rtol=1e-13)


def test_sparse_rows_equal_dense_rows(rng: np.random.Generator) -> None:
    X = rng.normal(size=(5, 8)) * (rng.random((5, 8)) < 0.4)
    X[2] = 0.0
    sparse = tf.sparse.from_dense(X)
    mean, var = tf.constant(rng.normal(size=(8, 3))), tf.constant(rng.random((8, 3)))
    for dense_part, sparse_part in zip(
        layer_inputs(tf.constant(X), mean, var, None, fan_in=9, is_first=True),
        layer_inputs(sparse, mean, var, None, fan_in=9, is_first=True),
        strict=True,
    ):
        np.testing.assert_allclose(sparse_part, dense_part, rtol=1e-13, atol=1e-300)
    delta = tf.constant(rng.normal(size=(5, 2)))
    np.testing.assert_allclose(
        product(sparse, delta, transpose_v=True), scipy.sparse.csr_matrix(X).T @ delta, rtol=1e-13
    )


def test_mean_of_a_sign() -> None:
    mu, sigma2 = np.array([-3.0, 0.0, 0.4]), np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(
        sign_mean(tf.constant(mu), tf.constant(sigma2)), 2 * stats.norm.cdf(mu / np.sqrt(sigma2)) - 1, atol=1e-15
    )


@pytest.mark.parametrize("rho", [-0.9, -0.3, 0.0, 0.5, 0.9])
def test_covariance_of_two_signs(rho: float) -> None:
    """Against SciPy's bivariate normal: E[sign sign'] = 1 - 2 P(the signs differ). SciPy's error is about 1e-8."""
    mu, scale = np.array([0.3, -1.1]), np.array([0.7, 2.0])
    sigma = np.array([[1.0, rho], [rho, 1.0]]) * np.outer(scale, scale)
    both = stats.multivariate_normal(mu, sigma).cdf(np.zeros(2))  # both negative
    first, second = stats.norm.cdf(-mu / scale)
    exact = 1 - 2 * (first + second - 2 * both) - (1 - 2 * first) * (1 - 2 * second)
    result = sign_covariance(tf.constant(mu[None]), tf.constant(sigma[None]))[0]
    np.testing.assert_allclose(result[0, 1], exact, atol=2e-7)
    np.testing.assert_allclose(tf.linalg.diag_part(result), 1 - (1 - 2 * np.array([first, second])) ** 2, rtol=1e-12)


def test_centred_signs_have_the_arcsine_law() -> None:
    rho = np.array([-0.8, 0.1, 0.6])
    sigma = np.stack([np.array([[1.0, r], [r, 1.0]]) for r in rho])
    result = sign_covariance(tf.zeros([3, 2], tf.float64), tf.constant(sigma))
    np.testing.assert_allclose(result[:, 0, 1], 2 / np.pi * np.arcsin(rho), rtol=1e-12)


def test_covariance_of_layer_inputs_from_draws(rng: np.random.Generator) -> None:
    """Cov(u) for given dependent signs v: v = +-z for one common fair sign z, so Cov(v) has entries +-1."""
    pattern, n_out, draws = np.array([1.0, -1.0, 1.0, 1.0]), 3, 200_000
    h = rng.normal(size=(4, n_out))
    prior, H = BinaryWeights(), tf.constant(h)
    result = layer_covariance(
        tf.constant(np.outer(pattern, pattern)[None]), prior.mean(H), prior.var(H), fan_in=5, has_bias=True
    )
    W = np.where(rng.random((draws, 4, n_out)) < 1 / (1 + np.exp(-2 * h)), 1.0, -1.0)
    u = rng.choice([-1.0, 1.0], (draws, 1)) * np.einsum("j,sjk->sk", pattern, W) + rng.normal(size=(draws, n_out))
    u /= math.sqrt(5)
    assert_mean_close(u[:, :, None] * u[:, None, :], result[0], min_detectable=0.03)


def layers_of(covariance: str, X: np.ndarray, h: list[np.ndarray], b: list[np.ndarray]) -> list[Layer]:
    """The forward pass of a network of binary weights."""
    sizes = (len(h[0]), *(h_l.shape[1] for h_l in h))
    architecture = EBPNetwork(sizes, covariance=covariance, dtype=tf.float64).architecture
    H = [tf.constant(h_l) for h_l in h]
    variances = [BinaryWeights().var(h_l) for h_l in H]
    return forward(architecture, tf.constant(X), architecture.means(H), variances, [tf.constant(b_l) for b_l in b])


def test_full_covariance_changes_nothing_for_two_layers_and_one_output(rng: np.random.Generator) -> None:
    """The first layer's inputs are independent, so the second layer's marginals are the same (Sec. 3.4)."""
    h = [rng.normal(size=shape) for shape in ((6, 5), (5, 1))]
    b = [rng.normal(size=size) for size in (5, 1)]
    X = rng.normal(size=(4, 6))
    for one, other in zip(*(layers_of(kind, X, h, b) for kind in ("diagonal", "full")), strict=True):
        np.testing.assert_allclose(one.mu, other.mu, rtol=1e-12)
        np.testing.assert_allclose(one.sigma2, other.sigma2, rtol=1e-12)


def test_full_covariance_is_nearer_to_sampled_networks(rng: np.random.Generator) -> None:
    """Three layers: the variance of the last input, from sampled weights, is the full covariance's up to the CLT.

    Weights of the second layer with a common mean make its neurons agree, which the diagonal form misses.
    """
    sizes, draws = (40, 30, 30, 1), 20_000
    h = [rng.normal(size=(40, 30)) * 0.1, 0.6 + np.zeros((30, 30)), 0.6 + np.zeros((30, 1))]
    x = rng.normal(size=40)
    b = [np.zeros(size) for size in sizes[1:]]
    variance = {kind: float(layers_of(kind, x[None], h, b)[-1].sigma2[0, 0]) for kind in ("diagonal", "full")}
    u = np.empty(draws)
    for i in range(draws):
        v = x
        for layer, h_l in enumerate(h):
            W = np.where(rng.random(h_l.shape) < 1 / (1 + np.exp(-2 * h_l)), 1.0, -1.0)
            u_l = (v @ W + rng.normal(size=h_l.shape[1])) / math.sqrt(len(v) + 1)
            v = np.where(u_l >= 0, 1.0, -1.0)
            if layer == 2:
                u[i] = u_l[0]
    sampled = np.var(u)
    assert variance["full"] == pytest.approx(sampled, rel=0.1)
    assert variance["diagonal"] < 0.6 * sampled


def test_an_empty_row_without_bias_has_sign_zero() -> None:
    mu, sigma2 = layer_inputs(
        tf.zeros([1, 4]), tf.ones([4, 2]) * 0.5, tf.ones([4, 2]) * 0.75, None, fan_in=4, is_first=True
    )
    np.testing.assert_array_equal(sign_mean(mu, sigma2), np.zeros((1, 2)))
