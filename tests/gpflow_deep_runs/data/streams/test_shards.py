"""`gpflow_deep_runs.data.streams.shards`: row groups of files in any order; damage is named."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.streams.shards import Field, Shards, columns_of, find_files, open_shards

LAYOUT = {"inputs": Field("a"), "count": Field("b"), "target": Field("y")}


def table(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    a, y = rng.normal(size=(2, rows)).astype(np.float32)
    return pd.DataFrame({"a": a, "b": rng.integers(0, 9, rows), "unused": a + 1, "y": y})


def write(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, row_group_size=37)


@pytest.fixture
def frames(rng: np.random.Generator, tmp_path: Path) -> list[pd.DataFrame]:
    frames = [table(rng, rows) for rows in (201, 75)]
    for number, frame in enumerate(frames):
        write(frame, tmp_path / f"part{number}.parquet")
    return frames


def read_all(shards: Shards) -> pd.DataFrame:
    return pd.concat([shards.read(number) for number in range(len(shards.blocks))], ignore_index=True)


def test_blocks_hold_every_row_once(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    shards = open_shards(str(tmp_path / "*.parquet"), layouts=[LAYOUT])
    assert shards.names == ("part0.parquet", "part1.parquet")
    assert len(shards.blocks) > 4
    whole = pd.concat(frames, ignore_index=True)
    pd.testing.assert_frame_equal(
        read_all(shards),
        pd.DataFrame({"inputs": whole["a"], "count": whole["b"], "target": whole["y"]}).astype(np.float64),
    )
    starts = [shards.block(number).first_row for number in range(len(shards.blocks))]
    rows = [shards.block(number).num_rows for number in range(len(shards.blocks))]
    for number in np.flatnonzero(np.diff(shards.blocks[:, 0]) == 0):
        assert starts[number + 1] == starts[number] + rows[number]
    last = len(shards.blocks) - 1
    pd.testing.assert_frame_equal(shards.read(last), read_all(shards).tail(rows[last]).reset_index(drop=True))


def test_any_file_system_of_pyarrow(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    there = open_shards(f"file://{tmp_path}/part0.parquet,file://{tmp_path}/part1.parquet", layouts=[LAYOUT])
    here = open_shards(str(tmp_path / "part[01].parquet"), layouts=[LAYOUT])
    pd.testing.assert_frame_equal(read_all(there), read_all(here))
    assert there.names == here.names


def test_first_layout_that_fits_each_file(tmp_path: Path) -> None:
    pd.DataFrame({"old": [1], "when": ["2020-01-02 03:04:05"]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"new": [2], "when": pd.to_datetime(["2021-01-02 03:04:05"])}).to_parquet(tmp_path / "b.parquet")
    layouts = [{"x": Field(name), "t": Field("when", "time")} for name in ("new", "old")]
    frame = read_all(open_shards(str(tmp_path), layouts=layouts))
    assert list(frame["x"]) == [1, 2]
    assert list(frame["t"].dt.year) == [2020, 2021]


def test_kinds_of_columns(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    assert columns_of(str(tmp_path / "part0.parquet")) == dict.fromkeys(["a", "b", "unused", "y"], "number")
    path = tmp_path / "c.parquet"
    pd.DataFrame({"t": pd.to_datetime(["2020-01-01"]), "s": ["x"], "b": [True]}).to_parquet(path)
    assert columns_of(str(path)) == {"t": "time", "s": "text", "b": "number"}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{}/none-*.parquet", "there are none"),
        ("{}/absent.parquet", "there are none"),
        ("", "got no path"),
        (
            "{}/x.csv",
            r"must be .parquet files, got .*x.csv; convert: `gpflow-deep convert --data=.*x.csv --output=FOLD",
        ),
        ("{}/*", "must be .parquet files, got .*README.txt"),
        ("{}/packed", r"must be .parquet files, got .*y.csv.zip; convert"),
        ("{}/records.tfrecord", "gpflow-deep convert"),
        ("{}/picture.png", "got .*picture.png; convert and give"),
    ],
)
def test_no_such_files(pattern: str, message: str, frames: list[pd.DataFrame], tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    for name in ("README.txt", "x.csv", "packed/y.csv.zip", "records.tfrecord", "picture.png"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=message):
        find_files(pattern.format(tmp_path))
    assert len(find_files(str(tmp_path))) == 2


def test_changed_columns_are_named(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    write(frames[1].rename(columns={"y": "z"}), tmp_path / "part1.parquet")
    with pytest.raises(ValueError, match=r"part1.parquet must have the columns .*part0.parquet has, but lacks 'y'"):
        open_shards(str(tmp_path / "*.parquet"), layouts=[LAYOUT])


def test_changed_kind_is_named(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    frames[1].assign(y="text").to_parquet(tmp_path / "part1.parquet")
    with pytest.raises(ValueError, match=r"part1.parquet must have numbers in column 'y', got text"):
        open_shards(str(tmp_path / "*.parquet"), layouts=[LAYOUT])


def test_truncated_file_is_named(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    path = tmp_path / "part1.parquet"
    path.write_bytes(path.read_bytes()[:-11])
    with pytest.raises(ValueError, match=r"part1.parquet cannot be read: .*get it again"):
        open_shards(str(tmp_path / "*.parquet"), layouts=[LAYOUT])


def test_damaged_row_group_is_named(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    path = tmp_path / "part0.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 400 + content[404:])
    shards = open_shards(str(path), layouts=[LAYOUT])
    with pytest.raises(ValueError, match=r"part0.parquet cannot be read in rows 0 to 36: .*get it again"):
        shards.read(0)
    assert len(shards.read(len(shards.blocks) - 1))


def test_no_rows(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    write(frames[0].head(0), path)
    with pytest.raises(ValueError, match="must hold rows, but its 1 files have none"):
        open_shards(str(path), layouts=[LAYOUT])
