"""Forward pass, Eqs. (4.1) and (4.2): means and variances of the inputs u of every layer, and means of its outputs v.

Weights W [n_in, n_out] are kept as columns of one neuron each, so v W is the input of a layer; the paper has W v. A
layer's fan-in K counts its bias, whose weight is N(b, 1) and whose input is 1.

The inputs of a layer are normal by the central limit theorem, Eq. (3.14): u ~ N(mu, Sigma). Sigma is taken as diagonal
(Sec. 3.4) by `layer_inputs`; `layer_covariance` and `sign_covariance` carry it in full (appendix B).

Layers of shared weights have the maps of `convolution` between them, `unfolded_rows` and `mean_pooled`; derivatives go
back by their adjoints, `folded` and `mean_unpooled`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from .convolution import Convolved, pooled, unfolded

if TYPE_CHECKING:
    from .architecture import Architecture

__all__ = [
    "Layer",
    "folded",
    "forward",
    "layer_covariance",
    "layer_inputs",
    "mean_pooled",
    "mean_unpooled",
    "product",
    "sign_covariance",
    "sign_mean",
    "signs",
    "unfolded_rows",
]


#: Variance of the posterior of a bias: that of its prior, N(0, 1), since Eq. (4.5) moves means only.
BIAS_VARIANCE = 1.0


def unfolded_rows(v: tf.Tensor, convolved: Convolved) -> tf.Tensor:
    """Images [B, n_in] as a row for each position, [B P, K]."""
    return unfolded(v, convolved, tf.reshape, tf.concat)


def folded(rows: tf.Tensor, convolved: Convolved) -> tf.Tensor:
    """The adjoint of `unfolded_rows`: each pixel's sum over the positions that it is an input of, [B, n_in]."""
    height, width = convolved.positions
    size = convolved.size
    channels = convolved.channels
    # What belongs to a pixel of the filter, put back to where that pixel lies at each position.
    parts = tf.split(tf.reshape(rows, [-1, height, width, convolved.fan_in]), size**2, axis=3)
    by_row = []
    for i in range(size):  # first along the width, so that fewer large images are made
        row = parts[i * size : (i + 1) * size]
        by_row.append(tf.add_n([tf.pad(row[j], [[0, 0], [0, 0], [j, size - 1 - j], [0, 0]]) for j in range(size)]))
    images = tf.add_n([tf.pad(by_row[i], [[0, 0], [i, size - 1 - i], [0, 0], [0, 0]]) for i in range(size)])
    return tf.reshape(images, [-1, convolved.height * convolved.width * channels])


def mean_pooled(values: tf.Tensor, convolved: Convolved) -> tf.Tensor:
    """Means over blocks of the outputs [B P, filters], as images [B, n_out]."""
    return pooled(values, convolved, tf.reshape, tf.reduce_mean)


def mean_unpooled(images: tf.Tensor, convolved: Convolved) -> tf.Tensor:
    """The adjoint of `mean_pooled`, [B P, filters]."""
    (height, width, filters) = convolved.image
    pool = convolved.pool
    # Each output of a block has 1 / pool^2 of the derivative of its mean.
    blocks = tf.reshape(images / pool**2, [-1, height, 1, width, 1, filters])
    rows = tf.broadcast_to(blocks, [tf.shape(blocks)[0], height, pool, width, pool, filters])
    return tf.reshape(rows, [-1, filters])


class Layer(NamedTuple):
    """One layer's part of a forward pass over B examples.

    Of a convolution, B stands for all positions of all examples.

    :ivar v: means of its inputs <v_(l-1)>, [B, n_in].
    :ivar mean: means of its weights <W_l>, [n_in, n_out].
    :ivar mu: means of u_l = (v W + bias) / sqrt(K), [B, n_out].
    :ivar sigma2: variances of u_l, [B, n_out].
    :ivar fan_in: how many inputs a unit has, K.
    :ivar convolved: what makes rows of positions of images, or None.
    """

    v: tf.Tensor
    mean: tf.Tensor
    mu: tf.Tensor
    sigma2: tf.Tensor
    fan_in: int
    convolved: Convolved | None = None


def sign_mean(mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
    """<v> = 2 Phi(mu / sigma) - 1, Eq. (4.1) right: mean of sign(u) under N(mu, sigma2)."""
    return tf.math.erf(mu * tf.math.rsqrt(2.0 * sigma2))


def signs(u: tf.Tensor) -> tf.Tensor:
    """The neurons of Eq. (2.1): -1 or +1; +1 at 0."""
    return tf.where(u >= 0, tf.ones_like(u), -tf.ones_like(u))


def layer_inputs(
    v: tf.Tensor,
    mean: tf.Tensor,
    var: tf.Tensor,
    b: tf.Tensor | None,
    *,
    fan_in: int,
    is_first: bool,
    v_var: tf.Tensor | None = None,
    for_xla: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """mu and sigma^2 of Eqs. (4.1) left and (4.2), [B, n_out] each.

    :param v: <v_(l-1)>, [B, n_in]: data for the first layer, dense or `SparseTensor`; means of signs for others.
    :param mean: <W>, [n_in, n_out].
    :param var: <W^2> - <W>^2, [n_in, n_out], or [] if it is the same for all.
    :param b: means of the biases, [n_out], or None without biases.
    :param fan_in: K; for rows of a sparse matrix, of which only the non-zero columns are given, larger than n_in.
    :param for_xla: sum as XLA does it fast for B = 1; of products of one row with a computed matrix it makes slow code.
    :param is_first: whether v is known (delta_(m,1) in Eq. (4.2)); else v^2 = 1 and v itself is random.
    :param v_var: variances of the inputs, [B, n_in], where they are neither known nor signs, as means of signs.

    Eq. (4.2) written with positive terms only: the first layer has sum v^2 var, the others
    sum <W^2> - <W>^2 v^2 = sum var + <W>^2 (1 - v^2), or with <v^2> = v^2 + v_var, sum <v^2> var + <W>^2 v_var.
    """
    # Eq. (4.1), left: mu before the bias and 1 / sqrt(K).
    mu = product(v, mean)
    v2 = tf.sparse.map_values(tf.square, v) if isinstance(v, tf.SparseTensor) else tf.square(v)
    if not var.shape.rank:
        var = var * tf.ones([mean.shape[0] or tf.shape(mean)[0], 1], mean.dtype)
    # Eq. (4.2), by what the inputs are: means of several signs, known numbers, or single signs, whose square is 1.
    if v_var is not None:
        sigma2 = tf.matmul(v2 + v_var, var) + tf.matmul(v_var, tf.square(mean))
    elif for_xla and var.shape[1] != 1:
        column = tf.transpose(v2)
        sigma2 = _sum_rows(column * var if is_first else var + (1.0 - column) * tf.square(mean))
    elif is_first:
        sigma2 = product(v2, var)
    else:
        sigma2 = tf.reduce_sum(var, axis=0) + tf.matmul(1.0 - v2, tf.square(mean))
    return _with_bias(mu, tf.broadcast_to(sigma2, tf.shape(mu)), b, fan_in)


def layer_covariance(v_cov: tf.Tensor, mean: tf.Tensor, var: tf.Tensor, *, fan_in: int, has_bias: bool) -> tf.Tensor:
    """Sigma of a layer behind signs with covariance `v_cov`, [B, n_out, n_out] (appendix B).

    :param v_cov: Cov(v_r, v_r') of the layer's inputs, [B, n_in, n_in].
    :param mean: <W>, [n_in, n_out].
    :param var: variances of W, [n_in, n_out] or [].

    Weights of different neurons are independent, so Cov(u_k, u_k') = sum over r, r' of M_rk v_cov_rr' M_r'k' / K, and
    u_k itself has sum over r of var_rk <v_r^2> + BIAS_VARIANCE more, with v_r^2 = 1.
    """
    # M' Cov(v) M: what the neurons of a layer have in common.
    shared = tf.einsum("rk,brs,sl->bkl", mean, v_cov, mean)
    # On the diagonal alone: the variances of a neuron's weights and bias.
    weight_variance = tf.reduce_sum(tf.broadcast_to(var, tf.shape(mean)), axis=0) + (BIAS_VARIANCE if has_bias else 0.0)
    return (shared + tf.linalg.diag(weight_variance)) / fan_in


def sign_covariance(mu: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
    """Cov(sign u_k, sign u_k') for u ~ N(mu, sigma), [B, n, n] (appendix B).

    :param mu: [B, n].
    :param sigma: covariances, [B, n, n].

    For a pair with means a, b in standard deviations and correlation rho, the covariance is
    (2 / pi) times the integral over theta from 0 to asin rho of exp(-(a^2 - 2 a b sin theta + b^2) / (2 cos^2 theta)),
    which has no cancellation. 24 Gauss-Legendre nodes: error below 1e-9 for |rho| <= 0.9, 1e-3 next to |rho| = 1.
    """
    n = mu.shape[-1]
    variance = tf.linalg.diag_part(sigma)
    # a and b are means in standard deviations; theta runs from 0 to asin rho.
    z = mu * tf.math.rsqrt(variance)
    rho = sigma * tf.math.rsqrt(variance)[..., :, None] * tf.math.rsqrt(variance)[..., None, :]
    off_diagonal = 1.0 - tf.eye(n, dtype=mu.dtype)
    angle = tf.math.asin(tf.clip_by_value(rho, -1.0, 1.0) * off_diagonal)
    a = z[..., :, None]
    b = z[..., None, :]
    # Gauss-Legendre quadrature of the integral over theta.
    nodes, weights = np.polynomial.legendre.leggauss(24)
    total = tf.zeros_like(rho)
    for node, weight in zip(nodes, weights, strict=True):
        theta = angle * (0.5 * (float(node) + 1.0))
        exponent = (tf.square(a - b) + 2.0 * a * b * (1.0 - tf.sin(theta))) / (2.0 * tf.square(tf.cos(theta)))
        total += float(weight) * tf.exp(-exponent)
    pairs = total * angle / math.pi  # (2 / pi) * (angle / 2) * total
    # A sign with itself: 1 - <v>^2.
    return tf.linalg.set_diag(pairs, 1.0 - tf.square(sign_mean(mu, variance)))


def forward(
    architecture: Architecture,
    X: tf.Tensor | tf.SparseTensor,
    means: Sequence[tf.Tensor],
    variances: Sequence[tf.Tensor],
    b: Sequence[tf.Tensor],
    *,
    for_xla: bool = False,
) -> list[Layer]:
    """All layers, in order, for B examples; with covariances (appendix B) O(B n^2 (n_in + nodes)) per layer.

    :param X: the data, [B, n_0].
    :param means: <W_l> of each layer, [n_(l-1), n_l].
    :param variances: of W_l.
    :param b: of each layer [n_l]; empty without biases.
    :param for_xla: see `layer_inputs`.
    """
    layers: list[Layer] = []
    v = X
    v_var = None
    v_cov = None
    biases = b or (None,) * len(means)
    shared = architecture.convolutions or (None,) * len(means)
    # Layer by layer: u by Eqs. (4.1) and (4.2), then <v> of its signs.
    for mean, var, bias, fan_in, convolved in zip(means, variances, biases, architecture.fan_ins, shared, strict=True):
        if convolved is not None:
            v, v_var = (part if part is None else unfolded_rows(part, convolved) for part in (v, v_var))
        mu, sigma2 = layer_inputs(v, mean, var, bias, fan_in=fan_in, is_first=not layers, v_var=v_var, for_xla=for_xla)
        # Appendix B: Sigma_l follows from Cov(v_(l-1)), and sigma2 is its diagonal.
        if architecture.full_covariance:
            if v_cov is None:  # the first layer: neurons share no random variable
                sigma = tf.linalg.diag(sigma2)
            else:
                sigma = layer_covariance(v_cov, mean, var, fan_in=fan_in, has_bias=bias is not None)
                sigma2 = tf.linalg.diag_part(sigma)
            if len(layers) + 1 < len(means):
                v_cov = sign_covariance(mu, sigma)
        layers.append(Layer(v, mean, mu, sigma2, fan_in, convolved))
        # Eq. (4.1), right: inputs of the next layer; pooled ones are means of signs, with a variance.
        v = sign_mean(mu, sigma2)
        v_var = None
        if convolved is not None:
            v_var = mean_pooled(1.0 - tf.square(v), convolved) / convolved.pool**2
            v = mean_pooled(v, convolved)
    return layers


def product(v: tf.Tensor | tf.SparseTensor, A: tf.Tensor, *, transpose_v: bool = False) -> tf.Tensor:
    """v A, or v' A; v may be sparse."""
    if isinstance(v, tf.SparseTensor):
        return tf.sparse.sparse_dense_matmul(v, A, adjoint_a=transpose_v)
    return tf.matmul(v, A, transpose_a=transpose_v)


def _sum_rows(A: tf.Tensor) -> tf.Tensor:
    """Column sums of A [n, m] as [1, m], in blocks that XLA's CPU compiler sums without storing A (up to 32 rows)."""
    num_rows = A.shape[0]
    size = max(32, -(-num_rows // 64))  # not more than 64 blocks
    return tf.add_n(
        [tf.reduce_sum(A[start : start + size], axis=0, keepdims=True) for start in range(0, num_rows, size)]
    )


def _with_bias(mu: tf.Tensor, sigma2: tf.Tensor, b: tf.Tensor | None, fan_in: int) -> tuple[tf.Tensor, tf.Tensor]:
    if b is not None:
        mu = mu + b
        sigma2 = sigma2 + BIAS_VARIANCE
    else:  # an example without any non-zero input has mu = sigma = 0: sign 0, not 0 / 0
        sigma2 = tf.maximum(sigma2, fan_in * np.finfo(mu.dtype.as_numpy_dtype).tiny)
    return mu / math.sqrt(fan_in), sigma2 / fan_in
