"""Gaussian algebra of a layer: covariances of inducing outputs and points, their factors, moments, and draws, Eq. (15).

* Covariances: GPflow's, and faster for squared exponentials: `scaled_rbf` is one matrix product and one `exp`. A kernel
  and an inducing variable belong together; a layer has one such pair for all latent GPs, or one for each.
* Factors: `robust_cholesky` raises its jitter in powers of ten before it gives up, and then says why; `quadratic_form`
  is `a' S a` for many points and many outputs in one matrix product, with a hand-written gradient.
* Moments of independent latent GPs at some points: draws from them, and the covariances of a layer's outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.config import default_float, default_jitter
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    MultioutputInducingVariables,
    Multiscale,
)
from gpflow.kernels import Convolutional, Kernel, SquaredExponential
from gpflow.mean_functions import MeanFunction

from gpflow_deep_base.storage.limits import one_line

if TYPE_CHECKING:
    from .global_inducing import GlobalInducingLayer
    from .protocol import Layer
    from .svgp import SVGPLayer

__all__ = [
    "MAX_JITTER_FACTOR",
    "LatentOutputs",
    "LayerMoments",
    "add_diagonal",
    "by_rows",
    "check_kernel",
    "check_mean_function",
    "condition_number",
    "cross_covariance",
    "draw",
    "flat_points",
    "inducing_covariance",
    "input_dim_of",
    "jitter_of",
    "largest_square",
    "latent_inducing_variables",
    "mix",
    "no_factors",
    "no_kl",
    "outputs_covariance",
    "outputs_of",
    "prepend_certain",
    "quadratic_form",
    "robust_cholesky",
    "root_of_joint",
    "root_of_variance",
    "scaled_rbf",
]

#: The largest jitter that `robust_cholesky` tries, relative to the mean of the diagonal of its argument.
MAX_JITTER_FACTOR = 1e-1

#: `quadratic_form` works on blocks of columns whose [P, M, columns] temporaries have about this size.
BLOCK_BYTES = 4 * 2**20
MIN_BLOCK_COLUMNS = 256
MAX_BLOCKS = 64

#: Below this variance the slope of its root stays finite; float32 rounds away more than this.
SMALLEST_SMOOTH = 1e-12

#: What the first attempt to factorise a joint covariance of a draw adds, in roundings of its mean variance.
JOINT_ROUNDING = 100.0

#: Added to the joint covariance of a certain layer: its draws move by 1e-15, and slopes of its factor stay finite.
LEAST_JOINT = 1e-30


# Covariances.


def latent_inducing_variables(inducing: InducingVariables) -> tuple[InducingVariables, ...]:
    """The inducing variables of the latent GPs: one if shared, else L."""
    if isinstance(inducing, MultioutputInducingVariables):
        return tuple(inducing.inducing_variables)
    return (inducing,)


def input_dim_of(kernel: Kernel, inducing: InducingVariables) -> int | None:
    """The number of columns of X where kernel or inducing variable tell it: those of the image, or of Z."""
    if isinstance(kernel, Convolutional):
        return int(np.prod(kernel.image_shape)) * int(kernel.colour_channels)
    if type(inducing) in (InducingPoints, Multiscale):  # Z of a subclass may live elsewhere, as patches do
        return int(inducing.Z.shape[-1])
    return None


def check_kernel(kernel: Kernel) -> None:
    """Refuse what is no kernel, such as the class of one."""
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel must be one of gpflow.kernels, such as SquaredExponential(), got {kernel!r}.")


def check_mean_function(mean_function: MeanFunction, input_dim: int, output_dim: int) -> None:
    """Refuse a mean function whose values would be broadcast to more outputs than the layer has."""
    try:
        width = mean_function(tf.zeros([1, input_dim], default_float())).shape[-1]
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        raise ValueError(
            f"the mean function, {type(mean_function).__name__}, must take {input_dim} inputs: {one_line(error)}"
        ) from error
    if width not in (None, 1, output_dim):
        raise ValueError(
            f"the mean function must have 1 or the layer's {output_dim} outputs, got {type(mean_function).__name__} "
            f"with {width}."
        )


def inducing_covariance(inducing: InducingVariables, kernel: Kernel) -> tf.Tensor:
    """Kuu without jitter. In a float32 model, squared exponentials go through float64: of unscaled inputs, rounding
    would otherwise make Kuu indefinite."""
    if _is_rbf(inducing, kernel) and inducing.Z.dtype == tf.float32:
        Z = tf.convert_to_tensor(inducing.Z)
        return tf.cast(cross_covariance(inducing, kernel, Z, tf.float64), Z.dtype)
    return Kuu(inducing, kernel, jitter=0.0)


def cross_covariance(inducing: InducingVariables, kernel: Kernel, points: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """k(Z, points), [M, B], in `dtype`; squared exponentials by one product, other kernels by GPflow."""
    if _is_rbf(inducing, kernel):
        X, Z = kernel.slice(points, tf.convert_to_tensor(inducing.Z))
        parts = (Z, X, tf.convert_to_tensor(kernel.variance), tf.convert_to_tensor(kernel.lengthscales))
        return scaled_rbf(*(tf.cast(part, dtype) for part in parts))
    return tf.cast(Kuf(inducing, kernel, points), dtype)


def largest_square(inducing: InducingVariables, kernel: Kernel, points: tf.Tensor) -> tf.Tensor | None:
    """How far out the points of `scaled_rbf` are: the largest squared distance of one of `points` or Z from the mean of
    Z, in lengthscales; None for other kernels."""
    if not _is_rbf(inducing, kernel):
        return None
    X, Z = kernel.slice(points, tf.convert_to_tensor(inducing.Z))
    centre = tf.reduce_mean(Z, axis=0, keepdims=True)
    precisions = tf.broadcast_to(1.0 / tf.square(tf.convert_to_tensor(kernel.lengthscales)), tf.shape(Z)[1:])
    squares = [tf.reduce_max(tf.linalg.matvec(tf.square(part - centre), precisions)) for part in (Z, X)]
    return tf.reduce_max(squares)


def _is_rbf(inducing: InducingVariables, kernel: Kernel) -> bool:
    return type(kernel) is SquaredExponential and type(inducing) is InducingPoints


@check_shapes("Z: [M, D]", "X: [B, D]", "variance: []", "lengthscales: [broadcast D]", "return: [M, B]")
def scaled_rbf(Z: tf.Tensor, X: tf.Tensor, variance: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
    """`variance exp(-|z/l - x/l|^2 / 2)` for all pairs, as `exp` of one product of augmented points.

    The exponent is `z.x + (log variance - |z|^2/2) + (-|x|^2/2)` in scaled coordinates: the two last terms enter as two
    further columns. The rounding error of the exponent is about `eps (|z|^2 + |x|^2) / 2`, as for any expanded square.
    """
    # Distances do not depend on the centre, so nor do gradients; subtracting it shrinks the rounding.
    centre = tf.stop_gradient(tf.reduce_mean(Z, axis=0, keepdims=True))
    Z = Z - centre
    X = X - centre
    precisions = tf.broadcast_to(1.0 / tf.square(lengthscales), tf.shape(Z)[1:])  # [D]
    # The two squares; X itself is not scaled: it is the large one, and constant in the first layer.
    scaled_Z = Z * precisions
    z_square = tf.reduce_sum(scaled_Z * Z, axis=-1, keepdims=True)  # [M, 1]
    x_square = tf.linalg.matvec(tf.square(X), precisions)[:, None]  # [B, 1]
    # One product of the augmented points.
    log_variance = tf.math.log(variance)
    augmented_Z = tf.concat([scaled_Z, log_variance - 0.5 * z_square, tf.ones_like(z_square)], axis=-1)
    augmented_X = tf.concat([X, tf.ones_like(x_square), -0.5 * x_square], axis=-1)
    exponent = tf.matmul(augmented_Z, augmented_X, transpose_b=True)
    if exponent.dtype == tf.float32:
        # Far out, rounding could make exponents large and positive.
        is_near = tf.maximum(tf.reduce_max(x_square), tf.reduce_max(z_square)) < 1e4
        exponent = tf.cond(is_near, lambda: exponent, lambda: tf.minimum(exponent, log_variance))
    return tf.exp(exponent)


# Factors and products.


@check_shapes("matrix: [batch..., M, M]", "value: []", "return: [batch..., M, M]")
def add_diagonal(matrix: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """Return `matrix + value I`."""
    return tf.linalg.set_diag(matrix, tf.linalg.diag_part(matrix) + tf.cast(value, matrix.dtype))


@check_shapes("K: [batch..., M, M]", "return: []")
def condition_number(K: tf.Tensor) -> tf.Tensor:
    """Largest over smallest eigenvalue of symmetric `K`, the worst over the batch; inf where `K` is not positive."""
    eigenvalues = tf.linalg.eigvalsh(tf.cast(K, tf.float64))
    smallest = eigenvalues[..., 0]
    largest = eigenvalues[..., -1]
    infinite = tf.fill(tf.shape(smallest), tf.constant(float("inf"), tf.float64))
    return tf.reduce_max(tf.where(smallest > 0, largest / tf.where(smallest > 0, smallest, 1.0), infinite))


def _lower(x: tf.Tensor) -> tf.Tensor:
    return tf.linalg.band_part(x, -1, 0)


def _is_factor(L: tf.Tensor) -> tf.Tensor:
    """Whether a factorisation succeeded: if not, its lower triangle is not finite."""
    return tf.reduce_all(tf.math.is_finite(_lower(L)))


def jitter_of(layer: SVGPLayer | GlobalInducingLayer, num_inducing: int, dtype: tf.DType) -> float:
    """That of a layer's Kuu [M, M] of this type: its own, or GPflow's, or rounding of M if that is more."""
    if layer.jitter is not None:
        return float(layer.jitter)
    return max(float(default_jitter()), num_inducing * float(np.finfo(dtype.as_numpy_dtype).eps))


@check_shapes("K: [batch..., M, M]", "return: [batch..., M, M]")
def robust_cholesky(
    K: tf.Tensor,
    *,
    label: str,
    jitter: float | tf.Tensor | None = None,
    allowed_jitter: float = 0.0,
    details: Sequence[tuple[str, tf.Tensor]] = (),
) -> tf.Tensor:
    """Cholesky factor of `K + jitter I`, with the jitter multiplied by ten for as long as the factorisation fails.

    The first attempt uses GPflow's `default_jitter()` unless `jitter` is given, and costs nothing extra. Later attempts
    stop at `MAX_JITTER_FACTOR` times the mean diagonal, or at `allowed_jitter` if that is more. The gradient is that of
    the attempt which succeeded.

    :param K: symmetric matrices, [..., M, M].
    :param label: what is factorised, for the error message, e.g. `"layer 1: covariance of the inducing outputs"`.
    :param jitter: the first jitter to add, a number or [], without a gradient; `default_jitter()` if None.
    :param allowed_jitter: tried whatever the diagonal is: of matrices that are nothing but rounding, it says little.
    :param details: pairs (name, tensor) that the error message reports, e.g. lengthscales.
    :raises tf.errors.InvalidArgumentError: if no attempt succeeds. The message has the label, the last jitter, the
        condition number, the range of the diagonal and `details`.
    """
    first_jitter = tf.convert_to_tensor(default_jitter() if jitter is None else jitter, K.dtype)

    @tf.custom_gradient
    def factorise(K: tf.Tensor) -> tuple[tf.Tensor, object]:
        # The first attempt; only where it fails are others made.
        attempt = tf.linalg.cholesky(add_diagonal(K, first_jitter))
        L = tf.cond(
            _is_factor(attempt),
            lambda: attempt,
            lambda: _escalate(K, first_jitter, allowed_jitter, label, details),
        )

        def gradient(dL: tf.Tensor) -> tf.Tensor:
            # K = L L':  dK = L^-T Phi(L' dL) L^-1, Phi takes the lower triangle and halves its diagonal.
            P = tf.matmul(L, _lower(dL), transpose_a=True)
            P = _lower(tf.linalg.set_diag(P, 0.5 * tf.linalg.diag_part(P)))
            half = tf.linalg.triangular_solve(L, P, adjoint=True)  # L^-T P
            dK = tf.linalg.triangular_solve(L, tf.linalg.matrix_transpose(half), adjoint=True)  # (L^-T P L^-1)'
            return 0.5 * (tf.linalg.matrix_transpose(dK) + dK)

        return L, gradient

    return factorise(K)


def _escalate(
    K: tf.Tensor,
    first_jitter: tf.Tensor,
    allowed_jitter: float,
    label: str,
    details: Sequence[tuple[str, tf.Tensor]],
) -> tf.Tensor:
    """Try ten times the jitter until the factor of K is finite or the limit is passed."""
    # The largest jitter: relative to the diagonal, at least one factor of ten, or what is allowed whatever it is.
    diagonal = tf.linalg.diag_part(K)
    ten = tf.constant(10.0, K.dtype)
    limit = tf.maximum(MAX_JITTER_FACTOR * tf.reduce_mean(diagonal), ten * first_jitter)
    limit = tf.maximum(limit, tf.constant(allowed_jitter, K.dtype))

    def failed(jitter: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(tf.logical_not(_is_factor(L)), jitter * ten <= limit)

    def try_next(jitter: tf.Tensor, L: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return jitter * ten, tf.linalg.cholesky(add_diagonal(K, jitter * ten))

    jitter, L = tf.while_loop(
        failed, try_next, (first_jitter, tf.fill(tf.shape(K), tf.constant(float("nan"), K.dtype)))
    )
    # What an error says if no attempt succeeded.
    finite = tf.reduce_all(tf.math.is_finite(K))
    condition = tf.cond(finite, lambda: condition_number(K), lambda: tf.constant(float("nan"), tf.float64))
    report = [
        f"Cholesky factorisation failed in {label}: the matrix must be finite and positive definite; "
        "all entries finite:",
        finite,
        "largest jitter tried:",
        jitter,
        "condition number:",
        condition,
        "diagonal from",
        tf.reduce_min(diagonal),
        "to",
        tf.reduce_max(diagonal),
    ]
    for name, value in details:
        report += [f"{name}:", value]
    report.append(
        "Standardise the inputs, remove NaN, lower the learning rate, or raise gpflow.config.set_default_jitter."
    )
    check = tf.debugging.Assert(_is_factor(L), report, summarize=16)
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(L)


@check_shapes("A: [one_or_p..., M, B]", "S: [P, M, M]", "return: [B, P]")
def quadratic_form(A: tf.Tensor, S: tf.Tensor) -> tf.Tensor:
    """`a_b' S_p a_b` for every column `a_b` of `A` and every symmetric `S_p`.

    4 P M^2 B operations forward and backward, where differentiating `|| L_p' a_b ||^2` takes 6. With one `A` for all p
    these are [P M, M] x [M, B] products forward and [P M, B] x [B, M] products backward, on blocks of columns whose
    temporaries stay near the processor.

    :param A: [M, B] for all p, or [P, M, B], one for each.
    :param S: symmetric matrices; the gradient with respect to them is the symmetric one.
    """
    sizes = _block_sizes(A, S)

    @tf.custom_gradient
    def form(A: tf.Tensor, S: tf.Tensor) -> tuple[tf.Tensor, object]:
        P = tf.shape(S)[0]
        M = tf.shape(S)[1]
        is_shared = A.shape.rank == 2
        # S A in blocks of columns; products are kept for the gradient.
        blocks = tf.split(A, sizes, axis=-1) if len(sizes) > 1 else [A]
        if is_shared:
            stacked = tf.reshape(S, [P * M, M])
            products = [tf.reshape(tf.matmul(stacked, block), [P, M, -1]) for block in blocks]  # [P, M, b]
        else:
            products = [tf.matmul(S, block) for block in blocks]
        values = [tf.reduce_sum(SA * block, axis=1) for SA, block in zip(products, blocks, strict=True)]  # [P, b]

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # With g = d/d values:  dA = 2 sum_p S_p A diag(g_p),  dS_p = A diag(g_p) A', block by block.
            g = tf.transpose(upstream)[:, None, :]  # [P, 1, B]
            parts = tf.split(g, sizes, axis=-1) if len(sizes) > 1 else [g]
            dAs = []
            dSs = []
            for part, SA, block in zip(parts, products, blocks, strict=True):
                weighted = part * block  # [P, M, b]
                if is_shared:
                    dAs.append(2.0 * tf.reduce_sum(part * SA, axis=0))
                    dS = tf.matmul(tf.reshape(weighted, [P * M, -1]), block, transpose_b=True)
                    dSs.append(tf.reshape(dS, [P, M, M]))
                else:
                    dAs.append(2.0 * part * SA)
                    dSs.append(tf.matmul(weighted, block, transpose_b=True))
            return tf.concat(dAs, axis=-1), tf.add_n(dSs)

        return tf.transpose(tf.concat(values, axis=-1)), gradient

    return form(A, S)


def _block_sizes(A: tf.Tensor, S: tf.Tensor) -> list[int]:
    """Numbers of columns of A's blocks; a single block where the shapes are not known while tracing."""
    if None in (*A.shape[-2:], S.shape[0]):
        return [-1]
    M, B = A.shape[-2:]
    # Blocks of nearly equal width, whose temporaries have about BLOCK_BYTES.
    size = max(MIN_BLOCK_COLUMNS, BLOCK_BYTES // (A.dtype.size * M * max(1, S.shape[0])))
    count = min(MAX_BLOCKS, max(1, -(-B // size)))
    return [B // count + (i < B % count) for i in range(count)]


# Moments.


class LayerMoments(NamedTuple):
    """Mean and covariance of the layer's L latent GPs at its inputs, without mean function and mixing.

    :ivar mean: [..., N, L].
    :ivar cov: marginal variances [..., N, L], or with `full_cov` [..., L, N, N]. Includes the noise between layers.
    """

    mean: tf.Tensor
    cov: tf.Tensor


def flat_points(X: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [rows, D], also where D is not known while tracing."""
    return tf.reshape(X, [-1, tf.shape(X)[-1] if X.shape[-1] is None else X.shape[-1]])


def by_rows(A: tf.Tensor, lead: tf.Tensor, rank: int) -> tf.Tensor:
    """[L, M, rows] -> [..., L, M, N], for inputs [..., N, D] of this rank."""
    A = tf.reshape(A, tf.concat([tf.shape(A)[:2], lead], axis=0))
    return tf.transpose(A, [*range(2, rank), 0, 1, rank])


def draw(moments: LayerMoments, noise: tf.Tensor, *, full_cov: bool, label: str) -> tf.Tensor:
    """`mean + sqrt(cov) noise`, Eq. (15), by standard deviations or with `full_cov` by a Cholesky factor.

    :param noise: [S, N, L]; N may be 1.
    :param label: what the layer is called, for errors.
    :return: [S, N, L].
    """
    mean, cov = moments
    if not full_cov:
        return mean + root_of_variance(cov) * noise
    # Jointly over the inputs: mean + L eps with L L' = cov.
    root = root_of_joint(cov, label=f"{label}: joint covariance of the outputs at the given inputs")
    wide = tf.broadcast_to(noise, tf.broadcast_dynamic_shape(tf.shape(noise), tf.shape(mean)))
    drawn = tf.matmul(root, tf.linalg.matrix_transpose(wide)[..., None])[..., 0]  # [S, L, N]
    return mean + tf.linalg.matrix_transpose(drawn)


def root_of_variance(variance: tf.Tensor) -> tf.Tensor:
    """Standard deviations: exactly the roots of variances from `SMALLEST_SMOOTH` on, 0 for variances of 0 or less
    (which rounding makes), and `variance / sqrt(SMALLEST_SMOOTH)` between, whose slope is finite.
    """
    variance = tf.maximum(variance, 0.0)
    return variance / tf.sqrt(tf.maximum(variance, tf.constant(_smallest_smooth(variance.dtype), variance.dtype)))


def root_of_joint(cov: tf.Tensor, *, label: str) -> tf.Tensor:
    """Cholesky factor of the joint covariance [..., N, N] of a draw, which gets no more variance than its own rounding
    needs: `JOINT_ROUNDING` units in the last place of its mean variance at first, and ten times that where it fails.

    :param label: what is factorised, for errors.
    """
    eps = float(np.finfo(cov.dtype.as_numpy_dtype).eps)
    scale = tf.reduce_mean(tf.maximum(tf.linalg.diag_part(tf.stop_gradient(cov)), 0.0))
    jitter = tf.maximum(JOINT_ROUNDING * eps * scale, tf.constant(LEAST_JOINT, cov.dtype))
    # What remains of a certain layer is the rounding of the variances that were subtracted from each other.
    rounding = JOINT_ROUNDING * _smallest_smooth(cov.dtype)
    return robust_cholesky(cov, label=label, jitter=jitter, allowed_jitter=rounding)


def _smallest_smooth(dtype: tf.DType) -> float:
    return max(SMALLEST_SMOOTH, float(np.finfo(dtype.as_numpy_dtype).eps))


def outputs_of(
    g: tf.Tensor, X: tf.Tensor, W: tf.Tensor | None, mean_function: MeanFunction, input_propagation: int
) -> tf.Tensor:
    """Outputs [S, N, P] for values g [S, N, L] of the latent GPs at X: mixed by W [P, L], if there is one, with the
    mean function, and behind the first `input_propagation` columns of X."""
    f = (g if W is None else tf.matmul(g, W, transpose_b=True)) + mean_function(X)
    if not input_propagation:
        return f
    shape = tf.concat([tf.shape(f)[:-1], [input_propagation]], axis=0)
    return tf.concat([tf.broadcast_to(X[..., :input_propagation], shape), f], axis=-1)


def outputs_covariance(moments: LayerMoments, *, full_cov: bool, full_output_cov: bool) -> tf.Tensor:
    """Covariance of L independent outputs in the shapes of `Layer.outputs`."""
    mean, cov = moments
    if full_cov and full_output_cov:
        return tf.einsum("...pnm,pq->...npmq", cov, tf.eye(mean.shape[-1], dtype=cov.dtype))
    return tf.linalg.diag(cov) if full_output_cov else cov


class LatentOutputs:
    """A part of `Layer` for those whose outputs are their latent GPs, without mean function and mixing."""

    label: str

    def outputs(
        self, X: tf.Tensor, moments: LayerMoments, *, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and covariance in the shapes of `Layer.outputs`."""
        return moments.mean, outputs_covariance(moments, full_cov=full_cov, full_output_cov=full_output_cov)

    def sample(self, X: tf.Tensor, moments: LayerMoments, noise: tf.Tensor, *, full_cov: bool = False) -> tf.Tensor:
        """Draws [S, N, P], Eq. (15)."""
        return draw(moments, noise, full_cov=full_cov, label=self.label)


def mix(
    W: tf.Tensor, mean: tf.Tensor, cov: tf.Tensor, full_cov: bool, full_output_cov: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Moments of f = W g, W [P, L], for independent latent GPs g."""
    mean = tf.matmul(mean, W, transpose_b=True)
    if full_cov and full_output_cov:
        return mean, tf.einsum("...lnm,pl,ql->...npmq", cov, W, W)
    if full_cov:
        return mean, tf.einsum("...lnm,pl->...pnm", cov, tf.square(W))
    if full_output_cov:
        return mean, tf.einsum("...nl,pl,ql->...npq", cov, W, W)
    return mean, tf.matmul(cov, tf.square(W), transpose_b=True)


def prepend_certain(cov: tf.Tensor, count: int, full_cov: bool, full_output_cov: bool) -> tf.Tensor:
    """Covariances with `count` further, certain outputs in front."""
    # The axes of the outputs in each shape of `Layer.outputs`.
    axes = {(False, False): [-1], (True, False): [-3], (False, True): [-1, -2], (True, True): [-1, -3]}
    rank = cov.shape.rank
    paddings = [[0, 0] for _ in range(rank)]
    for axis in axes[full_cov, full_output_cov]:
        paddings[rank + axis] = [count, 0]
    return tf.pad(cov, paddings)


def no_factors(layer: object, *, dtype: tf.DType | None = None) -> tuple[()]:
    """`factors` and `cache` of a layer without a variational distribution over functions: nothing."""
    return ()


def no_kl(layer: Layer, factors: object = ()) -> tf.Tensor:
    """`prior_kl` of such a layer: 0."""
    return tf.zeros([], layer.dtype)
