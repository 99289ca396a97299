"""`scripts/record_atari.py`, called in the process; playing itself is tested beside
`gpflow_deep_runs.data.sets.atari`."""

import sys
from pathlib import Path

import numpy as np
import pytest

from gpflow_deep_runs import cli
from gpflow_deep_runs.data.sets.atari import Frames, load_frames, write_frames
from scripts import record_atari

SMALL = ["--num_frames=10", "--game=pong", "--seed=3"]


def record(*arguments: str) -> int:
    return cli.call(record_atari.main, ["record_atari.py", *arguments])


def test_frames_that_are_there_are_left_as_they_are(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, images = tmp_path / "pong.npz", rng.integers(0, 2, (10, 209 * 159), np.uint8)
    about = {"game": "pong", "frames": 10, "seed": 3, "keep_probability": 0.01, "emulator": "another version"}
    write_frames(path, Frames(images[:8], images[8:9], images[9:], about))
    before = path.read_bytes()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert record(*SMALL, "--output=~/pong.npz") == 0
    assert path.read_bytes() == before
    ones = 100 * load_frames(path).train.mean()
    told = capsys.readouterr().out
    assert told == f"{path}: 8 train, 1 valid, 1 test images of 209 x 159, {ones:.2f} % ones; {about}\n"
    assert record(*SMALL, f"--output={path}", "--keep_probability=0.5") == 2
    assert "holds other frames" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output=frames.npy"], "the output must end in .npz, got frames.npy"),
        (["--output=frames.npz", "--num_frames=2"], "2 frames cannot give each part a frame"),
        (["--output=frames.npz", "--keep_probability=0"], "keep_probability must be in (0, 1], got 0.0"),
        (["--output=frames.npz", "--seed=-1"], "the seed of the play must not be negative, got -1"),
        (["--output=frames.npz"], "recording Atari frames needs ale-py, which is not installed"),
        ([], "--output"),
    ],
)
def test_what_is_impossible_is_refused_in_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ale_py", None)
    assert record(*arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("record_atari.py: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
