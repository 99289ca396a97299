"""The phases of a `compression.Recipe` with any loss, metrics, optimizer, callbacks and Datasets.

    training = KerasTraining(data, loss_of("mse", data.valid), keras.optimizers.Adam(1e-3), "mse")
    left = training.left_of(config, [0.1, 1.0], model, checked)
    training.train_last(left[-1].model, 20)

What is done when, `compression.train.schedule` says, and `compression.train.recipes.phases`, `compression.train.engine`
and `compression.train.recipes.last_phase` do it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from ..graph.removal.shrink import NothingLeftError, shrink
from ..graph.sizes import size_of
from .engine import falling_rate, follow, unfollow
from .held_out import TrainingData, outputs_of
from .recipes.last_phase import last_phase
from .recipes.likelihood import LearntNoise, likelihood_of, noise_of
from .recipes.phases import Phases, ThresholdsOf, looks
from .schedule import LAST_FROM, PretrainConfig, RecipeConfig, kept_after, kl_weight_at, raised_after

__all__ = ["KerasTraining", "Left"]

LOG = logging.getLogger(__name__)

_KINDS = {"noise_variance": keras.metrics.MeanSquaredError, "noise_width": keras.metrics.MeanAbsoluteError}
_TIMED_STEPS = 20


class Left(NamedTuple):
    """What is left of a network.

    :ivar kl_weight: of the KL when it was kept.
    :ivar model: a plain one.
    """

    kl_weight: float
    model: keras.Model


class KerasTraining(NamedTuple):
    """What all phases of a training are told.

    :ivar values_of: the validation loss of a network, on parts of the data.
    :ivar optimizer: each phase has a copy of it.
    :ivar loss, metrics: as for `keras.Model.compile`.
    :ivar callbacks, verbose: for `keras.Model.fit`.
    :ivar seed: of the noise.
    :ivar plan: told before the first step of the Bayesian network how many seconds a step takes.
    """

    data: TrainingData
    values_of: Callable[[keras.Model], np.ndarray]
    optimizer: keras.optimizers.Optimizer
    loss: object
    metrics: object = None
    callbacks: Sequence[keras.callbacks.Callback] = ()
    verbose: object = 0
    seed: int = 0
    plan: Callable[[float], None] | None = None

    def loss_of(self, model: keras.Model) -> float:
        """The validation loss."""
        return float(np.mean(self.values_of(model)))

    def compile(self, model: keras.Model) -> None:
        """As for a user who trains on, with an optimizer of its own."""
        unfollow(model)
        model.compile(self._new_optimizer(), self.loss, metrics=self.metrics)

    def train(
        self,
        model: keras.Model,
        epochs: int,
        *callbacks: keras.callbacks.Callback,
        decay: str = "cosine",
        decay_from: float = 1.0,
    ) -> None:
        """Train a plain network.

        :param decay: as `decay_from`, how the learning rate of the optimizer falls; from 1.0 on, not at all.
        """
        optimizer = self._new_optimizer()
        # Keras' own loop, in which each step sets the learning rate first.
        together = [*self.callbacks, *callbacks]
        rate = falling_rate(optimizer, epochs * self.data.steps, decay=decay, decay_from=decay_from)
        follow(model, optimizer, self.loss, metrics=self.metrics, learning_rate=rate, callbacks=together)
        model.fit(**self.data.train, epochs=epochs, verbose=self.verbose, callbacks=together)
        self.compile(model)

    def left_of(
        self,
        config: RecipeConfig,
        kl_weights: Sequence[float],
        model: keras.Model,
        checked: ThresholdsOf,
        **settings: Any,
    ) -> list[Left]:
        """What is left of a network while the weight of the KL is raised from one to the next in one training.

        :param config: its learning rate is that of the optimizer.
        :param kl_weights: the lowest first.
        :param checked: see `compression.train.recipes.phases.looks`.
        :param settings: of the Bayesian layers.
        :return: plain networks before the last phase, in the order of the training: of one weight that at the end, of
            several those of `compression.train.schedule.kept_after`, too. The last ones are missing if a layer was
            pruned to nothing, or if the training ended before.
        """
        config = replace(config, kl_weight=kl_weights[0], pretraining=PretrainConfig())
        data = self.data
        steps = self.data.steps
        epochs = config.epochs + config.ending.polish_epochs
        # After which epochs the weight of the KL is raised, and what is left is kept.
        raised = raised_after(config, kl_weights)
        kept = kept_after(config, raised)
        # A squared or absolute error is a likelihood only with a width of the noise, which is learnt.
        likelihood = likelihood_of(self.loss, model.output_shape)
        noise = LearntNoise(likelihood)
        if likelihood.noise is not None:
            noise = LearntNoise(likelihood, noise_of(outputs_of(model, data.valid[0]), data.valid[1], likelihood))
        # What decides which units go.
        thresholds = looks(config, checked, self.loss_of, size_of(model))
        options = {"num_train": data.num_train, "seed": self.seed, "new_optimizer": self._built_optimizer, **settings}
        # The network between its epochs.
        phases = Phases(config, model, thresholds, **options)
        weight = kl_weights[0]
        networks: list[Left] = []
        number = 0

        def keep() -> None:
            networks.append(Left(weight, shrink(phases.model, thresholds(config.epochs)[-1](phases.model))))

        def on_epoch_end(epoch: int, logs: Mapping[str, float] | None) -> None:
            # Keep what is left before the weight is raised, then see whether units go.
            nonlocal weight
            done = epoch + 1
            if done in kept:
                keep()
            weight = raised.get(done, weight)
            if done < epochs and phases.look(done):
                phases.model.stop_training = True

        # `fit` stops where units are removed, and goes on with the smaller network.
        between = keras.callbacks.LambdaCallback(on_epoch_end=on_epoch_end)
        rate = None
        try:
            while number < epochs and (phases.prepare(number) or not number):
                if not number:
                    rate = falling_rate(
                        phases.optimizer, epochs * steps, decay=config.decay, decay_from=config.decay_from
                    )
                # Learning rate and weight of the KL are functions of the step, across all calls of `fit`.
                follow(
                    phases.model,
                    phases.optimizer,
                    self.loss,
                    metrics=self._metrics(likelihood.noise),
                    learning_rate=rate,
                    kl_weight=lambda step: kl_weight_at(config, step, steps, raised) * noise.factor,
                    callbacks=self.callbacks,
                )
                if not number and self.plan is not None:
                    self.plan(self._seconds_of_step(phases))
                run = phases.model.fit(
                    **data.train,
                    initial_epoch=number,
                    epochs=epochs,
                    verbose=self.verbose,
                    callbacks=[*self.callbacks, noise, between],
                )
                number = run.epoch[-1] + 1
            keep()
        except NothingLeftError as error:
            LOG.info("KL of weight %g: %s", weight, error)
        return networks

    def train_last(self, model: keras.Model, epochs: int, *, is_normalized: bool = False) -> None:
        """The last phase of a plain network; 0 epochs only compile it."""
        if epochs:
            with last_phase(model, self.loss_of, self.data.valid[0] if is_normalized else None) as (trained, look):
                best = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: look())
                self.train(trained, epochs, best, decay_from=LAST_FROM)
        self.compile(model)

    def _new_optimizer(self) -> keras.optimizers.Optimizer:
        return type(self.optimizer).from_config(self.optimizer.get_config())

    def _built_optimizer(self, model: keras.Model) -> keras.optimizers.Optimizer:
        optimizer = self._new_optimizer()
        optimizer.build(model.trainable_variables)
        return optimizer

    def _metrics(self, noise: str | None) -> object:
        """Those that were given, and the error that estimates the noise of a likelihood."""
        if noise is None:
            return self.metrics
        # The metric that estimates the noise stands beside those of the user.
        metrics = [] if self.metrics is None else keras.tree.flatten(self.metrics)
        return [*metrics, _KINDS[noise](name=noise)]

    def _seconds_of_step(self, phases: Phases) -> float:
        """What a step takes, by some whose effect is taken back."""
        model = phases.model
        data = self.data.train
        # Some steps on one batch, after which all variables are put back.
        variables = [*model.variables, *phases.optimizer.variables]
        values = [np.array(variable) for variable in variables]
        if isinstance(data["x"], tf.data.Dataset):
            batch = next(iter(data["x"]))
        else:
            size = data["batch_size"]
            batch = keras.tree.map_structure(lambda array: tf.constant(array[:size]), (data["x"], data["y"]))
        batches = tf.data.Dataset.from_tensors(batch).repeat(_TIMED_STEPS)
        for _ in range(2):  # the first one compiles
            start = time.perf_counter()
            model.fit(batches, shuffle=False, verbose=0)
            seconds = time.perf_counter() - start
        # As if these steps had not been made.
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return seconds / _TIMED_STEPS
