import math

import numpy as np
import pytest
import tensorflow as tf

from ebp.network.backward import backward
from ebp.network.forward import forward, sign_mean
from ebp.network.heads import Head, RegressionHead, SignHead, SoftmaxHead
from ebp.network.network import EBPNetwork
from ebp.network.update import bias_increment, weight_increment

CASES: dict[str, tuple[Head, tuple[int, ...]]] = {
    "binary": (SignHead(), (7, 5, 4, 1)),
    "multiclass": (SignHead(), (7, 5, 3)),
    "softmax": (SoftmaxHead(), (7, 5, 3)),
    "regression": (RegressionHead(0.2), (7, 5, 2)),
}


def frozen_log_prob(
    head: Head,
    sizes: tuple[int, ...],
    X: tf.Tensor,
    Y: tf.Tensor,
    means: list[tf.Tensor],
    biases: list[tf.Tensor],
    sigma2: list,
) -> tf.Tensor:
    """log P(y) as a function of the means of weights and biases, with every layer's variance a constant."""
    v, mu = X, X
    for layer, (mean, b) in enumerate(zip(means, biases, strict=True)):
        mu = (v @ mean + b) / np.sqrt(sizes[layer] + 1)
        v = sign_mean(mu, sigma2[layer])
    return head.log_prob(Y, mu, sigma2[-1])


@pytest.mark.parametrize("name", CASES)
def test_increments_are_gradients_with_frozen_variances(name: str, rng: np.random.Generator) -> None:
    """Eqs. (4.3)-(4.5): d h = d log P(y) / d<W>, if sigma does not depend on <W>. Sums over a batch of two."""
    head, sizes = CASES[name]
    network = EBPNetwork(sizes, "binary", head=head, dtype=tf.float64)
    for variable in [*network.h, *network.b]:
        variable.assign(rng.normal(size=variable.shape))
    X = tf.constant(rng.normal(size=(2, sizes[0])))
    if name == "regression":
        Y = rng.normal(size=(2, sizes[-1]))
    elif name == "softmax":
        Y = 2 * np.eye(sizes[-1])[[0, 2]] - 1
    else:
        Y = rng.choice([-1.0, 1.0], size=(2, sizes[-1]))
    means = network.architecture.means(network.h)
    variances = network.architecture.variances(network.h, means)
    layers = forward(network.architecture, X, means, variances, network.b)
    last = layers[-1]
    deltas = backward(head.delta(tf.constant(Y), last.mu, last.sigma2), layers)
    with tf.GradientTape() as tape:
        biases = [tf.identity(b) for b in network.b]
        tape.watch([means, biases])
        log_prob = frozen_log_prob(head, sizes, X, tf.constant(Y), means, biases, [one.sigma2 for one in layers])
        total = tf.reduce_sum(log_prob)
    d_means, d_biases = tape.gradient(total, [means, biases])
    for layer, delta, d_mean, d_bias in zip(layers, deltas, d_means, d_biases, strict=True):
        np.testing.assert_allclose(
            weight_increment(layer.v, delta / math.sqrt(layer.fan_in)), d_mean, rtol=1e-9, atol=1e-13
        )
        np.testing.assert_allclose(bias_increment(delta, layer), d_bias, rtol=1e-9, atol=1e-13)
