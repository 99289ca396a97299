"""Networks of binary weights in a small file of packed bits, run by XNOR and bit counting with integer sums only.

    network = PackedNetwork.load("net.ebp")     # of `ebp.export_network` or `gpflow-deep ebp --export`
    network.predict(X)                          # names of classes of raw rows, if the file has both; see `predict`

With v and a neuron's weights w in {-1, +1}^K held as bits, their product is the integer s = K - 2 popcount(v xor w).
The neuron's output sign(s + b) (+1 at 0) is +1 exactly if s >= ceil(-b): its bias becomes an integer threshold. A
float32 product of signs is exact up to K = 2^24, so that the float network and this one agree bit for bit.

The first layer's inputs are signs, too; or multiples of 2^-e (e = 0: integers, such as pixels or word counts). Then the
sum q of 2^e x_j w_j is an integer and the threshold is ceil(-2^e b). The float network's sums of such inputs are exact
as well, in any order, while they stay below 2^24 units of 2^-e, so they agree again. For other real inputs they could
not: a float sum depends on the order of its terms. The first layer of such inputs is kept as float32 signs, made when
it is first used, since products of floats are what processors do fastest. The last layer has no threshold; its biases
are kept as the float32 or float64 numbers they were, and are added in float64.

This module, what it imports, and its command `python -m ebp` need NumPy alone; with Numba they are faster.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..network.coding import Matrix, is_sparse
from .packed_file import FILE_VERSION, Content, parse, read
from .signs import (
    HAS_NUMBA,
    Layer,
    convolved_sums,
    exact_product,
    hidden_sums,
    masked_product,
    pack_signs,
    prefers_floats,
    sign_products,
    sign_units,
    units,
)

__all__ = ["FILE_VERSION", "PackedNetwork"]

_MAX_FLOATS = 2**26
_FEW_ROWS = 14  # up to which the kernel for sparse rows is faster than a product of matrices


class PackedNetwork:
    """A network, or several that vote, read from a file of :func:`ebp.export_packed`.

    :ivar layer_sizes: numbers of inputs, of neurons of each hidden layer, and of outputs.
    :ivar num_networks: networks in the file.
    :ivar has_convolutions: whether layers share weights, see `convolution`.
    :ivar fraction_bits: None: coded inputs are -1 and +1; e: they are multiples of 2^-e.
    :ivar coding: the `InputCoding` that makes them of raw inputs, or None if the file has none.
    :ivar classes: names of the classes [C], or None if the file has none.
    :ivar num_bytes: size of the file.
    :ivar engine: "numba" or "numpy".
    """

    def __init__(self, content: Content, engine: str = "auto") -> None:
        self.networks = content.networks
        first = content.networks[0]
        self.has_convolutions = any(layer.convolved is not None for layer in first)
        self.layer_sizes = (first[0].size_below, *(layer.size for layer in first))
        self.num_networks = len(content.networks)
        self.fraction_bits = content.fraction_bits
        self.coding = content.coding
        self.classes = content.classes
        self.num_bytes = content.num_bytes
        self.engine = _engine(engine)
        # Weights are kept as floats where these do not take too much memory.
        as_floats = first[:1] if self.engine == "numba" else first
        num_floats = self.num_networks * sum(layer.num_inputs * layer.num_outputs for layer in as_floats)
        self._with_floats = num_floats <= _MAX_FLOATS

    @classmethod
    def load(cls, path: str | os.PathLike[str], engine: str = "auto") -> PackedNetwork:
        """Read and check a file.

        :param engine: "numba": compiled, needs the package numba; "numpy": slower, the same numbers; "auto": numba if
            it is installed.
        :raises ValueError: if the file is missing, not one of :func:`ebp.export_packed`, of another version, truncated
            or corrupt, or if `engine` is unknown or not installed.
        """
        engine = _engine(engine)
        return cls(parse(read(Path(path)), Path(path)), engine)

    def integers(self, X: Matrix, network: int = 0, *, is_coded: bool = False) -> NDArray[np.int32]:
        """The last layer's sums without its biases, [N, n_out]: integers.

        Of 2^-e for one layer of such inputs, and of 1 / pool^2 right behind a convolution.

        :param X: raw inputs [N, n_in], in any dtype, if the file has a coding. If it has none, or with `is_coded`:
            -1 and +1, or multiples of 2^-fraction_bits. May be a SciPy sparse matrix but for signs.
        :param network: which network of the file.
        :raises ValueError: if `X` has another shape or other values.
        """
        self._check(network)
        return self._sums(X, is_coded)(network).astype(np.int32)

    def scores(self, X: Matrix, network: int = 0, *, is_coded: bool = False) -> NDArray[np.float64]:
        """sqrt(K) u_L of the float network, [N, n_out]: the sums of the last layer plus its biases, in float64."""
        self._check(network)
        return self._scores(self._sums(X, is_coded)(network), network)

    def vote(self, X: Matrix, *, is_coded: bool = False) -> NDArray[np.float64]:
        """Mean output over the networks of the file, [N, n_out].

        The output of a network is sign(score), or if there are several, +1 for the largest score and -1 for the others.
        """
        sums = self._sums(X, is_coded)
        total: np.ndarray | float = 0.0
        for network in range(self.num_networks):
            scores = self._scores(sums(network), network)
            if scores.shape[1] == 1:
                total = total + np.where(scores >= 0, 1.0, -1.0)
            else:
                total = total + np.where(np.arange(scores.shape[1]) == np.argmax(scores, axis=1)[:, None], 1.0, -1.0)
        return np.asarray(total / self.num_networks)

    def predict(self, X: Matrix, *, is_coded: bool = False) -> np.ndarray:
        """The class of each row, [N], by the networks' vote; the first one of a tie.

        Its name, if the file has `classes`; else -1 or +1 (one output), or its number.
        """
        votes = self.scores(X, is_coded=is_coded) if self.num_networks == 1 else self.vote(X, is_coded=is_coded)
        if self.classes is not None:
            return self.classes[(votes[:, 0] >= 0).astype(int) if votes.shape[1] == 1 else np.argmax(votes, axis=1)]
        return np.where(votes[:, 0] >= 0, 1, -1) if votes.shape[1] == 1 else np.argmax(votes, axis=1)

    def _check(self, network: int) -> None:
        if not 0 <= network < self.num_networks:
            raise ValueError(f"network must be from 0 to {self.num_networks - 1}, got {network}.")

    def _sums(self, X: Matrix, is_coded: bool) -> Callable[[int], np.ndarray]:
        """Of rows, which are checked and coded once: from the number of a network to its last layer's sums.

        These are whole numbers, perhaps as floats.
        """
        X = X if is_sparse(X) else np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.layer_sizes[0] or X.dtype.kind not in "biuf":
            raise ValueError(
                f"inputs must be numbers [N, {self.layer_sizes[0]}], got shape {list(X.shape)} and dtype {X.dtype}."
            )
        # Raw inputs are coded as in training.
        if self.coding is not None and not is_coded:
            if not np.isfinite(X.data if is_sparse(X) else X).all():
                raise ValueError("inputs must be finite, got NaN or infinity; drop or impute these rows.")
            X = self.coding.transform(X)
        if self.has_convolutions:
            if is_sparse(X):
                raise ValueError("inputs of convolutions are images and cannot be sparse; give a dense array.")
            images = sign_units(X) if self.fraction_bits is None else units(X, self.fraction_bits)
            return lambda network: convolved_sums(images, self.networks[network])
        first_sums = self._first_sums(X)

        def sums(network: int) -> np.ndarray:
            # The first layer's sums, and then thresholds and sums of each further layer.
            layers = self.networks[network]
            last = first_sums(layers[0])
            for layer_below, layer in itertools.pairwise(layers):
                last = hidden_sums(last, layer_below, layer, engine=self.engine, with_floats=self._with_floats)
            return last

        return sums

    def _first_sums(self, X: Matrix) -> Callable[[Layer], np.ndarray]:
        """From the first layer of a network to its sums for coded rows, as whole numbers or as packed signs."""
        with_floats = self._with_floats
        bits = self.fraction_bits

        def few_sums(layer: Layer) -> np.ndarray:
            assert bits is not None
            sums = masked_product(X, layer, bits)
            return exact_product(units(X, bits), layer, with_floats=with_floats) if sums is None else sums

        # Whole numbers: few rows by a kernel that checks them on its way, others by products of floats.
        if bits is not None:
            if self.engine == "numba" and X.shape[0] <= _FEW_ROWS and not is_sparse(X):
                return few_sums
            return functools.partial(exact_product, units(X, bits), with_floats=with_floats)
        # Signs: by products of floats, or by counting bits.
        if is_sparse(X):
            raise ValueError("this network's inputs are -1 and +1, so they cannot be sparse; give a dense array.")
        if self.engine == "numpy" and with_floats and prefers_floats(self.networks[0][0], len(X)):
            return functools.partial(exact_product, sign_units(X), with_floats=True)
        return functools.partial(sign_products, pack_signs(X), engine=self.engine, with_floats=with_floats)

    def _scores(self, sums: np.ndarray, network: int) -> NDArray[np.float64]:
        layers = self.networks[network]
        scores = sums.astype(np.float64)
        if len(layers) == 1:
            scores *= 2.0 ** -(self.fraction_bits or 0)
        elif layers[-2].convolved is not None:
            scores /= layers[-2].convolved.pool ** 2
        scores += layers[-1].numbers
        return scores


def _engine(engine: str) -> str:
    if engine not in ("auto", "numba", "numpy"):
        raise ValueError(f"engine must be 'auto', 'numba' or 'numpy', got {engine!r}.")
    if engine == "numba" and not HAS_NUMBA:
        raise ValueError("engine='numba' needs the package numba; `pip install numba`, or use engine='numpy'.")
    return "numba" if HAS_NUMBA and engine != "numpy" else "numpy"
