"""Uniform noise as a pure function of (seed, step, site): the same bits eagerly, in graphs, under XLA and on a GPU.

TensorFlow's stateless functions give other numbers under XLA than without. "threefry" (default), in integer arithmetic
of our own, is Threefry-2x32 with 20 rounds (Salmon and others, 2011, "Parallel random numbers: as easy as 1, 2, 3").
"philox", of the same paper, is Philox-4x32 with 10 rounds, which TensorFlow has as one operation that XLA keeps to the
bit: a graph without XLA, which is ready at once, is then nearly as fast as a compiled one. "hash" mixes the index of
each number with the key by two bijections of 32-bit words: cheaper, and it passes the statistical tests of this
package, not a certified suite. "numpy" is for :mod:`rbm_tracking.model.plain`, which runs no graph.
"""

import math
from typing import Literal, TypeAlias, TypedDict, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

__all__ = [
    "GENERATORS",
    "NOISES",
    "Execution",
    "Generator",
    "bernoulli",
    "key_at",
    "random_bits",
    "threefry",
    "uniform",
]

Words: TypeAlias = NDArray[np.uint32] | tf.Tensor
Generator = Literal["threefry", "hash", "philox", "numpy"]
NOISES: tuple[Generator, ...] = get_args(Generator)
GENERATORS: tuple[Generator, ...] = NOISES[:-1]
"""Those of tensors."""
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_word = np.uint32
_PHILOX = 1  # TensorFlow's number of the algorithm


class Execution(TypedDict):
    """How noise is made, and whether functions are compiled."""

    generator: str
    jit_compile: bool


def key_at(seed: tf.Tensor, step: tf.Tensor, site: int) -> tf.Tensor:
    """Key of the noise drawn at `step` for one use, `site`: int32 [2] from a seed int32 [2].

    Different (step, site) give different keys, because both words are mixed by bijections.
    """
    words = tf.bitcast(tf.cast(seed, tf.int32), tf.uint32)
    step = tf.bitcast(tf.cast(step, tf.int32), tf.uint32)
    # 0 is the fixed point of the mixing: constants keep step 0 and site 0 away from it.
    first = words[0] ^ _mix(step + _word(0x9E3779B9))
    second = words[1] ^ _mix(tf.constant((site * 0x85EBCA6B + 0x6A09E667) % 2**32, tf.uint32))
    return tf.bitcast(tf.stack([first, second]), tf.int32)


def uniform(
    key: tf.Tensor, shape: tuple[int, ...], dtype: tf.DType = tf.float32, generator: str = "threefry"
) -> tf.Tensor:
    """Numbers in [0, 1): multiples of 2^-24 in float32, of 2^-32 in float64.

    :param key: int32 [2], of :func:`key_at`.
    :raises ValueError: if the generator is not one of :data:`GENERATORS`.
    """
    # Not more bits than the type holds: rounding would make 1.0 of the largest numbers.
    bits = random_bits(key, shape, generator)
    if dtype == tf.float64:
        return tf.cast(bits, tf.float64) * 2.0**-32
    return tf.cast(tf.bitcast(_shift_right(bits, 8), tf.int32), dtype) * 2.0**-24


def bernoulli(key: tf.Tensor, logits: tf.Tensor, generator: str = "threefry") -> tf.Tensor:
    """Draws 0.0 or 1.0 with P(1) = sigmoid(logits); the shape of `logits` must be static."""
    noise = uniform(key, tuple(logits.shape), logits.dtype, generator)
    return tf.cast(noise < tf.sigmoid(logits), logits.dtype)


def random_bits(key: tf.Tensor, shape: tuple[int, ...], generator: str = "threefry") -> tf.Tensor:
    """Words of 32 random bits, uint32, of the given static shape.

    :raises ValueError: if the generator is not one of :data:`GENERATORS`.
    """
    size = math.prod(shape)
    words = tf.bitcast(key, tf.uint32)
    if generator == "threefry" and tf.executing_eagerly():  # a hundred operations, which NumPy starts sooner
        # The same words by NumPy.
        first, second = words.numpy()[:, None]
        index = np.arange(size, dtype=np.uint32)
        return tf.constant(threefry(first, second, index, np.zeros_like(index))[0].reshape(shape))
    if generator == "threefry":
        counter = tf.reshape(tf.bitcast(tf.range(size, dtype=tf.int32), tf.uint32), shape)  # in its shape: XLA fuses it
        return threefry(words[0], words[1], counter, tf.constant(0, tf.uint32))[0]
    if generator == "hash":
        # The index is mixed with one word of the key, then with the other.
        index = tf.reshape(tf.bitcast(tf.range(size, dtype=tf.int32), tf.uint32), shape)
        return _mix(_mix(index * _word(0x9E3779B1) + words[0]) ^ words[1])
    if generator == "philox":
        return tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=shape,
            key=tf.bitcast(key, tf.uint64)[None],
            counter=tf.zeros([2], tf.uint64),
            alg=_PHILOX,
            dtype=tf.uint32,
        )
    if generator == "numpy" and tf.executing_eagerly():
        numbers = np.random.Generator(np.random.SFC64(words.numpy().tolist()))
        return tf.constant(numbers.integers(2**32, size=shape, dtype=np.uint32))
    raise ValueError(f"generator must be one of {', '.join(GENERATORS)}, got {generator!r}.")


def threefry(k0: Words, k1: Words, x0: Words, x1: Words) -> tuple[Words, Words]:
    """Threefry-2x32-20 of the counters (x0, x1) under the key (k0, k1), tensors or arrays of uint32."""
    keys = (k0, k1, k0 ^ k1 ^ _word(_PARITY))
    # Five times four rounds, with words of the key between them.
    x0 = x0 + keys[0]
    x1 = x1 + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = (_shift_left(x1, rotation) | _shift_right(x1, 32 - rotation)) ^ x0
        x0 = x0 + keys[(block + 1) % 3]
        x1 = x1 + keys[(block + 2) % 3] + _word(block + 1)
    return x0, x1


def _mix(x: tf.Tensor) -> tf.Tensor:
    """A bijection of 32-bit words in which each bit of the result depends on all bits of x."""
    # Shifts carry high bits down, products low ones up.
    x = (x ^ _shift_right(x, 16)) * _word(0x7FEB352D)
    x = (x ^ _shift_right(x, 15)) * _word(0x846CA68B)
    return x ^ _shift_right(x, 16)


def _shift_right(x: Words, bits: int) -> Words:
    return x >> _word(bits) if isinstance(x, np.ndarray) else tf.bitwise.right_shift(x, _word(bits))


def _shift_left(x: Words, bits: int) -> Words:
    return x << _word(bits) if isinstance(x, np.ndarray) else tf.bitwise.left_shift(x, _word(bits))
