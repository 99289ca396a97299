#!/usr/bin/env python3
"""How far is the tracked log Z from the exact one, and do its intervals and flags say so?

    rbm_accuracy.py --data_dir=DATA
    rbm_accuracy.py --settings=digits-0.01-1e3,mnist-0.1-1e3 --seeds=2

Trains small RBMs in several settings of the learning rate, with several seeds, and compares the tracked log Z with the
exact one every --every updates. A setting is DATASET-LEARNINGRATE-DECAY, where DECAY is alpha or "const". The table
has one row for each setting: root mean square and largest error over all compared updates of all seeds, the share of
errors inside 1.96 standard deviations and inside the interval that the lag widens, half of whose median width is given,
the share of flagged updates, and of these among updates with an error above 1 nat.
"""

import time
from typing import Any

import bench
import numpy as np
import tensorflow as tf
from absl import flags

from gpflow_deep_base.seeds import named_seed
from gpflow_deep_runs.data.batches import batch_indices
from gpflow_deep_runs.data.sets import catalogue
from rbm_tracking.model.exact import log_z_exact
from rbm_tracking.model.rbm import initial_rbm
from rbm_tracking.model.temperatures import linear_ladder
from rbm_tracking.track.evidence import tracking_errors
from rbm_tracking.track.learning import SMLConfig, compiled_updates, initial_state

SETTINGS = (
    "digits-0.01-1e3",
    "digits-0.01-const",
    "mnist-0.001-1e3",
    "mnist-0.001-1e4",
    "mnist-0.01-1e3",
    "mnist-0.01-1e4",
    "mnist-0.01-const",
    "mnist-0.1-1e3",
)

COLUMNS = {
    "setting": "{setting}",
    "rmse": "{rmse_nats:.3f}",
    "largest": "{max_nats:.3f}",
    "mean": "{bias_nats:+.3f}",
    "95 % covers": "{coverage_95:.1%}",
    "with the lag": "{coverage_95_with_lag:.1%}",
    "half-width": "{half_width_nats:.3f}",
    "NIS": "{nis:.2f}",
    "flagged": "{flagged:.0%}",
    "> 1 nat, flagged": "{wrong}",
    "s": "{seconds:.0f}",
}


def track(setting: str, seed: int, arguments: flags.FlagValues) -> dict[str, np.ndarray]:
    """Errors, deviations and flags at each compared update of one run."""
    name, rate, decay = setting.split("-")
    data = catalogue.read(name, "binary", arguments.data_dir).train.X
    config = SMLConfig.paper(
        learning_rate=float(rate),
        learning_rate_decay=None if decay == "const" else float(decay),
        adaptive=arguments.adaptive,
        bias=arguments.bias,
        gibbs_steps=arguments.gibbs_steps,
        inflate=arguments.inflate,
        generator=arguments.generator,
    )
    hidden = arguments.hidden_digits if name == "digits" else arguments.hidden
    # The model and its chains, from streams of their own.
    rbm = initial_rbm(hidden, seed=named_seed(seed, "init"), data=data)
    ladder = linear_ladder(arguments.temps)
    state = initial_state(
        rbm, ladder, arguments.chains, seed=named_seed(seed, "chains"), data=data, config=SMLConfig.paper()
    )
    run = compiled_updates(config)
    rows_of_data = tf.constant(data)
    train_seed = named_seed(seed, "train")
    compared: dict[str, list[float]] = {"error": [], "std": [], "flags": [], "nis": [], "half": []}
    # Updates up to the next comparison with the exact log Z.
    for start in range(0, arguments.updates, arguments.every):
        rows = np.stack([batch_indices(seed, start + i, len(data), 100) for i in range(arguments.every)])
        count = tf.constant(arguments.every)
        state, observed = run(state, rows_of_data, tf.constant(rows, tf.int32), count, train_seed)
        compared["error"].append(float(observed.log_z[-1]) - log_z_exact(state.rbm))
        compared["std"].append(float(observed.log_z_std[-1]))
        compared["flags"].append(float(observed.flags[-1]))
        compared["nis"].append(float(observed.nis[-1]))
        compared["half"].append(max(1.96 * compared["std"][-1], float(observed.lag[-1])))
    return {key: np.array(values) for key, values in compared.items()}


def summary(runs: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """Over all compared updates of all seeds."""
    all_ = {key: np.concatenate([run[key] for run in runs]) for key in runs[0]}
    return {
        **tracking_errors(all_["error"], all_["std"], all_["flags"].astype(int), all_["half"]),
        "rmse_per_seed_nats": [float(np.sqrt(np.mean(run["error"] ** 2))) for run in runs],
        "half_width_nats": float(np.median(all_["half"])),
        "nis": float(np.median(all_["nis"])),
    }


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder of the data sets, for mnist.", fv)
    flags.DEFINE_list("settings", list(SETTINGS), "What to run.", fv)
    flags.DEFINE_integer("seeds", 5, "Number of seeds 0, 1, ...", 1, flag_values=fv)
    flags.DEFINE_integer("updates", 20_000, "Updates of each run.", 1, flag_values=fv)
    flags.DEFINE_integer("every", 500, "Updates between comparisons.", 1, flag_values=fv)
    flags.DEFINE_integer("hidden", 16, "Hidden units for mnist.", 1, 25, flag_values=fv)
    flags.DEFINE_integer("hidden_digits", 12, "Hidden units for digits.", 1, 25, flag_values=fv)
    flags.DEFINE_integer("temps", 20, "Temperatures.", 2, flag_values=fv)
    flags.DEFINE_integer("chains", 40, "Chains at each temperature.", 2, flag_values=fv)
    flags.DEFINE_integer("gibbs_steps", 1, "Rounds of Gibbs sampling in each update.", 1, flag_values=fv)
    flags.DEFINE_boolean("adaptive", True, "Adapt the temperatures.", fv)
    flags.DEFINE_boolean("inflate", True, "Enlarge the variances by the autocorrelation of the innovations.", fv)
    flags.DEFINE_string("bias", "both", "How the bias b_t is removed, see SMLConfig.", fv)
    flags.DEFINE_string("generator", "hash", "Of the noise.", fv)
    bench.define_common(fv, threads=1)


def main(FLAGS: flags.FlagValues) -> None:
    table: dict[str, Any] = {}
    for setting in FLAGS.settings:
        start = time.monotonic()
        runs = []
        for seed in range(FLAGS.seeds):
            runs.append(track(setting, seed, FLAGS))
            rmse = np.sqrt(np.mean(runs[-1]["error"] ** 2))
            print(f"{setting} seed {seed}: rmse {rmse:.3f}, largest {np.abs(runs[-1]['error']).max():.3f}", flush=True)
        table[setting] = {**summary(runs), "seconds": time.monotonic() - start}
        bench.keep({"table": table}, "by name")
    print()
    bench.print_titles(*COLUMNS)
    for setting, row in table.items():
        wrong = f"{row['num_wrong']}, {row['flagged_of_wrong']:.0%}" if row["num_wrong"] else "0"
        bench.print_row({"setting": setting, "wrong": wrong, **row}, COLUMNS)
    print(
        f"\n{FLAGS.seeds} seeds, {FLAGS.updates} updates, compared every {FLAGS.every}; {FLAGS.temps} temperatures, "
        f"{FLAGS.chains} chains"
    )


if __name__ == "__main__":
    bench.run(define_flags, main)
