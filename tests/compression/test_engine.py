"""An epoch against gradient descent in NumPy: batches, loss, learning rate, what is returned; and shifted images."""

import operator
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.train.engine import epoch_function, flipped, shifted
from compression.train.recipes.classification import Examples, nll
from tests.compression.oracles import log_softmax, percent_wrong

N, B, D, K = 23, 5, 4, 3  # 4 batches, 3 rows are left over


@pytest.fixture
def examples(rng: np.random.Generator) -> Examples:
    return Examples(tf.constant(rng.normal(size=(N, D)), tf.float32), tf.constant(rng.integers(0, K, N), tf.int32))


def softmax_regression(rng: np.random.Generator) -> keras.Model:
    model = keras.Sequential([keras.Input([D]), keras.layers.Dense(K)])
    model.set_weights([rng.normal(size=weight.shape) for weight in model.get_weights()])
    return model


def sgd(model: keras.Model) -> keras.optimizers.Optimizer:
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.build(model.trainable_variables)
    return optimizer


def test_an_epoch_is_gradient_descent_on_shuffled_batches(examples: Examples, rng: np.random.Generator) -> None:
    model = softmax_regression(rng)
    kernel, bias = (weight.astype(np.float64) for weight in model.get_weights())
    seed, first, optimizer = tf.constant([3, 7]), 10, sgd(model)
    optimizer.iterations.assign(first)
    run = epoch_function(
        model,
        optimizer,
        examples,
        batch_size=B,
        learning_rate=lambda step: 0.1 / (1.0 + step),
        kl_weight=lambda step: 1e9,  # a plain network has no KL
    )
    nll, wrong = run(seed)
    X, labels = (np.array(value) for value in examples)
    order = tf.random.experimental.stateless_shuffle(tf.range(N), seed).numpy()
    nlls, percents = [], []
    for i in range(N // B):
        rows = order[i * B : (i + 1) * B]
        outputs = X[rows].astype(np.float64) @ kernel + bias
        log_p = log_softmax(outputs)
        nlls.append(-np.mean([p[label] for p, label in zip(log_p, labels[rows], strict=True)]))
        percents.append(percent_wrong(outputs, labels[rows]))
        gradient = (np.exp(log_p) - np.eye(K)[labels[rows]]) / B
        rate = 0.1 / (1.0 + first + i)
        kernel, bias = kernel - rate * X[rows].T @ gradient, bias - rate * gradient.sum(axis=0)
    assert float(nll) == pytest.approx(np.mean(nlls), rel=1e-5)
    assert 100 * float(wrong) == pytest.approx(np.mean(percents), rel=1e-5)
    np.testing.assert_allclose(model.get_weights()[0], kernel, rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.get_weights()[1], bias, rtol=0, atol=1e-6)


def test_the_kl_is_weighed_by_the_step_and_divided_by_all_rows(examples: Examples) -> None:
    """One step of gradient descent with and without the KL, with the same noise: of the means mu, whose KL is
    mu^2 / 2 + ... (Eq. 8), the difference is rate * weight / N * mu."""
    found = []
    for factor in (0.0, 0.5):
        plain = keras.Sequential(
            [keras.Input([D]), keras.layers.Dense(K, kernel_initializer=keras.initializers.HeNormal(1))]
        )
        model = bc.compress(plain, num_train=N, seed=2)
        start = model.layers[0].kernel_mean.numpy()
        optimizer = sgd(model)
        optimizer.iterations.assign(6)
        run = epoch_function(
            model,
            optimizer,
            examples,
            batch_size=N,
            learning_rate=lambda step: 0.2,
            kl_weight=partial(operator.mul, factor),
        )
        run(tf.constant([1, 2]))
        found.append(model.layers[0].kernel_mean.numpy())
    np.testing.assert_allclose(found[0] - found[1], 0.2 * (0.5 * 6) / N * start, rtol=0, atol=1e-6)
    assert np.abs(found[0] - start).max() > 1e-3


def test_regularisers_count_as_in_keras(examples: Examples) -> None:
    """One step of gradient descent with and without 0.5 |W|^2: the difference is rate * W."""
    found = []
    for regularizer in (None, keras.regularizers.L2(0.5)):
        model = keras.Sequential([keras.Input([D]), keras.layers.Dense(K, kernel_regularizer=regularizer)])
        start = np.arange(D * K).reshape(D, K) / 10.0
        model.layers[0].kernel.assign(start)
        options: dict[str, Any] = {"learning_rate": lambda step: 0.2, "kl_weight": lambda step: 1.0}
        run = epoch_function(model, sgd(model), examples, batch_size=N, **options)
        run(tf.constant([1, 2]))
        found.append(model.layers[0].kernel.numpy())
    np.testing.assert_allclose(found[0] - found[1], 0.2 * start, rtol=0, atol=1e-6)


def test_epochs_are_a_function_of_their_seed(examples: Examples, rng: np.random.Generator) -> None:
    model = softmax_regression(rng)
    start = model.get_weights()
    optimizer = sgd(model)
    run = epoch_function(
        model, optimizer, examples, batch_size=B, learning_rate=lambda step: 0.1, kl_weight=lambda step: 0.0
    )
    found = []
    for seed in ([1, 2], [1, 2], [1, 3]):
        model.set_weights(start)
        run(tf.constant(seed))
        found.append(model.get_weights()[0])
    np.testing.assert_array_equal(found[0], found[1])
    assert np.any(found[0] != found[2])


def test_each_batch_of_images_is_shifted_in_its_own_way(rng: np.random.Generator) -> None:
    """With a learning rate of 0 the mean error is that of the network on the images shifted by (seed, batch)."""
    images = Examples(
        tf.constant(rng.normal(size=(6, 4, 4, 1)), tf.float32), tf.constant(rng.integers(0, K, 6), tf.int32)
    )
    model = keras.Sequential([keras.Input([4, 4, 1]), keras.layers.Flatten(), keras.layers.Dense(K)])
    seed = tf.constant([5, 5])
    run = epoch_function(
        model, sgd(model), images, batch_size=2, learning_rate=lambda step: 0.0, kl_weight=lambda step: 0.0, shift=2
    )
    nll, _ = run(seed)
    order = tf.random.experimental.stateless_shuffle(tf.range(6), seed).numpy()
    nlls = []
    for i in range(3):
        rows = order[2 * i : 2 * i + 2]
        moved = shifted(tf.gather(images.X, rows), 2, tf.random.fold_in(seed, i))
        log_p = log_softmax(model(moved).numpy().astype(np.float64))
        nlls += [-p[label] for p, label in zip(log_p, images.labels.numpy()[rows], strict=True)]
    assert float(nll) == pytest.approx(np.mean(nlls), rel=1e-5)


def test_flipped_images_are_mirrored_half_of_the_time(rng: np.random.Generator) -> None:
    X = rng.normal(size=(400, 3, 5, 2)).astype(np.float32)
    found = tf.function(flipped)(X, tf.constant([3, 5])).numpy()
    mirrored = np.array([np.array_equal(a, b[:, ::-1]) for a, b in zip(found, X, strict=True)])
    np.testing.assert_array_equal(found[~mirrored], X[~mirrored])
    assert abs(mirrored.sum() - 200) < 50  # five standard errors
    np.testing.assert_array_equal(flipped(X, tf.constant([3, 5])), found)
    assert np.any(flipped(X, tf.constant([3, 6])) != found)


def test_each_batch_of_images_is_flipped_in_its_own_way(rng: np.random.Generator) -> None:
    """With a learning rate of 0 the mean error is that of the network on the images mirrored by (seed, batch)."""
    images = Examples(tf.constant(rng.normal(size=(6, 2, 3, 1)), tf.float32), tf.constant([0, 1, 1, 0, 1, 0]))
    model = keras.Sequential([keras.Input([2, 3, 1]), keras.layers.Flatten(), keras.layers.Dense(2)])
    run_epoch = epoch_function(
        model, sgd(model), images, batch_size=3, learning_rate=lambda step: 0.0, kl_weight=lambda step: 0.0, flip=True
    )
    seed = tf.constant([1, 2])
    order = tf.random.experimental.stateless_shuffle(tf.range(6), seed).numpy()
    losses = []
    for i in range(2):
        rows = order[3 * i : 3 * i + 3]
        X = flipped(tf.gather(images.X, rows), tf.random.fold_in(tf.random.fold_in(seed, 2), i))
        losses.append(nll(model(X), tf.gather(images.labels, rows), probabilities=False))
    np.testing.assert_allclose(run_epoch(seed)[0], np.mean(losses), rtol=1e-5)


def test_shifted_images_are_moved_each_by_its_own(rng: np.random.Generator) -> None:
    X = rng.normal(size=(400, 5, 4, 2)).astype(np.float32)
    moved = tf.function(shifted)(X, 1, tf.constant([3, 5])).numpy()
    assert moved.dtype == np.float32
    padded = np.pad(X, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="edge")
    moves = {(i, j): padded[:, i : i + 5, j : j + 4] for i in range(3) for j in range(3)}
    counts = {move: int(np.sum(np.all(image == moved, axis=(1, 2, 3)))) for move, image in moves.items()}
    assert sum(counts.values()) == len(X)
    assert min(counts.values()) > 20  # 44 +- 6 of each
    np.testing.assert_array_equal(shifted(X, 1, tf.constant([3, 5])), moved)
    assert np.any(shifted(X, 1, tf.constant([3, 6])) != moved)
    np.testing.assert_array_equal(shifted(X, 0, tf.constant([3, 5])), X)
