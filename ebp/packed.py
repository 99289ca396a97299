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

File: magic, version, length of the header (JSON: shapes, dtype of the last biases, ...), header; then for each network
and each of its layers the weights' bits, inputs of a neuron one after the other, each neuron filled up to a whole byte,
followed by thresholds (int32) or last biases; SHA-256 of all that. Little endian.

This module and `popcount` need NumPy, SciPy and perhaps Numba, but neither TensorFlow nor the rest of the package.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import os
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

__all__ = [
    "FILE_VERSION",
    "PackedNetwork",
    "Weights",
    "export_network",
    "export_packed",
    "pack_signs",
    "sign_products",
]

FILE_VERSION = 1
"""Version of the file format that this module writes, and the only one it reads."""

_MAGIC = b"EBPACKED"
_START = struct.Struct("<8sII")  # magic, version, length of the header
_INT32_MAX = 2**31 - 1
_FEW_ROWS = 16
_BLOCK_BYTES = 1 << 23


class Weights(NamedTuple):
    """One network of binary weights.

    :ivar signs: of each layer the weights -1 or +1, [n_in, n_out].
    :ivar biases: of each layer real biases [n_out], or None for none.
    """

    signs: Sequence[NDArray[Any]]
    biases: Sequence[NDArray[Any] | None]


@dataclass(frozen=True, eq=False)
class _Layer:
    """Rows of bits padded with zeros to 64-bit words [n_out, 8 words]; thresholds, or in the last layer biases."""

    num_inputs: int
    bits: NDArray[np.uint8]
    numbers: NDArray[Any]
    blocked: NDArray[np.uint8] | None  # as the kernel `nibbles` takes it

    @property
    def num_outputs(self) -> int:
        return len(self.bits)


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
    shapes, payload = None, []
    dtype = _bias_dtype(networks)
    for number, weights in enumerate(networks):
        signs, biases = _checked(weights, f"network {number}")
        if shapes is not None and [list(w.shape) for w in signs] != shapes:
            raise ValueError(f"all networks of a file must have the shapes {shapes}, network {number} has others.")
        shapes = [list(w.shape) for w in signs]
        for i, (w, b) in enumerate(zip(signs, biases, strict=True)):
            payload.append(np.packbits(w.T > 0, axis=1, bitorder="little").tobytes())
            is_last = i == len(signs) - 1
            scale = 2.0 ** (fraction_bits or 0) if i == 0 else 1.0
            payload.append((b.astype(dtype) if is_last else _thresholds(b, scale)).tobytes())
    header = {"shapes": shapes, "networks": len(networks), "fraction_bits": fraction_bits, "bias_dtype": dtype}
    head = json.dumps(header, separators=(",", ":")).encode()
    content = b"".join([_START.pack(_MAGIC, FILE_VERSION, len(head)), head, *payload])
    content += hashlib.sha256(content).digest()
    _write(Path(path), content)
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

        from .network import as_seed

        draws = [network.sample_weights(tf.random.fold_in(as_seed(seed), i)) for i in range(num_votes)]
    networks = [Weights([w for w, _ in layers], [b for _, b in layers]) for layers in draws]
    return export_packed(path, *networks, fraction_bits=fraction_bits)


class PackedNetwork:
    """A network, or several that vote, read from a file of :func:`export_packed`.

    :ivar layer_sizes: numbers of inputs, of neurons of each hidden layer, and of outputs.
    :ivar num_networks: networks in the file.
    :ivar fraction_bits: None: inputs are -1 and +1; e: they are multiples of 2^-e.
    :ivar num_bytes: size of the file.
    :ivar engine: "numba" or "numpy".
    """

    def __init__(self, networks: list[list[_Layer]], fraction_bits: int | None, num_bytes: int, engine: str) -> None:
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
        content = _read(Path(path))
        networks, fraction_bits = _parse(content, Path(path), blocked=engine == "numba")
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
            sums = self._sums(_pad(np.packbits(sums >= before.numbers, axis=1, bitorder="little")), layer)
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

    def _first_sums(self, X: Any, layer: _Layer) -> NDArray[np.int32]:
        if self.fraction_bits is not None:
            return _exact_product(X, layer, self.fraction_bits)
        return self._sums(pack_signs(X), layer)

    def _sums(self, x: NDArray[np.uint8], layer: _Layer) -> NDArray[np.int32]:
        return sign_products(x, layer.bits, layer.num_inputs, layer.blocked, self.engine)


def pack_signs(X: NDArray[Any]) -> NDArray[np.uint8]:
    """Rows of -1 and +1, [N, D], as bits [N, 8 ceil(D / 64)], padded with zeros.

    :raises ValueError: if there are other values.
    """
    is_plus = X == 1
    if not np.all(is_plus | (X == -1)):
        raise ValueError("the inputs of packed signs must all be -1 or +1, got others; code them as in training.")
    return _pad(np.packbits(is_plus, axis=1, bitorder="little"))


def sign_products(
    x: NDArray[np.uint8],
    w: NDArray[np.uint8],
    num_bits: int,
    blocked: NDArray[np.uint8] | None = None,
    engine: str = "numpy",
) -> NDArray[np.int32]:
    """Scalar products K - 2 popcount(x xor w) of all pairs of rows of K signs, [N, O].

    :param x: packed bits [N, 8 words]; their padding must be zero.
    :param w: packed bits [O, 8 words], likewise.
    :param num_bits: K, bits of a row in use.
    :param blocked: `popcount.blocked(w)`, for the kernel that needs it.
    :param engine: "numba" or "numpy".
    """
    out = np.empty((len(x), len(w)), np.int32)
    if len(x) == 0:
        return out
    if engine == "numba":
        from . import popcount

        if blocked is None:
            popcount.words(x.view(np.uint64), w.view(np.uint64), num_bits, out)
        else:
            popcount.nibbles(x, blocked, num_bits, out)
    elif len(x) < _FEW_ROWS:
        words = w.view(np.uint64)
        for n, row in enumerate(x.view(np.uint64)):
            out[n] = num_bits - 2 * _ones(words ^ row)
    else:  # a float32 product is faster than NumPy's bit operations, and exact
        signs = _signs(x, num_bits, np.float32)
        step = max(1, _BLOCK_BYTES // (4 * num_bits))
        for o in range(0, len(w), step):
            out[:, o : o + step] = signs @ _signs(w[o : o + step], num_bits, np.float32).T
    return out


def _ones(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Number of ones in each row [O, M] of 64-bit words; `words` is overwritten. NumPy 1 has no function for it."""
    pairs, quads, bytes_ = (np.uint64(mask) for mask in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F))
    one, two, four = np.uint64(1), np.uint64(2), np.uint64(4)
    words -= (words >> one) & pairs
    upper = (words >> two) & quads
    words &= quads
    words += upper
    words += words >> four
    words &= bytes_
    words *= np.uint64(0x0101010101010101)
    words >>= np.uint64(56)
    return words.sum(axis=1, dtype=np.int64)


def _signs(bits: NDArray[np.uint8], num_bits: int, dtype: Any) -> NDArray[Any]:
    """Packed rows as -1 and +1, [rows, num_bits]."""
    signs = np.unpackbits(bits, axis=1, count=num_bits, bitorder="little").astype(dtype)
    signs *= 2
    signs -= 1
    return signs


def _exact_product(X: Any, layer: _Layer, fraction_bits: int) -> NDArray[np.int32]:
    """2^fraction_bits X W as integers. Products of floats, which are exact below 2^24 (float32) or 2^53 (float64)."""
    is_sparse = scipy.sparse.issparse(X)
    columns = np.unique(X.indices) if is_sparse else np.arange(layer.num_inputs)
    q = (X[:, columns] if is_sparse else X).astype(np.float64) * 2.0**fraction_bits
    values = q.data if is_sparse else q
    if not np.array_equal(values, np.rint(values)):  # NaN and infinity are caught here, and below
        raise ValueError(
            f"this network's inputs must be multiples of 2^-{fraction_bits}, got others; code them as it was trained."
        )
    largest = float(abs(q).sum(axis=1).max()) if q.shape[0] and q.shape[1] else 0.0
    if not largest <= _INT32_MAX:
        raise ValueError(f"the inputs of a row must add up to less than 2^31 units of 2^-{fraction_bits}; scale them.")
    dtype: Any = np.float32 if largest < 2**24 else np.float64
    q = q.astype(dtype)
    out = np.empty((X.shape[0], layer.num_outputs), np.int32)
    step = max(1, _BLOCK_BYTES // (np.dtype(dtype).itemsize * max(1, len(columns))))
    for o in range(0, layer.num_outputs, step):
        bits = layer.bits[o : o + step]
        if is_sparse:
            signs = 2 * ((bits[:, columns >> 3] >> (columns & 7)) & 1).astype(dtype) - 1
        else:
            signs = _signs(bits, layer.num_inputs, dtype)
        out[:, o : o + step] = q @ signs.T
    return out


def _pad(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of bytes filled up with zeros to whole 64-bit words."""
    width = -(-packed.shape[1] // 8) * 8
    if packed.shape[1] == width:
        return np.ascontiguousarray(packed)
    padded = np.zeros((len(packed), width), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded


def _num_rows(X: Any) -> int:
    return int(X.shape[0]) if scipy.sparse.issparse(X) else len(np.asarray(X))


# Writing.


def _bias_dtype(networks: Sequence[Weights]) -> str:
    last = [weights.biases[-1] for weights in networks if len(weights.biases)]
    is_single = all(b is None or np.asarray(b).dtype == np.float32 for b in last)
    return "<f4" if is_single else "<f8"


def _checked(weights: Weights, what: str) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    signs = [np.asarray(w) for w in weights.signs]
    if not signs or len(signs) != len(weights.biases):
        raise ValueError(
            f"{what} needs at least one layer and as many biases as layers, got {len(signs)} and {len(weights.biases)}."
        )
    biases = []
    for i, (w, b) in enumerate(zip(signs, weights.biases, strict=True)):
        if w.ndim != 2 or 0 in w.shape or (i > 0 and w.shape[0] != signs[i - 1].shape[1]):
            raise ValueError(f"signs of layer {i} of {what} must be [n_in, n_out] and fit, got {list(w.shape)}.")
        if not np.all((w == 1) | (w == -1)):
            raise ValueError(
                f"weights of layer {i} of {what} must be -1 or +1, got others such as {w[(w != 1) & (w != -1)][0]}; "
                "only networks of binary weights can be packed."
            )
        b = np.zeros(w.shape[1]) if b is None else np.asarray(b)
        if b.shape != (w.shape[1],) or b.dtype.kind not in "iuf" or not np.all(np.isfinite(b)):
            raise ValueError(f"biases of layer {i} of {what} must be {w.shape[1]} finite numbers, got {list(b.shape)}.")
        biases.append(b)
    return signs, biases


def _thresholds(b: NDArray[Any], scale: float) -> NDArray[np.int32]:
    """The least integer sum with sum / scale + b >= 0. Sums are below 2^31, so larger thresholds act alike."""
    exact = np.ceil(-b.astype(np.float64) * scale)  # scale is a power of two
    return np.clip(exact, -_INT32_MAX, _INT32_MAX).astype("<i4")


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


# Reading.


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read as a packed network ({error}).") from error
    if content[: len(_MAGIC)] != _MAGIC[: len(content)] or not content:
        raise ValueError(f"{path} is not a packed network: it starts with {content[:8]!r}, not with {_MAGIC!r}.")
    if len(content) < _START.size:
        raise ValueError(f"{path} is truncated: {len(content)} bytes; export it again.")
    version = _START.unpack_from(content)[1]
    if version != FILE_VERSION:
        raise ValueError(
            f"{path} is a packed network of version {version}, this program reads version {FILE_VERSION}; export it "
            "again with this program, or read it with the one that wrote it."
        )
    if hashlib.sha256(content[:-32]).digest() != content[-32:]:
        raise ValueError(f"{path} is truncated or corrupt: its checksum does not match; export it again.")
    return content


def _parse(content: bytes, path: Path, *, blocked: bool) -> tuple[list[list[_Layer]], int | None]:
    start = _START.size + _START.unpack_from(content)[2]
    networks: list[list[_Layer]] = []
    try:
        header = json.loads(content[_START.size : start])
        shapes = [(int(n_in), int(n_out)) for n_in, n_out in header["shapes"]]
        for _ in range(header["networks"]):
            layers = []
            for i, (n_in, n_out) in enumerate(shapes):
                row = -(-n_in // 8)
                packed = np.frombuffer(content, np.uint8, row * n_out, start).reshape(n_out, row)
                start += packed.nbytes
                is_last = i == len(shapes) - 1
                numbers = np.frombuffer(content, header["bias_dtype"] if is_last else "<i4", n_out, start)
                start += numbers.nbytes
                is_packed_input = i > 0 or header["fraction_bits"] is None
                layers.append(_layer(n_in, packed, numbers, blocked=blocked and is_packed_input))
            networks.append(layers)
        if start + 32 != len(content) or not networks:
            raise ValueError(f"{len(content)} bytes, its header says {start + 32}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a packed network that this program can read ({error}).") from error
    return networks, header["fraction_bits"]


def _layer(num_inputs: int, packed: NDArray[np.uint8], numbers: NDArray[Any], *, blocked: bool) -> _Layer:
    kernel_weights = None
    if blocked:
        from . import popcount

        if popcount.HAS_SHUFFLE:
            kernel_weights = popcount.blocked(packed)
    return _Layer(num_inputs, _pad(packed), numbers, kernel_weights)
