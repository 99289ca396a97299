#!/usr/bin/env python3
"""How many bytes do the weights of a file take by DeepCABAC, the coder of the standard ISO/IEC 15938-17?

    NNCODEC_PYTHON=PYTHON compression_nncodec.py --files=files/book_16.bcz,files/fixed.bcz --output=nncodec.json

Each kernel of each file is a matrix of integers, the ranks of its values with 0 for the most frequent one. These are
coded by `compression.files.context_coding` and by the coder of `nncodec`, Fraunhofer's own implementation, which
gives them back to be compared. Both may choose between rows and columns for each kernel, `nncodec` also optimises the
initial states of its contexts. Values themselves, biases and architecture are left out: they take equally many bytes.

`nncodec` is run by the Python in the environment variable NNCODEC_PYTHON; its coder needs NumPy alone:

    python -m venv nnc && nnc/bin/pip install "numpy<2" && nnc/bin/pip install --no-deps nncodec
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench
import keras
import numpy as np
from absl import app, flags
from numpy.typing import NDArray

import compression as bc
from compression.files.context_coding import encode_matrix
from compression.graph.cutting import oriented
from compression.graph.graph import graph_of
from compression.graph.kinds import weighted_layers
from compression.graph.neighbours import strides_of

#: Runs in the other Python: bytes of each matrix [out, in], the smaller of both orders; JSON on the last line.
_RIVAL = r"""
import importlib.metadata, json, sys, time
import numpy as np
from nncodec.extensions import deepCABAC as coder
UNARY, OFF = 11, (coder.HdspMode.AlwaysOff, np.zeros(2, np.int8))
def size(matrix):
    matrix = np.ascontiguousarray(matrix, np.int32)
    encoder = coder.Encoder()
    encoder.initCtxModels(UNARY, 1)
    skipped = (~matrix.any(axis=1)).astype(np.int32)
    encoder.encodeLayer(matrix, 0, 0, 1, 0, 1, skipped, *OFF, 0, 0)
    stream = encoder.finish()
    decoder, found = coder.Decoder(), np.zeros_like(matrix)
    decoder.setStream(stream)
    decoder.initCtxModels(UNARY)
    decoder.decodeLayer(found, 0, 0, 1, 0, *OFF, 0, 0)
    assert np.array_equal(found, matrix), "nncodec does not give back what it coded"
    return len(stream)
with np.load(sys.argv[1]) as stored:
    sizes = {name: min(size(stored[name]), size(stored[name].T)) for name in stored.files}
print("ANSWER" + json.dumps({"sizes": sizes, "version": importlib.metadata.version("nncodec")}))
"""


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("files", [], "Files that compression has written.", flag_values=fv)
    bench.define_common(fv)


def integers_of(weights: NDArray[np.float32]) -> NDArray[np.int64]:
    """Ranks of values, 0 for the most frequent one, of the shape of the weights."""
    values, ranks, counts = np.unique(weights, return_inverse=True, return_counts=True)
    integers: NDArray[np.int64] = ranks.reshape(weights.shape) - int(np.argmax(counts)) if len(values) else ranks
    return integers


def matrices(model: keras.Model) -> dict[str, tuple[NDArray[np.int64], tuple[int, int]]]:
    """Of each layer the integers [inputs, units], and the strides of neighbours in an image."""
    graph = graph_of(model)
    strides = strides_of(graph)
    coded = {}
    for node in weighted_layers(graph):
        kernel = oriented(node.layer, np.asarray(node.layer.kernel))
        coded[node.name] = integers_of(kernel.reshape(-1, kernel.shape[-1])), strides.get(node.name, (0, 0))
    return coded


def our_size(matrix: NDArray[np.int64], strides: tuple[int, int]) -> int:
    """Bytes of the shortest of our codes."""
    return min(
        len(encode_matrix(matrix, strides=by, by_rows=by_rows)) for by in {strides, (0, 0)} for by_rows in (False, True)
    )


def rival_sizes(python: str, found: dict[str, NDArray[np.int64]]) -> tuple[dict[str, int], str]:
    """Bytes of each matrix by nncodec, and its version.

    :raises RuntimeError: if its process fails, with the end of what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matrices.npz"
        np.savez(path, **{name: matrix.T.astype(np.int32) for name, matrix in found.items()})
        answer = bench.answer_of(python, _RIVAL, str(path))
    return answer["sizes"], answer["version"]


def rows_of(file: str, python: str) -> Iterator[dict[str, Any]]:
    """Bytes of each kernel of a file, and of all."""
    layers = matrices(bc.load(file))
    theirs, version = rival_sizes(python, {name: matrix for name, (matrix, _) in layers.items()})
    ours = {name: our_size(*layer) for name, layer in layers.items()}
    for name, (matrix, _) in layers.items():
        counts = {"weights": matrix.size, "nonzero": int(np.count_nonzero(matrix))}
        yield {"file": file, "layer": name, **counts, "bytes": ours[name], "nncodec_bytes": theirs[name]}
    totals = {"bytes": sum(ours.values()), "nncodec_bytes": sum(theirs.values())}
    yield {"file": file, "layer": "all", **totals, "nncodec": version}


def main(flag: flags.FlagValues) -> None:
    """Print and write a line for each kernel of each file."""
    if not (python := os.environ.get("NNCODEC_PYTHON")):
        raise app.UsageError("NNCODEC_PYTHON must be a Python that has nncodec; see above how to install it.")
    bench.write_rows((row for file in flag.files for row in rows_of(file, python)), "see --files")


if __name__ == "__main__":
    bench.run(define_flags, main)
