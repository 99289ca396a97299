"""Philox by its published test vectors and by TensorFlow, normal numbers by SciPy, and bits that never change."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import ndtri
from scipy.stats import chi2

from compression.files.random_codes.random_numbers import (
    UNIT,
    chosen_normals,
    log_ratios,
    normal_table,
    permutation,
    philox,
    places,
)


@pytest.fixture
def key(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


@pytest.mark.parametrize(
    ("counter", "seed", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "0000000000000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("243f6a88 85a308d3 13198a2e 03707344", "299f31d0a4093822", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_published_words(counter: str, seed: str, expected: str) -> None:
    """Those that Salmon et al. publish with their code."""
    words = philox(np.array([int(word, 16) for word in counter.split()]), int(seed, 16))
    assert [f"{word:08x}" for word in words] == expected.split()


def test_philox_is_that_of_tensorflow(rng: np.random.Generator) -> None:
    for _ in range(5):
        counter, seed = rng.integers(2**31, size=4), int(rng.integers(2**62))
        state = [counter[0] | counter[1] << 32, counter[2] | counter[3] << 32]
        found = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[4], key=tf.constant([seed], tf.uint64), counter=tf.constant(state, tf.uint64), alg=1, dtype=tf.uint32
        )
        np.testing.assert_array_equal(philox(counter, seed), found)


def test_the_table_has_the_quantiles_and_no_rounding_is_close() -> None:
    """So that no machine, whose logarithms and roots are right to ten digits, can round one of them another way."""
    table = normal_table()
    exact = ndtri((np.arange(len(table)) + 0.5) / len(table)) * UNIT
    np.testing.assert_array_equal(table, np.rint(exact))
    assert np.min(np.abs(exact - np.floor(exact) - 0.5)) > 1e-4
    np.testing.assert_array_equal(table, -table[::-1])
    assert np.mean(np.square(table / UNIT)) == pytest.approx(0.99984, abs=1e-5)


def test_draws_are_functions_of_their_place(key: int) -> None:
    """Of seed, block and number, not of how many are made with it; and each of the 8192 values is as likely."""
    table, ends = normal_table(), np.array([5, 6, 25])
    together = chosen_normals(table, key, 7, np.array([3, 9, 3]), ends)
    for i, (index, start, end) in enumerate(zip((3, 9, 3), (0, 5, 6), ends, strict=True)):
        alone = chosen_normals(table, key, 7 + i, np.array([index]), np.array([end - start]))
        np.testing.assert_array_equal(together[start:end], alone)
    many = chosen_normals(table, key, 0, np.zeros(1, np.int64), np.array([1 << 19]))
    counts = np.bincount(np.searchsorted(table, many), minlength=len(table))
    _, inverse = np.unique(table, return_inverse=True)  # quantiles may be equal after rounding
    expected = np.bincount(inverse) * (1 << 19) / len(table)
    observed = np.array([counts[np.searchsorted(table, value)] for value in np.unique(table)])
    statistic = np.sum((observed - expected) ** 2 / expected)
    assert 1e-6 < chi2.sf(statistic, len(expected) - 1) < 1 - 1e-6


def test_scores_are_quadratic_functions_of_the_draws(rng: np.random.Generator, key: int) -> None:
    a, b = rng.normal(size=(2, 19))
    found = log_ratios(normal_table(), key, 4, a, b, 50)
    for k in (0, 1, 49):
        g = chosen_normals(normal_table(), key, 4, np.array([k]), np.array([19])) / UNIT
        assert found[k] == pytest.approx(np.sum(a * g**2 + b * g), rel=1e-12)


def test_orders_and_places(key: int) -> None:
    order = permutation(key, 1000)
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    assert np.any(permutation(key + 1, 1000) != order)
    at = places(key, 0, 100_000, 10)
    assert np.any(places(key, 1, 100_000, 10) != at)
    assert np.all(np.abs(np.bincount(at) - 10_000) < 6 * np.sqrt(9_000))


def test_bits_never_change() -> None:
    """A file of today has to give the same weights for ever."""
    normals = chosen_normals(normal_table(), 5, 2, np.array([1000, 3]), np.array([9, 12]))
    assert normals.tolist() == NORMALS
    assert permutation(5, 12).tolist() == ORDER
    assert places(5, 1, 8, 6).tolist() == PLACES


NORMALS = [-2833, 4357, 1604, -3859, -2577, -126, -5544, 2037, -3698, 1347, 205, 6286]
ORDER = [1, 5, 0, 11, 6, 9, 7, 8, 2, 3, 4, 10]
PLACES = [1, 2, 3, 4, 3, 0, 2, 0]
