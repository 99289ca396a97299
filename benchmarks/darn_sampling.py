#!/usr/bin/env python3
"""How long does a draw of 784 bits from a linear autoregressive model take, beside TensorFlow Probability's sampler?

    darn_sampling.py --repetitions=20 --threads=1 --output=sampling.json
    darn_sampling.py --model=runs/fvsbn/darn.npz

All sample one model, a(h) = h W + b with W strictly triangular: "fixed point" is `darn.model.sampling.linear_bits`,
"one by
one" adds a row of W after each bit, and "tfd.Autoregressive" evaluates an `AutoregressiveNetwork` without hidden units
for each bit. They are graphs that draw their noise themselves. Our two samplers get the same noise and are checked to
give the same bits; that TFP has the same model is checked by log-probabilities of its draws.

W is drawn with the standard deviation --scale (after training on images it is about 0.15), or taken from a trained
fully visible model. "worst case" is a chain in which each bit is the opposite of the one before, so that the fixed
point needs a pass for each bit.

"floor" is the time of the n^2 / 2 multiply-adds of a draw at the best rate of a float32 product. Functions are timed in
turn within one process, so that all see the same load; "CPU" is processor time, which other programs disturb less.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from absl import app, flags

from darn.model.autoregressive import FactorialConditional, LinearConditional, logistic_noise
from darn.model.sampling import linear_bits
from darn.model.serialization import load_darn
from gpflow_deep_base.files import write_json
from gpflow_deep_runs.run.devices import apply_threads
from gpflow_deep_runs.run.folder import provenance

tfd, tfb = tfp.distributions, tfp.bijectors
Times = dict[str, np.ndarray]


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define this script's flags."""
    fv = flag_values
    flags.DEFINE_integer("units", 784, "Number of bits n of a drawn model.", 2, flag_values=fv)
    flags.DEFINE_float("scale", 0.15, "Standard deviation of the weights of a drawn model.", 0.0, flag_values=fv)
    flags.DEFINE_string("model", None, "A trained fully visible linear model in place of a drawn one.", flag_values=fv)
    flags.DEFINE_list("batches", ["1", "100", "1000"], "Draws at a time.", flag_values=fv)
    flags.DEFINE_list("tfp_batches", ["100"], "Those at which TFP is timed as well.", flag_values=fv)
    flags.DEFINE_boolean("xla", False, "Time ours compiled by XLA as well.", flag_values=fv)
    flags.DEFINE_integer("repetitions", 15, "Timed calls of each function, after one other.", 1, flag_values=fv)
    flags.DEFINE_integer("threads", 1, "CPU threads; 0 lets TensorFlow choose.", 0, flag_values=fv)
    flags.DEFINE_string("output", None, "Write the results to this JSON file.", flag_values=fv)


def drawn_model(n: int, scale: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """W [n, n], zero on and below the diagonal, and b [n], such that about 15 % of the bits are 1."""
    rng = np.random.default_rng(seed)
    W = np.triu(scale * rng.normal(size=(n, n)), 1)
    return W.astype(np.float32), np.full(n, -2.0, np.float32)


def chain(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Each bit is most probably the opposite of the one before."""
    return np.diag(np.full(n - 1, -40.0), 1).astype(np.float32), np.full(n, 20.0, np.float32)


def trained_model(path: str) -> tuple[np.ndarray, np.ndarray]:
    """W and b of a model that train_darn.py made with --hidden= --visible_conditional=linear."""
    model = load_darn(path)
    conditional = model.decoders[0].conditional
    if model.prior is not None or not isinstance(conditional, LinearConditional | FactorialConditional):
        raise ValueError(f"--model must be fully visible and linear (--hidden= --visible=linear), got {model.config}.")
    return np.triu(conditional.weights.numpy(), 1), conditional.bias.numpy()


def one_by_one(noise: tf.Tensor, W: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The plain sampler, in [units, draws]."""
    n, B = noise.shape[1], noise.shape[0]
    by_unit = tf.transpose(noise)
    bits = tf.TensorArray(tf.float32, n, element_shape=[B])

    def draw(j: tf.Tensor, a: tf.Tensor, bits: tf.TensorArray) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        h = tf.cast(by_unit[j] < a[j], tf.float32)
        return j + 1, a + W[j][:, None] * h, bits.write(j, h)

    a = tf.repeat(b[:, None], B, axis=1)
    return tf.transpose(tf.while_loop(lambda j, *_: j < n, draw, (0, a, bits))[2].stack())


def sampler_of_tfp(W: np.ndarray, b: np.ndarray) -> Any:
    """The same model in TensorFlow Probability."""
    n = len(b)
    network = tfb.AutoregressiveNetwork(params=1, event_shape=[n], hidden_units=[])
    network.build([None, n])
    network.set_weights([W, b])

    def distribution(h: tf.Tensor) -> Any:
        return tfd.Independent(tfd.Bernoulli(logits=network(h)[..., 0], dtype=tf.float32), 1)

    return tfd.Autoregressive(distribution, sample0=tf.zeros([n]))


class Compiled(NamedTuple):
    """A function of a seed as a graph, and the seconds that tracing and the first call took, with CPU seconds."""

    graph: Callable[[tf.Tensor], Any]
    trace: float
    trace_cpu: float
    first_call: float


def compiled(function: Callable[[tf.Tensor], tf.Tensor], *, xla: bool = False) -> Compiled:
    seed = tf.constant([1, 2], tf.int32)
    start, cpu_start = time.perf_counter(), time.process_time()
    graph = tf.function(function, autograph=False, jit_compile=xla).get_concrete_function(seed)
    traced, cpu_traced = time.perf_counter(), time.process_time()
    graph(seed).numpy()
    return Compiled(graph, traced - start, cpu_traced - cpu_start, time.perf_counter() - traced)


def time_in_turn(functions: Mapping[str, Callable[[tf.Tensor], Any]], repetitions: int) -> tuple[Times, Times]:
    """Seconds and CPU seconds of each function, called in turn: [repetitions]."""
    names = list(functions)
    wall: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    for i in range(repetitions):
        seed = tf.constant([i, 0], tf.int32)
        shift = i % len(names)
        for name in names[shift:] + names[:shift]:
            start, cpu_start = time.perf_counter(), time.process_time()
            functions[name](seed).numpy()
            wall[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - cpu_start)
    return {name: np.array(values) for name, values in wall.items()}, {name: np.array(v) for name, v in cpu.items()}


def best_rate() -> float:
    """Best rate of float32 products in multiply-adds a second."""
    left, right = tf.ones([1024, 1024]), tf.ones([1024, 1024])
    product = tf.function(tf.matmul, autograph=False)
    times = []
    for _ in range(12):
        start = time.perf_counter()
        product(left, right).numpy()
        times.append(time.perf_counter() - start)
    return 1024**3 / min(times)


def measure(
    W: np.ndarray, b: np.ndarray, B: int, *, repetitions: int, tfp_too: bool, xla: bool, rate: float
) -> list[dict[str, Any]]:
    """All samplers for B draws at a time."""
    n = len(b)
    W_tensor, b_tensor = tf.constant(W), tf.constant(b)
    chain_W, chain_b = map(tf.constant, chain(n))
    made: dict[str, Compiled] = {
        "fixed point": compiled(lambda seed: linear_bits(logistic_noise([B, n], seed), W_tensor, b_tensor)),
        "one by one": compiled(lambda seed: one_by_one(logistic_noise([B, n], seed), W_tensor, b_tensor)),
        "fixed point, worst case": compiled(lambda seed: linear_bits(logistic_noise([B, n], seed), chain_W, chain_b)),
    }
    if xla:
        function = lambda seed: linear_bits(logistic_noise([B, n], seed), W_tensor, b_tensor)  # noqa: E731
        made["fixed point, XLA"] = compiled(function, xla=True)
    seed = tf.constant([5, 6], tf.int32)
    num_other = int(
        np.sum(np.any(made["fixed point"].graph(seed).numpy() != made["one by one"].graph(seed).numpy(), axis=1))
    )
    if num_other > max(1, B // 100):  # a tie to the last digits is possible
        raise AssertionError(f"{num_other} of {B} draws differ between our samplers")
    if tfp_too:
        theirs = sampler_of_tfp(W, b)
        made["tfd.Autoregressive"] = compiled(lambda seed: theirs.sample(B, seed=seed))
        draws = made["tfd.Autoregressive"].graph(seed)
        conditional = LinearConditional(n)
        conditional.weights.assign(W)
        conditional.bias.assign(b)
        np.testing.assert_allclose(theirs.log_prob(draws), conditional.log_prob(draws), rtol=1e-4)
    wall, cpu = time_in_turn({name: sampler.graph for name, sampler in made.items()}, repetitions)
    rows = []
    for name, sampler in made.items():
        row = {
            "draws": B,
            "sampler": name,
            "min_us": 1e6 * float(wall[name].min()) / B,
            "median_us": 1e6 * float(np.median(wall[name])) / B,
            "cpu_min_us": 1e6 * float(cpu[name].min()) / B,
            "floor_us": 1e6 * n * n / 2 / rate,
            "trace_seconds": sampler.trace,
            "trace_cpu_seconds": sampler.trace_cpu,
            "first_call_seconds": sampler.first_call,
            "times_ours": float(np.median(wall[name] / wall["fixed point"])),
        }
        rows.append(row)
    return rows


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    lines = [
        ["draws", "sampler", "min µs", "median µs", "CPU min µs", "floor µs", "trace s", "CPU", "first s", "times ours"]
    ]
    for row in rows:
        numbers = [f"{row[key]:.1f}" for key in ("min_us", "median_us", "cpu_min_us", "floor_us")]
        seconds = [f"{row[key]:.2f}" for key in ("trace_seconds", "trace_cpu_seconds", "first_call_seconds")]
        lines.append([str(row["draws"]), row["sampler"], *numbers, *seconds, f"{row['times_ours']:.1f}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)


def main(argv: Sequence[str]) -> None:
    FLAGS = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"no arguments besides flags, got {argv[1:]}")
    apply_threads(FLAGS.threads)
    W, b = trained_model(FLAGS.model) if FLAGS.model else drawn_model(FLAGS.units, FLAGS.scale)
    rate = best_rate()
    print(f"n = {len(b)}; best rate of a float32 product: {rate / 1e9:.1f} GMAC/s; times are for one draw")
    results: list[dict[str, Any]] = []
    for B in map(int, FLAGS.batches):
        tfp_too = str(B) in FLAGS.tfp_batches
        results += measure(W, b, B, repetitions=FLAGS.repetitions, tfp_too=tfp_too, xla=FLAGS.xla, rate=rate)
    print_rows(results)
    if FLAGS.output:
        names = ("units", "scale", "model", "batches", "tfp_batches", "xla", "repetitions", "threads")
        record = provenance("none: drawn with seed 0", cpus=os.cpu_count(), rate_gmacs=rate / 1e9)
        settings = {name: FLAGS[name].value for name in names}
        write_json(FLAGS.output, {"flags": settings, "metrics": results, "provenance": record})
        print(f"\nwrote {FLAGS.output}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
