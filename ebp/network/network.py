"""A multilayer network of sign neurons with a factorised posterior over its weights: `EBPNetwork`.

v_l = sign(W_l v_(l-1)), Eq. (2.2), with one natural parameter h for each weight (see `posterior`) and real biases. The
outputs are EBP-D, one network with the most probable weights (Eq. (4.6)); EBP-P, the mean over the posterior
(Eq. (4.7)); and `vote(k)`, the mean over k networks drawn from the posterior.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf
from numpy.typing import ArrayLike

from gpflow_deep_base.runtime.tracing import counted_alone
from gpflow_deep_base.seeds import Seed, as_seed

from .architecture import Architecture, Posterior, head_of, initial_h
from .coding import Matrix
from .convolution import check_whole, flat_sizes, pooled, unfolded
from .forward import forward
from .heads import Head, SignHead
from .posterior import WeightPrior, weight_prior

__all__ = ["EBPNetwork", "check_inputs", "check_rows"]

#: Numbers that one chunk of a prediction may hold in its widest layer.
CHUNK_SIZE = 1 << 22


class EBPNetwork(tf.Module):
    """Bayesian network of sign neurons, trained by `fit`, `fit_epoch` or `fit_stream` of `ebp.training.training`.

    :param layer_sizes: inputs, hidden layers, outputs, e.g. (784, 120, 10); or with layers of shared weights on images,
        ((28, 28, 1), Convolution(16), Convolution(32), 10), see `ebp.network.convolution`.
    :param prior: "binary", "ternary", "real", or a `WeightPrior`; or one of these for each layer. Biases are real.
    :param head: "binary" (one output, -1 or +1), "multiclass" (one output -1 or +1 for each class), "softmax",
        "regression", or a `Head`.
    :param covariance: "diagonal", or "full" for the forward pass of appendix B. They are the same for two layers of
        weights and one output; "full" costs the square of a hidden layer's width for each example.
    :param biases: whether neurons have a bias.
    :param seed: of the start of h.
    :param dtype: float32 or float64.
    :raises ValueError: for arguments that do not fit together.

    h starts uniform with variance 1 / (K var0), where var0 is the prior's variance of a weight (1 for binary weights):
    without this the hidden neurons would stay equal. A network without hidden layers starts at h = 0. Biases start
    at 0.
    All state is in `h`, `b` and `step`, for `tf.train.Checkpoint(network=network)`.
    """

    def __init__(
        self,
        layer_sizes: Sequence[object],
        prior: str | WeightPrior | Sequence[str | WeightPrior] = "binary",
        *,
        head: str | Head = "binary",
        covariance: str = "diagonal",
        biases: bool = True,
        seed: Seed = 0,
        dtype: tf.DType | str = tf.float32,
    ) -> None:
        super().__init__(name="ebp_network")
        # Layers, and a prior for each.
        if not isinstance(layer_sizes, (tuple, list, np.ndarray)) or len(layer_sizes) < 2:
            raise ValueError(
                f"layer_sizes must be at least two positive whole numbers, inputs and outputs, got {layer_sizes!r}."
            )
        sizes, convolutions = flat_sizes(layer_sizes)
        if isinstance(prior, str) or not isinstance(prior, Sequence):
            prior = [prior] * (len(sizes) - 1)
        if len(prior) != len(sizes) - 1:
            raise ValueError(f"give one prior, or one for each of the {len(sizes) - 1} layers, got {len(prior)}.")
        if covariance not in ("diagonal", "full"):
            raise ValueError(f"covariance must be 'diagonal' or 'full', got {covariance!r}.")
        has_convolutions = any(shared is not None for shared in convolutions)
        if has_convolutions and covariance == "full":
            raise ValueError("covariance must be 'diagonal' with convolutions, got 'full'.")
        # Half precision has no error function, and too few digits for sums of increments.
        dtype = tf.as_dtype(dtype)
        if dtype not in (tf.float32, tf.float64):
            raise ValueError(f"dtype must be float32 or float64, got {dtype.name}.")
        # What is fixed, hashable so that equal networks share compiled functions.
        self.architecture = Architecture(
            layer_sizes=sizes,
            priors=tuple(weight_prior(layer_prior) for layer_prior in prior),
            head=head_of(head, sizes[-1]),
            full_covariance=covariance == "full",
            has_biases=bool(biases),
            dtype=dtype,
            convolutions=convolutions if has_convolutions else (),
        )
        # The state: h, b and the number of updates.
        start = initial_h(self.architecture, as_seed(seed))
        self.h = [tf.Variable(h, name=f"h_{layer}") for layer, h in enumerate(start, 1)]
        self.b = [
            tf.Variable(tf.zeros(shape[1:], dtype), name=f"b_{layer}")
            for layer, shape in enumerate(self.architecture.weight_shapes, 1)
            if biases
        ]
        self.step = tf.Variable(0, dtype=tf.int64, name="step")

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """Inputs, hidden layers, outputs."""
        return self.architecture.layer_sizes

    @property
    def posterior(self) -> Posterior:
        """The current numbers, as a value."""
        return Posterior(tuple(tf.convert_to_tensor(h) for h in self.h), tuple(tf.convert_to_tensor(b) for b in self.b))

    def assign(self, posterior: Posterior) -> None:
        """Set all numbers."""
        for variable, value in zip([*self.h, *self.b], [*posterior.h, *posterior.b], strict=True):
            variable.assign(value)

    def assign_upper(self, posterior: Posterior) -> None:
        """Set all numbers but h of the first layer."""
        for variable, value in zip([*self.h[1:], *self.b], [*posterior.h, *posterior.b], strict=True):
            variable.assign(value)

    # Outputs.

    def predict_moments(self, X: Matrix, *, dtype: object = None) -> tuple[np.ndarray, np.ndarray]:
        """mu_L and sigma2_L of Eqs. (4.1) and (4.2), [N, n_L] each.

        :param dtype: of the computation; None: the network's. In float64 a row's result does not depend on its company.

        The variances of real weights stay those of the prior, and with them sigma2_L; see `EBPRegressor` for others.
        """
        architecture = self.architecture
        dtype = architecture.dtype if dtype is None else tf.as_dtype(dtype)
        call = _compiled_moments(dataclasses.replace(architecture, dtype=dtype), scipy.sparse.issparse(X))
        parts = [call(rows, h, self.b) for rows, h in self._chunks(X, dtype)]
        return np.concatenate([mu for mu, _ in parts]), np.concatenate([sigma2 for _, sigma2 in parts])

    def predict_mean(self, X: Matrix) -> np.ndarray:
        """<v_L>, the mean output over the posterior, [N, n_L]: in [-1, 1] for signs, probabilities for softmax."""
        mu, sigma2 = self.predict_moments(X)
        return self.architecture.head.mean(tf.constant(mu), tf.constant(sigma2)).numpy()

    def predict_probabilistic(self, X: Matrix) -> np.ndarray:
        """EBP-P, Eq. (4.7): -1 or +1 (one output) or the number of the class, int [N]; for regression mu, [N, n_L]."""
        return self.architecture.head.decide(self.predict_scores(X))

    def predict_scores(self, X: Matrix, *, dtype: object = None) -> np.ndarray:
        """What EBP-P decides by, [N, n_L]: mu / sigma for signs (which unlike <v_L> does not saturate), else <v_L>."""
        mu, sigma2 = self.predict_moments(X, dtype=dtype)
        if isinstance(self.architecture.head, SignHead):
            return mu / np.sqrt(sigma2)
        return self.architecture.head.mean(tf.constant(mu), tf.constant(sigma2)).numpy()

    def predict_deterministic(self, X: Matrix) -> np.ndarray:
        """EBP-D: decisions of the network with the most probable weights, of the shape of `predict_probabilistic`."""
        return self.architecture.head.decide(self.deterministic_scores(X))

    def deterministic_scores(self, X: Matrix) -> np.ndarray:
        """u_L of the network with the most probable weights, [N, n_L]."""
        return self._network_scores(check_inputs(X, self.layer_sizes[0], tf.float64), self.mode_weights())

    def vote(self, X: Matrix, k: int, seed: Seed = 0) -> np.ndarray:
        """Mean output of k networks drawn from the posterior, [N, n_L].

        Signs: the mean of -1 and +1. Classes: the mean of codes with +1 for the network's class and -1 for the others.
        Regression: the mean of u_L. `decide` makes predictions of it. It tends to EBP-P with k, up to the central limit
        theorem.

        :raises ValueError: if k is not a positive whole number.
        """
        check_whole("k", k)
        seed = as_seed(seed)
        X = check_inputs(X, self.layer_sizes[0], tf.float64)
        total = np.zeros((X.shape[0], self.layer_sizes[-1]))
        # Draw i depends on the seed and i alone: more votes begin with the same draws.
        for i in range(k):
            scores = self._network_scores(X, self.sample_weights(tf.random.fold_in(seed, i)))
            total += self.architecture.head.output(tf.constant(scores)).numpy()
        return total / k

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """Predictions from outputs [N, n_L]: -1 or +1 (one output) or the class's number; regression: as they are."""
        return self.architecture.head.decide(np.asarray(scores))

    def log_evidence(self, X: Matrix, Y: ArrayLike) -> np.ndarray:
        """log P(y | x, data so far) of each example in nats, [N]."""
        Y = self.architecture.head.check_targets(Y, self.layer_sizes[-1])
        mu, sigma2 = self.predict_moments(X)
        check_rows(mu, Y)
        return self.architecture.head.log_prob(tf.constant(Y, mu.dtype), tf.constant(mu), tf.constant(sigma2)).numpy()

    # Single networks.

    def mode_weights(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """W [n_(l-1), n_l] and b [n_l] of each layer at the most probable values, Eq. (4.6); b is 0 without biases."""
        weights = [
            prior.mode(tf.convert_to_tensor(h)) for prior, h in zip(self.architecture.priors, self.h, strict=True)
        ]
        return self._with_biases(weights, [b.numpy() for b in self.b])

    def sample_weights(self, seed: Seed) -> list[tuple[np.ndarray, np.ndarray]]:
        """One draw of W and b of each layer from the posterior; weights are independent, biases N(b, 1)."""
        seed = as_seed(seed)
        dtype = self.architecture.dtype
        # 0 is left out of the uniform numbers, as its quantile may be infinite.
        tiny = np.finfo(dtype.as_numpy_dtype).tiny
        weights = []
        for layer, (prior, h) in enumerate(zip(self.architecture.priors, self.h, strict=True)):
            # Even numbers are streams of weights, odd ones of biases.
            uniform = tf.random.stateless_uniform(h.shape, tf.random.fold_in(seed, 2 * layer), tiny, 1.0, dtype)
            weights.append(prior.sample(tf.convert_to_tensor(h), uniform))
        biases = [
            (b + tf.random.stateless_normal(b.shape, tf.random.fold_in(seed, 2 * layer + 1), dtype=dtype)).numpy()
            for layer, b in enumerate(self.b)
        ]
        return self._with_biases(weights, biases)

    def entropy(self) -> list[float]:
        """Mean entropy of a weight of each layer, in nats: log 2 for binary weights that know nothing, falling to 0."""
        return [
            float(tf.reduce_mean(prior.entropy(tf.convert_to_tensor(h))))
            for prior, h in zip(self.architecture.priors, self.h, strict=True)
        ]

    # Private.

    def _with_biases(
        self, weights: Sequence[tf.Tensor], biases: Sequence[np.ndarray]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        biases = biases or [np.zeros(W.shape[1], W.dtype.as_numpy_dtype) for W in weights]
        return [(W.numpy(), b) for W, b in zip(weights, biases, strict=True)]

    def _network_scores(self, X: Matrix, weights: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """u_L of one network, normalised by sqrt(K) as in Eq. (3.14), in float64, [N, n_L]; X is checked."""
        convolutions = self.architecture.convolutions or (None,) * len(weights)
        layers = [(W.astype(np.float64), b, shared) for (W, b), shared in zip(weights, convolutions, strict=True)]
        parts = []
        # Signs through the hidden layers, and u of the last, a chunk of rows at a time.
        for rows in _row_slices(X.shape[0], self.architecture.widest):
            v = X[rows]
            for W, b, shared in layers:
                # 1 / sqrt(K) changes no sign, so that the last layer alone is divided.
                u = np.asarray((v if shared is None else unfolded(v, shared)) @ W) + b
                v = np.where(u >= 0, 1.0, -1.0)
                v = v if shared is None else pooled(v, shared) / shared.pool**2
            parts.append(u / math.sqrt(self.architecture.fan_ins[-1]))
        return np.concatenate(parts)

    def _chunks(self, X: Matrix, dtype: tf.DType) -> Iterator[tuple[tf.Tensor, tuple[tf.Tensor, ...]]]:
        """Rows of X and h for them; of a sparse matrix, only the columns that occur and their rows of h_1."""
        X = check_inputs(X, self.layer_sizes[0], dtype)
        widest = self.architecture.widest
        if self.architecture.full_covariance:
            # Appendix B has a covariance of all pairs of neurons for each example.
            widest **= 2
        if not scipy.sparse.issparse(X):
            for rows in _row_slices(X.shape[0], max(widest, self.layer_sizes[0])):
                yield tf.constant(X[rows]), tuple(self.h)
            return
        for rows in _row_slices(X.shape[0], widest):
            part = X[rows]
            # Without the columns that do not occur, so that few rows of h_1 are read.
            columns, compact = np.unique(part.indices, return_inverse=True)
            row = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
            positions = np.stack([row, compact.reshape(-1)], axis=1).astype(np.int64)
            yield (
                tf.SparseTensor(positions, part.data, [part.shape[0], len(columns)]),
                (tf.gather(self.h[0], columns), *self.h[1:]),
            )


def _row_slices(num_rows: int, width: int) -> Iterator[slice]:
    size = max(1, CHUNK_SIZE // width)
    return (slice(start, start + size) for start in range(0, num_rows, size))


@functools.lru_cache(maxsize=64)
def _compiled_moments(architecture: Architecture, is_sparse: bool) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """(X, h, b) -> mu_L and sigma2_L, traced once for any number of rows, and of columns if X is sparse."""

    @counted_alone
    def moments(X: Matrix, h: tuple[tf.Tensor, ...], b: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, tf.Tensor]:
        means = architecture.means(h)
        last = forward(architecture, X, means, architecture.variances(h, means), b)[-1]
        return last.mu, last.sigma2

    # Types of arguments with any number of rows, and of columns if they are sparse.
    shapes: list[tuple[int | None, int]] = [*architecture.weight_shapes]
    dtype = architecture.dtype
    num_columns = None if is_sparse else architecture.layer_sizes[0]
    spec = (tf.SparseTensorSpec if is_sparse else tf.TensorSpec)([None, num_columns], dtype)
    b_specs = tuple(tf.TensorSpec(shape[1:], dtype) for shape in shapes) if architecture.has_biases else ()
    if is_sparse:
        shapes[0] = (None, shapes[0][1])
    h_specs = tuple(tf.TensorSpec(shape, dtype) for shape in shapes)
    compiled = tf.function(moments, autograph=False, input_signature=[spec, h_specs, b_specs])

    def call(X: Matrix, h: Sequence[object], b: Sequence[object]) -> tuple[np.ndarray, np.ndarray]:
        mu, sigma2 = compiled(X, *(tuple(tf.cast(part, dtype) for part in parts) for parts in (h, b)))
        return mu.numpy(), sigma2.numpy()

    return call


def check_rows(X: Matrix, Y: np.ndarray) -> None:
    """Raises ValueError if inputs and targets have not as many rows."""
    if Y.shape[0] != X.shape[0]:
        raise ValueError(f"inputs and targets must have as many rows, got {X.shape[0]} and {Y.shape[0]}.")


def check_inputs(X: Matrix, num_inputs: int, dtype: tf.DType) -> Any:
    """X as a finite array, or CSR matrix with sorted indices, of the network's dtype.

    :raises ValueError: for a wrong shape, for NaN or infinity (naming the first column), or for no rows.
    """
    numpy_dtype = dtype.as_numpy_dtype
    is_sparse: bool = scipy.sparse.issparse(X)
    # CSR with sorted indices, or a contiguous array.
    if is_sparse:
        X = scipy.sparse.csr_matrix(X, dtype=numpy_dtype, copy=False)
        if not X.has_canonical_format:
            # The caller's matrix is not sorted in place.
            X = X.copy()
            X.sum_duplicates()
    else:
        X = np.asarray(X)
        if X.dtype.kind not in "buif":
            raise ValueError(f"inputs must be numbers, got dtype {X.dtype}.")
        X = np.ascontiguousarray(X, dtype=numpy_dtype)
    if X.ndim != 2 or X.shape[1] != num_inputs:
        raise ValueError(f"inputs must be of shape [N, {num_inputs}], got {list(X.shape)}.")
    if X.shape[0] == 0:
        raise ValueError("inputs must have at least one row, got none.")
    # Values have to be finite; the message names the first column in which one is not.
    values = np.asarray(X.data if is_sparse else X)
    if not np.all(np.isfinite(values)):
        if is_sparse:
            columns = scipy.sparse.csr_matrix(X).indices[~np.isfinite(values)]
        else:
            columns = np.nonzero(~np.isfinite(values))[1]
        raise ValueError(
            f"inputs must be finite, got NaN or infinity in {len(columns)} entries, the first in column "
            f"{columns.min()}; drop or impute them."
        )
    return X
