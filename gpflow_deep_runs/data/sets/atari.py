"""Edge images of Atari 2600 games, as in Section 5.3 of Gregor et al. (2014), "Deep AutoRegressive Networks".

    path = record_dataset("freeway.npz", "freeway", 10_000, seed=0)     # needs ale-py
    frames = load_frames(path)                                          # zeros and ones [N, 209 * 159]

Random play, of which each frame of 210 x 160 pixels is kept with probability 1 %. A pixel of the result is 1 if its
colour differs from the pixel to its right or below it: 209 x 159. The games come with the package `ale-py`; nothing is
downloaded here. The file is what `gpflow_deep_runs.data.density.bits.read_bits` reads, and holds parts for training,
validation and
testing one after the other in time, because neighbouring frames are alike. Beside it, a .json file says how they were
recorded.

This module needs NumPy only, besides `ale-py` to record, so that frames may be recorded in an environment of their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.files import atomic_path, write_json
from gpflow_deep_base.storage.container import read_npz

__all__ = [
    "FRAME_SHAPE",
    "GAMES",
    "IMAGE_SHAPE",
    "Frames",
    "edges",
    "load_frames",
    "play",
    "record_dataset",
    "write_frames",
]

GAMES = ("freeway", "pong", "space_invaders", "riverraid", "seaquest")
"""The five games of the paper, in its order of decreasing log-probability."""

FRAME_SHAPE = (210, 160)
IMAGE_SHAPE = (209, 159)

Bits = NDArray[np.uint8]

_BLOCK = 4096  # actions drawn at a time
_PARTS = ("train", "valid", "test")
_MISSING = "recording Atari frames needs ale-py, which is not installed; `pip install ale-py`."


class Frames(NamedTuple):
    """Edge images, zeros and ones [N, 209 * 159] for each part, in the order of play, and how they were recorded."""

    train: Bits
    valid: Bits
    test: Bits
    about: dict[str, Any]


def edges(frames: np.ndarray) -> Bits:
    """1 where a pixel differs from the one to its right or the one below: [..., H, W] to [..., H - 1, W - 1].

    :param frames: colours, as numbers of any kind.
    :raises ValueError: if the frames have fewer than 2 rows or columns.
    """
    frames = np.asarray(frames)
    if frames.ndim < 2 or min(frames.shape[-2:]) < 2:
        raise ValueError(f"frames must be [..., H, W] with H and W at least 2, got {frames.shape}.")
    here = frames[..., :-1, :-1]
    return ((here != frames[..., :-1, 1:]) | (here != frames[..., 1:, :-1])).astype(np.uint8)


def play(game: str, *, seed: int, keep_probability: float = 0.01) -> Iterator[NDArray[np.uint8]]:
    """Frames of endless random play, colour numbers [210, 160], each kept with the given probability.

    Actions are drawn evenly from those that do something in the game; they are never repeated by the emulator. The
    frames depend on the arguments and the emulator's version only.

    :param game: name of a game of ale-py, such as one of :data:`GAMES`.
    :raises ValueError: if ale-py is not installed, the game is not known, or the probability is not in (0, 1].
    """
    if not 0.0 < keep_probability <= 1.0:
        raise ValueError(f"keep_probability must be in (0, 1], got {keep_probability}.")
    emulator = _emulator(game, seed)
    return _kept_frames(emulator, np.random.default_rng([seed, 2014]), keep_probability)


def record_dataset(
    path: str | os.PathLike[str],
    game: str,
    num_frames: int = 10_000,
    *,
    seed: int = 0,
    keep_probability: float = 0.01,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> Path:
    """Play, keep `num_frames` frames and write their edge images, unless `path` already holds just these.

    :param path: .npz file.
    :return: the path, for :func:`load_frames` or `--data` of gpflow-deep darn.
    :raises ValueError: see :func:`play`; or if `path` is another file, or a part would be empty.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"the output must end in .npz, got {path}.")
    if seed < 0:
        raise ValueError(f"the seed of the play must not be negative, got {seed}.")
    # The parts follow each other in time.
    num_test = round(test_fraction * num_frames)
    num_valid = round(valid_fraction * num_frames)
    num_train = num_frames - num_test - num_valid
    if min(num_train, num_valid, num_test) < 1:
        raise ValueError(
            f"{num_frames} frames cannot give each part a frame with valid_fraction={valid_fraction} and "
            f"test_fraction={test_fraction}; record more."
        )
    facts = {"game": game, "frames": num_frames, "seed": seed, "keep_probability": keep_probability}
    # A file of just these frames is left as it is, whichever emulator played.
    if path.exists():
        stored = load_frames(path)
        sizes = tuple(map(len, stored[:3]))
        if {**stored.about, "emulator": 0} != {**facts, "emulator": 0} or sizes != (num_train, num_valid, num_test):
            raise ValueError(f"{path} holds other frames, {stored.about}; give another path, or delete it.")
        return path
    # Play until there are enough frames, of which the edges are kept.
    frames = play(game, seed=seed, keep_probability=keep_probability)
    images = np.stack([edges(next(frames)).reshape(-1) for _ in range(num_frames)])
    ends = [num_train, num_train + num_valid]
    facts["emulator"] = _emulator_version()
    train, valid, test = np.split(images, ends)
    write_frames(path, Frames(train, valid, test, facts))
    return path


def write_frames(path: str | os.PathLike[str], frames: Frames) -> None:
    """Write parts of edge images to an .npz file, packed to bits, and `about` beside it: files that are whole."""
    path = Path(path)
    arrays = {part: np.packbits(getattr(frames, part), axis=1) for part in _PARTS}
    # The description first: a file of frames without it is damaged.
    write_json(path.with_suffix(".json"), frames.about)
    with atomic_path(path) as temporary:
        np.savez_compressed(temporary, **arrays, n_features=np.prod(IMAGE_SHAPE), image_shape=IMAGE_SHAPE)


def load_frames(path: str | os.PathLike[str]) -> Frames:
    """Read a file of :func:`record_dataset`.

    :raises ValueError: if it is missing, damaged or another kind of file.
    """
    path = Path(path)
    try:
        arrays = read_npz(path)
        # How they were recorded stands beside them, and their bits are packed.
        facts = dict(json.loads(path.with_suffix(".json").read_text(encoding="utf-8")))
        count = int(np.prod(IMAGE_SHAPE))
        parts = [np.unpackbits(arrays[part], axis=1, count=count) for part in _PARTS]
        if tuple(arrays["image_shape"]) != IMAGE_SHAPE or any(part.shape[1] != count for part in parts):
            raise ValueError(f"its images are {arrays['image_shape']}, not {IMAGE_SHAPE}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as recorded Atari frames ({error}); record them again.") from error
    train, valid, test = parts
    return Frames(train, valid, test, facts)


def _kept_frames(emulator: Any, rng: np.random.Generator, probability: float) -> Iterator[NDArray[np.uint8]]:
    actions = emulator.getMinimalActionSet()
    while True:
        # Actions, and which of the frames are kept, are drawn in blocks; a game that is over begins again.
        choices = rng.integers(len(actions), size=_BLOCK)
        for choice, is_kept in zip(choices.tolist(), (rng.random(_BLOCK) < probability).tolist(), strict=True):
            if emulator.game_over():
                emulator.reset_game()
            emulator.act(actions[choice])
            if is_kept:
                yield np.array(emulator.getScreen(), np.uint8)


def _emulator(game: str, seed: int) -> Any:
    """An emulator with the game loaded."""
    try:
        from ale_py import ALEInterface, LoggerMode, roms
    except ImportError as error:
        raise ValueError(_MISSING) from error
    games = roms.get_all_rom_ids()
    if game not in games:
        raise ValueError(f"game must be one of those of ale-py ({', '.join(sorted(games))}), got {game!r}.")
    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator = ALEInterface()
    # Without repeated actions the frames are a function of the seed and the actions.
    emulator.setInt("random_seed", seed)
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.loadROM(roms.get_rom_path(game))
    height, width = emulator.getScreenDims()
    if (height, width) != FRAME_SHAPE:
        raise ValueError(f"{game!r} has frames of {height} x {width} pixels, not 210 x 160; choose another game.")
    return emulator


def _emulator_version() -> str:
    import ale_py

    return f"ale-py {ale_py.__version__}"
