"""`gpflow-deep convert`: the rows of text, TFRecord and NPZ files as Parquet, all of them or nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpflow_deep_runs import cli
from gpflow_deep_runs.data.streams import convert as module
from gpflow_deep_runs.data.streams.convert import convert
from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.tables import read_table
from scripts import convert as script

N = 100


def table(rng: np.random.Generator) -> pd.DataFrame:
    """Numbers of several kinds, codes, levels, days, missing values."""
    frame = pd.DataFrame({"whole": rng.integers(0, 99, N), "real": rng.normal(size=N).round(3)})
    frame["code"] = [f"{i % 7:03d}" for i in range(N)]
    frame["version"] = rng.choice(["1.9", "1.10"], N)
    frame["level"] = rng.choice(["red", "None", "x, y"], N)
    frame["day"] = [f"2020{i % 12 + 1:02d}{i % 28 + 1:02d}" for i in range(N)]
    frame["gaps"] = np.where(np.arange(N) % 9 == 2, np.nan, rng.normal(size=N))
    return frame.assign(y=rng.normal(size=N))


def written(folder: Path) -> pa.Table:
    return pq.ParquetFile(folder / "a.parquet").read()


def test_numbers_are_numbers_and_other_texts_as_they_were(rng: np.random.Generator, tmp_path: Path) -> None:
    table(rng).to_csv(path := tmp_path / "a.csv", index=False)
    done = convert(str(path), tmp_path / "out", rows_per_group=30)
    assert tuple(done) == (("a.parquet",), N, ("whole", "real", "gaps", "y"), ("code", "version", "level", "day"), ())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.csv", "out"]
    found = written(tmp_path / "out")
    assert (found.schema.field("whole").type, found.schema.field("real").type) == (pa.int64(), pa.float64())
    texts = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name in done.texts:
        assert found[name].to_pylist() == list(texts[name])
    assert pq.ParquetFile(tmp_path / "out" / "a.parquet").metadata.num_row_groups == 4
    spec = TableSpec(target=("y",), missing="impute", categorical=("version",))
    one, two = (read_table(source, spec) for source in (path, tmp_path / "out" / "a.parquet"))
    assert one.feature_names == two.feature_names
    np.testing.assert_array_equal(one.parts["all"].X, two.parts["all"].X)


def test_files_of_a_table_get_the_same_types(rng: np.random.Generator, tmp_path: Path) -> None:
    first, second = table(rng)[["whole", "real", "y"]], table(rng)[["whole", "real", "y"]].astype(object)
    second.loc[90, "real"] = "12 kg"
    second["whole"] = [f"{value}.5" for value in second["whole"]]
    for name, frame in (("a.csv", first), ("b.tsv", second)):
        frame.to_csv(tmp_path / name, index=False, sep="\t" if name == "b.tsv" else ",")
    done = convert(f"{tmp_path}/*.csv,{tmp_path}/b.tsv", tmp_path / "out")
    assert (done.files, done.numeric, done.texts) == (("a.parquet", "b.parquet"), ("whole", "y"), ("real",))
    schemas = [pq.read_schema(tmp_path / "out" / name) for name in done.files]
    assert schemas[0].types == schemas[1].types == [pa.float64(), pa.string(), pa.float64()]


TEXTS: dict[str, tuple[bytes, list[list[Any]]]] = {
    "semicolons, points of view and a title": (b"Of 2024\n\na;b\n1,5;x\n2,5;y\n", [["1,5", "x"], ["2,5", "y"]]),
    "another encoding": ("a,b\n1,Größe\n2,x\n".encode("cp1252"), [[1, "Größe"], [2, "x"]]),
    "UTF-16": ("a,b\n1,é\n2,x\n".encode("utf-16"), [[1, "é"], [2, "x"]]),
    "no header": (b"1,2.5\n3,4.5\n", [[1, 2.5], [3, 4.5]]),
    "a line break in quotes": (b'a,b\n1,"x\ny"\n2,z\n', [[1, "x\ny"], [2, "z"]]),
    "empty lines and old ends": (b"a, b\r\n1,x\r\n\r\n2,y", [[1, "x"], [2, "y"]]),
    "white space": (b"a   b\n1   2.5\n3   4.5\n", [[1, 2.5], [3, 4.5]]),
    "more digits than a number holds": (b"a,b\n9007199254740993,1\n1,2\n", [["9007199254740993", 1], ["1", 2]]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_many_kinds(name: str, tmp_path: Path) -> None:
    content, rows = TEXTS[name]
    (tmp_path / "a.csv").write_bytes(content)
    convert(str(tmp_path / "a.csv"), tmp_path / "out")
    assert [list(row.values()) for row in written(tmp_path / "out").to_pylist()] == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'a,b,y\n1,"x,2\n3,z,4\n', "never closed"),
        (b'a,y,b\n1,2,"x\n3,4,z\n', "never closed"),
        (b'a,b\n1,"x\n2,"y"\n3,z\n', "quotation mark"),
        (b"", "a.csv is empty"),
        (b"a,b\n", "must hold rows, but has none"),
        (b"a,b,y\n1,x,2\n3,z\n", r"fewer values than column names, the first is row 1 \(from 0\)"),
    ],
)
def test_what_cannot_be_converted_leaves_nothing(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        convert(str(tmp_path / "a.csv"), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]


def test_bad_lines_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n4,5,6\n7,8\n")
    convert(str(tmp_path / "a.csv"), tmp_path / "out", spec=TableSpec(bad_rows="drop"))
    assert written(tmp_path / "out").to_pylist() == [{"a": 1, "b": 2}, {"a": 7, "b": 8}]


def test_a_disk_that_lies_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    monkeypatch.setattr(pa.parquet.ParquetFile, "read_row_group", lambda *_: pa.table({"a": [1, 3], "b": [2, 5]}))
    with pytest.raises(OSError, match="does not hold what was written"):
        convert(str(tmp_path / "a.csv"), tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]


def test_arrays(rng: np.random.Generator, tmp_path: Path) -> None:
    X = rng.normal(size=(N, 2))
    X[3, 1] = np.nan
    np.savez(tmp_path / "a.npz", X=X, y=np.arange(N))
    done = convert(str(tmp_path / "a.npz"), tmp_path / "out", rows_per_group=7)
    assert done.numeric == ("x0", "x1", "y")
    found = written(tmp_path / "out")
    np.testing.assert_array_equal(np.column_stack([found[name].to_numpy() for name in ("x0", "x1")]), X)
    assert found["x1"].null_count == 1


def test_records(tmp_path: Path) -> None:
    """A feature may be absent or empty, in the first record, too; bytes are text. Damage is found."""
    import tensorflow as tf

    def write(rows: list[dict[str, list[Any]]]) -> None:
        kinds: dict[type, Any] = {
            bytes: ("bytes_list", tf.train.BytesList),
            float: ("float_list", tf.train.FloatList),
            int: ("int64_list", tf.train.Int64List),
        }
        with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
            for row in rows:
                feature = {}
                for name, values in row.items():
                    kind, list_of = kinds[type(values[0]) if values else float]
                    feature[name] = tf.train.Feature(**{kind: list_of(value=values)})
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())

    rows: list[dict[str, list[Any]]] = [{"n": [3], "x": []}, {"n": [4], "x": [0.5], "s": ["ä".encode()]}, {"x": [1.5]}]
    write(rows)
    done = convert(str(tmp_path / "a.tfrecord"), tmp_path / "out")
    assert (done.numeric, done.texts) == (("n", "x"), ("s",))
    assert written(tmp_path / "out").to_pylist() == [
        {"n": 3, "s": None, "x": None},
        {"n": 4, "s": "ä", "x": 0.5},
        {"n": None, "s": None, "x": 1.5},
    ]
    content = bytearray((tmp_path / "a.tfrecord").read_bytes())
    content[len(content) // 2] ^= 4
    (tmp_path / "a.tfrecord").write_bytes(content)
    with pytest.raises(ValueError, match=r"a.tfrecord cannot be read as TFRecord"):
        convert(str(tmp_path / "a.tfrecord"), tmp_path / "other")
    write([*rows, {"n": [1, 2]}])
    with pytest.raises(ValueError, match="'n' must have one value in each example"):
        convert(str(tmp_path / "a.tfrecord"), tmp_path / "other")
    write([*rows, {"n": [1.5]}])
    with pytest.raises(ValueError, match="'n' is stored as int64_list and as float_list"):
        convert(str(tmp_path / "a.tfrecord"), tmp_path / "other")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("Title\n\na,b\n1,x\n2,y\n")
    flags = ["convert.py", f"--data={tmp_path / 'a.csv'}", f"--output={tmp_path / 'out'}"]
    assert cli.call(script.main, flags) == 0
    out = capsys.readouterr().out
    assert "2 lines above the header left out" in out
    assert "numbers: a\ntexts: b\n" in out
    assert "1 Parquet files, 2 rows" in out
    assert cli.call(script.main, flags) == 2
    assert "must be a new folder" in capsys.readouterr().err
    for data, message in (("none.csv", "there are none"), ("picture.png", "got picture.png")):
        (tmp_path / "picture.png").write_bytes(b"")
        with pytest.raises(ValueError, match=message):
            module.convert(str(tmp_path / data), tmp_path / "other")
