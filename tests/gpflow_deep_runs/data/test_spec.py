"""`gpflow_deep_runs.data.spec`: flags of tables."""

from typing import Any

import pytest

from gpflow_deep_runs.cli.flags import parse, text
from gpflow_deep_runs.data.spec import TableSpec


def test_flags_are_fields() -> None:
    spec = parse(TableSpec, ["--target=a,b", '--ignore="x, y",id', "--missing=impute", "--rare=5", "--na_values=-,?"])
    assert spec == TableSpec(("a", "b"), ignore=("x, y", "id"), na_values=("-", "?"), missing="impute", rare=5)
    assert parse(TableSpec, text(spec).splitlines()) == spec


def test_what_is_given() -> None:
    assert TableSpec().given() == ()
    assert TableSpec(target=("a",), unknown="level").given() == ("target", "unknown")


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
