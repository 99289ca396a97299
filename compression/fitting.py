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
from typing import Any

import keras
import numpy as np

from .callbacks import ShrinkDuringTraining
from .convert import compress
from .graph import graph_of
from .held_out import examples_of, loss_of, outputs_of, standard_error
from .likelihood import LearntNoise, Likelihood, likelihood_of, noise_of
from .shrink import NothingLeftError, shrink
from .thresholds import Thresholds, checked_thresholds

__all__ = ["fit"]

LOG = logging.getLogger(__name__)
STEPS = 8_000
"""Steps of the Bayesian phase if its epochs are not given; half as many of the last phase."""

KL_WEIGHTS = (1.0, 0.3, 0.1, 0.03)
"""Weights of the KL to try, one after the other."""

_TOLERANCE = 0.25  # standard errors of the validation loss that a removal may add


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
    :param x: inputs [N, ...], of several inputs nested as the model takes them; or a finite `tf.data.Dataset` of
        batches of inputs and targets, without `y`.
    :param y: targets [N, ...], of several outputs nested as the model gives them.
    :param loss: any Keras loss, or function of targets and outputs. Mean squared errors are taken for a Gaussian
        likelihood and mean absolute errors for a Laplace one, whose width is learnt; cross-entropies and the Poisson
        loss are likelihoods; any other loss is taken for a negative log-likelihood in nats per example. So is, of
        several outputs, the sum of their losses: one for all, or a list or dictionary of one for each.
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
    data = examples_of(x, y, validation_data, validation_split, batch_size)
    steps = max(1, math.ceil(data.num_train / batch_size))
    epochs = min(max(20, math.ceil(STEPS / steps)), 500) if epochs is None else epochs
    last_epochs = epochs // 2 if last_epochs is None else last_epochs
    weights = [kl_weight] if isinstance(kl_weight, float | int) else list(kl_weight)
    if not weights:
        raise ValueError("kl_weight must be a number or several, got none.")
    likelihood = likelihood_of(loss, model.output_shape)
    values_of = loss_of(loss, data.valid)
    before = values_of(model)
    most = float(np.mean(before)) + 0.5 * standard_error(before)
    rate = keras.optimizers.get(optimizer)
    speed = math.sqrt(8.0) if isinstance(rate, keras.optimizers.SGD) else 8.0  # which acts twice on a plain gradient
    options = {"scale_speed": speed, "initial_log_std": -6.0, **settings}
    noise = noise_of(outputs_of(model, data.valid[0]), data.valid[1], likelihood) if likelihood.noise else 1.0

    def checked(network: keras.Model) -> Thresholds:
        now = values_of(network)
        tolerance, error = _TOLERANCE * standard_error(now), float(np.mean(now))
        return checked_thresholds(network, lambda n: float(np.mean(values_of(n))), tolerance=tolerance, error=error)

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
            best = _Best(values_of)
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
        found.append((float(np.mean(values_of(small))), small))
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
    """With an optimizer of its own, and the error that estimates the noise."""
    if likelihood is not None and likelihood.noise:
        kinds = {"noise_variance": keras.metrics.MeanSquaredError, "noise_width": keras.metrics.MeanAbsoluteError}
        given = [] if metrics is None else keras.tree.flatten(metrics)
        metrics = [*given, kinds[likelihood.noise](name=likelihood.noise)]
    copy = type(optimizer).from_config(optimizer.get_config())
    model.compile(copy, loss, metrics=metrics)
