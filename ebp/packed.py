"""Networks of binary weights as a small file of packed bits, run by XNOR and bit counting with integer sums only.

    export_packed("net.ebp", Weights(signs, biases))           # signs [n_in, n_out] of -1 and +1, real biases [n_out]
    export_network("net.ebp", ebp_network)                     # the most probable weights, or draws that vote
    network = PackedNetwork.load("net.ebp")
    network.predict(X)

With v and a neuron's weights w in {-1, +1}^K held as bits, their product is the integer s = K - 2 popcount(v xor w).
The neuron's output sign(s + b) (+1 at 0) is +1 exactly if s >= ceil(-b): its bias becomes an integer threshold. A
float32 product of signs is exact up to K = 2^24, so that the float network and this one agree bit for bit.

The first layer's inputs are signs, too; or, with `fraction_bits=e`, multiples of 2^-e (e = 0: integers, such as pixels
or word counts). Then the sum q of 2^e x_j w_j is an integer and the threshold is ceil(-2^e b). The float network's sums
of such inputs are exact as well, in any order, while they stay below 2^24 units of 2^-e, so they agree again. For other
real inputs they could not: a float sum depends on the order of its terms. The last layer has no threshold; its
biases are kept as the float32 or float64 numbers they were, and are added in float64.

This module, `packed_file`, `signs` and `popcount` need NumPy, SciPy and perhaps Numba, but not the rest of the package.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .packed_file import FILE_VERSION, Layer, Weights, content_of, parse, read, whole_file, write
from .signs import exact_product, pack_signs, pad, sign_products

__all__ = [
    "FILE_VERSION",
    "Exported",
    "PackedNetwork",
    "Weights",
    "export_checked",
    "export_network",
    "export_packed",
    "pack_signs",
    "sign_products",
]


def export_packed(path: str | os.PathLike[str], *networks: Weights, fraction_bits: int | None = None) -> int:
    """Write one network, or several of the same shape that vote, to a file: all of it or nothing.

    :param networks: for a vote, draws from the posterior of the weights.
    :param fraction_bits: None if the inputs are -1 and +1; e >= 0 if they are multiples of 2^-e.
    :return: size of the file in bytes: about one bit for each weight.
    :raises ValueError: if a weight is not -1 or +1, a bias is not finite, shapes do not fit, or `fraction_bits` is not
        in [0, 24].
    :raises OSError: if the file cannot be written; one that was there before is untouched.
    """
    if not networks:
        raise ValueError("export_packed needs at least one network, got none; give Weights(signs, biases).")
    if fraction_bits is not None and not 0 <= int(fraction_bits) <= 24:
        raise ValueError(f"fraction_bits must be None or from 0 to 24, got {fraction_bits}.")
    content = content_of(networks, fraction_bits)
    write(Path(path), content)
    return len(content)


def export_network(
    path: str | os.PathLike[str], network: Any, *, fraction_bits: int | None = None, num_votes: int = 0, seed: int = 0
) -> int:
    """Write an `EBPNetwork` of binary weights to a file.

    :param network: the trained network.
    :param fraction_bits: None if its inputs are -1 and +1; e >= 0 if they are multiples of 2^-e.
    :param num_votes: 0: the network of the most probable weights, EBP-D; k: k networks drawn from the posterior, whose
        vote tends to EBP-P with k. Their biases are drawn, too.
    :param seed: of the draws; `network.vote(X, k, seed)` is the same vote.
    :return: size of the file in bytes.
    :raises ValueError: if not all weights are binary, or an argument is out of range.
    """
    if num_votes < 0:
        raise ValueError(f"num_votes must not be negative, got {num_votes}; 0 exports the most probable weights.")
    if num_votes == 0:
        draws = [network.mode_weights()]
    else:
        import tensorflow as tf

        from .seeds import as_seed

        draws = [network.sample_weights(tf.random.fold_in(as_seed(seed), i)) for i in range(num_votes)]
    networks = [Weights([w for w, _ in layers], [b for _, b in layers]) for layers in draws]
    return export_packed(path, *networks, fraction_bits=fraction_bits)


class Exported(NamedTuple):
    """What `export_checked` wrote.

    :ivar num_bytes: size of the file.
    :ivar float_bytes: size of the same weights and biases as float32 numbers.
    :ivar num_rows: inputs on which the file gives the outputs of the float network.
    """

    num_bytes: int
    float_bytes: int
    num_rows: int

    @property
    def summary(self) -> str:
        """The three numbers in words."""
        ratio = self.float_bytes / self.num_bytes
        return f"{self.num_bytes} bytes, {ratio:.1f} times less than float32; the same outputs on {self.num_rows} rows"


def export_checked(
    path: str | os.PathLike[str],
    network: Any,
    X: Any,
    *,
    fraction_bits: int | None = None,
    num_votes: int = 0,
    seed: int = 0,
) -> Exported:
    """As `export_network`; the file gets its name only if it gives the outputs of the float network on all of `X`.

    The folder of the file is made if there is none.

    :param X: inputs to check by, [N, n_in]: -1 and +1, or multiples of 2^-fraction_bits.
    :raises ValueError: if outputs differ; others as for `export_network`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        size = export_network(temporary, network, fraction_bits=fraction_bits, num_votes=num_votes, seed=seed)
        packed = PackedNetwork.load(temporary)
        if num_votes:
            ours, theirs = packed.vote(X), network.vote(X, num_votes, seed)
        else:
            ours = packed.scores(X) / math.sqrt(network.architecture.fan_ins[-1])
            theirs = network.deterministic_scores(X)
        num_different = int(np.sum(np.any(ours != theirs, axis=1)))
        if num_different:
            raise ValueError(
                f"the packed network must give the outputs of the float network, but {num_different} of {len(ours)} "
                "rows differ: the inputs are too large for exact sums; use dtype=float64 or another input coding."
            )
    num_floats = max(1, num_votes) * sum(int(np.prod(v.shape)) for v in (*network.h, *network.b))
    return Exported(size, 4 * num_floats, len(ours))


class PackedNetwork:
    """A network, or several that vote, read from a file of :func:`export_packed`.

    :ivar layer_sizes: numbers of inputs, of neurons of each hidden layer, and of outputs.
    :ivar num_networks: networks in the file.
    :ivar fraction_bits: None: inputs are -1 and +1; e: they are multiples of 2^-e.
    :ivar num_bytes: size of the file.
    :ivar engine: "numba" or "numpy".
    """

    def __init__(self, networks: list[list[Layer]], fraction_bits: int | None, num_bytes: int, engine: str) -> None:
        self._networks = networks
        self.layer_sizes = (networks[0][0].num_inputs, *(layer.num_outputs for layer in networks[0]))
        self.num_networks = len(networks)
        self.fraction_bits = fraction_bits
        self.num_bytes = num_bytes
        self.engine = engine

    @classmethod
    def load(cls, path: str | os.PathLike[str], engine: str = "auto") -> PackedNetwork:
        """Read and check a file.

        :param engine: "numba": compiled, needs the package numba; "numpy": slower, the same numbers; "auto": numba if
            it is installed.
        :raises ValueError: if the file is missing, not one of :func:`export_packed`, of another version, truncated or
            corrupt, or if `engine` is unknown or not installed.
        """
        if engine not in ("auto", "numba", "numpy"):
            raise ValueError(f"engine must be 'auto', 'numba' or 'numpy', got {engine!r}.")
        has_numba = importlib.util.find_spec("numba") is not None
        if engine == "numba" and not has_numba:
            raise ValueError("engine='numba' needs the package numba; `pip install numba`, or use engine='numpy'.")
        engine = "numba" if has_numba and engine != "numpy" else "numpy"
        content = read(Path(path))
        networks, fraction_bits = parse(content, Path(path), blocked=engine == "numba")
        return cls(networks, fraction_bits, len(content), engine)

    def integers(self, X: Any, network: int = 0) -> NDArray[np.int32]:
        """The last layer's sums without its biases, [N, n_out]: integers (of 2^-e for one layer of such inputs).

        :param X: inputs [N, n_in]: -1 and +1, or multiples of 2^-fraction_bits, in any dtype; the latter may be a
            SciPy sparse matrix, too.
        :param network: which network of the file.
        :raises ValueError: if `X` has another shape or other values.
        """
        if not 0 <= network < self.num_networks:
            raise ValueError(f"network must be from 0 to {self.num_networks - 1}, got {network}.")
        layers = self._networks[network]
        sums = self._first_sums(self._checked_inputs(X), layers[0])
        for before, layer in itertools.pairwise(layers):
            sums = self._sums(pad(np.packbits(sums >= before.numbers, axis=1, bitorder="little")), layer)
        return sums

    def scores(self, X: Any, network: int = 0) -> NDArray[np.float64]:
        """sqrt(K) u_L of the float network, [N, n_out]: the sums of the last layer plus its biases, in float64."""
        sums, biases = self.integers(X, network), self._networks[network][-1].numbers
        unit = 2.0 ** -(self.fraction_bits or 0) if len(self._networks[network]) == 1 else 1.0
        return sums * unit + biases.astype(np.float64)

    def vote(self, X: Any) -> NDArray[np.float64]:
        """Mean output over the networks of the file, [N, n_out].

        The output of a network is sign(score), or if there are several, +1 for the largest score and -1 for the others.
        """
        total = np.zeros((_num_rows(X), self.layer_sizes[-1]))
        for network in range(self.num_networks):
            scores = self.scores(X, network)
            if scores.shape[1] == 1:
                total += np.where(scores >= 0, 1.0, -1.0)
            else:
                total += np.where(np.arange(scores.shape[1]) == np.argmax(scores, axis=1)[:, None], 1.0, -1.0)
        return total / self.num_networks

    def predict(self, X: Any) -> NDArray[np.int64]:
        """-1 or +1 (one output), or the number of the class, [N], by the networks' vote; the first one of a tie."""
        votes = self.vote(X)
        return np.where(votes[:, 0] >= 0, 1, -1) if votes.shape[1] == 1 else np.argmax(votes, axis=1)

    def _checked_inputs(self, X: Any) -> Any:
        is_sparse = scipy.sparse.issparse(X)
        X = X.tocsr() if is_sparse else np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.layer_sizes[0] or X.dtype.kind not in "iuf":
            raise ValueError(
                f"inputs must be numbers [N, {self.layer_sizes[0]}], got shape {list(X.shape)} and dtype {X.dtype}."
            )
        if self.fraction_bits is None and is_sparse:
            raise ValueError("this network's inputs are -1 and +1, so they cannot be sparse; give a dense array.")
        return X

    def _first_sums(self, X: Any, layer: Layer) -> NDArray[np.int32]:
        if self.fraction_bits is not None:
            return exact_product(X, layer.bits, layer.num_inputs, self.fraction_bits)
        return self._sums(pack_signs(X), layer)

    def _sums(self, x: NDArray[np.uint8], layer: Layer) -> NDArray[np.int32]:
        return sign_products(x, layer.bits, layer.num_inputs, layer.blocked, self.engine)


def _num_rows(X: Any) -> int:
    return int(X.shape[0]) if scipy.sparse.issparse(X) else len(np.asarray(X))
