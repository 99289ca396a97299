"""What TensorBoard shows of the end of a run: settings as hparams with the final numbers, the report, figures."""

from collections.abc import Mapping

import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams_api

from gpflow_deep_base.files import entries
from gpflow_deep_runs.run.writer import EVENTS, preformatted
from gpflow_deep_runs.run_dir import FREE_ON_RESUME, RunDir

__all__ = ["METRICS", "hparams_of", "metrics_of", "write_final"]

METRICS = {
    "log_density_nats": "Mean log density of test rows (of labels, log probability), nats a row: higher is better.",
    "rmse": "Root mean square error of test rows, in the units of the target: lower is better.",
    "error_percent": "Test rows with a wrong label, in percent: lower is better.",
    "crps": "Continuous ranked probability score of test rows, in the units of the target: lower is better.",
    "coverage_90": "Share of test rows within the central 90% intervals: right at 0.9.",
    "calibration_error": "Mean distance of confidence from the share of right labels: lower is better.",
    "bytes": "Size of the file of the trained model.",
    "train_seconds": "Seconds of training.",
}
"""What runs are compared by, of whatever model, in the order in which TensorBoard shows it."""

_NOT_COMPARED = FREE_ON_RESUME - {"data", "num_steps"} | {"compare", "eval_rows"}
"""Flags that only say how a run is run and looked at."""


def write_final(
    run: RunDir,
    step: int,
    *,
    hparams: Mapping[str, bool | float | str],
    numbers: Mapping[str, float],
    text: str,
    images: Mapping[str, bytes],
) -> None:
    """Write it, in a run of its own beside that of the steps, made anew each time.

    :param hparams: settings by name, for the table of the hparams plugin.
    :param numbers: its metrics, tag -> value; see `metrics_of`.
    :param text: the report.
    :param images: tag -> content of a PNG file.
    """
    # Events of an earlier end are removed, or TensorBoard would show both.
    folder = run.tensorboard_dir / "final"
    for path in entries(folder, EVENTS):
        path.unlink()
    with tf.summary.create_file_writer(str(folder)).as_default(step=step):
        # Settings with the numbers that runs are compared by, then the report and its figures.
        # The column of trials shows some 17 letters: the run's own name comes first.
        hparams_api.hparams(dict(hparams), trial_id=f"{run.path.name} in {run.path.parent.name}")
        for tag, value in numbers.items():
            tf.summary.scalar(tag, value, description=METRICS.get(tag.partition("_")[2], ""))
        tf.summary.text("report", preformatted(text))
        for tag, content in images.items():
            tf.summary.image(f"~{tag}", tf.io.decode_png(content)[None])


def hparams_of(flags: str) -> dict[str, bool | float | str]:
    """Flags by name, with their types as far as a line tells them, but those that only say how a run is run and looked
    at.

    :param flags: one a line.
    """
    hparams: dict[str, bool | float | str] = {}
    for line in flags.splitlines():
        name, has_value, value = line.removeprefix("--").partition("=")
        if name in _NOT_COMPARED:
            continue
        # Truths are --name and --noname, numbers what Python reads as one, and all else is text.
        if not has_value:
            hparams[name.removeprefix("no")] = not name.startswith("no")
            continue
        try:
            hparams[name] = float(value)
        except ValueError:
            hparams[name] = value
    return hparams


def metrics_of(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Metrics by tag, numbered as TensorBoard sorts them by name: the same tags for all models.

    :param metrics: names of `METRICS`; what is None has no tag.
    :raises ValueError: for other names.
    """
    if unknown := sorted(set(metrics) - set(METRICS)):
        raise ValueError(f"metrics may be {', '.join(METRICS)}, got {', '.join(unknown)}.")
    # Numbered by their place in `METRICS`, of which a run may have only some.
    ordered_metrics = {name: metrics.get(name) for name in METRICS}
    return {
        f"~final/{number}_{name}": float(value)
        for number, (name, value) in enumerate(ordered_metrics.items(), start=1)
        if value is not None
    }
