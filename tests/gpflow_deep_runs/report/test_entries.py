"""Numbers of sweeps as results of record."""

import json
from typing import Any

import pytest

from gpflow_deep_runs.report.entries import of_sweep, quantity
from gpflow_deep_runs.report.results import cells, parsed
from tests.gpflow_deep_runs.report.example import document

COMMIT = "c0ffee" + "0" * 34
Values = dict[tuple[str, str, str], list[float | None]]
"""Number, data set and column -> a value for each split."""


def run_of(name: str, seconds: float | None = 60.0, **changes: Any) -> dict[str, Any]:
    return {
        "command": f"train.py --run_dir=RUN --name={name}",
        "commit": COMMIT,
        "is_dirty": False,
        "commits_resumed": [],
        "machine": "two cores",
        "start_time": "2026-11-22T12:54:45+00:00",
        "seconds": seconds,
        **changes,
    }


def sweep(values: Values, **runs: Any) -> dict[str, Any]:
    """table.json of scripts/sweep.py."""

    def name(dataset: str, split: int, column: str) -> str:
        return f"{dataset}-split{split}-{'a' if column in ('linear', 'GP') else 'b'}"

    cells_, names = [], set[str]()
    for (number, dataset, column), numbers in values.items():
        points = [
            {"split": split, "run": name(dataset, split, column), "value": value} for split, value in enumerate(numbers)
        ]
        names |= {str(point["run"]) for point in points}
        cells_.append({"number": number, "row": {"dataset": dataset}, "column": column, "values": points})
    seconds = {each: 60.0 + i for i, each in enumerate(sorted(names))}
    return {
        "sweep": "small",
        "script": "train.py",
        "over": ["split"],
        "baseline": "GP",
        "numbers": [{"name": n, "digits": 2, "differences": n == "loss"} for n in dict.fromkeys(k[0] for k in values)],
        "columns": list(dict.fromkeys(key[2] for key in values)),
        "cells": cells_,
        "runs": {each: run_of(each, seconds[each]) for each in sorted(names)} | runs,
    }


NEW: Values = {
    ("loss", "boston", "linear"): [1.0, 2.0, 3.0],
    ("loss", "boston", "GP"): [0.5, 1.25, 2.75],
    ("loss", "boston", "deep GP"): [0.25, 1.0, 2.0],
    ("hours", "boston", "linear"): [None, None, None],
    ("hours", "boston", "GP"): [1.0, 1.0, 4.0],
    ("hours", "boston", "deep GP"): [2.0, 2.0, 2.0],
}
UNITS = {"loss": "nats", "hours": "h"}


def test_quantity() -> None:
    assert quantity("test RMSE", "GP (2 layers)") == "test_rmse_gp_2_layers"


def test_a_sweep_makes_a_new_file() -> None:
    """A table for each number, differences between neighbours, no column without numbers, and what made them."""
    new = of_sweep(sweep(NEW), command="sweep.py small.toml", units=UNITS)
    results = parsed(json.loads(json.dumps(new)), "small")
    assert {name: cells(results, name) for name in results.tables} == {
        "loss": [["dataset", "linear", "GP", "deep GP"], ["boston", "2.00 ± 0.58", "1.50 ± 0.66", "1.08 ± 0.51"]],
        "loss_differences": [["dataset", "GP - linear", "deep GP - GP"], ["boston", "-0.50 ± 0.14", "-0.42 ± 0.17"]],
        "hours": [["dataset", "GP", "deep GP"], ["boston", "2.00 ± 1.00", "2.00 ± 0.00"]],
    }
    assert results.units["loss_deep_gp"] == "nats"
    assert results.repetitions == ("split 0", "split 1", "split 2")
    assert (results.origin, results.date, results.commit, results.machine) == ("run", "2026-11-22", COMMIT, "two cores")
    (made,) = results.runs
    assert (made.command, made.seconds) == ("sweep.py small.toml", 60 + 61 + 62 + 63 + 64 + 65)
    assert made.parts == {
        f"boston-split{split}-{setting}": 60.0 + 2 * split + (setting == "b") for split in range(3) for setting in "ab"
    }


def entered() -> dict[str, Any]:
    """A file of an earlier command, with a published number and times."""
    columns = [{"title": "set", "cell": "{dataset}"}, {"title": "linear", "cell": "{loss_linear:.1f}"}]
    columns += [{"title": "GP - linear", "cell": "{loss_gp - loss_linear:.2f}"}]
    columns += [{"title": "s", "cell": "{wall_seconds_gp:.0f}"}, {"title": "paper", "cell": "{paper_gp:.2f}"}]
    units = {"loss_linear": "nats", "loss_gp": "nats", "wall_seconds_gp": "s", "paper_gp": "nats"}
    row = {"dataset": "boston", "loss_linear": {"value": 9.0, "se": 1.0}, "loss_gp": 8.0, "wall_seconds_gp": 7}
    return document(
        repetitions=[],
        runs=[{"command": "by hand"}],
        units=units,
        tables={"loss": {"title": "loss", "columns": columns}},
        rows=[{**row, "paper_gp": 6.5}],
    )


def test_a_sweep_replaces_what_runs_made_and_keeps_the_rest() -> None:
    before = entered()
    new = of_sweep(sweep(NEW), before, command="sweep.py small.toml")
    assert before == entered()
    assert cells(parsed(new, "x"), "loss")[1] == ["boston", "2.0 ± 0.6", "-0.50 ± 0.14", "62", "6.50"]
    assert new["rows"][0]["paper_gp"] == 6.5
    assert (new["title"], new["published"], new["tables"]) == ("small", "a paper", before["tables"])
    assert (new["origin"], new["commit"], new["runs"][0]["command"]) == ("run", COMMIT, "sweep.py small.toml")
    assert "deep" not in json.dumps(new["rows"])  # no table of the file shows it


def test_a_sweep_brings_new_rows() -> None:
    values: Values = NEW | {(number, "energy", column): [1.0, 1.0, 1.0] for number, _, column in NEW}
    new = of_sweep(sweep(values), entered(), command="sweep.py small.toml")
    assert [row[0] for row in cells(parsed(new, "x"), "loss")] == ["set", "boston", "energy"]


def test_values_keep_seven_digits() -> None:
    values: Values = {key: [1 / 3 if v else None for v in value] for key, value in NEW.items()}
    new = of_sweep(sweep(values), command="c", units=UNITS)
    assert new["rows"][0]["loss_gp"] == {"values": [0.3333333] * 3}


def test_other_commits_and_machines_of_runs_are_kept() -> None:
    own = {
        "boston-split0-a": run_of("x", 5.0, commit="d" * 40, is_dirty=True),
        "boston-split1-a": run_of("x", None, commits_resumed=["e" * 40]),
        "boston-split2-a": run_of("x", 7.0, machine="ten cores"),
    }
    new = of_sweep(sweep(NEW, **own), entered(), command="c")
    assert new["runs"] == [
        {"command": "c", "seconds": 189.0, "parts": {f"boston-split{i}-b": 61.0 + 2 * i for i in range(3)}},
        {"command": "c", "seconds": 5.0, "commit": "d" * 40 + "-dirty", "parts": {"boston-split0-a": 5.0}},
        {"command": "c", "commit": f"{COMMIT}, {'e' * 40}", "parts": {"boston-split1-a": None}},
        {"command": "c", "seconds": 7.0, "machine": "ten cores", "parts": {"boston-split2-a": 7.0}},
    ]
    assert new["rows"][0]["wall_seconds_gp"] == {"value": 6.0, "n": 2}  # of the two whose time is known


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (sweep(NEW | {("loss", "boston", "GP"): [1.0, None, 1.0]}), "no loss of boston-split1-a; finish it"),
        (sweep({("loss", "boston", "GP"): [1.0]}), "no loss_linear; take it out of the file"),
        (sweep({("loss", "iris", "GP"): [1.0]}), "no row 'boston', only iris"),
        (sweep(NEW, **{"boston-split0-a": run_of("x", commit=None)}), "boston-split0-a was run outside of a checkout"),
        ({"cells": []}, "table of the sweep is damaged"),
        ({}, "table of the sweep is damaged"),
        ([], "table of the sweep is damaged"),
        ({**sweep(NEW), "runs": {}}, "no loss of boston-split0-a; finish it"),
    ],
)
def test_what_does_not_fit_is_refused(table: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        of_sweep(table, entered(), command="c")


def test_a_new_file_needs_units() -> None:
    with pytest.raises(ValueError, match="must have units; give those of hours"):
        of_sweep(sweep(NEW), command="c", units={"loss": "nats"})
