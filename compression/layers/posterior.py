"""What is asked of all Bayesian layers of a model together: their KL, their noise, draws from the posterior."""

import zlib
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from .base import BayesianLayer

__all__ = ["bayesian_layers", "kl_divergence", "predict_samples", "seed_noise"]


def bayesian_layers(model: keras.Model) -> list[BayesianLayer]:
    """The Bayesian layers of `model`, also inside nested models, in order."""
    return list(_walk(model))


def kl_divergence(model: keras.Model) -> tf.Tensor:
    """KL(q || p) of all Bayesian layers of `model`, in nats, without `kl_weight` and not divided by `num_train`.

    :raises ValueError: if there is no Bayesian layer.
    """
    return tf.add_n([layer.kl_divergence() for layer in _some_layers(model)])


def seed_noise(model: keras.Model, seed: int, step: int = 0) -> None:
    """Make the noise of `model` a pure function of (seed, step): each layer gets a stream of its own.

    A training loop that calls this before each step repeats its noise after a restart. (Checkpoints hold the state of
    the noise as well, so a loop that restores one does not need it.)

    :param seed: any integer.
    :param step: number of the step, 0 or more.
    """
    for index, layer in enumerate(_some_layers(model)):
        # A pass draws twice at most, scales and outputs, so that two steps share no noise.
        layer.noise_state.assign([zlib.crc32(f"{int(seed)}/{index}".encode()), 2 * int(step)])


def predict_samples(model: keras.Model, x: ArrayLike, n: int, seed: int, *, batch_size: int = 1024) -> np.ndarray:
    """Outputs of `n` passes with weights drawn from the posterior, one draw for each example and pass.

    Average softmax outputs over the first axis for the posterior predictive probabilities. Masks apply; nothing else of
    the model changes (no dropout, and the noise of training goes on where it was).

    :param x: inputs, shape [B, ...].
    :param n: number of passes.
    :param seed: of the draws.
    :return: shape [n, B, ...].
    :raises ValueError: if n < 1 or the model has no Bayesian layer.
    """
    if n < 1:
        raise ValueError(f"predict_samples needs n >= 1 passes, got {n}.")
    # The noise of training is put back at the end.
    layers = _some_layers(model)
    states = [layer.noise_state.numpy() for layer in layers]
    x = np.asarray(x)
    # Outputs with noise as in training, of a stream of their own; then the noise goes on where it was.
    try:
        seed_noise(model, seed)
        for layer in layers:
            layer.is_sampling = True
        passes = [
            np.concatenate([np.asarray(model(x[i : i + batch_size])) for i in range(0, len(x), batch_size)])
            for _ in range(n)
        ]
    finally:
        for layer, state in zip(layers, states, strict=True):
            layer.is_sampling = False
            layer.noise_state.assign(state)
    return np.stack(passes)


def _some_layers(model: keras.Model) -> list[BayesianLayer]:
    layers = bayesian_layers(model)
    if not layers:
        raise ValueError(
            f"the model {model.name} has no Bayesian layer; build it from DenseGNJ, Conv2DGNJ and their like, "
            f"or convert it with compress()."
        )
    return layers


def _walk(layer: keras.layers.Layer) -> Iterator[BayesianLayer]:
    if isinstance(layer, BayesianLayer):
        yield layer
    for child in getattr(layer, "layers", ()):
        yield from _walk(child)
