"""Covariances of sums over patches: loops in NumPy, the same by GPflow's kernels, and float32."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Constant, Kernel, SquaredExponential

from gpflow_deep.layers.images import patch_sums
from gpflow_deep.layers.images.patch_sums import sum_covariances, sum_variances

M, R, K, A = 4, 5, 6, 3


def parts(rng: np.random.Generator) -> dict[str, Any]:
    patches, Z = rng.standard_normal((R, K, A)), rng.standard_normal((M, A))
    return {"Z": Z, "patches": patches, "weights": rng.standard_normal(K), "lengthscales": rng.uniform(0.7, 2.0, A)}


def both(part: dict[str, Any], kernel: Kernel, dtype: tf.DType = tf.float64) -> tuple[tf.Tensor, tf.Tensor]:
    Z, patches, weights = (tf.convert_to_tensor(part[name]) for name in ("Z", "patches", "weights"))
    return sum_covariances(kernel, Z, patches, weights, dtype), sum_variances(kernel, patches, weights, dtype)


def test_sums_are_loops(rng: np.random.Generator) -> None:
    part = parts(rng)
    scale, w, x = part["lengthscales"], part["weights"], part["patches"]

    def k(a: np.ndarray, b: np.ndarray) -> float:
        return float(1.7 * np.exp(-0.5 * np.sum(((a - b) / scale) ** 2)))

    covariances, variances = both(part, SquaredExponential(1.7, lengthscales=scale))
    expected = [[sum(w[i] * k(z, x[r, i]) for i in range(K)) for r in range(R)] for z in part["Z"]]
    np.testing.assert_allclose(covariances, expected, rtol=1e-12, atol=1e-13)
    expected_variances = [sum(w[i] * w[j] * k(x[r, i], x[r, j]) for i in range(K) for j in range(K)) for r in range(R)]
    np.testing.assert_allclose(variances, expected_variances, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("block_floats", [2**20, 2 * M * K])
def test_values_and_gradients_are_those_of_gpflows_kernel(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, block_floats: int
) -> None:
    """A product with a constant kernel goes through GPflow and TensorFlow's own gradients; in one and more blocks."""
    monkeypatch.setattr(patch_sums, "BLOCK_FLOATS", block_floats)
    part = {name: tf.Variable(value) for name, value in parts(rng).items()}
    found = []
    for factor in (1.0, 2.0):
        kernel: Any = SquaredExponential(1.4 / factor)
        kernel.lengthscales = part["lengthscales"]
        with tf.GradientTape() as tape:
            covariances, variances = both(part, kernel if factor == 1 else kernel * Constant(factor))
            loss = tf.reduce_sum(tf.sin(covariances)) + tf.reduce_sum(tf.sin(variances))
        gradients = tape.gradient(loss, list(part.values()))
        found.append([covariances, variances, *gradients])
    for ours, gpflows in zip(*found, strict=True):
        np.testing.assert_allclose(ours, gpflows, rtol=1e-10, atol=1e-11)


def test_gradient_of_the_variance(rng: np.random.Generator) -> None:
    """Both are linear in the variance."""
    part, kernel = parts(rng), SquaredExponential(1.3)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(kernel.variance.unconstrained_variable)
        sums = [tf.reduce_sum(value) for value in both(part, kernel)]
        variance = tf.convert_to_tensor(kernel.variance)
    for value in sums:
        slope = tape.gradient(value, kernel.variance.unconstrained_variable)
        by_hand = value / 1.3 * tape.gradient(variance, kernel.variance.unconstrained_variable)
        np.testing.assert_allclose(slope, by_hand, rtol=1e-10)


def test_float32_is_safe_for_images(rng: np.random.Generator) -> None:
    """An exponent has an error of about 6e-8 (|z|^2 + |x|^2), here at most 1e-5 (90 lengthscales^2); far beyond that,
    here 300 lengthscales from the centre, it is computed in float64, and values of 1 stay 1 to 1e-6."""
    part = {**parts(rng), "weights": np.full(K, 1 / K)}
    part["patches"] *= 4.0
    for low, full in zip(both(part, SquaredExponential(), tf.float32), both(part, SquaredExponential()), strict=True):
        assert low.dtype == tf.float64
        np.testing.assert_allclose(low, full, rtol=0, atol=1e-5)
    apart = np.zeros((R, K, A)) + 300.0 * np.arange(K)[:, None] + 0.01 * rng.standard_normal((R, 1, 1))
    Z = apart[0] - 0.1
    low, full = (
        sum_covariances(SquaredExponential(), tf.constant(Z), tf.constant(apart), tf.ones(K, tf.float64), dtype)
        for dtype in (tf.float32, tf.float64)
    )
    np.testing.assert_allclose(low, full, rtol=1e-6)


def test_any_number_of_images(rng: np.random.Generator) -> None:
    part, kernel = parts(rng), SquaredExponential()
    signature = [tf.TensorSpec([None, K, A], tf.float64)]
    compiled = tf.function(lambda patches: both({**part, "patches": patches}, kernel), input_signature=signature)
    for a, b in zip(compiled(part["patches"]), both(part, kernel), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
