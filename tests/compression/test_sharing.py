"""Values that the weights of a layer share: one step by NumPy, what a training leaves, and how many bits it takes."""

import keras
import numpy as np
import pytest

import compression as bc
from compression.files.container import kernels_of
from compression.rounding.codebook import codebook

layers = keras.layers


def network(rng: np.random.Generator, keep: float = 0.5) -> keras.Model:
    """Kernels of which some weights are 0."""
    model = keras.Sequential([keras.Input([8]), layers.Dense(30, "tanh"), layers.Dense(2)])
    weights = [rng.normal(size=w.shape) for w in model.get_weights()]
    model.set_weights([np.where(rng.uniform(size=w.shape) < keep, w, 0) if w.ndim > 1 else w for w in weights])
    return model


def bits(values: np.ndarray) -> float:
    """Entropy of the values, in bits."""
    counts = np.unique(values, return_counts=True)[1] / values.size
    return float(-np.sum(counts * np.log2(counts)))


def test_a_step_goes_a_part_of_the_way_to_the_cheapest_value(rng: np.random.Generator) -> None:
    model = network(rng)
    w = kernels_of(model)[0]
    nonzero = w[w != 0].astype(np.float64)
    book = codebook(w[w != 0], 4, seed=0)
    centres, counts = book.centres.astype(np.float64), book.counts
    sharing = bc.ValueSharing(model, 4, epochs=3, rate=0.2)
    assert [sharing.strength_at(epoch) for epoch in (0, 1.5, 3, 9)] == pytest.approx([1e-4, 1e-2, 1, 1])
    sharing.set_params({"steps": 10})
    sharing.on_epoch_begin(1)
    sharing.on_train_batch_begin(5)
    cost = 0.2 * nonzero.var() * -np.log2((counts + 0.5) / (counts + 0.5).sum())
    nearest = np.argmin((nonzero[:, None] - centres) ** 2 + cost, axis=1)
    means = np.array([nonzero[nearest == j].mean() for j in range(4)])
    expected = w.astype(np.float64)
    expected[w != 0] += 1e-2 * (means[nearest] - nonzero)
    constraint = model.layers[0].kernel.constraint
    np.testing.assert_allclose(constraint(w), expected, rtol=0, atol=1e-6)
    sharing.on_epoch_begin(3)
    sharing.on_train_batch_begin(0)
    moved = w + rng.normal(scale=0.5, size=w.shape).astype(np.float32) * (w != 0)
    shared = np.asarray(constraint(moved))  # each weight keeps its value, which is the mean of its weights
    for j in range(4):
        here = np.flatnonzero(w)[nearest == j]
        np.testing.assert_allclose(shared.ravel()[here], moved.ravel()[here].mean(), rtol=1e-5)


def test_weights_share_values_after_training(rng: np.random.Generator) -> None:
    """At most k values; zeros stay; a higher rate takes fewer bits."""
    X = rng.normal(size=(300, 8)).astype(np.float32)
    labels = (X[:, 0] > 0).astype(np.int32)
    weights, found = network(rng).get_weights(), []
    for rate in (0.0, 0.3):
        model = network(rng)
        model.set_weights(weights)
        model.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        sharing = bc.ValueSharing(model, 6, epochs=4, rate=rate)
        model.fit(X, labels, epochs=4 if rate else 6, batch_size=20, verbose=0, callbacks=[sharing])
        kernels = kernels_of(model)
        for now, then in zip(kernels, (weights[0], weights[2]), strict=True):
            np.testing.assert_array_equal(now == 0, then == 0)
            assert len(np.unique(now[now != 0])) <= 6
        found.append(bits(kernels[0][kernels[0] != 0]))
    assert found[1] < found[0] - 0.2


def test_settings_out_of_range(rng: np.random.Generator) -> None:
    model = network(rng)
    for k, epochs, rate in ((0, 1, 0.0), (256, 1, 0.0), (4, -1, 0.0), (4, 1, -0.1), (4, 1, np.inf)):
        with pytest.raises(ValueError, match="k must be 1 to 255, epochs and rate finite and at least 0, got k="):
            bc.ValueSharing(model, k, epochs=epochs, rate=rate)
