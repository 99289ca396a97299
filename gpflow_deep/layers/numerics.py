"""Numerically careful building blocks of a sparse GP layer.

* `robust_cholesky`: a Cholesky factor that raises its jitter in powers of ten before it gives up, and then says why.
* `quadratic_form`: `a' S a` for many points and many outputs in one matrix product, with a hand-written gradient.
* `scaled_rbf`: the squared-exponential kernel between two sets of points as one matrix product and one `exp`.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.config import default_jitter

__all__ = [
    "MAX_JITTER_FACTOR",
    "add_diagonal",
    "condition_number",
    "largest_scaled_square",
    "quadratic_form",
    "robust_cholesky",
    "scaled_rbf",
]

#: The largest jitter that `robust_cholesky` tries, relative to the mean of the diagonal of its argument.
MAX_JITTER_FACTOR = 1e-1

#: `quadratic_form` works on blocks of columns whose [P, M, columns] temporaries have about this size.
BLOCK_BYTES = 4 * 2**20
MIN_BLOCK_COLUMNS = 256
MAX_BLOCKS = 64


@check_shapes("matrix: [batch..., M, M]", "value: []", "return: [batch..., M, M]")
def add_diagonal(matrix: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """Return `matrix + value I`."""
    return tf.linalg.set_diag(matrix, tf.linalg.diag_part(matrix) + tf.cast(value, matrix.dtype))


@check_shapes("K: [batch..., M, M]", "return: []")
def condition_number(K: tf.Tensor) -> tf.Tensor:
    """Largest over smallest eigenvalue of symmetric `K`, the worst over the batch; inf where `K` is not positive."""
    eigenvalues = tf.linalg.eigvalsh(tf.cast(K, tf.float64))
    smallest, largest = eigenvalues[..., 0], eigenvalues[..., -1]
    infinite = tf.fill(tf.shape(smallest), tf.constant(float("inf"), tf.float64))
    return tf.reduce_max(tf.where(smallest > 0, largest / tf.where(smallest > 0, smallest, 1.0), infinite))


def _all_finite(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_all(tf.math.is_finite(x))


def _lower(x: tf.Tensor) -> tf.Tensor:
    return tf.linalg.band_part(x, -1, 0)


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
        attempt = tf.linalg.cholesky(add_diagonal(K, first_jitter))
        L = tf.cond(
            _all_finite(_lower(attempt)),
            lambda: attempt,
            lambda: _escalate(K, first_jitter, allowed_jitter, label, details),
        )

        def gradient(dL: tf.Tensor) -> tf.Tensor:
            # K = L L':  dK = L^-T Phi(L' dL) L^-1, Phi takes the lower triangle and halves its diagonal.
            P = tf.matmul(L, _lower(dL), transpose_a=True)
            P = _lower(tf.linalg.set_diag(P, 0.5 * tf.linalg.diag_part(P)))
            half = tf.linalg.triangular_solve(L, P, adjoint=True)  # L^-T P
            dK = tf.linalg.matrix_transpose(
                tf.linalg.triangular_solve(L, tf.linalg.matrix_transpose(half), adjoint=True)
            )  # L^-T P L^-1
            return 0.5 * (dK + tf.linalg.matrix_transpose(dK))

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
    diagonal = tf.linalg.diag_part(K)
    ten = tf.constant(10.0, K.dtype)
    limit = tf.maximum(MAX_JITTER_FACTOR * tf.reduce_mean(diagonal), ten * first_jitter)
    limit = tf.maximum(limit, tf.constant(allowed_jitter, K.dtype))

    def failed(jitter: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(tf.logical_not(_all_finite(_lower(L))), jitter * ten <= limit)

    def try_next(jitter: tf.Tensor, L: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return jitter * ten, tf.linalg.cholesky(add_diagonal(K, jitter * ten))

    jitter, L = tf.while_loop(
        failed, try_next, (first_jitter, tf.fill(tf.shape(K), tf.constant(float("nan"), K.dtype)))
    )
    finite = _all_finite(K)
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
    check = tf.debugging.Assert(_all_finite(_lower(L)), report, summarize=16)
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
        P, M = tf.shape(S)[0], tf.shape(S)[1]
        is_shared = A.shape.rank == 2
        blocks = tf.split(A, sizes, axis=-1) if len(sizes) > 1 else [A]
        if is_shared:
            stacked = tf.reshape(S, [P * M, M])
            products = [tf.reshape(tf.matmul(stacked, block), [P, M, -1]) for block in blocks]  # [P, M, b]
        else:
            products = [tf.matmul(S, block) for block in blocks]
        values = [tf.reduce_sum(SA * block, axis=1) for SA, block in zip(products, blocks, strict=True)]  # [P, b]

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            g = tf.transpose(upstream)[:, None, :]  # [P, 1, B]
            parts = tf.split(g, sizes, axis=-1) if len(sizes) > 1 else [g]
            dAs, dSs = [], []
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
    size = max(MIN_BLOCK_COLUMNS, BLOCK_BYTES // (A.dtype.size * M * max(1, S.shape[0])))
    count = min(MAX_BLOCKS, max(1, -(-B // size)))
    return [B // count + (i < B % count) for i in range(count)]


@check_shapes("Z: [M, D]", "X: [B, D]", "lengthscales: [broadcast D]", "return: []")
def largest_scaled_square(Z: tf.Tensor, X: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
    """Largest `|z/l - c/l|^2` or `|x/l - c/l|^2`, c the mean of Z: how far out the points of `scaled_rbf` are."""
    centre = tf.reduce_mean(Z, axis=0, keepdims=True)
    precisions = tf.broadcast_to(1.0 / tf.square(lengthscales), tf.shape(Z)[1:])
    squares = [tf.reduce_max(tf.linalg.matvec(tf.square(points - centre), precisions)) for points in (Z, X)]
    return tf.reduce_max(squares)


@check_shapes("Z: [M, D]", "X: [B, D]", "variance: []", "lengthscales: [broadcast D]", "return: [M, B]")
def scaled_rbf(Z: tf.Tensor, X: tf.Tensor, variance: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
    """`variance exp(-|z/l - x/l|^2 / 2)` for all pairs, as `exp` of one product of augmented points.

    The exponent is `z.x + (log variance - |z|^2/2) + (-|x|^2/2)` in scaled coordinates: the two last terms enter as two
    further columns. The rounding error of the exponent is about `eps (|z|^2 + |x|^2) / 2`, as for any expanded square.
    """
    # Distances do not depend on the centre, so nor do gradients; subtracting it shrinks the rounding.
    centre = tf.stop_gradient(tf.reduce_mean(Z, axis=0, keepdims=True))
    Z, X = Z - centre, X - centre
    precisions = tf.broadcast_to(1.0 / tf.square(lengthscales), tf.shape(Z)[1:])  # [D]
    scaled_Z = Z * precisions  # X itself is not scaled: it is the large one, and constant in the first layer
    z_square = tf.reduce_sum(scaled_Z * Z, axis=-1, keepdims=True)  # [M, 1]
    x_square = tf.linalg.matvec(tf.square(X), precisions)[:, None]  # [B, 1]
    log_variance = tf.math.log(variance)
    left = tf.concat([scaled_Z, log_variance - 0.5 * z_square, tf.ones_like(z_square)], axis=-1)
    right = tf.concat([X, tf.ones_like(x_square), -0.5 * x_square], axis=-1)
    exponent = tf.matmul(left, right, transpose_b=True)
    if exponent.dtype == tf.float32:  # far out, rounding could make exponents large and positive
        is_near = tf.maximum(tf.reduce_max(x_square), tf.reduce_max(z_square)) < 1e4
        exponent = tf.cond(is_near, lambda: exponent, lambda: tf.minimum(exponent, log_variance))
    return tf.exp(exponent)
