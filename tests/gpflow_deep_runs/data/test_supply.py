"""`gpflow_deep_runs.data.supply`: the same calls for rows in memory and for a stream."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_base.seeds import Seeds
from gpflow_deep_runs.data.rows import divide
from gpflow_deep_runs.data.streams.scan import StreamSpec
from gpflow_deep_runs.data.supply import Division, Supply, load
from gpflow_deep_runs.data.tables import TableSpec, read_table
from gpflow_deep_runs.data.views import Source

TARGET = TableSpec(target=("y",))
STREAM = StreamSpec(stream=True, shuffle_rows=80, stream_sample=100, test_fraction=0.2)


@pytest.fixture
def folder(rng: np.random.Generator, tmp_path: Path) -> Path:
    """A file of 400 rows, with a column that counts them."""
    folder = tmp_path / "data"
    folder.mkdir()
    x = rng.normal(size=(400, 2))
    frame = pd.DataFrame({"n": np.arange(400), "a": x[:, 0], "y": x[:, 1]})
    frame.to_parquet(folder / "part.parquet", row_group_size=40)
    return folder


def _stream(folder: Path, division: Division = Division(), kept: Path | None = None) -> Supply:
    return load(Source(data=str(folder)), division, STREAM, table=TARGET, seed=0, kept=kept)


def test_rows_in_memory(folder: Path) -> None:
    path = str(folder / "part.parquet")
    supply = load(Source(data=path), Division(split=2, valid_fraction=0.2), StreamSpec(), table=TARGET, seed=3)
    expected = divide(read_table(path, TARGET), split=2, valid_fraction=0.2, seed=3)
    for name, part in supply.rows.parts.items():
        np.testing.assert_array_equal(part.X, expected.parts[name].X)
    assert list(supply.parts) == ["valid", "test"]
    assert supply.sizes == {"train": 288, "valid": 72, "test": 40}
    about = {"task": "regression", "target": "y", "split": 2, "rows": supply.sizes, "stream_rows": None}
    assert supply.about() == about
    assert supply.description == f"regression of 'y' on {expected.train.X.shape[1]} inputs"
    assert [supply.rows_in_batch(size) for size in (100, 1000)] == [100, 288]
    batches = supply.batches(supply.rows.train, batch_size=7, seed=3)
    np.testing.assert_array_equal(batches(4)[1], expected.train.Y[_numbers(batches(4)[0], expected.train.X)])
    supply.keep(folder)
    assert [path.name for path in folder.iterdir()] == ["part.parquet"]


def _numbers(some: np.ndarray, X: np.ndarray) -> list[int]:
    """Where the rows of `some` are in X, by the column that counts them."""
    return [int(np.flatnonzero(X[:, 0] == n)[0]) for n in np.asarray(some)[:, 0]]


def test_fewer_rows_in_memory(folder: Path) -> None:
    source = Source(data=str(folder / "part.parquet"))
    all_rows = load(source, Division(valid_fraction=0), StreamSpec(), table=TARGET, seed=3)
    supply = load(source, Division(max_rows=30, valid_fraction=0), StreamSpec(), table=TARGET, seed=3)
    assert supply.sizes == {"train": 30, "test": 30}
    assert list(supply.parts) == ["test"]
    expected = all_rows.rows.some("train", 30, Seeds(3), purpose="max_rows")
    np.testing.assert_array_equal(supply.rows.train.X, expected.X)


def test_stream(folder: Path) -> None:
    supply = _stream(folder)
    assert supply.stream is not None
    assert sum(supply.stream.counts.values()) == 400
    assert supply.sizes["train"] == supply.stream.counts["train"] > len(supply.rows.train.X) == 100
    assert supply.about()["stream_rows"] == supply.stream.counts
    assert supply.rows_in_batch(1000) == 1000
    batches = supply.batches(
        supply.rows.train, batch_size=16, seed=0, transform=lambda X, Y: (X + 1, Y.astype(np.float32))
    )
    count = supply.sizes["train"] // 16
    rows = np.concatenate([batches(step)[0].numpy()[:, 0] for step in range(count)]) - 1
    assert len(set(rows)) == len(rows) == 16 * count
    assert set(rows).isdisjoint(supply.parts["test"].X[:, 0])
    assert batches(0)[1].dtype == np.float32
    assert list(batches.scalars()) == ["train/input_wait_seconds"]
    assert batches.scalars()["train/input_wait_seconds"] > 0


def test_resumed_run_does_not_look_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _stream(folder)
    stream.keep(tmp_path)
    monkeypatch.setattr(
        "gpflow_deep_runs.data.streams.scan.scan", lambda *_, **__: pytest.fail("all rows were read again")
    )
    found = _stream(folder, kept=tmp_path)
    assert found.rows.sha256 == stream.rows.sha256
    np.testing.assert_array_equal(found.rows.test.X, stream.rows.test.X)
    with pytest.raises(pytest.fail.Exception, match="read again"):
        _stream(folder, Division(split=1), kept=tmp_path)


@pytest.mark.parametrize(
    ("division", "message"),
    [
        ({"split": -1}, "--split must not be negative, got -1"),
        ({"valid_fraction": 1.0}, r"--valid_fraction must be in \[0, 1\), got 1.0"),
        ({"valid_fraction": float("nan")}, r"--valid_fraction must be in \[0, 1\), got nan"),
        ({"max_rows": 1}, "--max_rows must be at least 2, got 1"),
    ],
)
def test_impossible_divisions(division: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Division(**division)


def test_a_stream_is_not_cut(folder: Path) -> None:
    with pytest.raises(ValueError, match="--max_rows is for data in memory; give --stream_sample"):
        _stream(folder, Division(max_rows=10))


def test_targets_are_needed(folder: Path) -> None:
    supply = _stream(folder)
    with pytest.raises(ValueError, match="must have targets to predict"):
        _ = replace(supply, rows=replace(supply.rows, task="density")).task
