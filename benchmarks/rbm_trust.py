#!/usr/bin/env python3
"""Can the stated log Z be trusted, at default settings, on tables whose modes are hard to reach?

    rbm_trust.py --output=results.json
    rbm_trust.py --kinds=planted,ghz --tables=5 --output=results.json

Makes tables of five kinds, fits `TrackedRBM` to each, and compares the interval that it states with the exact log Z.
The fits have to do without enumeration, by which models of this size have log Z exactly, as those that are larger do.
Tables that the output file has are not fitted again, so that a run which was stopped goes on.
"""

import time
from collections.abc import Callable
from typing import Any

import bench
import numpy as np
from absl import flags
from numpy.typing import NDArray

from rbm_tracking.model.exact import log_z_exact
from rbm_tracking.use import estimator
from rbm_tracking.use.estimator import TrackedRBM

Rows = NDArray[np.float64]
SEEDS = 5  # of the fits, in turn


def planted(rng: np.random.Generator) -> tuple[Rows, bench.Row]:
    """Modes of unequal weight, with bits that are wrong now and then."""
    count = int(rng.integers(4, 13))
    n_v = int(rng.integers(40, 201))
    modes = rng.integers(0, 2, (count, n_v))
    rows = modes[rng.choice(count, 2000, p=rng.dirichlet(np.full(count, 0.5)))]
    return (rows ^ (rng.random(rows.shape) < rng.uniform(0.01, 0.06))).astype(float), {"n_components": 20}


def bars(rng: np.random.Generator) -> tuple[Rows, bench.Row]:
    """Bars or stripes on a square, some of them rarer than others."""
    side = int(rng.integers(4, 7))
    lines = rng.integers(0, 2, (1500, side))
    stripes = np.repeat(lines[:, :, None], side, axis=2)
    is_bar = rng.random(1500) < rng.uniform(0.1, 0.9)
    rows = np.where(is_bar[:, None, None], stripes.transpose(0, 2, 1), stripes)
    return rows.reshape(1500, -1).astype(float), {"n_components": 20}


def ising(rng: np.random.Generator) -> tuple[Rows, bench.Row]:
    """Signs on a ring of squares, neighbours alike, by Gibbs sampling from a random or an even start."""
    side = int(rng.integers(4, 8))
    coupling = rng.uniform(0.3, 0.7)
    spins = np.where(rng.random((1000, side, side)) < 0.5, 1.0, -1.0)
    spins[: int(rng.integers(0, 900))] = 1.0
    board = np.add.outer(np.arange(side), np.arange(side)) % 2
    for step in range(100):
        field = sum(np.roll(spins, shift, axis) for shift in (-1, 1) for axis in (1, 2))
        moved = np.where(rng.random(spins.shape) < 1 / (1 + np.exp(-2 * coupling * np.asarray(field))), 1.0, -1.0)
        spins = np.where(board == step % 2, moved, spins)
    return spins.reshape(1000, -1), {"n_components": 20, "visible": "spin"}


def potts(rng: np.random.Generator) -> tuple[Rows, bench.Row]:
    """Categories along a line, neighbours mostly alike, with one level that is common."""
    length = int(rng.integers(8, 16))
    levels = int(rng.integers(3, 6))
    codes = np.empty((1500, length), int)
    shares = rng.dirichlet(np.full(levels, 0.7))
    codes[:, 0] = rng.choice(levels, 1500, p=shares)
    for site in range(1, length):
        new = rng.choice(levels, 1500, p=shares)
        codes[:, site] = np.where(rng.random(1500) < 0.9, codes[:, site - 1], new)
    return np.eye(levels)[codes].reshape(1500, -1), {"n_components": 16, "visible": "softmax", "groups": levels}


def ghz(rng: np.random.Generator) -> tuple[Rows, bench.Row]:
    """All zeros or all ones, one of them more often."""
    n_v = int(rng.integers(10, 61))
    rows = np.repeat((rng.random(1000) < rng.uniform(0.02, 0.5))[:, None], n_v, axis=1).astype(float)
    return rows, {"n_components": 12}


KINDS: dict[str, Callable[[np.random.Generator], tuple[Rows, bench.Row]]] = {
    "planted": planted,
    "bars": bars,
    "ising": ising,
    "potts": potts,
    "ghz": ghz,
}


def judged(kind: str, number: int) -> bench.Row:
    """One fit: what it states of log Z, and the exact one; the seconds of the checks at its end."""
    X, options = KINDS[kind](np.random.default_rng([sorted(KINDS).index(kind), number]))
    model = TrackedRBM(**options, random_state=number % SEEDS)
    # The time of the checks within the fit.
    check = model._check_again
    seconds = [0.0]

    def timed(*known: Any) -> None:
        begin = time.process_time()
        check(*known)
        seconds[0] = time.process_time() - begin

    model._check_again = timed  # type: ignore[assignment, method-assign]
    begin = time.process_time()
    model.fit(X)
    fit_seconds = time.process_time() - begin
    # What is stated, against log Z by enumeration.
    verdict = model.evidence_
    exact = log_z_exact(model.rbm_)
    return {
        "table": f"{kind} {number}",
        "shape": [*X.shape, model.n_components],
        "updates": model.n_updates_,
        "log_z_nats": verdict.log_z,
        "low_nats": verdict.low,
        "high_nats": verdict.high,
        "exact_nats": exact,
        "is_trusted": verdict.is_trusted,
        "holds": bool(verdict.low <= exact <= verdict.high),
        "reasons": list(verdict.reasons),
        "seconds": fit_seconds,
        "check_seconds": seconds[0],
    }


def summary(rows: list[bench.Row]) -> bench.Row:
    """Of all tables: how many trusted intervals hold, how wrong trusted values are, how many are in doubt."""
    trusted = [row for row in rows if row["is_trusted"]]
    errors = [abs(row["log_z_nats"] - row["exact_nats"]) for row in trusted]
    return {
        "tables": len(rows),
        "trusted": len(trusted),
        "hold": sum(row["holds"] for row in trusted),
        "off_by_a_nat": sum(error > 1 for error in errors),
        "largest_error_nats": max(errors, default=0.0),
        "in_doubt": len(rows) - len(trusted),
        "check_share": sum(row["check_seconds"] for row in rows) / max(sum(row["seconds"] for row in rows), 1e-9),
    }


COLUMNS = {
    "table": "{table}",
    "updates": "{updates}",
    "log Z, 95 %": "{low_nats:.2f} to {high_nats:.2f}",
    "exact": "{exact_nats:.2f}",
    "holds": "{holds}",
    "trusted": "{is_trusted}",
    "s, of it checks": "{seconds:.0f}, {check_seconds:.1f}",
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("kinds", list(KINDS), "Kinds of tables.", fv)
    flags.DEFINE_integer("tables", 40, "Tables of each kind.", 1, flag_values=fv)
    flags.DEFINE_integer("first", 0, "Number of the first table of each kind.", 0, flag_values=fv)
    flags.DEFINE_boolean("enumerate", False, "Let fits end with log Z by enumeration, as by default.", fv)
    bench.define_common(fv, threads=1, output="Also write the figures to this JSON file, after each fit.")


def main(arguments: flags.FlagValues) -> None:
    if not arguments.enumerate:
        estimator._MOST_TERMS = 0.0
    # Tables that an earlier call has fitted are only printed.
    rows = bench.kept()
    bench.print_titles(*COLUMNS)
    for number in range(arguments.first, arguments.first + arguments.tables):
        for kind in arguments.kinds:
            row = next((row for row in rows if row["table"] == f"{kind} {number}"), None)
            if row is None:
                row = judged(kind, number)
                rows.append(row)
                bench.keep({"metrics": rows, "summary": summary(rows)}, "none: drawn with the number of the table")
            bench.print_row(row, COLUMNS)
    print(f"\n{summary(rows)}")


if __name__ == "__main__":
    bench.run(define_flags, main)
