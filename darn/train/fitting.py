"""Training with an eye on validation rows, without a folder: what `selection` and `DARNDensity` share.

course = Course(Trainer(model, config, num_data=len(x)), x, x_valid, seed=0)
course.advance(5000, patience=10)
course.best_value, course.best_step        # nats a row of the validation rows, at the best evaluation
model = course.best()
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from darn.model.description_length import description_length
from darn.model.model import DARN
from darn.model.serialization import named_variables
from darn.train.training import MAX_BLOCK, Trainer
from gpflow_deep_base.seeds import Seed, as_seed
from gpflow_deep_base.stopping import Stopping

__all__ = ["INTERVALS", "Course", "evaluation_interval", "minibatch_rows", "some_rows"]

#: Steps between evaluations: all divide 1,000, or are divided by 100, so that blocks of steps stay long.
INTERVALS = (25, 50, 100, 200, 500, 1000)

_MAX_VALID_ROWS = 5000  # of an evaluation during training


def evaluation_interval(num_rows: int, batch_size: int) -> int:
    """Steps between evaluations: an epoch, rounded up to one of :data:`INTERVALS`; the last one for longer epochs."""
    epoch = -(-num_rows // batch_size)
    return next((interval for interval in INTERVALS if interval >= epoch), INTERVALS[-1])


def minibatch_rows(num_rows: int, batch_size: int, seed: Seed, first: int, count: int) -> NDArray[np.int32]:
    """Rows of the minibatches of the steps first, ..., first + count - 1, [count, B]: each epoch another permutation, a
    pure function of the seed and the number of the step. B is `batch_size`, or all rows if there are fewer.
    """
    size = min(batch_size, num_rows)
    # Steps of an epoch: whole minibatches of its permutation.
    per_epoch = num_rows // size
    key = as_seed(seed).numpy().astype(np.uint32)
    batches = np.empty([count, size], np.int32)
    order = np.empty(0, np.int64)
    order_epoch = -1
    for i, step in enumerate(range(first, first + count)):
        epoch, place = divmod(step, per_epoch)
        if epoch != order_epoch:
            order = np.random.default_rng([*key, epoch]).permutation(num_rows)
            order_epoch = epoch
        batches[i] = order[place * size : (place + 1) * size]
    return batches


def some_rows(rows: NDArray[Any], most: int, seed: Seed) -> NDArray[Any]:
    """At most so many of the rows [N, n], drawn by the seed and in their order; all of them if there are no more."""
    if len(rows) <= most:
        return rows
    rng = np.random.default_rng([*as_seed(seed).numpy().astype(np.uint32), most])
    return rows[np.sort(rng.choice(len(rows), most, replace=False))]


class Course:
    """A trainer on its way, and its best parameters so far by the description length of the validation rows.

    :ivar step: steps so far.
    :ivar best_kl: E[log q(h | x) - log p(h)] of the rows of the best evaluation, nats a row.
    :ivar values: all evaluations, (step, nats a row).

    :param x: training rows [N, n_x].
    :param valid: validation rows; 5,000 of them count, drawn by the seed.
    :param seed: of minibatches, noise, and of these rows.
    :param batch_size: rows of a minibatch.
    :param interval: steps between evaluations; that of :func:`evaluation_interval` if not given.
    """

    def __init__(
        self,
        trainer: Trainer,
        x: ArrayLike,
        valid: ArrayLike,
        *,
        seed: Seed,
        batch_size: int = 100,
        interval: int | None = None,
    ) -> None:
        self.trainer = trainer
        self.batch_size = batch_size
        self._x = tf.convert_to_tensor(x)
        self._valid = some_rows(np.asarray(valid), _MAX_VALID_ROWS, seed)
        self.interval = interval or evaluation_interval(len(self._x), batch_size)
        self._seeds = tf.unstack(tf.random.experimental.stateless_split(as_seed(seed), 3))
        self.step = 0
        self.best_kl = 0.0
        self._stopping = Stopping(None, is_lower_better=True)
        self.values: list[tuple[int, float]] = []
        self._best: list[NDArray] = []

    def advance(self, until: int, patience: int | None = None) -> None:
        """Go on to step `until`, a multiple of the interval, or until `patience` evaluations in a row were no better.

        :raises FloatingPointError: if training diverges.
        """
        while not self.is_done(until, patience):
            end = min(self.step + self.interval, until)
            while self.step < end:
                count = min(MAX_BLOCK, end - self.step)
                rows = minibatch_rows(len(self._x), self.batch_size, self._seeds[0], self.step, count)
                self.trainer.advance(self._x, rows, self._seeds[1])
                self.step += count
            self._evaluate()

    def is_done(self, until: int, patience: int | None = None) -> bool:
        """Whether :meth:`advance` has nothing to do."""
        return self.step >= until or replace(self._stopping, patience=patience or None).is_done

    @property
    def best_step(self) -> int:
        """Steps before the best evaluation; 0 before the first."""
        return max(self._stopping.step, 0)

    @property
    def best_value(self) -> float:
        """Nats a row of the best evaluation; infinite before the first."""
        return self._stopping.score if self._stopping.step >= 0 else math.inf

    def stored(self, *, is_whole: bool = True) -> dict[str, NDArray]:
        """Arrays with which :meth:`restore` goes on to the same bits; not whole: what the evaluations gave."""
        numbers = {"step": self.step, "best_kl": self.best_kl, "values": self.values}
        numbers["stopping"] = [self._stopping.step, self._stopping.score, self._stopping.num_worse]
        arrays = {"numbers": np.array(json.dumps(numbers))}
        if is_whole:
            arrays |= {f"now/{i}": variable.numpy() for i, variable in enumerate(self._variables())}
            arrays |= {f"best/{i}": value for i, value in enumerate(self._best)}
        return arrays

    def restore(self, stored: Mapping[str, NDArray]) -> None:
        """Take over what :meth:`stored` gave of a course that was made alike.

        :raises KeyError: if something is missing.
        """
        # What the evaluations gave.
        numbers = json.loads(str(stored["numbers"]))
        self.step = numbers["step"]
        self.best_kl = numbers["best_kl"]
        self.values = [(step, value) for step, value in numbers["values"]]
        step, score, num_worse = numbers["stopping"]
        self._stopping = replace(self._stopping, step=step, score=score, num_worse=num_worse)
        self._best = [stored[f"best/{i}"] for i in range(sum(name.startswith("best/") for name in stored))]
        # All that training changes, where it was stored.
        if "now/0" in stored:
            for i, variable in enumerate(self._variables()):
                variable.assign(stored[f"now/{i}"])

    def best(self) -> DARN:
        """A model of its own with the best parameters."""
        model = DARN(self.trainer.model.config)
        for variable, value in zip(named_variables(model).values(), self._best, strict=True):
            variable.assign(value)
        return model

    def _variables(self) -> list[Any]:
        """All that training changes."""
        trainer = self.trainer
        noise = [] if trainer.noise is None else trainer.noise.log_variances
        return [*named_variables(trainer.model).values(), *trainer.averages, *noise, *trainer.optimizer.variables]

    def _evaluate(self) -> None:
        # The description length of the validation rows by the running means, and the parameters if it is the best.
        with self.trainer.averaged():
            lengths = description_length(self.trainer.model, self._valid, seed=self._seeds[2])
            value = float(lengths.total.mean())
            self.values.append((self.step, value))
            self._stopping, is_best = self._stopping.after(self.step, value)
            if is_best:
                self.best_kl = float(lengths.kl.mean())
                self._best = [variable.numpy() for variable in named_variables(self.trainer.model).values()]
