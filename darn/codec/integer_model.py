"""A DARN in integers: probabilities that are the same bits on every machine, for any batch size and number of threads.

The wiring and the passes are those of the model (`wiring`, `layers.forward`); what is computed in them is exact
(`integer_sums`, `integer_layers`). Numbers are [n, B], bits first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from darn.codec.integer_layers import Bits, IntegerLayer
from darn.codec.integer_sums import Numbers, probability_table, tanh_table
from darn.model.layers import Layer
from darn.model.model import DARN

__all__ = ["FORMAT_VERSION", "IntegerModel"]

FORMAT_VERSION = 2
"""Changes when the arithmetic changes; it is part of :attr:`IntegerModel.digest`."""


class IntegerModel:
    """The integer form of a trained DARN.

    :ivar visible: number of visible units.
    :ivar wiring: which layers see which.
    :ivar decoders: p(x | h), p(h^1 | h^2, ...), ..., p(h^L).
    :ivar encoders: q(h^1 | x), q(h^2 | h^1, ...), ....
    :ivar digest: 32 bytes, which differ between models that code differently.

    :raises ValueError: if the model is not for binary data, is a mixture over orders of the bits, or has weights that
        are too large.
    """

    def __init__(self, model: DARN) -> None:
        config = model.config
        if config.observations != "binary":
            raise ValueError(
                f"only models of binary data can code, got observations={config.observations!r}; train with 'binary', "
                "on grey levels by --bit_planes."
            )
        self.visible, self.wiring = config.visible, model.wiring
        mean = np.clip(model.visible_mean.numpy().astype(np.float64), 0.0, 1.0)
        shifts = [mean, *(np.full(n, 0.5) for n in config.hidden)]  # networks get 2 h - 1 = 2 (h - 1/2)
        scales = [np.ones(config.visible), *(np.full(n, 2.0) for n in config.hidden)]

        def made(layer: Layer, levels: range, name: str) -> IntegerLayer:
            shift, scale = (_joined([part[level] for level in levels]) for part in (shifts, scales))
            return IntegerLayer(layer, shift, scale, name)

        above, below = self.wiring.above, self.wiring.below
        self.decoders = [made(layer, above(i), f"decoder {i}") for i, layer in enumerate(model.decoders)]
        self.encoders = [made(layer, below(i), f"encoder {i}") for i, layer in enumerate(model.encoders, start=1)]
        self.digest = self._hash(config.to_json())

    def encoder_offset(self, level: int, below: Sequence[Bits], batch_size: int) -> Numbers:
        """Logits of q(h^level | the layers below) without its own bits, [n, B]."""
        return self.encoders[level - 1].offset(np.concatenate(below), batch_size)

    def decoder_offset(self, level: int, above: Sequence[Bits], num: int, batch_size: int) -> Numbers:
        """Logits of p(h^level | the layers above) without its own bits, [n, num]."""
        parents = np.concatenate(above) if above else np.empty([0, num], np.uint8)
        return self.decoders[level].offset(parents, batch_size)

    def _hash(self, config: str) -> bytes:
        digest = hashlib.sha256(json.dumps([FORMAT_VERSION, config]).encode())
        digest.update(probability_table().astype("<i4").tobytes() + tanh_table().astype("<i4").tobytes())
        for layer in (*self.encoders, *self.decoders):
            layer.update_hash(digest)
        return digest.digest()


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.empty(0)
