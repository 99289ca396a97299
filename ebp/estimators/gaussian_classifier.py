"""`EBPGaussianClassifier`: real weights whose precisions are learned, and probabilities that need no calibration."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from gpflow_deep_base.numbers.columns import as_numbers

from ..network.coding import Matrix, Moments
from ..network.heads import encode_labels
from ..second_order.joint import AMPLITUDES, MAX_NUMBERS, JointNetwork
from ..second_order.second_order import Derivatives, Gaussian, batch_update, forward
from ..training.passes import MAX_TRIED_ROWS, held_folds
from .calibration import log_probabilities
from .estimators import check_classes, check_second_order, dense_rows, is_plain, start_classes, weight_of_rows
from .inputs.decorrelation import decorrelation
from .inputs.row_order import copies
from .inputs.seen_columns import SeenColumns
from .second_order_estimator import Design, Rows, SecondOrderEstimator

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["EBPGaussianClassifier", "sign_derivatives"]

Array = NDArray[np.float64]

#: Inputs are tried without correlations if some direction of them grows so much by that.
MIN_STRETCH = 1.5


def sign_derivatives(y: Array, mu: Array, sigma2: Array) -> Derivatives:
    """log P(y) of y = sign(u + e) with e ~ N(0, 1): log Phi(z), z = y mu / sqrt(1 + sigma2), as Eq. (4.3) has it.

    :param y: -1 and +1, [B, n_L].
    :param mu: of u_L, [B, n_L].
    :param sigma2: of u_L, [B, n_L].

    The noise keeps z bounded: without it, probabilities tend to 0 and 1 as the weights become known.
    """
    # Eq. (4.3) with the variance of the noise, 1, added to sigma2.
    inverse = 1.0 / np.sqrt(1.0 + sigma2)
    z = y * mu * inverse
    log_p = scipy.special.log_ndtr(z)
    ratio = np.exp(-0.5 * z**2 - 0.5 * math.log(2.0 * math.pi) - log_p)  # phi(z) / Phi(z)
    return Derivatives(np.sum(log_p, axis=1), y * inverse * ratio, -0.5 * z * ratio * inverse**2)


class EBPGaussianClassifier(ClassifierMixin, SecondOrderEstimator):  # type: ignore[misc]
    """Classification by second-order expectation backpropagation, see `ebp.second_order.second_order`: no learning
    rate.

        >>> from ebp import EBPGaussianClassifier
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = EBPGaussianClassifier(hidden=10, epochs=2, max_count=1, random_state=0).fit(X[:300], y[:300])
        >>> bool(model.score(X[300:], y[300:]) > 0.9)
        True

    Two classes have one output, more classes one output each, trained as one class against the others. Probabilities
    are those of Eq. (4.7), averaged over the networks; no row is lost for them.

    :param hidden: widths of the hidden layers, or one whole number for one layer; () for a linear model; "auto": 50
        units (five a class, if that is more), or none where that is better for rows that are held back (and `max_count`
        is "auto", too).
    :param units: of the hidden layers: "relu", or "sign" as in the paper.
    :param epochs: passes over the data in `fit`; `partial_fit` makes one.
    :param max_count: how often a row may count in the posterior of `fit`: after so many passes, older ones are
        forgotten at the rate at which new ones come. "auto": 1, 3 or 8, by the log loss of rows held back, of
        networks that learned the others (all rows in turn, of more than 400 as many); 3 for more than 5,000 rows.
    :param batch_size: rows whose changes are added.
    :param num_networks: networks of different starts, whose probabilities are averaged.
    :param decorrelate: take away what correlations the inputs have, see `ebp.estimators.inputs.decorrelation`: True,
        False, or "auto": if networks so trained are better for rows that are held back, where `max_count` is "auto",
        too.
    :param common_scale: divide all inputs by one number in place of their own deviations, as is right for pixels: those
        at the border, which hardly vary, are then no louder than others.
    :param random_state: of the starts, of the order of the rows, and of those that are held back. In what order X and
        y have the rows makes no difference to `fit`.
    :param verbose: 0 prints nothing; 1 each tenth of the passes of `fit`; 2 each of them.

    Fitted attributes: `classes_`, `posteriors_`, `n_features_in_`, `n_epochs_` (passes so far), `count_` (how often a
    row counts at most in `fit`). `partial_fit` makes one pass and forgets nothing.

    A stream, which begins with `partial_fit`, has no second pass in which weights could find out what they do
    together. So with one hidden layer or none, and not too many inputs and units (100 and 50 of them with ten classes),
    it has a joint posterior of the weights of the last layer, to which the inputs go, too: `ebp.second_order.joint`.
    Others learn as `fit` does, and so does `partial_fit` after `fit`.

    Inputs are standardised by the data so far, and sparse ones made dense, without the columns that never occur if
    these are most of more than 16,384: `predict` takes them as 0, and `partial_fit` makes room for those that occur for
    the first time. For many sparse inputs, many classes that come one after the other, and networks of bits there is
    `EBPClassifier`.
    """

    def __init__(
        self,
        hidden: int | Sequence[int] | str = "auto",
        *,
        units: str = "relu",
        epochs: int = 10,
        max_count: int | str = "auto",
        batch_size: int = 10,
        num_networks: int = 1,
        decorrelate: bool | str = "auto",
        common_scale: bool = False,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.units = units
        self.epochs = epochs
        self.max_count = max_count
        self.batch_size = batch_size
        self.num_networks = num_networks
        self.decorrelate = decorrelate
        self.common_scale = common_scale
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> EBPGaussianClassifier:
        """Train from the prior, in `epochs` passes.

        :param X: [N, D], finite.
        :param y: [N], labels of at least two classes.
        :param sample_weight: how often each row counts, [N], not negative; None: once.
        :param groups: of each row its group, [N]: rows that are held back are whole groups; None: single rows, but all
            copies of a row together.
        """
        rows = self._without_far(self._check(X, y, sample_weight, reset=True))
        classes, numbers = np.unique(rows.y, return_inverse=True)
        rows, groups = self._in_order(rows, numbers, groups)
        if groups is None and len(rows.X) <= MAX_TRIED_ROWS:
            groups = copies(rows.X, np.searchsorted(classes, rows.y))
        self._draw_seed()
        self._design = Design(self._widths(), False)
        self._start(rows, classes)
        # What networks are of and how often a row may count, by rows held back; then all rows are learned.
        folds = held_folds(len(rows.X), self._seed, strata=rows.y, groups=groups)
        self._race(rows, folds, self._designs(rows))
        self._start(rows, classes)
        self._learn(rows)
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> EBPGaussianClassifier:
        """One pass over new data, from the posterior of the data before.

        :param classes: all classes that will ever occur; None in the first call: those that have occurred so far, to
            which others may come later (with a joint posterior).
        :raises ValueError: if y has a label that is not among `classes`, or `classes` is missing without a joint
            posterior.
        """
        is_first = not hasattr(self, "posteriors_")
        rows = self._check(X, y, sample_weight, reset=is_first)
        if is_first:
            self._draw_seed()
            self._start_stream(rows, classes)
        else:
            # Later rows: outputs for new classes, and units of all rows so far.
            check_classes(self, classes)
            self._learn_names(rows.y)
            self._inputs += Moments.of(rows.X, rows.weight)
        if self._is_joint:
            self._learn_stream(rows)
        else:
            self._pass(rows)
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable class of each row, [N]."""
        numbers = np.argmax(self.predict_log_proba(X), axis=1)
        return np.asarray(self.classes_[numbers])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of the classes, [N, C]."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of the probabilities of the classes in nats, [N, C]."""
        check_is_fitted(self, "posteriors_")
        X = as_numbers(X, self, reset=False)
        if not is_plain(self, X):
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        X = self._coded(self._near(dense_rows(X, self._columns)))
        if len(self.classes_) == 1:
            return np.zeros((len(X), 1))
        log_probs = []
        # u ~ N(mu, sigma2) of each network, and Eq. (4.7) with noise of variance 1.
        for posterior in self.posteriors_:
            if isinstance(posterior, JointNetwork):
                mu, sigma2 = posterior.moments(X)
            else:
                last = forward(posterior, X, self.units)[-1]
                mu = last.mu
                sigma2 = last.sigma2
            z = mu / np.sqrt(1.0 + sigma2)
            log_probs.append(log_probabilities(z[:, : _num_outputs(len(self.classes_))], are_logits=False))
        # The mean of the networks' probabilities.
        if len(log_probs) == 1:
            return log_probs[0]
        return np.asarray(scipy.special.logsumexp(log_probs, axis=0) - math.log(len(log_probs)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Private.

    @property
    def _units(self) -> Moments:
        """By which inputs are standardised."""
        return self._inputs.with_common_scale() if self.common_scale else self._inputs

    def _check(self, X: Matrix, y: Any, sample_weight: ArrayLike | None, *, reset: bool) -> Rows:
        X = as_numbers(X, self, reset=reset)
        # A row of a stream is learned in less time than scikit-learn's checks take.
        if reset or not is_plain(self, X, y):
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, reset=reset)
            check_classification_targets(y)
        check_second_order(self)
        if reset:
            self._columns = SeenColumns.of(X)
            self._edges = None
        else:
            self._make_room(X)
        X = self._near(dense_rows(X, self._columns))
        return Rows(X, y, weight_of_rows(X, sample_weight))

    def _start(self, rows: Rows, classes: np.ndarray) -> None:
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got 1 class: {classes.tolist()}.")
        self.classes_ = classes
        self._is_joint = False
        self._has_spare = False
        self._start_networks(rows, _num_outputs(len(classes)))

    def _start_like(self, other: EBPGaussianClassifier, rows: Rows) -> None:
        self._start(rows, other.classes_)

    def _designs(self, rows: Rows) -> list[Design]:
        """Inputs as they are, or without correlations, or what is the better for rows that are held back.

        A posterior of single weights learns what is in small differences of columns with such inputs alone, while with
        most tables the columns themselves say more.
        """
        design = Design(self._widths(len(self.classes_)), self.decorrelate is True)
        if self.decorrelate != "auto" or self.common_scale:
            return [design]
        root = decorrelation(self._inputs.standardised(rows.X), rows.weights)
        if root is None or np.linalg.norm(root, 2) < MIN_STRETCH:
            return [design]
        return [design, design._replace(is_decorrelated=True)]

    # Streams.

    def _start_stream(self, rows: Rows, classes: ArrayLike | None) -> None:
        """Networks before the first rows of `partial_fit`."""
        widths = self._widths()
        self._design = Design(widths, False)
        num_units = widths[0] if widths else 0
        first_classes = np.unique(rows.y) if classes is None else start_classes(classes)
        # With too many numbers for a joint posterior, networks as in `fit`.
        size = rows.X.shape[1] + 1 + num_units
        num_numbers = len(AMPLITUDES) * size**2 * (_num_outputs(len(first_classes)) + 1)
        is_wide = self._columns.numbers is not None or num_numbers > MAX_NUMBERS
        if len(widths) > 1 or is_wide:
            self._start(rows, start_classes(classes))
            encode_labels(rows.y, self.classes_)
            return
        # With a joint posterior the classes need not be known: a spare output is for others.
        if classes is not None and len(first_classes) < 2:
            raise ValueError(
                f"classes must be at least two, got {first_classes.tolist()}; leave it out if others may come."
            )
        if len(first_classes) > 1:
            encode_labels(rows.y, first_classes)
        self.classes_ = first_classes
        self.n_epochs_ = 0
        self._is_joint = True
        self._has_spare = classes is None
        self._inputs = Moments.of(rows.X, rows.weight)
        num_outputs = _num_outputs(len(first_classes)) + self._has_spare
        self.posteriors_ = [
            JointNetwork.start(rows.X.shape[1], num_units, num_outputs, self._rng(number, 0))
            for number in range(self.num_networks)
        ]

    def _learn_names(self, y: np.ndarray) -> None:
        """Give outputs to labels that occur for the first time, or refuse them.

        A spare output learns that none of the rows so far is of a class that is yet to come; a new class starts as it.
        """
        # Of texts and numbers together NumPy makes texts, of the classes so far, too.
        if (y.dtype.kind in "biuf") != (self.classes_.dtype.kind in "biuf"):
            raise ValueError(
                f"labels must be like {self.classes_.tolist()}, got {y[:5].tolist()}; fit a new classifier."
            )
        places = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        if bool((self.classes_[places] == y).all()):
            return
        if not self._has_spare:
            encode_labels(y, self.classes_)  # raises
        # New classes one by one, each at its place among the sorted names.
        for name in np.setdiff1d(y, self.classes_):
            classes = np.union1d(self.classes_, [name])
            place = int(np.searchsorted(classes, name))
            self.posteriors_ = [_with_class(network, len(classes), place) for network in self.posteriors_]
            self.classes_ = classes

    def _learn_stream(self, rows: Rows) -> None:
        """New rows, one after the other."""
        numbers = np.searchsorted(self.classes_, rows.y)
        num_outputs = _num_outputs(len(self.classes_))
        first = 1 if num_outputs == 1 else 0  # the class of the first output
        # One class against the others; the spare output has -1 in every row.
        Y = np.where(numbers[:, None] == np.arange(first, first + num_outputs), 1.0, -1.0)
        if self._has_spare:
            Y = np.concatenate([Y, np.full((len(Y), 1), -1.0)], axis=1)
        X = self._coded(rows.X)
        self.posteriors_ = [network.after(X, Y, sign_derivatives, rows.weight) for network in self.posteriors_]
        self.n_epochs_ += 1

    # Passes.

    def _standardised(self, rows: Rows) -> tuple[Array, Array]:
        return self._coded(rows.X), encode_labels(rows.y, self.classes_)[0]

    def _after_batch(
        self, network: int, posterior: Gaussian, X: Array, Y: Array, weight: Array | None, kept: float
    ) -> Gaussian:
        derivatives = functools.partial(sign_derivatives, Y)
        return batch_update(posterior, X, derivatives, self.units, weight, kept)[0]

    def _scores(self, rows: Rows) -> Array:
        numbers = np.searchsorted(self.classes_, rows.y)
        return self.predict_log_proba(rows.X)[np.arange(len(numbers)), numbers]


def _num_outputs(num_classes: int) -> int:
    """One for two classes, else one each; none for a single class."""
    return num_classes - 1 if num_classes <= 2 else num_classes


def _with_class(network: JointNetwork, num_classes: int, place: int) -> JointNetwork:
    """A network of one class more, whose output starts as the spare one, the last.

    :param num_classes: after it.
    :param place: of the new class among them.
    """
    spare = network.mean.shape[1] - 1
    if num_classes == 2:
        # What is not of the only class so far is of the new one: one output, of the second class.
        return network.with_outputs([spare, spare], [1.0 if place == 1 else -1.0, 1.0])
    # Two classes had one output.
    sources, signs = ([0, 0], [-1.0, 1.0]) if num_classes == 3 else (list(range(spare)), [1.0] * spare)
    sources.insert(place, spare)
    signs.insert(place, 1.0)
    return network.with_outputs([*sources, spare], [*signs, 1.0])
