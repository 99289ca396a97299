#!/usr/bin/env python3
"""How much CPU time does a deep GP need for a good fit of kin8nm, beside GPflux and GPyTorch?

    time_to_quality.py --data_dir=DATA --gpflux=ENV/bin/python --gpytorch=ENV/bin/python --output=quality.json

Two layers, M = 100, minibatches of 1000 rows, split 0 of kin8nm. Each program of benchmarks/rivals/ trains in a process
and, for other libraries, in an environment of its own, which its docstring says how to make; those that are not given
are left out. All get the same standardised rows, inner layers with as many outputs as inputs, one draw of the inner
layer in a step, one thread, and are scored alike: mean log density of the test rows in the units of y, under the
mixture of 100 draws of the inner layer.

They take turns of --steps steps, one at a time, so that all see the same load. Counted is the CPU time of the process
in its steps; not counted are scores, imports and the first step, which may compile ("first s"). "reached s" is the time
of the first turn from which on the log-likelihood is above --target in all turns that follow, of which there are
--patience. "ms" is CPU time per step: median over the turns and quartiles; "ratio" is that of the neighbouring turns of
a program and the first one.

Programs are listed as name:rate, with the rate of Adam, and flags of the program if any: ours:0 is the default of
`DeepGPRegressor`, ours:0:--preset=paper2017 the paper's, gpytorch:0.03:--start=random GPyTorch's example as it is.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import bench
import numpy as np
from absl import flags

import gpflow_deep

M = 100
FOLDER = Path(__file__).resolve().parent / "rivals"
FILES = {name: FOLDER / f"{name}_kin8nm.py" for name in ("gpflow_deep", "gpflux", "gpytorch")}
RATES = ("0.01", "0.03", "0.06")

Turn: TypeAlias = bench.Row


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_string("gpflux", None, "Python of GPflux's environment.", flag_values=fv)
    flags.DEFINE_string("gpytorch", None, "Python of GPyTorch's environment.", flag_values=fv)
    rivals = [f"{name}:{rate}" for name in ("gpflux", "gpytorch") for rate in RATES]
    programs = ["ours:0", "ours:0:--preset=paper2017", *rivals]
    flags.DEFINE_list("programs", programs, "Programs, see above.", flag_values=fv)
    flags.DEFINE_list("seeds", ["0"], "Seeds of each.", flag_values=fv)
    flags.DEFINE_float("target", 1.25, "Log-likelihood to reach, nats per row.", flag_values=fv)
    flags.DEFINE_integer("steps", 50, "Steps of a turn.", 1, flag_values=fv)
    flags.DEFINE_integer("patience", 8, "Turns that it has to stay above.", 0, flag_values=fv)
    flags.DEFINE_float("max_seconds", 200.0, "CPU seconds after which a program is given up.", flag_values=fv)
    flags.DEFINE_float("max_minutes", 600.0, "Minutes after which all are given up.", flag_values=fv)
    flags.DEFINE_integer("threads", 1, "CPU threads; no other number is comparable.", 1, 1, flag_values=fv)
    flags.DEFINE_string("output", None, "Write the results to this JSON file.", flag_values=fv)


@dataclass
class Program:
    """A program that trains one model, and what it has said so far."""

    name: str
    seed: int
    process: subprocess.Popen[str]
    turns: list[Turn] = field(default_factory=list)
    is_done: bool = False

    def take_turn(self) -> None:
        """One more turn; a program that has ended is done.

        :raises RuntimeError: if it fails.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.turns:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith('{"step"'):
                self.turns.append(json.loads(line))
                return
        self.is_done = True
        if self.process.wait() or not self.turns:
            raise RuntimeError(f"{self.name} failed; see above.")


def reached(turns: Sequence[Turn], target: float) -> int | None:
    """Number of the first turn from which on all are above the target, or None."""
    below = [i for i, turn in enumerate(turns) if not turn["log_likelihood"] > target]
    first = below[-1] + 1 if below else 0
    return first if first < len(turns) else None


def command(program: str, seed: int, data: str, FLAGS: flags.FlagValues) -> list[str] | None:
    """Of a program such as "gpflux:0.03"; None if its environment is not given.

    :raises ValueError: if it is not of this form.
    """
    # The program, its rate, and its own flags.
    name, rate, *options = program.split(":")
    pythons = {"ours": sys.executable, "gpflux": FLAGS.gpflux, "gpytorch": FLAGS.gpytorch}
    if name not in pythons:
        raise ValueError(f"--programs must be {', '.join(pythons)}, each with a rate as in ours:0, got {program!r}.")
    if pythons[name] is None:
        return None
    file = FILES["gpflow_deep" if name == "ours" else name]
    return [
        *(pythons[name], str(file), f"--data={data}", f"--rate={rate}", f"--seed={seed}", f"--steps={FLAGS.steps}"),
        *options,
    ]


def write_data(path: str, data_dir: str | None) -> None:
    """The standardised rows, as `rivals/turns.py` reads them."""
    rows = bench.standardised("kin8nm", data_dir, valid_fraction=0.0)
    np.savez(path, **rows._asdict(), Z=gpflow_deep.inducing_inputs(rows.X, M, seed=0))


def race(programs: Sequence[Program], FLAGS: flags.FlagValues) -> None:
    """Let all take turns until each has stayed above the target, or has had its time."""
    end = time.monotonic() + 60 * FLAGS.max_minutes
    while time.monotonic() < end and (active := [program for program in programs if not program.is_done]):
        for program in active:
            program.take_turn()
            last = program.turns[-1]
            first = reached(program.turns, FLAGS.target)
            # Good for so many turns, or too slow: it need not go on.
            stayed = first is not None and len(program.turns) - 1 - first >= FLAGS.patience
            program.is_done = program.is_done or stayed or last["seconds"] > FLAGS.max_seconds
        line = [f"{program.name} {program.turns[-1]['log_likelihood']:.3f}" for program in active]
        print(f"step {active[0].turns[-1]['step']}: {', '.join(line)}", flush=True)


def milliseconds(program: Program) -> np.ndarray:
    """CPU time of a step in each turn: [turns]."""
    seconds, steps = ([0, *(turn[name] for turn in program.turns)] for name in ("seconds", "step"))
    return 1e3 * np.diff(seconds) / np.maximum(np.diff(steps), 1)


def result(program: Program, reference: Program, target: float) -> bench.Row:
    """One row of results."""
    # Turns of both that happened next to each other are compared.
    times = milliseconds(program)
    first = reached(program.turns, target)
    both = min(len(times), len(reference.turns))
    return {
        "program": program.name,
        "seed": program.seed,
        "reached_s": None if first is None else program.turns[first]["seconds"],
        "reached_step": None if first is None else program.turns[first]["step"],
        "first_step_s": program.turns[0]["first"],
        "step_ms_quartiles": np.percentile(times, [25, 50, 75]).tolist(),
        "ratio_quartiles": np.percentile(times[:both] / milliseconds(reference)[:both], [25, 50, 75]).tolist(),
        "best_log_likelihood": max(turn["log_likelihood"] for turn in program.turns),
        "turns": [[turn["step"], turn["seconds"], turn["log_likelihood"]] for turn in program.turns],
    }


def print_rows(rows: Sequence[bench.Row]) -> None:
    line = "{:<42} {:>4} {:>10} {:>6} {:>8} {:>22} {:>18} {:>7}"
    print(line.format("program", "seed", "reached s", "steps", "first s", "ms [quartiles]", "ratio", "best"))
    for row in rows:
        low, middle, high = row["step_ms_quartiles"]
        ratios = "{1:.2f} [{0:.2f}, {2:.2f}]".format(*row["ratio_quartiles"])
        is_reached = row["reached_s"] is not None
        seconds = f"{row['reached_s']:.1f}" if is_reached else f"> {row['turns'][-1][1]:.0f}"
        words = [row["program"], row["seed"], seconds, row["reached_step"] if is_reached else ""]
        words += [f"{row['first_step_s']:.1f}", f"{middle:.1f} [{low:.1f}, {high:.1f}]", ratios]
        print(line.format(*words, f"{row['best_log_likelihood']:.3f}"))


def main(FLAGS: flags.FlagValues) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        # All get the same standardised rows and inducing inputs.
        write_data(f"{folder}/data.npz", FLAGS.data_dir)
        programs = []
        for seed in map(int, FLAGS.seeds):
            for name in FLAGS.programs:
                words = command(name, seed, f"{folder}/data.npz", FLAGS)
                if words is None:
                    continue
                pipe = subprocess.PIPE
                process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environment)
                stack.callback(process.wait)
                stack.callback(process.kill)
                programs.append(Program(name, seed, process))
        # Turns until each is good enough or out of time, then a row for each.
        race(programs, FLAGS)
        rows = [result(program, programs[0], FLAGS.target) for program in programs]
    print_rows(rows)
    bench.write({"metrics": rows}, "UCI")


if __name__ == "__main__":
    bench.run(define_flags, main, sets_threads=False)
