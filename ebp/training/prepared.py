"""Data for training: checked once, and put where the compiled loops take them from.

Of sparse data the loops read single rows, so these stay a CSR matrix, as three tensors.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf
from numpy.typing import ArrayLike

from ..network.architecture import Architecture
from ..network.coding import Matrix, is_sparse
from ..network.network import EBPNetwork, check_inputs, check_rows

__all__ = ["InputCodingWarning", "Prepared", "SparseRows", "check_coding", "padded", "power_of_two", "prepare"]

#: `check_coding` warns if this part of the inputs' mean square is in columns that hardly vary.
MAX_CONSTANT_PART = 0.1


class InputCodingWarning(UserWarning):
    """The inputs are legal, but coded in a way that spoils an output or carries no information."""


class SparseRows(NamedTuple):
    """A CSR matrix as tensors: row i has the values `data[indptr[i]:indptr[i + 1]]` in the columns `indices[...]`."""

    indptr: tf.Tensor
    indices: tf.Tensor
    data: tf.Tensor


class Prepared(NamedTuple):
    """Checked data, to be handed to `fit` and `fit_epoch` again and again.

    :ivar X: tensor [N, D], or `SparseRows`.
    :ivar Y: [N, n_L].
    """

    X: tf.Tensor | SparseRows
    Y: tf.Tensor


def prepare(network: EBPNetwork, X: Matrix | Prepared, Y: ArrayLike | None = None) -> Prepared:
    """Check data once, and put them where the compiled loops take them from.

    :raises ValueError: for wrong shapes, data prepared for another network, NaN, labels that the head does not take
        (with the mapping to use), or, in a network without biases, rows without any non-zero input.

    Warns (`InputCodingWarning`) about rows without any non-zero input, unless it is the only one, and about inputs that
    are mostly a constant other than 0 (`check_coding`).
    """
    architecture = network.architecture
    if isinstance(X, Prepared):
        _check_prepared(X, architecture)
        return X
    if Y is None:
        raise ValueError("targets are missing: give Y, or data from ebp.prepare(network, X, Y).")
    # Inputs and targets as network and head take them.
    X = check_inputs(X, architecture.layer_sizes[0], architecture.dtype)
    Y = architecture.head.check_targets(Y, architecture.layer_sizes[-1])
    check_rows(X, Y)
    # Inputs that are legal, but from which little can be learned.
    _check_empty_rows(X, architecture.has_biases)
    if architecture.priors[0].is_discrete:
        check_coding(X)
    # Tensors; of a sparse matrix the three of CSR.
    targets = tf.constant(Y, architecture.dtype)
    if is_sparse(X) and architecture.convolutions:
        raise ValueError("inputs of convolutions are images and cannot be sparse; give a dense array.")
    if is_sparse(X):
        rows = SparseRows(tf.constant(X.indptr, tf.int64), tf.constant(X.indices, tf.int32), tf.constant(X.data))
        return Prepared(rows, targets)
    return Prepared(tf.constant(X), targets)


def _check_prepared(data: Prepared, architecture: Architecture) -> None:
    wanted = (architecture.layer_sizes[0], architecture.layer_sizes[-1], architecture.dtype)
    num_inputs = wanted[0] if isinstance(data.X, SparseRows) else int(data.X.shape[1])
    given = (num_inputs, int(data.Y.shape[1]), data.Y.dtype)
    if given != wanted:
        raise ValueError(
            f"data were prepared for a network of {given[0]} inputs and {given[1]} outputs in {given[2].name}, this "
            f"one has {wanted[0]} and {wanted[1]} in {wanted[2].name}; prepare them for it, too."
        )


def padded(data: Prepared) -> Prepared:
    """Dense data with rows of zeros up to a power of two, so that what is compiled for a size serves many."""
    num_rows = int(data.Y.shape[0])
    room = [[0, power_of_two(num_rows) - num_rows], [0, 0]]
    return Prepared(tf.pad(data.X, room), tf.pad(data.Y, room))


def power_of_two(number: int) -> int:
    """The least power of two that is not smaller, for a positive number."""
    return 1 << (number - 1).bit_length()


def check_coding(X: Matrix) -> None:
    """Warn if columns that are nearly a constant other than 0 make up much of the inputs.

    The weights of such columns learn little more than one number together, so most stay undecided. Their most probable
    values are then coin tosses, times a constant: noise that EBP-D does not average out, as EBP-P and `vote` do.

    :param X: [N, D], dense or sparse. With fewer than 10 rows nothing is known about it.
    """
    if X.shape[0] < 10:
        return
    # Columns that vary by less than a third of their mean.
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).reshape(-1)
    square = scipy.sparse.csr_matrix(X).multiply(X) if is_sparse(X) else np.square(X)
    mean_square = np.asarray(square.mean(axis=0), dtype=np.float64).reshape(-1)
    is_constant = mean_square - mean**2 < 0.1 * mean**2
    # How much of the inputs' mean square is theirs.
    part = float(np.sum(mean_square[is_constant]) / max(np.sum(mean_square), np.finfo(np.float64).tiny))
    if part > MAX_CONSTANT_PART and np.sum(is_constant) > 1:
        warnings.warn(
            f"{np.sum(is_constant)} of {X.shape[1]} input columns are nearly a constant other than 0 and make up "
            f"{100 * part:.0f} % of the inputs' mean square. With discrete weights the deterministic output (EBP-D) "
            "suffers from it: centre the columns, or code the background as 0, or use ternary weights, or predict with "
            "EBP-P or vote(k).",
            InputCodingWarning,
            stacklevel=4,
        )


def _check_empty_rows(X: Matrix, has_biases: bool) -> None:
    is_empty = X.getnnz(axis=1) == 0 if is_sparse(X) else ~np.any(X, axis=1)
    rows = np.flatnonzero(is_empty)
    if not rows.size:
        return
    message = f"{rows.size} of {X.shape[0]} rows have no input other than 0 (first: row {rows[0]})"
    if not has_biases:
        raise ValueError(
            f"{message}, so a network without biases knows nothing of them; drop them, or use biases=True."
        )
    # A single empty row says nothing of how the inputs are coded.
    if X.shape[0] == 1:  # such as the first of a stream, which is 0 in units of its own
        return
    warnings.warn(
        f"{message}; only biases learn from them. Drop them if they are not meant.", InputCodingWarning, stacklevel=4
    )
