"""Flags and batches of a script that trains on streams, several devices and several machines; see docs/scaling.md.

define_scale_flags()                                # beside define_common_flags
strategy = strategy_from_flags()                    # before any tensor is made
stream = load_stream() if FLAGS.stream else None
batch_at = Batches(train, stream=stream, transform=standardise, strategy=strategy)
step(batch_at(t), seed)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import flags

from experiment import distribution
from experiment.data.batches import batch_indices
from experiment.data.rows import Part
from experiment.data.streams.presets import PRESETS, numeric
from experiment.data.streams.reader import BatchReader
from experiment.data.streams.scan import load_stored, save, scan
from experiment.data.streams.shards import open_shards
from experiment.data.streams.stream import Stream

__all__ = [
    "Batches",
    "define_scale_flags",
    "define_strategy_flags",
    "keep_scan",
    "load_stream",
    "strategy_from_flags",
]

_TEST_FRACTION, _SAMPLE_ROWS, _SHUFFLE_ROWS = 0.1, 100_000, 2**18


def define_scale_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define the flags; call it once, beside `define_common_flags`, in a script that defines --valid_fraction.

    All of them are None by default, so that a run that does not use them has the same stored flags as ever.
    """
    fv = flag_values
    flags.DEFINE_boolean("stream", None, "Read the files of --data (or a folder, a pattern) piece by piece.", fv)
    flags.DEFINE_enum("stream_preset", None, list(PRESETS), "What the files of --stream hold.", fv)
    flags.DEFINE_string("lookup", None, "The small table that --stream_preset needs: planes, or taxi zones.", fv)
    flags.DEFINE_list("features", None, "Input columns of --stream; all but the target if not given.", fv)
    flags.DEFINE_float(
        "test_fraction",
        None,
        f"Part of the rows of --stream to set aside for tests; {_TEST_FRACTION} if not given.",
        0.0,
        1.0,
        flag_values=fv,
    )
    flags.DEFINE_integer(
        "stream_sample",
        None,
        f"Rows of each part of --stream to keep in memory; {_SAMPLE_ROWS} if not given.",
        2,
        flag_values=fv,
    )
    flags.DEFINE_integer(
        "shuffle_rows",
        None,
        f"Rows of --stream to permute together; {_SHUFFLE_ROWS} if not given.",
        1,
        flag_values=fv,
    )
    flags.DEFINE_enum("bad_rows", None, ["error", "drop"], "What to do with damaged rows of --stream.", fv)
    define_strategy_flags(fv)


def define_strategy_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define --strategy and --replicas alone, for a script without streams; None by default."""
    fv = flag_values
    flags.DEFINE_enum("strategy", None, distribution.STRATEGIES, "Several devices or machines; see docs.", fv)
    flags.DEFINE_integer("replicas", None, "Devices of --strategy=mirrored; all GPUs if not given.", 1, flag_values=fv)


def strategy_from_flags(flag_values: flags.FlagValues = flags.FLAGS) -> tf.distribute.Strategy | None:
    """`make_strategy` with --strategy and --replicas. Call it before any tensor is made.

    :raises ValueError: as `make_strategy`, and for --max_seconds with several workers, whose clocks differ.
    """
    strategy = distribution.make_strategy(flag_values.strategy or "none", num_replicas=flag_values.replicas)
    if distribution.worker_of(strategy).count > 1 and flag_values.max_seconds is not None:
        raise ValueError("--max_seconds could stop several workers at different steps; give --num_steps alone.")
    return strategy


def load_stream(flag_values: flags.FlagValues = flags.FLAGS) -> Stream:
    """Look at all rows of --data once; a resumed run has this from before, see :func:`keep_scan`.

    :raises ValueError: if flags do not go together, or as `open_shards` and `scan`.
    """
    fv = flag_values
    if fv.data is None:
        raise ValueError("--stream reads the files of --data; give their folder or pattern.")
    if fv.stream_preset is None:
        preset = numeric(fv.data, target=fv.target, task=fv.task, features=fv.features)
    elif fv.target is not None or fv.task is not None or fv.features is not None:
        raise ValueError("--target, --task and --features describe other files than those of --stream_preset.")
    else:
        preset = PRESETS[fv.stream_preset](fv.lookup)
    shards = open_shards(fv.data, layouts=preset.layouts, header=preset.header, drop_bad_rows=fv.bad_rows == "drop")
    settings = {
        "split": fv.split,
        "valid_fraction": fv.valid_fraction,
        "test_fraction": _TEST_FRACTION if fv.test_fraction is None else fv.test_fraction,
        "sample_rows": fv.stream_sample or _SAMPLE_ROWS,
    }
    stored = load_stored(_scan_file(fv), shards, preset, **settings) if fv.resume else None
    return stored or scan(shards, preset, progress=fv.progress, **settings)


def keep_scan(stream: Stream, flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Write what :func:`load_stream` found to the folder of the run, which has to exist."""
    save(stream, _scan_file(flag_values))


class Batches:
    """The minibatch of step t for this process, cut for its devices if there are several.

    :param train: the training rows as the model sees them; not used if there is a stream.
    :param stream: where the rows come from instead.
    :param transform: what is done to rows of the stream, for example standardisation.
    :param strategy: for what the batch is cut, or None.
    :raises ValueError: if a batch cannot be cut into equal parts, or there are fewer rows than in a batch.
    """

    def __init__(
        self,
        train: Part,
        *,
        stream: Stream | None = None,
        transform: Callable[[Part], Part] = lambda part: part,
        strategy: tf.distribute.Strategy | None = None,
        flag_values: flags.FlagValues = flags.FLAGS,
    ) -> None:
        fv = flag_values
        self._strategy, self._worker = strategy, distribution.worker_of(strategy)
        self._seed, self._batch_size = fv.seed, fv.batch_size
        self._size = self._worker.batch_size(fv.batch_size)
        self._reader: BatchReader | None = None
        if stream is not None:
            self._reader = BatchReader(
                stream,
                batch_size=self._size,
                seed=fv.seed,
                transform=transform,
                shuffle_rows=fv.shuffle_rows or _SHUFFLE_ROWS,
                lane=self._worker.index,
                num_lanes=self._worker.count,
            )
            return
        self._rows = train
        self._is_full = fv.batch_size >= len(train.X)
        if self._is_full and strategy is not None:
            raise ValueError(f"--strategy needs a --batch_size below the {len(train.X)} training rows; lower it.")
        self._everything = tuple(map(tf.constant, self._rows)) if self._is_full else ()

    @property
    def wait_seconds(self) -> float | None:
        """How long the steps have waited for the stream; None without one."""
        return None if self._reader is None else self._reader.wait_seconds

    def __call__(self, step: int) -> Any:
        """Inputs and targets [rows, .]; with a strategy distributed over its replicas."""
        if self._reader is not None:
            batch = self._reader(step)
        elif self._is_full:
            batch = self._everything
        else:
            rows = batch_indices(self._seed, step, len(self._rows.X), self._batch_size)
            mine = rows[self._worker.index * self._size :][: self._size]
            batch = tuple(tf.constant(array[mine]) for array in self._rows)
        return batch if self._strategy is None else distribution.split_batch(self._strategy, batch)


def _scan_file(flag_values: flags.FlagValues) -> Path:
    return Path(flag_values.run_dir) / "stream.npz"
