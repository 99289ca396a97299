"""A trained Keras model made small in one call: any loss, metrics, optimizer and callbacks; arrays or Datasets.

    small = fit(model, x, y, loss="mse", validation_data=(x_valid, y_valid))

The model goes through three phases (Louizos et al. 2017, Sec. 5, and one more): it becomes Bayesian around its weights
and is trained with a KL whose weight grows, losing units on the way; what is left becomes a plain network; and that is
trained for a while without noise and KL. Units go only where the loss on the validation data hardly rises.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from .callbacks import KLWarmup, ShrinkDuringTraining
from .convert import compress
from .graph import graph_of
from .shrink import NothingLeftError, shrink
from .thresholds import Thresholds, checked_thresholds

__all__ = ["fit"]

LOG = logging.getLogger(__name__)
STEPS = 8_000
"""Steps of the Bayesian phase if its epochs are not given; half as many of the last phase."""

KL_WEIGHTS = (1.0, 0.3, 0.1, 0.03)
"""Weights of the KL to try, one after the other."""

_ROWS = 1024
_CHUNKS = 50
_TOLERANCE = 0.25  # standard errors of the validation loss that a removal may add


class Likelihood(NamedTuple):
    """What a loss says of the density of the targets.

    :ivar terms: numbers that Keras averages for one example; the negative log-likelihood of the example is their sum.
    :ivar noise: of a loss that is a likelihood only with a width of the noise: name of the metric that estimates it.
    :ivar factor: the loss times this and over that metric is the negative log-likelihood.
    """

    terms: int
    noise: str | None = None
    factor: float = 1.0


class LearntNoise(KLWarmup):
    """Warm-up of the KL for a loss without the width of the noise, which is learnt.

    With a Gaussian likelihood of variance s, the bound is -N P (mse / (2 s) + log(2 pi s) / 2) - KL for N examples of P
    targets. For given weights the best s is the mean squared error; and for given s the bound is highest where
    mse + 2 s KL / (N P) is lowest. So s is the mean squared error of the last epoch, and 2 s / P the weight of the KL.
    In the same way a Laplace likelihood has the mean absolute error in place of 2 s.
    """

    def __init__(self, epochs: float, likelihood: Likelihood, start: float, weight: float) -> None:
        super().__init__(epochs, weight)
        self.likelihood, self.noise = likelihood, start

    def weight_at(self, epoch: float) -> float:
        """Weight of the KL after `epoch` epochs."""
        return super().weight_at(epoch) * self.noise / (self.likelihood.factor * self.likelihood.terms)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """For Keras: the width of the noise from the errors of the epoch."""
        name = self.likelihood.noise
        if name is not None and math.isfinite(value := float((logs or {}).get(name, math.nan))):
            self.noise = max(value, 1e-12)


class Examples(NamedTuple):
    """Training data as `keras.Model.fit` takes them, their number, and validation data as arrays."""

    train: dict[str, Any]
    num_train: int
    valid: tuple[np.ndarray, np.ndarray]


def fit(
    model: keras.Model,
    x: Any,
    y: Any = None,
    *,
    loss: Any,
    metrics: Any = None,
    optimizer: Any = "adam",
    validation_data: Any = None,
    validation_split: float = 0.1,
    batch_size: int = 32,
    epochs: int | None = None,
    last_epochs: int | None = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    prior: str = "gnj",
    kl_weight: float | Sequence[float] = KL_WEIGHTS,
    seed: int = 0,
    verbose: Any = 0,
    **settings: Any,
) -> keras.Model:
    """A smaller plain model that does what a trained one does; `model` is not changed.

    :param model: a trained Sequential or functional model, see `compress`.
    :param x: inputs [N, ...]; or a finite `tf.data.Dataset` of batches of inputs and targets, without `y`.
    :param y: targets [N, ...].
    :param loss: any Keras loss, or function of targets and outputs. Mean squared errors are taken for a Gaussian
        likelihood and mean absolute errors for a Laplace one, whose width is learnt; cross-entropies and the Poisson
        loss are likelihoods; any other loss is taken for a negative log-likelihood in nats per example.
    :param metrics: as for `keras.Model.compile`. :param optimizer: of both phases, with its learning rate, which falls
        to 0 over the second half of each.
    :param validation_data: inputs and targets, or a Dataset, by which units to remove and the last epoch are chosen.
    :param validation_split: share of the examples, the last ones, that is set aside if there are none.
    :param batch_size: examples in a step, of arrays.
    :param epochs: of the Bayesian phase; enough for 8,000 steps if not given, and from 20 to 500.
    :param last_epochs: of the last phase; half as many if not given; 0 for none.
    :param callbacks: for `keras.Model.fit` in both phases, with each weight of the KL that is tried.
    :param prior: see `compress`.
    :param kl_weight: 1 is the variational bound; less keeps more. Of several weights the first is taken with which the
        validation loss rises by less than half a standard error; if there is none, that of the lowest validation loss.
    :param seed: of the noise. Set Keras' seed for the order of the examples: `keras.utils.set_random_seed`.
    :param verbose: for `keras.Model.fit`.
    :param settings: of the Bayesian layers, such as `scale_speed`.
    :return: the plain model, compiled with loss and metrics. Write it with `pack`.
    :raises ValueError: if the model cannot be compressed, there are no validation data, or nothing is left.
    """
    graph_of(model)
    data = _examples(x, y, validation_data, validation_split, batch_size)
    steps = max(1, math.ceil(data.num_train / batch_size))
    epochs = min(max(20, math.ceil(STEPS / steps)), 500) if epochs is None else epochs
    last_epochs = epochs // 2 if last_epochs is None else last_epochs
    weights = [kl_weight] if isinstance(kl_weight, float | int) else list(kl_weight)
    if not weights:
        raise ValueError("kl_weight must be a number or several, got none.")
    likelihood = _likelihood(loss, model.output_shape)
    loss_of = _loss_of(loss, data.valid)
    before = loss_of(model)
    most = float(np.mean(before)) + 0.5 * _standard_error(before)
    rate = keras.optimizers.get(optimizer)
    speed = math.sqrt(8.0) if isinstance(rate, keras.optimizers.SGD) else 8.0  # which acts twice on a plain gradient
    options = {"scale_speed": speed, "initial_log_std": -6.0, **settings}
    noise = _errors(model, data.valid, likelihood) if likelihood.noise else 1.0

    def checked(network: keras.Model) -> Thresholds:
        now = loss_of(network)
        tolerance, error = _TOLERANCE * _standard_error(now), float(np.mean(now))
        return checked_thresholds(network, lambda n: float(np.mean(loss_of(n))), tolerance=tolerance, error=error)

    def made_small(weight: float) -> keras.Model:
        bayesian = compress(model, num_train=data.num_train, prior=prior, seed=seed, **options)
        _compile(bayesian, rate, loss, metrics, likelihood)
        warmup = LearntNoise(0.3 * epochs, likelihood, noise, weight)
        every = max(1, epochs // 10)
        shrinking = ShrinkDuringTraining(start=math.ceil(0.4 * epochs), every=every, thresholds=checked)
        bayesian, _ = shrinking.fit(
            bayesian, **data.train, epochs=epochs, verbose=verbose, callbacks=[*callbacks, warmup, _Falling(epochs)]
        )
        small = shrink(bayesian, checked(bayesian))
        _compile(small, rate, loss, metrics, None)
        if last_epochs:
            best = _Best(loss_of)
            last = [*callbacks, _Falling(last_epochs), best]
            small.fit(**data.train, epochs=last_epochs, verbose=verbose, callbacks=last)
            best.restore(small)
        return small

    found: list[tuple[float, keras.Model]] = []
    for weight in weights:
        try:
            small = made_small(weight)
        except NothingLeftError as error:
            LOG.info("KL of weight %g: %s", weight, error)
            continue
        found.append((float(np.mean(loss_of(small))), small))
        LOG.info(
            "KL of weight %g: %d of %d parameters are left, validation loss %.6g (before %.6g)",
            *(weight, small.count_params(), model.count_params(), found[-1][0], float(np.mean(before))),
        )
        if found[-1][0] <= most:
            return small
    if not found:
        raise NothingLeftError(
            f"with kl_weight {', '.join(f'{weight:g}' for weight in weights)} a layer is pruned to nothing; give less."
        )
    return min(found, key=lambda pair: pair[0])[1]


class _Falling(keras.callbacks.Callback):
    """The learning rate falls over the second half of the epochs, unless the optimizer has a schedule of its own."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self._epochs = epochs
        self._peak: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        optimizer = self.model.optimizer
        if isinstance(optimizer.get_config()["learning_rate"], dict):
            return
        if self._peak is None:
            self._peak = float(optimizer.learning_rate)
        optimizer.learning_rate = self._peak * 0.5 * (1 + math.cos(math.pi * max(0.0, 2 * epoch / self._epochs - 1)))


class _Best(keras.callbacks.Callback):
    """Keeps the weights of the lowest validation loss, those before training included."""

    def __init__(self, loss_of: Callable[[keras.Model], np.ndarray]) -> None:
        super().__init__()
        self._loss_of, self._lowest = loss_of, math.inf
        self._weights: list[np.ndarray] | None = None

    def _look(self) -> None:
        if (value := float(np.mean(self._loss_of(self.model)))) < self._lowest:
            self._lowest, self._weights = value, self.model.get_weights()

    def on_train_begin(self, logs: Any = None) -> None:
        self._look()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._look()

    def restore(self, model: keras.Model) -> None:
        if self._weights is not None:
            model.set_weights(self._weights)


def _compile(model: keras.Model, optimizer: Any, loss: Any, metrics: Any, likelihood: Likelihood | None) -> None:
    """With copies of the metrics' states to themselves, and the error that estimates the noise."""
    wanted = [*keras.tree.flatten(metrics)] if metrics is not None else []
    if likelihood is not None and likelihood.noise:
        kinds = {"noise_variance": keras.metrics.MeanSquaredError, "noise_width": keras.metrics.MeanAbsoluteError}
        wanted.append(kinds[likelihood.noise](name=likelihood.noise))
    copy = type(optimizer).from_config(optimizer.get_config())
    model.compile(copy, loss, metrics=wanted or None)


def _examples(x: Any, y: Any, validation_data: Any, validation_split: float, batch_size: int) -> Examples:
    if isinstance(x, tf.data.Dataset):
        if validation_data is None:
            raise ValueError("validation_data must be given with a Dataset; a part of arrays would be set aside.")
        if int(x.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise ValueError("x must be a Dataset that ends, such as one pass over the examples; leave out repeat().")
        count = sum(len(batch[0]) for batch in x)
        return Examples({"x": x, "shuffle": False}, count, _arrays(validation_data))
    X, Y = np.asarray(x), np.asarray(y)
    if y is None or len(X) != len(Y) or len(X) < 2:
        raise ValueError(f"x and y must have equally many examples, at least 2, got {X.shape} and {Y.shape}.")
    if validation_data is not None:
        return Examples({"x": X, "y": Y, "batch_size": batch_size}, len(X), _arrays(validation_data))
    if not 0 < validation_split < 1:
        raise ValueError(f"validation_split must be between 0 and 1, got {validation_split}; or give validation_data.")
    left = max(1, min(len(X) - 1, round(len(X) * (1 - validation_split))))
    return Examples({"x": X[:left], "y": Y[:left], "batch_size": batch_size}, left, (X[left:], Y[left:]))


def _arrays(data: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(data, tf.data.Dataset):
        batches = [(np.asarray(batch[0]), np.asarray(batch[1])) for batch in data]
        X, Y = (np.concatenate(part) for part in zip(*batches, strict=True))
    else:
        X, Y = np.asarray(data[0]), np.asarray(data[1])
    if len(X) != len(Y) or not len(X):
        raise ValueError(f"validation_data must have equally many inputs and targets, got {X.shape} and {Y.shape}.")
    return X, Y


def _likelihood(loss: Any, output_shape: tuple[int | None, ...]) -> Likelihood:
    """By the kind of the loss: what Keras' losses average over, and whether they lack a width of the noise."""
    sizes = [1 if size is None else size for size in output_shape[1:]]
    found = keras.losses.get(loss)
    kind = found.name if isinstance(found, keras.losses.Loss) else getattr(found, "__name__", "")
    if kind in ("sparse_categorical_crossentropy", "categorical_crossentropy"):
        return Likelihood(math.prod(sizes[:-1]))
    if kind in ("binary_crossentropy", "poisson"):
        return Likelihood(math.prod(sizes))
    if kind == "mean_squared_error":
        return Likelihood(math.prod(sizes), "noise_variance", 0.5)
    if kind == "mean_absolute_error":
        return Likelihood(math.prod(sizes), "noise_width")
    return Likelihood(1)


def _outputs(model: keras.Model, X: np.ndarray) -> tf.Tensor:
    return tf.concat([model(X[i : i + _ROWS], training=False) for i in range(0, len(X), _ROWS)], axis=0)


def _num_chunks(valid: tuple[np.ndarray, np.ndarray]) -> int:
    return min(_CHUNKS, len(valid[0]))


def _loss_of(loss: Any, valid: tuple[np.ndarray, np.ndarray]) -> Callable[[keras.Model], np.ndarray]:
    """A function of a network: its loss on parts of the validation data, whose spread is that of examples."""
    of, (X, Y) = keras.losses.get(loss), valid
    rows = np.array_split(np.arange(len(X)), _num_chunks(valid))

    def values(model: keras.Model) -> np.ndarray:
        outputs = _outputs(model, X)
        return np.array([float(tf.reduce_mean(of(Y[part], tf.gather(outputs, part)))) for part in rows])

    return values


def _standard_error(values: np.ndarray) -> float:
    """Of the mean of a loss, from its values on parts of the data."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _errors(model: keras.Model, valid: tuple[np.ndarray, np.ndarray], likelihood: Likelihood) -> float:
    """Width of the noise to begin with: the errors of the trained network."""
    X, Y = valid
    errors = np.asarray(_outputs(model, X), np.float64)
    errors = errors - Y.reshape(errors.shape)
    return max(1e-12, float(np.mean(errors**2 if likelihood.noise == "noise_variance" else np.abs(errors))))
