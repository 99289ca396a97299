"""Packed networks as C for processors without anything: one file, no library, no memory but a few bytes of the stack.

    source = export_c(classifier, "digits.c", inputs="uint8")           # or a PackedNetwork, or an EBPNetwork

The function takes a raw row and returns the number of its class, the one that `PackedNetwork.predict` gives. Eight
neurons are summed at a time, input by input, in the order in which their weights lie in the file, so that neither coded
inputs nor sums of a whole layer are kept. Inputs that are whole numbers are coded by whole numbers alone,

    q = (a x + b) >> s,    a and b of 64 bits,

which is checked for every value that an input can have. Others are coded in `double`, as NumPy does it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.files import write_text

from ..network.coding import Matrix
from .c_coding import array, comment, input_coding
from .c_rounded import header_of, source_of
from .export import Exported, check_label_rows, packed, print_look, say
from .packed import PackedNetwork
from .rounded import fit_within, round_network
from .signs import INT32_MAX, Layer

#: A fitted `EBPGaussianClassifier`, which stands on a floor above.
Classifier: TypeAlias = Any

__all__ = ["Inputs", "export_c"]

Inputs = Literal["int8", "uint8", "int16", "float32", "float64"]

_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "float32": "float", "float64": "double"}

_SOURCE = """\
/* A network of binary weights, written by ebp.export_c: {networks} of {sizes}.

       {declaration}

   returns the number of the class of a row of {num_inputs} inputs{raw}{classes}
   It keeps nothing between two calls and needs no library. {bytes} bytes of constants. */

#include <stdint.h>
{constants}
static int32_t input_of(const {type} *x, {index} i)
{{
{coding}
}}

{declaration}
{{
    const uint8_t *w = weights;
    const {number} *t = numbers;
    uint8_t bits[2][{num_bytes}];
    uint8_t votes[{num_classes}];
    uint8_t n, l, k;
    {index} i, o;
    for (k = 0; k < {num_classes}; k++)
        votes[k] = 0;
    for (n = 0; n < {num_networks}; n++) {{
        for (l = 0; l < {num_layers}; l++) {{
            const uint8_t *from = bits[l & 1];
            uint8_t *to = bits[~l & 1], best = 0;{starting}
            for (o = 0; o < sizes[l + 1]; o += 8) {{
                int32_t sums[8] = {{0, 0, 0, 0, 0, 0, 0, 0}};
                uint8_t plus = 0;
                for (i = 0; i < sizes[l]; i++, w++) {{
                    int32_t q = l ? (from[i >> 3] >> (i & 7) & 1) * 2 - 1 : input_of(x, i);
                    for (k = 0; k < 8; k++)
                        sums[k] += *w >> k & 1 ? q : -q;
                }}
                for (k = 0; k < 8 && o + k < sizes[l + 1]; k++, t++) {{
                    if (sums[k] >= *t)
                        plus = (uint8_t)(plus | 1 << k);
{deciding}
                }}
                to[o >> 3] = plus;
            }}
            if (l == {last})
                votes[best]++;
        }}
    }}
    for (k = 1, n = 0; k < {num_classes}; k++)
        if (votes[k] {beats} votes[n])
            n = k;
    return n;
}}
"""

_MANY = """\
                    if (l == {last}) {{
                        int64_t score = ((int64_t)sums[k] + *t) * {num_classes} + ranks[n * {num_classes} + o + k];
                        if (score > largest) {{
                            largest = score;
                            best = (uint8_t)(o + k);
                        }}
                    }}"""
_ONE = """\
                    if (l == {last})
                        best = plus & 1;"""


def export_c(
    network: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    inputs: Inputs | None = None,
    name: str = "ebp_predict",
    X: Matrix = None,
    y: ArrayLike | None = None,
    **options: Any,
) -> str:
    """C99 of a function `int name(const T *x)` that predicts as `PackedNetwork.predict` does.

    :param network: a `PackedNetwork`; or an `EBPNetwork` of binary weights or an `EBPClassifier`. Of an
        `EBPGaussianClassifier`, whose weights are real, see below.
    :param path: file to write; None for none.
    :param inputs: type of a raw input: whole numbers ("int8", "uint8", "int16") need no floating point; None:
        "float32".
    :param name: of the function.
    :param X: rows to look at, as for `ebp.export_checked`: how many of them `predict` and the function have right is
        printed; None: none.
    :param y: their labels, [N]; None: not known.
    :param options: of an `EBPNetwork` or an `EBPClassifier` those of `ebp.export_network`: coding, num_votes, ...
    :return: the source.
    :raises ValueError: if the network cannot be packed, has more than 255 networks, outputs or layers, inputs whose
        sums may not fit in 32 bits, or a coding that whole numbers cannot do; or if `name` is no name in C.

    Real weights are rounded to `bits=8`, 4 or 2 bits, as far as their posterior allows (`ebp.packed.rounded`), by the
    rows `X`, which have to be given: training rows are right. Inputs are "uint8" (the default here), "int8" or "int16".
    The source includes a header that is written beside `path`, and with `probabilities=True` has a function
    `void name_probabilities(const T *x, uint8_t *p)`, too. All sums and products have 32 bits, and AVR keeps the
    constants in flash. It predicts as `round_network(model, X, ...)`.

    With `max_bytes=` in place of `bits=`, the classifier says only how to learn: of the widest network of each number
    of bits whose constants and code take at most so many bytes, the one that has the most rows right that it did not
    learn is learned anew by all of X and y, see `ebp.packed.rounded.fit_within`.

    Coded values of real inputs are cut off at 2^24 and at 2^31 / n_in units of 2^-8, where `PackedNetwork` may refuse
    the row; NaN is taken for the least. Shifts of negative numbers have to keep their sign, as with every compiler we
    know of.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise ValueError(f"name must be one that C takes, such as ebp_predict, got {name!r}.")
    # Real weights are rounded, binary ones packed.
    if hasattr(network, "posteriors_") or "max_bytes" in options:
        return _export_real(network, path, inputs or "uint8", name, X, y, **options)
    inputs = inputs or "float32"
    if inputs not in _TYPES:
        raise ValueError(f"inputs must be one of {', '.join(_TYPES)}, got {inputs!r}.")
    net = network if isinstance(network, PackedNetwork) else packed(network, **options)
    if net is network and options:
        raise ValueError(f"a packed network has all of its options already, got {', '.join(options)}; leave them out.")
    if net is network and X is not None:
        raise ValueError("a packed network knows no other predict to be compared with; give the classifier it is of.")
    # What the C source cannot hold.
    if net.has_convolutions:
        raise ValueError("a network of convolutions cannot be written as C; run its file by ebp.PackedNetwork.")
    if max(net.num_networks, net.layer_sizes[-1], len(net.layer_sizes) - 1) > 255 or max(net.layer_sizes) > 2**31 - 9:
        raise ValueError("C is written for at most 255 networks, outputs and layers; export fewer votes.")
    # Write it, and look at how it predicts.
    source = _source(net, inputs, name)
    if path is not None:
        write_text(path, source)
    if X is not None:
        looked = {key: options[key] for key in ("coding", "classes", "num_votes") if key in options}
        print_look(network, net, X, y, **looked)
    return source


def _export_real(
    model: Classifier,
    path: str | os.PathLike[str] | None,
    inputs: str,
    name: str,
    X: Matrix,
    y: ArrayLike | None,
    *,
    bits: int | None = None,
    max_bytes: int | None = None,
    probabilities: bool = False,
) -> str:
    """`export_c` of an `EBPGaussianClassifier`."""
    if X is None:
        raise ValueError("real weights are rounded by rows such as the training rows; give them as X.")
    if max_bytes is not None and (y is None or bits is not None):
        raise ValueError("max_bytes chooses bits and hidden units by rows; give X and y with it, and no bits.")
    # How many bits, and with `max_bytes` how many units, too.
    X = np.asarray(X)
    if max_bytes is None:
        bits = 4 if bits is None else bits
    else:
        model, bits = fit_within(model, X, np.asarray(y), max_bytes, inputs=inputs)
    net = round_network(model, X, bits=bits, inputs=inputs)
    check_label_rows(y, X, net.classes.tolist())
    source = source_of(net, name, has_probabilities=probabilities)
    if path is not None:
        write_text(path, source)
        header = header_of(net, name, has_probabilities=probabilities)
        write_text(Path(path).with_name(f"{name}.h"), header)
    # How the rounded network predicts beside `predict`.
    float_bytes = 4 * sum(mean.size for mean in model.posteriors_[0].mean)
    sizes = {"num_bytes": net.num_bytes, "float_bytes": float_bytes}
    say(Exported.of(net.predict(X), model.predict(X), y, content=f"weights of {bits} bits", **sizes))
    return source


def _source(net: PackedNetwork, inputs: str, name: str) -> str:
    sizes = net.layer_sizes
    num_outputs = net.layer_sizes[-1]
    num_classes = max(2, num_outputs)
    last = len(sizes) - 2
    # Types as small as the numbers allow.
    index = "uint16_t" if max(sizes) < 2**16 - 8 else "uint32_t"
    coded, coding = input_coding(net, inputs)
    numbers = np.concatenate(list(_numbers(net)))
    number = "int16_t" if np.abs(numbers).max() < 2**15 else "int32_t"
    # Constants: weights, thresholds, sizes, the coding, and the order of biases' fractions.
    constants = [
        array("uint8_t", "weights", np.concatenate([_weights(layer) for part in net.networks for layer in part])),
        array(number, "numbers", numbers),
        array(index, "sizes", sizes),
        *coded,
    ]
    if num_outputs > 1:
        constants.append(array("uint8_t", "ranks", np.concatenate([_ranks(net, part[-1]) for part in net.networks])))
    classes = "" if net.classes is None else ":\n   " + comment(", ".join(map(str, net.classes.tolist())))
    # Where one output decides, equal votes are for the second class; else for the first of several.
    return _SOURCE.format(
        last=last,
        num_classes=num_classes,
        networks=f"{net.num_networks} that vote," if net.num_networks > 1 else "one",
        sizes="-".join(map(str, sizes)),
        declaration=f"int {name}(const {_TYPES[inputs]} *x)",
        num_inputs=sizes[0],
        raw=", raw ones" if net.coding is not None and net.coding.kind != "raw" else "",
        classes=f"{classes}." if classes else ".",
        bytes=sum(int(text.partition("/* ")[2].split()[0]) for text in constants),
        constants="\n".join(constants),
        type=_TYPES[inputs],
        index=index,
        coding=coding,
        num_bytes=max(-(-size // 8) for size in sizes[1:]),
        number=number,
        num_networks=net.num_networks,
        num_layers=len(sizes) - 1,
        starting="\n            int64_t largest = INT64_MIN;" if num_outputs > 1 else "",
        deciding=(_MANY if num_outputs > 1 else _ONE).format(last=last, num_classes=num_classes),
        beats=">" if num_outputs > 1 else ">=",
    )


def _weights(layer: Layer) -> NDArray[np.uint8]:
    """Of eight neurons after the other the bits of their weights to each input."""
    bits = np.unpackbits(layer.bits, axis=1, count=layer.num_inputs, bitorder="little")
    # Neurons up to a multiple of eight; then for each input a byte with the bits of eight neurons.
    padded = np.zeros((-(-len(bits) // 8) * 8, layer.num_inputs), np.uint8)
    padded[: len(bits)] = bits
    return np.packbits(padded.reshape(-1, 8, layer.num_inputs), axis=1, bitorder="little").reshape(-1)


def _numbers(net: PackedNetwork) -> Iterator[NDArray[np.int64]]:
    """Thresholds of hidden layers; of the last layer the whole part of each bias, or a threshold for one output.

    In units of the last sums, which are 2^-e for a single layer.
    """
    for layers in net.networks:
        yield from (layer.numbers.astype(np.int64) for layer in layers[:-1])
        biases = _biases(net, layers[-1])
        if np.abs(biases).max() > INT32_MAX:
            raise ValueError(f"biases of outputs must be below 2^31 for C, got {biases[np.abs(biases).argmax()]:g}.")
        whole_parts = np.ceil(-biases) if len(biases) == 1 else np.floor(biases)
        yield np.clip(whole_parts, -INT32_MAX, INT32_MAX).astype(np.int64)


def _ranks(net: PackedNetwork, layer: Layer) -> NDArray[np.int64]:
    """Order of the fractions of biases: sums are whole, so that equal ones are decided by it; equal ranks are ties."""
    biases = _biases(net, layer)
    return np.unique(biases - np.floor(biases), return_inverse=True)[1].reshape(-1)


def _biases(net: PackedNetwork, layer: Layer) -> NDArray[np.float64]:
    unit = 2.0 ** (net.fraction_bits or 0) if len(net.layer_sizes) == 2 else 1.0
    return layer.numbers.astype(np.float64) * unit
