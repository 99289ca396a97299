"""Fitting a deep GP to rows in memory, in their own units: how long to train, and when to stop.

    fitted = fit(ModelConfig(preset="modern"), X, Y)                # to a Predictor
    fitted.predictor.predict(X_new), fitted.course.num_steps

Steps have one learning rate until the model has settled or three quarters of `max_iter` are made. Then it falls to 0
along a line. A model has settled when its bound, smoothed over windows of steps, or its log density on held-out rows
has stopped rising. Batches and draws of a step are functions of the seed and its number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from numpy.typing import NDArray
from scipy.special import gammaln

from .config import ModelConfig
from .deep_gp import DeepGP
from .forecasts import LinearModel
from .predictor import Predictor
from .scaling import REAL_TARGETS, Units
from .scores import Task
from .training import Trainer, TrainingConfig

__all__ = [
    "Course",
    "Fitted",
    "Schedule",
    "baseline_log_density",
    "count_rows",
    "draws",
    "fit",
    "has_settled",
    "learning_rate_share",
    "minibatch",
    "pass_over",
    "start",
    "train",
]

WINDOW = 100
"""Steps whose bounds are averaged."""


@dataclass(frozen=True)
class Schedule:
    """How long a deep GP is trained.

    :param max_iter: largest number of steps.
    :param batch_size: rows of a minibatch; all rows if there are fewer.
    :param tol: least rise that counts, nats per row.
    :param n_iter_no_change: windows of steps in a row without such a rise after which the model has settled.
    :param decay_share: of all steps, in which the learning rate falls to 0; they are the last ones.
    :param validation_fraction: of the rows that are held out to decide when the model has settled and which of its
        parameters are kept; 0 for none.
    """

    max_iter: int = 5000
    batch_size: int = 1000
    tol: float = 1e-3
    n_iter_no_change: int = 5
    decay_share: float = 0.25
    validation_fraction: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_iter", "batch_size", "n_iter_no_change"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        for name in ("decay_share", "validation_fraction"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 0 and less than 1, got {value}.")


class Course(NamedTuple):
    """What happened while a model was trained.

    :ivar num_steps: steps made. :ivar is_settled: whether it settled before `max_iter`.
    :ivar bounds: mean bound of each window of steps, nats per row.
    :ivar scores: mean log density of the held-out rows after each window, nats per row; empty without such rows.
    """

    num_steps: int
    is_settled: bool
    bounds: tuple[float, ...]
    scores: tuple[float, ...]


class Fitted(NamedTuple):
    """A model in the units of the data, with what changes while it is trained, and how it was trained."""

    predictor: Predictor
    trainer: Trainer
    course: Course


def fit(
    config: ModelConfig,
    X: NDArray[Any],
    Y: NDArray[Any],
    *,
    training: TrainingConfig = TrainingConfig(learning_rate=0.03),
    schedule: Schedule = Schedule(),
    class_names: Sequence[str] = (),
    seed: int = 0,
    show: Callable[[str], None] | None = None,
) -> Fitted:
    """Standardise, start from the data, and train.

    :param X: inputs [N, D] in the units of the data. :param Y: numbers [N, P], or labels 0, 1, ... [N, 1].
    :param class_names: of the labels; empty for a regression.
    :param seed: of k-means, held-out rows, batches and draws.
    :param show: gets a line of progress now and then.
    :raises ValueError: if settings do not fit each other or the data.
    :raises FloatingPointError: if a step fails; nothing is left to use then.
    """
    order = np.random.default_rng([seed, 0]).permutation(len(X))
    num_held_out = int(np.ceil(schedule.validation_fraction * len(X)))
    if num_held_out >= len(X):
        raise ValueError(f"validation_fraction={schedule.validation_fraction} leaves none of {len(X)} rows; lower it.")
    rows, held_out = np.sort(order[num_held_out:]), np.sort(order[:num_held_out])
    predictor, trainer = start(config, X[rows], Y[rows], training=training, class_names=class_names, seed=seed)
    batch_at = _batches(predictor.units.transform(X[rows], Y[rows]), schedule.batch_size, seed)

    def score() -> float:
        return predictor.score(X[held_out], Y[held_out])["log_likelihood_nats"]

    course = train(trainer, batch_at, draws(seed), schedule, score=score if num_held_out else None, show=show)
    return Fitted(predictor, trainer, course)


def start(
    config: ModelConfig,
    X: NDArray[Any],
    Y: NDArray[Any],
    *,
    training: TrainingConfig = TrainingConfig(),
    class_names: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Predictor, Trainer]:
    """The model before its first step, with the units of these rows; its `num_data` is a variable.

    Parameters and errors as in `fit`.
    """
    task: Task = "regression" if not class_names else "binary" if len(class_names) == 2 else "multiclass"
    config = config.for_task(task, [Y])
    units = Units.fit(X, Y, config.likelihood)
    model = config.build(*units.transform(X, Y), num_classes=len(class_names), seed=seed)
    model.num_data = tf.Variable(len(X), dtype=gpflow.default_float(), trainable=False, name="num_data")
    names = [f"y{p}" for p in range(Y.shape[1])] if Y.shape[1] > 1 else ["y"]
    predictor = Predictor(model, units, task=task, target_names=names, class_names=class_names)
    return predictor, Trainer(model, training)


def train(
    trainer: Trainer,
    batch_at: Callable[[int], RegressionData],
    seed: tf.Tensor,
    schedule: Schedule = Schedule(),
    *,
    score: Callable[[], float] | None = None,
    show: Callable[[str], None] | None = None,
) -> Course:
    """Train until the model has settled, or `max_iter` are made, and lower the learning rate at the end.

    :param batch_at: minibatch of a step, in the model's units. :param seed: of the draws, int32 [2].
    :param score: log density of held-out rows by the current parameters, nats per row; the parameters of the best one
        are those that the model has in the end.
    :raises FloatingPointError: if a step fails.
    """
    num_data, rate = float(trainer.model.num_data or 1), float(trainer.optimizer.learning_rate)
    decay_from, end = round(schedule.max_iter * (1 - schedule.decay_share)), schedule.max_iter
    bounds, scores, best = list[float](), list[float](), list[NDArray[Any]]()
    step, is_settled = 0, False
    while step < end:
        stop = min(step + WINDOW, decay_from if step < decay_from else end)
        total = 0.0
        for t in range(step, stop):
            trainer.optimizer.learning_rate = rate * learning_rate_share(t, decay_from, end)
            total += float(trainer.advance(batch_at, t, 1, seed))
        trainer.scalars()  # refuses a bound that is not finite
        bounds.append(total / (stop - step) / num_data)
        step = stop
        if score is not None:
            scores.append(score())
            if scores[-1] >= max(scores):
                best = [variable.numpy() for variable in trainer.model.variables]
        if show is not None:
            held_out = f", held-out log density {scores[-1]:.4f}" if scores else ""
            seconds = float(trainer.seconds)
            show(f"step {step} of at most {end}: bound {bounds[-1]:.4f}{held_out} nats per row, {seconds:.0f} s")
        if step < decay_from and any(has_settled(v, schedule.tol, schedule.n_iter_no_change) for v in (bounds, scores)):
            is_settled, decay_from = True, step
            end = min(end, step + max(1, round(step * schedule.decay_share / (1 - schedule.decay_share))))
    trainer.optimizer.learning_rate = rate
    for variable, value in zip(trainer.model.variables if best else (), best, strict=True):
        variable.assign(value)
    return Course(step, is_settled, tuple(bounds), tuple(scores))


def count_rows(model: DeepGP, num_rows: int) -> None:
    """Tell a model of `start` that the stream has more rows."""
    num_data: Any = model.num_data
    num_data.assign_add(num_rows)


def pass_over(
    predictor: Predictor, trainer: Trainer, X: NDArray[Any], Y: NDArray[Any], *, first: int, batch_size: int, seed: int
) -> int:
    """One pass over new rows of a stream, at the full learning rate: each is in one of the minibatches.

    `num_data` of the model has to count these rows already; see `count_rows`.

    :param X: inputs [n, D] in the units of the data. :param Y: targets [n, P], likewise.
    :param first: number of the first step. :return: number of steps.
    """
    batch_at = _batches(predictor.units.transform(X, Y), batch_size, seed, first)
    count = -(-len(X) // batch_size)
    trainer.advance(batch_at, first, count, draws(seed))
    trainer.scalars()
    return count


def has_settled(values: Sequence[float], tolerance: float, patience: int) -> bool:
    """Whether none of the last `patience` values is more than `tolerance` above the best one before them."""
    return len(values) > patience and max(values[-patience:]) <= max(values[:-patience]) + tolerance


def learning_rate_share(step: int, decay_from: int, end: int) -> float:
    """Of the learning rate, at a step: 1 before `decay_from`, then on a line towards 0 at `end`."""
    return 1.0 if step < decay_from else (end - step) / (end - decay_from)


def minibatch(seed: int, step: int, num_rows: int, batch_size: int) -> NDArray[np.int64]:
    """Row numbers of the minibatch of a step, [batch_size]; all rows in their order if there are no more.

    Batches are cut one after the other from random permutations of the rows, so that each row comes once in N draws.
    """
    if batch_size >= num_rows:
        return np.arange(num_rows)
    epoch, start = divmod(step * batch_size, num_rows)
    head = _permutation(seed, epoch, num_rows)[start : start + batch_size]
    tail = _permutation(seed, epoch + 1, num_rows)[: batch_size - len(head)] if len(head) < batch_size else head[:0]
    return np.concatenate([head, tail])


@functools.lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, num_rows: int) -> NDArray[np.int64]:
    order = np.random.default_rng([seed, 1, epoch]).permutation(num_rows)
    order.flags.writeable = False
    return order


def draws(seed: int) -> tf.Tensor:
    """Seed of the draws of all steps, int32 [2]."""
    return tf.constant([seed, 2], tf.int32)


def _batches(
    arrays: tuple[NDArray[Any], NDArray[Any]], batch_size: int, seed: int, first: int = 0
) -> Callable[[int], RegressionData]:
    """Minibatches of arrays by step, counted from `first`."""
    if batch_size >= len(arrays[0]):
        everything = tuple(map(tf.constant, arrays))
        return lambda step: everything

    def batch_at(step: int) -> RegressionData:
        rows = minibatch(seed, step - first, len(arrays[0]), batch_size)
        return tuple(tf.constant(array[rows]) for array in arrays)

    return batch_at


def baseline_log_density(likelihood: str, X: NDArray[Any], Y: NDArray[Any]) -> float | None:
    """Mean log density of rows under the simplest model of them, nats per row.

    That is least squares with Gaussian noise for real targets, one rate for counts, and the frequencies of labels.

    :return: None if least squares fits the rows exactly.
    """
    if likelihood in REAL_TARGETS:
        try:
            return float(np.mean(LinearModel.fit(X, Y).forecast(X, Y).log_density))
        except ValueError:
            return None
    if likelihood == "poisson":
        rate = np.maximum(Y.mean(axis=0), 1e-300)
        return float(np.mean(np.sum(Y * np.log(rate) - rate - gammaln(Y + 1), axis=1)))
    shares = np.unique(Y, return_counts=True)[1] / len(Y)
    return float(np.sum(shares * np.log(shares)))
