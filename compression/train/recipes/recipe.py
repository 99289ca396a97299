"""The whole training that makes a network small: plain, Bayesian, and with what is left (Louizos et al. 2017, Sec. 5).

    recipe = Recipe(RecipeConfig(epochs=20, warmup=2), model, parts)
    history = recipe.fit(print)
    packed = recipe.pack(PackConfig(), "files")

It goes in up to three phases: the plain network (`pretrain_epochs`); the Bayesian one with the KL of the weight
`kl_weight`, which decides about the architecture and from which pruned units may be removed on the way; and the units
that are left with a smaller weight of the KL (`polish_epochs`). The paper has the second only, with a weight of 1. Then
`pack` may train the plain network that is left without noise and KL (`last_epochs`) before it writes files.
"""

import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from gpflow_deep_base.files import entries, write_text
from gpflow_deep_base.seeds import named_seed

from ...files.pack import PackConfig, Packed, PackedNetwork, pack_files
from ...graph.graph import graph_of
from ...graph.kinds import check_trainable
from ...graph.sizes import size_of
from ...layers.posterior import bayesian_layers
from ...layers.thresholds import Thresholds, checked_thresholds, switched_off, thresholds_of
from ..engine import EpochFunction, epoch_function
from ..schedule import RecipeConfig, kl_weight_at, learning_rate_at, part_to_keep
from .classification import Examples, Parts, check_network, error_percent, parts_of
from .last_phase import loss_of, train_last
from .phases import Phases, ThresholdsOf, check_thresholds, looks

__all__ = ["Recipe"]

_SOME = 1000  # examples set aside, at most, by whose loss a part to keep is chosen


class Recipe:
    """A network, its optimizer, and what is done with them in each epoch.

    :ivar original: size of the network that was given.
    :ivar parts: the examples as tensors.
    :ivar seconds: spent in epochs, those before a restart included.
    :ivar plain_percent: errors on "valid" and "test" of the plain network that became Bayesian; NaN before.

    :param model: a classifier that :func:`compress` can take; it is trained in the plain phase.
    :param parts: see :data:`compression.train.recipes.classification.Parts`. Thresholds are chosen on "valid"; "test"
        is to report.
    :param batch_size: examples in a step; what is left over after the last whole batch of an epoch is not used in it.
    :param seed: of all randomness: order, shifts and noise.
    :param strategy: of `tf.distribute` on one machine: its replicas share the rows of each batch, and do what one
        device does with all of them. The model has to be made in its scope.
    :raises ValueError: if model, data and settings do not go together.
    """

    def __init__(
        self,
        config: RecipeConfig,
        model: keras.Model,
        parts: Parts,
        *,
        batch_size: int = 128,
        seed: int = 0,
        strategy: tf.distribute.Strategy | None = None,
    ) -> None:
        self.config = config
        self.parts = parts_of(parts)
        self.batch_size = batch_size
        self.original = size_of(model)
        self.seconds = tf.Variable(0.0, dtype=tf.float64)
        self.plain_percent = tf.Variable([math.nan, math.nan], dtype=tf.float64)
        self._seed = seed
        self._strategy = strategy
        # The teacher is a copy of the network as it is at the end of the plain phase.
        self._check(model)
        self._teacher = keras.models.clone_model(model) if config.ending.last_teacher is not None else None
        self.steps_per_epoch = len(self.parts["train"].X) // batch_size
        self._run_epoch: EpochFunction | None = None
        self._reshaped_before: int | None = None  # epoch; None: its shapes are written
        self._looks = looks(config, self._checked, self._loss, self.original)
        self._kept: tuple[tuple[int, float], Thresholds] | None = None  # thresholds of a part to keep, and of when
        self._done = config.epochs  # epochs of the Bayesian network; unless one was made here, all of them
        # What happens to the network between its epochs.
        noise_seed = int(named_seed(seed, "noise")[0]) % 2**24
        num_train = len(self.parts["train"].X)
        with self._scope():
            self._phases = Phases(
                config,
                model,
                self._looks_after,
                num_train=num_train,
                seed=noise_seed,
                new_optimizer=self._new_optimizer,
            )

    def fit(self, log: Callable[[int, dict[str, float]], object] = lambda epoch, line: None) -> list[dict[str, float]]:
        """All epochs, each with its evaluation.

        :param log: is called after each with the number of finished epochs and its scalars, which are returned.
        """
        # Epoch by epoch, with a look at "valid" after each.
        history = []
        for number in range(self.config.num_epochs):
            history.append({**self.epoch(number), **self.evaluate()})
            log(number + 1, history[-1])
        return history

    def epoch(self, number: int) -> dict[str, float]:
        """Make the epoch `number`, from 0; first what has to be done to the network before it.

        :return: mean negative log-likelihood in nats, and error in percent, over the training examples.
        :raises FloatingPointError: if the loss is no longer finite.
        :raises ValueError: if a layer is pruned to nothing.
        """
        start = time.monotonic()
        # The last epoch of the plain phase is over: note its errors, and what the teacher is.
        bayesian_epoch = number - self.config.pretraining.pretrain_epochs
        if bayesian_epoch >= 0 and not self.is_bayesian:
            self.plain_percent.assign([error_percent(self.model, self.parts[name]) for name in ("valid", "test")])
            if self._teacher is not None:
                self._teacher.set_weights(self.model.get_weights())
        self._done = max(bayesian_epoch + 1, 0)
        # A network of other shapes needs a new function and a new record.
        with self._scope():
            if self._phases.prepare(number):
                self._run_epoch = None
                self._kept = None
                self._reshaped_before = number
        if self._run_epoch is None:
            self._run_epoch = self._new_epoch_function()
        # One pass over the examples, in an order that is a function of seed and epoch.
        nll, error = self._run_epoch(tf.random.fold_in(named_seed(self._seed, "train"), number))
        if not math.isfinite(nll):
            raise FloatingPointError(
                f"training diverged in epoch {number + 1}: the loss is not finite; lower learning_rate or scale_speed."
            )
        self.seconds.assign_add(time.monotonic() - start)
        return {"train/nll_nats": nll, "train/error_percent": 100.0 * error}

    def evaluate(self) -> dict[str, float]:
        """Error on the examples set aside, with the groups switched off that would be pruned now.

        Of a Bayesian network also the KL of each layer in nats, its threshold and the groups that it keeps.
        """
        if not self.is_bayesian:
            return {"valid/error_percent": error_percent(self.model, self.parts["valid"])}
        thresholds = self.thresholds()
        scalars = {}
        kl_total = 0.0
        # The network as it would be if it were pruned now.
        with switched_off(self.model, thresholds):
            for layer in bayesian_layers(self.model):
                for name, value in layer.kl_parts().items():
                    scalars[f"{layer.name}/kl_{name}_nats"] = float(value)
                    kl_total += float(value)
                scalars[f"{layer.name}/threshold"] = thresholds[layer.name]
                scalars[f"{layer.name}/kept_groups"] = float(np.sum(layer.mask))
            scalars["train/kl_nats"] = kl_total
            scalars["valid/error_percent"] = error_percent(self.model, self.parts["valid"])
        return scalars

    def scores(self) -> dict[str, np.ndarray]:
        """By layer, what is compared with its threshold; {} as long as the network is plain."""
        return {f"{layer.name}/scores": np.asarray(layer.prune_scores()) for layer in bayesian_layers(self.model)}

    def thresholds(self, *, checked: bool = False) -> dict[str, float]:
        """The threshold of each Bayesian layer, by name.

        :param checked: raise automatic ones that add more than `prune_tolerance` percent to the error on the examples
            set aside.
        """
        look = self._looks_after(self.config.epochs if checked else self._done)[-1 if checked else 0]
        return thresholds_of(self.model, look(self.model))

    def pack(
        self,
        config: PackConfig,
        folder: str | os.PathLike[str],
        log: Callable[[int, dict[str, float]], object] = lambda epoch, line: None,
    ) -> Packed:
        """What was trained as files in `folder`, with its checked thresholds, compared with the network that was given.

        :param log: is called after each of `last_epochs` as that of :meth:`fit`.
        :return: "plain" is the network that became Bayesian.
        :raises ValueError: as :func:`compression.pack_files`.
        """
        # What trains the network that is left, before it is rounded.
        last = functools.partial(
            train_last,
            config=self.config,
            parts=self.parts,
            log=log,
            teacher=self._teacher,
            batch_size=self.batch_size,
            seed=self._seed,
        )
        return pack_files(
            self.model,
            self.parts,
            config,
            folder,
            thresholds=self.thresholds(checked=True),
            original=self.original,
            learning_rate=self.config.learning_rate,
            train_last=last if self.config.ending.last_epochs else None,
            plain=PackedNetwork(float(self.plain_percent[0]), float(self.plain_percent[1])),
            batch_size=self.batch_size,
            seed=self._seed,
        )

    @property
    def model(self) -> keras.Model:
        """The network as it is now: the one that was given, Bayesian from the first of `epochs` on."""
        return self._phases.model

    @property
    def optimizer(self) -> keras.optimizers.Optimizer:
        """Of the network as it is now."""
        return self._phases.optimizer

    @property
    def is_bayesian(self) -> bool:
        """Whether the plain phase is over."""
        return self._phases.is_bayesian

    # To stop and to continue. Shapes change when the network shrinks, so they are kept beside the checkpoints.

    def state(self, folder: str | os.PathLike[str] | None = None) -> dict[str, tf.Module | tf.Variable]:
        """All that changes, by name, for a checkpoint.

        :param folder: of the checkpoints: the shapes of the network are written there, if they are new.
        """
        if folder is not None and self._reshaped_before is not None:
            write_text(Path(folder) / f"network-{self._reshaped_before:06d}.json", self.model.to_json())
            self._reshaped_before = None
        # Variables by what they are of, as checkpoints name them.
        teacher_state = {} if self._teacher is None else {"teacher": _Values(self._teacher.variables)}
        return {
            **teacher_state,
            "model": _Values(self.model.variables),
            "optimizer": _Values(self.optimizer.variables),
            "plain_percent": self.plain_percent,
            "seconds": self.seconds,
        }

    def restore(
        self, folder: str | os.PathLike[str], read: Callable[[dict[str, tf.Module | tf.Variable]], int | None]
    ) -> int | None:
        """Go back to a checkpoint: the network takes each of the shapes in `folder`, the newest first, until one fits.

        :param read: reads a checkpoint into a :meth:`state`; ValueError if the shapes are others. What it returns, None
            for no checkpoint, is the result.
        :raises ValueError: of `read` for the newest shapes, if no other ones fit.
        """
        current_model = self.model
        problem = None
        # Shapes are tried from the newest on, the ones from before the first file last.
        for path in [*reversed(entries(folder, "network-*.json")), None]:
            with self._scope():
                self._replace(
                    current_model if path is None else keras.models.model_from_json(path.read_text(encoding="utf-8"))
                )
            try:
                step = read(self.state())
            except ValueError as error:
                problem = problem or error
                continue
            if step is None:
                self._replace(current_model)
            return step
        self._replace(current_model)
        raise problem or ValueError(f"there is no checkpoint in {folder}.")

    # Private.

    def _scope(self) -> AbstractContextManager[object]:
        return nullcontext() if self._strategy is None else self._strategy.scope()

    def _check(self, model: keras.Model) -> None:
        # Data and network, then batches and devices, then settings of both.
        check_network(model, self.parts)
        check_trainable(graph_of(model))
        num_train = len(self.parts["train"].X)
        if not 1 <= self.batch_size <= num_train:
            raise ValueError(
                f"batch_size must be between 1 and the {num_train} training examples, got {self.batch_size}."
            )
        replicas = 1 if self._strategy is None else self._strategy.num_replicas_in_sync
        if self.batch_size % replicas:
            raise ValueError(f"batch_size must be a multiple of the {replicas} replicas, got {self.batch_size}.")
        # Thresholds for the layers there are; motion is of images.
        check_thresholds(self.config, model)
        for name in ("shift", "flip"):
            if (value := getattr(self.config.motion, name)) and len(model.inputs[0].shape) != 4:
                raise ValueError(f"{name}={value} needs images [height, width, channels]; leave it out.")

    def _new_optimizer(self, model: keras.Model) -> keras.optimizers.Optimizer:
        optimizer = keras.optimizers.Adam(self.config.learning_rate)
        optimizer.build(model.trainable_variables)
        return optimizer

    def _replace(self, model: keras.Model) -> None:
        self._phases.replace(model)
        self._run_epoch = None
        self._kept = None

    def _new_epoch_function(self) -> EpochFunction:
        config = self.config
        steps = self.steps_per_epoch
        is_bayesian = self.is_bayesian
        return epoch_function(
            self.model,
            self.optimizer,
            self.parts["train"],
            batch_size=self.batch_size,
            learning_rate=lambda step: learning_rate_at(config, step, steps, is_bayesian=is_bayesian),
            kl_weight=lambda step: kl_weight_at(config, step, steps),
            shift=config.motion.shift,
            flip=config.motion.flip,
            strategy=self._strategy,
        )

    def _looks_after(self, done: float) -> list[ThresholdsOf]:
        """As `phases.looks` has it; a part to keep, which takes many looks at examples, is chosen once."""
        choosers = self._looks(done)
        if self.config.pruning.keep is None:
            return choosers

        def look(model: keras.Model) -> Thresholds:
            # Chosen anew only after a step, or for another part.
            key = int(self.optimizer.iterations), part_to_keep(self.config, done)
            if self._kept is None or self._kept[0] != key:
                self._kept = key, choosers[0](model)
            return self._kept[1]

        return [look]

    def _checked(self, model: keras.Model) -> Thresholds:
        valid = self.parts["valid"]
        tolerance = self.config.pruning.prune_tolerance
        return checked_thresholds(model, lambda network: error_percent(network, valid), tolerance=tolerance)

    def _loss(self, model: keras.Model) -> float:
        """Nats on some of the examples that are set aside, the same ones each time."""
        valid = self.parts["valid"]
        every = -(-len(valid.X) // _SOME)
        return loss_of(model, Examples(valid.X[::every], valid.labels[::every]))


class _Values(tf.Module):
    """The values of Keras variables, for checkpoints."""

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        super().__init__()
        self.values = [variable.value for variable in variables]
