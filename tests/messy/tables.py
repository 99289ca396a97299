"""Twelve tables as people have them, and what is true of them: files of `tests/data/messy`, made from a fixed seed."""

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from numpy.typing import NDArray

__all__ = ["FOLDER", "TABLES", "Messy"]

FOLDER = Path(__file__).resolve().parents[1] / "data" / "messy"


class Messy(NamedTuple):
    """A table.

    :ivar name: of the table.
    :ivar file: its file in `FOLDER`.
    :ivar target: the column to predict.
    :ivar task: what it is.
    :ivar flags: what a user has to say besides --data and --target.
    """

    name: str
    file: str
    target: str
    task: str = "regression"
    flags: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Of the file."""
        return FOLDER / self.file

    @property
    def truth(self) -> dict[str, NDArray[Any]]:
        """Values of each column that is to be read, as they were before they were written as people write them.

        float64 (numbers, true and false as 1 and 0, times of day in hours; NaN: missing), datetime64 (of the clock
        that is meant) or texts (None: missing). Columns to leave out are not there.
        """
        table = pq.read_table(FOLDER / "truth" / f"{self.name}.parquet")
        return {name: table[name].to_numpy() for name in table.column_names}


TABLES = {
    table.name: table
    for table in (
        # A ship: ages missing in a fifth, most cabins missing, names and tickets of no use.
        Messy("passengers", "passengers.csv", "Survived", "binary", ("--ignore=Name,Ticket,Cabin", "--missing=impute")),
        # Prices in dollars, areas in square feet, None and NA as levels, Y/N, codes with zeros in front, m/d/y.
        Messy("houses", "houses.csv", "Price"),
        # A timetable: tabs, d.m.y, HH:MM, decimal commas, percent, a dash where nothing is known, platforms as numbers.
        Messy("trains", "trains.tsv", "Verspätung", "regression", ("--categorical=Gleis", "--missing=impute")),
        # Bikes rented per day: d/m/y, yes/no, percent, km/h, counts with commas; a day a row.
        Messy("bikes", "bikes.csv", "rentals", "regression", ("--date_parts=day,weekday",)),
        # Orders: m/d/y with am and pm, dollars, discounts in percent, store codes, TRUE/FALSE, N/A; CRLF.
        Messy("sales", "sales.csv", "revenue", "regression", ("--missing=impute",)),
        # A station: byte-order mark, semicolons, decimal commas, points between thousands, ISO moments, dashes; CRLF.
        Messy("weather", "weather.csv", "Temperatur", "regression", ("--missing=impute", "--date_parts=day,hour")),
        # A spreadsheet's "Unicode text": UTF-16, tabs, names of months, exponents, units, values below detection.
        Messy("lab", "lab.txt", "result", "binary", ("--na_values=<0.5", "--missing=impute")),
        # Semicolons between and within quoted fields, quotes in quotes, line breaks in notes, levels with semicolons.
        Messy("wine", "wine.csv.zip", "quality", "multiclass", ("--ignore=note",)),
        # Answers: bars between columns, agreement in words, ages in bands, 90 cities, NA a country, 45'000.
        Messy("survey", "survey.csv.xz", "overall", "multiclass", ("--categorical=city", "--rare=10")),
        # Energy by hour: moments with the offset of summer or winter, units, NaN and null, on/off, spaces.
        Messy("meters", "meters.csv.gz", "kWh", "regression", ("--missing=impute", "--dates=time:local")),
        # Parquet: a dictionary, moments, decimals, integers with nulls, float32, true/false.
        Messy("flights", "flights.parquet", "delay", "regression", ("--missing=impute",)),
        # NPZ: an array for each column, moments and text and true/false among them, NaN where a sensor failed.
        Messy("machines", "machines.npz", "output", "regression", ("--missing=impute",)),
    )
}
