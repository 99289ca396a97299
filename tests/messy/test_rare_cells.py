"""One cell among many decides how a column is read, or is refused by its row: a look at some rows is not enough."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.messy.reading import Refused, column, days, read, refused, write

N, PLACE = 30_000, 21_777


def with_one(cells: Sequence[str], odd: str) -> list[str]:
    """The cells again and again, but for one row."""
    texts = [cells[i % len(cells)] for i in range(N)]
    return [*texts[:PLACE], odd, *texts[PLACE + 1 :]]


WHOLE = [str(i) for i in range(10_000, 19_990)]
DATES = ["01/02/2020", "03/04/2020", "12/12/2019"]
THREE = [f"{i},{i}" for i in range(100, 999)]
CASES: list[tuple[str, list[str], str, str, dict[str, float] | Refused]] = [
    ("a text", WHOLE, "x", ",", Refused(r"'a'.*'x' in row 21777")),
    ("another unit", [f"${i}.50" for i in range(300)], "€7", ",", Refused(r"'a'.*€7' in row 21777")),
    ("no unit", [f"{i}%" for i in range(300)], "7", ",", Refused(r"'a'.*'7' in row 21777")),
    ("a decimal point", [f"{i},5" for i in range(300)], "1.5", ";", Refused(r"'a'.*1\.5' in row 21777")),
    ("a decimal comma", THREE, "1,5", ";", {"a": 1.5}),
    ("commas twice", THREE, "1,234,567", ";", {"a": 1_234_567}),
    ("a comma between thousands", [f"{i}.5" for i in range(300)], "1,234", ",", {"a": 1234}),
    ("in brackets", WHOLE, "(5)", ",", {"a": -5}),
    ("a third number", ["0", "1"], "2", ",", {"a": 2}),
    ("a third word", ["yes", "no"], "maybe", ",", {"a=maybe": 1, "a=no": 0, "a=yes": 0}),
    ("a level None", ["p", "q"], "None", ",", {"a=None": 1, "a=p": 0, "a=q": 0}),
    ("a decisive date", DATES, "13/02/2020", ",", {"a.day": days("2020-02-13")[0]}),
    ("no decisive date", DATES, "12/02/2020", ",", Refused(r"'a'.*--dates=a:dmy")),
    ("a contradiction", ["13/02/2020", *DATES], "02/13/2020", ",", Refused(r"'a'.*02/13/2020' in row 21777")),
    ("another format", ["2020-01-02", "2020-03-04"], "13/02/2020", ",", Refused(r"'a'.*13/02/2020' in row 21777")),
    ("an offset", ["2020-01-02 10:00"], "2020-01-02 10:00+02:00", ",", Refused(r"'a'.*row 21777")),
    ("no time", [f"{i % 24}:30" for i in range(24)], "soon", ",", Refused(r"'a'.*'soon' in row 21777")),
    ("nothing", WHOLE, "", ",", Refused(r"'a' \(1\).*--missing")),
    ("a code", WHOLE, "01234", ",", Refused(r"'a'.*leading zeros.*--numeric")),
]


@pytest.mark.parametrize(("cells", "odd", "delimiter", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_one_cell(
    cells: list[str], odd: str, delimiter: str, expected: dict[str, float] | Refused, tmp_path: Path
) -> None:
    path = write(tmp_path, "t.csv", column(with_one(cells, odd), None, delimiter))
    if isinstance(expected, Refused):
        refused(path, expected.match)
        return
    found = read(path)
    for name, value in expected.items():
        assert found[name][PLACE] == value
        assert np.isfinite(found[name]).all()
