"""`gpflow_deep_runs.data.streams.files`: row groups of files in any order, on any file system; damage is named."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.streams.files import Shards, column_names, find, find_files, open_shards

LAYOUT = {"inputs": "a", "count": "b", "target": "y"}


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
    return pd.concat([shards.table(number).to_pandas() for number in range(len(shards.blocks))], ignore_index=True)


def test_blocks_hold_every_row_once(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    shards = open_shards(str(tmp_path / "*.parquet"), layouts=[LAYOUT])
    assert shards.names == ("part0.parquet", "part1.parquet")
    assert len(shards.blocks) > 4
    whole = pd.concat(frames, ignore_index=True)
    pd.testing.assert_frame_equal(
        read_all(shards),
        pd.DataFrame({"inputs": whole["a"], "count": whole["b"], "target": whole["y"]}),
    )
    starts = [shards.block(number).first_row for number in range(len(shards.blocks))]
    rows = [shards.block(number).num_rows for number in range(len(shards.blocks))]
    for number in np.flatnonzero(np.diff(shards.blocks[:, 0]) == 0):
        assert starts[number + 1] == starts[number] + rows[number]
    last = len(shards.blocks) - 1
    pd.testing.assert_frame_equal(
        shards.table(last).to_pandas(), read_all(shards).tail(rows[last]).reset_index(drop=True)
    )


def test_any_file_system_of_pyarrow(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    there = open_shards(f"file://{tmp_path}/part0.parquet,file://{tmp_path}/part1.parquet", layouts=[LAYOUT])
    here = open_shards(str(tmp_path / "part[01].parquet"), layouts=[LAYOUT])
    pd.testing.assert_frame_equal(read_all(there), read_all(here))
    assert there.names == here.names


def test_first_layout_that_fits_each_file(tmp_path: Path) -> None:
    pd.DataFrame({"old": [1]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"new": [2], "old": [3]}).to_parquet(tmp_path / "b.parquet")
    assert list(read_all(open_shards(str(tmp_path), layouts=[{"x": "new"}, {"x": "old"}]))["x"]) == [1, 2]
    pd.DataFrame({"s": ["x"]}, index=pd.Index([7], name="i")).to_parquet(tmp_path / "c.parquet")
    assert column_names(str(tmp_path / "c.parquet")) == ["s"]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_files_of_a_pattern(scheme: str, tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "deep/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    folder = f"{scheme}{tmp_path}"
    both = [f"{folder}/a.csv", f"{folder}/b.csv"]
    assert find(folder) == (both, True)
    assert find(f"{folder}/a.csv") == (both[:1], False)
    for pattern in ("*", "[ab].csv", "?.csv"):
        assert find(f"{folder}/{pattern}") == (both, False)
    assert find(f"{folder}/*/*.csv")[0] == [f"{folder}/deep/c.csv"]
    assert find(f"{folder}/none*")[0] == find(f"{folder}/none.csv")[0] == []


def test_file_systems_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match=r"nowhere://a/b\.parquet is on no file system of pyarrow"):
        find_files("nowhere://a/b.parquet")


def test_local_names_with_brackets_and_hidden_ones(tmp_path: Path) -> None:
    for name in ("part[1].csv", "part1.csv", ".part2.csv"):
        (tmp_path / name).write_bytes(b"")
    assert find(f"{tmp_path}/part[1].csv")[0] == [f"{tmp_path}/part[1].csv"]
    assert find(f"{tmp_path}/part[0-9].csv")[0] == [f"{tmp_path}/part1.csv"]
    assert len(find(str(tmp_path))[0]) == 2


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
        shards.table(0)
    assert len(shards.table(len(shards.blocks) - 1))


def test_no_rows(frames: list[pd.DataFrame], tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    write(frames[0].head(0), path)
    with pytest.raises(ValueError, match="must hold rows, but its 1 files have none"):
        open_shards(str(path), layouts=[LAYOUT])
