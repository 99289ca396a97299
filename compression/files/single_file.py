"""A plain Keras network as one small file, with as few bits as an error of the user's own allows.

packed = pack(model, "model.bcz", validate=error, max_rise=0.001)
packed = pack(model, "model.bcz", calibration=X[:4000], bits=3)       # without labels
packed = pack(bayesian, "model.bcz", bits=3)                          # by the posterior
model = load("model.bcz")
"""

import bisect
import functools
import math
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..graph.convert import folded
from ..graph.graph import Nested, arrays_for, kernel_variables
from ..graph.removal.ordering import ordered
from ..graph.removal.shrink import shrink_details
from ..graph.sizes import Size, size_of
from ..graph.supported import custom_layers
from ..layers.posterior import bayesian_layers
from ..rounding.bits import FixedPoint, Grid, on_grid, search_bits
from ..rounding.codebook import Codebook, codebook
from ..rounding.curvature import curvature_of, curvature_of_posterior
from ..rounding.in_turn import InTurn
from ..rounding.rates import Rates, paper_rates
from .container import Encoded, Kernel, check_storable, encode, kernels_of, load_bcz, with_kernels, write_encoded
from .contents import load_own
from .pack import error_of_kernels

__all__ = ["PackedFile", "load", "pack"]

load = load_bcz

_START = 8  # significant bits
_BOOKS = (256, 128, 64, 32, 16, 8, 4, 2)
_SHARED = 32  # values of a layer
_BITS = 4.0  # of a weight, if nothing else says where to stop
_SMALL_KERNEL = 64  # bytes, of which its step and header are a tenth
_TRIES = 9
_OCTAVES = 9  # of the rate, to both sides of the first try
# in octaves
_FINE = 1 / 16
_FINE_TRIES = 8
_CLOSE = 0.99  # of the bytes that are allowed
_OCTAVES_OF_RATE = 3.0  # to halve the bytes, in most networks
_POSSIBLE_OCTAVES = (1.0, 32.0)
_Result = TypeVar("_Result")


class PackedFile(NamedTuple):
    """What is in a file, and what it costs.

    :ivar path: of the file.
    :ivar bytes: its size.
    :ivar error: `validate` of what the file gives back; NaN without one.
    :ivar error_before: of the network that was given; NaN without.
    :ivar coding: "fixed point" or "codebooks", whichever is smaller, "calibrated", or "posterior".
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
    validate: Callable[[keras.Model], float] | None = None,
    max_rise: float = 0.0,
    calibration: Nested = None,
    bits: float | None = None,
    max_bytes: int | None = None,
    original: keras.Model | Size | None = None,
    custom_objects: Mapping[str, type] | None = None,
    seed: int = 0,
) -> PackedFile:
    """Write a network with rounded weights.

        >>> import compression, keras, numpy as np
        >>> network = keras.Sequential([keras.Input([4]), keras.layers.Dense(30, "relu"), keras.layers.Dense(1)])
        >>> rows = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
        >>> packed = compression.pack(network, "network.bcz", calibration=rows, bits=3)
        >>> bool(packed.bytes < 400), compression.load("network.bcz")(rows).shape[0]  # in place of 724 bytes
        (True, 100)

    With `validate` alone they are fixed-point numbers or codebooks, whichever takes fewer bytes: bits of each layer, or
    the size of the codebooks, are the smallest for which the error does not rise by more than `max_rise`.

    With `calibration` they are rounded by what the outputs feel of that and by their bits, see
    `compression.rounding.surgeon`, as coarsely as `max_rise` and `validate`, `bits` or `max_bytes` allow, all that are
    given. No labels are needed, nothing is trained, and files are smaller at the same error.

    Of a Bayesian network, as `compress` makes it and you train it, the groups that are masked are cut. Without
    `calibration` the others are rounded by their posterior: a weight loses (w - q)^2 / 2 V nats of its log density.
    Such a posterior knows nothing of weights that make good for each other: with inputs at hand give `calibration`.

    Biases are multiples of a power of two, as coarse as the error allows, or float16. Units of hidden layers are sorted
    where their order is free, and batch normalisation becomes part of the weights before it. What is measured is what
    the file gives back.

    :param model: a plain network, such as `compression.fit` returns, or a Bayesian one; it is not changed.
    :param path: of the file, usually with the ending .bcz; it is replaced if it exists.
    :param validate: the error of a network, the lower the better, on examples that are set aside. It is called some
        dozens of times, with `calibration` about fifteen.
    :param max_rise: in the units of `validate`, at least 0. What few examples say goes up and down by chance, so with
        `calibration` a rate is also judged by its neighbours, and not the luckiest of all is taken.
    :param calibration: typical inputs, some hundreds or thousands, of several inputs nested as the model takes them.
    :param bits: of a weight in the file, on average; 4 if there is nothing else to stop at.
    :param max_bytes: of the file.
    :param original: the network that sizes are compared with; `model` if not given.
    :param custom_objects: layers of the user's own by name, which `load` has to be given again.
    :param seed: of k-means, and of random signs by which `calibration` is looked at.
    :raises TypeError: if the model is none of Keras, or typical inputs are no arrays.
    :raises ValueError: if a number is out of range, typical inputs are not those of the network, `validate` gives no
        finite number for `model`, the file cannot be as small as `max_bytes`, or the network has a layer that no file
        can hold, naming it, or would not come back; then the file stays as it was.
    """
    if not 0 <= max_rise < float("inf"):
        raise ValueError(f"max_rise must be finite and at least 0, got {max_rise}.")
    by_posterior = calibration is None and bool(bayesian_layers(model))
    if not by_posterior and calibration is None and (validate is None or bits is not None or max_bytes is not None):
        raise ValueError("pack() needs validate=, or calibration= with validate=, bits= or max_bytes=.")
    for name, number in (("bits", bits), ("max_bytes", max_bytes)):
        if number is not None and not isinstance(number, numbers.Real):
            raise TypeError(f"{name} must be a number, got {number!r}.")
    if (bits is not None and not 0 < bits <= 16) or (max_bytes is not None and max_bytes <= 0):
        raise ValueError(f"bits must be above 0 and at most 16, and max_bytes positive, got {bits=}, {max_bytes=}.")
    with custom_layers(custom_objects):
        plain, variances = _plain_of(model, by_posterior=by_posterior)
        check_storable(plain)
        if not kernels_of(plain):
            raise ValueError(f"the network {plain.name} has no kernels to round; save_bcz() writes it as it is.")
        if calibration is not None:
            calibration = arrays_for(plain, calibration, "calibration")
        error_before = math.nan if validate is None else _judged(validate, model)
        size = original if isinstance(original, Size) else size_of(model if original is None else original)
        model = plain if by_posterior else ordered(folded(plain))
        max_error = error_before + max_rise
        # By the posterior or by curvature, or without either by search of the bits or the codebook.
        if by_posterior or calibration is not None:
            if by_posterior:
                coding = "posterior"
                curvatures = curvature_of_posterior(variances)
            else:
                coding = "calibrated"
                curvatures = curvature_of(model, calibration, seed=seed)
            rounding = InTurn(model, calibration, curvatures)
            codes, encoded = _by_rate(
                model, rounding, validate, max_error, max_rise=max_rise, bits=bits, max_bytes=max_bytes
            )
        else:
            assert validate is not None
            codes, encoded, coding = _searched(model, validate, max_error, seed)
        # What is reported is what the file gives back.
        place = Path(path)
        write_encoded(place, encoded)
        num_bytes = len(encoded.content)
        kernel_bits = [_bits(code) for code in codes]
        return PackedFile(
            path=place,
            bytes=num_bytes,
            error=math.nan if validate is None else float(validate(load_own(place))),
            error_before=error_before,
            coding=coding,
            bits=kernel_bits,
            rates=paper_rates(size.weights, [kernel.size for kernel in kernels_of(model)], kernel_bits),
            file_rate=4 * size.parameters / num_bytes,
        )


def _judged(validate: Callable[[keras.Model], float], model: keras.Model) -> float:
    # Of the network that is given: a number that is finite.
    error = validate(model)
    try:
        number = float(error)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(
            f"validate must give a finite number for the network, the lower the better, got {error!r:.80}."
        )
    return number


def _plain_of(model: keras.Model, *, by_posterior: bool) -> tuple[keras.Model, list[NDArray[np.float32]]]:
    """A plain network, and the variances of its kernels if it comes from a Bayesian one.

    :raises ValueError: if weights are rounded by their posterior and a layer has none.
    """
    if not bayesian_layers(model):
        return model, []
    shrunk = shrink_details(model)
    for (layer, _), variance in zip(kernel_variables(shrunk.model), shrunk.variances, strict=True):
        if by_posterior and not np.any(variance):
            raise ValueError(f"the layer {layer.name} has weights without a posterior; give calibration=.")
    return shrunk.model, shrunk.variances


def _searched(
    model: keras.Model, validate: Callable[[keras.Model], float], most: float, seed: int
) -> tuple[Sequence[Kernel], Encoded, str]:
    """The smaller one of fixed-point numbers and codebooks."""
    kernels = kernels_of(model)
    # Both kinds of codes within the error, of which the smaller file is taken.
    copy, biases = _with_biases(model, kernels, validate, most)
    error_of = error_of_kernels(copy, lambda network: float(validate(network)))
    points = search_bits(kernels, error_of, start=[_START] * len(kernels), max_error=most)
    choices: dict[str, Sequence[Kernel]] = {"fixed point": points}
    if (books := _codebooks(kernels, error_of, most, seed)) is not None:
        choices["codebooks"] = books
    files = {name: _smallest(model, codes, biases, validate, most) for name, codes in choices.items()}
    coding = min(files, key=lambda name: len(files[name].content))
    return choices[coding], files[coding], coding


def _with_biases(
    model: keras.Model, kernels: Sequence[Kernel | ArrayLike], validate: Callable[[keras.Model], float], most: float
) -> tuple[keras.Model, str]:
    """A copy with float16 biases, or float32 ones where these do harm."""
    copy = with_kernels(model, kernels, biases="float16")
    if float(validate(copy)) <= most:
        return copy, "float16"
    return with_kernels(model, kernels, biases="float32"), "float32"


def _by_rate(
    model: keras.Model,
    rounding: InTurn,
    validate: Callable[[keras.Model], float] | None,
    max_error: float,
    *,
    max_rise: float,
    bits: float | None,
    max_bytes: int | None,
) -> tuple[Sequence[Kernel], Encoded]:
    """Weights rounded at the highest rate that the error allows, or the lowest of so few bytes.

    :raises ValueError: if the file would be larger than allowed at every rate.
    """
    if bits is None and max_bytes is None and validate is None:
        bits = _BITS
    # Bits of a weight and bytes of the file are one limit of bytes.
    limit = math.inf if max_bytes is None else float(max_bytes)
    others = 0 if bits is None and validate is not None else _bytes_of_others(model)
    if bits is not None:
        kernels = kernels_of(model)
        wanted = sum(kernel.size for kernel in kernels) * bits / 8
        # What kernels take whatever their values are, such as their steps, is much only for small ones.
        if wanted < _SMALL_KERNEL * len(kernels):
            zeros = [on_grid(np.zeros(kernel.shape), 1.0) for kernel in kernels]
            wanted += len(encode(model, zeros, biases="float16").content) - others
        limit = min(limit, wanted + others)
    if validate is None:
        return _within_bytes(model, rounding, limit, others)
    codes, encoded = _within_error(model, rounding, validate, max_error, max_rise)
    if len(encoded.content) > limit:
        raise ValueError(
            f"the file has {len(encoded.content)} bytes within max_rise={max_rise:.4g}, and {limit:.0f} are "
            "allowed; allow more of either."
        )
    return codes, encoded


def _within_error(
    model: keras.Model, rounding: InTurn, validate: Callable[[keras.Model], float], most: float, rise: float
) -> tuple[Sequence[Kernel], Encoded]:
    """The highest rate that the error allows."""
    # Kernels at a rate in a copy of the network, whose error is looked at.
    copy, biases = _with_biases(model, kernels_of(model), validate, most)
    error_of = error_of_kernels(copy, validate)

    def tried(rate: float) -> tuple[float, list[Grid]]:
        codes = rounding.at(2.0**rate)
        return error_of(codes), codes

    codes = _highest(tried, rounding.middle, most, rise)
    return codes, _smallest(model, codes, biases, validate, most)


def _highest(tried: Callable[[float], tuple[float, _Result]], middle: float, most: float, rise: float) -> _Result:
    """What the highest rate gives whose error is low enough, by octaves and then by halves.

    Errors go up and down by chance, and the highest of many rates that pass would be one that was lucky. So a rate has
    to pass by itself and by the sequence of errors, rising with the rate, that is nearest to all that were seen.

    :param tried: the error at a rate in octaves, and what has it.
    :param middle: the first rate.
    :param rise: beyond `most`, that says clearly that an error is too high.
    """
    # Rates in order, their errors, and what has an error that is low enough.
    rates: list[float] = []
    errors: list[float] = []
    passed: dict[float, _Result] = {}

    def error_at(rate: float) -> float:
        error, result = tried(rate)
        place = bisect.bisect(rates, rate)
        rates.insert(place, rate)
        errors.insert(place, error)
        if error <= most:
            passed[rate] = result
        return error

    def highest() -> float:
        fit = zip(rates, _rising(errors), strict=True)
        return max((rate for rate, error in fit if error <= most and rate in passed), default=-math.inf)

    # Up by octaves until the error is clearly too high, or down if even the first rate was too high.
    top = 0
    while error_at(middle + top) <= most + rise and top < _OCTAVES:
        top += 1
    bottom = 0
    while highest() == -math.inf and bottom < _OCTAVES:
        bottom += 1
        error_at(middle - bottom)
    # Between the highest rate that passes and the next one.
    for _ in range(_FINE_TRIES):
        best = highest()
        above = [rate for rate in rates if rate > best]
        if best == -math.inf or not above or above[0] - best <= _FINE:
            break
        error_at((best + above[0]) / 2)
    if not passed:
        raise ValueError("no rounding of the weights stays within max_rise; give more, or pack without calibration.")
    return passed[max(highest(), min(passed))]


def _rising(values: Sequence[float]) -> list[float]:
    """The sequence that never falls and is nearest in squares: means of neighbours where values fall."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean = value
        size = 1
        while pools and pools[-1][0] >= mean:
            before, number = pools.pop()
            mean = (before * number + mean * size) / (number + size)
            size += number
        pools.append((mean, size))
    return [mean for mean, size in pools for _ in range(size)]


def _within_bytes(model: keras.Model, rounding: InTurn, limit: float, others: int) -> tuple[Sequence[Kernel], Encoded]:
    """The lowest rate of so few bytes: first of layers that are rounded alone, by their entropies, then of files.

    :param others: bytes of the file without its kernels.
    """

    # A search begins where it is asked again, and often ends there.
    @functools.lru_cache(maxsize=1)
    def reckoned(rate: float) -> tuple[float, None]:
        return rounding.reckoned_bits(2.0**rate) / 8, None

    @functools.lru_cache(maxsize=1)
    def written(rate: float) -> tuple[float, tuple[list[Grid], Encoded]]:
        codes = rounding.at(2.0**rate)
        encoded = encode(model, codes, biases="float16")
        return len(encoded.content) - others, (codes, encoded)

    best = None
    if limit > others:
        # One file says how far what is reckoned is off.
        rate, octaves, _ = _search(reckoned, limit - others, rounding.middle, _OCTAVES_OF_RATE)
        off = written(rate)[0] / max(reckoned(rate)[0], 1.0)
        rate, octaves, _ = _search(reckoned, (limit - others) / off, rate, octaves)
        *_, best = _search(written, limit - others, rate, octaves)
    if best is None:
        raise ValueError(f"the file cannot be as small as {limit:.0f} bytes; allow more.")
    return best


def _bytes_of_others(model: keras.Model) -> int:
    """Of a file without its kernels."""
    kernels = kernels_of(model)
    nothing = len(kernels)  # a byte says how a kernel is written
    return len(encode(model, None, biases="float16").content) - 4 * sum(kernel.size for kernel in kernels) - nothing


def _search(
    sized: Callable[[float], tuple[float, _Result]], limit: float, rate: float, octaves: float
) -> tuple[float, float, _Result | None]:
    """The lowest rate of so few bytes of kernels, by the slope between two tries, or halves of the range.

    Returned are the last rate, in how many octaves bytes halve there, and the best of what is small enough.

    :param sized: bytes at a rate in octaves, and what has them.
    :param octaves: of the rate, to halve the bytes, before two tries say so.
    """
    low = rate - 2 * _OCTAVES
    high = rate + 2 * _OCTAVES
    best: _Result | None = None
    before: tuple[float, float] | None = None
    for _ in range(_TRIES):
        size, result = sized(rate)
        # How many times the bytes have to be halved.
        halves = math.log2(max(size, 1.0) / limit)
        if halves <= 0:
            best = result
            high = rate
        else:
            low = rate
        if math.log2(_CLOSE) <= halves <= 0:
            break
        # The slope between the last two rates, within what networks have.
        if before is not None and before[1] != halves:
            octaves = float(np.clip((rate - before[0]) / (before[1] - halves), *_POSSIBLE_OCTAVES))
        elif before is not None:
            octaves = min(2 * octaves, _POSSIBLE_OCTAVES[1])  # a step that changed nothing
        before = rate, halves
        rate += octaves * (halves - math.log2((1 + _CLOSE) / 2))
        if not low < rate < high:
            rate = (low + high) / 2
    return rate, octaves, best


def _smallest(
    model: keras.Model,
    codes: Sequence[Kernel],
    biases: str,
    validate: Callable[[keras.Model], float],
    most: float,
) -> Encoded:
    """A file of these kernels, with the coarsest biases, of significant bits or in `biases`, that do no harm."""
    # The fewest significant bits of biases that do no harm, by halves; the file is what decides.
    best: str | int = biases
    too_few = -1
    enough = _START + 1
    while enough - too_few > 1:
        significant = (enough + too_few) // 2
        if float(validate(with_kernels(model, codes, biases=significant))) <= most:
            enough = best = significant
        else:
            too_few = significant
    # Of equally small files that of the exact ones, which come first.
    choices = dict.fromkeys((biases, best))
    return min((encode(model, codes, biases=choice) for choice in choices), key=lambda encoded: len(encoded.content))


def _codebooks(
    kernels: Sequence[np.ndarray], error_of: Callable[[Sequence[Kernel]], float], most: float, seed: int
) -> list[Codebook] | None:
    """The codebooks of the smallest size, of powers of two, whose error and that of all larger ones is low enough.

    Weights that share few values already keep them: they were trained for these.
    """
    smallest = None
    if all(len(np.unique(kernel)) <= min(_SHARED, kernel.size // 2) for kernel in kernels):
        shared = [codebook(kernel, _SHARED, seed=seed) for kernel in kernels]
        return shared if error_of(shared) <= most else None
    # From the largest codebook down, until the error is too high.
    for k in _BOOKS:
        books = [codebook(kernel, k, seed=seed) for kernel in kernels]
        if not error_of(books) <= most:
            break
        smallest = books
    return smallest


def _bits(code: Kernel) -> int:
    if isinstance(code, FixedPoint | Grid):
        return code.bits
    assert isinstance(code, Codebook)
    return max(1, (len(code.centres) - 1).bit_length())
