#!/usr/bin/env python3
"""How much faster than float32 products are layers and networks of packed binary weights, and how much smaller?

    ebp_packed.py --repetitions=200 --output=packed.json

Layers: int32 sums of ±1 inputs with ±1 weights by `ebp.packed.packed`, compiled ("numba") and not ("numpy"), beside the
float32 product of the same numbers by NumPy's BLAS and by TensorFlow. They get packed inputs, as between layers;
"numba, packing" gets an int8 array and packs it first. The other rows are whole networks from inputs to scores, checks
and packing of inputs counted, from their file, beside the same network in float32 by NumPy: "±1" of int8 inputs;
"coded" of float32 multiples of 2^-8, which is what `train_ebp.py --export` writes for images and tables.

All run on one thread, are timed in turn within one process, so that all see the same load, and must give the same
integers. "ratio" is the faster of the two float products over the method. "floor" is the time of the float product's
2 K O B operations at the best rate of a 4096 x 4096 x 512 product, also measured in turn; "Gword/s" counts 64-bit words
of weights times rows.
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import bench
import numpy as np
import tensorflow as tf
from absl import flags

from ebp import PackedNetwork, export_packed
from ebp.packed.export import Weights
from ebp.packed.signs import Layer, pack_signs, sign_products

COLUMNS = {
    "layers": "{what}",
    "rows": "{rows}",
    "method": "{method}",
    "min µs": "{min_us:.1f}",
    "median µs": "{median_us:.1f}",
    "ratio of minima": "{ratio_of_minima:.2f}",
    "median ratio [quartiles]": "{ratio_quartiles[1]:.2f} [{ratio_quartiles[0]:.2f}, {ratio_quartiles[2]:.2f}]",
    "float floor µs": "{float_floor_us:.1f}",
    "Gword/s": "{gigawords_per_second:.2f}",
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("layers", ["784x500", "500x500", "4096x4096"], "Layers, inputs x outputs.", flag_values=fv)
    flags.DEFINE_list("batches", ["1", "100"], "Numbers of rows.", flag_values=fv)
    flags.DEFINE_list("networks", ["784x500x10", "784x500x500x10"], "Sizes of whole networks.", flag_values=fv)
    flags.DEFINE_list("network_batches", ["1", "10", "100", "1000"], "Rows for these.", flag_values=fv)
    flags.DEFINE_integer("repetitions", 100, "Timed calls of each method, after 3 others.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


def microseconds(functions: Mapping[str, Callable[[int], object]], repetitions: int) -> dict[str, np.ndarray]:
    """Of each function, called in turn: [repetitions]."""
    times = bench.time_in_turn(functions, repetitions, warm_up=3)
    return {name: 1e6 * measured.wall for name, measured in times.items()}


def scoring(network: PackedNetwork, X: np.ndarray) -> Callable[[int], np.ndarray]:
    return lambda _: network.scores(X)


def float_rate() -> float:
    """Best rate of float32 products on one thread, by either library, in operations a microsecond."""
    left_factor = np.ones((512, 4096), np.float32)
    right_factor = np.ones((4096, 4096), np.float32)
    tensors = tf.constant(left_factor), tf.constant(right_factor)
    products = {"numpy": lambda _: left_factor @ right_factor, "tf": lambda _: tf.matmul(*tensors).numpy()}
    times = bench.time_in_turn(products, 10, warm_up=3)
    return 2 * 512 * 4096 * 4096 / min(1e6 * float(measured.wall.min()) for measured in times.values())


def random_signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return 2 * rng.integers(0, 2, size=shape, dtype=np.int8) - 1


def rows_of_results(
    what: str,
    B: int,
    times: Mapping[str, np.ndarray],
    references: Sequence[str],
    *,
    flops: float,
    rate: float,
    words: float,
) -> list[bench.Row]:
    # Everything is compared with the faster one of the float products, call by call.
    reference = np.minimum.reduce([times[name] for name in references])
    return [
        {
            "what": what,
            "rows": B,
            "method": name,
            **bench.compared(values, reference, "us"),
            "float_floor_us": flops / rate,
            "gigawords_per_second": None if name in references else words / float(np.min(values)) / 1e3,
        }
        for name, values in times.items()
    ]


def measure_layer(K: int, num_outputs: int, B: int, repetitions: int, rate: float) -> list[bench.Row]:
    """A layer of K inputs for B rows."""
    # The same signs as integers, as float32 and packed.
    rng = np.random.default_rng(0)
    W = random_signs(rng, K, num_outputs)
    X = random_signs(rng, B, K)
    W_float = W.astype(np.float32)
    X_float = X.astype(np.float32)
    W_tensor = tf.constant(W_float)
    X_tensor = tf.constant(X_float)
    x = pack_signs(X)
    layer = Layer(K, pack_signs(W.T), np.zeros(num_outputs))
    functions: dict[str, Callable[[int], np.ndarray]] = {
        "float32, NumPy": lambda _: X_float @ W_float,
        "float32, TF": lambda _: tf.matmul(X_tensor, W_tensor).numpy(),
        "numba": lambda _: sign_products(x, layer, engine="numba"),
        "numba, packing": lambda _: sign_products(pack_signs(X), layer, engine="numba"),
        "numpy": lambda _: sign_products(x, layer, with_floats=True),
    }
    # All methods must give the same integers.
    expected = functions["float32, NumPy"](0)
    for name, function in functions.items():
        if not np.array_equal(function(0), expected):
            raise AssertionError(f"{name} gives other integers for {K} x {num_outputs}, {B} rows")
    times = microseconds(functions, repetitions)
    words = -(-K // 64) * num_outputs * B
    references = ["float32, NumPy", "float32, TF"]
    return rows_of_results(
        f"{K}x{num_outputs}", B, times, references, flops=2 * K * num_outputs * B, rate=rate, words=words
    )


def measure_network(sizes: Sequence[int], inputs: str, B: int, repetitions: int, rate: float) -> list[bench.Row]:
    """A network from inputs, ±1 or coded, to scores for B rows."""
    # Signs, biases and inputs; coded ones are multiples of 2^-8.
    rng = np.random.default_rng(0)
    signs = [random_signs(rng, *shape) for shape in itertools.pairwise(sizes)]
    biases = [rng.normal(size=size).astype(np.float32) for size in sizes[1:]]
    is_coded = inputs == "coded"
    X = random_signs(rng, B, sizes[0])
    if is_coded:
        X = (np.rint(256 * rng.normal(size=X.shape)) / 256).astype(np.float32)
    floats = [w.astype(np.float32) for w in signs]
    X_float = X.astype(np.float32)

    def float_scores(_: int) -> np.ndarray:
        v = X_float
        for w, b in zip(floats[:-1], biases[:-1], strict=True):
            v = np.where(v @ w + b >= 0, np.float32(1), np.float32(-1))
        return (v @ floats[-1]).astype(np.float64) + biases[-1]

    with tempfile.TemporaryDirectory() as folder:
        # From its file, by both engines.
        path = Path(folder) / "network"
        size = export_packed(Weights(signs, biases), path, fraction_bits=8 if is_coded else None)
        networks = {engine: PackedNetwork.load(path, engine) for engine in ("numba", "numpy")}
    # The same numbers in float32, for the sizes and the operations.
    num_floats = sum(w.size + b.size for w, b in zip(signs, biases, strict=True))
    title = f"{'-'.join(map(str, sizes))}, {inputs}"
    print(f"{title}: {size} bytes packed, {4 * num_floats} in float32, {4 * num_floats / size:.1f} times less")
    functions: dict[str, Callable[[int], np.ndarray]] = {"float32, NumPy": float_scores}
    functions |= {name: scoring(network, X) for name, network in networks.items()}
    # All engines must give the same scores.
    for name, function in functions.items():
        if not np.array_equal(function(0), float_scores(0)):
            raise AssertionError(f"{name} gives other scores for {title}, {B} rows")
    flops = 2.0 * B * sum(w.size for w in signs)
    words = B * sum(-(-w.shape[0] // 64) * w.shape[1] for w in signs)
    times = microseconds(functions, repetitions)
    return [
        {**row, "bytes": size, "float_bytes": 4 * num_floats}
        for row in rows_of_results(title, B, times, ["float32, NumPy"], flops=flops, rate=rate, words=words)
    ]


def main(FLAGS: flags.FlagValues) -> None:
    # What a float product could reach at best on this machine.
    rate = float_rate()
    print(f"best rate of a float32 product: {rate / 1e3:.1f} GFLOP/s")
    results: list[bench.Row] = []
    # Layers first, then whole networks with their checks and packing.
    for shape, B in itertools.product(FLAGS.layers, map(int, FLAGS.batches)):
        K, num_outputs = map(int, shape.split("x"))
        results += measure_layer(K, num_outputs, B, FLAGS.repetitions, rate)
    for network, inputs, B in itertools.product(FLAGS.networks, ("±1", "coded"), map(int, FLAGS.network_batches)):
        sizes = [int(size) for size in network.split("x")]
        results += measure_network(sizes, inputs, B, FLAGS.repetitions, rate)
    bench.print_table(results, COLUMNS)
    bench.write({"metrics": results}, "none: drawn with seed 0", rate_gflops=rate / 1e3)


if __name__ == "__main__":
    bench.run(define_flags, main)
