#!/usr/bin/env python3
"""How long do the steps of the five systems take on a GPU and on a CPU, in which memory, and do both compute the same?

    gpu.py --repetitions=20 --output=gpu.json
    gpu.py --cases=darn,rbm                             # of those whose names hold one of these words

Each step is measured on each device in a process of its own. A timed call ends when its numbers have come to the host;
it makes several steps where the system does so in use. "median" and "quartiles" are of the milliseconds of one step
over --repetitions calls, after two others, which compile. "memory" is the peak of the calls: on a GPU of TensorFlow's
allocations, on a CPU of the process's resident size beyond that before the model was made.

"difference" is the largest one of what the first call computed on the GPU from the CPU's values, relative to the
largest of these. Starting values, data and noise are the same on both; the order of sums is not, so that it is some
roundings (1e-7 in float32, 1e-16 in float64), enlarged by the conditions of the matrices, by the steps of a call, and
in networks of bits by a bit that falls on the other side of its threshold.

Without a GPU it says so, and measures the CPU alone.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import bench
import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

import compression
import ebp
import gpflow_deep
from compression import networks
from compression.train.engine import epoch_function
from darn import DARN, DARNConfig
from darn.train.training import Trainer as DARNTrainer
from darn.train.training import TrainingConfig
from rbm_tracking.model.rbm import initial_rbm
from rbm_tracking.model.temperatures import linear_ladder
from rbm_tracking.track.learning import SMLConfig, initial_state
from rbm_tracking.use.training import Trainer as RBMTrainer

SEED = (0, 1)
BATCH = 100
PIXELS = 784
ROWS = 2000

Run = Callable[[int], Any]
"""A timed call of a number: its numbers, in any structure of tensors and arrays."""


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("cases", [], "Words, one of which a case has in its name; all cases if empty.", flag_values=fv)
    flags.DEFINE_integer("steps", 20, "Steps of a call, where it makes several.", 1, flag_values=fv)
    flags.DEFINE_integer("repetitions", 20, "Timed calls, after two others.", 1, flag_values=fv)
    flags.DEFINE_string("case", None, "Measure this one in this process, as JSON; the script calls itself.", fv)
    bench.define_common(fv)


# What is timed: a function of the number of steps gives the call.


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def bits(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(size=shape) < 0.2


def deep_gp(precision: Any) -> gpflow_deep.DeepGP:
    """Two layers with M = 100 and D = 8."""
    X = normal(ROWS, 8)
    return gpflow_deep.paper2017(X, np.sin(X[:, :1]), 2, num_inducing=100, precision=precision)


def deep_gp_step(precision: str) -> Callable[[int], Run]:
    """A step on 1000 rows."""

    def make(_: int) -> Run:
        model = deep_gp(precision)
        step = gpflow_deep.make_train_step(model, tf.keras.optimizers.Adam(0.01))
        X = tf.constant(normal(1000, 8))
        batch = (X, tf.sin(X[:, :1]))
        seed = tf.constant(SEED)
        return lambda i: step(batch, tf.random.fold_in(seed, i))

    return make


def deep_gp_prediction(_: int) -> Run:
    """Moments at 1000 points from 20 draws, with the model's factors made before."""
    predict = tf.function(deep_gp("mixed").posterior().predict_y, autograph=False)
    X = tf.constant(normal(1000, 8))
    return lambda i: predict(X, num_samples=20)


def darn_steps(steps: int) -> Run:
    """784 visible and 500 stochastic units, minibatches of 100."""
    trainer = DARNTrainer(
        DARN(DARNConfig(PIXELS, (500,), visible_conditional="factorial")), TrainingConfig(), num_data=ROWS
    )
    data = tf.constant(bits(ROWS, PIXELS))
    rows = np.arange(steps * BATCH).reshape(steps, BATCH) % ROWS
    return lambda i: trainer.advance(data, rows, tf.constant(SEED))


def rbm_updates(jit_compile: bool) -> Callable[[int], Run]:
    """784 visible and 500 hidden units, 10 temperatures with 20 chains each, minibatches of 100, tracked."""

    def make(steps: int) -> Run:
        data = bits(ROWS, PIXELS)
        seed = tf.constant(SEED)
        rbm = initial_rbm(500, seed=seed, data=data)
        state = initial_state(rbm, linear_ladder(10), 20, seed=seed, data=data, config=SMLConfig.paper())
        trainer = RBMTrainer(state, SMLConfig.paper(), jit_compile=jit_compile)
        x = tf.constant(data)
        rows = np.arange(steps * BATCH).reshape(steps, BATCH) % ROWS
        return lambda i: trainer.advance(x, rows, seed)

    return make


def ebp_pass(batch_size: int) -> Callable[[int], Run]:
    """784-120-10 with binary weights; a call is a pass over as many batches as it has steps."""

    def make(steps: int) -> Run:
        network = ebp.EBPNetwork((PIXELS, 120, 10), head="multiclass")
        data = ebp.prepare(network, normal(steps * batch_size, PIXELS), 2.0 * bits(steps * batch_size, 10) - 1)

        def run(i: int) -> Any:
            ebp.fit_epoch(network, data, batch_size=batch_size, epoch=i, jit_compile=batch_size == 1)
            return network.posterior

        return run

    return make


def compression_steps(steps: int) -> Run:
    """LeNet-5-Caffe with the group normal-Jeffreys prior, batches of 100."""
    model = compression.compress(networks.lenet_5_caffe(), num_train=60_000)
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    count = steps * BATCH
    images = tf.constant(normal(count, 28, 28, 1), tf.float32)
    examples = compression.Examples(images, tf.constant(np.arange(count) % 10, tf.int32))
    options: dict[str, Any] = {"learning_rate": lambda step: 1e-3, "kl_weight": lambda step: 1.0}
    run = epoch_function(model, optimizer, examples, batch_size=BATCH, **options)
    return lambda i: run(tf.constant((0, i)))


ONE_STEP = {
    "deep GP, full": deep_gp_step("full"),
    "deep GP, mixed": deep_gp_step("mixed"),
    "deep GP, fast": deep_gp_step("fast"),
    "deep GP, prediction": deep_gp_prediction,
}
CASES: dict[str, Callable[[int], Run]] = {
    **ONE_STEP,
    "darn": darn_steps,
    "rbm, XLA": rbm_updates(True),
    "rbm": rbm_updates(False),
    "ebp, batches": ebp_pass(BATCH),
    "ebp, online": ebp_pass(1),
    "compression": compression_steps,
}


# One case on one device, in its own process.


def measure(name: str, device: str, steps: int, repetitions: int) -> dict[str, Any]:
    """Milliseconds of a step in each timed call, peak memory in units of 10^6 bytes, and the first call's values."""
    # A case on the CPU must not see the GPU.
    if "GPU" not in device:
        tf.config.set_visible_devices([], "GPU")
    before = resident_mb()
    with tf.device(device):
        run = CASES[name](steps)
        if "GPU" in device:
            tf.config.experimental.reset_memory_stats("GPU:0")
        # The first call traces, the second one warms up.
        first = values(run(0))
        values(run(1))
        times = []
        for i in range(repetitions):
            start = time.perf_counter()
            values(run(2 + i))
            times.append(1e3 * (time.perf_counter() - start) / (1 if name in ONE_STEP else steps))
    if "GPU" in device:
        memory = tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e6
    else:
        memory = resident_mb() - before
    return {"ms": times, "memory_mb": memory, "values": first}


def values(result: Any) -> list[float]:
    """Some of the numbers of a call, at most 1000 of each array, on the host."""
    arrays = [np.asarray(part, np.float64).ravel()[:1000] for part in tf.nest.flatten(result)]
    return list(np.concatenate(arrays))


def resident_mb() -> float:
    """The highest resident size of this process, in units of 10^6 bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


# All cases.


def in_fresh_process(name: str, device: str) -> dict[str, Any]:
    """`measure` in a new Python."""
    return bench.apart([name, device, flags.FLAGS.steps, flags.FLAGS.repetitions])


def row(name: str, device: str, found: dict[str, Any], on_cpu: dict[str, Any]) -> dict[str, Any]:
    """What is said of a case on a device, given what the CPU did."""
    reference, numbers = (np.asarray(case["values"]) for case in (on_cpu, found))
    lower, median, upper = np.quantile(found["ms"], [0.25, 0.5, 0.75])
    return {
        "what": name,
        "device": device,
        "median_ms": float(median),
        "lower_quartile_ms": float(lower),
        "upper_quartile_ms": float(upper),
        "memory_mb": found["memory_mb"],
        "times_cpu": float(median / np.median(on_cpu["ms"])),
        "difference": float(np.abs(numbers - reference).max() / max(np.abs(reference).max(), 1e-300)),
    }


def show(result: dict[str, Any]) -> None:
    spread = f"[{result['lower_quartile_ms']:.3f}, {result['upper_quartile_ms']:.3f}]"
    print(
        f"{result['what']:20}  {result['device']:6}  {result['median_ms']:10.3f} ms  {spread:>22}  "
        f"{result['memory_mb']:8.0f} MB  {result['times_cpu']:6.3f} of the CPU's time  difference "
        f"{result['difference']:.1e}",
        flush=True,
    )


def main(FLAGS: flags.FlagValues) -> None:
    if FLAGS.case:
        print(json.dumps(measure(*json.loads(FLAGS.case))))
        return
    gpus = tf.config.list_physical_devices("GPU")
    names = [name for name in CASES if not FLAGS.cases or any(word in name for word in FLAGS.cases)]
    if not names:
        raise app.UsageError(f"--cases must name some of {', '.join(CASES)}, got {', '.join(FLAGS.cases)}")
    if not gpus:
        print("no GPU was found: the CPU alone is measured, and nothing is compared")
    results = []
    for name in names:
        on_cpu = in_fresh_process(name, "/CPU:0")
        results.append(row(name, "/CPU:0", on_cpu, on_cpu))
        show(results[-1])
        if gpus:
            results.append(row(name, "/GPU:0", in_fresh_process(name, "/GPU:0"), on_cpu))
            show(results[-1])
    names_of_gpus = [tf.config.experimental.get_device_details(gpu).get("device_name") for gpu in gpus]
    bench.write({"metrics": results}, "none: drawn with seed 0", gpus=names_of_gpus)


if __name__ == "__main__":
    bench.run(define_flags, main)
