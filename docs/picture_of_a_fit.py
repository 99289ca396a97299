#!/usr/bin/env python3
"""The picture of the start page: a step, the draws of two layers given the data, and the prediction beside one GP's.

python docs/picture_of_a_fit.py
"""

from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from gpflow_deep import DeepGPRegressor
from gpflow_deep.pages import fit_on_grid

PATH = Path(__file__).resolve().parent / "deep_gp.png"


def rows() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A step with little noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(200, 1))
    return X, np.sign(X[:, 0]) + 0.05 * rng.normal(size=200)


def band(axes: Axes, model: DeepGPRegressor, title: str) -> list[NDArray[np.float64]]:
    """Data, mean and 95 % band; the draws of the inner layers on the grid."""
    X, y = rows()
    fit = fit_on_grid(model.predictor_, X)
    x = fit.grid[:, 0]
    mean, lower, upper = (part[:, 0] for part in fit.band)
    axes.plot(X[:, 0], y, ".", color="black", markersize=2, alpha=0.5)
    axes.plot(x, mean, color="C1")
    axes.fill_between(x, lower, upper, color="C1", alpha=0.3, linewidth=0)
    axes.set(title=title, xlabel="x", ylim=(-2.2, 2.2))
    return [*fit.layers]


def main() -> None:
    """Train both and draw them."""
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    X, y = rows()
    # The same settings for both depths.
    regressor = partial(
        DeepGPRegressor,
        num_inducing=40,
        max_iter=1000,
        likelihood="gaussian",
        kernel="squared_exponential",
        random_state=0,
    )
    single = regressor(1).fit(X, y)
    deep = regressor(2).fit(X, y)
    # Left one GP, right the deep one, and between them the draws of its first layer.
    figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
    band(axes[0], single, "one GP, 95 % band")
    (draws,) = band(axes[2], deep, "two layers, 95 % band")
    x = fit_on_grid(deep.predictor_, X).grid[:, 0]
    axes[1].plot(x, draws.T, color="C0", linewidth=0.7, alpha=0.6)
    axes[1].set(title="the first of two layers", xlabel="x")
    figure.savefig(PATH, dpi=120)


if __name__ == "__main__":
    main()
