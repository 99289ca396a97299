#!/usr/bin/env python3
"""Do a training step's time, its wait for data and the memory stay the same when the number of rows N grows?

    stream_scaling.py --rows=100000,1000000,10000000,100000000 --threads=1 --output=stream.json

For each N: Parquet files of nine inputs and a target (float32, 40 bytes a row, not compressed, 65,536 rows in a row
group, 2^22 in a file) are generated; then a new process scans them and makes Adam steps of a deep GP with two layers
(M = 100, float64, batches of 10,000), as `train_dgp.py --stream` does. Shown are:

    scan        million rows a second of the one pass before training
    read        million rows a second that the pipeline alone gives: what a faster device could use
    step        median of the time from step to step in ms, with the wait for its batch; and CPU time of the process
    wait        part of that time spent waiting for the batch, in percent
    memory      largest resident size of the process in MB, and how much of it the data added since TensorFlow was ready

"flat" is the largest median step over the smallest. Then tables are compared (scan and read, at the first N): of
the same numbers, and of a mixed table, in which a column of five levels, one of yes and no and one of dates with times
take the place of three inputs. With --replicas the step of one device and of two logical devices of the CPU with one
thread each is measured: efficiency is the time of one device over twice that of two. The estimate for 10^9 rows uses
the figures of the largest N, for two epochs.
"""

import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import bench
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import tensorflow as tf
from absl import flags

import gpflow_deep
from gpflow_deep.model.scaling import Scale
from gpflow_deep_runs.data.rows import Part
from gpflow_deep_runs.data.spec import TableSpec
from gpflow_deep_runs.data.streams import own
from gpflow_deep_runs.data.streams.reader import BatchReader
from gpflow_deep_runs.data.streams.scan import scan
from gpflow_deep_runs.data.streams.stream import Stream
from gpflow_deep_runs.run import devices
from gpflow_deep_runs.run.devices import apply_threads

INPUTS = 9
ROW_GROUP = 2**16
FILE_ROWS = 2**22
BATCH = 10_000
WARM_UP = 5
BILLION = 1_000_000_000
EPOCHS = 2


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("rows", ["100000", "1000000", "10000000"], "Numbers of rows.", flag_values=fv)
    flags.DEFINE_integer("steps", 60, "Timed steps for each number of rows.", 2, flag_values=fv)
    flags.DEFINE_integer("layers", 2, "Layers of the deep GP.", 1, flag_values=fv)
    flags.DEFINE_boolean("replicas", True, "Compare two logical CPU devices with one.", flag_values=fv)
    flags.DEFINE_string("folder", None, "Where to generate files; removed after use.", flag_values=fv)
    bench.define_common(fv, threads=1)


def table(rows: int, number: int, is_mixed: bool = False) -> dict[str, np.ndarray]:
    """Columns of file `number`: a smooth function of the inputs, and noise; three of them levels, words and dates."""
    rng = np.random.default_rng([0, number])
    X = rng.standard_normal((INPUTS, rows), dtype=np.float32)
    y = np.sin(2 * X[0]) + np.cos(X[1] * X[2]) + 0.3 * rng.standard_normal(rows, dtype=np.float32)
    columns = {**{f"x{d}": column for d, column in enumerate(X)}, "y": y}
    if is_mixed:
        columns["x0"] = np.array(["red", "green", "blue", "black", "white"], dtype=object)[rng.integers(0, 5, rows)]
        columns["x1"] = np.where(X[1] > 0, "yes", "no").astype(object)
        columns["x2"] = np.datetime64("2019-01-01T00:00:00") + rng.integers(0, 700 * 86400, rows)
    return columns


def generate(folder: Path, rows: int, *, is_mixed: bool = False) -> int:
    """Write the files; returns their bytes."""
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        columns = table(min(FILE_ROWS, rows - start), number, is_mixed)
        path = folder / f"part-{number:05d}.parquet"
        pa.parquet.write_table(
            pa.table(columns), path, row_group_size=ROW_GROUP, compression="none", use_dictionary=False
        )
    return sum(path.stat().st_size for path in folder.iterdir())


# What is measured, each in a process of its own.


def peak_megabytes() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def open_stream(folder: Path) -> tuple[Stream, float]:
    """The files after one pass, and the seconds it took."""
    start = time.perf_counter()
    stream = scan(*own.open_table(f"{folder}/*.parquet", TableSpec(target=("y",))))
    return stream, time.perf_counter() - start


def reader(stream: Stream) -> BatchReader:
    """Standardised batches, as training has them."""
    x_scale = Scale(*stream.x_scale)
    y_scale = Scale(*stream.y_scale)

    def transform(part: Part) -> Part:
        return Part(x_scale.transform(part.X), y_scale.transform(part.Y))

    return BatchReader(stream, batch_size=BATCH, seed=0, transform=transform)


def build(stream: Stream, num_layers: int) -> gpflow_deep.DeepGP:
    """The deep GP of the paper with inducing inputs from the sample."""
    X, Y = stream.samples["train"]
    X = Scale(*stream.x_scale).transform(X[:20_000])
    Y = Scale(*stream.y_scale).transform(Y[:20_000])
    return gpflow_deep.paper2017(X, Y, num_layers, num_data=stream.counts["train"])


def read_speed(folder: Path) -> dict[str, float]:
    """Rows a second of the scan and of the pipeline without any step."""
    stream, seconds = open_stream(folder)
    batches = reader(stream)
    steps = 100
    batches(0)
    start = time.perf_counter()
    for step in range(1, steps + 1):
        batches(step)
    return {
        "scan_rows_per_second": sum(stream.counts.values()) / seconds,
        "read_rows_per_second": steps * BATCH / (time.perf_counter() - start),
    }


def training(folder: Path, steps: int, num_layers: int) -> dict[str, float]:
    """Times of steps with their batches, and memory."""
    tf.constant(0.0)
    before = peak_megabytes()
    stream, _ = open_stream(folder)
    batches = reader(stream)
    model = build(stream, num_layers)
    train_step = gpflow_deep.make_train_step(model, tf.keras.optimizers.Adam(0.01))
    times = []
    seed = tf.constant([0, 1])
    # The first steps compile, and are not timed.
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            waited = batches.wait_seconds
            cpu = time.process_time()
        start = time.perf_counter()
        float(train_step(batches(step), tf.random.fold_in(seed, step))["elbo_nats"])
        times.append(time.perf_counter() - start)
    timed = times[WARM_UP:]
    return {
        "step_ms": 1e3 * float(np.median(timed)),
        "step_min_ms": 1e3 * min(timed),
        "step_cpu_ms": 1e3 * (time.process_time() - cpu) / steps,
        "wait_percent": 100 * (batches.wait_seconds - waited) / sum(timed),
        "peak_mb": peak_megabytes(),
        "added_mb": peak_megabytes() - before,
        "blocks": len(stream.shards.blocks),
    }


def replicated(folder: Path, steps: int, num_layers: int, num_replicas: int) -> float:
    """Median seconds of a step on logical devices of the CPU with one thread each."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(num_replicas)
    name = "none" if num_replicas == 1 else "mirrored"
    strategy = devices.make_strategy(name, num_replicas=None if name == "none" else num_replicas)
    stream, _ = open_stream(folder)
    batches = reader(stream)
    with devices.scope(strategy):
        model = build(stream, num_layers)
        optimizer = tf.keras.optimizers.Adam(0.01)
    train_step = gpflow_deep.make_train_step(model, optimizer, strategy=strategy)
    times = []
    for step in range(WARM_UP + steps):
        batch = batches(step)
        parts = batch if strategy is None else devices.split_batch(strategy, batch)
        start = time.perf_counter()
        float(train_step(parts, tf.constant([0, step]))["elbo_nats"])
        times.append(time.perf_counter() - start)
    return float(np.median(times[WARM_UP:]))


def in_process(function: Any, *arguments: Any, threads: int = 0) -> Any:
    """`function(*arguments)` in a new process, so that memory and devices are its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=apply_threads, initargs=(threads,)) as pool:
        return pool.submit(function, *arguments).result()


# The report.


def estimate(metrics: Mapping[str, float], num_layers: int) -> dict[str, float]:
    """Hours and memory for a billion rows, from the figures of the largest N."""
    steps = EPOCHS * 0.81 * BILLION / BATCH  # 81 of 100 rows are for training
    blocks = BILLION / ROW_GROUP
    return {
        "layers": num_layers,
        "scan_hours": BILLION / metrics["scan_rows_per_second"] / 3600,
        "training_steps": steps,
        "training_hours": steps * metrics["step_ms"] / 3.6e6,
        "memory_of_the_index_mb": 13 * 8 * blocks / 2**20,
    }


def main(FLAGS: flags.FlagValues) -> None:
    base = Path(tempfile.mkdtemp(dir=FLAGS.folder))
    metrics: dict[str, Any] = {"rows": {}, "formats": {}}
    print(f"{'N':>12} {'GB':>6} {'scan':>6} {'read':>6} {'step':>7} {'CPU':>7} {'wait %':>7} {'MB':>6} {'added':>6}")
    try:
        # Each number of rows: reading, then training.
        for rows in map(int, FLAGS.rows):
            folder = base / str(rows)
            size = generate(folder, rows)
            measured = in_process(read_speed, folder, threads=FLAGS.threads)
            measured |= in_process(training, folder, FLAGS.steps, FLAGS.layers, threads=FLAGS.threads)
            shutil.rmtree(folder)
            metrics["rows"][rows] = {"bytes": size, **measured}
            scanned, read = (measured[f"{phase}_rows_per_second"] / 1e6 for phase in ("scan", "read"))
            print(
                f"{rows:12,d} {size / 1e9:6.2f} {scanned:6.2f} {read:6.2f} {measured['step_ms']:7.1f} "
                f"{measured['step_cpu_ms']:7.1f} {measured['wait_percent']:7.2f} {measured['peak_mb']:6.0f} "
                f"{measured['added_mb']:6.0f}",
                flush=True,
            )
        # The same rows as numbers, and with texts and dates.
        rows = int(FLAGS.rows[0])
        for name in ("parquet", "parquet_mixed"):
            folder = base / name
            size = generate(folder, rows, is_mixed=name.endswith("mixed"))
            measured = in_process(read_speed, folder, threads=FLAGS.threads)
            metrics["formats"][name] = {"bytes": size, **measured}
            scanned, read = (measured[f"{phase}_rows_per_second"] / 1e6 for phase in ("scan", "read"))
            print(f"{name}: {size / rows:.0f} bytes a row, million rows/s: scan {scanned:.2f}, read {read:.2f}")
        if FLAGS.replicas:
            one, two = (in_process(replicated, base / "parquet", FLAGS.steps, FLAGS.layers, n) for n in (1, 2))
            metrics["replicas"] = {"one_ms": 1e3 * one, "two_ms": 1e3 * two, "efficiency": one / (2 * two)}
            print(f"one device {1e3 * one:.1f} ms, two {1e3 * two:.1f} ms: efficiency {one / (2 * two):.2f}")
    finally:
        shutil.rmtree(base)
    # How much longer steps take with more rows, and what a billion of them would take.
    for quantity in ("step_ms", "step_cpu_ms"):
        values = [measured_rows[quantity] for measured_rows in metrics["rows"].values()]
        metrics[f"flat_{quantity}"] = max(values) / min(values)
    print(f"flat: {metrics['flat_step_ms']:.3f}, by CPU time {metrics['flat_step_cpu_ms']:.3f}")
    metrics["billion"] = estimate(metrics["rows"][max(metrics["rows"])], FLAGS.layers)
    print("10^9 rows:", {key: round(value, 2) for key, value in metrics["billion"].items()})
    print(f"{os.cpu_count()} CPUs, {FLAGS.threads} threads, TensorFlow {tf.__version__}")
    bench.write({"metrics": metrics}, "none: generated with seed 0")


if __name__ == "__main__":
    bench.run(define_flags, main, sets_threads=False)
