"""The last phase of a recipe: what is left is trained on as a plain network, without noise and KL.

train_last(shrunk.model, config, parts, batch_size=128, seed=0)

Weights that are 0 stay 0. Of all epochs, and the start, the weights of the lowest validation loss are kept.
"""

import keras
import numpy as np
import tensorflow as tf

from .classification import Examples, has_probabilities, nll
from .graph import kernel_variables
from .held_out import outputs_of
from .magnitude import Masked
from .schedule import RecipeConfig, last_rate_at
from .seeds import named_seed
from .training import epoch_function

__all__ = ["train_last"]


def train_last(
    model: keras.Model, config: RecipeConfig, parts: dict[str, Examples], *, batch_size: int, seed: int
) -> None:
    """Train a plain classifier for `config.last_epochs` epochs of "train", with a rate that falls to 0.

    :param parts: "valid" decides which epoch is kept. :param seed: of order and shifts.
    """
    kernels = [variable for _, variable in kernel_variables(model)]
    for kernel in kernels:
        kernel.constraint = Masked(tf.cast(kernel != 0, kernel.dtype))
    optimizer = keras.optimizers.Adam(config.learning_rate)
    optimizer.build(model.trainable_variables)
    steps = len(parts["train"].X) // batch_size
    run_epoch = epoch_function(
        *(model, optimizer, parts["train"]),
        batch_size=batch_size,
        learning_rate=lambda step: last_rate_at(config, step, steps),
        kl_weight=lambda step: 0.0,
        shift=config.shift,
        flip=config.flip,
    )
    lowest, weights = loss_of(model, parts["valid"]), model.get_weights()
    for number in range(config.last_epochs):
        run_epoch(tf.random.fold_in(named_seed(seed, "last"), number), tf.constant(number * steps, tf.int32))
        if (loss := loss_of(model, parts["valid"])) < lowest:
            lowest, weights = loss, model.get_weights()
    model.set_weights(weights)
    for kernel in kernels:
        kernel.constraint = None


def loss_of(model: keras.Model, part: Examples) -> float:
    """Mean negative log-likelihood, in nats."""
    found = nll(outputs_of(model, np.asarray(part.X)), part.labels, probabilities=has_probabilities(model))
    return float(found)
