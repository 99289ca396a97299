"""Codebooks: nearest centres by definition, k-means against the best split, fine-tuning of centres."""

import numpy as np
import pytest
import tensorflow as tf

from compression.rounding.codebook import codebook, fine_tune, nearest


def test_every_weight_takes_its_nearest_centre(rng: np.random.Generator) -> None:
    weights = rng.normal(size=(20, 30)).astype(np.float32)
    book = codebook(weights, 16, seed=1)
    assert book.centres.dtype == np.float16
    assert len(book.centres) == 16
    assert book.values.shape == weights.shape
    every = np.abs(weights[..., None].astype(np.float64) - book.centres.astype(np.float64))
    np.testing.assert_allclose(np.abs(book.values.astype(np.float64) - weights), every.min(axis=-1), rtol=1e-12)
    np.testing.assert_array_equal(book.counts, [np.sum(book.values == np.float32(c)) for c in book.centres])


def test_two_clusters_are_the_best_split(rng: np.random.Generator) -> None:
    weights = np.sort(rng.normal(size=30))
    splits = [weights[:i].var() * i + weights[i:].var() * (30 - i) for i in range(1, 30)]
    book = codebook(weights, 2)
    # Rounding a centre c to float16 adds at most (|c| 2**-11)**2 to each squared error, and weights stay below 4.
    assert np.sum((book.values - weights) ** 2) <= min(splits) + 30 * (4 * 2.0**-11) ** 2 + 1e-9


def test_the_same_seed_gives_the_same_book(rng: np.random.Generator) -> None:
    weights = rng.normal(size=500)
    a, b = codebook(weights, 8, seed=3), codebook(weights, 8, seed=3)
    np.testing.assert_array_equal(a.centres, b.centres)
    np.testing.assert_array_equal(a.indices, b.indices)


def test_few_distinct_values_are_kept_as_they_are() -> None:
    book = codebook(np.array([[0.5, 0.5], [-2.0, 0.5]]), 32)
    assert book.centres.tolist() == [-2.0, 0.5]
    assert book.values.tolist() == [[0.5, 0.5], [-2.0, 0.5]]
    assert codebook(np.zeros(3), 4).centres.tolist() == [0.0]


def test_zero_is_a_centre_of_zeros_alone_where_most_weights_are_zero(rng: np.random.Generator) -> None:
    weights = np.where(rng.uniform(size=400) < 0.7, 0.0, rng.uniform(1e-3, 1.0, 400)).astype(np.float32)
    book = codebook(weights, 4)
    np.testing.assert_array_equal(book.values == 0, weights == 0)
    assert len(book.centres) == 4


def test_centres_may_come_in_any_order() -> None:
    book = nearest([0.1, 0.9, 0.4], [1.0, 0.0])
    assert book.values.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("weights", "k", "message"),
    [([1.0], 0, "k must be 1 to 256"), ([1.0], 257, "got 257"), ([], 2, "at least one"), ([np.nan], 2, "finite")],
)
def test_bad_input(weights: list[float], k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        codebook(weights, k)


def test_fine_tuning_finds_the_means_and_keeps_the_indices(rng: np.random.Generator) -> None:
    weights = rng.normal(size=(40, 5)).astype(np.float32)
    start = nearest(weights, [-1.5, -0.25, 1.0])

    def loss_of(kernels: list[tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        del step
        return tf.reduce_mean(tf.square(kernels[0] - weights))

    (tuned,) = fine_tune([start], loss_of, steps=600, learning_rate=0.01)
    np.testing.assert_array_equal(tuned.indices, start.indices)
    means = [weights[start.indices == i].mean() for i in range(3)]
    np.testing.assert_allclose(tuned.centres, means, atol=2e-3)  # half a float16 step at 1 is 5e-4


def test_fine_tuning_merges_equal_centres() -> None:
    start = nearest([0.0, 0.001], [0.0, 0.001])

    def loss_of(kernels: list[tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        del step
        return 0.5 * tf.reduce_sum(tf.square(kernels[0] - 0.5))

    (tuned,) = fine_tune([start], loss_of, steps=2000, learning_rate=0.01)
    assert tuned.centres.tolist() == [0.5]
    assert tuned.indices.tolist() == [0, 0]
    with pytest.raises(ValueError, match="steps must not be negative"):
        fine_tune([start], loss_of, steps=-1)
