#!/usr/bin/env python3
"""How fast are annealed importance sampling and the exact log Z of an RBM, beside the PyPI package rbms?

    RIVAL_PYTHON=other/venv/bin/python rbm_baselines.py --layers=500,784 --chains=100 --threads=1 --output=rbm.json

AIS of one RBM of random weights, float32, by `rbm_tracking.estimates.ais` with each generator of noise and by
`rbms.partition_function.ais` (PyTorch, CPU): the same path (visible biases stay, weights and hidden biases grow) and as
many temperatures. Both are timed in turn, so that both see the same load. rbms needs another PyTorch than TensorFlow's
environment may hold, so it runs in the interpreter that RIVAL_PYTHON names; without it, its rows are left out and the
last lines say what is missing.

"ms" is the time of one temperature for all chains, from a run of --betas temperatures (minimum and median); "21k" that
of the 21,000 temperatures of Desjardins et al. (2011) at the minimum. "floor" is the time of the two matrix products
[C, n_v] [n_v, n_h] and [C, n_h] [n_h, n_v] that no sampler of all units can do without, measured in turn with the runs;
"reached" is floor / minimum. "log Z" says whether the estimates agree (with ours, 3 standard errors).

With one thread times are CPU times. Ours run by kernels of Numba if it is installed and bits are sparse.

The exact log Z of an RBM with --exact_hidden hidden units is compared with the same sum in NumPy (a matrix product, a
softplus of each factor, float64) and with rbms, at sizes that these can hold: 2^12 states. At 2^25 states they are not
run.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

import bench
import numpy as np
import tensorflow as tf
from absl import app, flags
from scipy.special import logsumexp

from rbm_tracking.estimates.ais import AISResult, ais, linear_schedule
from rbm_tracking.model.exact import log_z_exact
from rbm_tracking.model.random import GENERATORS
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.serialization import load_rbm

SMALL_HIDDEN = 12
AIS = {
    "method": "{method}",
    "min ms": "{min_ms:.2f}",
    "median ms": "{median_ms:.2f}",
    "21k, s": "{seconds_21k:.1f}",
    "floor ms": "{floor_ms:.2f}",
    "reached": "{reached:.0%}",
    "log Z": "{log_z:.2f}",
    "agrees": "{agrees}",
}
EXACT = {
    "method": "{method}",
    "hidden": "{hidden}",
    "min s": "{min_s:.4f}",
    "ns per factor": "{ns_per_factor:.3f}",
    "log Z": "{log_z:.6f}",
}
RIVAL = r"""
import json, sys, time
import torch
threads = int(sys.argv[1])
if threads:
    torch.set_num_threads(threads)
clock = time.process_time if threads == 1 else time.perf_counter
import numpy as np
from importlib import metadata
from rbms.bernoulli_bernoulli.classes import BBRBM
from rbms.partition_function.ais import compute_partition_function_ais
from rbms.partition_function.exact import compute_partition_function
out, sys.stdout = sys.stdout, sys.stderr
models = {}
print(json.dumps({"rbms": metadata.version("rbms"), "torch": torch.__version__}), file=out, flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if order["model"] not in models:
        stored = np.load(order["model"])
        W, b, c = (torch.tensor(stored[name]) for name in ("W", "b", "c"))
        models[order["model"]] = BBRBM(W.T.contiguous(), b, c)
    model = models[order["model"]]
    torch.manual_seed(order["seed"])
    start = clock()
    if order["what"] == "ais":
        log_z = compute_partition_function_ais(order["chains"], order["betas"], model)
    else:
        n = model.num_hiddens()
        states = ((torch.arange(2**n)[:, None] >> torch.arange(n)) & 1).to(torch.float32)
        log_z = compute_partition_function(model, states)
    print(json.dumps({"seconds": clock() - start, "log_z": log_z}), file=out, flush=True)
"""


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("layers", ["500", "784"], "Hidden and visible units of the RBM for AIS.", flag_values=fv)
    flags.DEFINE_string("rbm", None, "File of a trained RBM for AIS, in place of --layers.", flag_values=fv)
    flags.DEFINE_integer("chains", 100, "Chains of AIS.", 2, flag_values=fv)
    flags.DEFINE_integer("betas", 301, "Temperatures in one timed run of AIS.", 2, flag_values=fv)
    flags.DEFINE_integer("exact_hidden", 25, "Hidden units for the exact log Z.", 1, 25, flag_values=fv)
    flags.DEFINE_integer("repetitions", 5, "Timed runs of each, after one other.", 1, flag_values=fv)
    bench.define_common(fv)


def random_rbm(n_h: int, n_v: int) -> RBM:
    """Weights that tie the units to each other, and visible units that are mostly 0."""
    rng = np.random.default_rng(0)
    parts = 0.1 * rng.normal(size=(n_h, n_v)), rng.normal(size=n_v) - 2.0, rng.normal(size=n_h) - 1.0
    return RBM(*(tf.constant(part, tf.float32) for part in parts))


def save(rbm: RBM, folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    np.savez(path, **{key: value.numpy() for key, value in zip("Wbc", rbm[:3], strict=True)})
    return path


def numpy_log_z(rbm: RBM) -> float:
    """The sum over all hidden states as one would write it down."""
    W, b, c = (value.numpy().astype(np.float64) for value in rbm[:3])
    h = ((np.arange(2 ** len(c))[:, None] >> np.arange(len(c))) & 1).astype(np.float64)
    return float(logsumexp(h @ c + np.logaddexp(0.0, h @ W + b).sum(axis=1)))


Measured: TypeAlias = AISResult | float | None
Timed = Callable[[int], tuple[float, Measured]]


def timed(function: Callable[[int], Measured], threads: int) -> Timed:
    clock = time.process_time if threads == 1 else time.perf_counter

    def run(i: int) -> tuple[float, Measured]:
        start = clock()
        result = function(i)
        return clock() - start, result

    return run


def in_turn(functions: Mapping[str, Timed], repetitions: int) -> dict[str, tuple[np.ndarray, Measured]]:
    """Seconds of each function, called in turn [repetitions], and its last result; the first call is not counted."""
    calls_of = bench.in_turn(functions, repetitions)
    return {name: (np.array([call[0] for call in calls]), calls[-1][1]) for name, calls in calls_of.items()}


def asked(rival: bench.Rival, **order: object) -> Timed:
    """Seconds and log Z by rbms."""

    def run(i: int) -> tuple[float, float]:
        answer = rival.ask({**order, "seed": i})
        return answer["seconds"], answer["log_z"]

    return run


def product_floor(rbm: RBM, chains: int) -> Callable[[int], None]:
    """Twenty times the two products of one temperature."""
    v = tf.zeros([chains, rbm.b.shape[0]])
    h = tf.zeros([chains, rbm.c.shape[0]])
    W_up = tf.transpose(rbm.W)

    def run(_: int) -> None:
        for _ in range(20):
            tf.matmul(v, W_up)
            tf.matmul(h, rbm.W)

    return run


def measure_ais(rbm: RBM, rival: bench.Rival | None, model: str, FLAGS: flags.FlagValues) -> list[bench.Row]:
    chains = FLAGS.chains
    steps = FLAGS.betas - 1
    schedule = linear_schedule(FLAGS.betas)

    def ours(generator: str) -> Callable[[int], AISResult]:
        return lambda i: ais(
            rbm, schedule, num_chains=chains, seed=tf.constant([0, i]), generator=generator, chunk=steps
        )

    functions = {f"ours, {generator}": timed(ours(generator), FLAGS.threads) for generator in GENERATORS}
    if rival is not None:
        functions["rbms"] = asked(rival, what="ais", model=model, chains=chains, betas=FLAGS.betas)
    # All methods in turn, and products of matrices as the floor.
    times = in_turn({**functions, "floor": timed(product_floor(rbm, chains), FLAGS.threads)}, FLAGS.repetitions)
    floor = 1e3 * float(times["floor"][0].min()) / 20
    reference = times[f"ours, {GENERATORS[0]}"][1]
    assert isinstance(reference, AISResult)
    rows = []
    # Milliseconds of a temperature, and whether log Z agrees with ours.
    for name in functions:
        seconds, result = times[name]
        low, middle = (1e3 * float(value) / steps for value in (seconds.min(), np.median(seconds)))
        assert result is not None
        log_z = result.log_z if isinstance(result, AISResult) else result
        row = {"method": name, "min_ms": low, "median_ms": middle, "seconds_21k": 21 * low, "reached": floor / low}
        row |= {
            "floor_ms": floor,
            "log_z": log_z,
            "agrees": abs(log_z - reference.log_z) < 6 * reference.standard_error,
        }
        rows.append(row)
    return rows


def measure_exact(
    n_h: int, n_v: int, rival: bench.Rival | None, model: str, rbm: RBM, repetitions: int, threads: int
) -> list[bench.Row]:
    """Every method at 2^n_h states; only ours beyond 2^12."""
    # Others hold all states at once, which 2^12 of them allow.
    functions = {"ours": timed(lambda _: log_z_exact(rbm), threads)}
    if n_h <= SMALL_HIDDEN:
        functions["numpy"] = timed(lambda _: numpy_log_z(rbm), threads)
        if rival is not None:
            functions["rbms"] = asked(rival, what="exact", model=model)
    rows = []
    for name, (seconds, log_z) in in_turn(functions, repetitions).items():
        low = float(seconds.min())
        rows.append(
            {"method": name, "hidden": n_h, "min_s": low, "ns_per_factor": 1e9 * low / 2**n_h / n_v, "log_z": log_z}
        )
    return rows


def run(rival: bench.Rival | None, folder: str, FLAGS: flags.FlagValues) -> dict[str, list[bench.Row]]:
    # AIS of one large RBM, then the exact sum of two small ones.
    rbm = load_rbm(FLAGS.rbm).rbm if FLAGS.rbm else random_rbm(*map(int, FLAGS.layers))
    n_h, n_v = rbm.W.shape
    print(f"AIS, {n_h} hidden and {n_v} visible units, {FLAGS.chains} chains, float32")
    rows = measure_ais(rbm, rival, save(rbm, folder, "ais.npz"), FLAGS)
    bench.print_table(rows, AIS)
    print(f"\nexact log Z, {n_v} visible units")
    exact_rows = []
    for hidden in sorted({SMALL_HIDDEN, FLAGS.exact_hidden}):
        small = random_rbm(hidden, n_v)
        model = save(small, folder, f"exact{hidden}.npz")
        exact_rows += measure_exact(hidden, n_v, rival, model, small, min(FLAGS.repetitions, 3), FLAGS.threads)
    bench.print_table(exact_rows, EXACT)
    return {"ais": rows, "exact": exact_rows}


def main(FLAGS: flags.FlagValues) -> None:
    if len(FLAGS.layers) != 2:
        raise app.UsageError(f"--layers must be the hidden and the visible units, got {','.join(FLAGS.layers)}")
    # The rival needs an environment of its own, and takes turns with us.
    python = os.environ.get("RIVAL_PYTHON")
    with tempfile.TemporaryDirectory() as folder:
        if python:
            threads = {"OMP_NUM_THREADS": str(FLAGS.threads)} if FLAGS.threads else {}
            with bench.Rival(python, "-c", RIVAL, FLAGS.threads, **threads) as rival:
                versions = rival.answer()
                metrics = run(rival, folder, FLAGS)
        else:
            metrics = run(None, folder, FLAGS)
            versions = {}
            print("\nrbms was not run: set RIVAL_PYTHON to a Python in which `pip install rbms` was done.")
    bench.write({"metrics": metrics}, "none: drawn with seed 0", **versions)


if __name__ == "__main__":
    bench.run(define_flags, main)
