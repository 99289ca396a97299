"""Fitting a deep GP to rows in memory, in their own units: how long to train, and when to stop.

    fitted = fit(ModelConfig(preset="modern"), X, Y)                # to a Predictor
    fitted.predictor.predict(X_new), fitted.course.num_steps

The learning rate falls at the end, and training may end early, as `gpflow_deep.train.course` says; on request held-out
rows decide as well. Batches and draws of a step are functions of the seed and its number.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import Likelihood, Poisson
from numpy.typing import NDArray
from scipy.special import gammaln

from gpflow_deep_base.cost import Cost
from gpflow_deep_base.stopping import Best

from ..judge.forecasts import LinearModel
from ..layers.chunking import minibatch
from ..model.deep_gp import DeepGP
from ..model.likelihoods import Task, task_of
from ..model.scaling import Units
from ..posteriors.sampling import Sampler, SamplingConfig
from .choosing.choice import Choice
from .config import ModelConfig
from .course import WINDOW, KLWeight, TrainingConfig, best_kl_weight, has_settled, stored_kl_weight
from .predictor import Predictor
from .training import Trainer, clear_errors

__all__ = [
    "Fitted",
    "Part",
    "batches",
    "check_counts",
    "choose_kl_weight",
    "count_rows",
    "draws",
    "fit",
    "minibatch",
    "pass_over",
    "sample",
    "simplest_model",
    "start",
    "train",
    "worse_than_simplest",
]

LEAST_ERROR = 0.01
"""Of least squares, in standard deviations of the targets, where a model is compared with it."""

SHOW_EVERY = 500
"""Steps of a chain between lines of progress."""

LogDensity = Callable[[np.ndarray, np.ndarray], NDArray[np.float64]]

Part = tuple[np.ndarray, np.ndarray]
"""Inputs [N, D] and targets [N, P] in the units of the data."""


class Fitted(NamedTuple):
    """A trained model in the units of the data, with what changes while it is trained.

    :ivar num_steps: steps made.
    :ivar is_settled: whether the model settled before `max_iter`.
    :ivar bounds: mean bound of each window of 100 steps, nats per row.
    :ivar scores: mean log density of the held-out rows after each window, nats per row; empty without such rows.
    :ivar sampler: with `posterior="sghmc"` the chain, from whose samples the model predicts.
    :ivar kl_weight: with `posterior="sigma_points"` how the weight of the KL was chosen, unless it was given.
    :ivar choice: of `selection.fit_chosen`: what was tried, and what was taken.
    """

    predictor: Predictor
    trainer: Trainer
    num_steps: int
    is_settled: bool
    bounds: tuple[float, ...]
    scores: tuple[float, ...]
    sampler: Sampler | None = None
    kl_weight: KLWeight | None = None
    choice: Choice | None = None


def fit(
    config: ModelConfig,
    X: np.ndarray,
    Y: np.ndarray,
    *,
    training: TrainingConfig = TrainingConfig(),
    max_iter: int = 5000,
    batch_size: int = 1000,
    validation_fraction: float = 0.0,
    class_names: Sequence[str] = (),
    seed: int = 0,
    show: Callable[[str], None] | None = None,
    sampling: SamplingConfig = SamplingConfig(),
) -> Fitted:
    """Standardise, start from the data, and train; with `posterior="sghmc"` sample the posterior from there on, with
    "sigma_points" choose the weight of the KL first if it is not given.

    :param X: inputs [N, D] in the units of the data.
    :param Y: numbers [N, P], or labels 0, 1, ... [N, 1].
    :param max_iter: the most steps.
    :param batch_size: rows of a minibatch; all rows if there are fewer.
    :param validation_fraction: of the rows that are held out to decide when the model has settled and which of its
        parameters are kept; 0 for none.
    :param class_names: of the labels; empty for a regression.
    :param seed: of k-means, held-out rows, batches and draws.
    :param show: gets a line of progress now and then.
    :param sampling: how the posterior is sampled.
    :raises ValueError: if settings do not fit each other or the data.
    :raises FloatingPointError: if a step fails; nothing is left to use then.
    """
    # What does not go together.
    check_counts(max_iter, batch_size)
    if config.posterior == "imputed":
        raise ValueError(
            "posterior=imputed takes rows of numbers in float64, two layers with Gaussian noise, the preset modern and "
            "no early stopping; use posterior=gaussian."
        )
    if not 0 <= validation_fraction < 1:
        raise ValueError(f"validation_fraction must be at least 0 and less than 1, got {validation_fraction}.")
    # Rows to train on, and those that are held out, if any.
    order = np.random.default_rng([seed, 0]).permutation(len(X))
    num_held_out = int(np.ceil(validation_fraction * len(X)))
    if num_held_out >= len(X):
        raise ValueError(f"validation_fraction={validation_fraction} leaves none of {len(X)} rows; lower it.")
    rows = np.sort(order[num_held_out:])
    held_out = np.sort(order[:num_held_out])
    training = training.for_rows(len(rows), batch_size)
    chosen = None
    # Deep sigma points: the weight of the KL by other held-out rows first.
    if config.posterior == "sigma_points" and config.points.kl_weight is None:
        chosen = choose_kl_weight(
            config,
            X[rows],
            Y[rows],
            training=training,
            max_iter=max_iter,
            class_names=class_names,
            seed=seed,
            batch_size=batch_size,
            show=show,
        )
        config = dataclasses.replace(config, points=dataclasses.replace(config.points, kl_weight=chosen.kl_weight))
    # The model before its first step, and all steps.
    predictor, trainer = start(
        config, X[rows], Y[rows], training=training, max_iter=max_iter, class_names=class_names, seed=seed
    )
    batch_at = batches(predictor.units.transform(X[rows], Y[rows]), batch_size, seed)

    def score() -> float:
        return predictor.score(X[held_out], Y[held_out])["log_likelihood_nats"]

    num_steps, scores = train(trainer, batch_at, draws(seed), score=score if num_held_out else None, show=show)
    assert trainer.course is not None  # of mypy: max_iter was given
    course = trainer.course
    sampler = None
    # The chain starts from the q that was trained.
    if config.posterior == "sghmc":
        sampler = sample(predictor, X[rows], Y[rows], sampling, batch_size=batch_size, seed=seed, show=show)
    bounds_and_scores = tuple(course.bounds), tuple(scores)
    return Fitted(predictor, trainer, num_steps, course.is_settled, *bounds_and_scores, sampler, chosen)


def check_counts(max_iter: int, batch_size: int) -> None:
    """:raises ValueError: if one of them is not positive."""
    for name, count in {"max_iter": max_iter, "batch_size": batch_size}.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}.")


def choose_kl_weight(
    config: ModelConfig,
    X: np.ndarray,
    Y: np.ndarray,
    *,
    held_out: float = 0.1,
    max_iter: int = 5000,
    seed: int = 0,
    show: Callable[[str], None] | None = None,
    path: Path | None = None,
    **options: Any,
) -> KLWeight:
    """The weight of the KL with which deep sigma points predict held-out rows best.

    Weights, and a Gaussian posterior beside, are trained on the other rows for a quarter of the steps, at least 500.
    Warns if the Gaussian posterior is the better one.

    :param config: with `posterior="sigma_points"`.
    :param X: [N, D], in the units of the data.
    :param Y: [N, P], likewise.
    :param held_out: share of the rows.
    :param max_iter: steps of the training to come; and others as in `fit`.
    :param path: of a file that keeps the choice; what it holds is not chosen again.
    :raises ValueError: as `fit`; if there is only one row; if the file holds something else.
    """
    if len(X) < 2:
        raise ValueError(f"kl_weight must be given for {len(X)} row: none can be held out.")
    # Rows to train on, and others to judge the weights by.
    order = np.random.default_rng([seed, 1]).permutation(len(X))
    cut = max(1, round(held_out * len(X)))
    rows = np.sort(order[cut:])
    judged_rows = np.sort(order[:cut])
    options |= {"max_iter": min(max_iter, max(max_iter // 4, 500)), "seed": seed}

    def log_densities(tried: ModelConfig) -> NDArray[np.float64]:
        predictor = fit(tried, X[rows], Y[rows], **options).predictor
        scores = np.asarray(predictor.predict(X[judged_rows], Y[judged_rows]).log_density, np.float64)
        if show is not None:
            weight = "" if tried.points.kl_weight is None else f" with kl_weight={tried.points.kl_weight:g}"
            show(f"posterior={tried.posterior}{weight}: {scores.mean():.4f} nats per row held out")
        return scores

    def make() -> KLWeight:
        return best_kl_weight(config, log_densities)

    # Chosen once; a run that goes on finds the choice in its file.
    chosen = make() if path is None else stored_kl_weight(path, make)
    if chosen.note is not None:
        warnings.warn(chosen.note, UserWarning, stacklevel=2)
    return chosen


def sample(
    predictor: Predictor,
    X: np.ndarray,
    Y: np.ndarray,
    sampling: SamplingConfig = SamplingConfig(),
    *,
    batch_size: int = 1000,
    seed: int = 0,
    show: Callable[[str], None] | None = None,
) -> Sampler:
    """Sample the posterior of a trained model, which predicts from the samples in the end.

    :param predictor: as `fit` made it.
    :param X: all training rows [N, D], in the units of the data.
    :param Y: [N, P], likewise.
    :param batch_size: and the others as in `fit`.
    :raises ValueError: as `Sampler`.
    :raises FloatingPointError: if a step fails.
    """
    sampler = Sampler(predictor.model, *predictor.units.transform(X, Y), sampling, batch_size=batch_size, seed=seed)
    for first in range(0, sampler.num_steps, SHOW_EVERY):
        with clear_errors("sampling failed: "):
            potential = sampler.advance(first, SHOW_EVERY)
        if show is not None:
            step = min(first + SHOW_EVERY, sampler.num_steps)
            show(f"step {step} of {sampler.num_steps} of the chain: potential {float(potential):.4f} nats per row")
    return sampler


def start(
    config: ModelConfig,
    X: np.ndarray,
    Y: np.ndarray,
    *,
    training: TrainingConfig = TrainingConfig(),
    max_iter: int | None = None,
    class_names: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Predictor, Trainer]:
    """The model before its first step, with the units of these rows; its `num_data` is a variable.

    Parameters and errors as in `fit`; without `max_iter` the learning rate of the trainer never falls.
    """
    # What the data decide: task, likelihood, units; and the model in these units.
    task: Task = "regression" if not class_names else "binary" if len(class_names) == 2 else "multiclass"
    config = config.for_data(task, [(X, Y)])
    units = Units.fit(X, Y, config.likelihood, standardise=not config.is_convolutional)
    rows = units.transform(X, Y)
    model = config.build(*rows, num_classes=len(class_names), seed=seed)
    model.num_data = tf.Variable(len(X), dtype=gpflow.default_float(), trainable=False, name="num_data")
    predictor = Predictor(model, units, task=task, class_names=class_names)
    return predictor, Trainer(model, training, num_steps=max_iter, data=rows)


def train(
    trainer: Trainer,
    batch_at: Callable[[int], RegressionData],
    seed: tf.Tensor,
    *,
    score: Callable[[], float] | None = None,
    show: Callable[[str], None] | None = None,
) -> tuple[int, list[float]]:
    """Train to the end of the trainer's course.

    :param trainer: with `num_steps`.
    :param batch_at: minibatch of a step, in the model's units.
    :param seed: of the draws, int32 [2].
    :param score: log density of held-out rows by the current parameters, nats per row; the model has also settled when
        it has stopped rising, and the parameters of the best one are those that the model has in the end.
    :return: number of steps, and the scores after each window of steps.
    :raises FloatingPointError: if a step fails.
    """
    # A window of steps at a time, after which the course may have another end.
    course = trainer.course
    step = 0
    if course is None:
        raise ValueError("the trainer has no num_steps, so there is no end; make it as Trainer(..., num_steps=5000).")
    scores = list[float]()
    best = Best()
    parameters = list[np.ndarray]()
    cost = Cost(course.end, "steps")
    while not trainer.is_done(step):
        stop = min(step - step % WINDOW + WINDOW, course.end)
        trainer.advance(batch_at, step, stop - step, seed)
        trainer.scalars()  # refuses a bound that is not finite
        step = stop
        cost(step)
        # Held-out rows: the best parameters so far, and whether they have stopped gaining.
        if score is not None:
            scores.append(score())
            best = best.after(step, -scores[-1])
            if best.step == step:
                parameters = [variable.numpy() for variable in trainer.model.variables]
            if (patience := course.config.n_iter_no_change) and has_settled(scores, course.config.tol, patience):
                course.settle(step)
        if show is not None:
            show(_line(trainer, step, scores))
    # Back to the best parameters.
    for variable, value in zip(trainer.model.variables if parameters else (), parameters, strict=True):
        variable.assign(value)
    return step, scores


def _line(trainer: Trainer, step: int, scores: Sequence[float]) -> str:
    course = trainer.course
    assert course is not None  # of mypy: `train` has looked
    bound = course.bounds[-1] if course.bounds else trainer.scalars()["train/elbo_nats"] / course.num_data
    held_out = f", held-out log density {scores[-1]:.4f}" if scores else ""
    seconds = float(trainer.seconds)
    return f"step {step} of at most {course.end}: bound {bound:.4f}{held_out} nats per row, {seconds:.0f} s"


def count_rows(model: DeepGP, num_rows: int) -> None:
    """Tell a model of `start` that the stream has more rows."""
    num_data: Any = model.num_data
    num_data.assign_add(num_rows)


def pass_over(
    predictor: Predictor, trainer: Trainer, X: np.ndarray, Y: np.ndarray, *, first: int, batch_size: int, seed: int
) -> int:
    """One pass over new rows of a stream, at the full learning rate: each is in one of the minibatches.

    `num_data` of the model has to count these rows already; see `count_rows`.

    :param X: inputs [n, D] in the units of the data.
    :param Y: targets [n, P], likewise.
    :param first: number of the first step.
    :return: number of steps.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    batch_at = batches(predictor.units.transform(X, Y), batch_size, seed, first)
    count = -(-len(X) // batch_size)
    trainer.advance(batch_at, first, count, draws(seed))
    trainer.scalars()
    return count


def draws(seed: int) -> tf.Tensor:
    """Seed of the draws of all steps, int32 [2]."""
    return tf.constant([seed, 2], tf.int32)


def batches(
    arrays: tuple[np.ndarray, np.ndarray], batch_size: int, seed: int, first: int = 0
) -> Callable[[int], RegressionData]:
    """Minibatches of arrays by step, counted from `first`."""
    if batch_size >= len(arrays[0]):
        everything = tuple(map(tf.constant, arrays))
        return lambda step: everything

    def batch_at(step: int) -> RegressionData:
        rows = minibatch(seed, step - first, len(arrays[0]), batch_size)
        return tuple(tf.constant(array[rows]) for array in arrays)

    return batch_at


def worse_than_simplest(
    likelihood: Likelihood, log_density: float, train: Part, rows: Part, *, margin: float = 0.0
) -> str | None:
    """Words for a model that is worse than the simplest one of its kind.

    :param log_density: mean of the model over rows, nats per row in the units of the data.
    :param train: inputs and targets that the simplest model is fitted to.
    :param rows: those that both are judged on.
    :param margin: nats per row that the simplest model may be ahead.
    :return: None if the model is no worse, or there is no simplest one.
    """
    # The mean log density of the simplest model on the same rows.
    density = simplest_model(likelihood, *train)
    simple = -np.inf if density is None else float(np.mean(density(*rows)))
    if log_density >= simple - margin:
        return None
    # What the simplest model is called.
    if task_of(likelihood) != "regression":
        simplest = "the frequencies of the classes"
    else:
        simplest = "one rate for all rows" if isinstance(likelihood, Poisson) else "least squares"
    return f"worse than {simplest}: {log_density:.3f} against {simple:.3f} nats per row"


def simplest_model(likelihood: Likelihood, X: np.ndarray, Y: np.ndarray) -> LogDensity | None:
    """The simplest model for the targets of a likelihood, fitted to rows: least squares with Gaussian noise for real
    targets, one rate for counts, the frequencies of labels.

    :param X: inputs [N, D].
    :param Y: targets [N, P], in the units of the data.
    :return: its log density in nats, [n], of rows X [n, D], Y [n, P]; None if least squares has as many weights as
        rows, or targets do not vary. Where it is exact it errs by a hundredth of the targets' standard deviation.
    """
    if isinstance(likelihood, Poisson):
        # Counts: one rate.
        rate = np.maximum(Y.mean(axis=0), 1e-300)
        return lambda X, Y: np.sum(Y * np.log(rate) - rate - gammaln(Y + 1), axis=1)
    if task_of(likelihood) != "regression":
        # Labels: their frequencies.
        labels, counts = np.unique(Y, return_counts=True)
        shares = dict(zip(labels.tolist(), (counts / len(Y)).tolist(), strict=True))
        return lambda X, Y: np.log([max(shares.get(label, 0.0), 1e-300) for label in Y[:, 0].tolist()])
    # Real numbers: least squares.
    is_exact_anyway = len(X) <= X.shape[1] + 1
    try:
        linear = LinearModel.fit(X, Y, least_share=0.0 if is_exact_anyway else LEAST_ERROR**2)
    except ValueError:
        return None
    return lambda X, Y: linear.forecast(X, Y).log_density
