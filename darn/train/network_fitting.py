"""Masked networks fitted to rows: dropout, direct connections, and a running mean of the parameters that validation
rows see.

    fitted = fit_network(x, valid, NetworkSettings(hidden=200, dropout=0.3), seed=0)
    fitted.model                               # a `MaskedNetwork`
    fitted.log_p                               # of the validation rows, nats

Adam on minibatches; training stops when validation rows have not been better for some evaluations, or when its work is
spent. The work of a fit is counted in multiplications, so that nothing depends on the clock.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darn.more.masked import MaskedNetwork, masks
from darn.more.ordered import Category, checked_bits, levels_in_order
from darn.train.chain_fitting import row_weights
from gpflow_deep_base.stopping import Best

__all__ = ["FittedNetwork", "NetworkSettings", "fit_network", "work_of_step"]

_RATE = 2e-3  # of Adam
# its running means, and what is added to the root of the second
_FIRST = 0.9
_SECOND = 0.999
_SMALL = 1e-6
_AVERAGE = 0.999  # of the parameters that are evaluated
_BATCH = 100
_LEAST_INTERVAL = 25  # steps between evaluations, or an epoch
_BLOCK = 2000  # rows of an evaluation at a time
_MOST_LOGIT = 30.0
_OVERHEAD = 5e6  # multiplications that take as long as what a step does beside them


@dataclasses.dataclass(frozen=True)
class NetworkSettings:
    """Of a network and its fit.

    :ivar hidden: units of its layer.
    :ivar dropout: share of them that is left out in a step.
    :ivar input_dropout: share of the columns that is not seen in a step.
    :raises ValueError: naming the field that is wrong.
    """

    hidden: int = 300
    dropout: float = 0.1
    input_dropout: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, int | np.integer) or self.hidden < 0:
            raise ValueError(f"hidden must be a whole number of units, got {self.hidden!r}.")
        for name in ("dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)!r}.")

    def __str__(self) -> str:
        return f"{self.hidden} hidden units, dropout {self.dropout:.2g}, of columns {self.input_dropout:.2g}"


class FittedNetwork(NamedTuple):
    """What a fit gives.

    :ivar model: the parameters of the best evaluation.
    :ivar log_p: log p of the validation rows, [N'], nats.
    :ivar work: multiplications that it took.
    :ivar best_step: steps before the best evaluation.
    """

    model: MaskedNetwork
    log_p: NDArray[np.float64]
    work: float
    best_step: int


def work_of_step(width: int, hidden: int, num_rows: int) -> float:
    """Multiplications of a step.

    :param width: n.
    :param hidden: how many hidden units, H.
    :param num_rows: of the table.
    """
    return _OVERHEAD + 3.0 * min(_BATCH, num_rows) * width * (2 * hidden + width)


def fit_network(
    x: ArrayLike,
    valid: ArrayLike,
    settings: NetworkSettings = NetworkSettings(),
    *,
    order: ArrayLike | None = None,
    categories: Sequence[Category] = (),
    weights: ArrayLike | None = None,
    valid_weights: ArrayLike | None = None,
    seed: int = 0,
    patience: int = 5,
    most_work: float = math.inf,
    behind: tuple[int, float] | None = None,
) -> FittedNetwork:
    """The network of the largest mean of log p over the rows, as far as validation rows follow.

    :param x: zeros and ones, [N, n].
    :param valid: validation rows, [N', n].
    :param settings: of the network and its fit.
    :param order: of the columns; drawn by the seed if not given.
    :param categories: columns that are one variable.
    :param weights: of the rows, [N]; all alike if not given.
    :param valid_weights: likewise, [N'].
    :param seed: of the order, the start, minibatches and dropout.
    :param patience: evaluations in a row without improvement after which training stops.
    :param most_work: multiplications after which it stops, too; at least one evaluation is made.
    :param behind: stop after so many steps, too, if validation rows have more than so many nats a row then.
    :raises ValueError: for other values, no rows, weights that are none, or an order that has not each column once.
    """
    rows = checked_bits(x, np.shape(x)[-1] if np.ndim(x) else 1)
    N, n = rows.shape
    held_out = checked_bits(valid, n)
    if not N or not len(held_out):
        raise ValueError(f"there must be training and validation rows, got {N} and {len(held_out)}.")
    rng = np.random.default_rng([seed, 7])
    places = rng.permutation(n) if order is None else np.asarray(order)
    if not np.array_equal(np.sort(places), np.arange(n)):
        raise ValueError(f"order must have each of the {n} columns once, got {order!r}.")
    training = _Training(rows, places.astype(np.int32), settings, categories, weights, rng)
    valid_share = _normalised(valid_weights, len(held_out))
    # An evaluation an epoch, but not more often than its cost allows.
    steps_per_look = max(_LEAST_INTERVAL, training.steps_per_epoch)
    work_per_look = steps_per_look * work_of_step(n, settings.hidden, N)
    work_per_look += float(len(held_out) * n * (2 * settings.hidden + n))
    best = Best()
    parameters = None
    work = 0.0
    # Steps, then an evaluation; the best parameters are kept.
    while parameters is None or (not best.is_done(patience) and work < most_work):
        for _ in range(steps_per_look):
            training.step()
        work += work_per_look
        log_p = training.log_prob(held_out)
        loss = -float(log_p @ valid_share)
        if not math.isfinite(loss):
            break
        best = best.after(training.num_steps, loss)
        if best.step == training.num_steps:
            parameters = training.average.copied()
        if behind is not None and training.num_steps >= behind[0] and best.value > behind[1]:
            break
    if parameters is None:
        raise FloatingPointError("training of a network diverged; please report this with the rows.")
    model = training.model(parameters)
    return FittedNetwork(model, model.log_prob(held_out), work, best.step)


class _Parameters(NamedTuple):
    """Of a network whose columns are in its order, float32."""

    into: NDArray[np.float32]
    hidden_bias: NDArray[np.float32]
    out: NDArray[np.float32]
    bias: NDArray[np.float32]
    direct: NDArray[np.float32]

    def copied(self) -> _Parameters:
        return _Parameters(*(part.copy() for part in self))

    def zeros(self) -> _Parameters:
        return _Parameters(*(np.zeros_like(part) for part in self))


class _Training:
    """Steps of Adam. Rows have their columns in the order, and the means of the columns are taken from them.

    :ivar average: running mean of the parameters.
    :ivar num_steps: so far.
    """

    def __init__(
        self,
        rows: NDArray[np.uint8],
        order: NDArray[np.int32],
        settings: NetworkSettings,
        categories: Sequence[Category],
        weights: ArrayLike | None,
        rng: np.random.Generator,
    ) -> None:
        N, n = rows.shape
        H = settings.hidden
        self._settings = settings
        self._categories = tuple(categories)
        self._order = order
        self._rng = rng
        self._levels = levels_in_order(self._categories, order)
        # Rows, their weights, and where a bit can be 1.
        share = _normalised(weights, N)
        self._weights = None if weights is None else (share * N).astype(np.float32)
        self._rows = rows[:, order].astype(np.float32)
        is_open = self._is_open(rows)
        self._open = None if is_open is None else is_open[:, order].astype(np.float32)
        self._mean = (share @ self._rows).astype(np.float32)
        self._batch = min(_BATCH, N)
        self.steps_per_epoch = N // self._batch
        # Hidden units see 1 to n - 1 columns, about as many units each number.
        self._seen = np.ceil((np.arange(H) + 1) * (n - 1) / max(H, 1)).astype(np.int32)
        # Weights to begin with: columns start from their means.
        direct, into, out = masks(np.arange(n), self._seen)
        ones = self._rows if self._open is None else self._rows * self._open
        at_risk = np.full(n, float(N)) if self._open is None else N * (share @ self._open)
        number = N * (share @ ones)
        start_into = rng.normal(size=(n, H)) / math.sqrt(n) * into
        start_out = rng.normal(size=(H, n)) * 0.3 / math.sqrt(max(H, 1)) * out
        start_bias = np.log((number + 0.5) / (at_risk - number + 0.5))
        starts = (start_into, np.zeros(H), start_out, start_bias, np.zeros((n, n)))
        # Parameters, Adam's means of gradients and their squares, and the running mean of the parameters.
        self._now = _Parameters(*(part.astype(np.float32) for part in starts))
        self._masks = (into.astype(np.float32), None, out.astype(np.float32), None, direct.astype(np.float32))
        self._first = self._now.zeros()
        self._second = self._now.zeros()
        self._room = self._now.zeros()
        self.average = self._now.copied()
        self.num_steps = 0
        self._epoch = np.empty(0, np.intp)

    def step(self) -> None:
        """One minibatch."""
        place = self.num_steps % self.steps_per_epoch * self._batch
        if place == 0:
            self._epoch = self._rng.permutation(len(self._rows))
        self.num_steps += 1
        self._move(self._gradients(self._epoch[place : place + self._batch]))

    def log_prob(self, rows: NDArray[np.uint8]) -> NDArray[np.float64]:
        """log p(x) of possible rows by the averages, [N], nats."""
        # Rows in blocks: a = V' relu(U' x + c) + S' x + b, and log p of the columns that can be 1.
        is_open = self._is_open(rows)
        log_densities = []
        for begin in range(0, len(rows), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            x = rows[part][:, self._order].astype(np.float32)
            centred = x - self._mean
            hidden = np.maximum(centred @ self.average.into + self.average.hidden_bias, 0.0)
            a = hidden @ self.average.out + centred @ self.average.direct + self.average.bias
            log_p = x * a - np.logaddexp(np.float32(0.0), a)
            if is_open is not None:
                log_p *= is_open[part][:, self._order]
            log_densities.append(log_p.sum(axis=1, dtype=np.float64))
        return np.concatenate(log_densities)

    def model(self, parameters: _Parameters) -> MaskedNetwork:
        """The network of parameters, for columns at their own places and without their means taken from them."""
        # Means taken from the inputs join the biases; columns go back to their own places.
        into, hidden_bias, out, bias, direct = parameters
        back = np.argsort(self._order)
        return MaskedNetwork(
            order=self._order,
            bias=(bias - self._mean @ direct)[back],
            direct=np.ascontiguousarray(direct[np.ix_(back, back)]),
            seen=self._seen,
            hidden_bias=hidden_bias - self._mean @ into,
            into=np.ascontiguousarray(into[back]),
            out=np.ascontiguousarray(out[:, back]),
            categories=self._categories,
        )

    # Private.

    def _is_open(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_] | None:
        """Where a bit can be 1 and is not certain, [N, n]; None if that is everywhere."""
        if not self._levels:
            return None
        is_open = np.ones(rows.shape, bool)
        for j, level in self._levels.items():
            is_open[:, j] = False if level.is_certain else ~rows[:, level.earlier].any(axis=1)
        return is_open

    def _gradients(self, batch: NDArray[np.intp]) -> _Parameters:
        """Of the mean of -log p(x) over the rows of a minibatch, with respect to the parameters."""
        current = self._now
        # Forward, with dropout of inputs and hidden units.
        x = self._rows[batch]
        inputs = x - self._mean
        if (drop := self._settings.input_dropout) > 0.0:
            inputs *= (self._rng.random(inputs.shape, np.float32) >= drop) / np.float32(1.0 - drop)
        hidden = inputs @ current.into
        hidden += current.hidden_bias
        is_active = (hidden > 0.0).astype(np.float32)
        if (drop := self._settings.dropout) > 0.0:
            is_active *= self._rng.random(is_active.shape, np.float32) >= drop
            is_active /= np.float32(1.0 - drop)
        hidden *= is_active
        a = hidden @ current.out
        a += inputs @ current.direct
        a += current.bias
        # p - x, in place.
        np.clip(a, -_MOST_LOGIT, _MOST_LOGIT, out=a)
        np.negative(a, out=a)
        np.exp(a, out=a)
        a += 1.0
        np.reciprocal(a, out=a)
        a -= x
        a /= len(x)
        if self._open is not None:
            a *= self._open[batch]
        if self._weights is not None:
            a *= self._weights[batch, None]
        # Back to the hidden units, and all gradients.
        back = (a @ current.out.T) * is_active
        return _Parameters(inputs.T @ back, back.sum(axis=0), hidden.T @ a, a.sum(axis=0), inputs.T @ a)

    def _move(self, gradients: _Parameters) -> None:
        """A step of Adam, and of the running mean."""
        # The corrected rate of the step, and the share of the newest parameters in the mean.
        t = self.num_steps
        rate = np.float32(_RATE * math.sqrt(1.0 - _SECOND**t) / (1.0 - _FIRST**t))
        share = np.float32(max(1.0 - _AVERAGE, 1.0 / (t + 1.0)))
        parts = zip(gradients, self._masks, self._now, self._first, self._second, self.average, self._room, strict=True)
        for gradient, mask, current, first, second, average, room in parts:
            if mask is not None:
                gradient *= mask
            # Running means of the gradient and of its square.
            first *= np.float32(_FIRST)
            np.multiply(gradient, np.float32(1.0 - _FIRST), out=room)
            first += room
            np.square(gradient, out=gradient)
            second *= np.float32(_SECOND)
            gradient *= np.float32(1.0 - _SECOND)
            second += gradient
            # The step, and the mean of the parameters.
            np.sqrt(second, out=room)
            room += np.float32(_SMALL)
            np.divide(first, room, out=room)
            room *= rate
            current -= room
            np.subtract(current, average, out=room)
            room *= share
            average += room


def _normalised(weights: ArrayLike | None, number: int) -> NDArray[np.float64]:
    """Weights of rows that sum to 1."""
    counted = row_weights(weights, number)
    return counted / counted.sum()
