"""rbm_tracking.model.random: known answers of Threefry, uniformity, independence of keys, the same bits under XLA."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from rbm_tracking.model import random
from tests.statistical import assert_mean_close

GENERATORS = pytest.mark.parametrize("generator", random.GENERATORS)
FALSE_ALARM = 1e-7


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_has_the_published_answers(
    key: tuple[int, int], counter: tuple[int, int], expected: tuple[int, int]
) -> None:
    words = [tf.constant(word, tf.uint32) for word in (*key, *counter)]
    assert tuple(int(word) for word in random.threefry(*words)) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ((0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xA4093822, 0x299F31D0), None),
    ],
)
def test_philox_is_the_published_function(key: tuple[int, int], expected: tuple[int, ...] | None) -> None:
    """Of the counters 0, 1, ...: by the answer in Random123, and by ten rounds in Python."""
    bits = random.random_bits(tf.bitcast(tf.constant(key, tf.uint32), tf.int32), (3, 4), "philox").numpy()
    if expected is not None:
        assert tuple(bits[0]) == expected
    for counter, row in enumerate(bits.tolist()):
        assert row == philox(counter, key)


def philox(counter: int, key: tuple[int, int]) -> list[int]:
    """Philox-4x32-10 of (counter, 0, 0, 0)."""
    x, (k0, k1) = [counter, 0, 0, 0], key
    for _ in range(10):
        first, second = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        mask = 0xFFFFFFFF
        x = [(second >> 32) ^ x[1] ^ k0, second & mask, (first >> 32) ^ x[3] ^ k1, first & mask]
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return x


def test_bits_are_those_of_the_counters_from_0(seed: tf.Tensor) -> None:
    """Number i is the first word of Threefry of the counter (i, 0), whatever the shape."""
    key = tf.bitcast(seed, tf.uint32)
    counter = tf.range(6000, dtype=tf.int32)
    expected, _ = random.threefry(key[0], key[1], tf.bitcast(counter, tf.uint32), tf.zeros([6000], tf.uint32))
    np.testing.assert_array_equal(random.random_bits(seed, (60, 100)), tf.reshape(expected, [60, 100]))


@GENERATORS
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_numbers_are_uniform(seed: tf.Tensor, generator: str, dtype: tf.DType) -> None:
    u = random.uniform(random.key_at(seed, 3, 1), (1000, 200), dtype, generator).numpy().ravel()
    assert u.min() >= 0
    assert u.max() < 1
    counts = np.histogram(u, bins=500, range=(0, 1))[0]
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    assert stats.chisquare(np.histogram(np.sort(u)[:2000], bins=20, range=(0, 0.01))[0][:18]).pvalue > FALSE_ALARM


@GENERATORS
def test_every_bit_is_balanced_and_independent_of_its_neighbours(seed: tf.Tensor, generator: str) -> None:
    words = random.random_bits(random.key_at(seed, 0, 0), (60_000,), generator).numpy()
    bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert_mean_close(bits, 0.5, num_se=6, min_detectable=0.013)
    signs = 2.0 * bits - 1.0
    for lag in (1, 2, 20, 784):  # the same bit of later numbers, and the next bit
        assert_mean_close(signs[lag:] * signs[:-lag], 0.0, num_se=6, min_detectable=0.026)
    assert_mean_close(signs[:, 1:] * signs[:, :-1], 0.0, num_se=6, min_detectable=0.026)


@GENERATORS
def test_keys_of_neighbouring_steps_sites_and_seeds_are_independent(seed: tf.Tensor, generator: str) -> None:
    base = random.key_at(seed, 7, 2)
    u = random.uniform(base, (50_000,), tf.float64, generator).numpy() - 0.5
    for other in (
        random.key_at(seed, 8, 2),
        random.key_at(seed, 7, 3),
        random.key_at(seed + tf.constant([1, 0]), 7, 2),
        random.key_at(seed + tf.constant([0, 1]), 7, 2),
        base[::-1],
    ):
        w = random.uniform(other, (50_000,), tf.float64, generator).numpy() - 0.5
        for lag in (0, 1, 2):
            assert_mean_close(12 * u[lag:] * w[: len(w) - lag], 0.0, num_se=6, min_detectable=0.03)


@GENERATORS
def test_pairs_fill_the_square(seed: tf.Tensor, generator: str) -> None:
    u = random.uniform(random.key_at(seed, 0, 5), (100_000, 2), tf.float64, generator).numpy()
    counts = np.histogram2d(u[:, 0], u[:, 1], bins=20, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(counts.ravel()).pvalue > FALSE_ALARM


@GENERATORS
def test_xla_gives_the_same_bits(seed: tf.Tensor, generator: str) -> None:
    def draw(seed: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        return random.uniform(random.key_at(seed, step, 4), (7, 3), tf.float32, generator)

    compiled = tf.function(draw, jit_compile=True, autograph=False)
    for step in (0, 1, 2**31 - 1):
        np.testing.assert_array_equal(compiled(seed, tf.constant(step)), draw(seed, tf.constant(step)))


def test_keys_do_not_collide(seed: tf.Tensor) -> None:
    keys = {tuple(random.key_at(seed, step, site).numpy()) for step in range(100) for site in (0, 1, 2, 1 << 20)}
    assert len(keys) == 400


@GENERATORS
def test_bernoulli_has_its_means(seed: tf.Tensor, generator: str) -> None:
    logits = tf.constant([-3.0, -0.5, 0.0, 2.0])
    draws = random.bernoulli(random.key_at(seed, 0, 0), tf.tile(logits[None], [40_000, 1]), generator)
    assert set(np.unique(draws)) == {0.0, 1.0}
    assert_mean_close(draws, tf.sigmoid(logits), min_detectable=0.02)
    np.testing.assert_array_equal(random.bernoulli(random.key_at(seed, 0, 0), tf.constant([-1e4, 1e4])), [0.0, 1.0])


def test_unknown_generator_is_refused(seed: tf.Tensor) -> None:
    with pytest.raises(ValueError, match=r"generator must be one of threefry, hash, philox, got 'mt19937'"):
        random.uniform(seed, (2,), generator="mt19937")
