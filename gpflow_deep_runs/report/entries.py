"""Numbers of the runs of a sweep as results of record.

    document = of_sweep(read_json("runs/uci/table.json"), read_json("results/uci.json"), command="gpflow-deep sweep f")
    write("results/uci.json", document)

A number of a sweep is the quantity NUMBER_COLUMN in small letters, such as test_rmse_gp for its number "test RMSE" and
its column GP, and keeps the values of the single runs; wall_seconds_COLUMN is the median of their wall times. Entering
replaces what runs made and keeps the rest: layout, texts, and the quantities published_* and paper_*.
"""

import re
import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeAlias

from gpflow_deep_runs.report.cells import cell, fields, is_number
from gpflow_deep_runs.report.results import parsed

__all__ = ["of_sweep", "quantity"]

Json: TypeAlias = Mapping[str, Any]
"""An object of a file that others wrote: what it lacks is seen where it is used."""
KEPT = ("published", "paper")
"""How the names of quantities begin that no run makes."""


def quantity(*words: str) -> str:
    """The name of a quantity: "test RMSE", "GP" is test_rmse_gp."""
    return re.sub(r"[^a-z0-9]+", "_", " ".join(words).lower()).strip("_")


def of_sweep(
    table: Json,
    document: Json | None = None,
    *,
    command: str,
    units: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The content of a file of results with the numbers of a sweep.

    :param table: table.json of the sweep.
    :param document: the file as it is; None: a new one, with a table for each number and one of the paired differences
        of neighbouring columns.
    :param command: the sweep's.
    :param units: of the sweep's numbers by their names, for a new file.
    :raises ValueError: if the sweep lacks a number or a commit, or does not fit the file.
    """
    # Numbers from the table; layout and texts from the file, or new.
    try:
        _check_complete(table)
        entries = _entries(table)
        origin = _origin(table, command)
        if document is None:
            entered = _layout(table, entries, units or {})
        else:
            entered = {**document, "rows": _rows(document, entries)}
        entered |= origin
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"the table of the sweep is damaged ({error!r}); write it again with --table_only.") from error
    # Only what the rows have needs a unit.
    numbers = {name for row in entered["rows"] for name, entry in row.items() if not isinstance(entry, str)}
    entered["units"] = {name: unit for name, unit in entered["units"].items() if name in numbers}
    entered = _ordered(entered)
    parsed(entered, "the results with the sweep's numbers")
    return entered


def _check_complete(table: Json) -> None:
    """A column may lack a number in all runs, such as the seconds of a closed form, but not in some."""
    for table_cell in table["cells"]:
        # All of a cell or none of it: a mean over some runs would not be what the file says.
        values = table_cell["values"]
        missing = [value["run"] for value in values if value["value"] is None]
        undone = [value["run"] for value in values if value["run"] not in table["runs"]]
        if undone or 0 < len(missing) < len(values):
            raise ValueError(
                f"the sweep has no {table_cell['number']} of {[*undone, *missing][0]}; finish it, or take that run out "
                "of its file."
            )


def _entries(table: Json) -> dict[str, dict[str, object]]:
    """Row -> quantity -> entry."""
    entries: dict[str, dict[str, object]] = {}
    for table_cell in table["cells"]:
        label = " ".join(map(str, table_cell["row"].values()))
        row = entries.setdefault(label, {})
        values = [_rounded(value["value"]) for value in table_cell["values"] if value["value"] is not None]
        if values:
            row[quantity(table_cell["number"], table_cell["column"])] = {"values": values}
        # The seconds of a run that was killed are not known.
        every_time = [table["runs"][value["run"]]["seconds"] for value in table_cell["values"]]
        seconds = [time for time in every_time if time is not None]
        if seconds:
            entry = {"value": _rounded(statistics.median(seconds)), "n": len(seconds)}
            row[quantity("wall seconds", table_cell["column"])] = entry
    return entries


def _rows(document: Json, entries: Mapping[str, Mapping[str, object]]) -> list[dict[str, object]]:
    """The rows of the document with the numbers that its tables show, then those that it did not have."""
    results = parsed(document, "the results")
    columns = [column for table in results.tables.values() for column in table.columns]
    templates = [template for column in columns for template in column.templates]
    shown = {name for template in templates for field in fields(template) for name in field.names}
    numbers = {label: {name: entry for name, entry in row.items() if name in shown} for label, row in entries.items()}

    # Rows of the file keep their texts and what is published.
    rows = dict[str, dict[str, object]]()
    for row, stored in zip(results.rows, document["rows"], strict=True):
        label = cell(columns[0].templates, row)
        if label not in entries:
            raise ValueError(f"the sweep has no row {label!r}, only {', '.join(entries)}; take it out of the file.")
        measured = [name for name, entry in row.items() if is_number(entry) and not name.startswith(KEPT)]
        if stale := [name for name in measured if name not in numbers[label]]:
            raise ValueError(f"the sweep has no {', '.join(stale)}; take it out of the file, or name it published_...")
        rows[label] = {**stored, **numbers[label]}

    # Rows that it did not have begin with their label.
    (field, *_) = fields(columns[0].templates[0])
    new_rows = [{field.name: label, **numbers[label]} for label in entries if label not in rows]
    return [*rows.values(), *new_rows]


def _layout(table: Json, entries: Mapping[str, Mapping[str, object]], units: Mapping[str, str]) -> dict[str, Any]:
    """A new file: a table for each number, and for those that have differences one of these."""
    # The first column of every table is the label of the row.
    label_column = {"title": " ".join(table["cells"][0]["row"]), "cell": "{row}"}
    tables = dict[str, object]()
    units_of = dict[str, str]()
    # Nobody but the user knows the units.
    if missing := [number["name"] for number in table["numbers"] if not units.get(number["name"])]:
        raise ValueError(f"the numbers of a new file must have units; give those of {', '.join(missing)}.")

    # A column for each column of the sweep in which a run has this number.
    for number in table["numbers"]:
        name = number["name"]
        spec = f":.{number['digits']}f"
        quantities = {column: quantity(name, column) for column in table["columns"]}
        quantities = {
            column: stored for column, stored in quantities.items() if any(stored in row for row in entries.values())
        }
        units_of |= dict.fromkeys(quantities.values(), units[name])
        columns = [{"title": column, "cell": f"{{{stored}{spec}}}"} for column, stored in quantities.items()]
        tables[quantity(name)] = {"title": f"{table['sweep']}: {name}", "columns": [label_column, *columns]}
        # A second table: each column minus the one before it.
        if number["differences"] and len(quantities) > 1:
            columns = [
                {"title": f"{b} - {a}", "cell": f"{{{quantities[b]} - {quantities[a]}{spec}}}"}
                for a, b in pairwise(quantities)
            ]
            title = f"{table['sweep']}: {name}, paired differences"
            tables[quantity(name, "differences")] = {"title": title, "columns": [label_column, *columns]}

    # Rows hold what the tables show, and no more.
    rows = [
        {"row": label, **{name: entry for name, entry in row.items() if name in units_of}}
        for label, row in entries.items()
    ]
    return {"title": table["sweep"], "units": units_of, "tables": tables, "rows": rows}


def _origin(table: Json, command: str) -> dict[str, object]:
    """Origin, date, commit, machine, repetitions and runs of a file: an entry for each commit and machine."""
    # Runs of one commit and machine belong together.
    groups: dict[tuple[str, str], dict[str, float | None]] = {}
    for name, run in table["runs"].items():
        seconds = None if run["seconds"] is None else round(run["seconds"], 1)
        groups.setdefault((_commit(name, run), run["machine"] or ""), {})[name] = seconds
    # The file has the commit and the machine of most runs, an entry of `runs` those that differ.
    by_size = sorted(groups.items(), key=lambda group: -len(group[1]))
    commit, machine = by_size[0][0]
    runs = []
    for (run_commit, run_machine), parts in by_size:
        entry: dict[str, object] = {"command": command}
        if None not in parts.values():
            entry["seconds"] = round(sum(seconds for seconds in parts.values() if seconds), 1)
        if run_commit != commit:
            entry["commit"] = run_commit
        if run_machine != machine:
            entry["machine"] = run_machine
        runs.append({**entry, "parts": parts})
    return {
        "origin": "run",
        "date": max(str(run["start_time"]) for run in table["runs"].values())[:10],
        "commit": commit,
        "machine": machine,
        "repetitions": [
            ", ".join(f"{axis} {value[axis]}" for axis in table["over"]) for value in table["cells"][0]["values"]
        ],
        "runs": runs,
    }


def _commit(name: str, run: Json) -> str:
    """The commit of a run, with -dirty if files were changed, and those at which it was resumed."""
    commits = [f"{run['commit']}-dirty" if run["is_dirty"] else run["commit"], *run["commits_resumed"]]
    if None in commits:
        raise ValueError(f"{name} was run outside of a checkout; results of record need a commit.")
    return ", ".join(dict.fromkeys(commits))


def _rounded(value: float) -> float:
    """Seven significant digits."""
    return value if isinstance(value, int) else float(f"{value:.7g}")


def _ordered(document: Mapping[str, object]) -> dict[str, Any]:
    """The parts of a file in the order of `Results`, rows last."""
    order = [
        "title",
        "origin",
        "date",
        "commit",
        "machine",
        "published",
        "repetitions",
        "runs",
        "units",
        "tables",
        "rows",
    ]
    return {name: document[name] for name in order if name in document}
