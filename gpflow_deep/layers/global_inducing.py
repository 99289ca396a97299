"""A layer whose inducing inputs are those of the first layer, sent through the layers below (Ober and Aitchison 2021).

    U_0 = Z,   q(u_l | U_{l-1}) ~ p(u_l | U_{l-1}) N(v_l | u_l, diag(1 / lambda_l)),   U_l = mean_l(U_{l-1}) + u_l

v_l are pseudo-outputs with precisions lambda_l. As q(u_l) depends on the draw of the layers below, the posterior is
correlated across layers. With L L' = k(U_{l-1}, U_{l-1}), the whitened outputs L^-1 u_l have for each latent GP

    q = N(m, (root root')^-1),   root root' = I + L' diag(lambda) L,   m = (root root')^-1 L' (lambda v)

Of a single layer with Z at the data, Gaussian noise s2, v = y and lambda = 1 / s2 this is the exact posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter
from gpflow.config import default_float
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.mean_functions import MeanFunction, Zero
from gpflow.utilities import positive

from ..functions.pathwise import FunctionNoise, LayerFunctions, draw_separate
from .moments import (
    LayerMoments,
    by_rows,
    check_kernel,
    check_mean_function,
    draw,
    flat_points,
    jitter_of,
    outputs_covariance,
    robust_cholesky,
)

if TYPE_CHECKING:
    from .protocol import Factors, Layer

__all__ = ["GlobalFactors", "GlobalInducingLayer", "draw_factors", "is_global"]

SomeFactors = TypeVar("SomeFactors")

#: What a slice of the draws may hold while their factors are computed, in numbers.
_SLICE_NUMBERS = 6 * 2**20


class GlobalFactors(NamedTuple):
    """Of one draw of the layers below, or with an axis of draws in front of all tensors.

    :ivar Z: inducing inputs U_{l-1}, [M, D].
    :ivar Luu: Cholesky factor of k(Z, Z), [M, M].
    :ivar mean: m, or the whitened inducing outputs themselves, [M, L].
    :ivar root: as in the module's docstring [L, M, M]; [0, M, M] where the inducing outputs are known.
    :ivar kl: KL[q(u_l | U_{l-1}) || p(u_l | U_{l-1})], [], nats.
    """

    Z: tf.Tensor
    Luu: tf.Tensor
    mean: tf.Tensor
    root: tf.Tensor
    kl: tf.Tensor


class GlobalInducingLayer(Module):
    """L Gaussian processes with one kernel, whose inducing inputs come from the layers below.

    :param kernel: a GPflow kernel, for every output.
    :param num_latent_gps: how many latent GPs, L.
    :param Z: inducing inputs [M, D] of the first such layer; None for the others.
    :param num_inducing: M, for the others.
    :param input_dim: D, for the others.
    :param mean_function: m, maps [..., D] to [..., L]; zero by default.
    :param precision: lambda of the first step of training.
    :raises ValueError: if sizes are missing, or the kernel is a multi-output kernel.
    """

    pseudo_outputs: Parameter
    """v, [M, L]."""
    precisions: Parameter
    """lambda, [M, L]; its logarithm is trained, since it goes from below 1 to above 1,000."""
    jitter: float | None = None
    """Of Kuu, as of a `SVGPLayer`."""

    def __init__(
        self,
        kernel: Kernel,
        num_latent_gps: int,
        *,
        Z: np.ndarray | None = None,
        num_inducing: int | None = None,
        input_dim: int | None = None,
        mean_function: MeanFunction | None = None,
        precision: float = 1.0,
    ) -> None:
        super().__init__()
        check_kernel(kernel)
        if isinstance(kernel, MultioutputKernel):
            raise ValueError(f"a GlobalInducingLayer takes one kernel for all outputs, got {type(kernel).__name__}.")
        if Z is not None:
            if np.ndim(Z) != 2:
                raise ValueError(f"Z must be inducing inputs [M, D], got shape {list(np.shape(Z))}.")
            num_inducing, input_dim = np.shape(Z)
        if num_inducing is None or input_dim is None:
            raise ValueError("a GlobalInducingLayer needs Z, or num_inducing and input_dim behind another; give one.")
        if num_latent_gps < 1:
            raise ValueError(f"num_latent_gps must be at least 1, got {num_latent_gps}.")
        if not precision > 0.0:
            raise ValueError(f"precision must be positive, got {precision}.")
        self.kernel = kernel
        self.label = self.name
        self.dtype = tf.as_dtype(default_float())
        self.input_dim = input_dim
        self.num_latent_gps = num_latent_gps
        self.output_dim = num_latent_gps
        self.floats_per_row = num_inducing * (3 + num_latent_gps)
        self.mean_function = Zero(num_latent_gps) if mean_function is None else mean_function
        check_mean_function(self.mean_function, input_dim, num_latent_gps)
        self.Z = None if Z is None else Parameter(Z, dtype=default_float())
        # v = 0 with one precision at the start.
        start = np.zeros((num_inducing, num_latent_gps))
        self.pseudo_outputs = Parameter(start, dtype=default_float())
        self.precisions = Parameter(start + precision, transform=positive(base="exp"), dtype=default_float())

    # Inducing outputs.

    def factors_at(self, Z: tf.Tensor) -> GlobalFactors:
        """q(u_l | U_{l-1}) for inducing inputs Z [M, D], or [S, M, D] of S draws."""
        Kuu = self.kernel(Z)
        M = int(self.pseudo_outputs.shape[0])
        label = f"{self.label}: covariance Kuu of the inducing outputs"
        Luu = robust_cholesky(Kuu, label=label, jitter=jitter_of(self, M, Kuu.dtype))
        # root root' = I + L' diag(lambda) L of each latent GP.
        weights = tf.transpose(self.precisions)
        identity = tf.eye(M, dtype=Kuu.dtype)
        expanded_Luu = Luu[..., None, :, :]
        root = tf.linalg.cholesky(
            identity + tf.matmul(expanded_Luu, weights[..., None] * expanded_Luu, transpose_a=True)
        )  # [..., L, M, M]
        # m = (root root')^-1 L' (lambda v).
        right = tf.matmul(Luu, self.precisions * self.pseudo_outputs, transpose_a=True)
        half = tf.linalg.triangular_solve(root, tf.linalg.matrix_transpose(right)[..., None])
        mean = tf.linalg.matrix_transpose(tf.linalg.triangular_solve(root, half, adjoint=True)[..., 0])
        # KL[q || N(0, I)] = (tr (root root')^-1 + |m|^2 - M L + log det root root') / 2.
        inverse = tf.linalg.triangular_solve(root, tf.broadcast_to(identity, tf.shape(root)))
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)), axis=[-2, -1])
        size = tf.cast(tf.size(weights), mean.dtype)
        squares = tf.reduce_sum(tf.square(mean), axis=[-2, -1])
        kl = 0.5 * (tf.reduce_sum(tf.square(inverse), axis=[-3, -2, -1]) + squares - size + log_det)
        return GlobalFactors(Z, Luu, mean, root, kl)

    def known(self, factors: GlobalFactors, eps: tf.Tensor) -> GlobalFactors:
        """The same with a draw of the inducing outputs, from noise [M, L], or [S, M, L] of S draws."""
        columns = tf.linalg.matrix_transpose(eps)[..., None]
        moved = tf.linalg.matrix_transpose(tf.linalg.triangular_solve(factors.root, columns, adjoint=True)[..., 0])
        return factors._replace(mean=factors.mean + moved, root=factors.root[..., :0, :, :])

    def propagated(self, factors: GlobalFactors) -> tf.Tensor:
        """U_l, [M, L], of known inducing outputs."""
        return self.mean_function(factors.Z) + factors.Luu @ factors.mean

    # The members of `Layer`.

    def factors(self) -> GlobalFactors:
        """Those of the first layer. Those of the others depend on it: ask the `DeepGP`.

        :raises ValueError: if there is a layer below.
        """
        if self.Z is None:
            raise ValueError(f"{self.label} has the inducing inputs of the layers below; ask the DeepGP for factors().")
        return self.factors_at(tf.convert_to_tensor(self.Z))

    def cache(self, *, dtype: tf.DType | None = None) -> GlobalFactors:
        """`factors`: there is nothing faster."""
        return self.factors()

    def prior_kl(self, factors: GlobalFactors) -> tf.Tensor:
        """KL[q(u_l | U_{l-1}) || p(u_l | U_{l-1})], [], nats."""
        return factors.kl

    def latent_moments(self, X: tf.Tensor, factors: GlobalFactors, *, full_cov: bool = False) -> LayerMoments:
        """Mean [..., N, L] and variance [..., N, L], or covariance [..., L, N, N] with `full_cov`."""
        points = flat_points(X)
        lead = tf.shape(X)[:-1]
        L = self.num_latent_gps
        M = factors.mean.shape[0]
        # A = L^-1 k(Z, x) and B = root^-1 A, where the inducing outputs are not known.
        A = tf.linalg.triangular_solve(factors.Luu, self.kernel(factors.Z, points))  # [M, B]
        mean = tf.reshape(tf.matmul(A, factors.mean, transpose_a=True), tf.concat([lead, [L]], axis=0))
        mean.set_shape(X.shape[:-1].concatenate([L]))
        is_known = factors.root.shape[0] == 0
        B = None if is_known else tf.linalg.triangular_solve(factors.root, tf.broadcast_to(A, [L, M, tf.shape(A)[1]]))
        # k(x, x) - A'A + B'B: of each point, and below of all pairs.
        if not full_cov:
            var = (self.kernel(points, full_cov=False) - tf.reduce_sum(tf.square(A), axis=0))[:, None]
            var = var + (tf.zeros([L], A.dtype) if B is None else tf.transpose(tf.reduce_sum(tf.square(B), axis=1)))
            return LayerMoments(mean, tf.reshape(tf.maximum(var, 0.0), tf.shape(mean)))
        A, B = (None if part is None else by_rows(part, lead, len(X.shape)) for part in (A[None], B))
        cov = self.kernel(X, full_cov=True)[..., None, :, :] - tf.matmul(A, A, transpose_a=True)
        cov = tf.repeat(cov, L, axis=-3) if B is None else cov + tf.matmul(B, B, transpose_a=True)
        return LayerMoments(mean, cov)

    def outputs(
        self, X: tf.Tensor, moments: LayerMoments, *, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and covariance in the shapes of `Layer.outputs`."""
        cov = outputs_covariance(moments, full_cov=full_cov, full_output_cov=full_output_cov)
        return moments.mean + self.mean_function(X), cov

    def sample(self, X: tf.Tensor, moments: LayerMoments, noise: tf.Tensor, *, full_cov: bool = False) -> tf.Tensor:
        """Draws [S, N, L], Eq. (15)."""
        return draw(moments, noise, full_cov=full_cov, label=self.label) + self.mean_function(X)

    def functions_of(
        self, factors: GlobalFactors, seed: tf.Tensor, *, num_features: int, noise: FunctionNoise
    ) -> LayerFunctions:
        """Functions through known inducing outputs, one for each of S draws, by Matheron's rule."""
        return draw_separate(self, factors.Z, factors.mean, factors.Luu, seed, num_features=num_features, noise=noise)


def is_global(layers: Sequence[Layer]) -> bool:
    """Whether inducing inputs go from layer to layer."""
    return any(isinstance(layer, GlobalInducingLayer) for layer in layers)


def draw_factors(
    layers: Sequence[Layer],
    seed: tf.Tensor | None,
    *,
    count: int | None = None,
    all_known: bool = False,
    values: Sequence[tf.Tensor] = (),
) -> Factors:
    """Factors of all layers for one draw of the inducing outputs of all but the last layer.

    :param seed: int32 [2]; None if nothing is drawn.
    :param all_known: of the last layer, too.
    :param count: number S of draws; all tensors have an axis in front then, of length S, or 1 where they are equal.
    :param values: whitened inducing outputs [S, M, L] of the first layers, in place of draws from q(u).
    :raises ValueError: if a layer between or behind global ones is of another kind, or not the first has Z.
    """
    all_factors = list[object]()
    Z = None  # U_{l-1}, as soon as there is one
    for number, layer in enumerate(layers):
        if not isinstance(layer, GlobalInducingLayer):
            if Z is not None or hasattr(layer, "q_mu"):
                raise ValueError(
                    f"{layer.label} must be a GlobalInducingLayer, as others are, got {type(layer).__name__}."
                )
            all_factors.append(_in_front(layer.factors(), count))
            continue
        if (Z is None) == (layer.Z is None):
            raise ValueError(f"{layer.label}: the first GlobalInducingLayer has Z, the others have none.")
        is_given = number < len(values)
        is_drawn = not is_given and (number < len(layers) - 1 or all_known)
        if is_given:
            # Known inducing outputs.
            factors = _in_front(layer.factors(), 1) if Z is None else _drawn(layer, Z, None)
            factors = factors._replace(mean=values[number], root=factors.root[..., :0, :, :])
        elif is_drawn:
            # A draw of u_l, where a layer above has its inducing inputs from it.
            shape = [*([] if count is None else [count]), *layer.pseudo_outputs.shape]
            eps = tf.random.stateless_normal(shape, tf.random.fold_in(seed, number), dtype=layer.pseudo_outputs.dtype)
            factors = _drawn(layer, Z, eps)
        else:
            # Its distribution, of the last layer.
            factors = layer.factors() if Z is None else _drawn(layer, Z, None)
            factors = _in_front(factors, count) if Z is None else factors
        all_factors.append(factors)
        # U_l = mean_l(U_{l-1}) + u_l.
        if is_given or is_drawn:
            Z = layer.propagated(factors)
    return tuple(all_factors)


def _drawn(layer: GlobalInducingLayer, Z: tf.Tensor | None, eps: tf.Tensor | None) -> GlobalFactors:
    """Factors at Z [M, D], or [S, M, D], with the draws of noise `eps`; in slices of bounded memory."""
    if Z is None or Z.shape.rank == 2:
        factors = layer.factors() if Z is None else layer.factors_at(Z)
        factors = factors if eps is None or eps.shape.rank == 2 else _in_front(factors, 1)
        return factors if eps is None else layer.known(factors, eps)
    # Inducing inputs of S draws have S covariances.
    S, M, _ = Z.shape
    size = max(1, _SLICE_NUMBERS // (layer.num_latent_gps * M * M))
    parts = []
    for start in range(0, S, size):
        part = layer.factors_at(Z[start : start + size])
        parts.append(part if eps is None else layer.known(part, eps[start : start + size]))
    return parts[0] if len(parts) == 1 else tf.nest.map_structure(lambda *some: tf.concat(some, axis=0), *parts)


def _in_front(factors: SomeFactors, count: int | None) -> SomeFactors:
    """With an axis of length 1 in front, unless `count` is None."""
    if count is None:
        return factors
    with_axis: SomeFactors = tf.nest.map_structure(lambda tensor: tensor[None], factors)
    return with_axis
