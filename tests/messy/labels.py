"""Messy tables whose targets are labels: each a function from a generator to a table with its truth."""

from typing import Any

import numpy as np

from tests.messy.writing import Made, compressed, dates, days, happens, levels, number, some, text, zipped

__all__ = ["lab", "passengers", "survey", "wine"]

SURNAMES = ["Smith", "Jones", "Brown", "Miller", "Davis", "Clark", "Lewis", "Young", "Hall", "King", "Wright", "Green"]


def passengers(rng: np.random.Generator, n: int = 450) -> Made:
    """A ship: ages missing in a fifth, most cabins missing, names and tickets of no use."""
    rank = rng.choice([1.0, 2.0, 3.0], n, p=[0.25, 0.2, 0.55])
    sex = levels(rng, n, ["male", "female"], [0.62, 0.38])
    age = np.clip(rng.normal(39 - 5 * (rank - 1), 13, n), 1, 80).round()
    family, fare = rng.poisson(0.6, n).astype(float), np.round(np.exp(rng.normal(5.1 - 0.85 * rank, 0.4, n)), 4)
    port = some(rng, levels(rng, n, ["S", "C", "Q"], [0.7, 0.2, 0.1]), 0.01)
    logit = 1.2 + 2.8 * (sex == "female") - 1.0 * (rank - 1) - 0.04 * (age - 30) - 0.4 * np.maximum(family - 1, 0) - 1
    survived = happens(rng, logit).astype(float)
    age = some(rng, age, np.where(rank == 3, 0.28, 0.1))
    names = [
        f"{SURNAMES[i % 12]}, {'Mr.' if s == 'male' else 'Mrs.'} {SURNAMES[i // 12 % 12]} {i}"
        for i, s in enumerate(sex)
    ]
    cabins = [
        f"{deck}{room}" if lucky < 0.25 else ""
        for deck, room, lucky in zip(
            levels(rng, n, list("ABCDEF")), rng.integers(1, 130, n), rng.random(n), strict=True
        )
    ]
    tickets = [f"A/5 {t}" if t % 4 == 0 else str(t) for t in 100_000 + rng.permutation(n) * 7]
    columns = {
        "PassengerId": range(1, n + 1), "Survived": number(survived, 0), "Pclass": number(rank, 0), "Name": names,
        "Sex": sex, "Age": number(age, 0), "SibSp": number(family, 0), "Ticket": tickets, "Fare": number(fare, 4),
        "Cabin": cabins, "Embarked": port,
    }  # fmt: skip
    truth = {"Pclass": rank, "Sex": sex, "Age": age, "SibSp": family, "Fare": fare, "Embarked": port}
    return Made("passengers.csv", text(columns).encode(), "Survived", "binary",
                ("--ignore=Name,Ticket,Cabin", "--missing=impute"), truth | {"Survived": survived})  # fmt: skip


def lab(rng: np.random.Generator, n: int = 400) -> Made:
    """A spreadsheet's "Unicode text": UTF-16, tabs, names of months, exponents, units, values below detection."""
    taken = days(rng, n, "2020-01-01", 400)
    batch, person = levels(rng, n, ["001", "002", "007", "010"]), levels(rng, n, ["AK", "BM", "None"], [5, 4, 1])
    acid, protein = np.round(7.35 + 0.1 * rng.normal(size=n), 2), rng.gamma(3, 4e-4, n)
    protein = np.array([float(f"{p:.2e}") for p in protein])
    blood, crp = np.round(13.5 + 1.2 * rng.normal(size=n), 1), np.round(rng.gamma(0.8, 6, n), 1)
    logit = 1.2 * np.log(crp + 0.3) - 8 * (acid - 7.35) - 1.0 * (blood - 13.5) + 1.2 * (batch == "007") - 1
    result = np.where(happens(rng, 1.4 * logit), "positive", "negative").astype(object)
    crp = np.where(crp < 0.5, np.nan, crp)
    columns = {
        "sample_id": [f"S-{i:04d}" for i in rng.permutation(n)], "taken": dates(taken, "%-d %B %Y"), "batch": batch,
        "ph": number(acid, 2), "protein": [f"{p:.2e}" for p in protein], "crp": number(crp, 1, missing="<0.5"),
        "haemoglobin": number(blood, 1, form="{} g/dL"), "person": person, "result": result,
    }  # fmt: skip
    truth = {"taken": taken, "batch": batch, "ph": acid, "protein": protein, "crp": crp, "haemoglobin": blood}
    content, flags = text(columns, "\t", "\r\n").encode("utf-16"), ("--na_values=<0.5", "--missing=impute")
    return Made("lab.txt", content, "result", "binary", flags, truth | {"person": person, "result": result})


def wine(rng: np.random.Generator, n: int = 400) -> Made:
    """Semicolons between and within quoted fields, quotes in quotes, line breaks in notes, levels with semicolons."""
    acid, sugar = np.round(7.5 + rng.normal(size=n), 1), np.round(rng.gamma(2, 1.3, n) + 0.6, 1)
    sulphur, alcohol = rng.integers(10, 160, n).astype(float), np.round(10.5 + 1.1 * rng.normal(size=n), 1)
    grape = levels(rng, n, ["Merlot", "Merlot; Cabernet", 'Pinot "noir"', "Riesling, dry"])
    merit = 1.3 * (alcohol - 10.5) - 0.6 * np.abs(acid - 7.5) - 0.012 * (sulphur - 80) + 0.9 * (grape == 'Pinot "noir"')
    quality = np.array(["low", "medium", "high"], dtype=object)[
        np.digitize(merit + 0.5 * rng.normal(size=n), [-0.9, 0.9])
    ]
    notes = [f'tasted "{i}";\nsays {SURNAMES[i % 12]}: dry; oaky' if i % 3 else f"plain; {i}" for i in range(n)]
    columns: dict[str, Any] = {
        "fixed acidity": acid, "residual sugar": sugar, "total sulfur dioxide": sulphur.astype(int), "alcohol": alcohol,
        "grape": grape, "note": notes, "quality": quality,
    }  # fmt: skip
    truth = {"fixed acidity": acid, "residual sugar": sugar, "total sulfur dioxide": sulphur, "alcohol": alcohol}
    content = zipped(text(columns, ";", quote_all_text=True).encode(), "wine.csv")
    return Made(
        "wine.csv.zip",
        content,
        "quality",
        "multiclass",
        ("--ignore=note",),
        truth | {"grape": grape, "quality": quality},
    )


def survey(rng: np.random.Generator, n: int = 500) -> Made:
    """Answers: bars between columns, agreement in words, ages in bands, 90 cities, NA a country, 45'000."""
    band = levels(rng, n, ["18-24", "25-34", "35-49", "50-64", "65+"])
    income = np.round(rng.gamma(6, 9000, n), -2)
    cities = ["Bern", "Basel", "Oslo", "Windhoek", "Porto", *[f"Town {i}" for i in range(85)]]
    city = levels(rng, n, cities, [60, 50, 60, 40, 40] + [1] * 85)
    country = levels(rng, n, ["CH", "NO", "NA", "PT"], [4, 2, 1, 2])
    scale = ["Strongly disagree", "Disagree", "Neither", "Agree", "Strongly agree"]
    staff, speed = levels(rng, n, scale), levels(rng, n, scale)
    pet = levels(rng, n, ["none", "cat", "dog"], [5, 2, 2])
    rank = {name: place - 2.0 for place, name in enumerate(scale)}
    mood = np.array([0.9 * rank[a] + 0.6 * rank[b] for a, b in zip(staff, speed, strict=True)]) + 0.8 * (city == "Bern")
    mood += 0.5 * (band == "65+") - 0.7 * (country == "NA") + 1e-5 * (income - 54_000)
    mood += 0.5 * rng.normal(size=n)
    answer = np.array(["unhappy", "content", "happy"], dtype=object)[np.digitize(mood, [-0.6, 0.9])]
    columns = {
        "respondent_id": rng.permutation(n) + 1000, "age": band, "income": number(income, 0, thousands="'"),
        "city": city, "country": country, "friendly staff?": staff, "fast?": speed, "pet": pet, "overall": answer,
    }  # fmt: skip
    truth = {"age": band, "income": income, "city": city, "country": country, "friendly staff?": staff, "fast?": speed}
    content, flags = compressed["xz"](text(columns, "|").encode()), ("--categorical=city", "--rare=10")
    return Made("survey.csv.xz", content, "overall", "multiclass", flags, truth | {"pet": pet, "overall": answer})
