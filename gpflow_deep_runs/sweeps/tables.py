"""Means, standard errors and paired differences of the results of a sweep, as values, text and Markdown.

A cell is the mean over the runs of its row and column, n of them, with the standard error s / sqrt(n), where s is the
standard deviation with n - 1 in the denominator. A paired difference is that of column and baseline at the same values
of the averaged axes; its mean and standard error are those of the n differences. Nothing is averaged silently over
fewer runs than the file has: such a cell says "k of n".
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpflow_deep_base.text import aligned
from gpflow_deep_runs.sweeps.runs import PlannedRun, expand
from gpflow_deep_runs.sweeps.spec import Column, Flag, Number, Sweep, Tables

__all__ = ["Cell", "Mean", "Value", "as_json", "as_markdown", "as_text", "mean_of", "tabulate"]


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


def tabulate(sweep: Sweep, results: Mapping[str, Mapping[str, Any] | None]) -> list[Cell]:
    """All cells, by numbers, then rows, then columns.

    :param results: name of a run -> what is in its result.json; runs may be missing or None.
    :raises ValueError: if the file has no [table], or a path is not in a result.
    """
    if sweep.tables is None:
        raise ValueError("the file has no [table]; say there what to tabulate.")
    return [cell for number in sweep.tables.numbers for cell in _cells(sweep, sweep.tables, number, results)]


def _cells(
    sweep: Sweep, tables: Tables, number: Number, results: Mapping[str, Mapping[str, Any] | None]
) -> Iterator[Cell]:
    # A row is a combination of the axes that are not averaged over.
    by_row: dict[tuple[tuple[str, Flag], ...], list[PlannedRun]] = {}
    for run in expand(sweep):
        by_row.setdefault(tuple((a, v) for a, v in run.point.items() if a not in tables.over), []).append(run)
    for row, runs in by_row.items():
        values = {column.name: _values(tables, number, column, runs, results) for column in tables.columns}
        for column in tables.columns:
            column_values = values[column.name]
            mean = mean_of([value.number for value in column_values])
            # Paired with the baseline of the same row.
            difference = None
            if tables.baseline not in (None, column.name) and number.has_differences:
                difference = _difference(column_values, values[str(tables.baseline)])
            yield Cell(number, dict(row), column, column_values, mean, difference)


def _values(
    tables: Tables,
    number: Number,
    column: Column,
    runs: Sequence[PlannedRun],
    results: Mapping[str, Mapping[str, Any] | None],
) -> tuple[Value, ...]:
    path = number.path.format(**column.words)
    return tuple(
        Value(run.name, {axis: run.point[axis] for axis in tables.over}, _at(path, run.name, results.get(run.name)))
        for run in runs
        if run.setting == column.setting
    )


def _at(path: str, run: str, result: Mapping[str, object] | None) -> float | None:
    """The number at a path; None for a run without a result, and for null, which stands for NaN.

    :raises ValueError: if there is no number.
    """
    if result is None:
        return None
    # Follow the keys; say what is there where one is missing.
    node: Any = result
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            content = f"there are {', '.join(node)}" if isinstance(node, Mapping) else f"there is {node!r}"
            raise ValueError(f"[table.numbers]: result.json of {run} has no {path!r}; in place of {key!r} {content}.")
        node = node[key]
    if node is not None and (isinstance(node, bool) or not isinstance(node, int | float)):
        raise ValueError(f"[table.numbers]: {path!r} in result.json of {run} must be a number, got {node!r}.")
    return None if node is None else float(node)


def _difference(own: Sequence[Value], base: Sequence[Value]) -> Mean:
    # Pairs are runs of the same values of the averaged axes.
    by_point = {tuple(value.point.items()): value.number for value in base}
    pairs = [(value.number, by_point.get(tuple(value.point.items()))) for value in own]
    return mean_of([None if a is None or b is None else a - b for a, b in pairs])


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


def _grid(cells: Sequence[Cell], shown: Any) -> list[list[str]]:
    columns = list(dict.fromkeys(cell.column.name for cell in cells))
    head = [" ".join(cells[0].row) or "", *columns]
    rows: dict[str, list[str]] = {}
    for cell in cells:
        rows.setdefault(" ".join(map(str, cell.row.values())), []).append(_cell(shown(cell), cell.number.digits))
    return [head, *([name, *texts] for name, texts in rows.items())]


def _cell(mean: Mean, digits: int) -> str:
    if mean.mean is None:
        return "missing"
    error = "" if mean.standard_error is None else f" ± {mean.standard_error:.{digits}f}"
    count = "" if mean.n == mean.n_planned else f" ({mean.n} of {mean.n_planned})"
    return f"{mean.mean:.{digits}f}{error}{count}"


def as_json(cells: Sequence[Cell]) -> list[dict[str, Any]]:
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
