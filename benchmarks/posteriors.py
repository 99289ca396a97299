#!/usr/bin/env python3
"""What is a better posterior of a deep GP worth, and what does it cost?

    posteriors.py --data_dir=DATA --run_dir=runs/posteriors --datasets=boston,energy --splits=0,1,2 --threads=1

Two layers on standard splits of the UCI sets, as `DeepGPRegressor` fits them by default; then, from there:

    gaussian   the variational posterior itself
    global     global inducing outputs, trained in its place with the same settings
    sigma_points   deep sigma points, trained by the predictive density, with a weight of the KL that held-out training
               rows choose, by default
    sghmc      samples of the inducing values, at a temperature and with a noise that held-out training rows choose,
               other hyperparameters as they are: `SamplingConfig` as it is by default
    posterior  the same at temperature 1, with the noise of the variational fit
    mcem       as sghmc, with hyperparameters by moving-window Monte Carlo EM, if held-out rows gained by it

Scores are those of the test rows in the units of the target: log density in nats per row, RMSE, continuous ranked
probability score, share of targets within the central 90 %. "gain" is what held-out rows say of a choice, nats per row:
noise and hyperparameters that moved, or sigma points in place of a Gaussian q; "bound" is that of the last hundred
steps, nats per row in standardised units. Seconds are CPU time in all, with the variational fit that a chain starts
from. Nothing is chosen by test rows. Each row of the table is a file in --run_dir, with the variational fits in folders
beside them; what is there is not computed again.
"""

import json
import time
from pathlib import Path
from typing import NamedTuple

import bench
import numpy as np
from absl import flags

from gpflow_deep import DeepGPRegressor
from gpflow_deep.judge.evaluation import evaluate
from gpflow_deep.posteriors.sampling import Sampler, SamplingConfig
from gpflow_deep.train.fitting import sample
from gpflow_deep.train.predictor import Predictor
from gpflow_deep_base.files import write_json
from gpflow_deep_runs.data.rows import Part

SETTINGS: dict[str, bench.Row] = {
    "sghmc": {},
    "posterior": {"temperature": 1.0},
    "mcem": {"hyper_steps": 8000, "hyper_rate": 0.005},
}
SCORES = ("log_density_nats", "log_density_nats_se", "rmse", "crps", "coverage_90")
FITTED = ("gaussian", "global", "sigma_points")
POSTERIORS = (*FITTED, *SETTINGS)


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("datasets", ["boston", "energy", "concrete"], "Sets of the UCI repository.", flag_values=fv)
    flags.DEFINE_list("splits", ["0"], "Numbers of the standard splits.", flag_values=fv)
    flags.DEFINE_list("posteriors", ["gaussian", "sghmc"], f"Some of {', '.join(POSTERIORS)}.", flag_values=fv)
    flags.DEFINE_integer("num_layers", 2, "Layers.", 1, flag_values=fv)
    flags.DEFINE_integer("max_iter", 5000, "Steps of the variational fit.", 1, flag_values=fv)
    flags.DEFINE_string("data_dir", "data", "Where the data sets are.", flag_values=fv)
    flags.DEFINE_string("run_dir", "runs/posteriors", "Folder of the results.", flag_values=fv)
    bench.define_common(fv, output="Write the rows of --run_dir to this JSON file.")


def scores(predictor: Predictor, test: Part) -> dict[str, float]:
    """Of the test rows, in the units of the target."""
    metrics = evaluate(predictor, test).to_json()
    return {name: float(metrics[name]) for name in SCORES}


def about(sampler: Sampler) -> dict[str, float]:
    """What is reported of a chain."""
    trust = sampler.trust()["functions"]
    chain = {"temperature": sampler.temperature, "gain": sampler.gain}
    return {**chain, "effective": trust.effective, "largest_r_hat": trust.largest_r_hat}


def main(FLAGS: flags.FlagValues) -> None:
    for dataset in FLAGS.datasets:
        for split in map(int, FLAGS.splits):
            compare(FLAGS, dataset, split)
    bench.keep({"rows": [json.loads(path.read_text()) for path in sorted(Path(FLAGS.run_dir).glob("*.json"))]}, "uci")


class Fit(NamedTuple):
    """A variational fit, and what is said of it beside its scores."""

    predictor: Predictor
    about: dict[str, float]

    def to(self, folder: Path) -> None:
        """Into a folder, `fit.json` last."""
        self.predictor.save(folder)
        write_json(folder / "fit.json", self.about)


def fit(settings: flags.FlagValues, kind: str, X: np.ndarray, Y: np.ndarray, split: int) -> Fit:
    """With the defaults of the estimator."""
    start = time.process_time()
    # The estimator as it is, but for depth, posterior and steps.
    options = {"max_iter": settings.max_iter, "random_state": split}
    model = DeepGPRegressor(settings.num_layers, posterior=kind, kernel="squared_exponential", **options).fit(
        X, Y[:, 0]
    )
    facts = {"seconds": time.process_time() - start, "num_steps": model.n_iter_}
    chosen = model.kl_weight_
    if chosen is not None:
        facts |= {"kl_weight": chosen.kl_weight, "gain": max(chosen.scores.values()) - chosen.gaussian}
    elif len(model.bounds_):
        facts["bound"] = float(model.bounds_[-1])
    return Fit(model.predictor_, facts)


def compare(settings: flags.FlagValues, dataset: str, split: int) -> None:
    """All posteriors of one split, each in a file of its own."""
    folder = Path(settings.run_dir)
    # Nothing to do where all files are there.
    files = {name: folder / f"{dataset}-{split}-{settings.num_layers}-{name}.json" for name in settings.posteriors}
    if all(path.exists() for path in files.values()):
        return
    data = bench.load(dataset, settings.data_dir, "supervised", split=split, valid_fraction=0.0)
    X, Y = data.train
    for name, path in files.items():
        if path.exists():
            continue
        # The variational fit that chains start from, stored once.
        kind = name if name in FITTED else "gaussian"  # where chains start
        stored = folder / f"{dataset}-{split}-{settings.num_layers}-{kind}"
        if not (stored / "fit.json").exists():
            fit(settings, kind, X, Y, split).to(stored)
        predictor = Predictor.load(stored)
        fit_facts = json.loads((stored / "fit.json").read_text())
        spent = fit_facts.pop("seconds")
        row = {"dataset": dataset, "split": split, "posterior": name, "num_rows": len(X), "max_iter": settings.max_iter}
        row |= {"num_layers": settings.num_layers}
        # A chain of samples, or the fit itself.
        if name in SETTINGS:
            start = time.process_time()
            row |= about(sample(predictor, X, Y, SamplingConfig(**SETTINGS[name]), seed=split))
            spent += time.process_time() - start
        else:
            row |= fit_facts
        row |= {**scores(predictor, data.test), "seconds": round(spent, 1)}
        print(row, flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        bench.keep({"metrics": row}, "uci", path=path)


if __name__ == "__main__":
    bench.run(define_flags, main)
