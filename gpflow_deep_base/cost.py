"""What a fit will cost, said where it is more than a minute: also to who has not asked for its progress.

cost = Cost(max_updates, "updates")
for number in range(max_updates):
    ...
    cost(number + 1)

It is a line of Python's logging by the name "gpflow_deep", which standard error shows unless a program decides
otherwise: `logging.getLogger("gpflow_deep").setLevel("ERROR")` is silence.
"""

from __future__ import annotations

import logging
import time

__all__ = ["Cost", "tell"]

LEAST_SECONDS = 60.0
"""Of what is left, from which on something is said."""

MEASURED_SECONDS = 3.0
"""Of steps by which the others are estimated; the first ones, which compile, are not among them."""


def tell(text: str) -> None:
    """One line for whoever waits."""
    logging.getLogger("gpflow_deep").warning(text)


class Cost:
    """Says, once, what the steps of a fit that are left will take, if that is more than a minute.

    :param total: steps at most.
    :param unit: what they are called, in the plural.
    """

    def __init__(self, total: int, unit: str) -> None:
        self._total = total
        self._unit = unit
        self._first: tuple[int, float] | None = None
        self._is_said = False

    def __call__(self, done: int) -> None:
        """So many steps are done.

        :param done: from 1.
        """
        moment = time.monotonic()
        # Time is taken from the end of the first step, which may compile.
        if self._first is None:
            self._first = done, moment
            return
        first, start = self._first
        # Few seconds tell too little, and one line is enough.
        if self._is_said or moment - start < MEASURED_SECONDS or done <= first:
            return
        self._is_said = True
        # The other steps take as long as those so far, on average.
        wait = (moment - start) / (done - first) * (self._total - done)
        if wait > LEAST_SECONDS:
            tell(f"{done} of at most {self._total} {self._unit} are done; the others may take {wait / 60:.0f} min")
