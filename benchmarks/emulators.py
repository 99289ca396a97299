#!/usr/bin/env python3
"""Which emulator of a deterministic simulator is closest after a few dozen runs?

    emulators.py --functions=step,bump --designs=0,1 --threads=1 --output=emulators.json

Eight functions that the literature on deep GP surrogates uses, Latin hypercubes as designs, 1,000 further inputs to
judge by. Kernels, priors and a threshold of deep_gp were chosen on designs of these functions. RMSE and CRPS are in
standard deviations of the test outputs; coverage is that of central 90 %; seconds are CPU time of the fit.

    sklearn_gpr       scikit-learn's GaussianProcessRegressor, Matern 5/2 and a white part, three restarts
    gpr               GPflow's GPR by L-BFGS, the better of squared exponential and Matern 5/2 by marginal likelihood
    deep_gp           DeepGPRegressor without arguments
    dgpsi             two layers by stochastic imputation (Ming, Williamson and Guillas 2023), 500 iterations, in the
                      Python of --dgpsi (pip install dgpsi); not measured without it

Rows that are in --output already are not computed again.
"""

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import bench
import gpflow
import numpy as np
from absl import app, flags
from numpy.typing import NDArray
from scipy.stats import norm, qmc
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from gpflow_deep import DeepGPRegressor

Array = NDArray[np.float64]

NUM_TEST = 1000

#: Borehole: lower and upper ends of radius, radius of influence, transmissivities and heads, length, conductivity.
BOREHOLE = np.array(
    [
        [0.05, 100.0, 63_070.0, 990.0, 63.1, 700.0, 1120.0, 9855.0],
        [0.15, 50_000.0, 115_600.0, 1110.0, 116.0, 820.0, 1680.0, 12_045.0],
    ]
)

DGPSI = """
import json, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
from dgpsi import combine, dgp, emulator, kernel
rows = np.load(sys.argv[1])
X, y, T = rows["X"], rows["y"], rows["T"]
d, start = X.shape[1], time.process_time()
inner = [kernel(length=np.array([1.0]), name="sexp") for _ in range(d)]
outer = [kernel(length=np.array([1.0]), name="sexp", scale_est=True, connect=np.arange(d))]
model = dgp(X, [((y - y.mean()) / y.std())[:, None]], combine(inner, outer))
model.train(N=500, disable=True)
mean, variance = (np.ravel(each) for each in emulator(model.estimate(), N=10).predict(T, method="mean_var"))
std = np.sqrt(np.maximum(variance, 0.0)) * y.std()
answer = [(mean * y.std() + y.mean()).tolist(), std.tolist(), time.process_time() - start]
print("ANSWER" + json.dumps(answer))
"""


class Simulator(NamedTuple):
    """A function of inputs in [0, 1]^D, and how many runs there are of it."""

    run: Callable[[Array], Array]
    num_inputs: int
    num_runs: int


def step(X: Array) -> Array:
    """A jump from -1 to 1."""
    return np.where(X[:, 0] > 0.5, 1.0, -1.0)


def waves(X: Array) -> Array:
    """Fast waves, a plateau, slow waves (Sauer, Gramacy and Higdon 2023)."""
    x = X[:, 0]
    slow = np.where(x < 2 / 3, 1.0, np.cos(6 * np.pi * x))
    return 1.35 * np.where(x < 1 / 3, np.cos(12 * np.pi * x), slow)


def bump(X: Array) -> Array:
    """x exp(-x^2 - y^2) on [-2, 4]^2, flat but for one corner (Gramacy and Lee 2008)."""
    z = 6 * X - 2
    return z[:, 0] * np.exp(-np.square(z).sum(axis=1))


def michalewicz(X: Array) -> Array:
    """Narrow valleys."""
    z = np.pi * X
    return -np.sum(np.sin(z) * np.sin(np.arange(1, 3) * np.square(z) / np.pi) ** 20, axis=1)


def curved(X: Array) -> Array:
    """Three inputs, strongly curved in some (Dette and Pepelyshev 2010)."""
    x, y, z = X.T
    return 4 * (x - 2 + 8 * y - 8 * y**2) ** 2 + (3 - 4 * y) ** 2 + 16 * np.sqrt(z + 1) * (2 * z - 1) ** 2


def g_function(X: Array) -> Array:
    """Kinks along all axes (Sobol)."""
    a = (np.arange(1, 5) - 1) / 2
    return np.prod((np.abs(4 * X - 2) + a) / (1 + a), axis=1)


def plateau(X: Array) -> Array:
    """A steep edge between two plateaus of [-2, 2]^5 (Izzaturrahman et al. 2022; Booth, Renganathan and Gramacy)."""
    return 2 * norm.cdf(np.sqrt(2) * (-4 - 3 * np.sum(4 * X - 2, axis=1))) - 1


def borehole(X: Array) -> Array:
    """The flow of water through a borehole, of eight inputs: smooth."""
    low, high = BOREHOLE
    radius, influence, T_upper, H_upper, T_lower, H_lower, length, conductivity = (low + (high - low) * X).T
    ratio = np.log(influence / radius)
    resistance = ratio * (1 + 2 * length * T_upper / (ratio * radius**2 * conductivity) + T_upper / T_lower)
    return 2 * np.pi * T_upper * (H_upper - H_lower) / resistance


SIMULATORS = {
    "step": Simulator(step, 1, 20),
    "waves": Simulator(waves, 1, 30),
    "bump": Simulator(bump, 2, 60),
    "michalewicz": Simulator(michalewicz, 2, 100),
    "curved": Simulator(curved, 3, 50),
    "g_function": Simulator(g_function, 4, 150),
    "plateau": Simulator(plateau, 5, 100),
    "borehole": Simulator(borehole, 8, 80),
}


class Gaussians(NamedTuple):
    """Means and standard deviations [n], and the CPU seconds of an emulator that has a process of its own."""

    mean: Array
    std: Array
    seconds: float | None = None


def sklearn_gpr(X: Array, y: Array, T: Array) -> Gaussians:
    """Predictions at T [n, D]; so of the others."""
    # A Matern 5/2 with a scale for each input, and some white noise for conditioning.
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(np.ones(X.shape[1]), (1e-2, 1e2), nu=2.5)
    kernel += WhiteKernel(1e-6, (1e-10, 1.0))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=3, random_state=0).fit(X, y)
    return Gaussians(*model.predict(T, return_std=True))


def gpr(X: Array, y: Array, T: Array) -> Gaussians:
    """Outputs are standardised, lengthscales start at 1 / 2."""
    # Two kernels; the better one by marginal likelihood.
    models = []
    for kind in (gpflow.kernels.SquaredExponential, gpflow.kernels.Matern52):
        kernel = kind(lengthscales=np.full(X.shape[1], 0.5))
        models.append(gpflow.models.GPR((X, ((y - y.mean()) / y.std())[:, None]), kernel, noise_variance=1e-3))
        gpflow.optimizers.Scipy().minimize(models[-1].training_loss, models[-1].trainable_variables)
    mean, variance = min(models, key=lambda model: float(model.training_loss())).predict_y(T)
    return Gaussians(mean.numpy()[:, 0] * y.std() + y.mean(), np.sqrt(variance.numpy()[:, 0]) * y.std())


def deep_gp(X: Array, y: Array, T: Array) -> Gaussians:
    """Without arguments."""
    return Gaussians(*DeepGPRegressor().fit(X, y).predict(T, return_std=True))


def dgpsi(X: Array, y: Array, T: Array) -> Gaussians | None:
    """In the Python of --dgpsi; None without it."""
    if flags.FLAGS.dgpsi is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, X=X, y=y, T=T)
        mean, std, seconds = bench.answer_of(flags.FLAGS.dgpsi, DGPSI, str(path))
    return Gaussians(np.array(mean), np.array(std), float(seconds))


EMULATORS: dict[str, Callable[[Array, Array, Array], Gaussians | None]] = {
    "sklearn_gpr": sklearn_gpr,
    "gpr": gpr,
    "deep_gp": deep_gp,
    "dgpsi": dgpsi,
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("functions", list(SIMULATORS), f"Some of {', '.join(SIMULATORS)}.", flag_values=fv)
    flags.DEFINE_list("designs", ["0", "1", "2", "3", "4"], "Numbers of designs.", flag_values=fv)
    flags.DEFINE_list("models", list(EMULATORS), f"Some of {', '.join(EMULATORS)}.", flag_values=fv)
    flags.DEFINE_string("dgpsi", None, "A Python that has dgpsi.", flag_values=fv)
    bench.define_common(fv, output="Keep the results in this JSON file.")


def rows_of(simulator: Simulator, design: int) -> tuple[Array, Array, Array, Array]:
    """Inputs and outputs of a design, [N, D] and [N], and of the test."""
    # Test inputs are another hypercube, of a seed that no design has.
    X = qmc.LatinHypercube(simulator.num_inputs, seed=design).random(simulator.num_runs)
    T = qmc.LatinHypercube(simulator.num_inputs, seed=100 + design).random(NUM_TEST)
    return X, simulator.run(X), T, simulator.run(T)


def judged(mean: Array, std: Array, t: Array) -> dict[str, float]:
    """Scores of Gaussians [n] for outputs [n], in standard deviations of these."""
    std = np.maximum(std, 1e-9 * t.std())
    # The CRPS of a Gaussian in closed form.
    u = (t - mean) / std
    crps = std * (u * (2 * norm.cdf(u) - 1) + 2 * norm.pdf(u) - 1 / np.sqrt(np.pi))
    return {
        "rmse": float(np.sqrt(np.mean(np.square(t - mean))) / t.std()),
        "crps": float(np.mean(crps) / t.std()),
        "coverage_90": float(np.mean(np.abs(u) < norm.ppf(0.95))),
    }


def main(flag: flags.FlagValues) -> None:
    """All functions, designs and emulators."""
    for names, allowed in ((flag.functions, SIMULATORS), (flag.models, EMULATORS)):
        if not set(names) <= set(allowed):
            raise app.UsageError(f"{', '.join(names)} must be some of {', '.join(allowed)}.")
    # What an earlier call has measured stays.
    rows = bench.kept()
    done = {(row["function"], row["design"], row["model"]) for row in rows}
    for function in flag.functions:
        for design in map(int, flag.designs):
            X, y, T, t = rows_of(SIMULATORS[function], design)
            for model in (name for name in flag.models if (function, design, name) not in done):
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    prediction = EMULATORS[model](X, y, T)
                if prediction is None:
                    print(f"{function:11} {design} {model:11} not measured: give --dgpsi", flush=True)
                    continue
                # Of a process of its own, the time that it has measured itself.
                seconds = time.process_time() - start if prediction.seconds is None else prediction.seconds
                scores = {**judged(prediction.mean, prediction.std, t), "cpu_s": seconds}
                rows.append({"function": function, "design": design, "model": model, **scores})
                cells = "  ".join(f"{name} {score:.4f}" for name, score in scores.items())
                print(f"{function:11} {design} {model:11} {cells}", flush=True)
                bench.keep({"metrics": rows}, "none: functions, and designs with the seeds of their numbers")


if __name__ == "__main__":
    bench.run(define_flags, main)
