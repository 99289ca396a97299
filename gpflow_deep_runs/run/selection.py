"""Which evaluation of a run is the best so far."""

import math
from collections.abc import Callable, Mapping

from gpflow_deep_base.stopping import Best

__all__ = ["Rule", "lowest", "newest"]

Rule = Callable[[int, Best, Mapping[str, float]], Best]
"""(step, best so far, scalars of the evaluation) to the best now. A pure function, so that a resumed run agrees."""


def lowest(tag: str) -> Rule:
    """The evaluation with the smallest scalar `tag`.

    :raises FloatingPointError: by the rule, if the scalar is not finite.
    """

    def rule(step: int, best: Best, scalars: Mapping[str, float]) -> Best:
        value = scalars[tag]
        if not math.isfinite(value):
            raise FloatingPointError(f"{tag} is {value} after step {step}: training has diverged.")
        return best.after(step, value)

    return rule


def newest(step: int, best: Best, scalars: Mapping[str, float]) -> Best:
    """The last evaluation: for models that report their last parameters."""
    return Best(step, 0.0)
