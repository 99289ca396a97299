"""The record of a sweep's results: every number with the command, commit, machine and seconds of its run."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiment.files import write_json, write_text
from experiment.sweeps.folder import SweepDir
from experiment.sweeps.runs import PlannedRun, arguments, expand
from experiment.sweeps.spec import Sweep
from experiment.sweeps.tables import as_json, as_markdown, as_text, tabulate

__all__ = ["results", "seconds_of", "write_tables"]


def results(folder: SweepDir, runs: Sequence[PlannedRun]) -> dict[str, dict[str, Any] | None]:
    """The result.json of each run; None for those that are missing."""
    return {run.name: folder.result(run.name) for run in runs}


def seconds_of(folder: SweepDir) -> dict[str, float]:
    """Wall time of the jobs of each run that is done, all its starts together.

    Runs one of whose starts nobody saw the end of, as the sweep was killed, are left out.
    """
    seconds: dict[str, float] = {}
    is_open: dict[str, bool] = {}
    is_known: dict[str, bool] = {}
    is_done: dict[str, bool] = {}
    for line in folder.history():
        name = line["run"]
        if line["event"] == "started":
            is_known[name] = is_known.get(name, True) and not is_open.get(name, False)
            is_open[name] = True
        elif "seconds" in line:
            is_open[name] = False
            seconds[name] = seconds.get(name, 0.0) + line["seconds"]
            is_done[name] = line["event"] == "done"
    return {name: total for name, total in seconds.items() if is_done.get(name) and is_known.get(name)}


def write_tables(folder: SweepDir, sweep: Sweep, name: str) -> str:
    """Write table.txt, table.md and table.json of the runs that are done; the text of the first.

    :param name: what the record calls the sweep.
    :raises ValueError: as `tabulate`.
    """
    runs = expand(sweep)
    cells = tabulate(sweep, results(folder, runs))
    assert sweep.tables is not None  # or `tabulate` had raised
    tables = sweep.tables
    text = as_text(cells, tables.baseline)
    record = {
        "sweep": name,
        "script": sweep.script,
        "over": tables.over,
        "baseline": tables.baseline,
        "numbers": [
            {"name": each.name, "digits": each.digits, "differences": each.has_differences} for each in tables.numbers
        ],
        "columns": [column.name for column in tables.columns],
        "cells": as_json(cells),
        "runs": _runs(folder, sweep, runs),
    }
    write_json(folder.path / "table.json", record)
    write_text(folder.path / "table.md", as_markdown(cells, tables.baseline))
    write_text(folder.path / "table.txt", text)
    return text


def _runs(folder: SweepDir, sweep: Sweep, runs: Sequence[PlannedRun]) -> dict[str, Any]:
    history, seconds = folder.history(), seconds_of(folder)
    starts: dict[str, list[Mapping[str, Any]]] = {}
    for line in history:
        if line["event"] == "started":
            starts.setdefault(line["run"], []).append(line)
    return {
        run.name: _run(folder, sweep, run, starts.get(run.name, []), seconds.get(run.name))
        for run in runs
        if folder.result(run.name) is not None
    }


def _run(
    folder: SweepDir, sweep: Sweep, run: PlannedRun, starts: Sequence[Mapping[str, Any]], seconds: float | None
) -> dict[str, Any]:
    made = _provenance(folder.run_dir(run.name))
    words = [*arguments(run.flags), *(starts[-1].get("local", []) if starts else [])]
    return {
        "command": shlex.join(
            [sweep.script, "--run_dir=RUN", *(word for word in words if not word.startswith("--data_dir="))]
        ),
        "folder": f"runs/{run.name}",
        "commit": made.get("git_commit"),
        "is_dirty": made.get("git_dirty"),
        "commits_resumed": [each.get("git_commit") for each in made.get("resumed", [])],
        "machine": starts[-1].get("machine") if starts else None,
        "versions": made.get("versions"),
        "data_sha256": made.get("data_sha256"),
        "start_time": made.get("start_time"),
        "seconds": seconds,
        "num_starts": len(starts),
    }


def _provenance(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((path / "provenance.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
