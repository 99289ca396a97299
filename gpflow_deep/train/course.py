"""How a deep GP is trained: step sizes, when the learning rate falls, and when training ends.

Steps have one learning rate until the model has settled or only `decay_share` of `num_steps` is left. Then it falls to
0 along a line, and training ends. A model has settled when its bound, averaged over windows of steps, has stopped
rising. Where the rate falls, the last step lowers Gaussian noise to its best value, see `noise`.

How much the KL weighs in the objective of deep sigma points is chosen by held-out rows, as no one weight is good for
all tables (Jankowiak et al. 2020 choose it so, too): noisy tables of many rows want little of it, and of some hundred
smooth rows a bound says more than any weight does.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gpflow_deep_base.files import write_text

from ..posteriors.sigma_points import KL_WEIGHT
from .config import ModelConfig

__all__ = [
    "KL_WEIGHTS",
    "WINDOW",
    "Course",
    "KLWeight",
    "TrainingConfig",
    "best_kl_weight",
    "has_settled",
    "stored_kl_weight",
]

WINDOW = 100
"""Steps whose bounds are averaged."""


@dataclass(frozen=True)
class TrainingConfig:
    """How a deep GP is trained: Adam for all trainable parameters, and natural gradients where they are left out.

    :param learning_rate: step size of Adam; 0.03 for minibatches and 0.01 for steps with all rows if not given.
    :param natgrad_gamma: step size of natural gradients, where the model uses them; 0.1 for a Gaussian likelihood and
        0.01 for others if not given.
    :param decay_share: of all steps, in which the learning rate falls to 0; they are the last ones. 0 keeps it.
    :param tol: rise of the smoothed bound that counts, nats per row.
    :param n_iter_no_change: windows of 100 steps in a row without such a rise, after which the model has settled and
        the learning rate falls; 0 makes all steps in any case.
    """

    learning_rate: float | None = None
    natgrad_gamma: float | None = None
    decay_share: float = 0.5
    tol: float = 1e-3
    n_iter_no_change: int = 5

    def __post_init__(self) -> None:
        rate = self.learning_rate
        if rate is not None and not (rate > 0 and np.isfinite(rate)):
            raise ValueError(f"learning_rate must be a finite number above 0, got {self.learning_rate}.")
        if self.natgrad_gamma is not None and not (self.natgrad_gamma > 0 and np.isfinite(self.natgrad_gamma)):
            raise ValueError(
                f"natgrad_gamma must be a finite number above 0, got {self.natgrad_gamma}; with 0 the last layer would "
                "never be trained: for Adam in place of natural gradients set natgrad to false."
            )
        if not 0 <= self.decay_share < 1:
            raise ValueError(f"decay_share must be at least 0 and less than 1, got {self.decay_share}.")
        if not np.isfinite(self.tol):
            raise ValueError(f"tol must be a finite number, got {self.tol}.")
        if self.n_iter_no_change < 0:
            raise ValueError(f"n_iter_no_change must not be negative, got {self.n_iter_no_change}; 0 makes all steps.")

    def for_rows(self, num_rows: int, batch_size: int) -> TrainingConfig:
        """The same with a learning rate for minibatches of `batch_size` of so many rows, if none is given."""
        rate = (0.03 if batch_size < num_rows else 0.01) if self.learning_rate is None else self.learning_rate
        return dataclasses.replace(self, learning_rate=rate)

    @property
    def rate(self) -> float:
        """The learning rate; 0.01 if none is given and `for_rows` was not asked."""
        return 0.01 if self.learning_rate is None else self.learning_rate


class Course(tf.Module):
    """What the bounds of the steps so far say about the next ones; its variables belong into a checkpoint.

    :ivar bounds: mean bound of each window that was seen by this object, nats per row.

    :param num_steps: the most steps.
    :param num_data: rows that a bound is of.
    """

    def __init__(self, config: TrainingConfig, num_steps: int, *, num_data: float = 1.0) -> None:
        super().__init__(name="course")
        if num_steps < 0:
            raise ValueError(f"num_steps must not be negative, got {num_steps}.")
        self.config = config
        self.num_steps = num_steps
        self.num_data = num_data
        self.bounds: list[float] = []
        self._pending: list[tf.Tensor] = []
        self._total = _variable(0.0, "total")
        self._count = _variable(0, "count")
        self._best = _variable(-np.inf, "best")
        self._recent = _variable([-np.inf] * config.n_iter_no_change, "recent")
        self._settled_at = _variable(-1, "settled_at")

    @property
    def is_settled(self) -> bool:
        """Whether the bound has stopped rising, or `settle` was called, before the learning rate fell anyway."""
        return int(self._settled_at) >= 0

    @property
    def end(self) -> int:
        """The number of steps to make, as far as is known; whole windows, if less than all."""
        if not self.is_settled:
            return self.num_steps
        # The rate falls over `decay_share` of all steps that are made then.
        share = self.config.decay_share
        windows = -(-round(self.decay_from / (1 - share)) // WINDOW)
        return min(self.num_steps, windows * WINDOW)

    @property
    def decay_from(self) -> int:
        """The first step for which the learning rate is lower."""
        return int(self._settled_at) if self.is_settled else round(self.num_steps * (1 - self.config.decay_share))

    def learning_rate(self, step: int) -> float:
        """Of a step: full before `decay_from`, then on a line towards 0 at `end`, and 0 from there on."""
        first = self.decay_from
        end = self.end
        return self.config.rate * (1.0 if step < first else max(end - step, 0) / max(end - first, 1))

    def observe(self, step: int, bound: tf.Tensor) -> None:
        """Take note of the bound of a step, [], nats."""
        self._pending.append(bound)
        if (step + 1) % WINDOW:
            return
        # A window is full: its mean, per row.
        self.flush()
        mean = float(self._total) / max(int(self._count), 1) / self.num_data
        self._total.assign(0.0)
        self._count.assign(0)
        self.bounds.append(mean)
        if patience := self.config.n_iter_no_change:
            # Settled if no recent window is above the best one before them.
            oldest, *newer = self._recent.numpy()
            best = max(float(self._best), oldest)
            recent = [*newer, mean]
            self._best.assign(best)
            self._recent.assign(recent)
            is_known = np.isfinite(best)  # of a window that is not among the recent ones
            if is_known and has_settled([best, *recent], self.config.tol, patience):
                self.settle(step + 1)

    def settle(self, num_steps: int) -> None:
        """Let the learning rate fall from here on, after so many steps, if it does not fall yet."""
        if not self.is_settled and num_steps < self.decay_from:
            self._settled_at.assign(num_steps)

    def flush(self) -> None:
        """Put what was observed into the variables: before a checkpoint."""
        self._total.assign_add(float(np.sum([float(bound) for bound in self._pending])))
        self._count.assign_add(len(self._pending))
        self._pending.clear()


def has_settled(values: Sequence[float], tolerance: float, patience: int) -> bool:
    """Whether none of the last `patience` values is more than `tolerance` above the best one before them."""
    return len(values) > patience and max(values[-patience:]) <= max(values[:-patience]) + tolerance


def _variable(value: float | list[float], name: str) -> tf.Variable:
    dtype = tf.int64 if isinstance(value, int) else tf.float64
    return tf.Variable(value, dtype=dtype, trainable=False, name=name)


#: Candidates.
KL_WEIGHTS = (0.2, 1.0, KL_WEIGHT, 20.0, 100.0)


@dataclasses.dataclass(frozen=True)
class KLWeight:
    """A weight of the KL, chosen by held-out rows.

    :param kl_weight: the chosen one.
    :param scores: mean log density of the held-out rows by weight, nats per row.
    :param gaussian: the same of a Gaussian posterior, trained by a bound.
    :param note: says so if that one is better by more than a standard error; or else None.
    """

    kl_weight: float
    scores: dict[float, float]
    gaussian: float
    note: str | None = None


def best_kl_weight(config: ModelConfig, log_densities: Callable[[ModelConfig], NDArray[np.float64]]) -> KLWeight:
    """The weight with the highest log density; weights around the best so far are tried until none is better.

    :param config: with `posterior="sigma_points"`.
    :param log_densities: trains a model and says the log densities of held-out rows [n], nats.
    """
    log_p: dict[float, NDArray[np.float64]] = {}

    def score(number: int) -> float:
        weight = KL_WEIGHTS[number]
        if weight not in log_p:
            log_p[weight] = log_densities(
                dataclasses.replace(config, points=dataclasses.replace(config.points, kl_weight=weight))
            )
        return float(log_p[weight].mean())

    # From the usual weight to the best of its neighbours, until none is better.
    best = -1
    position = KL_WEIGHTS.index(KL_WEIGHT)
    while position != best:
        best = position
        neighbours = range(max(best - 1, 0), min(best + 2, len(KL_WEIGHTS)))
        position = max(neighbours, key=score)
    weight = KL_WEIGHTS[best]
    # Beside it a Gaussian posterior, trained by a bound.
    plain = log_densities(config.plain(config.num_layers))
    # Said where that one is better by more than a standard error.
    loss = plain - log_p[weight]
    note = None
    if loss.mean() > loss.std() / np.sqrt(len(loss)):
        note = (
            f"posterior=sigma_points has {log_p[weight].mean():.3f} nats per row on {len(plain)} held-out rows with "
            f"its best kl_weight, {weight:g}, and posterior=gaussian {plain.mean():.3f}: use that one for these data."
        )
    scores = {weight: float(values.mean()) for weight, values in sorted(log_p.items())}
    return KLWeight(weight, scores, float(plain.mean()), note)


def stored_kl_weight(path: Path, make: Callable[[], KLWeight]) -> KLWeight:
    """The weight in a JSON file; chosen and written if there is no such file.

    :raises ValueError: if the file holds something else.
    """
    if not path.exists():
        write_text(path, json.dumps(dataclasses.asdict(make()), indent=1))
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        scores = {float(weight): float(score) for weight, score in stored["scores"].items()}
        return KLWeight(float(stored["kl_weight"]), scores, float(stored["gaussian"]), stored["note"])
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no weight of the KL: {error!r}; delete it to choose one anew.") from error
