"""`EBPClassifier`: the network as a scikit-learn estimator, for any labels and for dense or sparse inputs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import tensorflow as tf
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from gpflow_deep_base.cost import Cost
from gpflow_deep_base.numbers.columns import as_numbers
from gpflow_deep_base.numbers.scores import log_loss

from ..network.architecture import Posterior
from ..network.coding import InputCoding, Matrix, Moments
from ..network.few_rows import MAX_FEW_ROWS, FewRows
from ..network.heads import encode_labels, head_scores
from ..network.network import EBPNetwork
from ..network.posterior import WeightPrior
from ..training.passes import default_epochs, has_stopped, held_rows
from ..training.prepared import prepare
from ..training.training import fit_chunk, fit_epoch
from .calibration import Calibration, Scored, fit_calibration, log_probabilities
from .estimators import (
    check_classes,
    check_whole_numbers,
    group_numbers,
    is_plain,
    layer_widths,
    say_pass,
    start_classes,
    weight_of_rows,
)
from .inputs.far_values import edges
from .inputs.row_order import row_order
from .inputs.seen_columns import SeenColumns
from .streams.continual import Stream
from .streams.recency import Recency

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["EBPClassifier"]

#: Rows of calls of `partial_fit` by which it calibrates.
MAX_REMEMBERED = 1000


def _gives_probabilities(estimator: EBPClassifier) -> bool:
    if estimator.output == "deterministic":
        raise AttributeError(
            "predict_proba needs output='probabilistic' or 'vote'; the deterministic network only decides."
        )
    return True


class EBPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier trained by expectation backpropagation: no learning rate, real or discrete weights.

        >>> from ebp import EBPClassifier
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = EBPClassifier(hidden=20, epochs=2, random_state=0).fit(X[:300], y[:300])
        >>> bool(model.score(X[300:], y[300:]) > 0.9)
        True

    :param hidden: widths of the hidden layers, or one whole number for one layer; () for a perceptron.
    :param weights: "binary", "ternary", "real", a `WeightPrior`, or one of these for each layer.
    :param epochs: passes over the data in `fit`, or "auto", see `default_epochs`: small data need more of them.
        `partial_fit` makes one.
    :param early_stopping: end before `epochs` passes once the log loss of the rows that are held back has not fallen
        for two passes.
    :param batch_size: examples whose updates are added; 1 is the online Bayes update.
    :param output: "probabilistic" (EBP-P, the mean over the posterior), "deterministic" (EBP-D, the network with the
        most probable weights) or "vote" (`num_votes` networks drawn from the posterior).
    :param num_votes: networks of "vote".
    :param calibrate: fit a scale of mu / sigma, and for two classes an offset, to scores of rows before these were
        learned, see `ebp.estimators.calibration`. For that, `fit` holds back an eighth of the rows of each class (2,000
        at most), drawn by the seed, until the last pass, also from the coding of the inputs; `partial_fit` takes its
        last 1,000 rows. For `output="probabilistic"` only.
    :param softmax: one softmax over the classes in place of one sign neuron for each. It has no code for classes that
        are absent, so in `partial_fit` these are forgotten, and it learns more slowly on most data.
    :param memory: how many rows of each class `partial_fit` keeps, drawn from all rows so far. Once a class is absent
        for longer than chance allows, they are learned again with each call, so that less of it is forgotten. The rows
        are then part of the estimator, and of its pickle. 0: none.
    :param class_weight: None, "balanced", or class -> weight, as in scikit-learn.
    :param standardise: centre each column and divide it by its standard deviation in the training data; if X is
        sparse, divide it by the root of its standard deviation: `InputCoding` "zscore", or "root". A column that does
        not vary in the training data is set to 0. `partial_fit` uses the data seen so far.
    :param dtype: of the computations, "float32" or "float64".
    :param random_state: of the start, of the order of the examples, of those that are held back, and of the votes. In
        what order X and y have the rows makes no difference to `fit`.
    :param verbose: 0 prints nothing; 1 each tenth of the passes of `fit`; 2 each of them.

    Fitted attributes: `classes_`, `network_` (the `EBPNetwork`), `coding_` (the `InputCoding` of its inputs),
    `calibration_` (the `Calibration`; None without one), `n_features_in_`, `n_epochs_` (passes so far).

    Of sparse X with more than 16,384 columns, most of which never occur in the training data, as in a hashed space,
    those that do not cost nothing: they have no weights, and count as 0. `network_` and `coding_` are then made for all
    columns when they are asked for.

    Two classes have one output, more classes one output each, trained as one class against the others. A weight w of a
    row multiplies its log P(y), hence its Bayes update. The rows are learned one after the other in a random order, so
    a row of weight 2 is not quite the same as two rows.
    """

    _network: EBPNetwork
    _coding: InputCoding
    _columns: SeenColumns
    _stream: Stream
    _seen: Scored | None
    _few_rows: list[FewRows]

    def __init__(
        self,
        hidden: int | Sequence[int] = (120,),
        weights: str | WeightPrior | Sequence[str | WeightPrior] = "binary",
        *,
        epochs: int | str = "auto",
        early_stopping: bool = False,
        batch_size: int = 1,
        output: str = "probabilistic",
        num_votes: int = 11,
        calibrate: bool = True,
        softmax: bool = False,
        memory: int = 0,
        class_weight: Mapping[Any, float] | str | None = None,
        standardise: bool = True,
        dtype: str = "float32",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.weights = weights
        self.epochs = epochs
        self.early_stopping = early_stopping
        self.batch_size = batch_size
        self.output = output
        self.num_votes = num_votes
        self.calibrate = calibrate
        self.softmax = softmax
        self.memory = memory
        self.class_weight = class_weight
        self.standardise = standardise
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> EBPClassifier:
        """Train from the prior.

        :param X: [N, D], dense or sparse, finite.
        :param y: [N], labels of at least two classes.
        :param sample_weight: how often each row counts, [N], not negative; None: once.
        :param groups: of each row its group, [N], such as the person or the day it is of: rows that are held back are
            whole groups, where the rows of one resemble each other; None: single rows.
        """
        X, y = self._check(X, y, reset=True)
        # Without values far from all others, which leave nothing of the rest of their columns.
        if not scipy.sparse.issparse(X) and (bounds := edges(X)) is not None:
            X = np.clip(X, *bounds)
        groups = group_numbers(groups, X.shape[0])
        row_weight = weight_of_rows(X, sample_weight)
        # The rows in an order by their content, whatever that of the file is.
        classes, numbers = np.unique(y, return_inverse=True)
        order = row_order(X, numbers, row_weight, groups)
        X = X[order]
        y = y[order]
        row_weight = None if row_weight is None else row_weight[order]
        groups = None if groups is None else groups[order]
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        # Rows that are held back from the coding and from all passes but the last.
        held = np.zeros(0, np.intp)
        if self._holds_back():
            held = held_rows(len(y), self._seed, strata=y, groups=groups)
        others = np.setdiff1d(np.arange(len(y)), held)
        self._start(X[others], classes)  # the coding, too, is as for rows that were never seen
        weight = self._weight(X, y, row_weight)
        scaled = self._scaled(X)
        data = prepare(self._network, scaled, self._targets(y))
        epochs = default_epochs(len(y)) if self.epochs == "auto" else int(self.epochs)
        one_pass = functools.partial(
            fit_epoch, self._network, data, batch_size=self.batch_size, seed=self._seed, weight=weight
        )
        # All passes but the last, over the other rows.
        losses: list[float] = []
        cost = Cost(epochs, "passes")
        for epoch in range(epochs - 1):
            stats = one_pass(epoch=epoch, rows=others)
            say_pass(self.verbose, epoch + 1, epochs, f": {stats.log_evidence:.4f} nats a row before it was learned")
            cost(epoch + 1)
            if self.early_stopping and len(held):
                losses.append(self._log_loss(scaled[held], y[held]))
                if has_stopped(losses):
                    break
        self.n_epochs_ = (len(losses) or epochs - 1) + 1
        # The last pass: rows that were held back are scored before they are learned.
        rows = None
        if self.n_epochs_ == 1 and len(held):  # at the end of the pass, when most is known
            one_pass(rows=others)
            rows = held
        stats = one_pass(epoch=self.n_epochs_ - 1, rows=rows)
        self._few_rows = []
        say_pass(self.verbose, self.n_epochs_, self.n_epochs_, f": {stats.log_evidence:.4f} nats a row")
        # Rows that were held back count in the moments of later calls, and their scores calibrate.
        if len(held):
            self._moments += Moments.of(self._columns.inputs(X[held]))
        if self._is_calibrated() and len(held) and stats.scores is not None:
            self._remember(stats.scores[held], y[held], None if weight is None else weight[held])
        return self

    def partial_fit(
        self, X: Matrix, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> EBPClassifier:
        """One pass over new data, from the posterior of the data before.

        Outputs of classes that have been absent for longer than chance allows learn nothing from these rows (with more
        than two classes and without `softmax`): that they are absent is then no evidence against them. With `memory`
        they learn from kept rows.

        :param classes: all classes that will ever occur; needed in the first call.
        :param sample_weight: as in `fit`.
        :raises ValueError: if the first call lacks `classes`, y has a label that is not among them, or `class_weight`
            is "balanced", which needs all data at once.
        """
        is_first = not hasattr(self, "_network")
        X, y = self._check(X, y, reset=is_first)
        if isinstance(self.class_weight, str):
            raise ValueError(
                "partial_fit does not know how often classes will occur, so class_weight must be None or a dictionary "
                f"of weights, got {self.class_weight!r}."
            )
        if not is_first:
            check_classes(self, classes)
        all_classes = start_classes(classes) if is_first else self.classes_
        encode_labels(y, all_classes)  # what is wrong is found before anything is learned
        weight_of_rows(X, sample_weight)
        # The first call starts from the prior; later ones make room for new columns, and code by all rows so far.
        if is_first:
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._start(X, all_classes)
            self.n_epochs_ = 0
        else:
            self._make_room(X)
            if self.standardise:
                self._moments += Moments.of(self._columns.inputs(X))
                self._coding = InputCoding.of(self._coding.kind, self._moments)
        # The new rows, and with a memory the kept ones of classes that no longer come.
        self._stream, chunk = self._stream.after(
            X,
            np.searchsorted(self.classes_, y),
            self._weight(X, y, sample_weight),
            size=self.memory,
            seed=self._seed,
            has_outputs=len(self.classes_) > 2 and not self.softmax,
        )
        data = prepare(self._network, self._scaled(chunk.X), self._targets(self.classes_[chunk.numbers]))
        # A target of 0 is unknown, so that an output learns nothing from it.
        if chunk.is_learned is not None:
            data = data._replace(Y=data.Y * tf.constant(chunk.is_learned, data.Y.dtype))
        stats = fit_chunk(
            self._network, data, chunk.weight, batch_size=self.batch_size, seed=self._seed, epoch=self.n_epochs_
        )
        self.n_epochs_ += 1
        self._few_rows = []
        # The scores of new rows before they were learned are remembered.
        if self._is_calibrated() and stats.scores is not None:
            self._remember(stats.scores[: len(y)], y, None if chunk.weight is None else chunk.weight[: len(y)])
        return self

    @property
    def network_(self) -> EBPNetwork:
        """The network of all columns of X, coded by `coding_`."""
        if self._columns.numbers is None:
            return self._network
        # Columns that never occurred have h = 0.
        posterior = self._network.posterior
        full_network = self._new_network(self._columns.num_columns)
        first = tf.constant(self._columns.spread(posterior.h[0].numpy()))
        full_network.assign(Posterior((first, *posterior.h[1:]), posterior.b))
        full_network.step.assign(self._network.step)
        return full_network

    @property
    def coding_(self) -> InputCoding:
        """That of all columns of X."""
        mean = self._columns.spread(self._coding.mean)
        factor = self._columns.spread(self._coding.factor)
        return InputCoding(self._coding.kind, mean, factor)

    @property
    def calibration_(self) -> Calibration | None:
        """From scores to logits; None without one."""
        check_is_fitted(self, "_network")
        return None if self._seen is None else self._seen.calibration

    def decision_function(self, X: Matrix) -> np.ndarray:
        """Scores: [N] for two classes (positive for `classes_[1]`), else [N, C].

        For EBP-P the logits of the calibration, or without it mu / sigma of the output's input; u for EBP-D; the mean
        vote in [-1, 1] for "vote". With `softmax`, logits, and for two classes their difference.
        """
        scores = self._scores(X)
        return _two(scores) if len(self.classes_) == 2 else scores

    def predict(self, X: Matrix) -> np.ndarray:
        """The most probable class of each row, [N]."""
        scores = self._scores(X)
        if len(self.classes_) == 2:
            return self.classes_[(_two(scores) >= 0).astype(int)]
        return self.classes_[np.argmax(scores, axis=1)]

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Matrix) -> np.ndarray:
        """Probabilities of the classes, [N, C]: Eq. (4.7) over codes with one +1, or shares of the votes.

        Those of Eq. (4.7) are calibrated unless `calibrate` is off. Not available for the deterministic output.
        """
        scores = self._scores(X).astype(np.float64)
        if self.output == "vote":
            plus = 0.5 * (1.0 + scores)
            return plus if plus.shape[1] > 1 else np.hstack([1.0 - plus, plus])
        return np.exp(log_probabilities(scores, are_logits=self.softmax or self.calibration_ is not None))

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: Matrix) -> np.ndarray:
        """Logarithms of `predict_proba` in nats, [N, C]."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Private.

    def _check(self, X: Matrix, y: Any, *, reset: bool) -> tuple[Matrix, np.ndarray]:
        X = as_numbers(X, self, reset=reset)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)
        check_classification_targets(y)
        check_whole_numbers(self, "epochs", other="auto")
        check_whole_numbers(self, "batch_size", "num_votes")
        check_whole_numbers(self, "memory", least=0)
        if self.output not in ("probabilistic", "deterministic", "vote"):
            raise ValueError(f"output must be 'probabilistic', 'deterministic' or 'vote', got {self.output!r}.")
        return X, y

    def _start(self, X: Matrix, classes: np.ndarray) -> None:
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got 1 class: {classes.tolist()}.")
        self.classes_ = classes
        self._columns = SeenColumns.of(X)
        self._moments = Moments.of(self._columns.inputs(X))
        # Zeros of sparse inputs stay zeros.
        kind = "raw" if not self.standardise else "root" if scipy.sparse.issparse(X) else "zscore"
        self._coding = InputCoding.of(kind, self._moments)
        self._stream = Stream(Recency.start(len(classes)))
        self._seen = None
        self._few_rows = []
        self._network = self._new_network(self._columns.room)

    def _new_network(self, num_inputs: int) -> EBPNetwork:
        """One that has learned nothing."""
        num_outputs = 1 if len(self.classes_) == 2 and not self.softmax else len(self.classes_)
        return EBPNetwork(
            (num_inputs, *layer_widths(self.hidden), num_outputs),
            self.weights,
            head="softmax" if self.softmax else "binary" if num_outputs == 1 else "multiclass",
            seed=self._seed,
            dtype=self.dtype,
        )

    def _make_room(self, X: Matrix) -> None:
        """Inputs for columns that occur for the first time."""
        room = self._columns.room
        self._columns = self._columns.after(X)
        if self._columns.room == room:
            return
        self._moments = self._moments.with_columns(self._columns.room)
        self._coding = InputCoding.of(self._coding.kind, self._moments)
        # What is known goes over; h of the new inputs is as at the start.
        larger = self._new_network(self._columns.room)
        posterior = self._network.posterior
        start = larger.posterior
        larger.assign(
            Posterior((tf.concat([posterior.h[0], start.h[0][room:]], axis=0), *posterior.h[1:]), posterior.b)
        )
        larger.step.assign(self._network.step)
        self._network = larger

    def _scaled(self, X: Matrix) -> Matrix:
        X = self._columns.inputs(X)
        return X if self._coding.kind == "raw" else self._coding.transform(X)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        Y, _ = encode_labels(y, self.classes_)
        return np.hstack([-Y, Y]) if self.softmax and Y.shape[1] == 1 else Y

    def _weight(self, X: Matrix, y: np.ndarray, sample_weight: ArrayLike | None) -> np.ndarray | None:
        """Weights of the rows, by row and by class; None if all are 1."""
        weight = weight_of_rows(X, sample_weight)
        if self.class_weight is None:
            return weight
        by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=y)[
            np.searchsorted(self.classes_, y)
        ]
        return np.asarray(by_class if weight is None else weight * by_class, np.float64)

    # Calibration.

    def _is_calibrated(self) -> bool:
        return bool(self.calibrate) and self.output == "probabilistic"

    def _holds_back(self) -> bool:
        return self._is_calibrated() or bool(self.early_stopping)

    def _remember(self, scores: object, y: np.ndarray, weight: np.ndarray | None) -> None:
        """Keep the last rows that were scored before they were learned, with which to calibrate."""
        numbers = np.searchsorted(self.classes_, y)
        new = Scored(np.asarray(scores, np.float64), numbers, np.ones(len(y)) if weight is None else weight)
        self._seen = new if self._seen is None else self._seen.then(new, max(MAX_REMEMBERED, len(y)))

    def _log_loss(self, X: Matrix, y: np.ndarray) -> float:
        """Mean of -log P of rows that were not learned, at the best calibration, in nats."""
        scores = self._raw_scores(X)
        numbers = np.searchsorted(self.classes_, y)
        return log_loss(log_probabilities(fit_calibration(scores, numbers)(scores), are_logits=True), numbers)

    def _raw_scores(self, X: Matrix) -> np.ndarray:
        if X.shape[0] <= MAX_FEW_ROWS and not scipy.sparse.issparse(X) and not self.softmax:
            if not self._few_rows:  # of the network as it is now: made when it is first asked for
                self._few_rows.append(FewRows.of(self._network))
            mu, sigma2 = self._few_rows[0].moments(X)
            return np.asarray(mu / np.sqrt(sigma2))
        mu, sigma2 = self._network.predict_moments(X, dtype=np.float64)
        return head_scores(self._network.architecture.head, tf.constant(mu), tf.constant(sigma2)).numpy()

    def _scores(self, X: Matrix) -> np.ndarray:
        check_is_fitted(self, "_network")
        X = as_numbers(X, self, reset=False)
        # Few rows of a stream are checked here, as scikit-learn's checks take longer than the network.
        if not is_plain(self, X):
            X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        X = self._scaled(X)
        # EBP-D, votes, or EBP-P with its calibration.
        if self.output == "deterministic":
            return self._network.deterministic_scores(X)
        if self.output == "vote":
            return self._network.vote(X, self.num_votes, self._seed)
        scores = self._raw_scores(X)
        calibration = self.calibration_
        return scores if calibration is None else calibration(scores)


def _two(scores: np.ndarray) -> np.ndarray:
    """Scores of the second of two classes, [N], from one output or two."""
    return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]
