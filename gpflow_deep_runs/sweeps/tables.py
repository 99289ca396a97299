"""The results of a sweep: means, standard errors and paired differences, and with what each number was made.

A cell is the mean over the runs of its row and column, n of them, with the standard error s / sqrt(n), where s is the
standard deviation with n - 1 in the denominator. A paired difference is that of column and baseline at the same values
of the averaged axes; its mean and standard error are those of the n differences. Nothing is averaged silently over
fewer runs than the file has: such a cell says "k of n".
"""

import functools
import os
import platform
import re
import shlex
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpflow_deep_base.files import write_json, write_text
from gpflow_deep_base.text import aligned, plus_minus
from gpflow_deep_runs.sweeps.folder import Event, SweepDir, seconds_of
from gpflow_deep_runs.sweeps.spec import Column, Flag, Number, PlannedRun, Sweep, Tables, arguments, expand

__all__ = [
    "Cell",
    "Mean",
    "Value",
    "as_json",
    "as_markdown",
    "as_text",
    "machine",
    "mean_of",
    "results",
    "tabulate",
    "write_tables",
]


class Value(NamedTuple):
    """A number of one run, None if it is missing, and the averaged axes' values of the run."""

    run: str
    point: Mapping[str, Flag]
    number: float | None


class Mean(NamedTuple):
    """Of `n` numbers of the `n_planned` that the file has; None where there are too few."""

    mean: float | None
    standard_error: float | None
    n: int
    n_planned: int


class Cell(NamedTuple):
    """A number of one row and column; `difference` is to the baseline, None if there is none to be shown."""

    number: Number
    row: Mapping[str, Flag]
    column: Column
    values: tuple[Value, ...]
    mean: Mean
    difference: Mean | None


def mean_of(numbers: Sequence[float | None]) -> Mean:
    """Mean and standard error of the numbers that are there."""
    present = [number for number in numbers if number is not None]
    error = statistics.stdev(present) / len(present) ** 0.5 if len(present) > 1 else None
    return Mean(statistics.fmean(present) if present else None, error, len(present), len(numbers))


def tabulate(sweep: Sweep, results: Mapping[str, Mapping[str, object] | None]) -> list[Cell]:
    """All cells, by numbers, then rows, then columns.

    :param results: name of a run -> what is in its result.json; runs may be missing or None.
    :raises ValueError: if the file has no [table], or a path is not in a result.
    """
    if sweep.tables is None:
        raise ValueError("the file has no [table]; say there what to tabulate.")
    over = sweep.tables.over
    # A row is a combination of the axes that are not averaged over.
    rows: dict[tuple[tuple[str, Flag], ...], list[PlannedRun]] = {}
    for run in expand(sweep):
        rows.setdefault(tuple((axis, value) for axis, value in run.point.items() if axis not in over), []).append(run)
    return [
        cell
        for number in sweep.tables.numbers
        for row, runs in rows.items()
        for cell in _row(sweep.tables, number, dict(row), runs, results)
    ]


def _row(
    tables: Tables,
    number: Number,
    row: Mapping[str, Flag],
    runs: Sequence[PlannedRun],
    results: Mapping[str, Mapping[str, object] | None],
) -> Iterator[Cell]:
    # The number of each run of each column; None where a run has no result yet.
    values = {
        column.name: tuple(
            Value(
                run.name,
                {axis: run.point[axis] for axis in tables.over},
                _at(number.path.format(**column.words), run.name, results.get(run.name)),
            )
            for run in runs
            if run.setting == column.setting
        )
        for column in tables.columns
    }
    # Pairs are numbers of the same values of the averaged axes.
    base = {tuple(value.point.items()): value.number for value in values.get(tables.baseline or "", ())}
    for column in tables.columns:
        own = values[column.name]
        difference = None
        if tables.baseline not in (None, column.name) and number.has_differences:
            pairs = [(value.number, base.get(tuple(value.point.items()))) for value in own]
            difference = mean_of([None if a is None or b is None else a - b for a, b in pairs])
        yield Cell(number, row, column, own, mean_of([value.number for value in own]), difference)


def _at(path: str, run: str, result: Mapping[str, object] | None) -> float | None:
    """The number at a path; None for a run without a result, and for null, which stands for NaN.

    :raises ValueError: if there is no number.
    """
    if result is None:
        return None
    # Follow the keys; say what is there where one is missing.
    node: object = result
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            content = f"there are {', '.join(node)}" if isinstance(node, Mapping) else f"there is {node!r}"
            raise ValueError(f"[table.numbers]: result.json of {run} has no {path!r}; in place of {key!r} {content}.")
        node = node[key]
    if node is not None and (isinstance(node, bool) or not isinstance(node, int | float)):
        raise ValueError(f"[table.numbers]: {path!r} in result.json of {run} must be a number, got {node!r}.")
    return None if node is None else float(node)


def as_text(cells: Sequence[Cell], baseline: str | None = None) -> str:
    """Aligned columns."""
    return "\n\n".join(f"{title}\n{aligned(rows)}" for title, rows in _tables(cells, baseline)) + "\n"


def as_markdown(cells: Sequence[Cell], baseline: str | None = None) -> str:
    """Tables of Markdown, each after its title."""
    blocks = []
    for title, rows in _tables(cells, baseline):
        head, *lines = [f"| {' | '.join(row)} |" for row in rows]
        blocks.append("\n".join([f"{title}:", "", head, "|---" * len(rows[0]) + "|", *lines, ""]))
    return "\n".join(blocks)


def _tables(cells: Sequence[Cell], baseline: str | None) -> Iterator[tuple[str, list[list[str]]]]:
    """Title and lines of each table, the head first."""
    for number in dict.fromkeys(cell.number for cell in cells):
        number_cells = [cell for cell in cells if cell.number == number]
        axes = list(number_cells[0].values[0].point) if number_cells and number_cells[0].values else []
        spread = f", mean ± standard error over {' and '.join(axes)}" if axes else ""
        yield f"{number.name}{spread}", _grid(number_cells, lambda cell: cell.mean)
        if any(cell.difference is not None for cell in number_cells):
            # A second table of the columns that have a difference.
            paired = [cell for cell in number_cells if cell.difference is not None]
            title = f"{number.name} minus that of {baseline}{spread.replace('mean', 'mean of paired differences')}"
            yield title, _grid(paired, lambda cell: cell.difference)


def _grid(cells: Sequence[Cell], shown: Callable[[Cell], Mean | None]) -> list[list[str]]:
    columns = list(dict.fromkeys(cell.column.name for cell in cells))
    head = [" ".join(cells[0].row) or "", *columns]
    rows: dict[str, list[str]] = {}
    # Cells come by rows, then columns.
    for cell in cells:
        rows.setdefault(" ".join(map(str, cell.row.values())), []).append(_cell(shown(cell), cell.number.digits))
    return [head, *([name, *texts] for name, texts in rows.items())]


def _cell(mean: Mean | None, digits: int) -> str:
    if mean is None or mean.mean is None:
        return "missing"
    count = "" if mean.n == mean.n_planned else f" ({mean.n} of {mean.n_planned})"
    return plus_minus(mean.mean, mean.standard_error, digits) + count


def as_json(cells: Sequence[Cell]) -> list[dict[str, object]]:
    """The cells, with every single number, as what JSON can hold."""
    return [
        {
            "number": cell.number.name,
            "path": cell.number.path.format(**cell.column.words),
            "row": dict(cell.row),
            "column": cell.column.name,
            **cell.mean._asdict(),
            "difference": None if cell.difference is None else cell.difference._asdict(),
            "values": [{**value.point, "run": value.run, "value": value.number} for value in cell.values],
        }
        for cell in cells
    ]


@functools.cache
def machine() -> str:
    """Processor, number of cores and system of this computer."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name.*?: *(.*)$", info.read_text(encoding="utf-8") if info.exists() else "", re.M)
    processor = found[1] if found else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def results(folder: SweepDir, runs: Sequence[PlannedRun]) -> dict[str, dict[str, object] | None]:
    """The result.json of each run; None for those that are missing."""
    return {run.name: folder.result(run.name) for run in runs}


def write_tables(folder: SweepDir, sweep: Sweep, name: str) -> str:
    """Write table.txt, table.md and table.json of the runs that are done; the text of the first.

    :param name: what the record calls the sweep.
    :raises ValueError: as `tabulate`.
    """
    # What is done, in cells of means.
    runs = expand(sweep)
    results_by_name = results(folder, runs)
    cells = tabulate(sweep, results_by_name)
    tables = sweep.tables or Tables()
    text = as_text(cells, tables.baseline)
    # Besides the cells: what is tabulated, and how each of the runs was made.
    lines = folder.history()
    seconds = seconds_of(lines)
    content = {
        "sweep": name,
        "script": sweep.script,
        "over": tables.over,
        "baseline": tables.baseline,
        "numbers": [
            {"name": number.name, "digits": number.digits, "differences": number.has_differences}
            for number in tables.numbers
        ],
        "columns": [column.name for column in tables.columns],
        "runs": {
            run.name: {**_origin(folder, sweep, run, lines), "seconds": seconds.get(run.name)}
            for run in runs
            if results_by_name[run.name] is not None
        },
        "cells": as_json(cells),
    }
    # The table with all single numbers first: the others can be made from it.
    write_json(folder.path / "table.json", content)
    write_text(folder.path / "table.md", as_markdown(cells, tables.baseline))
    write_text(folder.path / "table.txt", text)
    return text


def _origin(folder: SweepDir, sweep: Sweep, run: PlannedRun, lines: Sequence[Event]) -> dict[str, object]:
    """The command that repeats a run anywhere, with the flags of its last start, and what it was made with."""
    # What the run says of itself, and what the sweep wrote when it started the run last.
    origin = folder.result(run.name, "provenance.json") or {}
    starts = [line for line in lines if line["run"] == run.name and line["event"] == "started"]
    words = [*arguments(run.flags), *(starts[-1].get("local", []) if starts else [])]
    resumed = origin.get("resumed")
    resumed = resumed if isinstance(resumed, list) else []
    portable_words = [word for word in words if not word.startswith("--data_dir=")]  # a folder of one machine
    return {
        "command": shlex.join([sweep.script, "--run_dir=RUN", *portable_words]),
        "folder": f"runs/{run.name}",
        "commit": origin.get("git_commit"),
        "is_dirty": origin.get("git_dirty"),
        "commits_resumed": [resumption.get("git_commit") for resumption in resumed if isinstance(resumption, dict)],
        "machine": starts[-1].get("machine") if starts else None,
        "versions": origin.get("versions"),
        "data_sha256": origin.get("data_sha256"),
        "start_time": origin.get("start_time"),
        "num_starts": len(starts),
    }
