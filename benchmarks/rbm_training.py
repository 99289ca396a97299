#!/usr/bin/env python3
"""How many updates of an RBM are made in a second, what does tracking log Z cost, and how fast is the package rbms?

    RIVAL_PYTHON=other/venv/bin/python rbm_training.py --threads=1 --output=training.json

784 visible and 500 hidden units, minibatches of 100, float32. Ours: SML with parallel tempering at 10 temperatures and
20 chains at each, untracked and tracked, with each generator of noise, many updates in one XLA graph. rbms (PyTorch,
CPU): PCD-1 with 200 chains, no temperatures, no log Z. rbms needs another PyTorch than TensorFlow's environment may
hold, so it runs in the interpreter that RIVAL_PYTHON names; without it, its row is left out.

All are run in turn, in blocks of updates, so that all see the same load. "ratio" is the time of an update of rbms over
ours: of the minima, and the median over neighbouring blocks with its quartiles. "overhead" is the tracked over the
untracked time, less one, in the same two forms. "floor" is the time of the matrix products of an update (820 rows by
784 by 500), measured in turn as well; "reached" is floor / minimum.
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import bench
import numpy as np
import tensorflow as tf
from absl import flags

from rbm_tracking.model.random import GENERATORS
from rbm_tracking.model.rbm import initial_rbm
from rbm_tracking.model.temperatures import linear_ladder
from rbm_tracking.track.learning import SMLConfig, compiled_updates, initial_state

BATCH, TEMPS, CHAINS = 100, 10, 20
COLUMNS = {
    "": "{name}",
    "min ms": "{min_ms:.2f}",
    "median ms": "{median_ms:.2f}",
    "updates/s": "{updates_per_s:.0f}",
    "reached": "{reached:.0%}",
    "ratio": "{ratio:.2f}",
    "median [quartiles]": "{ratio_median[0]:.2f} [{ratio_median[1]:.2f}, {ratio_median[2]:.2f}]",
    "overhead": "{overhead:.1%}",
    "its median [quartiles]": "{overhead_median[0]:.1%} [{overhead_median[1]:.1%}, {overhead_median[2]:.1%}]",
}
RIVAL = r"""
import sys, time
import torch
threads, n_v, n_h, chains, batch = map(int, sys.argv[1:6])
if threads:
    torch.set_num_threads(threads)
from rbms.bernoulli_bernoulli.classes import BBRBM
from rbms.training.pcd import fit_batch_pcd
torch.manual_seed(0)
data = (torch.rand(5000, n_v) < 0.2).to(torch.float32)
model = BBRBM(0.01 * torch.randn(n_v, n_h), torch.zeros(n_v), torch.zeros(n_h))
weights = torch.ones(batch)
parallel = model.init_chains(chains)
for parameter in model.parameters():
    parameter.grad = torch.zeros_like(parameter)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, maximize=True)
print("1", flush=True)
with torch.no_grad():
    for line in sys.stdin:
        start = time.perf_counter()
        for i in range(int(line)):
            rows = torch.randint(0, len(data), (batch,))
            optimizer.zero_grad(set_to_none=False)
            parallel, _ = fit_batch_pcd((data[rows], weights), parallel, model, 1, 1.0)
            optimizer.step()
        print(time.perf_counter() - start, flush=True)
"""


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("layers", ["500", "784"], "Hidden and visible units.", flag_values=fv)
    flags.DEFINE_integer("updates", 50, "Updates in one timed block.", 1, flag_values=fv)
    flags.DEFINE_integer("repetitions", 15, "Timed blocks of each, after one other.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


def ours(config: SMLConfig, n_h: int, n_v: int, updates: int) -> Callable[[int], float]:
    """Seconds of a block of updates, after compiling it."""
    rng = np.random.default_rng(0)
    data = (rng.uniform(size=(5000, n_v)) < 0.2).astype(np.uint8)
    seed, source = tf.constant([0, 1]), tf.constant(data)
    rbm = initial_rbm(n_h, seed=seed, data=data)
    state = initial_state(rbm, linear_ladder(TEMPS), CHAINS, seed=seed, data=data, config=SMLConfig.paper())
    run = compiled_updates(config)
    rows = tf.constant(rng.integers(0, len(data), (updates, BATCH)), tf.int32)

    def block(_: int) -> float:
        nonlocal state
        start = time.perf_counter()
        state, observed = run(state, source, rows, tf.constant(updates), seed)
        observed.swap_rate.numpy()
        return time.perf_counter() - start

    return block


def product_floor(n_h: int, n_v: int, updates: int) -> Callable[[int], float]:
    """Seconds of the matrix products alone: up and down for all particles, up after the swaps, data, outer product."""
    particles, gradient = TEMPS * CHAINS, BATCH + CHAINS
    W = tf.random.stateless_normal([n_h, n_v], [0, 0])
    v, h = tf.ones([particles, n_v]), tf.ones([particles, n_h])
    batch, left, right = tf.ones([BATCH, n_v]), tf.ones([gradient, n_h]), tf.ones([gradient, n_v])

    @tf.function(jit_compile=True, autograph=False)
    def products(v: tf.Tensor, h: tf.Tensor, batch: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> list[tf.Tensor]:
        return [
            tf.matmul(v, W, transpose_b=True),
            tf.matmul(h, W),
            tf.matmul(v + 1.0, W, transpose_b=True),
            tf.matmul(batch, W, transpose_b=True),
            tf.matmul(left, right, transpose_a=True),
        ]

    def block(_: int) -> float:
        start = time.perf_counter()
        for _ in range(updates):
            products(v, h, batch, left, right)
        return time.perf_counter() - start

    return block


def against(numerator: np.ndarray, denominator: np.ndarray) -> tuple[float, list[float]]:
    """Ratio of the minima; median and quartiles of the ratios of neighbouring blocks."""
    ratios = numerator / denominator
    return float(numerator.min() / denominator.min()), [float(q) for q in np.quantile(ratios, [0.5, 0.25, 0.75])]


def main(FLAGS: flags.FlagValues) -> None:
    n_h, n_v = map(int, FLAGS.layers)
    blocks = {
        f"{'tracked' if track else 'untracked'}, {generator}": ours(
            SMLConfig.paper(track=track, generator=generator), n_h, n_v, FLAGS.updates
        )
        for generator in GENERATORS
        for track in (False, True)
    }
    blocks["floor"] = product_floor(n_h, n_v, FLAGS.updates)
    python, stack = os.environ.get("RIVAL_PYTHON"), ExitStack()
    if python:
        arguments = (FLAGS.threads, n_v, n_h, TEMPS * CHAINS, BATCH)
        rival = stack.enter_context(bench.Rival(python, RIVAL, *arguments, threads=FLAGS.threads))
        blocks["rbms"] = lambda _: rival.ask(FLAGS.updates)
    with stack:
        seconds = bench.in_turn(blocks, FLAGS.repetitions)
    times = {name: 1e3 * np.array(values) / FLAGS.updates for name, values in seconds.items()}
    floor = float(times["floor"].min())
    rows = []
    for name, values in times.items():
        row: dict[str, Any] = {"name": name, "min_ms": float(values.min()), "median_ms": float(np.median(values))}
        row |= {"updates_per_s": 1e3 / row["min_ms"], "reached": floor / row["min_ms"]}
        if "rbms" in times:
            row["ratio"], row["ratio_median"] = against(times["rbms"], values)
        if name.startswith("tracked"):
            of_minima, of_pairs = against(values, times["un" + name])
            row["overhead"], row["overhead_median"] = of_minima - 1, [q - 1 for q in of_pairs]
        rows.append(row)
    print(f"{n_v} visible, {n_h} hidden units; {TEMPS} x {CHAINS} chains; batch {BATCH}; {FLAGS.threads} thread(s)")
    bench.print_titles(*COLUMNS)
    for row in rows:
        bench.print_row(row, COLUMNS)
    if not python:
        print("\nrbms was not run: set RIVAL_PYTHON to a Python in which `pip install rbms` was done.")
    bench.keep({"metrics": rows, "threads": FLAGS.threads}, "none: drawn with seed 0")


if __name__ == "__main__":
    bench.run(define_flags, main)
