"""What the programs of time_to_quality.py share: their arguments, the data, and how they take turns.

Each program trains one model. After every turn of --steps steps it prints a line of JSON with the number of steps, the
CPU seconds of its process in them, and the log-likelihood of the test rows, which is not timed; then it waits for a
line "go". So at any time one of them works, and all see the same load.

Needs NumPy alone, as the environments of other libraries have it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

NUM_DRAWS = 100
"""Draws of the inner layers in the log-likelihood of a test row."""


@dataclass(frozen=True)
class Data:
    """Rows with mean 0 and standard deviation 1 in the training part.

    :ivar X: [N, D].
    :ivar Y: [N, 1].
    :ivar X_test: [n, D].
    :ivar Y_test: [n, 1].
    :ivar Z: centres of k-means, [M, D].
    :ivar log_scale: logarithm of the standard deviation of y in its own units.
    """

    X: np.ndarray
    Y: np.ndarray
    X_test: np.ndarray
    Y_test: np.ndarray
    Z: np.ndarray
    log_scale: float


def arguments(description: str) -> argparse.Namespace:
    """Of a program: --data, --rate, --seed, --steps, --batch_size."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", required=True, help="NPZ file with the fields of Data")
    parser.add_argument("--rate", type=float, default=0.0, help="learning rate of Adam")
    parser.add_argument("--seed", type=int, default=0, help="of minibatches and starting values")
    parser.add_argument("--steps", type=int, default=50, help="steps of a turn")
    parser.add_argument("--batch_size", type=int, default=1000, help="rows of a minibatch")
    return parser.parse_args()


def load(path: str) -> Data:
    with np.load(path) as file:
        fields: dict[str, Any] = {name: file[name] if file[name].ndim else float(file[name]) for name in file.files}
    return Data(**fields)


def minibatches(num_rows: int, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Row numbers [batch_size], cut one after the other from random permutations of all rows."""
    rng = np.random.default_rng(seed)
    rest = np.zeros(0, int)
    while True:
        if len(rest) < batch_size:
            rest = np.concatenate([rest, rng.permutation(num_rows)])
        yield rest[:batch_size]
        rest = rest[batch_size:]


def report(**values: float) -> None:
    """Print a line and wait for the next turn; ends the program when nobody asks for one."""
    print(json.dumps(values), flush=True)
    if sys.stdin.readline().strip() != "go":
        sys.exit()


class Clock:
    """CPU seconds of this process in its turns. The first step, which may compile, is counted apart.

    :param score: log-likelihood of the test rows in nats.
    :param steps: of a turn.
    """

    def __init__(self, score: Callable[[], float], steps: int) -> None:
        self._score = score
        self._steps = steps
        self._first = self._seconds = 0.0
        self._start = time.process_time()

    def before(self, step: int) -> None:
        """To be called before the step with this number, 0, 1, ..."""
        if step == 1:
            end = time.process_time()
            self._first = end - self._start
            self._start = end
        elif step > 1 and (step - 1) % self._steps == 0:
            self.end(step)

    def end(self, num_steps: int) -> None:
        """End a turn after so many steps."""
        self._seconds += time.process_time() - self._start
        report(step=num_steps - 1, seconds=self._seconds, first=self._first, log_likelihood=self._score())
        self._start = time.process_time()


def train(
    step: Callable[[np.ndarray], object], score: Callable[[], float], data: Data, args: argparse.Namespace
) -> None:
    """Take turns until nobody asks for another one.

    :param step: makes one step with the rows of these numbers.
    """
    score()  # compiles
    clock = Clock(score, args.steps)
    for number, rows in enumerate(minibatches(len(data.X), args.batch_size, args.seed)):
        clock.before(number)
        step(rows)


def log_mean_exp(values: np.ndarray) -> np.ndarray:
    """log 1/S sum_s exp(values[s]): [S, N] to [N]."""
    top = values.max(axis=0)
    return top + np.log(np.mean(np.exp(values - top), axis=0))


def mean_log_density(means: np.ndarray, variances: np.ndarray, data: Data) -> float:
    """Mean log density of the test rows under mixtures of normal distributions, nats in the units of y.

    :param means: [S, n], in the units of the model.
    :param variances: [S, n], those of the noise included.
    """
    residuals = data.Y_test[:, 0] - means
    terms = -0.5 * (np.log(2 * np.pi * variances) + np.square(residuals) / variances)
    return float(np.mean(log_mean_exp(terms)) - data.log_scale)
