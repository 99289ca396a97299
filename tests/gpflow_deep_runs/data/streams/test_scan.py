"""One pass equals the whole table, is kept for a resumed run, and is described by flags."""

from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.streams.presets import PRESETS
from gpflow_deep_runs.data.streams.record import load_stored, save
from gpflow_deep_runs.data.streams.scan import StreamSpec, load
from gpflow_deep_runs.data.views import Source, TableSpec
from tests.gpflow_deep_runs.data.streams.tables import open_stream


def test_one_pass_standardises_as_the_whole_table(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream = open_stream(tmp_path)
    train = stream.samples["train"]
    for found, values in ((stream.x_scale, train.X), (stream.y_scale, train.Y)):
        # Rounding: 27 merges of sums of at most 50 values, all in float64.
        np.testing.assert_allclose(found.mean, values.mean(axis=0), rtol=1e-13)
        np.testing.assert_allclose(found.scale, values.std(axis=0), rtol=1e-13)


def test_saved_scan_is_used_for_the_same_files_only(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream, path = open_stream(tmp_path), tmp_path / "scan.npz"
    save(stream, path)
    stored = load_stored(path, stream.shards, stream.preset, stream.settings)
    assert stored is not None
    assert (stored.sha256, stored.counts, stored.settings) == (stream.sha256, stream.counts, stream.settings)
    np.testing.assert_array_equal(stored.num_train, stream.num_train)
    for found, expected in ((stored.x_scale, stream.x_scale), (stored.y_scale, stream.y_scale)):
        np.testing.assert_array_equal(found.mean, expected.mean)
        np.testing.assert_array_equal(found.scale, expected.scale)
        assert found.constant_columns == expected.constant_columns
    for name, part in stream.samples.items():
        np.testing.assert_array_equal(stored.samples[name].X, part.X)
    assert load_stored(tmp_path / "absent.npz", stream.shards, stream.preset, stream.settings) is None
    assert load_stored(path, stream.shards, stream.preset, open_stream(tmp_path, split=1).settings) is None
    whole.head(100).to_parquet(tmp_path / "part1.parquet")
    changed = open_stream(tmp_path)
    assert load_stored(path, changed.shards, stream.preset, changed.settings) is None
    path.write_bytes(path.read_bytes()[:-100])
    assert load_stored(path, stream.shards, stream.preset, stream.settings) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"valid_fraction": 1.0}, "0 <= valid_fraction < 1"),
        ({"test_fraction": 0.0}, "0 < test_fraction < 1"),
        ({"sample_rows": 1}, "at least 2 sample rows"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str, whole: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        open_stream(tmp_path, **settings)


def test_flags_say_which_stream(whole: pd.DataFrame, tmp_path: Path) -> None:
    spec, source = StreamSpec(stream=True, test_fraction=0.3, stream_sample=150), Source(data=f"{tmp_path}/*.parquet")
    table = TableSpec(target=("y",), features=("a", "number"))
    stream = load(spec, source, table=table, split=2, valid_fraction=0.2)
    assert stream.rows.feature_names == ("a", "number")
    assert stream.rows.target_names == ("y",)
    assert stream.rows.sizes == {"train": 150, "valid": 150, "test": 150}
    same = open_stream(tmp_path, split=2, valid_fraction=0.2, test_fraction=0.3, sample_rows=150)
    np.testing.assert_array_equal(stream.rows.test.Y, same.samples["test"].Y)
    assert stream.counts == same.counts


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"test_fraction": 0.2}, "--test_fraction describes a stream; give --stream too, or leave it out"),
        ({"stream_preset": "taxi"}, "--stream_preset describes a stream"),
        ({"stream": True, "test_fraction": 0.0}, "--test_fraction must be above 0 and below 1, got 0.0"),
        ({"stream": True, "stream_sample": 1}, "--stream_sample must be at least 2 .* got 1 and 262144"),
        ({"stream": True, "shuffle_rows": 0}, "--shuffle_rows at least 1, got 100000 and 0"),
    ],
)
def test_flags_that_are_impossible(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamSpec(**settings)


@pytest.mark.parametrize(
    ("preset", "data", "table", "message"),
    [
        (None, None, {}, "--stream reads the files of --data; give their folder or pattern"),
        ("taxi", "a.csv", {"target": ("y",)}, "--target describes your own table; leave it out, or --stream_preset"),
        ("taxi", "a.csv", {"missing": "impute"}, "--missing describes your own table"),
        ("airline", "a.csv", {}, "must know the years of the planes; give --lookup"),
    ],
)
def test_flags_that_do_not_go_together(preset: Any, data: str | None, table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(StreamSpec(stream=True, stream_preset=preset), Source(data=data), table=TableSpec(**table))


def test_every_preset_is_a_flag() -> None:
    kind = get_type_hints(StreamSpec)["stream_preset"]
    assert set(get_args(get_args(kind)[0])) == set(PRESETS)
