"""What a deep GP predicts from: the variational posterior itself, samples, or draws of global inducing outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gpflow_deep.layers.protocol import Layer

from ..layers.global_inducing import GlobalInducingLayer, draw_factors, is_global
from .ensemble import Ensemble, InducingSamples

__all__ = ["cached_factors", "for_functions", "num_members", "one_draw"]


def one_draw(layers: Sequence[Layer], seed: tf.Tensor) -> tuple[Any, ...]:
    """Factors of all layers for one draw of global inducing outputs.

    :param seed: int32 [2], of the draw.
    """
    return draw_factors(layers, tf.random.fold_in(seed, len(layers)))


def cached_factors(
    layers: Sequence[Layer],
    samples: InducingSamples | None,
    num_draws: int,
    seed: tf.Tensor,
    *,
    dtype: tf.DType | None = None,
) -> Any:
    """As `DeepGP.cached_factors`, of a model that is sampled or has global inducing outputs.

    :param samples: to predict from; None without.
    :param num_draws: of global inducing outputs.
    :param seed: int32 [2], of them.
    """
    if samples is not None:
        return samples.cache(layers, dtype=dtype)
    if dtype not in (None, layers[-1].dtype):
        raise ValueError("global inducing outputs need the model's float type, got another dtype; use None.")
    count = num_members(layers, None, num_draws)
    if count == 1:
        return one_draw(layers, seed)
    return Ensemble(draw_factors(layers, tf.random.fold_in(seed, 1000), count=count))


def num_members(layers: Sequence[Layer], samples: InducingSamples | None, num_draws: int) -> int:
    """How many versions of all layers predictions are mixtures over: of the last layer alone there is one."""
    if samples is not None:
        return samples.size
    return num_draws if sum(isinstance(layer, GlobalInducingLayer) for layer in layers) > 1 else 1


def for_functions(
    layers: Sequence[Layer], samples: InducingSamples | None, num_functions: int, seed: tf.Tensor
) -> tuple[Any, ...]:
    """Factors with known inducing outputs of each function, where they are global; else nothing."""
    if not is_global(layers):
        return ()
    values: list[Any] = []
    if samples is not None:
        values = [samples.chosen(number, num_functions, seed) for number in range(len(layers) - 1)]
    return draw_factors(layers, tf.random.fold_in(seed, 1000), count=num_functions, all_known=True, values=values)
