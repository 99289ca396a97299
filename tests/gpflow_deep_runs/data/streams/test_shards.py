"""`gpflow_deep_runs.data.streams.shards`: every format gives the same rows in any order of blocks; damage is named."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from gpflow_deep_runs.data.streams import blocks
from gpflow_deep_runs.data.streams.shards import Field, Shards, columns_of, find_files, open_shards
from tests.gpflow_deep_runs.data.streams.tables import write_features

LAYOUT = {"inputs": Field("a"), "count": Field("b"), "target": Field("y")}
FORMATS = ["parquet", "csv", "tfrecord"]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2048)


def table(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    a, y = rng.normal(size=(2, rows)).astype(np.float32)  # TFRecord files hold float32
    return pd.DataFrame({"a": a, "b": rng.integers(0, 9, rows), "unused": a + 1, "y": y})


def write_examples(frame: pd.DataFrame, path: str) -> None:
    with tf.io.TFRecordWriter(path) as writer:
        for row in frame.to_dict("records"):
            feature = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
                if isinstance(value, int)
                else tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
                for name, value in row.items()
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def write(frame: pd.DataFrame, path: Path) -> None:
    if path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=37)
    elif path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        write_examples(frame, str(path))


@pytest.fixture
def frames(rng: np.random.Generator, tmp_path: Path) -> list[pd.DataFrame]:
    frames = [table(rng, rows) for rows in (201, 75)]
    for number, frame in enumerate(frames):
        for suffix in FORMATS:
            write(frame, tmp_path / f"part{number}.{suffix}")
    return frames


def read_all(shards: Shards) -> pd.DataFrame:
    return pd.concat([shards.read(number) for number in range(len(shards.blocks))], ignore_index=True)


@pytest.mark.parametrize("suffix", FORMATS)
def test_blocks_hold_every_row_once(suffix: str, frames: list[pd.DataFrame], tmp_path: Path) -> None:
    shards = open_shards(str(tmp_path / f"*.{suffix}"), layouts=[LAYOUT])
    assert (shards.format, shards.names) == (suffix, (f"part0.{suffix}", f"part1.{suffix}"))
    assert len(shards.blocks) > 4
    whole = pd.concat(frames, ignore_index=True)
    pd.testing.assert_frame_equal(
        read_all(shards),
        pd.DataFrame({"inputs": whole["a"], "count": whole["b"], "target": whole["y"]}).astype(np.float64),
        rtol=1e-7,  # CSV holds the shortest decimals that give the float32 back
    )
    starts = [shards.block(number).first_row for number in range(len(shards.blocks))]
    rows = [shards.block(number).num_rows for number in range(len(shards.blocks))]
    for number in np.flatnonzero(np.diff(shards.blocks[:, 0]) == 0):
        assert starts[number + 1] == starts[number] + rows[number]
    last = len(shards.blocks) - 1
    pd.testing.assert_frame_equal(shards.read(last), read_all(shards).tail(rows[last]).reset_index(drop=True))


@pytest.fixture
def memory() -> Iterator[str]:
    """A folder of a file system that only TensorFlow knows."""
    folder = f"ram://{uuid.uuid4().hex}"
    tf.io.gfile.makedirs(folder)
    yield folder
    tf.io.gfile.rmtree(folder)


@pytest.mark.parametrize("suffix", FORMATS)
def test_any_file_system_of_tensorflow(suffix: str, frames: list[pd.DataFrame], tmp_path: Path, memory: str) -> None:
    for number in range(2):
        name = f"part{number}.{suffix}"
        tf.io.gfile.copy(str(tmp_path / name), f"{memory}/{name}")
    there = open_shards(f"{memory}/part0.{suffix},{memory}/part1.{suffix}", layouts=[LAYOUT])
    here = open_shards(str(tmp_path / f"*.{suffix}"), layouts=[LAYOUT])
    pd.testing.assert_frame_equal(read_all(there), read_all(here))
    assert there.names == here.names


def test_csv_without_end_of_line_blank_header_or_unix_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a, b,y\r\n1,2,3\r\n4,,NA")
    shards = open_shards(str(path), layouts=[{"b": Field("b"), "y": Field("y")}])
    np.testing.assert_array_equal(shards.read(0), [[2.0, 3.0], [np.nan, np.nan]])
    path.write_text("1,2\n3,4\n")
    shards = open_shards(str(path), layouts=[{"b": Field("b")}], header=["a", "b"])
    np.testing.assert_array_equal(shards.read(0), [[2.0], [4.0]])


def test_first_layout_that_fits_each_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("old,when\n1,2020-01-02 03:04:05\n")
    (tmp_path / "b.csv").write_text("new,when\n2,2021-01-02 03:04:05\n")
    layouts = [{"x": Field(name), "t": Field("when", "time")} for name in ("new", "old")]
    frame = read_all(open_shards(str(tmp_path), layouts=layouts))
    assert list(frame["x"]) == [1, 2]
    assert list(frame["t"].dt.year) == [2020, 2021]


def test_kinds_of_columns(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    expected = dict.fromkeys(["a", "b", "unused", "y"], "number")
    for suffix in FORMATS:
        assert columns_of(str(tmp_path / f"part0.{suffix}")) == expected
    path = tmp_path / "c.parquet"
    pd.DataFrame({"t": pd.to_datetime(["2020-01-01"]), "s": ["x"], "b": [True]}).to_parquet(path)
    assert columns_of(str(path)) == {"t": "time", "s": "text", "b": "number"}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{}/none-*.csv", "there are none"),
        ("{}/absent.csv", "there are none"),
        ("", "got no path"),
        ("{}/part0.*", "one format, .parquet, .csv or .tfrecord, got"),
        ("{}/x.csv.gz", r"x.csv.gz is packed and cannot be read in pieces; unpack it first \(`gunzip --keep x.csv.gz`"),
        ("{}/*", "x.csv.gz is packed"),
        ("{}/packed", "y.csv.zip is packed .*`unzip y.csv.zip`"),
    ],
)
def test_no_such_files(pattern: str, message: str, frames: list[pd.DataFrame], tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    for name in ("x.csv.gz", "packed/y.csv.zip", "packed/README.txt"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=message):
        find_files(pattern.format(tmp_path))


@pytest.mark.parametrize("suffix", FORMATS)
def test_changed_columns_are_named(suffix: str, frames: list[pd.DataFrame], tmp_path: Path) -> None:
    write(frames[1].rename(columns={"y": "z"}), tmp_path / f"part1.{suffix}")
    with pytest.raises(ValueError, match=f"part1.{suffix} must have the columns .*part0.{suffix} has, but lacks 'y'"):
        open_shards(str(tmp_path / f"*.{suffix}"), layouts=[LAYOUT])


def test_changed_kind_is_named(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    frames[1].assign(y="text").to_parquet(tmp_path / "part1.parquet")
    with pytest.raises(ValueError, match=r"part1.parquet must have numbers in column 'y', got text"):
        open_shards(str(tmp_path / "*.parquet"), layouts=[LAYOUT])


@pytest.mark.parametrize("suffix", ["parquet", "tfrecord"])
def test_truncated_file_is_named(suffix: str, frames: list[pd.DataFrame], tmp_path: Path) -> None:
    path = tmp_path / f"part1.{suffix}"
    path.write_bytes(path.read_bytes()[:-11])
    with pytest.raises(ValueError, match=f"part1.{suffix} cannot be read: .*get it again"):
        open_shards(str(tmp_path / f"*.{suffix}"), layouts=[LAYOUT])


def test_flipped_bit_of_a_record_is_found(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    path = tmp_path / "part0.tfrecord"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"part0.tfrecord cannot be read: .*corrupted record"):
        open_shards(str(path), layouts=[LAYOUT])


def test_text_and_absent_features_of_records(tmp_path: Path) -> None:
    """A feature may be absent or empty, in the first record, too; bytes are text."""
    path = tmp_path / "a.tfrecord"
    rows: list[dict[str, Any]] = [
        {"n": [3], "x": []},
        {"n": [4], "x": [0.5], "s": ["ä".encode()]},
        {"x": [1.5], "s": [b"b"]},
    ]
    write_features(rows, path)
    assert columns_of(str(path)) == {"n": "number", "s": "text", "x": "number"}
    frame = open_shards(str(path), layouts=[{"n": Field("n"), "x": Field("x"), "s": Field("s", "text")}]).read(0)
    np.testing.assert_array_equal(frame[["n", "x"]], [[3, np.nan], [4, 0.5], [np.nan, 1.5]])
    assert [None if pd.isna(value) else value for value in frame["s"]] == [None, "ä", "b"]
    write_features([*rows, {"n": [1, 2]}], path)
    with pytest.raises(
        ValueError, match=r"a.tfrecord cannot be read .* feature 'n' must have one value in each example"
    ):
        open_shards(str(path), layouts=[{"n": Field("n")}]).read(0)


def test_damaged_row_group_is_named(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    path = tmp_path / "part0.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 400 + content[404:])
    shards = open_shards(str(path), layouts=[LAYOUT])
    with pytest.raises(ValueError, match=r"part0.parquet cannot be read in rows 0 to 36: .*get it again"):
        shards.read(0)
    assert len(shards.read(len(shards.blocks) - 1))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,2", "Expected 3 columns, got 2"),
        ("1,2,3,4", "Expected 3 columns, got 4"),
        ("1,two,3", "invalid value 'two'"),
    ],
)
def test_damaged_line(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"a,b,y\n1,2,3\n{line}\n4,5,6\n")
    strict = open_shards(str(path), layouts=[{"b": Field("b")}])
    with pytest.raises(ValueError, match=rf"a.csv cannot be read in rows 0 to 2: .*{message}.*--bad_rows=drop"):
        strict.read(0)
    (column,) = open_shards(str(path), layouts=[{"b": Field("b")}], drop_bad_rows=True).read(0).to_numpy().T
    np.testing.assert_array_equal(column, [2, np.nan, 5] if "two" in line else [2, 5])


def test_file_that_shrinks_later_is_named(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    shards = open_shards(str(tmp_path / "part0.csv"), layouts=[LAYOUT])
    (tmp_path / "part0.csv").write_text("a,b,unused,y\n1,2,3,4\n")
    with pytest.raises(ValueError, match=r"part0.csv cannot be read in rows \d+ to 200: .*end of file"):
        shards.read(len(shards.blocks) - 1)


def test_line_longer_than_a_block(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n" + "2" * 5000 + "\n3\n")
    with pytest.raises(ValueError, match=r"a.csv cannot be read: a line from byte \d+ is longer than 2048 bytes"):
        open_shards(str(tmp_path / "a.csv"), layouts=[{"a": Field("a")}])


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_rows(suffix: str, frames: list[pd.DataFrame], tmp_path: Path) -> None:
    path = tmp_path / f"empty.{suffix}"
    write(frames[0].head(0), path)
    message = "it holds no records" if suffix == "tfrecord" else "must hold rows, but its 1 files have none"
    with pytest.raises(ValueError, match=message):
        open_shards(str(path), layouts=[LAYOUT])
