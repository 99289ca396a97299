"""Deep kernel learning: a GP on the features of a network is a GP on its outputs."""

import copy
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import DeepGP, FeatureLayer, make_train_step
from tests.gpflow_deep.builders import make_layer


class Scaled(tf.Module):
    """A `tf.Module` with a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable([1.5, 0.5, 1.0], dtype=tf.float64)

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return tf.tanh(X * self.scale)


def network() -> Any:
    """Two layers whose first weights are always the same."""
    first, second = (keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2))
    hidden = keras.layers.Dense(5, "relu", kernel_initializer=first)
    return keras.Sequential([keras.Input((3,)), hidden, keras.layers.Dense(2, kernel_initializer=second)])


FUNCTIONS = {
    "keras model": network,
    "keras layer": lambda: keras.layers.Dense(2),
    "module": Scaled,
    "function": lambda: tf.sin,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gp_on_features_is_a_gp_on_the_outputs(rng: np.random.Generator, name: str) -> None:
    """Bound, predictions and joint covariances: equal, as both compute the same from the same features."""
    features = FeatureLayer(FUNCTIONS[name](), 3)
    last = make_layer(rng, features.output_dim, 1)
    X, Y = rng.standard_normal((8, 3)), rng.standard_normal((8, 1))
    deep, flat = (DeepGP(layers, gpflow.likelihoods.Gaussian(0.1)) for layers in ([features, last], [last]))
    F = features(X)
    assert F.dtype == tf.float64
    np.testing.assert_allclose(deep.elbo((X, Y)), flat.elbo((F, Y)), rtol=1e-12)
    for full_cov in (False, True):
        for a, b in zip(deep.predict_f(X, full_cov), flat.predict_f(F, full_cov), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert len(features.trainable_variables) == {"keras model": 4, "keras layer": 2, "module": 1, "function": 0}[name]


def test_network_and_gp_are_trained_together(rng: np.random.Generator) -> None:
    """A float32 network below a float64 GP. XOR, which no linear map of the inputs and short training would solve."""
    X = rng.choice([-1.0, 1.0], (60, 3)) + 0.1 * rng.standard_normal((60, 3))
    Y = np.sign(X[:, :1] * X[:, 1:2])
    features: Any = FeatureLayer(network(), 3)
    model = DeepGP([features, make_layer(rng, 2, 1, M=10)], gpflow.likelihoods.Gaussian(0.1), num_data=60)
    kernel = features.function.layers[0].kernel.numpy()
    step = make_train_step(model, keras.optimizers.Adam(0.02))
    bounds = [float(step((tf.constant(X), tf.constant(Y)), tf.constant([0, t]))["elbo_nats"]) for t in range(150)]
    assert bounds[-1] > bounds[0] + 50
    assert np.any(features.function.layers[0].kernel.numpy() != kernel)  # the network's own variable
    mean, _ = model.predict_y(X)
    assert np.mean(np.sign(mean) == Y) > 0.9


def test_weights_that_keras_does_not_train_are_not_trained() -> None:
    batch_norm = FeatureLayer(keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization()]), 3)
    assert (len(batch_norm.variables), len(batch_norm.trainable_variables)) == (4, 2)


def test_a_frozen_network_is_not_trained() -> None:
    """As in transfer learning: what Keras is told before, and GPflow later."""
    layers: Any = [keras.layers.Dense(2), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    frozen = keras.Sequential([keras.Input((3,)), *layers])
    layers[0].trainable = False
    features = FeatureLayer(frozen, 3)
    assert [weight.trainable for weight in features.weights] == 2 * [False] + 2 * [True] + 2 * [False] + 2 * [True]
    assert len(gpflow.utilities.freeze(features).trainable_variables) == 0
    gpflow.set_trainable(features, False)
    assert len(copy.deepcopy(features).trainable_variables) == 0


def test_copies_are_independent(rng: np.random.Generator) -> None:
    model = DeepGP([FeatureLayer(network(), 3), make_layer(rng, 2, 1)], gpflow.likelihoods.Gaussian(0.1))
    X = rng.standard_normal((5, 3))
    before = model.predict_f(X)[0].numpy()
    for clone in (copy.deepcopy(model), gpflow.utilities.deepcopy(model)):
        np.testing.assert_array_equal(clone.predict_f(X)[0], before)
        clone.layers[0].weights[0].assign_add(tf.ones_like(clone.layers[0].weights[0]))
        assert np.any(clone.predict_f(X)[0].numpy() != before)
        np.testing.assert_array_equal(model.predict_f(X)[0], before)


def test_functions_of_other_shapes() -> None:
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 3"):
        FeatureLayer(network(), 4)
    with pytest.raises(ValueError, match=r"must map \[rows, 3\] to \[rows, P\], got the shape \(1,\) for one row"):
        FeatureLayer(lambda X: tf.reduce_sum(X, axis=1), 3)
