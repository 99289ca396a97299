#!/usr/bin/env python3
"""What makes RBMs good: many chains, a rate that goes to zero, averages, decay, centring?

    rbm_recipes.py --data_dir=DATA
    rbm_recipes.py --data_dir=DATA --sets=binarized_mnist --hidden=500 --updates=20000

Trains RBMs by the paper's recipe and by one with all of these parts, whole and with one part left out or changed, all
for the same number of updates. The log-likelihoods of the last parameters are by AIS; the table says, too, by how
much the tracked log Z of the same parameters differs from that of AIS, and the half width that it states.
"""

import time

import bench
import tensorflow as tf
from absl import flags

from gpflow_deep_base.numbers.groups import by_group
from gpflow_deep_runs.data.supply import Minibatches
from gpflow_deep_runs.run import Seeds
from rbm_tracking import evaluation
from rbm_tracking.estimates import ais
from rbm_tracking.model.rbm import base_rate_biases
from rbm_tracking.track.evidence import half_width
from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.use.training import Trainer, new_trainer

SETS = ("adult", "connect4", "nips", "ocr_letters", "web", "binarized_mnist")
COLUMNS = {
    "set": "{set}",
    "recipe": "{recipe}",
    "train": "{train:.2f}",
    "valid": "{valid:.2f}",
    "test": "{test:.2f}",
    "AIS ESS": "{ais_ess:.0f}",
    "tracked - AIS": "{error:+.2f}",
    "its half width": "{half_width:.2f}",
    "s": "{seconds:.0f}",
}
WHOLE: bench.Row = {
    "learning_rate": 0.05,
    "schedule": "linear",
    "target_chains": 100,
    "centred": True,
    "l2": 1e-4,
    "average": 0.999,
}
CHANGES: dict[str, bench.Row] = {
    "whole": {},
    "no target chains": {"target_chains": 0},
    "chains do not take turns": {"method": "pcd"},
    "constant rate": {"schedule": "constant"},
    "1/t": {"schedule": "paper"},
    "cosine": {"schedule": "cosine"},
    "not averaged": {"average": 0.0},
    "constant and not averaged": {"schedule": "constant", "average": 0.0},
    "not centred": {"centred": False},
    "no decay": {"l2": 0.0},
    "decay 1e-3": {"l2": 1e-3},
    "momentum 0.5": {"momentum": 0.5},
    "rate 0.02": {"learning_rate": 0.02},
    "rate 0.1": {"learning_rate": 0.1},
    "5 rounds": {"gibbs_steps": 5},
    "CD-1": {"method": "cd", "target_chains": 0},
}


def config_of(recipe: str, updates: int) -> SMLConfig:
    """The paper's recipe, or the whole one with a change; 1/t falls from half of the updates on."""
    if recipe == "paper":
        return SMLConfig.paper(learning_rate=0.02, learning_rate_decay=updates / 2, generator="hash")
    options = {**WHOLE, "decay_steps": updates, "generator": "hash", **CHANGES[recipe]}
    if options["schedule"] == "paper":
        options["learning_rate_decay"] = updates / 2
    return SMLConfig(**by_group(SMLConfig, options))


def run(name: str, recipe: str, arguments: flags.FlagValues) -> bench.Row:
    """One training and its AIS."""
    data = bench.load(name, arguments.data_dir, "binary")
    seeds = Seeds(arguments.seed)
    X = data.train.X
    config = config_of(recipe, arguments.updates)
    start = time.process_time()
    options = {"num_chains": 20, "modes": arguments.modes, "jit_compile": arguments.jit}
    trainer = new_trainer(X, arguments.hidden, config, seeds, **options)
    batches = Minibatches(len(X), 100, seeds)
    rows = tf.cast(X, tf.bool)
    # Batches by their numbers, so that a run can be repeated.
    for first in range(0, arguments.updates, 250):
        trainer.advance(rows, batches(first, min(250, arguments.updates - first)), seeds("train"))
    seconds = time.process_time() - start
    # A long AIS, and the likelihood of all parts.
    betas = ais.linear_schedule(arguments.betas)
    base_b = base_rate_biases(X)
    rbm = trainer.model.rbm
    sampled = ais.ais(rbm, betas, seed=seeds("long"), base_b=base_b, generator="hash")
    parts = {part: data.some(part, 5000, seeds).X for part in ("train", "valid", "test")}
    return {
        **{part: evaluation.mean_log_prob_unnormalised(rbm, rows) - sampled.log_z for part, rows in parts.items()},
        **tracking_of(trainer, sampled),
        "seconds": seconds,
    }


def tracking_of(trainer: Trainer, found: ais.AISResult) -> dict[str, float]:
    """What the filter says against AIS."""
    tracked = evaluation.tracking(trainer.model, trainer.observed)
    return {
        "error": tracked.log_z - found.log_z,
        "half_width": half_width(tracked),
        "ais_std": found.standard_error,
        "ais_ess": found.ess,
    }


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder of the data sets.", fv)
    flags.DEFINE_list("sets", list(SETS), "Data sets.", fv)
    flags.DEFINE_list("recipes", ["paper", *CHANGES], "Recipes: paper, or changes of the whole one.", fv)
    flags.DEFINE_integer("hidden", 100, "Hidden units.", 1, flag_values=fv)
    flags.DEFINE_integer("updates", 4000, "Updates of each run.", 1, flag_values=fv)
    flags.DEFINE_integer("betas", 1000, "Temperatures of AIS.", 2, flag_values=fv)
    flags.DEFINE_integer("modes", 0, "Leading modes of the data to start from.", 0, flag_values=fv)
    flags.DEFINE_bool("jit", True, "Compile with XLA.", fv)
    flags.DEFINE_integer("seed", 0, "Seed of all noise.", 0, flag_values=fv)
    bench.define_common(fv, threads=1)


def main(FLAGS: flags.FlagValues) -> None:
    table: list[bench.Row] = []
    bench.print_titles(*COLUMNS)
    for name in FLAGS.sets:
        for recipe in FLAGS.recipes:
            row = run(name, recipe, FLAGS)
            table.append({"set": name, "recipe": recipe, **row})
            bench.print_row(table[-1], COLUMNS)
            bench.keep({"rows": table}, "by name")
    best = {
        name: max((row for row in table if row["set"] == name), key=lambda row: row["valid"]) for name in FLAGS.sets
    }
    print("\nbest on validation rows: " + ", ".join(f"{name}: {row['recipe']}" for name, row in best.items()))


if __name__ == "__main__":
    bench.run(define_flags, main)
