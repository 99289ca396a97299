"""Which classes are absent from a stream of labels for longer than chance allows.

A class that made up a share p of n labels is missing from the next m with probability (1 - p)^m if the labels are
drawn independently. Where that is below `SURPRISE`, the stream has changed: that the class does not occur is then no
evidence that the inputs are not of it, and learning as if it were would unlearn the class. A class that has not
occurred yet has nothing to unlearn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SURPRISE", "Recency"]

#: Probability below which a class counts as absent.
SURPRISE = 1e-3


class Recency(NamedTuple):
    """How often each of C classes occurred, and when last.

    :ivar counts: labels of each class up to its last one, [C].
    :ivar total: labels up to the last one of each class, [C]: its share is counts / total.
    :ivar gaps: labels since the last one of each class, [C].
    """

    counts: NDArray[np.int64]
    total: NDArray[np.int64]
    gaps: NDArray[np.int64]

    @classmethod
    def start(cls, num_classes: int) -> Recency:
        """Before the first label."""
        zeros = np.zeros(num_classes, np.int64)
        return cls(zeros, zeros, zeros)

    def after(self, labels: NDArray[np.intp]) -> tuple[Recency, NDArray[np.bool_]]:
        """The state after new labels, and whether each class is absent: from these, and for longer than chance allows.

        :param labels: numbers of classes, in the order of the stream, [n].
        :return: the state, and [C]. A class that never occurred is not absent.
        """
        # How often each class is among the new labels, and at what place last.
        occurs = np.bincount(labels, minlength=len(self.counts))
        last = np.full(len(self.counts), -1)
        last[labels] = np.arange(len(labels))
        length = self.total + self.gaps  # of the stream so far
        counts = self.counts + occurs
        total = np.where(occurs > 0, length + last + 1, self.total)
        new = Recency(counts, total, length + len(labels) - total)
        # (1 - p)^m: the probability that a class of share p is missing from m labels.
        share = counts / np.maximum(total, 1)
        log_chance = new.gaps * np.log1p(-np.minimum(share, 1.0 - 1e-12))
        return new, (occurs == 0) & (counts > 0) & (log_chance < np.log(SURPRISE))
