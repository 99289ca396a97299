#!/usr/bin/env python3
"""Does the stated interval of log Z hold for the models that early stopping reports, and are these the best ones?

    rbm_evidence.py --data_dir=DATA
    rbm_evidence.py --data_dir=DATA --sets=adult,web --rates=0.02,0.5 --updates=500

Trains RBMs with several learning rates, one of them far too high, and evaluates them as `track_rbm.py --patience` does:
by the filter, checked by AIS of 1,000 temperatures. Of the evaluation that is reported, log Z is then estimated by a
long AIS in float64, and by shorter ones of all others. The table has one row for each data set and rate: the update
that is reported, its interval of log Z and the long AIS, by how much the best evaluation is better by AIS, and how
often the filter was refuted.
"""

import functools
import time

import bench
import numpy as np
import tensorflow as tf
from absl import flags

from gpflow_deep_base.stopping import Best
from gpflow_deep_runs.data.supply import Minibatches
from gpflow_deep_runs.run import Seeds
from rbm_tracking import evaluation, report
from rbm_tracking.estimates import ais
from rbm_tracking.model.checks import linear_ladder
from rbm_tracking.model.rbm import RBM, base_rate_biases, initial_rbm
from rbm_tracking.track.updates.learning import SMLConfig, initial_state
from rbm_tracking.use.training import Trainer

SETS = ("adult", "connect4", "nips", "ocr_letters", "web", "rcv1", "binarized_mnist", "caltech_silhouettes")
COLUMNS = {
    "set": "{set}",
    "rate": "{rate}",
    "reported": "{found}",
    "log Z, 95 %": "{low_nats:.2f} to {high_nats:.2f}",
    "long AIS": "{long_ais_log_z_nats:.2f} ± {long_ais_std_nats:.2f}",
    "inside": "{is_inside}",
    "better seen": "{better_seen_nats:.2f}",
    "refuted": "{num_refuted}",
    "s": "{seconds:.0f}",
}


def run(name: str, rate: float, arguments: flags.FlagValues) -> bench.Row:
    """One training, and what was reported against what a long AIS says."""
    data = bench.load(name, arguments.data_dir, "binary")
    seeds = Seeds(arguments.seed)
    X = data.train.X
    valid = data.some("valid", 2000, seeds).X
    # The training, and what is evaluated on its way.
    rbm = initial_rbm(arguments.hidden, seed=seeds("init"), data=X)
    recipe = SMLConfig.paper if arguments.recipe == "paper" else SMLConfig
    sml_config = recipe(learning_rate=rate, generator="hash")
    state = initial_state(rbm, linear_ladder(10), 20, seed=seeds("chains"), data=X, config=sml_config)
    trainer = Trainer(state, sml_config, jit_compile=False)
    batches = Minibatches(len(X), 100, seeds)
    rows = tf.cast(X, tf.bool)
    base_b = base_rate_biases(X)
    config = evaluation.EvidenceConfig(ais_betas="1000")
    evaluations = evaluation.Evaluations({"valid": valid}, config)
    rule = evaluation.highest()
    best = Best()
    evaluated: list[tuple[RBM, dict[str, float]]] = []
    # Updates, then an evaluation; the rule says which one is reported.
    for start in range(0, arguments.updates, arguments.every):
        for first in range(start, start + arguments.every, 100):
            trainer.advance(rows, batches(first, min(100, start + arguments.every - first)), seeds("train"))
        model = trainer.model
        scalars = report.filter_scalars(trainer)
        by_ais = functools.partial(evaluation.ais_scalars, model, base_b, config, seeds("ais"), "hash")
        scalars |= evaluations(model, trainer.observed, by_ais)
        best = rule(len(evaluated), best, scalars)
        evaluated.append((model.rbm, scalars))
    return judged(evaluated, best.step, valid, base_b, seeds, arguments)


def judged(
    seen: list[tuple[RBM, dict[str, float]]],
    reported: int,
    valid: np.ndarray,
    base_b: np.ndarray,
    seeds: Seeds,
    arguments: flags.FlagValues,
) -> bench.Row:
    """The evaluation that is reported, or the last one if none is, against AIS of all of them."""
    likelihoods = []
    chosen = reported if reported >= 0 else len(seen) - 1
    # AIS of each evaluation, longest for the one that is reported.
    for i, (rbm, _) in enumerate(seen):
        betas = arguments.long_betas if i == chosen else arguments.other_betas
        exactly = RBM(*(tf.cast(part, tf.float64) for part in rbm[:3]))  # in float32, 20,000 temperatures round to 0.01
        sampled = ais.ais(
            exactly,
            ais.linear_schedule(betas),
            num_chains=arguments.long_chains,
            seed=seeds(f"long_{i}"),
            base_b=base_b,
            generator="hash",
        )
        likelihoods.append(evaluation.mean_log_prob_unnormalised(rbm, valid) - sampled.log_z)
        if i == chosen:
            long = sampled
    scalars = seen[chosen][1]
    low = scalars["evidence/low_nats"]
    high = scalars.get("evidence/high_nats", float("inf"))
    return {
        "evaluation": chosen + 1,
        "is_reported": reported >= 0,
        "low_nats": low,
        "high_nats": high,
        "tracked_log_z_nats": scalars["tracker/log_z_nats"],
        "long_ais_log_z_nats": long.log_z,
        "long_ais_std_nats": long.standard_error,
        "is_inside": low <= long.log_z <= high,
        "valid_log_likelihood_nats": likelihoods[chosen],
        "better_seen_nats": max(likelihoods) - likelihoods[chosen],
        "num_refuted": sum(int(scalars_of["evidence/is_refuted"]) for _, scalars_of in seen),
        "num_evaluations": len(seen),
        "tracker_errors_nats": [
            scalars_of["tracker/log_z_nats"] - (evaluation.mean_log_prob_unnormalised(rbm, valid) - value)
            for (rbm, scalars_of), value in zip(seen, likelihoods, strict=True)
        ],
    }


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder of the data sets.", fv)
    flags.DEFINE_list("sets", list(SETS), "Data sets.", fv)
    flags.DEFINE_enum("recipe", "default", ["default", "paper"], "How to train, at a constant rate.", fv)
    flags.DEFINE_list("rates", ["0.01", "0.1", "0.5"], "Learning rates.", fv)
    flags.DEFINE_integer("hidden", 50, "Hidden units.", 1, flag_values=fv)
    flags.DEFINE_integer("updates", 1000, "Updates of each run.", 1, flag_values=fv)
    flags.DEFINE_integer("every", 200, "Updates between evaluations.", 1, flag_values=fv)
    flags.DEFINE_integer("long_betas", 20_000, "Temperatures of AIS for what is reported.", 2, flag_values=fv)
    flags.DEFINE_integer("other_betas", 1000, "Temperatures of AIS for the other evaluations.", 2, flag_values=fv)
    flags.DEFINE_integer("long_chains", 50, "Chains of these.", 2, flag_values=fv)
    flags.DEFINE_integer("seed", 0, "Seed of all noise.", 0, flag_values=fv)
    bench.define_common(fv, threads=1)


def main(FLAGS: flags.FlagValues) -> None:
    table: dict[str, bench.Row] = {}
    bench.print_titles(*COLUMNS)
    for name in FLAGS.sets:
        for rate in FLAGS.rates:
            start = time.process_time()
            row = run(name, float(rate), FLAGS)
            row["seconds"] = time.process_time() - start
            table[f"{name}, {rate}"] = row
            reported = f"{row['evaluation']} of {row['num_evaluations']}" if row["is_reported"] else "none"
            bench.print_row({"set": name, "rate": rate, "found": reported, **row}, COLUMNS)
            bench.keep({"table": table}, "by name")
    # Of what was reported: do the intervals hold, and was anything better seen on the way?
    inside = [row["is_inside"] for row in table.values() if row["is_reported"]]
    worse = max((row["better_seen_nats"] for row in table.values() if row["is_reported"]), default=0.0)
    print(f"\n{sum(inside)} of {len(inside)} intervals hold the long AIS; none is more than {worse:.2f} nats worse")


if __name__ == "__main__":
    bench.run(define_flags, main)
