"""Products of float32 matrices that are float32 on NVIDIA's GPUs, too."""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpflow_deep_base.runtime.quiet import import_within

__all__ = ["full_float32"]


@functools.cache
def full_float32() -> None:
    """Let TensorFlow, whenever it is imported, multiply float32 matrices as such; once in a process.

    Of its own accord it rounds factors to 10 bits on a GPU (TF32): 3e-4 of a product, which no distance computed from
    products and no log-likelihood of hundreds of terms can afford. It is a setting of the process, made when the first
    package is imported; `tf.config.experimental.enable_tensor_float_32_execution(True)` after that takes it back.
    """
    if sys.modules.get("tensorflow") is not None:
        _switch_off()
    else:
        import_within("tensorflow", _switched_off)


@contextmanager
def _switched_off() -> Iterator[None]:
    yield
    _switch_off()


def _switch_off() -> None:
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
