"""The last layer: how its input u_L ~ N(mu, sigma2) makes the target, and Delta_L = d log P(y) / d mu of it.

`SignHead` is the paper's, Eq. (4.3); `SoftmaxHead` and `RegressionHead` are the generalisations that its Sec. 6 names.
All use targets of shape [N, n_L]; classes are coded -1 and +1, one output for two classes, else one output per class.

The ratio phi(z) / Phi(z) of Eq. (4.3) and log Phi(z), accurate from z = -1000 up, in float32 as in float64.

With erfcx(x) = exp(x^2) erfc(x) the exponentials cancel by algebra: phi(z) / Phi(z) = sqrt(2/pi) / erfcx(-z / sqrt 2).
No branch, no threshold, and footnote 4's asymptote comes by itself: the ratio tends to -z as z falls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.typing import ArrayLike

from .forward import sign_mean, signs

__all__ = [
    "Head",
    "RegressionHead",
    "SignHead",
    "SoftmaxHead",
    "check_labels",
    "encode_labels",
    "head_scores",
    "log_ndtr",
    "mills_ratio",
]


@tf.custom_gradient
def mills_ratio(z: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """r(z) = phi(z) / Phi(z), the derivative of log Phi(z), elementwise.

    :param z: float32 or float64, any shape. Relative error below 1e-6 in float32 for z in [-1000, 5]; 0 where phi(z)
        underflows (z > 13 in float32).
    :return: r(z), of the shape of `z`. Its derivative is -r (z + r), which is what automatic differentiation uses;
        that of the second order is not defined.
    """
    r = math.sqrt(2.0 / math.pi) / tfp.math.erfcx(-z / math.sqrt(2.0))

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        # z + r cancels on the left. With x = -z it is 1 / (x + 2 / (x + 3 / (x + ...))): Laplace's continued fraction.
        is_left = z < -4.0
        x = tf.where(is_left, -z, 4.0 * tf.ones_like(z))
        fraction = x
        for k in range(24, 1, -1):
            fraction = x + k / fraction
        excess = tf.where(is_left, 1.0 / fraction, z + r)
        return -upstream * r * excess

    return r, gradient


def log_ndtr(z: tf.Tensor) -> tf.Tensor:
    """log Phi(z) in nats, elementwise; -z^2/2 - log(-z sqrt(2 pi)) far on the left, 0 far on the right.

    :param z: float32 or float64, any shape.
    """
    is_left = z < -1.0
    # Both branches are computed, so each gets an argument that it bears.
    left_z = tf.where(is_left, z, -tf.ones_like(z))
    right_z = tf.where(is_left, tf.zeros_like(z), z)
    tail = -0.5 * left_z**2 + tf.math.log(0.5 * tfp.math.erfcx(-left_z / math.sqrt(2.0)))
    return tf.where(is_left, tail, tf.math.log1p(-0.5 * tf.math.erfc(right_z / math.sqrt(2.0))))


@runtime_checkable
class Head(Protocol):
    """What the algorithm needs to know about the last layer."""

    @property
    def has_labels(self) -> bool:
        """Whether targets are labels -1 and +1."""
        ...

    def delta(self, y: tf.Tensor, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """Delta_L = d log P(y) / d mu with sigma2 fixed, [B, n_L]."""
        ...

    def log_prob(self, y: tf.Tensor, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """log P(y) in nats, [B]."""
        ...

    def mean(self, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """<v_L>, mean of the output over the posterior of the weights, [B, n_L]."""
        ...

    def output(self, u: tf.Tensor) -> tf.Tensor:
        """The output of one network whose last layer has the input u, [B, n_L]; `vote` averages it."""
        ...

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """The prediction from <v_L>, u_L, log odds or votes, [N, n_L]: what these have in common is their order."""
        ...

    def check_targets(self, Y: ArrayLike, num_outputs: int) -> np.ndarray:
        """Targets as a float array [N, n_L]. Raises ValueError if they are not what the head wants."""
        ...


@dataclass(frozen=True)
class SignHead:
    """v_L = sign(u_L) as in the paper. With several outputs, each is one class against the others.

    Outputs are trained as if independent given the weights; the class is the most probable one of the codes with one
    +1, Eq. (4.7). A target 0 is unknown: nothing is learned from it.
    """

    has_labels = True

    def delta(self, y: tf.Tensor, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """y / sigma phi(z) / Phi(z), z = y mu / sigma: Eq. (4.3). Tends to -mu / sigma2 for z -> -inf (footnote 4)."""
        # y is a factor: nothing is learned from a target 0.
        inverse = tf.math.rsqrt(sigma2)
        return y * inverse * mills_ratio(y * mu * inverse)

    def log_prob(self, y: tf.Tensor, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """Sum over outputs whose y is known of log Phi(y mu / sigma), in nats."""
        return tf.reduce_sum(tf.abs(y) * log_ndtr(y * mu * tf.math.rsqrt(sigma2)), axis=-1)

    def scores(self, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """mu / sigma: the probability of +1 is Phi of it."""
        return mu * tf.math.rsqrt(sigma2)

    def mean(self, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """2 Phi(mu / sigma) - 1, Eq. (4.1)."""
        return sign_mean(mu, sigma2)

    def output(self, u: tf.Tensor) -> tf.Tensor:
        """sign(u), or -1 and one +1 for the class with the largest u if there are several outputs."""
        return signs(u) if u.shape[-1] == 1 else _one_against_others(u)

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """-1 or +1 for one output, else the number of the class; int, [N]."""
        return np.where(scores[:, 0] >= 0, 1, -1) if scores.shape[1] == 1 else np.argmax(scores, axis=1)

    def check_targets(self, Y: ArrayLike, num_outputs: int) -> np.ndarray:
        """Labels -1 and +1, [N, n_L], or [N] for one output."""
        return check_labels(Y, num_outputs)


@dataclass(frozen=True)
class SoftmaxHead:
    """P(class k) = <softmax(u_L)_k>, by MacKay's approximation: softmax of mu_k / sqrt(1 + pi sigma2_k / 8).

    Unlike the signs it is not invariant to the magnitude of u_L, which is that of v_(L-1) times weights, about 1.
    """

    has_labels = True

    def delta(self, y: tf.Tensor, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """([y_k = 1] - P(k)) / sqrt(1 + pi sigma2_k / 8)."""
        # The derivative of log softmax by the scores, times that of the scores by mu.
        scale = tf.math.rsqrt(1.0 + math.pi / 8.0 * sigma2)
        return (0.5 * (y + 1.0) - tf.nn.softmax(mu * scale, axis=-1)) * scale

    def log_prob(self, y: tf.Tensor, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """log P of the class with y = +1, in nats."""
        return tf.reduce_sum(0.5 * (y + 1.0) * tf.nn.log_softmax(self.scores(mu, sigma2), axis=-1), axis=-1)

    def scores(self, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """mu / sqrt(1 + pi sigma2 / 8): probabilities are the softmax of it."""
        return mu * tf.math.rsqrt(1.0 + math.pi / 8.0 * sigma2)

    def mean(self, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """Probabilities of the classes; they sum to one."""
        return tf.nn.softmax(self.scores(mu, sigma2), axis=-1)

    def output(self, u: tf.Tensor) -> tf.Tensor:
        """-1 and one +1, for the class with the largest u."""
        return _one_against_others(u)

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """The number of the class, [N]."""
        return np.argmax(scores, axis=1)

    def check_targets(self, Y: ArrayLike, num_outputs: int) -> np.ndarray:
        """Codes of -1 and exactly one +1, [N, n_L]."""
        Y = check_labels(Y, num_outputs)
        wrong = np.flatnonzero(np.sum(Y > 0, axis=1) != 1)
        if num_outputs < 2 or wrong.size:
            raise ValueError(
                "the softmax head needs at least two outputs and exactly one +1 in each row of the targets, got "
                + (f"{num_outputs} output" if num_outputs < 2 else f"{int(np.sum(Y[wrong[0]] > 0))} in row {wrong[0]}")
                + "; code classes with ebp.encode_labels, or use head='binary' or 'multiclass'."
            )
        return Y


@dataclass(frozen=True)
class RegressionHead:
    """A linear last layer: y = u_L + noise, so that log P(y) = log N(y | mu, sigma2 + noise_variance).

    :param noise_variance: of the targets, in their squared units. Targets should be standardised: the prior of u_L has
        mean 0 and a variance of about 1.

    Eq. (4.5) moves means only, so with real weights sigma2 never falls below that of the prior: means are useful, but
    standard deviations and log P(y) are not, and `noise_variance` has next to no effect on them. `EBPRegressor` learns
    precisions and noise.
    """

    noise_variance: float = 0.1

    has_labels = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise_variance) and self.noise_variance >= 0):
            raise ValueError(f"noise_variance must be finite and not negative, got {self.noise_variance}.")

    def delta(self, y: tf.Tensor, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """(y - mu) / (sigma2 + noise_variance)."""
        return (y - mu) / (sigma2 + self.noise_variance)

    def log_prob(self, y: tf.Tensor, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """Sum over outputs of the log density, in nats."""
        variance = sigma2 + self.noise_variance
        return -0.5 * tf.reduce_sum(tf.square(y - mu) / variance + tf.math.log(2.0 * math.pi * variance), axis=-1)

    def scores(self, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """mu."""
        return mu

    def mean(self, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
        """mu."""
        return mu

    def output(self, u: tf.Tensor) -> tf.Tensor:
        """u."""
        return u

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """The prediction itself, [N, n_L]."""
        return scores

    def check_targets(self, Y: ArrayLike, num_outputs: int) -> np.ndarray:
        """Finite numbers, [N, n_L], or [N] for one output."""
        return _target_matrix(Y, num_outputs)


def head_scores(head: Head, mu: tf.Tensor, sigma2: tf.Tensor) -> tf.Tensor:
    """What a `Calibration` scales, [B, n_L]: `head.scores`, or <v_L> of a head that has none."""
    score_function = getattr(head, "scores", head.mean)
    return score_function(mu, sigma2)


def check_labels(Y: ArrayLike, num_outputs: int) -> np.ndarray:
    """Labels -1 and +1 as a float array [N, num_outputs].

    :raises ValueError: if there are other labels, with the mapping to use.
    """
    Y = np.asarray(Y)
    # Texts and truth values are no codes.
    if Y.dtype == bool or Y.dtype.kind in "OUS":
        label_text = ", ".join(repr(label) for label in np.unique(Y.astype(str))[:5])
    else:
        Y = _target_matrix(Y, num_outputs)
        values = np.unique(Y)
        if np.all(np.isin(values, (-1.0, 1.0))):
            return Y
        label_text = ", ".join(f"{value:g}" for value in values[:5]) + (", ..." if len(values) > 5 else "")
    # Say how these labels are to be coded.
    hint = (
        "map 0 to -1 with 2 * Y - 1"
        if label_text in ("0", "1", "0, 1")
        else "code them with Y, classes = ebp.encode_labels(labels)"
    )
    raise ValueError(
        f"labels must be -1 and +1, got {label_text}; {hint}, or use EBPClassifier, which takes any labels."
    )


def encode_labels(labels: ArrayLike, classes: ArrayLike | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Code any labels as -1 and +1.

        >>> import ebp
        >>> Y, classes = ebp.encode_labels(["no", "yes", "no"])
        >>> Y.ravel().tolist(), classes.tolist()
        ([-1.0, 1.0, -1.0], ['no', 'yes'])

    :param labels: [N], numbers or strings.
    :param classes: the classes in order; by default the sorted distinct labels.
    :return: Y, [N, 1] for two classes (+1 is the second one), else [N, C] with one +1 in each row; and the classes [C].
    :raises ValueError: if there is only one class, one is named twice, or a label is NaN or not in `classes`.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise ValueError(f"labels must be of shape [N], got {list(labels.shape)}.")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"labels must not be NaN, got {np.isnan(labels).sum()} of these; drop their rows.")
    classes = np.unique(labels) if classes is None else np.asarray(classes)
    if len(classes) < 2:
        raise ValueError(f"labels must be of at least two classes, got 1 class: {list(classes)}.")
    if classes.ndim != 1 or len(np.unique(classes)) < len(classes):
        raise ValueError(f"classes must be of shape [C], each named once, got {classes.tolist()}.")
    # A label that is not among the classes has no code.
    unseen = sorted(set(labels.tolist()) - set(classes.tolist()), key=str)
    if unseen:
        raise ValueError(
            f"labels must be among the classes {classes.tolist()}, got {unseen[:5]}; name all classes in advance."
        )
    # The number of each label's class; classes may be in any order.
    order = np.argsort(classes)
    index = order[np.searchsorted(classes, labels, sorter=order)]
    # One column for two classes, else a column for each.
    if len(classes) == 2:
        return np.where(index == 1, 1.0, -1.0)[:, None], classes
    return 2.0 * (index[:, None] == np.arange(len(classes))) - 1.0, classes


def _one_against_others(u: tf.Tensor) -> tf.Tensor:
    return 2.0 * tf.one_hot(tf.argmax(u, axis=-1), u.shape[-1], dtype=u.dtype) - 1.0


def _target_matrix(Y: ArrayLike, num_outputs: int) -> np.ndarray:
    Y = np.asarray(Y, dtype=np.float64)
    # One output may have its targets as a list.
    if Y.ndim == 1 and num_outputs == 1:
        Y = Y[:, None]
    if Y.ndim != 2 or Y.shape[1] != num_outputs:
        raise ValueError(
            f"targets must be of shape [N, {num_outputs}], one column for each output, got {list(Y.shape)}."
        )
    bad = np.flatnonzero(~np.all(np.isfinite(Y), axis=1))
    if bad.size:
        raise ValueError(f"targets must be finite, got NaN or infinity in {bad.size} rows, first in row {bad[0]}.")
    return Y
