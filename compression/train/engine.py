"""The one loop of all trainings: `keras.Model.fit`, whose steps follow functions of their number.

    follow(model, optimizer, loss, learning_rate=rate_of_step, kl_weight=weight_of_step)
    model.fit(x, y, epochs=3)

    run_epoch = epoch_function(model, optimizer, examples, batch_size=128, learning_rate=..., kl_weight=...)
    nll, error = run_epoch(seed)

Learning rate and weight of the KL are set inside of the graph, so that many steps are one call of it. Order and shifts
of an epoch are a function of its seed, rate and weight of the steps that the optimizer has made: training that is
stopped and continued gives the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TypeAlias

import keras
import tensorflow as tf

from ..layers.posterior import bayesian_layers
from .recipes.classification import Examples, has_probabilities
from .schedule import falling

__all__ = [
    "EpochFunction",
    "OfStep",
    "epoch_function",
    "falling_rate",
    "flipped",
    "follow",
    "moved_batches",
    "shifted",
    "unfollow",
]

EpochFunction: TypeAlias = Callable[[tf.Tensor], tuple[float, float]]
OfStep: TypeAlias = Callable[[tf.Tensor], tf.Tensor | float]
"""A function of the number of a step, float32 []."""

_STEPS_PER_CALL = 50
_OF_BATCHES = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


def follow(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    loss: object,
    *,
    metrics: object = None,
    learning_rate: OfStep | None = None,
    kl_weight: OfStep | None = None,
    teach: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> None:
    """Compile a network, so that from now on each step of its `fit` sets learning rate and weight of the KL first.

    :param optimizer: steps are those that it has made.
    :param loss: as `metrics` for `keras.Model.compile`.
    :param learning_rate: of a step; None leaves it to the optimizer.
    :param kl_weight: of a step; not used for a plain network.
    :param teach: (inputs, outputs) to the loss of a batch, [], in place of `loss`.
    :param callbacks: that `fit` will have: one that looks at batches is called for each.
    """
    unfollow(model)
    layers = bayesian_layers(model)
    # The optimizer that counts steps, and how many of them are one call of the graph.
    inner = _inner(optimizer)
    looks_at_batches = any(_is_own(callback, name) for callback in callbacks for name in _OF_BATCHES)
    # Keras cannot compile several steps of replicas in one call.
    steps = 1 if looks_at_batches or tf.distribute.has_strategy() else _STEPS_PER_CALL
    model.compile(optimizer, loss, metrics=metrics, steps_per_execution=steps, jit_compile=False)

    def train_step(data: tuple[tf.Tensor, ...]) -> dict[str, tf.Tensor]:
        # Rate and weight of this step, then Keras' own step.
        step = tf.cast(inner.iterations, tf.float32)
        if learning_rate is not None:
            inner.learning_rate.assign(learning_rate(step))
        if kl_weight is not None and layers:
            weight = kl_weight(step)
            for layer in layers:
                layer.kl_weight.assign(weight)
        return type(model).train_step(model, data)

    model.train_step = train_step
    if teach is not None:
        model.compute_loss = functools.partial(_taught_loss, model, teach)


def unfollow(model: keras.Model) -> None:
    """Steps are Keras's own again, once the network is compiled anew."""
    for name in ("train_step", "compute_loss"):
        vars(model).pop(name, None)


def _taught_loss(
    model: keras.Model,
    teach: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    x: tf.Tensor,
    y: tf.Tensor,
    y_pred: tf.Tensor,
    *_: object,
    **__: object,
) -> tf.Tensor:
    """As `keras.Model.compute_loss` is called."""
    return tf.add_n([teach(x, y_pred), *model.losses])


def _inner(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The optimizer itself, or that in one which scales the loss of half precision."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _is_own(callback: keras.callbacks.Callback, name: str) -> bool:
    return name in vars(callback) or getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name)


def falling_rate(
    optimizer: keras.optimizers.Optimizer, steps: int, *, decay: str = "cosine", decay_from: float
) -> OfStep | None:
    """The learning rate that an optimizer has now as it falls to 0 over so many steps; None if it has its own schedule.

    :param decay: as `decay_from` in :func:`compression.train.schedule.falling`.
    """
    inner = _inner(optimizer)
    # A schedule of the user's own stays.
    if isinstance(inner.get_config()["learning_rate"], dict):
        return None
    peak = float(inner.learning_rate)
    return lambda step: peak * falling(step / steps, decay=decay, decay_from=decay_from)


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
    """A function of a seed, int32 [2], that makes one pass over the examples.

    The loss of a batch is the mean negative log-likelihood plus what layers add to it: Bayesian ones kl_weight * KL /
    N. What is left over after the last whole batch is not used. It returns the mean negative log-likelihood, in nats,
    and the part of the examples for which the network was wrong, between 0 and 1; both as the network was when it saw
    the batch.

    :param optimizer: built for the trainable variables of `model`; steps are those that it has made.
    :param learning_rate: of a step.
    :param kl_weight: of a step; not used for a plain network.
    :param shift: see :func:`shifted`; 0 for none.
    :param flip: see :func:`flipped`. Inputs have to be images for them.
    :param strategy: of `tf.distribute`: its replicas share the rows of each batch, and do what one device does with all
        of them. Model and optimizer have to be made in its scope.
    :param teach: (inputs, outputs) to the loss of a batch, [], in place of the mean negative log-likelihood of labels,
        which is returned as before.
    """
    likelihood = {"from_logits": not has_probabilities(model)}
    num_steps = len(examples.X) // batch_size
    # The loss of labels, to which layers add their KL; both metrics as the network was in each batch.
    with nullcontext() if strategy is None else strategy.scope():
        nll = keras.metrics.SparseCategoricalCrossentropy(name="nll", **likelihood)
        follow(
            model,
            optimizer,
            keras.losses.SparseCategoricalCrossentropy(**likelihood),
            metrics=[nll, keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            learning_rate=learning_rate,
            kl_weight=kl_weight,
            teach=teach,
        )

    def run_epoch(seed: tf.Tensor) -> tuple[float, float]:
        # The order of the examples, and the moves of each batch, are functions of the seed.
        order = tf.random.experimental.stateless_shuffle(tf.range(len(examples.X)), seed)

        def batch(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            i = tf.cast(number, tf.int32)
            rows = tf.reshape(order[i * batch_size : (i + 1) * batch_size], [batch_size])
            X = tf.gather(examples.X, rows)
            labels = tf.gather(examples.labels, rows)
            if shift:
                X = shifted(X, shift, tf.random.fold_in(seed, i))
            if flip:
                X = flipped(X, tf.random.fold_in(tf.random.fold_in(seed, num_steps), i))
            return X, labels

        # Batches are made by their numbers, so that nothing depends on what was read before.
        history = model.fit(tf.data.Dataset.range(num_steps).map(batch).prefetch(2), shuffle=False, verbose=0).history
        return history["nll"][-1], 1.0 - history["accuracy"][-1]

    return run_epoch


def shifted(X: tf.Tensor, most: int, seed: tf.Tensor) -> tf.Tensor:
    """Each of the images [n, height, width, channels] moved by up to `most` pixels; what is at the edge is repeated.

    :param seed: int32 [2]; the moves, equally likely ones for each image, are a function of it.
    :return: of the shape and dtype of `X`.
    """
    height, width = X.shape[1:3]
    # Moves of each image in both directions.
    offsets = tf.random.stateless_uniform([2, tf.shape(X)[0], 1], seed, -most, most + 1, tf.int32)
    # Rows, then columns, by indices that stop at the edge.
    X = tf.gather(X, tf.clip_by_value(tf.range(height) + offsets[0], 0, height - 1), axis=1, batch_dims=1)
    return tf.gather(X, tf.clip_by_value(tf.range(width) + offsets[1], 0, width - 1), axis=2, batch_dims=1)


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
