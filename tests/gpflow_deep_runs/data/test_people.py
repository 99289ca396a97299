"""Files as people have them: what stands around a table is left out and said, and files of other programs are read."""

import datetime
import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from gpflow_deep_runs.data.files.sources import _sheet_table
from gpflow_deep_runs.data.rows import divide
from gpflow_deep_runs.data.table.spec import FileSpec, TableSpec
from gpflow_deep_runs.data.tables import apply_schema, read_table, schema_of

N = 60
RNG = np.random.default_rng(5)
FRAME = pd.DataFrame(
    {"kind": RNG.choice(["red", "green"], N), "q": RNG.normal(size=N).round(3), "y": RNG.normal(size=N).round(3)}
)
SPEC = TableSpec(target=("y",), missing="impute")


def text(frame: pd.DataFrame = FRAME, **options: Any) -> str:
    return str(frame.to_csv(index=False, **options))


def said(path: Path, spec: TableSpec = SPEC) -> str:
    """The table of columns in one text, after the values were compared with those of the frame."""
    rows = read_table(path, spec)
    assert rows.feature_names == ("kind=green", "kind=red", "q")
    np.testing.assert_array_equal(rows.parts["all"].X[:, 2], FRAME["q"])
    np.testing.assert_array_equal(rows.parts["all"].Y[:, 0], FRAME["y"])
    assert rows.schema is not None
    return "\n".join(" ".join(row) for row in rows.schema.table())


AROUND: dict[str, tuple[Callable[[], str], str]] = {
    "titles": (
        lambda: "Colours of 2024\n\n" + text(),
        "2 lines above the header left out, the first 'Colours of 2024'",
    ),
    "titles with commas": (lambda: "Report;of the office\n" + text(sep=","), "1 lines above the header"),
    "titles of a spreadsheet": (lambda: "Colours,,\n,,\n" + text(), "lines above the header left out"),
    "notes": (lambda: text() + "\nSource: the office, 2024\n", "1 lines at the foot left out, the first 'Source"),
    "signs below": (lambda: text() + '"[x] not available"\nSource: ONS\n', "2 lines at the foot"),
    "flags below a source": (lambda: text() + "\nSource: the office\nflags:,p provisional\n", "2 lines at the foot"),
    "a source in another language": (lambda: text() + "Bron: CBS\n", "1 lines at the foot left out, the first 'Bron"),
    "lines of two values above": (
        lambda: (
            '"Account:";"DE12";\n"From:";"01.01.2020";\n\n'
            + "".join(f"{line};\n" for line in text(sep=";", decimal=",").splitlines())
        ),
        "lines above the header left out, the first 'Account:'",
    ),
    "notes of words": (lambda: text() + "these are preliminary figures only\n", "1 lines at the foot"),
    "notes of a spreadsheet": (lambda: text() + "Source: the office,,\n,,\n", "2 lines at the foot"),
    "separators at the end": (
        lambda: "\n".join(f"{line}," for line in text().splitlines()) + "\n",
        "Unnamed: 3 ignored it has no name and no values",
    ),
    "separators at the ends of rows": (
        lambda: "\n".join(line + "," * (i > 0) for i, line in enumerate(text().splitlines())) + "\n",
        "Unnamed: 3 ignored it has no name and no values",
    ),
    "an index": (lambda: str(FRAME.to_csv()), "Unnamed: 0 ignored"),
    "an index of names": (
        lambda: str(FRAME.set_index(pd.Index([f"r{i}" for i in range(N)])).to_csv()),
        "Unnamed: 0 ignored",
    ),
    "names of rows in R": (
        lambda: "\n".join(line if i == 0 else f"{i},{line}" for i, line in enumerate(text().splitlines())) + "\n",
        "Unnamed: 0 ignored",
    ),
    "columns of the index written twice": (
        lambda: str(FRAME.assign(**{"Unnamed: 0.1": range(N), "Unnamed: 0": range(N)}).to_csv(index=False)),
        "Unnamed: 0.1 ignored",
    ),
    "row names of R data sets": (lambda: str(FRAME.to_csv(index_label="rownames")), "rownames ignored an id"),
    "numbers of rows": (lambda: str(FRAME.to_csv(index_label="No.")), "No. ignored an id"),
    "a line of dashes": (lambda: text().replace("\n", "\n---,:---,---:\n", 1), "kind category"),
    "what psql prints": (
        lambda: text(sep="|").replace("\n", "\n-----+----+----\n", 1) + f"({N} rows)\n",
        "1 lines at the foot left out",
    ),
    "white space and quotation marks": (
        lambda: text(FRAME.assign(q=FRAME["q"].astype(str)), sep=" ", quoting=2),
        "white space stands between the columns",
    ),
    "white space": (lambda: FRAME.to_string(index=False) + "\n", "white space stands between the columns"),
}


@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around_a_table(name: str, tmp_path: Path) -> None:
    content, note = AROUND[name]
    path = tmp_path / "table.csv"
    path.write_text(content(), encoding="utf-8")
    assert note in said(path)


def test_a_row_that_was_cut_is_no_note(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text()[:-8])
    with pytest.raises(ValueError, match="fewer values than column names"):
        read_table(path, SPEC)
    path.write_text(text().replace("\n", "\nred,\n", 2))
    with pytest.raises(ValueError, match="fewer values than column names"):
        read_table(path, SPEC)
    path.write_text(text() + "Note: a line of words\n" + text().partition("\n")[2])
    with pytest.raises(ValueError, match=f"row {N} "):
        read_table(path, SPEC)


def test_rows_of_another_length_may_be_left_out(tmp_path: Path) -> None:
    lines = text().splitlines()
    (path := tmp_path / "t.csv").write_text("\n".join([*lines[:9], "red,5", "red,5,6,7", *lines[9:]]) + "\n")
    with pytest.raises(ValueError, match=r"row 8 .*with 2 instead of 3: 'red,5'; .*--bad_rows=drop"):
        read_table(path, SPEC)
    dropped = said(path, TableSpec(target=("y",), missing="impute", bad_rows="drop"))
    assert "2 lines of another length left out, the first 'red,5'" in dropped


def test_numbers_that_are_names(tmp_path: Path) -> None:
    values = RNG.normal(size=(N, 3)).round(2)
    lines = [f"c{i}," + ",".join(map(str, row)) + "," for i, row in enumerate(values)]
    path = tmp_path / "table.csv"
    path.write_text('"Data Source","Indicators",\n\n"Country",1960,1961,1962,\n' + "\n".join(lines) + "\n")
    rows = read_table(path, TableSpec(target=("1962",), ignore=("Country",)))
    np.testing.assert_array_equal(rows.parts["all"].X, values[:, :2])
    with_year = pd.DataFrame({"share, %": values[:, 0], "2020": values[:, 1] * 1000})
    with_year.to_csv(path, index=False, sep=";", decimal=",")
    assert read_table(path, TableSpec(target=("2020",))).feature_names == ("share, %",)
    pd.DataFrame(values).to_csv(path)  # the names are 0, 1 and 2
    rows = read_table(path, TableSpec(target=("2",)))
    assert rows.feature_names == ("0", "1")


@pytest.mark.parametrize(
    ("encoding", "word"),
    [
        ("cp1252", "Größe m² €"),
        ("cp1250", "Łódzkie Małopolskie Śląskie"),
        ("cp1251", "Москва город"),
        ("utf-16", "naïve"),
    ],
)
def test_encodings(encoding: str, word: str, tmp_path: Path) -> None:
    frame = FRAME.assign(kind=np.where(FRAME["kind"] == "red", word, "Новый дом" if encoding == "cp1251" else "b"))
    path = tmp_path / "table.csv"
    path.write_bytes(text(frame, sep=";").encode(encoding))
    rows = read_table(path, SPEC)
    assert f"kind={word}" in rows.feature_names
    assert rows.schema is not None
    assert ("--encoding=NAME" in rows.schema.table()[-2][2]) == (encoding != "utf-16")
    again = read_table(path, TableSpec(target=("y",), missing="impute", file=FileSpec(encoding=encoding)))
    assert f"kind={word}" in again.feature_names


def test_a_text_in_two_encodings_or_of_one_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text(FRAME.assign(kind="Köln")).encode() + "Köln,1,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"in UTF-8 up to byte .*0xf6"):
        read_table(path, SPEC)
    path.write_text(text().replace(",", "::"))
    with pytest.raises(ValueError, match="has one column, 'kind::q::y': neither commas"):
        read_table(path, SPEC)


def test_names_of_a_file_without(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text(header=False))
    spec = TableSpec(target=("y",), file=FileSpec(names=("kind", "q", "y")))
    assert "by --names" in said(path, spec)
    X, _ = apply_schema(schema_of(read_table(path, spec)), path)
    np.testing.assert_array_equal(X[:, 2], FRAME["q"])
    (data := tmp_path / "iris.data").write_text(text(FRAME[["q", "y", "kind"]], header=False))
    (packed := tmp_path / "iris.data.gz").write_bytes(gzip.compress(data.read_bytes()))
    assert {read_table(path, TableSpec(target=("x2",))).task for path in (data, packed)} == {"binary"}
    data.write_text("e,x,n\n" + "p,x,y\ne,b,n\np,b,y\n" * 5)
    assert len(read_table(data, TableSpec(target=("x0",))).parts["all"].Y) == 16


def _stata(path: Path) -> None:
    FRAME.to_stata(path, write_index=False)


def _zst(path: Path) -> None:
    with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as stream:
        stream.write(text().encode())


WRITERS: dict[str, Callable[[Path], Any]] = {
    "t.jsonl": lambda path: path.write_text(FRAME.to_json(orient="records", lines=True)),
    "t.json": lambda path: path.write_text(json.dumps(FRAME.to_dict("records"))),
    "columns.json": lambda path: path.write_text(FRAME.to_json()),
    "index.json": lambda path: path.write_text(FRAME.set_axis([f"r{i}" for i in range(N)]).to_json(orient="index")),
    "split.json": lambda path: path.write_text(FRAME.to_json(orient="split")),
    "lists.json": lambda path: path.write_text(json.dumps(FRAME.to_dict("list"))),
    "service.json": lambda path: path.write_text(json.dumps({"meta": {"n": N}, "data": FRAME.to_dict("records")})),
    "schema.json": lambda path: path.write_text(FRAME.to_json(orient="table", index=False)),
    "lines.json": lambda path: path.write_text(FRAME.to_json(orient="records", lines=True)),
    "t.feather": FRAME.to_feather,
    "t.dta": _stata,
    "t.csv.zst": _zst,
    "t.dat": lambda path: path.write_text(text(sep="\t")),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_of_other_programs(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    said(tmp_path / name)


def test_objects_within_rows_and_values_with_labels(tmp_path: Path) -> None:
    people = [{"at": {"city": "AB"[i % 2], "place": {"x": i * i}}, "tags": {}, "y": 1.5 * i} for i in range(N)]
    (path := tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, people)))
    rows = read_table(path, TableSpec(target=("y",)))
    assert rows.feature_names == ("at.city=A", "at.city=B", "at.place.x")
    path.write_text('{"a": "one\u2028text", "y": 1.5}\n\n  \n{"a": "x", "y": 2}\n', encoding="utf-8")
    assert read_table(path, TableSpec(target=("y",))).feature_names == ("a=one\u2028text", "a=x")
    path.write_text('{"a.b": 1, "a": {"b": 2}}\n' * 3)
    with pytest.raises(ValueError, match=r"would be called 'a\.b'"):
        read_table(path, SPEC)
    answers = pd.DataFrame({"q": np.arange(N, dtype=np.int8) % 3, "y": FRAME["y"]})
    answers.to_stata(path := tmp_path / "t.dta", write_index=False, value_labels={"q": {0: "never", 2: "always"}})
    assert set(read_table(path, TableSpec(target=("y",))).feature_names) == {"q=never", "q=1", "q=always"}


def test_moments_and_durations_of_spreadsheets(tmp_path: Path) -> None:
    """Cells hold moments; a column of them is of days only if all are at midnight."""
    hours = pd.date_range("2024-01-01", periods=N, freq="h").to_pydatetime()
    cells = {
        "hour": hours,
        "day": hours[:1].repeat(N),
        "length": [datetime.timedelta(hours=30, minutes=5)] * N,
        "n": 2.0,
    }
    table = _sheet_table(
        {"one": pd.DataFrame({name: [name, *np.broadcast_to(v, N)] for name, v in cells.items()})},
        tmp_path / "t.xlsx",
        SPEC,
    )
    first = [column[0] for column in table.columns.to_pydict().values()]
    assert first == ["2024-01-01 00:00:00", "2024-01-01", "30:05:00", "2"]


def test_spreadsheets(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "t.xlsx"
    with pd.ExcelWriter(path) as writer:
        pd.DataFrame({"What this is": ["Colours", "of the town"]}).to_excel(writer, sheet_name="read me", index=False)
        FRAME.to_excel(writer, sheet_name="colours", index=False, startrow=2)
        writer.sheets["colours"].cell(1, 1, "Colours of 2024")
        FRAME.assign(y=1.5 * FRAME["y"]).to_excel(writer, sheet_name="more", index=False)
    assert "the sheet 'colours' of 3" in said(path)
    more = read_table(path, TableSpec(target=("y",), file=FileSpec(sheet="more")))
    np.testing.assert_allclose(more.parts["all"].Y[:, 0], 1.5 * FRAME["y"], rtol=1e-15)
    for spec, wrong in (
        (TableSpec(target=("z",)), "'colours' of 3; --sheet="),
        (TableSpec(file=FileSpec(sheet="z")), "'colours', 'more' in"),
    ):
        with pytest.raises(ValueError, match=wrong):
            read_table(path, spec)


def test_damaged_and_absent_files_are_refused_in_one_line(tmp_path: Path) -> None:
    for name in ("t.xlsx", "t.dta", "t.feather", "t.jsonl", "t.json", "t.csv.zst"):
        (tmp_path / name).write_bytes(b"{no such file")
        with pytest.raises(ValueError, match=name) as caught:
            read_table(tmp_path / name, SPEC)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="download it first"):
        read_table("https://example.org/table.csv", SPEC)


def test_bombs_are_refused(tmp_path: Path) -> None:
    zeros = np.zeros(40_000_000, np.int8)
    pq.write_table(pa.table({"a": zeros, "y": zeros}), parquet := tmp_path / "t.parquet")
    feathers = [tmp_path / "t.feather", tmp_path / "texts.feather", tmp_path / "levels.feather"]
    longest = pa.array(["x" * 10**6])
    for path, column in (
        (feathers[0], pa.array(zeros)),
        (feathers[1], longest.take(pa.array(zeros[:300]))),
        (feathers[2], pa.DictionaryArray.from_arrays(pa.array(zeros[:1000]), longest)),
    ):
        pa.feather.write_feather(pa.table({"a": column, "y": zeros[: len(column)]}), path, compression="zstd")
    np.savez_compressed(npz := tmp_path / "t.npz", a=zeros.astype(np.int32), y=zeros)
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(b"a,y\n" + b"1,2\n" * 10_000_000, 1))  # 40 MB of text, 120 MB of values
    for path in (parquet, npz, packed, *feathers):
        assert path.stat().st_size < 2_000_000
        with pytest.raises(ValueError, match="bytes") as caught:
            read_table(path, TableSpec(target=("y",)))
        assert "\n" not in str(caught.value)
    wide = tmp_path / "wide.csv"
    names = ",".join(f"x{d}" for d in range(200_000))
    wide.write_text(names + "\n" + ",".join(["1"] * 200_000) + "\n")
    with pytest.raises(ValueError, match=r"too many columns; give --max_bytes"):
        read_table(wide, TableSpec(target=("x0",)))
    small = pd.DataFrame({"a": np.zeros(1000), "y": np.arange(1000.0)})
    small.to_parquet(path := tmp_path / "small.parquet", index=False)
    with pytest.raises(ValueError, match="bytes"):
        read_table(path, TableSpec(target=("y",), file=FileSpec(max_bytes=100)))


def test_flags_overrule_what_was_found_out(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\ufeffColours of 2024\n\n" + text() + "Source: the office, 2024\nof the town\n")
    assert "--skip_rows=N leaves out N" in said(path)
    assert "2 lines at the foot left out" in said(path)
    spec = TableSpec(target=("y",), missing="impute", file=FileSpec(skip_rows=2, skip_footer=2, encoding="utf-8"))
    assert "left out by --skip_rows" in said(path, spec)
    with pytest.raises(ValueError, match="values than column names"):
        read_table(path, TableSpec(target=("y",), file=FileSpec(skip_footer=0)))
    with pytest.raises(ValueError, match=r"column names|--target"):
        read_table(path, TableSpec(target=("y",), file=FileSpec(skip_rows=0)))
    path.write_text(text() + "a,,\n")
    assert "--skip_footer=0" in said(path)
    kept = read_table(path, TableSpec(target=("kind",), missing="impute", file=FileSpec(skip_footer=0)))
    assert kept.class_names == ("a", "green", "red")
    cut = read_table(path, TableSpec(target=("y",), file=FileSpec(skip_footer=11)))
    np.testing.assert_array_equal(cut.parts["all"].Y[:, 0], FRAME["y"][:-10])
    with pytest.raises(ValueError, match="--skip_rows must be at least 0"):
        TableSpec(file=FileSpec(skip_rows=-1))
    with pytest.raises(ValueError, match="--max_bytes must be at least 1"):
        TableSpec(file=FileSpec(max_bytes=0))


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_titles_and_ends_of_lines(end: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(("\ufeff" + '"Colours\nof 2024"' + end * 2 + text().replace("\n", end)).encode())
    said(path)


def test_what_r_writes(tmp_path: Path) -> None:
    lines = [f'"{i}" "{row.kind}" {row.q} {row.y}' for i, row in enumerate(FRAME.itertuples(), 1)]
    path = tmp_path / "table.txt"
    path.write_text('"kind" "q" "y"\n' + "\n".join(lines) + "\n")
    assert "Unnamed: 0 ignored" in said(path)
    path.write_text("kind,q,y\n" + "".join(f"{i % 7},a,1,2\n" for i in range(20)))
    with pytest.raises(ValueError, match="more values than column names"):
        read_table(path, SPEC)


def test_names_after_tabs_among_spaces(tmp_path: Path) -> None:
    lines = [f'{row.q:8.3f}   {row.y:.3f}   {i:3d}.\t"{row.kind} one"' for i, row in enumerate(FRAME.itertuples())]
    (path := tmp_path / "auto.data").write_text("\n".join(lines) + "\n")
    rows = read_table(
        path, TableSpec(target=("y",), ignore=("number",), file=FileSpec(names=("q", "y", "number", "kind")))
    )
    assert rows.feature_names == ("q", "kind=green one", "kind=red one")
    np.testing.assert_array_equal(rows.parts["all"].Y[:, 0], FRAME["y"])


def test_new_rows_are_read_as_those_of_training(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text(FRAME.assign(kind=np.where(FRAME["kind"] == "red", "дом", "b"))).encode("koi8-r"))
    rows = read_table(path, TableSpec(target=("y",), file=FileSpec(encoding="koi8-r")))
    schema = schema_of(rows)
    assert type(schema).from_json(json.loads(json.dumps(schema.to_json()))) == schema
    X, _ = apply_schema(schema, path)
    np.testing.assert_array_equal(X, rows.parts["all"].X)


def test_sheets_and_objects_that_claim_more_than_they_hold(tmp_path: Path) -> None:
    sheet = b'<worksheet><sheetData><row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData></worksheet>'
    with zipfile.ZipFile(path := tmp_path / "t.xlsx", "w") as archive:
        archive.writestr("xl/worksheets/sheet1.xml", sheet)
    with pytest.raises(ValueError, match="1,048,576 rows and 16,384 columns"):
        read_table(path, SPEC)
    lines = "".join(f'{{"a{i}": 1, "y": 2}}\n' for i in range(10_000))
    (path := tmp_path / "t.jsonl").write_text(lines)
    with pytest.raises(ValueError, match="10,000 rows, 10,001 columns"):
        read_table(path, SPEC)


def _words(i: int) -> str:
    return "".join(RNG.choice(list("abcdefgh"), 5)) + f" {'of the'[: i % 7]}"


TEXTS: dict[str, tuple[list[str], str, str]] = {  # cells, what they are, and what is said
    "names": ([_words(i) for i in range(N)], "ignored", "60 different texts, too many for levels"),
    "addresses": ([f"{i} {_words(i)} street" for i in range(N)], "ignored", "too many for levels"),
    "codes with letters": (
        [f"{'C' * (i % 9 == 0)}{536365 + i % 5}" for i in range(N)],
        "category",
        "codes, such as 'C5",
    ),
    "codes that all differ": ([f"{'C' * (i % 9 == 0)}{536365 + i}" for i in range(N)], "ignored", "codes, such as 'C5"),
    "codes of one letter": ([f"S{i:03d}" for i in range(N)], "ignored", "60 different texts, too many for levels"),
    "a unit that nobody knows": ([f"{100 + i} CC" for i in range(N)], "number", "--categorical=c reads levels"),
    "three or more": ([["0", "1", "2", "3+"][i % 4] for i in range(N)], "category", ""),
    "ordinals": ([f"{9 + i % 4}th" for i in range(N)], "category", ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_which_no_level_says_much(name: str) -> None:
    cells, kind, note = TEXTS[name]
    rows = read_table(FRAME.assign(c=cells), SPEC)
    assert rows.schema is not None
    column = rows.schema.columns[2].column
    assert column.kind == kind
    assert note in column.note
    assert ("'c' left out" in rows.source) == (kind == "ignored")


QUESTIONS: dict[str, list[str]] = {
    "lengths": [f"{i} st {i % 14} lb" for i in range(N)],
    "places": [f"52 deg {i} min" for i in range(N)],
    "half-years": [f"{1980 + i // 2} half {1 + i % 2}" for i in range(N)],
    "weeks without a letter": [f"{2019 + i // 52}/{1 + i % 52:02d}" for i in range(N)],
    "years of two eras": [[f"AD {i}", f"{i} BC"][i % 2] for i in range(N)],
    "numbers with zeros in front": [f"{i:03d}" for i in range(N)],
    "typos": ["1O5", "l20", *(f"{200 + i}" for i in range(N - 2))],
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_measurements_and_periods_of_an_own_format_are_not_left_out(name: str) -> None:
    frame = FRAME.assign(c=QUESTIONS[name])
    with pytest.raises(ValueError, match="--ignore=c"):
        read_table(frame, SPEC)
    with pytest.raises(ValueError, match="too many levels in 'c'"):
        read_table(frame.assign(c=TEXTS["names"][0]), TableSpec(target=("y",), features=("c", "q")))


def test_frequent_levels_are_columns_and_the_others_one() -> None:
    towns = [*np.repeat([f"town{i:02d}" for i in range(45)], 3), *(f"village{i}" for i in range(30))]
    frame = pd.DataFrame({"town": towns, "y": RNG.normal(size=165)})
    rows = read_table(frame, SPEC)
    assert (len(rows.feature_names), rows.feature_names[-1]) == (46, "town=(rare)")
    schema = schema_of(divide(rows))
    again = type(schema).from_json(json.loads(json.dumps(schema.to_json())))
    X, _ = apply_schema(again, pd.DataFrame({"town": ["town00", "a new one"]}))
    np.testing.assert_array_equal(X[:, [0, -1]], np.eye(2))


@pytest.mark.parametrize("units", ["(colour),(m),(kg)", "Colour of it,Quantity in m,Yield", "5s,14n,10n"])
def test_a_second_line_of_names_is_left_out(units: str, tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_text(text().replace("\n", f"\n{units}\n", 1))
    assert "left out as a further line of names" in said(path)
    assert len(apply_schema(schema_of(divide(read_table(path, SPEC))), path)[0]) == N
    for first_row in ("red,withheld,withheld", "red,1.5,x"):  # these may be values
        path.write_text(text().replace("\n", f"\n{first_row}\n", 1))
        with pytest.raises(ValueError, match="must hold numbers"):
            read_table(path, SPEC)


def test_names_below_other_lines_are_found_by_the_target(tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_text("A,B,C\n" + text())
    assert "1 lines above the header left out, the first 'A'" in said(path)
    X, Y = apply_schema(schema_of(divide(read_table(path, SPEC))), path)
    assert len(X) == N
    assert Y is not None
    path.write_text('"Title","Colours, in all"\n"Unit","m"\nx,y\n' + "a,1.5\nb,2\n" * 9)
    assert read_table(path, SPEC).feature_names == ("x=a", "x=b")
    path.write_text(text(FRAME.rename(columns={"kind": "q"})))
    rows = read_table(path, SPEC)
    assert rows.feature_names[-1] == "q.1"
    X, _ = apply_schema(schema_of(divide(rows)), path)  # whose names occur twice, too
    np.testing.assert_array_equal(X, rows.parts["all"].X)
    (empty := tmp_path / "empty.csv").write_text("Unnamed: 0,Unnamed: 1\n,\n,\n")
    with pytest.raises(ValueError, match="has neither names of columns nor values"):
        read_table(empty, SPEC)
    with pytest.raises(ValueError, match="'q' occur twice"):
        read_table(path, TableSpec(target=("q",)))
    path.write_text(text(FRAME.rename(columns={"q": "4046"})))
    assert read_table(path, SPEC).feature_names[-1] == "4046"


def test_a_class_that_is_none(tmp_path: Path) -> None:
    answers = ["Yes", "No", "NA", "No", "?", "Yes"] * 10
    (path := tmp_path / "t.csv").write_text(text(FRAME.assign(y=answers)))
    rows = read_table(path, SPEC)
    assert rows.class_names == ("No", "Yes")
    assert "'?', 'NA' of the target is missing" in rows.source
    assert "20 rows without a target left out" in rows.source
    assert apply_schema(schema_of(divide(rows)), path)[1] is None
    assert len(read_table(path, TableSpec(target=("y",), categorical=("y",))).class_names) == 4
    path.write_text(text(FRAME.assign(y=[*"+?"] * 30)))
    assert read_table(path, SPEC).class_names == ("+", "?")


def test_one_and_several_of_a_unit_quarters_and_moments_without_signs() -> None:
    moments = pd.date_range("2014-05-01", periods=N).strftime("%Y%m%dT000000")
    short = pd.date_range("2019-01-01", periods=N, freq="9D")
    X = read_table(FRAME.assign(when=short.strftime("%d/%m/%y")), SPEC).parts["all"].X
    np.testing.assert_array_equal(X[:, 3], short.to_numpy().astype("datetime64[D]").astype(int))
    quarters = [f"Q{1 + i % 4} {1980 + i // 4}" for i in range(N)]
    X = read_table(FRAME.assign(when=quarters), SPEC).parts["all"].X
    days = np.datetime64("1980-01") + 3 * np.arange(N)
    np.testing.assert_array_equal(X[:, 3], days.astype("datetime64[D]").astype(int))
    for form in ("{0}-T{1}", "T{1} {0}", "{1}T{0}", "{1}Q{0}", "{0}K{1}"):
        years = (
            [f"{year:02d}" for year in (80 + np.arange(N) // 4) % 100]
            if form == "{1}Q{0}"
            else 1980 + np.arange(N) // 4
        )
        texts = [form.format(year, 1 + i % 4) for i, year in enumerate(years)]
        np.testing.assert_array_equal(read_table(FRAME.assign(when=texts), SPEC).parts["all"].X[:, 3], X[:, 3])
    for form in ("{0}-W{1:02d}", "{0}W{1:02d}", "{0}-KW{1:02d}", "W{1:02d} {0}"):
        weeks = pd.date_range("2019-12-30", periods=N, freq="7D")
        texts = [form.format(*day.isocalendar()) for day in weeks]
        X = read_table(FRAME.assign(when=texts), SPEC).parts["all"].X
        np.testing.assert_array_equal(X[:, 3], weeks.to_numpy().astype("datetime64[D]").astype(int))
    rows = read_table(FRAME.assign(age=[f"{i} year{'s' * (i != 1)}" for i in range(N)], day=moments), SPEC)
    np.testing.assert_array_equal(rows.parts["all"].X[:, 3], np.arange(N))
    assert rows.feature_names[4:] == ("day.day", "day.weekday")


def test_a_first_line_that_is_a_row(tmp_path: Path) -> None:
    (path := tmp_path / "adult.csv").write_text("39, clerk, 77516, <=50K\n50, guard, 83311, >50K\n" * 9)
    assert read_table(path, TableSpec(target=("x3",))).class_names == ("<=50K", ">50K")
    path.write_text(text(FRAME[["q", "y", "kind"]], header=False))
    assert len(read_table(path, TableSpec(target=("x1",))).parts["all"].Y) == N
    for doubtful in ("0,1,y\n0,1,1.5\n1,0,2.5\n", "0,1,2\n0,1,1\n1,0,2\n", "39,clerk\n50,guard\n"):
        path.write_text(doubtful * 1)
        with pytest.raises(ValueError, match=r"must hold column names|--target"):
            read_table(path, TableSpec(target=("x1",)))


def test_names_that_are_none_and_names_that_are_several(tmp_path: Path) -> None:
    (path := tmp_path / "seeds.txt").write_text("15.26\t14.84\t\t0.87\n11.18\t12.72\t0.86\n12.3\t13.2\t0.85\n")
    rows = read_table(path, TableSpec(target=("x2",)))
    np.testing.assert_array_equal(rows.parts["all"].Y[:, 0], [0.87, 0.86, 0.85])
    lines = [
        f"NR,{'TM'[i % 2]}\t{i * i} p\t: " if i % 7 == 0 else f"NR,{'TM'[i % 2]}\t{i * i} \t{i} " for i in range(N)
    ]
    (path := tmp_path / "demo.tsv").write_text("\n".join(["unit,sex\\time\t2021 \t2020 ", *lines]) + "\n")
    rows = read_table(path, TableSpec(target=("2021",)))
    assert rows.feature_names == ("unit=NR", "sex=M", "sex=T", "2020", "2020=missing")


def test_a_gap_is_no_question_unless_training_had_none(tmp_path: Path) -> None:
    assert (
        "q=missing"
        in read_table(FRAME.assign(q=FRAME["q"].mask(FRAME["q"] > 1)), TableSpec(target=("y",))).feature_names
    )
    whole = schema_of(divide(read_table(FRAME, TableSpec(target=("y",)))))
    with pytest.raises(ValueError, match=r"missing values in 'q' \(60\); give --missing=impute"):
        apply_schema(whole, FRAME.assign(q=None))


OF_PEOPLE: dict[str, tuple[list[str], str, list[float]]] = {
    "durations": (["1h 30m", "45m", "2h", "1 hr 5 min", "1d 2h"], "time", [1.5, 0.75, 2.0, 65 / 60, 26.0]),
    "durations of machines": (["PT1H30M", "PT45M", "P1DT2H", "PT36S"], "time", [1.5, 0.75, 26.0, 0.01]),
    "ratings": (["4.1/5", "3/5", "4.5/5"], "number", [4.1, 3.0, 4.5]),
    "ratings in words": (["4.1 out of 5 stars", "3.0 out of 5 stars"], "number", [4.1, 3.0]),
    "a unit of two letters": (["180.5 g/mol", "46.07 g/mol"], "number", [180.5, 46.07]),
    "numbers beside stars": (["1.5", "***", "2.5"], "number", [1.5, np.nan, 2.5]),
    "addresses": ([f"10.0.{i}.{i * 3}" for i in range(N)], "ignored", []),
    "telephones": ([f"+49 170 {1234567 + i}" for i in range(N)], "ignored", []),
    "substances": ([f"{50 + i}-{10 + i}-2" for i in range(N)], "ignored", []),
    "probes": ([f"{200000 + i}_s_at" for i in range(N)], "ignored", []),
    "a date that never changes": (["07/03/24 11:00:00"], "ignored", []),
    "years in parentheses": (
        [f"({1950 + i})" if i % 3 else f"{1950 + i}" for i in range(N)],
        "number",
        [1950.0, 1951.0],
    ),
    "years all in parentheses": ([f"({1950 + i})" for i in range(N)], "number", [1950.0, 1951.0]),
    "three sums": (["(1994)", "2001", "(1987)"], "number", [-1994.0, 2001.0, -1987.0]),
    "sums below zero": (
        [f"({1950 + 9 * i})" if i % 3 else f"{1950 + 9 * i}" for i in range(N)],
        "number",
        [1950.0, -1959.0],
    ),
    "sums below zero with flags": (["(1994)", "1700 p", "2500", "-3100", "470"], "number", [-1994.0, 1700.0]),
    "stars": (["**", "***", "*"], "category", [0.0, 0.0, 1.0]),
    "stars or nothing": (["*", ""], "category", [1.0, np.nan]),
    "stars alone": (["*"], "ignored", []),
    "seasons": (["1998-99", "1999-00", "2009-10"], "category", [1.0, 0.0, 0.0]),
    "seasons with a stroke": (["2013/14", "2011/12"], "category", [0.0, 1.0]),
    "times of two letters": (["7:05p", "12:30a", "11:15a"], "time", [19 + 1 / 12, 0.5, 11.25]),
    "ordinal days": (["5th March 2020", "1st May 2020", "22nd June 2020"], "date", [18326.0, 18383.0, 18435.0]),
    "ordinal days behind": (["March 5th, 2020", "May 1st, 2020", "June 22nd, 2020"], "date", [18326.0, 18383.0]),
    "no date of a data base": (["2020-03-05 10:00:00", "0000-00-00 00:00:00"], "date", [18326.0, np.nan]),
    "days of Japan": (["2020年12月07日", "2021年1月3日"], "date", [18603.0, 18630.0]),
    "codes of post": ([f"{10000 + 997 * i}-{100 + i}" for i in range(N)], "ignored", []),
    "versions": ([f"1.{i % 7}.{100 + i}" for i in range(N)], "ignored", []),
    "places": ([f"(41.{880 + i}, -87.{630 + i})" for i in range(N)], "ignored", []),
    "sets of tennis": ([f"{6 + i % 2}-{i % 5} 7-6({i}) 6-1" for i in range(N)], "ignored", []),
    "a year and a word": (["2012 Summer", "1992 Summer"], "category", [0.0, 1.0]),
    "half a code": (["860xx", "309xx"], "category", [0.0, 1.0]),
    "0 or letters": (["0"] * 7 + ["a", "b"], "category", [1.0, 1.0]),
    "not provided": (["12.5", "Not Provided", "3", "[Not Available]"], "number", [12.5, np.nan, 3.0, np.nan]),
    "codes with letters within": ([f"200501BS{i:05d}" for i in range(N)], "ignored", []),
    "diagnoses": (["250.83", "V57", "414", "E888", "8"], "category", [1.0, 0.0]),
}


@pytest.mark.parametrize("name", OF_PEOPLE)
def test_what_a_careful_reader_would_not_ask(name: str) -> None:
    cells, kind, values = OF_PEOPLE[name]
    rows = read_table(FRAME.assign(c=[cells[i % len(cells)] for i in range(N)]), SPEC)
    assert rows.schema is not None
    assert rows.schema.columns[2].column.kind == kind
    np.testing.assert_allclose(rows.parts["all"].X[: len(values), 3] if values else [], values)


@pytest.mark.parametrize("cells", [["NEW", "4.1/5", "3/5"], ["6/5", "4/5"], ["1h 30m", "2h", "cancelled", "3h"]])
def test_what_nearly_is_a_rating_or_a_duration(cells: list[str]) -> None:
    frame = FRAME.assign(c=[cells[i % len(cells)] for i in range(N)])
    if cells[0] == "6/5":
        assert read_table(frame, SPEC).feature_names[3:] == ("c=4/5", "c=6/5")
        return
    with pytest.raises(ValueError, match=cells[0] if cells[0] == "NEW" else "cancelled"):
        read_table(frame, SPEC)


def test_moments_of_forms_and_of_statistical_programs() -> None:
    form = pd.date_range("2023-05-12 15:14", periods=N, freq="7h")
    sas = form.strftime("%d%b%Y:%H:%M:%S").str.upper()
    zoned = [
        f"{moment:%Y/%m/%d %I:%M:%S %p} GMT{zone}" for moment, zone in zip(form, ["+2", "-5:30"] * 30, strict=True)
    ]
    X = (
        read_table(FRAME.assign(sas=sas, zoned=zoned), TableSpec(target=("y",), date_parts=("day", "hour")))
        .parts["all"]
        .X
    )
    hours = (form.to_numpy() - np.datetime64("1970-01-01")) / np.timedelta64(1, "h")
    np.testing.assert_allclose(24 * X[:, 3] + X[:, 4], hours, rtol=1e-12)
    np.testing.assert_allclose(24 * X[:, 5] + X[:, 6], hours - np.tile([2.0, -5.5], 30), rtol=1e-12)


def test_days_between_year_and_month_where_nothing_else_fits() -> None:
    days = pd.date_range("2017-11-14", periods=N)
    for form in ("%y.%d.%m", "%Y-%d-%m"):
        X = read_table(FRAME.assign(day=days.strftime(form)), SPEC).parts["all"].X
        np.testing.assert_array_equal(X[:, 3], days.to_numpy().astype("datetime64[D]").astype(int))


def test_many_numbers_beside_a_word_that_is_more_frequent_are_asked_about() -> None:
    scores = [f"{i / 10}" if i % 3 == 0 else "tbd" for i in range(3 * N)]
    frame = pd.DataFrame({"score": scores, "y": RNG.normal(size=3 * N)})
    with pytest.raises(ValueError, match="--na_values=tbd"):
        read_table(frame, SPEC)
    levels = frame.assign(score=["free", "free", "10"] * N)
    assert read_table(levels, SPEC).feature_names == ("score=10", "score=free")


def test_names_of_two_lines_of_which_the_first_is_of_groups(tmp_path: Path) -> None:
    rows = "".join(f"{kind},{i},{q},{y}\n" for i, (kind, q, y) in enumerate(FRAME.to_numpy()))
    (path := tmp_path / "merged.csv").write_text(f"kind,2023,,2024\n,units,q,y\n{rows}".replace("2023,,2024", "Q1,,Q2"))
    data = read_table(path, TableSpec(target=("Q2 y",)))
    assert data.feature_names == ("kind=green", "kind=red", "Q1 units", "Q1 q")
    np.testing.assert_array_equal(data.parts["all"].Y[:, 0], FRAME["y"])
    # A column of row names without one is no group
    path.write_text(text(FRAME.set_index("kind")[["q", "y"]].reset_index(names="")))
    assert read_table(path, SPEC).feature_names[0].startswith("Unnamed: 0")


def test_lines_of_comments_that_look_like_rows(tmp_path: Path) -> None:
    geo = '!Series_title\t"x"\n!Sample_title\t"a"\t"b"\n!series_matrix_table_begin\n' + text(sep="\t")
    said((path := tmp_path / "matrix.txt", path.write_text(geo + "!series_matrix_table_end\n"))[0])
    numbers = "".join(f" {i}  {q:6.3f}  {y:6.3f}\n" for i, (q, y) in enumerate(FRAME[["q", "y"]].to_numpy()))
    for head, names in (
        ("#YY  WSPD GST\n#yr  m/s  m/s\n", ("YY", "WSPD")),
        ("% Text, with commas.\n% \n% Year, Anomaly, Unc.\n", ("Year", "Anomaly")),
    ):
        path.write_text(head + numbers)
        target = "GST" if "GST" in head else "Unc."
        data = read_table(path, TableSpec(target=(target,), numeric=(names[0],)))
        assert data.feature_names == names
        np.testing.assert_array_equal(data.parts["all"].Y[:, 0], FRAME["y"])


def test_a_first_line_with_a_date_is_a_row(tmp_path: Path) -> None:
    days = pd.date_range("2023-01-02", periods=N).strftime("%Y-%m-%d 00:00")
    (path := tmp_path / "sold.csv").write_text(text(FRAME.assign(day=days, n=range(1000, 1000 + N)), header=False))
    assert len(read_table(path, TableSpec(target=("x2",))).parts["all"].Y) == N
    path.write_text("code,2023-01-02,2023-01-03\n" + "a,1.5,2.5\nb,2.5,4.5\n" * 9)
    assert read_table(path, TableSpec(target=("2023-01-03",))).feature_names == ("code=a", "code=b", "2023-01-02")


def test_categories_that_pandas_keeps_as_numbers(tmp_path: Path) -> None:
    FRAME.assign(kind=pd.Categorical([1, 2, 3] * 20)).to_parquet(path := tmp_path / "kinds.parquet")
    assert read_table(path, SPEC).feature_names == ("kind=1", "kind=2", "kind=3", "q")


def test_notes_of_japan_and_letters_of_several_languages_of_a_mac(tmp_path: Path) -> None:
    (path := tmp_path / "notes.csv").write_text(text() + "\u203b \u7dcf\u52d9\u7701\n")
    assert "1 lines at the foot left out" in said(path)
    names = ["Gr\u00f6\u00dfe", "Jos\u00e9", "Zo\u00eb", "5 \u20ac"] * (N // 4)
    path.write_bytes(text(FRAME.assign(name=names)).encode("mac_roman"))
    assert "name=Jos\u00e9" in read_table(path, SPEC).feature_names
