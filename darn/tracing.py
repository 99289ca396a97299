"""Compiled functions that belong to one model each.

TensorFlow warns of a function that it traces often, and tells functions apart by their code. A function within a
function has one code for all models, so that a search over architectures would look like one function that is traced
again and again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

__all__ = ["Graphs", "of_one_model"]

_count = itertools.count(1)


def of_one_model(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with a code of its own."""
    code = function.__code__
    function.__code__ = code.replace(co_name=f"{code.co_name} {next(_count)}")
    return function


class Graphs:
    """Compiled functions by what they depend on, so that each is traced once. A copy is empty: they cannot be copied,
    and belong to the variables of one model.
    """

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """The function of this key; `make` makes it the first time."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def __reduce__(self) -> tuple[type[Graphs], tuple[()]]:
        return Graphs, ()
