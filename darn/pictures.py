"""What a DARN looks like: samples, filters, activities as arrays, for images and for rows taken as images [1, D]."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from darn.model.model import DARN
from darn.train.training import Trainer

__all__ = ["filters", "glance", "nearest", "pictures"]

Rows = np.ndarray

MAX_PIXELS = 4096  # of images that are sampled at evaluations


def glance(
    trainer: Trainer, rows: Rows, seeds: Callable[[str], tf.Tensor], shape: tuple[int, int] | None
) -> tuple[dict[str, NDArray], dict[str, tf.Tensor]]:
    """A look at the model in training: pictures [n, H, W], and the mean activity of the units of each layer.

    :param shape: of an image, or None if the rows are none.
    """
    model = trainer.model
    # Activities of the units of q(h | x), then draws of the model and what its units add.
    activity = {}
    images = {}
    with trainer.averaged():
        if model.encoders:
            x = tf.constant(rows[:1000], model.dtype)
            for level, h in enumerate(model.encode(x, model.encoder_noise(len(x), seeds("activity"))).h, start=1):
                activity[f"activity/layer_{level}"] = tf.reduce_mean(h, axis=0)
        if shape is not None and model.config.visible <= MAX_PIXELS:
            images["samples"] = model.sample(36, seeds("samples")).probs.numpy().reshape(-1, *shape)
            units = filters(model, shape)
            images |= {} if units is None else {"filters": units}
    return images, activity


def pictures(model: DARN, seed: tf.Tensor, train: Rows, shape: tuple[int, int]) -> dict[str, NDArray]:
    """Samples [n, H, W], the training image nearest to each, and the probabilities that they were drawn with.

    :param train: [N, H W].
    :param shape: H and W.
    """
    # Large images are few: 40 of them would be megabytes of a page.
    sampled = model.sample(6 if math.prod(shape) > MAX_PIXELS else 40, seed)
    shown = (sampled.probs if model.config.observations == "intensities" else sampled.x).numpy()
    images = {"samples": shown, "nearest training images": nearest(shown, train)}
    images["probabilities of the samples"] = sampled.probs.numpy()
    return {title: values.reshape(-1, *shape) for title, values in images.items()}


def filters(model: DARN, shape: tuple[int, int]) -> NDArray[np.float32] | None:
    """What each of up to 100 units next to the image adds to the logits of the pixels, [U, H, W] around grey 0.5; None
    if these units are not dense."""
    kernels = getattr(model.decoders[0].network, "kernels", None)
    if kernels is None:
        return None
    maps = model.decoders[0].conditional.offset_size // model.config.visible  # of a PixelCNN the first adds to logits
    values = kernels[-1].numpy()[:100, ::maps].reshape(-1, *shape)
    return np.asarray(0.5 + 0.5 * values / (np.abs(values).max() or 1.0))


def nearest(images: Rows, train: Rows) -> Rows:
    """The row of `train` [N, D] with the least squared distance from each of `images` [n, D]."""
    best = np.full(len(images), np.inf)
    nearest_rows = np.zeros_like(images)
    for start in range(0, len(train), 5000):
        rows = train[start : start + 5000].astype(np.float32)
        # Squared distances but for |x|^2, which is the same for all training rows.
        distance = (rows**2).sum(axis=1)[None] - 2.0 * images @ rows.T
        row = distance.argmin(axis=1)
        closest = distance[np.arange(len(images)), row]
        nearest_rows[closest < best] = rows[row[closest < best]]
        best = np.minimum(best, closest)
    return nearest_rows
