"""The classification RBM (Larochelle and Bengio, 2008): labels as a softmax group of visible units.

    p(y = k | v) = exp(d_k) prod_j (1 + exp(a_j + U_jk)) / (the same, summed over k),        a = W v + c,

exact for any number of hidden units. It is trained as an RBM of rows and labels together, in the order of the columns
[v, y], and then, to tell labels apart, up the gradient of log p(y | v), a sum over labels that needs no sampling: with
o_jk = sigmoid(a_j + U_jk) and r_k = 1[y = k] - p(k | v),

    d/dU_jk = r_k o_jk,     d/dW_j = sum_k r_k o_jk v',     d/dc_j = sum_k r_k o_jk,     d/dd_k = r_k.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from gpflow_deep_base.numbers.columns import as_numbers
from rbm_tracking.model.conditionals import log_label_probs
from rbm_tracking.model.families.groups import blocks
from rbm_tracking.model.rbm import RBM
from rbm_tracking.use.estimator import TrackedRBM
from rbm_tracking.use.estimator_config import check_whole
from rbm_tracking.use.estimator_rows import Matrix

__all__ = ["RBMClassifier", "discriminate"]

Array = NDArray[np.float64]

# of Adam
_FIRST = 0.9
_SECOND = 0.999
_FLOOR = 1e-8


class RBMClassifier(ClassifierMixin, BaseEstimator):
    """Classes by an RBM of rows and labels.

        >>> import numpy as np
        >>> from rbm_tracking import RBMClassifier, TrackedRBM
        >>> X = np.random.default_rng(0).integers(0, 2, (200, 6))
        >>> rbm = TrackedRBM(n_components=4, max_updates=100, random_state=0)
        >>> RBMClassifier(rbm, epochs=20, learning_rate=0.05).fit(X, X[:, 0]).predict_proba(X[:3]).shape
        (3, 2)

    :param rbm: what is trained of rows [X, one bit for each class], of visible "auto", "bernoulli" or "softmax"
        (categories of X in `groups`); None for `TrackedRBM()`. It is not changed.
    :param epochs: passes over the rows up the gradient of log p(y | v) afterwards; 0 leaves the RBM as it is.
    :param learning_rate: of these, by Adam. It falls to 0 on a line.
    :param l2: of the weights in these.
    :param batch_size: rows of a step.
    :param random_state: seed of the order of rows in these.

    Attributes after fitting: `classes_`; `rbm_`, the fitted `TrackedRBM`, with its log-likelihoods of rows and labels
    together; `parameters_`, those that classify; `n_features_in_`.
    """

    def __init__(
        self,
        rbm: TrackedRBM | None = None,
        *,
        epochs: int = 60,
        learning_rate: float = 5e-3,
        l2: float = 1e-4,
        batch_size: int = 100,
        random_state: int | None = 0,
    ) -> None:
        self.rbm = rbm
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.l2 = l2
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> "RBMClassifier":
        """Train an RBM of rows and labels, and then its conditional.

        :param X: [n_samples, n_features] of 0 and 1, or probabilities of bits.
        :param y: [n_samples], classes.
        :raises ValueError: if there is one class only, or as `TrackedRBM.fit`.
        """
        X = as_numbers(X, self, reset=True)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=(np.float64, np.float32))
        check_classification_targets(y)
        check_whole(0, epochs=self.epochs)
        check_whole(1, batch_size=self.batch_size)
        if not 0 < self.learning_rate < np.inf or not 0 <= self.l2 < np.inf:
            raise ValueError(
                f"learning_rate must be positive and l2 not negative, got {self.learning_rate} and {self.l2}."
            )
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"RBMClassifier needs at least 2 classes, got 1 class, {self.classes_[0]!r}.")
        rbm = TrackedRBM() if self.rbm is None else clone(self.rbm)
        if rbm.visible not in ("auto", "bernoulli", "softmax") or rbm.hidden != "bernoulli":
            raise ValueError(
                f"rows of bits or categories can be classified, got visible={rbm.visible!r}; and hidden units must be "
                f"bits, got hidden={rbm.hidden!r}."
            )
        # The label is one more category, behind those of X.
        rbm_groups = () if rbm.groups is None else rbm.groups
        rbm_groups = (
            blocks(int(rbm_groups), self.n_features_in_) if isinstance(rbm_groups, int | np.integer) else rbm_groups
        )
        groups = [list(group) for group in rbm_groups]
        rbm.set_params(visible="softmax", groups=[*groups, list(self._columns)])
        one_hot = np.eye(len(self.classes_))[labels]
        both = sparse.hstack([X, one_hot]).tocsr() if sparse.issparse(X) else np.hstack([X, one_hot])
        self.rbm_ = rbm.fit(both)
        # The RBM is where the discriminative training starts.
        rng = np.random.default_rng(self.random_state)
        self.parameters_ = _Parameters.of(rbm.rbm_, self.n_features_in_)
        self.parameters_ = discriminate(
            self.parameters_,
            X,
            labels,
            rng,
            batch_size=self.batch_size,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            l2=self.l2,
        )
        return self

    def predict_proba(self, X: Matrix) -> Array:
        """p(y | x), exact, [n_samples, n_classes]."""
        check_is_fitted(self)
        X = as_numbers(X, self, reset=False)
        X = validate_data(self, X, accept_sparse="csr", reset=False, dtype=(np.float64, np.float32))
        rows = X.toarray() if sparse.issparse(X) else X
        W, U, c, d = self.parameters_
        both = RBM(np.hstack([W, U]), np.concatenate([np.zeros(W.shape[1]), d]), c)
        return np.exp(log_label_probs(both, rows, self._columns))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable classes, [n_samples]."""
        check_is_fitted(self)
        return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])

    @property
    def _columns(self) -> NDArray[np.int64]:
        """Of the label, behind those of X."""
        return np.arange(self.n_features_in_, self.n_features_in_ + len(self.classes_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


class _Parameters(NamedTuple):
    """W [n_h, D], U [n_h, K], c [n_h] and d [K]."""

    W: Array
    U: Array
    c: Array
    d: Array

    @classmethod
    def of(cls, rbm: RBM, num_features: int) -> "_Parameters":
        W, b, c = (np.asarray(part, np.float64) for part in rbm[:3])
        return cls(W[:, :num_features], W[:, num_features:], c, b[num_features:])


def discriminate(
    parameters: _Parameters,
    X: Matrix,
    labels: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    epochs: int,
    learning_rate: float,
    l2: float,
    batch_size: int,
) -> _Parameters:
    """Parameters after `epochs` passes up the mean of log p(y | v) - l2 |W, U|^2 / 2, by Adam.

    :param X: [N, D], dense or CSR.
    :param labels: [N], from 0.
    """
    # Parameters, and the averages of their slopes and squares.
    theta = [np.array(part) for part in parameters]
    first = [0 * part for part in theta]
    second = [0 * part for part in theta]
    total = epochs * -(-X.shape[0] // batch_size)
    step = 0
    for _ in range(epochs):
        order = rng.permutation(X.shape[0])
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = X[rows].toarray() if sparse.issparse(X) else X[rows]
            slopes = gradient(_Parameters(*theta), np.asarray(batch, np.float64), labels[rows])
            rate = learning_rate * (1 - step / total)
            step += 1
            # Adam, whose rate falls to 0; weights W and U decay.
            for i, slope in enumerate(slopes):
                slope = slope - l2 * theta[i] if i < 2 else slope
                first[i] += (1 - _FIRST) * (slope - first[i])
                second[i] += (1 - _SECOND) * (slope**2 - second[i])
                size = np.sqrt(second[i] / (1 - _SECOND**step)) + _FLOOR
                theta[i] += rate * first[i] / (1 - _FIRST**step) / size
    return _Parameters(*theta)


def gradient(parameters: _Parameters, v: Array, labels: NDArray[np.int64]) -> _Parameters:
    """Gradient of the mean of log p(y | v) of rows v [B, D]."""
    W, U, c, d = parameters
    # log p(y | v) is a softmax over the free energies with each label
    o = (v @ W.T + c)[:, None] + U.T[None]  # [B, K, n_h]
    residual = (np.arange(len(d)) == labels[:, None]) - softmax(np.logaddexp(0.0, o).sum(axis=2) + d, axis=1)
    # Each label's part of the slopes, summed over labels for what they share.
    moved = residual[:, :, None] * expit(o) / len(v)
    of_hidden = moved.sum(axis=1)
    return _Parameters(of_hidden.T @ v, moved.sum(axis=0).T, of_hidden.sum(axis=0), residual.mean(axis=0))
