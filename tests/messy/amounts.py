"""Messy tables whose targets are numbers: each a function from a generator to a table with its truth."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from tests.messy.writing import (
    Made,
    compressed,
    dates,
    days,
    hours,
    levels,
    number,
    season,
    some,
    text,
    weekday,
    written,
)

__all__ = ["bikes", "flights", "houses", "machines", "meters", "sales", "trains", "weather"]


def houses(rng: np.random.Generator, n: int = 400) -> Made:
    """Prices in dollars, areas in square feet, None and NA as levels, Y/N, codes with zeros in front, m/d/y."""
    sold = days(rng, n, "2018-01-02", 900)
    area = rng.gamma(9, 180, n).round() + 400
    lot, rooms = np.round(rng.gamma(2, 0.2, n) + 0.05, 2), np.clip((area / 250 + rng.normal(size=n)).round(), 2, 12)
    garage = levels(rng, n, ["None", "Attached", "Detached", "Built-in"], [2, 5, 3, 1])
    alley = levels(rng, n, ["NA", "Gravel", "Paved"], [8, 1, 1])
    air, code = (rng.random(n) < 0.8).astype(float), levels(rng, n, ["02134", "02139", "02142", "02446", "03055"])
    place = {"02134": 0.0, "02139": 0.25, "02142": 0.35, "02446": 0.15, "03055": -0.4}
    level = 12.1 + 0.75 * np.log(area / 1800) + 0.1 * np.log(lot) + 0.12 * (garage != "None") + 0.1 * air
    level += np.array([place[c] for c in code]) + 1e-4 * (sold - sold.min()).astype(int) / 86400
    price = np.round(np.exp(level + 0.08 * rng.normal(size=n)), -2)
    price[np.argmax(price)] = 1_150_000
    columns = {
        "Id": range(1, n + 1), "Sold": dates(sold, "%m/%d/%Y"), "Zip": code,
        "Area": number(area, 0, thousands=",", form="{} sq ft"), "Lot": number(lot, 2, form="{} acres"),
        "Rooms": number(rooms, 0), "Garage": garage, "Alley": alley,
        "Air": np.where(air == 1, "Y", "N"), "Price": number(price, 0, thousands=",", form="${}"),
    }  # fmt: skip
    truth = {"Sold": sold, "Zip": code, "Area": area, "Lot": lot, "Rooms": rooms, "Garage": garage, "Alley": alley}
    return Made("houses.csv", text(columns).encode(), "Price", "regression", (), truth | {"Air": air, "Price": price})


def trains(rng: np.random.Generator, n: int = 400) -> Made:
    """A timetable: tabs, d.m.y, HH:MM, decimal commas, percent, a dash where nothing is known, platforms as numbers."""
    day, departure = days(rng, n, "2022-01-03", 180), rng.integers(5 * 12, 23 * 12, n) / 12
    line = levels(rng, n, ["RE 1", "RE 2", "S 3", "S 7", "IC 2013"])
    platform = levels(rng, n, ["1", "2", "3", "4", "5", "11", "12"])
    load, warmth = rng.integers(5, 120, n).astype(float), np.round(9 + 9 * season(day) + 3 * rng.normal(size=n), 1)
    before = np.round(rng.gamma(1.2, 3, n), 1)
    rush = np.exp(-((departure - 7.75) ** 2)) + np.exp(-((departure - 17.25) ** 2) / 2)
    delay = 2 + 4 * rush + 0.5 * before + 0.02 * load + 2.5 * np.isin(platform, ["3", "11"]) + 1.5 * (line == "IC 2013")
    delay = np.round(delay - 0.8 * (weekday(day) > 4) + 0.6 * rng.normal(size=n), 1)
    before = some(rng, before, 0.1)
    clock = [f"{int(h):02d}:{round(h % 1 * 60):02d}" for h in departure]
    columns = {
        "Datum": dates(day, "%d.%m.%Y"), "Linie": line, "Abfahrt": clock, "Gleis": platform,
        "Auslastung": number(load, 0, form="{} %"), "Temperatur": number(warmth, 1, decimal=",", form="{} °C"),
        "Verspätung davor": number(before, 1, decimal=",", missing="-"),
        "Verspätung": number(delay, 1, decimal=","),
    }  # fmt: skip
    truth = {"Datum": day, "Linie": line, "Abfahrt": departure, "Gleis": platform, "Auslastung": load}
    truth |= {"Temperatur": warmth, "Verspätung davor": before, "Verspätung": delay}
    flags = ("--categorical=Gleis", "--missing=impute")
    return Made("trains.tsv", text(columns, "\t").encode(), "Verspätung", "regression", flags, truth)


def bikes(rng: np.random.Generator, n: int = 420) -> Made:
    """Bikes rented per day: d/m/y, yes/no, percent, km/h, counts with commas; a day a row."""
    day = np.datetime64("2019-01-01", "s") + np.arange(n) * np.timedelta64(86400, "s")
    free = weekday(day) > 4
    holiday = (rng.random(n) < 0.05) & ~free
    weather = levels(rng, n, ["clear", "mist", "light rain"], [5, 3, 1])
    warmth = np.round(11 + 10 * season(day) + 3 * rng.normal(size=n), 1)
    damp, wind = rng.integers(35, 98, n).astype(float), rng.integers(2, 40, n).astype(float)
    count = 2400 + 160 * warmth - 2.2 * np.maximum(warmth - 18, 0) ** 3 - 14 * (damp - 60) - 12 * wind
    count += -900 * (weather == "light rain") - 500 * (free | holiday) + 2 * np.arange(n)
    count = np.maximum(count + 180 * rng.normal(size=n), 20).round()
    columns = {
        "date": dates(day, "%d/%m/%Y"), "holiday": np.where(holiday, "yes", "no"), "weather": weather,
        "temp": number(warmth, 1), "humidity": number(damp, 0, form="{}%"), "wind": number(wind, 0, form="{} km/h"),
        "rentals": number(count, 0, thousands=","),
    }  # fmt: skip
    truth = {"date": day, "holiday": holiday.astype(float), "weather": weather, "temp": warmth, "humidity": damp}
    truth |= {"wind": wind, "rentals": count}
    flags = ("--date_parts=day,weekday",)  # the season is in the weather
    return Made("bikes.csv", text(columns).encode(), "rentals", "regression", flags, truth)


def sales(rng: np.random.Generator, n: int = 400) -> Made:
    """Orders: m/d/y with am and pm, dollars, discounts in percent, store codes, TRUE/FALSE, N/A; CRLF."""
    when = days(rng, n, "2021-01-04", 300) + rng.integers(8 * 60, 21 * 60, n) * np.timedelta64(60, "s")
    store = levels(rng, n, ["0007", "0042", "0107", "1042"])
    price, pieces = np.round(np.exp(rng.normal(1.5, 0.4, n)), 2), rng.integers(40, 1500, n).astype(float)
    discount, promo = rng.choice([0.0, 5, 10, 12.5, 15, 25], n), (rng.random(n) < 0.3).astype(float)
    region = levels(rng, n, ["North", "South", "West"])
    revenue = price * pieces * (1 - discount / 100) * (1 + 0.15 * promo + 0.1 * (region == "South"))
    revenue = np.round(revenue * (1 + 0.2 * (store == "0042")) * np.exp(0.05 * rng.normal(size=n)) - 60, 2)
    discount, region = some(rng, discount, 0.06), some(rng, region, 0.05)
    texts = number(discount, 1, form="{}%", missing="N/A")
    columns = {
        "order_id": [f"SO-{10_000 + i}" for i in range(n)], "when": dates(when, "%-m/%-d/%Y %I:%M %p"), "store": store,
        "price": number(price, 2, form="${}"), "pieces": number(pieces, 0, thousands=","),
        "discount": [t.replace(".0%", "%") for t in texts],
        "promo": np.where(promo == 1, "TRUE", "FALSE"), "region": np.where(region == None, "N/A", region),  # noqa: E711
        "revenue": number(revenue, 2, thousands=",", form="${}"),
    }  # fmt: skip
    truth = {"when": when, "store": store, "price": price, "pieces": pieces, "discount": discount, "promo": promo}
    truth |= {"region": region, "revenue": revenue}
    return Made("sales.csv", text(columns, end="\r\n").encode(), "revenue", "regression", ("--missing=impute",), truth)


def weather(rng: np.random.Generator, n: int = 450) -> Made:
    """A station: byte-order mark, semicolons, decimal commas, points between thousands, ISO moments, dashes; CRLF."""
    when = np.datetime64("2021-02-01", "s") + np.sort(rng.permutation(24 * 200)[:n]) * np.timedelta64(3600, "s")
    pressure, damp = np.round(1013 + 9 * rng.normal(size=n), 1), rng.integers(30, 100, n).astype(float)
    wind = np.round(rng.gamma(2, 2, n), 1)
    direction = levels(rng, n, ["N", "NE", "E", "SE", "S", "SW", "W", "NW"])
    rain = np.round(np.where(rng.random(n) < 0.7, 0, rng.gamma(1, 2, n)), 1)
    south = np.isin(direction, ["S", "SE", "SW"]) * 1.0 - np.isin(direction, ["N", "NE", "NW"])
    warmth = 8 + 9 * season(when) - 3.5 * np.cos(2 * np.pi * (hours(when) - 3) / 24) + 1.5 * south
    warmth = np.round(warmth - 0.06 * (damp - 65) + 0.08 * (pressure - 1013) - 0.6 * rain + 0.7 * rng.normal(size=n), 1)
    pressure, rain = some(rng, pressure, 0.04), some(rng, rain, 0.08)
    columns = {
        "Zeit": [str(moment)[:16] for moment in when], "Druck": number(pressure, 1, decimal=",", thousands="."),
        "Feuchte": number(damp, 0), "Wind": number(wind, 1, decimal=","), "Richtung": direction,
        "Regen": number(rain, 1, decimal=",", missing="-"),
        "Temperatur": number(warmth, 1, decimal=","),
    }  # fmt: skip
    truth = {"Zeit": when, "Druck": pressure, "Feuchte": damp, "Wind": wind, "Richtung": direction, "Regen": rain}
    content = text(columns, ";", "\r\n").encode("utf-8-sig")
    flags = ("--missing=impute", "--date_parts=day,hour")  # weather knows no weekdays
    return Made("weather.csv", content, "Temperatur", "regression", flags, truth | {"Temperatur": warmth})


def meters(rng: np.random.Generator, n: int = 450) -> Made:
    """Energy by hour: moments with the offset of summer or winter, units, NaN and null, on/off, spaces."""
    local = pd.date_range("2021-03-20", periods=24 * 120, freq="h", tz="Europe/Berlin")
    local = local[np.sort(rng.permutation(len(local))[:n])]
    wall = local.tz_localize(None).to_numpy().astype("datetime64[s]")
    meter = levels(rng, n, ["M01", "M02", "M03", "M04"])
    heating, volts = (rng.random(n) < 0.4).astype(float), np.round(230 + 2 * rng.normal(size=n), 1)
    warmth = np.round(12 + 7 * season(wall) + 3 * rng.normal(size=n), 1)
    hour = hours(wall)
    used = 0.8 + 0.9 * np.exp(-((hour - 19) ** 2) / 8) + 0.5 * np.exp(-((hour - 7.5) ** 2) / 3) + 0.4 * (meter == "M03")
    used = np.round(used + heating * 0.06 * np.maximum(20 - warmth, 0) + 0.12 * rng.normal(size=n), 3)
    warmth = some(rng, warmth, 0.1)
    texts = [t or ("NaN" if i % 2 else "null") for i, t in enumerate(number(warmth, 1))]
    stamps = [f"{moment:%Y-%m-%d %H:%M:%S%z}" for moment in local]
    columns = {
        "time": [f"{s[:-2]}:{s[-2:]}" for s in stamps], "meter": [f"{m} " for m in meter],
        "heating": np.where(heating == 1, "on", "off"),
        "volts": number(volts, 1, form="{} V"), "outside": texts, "kWh": number(used, 3),
    }  # fmt: skip
    truth = {"time": wall, "meter": meter, "heating": heating, "volts": volts, "outside": warmth, "kWh": used}
    content = compressed["gz"](text(columns).encode())
    flags = ("--missing=impute", "--dates=time:local")  # people follow the clock on the wall
    return Made("meters.csv.gz", content, "kWh", "regression", flags, truth)


def flights(rng: np.random.Generator, n: int = 400) -> Made:
    """Parquet: a dictionary, moments, decimals, integers with nulls, float32, true/false."""
    leaves = days(rng, n, "2013-02-01", 200) + rng.integers(5 * 12, 23 * 12, n) * np.timedelta64(300, "s")
    carrier, origin = levels(rng, n, ["AA", "B6", "DL", "UA"]), levels(rng, n, ["JFK", "LGA", "EWR"])
    fare, miles = np.round(rng.gamma(5, 40, n) + 40, 2), rng.integers(180, 2600, n).astype(np.float32).astype(float)
    seats, full = rng.choice([55.0, 140, 182, 290], n), (rng.random(n) < 0.5).astype(float)
    hour = hours(leaves)
    delay = -6 + 1.2 * (hour - 5) + 6 * (carrier == "B6") + 5 * full - 0.02 * (seats - 140) + 4 * (origin == "EWR")
    delay = np.round(delay + 3 * (weekday(leaves) == 4) + 2.5 * rng.normal(size=n), 1)
    seats = some(rng, seats, 0.1)
    columns = {
        "carrier": pa.array(carrier, pa.string()).dictionary_encode(), "origin": pa.array(origin, pa.string()),
        "leaves": pa.array(leaves, pa.timestamp("us")), "miles": pa.array(miles.astype(np.float32)),
        "fare": pa.array([f"{f:.2f}" for f in fare]).cast(pa.decimal128(8, 2)),
        "seats": pa.array([None if np.isnan(s) else int(s) for s in seats], pa.int32()),
        "full": pa.array(full == 1), "delay": pa.array(delay),
    }  # fmt: skip
    truth = {"carrier": carrier, "origin": origin, "leaves": leaves, "fare": fare, "miles": miles, "seats": seats}
    content = written(lambda file: pyarrow.parquet.write_table(pa.table(columns), file))
    flags = ("--missing=impute",)
    return Made("flights.parquet", content, "delay", "regression", flags, truth | {"full": full, "delay": delay})


def machines(rng: np.random.Generator, n: int = 400) -> Made:
    """NPZ: an array for each column, moments and text and true/false among them, NaN where a sensor failed."""
    started = days(rng, n, "2023-01-01", 365) + rng.integers(24 * 60, size=n) * np.timedelta64(60, "s")
    machine, night = levels(rng, n, ["A1", "A2", "B1"]), (hours(started) < 6).astype(float)
    heat, speed = np.round(60 + 8 * rng.normal(size=n), 2), rng.integers(800, 2400, n).astype(float)
    output = 40 + 0.02 * speed - 0.05 * (heat - 62) ** 2 + 4 * (machine == "B1") - 5 * night + 1.2 * rng.normal(size=n)
    heat = some(rng, heat, 0.1)
    columns = {"started": started, "machine": machine.astype(str), "night": night == 1, "heat": heat}
    columns |= {"speed": speed.astype(np.int64), "output": output}
    truth = columns | {"machine": machine, "night": night, "speed": speed}
    content = written(lambda file: np.savez_compressed(file, **columns))
    return Made("machines.npz", content, "output", "regression", ("--missing=impute",), truth)
