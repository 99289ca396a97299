"""Locally connected layers against convolutions and loops."""

import numpy as np
import pytest
import tensorflow as tf

from darn.images.local import LocalDecoder, LocalEncoder, causal_window, periodic_correlation
from darn.images.periodic import PeriodicLayer
from darn.model.config import LocalConfig


def layer(shape: tuple[int, int, int], seed: tf.Tensor, *, kernel: int, stride: int, period: int) -> PeriodicLayer:
    return PeriodicLayer(shape, 3, kernel=kernel, stride=stride, period=period, seed=seed, dtype=tf.float64)


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (6, 2), (3, 1), (2, 2)])
def test_period_one_is_a_convolution(kernel: int, stride: int, seed: tf.Tensor) -> None:
    local = layer((7, 10, 2), seed, kernel=kernel, stride=stride, period=1)
    x = tf.random.stateless_normal([2, 7, 10, 2], seed, dtype=tf.float64)
    before = (kernel - stride) // 2
    after = [local.places[i] * stride + kernel - stride - before - (7, 10)[i] for i in range(2)]
    padded = tf.pad(x, [[0, 0], [before, after[0]], [before, after[1]], [0, 0]])
    expected = tf.nn.conv2d(padded, local.kernel_at(0, 0), strides=stride, padding="VALID")
    assert local.places == (-(-7 // stride), -(-10 // stride))
    np.testing.assert_allclose(local(x), expected, rtol=1e-10, atol=1e-12)


def test_places_use_the_kernel_of_their_phase(seed: tf.Tensor) -> None:
    """Each output place equals that of a convolution with the kernel of its phase."""
    local = layer((9, 12, 2), seed, kernel=4, stride=2, period=3)
    x = tf.random.stateless_normal([2, 9, 12, 2], seed, dtype=tf.float64)
    padded = tf.pad(x, [[0, 0], [1, 2], [1, 1], [0, 0]])
    result = local(x)
    for i in range(local.places[0]):
        for j in range(local.places[1]):
            patch = padded[:, 2 * i : 2 * i + 4, 2 * j : 2 * j + 4]
            expected = tf.einsum("nuvc,uvco->no", patch, local.kernel_at(i, j))
            np.testing.assert_allclose(result[:, i, j], expected, rtol=1e-10, atol=1e-12)
    assert not np.allclose(local.kernel_at(0, 0), local.kernel_at(0, 1))


def test_the_transposed_layer_is_the_adjoint(seed: tf.Tensor) -> None:
    local = layer((9, 11, 2), seed, kernel=6, stride=2, period=2)
    x = tf.random.stateless_normal([1, 9, 11, 2], seed, dtype=tf.float64)
    y = tf.random.stateless_normal([1, *local.out_shape], seed, dtype=tf.float64)
    np.testing.assert_allclose(tf.reduce_sum(local(x) * y), tf.reduce_sum(x * local.transpose(y)), rtol=1e-10)


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "period"), [(1, 4, 2, 3), (5, 4, 2, 3), (1, 3, 1, 1), (5, 6, 2, 1), (5, 3, 3, 4)]
)
def test_derivatives_are_the_adjoint_and_the_layer_of_other_weights(
    channels: int, kernel: int, stride: int, period: int, seed: tf.Tensor
) -> None:
    """A(x, W) is linear in both: <dx, v> = <g, A(v, W)> and <dW, V> = <g, A(x, V)> for all v and V, and so is A'."""
    first, second, third = tf.unstack(tf.random.experimental.stateless_split(seed, 3))
    local = layer((7, 10, channels), first, kernel=kernel, stride=stride, period=period)
    other = layer((7, 10, channels), second, kernel=kernel, stride=stride, period=period)
    shapes = ([2, 7, 10, channels], [2, *local.out_shape])
    for name, (of, to) in {"__call__": shapes, "transpose": shapes[::-1]}.items():
        x, v = (tf.random.stateless_normal(of, key, dtype=tf.float64) for key in (first, second))
        g = tf.random.stateless_normal(to, third, dtype=tf.float64)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(g * getattr(local, name)(x))
        dx, dw = tape.gradient(y, [x, local.weights])
        expected = tf.reduce_sum(g * getattr(local, name)(v))
        np.testing.assert_allclose(tf.reduce_sum(dx * v), expected, rtol=1e-9, atol=1e-11)
        expected = tf.reduce_sum(g * getattr(other, name)(x))
        np.testing.assert_allclose(tf.reduce_sum(dw * other.weights), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("period", [1, 2, 3])
def test_periodic_correlation_is_its_formula(period: int, rng: np.random.Generator) -> None:
    weights, x = rng.normal(size=(period, period, 3, 3)), rng.normal(size=(2, 4, 7))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    expected = np.zeros_like(x)
    for i in range(4):
        for j in range(7):
            expected[:, i, j] = (weights[i % period, j % period] * padded[:, i : i + 3, j : j + 3]).sum(axis=(1, 2))
    np.testing.assert_allclose(periodic_correlation(tf.constant(x), tf.constant(weights)), expected, atol=1e-12)


def test_the_causal_window_holds_the_pixels_before_its_centre() -> None:
    np.testing.assert_array_equal(causal_window(3), [[1, 1, 1], [1, 0, 0], [0, 0, 0]])


def test_stacks_map_images_to_units_and_back(seed: tf.Tensor) -> None:
    config = LocalConfig((10, 12), kernels=(4, 4), strides=(2, 2), filters=(3, 5), period=2)
    x = tf.random.stateless_uniform([2, 120], seed)
    encoded = LocalEncoder(config, 6, seed=seed, dtype=tf.float32)(x)
    decoder = LocalDecoder(config, 6, seed=seed, dtype=tf.float32)
    assert encoded.shape == [2, 6]
    assert decoder(encoded).shape == [2, 120]
    assert decoder.size == 3 * 3 * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernels": (8, 5)}, "multiples of their strides"),
        ({"filters": (8,)}, "same number of layers"),
        ({"visible_kernel": 4}, "must be odd"),
        ({"period": 0}, "at least 1"),
    ],
)
def test_bad_settings_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalConfig((10, 12), **arguments)
