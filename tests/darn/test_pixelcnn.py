"""PixelCNN: what pixels see, probabilities, samples, parents, and the model around it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from darn import DARN, DARNConfig, PixelCNNConfig, encode, exact_log_likelihood, load_darn, save_darn
from darn.images.pixelcnn import PixelCNNConditional
from darn.model.autoregressive import Conditional, logistic_noise, threshold
from darn.model.description_length import description_length, importance_log_likelihood
from darn.train.training import Trainer, TrainingConfig
from tests.darn.rows import every_row

SMALL = {"filters": 2, "layers": 3, "first_kernel": 3, "maps": 2}


def make(shape: tuple[int, int], seed: tf.Tensor, **options: int) -> PixelCNNConditional:
    """In float64 with all parameters random."""
    found = PixelCNNConditional(PixelCNNConfig(shape, **{**SMALL, **options}), seed=seed, dtype=tf.float64)
    for i, variable in enumerate(found.trainable_variables):
        key = tf.random.experimental.stateless_fold_in(seed, i)
        variable.assign(0.7 * tf.random.stateless_normal(variable.shape, key, dtype=tf.float64))
    return found


def offset_of(pixels: PixelCNNConditional, num: int, seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_normal([num, pixels.offset_size], seed, dtype=tf.float64)


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (1, 5), (4, 1)])
def test_probabilities_sum_to_one(shape: tuple[int, int], seed: tf.Tensor) -> None:
    pixels = make(shape, seed)
    vectors = tf.constant(every_row(pixels.n), tf.float64)
    for offset in (None, offset_of(pixels, 1, seed)):
        np.testing.assert_allclose(tf.reduce_sum(tf.exp(pixels.log_prob(vectors, offset))), 1.0, rtol=1e-12)


def test_a_pixel_sees_all_earlier_pixels_and_no_other(seed: tf.Tensor, rng: np.random.Generator) -> None:
    """By the gradient, and by turning each bit over; of eight images, as rectifiers may be off in one of them."""
    pixels = make((4, 5), seed, layers=5, filters=4)
    h, offset = tf.constant(rng.uniform(size=(8, 20))), offset_of(pixels, 8, seed)
    with tf.GradientTape() as tape:
        tape.watch(h)
        logits = pixels.logits(h, offset)
    jacobian = tape.batch_jacobian(logits, h).numpy()  # [images, j, k]
    is_earlier = np.tril(np.ones([20, 20], bool), -1)
    np.testing.assert_array_equal((jacobian != 0).any(axis=0), is_earlier)
    bits = rng.integers(0, 2, (8, 1, 20)).astype(float)
    turned = np.abs(bits - np.eye(20))  # row k has bit k turned over
    every = pixels.logits(tf.constant(turned), offset[:, None]) - pixels.logits(tf.constant(bits), offset[:, None])
    np.testing.assert_array_equal((every.numpy() != 0).any(axis=0), is_earlier.T)


def test_windows_reach_as_far_as_they_say(seed: tf.Tensor, rng: np.random.Generator) -> None:
    """One layer sees a window of its kernel: rows above, and to the left."""
    pixels = make((5, 7), seed, layers=1, first_kernel=5, filters=4)
    h = tf.constant(rng.uniform(size=(8, 35)))
    with tf.GradientTape() as tape:
        tape.watch(h)
        logit = pixels.logits(h)[:, 3 * 7 + 3]
    seen = (tape.gradient(logit, h).numpy() != 0).any(axis=0).reshape(5, 7)
    expected = np.zeros([5, 7], bool)
    expected[1:3, 1:6], expected[3, 1:3] = True, True
    np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize("shape", [(4, 5), (1, 6), (6, 1)])
def test_the_sampler_is_drawing_pixel_by_pixel(shape: tuple[int, int], seed: tf.Tensor) -> None:
    """And the same as fixed points of whole images."""
    pixels = make(shape, seed)
    noise = logistic_noise([30, pixels.n], seed, tf.float64)
    for offset in (None, offset_of(pixels, 30, seed), offset_of(pixels, 1, seed)[0]):
        drawn = pixels.sample_from_noise(noise, offset).numpy()
        h = np.zeros_like(drawn)
        for j in range(pixels.n):
            h[:, j] = threshold(pixels.logits(tf.constant(h), offset), noise)[:, j]
        np.testing.assert_array_equal(drawn, h)
        np.testing.assert_array_equal(drawn, Conditional.sample_from_noise(pixels, noise, offset))


def test_maps_pass_through_the_gates_and_to_the_logits(seed: tf.Tensor) -> None:
    pixels = make((3, 3), seed)
    h = tf.cast(tf.random.stateless_uniform([4, 9], seed) < 0.5, tf.float64)
    offset = tf.reshape(offset_of(pixels, 4, seed), [4, 9, 2])
    whole = pixels.logits(h, tf.reshape(offset, [4, -1]))
    for layer in pixels.layers:
        layer.of_maps.assign(tf.zeros_like(layer.of_maps))
    added = pixels.logits(h, tf.reshape(offset, [4, -1])) - pixels.logits(h)
    np.testing.assert_allclose(added, offset[..., 0], atol=1e-12)
    through_gates = (whole - pixels.logits(h) - offset[..., 0]).numpy()
    assert (through_gates != 0).any(axis=0).all()  # of four images, as rectifiers may be off in one of them
    distribution = make((3, 3), seed).as_distribution(tf.reshape(offset, [4, -1]))
    assert distribution.sample(2, seed=1).shape == [2, 4, 9]
    assert distribution.log_prob(h).shape == [4]


def model_of(seed: tf.Tensor, data: np.ndarray | None = None, **fields: Any) -> DARN:
    config = DARNConfig(6, (3,), visible_conditional="pixelcnn", pixelcnn=PixelCNNConfig((2, 3), **SMALL), **fields)
    return DARN(config, seed=seed, data=data)


def test_the_model_around_it(seed: tf.Tensor, tmp_path: Path) -> None:
    """Its probabilities sum to one by both enumerations; files give it back; it cannot be coded, by name."""
    model = model_of(seed, dtype="float64")
    for i, variable in enumerate(model.trainable_variables):
        key = tf.random.experimental.stateless_fold_in(seed, i)
        variable.assign_add(0.5 * tf.random.stateless_normal(variable.shape, key, dtype=tf.float64))
    x = every_row(6)
    exact = exact_log_likelihood(model, x)
    np.testing.assert_allclose(np.exp(exact).sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(model.log_prob(x), exact, rtol=1e-10)
    estimated = importance_log_likelihood(model, x[:4], seed=seed, num_samples=3000, repeats=2)
    np.testing.assert_allclose(estimated.log_likelihood, exact[:4], atol=0.2)
    save_darn(model, tmp_path / "darn.npz")
    drawn = model.sample(20, 3)
    np.testing.assert_allclose(drawn.probs, tf.sigmoid(model.visible_logits(drawn.x, drawn.h)), rtol=1e-10)
    again = load_darn(tmp_path / "darn.npz")
    assert again.config == model.config
    np.testing.assert_array_equal(exact_log_likelihood(again, x), exact)
    np.testing.assert_array_equal(again.sample(20, 3).x, model.sample(20, 3).x)
    with pytest.raises(ValueError, match="a PixelCNN cannot be coded"):
        encode(model, x.astype(np.uint8))


@pytest.mark.slow
@pytest.mark.ci
def test_training_shortens_the_description(seed: tf.Tensor, rng: np.random.Generator) -> None:
    """Pixels that repeat the one above: three bits of six are new, ln 8 = 2.08 nats."""
    top = rng.integers(0, 2, (300, 3))
    x = np.concatenate([top, top], axis=1).astype(np.uint8)
    model = model_of(seed, x)
    before = description_length(model, x, seed=1).total.mean()
    trainer = Trainer(model, TrainingConfig(learning_rate=0.03), num_data=len(x))
    trainer.advance(x, rng.integers(0, len(x), (200, 50)), seed)
    after = description_length(model, x, seed=1).total.mean()
    assert after < 2.5 < 4.0 < before
    bound = description_length(model, x, seed=1, num_samples=50).total.mean()  # its noise is below 1e-3
    assert exact_log_likelihood(model, x).mean() >= -bound - 5e-3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"visible_conditional": "pixelcnn"}, "needs `pixelcnn`"),
        ({"pixelcnn": PixelCNNConfig((2, 3))}, "nothing else takes it"),
        ({"visible_conditional": "pixelcnn", "pixelcnn": PixelCNNConfig((2, 2))}, "need visible=4"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DARNConfig(6, (3,), **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kernel": 2}, "kernel of a PixelCNN must be odd"),
        ({"maps": 0}, "maps of a PixelCNN must be a whole number, at least 1"),
    ],
)
def test_bad_settings_are_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PixelCNNConfig((2, 3), **fields)
