"""Compiled functions that belong to one model each.

TensorFlow counts tracings by the code of a function and warns where they are frequent. All functions that one factory
makes have the same code, so that five models, each compiled once, would look like one function compiled five times.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

__all__ = ["Graphs", "counted_alone"]

P = ParamSpec("P")
T = TypeVar("T")

_numbers = itertools.count(1)


def counted_alone(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, with code that no other function has; for `tf.function` around it."""
    code = function.__code__
    function.__code__ = code.replace(co_name=f"{code.co_name}_{next(_numbers)}")
    return function


class Graphs:
    """Compiled functions by what they depend on, so that each is traced once.

    They belong to the variables of one model and cannot be copied: a copy of this, or one from a pickle, is empty.
    """

    def __init__(self) -> None:
        self._functions: dict[object, Any] = {}

    def get(self, key: object, make: Callable[[], T]) -> T:
        """The function of this key; `make` makes it the first time."""
        # Made once, at the first call with this key.
        if key not in self._functions:
            self._functions[key] = make()
        return self._functions[key]

    def __reduce__(self) -> tuple[type[Graphs], tuple[()]]:
        return Graphs, ()
