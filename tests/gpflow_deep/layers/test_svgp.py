"""`SVGPLayer` against plain NumPy and against GPflow's own conditionals."""

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.conditionals import conditional

from gpflow_deep import SVGPLayer
from gpflow_deep.layers import CachedFactors, CachedForms
from gpflow_deep.layers.svgp import FAST_CONDITION_LIMIT
from tests.gpflow_deep import oracles
from tests.gpflow_deep.builders import COVARIANCE_SHAPES, make_layer, random_kernel, random_q, spread_inputs
from tests.statistical import assert_mean_close

# Kuu has a condition number below about 1e4 here, so that two formulas for one float64 number agree to about
# 1e4 * 2e-16 times a few tens of operations.
RTOL, ATOL = 1e-9, 1e-10


def diagonal(cov: np.ndarray) -> np.ndarray:
    """[P, N, N] -> [N, P]."""
    return np.diagonal(cov, axis1=1, axis2=2).T


def zoo(rng: np.random.Generator, name: str, whiten: bool = True) -> SVGPLayer:
    """Layers with three inputs and every supported combination of kernels and inducing variables."""
    D, M, L = 3, 5, 2
    Zs = [spread_inputs(rng, M, D) for _ in range(L)]
    kernels = [random_kernel(rng, D) for _ in range(L)]
    shared_Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(Zs[0])
    )
    separate_Z = gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [gpflow.inducing_variables.InducingPoints(Z) for Z in Zs]
    )
    W = rng.standard_normal((3, L))
    combinations: dict[str, tuple[gpflow.kernels.Kernel, Any]] = {
        "plain": (kernels[0], Zs[0]),
        "shared": (gpflow.kernels.SharedIndependent(kernels[0], L), shared_Z),
        "separate kernels": (gpflow.kernels.SeparateIndependent(kernels), shared_Z),
        "separate Z": (gpflow.kernels.SharedIndependent(kernels[0], L), separate_Z),
        "both separate": (gpflow.kernels.SeparateIndependent(kernels), separate_Z),
        "mixed": (gpflow.kernels.LinearCoregionalization(kernels, W=W), shared_Z),
        "mixed, separate Z": (gpflow.kernels.LinearCoregionalization(kernels, W=W), separate_Z),
    }
    kernel, Z = combinations[name]
    return make_layer(rng, D, L, M, kernel=kernel, Z=Z, whiten=whiten)


ZOO = ["plain", "shared", "separate kernels", "separate Z", "both separate", "mixed", "mixed, separate Z"]


# Prediction against NumPy.


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("q_diag", [False, True])
@pytest.mark.parametrize("noise_variance", [None, 0.3])
def test_marginals_are_the_formula(
    rng: np.random.Generator, whiten: bool, q_diag: bool, noise_variance: float | None
) -> None:
    mean_function = gpflow.mean_functions.Linear(A=rng.standard_normal((2, 3)), b=rng.standard_normal(3))
    layer = make_layer(
        rng, 2, 3, whiten=whiten, q_diag=q_diag, noise_variance=noise_variance, mean_function=mean_function
    )
    X = rng.uniform(-2, 2, (7, 2))
    expected_mean, expected_var = oracles.Layer(layer).marginals(X)
    mean, var = layer.predict(X)
    np.testing.assert_allclose(mean, expected_mean, rtol=RTOL, atol=ATOL)
    np.testing.assert_allclose(var, expected_var, rtol=RTOL, atol=ATOL)
    _, cov = layer.predict(X, full_cov=True)
    np.testing.assert_allclose(cov, oracles.Layer(layer).latent(X)[1], rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("name", ["separate kernels", "separate Z", "both separate"])
def test_separate_outputs_are_separate_gps(rng: np.random.Generator, name: str, whiten: bool) -> None:
    layer = zoo(rng, name, whiten)
    X = rng.uniform(-2, 2, (4, 3))
    expected_mean, expected_var = oracles.Layer(layer).marginals(X)
    mean, var = layer.predict(X)
    np.testing.assert_allclose(mean, expected_mean, rtol=RTOL, atol=ATOL)
    np.testing.assert_allclose(var, expected_var, rtol=RTOL, atol=ATOL)
    np.testing.assert_allclose(layer.prior_kl(), oracles.Layer(layer).prior_kl(), rtol=1e-9)


@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("q_diag", [False, True])
def test_prior_kl_is_the_formula(rng: np.random.Generator, whiten: bool, q_diag: bool) -> None:
    layer = make_layer(rng, 2, 3, whiten=whiten, q_diag=q_diag, noise_variance=0.05)
    np.testing.assert_allclose(layer.prior_kl(), oracles.Layer(layer).prior_kl(), rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "full_cov", "full_output_cov"),
    [(name, *shape) for name in ZOO for shape in COVARIANCE_SHAPES if "separate Z" not in name or shape[0] == shape[1]],
)
def test_predict_is_gpflows_conditional(
    rng: np.random.Generator, name: str, full_cov: bool, full_output_cov: bool
) -> None:
    whiten = full_cov == full_output_cov  # the NumPy tests above and the model's have the other halves
    layer = zoo(rng, name, whiten)
    X = rng.uniform(-2, 2, (4, 3))
    expected = conditional(
        tf.constant(X),
        layer.inducing_variable,
        layer.kernel,
        layer.q_mu,
        q_sqrt=layer.q_sqrt,
        white=whiten,
        full_cov=full_cov,
        full_output_cov=full_output_cov,
    )
    result = layer.predict(X, full_cov=full_cov, full_output_cov=full_output_cov)
    for value, reference in zip(result, expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("name", ["plain", "both separate", "mixed"])
def test_samples_axis_is_a_loop(rng: np.random.Generator, name: str) -> None:
    """A [S, N, D] input gives what its S slices give one by one."""
    layer = zoo(rng, name)
    factors = layer.factors()
    X = rng.uniform(-2, 2, (3, 4, 3))
    for full_cov, full_output_cov in COVARIANCE_SHAPES:
        together = layer.predict(X, full_cov=full_cov, full_output_cov=full_output_cov, factors=factors)
        for s in range(3):
            alone = layer.predict(X[s], full_cov=full_cov, full_output_cov=full_output_cov, factors=factors)
            for whole, part in zip(together, alone, strict=True):
                np.testing.assert_allclose(whole[s], part, rtol=RTOL, atol=ATOL)


def test_other_kernels_and_active_dims(rng: np.random.Generator) -> None:
    """Kernels without a fast path, and kernels that see some columns only, in the order given."""
    X = tf.constant(rng.uniform(-2, 2, (4, 3)))
    q_mu, q_sqrt = random_q(rng, 5, 2)
    kernels = [
        gpflow.kernels.Matern52(lengthscales=[1.0, 2.0, 0.7]) + gpflow.kernels.Linear(),
        gpflow.kernels.SquaredExponential(lengthscales=[0.5, 1.5], active_dims=[2, 0]),
        gpflow.kernels.SquaredExponential(lengthscales=0.8, active_dims=slice(1, 3)),
    ]
    for kernel in kernels:
        Z = gpflow.inducing_variables.InducingPoints(spread_inputs(rng, 5, 3))
        layer = SVGPLayer(kernel, Z, q_mu=q_mu, q_sqrt=q_sqrt)
        expected = conditional(X, Z, kernel, tf.constant(q_mu), q_sqrt=tf.constant(q_sqrt), white=True)
        for value, reference in zip(layer.predict(X), expected, strict=True):
            np.testing.assert_allclose(value, reference, rtol=1e-8, atol=1e-9)  # projections of Z may come close


# Noise between layers.


def test_noise_variance_is_everywhere(rng: np.random.Generator) -> None:
    noisy = make_layer(rng, 2, 2, noise_variance=0.4)
    quiet = SVGPLayer(noisy.kernel, noisy.inducing_variable, q_mu=noisy.q_mu.numpy(), q_sqrt=noisy.q_sqrt.numpy())
    np.testing.assert_allclose(noisy.prior_covariance(), quiet.prior_covariance() + 0.4 * np.eye(6), rtol=0, atol=1e-15)
    far = np.full((1, 2), 1e3)  # where nothing is known: the variance is that of the prior
    np.testing.assert_allclose(noisy.predict(far)[1] - quiet.predict(far)[1], 0.4, rtol=1e-12)
    X = rng.uniform(-2, 2, (4, 2))
    _, cov = noisy.predict(X, full_cov=True)
    np.testing.assert_allclose(diagonal(np.asarray(cov)), noisy.predict(X)[1], rtol=1e-10)
    assert noisy.noise_variance is not None
    assert noisy.noise_variance.trainable


@pytest.mark.parametrize("full_cov", [False, True])
def test_draws_of_correlated_outputs(rng: np.random.Generator, full_cov: bool) -> None:
    """Draws of a layer have its covariance between outputs after mixing."""
    layer = zoo(rng, "mixed")
    X = rng.uniform(-2, 2, (3, 3))
    eps = tf.constant(rng.standard_normal((40_000, 3, 2)))
    draws = layer.sample(X, layer.latent_moments(X, full_cov=full_cov), eps, full_cov=full_cov).numpy()
    mean, cov = (np.asarray(part) for part in layer.predict(X, full_output_cov=True))
    centred = draws - mean
    products = np.einsum("snp,snq->snpq", centred, centred)
    scale = np.max(np.diagonal(cov, axis1=1, axis2=2))
    rows, columns = np.triu_indices(cov.shape[-1])
    assert_mean_close(products[:, :, rows, columns], cov[:, rows, columns], num_se=5, min_detectable=0.05 * scale)
    assert not np.allclose(cov[:, 0, 1], 0.0)


def test_sampling_is_mean_plus_deviation_times_noise(rng: np.random.Generator) -> None:
    layer = make_layer(rng, 2, 3, noise_variance=0.1)
    X, eps = rng.uniform(-2, 2, (5, 2)), rng.standard_normal((4, 5, 3))
    oracle = oracles.Layer(layer)
    draws = layer.sample(X, layer.latent_moments(X), tf.constant(eps))
    np.testing.assert_allclose(draws, [oracle.draw(X, e) for e in eps], rtol=RTOL, atol=ATOL)
    one_node = layer.sample(X, layer.latent_moments(X), tf.constant(eps[:, :1]))  # the same noise at every point
    np.testing.assert_allclose(one_node, [oracle.draw(X, e[:1]) for e in eps], rtol=RTOL, atol=ATOL)


# Input propagation.


def test_propagated_inputs_come_first_and_are_certain(rng: np.random.Generator) -> None:
    plain = make_layer(rng, 3, 2)
    layer = SVGPLayer(
        plain.kernel, plain.inducing_variable, q_mu=plain.q_mu.numpy(), q_sqrt=plain.q_sqrt.numpy(), input_propagation=2
    )
    assert (layer.output_dim, layer.output_dim_of_gps, layer.input_dim) == (4, 2, 3)
    X = rng.uniform(-2, 2, (5, 3))
    mean, _ = layer.predict(X)
    np.testing.assert_array_equal(mean[:, :2], X[:, :2])
    np.testing.assert_allclose(mean[:, 2:], plain.predict(X)[0], rtol=1e-14)
    for full_cov, full_output_cov in COVARIANCE_SHAPES:
        cov = layer.predict(X, full_cov=full_cov, full_output_cov=full_output_cov)[1].numpy()
        inner = plain.predict(X, full_cov=full_cov, full_output_cov=full_output_cov)[1].numpy()
        where = {
            (False, False): (slice(None), slice(2, None)),
            (True, False): (slice(2, None),),
            (False, True): (slice(None), slice(2, None), slice(2, None)),
            (True, True): (slice(None), slice(2, None), slice(None), slice(2, None)),
        }[full_cov, full_output_cov]
        np.testing.assert_allclose(cov[where], inner, rtol=1e-12, atol=1e-15)
        cov[where] = 0.0
        assert np.all(cov == 0.0)
    eps = tf.constant(rng.standard_normal((4, 5, 2)))
    draws = layer.sample(X, layer.latent_moments(X), eps).numpy()
    assert draws.shape == (4, 5, 4)
    np.testing.assert_array_equal(draws[..., :2], np.broadcast_to(X[:, :2], (4, 5, 2)))


# Starting values.


@pytest.mark.parametrize("scale", [1.0, 1e-5])
def test_default_q_is_the_prior(rng: np.random.Generator, scale: float) -> None:
    """Whitened: the identity; unwhitened: chol(Kuu). Scaled by 1, q(u) is p(u) and the KL is zero."""
    Z, kernel = spread_inputs(rng, 5, 2), random_kernel(rng, 2)
    whitened = SVGPLayer(kernel, Z, num_latent_gps=2, q_sqrt_scale=scale)
    np.testing.assert_array_equal(whitened.q_sqrt, np.tile(scale * np.eye(5), [2, 1, 1]))
    plain = SVGPLayer(kernel, Z, num_latent_gps=2, whiten=False, q_sqrt_scale=scale, noise_variance=0.1)
    Kuu = oracles.rbf(Z, Z, kernel.variance.numpy(), kernel.lengthscales.numpy()) + (0.1 + oracles.JITTER) * np.eye(5)
    np.testing.assert_allclose(plain.q_sqrt, np.tile(scale * np.linalg.cholesky(Kuu), [2, 1, 1]), rtol=1e-10)
    np.testing.assert_array_equal(plain.q_mu, np.zeros((5, 2)))
    for layer in (whitened, plain):
        expected = 2 * 5 * (0.5 * scale**2 - 0.5 - np.log(scale))
        np.testing.assert_allclose(layer.prior_kl(), expected, rtol=1e-10, atol=1e-10)


def test_default_q_sqrt_with_separate_kernels(rng: np.random.Generator) -> None:
    kernels = [random_kernel(rng, 2) for _ in range(2)]
    Z = spread_inputs(rng, 5, 2)
    layer = SVGPLayer(gpflow.kernels.SeparateIndependent(kernels), Z, whiten=False)
    for p, kernel in enumerate(kernels):
        Kuu = oracles.rbf(Z, Z, kernel.variance.numpy(), kernel.lengthscales.numpy()) + oracles.JITTER * np.eye(5)
        np.testing.assert_allclose(layer.q_sqrt[p], np.linalg.cholesky(Kuu), rtol=1e-9, atol=1e-12)


def test_default_q_diag(rng: np.random.Generator) -> None:
    layer = SVGPLayer(random_kernel(rng, 2), spread_inputs(rng, 5, 2), num_latent_gps=3, q_diag=True, q_sqrt_scale=0.1)
    np.testing.assert_allclose(layer.q_sqrt, np.full((5, 3), 0.1), rtol=1e-12)


def test_q_diag_is_the_full_posterior_with_a_diagonal_factor(rng: np.random.Generator) -> None:
    for whiten in (True, False):
        narrow = make_layer(rng, 2, 2, q_diag=True, whiten=whiten)
        full = SVGPLayer(
            narrow.kernel,
            narrow.inducing_variable,
            q_mu=narrow.q_mu.numpy(),
            q_sqrt=np.stack([np.diag(column) for column in narrow.q_sqrt.numpy().T]),
            whiten=whiten,
        )
        X = rng.uniform(-2, 2, (5, 2))
        for full_cov in (False, True):
            for a, b in zip(narrow.predict(X, full_cov=full_cov), full.predict(X, full_cov=full_cov), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(narrow.prior_kl(), full.prior_kl(), rtol=1e-10)


# Cached factors.


@pytest.mark.parametrize("full_cov", [False, True])
@pytest.mark.parametrize("name", ["plain", "both separate", "mixed", "q_diag", "unwhitened"])
def test_cache_gives_the_same_moments(rng: np.random.Generator, name: str, full_cov: bool) -> None:
    if name == "q_diag":
        layer = make_layer(rng, 3, 2, q_diag=True, noise_variance=0.1)
    elif name == "unwhitened":
        layer = make_layer(rng, 3, 2, whiten=False)
    else:
        layer = zoo(rng, name)
    X = rng.uniform(-2, 2, (2, 4, 3))
    exact = layer.latent_moments(X, full_cov=full_cov)
    # Through the explicit inverse of Kuu: condition number below 1e4, times rounding.
    for cached, moment in zip(layer.latent_moments(X, layer.cache(), full_cov=full_cov), exact, strict=True):
        np.testing.assert_allclose(cached, moment, rtol=1e-8, atol=1e-9)
    # Float32 with cond(Kuu)^(1/2) <= 1e2 from the projection: 1e2 * 6e-8 * a few.
    single = layer.latent_moments(X, layer.cache(dtype=tf.float32), full_cov=full_cov)
    for cached, moment in zip(single, exact, strict=True):
        assert cached.dtype == tf.float64
        np.testing.assert_allclose(cached, moment, rtol=0, atol=2e-4)


@pytest.mark.parametrize("name", ["plain", "separate Z", "both separate", "mixed"])
def test_cached_forms_are_functions_of_the_kernel_itself(rng: np.random.Generator, name: str) -> None:
    """mean = k' weights, var = k(x, x) - k' form k; in NumPy from the inducing posterior."""
    layer = zoo(rng, name)
    cache, oracle = layer.cache(), oracles.Layer(layer)
    assert isinstance(cache, CachedForms)
    for p in range(2):
        Kuu, (m, S) = oracle.Kuu(p), oracle.inducing_posterior(p)
        np.testing.assert_allclose(cache.weights[:, p], np.linalg.solve(Kuu, m), rtol=1e-8, atol=1e-8)
        inverse = np.linalg.inv(Kuu)
        np.testing.assert_allclose(cache.form[p], inverse - inverse @ S @ inverse, rtol=1e-7, atol=1e-7)


def test_forms_are_for_float64_alone(rng: np.random.Generator) -> None:
    layer = make_layer(rng, 3, 2)
    assert isinstance(layer.cache(dtype=tf.float32), CachedFactors)
    assert isinstance(make_layer(rng, 3, 2, q_diag=True).cache(), CachedFactors)
    layer.precision = "mixed"
    assert isinstance(layer.cache(), CachedFactors)


@pytest.mark.parametrize("lengthscale", [0.5, 20.0])
def test_variances_of_forms_where_kuu_is_ill_conditioned(rng: np.random.Generator, lengthscale: float) -> None:
    """Rounding is 1e-16 times cond(Kuu), here at most 30 / 1e-6, times a few: well below the jitter of 1e-6."""
    layer = make_layer(rng, 2, 1, M=30, kernel=gpflow.kernels.SquaredExponential(lengthscales=[lengthscale] * 2))
    X = rng.uniform(-2, 2, (50, 2))
    solved, cached = (layer.predict(X, factors=factors) for factors in (layer.factors(), layer.cache()))
    np.testing.assert_allclose(cached[1], solved[1], rtol=0, atol=1e-8)
    np.testing.assert_allclose(cached[0], solved[0], rtol=0, atol=1e-8)


# Precision.


def value_and_gradients(layer: SVGPLayer, X: np.ndarray) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    with tf.GradientTape() as tape:
        mean, var = layer.predict(X)
        loss = tf.reduce_sum(tf.sin(mean)) + tf.reduce_sum(tf.math.log(var + 0.1))
    return mean, var, tape.gradient(loss, layer.trainable_variables)


@pytest.mark.parametrize("name", ["plain", "both separate", "q_diag"])
@pytest.mark.parametrize("precision", ["mixed", "fast"])
def test_lower_precision_is_close(rng: np.random.Generator, precision: str, name: str) -> None:
    """Errors are float32 rounding (6e-8) of numbers of order one, times sqrt(cond(Kuu)) < 1e2 for "fast"."""
    layer = make_layer(rng, 3, 2, q_diag=True) if name == "q_diag" else zoo(rng, name)
    X = rng.uniform(-2, 2, (50, 3))
    mean, var, gradients = value_and_gradients(layer, X)
    layer.precision = precision  # type: ignore[assignment]
    low_mean, low_var, low_gradients = value_and_gradients(layer, X)
    bound = 2e-6 if precision == "mixed" else 1e-4
    np.testing.assert_allclose(low_mean, mean, rtol=0, atol=0 if precision == "mixed" else bound)
    np.testing.assert_allclose(low_var, var, rtol=0, atol=bound)
    assert np.any(np.asarray(low_var) != np.asarray(var))  # it does make a difference
    for low, full in zip(low_gradients, gradients, strict=True):
        # Gradients sum 50 points with factors of up to 1 / 0.1.
        scale = float(tf.reduce_max(tf.abs(full)))
        np.testing.assert_allclose(low, full, rtol=0, atol=50 * 10 * bound * max(scale, 0.1) / 10)


def test_fast_falls_back_where_kuu_is_ill_conditioned(rng: np.random.Generator) -> None:
    """Long lengthscales: "fast" then does what "mixed" does, bit for bit; at short ones it does not."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0])
    X = rng.uniform(-2, 2, (20, 2))
    layer = make_layer(rng, 2, 2, M=10, kernel=kernel)
    for lengthscale, falls_back in ((1.0, False), (30.0, True), (1000.0, True)):
        kernel.lengthscales.assign([lengthscale, lengthscale])
        roots = np.diag(layer.factors().Luu)
        assert ((roots.max() / roots.min()) ** 2 > FAST_CONDITION_LIMIT) == falls_back
        results = []
        for precision in ("fast", "mixed"):
            layer.precision = precision  # type: ignore[assignment]
            results.append(layer.predict(X))
        for fast, mixed in zip(*results, strict=True):
            assert np.array_equal(fast, mixed) == falls_back


def test_fast_falls_back_where_inputs_are_far_out(rng: np.random.Generator) -> None:
    """Inputs at 1e3 lengthscales: float32 squares of that size are wrong by 0.06, so "fast" acts as "mixed"."""
    Z = spread_inputs(rng, 6, 2)
    q_mu, q_sqrt = random_q(rng, 6, 2)
    for offset, falls_back in ((0.0, False), (1e3, True)):
        X = Z + 0.1 * rng.standard_normal(Z.shape)
        X[0] += offset
        results = [
            SVGPLayer(gpflow.kernels.SquaredExponential(), Z, q_mu=q_mu, q_sqrt=q_sqrt, precision=precision).predict(X)
            for precision in ("fast", "mixed")
        ]
        for fast, mixed in zip(*results, strict=True):
            assert np.array_equal(fast, mixed) == falls_back


# Messages.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "half"}, "precision must be 'full', 'mixed' or 'fast', got 'half'"),
        ({"q_mu": np.zeros((4, 1))}, r"q_mu must have shape \[M, L\] = \[5, 1\], got \[4, 1\]"),
        ({"q_sqrt": np.eye(5)}, r"q_sqrt must have shape \[L, M, M\] = \[1, 5, 5\], got \[5, 5\]"),
        ({"q_sqrt": np.eye(5)[None], "q_diag": True}, r"q_sqrt must have shape \[M, L\] = \[5, 1\]"),
        ({"noise_variance": 0.0}, "noise_variance must be positive or None, got 0.0"),
        ({"noise_variance": -1.0}, "noise_variance must be positive or None, got -1.0"),
        ({"num_latent_gps": 0}, "num_latent_gps must be at least 1, got 0"),
        ({"q_sqrt_scale": 0.0}, "q_sqrt_scale must be positive, got 0.0"),
        ({"input_propagation": 2}, "input_propagation must be from 0 to the number of input columns, 1, got 2"),
        ({"input_propagation": -1}, "input_propagation must be from 0 to the number of input columns, 1, got -1"),
    ],
)
def test_messages_of_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SVGPLayer(gpflow.kernels.SquaredExponential(), np.linspace(0, 1, 5)[:, None], **options)


def test_a_mean_function_fits_inputs_and_outputs(rng: np.random.Generator) -> None:
    """Broadcasting would give a layer of one GP two outputs; one output for all GPs is GPflow's `Constant`."""
    with pytest.raises(ValueError, match="must have 1 or the layer's 1 outputs, got Identity with 2"):
        SVGPLayer(random_kernel(rng, 2), np.eye(2), mean_function=gpflow.mean_functions.Identity())
    with pytest.raises(ValueError, match="the mean function, Linear, must take 2 inputs: "):
        SVGPLayer(random_kernel(rng, 2), np.eye(2), mean_function=gpflow.mean_functions.Linear(np.ones((3, 1))))
    constant = gpflow.mean_functions.Constant(5.0)
    layer = SVGPLayer(random_kernel(rng, 2), np.eye(2), num_latent_gps=3, mean_function=constant)
    np.testing.assert_array_equal(layer.predict(np.zeros((4, 2)))[0], np.full((4, 3), 5.0))


def test_messages_of_kernels(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=r"such as SquaredExponential\(\), got <class"):
        SVGPLayer(gpflow.kernels.SquaredExponential, np.eye(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a kernel of 2 inputs must have 1 or 2 lengthscales, got 3"):
        SVGPLayer(gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0, 1.0]), np.eye(2))
    with pytest.raises(ValueError, match=r"must read some of the 2 input columns, got active_dims=\[5\]"):
        SVGPLayer(gpflow.kernels.SquaredExponential(active_dims=[5]), np.eye(2))
    kernels = [gpflow.kernels.SquaredExponential() for _ in range(2)]
    Z = np.linspace(0, 1, 5)[:, None]
    with pytest.raises(ValueError, match="num_latent_gps must equal the kernel's 2, got 3"):
        SVGPLayer(gpflow.kernels.SeparateIndependent(kernels), Z, num_latent_gps=3)
    separate = gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [gpflow.inducing_variables.InducingPoints(Z) for _ in range(3)]
    )
    with pytest.raises(
        ValueError, match="number of separate inducing variables must be 1 or num_latent_gps = 2, got 3"
    ):
        SVGPLayer(gpflow.kernels.SeparateIndependent(kernels), separate)


# Rounding.


def test_kuu_in_float32_on_unscaled_inputs(rng: np.random.Generator) -> None:
    """As exact as float32 can store it; the expanded square in float32 would have an error of 1e3 in the exponent."""
    Z = (1e4 * rng.standard_normal((10, 2))).astype(np.float32)
    Z[5:] = Z[:5] + np.float32(0.125)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        kernel = gpflow.kernels.SquaredExponential(lengthscales=[0.0625, 0.0625])
        Kuu = SVGPLayer(kernel, Z, num_latent_gps=1).prior_covariance()
    exact = oracles.rbf(Z.astype(np.float64), Z.astype(np.float64), 1.0, kernel.lengthscales.numpy().astype(np.float64))
    assert Kuu.dtype == tf.float32
    np.testing.assert_allclose(Kuu, exact, rtol=0, atol=1e-4)  # float64: 1e-16 * (1e4 / 0.06)^2, and float32 storage


def test_variances_are_not_negative(rng: np.random.Generator) -> None:
    """k(x, x) - A'A + A'SA at the inducing inputs, with no variance left and a nearly singular Kuu, is rounding."""
    Z = np.linspace(0, 1, 30)[:, None]
    layer = SVGPLayer(gpflow.kernels.SquaredExponential(variance=1e9), Z, num_latent_gps=1, q_sqrt_scale=1e-9)
    for factors in (layer.factors(), layer.cache()):
        assert np.all(layer.predict(Z, factors=factors)[1].numpy() >= 0.0)
    layer.precision = "mixed"
    assert np.all(layer.predict(Z)[1].numpy() >= 0.0)
