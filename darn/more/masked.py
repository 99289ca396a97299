"""A masked network (MADE; Germain et al., 2015) over columns in an order of its own: Eqs. (1), (2) of Gregor et al.
(2014) with a layer of hidden units in place of the linear sum, and without stochastic units.

    a_j = b_j + sum_k x_k S_kj + sum_h max(0, c_h + sum_k x_k U_kh) V_hj,      p(x_j = 1 | x before j) = sigmoid(a_j)

Hidden unit h sees the first `seen[h]` columns of the order and adds to the logits of those behind them; S are direct
connections. Categories are as in `darn.more.ordered`. Plain NumPy: no graph is traced.

    model = fit_network(x, valid, NetworkSettings(hidden=200)).model      # see `darn.train.network_fitting`
    model.log_prob(x)                          # nats, exact
    model.complete(x, is_missing)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from darn.more.gaps import Changed, Numbers
from darn.more.ordered import Category, Ordered, categories_header, categories_of, check_order

__all__ = ["MaskedNetwork", "network_arrays", "network_header", "network_of", "network_shapes"]

_MOST_COLUMNS = 100_000
_MOST_UNITS = 100_000


@dataclasses.dataclass(frozen=True)
class MaskedNetwork(Ordered):
    """A network with one layer of masked hidden units over n columns of zeros and ones.

    :ivar order: the columns in the order in which they are drawn, [n].
    :ivar bias: b, [n], by column.
    :ivar direct: S, [n, n], by column; zero unless the row's column is before that of the column.
    :ivar seen: how many of the first columns of the order each hidden unit sees, [H], ascending.
    :ivar hidden_bias: c, [H].
    :ivar into: U, [n, H]; zero where the unit does not see the column.
    :ivar out: V, [H, n]; zero where the unit sees the column or one behind it.
    :ivar categories: columns that are one variable.
    """

    order: NDArray[np.int32]
    bias: NDArray[np.float32]
    direct: NDArray[np.float32]
    seen: NDArray[np.int32]
    hidden_bias: NDArray[np.float32]
    into: NDArray[np.float32]
    out: NDArray[np.float32]
    categories: tuple[Category, ...] = ()

    @property
    def num_parameters(self) -> int:
        """Biases, and weights that are not masked."""
        n = self.num_columns
        into = int(self.seen.sum())
        return n + n * (n - 1) // 2 + len(self.seen) + into + n * len(self.seen) - into

    def logits(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """One pass through the network, [N, n]."""
        direct, into, out = self._weights
        a: NDArray[np.float64] = x @ direct + np.maximum(x @ into + self.hidden_bias, 0.0) @ out + self.bias
        return a

    def turns(self, rows: NDArray[np.float64]) -> Callable[[int], NDArray[np.float64]]:
        """a_j of a column at a time: what is filled is added to the sums of those that see it.

        :param rows: zeros and ones, [N, n].
        """
        direct, into, out = self._weights
        H = len(self.seen)
        # Sums of the hidden units and of the logits, to which each filled column adds its row.
        to_sums = np.concatenate([into, direct], axis=1)
        sums = rows @ to_sums + np.concatenate([self.hidden_bias, self.bias])
        place = np.argsort(self.order)
        last: int | None = None

        def logit(j: int) -> NDArray[np.float64]:
            # The column of the call before has been filled by now.
            nonlocal last
            if last is not None:
                is_one = rows[:, last] > 0.0
                sums[is_one] += to_sums[last]
            last = j
            # Units that see at most the columns before j.
            end = int(np.searchsorted(self.seen, place[j], side="right"))
            logits: NDArray[np.float64] = np.maximum(sums[:, :end], 0.0) @ out[:end, j] + sums[:, H + j]
            return logits

        return logit

    def changed(self, rows: NDArray[np.float64], columns: NDArray[np.intp]) -> Changed:
        """What the columns add to the sums of the hidden units and directly, and one pass from there.

        :param rows: zeros and ones, [N, n]; zeros in these columns.
        :param columns: their numbers, [N, T].
        """
        # Sums of the known columns, which all states share.
        direct, into, _ = self._weights
        sums = rows @ into + self.hidden_bias
        directly = rows @ direct + self.bias

        def logits(states: Numbers) -> Numbers:
            # In the precision of the states.
            dtype = states.dtype
            direct, into, out = self._weights if dtype == np.float64 else (self.direct, self.into, self.out)
            hidden = states @ into[columns]
            hidden += sums[:, None].astype(dtype)
            np.maximum(hidden, 0.0, out=hidden)
            a: Numbers = (hidden.reshape(-1, len(self.seen)) @ out).reshape(*states.shape[:2], -1)
            a += states @ direct[columns]
            a += directly[:, None].astype(dtype)
            return a

        return logits

    # Private.

    @property
    def _width(self) -> int:
        return self.num_columns + len(self.seen)

    @functools.cached_property
    def _weights(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """S, U and V in double precision, in which a row's value does not depend on the rows beside it."""
        return self.direct.astype(np.float64), self.into.astype(np.float64), self.out.astype(np.float64)


def masks(order: np.ndarray, seen: np.ndarray) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Where S [n, n], U [n, H] and V [H, n] may be other than zero."""
    place = np.argsort(order)
    sees = place[:, None] < seen[None]
    return place[:, None] < place[None], sees, ~sees.T


def network_arrays(model: MaskedNetwork) -> dict[str, np.ndarray]:
    """Its arrays by name, as files have them."""
    names = ("order", "bias", "direct", "seen", "hidden_bias", "into", "out")
    return {name: getattr(model, name) for name in names}


def network_header(model: MaskedNetwork) -> dict[str, object]:
    """What a file says about a network, besides its arrays."""
    categories = categories_header(model.categories)
    return {"columns": model.num_columns, "hidden": len(model.seen), "categories": categories}


def network_shapes(header: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """The shapes of its arrays, from :func:`network_header`.

    :raises ValueError: if it is no header of a network.
    """
    if set(header) != {"columns", "hidden", "categories"}:
        raise ValueError("its header must have columns, hidden and categories, and nothing else")
    n = header["columns"]
    H = header["hidden"]
    if type(n) is not int or not 1 <= n <= _MOST_COLUMNS or type(H) is not int or not 0 <= H <= _MOST_UNITS:
        raise ValueError("its header must have whole numbers of columns and hidden units")
    biases = {"bias": (n,), "hidden_bias": (H,), "order": (n,), "seen": (H,)}
    return biases | {"direct": (n, n), "into": (n, H), "out": (H, n)}


def network_of(header: Mapping[str, object], arrays: dict[str, np.ndarray]) -> MaskedNetwork:
    """The network of a header and its arrays.

    :raises ValueError: if they make no network.
    """
    # Types, and finite numbers.
    n = len(arrays["bias"])
    for name, array in arrays.items():
        dtype = np.int32 if name in ("order", "seen") else np.float32
        if array.dtype != dtype:
            raise ValueError(f"its array {name} must be of {np.dtype(dtype).name}, got {array.dtype}")
        if dtype is np.float32 and not np.isfinite(array).all():
            raise ValueError("its parameters must be finite")
    # The order and the masks hold.
    order = arrays["order"]
    num_seen = arrays["seen"]
    check_order(order, n)
    if np.any(np.diff(num_seen) < 0) or np.any(num_seen < 0) or np.any(num_seen > n):
        raise ValueError("its hidden units must be sorted by the number of columns that they see")
    for name, mask in zip(("direct", "into", "out"), masks(order, num_seen), strict=True):
        if arrays[name][~mask].any():
            raise ValueError(f"its weights {name} must be zero where the order says so")
    return MaskedNetwork(**arrays, categories=categories_of(header["categories"], n))
