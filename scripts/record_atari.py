#!/usr/bin/env python3
"""Record edge images of Atari 2600 games under random play, for gpflow-deep darn.

    record_atari.py --game=freeway --num_frames=10000 --output=freeway.npz
    gpflow-deep darn --run_dir=runs/freeway --data=freeway.npz --use_local --visible_conditional=local --hidden=300

Needs `pip install ale-py`, which brings the games along. A million frames of play (10,000 that are kept) take minutes.
An output that already holds just these frames is left as it is.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.data.sets import atari


@dataclass(frozen=True)
class Flags:
    """Record edge images of Atari 2600 games under random play, for gpflow-deep darn.

    :param output: file to write, .npz; a .json file beside it says how the frames were recorded.
    :param game: name of the game; those of the paper are freeway, pong, space_invaders, riverraid and seaquest.
    :param num_frames: frames to keep.
    :param keep_probability: probability of keeping a frame.
    :param valid_fraction: part of the frames for validation.
    :param test_fraction: part of the frames for testing: the last ones.
    :param seed: seed of the play.
    """

    output: str
    game: str = "freeway"
    num_frames: int = 10_000
    keep_probability: float = 0.01
    valid_fraction: float = 0.1
    test_fraction: float = 0.1
    seed: int = 0


def main(flags: Flags) -> None:
    """Play, write the frames, and say what they are."""
    # Frames that are there already are not played again.
    path = atari.record_dataset(
        Path(flags.output).expanduser(),
        flags.game,
        flags.num_frames,
        seed=flags.seed,
        keep_probability=flags.keep_probability,
        valid_fraction=flags.valid_fraction,
        test_fraction=flags.test_fraction,
    )
    frames = atari.load_frames(path)
    sizes = ", ".join(f"{len(getattr(frames, part))} {part}" for part in ("train", "valid", "test"))
    print(f"{path}: {sizes} images of 209 x 159, {100 * frames.train.mean():.2f} % ones; {frames.about}")


command = functools.partial(cli.run, main)

if __name__ == "__main__":
    command()
