"""`.bcz` files on NumPy alone: this one file reads them where neither TensorFlow nor this package is.

    network = read("model.bcz")
    network["layers"]       # kinds, names and settings
    network["weights"]      # arrays, in the order of the layers

`compression.files.container` says what is in a file; this is a second program for it, which needs nothing of the first.
Files of random draws need `numpy_draws.py` beside it. It is for files from people one trusts, as it makes room for
whatever they say. In plain Python a million weights take a minute or two.
"""

import json
import math
import zlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

Array = np.ndarray
__all__ = ["read"]

_ACTIVATIONS = (
    "linear relu softmax sigmoid tanh elu selu softplus gelu silu leaky_relu relu6 hard_sigmoid softsign exponential "
    "mish hard_silu log_softmax hard_tanh celu squareplus log_sigmoid tanh_shrink soft_shrink hard_shrink sparse_plus "
    "sparse_sigmoid sparsemax"
)
_LAYERS = (
    "Dense Conv2D MaxPooling2D AveragePooling2D GlobalAveragePooling2D Flatten Activation ReLU Softmax SelectInputs "
    "LeakyReLU ELU GlobalMaxPooling2D ReLU"
)
ACTIVATIONS = _ACTIVATIONS.split()
CHAIN = _LAYERS.split()


def read(path: str) -> dict[str, Any]:
    """What is in a file of a network: "version", "layers", "calls" of a graph, and "weights"."""
    with open(path, "rb") as file:
        content = file.read()
    if content[:4] != b"\x89BCZ" or content[4:5] not in (b"\4", b"\5"):
        raise ValueError(f"{path} is no .bcz network of the versions 4 and 5.")
    if int.from_bytes(content[5:9], "little") != zlib.crc32(content[9:]):
        raise ValueError(f"{path} is truncated or damaged.")
    reader = _Reader(content[9:])
    contents = {"version": content[4], **_network(reader)}
    if reader.place != len(reader.content):
        raise ValueError(f"{path} has bytes left over.")
    return contents


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0

    def take(self, count: int) -> bytes:
        self.place += count
        if self.place > len(self.content):
            raise ValueError("the file ends too early.")
        return self.content[self.place - count : self.place]

    def integer(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def array(self, kind: str, count: int) -> Array:
        return np.frombuffer(self.take(int(kind[1:]) * count), f"<{kind}")

    def packed(self, count: int, width: int) -> Array:
        bits = np.unpackbits(np.frombuffer(self.take(-(-count * width // 8)), np.uint8))[: count * width]
        return bits.reshape(count, width) @ (1 << np.arange(width - 1, -1, -1)) if width else np.zeros(count, np.int64)


def _network(reader: _Reader) -> dict[str, Any]:
    flags = reader.take(1)[0]
    if flags & 128:
        calls = None
        layers, shapes = _chain(reader)
    else:
        text = json.loads(zlib.decompress(reader.take(reader.integer())))
        layers = text["layers"]
        calls = {name: text[name] for name in ("inputs", "takes", "gives", "calls")}
        shapes = text["shapes"]
    # Weights by layer: codes of kernels, biases coded, as float16 or float32, or all of them random draws.
    flags &= 127
    has_bias = [[len(shape) > 1 for shape in shapes_of_layer] == [True, False] for shapes_of_layer in shapes]
    weights: list[Array] = []
    coded = []
    for layer_shapes, biased in zip(shapes, has_bias, strict=True):
        for shape in layer_shapes:
            count = math.prod(shape)
            if flags == 26 and (len(shape) > 1 or biased):
                coded.append(len(weights))
                weights.append(np.empty(shape, np.float32))
            elif len(shape) > 1:
                weights.append(_kernel(reader, tuple(shape)))
            elif biased and 2 <= flags < 26:
                weights.append((_coded(reader, (count, 1), False).ravel() * 2.0 ** (2 - flags)).astype(np.float32))
            else:
                kind = "f2" if biased and flags == 1 else "f4"
                weights.append(reader.array(kind, count).astype(np.float32).reshape(shape))
    if flags == 26:
        draws = import_module(f"{__package__}.numpy_draws" if __package__ else "numpy_draws").draws
        for place, values in zip(coded, draws(reader, [weights[place].shape for place in coded]), strict=True):
            weights[place] = values
    return {"layers": layers, "calls": calls, "weights": weights}


def _chain(reader: _Reader) -> tuple[list[Any], list[Any]]:
    """Layers with their settings, and the shapes of their weights."""
    # Shapes are reckoned from layer to layer, as those of weights follow from them.
    shape = [reader.integer() for _ in range(reader.integer())]
    layers: list[Any] = []
    shapes: list[Any] = []
    for number in range(reader.integer()):
        code = reader.take(1)[0]
        kind = CHAIN[code]
        layer_shapes = []
        settings: dict[str, Any] = {}
        # Sizes and flags come in the order in which the writer has them; the kernel is [.., in, out].
        if kind in ("Dense", "Conv2D"):
            sizes = [reader.integer() for _ in range(1 if kind == "Dense" else 5)]
            flag = reader.integer()
            use_bias = flag >> 5 & 1
            padding = flag >> 6
            settings = {"units": sizes[0], "activation": ACTIVATIONS[flag & 31], "use_bias": bool(use_bias)}
            if kind == "Conv2D":
                settings |= {"kernel_size": sizes[1:3], "strides": sizes[3:], "padding": ("valid", "same")[padding]}
            layer_shapes = [[*sizes[1:3], shape[-1], sizes[0]]] + [[sizes[0]]] * use_bias
        elif kind in ("MaxPooling2D", "AveragePooling2D"):
            sizes = [reader.integer() for _ in range(4)]
            settings = {"pool_size": sizes[:2], "strides": sizes[2:], "padding": ("valid", "same")[reader.integer()]}
        elif kind == "Activation":
            settings = {"activation": ACTIVATIONS[reader.integer()]}
        elif kind == "SelectInputs":
            bits = np.unpackbits(np.frombuffer(reader.take(-(-shape[-1] // 8)), np.uint8))[: shape[-1]]
            settings = {"indices": np.flatnonzero(bits)}
        elif code in (10, 11, 13):
            names = {10: ["negative_slope"], 11: ["alpha"], 13: ["max_value", "negative_slope", "threshold"]}[code]
            settings = {name: float(reader.array("f8", 1)[0]) for name in names}
        # What the next layer gets.
        layers.append([kind, f"{kind.lower()}_{number}", settings])
        shapes.append(layer_shapes)
        shape = _shape_after(kind, settings, shape)
    return layers, shapes


def _shape_after(kind: str, settings: dict[str, Any], shape: list[int]) -> list[int]:
    if kind == "Flatten":
        return [math.prod(shape)]
    if kind.startswith("Global"):
        return shape[-1:]
    last = settings.get("units", len(settings["indices"]) if "indices" in settings else shape[-1])
    if "strides" not in settings:
        return [*shape[:-1], last]
    window = settings["kernel_size" if kind == "Conv2D" else "pool_size"]
    is_same = settings["padding"] == "same"
    sizes = [
        -(-(n if is_same else n - k + 1) // s) for n, k, s in zip(shape, window, settings["strides"], strict=False)
    ]
    return [*sizes, last]


def _kernel(reader: _Reader, shape: tuple[int, ...]) -> Array:
    scheme = reader.take(1)[0]
    count = math.prod(shape)
    if scheme == 0:
        return reader.array("f4", count).reshape(shape)
    # Multiples of a step, or values of a codebook by their indices.
    if scheme in (1, 7, 8, 9):
        if scheme in (1, 7):
            significant, exponent = reader.take(2)
            step = 2.0**-significant
            width = 1 + exponent + significant
        else:
            step = float(reader.array("f2", 1)[0])
            width = reader.take(1)[0] if scheme == 9 else 0
        integers = _coded(reader, shape) if scheme in (7, 8) else reader.packed(count, width) - 2 ** (width - 1)
        return (integers * step).astype(np.float32).reshape(shape)
    if scheme not in (2, 6):
        raise ValueError(f"the scheme {scheme} of weights is not known.")
    k = reader.take(1)[0] + 1
    centres = reader.array("f2", k).astype(np.float32)
    indices = reader.take(1)[0] + _coded(reader, shape) if scheme == 6 else reader.packed(count, (k - 1).bit_length())
    return centres[indices.reshape(shape)]


# Arithmetic coding with contexts, see `compression.files.coding.context_model`.


class _Contexts:
    """Probabilities of slots, how often each was seen, and how the predictions of several are mixed."""

    def __init__(self, stream: bytes, num_slots: int) -> None:
        self.stream = stream + bytes(4)
        self.place = 4
        self.low = 0
        self.high = 2**32 - 1
        self.value = int.from_bytes(self.stream[:4], "big")
        self.p = [1 << 21] * num_slots
        self.seen = [0] * num_slots
        self.mixing = [[9000] * 8 for _ in range(24)]
        self.steps = [2048] * 24
        squash = np.rint(65536 / (1 + np.exp(-np.arange(-3071, 3072) / 256))).astype(np.int64)
        squash = np.clip(squash, 4, 65532)
        self.stretch = (np.searchsorted(squash, (np.arange(8192) << 3) + 4) - 3071).tolist()
        self.squash = squash.tolist()

    def decide(self, which: int, *slots: int) -> int:
        """The next decision, by these slots, mixed by the set `which`."""
        # p = sigma(sum_k w_k logit p_k); then the interval shrinks to the part of the bit, and all learn.
        # Logits of the contexts, smaller as long as a context has been seen a few times only.
        mixing = self.mixing[which]
        logits = []
        total = 0
        for k, slot in enumerate(slots):
            logit = self.stretch[self.p[slot] >> 9]
            count = self.seen[slot]
            logits.append(logit * (2 * count + 1) >> 3 if count < 4 else logit)
            total += mixing[k] * logits[k]
        # The probability of a 1 in 16 bits, and the bit by the side of it on which the code lies.
        p = self.squash[min(3071, max(-3071, total >> 16)) + 3071]
        middle = self.low + (self.high - self.low) * p // 65536
        bit = int(self.value <= middle)
        self.low, self.high = (self.low, middle) if bit else (middle + 1, self.high)
        # Leading bytes that both ends share are settled.
        while (self.low ^ self.high) >> 24 == 0:
            byte = self.stream[self.place] if self.place < len(self.stream) else 0
            self.place += 1
            self.low = (self.low & 0xFFFFFF) << 8
            self.high = (self.high & 0xFFFFFF) << 8 | 255
            self.value = (self.value & 0xFFFFFF) << 8 | byte
        # The weights follow the gradient of the code length, each probability its own frequency.
        error = ((bit << 16) - p) * self.steps[which]
        self.steps[which] -= (self.steps[which] - 256) >> 5
        for k, slot in enumerate(slots):
            mixing[k] += (logits[k] * error) >> 26
            count = self.seen[slot]
            self.p[slot] += (((bit << 22) - self.p[slot]) * (131072 // (2 * count + 3))) >> 16
            self.seen[slot] = min(1023, count + 1)
        return bit

    def size(self, start: int, row: int, column: int, near: int) -> int:
        """Bits in unary, then the lower ones from the highest on."""

        def bit(node: int) -> int:
            sums = (node, 128 + node * 16 + row, 2176 + node * 16 + column, 4224 + node * 8 + near)
            last = 5248 + (node * 16 + row) * 16 + column
            return self.decide(7 + min(node, 15), *(start + slot for slot in (*sums, last)))

        length = size = 1
        while length < 32 and bit(length):
            length += 1
        for level in range(length - 2, -1, -1):
            node = 31 + size + (32 if length > 4 else 0) if size < 32 else 64 + level
            size = size << 1 | bit(min(127, node))
        return size


def _full(count: int, seen: int) -> int:
    if count == 0:
        return min(2, seen.bit_length() // 4)
    return min(23, ((min(seen, 1 << 20) * 4 // min(count, 1 << 20)) ** 2).bit_length())


def _mean(total: int, count: int) -> int:
    return min(15, max(1, ((min(total, 1 << 24) * 4 // count) ** 2).bit_length() - 4)) if count else 0


def _balance(signs: int, count: int) -> int:
    return 4 + 4 * abs(signs) // (count + 1) * (1 if signs >= 0 else -1)


def _coded(reader: _Reader, shape: Sequence[int], has_order: bool = True) -> Array:
    # dx and dy: how many rows of the matrix a pixel to the left and one above are away.
    order = reader.take(1)[0] if has_order else 0
    dx, dy = (reader.integer(), reader.integer()) if order & 2 else (0, 0)
    K = math.prod(shape[:-1])
    N = shape[-1]
    coder = _Contexts(reader.take(reader.integer()), 2048 + K + N + 38400)
    values = [[0] * N for _ in range(K)]
    rows, columns = ([[0, 0, 0] for _ in range(count)] for count in (K, N))  # not 0, sizes, signs
    for t in range(K * N):
        i, j = divmod(t, N) if order & 1 else divmod(t, K)[::-1]
        row = rows[i]
        column = columns[j]
        backs = (dx, dy, dy + dx, dy - dx, 2 * dx, 2 * dy)
        near = [values[i - back][j] if dx and i >= back else 0 for back in backs]
        one = values[i][j - 1] if j > 0 else 0
        two = values[i][j - 2] if j > 1 else 0
        flags = sum((value != 0) << k for k, value in enumerate(near))
        close = sum(bool(value) * weight for value, weight in zip(near, (2, 2, 1, 1, 1, 1), strict=True))
        beside = [k for k in (i - dx, i + dx, i - dy, i + dy) if dx and 0 <= k < K]
        around = row[0] + sum(rows[k][0] for k in beside)
        count = 1 + len(beside)
        full = _full(row[0], j)
        filled = _full(column[0], i)
        others = _full(around, j * count)
        # Whether it is 0: by row, column and neighbours.
        slots = (full * 24 + filled, 576 + flags * 2 + bool(one), 704 + others * 24 + full, 1280 + close * 24 + filled)
        tail = (1544 + (bool(one) * 2 + bool(two)) * 24 + others, 1640 + close * 24 + others, 1904 + i, 1904 + K + j)
        if coder.decide(min(close, 4), *slots, *tail):
            continue
        # Its sign, by those around it.
        a, b, c, d, before = (0 if value == 0 else 1 if value > 0 else 2 for value in (*near[:4], one))
        by_row = _balance(row[2], row[0])
        by_column = _balance(column[2], column[0])
        start = 1904 + K + N
        slots = (a * 3 + b, 9 + by_column, 18 + by_row, 27 + c * 3 + d)
        last = (36 + by_row * 9 + by_column, 117 + before * 9 + a * 3 + b)
        sign = -1 if coder.decide(6 if a or b else 5, *(start + slot for slot in (*slots, *last))) else 1
        # Its size, by the sizes around it.
        largest = min(7, max(abs(near[0]), abs(near[1])).bit_length())
        size = coder.size(2048 + K + N, _mean(row[1], row[0]), _mean(column[1], column[0]), largest)
        values[i][j] = sign * size
        for sums in (row, column):
            sums[0] += 1
            sums[1] += size
            sums[2] += sign
    return np.array(values, np.int64).reshape(shape)
