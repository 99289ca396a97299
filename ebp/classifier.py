"""`EBPClassifier`: the network as a scikit-learn estimator, for any labels and for dense or sparse inputs."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .heads import encode_labels
from .inputs import Matrix
from .network import EBPNetwork
from .posterior import WeightPrior
from .training import fit, fit_epoch

__all__ = ["EBPClassifier"]


def _gives_probabilities(estimator: Any) -> bool:
    if estimator.output == "deterministic":
        raise AttributeError(
            "predict_proba needs output='probabilistic' or 'vote'; the deterministic network only decides."
        )
    return True


class EBPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier trained by expectation backpropagation: no learning rate, real or discrete weights.

    :param hidden: widths of the hidden layers; () for a perceptron.
    :param weights: "binary", "ternary", "real", a `WeightPrior`, or one of these for each layer.
    :param epochs: passes over the data in `fit`; `partial_fit` makes one.
    :param batch_size: examples whose updates are added; 1 is the online Bayes update.
    :param output: "probabilistic" (EBP-P, the mean over the posterior), "deterministic" (EBP-D, the network with the
        most probable weights) or "vote" (`num_votes` networks drawn from the posterior).
    :param num_votes: networks of "vote".
    :param standardise: divide each column by its standard deviation in the training data, and centre it if X is dense.
        A column that does not vary in the training data is set to 0. `partial_fit` uses the data seen so far.
    :param dtype: of the computations, "float32" or "float64".
    :param random_state: of the start, of the order of the examples, and of the votes.

    Fitted attributes: `classes_`, `network_` (the `EBPNetwork`), `n_features_in_`, `n_epochs_` (passes so far).

    Two classes have one output, more classes one output each, trained as one class against the others.
    """

    def __init__(
        self,
        hidden: Sequence[int] = (120,),
        weights: str | WeightPrior | Sequence[str | WeightPrior] = "binary",
        *,
        epochs: int = 3,
        batch_size: int = 1,
        output: str = "probabilistic",
        num_votes: int = 11,
        standardise: bool = True,
        dtype: str = "float32",
        random_state: Any = 0,
    ) -> None:
        self.hidden = hidden
        self.weights = weights
        self.epochs = epochs
        self.batch_size = batch_size
        self.output = output
        self.num_votes = num_votes
        self.standardise = standardise
        self.dtype = dtype
        self.random_state = random_state

    def fit(self, X: Matrix, y: ArrayLike) -> EBPClassifier:
        """Train from the prior, in `epochs` passes.

        :param X: [N, D], dense or sparse, finite.
        :param y: [N], labels of at least two classes.
        """
        X, y = self._check(X, y, reset=True)
        self._start(X, np.unique(y))
        Y, _ = encode_labels(y, self.classes_)
        fit(self.network_, self._scaled(X), Y, epochs=self.epochs, batch_size=self.batch_size, seed=self._seed)
        self.n_epochs_ = self.epochs
        return self

    def partial_fit(self, X: Matrix, y: ArrayLike, classes: ArrayLike | None = None) -> EBPClassifier:
        """One pass over new data, from the posterior of the data before.

        :param classes: all classes that will ever occur; needed in the first call.
        :raises ValueError: if the first call lacks `classes`, or y has a label that is not among them.
        """
        is_first = not hasattr(self, "network_")
        X, y = self._check(X, y, reset=is_first)
        if is_first:
            if classes is None:
                raise ValueError("the first call of partial_fit needs classes, all labels that will ever occur.")
            self._start(X, np.unique(classes))
            self.n_epochs_ = 0
        else:
            if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(
                    f"classes must stay what they were in the first call, {self.classes_.tolist()}, got "
                    f"{np.unique(classes).tolist()}; fit a new classifier."
                )
            if self._scaler is not None:
                self._scaler.partial_fit(X)
        Y, _ = encode_labels(y, self.classes_)
        fit_epoch(self.network_, self._scaled(X), Y, batch_size=self.batch_size, seed=self._seed, epoch=self.n_epochs_)
        self.n_epochs_ += 1
        return self

    def decision_function(self, X: Matrix) -> np.ndarray:
        """Scores: [N] for two classes (positive for `classes_[1]`), else [N, C].

        mu / sigma of the output's input for EBP-P, u for EBP-D, the mean vote in [-1, 1] for "vote".
        """
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Matrix) -> np.ndarray:
        """The most probable class of each row, [N]."""
        scores = self._scores(X)
        if len(self.classes_) == 2:
            return self.classes_[(scores[:, 0] >= 0).astype(int)]
        return self.classes_[np.argmax(scores, axis=1)]

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Matrix) -> np.ndarray:
        """Probabilities of the classes, [N, C]: Eq. (4.7) over codes with one +1, or shares of the votes.

        Not available for the deterministic output.
        """
        scores = self._scores(X).astype(np.float64)
        if self.output == "vote":
            plus = 0.5 * (1.0 + scores)
            return plus if len(self.classes_) > 2 else np.hstack([1.0 - plus, plus])
        if len(self.classes_) == 2:
            return scipy.special.ndtr(np.hstack([-scores, scores]))
        return scipy.special.softmax(scipy.special.log_ndtr(scores) - scipy.special.log_ndtr(-scores), axis=1)

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: Matrix) -> np.ndarray:
        """Logarithms of `predict_proba` in nats, [N, C]."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Private.

    def _check(self, X: Matrix, y: Any, *, reset: bool) -> tuple[Matrix, np.ndarray]:
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)
        check_classification_targets(y)
        for name in ("epochs", "batch_size", "num_votes"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
        if self.output not in ("probabilistic", "deterministic", "vote"):
            raise ValueError(f"output must be 'probabilistic', 'deterministic' or 'vote', got {self.output!r}.")
        return X, y

    def _start(self, X: Matrix, classes: np.ndarray) -> None:
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got 1 class: {classes.tolist()}.")
        self.classes_ = classes
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._scaler = StandardScaler(with_mean=not scipy.sparse.issparse(X)).fit(X) if self.standardise else None
        num_outputs = 1 if len(classes) == 2 else len(classes)
        self.network_ = EBPNetwork(
            (X.shape[1], *self.hidden, num_outputs),
            self.weights,
            head="binary" if num_outputs == 1 else "multiclass",
            seed=self._seed,
            dtype=self.dtype,
        )

    def _scaled(self, X: Matrix) -> Matrix:
        if self._scaler is None:
            return X
        variance = self._scaler.var_
        inverse = np.where(variance > 0, 1.0 / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)
        if scipy.sparse.issparse(X):
            return X @ scipy.sparse.diags(inverse, format="csr")
        return (X - self._scaler.mean_) * inverse if self._scaler.with_mean else X * inverse

    def _scores(self, X: Matrix) -> np.ndarray:
        check_is_fitted(self, "network_")
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        X = self._scaled(X)
        if self.output == "deterministic":
            return self.network_.deterministic_scores(X)
        if self.output == "vote":
            return self.network_.vote(X, self.num_votes, self._seed)
        return self.network_.predict_scores(X, dtype=np.float64)
