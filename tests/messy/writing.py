"""How people write tables: numbers with signs around them, dates in their order, and files of every kind."""

import bz2
import csv
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Made",
    "compressed",
    "dates",
    "days",
    "happens",
    "hours",
    "levels",
    "number",
    "season",
    "some",
    "text",
    "weekday",
    "written",
    "zipped",
]


class Made(NamedTuple):
    """A table: what is in its file, and what is true.

    :ivar file: name of the file. :ivar content: its bytes.
    :ivar target: the column to predict. :ivar task: what it is.
    :ivar flags: what a user has to say besides --data and --target.
    :ivar truth: values of each column that is to be read: float64 (numbers, true and false as 1 and 0, times of day in
        hours; NaN: missing), datetime64 (of the clock that is meant) or texts (None: missing). Columns to leave out are
        not there.
    """

    file: str
    content: bytes
    target: str
    task: str
    flags: tuple[str, ...]
    truth: dict[str, NDArray[Any]]


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


def levels(rng: np.random.Generator, count: int, names: Sequence[str | None], weights: Any = None) -> NDArray[Any]:
    """Random levels [count]; every one occurs."""
    chances = None if weights is None else np.asarray(weights, dtype=np.float64) / np.sum(weights)
    picks = rng.choice(len(names), count, p=chances)
    picks[: len(names)] = np.arange(len(names))
    return np.array(names, dtype=object)[picks]


def some(rng: np.random.Generator, values: NDArray[Any], chance: Any) -> NDArray[Any]:
    """The values, missing by chance."""
    is_gone = rng.random(len(values)) < chance
    gone: Any = None if values.dtype == object else np.nan
    return np.where(is_gone, gone, values)


def rows_of(columns: Mapping[str, Any]) -> list[list[Any]]:
    """Header and rows."""
    return [list(columns), *map(list, zip(*columns.values(), strict=True))]


def text(columns: Mapping[str, Any], delimiter: str = ",", end: str = "\n", *, quote_all_text: bool = False) -> str:
    """A table as delimited text; None is an empty cell."""
    lines = io.StringIO()
    quoting: Any = csv.QUOTE_NONNUMERIC if quote_all_text else csv.QUOTE_MINIMAL
    csv.writer(lines, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows_of(columns))
    return lines.getvalue()


compressed: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda content: gzip.compress(content, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


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


def days(rng: np.random.Generator, count: int, first: str, span: int) -> NDArray[Any]:
    """Random days [count] of the `span` days from the first on."""
    return np.datetime64(first, "s") + rng.integers(span, size=count) * np.timedelta64(86400, "s")


def hours(moments: NDArray[Any]) -> NDArray[Any]:
    """Time of the day."""
    return (moments - moments.astype("datetime64[D]")) / np.timedelta64(3600, "s")


def weekday(moments: NDArray[Any]) -> NDArray[Any]:
    """From 0, a Monday, to 6."""
    return (moments.astype("datetime64[D]").astype(int) + 3) % 7


def season(moments: NDArray[Any]) -> NDArray[Any]:
    """Cosine over the year, highest in the middle of July."""
    day = (moments.astype("datetime64[D]") - moments.astype("datetime64[Y]")).astype(int)
    return -np.cos(2 * np.pi * (day - 13) / 365.25)


def happens(rng: np.random.Generator, logit: Any) -> NDArray[Any]:
    """Random truths [count] with these log odds."""
    return rng.random(len(logit)) < 1 / (1 + np.exp(-np.asarray(logit, dtype=np.float64)))
