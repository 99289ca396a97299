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

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import bench
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from absl import flags

from darn.model.autoregressive import FactorialConditional, LinearConditional, logistic_noise
from darn.model.sampling import linear_bits
from darn.model.serialization import load_darn

tfd, tfb = tfp.distributions, tfp.bijectors

COLUMNS = {
    "draws": "{draws}",
    "sampler": "{sampler}",
    "min µs": "{min_us:.1f}",
    "median µs": "{median_us:.1f}",
    "CPU min µs": "{cpu_min_us:.1f}",
    "floor µs": "{floor_us:.1f}",
    "trace s": "{trace_seconds:.2f}",
    "CPU": "{trace_cpu_seconds:.2f}",
    "first s": "{first_call_seconds:.2f}",
    "times ours": "{times_ours:.1f}",
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_integer("units", 784, "Number of bits n of a drawn model.", 2, flag_values=fv)
    flags.DEFINE_float("scale", 0.15, "Standard deviation of the weights of a drawn model.", 0.0, flag_values=fv)
    flags.DEFINE_string("model", None, "A trained fully visible linear model in place of a drawn one.", flag_values=fv)
    flags.DEFINE_list("batches", ["1", "100", "1000"], "Draws at a time.", flag_values=fv)
    flags.DEFINE_list("tfp_batches", ["100"], "Those at which TFP is timed as well.", flag_values=fv)
    flags.DEFINE_boolean("xla", False, "Time ours compiled by XLA as well.", flag_values=fv)
    flags.DEFINE_integer("repetitions", 15, "Timed calls of each function, after one other.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


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


def drawing(sampler: Compiled) -> Callable[[int], np.ndarray]:
    """Draws with the seed of a repetition."""
    return lambda i: sampler.graph(tf.constant([i, 0], tf.int32)).numpy()


def best_rate() -> float:
    """Best rate of float32 products in multiply-adds a second."""
    left, right = tf.ones([1024, 1024]), tf.ones([1024, 1024])
    product = tf.function(tf.matmul, autograph=False)
    times = bench.times_of(lambda: product(left, right).numpy(), 12)
    return 1024**3 / float(times.wall.min())


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
    in_turn = {name: drawing(sampler) for name, sampler in made.items()}
    times = bench.time_in_turn(in_turn, repetitions, warm_up=0)
    rows = []
    for name, sampler in made.items():
        row = {
            "draws": B,
            "sampler": name,
            "min_us": 1e6 * float(times[name].wall.min()) / B,
            "median_us": 1e6 * float(np.median(times[name].wall)) / B,
            "cpu_min_us": 1e6 * float(times[name].cpu.min()) / B,
            "floor_us": 1e6 * n * n / 2 / rate,
            "trace_seconds": sampler.trace,
            "trace_cpu_seconds": sampler.trace_cpu,
            "first_call_seconds": sampler.first_call,
            "times_ours": float(np.median(times[name].wall / times["fixed point"].wall)),
        }
        rows.append(row)
    return rows


def main(FLAGS: flags.FlagValues) -> None:
    W, b = trained_model(FLAGS.model) if FLAGS.model else drawn_model(FLAGS.units, FLAGS.scale)
    rate = best_rate()
    print(f"n = {len(b)}; best rate of a float32 product: {rate / 1e9:.1f} GMAC/s; times are for one draw")
    results: list[dict[str, Any]] = []
    for B in map(int, FLAGS.batches):
        tfp_too = str(B) in FLAGS.tfp_batches
        results += measure(W, b, B, repetitions=FLAGS.repetitions, tfp_too=tfp_too, xla=FLAGS.xla, rate=rate)
    bench.print_table(results, COLUMNS)
    bench.write({"metrics": results}, "none: drawn with seed 0", rate_gmacs=rate / 1e9)


if __name__ == "__main__":
    bench.run(define_flags, main)
