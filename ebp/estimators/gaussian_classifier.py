"""`EBPGaussianClassifier`: real weights whose precisions are learned, and probabilities that need no calibration."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..network.heads import encode_labels
from ..network.second_order import Derivatives, batch_update, forward, initial_posterior
from .calibration import log_probabilities
from .estimators import (
    batches,
    check_classes,
    check_second_order,
    layer_widths,
    standardised,
    start_classes,
    weight_of_rows,
)

__all__ = ["EBPGaussianClassifier", "sign_derivatives"]

Array = NDArray[np.float64]


def sign_derivatives(y: Array, mu: Array, sigma2: Array) -> Derivatives:
    """log P(y) of y = sign(u + e) with e ~ N(0, 1): log Phi(z), z = y mu / sqrt(1 + sigma2), as Eq. (4.3) has it.

    :param y: -1 and +1, [B, n_L]. :param mu: of u_L, [B, n_L]. :param sigma2: of u_L, [B, n_L].

    The noise keeps z bounded: without it, probabilities tend to 0 and 1 as the weights become known.
    """
    inverse = 1.0 / np.sqrt(1.0 + sigma2)
    z = y * mu * inverse
    log_p = scipy.special.log_ndtr(z)
    ratio = np.exp(-0.5 * z**2 - 0.5 * math.log(2.0 * math.pi) - log_p)  # phi(z) / Phi(z)
    return Derivatives(np.sum(log_p, axis=1), y * inverse * ratio, -0.5 * z * ratio * inverse**2)


class EBPGaussianClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classification by second-order expectation backpropagation, see `ebp.network.second_order`: no learning rate.

    Two classes have one output, more classes one output each, trained as one class against the others. Probabilities
    are those of Eq. (4.7), averaged over the networks; nothing is held back for them.

    :param hidden: widths of the hidden layers, or one whole number for one layer; () for a linear model.
    :param units: of the hidden layers: "relu", or "sign" as in the paper.
    :param epochs: passes over the data in `fit`; `partial_fit` makes one.
    :param batch_size: rows whose changes are added.
    :param num_networks: networks of different starts, whose probabilities are averaged.
    :param random_state: of the starts and of the order of the rows.

    Fitted attributes: `classes_`, `posteriors_`, `n_features_in_`, `n_epochs_` (passes so far).

    Inputs are dense, and standardised by the data so far. For sparse inputs, many classes that come one after the
    other, and networks of bits there is `EBPClassifier`.
    """

    def __init__(
        self,
        hidden: int | Sequence[int] = (50,),
        *,
        units: str = "relu",
        epochs: int = 10,
        batch_size: int = 10,
        num_networks: int = 1,
        random_state: Any = 0,
    ) -> None:
        self.hidden = hidden
        self.units = units
        self.epochs = epochs
        self.batch_size = batch_size
        self.num_networks = num_networks
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> EBPGaussianClassifier:
        """Train from the prior, in `epochs` passes.

        :param X: [N, D], finite. :param y: [N], labels of at least two classes.
        :param sample_weight: how often each row counts, [N], not negative; None: once.
        """
        X, y = self._check(X, y, reset=True)
        weight = weight_of_rows(X, sample_weight)
        self._start(X, np.unique(y), weight)
        for _ in range(self.epochs):
            self._pass(X, y, weight)
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
            self._start(X, start_classes(classes), weight)
        else:
            check_classes(self, classes)
            self._scaler.partial_fit(X, sample_weight=weight)
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
        X = standardised(self._scaler, validate_data(self, X, dtype=np.float64, reset=False))
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
        self.classes_, self.n_epochs_ = classes, 0
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._scaler = StandardScaler().fit(X, sample_weight=weight)
        sizes = (X.shape[1], *layer_widths(self.hidden), 1 if len(classes) == 2 else len(classes))
        self.posteriors_ = [
            initial_posterior(sizes, np.random.default_rng([self._seed, number, 0]))
            for number in range(self.num_networks)
        ]

    def _pass(self, X: Array, y: NDArray[Any], weight: Array | None) -> None:
        """One pass over the data, by every network in an order of its own."""
        X, (Y, _) = standardised(self._scaler, X), encode_labels(y, self.classes_)
        for number, posterior in enumerate(self.posteriors_):
            order = np.random.default_rng([self._seed, number, 1, self.n_epochs_]).permutation(len(X))
            for rows, importance in batches(order, self.batch_size, weight):
                derivatives = functools.partial(sign_derivatives, Y[rows])
                posterior, _, _ = batch_update(posterior, X[rows], derivatives, self.units, importance)
            self.posteriors_[number] = posterior
        self.n_epochs_ += 1
