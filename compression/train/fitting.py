"""A trained Keras model made small in one call: any loss, metrics, optimizer and callbacks; arrays or Datasets.

    small = fit(model, x, y, loss="mse", validation_data=(x_valid, y_valid))
    small = fit(model, x, y, loss="mse", validation_data=(x_valid, y_valid), method=Magnitude(keep=0.02, values=16))

By the first the model goes through the phases of a `compression.Recipe` (Louizos et al. 2017, Sec. 5, and two more): it
becomes Bayesian around its weights and is trained with a KL whose weight is raised step by step, losing units on the
way; what is left is polished with a smaller weight, if that is wanted, and becomes a plain network; and that is trained
for a while without noise and KL. Units go only where the loss on the validation data hardly rises.

By the second it loses single weights, the smallest, while it trains; then the others are trained on, and at last with a
few values that they share. Zeros save no time, but more bytes.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import keras
import numpy as np

from gpflow_deep_base import cost
from gpflow_deep_base.numbers.scores import standard_error

from ..files.container import check_storable, kernels_of
from ..graph.graph import graph_of
from ..graph.kinds import check_trainable
from ..graph.portable import portable
from ..graph.rebuild import copy_of
from ..graph.removal.shrink import NothingLeftError, shrink
from ..layers.thresholds import Thresholds, checked_thresholds
from .held_out import examples_of, loss_of
from .keras_training import KerasTraining, Left
from .magnitude import MagnitudePruning
from .methods import Bayesian, Magnitude, method_of
from .recipes.phases import ThresholdsOf
from .schedule import EndingConfig, PruningConfig, RecipeConfig
from .sharing import ValueSharing, free

__all__ = ["fit", "fit_recipe"]

LOG = logging.getLogger(__name__)
STEPS = 8_000
"""Steps of the Bayesian phase if its epochs are not given; half as many of the last phase."""

_TOLERANCE = 0.25  # standard errors of the validation loss that a removal may add
_APART = 0.25  # part of the parameters by which networks that are looked at differ
_TIMED_FROM = 2_000  # steps, of which some are timed before
_RAISED_FALLS_FROM = 0.6  # part of the epochs from which the learning rate falls, after the weight of the KL is raised


def fit(
    model: keras.Model,
    x: object,
    y: object = None,
    *,
    loss: object,
    metrics: object = None,
    optimizer: object = "adam",
    validation_data: object = None,
    validation_split: float = 0.1,
    batch_size: int = 32,
    epochs: int | None = None,
    last_epochs: int | None = None,
    max_steps: int | None = None,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    method: Literal["bayesian", "magnitude"] | Bayesian | Magnitude = "bayesian",
    seed: int = 0,
    verbose: object = 0,
    **others: object,
) -> keras.Model:
    """A smaller plain model that does what a trained one does; `model` is not changed.

        >>> import compression, keras, numpy as np
        >>> X = np.random.default_rng(0).normal(size=(200, 8)).astype("float32")
        >>> y = X[:, :1]  # the other inputs are not needed
        >>> network = keras.Sequential([keras.Input([8]), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
        >>> small = compression.fit(network, X, y, loss="mse", epochs=2)  # without it, 8,000 steps
        >>> small.count_params() <= network.count_params()
        True

    A warning says before the first step, and why, if `pack` will not write the result; and how many steps there will
    be, and about how long they take on this machine, if that is more than a minute.

    :param model: a trained Sequential or functional model, see `compress`.
    :param x: inputs [N, ...], of several inputs nested as the model takes them; or a finite `tf.data.Dataset` of
        batches of inputs and targets, without `y`.
    :param y: targets [N, ...], of several outputs nested as the model gives them.
    :param loss: any Keras loss, or function of targets and outputs. Mean squared errors are taken for a Gaussian
        likelihood and mean absolute errors for a Laplace one, whose width is learnt; cross-entropies and the Poisson
        loss are likelihoods; any other loss is taken for a negative log-likelihood in nats per example. So is, of
        several outputs, the sum of their losses: one for all, or a list or dictionary of one for each.
    :param metrics: as for `keras.Model.compile`.
    :param optimizer: of all phases, with its learning rate, which falls
        to 0 over the last phase, and over the second half of the Bayesian one.
    :param validation_data: inputs and targets, or a Dataset, by which units to remove and the last epoch are chosen.
    :param validation_split: share of the examples, the last ones, that is set aside if there are none.
    :param batch_size: examples in a step, of arrays.
    :param epochs: of the Bayesian or pruning phase; enough for 8,000 steps if not given, and from 20 to 500.
    :param last_epochs: of the last phase; half as many if not given; 0 for none.
    :param max_steps: of all phases together, at most; epochs that are not given become fewer.
    :param callbacks: for `keras.Model.fit` in all phases; one that looks at batches is called for each, which takes
        longer.
    :param method: "bayesian", which removes units, or "magnitude", which sets single weights to 0; or `Bayesian` and
        `Magnitude` with settings that are not the defaults, such as `Magnitude(keep=0.1)`.
    :param seed: of the noise. Set Keras' seed for the order of the examples: `keras.utils.set_random_seed`.
    :param verbose: 0, 1 or 2 for `keras.Model.fit`; unless it is 0, steps and seconds are printed before in any case.
    :param others: none; an error says which method has a setting of this name.
    :return: the plain model, of layers and operations of Keras alone, compiled with loss and metrics. Write it with
        `pack`, or save it as a .keras file.
    :raises ValueError: if the model cannot be compressed, such as a quantised one; data are missing, not finite, or no
        arrays or Dataset; `max_steps` are too few; or nothing is left.
    :raises TypeError: if there are other arguments.
    """
    # What cannot be trained, or read as data, is refused before the first step.
    way = method_of(method, others)
    check_trainable(graph_of(model))
    _warn_if_no_file(model)
    data = examples_of(x, y, validation_data, validation_split, batch_size)
    name, setting = ("kl_weight", way.kl_weight) if isinstance(way, Bayesian) else ("keep", way.keep)
    polish_epochs = way.polish_epochs if isinstance(way, Bayesian) else 0
    choices: list[float] = np.atleast_1d(setting).tolist()
    if not choices:
        raise ValueError(f"{name} must be a number or several, got none.")
    # How long it will be, which is said before the first step.
    plan = _planned(data.steps, len(choices), name, epochs, last_epochs, polish_epochs, max_steps)
    epochs = plan.epochs
    last_epochs = plan.last_epochs

    def tell(seconds: float | None) -> None:
        text = plan.text(seconds)
        if verbose:
            print(text, flush=True)
        elif seconds is not None and plan.steps * seconds > cost.LEAST_SECONDS:
            cost.tell(text)

    # A long Bayesian training times some steps first; others only say how many there are.
    is_timed = isinstance(way, Bayesian) and (verbose or plan.steps >= _TIMED_FROM)
    if not is_timed:
        tell(None)
    given_optimizer = keras.optimizers.get(optimizer)
    training = KerasTraining(
        data,
        loss_of(loss, data.valid),
        given_optimizer,
        loss,
        metrics=metrics,
        callbacks=callbacks or (),
        verbose=verbose,
        seed=seed,
        plan=tell if is_timed else None,
    )
    # By magnitude each part to keep is a training of its own, until one is good.
    if isinstance(way, Magnitude):
        by_part = functools.partial(_by_magnitude, training, model, epochs, last_epochs, way.values)
        return _first_good(training, model, name, choices, by_part)
    # The Bayesian way: a recipe of phases in proportion to the epochs.
    is_sgd = isinstance(given_optimizer, keras.optimizers.SGD)  # on which the factor acts twice
    config = RecipeConfig(
        prior=way.prior,
        epochs=epochs,
        warmup=0.3 * epochs,
        pruning=PruningConfig(shrink_from=math.ceil(0.4 * epochs), shrink_every=max(1, epochs // 10)),
        ending=EndingConfig(polish_epochs, way.polish_kl, last_epochs),
        decay_from=_RAISED_FALLS_FROM if len(choices) > 1 else RecipeConfig.decay_from,
        scale_speed=math.sqrt(8.0) if is_sgd else 8.0,
        initial_log_std=-6.0,
    )
    small = fit_recipe(
        config, training, model, choices, functools.partial(_checked, training.values_of), **way.settings
    )
    # What is left becomes layers and operations of Keras alone.
    plain = portable(small)
    if plain is not small:
        training.compile(plain)
    return plain


def _warn_if_no_file(model: keras.Model) -> None:
    """Before the first step, as training may take hours."""
    try:
        check_storable(model)
    except ValueError as error:
        LOG.warning(
            "pack() will refuse what fit() makes of this network; use pack_weights() or a .keras file. The cause: %s",
            error,
        )


def fit_recipe(
    config: RecipeConfig,
    training: KerasTraining,
    model: keras.Model,
    kl_weights: Sequence[float],
    checked: ThresholdsOf,
    **settings: Any,
) -> keras.Model:
    """What all phases but the plain one make of a trained model: the most of the KL that does no harm.

    :param checked, settings: see :meth:`KerasTraining.left_of`.
    """
    # One training raises the KL from the lowest weight on; the last phase is for each network that is looked at.
    weights = sorted({float(weight) for weight in kl_weights})
    config = replace(config, kl_weight=weights[0])
    config = replace(config, ending=replace(config.ending, polish_kl=min(weights[-1], config.ending.polish_kl)))
    trial = _Trial(training, model)
    # All of the Bayesian phase, and of what was left on the way those that differ much.
    left = training.left_of(config, weights, model, checked, **settings)
    if not left:
        raise _nothing_left("kl_weight", weights[::-1])
    left = _apart(left)
    # The last one, or else by halves the one that went farthest and does no harm.
    low = -1
    place = len(left) - 1
    high = len(left)
    for _ in weights:
        training.train_last(
            left[place].model, config.ending.last_epochs, is_normalized=config.ending.last_normalization
        )
        if trial.is_good("kl_weight", *left[place]):
            low = place
        else:
            high = place
        if high - low < 2:
            break
        place = (low + high) // 2
    return trial.best()


def _apart(left: Sequence[Left]) -> list[Left]:
    """Of networks in the order of the training those a quarter smaller than the ones before, the first and the last."""
    # From the end of the training back.
    apart = [left[-1]]
    for earlier in left[-2::-1]:
        if earlier is left[0] or (1 - _APART) * earlier.model.count_params() >= apart[-1].model.count_params():
            apart.append(earlier)
    return apart[::-1]


class _Plan(NamedTuple):
    """How long a training will be."""

    epochs: int
    last_epochs: int
    steps: int
    name: str
    choices: int

    def text(self, seconds: float | None) -> str:
        """In a line.

        :param seconds: of a step.
        """
        time = "" if seconds is None else f", about {self.steps * seconds:.0f} s on this machine"
        return (
            f"fit() makes at most {self.steps} steps{time}: {self.epochs} epochs and {self.last_epochs} last ones for "
            f"{self.choices} values of {self.name}; max_steps= makes them fewer"
        )


def _planned(
    steps: int,
    choices: int,
    name: str,
    epochs: int | None,
    last_epochs: int | None,
    polish_epochs: int,
    max_steps: int | None,
) -> _Plan:
    """Epochs that are not given, and all steps.

    :param steps: of an epoch.
    :raises ValueError: if a number is out of range, or there are more than `max_steps` whatever is chosen.
    """
    if (epochs is not None and epochs < 1) or (last_epochs is not None and last_epochs < 0):
        raise ValueError(f"epochs must be at least 1, and last_epochs at least 0, got {epochs=}, {last_epochs=}.")
    trainings = choices if name == "keep" else 1

    def planned(number: int) -> _Plan:
        last = number // 2 if last_epochs is None else last_epochs
        total = steps * (trainings * (number + polish_epochs) + choices * last)
        return _Plan(number, last, total, name, choices)

    # Enough epochs for 8,000 steps, and fewer of them if all steps would be too many.
    plan = planned(min(max(20, math.ceil(STEPS / steps)), 500) if epochs is None else epochs)
    while max_steps is not None and plan.steps > max_steps:
        if epochs is not None or plan.epochs <= 1:
            raise ValueError(
                f"max_steps must be at least {plan.steps} for {plan.epochs} epochs and {choices} values of {name}, "
                f"got {max_steps}; allow more, or give fewer of them."
            )
        plan = planned(plan.epochs - 1)
    return plan


def _checked(values_of: Callable[[keras.Model], np.ndarray], network: keras.Model) -> Thresholds:
    """Automatic thresholds that the validation loss hardly feels."""
    # A quarter of a standard error is hardly felt.
    losses = values_of(network)
    tolerance = _TOLERANCE * standard_error(losses, of_one=0.0)
    error = float(np.mean(losses))
    return checked_thresholds(network, lambda n: float(np.mean(values_of(n))), tolerance=tolerance, error=error)


def _by_magnitude(
    training: KerasTraining, given: keras.Model, epochs: int, last_epochs: int, values: int | None, part: float
) -> keras.Model:
    """The network with this part of its weights, which share `values` values if that is given."""
    # Set the smallest weights to 0 on the way, then train on those that are left.
    model = copy_of(given)
    training.train(model, epochs, MagnitudePruning(model, keep=part, epochs=0.9 * epochs))
    training.train_last(model, last_epochs)
    small = shrink(model, keep_inputs=True)
    # Draw weights to values that they share, and train these.
    if values is not None:
        drawing_epochs = max(1, last_epochs // 4)
        total = drawing_epochs + max(1, drawing_epochs // 3)
        sharing = ValueSharing(small, values, epochs=drawing_epochs, seed=training.seed)
        training.train(small, total, sharing, decay_from=0.3)
    free(small)
    training.compile(small)
    return small


def _first_good(
    training: KerasTraining,
    model: keras.Model,
    name: str,
    choices: Sequence[float],
    made_small: Callable[[float], keras.Model],
) -> keras.Model:
    """The network of the first choice with which the validation loss hardly rises, else that of the lowest one."""
    trial = _Trial(training, model)
    for choice in choices:
        try:
            small = made_small(choice)
        except NothingLeftError as error:
            LOG.info("%s %g: %s", _SHOWN[name], choice, error)
            continue
        if trial.is_good(name, choice, small):
            break
    if not trial.tried:
        raise _nothing_left(name, choices)
    return trial.best()


class _Trial:
    """Small networks beside the one that was given, by the validation loss: half a standard error more is no harm.

    :ivar tried: the loss of each, and the network.
    """

    def __init__(self, training: KerasTraining, model: keras.Model) -> None:
        self._training = training
        self._given = model
        # The loss before, and its standard error over parts of the data.
        initial = training.values_of(model)
        if not np.all(np.isfinite(initial)):
            raise ValueError(
                f"the validation loss of the model is {float(np.mean(initial))} before training; train it again, and "
                "see that the loss fits targets and outputs."
            )
        self._before = float(np.mean(initial))
        self._most = self._before + 0.5 * standard_error(initial, of_one=0.0)
        self.tried: list[tuple[float, keras.Model]] = []

    def is_good(self, name: str, choice: float, small: keras.Model) -> bool:
        """Whether the validation loss of a network hardly rises; a line of the log says what is left."""
        # By the validation loss; the weights that are not 0 are what a file takes.
        loss = self._training.loss_of(small)
        weights = sum(int(np.count_nonzero(kernel)) for kernel in kernels_of(small))
        LOG.info(
            "%s %g: %d of %d parameters are left, %d weights are not 0, validation loss %.6g (before %.6g)",
            *(_SHOWN[name], choice, small.count_params(), self._given.count_params(), weights, loss, self._before),
        )
        self.tried.append((loss, small))
        return loss <= self._most

    def best(self) -> keras.Model:
        """The smallest of the networks that do no harm; if there is none, that of the lowest loss."""
        good = [small for loss, small in self.tried if loss <= self._most]
        if good:
            return min(good, key=lambda small: small.count_params())
        return min(self.tried, key=lambda pair: pair[0])[1]


def _nothing_left(name: str, choices: Sequence[float]) -> NothingLeftError:
    listing = ", ".join(f"{choice:g}" for choice in choices)
    return NothingLeftError(f"with {name} {listing} a layer is pruned to nothing; give {_MILDER[name]}.")


_SHOWN = {"kl_weight": "KL of weight", "keep": "kept part"}
_MILDER = {"kl_weight": "less", "keep": "more"}
