"""Predictions of a trained deep GP from cached factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from gpflow.base import MeanAndVariance, Module
from gpflow.posteriors import PrecomputeCacheType

from ..functions.functions import FunctionDraws
from ..layers.protocol import Factors

if TYPE_CHECKING:
    from .deep_gp import DeepGP

__all__ = ["DeepGPPosterior"]


def _from_cache(name: str) -> Callable[..., Any]:
    """A prediction of `DeepGP` by its name, with the factors of the cache."""

    def predict(self: DeepGPPosterior, *arguments: object, **options: Any) -> Any:
        return getattr(self.model, name)(*arguments, factors=self._factors(), **options)

    predict.__name__ = name
    predict.__qualname__ = f"DeepGPPosterior.{name}"
    predict.__doc__ = f"As `DeepGP.{name}`, from the cache."
    return predict


class DeepGPPosterior(Module):
    """The posterior of a `DeepGP` with the factors of every layer computed once; made by `DeepGP.posterior`.

    Like GPflow's posteriors it is a snapshot: after the parameters have changed, call `update_cache`.

    :param model: the deep GP.
    :param precompute_cache: where the cache lives: tensors, variables, or nowhere.
    :param dtype: type of the cache, float32 or the model's float type (None).
    :raises ValueError: if float32 is asked for and a layer's Kuu has a condition number above 1e7.
    """

    cache: Factors | None
    """What `cache` of each layer returned, as tensors or variables; None before it is computed."""

    def __init__(
        self,
        model: DeepGP,
        precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR,
        *,
        dtype: tf.DType | None = None,
    ) -> None:
        super().__init__()
        model_dtype = model.layers[-1].dtype
        if dtype is not None and tf.as_dtype(dtype) not in (tf.float32, model_dtype):
            raise ValueError(f"dtype must be float32 or the model's {model_dtype.name}, got {tf.as_dtype(dtype).name}.")
        self.model = model
        self._cache_dtype = model_dtype if dtype is None else tf.as_dtype(dtype)
        self._kind = _cache_type(precompute_cache)
        self.cache = None
        if self._kind is not PrecomputeCacheType.NOCACHE:
            self.update_cache()

    def update_cache(self, precompute_cache: PrecomputeCacheType | str | None = None) -> None:
        """Compute the cache from the current parameters.

        :param precompute_cache: as in `DeepGP.posterior`; if None, the kind stays. Variables are assigned in place, so
            a function that was exported with them uses the new values.
        :raises ValueError: if variables would need another form, see `MAX_ROUNDING` in `layers.svgp`.
        """
        kind = self._kind if precompute_cache is None else _cache_type(precompute_cache)
        if kind is PrecomputeCacheType.NOCACHE:
            self._kind = kind
            self.cache = None
            return
        # The factors of all layers, as tensors or in variables, which may be there already.
        computed = self.model.cached_factors(dtype=self._cache_dtype)
        if kind is PrecomputeCacheType.TENSOR:
            self.cache = computed
        elif self._kind is kind and self.cache is not None:
            # In place, which works for values of the same shapes only.
            variables = tf.nest.flatten(self.cache)
            values = tf.nest.flatten(computed)
            if [variable.shape for variable in variables] != [value.shape for value in values]:
                raise ValueError(
                    "update_cache needs parameters with a cache of the same form, which changes where rounding would: "
                    "make a new posterior, and export its functions again."
                )
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        else:
            self.cache = tf.nest.map_structure(lambda value: tf.Variable(value, trainable=False), computed)
        self._kind = kind

    predict_f = _from_cache("predict_f")
    predict_y = _from_cache("predict_y")
    predict_log_density = _from_cache("predict_log_density")
    predict_f_samples = _from_cache("predict_f_samples")
    predict_components = _from_cache("predict_components")
    predict_all_layers = _from_cache("predict_all_layers")

    def fused_predict_f(self, *arguments: Any, **options: Any) -> MeanAndVariance:
        """`DeepGP.predict_f` without the cache, from the current parameters."""
        return self.model.predict_f(*arguments, **options)

    def sample_functions(self, num_functions: int, **options: Any) -> FunctionDraws:
        """As `DeepGP.sample_functions`: from the current parameters, of which the functions are a snapshot themselves.

        Functions need other factors than the cache has.
        """
        return self.model.sample_functions(num_functions, **options)

    def _factors(self) -> Factors:
        if self.cache is None:
            raise ValueError("the posterior has no cache: call update_cache('tensor') first, or use fused_predict_f.")
        # Variables as tensors, so that each is read once.
        return tf.nest.map_structure(tf.convert_to_tensor, self.cache)


def _cache_type(kind: PrecomputeCacheType | str | None) -> PrecomputeCacheType:
    if kind is None:
        return PrecomputeCacheType.NOCACHE
    try:
        return PrecomputeCacheType(kind.lower() if isinstance(kind, str) else kind)
    except ValueError:
        raise ValueError(f"precompute_cache must be 'tensor', 'variable' or 'nocache', got {kind!r}.") from None
