"""Draws of Gaussian-process priors as functions, by random Fourier features (Rahimi and Recht 2007).

A stationary kernel `k(x, x') = variance kappa((x - x') / lengthscales)` with `kappa(0) = 1` is the characteristic
function of a probability density, the spectral density of `kappa` (Bochner). With frequencies drawn from it

    g(x) = sqrt(variance / F) sum_f  a_f cos(omega_f' x) + b_f sin(omega_f' x),   a_f, b_f ~ N(0, 1)

has the covariance k(x, x') on average over the frequencies, and the variance k(x, x) with any. Each function has
frequencies of its own, so the covariance of draws is exact for every F; with more features a function looks more like a
draw of the GP itself. The frequencies are points of a Sobol sequence, shifted at random (Cranley and Patterson 1976),
through the inverse of the distribution function: each has the right distribution, and together they fill it evenly.

| kernel                     | frequencies, before the division by the lengthscales                    |
|----------------------------|-------------------------------------------------------------------------|
| SquaredExponential         | N(0, I)                                                                 |
| Matern12, 32, 52 (nu)      | N(0, I) / sqrt(Gamma(nu, nu)): Student's t of 2 nu degrees of freedom   |
| Exponential                | half of those of Matern12                                               |
| RationalQuadratic          | N(0, I) sqrt(Gamma(alpha, alpha))                                       |
| Cosine                     | 2 pi                                                                    |
| products of these          | sums of theirs                                                          |

Sums add functions. Linear and Constant kernels have exact draws, White is noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import kernels
from gpflow.kernels import Kernel

from ..model.quadrature import sobol_points

__all__ = ["PriorFunctions", "Term", "draw_prior", "terms_of"]

#: Sobol points for frequencies: [count, dim] of (dim, count, bits).
_known_points = functools.lru_cache(maxsize=32)(sobol_points)


class Term(NamedTuple):
    """One summand of a kernel: `variance` times a product of stationary kernels of variance 1.

    :ivar variance: [], or of a linear kernel [] or [D].
    :ivar factors: the stationary kernels; none for a constant.
    :ivar is_white: whether it is 0 between rows.
    :ivar linear: the linear kernel that the term is, or None.
    """

    variance: tf.Tensor
    factors: tuple[Kernel, ...] = ()
    is_white: bool = False
    linear: Kernel | None = None


def terms_of(kernel: Kernel) -> list[Term]:
    """The kernel as a sum of terms.

    :raises ValueError: if a part of it has no spectral density that is known here, naming it.
    """
    # Kernels that are a term of their own.
    if type(kernel) in _SPECTRAL:
        return [Term(tf.convert_to_tensor(kernel.variance), (kernel,))]
    if type(kernel) in (kernels.White, kernels.Constant):
        return [Term(tf.convert_to_tensor(kernel.variance), is_white=type(kernel) is kernels.White)]
    if type(kernel) is kernels.Linear:
        return [Term(tf.convert_to_tensor(kernel.variance), linear=kernel)]
    # Sums are more terms; of products each term of one factor meets each of the other.
    if type(kernel) is kernels.Sum:
        return [term for part in kernel.kernels for term in terms_of(part)]
    if type(kernel) is kernels.Product:
        parts = [terms_of(part) for part in kernel.kernels]
        return functools.reduce(lambda left, right: [_product(a, b) for a in left for b in right], parts)
    names = ", ".join(sorted(kind.__name__ for kind in _SPECTRAL))
    raise ValueError(
        f"functions can be drawn for the stationary kernels {names}, for Linear, Constant and White, and for sums and "
        f"products of them, got {type(kernel).__name__}; use predict_f_samples, whose draws are joint over given rows."
    )


@dataclass(frozen=True, eq=False)
class PriorFunctions:
    """S draws of L functions: `X slopes + constants + sum over terms of cos(X omega') a + sin(X omega') b`.

    :ivar frequencies: omega of each term, [S, F, D].
    :ivar cosines: a, [S, F, L].
    :ivar sines: b, [S, F, L].
    :ivar slopes: [S, D, L], or None.
    :ivar constants: [S, 1, L], or None.
    :ivar noise_variance: of the kernel's White terms, [].
    """

    frequencies: tuple[tf.Tensor, ...]
    cosines: tuple[tf.Tensor, ...]
    sines: tuple[tf.Tensor, ...]
    slopes: tf.Tensor | None
    constants: tf.Tensor | None
    noise_variance: tf.Tensor

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """[N, D], or [S, N, D] for inputs of each function, -> [S, N, L], without the noise."""
        # Stationary terms, linear ones, and constants.
        parts = []
        for omega, a, b in zip(self.frequencies, self.cosines, self.sines, strict=True):
            cosines, sines = _cos_and_sin(tf.matmul(X, omega, transpose_b=True))
            parts += [tf.matmul(cosines, a), tf.matmul(sines, b)]
        if self.slopes is not None:
            parts.append(tf.matmul(X, self.slopes))
        if self.constants is not None:
            shape = tf.concat([tf.shape(self.constants)[:1], tf.shape(X)[-2:-1], [1]], axis=0)
            parts.append(self.constants + tf.zeros(shape, X.dtype))
        return tf.add_n(parts)


def draw_prior(
    kernel: Kernel, input_dim: int, num_functions: int, num_outputs: int, num_features: int, seed: tf.Tensor
) -> PriorFunctions:
    """Draws from GP(0, kernel), a pure function of the seed.

    :param input_dim: columns of the inputs, D.
    :param num_functions: how many functions, S.
    :param num_outputs: L, independent given the frequencies.
    :param num_features: 2 F, of each stationary term.
    :param seed: int32 [2].
    :raises ValueError: if functions of the kernel cannot be drawn, naming it.
    """
    terms = terms_of(kernel)
    S = num_functions
    F = num_features // 2
    dtype = terms[0].variance.dtype
    frequencies = []
    cosines = []
    sines = []
    slopes = []
    constants = []
    for i, term in enumerate(terms):
        seeds = [tf.random.fold_in(tf.random.fold_in(seed, i), j) for j in range(3)]

        def normal(rows: int, seed: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
            return scale * tf.random.stateless_normal([S, rows, num_outputs], seed, dtype=dtype)

        if term.is_white:
            continue  # noise, not a function
        if term.linear is not None:
            # A linear kernel, x' V x: slopes from N(0, V).
            embed = _embedding(term.linear, input_dim, dtype)  # [d, D]
            scale = tf.sqrt(tf.linalg.matvec(embed, tf.broadcast_to(term.variance, [embed.shape[0]]), transpose_a=True))
            slopes.append(normal(input_dim, seeds[0], scale[:, None]))
        elif not term.factors:
            constants.append(normal(1, seeds[0], tf.sqrt(term.variance)))
        else:
            # A stationary one: F cosines and F sines at frequencies from its spectral density.
            frequencies.append(_frequencies(term.factors, input_dim, S, F, seeds[2], dtype))
            scale = tf.sqrt(term.variance / F)
            cosines.append(normal(F, seeds[0], scale))
            sines.append(normal(F, seeds[1], scale))
    # Of White alone the function is 0, but for its noise.
    if not (frequencies or slopes or constants):
        constants.append(tf.zeros([S, 1, num_outputs], dtype))
    noise = sum((term.variance for term in terms if term.is_white), tf.zeros([], dtype))
    linear, constant = (tf.add_n(parts) if parts else None for parts in (slopes, constants))
    return PriorFunctions(tuple(frequencies), tuple(cosines), tuple(sines), linear, constant, noise)


# Private.


def _product(left: Term, right: Term) -> Term:
    # A constant times a linear kernel is one; a product with a stationary one has no draws that are exact.
    has_linear = left.linear is not None or right.linear is not None
    if has_linear and (left.factors or right.factors or (left.linear is not None and right.linear is not None)):
        raise ValueError(
            "functions can be drawn for products of stationary kernels, got a product with Linear; use a sum, or "
            "predict_f_samples, whose draws are joint over given rows."
        )
    is_white = left.is_white or right.is_white
    if is_white and has_linear:
        raise ValueError("functions can be drawn for noise of one variance, got a product of Linear and White.")
    linear = left.linear if right.linear is None else right.linear
    return Term(left.variance * right.variance, left.factors + right.factors, is_white, linear)


@tf.custom_gradient
def _cos_and_sin(phase: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., tf.Tensor]]:
    """Both, with a gradient that uses them instead of computing them again."""
    cosines = tf.cos(phase)
    sines = tf.sin(phase)
    return (cosines, sines), lambda d_cos, d_sin: cosines * d_sin - sines * d_cos


def _frequencies(
    factors: tuple[Kernel, ...], input_dim: int, num_functions: int, count: int, seed: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """Frequencies [S, F, D] of a product of stationary kernels: the sums of theirs."""
    embeddings = [_embedding(kernel, input_dim, dtype) for kernel in factors]
    widths = [int(embedding.shape[0]) + 1 for embedding in embeddings]
    # Sobol points, moved for each function; a kernel of d inputs takes d + 1 columns.
    points = tf.constant(_known_points(sum(widths), count, 30))
    shifts = tf.random.stateless_uniform([num_functions, 1, sum(widths)], seed, dtype=tf.float64)
    uniform = tf.clip_by_value(tf.math.floormod(points + shifts, 1.0), 2.0**-33, 1.0 - 2.0**-33)
    parts = []
    for kernel, embedding, columns in zip(factors, embeddings, tf.split(uniform, widths, axis=-1), strict=True):
        omega = _SPECTRAL[type(kernel)](kernel, tf.math.ndtri(columns[..., :-1]), columns[..., -1:])
        parts.append(tf.matmul(tf.cast(omega, dtype) / kernel.lengthscales, embedding))
    return tf.add_n(parts)


def _embedding(kernel: Kernel, input_dim: int, dtype: tf.DType) -> tf.Tensor:
    """Rows of the identity: which of the D columns the kernel reads, [d, D]."""
    columns = np.arange(input_dim)[kernel.active_dims]
    return tf.constant(np.eye(input_dim)[columns], dtype)


def _gamma(shape: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Gamma variables of mean 1."""
    shape = tf.cast(shape, uniform.dtype)
    return tfp.math.igammainv(shape, uniform) / shape


def _squared_exponential(kernel: Kernel, normal: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    return normal


def _matern(nu: float, factor: float = 1.0) -> Callable[[Kernel, tf.Tensor, tf.Tensor], tf.Tensor]:
    return lambda kernel, normal, uniform: factor * normal * tf.math.rsqrt(_gamma(nu, uniform))


def _rational_quadratic(kernel: kernels.RationalQuadratic, normal: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    return normal * tf.sqrt(_gamma(kernel.alpha, uniform))


def _cosine(kernel: Kernel, normal: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    return tf.fill(tf.shape(normal), tf.constant(2.0 * math.pi, normal.dtype))


#: Of each kernel, frequencies from standard-normal [S, F, d] and uniform [S, F, 1] numbers. Exact types only: a
#: subclass may be another function.
_SPECTRAL: dict[type[Kernel], Callable[[Any, tf.Tensor, tf.Tensor], tf.Tensor]] = {
    kernels.SquaredExponential: _squared_exponential,
    kernels.Matern12: _matern(0.5),
    kernels.Matern32: _matern(1.5),
    kernels.Matern52: _matern(2.5),
    kernels.Exponential: _matern(0.5, factor=0.5),
    kernels.RationalQuadratic: _rational_quadratic,
    kernels.Cosine: _cosine,
}
