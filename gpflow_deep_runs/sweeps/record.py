"""The record of a sweep's results: every number with the command, commit, machine and seconds of its run."""

import functools
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpflow_deep_base.files import parse_json, write_json, write_text
from gpflow_deep_runs.sweeps import history
from gpflow_deep_runs.sweeps.folder import SweepDir
from gpflow_deep_runs.sweeps.runs import PlannedRun, arguments, expand
from gpflow_deep_runs.sweeps.spec import Sweep
from gpflow_deep_runs.sweeps.tables import as_json, as_markdown, as_text, tabulate

__all__ = ["machine", "record", "results", "write_tables"]


@functools.cache
def machine() -> str:
    """Processor, number of cores and system of this computer."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def results(folder: SweepDir, runs: Sequence[PlannedRun]) -> dict[str, dict[str, Any] | None]:
    """The result.json of each run; None for those that are missing."""
    return {run.name: folder.result(run.name) for run in runs}


def write_tables(folder: SweepDir, sweep: Sweep, name: str) -> str:
    """Write table.txt, table.md and table.json of the runs that are done; the text of the first.

    :param name: what the record calls the sweep.
    :raises ValueError: as `tabulate`.
    """
    runs = expand(sweep)
    results_by_name = results(folder, runs)
    cells = tabulate(sweep, results_by_name)
    baseline = sweep.tables.baseline if sweep.tables is not None else None
    text = as_text(cells, baseline)
    content = record(folder, sweep, [run for run in runs if results_by_name[run.name] is not None])
    write_json(folder.path / "table.json", {"sweep": name, **content, "cells": as_json(cells)})
    write_text(folder.path / "table.md", as_markdown(cells, baseline))
    write_text(folder.path / "table.txt", text)
    return text


def record(folder: SweepDir, sweep: Sweep, runs: Sequence[PlannedRun]) -> dict[str, Any]:
    """What table.json holds besides cells: what is tabulated, and how each of the runs was made."""
    lines = folder.history()
    tables = sweep.tables
    starts = history.starts_of(lines)
    seconds = history.seconds_of(lines)
    return {
        "script": sweep.script,
        "over": tables.over if tables is not None else (),
        "baseline": tables.baseline if tables is not None else None,
        "numbers": [
            {"name": number.name, "digits": number.digits, "differences": number.has_differences}
            for number in (tables.numbers if tables is not None else ())
        ],
        "columns": [column.name for column in (tables.columns if tables is not None else ())],
        "runs": {run.name: _run(folder, sweep, run, starts.get(run.name, []), seconds.get(run.name)) for run in runs},
    }


def _run(
    folder: SweepDir, sweep: Sweep, run: PlannedRun, starts: Sequence[Mapping[str, Any]], seconds: float | None
) -> dict[str, Any]:
    origin = _provenance(folder.run_dir(run.name))
    # The command that repeats it anywhere, with the flags of its last start.
    words = [*arguments(run.flags), *(starts[-1].get("local", ()) if starts else ())]
    portable_words = [word for word in words if not word.startswith("--data_dir=")]  # a folder of one machine
    return {
        "command": shlex.join([sweep.script, "--run_dir=RUN", *portable_words]),
        "folder": f"runs/{run.name}",
        "commit": origin.get("git_commit"),
        "is_dirty": origin.get("git_dirty"),
        "commits_resumed": [resumption.get("git_commit") for resumption in origin.get("resumed", ())],
        "machine": starts[-1].get("machine") if starts else None,
        "versions": origin.get("versions"),
        "data_sha256": origin.get("data_sha256"),
        "start_time": origin.get("start_time"),
        "seconds": seconds,
        "num_starts": len(starts),
    }


def _provenance(path: Path) -> dict[str, Any]:
    try:
        return dict(parse_json((path / "provenance.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}
