"""The phases of a `compression.Recipe` by `keras.Model.fit`: any loss, metrics, optimizer, callbacks and Datasets.

    training = KerasTraining(data, loss_of("mse", data.valid), keras.optimizers.Adam(1e-3), "mse")
    small = training.made_small(config, model, checked)

What is done when, `compression.train.schedule` says, and `compression.train.phases` and `compression.train.last_phase`
do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from ..graph.shrink import shrink
from ..graph.sizes import size_of
from .callbacks import Falling, ShrinkDuringTraining
from .held_out import TrainingData, outputs_of
from .last_phase import last_phase
from .likelihood import LearntNoise, Likelihood, likelihood_of, noise_of
from .phases import ThresholdsOf, bayesian_form, looks
from .schedule import LAST_FROM, RecipeConfig

__all__ = ["KerasTraining"]

_KINDS = {"noise_variance": keras.metrics.MeanSquaredError, "noise_width": keras.metrics.MeanAbsoluteError}


class KerasTraining(NamedTuple):
    """What all phases of a training by Keras are told.

    :ivar values_of: the validation loss of a network, on parts of the data.
    :ivar optimizer: each phase has a copy of it.
    :ivar loss, metrics: as for `keras.Model.compile`.
    :ivar callbacks, verbose: for `keras.Model.fit`.
    :ivar seed: of the noise.
    """

    data: TrainingData
    values_of: Callable[[keras.Model], np.ndarray]
    optimizer: keras.optimizers.Optimizer
    loss: Any
    metrics: Any = None
    callbacks: Sequence[keras.callbacks.Callback] = ()
    verbose: Any = 0
    seed: int = 0

    def loss_of(self, model: keras.Model) -> float:
        """The validation loss."""
        return float(np.mean(self.values_of(model)))

    def compile(self, model: keras.Model, likelihood: Likelihood | None = None) -> None:
        """With an optimizer of its own, and the error that estimates the noise of a likelihood."""
        metrics = self.metrics
        if likelihood is not None and likelihood.noise:
            given = [] if metrics is None else keras.tree.flatten(metrics)
            metrics = [*given, _KINDS[likelihood.noise](name=likelihood.noise)]
        copy = type(self.optimizer).from_config(self.optimizer.get_config())
        model.compile(copy, self.loss, metrics=metrics)

    def train(self, model: keras.Model, epochs: int, *callbacks: keras.callbacks.Callback) -> None:
        """Train a plain network."""
        self.compile(model)
        callbacks = (*self.callbacks, *callbacks)
        model.fit(**self.data.train, epochs=epochs, verbose=self.verbose, callbacks=[*callbacks])

    def pretrain(self, config: RecipeConfig, model: keras.Model) -> None:
        """The plain phase, whose learning rate is that of the optimizer."""
        self.train(model, config.pretrain_epochs, Falling(config.pretrain_epochs, config.decay_from, config.decay))

    def made_small(
        self, config: RecipeConfig, model: keras.Model, checked: ThresholdsOf, **settings: Any
    ) -> keras.Model:
        """The plain network that all other phases leave of a trained one, which stays as it is.

        :param config: its learning rate is that of the optimizer.
        :param checked: see `compression.train.phases.looks`.
        :param settings: of the Bayesian layers.
        """
        data, likelihood = self.data, likelihood_of(self.loss, model.output_shape)
        noise = noise_of(outputs_of(model, data.valid[0]), data.valid[1], likelihood) if likelihood.noise else 1.0
        bayesian = bayesian_form(config, model, num_train=data.num_train, seed=self.seed, **settings)
        self.compile(bayesian, likelihood)
        epochs, thresholds = config.epochs + config.polish_epochs, looks(config, checked, self.loss_of, size_of(model))
        falling = Falling(epochs, config.decay_from, config.decay)
        bayesian, _ = ShrinkDuringTraining.of_recipe(config, thresholds).fit(
            bayesian,
            **data.train,
            epochs=epochs,
            verbose=self.verbose,
            callbacks=[*self.callbacks, LearntNoise(config, likelihood, noise), falling],
        )
        small = shrink(bayesian, thresholds(config.epochs)[-1](bayesian))
        self.train_last(small, config.last_epochs, is_normalized=config.last_normalization)
        return small

    def train_last(self, model: keras.Model, epochs: int, *, is_normalized: bool = False) -> None:
        """The last phase of a plain network; 0 epochs only compile it."""
        if epochs:
            with last_phase(model, self.loss_of, self.data.valid[0] if is_normalized else None) as (trained, look):
                best = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: look())
                self.train(trained, epochs, Falling(epochs, LAST_FROM), best)
        if not epochs or is_normalized:  # no network was compiled, or a copy
            self.compile(model)
