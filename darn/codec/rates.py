"""How many bits an image takes: coded with a DARN, by the model's description length, and by general compressors."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from darn.model.description_length import description_length
from darn.model.model import DARN

__all__ = ["bits_per_image", "notes", "table"]


def bits_per_image(
    images: ArrayLike, data: bytes, *, model: DARN, seed: tf.Tensor, num_samples: int = 1
) -> dict[str, float]:
    """Bits an image of a file, and what else these images would take.

    :param images: [N, n_x] of zeros and ones.
    :param data: what `coding.encode` made of them.
    :param model: the model that was coded with.
    :param seed: int32 [2].
    :param num_samples: draws of h for the expected description length; 0 leaves it out.
    :return: "file"; "description length"; "raw", one bit for each unit; and "zlib", "bz2", "lzma" at their strongest,
        with eight units in a byte.
    """
    # General compressors get eight units in a byte: a byte for each would not be what a user has.
    rows = np.asarray(images)
    packed = np.packbits(rows.astype(np.uint8), axis=1).tobytes()
    bits = {"file": 8 * len(data) / len(rows)}
    if num_samples:
        lengths = description_length(model, rows, seed=seed, num_samples=num_samples, unit="bits")
        bits["description length"] = float(lengths.total.mean())
    bits["raw"] = float(rows.shape[1])
    bits["zlib"] = 8 * len(zlib.compress(packed, 9)) / len(rows)
    bits["bz2"] = 8 * len(bz2.compress(packed, 9)) / len(rows)
    bits["lzma"] = 8 * len(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME)) / len(rows)
    return bits


def table(bits: Mapping[str, float]) -> list[list[str]]:
    """:func:`bits_per_image` as cells of text, with a line of titles."""
    rows = [["", "bits an image", "% of raw"]]
    return rows + [[name, f"{value:.3f}", f"{100 * value / bits['raw']:.2f}"] for name, value in bits.items()]


def notes(bits: Mapping[str, float]) -> list[str]:
    """How far the file is from the description length, as lines of text."""
    if "description length" not in bits:
        return []
    return [f"the file is {100 * (bits['file'] / bits['description length'] - 1):+.3f} % from the description length"]
