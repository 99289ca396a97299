# ruff: noqa: D102 (what the methods of a family are is said in `Visible`)
"""Families of units: what a layer of an RBM may be, and how it is distributed given its field.

Every family has the energy of an RBM of bits, and a measure m of its own on the rows v that it allows:

    q~_beta(v) = m(v) exp(b'v) prod_j (1 + exp(beta a_j)),        a = W v + c.

Given the hidden units, p(v | h) = m(v) exp(x'v) / Z(x) with the field x = beta W'h + b. Swaps and bridges depend on the
hidden side alone, so that a family is the measure, its log-normaliser log Z(x) = log sum_v m(v) exp(x'v), its mean and
its draws. log Z of the RBM at beta = 0 is log Z(b) + n_h log 2.

Hidden units may be of any family, too. Then exp(log Z(beta a)) of the hidden family takes the place of the product over
j, its mean that of the sigmoid, and its draws those of bits; log 2 becomes log Z(0).

Families are frozen values. Their formulas are written once, for arrays in NumPy and, with the functions of
`rbm_tracking.model.rbm.TENSORS`, for tensors; this module needs no TensorFlow. In nested structures of TensorFlow a
family is static, except for the precisions of :class:`Gaussian`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from rbm_tracking.model.checks import check_binary, check_numbers

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "NUMPY",
    "Bernoulli",
    "Description",
    "Discrete",
    "Gaussian",
    "Numbers",
    "Ops",
    "Spin",
    "Tensor",
    "Visible",
    "binary_vectors",
    "own_slopes",
]

Array = np.ndarray
Tensor: TypeAlias = "np.ndarray | tf.Tensor"
"""What formulas are given and return: arrays of NumPy, or tensors where `Ops` are TensorFlow's."""

Description: TypeAlias = dict[str, object]
"""The name of a family and what it is besides its parameters, as JSON has it."""

State: TypeAlias = tuple[Tensor, ...]
Body: TypeAlias = Callable[..., State]

Family = TypeVar("Family", bound="Discrete")
Number = TypeVar("Number", bound="Numbers")


class Ops(NamedTuple):
    """The functions that formulas need, on arrays of NumPy or on tensors; sums and the like are over the last axis."""

    softplus: Callable[[Tensor], Tensor]
    sigmoid: Callable[[Tensor], Tensor]
    softmax: Callable[[Tensor], Tensor]
    logsumexp: Callable[[Tensor], Tensor]
    sum: Callable[[Tensor], Tensor]
    cumsum: Callable[[Tensor], Tensor]
    take: Callable[[Tensor, Array], Tensor]  # of columns
    join: Callable[[list[Tensor]], Tensor]  # one after the other in the last axis
    flatten: Callable[[Tensor], Tensor]  # the last two axes to one
    full: Callable[[Tensor, float], Tensor]  # a last axis of one entry, for all of the others of x
    where: Callable[[Tensor, Tensor, Tensor], Tensor]
    exp: Callable[[Tensor], Tensor]
    log: Callable[[Tensor], Tensor]
    sqrt: Callable[[Tensor], Tensor]
    ndtri: Callable[[Tensor], Tensor]
    erfc: Callable[[Tensor], Tensor]
    cast: Callable[[Tensor, Tensor], Tensor]  # to the type of the second one
    max: Callable[[Tensor], Tensor]
    maximum: Callable[[Tensor, Tensor], Tensor]
    minimum: Callable[[Tensor, Tensor], Tensor]
    log_sigmoid: Callable[[Tensor], Tensor]
    is_finite: Callable[[Tensor], Tensor]
    diag: Callable[[Tensor], Tensor]  # a matrix with this diagonal
    diagonal: Callable[[Tensor], Tensor]
    transpose: Callable[[Tensor], Tensor]
    repeat: Callable[[int, Body, State], State]  # state = body(i, *state) for i = 0 ... count - 1


def _repeat(count: int, body: Body, state: State) -> State:
    for i in range(count):
        state = body(i, *state)
    return state


def _logsumexp(x: Array) -> Array:
    """As SciPy's over the last axis, whose largest value is finite, without its overhead."""
    largest = x.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(x - largest).sum(axis=-1)) + largest[..., 0])


def _softmax(x: Array) -> Array:
    """The same of SciPy's softmax."""
    # Relative to the largest one, so that none overflows.
    y = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(y / y.sum(axis=-1, keepdims=True))


NUMPY = Ops(
    softplus=lambda x: np.logaddexp(0.0, x),
    sigmoid=special.expit,
    softmax=_softmax,
    logsumexp=_logsumexp,
    sum=functools.partial(np.sum, axis=-1),
    cumsum=functools.partial(np.cumsum, axis=-1),
    take=functools.partial(np.take, axis=-1),
    join=functools.partial(np.concatenate, axis=-1),
    flatten=lambda x: x.reshape(*x.shape[:-2], -1),
    full=lambda x, value: np.full((*x.shape[:-1], 1), value, x.dtype),
    where=np.where,
    exp=np.exp,
    log=np.log,
    sqrt=np.sqrt,
    ndtri=special.ndtri,
    erfc=special.erfc,
    cast=lambda x, like: np.asarray(x, like.dtype),
    max=functools.partial(np.max, axis=-1),
    maximum=np.maximum,
    minimum=np.minimum,
    log_sigmoid=lambda x: np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x))),
    is_finite=np.isfinite,
    diag=np.diag,
    diagonal=np.diagonal,
    transpose=np.transpose,
    repeat=_repeat,
)


def binary_vectors(n: int, start: int = 0, stop: int | None = None) -> Array:
    """States `start` to `stop` of {0, 1}^n, in binary counting, [stop - start, n]."""
    # Unit i is digit i of the state's number.
    states = np.arange(start, 2**n if stop is None else stop)
    return ((states[:, None] >> np.arange(n)) & 1).astype(np.float64)


class Visible(Protocol):
    """A family of n_v visible units. `x` and `v` are [..., n_v]; results are in nats where they are logarithms."""

    @property
    def is_learnt(self) -> bool:
        """Whether the family has parameters of its own that training moves."""
        ...

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        """The rows [N, n_v] as an array; ValueError if the family does not allow one of them."""
        ...

    def stored(self, rows: Tensor) -> Array:
        """Rows as the smallest type that holds them."""
        ...

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        """b of the best model without weights of checked rows, [n_v], every probability at least `clip`."""
        ...

    def log_normaliser(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        """log Z(x) of all units: [..., n_v] to [...]."""
        ...

    def mean(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        """E[v] given the field."""
        ...

    def variance(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        """Var[v] of each unit given the field."""
        ...

    def log_measure(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        """log m(v) of allowed rows: [..., n_v] to [...]; 0.0 where m is 1."""
        ...

    def num_noise(self, n_v: int) -> int:
        """How many uniform numbers a draw needs."""
        ...

    def draw(self, x: Tensor, noise: Tensor, ops: Ops = NUMPY) -> Tensor:
        """v given the field, by uniform noise [..., num_noise] in [0, 1)."""
        ...

    def num_states(self, n_v: int) -> float:
        """How many rows are allowed; infinite for numbers."""
        ...

    def states(self, n_v: int, start: int, stop: int) -> Array:
        """Allowed rows number `start` to `stop`, [stop - start, n_v]."""
        ...

    def highest_log_p(self, n_v: int) -> float:
        """A bound of log p(v) of every row of every RBM of this family: 0 for probabilities."""
        ...

    @property
    def num_own(self) -> int:
        """K, the number of own parameters that training moves."""
        ...

    def moved(self, change: Tensor, ops: Ops = NUMPY) -> Visible:
        """The family after a step up the gradient of its own parameters; itself where it has none.

        :param change: learning rate times the mean of :meth:`slopes` of the data less that of the model, [K].
        """
        ...

    def powered(self, power: float) -> Visible:
        """The family of the measure m(v)^power; itself where m is 1.

        :param power: positive.
        """
        ...

    def slopes(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        """d log q~ / d own parameters of rows, [..., n_v] to [..., K]; None where there are none."""
        ...

    def mean_slopes(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        """E[slopes] given the field, [..., n_v] to [..., K], where there are own parameters."""
        ...

    def describe(self) -> Description:
        """What `serialization.from_description` needs, besides parameters."""
        ...


def own_slopes(visible: Visible, hidden: Visible, v: Tensor, a: Tensor, ops: Ops = NUMPY) -> list[Tensor]:
    """d log q~ / d own parameters of the layers that learn some, [..., K] each.

    :param visible: units of the rows.
    :param hidden: units that are summed out.
    :param v: rows [..., n_v].
    :param a: activations of the hidden units, [..., n_h].
    :param ops: of the type of both.
    """
    # Hidden units are summed out of q~: their slopes are means given v.
    of_visible = [visible.slopes(v, ops)] if visible.is_learnt else []
    return of_visible + ([hidden.mean_slopes(a, ops)] if hidden.is_learnt else [])


@dataclass(frozen=True)
class Discrete:
    """What families of rows with countably many values, m = 1, and without parameters of their own have in common."""

    is_learnt = False
    num_own = 0

    def log_measure(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        return 0.0

    def highest_log_p(self, n_v: int) -> float:
        return 0.0

    def moved(self: Family, change: Tensor, ops: Ops = NUMPY) -> Family:
        return self

    def powered(self: Family, power: float) -> Family:
        return self

    def slopes(self, v: Tensor, ops: Ops = NUMPY) -> None:
        return None

    def mean_slopes(self, x: Tensor, ops: Ops = NUMPY) -> None:
        return None

    def __tf_flatten__(self) -> tuple[tuple[object, ...], tuple[()]]:
        return tuple(getattr(self, field.name) for field in fields(self)), ()

    @classmethod
    def __tf_unflatten__(cls: type[Family], metadata: tuple[object, ...], components: tuple[()]) -> Family:
        return cls(*metadata)


@dataclass(frozen=True)
class Bernoulli(Discrete):
    """Bits: v in {0, 1}, m = 1. P(v = 1 | h) = sigmoid(x), log Z(x) = log(1 + exp(x))."""

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        return check_binary(rows, n_v=n_v, name=name)

    def stored(self, rows: Tensor) -> Array:
        return np.asarray(rows).astype(np.uint8)

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        mean = np.clip(np.asarray(rows).mean(axis=0, dtype=np.float64), clip, 1 - clip)
        return np.log(mean) - np.log1p(-mean)

    def log_normaliser(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        return ops.sum(ops.softplus(x))

    def mean(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        return ops.sigmoid(x)

    def variance(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        # p (1 - p), where 1 - p would lose its digits at large fields
        return ops.sigmoid(x) * ops.sigmoid(-x)

    def num_noise(self, n_v: int) -> int:
        return n_v

    def draw(self, x: Tensor, noise: Tensor, ops: Ops = NUMPY) -> Tensor:
        return ops.cast(noise < ops.sigmoid(x), x)

    def num_states(self, n_v: int) -> float:
        # As a float, which ends at 2^1024.
        return 2.0 ** min(n_v, 1000)

    def states(self, n_v: int, start: int, stop: int) -> Array:
        return binary_vectors(n_v, start, stop)

    def describe(self) -> Description:
        return {"family": "bernoulli"}


@dataclass(frozen=True)
class Spin(Discrete):
    """Signs: v in {-1, 1}, m = 1. P(v = 1 | h) = sigmoid(2 x), log Z(x) = log(exp(x) + exp(-x))."""

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        array = check_numbers(rows, n_v=n_v, name=name)
        if (wrong := np.abs(array) != 1).any():
            row, column = np.argwhere(wrong)[0]
            raise ValueError(
                f"{name} must be -1 or 1 everywhere, got {array[row, column]} in row {row}, column {column}; 2 x - 1 "
                "makes signs of bits x."
            )
        return array

    def stored(self, rows: Tensor) -> Array:
        return np.asarray(rows).astype(np.int8)

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        # P(1) = sigmoid(2 x): half of the log odds.
        return 0.5 * Bernoulli().biases(np.asarray(rows) > 0, clip=clip)

    def log_normaliser(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        # log(exp(x) + exp(-x)), which does not overflow.
        return ops.sum(ops.softplus(2.0 * x) - x)

    def mean(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        return 2.0 * ops.sigmoid(2.0 * x) - 1.0

    def variance(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        return 4.0 * ops.sigmoid(2.0 * x) * ops.sigmoid(-2.0 * x)

    def num_noise(self, n_v: int) -> int:
        return n_v

    def draw(self, x: Tensor, noise: Tensor, ops: Ops = NUMPY) -> Tensor:
        return 2.0 * ops.cast(noise < ops.sigmoid(2.0 * x), x) - 1.0

    def num_states(self, n_v: int) -> float:
        # As a float, which ends at 2^1024.
        return 2.0 ** min(n_v, 1000)

    def states(self, n_v: int, start: int, stop: int) -> Array:
        return 2.0 * binary_vectors(n_v, start, stop) - 1.0

    def describe(self) -> Description:
        return {"family": "spin"}


class Numbers:
    """What families of numbers have in common: own parameters [n] as their fields, and last whether they are learnt."""

    is_learnt: bool

    def stored(self, rows: Tensor) -> Array:
        return np.asarray(rows).astype(np.float32)

    def num_states(self, n_v: int) -> float:
        return math.inf

    def states(self, n_v: int, start: int, stop: int) -> Array:
        raise ValueError(
            f"{type(self).__name__} units have no states to enumerate; enumerate those of the other layer."
        )

    @property
    def num_own(self) -> int:
        return sum(int(part.shape[0]) for part in self.__tf_flatten__()[1]) if self.is_learnt else 0

    def describe(self) -> Description:
        return {"family": type(self).__name__.lower(), "is_learnt": self.is_learnt}

    def __tf_flatten__(self) -> tuple[tuple[bool], tuple[Tensor, ...]]:
        return (self.is_learnt,), tuple(value for name, value in vars(self).items() if name != "is_learnt")

    @classmethod
    def __tf_unflatten__(cls: type[Number], metadata: tuple[bool], components: tuple[Tensor, ...]) -> Number:
        new: Callable[..., Number] = cls
        return new(*components, *metadata)


@dataclass(frozen=True, eq=False)
class Gaussian(Numbers):
    """Numbers: m(v) = exp(-v' diag(precision) v / 2), so that v given h is normal.

    Its mean is x / precision and its variance 1 / precision. With few hidden units the RBM is a mixture of 2^n_h
    Gaussians of one diagonal covariance. Best for columns of mean 0 and deviation 1.

    :param precision: [n_v], positive.
    :param is_learnt: whether training moves the precisions, by the gradient in their logarithms.
    """

    precision: Tensor
    is_learnt: bool = False

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        return check_numbers(rows, n_v=self.precision.shape[0] if n_v is None else n_v, name=name)

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        # The mean of v is b / precision.
        return np.asarray(self.precision, np.float64) * np.asarray(rows).mean(axis=0, dtype=np.float64)

    def log_normaliser(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        precision = ops.cast(self.precision, x)
        # The integral of exp(x v - precision v^2 / 2).
        return 0.5 * ops.sum(np.log(2 * np.pi) - ops.log(precision) + x * x / precision)

    def mean(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        return x / ops.cast(self.precision, x)

    def variance(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        return 0.0 * x + 1.0 / ops.cast(self.precision, x)

    def log_measure(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        return -0.5 * ops.sum(ops.cast(self.precision, v) * v * v)

    def num_noise(self, n_v: int) -> int:
        return n_v

    def draw(self, x: Tensor, noise: Tensor, ops: Ops = NUMPY) -> Tensor:
        """By the inverse of the normal distribution function; numbers below 2^-25 count as this."""
        precision = ops.cast(self.precision, x)
        least = ops.cast(np.float64(2.0**-25), x)
        # The mean, and a standard normal number times the deviation.
        return x / precision + ops.ndtri(ops.where(noise < least, least, noise)) / ops.sqrt(precision)

    def highest_log_p(self, n_v: int) -> float:
        """Of the density: p(v | h) is at most that at its mean."""
        return 0.5 * float(np.sum(np.log(np.asarray(self.precision, np.float64) / (2 * np.pi))))

    def moved(self, change: Tensor, ops: Ops = NUMPY) -> Gaussian:
        """With precisions after a step in their logarithms."""
        # A step in the logarithm, so that precisions stay positive.
        return replace(self, precision=self.precision * ops.exp(change)) if self.is_learnt else self

    def powered(self, power: float) -> Gaussian:
        return replace(self, precision=power * self.precision)

    def slopes(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        """d log q~ / d log precision of rows, if they are learnt: [..., n_v] to [..., n_v]."""
        # Of m(v) alone: log q~ has the precisions nowhere else.
        return -0.5 * self.precision * v * v if self.is_learnt else None

    def mean_slopes(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        # -precision E[v^2] / 2, where E[v^2] = 1 / precision + (x / precision)^2.
        return -0.5 * (1.0 + x * x / ops.cast(self.precision, x))
