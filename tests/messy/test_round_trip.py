"""Random numbers and dates in random styles: what was written is read, or refused, and never anything else."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.messy.reading import days, read, write
from tests.messy.writing import dates, number, text

FORMS = ["{}", "{}", "{}%", "{} %", "${}", "{} €", "EUR {}", "{} kg", "{} km/h", "{} °C", "{} sq ft"]
FORMATS = [
    *["%Y-%m-%d", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%-m/%-d/%Y", "%d.%m.%Y", "%-d.%-m.%Y", "%d-%m-%Y", "%m-%d-%Y"],
    *["%d %b %Y", "%b %d %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y", "%d-%b-%Y", "%a %d %b %Y", "%A, %d %B %Y"],
    *["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M %p", "%d.%m.%Y %H:%M:%S"],
    *["%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%d-%b-%y"],
]
TABLES = 30


def target(count: int) -> list[str]:
    return [str(101 + 7 * i) for i in range(count)]


def outcome(path: Path, content: bytes, **flags: Any) -> dict[str, list[float]] | None:
    """What was read; None if the table was refused in one line that names a flag."""
    write(path.parent, path.name, content)
    message = ""
    try:
        return read(path, **flags)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message
    assert "--" in message
    return None


def test_numbers(rng: np.random.Generator, tmp_path: Path) -> None:
    """Between commas, numbers are written with a decimal point; in all other files with either sign."""
    num_read = 0
    for _ in range(TABLES):
        count, digits = int(rng.integers(3, 12)), int(rng.integers(5))
        delimiter = str(rng.choice([",", ";", "\t", "|"]))
        decimal = "." if delimiter == "," else str(rng.choice([".", ","]))
        thousands = str(rng.choice(["", "'", "’", " ", "\u00a0", "," if decimal == "." else "."]))
        values = np.round(rng.normal(size=count) * 10.0 ** rng.integers(-1, 8), digits) + 0.0
        cells = number(values, digits, decimal=decimal, thousands=thousands, form=str(rng.choice(FORMS)))
        content = text({"a": cells, "y": target(count)}, delimiter).encode()
        found = outcome(tmp_path / "t.csv", content)
        if found is not None:
            assert found == {"a": values.tolist(), "y": list(map(float, target(count)))}, cells
            num_read += 1
    assert num_read > TABLES / 2


@pytest.mark.parametrize("order", ["", "dmy", "mdy"])
def test_dates(order: str, rng: np.random.Generator, tmp_path: Path) -> None:
    """With the order given, no date is refused."""
    forms = [form for form in FORMATS if not order or re.findall("%-?([bBdmyY])", form)[:2] == list(order[:2])]
    flags: dict[str, Any] = {"dates": (f"a:{order}",)} if order else {}
    num_read = 0
    for _ in range(TABLES):
        form, count = str(rng.choice(forms)), int(rng.integers(3, 12))
        minutes = rng.integers(int(rng.choice([10, 400, 20_000])) * 1440, size=count)
        moments = np.datetime64("2001-01-01", "s") + minutes * np.timedelta64(60, "s")
        cells = dates(moments, form)
        content = text({"a": cells, "y": target(count)}, str(rng.choice([",", ";", "\t"]))).encode()
        found = outcome(tmp_path / "t.csv", content, **flags)
        if found is not None:
            truth = np.floor(days(*moments.astype(str))).tolist()
            assert found.get("a.day") == (truth if len(set(truth)) > 1 else None), cells
            num_read += 1
    assert num_read == TABLES if order else num_read > TABLES / 3
