"""Edge images, their file, and recording with a small emulator in place of ale-py; with ale-py if it is installed."""

import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gpflow_deep_runs.data.density.bits import read_bits
from gpflow_deep_runs.data.sets import atari
from gpflow_deep_runs.data.sets.atari import Frames, edges, load_frames, play, record_dataset, write_frames


class FakeALE:
    """A game of 50 frames: a square that moves with the action; remembers what was played."""

    played: list[int]

    @staticmethod
    def setLoggerMode(mode: Any) -> None:
        del mode

    def __init__(self) -> None:
        self.settings: dict[str, float] = {}
        self.played, self.place, self.time = [], 80, 0
        FakeALE.last = self

    last: Any = None

    def setInt(self, name: str, value: int) -> None:
        self.settings[name] = value

    def setFloat(self, name: str, value: float) -> None:
        self.settings[name] = value

    def loadROM(self, path: str) -> None:
        self.settings["rom"] = len(path)

    def getScreenDims(self) -> tuple[int, int]:
        return atari.FRAME_SHAPE

    def getMinimalActionSet(self) -> list[int]:
        return [0, 3, 4]

    def game_over(self) -> bool:
        return self.time >= 50

    def reset_game(self) -> None:
        self.time, self.place = 0, 80

    def act(self, action: int) -> None:
        assert not self.game_over()
        self.played.append(action)
        self.place = int(np.clip(self.place + {0: 0, 3: 1, 4: -1}[action], 20, 140))
        self.time += 1

    def getScreen(self) -> np.ndarray:
        screen = np.zeros(atari.FRAME_SHAPE, np.uint8)
        screen[100:110, self.place : self.place + 10] = 7
        screen[0, 0] = self.time
        return screen


@pytest.fixture
def fake_ale(monkeypatch: pytest.MonkeyPatch) -> None:
    module, roms = ModuleType("ale_py"), ModuleType("ale_py.roms")
    roms.get_all_rom_ids = lambda: ["freeway", "pong"]  # type: ignore[attr-defined]
    roms.get_rom_path = lambda name: f"{name}.bin"  # type: ignore[attr-defined]
    module.ALEInterface, module.LoggerMode = FakeALE, type("LoggerMode", (), {"Error": 0})  # type: ignore[attr-defined]
    module.roms, module.__version__ = roms, "0.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ale_py", module)
    monkeypatch.setitem(sys.modules, "ale_py.roms", roms)


def test_edges_of_a_square() -> None:
    frame = np.zeros((6, 7), np.uint8)
    frame[2:4, 2:5] = 9
    expected = [
        [0, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 1, 0],
        [0, 1, 0, 0, 1, 0],
        [0, 1, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 0],
    ]
    np.testing.assert_array_equal(edges(frame), expected)
    np.testing.assert_array_equal(edges(np.stack([frame, 9 - frame])), [expected, expected])
    assert edges(np.zeros(atari.FRAME_SHAPE)).shape == atari.IMAGE_SHAPE
    with pytest.raises(ValueError, match="at least 2"):
        edges(np.zeros((1, 5)))


@pytest.mark.usefixtures("fake_ale")
def test_random_play() -> None:
    frames = list(itertools.islice(play("pong", seed=3, keep_probability=0.05), 300))
    ale = FakeALE.last
    assert ale.settings["random_seed"] == 3
    assert ale.settings["repeat_action_probability"] == 0.0
    assert set(ale.played) == {0, 3, 4}
    assert abs(len(ale.played) / 300 - 20) < 6 * 19.5 / np.sqrt(300)  # geometric with mean 20, 6 standard errors
    assert len({int(frame[0, 0]) for frame in frames}) > 40  # all times of the game; it was started again
    again = list(itertools.islice(play("pong", seed=3, keep_probability=0.05), 300))
    np.testing.assert_array_equal(frames, again)
    other = list(itertools.islice(play("pong", seed=4, keep_probability=0.05), 300))
    assert not np.array_equal(frames, other)


@pytest.mark.usefixtures("fake_ale")
def test_recorded_file(tmp_path: Path) -> None:
    path = record_dataset(tmp_path / "pong.npz", "pong", 40, seed=1, keep_probability=0.5, test_fraction=0.2)
    frames = load_frames(path)
    assert [len(part) for part in frames[:3]] == [28, 4, 8]
    assert frames.about["game"] == "pong"
    expected = [edges(f).reshape(-1) for f in itertools.islice(play("pong", seed=1, keep_probability=0.5), 40)]
    np.testing.assert_array_equal(np.concatenate(frames[:3]), expected)
    data = read_bits(path)
    assert data.image_shape == atari.IMAGE_SHAPE
    np.testing.assert_array_equal(data.test.X, frames.test)
    before = path.stat().st_mtime_ns
    record_dataset(path, "pong", 40, seed=1, keep_probability=0.5, test_fraction=0.2)
    assert path.stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="holds other frames"):
        record_dataset(path, "pong", 40, seed=2, keep_probability=0.5, test_fraction=0.2)


def test_file_in_one_piece(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    images = rng.integers(0, 2, (6, 209 * 159), np.uint8)
    frames = Frames(images[:3], images[3:5], images[5:], {"game": "pong"})
    write_frames(tmp_path / "x.npz", frames)
    stored = load_frames(tmp_path / "x.npz")
    for part in ("train", "valid", "test"):
        np.testing.assert_array_equal(getattr(stored, part), getattr(frames, part))
    assert stored.about == frames.about

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        write_frames(tmp_path / "x.npz", frames)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.npz"]


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no")
    np.savez(tmp_path / "other.npz", X=np.zeros((3, 4)))
    for name in ("missing.npz", "text.npz", "other.npz"):
        with pytest.raises(ValueError, match="cannot be read as recorded Atari frames"):
            load_frames(tmp_path / name)


@pytest.mark.usefixtures("fake_ale")
def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="game must be one of those of ale-py"):
        play("chess", seed=0)
    with pytest.raises(ValueError, match="keep_probability must be in"):
        play("pong", seed=0, keep_probability=0.0)
    with pytest.raises(ValueError, match=r"must end in \.npz"):
        record_dataset(tmp_path / "x.csv", "pong")
    with pytest.raises(ValueError, match="cannot give each part a frame"):
        record_dataset(tmp_path / "x.npz", "pong", 3)


def test_without_ale_py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ValueError, match="pip install ale-py"):
        play("pong", seed=0)


def test_the_real_emulator() -> None:
    pytest.importorskip("ale_py")
    first, second = ([edges(f) for f in itertools.islice(play("freeway", seed=0), 3)] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first[0].shape == atari.IMAGE_SHAPE
    assert 0.01 < np.mean(first) < 0.5
