"""What is told of a packed network: numbers, a table, arrays for figures.

details(packed)         # a dictionary of numbers, for JSON
table(packed)           # cells of text
score_histograms(packed), bit_histograms(packed), input_mask(packed.model)
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray

from .files.pack import Packed, PackedNetwork
from .graph.graph import graph_of, kernel_variables
from .graph.kept_inputs import SelectInputs
from .graph.sizes import size_of
from .rounding.bits import layer_bits, significant_bits

__all__ = [
    "PUBLISHED",
    "Histogram",
    "Published",
    "bit_histograms",
    "details",
    "input_mask",
    "layers",
    "metrics",
    "notes",
    "published",
    "score_histograms",
    "smallest",
    "table",
    "verdict",
]

_MOST = 20.0  # scores beyond are drawn there


class Published(NamedTuple):
    """Test error in percent, and the three rates of Table 2."""

    error_percent: float
    pruning: float
    fast: float
    maximum: float


#: Name of the network and prior -> what the paper reports on MNIST.
PUBLISHED = {
    ("lenet300", "gnj"): Published(1.8, 9, 36, 58),
    ("lenet300", "ghs"): Published(1.8, 9, 23, 59),
    ("lenet300", "svd"): Published(1.8, 21, 84, 113),
    ("lenet5", "gnj"): Published(1.0, 108, 361, 573),
    ("lenet5", "ghs"): Published(1.0, 156, 419, 771),
    ("lenet5", "svd"): Published(1.0, 63, 228, 365),
}


def published(network: str, prior: str, dataset: str) -> Published | None:
    """What the paper reports of a network on the data set of this name; None if it does not."""
    return PUBLISHED.get((network, prior)) if dataset == "mnist" else None


class Histogram(NamedTuple):
    """How often values fall between edges: `counts` [n] and `edges` [n + 1], and `marks`, positions by label."""

    counts: NDArray[np.int64]
    edges: NDArray[np.float64]
    marks: dict[str, float]


def details(packed: Packed) -> dict[str, Any]:
    """The numbers of a packed network, ready for JSON: errors in percent, sizes in bytes, rates, bits, thresholds."""
    return {
        "architecture": packed.architecture,
        "kept_weights": list(packed.kept_weights),
        "original_weights": packed.original.weights,
        "original_parameters": packed.original.parameters,
        "original_multiplications": packed.original.multiplications,
        "multiplications": size_of(packed.model).multiplications,
        "thresholds": packed.thresholds,
        "bits": packed.bits,
        "significant_bits_of_mean_variance": layer_bits(packed.variances, rule="bits_of_mean"),
        "rates_as_in_paper": {name: rates._asdict() for name, rates in packed.rates.items()},
        "networks": {
            name: {
                "valid_percent": network.valid_percent,
                "test_percent": network.test_percent,
                "bytes": network.bytes,
                "file_rate": network.file_rate,
            }
            for name, network in packed.networks.items()
        },
    }


def table(packed: Packed) -> list[list[str]]:
    """Errors, bytes and rates of the files, as cells; the first row names the columns, the first cell of others the
    network."""
    rows = [["", "valid %", "test %", "bytes", "times smaller"]]
    for name, network in packed.networks.items():
        sizes = ["", ""] if network.file is None else [str(network.bytes), f"{network.file_rate:.1f}"]
        rows.append([name, f"{network.valid_percent:.2f}", f"{network.test_percent:.2f}", *sizes])
    return rows


def smallest(packed: Packed) -> PackedNetwork:
    """The smallest file among those whose validation error is at most that of the pruned network, or the smallest."""
    # Of the files that are as good as the pruned network, else of all.
    files = [network for network in packed.networks.values() if network.file is not None]
    accurate = [network for network in files if network.valid_percent <= packed.networks["shrunk"].valid_percent]
    return min(accurate or files, key=lambda network: network.bytes or 0)


def verdict(packed: Packed) -> str:
    """What a packed network comes to, in a sentence."""
    best = smallest(packed)
    return f"{best.bytes:,} bytes, {best.file_rate:.0f} times smaller, with {best.test_percent:.2f} % test errors."


def metrics(packed: Packed) -> dict[str, float]:
    """What runs are compared by."""
    best = smallest(packed)
    return {"error_percent": best.test_percent, "bytes": float(best.bytes or 0)}


def layers(packed: Packed) -> list[list[str]]:
    """Weights, bits and bytes of each kernel that is left, as cells, with a line of headers."""
    rows = [["layer", "kernel", "weights", "bits", "bytes"]]
    kernels = zip(kernel_variables(packed.model), packed.kept_weights, packed.bits[packed.chosen], strict=True)
    for (layer, kernel), weights, bits in kernels:
        size = " x ".join(map(str, kernel.shape))
        rows.append([layer.name, size, f"{weights:,}", str(bits), f"{-(-weights * bits // 8):,}"])
    return rows


def notes(packed: Packed, reference: Published | None = None) -> list[str]:
    """What a table leaves out, one line each: the architecture, bits, the three rates, and what the paper reports."""
    multiplications = size_of(packed.model).multiplications
    # Products before and after, where both can be counted.
    original = packed.original.multiplications
    saving = f", {original / multiplications:.1f} times fewer multiplications" if multiplications and original else ""
    lines = [f"architecture {_joined(packed.architecture)}, {sum(packed.kept_weights)} weights{saving}"]
    for name, rates in packed.rates.items():
        lines.append(
            f"bits ({name}) {_joined(packed.bits[name])}; rates as in the paper: pruning {rates.pruning:.1f}, "
            f"fast {rates.fast:.1f}, maximum {rates.maximum:.1f}"
        )
    if reference is not None:
        lines.append("published: {:.1f} %; pruning {}, fast {}, maximum {}".format(*reference))
    return lines


def score_histograms(packed: Packed) -> dict[str, Histogram]:
    """By layer the scores of its groups with the threshold, Figs. 4 to 7; scores beyond 20 are counted at 20."""
    histograms = {}
    for name, scores in packed.scores.items():
        # A few scores are far beyond all others.
        counts, edges = np.histogram(np.clip(np.ravel(scores), -_MOST, _MOST), bins=50)
        threshold = packed.thresholds[name]
        histograms[name] = Histogram(counts, edges, {f"threshold {threshold:.2f}": threshold})
    return histograms


def bit_histograms(packed: Packed) -> dict[str, Histogram]:
    """By layer the significant bits that its weights need, Fig. 11, with those that all of them got."""
    histograms = {}
    for number, variances in enumerate(packed.variances):
        counts, edges = np.histogram(significant_bits(variances), bins=np.arange(-0.5, 24))
        marks = {name: float(codes[number].significant) for name, codes in packed.codes.items()}
        histograms[f"layer {number + 1}"] = Histogram(counts, edges, marks)
    return histograms


def input_mask(model: keras.Model) -> NDArray[np.float64] | None:
    """Part of the channels of each pixel that a plain network looks at, [height, width]; None if it begins with a
    convolution, or its inputs are no images."""
    shape = tuple(model.inputs[0].shape[1:])
    if len(shape) != 3:
        return None
    # Follow the inputs through selections to the first dense layer.
    mask = np.ones(math.prod(shape))
    for layer in (node.layer for node in graph_of(model).nodes):
        if isinstance(layer, SelectInputs):
            chosen = np.zeros_like(mask)
            chosen[np.flatnonzero(mask)[layer.indices]] = 1.0
            mask = chosen
        elif isinstance(layer, keras.layers.Dense):
            return mask.reshape(shape).mean(axis=-1)
        elif not isinstance(layer, keras.layers.Flatten):
            return None
    return None


def _joined(numbers: Sequence[int]) -> str:
    return "-".join(map(str, numbers))
