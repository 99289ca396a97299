"""A plain Keras network as one small file, with as few bits as an error of the user's own allows.

packed = pack(model, "model.bcz", validate=error, max_rise=0.001)
model = load("model.bcz")
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from ..graph.ordering import ordered
from ..graph.sizes import Size, size_of
from ..rounding.bits import FixedPoint, search_bits
from ..rounding.codebook import Codebook, codebook
from ..rounding.rates import Rates, paper_rates
from .container import Encoded, Kernel, encode, kernels_of, load_bcz, with_kernels, write_encoded
from .contents import load_own
from .pack import error_of_kernels

__all__ = ["PackedFile", "load", "pack"]

load = load_bcz

_START = 8  # significant bits
_BOOKS = (256, 128, 64, 32, 16, 8, 4, 2)
_SHARED = 32  # values of a layer


class PackedFile(NamedTuple):
    """What is in a file, and what it costs.

    :ivar path: of the file.
    :ivar bytes: its size.
    :ivar error: `validate` of what the file gives back.
    :ivar error_before: of the network that was given.
    :ivar coding: "fixed point" or "codebooks", whichever is smaller.
    :ivar bits: of a weight of each layer, before entropy coding.
    :ivar rates: as the paper counts them, against `original`.
    :ivar file_rate: how many times smaller the file is than the weights and biases of `original` in float32.
    """

    path: Path
    bytes: int
    error: float
    error_before: float
    coding: str
    bits: list[int]
    rates: Rates
    file_rate: float


def pack(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    validate: Callable[[keras.Model], float],
    max_rise: float = 0.0,
    original: keras.Model | Size | None = None,
    seed: int = 0,
) -> PackedFile:
    """Write a plain network with rounded weights: fixed-point numbers or codebooks, whichever takes fewer bytes.

    Bits of each layer, or the size of the codebooks, are the smallest for which the error does not rise by more than
    `max_rise`; biases are multiples of a power of two, as coarse as that allows. Units of hidden layers are sorted
    where their order is free. What is measured is what the file gives back.

    :param model: a plain chain, such as `compression.fit` returns; it is not changed.
    :param path: of the file, usually with the ending .bcz; it is replaced if it exists.
    :param validate: the error of a network, the lower the better, on examples that are set aside. It is called some
        dozens of times.
    :param max_rise: in the units of `validate`, at least 0.
    :param original: the network that sizes are compared with; `model` if not given.
    :param seed: of k-means.
    :raises ValueError: if `max_rise` is no such number, `validate` gives no finite number for `model`, or the network
        has a layer that no file can hold, naming it, or would not come back; then the file stays as it was.
    """
    if not 0 <= max_rise < float("inf"):
        raise ValueError(f"max_rise must be finite and at least 0, got {max_rise}.")
    before = float(validate(model))
    if not np.isfinite(before):
        raise ValueError(f"validate must give a finite number for the network, got {before}.")
    size = original if isinstance(original, Size) else size_of(model if original is None else original)
    model = ordered(model)
    kernels, most = kernels_of(model), before + max_rise
    copy, biases = with_kernels(model, kernels, biases="float16"), "float16"
    if not float(validate(copy)) <= most:
        copy, biases = with_kernels(model, kernels, biases="float32"), "float32"
    error_of = error_of_kernels(copy, lambda network: float(validate(network)))
    points = search_bits(kernels, error_of, start=[_START] * len(kernels), max_error=most)
    choices: dict[str, Sequence[Kernel]] = {"fixed point": points}
    if (books := _codebooks(kernels, error_of, most, seed)) is not None:
        choices["codebooks"] = books
    place = Path(path)
    files = {name: _smallest(model, codes, biases, validate, most) for name, codes in choices.items()}
    coding = min(files, key=lambda name: len(files[name].content))
    num_bytes = len(files[coding].content)
    write_encoded(place, files[coding])
    bits = [_bits(code) for code in choices[coding]]
    return PackedFile(
        path=place,
        bytes=num_bytes,
        error=float(validate(load_own(place))),
        error_before=before,
        coding=coding,
        bits=bits,
        rates=paper_rates(size.weights, [kernel.size for kernel in kernels], bits),
        file_rate=4 * size.parameters / num_bytes,
    )


def _smallest(
    model: keras.Model,
    codes: Sequence[Kernel],
    biases: str,
    validate: Callable[[keras.Model], float],
    most: float,
) -> Encoded:
    """A file of these kernels, with the coarsest biases, of significant bits or in `biases`, that do no harm."""
    best: str | int = biases
    for significant in range(_START, -1, -1):
        if not float(validate(with_kernels(model, codes, biases=significant))) <= most:
            break
        best = significant
    choices = {biases, best}
    return min((encode(model, codes, biases=choice) for choice in choices), key=lambda each: len(each.content))


def _codebooks(
    kernels: Sequence[np.ndarray], error_of: Callable[[Sequence[Kernel]], float], most: float, seed: int
) -> list[Codebook] | None:
    """The codebooks of the smallest size, of powers of two, whose error and that of all larger ones is low enough.

    Weights that share few values already keep them: they were trained for these.
    """
    found = None
    if all(len(np.unique(kernel)) <= min(_SHARED, kernel.size // 2) for kernel in kernels):
        shared = [codebook(kernel, _SHARED, seed=seed) for kernel in kernels]
        return shared if error_of(shared) <= most else None
    for k in _BOOKS:
        books = [codebook(kernel, k, seed=seed) for kernel in kernels]
        if not error_of(books) <= most:
            break
        found = books
    return found


def _bits(code: Kernel) -> int:
    if isinstance(code, FixedPoint):
        return code.bits
    assert isinstance(code, Codebook)
    return max(1, (len(code.centres) - 1).bit_length())
