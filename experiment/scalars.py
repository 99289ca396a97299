"""Scalars over the steps of a run, to `scalars.jsonl` and to TensorBoard. Tags are `split/quantity_unit`."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from experiment.files import atomic_path, jsonable
from experiment.run_dir import RunDir

__all__ = ["ScalarWriter", "read_scalars"]


def read_scalars(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The objects of a `scalars.jsonl`, one for each logged step: "step" and the tags.

    :raises OSError: if it cannot be read.
    """
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


class ScalarWriter:
    """Writes scalars, images and histograms of one run; use it in a `with` statement.

        with ScalarWriter(run, resume_step=restored) as writer:
            writer.write(100, {"train/elbo_nats": -1.3, "valid/nll_nats": 1.2})

    gives the line `{"step": 100, "train/elbo_nats": -1.3, "valid/nll_nats": 1.2}`. NaN and infinite values are null in
    the file and themselves in TensorBoard. Each call is on disk when it returns. Write the scalars of a step before
    you save its checkpoint: what is later than the restored checkpoint is dropped and written again.
    """

    def __init__(self, run: RunDir, *, resume_step: int | None) -> None:
        """Open the files of `run`.

        :param run: see `experiment.run_dir`.
        :param resume_step: what `checkpoints.restore` returned. Records of later steps, and a line cut short, are
            removed; None (training starts at step 0) removes all. A repeated step so never appears twice.
        :raises ValueError: if `scalars.jsonl` has a damaged line before its last one.
        """
        last_step = -1 if resume_step is None else int(resume_step)
        run.path.mkdir(parents=True, exist_ok=True)
        _drop_lines_after(run, last_step)
        _drop_events_after(run, last_step)
        self._file = open(run.scalars_file, "a", encoding="utf-8")  # noqa: SIM115 (close() closes it)
        self._summaries = tf.summary.create_file_writer(str(run.tensorboard_dir))

    def __enter__(self) -> "ScalarWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close both files; a `with` statement does it for you."""
        self._file.close()
        self._summaries.close()

    def write(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Write one line of scalars.

        :param step: number of finished steps.
        :param scalars: tag -> number (Python, NumPy or TensorFlow scalar).
        :raises ValueError: if a tag is empty or "step", or a value is not one number.
        """
        values = {tag: _number(tag, value) for tag, value in scalars.items()}
        self._file.write(json.dumps(jsonable({"step": int(step), **values}), allow_nan=False) + "\n")
        self._file.flush()
        with self._summaries.as_default(step=int(step)):
            for tag, value in values.items():
                tf.summary.scalar(tag, value)
        self._summaries.flush()

    def image(self, step: int, tag: str, image: str | os.PathLike[str] | np.ndarray) -> None:
        """Show an image in TensorBoard.

        :param image: path of a PNG file, or an array [H, W] or [H, W, C], uint8 or float in [0, 1], C in 1, 3, 4.
        :raises ValueError: if `image` is neither.
        """
        if isinstance(image, str | os.PathLike):
            try:
                pixels = tf.io.decode_png(tf.io.read_file(os.fspath(image)))
            except tf.errors.OpError as error:
                raise ValueError(
                    f"{tag}: {os.fspath(image)} cannot be read as a PNG image ({error.message})."
                ) from error
        else:
            pixels = np.asarray(image)
            pixels = pixels[..., None] if pixels.ndim == 2 else pixels
            if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3, 4) or pixels.dtype.kind not in "uf":
                raise ValueError(
                    f"{tag}: an image must be a PNG path or an array [H, W, 1, 3 or 4] of uint8 or float, "
                    f"got shape {list(pixels.shape)} and dtype {pixels.dtype}."
                )
            pixels = pixels.astype(np.uint8 if pixels.dtype.kind == "u" else np.float32)
        with self._summaries.as_default(step=int(step)):
            tf.summary.image(tag, pixels[None])
        self._summaries.flush()

    def histogram(self, step: int, tag: str, values: Any) -> None:
        """Show the distribution of `values` (any shape) in TensorBoard."""
        with self._summaries.as_default(step=int(step)):
            tf.summary.histogram(tag, values)
        self._summaries.flush()


def _number(tag: str, value: Any) -> float:
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
    kept = []
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is empty or was cut short
        try:
            if json.loads(line)["step"] <= last_step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{run.scalars_file} line {number} is not a JSON object with a step ({error}); remove that line."
            ) from error
    with atomic_path(run.scalars_file) as temporary:
        temporary.write_text("".join(kept), encoding="utf-8")


def _drop_events_after(run: RunDir, last_step: int) -> None:
    """Rewrite TensorBoard's event files, so that any reader of them sees every step once."""
    for path in run.tensorboard_dir.glob("events.out.tfevents.*"):
        with atomic_path(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
            try:
                for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
                    event = tf.compat.v1.Event.FromString(record)
                    if event.HasField("file_version") or event.step <= last_step:
                        writer.write(record)
            except tf.errors.DataLossError:
                pass  # the process was killed while it wrote the last record
