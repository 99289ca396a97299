#!/usr/bin/env python3
"""How well is log Z bracketed along the parameters of a run, and by as many temperatures?

    rbm_trajectory.py --run=runs/mnist500 --dataset=binarized_mnist --data_dir=DATA --betas=1,0.7,0.5 --steps=2100

The run is one of `track_rbm.py --trajectory`. Each bracket has `--steps` steps from below and as many from above; the
samples that these begin with come from tempering along the same path, or, for temperatures, from the hybrid one's last
level. Z is estimated by --chains chains in each direction. Seconds are CPU time of the process, compilation included.
"""

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bench
import numpy as np
from absl import flags

from gpflow_deep_runs.run import Seeds
from rbm_tracking import base_rate_biases, evaluation, load_rbm
from rbm_tracking.estimates import ais
from rbm_tracking.estimates.trajectories import distances, load_nodes, trajectory
from rbm_tracking.estimates.trajectory_tempering import tempered, trajectory_bracket

FLAGS = flags.FLAGS


def along(path: Any, seeds: Seeds) -> ais.Bracket:
    """The bracket by `trajectory_bracket`."""
    options: dict[str, Any] = {"num_chains": FLAGS.chains, "generator": "hash"}
    return trajectory_bracket(path, FLAGS.steps, seed=seeds("trajectory"), **options)


def by_temperatures(path: Any, base_b: np.ndarray, seeds: Seeds) -> ais.Bracket:
    """The bracket by evenly spaced temperatures, from samples of tempering along the path."""
    betas = ais.linear_schedule(FLAGS.steps)
    generator = "hash"
    options: dict[str, Any] = {"base_b": base_b, "generator": generator}
    lower = ais.ais(path[-1], betas, num_chains=FLAGS.chains, seed=seeds("ais"), **options)
    lengths = distances(path, num_chains=FLAGS.chains, seed=seeds("distances"), generator=generator)
    samples = tempered(path, lengths, FLAGS.chains, seed=seeds("tempering"), generator=generator)
    return ais.Bracket(lower, ais.reverse_ais(path[-1], betas, samples, seed=seeds("reverse"), **options))


def measure(name: str, seed: int, function: Callable[[], ais.Bracket]) -> dict[str, Any]:
    """One bracket."""
    start = time.process_time()
    lower, upper = function()
    row: dict[str, Any] = {"path": name, "seed": seed, "cpu_s": time.process_time() - start}
    for side, result in (("low", lower), ("high", upper)):
        row |= {side: result.log_z, f"{side}_error": result.standard_error, f"{side}_ess": result.ess}
    return row


def rows_of(seed: int, paths: dict[str, Any], base_b: np.ndarray) -> Iterator[dict[str, Any]]:
    """The brackets of a seed, along each path and by temperatures."""
    seeds = Seeds(seed)
    for beta, path in paths.items():
        yield measure(f"trajectory, beta = {beta}", seed, functools.partial(along, path, seeds))
    last = paths[FLAGS.betas[-1]]
    yield measure("temperatures", seed, functools.partial(by_temperatures, last, base_b, seeds))


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("run", "runs/mnist500", "Folder of a run of track_rbm.py --trajectory.", flag_values=fv)
    flags.DEFINE_string("dataset", "binarized_mnist", "The data set of the run.", flag_values=fv)
    flags.DEFINE_string("data_dir", "data", "Folder of the data sets.", flag_values=fv)
    flags.DEFINE_list("betas", ["1", "0.7", "0.5"], "Inverse temperatures of the paths.", flag_values=fv)
    flags.DEFINE_integer("steps", 2100, "Steps in each direction.", 2, flag_values=fv)
    flags.DEFINE_integer("chains", 100, "Chains in each direction.", 2, flag_values=fv)
    flags.DEFINE_float(
        "smoothing", evaluation.SMOOTHING, "Of the parameters along the way, in RBMs.", 0.0, flag_values=fv
    )
    flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds.", flag_values=fv)
    bench.define_common(fv, threads=1)


def main(_: flags.FlagValues) -> None:
    data = bench.load(FLAGS.dataset, FLAGS.data_dir, "binary")
    run = Path(FLAGS.run)
    base_b = base_rate_biases(data.train.X)
    rbms = [*load_nodes(run / "trajectory"), load_rbm(run / "rbm.npz").rbm]
    paths = {beta: trajectory(rbms, base_b=base_b, smoothing=FLAGS.smoothing, beta=float(beta)) for beta in FLAGS.betas}
    rows = (row for seed in map(int, FLAGS.seeds) for row in rows_of(seed, paths, base_b))
    bench.write_rows(rows, data.sha256)


if __name__ == "__main__":
    bench.run(define_flags, main)
