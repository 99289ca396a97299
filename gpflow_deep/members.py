"""What a deep GP predicts from: the variational posterior itself, samples, or draws of global inducing outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .ensemble import Ensemble, InducingSamples
from .layers.global_inducing import draw_factors, is_global

__all__ = ["NUM_GLOBAL_DRAWS", "cached_factors", "factors", "for_functions", "num_members"]

#: Draws of global inducing outputs that predictions are mixtures over.
NUM_GLOBAL_DRAWS = 16


def factors(layers: Sequence[Any], seed: tf.Tensor) -> tuple[Any, ...]:
    """Factors of all layers; of one draw of the inducing outputs where they are global.

    :param seed: int32 [2], of the draw.
    """
    if not is_global(layers):
        return tuple(layer.factors() for layer in layers)
    return draw_factors(layers, tf.random.fold_in(seed, len(layers)))


def cached_factors(
    layers: Sequence[Any], samples: InducingSamples | None, seed: tf.Tensor, *, dtype: tf.DType | None = None
) -> Any:
    """As `DeepGP.cached_factors`.

    :param samples: to predict from; None without. :param seed: int32 [2], of global inducing outputs.
    """
    if samples is not None:
        return samples.cache(layers, dtype=dtype)
    if not is_global(layers):
        return tuple(layer.cache(dtype=dtype) for layer in layers)
    if dtype not in (None, layers[-1].dtype):
        raise ValueError("global inducing outputs need the model's float type, got another dtype; use None.")
    return Ensemble.stacked([factors(layers, tf.random.fold_in(seed, k)) for k in range(NUM_GLOBAL_DRAWS)])


def num_members(layers: Sequence[Any], samples: InducingSamples | None) -> int:
    """How many versions of all layers predictions are mixtures over."""
    return samples.size if samples is not None else NUM_GLOBAL_DRAWS if is_global(layers) else 1


def for_functions(layers: Sequence[Any], num_functions: int, seed: tf.Tensor) -> list[tuple[Any, ...]]:
    """For each function factors with known inducing outputs, where they are global; else nothing."""
    if not is_global(layers):
        return []
    return [draw_factors(layers, tf.random.fold_in(seed, 1000 + s), all_known=True) for s in range(num_functions)]
