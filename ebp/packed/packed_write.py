"""The bytes of the file of a packed network, checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.storage.frame import framed, leb128

from ..network.coding import InputCoding
from ..network.convolution import Convolved
from .packed_file import FILE_VERSION, MAGIC, coding_bytes, parse
from .signs import INT32_MAX

__all__ = ["Weights", "content_of"]


class Weights(NamedTuple):
    """One network of binary weights.

    :ivar signs: of each layer the weights -1 or +1, [n_in, n_out].
    :ivar biases: of each layer real biases [n_out], or None for none.
    :ivar convolutions: of each layer, or None; empty for none. Their n_in and n_out are those of a filter.
    """

    signs: Sequence[np.ndarray]
    biases: Sequence[np.ndarray | None]
    convolutions: Sequence[Convolved | None] = ()


def content_of(
    networks: Sequence[Weights], fraction_bits: int | None, coding: InputCoding | None, classes: ArrayLike | None
) -> bytes:
    """The file of one network or several of the same shape; see `export.export_packed`.

    :raises ValueError: if a weight is not -1 or +1, a bias is not finite, or shapes, coding or classes do not fit.
    """
    shapes = None
    payload = []
    dtype = _bias_dtype(networks)
    # Bits of the weights, then thresholds, or biases of the last layer.
    for number, weights in enumerate(networks):
        signs, biases = _checked(weights, f"network {number}")
        if shapes is not None and [list(w.shape) for w in signs] != shapes:
            raise ValueError(f"all networks of a file must have the shapes {shapes}, network {number} has others.")
        shapes = [list(w.shape) for w in signs]
        for i, (w, b) in enumerate(zip(signs, biases, strict=True)):
            payload.append(np.packbits(w.T > 0, axis=1, bitorder="little").tobytes())
            is_last = i == len(signs) - 1
            # Thresholds are in units of the sums: fractions of inputs, or pool x pool signs for their mean.
            below = weights.convolutions[i - 1] if i and weights.convolutions else None
            scale = 2.0 ** (fraction_bits or 0) if i == 0 else below.pool**2 if below is not None else 1.0
            payload.append((b.astype(dtype) if is_last else _thresholds(b, scale)).tobytes())
    convolutions = networks[0].convolutions
    if any(weights.convolutions != convolutions for weights in networks):
        raise ValueError("all networks of a file must have the same convolutions.")
    # What all networks have in common.
    header = {
        "shapes": shapes,
        "networks": len(networks),
        "fraction_bits": fraction_bits,
        "bias_dtype": dtype,
        "coding": None if coding is None else coding.kind,
        "classes": None if classes is None else np.asarray(classes).tolist(),
        "convolutions": [None if shared is None else list(shared) for shared in convolutions] or None,
    }
    try:
        head = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        content = framed(MAGIC, FILE_VERSION, b"".join([leb128(len(head)), head, coding_bytes(coding), *payload]))
        parse(content, Path("the network"))  # what cannot be read is not written
    except (TypeError, ValueError) as error:
        raise ValueError(f"coding and classes must fit the network: {error.__cause__ or error}.") from error
    return content


def _bias_dtype(networks: Sequence[Weights]) -> str:
    last = [weights.biases[-1] for weights in networks if len(weights.biases)]
    is_single = all(b is None or np.asarray(b).dtype == np.float32 for b in last)
    return "<f4" if is_single else "<f8"


def _checked(weights: Weights, what: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    signs = [np.asarray(w) for w in weights.signs]
    if not signs or len(signs) != len(weights.biases):
        raise ValueError(
            f"{what} needs at least one layer and as many biases as layers, got {len(signs)} and {len(weights.biases)}."
        )
    biases = []
    # Layer by layer: shapes that fit the one before, weights -1 and +1, and finite biases.
    for i, (w, b) in enumerate(zip(signs, weights.biases, strict=True)):
        fits = i == 0 or len(weights.convolutions) > 0 or w.shape[0] == signs[i - 1].shape[1]
        if w.ndim != 2 or 0 in w.shape or not fits:
            raise ValueError(f"signs of layer {i} of {what} must be [n_in, n_out] and fit, got {list(w.shape)}.")
        if not np.all((w == 1) | (w == -1)):
            raise ValueError(
                f"weights of layer {i} of {what} must be -1 or +1, got others such as {w[(w != 1) & (w != -1)][0]}; "
                "only networks of binary weights can be packed."
            )
        b = np.zeros(w.shape[1]) if b is None else np.asarray(b)
        if b.shape != (w.shape[1],) or b.dtype.kind not in "iuf" or not np.all(np.isfinite(b)):
            raise ValueError(f"biases of layer {i} of {what} must be {w.shape[1]} finite numbers, got {list(b.shape)}.")
        biases.append(b)
    return signs, biases


def _thresholds(b: np.ndarray, scale: float) -> NDArray[np.int32]:
    """The least integer sum with sum / scale + b >= 0. Sums are below 2^31, so larger thresholds act alike."""
    exact = np.ceil(-b.astype(np.float64) * scale)  # scale is a power of two
    return np.clip(exact, -INT32_MAX, INT32_MAX).astype("<i4")
