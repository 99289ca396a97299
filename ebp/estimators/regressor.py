"""`EBPRegressor`: a network of second order as a scikit-learn estimator, with calibrated standard deviations."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..network.noise import Noise
from ..network.second_order import Gaussian, batch_update, forward, initial_posterior
from .estimators import batches, check_second_order, layer_widths, standardised, weight_of_rows

__all__ = ["EBPRegressor"]

Array = NDArray[np.float64]

#: After so many rows, or after three passes over more, the posterior keeps the weight of that many.
MEMORY_ROWS, MEMORY_PASSES = 5_000, 3

#: early_stopping holds back one row of so many, tries this number of passes, then twice as many, and so on, and ends
#: after so many trials without an improvement.
ROWS_PER_HELD, FIRST_TRIED, PATIENCE = 8, 10, 2

#: Rows whose predictions are made at a time.
CHUNK_ROWS = 4096


class _Network(NamedTuple):
    posterior: Gaussian
    noise: Noise


class EBPRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Regression by second-order expectation backpropagation, see `ebp.network.second_order`: no learning rate.

    Each weight has a mean and a precision, the noise a Gamma distribution; all of them are learned row by row.
    Predictions are normal, or mixtures of normals, with the standard deviation of the network and of the noise.

    :param hidden: widths of the hidden layers, or one whole number for one layer; () for a linear model.
    :param units: of the hidden layers: "relu", or "sign" as in the paper, which is better where the target jumps.
    :param epochs: passes over the data in `fit`; `partial_fit` makes one.
    :param early_stopping: choose how many passes, `epochs` at most, by rows that are held back: a network that learns
        seven eighths of the rows is tried after 10, 20, 40, ... passes. Then all rows are learned with the number of
        passes whose log density was the best. Where the noise is small hundreds may be right, so give more `epochs`.
    :param batch_size: rows whose changes are added.
    :param num_networks: networks of different starts, whose predictions are mixed.
    :param random_state: of the starts, of the order of the rows, and of those that are held back.

    Fitted attributes: `networks_`, `n_features_in_`, `n_epochs_` (passes so far), `n_samples_seen_`, and
    `noise_std_`, standard deviation of the noise in the units of y.

    Passes repeat the same rows, so the posterior would grow ever surer, and stop to learn: in `fit`, it rests on the
    last 5,000 rows or three passes, whichever are more, and forgets what is older at that rate. `partial_fit` forgets
    nothing.

    Inputs and targets are standardised by the training data; in `partial_fit`, inputs by the data so far and targets by
    the first call, so give that one some tens of rows. With a sample weight w a row's log P(y) counts w times.
    """

    def __init__(
        self,
        hidden: int | Sequence[int] = (50,),
        *,
        units: str = "relu",
        epochs: int = 40,
        early_stopping: bool = False,
        batch_size: int = 10,
        num_networks: int = 1,
        random_state: Any = 0,
    ) -> None:
        self.hidden = hidden
        self.units = units
        self.epochs = epochs
        self.early_stopping = early_stopping
        self.batch_size = batch_size
        self.num_networks = num_networks
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> EBPRegressor:
        """Train from the prior, in `epochs` passes.

        :param X: [N, D], finite. :param y: [N] or [N, Q], finite.
        :param sample_weight: how often each row counts, [N], not negative; None: once.
        """
        X, y, weight = self._check(X, y, sample_weight, reset=True)
        self._seed = self._drawn_seed()
        epochs = self._best_epochs(X, y, weight) if self.early_stopping else self.epochs
        self._start(X, y, weight)
        for _ in range(epochs):
            self._next_pass(X, y, weight)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> EBPRegressor:
        """One pass over new data, from the posterior of the data before."""
        is_first = not hasattr(self, "networks_")
        X, y, weight = self._check(X, y, sample_weight, reset=is_first)
        if is_first:
            self._seed = self._drawn_seed()
            self._start(X, y, weight)
        elif y.shape[1] != len(self._center):
            raise ValueError(f"y must have {len(self._center)} targets as in the first call, got {y.shape[1]}.")
        else:
            self._scaler.partial_fit(X, sample_weight=weight)
            self.n_samples_seen_ += len(X)
            self._count += _count(X, weight)
        self._pass(X, y, weight)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Means of the predictions, [N] or [N, Q]; with `return_std` also their standard deviations, noise included."""
        means, variances = self._moments(X)
        mean = means.mean(axis=0)
        found = [mean * self._scale + self._center]
        if return_std:
            variance = variances.mean(axis=0) + np.square(means - mean).mean(axis=0)
            found.append(np.sqrt(variance) * self._scale)
        found = [part[:, 0] if self._is_single else part for part in found]
        return tuple(found) if return_std else found[0]

    def log_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """log p(y | x, training data) of each row in nats and in the units of y, [N]; of several targets together."""
        means, variances = self._moments(X)
        y = np.asarray(y, np.float64)
        y = y[:, None] if y.ndim == 1 else y
        if y.shape != means.shape[1:]:
            raise ValueError(f"y must have the shape of the predictions, {list(means.shape[1:])}, got {list(y.shape)}.")
        z2 = np.square((y - self._center) / self._scale - means) / variances
        each = -0.5 * np.sum(z2 + np.log(2.0 * math.pi * variances), axis=2)
        mixed = scipy.special.logsumexp(each, axis=0) - math.log(len(each))
        return np.asarray(mixed - np.sum(np.log(self._scale)))

    @property
    def noise_std_(self) -> Any:
        """Standard deviation of the noise, a number or [Q]."""
        check_is_fitted(self, "networks_")
        std = np.sqrt(np.mean([network.noise.variance for network in self.networks_], axis=0)) * self._scale
        return float(std[0]) if self._is_single else std

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    # Private.

    def _check(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, *, reset: bool
    ) -> tuple[Array, Array, Array | None]:
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=reset, ensure_min_samples=1
        )
        check_second_order(self)
        weight = weight_of_rows(X, sample_weight)
        if weight is not None and not np.any(weight > 0):
            raise ValueError("sample_weight must be positive for some row, got zeros only.")
        if reset:
            self._is_single = np.ndim(y) == 1
        y = np.asarray(y, np.float64)
        return X, y[:, None] if y.ndim == 1 else y, weight

    def _drawn_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _start(self, X: Array, y: Array, weight: Array | None) -> None:
        self._scaler = StandardScaler().fit(X, sample_weight=weight)
        self._center = np.average(y, axis=0, weights=weight)
        scale = np.sqrt(np.average(np.square(y - self._center), axis=0, weights=weight))
        self._scale = np.where(scale > 0, scale, 1.0)
        self.n_epochs_, self.n_samples_seen_ = 0, len(X)
        self._count = _count(X, weight)
        sizes = (X.shape[1], *layer_widths(self.hidden), y.shape[1])
        self.networks_ = [
            _Network(initial_posterior(sizes, self._rng(number, "start")), Noise.start(y.shape[1]))
            for number in range(self.num_networks)
        ]

    def _rng(self, network: int, purpose: int | str) -> np.random.Generator:
        """Random numbers of a network: of its start, or of the order of the rows in a pass."""
        key = [0] if purpose == "start" else [1, int(purpose)]
        return np.random.default_rng([self._seed, network, *key])

    def _best_epochs(self, X: Array, y: Array, weight: Array | None) -> int:
        """How many passes give rows that are held back the best log density: 10, 20, 40, ... or `epochs`.

        It ends where `PATIENCE` numbers of passes one after the other were no better than the best before.
        """
        rows = np.arange(len(X)) if weight is None else np.flatnonzero(weight > 0)
        if len(rows) == 1:
            return self.epochs
        order = np.random.default_rng([self._seed, 2]).permutation(rows)
        held, rest = np.split(order, [max(1, len(rows) // ROWS_PER_HELD)])
        of_held, of_rest = (None if weight is None else weight[part] for part in (held, rest))
        trial = clone(self)
        trial._seed, trial._is_single, trial.n_features_in_ = self._seed, self._is_single, X.shape[1]
        trial._start(X[rest], y[rest], of_rest)
        found: list[tuple[float, int]] = []
        for number in range(1, self.epochs + 1):
            trial._next_pass(X[rest], y[rest], of_rest)
            if number == self.epochs or number == FIRST_TRIED * 2 ** len(found):
                log_density = trial.log_density(X[held], y[held])
                found.append((float(np.average(log_density, weights=of_held)), number))
                if len(found) > PATIENCE and max(found[-PATIENCE:])[0] <= max(found[:-PATIENCE])[0]:
                    break
        return max(found)[1]

    def _next_pass(self, X: Array, y: Array, weight: Array | None) -> None:
        """A pass of `fit`, which forgets what is older than the memory."""
        memory = max(MEMORY_ROWS, MEMORY_PASSES * len(X))
        is_full = self.n_epochs_ * len(X) >= memory
        self._pass(X, y, weight, forgotten=1.0 / memory if is_full else 0.0)

    def _pass(self, X: Array, y: Array, weight: Array | None, forgotten: float = 0.0) -> None:
        """One pass over the data, by every network in an order of its own.

        :param forgotten: part of h and lambda that is forgotten with each row.
        """
        X, y = standardised(self._scaler, X), (y - self._center) / self._scale
        for number, (posterior, noise) in enumerate(self.networks_):
            order = self._rng(number, self.n_epochs_).permutation(len(X))
            for rows, importance in batches(order, self.batch_size, weight):
                posterior, last, _ = batch_update(
                    posterior,
                    X[rows],
                    functools.partial(noise.derivatives, y[rows]),
                    self.units,
                    importance,
                    kept=(1.0 - forgotten) ** len(rows),
                )
                noise = noise.after(y[rows], last.mu, last.sigma2, importance, self._count)
            self.networks_[number] = _Network(posterior, noise)
        self.n_epochs_ += 1

    def _moments(self, X: Any) -> tuple[Array, Array]:
        """Means and variances of the targets by each network, noise included and in standardised units, [S, N, Q]."""
        check_is_fitted(self, "networks_")
        X = standardised(self._scaler, validate_data(self, X, dtype=np.float64, reset=False))
        means, variances = [], []
        for posterior, noise in self.networks_:
            last = [
                forward(posterior, X[start : start + CHUNK_ROWS], self.units)[-1]
                for start in range(0, len(X), CHUNK_ROWS)
            ]
            means.append(np.concatenate([layer.mu for layer in last]))
            variances.append(np.concatenate([layer.sigma2 for layer in last]) + noise.variance)
        return np.array(means), np.array(variances)


def _count(X: Array, weight: Array | None) -> float:
    """How many rows these are."""
    return float(len(X) if weight is None else np.sum(weight))
