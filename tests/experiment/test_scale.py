"""`experiment.scale`: flags, and the batches of arrays and streams."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from absl import flags

from experiment.data.batches import batch_indices
from experiment.data.rows import Part
from experiment.flags import define_common_flags, flags_text
from experiment.scale import Batches, define_scale_flags, keep_scan, load_stream, strategy_from_flags

OURS = {
    "stream",
    "stream_preset",
    "lookup",
    "features",
    "test_fraction",
    "stream_sample",
    "shuffle_rows",
    "bad_rows",
    "strategy",
    "replicas",
}


def parsed(*arguments: str, run_dir: Path = Path("run")) -> flags.FlagValues:
    values = flags.FlagValues()
    define_common_flags(values)
    define_scale_flags(values)
    flags.DEFINE_float("valid_fraction", 0.1, "", flag_values=values)
    values(["script", f"--run_dir={run_dir}", "--noprogress", *arguments])
    return values


@pytest.fixture
def folder(rng: np.random.Generator, tmp_path: Path) -> Path:
    """Files of 400 rows, with a column that counts them."""
    folder = tmp_path / "data"
    folder.mkdir()
    x = rng.normal(size=(400, 2))
    frame = pd.DataFrame({"n": np.arange(400), "a": x[:, 0], "y": x[:, 1]})
    frame.to_parquet(folder / "part.parquet", row_group_size=40)
    return folder


def test_flags_that_are_not_given_are_not_stored() -> None:
    """So a run that began before there were these flags can be resumed."""
    stored = {line.removeprefix("--").split("=")[0] for line in flags_text(parsed()).splitlines()}
    assert stored.isdisjoint(OURS)
    assert "--stream\n" in flags_text(parsed("--stream"))


def test_batches_of_arrays(rng: np.random.Generator) -> None:
    train = Part(rng.normal(size=(50, 2)), rng.normal(size=(50, 1)))
    batches = Batches(train, flag_values=parsed("--batch_size=8", "--seed=3"))
    X, Y = batches(7)
    rows = batch_indices(3, 7, 50, 8)
    np.testing.assert_array_equal(X, train.X[rows])
    np.testing.assert_array_equal(Y, train.Y[rows])
    assert batches.wait_seconds is None
    full = Batches(train, flag_values=parsed("--batch_size=60"))
    assert full(0) is full(1)
    np.testing.assert_array_equal(full(0)[0], train.X)


def test_batches_of_a_stream(folder: Path, tmp_path: Path) -> None:
    fv = parsed("--stream", f"--data={folder}", "--target=y", "--batch_size=16", "--shuffle_rows=80", run_dir=tmp_path)
    stream = load_stream(fv)
    assert sum(stream.counts.values()) == 400
    batches = Batches(
        stream.samples["train"], stream=stream, transform=lambda part: Part(part.X + 1, part.Y), flag_values=fv
    )
    rows = np.concatenate([batches(step)[0].numpy()[:, 0] for step in range(stream.counts["train"] // 16)]) - 1
    assert set(rows) <= set(stream.samples["train"].X[:, 0])
    assert len(set(rows)) == len(rows)
    assert batches.wait_seconds is not None


def test_resumed_run_does_not_scan_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--stream", f"--data={folder}", "--target=y"]
    stream = load_stream(parsed(*arguments, run_dir=tmp_path))
    keep_scan(stream, parsed(*arguments, run_dir=tmp_path))

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("scanned again")

    monkeypatch.setattr("experiment.scale.scan", fail)
    assert load_stream(parsed(*arguments, "--resume", run_dir=tmp_path)).sha256 == stream.sha256
    with pytest.raises(AssertionError, match="scanned again"):
        load_stream(parsed(*arguments, "--resume", "--split=1", run_dir=tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target=y"], "--stream reads the files of --data"),
        (["--data=x", "--stream_preset=susy", "--target=y"], "describe other files than those of --stream_preset"),
        (["--data=x", "--stream_preset=airline"], "give --lookup"),
    ],
)
def test_flags_that_do_not_go_together(arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_stream(parsed("--stream", *arguments))


def test_no_strategy() -> None:
    assert strategy_from_flags(parsed()) is None
    with pytest.raises(ValueError, match="--replicas must be at least 1 and needs --strategy=mirrored"):
        strategy_from_flags(parsed("--replicas=2"))
