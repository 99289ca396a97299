"""Streams: one pass equals the whole table; batches use every row once an epoch; damage is named."""

import itertools
import math
import tracemalloc
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest

from experiment.data.rows import Part
from experiment.data.streams import blocks
from experiment.data.streams import scan as scan_module
from experiment.data.streams.moments import Moments
from experiment.data.streams.presets import PRESETS, StreamPreset, numeric
from experiment.data.streams.reader import BatchReader
from experiment.data.streams.scan import StreamSpec, load, load_stored, save, scan
from experiment.data.streams.shards import open_shards
from experiment.data.streams.stream import Stream
from experiment.data.views import Source

ROWS = (900, 30, 415)


def frame(rng: np.random.Generator, rows: int, first: int) -> pd.DataFrame:
    X = rng.normal(5.0, 3.0, (rows, 2))
    number = np.arange(first, first + rows)
    return pd.DataFrame({"number": number, "a": X[:, 0], "b": X[:, 1], "y": X[:, 0] + rng.normal(size=rows)})


@pytest.fixture
def whole(rng: np.random.Generator, tmp_path: Path) -> pd.DataFrame:
    frames = [frame(rng, rows, sum(ROWS[:i])) for i, rows in enumerate(ROWS)]
    for i, part in enumerate(frames):
        part.to_parquet(tmp_path / f"part{i}.parquet", row_group_size=50)
    return pd.concat(frames, ignore_index=True)


def open_stream(folder: Path, suffix: str = "parquet", drop: bool = False, **settings: Any) -> Stream:
    pattern = f"{folder}/*.{suffix}"
    preset = numeric(pattern, target="y", task=settings.pop("task", None))
    return scan(open_shards(pattern, layouts=preset.layouts, drop_bad_rows=drop), preset, **settings)


def numbers(part: Part) -> np.ndarray:
    """The column that counts all rows."""
    return np.asarray(part.X[:, 0]).astype(int)


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


def test_one_pass_standardises_as_the_whole_table(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream = open_stream(tmp_path)
    train = stream.samples["train"]
    for found, values in ((stream.x_scale, train.X), (stream.y_scale, train.Y)):
        # Rounding: 27 merges of sums of at most 50 values, all in float64.
        np.testing.assert_allclose(found.mean, values.mean(axis=0), rtol=1e-13)
        np.testing.assert_allclose(found.scale, values.std(axis=0), rtol=1e-13)


def test_moments_merge_in_any_grouping(rng: np.random.Generator) -> None:
    """Means a million times the deviation, where sums of squares would lose all digits."""
    array = np.concatenate([rng.normal(1e6, 1.0, (1000, 2)), np.full((1000, 1), 0.1)], axis=1)
    cuts = [0, 1, 1, 400, 999, 1000]
    pieces = [Moments.of(array[start:stop]) for start, stop in itertools.pairwise(cuts)]
    left = pieces[0]
    for piece in pieces[1:]:
        left = left.merge(piece)
    right = pieces[-1]
    for piece in pieces[-2::-1]:
        right = piece.merge(right)
    for found in (left.scale(), right.scale()):
        np.testing.assert_allclose(found.mean, [math.fsum(column) / len(array) for column in array.T], rtol=1e-14)
        np.testing.assert_allclose(found.scale[:2], array[:, :2].std(axis=0), rtol=1e-9)  # 1e6 eps, squared deviations
        assert (found.scale[2], found.constant_columns) == (1.0, (2,))


def test_sample_is_uniform_and_does_not_depend_on_its_blocks(whole: pd.DataFrame, tmp_path: Path) -> None:
    everything = numbers(open_stream(tmp_path).samples["train"])
    some = numbers(open_stream(tmp_path, sample_rows=200).samples["train"])
    np.testing.assert_array_equal(some, everything[:200])  # in the order of the hash
    mean, deviation = everything.mean(), everything.std() / np.sqrt(200)
    assert abs(some.mean() - mean) < 5 * deviation


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


def test_saved_scan_is_used_for_the_same_files_only(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream, path = open_stream(tmp_path), tmp_path / "scan.npz"
    save(stream, path)
    stored = load_stored(path, stream.shards, stream.preset, split=0, valid_fraction=0.1)
    assert stored is not None
    assert (stored.sha256, stored.counts, stored.settings) == (stream.sha256, stream.counts, stream.settings)
    np.testing.assert_array_equal(stored.num_train, stream.num_train)
    for found, expected in ((stored.x_scale, stream.x_scale), (stored.y_scale, stream.y_scale)):
        np.testing.assert_array_equal(found.mean, expected.mean)
        np.testing.assert_array_equal(found.scale, expected.scale)
        assert found.constant_columns == expected.constant_columns
    for name, part in stream.samples.items():
        np.testing.assert_array_equal(stored.samples[name].X, part.X)
    assert load_stored(path, stream.shards, stream.preset, split=1) is None
    assert load_stored(tmp_path / "absent.npz", stream.shards, stream.preset) is None
    whole.head(100).to_parquet(tmp_path / "part1.parquet")
    changed = open_shards(f"{tmp_path}/*.parquet", layouts=stream.preset.layouts)
    assert load_stored(path, changed, stream.preset) is None
    path.write_bytes(path.read_bytes()[:-100])
    assert load_stored(path, stream.shards, stream.preset) is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_value_is_named_or_dropped(value: float, whole: pd.DataFrame, tmp_path: Path) -> None:
    damaged = pd.read_parquet(tmp_path / "part2.parquet")
    damaged.loc[[77, 80], "b"] = value
    damaged.to_parquet(tmp_path / "part2.parquet", row_group_size=50)
    message = rf"part2.parquet row 77 \(from 0\): 'b' must be a number, got {value} \(2 such rows.*--bad_rows=drop"
    with pytest.raises(ValueError, match=message):
        open_stream(tmp_path)
    stream = open_stream(tmp_path, drop=True)
    assert stream.counts["bad"] == 2
    assert sum(stream.counts.values()) == len(whole)
    reader = BatchReader(stream, batch_size=100, seed=0)
    assert all(np.isfinite(reader(step)[0]).all() for step in range(15))


def test_lines_that_cannot_be_read_are_counted(whole: pd.DataFrame, tmp_path: Path) -> None:
    whole.to_csv(tmp_path / "a.csv", index=False)
    lines = (tmp_path / "a.csv").read_text().splitlines()
    lines[5], lines[900] = "1,2", "1,2,x,4"
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match="Expected 4 columns, got 2"):
        open_stream(tmp_path, "csv")
    stream = open_stream(tmp_path, "csv", drop=True)
    assert stream.counts["bad"] == 2
    assert sum(stream.counts.values()) == len(whole)


def test_file_changed_after_the_scan_is_named(
    whole: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2048)
    whole.to_csv(tmp_path / "a.csv", index=False)
    stream = open_stream(tmp_path, "csv")
    reader = BatchReader(stream, batch_size=50, seed=0, shuffle_rows=100)
    reader(0)
    content = (tmp_path / "a.csv").read_text()
    (tmp_path / "a.csv").write_text(content.replace("\n", "\n\n").replace("\n\n", "\n,,,\n")[: len(content)])
    with pytest.raises(ValueError, match=r"a.csv (was changed since the run began|cannot be read|row \d+)"):
        for step in range(1, 30):
            reader(step)
    (tmp_path / "a.csv").write_text(content)
    assert len(reader(1)[0]) == 50  # a reader can go on


def test_shard_that_breaks_while_training_is_named(whole: pd.DataFrame, tmp_path: Path) -> None:
    stream = open_stream(tmp_path)
    reader = BatchReader(stream, batch_size=50, seed=0, shuffle_rows=200)
    reader(0)
    (tmp_path / "part0.parquet").write_bytes(b"PAR1 no longer")
    with pytest.raises(ValueError, match=r"part0.parquet cannot be read in rows \d+ to \d+: .*get it again"):
        for step in range(1, 30):
            reader(step)


def classes(folder: Path, y: np.ndarray) -> None:
    pd.DataFrame({"a": np.arange(len(y)) * 1.0, "y": y}).to_parquet(folder / "labels.parquet", row_group_size=50)


def test_labels(rng: np.random.Generator, tmp_path: Path) -> None:
    classes(tmp_path, rng.integers(0, 4, 1000))
    stream = open_stream(tmp_path, task="multiclass")
    assert stream.class_names == ("0", "1", "2", "3")
    data = stream.rows
    assert data.train.Y.dtype == np.int64
    assert (data.task, data.class_names, data.feature_names) == ("multiclass", stream.class_names, ("a",))


@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        ("binary", [0, 1, 2], r"row 2 \(from 0\): 'y' must be a label 0 or 1, got 2"),
        ("multiclass", [0.0, 1.5, 2.0], r"row 1 \(from 0\): 'y' must be a label 0, 1, ..., got 1.5"),
        ("multiclass", [-1, 0, 1], r"row 0 \(from 0\): 'y' must be a label 0, 1, ..., got -1"),
        ("binary", [1, 1, 1], "the target 'y' must vary, but every training label is 1"),
        ("regression", [2.5, 2.5, 2.5], "the target 'y' must vary, got 2.5 in every training row"),
    ],
)
def test_bad_targets(task: str, y: list[float], message: str, tmp_path: Path) -> None:
    classes(tmp_path, np.tile(y, 300))
    with pytest.raises(ValueError, match=message):
        open_stream(tmp_path, task=task)


def test_last_rows_may_be_the_test_part(whole: pd.DataFrame, tmp_path: Path) -> None:
    pattern = f"{tmp_path}/*.parquet"
    base = numeric(pattern, target="y")
    preset = StreamPreset("last", base.layouts, base.rows, base.feature_names, "y", num_test_rows=120)
    stream = scan(open_shards(pattern, layouts=preset.layouts), preset)
    assert sorted(numbers(stream.samples["test"])) == list(range(len(whole) - 120, len(whole)))


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
    pattern = str(tmp_path / "few.parquet")
    preset = numeric(pattern, target="y")
    with pytest.raises(ValueError, match=r"a stream must have .* rows, got"):
        scan(open_shards(pattern, layouts=preset.layouts), preset)


def test_flags_say_which_stream(whole: pd.DataFrame, tmp_path: Path) -> None:
    spec = StreamSpec(stream=True, test_fraction=0.3, stream_sample=150, features=("a", "number"))
    source = Source(data=f"{tmp_path}/*.parquet", target="y")
    stream = load(spec, source, split=2, valid_fraction=0.2)
    assert stream.rows.feature_names == ("a", "number")
    assert stream.rows.target_names == ("y",)
    assert stream.rows.sizes == {"train": 150, "valid": 150, "test": 150}
    same = open_stream(tmp_path, split=2, valid_fraction=0.2, test_fraction=0.3, sample_rows=150)
    np.testing.assert_array_equal(stream.rows.test.Y, same.samples["test"].Y)
    assert stream.counts == same.counts


def test_a_resumed_run_does_not_look_at_all_rows_again(
    whole: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, source = StreamSpec(stream=True), Source(data=f"{tmp_path}/*.parquet", target="y")
    first = load(spec, source, stored=tmp_path / "absent.npz")
    save(first, tmp_path / "stream.npz")
    monkeypatch.setattr(scan_module, "scan", lambda *_, **__: pytest.fail("it was scanned again"))
    again = load(spec, source, stored=tmp_path / "stream.npz")
    assert (again.sha256, again.counts) == (first.sha256, first.counts)


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
    ("settings", "source", "message"),
    [
        ({}, Source(), "--stream reads the files of --data; give their folder or pattern"),
        (
            {"stream_preset": "taxi"},
            Source(data="a.csv", target="y"),
            "--target, --task and --features describe other files than those of --stream_preset",
        ),
        ({"stream_preset": "airline"}, Source(data="a.csv"), "must know the years of the planes; give --lookup"),
    ],
)
def test_flags_that_do_not_go_together(settings: dict[str, Any], source: Source, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(StreamSpec(stream=True, **settings), source)


def test_every_preset_is_a_flag() -> None:
    kind = get_type_hints(StreamSpec)["stream_preset"]
    assert set(get_args(get_args(kind)[0])) == set(PRESETS)


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
