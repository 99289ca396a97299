"""log Z by enumeration for visible units that are not bits: signs, categories, numbers.

Signs v = 2 u - 1 of bits u make another RBM of bits. Of the others the states h of the hidden units are enumerated, and
the visible units summed or integrated out, with x(h) = beta W'h + b:

    categories   prod_g (sum_k exp(x_gk)): with h = (h1, h2) a sum over k is a product of two matrices, exp(x1_k(h1))
                 and exp(x2_k(h2)), so that no exponential is taken for each state
    numbers      sum_i x_i^2 / (2 precision_i) is a quadratic form in h
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.visible import Gaussian, binary_vectors

__all__ = ["as_bits", "log_z_gaussian", "log_z_softmax"]

Array = NDArray[np.float64]

_BITS = 10  # of the hidden units in one table: a block of 1024 x 1024 states is 8 MB
_LOG_LIMIT = 600.0  # of a product before its logarithm is taken; float64 ends near 709


def as_bits(W: Array, b: Array, c: Array) -> tuple[Array, Array, Array, float]:
    """Parameters of the RBM of bits u = (v + 1) / 2 with the hidden units of one of signs v, and its log q~ less that
    of the signs, nats."""
    return 2 * W, 2 * b, c - W.sum(axis=1), float(b.sum())


def log_z_softmax(A: Array, alpha: Array, b: Array, visible: Softmax) -> float:
    """log of the sum over h of exp(alpha'h) prod_g sum_k exp((A'h + b)_gk): A [n_h, n_v], alpha [n_h], b [n_v]."""
    # Every bit is a group of one column: there are no other factors.
    groups = visible.of_groups()
    sizes = [len(group) + (not needed) for group, needed in zip(groups.groups, groups.is_required, strict=True)]
    results = []
    for first, second in _halves(len(alpha)):
        # Fields of both halves of the hidden units, whose sums are those of all states.
        states = np.split(np.arange(len(alpha)), [first.shape[1]])
        fields = [
            groups.fields(u @ A[part] + biases)
            for u, part, biases in zip((first, second), states, (b, 0 * b), strict=True)
        ]
        log_weights = (first @ alpha[states[0]])[:, None] + (second @ alpha[states[1]])[None]
        # The sum over options of a group is a product of matrices; its logarithm is taken before it overflows.
        product = np.ones_like(log_weights)
        bound = 0.0
        for g, size in enumerate(sizes):
            x, y = (field[:, g, :size] for field in fields)
            width = min(np.ptp(x, axis=1).max(), np.ptp(y, axis=1).max()) + np.log(size)
            if width > _LOG_LIMIT:
                log_weights += logsumexp(x[:, None] + y[None], axis=2)
                continue
            if bound + width > _LOG_LIMIT:
                log_weights += np.log(product)
                product = np.ones_like(log_weights)
                bound = 0.0
            tops = x.max(axis=1), y.max(axis=1)
            product *= np.exp(x - tops[0][:, None]) @ np.exp(y - tops[1][:, None]).T
            log_weights += tops[0][:, None] + tops[1][None]
            bound += width
        results.append(logsumexp(log_weights + np.log(product)))
    return float(logsumexp(results))


def log_z_gaussian(A: Array, alpha: Array, b: Array, visible: Gaussian) -> float:
    """log of the sum over h of exp(alpha'h) int exp((A'h + b)'v) m(v) dv: A [n_h, n_v], alpha [n_h], b [n_v]."""
    # log q~(h) without biases of numbers: linear'h + h' coupling h / 2
    scaled = A / np.sqrt(np.asarray(visible.precision, np.float64))
    linear = alpha + A @ (b / np.asarray(visible.precision, np.float64))
    coupling = scaled @ scaled.T
    results = []
    for first, second in _halves(len(alpha)):
        one, two = np.split(np.arange(len(alpha)), [first.shape[1]])
        # The quadratic form of a state: that of each half, and of both together.
        energies = [
            u @ linear[part] + 0.5 * ((u @ coupling[np.ix_(part, part)]) * u).sum(axis=1)
            for u, part in ((first, one), (second, two))
        ]
        log_weights = first @ coupling[np.ix_(one, two)] @ second.T + energies[0][:, None] + energies[1][None]
        results.append(logsumexp(log_weights))
    return float(logsumexp(results)) + float(visible.log_normaliser(b))


def _halves(n: int) -> Iterator[tuple[Array, Array]]:
    """States of the first and of the other hidden units, in blocks whose pairs are all states."""
    num_first = min(n // 2, _BITS)
    first = binary_vectors(num_first)
    others = n - num_first
    size = 2**_BITS
    for start in range(0, 2**others, size):
        yield first, binary_vectors(others, start, min(start + size, 2**others))
