"""Values of a source with types (Parquet, arrays, data frames) as numbers, days, hours or texts."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa, pc

__all__ = ["TypeKind", "are_whole", "days_of", "decoded", "floats_of", "has_zone", "hours_of", "kind_of_type"]
__all__ += ["texts_of"]

TypeKind = Literal["number", "boolean", "category", "date", "time", "text", "empty", "other"]

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def kind_of_type(kind: pa.DataType) -> TypeKind:
    """What values of an Arrow type are: "text" has to be looked at, "empty" has no values, "other" cannot be read."""
    # Levels are of the kind of their values.
    if pa.types.is_dictionary(kind):
        return "category" if kind_of_type(kind.value_type) not in ("other", "empty") else "other"
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return "time"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    return "empty" if pa.types.is_null(kind) else "other"


def decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of a dictionary type as values of its own type; others as they are."""
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def floats_of(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers and booleans as float64, NaN where there is none."""
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    values = _not_half(values)
    if pa.types.is_decimal(kind):
        values = values.cast(pa.string())  # then they are correctly rounded
    # Nulls become NaN.
    floats = values.cast(pa.float64(), safe=False)
    floats = pc.fill_null(floats, np.nan) if floats.null_count else floats
    return np.array(floats.to_numpy(), dtype=np.float64)


def are_whole(values: pa.ChunkedArray) -> bool:
    """Whether values are whole numbers, also if they are stored as others because some are missing."""
    if pa.types.is_floating(values.type):
        floats = floats_of(values)
        return bool((floats == np.rint(floats))[~np.isnan(floats)].all())
    return bool(pa.types.is_integer(values.type))


def days_of(values: pa.ChunkedArray, *, is_local: bool = False) -> NDArray[np.float64]:
    """Dates and timestamps as days since 1970-01-01, in UTC if they have a zone; NaN where there is none.

    :param is_local: days and hours of the clock on the wall of their zone.
    """
    return _scaled(pc.local_timestamp(values) if is_local else values, 24 * 3600)


def has_zone(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type are moments with a time zone."""
    return pa.types.is_timestamp(kind) and kind.tz is not None


def hours_of(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Times of the day and durations in hours; NaN where there is none."""
    return _scaled(values, 3600)


def texts_of(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as strings: whole numbers without a point, True and False."""
    values = decoded(values)
    kind = values.type
    if pa.types.is_boolean(kind):
        return pc.if_else(values, "True", "False")
    values = _not_half(values)
    return values if pa.types.is_string(kind) else values.cast(pa.string())


def _not_half(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers of half precision as single ones, by NumPy: early versions of Arrow cannot."""
    if values.type != pa.float16():
        return values
    chunks = [pa.array(chunk.to_numpy(zero_copy_only=False).astype(np.float32)) for chunk in values.chunks]
    return pa.chunked_array(chunks, pa.float32())


def _scaled(values: pa.ChunkedArray, unit_seconds: int) -> NDArray[np.float64]:
    kind = values.type
    # Counts in the unit of the type, and how many of these make one day or hour.
    if pa.types.is_date32(kind):
        counts = values.cast(pa.int32())
        per_unit = 1
    elif pa.types.is_date64(kind):
        counts = values.cast(pa.int64())
        per_unit = unit_seconds * 1000
    else:
        integer_type = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        counts = values.cast(integer_type)
        per_unit = unit_seconds * (10**9 // _NANOSECONDS[kind.unit])
    numbers = pc.fill_null(counts.cast(pa.int64()), 0).to_numpy()
    whole_units, rest = np.divmod(numbers, per_unit)  # exact also for nanoseconds, which float64 cannot hold
    is_there = np.asarray(values.is_valid().to_numpy(), dtype=bool)
    return np.where(is_there, whole_units + rest / per_unit, np.nan)
