#!/usr/bin/env python3
"""How long does a training step of each model take on a GPU, beside one CPU thread and all of them?

    gpu_steps.py --threads=16 --rounds=3 --output=gpu.json

A process for each place trains the same models on random rows. They take turns, one at a time: each makes as many steps
as take about half a second, --rounds times. "ms" is the time by the clock of a step, the median of the turns; "first s"
is the time of the first two steps, with tracing and compilation. Programs are TensorFlow's graphs, or XLA's where the
name says so. --only=PATTERN picks models. On the GPU a run's settings hold (`prepare_gpus`: the same bits each time);
"GPU, any order" leaves sums to TensorFlow, and has its matrix products in TF32.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import bench
import numpy as np
from absl import flags

if TYPE_CHECKING:
    import darn
    import gpflow_deep
    import rbm_tracking
    from gpflow_deep.model.likelihoods import Task

SECONDS = 0.5
MAX_STEPS = 500
SEED = (1, 2)

Steps = Callable[[int], object]
"""Makes so many training steps, and waits for them."""


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_integer("rounds", 3, "Turns of each.", 1, flag_values=fv)
    flags.DEFINE_string("only", "", "Regular expression of the models.", flag_values=fv)
    flags.DEFINE_string("case", None, "For the processes that take turns: where they are.", flag_values=fv)
    bench.define_common(fv)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def bits(*shape: int) -> np.ndarray:
    return normal(*shape) > 0.5


# The models.


def deep_gp(batch: int, M: int, layers: int = 2, *, is_compiled: bool = False, **config: Any) -> Steps:
    """Squared exponential layers of 8 inputs."""
    import gpflow_deep

    settings = gpflow_deep.ModelConfig(num_inducing=M, num_layers=layers, **config)
    return _of_gp(settings, normal(batch, 8), normal(batch, 1), "regression", is_compiled=is_compiled)


def convolutional_gp() -> Steps:
    """One layer for images of 28 x 28."""
    import gpflow_deep

    images = gpflow_deep.ImageConfig((28, 28), stride=2)
    settings = gpflow_deep.ModelConfig(kernel="convolutional", images=images, num_inducing=100, num_layers=1)
    labels = np.arange(128.0)[:, None] % 10
    return _of_gp(settings, np.abs(normal(128, 784)), labels, "multiclass")


def _of_gp(
    settings: "gpflow_deep.ModelConfig", X: np.ndarray, Y: np.ndarray, task: "Task", *, is_compiled: bool = False
) -> Steps:
    import tensorflow as tf

    import gpflow_deep

    # A step as a training has it, compiled by XLA if asked for.
    model = settings.for_task(task, [Y]).build(X, Y, num_classes=10)
    adam = tf.keras.optimizers.Adam(1e-3)
    step = gpflow_deep.make_train_step(model, adam, jit_compile=is_compiled)
    batch = tf.constant(X), tf.constant(Y)

    def run(count: int) -> np.ndarray:
        for _ in range(count):
            bound = step(batch, tf.random.fold_in(tf.constant(SEED), adam.iterations))["elbo_nats"]
        return bound.numpy()

    return run


def darn_steps(batch: int, *, is_compiled: bool = False, **config: Any) -> Steps:
    """784 visible and 500 hidden units."""
    import darn

    fields = {"visible": 784, "hidden": (500,), "visible_conditional": "factorial", **config}
    model = darn.DARN(darn.DARNConfig(**fields))
    trainer = darn.Trainer(model, darn.TrainingConfig(), num_data=5000, jit_compile=is_compiled)
    return _of_blocks(trainer, batch)


def pixelcnn() -> Steps:
    """Masked convolutions in place of a DARN's visible layer."""
    import darn

    shape = darn.PixelCNNConfig((28, 28))
    return darn_steps(100, visible_conditional="pixelcnn", pixelcnn=shape)


def rbm_updates(chains: int, *, is_compiled: bool = False) -> Steps:
    """784 visible and 500 hidden units, 10 temperatures."""
    import tensorflow as tf

    from rbm_tracking import SMLConfig, Trainer
    from rbm_tracking.model.rbm import initial_rbm
    from rbm_tracking.track import tempering
    from rbm_tracking.track.updates import learning

    seed = tf.constant(SEED)
    rows = bits(5000, 784).astype(np.uint8)
    config = SMLConfig.paper()
    model = initial_rbm(500, seed=seed, data=rows)
    ladder = tempering.linear_ladder(10)
    state = learning.initial_state(model, ladder, chains, seed=seed, data=rows, config=config)
    return _of_blocks(Trainer(state, config, jit_compile=is_compiled), 100)


def _of_blocks(trainer: "darn.Trainer | rbm_tracking.Trainer", batch: int) -> Steps:
    import tensorflow as tf

    data = tf.constant(bits(5000, 784))
    seed = tf.constant(SEED)
    rng = np.random.default_rng(0)

    def run(count: int) -> None:
        for first in range(0, count, 50):
            trainer.advance(data, rng.integers(0, len(data), [min(50, count - first), batch]), seed)

    return run


def ebp_epochs(hidden: int, batch: int = 0) -> Steps:
    """Updates one row after the other, or of batches."""
    import ebp

    X = normal(2000, 783)
    Y = 2.0 * bits(2000, 10) - 1
    network = ebp.EBPNetwork((783, hidden, 10), "binary", head="multiclass")
    options: bench.Row = {"batch_size": batch} if batch else {}
    rows = batch or 1

    def run(count: int) -> None:
        most = len(X) // rows
        for first in range(0, count, most):
            end = rows * min(most, count - first)
            ebp.fit_epoch(network, X[:end], Y[:end], **options)

    return run


def compression_steps(name: str, batch: int, *, is_compiled: bool = False) -> Steps:
    """A Bayesian network, by Keras."""
    import keras
    import tensorflow as tf

    import compression
    from compression import networks

    # Keras makes twenty steps in a call, so that it is not its overhead that is measured.
    model = compression.compress(getattr(networks, name)(), num_train=60_000)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, steps_per_execution=20, jit_compile=is_compiled)
    rows = normal(batch, 28, 28, 1).astype("float32"), np.arange(batch) % 10
    data = tf.data.Dataset.from_tensors(rows).repeat()

    def run(count: int) -> None:
        model.fit(data, steps_per_epoch=max(20, count - count % 20), shuffle=False, verbose=0)

    return run


MODELS: dict[str, Callable[[], Steps]] = {
    "deep GP, L = 2, M = 100, batch 1000": lambda: deep_gp(1000, 100),
    "deep GP, L = 2, M = 100, batch 1000, XLA": lambda: deep_gp(1000, 100, is_compiled=True),
    "deep GP, L = 2, M = 100, batch 10,000": lambda: deep_gp(10_000, 100),
    "deep GP, L = 2, M = 100, batch 10,000, XLA": lambda: deep_gp(10_000, 100, is_compiled=True),
    "deep GP, L = 3, M = 500, batch 2000": lambda: deep_gp(2000, 500, 3),
    "convolutional GP, M = 100, batch 128": convolutional_gp,
    "DARN, 784 and 500 units, batch 100": lambda: darn_steps(100),
    "DARN, 784 and 500 units, batch 100, XLA": lambda: darn_steps(100, is_compiled=True),
    "DARN, 784 and 500 units, batch 1000": lambda: darn_steps(1000),
    "PixelCNN, 28 x 28, batch 100": pixelcnn,
    "RBM, 784 and 500 units, 20 chains": lambda: rbm_updates(20),
    "RBM, 784 and 500 units, 20 chains, XLA": lambda: rbm_updates(20, is_compiled=True),
    "EBP, 783-120-10, one row": lambda: ebp_epochs(120),
    "EBP, 783-500-10, batch 100": lambda: ebp_epochs(500, 100),
    "compression, LeNet-300-100, batch 100": lambda: compression_steps("lenet_300_100", 100),
    "compression, LeNet-5, batch 100": lambda: compression_steps("lenet_5_caffe", 100),
    "compression, LeNet-5, batch 100, XLA": lambda: compression_steps("lenet_5_caffe", 100, is_compiled=True),
}


# Processes that take turns.


def serve(where: str) -> None:
    """Answer lines [model, steps] with seconds; 0 steps are the first two of a new model."""
    import tensorflow as tf

    from gpflow_deep_runs.run.devices import prepare_gpus

    if where == "GPU":
        prepare_gpus()
    made: dict[str, Steps] = {}
    for line in sys.stdin:
        name, count = json.loads(line)
        # Importing any of the packages switches TF32 off.
        tf.config.experimental.enable_tensor_float_32_execution(where == "GPU, any order")
        start = time.perf_counter()
        if count == 0:
            made.clear()
            made[name] = MODELS[name]()
        made[name](count or 2)
        print(time.perf_counter() - start, flush=True)


def start(where: str, threads: int) -> bench.Rival:
    """A process at one of the places, which answers [model, steps] with seconds."""
    environment = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "OMP_NUM_THREADS": str(threads or os.cpu_count())}
    if "GPU" not in where:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    return bench.Rival(sys.executable, sys.argv[0], f"--case={where}", f"--threads={threads}", **environment)


def main(flag: flags.FlagValues) -> None:
    if flag.case:
        serve(flag.case)
        return
    with ExitStack() as stack:
        measure(flag, stack)


def measure(flag: flags.FlagValues, stack: ExitStack) -> None:
    """Let the processes, which end with the stack, take turns, and keep and print what each model takes."""
    import tensorflow as tf

    # A process for each place; those on a GPU need few threads.
    threads = flag.threads or os.cpu_count() or 1
    places = {"GPU": 4, "GPU, any order": 4} if tf.config.list_physical_devices("GPU") else {}
    places |= {"1 thread": 1, f"{threads} threads": threads}
    processes = {where: stack.enter_context(start(where, count)) for where, count in places.items()}
    rows = []
    for name in MODELS:
        if not re.search(flag.only, name):
            continue
        first = {where: process.ask([name, 0]) for where, process in processes.items()}
        # As many steps as take about SECONDS; Keras makes 20 in one call.
        unit = 20 if name.startswith("compression") else 1
        trial = {where: process.ask([name, 3 * unit]) / 3 for where, process in processes.items()}
        counts = {where: unit * max(1, min(MAX_STEPS, int(SECONDS / spent))) for where, spent in trial.items()}
        # One place at a time, so that none slows another down.
        turns = [{w: p.ask([name, counts[w]]) / counts[w] for w, p in processes.items()} for _ in range(flag.rounds)]
        for where in places:
            ms = [1e3 * turn[where] for turn in turns]
            rows.append(
                {"model": name, "where": where, "ms": ms, "median_ms": float(np.median(ms)), "first_s": first[where]}
            )
        bench.keep({"metrics": rows}, "none: drawn with seed 0", devices=str(tf.config.list_physical_devices()))
        print(
            name, *(f"{row['where']} {row['median_ms']:.3f} ms" for row in rows[-len(places) :]), sep="; ", flush=True
        )


if __name__ == "__main__":
    bench.run(define_flags, main)
