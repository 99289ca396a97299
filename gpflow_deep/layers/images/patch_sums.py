"""Covariances of weighted sums over patches: f(x) = sum_k w_k g(x[k]) with g ~ GP(0, k).

    cov(g(z), f(x)) = sum_k w_k k(z, x[k])                    `sum_covariances`
    var f(x)        = sum_kk' w_k w_k' k(x[k], x[k'])         `sum_variances`

For squared exponentials the K values of an image are an `exp` of one matrix product, in `dtype`, and are summed up
image by image in blocks that stay near the processor; gradients are written by hand. In float32 the relative error of a
sum is a few 1e-6: as long as no patch is farther than 100 lengthscales from the centre of Z. Beyond, exponents are
computed in float64. Other kernels go through GPflow, in the model's float type.
"""

from __future__ import annotations

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.kernels import Kernel, SquaredExponential

__all__ = ["sum_covariances", "sum_variances"]

#: Numbers in the array [M, images, K] of a block.
BLOCK_FLOATS = 2**20
MAX_BLOCKS = 128

#: The largest squared distance from the centre of Z, in lengthscales, at which exponents are computed in float32.
SQUARE_LIMIT = 1e4


@check_shapes("Z: [M, A]", "patches: [R, K, A]", "weights: [K]", "return: [M, R]")
def sum_covariances(kernel: Kernel, Z: tf.Tensor, patches: tf.Tensor, weights: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """sum_k w_k k(z_m, x_r[k]), in the float type of `weights`.

    :param dtype: what the [M, R, K] values are computed in, if the kernel is a squared exponential.
    """
    if type(kernel) is not SquaredExponential:
        R, K, A = tf.unstack(tf.shape(patches))
        values = kernel(Z, tf.reshape(patches, [R * K, A]))
        return tf.linalg.matvec(tf.reshape(values, [-1, R, K]), weights)
    # The exponent is [z / l^2, log variance - |z|^2 / 2] . [x, 1] - |x|^2 / 2.
    Z, patches, precisions, log_variance = _centred(kernel, Z, patches)
    z_square, x_square = (tf.linalg.matvec(tf.square(points), precisions) for points in (Z, patches))
    augmented_Z = tf.concat([Z * precisions, (log_variance - 0.5 * z_square)[:, None]], axis=-1)
    is_far = tf.maximum(tf.reduce_max(z_square), tf.reduce_max(x_square)) > SQUARE_LIMIT
    return _sums(augmented_Z, patches, -0.5 * x_square, weights, is_far, dtype)


@check_shapes("patches: [R, K, A]", "weights: [K]", "return: [R]")
def sum_variances(kernel: Kernel, patches: tf.Tensor, weights: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """sum_kk' w_k w_k' k(x_r[k], x_r[k']), in the float type of `weights`.

    :param dtype: as in `sum_covariances`, of the [R, K, K] values.
    """
    if type(kernel) is not SquaredExponential:
        values = kernel(patches, full_cov=True)
        return tf.linalg.matvec(tf.linalg.matvec(values, weights), weights)
    _, patches, precisions, log_variance = _centred(kernel, patches[0], patches)
    return _quadratic_sums(patches * tf.sqrt(precisions), weights, dtype) * tf.exp(log_variance)


def _centred(kernel: SquaredExponential, Z: tf.Tensor, patches: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Z and patches without their common centre, 1 / lengthscales^2 of each column, and the log variance."""
    # Distances do not depend on the centre, so nor do gradients; rounding is smaller around it.
    patches, Z = kernel.slice(patches, Z)
    centre = tf.stop_gradient(tf.reduce_mean(Z, axis=0))
    precisions = tf.broadcast_to(1.0 / tf.square(kernel.lengthscales), tf.shape(Z)[1:])
    return Z - centre, patches - centre, precisions, tf.math.log(kernel.variance)


def _sums(
    left: tf.Tensor, x: tf.Tensor, h: tf.Tensor, weights: tf.Tensor, is_far: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """sum_k w_k exp(left_m . [x_rk, 1] + h_rk), [M, R], for left [M, A + 1], x [R, K, A] and h [R, K].

    The gradient with respect to x is an operation of its own, which is left out where nobody asks for it.
    """
    K = x.shape[1]
    A = x.shape[2]
    sizes = _block_sizes(x.shape[0], left.shape[0] * K)

    @tf.custom_gradient
    def sums(left: tf.Tensor, x: tf.Tensor, h: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, object]:
        M = tf.shape(left)[0]
        w = tf.cast(weights, dtype)
        x_blocks = tf.split(x, sizes)
        h_blocks = tf.split(h, sizes)
        # E = exp(left . [x, 1, h]) of each block of images, and its weighted sums over patches.
        rights = [tf.reshape(_augmented(xs, hs), [-1, A + 2]) for xs, hs in zip(x_blocks, h_blocks, strict=True)]
        wide = tf.concat([left, tf.ones_like(left[:, :1])], axis=1)
        values = [_exponentials(wide, right, is_far, dtype) for right in rights]  # [M, r K]
        block_sums = [tf.reshape(tf.linalg.matvec(tf.reshape(E, [-1, K]), w), [M, -1]) for E in values]
        lows = [tf.cast(right[:, : A + 1], dtype) for right in rights]

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # With G = d/d sums:  d/d left = (G E) (w [x, 1]),  d/d x = w (G E)' left,  d/d h = w (G E)' 1.
            ones = tf.ones([1, M], dtype)
            low_left = tf.cast(left[:, :A], dtype)
            d_left = []
            d_x = []
            columns = []
            for G, E, low in zip(tf.split(tf.cast(upstream, dtype), sizes, axis=1), values, lows, strict=True):
                GE = tf.reshape(tf.reshape(E, [-1, K]) * tf.reshape(G, [-1, 1]), [M, -1])  # [M, r K]
                weighted = tf.reshape(tf.reshape(low, [-1, K, A + 1]) * w[:, None], [-1, A + 1])
                d_left.append(tf.matmul(GE, weighted))
                columns.append(tf.reshape(tf.matmul(ones, GE), [-1, K]))  # [r, K]
                d_x.append(tf.reshape(tf.matmul(GE, low_left, transpose_a=True), [-1, K, A]) * w[:, None])
            d_h = tf.concat(columns, axis=0)
            parts = tf.add_n(d_left), tf.concat(d_x, axis=0), d_h * w, tf.reduce_sum(d_h, axis=0)
            return tuple(tf.cast(part, left.dtype) for part in parts)

        return tf.cast(tf.concat(block_sums, axis=1), left.dtype), gradient

    return sums(left, x, h, weights)


def _exponentials(left: tf.Tensor, right: tf.Tensor, is_far: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """exp(left right'), in `dtype`; where points are far out, from exponents in the model's float type."""

    def computed(kind: tf.DType) -> tf.Tensor:
        return tf.matmul(tf.cast(left, kind), tf.cast(right, kind), transpose_b=True)

    if dtype == left.dtype:
        return tf.exp(computed(dtype))
    return tf.exp(tf.cond(is_far, lambda: tf.cast(computed(left.dtype), dtype), lambda: computed(dtype)))


def _quadratic_sums(x: tf.Tensor, weights: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """q_r = sum_kk' w_k w_k' exp(-|x_rk - x_rk'|^2 / 2), [R], for x [R, K, A].

    With E the exponentials and B = E (w [x, 1]): dq / dw = 2 B_1 and dq / dx_k = 2 w_k (B_x - B_1 x)_k, so that no E is
    kept.
    """
    sizes = _block_sizes(x.shape[0], x.shape[1] ** 2)

    @tf.custom_gradient
    def sums(x: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, object]:
        w = tf.cast(weights, dtype)
        is_far = tf.reduce_max(tf.reduce_sum(tf.square(x), axis=-1)) > SQUARE_LIMIT
        parts = [_products(block, w, is_far, dtype) for block in tf.split(x, sizes)]
        B_x, B_1 = (tf.concat(part, axis=0) for part in zip(*parts, strict=True))  # [R, K, A], [R, K]

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            g = 2.0 * upstream
            d_x = g[:, None, None] * weights[:, None] * (tf.cast(B_x, x.dtype) - tf.cast(B_1, x.dtype)[..., None] * x)
            return d_x, tf.linalg.matvec(tf.cast(B_1, x.dtype), g, transpose_a=True)

        return tf.cast(tf.linalg.matvec(B_1, w), x.dtype), gradient

    return sums(x, weights)


def _products(x: tf.Tensor, w: tf.Tensor, is_far: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """E (w x) [r, K, A] and E w [r, K]."""
    # E = exp([x, h, 1] . [x', 1, h']), whose exponents are -|x - x'|^2 / 2.
    h = -0.5 * tf.reduce_sum(tf.square(x), axis=-1)
    ones = tf.ones_like(x[..., :1])
    E = _exponentials(tf.concat([x, h[..., None], ones], axis=-1), _augmented(x, h), is_far, dtype)
    B = tf.matmul(E, tf.cast(tf.concat([x, ones], axis=-1), dtype) * w[:, None])
    return B[..., :-1], B[..., -1]


def _augmented(x: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
    """[x, 1, h]."""
    return tf.concat([x, tf.ones_like(x[..., :1]), h[..., None]], axis=-1)


def _block_sizes(num_images: int | None, floats_of_image: int) -> list[int]:
    """Images in each block; a single block where their number is not known while tracing."""
    if num_images is None:
        return [-1]
    count = min(MAX_BLOCKS, num_images, -(-num_images * floats_of_image // BLOCK_FLOATS))
    return [num_images // count + (i < num_images % count) for i in range(count)] if count else [0]
