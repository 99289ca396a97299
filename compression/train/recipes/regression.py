"""A network that gives numbers, trained, made small and written, with the settings of a recipe.

    found = compress_regression(RecipeConfig(pretrain_epochs=50, epochs=200), model, parts, "files/model.bcz")

The phases are those of `compression.Recipe`, by Keras, with a Gaussian likelihood whose variance is learnt. Errors are
mean squared ones as parts of the variance of the training targets, in percent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from ...files.container import check_storable
from ...files.pack import PackConfig
from ...files.single_file import PackedFile, load, pack
from ...graph.graph import graph_of
from ...graph.kinds import check_trainable
from ...graph.sizes import size_of
from ...layers.thresholds import Thresholds, checked_thresholds
from ..fitting import fit_recipe
from ..held_out import TrainingData, check_finite, loss_of, outputs_of
from ..keras_training import KerasTraining
from ..methods import KL_WEIGHTS
from ..schedule import RecipeConfig
from .phases import check_thresholds

__all__ = ["Regression", "check_targets", "compress_regression", "summary", "unexplained_percent"]


class Regression(NamedTuple):
    """What came out.

    :ivar packed: the file.
    :ivar plain: error of the network before, by part, in percent of the variance.
    :ivar shrunk: of the small one in float32.
    :ivar file: of what the file gives back.
    """

    packed: PackedFile
    plain: dict[str, float]
    shrunk: dict[str, float]
    file: dict[str, float]


def compress_regression(
    config: RecipeConfig,
    model: keras.Model,
    parts: Mapping[str, tuple[ArrayLike, ArrayLike]],
    path: str | os.PathLike[str],
    *,
    files: PackConfig | None = None,
    batch_size: int = 128,
    seed: int = 0,
) -> Regression:
    """Train a network on targets, make it small, and write it; the network that is given is trained, too.

    All of `config` counts but `shift`, `flip` and `last_teacher`. Its `kl_weight` is the highest one, to which it is
    raised in steps; of what was left by then, that is taken that does no harm. Automatic thresholds may add
    `prune_tolerance` percent of the variance. Without `last_epochs` there are half as many as `epochs`.

    :param parts: inputs and targets [n, P] of "train", "valid" (to choose by) and "test" (to report).
    :param path: of the file; its folder is made.
    :param files: its `tolerance` is what rounding may add, in percent.
    :param seed: of noise and order, also for TensorFlow as a whole.
    :raises ValueError: as :func:`check_targets`, `fit` and `pack`, or of settings that do not go together.
    """
    # Refuse what does not go together before any training.
    data = check_targets(model, parts)
    check_thresholds(config, model)
    if config.motion.shift or config.motion.flip:
        raise ValueError(
            f"shift={config.motion.shift} and flip={config.motion.flip} are for images with labels; leave them out."
        )
    if config.ending.last_teacher is not None:
        raise ValueError(f"last_teacher={config.ending.last_teacher} is for labels, not for targets; leave it out.")
    tf.random.set_seed(seed)
    variance = float(np.var(data["train"][1], axis=0).mean())
    if not variance > 0:
        raise ValueError("the training targets are all the same; there is nothing to learn.")
    # Errors are in percent of the variance of the targets of "train".
    train = data["train"]
    valid = data["valid"]
    batches = TrainingData.of_arrays(*train, valid, batch_size)
    adam = keras.optimizers.Adam
    training = KerasTraining(batches, loss_of("mse", valid), adam(config.learning_rate), "mse", seed=seed)
    # The plain phase, with a learning rate of its own.
    if config.pretraining.pretrain_epochs:
        plain = training._replace(optimizer=adam(config.pretraining.pretrain_learning_rate))
        plain.train(model, config.pretraining.pretrain_epochs, decay=config.decay, decay_from=config.decay_from)

    def error_of(network: keras.Model) -> float:
        return unexplained_percent(network, *valid, variance)

    def checked(network: keras.Model) -> Thresholds:
        return checked_thresholds(network, error_of, tolerance=config.pruning.prune_tolerance)

    # All other phases, by the highest weight of the KL that does no harm.
    weights = [config.kl_weight * factor for factor in KL_WEIGHTS]
    ending = replace(config.ending, last_epochs=config.ending.last_epochs or config.epochs // 2)
    with_last = replace(config, ending=ending)
    small = fit_recipe(with_last, training, model, weights, checked)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    # Write what is left, rounded as far as the tolerance allows.
    packed = pack(
        small,
        path,
        validate=error_of,
        max_rise=(files or PackConfig()).tolerance,
        original=size_of(model),
        seed=seed,
    )
    # The errors of the network before, of the small one, and of what the file gives back.
    networks = (model, small, load(path))
    errors = [{name: unexplained_percent(n, *part, variance) for name, part in data.items()} for n in networks]
    return Regression(packed, *errors)


def check_targets(
    model: keras.Model, parts: Mapping[str, tuple[ArrayLike, ArrayLike]]
) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """The parts as arrays, inputs [n, ...] and targets [n, P].

    :raises ValueError: if the network does not fit them, or has a layer that no file can hold.
    """
    check_storable(model)
    check_trainable(graph_of(model))
    return {name: _arrays(model, name, *part) for name, part in parts.items()}


def summary(found: Regression) -> str:
    """Sizes and errors, a line for each network."""
    errors = {"plain": found.plain, "shrunk": found.shrunk, "file": found.file}
    lines = [
        f"{name}: valid {percents['valid']:.2f} %, test {percents['test']:.2f} % of the variance"
        for name, percents in errors.items()
    ]
    return "\n".join([*lines, f"{found.packed.bytes} bytes, {found.packed.file_rate:.1f} times smaller"])


def unexplained_percent(model: keras.Model, X: NDArray[np.float32], Y: NDArray[np.float32], variance: float) -> float:
    """Mean squared error, of all targets, over `variance`, in percent."""
    return 100.0 * float(np.mean(np.square(np.asarray(outputs_of(model, X), np.float64) - Y))) / variance


def _arrays(
    model: keras.Model, name: str, X: ArrayLike, Y: ArrayLike
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    inputs = np.asarray(X, np.float32)
    targets = np.asarray(Y, np.float32)
    targets = targets.reshape(len(targets), -1)
    check_finite(f"inputs of {name}", inputs)
    check_finite(f"targets of {name}", targets)
    # The network takes these inputs, and gives a number for each target.
    shapes = [tuple(part.shape[1:]) for part in (model.inputs[0], model.outputs[0])]
    if len(model.inputs) != 1 or len(model.outputs) != 1 or shapes != [inputs.shape[1:], targets.shape[1:]]:
        raise ValueError(
            f"the network takes inputs {shapes[0]} and gives outputs {shapes[1]}, but the {name} rows have inputs "
            f"{inputs.shape[1:]} and targets {targets.shape[1:]}; it must have one output for each target."
        )
    return inputs, targets
