"""Seeds of random numbers: one meaning of an integer, and independent streams by name.

TensorFlow's stateless functions take int32 [2]. An integer stands for its high and its low 31 bits, so that 5 is
[0, 5]. Nothing here imports TensorFlow before a tensor is asked for.
"""

from __future__ import annotations

import hashlib
import operator
from typing import TYPE_CHECKING, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["MAX_SEED", "Seed", "Seeds", "as_seed", "fresh_seed", "named_seed", "numpy_rng", "seed_words"]

#: An integer from 0 to :data:`MAX_SEED`, or int32 [2] as TensorFlow's stateless functions take it.
Seed: TypeAlias = Union[int, "tf.Tensor"]

MAX_SEED = 2**62 - 1
_LOW = 2**31 - 1


def seed_words(seed: int | np.integer | np.ndarray) -> NDArray[np.int32]:
    """The high and the low 31 bits of an integer, int32 [2].

    :param seed: from 0 to `MAX_SEED`; an array has one number.
    :raises ValueError: if it is no integer from 0 to `MAX_SEED`.
    """
    number = _integer(seed)
    return np.array([number >> 31, number & _LOW], np.int32)


def as_seed(seed: Seed) -> tf.Tensor:
    """A seed for `tf.random.stateless_*` and `tf.random.fold_in`, int32 [2].

    :param seed: an integer from 0 to `MAX_SEED`, of which it has the high and the low 31 bits; or int32 [2].
    :raises ValueError: if it is neither.
    """
    import tensorflow as tf

    # One number: its high and its low 31 bits.
    if isinstance(seed, int | np.integer) or (isinstance(seed, np.ndarray) and seed.ndim == 0):
        return tf.constant(seed_words(seed))
    try:
        tensor = tf.convert_to_tensor(seed)
    except (TypeError, ValueError) as error:
        raise ValueError(f"seed must be an integer, or int32 of shape [2], got {seed!r}.") from error
    if not tensor.dtype.is_integer or tensor.shape != [2]:
        raise ValueError(
            f"seed must be an integer, or int32 of shape [2], got {tensor.dtype.name} of shape {tensor.shape}."
        )
    # Words that int32 cannot hold are refused.
    words = tf.cast(tensor, tf.int32)
    if tf.executing_eagerly() and not np.array_equal(words, tensor):
        raise ValueError(f"seed must be an integer, or int32 of shape [2], got the larger {tensor.numpy().tolist()}.")
    return words


def fresh_seed() -> tf.Tensor:
    """A seed from TensorFlow's global generator, int32 [2]; for calls that name none."""
    import tensorflow as tf

    return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)


def named_seed(seed: int, name: str) -> tf.Tensor:
    """Seed of the stream `name`, for `tf.random.stateless_*` and `tf.random.fold_in`.

    :param seed: an integer from 0 to `MAX_SEED`, for example `FLAGS.seed`.
    :param name: what the stream is for, for example "train" or "init/inducing"; other names give other streams.
    :return: int32 [2], a pure function of the two arguments, the same in every process and on every machine.
    :raises ValueError: if `seed` is no such integer or `name` is empty.
    """
    import tensorflow as tf

    return tf.constant(np.frombuffer(_digest("tensorflow", seed, name)[:8], dtype="<i4"), dtype=tf.int32)


def numpy_rng(seed: int, name: str) -> np.random.Generator:
    """NumPy generator of the stream `name`; arguments and errors as for :func:`named_seed`."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(_digest("numpy", seed, name)[:16], "little")))


class Seeds:
    """The streams of one run: `seeds("train")` for TensorFlow, `seeds.rng("order")` for NumPy.

    :param seed: an integer from 0 to `MAX_SEED`.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, name: str) -> tf.Tensor:
        """Seed of the stream `name`, int32 [2]."""
        return named_seed(self.seed, name)

    def rng(self, name: str) -> np.random.Generator:
        """NumPy generator of the stream `name`."""
        return numpy_rng(self.seed, name)


def _integer(seed: int | np.integer | np.ndarray) -> int:
    """A seed as Python's integer, if it is one number, no truth value, and from 0 to `MAX_SEED`."""
    # Truth values are integers to Python, and never meant as seeds.
    try:
        number = None if np.asarray(seed).dtype == bool else operator.index(seed)
    except TypeError:
        number = None
    if number is None:
        raise ValueError(f"seed must be an integer, got {seed!r}; give for example seed=0.")
    if not 0 <= number <= MAX_SEED:
        raise ValueError(f"seed must be from 0 to 2**62 - 1, got {number}; give for example seed=0.")
    return number


def _digest(kind: str, seed: int, name: str) -> bytes:
    # Kind, seed and name together make the stream: no two of them share one.
    if not isinstance(name, str) or not name:
        raise ValueError(f"name of a random stream must be a non-empty string, got {name!r}.")
    return hashlib.sha256(f"{kind}/{_integer(seed)}/{name}".encode()).digest()
