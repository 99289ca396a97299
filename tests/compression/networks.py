"""Small Bayesian networks with random posteriors, and their layers by prior."""

from typing import Any

import keras
import numpy as np

import compression as bc

PRIORS = {
    "gnj": (bc.DenseGNJ, bc.Conv2DGNJ),
    "ghs": (bc.DenseGHS, bc.Conv2DGHS),
    "svd": (bc.DenseSVD, bc.Conv2DSVD),
}


def randomise(model: keras.Model, rng: np.random.Generator) -> keras.Model:
    """Random means, biases and variances, with some scores on either side of their median."""
    for layer in bc.bayesian_layers(model):
        for variable in layer.trainable_weights:
            noise = rng.normal(size=variable.shape)
            if "log_var" in variable.name:
                variable.assign((noise - 2.0) / layer.scale_speed)
            elif variable.name == "z_mean_scaled":
                variable.assign((1.0 + 0.5 * noise) / layer.scale_speed)
            elif variable.name.endswith("_mean_scaled"):
                variable.assign_add(noise / layer.scale_speed)
            else:
                variable.assign(0.4 * noise)
    return model


def randomised(model: keras.Model, rng: np.random.Generator) -> keras.Model:
    """A plain model with random weights, variances of batch normalisation positive."""
    for variable in model.weights:
        value = 0.5 * rng.normal(size=variable.shape)
        variable.assign(np.exp(value) if "variance" in variable.name else value)
    return model


def dense_network(prior: str, rng: np.random.Generator, **settings: Any) -> keras.Model:
    """12-9-7-3."""
    dense, _ = PRIORS[prior]
    common: dict[str, Any] = {"num_train": 100, **settings}
    layers = [
        keras.Input([12]),
        dense(9, activation="relu", seed=1, name="first", **common),
        dense(7, activation="tanh", seed=2, name="second", **common),
        dense(3, seed=3, name="third", **common),
    ]
    return randomise(keras.Sequential(layers), rng)


def convolutional_network(prior: str, rng: np.random.Generator, padding: str = "valid") -> keras.Model:
    """Two convolutions with pooling, Flatten, two dense layers, on 10 x 10 x 2."""
    dense, convolution = PRIORS[prior]
    layers = [
        keras.Input([10, 10, 2]),
        convolution(6, 3, activation="relu", padding=padding, num_train=100, seed=1),
        keras.layers.MaxPooling2D(),
        convolution(7, (2, 3), padding=padding, num_train=100, seed=2),
        keras.layers.Activation("sigmoid"),
        keras.layers.AveragePooling2D(2, 1),
        keras.layers.Flatten(),
        dense(8, activation="relu", num_train=100, seed=3),
        dense(3, num_train=100, seed=4),
    ]
    return randomise(keras.Sequential(layers), rng)


def quantiles(model: keras.Model, fraction: float) -> dict[str, float]:
    """Thresholds that prune about `1 - fraction` of the groups of each layer."""
    return {
        layer.name: float(np.quantile(np.asarray(layer.prune_scores()), fraction))
        for layer in bc.bayesian_layers(model)
    }
