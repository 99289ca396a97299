"""Which deep GP for a table of numbers: kernel, inducing inputs, depth, noise and posterior, chosen by the rows.

    fitted = fit_chosen(ModelConfig(preset="modern"), FREE, X, Y)   # to a Predictor
    print(fitted.choice)                                            # candidates, scores, CPU seconds

1. A single layer with Gaussian noise comes first: its marginal likelihood (up to `EXACT_ROWS` rows), or the collapsed
   bound of Titsias (2009), by L-BFGS, from two starts (much noise, little) for each kernel, of which the one with
   the highest value is taken. Kernels are raced on `RACE_ROWS` rows first. Exact ones are judged by leave-one-out, see
   `single_layer`.

2. A Student's t likelihood is tried where the noise may have long tails. Of an exact single layer with one target its
   bound has to be above the marginal likelihood by `STRONG`, and left-out rows have to gain more than a standard error
   if outliers are not rare; of more than `RACE_ROWS` rows such a gain is enough. Others are trained by steps and judged
   as step 3 says, where the central halves of the predictions hold too many rows and residuals have long tails.
3. Deeper models start with the kernel, likelihood and noise found so far, and are trained on a part of the rows: for a
   twelfth of the steps (a quarter where the single layer is exact), three times (twice) as many, and all of them, as
   long as they are not behind. One is taken only if the other rows gain more than a standard error by it; then it goes
   on with all rows. Of up to `EXACT_ROWS` noisy rows none is tried if left-out residuals of the single layer look
   Gaussian; without noise (a simulator's) one is tried unless these residuals are small. There the CRPS is compared in
   place of the log density. Of few such rows, or of 100 at most that look as if they had noise, two layers have no
   steps: their inner outputs are drawn, see `imputation`. They are taken if they are not behind by a standard error and
   the mean logarithm of the CRPS is clearly lower: in the mean itself errors at a few rows, between which the function
   jumps, outweigh all others. Where some targets are equal, the rows of others have to gain by it, too.
   Of many noisy rows deep sigma points, which are trained by what they predict, are tried last, where left-out
   residuals of the best model so far have long tails, or are large in one place and small in another.
4. What was chosen is fitted to all rows. A single layer gets more inducing inputs for as long as its bound rises.

Everything is a function of the rows and the seed; CPU seconds are told and choose nothing.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Gaussian, Likelihood, StudentT
from numpy.typing import NDArray
from scipy.special import ndtri

from gpflow_deep_base.cost import LEAST_SECONDS, tell
from gpflow_deep_base.runtime.threads import one_blas_thread
from gpflow_deep_base.text import within

from ...model.deep_gp import NUM_PREDICT_SAMPLES, DeepGP
from ...model.likelihoods import GaussianMixture
from ...model.scaling import Units
from ...posteriors.collapsed import MAX_ROWS, fit_collapsed, set_exact_q
from ...posteriors.ensemble import InducingSamples
from ...posteriors.noise import ABOVE_BOUND, has_noise
from ..config import LINEAR, KernelName, LayerConfig, ModelConfig, make_kernel
from ..course import TrainingConfig
from ..fitting import Fitted, batches, check_counts, draws, fit, train
from ..predictor import Predictor
from ..presets import modern, with_global_inducing
from ..training import Trainer
from .choice import Candidate, Choice
from .imputation import DRAWS, INNER, MAX_INPUTS, NOISE, Imputed, impute
from .imputation import MAX_ROWS as MAX_IMPUTED
from .single_layer import (
    CANDIDATES,
    DF,
    EXACT_ROWS,
    LEAST_NOISE,
    MIDDLE,
    NO_NOISE,
    PLAIN,
    RACE_ROWS,
    STRONG,
    SingleLayer,
    chance_of_function,
    climb_exact,
    climb_sparse,
    grow,
    judge,
    leave_one_out,
    paired_gain,
    rms_error,
    search_exact,
    search_sparse,
    search_student_t,
    squared_distances,
)

__all__ = ["Begun", "begin_chosen", "build_imputed", "build_single", "can_choose", "fit_chosen"]

Array = NDArray[np.float64]
Show = Callable[[str], None] | None

NUM_INDUCING = 100
"""Inducing inputs to begin with, and of deep models."""

MAX_INDUCING = 400
"""The most inducing inputs that are chosen."""

FEW_NOISY_ROWS = 300
"""Up to so many rows with noise no deeper model is tried: what it may gain is less than some 40 rows can tell."""

SMALL_ERROR = 0.01
"""Of the single layer for rows left out, in standard deviations of targets without noise: no deeper model is tried."""

ROUGH = 0.6
"""With a larger one, a function without noise is as rough between rows as noise would be."""

LITTLE_WEIGHT = 0.1
"""A row with less is six scales of Student's t off, as one of a hundred is."""

MOST_OUTLIERS = 0.05
"""The largest share of such rows that is taken for noise without asking rows that are left out."""

HELD_OUT = 40
"""Rows of a small table on which a deeper model is judged."""

TRIAL_STEPS = 3600
"""The most steps of a deeper model on all parts of a small table, and one part more."""

FEW_SHARP_ROWS = 100
"""Up to so many rows jumps and valleys look like noise to a single layer: two layers without noise are tried, too."""

TELLING_ROWS = 12
"""Held-out rows by which one of two such kernels is taken, or none."""

SURE = 3.0
"""Standard errors by which the logarithm of the CRPS has to be lower with a model without steps."""

FLOOR = 1e-6
"""Below it a CRPS, in standard deviations of the targets, makes no difference."""

SMALL_BATCH = 250
"""The most rows of a minibatch of models that are trained by steps where the single layer is exact."""

LARGE_BATCH = 500
"""The same for larger tables: with more rows the same seconds bring less."""

VERY_LARGE_BATCH = 1000
"""The same for more than `MANY_ROWS` rows."""

MANY_ROWS = 12_000
"""Of so many rows the last nats are worth the seconds."""

KL_WEIGHT_OF_MANY = 0.2
"""Weight of the KL of sigma points for more than `MANY_ROWS` rows, as rows held back choose there."""

UNSETTLED = 0.05
"""Rise of the bound over the last two windows, nats per row, that is told."""

HOPELESS = 0.5
"""Nats per row: a model that is so much behind at the first look, after a twelfth of its steps, is given up."""

_NEIGHBOURS = 5


# Deep models, and others that are trained by steps.


class Scores(NamedTuple):
    """How well some rows are predicted that were not trained on.

    :ivar log_density: [n], nats in the units of the data.
    :ivar merit: [n], what is compared: the log density, or minus the CRPS in standard deviations of the targets where
        they have no noise. Of interpolations the density at a few rows, near which the function turns, outweighs all
        others.
    """

    log_density: Array
    merit: Array

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """Those of several parts, one behind the other."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


class _Trained:
    """A model by steps that is trained on several parts of the rows in turn: the step is compiled once.

    :param config: the model.
    :param rows: X [N, D] and Y [N, P] in the units of the model.
    :param noise: variance of Gaussian noise to start with.
    """

    def __init__(
        self,
        config: ModelConfig,
        rows: tuple[Array, Array],
        units: Units,
        noise: float,
        training: TrainingConfig,
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        self.config = config
        self._rows = rows
        self._noise = noise
        self._training = training
        self._batch_size = batch_size
        self._seed = seed
        self.model = self._new(np.arange(batch_size))
        self._num_data = tf.Variable(1, dtype=gpflow.default_float(), trainable=False, name="num_data")
        self.model.num_data = self._num_data
        self.predictor = Predictor(self.model, units)
        self.trainer: Trainer | None = None
        self.num_steps = 0
        self.residuals: Array = np.zeros([0, 1])  # [n, P], of the rows that were scored last

    def _new(self, part: np.ndarray) -> DeepGP:
        # With the noise of the single layer, as far as the noise is Gaussian.
        X, Y = (array[part] for array in self._rows)
        model = self.config.build(X, Y, seed=self._seed)
        if has_noise(model):
            model.likelihood = Gaussian(variance=max(self._noise, 1e-4), variance_lower_bound=LEAST_NOISE)
        return model

    def run(self, part: np.ndarray, num_steps: int, *, anew: bool, show: Show = None) -> list[float]:
        """Train on the rows with these numbers, from the start or from where the model is; the mean bounds of windows.

        :raises FloatingPointError: if a step fails.
        """
        # From the start: parameters of a new model go into the one whose step is compiled.
        if anew:
            gpflow.utilities.multiple_assign(self.model, gpflow.utilities.parameter_dict(self._new(part)))
        # Another course of the same steps.
        self._num_data.assign(len(part))
        if self.trainer is None:
            self.trainer = Trainer(self.model, self._training, num_steps=num_steps)
        else:
            self.trainer.restart(num_steps, num_data=len(part))
        X, Y = (array[part] for array in self._rows)
        steps_made, _ = train(self.trainer, batches((X, Y), self._batch_size, self._seed), draws(self._seed), show=show)
        self.num_steps += steps_made
        assert self.trainer.course is not None  # of mypy: num_steps was given
        return self.trainer.course.bounds

    @property
    def noise(self) -> float | None:
        """Variance of Gaussian noise, in units of the variance of the targets."""
        return float(self.model.likelihood.variance.numpy()) if has_noise(self.model) else None

    def scores(self, part: np.ndarray, Y: Array, *, by_crps: bool) -> Scores:
        """Of rows with these numbers. Their `residuals` are standard normal if the predictions are right, whatever
        their form."""
        # What the model says of these rows in the units of the data, and where the targets are in it.
        X = self.predictor.units.x.inverse_transform(self._rows[0][part])
        forecast = self.predictor.forecast(X, Y[part])
        predictive = forecast.predictive
        assert predictive is not None  # of mypy: Gaussian and Student's t have it
        self.residuals = np.asarray(ndtri(np.clip(predictive.cdf(Y[part]), 1e-12, 1 - 1e-12)))
        log_density = np.asarray(forecast.log_density, np.float64)
        # What is compared: densities, or the CRPS where there is no noise.
        if not by_crps:
            return Scores(log_density, log_density)
        return Scores(log_density, -np.mean(predictive.crps(Y[part]) / self.predictor.units.y.scale, axis=1))


# The choice.


def can_choose(config: ModelConfig, num_classes: int = 0) -> bool:
    """Whether a single layer by L-BFGS can come first: numbers as targets, kernels of vectors, float64, and a posterior
    that a bound trains by Adam."""
    is_dense = not config.latents.latent_dim and not config.is_convolutional
    is_plain = config.posterior in ("gaussian", "imputed") and is_dense
    is_real = num_classes == 0 and config.likelihood in ("auto", "gaussian", "studentt")
    is_usual = config.preset == "modern" and not config.natgrad and config.layers == LayerConfig()
    return is_plain and is_real and is_usual and gpflow.default_float() == np.float64


def fit_chosen(
    config: ModelConfig,
    free: Collection[str],
    X: np.ndarray,
    Y: np.ndarray,
    *,
    training: TrainingConfig = TrainingConfig(),
    max_iter: int = 5000,
    batch_size: int = 1000,
    validation_fraction: float = 0.0,
    seed: int = 0,
    show: Show = None,
    show_steps: bool = False,
) -> Fitted:
    """Choose a model for rows in memory, and fit it to all of them.

    :param config: what is not free; with `can_choose`.
    :param free: some of `FREE`.
    :param X: inputs [N, D] in the units of the data.
    :param Y: numbers [N, P].
    :param show_steps: whether `show` gets lines while models are trained, too; the rest as `fitting.fit`.
    :return: with `choice`.
    :raises ValueError: as `fitting.fit`.
    :raises FloatingPointError: likewise.
    """
    check_counts(max_iter, batch_size)
    course = _Course(training, max_iter, batch_size, validation_fraction, seed)
    with one_blas_thread():
        return _Search(config, free, X, Y, course, show, show_steps).fit()


class Begun(NamedTuple):
    """What was chosen, and how far it is trained.

    :ivar choice: what was tried, and what was taken.
    :ivar model: in the units of the data: trained to the end if `is_finished`, else where training goes on, or None if
        it has not begun.
    :ivar is_finished: whether nothing is left to train: of a single layer with Gaussian noise, and of two whose inner
        outputs were drawn.
    :ivar single: the single layer with Gaussian noise, trained to the end; None if it was not asked for.
    :ivar training: how to go on.
    :ivar batch_size: likewise.
    :ivar single_seconds: that fitting the single layer took, of wall time.
    """

    choice: Choice
    model: Predictor | None
    is_finished: bool
    single: Predictor | None
    training: TrainingConfig
    batch_size: int
    single_seconds: float


def begin_chosen(
    config: ModelConfig,
    free: Collection[str],
    X: np.ndarray,
    Y: np.ndarray,
    *,
    training: TrainingConfig = TrainingConfig(),
    max_iter: int = 5000,
    batch_size: int = 1000,
    seed: int = 0,
    with_single: bool = False,
    show: Show = None,
) -> Begun:
    """Choose a model as `fit_chosen` does, and leave what is left of training to the caller.

    :param with_single: whether to fit the single layer, too, where a deeper model with Gaussian noise is chosen or
        asked for; the rest as of `fit_chosen`.
    :raises ValueError: as `fitting.fit`.
    :raises FloatingPointError: likewise.
    """
    check_counts(max_iter, batch_size)
    course = _Course(training, max_iter, batch_size, 0.0, seed)
    with one_blas_thread():
        return _Search(config, free, X, Y, course, show, show_steps=False).begin(with_single=with_single)


@dataclass(frozen=True)
class _Course:
    """How models are trained, as in `fitting.fit`."""

    training: TrainingConfig
    max_iter: int
    batch_size: int
    validation_fraction: float
    seed: int


class _Search:
    """One search: the rows, and what was tried so far."""

    def __init__(
        self,
        config: ModelConfig,
        free: Collection[str],
        X: np.ndarray,
        Y: np.ndarray,
        course: _Course,
        show: Show,
        show_steps: bool,
    ) -> None:
        # What is chosen already: an open likelihood is Gaussian until the rows say something else.
        is_open = config.likelihood == "auto"
        self.config = dataclasses.replace(config, likelihood="gaussian") if is_open else config.for_task("regression")
        self.free = frozenset(free)
        self.X = np.asarray(X, np.float64)
        self.Y = np.asarray(Y, np.float64)
        self.course = course
        self.units = Units.fit(self.X, self.Y, "gaussian")
        self.x, self.y = self.units.transform(self.X, self.Y)
        self.show = show
        self.show_steps = show if show_steps else None
        self.show_climb = show if len(self.X) > RACE_ROWS else None  # of fewer rows it is a matter of a second
        # What was tried, and what is known so far.
        self.candidates: list[Candidate] = []
        self.advice: list[str] = []
        self.began = time.process_time()
        self.single_seconds = 0.0
        self.by_crps = False  # of functions without noise
        self.left_out_error = np.nan  # of an exact single layer
        self.is_imputed = config.posterior == "imputed"
        # Up to so many rows are inducing inputs themselves.
        is_full = "num_inducing" in free or config.num_inducing >= len(X)
        self.is_exact = is_full and len(X) <= 2 * EXACT_ROWS
        self.num_inducing = NUM_INDUCING if "num_inducing" in free else config.num_inducing
        self.num_inducing = min(self.num_inducing, len(X))
        if self.is_imputed and not (self._can_impute() and self.config.num_layers == 2):
            got = f"{len(X)} rows of {self.X.shape[1]} inputs, num_layers={self.config.num_layers}"
            raise ValueError(
                f"posterior=imputed takes two layers, Gaussian noise and up to {MAX_IMPUTED} rows of {MAX_INPUTS} "
                f"inputs, all of them inducing inputs; got {got}, num_inducing={config.num_inducing} and "
                f"likelihood={self.config.likelihood}; use posterior=gaussian."
            )

    def fit(self) -> Fitted:
        """Choose, and fit."""
        if self._is_asked_for():
            return self._deep_as_asked()
        single, best, residuals = self._choose()
        if isinstance(best, _Trained):
            fitted = self._finish(best)
            return fitted._replace(choice=self._told(fitted.predictor, residuals, best))
        fitted = self._finish_single(single) if best is None else self._finish_imputed(single, best)
        return fitted._replace(choice=self._told(fitted.predictor, residuals))

    def begin(self, *, with_single: bool) -> Begun:
        """Choose; only a single layer with Gaussian noise is fitted to the end."""
        training = self.course.training
        batch_size = self.course.batch_size
        if self._is_asked_for():
            # Depth or likelihood are given: the single layer is only what is wanted beside it.
            self.chosen = self._with_kernel()
            finished = None
            if with_single and self.config.likelihood == "gaussian":
                self.config = dataclasses.replace(self.chosen, num_layers=1, num_inducing=self.config.num_inducing)
                deep_config = self.chosen
                self.free = self.free - {"kernel"}
                finished = self._finish_single(self._single(np.arange(len(self.X)))).predictor
                self.chosen = deep_config
            return Begun(self._told(None, None), None, False, finished, training, batch_size, self.single_seconds)
        single, best, residuals = self._choose()
        # The single layer is the choice, trained to the end; or two layers whose inner outputs were drawn.
        if not isinstance(best, _Trained):
            fitted = self._finish_single(single).predictor if best is None or with_single else None
            predictor = fitted if best is None else self._finish_imputed(single, best).predictor
            choice = self._told(predictor, residuals)
            return Begun(choice, predictor, True, fitted, training, batch_size, self.single_seconds)
        # Something by steps is the choice, whose training goes on elsewhere.
        is_beside = with_single and best.config.num_layers > 1 and best.config.likelihood == "gaussian"
        finished = self._finish_single(single).predictor if is_beside else None
        self.chosen = best.config
        choice = self._told(best.predictor, residuals, best)
        return Begun(choice, best.predictor, False, finished, *self._way_of(len(self.X)), self.single_seconds)

    def _is_asked_for(self) -> bool:
        """Whether depth or likelihood are given so that at most the kernel is chosen."""
        is_deep = self.config.num_layers > 1 and "num_layers" not in self.free
        return (is_deep or self.config.likelihood != "gaussian") and not self.is_imputed

    def _choose(self) -> tuple[SingleLayer, _Trained | ModelConfig | None, Array | None]:
        """The single layer, what is better than it (trained, or the settings of two layers whose inner outputs are
        drawn), and standardised residuals of left-out rows [n, P]."""
        if self.is_imputed:
            single = self._single(np.arange(len(self.X)))
            self._add(self._name_of(single), None, "marginal likelihood", value=single.value)
            return single, self._imputed_config(self._plain(single.kernel)), None
        # The single layer, with all rows if it is exact; held-out rows where there are rivals.
        folds = self._folds() if self._has_rivals() else []
        single = self._single(folds[0][0] if folds and not self.is_exact else np.arange(len(self.X)))
        # How well it predicts rows that it has not seen: left out one by one, held out, or not known.
        scores: Scores | None = None
        residuals: Array | None = None
        if self.is_exact:
            single, residuals = self._left_out(single)
        elif folds:
            residuals, scores = self._held_out(single, folds)
            self._add(self._name_of(single), scores.log_density, "held out")
        else:
            value = single.value * self.y.shape[1] - self.units.y.log_volume
            self._add(self._name_of(single), None, "the bound", value=value)
        best = None if residuals is None or not folds else self._rivals(single, folds, scores, residuals)
        return single, best, residuals

    # What is tried.

    def _has_rivals(self) -> bool:
        return bool(self.free & {"num_layers", "likelihood"}) and len(self.X) >= 10

    def _folds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rows to train on, and rows that are held out: of many rows once a tenth, of few a fifth, up to five times, so
        that about `HELD_OUT` rows are judged."""
        # About `HELD_OUT` of few rows, in parts that do not overlap.
        N = len(self.X)
        order = np.random.default_rng([self.course.seed, 0]).permutation(N)
        count = 1
        size = min(N // 10, 2000)
        if N <= EXACT_ROWS:
            size = N // 5
            count = int(np.clip(round(HELD_OUT / size), 1, 5))
        parts = [order[k * size : (k + 1) * size] for k in range(count)]
        return [(np.sort(np.setdiff1d(order, part)), np.sort(part)) for part in parts]

    def _kernels(self) -> Sequence[KernelName]:
        return CANDIDATES if "kernel" in self.free else (self.config.kernel,)

    def _single(self, part: np.ndarray) -> SingleLayer:
        began = time.monotonic()
        single = self._searched(part)
        self.single_seconds += time.monotonic() - began
        return single

    def _searched(self, part: np.ndarray) -> SingleLayer:
        rows = part
        # Of more rows than the bound can take at once, some.
        if len(rows) > MAX_ROWS:
            rows = np.sort(np.random.default_rng([self.course.seed, 4]).choice(part, MAX_ROWS, replace=False))
        x = self.x[rows]
        y = self.y[rows]
        seed = self.course.seed
        max_iter = min(self.course.max_iter, 200)
        # Exact at once; or sparse first, from which an exact one goes on.
        if self.is_exact and len(rows) <= EXACT_ROWS:
            return search_exact(x, y, self._kernels(), max_iter=max_iter, seed=seed, show=self.show_climb)
        single = search_sparse(
            x, y, self._kernels(), min(self.num_inducing, NUM_INDUCING), max_iter=max_iter, seed=seed, show=self.show
        )
        if self.is_exact:
            single = climb_exact(dataclasses.replace(single, Z=None), x, y, min(max_iter, MIDDLE), show=self.show)
        return single

    def _left_out(self, single: SingleLayer) -> tuple[SingleLayer, Array]:
        """An exact single layer, with Student's t noise if that is better, and standardised residuals [N, P] of rows
        left out one by one."""
        residuals, log_densities = leave_one_out(single, self.x, self.y)
        self._add(self._name_of(single), log_densities.sum(axis=1) - self.units.y.log_volume, "left out one by one")
        self.left_out_error = rms_error(residuals, log_densities)
        self.by_crps = single.noise <= NO_NOISE
        if "likelihood" not in self.free:
            return single, residuals
        return self._with_long_tails(single, residuals, log_densities)

    def _with_long_tails(
        self, single: SingleLayer, residuals: Array, log_densities: Array
    ) -> tuple[SingleLayer, Array]:
        """An exact single layer with Student's t noise if that is clearly better than this one, and its residuals."""
        # One huge target makes a function without noise that is rough; one that is not so has jumps or valleys.
        is_noise = single.noise > NO_NOISE or self.left_out_error > ROUGH
        is_small = len(self.X) <= RACE_ROWS
        if self.y.shape[1] > 1 or not is_noise or not (is_small or is_long_tailed(residuals)):
            return single, residuals
        # Evidence of all rows, and the gain of left-out ones.
        began = time.process_time()
        tried = search_student_t(single, self.x, self.y, max_iter=min(self.course.max_iter, 200))
        tried_residuals, tried_densities = leave_one_out(tried, self.x, self.y)
        evidence = (tried.value - single.value) * len(self.X)
        if single.is_trend and not tried.is_trend:
            evidence -= chance_of_function(self.x)
        gain, error = paired_gain(tried_densities[:, 0], log_densities[:, 0])
        scores = tried_densities[:, 0] - self.units.y.log_volume
        note = f"left out one by one, {gain:+.3f} ± {error:.3f}; evidence of all rows {evidence:+.1f}"
        self._add(self._name_of(tried), scores, note, began=began, gain=(gain, error))
        # A single outlier can make an error as large as the gain; many of them, without a gain, are valleys or peaks.
        assert tried.weights is not None  # of mypy: its noise is Student's t
        # Rows with little weight are outliers.
        is_rare = np.sum(tried.weights < LITTLE_WEIGHT) <= max(1, MOST_OUTLIERS * len(self.X))
        is_strong = evidence >= STRONG
        is_better = gain > error or (is_strong and is_rare)
        if not is_better or (is_small and not is_strong):
            return single, residuals
        self.by_crps = False
        self.config = dataclasses.replace(self.config, likelihood="studentt")
        return tried, tried_residuals

    def _held_out(self, single: SingleLayer, folds: list[tuple[np.ndarray, np.ndarray]]) -> tuple[Array, Scores]:
        """Standardised residuals [n, P] and scores of the held-out rows of all parts."""
        all_residuals = []
        parts = []
        for rows, held in folds:
            weights = None if single.weights is None else single.weights[rows]
            part = dataclasses.replace(single, weights=weights)
            mean, variance = part.predict(self.x[rows], self.y[rows], self.x[held])
            residuals, log_densities = judge(part, self.y[held], mean, variance)
            # Log densities in the units of the data; the CRPS is compared where there is no noise.
            log_density = log_densities.sum(axis=1) - self.units.y.log_volume
            merit = self._scores_of(mean[None], variance[None], held).merit if self.by_crps else log_density
            all_residuals.append(residuals)
            parts.append(Scores(log_density, merit))
        return np.concatenate(all_residuals), Scores.joined(parts)

    def _rivals(
        self,
        single: SingleLayer,
        folds: list[tuple[np.ndarray, np.ndarray]],
        scores: Scores | None,
        residuals: Array,
    ) -> _Trained | ModelConfig | None:
        """The best of deeper models and other likelihoods; None for the single layer.

        :param scores: of the held-out rows by the single layer; None if they are not known yet.
        """
        best: _Trained | None = None
        # Of an exact single layer left-out residuals say whether there is any cause to try others.
        if self.is_exact:
            error = self.left_out_error
            is_uneven = is_long_tailed(residuals) or is_clustered(residuals, self.x / single.lengthscales)
            if single.noise <= NO_NOISE and error < SMALL_ERROR:
                self._skip("deeper models", f"not tried: the single layer errs by {error:.1g} standard deviations")
                return None
            is_sharp = self._tries_imputed(single) and not single.is_trend
            if not is_uneven and (error > ROUGH or (single.noise > NO_NOISE and not is_sharp)):
                self._skip("deeper models", "not tried: the residuals of the single layer look Gaussian")
                return None
        if self._tries_imputed(single):
            return self._try_imputed(single, folds)
        if scores is None:
            scores = self._held_out(single, folds)[1]
        base = dataclasses.replace(self.config, num_layers=1, kernel=single.kernel, num_inducing=self._num_deep())
        # Step 2: Student's t by steps, where central halves hold too many rows.
        if "likelihood" in self.free and not (self.is_exact and self.y.shape[1] == 1):
            inside = float(np.mean(np.abs(residuals) < 0.6745))
            is_peaked = inside > 0.5 + max(0.05, 2 * 0.5 / np.sqrt(len(residuals)))
            if is_peaked and is_long_tailed(residuals) and single.noise > NO_NOISE:
                tried, tried_scores = self._try(dataclasses.replace(base, likelihood="studentt"), single, folds, scores)
                if tried is not None:
                    best = tried
                    scores = tried_scores
                    base = tried.config
        # Step 3: two layers, then three, for as long as each of them gains.
        is_little = self.is_exact and single.noise > NO_NOISE and len(self.X) <= FEW_NOISY_ROWS
        if is_little:
            self._skip("deeper models", "not tried: of so few noisy rows held-out ones could not tell")
        elif "num_layers" in self.free:
            for num_layers in (2, 3):
                if num_layers == 3 and self.is_exact:
                    break
                config = dataclasses.replace(base, num_layers=num_layers)
                tried, tried_scores = self._try(config, single, folds, scores)
                if tried is None:
                    break
                best = tried
                scores = tried_scores
        # Last, deep sigma points, where residuals of the best so far are uneven.
        if {"num_layers", "posterior"} <= self.free and not self.is_exact and single.noise > NO_NOISE:
            held = folds[0][1]
            best_residuals = residuals if best is None else best.residuals  # depth may have mended them
            if is_long_tailed(best_residuals) or is_clustered(best_residuals, self.x[held] / single.lengthscales):
                points = base.points
                if points.kl_weight is None and len(self.X) > MANY_ROWS:
                    points = dataclasses.replace(points, kl_weight=KL_WEIGHT_OF_MANY)
                config = dataclasses.replace(base, num_layers=2, posterior="sigma_points", points=points)
                tried, _ = self._try(config, single, folds, scores)
                best = best if tried is None else tried
        return best

    def _num_deep(self) -> int:
        return min(self.num_inducing, NUM_INDUCING) if "num_inducing" in self.free else self.num_inducing

    def _steps(self, config: ModelConfig) -> int:
        """Of a model that is trained by steps, in all: the more, the more rows there are; those of sigma points cost
        twice as much."""
        steps = min(self.course.max_iter, 1500 + min(len(self.X) // 4, 1500))
        return max(steps // 2, 1) if config.posterior == "sigma_points" else steps

    def _way_of(self, num_rows: int) -> tuple[TrainingConfig, int]:
        """How a model is trained by steps with so many rows, and rows of a minibatch."""
        training = self.course.training
        if training.learning_rate is None:
            training = dataclasses.replace(training, learning_rate=0.02 if self.is_exact else 0.03)
        usual = LARGE_BATCH if len(self.X) <= MANY_ROWS else VERY_LARGE_BATCH
        limit = min(self.course.batch_size, SMALL_BATCH if self.is_exact else usual)
        return training, min(limit, num_rows)

    def _try(
        self,
        config: ModelConfig,
        single: SingleLayer,
        folds: list[tuple[np.ndarray, np.ndarray]],
        scores: Scores,
    ) -> tuple[_Trained | None, Scores]:
        """Train a model for so long as it takes to see whether it is ahead; None if it is not, by a standard error.

        With one part held out there are looks after a twelfth and a quarter of the steps, and at the end; of small
        tables, whose steps are quick, after a quarter and a half.
        """
        began = time.process_time()
        # A guess of the time is said before it is spent.
        steps = self._steps(config)
        rows, held = folds[0]
        training, batch_size = self._way_of(len(rows))
        self._warn_of_time(config, steps, batch_size, len(folds))
        tried = _Trained(
            config, (self.x, self.y), self.units, single.noise, training, batch_size=batch_size, seed=self.course.seed
        )
        # Of a single part there are several looks; several parts are trained on one after the other.
        shares = (4, 2, 1) if self.is_exact else (12, 4, 1)
        looks = [max(steps // share, 1) for share in shares] if len(folds) == 1 else []
        parts: list[Scores] = []
        try:
            if looks:
                tried_scores, gain, error = self._looked_at(tried, looks, rows, held, scores)
            else:
                count = max(min(int(steps * _share_of_steps(len(rows))), TRIAL_STEPS // (len(folds) + 1)), 1)
                for part, left_out in folds:
                    tried.run(part, count, anew=True, show=self.show_steps)
                    parts.append(tried.scores(left_out, self.Y, by_crps=self.by_crps))
                    tried_scores = Scores.joined(parts)
                    gain, error = paired_gain(tried_scores.merit, scores.merit[: len(tried_scores.merit)])
                    if gain < -error:  # it is behind: other parts are not tried
                        break
        except FloatingPointError as failure:
            self._skip(self._name(tried.config), f"failed: {failure}", began)
            return None, scores
        # It is taken only if the gain is more than its standard error.
        words = f"held out, {self._gained(gain, error)} against the best before"
        self._add(self._name(tried.config), tried_scores.log_density, words, began=began, gain=(gain, error))
        return (tried, tried_scores) if gain > error else (None, scores)

    def _looked_at(
        self, tried: _Trained, looks: Sequence[int], rows: np.ndarray, held: np.ndarray, scores: Scores
    ) -> tuple[Scores, float, float]:
        """Scores of the held-out rows of a single part, and the gain with its standard error, when it is clear.

        :param looks: numbers of steps after which they are scored.
        """
        for number, look in enumerate(looks):
            if look > tried.num_steps:
                tried.run(rows, look - tried.num_steps, anew=number == 0, show=self.show_steps)
            tried_scores = tried.scores(held, self.Y, by_crps=self.by_crps)
            gain, error = paired_gain(tried_scores.merit, scores.merit)
            # At the first look it may be behind by more than a standard error, but not hopelessly.
            leeway = error
            if number == 0 and not self.by_crps:
                leeway = 2 * error if self.is_exact else HOPELESS
            is_behind = gain < -leeway
            if gain > error or is_behind or tried.config.num_layers > 2:
                break
        return tried_scores, gain, error

    def _can_impute(self) -> bool:
        """Whether inner outputs can be drawn."""
        is_small = self.is_exact and len(self.X) <= MAX_IMPUTED and self.X.shape[1] <= MAX_INPUTS
        return is_small and self.config.likelihood == "gaussian"

    def _tries_imputed(self, single: SingleLayer) -> bool:
        """Whether two layers without steps are what is tried: without noise, or where jumps may be taken for noise."""
        is_sharp = single.noise <= NO_NOISE or (len(self.X) <= FEW_SHARP_ROWS and self.y.shape[1] == 1)
        return is_sharp and {"num_layers", "posterior"} <= self.free and self._can_impute()

    def _try_imputed(self, single: SingleLayer, folds: list[tuple[np.ndarray, np.ndarray]]) -> ModelConfig | None:
        """Two layers whose inner outputs are drawn; None if they are not clearly ahead on held-out rows. Of two kernels
        of the last layer the one goes on that is better for the first `TELLING_ROWS` of them."""
        # The kernels of the last layer that are tried, and how the single layer does.
        began = time.process_time()
        self.by_crps = True
        rivals = self._held_out(single, folds)[1].merit
        kernels: tuple[KernelName, ...] = PLAIN if single.noise <= NO_NOISE else PLAIN[-1:]  # jumps are not smooth
        if "kernel" not in self.free:
            kernels = (self._plain(self.config.kernel),)
        tried: dict[KernelName, list[Scores]] = {kernel: [] for kernel in kernels}
        # Each part of the rows by each kernel, of which the better one goes on alone when enough is known.
        for part, held in folds:
            for kernel, parts in tried.items():
                drawn = impute(single, kernel, self.x[part], self.y[part], seed=self.course.seed, chains=1)
                means, variances = drawn.predict(self.x[part], self.y[part], self.x[held], seed=self.course.seed)
                parts.append(self._scores_of(means, variances, held))
            of_kernels = {kernel: Scores.joined(parts) for kernel, parts in tried.items()}
            kernel, joined = max(of_kernels.items(), key=lambda entry: float(entry[1].merit.mean()))
            rival_merit = rivals[: len(joined.merit)]
            gain, error = paired_gain(joined.merit, rival_merit)
            if len(rival_merit) >= TELLING_ROWS:
                tried = {kernel: tried[kernel]}
                if gain < -error:  # it is behind: other parts are not tried
                    break
        # By which factor the CRPS is smaller: in its mean, errors at a few rows, between which the function jumps,
        # outweigh all others.
        logs_before, logs_after = np.log(FLOOR - rival_merit), np.log(FLOOR - joined.merit)
        factors, factor_error = paired_gain(logs_before, logs_after)
        is_clear = factors > SURE * factor_error
        # Equal targets, as of what is cut off at 0, are met exactly without noise: others have to gain, too.
        held = np.concatenate([held for _, held in folds])[: len(rival_merit)]
        _, of_value, counts = np.unique(self.Y, axis=0, return_inverse=True, return_counts=True)
        is_single = (counts[of_value.ravel()] == 1)[held]
        if 1 < is_single.sum() < len(held):
            gain_of_others, error_of_others = paired_gain(logs_before[is_single], logs_after[is_single])
            is_clear = is_clear and gain_of_others > error_of_others
        # Taken if it is not behind, and the logarithms are clear.
        imputed = self._imputed_config(kernel)
        logs = f"its log {-factors:+.1f} ± {factor_error:.1f}"
        words = f"held out, {self._gained(gain, error)}, {logs}, against the best before"
        self._add(self._name(imputed), joined.log_density, words, began=began, gain=(gain, error))
        return imputed if gain > -error and is_clear else None

    def _scores_of(self, means: Array, variances: Array, held: np.ndarray) -> Scores:
        """Of a mixture of Gaussians with means [S, n, P] and variances [S, n] for rows with these numbers."""
        spread = np.broadcast_to(variances[:, :, None], means.shape)
        mixture = GaussianMixture(np.full(len(means), 1 / len(means)), means, spread)
        log_density = mixture.log_density(self.y[held]) - self.units.y.log_volume
        return Scores(log_density, -mixture.crps(self.y[held]).mean(axis=1) if self.by_crps else log_density)

    def _imputed_config(self, kernel: KernelName) -> ModelConfig:
        """Of two layers with this kernel of the last one."""
        return dataclasses.replace(
            self.config, num_layers=2, kernel=kernel, num_inducing=len(self.X), posterior="imputed"
        )

    def _plain(self, kernel: KernelName) -> KernelName:
        """Without a linear part."""
        return next(name for name in CANDIDATES if name == kernel.removesuffix(LINEAR))

    def _gained(self, gain: float, error: float) -> str:
        """In words; a smaller CRPS is a gain."""
        if self.by_crps:
            return f"CRPS {-gain:+.4f} ± {error:.4f} standard deviations"
        return f"{gain:+.3f} ± {error:.3f}"

    # The end.

    def _finish_single(self, single: SingleLayer) -> Fitted:
        """All rows, more inducing inputs where they help, and the best q(u)."""
        began = time.process_time()
        max_iter = min(self.course.max_iter, 2 * MIDDLE)
        begun_at = time.monotonic()
        if not self.is_exact:
            # The bound of all rows goes on rising, from where a part of them left it; then inducing inputs are added.
            rows = np.sort(np.random.default_rng([self.course.seed, 4]).permutation(len(self.X))[:MAX_ROWS])
            x = self.x[rows]
            y = self.y[rows]
            first_evaluations = single.evaluations
            if self._has_rivals():
                single = climb_sparse(single, x, y, max_iter, show=self.show)
            if "num_inducing" in self.free:
                single = grow(single, x, y, MAX_INDUCING, max_iter=max_iter, seed=self.course.seed, show=self.show)
            if single.evaluations > first_evaluations:
                assert single.Z is not None  # of mypy: it is sparse
                value = single.value * self.y.shape[1] - self.units.y.log_volume
                self._add(f"all rows, M={len(single.Z)}", None, "the bound", value=value, began=began)
        # A GPflow model with these parameters and the best q(u).
        config = dataclasses.replace(
            self.config,
            num_layers=1,
            kernel=single.kernel,
            num_inducing=len(self.X) if single.Z is None else len(single.Z),
        )
        predictor = Predictor(build_single(single, self.x, self.y, config), self.units)
        trainer = Trainer(predictor.model, self.course.training)
        self._say_if_noise_free(single.noise, single)
        bounds = (single.value * self.y.shape[1],)
        self.chosen = config
        self.noise = single.noise
        self.single_seconds += time.monotonic() - begun_at
        return Fitted(predictor, trainer, max(single.evaluations, 1), True, bounds, ())

    def _finish_imputed(self, single: SingleLayer, config: ModelConfig) -> Fitted:
        """Draw the inner outputs at all rows."""
        began = time.process_time()
        # Draws at all rows, and a model that predicts from them.
        self.chosen = config
        drawn = impute(single, config.kernel, self.x, self.y, seed=self.course.seed)
        model = build_imputed(drawn, self.x, self.y, config)
        predictor = Predictor(model, self.units)
        self._add("all rows", None, f"{len(drawn.draws)} draws of the inner outputs", began=began)
        self.noise = LEAST_NOISE
        self._say_if_noise_free(self.noise)
        trainer = Trainer(model, self.course.training)
        return Fitted(predictor, trainer, drawn.evaluations, True, (), ())

    def _finish(self, best: _Trained) -> Fitted:
        """Train what was chosen on, with all rows."""
        began = time.process_time()
        # With all rows: what is left of the steps, or half of them if that is more.
        first_steps = best.num_steps
        steps = self._steps(best.config)
        steps = max(steps - first_steps, steps // 2, 1)
        bounds = best.run(np.arange(len(self.X)), steps, anew=False, show=self.show)
        assert best.trainer is not None  # of mypy: it was trained
        assert best.trainer.course is not None
        # What is said of it: its bound, and whether that still rose.
        is_settled = best.trainer.course.is_settled
        value = bounds[-1] if bounds else None  # of whole windows
        note = f"the bound in standard units, {best.num_steps - first_steps} steps"
        self._add("all rows", None, note, value=value, began=began)
        longer = (
            f"num_layers={best.config.num_layers}, with which training has all max_iter={self.course.max_iter} steps"
        )
        is_short = best.num_steps < self.course.max_iter
        self._say_if_rising(bounds, longer if is_short else f"max_iter={2 * self.course.max_iter}")
        self._say_if_noise_free(best.noise)
        self.chosen = best.config
        return Fitted(best.predictor, best.trainer, best.num_steps, is_settled, tuple(bounds), ())

    def _deep_as_asked(self) -> Fitted:
        """The depth and the likelihood are given: at most the kernel is chosen, by the single layer."""
        # The kernel first, then all steps.
        config = self._with_kernel()
        course = self.course
        began = time.process_time()
        fitted = fit(
            config,
            self.X,
            self.Y,
            training=course.training,
            max_iter=course.max_iter,
            batch_size=course.batch_size,
            validation_fraction=course.validation_fraction,
            seed=course.seed,
            show=self.show,
        )
        # There was nothing to compare it with, so its bound alone is told.
        value = fitted.bounds[-1] if fitted.bounds else None
        self._add(self._name(config), None, "the bound in standard units", value=value, began=began)
        self._say_if_rising(fitted.bounds, f"max_iter={2 * course.max_iter}")
        self.chosen = config
        return fitted._replace(choice=self._told(fitted.predictor, None))

    def _with_kernel(self) -> ModelConfig:
        """The model that is asked for, with the kernel of the best single layer if it is free."""
        config = dataclasses.replace(self.config, num_inducing=self._num_deep())
        if "kernel" not in self.free:
            return config
        # The best exact single layer of some rows says which.
        rows = np.random.default_rng([self.course.seed, 5]).permutation(len(self.X))[:EXACT_ROWS]
        max_iter = min(self.course.max_iter, 100)
        single = search_exact(self.x[rows], self.y[rows], self._kernels(), max_iter=max_iter, seed=self.course.seed)
        self._add(f"kernel={single.kernel}", None, "marginal likelihood", value=single.value)
        return dataclasses.replace(config, kernel=single.kernel)

    def _say_if_rising(self, bounds: Sequence[float], cure: str) -> None:
        if len(bounds) > 2 and (rise := bounds[-1] - bounds[-3]) > UNSETTLED:
            self.advice.append(f"the bound still rose by {rise:.2f} nats per row over the last 200 steps: give {cure}.")

    def _say_if_noise_free(self, noise: float | None, single: SingleLayer | None = None) -> None:
        if noise is None or noise > 2 * LEAST_NOISE:
            return
        words = "these targets are taken to have none."
        if single is not None and single.Z is None and self.left_out_error > ROUGH:
            words = (
                f"rows left out are missed by {self.left_out_error:.2f} standard deviations, so the function is as "
                "rough as noise would be."
            )
        self.advice.append(f"the noise is at its lower bound: {words}")

    def _say_if_miscalibrated(self, inside: float, count: int) -> None:
        """Of so many left-out targets this share is in the central halves of their predictions."""
        if abs(inside - 0.5) <= max(0.1, 3 * 0.5 / np.sqrt(count)):
            return
        words = "too wide in the middle" if inside > 0.5 else "too narrow"
        if self.chosen.num_layers == 1 and self.chosen.likelihood == "gaussian":
            cure = "likelihood='studentt', or num_layers=2"
        else:
            cure = "posterior='sigma_points', which is trained by what it predicts"
        self.advice.append(
            f"central 50 % intervals hold {100 * inside:.0f} % of {count} left-out targets: they are {words}; "
            f"try {cure}."
        )

    def _told(self, predictor: Predictor | None, residuals: Array | None, best: _Trained | None = None) -> Choice:
        """The choice, said and kept with the model."""
        # A word on the calibration, where there is noise.
        residuals = residuals if best is None else best.residuals
        if residuals is not None and (best is not None or self.noise > NO_NOISE):
            self._say_if_miscalibrated(float(np.mean(np.abs(residuals) < 0.6745)), residuals.size)
        judged = (
            "of left-out rows; of bounds, training rows" if self.is_exact else "of held-out rows; of bounds, training"
        )
        choice = Choice(tuple(self.candidates), self.chosen, judged, tuple(self.advice))
        if predictor is not None:
            predictor.schema["choice"] = choice.to_json()
        if self.show is not None:
            self.show(str(choice))
        return choice

    # Words.

    def _name(self, config: ModelConfig) -> str:
        depth = f"{config.num_layers} layer{'s' if config.num_layers > 1 else ''}"
        posterior = "" if config.posterior == "gaussian" else f", posterior={config.posterior}"
        return f"{depth}, {config.kernel}, M={config.num_inducing}, {config.likelihood}{posterior}"

    def _name_of(self, single: SingleLayer) -> str:
        likelihood = self.config.likelihood if single.weights is None else "studentt"
        count = len(self.X) if single.Z is None else len(single.Z)
        return f"1 layer, {single.kernel}, M={count}, {likelihood}"

    def _add(
        self,
        name: str,
        scores: Array | None,
        note: str,
        *,
        value: float | None = None,
        began: float | None = None,
        gain: tuple[float, float] | None = None,
    ) -> None:
        # A mean over rows has a standard error, a bound has none.
        error = None
        if scores is not None:
            value = float(scores.mean())
            error = float(scores.std() / np.sqrt(len(scores)))
        seconds = time.process_time() - (self.began if began is None else began)
        self.candidates.append(Candidate(name, value, error, seconds, note, *(gain or (None, None))))
        if self.show is not None:
            shown = "" if value is None else f": {value:.3f} nats per row"
            self.show(within(f"{name}{shown} ({note}), {seconds:.1f} CPU s"))

    def _skip(self, name: str, note: str, began: float | None = None) -> None:
        seconds = 0.0 if began is None else time.process_time() - began
        self.candidates.append(Candidate(name, None, None, seconds, note))

    def _warn_of_time(self, config: ModelConfig, steps: int, batch_size: int, folds: int) -> None:
        """A guess from the products with the covariances of the inner outputs, which cost most."""
        hidden = min(30, self.x.shape[1]) if config.hidden_dim is None else config.hidden_dim
        products = batch_size * config.num_inducing**2 * (1 + hidden * (config.num_layers - 1))
        seconds = steps * max(folds / 3, 1) * (0.004 + 2.5e-10 * products)
        if seconds > LEAST_SECONDS:
            (self.show or tell)(f"{self._name(config)} may take about {seconds / 60:.0f} min of a core")


def _share_of_steps(num_rows: int) -> float:
    """Of all steps, those after which one of several parts is judged: what steps cost grows with the rows, and of 60 to
    240 rows with jumps or valleys, fewer than all left deeper models behind that were ahead at the end."""
    if num_rows > 240:
        return 1 / 3
    return 1.0 if num_rows > 60 else 0.5


def is_long_tailed(residuals: Array) -> bool:
    """Whether the excess kurtosis of standardised residuals is more than two standard errors, sqrt(24 / n), above that
    of a Gaussian: a stationary kernel and one noise do not fit the rows everywhere."""
    # The fourth moment over the square of the second one is 3 of a Gaussian.
    z = residuals.ravel()
    spread = np.mean(np.square(z - z.mean()))
    if not spread > 0:
        return False
    excess = np.mean((z - z.mean()) ** 4) / spread**2 - 3
    return bool(excess > 2 * np.sqrt(24 / len(z)))


def is_clustered(residuals: Array, scaled: Array) -> bool:
    """Whether residuals are large where those of their neighbours are: one kernel and one noise do not fit everywhere.

    The ranks of the sizes of residuals are correlated with their mean over the nearest rows. If sizes know nothing of
    places, the correlation has mean 0 and variance (1 + m) / (n k), m the share of neighbours that are mutual; four
    standard deviations are asked for, so that a variance that grows slowly across the inputs does not count.

    :param residuals: standardised, of left-out rows [n, P].
    :param scaled: inputs divided by their lengthscales [n, D].
    """
    count = len(scaled)
    if count <= 2 * _NEIGHBOURS:
        return False
    # The nearest rows of each row.
    squares = squared_distances(scaled, scaled)
    np.fill_diagonal(squares, np.inf)
    nearest = np.argpartition(squares, _NEIGHBOURS, axis=1)[:, :_NEIGHBOURS]
    # The correlation of ranks of sizes with their mean over these.
    sizes = np.square(residuals).sum(axis=1)
    ranks = np.argsort(np.argsort(sizes)).astype(np.float64)
    ranks = (ranks - ranks.mean()) / ranks.std()
    correlation = float(np.mean(ranks * ranks[nearest].mean(axis=1)))
    # m, the share of neighbours that are mutual.
    is_near = np.zeros((count, count), dtype=bool)
    np.put_along_axis(is_near, nearest, True, axis=1)
    mutual = float(np.sum(is_near & is_near.T)) / (count * _NEIGHBOURS)
    return correlation > 4 * np.sqrt((1 + mutual) / (count * _NEIGHBOURS))


def build_single(single: SingleLayer, X: Array, Y: Array, config: ModelConfig) -> DeepGP:
    """The model of a single layer, with the best q(u) for standardised rows X [N, D], Y [N, P]."""
    # A model of GPflow with these parameters.
    kernel = make_kernel(single.kernel, single.num_inputs, lengthscales=single.lengthscales)
    noise: Likelihood = Gaussian(variance=single.noise, variance_lower_bound=LEAST_NOISE)
    if single.weights is not None:
        noise = StudentT(scale=np.sqrt(single.noise), df=DF)
    Z = X if single.Z is None else single.Z
    model = modern(X, Y, 1, Z=Z, kernels=[kernel], likelihood=noise)
    stationary, *linear = kernel.kernels if single.has_linear else [kernel]
    stationary.variance.assign(single.variance)  # once the model is built, which warns of large ones to start from
    for part in linear:
        part.variance.assign(single.linear)
    model.num_data = tf.Variable(len(X), dtype=gpflow.default_float(), trainable=False, name="num_data")
    model.num_samples = config.num_samples
    model.num_predict_samples = config.num_predict_samples
    # The best q(u) in closed form, by all rows.
    if single.Z is None:
        set_exact_q(model.layers[0], Y, single.noises)
    else:
        fit_collapsed(model, X, Y, max_iter=0)
    return model


def build_imputed(drawn: Imputed, X: Array, Y: Array, config: ModelConfig) -> DeepGP:
    """The model of two layers with these inner outputs at standardised rows X [N, D], and an exact GP of Y [N, P]."""
    # Two layers with these parameters, and an inducing input at each row.
    D = X.shape[1]
    kernels = []
    for name, theta in ((INNER, drawn.inner), (drawn.kernel, drawn.outer)):
        kernels.append(make_kernel(name, D, lengthscales=np.exp(theta[1:-1])))
    noise = Gaussian(variance=ABOVE_BOUND * LEAST_NOISE, variance_lower_bound=LEAST_NOISE)
    model = with_global_inducing(modern(X, Y, 2, Z=X, kernels=kernels, likelihood=noise))
    for kernel, theta in zip(kernels, (drawn.inner, drawn.outer), strict=True):
        kernel.variance.assign(np.exp(theta[0]))  # once the model is built, as in `build_single`
    model.num_data = tf.Variable(len(X), dtype=gpflow.default_float(), trainable=False, name="num_data")
    model.num_samples = config.num_samples
    # By as many components as it is judged by, unless their number is given: without noise each of them is narrow.
    is_given = config.num_predict_samples != NUM_PREDICT_SAMPLES
    model.num_predict_samples = config.num_predict_samples if is_given else DRAWS * len(drawn.draws)
    for layer in model.layers:
        layer.jitter = NOISE  # of the draws
    # The last layer has seen the targets; q(u) of the inner one has mean and variance of the draws.
    inner, last = model.layers
    inner.pseudo_outputs.assign((drawn.draws - X).mean(axis=0))
    inner.precisions.assign(1 / np.maximum(drawn.draws.var(axis=0), NOISE))
    last.pseudo_outputs.assign(Y)
    last.precisions.assign(np.full(Y.shape, 1 / LEAST_NOISE))
    # Predictions are those of the draws.
    model.samples = InducingSamples(len(drawn.draws), model.layers)
    model.samples.values[0].assign(drawn.whitened(X))
    model.samples.count.assign(len(drawn.draws))
    return model
