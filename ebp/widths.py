"""Widths of hidden layers as estimators take them."""

from __future__ import annotations

from numbers import Integral
from typing import Any

__all__ = ["layer_widths"]


def layer_widths(hidden: Any) -> tuple[int, ...]:
    """The widths as a tuple.

    :param hidden: a whole number, for one layer, or a sequence of them.
    :raises ValueError: if it is anything else, or a width is not positive.
    """
    widths: Any = (hidden,) if isinstance(hidden, Integral) else hidden
    try:
        is_valid = not isinstance(widths, str) and all(
            isinstance(width, Integral) and int(width) >= 1 for width in widths
        )
    except TypeError:
        is_valid = False
    if not is_valid:
        raise ValueError(
            f"hidden must be a positive whole number or a sequence of them such as (120,), got {hidden!r}."
        )
    return tuple(int(width) for width in widths)
