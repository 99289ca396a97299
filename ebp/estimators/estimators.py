"""What the estimators have in common: checks of settings and of arguments, batches of second-order networks, how good a
trained network is on labelled rows, and how much it knows of its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import _check_sample_weight

from gpflow_deep_base.numbers.scores import label_scores
from gpflow_deep_base.seeds import Seed

from ..network.coding import MAX_DENSE, Matrix, is_sparse
from ..network.convolution import is_whole
from ..network.heads import SoftmaxHead, head_scores
from ..network.network import EBPNetwork, check_rows
from ..second_order.second_order import UNITS
from .calibration import log_probabilities
from .inputs.seen_columns import SeenColumns

__all__ = [
    "batches",
    "check_classes",
    "check_second_order",
    "check_whole_numbers",
    "dense_rows",
    "error_percent",
    "errors_percent",
    "group_numbers",
    "is_plain",
    "layer_widths",
    "posterior_scalars",
    "posterior_shapes",
    "probability_scores",
    "say_pass",
    "start_classes",
    "weight_of_rows",
]

Array = NDArray[np.float64]

#: Weights of a layer in a histogram.
MAX_SHOWN = 100_000

#: A discrete weight is decided if its variance is below so much of the prior's.
DECIDED = 0.01


def layer_widths(hidden: object) -> tuple[int, ...]:
    """Widths of hidden layers as a tuple.

    :param hidden: a whole number, for one layer, or a sequence of them.
    :raises ValueError: if it is anything else, or a width is not positive.
    """
    widths: list[object] = list(hidden) if isinstance(hidden, Iterable) and not isinstance(hidden, str) else [hidden]
    sizes = [int(width) for width in widths if is_whole(width)]
    if len(sizes) < len(widths):
        raise ValueError(
            f"hidden must be a positive whole number or a sequence of them such as (120,), got {hidden!r}."
        )
    return tuple(sizes)


def say_pass(verbose: int, number: int, total: int, what: str = "") -> None:
    """Print that a pass is done: at 1 each tenth of them, at 2 each.

    :param verbose: of the estimator.
    :param number: of the pass, from 1.
    :param what: follows it.
    """
    if verbose >= 2 or (verbose and (number == total or number * 10 // total > (number - 1) * 10 // total)):
        print(f"pass {number} of {total}{what}", flush=True)


def check_whole_numbers(estimator: object, *names: str, least: int = 1, other: str = "") -> None:
    """Raises ValueError if a setting is no whole number of at least `least`.

    :param other: a text that is allowed, too.
    """
    for name in names:
        value = getattr(estimator, name)
        if other and isinstance(value, str) and value == other:
            continue
        if not is_whole(value, least):
            alternative = f" or {other!r}" if other else ""
            raise ValueError(f"{name} must be a whole number of at least {least}{alternative}, got {value!r}.")


def check_second_order(estimator: object) -> None:
    """Raises ValueError if a setting of an estimator of second order is out of range."""
    check_whole_numbers(estimator, "epochs", "batch_size", "num_networks")
    if hasattr(estimator, "max_count"):
        check_whole_numbers(estimator, "max_count", other="auto")
    if hasattr(estimator, "decorrelate") and estimator.decorrelate not in (True, False, "auto"):
        raise ValueError(f"decorrelate must be True, False or 'auto', got {estimator.decorrelate!r}.")
    if hasattr(estimator, "units") and estimator.units not in UNITS:
        raise ValueError(f"units must be one of {', '.join(map(repr, UNITS))}, got {estimator.units!r}.")


def group_numbers(groups: ArrayLike | None, num_rows: int) -> NDArray[np.intp] | None:
    """Of each row the number of its group, by the names of the groups in order; None if there are none.

    :raises ValueError: if they are not one for each row.
    """
    if groups is None:
        return None
    groups = np.asarray(groups)
    if groups.shape != (num_rows,):
        raise ValueError(f"groups must name a group for each of {num_rows} rows, got shape {list(groups.shape)}.")
    return np.unique(groups, return_inverse=True)[1].astype(np.intp)


def start_classes(classes: ArrayLike | None) -> np.ndarray:
    """The classes that the first call of `partial_fit` names, sorted.

    :raises ValueError: if it does not.
    """
    if classes is None:
        raise ValueError("the first call of partial_fit needs classes, all labels that will ever occur.")
    return np.unique(classes)


def check_classes(estimator: ClassifierMixin, classes: ArrayLike | None) -> None:
    """Raises ValueError if a later call of `partial_fit` names other classes than the first one."""
    if classes is not None and not np.array_equal(np.unique(classes), estimator.classes_):
        raise ValueError(
            f"classes must stay what they were in the first call, {estimator.classes_.tolist()}, got "
            f"{np.unique(classes).tolist()}; fit a new classifier."
        )


def dense_rows(X: Matrix, columns: SeenColumns) -> np.ndarray:
    """Rows as an array: networks of second order centre their inputs, so that zeros do not stay zeros.

    :param X: [N, D], an array or a sparse matrix.
    :param columns: those that are kept.
    :raises ValueError: if it is sparse, and too large to be made dense.
    """
    # Without the columns that have never occurred.
    if columns.numbers is not None:
        X = columns.inputs(X)[:, : len(columns.numbers)]
    if not is_sparse(X):
        return X
    if X.shape[0] * X.shape[1] > MAX_DENSE:
        raise ValueError(
            f"a dense matrix of {X.shape[0]} x {X.shape[1]} numbers would be too large; use EBPClassifier, which keeps "
            "sparse inputs sparse, or fewer columns."
        )
    return X.toarray()


def is_plain(estimator: object, X: object, y: object = None, kinds: str = "biuU") -> bool:
    """Whether rows need no more of scikit-learn's checks, which take longer than a network learns a row.

    :param X: they do not if it is an array [N, n_features_in_] of finite float64, after a call with such an array.
    :param y: and this one of finite numbers, truth values or texts, [N]; None: not looked at.
    :param kinds: of y that are taken, as NumPy has them: whole numbers, truth values and texts; "f" for targets.
    """
    # An array like those of the calls before: of the same width, without names, and finite.
    return (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and len(X) > 0
        and X.shape[1] == getattr(estimator, "n_features_in_", None)
        and not hasattr(estimator, "feature_names_in_")
        and bool(np.isfinite(X).all())
        and (
            y is None
            or (
                type(y) is np.ndarray
                and y.dtype.kind in kinds
                and y.shape == (len(X),)
                and (kinds != "f" or bool(np.isfinite(y).all()))
            )
        )
    )


def weight_of_rows(X: Matrix, sample_weight: ArrayLike | None) -> Array | None:
    """Checked weights [N], or None if all are 1.

    :raises ValueError: if they are of another shape, or one is negative or not finite.
    """
    if sample_weight is None:
        return None
    return np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))


def batches(
    order: NDArray[np.intp], batch_size: int, weight: Array | None
) -> Iterator[tuple[NDArray[np.intp], Array | None]]:
    """Numbers of the rows of each batch of a pass, and their weights."""
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        yield rows, None if weight is None else weight[rows]


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
    network: EBPNetwork, X: Matrix, Y: ArrayLike, *, num_votes: int = 0, seed: Seed = 0
) -> dict[str, float]:
    """Percentage of wrong rows by each output: "D" (EBP-D), "P" (EBP-P) and, if there are any, "votes".

    :param X: coded inputs [N, D].
    :param Y: targets -1 and +1, [N, C].
    :param num_votes: networks to draw from the posterior by `seed`, which vote.
    :raises ValueError: for other targets, or not one for each row.
    """
    Y = network.architecture.head.check_targets(Y, network.layer_sizes[-1])
    outputs = {"D": network.deterministic_scores(X), "P": network.predict_scores(X)}
    if num_votes:
        outputs["votes"] = network.vote(X, num_votes, seed)
    check_rows(outputs["D"], Y)
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
