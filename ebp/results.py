"""Numbers of a comparison: errors in percent, their means and standard errors, and what was published."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .baselines import error_percent
from .inputs import Matrix
from .network import EBPNetwork
from .seeds import Seed

__all__ = ["PUBLISHED", "errors_percent", "network_results", "rival_results", "summary"]

PUBLISHED: dict[str, dict[str, float]] = {
    "reuters_i6": {"real D": 14.5, "real P": 11.35, "binary D": 21.7, "binary P": 9.95, "arow": 11.72, "bp": 13.3},
    "ng20_comp_hw": {"real D": 5.06, "real P": 4.96, "binary D": 7.54, "binary P": 4.44, "arow": 5.79, "bp": 7.02},
    "amazon_apparel_books": {"real D": 2.14, "real P": 2.09, "binary D": 2.45, "binary P": 2.01, "arow": 2.24},
    "mnist": {"real P": 1.66, "binary P": 2.12},
}
"""Errors in percent from Table 1 of the paper, and for MNIST from Cheng, Soudry, Mao and Lan (2015)."""


def errors_percent(
    network: EBPNetwork, X: Matrix, Y: NDArray[Any], *, num_votes: int = 0, seed: Seed = 0
) -> dict[str, float]:
    """Percentage of wrong rows by each output: "D" (EBP-D), "P" (EBP-P) and, if there are any, "votes".

    :param X: coded inputs [N, D]. :param Y: targets -1 and +1, [N, C].
    :param num_votes: networks to draw from the posterior by `seed`, which vote.
    """
    outputs = {"D": network.deterministic_scores(X), "P": network.predict_scores(X)}
    if num_votes:
        outputs["votes"] = network.vote(X, num_votes, seed)
    return {name: float(error_percent(scores, Y)) for name, scores in outputs.items()}


def summary(errors: NDArray[np.float64]) -> dict[str, Any]:
    """Means of errors [seeds, folds, epochs] with their standard errors, over seeds or, of one seed, over folds.

    :return: "last_percent" of the last epoch and "best_percent" of the best one, which is that of the smallest mean
        over folds, for each seed on its own; "last_standard_error" and "best_standard_error", the deviation of the
        sample over the root of its size (None of a single number); "best_epochs" of the seeds, from 1; and
        "errors_percent", all errors.
    """
    best = errors.mean(axis=1).argmin(axis=1)  # [seeds]
    result: dict[str, Any] = {}
    for name, epochs in (("last", np.full(len(errors), errors.shape[2] - 1)), ("best", best)):
        values = np.array([seed[:, epoch] for seed, epoch in zip(errors, epochs, strict=True)])  # [seeds, folds]
        of = values.mean(axis=1) if len(values) > 1 else values[0]
        result[f"{name}_percent"] = float(of.mean())
        result[f"{name}_standard_error"] = float(of.std(ddof=1) / np.sqrt(len(of))) if len(of) > 1 else None
    return {**result, "best_epochs": (best + 1).tolist(), "errors_percent": errors.tolist()}


def network_results(records: NDArray[np.float64], method: str, num_votes: int) -> dict[str, dict[str, Any]]:
    """Results of the outputs of networks with one kind of weights.

    :param records: [seeds, folds, epochs, 4 or more]: seconds of the epoch, and errors in percent of D, P and votes.
    :return: "binary D", "binary P" and "binary 10 votes", say, to :func:`summary` and "seconds_per_epoch".
    """
    outputs = ["D", "P", *([f"{num_votes} votes"] if num_votes else [])]
    seconds = {"seconds_per_epoch": float(np.mean(records[..., 0]))}
    return {
        f"{method} {output}": {**summary(records[..., column]), **seconds}
        for column, output in enumerate(outputs, start=1)
    }


def rival_results(records: NDArray[np.float64]) -> dict[str, Any]:
    """Results of a rival.

    :param records: [seeds, folds, 3 + epochs]: seconds, the tuned value, 1 if that is at an edge of its grid, and
        errors in percent.
    :return: :func:`summary`, "tuned_values" [seeds][folds], "folds_at_edge_of_grid" and "seconds_per_fold".
    """
    return {
        **summary(records[..., 3:]),
        "tuned_values": records[..., 1].tolist(),
        "folds_at_edge_of_grid": int(np.sum(records[..., 2])),
        "seconds_per_fold": float(np.mean(records[..., 0])),
    }
