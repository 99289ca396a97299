"""Batches use every row once an epoch, as functions of seed and step; damage is named."""

import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.rows import Part
from gpflow_deep_runs.data.streams.reader import BatchReader
from tests.gpflow_deep_runs.data.streams.tables import frame, numbers, open_stream


@pytest.mark.parametrize("shuffle_rows", [120, 400, 10_000])
def test_every_training_row_once_an_epoch(shuffle_rows: int, whole: pd.DataFrame, tmp_path: Path) -> None:
    stream = open_stream(tmp_path)
    reader = BatchReader(stream, batch_size=64, seed=3, shuffle_rows=shuffle_rows)
    train = set(numbers(stream.samples["train"]))
    seen = np.concatenate([reader(step)[0].numpy()[:, 0].astype(int) for step in range(3 * len(train) // 64)])
    first, second = seen[: len(train)], seen[len(train) : 2 * len(train)]
    assert set(first) == set(second) == train
    assert not np.array_equal(first, second)
    lookup = whole.set_index("number")
    X, Y = reader(1)
    np.testing.assert_array_equal(lookup.loc[X.numpy()[:, 0], ["a", "b"]], X[:, 1:])
    np.testing.assert_array_equal(lookup.loc[X.numpy()[:, 0], ["y"]], Y)


def test_batch_is_a_function_of_seed_and_step(whole: pd.DataFrame, tmp_path: Path) -> None:
    """Any step, in any order, from a new reader: what resuming needs."""
    stream = open_stream(tmp_path)
    reader = BatchReader(stream, batch_size=64, seed=3, shuffle_rows=150)
    batches = [np.concatenate(reader(step), axis=1) for step in range(60)]
    for step in (0, 59, 7, 8, 33, 16):
        again = BatchReader(stream, batch_size=64, seed=3, shuffle_rows=150)
        np.testing.assert_array_equal(np.concatenate(again(step), axis=1), batches[step])
        np.testing.assert_array_equal(np.concatenate(reader(step), axis=1), batches[step])
    other = BatchReader(stream, batch_size=64, seed=4, shuffle_rows=150)
    assert not np.array_equal(np.concatenate(other(0), axis=1), batches[0])


def test_lanes_share_the_rows_evenly(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream = open_stream(tmp_path)
    rows: list[set[int]] = []
    for lane in range(3):
        reader = BatchReader(stream, batch_size=10, seed=0, shuffle_rows=200, lane=lane, num_lanes=3)
        rows.append({int(n) for step in range(80) for n in reader(step)[0].numpy()[:, 0]})  # two epochs
    assert set.union(*rows) == set(numbers(stream.samples["train"]))
    assert sum(map(len, rows)) == stream.counts["train"]
    assert max(map(len, rows)) - min(map(len, rows)) <= 50  # at most one block


def test_transform_is_applied(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream = open_stream(tmp_path)

    def transform(part: Part) -> Part:
        return Part(((part.X - stream.x_scale.mean) / stream.x_scale.scale).astype(np.float32), part.Y)

    plain = BatchReader(stream, batch_size=32, seed=0)
    scaled = BatchReader(stream, batch_size=32, seed=0, transform=transform)
    X, (Z, _) = plain(5)[0].numpy(), scaled(5)
    assert Z.dtype == "float32"
    np.testing.assert_array_equal(Z, transform(Part(X)).X)
    assert scaled.wait_seconds > 0


def test_file_changed_after_the_scan_is_named(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream = open_stream(tmp_path)
    reader = BatchReader(stream, batch_size=50, seed=0, shuffle_rows=100)
    reader(0)
    content = (path := tmp_path / "part0.parquet").read_bytes()
    pd.read_parquet(path).iloc[::-1].iloc[:-30].to_parquet(path, row_group_size=50)
    with pytest.raises(ValueError, match=r"part0.parquet (was changed since the run began|cannot be read)"):
        for step in range(1, 30):
            reader(step)
    path.write_bytes(content)
    assert len(reader(1)[0]) == 50  # a reader can go on


def test_shard_that_breaks_while_training_is_named(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream = open_stream(tmp_path)
    reader = BatchReader(stream, batch_size=50, seed=0, shuffle_rows=200)
    reader(0)
    (tmp_path / "part0.parquet").write_bytes(b"PAR1 no longer")
    with pytest.raises(ValueError, match=r"part0.parquet cannot be read in rows \d+ to \d+: .*get it again"):
        for step in range(1, 30):
            reader(step)


def test_too_few_rows(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream = open_stream(tmp_path)
    with pytest.raises(ValueError, match="at least the 5000 training rows of a batch, got"):
        BatchReader(stream, batch_size=5000, seed=0)
    with pytest.raises(ValueError, match="in each of 3 lanes"):
        BatchReader(stream, batch_size=500, seed=0, num_lanes=3)
    with pytest.raises(ValueError, match="1000 workers need as many blocks"):
        BatchReader(stream, batch_size=1, seed=0, num_lanes=1000)
    with pytest.raises(ValueError, match="lane 2 of 2"):
        BatchReader(stream, batch_size=1, seed=0, lane=2, num_lanes=2)
    whole.head(3).to_parquet(tmp_path / "few.parquet")
    (tmp_path / "few").mkdir()
    (tmp_path / "few.parquet").rename(tmp_path / "few" / "few.parquet")
    with pytest.raises(ValueError, match=r"a stream must have .* rows, got"):
        open_stream(tmp_path / "few")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(rng: np.random.Generator, tmp_path: Path) -> None:
    """Ten times the rows, the same windows and samples: NumPy's peak stays, but for 13 numbers a block."""
    peaks = []
    for rows in (40_000, 400_000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        for start in range(0, rows, 40_000):
            frame(rng, 40_000, start).to_parquet(folder / f"{start}.parquet", row_group_size=2000)
        tracemalloc.start()
        stream = open_stream(folder, sample_rows=500)
        reader = BatchReader(stream, batch_size=1000, seed=0, shuffle_rows=8000)
        for step in range(40):
            reader(step)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 180 * 13 * 8 * 4 + 300_000, peaks  # 180 blocks more; and file names, Python's own
