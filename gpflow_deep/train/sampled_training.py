"""Training, and then sampling: a chain whose steps follow those of a `Trainer`, for whoever counts steps.

trainer = SampledTrainer(Trainer(model, num_steps=5000), Sampler(model, X, Y))
trainer.advance(batch_at, first, 100, seed)       # as of a `Trainer`, until `trainer.is_done`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData

from ..model.deep_gp import DeepGP
from ..posteriors.sampling import Sampler, SamplingConfig
from .course import WINDOW, Course, TrainingConfig
from .training import Trainer, clear_errors

__all__ = ["SampledTrainer", "SamplingConfig", "trainer_for"]


class SampledTrainer:
    """A `Trainer` with a chain behind it: the members of a `Trainer`.

    :param trainer: with `num_steps`.
    :param sampler: of the same model.
    :raises ValueError: if the trainer has no `num_steps`, so that sampling would never begin.
    """

    def __init__(self, trainer: Trainer, sampler: Sampler) -> None:
        if trainer.course is None:
            raise ValueError("the trainer has no num_steps, so the chain would never begin; give some.")
        self.trainer = trainer
        self.sampler = sampler
        self.course = trainer.course
        self._begun_at = tf.Variable(-1, dtype=tf.int64, trainable=False, name="chain_begun_at")
        self._potential = np.nan

    @property
    def model(self) -> DeepGP:
        """The deep GP."""
        return self.trainer.model

    @property
    def is_settled(self) -> bool:
        """As of the `Trainer`."""
        return self.trainer.is_settled

    @property
    def seconds(self) -> float:
        """Spent in `advance`."""
        return float(self.trainer.seconds) + float(self.sampler.seconds)

    @property
    def max_steps(self) -> int:
        """The most steps of training and chain."""
        course: Course = self.course
        return course.num_steps + self.sampler.num_steps

    def advance(self, batch_at: Callable[[int], RegressionData], first: int, count: int, seed: tf.Tensor) -> tf.Tensor:
        """Make the steps first, ..., first + count - 1, of training or of the chain. Arguments as of `Trainer.advance`.

        :return: the bound, or the potential of the chain, before the last of these steps, [], nats.
        :raises FloatingPointError: if a step fails.
        """
        step = first
        stop = first + count
        objective = None
        # Training, a window at a time, as settling can bring its end nearer.
        while step < stop and int(self._begun_at) < 0 and not self.trainer.is_done(step):
            end = min(stop, step - step % WINDOW + WINDOW, max(self.course.end, step + 1))
            objective = self.trainer.advance(batch_at, step, end - step, seed)
            step = end
        # The chain, from where training has ended.
        if step < stop:
            if int(self._begun_at) < 0:
                self._begun_at.assign(step)
            with clear_errors(f"sampling failed behind step {step}: "):
                objective = self.sampler.advance(step - int(self._begun_at), stop - step)
            self._potential = float(objective)
        return objective

    def is_done(self, step: int) -> bool:
        """Whether so many steps are all that have to be made."""
        begun = int(self._begun_at)
        return begun >= 0 and step >= begun + self.sampler.num_steps

    def scalars(self) -> dict[str, float]:
        """Those of `Trainer.scalars`; of the chain its potential in nats per row, instead of the bound."""
        if int(self._begun_at) < 0:
            return self.trainer.scalars()
        return {"train/potential_nats": self._potential, "train/seconds": self.seconds}

    def state(self) -> dict[str, object]:
        """All that changes, by name, for a checkpoint."""
        return {**self.trainer.state(), "chain": self.sampler, "chain_begun_at": self._begun_at}

    def about(self) -> dict[str, Any]:
        """What a report says of the chain: its steps, and how far its samples can be trusted."""
        trust = {name: layer_trust._asdict() for name, layer_trust in self.sampler.trust().items()}
        gain = {"held_out_gain_nats": self.sampler.gain} if self.sampler.config.hyper_steps else {}
        return {"num_steps": self.sampler.num_steps, "num_kept": self.sampler.config.num_kept, **gain, "trust": trust}


def trainer_for(
    posterior: str,
    model: DeepGP,
    data: tuple[np.ndarray, np.ndarray],
    training: TrainingConfig,
    sampling: SamplingConfig,
    num_steps: int,
    *,
    batch_size: int,
    seed: int,
    strategy: tf.distribute.Strategy | None = None,
) -> Trainer | SampledTrainer:
    """What trains a model, and samples its posterior if that is "sghmc".

    :param data: training rows X [N, D] and Y [N, P] in the units of the model; all of them, or a sample.
    :param num_steps: of training.
    :raises ValueError: if samples are asked for, but rows are not in memory or there are several devices.
    """
    # A chain needs all rows, on one device.
    num_data = float(np.asarray(model.num_data or len(data[0])))
    are_all = len(data[0]) == num_data
    trainer = Trainer(model, training, num_steps=num_steps, strategy=strategy, data=data if are_all else None)
    if posterior != "sghmc":
        return trainer
    if strategy is not None or not are_all:
        raise ValueError(
            f"posterior=sghmc needs one device and all {num_data:.0f} training rows in memory, got {len(data[0])}; "
            "leave out --strategy and --stream."
        )
    return SampledTrainer(trainer, Sampler(model, *data, sampling, batch_size=batch_size, seed=seed))
