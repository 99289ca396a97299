"""`EBPRegressor`: a network of second order as a scikit-learn estimator, with calibrated standard deviations."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ebp.network.coding import Matrix
from gpflow_deep_base.numbers.columns import as_numbers

from ..network.coding import Moments
from ..second_order.noise import Noise
from ..second_order.second_order import Gaussian, batch_update, forward, in_units
from ..training.passes import held_folds, judging_folds
from .estimators import check_second_order, dense_rows, is_plain, weight_of_rows
from .inputs.far_values import edges
from .inputs.seen_columns import SeenColumns
from .second_order_estimator import Design, Rows, SecondOrderEstimator

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["EBPRegressor"]

Array = NDArray[np.float64]

#: `partial_fit` keeps its first rows until it has so many, and learns them anew with each call, as one row or two do
#: not tell the scale of the targets.
FIRST_ROWS = 30

#: Mean squared error on the training data, over that of the mean, from which on a fit has failed. Of targets that are
#: noise it is a little above 1, as the last layer's means scatter within their deviations.
MAX_TRAINING_ERROR = 1.25

#: A fit is ruled by a few targets if the variance is that of fewer equal ones, of `FIRST_ROWS` rows or more: of normal
#: targets it is that of a third of the rows.
MIN_EQUAL_ROWS = 5.0

#: Kind of the hidden units. Signs as in the paper are far behind on tables: -4.1 nats a row where these have -1.4.
UNITS = "relu"

#: Rows, and the squares of their errors in standard deviations, beside those held back, by which the variances are
#: judged: 1.2 is what squares were on 32 random tables of 50 to 300 rows.
PRIOR_ROWS = 20
PRIOR_SQUARE = 1.2

#: Intervals of this probability are as wide as those of a Student's t whose variance rests on so many rows.
INTERVAL = 0.9

#: Rows whose predictions are made at a time.
CHUNK_ROWS = 4096


class EBPRegressor(RegressorMixin, SecondOrderEstimator):  # type: ignore[misc]
    """Regression by second-order expectation backpropagation, see `ebp.second_order.second_order`: no learning rate.

        >>> import numpy as np
        >>> from ebp import EBPRegressor
        >>> X = np.linspace(-1.0, 1.0, 200)[:, None]
        >>> model = EBPRegressor(hidden=10, epochs=20, max_count=1, random_state=0).fit(X, X[:, 0] ** 2)
        >>> mean, std = model.predict(X[:3], return_std=True)
        >>> mean.shape, std.shape
        ((3,), (3,))

    Each weight has a mean and a precision, the noise a Gamma distribution; all of them are learned row by row.
    Predictions are normal, or mixtures of normals, with the standard deviation of the network and of the noise.

    :param hidden: widths of the hidden layers, or one whole number for one layer; () for a linear model; "auto": 50
        units (five a target, if that is more), or none where that is better for rows that are held back (and
        `max_count` is "auto", too).
    :param epochs: passes over the data in `fit`; `partial_fit` makes one. Where there is hardly any noise, more than 40
        gain a little.
    :param max_count: how often a row may count in the posterior of `fit`: after so many passes, older ones are
        forgotten at the rate at which new ones come. "auto": 1, 3 or 8, by the log density of rows held back, of
        networks that learned the others (all rows in turn, of more than 400 as many); 3 for more than 5,000 rows.
    :param batch_size: rows whose changes are added.
    :param num_networks: networks of different starts, whose predictions are mixed.
    :param random_state: of the starts, of the order of the rows, and of those that are held back. In what order X and
        y have the rows makes no difference to `fit`.
    :param verbose: 0 prints nothing; 1 each tenth of the passes of `fit`; 2 each of them.

    Fitted attributes: `posteriors_` and `noises_` (of each network), `n_features_in_`, `n_epochs_` (passes so far),
    `n_samples_seen_`, `count_` (how often a row counts at most in `fit`), and `noise_std_`, standard deviation of the
    noise in the units of y.

    A posterior that counts each row 40 times is sure of what is noise, see `ebp.training.passes`. And one of single
    weights does not know what they do together: so `fit` multiplies the variances of predictions by the mean square of
    the errors that networks of the other rows make for rows held back, in the standard deviations of the network of all
    rows. `partial_fit` makes one pass and forgets nothing.

    Inputs and targets are standardised by the training data, in `partial_fit` by the data so far: as the scale of the
    targets changes, the last layer is put into the new units. `fit` also takes away what correlations the inputs have,
    see `ebp.estimators.inputs.decorrelation`. The first 30 rows are kept, and learned anew with each
    call, until there are so many. With a sample weight w a row's log P(y) counts w times.

    Sparse inputs are made dense, without the columns that never occur if these are most of more than 16,384: `predict`
    takes them as 0, and `partial_fit` makes room for those that occur for the first time.
    """

    noises_: list[Noise]
    _spread: Array

    def __init__(
        self,
        hidden: int | Sequence[int] | str = "auto",
        *,
        epochs: int = 40,
        max_count: int | str = "auto",
        batch_size: int = 10,
        num_networks: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.epochs = epochs
        self.max_count = max_count
        self.batch_size = batch_size
        self.num_networks = num_networks
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> EBPRegressor:
        """Train from the prior, in `epochs` passes.

        :param X: [N, D], finite; or a frame, also of texts, levels, dates and gaps.
        :param y: [N] or [N, Q], finite.
        :param sample_weight: how often each row counts, [N], not negative; None: once.
        :param groups: of each row its group, [N]: rows that are held back are whole groups; None: single rows, but all
            that are equal in X and y together.

        At most four targets at either end, thirty standard deviations of the others beyond them, are left out, as
        slips of the pen. Warns (`ConvergenceWarning`) of these, if the predictions for the training data are worse than
        the mean of y, or if a few targets make up its variance so that the others can hardly be told apart.
        """
        rows = self._without_far(self._check(X, y, sample_weight, reset=True))
        rows = self._without_far_targets(rows)
        rows, groups = self._in_order(rows, rows.y, groups)
        groups = rows.equal_ones() if groups is None else groups
        self._draw_seed()
        # Rows held back choose how often one counts, and say by their errors how wide predictions are.
        errors = self._choose(rows, groups)
        self._start(rows)
        self._learn(rows)
        self._first: Rows | None = None
        self._spread = self._learned_spread(rows, errors)
        self._warn_if_worse_than_the_mean(rows)
        self._warn_if_few_rule(rows)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> EBPRegressor:
        """One pass over new data, from the posterior of the data before.

        :param X: [N, D], finite.
        :param y: [N] or [N, Q], finite.
        :param sample_weight: how often each row counts, [N], not negative; None: once.
        :raises ValueError: if y has another number of targets than in the first call.
        """
        is_first = not hasattr(self, "posteriors_")
        rows = self._check(X, y, sample_weight, reset=is_first)
        if is_first:
            self._draw_seed()
            self._design = Design(self._widths(), False)
            self._start(rows)
            self._first = rows
        elif rows.y.shape[1] != len(self._targets.mean):
            raise ValueError(
                f"y must have {len(self._targets.mean)} targets as in the first call, got {rows.y.shape[1]}."
            )
        elif self._first is not None and len(self._first.X) < FIRST_ROWS:
            # Too few rows so far to know the scales by: all of them are learned anew, as if they came together.
            self._first = self._first.then(rows)
            self._start(self._first, epochs=self.n_epochs_)
            rows = self._first
        else:
            # Enough rows: units follow the data so far, and the posteriors are put into them.
            self._first = None
            self._inputs += Moments.of(rows.X, rows.weight)
            self._change_units(self._targets + Moments.of(rows.y, rows.weight))
            self.n_samples_seen_ += len(rows.X)
            self._count += rows.total
        self._pass(rows)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Means of the predictions, [N] or [N, Q]; with `return_std` also their standard deviations, noise included."""
        means, variances = self._moments(X)
        mean = means.mean(axis=0)
        predictions = [mean * self._targets.scale + self._targets.mean]
        if return_std:
            # The variance of a mixture: within its normals, and between their means.
            variance = variances.mean(axis=0) + np.square(means - mean).mean(axis=0)
            predictions.append(np.sqrt(variance) * self._targets.scale)
        predictions = [part[:, 0] if self._is_single else part for part in predictions]
        return tuple(predictions) if return_std else predictions[0]

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """log p(y | x, training data) of each row in nats and in the units of y, [N]; of several targets together."""
        means, variances = self._moments(X)
        y = np.asarray(y, np.float64)
        y = y[:, None] if y.ndim == 1 else y
        if y.shape != means.shape[1:]:
            raise ValueError(f"y must have the shape of the predictions, {list(means.shape[1:])}, got {list(y.shape)}.")
        z2 = np.square((y - self._targets.mean) / self._targets.scale - means) / variances
        # log N(y | mean, variance) of each network, and the log of the mean density.
        log_densities = -0.5 * np.sum(z2 + np.log(2.0 * math.pi * variances), axis=2)
        mixed = scipy.special.logsumexp(log_densities, axis=0) - math.log(len(log_densities))
        return np.asarray(mixed - np.sum(np.log(self._targets.scale)))

    @property
    def noise_std_(self) -> float | Array:
        """Standard deviation of the noise as predictions have it, a number or [Q]."""
        check_is_fitted(self, "posteriors_")
        variance = self._spread * np.mean([noise.variance for noise in self.noises_], axis=0)
        std = np.sqrt(variance) * self._targets.scale
        return float(std[0]) if self._is_single else std

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    # Private.

    def _check(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None, *, reset: bool) -> Rows:
        X = as_numbers(X, self, reset=reset)
        if reset or not is_plain(self, X, y, kinds="f"):
            X, y = validate_data(
                self,
                X,
                y,
                accept_sparse="csr",
                dtype=np.float64,
                multi_output=True,
                y_numeric=True,
                reset=reset,
                ensure_min_samples=1,
            )
        check_second_order(self)
        # Columns that occur for the first time are inputs from now on, also of the rows that are kept.
        if reset:
            self._columns = SeenColumns.of(X)
            self._edges = None
        elif (num_new := self._make_room(X)) and self._first is not None:
            self._first = self._first._replace(X=np.pad(self._first.X, ((0, 0), (0, num_new))))
        X = self._near(dense_rows(X, self._columns))
        # Weights, and targets as a matrix.
        weight = weight_of_rows(X, sample_weight)
        if weight is not None and not np.any(weight > 0):
            raise ValueError("sample_weight must be positive for some row, got zeros only.")
        if reset:
            self._is_single = np.ndim(y) == 1
        y = np.asarray(y, np.float64)
        return Rows(X, y[:, None] if y.ndim == 1 else y, weight)

    def _start(self, rows: Rows, epochs: int = 0) -> None:
        num_targets = rows.y.shape[1]
        self._start_networks(rows, num_targets)
        self.n_epochs_ = epochs
        self.noises_ = [Noise.start(num_targets) for _ in self.posteriors_]
        self._targets = Moments.of(rows.y, rows.weight)
        self.n_samples_seen_: int = len(rows.X)
        self._count: float = rows.total
        self._spread = np.ones(num_targets)

    def _start_like(self, other: EBPRegressor, rows: Rows) -> None:
        self._is_single = other._is_single
        self._start(rows)

    def _change_units(self, targets: Moments) -> None:
        """Put the last layers and the noise into units in which all targets so far have mean 0 and deviation 1."""
        old = self._targets
        # A target y becomes ratio y + shift, and u of the last layer with it.
        ratio = old.scale / targets.scale
        shift = (old.mean - targets.mean) / targets.scale
        for number, posterior in enumerate(self.posteriors_):
            mean = posterior.mean[-1] * ratio
            gain = posterior.gain[-1]
            # The bias bears the shift; u has its bias over sqrt(K).
            mean[-1] += math.sqrt(len(mean)) * shift
            self.posteriors_[number] = Gaussian(
                (*posterior.mean[:-1], mean), (*posterior.gain[:-1], in_units(gain, ratio))
            )
        self.noises_ = [noise._replace(rate=noise.rate * ratio**2) for noise in self.noises_]
        self._targets = targets

    def _choose(self, rows: Rows, groups: NDArray[np.intp] | None) -> Array:
        """Set the design and how often a row may count; the errors for rows that were held back, [N, Q].

        They are those of networks that learned the others; NaN for a row that was not held back, as all are where
        nothing has to be tried.
        """
        # Rows of weight 0 take no part in the race.
        counted_rows = np.flatnonzero(rows.weights > 0)
        errors = np.full(rows.y.shape, np.nan)
        rows = rows.part(counted_rows)
        groups = None if groups is None else groups[counted_rows]
        folds = held_folds(len(counted_rows), self._seed, groups=groups)
        trials = self._race(rows, folds, [Design(self._widths(rows.y.shape[1]), True)])
        if not trials:
            return errors
        # Networks that won the race; where there is none for a fold, one is trained.
        for held in judging_folds(folds, len(counted_rows), self._seed, groups):
            trial = next((trial for trial in trials if trial.held is held), None)
            trial = self._trial(rows, self.count_, held) if trial is None else trial
            if len(held):
                y = trial.others.y
                errors[counted_rows[held]] = y - trial.model.predict(trial.others.X).reshape(y.shape)
        # A network that knows nothing of a place is wrong there by no more than the targets differ.
        return np.clip(errors, -np.ptp(rows.y, axis=0), np.ptp(rows.y, axis=0))

    def _scores(self, rows: Rows) -> Array:
        # With variances as wide as errors for these rows say, since those of the fit will be judged likewise.
        self._spread = np.ones(rows.y.shape[1])
        means, variances = self._moments_of(rows.X)
        errors = (rows.y - self._targets.mean) / self._targets.scale - means.mean(axis=0)
        self._spread = _judged(np.square(errors) / (variances.mean(axis=0) + means.var(axis=0)), rows.weights)
        return self.log_density(rows.X, rows.y)

    def _learned_spread(self, rows: Rows, errors: Array) -> Array:
        """The factor of the variances of predictions, [Q].

        The mean square of errors for rows held back, in standard deviations of this network, and of `PRIOR_ROWS` of
        `PRIOR_SQUARE`. Networks of two thirds of the rows are wrong by more, but they are also less sure of themselves:
        by their own deviations they may be right where the network of all rows says too little.
        """
        is_held = np.all(np.isfinite(errors), axis=1)
        if not np.any(is_held):
            return np.ones(errors.shape[1])
        means, variances = self._moments_of(rows.X[is_held])
        # Squares of the errors, in standard deviations of this network.
        squares = np.square(errors[is_held] / self._targets.scale) / (variances.mean(axis=0) + means.var(axis=0))
        weight = rows.weights[is_held]
        spread = _judged(squares, weight)
        # Wider intervals, as the variance rests on few rows: Student's t over the normal.
        upper = 0.5 + 0.5 * INTERVAL
        degrees = PRIOR_ROWS + float(np.sum(weight))
        spread *= (scipy.special.stdtrit(degrees, upper) / scipy.special.ndtri(upper)) ** 2
        return np.where(np.isfinite(spread), spread, 1.0)

    def _standardised(self, rows: Rows) -> tuple[Array, Array]:
        return self._coded(rows.X), (rows.y - self._targets.mean) / self._targets.scale

    def _after_batch(
        self, network: int, posterior: Gaussian, X: Array, Y: Array, weight: Array | None, kept: float
    ) -> Gaussian:
        noise = self.noises_[network]
        derivatives = functools.partial(noise.derivatives, Y)
        posterior, last, _ = batch_update(posterior, X, derivatives, UNITS, weight, kept)
        self.noises_[network] = noise.after(Y, last.mu, last.sigma2, weight, self._count)
        return posterior

    def _without_far_targets(self, rows: Rows) -> Rows:
        """Rows, without weight where a target is far from all others: one such would be all that is learned."""
        counted = rows.weights > 0
        bounds = edges(rows.y[counted])
        if bounds is None:
            return rows
        # A row of weight 0 is no news, however far its target is.
        is_far = counted[:, None] & ((rows.y < bounds[0]) | (rows.y > bounds[1]))
        named = ", ".join(f"{target:g}" for target in rows.y[is_far])
        warnings.warn(
            f"{np.count_nonzero(is_far)} of {len(rows.y)} targets are far from all others ({named}), and are left out. "
            "Take logarithms of y if they are no errors.",
            ConvergenceWarning,
            stacklevel=3,
        )
        return rows._replace(weight=np.where(np.any(is_far, axis=1), 0.0, rows.weights))

    def _warn_if_worse_than_the_mean(self, rows: Rows) -> None:
        """Look at the errors on the training data, as a fit that has failed must say so."""
        # Errors in units in which those of the mean are 1; a target that does not vary has none.
        means, _ = self._moments_of(rows.X)
        errors = np.square((rows.y - self._targets.mean) / self._targets.scale - means.mean(axis=0))
        parts = np.average(errors, axis=0, weights=rows.weight)[self._targets.varies]
        if len(parts) and (not np.all(np.isfinite(parts)) or np.max(parts) > MAX_TRAINING_ERROR):
            warnings.warn(
                f"the fit has failed: the mean squared error on the training data is {np.max(parts):.3g} times that of "
                "the mean of y. Look for a few targets or inputs that are far from all others, and take logarithms of "
                "y, clip them, or drop them; or give a larger hidden.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _warn_if_few_rule(self, rows: Rows) -> None:
        """Say so if nearly all of the variance of a target is that of a few rows."""
        if np.count_nonzero(rows.weights) < FIRST_ROWS:
            return
        squares = rows.weights[:, None] * np.square((rows.y - self._targets.mean) / self._targets.scale)
        # Each row's part of the variance; the sum of their squares is 1 / n for n equal parts.
        parts = squares / np.maximum(np.sum(squares, axis=0), np.finfo(np.float64).tiny)
        equal_rows = 1.0 / np.maximum(np.sum(parts**2, axis=0), 1.0 / len(parts))  # as many of equal parts are as few
        target = int(np.argmin(equal_rows))
        if equal_rows[target] < MIN_EQUAL_ROWS:
            few = np.argsort(-parts[:, target])[: round(equal_rows[target])]
            named = ", ".join(f"{value:g}" for value in rows.y[few, target])
            percent = 100.0 * np.sum(parts[few, target])
            warnings.warn(
                f"{percent:.0f} % of the variance of y are of {len(few)} of {len(parts)} targets ({named}), so that "
                "the others are hardly told apart. Drop them if they are errors; take logarithms of y, or clip it, if "
                "they are not.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _moments(self, X: Matrix) -> tuple[Array, Array]:
        """Means and variances of the targets by each network, noise included and in standardised units, [S, N, Q]."""
        check_is_fitted(self, "posteriors_")
        X = as_numbers(X, self, reset=False)
        if not is_plain(self, X):
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self._moments_of(self._near(dense_rows(X, self._columns)))

    def _moments_of(self, X: Array) -> tuple[Array, Array]:
        """The same of rows that are checked and dense."""
        X = self._coded(X)
        means = []
        variances = []
        for posterior, noise in zip(self.posteriors_, self.noises_, strict=True):
            last = [
                forward(posterior, X[start : start + CHUNK_ROWS], UNITS)[-1] for start in range(0, len(X), CHUNK_ROWS)
            ]
            means.append(np.concatenate([layer.mu for layer in last]))
            variances.append(self._spread * (np.concatenate([layer.sigma2 for layer in last]) + noise.variance))
        return np.array(means), np.array(variances)


def _judged(squares: Array, weight: Array) -> Array:
    """Mean of squares of errors in standard deviations [H, Q], weighted by [H], with the rows of the prior, [Q]."""
    return np.asarray((PRIOR_ROWS * PRIOR_SQUARE + weight @ squares) / (PRIOR_ROWS + np.sum(weight)))
