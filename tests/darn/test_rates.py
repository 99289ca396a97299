"""Bits an image: of the file, of the model, and of general compressors."""

import bz2
import lzma
import zlib

import numpy as np
import pytest
import tensorflow as tf

from darn.codec import rates
from darn.model.description_length import description_length
from darn.model.model import DARN, DARNConfig


def test_bits_are_per_image(rng: np.random.Generator, seed: tf.Tensor) -> None:
    images = (rng.uniform(size=(40, 11)) < 0.2).astype(np.uint8)
    model = DARN(DARNConfig(11, (3,)), seed=seed, data=images)
    found = rates.bits_per_image(images, bytes(70), model=model, seed=seed, num_samples=3)
    packed = b"".join(np.packbits(row).tobytes() for row in images)  # two bytes a row
    assert len(packed) == 80
    assert found["file"] == 14.0
    assert found["raw"] == 11.0
    assert found["zlib"] == 8 * len(zlib.compress(packed, 9)) / 40
    assert found["bz2"] == 8 * len(bz2.compress(packed, 9)) / 40
    assert found["lzma"] == 8 * len(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME)) / 40
    nats = description_length(model, images, seed=seed, num_samples=3).total.mean()
    assert found["description length"] == pytest.approx(nats / np.log(2))
    without = rates.bits_per_image(images, bytes(70), model=model, seed=seed, num_samples=0)
    assert without == {name: value for name, value in found.items() if name != "description length"}


def test_the_text_says_what_the_numbers_are() -> None:
    bits = {"file": 5.0, "description length": 4.0, "raw": 16.0}
    assert rates.table(bits) == [
        ["", "bits an image", "% of raw"],
        ["file", "5.000", "31.25"],
        ["description length", "4.000", "25.00"],
        ["raw", "16.000", "100.00"],
    ]
    assert rates.notes(bits) == ["the file is +25.000 % from the description length"]
    assert rates.notes({"file": 5.0, "raw": 16.0}) == []
