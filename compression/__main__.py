"""What is in a `.bcz` file: layers, codings, bits and rates.

python -m compression info model.bcz
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from .files.container import Contents, read_bcz

__all__ = ["main", "table"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; errors are one line and code 2."""
    parser = argparse.ArgumentParser("bcz", description="What is in a .bcz file: layers, codings, bits and rates.")
    parser.add_argument("command", choices=["info"], help="what to do")
    parser.add_argument("file", help="written by compression.pack, save_bcz or compress_network.py")
    flags = parser.parse_args(arguments)
    try:
        found = read_bcz(flags.file)
    except (OSError, ValueError) as error:
        print(f"bcz: error: {error}", file=sys.stderr)
        return 2
    print(f"inputs {found.input_shape}:", *(type(layer).__name__ for layer in found.layers))
    rows = table(found)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            f"{cell:<{width}}" if i < 3 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
    return 0


def table(found: Contents) -> list[list[str]]:
    """Rows of text: a heading, each layer with its weights, and all of them."""
    rows = [["layer", "kernel", "coding", "weights", "not 0", "values", "bytes", "bits/weight", "times smaller"]]
    total = not_zero = 0
    for stored in found.weights:
        count = stored.kernel.size + (0 if stored.bias is None else stored.bias.size)
        total += count
        nonzero = sum(int(np.count_nonzero(part)) for part in (stored.kernel, stored.bias) if part is not None)
        not_zero += nonzero
        values = str(len(set(stored.kernel.ravel().tolist())))
        size = " x ".join(map(str, stored.shape))
        rows.append(
            [stored.kind, size, stored.coding, f"{count:,}", f"{nonzero:,}", values, *_rates(count, stored.bytes)]
        )
    biases = found.biases if isinstance(found.biases, str) else f"in 2**-{found.biases}"
    about = [f"biases {biases}", f"version {found.version}", f"{total:,}", f"{not_zero:,}", ""]
    return [*rows, ["file", *about, *_rates(total, found.bytes)]]


def _rates(count: int, num_bytes: int) -> list[str]:
    return [f"{num_bytes:,}", f"{8 * num_bytes / max(1, count):.2f}", f"{4 * count / max(1, num_bytes):.1f}"]


if __name__ == "__main__":
    sys.exit(main())
