#!/usr/bin/env python3
"""Record edge images of Atari 2600 games under random play, for train_darn.py.

    record_atari.py --game=freeway --num_frames=10000 --output=freeway.npz
    train_darn.py --run_dir=runs/freeway --data=freeway.npz --local --visible=local --hidden=300

Needs `pip install ale-py`, which brings the games along. A million frames of play (10,000 that are kept) take minutes.
An output that already holds just these frames is left as it is.
"""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("experiment") is None:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from experiment.data.sets import atari

FLAGS = flags.FLAGS
flags.DEFINE_string("game", "freeway", f"Name of the game; those of the paper are {', '.join(atari.GAMES)}.")
flags.DEFINE_integer("num_frames", 10_000, "Frames to keep.", 3)
flags.DEFINE_float("keep_probability", 0.01, "Probability of keeping a frame.", 0.0, 1.0)
flags.DEFINE_float("valid_fraction", 0.1, "Part of the frames for validation.", 0.0, 1.0)
flags.DEFINE_float("test_fraction", 0.1, "Part of the frames for testing: the last ones.", 0.0, 1.0)
flags.DEFINE_integer("seed", 0, "Seed of the play.", 0)
flags.DEFINE_string("output", None, "File to write, .npz.", required=True)


def main(argv: list[str]) -> int:
    program = Path(argv[0]).name
    try:
        if len(argv) > 1:
            raise ValueError(f"all arguments must be flags, --name=value, got {argv[1]!r}; see --help.")
        path = atari.record_dataset(
            FLAGS.output,
            FLAGS.game,
            FLAGS.num_frames,
            seed=FLAGS.seed,
            keep_probability=FLAGS.keep_probability,
            valid_fraction=FLAGS.valid_fraction,
            test_fraction=FLAGS.test_fraction,
        )
        frames = atari.load_frames(path)
    except (ValueError, OSError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 2
    sizes = ", ".join(f"{len(getattr(frames, part))} {part}" for part in ("train", "valid", "test"))
    print(f"{path}: {sizes} images of 209 x 159, {100 * frames.train.mean():.2f} % ones; {frames.about}")
    return 0


if __name__ == "__main__":
    app.run(main)
