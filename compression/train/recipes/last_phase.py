"""The last phase: what is left is trained on as a plain network, without noise and KL.

    train_last(shrunk.model, config, parts, batch_size=128, seed=0)

Weights that are 0 stay 0. Of all epochs, and the start, the weights of the lowest validation loss are kept. That is
`last_phase`; `train_last` makes epochs on labels in it, and `compression.train.keras_training` those of any loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import keras
import numpy as np
import tensorflow as tf

from gpflow_deep_base.seeds import named_seed

from ...graph.graph import kernel_variables
from ...graph.normalized import fold_into, normalized
from ..engine import epoch_function, unfollow
from ..held_out import outputs_of
from ..schedule import RecipeConfig, last_rate_at
from .classification import Examples, has_probabilities, nll, taught_loss

__all__ = ["last_phase", "train_last"]

_EXAMPLES = 512  # with how many batch normalisation begins
_TINY = 1e-30  # of which a probability has a logarithm, if it is 0


@contextmanager
def last_phase(
    model: keras.Model, loss_of: Callable[[keras.Model], float], normalized_by: object = None
) -> Iterator[tuple[keras.Model, Callable[[], float]]]:
    """In the body of this `with` statement zeros of kernels stay; after it, the weights are the best that were seen.

        with last_phase(model, loss_of) as (trained, look):
            for number in range(epochs):
                ...  # train `trained`
                look()

    The first look is at the start. A look returns what it saw.

    :param loss_of: what has to be low, such as the loss on data that are set aside.
    :param normalized_by: examples, nested as `model` takes them, with which batch normalisation begins; None for none.
        With it a copy of `model` is trained, and `model` gets what that has learnt in the end.
    """
    if normalized_by is not None:
        # Train a copy with batch normalisation, and fold what it has learnt into the network.
        trained = normalized(model, keras.tree.map_structure(lambda X: np.asarray(X[:_EXAMPLES]), normalized_by))
        with last_phase(trained, loss_of) as phase:
            yield phase
        fold_into(trained, model)
        return
    # Pruned weights stay 0 by a constraint, beside one that was there before.
    kernels = [variable for _, variable in kernel_variables(model)]
    constraints = [kernel.constraint for kernel in kernels]
    lowest = math.inf
    weights = model.get_weights()

    def look() -> float:
        nonlocal lowest, weights
        if (loss := loss_of(model)) < lowest:
            lowest = loss
            weights = model.get_weights()
        return loss

    look()
    for kernel, constraint in zip(kernels, constraints, strict=True):
        kernel.constraint = _ZerosStay(tf.cast(kernel != 0, kernel.dtype), constraint)
    model.train_function = None  # Keras compiles a step once, with the constraints of then
    try:
        yield model, look
    finally:
        for kernel, constraint in zip(kernels, constraints, strict=True):
            kernel.constraint = constraint
        unfollow(model)
        model.train_function = None
    model.set_weights(weights)


def train_last(
    model: keras.Model,
    config: RecipeConfig,
    parts: dict[str, Examples],
    *,
    batch_size: int,
    seed: int,
    log: Callable[[int, dict[str, float]], object] = lambda epoch, line: None,
    teacher: keras.Model | None = None,
) -> None:
    """Train a plain classifier for `config.ending.last_epochs` epochs of "train", with a rate that falls to 0.

    :param parts: "valid" decides which epoch is kept.
    :param seed: of order and shifts.
    :param log: is called after each epoch with the number of finished ones and its scalars.
    :param teacher: with `config.ending.last_teacher`, what the network learns to say of each image as it is moved.
    """
    # Labels of "train" are learnt, and the loss on "valid" decides.
    train = parts["train"]
    valid = parts["valid"]
    steps = len(parts["train"].X) // batch_size
    examples = train.X if config.ending.last_normalization else None
    with last_phase(model, lambda network: loss_of(network, valid), examples) as (trained, look):
        # Epochs with a rate of half a cosine and without KL, each followed by a look at "valid".
        optimizer = keras.optimizers.Adam(config.learning_rate)
        optimizer.build(trained.trainable_variables)
        run_epoch = epoch_function(
            *(trained, optimizer, train),
            batch_size=batch_size,
            learning_rate=lambda step: last_rate_at(config, step, steps),
            kl_weight=lambda step: 0.0,
            shift=config.motion.shift,
            flip=config.motion.flip,
            teach=None
            if config.ending.last_teacher is None or teacher is None
            else taught_by(teacher, config.ending.last_teacher),
        )
        for number in range(config.ending.last_epochs):
            own_seed = tf.random.fold_in(named_seed(seed, "last"), number)
            nll_nats, error = run_epoch(own_seed)
            line = {"train/nll_nats": nll_nats, "train/error_percent": 100.0 * error}
            log(number + 1, {**line, "valid/nll_nats": look()})


def taught_by(teacher: keras.Model, temperature: float) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """(inputs, outputs) to the loss of a batch, [], of a network whose outputs are of the kind of the teacher's."""
    is_softmax = has_probabilities(teacher)

    def loss(X: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        # What the teacher says of the same inputs, as they were moved.
        told = teacher(X, training=False)
        # Logarithms of probabilities are logits, up to a constant.
        if is_softmax:
            told = tf.math.log(told + _TINY)
            outputs = tf.math.log(outputs + _TINY)
        return tf.reduce_mean(taught_loss(told, outputs, temperature))

    return loss


def loss_of(model: keras.Model, part: Examples) -> float:
    """Mean negative log-likelihood, in nats."""
    nats = nll(outputs_of(model, np.asarray(part.X)), part.labels, probabilities=has_probabilities(model))
    return float(nats)


class _ZerosStay(keras.constraints.Constraint):
    """Weights where a mask is 1, after a constraint of their own."""

    def __init__(self, mask: tf.Tensor, constraint: Callable[[tf.Tensor], tf.Tensor] | None) -> None:
        self._mask = mask
        self._constraint = constraint

    def __call__(self, w: tf.Tensor) -> tf.Tensor:
        """For Keras."""
        return self._mask * (w if self._constraint is None else self._constraint(w))
