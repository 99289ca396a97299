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
    """Means of the training rows where a value is missing, and for each such column another that says where."""
    means = X.iloc[train].mean()
    gone = [X[name].isna().rename(f"no {name}") for name in X if X[name].isna().any()]
    return pd.concat([X.fillna(means), *gone], axis=1).to_numpy(np.float64)


def _onehot(*columns: "pd.Series[Any]") -> pd.DataFrame:
    """A column for each level, also for the missing one."""
    blocks = [
        pd.get_dummies(column, prefix=column.name, dummy_na=bool(column.isna().any()), dtype=float)
        for column in columns
    ]
    return pd.concat(blocks, axis=1)


def _number(column: "pd.Series[Any]", *drop: str, decimal: str = ".") -> "pd.Series[Any]":
    text = column.astype("str").str.strip()
    for sign in drop:
        text = text.str.replace(sign, "", regex=False)
    return pd.to_numeric(text.str.replace(decimal, ".", regex=False))


def _days(moments: "pd.Series[Any]") -> "pd.Series[Any]":
    return (moments - moments.min()) / pd.Timedelta(days=1)


def _hour(moments: "pd.Series[Any]") -> "pd.Series[Any]":
    return moments.dt.hour + moments.dt.minute / 60


def _inputs(*parts: Any, **more: Any) -> pd.DataFrame:
    return pd.concat(
        [*parts, *(pd.Series(np.asarray(column, np.float64), name=name) for name, column in more.items())], axis=1
    )


def passengers(path: Path) -> Prepared:
    frame = pd.read_csv(path)
    X = _inputs(frame[["Pclass", "Age", "SibSp", "Fare"]], _onehot(frame["Sex"], frame["Embarked"]))
    return Prepared(X, frame["Survived"].to_numpy())


def houses(path: Path) -> Prepared:
    frame = pd.read_csv(path, dtype={"Zip": str}, keep_default_na=False)
    X = _inputs(
        _onehot(frame["Zip"], frame["Garage"], frame["Alley"]),
        frame["Rooms"],
        sold=_days(pd.to_datetime(frame["Sold"], format="%m/%d/%Y")),
        area=_number(frame["Area"], ",", "sq ft"),
        lot=_number(frame["Lot"], "acres"),
        air=frame["Air"] == "Y",
    )
    return Prepared(X, _number(frame["Price"], "$", ",").to_numpy(np.float64))


def trains(path: Path) -> Prepared:
    frame = pd.read_csv(path, sep="\t", dtype={"Gleis": str}, na_values=["-"], decimal=",")
    day = pd.to_datetime(frame["Datum"], format="%d.%m.%Y")
    X = _inputs(
        _onehot(frame["Linie"], frame["Gleis"]),
        frame["Verspätung davor"],
        day=_days(day),
        weekday=day.dt.weekday,
        departure=pd.to_timedelta(frame["Abfahrt"] + ":00") / pd.Timedelta(hours=1),
        load=_number(frame["Auslastung"], "%"),
        warmth=_number(frame["Temperatur"], "°C", decimal=","),
    )
    return Prepared(X, frame["Verspätung"].to_numpy())


def bikes(path: Path) -> Prepared:
    frame = pd.read_csv(path, thousands=",")
    day = pd.to_datetime(frame["date"], format="%d/%m/%Y")
    X = _inputs(
        _onehot(frame["weather"]),
        frame["temp"],
        day=_days(day),
        weekday=day.dt.weekday,
        holiday=frame["holiday"] == "yes",
        humidity=_number(frame["humidity"], "%"),
        wind=_number(frame["wind"], "km/h"),
    )
    return Prepared(X, frame["rentals"].to_numpy(np.float64))


def sales(path: Path) -> Prepared:
    frame = pd.read_csv(path, dtype={"store": str})
    when = pd.to_datetime(frame["when"], format="%m/%d/%Y %I:%M %p")
    X = _inputs(
        _onehot(frame["store"], frame["region"]),
        price=_number(frame["price"], "$"),
        pieces=_number(frame["pieces"], ","),
        discount=_number(frame["discount"], "%"),
        promo=frame["promo"],
        day=_days(when),
        weekday=when.dt.weekday,
        hour=_hour(when),
    )
    return Prepared(X, _number(frame["revenue"], "$", ",").to_numpy(np.float64))


def weather(path: Path) -> Prepared:
    frame = pd.read_csv(path, sep=";", decimal=",", thousands=".", na_values=["-"], encoding="utf-8-sig")
    when = pd.to_datetime(frame["Zeit"], format="%Y-%m-%dT%H:%M")
    X = _inputs(
        frame[["Druck", "Feuchte", "Wind", "Regen"]],
        _onehot(frame["Richtung"]),
        day=_days(when.dt.floor("D")),
        hour=_hour(when),
    )
    return Prepared(X, frame["Temperatur"].to_numpy())


def lab(path: Path) -> Prepared:
    frame = pd.read_csv(
        path, sep="\t", encoding="utf-16", dtype={"batch": str}, keep_default_na=False, na_values={"crp": ["<0.5"]}
    )
    X = _inputs(
        frame[["ph", "protein", "crp"]],
        _onehot(frame["batch"], frame["person"]),
        blood=_number(frame["haemoglobin"], "g/dL"),
        day=_days(pd.to_datetime(frame["taken"], format="%d %B %Y")),
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
    answers = [frame[name] for name in ("age", "country", "friendly staff?", "fast?", "pet")]
    X = _inputs(frame["income"], _onehot(city, *answers))
    return Prepared(X, frame["overall"].map({"content": 0, "happy": 1, "unhappy": 2}).to_numpy())


def meters(path: Path) -> Prepared:
    frame = pd.read_csv(path)
    local = pd.to_datetime(frame["time"].str[:19])  # habits follow the clock on the wall
    X = _inputs(
        _onehot(frame["meter"].str.strip()),
        frame["outside"],
        heating=frame["heating"] == "on",
        volts=_number(frame["volts"], "V"),
        day=_days(local.dt.floor("D")),
        weekday=local.dt.weekday,
        hour=_hour(local),
    )
    return Prepared(X, frame["kWh"].to_numpy())


def flights(path: Path) -> Prepared:
    frame = pd.read_parquet(path)
    leaves = frame["leaves"]
    X = _inputs(
        _onehot(frame["carrier"].astype(str), frame["origin"]),
        frame[["miles", "seats"]].astype(float),
        fare=frame["fare"].astype(float),
        full=frame["full"],
        day=_days(leaves.dt.floor("D")),
        weekday=leaves.dt.weekday,
        hour=_hour(leaves),
    )
    return Prepared(X, frame["delay"].to_numpy())


def machines(path: Path) -> Prepared:
    with np.load(io.BytesIO(path.read_bytes())) as arrays:
        frame = pd.DataFrame({name: arrays[name] for name in arrays.files})
    X = _inputs(
        _onehot(frame["machine"]),
        frame[["heat", "speed"]],
        night=frame["night"],
        day=_days(frame["started"].dt.floor("D")),
        weekday=frame["started"].dt.weekday,
        hour=_hour(frame["started"]),
    )
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
