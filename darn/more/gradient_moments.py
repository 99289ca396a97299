"""Exact bias and variance of the estimators of `gradients` for small models, by enumeration of all states."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from darn.model.gradients import check_estimator, estimate, scored
from darn.model.model import DARN, check_data

__all__ = ["MAX_REPORT_UNITS", "GradientMoments", "gradient_report"]

#: Most stochastic units of `gradient_report`: 2^16 states are visited.
MAX_REPORT_UNITS = 16
_MAX_PAIR_UNITS = 12  # DisARM: 3^12 outcomes of a pair


class GradientMoments(NamedTuple):
    """Of one estimator of the gradient with respect to the logits of the first encoder layer, each [B, n].

    :ivar exact: the gradient of the expected description length, nats.
    :ivar mean: of the estimator.
    :ivar variance: of
        the estimator, by coordinate.
    """

    exact: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def relative_bias(self) -> NDArray[np.float64]:
        """|mean - exact| / |exact| for each row, [B]."""
        return np.linalg.norm(self.mean - self.exact, axis=-1) / np.linalg.norm(self.exact, axis=-1)

    @property
    def relative_std(self) -> NDArray[np.float64]:
        """Square root of the total variance over |exact| for each row, [B]."""
        return np.sqrt(self.variance.sum(axis=-1)) / np.linalg.norm(self.exact, axis=-1)


def gradient_report(
    model: DARN,
    x: ArrayLike,
    estimators: Sequence[str] = ("darn", "straight_through", "reinforce", "rloo", "disarm", "simpson"),
    *,
    entropy: str = "sampled",
) -> dict[str, GradientMoments]:
    """Exact bias and variance of estimators for small models, by enumeration of all states h.

    They are of the gradient with respect to the logits of the first encoder layer, which every gradient of the
    encoder's first layer is a linear map of. "reinforce" has the best constant as baseline: the expected cost. "rloo"
    has K = 2.

    :param x: rows [B, n_x]; the work is B 2^n_h, for "disarm" B 3^n_h.
    :raises ValueError: if the model has more than 16 stochastic units (12 for "disarm"), its encoder is not factorial,
        or an estimator does not fit the model.
    """
    total = model.num_hidden
    rows = check_data(x, model.config, "x")
    for name in estimators:
        check_estimator(model, name, entropy)
        limit = _MAX_PAIR_UNITS if name == "disarm" else MAX_REPORT_UNITS
        if not 1 <= total <= limit:
            raise ValueError(
                f"the exact report on {name!r} visits all states of 1 to {limit} stochastic units, got {total}; take "
                "fewer units, or draw gradients with `estimate`."
            )
    if model.config.encoder != "factorial":
        raise ValueError(f"gradient_report needs a factorial encoder, got {model.config.encoder!r}.")
    reports = [_row_report(model, row[None], estimators, entropy) for row in rows]
    return {
        name: GradientMoments(*(np.stack(part) for part in zip(*(report[name] for report in reports), strict=True)))
        for name in estimators
    }


def _row_report(
    model: DARN, row: NDArray, estimators: Sequence[str], entropy: str
) -> dict[str, tuple[NDArray[np.float64], ...]]:
    """exact, mean and variance [n] for one row [1, n_x]."""
    # All states h, with noise that draws just these.
    states = np.array(list(itertools.product((0.0, 1.0), repeat=model.num_hidden)))
    first = model.config.hidden[0]
    x = tf.cast(tf.repeat(tf.constant(row, model.dtype), len(states), axis=0), model.dtype)
    noise = tf.split(tf.constant(np.where(states > 0, -np.inf, np.inf), model.dtype), model.config.hidden, axis=1)
    f, log_q, result = scored(model, x, noise, entropy)
    logits = result.logits[0][0].numpy().astype(np.float64)
    # q, P(h | x) of each state, its cost and its score d log q / d a.
    q = 1.0 / (1.0 + np.exp(-logits))
    weights = np.exp(log_q.numpy().astype(np.float64))
    cost = f.numpy().astype(np.float64)
    score = states[:, :first] - q
    # The exact gradient: E[f s], and that of minus the entropy.
    entropy_gradient = q * (1.0 - q) * logits if entropy == "exact" else np.zeros(first)
    exact = weights @ (cost[:, None] * score) + entropy_gradient
    moments: dict[str, tuple[NDArray[np.float64], ...]] = {}
    for name in estimators:
        # Score functions with a baseline: unbiased, so that the second moment gives the variance.
        if name in ("reinforce", "rloo"):
            mean = exact - entropy_gradient
            second = _score_second_moment(name, weights, cost, score)
            moments[name] = (exact, exact, second - mean**2)
            continue
        # DisARM: all outcomes of an antithetic pair.
        if name == "disarm":
            outcomes, pair_weights = _disarm_outcomes(q, logits, states, cost)
            mean = pair_weights @ outcomes
            moments[name] = (exact, mean + entropy_gradient, pair_weights @ (outcomes - mean) ** 2)
            continue
        # All others: the gradient of each state by TensorFlow.
        with tf.GradientTape() as tape:
            estimated = estimate(model, x, noise, estimator=name, entropy=entropy)
            loss = tf.reduce_sum(estimated.loss)
        gradients = tape.gradient(loss, estimated.logits[0]).numpy().astype(np.float64)
        mean = weights @ gradients
        moments[name] = (exact, mean, weights @ (gradients - mean) ** 2)
    return moments


def _score_second_moment(
    name: str, weights: NDArray[np.float64], cost: NDArray[np.float64], score: NDArray[np.float64]
) -> NDArray[np.float64]:
    """E[g^2] by coordinate: g = (f - E f) s for "reinforce", (f_1 - f_2)(s_1 - s_2) / 2 for "rloo"."""
    centred = cost - weights @ cost
    if name == "reinforce":
        return np.asarray(weights @ (centred[:, None] * score) ** 2)
    first = weights @ (centred[:, None] * score)
    second = weights @ score**2
    return np.asarray(0.5 * (weights @ (centred[:, None] * score) ** 2 + (weights @ centred**2) * second) + first**2)


def _disarm_outcomes(
    q: NDArray[np.float64], logits: NDArray[np.float64], states: NDArray[np.float64], cost: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gradients [3^n, n] and probabilities [3^n]: each unit's pair is (1, 0), (0, 1) or twice its likelier value."""
    n = len(q)
    # The three kinds of each unit's pair in all combinations.
    kinds = np.array(list(itertools.product((0, 1, 2), repeat=n)))
    likelier = (q > 0.5).astype(int)
    first = np.where(kinds == 0, 1, np.where(kinds == 1, 0, likelier))
    second = np.where(kinds == 0, 0, np.where(kinds == 1, 1, likelier))
    # P(kind) of antithetic noise.
    rarer = np.minimum(q, 1.0 - q)
    probability = np.where(kinds == 2, 1.0 - 2.0 * rarer, rarer).prod(axis=1)
    # (f(h) - f(h')) (h - h') sigmoid(|a|) / 2, the costs by the states' numbers.
    place = 2 ** np.arange(n)[::-1]
    difference = cost[first @ place] - cost[second @ place]
    return 0.5 * difference[:, None] * (first - second) / (1.0 + np.exp(-np.abs(logits))), probability
