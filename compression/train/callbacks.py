"""Keras callbacks: warm-up of the KL, and physical shrinking during training.

They are for a loop of one's own with Keras; `compression.fit` and `compression.Recipe` do the same without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from ..graph.graph import graph_of
from ..graph.removal.cutting import Kept, compose
from ..layers.posterior import bayesian_layers
from ..layers.thresholds import Thresholds
from .recipes.phases import Cut, cut
from .schedule import RecipeConfig, kl_weight_after

__all__ = ["KLWarmup", "ShrinkDuringTraining", "set_kl_weight"]

_NO_END = 2**31


def set_kl_weight(model: keras.Model, weight: float) -> None:
    """Set the weight of the KL in the loss of all Bayesian layers: 0 ignores it, 1 is the lower bound.

    :raises ValueError: if `weight` is negative or not finite.
    """
    if not (math.isfinite(weight) and weight >= 0.0):
        raise ValueError(f"the weight of the KL must be 0 or more, got {weight}.")
    for layer in bayesian_layers(model):
        layer.kl_weight.assign(weight)


class KLWarmup(keras.callbacks.Callback):
    """Raises the weight of the KL linearly from 0 to `weight` over the first `epochs` epochs (Sec. 5, "warm-up").

    The weight is a function of epoch and batch only, so a run that is resumed with `initial_epoch` has the same ones;
    those of a `compression.Recipe` are the same, too. The first of T steps has a T-th of `weight`, the last one all of
    it. Where Keras does not know how many steps an epoch has, an epoch counts as one.

    :param epochs: length of the warm-up, may be a fraction; 0 for none. The paper has 100 of 200.
    :param weight: after the warm-up; 1 is the variational bound.
    """

    def __init__(self, epochs: float, weight: float = 1.0) -> None:
        super().__init__()
        for name, value in (("epochs", epochs), ("weight", weight)):
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name} must be 0 or more, got {value}.")
        self.config = RecipeConfig(epochs=_NO_END, warmup=epochs, kl_weight=weight)
        self._epoch = 0

    def weight_at(self, epoch: float) -> float:
        """Weight of the KL after `epoch` epochs, a number between 0 and `weight`."""
        return float(kl_weight_after(self.config, epoch))

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, object] | None = None) -> None:
        """For Keras: set the weight of the epoch."""
        self._epoch = epoch
        set_kl_weight(self.model, self.weight_at(epoch + 1))

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, object] | None = None) -> None:
        """For Keras: set the weight of the step."""
        steps = (self.params or {}).get("steps")
        if steps and self._epoch < self.config.warmup:
            set_kl_weight(self.model, self.weight_at(self._epoch + (batch + 1) / steps))


class ShrinkDuringTraining(keras.callbacks.Callback):
    """Removes pruned units for good while the model trains, so that training gets faster.

    A Keras model cannot change its shapes inside `fit`. So this callback stops `fit` at the end of an epoch where
    shrinking pays; :meth:`fit` goes on with the smaller model, with the state of the optimizer carried over:

        shrinking = ShrinkDuringTraining(start=10)
        model, history = shrinking.fit(model, x, y, epochs=60, callbacks=[KLWarmup(10)])

    Pruned groups do not come back; start after the warm-up.

    :param start: first epoch (counted from 1) after which to shrink.
    :param every: epochs between looks.
    :param min_saving: shrink if at least this fraction of the weights is pruned; each shrinking traces the model anew.
    :param thresholds: as in :func:`compression.layers.thresholds.masks`, or a function of the model that returns them,
        such as one that calls `checked_thresholds`.
    """

    def __init__(
        self,
        *,
        start: int = 1,
        every: int = 1,
        min_saving: float = 0.1,
        thresholds: Thresholds | Callable[[keras.Model], Thresholds] = None,
    ) -> None:
        super().__init__()
        if start < 1 or every < 1 or not 0.0 <= min_saving < 1.0:
            raise ValueError(
                f"start and every must be at least 1 and min_saving in [0, 1), got {start=}, {every=}, {min_saving=}."
            )
        self.start = start
        self.every = every
        self.min_saving = min_saving
        self.thresholds = thresholds
        self.kept: dict[str, Kept] = {}
        """Kept inputs and outputs of each layer since :meth:`fit` began, for `slice_bayesian`."""
        self._next: Cut | None = None

    def on_epoch_end(self, epoch: int, logs: Mapping[str, object] | None = None) -> None:
        """For Keras: stop where the network is to be shrunk."""
        # Look at the end of every so many epochs.
        epochs_since_start = epoch + 1 - self.start
        if epochs_since_start >= 0 and epochs_since_start % self.every == 0:
            self._next = cut(self.model, self.model.optimizer, [self._thresholds_of], at_most=1.0 - self.min_saving)
            self.model.stop_training |= self._next is not None

    def fit(
        self,
        model: keras.Model,
        *args: Any,
        epochs: int,
        initial_epoch: int = 0,
        callbacks: Sequence[keras.callbacks.Callback] | None = None,
        **kwargs: Any,
    ) -> tuple[keras.Model, dict[str, list[float]]]:
        """`model.fit` to the end of `epochs`, shrinking on the way.

        :param model: compiled; it is trained and then left behind at the first shrinking.
        :param args, kwargs: for `keras.Model.fit`.
        :return: the trained model, compiled as `model` was, with the same loss and metrics, and the history of losses
            and metrics over all epochs.
        :raises ValueError: before training, if the model is not compiled, cannot be shrunk, or has training steps of
            its own class.
        """
        # `fit` stops at the end of an epoch where units are to go, and goes on with the smaller model.
        _check(model)
        together = [*(callbacks or ()), self]
        self.kept = {}
        history: dict[str, list[float]] = {}
        while initial_epoch < epochs:
            self._next = None
            run = model.fit(*args, epochs=epochs, initial_epoch=initial_epoch, callbacks=together, **kwargs)
            for name, values in run.history.items():
                history.setdefault(name, []).extend(values)
            # No units are to go any more: all epochs are done.
            if self._next is None:
                break
            initial_epoch = run.epoch[-1] + 1
            model = self._replace(model, self._next)
        return model, history

    def _thresholds_of(self, model: keras.Model) -> Thresholds:
        return self.thresholds(model) if callable(self.thresholds) else self.thresholds

    def _replace(self, model: keras.Model, smaller: Cut) -> keras.Model:
        smaller.model.compile(**{**_compiled_with(model), "optimizer": smaller.optimizer})
        # Index maps go on from those of the shrinkings before.
        self.kept = compose(self.kept, smaller.kept) if self.kept else smaller.kept
        return smaller.model


def _check(model: keras.Model) -> None:
    if not model.compiled:
        raise ValueError(f"the model {model.name} must be compiled to be trained: model.compile(optimizer, loss).")
    graph_of(model)
    # What a class of the user's own does would be lost with the model.
    for name in ("train_step", "compile", "compute_loss"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise ValueError(
                f"the model's class {type(model).__name__} has a {name} of its own, which the smaller network "
                "would not have; shrink after training, with shrink_bayesian."
            )
    _compiled_with(model)


def _compiled_with(model: keras.Model) -> dict[str, object]:
    """The arguments of `model.compile`, losses and metrics as the very objects that were given.

    Keras' own `get_compile_config` has them in words, which say nothing of a function of the user's own.
    """
    return dict(model._compile_config.config)
