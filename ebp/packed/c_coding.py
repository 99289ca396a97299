"""Constants and comments of C, and how it codes an input: by whole numbers where inputs are such, else in `double`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .packed import PackedNetwork
from .signs import INT32_MAX

__all__ = ["array", "comment", "floats", "input_coding"]

_SHIFT = 40
_MAX_CODED = 2**22


def array(kind: str, name: str, values: Iterable[int | np.integer]) -> str:
    """A constant array, and its size in bytes as a comment."""
    size = {"uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "int64_t": 8}[kind]
    form = "INT64_C({})" if kind == "int64_t" else "{}"
    return _lines(kind, name, [form.format(int(value)) for value in values], size)


def floats(name: str, values: NDArray[np.float64]) -> str:
    """The same of numbers in double precision."""
    return _lines("double", name, [repr(float(value)) for value in values], 8)


def _lines(kind: str, name: str, texts: Sequence[str], size: int) -> str:
    lines = []
    line = "   "
    for text in texts:
        if len(line) + len(text) > 110:
            lines.append(line)
            line = "   "
        line += f" {text},"
    body = "\n".join([*lines, line])
    return f"static const {kind} {name}[] = {{ /* {size * len(texts)} bytes */\n{body}\n}};"


def comment(text: str) -> str:
    """Text that does not end a comment, in ASCII."""
    return (
        text.encode("ascii", "replace")
        .decode()
        .replace("*/", "* /")
        .replace("/*", "/ *")
        .replace("\n", " ")
        .replace("\\", "/")
    )


def input_coding(net: PackedNetwork, inputs: str) -> tuple[list[str], str]:
    """Constants, and the body of the function that codes input i."""
    coding = net.coding
    # Signs need no arithmetic.
    if coding is not None and coding.kind == "sign":
        return [floats("mean", coding.mean)], "    return x[i] > mean[i] ? 1 : -1;"
    if net.fraction_bits is None:
        return [], "    return x[i] > 0 ? 1 : -1;"
    # q = rint((x - mean) factor 2^e), by whole numbers if raw inputs are.
    mean = np.zeros(net.layer_sizes[0]) if coding is None else coding.mean
    factor = np.ones(net.layer_sizes[0]) if coding is None else coding.factor
    kind = "raw" if coding is None else coding.kind
    if kind == "raw":
        factor = np.ones_like(factor)
    if kind not in ("zscore", "centred"):
        mean = np.zeros_like(mean)
    scaled = factor * 2.0**net.fraction_bits
    if not inputs.startswith("float"):
        return _integer_coding(net, inputs, mean, scaled, kind)
    # In double precision, cut off so that sums fit in 32 bits.
    limit = min(INT32_MAX // net.layer_sizes[0], 2**24)
    text = f"x[i] * {2.0**net.fraction_bits!r}" if kind == "raw" else "(double)x[i] * factor[i]"
    text = text.replace("(double)x[i]", "((double)x[i] - mean[i])") if mean.any() else text
    arrays = [floats("mean", mean)] if mean.any() else []
    arrays += [floats("factor", factor)] if kind != "raw" else []
    unit = "" if kind == "raw" else f" * {2.0**net.fraction_bits!r}"
    body = f"""\
    double v = {text}{unit}, r;
    int32_t q;
    if (!(v > -{limit}.0))
        return -{limit};
    if (v > {limit}.0)
        return {limit};
    q = (int32_t)v; /* rounded to the nearest, halves to even */
    r = v - q;
    if (r > 0.5 || (r == 0.5 && q & 1))
        q++;
    if (r < -0.5 || (r == -0.5 && q & 1))
        q--;
    return q;"""
    return arrays, body


def _integer_coding(
    net: PackedNetwork, inputs: str, mean: NDArray[np.float64], scaled: NDArray[np.float64], kind: str
) -> tuple[list[str], str]:
    """q = (a x + b) >> s, checked for each value of each input; columns that are coded alike share their numbers."""
    limits = np.iinfo(inputs)
    values = np.arange(limits.min, limits.max + 1, dtype=np.int64)
    # Columns that are coded alike.
    pairs, pair_numbers = np.unique(np.stack([mean, scaled], axis=1), axis=0, return_inverse=True)
    pair_numbers = pair_numbers.reshape(-1)
    largest = np.zeros(len(pairs), np.int64)
    a = np.zeros(len(pairs), np.int64)
    b = np.zeros(len(pairs), np.int64)
    for number, (m, f) in enumerate(pairs):
        unit = 2.0 ** (net.fraction_bits or 0) if kind != "raw" else 1.0
        # What NumPy gives for every value that an input can have.
        expected = np.rint((values - m) * (f / unit) * unit)
        largest[number] = int(np.abs(expected).max())
        is_right = largest[number] < _MAX_CODED
        if is_right:  # then products with a are below 2^63
            a[number] = _exact(f)
            b[number] = _exact(-m * f) + 2 ** (_SHIFT - 1)
            is_right = np.array_equal((a[number] * values + b[number]) >> _SHIFT, expected)
        if not is_right:
            column = int(np.flatnonzero(pair_numbers == number)[0])
            raise ValueError(
                f"inputs={inputs!r} cannot be coded by whole numbers in column {column}; give inputs='float32'."
            )
    if int(largest[pair_numbers].sum()) > INT32_MAX:
        raise ValueError(f"sums of {inputs} inputs may not fit in 32 bits; code them by another input coding.")
    # One coding for all columns needs no array.
    if len(pairs) == 1 and a[0] == 1 << _SHIFT and b[0] == 1 << (_SHIFT - 1):
        return [], "    return x[i];"
    if len(pairs) == 1:
        return [], f"    return (int32_t)((x[i] * INT64_C({a[0]}) + INT64_C({b[0]})) >> {_SHIFT});"
    # A few codings are looked up by a column's number of its coding; many stand column by column.
    constants = []
    kinds = "which[i]" if len(pairs) <= 16 else "i"
    if len(pairs) <= 16:
        constants.append(array("uint8_t", "which", pair_numbers))
    else:
        a = a[pair_numbers]
        b = b[pair_numbers]
    constants.append(array("int64_t", "factor", a))
    offset = f"INT64_C({b[0]})"
    if len(set(b.tolist())) > 1:
        constants.append(array("int64_t", "offset", b))
        offset = f"offset[{kinds}]"
    return constants, f"    return (int32_t)((x[i] * factor[{kinds}] + {offset}) >> {_SHIFT});"


def _exact(value: float) -> int:
    """2^s value, rounded."""
    return round(math.ldexp(float(value), _SHIFT))
