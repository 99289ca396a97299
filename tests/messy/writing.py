"""How people write tables: numbers with signs around them, dates in their order, and files of every kind."""

import csv
import io
import zipfile
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import numpy as np

__all__ = [
    "dates",
    "number",
    "text",
    "written",
    "zipped",
]


def number(
    values: Any, digits: int, *, decimal: str = ".", thousands: str = "", form: str = "{}", missing: str = ""
) -> list[str]:
    """Numbers as text: -1234.5 with `decimal=","`, `thousands="."` and `form="{} €"` is "-1.234,5 €"."""
    texts = []
    for value in np.asarray(values, dtype=np.float64):
        plain = f"{abs(value):,.{digits}f}".replace(",", "\0").replace(".", decimal).replace("\0", thousands)
        texts.append(missing if np.isnan(value) else ("-" if value < 0 else "") + form.format(plain))
    return texts


def dates(values: Any, form: str) -> list[str]:
    """datetime64 as text in a format of strftime, without zeros in front where the format says %-."""
    plain: list[datetime] = np.asarray(values).astype("datetime64[s]").astype(object).tolist()
    return [
        when.strftime(form.replace("%-d", str(when.day)).replace("%-m", str(when.month))).replace(" 0", " ")
        if "%-" in form
        else when.strftime(form)
        for when in plain
    ]


def rows_of(columns: Mapping[str, Any]) -> list[list[Any]]:
    """Header and rows."""
    return [list(columns), *map(list, zip(*columns.values(), strict=True))]


def text(columns: Mapping[str, Any], delimiter: str = ",", end: str = "\n", *, quote_all_text: bool = False) -> str:
    """A table as delimited text; None is an empty cell."""
    lines = io.StringIO()
    quoting: Any = csv.QUOTE_NONNUMERIC if quote_all_text else csv.QUOTE_MINIMAL
    csv.writer(lines, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows_of(columns))
    return lines.getvalue()


def zipped(content: bytes, name: str) -> bytes:
    """An archive of one file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def written(write: Callable[[Any], None]) -> bytes:
    """What a writer puts into a file."""
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()
