"""docs/data.md against the code: the printed table of columns, and the kinds and flags that it names."""

import re
from dataclasses import fields
from pathlib import Path

from gpflow_deep_base.numbers.groups import group_names
from gpflow_deep_base.text import aligned
from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.tables import read_table
from tests.messy.tables import FOLDER

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_printed_table_is_that_of_the_page() -> None:
    spec = TableSpec(target=("Survived",), missing="impute", ignore=("Name", "Ticket", "Cabin"))
    schema = read_table(FOLDER / "passengers.csv", spec).schema
    assert schema is not None
    found = re.search(r"^```text\n(.*?)\n```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    assert found[1].splitlines() == [line.rstrip() for line in aligned(schema.table(), is_text=True).splitlines()]


def test_the_page_names_every_flag_of_a_table() -> None:
    chapter = PAGE[PAGE.index("## Your own table") : PAGE.index("## Known data sets")]
    names = {*(field.name for field in fields(TableSpec)), *group_names(TableSpec)} - {"file"}
    assert [name for name in sorted(names) if f"--{name}" not in chapter] == []
