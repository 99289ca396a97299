"""Functions that a factory makes, one for each architecture, and that TensorFlow compiles."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

__all__ = ["counted_alone"]

_numbers = itertools.count()


def counted_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with code that no other function has.

    TensorFlow counts tracings by the code of a function and warns where they are frequent. All functions of one factory
    have the same code, so five networks, each compiled once, would look like one function compiled five times.
    """
    function.__code__ = function.__code__.replace(co_name=f"{function.__name__}_{next(_numbers)}")
    return function
