#!/usr/bin/env python3
"""Draw log Z over training of several runs of gpflow-deep rbm side by side, as Figure 3 of Desjardins et al. (2011).

    gpflow-deep rbm-plot --runs=runs/a,runs/b --output=figure3.svg

One panel for each run: the tracked log Z with its 95 % interval, AIS with 3 standard deviations, and exact values, as
far as the run has them (`--ais_every`, `--exact_every`), all in nats.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli

from gpflow_deep_base.files import read_jsonl, write_text
from gpflow_deep_base.page import curve_panels, sheet
from rbm_tracking import report


@dataclass(frozen=True)
class Flags:
    """Draw log Z over training of several runs of gpflow-deep rbm side by side, all in nats.

    :param runs: folders of the runs, with commas between them.
    :param output: SVG file to write; it is replaced if it exists.
    """

    runs: tuple[str, ...]
    output: str = "log_z.svg"

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("--runs must name at least one folder, got none.")
        if not self.output.endswith(".svg"):
            raise ValueError(f"--output must end in .svg, got {self.output}.")


def main(flags: Flags) -> None:
    """Read, draw, and say where."""
    panels: dict[str, dict[str, report.Curve]] = {}
    for run in flags.runs:
        try:
            records = read_jsonl(Path(run) / "scalars.jsonl")
            settings = (Path(run) / "flags.txt").read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{run} is not the folder of a run of gpflow-deep rbm ({error}); check --runs.") from error
        # A panel for each run; runs of the same settings are told apart by a number.
        curves = report.log_z_curves(records)
        if "tracked" not in curves:
            raise ValueError(f"{run} has no tracked log Z; it must be a run of gpflow-deep rbm with --track.")
        title = report.title(settings)
        panels[title if title not in panels else f"{title} ({len(panels) + 1})"] = curves
    write_text(flags.output, sheet(curve_panels(panels, "update", "log Z, nats")))
    print(f"written to {flags.output}")


command = functools.partial(cli.run, main)

if __name__ == "__main__":
    command()
