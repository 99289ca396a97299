"""A network that gives numbers, trained, made small and written, with the settings of a recipe.

    found = compress_regression(RecipeConfig(pretrain_epochs=50, epochs=200), model, parts, "files/model.bcz")

The phases are those of `compression.fit`, with a Gaussian likelihood whose variance is learnt. Errors are mean squared
ones as parts of the variance of the training targets, in percent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from .container import check_storable
from .fitting import KL_WEIGHTS, fit
from .pack import PackConfig
from .schedule import RecipeConfig
from .single_file import PackedFile, load, pack
from .sizes import size_of

__all__ = ["Regression", "check_targets", "compress_regression", "summary", "unexplained_percent"]

_ROWS = 1000  # in one call of the network


class Regression(NamedTuple):
    """What came out.

    :ivar packed: the file. :ivar plain: error of the network before, by part, in percent of the variance.
    :ivar shrunk: of the small one in float32. :ivar file: of what the file gives back.
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

    Of `config` are used the epochs, of all phases, and learning rates, prior, `scale_speed`, `initial_log_std`, and
    `kl_weight`, the first weight that is tried; less follow where it does harm.

    :param parts: inputs and targets [n, P] of "train", "valid" (to choose by) and "test" (to report).
    :param path: of the file; its folder is made. :param files: its `tolerance` is what rounding may add, in percent.
    :param seed: of noise and order, also for TensorFlow as a whole.
    :raises ValueError: as :func:`check_targets`, `fit` and `pack`.
    """
    data = check_targets(model, parts)
    tf.random.set_seed(seed)
    variance = float(np.var(data["train"][1], axis=0).mean())
    if not variance > 0:
        raise ValueError("the training targets are all the same; there is nothing to learn.")
    train, valid = data["train"], data["valid"]
    if config.pretrain_epochs:
        model.compile(keras.optimizers.Adam(config.pretrain_learning_rate), "mse")
        model.fit(*train, batch_size=batch_size, epochs=config.pretrain_epochs, verbose=0)
    small = fit(
        model,
        *train,
        loss="mse",
        optimizer=keras.optimizers.Adam(config.learning_rate),
        validation_data=valid,
        batch_size=min(batch_size, len(train[0])),
        epochs=config.epochs,
        last_epochs=config.last_epochs or config.polish_epochs or None,
        prior=config.prior,
        kl_weight=[config.kl_weight * factor for factor in KL_WEIGHTS],
        seed=seed,
        scale_speed=config.scale_speed,
        initial_log_std=config.initial_log_std,
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    packed = pack(
        small,
        path,
        validate=lambda network: unexplained_percent(network, *valid, variance),
        max_rise=(files or PackConfig()).tolerance,
        original=size_of(model),
        seed=seed,
    )
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
    return {name: _arrays(model, name, *part) for name, part in parts.items()}


def summary(found: Regression) -> str:
    """Sizes and errors, a line for each network."""
    errors = {"plain": found.plain, "shrunk": found.shrunk, "file": found.file}
    lines = [
        f"{name}: valid {by['valid']:.2f} %, test {by['test']:.2f} % of the variance" for name, by in errors.items()
    ]
    return "\n".join([*lines, f"{found.packed.bytes} bytes, {found.packed.file_rate:.1f} times smaller"])


def unexplained_percent(model: keras.Model, X: NDArray[np.float32], Y: NDArray[np.float32], variance: float) -> float:
    """Mean squared error, of all targets, over `variance`, in percent."""
    outputs = [np.asarray(model(X[i : i + _ROWS], training=False), np.float64) for i in range(0, len(X), _ROWS)]
    return 100.0 * float(np.mean(np.square(np.concatenate(outputs) - Y))) / variance


def _arrays(
    model: keras.Model, name: str, X: ArrayLike, Y: ArrayLike
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    inputs, targets = np.asarray(X, np.float32), np.asarray(Y, np.float32)
    targets = targets.reshape(len(targets), -1)
    wanted = [tuple(part.shape[1:]) for part in (model.inputs[0], model.outputs[0])]
    if len(model.inputs) != 1 or len(model.outputs) != 1 or wanted != [inputs.shape[1:], targets.shape[1:]]:
        raise ValueError(
            f"the network takes inputs {wanted[0]} and gives outputs {wanted[1]}, but the {name} rows have inputs "
            f"{inputs.shape[1:]} and targets {targets.shape[1:]}; it must have one output for each target."
        )
    return inputs, targets
