"""How good a trained network is on labelled rows, and how much it knows of its weights."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from gpflow_deep_base.numbers.scores import label_scores
from gpflow_deep_base.seeds import Seed

from ..network.heads import SoftmaxHead, head_scores
from ..network.inputs import Matrix
from ..network.network import EBPNetwork
from .calibration import log_probabilities

__all__ = ["error_percent", "errors_percent", "posterior_scalars", "posterior_shapes", "probability_scores"]

#: Weights of a layer in a histogram.
MAX_SHOWN = 100_000

#: A discrete weight is decided if its variance is below so much of the prior's.
DECIDED = 0.01


def error_percent(scores: np.ndarray, Y: np.ndarray) -> float:
    """Percentage of wrong rows: by the sign for one output (0 counts as +1), else by the largest score.

    :param scores: [N, C]; NaN, of a learner that diverged, counts as wrong.
    :param Y: [N, C], -1 and +1, with one +1 in a row if C > 1.
    """
    if Y.shape[1] == 1:
        is_right = np.where(scores[:, 0] >= 0, 1, -1) == Y[:, 0]
    else:
        is_right = np.argmax(scores, axis=1) == np.argmax(Y, axis=1)
    return 100.0 * (1.0 - float(np.mean(is_right & np.all(np.isfinite(scores), axis=1))))


def errors_percent(
    network: EBPNetwork, X: Matrix, Y: np.ndarray, *, num_votes: int = 0, seed: Seed = 0
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


def probability_scores(network: EBPNetwork, X: Matrix, Y: np.ndarray) -> tuple[float, float]:
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


def posterior_scalars(network: EBPNetwork) -> dict[str, float]:
    """How much is known of the weights of each layer.

    :return: "layer_1/entropy_nats", the mean entropy of a weight in nats; and of discrete weights
        "layer_1/decided_percent", how many of them have less than a hundredth of the prior's
        variance.
    """
    scalars = {}
    shapes = posterior_shapes(network)
    priors = network.architecture.priors
    for number, (h, prior, entropy) in enumerate(zip(shapes.values(), priors, network.entropy(), strict=True), start=1):
        scalars[f"layer_{number}/entropy_nats"] = entropy
        if prior.is_discrete:
            # Little is left of the prior's variance.
            decided = prior.var(tf.constant(h)) < DECIDED * prior.var(tf.zeros([], h.dtype))
            scalars[f"layer_{number}/decided_percent"] = 100.0 * float(tf.reduce_mean(tf.cast(decided, h.dtype)))
    return scalars


def posterior_shapes(network: EBPNetwork) -> dict[str, np.ndarray]:
    """ "layer_1/h", ... to at most about 100,000 of its h, evenly spaced, for histograms."""
    return {
        f"layer_{number}/h": tf.reshape(h, [-1])[:: 1 + int(np.prod(h.shape)) // MAX_SHOWN].numpy()
        for number, h in enumerate(network.h, start=1)
    }
