"""Which layers of a DARN see which (Gregor et al., 2014, Section 2.2, Eqs. 7-8): the one order of all passes.

Layer 0 is the visible one, 1 to L are the stochastic ones. In the decoder a layer sees the next one above it, in the
encoder the next one below; with skip connections all of them. Passes go from the top down or from the visible layer up,
and are the same for floating-point numbers (`model`) and for integers (`integer_model`): who calls says what a bit is
and how bits are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Wiring"]

Bits = TypeVar("Bits")


@dataclass(frozen=True)
class Wiring:
    """The layers of a model.

    :param sizes: units of each layer, the visible one first.
    :param skip: layers see all layers beyond them.
    """

    sizes: tuple[int, ...]
    skip: bool

    @property
    def top(self) -> int:
        """Number of the top layer L; 0 without stochastic layers."""
        return len(self.sizes) - 1

    def above(self, level: int) -> range:
        """The layers that layer `level` sees in the decoder; none for the top layer."""
        return range(level + 1, (self.top if self.skip else min(level + 1, self.top)) + 1)

    def below(self, level: int) -> range:
        """The layers that layer `level`, from 1 on, sees in the encoder."""
        return range(0 if self.skip else level - 1, level)

    def upward(self, x: Bits, draw: Callable[[int, list[Bits]], Bits]) -> list[Bits]:
        """Bits of all layers by the encoder, from those of the visible layer.

        :param draw: bits of a layer, from its number and the bits of the layers that it sees.
        """
        bits = [x]
        for level in range(1, self.top + 1):
            bits.append(draw(level, [bits[other] for other in self.below(level)]))
        return bits

    def downward(self, draw: Callable[[int, list[Bits]], Bits]) -> list[Bits]:
        """Bits of all layers by the decoder, drawn from the top layer down to the visible one."""
        bits: dict[int, Bits] = {}
        for level in range(self.top, -1, -1):
            bits[level] = draw(level, [bits[other] for other in self.above(level)])
        return [bits[level] for level in range(self.top + 1)]

    def seen_above(self, bits: Sequence[Bits], level: int) -> list[Bits]:
        """Of known bits of all layers those that layer `level` sees in the decoder."""
        return [bits[other] for other in self.above(level)]

    def seen_below(self, bits: Sequence[Bits], level: int) -> list[Bits]:
        """Of known bits of the layers below `level` at least those that it sees in the encoder."""
        return [bits[other] for other in self.below(level)]
