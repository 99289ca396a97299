"""Probabilities of classes from scores, and their calibration by scores of examples before these were learned.

The scores of a network of sign neurons are z = mu / sigma of each output (`heads.head_scores`), and Eq. (4.7) makes
probabilities of them: Phi(z) for two classes; for more, with one output each, those of the codes with one +1,

    P(k) ~ Phi(z_k) product over j != k of Phi(-z_j)  ~  exp(log Phi(z_k) - log Phi(-z_k)).

Where inputs outnumber examples, no single weight is known well, so z stays small though its sign is right, and the
probabilities are nearer to one half than the errors justify. A `Calibration` makes logits a z + c of the scores, whose
logistic function or softmax is the probability; its tails are less sure than those of Phi. The two numbers are fitted
to scores that the network gave to examples before it learned them: no data are lost.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import ArrayLike, NDArray

__all__ = ["Calibration", "Scored", "fit_calibration", "log_probabilities"]

#: a without examples: the logistic function of 1.702 z is Phi(z), to within 0.01, but after twenty passes over few rows
#: a network is twice as sure of noise as it may be.
PRIOR_SCALE = 0.5 * 1.702

#: Standard deviations of the normal priors of log a, around log `PRIOR_SCALE`, and of c, around 0.
LOG_SCALE_DEVIATION = 1.0
OFFSET_DEVIATION = 0.5

_MAX_LOG_SCALE = 5.0
_MAX_OFFSET = 10.0


@dataclass(frozen=True)
class Calibration:
    """From scores z to logits a z + c.

    :ivar scale: a, positive.
    :ivar offset: c; 0 for more than two classes.
    """

    scale: float = PRIOR_SCALE
    offset: float = 0.0

    def __call__(self, scores: ArrayLike) -> NDArray[np.float64]:
        """a z + c."""
        return self.scale * np.asarray(scores, np.float64) + self.offset


@dataclass(frozen=True, eq=False)
class Scored:
    """Examples that were scored before they were learned.

    :ivar scores: [N, 1] or [N, C], as for `log_probabilities`.
    :ivar classes: numbers of their classes, [N].
    :ivar weight: of each, [N].
    """

    scores: NDArray[np.float64]
    classes: NDArray[np.intp]
    weight: NDArray[np.float64]

    @functools.cached_property
    def calibration(self) -> Calibration:
        """`fit_calibration` of these, when it is first asked for: learning from a stream does not wait for it."""
        return fit_calibration(self.scores, self.classes, weight=self.weight)

    def then(self, others: Scored, num_last: int) -> Scored:
        """The last `num_last` examples of these and of others after them."""
        fields, other_fields = ((part.scores, part.classes, part.weight) for part in (self, others))
        return Scored(*(np.concatenate(pair)[-num_last:] for pair in zip(fields, other_fields, strict=True)))


def log_probabilities(scores: ArrayLike, *, are_logits: bool) -> NDArray[np.float64]:
    """Logarithms of the probabilities of the classes in nats, [N, C].

    :param scores: of the outputs: [N, 1] for two classes, of which the second is +1, else [N, C].
    :param are_logits: whether they are those of a `Calibration` or of a softmax, or else z of sign neurons.
    """
    z = np.asarray(scores, np.float64)
    if z.shape[1] == 1:
        signed_scores = np.hstack([-z, z])
        return scipy.special.log_expit(signed_scores) if are_logits else scipy.special.log_ndtr(signed_scores)
    # Eq. (4.7): one class +1, all others -1.
    logits = z if are_logits else scipy.special.log_ndtr(z) - scipy.special.log_ndtr(-z)
    return scipy.special.log_softmax(logits, axis=1)


def fit_calibration(scores: ArrayLike, classes: ArrayLike, *, weight: ArrayLike | None = None) -> Calibration:
    """The calibration of the largest posterior probability, given examples that were not learned yet.

    :param scores: [N, 1] or [N, C], as for `log_probabilities`.
    :param classes: number of the class of each example, [N].
    :param weight: of the examples, [N]; None: 1.
    """
    scores = np.asarray(scores, np.float64)
    has_offset = scores.shape[1] == 1
    importance = np.ones(len(scores)) if weight is None else np.asarray(weight, np.float64)
    examples = Scored(scores, np.asarray(classes, np.intp), importance)
    # The most probable log a and, for two classes, c.
    limits = [(-_MAX_LOG_SCALE, _MAX_LOG_SCALE), (-_MAX_OFFSET, _MAX_OFFSET)][: 1 + has_offset]
    start = np.zeros(len(limits))
    best = scipy.optimize.minimize(_loss, start, (examples,), jac=True, method="L-BFGS-B", bounds=limits).x
    return Calibration(PRIOR_SCALE * math.exp(best[0]), float(best[1]) if has_offset else 0.0)


def _loss(parameters: NDArray[np.float64], examples: Scored) -> tuple[float, NDArray[np.float64]]:
    """Minus the log posterior, but for a constant, and its gradient.

    :param parameters: log of the scale over `PRIOR_SCALE`, and for two classes the offset.
    """
    scores = examples.scores
    classes = examples.classes
    weight = examples.weight
    rows = np.arange(len(classes))
    has_offset = len(parameters) == 2
    log_factor = parameters[0]
    offset = parameters[1] if has_offset else 0.0
    scaled = PRIOR_SCALE * math.exp(log_factor) * scores
    # By logits, -log P(class) has the derivative p - [class].
    log_p = log_probabilities(scaled + offset, are_logits=True)
    by_logits = np.exp(log_p)
    by_logits[rows, classes] -= 1.0
    by_logits = weight[:, None] * (by_logits[:, 1:] if has_offset else by_logits)
    # Normal priors of log a and c, and the derivatives by both.
    value = 0.5 * (log_factor / LOG_SCALE_DEVIATION) ** 2 + 0.5 * (offset / OFFSET_DEVIATION) ** 2
    gradient = [log_factor / LOG_SCALE_DEVIATION**2 + np.sum(by_logits * scaled)]
    if has_offset:
        gradient.append(offset / OFFSET_DEVIATION**2 + np.sum(by_logits))
    return value - float(weight @ log_p[rows, classes]), np.array(gradient)
