"""The chain of layers, Eq. (15): the one place where a deep GP is evaluated.

    f^l = mean_l(f^{l-1}) + sqrt(var_l(f^{l-1})) eps^l

`propagate` takes all draws at once. `evaluate` takes them in slices of bounded memory and keeps of each slice only what
its caller reads off; rows are cut into slices before (`rows_per_slice`), where they do not depend on one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType

from ..layers import Layer
from ..layers.chunking import map_slices
from ..layers.protocol import Factors
from ..posteriors.ensemble import Ensemble

__all__ = [
    "Propagation",
    "Step",
    "checked_inputs",
    "checked_points",
    "draws_per_slice",
    "evaluate",
    "last_outputs",
    "num_same_in_all_draws",
    "propagate",
    "rows_per_slice",
]

#: What one slice of a prediction may hold, in bytes of its largest temporary array.
SLICE_BYTES = 48 * 2**20


class Propagation(NamedTuple):
    """What every layer says about the N points, one entry per layer; P differs between layers.

    :ivar samples: draws of the layer's outputs, [S, N, P]; only of the layers for which noise was given.
    :ivar means: means given the draw of the layer below, [S, N, P]; [1, N, P] for the first layer, and for further ones
        as long as all layers below are deterministic.
    :ivar covs: variances [S, N, P], or with `full_cov` covariances [S, P, N, N], given the draw of the layer below.
    """

    samples: tuple[tf.Tensor, ...]
    means: tuple[tf.Tensor, ...]
    covs: tuple[tf.Tensor, ...]

    @classmethod
    def of(cls, steps: Sequence[Step], *, full_cov: bool = False) -> Propagation:
        """What the steps of a chain say."""
        means, covs = zip(*(step.outputs(full_cov=full_cov) for step in steps), strict=True)
        return cls(tuple(step.sample for step in steps if step.sample is not None), means, covs)


class Step(NamedTuple):
    """One layer of the chain.

    :ivar layer: which.
    :ivar inputs: what it reads: X [N, D], or draws of the layer below [S, N, D].
    :ivar moments: `layer.latent_moments` of them.
    :ivar sample: its draws [S, N, P]; None without noise for them.
    """

    layer: Layer
    inputs: tf.Tensor
    moments: object
    sample: tf.Tensor | None

    def outputs(self, *, full_cov: bool = False, full_output_cov: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and covariance as of `Layer.outputs`, with an axis of draws in front: [S or 1, N, P], [S or 1, ...]."""
        mean, cov = self.layer.outputs(self.inputs, self.moments, full_cov=full_cov, full_output_cov=full_output_cov)
        return (mean[None], cov[None]) if self.inputs.shape.rank == 2 else (mean, cov)


def checked_inputs(X: TensorType, first: Layer) -> tf.Tensor:
    """X [batch..., N, D] as a tensor that the first layer can read. Shapes may be unknown while tracing.

    :raises ValueError: if it has another float type or number of columns.
    :raises tf.errors.InvalidArgumentError: the same, where the number of columns is known only when the graph runs.
    """
    float_type = getattr(X, "dtype", None)
    if float_type is not None and tf.as_dtype(float_type) != first.dtype:
        raise ValueError(
            f"X must have the model's float type {first.dtype.name}, got {tf.as_dtype(float_type).name}; cast X, or "
            "call gpflow.config.set_default_float before building the model."
        )
    X = tf.convert_to_tensor(X, first.dtype)
    D = first.input_dim
    if D is None:
        return X
    requirement = f"X must have {D} columns, as many as the first layer takes"
    # While tracing, the number of columns may be unknown: the graph checks it when it runs.
    if X.shape.rank is None or X.shape[-1] is None:
        check = tf.debugging.assert_equal(tf.shape(X)[-1], D, f"{requirement}.")
        with tf.control_dependencies([] if check is None else [check]):
            return tf.identity(X)
    if X.shape[-1] != D:
        raise ValueError(f"{requirement}, got shape {X.shape}.")
    return X


def checked_points(X: TensorType, first: Layer) -> tf.Tensor:
    """`checked_inputs` of X [N, D], with a number of columns that is known while tracing if the layer tells it."""
    X = checked_inputs(X, first)
    return X if X.shape.rank == 2 and X.shape[1] is not None else tf.ensure_shape(X, [None, first.input_dim])


def propagate(
    layers: Sequence[Layer], factors: Factors, X: tf.Tensor, noise: Sequence[tf.Tensor], *, full_cov: bool = False
) -> list[Step]:
    """Push X [N, D] through all layers. The first one, which reads the same inputs in all draws, is evaluated once.

    :param noise: for each inner layer, and for the last one if draws of it are wanted: [S, N, L] or [S, 1, L].
    :raises ValueError: if the number of noise arrays is neither that of the layers nor one less, or a shape is wrong.
    """
    if len(noise) not in (len(layers) - 1, len(layers)):
        raise ValueError(
            f"noise must have one array for each of the {len(layers) - 1} inner layers and may have one for the last "
            f"layer, got {len(noise)} arrays."
        )
    for layer, eps in zip(layers, noise, strict=False):
        L = layer.num_latent_gps
        shape = tf.TensorShape(eps.shape)
        if not any(shape.is_compatible_with([None, rows, L]) for rows in (1, X.shape[0])):
            raise ValueError(
                f"{layer.label} must have noise [S, N or 1, L] with N = {X.shape[0]} and L = {L}, got shape {shape}."
            )
    # Eq. (15), layer by layer from f^0 = X: moments given the draw of the layer below, then a draw from them.
    F = X
    steps = []
    num_fixed = num_same_in_all_draws(layers)
    for i, (layer, part) in enumerate(zip(layers, factors, strict=True)):
        moments = layer.latent_moments(F, part, full_cov=full_cov)
        drawn = None if i >= len(noise) else layer.sample(F, moments, noise[i], full_cov=full_cov)
        sample = drawn
        if i < min(num_fixed, len(noise)) and not layer.num_latent_gps:
            # What is the same in all draws is reported S times, but the next layer need not see the copies.
            sample = tf.broadcast_to(drawn, tf.concat([tf.shape(noise[i])[:1], tf.shape(drawn)[1:]], axis=0))
        steps.append(Step(layer, F, moments, sample))
        F = drawn
    return steps


def num_same_in_all_draws(layers: Sequence[Layer]) -> int:
    """How many layers read the same inputs in all draws: the first, and more if those below are deterministic."""
    deterministic = takewhile(lambda layer: not layer.num_latent_gps, layers)
    return min(len(layers), 1 + sum(1 for _ in deterministic))


def evaluate(
    read: Callable[[list[Step]], Sequence[tf.Tensor]],
    layers: Sequence[Layer],
    factors: Factors,
    X: tf.Tensor,
    noise: Sequence[tf.Tensor],
    *,
    size: tf.Tensor | int,
    full_cov: bool = False,
    num_results: int = 2,
    num_sums: int = 0,
) -> tuple[tf.Tensor, ...]:
    """`read(steps)` of the chain with at most `size` draws at a time, joined: [S, ...].

    :param read: takes tensors off a slice's steps. Their first axis is that of the draws (or 1, if there is only one
        slice), but for the last `num_sums` of the `num_results`, which are added up over the slices.
    :param factors: of each layer; or an `Ensemble` of K of them, of which draw s gets number s K // S. Without noise
        there is one draw of each.
    """
    if isinstance(factors, Ensemble):
        return _evaluate_ensemble(read, layers, factors, X, noise, size, full_cov, num_results, num_sums)

    def of_slice(start: tf.Tensor, stop: tf.Tensor) -> Sequence[tf.Tensor]:
        return read(propagate(layers, factors, X, [eps[start:stop] for eps in noise], full_cov=full_cov))

    # A single draw, or a number of draws that is unknown while tracing, is not cut into slices.
    S = noise[0].shape[0] if noise else 1
    if S is None or S == 1:
        return tuple(read(propagate(layers, factors, X, noise, full_cov=full_cov)))
    return map_slices(of_slice, S, size, [X.dtype] * num_results, num_sums=num_sums)


def _evaluate_ensemble(
    read: Callable[[list[Step]], Sequence[tf.Tensor]],
    layers: Sequence[Layer],
    factors: Ensemble,
    X: tf.Tensor,
    noise: Sequence[tf.Tensor],
    size: tf.Tensor | int,
    full_cov: bool,
    num_results: int,
    num_sums: int,
) -> tuple[tf.Tensor, ...]:
    """`evaluate` in slices of draws that have the same factors."""
    K = factors.size
    S = int(noise[0].shape[0]) if noise else K
    # A slice has draws of one member only: all of these if it may be so long, else a single one.
    num_own = S // K if S % K == 0 else 1
    largest = tf.where(tf.convert_to_tensor(size) >= num_own, num_own, 1)

    def of_slice(start: tf.Tensor, stop: tf.Tensor) -> Sequence[tf.Tensor]:
        member_factors = factors.member(start * K // S)
        parts = list(read(propagate(layers, member_factors, X, [eps[start:stop] for eps in noise], full_cov=full_cov)))
        # Moments of layers below which nothing is drawn differ between members: one for each draw.
        for i, part in enumerate(parts[: num_results - num_sums]):
            parts[i] = tf.broadcast_to(part, tf.concat([[stop - start], tf.shape(part)[1:]], axis=0))
            parts[i].set_shape([None, *part.shape[1:]])
        return parts

    outputs = map_slices(of_slice, S, largest, [X.dtype] * num_results, num_sums=num_sums)
    # Slices of a length unknown to the graph hide how many draws there are.
    return tuple(
        part if i >= num_results - num_sums else tf.ensure_shape(part, [S, *part.shape[1:]])
        for i, part in enumerate(outputs)
    )


def last_outputs(steps: list[Step]) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of the last layer, [S, N, P] each: what `evaluate` reads for a mixture."""
    return steps[-1].outputs()


def rows_per_slice(layers: Sequence[Layer], num_draws: int = 1) -> int:
    """How many rows go through the layers at once, with all their draws; at least 1."""
    largest = max(layer.floats_per_row for layer in layers)
    return max(1, SLICE_BYTES // (layers[0].dtype.size * largest * num_draws))


def draws_per_slice(layers: Sequence[Layer], X: tf.Tensor) -> tf.Tensor:
    """How many draws that are joint over the N rows of X go through the layers at once; at least 1."""
    N = tf.cast(tf.shape(X)[0], tf.int64)
    largest = max(layer.floats_per_row for layer in layers)
    # A joint draw counts four matrices [N, N] for each output, besides what its rows take.
    squares = 4 * max(max(layer.num_latent_gps, layer.output_dim) for layer in layers)
    per_draw = tf.maximum(N * largest + N * N * squares, 1)
    return tf.cast(tf.clip_by_value(SLICE_BYTES // (layers[0].dtype.size * per_draw), 1, 2**30), tf.int32)
