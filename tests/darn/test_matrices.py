"""Matrices of local layers do what the layers do."""

import numpy as np
import pytest
import tensorflow as tf

from darn.codec.integer_model import causal_matrix, network_matrices
from darn.images.local import LocalCausalConditional, LocalDecoder, LocalEncoder
from darn.model.config import LocalConfig
from darn.model.layers import DenseNetwork

CONFIG = LocalConfig((7, 5), (4, 2), (2, 1), (3, 2), period=2, visible_kernel=5, visible_period=3)


@pytest.mark.parametrize("kind", [LocalEncoder, LocalDecoder])
def test_networks(rng: np.random.Generator, seed: tf.Tensor, kind: type) -> None:
    network = kind(CONFIG, 6, seed=seed, dtype=tf.float64)
    for bias in network.biases:
        bias.assign(rng.normal(size=bias.shape))
    x = rng.normal(size=(4, 35 if kind is LocalEncoder else 6))
    matrices, activation = network_matrices(network)
    assert activation == "relu"
    y = x
    for kernel, bias in matrices:
        y = np.maximum(y, 0) if y is not x else y
        y = (kernel.T @ y.T).T + (0 if bias is None else bias)
    np.testing.assert_allclose(y, network(tf.constant(x)), atol=1e-12)


def test_window_of_earlier_pixels(rng: np.random.Generator) -> None:
    conditional = LocalCausalConditional(CONFIG, dtype=tf.float64)
    conditional.weights.assign(rng.normal(size=conditional.weights.shape))
    matrix = causal_matrix(conditional).toarray()
    np.testing.assert_array_equal(matrix, np.triu(matrix, 1))
    x = rng.normal(size=(4, 35))
    np.testing.assert_allclose(x @ matrix, conditional.logits(tf.constant(x)), atol=1e-12)


def test_window_of_a_single_pixel() -> None:
    config = LocalConfig((2, 2), (2,), (2,), (1,), visible_kernel=1, visible_period=1)
    assert causal_matrix(LocalCausalConditional(config)).nnz == 0


def test_other_networks(seed: tf.Tensor) -> None:
    network = DenseNetwork([3, 4, 2], activation="relu", seed=seed, dtype=tf.float32)
    (first, second), activation = network_matrices(network)
    assert (first[0].shape, first[1].shape, second[0].shape, second[1]) == ((3, 4), (4,), (4, 2), None)
    assert activation == "relu"
    with pytest.raises(ValueError, match="must be dense or local, got object"):
        network_matrices(object())
