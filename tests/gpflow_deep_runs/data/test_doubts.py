"""Single columns as people have them: what each is read as, or what is asked. None is misread without a word."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.table.doubts import sentinels_of, total_of_numbers
from gpflow_deep_runs.data.table.spec import FileSpec, TableSpec
from gpflow_deep_runs.data.tables import read_table

N = 120


def draws(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng([seed, 7])


def mixed(usual: Callable[[np.random.Generator], str], odd: str, every: int = 20) -> list[str]:
    rng = draws(1)
    return [odd if i % every == 3 else usual(rng) for i in range(N)]


def chosen(*texts: str) -> list[str]:
    return [str(text) for text in draws(2).choice(texts, N)]


def day(rng: np.random.Generator) -> str:
    return f"2020-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}"


class Asked(NamedTuple):
    """A question, by what its message says."""

    message: str


class Read(NamedTuple):
    """A reading: the kind, what the details say, and the first value of X, if it is one column."""

    kind: str
    details: str = ""
    first: float | None = None


COLUMNS: dict[str, tuple[list[str], Asked | Read]] = {
    "-999 among temperatures": (mixed(lambda r: f"{r.uniform(5, 30):.1f}", "-999"), Asked("--na_values=-999 .*--keep")),
    "-9999.0 of rain": (mixed(lambda r: f"{r.uniform(0, 30):.1f}", "-9999.0"), Asked("--na_values=-9999 ")),
    "-200 of a sensor": (mixed(lambda r: f"{r.uniform(0.1, 12):.1f}", "-200"), Asked("--na_values=-200 ")),
    "999 among ages": (mixed(lambda r: str(r.integers(18, 90)), "999"), Asked("--na_values=999 ")),
    "99 among ages": (mixed(lambda r: str(r.integers(18, 90)), "99"), Asked("--na_values=99 ")),
    "-1 for never": (mixed(lambda r: str(r.integers(1, 800)), "-1", 4), Asked("--na_values=-1 ")),
    "9 on a scale of five": (mixed(lambda r: str(r.integers(1, 6)), "9"), Asked("--na_values=9 ")),
    "0 for not renovated": (mixed(lambda r: str(r.integers(1940, 2016)), "0", 4), Asked("--na_values=q=0 ")),
    "one odd -9999": (mixed(lambda r: f"{r.uniform(0, 1):.3f}", "-9999", 999), Asked("in 1 rows")),
    "12345 that repeats": (mixed(lambda r: f"{r.uniform(0, 9):.1f}", "12345"), Asked("--na_values=12345 ")),
    "a sentinel with decimal commas": (
        mixed(lambda r: f"{r.uniform(5, 30):.1f}".replace(".", ","), "-999,0"),
        Asked("-999"),
    ),
    "1900-01-01": (mixed(day, "1900-01-01"), Asked("--na_values=1900-01-01 ")),
    "9999-12-31": (mixed(day, "9999-12-31", 4), Asked("--keep_value=9999-12-31")),
    "0000-00-00": (mixed(day, "0000-00-00"), Read("date", "'0000-00-00' is missing")),
    "01.01.1900 by days": (mixed(lambda r: f"{r.integers(13, 29)}.05.2020", "01.01.1900"), Asked("1900-01-01")),
    "headings of ships": (mixed(lambda r: str(r.integers(0, 360)), "511", 9), Asked("--na_values=511 ")),
    "dilutions": (
        chosen("1:10", "1:20", "1:40"),
        Asked("may be times, or ratios; give --dates=q:%H:%M or --categorical=q"),
    ),
    "dilutions of more": (chosen("1:10", "1:20", "<1:10"), Read("category", "<1:10")),
    "alleles": (
        chosen("01:01", "02:01", "03:02", "11:05"),
        Asked("codes such as alleles; give --dates=q:%H:%M or --categorical=q"),
    ),
    "times past one and past ten": (chosen("1:20", "10:05", "1:45", "11:07"), Read("time", "%H:%M")),
    "hourly": ([f"{i % 24:02d}:05" for i in range(N)], Read("time", "%H:%M")),
    "starts of classes": (chosen("08:00", "09:05", "10:00"), Read("time", "%H:%M")),
    "strips": (chosen("neg", "trace", "1+", "2+", "3+"), Read("category", "1+")),
    "codes 1E5": (chosen("1E5", "2E5", "7E3"), Asked("--categorical=q or --numeric=q")),
    "codes of digits and one E": (mixed(lambda r: str(r.integers(100, 999)), "1e2"), Asked("may be codes")),
    "versions": (chosen("1.10", "1.9", "1.2", "1.20", "1.1"), Asked("versions")),
    "a race": ([f"{a}:{b:02d}" for a, b in draws(3).integers([14, 0], [60, 60], (N, 2))], Asked("--dates=q:%M:%S")),
    "months before years": (chosen("05.2020", "11.2020", "1.2021"), Asked("--dates=q:%m.%Y, --cat.* or --numeric=q")),
    "months behind years": ([f"20{v:02d}.{1 + v % 12:02d}" for v in draws(5).integers(0, 20, N)], Asked("%Y.%m")),
    "classes of books": (chosen("025.3", "510.1", "512.9"), Asked("codes, or numbers .*--numeric=q")),
    "9.99 of shares": (mixed(lambda r: f"{r.uniform(0, 1):.2f}", "9.99"), Asked("--na_values=9.99 ")),
    "hexadecimal": (chosen("0x1F", "0x2A"), Read("category", "2 levels")),
    "codes of shops": (chosen("4006381333931", "5901234123457", "4012345678901"), Asked("--categorical=q, or --num")),
    "days of six digits": (
        mixed(lambda r: f"{r.integers(10, 23)}{r.integers(1, 13):02d}{r.integers(1, 29):02d}", "200131"),
        Read("number", "--dates=q:%y%m%d reads them as dates"),
    ),
    "millions of pounds": (chosen("£1.2bn", "£300m"), Read("number", "is 1200000000")),
    "5 or -999": (chosen("5", "-999"), Asked("--na_values=-999 ")),
    "the last day of pandas": (chosen("2020-01-01", "2262-04-11"), Asked("--na_values=2262-04-11 ")),
    "nights": (chosen("1", "2", "3", "30"), Read("number")),
    "codes 3D1": (chosen("3D1", "4A2", "5E1"), Read("category", "3 levels")),
    "prices": ([f"{v:.2f}" for v in draws(4).uniform(1, 9, N)], Read("number")),
    "shortest decimals": ([repr(v) for v in draws(5).uniform(1, 9, N).round(2)], Read("number")),
    "numbers with exponents": ([f"{v:.2e}" for v in draws(6).uniform(1, 9e4, N)], Read("number")),
    "heavy tails": ([f"{v:.1f}" for v in np.exp(2 * draws(7).normal(size=N))], Read("number")),
    "powers of ten": ([str(10**k) for k in draws(8).integers(0, 6, N)], Read("number")),
    "percentages": ([str(v) for v in draws(9).integers(0, 101, N)], Read("number")),
    "18.00.00": ([f"{v:02d}.30.00" for v in draws(10).integers(0, 24, N)], Read("time", "hours")),
    "18h30": ([f"{v}h30" for v in draws(10).integers(0, 24, N)], Read("time", "hours")),
    "years in Swedish": ([f"{v} år" for v in draws(10).integers(0, 90, N)], Read("number", "år")),
    "long durations": ([f"{v}:30:00" for v in draws(11).integers(1, 60, N)], Read("time", "durations")),
    "19M and 201k": (["19M", "201k", "1.5M", "14k"] * 30, Read("number", "is 1500000", 19e6)),
    "costs in parentheses": ([f"({v:.2f})" for v in draws(4).uniform(1, 9, N)], Read("number", "is -")),
    "things with numbers": (chosen("(1)", "(2)", "(3)"), Read("category")),
    "true in German": (chosen("WAHR", "FALSCH"), Read("boolean", "WAHR is 1")),
    "yes in Japanese": (chosen("はい", "いいえ"), Read("boolean", "はい is 1")),
    "€110.5M and €565K": (["€110.5M", "€565K", "€0"] * 40, Read("number", "", 110.5e6)),
    "only the last row decides dd/mm": (
        [f"0{1 + i % 9}/0{1 + i % 7}/2020" for i in range(N - 1)] + ["31/01/2020"],
        Read("date", "%d/%m/%Y"),
    ),
    "levels with a final point": (chosen(">50K", "<=50K", ">50K.", "<=50K."), Read("category", "different levels")),
    "levels of two cases": (chosen("Male", "male", "Female"), Read("category", "'Male', 'male'|'male', 'Male'")),
    "levels with two blanks": (chosen("New York", "New  York", "Bonn"), Read("category", "different levels")),
    "yyyymmdd": ([day(draws(i)).replace("-", "") for i in range(N)], Read("date", "--numeric=q")),
    "one text among numbers": (mixed(lambda r: str(r.integers(1, 9)), "see-note", 999), Asked("--na_values=see-note")),
    "a word for what is missing": (mixed(lambda r: str(r.integers(1, 9)), "unknown"), Read("number", "is missing")),
    "-998 and -999": (
        mixed(lambda r: "-998" if r.random() < 0.1 else f"{r.uniform(5, 30):.1f}", "-999"),
        Asked("--na_values=-999,-998 "),
    ),
    "8 and 9 on a scale of five": (
        mixed(lambda r: "8" if r.random() < 0.1 else str(r.integers(1, 6)), "9"),
        Asked("--na_values=9 "),
    ),
    "1, 2 and 9": (chosen("1", "2", "1", "2", "9"), Asked("--na_values=9 ")),
    "1, 2 and 3": (chosen("1", "2", "3"), Read("number")),
    "installations": (
        chosen("0", "1+", "100+", "1,000+", "50,000+", "5,000,000+"),
        Read("number", "'1,000\\+' is 1000"),
    ),
    "times with points": ([f"{v:02d}.30" for v in draws(27).integers(0, 24, N)], Asked("--dates=q:%H.%M")),
    "telephones with a plus": ([f"+49{v}" for v in draws(28).integers(10**7, 10**8, N)], Asked("--numeric=q")),
    "flags of a statistical office": (
        chosen("3.2 b", "4.5", "5.1 p", ":", "6.0 bp", ": c"),
        Read("number", "'3.2 b' has a flag|'5.1 p' has a flag|'6.0 bp' has a flag"),
    ),
    "stars": (chosen("3.2*", "4.5", "1,200.5**"), Read("number", "has a flag.*--categorical=q")),
    "notes in brackets": (chosen("3.2 [1]", "4.5", "6.0[a]", "7 (e)"), Read("number", "has a flag")),
    "hotels of stars": (chosen("3*", "4*", "5*"), Read("category", "3 levels")),
    "seconds and numbers": (chosen("3.2 s", "4.5 s"), Read("number", "'[34].[25] s' is")),
    "errors of a spreadsheet": (chosen("3.2", "#DIV/0!", "4.5"), Read("number", "'#DIV/0!' is missing")),
    "ddmmyyyy": ([f"{v}052020" for v in draws(29).integers(13, 29, N)], Read("date", "%d%m%Y.*--numeric=q")),
    "ddmmyyyy with zeros": (
        [f"{v:02d}122020" for v in draws(30).integers(1, 29, N)],
        Read("date", "%d%m%Y.*--categorical=q"),
    ),
    "yyyymmddhh": ([f"202005{v:02d}06" for v in draws(31).integers(1, 29, N)], Read("date", "%Y%m%d%H")),
    "opening times": (
        [f"{a}.{b:02d}" for a, b in draws(32).integers([0, 0], [24, 60], (N, 2))],
        Asked("%H.%M or --numeric=q|--dates=q:%H.%M"),
    ),
    "quarters of hours": (
        [f"{a}.{15 * b:02d}" for a, b in draws(42).integers([7, 0], [19, 4], (N, 2))],
        Asked("--dates=q:%H.%M"),
    ),
    "hours and minutes without a sign": (
        [f"{100 * a + b}" for a, b in draws(43).integers([0, 0], [24, 60], (N, 2))],
        Asked("%H%M or --numeric=q"),
    ),
    "square feet": ([str(v) for v in draws(44).integers(300, 2400, N)], Read("number")),
    "yyyymmdd with an impossible one": (
        [f"202005{v:02d}" for v in draws(45).integers(1, 29, N - 1)] + ["20201305"],
        Asked("'20201305'.*--na_values=20201305"),
    ),
    "the end of a century": (
        mixed(lambda r: f"20{r.integers(10, 21)}-0{r.integers(1, 10)}-1{r.integers(0, 10)}", "2049-12-31"),
        Asked("--na_values=2049-12-31"),
    ),
    "measurements of two decimals": ([f"{v:.2f}" for v in draws(33).uniform(0, 24, N)], Read("number")),
    "numbers of books": (
        [f"978{v}" for v in draws(34).integers(10**9, 10**10, N)],
        Asked("--ignore=q, or --numeric=q"),
    ),
    "seconds since 1970": ([str(v) for v in draws(35).integers(15 * 10**8, 16 * 10**8, N)], Read("number")),
    "large amounts": ([str(v) for v in draws(36).integers(10**6, 9 * 10**11, N)], Read("number")),
    "phone numbers": ([f"{a}-{b}-{c}" for a, b, c in draws(13).integers(200, 999, (N, 3))], Asked("--ignore=q")),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column(name: str, tmp_path: Path) -> None:
    cells, wanted = COLUMNS[name]
    rng = draws(14)
    path = tmp_path / "table.csv"
    path.write_text("q;y\n" + "".join(f"{cell};{rng.normal():.3f}\n" for cell in cells), encoding="utf-8")
    if isinstance(wanted, Asked):
        with pytest.raises(ValueError, match=wanted.message) as caught:
            read_table(path, TableSpec(target=("y",), missing="impute"))
        assert "\n" not in str(caught.value)
        return
    rows = read_table(path, TableSpec(target=("y",), missing="impute"))
    assert rows.schema is not None
    row = next(row for row in rows.schema.table() if row[0] == "q")
    assert row[1] == wanted.kind
    assert re.search(wanted.details, row[2])
    if wanted.first is not None:
        assert rows.parts["all"].X[0, 0] == wanted.first


@pytest.mark.parametrize("name", [name for name, (_, wanted) in COLUMNS.items() if isinstance(wanted, Asked)])
def test_one_flag_answers(name: str, tmp_path: Path) -> None:
    """Each flag that a question names makes it go away."""
    cells = COLUMNS[name][0]
    frame = pd.DataFrame({"q": cells, "y": draws(15).normal(size=len(cells))})
    frame.to_csv(path := tmp_path / "table.csv", index=False, sep=";")
    with pytest.raises(ValueError, match="--") as caught:
        read_table(path, TableSpec(target=("y",), missing="impute"))
    flags = re.findall(r"--(na_values|keep_value|categorical|numeric|dates|ignore)=([^\s;']+)", str(caught.value))
    assert flags
    for flag, value in flags:
        if flag == "ignore" or name == "phone numbers" or "FORMAT" in value:
            continue  # no column is left, or the flag needs more than is shown
        options: dict[str, Any] = {flag: tuple(value.rstrip(".,").split(","))}
        read_table(path, TableSpec(target=("y",), missing="impute", **options))


def test_typed_columns_are_asked_alike() -> None:
    rng = draws(16)
    numbers = np.where(np.arange(N) % 9 == 2, -999.0, rng.uniform(5, 30, N))
    days = pd.to_datetime(pd.Series([day(rng) if i % 9 else "9999-12-31" for i in range(N)])).dt.date
    for values in (numbers, days):
        with pytest.raises(ValueError, match="--na_values="):
            read_table(pd.DataFrame({"q": values, "y": rng.normal(size=N)}), TableSpec(target=("y",)))
    target = pd.DataFrame({"q": rng.normal(size=N), "y": numbers})
    with pytest.raises(ValueError, match=r"'y'.*--na_values=-999 "):
        read_table(target, TableSpec(target=("y",)))
    kept = read_table(target, TableSpec(target=("y",), keep_value=("-999",)))
    assert kept.parts["all"].Y.min() == -999
    without = read_table(target, TableSpec(target=("y",), na_values=("-999",), missing="impute"))
    assert len(without.parts["all"].Y) == (numbers != -999).sum()


def test_several_sentinels() -> None:
    values = np.r_[draws(17).integers(1, 80, 50), [998] * 3, [999] * 3, [-99] * 2].astype(float)
    assert set(sentinels_of(values)) == {-99, 998, 999}
    assert sentinels_of(np.array([1.0, 2.0, np.nan])) == []
    with np.errstate(all="raise"):  # no warning of NumPy reaches a user
        assert sentinels_of(np.r_[values, np.inf, -np.inf, 1e308, 1e308]) == sentinels_of(np.r_[values, 1e308, 1e308])


TOTALS = [
    ("Total,360,90.5\n", "'Region' is 'Total'"),
    ("TOTAL:,360,\n", "'Region' is 'TOTAL:'"),
    ("Average,18,4.5\n", "'Region' is 'Average'"),
    ("Gesamtergebnis,360,90.5\n", "'Region' is 'Gesamtergebnis'"),
    ("TOTAL NACIONAL,360,12.5\n", "'Region' is 'TOTAL NACIONAL'"),
    ("N,{units},{price:.2f}\n", "its numbers are the sums"),
    (",{units},{price:.2f}\n", "its numbers are the sums"),
]


@pytest.mark.parametrize(("foot", "why"), TOTALS)
def test_a_total_at_the_foot(foot: str, why: str, tmp_path: Path) -> None:
    rng = draws(18)
    units, prices = rng.integers(1, 30, 40), rng.uniform(1, 20, 40).round(2)
    lines = [f"{'NSW'[i % 3]},{u},{p:.2f}\n" for i, (u, p) in enumerate(zip(units, prices, strict=True))]
    path = tmp_path / "sales.csv"
    path.write_text("Region,Units,Price\n" + "".join(lines) + foot.format(units=units.sum(), price=prices.sum()))
    spec = TableSpec(target=("Price",), missing="impute")
    with pytest.raises(ValueError, match=rf"row 40 .*{why}.*--total_rows=drop"):
        read_table(path, spec)
    for dropping in (replace(spec, file=replace(spec.file, total_rows="drop")), replace(spec, bad_rows="drop")):
        rows = read_table(path, dropping)
        np.testing.assert_array_equal(rows.parts["all"].Y[:, 0], prices)
        assert "row 40 (from 0), a total, left out" in rows.source
    kept = read_table(
        path, TableSpec(target=("Price",), missing="impute", keep_value=("x",), file=FileSpec(total_rows="keep"))
    )
    assert len(kept.parts["all"].Y) >= 40


def test_a_number_near_the_sum_of_a_column_by_chance_is_no_total() -> None:
    values = draws(40).normal(size=60).round(2)
    values[-1] = values[:-1].sum().round(2)
    assert abs(values[-1]) < 5 * values[:-1].std()
    values[:-1] -= (values[:-1].sum() - 2.6) / 59  # near the edge of the others
    values[-1] = 2.65
    assert not total_of_numbers({"z": values})
    assert total_of_numbers({"z": np.append(values[:-1] + 1, (values[:-1] + 1).sum().round(2))})


def test_sentinels_of_several_columns_are_one_question() -> None:
    frame = pd.DataFrame({"t": [1.5, 2.5, 3.5, 9999.9] * 5, "p": [0.1, 99.99, 0.2, 0.3] * 5, "y": np.arange(20.0)})
    with pytest.raises(
        ValueError, match=r"'t' .* has 9999.9 .*so has 'p' 99.99: give --na_values=9999.9,99.99 if they"
    ):
        read_table(frame, TableSpec(target=("y",)))
    read_table(frame, TableSpec(target=("y",), na_values=("9999.9", "99.99"), missing="impute"))


def test_rows_that_are_no_totals() -> None:
    rng = draws(19)
    many = {"a": rng.integers(0, 5, 300).astype(float), "b": rng.normal(size=300)}
    assert total_of_numbers(many) == ""
    assert total_of_numbers({"a": np.array([0.0, 0, 1, 0, 0, 1])}) == ""  # the sum, but a value like the others
    assert total_of_numbers({"a": np.array([1.0, 2, 4, 8, 16, 31])}) != ""
    frame = pd.DataFrame({"kind": ["total", "part"] * 20, "q": rng.normal(size=40), "y": rng.normal(size=40)})
    assert "'total' may sum up other rows" in details(frame)["kind"][2]  # a level among others


def test_totals_beside_rates() -> None:
    """Births of a country are those of its districts; their share of the people is between theirs."""
    rng = draws(47)
    births, shares = rng.integers(100, 9000, 40), rng.uniform(0, 9, 40).round(1)
    total = {"births": np.append(births, births.sum()).astype(float), "share": np.append(shares, 4.7)}
    assert "sums" in total_of_numbers(total)
    rare = {"accidents": np.array([0.0] * 38 + [1, 2, 3]), "share": total["share"]}
    for table in (rare, {**total, "share": np.append(shares, 9.9)}, {name: v[-9:] for name, v in total.items()}):
        assert total_of_numbers(table) == ""


def test_zeros_are_missing_in_the_columns_that_are_named() -> None:
    rng = draws(22)
    frame = pd.DataFrame(
        {"glucose": rng.integers(56, 199, N), "visits": rng.integers(0, 5, N), "ill": np.arange(N) % 2}
    )
    frame.loc[::40, "glucose"] = 0
    with pytest.raises(ValueError, match=r"--na_values=glucose=0 .* or --keep_value=0 "):
        read_table(frame, TableSpec(target=("ill",)))
    X = read_table(frame, TableSpec(target=("ill",), na_values=("glucose=0",))).parts["all"].X
    assert (len(X), np.isnan(X[:, 0]).sum(), np.isnan(X[:, 1]).sum()) == (N, len(frame.loc[::40]), 0)


def test_moments_of_machines_are_no_totals() -> None:
    moments = 1.5892e12 + 20.0 * np.arange(150)
    assert total_of_numbers({"moment": moments, "x": draws(21).normal(size=150)}) == ""
    assert total_of_numbers({"moment": moments}) == ""


def test_centred_columns_have_no_totals() -> None:
    grid = np.linspace(-1.0, 1.0, 60)
    assert total_of_numbers({"x": grid, "y": np.sin(5 * grid)}) == ""
    values = draws(21).normal(size=(40, 3))
    values[-1] = 4
    values -= values.mean(axis=0)
    assert total_of_numbers({str(d): values[:, d] for d in range(3)}) == ""


def test_means_at_the_foot() -> None:
    rng = draws(20)
    above = rng.uniform(0, 10, (30, 3)).round(1)
    table = np.vstack([above, above.mean(axis=0).round(2)])
    assert "means" in total_of_numbers({str(d): table[:, d] for d in range(3)})


def test_a_total_at_the_top() -> None:
    below = draws(22).uniform(1, 9, (40, 2)).round(1)
    frame = pd.DataFrame(np.vstack([below.sum(axis=0).round(1), below]), columns=["q", "y"])
    with pytest.raises(ValueError, match=r"row 0 .* seems to sum up others, as its numbers are the sums"):
        read_table(frame, TableSpec(target=("y",)))
    rows = read_table(frame, TableSpec(target=("y",), file=FileSpec(total_rows="drop")))
    np.testing.assert_array_equal(rows.parts["all"].Y[:, 0], below[:, 1])


@pytest.mark.parametrize(
    ("what", "digits", "statistic"),
    [
        ("means", 0, lambda v: v.mean()),
        ("medians", 2, np.median),
        ("standard deviations", 1, np.std),
        ("standard deviations", 2, lambda v: v.std(ddof=1)),
        ("sums", 2, lambda v: -v.sum()),
    ],
)
def test_statistics_without_a_word(what: str, digits: int, statistic: Callable[[Any], float]) -> None:
    rng = draws(29)
    above = [rng.integers(1, 200, 60).astype(float), rng.uniform(5, 90, 60).round(2)]
    table = {str(d): np.append(values, round(float(statistic(values)), digits)) for d, values in enumerate(above)}
    assert what in total_of_numbers(table)
    assert total_of_numbers({name: np.append(values, values[3:4]) for name, values in table.items()}) == ""


def test_last_rows_of_few_values_are_no_statistics() -> None:
    """Of answers, levels and counts of which most are zero, a last row near all means is nothing unusual."""
    rng = draws(30)
    answers = rng.integers(1, 6, (400, 8)).astype(float)
    answers[-1] = 3
    bits = (rng.random((400, 30)) < 0.1).astype(float)
    counts = np.where(rng.random((400, 12)) < 0.8, 0, rng.integers(1, 1000, (400, 12))).astype(float)
    bits[-1] = counts[-1] = 0
    for table in (answers[:, :2], bits, counts):
        assert total_of_numbers({str(d): column for d, column in enumerate(table.T)}) == ""


def details(frame: Any, **options: Any) -> dict[str, list[str]]:
    rows = read_table(frame, TableSpec(**{"target": ("y",), **options}))
    assert rows.schema is not None
    return {row[0]: row for row in rows.schema.table()}


def test_the_index_of_a_frame_is_said(tmp_path: Path) -> None:
    rng = draws(21)
    when = pd.Index(pd.date_range("2020-01-01", periods=N), name="when")
    frame = pd.DataFrame({"q": rng.normal(size=N), "y": rng.normal(size=N)}, index=when)
    assert details(frame)["when"][1:3] == ["ignored", "the index of the frame; reset_index() makes a column of it"]
    frame.to_parquet(path := tmp_path / "table.parquet")
    assert details(path)["when"][1] == "ignored"
    assert set(details(frame.reset_index(drop=True))) == {"column", "q", "y"}
    assert set(details(frame.reset_index(drop=True).iloc[5:80:2])) == {"column", "q", "y"}


def test_an_ordered_categorical_keeps_its_order() -> None:
    rng = draws(22)
    levels = pd.Categorical(rng.choice(["lo", "mid", "hi"], N), ["lo", "mid", "hi"], ordered=True)
    frame = pd.DataFrame({"q": levels, "y": rng.normal(size=N)})
    assert read_table(frame, TableSpec(target=("y",))).feature_names == ("q=lo", "q=mid", "q=hi")
    as_target = pd.DataFrame({"q": rng.normal(size=N), "y": levels})
    rows = read_table(as_target, TableSpec(target=("y",)))
    assert rows.class_names == ("lo", "mid", "hi")
    assert [rows.class_names[label] for label in rows.parts["all"].Y[:, 0]] == list(levels)
    assert rows.schema is not None
    assert type(rows.schema).from_json(rows.schema.to_json()) == rows.schema


def test_whole_numbers_name_columns() -> None:
    rng = draws(23)
    rows = read_table(pd.DataFrame(rng.normal(size=(N, 3))), TableSpec(target=(1,)))  # type: ignore[arg-type]
    assert (rows.feature_names, rows.target_names) == (("0", "2"), ("1",))


def sales(*, foot: str = "", every: int = 0, middle: str = "") -> str:
    rng = draws(24)
    lines = [f"{'NSW'[i % 3]},{rng.integers(1, 30)},{rng.uniform(1, 20):.2f}\n" for i in range(60)]
    if every:
        lines = [line + (middle if i % every == every - 1 else "") for i, line in enumerate(lines)]
    return "Region,Units,Price\n" + "".join(lines) + foot


SUMMED = {
    "subtotals": (sales(every=10, middle="Subtotal,150,99.5\n"), 6),
    "sub-totals of parts": (sales(every=30, middle="Sub-total of a part,150,99.5\n"), 2),
    "totals of parts": (sales(foot="N Total,1,2\nS Total,3,4\nW total,5,6\nGrand Total,9,12\n"), 4),
    "totals for parts": (sales(foot="Total N,1,2\nTotal for S,3,4\n"), 2),
    "a total in the middle": (sales(every=60, middle="TOTAL,150,99.5\n", foot="N,4,5.5\n" * 20), 1),
    "a mean in the middle": (sales(every=60, middle="mean,15,9.5\n", foot="N,4,5.5\n" * 20), 1),
    "statistics": (sales(foot="min,1,1.2\nmax,29,19.3\nstd,4.2,5.1\n"), 3),
    "numbers of rows": (sales(foot="Count,60,60\n"), 1),
    "total and mean": (sales(foot="Total,1200,700.50\nMean,20,11.67\n"), 2),
}


@pytest.mark.parametrize("name", SUMMED)
def test_rows_that_sum_up_others(name: str, tmp_path: Path) -> None:
    content, count = SUMMED[name]
    (path := tmp_path / "sales.csv").write_text(content)
    spec = TableSpec(target=("Price",))
    with pytest.raises(ValueError, match=r"seems to sum up others, .*--total_rows=drop"):
        read_table(path, spec)
    num_lines = len(content.splitlines()) - 1
    rows = read_table(path, replace(spec, file=replace(spec.file, total_rows="drop")))
    assert len(rows.parts["all"].Y) == num_lines - count
    assert rows.feature_names == ("Region=N", "Region=S", "Region=W", "Units")
    assert len(read_table(path, replace(spec, file=replace(spec.file, total_rows="keep"))).parts["all"].Y) == num_lines


def test_words_that_are_no_totals(tmp_path: Path) -> None:
    rng = draws(25)
    people = ["Max", "Min", "Sum", "Mean", *(f"name {i}" for i in range(36))]
    frame = pd.DataFrame({"who": people[::-1], "q": rng.normal(size=40), "y": rng.normal(size=40)})
    middle = frame.iloc[rng.permutation(30)]
    read_table(middle, TableSpec(target=("y",), ignore=("who",)))  # in the middle of names that all differ
    cereals = pd.DataFrame({"name": ["Total Flakes", "Oats"] * 20, "y": rng.normal(size=40)})
    read_table(cereals, TableSpec(target=("y",)))


def test_names_that_occur_again_and_empty_rows(tmp_path: Path) -> None:
    rows = [f"{'ab'[i % 2]},{'uvw'[i % 3]}\n" for i in range(40)]
    path = tmp_path / "table.csv"
    path.write_text("kind,colour\n" + "".join(rows[:20]) + "kind, colour\n" + "".join(rows[20:]))
    spec = TableSpec(target=("colour",))
    with pytest.raises(ValueError, match=r"repeats its line of names in row 20 .*--bad_rows=drop"):
        read_table(path, spec)
    found = read_table(path, replace(spec, bad_rows="drop"))
    assert (len(found.parts["all"].Y), found.class_names) == (40, ("u", "v", "w"))
    # Names of another table below
    years = "".join(f" {1990 + i},{i % 3}\n" for i in range(9))
    path.write_text(
        "month,q\n"
        + "".join(f"1990{i:02d},{i}\n" for i in range(1, 13))
        + "Annual Factors: of all months\n,q\n".replace(",", "month,")
        + years
    )
    spec_of_both = TableSpec(target=("q",), bad_rows="drop")
    with pytest.raises(ValueError, match=r"fewer values .*give --skip_footer=N if the last N lines are notes"):
        read_table(path, replace(spec_of_both, bad_rows="error"))
    with pytest.raises(ValueError, match=r"in row 12 .*such as '1990' in 'month' after '199001'; give --skip_footer=N"):
        read_table(path, spec_of_both)
    assert (
        len(
            read_table(path, replace(spec_of_both, bad_rows="error", file=replace(spec_of_both.file, skip_footer=11)))
            .parts["all"]
            .Y
        )
        == 12
    )
    path.write_text("kind,colour\n" + "".join(rows[:20]) + ",\n , \n" + "".join(rows[20:]))
    found = read_table(path, spec)
    assert len(found.parts["all"].Y) == 40
    assert "2 rows without any value left out" in found.source


SENTINELS: dict[str, tuple[Callable[[np.random.Generator], str], str]] = {
    "-9 of measurements": (lambda r: f"{r.uniform(0.1, 5):.1f}", "-9"),
    "-9 of answers": (lambda r: str(r.integers(0, 6)), "-9"),
    "-8 of counts": (lambda r: str(r.integers(0, 60)), "-8"),
    "-1 of measurements": (lambda r: f"{r.uniform(0.1, 5):.2f}", "-1"),
    "-1 of a few levels": (lambda r: str(r.integers(0, 6)), "-1"),
    "88 of days": (lambda r: str(r.integers(0, 31)), "88"),
    "77 of days": (lambda r: str(r.integers(0, 31)), "77"),
    "99.9 of measurements": (lambda r: f"{r.uniform(0, 25):.1f}", "99.9"),
    "a weight of 0": (lambda r: f"{r.uniform(45, 110):.1f}", "0"),
}


@pytest.mark.parametrize("name", SENTINELS)
def test_sentinels_of_many_kinds(name: str) -> None:
    usual, odd = SENTINELS[name]
    values = np.array(mixed(usual, odd), float)
    assert sentinels_of(values) == [float(odd)]
    assert sentinels_of(values[values != float(odd)]) == []


def test_values_that_are_no_sentinels() -> None:
    rng = draws(26)
    assert sentinels_of(rng.integers(-9, 31, 500).astype(float)) == []  # degrees
    assert sentinels_of(rng.integers(0, 31, 500).astype(float)) == []
    assert sentinels_of(rng.integers(-1, 2, 500).astype(float)) == []
    assert sentinels_of(np.where(rng.random(500) < 0.7, 0, rng.gamma(4, 100, 500))) == []  # claims of an insurance
    assert sentinels_of(np.where(rng.random(500) < 0.2, 0, rng.uniform(10, 100, 500))) == []


def test_times_without_a_sign_are_read_by_one_flag() -> None:
    """Also as numbers of a frame, which pandas makes fractions where one is missing."""
    clock = [517.0, 1805.0, 0.0, None] * 5
    frame = pd.DataFrame({"departure": clock, "y": draws(46).normal(size=20)})
    for departures in (frame["departure"], frame["departure"].map(lambda v: "" if pd.isna(v) else f"{v:.0f}")):
        spec = TableSpec(target=("y",), dates=("departure:%H%M",), missing="impute")
        rows = read_table(frame.assign(departure=departures), spec)
        np.testing.assert_allclose(rows.parts["all"].X[:4, 0], [5 + 17 / 60, 18 + 5 / 60, 0, np.nan], rtol=1e-12)
