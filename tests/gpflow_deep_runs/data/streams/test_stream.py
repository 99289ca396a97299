"""Which part each row of a stream belongs to, and which rows are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.streams import own
from gpflow_deep_runs.data.streams.reader import BatchReader
from gpflow_deep_runs.data.streams.scan import scan
from gpflow_deep_runs.data.table.spec import TableSpec
from tests.gpflow_deep_runs.data.streams.tables import frame, numbers, open_stream

DROP = TableSpec(target=("y",), bad_rows="drop")


def parts_of(folder: Path, **settings: Any) -> dict[str, set[int]]:
    """Row numbers of each part; the samples hold all of them."""
    return {name: set(numbers(part)) for name, part in open_stream(folder, **settings).samples.items()}


def test_parts_cover_all_rows_in_the_asked_proportions(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream = open_stream(tmp_path, valid_fraction=0.2, test_fraction=0.3)
    parts = {name: numbers(part) for name, part in stream.samples.items()}
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(whole)))
    assert {name: len(part) for name, part in parts.items()} == {
        name: count for name, count in stream.counts.items() if count
    }
    for name, fraction in (("test", 0.3), ("valid", 0.7 * 0.2)):
        deviation = np.sqrt(len(whole) * fraction * (1 - fraction))
        assert abs(len(parts[name]) - len(whole) * fraction) < 5 * deviation


def test_row_keeps_its_part_when_files_are_added_but_not_in_another_split(whole: pd.DataFrame, tmp_path: Path) -> None:
    before = parts_of(tmp_path)
    assert before != parts_of(tmp_path, split=1)
    frame(np.random.default_rng(0), 100, len(whole)).to_parquet(tmp_path / "another.parquet")
    after = parts_of(tmp_path)
    assert all(before[name] <= after[name] for name in before)


def test_last_rows_may_be_the_test_part(whole: pd.DataFrame, tmp_path: Path) -> None:
    shards, preset = own.open_table(f"{tmp_path}/*.parquet", TableSpec(target=("y",)))
    stream = scan(shards, replace(preset, num_test_rows=120))
    assert sorted(numbers(stream.samples["test"])) == list(range(len(whole) - 120, len(whole)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_value_is_named_or_dropped(value: float, whole: pd.DataFrame, tmp_path: Path) -> None:
    damaged = pd.read_parquet(tmp_path / "part2.parquet")
    damaged.loc[[77, 80], "b"] = value
    damaged.to_parquet(tmp_path / "part2.parquet", row_group_size=50)
    message = r"part2.parquet row 77 \(from 0\): 'b' must be a number, got inf \(2 such rows.*--bad_rows=drop"
    if np.isnan(value):
        message = r"first in .*part2.parquet row 77, from 0\) has missing values in 'b' \(2\); give --missing=impute"
    with pytest.raises(ValueError, match=message):
        open_stream(tmp_path)
    stream = open_stream(tmp_path, table=DROP)
    assert stream.counts["bad"] == 2
    assert sum(stream.counts.values()) == len(whole)
    reader = BatchReader(stream, batch_size=100, seed=0)
    assert all(np.isfinite(reader(step)[0]).all() for step in range(15))


def classes(folder: Path, y: np.ndarray) -> None:
    pd.DataFrame({"a": np.arange(len(y)) * 1.0, "y": y}).to_parquet(folder / "labels.parquet", row_group_size=50)


def test_labels(rng: np.random.Generator, tmp_path: Path) -> None:
    classes(tmp_path, rng.integers(0, 4, 1000))
    stream = open_stream(tmp_path)
    assert stream.class_names == ("0", "1", "2", "3")
    data = stream.rows
    assert data.train.Y.dtype == np.int64
    assert (data.task, data.class_names, data.feature_names) == ("multiclass", stream.class_names, ("a",))


@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        (
            "binary",
            [0, 1, 2],
            "--task=binary does not fit the target 'y' of .*: it must have 2 different values, got 3",
        ),
        ("multiclass", [0.0, 1.5, 2.0], "--task=multiclass does not fit the target 'y' of .*: it holds fractions"),
        (None, [1, 1, 1], "the target 'y' of .* must vary, but it is '1' in every row"),
        ("regression", [2.5, 2.5, 2.5], "the target 'y' .*must vary"),
    ],
)
def test_bad_targets(task: Any, y: list[float], message: str, tmp_path: Path) -> None:
    classes(tmp_path, np.tile(y, 300))
    with pytest.raises(ValueError, match=message):
        open_stream(tmp_path, table=TableSpec(target=("y",), task=task))
