"""Training for an epoch in one compiled call, of plain and of Bayesian networks (Sec. 5 of Louizos et al. 2017).

    run_epoch = epoch_function(model, optimizer, examples, batch_size=128, learning_rate=..., kl_weight=...)
    nll, error = run_epoch(seed, first_step)

Order and shifts are a function of `seed`, learning rate and weight of the KL of the number of the step: training that
is stopped and continued gives the same bits.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from ..layers.posterior import bayesian_layers
from .classification import Examples, has_probabilities, nll

__all__ = ["EpochFunction", "OfStep", "epoch_function", "flipped", "moved_batches", "shifted"]

EpochFunction: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
OfStep: TypeAlias = Callable[[tf.Tensor], Any]
"""A function of the number of a step, float32 []."""


def epoch_function(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    examples: Examples,
    *,
    batch_size: int,
    learning_rate: OfStep,
    kl_weight: OfStep,
    shift: int = 0,
    flip: bool = False,
    strategy: tf.distribute.Strategy | None = None,
    teach: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
) -> EpochFunction:
    """A function (seed int32 [2], number of the first step int32 []) that makes one pass over the examples.

    The loss of a batch is the mean negative log-likelihood plus what layers add to it, as in `keras.Model.fit`:
    Bayesian ones kl_weight * KL / N. What is left over after the last whole batch is not used. It returns the mean over
    the batches of the negative log-likelihood, in nats, and the part of the examples for which the network was wrong,
    between 0 and 1; both as the network was when it saw the batch.

    :param optimizer: built for the trainable variables of `model`.
    :param learning_rate: of a step.
    :param kl_weight: of a step; not used for a plain network.
    :param shift: see :func:`shifted`; 0 for none.
    :param flip: see :func:`flipped`. Inputs have to be images for them.
    :param strategy: of `tf.distribute`: its replicas share the rows of each batch, and do what one device does with all
        of them. Model and optimizer have to be made in its scope.
    :param teach: (inputs, outputs) to the loss of a batch, [], in place of the mean negative log-likelihood of labels,
        which is returned as before.
    """
    update = _update_function(model, optimizer, batch_size, strategy, teach)
    N, num_steps, layers = len(examples.X), len(examples.X) // batch_size, bayesian_layers(model)

    @tf.function
    def run_steps(order: tf.Tensor, seed: tf.Tensor, first_step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        nll_sum, num_wrong = tf.zeros([]), tf.zeros([], tf.int64)
        for i in tf.range(num_steps):
            rows = order[i * batch_size : (i + 1) * batch_size]
            X, labels = tf.gather(examples.X, rows), tf.gather(examples.labels, rows)
            if shift:
                X = shifted(X, shift, tf.random.fold_in(seed, i))
            if flip:
                X = flipped(X, tf.random.fold_in(tf.random.fold_in(seed, num_steps), i))
            step = tf.cast(first_step + i, tf.float32)
            optimizer.learning_rate.assign(learning_rate(step))
            for layer in layers:
                layer.kl_weight.assign(kl_weight(step))
            of_data, wrong = update(X, labels)
            nll_sum += of_data
            num_wrong += wrong
        return nll_sum / num_steps, tf.cast(num_wrong, tf.float32) / (num_steps * batch_size)

    def run_epoch(seed: tf.Tensor, first_step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # Outside of the graph, as a GPU has no kernel for it.
        return run_steps(tf.random.experimental.stateless_shuffle(tf.range(N), seed), seed, first_step)

    return run_epoch


def shifted(X: tf.Tensor, most: int, seed: tf.Tensor) -> tf.Tensor:
    """Each of the images [n, height, width, channels] moved by up to `most` pixels; what is at the edge is repeated.

    :param seed: int32 [2]; the moves, equally likely ones for each image, are a function of it.
    :return: of the shape and dtype of `X`.
    """
    height, width = X.shape[1:3]
    by = tf.random.stateless_uniform([2, tf.shape(X)[0], 1], seed, -most, most + 1, tf.int32)
    X = tf.gather(X, tf.clip_by_value(tf.range(height) + by[0], 0, height - 1), axis=1, batch_dims=1)
    return tf.gather(X, tf.clip_by_value(tf.range(width) + by[1], 0, width - 1), axis=2, batch_dims=1)


def flipped(X: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Each of the images [n, height, width, channels], or its mirror image, left and right exchanged, equally likely.

    :param seed: int32 [2]; which ones are mirrored is a function of it.
    :return: of the shape and dtype of `X`.
    """
    mirrored = tf.random.stateless_uniform([tf.shape(X)[0], 1, 1, 1], seed, 0, 2, tf.int32) == 1
    return tf.where(mirrored, tf.reverse(X, axis=[2]), X)


def moved_batches(examples: Examples, *, most: int, batch_size: int, seed: int) -> tf.data.Dataset:
    """Whole batches of images and labels, in a new order in each pass, each image moved by up to `most` pixels anew."""
    rows = tf.data.Dataset.from_tensor_slices((examples.X, examples.labels)).shuffle(len(examples.X), seed=seed)
    seeds = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).batch(2)
    batches = tf.data.Dataset.zip((rows.batch(batch_size, drop_remainder=True), seeds))
    return batches.map(lambda batch, by: (shifted(batch[0], most, tf.cast(by % 2**31, tf.int32)), batch[1])).prefetch(2)


def _update_function(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    batch_size: int,
    strategy: tf.distribute.Strategy | None,
    teach: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None,
) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """A function (inputs, labels) that makes one step, on one device or with all replicas.

    It returns the mean negative log-likelihood of the rows, and how many of them are wrong.
    """
    variables, probabilities = model.trainable_variables, has_probabilities(model)
    num_replicas = 1 if strategy is None else strategy.num_replicas_in_sync

    def update(X: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            outputs = model(X, training=True)
            of_data = nll(outputs, labels, probabilities=probabilities)
            loss = of_data if teach is None else teach(X, outputs)
            if added := model.losses:
                loss += tf.add_n(added)
            loss /= num_replicas
        optimizer.apply(tape.gradient(loss, variables), variables)  # adds up the gradients of all replicas
        wrong = tf.argmax(outputs, axis=-1, output_type=tf.int32) != labels
        return of_data, tf.math.count_nonzero(wrong)

    def update_own_rows(X: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        size = batch_size // num_replicas
        start = tf.distribute.get_replica_context().replica_id_in_sync_group * size
        return update(X[start : start + size], labels[start : start + size])

    if strategy is None:
        return update

    def update_all(X: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parts = strategy.run(update_own_rows, args=(X, labels))
        return strategy.reduce("MEAN", parts[0], axis=None), strategy.reduce("SUM", parts[1], axis=None)

    return update_all
