"""A trained Keras model made small in one call: any loss, metrics, optimizer and callbacks; arrays or Datasets.

    small = fit(model, x, y, loss="mse", validation_data=(x_valid, y_valid))
    small = fit(model, x, y, loss="mse", validation_data=(x_valid, y_valid), method="magnitude", keep=0.02, values=16)

By the first the model goes through three phases (Louizos et al. 2017, Sec. 5, and one more): it becomes Bayesian around
its weights and is trained with a KL whose weight grows, losing units on the way; what is left becomes a plain network;
and that is trained for a while without noise and KL. Units go only where the loss on the validation data hardly rises.

By the second it loses single weights, the smallest, while it trains; then the others are trained on, and at last with a
few values that they share. Zeros save no time, but more bytes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import keras
import numpy as np

from .callbacks import ShrinkDuringTraining
from .container import kernels_of
from .convert import compress
from .graph import graph_of
from .held_out import TrainingData, examples_of, loss_of, outputs_of, standard_error
from .last_phase import Falling, compiled, train_plain
from .likelihood import LearntNoise, likelihood_of, noise_of
from .magnitude import MagnitudePruning
from .rebuild import copy_of
from .sharing import ValueSharing, free
from .shrink import NothingLeftError, shrink
from .thresholds import Thresholds, checked_thresholds

__all__ = ["fit"]

LOG = logging.getLogger(__name__)
STEPS = 8_000
"""Steps of the Bayesian phase if its epochs are not given; half as many of the last phase."""

KL_WEIGHTS = (1.0, 0.3, 0.1, 0.03)
"""Weights of the KL to try, one after the other."""

KEEP = (0.02, 0.05, 0.1, 0.2)
"""Parts of the weights to try to keep, one after the other."""

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
    method: Literal["bayesian", "magnitude"] = "bayesian",
    prior: str = "gnj",
    kl_weight: float | Sequence[float] = KL_WEIGHTS,
    keep: float | Sequence[float] = KEEP,
    values: int | None = None,
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
    :param epochs: of the Bayesian or pruning phase; enough for 8,000 steps if not given, and from 20 to 500.
    :param last_epochs: of the last phase; half as many if not given; 0 for none.
    :param callbacks: for `keras.Model.fit` in both phases, with each weight of the KL that is tried.
    :param method: "bayesian", which removes units, or "magnitude", which sets single weights to 0.
    :param prior: see `compress`.
    :param kl_weight: 1 is the variational bound; less keeps more. Of several weights the first is taken with which the
        validation loss rises by less than half a standard error; if there is none, that of the lowest validation loss.
    :param keep: by "magnitude", part of the weights that is left; of several one is taken as of weights of the KL.
    :param values: by "magnitude", how many values the weights of a layer share in the end, besides 0; as many as there
        are weights if not given.
    :param seed: of the noise. Set Keras' seed for the order of the examples: `keras.utils.set_random_seed`.
    :param verbose: for `keras.Model.fit`.
    :param settings: of the Bayesian layers, such as `scale_speed`.
    :return: the plain model, compiled with loss and metrics. Write it with `pack`.
    :raises ValueError: if the model cannot be compressed, there are no validation data, or nothing is left.
    """
    graph_of(model)
    if method not in ("bayesian", "magnitude"):
        raise ValueError(f'method must be "bayesian" or "magnitude", got {method!r}.')
    data = examples_of(x, y, validation_data, validation_split, batch_size)
    steps = max(1, math.ceil(data.num_train / batch_size))
    epochs = min(max(20, math.ceil(STEPS / steps)), 500) if epochs is None else epochs
    last_epochs = epochs // 2 if last_epochs is None else last_epochs
    values_of, rate = loss_of(loss, data.valid), keras.optimizers.get(optimizer)
    name, given = ("kl_weight", kl_weight) if method == "bayesian" else ("keep", keep)
    choices = [given] if isinstance(given, float | int) else list(given)
    if not choices:
        raise ValueError(f"{name} must be a number or several, got none.")
    common = _Common(model, data, values_of, rate, loss, metrics, epochs, last_epochs, verbose, callbacks, seed)
    if method == "magnitude":
        if settings:
            raise ValueError(f"settings of Bayesian layers, {', '.join(settings)}, do nothing by method={method!r}.")
        return _first_good(common, name, choices, lambda part: _by_magnitude(common, part, values))
    return _first_good(common, name, choices, lambda weight: _by_posterior(common, prior, weight, settings))


class _Common(NamedTuple):
    """What both methods are told, see `fit`."""

    model: keras.Model
    data: TrainingData
    values_of: Callable[[keras.Model], np.ndarray]
    optimizer: keras.optimizers.Optimizer
    loss: Any
    metrics: Any
    epochs: int
    last_epochs: int
    verbose: Any
    callbacks: Sequence[keras.callbacks.Callback]
    seed: int

    def train_last(self, model: keras.Model, epochs: int, start: float = 0.5) -> None:
        """The last phase."""
        compiled(model, self.optimizer, self.loss, self.metrics, None)
        train_plain(
            *(model, self.data, self.values_of, epochs),
            start=start,
            verbose=self.verbose,
            callbacks=self.callbacks,
        )


def _by_posterior(common: _Common, prior: str, weight: float, settings: dict[str, Any]) -> keras.Model:
    """The plain network that a KL of this weight leaves."""
    model, data, epochs, values_of = common.model, common.data, common.epochs, common.values_of
    likelihood = likelihood_of(common.loss, model.output_shape)
    noise = noise_of(outputs_of(model, data.valid[0]), data.valid[1], likelihood) if likelihood.noise else 1.0
    speed = math.sqrt(8.0) if isinstance(common.optimizer, keras.optimizers.SGD) else 8.0  # SGD: acts twice
    options = {"scale_speed": speed, "initial_log_std": -6.0, **settings}

    def checked(network: keras.Model) -> Thresholds:
        now = values_of(network)
        tolerance, error = _TOLERANCE * standard_error(now), float(np.mean(now))
        return checked_thresholds(network, lambda n: float(np.mean(values_of(n))), tolerance=tolerance, error=error)

    bayesian = compress(model, num_train=data.num_train, prior=prior, seed=common.seed, **options)
    compiled(bayesian, common.optimizer, common.loss, common.metrics, likelihood)
    callbacks = [*common.callbacks, LearntNoise(0.3 * epochs, likelihood, noise, weight), Falling(epochs)]
    shrinking = ShrinkDuringTraining(start=math.ceil(0.4 * epochs), every=max(1, epochs // 10), thresholds=checked)
    bayesian, _ = shrinking.fit(bayesian, **data.train, epochs=epochs, verbose=common.verbose, callbacks=callbacks)
    small = shrink(bayesian, checked(bayesian))
    common.train_last(small, common.last_epochs)
    return small


def _by_magnitude(common: _Common, part: float, values: int | None) -> keras.Model:
    """The network with this part of its weights, which share `values` values if that is given."""
    model = copy_of(common.model)
    compiled(model, common.optimizer, common.loss, common.metrics, None)
    pruning = MagnitudePruning(model, keep=part, epochs=0.9 * common.epochs)
    callbacks = [*common.callbacks, pruning]
    model.fit(**common.data.train, epochs=common.epochs, verbose=common.verbose, callbacks=callbacks)
    common.train_last(model, common.last_epochs, start=0.0)
    small = shrink(model, keep_inputs=True)
    if values is not None:
        drawn = max(1, common.last_epochs // 4)
        epochs = drawn + max(1, drawn // 3)
        sharing = ValueSharing(small, values, epochs=drawn, seed=common.seed)
        compiled(small, common.optimizer, common.loss, common.metrics, None)
        callbacks = [*common.callbacks, sharing, Falling(epochs, 0.3)]
        small.fit(**common.data.train, epochs=epochs, verbose=common.verbose, callbacks=callbacks)
    free(small)
    compiled(small, common.optimizer, common.loss, common.metrics, None)
    return small


def _first_good(
    common: _Common, name: str, choices: Sequence[float], made_small: Callable[[float], keras.Model]
) -> keras.Model:
    """The network of the first choice with which the validation loss hardly rises, else that of the lowest one."""
    before = common.values_of(common.model)
    most = float(np.mean(before)) + 0.5 * standard_error(before)
    found: list[tuple[float, keras.Model]] = []
    for choice in choices:
        try:
            small = made_small(choice)
        except NothingLeftError as error:
            LOG.info("%s %g: %s", _SHOWN[name], choice, error)
            continue
        found.append((float(np.mean(common.values_of(small))), small))
        weights = sum(int(np.count_nonzero(kernel)) for kernel in kernels_of(small))
        LOG.info(
            "%s %g: %d of %d parameters are left, %d weights are not 0, validation loss %.6g (before %.6g)",
            *(_SHOWN[name], choice, small.count_params(), common.model.count_params(), weights, found[-1][0]),
            float(np.mean(before)),
        )
        if found[-1][0] <= most:
            return small
    if not found:
        tried = ", ".join(f"{choice:g}" for choice in choices)
        raise NothingLeftError(f"with {name} {tried} a layer is pruned to nothing; give {_MILDER[name]}.")
    return min(found, key=lambda pair: pair[0])[1]


_SHOWN = {"kl_weight": "KL of weight", "keep": "kept part"}
_MILDER = {"kl_weight": "less", "keep": "more"}
