#!/usr/bin/env python3
"""How long does a training step of a DARN take beside the same network written in plain Keras?

    darn_training.py --hidden=500 --repetitions=20 --threads=1 --output=training.json

Both have 784 visible units, one stochastic layer with a linear autoregressive prior, a factorial encoder and decoder
(with --tanh, one deterministic layer in each), and Adam; minibatches have --batch_size rows. "Keras" is a
`keras.Model` with `Dense` layers, a masked kernel for the prior and a straight-through sampler, trained by `Model.fit`;
"Keras, train_on_batch" calls it for each minibatch. Ours is `Trainer.compiled_steps` with the estimators "darn" and
"straight_through". Data, shapes and the loss are the same, and losses after the timed steps are printed beside the
times. Each timed call makes --steps steps; the first call, which traces, is not timed.

"floor" is the time of the products of the three passes (forward, and two backward) at the best rate of a float32
product: 6 B (n_x n_h 2 + n_h^2) operations. Functions are timed in turn within one process, so that all see the same
load; "CPU" is processor time, which other programs disturb less.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app, flags

from darn.model.gradients import Estimator
from darn.model.model import DARN, DARNConfig
from darn.train.training import Trainer, TrainingConfig
from gpflow_deep_base.files import write_json
from gpflow_deep_runs.run.devices import apply_threads
from gpflow_deep_runs.run.folder import provenance

VISIBLE = 784


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define this script's flags."""
    fv = flag_values
    flags.DEFINE_integer("hidden", 500, "Stochastic units.", 1, flag_values=fv)
    flags.DEFINE_integer("tanh", 0, "Deterministic units between the layers; 0 for none.", 0, flag_values=fv)
    flags.DEFINE_integer("batch_size", 100, "Rows of a minibatch.", 1, flag_values=fv)
    flags.DEFINE_integer("steps", 20, "Training steps of a timed call.", 1, flag_values=fv)
    flags.DEFINE_integer("repetitions", 10, "Timed calls of each function, after one other.", 1, flag_values=fv)
    flags.DEFINE_boolean("xla", False, "Time all compiled by XLA as well.", flag_values=fv)
    flags.DEFINE_integer("threads", 1, "CPU threads; 0 lets TensorFlow choose.", 0, flag_values=fv)
    flags.DEFINE_string("output", None, "Write the results to this JSON file.", flag_values=fv)


@tf.custom_gradient
def straight_through(q: tf.Tensor, u: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """Bits with P(1) = q whose gradient passes to q unchanged."""
    return tf.cast(u < q, q.dtype), lambda upstream: (upstream, tf.zeros_like(u))


class StrictlyUpper(tf.keras.constraints.Constraint):
    """Zero on and below the diagonal."""

    def __call__(self, w: Any) -> Any:
        return tf.linalg.band_part(w, 0, -1) - tf.linalg.diag(tf.linalg.diag_part(w))


class KerasDARN(tf.keras.Model):
    """The same network as a user of Keras would write it; its loss is the description length in nats."""

    def __init__(self, hidden: int, tanh: int) -> None:
        super().__init__()
        dense = tf.keras.layers.Dense
        between = [dense(tanh, "tanh")] if tanh else []
        self.encoder = tf.keras.Sequential([*between, dense(hidden)])
        self.decoder = tf.keras.Sequential([*([dense(tanh, "tanh")] if tanh else []), dense(VISIBLE)])
        self.prior = dense(hidden, kernel_initializer="zeros", kernel_constraint=StrictlyUpper())

    def call(self, x: Any) -> Any:
        """Description length of each row, [B]."""
        a = self.encoder(x)
        h = straight_through(tf.sigmoid(a), tf.random.uniform(tf.shape(a)))
        cost = bernoulli(h, self.prior(h)) + bernoulli(x, self.decoder(2.0 * h - 1.0))
        return cost - bernoulli(h, a)


def bernoulli(h: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
    """-log p of bits with logits a, [B]."""
    return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(h, a), axis=-1)


def keras_steps(
    x: np.ndarray, hidden: int, tanh: int, batch_size: int, *, by_batch: bool, xla: bool
) -> Callable[[], float]:
    """The steps of one timed call, by `train_on_batch` or by `fit`; it returns the mean loss."""
    model = KerasDARN(hidden, tanh)
    model.compile(tf.keras.optimizers.Adam(1e-3), loss=lambda _, cost: cost, jit_compile=xla)
    targets = np.zeros(len(x), np.float32)
    batches = [(x[i : i + batch_size], targets[i : i + batch_size]) for i in range(0, len(x), batch_size)]

    def fit() -> float:
        history = model.fit(x, targets, batch_size=batch_size, epochs=1, shuffle=False, verbose=0)
        return float(history.history["loss"][-1])

    if not by_batch:
        return fit
    # train_on_batch returns the mean over all batches so far, unless the metrics are reset
    return lambda: float(np.mean([(model.reset_metrics(), model.train_on_batch(*batch))[1] for batch in batches]))


def our_steps(
    x: np.ndarray, hidden: int, tanh: int, batch_size: int, estimator: Estimator, *, xla: bool
) -> Callable[[], float]:
    """The same number of steps by ours."""
    config = DARNConfig(VISIBLE, (hidden,), (tanh,) if tanh else (), visible_conditional="factorial")
    trainer = Trainer(DARN(config), TrainingConfig(estimator=estimator), num_data=len(x))
    run = trainer.compiled_steps(jit_compile=xla)
    data = tf.constant(x)
    rows = tf.reshape(tf.range(len(x)), [-1, batch_size])
    count, seed = tf.constant(len(rows)), tf.constant([1, 2])
    return lambda: float(tf.reduce_mean(run(data, rows, count, seed).objective))


def images(rows: int, seed: int = 0) -> np.ndarray:
    """Zeros and ones [rows, 784] that depend on each other: thresholded mixtures of a few patterns."""
    rng = np.random.default_rng(seed)
    patterns = rng.normal(size=(10, VISIBLE))
    return (rng.normal(size=(rows, 10)) @ patterns > 2.0).astype(np.float32)


def time_in_turn(
    functions: Mapping[str, Callable[[], float]], repetitions: int
) -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """Seconds, CPU seconds [repetitions] and last loss of each function, called in turn after a first call."""
    names = list(functions)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    losses: dict[str, float] = {}
    for i in range(1 + repetitions):
        shift = i % len(names)
        for name in names[shift:] + names[:shift]:
            start, cpu_start = time.perf_counter(), time.process_time()
            losses[name] = functions[name]()
            times[name].append((time.perf_counter() - start, time.process_time() - cpu_start))
    return {name: (*np.array(values[1:]).T, losses[name]) for name, values in times.items()}


def best_rate() -> float:
    """Best rate of float32 products in operations a second."""
    left, right = tf.ones([1024, 1024]), tf.ones([1024, 1024])
    times = []
    for _ in range(12):
        start = time.perf_counter()
        tf.matmul(left, right).numpy()
        times.append(time.perf_counter() - start)
    return 2 * 1024**3 / min(times)


def operations(hidden: int, tanh: int, batch_size: int) -> float:
    """Of the products of a step, forward and backward."""
    between = 2 * VISIBLE * hidden if not tanh else 2 * tanh * (VISIBLE + hidden)
    return 6.0 * batch_size * (between + hidden**2)


def main(argv: Sequence[str]) -> None:
    FLAGS = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"no arguments besides flags, got {argv[1:]}")
    apply_threads(FLAGS.threads)
    rate = best_rate()
    x = images(FLAGS.steps * FLAGS.batch_size)
    sizes = (FLAGS.hidden, FLAGS.tanh, FLAGS.batch_size)
    functions: dict[str, Callable[[], float]] = {}
    for xla in (False, True) if FLAGS.xla else (False,):
        suffix = ", XLA" if xla else ""
        estimators: tuple[Estimator, ...] = ("darn", "straight_through")
        for estimator in estimators:
            functions[f"ours, {estimator}{suffix}"] = our_steps(x, *sizes, estimator, xla=xla)
        functions[f"Keras{suffix}"] = keras_steps(x, *sizes, by_batch=False, xla=xla)
        functions[f"Keras, train_on_batch{suffix}"] = keras_steps(x, *sizes, by_batch=True, xla=xla)
    times = time_in_turn(functions, FLAGS.repetitions)
    floor = operations(*sizes) / rate
    ours = times["ours, darn"]
    results = [
        {
            "what": name,
            "min_ms": 1e3 * float(wall.min()) / FLAGS.steps,
            "median_ms": 1e3 * float(np.median(wall)) / FLAGS.steps,
            "cpu_min_ms": 1e3 * float(cpu.min()) / FLAGS.steps,
            "floor_ms": 1e3 * floor,
            "times_ours": float(np.median(wall / ours[0])),
            "cpu_times_ours": float(np.median(cpu / ours[1])),
            "loss_nats": loss,
        }
        for name, (wall, cpu, loss) in times.items()
    ]
    print(f"best rate of a float32 product: {rate / 1e9:.1f} GFLOP/s; times are for one step")
    lines = [["", "min ms", "median ms", "CPU min ms", "floor ms", "times ours", "CPU times ours", "loss"]]
    keys = ("min_ms", "median_ms", "cpu_min_ms", "floor_ms", "times_ours", "cpu_times_ours")
    for row in results:
        lines.append([str(row["what"]), *(f"{row[key]:.2f}" for key in keys), f"{row['loss_nats']:.1f}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)
    if FLAGS.output:
        names = ("hidden", "tanh", "batch_size", "steps", "repetitions", "xla", "threads")
        record = provenance("none: drawn with seed 0", cpus=os.cpu_count(), rate_gflops=rate / 1e9)
        settings = {name: FLAGS[name].value for name in names}
        write_json(FLAGS.output, {"flags": settings, "metrics": results, "provenance": record})
        print(f"\nwrote {FLAGS.output}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
