"""How the posterior of a deep GP is sampled: the phases of a chain and their lengths.

| steps | with | for |
|---|---|---|
| `burn_in` at each of the temperatures to choose from | without held-out rows | `temperature` |
| `burn_in` for each of `noise_tries` variances of the noise | without held-out rows | the noise |
| `burn_in`, then `hyper_steps` | without held-out rows | hyperparameters that move |
| `burn_in`, then `sampling_steps` | all rows | the samples |

The first two phases are left out where a temperature is given, the second also without Gaussian noise that is free, the
third without `hyper_steps`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["HYPER_EVERY", "LADDER", "MIN_KEPT", "SamplingConfig"]

#: Temperatures that are tried, one after the other.
LADDER = (1.0, 0.3, 0.1, 0.03)

#: Sampling steps for each step of the hyperparameters, and between states in the window.
HYPER_EVERY = 4

#: The fewest samples to keep: effective sample sizes need them.
MIN_KEPT = 4


@dataclass(frozen=True)
class SamplingConfig:
    """How the posterior is sampled.

    :param num_kept: samples to keep, evenly from the sampling steps; at least 4, which effective sample sizes need.
    :param burn_in: steps before the first of them, and wherever the chain has to settle.
    :param sampling_steps: steps that samples are kept from.
    :param temperature: T of the density exp(-U / T) that is sampled. 1 is the posterior, less is nearer to its mode; if
        not given, the one of 1, 0.3, 0.1 and 0.03 at which held-out rows have the largest log density.
    :param noise_tries: how many variances of Gaussian noise are tried by held-out rows; 0 leaves it as it is.
    :param hyper_steps: steps of the chain during which hyperparameters move; 0 leaves them as training found them.
    :param hyper_rate: step size of Adam for hyperparameters.
    :param window: steps whose states hyperparameters are fitted to, and held-out rows are scored with.
    :param step_size: h, in standard deviations of q.
    :param friction: the smallest alpha.
    :param held_out: share of the rows that decide about temperature and hyperparameters.
    """

    num_kept: int = 32
    burn_in: int = 1000
    sampling_steps: int = 1600
    temperature: float | None = None
    noise_tries: int = 6
    hyper_steps: int = 0
    hyper_rate: float = 0.003
    window: int = 400
    step_size: float = 0.3
    friction: float = 0.1
    held_out: float = 0.1

    def __post_init__(self) -> None:
        least_of = {"num_kept": MIN_KEPT, "burn_in": 0, "noise_tries": 0, "hyper_steps": 0, "window": HYPER_EVERY}
        for name, least in least_of.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}.")
        if self.sampling_steps < self.num_kept:
            raise ValueError(
                f"sampling_steps must be at least num_kept = {self.num_kept}, got {self.sampling_steps}; each sample "
                "to keep takes a step."
            )
        for name in ("hyper_rate", "step_size", "temperature"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and np.isfinite(value)):
                raise ValueError(f"{name} must be a finite number above 0, got {value}.")
        # Held-out rows are scored by states of the window, which have to be of one temperature.
        if self.choosing and self.burn_in < self.window:
            raise ValueError(
                f"burn_in must be at least window = {self.window}, got {self.burn_in}; only with a temperature and "
                "without hyper_steps it may be less."
            )
        if not 0 < self.friction <= 1:
            raise ValueError(f"friction must be above 0 and at most 1, got {self.friction}.")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1, got {self.held_out}.")

    @property
    def ladder(self) -> tuple[float, ...]:
        """Temperatures to choose from."""
        return LADDER if self.temperature is None else ()

    @property
    def trying(self) -> tuple[int, int]:
        """The first step with another noise, and the step after the last one that is tried."""
        first = self.burn_in * len(self.ladder)
        return first, first + self.burn_in * self.noise_tries * (self.temperature is None)

    @property
    def adapting(self) -> tuple[int, int]:
        """The first step in which hyperparameters may move, and the step after the last one."""
        first = self.trying[1] + self.burn_in * (self.hyper_steps > 0)
        return first, first + self.hyper_steps

    @property
    def choosing(self) -> int:
        """The number of the first steps, without held-out rows."""
        return self.adapting[1]

    @property
    def sampling(self) -> tuple[int, int]:
        """The first step that samples are kept from, and the number of all steps."""
        first = self.choosing + self.burn_in
        return first, first + self.sampling_steps
