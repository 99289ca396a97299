# ruff: noqa: D102 (what the methods of a family are is said in `Visible`)
"""Families of visible units: what a row of an RBM may be, and how it is distributed given its field.

Every family has the energy of an RBM of bits, and a measure m of its own on the rows v that it allows:

    q~_beta(v) = m(v) exp(b'v) prod_j (1 + exp(beta a_j)),        a = W v + c.

Given the hidden units, p(v | h) = m(v) exp(x'v) / Z(x) with the field x = beta W'h + b. Swaps and bridges depend on the
hidden side alone, so that a family is the measure, its log-normaliser log Z(x) = log sum_v m(v) exp(x'v), its mean and
its draws. log Z of the RBM at beta = 0 is log Z(b) + n_h log 2.

Families are frozen values. Their formulas are written once, for arrays in NumPy and, with the functions of
`rbm_tracking.rbm.TENSORS`, for tensors; this module needs no TensorFlow. In nested structures of TensorFlow a family is
static, except for the precisions of :class:`Gaussian`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from rbm_tracking.checks import check_binary, check_numbers

__all__ = ["NUMPY", "Bernoulli", "Gaussian", "Ops", "Softmax", "Spin", "Visible", "binary_vectors"]
__all__ += ["from_description"]

Array = NDArray[Any]


class Ops(NamedTuple):
    """The functions that formulas need, on arrays of NumPy or on tensors; sums and the like are over the last axis."""

    softplus: Callable[[Any], Any]
    sigmoid: Callable[[Any], Any]
    softmax: Callable[[Any], Any]
    logsumexp: Callable[[Any], Any]
    sum: Callable[[Any], Any]
    cumsum: Callable[[Any], Any]
    take: Callable[[Any, Array], Any]  # of columns
    join: Callable[[list[Any]], Any]  # one after the other in the last axis
    flatten: Callable[[Any], Any]  # the last two axes to one
    full: Callable[[Any, float], Any]  # a last axis of one entry, for all of the others of x
    where: Callable[[Any, Any, Any], Any]
    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    ndtri: Callable[[Any], Any]
    cast: Callable[[Any, Any], Any]  # to the type of the second one


NUMPY = Ops(
    softplus=lambda x: np.logaddexp(0.0, x),
    sigmoid=special.expit,
    softmax=functools.partial(special.softmax, axis=-1),
    logsumexp=functools.partial(special.logsumexp, axis=-1),
    sum=functools.partial(np.sum, axis=-1),
    cumsum=functools.partial(np.cumsum, axis=-1),
    take=functools.partial(np.take, axis=-1),
    join=functools.partial(np.concatenate, axis=-1),
    flatten=lambda x: x.reshape(*x.shape[:-2], -1),
    full=lambda x, value: np.full((*x.shape[:-1], 1), value),
    where=np.where,
    exp=np.exp,
    log=np.log,
    sqrt=np.sqrt,
    ndtri=special.ndtri,
    cast=lambda x, like: np.asarray(x, like.dtype),
)


def binary_vectors(n: int, start: int = 0, stop: int | None = None) -> Array:
    """States `start` to `stop` of {0, 1}^n, in binary counting, [stop - start, n]."""
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

    def stored(self, rows: Any) -> Array:
        """Rows as the smallest type that holds them."""
        ...

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        """b of the best model without weights of checked rows, [n_v], every probability at least `clip`."""
        ...

    def log_normaliser(self, x: Any, ops: Ops = NUMPY) -> Any:
        """log Z(x) of all units: [..., n_v] to [...]."""
        ...

    def mean(self, x: Any, ops: Ops = NUMPY) -> Any:
        """E[v] given the field."""
        ...

    def log_measure(self, v: Any, ops: Ops = NUMPY) -> Any:
        """log m(v) of allowed rows: [..., n_v] to [...]; 0.0 where m is 1."""
        ...

    def num_noise(self, n_v: int) -> int:
        """How many uniform numbers a draw needs."""
        ...

    def draw(self, x: Any, noise: Any, ops: Ops = NUMPY) -> Any:
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

    def moved(self, difference: Any, rate: Any, ops: Ops = NUMPY) -> Visible:
        """The family after a step up the gradient of its own parameters; itself where it has none.

        :param difference: E[v^2] of the data less that of the model, [n_v]. :param rate: learning rate.
        """
        ...

    def slopes(self, v: Any) -> Any:
        """d log q~ / d own parameters of rows, [..., n_v] to [..., K]; None where there are none."""
        ...

    def describe(self) -> dict[str, Any]:
        """What :func:`from_description` needs, besides the precisions."""
        ...


@dataclass(frozen=True)
class Bernoulli:
    """Bits: v in {0, 1}, m = 1. P(v = 1 | h) = sigmoid(x), log Z(x) = log(1 + exp(x))."""

    is_learnt = False

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        return check_binary(rows, n_v=n_v, name=name)

    def stored(self, rows: Any) -> Array:
        return np.asarray(rows).astype(np.uint8)

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        mean = np.clip(np.asarray(rows).mean(axis=0, dtype=np.float64), clip, 1 - clip)
        return np.log(mean) - np.log1p(-mean)

    def log_normaliser(self, x: Any, ops: Ops = NUMPY) -> Any:
        return ops.sum(ops.softplus(x))

    def mean(self, x: Any, ops: Ops = NUMPY) -> Any:
        return ops.sigmoid(x)

    def log_measure(self, v: Any, ops: Ops = NUMPY) -> Any:
        return 0.0

    def num_noise(self, n_v: int) -> int:
        return n_v

    def draw(self, x: Any, noise: Any, ops: Ops = NUMPY) -> Any:
        return ops.cast(noise < ops.sigmoid(x), x)

    def num_states(self, n_v: int) -> float:
        return 2.0 ** min(n_v, 1000)

    def states(self, n_v: int, start: int, stop: int) -> Array:
        return binary_vectors(n_v, start, stop)

    def highest_log_p(self, n_v: int) -> float:
        return 0.0

    def moved(self, difference: Any, rate: Any, ops: Ops = NUMPY) -> Bernoulli:
        return self

    def slopes(self, v: Any) -> None:
        return None

    def describe(self) -> dict[str, Any]:
        return {"family": "bernoulli"}

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (), ()

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[Any, ...], components: tuple[Any, ...]) -> Bernoulli:
        return cls()


@dataclass(frozen=True)
class Spin:
    """Signs: v in {-1, 1}, m = 1. P(v = 1 | h) = sigmoid(2 x), log Z(x) = log(exp(x) + exp(-x))."""

    is_learnt = False

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        array = check_numbers(rows, n_v=n_v, name=name)
        if (wrong := np.abs(array) != 1).any():
            row, column = np.argwhere(wrong)[0]
            raise ValueError(
                f"{name} must be -1 or 1 everywhere, got {array[row, column]} in row {row}, column {column}; 2 x - 1 "
                "makes signs of bits x."
            )
        return array

    def stored(self, rows: Any) -> Array:
        return np.asarray(rows).astype(np.int8)

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        return 0.5 * Bernoulli().biases(np.asarray(rows) > 0, clip=clip)

    def log_normaliser(self, x: Any, ops: Ops = NUMPY) -> Any:
        return ops.sum(ops.softplus(2.0 * x) - x)

    def mean(self, x: Any, ops: Ops = NUMPY) -> Any:
        return 2.0 * ops.sigmoid(2.0 * x) - 1.0

    def log_measure(self, v: Any, ops: Ops = NUMPY) -> Any:
        return 0.0

    def num_noise(self, n_v: int) -> int:
        return n_v

    def draw(self, x: Any, noise: Any, ops: Ops = NUMPY) -> Any:
        return 2.0 * ops.cast(noise < ops.sigmoid(2.0 * x), x) - 1.0

    def num_states(self, n_v: int) -> float:
        return 2.0 ** min(n_v, 1000)

    def states(self, n_v: int, start: int, stop: int) -> Array:
        return 2.0 * binary_vectors(n_v, start, stop) - 1.0

    def highest_log_p(self, n_v: int) -> float:
        return 0.0

    def moved(self, difference: Any, rate: Any, ops: Ops = NUMPY) -> Spin:
        return self

    def slopes(self, v: Any) -> None:
        return None

    def describe(self) -> dict[str, Any]:
        return {"family": "spin"}

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (), ()

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[Any, ...], components: tuple[Any, ...]) -> Spin:
        return cls()


@dataclass(frozen=True)
class Softmax:
    """Categories (Potts units), one bit for each level: in each group of columns at most one is 1. m = 1 on such rows.

    log Z(x) of a group is the log of the sum of exp(x_k) over its columns k, and of 1 for none of them unless one of
    them has to be 1. Columns outside of the groups are bits.

    :param n_v: number of columns.
    :param groups: the columns of each group; no column is in two of them.
    :param is_required: for each group, whether exactly one of its columns is 1 in every row; () for none.
    :raises ValueError: if these do not fit each other.
    """

    n_v: int
    groups: tuple[tuple[int, ...], ...]
    is_required: tuple[bool, ...] = ()

    is_learnt = False

    def __post_init__(self) -> None:
        columns = [column for group in self.groups for column in group]
        if not self.groups or not all(self.groups):
            raise ValueError("softmax units need at least one group, each of at least one column, got an empty one.")
        if outside := [column for column in columns if not 0 <= column < self.n_v]:
            raise ValueError(f"groups must name columns from 0 to {self.n_v - 1}, got {outside[0]}.")
        if len(set(columns)) < len(columns):
            twice = next(column for i, column in enumerate(columns) if column in columns[:i])
            raise ValueError(f"a column can be in one group only, but column {twice} is in two places of the groups.")
        if self.is_required and len(self.is_required) != len(self.groups):
            raise ValueError(
                f"is_required must have an entry for each of {len(self.groups)} groups, got {len(self.is_required)}."
            )
        object.__setattr__(self, "is_required", self.is_required or (False,) * len(self.groups))

    @functools.cached_property
    def _options(self) -> NDArray[np.int64]:
        """Columns of the options of each group, [G, K]: `n_v` stands for none of them, `n_v` + 1 fills the rest."""
        sizes = [len(group) + (not required) for group, required in zip(self.groups, self.is_required, strict=True)]
        options = np.full((len(self.groups), max(sizes)), self.n_v + 1)
        for row, group, required in zip(options, self.groups, self.is_required, strict=True):
            row[: len(group)] = group
            if not required:
                row[len(group)] = self.n_v
        return options

    @functools.cached_property
    def _rest(self) -> NDArray[np.int64]:
        """Columns that are bits, [R]."""
        return np.setdiff1d(np.arange(self.n_v), self._options)

    @functools.cached_property
    def _place(self) -> NDArray[np.int64]:
        """Where each column is in the G K options, followed by the bits, [n_v]."""
        order = np.concatenate([self._options.ravel(), self._rest])
        place = np.full(self.n_v + 2, -1)
        place[order] = np.arange(len(order))
        return place[: self.n_v]

    def fields(self, x: Any, ops: Ops = NUMPY) -> Any:
        """x of the options of each group, [..., n_v] to [..., G, K]: 0 for no column, -inf where there is no option."""
        return ops.take(ops.join([x, ops.full(x, 0.0), ops.full(x, -np.inf)]), self._options)

    def _columns(self, options: Any, bits: Any, ops: Ops) -> Any:
        """[..., G, K] and [..., R] to [..., n_v]; bits are None if there are no columns of them."""
        flat = ops.flatten(options)
        return ops.take(flat if bits is None else ops.join([flat, bits]), self._place)

    def of_groups(self) -> Softmax:
        """The same family with every bit as a group of one column."""
        groups = (*self.groups, *((int(column),) for column in self._rest))
        return Softmax(self.n_v, groups, (*self.is_required, *(False for _ in self._rest)))

    def num_states(self, n_v: int) -> float:
        sizes = (len(group) + (not needed) for group, needed in zip(self.groups, self.is_required, strict=True))
        return math.prod(map(float, sizes)) * 2.0 ** min(len(self._rest), 1000)

    def states(self, n_v: int, start: int, stop: int) -> Array:
        whole = self.of_groups()
        states, index = np.zeros((stop - start, self.n_v)), np.arange(start, stop)
        for group, needed in zip(whole.groups, whole.is_required, strict=True):
            index, option = np.divmod(index, len(group) + (not needed))
            is_column = option < len(group)
            states[np.flatnonzero(is_column), np.array(group)[option[is_column]]] = 1.0
        return states

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        array = check_binary(rows, n_v=self.n_v if n_v is None else n_v, name=name)
        for group, required in zip(self.groups, self.is_required, strict=True):
            counts = array[:, group].sum(axis=1)
            if (wrong := (counts != 1) if required else (counts > 1)).any():
                row = int(np.argmax(wrong))
                raise ValueError(
                    f"{name} must have {'exactly' if required else 'at most'} one 1 in each group of columns, got "
                    f"{int(counts[row])} in row {row}, group {_shown(group)} ({int(wrong.sum())} such rows); leave the "
                    "group out, or name the right columns (--groups)."
                )
        return array

    def stored(self, rows: Any) -> Array:
        return np.asarray(rows).astype(np.uint8)

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        mean = np.asarray(rows).mean(axis=0, dtype=np.float64)
        b = Bernoulli().biases(rows, clip=clip)
        for group, required in zip(self.groups, self.is_required, strict=True):
            columns = list(group)
            log_p = np.log(np.maximum(mean[columns], clip))
            b[columns] = log_p - (log_p.mean() if required else np.log(max(1 - mean[columns].sum(), clip)))
        return b

    def log_normaliser(self, x: Any, ops: Ops = NUMPY) -> Any:
        of_groups = ops.sum(ops.logsumexp(self.fields(x, ops)))
        return of_groups + ops.sum(ops.softplus(ops.take(x, self._rest))) if len(self._rest) else of_groups

    def mean(self, x: Any, ops: Ops = NUMPY) -> Any:
        bits = ops.sigmoid(ops.take(x, self._rest)) if len(self._rest) else None
        return self._columns(ops.softmax(self.fields(x, ops)), bits, ops)

    def log_measure(self, v: Any, ops: Ops = NUMPY) -> Any:
        return 0.0

    def num_noise(self, n_v: int) -> int:
        return len(self.groups) + len(self._rest)

    def draw(self, x: Any, noise: Any, ops: Ops = NUMPY) -> Any:
        """One option of each group by the inverse of its distribution function: one, however sums are rounded."""
        num_groups, num_options = self._options.shape
        last = np.array([len(g) - required for g, required in zip(self.groups, self.is_required, strict=True)])
        is_end = np.arange(num_options) >= last[:, None]
        upper = ops.cumsum(ops.softmax(self.fields(x, ops)))
        upper = ops.where(is_end, ops.cast(np.float64(2.0), x), upper)  # the last option takes what is left
        of_groups = ops.take(noise, np.arange(num_groups)[:, None])
        chosen = ops.sum(ops.cast(upper <= of_groups, x))[..., None]
        options = ops.cast(chosen == ops.cast(np.arange(num_options), x), x)
        if not len(self._rest):
            return self._columns(options, None, ops)
        of_bits = ops.take(noise, num_groups + np.arange(len(self._rest)))
        return self._columns(options, ops.cast(of_bits < ops.sigmoid(ops.take(x, self._rest)), x), ops)

    def highest_log_p(self, n_v: int) -> float:
        return 0.0

    def moved(self, difference: Any, rate: Any, ops: Ops = NUMPY) -> Softmax:
        return self

    def slopes(self, v: Any) -> None:
        return None

    def describe(self) -> dict[str, Any]:
        groups = [[int(column) for column in group] for group in self.groups]
        return {
            "family": "softmax",
            "n_v": self.n_v,
            "groups": groups,
            "is_required": list(map(bool, self.is_required)),
        }

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (self.n_v, self.groups, self.is_required), ()

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[Any, ...], components: tuple[Any, ...]) -> Softmax:
        return cls(*metadata)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Numbers: m(v) = exp(-v' diag(precision) v / 2), so that v given h is normal.

    Its mean is x / precision and its variance 1 / precision. With few hidden units the RBM is a mixture of 2^n_h
    Gaussians of one diagonal covariance. Best for columns of mean 0 and deviation 1.

    :param precision: [n_v], positive.
    :param is_learnt: whether training moves the precisions, by the gradient in their logarithms.
    """

    precision: Any
    is_learnt: bool = False

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        return check_numbers(rows, n_v=self.precision.shape[0] if n_v is None else n_v, name=name)

    def stored(self, rows: Any) -> Array:
        return np.asarray(rows).astype(np.float32)

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        return np.asarray(self.precision, np.float64) * np.asarray(rows).mean(axis=0, dtype=np.float64)

    def log_normaliser(self, x: Any, ops: Ops = NUMPY) -> Any:
        precision = ops.cast(self.precision, x)
        return 0.5 * ops.sum(np.log(2 * np.pi) - ops.log(precision) + x * x / precision)

    def mean(self, x: Any, ops: Ops = NUMPY) -> Any:
        return x / ops.cast(self.precision, x)

    def log_measure(self, v: Any, ops: Ops = NUMPY) -> Any:
        return -0.5 * ops.sum(ops.cast(self.precision, v) * v * v)

    def num_noise(self, n_v: int) -> int:
        return n_v

    def draw(self, x: Any, noise: Any, ops: Ops = NUMPY) -> Any:
        """By the inverse of the normal distribution function; numbers below 2^-25 count as this."""
        precision = ops.cast(self.precision, x)
        least = ops.cast(np.float64(2.0**-25), x)
        return x / precision + ops.ndtri(ops.where(noise < least, least, noise)) / ops.sqrt(precision)

    def num_states(self, n_v: int) -> float:
        return math.inf

    def states(self, n_v: int, start: int, stop: int) -> Array:
        raise ValueError("Gaussian units have no states to enumerate; enumerate the hidden units.")

    def highest_log_p(self, n_v: int) -> float:
        """Of the density: p(v | h) is at most that at its mean."""
        return 0.5 * float(np.sum(np.log(np.asarray(self.precision, np.float64) / (2 * np.pi))))

    def moved(self, difference: Any, rate: Any, ops: Ops = NUMPY) -> Gaussian:
        """With precisions after a step of gradient ascent in their logarithms, whose slope is -v^2 precision / 2.

        :param difference: E[v^2] of the data less that of the model, [n_v].
        """
        return replace(self, precision=self.precision * ops.exp(-0.5 * rate * self.precision * difference))

    def slopes(self, v: Any) -> Any:
        """d log q~ / d log precision of rows, if they are learnt: [..., n_v] to [..., n_v]."""
        return -0.5 * self.precision * v * v if self.is_learnt else None

    def describe(self) -> dict[str, Any]:
        return {"family": "gaussian", "is_learnt": self.is_learnt}

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (self.is_learnt,), (self.precision,)

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[Any, ...], components: tuple[Any, ...]) -> Gaussian:
        return cls(components[0], metadata[0])


def from_description(description: Mapping[str, Any], precision: Any = None) -> Visible:
    """The family of :meth:`Visible.describe`; `precision` [n_v] is that of Gaussian units.

    :raises ValueError: if it is no such description.
    """
    try:
        match dict(description):
            case {"family": "bernoulli"}:
                return Bernoulli()
            case {"family": "spin"}:
                return Spin()
            case {"family": "softmax", "n_v": int(n_v), "groups": groups, "is_required": is_required}:
                columns = tuple(tuple(int(column) for column in group) for group in groups)
                return Softmax(n_v, columns, tuple(bool(required) for required in is_required))
            case {"family": "gaussian", "is_learnt": bool(is_learnt)} if precision is not None:
                return Gaussian(precision, is_learnt)
    except TypeError:
        pass
    raise ValueError(f"no family of visible units is described by {str(dict(description))[:200]}; save it again.")


def _shown(group: tuple[int, ...]) -> str:
    """Columns of a group, for errors."""
    is_block = len(group) > 2 and group == tuple(range(group[0], group[-1] + 1))
    return f"{group[0]}-{group[-1]}" if is_block else ",".join(map(str, group[:20])) + "..." * (len(group) > 20)
