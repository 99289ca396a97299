"""A chain of sparse logistic regressions: Eqs. (1), (2) of Gregor et al. (2014) without stochastic units.

    log p(x) = sum_j log p(x_j | x of the columns before j),      p(x_j = 1 | ...) = sigmoid(b_j + sum_k x_k W_kj)

The columns stand in an order of their own, and most of W is zero. Columns of one category are one variable, see
`darn.more.ordered`.

    chain = fit_chain(x, strength=0.3)         # see `darn.train.chain_fitting`
    chain.log_prob(x)                          # nats, exact
    chain.sample(100, seed=1)
    chain.complete(x, is_missing)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from darn.model.config import Precision
from darn.model.model import DARN, DARNConfig
from darn.more.gaps import Changed, Numbers
from darn.more.ordered import Category, Ordered, categories_header, categories_of, check_order, levels_in_order

__all__ = ["Chain", "chain_arrays", "chain_header", "chain_of", "chain_shapes"]

_CERTAIN = 30.0  # a logit of what is certain, for models that have none
_MAX_COLUMNS = 100_000


@dataclasses.dataclass(frozen=True)
class Chain(Ordered):
    """A chain of logistic regressions over n columns of zeros and ones.

    :ivar order: the columns in the order in which they are drawn, [n].
    :ivar bias: b, [n], by column.
    :ivar weights: W, [n, n], sparse by columns: W[k, j] is what column k adds to the logit of column j; it is zero
        unless k is before j in the order.
    :ivar categories: columns that are one variable.
    """

    order: NDArray[np.int32]
    bias: NDArray[np.float64]
    weights: scipy.sparse.csc_matrix
    categories: tuple[Category, ...] = ()

    @property
    def num_weights(self) -> int:
        """Weights that are not zero."""
        return int(self.weights.nnz)

    @property
    def num_parameters(self) -> int:
        """Biases, and weights that are not zero."""
        return self.num_columns + self.num_weights

    def as_darn(self, dtype: Precision = "float32") -> DARN:
        """The same density as a DARN without stochastic units, whose columns are those of :attr:`order`.

        log p(x) is `chain.as_darn().log_prob(x[:, chain.order])`; `darn.encode` codes these rows. What is certain in a
        category has a probability of 1 - 1e-13 there.

        :param dtype: "float32" or "float64".
        """
        bias = self.bias.copy()
        weights = self.weights.toarray()
        for j, level in levels_in_order(self.categories, self.order).items():
            # Levels that exclude each other do so by weights that nothing else can outweigh.
            if level.is_certain:
                weights[:, j] = 0.0
                bias[j] = _CERTAIN
            reach = abs(bias[j]) + np.abs(weights[:, j]).sum()
            weights[level.earlier, j] = -_CERTAIN - reach
        model = DARN(DARNConfig(visible=self.num_columns, hidden=(), visible_conditional="linear", dtype=dtype))
        conditional = model.decoders[0].conditional
        # The DARN has its columns in the order of the chain.
        conditional.bias.assign(bias[self.order].astype(dtype))
        if self.num_columns > 1:
            conditional.weights.assign(weights[np.ix_(self.order, self.order)].astype(dtype))
        return model

    def logits(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """b + x W, [N, n]."""
        logits: NDArray[np.float64] = np.asarray(x @ self.weights) + self.bias
        return logits

    def turns(self, rows: NDArray[np.float64]) -> Callable[[int], NDArray[np.float64]]:
        """b_j + x W_j of a column at a time, by the weights that are not zero.

        :param rows: zeros and ones, [N, n].
        """
        start = self.weights.indptr

        def logit(j: int) -> NDArray[np.float64]:
            # Column j of the sparse matrix: the columns before it that have a weight.
            entries = slice(start[j], start[j + 1])
            before = self.weights.indices[entries]
            logits: NDArray[np.float64] = self.bias[j] + rows[:, before] @ self.weights.data[entries]
            return logits

        return logit

    def changed(self, rows: NDArray[np.float64], columns: NDArray[np.intp]) -> Changed:
        """b + x W of the rows, and what each of the columns adds to that.

        :param rows: zeros and ones, [N, n]; zeros in these columns.
        :param columns: their numbers, [N, T].
        """
        # Sums are linear: what each column adds is its row of W.
        a = self.logits(rows)
        weights = self._by_row[columns.reshape(-1)].toarray().reshape(*columns.shape, -1)

        def logits(states: Numbers) -> Numbers:
            # In the precision of the states.
            of_states: Numbers = states @ weights.astype(states.dtype, copy=False)
            of_states += a[:, None].astype(states.dtype, copy=False)
            return of_states

        return logits

    @functools.cached_property
    def _by_row(self) -> scipy.sparse.csr_matrix:
        return self.weights.tocsr()


def chain_arrays(chain: Chain) -> dict[str, np.ndarray]:
    """Its arrays by name, as files have them."""
    W = chain.weights
    parts = {"order": chain.order.astype(np.int32), "bias": chain.bias, "weights": W.data}
    return parts | {"rows": W.indices.astype(np.int32), "starts": W.indptr.astype(np.int64)}


def chain_header(chain: Chain) -> dict[str, object]:
    """What a file says about a chain, besides its arrays."""
    categories = categories_header(chain.categories)
    return {"columns": chain.num_columns, "weights": chain.num_weights, "categories": categories}


def chain_shapes(header: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """The shapes of its arrays, from :func:`chain_header`.

    :raises ValueError: if it is no header of a chain.
    """
    if set(header) != {"columns", "weights", "categories"}:
        raise ValueError("its header must have columns, weights and categories, and nothing else")
    n = header["columns"]
    number = header["weights"]
    if type(n) is not int or not 1 <= n <= _MAX_COLUMNS or type(number) is not int or not 0 <= number <= n * n:
        raise ValueError("its header must have whole numbers of columns and weights")
    return {"order": (n,), "bias": (n,), "weights": (number,), "rows": (number,), "starts": (n + 1,)}


def chain_of(header: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> Chain:
    """The chain of a header and its arrays.

    :raises ValueError: if they make no chain.
    """
    n = len(arrays["bias"])
    order, bias, weights, rows, starts = (arrays[name] for name in ("order", "bias", "weights", "rows", "starts"))
    # Types, and finite numbers.
    types = {"order": np.int32, "bias": np.float64, "weights": np.float64, "rows": np.int32, "starts": np.int64}
    for name, dtype in types.items():
        if arrays[name].dtype != dtype:
            raise ValueError(f"its array {name} must be of {np.dtype(dtype).name}, got {arrays[name].dtype}")
    if not np.isfinite(bias).all() or not np.isfinite(weights).all():
        raise ValueError("its parameters must be finite")
    check_order(order, n)
    # The sparse matrix is one, and every weight belongs to an earlier column.
    if starts[0] != 0 or starts[-1] != len(weights) or np.any(np.diff(starts) < 0):
        raise ValueError("its starts must grow from 0 to the number of weights")
    place = np.argsort(order)
    columns = np.repeat(np.arange(n), np.diff(starts))
    if len(rows) and (rows.min() < 0 or rows.max() >= n or np.any(place[rows] >= place[columns])):
        raise ValueError("its weights must be of columns before the column whose logit they add to")
    if np.any((np.diff(rows) <= 0) & (np.diff(columns) == 0)):
        raise ValueError("its weights must be in the order of their rows, each once")
    groups = categories_of(header["categories"], n)
    return Chain(order, bias, scipy.sparse.csc_matrix((weights, rows, starts), shape=(n, n)), groups)
