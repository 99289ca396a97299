"""A codebook of k values for each layer, by k-means: the "maximum" scenario of Section 5.2, after Han et al. (2016)."""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

__all__ = ["Codebook", "codebook", "fine_tune", "nearest"]


class Codebook(NamedTuple):
    """Weights as indices (uint8, of the kernel's shape) into `centres` (float16, [k], increasing)."""

    centres: NDArray[np.float16]
    indices: NDArray[np.uint8]

    @property
    def values(self) -> NDArray[np.float32]:
        """The weights; float32 holds the centres exactly."""
        return self.centres.astype(np.float32)[self.indices]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many weights each centre has, [k]."""
        return np.bincount(np.ravel(self.indices), minlength=len(self.centres))


def codebook(weights: ArrayLike, k: int = 32, *, seed: int = 0) -> Codebook:
    """Cluster the weights of a layer by k-means (k-means++, the best of 4 starts).

    Centres are rounded to float16 and every weight takes the nearest of them. There are fewer than k centres if the
    weights have fewer distinct values. If more than half of the weights are 0, 0 is a centre for these alone.

    :param weights: float array of any shape, not empty.
    :param k: 1 to 256.
    :raises ValueError: if k is out of range, there are no weights, or they are too large for float16 or not finite.
    """
    w = np.asarray(weights, np.float32)
    if not 1 <= k <= 256:
        raise ValueError(f"k must be 1 to 256, so that an index fits in a byte, got {k}.")
    if w.size == 0 or not np.all(np.abs(w) <= np.finfo(np.float16).max):
        raise ValueError(
            "weights must be at least one number, finite and below 65504 for a float16 codebook, got "
            f"{w.size} numbers up to {np.max(np.abs(w), initial=0.0)}; check that training did not diverge."
        )
    # k-means of all weights, or, if most of them are 0, of the others beside a centre 0.
    others = w[w != 0]
    if 2 * others.size >= w.size or k == 1:
        return nearest(w, _means(w, k, seed))
    means = _means(others, k - 1, seed) if others.size else np.zeros(0, np.float16)
    # Put the centre 0 in its place, which moves the indices of all larger ones.
    centres = np.union1d(means, np.float16(0))
    indices = nearest(w, np.setdiff1d(means, np.float16(0))).indices if others.size else np.zeros(w.shape, np.uint8)
    zero = int(np.searchsorted(centres, 0))
    return Codebook(centres, np.where(w == 0, zero, indices + (indices >= zero)).astype(np.uint8))


def _means(weights: NDArray[np.float32], k: int, seed: int) -> NDArray[np.float16]:
    """Means of at most k clusters, which differ."""
    # Fewer different values than clusters are their own means.
    flat = weights.reshape(-1, 1)
    if len(distinct := np.unique(flat)) <= k:
        return np.unique(distinct.astype(np.float16))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer clusters than k: np.unique below
        means = KMeans(k, n_init=4, random_state=seed).fit(flat).cluster_centers_
    return np.unique(means.astype(np.float16))


def nearest(weights: ArrayLike, centres: ArrayLike) -> Codebook:
    """The codebook with these centres (any order) and the nearest one for each weight."""
    w = np.asarray(weights, np.float64)
    c = np.unique(np.asarray(centres, np.float16))
    # A weight takes the centre on its side of the middle between two neighbours.
    borders = (c[1:].astype(np.float64) + c[:-1]) / 2
    return Codebook(c, np.searchsorted(borders, w).astype(np.uint8))


def fine_tune(
    books: Sequence[Codebook],
    loss_of: Callable[[list[tf.Tensor], tf.Tensor], tf.Tensor],
    *,
    steps: int,
    learning_rate: float = 1e-4,
) -> list[Codebook]:
    """Train the centres with the indices held fixed, as Han et al. (2016) do, by Adam.

    :param books: one codebook for each layer.
    :param loss_of: function of the kernels [one tensor for each layer] and of the number of the step (int32 scalar):
        the loss of one minibatch, as TensorFlow operations.
    :return: new codebooks, in float16; centres that have become equal are merged.
    :raises ValueError: if `steps` is negative or a centre is not finite in the end.
    """
    if steps < 0:
        raise ValueError(f"steps must not be negative, got {steps}.")
    # The centres are trained; which weight has which of them stays.
    centres = [tf.Variable(book.centres.astype(np.float32)) for book in books]
    indices = [tf.constant(book.indices, tf.int32) for book in books]
    optimizer = tf.keras.optimizers.Adam(learning_rate)
    optimizer.build(centres)

    @tf.function
    def run(num_steps: tf.Tensor) -> None:
        for step in tf.range(num_steps):
            with tf.GradientTape() as tape:
                kernels = [tf.gather(c, i) for c, i in zip(centres, indices, strict=True)]
                loss = loss_of(kernels, step)
            optimizer.apply(tape.gradient(loss, centres), centres)

    # Han et al. (2016): the gradient of a centre is the sum of those of all weights that share it.
    run(tf.constant(steps, tf.int32))
    tuned = []
    for number, (centre, book) in enumerate(zip(centres, books, strict=True), start=1):
        values = centre.numpy().astype(np.float16)
        if not np.all(np.isfinite(values)):
            raise ValueError(f"centres of layer {number} became NaN or infinite; lower the learning rate.")
        # Centres may have changed places or become equal in float16.
        sorted_values, new_index = np.unique(values, return_inverse=True)
        tuned.append(Codebook(sorted_values, new_index.reshape(-1)[book.indices].astype(np.uint8)))
    return tuned
