"""Numbers of networks and their rivals on folds: errors in percent, their means and standard errors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gpflow_deep_base.scores import label_scores
from gpflow_deep_base.seeds import Seed

from ..network.heads import SoftmaxHead, head_scores
from ..network.inputs import Matrix
from ..network.network import EBPNetwork
from .baselines import error_percent
from .calibration import log_probabilities

__all__ = [
    "EpochResult",
    "Result",
    "RivalResult",
    "errors_percent",
    "network_results",
    "probability_scores",
    "read_results",
    "rival_results",
    "summary",
    "written_results",
]


@dataclasses.dataclass(frozen=True)
class EpochResult:
    """What an epoch of expectation backpropagation gave.

    :ivar method: the kind of weights.
    :ivar seed: of the run.
    :ivar fold: number.
    :ivar epoch: number, from 0.
    :ivar seconds: of the training, without the test.
    :ivar errors_percent: of the test rows, by output: "D", "P", "votes".
    :ivar log_loss_nats: of EBP-P's probabilities, mean over the test rows.
    :ivar calibration_error_percent: of EBP-P's probabilities, see `gpflow_deep_base.scores`.
    """

    method: str
    seed: int
    fold: int
    epoch: int
    seconds: float
    errors_percent: dict[str, float]
    log_loss_nats: float
    calibration_error_percent: float


@dataclasses.dataclass(frozen=True)
class RivalResult:
    """What tuning and training a rival gave.

    :ivar method: name of the rival.
    :ivar seed: of the run.
    :ivar fold: number.
    :ivar seconds: of tuning and training.
    :ivar tuned_value: what was chosen.
    :ivar is_at_edge: whether it is at an edge of its grid.
    :ivar errors_percent: of the test rows, after each epoch.
    """

    method: str
    seed: int
    fold: int
    seconds: float
    tuned_value: float
    is_at_edge: bool
    errors_percent: tuple[float, ...]


Result = EpochResult | RivalResult


def written_results(results: Iterable[Result]) -> str:
    """The results as JSON lines."""
    return "".join(f"{json.dumps(dataclasses.asdict(result))}\n" for result in results)


def read_results(lines: str) -> list[Result]:
    """The results of JSON lines, see `written_results`."""
    results: list[Result] = []
    for line in lines.splitlines():
        fields = json.loads(line)
        if "epoch" in fields:
            results.append(EpochResult(**fields))
        else:
            results.append(RivalResult(**{**fields, "errors_percent": tuple(fields["errors_percent"])}))
    return results


def errors_percent(
    network: EBPNetwork, X: Matrix, Y: NDArray[Any], *, num_votes: int = 0, seed: Seed = 0
) -> dict[str, float]:
    """Percentage of wrong rows by each output: "D" (EBP-D), "P" (EBP-P) and, if there are any, "votes".

    :param X: coded inputs [N, D].
    :param Y: targets -1 and +1, [N, C].
    :param num_votes: networks to draw from the posterior by `seed`, which vote.
    """
    outputs = {"D": network.deterministic_scores(X), "P": network.predict_scores(X)}
    if num_votes:
        outputs["votes"] = network.vote(X, num_votes, seed)
    return {name: error_percent(scores, Y) for name, scores in outputs.items()}


def probability_scores(network: EBPNetwork, X: Matrix, Y: NDArray[Any]) -> tuple[float, float]:
    """Log loss in nats and expected calibration error in percent of EBP-P's probabilities, Eq. (4.7).

    :param X: coded inputs [N, D].
    :param Y: targets -1 and +1, [N, C].
    """
    head = network.architecture.head
    scores = head_scores(head, *map(tf.constant, network.predict_moments(X, dtype=np.float64))).numpy()
    log_p = log_probabilities(scores, are_logits=isinstance(head, SoftmaxHead))
    classes = (Y[:, 0] > 0).astype(int) if Y.shape[1] == 1 else Y.argmax(axis=1)
    scores_of_labels = label_scores(log_p, classes)
    return scores_of_labels["log_loss"], scores_of_labels["calibration"]


def summary(errors: NDArray[np.float64]) -> dict[str, Any]:
    """Means of errors [seeds, folds, epochs] with their standard errors, over seeds or, of one seed, over folds.

    :return: "last_percent" of the last epoch and "best_percent" of the best one, which is that of the smallest mean
        over folds, for each seed on its own; "last_standard_error" and "best_standard_error", the deviation of the
        sample over the root of its size (None of a single number); "best_epochs" of the seeds, from 1; and
        "errors_percent", all errors.
    """
    # The best epoch of each seed, by the mean over folds.
    best = errors.mean(axis=1).argmin(axis=1)  # [seeds]
    statistics: dict[str, Any] = {}
    for name, epochs in (("last", np.full(len(errors), errors.shape[2] - 1)), ("best", best)):
        values = np.array([seed[:, epoch] for seed, epoch in zip(errors, epochs, strict=True)])  # [seeds, folds]
        # The sample is of seeds; if there is but one, of folds.
        sample = values.mean(axis=1) if len(values) > 1 else values[0]
        statistics[f"{name}_percent"] = float(sample.mean())
        statistics[f"{name}_standard_error"] = (
            float(sample.std(ddof=1) / np.sqrt(len(sample))) if len(sample) > 1 else None
        )
    return {**statistics, "best_epochs": (best + 1).tolist(), "errors_percent": errors.tolist()}


def network_results(results: Sequence[EpochResult], num_votes: int) -> dict[str, dict[str, Any]]:
    """Results of the outputs of networks with one kind of weights.

    :param results: of all seeds, folds and epochs of one method.
    :return: "binary D", "binary P" and "binary 10 votes", say, to :func:`summary` and "seconds_per_epoch"; P also has
        "log_loss_nats" and "calibration_error_percent", means over seeds and folds of the last epoch.
    """
    last_epoch = max(result.epoch for result in results)
    last = [result for result in results if result.epoch == last_epoch]
    seconds = {"seconds_per_epoch": float(np.mean([result.seconds for result in results]))}
    by_output = {}
    # Errors of each output, [seeds, folds, epochs].
    for output in results[0].errors_percent:
        title = f"{num_votes} votes" if output == "votes" else output
        errors = _by_seed_and_fold(results, [[result.errors_percent[output]] for result in results])
        by_output[f"{results[0].method} {title}"] = {**summary(errors), **seconds}
    # EBP-P has probabilities, too.
    by_output[f"{results[0].method} P"] |= {
        name: float(np.mean([getattr(result, name) for result in last]))
        for name in ("log_loss_nats", "calibration_error_percent")
    }
    return by_output


def rival_results(results: Sequence[RivalResult]) -> dict[str, Any]:
    """Results of a rival.

    :param results: of all seeds and folds.
    :return: :func:`summary`, "tuned_values" [seeds][folds], "folds_at_edge_of_grid" and "seconds_per_fold".
    """
    values = _by_seed_and_fold(results, [[result.tuned_value] for result in results])
    return {
        **summary(_by_seed_and_fold(results, [result.errors_percent for result in results])),
        "tuned_values": values[:, :, 0].tolist(),
        "folds_at_edge_of_grid": sum(result.is_at_edge for result in results),
        "seconds_per_fold": float(np.mean([result.seconds for result in results])),
    }


def _by_seed_and_fold(results: Sequence[Result], values: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Values [n][m] of results in their order as [seeds, folds, epochs or m]."""
    seeds, folds = (len({getattr(result, name) for result in results}) for name in ("seed", "fold"))
    return np.asarray(values, np.float64).reshape(seeds, folds, -1)
