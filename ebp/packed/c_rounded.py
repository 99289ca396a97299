"""Networks of whole numbers (`rounded`) as C: a source, and a header.

No library, no memory but the stack, no floating point, and no product of more than 32 bits. Constants of AVR lie in
flash (PROGMEM), since its 2 kB of RAM would not hold them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .c_coding import array, comment
from .rounded import HALVES, MAX_UNIT, RoundedLayer, RoundedNetwork

__all__ = ["header_of", "source_of"]

_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t"}

_START = """\
/* A network of real weights in whole numbers, written by ebp.export_c: {sizes}, hidden weights of {bits} bits.
   See {name}.h. {bytes} bytes of constants. */

#include "{name}.h"

#if defined(__AVR__)
#include <avr/pgmspace.h>
#define IN_FLASH PROGMEM
#define BYTE_AT(p) pgm_read_byte(p)
#define SHORT_AT(p) pgm_read_word(p)
#define LONG_AT(p) ((int32_t)pgm_read_dword(p))
#else
#define IN_FLASH
#define BYTE_AT(p) (*(p))
#define SHORT_AT(p) (*(p))
#define LONG_AT(p) (*(p))
#endif

{constants}

static void scores_of(const {type} *x, int32_t *scores)
{{
    const uint8_t *w = weights;
    const int32_t *b = biases;
{units}    uint16_t i, o;
{layers}}}

int {name}(const {type} *x)
{{
    int32_t scores[{num_classes}];
    uint8_t k, best = 0;
    scores_of(x, scores);
    for (k = 1; k < {num_classes}; k++)
        if (scores[k] > scores[best])
            best = k;
    return best;
}}
"""

_LAYER = """\
    for (o = 0; o < {num_outputs}; o++, b++) {{
        int32_t sum = LONG_AT(b);
{byte}        for (i = 0; i < {num_inputs}; i++) {{
{skip}{read}            sum += (int32_t){value} * (int16_t)({code} * 2 - {most});
{next}        }}
{result}    }}
"""

_PROBABILITIES = """
void {name}_probabilities(const {type} *x, uint8_t *p)
{{
    int32_t scores[{num_classes}], most;
    uint16_t parts[{num_classes}];
    uint32_t total = 0;
    uint8_t k;
    scores_of(x, scores);
    most = scores[0];
    for (k = 1; k < {num_classes}; k++)
        if (scores[k] > most)
            most = scores[k];
    for (k = 0; k < {num_classes}; k++) {{
        uint32_t behind = ((uint32_t)most - (uint32_t)scores[k]) >> {cut};
        behind = (behind > 65535u ? 65535u : behind) * {multiplier}u >> 12;
        if (behind > 255u)
            behind = 255u;
        parts[k] = (uint16_t)((uint32_t)SHORT_AT(halves + (behind & 15u)) >> (behind >> 4));
        total += parts[k];
    }}
    for (k = 0; k < {num_classes}; k++)
        p[k] = (uint8_t)((parts[k] * 255u + (total >> 1)) / total);
}}
"""

_HEADER = """\
/* A network of {num_inputs} inputs and {num_classes} classes, written by ebp.export_c.
{classes} */

#ifndef {guard}
#define {guard}

#include <stdint.h>

#define {upper}_NUM_INPUTS {num_inputs}
#define {upper}_NUM_CLASSES {num_classes}

#ifdef __cplusplus
extern "C" {{
#endif

/* The number of the most probable class of a row. */
int {name}(const {type} *x);
{probabilities}
#ifdef __cplusplus
}}
#endif

#endif
"""

_PROBABILITIES_DECLARED = """
/* The probability of each class, in 255 parts of one. */
void {name}_probabilities(const {type} *x, uint8_t *p);
"""


def header_of(net: RoundedNetwork, name: str, *, has_probabilities: bool) -> str:
    """The header."""
    words = {"name": name, "type": _TYPES[net.inputs]}
    return _HEADER.format(
        **words,
        num_inputs=net.num_inputs,
        num_classes=len(net.classes),
        classes=f"   Classes: {comment(', '.join(map(str, net.classes.tolist())))}.",
        guard=f"{name.upper()}_H",
        upper=name.upper(),
        probabilities=_PROBABILITIES_DECLARED.format(**words) if has_probabilities else "",
    )


def source_of(net: RoundedNetwork, name: str, *, has_probabilities: bool) -> str:
    """The source, which includes `name.h`."""
    num_classes = len(net.classes)
    bitmap = np.packbits(np.isin(np.arange(net.num_inputs), net.used), bitorder="little")
    reads_all = len(net.used) == net.num_inputs
    # Constants; a map of bits says which inputs are read, if not all are.
    constants = [
        array("uint8_t", "weights", np.concatenate([_bytes_of(layer) for layer in net.layers])),
        array("int32_t", "biases", np.concatenate([layer.biases for layer in net.layers])),
    ]
    if not reads_all:
        constants.append(array("uint8_t", "used", bitmap))
    if has_probabilities:
        constants.append(array("uint16_t", "halves", HALVES))
    # A layer of code for each layer of weights, each with room for its own units.
    hidden = net.layers[:-1]
    words = {"name": name, "type": _TYPES[net.inputs], "num_classes": num_classes}
    text = _START.format(
        **words,
        sizes="-".join(map(str, [net.num_inputs, *(len(layer.biases) for layer in net.layers)])),
        bits=net.layers[0].bits,
        bytes=sum(int(constant.partition("/* ")[2].split()[0]) for constant in constants),
        constants="\n".join(constant.replace("[] = {", "[] IN_FLASH = {") for constant in constants),
        units="".join(f"    uint16_t units_{number}[{len(layer.biases)}];\n" for number, layer in enumerate(hidden)),
        layers="".join(_layers(net, reads_all)),
    )
    if has_probabilities:
        text += _PROBABILITIES.format(**words, cut=net.cut, multiplier=net.multiplier)
    return text


def _layers(net: RoundedNetwork, reads_all: bool) -> Iterator[str]:
    for number, layer in enumerate(net.layers):
        is_last = number == len(net.layers) - 1
        num_outputs = len(layer.biases)
        source = f"units_{number - 1}[i]" if number else "x[i]"
        per_byte = 8 // layer.bits
        num_inputs = len(layer.codes) if number or reads_all else net.num_inputs
        # Inputs that are not read have no weights.
        skip = (
            ""
            if number or reads_all
            else ("            if (!(BYTE_AT(used + (i >> 3)) >> (i & 7) & 1))\n                continue;\n")
        )
        counter = "n" if skip else "i"
        # A weight of 8 bits is a byte; others are shifted out of one, and counted.
        if per_byte == 1:
            parts = {"byte": "", "read": "", "code": "BYTE_AT(w++)", "next": ""}
        else:
            start = "        uint8_t byte = 0, n = 0;\n" if skip else "        uint8_t byte = 0;\n"
            parts = {
                "byte": start,
                "read": f"            if (!({counter} & {per_byte - 1}))\n                byte = BYTE_AT(w++);\n",
                "code": f"(byte & {2**layer.bits - 1})",
                "next": f"            byte = (uint8_t)(byte >> {layer.bits});\n"
                + ("            n++;\n" if skip else ""),
            }
        # Scores, of which that of the first of two classes is 0; or units, cut off at both ends.
        if is_last:
            place = "1" if num_outputs == 1 else "o"
            result = f"        scores[{place}] = sum;\n"
            if num_outputs == 1:
                result += "        scores[0] = 0;\n"
        else:
            result = (
                f"        sum = sum < 0 ? 0 : sum >> {layer.shift};\n"
                f"        units_{number}[o] = (uint16_t)(sum > {MAX_UNIT} ? {MAX_UNIT} : sum);\n"
            )
        yield _LAYER.format(
            num_outputs=num_outputs,
            num_inputs=num_inputs,
            skip=skip,
            value=source,
            most=2**layer.bits - 1,
            result=result,
            **parts,
        )


def _bytes_of(layer: RoundedLayer) -> np.ndarray:
    """Of one neuron after the other the codes of its weights, filled up to a whole byte; the first in the low bits."""
    per_byte = 8 // layer.bits
    codes = layer.codes.T  # [n_out, n_in]
    room = -codes.shape[1] % per_byte
    codes = np.pad(codes, ((0, 0), (0, room))).reshape(len(codes), -1, per_byte)
    return np.sum(codes << (layer.bits * np.arange(per_byte)), axis=2).reshape(-1).astype(np.uint8)
