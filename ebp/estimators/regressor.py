"""`EBPRegressor`: a network of second order as a scikit-learn estimator, with calibrated standard deviations."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gpflow_deep_base.columns import as_numbers
from gpflow_deep_base.cost import Cost

from ..network.coding import Moments
from ..network.noise import Noise
from ..network.passes import Passes, chosen_passes, held_folds, judging_folds
from ..network.second_order import (
    Gaussian,
    PassMean,
    batch_update,
    forward,
    in_units,
    initial_posterior,
    with_inputs,
)
from .estimators import batches, check_second_order, dense_rows, group_numbers, layer_widths, say_pass, weight_of_rows
from .row_order import row_order
from .seen_columns import SeenColumns

__all__ = ["EBPRegressor"]

Array = NDArray[np.float64]

#: `partial_fit` keeps its first rows until it has so many, and learns them anew with each call, as one row or two do
#: not tell the scale of the targets.
FIRST_ROWS = 30

#: Mean squared error on the training data, over that of the mean, from which on a fit has failed. Of targets that are
#: noise it is a little above 1, as the last layer's means scatter within their deviations.
MAX_TRAINING_ERROR = 1.25

#: Part of the variance of a target that one of `FIRST_ROWS` rows or more makes up, from which on it rules the fit.
MAX_PART_OF_ONE = 0.9

#: Kind of the hidden units. Signs as in the paper are far behind on tables: -4.1 nats a row where these have -1.4.
UNITS = "relu"

#: Rows, and the squares of their errors in standard deviations, beside those held back, by which the variances are
#: judged: 1.2 is what squares were on 32 random tables of 50 to 300 rows.
PRIOR_ROWS, PRIOR_SQUARE = 20, 1.2

#: Intervals of this probability are as wide as those of a Student's t whose variance rests on so many rows.
INTERVAL = 0.9

#: Rows whose predictions are made at a time.
CHUNK_ROWS = 4096


class _Network(NamedTuple):
    posterior: Gaussian
    noise: Noise


class _Rows(NamedTuple):
    """Inputs [N, D], targets [N, Q] in their units, and weights [N] or None."""

    X: Array
    y: Array
    weight: Array | None

    def part(self, rows: NDArray[np.intp]) -> _Rows:
        return _Rows(self.X[rows], self.y[rows], None if self.weight is None else self.weight[rows])

    def then(self, others: _Rows) -> _Rows:
        weights = np.concatenate([self.weights, others.weights])
        return _Rows(np.vstack([self.X, others.X]), np.vstack([self.y, others.y]), weights)

    @property
    def weights(self) -> Array:
        """Of each row, [N]: 1 where none are given."""
        return np.ones(len(self.X)) if self.weight is None else self.weight

    @property
    def total(self) -> float:
        """How many rows these are."""
        return float(len(self.X) if self.weight is None else np.sum(self.weight))


class _Trial(NamedTuple):
    """A regressor that learns a part of the rows, see `passes.Trial`."""

    model: EBPRegressor
    learned: _Rows
    held: _Rows

    def next_pass(self) -> None:
        self.model._next_pass(self.learned)

    def scores(self) -> tuple[Array, Array]:
        if not len(self.held.X):  # fewer than three rows
            return np.zeros(0), np.zeros(0)
        return self.model.log_density(self.held.X, self.held.y), self.held.weights

    def is_after(self, passes: Passes) -> bool:
        """Whether this is what so many passes give."""
        return self.model.count_ == passes.max_count and self.model.n_epochs_ == passes.epochs

    def errors(self) -> Array:
        """Of the predictions for the held rows, [H, Q]."""
        y = self.held.y
        return y - self.model.predict(self.held.X).reshape(y.shape) if len(y) else np.zeros(y.shape)


class EBPRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression by second-order expectation backpropagation, see `ebp.network.second_order`: no learning rate.

        >>> import numpy as np
        >>> from ebp import EBPRegressor
        >>> X = np.linspace(-1.0, 1.0, 200)[:, None]
        >>> model = EBPRegressor(hidden=10, epochs=20, max_count=1, random_state=0).fit(X, X[:, 0] ** 2)
        >>> mean, std = model.predict(X[:3], return_std=True)
        >>> mean.shape, std.shape
        ((3,), (3,))

    Each weight has a mean and a precision, the noise a Gamma distribution; all of them are learned row by row.
    Predictions are normal, or mixtures of normals, with the standard deviation of the network and of the noise.

    :param hidden: widths of the hidden layers, or one whole number for one layer; () for a linear model.
    :param epochs: passes over the data in `fit`; `partial_fit` makes one.
    :param early_stopping: choose how many passes, `epochs` at most, by rows that are held back: a network that learns
        a part of the rows is tried after 10, 20, 40, ... passes. Then all rows are learned with the number of
        passes whose log density was the best. Where the noise is small hundreds may be right, so give more `epochs`.
    :param max_count: how often a row may count in the posterior of `fit`: after so many passes, older ones are
        forgotten at the rate at which new ones come. "auto": 1, 3 or 8, by the log density of rows held back, of
        networks that learned the others (all rows in turn, of more than 400 as many); 3 for more than 5,000 rows.
    :param batch_size: rows whose changes are added.
    :param num_networks: networks of different starts, whose predictions are mixed.
    :param random_state: of the starts, of the order of the rows, and of those that are held back. In what order X and
        y have the rows makes no difference to `fit`.
    :param verbose: 0 prints nothing; 1 each tenth of the passes of `fit`; 2 each of them.

    Fitted attributes: `networks_`, `n_features_in_`, `n_epochs_` (passes so far), `n_samples_seen_`, `count_` (how
    often a row counts at most in `fit`), and `noise_std_`, standard deviation of the noise in the units of y.

    A posterior that counts each row 40 times is sure of what is noise, see `ebp.network.passes`. And one of single
    weights does not know what they do together: so `fit` multiplies the variances of predictions by the mean square of
    the errors that networks of the other rows make for rows held back, in the standard deviations of the network of all
    rows. `partial_fit` makes one pass and forgets nothing.

    Inputs and targets are standardised by the training data, in `partial_fit` by the data so far: as the scale of the
    targets changes, the last layer is put into the new units. The first 30 rows are kept, and learned anew with each
    call, until there are so many. With a sample weight w a row's log P(y) counts w times.

    Sparse inputs are made dense, without the columns that never occur if these are most of more than 16,384: `predict`
    takes them as 0, and `partial_fit` makes room for those that occur for the first time.
    """

    networks_: list[_Network]
    _last: list[_Network]
    _spread: Array

    def __init__(
        self,
        hidden: int | Sequence[int] = (50,),
        *,
        epochs: int = 40,
        early_stopping: bool = False,
        max_count: int | str = "auto",
        batch_size: int = 10,
        num_networks: int = 1,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.epochs = epochs
        self.early_stopping = early_stopping
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
        :param groups: of each row its group, [N]: rows that are held back are whole groups; None: single rows.

        Warns (`ConvergenceWarning`) if the predictions for the training data are worse than the mean of y, or if one
        target is so far from all others that these can hardly be told apart.
        """
        rows = self._check(X, y, sample_weight, reset=True)
        groups = group_numbers(groups, len(rows.X))
        order = row_order(rows.X, rows.y, rows.weight, groups)
        rows = rows.part(order)
        groups = None if groups is None else groups[order]
        self._seed = self._drawn_seed()
        chosen, errors = self._chosen_passes(rows, groups)
        self.count_ = chosen.max_count
        self._start(rows)
        cost = Cost(chosen.epochs, "passes")
        for number in range(1, chosen.epochs + 1):
            self._next_pass(rows)
            cost(number)
            say_pass(self.verbose, number, chosen.epochs, f", each row counts {self.count_} times at most")
        self._first: _Rows | None = None
        del self._last
        self._spread = self._learned_spread(rows, errors)
        self._warn_if_worse_than_the_mean(rows)
        self._warn_if_one_rules(rows)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> EBPRegressor:
        """One pass over new data, from the posterior of the data before.

        :param X: [N, D], finite.
        :param y: [N] or [N, Q], finite.
        :param sample_weight: how often each row counts, [N], not negative; None: once.
        :raises ValueError: if y has another number of targets than in the first call.
        """
        is_first = not hasattr(self, "networks_")
        rows = self._check(X, y, sample_weight, reset=is_first)
        if is_first:
            self._seed = self._drawn_seed()
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
        found = [mean * self._targets.scale + self._targets.mean]
        if return_std:
            variance = variances.mean(axis=0) + np.square(means - mean).mean(axis=0)
            found.append(np.sqrt(variance) * self._targets.scale)
        found = [part[:, 0] if self._is_single else part for part in found]
        return tuple(found) if return_std else found[0]

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """log p(y | x, training data) of each row in nats and in the units of y, [N]; of several targets together."""
        means, variances = self._moments(X)
        y = np.asarray(y, np.float64)
        y = y[:, None] if y.ndim == 1 else y
        if y.shape != means.shape[1:]:
            raise ValueError(f"y must have the shape of the predictions, {list(means.shape[1:])}, got {list(y.shape)}.")
        z2 = np.square((y - self._targets.mean) / self._targets.scale - means) / variances
        each = -0.5 * np.sum(z2 + np.log(2.0 * math.pi * variances), axis=2)
        mixed = scipy.special.logsumexp(each, axis=0) - math.log(len(each))
        return np.asarray(mixed - np.sum(np.log(self._targets.scale)))

    @property
    def noise_std_(self) -> Any:
        """Standard deviation of the noise as predictions have it, a number or [Q]."""
        check_is_fitted(self, "networks_")
        variance = self._spread * np.mean([network.noise.variance for network in self.networks_], axis=0)
        std = np.sqrt(variance) * self._targets.scale
        return float(std[0]) if self._is_single else std

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    # Private.

    def _check(self, X: Any, y: Any, sample_weight: ArrayLike | None, *, reset: bool) -> _Rows:
        X = as_numbers(X, self, reset=reset)
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
        if reset:
            self._columns = SeenColumns.of(X)
        else:
            self._make_room(X)
        X = dense_rows(X, self._columns)
        weight = weight_of_rows(X, sample_weight)
        if weight is not None and not np.any(weight > 0):
            raise ValueError("sample_weight must be positive for some row, got zeros only.")
        if reset:
            self._is_single = np.ndim(y) == 1
        y = np.asarray(y, np.float64)
        return _Rows(X, y[:, None] if y.ndim == 1 else y, weight)

    def _drawn_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _start(self, rows: _Rows, epochs: int = 0) -> None:
        self._inputs = Moments.of(rows.X, rows.weight)
        self._targets = Moments.of(rows.y, rows.weight)
        self.n_epochs_: int = epochs
        self.n_samples_seen_: int = len(rows.X)
        self._count: float = rows.total
        self._spread = np.ones(rows.y.shape[1])
        sizes = (rows.X.shape[1], *layer_widths(self.hidden), rows.y.shape[1])
        self.networks_ = [
            _Network(initial_posterior(sizes, self._rng(number, 0)), Noise.start(rows.y.shape[1]))
            for number in range(self.num_networks)
        ]

    def _make_room(self, X: Any) -> None:
        """Inputs for columns that occur for the first time."""
        columns = self._columns.after(X)
        if columns.num_seen == self._columns.num_seen:
            return
        if self._first is not None:
            new = columns.num_seen - self._columns.num_seen
            self._first = self._first._replace(X=np.pad(self._first.X, ((0, 0), (0, new))))
        self._inputs = self._inputs.with_columns(columns.num_seen)
        for number, network in enumerate(self.networks_):
            rng = self._rng(number, 2, self._columns.num_seen)
            self.networks_[number] = network._replace(posterior=with_inputs(network.posterior, columns.num_seen, rng))
        self._columns = columns

    def _change_units(self, targets: Moments) -> None:
        """Put the last layers and the noise into units in which all targets so far have mean 0 and deviation 1."""
        old = self._targets
        ratio = old.scale / targets.scale
        shift = (old.mean - targets.mean) / targets.scale
        for number, (posterior, noise) in enumerate(self.networks_):
            mean, gain = posterior.mean[-1] * ratio, posterior.gain[-1]
            mean[-1] += math.sqrt(len(mean)) * shift
            posterior = Gaussian((*posterior.mean[:-1], mean), (*posterior.gain[:-1], in_units(gain, ratio)))
            self.networks_[number] = _Network(posterior, noise._replace(rate=noise.rate * ratio**2))
        self._targets = targets

    def _rng(self, network: int, *purpose: int) -> np.random.Generator:
        """Random numbers of a network: 0, of its start; 1, the order of the rows in a pass; 2, of new inputs."""
        return np.random.default_rng([self._seed, network, *purpose])

    def _chosen_passes(self, rows: _Rows, groups: NDArray[np.intp] | None) -> tuple[Passes, Array]:
        """How many passes, and how often a row may count; and the errors for rows that were held back, [N, Q].

        They are those of networks that made so many passes over the others; NaN for a row that was not held back, as
        all are where nothing has to be tried.
        """
        known = np.arange(len(rows.X)) if rows.weight is None else np.flatnonzero(rows.weight > 0)
        groups = None if groups is None else groups[known]
        folds = held_folds(len(known), self._seed, groups=groups)
        trials: list[tuple[int, _Trial]] = []

        def start(count: int, held: NDArray[np.intp]) -> _Trial:
            learned = rows.part(np.delete(known, held))
            trial = clone(self)
            trial._seed, trial._is_single, trial.n_features_in_ = self._seed, self._is_single, rows.X.shape[1]
            trial._columns = SeenColumns(rows.X.shape[1], None)
            trial.count_ = count
            trial._start(learned)
            trials.append((id(held), _Trial(trial, learned, rows.part(known[held]))))
            return trials[-1][1]

        chosen = chosen_passes(
            start,
            self.epochs,
            folds,
            len(known),
            count=None if self.max_count == "auto" else int(self.max_count),
            early_stopping=bool(self.early_stopping),
        )
        errors = np.full(rows.y.shape, np.nan)
        if not trials:
            return chosen, errors
        ended = {fold: trial for fold, trial in trials if trial.is_after(chosen)}
        for held in judging_folds(folds, len(known), self._seed, groups):
            trial = ended.get(id(held))
            if trial is None:
                trial = start(chosen.max_count, held)
                for _ in range(chosen.epochs):
                    trial.next_pass()
            errors[known[held]] = trial.errors()
        return chosen, errors

    def _learned_spread(self, rows: _Rows, errors: Array) -> Array:
        """The factor of the variances of predictions, [Q].

        The mean square of errors for rows held back, in standard deviations of this network, and of `PRIOR_ROWS` of
        `PRIOR_SQUARE`. Networks of two thirds of the rows are wrong by more, but they are also less sure of themselves:
        by their own deviations they may be right where the network of all rows says too little.
        """
        is_held = np.all(np.isfinite(errors), axis=1)
        if not np.any(is_held):
            return np.ones(errors.shape[1])
        means, variances = self._moments_of(rows.X[is_held])
        squares = np.square(errors[is_held] / self._targets.scale) / (variances.mean(axis=0) + means.var(axis=0))
        weight = rows.weights[is_held]
        count = PRIOR_ROWS + np.sum(weight)
        spread = (PRIOR_ROWS * PRIOR_SQUARE + weight @ squares) / count
        upper = 0.5 + 0.5 * INTERVAL
        spread *= (scipy.special.stdtrit(count, upper) / scipy.special.ndtri(upper)) ** 2
        return np.where(np.isfinite(spread), spread, 1.0)

    def _next_pass(self, rows: _Rows) -> None:
        """A pass of `fit`, which forgets what is older than `count_` passes."""
        is_full = self.n_epochs_ >= self.count_
        is_first = self.n_epochs_ == 0
        if not is_first:
            self.networks_ = self._last
        means = self._pass(rows, forgetting=1.0 / (self.count_ * rows.total) if is_full else 0.0)
        self._last = self.networks_
        if not is_first:  # in which the means have a long way to go
            self.networks_ = [
                network._replace(posterior=mean.of(network.posterior))
                for network, mean in zip(self._last, means, strict=True)
            ]

    def _pass(self, rows: _Rows, forgetting: float = 0.0) -> list[PassMean]:
        """One pass over the data, by every network in an order of its own.

        :param forgetting: rate at which h and lambda are forgotten, per row of weight 1.
        :return: of each network the mean over the pass.
        """
        X, y = self._inputs.standardised(rows.X), (rows.y - self._targets.mean) / self._targets.scale
        networks, means = [], []
        for number, (posterior, noise) in enumerate(self.networks_):
            mean = PassMean()
            order = self._rng(number, 1, self.n_epochs_).permutation(len(X))
            for batch, importance in batches(order, self.batch_size, rows.weight):
                posterior, last, _ = batch_update(
                    posterior,
                    X[batch],
                    functools.partial(noise.derivatives, y[batch]),
                    UNITS,
                    importance,
                    kept=math.exp(-forgetting * (len(batch) if importance is None else float(np.sum(importance)))),
                )
                noise = noise.after(y[batch], last.mu, last.sigma2, importance, self._count)
                mean.add(posterior)
            networks.append(_Network(posterior, noise))
            means.append(mean)
        self.networks_ = networks
        self.n_epochs_ += 1
        return means

    def _warn_if_worse_than_the_mean(self, rows: _Rows) -> None:
        """Look at the errors on the training data, as a fit that has failed must say so."""
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

    def _warn_if_one_rules(self, rows: _Rows) -> None:
        """Say so if nearly all of the variance of a target is that of one row."""
        if len(rows.X) < FIRST_ROWS:
            return
        squares = np.square((rows.y - self._targets.mean) / self._targets.scale)
        if rows.weight is not None:
            squares = squares * rows.weight[:, None]
        part = np.max(squares, axis=0) / np.maximum(np.sum(squares, axis=0), np.finfo(np.float64).tiny)
        if np.max(part) > MAX_PART_OF_ONE:
            row = int(np.argmax(squares[:, np.argmax(part)]))
            warnings.warn(
                f"one target, {rows.y[row, np.argmax(part)]:g}, makes up {100.0 * np.max(part):.0f} % of the variance "
                "of y, so that the others are hardly told apart. Drop it if it is an error; take logarithms of y, or "
                "clip it, if it is not.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _moments(self, X: Any) -> tuple[Array, Array]:
        """Means and variances of the targets by each network, noise included and in standardised units, [S, N, Q]."""
        check_is_fitted(self, "networks_")
        X = as_numbers(X, self, reset=False)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self._moments_of(dense_rows(X, self._columns))

    def _moments_of(self, X: Array) -> tuple[Array, Array]:
        """The same of rows that are checked and dense."""
        X = self._inputs.standardised(X)
        means, variances = [], []
        for posterior, noise in self.networks_:
            last = [
                forward(posterior, X[start : start + CHUNK_ROWS], UNITS)[-1] for start in range(0, len(X), CHUNK_ROWS)
            ]
            means.append(np.concatenate([layer.mu for layer in last]))
            variances.append(self._spread * (np.concatenate([layer.sigma2 for layer in last]) + noise.variance))
        return np.array(means), np.array(variances)
