#!/usr/bin/env python3
"""How good are second-order EBP's predictions on the standard splits of regression tables, and how sure of themselves?

    ebp_regression.py --data_dir=DATA --sets=boston,energy --splits=20 --output=regression.jsonl

EBPRegressor: 50 hidden units and 40 passes, as in probabilistic backpropagation (Hernandez-Lobato and Adams, 2015), of
which figures for the same splits are published. Nothing is chosen by test rows. Printed are means over splits with
their standard errors: RMSE, log density in nats a row, percentage of test targets within the central 90 % of their
prediction, and CPU seconds of a fit.

"MLP": scikit-learn's `MLPRegressor` of 50 units on standardised rows, with early stopping; its deviation is its
root mean square error for a tenth of the training rows that it is not given. "ridge": linear, with the best of 13
penalties by the errors for rows left out one by one, whose root mean square is its deviation. A split that is in
--output already is not done again.
"""

import itertools
import time
from pathlib import Path

import bench
import numpy as np
import scipy.stats
from absl import app, flags
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import RidgeCV
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from ebp import EBPRegressor

Array = NDArray[np.float64]
SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein")
MODELS = ("EBPRegressor", "MLP", "ridge")


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with uci/NAME.npz: X, y, train_idx, test_idx.", flag_values=fv)
    flags.DEFINE_list("sets", list(SETS), "Data sets.", flag_values=fv)
    flags.DEFINE_list("models", list(MODELS), f"Some of {', '.join(MODELS)}.", flag_values=fv)
    flags.DEFINE_integer("splits", 20, "The first splits of each set; protein has 5.", 1, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write each split's numbers to this file, a JSON line each.")


def scores(model: str, X: Array, y: Array, X_test: Array, y_test: Array) -> dict[str, float]:
    """RMSE, log density, coverage of 90 % intervals in percent, and CPU seconds."""
    start = time.process_time()
    # Rivals are Gaussians; ours has a density of its own.
    if model in RIVALS:
        mean, std = RIVALS[model](X, y, X_test)
        log_density = scipy.stats.norm.logpdf(y_test, mean, std)
    else:
        regressor = EBPRegressor().fit(X, y)
        mean, std = regressor.predict(X_test, return_std=True)
        log_density = regressor.log_density(X_test, y_test)
    seconds = time.process_time() - start
    # Central intervals of a Gaussian, also for the mixtures of EBP.
    is_within = np.abs(y_test - mean) < scipy.stats.norm.ppf(0.95) * std
    return {
        "rmse": float(np.sqrt(np.mean((y_test - mean) ** 2))),
        "log_likelihood": float(np.mean(log_density)),
        "coverage": 100.0 * float(np.mean(is_within)),
        "cpu_s": seconds,
    }


def mlp(X: Array, y: Array, X_test: Array) -> tuple[Array, Array | float]:
    """Means and standard deviations of a network of scikit-learn."""
    # The deviation is that of the errors on a tenth that it is not given.
    held = np.random.default_rng(0).permutation(len(X)) < len(X) // 10
    network = MLPRegressor(hidden_layer_sizes=(50,), early_stopping=True, max_iter=2000, random_state=0)
    model = TransformedTargetRegressor(make_pipeline(StandardScaler(), network), transformer=StandardScaler())
    model.fit(X[~held], y[~held])
    std = np.sqrt(np.mean(np.square(model.predict(X[held]) - y[held])))
    return model.predict(X_test), std


def ridge(X: Array, y: Array, X_test: Array) -> tuple[Array, Array | float]:
    """Those of a linear model."""
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))).fit(X, y)
    return model.predict(X_test), np.sqrt(-model[-1].best_score_)


RIVALS = {"MLP": mlp, "ridge": ridge}


def main(options: flags.FlagValues) -> None:
    threadpool_limits(options.threads or None)
    lines = bench.kept_lines()
    for name, model in itertools.product(options.sets, options.models):
        # Names are checked before anything is measured.
        if name not in SETS or model not in MODELS:
            raise app.UsageError(f"--sets are some of {', '.join(SETS)} and --models of {', '.join(MODELS)}.")
        data = np.load(Path(options.data_dir) / "uci" / f"{name}.npz")
        X = data["X"]
        y = data["y"].reshape(-1)
        # Splits that an earlier call has done are not done again.
        split_lines = [line for line in lines if (line["set"], line["model"]) == (name, model)]
        for split in range(len(split_lines), min(options.splits, len(data["train_idx"]))):
            rows = data["train_idx"][split]
            test = data["test_idx"][split]
            numbers = scores(model, X[rows], y[rows], X[test], y[test])
            split_lines.append({"set": name, "model": model, "split": split, **numbers})
            lines.append(split_lines[-1])
            bench.keep_lines(lines)
        shown = [{key: line[key] for key in ("rmse", "log_likelihood", "coverage", "cpu_s")} for line in split_lines]
        print(f"{name:9} {model:12} {len(split_lines):2} splits  " + bench.means(shown), flush=True)
    bench.print_machine()


if __name__ == "__main__":
    bench.run(define_flags, main, required=["data_dir"], sets_threads=False)
