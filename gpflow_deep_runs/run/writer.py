"""Scalars over the steps of a run, to `scalars.jsonl` and to TensorBoard. Tags are `split/quantity_unit`."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import logging
from tensorboard.plugins.scalar.summary_v2 import scalar_pb

from gpflow_deep_base.files import atomic_path, entries, jsonable, make_folder, read_jsonl, sync_folder
from gpflow_deep_runs.report.images import tiled
from gpflow_deep_runs.run.progress import headline
from gpflow_deep_runs.run_dir import RunDir

__all__ = ["EVENTS", "Shown", "Writer", "description_of", "preformatted"]

HEADLINE = ("headline", "test", "train", "valid")
PARTS = {"train": "training rows", "valid": "validation rows", "test": "test rows"}
QUANTITIES = {
    "elbo_nats": "bound on the log likelihood that training raises, estimated from minibatches; nats, higher is better",
    "log_likelihood_nats": "mean log density a row; nats, higher is better",
    "nll_nats": "mean negative log likelihood a row; nats, lower is better",
    "description_length_nats": "mean description length a row, at least the negative log likelihood; lower is better",
    "log_loss_nats": "mean of minus the log probability of the right label; nats, lower is better",
    "rmse": "root mean square error, in the units of the target; lower is better",
    "accuracy": "share of right labels; higher is better",
    "error_percent": "wrong labels in percent; lower is better",
    "kl_nats": "how far the posterior has moved from the prior; nats",
    "log_z_nats": "log of the partition function; nats",
    "condition_Kuu": "condition number of the covariance of the inducing outputs; above 1e12 it is close to singular",
    "jitter": "what was added to the diagonal of that matrix",
    "noise_variance": "variance of the noise of a layer",
    "kernel_variance": "variance of the kernel",
    "steps_per_second": "steps of training in a second",
}
"""What the last word of a tag stands for."""
EVENTS = "events.out.tfevents.*"


class Shown(NamedTuple):
    """What an evaluation shows: grey images [N, H, W] by name, and arrays of numbers by name."""

    images: Mapping[str, np.ndarray] = {}
    histograms: Mapping[str, "npt.ArrayLike | tf.Tensor"] = {}


class Writer:
    """Writes scalars, images and histograms of one run; use it in a `with` statement.

        with Writer(run, resume_step=restored) as writer:
            writer.scalars(100, {"train/elbo_nats": -1.3, "valid/nll_nats": 1.2})

    gives the line `{"step": 100, "train/elbo_nats": -1.3, "valid/nll_nats": 1.2}`. NaN and infinite values are null in
    the file and themselves in TensorBoard, where the main scalar of each part comes first once more, as headline/, and
    tags other than test/, train/ and valid/ begin with "~", so that they come last. A line survives the end of the
    process when the call returns, and a power failure after :meth:`sync`. Write the scalars of a step and call `sync`
    before you save its checkpoint: what is later than the restored checkpoint is dropped and written again.
    """

    def __init__(self, run: RunDir, *, resume_step: int | None) -> None:
        """Open the files of `run`.

        :param run: see `gpflow_deep_runs.run_dir`.
        :param resume_step: what `checkpoints.restore` returned. Records of later steps, and a line cut short, are
            removed; None (training starts at step 0) removes all. A repeated step so never appears twice. Scalars that
            a damaged event file has lost are written again from `scalars.jsonl`, with a warning.
        :raises ValueError: if `scalars.jsonl` has a damaged line before its last one.
        """
        last_step = -1 if resume_step is None else int(resume_step)
        make_folder(run.path)
        # Drop what is later than the checkpoint from both kinds of files; what only the events lost is written again.
        _drop_lines_after(run, last_step)
        _mend(run, kept=_drop_events_after(run, last_step))
        self._file = open(run.scalars_file, "a", encoding="utf-8")  # noqa: SIM115 (close() closes it)
        sync_folder(run.path)
        self._summaries = tf.summary.create_file_writer(str(run.tensorboard_dir))

    @classmethod
    def of_chief(
        cls, run: RunDir, is_chief: bool, *, resume_step: int | None
    ) -> "AbstractContextManager[Writer | None]":
        """The writer of the chief of several workers; None for the others."""
        return cls(run, resume_step=resume_step) if is_chief else nullcontext()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close both files; a `with` statement does it for you."""
        self._file.close()
        self._summaries.close()

    def scalars(self, step: int, scalars: Mapping[str, object]) -> None:
        """Write one line of scalars.

        :param step: number of finished steps.
        :param scalars: tag -> number (Python, NumPy or TensorFlow scalar).
        :raises ValueError: if a tag is empty or "step", or a value is not one number.
        """
        values = {tag: _number(tag, value) for tag, value in scalars.items()}
        # The line of the file first: TensorBoard's copy can be made again from it.
        self._file.write(json.dumps(jsonable({"step": int(step), **values}), allow_nan=False) + "\n")
        self._file.flush()
        self.rates(step, _with_headline(values))

    def rates(self, step: int, scalars: Mapping[str, float]) -> None:
        """Scalars for TensorBoard alone: what another run of the same flags would not repeat, such as speed."""
        with self._summaries.as_default(step=int(step)):
            for tag, value in scalars.items():
                tf.summary.scalar(_shown_tag(tag), value, description=description_of(tag))
        self._summaries.flush()

    def sync(self) -> None:
        """Return when the lines are safe from a power failure."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def text(self, step: int, tag: str, text: str) -> None:
        """Show preformatted text in TensorBoard: the flags, versions, the table of the result."""
        with self._summaries.as_default(step=int(step)):
            tf.summary.text(tag, preformatted(text))
        self._summaries.flush()

    def show(self, step: int, shown: Shown) -> None:
        """All images, tiled, and histograms of an evaluation."""
        with self._summaries.as_default(step=int(step)):
            for tag, images in shown.images.items():
                tf.summary.image(_shown_tag(tag), tiled(images)[None, ..., None])
            for tag, values in shown.histograms.items():
                tf.summary.histogram(_shown_tag(tag), values)
        self._summaries.flush()


def description_of(tag: str) -> str | None:
    """What TensorBoard says of a scalar: the quantity, and of which rows; None where nothing is known of it."""
    # The last word of a tag is the quantity, those before it say of which rows.
    *parts, last = tag.split("/")
    text = QUANTITIES.get(last)
    if text is None and last.startswith("lengthscale_"):
        text = "distance along this input over which a function changes, in standardised units; long is irrelevant"
    part_rows = next((PARTS[part] for part in parts if part in PARTS), "")
    if text is None:
        return f"Of the {part_rows}." if part_rows else None
    return f"{text[0].upper()}{text[1:]}{f'; {part_rows}' if part_rows else ''}."


def _with_headline(scalars: Mapping[str, float]) -> dict[str, float]:
    return {**scalars, **{f"headline/{tag}": value for tag, value in headline(scalars).items()}}


def _shown_tag(tag: str) -> str:
    return tag if tag.split("/")[0] in HEADLINE else f"~{tag}"


def preformatted(text: str) -> str:
    """Text as TensorBoard shows it with its line breaks: indented Markdown."""
    return "\n".join("    " + line for line in text.splitlines())


def _number(tag: str, value: object) -> float:
    if not isinstance(tag, str) or not tag or tag == "step":
        raise ValueError(f'a tag must be a string like "valid/nll_nats", got {tag!r}.')
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"{tag} must be one number, got shape {list(array.shape)} and dtype {array.dtype}.")
    return float(array.reshape(()))


def _drop_lines_after(run: RunDir, last_step: int) -> None:
    if not run.scalars_file.exists():
        return
    lines = run.scalars_file.read_text(encoding="utf-8", errors="replace").split("\n")
    kept_lines = []
    # What follows the last newline is empty, or was cut short.
    for number, line in enumerate(lines[:-1], start=1):
        try:
            if json.loads(line)["step"] <= last_step:
                kept_lines.append(line + "\n")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{run.scalars_file} line {number} is not a JSON object with a step ({error}); remove that line."
            ) from error
    with atomic_path(run.scalars_file) as temporary:
        temporary.write_text("".join(kept_lines), encoding="utf-8")


def _drop_events_after(run: RunDir, last_step: int) -> set[tuple[str, int]]:
    """Rewrite TensorBoard's event files, so that any reader of them sees every step once.

    :return: tag and step of each scalar (and image, ...) that is left.
    """
    kept_events: set[tuple[str, int]] = set()
    # A process that was killed here has left a file that TensorBoard would read, too.
    for leftover in entries(run.tensorboard_dir, f".tmp-*-{EVENTS}"):
        leftover.unlink()
    # Each file is written anew, without later steps and without what another file has already.
    for path in entries(run.tensorboard_dir, EVENTS):
        with atomic_path(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
            for record, event in _events(path):
                event_keys = {(value.tag, event.step) for value in event.summary.value}
                # A process that was killed within `_mend` has left events in two files.
                is_repeated = bool(event_keys) and event_keys <= kept_events
                if event.HasField("file_version") or (event.step <= last_step and not is_repeated):
                    writer.write(record)
                    kept_events |= event_keys
    return kept_events


def _mend(run: RunDir, kept: set[tuple[str, int]]) -> None:
    """Add the scalars of `scalars.jsonl` that are not among those kept in the event files.

    All are put into one file in the order of their steps, as TensorBoard takes a smaller step for a new start, and
    forgets the larger ones before it.
    """
    lost_scalars = []
    # Scalars that the file of lines has and no event file.
    for line in read_jsonl(run.scalars_file) if run.scalars_file.exists() else []:
        step = line.pop("step")
        finite_scalars = {tag: value for tag, value in line.items() if value is not None}
        values = {_shown_tag(tag): value for tag, value in _with_headline(finite_scalars).items()}
        lost_scalars += [(step, tag, value) for tag, value in values.items() if (tag, step) not in kept]
    if not lost_scalars:
        return

    # All events, old and lost, in the order of their steps in one file.
    paths = entries(run.tensorboard_dir, EVENTS)
    events = [event for path in paths for _, event in _events(path) if not event.HasField("file_version")]
    events += [_scalar_event(step, tag, value) for step, tag, value in lost_scalars]
    head = tf.compat.v1.Event(wall_time=time.time(), file_version="brain.Event:2")
    mended = run.tensorboard_dir / EVENTS.replace("*", "0.mended")  # the first by its name
    with atomic_path(mended) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
        for event in [head, *sorted(events, key=lambda event: event.step)]:
            writer.write(event.SerializeToString())
    # The others are removed once it is whole.
    for path in paths:
        if path != mended:
            path.unlink()
    count = sum(not tag.startswith("headline/") for _, tag, _ in lost_scalars)
    logging.warning(
        "TensorBoard's files in %s were damaged: %d scalars are written again from %s; images and histograms after the "
        "damage are lost.", run.tensorboard_dir, count, run.scalars_file,
    )  # fmt: skip


def _scalar_event(step: int, tag: str, value: float) -> tf.compat.v1.Event:
    event = tf.compat.v1.Event(wall_time=time.time(), step=step)
    event.summary.MergeFromString(scalar_pb(tag, value).SerializeToString())  # of TensorBoard's own class of messages
    return event


def _events(path: Path) -> Iterator[tuple[bytes, tf.compat.v1.Event]]:
    """The records of an event file, up to the first damaged one."""
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            yield record, tf.compat.v1.Event.FromString(record)
    except tf.errors.DataLossError:
        return
