"""`EBPGaussianClassifier`: real weights whose precisions are learned, and probabilities that need no calibration."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..network.coding import Moments
from ..network.heads import encode_labels
from ..network.passes import Passes, chosen_passes, held_folds
from ..network.second_order import Derivatives, Gaussian, PassMean, batch_update, forward, initial_posterior
from .calibration import log_probabilities
from .estimators import (
    batches,
    check_classes,
    check_second_order,
    group_numbers,
    layer_widths,
    start_classes,
    weight_of_rows,
)
from .row_order import row_order

__all__ = ["EBPGaussianClassifier", "sign_derivatives"]

Array = NDArray[np.float64]


def sign_derivatives(y: Array, mu: Array, sigma2: Array) -> Derivatives:
    """log P(y) of y = sign(u + e) with e ~ N(0, 1): log Phi(z), z = y mu / sqrt(1 + sigma2), as Eq. (4.3) has it.

    :param y: -1 and +1, [B, n_L].
    :param mu: of u_L, [B, n_L].
    :param sigma2: of u_L, [B, n_L].

    The noise keeps z bounded: without it, probabilities tend to 0 and 1 as the weights become known.
    """
    inverse = 1.0 / np.sqrt(1.0 + sigma2)
    z = y * mu * inverse
    log_p = scipy.special.log_ndtr(z)
    ratio = np.exp(-0.5 * z**2 - 0.5 * math.log(2.0 * math.pi) - log_p)  # phi(z) / Phi(z)
    return Derivatives(np.sum(log_p, axis=1), y * inverse * ratio, -0.5 * z * ratio * inverse**2)


class _Rows(NamedTuple):
    """Inputs [N, D], labels [N], and weights [N] or None."""

    X: Array
    y: NDArray[Any]
    weight: Array | None


class _Trial(NamedTuple):
    """A classifier that learns a part of the rows, see `passes.Trial`."""

    model: EBPGaussianClassifier
    learned: _Rows
    held: _Rows

    def next_pass(self) -> None:
        self.model._next_pass(*self.learned)

    def scores(self) -> tuple[Array, Array]:
        num_rows = len(self.held.X)
        if not num_rows:  # fewer than three rows of each class
            return np.zeros(0), np.zeros(0)
        numbers = np.searchsorted(self.model.classes_, self.held.y)
        log_p = self.model.predict_log_proba(self.held.X)[np.arange(num_rows), numbers]
        return log_p, np.ones(num_rows) if self.held.weight is None else self.held.weight


class EBPGaussianClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classification by second-order expectation backpropagation, see `ebp.network.second_order`: no learning rate.

    Two classes have one output, more classes one output each, trained as one class against the others. Probabilities
    are those of Eq. (4.7), averaged over the networks; no row is lost for them.

    :param hidden: widths of the hidden layers, or one whole number for one layer; () for a linear model.
    :param units: of the hidden layers: "relu", or "sign" as in the paper.
    :param epochs: passes over the data in `fit`; `partial_fit` makes one.
    :param max_count: how often a row may count in the posterior of `fit`: after so many passes, older ones are
        forgotten at the rate at which new ones come. "auto": 1, 3 or 8, by the log loss of rows held back, of
        networks that learned the others (all rows in turn, of more than 400 as many); 3 for more than 5,000 rows.
    :param batch_size: rows whose changes are added.
    :param num_networks: networks of different starts, whose probabilities are averaged.
    :param random_state: of the starts, of the order of the rows, and of those that are held back. In what order X and
        y have the rows makes no difference to `fit`.

    Fitted attributes: `classes_`, `posteriors_`, `n_features_in_`, `n_epochs_` (passes so far), `count_` (how often a
    row counts at most in `fit`). `partial_fit` makes one pass and forgets nothing.

    Inputs are dense, and standardised by the data so far. For sparse inputs, many classes that come one after the
    other, and networks of bits there is `EBPClassifier`.
    """

    posteriors_: list[Gaussian]
    _last: list[Gaussian]

    def __init__(
        self,
        hidden: int | Sequence[int] = (50,),
        *,
        units: str = "relu",
        epochs: int = 10,
        max_count: int | str = "auto",
        batch_size: int = 10,
        num_networks: int = 1,
        random_state: Any = 0,
    ) -> None:
        self.hidden = hidden
        self.units = units
        self.epochs = epochs
        self.max_count = max_count
        self.batch_size = batch_size
        self.num_networks = num_networks
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> EBPGaussianClassifier:
        """Train from the prior, in `epochs` passes.

        :param X: [N, D], finite.
        :param y: [N], labels of at least two classes.
        :param sample_weight: how often each row counts, [N], not negative; None: once.
        :param groups: of each row its group, [N]: rows that are held back are whole groups; None: single rows.
        """
        X, y = self._check(X, y, reset=True)
        weight, groups = weight_of_rows(X, sample_weight), group_numbers(groups, len(X))
        classes, numbers = np.unique(y, return_inverse=True)
        order = row_order(X, numbers, weight, groups)
        X, y = X[order], y[order]
        weight = None if weight is None else weight[order]
        groups = None if groups is None else groups[order]
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._start(X, classes, weight)
        chosen = self._chosen_passes(X, y, weight, groups)
        self.count_ = chosen.max_count
        for _ in range(chosen.epochs):
            self._next_pass(X, y, weight)
        del self._last
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> EBPGaussianClassifier:
        """One pass over new data, from the posterior of the data before.

        :param classes: all classes that will ever occur; needed in the first call.
        :raises ValueError: if the first call lacks `classes`, or y has a label that is not among them.
        """
        is_first = not hasattr(self, "posteriors_")
        X, y = self._check(X, y, reset=is_first)
        weight = weight_of_rows(X, sample_weight)
        if is_first:
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._start(X, start_classes(classes), weight)
        else:
            check_classes(self, classes)
            self._inputs += Moments.of(X, weight)
        self._pass(X, y, weight)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row, [N]."""
        numbers = np.argmax(self.predict_log_proba(X), axis=1)
        return np.asarray(self.classes_[numbers])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of the classes, [N, C]."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of the probabilities of the classes in nats, [N, C]."""
        check_is_fitted(self, "posteriors_")
        X = self._inputs.standardised(validate_data(self, X, dtype=np.float64, reset=False))
        found = []
        for posterior in self.posteriors_:
            last = forward(posterior, X, self.units)[-1]
            found.append(log_probabilities(last.mu / np.sqrt(1.0 + last.sigma2), are_logits=False))
        return np.asarray(scipy.special.logsumexp(found, axis=0) - math.log(len(found)))

    # Private.

    def _check(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, NDArray[Any]]:
        X, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
        check_classification_targets(y)
        check_second_order(self)
        return X, y

    def _start(self, X: Array, classes: NDArray[Any], weight: Array | None) -> None:
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got 1 class: {classes.tolist()}.")
        self.classes_ = classes
        self.n_epochs_: int = 0
        self._inputs = Moments.of(X, weight)
        sizes = (X.shape[1], *layer_widths(self.hidden), 1 if len(classes) == 2 else len(classes))
        self.posteriors_ = [
            initial_posterior(sizes, np.random.default_rng([self._seed, number, 0]))
            for number in range(self.num_networks)
        ]

    def _chosen_passes(
        self, X: Array, y: NDArray[Any], weight: Array | None, groups: NDArray[np.intp] | None
    ) -> Passes:
        """How many passes, and how often a row may count."""

        def start(count: int, held: NDArray[np.intp]) -> _Trial:
            is_held = np.isin(np.arange(len(X)), held)
            parts = [_Rows(X[rows], y[rows], None if weight is None else weight[rows]) for rows in (~is_held, is_held)]
            trial = clone(self)
            trial._seed, trial.n_features_in_ = self._seed, X.shape[1]
            trial.count_ = count
            trial._start(parts[0].X, self.classes_, parts[0].weight)
            return _Trial(trial, *parts)

        return chosen_passes(
            start,
            self.epochs,
            held_folds(len(X), self._seed, strata=y, groups=groups),
            len(X),
            count=None if self.max_count == "auto" else int(self.max_count),
            early_stopping=False,
        )

    def _next_pass(self, X: Array, y: NDArray[Any], weight: Array | None) -> None:
        """A pass of `fit`, which forgets what is older than `count_` passes."""
        total = float(len(X) if weight is None else np.sum(weight))
        is_full = self.n_epochs_ >= self.count_ and total > 0
        is_first = self.n_epochs_ == 0
        if not is_first:
            self.posteriors_ = self._last
        means = self._pass(X, y, weight, forgetting=1.0 / (self.count_ * total) if is_full else 0.0)
        self._last = self.posteriors_
        if not is_first:  # in which the means have a long way to go
            self.posteriors_ = [mean.of(posterior) for posterior, mean in zip(self._last, means, strict=True)]

    def _pass(self, X: Array, y: NDArray[Any], weight: Array | None, forgetting: float = 0.0) -> list[PassMean]:
        """One pass over the data, by every network in an order of its own.

        :param forgetting: rate at which h and lambda are forgotten, per row of weight 1.
        :return: of each network the mean over the pass.
        """
        X, (Y, _) = self._inputs.standardised(X), encode_labels(y, self.classes_)
        posteriors, means = [], []
        for number, posterior in enumerate(self.posteriors_):
            mean = PassMean()
            order = np.random.default_rng([self._seed, number, 1, self.n_epochs_]).permutation(len(X))
            for rows, importance in batches(order, self.batch_size, weight):
                derivatives = functools.partial(sign_derivatives, Y[rows])
                count = len(rows) if importance is None else float(np.sum(importance))
                kept = math.exp(-forgetting * count)
                posterior, _, _ = batch_update(posterior, X[rows], derivatives, self.units, importance, kept)
                mean.add(posterior)
            posteriors.append(posterior)
            means.append(mean)
        self.posteriors_ = posteriors
        self.n_epochs_ += 1
        return means
