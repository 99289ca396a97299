"""The messy tables prepared by hand, as a careful analyst would with pandas alone: what our reading is held against."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["PREPARED", "Prepared", "filled"]


class Prepared(NamedTuple):
    """Inputs [N, D] of numbers, NaN where one is missing, and targets [N]: numbers or classes from 0."""

    X: pd.DataFrame
    y: NDArray[Any]


def filled(X: pd.DataFrame, train: NDArray[Any]) -> NDArray[np.float64]:
    """Means of the training rows where a value is missing, and beside such a column another that says where."""
    means, columns = X.iloc[train].mean(), []
    for name in X:
        columns.append(X[name].fillna(means[name]))
        if X[name].isna().any():
            columns.append(X[name].isna())
    return pd.concat(columns, axis=1).to_numpy(np.float64)


def _onehot(column: "pd.Series[Any]") -> pd.DataFrame:
    """A column for each level, also for the missing one."""
    return pd.get_dummies(column, prefix=column.name, dummy_na=bool(column.isna().any()), dtype=float)


def _number(column: "pd.Series[Any]", *drop: str, decimal: str = ".") -> "pd.Series[Any]":
    text = column.astype("str").str.strip()
    for sign in drop:
        text = text.str.replace(sign, "", regex=False)
    return pd.to_numeric(text.str.replace(decimal, ".", regex=False))


def _day(moments: "pd.Series[Any]") -> "pd.Series[Any]":
    """Days since the first one."""
    return ((moments.dt.floor("D") - moments.dt.floor("D").min()) / pd.Timedelta(days=1)).rename("day")


def _weekday(moments: "pd.Series[Any]") -> "pd.Series[Any]":
    return moments.dt.weekday.rename("weekday")


def _hour(moments: "pd.Series[Any]") -> "pd.Series[Any]":
    return (moments.dt.hour + moments.dt.minute / 60).rename("hour")


def _inputs(*parts: Any) -> pd.DataFrame:
    return pd.concat(parts, axis=1).astype(float)


def passengers(path: Path) -> Prepared:
    frame = pd.read_csv(path)
    X = _inputs(frame["Pclass"], _onehot(frame["Sex"]), frame[["Age", "SibSp", "Fare"]], _onehot(frame["Embarked"]))
    return Prepared(X, frame["Survived"].to_numpy())


def houses(path: Path) -> Prepared:
    frame = pd.read_csv(path, dtype={"Zip": str}, keep_default_na=False)
    X = _inputs(
        _day(pd.to_datetime(frame["Sold"], format="%m/%d/%Y")),
        _onehot(frame["Zip"]),
        _number(frame["Area"], ",", "sq ft"),
        _number(frame["Lot"], "acres"),
        frame["Rooms"],
        _onehot(frame["Garage"]),
        _onehot(frame["Alley"]),
        frame["Air"] == "Y",
    )
    return Prepared(X, _number(frame["Price"], "$", ",").to_numpy(np.float64))


def trains(path: Path) -> Prepared:
    frame = pd.read_csv(path, sep="\t", dtype={"Gleis": str}, na_values=["-"], decimal=",")
    day = pd.to_datetime(frame["Datum"], format="%d.%m.%Y")
    X = _inputs(
        _day(day),
        _weekday(day),
        _onehot(frame["Linie"]),
        pd.to_timedelta(frame["Abfahrt"] + ":00") / pd.Timedelta(hours=1),
        _onehot(frame["Gleis"]),
        _number(frame["Auslastung"], "%"),
        _number(frame["Temperatur"], "°C", decimal=","),
        frame["Verspätung davor"],
    )
    return Prepared(X, frame["Verspätung"].to_numpy())


def bikes(path: Path) -> Prepared:
    frame = pd.read_csv(path, thousands=",")
    day = pd.to_datetime(frame["date"], format="%d/%m/%Y")
    X = _inputs(
        _day(day),
        _weekday(day),
        frame["holiday"] == "yes",
        _onehot(frame["weather"]),
        frame["temp"],
        _number(frame["humidity"], "%"),
        _number(frame["wind"], "km/h"),
    )
    return Prepared(X, frame["rentals"].to_numpy(np.float64))


def sales(path: Path) -> Prepared:
    frame = pd.read_csv(path, dtype={"store": str})
    when = pd.to_datetime(frame["when"], format="%m/%d/%Y %I:%M %p")
    X = _inputs(
        _day(when),
        _weekday(when),
        _hour(when),
        _onehot(frame["store"]),
        _number(frame["price"], "$"),
        _number(frame["pieces"], ","),
        _number(frame["discount"], "%"),
        frame["promo"],
        _onehot(frame["region"]),
    )
    return Prepared(X, _number(frame["revenue"], "$", ",").to_numpy(np.float64))


def weather(path: Path) -> Prepared:
    frame = pd.read_csv(path, sep=";", decimal=",", thousands=".", na_values=["-"], encoding="utf-8-sig")
    when = pd.to_datetime(frame["Zeit"], format="%Y-%m-%dT%H:%M")
    numbers = frame[["Druck", "Feuchte", "Wind"]]
    X = _inputs(_day(when), _hour(when), numbers, _onehot(frame["Richtung"]), frame["Regen"])
    return Prepared(X, frame["Temperatur"].to_numpy())


def lab(path: Path) -> Prepared:
    frame = pd.read_csv(
        path, sep="\t", encoding="utf-16", dtype={"batch": str}, keep_default_na=False, na_values={"crp": ["<0.5"]}
    )
    X = _inputs(
        _day(pd.to_datetime(frame["taken"], format="%d %B %Y")),
        _onehot(frame["batch"]),
        frame[["ph", "protein", "crp"]],
        _number(frame["haemoglobin"], "g/dL"),
        _onehot(frame["person"]),
    )
    return Prepared(X, (frame["result"] == "positive").to_numpy(np.int64))


def wine(path: Path) -> Prepared:
    frame = pd.read_csv(path, sep=";")
    X = _inputs(frame[["fixed acidity", "residual sugar", "total sulfur dioxide", "alcohol"]], _onehot(frame["grape"]))
    return Prepared(X, frame["quality"].map({"high": 0, "low": 1, "medium": 2}).to_numpy())


def survey(path: Path) -> Prepared:
    frame = pd.read_csv(path, sep="|", keep_default_na=False, thousands="'")
    counts = frame["city"].value_counts()
    city = frame["city"].where(frame["city"].map(counts) >= 10, "other")
    answers = [_onehot(frame[name]) for name in ("country", "friendly staff?", "fast?", "pet")]
    X = _inputs(_onehot(frame["age"]), frame["income"], _onehot(city), *answers)
    return Prepared(X, frame["overall"].map({"content": 0, "happy": 1, "unhappy": 2}).to_numpy())


def meters(path: Path) -> Prepared:
    frame = pd.read_csv(path)
    local = pd.to_datetime(frame["time"].str[:19])  # habits follow the clock on the wall
    X = _inputs(
        _day(local),
        _weekday(local),
        _hour(local),
        _onehot(frame["meter"].str.strip()),
        frame["heating"] == "on",
        _number(frame["volts"], "V"),
        frame["outside"],
    )
    return Prepared(X, frame["kWh"].to_numpy())


def flights(path: Path) -> Prepared:
    frame = pd.read_parquet(path)
    leaves = frame["leaves"]
    X = _inputs(
        _onehot(frame["carrier"].astype(str)),
        _onehot(frame["origin"]),
        _day(leaves),
        _weekday(leaves),
        _hour(leaves),
        frame["miles"],
        frame["fare"].astype(float),
        frame["seats"],
        frame["full"],
    )
    return Prepared(X, frame["delay"].to_numpy())


def machines(path: Path) -> Prepared:
    with np.load(io.BytesIO(path.read_bytes())) as arrays:
        frame = pd.DataFrame({name: arrays[name] for name in arrays.files})
    started = frame["started"]
    dates = [_day(started), _weekday(started), _hour(started)]
    X = _inputs(*dates, _onehot(frame["machine"]), frame[["night", "heat", "speed"]])
    return Prepared(X, frame["output"].to_numpy())


PREPARED: dict[str, Callable[[Path], Prepared]] = {
    prepare.__name__: prepare
    for prepare in (
        passengers,
        houses,
        trains,
        bikes,
        sales,
        weather,
        lab,
        wine,
        survey,
        meters,
        flights,
        machines,
    )
}
