"""`gpflow_deep_runs.data.streams.own`: a stream of a table is the table in memory; later rows that differ are named."""

import collections
import decimal
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from gpflow_deep_runs.data.rows import Part
from gpflow_deep_runs.data.streams import own
from gpflow_deep_runs.data.streams.files import Shards
from gpflow_deep_runs.data.streams.reader import BatchReader
from gpflow_deep_runs.data.streams.record import save
from gpflow_deep_runs.data.streams.scan import StreamSpec, load, scan
from gpflow_deep_runs.data.streams.stream import Stream
from gpflow_deep_runs.data.table import survey
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.table.spec import FileSpec, TableSpec
from gpflow_deep_runs.data.tables import apply_schema, read_table, schema_of
from gpflow_deep_runs.data.views import Source
from tests.gpflow_deep_runs.data.streams.tables import converted, open_stream

ROWS = 600


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small table has many blocks, of which the first ones are a part."""
    monkeypatch.setattr(own, "HEAD_ROWS", 150)


def some(rng: np.random.Generator, values: list[Any], rows: int = ROWS) -> np.ndarray:
    """Each of the values, and then any of them."""
    return np.array([*values, *rng.choice(np.array(values, dtype=object), rows - len(values))], dtype=object)


def houses(rng: np.random.Generator) -> pd.DataFrame:
    """Numbers, levels, yes and no, dates of two years, some missing; the price."""
    frame = pd.DataFrame(
        {
            "rooms": rng.integers(1, 9, ROWS),
            "area": rng.normal(90, 20, ROWS).round(2),
            "colour": some(rng, ["red", "blue", "green"]),
            "garden": some(rng, ["yes", "no"]),
            "sold": pd.Timestamp("2019-06-01") + pd.to_timedelta(rng.integers(0, 700, ROWS), unit="D"),
        }
    )
    frame["price"] = (frame["area"] * 1000 + rng.normal(size=ROWS)).round(1)
    for name in ("area", "colour", "garden"):
        frame.loc[rng.choice(np.arange(10, ROWS), 40, replace=False), name] = None
    return frame


def trains(rng: np.random.Generator) -> pd.DataFrame:
    """Times, percentages, row numbers, codes with leading zeros, None as a level, rare levels; three labels."""
    return pd.DataFrame(
        {
            "train_id": np.arange(ROWS),
            "departs": [f"{hour:02}:{minute:02}" for hour, minute in rng.integers(0, (24, 60), (ROWS, 2))],
            "full": [f"{share}%" for share in rng.integers(0, 101, ROWS)],
            "line": some(rng, ["007", "012", "100"]),
            "service": some(rng, ["None", "bar", "bistro"]),
            "depot": some(rng, ["north", "south", "east"]),
            "class": some(rng, ["late", "on time", "early"]),
        }
    ).assign(depot=lambda f: f["depot"].where(f.index % 97 != 5, [f"depot {i}" for i in f.index]))


def doses(rng: np.random.Generator) -> pd.DataFrame:
    """Two targets; a column of whole numbers that is an input; dates as text with months first."""
    days = pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 300, ROWS), unit="D")
    frame = pd.DataFrame({"given": days.strftime("%m/%d/%Y"), "amount": rng.integers(0, 5, ROWS)})
    return frame.assign(y=rng.normal(size=ROWS), z=rng.normal(size=ROWS))


def votes(rng: np.random.Generator) -> pd.DataFrame:
    """Whole numbers that are labels, 2 and 7; true and false; a target that is missing in some rows."""
    frame = pd.DataFrame({"age": rng.normal(50, 9, ROWS), "member": some(rng, [True, False])})
    frame["party"] = some(rng, [2, 7]).astype(float)
    frame.loc[rng.choice(np.arange(10, ROWS), 20, replace=False), "party"] = np.nan
    return frame.assign(party=frame["party"].astype("Int64"), member=frame["member"].astype(bool))


Table = tuple[Callable[[np.random.Generator], pd.DataFrame], TableSpec]

TABLES: dict[str, Table] = {
    "houses": (houses, TableSpec(target=("price",), missing="impute")),
    "labels": (houses, TableSpec(target=("garden",), missing="impute", ignore=("sold",))),
    "trains": (trains, TableSpec(target=("class",), rare=5)),
    "codes": (houses, TableSpec(target=("price",), categorical=("rooms",), features=("rooms", "sold"))),
    "doses": (doses, TableSpec(target=("y", "z"), dates=("given",))),
    "votes": (votes, TableSpec(target=("party",), missing="impute")),
    "dropped": (houses, TableSpec(target=("price",), bad_rows="drop")),
}


def write(frame: pd.DataFrame, path: Path) -> None:
    """As Parquet, or as text in a style of the file's name."""
    if path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=40, index=False)
    elif path.stem.startswith("german"):
        frame.to_csv(path, index=False, sep=";", decimal=",", encoding="utf-8-sig", lineterminator="\r\n")
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")


def write_all(frame: pd.DataFrame, name: str, folder: Path) -> tuple[str, Path]:
    """The table in three files, as a pattern, and in one."""
    stem, suffix = name.split(".")
    folder.mkdir(exist_ok=True)
    cuts = [0, 250, 260, len(frame)]
    for number in range(3):
        write(frame[cuts[number] : cuts[number + 1]], folder / f"{stem}{number}.{suffix}")
    write(frame, folder.parent / name)
    pattern = f"{folder}/*.{suffix}"
    return pattern if suffix == "parquet" else converted(pattern, folder), folder.parent / name


def everything(stream: Stream) -> Part:
    """All rows of all parts."""
    parts = list(stream.samples.values())
    return Part(np.concatenate([part.X for part in parts]), np.concatenate([part.Y for part in parts]))


def ordered(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    rows = np.concatenate([X, Y], axis=1)
    return np.asarray(rows[np.lexsort(rows.T)])


@pytest.mark.parametrize("name", ["table.csv", "german.csv", "table.parquet"])
@pytest.mark.parametrize("table", TABLES)
def test_a_stream_has_the_rows_of_the_table_in_memory(
    table: str, name: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    """The same columns, levels, task and classes; all parts together are the rows, but for what is put in."""
    make, spec = TABLES[table]
    frame = make(rng)
    if table == "dropped":
        frame = frame.astype({"rooms": object})
        frame.loc[300, "rooms"] = "four" if not name.endswith("parquet") else None
        frame.loc[301, "area"] = np.inf
    if name == "german.csv" and table == "doses":
        spec = replace(spec, dates=("given:mdy",))
    pattern, path = write_all(frame, name, tmp_path / "files")
    memory = read_table(path, spec)
    stream = scan(*own.open_table(pattern, spec))
    found = stream.rows
    assert (found.task, found.class_names) == (memory.task, memory.class_names)
    assert (found.feature_names, found.target_names) == (memory.feature_names, memory.target_names)
    assert found.schema is not None
    assert memory.schema is not None
    assert [(f.levels, f.rare, f.parts, f.num_missing) for f in found.schema.columns] == [
        (f.levels, f.rare, f.parts, f.num_missing) for f in memory.schema.columns
    ]
    X, Y = everything(stream)
    expected = memory.parts["all"]
    filled = replace(memory.schema, fills=found.schema.fills).filled(expected.X)
    np.testing.assert_array_equal(ordered(X, Y), ordered(filled, expected.Y))
    assert Y.dtype == expected.Y.dtype
    assert sum(stream.counts.values()) == ROWS


def test_what_is_put_in_is_learned_from_training_rows(rng: np.random.Generator, tmp_path: Path) -> None:
    make, spec = TABLES["houses"]
    pattern, _ = write_all(make(rng), "table.csv", tmp_path / "files")
    shards, preset = own.open_table(pattern, spec)
    stream = scan(shards, preset, valid_fraction=0.2, test_fraction=0.3)
    schema = stream.preset.schema
    assert schema is not None
    assert schema.fills is not None
    train = stream.samples["train"].X
    names = stream.rows.feature_names
    fills = dict(zip(names, schema.fills, strict=True))
    is_missing = {name: train[:, names.index(f"{name}=missing")] == 1 for name in ("area", "colour", "garden")}
    area = train[:, names.index("area")]
    assert is_missing["area"].any()
    np.testing.assert_allclose(fills["area"], area[~is_missing["area"]].mean(), rtol=1e-12)
    assert set(area[is_missing["area"]]) == {fills["area"]}
    colours = train[~is_missing["colour"]][:, [names.index(f"colour={c}") for c in ("blue", "green", "red")]].sum(
        axis=0
    )
    assert [fills[f"colour={c}"] for c in ("blue", "green", "red")] == list(np.arange(3) == colours.argmax())
    # The scale is that of the rows as they are trained on. Rounding: merges of a few moments.
    np.testing.assert_allclose(stream.x_scale.mean, train.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(stream.x_scale.scale, train.std(axis=0), rtol=1e-12)


def test_batches_and_new_rows_are_filled(rng: np.random.Generator, tmp_path: Path) -> None:
    make, spec = TABLES["houses"]
    frame = make(rng)
    _, path = write_all(frame, "table.csv", tmp_path / "files")
    stream = open_stream(tmp_path / "files", "csv", table=spec)
    reader = BatchReader(stream, batch_size=50, seed=0, shuffle_rows=200)
    steps = stream.counts["train"] // 50
    X = np.concatenate([reader(step)[0].numpy() for step in range(steps)])
    train = stream.samples["train"].X
    assert len(X) > 300
    assert {tuple(row) for row in X} <= {tuple(row) for row in train}
    stored = Schema.from_json(json.loads(json.dumps(schema_of(stream.rows).to_json())))
    new, Y = apply_schema(stored, path)
    assert Y is not None
    np.testing.assert_array_equal(ordered(new, Y), ordered(*everything(stream)))


def test_a_resumed_run_has_the_schema_at_once(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, spec = TABLES["houses"]
    pattern, _ = write_all(make(rng), "table.csv", tmp_path / "files")
    source, pieces = Source(data=pattern), StreamSpec(stream=True)
    first = load(pieces, source, table=spec)
    save(first, tmp_path / "stream.npz")
    other = load(pieces, source, table=replace(spec, rare=2), stored=tmp_path / "stream.npz")
    assert other.sha256 != first.sha256
    monkeypatch.setattr(own, "open_table", lambda *_, **__: pytest.fail("its columns were found out again"))
    again = load(pieces, source, table=spec, stored=tmp_path / "stream.npz")
    assert again.preset.schema == first.preset.schema
    assert again.rows.schema == first.preset.schema
    for step in (0, 5):
        one, two = (BatchReader(stream, batch_size=20, seed=1)(step) for stream in (first, again))
        np.testing.assert_array_equal(np.concatenate(one, axis=1), np.concatenate(two, axis=1))


def reads(monkeypatch: pytest.MonkeyPatch, folder: Path) -> collections.Counter[int]:
    """How often each block of the files in a folder is read; readers of other tests may still be at work."""
    seen: collections.Counter[int] = collections.Counter()
    read = Shards.table

    def counted(shards: Shards, number: int, *rest: Any) -> Any:
        if all(Path(file).is_relative_to(folder) for file in shards.files):
            seen[number] += 1
        return read(shards, number, *rest)

    monkeypatch.setattr(Shards, "table", counted)
    return seen


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbers_alone_take_one_pass_and_levels_one_more(
    suffix: str, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Besides the first blocks, in which the columns are found out."""
    numbers = pd.DataFrame(rng.normal(size=(ROWS, 3)), columns=["a", "b", "price"]).assign(n=np.arange(ROWS))
    for num_passes, frame in enumerate((numbers, houses(rng).ffill()), start=1):
        folder = tmp_path / str(num_passes)
        folder.mkdir()
        write_all(frame, f"table.{suffix}", folder / "files")
        with monkeypatch.context() as patch:
            seen = reads(patch, folder)
            stream = open_stream(folder / "files", suffix, table=TableSpec(target=("price",)))
        num_blocks = len(stream.shards.blocks)
        num_first = sum(seen.values()) - num_passes * num_blocks
        num_first -= 1  # the last block is looked at for a total
        assert 0 < num_first < num_blocks / 2
        expected = [num_passes + 1] * num_first + [num_passes] * (num_blocks - num_first)
        expected[-1] += 1
        assert [seen[number] for number in range(num_blocks)] == expected


def late(rng: np.random.Generator, folder: Path, suffix: str = "csv", **changes: Any) -> Path:
    """A folder with a table whose cells in row 500, which is row 240 of the last file, are others."""
    frame = houses(rng).drop(columns="sold").ffill().astype(object)
    for name, value in changes.items():
        frame.loc[500, name] = value
    write_all(frame, f"table.{suffix}", folder / "files")
    return folder / "files"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"area": "large"},
            r"table2.parquet must hold numbers, but 1 values are text, the first 'large' in row 240 \(from 0\); .*"
            r"--na_values=large .*first rows of a stream decide.*--categorical overrules.*--bad_rows=drop",
        ),
        ({"garden": "maybe"}, r"column 'garden' of .*table2.parquet must hold true and false.*'maybe' in row 240"),
        (
            {"area": float("inf")},
            r"table2.parquet row 240 \(from 0\): 'area' must be a number, got inf .*--bad_rows=drop",
        ),
        (
            {"area": None},
            r"first in .*table2.parquet row 240, from 0\) has missing values in 'area' \(1\); give --missing=im",
        ),
        (
            {"colour": None, "rooms": None},
            r"has missing values in 'rooms' \(1\), 'colour' \(1\); give --missing=impute",
        ),
        ({"price": "n/a"}, r"has missing values in 'price' \(1\)"),
    ],
)
def test_later_cells_that_differ(
    change: dict[str, Any], message: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    folder = late(rng, tmp_path, **change)
    with pytest.raises(ValueError, match=message):
        open_stream(folder, "csv", table=TableSpec(target=("price",)))


def test_whole_numbers_of_ever_more_values_are_no_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few in each block, too many to count in all."""
    monkeypatch.setattr(survey, "MAX_LABELS", 60)
    monkeypatch.setattr(survey, "MAX_COUNTED", 100)
    y = np.concatenate([np.tile(np.arange(15), 20), np.arange(300)])
    frame = pd.DataFrame({"a": np.linspace(0, 1, ROWS), "y": y})
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=40)
    assert open_stream(tmp_path).preset.task == "regression"


def test_a_row_that_does_not_fit_can_be_left_out(rng: np.random.Generator, tmp_path: Path) -> None:
    folder = late(rng, tmp_path, area="large")
    spec = TableSpec(target=("price",), bad_rows="drop")
    assert open_stream(folder, "csv", table=spec).counts["bad"] == 1
    assert read_table(tmp_path / "table.csv", spec).sizes == {"all": ROWS - 1}


def test_text_of_ever_more_levels_is_refused_while_it_is_counted(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few levels in the first rows; joined by --rare they are inputs."""
    frame = houses(rng)[["area", "price"]].ffill().assign(city="A")
    frame.loc[200:, "city"] = [f"city {number // 2}" for number in range(ROWS - 200)]
    write_all(frame, "table.csv", tmp_path / "files")
    spec = TableSpec(target=("price",))
    with monkeypatch.context() as patch:
        seen = reads(patch, tmp_path)
        with pytest.raises(ValueError, match=r"'city' \(\d+ .*--ignore=city.*--rare=N.*--categorical=city"):
            open_stream(tmp_path / "files", "csv", table=spec)
    num_blocks = len(own.open_table(f"{tmp_path}/files/converted", replace(spec, ignore=("city",)))[0].blocks)
    assert sorted(seen)[-2] < num_blocks - 3  # two threads are ahead; the last block is looked at for a total
    memory = read_table(tmp_path / "table.csv", replace(spec, rare=10))
    found = open_stream(tmp_path / "files", "csv", table=replace(spec, rare=10)).rows
    assert found.feature_names == memory.feature_names == ("area", "city=A", "city=(rare)")
    forced = open_stream(tmp_path / "files", "csv", table=replace(spec, categorical=("city",))).rows
    assert len(forced.feature_names) == 2 + (ROWS - 200) // 2
    with pytest.raises(ValueError, match=r"'name' \(150 .*--ignore=name"):
        frame.assign(name=[f"name {number}" for number in range(ROWS)]).to_parquet(tmp_path / "named.parquet")
        own.open_table(str(tmp_path / "named.parquet"), spec)


def test_a_column_that_is_empty_at_first(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = houses(rng)[["area", "price"]].ffill().assign(note=None)
    frame.to_csv(tmp_path / "a.csv", index=False)
    spec = TableSpec(target=("price",))
    assert open_stream(tmp_path, "csv", table=spec).rows.feature_names == ("area",)
    frame.loc[400, "note"] = 2.5
    frame.to_csv(tmp_path / "a.csv", index=False)
    path = converted(f"{tmp_path}/a.csv", tmp_path)
    with pytest.raises(
        ValueError, match=r"column 'note' is empty in the first .*has '2.5' in row 400 .*--numeric=note"
    ):
        own.open_table(path, spec)
    found = own.open_table(path, replace(spec, numeric=("note",), missing="impute"))[1]
    assert found.feature_names == ("area", "note", "note=missing")
    assert own.open_table(path, replace(spec, ignore=("note",)))[1].feature_names == ("area",)


def test_flags_and_targets_that_a_stream_does_not_have(rng: np.random.Generator, tmp_path: Path) -> None:
    houses(rng).to_parquet(path := tmp_path / "a.parquet")
    for spec in (
        TableSpec(target=("price",), file=FileSpec(skip_rows=1)),
        TableSpec(target=("price",), file=FileSpec(encoding="cp1252")),
    ):
        with pytest.raises(ValueError, match=r"--(skip_rows|encoding) is for gpflow-deep convert"):
            own.open_table(str(path), spec)
    with pytest.raises(ValueError, match=r"--target must be a column of .*a.parquet, got none; it has 'rooms', 'area'"):
        own.open_table(str(path), TableSpec())


def test_totals_and_sentinels_of_a_stream_are_asked(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = houses(rng)[["rooms", "area", "colour", "price"]].ffill()
    spec, path = TableSpec(target=("price",)), tmp_path / "a.parquet"
    odd = frame.assign(area=frame["area"].where(frame.index % 60 != 59, -999.0))
    odd.to_parquet(path, row_group_size=40)
    with pytest.raises(ValueError, match=r"'area' of the stream has -999 in .* of its rows, .*--na_values=-999 "):
        open_stream(tmp_path, table=spec)
    assert open_stream(tmp_path, table=replace(spec, keep_value=("-999",))).samples["train"].X.min() == -999
    known = open_stream(tmp_path, table=replace(spec, na_values=("-999",), missing="impute"))
    assert known.rows.feature_names[2] == "area=missing"
    frame.loc[ROWS] = [frame["rooms"].sum(), frame["area"].sum(), "Total", frame["price"].sum()]
    frame.to_parquet(path, row_group_size=40)
    with pytest.raises(ValueError, match=rf"row {ROWS} .*a.parquet seems to sum up others, as its 'colour' is 'Total'"):
        open_stream(tmp_path, table=spec)
    frame.loc[ROWS, "colour"] = "red"
    frame.to_parquet(path, row_group_size=40)
    with pytest.raises(
        ValueError, match=rf"row {ROWS} .*a.parquet seems to sum up others, as its numbers are the sums"
    ):
        open_stream(tmp_path, table=spec)
    (two := tmp_path / "two").mkdir()
    for number, rows in enumerate((frame[:250], frame[250:])):  # the last of which sums up both files
        rows.to_parquet(two / f"{number}.parquet", row_group_size=40)
    with pytest.raises(ValueError, match=rf"row {ROWS - 250} .*1.parquet seems to sum up others, as its numbers are"):
        open_stream(two, table=spec)
    assert (
        sum(open_stream(tmp_path, table=replace(spec, file=replace(spec.file, total_rows="keep"))).counts.values())
        == ROWS + 1
    )


def test_types_of_parquet(tmp_path: Path) -> None:
    """Levels, decimals, times with a zone, durations, lists; types may differ from file to file."""
    types: dict[str, pa.Array] = {
        "level": pa.array(["low", "high"] * 20).dictionary_encode(),
        "exact": pa.array([decimal.Decimal("1.25"), None] * 20),
        "at": pa.array(np.arange(40) * 3600, pa.timestamp("s", tz="Europe/Berlin")),
        "takes": pa.array(np.arange(40) * 60, pa.duration("s")),
        "list": pa.array([[1], [2]] * 20),
        "y": pa.array(np.linspace(0, 1, 40)),
    }
    pa.parquet.write_table(pa.table(types), tmp_path / "a.parquet")
    other = types | {"exact": pa.array([2, 3] * 20), "level": pa.array(["low", "mid"] * 20, pa.large_string())}
    pa.parquet.write_table(pa.table(other), tmp_path / "b.parquet")
    spec = TableSpec(target=("y",), missing="impute", ignore=("list",))
    found = open_stream(tmp_path, table=spec)
    memory = read_table(tmp_path / "a.parquet", spec)
    assert found.rows.feature_names == (
        *("level=high", "level=low", "level=mid", "exact", "exact=missing", "at.day", "at.weekday", "at.hour", "takes"),
    )
    rows = everything(found)
    assert len(rows.X) == 80
    times = found.rows.feature_names.index("at.day")
    np.testing.assert_array_equal(
        np.unique(rows.X[:, times:], axis=0), np.unique(memory.parts["all"].X[:, -4:], axis=0)
    )
