"""What `EBPRegressor` and `EBPGaussianClassifier` have in common: networks of second order, and passes over rows."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from ebp.network.coding import Matrix
from gpflow_deep_base.cost import Cost

from ..network.coding import Moments
from ..second_order.second_order import Gaussian, PassMean, initial_posterior, with_inputs
from ..training.passes import MAX_TRIED_ROWS, tried_counts, winner
from .estimators import batches, group_numbers, layer_widths, say_pass
from .inputs.decorrelation import decorrelation
from .inputs.far_values import edges
from .inputs.row_order import row_order
from .inputs.seen_columns import SeenColumns

__all__ = ["Design", "Rows", "SecondOrderEstimator", "Trial"]

Array = NDArray[np.float64]

#: Units of the hidden layer of hidden="auto", beside none: so many, and of an output.
AUTO_UNITS = 50
AUTO_UNITS_OF_OUTPUT = 5


class Rows(NamedTuple):
    """Inputs [N, D], targets [N, Q] or labels [N], and weights [N] or None."""

    X: Array
    y: np.ndarray
    weight: Array | None

    def part(self, rows: NDArray[np.intp]) -> Rows:
        """Those of these numbers."""
        return Rows(self.X[rows], self.y[rows], None if self.weight is None else self.weight[rows])

    def then(self, others: Rows) -> Rows:
        """With others behind them."""
        weights = np.concatenate([self.weights, others.weights])
        return Rows(np.vstack([self.X, others.X]), np.concatenate([self.y, others.y]), weights)

    def equal_ones(self) -> NDArray[np.intp] | None:
        """Of ordered rows the number of each among different ones, [N]; None if none or all are equal, or of many."""
        is_new = np.any(self.X[1:] != self.X[:-1], axis=1) | np.any(self.y[1:] != self.y[:-1], axis=1)
        if np.all(is_new) or not np.any(is_new) or len(self.X) > MAX_TRIED_ROWS:
            return None
        return np.append(0, np.cumsum(is_new))

    @property
    def weights(self) -> Array:
        """Of each row, [N]: 1 where none are given."""
        return np.ones(len(self.X)) if self.weight is None else self.weight

    @property
    def total(self) -> float:
        """How many rows these are."""
        return float(len(self.X) if self.weight is None else np.sum(self.weight))


class Design(NamedTuple):
    """What networks are of: widths of hidden layers, and whether inputs lose their correlations."""

    widths: tuple[int, ...]
    is_decorrelated: bool


class Trial(NamedTuple):
    """An estimator that has learned a part of the rows.

    :ivar others: rows that were held back.
    :ivar held: their numbers, [H].
    """

    model: SecondOrderEstimator
    others: Rows
    held: NDArray[np.intp]

    def scores(self) -> tuple[Array, Array]:
        """Of the other rows, in nats, and their weights; [H] each."""
        if not len(self.held):  # too few rows
            return np.zeros(0), np.zeros(0)
        return self.model._scores(self.others), self.others.weights


class SecondOrderEstimator(BaseEstimator, abc.ABC):  # type: ignore[misc]
    """Networks of different starts that learn the same rows, each in an order of its own.

    A subclass says how a network starts (`_start_like`), what rows are to it (`_standardised`), how it learns a batch
    (`_after_batch`), and how good it is for rows held back (`_scores`).
    """

    hidden: int | Sequence[int] | str
    epochs: int
    max_count: int | str
    batch_size: int
    num_networks: int
    random_state: int | np.random.RandomState | None
    verbose: int

    posteriors_: list[Any]
    n_epochs_: int
    count_: int
    _seed: int
    _design: Design
    _columns: SeenColumns
    _inputs: Moments
    _last: list[Any]
    _edges: Array | None = None
    _decorrelation: Array | None = None

    @abc.abstractmethod
    def _start_like(self, other: Any, rows: Rows) -> None:
        """Networks before the first pass over rows, of as many outputs as those of another estimator."""

    @abc.abstractmethod
    def _standardised(self, rows: Rows) -> tuple[Array, Array]:
        """Inputs [N, D] and targets [N, n_L] of the networks."""

    @abc.abstractmethod
    def _after_batch(
        self, network: int, posterior: Gaussian, X: Array, Y: Array, weight: Array | None, kept: float
    ) -> Gaussian:
        """The posterior of a network after a batch, see `batch_update`."""

    @abc.abstractmethod
    def _scores(self, rows: Rows) -> Array:
        """Log density or log probability of each row in nats, [N]."""

    def _draw_seed(self) -> None:
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))

    def _rng(self, network: int, *purpose: int) -> np.random.Generator:
        """Random numbers of a network: 0, of its start; 1, the order of the rows in a pass; 2, of new inputs."""
        return np.random.default_rng([self._seed, network, *purpose])

    @property
    def _units(self) -> Moments:
        """By which inputs are standardised."""
        return self._inputs

    def _coded(self, X: Array) -> Array:
        """Inputs of the networks, [N, D]."""
        X = self._units.standardised(X)
        if self._decorrelation is None:
            return X
        # Columns that occurred after `fit` for the first time stay as they are.
        num_known = len(self._decorrelation)
        return np.hstack([X[:, :num_known] @ self._decorrelation, X[:, num_known:]])

    def _widths(self, num_outputs: int = 1) -> tuple[int, ...]:
        """Widths of the hidden layers, where nothing is tried."""
        is_auto = isinstance(self.hidden, str) and self.hidden == "auto"
        return (max(AUTO_UNITS, AUTO_UNITS_OF_OUTPUT * num_outputs),) if is_auto else layer_widths(self.hidden)

    def _start_networks(self, rows: Rows, num_outputs: int) -> None:
        self.n_epochs_ = 0
        self._inputs = Moments.of(rows.X, rows.weight)
        self._decorrelation = None
        if self._design.is_decorrelated:
            self._decorrelation = decorrelation(self._inputs.standardised(rows.X), rows.weights)
        sizes = (rows.X.shape[1], *self._design.widths, num_outputs)
        self.posteriors_ = [initial_posterior(sizes, self._rng(number, 0)) for number in range(self.num_networks)]

    def _make_room(self, X: Matrix) -> int:
        """Inputs for columns that occur for the first time; how many these are."""
        # Rows so far are 0 in the new columns.
        columns = self._columns.after(X)
        num_seen = self._columns.num_seen
        if columns.num_seen > num_seen:
            self._inputs = self._inputs.with_columns(columns.num_seen)
            self.posteriors_ = [
                with_inputs(posterior, columns.num_seen, self._rng(number, 2, num_seen))
                for number, posterior in enumerate(self.posteriors_)
            ]
        self._columns = columns
        return columns.num_seen - num_seen

    def _near(self, X: Array) -> Array:
        """Inputs [N, D] without values far from all others, where `fit` has found such; see `edges`."""
        if self._edges is None:
            return X
        # Columns that occurred after `fit` for the first time stay as they are.
        num_known = self._edges.shape[1]
        return np.hstack([np.clip(X[:, :num_known], *self._edges), X[:, num_known:]])

    # Passes of `fit`.

    def _without_far(self, rows: Rows) -> Rows:
        """Rows to fit, without values far from all others."""
        self._edges = edges(rows.X[rows.weights > 0])
        return rows._replace(X=self._near(rows.X))

    def _in_order(self, rows: Rows, numbers: Array, groups: ArrayLike | None) -> tuple[Rows, NDArray[np.intp] | None]:
        """Rows and their groups in an order that is not that of the file.

        :param numbers: targets, or numbers of classes.
        """
        groups = group_numbers(groups, len(rows.X))
        order = row_order(rows.X, numbers, rows.weight, groups)
        return rows.part(order), None if groups is None else groups[order]

    def _trial(self, rows: Rows, count: int, held: NDArray[np.intp]) -> Trial:
        """An estimator that has learned the rows but for those held back."""
        # A copy with the seed of this one, at the start of its first pass.
        learned = rows.part(np.delete(np.arange(len(rows.X)), held))
        model = clone(self)
        model._seed = self._seed
        model._design = self._design
        model.n_features_in_ = rows.X.shape[1]
        model.count_ = count
        model._columns = SeenColumns(rows.X.shape[1], None)
        model._start_like(self, learned)
        for _ in range(self.epochs):
            model._next_pass(learned)
        return Trial(model, rows.part(held), held)

    def _race(self, rows: Rows, folds: Sequence[NDArray[np.intp]], designs: Sequence[Design]) -> list[Trial]:
        """Set the design and how often a row may count; the networks of this choice that were tried.

        :param designs: what is tried; the first one is taken where nothing is.
        """
        # What is tried: every design with every count, or one design if the count is given.
        counts = tried_counts(self.epochs, len(rows.X)) if self.max_count == "auto" else [int(self.max_count)]
        if self.hidden == "auto":  # where rows are few and the function is nearly linear, units learn noise
            designs = [*designs, designs[0]._replace(widths=())]
        if len(counts) == 1:
            designs = designs[:1]
        choices = [(design, count) for design in designs for count in counts]
        trials: list[list[Trial]] = [[] for _ in choices]

        def scores(number: int, held: NDArray[np.intp]) -> tuple[Array, Array]:
            self._design, count = choices[number]
            # A trial is kept, since its errors judge the variances of the winner.
            trials[number].append(self._trial(rows, count, held))
            return trials[number][-1].scores()

        chosen = winner(range(len(choices)), scores, folds)
        self._design, self.count_ = choices[chosen]
        return trials[chosen]

    def _learn(self, rows: Rows) -> None:
        """All passes of `fit`."""
        cost = Cost(self.epochs, "passes")
        for number in range(1, self.epochs + 1):
            self._next_pass(rows)
            cost(number)
            say_pass(self.verbose, number, self.epochs, f", each row counts {self.count_} times at most")
        del self._last

    def _next_pass(self, rows: Rows) -> None:
        """A pass of `fit`, which forgets what is older than `count_` passes."""
        is_full = self.n_epochs_ >= self.count_ and rows.total > 0
        is_first = self.n_epochs_ == 0
        # A pass goes on from the last posterior, and shows the mean over the pass.
        if not is_first:
            self.posteriors_ = self._last
        means = self._pass(rows, forgetting=1.0 / (self.count_ * rows.total) if is_full else 0.0)
        self._last = self.posteriors_
        if not is_first:  # in which the means have a long way to go
            self.posteriors_ = [mean.of(posterior) for posterior, mean in zip(self._last, means, strict=True)]

    def _pass(self, rows: Rows, forgetting: float = 0.0) -> list[PassMean]:
        """One pass over the data.

        :param forgetting: rate at which h and lambda are forgotten, per row of weight 1.
        :return: of each network the mean over the pass.
        """
        X, Y = self._standardised(rows)
        posteriors = []
        means = []
        # Each network takes the batches in an order of its own.
        for number, posterior in enumerate(self.posteriors_):
            mean = PassMean()
            order = np.arange(len(X))
            if len(X) > 1:
                order = self._rng(number, 1, self.n_epochs_).permutation(order)
            for batch, weight in batches(order, self.batch_size, rows.weight):
                # The part of h and lambda that this batch leaves.
                kept_part = math.exp(-forgetting * (len(batch) if weight is None else float(np.sum(weight))))
                posterior = self._after_batch(number, posterior, X[batch], Y[batch], weight, kept_part)
                mean.add(posterior)
            posteriors.append(posterior)
            means.append(mean)
        self.posteriors_ = posteriors
        self.n_epochs_ += 1
        return means
