"""The two ways in which `compression.fit` makes a network smaller, with what each of them alone can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

__all__ = ["KL_WEIGHTS", "Bayesian", "Magnitude", "method_of"]

KL_WEIGHTS = (1.0, 0.3, 0.1, 0.03)
"""Weights of the KL, to which it is raised in one training."""


@dataclass(frozen=True)
class Bayesian:
    """Weights get a posterior, and the units go that the data do not need; the other units need fewer bits.

    :param prior: see `compress`.
    :param kl_weight: 1 is the variational bound; less keeps more. To several weights it is raised in one training, from
        the lowest to the highest. What is left is kept on the way; the last phase follows for the network at the end
        and, by halves, for earlier ones, as many in all as there are weights, and the smallest is taken with which the
        validation loss rises by less than half a standard error; if there is none, that of the lowest validation loss.
    :param polish_epochs: after `epochs`, train what is left with a KL of the weight `polish_kl`, or `kl_weight` if that
        is less.
    :param polish_kl: a weight of the KL.
    :param settings: of the Bayesian layers, such as `scale_speed`.
    """

    prior: Literal["gnj", "ghs", "svd"] = "gnj"
    kl_weight: float | Sequence[float] = KL_WEIGHTS
    polish_epochs: int = 0
    polish_kl: float = 0.1
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Magnitude:
    """The smallest weights become 0, for files that are smaller at the same error, of networks that are no faster.

    :param keep: part of the weights that is left; of several the first is taken that does no more harm.
    :param values: how many values the weights of a layer share in the end, besides 0; as many as there are weights if
        not given.
    """

    keep: float | Sequence[float] = (0.02, 0.05, 0.1, 0.2)
    values: int | None = None

    def __post_init__(self) -> None:
        if not all(0 < part <= 1 for part in np.ravel(self.keep)):
            raise ValueError(f"keep must be above 0 and at most 1, got {self.keep}.")
        if self.values is not None and not 1 <= self.values <= 255:
            raise ValueError(f"values must be 1 to 255, got {self.values}.")


_OF_KERAS = ("class_weight", "sample_weight")
"""Arguments of `keras.Model.fit` that `fit` does not take."""

_METHODS: dict[str, type[Bayesian] | type[Magnitude]] = {"bayesian": Bayesian, "magnitude": Magnitude}


def method_of(method: object, others: Mapping[str, object]) -> Bayesian | Magnitude:
    """A method by its name, with its defaults, or as it was given.

    :param others: further arguments of `fit`, of which there must be none.
    :raises TypeError: if there are, saying where they go.
    :raises ValueError: if the method is neither.
    """
    for name in others:
        if name in _OF_KERAS:
            raise TypeError(
                f"fit() has no {name}=; give a loss that weighs each example by its target, or repeat rows."
            )
        # Say which method has a setting of this name.
        owners = [kind.__name__ for kind in _METHODS.values() if name in {part.name for part in fields(kind)}]
        place = f"{owners[0]}({name}=...)" if owners else f'Bayesian(settings={{"{name}": ...}})'
        raise TypeError(f"fit() has no {name}=; say it of the method: method=compression.{place}.")
    if isinstance(method, Bayesian | Magnitude):
        return method
    if method not in _METHODS:
        raise ValueError(
            'method must be "bayesian" or "magnitude", or compression.Bayesian(...) or compression.Magnitude(...), '
            f"got {method!r}."
        )
    return _METHODS[method]()
