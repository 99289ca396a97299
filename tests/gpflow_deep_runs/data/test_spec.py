"""`gpflow_deep_runs.data.table.spec`: flags of tables."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from gpflow_deep_runs.cli.flags import group, parse, text
from gpflow_deep_runs.data.table.spec import FileSpec, TableSpec


@dataclass(frozen=True)
class Flags:
    """A table."""

    table: TableSpec = group()


def test_flags_are_fields() -> None:
    line = ["--target=a,b", '--ignore="x, y",id', "--missing=impute", "--rare=5", "--na_values=-,?", "--names=p,q"]
    flags = parse(Flags, line)
    spec = TableSpec(("a", "b"), ignore=("x, y", "id"), na_values=("-", "?"), missing="impute", rare=5)
    assert flags.table == replace(spec, file=FileSpec(names=("p", "q")))
    assert parse(Flags, text(flags).splitlines()) == flags


def test_what_is_given() -> None:
    assert TableSpec().given() == ()
    assert TableSpec(target=("a",), unknown="level").given() == ("target", "unknown")
    assert TableSpec(rare=3, file=FileSpec(sheet="a")).given() == ("rare", "sheet")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target": "price"}, r"target must be a tuple, as \('price',\), got 'price'"),
        ({"dates": "d"}, "dates must be a tuple"),
        ({"ignore": ("a", "b", "a")}, "--ignore must list different columns, but 'a' occurs twice"),
        ({"date_parts": ("day", "century")}, "--date_parts may list day, day_of_year, weekday, hour, got 'century'"),
        ({"rare": 1}, "--rare must be at least 2, got 1; leave it out to keep every level"),
    ],
)
def test_impossible_fields(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TableSpec(**fields)
