"""A stack of bits for bits-back coding: asymmetric numeral systems (Duda, 2009), by the package `constriction`.

    stack = BitStack(b"...")
    stack.push(bits, logits)
    stack.pop(logits)                        # the same bits

Each bit is coded as whether it differs from its more probable value, with the probabilities of `integer_sums`, which
all machines agree on. Bits may be popped from a stack that holds other data: they come out distributed by their
probabilities, and pushing them again restores the stack. A stack that is empty gives the more probable values, and
takes them back for nothing.
"""

from __future__ import annotations

import copy
import functools
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from darn.codec.integer_sums import PRECISION_BITS, logit_index, probability_table

__all__ = ["BitStack"]

_ZERO = np.array(0.0)  # an array, with which NumPy is quicker to start than with a number


@functools.cache
def _constriction() -> ModuleType:
    try:
        import constriction
    except ImportError as error:
        raise ValueError(
            "coding needs the package constriction; `pip install 'gpflow-deep[packed]'`, or `pip install constriction`."
        ) from error
    return constriction  # type: ignore[no-any-return]


@functools.cache
def _rarer() -> NDArray[np.float64]:
    """Probabilities of the less probable value, by the place of |logit|."""
    return probability_table() * 2.0**-PRECISION_BITS


class BitStack:
    """Bits, of which those pushed last are popped first.

    :param content: what :meth:`to_bytes` gave; nothing for an empty stack.
    :raises ValueError: if the content ends in a zero byte, which :meth:`to_bytes` never gives; or if the package
        `constriction` is not installed.
    """

    def __init__(self, content: bytes = b"") -> None:
        if content.endswith(b"\0"):
            raise ValueError("the coded bytes end in zeros: the data are damaged.")
        library = _constriction()
        words = np.frombuffer(content + bytes(-len(content) % 4), "<u4").astype(np.uint32)
        self._coder = library.stream.stack.AnsCoder(words)
        self._model = library.stream.model.Bernoulli(perfect=False)

    def copy(self) -> BitStack:
        """Another stack that holds the same."""
        found = copy.copy(self)
        found._coder = self._coder.clone()
        return found

    def push(self, bits: NDArray[Any], logits: NDArray[np.float64]) -> None:
        """Code bits [n, B]; `pop` of the same logits gives them back."""
        differs = ((bits != 0) != (logits > _ZERO)).astype(np.int32)
        self._coder.encode_reverse(differs.ravel(), self._model, _rarer().take(logit_index(logits).ravel()))

    def pop(self, logits: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Bits [n, B] of these logits."""
        differs = self._coder.decode(self._model, _rarer().take(logit_index(logits).ravel()))
        return (differs.reshape(logits.shape) != (logits > _ZERO)).view(np.uint8)

    @property
    def num_bits(self) -> int:
        """How many bits it holds."""
        return int(self._coder.num_valid_bits())

    def to_bytes(self) -> bytes:
        """All that it holds, without zero bytes at the end."""
        return bytes(self._coder.get_compressed().astype("<u4").tobytes().rstrip(b"\0"))
