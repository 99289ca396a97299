"""What is said about a comparison: its table and bars; and what the posterior of a network looks like.

`results` is what `Comparison.results` gives: method, as "binary D" or "arow", to its numbers. `published` are errors in
percent by method, as those of `comparison.PUBLISHED`; "bp" stands for every backpropagation that is not clipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ..estimators.baselines import RIVALS
from ..network.network import EBPNetwork

__all__ = [
    "Bars",
    "bars",
    "metrics",
    "notes",
    "posterior_scalars",
    "posterior_shapes",
    "reliability",
    "table",
    "title",
    "verdict",
]

Results = Mapping[str, Mapping[str, Any]]

_MAX_SHOWN = 100_000
_DECIDED = 0.01


class Bars(NamedTuple):
    """Bars of one colour: heights [n] and half the lengths of their error bars [n]."""

    heights: NDArray[np.float64]
    spreads: NDArray[np.float64]


def title(method: str) -> str:
    """What a method is called in tables."""
    return RIVALS.get(method) or f"EBP {method}"


def table(results: Results, published: Mapping[str, float] | None = None) -> list[list[str]]:
    """Errors in percent with their standard errors, what was published if anything was, and seconds, as cells of
    text."""
    known = [_cell(_published(published, method)) for method in results]
    cells = [["", "last epoch", "best epoch", *(["published"] if any(known) else []), "seconds"]]
    for (method, result), error in zip(results.items(), known, strict=True):
        errors = [_cell(result[f"{kind}_percent"], result[f"{kind}_standard_error"]) for kind in ("last", "best")]
        seconds = result.get("seconds_per_epoch", result.get("seconds_per_fold"))
        cells.append([title(method), *errors, *([error] if any(known) else []), f"{seconds:.2f}"])
    return cells


def metrics(results: Results) -> dict[str, float | None]:
    """What runs are compared by, of the outputs with probabilities whose log loss is smallest after the last epoch."""
    best = min((found for found in results.values() if "log_loss_nats" in found), key=lambda f: f["log_loss_nats"])
    return {
        "log_density_nats": -best["log_loss_nats"],
        "error_percent": best["last_percent"],
        "calibration_error": best["calibration_error_percent"] / 100.0,
    }


def verdict(results: Results) -> str:
    """The best of our outputs beside the best rival, by their errors after the last epoch."""
    ours = [name for name in results if name not in RIVALS]
    rivals = [name for name in results if name in RIVALS]
    parts = []
    for names in filter(None, (ours, rivals)):
        best = min(names, key=lambda name: results[name]["last_percent"])
        error = _cell(results[best]["last_percent"], results[best]["last_standard_error"])
        parts.append(f"{title(best)} {error} % errors")
    return "; best rival: ".join(parts) + "."


def reliability(results: Results) -> list[list[str]]:
    """How far the probabilities can be trusted, as cells of text: log loss and calibration error of each output."""
    rows = [["", "log loss, nats", "calibration error, %"]]
    for name, found in results.items():
        if "log_loss_nats" in found:
            rows.append([title(name), f"{found['log_loss_nats']:.4f}", f"{found['calibration_error_percent']:.2f}"])
    return rows


def notes(results: Results) -> list[str]:
    """What the numbers of the table are, and which grids were too narrow, as lines of text."""
    over = "seeds" if any(len(result["errors_percent"]) > 1 for result in results.values()) else "folds"
    lines = [
        f"test error in percent, mean ± standard error over {over}; seconds of an epoch (EBP) or of tuning and training"
    ]
    at_edge = [title(name) for name, result in results.items() if result.get("folds_at_edge_of_grid", 0) > 0]
    if at_edge:
        lines.append(f"in some folds the best value was at the edge of its grid: {'; '.join(at_edge)}")
    return lines


def bars(results: Results, published: Mapping[str, float] | None = None) -> tuple[list[str], dict[str, Bars], Any]:
    """Errors in percent for a figure.

    :return: a label for each method; "last epoch" and "best epoch" to their bars; and the published errors [n], NaN
        where there is none.
    """
    labels = [title(method) for method in results]
    found = {}
    for kind in ("last", "best"):
        heights = np.array([result[f"{kind}_percent"] for result in results.values()])
        spreads = np.array([result[f"{kind}_standard_error"] or 0.0 for result in results.values()])
        found[f"{kind} epoch"] = Bars(heights, spreads)
    known = [_published(published, method) for method in results]
    return labels, found, np.array([np.nan if value is None else value for value in known])


def posterior_scalars(network: EBPNetwork) -> dict[str, float]:
    """How much is known of the weights of each layer.

    :return: "layer_1/entropy_nats", the mean entropy of a weight in nats; and of discrete weights
        "layer_1/decided_percent", how many of those of `posterior_shapes` have less than a hundredth of the prior's
        variance.
    """
    scalars = {}
    shapes, priors = posterior_shapes(network), network.architecture.priors
    for number, (h, prior, entropy) in enumerate(zip(shapes.values(), priors, network.entropy(), strict=True), start=1):
        scalars[f"layer_{number}/entropy_nats"] = entropy
        if prior.is_discrete:
            decided = prior.var(tf.constant(h)) < _DECIDED * prior.var(tf.zeros([], h.dtype))
            scalars[f"layer_{number}/decided_percent"] = 100.0 * float(tf.reduce_mean(tf.cast(decided, h.dtype)))
    return scalars


def posterior_shapes(network: EBPNetwork) -> dict[str, NDArray[Any]]:
    """ "layer_1/h", ... to at most about 100,000 of its h, evenly spaced, for histograms."""
    return {
        f"layer_{number}/h": tf.reshape(h, [-1])[:: 1 + int(np.prod(h.shape)) // _MAX_SHOWN].numpy()
        for number, h in enumerate(network.h, start=1)
    }


def _cell(value: float | None, error: float | None = None) -> str:
    return "" if value is None else f"{value:.2f}" + ("" if error is None else f" ± {error:.2f}")


def _published(published: Mapping[str, float] | None, method: str) -> float | None:
    return (published or {}).get("bp" if method in ("bp_ce", "bp_mse") else method)
