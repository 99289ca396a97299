#!/usr/bin/env python3
"""Do the 90 % intervals of `EBPRegressor` cover 85 to 95 % of new targets, whatever the table?

    ebp_coverage.py --tables=200 --output=coverage.jsonl
    ebp_coverage.py --tables=200 --output=coverage.jsonl --most_rows=500      # the small ones alone

Random tables of 50 to 5,000 rows (uniform in the logarithm) and 1 to 20 inputs; a function that is linear, a small
network, bent or a staircase; a part of the variance from 0 to 0.99 that it explains; noise that is normal, Student's t
of 5 degrees of freedom, or of a size that depends on an input. `EBPRegressor()` as it is; the coverage of 1,000 new
rows has a standard error of 1 %. A table that is in --output already is not done again.
"""

import time
import warnings
from typing import NamedTuple

import bench
import numpy as np
import scipy.stats
from absl import flags
from threadpoolctl import threadpool_limits

from ebp import EBPRegressor

KINDS = ("linear", "network", "bent", "steps")
NOISES = ("normal", "normal", "normal", "student", "uneven")
SIGNALS = (0.0, 0.2, 0.5, 0.8, 0.95, 0.99)
NUM_TEST = 1000


class Table(NamedTuple):
    """Rows to learn, new ones, and what they were drawn from."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    what: bench.Row


def table(number: int) -> Table:
    """The table of a number, which is its seed."""
    rng = np.random.default_rng([number, 2014])
    num_rows = int(np.exp(rng.uniform(np.log(50), np.log(5000))))
    num_inputs = int(rng.integers(1, 21))
    kind = str(rng.choice(KINDS))
    noise = str(rng.choice(NOISES))
    signal = float(rng.choice(SIGNALS))
    shape = num_rows + NUM_TEST, num_inputs
    X = rng.normal(size=shape) if rng.random() < 0.5 else rng.uniform(-1.7, 1.7, size=shape)
    if rng.random() < 0.3:  # inputs that depend on each other
        X = X @ rng.normal(size=(num_inputs, num_inputs))
    # A function and noise of some share of the variance, in units of their own.
    u = X / X.std(axis=0)
    f = function(kind, u, rng)
    e = rng.normal(size=len(X)) if noise != "student" else rng.standard_t(5, size=len(X))
    e *= np.exp(0.4 * u[:, 0]) if noise == "uneven" else 1.0
    y = np.sqrt(signal) * f / f.std() + np.sqrt(1.0 - signal) * e / e.std()
    y = 10.0 ** rng.uniform(-2, 3) * y + 10.0 * rng.normal()
    drawn_from = {"rows": num_rows, "inputs": num_inputs, "signal": signal, "kind": kind, "noise": noise}
    return Table(X[:num_rows], y[:num_rows], X[num_rows:], y[num_rows:], drawn_from)


def function(kind: str, u: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Values at inputs of unit deviation [N, D], [N]."""
    num_inputs = u.shape[1]
    if kind == "linear":
        return u @ rng.normal(size=num_inputs)
    if kind == "network":
        hidden = np.tanh(1.5 * u @ rng.normal(size=(num_inputs, 10)) / np.sqrt(num_inputs) + rng.normal(size=10))
        return hidden @ rng.normal(size=10)
    if kind == "bent":
        first, second, third, fourth = np.resize(np.arange(num_inputs), 4)
        return np.sin(2.0 * u[:, first] * u[:, second]) + u[:, third] ** 2 + u[:, fourth]
    return np.where(u[:, 0] > 0, 1.0, -1.0) + (u[:, -1] > 0.5)


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_integer("tables", 200, "Tables.", 1, flag_values=fv)
    flags.DEFINE_integer("least_rows", 0, "Leave out those of fewer rows.", 0, flag_values=fv)
    flags.DEFINE_integer("most_rows", 5000, "Leave out those of more rows.", 50, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write each table's numbers to this file, a JSON line each.")


def main(options: flags.FlagValues) -> None:
    warnings.simplefilter("ignore")
    threadpool_limits(options.threads or None)
    lines = bench.kept_lines()
    done = {line["table"] for line in lines}
    for number in sorted(set(range(options.tables)) - done):
        drawn = table(number)
        if not options.least_rows <= len(drawn.X) <= options.most_rows:
            continue
        start = time.process_time()
        model = EBPRegressor().fit(drawn.X, drawn.y)
        seconds = time.process_time() - start
        # How many of the new targets are within their intervals.
        mean, std = model.predict(drawn.X_test, return_std=True)
        coverage = 100.0 * float(np.mean(np.abs(drawn.y_test - mean) < scipy.stats.norm.ppf(0.95) * std))
        lines.append({"table": number, **drawn.what, "coverage": coverage, "cpu_s": seconds})
        bench.keep_lines(lines)
    # How many tables of each size are covered as they should be.
    for low, high in ((50, 100), (100, 200), (200, 500), (500, 1000), (1000, 5000)):
        coverages = np.array([line["coverage"] for line in lines if low <= line["rows"] < high])
        if len(coverages):
            is_right = (coverages >= 85.0) & (coverages <= 95.0)
            print(
                f"{low} to {high - 1} rows, {len(coverages)} tables: {100.0 * np.mean(is_right):.1f} % within 85 to 95 "
                f"%; coverage {coverages.min():.1f} to {coverages.max():.1f} %, mean {coverages.mean():.1f} %"
            )
    coverages = np.array([line["coverage"] for line in lines])
    print(f"all {len(coverages)} tables: {100.0 * np.mean((coverages >= 85.0) & (coverages <= 95.0)):.1f} %")
    bench.print_machine()


if __name__ == "__main__":
    bench.run(define_flags, main, sets_threads=False)
