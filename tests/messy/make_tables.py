"""Twelve tables as people have them, made from general facts and a fixed seed: python -m tests.messy.make_tables."""

from pathlib import Path

import numpy as np

from tests.messy import amounts, labels
from tests.messy.writing import Made

__all__ = ["FOLDER", "TABLES", "make"]

FOLDER = Path(__file__).resolve().parents[1] / "data" / "messy"
TABLES = {
    "passengers": labels.passengers,
    "houses": amounts.houses,
    "trains": amounts.trains,
    "bikes": amounts.bikes,
    "sales": amounts.sales,
    "weather": amounts.weather,
    "lab": labels.lab,
    "wine": labels.wine,
    "survey": labels.survey,
    "meters": amounts.meters,
    "flights": amounts.flights,
    "machines": amounts.machines,
}


def make(name: str) -> Made:
    """One of `TABLES`, the same each time."""
    return TABLES[name](np.random.default_rng(list(TABLES).index(name)))


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for table in map(make, TABLES):
        (FOLDER / table.file).write_bytes(table.content)
        print(f"{table.file}: {len(table.content)} bytes")
