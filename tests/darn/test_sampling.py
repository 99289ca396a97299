"""The fixed-point sampler against the sequential one, drawn in NumPy one bit after the other."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from darn.model.autoregressive import Sampler, fixed_point_bits, linear_bits, logistic_noise, sample
from darn.model.model import DARN, DARNConfig
from darn.more.nade import NADEConditional

tf_function = tf.function(linear_bits, autograph=False)


def sequential_bits(noise: np.ndarray, matrix: np.ndarray, logits: np.ndarray) -> np.ndarray:
    h = np.zeros_like(noise)
    for j in range(noise.shape[1]):
        a = logits[..., j] + h[:, :j] @ matrix[:j, j]
        h[:, j] = noise[:, j] < a
    return h


def random_units(rng: np.random.Generator, B: int, n: int, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Noise, weights and logits that are multiples of 2^-10: float32 sums are exact, so that samplers cannot differ."""
    draws = (rng.logistic(size=(B, n)), scale * rng.normal(size=(n, n)), rng.normal(size=(B, n)))
    noise, matrix, logits = (np.round(1024 * draw).astype(np.float32) / 1024 for draw in draws)
    return noise, matrix, logits


@pytest.mark.parametrize(("B", "n", "block", "scale"), [(1, 1, 56, 1.0), (7, 30, 8, 2.0), (64, 130, 56, 0.5)])
def test_same_bits_as_one_after_the_other(rng: np.random.Generator, B: int, n: int, block: int, scale: float) -> None:
    noise, matrix, logits = random_units(rng, B, n, scale)
    expected = sequential_bits(noise, matrix, logits)
    assert 0.1 < expected.mean() < 0.9 or n == 1
    for function in (linear_bits, tf_function):
        np.testing.assert_array_equal(function(noise, matrix, logits, block=block), expected)
    np.testing.assert_array_equal(
        linear_bits(noise, matrix, logits[0], block=block), sequential_bits(noise, matrix, logits[0])
    )


def test_longest_chain(rng: np.random.Generator) -> None:
    """Each bit is the opposite of the one before: the fixed point needs as many passes as there are bits."""
    n = 40
    matrix = np.diag(np.full(n - 1, -2.0), 1).astype(np.float32)
    bits = linear_bits(np.zeros([3, n], np.float32), matrix, np.ones(n, np.float32))
    np.testing.assert_array_equal(bits, np.tile([1.0, 0.0], [3, n // 2]))


def test_weights_on_and_below_the_diagonal_do_not_matter(rng: np.random.Generator) -> None:
    noise, matrix, logits = random_units(rng, 20, 60, 1.0)
    bits = linear_bits(noise, matrix, logits, block=16)
    np.testing.assert_array_equal(bits, linear_bits(noise, np.triu(matrix, 1), logits, block=16))


def test_any_conditional(seed: tf.Tensor) -> None:
    conditional = NADEConditional(25, 10, seed=seed, dtype=tf.float64)
    noise = logistic_noise([50, 25], seed, tf.float64)
    expected = conditional.sample_from_noise(noise)
    for guess in (None, tf.ones_like(noise), 1.0 - expected):
        np.testing.assert_array_equal(fixed_point_bits(conditional.logits, noise, guess), expected)


@pytest.mark.slow
def test_xla_gives_the_same_bits(rng: np.random.Generator) -> None:
    noise, matrix, logits = random_units(rng, 8, 70, 1.0)
    compiled = tf.function(linear_bits, autograph=False, jit_compile=True)
    np.testing.assert_array_equal(compiled(noise, matrix, logits), sequential_bits(noise, matrix, logits))


def small_model() -> DARN:
    return DARN(DARNConfig(12, (6, 4), (5,), visible_conditional="linear"), seed=1)


def test_sampler_of_a_model(seed: tf.Tensor) -> None:
    model = small_model()
    sampler = Sampler(model, batch_size=10)
    draws = sampler(25, seed)
    assert [array.shape for array in (draws.x, draws.probs, *draws.h)] == [(25, 12), (25, 12), (25, 6), (25, 4)]
    assert set(np.unique(draws.x)) <= {0.0, 1.0}
    again = sampler(15, seed)
    np.testing.assert_array_equal(again.x, draws.x[:15])
    assert not np.array_equal(draws.x[:10], draws.x[10:20])
    np.testing.assert_allclose(
        draws.probs, tf.sigmoid(model.visible_logits(draws.x, draws.h)), rtol=1e-5, atol=1e-7
    )  # float32 sums of 20 terms


def test_sampler_is_traced_once(seed: tf.Tensor, traced_once: Any) -> None:
    sampler = Sampler(small_model(), batch_size=4)
    traced_once(sampler._draw)
    for num in (1, 4, 9):
        assert len(sampler(num, seed).x) == num


def test_sample_is_that_of_the_model(seed: tf.Tensor) -> None:
    model = small_model()
    first = model.sample(8, tf.random.experimental.stateless_fold_in(seed, 0))
    np.testing.assert_array_equal(sample(model, 8, seed).x, first.x)


def test_bad_input(seed: tf.Tensor) -> None:
    with pytest.raises(ValueError, match="num must be at least 1, got 0"):
        sample(small_model(), 0, seed)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        Sampler(small_model(), batch_size=0)
    with pytest.raises(ValueError, match="block be at least 1"):
        linear_bits(tf.zeros([1, 2]), tf.zeros([2, 2]), tf.zeros([2]), block=0)
