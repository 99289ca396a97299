# ruff: noqa: D102 (what the methods of a family are is said in `Visible`)
"""Rectified units: numbers of one sign, or of both with a width of their own for each (Tubiana et al., 2019).

A ReLU unit u >= 0 has the measure exp(-g u^2 / 2); a dReLU unit any number u and the measure
exp(-g+ u^2 / 2 - d u) above 0 and exp(-g- u^2 / 2 + d u) below. With the integral of one half,

    G(x) = log int_0^inf exp(x s - s^2 / 2) ds = log(sqrt(2 pi) Phi(x)) + x^2 / 2,

that of a ReLU unit is log Z(x) = G(x / sqrt(g)) - log(g) / 2, and that of a dReLU unit the log of the sum of two such
terms, at x - d and at -x - d. d > 0 keeps units at 0, d < 0 away from it, so that they take one of two values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from rbm_tracking.model.checks import check_numbers
from rbm_tracking.model.visible import NUMPY, Numbers, Ops, Tensor

__all__ = ["DReLU", "ReLU"]

Array = np.ndarray

_FAR = 5.0  # below -5 the tail has a continued fraction
_DEPTH = 12
_LOG_WIDEST = 4.0  # bounds of log g and |d| in training
_LEAST_NOISE = 2.0**-25


def _tail(t: Tensor, ops: Ops) -> tuple[Tensor, Tensor]:
    """exp(-G(-t)) and the mean of s at x = -t, for t of 5 and more."""
    # The continued fraction of the normal tail, from its inner end.
    inner = t
    for k in range(_DEPTH, 1, -1):
        inner = t + k / inner
    return t + 1.0 / inner, 1.0 / inner


def _half(x: Tensor, ops: Ops) -> tuple[Tensor, Tensor]:
    """G(x) and its slope, the mean of s."""
    # The closed form; far down, where it cancels, the tail.
    near = ops.maximum(x, ops.cast(np.float64(-_FAR), x))
    log_z = 0.5 * near * near + ops.log(ops.erfc(-near * math.sqrt(0.5))) + 0.5 * math.log(math.pi / 2)
    is_far = x < -_FAR
    if ops is NUMPY and not np.any(is_far):
        return log_z, near + ops.exp(-log_z)
    inverse, mean = _tail(ops.maximum(-x, ops.cast(np.float64(_FAR), x)), ops)
    return ops.where(is_far, -ops.log(inverse), log_z), ops.where(is_far, mean, near + ops.exp(-log_z))


def _draw_half(x: Tensor, noise: Tensor, ops: Ops) -> Tensor:
    """s >= 0 of the density exp(x s - s^2 / 2), by the inverse of its distribution function."""
    least = ops.cast(np.float64(_LEAST_NOISE), x)
    u = ops.maximum(ops.cast(noise, x), least)
    near = ops.maximum(x, ops.cast(np.float64(-_FAR), x))
    # By the inverse of the normal distribution function, where that is exact enough.
    close = near - ops.ndtri(u * (0.5 * ops.erfc(-near * math.sqrt(0.5))))
    if ops is NUMPY and not np.any(x < -_FAR):
        return ops.maximum(close, ops.cast(np.float64(0.0), x))
    # Far down: a first guess, then Newton's method on the tail.
    t = ops.maximum(-x, ops.cast(np.float64(_FAR), x))
    log_u = ops.log(u)
    begin = _tail(t, ops)[0]
    s = -2.0 * log_u / (ops.sqrt(t * t - 2.0 * log_u) + t)
    for _ in range(2):  # Newton's method for the log of the probability to be beyond s
        here = _tail(t + s, ops)[0]
        s = s + (ops.log(begin / here) - (t + 0.5 * s) * s - log_u) / here
    return ops.maximum(ops.where(x < -_FAR, s, close), ops.cast(np.float64(0.0), x))


def _bounded(value: Tensor, ops: Ops) -> Tensor:
    most = ops.cast(np.float64(_LOG_WIDEST), value)
    return ops.minimum(ops.maximum(value, -most), most)


@dataclass(frozen=True, eq=False)
class ReLU(Numbers):
    """Numbers that are not negative, with the measure exp(-g u^2 / 2).

    :param log_precision: log g, [n].
    :param is_learnt: whether training moves it.
    """

    log_precision: Tensor
    is_learnt: bool = False

    @classmethod
    def of(cls, rows: Array, *, is_learnt: bool) -> ReLU:
        """Half normal distributions of the width of the columns of rows."""
        second = np.mean(np.square(rows, dtype=np.float64), axis=0)
        return cls(-np.log(np.maximum(second, 1e-12)).astype(np.float32), is_learnt)

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        array = check_numbers(rows, n_v=self.log_precision.shape[0] if n_v is None else n_v, name=name)
        if (array < 0).any():
            row, column = np.argwhere(array < 0)[0]
            raise ValueError(
                f"{name} must not be negative for relu units, got {array[row, column]} in row {row}, column {column}; "
                "drelu and gaussian units take both signs."
            )
        return array

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        return np.zeros(np.shape(rows)[1])

    def _scaled(self, x: Tensor, ops: Ops) -> tuple[Tensor, Tensor]:
        """x / sqrt(g), and 1 / sqrt(g)."""
        width = ops.exp(-0.5 * ops.cast(self.log_precision, x))
        return x * width, width

    def log_normaliser(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        scaled, width = self._scaled(x, ops)
        return ops.sum(_half(scaled, ops)[0] + ops.log(width))

    def mean(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        scaled, width = self._scaled(x, ops)
        return _half(scaled, ops)[1] * width

    def variance(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        scaled, width = self._scaled(x, ops)
        mean = _half(scaled, ops)[1]
        # By parts, E[s^2] = 1 + x E[s]; less the square of the mean.
        return ops.maximum(1.0 - mean * (mean - scaled), 0.0 * mean) * width * width

    def log_measure(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        return -0.5 * ops.sum(ops.exp(ops.cast(self.log_precision, v)) * v * v)

    def num_noise(self, n_v: int) -> int:
        return n_v

    def draw(self, x: Tensor, noise: Tensor, ops: Ops = NUMPY) -> Tensor:
        scaled, width = self._scaled(x, ops)
        return _draw_half(scaled, noise, ops) * width

    def highest_log_p(self, n_v: int) -> float:
        return math.inf  # the density has no bound: at a low field it is high near 0

    def slopes(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        return -0.5 * ops.exp(ops.cast(self.log_precision, v)) * v * v if self.is_learnt else None

    def mean_slopes(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        scaled, _ = self._scaled(x, ops)
        # -g E[u^2] / 2, where g E[u^2] = E[s^2] = 1 + x E[s].
        return -0.5 * (1.0 + scaled * _half(scaled, ops)[1])

    def moved(self, change: Tensor, ops: Ops = NUMPY) -> ReLU:
        return replace(self, log_precision=_bounded(self.log_precision + change, ops)) if self.is_learnt else self

    def powered(self, power: float) -> ReLU:
        return replace(self, log_precision=self.log_precision + math.log(power))


@dataclass(frozen=True, eq=False)
class DReLU(Numbers):
    """Numbers of both signs, each with a width of its own, and a threshold between them.

    :param log_plus: log g+, [n].
    :param log_minus: log g-, [n].
    :param gap: d, [n].
    :param is_learnt: whether training moves them.
    """

    log_plus: Tensor
    log_minus: Tensor
    gap: Tensor
    is_learnt: bool = True

    @classmethod
    def of(cls, rows: Array, *, is_learnt: bool) -> DReLU:
        """Two half normal distributions of the width of the columns of rows."""
        second = np.mean(np.square(rows, dtype=np.float64), axis=0)
        log_precision = -np.log(np.maximum(second, 1e-12)).astype(np.float32)
        return cls(log_precision, log_precision, np.zeros_like(log_precision), is_learnt)

    def check(self, rows: ArrayLike, *, n_v: int | None = None, name: str = "data") -> Array:
        return check_numbers(rows, n_v=self.gap.shape[0] if n_v is None else n_v, name=name)

    def biases(self, rows: ArrayLike, *, clip: float = 1e-5) -> Array:
        return np.zeros(np.shape(rows)[1])

    def _parts(self, x: Tensor, ops: Ops) -> tuple[Tensor, ...]:
        """Of plus, then of minus: log of the integral, mean of s, scaled field, width."""
        parts: list[Tensor] = []
        # The half below 0 is one above it with the opposite field.
        for sign, log_precision in ((1.0, self.log_plus), (-1.0, self.log_minus)):
            width = ops.exp(-0.5 * ops.cast(log_precision, x))
            scaled = (sign * x - ops.cast(self.gap, x)) * width
            log_z, mean = _half(scaled, ops)
            parts += [log_z + ops.log(width), mean, scaled, width]
        return tuple(parts)

    def log_normaliser(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        log_plus, _, _, _, log_minus, *_ = self._parts(x, ops)
        # The log of the sum of both integrals.
        return ops.sum(log_minus + ops.softplus(log_plus - log_minus))

    def mean(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        log_plus, m_plus, _, w_plus, log_minus, m_minus, _, w_minus = self._parts(x, ops)
        # p: the probability to be above 0.
        p = ops.sigmoid(log_plus - log_minus)
        return p * m_plus * w_plus - (1.0 - p) * m_minus * w_minus

    def variance(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        log_plus, m_plus, x_plus, w_plus, log_minus, m_minus, x_minus, w_minus = self._parts(x, ops)
        p = ops.sigmoid(log_plus - log_minus)
        mean = p * m_plus * w_plus - (1.0 - p) * m_minus * w_minus
        second = p * (1.0 + x_plus * m_plus) * w_plus**2 + (1.0 - p) * (1.0 + x_minus * m_minus) * w_minus**2
        return ops.maximum(second - mean * mean, 0.0 * mean)

    def log_measure(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        log_precision = ops.where(v > 0, ops.cast(self.log_plus, v) + 0.0 * v, ops.cast(self.log_minus, v) + 0.0 * v)
        return -ops.sum(0.5 * ops.exp(log_precision) * v * v + ops.cast(self.gap, v) * abs(v))

    def num_noise(self, n_v: int) -> int:
        return 2 * n_v

    def draw(self, x: Tensor, noise: Tensor, ops: Ops = NUMPY) -> Tensor:
        """The sign by one number of the noise, the size by another."""
        n = int(self.gap.shape[0])
        log_plus, _, x_plus, w_plus, log_minus, _, x_minus, w_minus = self._parts(x, ops)
        # The sign by the mass of each half, then the size within it.
        is_plus = ops.take(noise, np.arange(n)) < ops.sigmoid(log_plus - log_minus)
        size = _draw_half(ops.where(is_plus, x_plus, x_minus), ops.take(noise, np.arange(n, 2 * n)), ops)
        return ops.where(is_plus, size * w_plus, -size * w_minus)

    def highest_log_p(self, n_v: int) -> float:
        return math.inf

    def slopes(self, v: Tensor, ops: Ops = NUMPY) -> Tensor:
        if not self.is_learnt:
            return None
        none = 0.0 * v
        plus = ops.where(v > 0, -0.5 * ops.exp(ops.cast(self.log_plus, v)) * v * v, none)
        minus = ops.where(v > 0, none, -0.5 * ops.exp(ops.cast(self.log_minus, v)) * v * v)
        return ops.join([plus, minus, -abs(v)])

    def mean_slopes(self, x: Tensor, ops: Ops = NUMPY) -> Tensor:
        log_plus, m_plus, x_plus, w_plus, log_minus, m_minus, x_minus, w_minus = self._parts(x, ops)
        p = ops.sigmoid(log_plus - log_minus)
        plus = -0.5 * p * (1.0 + x_plus * m_plus)
        minus = -0.5 * (1.0 - p) * (1.0 + x_minus * m_minus)
        return ops.join([plus, minus, -p * m_plus * w_plus - (1.0 - p) * m_minus * w_minus])

    def moved(self, change: Tensor, ops: Ops = NUMPY) -> DReLU:
        if not self.is_learnt:
            return self
        n = int(self.gap.shape[0])
        plus, minus, gap = (
            _bounded(value + ops.take(change, np.arange(k * n, (k + 1) * n)), ops)
            for k, value in enumerate((self.log_plus, self.log_minus, self.gap))
        )
        return DReLU(plus, minus, gap, True)

    def powered(self, power: float) -> DReLU:
        more = math.log(power)
        return replace(self, log_plus=self.log_plus + more, log_minus=self.log_minus + more, gap=power * self.gap)
