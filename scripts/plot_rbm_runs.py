#!/usr/bin/env python3
"""Draw log Z over training of several runs of track_rbm.py side by side, as Figure 3 of Desjardins et al. (2011).

    plot_rbm_runs.py --runs=runs/a,runs/b --output=figure3.png

One panel for each run: the tracked log Z with its 95 % interval, AIS with 3 standard deviations, and exact values, as
far as the run has them (`--ais_every`, `--exact_every`), all in nats.
"""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("experiment") is None:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from experiment.report import plots
from experiment.report.plots import Line
from experiment.scalars import read_scalars
from experiment.script import run_program

FLAGS = flags.FLAGS
flags.DEFINE_list("runs", None, "Folders of the runs.", required=True)
flags.DEFINE_string("output", "log_z.png", "PNG file to write; it is replaced if it exists.")


def panel(folder: Path) -> tuple[str, dict[str, Line]]:
    """Title and lines of a run."""
    try:
        records = read_scalars(folder / "scalars.jsonl")
        stored = (folder / "flags.txt").read_text(encoding="utf-8").split()
    except OSError as error:
        raise ValueError(f"{folder} is not the folder of a run of track_rbm.py ({error}); check --runs.") from error
    lines = {
        "tracked": plots.recorded(records, "tracker/log_z_nats", "-", "tracker/log_z_std_nats", 1.96),
        "AIS": plots.recorded(records, "ais/log_z_nats", "o", "ais/log_z_std_nats", 3.0),
        "exact": plots.recorded(records, "exact/log_z_nats", "x"),
    }
    if lines["tracked"] is None:
        raise ValueError(f"{folder} has no tracked log Z; it must be a run of track_rbm.py with --track.")
    settings = dict(flag.removeprefix("--").split("=", 1) for flag in stored if "=" in flag)
    wanted = ("dataset", "hidden", "lr", "lr_decay")
    title = " ".join(f"{name}={settings[name]}" for name in wanted if name in settings)
    return title, {label: line for label, line in lines.items() if line is not None}


def run() -> None:
    """Read, draw, and say where."""
    panels: dict[str, dict[str, Line]] = {}
    for folder in FLAGS.runs:
        title, lines = panel(Path(folder))
        panels[title if title not in panels else f"{title} ({len(panels) + 1})"] = lines
    plots.lines(FLAGS.output, panels, xlabel="update", ylabel="nats")
    print(f"written to {FLAGS.output}")


def main(argv: list[str]) -> int:
    return run_program(argv, run)


if __name__ == "__main__":
    app.run(main)
