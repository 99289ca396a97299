"""What TensorBoard shows of the end of a run: settings as hparams with the final numbers, the report, figures."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams_api

from gpflow_deep_runs.run.folder import RunDir
from gpflow_deep_runs.run.writer import EVENTS, pixels, preformatted

__all__ = ["hparams_of", "numbers_of", "write_final"]

NO_HEADLINE = {"seconds", "seed", "rows", "steps", "step"}


def write_final(
    run: RunDir,
    step: int,
    *,
    hparams: Mapping[str, bool | float | str],
    numbers: Mapping[str, float],
    text: str,
    images: Mapping[str, Path],
) -> None:
    """Write it, in a run of its own beside that of the steps, made anew each time.

    :param hparams: settings by name, for the table of the hparams plugin.
    :param numbers: its metrics, tag -> value.
    :param text: the report.
    :param images: tag -> PNG file.
    """
    folder = run.tensorboard_dir / "final"
    for path in folder.glob(EVENTS):
        path.unlink()
    with tf.summary.create_file_writer(str(folder)).as_default(step=step):
        hparams_api.hparams(dict(hparams), trial_id="/".join(run.path.parts[-2:]))
        for tag, value in numbers.items():
            tf.summary.scalar(tag, value)
        tf.summary.text("report", preformatted(text))
        for tag, image in images.items():
            tf.summary.image(f"~{tag}", pixels(tag, image)[None])


def hparams_of(flags: str) -> dict[str, bool | float | str]:
    """Flags by name, with their types as far as a line tells them.

    :param flags: one a line.
    """
    found: dict[str, bool | float | str] = {}
    for line in flags.splitlines():
        name, has_value, value = line.removeprefix("--").partition("=")
        if not has_value:
            found[name.removeprefix("no")] = not name.startswith("no")
            continue
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = value
    return found


def numbers_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of any depth by tag, behind the scalars of the steps; not those in lists, and not seconds and counts."""
    return {f"~final/{path}": value for path, value in _numbers(result)}


def _numbers(result: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    for key, value in result.items():
        tag = f"{path}/{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from _numbers(value, tag)
        elif _is_number(value) and not set(str(key).split("_")) & NO_HEADLINE:
            yield tag, float(value)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_number and math.isfinite(value)
