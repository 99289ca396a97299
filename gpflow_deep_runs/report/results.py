"""Results of record: small JSON files of numbers and what made them, and the tables that show them.

results/uci.json
    {
      "title": "UCI regression",
      "origin": "run",
      "date": "2026-11-22",
      "commit": "4b2e31f...",
      "machine": "2 cores of an AMD EPYC",
      "runs": [{"command": "sweep.py ...", "of": "all but the published columns", "seconds": 7200}],
      "units": {"gp": "nats per test row"},             of every quantity that is a number
      "published": "Salimbeni (2017)",                  where the numbers are from that no run of ours made
      "depends": ["gpflow_deep/train"],                 files and folders; left out: see report/changes.py
      "repetitions": ["split 0", "split 1", "split 2"], what the values of a number are of
      "tables": {
        "log_likelihood": {
          "title": "test log-likelihood",
          "columns": [{"title": "data set", "cell": "{dataset}"}, {"title": "SVGP", "cell": "{gp:.3f}"}]
        }
      },
      "rows": [{"dataset": "boston", "gp": {"values": [-2.31, -2.41, -2.25]}, "linear": {"value": -2.79, "se": 0.02}}]
    }

A row maps quantities to text, numbers, numbers with their errors (`gpflow_deep_runs.report.cells.Figure`) or lists of
these.
Every table shows all rows, or those that its "rows" names by their first cell; a row shows nothing where it lacks a
quantity of a cell, and of several templates in a list the first that it can fill. `gpflow_deep_runs.report.pages` puts
the tables into Markdown.
"""

import datetime
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from gpflow_deep_base.files import write_text
from gpflow_deep_runs.report.cells import Entry, Figure, cell, fields, is_number, quantities_shown
from gpflow_deep_runs.report.structure import built, dumped, read_json

__all__ = ["Column", "Made", "Results", "Table", "as_text", "cells", "parsed", "read", "read_all", "write"]

Origin = Literal["run"]
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Made:
    """A command that made numbers. What it leaves out is as for the whole file.

    :param command: on one line; `DATA` stands for the folder of the data sets.
    :param of: the rows that it made.
    :param seconds: how long it took.
    :param remark: what else there is to know of it, such as what to change for other rows; in several lines, a list.
    :param parts: the runs that it consists of, with their seconds, such as those of a sweep.
    """

    command: str
    of: str = ""
    seconds: float | None = None
    origin: Origin | None = None
    date: str | None = None
    commit: str | None = None
    machine: str | None = None
    remark: str | tuple[str, ...] = ""
    parts: Mapping[str, float | None] | None = None

    def __post_init__(self) -> None:
        _check_line(self.command, "a command")
        if not self.command.strip():
            raise ValueError("must have a command.")


@dataclass(frozen=True)
class Column:
    """A column of a table: title, and the template of its cells, or several of which the first that fits is taken."""

    title: str
    cell: str | tuple[str, ...]

    def __post_init__(self) -> None:
        for template in self.templates:
            if not list(fields(template)):
                raise ValueError(f"the template {template!r} must have a {{quantity}}.")

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates, in the order in which they are tried."""
        return (self.cell,) if isinstance(self.cell, str) else self.cell


@dataclass(frozen=True)
class Table:
    """A table of the rows of a file.

    :param title: what the index of a page calls it.
    :param rows: first cells of the rows that it shows; None: all rows.
    :param merged: leave a first cell empty that equals the one above.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[str, ...] | None = None
    merged: bool = False

    def __post_init__(self) -> None:
        if not self.columns:
            raise ValueError("must have columns.")


@dataclass(frozen=True)
class Results:
    """A file of results; see the module's docstring."""

    title: str
    origin: Origin
    date: str
    commit: str
    machine: str
    runs: tuple[Made, ...]
    units: Mapping[str, str]
    tables: Mapping[str, Table]
    rows: tuple[Mapping[str, Entry], ...]
    repetitions: tuple[str, ...] = ()
    published: str = ""
    depends: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # What made the numbers, and the names and titles by which they are shown.
        self._check_runs()
        for title in [t for table in self.tables.values() for t in (table.title, *(c.title for c in table.columns))]:
            _check_line(title, "titles")
        for name in [*self.tables, *self.units, *(name for row in self.rows for name in row)]:
            if not NAME.fullmatch(name):
                raise ValueError(f"names must be small letters, digits and _, got {name!r}.")
        if not self.tables or not self.rows:
            raise ValueError("must have tables and rows.")
        # Each row by itself, then names that have to be in some row.
        for i, row in enumerate(self.rows):
            try:
                self._check_row(row)
            except ValueError as error:
                raise ValueError(f"rows[{i}]: {error}") from None
        self._check_names()

    def _check_runs(self) -> None:
        if not self.runs:
            raise ValueError("runs must name the command that made the numbers.")
        # A number of record is one that can be made again.
        if not self.commit or not self.machine:
            raise ValueError("must have the commit and the machine of the command that made the numbers.")
        for i, run in enumerate(self.runs):
            try:
                datetime.date.fromisoformat(run.date or self.date)
            except ValueError:
                raise ValueError(f"runs[{i}]: must have a date as 2026-11-22, got {run.date or self.date!r}.") from None

    def _check_row(self, row: Mapping[str, Entry]) -> None:
        # Each quantity: text on one line, values for all repetitions, a unit for numbers.
        for name, entry in row.items():
            for part in entry if isinstance(entry, tuple) else (entry,):
                if isinstance(part, str):
                    _check_line(part, name)
                if isinstance(part, Figure) and len(part.values or self.repetitions) != len(self.repetitions):
                    requirement = f"one value for each of the {len(self.repetitions)} repetitions"
                    raise ValueError(f"{name} must have {requirement}, got {len(part.values or ())}.")
            if is_number(entry) and name not in self.units:
                raise ValueError(f'{name} must have a unit in "units".')

        # Whatever is in a row has to be shown by one of the tables that have this row.
        shown = set[str]()
        for table in self.tables.values():
            first = cell(table.columns[0].templates, row)
            if table.rows is None or first in table.rows:
                for column in table.columns:
                    cell(column.templates, row)  # raises what is wrong with it
                    shown |= quantities_shown(column.templates, row)
        if unshown := sorted(row.keys() - shown):
            raise ValueError(
                f"{', '.join(unshown)}: no table shows it; give a column a template of it, and the row all that the "
                f"template needs."
            )

    def _check_names(self) -> None:
        quantities = {name for row in self.rows for name in row}
        # Quantities that templates and units name have to be in some row.
        columns = [(f"tables.{t}", c) for t, table in self.tables.items() for c in table.columns]
        for place, column in columns:
            for name in {name for template in column.templates for field in fields(template) for name in field.names}:
                if name not in quantities:
                    raise ValueError(f"{place}: the column {column.title!r} shows {name}, which no row has.")
        if unused := sorted(self.units.keys() - quantities):
            raise ValueError(f"units: no row has {', '.join(unused)}.")
        # The rows that a table picks have to be there, each once.
        for name, table in self.tables.items():
            first = [cell(table.columns[0].templates, row) for row in self.rows]
            for label in table.rows or ():
                if first.count(label) != 1:
                    raise ValueError(f"tables.{name}: one row must begin with {label!r}, got {first.count(label)}.")


def _check_line(text: str, name: str) -> None:
    if re.search(r"[\n\r]", text):
        raise ValueError(f"{name} must be on one line, got {text!r}.")


def parsed(document: object, name: str) -> Results:
    """Results from the content of a JSON file.

    :param name: of the file, for errors.
    :raises ValueError: with the place, if something is missing, unknown or of a wrong kind; if a number has no unit or
        is in no table; or a template no row.
    """
    return built(Results, document, name)


def read(path: str | os.PathLike[str]) -> Results:
    """Read a file of results.

    :raises ValueError: as :func:`parsed`, or if it is no JSON.
    :raises OSError: if it cannot be read.
    """
    return parsed(read_json(path), os.fspath(path))


def read_all(folder: str | os.PathLike[str]) -> dict[str, Results]:
    """The results of a folder by the names of their files, in alphabetical order.

    :raises ValueError: as :func:`read`, or if the name of a file is none for a table.
    """
    results_by_name = {}
    for path in sorted(Path(folder).glob("*.json")):
        if not NAME.fullmatch(path.stem):
            raise ValueError(f"{path}: must be named in small letters, digits and _.")
        results_by_name[path.stem] = read(path)
    return results_by_name


def write(path: str | os.PathLike[str], document: Mapping[str, object]) -> None:
    """Write the content of a file of results in one piece, after a check.

    :raises ValueError: as :func:`parsed`; the file is then as it was.
    """
    parsed(document, os.fspath(path))
    write_text(path, as_text(document))


def as_text(document: Mapping[str, object]) -> str:
    """How a file of results is laid out: a run, a column, a row on one line each where they fit."""
    return dumped(document) + "\n"


def cells(results: Results, table: str) -> list[list[str]]:
    """Titles and cells of a table, as text."""
    shown = results.tables[table]
    body = [[cell(c.templates, row) for c in shown.columns] for row in results.rows]
    # The rows that the table picks, by their first cells.
    body = [row for row in body if shown.rows is None or row[0] in shown.rows]
    # A label that repeats the one above is left out.
    if shown.merged:
        repeats = [False, *(row[0] == previous[0] for previous, row in pairwise(body))]
        body = [["", *row[1:]] if is_same else row for is_same, row in zip(repeats, body, strict=True)]
    return [[c.title for c in shown.columns], *body]
