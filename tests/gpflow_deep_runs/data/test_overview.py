"""`gpflow_deep_runs.data.table.schema`: what a user sees of the columns."""

from typing import Any

from gpflow_deep_base.text import aligned
from gpflow_deep_runs.data.table.columns import Column
from gpflow_deep_runs.data.table.features import Feature
from gpflow_deep_runs.data.table.schema import Schema


def test_each_kind_of_column() -> None:
    words: Any = {"true": ("ja",), "false": ("nein",)}
    columns = [
        Feature(Column("id", "ignored", note="every value differs")),
        Feature(Column("price", "number", unit="€", note="'5 €' is 5"), num_missing=12),
        Feature(Column("new", "boolean", **words)),
        Feature(Column("flag", "boolean", true=("True",), false=("False",))),
        Feature(Column("kind", "category"), ("a", "b", "c", "d", "e"), ("y", "z")),
        Feature(Column("one", "category"), ("a",)),
        Feature(Column("when", "date", date_format="%d.%m.%Y"), parts=("day", "weekday")),
    ]
    rows = Schema(tuple(columns), (Column("t", "number"),), "multiclass", ("3", "4", "5")).table()
    assert rows == [
        ["column", "read as", "details", "becomes"],
        ["id", "ignored", "every value differs", "nothing"],
        ["price", "number", "12 missing; '5 €' is 5", "price, price=missing"],
        ["new", "boolean", "ja is 1", "new"],
        ["flag", "boolean", "", "flag"],
        ["kind", "category", "5 levels: a, b, c, d, ...; 2 rare ones together", "kind=a ... kind=(rare) (6 columns)"],
        ["one", "category", "1 level: a", "one=a"],
        ["when", "date", "as %d.%m.%Y", "when.day, when.weekday"],
        ["t", "number", "", "target, multiclass: 3, 4, 5"],
    ]
    assert "new     boolean   ja is 1                       new" in aligned(rows, is_text=True).splitlines()


def test_neighbours_that_are_read_alike_are_one_row() -> None:
    columns = [Feature(Column(f"x{d}", "number")) for d in range(784)]
    columns[3:3] = [Feature(Column("odd", "number"), num_missing=1)]
    columns += [Feature(Column(f"drop{d}", "ignored", note="by --ignore")) for d in range(4)]
    assert Schema(tuple(columns), (Column("t", "category"),), "binary", ("no", "yes")).table()[1:] == [
        *([f"x{d}", "number", "", f"x{d}"] for d in range(3)),
        ["odd", "number", "1 missing", "odd, odd=missing"],
        ["x3 ... x783 (781 columns)", "number", "", "x3 ... x783 (781 columns)"],
        ["drop0 ... drop3 (4 columns)", "ignored", "by --ignore", "nothing"],
        ["t", "category", "", "target, binary: no, yes"],
    ]
