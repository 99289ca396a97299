"""Inputs of networks: what they may be, and that they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf

from .coding import Matrix

__all__ = ["Matrix", "check_inputs"]


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
