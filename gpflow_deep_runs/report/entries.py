"""Numbers of runs as results of record: from the table of a sweep, or the folder of a run.

    document = of_sweep(read_json("runs/uci/table.json"), read_json("results/uci.json"), command="gpflow-deep sweep f")
    document = of_run(document, "runs/k3", row="DGP3", numbers={"rmse": "models.dgp.test.rmse"})
    write("results/uci.json", document)

A number of a sweep is the quantity NUMBER_COLUMN in small letters, such as test_rmse_gp for its number "test RMSE" and
its column GP, and keeps the values of the single runs; wall_seconds_COLUMN is the median of their wall times. Entering
replaces what runs made and keeps the rest: layout, texts, and the quantities published_* and paper_*.
"""

import os
import re
import shlex
import statistics
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpflow_deep_runs.report.cells import cell, fields, is_number
from gpflow_deep_runs.report.results import parsed
from gpflow_deep_runs.report.structure import read_json
from gpflow_deep_runs.verbs import VERBS

__all__ = ["command_of", "of_run", "of_sweep", "quantity"]

KEPT = ("published", "paper")
"""How the names of quantities begin that no run makes."""


def quantity(*words: str) -> str:
    """The name of a quantity: "test RMSE", "GP" is test_rmse_gp."""
    return re.sub(r"[^a-z0-9]+", "_", " ".join(words).lower()).strip("_")


# Sweeps


def of_sweep(
    table: Mapping[str, Any],
    document: Mapping[str, Any] | None = None,
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
    try:
        _check_complete(table)
        found, made = _found(table), _made(table, command)
        new = _layout(table, found, units or {}) if document is None else {**document, "rows": _rows(document, found)}
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"the table of the sweep is damaged ({error!r}); write it again with --table_only.") from error
    numbers = {name for row in new["rows"] for name, entry in row.items() if not isinstance(entry, str)}
    new["units"] = {name: unit for name, unit in new["units"].items() if name in numbers}
    new = _ordered({**new, **made})
    parsed(new, "the results with the sweep's numbers")
    return new


def _check_complete(table: Mapping[str, Any]) -> None:
    """A column may lack a number in all runs, such as the seconds of a closed form, but not in some."""
    for each in table["cells"]:
        missing = [value["run"] for value in each["values"] if value["value"] is None]
        undone = [value["run"] for value in each["values"] if value["run"] not in table["runs"]]
        if undone or 0 < len(missing) < len(each["values"]):
            raise ValueError(
                f"the sweep has no {each['number']} of {[*undone, *missing][0]}; finish it, or take that run out of "
                f"its file."
            )


def _found(table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Row -> quantity -> entry."""
    found: dict[str, dict[str, Any]] = {}
    for each in table["cells"]:
        row = found.setdefault(" ".join(map(str, each["row"].values())), {})
        if values := [_rounded(v["value"]) for v in each["values"] if v["value"] is not None]:
            row[quantity(each["number"], each["column"])] = {"values": values}
        seconds = [s for v in each["values"] if (s := table["runs"][v["run"]]["seconds"]) is not None]
        if seconds:  # those of a run that was killed are not known
            entry = {"value": _rounded(statistics.median(seconds)), "n": len(seconds)}
            row[quantity("wall seconds", each["column"])] = entry
    return found


def _rows(document: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the document with the numbers that its tables show, then those that it did not have."""
    results, rows = parsed(document, "the results"), dict[str, dict[str, Any]]()
    columns = [column for table in results.tables.values() for column in table.columns]
    shown = {name for column in columns for t in column.templates for field in fields(t) for name in field.names}
    numbers = {label: {n: entry for n, entry in own.items() if n in shown} for label, own in found.items()}
    for row, stored in zip(results.rows, document["rows"], strict=True):
        label = cell(columns[0].templates, row)
        if label not in found:
            raise ValueError(f"the sweep has no row {label!r}, only {', '.join(found)}; take it out of the file.")
        made = [name for name, entry in row.items() if is_number(entry) and not name.startswith(KEPT)]
        if stale := [name for name in made if name not in numbers[label]]:
            raise ValueError(f"the sweep has no {', '.join(stale)}; take it out of the file, or name it published_...")
        rows[label] = {**stored, **numbers[label]}
    (field, *_) = fields(columns[0].templates[0])
    return [*rows.values(), *({field.name: label, **numbers[label]} for label in found if label not in rows)]


def _layout(
    table: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], units: Mapping[str, str]
) -> dict[str, Any]:
    """A new file: a table for each number, and for those that have differences one of these."""
    first = {"title": " ".join(table["cells"][0]["row"]), "cell": "{row}"}
    tables, every = dict[str, Any](), dict[str, str]()
    if missing := [number["name"] for number in table["numbers"] if not units.get(number["name"])]:
        raise ValueError(f"the numbers of a new file must have units; give those of {', '.join(missing)}.")
    for number in table["numbers"]:
        name, spec = number["name"], f":.{number['digits']}f"
        own = {c: q for c in table["columns"] if any((q := quantity(name, c)) in row for row in found.values())}
        every |= dict.fromkeys(own.values(), units[name])
        columns = [{"title": column, "cell": f"{{{q}{spec}}}"} for column, q in own.items()]
        tables[quantity(name)] = {"title": f"{table['sweep']}: {name}", "columns": [first, *columns]}
        if number["differences"] and len(own) > 1:
            columns = [{"title": f"{b} - {a}", "cell": f"{{{own[b]} - {own[a]}{spec}}}"} for a, b in pairwise(own)]
            title = f"{table['sweep']}: {name}, paired differences"
            tables[quantity(name, "differences")] = {"title": title, "columns": [first, *columns]}
    rows = [{"row": label, **{n: e for n, e in own.items() if n in every}} for label, own in found.items()]
    return {"title": table["sweep"], "units": every, "tables": tables, "rows": rows}


def _made(table: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Origin, date, commit, machine, repetitions and runs of a file: an entry for each commit and machine."""
    groups: dict[tuple[str, str], dict[str, float | None]] = {}
    for name, run in table["runs"].items():
        seconds = None if run["seconds"] is None else round(run["seconds"], 1)
        groups.setdefault((_commit(name, run), run["machine"] or ""), {})[name] = seconds
    (commit, machine), *_ = sorted(groups, key=lambda group: -len(groups[group]))
    return {
        "origin": "run",
        "date": max(str(run["start_time"]) for run in table["runs"].values())[:10],
        "commit": commit,
        "machine": machine,
        "repetitions": [
            ", ".join(f"{axis} {value[axis]}" for axis in table["over"]) for value in table["cells"][0]["values"]
        ],
        "runs": [
            {
                "command": command,
                **({} if None in parts.values() else {"seconds": round(sum(s for s in parts.values() if s), 1)}),
                **({} if own[0] == commit else {"commit": own[0]}),
                **({} if own[1] == machine else {"machine": own[1]}),
                "parts": parts,
            }
            for own, parts in sorted(groups.items(), key=lambda group: -len(group[1]))
        ],
    }


def _commit(name: str, run: Mapping[str, Any]) -> str:
    """The commit of a run, with -dirty if files were changed, and those at which it was resumed."""
    commits = [f"{run['commit']}-dirty" if run["is_dirty"] else run["commit"], *run["commits_resumed"]]
    if None in commits:
        raise ValueError(f"{name} was run outside of a checkout; results of record need a commit.")
    return ", ".join(dict.fromkeys(commits))


# Single runs


def of_run(
    document: Mapping[str, Any],
    run_dir: str | os.PathLike[str],
    *,
    row: str,
    numbers: Mapping[str, str],
    machine: str | None = None,
) -> dict[str, Any]:
    """The content of a file of results with numbers of a run in one of its rows.

    :param document: the file as it is.
    :param run_dir: the folder of the run: result.json and provenance.json.
    :param row: first cell of the row; a new row if there is none.
    :param numbers: quantity -> where it is in result.json, such as "models.gp.test.rmse".
    :param machine: what it ran on, if that is not the file's.
    :raises ValueError: if the run has no such number or no commit, or the row does not fit the tables.
    :raises OSError: if the folder holds no result.
    """
    folder = Path(run_dir).expanduser()
    result, provenance = (read_json(folder / name) for name in ("result.json", "provenance.json"))
    found = {name: _number(result, path, folder / "result.json") for name, path in numbers.items()}
    results, rows = parsed(document, "the results"), [*document["rows"]]
    first = next(iter(results.tables.values())).columns[0].templates
    labels = [cell(first, each) for each in results.rows]
    if labels.count(row) > 1:
        raise ValueError(f"one row must begin with {row!r}, got {labels.count(row)}; enter these by hand.")
    if row in labels:
        rows[labels.index(row)] = {**rows[labels.index(row)], **found}
    else:
        rows.append({next(fields(first[0])).name: row, **found})
    made = {"of": row, "origin": "run", **_provenance(provenance, folder)}
    made |= {"machine": machine} if machine else {} if document["machine"] else {"machine": provenance["platform"]}
    made |= {"seconds": round(_number(result, "wall_seconds", folder / "result.json"), 1), "numbers": dict(numbers)}
    runs = [*(each for each in document["runs"] if each.get("of") != row), made]
    origin = "run" if all(each.get("origin", document["origin"]) == "run" for each in runs) else "transcribed"
    new = _ordered({**document, "origin": origin, "runs": runs, "rows": rows})
    parsed(new, "the results with the run's numbers")
    return new


def command_of(command: str, folder: str) -> str:
    """The command of a run as `gpflow-deep VERB ...`, without what is of one machine: runs/NAME, DATA, no --resume.

    :param folder: name of the run.
    """
    script, *words = shlex.split(command)
    verb = next((verb for verb, (name, _) in VERBS.items() if name == Path(script).stem), None)
    kept = [Path(script).name] if verb is None else ["gpflow-deep", verb]
    words = [word for word in words if word not in ("--resume", "--resume=true", "--resume=auto")]
    named = {"--run_dir": f"runs/{folder}", "--data_dir": "DATA"}
    for before, word in zip(["", *words], words, strict=False):
        name = word.partition("=")[0]
        if name in named and "=" in word:
            kept.append(f"{name}={named[name]}")
        else:
            kept.append(named.get(before, word))
    return shlex.join(kept) if " " not in kept[0] else " ".join([kept[0], shlex.join(kept[1:])])


def _provenance(stored: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Command, commit and date; of a resumed run the last command, which is that of the whole run, and all commits."""
    try:
        starts = [stored, *stored.get("resumed", [])]
        runs = [{"commit": each["git_commit"], "is_dirty": each["git_dirty"], "commits_resumed": []} for each in starts]
        return {
            "command": command_of(starts[-1]["command"], folder.name),
            "commit": ", ".join(dict.fromkeys(_commit(str(folder), run) for run in runs)),
            "date": starts[-1]["start_time"][:10],
        }
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / 'provenance.json'} is damaged ({error!r}); results of record need it.") from error


def _number(result: Any, path: str, file: Path) -> float:
    """The number at a path such as "models.gp.test.rmse"."""
    found = result
    for key in path.split("."):
        if not isinstance(found, Mapping) or key not in found:
            there = ", ".join(found) if isinstance(found, Mapping) else repr(found)
            raise ValueError(f"{file} has no {path}; in place of {key!r} there is {there}.")
        found = found[key]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"{path} in {file} must be a number, got {found!r}.")
    return _rounded(found)


def _rounded(value: float) -> float:
    """Seven significant digits."""
    return value if isinstance(value, int) else float(f"{value:.7g}")


def _ordered(document: Mapping[str, Any]) -> dict[str, Any]:
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
