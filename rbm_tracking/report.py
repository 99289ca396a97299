"""What is said about a tracked RBM: scalars of the filter, curves, pictures as arrays, errors of log Z, text.

`records` are what was logged: the scalars of a step with its "step", one dictionary for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from rbm_tracking.model.rbm import TENSORS, visible_probs
from rbm_tracking.track.evidence import Z_95, tracking_errors
from rbm_tracking.track.updates.learning import SMLState
from rbm_tracking.use.training import Trainer

__all__ = [
    "Curve",
    "filter_curves",
    "filter_scalars",
    "likelihood_curves",
    "log_z_curves",
    "logged_errors",
    "notes",
    "pictures",
    "table",
    "title",
]

Record = Mapping[str, float]
Records = Sequence[Record]
HalfWidth = Callable[[Record], float]
FILTER = {
    "tracker/log_z_nats": "log_z",
    "tracker/log_z_std_nats": "log_z_std",
    "tracker/bias_nats": "bias",
    "tracker/change_nats": "change",
    "tracker/bridge_sum_nats": "bridge_sum",
    "tracker/nis": "nis",
    "tracker/inflation": "inflation",
    "tracker/ess": "ess",
    "tracker/lag_nats": "lag",
    "tracker/flags": "flags",
}
"""Tag of a scalar -> the field of `learning.Observed`."""


class Curve(NamedTuple):
    """Points over the steps, half the width of their band or error bars, and a Matplotlib format such as "-" or "o"."""

    steps: list[float]
    values: list[float]
    half_widths: list[float] | None = None
    style: str = "-"


def filter_scalars(trainer: Trainer) -> dict[str, float]:
    """What the filter measured in the last update, the ladder, and swap rates since the last call; nothing if there was
    no update in between."""
    # Swap rates and temperatures by their numbers, from 1; then what the filter measured.
    rates = trainer.mean_swap_rates()
    observed = trainer.observed
    if rates is None or observed is None:
        return {}
    scalars = {f"swap/rate_{i:02d}": float(rate) for i, rate in enumerate(rates, start=1)}
    ladder = trainer.state.ladder.beta.numpy()
    scalars |= {f"ladder/beta_{i:02d}": float(beta) for i, beta in enumerate(ladder, start=1)}
    if trainer.config.track:
        scalars |= {tag: float(getattr(observed, field)[-1]) for tag, field in FILTER.items()}
    return scalars


def log_z_curves(records: Records) -> dict[str, Curve]:
    """Log Z over the steps by each estimate that was logged, nats: Figure 3 of the paper."""
    return _logged(
        records,
        {
            "tracked": ("tracker/log_z_nats", "-", _half_width),
            "AIS": ("ais/log_z_nats", "o", lambda record: 3.0 * (record.get("ais/log_z_std_nats") or 0.0)),
            "exact": ("exact/log_z_nats", "x", None),
        },
    )


def filter_curves(records: Records, num_temps: int) -> dict[str, dict[str, Curve]]:
    """Log Z, its change in an update with the bias, and the ladder: title -> label -> curve."""
    bridges = _logged(records, {"bridges": ("tracker/bridge_sum_nats", ".", None)})
    change = {"importance": ("tracker/change_nats", ".", None), "bias": ("tracker/bias_nats", "-", None)}
    ladder = {f"beta {i}": (f"ladder/beta_{i:02d}", "-", None) for i in range(1, num_temps + 1)}
    return {
        "log Z": {**bridges, **log_z_curves(records)},
        "change in an update": _logged(records, change),
        "inverse temperatures": _logged(records, ladder),
    }


def likelihood_curves(records: Records) -> dict[str, Curve]:
    """Log-likelihood of "train" and "valid" by each estimate of log Z, nats per row."""
    # The mean log q~ of a part is its log-likelihood plus the tracked log Z: less another log Z where that is known.
    curves = {}
    for part in ("train", "valid"):
        tag = f"{part}/log_likelihood_nats"
        rows = [record for record in records if record.get(tag) is not None]
        widths = [_half_width(record) for record in rows]
        curves[f"{part}, tracked"] = Curve([r["step"] for r in rows], [r[tag] for r in rows], widths)
        for method, style in (("ais", "o"), ("exact", "x")):
            both = [record for record in rows if record.get(f"{method}/log_z_nats") is not None]
            if both:
                values = [r[tag] + r["tracker/log_z_nats"] - r[f"{method}/log_z_nats"] for r in both]
                curves[f"{part}, {method}"] = Curve([r["step"] for r in both], values, None, style)
    return curves


def logged_errors(records: Records) -> dict[str, float | None]:
    """`tracking_errors` of the tracked log Z over the steps where the exact one was logged, too; {} without such."""
    pairs = [r for r in records if r.get("exact/log_z_nats") is not None and r.get("tracker/log_z_nats") is not None]
    if not pairs:
        return {}
    return tracking_errors(
        [r["tracker/log_z_nats"] - r["exact/log_z_nats"] for r in pairs],
        [r["tracker/log_z_std_nats"] for r in pairs],
        [int(r["tracker/flags"]) for r in pairs],
        [_half_width(r) for r in pairs],
    )


def pictures(state: SMLState, shape: tuple[int, int] | None) -> dict[str, NDArray]:
    """Filters of up to 100 hidden units around grey 0.5, and probabilities of the pixels given the particles at beta =
    1, [n, H, W] each.

    :param shape: H and W; None for rows that are no images, of which there are no pictures.
    """
    if shape is None:
        return {}
    # Filters by the largest weight of all; probabilities given means of the hidden units.
    filters = state.rbm.W.numpy()[:100].reshape(-1, *shape)
    hidden = state.rbm.hidden.mean(tf.boolean_mask(state.chains.a, tf.equal(state.chains.level, 0)), TENSORS)
    samples = visible_probs(state.rbm, hidden).numpy().reshape(-1, *shape)
    return {"filters": 0.5 + 0.5 * filters / (np.abs(filters).max() or 1.0), "samples": samples}


ESTIMATES = ("tracked", "exact", "ais", "reverse_ais", "trajectory_ais", "reverse_trajectory_ais", "evidence")
"""What log Z is known by, in the order in which it is shown."""


def table(result: Mapping[str, Any]) -> list[list[str]]:
    """Log-likelihoods of `evaluation.final` by each estimate of log Z and by all of the evidence, with a line of
    titles."""
    rows = [["log Z by", "log Z", "interval", "valid", "test"]]
    for name in ESTIMATES:
        if name not in result:
            continue
        entry = result[name]
        log_z = entry["log_z_nats"]
        scores = [f"{entry[f'{part}_log_likelihood_nats']:.3f}" for part in ("valid", "test")]
        rows.append([name.replace("_", " "), f"{log_z:.3f}", _interval(entry), *scores])
    return rows


def _interval(entry: Mapping[str, Any]) -> str:
    """What is known of an estimate of log Z, as a cell."""
    # Of the filter to either side; of AIS and of all evidence from end to end.
    for name in ("half_width_nats", "std_nats"):
        if name in entry:
            return f"± {entry[name]:.2f}"
    for name in ("three_sigma_nats", "interval_nats"):
        if name in entry:
            return "{:.6g} to {:.6g}".format(*entry[name])
    return ""


def notes(result: Mapping[str, Any], errors: Mapping[str, Any], ais_chains: int) -> list[str]:
    """What else there is to say about a run, as lines of text.

    :param result: of `evaluation.final`.
    :param errors: of :func:`logged_errors`.
    :param ais_chains: how many chains the effective ones are of.
    """
    # What the columns of the table are, what makes them doubtful, and the verdict with its reasons.
    lines = ["log-likelihoods: nats per row, mean over the rows"]
    lines.append("intervals: 95 % of the filter and of all evidence, three standard errors of AIS")
    estimates = {name.replace("_", " "): result[name] for name in ESTIMATES if name in result}
    effective = [f"{name} {entry['ess']:.0f}" for name, entry in estimates.items() if "ess" in entry]
    if effective:
        lines.append(f"effective chains of {ais_chains}: {', '.join(effective)}")
    if flags := result.get("tracked", {}).get("flags"):
        lines.append(f"the filter is flagged: {', '.join(flags)}")
    if "evidence" in result:
        lines.append(f"evidence: {result['evidence']['statement']}")
    lines += [f"why: {reason}" for reason in result.get("evidence", {}).get("reasons", ())]
    if errors:
        lines.append(
            "tracked against exact log Z: rmse {rmse_nats:.3f}, largest error {max_nats:.3f} nats over {num_exact} "
            "updates; 95 % intervals cover {coverage_95_with_lag:.1%}, without the lag {coverage_95:.1%}; flags "
            "{flagged:.1%}".format(**errors)
        )
    return lines


def title(settings: str) -> str:
    """What distinguishes a run from others.

    :param settings: "--name=value", one a line.
    """
    # A table of one's own goes by the name of its file.
    values = dict(line.removeprefix("--").split("=", 1) for line in settings.splitlines() if "=" in line)
    if data := values.get("data"):
        values["data"] = PurePath(data).name
        values.pop("dataset", None)
    phrases = {
        "dataset": "{}",
        "data": "{}",
        "hidden": "{} hidden units",
        "learning_rate": "rate {}",
        "learning_rate_decay": "decay {}",
    }
    return ", ".join(words.format(values[name]) for name, words in phrases.items() if name in values)


def _half_width(record: Record) -> float:
    """Half of the 95 % interval of the tracked log Z, as the lag widens it."""
    return max(Z_95 * (record.get("tracker/log_z_std_nats") or 0.0), record.get("tracker/lag_nats") or 0.0)


def _logged(records: Records, wanted: Mapping[str, tuple[str, str, HalfWidth | None]]) -> dict[str, Curve]:
    """Curves by label of (tag, style, half width of a record or None), if they were logged."""
    curves = {}
    for label, (tag, style, half_width) in wanted.items():
        points = [record for record in records if record.get(tag) is not None]
        if points:
            widths = [half_width(record) for record in points] if half_width else None
            curves[label] = Curve([r["step"] for r in points], [r[tag] for r in points], widths, style)
    return curves
