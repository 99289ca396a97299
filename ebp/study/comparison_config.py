"""What a `Comparison` compares, and the units of work that it consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from ..estimators.baselines import RIVALS
from ..network.coding import Kind

__all__ = ["METHODS", "WEIGHTS", "ComparisonConfig", "Unit", "units_of"]

METHODS = ("ebp", *RIVALS)
WEIGHTS = ("real", "binary", "ternary")


@dataclass(frozen=True)
class ComparisonConfig:
    """What is compared.

    :param weights: kinds of weights to train by expectation backpropagation, each on its own: real, binary, ternary.
    :param methods: what to train: ebp, and backpropagation of the cross-entropy (bp_ce) or of the squared error
        (bp_mse), or tested with the signs of its weights (bp_clipped), and arow.
    :param hidden: widths of the hidden layers; empty for none.
    :param epochs: passes over the training data.
    :param batch_size: examples whose updates are added; 1 for the online Bayes update of the paper.
    :param num_seeds: number of seeds: the first one and those after it.
    :param num_rival_seeds: number of these seeds for all methods but ebp; their tuning takes time.
    :param input_coding: how inputs are coded for networks, learned from training rows, see ebp/network/coding.py; auto
        chooses by the data.
    :param softmax: for several classes, a softmax in place of one sign neuron for each class.
    :param dtype: precision of expectation backpropagation.
    :param num_votes: also test, and export, the vote of this many networks drawn from the posterior; 0: no vote is
        tested, and the export is of the most probable weights, 5 votes or 11, by the labels of training rows.
    :raises ValueError: naming the field that is out of range.
    """

    weights: tuple[str, ...] = ("binary",)
    methods: tuple[str, ...] = ("ebp",)
    hidden: tuple[int, ...] = (120,)
    epochs: int = 3
    batch_size: int = 10
    num_seeds: int = 1
    num_rival_seeds: int = 1
    input_coding: Literal["auto", "raw", "scaled", "root", "common", "zscore", "centred", "sign"] = "auto"
    softmax: bool = False
    dtype: Literal["float32", "float64"] = "float32"
    num_votes: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (("weights", WEIGHTS), ("methods", METHODS)):
            values: tuple[str, ...] = getattr(self, name)
            unknown = [value for value in values if value not in allowed]
            if unknown or not values or len(set(values)) < len(values):
                got = ", ".join(unknown or values) or "nothing"
                raise ValueError(f"{name} may list {', '.join(allowed)}, each once, got {got}.")
        if self.input_coding not in ("auto", *get_args(Kind)):
            kinds = ", ".join(("auto", *get_args(Kind)))
            raise ValueError(f"input_coding must be one of {kinds}, got {self.input_coding!r}.")
        if not all(width >= 1 for width in self.hidden):
            raise ValueError(
                f"hidden must list positive widths such as 500,500, got {','.join(map(str, self.hidden))}."
            )
        for name in ("epochs", "batch_size", "num_seeds", "num_rival_seeds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.num_votes < 0:
            raise ValueError(f"num_votes must not be negative, got {self.num_votes}; 0 is for none.")


class Unit(NamedTuple):
    """An epoch of expectation backpropagation, or all epochs of a rival, with a seed on a fold.

    :ivar method: the kind of weights, or the rival.
    """

    method: str
    seed: int
    fold: int
    epoch: int


def units_of(config: ComparisonConfig, seeds: range, num_folds: int) -> list[Unit]:
    """All units of work, in order."""
    units = []
    for seed in seeds:
        for fold in range(num_folds):
            for weights in config.weights if "ebp" in config.methods else ():
                units += [Unit(weights, seed, fold, epoch) for epoch in range(config.epochs)]
            if seed < seeds.start + config.num_rival_seeds:
                units += [Unit(method, seed, fold, 0) for method in config.methods if method != "ebp"]
    return units
