#!/usr/bin/env python3
"""How good is DeepGPRegressor with its defaults, and how long does a fit take?

    estimators.py --data_dir=DATA --datasets=boston,energy --splits=0 --threads=1 --output=estimators.json
    estimators.py --data_dir=DATA --datasets=concrete --set=preset=modern --set=learning_rate=0.01

Standard splits of the UCI sets. Scores are those of the test rows, in the units of the targets: log density in nats per
row, RMSE; "linear" is the log density of least squares. Seconds are CPU time of the process in `fit`.
"""

import ast
import time
from typing import Any

import bench
import numpy as np
from absl import flags

from gpflow_deep import DeepGPRegressor
from gpflow_deep.judge.evaluation import evaluate
from gpflow_deep.judge.forecasts import LinearModel


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("datasets", ["boston", "concrete", "energy", "kin8nm", "power"], "Data sets.", flag_values=fv)
    flags.DEFINE_list("splits", ["0"], "Numbers of splits.", flag_values=fv)
    flags.DEFINE_string("data_dir", "data", "Folder of the data sets.", flag_values=fv)
    flags.DEFINE_multi_string("set", [], "PARAMETER=VALUE in place of a default.", flag_values=fv)
    bench.define_common(fv)


def parameters(settings: list[str]) -> dict[str, Any]:
    """Texts such as "preset=modern" and "max_iter=100" as arguments of the estimator.

    :raises ValueError: if there is no "=".
    """
    found = {}
    for setting in settings:
        name, has_value, value = setting.partition("=")
        if not has_value:
            raise ValueError(f"--set must be PARAMETER=VALUE, got {setting}.")
        try:
            found[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            found[name] = value
    return found


def measure(dataset: str, split: int, data_dir: str, settings: dict[str, Any]) -> dict[str, Any]:
    """One fit and its scores."""
    rows = bench.load(dataset, data_dir, "supervised", split=split, valid_fraction=0.0)
    (X, Y), test = rows.train, rows.test
    start = time.process_time()
    model = DeepGPRegressor(**settings).fit(X, Y[:, 0])
    seconds = time.process_time() - start
    log_density = model.log_density(test.X, test.Y[:, 0])
    return {
        "dataset": dataset,
        "split": split,
        "log_likelihood": float(np.mean(log_density)),
        "rmse": float(np.sqrt(np.mean(np.square(model.predict(test.X) - test.Y[:, 0])))),
        "linear": evaluate(LinearModel.fit(X, Y), test).log_density.value,
        "steps": model.n_iter_,
        "seconds": seconds,
    }


def main(flag: flags.FlagValues) -> None:
    settings, results = parameters(flag.set), []
    print(f"{'data set':10} {'split':>5} {'log density':>12} {'RMSE':>9} {'linear':>9} {'steps':>6} {'CPU s':>6}")
    for dataset in flag.datasets:
        for split in map(int, flag.splits):
            found = measure(dataset, split, flag.data_dir, settings)
            scores = f"{found['log_likelihood']:12.4f} {found['rmse']:9.4f} {found['linear']:9.4f}"
            print(f"{dataset:10} {split:5} {scores} {found['steps']:6} {found['seconds']:6.0f}", flush=True)
            results.append(found)
    bench.write({"settings": settings, "metrics": results}, bench.KNOWN_DATA)


if __name__ == "__main__":
    bench.run(define_flags, main)
