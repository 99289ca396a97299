"""How an RBM is trained and tracked: the values that are chosen before."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from gpflow_deep_base.numbers.groups import by_group, grouped
from rbm_tracking.model.random import NOISES, Generator

__all__ = [
    "FALLING",
    "METHODS",
    "SCHEDULES",
    "DecayConfig",
    "Method",
    "PenaltyConfig",
    "SMLConfig",
    "Schedule",
    "ScheduleName",
]

Bias = Literal["both", "learned", "none"]
BIASES: tuple[str, ...] = get_args(Bias)
Method = Literal["tempering", "pcd", "cd"]
METHODS: tuple[str, ...] = get_args(Method)
ScheduleName = Literal["paper", "constant", "linear", "cosine"]
SCHEDULES: tuple[str, ...] = get_args(ScheduleName)
FALLING = ("linear", "cosine")
"""Schedules that end at `decay_steps`."""
Schedule = ScheduleName | Callable[[int], float]


@dataclass(frozen=True)
class DecayConfig:
    """How the learning rate falls, by the schedule.

    :param learning_rate_decay: alpha of the learning rate min(epsilon_0 alpha / (t + 1), epsilon_0) at update t of the
        schedule paper; it is constant if this is not given.
    :param decay_steps: the update T at which a linear or cosine schedule is at zero.
    :param hold: part of T before the rate begins to fall.
    """

    learning_rate_decay: float | None = None
    decay_steps: int | None = None
    hold: float = 0.3

    def __post_init__(self) -> None:
        check_positive("learning_rate_decay", self.learning_rate_decay)
        if self.decay_steps is not None and self.decay_steps < 1:
            raise ValueError(f"decay_steps must be at least 1, got {self.decay_steps}.")
        if not 0 <= self.hold < 1:
            raise ValueError(f"hold must be at least 0 and below 1, got {self.hold}.")


@dataclass(frozen=True)
class PenaltyConfig:
    """What pulls at the parameters beside the likelihood.

    :param l2: weight decay: the step has -learning rate l2 W in it.
    :param l1: how strongly weights are pulled to zero: each step ends with all of them nearer to it by learning rate
        l1, so that many are exactly 0.
    :param sparsity_target: mean activity of each hidden unit on data that hidden biases are pulled to; None for none.
    :param sparsity_cost: how strongly: the step of a hidden bias has learning rate sparsity_cost (target - activity).
    """

    l2: float = 1e-4
    l1: float = 0.0
    sparsity_target: float | None = None
    sparsity_cost: float = 0.1

    def __post_init__(self) -> None:
        for name in ("l1", "l2", "sparsity_cost"):
            if not 0 <= (value := getattr(self, name)) < np.inf:
                raise ValueError(f"{name} must be finite and not negative, got {value}.")
        if self.sparsity_target is not None and not 0 < self.sparsity_target < 1:
            raise ValueError(f"sparsity_target must be between 0 and 1, got {self.sparsity_target}.")


def check_positive(name: str, value: float | None) -> None:
    """Check what has to be positive, if it is given.

    :raises ValueError: naming it.
    """
    if value is not None and not 0 < value < np.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}.")


@grouped
@dataclass(frozen=True)
class SMLConfig:
    """How to train and track. The defaults are those that did best on six sets; :meth:`paper` has those of the paper.

    :param learning_rate: learning rate epsilon_0 of the ascent on the likelihood.
    :param schedule: of the learning rate: paper, constant, linear or cosine as in
        :mod:`rbm_tracking.track.updates.schedules`, or a function of the update t that gives the rate itself.
    :param method: whose particles drive the gradient: those at beta = 1 of the ladder and its target chains
        (tempering, the paper's); the target chains alone, which then keep away from the ladder (pcd); chains that start
        at the minibatch in each update (cd). With pcd and cd the ladder only tracks.
    :param target_chains: more chains at beta = 1, outside of the ladder. With tempering they take turns in it. None:
        100, and 0 with cd.
    :param gibbs_steps: rounds of Gibbs sampling in each update.
    :param gradient_chains: how many of the N chains at beta = 1 estimate the gradient; None for all. The others only
        track, and are free of the bias of those that the gradient has pushed away.
    :param centred: use the centred gradient (Melchior, Fischer and Wiskott, 2016), for which the coding of a pixel as 0
        or 1 makes no difference.
    :param momentum: part of the last change of the parameters that is made again.
    :param average: decay of the moving average of the parameters, or (1 + t) / (10 + t) at update t where that is less;
        0 for none.
    :param adaptive: adapt the temperatures to the flow of particles (SML-APT).
    :param track: track log Z; without it this is plain SML-PT.
    :param bias: how the bias b_t of the estimated change of log Z is removed: learned by the filter, as in the paper;
        both: its first order is computed from the particles and the rest is learned; none: a filter without it.
    :param generator: generator of the noise; hash is faster; numpy also trains in NumPy, best for small models.
    :param decay: how the learning rate falls.
    :param penalties: what pulls at the parameters beside the likelihood.
    :raises ValueError: naming the field that is wrong.
    """

    learning_rate: float = 0.1
    schedule: Schedule = "constant"
    method: Method = "tempering"
    target_chains: int | None = None
    gibbs_steps: int = 1
    gradient_chains: int | None = None
    centred: bool = True
    momentum: float = 0.0
    average: float = 0.999
    adaptive: bool = False
    track: bool = True
    bias: Bias = "both"
    generator: Generator = "threefry"
    decay: DecayConfig = DecayConfig()
    penalties: PenaltyConfig = PenaltyConfig()

    @classmethod
    def paper(cls, **changes: Any) -> "SMLConfig":
        """The recipe of Desjardins et al. (2011): its rate, no more chains than those of the ladder, no averages, no
        decay of weights, the plain gradient.

        :param changes: fields with other values, whatever group they are in.
        """
        # What the defaults have besides is left out.
        recipe = {"learning_rate": 0.01, "schedule": "paper", "target_chains": 0, "centred": False}
        return cls(**by_group(cls, {**recipe, "l2": 0.0, "average": 0.0, **changes}))

    def __post_init__(self) -> None:
        # CD starts at the minibatch: it has no chains of its own.
        if self.target_chains is None:
            object.__setattr__(self, "target_chains", 0 if self.method == "cd" else 100)
        # Fields that are chosen by name.
        choices = {"bias": BIASES, "generator": NOISES, "method": METHODS}
        choices |= {} if callable(self.schedule) else {"schedule": SCHEDULES}
        for name, names in choices.items():
            if getattr(self, name) not in names:
                raise ValueError(f"{name} must be one of {', '.join(names)}, got {getattr(self, name)!r}.")
        # Ranges of the numbers.
        check_positive("learning_rate", self.learning_rate)
        counts = {"gibbs_steps": 1, "gradient_chains": 1, "target_chains": 0}
        for name, least in counts.items():
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}.")
        for name in ("momentum", "average"):
            if not 0 <= (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {value}.")
        self._check_together()

    def _check_together(self) -> None:
        # The schedule and what it needs.
        if self.schedule in FALLING and self.decay.decay_steps is None:
            raise ValueError(
                f"schedule={self.schedule} needs decay_steps, the update at which the rate is zero, got None."
            )
        if self.decay.learning_rate_decay is not None and self.schedule != "paper":
            raise ValueError(
                f"learning_rate_decay is of schedule=paper, got it with schedule={self.schedule}; leave out one of "
                "them."
            )
        # The method and its chains.
        if self.method == "pcd" and not self.target_chains:
            raise ValueError("method=pcd needs target_chains, the persistent chains of its gradient, got 0.")
        if self.method == "cd" and self.target_chains:
            raise ValueError(
                f"method=cd starts its chains at the minibatch and has no target_chains, got {self.target_chains}."
            )
        if self.method != "tempering" and self.gradient_chains is not None:
            raise ValueError(f"gradient_chains is of method=tempering, got it with method={self.method}.")
