#!/usr/bin/env python3
"""What would a user take instead of a deep GP for a table of numbers, and how good is it?

    tabular_rivals.py --data_dir=DATA --datasets=boston,energy --splits=0,1,2 --threads=1 --output=rivals.json

Standard splits of the UCI sets; nothing is chosen by test rows. All get the same rows; inputs and targets are
standardised by the training rows for all but the trees. Scores are those of the test rows in the units of the target:
log density in nats per row, RMSE, continuous ranked probability score, shares of targets within the central 50 and
90 %. Seconds are CPU time of the process in the fit, with what it chooses by held-out rows.

    linear            least squares with Gaussian noise
    gpr               GPflow's exact GP, at most 2,000 rows, squared exponential or Matern 5/2 by marginal likelihood
    sgpr              GPflow's SGPR with 100 inducing inputs that are trained, of the same kernels, by its bound
    ngboost           NGBoost's NGBRegressor with up to 2,000 trees, as many as are best for a tenth of the rows, fitted
                      to all; left out where the package is not installed (pip install ngboost, in any environment)
    quantile_boosting scikit-learn's HistGradientBoostingRegressor for 22 quantiles, which have no density, and the mean
    deep_ensemble     five networks of two layers of 100 ReLU with mean and variance (Lakshminarayanan et al., 2017), in
                      Keras, epochs and one of three learning rates chosen by a tenth of the rows
    deep_gp           DeepGPRegressor without arguments: depth, kernel, inducing inputs and likelihood by the rows
    deep_gp_1, deep_gp_2, deep_gp_3   DeepGPRegressor with one, two and three layers, else its defaults
    sigma_points      DeepGPRegressor with posterior="sigma_points" and at most 1,500 steps

Models that are in --output already are not fitted again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import bench
import gpflow
import numpy as np
import tensorflow as tf
from absl import app, flags
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from gpflow_deep import DeepGPRegressor
from gpflow_deep.judge.evaluation import evaluate
from gpflow_deep.judge.forecasts import Forecast, LinearModel
from gpflow_deep.judge.predictive import gaussian
from gpflow_deep.model.likelihoods import GaussianMixture, Task

Array = NDArray[np.float64]
Scores = dict[str, float | None]

MAX_GPR_ROWS = 2000
SGPR_INDUCING = 100
SGPR_ITERATIONS = 300
MAX_TREES = 2000
LEVELS = (np.arange(20) + 0.5) / 20
"""Levels of the quantiles: the mean of their losses is the midpoint rule for the CRPS."""

MEMBERS = 5
WIDTH = 100
RATES = (1e-3, 3e-3, 1e-2)
MAX_EPOCHS = 400
PATIENCE = 20


@dataclass(frozen=True)
class Standardised:
    """A model that says in standard units which Gaussians it mixes, as one in the units of the data.

    :param components: standardised inputs [N, D] to means and variances [S, N] of new targets in standard units.
    """

    components: Callable[[Array], tuple[Array, Array]]
    units: tuple[Array, Array, float, float]
    task: Task = "regression"

    def forecast(self, X: np.ndarray, Y: np.ndarray) -> Forecast:
        """The equal mixture for rows X [N, D], and the log density of Y [N, 1]."""
        center, spread, shift, scale = self.units
        means, variances = self.components((X - center) / spread)
        return mixture(shift + scale * means, scale**2 * variances, Y)


@dataclass(frozen=True)
class Boosted:
    """NGBoost's Gaussians."""

    model: Any
    task: Task = "regression"

    def forecast(self, X: np.ndarray, Y: np.ndarray) -> Forecast:
        """One Gaussian for each row X [N, D], and the log density of Y [N, 1]."""
        params = self.model.pred_dist(X).params
        return mixture(params["loc"][None], np.square(params["scale"])[None], Y)


def mixture(means: Array, variances: Array, Y: np.ndarray) -> Forecast:
    """Equal mixtures of Gaussians [S, N], and the log density of Y [N, 1]."""
    found = GaussianMixture(np.full(len(means), 1 / len(means)), means[..., None], variances[..., None])
    return Forecast(found.log_density(Y), means.mean(axis=0)[:, None], gaussian(*found))


def standard_units(X: Array, y: Array) -> tuple[Array, Array, float, float]:
    """Means and standard deviations of the columns of X [N, D], and of y [N]; 1 for those that do not vary."""
    spread = X.std(axis=0)
    scale = float(y.std())
    return X.mean(axis=0), np.where(spread > 0, spread, 1.0), float(y.mean()), scale if scale > 0 else 1.0


def held_out(num_rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on, and a tenth of the rows."""
    order = np.random.default_rng(seed).permutation(num_rows)
    return order[num_rows // 10 :], order[: num_rows // 10]


def fit_linear(X: Array, y: Array, seed: int) -> LinearModel:
    """Least squares."""
    del seed
    return LinearModel.fit(X, y[:, None])


def fit_gpr(X: Array, y: Array, seed: int) -> Standardised | None:
    """The exact GP by L-BFGS, of two kernels the one of higher marginal likelihood; None for too many rows."""
    del seed
    if len(X) > MAX_GPR_ROWS:
        return None
    return better_kernel(X, y, lambda data, kernel: gpflow.models.GPR(data, kernel, noise_variance=0.1), 1000)


def fit_sgpr(X: Array, y: Array, seed: int) -> Standardised:
    """Titsias's collapsed bound by L-BFGS from 100 of the rows, of two kernels the one of the higher bound."""
    chosen = np.random.default_rng(seed).permutation(len(X))[:SGPR_INDUCING]

    def build(data: tuple[Array, Array], kernel: gpflow.kernels.Kernel) -> gpflow.models.SGPR:
        return gpflow.models.SGPR(data, kernel, data[0][chosen], noise_variance=0.1)

    return better_kernel(X, y, build, SGPR_ITERATIONS)


def better_kernel(
    X: Array,
    y: Array,
    build: Callable[[tuple[Array, Array], gpflow.kernels.Kernel], gpflow.models.GPR | gpflow.models.SGPR],
    num_iterations: int,
) -> Standardised:
    """Squared exponential or Matern 5/2, whichever has the lower loss after L-BFGS on standardised rows."""
    units = standard_units(X, y)
    center, spread, shift, scale = units
    data = ((X - center) / spread, ((y - shift) / scale)[:, None])
    # L-BFGS from lengthscales of the typical distance between rows.
    models = []
    for kind in (gpflow.kernels.SquaredExponential, gpflow.kernels.Matern52):
        models.append(build(data, kind(lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))))
        losses = (models[-1].training_loss, models[-1].trainable_variables)
        gpflow.optimizers.Scipy().minimize(*losses, options={"maxiter": num_iterations})
    model = min(models, key=lambda fitted: float(fitted.training_loss()))
    # Predictions from cached factors, with the noise that was found.
    posterior = model.posterior()

    def components(inputs: Array) -> tuple[Array, Array]:
        mean, variance = posterior.predict_f(inputs)
        return mean.numpy().T, variance.numpy().T + float(model.likelihood.variance.numpy())

    return Standardised(components, units)


def fit_ngboost(X: Array, y: Array, seed: int) -> Boosted | None:
    """As many trees as are best for held-out rows; None without the package."""
    try:
        from ngboost import NGBRegressor
    except ImportError:
        return None
    train, valid = held_out(len(X), seed)
    settings = {"verbose": False, "random_state": seed}
    # How many trees: where the held-out rows stop gaining.
    first = NGBRegressor(n_estimators=MAX_TREES, early_stopping_rounds=50, **settings)
    first.fit(X[train], y[train], X[valid], y[valid])
    trees = MAX_TREES if first.best_val_loss_itr is None else first.best_val_loss_itr + 1
    return Boosted(NGBRegressor(n_estimators=trees, **settings).fit(X, y))


def fit_deep_ensemble(X: Array, y: Array, seed: int) -> Standardised:
    """Members are trained side by side; the learning rate and its epochs are those of the best held-out density."""
    units = standard_units(X, y)
    center, spread, shift, scale = units
    inputs = (X - center) / spread
    targets = (y - shift) / scale
    train, valid = held_out(len(X), seed)
    best = max(
        (train_ensemble(inputs, targets, train, valid, rate, seed) for rate in RATES), key=lambda ensemble: ensemble[1]
    )
    # The mixture of its members.
    network = best[0]

    def components(rows: Array) -> tuple[Array, Array]:
        mean, variance = moments(network(repeated(rows)))
        return np.asarray(mean, np.float64).T, np.asarray(variance, np.float64).T

    return Standardised(components, units)


def repeated(rows: Array) -> tf.Tensor:
    """Inputs [N, D] for every member, [N, members, D]."""
    return tf.repeat(tf.constant(rows, tf.float32)[:, None], MEMBERS, axis=1)


def moments(outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Means and variances [N, members] of outputs [N, members, 2]."""
    return outputs[..., 0], tf.nn.softplus(outputs[..., 1]) + 1e-6


def train_ensemble(
    X: Array, y: Array, train: np.ndarray, valid: np.ndarray, rate: float, seed: int
) -> tuple[tf.keras.Model, float]:
    """Five networks in one, and their log density of the held-out rows after the best epoch."""
    tf.keras.utils.set_random_seed(seed)
    # Members are an axis of inputs, weights and outputs.
    layers = [tf.keras.Input((MEMBERS, X.shape[1]))]
    for width, activation in ((WIDTH, "relu"), (WIDTH, "relu"), (2, None)):
        layer = tf.keras.layers.EinsumDense("bmi,mij->bmj", (MEMBERS, width), activation, bias_axes="mj")
        layer.kernel_initializer = tf.keras.initializers.VarianceScaling(2.0, "fan_in")
        layers.append(layer)
    network = tf.keras.Sequential(layers)

    # -log p of a Gaussian, summed over the members.
    def loss(target: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        mean, variance = moments(outputs)
        return tf.reduce_sum(
            0.5 * (tf.math.log(2 * np.pi * variance) + tf.square(target[..., 0] - mean) / variance), axis=-1
        )

    # All members stop at one epoch, that of the lowest held-out loss of all together.
    network.compile(tf.keras.optimizers.Adam(rate), loss, steps_per_execution=max(len(train) // 100, 1))
    stop = tf.keras.callbacks.EarlyStopping(patience=PATIENCE, restore_best_weights=True)
    parts = [(repeated(X[rows]), y[rows].astype(np.float32)[:, None, None]) for rows in (train, valid)]
    network.fit(*parts[0], batch_size=100, epochs=MAX_EPOCHS, validation_data=parts[1], callbacks=[stop], verbose=0)
    mean, variance = (np.asarray(part, np.float64).T for part in moments(network(parts[1][0])))
    return network, float(np.mean(mixture(mean, variance, parts[1][1][:, 0]).log_density))


Fit = Callable[[Array, Array, int], object]
"""Inputs [N, D], targets [N] and a seed to a model; None for one that is none for these rows."""


def fit_deep_gp(num_layers: int | str, **settings: Any) -> Fit:
    """The estimator with its defaults, but for these."""

    def fit(X: Array, y: Array, seed: int) -> object:
        return DeepGPRegressor(num_layers, random_state=seed, **settings).fit(X, y).predictor_

    return fit


MODELS: dict[str, Fit] = {
    "linear": fit_linear,
    "gpr": fit_gpr,
    "sgpr": fit_sgpr,
    "ngboost": fit_ngboost,
    "deep_ensemble": fit_deep_ensemble,
    "deep_gp": fit_deep_gp("auto"),
    "deep_gp_1": fit_deep_gp(1),
    "deep_gp_2": fit_deep_gp(2),
    "deep_gp_3": fit_deep_gp(3),
    "sigma_points": fit_deep_gp(2, posterior="sigma_points", max_iter=1500),
}
NAMES = (*MODELS, "quantile_boosting")


def define_flags(fv: flags.FlagValues) -> None:
    sets = ["boston", "concrete", "energy", "kin8nm", "naval", "power", "protein"]
    flags.DEFINE_list("datasets", sets, "Data sets.", flag_values=fv)
    flags.DEFINE_list("splits", ["0", "1", "2"], "Numbers of splits.", flag_values=fv)
    flags.DEFINE_list("models", list(NAMES), f"Some of {', '.join(NAMES)}.", flag_values=fv)
    flags.DEFINE_string("data_dir", "data", "Folder of the data sets.", flag_values=fv)
    bench.define_common(fv, output="Keep the results in this JSON file.")


def quantile_boosting(X: Array, y: Array, X_test: Array, y_test: Array, seed: int) -> Scores:
    """Trees for each quantile and for the mean; crossing quantiles are sorted."""
    # Trees for the mean, and for each quantile.
    start = time.process_time()
    mean = HistGradientBoostingRegressor(random_state=seed).fit(X, y).predict(X_test)
    levels = np.sort(np.append(LEVELS, [0.05, 0.25, 0.75, 0.95]))
    fits = (HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=seed).fit(X, y) for q in levels)
    quantiles = np.sort([fit.predict(X_test) for fit in fits], axis=0)
    seconds = time.process_time() - start
    # CRPS: twice the mean of the quantile losses.
    above = y_test - quantiles[np.isin(levels, LEVELS)]
    losses = np.maximum(LEVELS[:, None] * above, (LEVELS[:, None] - 1) * above)

    def inside(low: float, high: float) -> float:
        return float(np.mean((quantiles[levels == low][0] <= y_test) & (y_test <= quantiles[levels == high][0])))

    rmse = float(np.sqrt(np.mean(np.square(mean - y_test))))
    return {
        "log_likelihood": None,
        "rmse": rmse,
        "crps": 2 * float(losses.mean()),
        "coverage_50": inside(0.25, 0.75),
        "coverage_90": inside(0.05, 0.95),
        "cpu_s": seconds,
    }


def scores(name: str, X: Array, y: Array, X_test: Array, y_test: Array, seed: int) -> Scores | None:
    """Fit one model, and judge it; None if it is none for these rows."""
    if name == "quantile_boosting":
        return quantile_boosting(X, y, X_test, y_test, seed)
    start = time.process_time()
    model = MODELS[name](X, y, seed)
    seconds = time.process_time() - start
    if model is None:
        return None
    # Scores in the units of the target, for all alike.
    metrics = evaluate(model, (X_test, y_test), coverages=(0.5, 0.9)).to_json()
    return {
        "log_likelihood": metrics["log_density_nats"],
        "rmse": metrics["rmse"],
        "crps": metrics["crps"],
        "coverage_50": metrics["coverage_50"],
        "coverage_90": metrics["coverage_90"],
        "cpu_s": seconds,
    }


def main(flag: flags.FlagValues) -> None:
    if not set(flag.models) <= set(NAMES):
        raise app.UsageError(f"--models are some of {', '.join(NAMES)}, got {','.join(flag.models)}.")
    rows = bench.kept()
    done = {(row["model"], row["dataset"], row["split"]) for row in rows}
    for dataset in flag.datasets:
        for split in map(int, flag.splits):
            # Models that the file does not have yet, on this split.
            data = bench.load(dataset, flag.data_dir, "supervised", split=split, valid_fraction=0.0)
            (X, Y) = data.train
            test = data.test
            for name in (name for name in flag.models if (name, dataset, split) not in done):
                metrics = scores(name, X, Y[:, 0], test.X, test.Y[:, 0], split)
                if metrics is None:
                    continue
                rows.append({"model": name, "dataset": dataset, "split": split, **metrics})
                cells = "  ".join(f"{key} {'-' if cell is None else f'{cell:.4f}'}" for key, cell in metrics.items())
                print(f"{dataset:9} {split} {name:18} {cells}", flush=True)
                bench.keep({"metrics": rows}, bench.KNOWN_DATA)


if __name__ == "__main__":
    bench.run(define_flags, main)
