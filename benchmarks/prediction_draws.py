#!/usr/bin/env python3
"""How many draws of the inner layers does a prediction need, and of which kind?

    prediction_draws.py --data_dir=DATA --output=draws.json

A deep GP is trained shortly on a data set (M = --inducing, Adam 0.02, --num_steps minibatches of 300), and predicts
test rows with S draws of its inner layers, of three kinds:

    independent   other standard-normal numbers at every row
    sobol         scrambled Sobol points through the inverse normal distribution function, shared by all rows
    matched       the same with their mean and covariance made 0 and I: what `DeepGP` takes (`gpflow_deep.Sobol`)

Compared with the mixture of --reference independent draws, over rows and --seeds seeds: root mean square errors of the
mean in predictive standard deviations, of the variance (relative), and of a row's log density in nats; and the standard
deviation over seeds of the mean log density of all rows. The reference's own errors are those of as many independent
draws.

The default number of draws is the smallest power of two whose first three errors are at most those of 100 independent
draws, the choice of Salimbeni and Deisenroth (2017), for each data set and depth.
"""

from collections.abc import Callable, Sequence
from typing import Any

import bench
import numpy as np
import tensorflow as tf
from absl import flags
from scipy.special import logsumexp, ndtri
from scipy.stats import norm, qmc

import gpflow_deep

NUMBERS = (16, 32, 64, 128, 256)
REFERENCE_PART = 1000
#: Mean [N], variance [N] and log density [N] of the rows' targets.
Mixture = tuple[np.ndarray, np.ndarray, np.ndarray]


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_list("datasets", ["boston", "energy", "kin8nm"], "Data sets with one target.", flag_values=fv)
    flags.DEFINE_list("layers", ["2", "3"], "Numbers of layers.", flag_values=fv)
    flags.DEFINE_integer("inducing", 50, "Inducing inputs of every layer.", 1, flag_values=fv)
    flags.DEFINE_integer("num_steps", 800, "Steps of training.", 1, flag_values=fv)
    flags.DEFINE_integer("rows", 64, "Test rows that are predicted.", 1, flag_values=fv)
    flags.DEFINE_integer("seeds", 20, "Seeds of the draws.", 2, flag_values=fv)
    flags.DEFINE_integer("reference", 32_000, "Independent draws of the reference.", 1000, flag_values=fv)
    bench.define_common(fv)


def predictor(model: gpflow_deep.DeepGP, X: np.ndarray, Y: np.ndarray) -> Callable[[list[tf.Tensor]], Mixture]:
    """The mixture of some draws of the inner layers, [S, N or 1, L] each, at X [N, D] and Y [N, 1]."""
    factors, inputs, noise_variance = model.cached_factors(), tf.constant(X), float(model.likelihood.variance.numpy())

    @tf.function(autograph=False, reduce_retracing=True)
    def components(noise: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        found = model.propagate(inputs, noise, factors=factors)
        return found.means[-1], found.covs[-1]

    def mixture(noise: list[tf.Tensor]) -> Mixture:
        means, variances = (part.numpy()[..., 0] for part in components(noise))
        log_densities = norm(means, np.sqrt(variances + noise_variance)).logpdf(Y[:, 0])
        log_density = logsumexp(log_densities, axis=0) - np.log(len(means))
        return means.mean(axis=0), (variances + noise_variance).mean(axis=0) + means.var(axis=0), log_density

    return mixture


def draws(kind: str, dims: Sequence[int], num_draws: int, num_rows: int, seed: int) -> list[tf.Tensor]:
    """Noise of the inner layers: [S, N or 1, L] each."""
    if kind == "sobol":
        points = ndtri(np.clip(qmc.Sobol(sum(dims), seed=seed).random(num_draws), 1e-12, 1 - 1e-12))
        return [tf.constant(part[:, None, :]) for part in np.split(points, np.cumsum(dims)[:-1], axis=1)]
    integrator = gpflow_deep.Sobol() if kind == "matched" else gpflow_deep.MonteCarlo()
    return integrator.noise(dims, num_draws, num_rows, tf.constant([seed, 1]), tf.float64)


def measure(dataset: str, num_layers: int, FLAGS: Any) -> list[dict[str, Any]]:
    """One row of results for each number of draws."""
    data = bench.standardised(dataset, FLAGS.data_dir)
    X, Y = data.X_test[: FLAGS.rows], data.Y_test[: FLAGS.rows]
    model = bench.trained_deep_gp(data.X, data.Y, num_layers, FLAGS.inducing, FLAGS.num_steps)
    dims, mixture = [layer.num_latent_gps for layer in model.layers[:-1]], predictor(model, X, Y)
    many = [
        mixture(draws("independent", dims, REFERENCE_PART, len(X), 10_000 + seed))
        for seed in range(FLAGS.reference // REFERENCE_PART)
    ]
    mean = np.mean([part[0] for part in many], axis=0)
    variance = np.mean([part[1] + np.square(part[0] - mean) for part in many], axis=0)
    log_density = logsumexp([part[2] for part in many], axis=0) - np.log(len(many))

    def errors(kind: str, num_draws: int) -> dict[str, float]:
        found = [mixture(draws(kind, dims, num_draws, len(X), seed)) for seed in range(FLAGS.seeds)]
        means, variances, densities = (np.stack(part) for part in zip(*found, strict=True))
        differences = {
            "mean": (means - mean) / np.sqrt(variance),
            "variance": variances / variance - 1,
            "log_density": densities - log_density,
        }
        result = {f"{kind}_{name}": float(np.sqrt(np.mean(np.square(d)))) for name, d in differences.items()}
        return {**result, f"{kind}_average": float(np.std(densities.mean(axis=1), ddof=1))}

    rows = []
    for num_draws in sorted({*NUMBERS, 100}):
        kinds = ("independent",) if num_draws == 100 else ("independent", "sobol", "matched")
        row: dict[str, Any] = {"dataset": dataset, "layers": num_layers, "dimensions": sum(dims), "draws": num_draws}
        for kind in kinds:
            row.update(errors(kind, num_draws))
        rows.append(row)
        values = [f"{name} {value:.4f}" for name, value in row.items() if isinstance(value, float)]
        print(f"{dataset}, {num_layers} layers, S = {num_draws}: {', '.join(values)}", flush=True)
    return rows


def smallest(rows: Sequence[dict[str, Any]]) -> int | None:
    """The smallest power of two whose matched draws are as good as 100 independent ones in all rows."""
    quantities, goals = ("mean", "variance", "log_density"), [row for row in rows if row["draws"] == 100]

    def is_enough(num_draws: int) -> bool:
        found = {(row["dataset"], row["layers"]): row for row in rows if row["draws"] == num_draws}
        return all(
            found[goal["dataset"], goal["layers"]][f"matched_{name}"] <= goal[f"independent_{name}"]
            for goal in goals
            for name in quantities
        )

    return next((num_draws for num_draws in NUMBERS if is_enough(num_draws)), None)


def main(FLAGS: flags.FlagValues) -> None:
    rows = [row for name in FLAGS.datasets for L in map(int, FLAGS.layers) for row in measure(name, L, FLAGS)]
    print(f"as good as 100 independent draws everywhere: {smallest(rows)} matched ones")
    bench.write({"metrics": rows}, "UCI")


if __name__ == "__main__":
    bench.run(define_flags, main)
