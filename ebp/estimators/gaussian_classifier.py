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

from gpflow_deep_base.columns import as_numbers
from gpflow_deep_base.cost import Cost

from ..network.coding import Moments
from ..network.heads import encode_labels
from ..network.joint import AMPLITUDES, MAX_NUMBERS, JointNetwork
from ..network.passes import Passes, chosen_passes, held_folds
from ..network.second_order import Derivatives, PassMean, batch_update, forward, initial_posterior, with_inputs
from .calibration import log_probabilities
from .estimators import (
    batches,
    check_classes,
    check_second_order,
    dense_rows,
    group_numbers,
    is_plain,
    layer_widths,
    say_pass,
    start_classes,
    weight_of_rows,
)
from .row_order import row_order
from .seen_columns import SeenColumns

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

        >>> from ebp import EBPGaussianClassifier
        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> model = EBPGaussianClassifier(hidden=10, epochs=2, max_count=1, random_state=0).fit(X[:300], y[:300])
        >>> bool(model.score(X[300:], y[300:]) > 0.9)
        True

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
    :param common_scale: divide all inputs by one number in place of their own deviations, as is right for pixels: those
        at the border, which hardly vary, are then no louder than others.
    :param random_state: of the starts, of the order of the rows, and of those that are held back. In what order X and
        y have the rows makes no difference to `fit`.
    :param verbose: 0 prints nothing; 1 each tenth of the passes of `fit`; 2 each of them.

    Fitted attributes: `classes_`, `posteriors_`, `n_features_in_`, `n_epochs_` (passes so far), `count_` (how often a
    row counts at most in `fit`). `partial_fit` makes one pass and forgets nothing.

    A stream, which begins with `partial_fit`, has no second pass in which weights could find out what they do
    together. So with one hidden layer or none, and not too many inputs and units (100 and 50 of them with ten classes),
    it has a joint posterior of the weights of the last layer, to which the inputs go, too: `ebp.network.joint`. Others
    learn as `fit` does, and so does `partial_fit` after `fit`.

    Inputs are standardised by the data so far, and sparse ones made dense, without the columns that never occur if
    these are most of more than 16,384: `predict` takes them as 0, and `partial_fit` makes room for those that occur for
    the first time. For many sparse inputs, many classes that come one after the other, and networks of bits there is
    `EBPClassifier`.
    """

    posteriors_: list[Any]
    _last: list[Any]

    def __init__(
        self,
        hidden: int | Sequence[int] = (50,),
        *,
        units: str = "relu",
        epochs: int = 10,
        max_count: int | str = "auto",
        batch_size: int = 10,
        num_networks: int = 1,
        common_scale: bool = False,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.units = units
        self.epochs = epochs
        self.max_count = max_count
        self.batch_size = batch_size
        self.num_networks = num_networks
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
        cost = Cost(chosen.epochs, "passes")
        for number in range(1, chosen.epochs + 1):
            self._next_pass(X, y, weight)
            cost(number)
            say_pass(self.verbose, number, chosen.epochs, f", each row counts {self.count_} times at most")
        del self._last
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
        X, y = self._check(X, y, reset=is_first)
        weight = weight_of_rows(X, sample_weight)
        if is_first:
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._start_stream(X, y, classes, weight)
        else:
            check_classes(self, classes)
            self._learn_names(y)
            self._inputs += Moments.of(X, weight)
        if self._is_joint:
            self._learn_stream(X, y, weight)
        else:
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
        X = as_numbers(X, self, reset=False)
        if not is_plain(self, X):
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        X = self._units.standardised(dense_rows(X, self._columns))
        if len(self.classes_) == 1:
            return np.zeros((len(X), 1))
        found = []
        for posterior in self.posteriors_:
            if isinstance(posterior, JointNetwork):
                mu, sigma2 = posterior.moments(X)
            else:
                last = forward(posterior, X, self.units)[-1]
                mu, sigma2 = last.mu, last.sigma2
            z = mu / np.sqrt(1.0 + sigma2)
            found.append(log_probabilities(z[:, : _num_outputs(len(self.classes_))], are_logits=False))
        if len(found) == 1:
            return found[0]
        return np.asarray(scipy.special.logsumexp(found, axis=0) - math.log(len(found)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Private.

    @property
    def _units(self) -> Moments:
        """By which inputs are standardised."""
        return self._inputs.with_common_scale() if self.common_scale else self._inputs

    def _check(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, NDArray[Any]]:
        X = as_numbers(X, self, reset=reset)
        if reset or not is_plain(self, X, y):
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, reset=reset)
            check_classification_targets(y)
        check_second_order(self)
        if reset:
            self._columns = SeenColumns.of(X)
        else:
            self._make_room(X)
        return dense_rows(X, self._columns), y

    def _make_room(self, X: Any) -> None:
        """Inputs for columns that occur for the first time."""
        columns = self._columns.after(X)
        if columns.num_seen == self._columns.num_seen:
            return
        self._inputs: Moments = self._inputs.with_columns(columns.num_seen)
        for number, posterior in enumerate(self.posteriors_):
            rng = np.random.default_rng([self._seed, number, 2, self._columns.num_seen])
            self.posteriors_[number] = with_inputs(posterior, columns.num_seen, rng)
        self._columns = columns

    def _start(self, X: Array, classes: NDArray[Any], weight: Array | None) -> None:
        if len(classes) < 2:
            raise ValueError(f"y must have at least two classes, got 1 class: {classes.tolist()}.")
        self.classes_ = classes
        self.n_epochs_: int = 0
        self._is_joint = False
        self._has_spare = False
        self._inputs = Moments.of(X, weight)
        sizes = (X.shape[1], *layer_widths(self.hidden), _num_outputs(len(classes)))
        self.posteriors_ = [
            initial_posterior(sizes, np.random.default_rng([self._seed, number, 0]))
            for number in range(self.num_networks)
        ]

    # Streams.

    def _start_stream(self, X: Array, y: NDArray[Any], classes: ArrayLike | None, weight: Array | None) -> None:
        """Networks before the first rows of `partial_fit`."""
        widths = layer_widths(self.hidden)
        num_units = widths[0] if widths else 0
        known = np.unique(y) if classes is None else start_classes(classes)
        size = X.shape[1] + 1 + num_units
        num_numbers = len(AMPLITUDES) * size**2 * (_num_outputs(len(known)) + 1)
        is_wide = self._columns.numbers is not None or num_numbers > MAX_NUMBERS
        if len(widths) > 1 or is_wide:
            self._start(X, start_classes(classes), weight)
            encode_labels(y, self.classes_)
            return
        if classes is not None and len(known) < 2:
            raise ValueError(f"classes must be at least two, got {known.tolist()}; leave it out if others may come.")
        if len(known) > 1:
            encode_labels(y, known)
        self.classes_ = known
        self.n_epochs_ = 0
        self._is_joint = True
        self._has_spare = classes is None
        self._inputs = Moments.of(X, weight)
        self.posteriors_ = [
            JointNetwork.start(
                X.shape[1],
                num_units,
                _num_outputs(len(known)) + self._has_spare,
                np.random.default_rng([self._seed, number, 0]),
            )
            for number in range(self.num_networks)
        ]

    def _learn_names(self, y: NDArray[Any]) -> None:
        """Give outputs to labels that occur for the first time, or refuse them.

        A spare output learns that none of the rows so far is of a class that is yet to come; a new class starts as it.
        """
        places = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        if bool((self.classes_[places] == y).all()):
            return
        if not self._has_spare:
            encode_labels(y, self.classes_)  # raises
        for name in np.setdiff1d(y, self.classes_):
            classes = np.union1d(self.classes_, [name])
            place = int(np.searchsorted(classes, name))
            self.posteriors_ = [_with_class(network, len(classes), place) for network in self.posteriors_]
            self.classes_ = classes

    def _learn_stream(self, X: Array, y: NDArray[Any], weight: Array | None) -> None:
        """New rows, one after the other."""
        numbers = np.searchsorted(self.classes_, y)
        num_outputs = _num_outputs(len(self.classes_))
        first = 1 if num_outputs == 1 else 0  # the class of the first output
        Y = np.where(numbers[:, None] == np.arange(first, first + num_outputs), 1.0, -1.0)
        if self._has_spare:
            Y = np.concatenate([Y, np.full((len(Y), 1), -1.0)], axis=1)
        rows = self._units.standardised(X)
        self.posteriors_ = [network.after(rows, Y, sign_derivatives, weight) for network in self.posteriors_]
        self.n_epochs_ += 1

    # Passes of `fit`.

    def _chosen_passes(
        self, X: Array, y: NDArray[Any], weight: Array | None, groups: NDArray[np.intp] | None
    ) -> Passes:
        """How many passes, and how often a row may count."""

        def start(count: int, held: NDArray[np.intp]) -> _Trial:
            is_held = np.isin(np.arange(len(X)), held)
            parts = [_Rows(X[rows], y[rows], None if weight is None else weight[rows]) for rows in (~is_held, is_held)]
            trial = clone(self)
            trial._seed, trial.n_features_in_ = self._seed, X.shape[1]
            trial._columns = SeenColumns(X.shape[1], None)
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
        X, (Y, _) = self._units.standardised(X), encode_labels(y, self.classes_)
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
