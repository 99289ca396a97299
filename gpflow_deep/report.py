"""What is said about a deep GP while it is trained and at the end: numbers by name, tables as cells, curves as arrays.

Tags are `part/quantity_unit`. Scores are in the units of the data; log-likelihoods are nats per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
from numpy.typing import NDArray

from .deep_gp import DeepGP
from .diagnostics import diagnose
from .predictor import Predicted, Predictor
from .scaling import REAL_TARGETS, Units
from .scores import metrics
from .training import clear_errors

__all__ = [
    "Final",
    "FitOnGrid",
    "evaluate",
    "final",
    "fit_on_grid",
    "histograms",
    "layer_scalars",
    "linear_baseline",
    "num_parameters",
    "table",
    "title",
]

Part = tuple[NDArray[Any], NDArray[Any]]
"""Inputs [N, D] and targets [N, P] in the units of the data."""

HEADERS = {"log_likelihood_nats": "log-likelihood", "rmse": "RMSE", "accuracy": "accuracy", "auc": "AUC"}
MAX_SINGLE_LENGTHSCALES = 10


def evaluate(predictor: Predictor, parts: Mapping[str, Part]) -> dict[str, float]:
    """Scores of each part, as "test/rmse", and the scalars of the layers, by the model's current parameters."""
    return {**_tagged({name: predictor.score(*part) for name, part in parts.items()}), **layer_scalars(predictor.model)}


class Final(NamedTuple):
    """The end of a run.

    :ivar scores: of all rows of each part, by name of the part: "log_likelihood_nats" and so on.
    :ivar scalars: to log: as `evaluate` gives them, of the rows that were looked at during training.
    :ivar predicted: of all rows of each part.
    """

    scores: dict[str, dict[str, float]]
    scalars: dict[str, float]
    predicted: dict[str, Predicted]


def final(predictor: Predictor, parts: Mapping[str, Part], watched: Mapping[str, NDArray[np.int64]]) -> Final:
    """Scores of all rows of each part, and of those that were looked at during training.

    :param watched: numbers of these rows in each part.
    """
    predicted = {name: predictor.evaluate(*part) for name, part in parts.items()}
    scores, seen = {}, {}
    for name, (_, Y) in parts.items():
        found, rows = predicted[name], watched[name]
        scores[name] = predictor.scores(Y, found)
        some = Predicted(found.mean[rows], log_density=None if found.log_density is None else found.log_density[rows])
        seen[name] = predictor.scores(Y[rows], some)
    return Final(scores, {**_tagged(seen), **layer_scalars(predictor.model)}, predicted)


def layer_scalars(model: DeepGP) -> dict[str, float]:
    """KL, conditioning, jitter and hyperparameters of every layer, as "layer_1/kl_nats"; parameters of the likelihood.

    :raises FloatingPointError: if a factorisation fails.
    """
    scalars: dict[str, float] = {}
    with clear_errors("looking at the layers failed: "):
        layers = diagnose(model)
    for number, layer in enumerate(layers, start=1):
        name = f"layer_{number}"
        scalars[f"{name}/kl_nats"] = layer.kl_nats
        scalars[f"{name}/condition_Kuu"] = layer.condition_number
        scalars[f"{name}/jitter"] = layer.jitter
        scalars[f"{name}/noise_variance"] = layer.noise_variance
        scalars[f"{name}/kernel_variance"] = float(np.mean(layer.kernel_variances))
        lengthscales = np.ravel(layer.lengthscales)
        if len(lengthscales) <= MAX_SINGLE_LENGTHSCALES:
            scalars.update({f"{name}/lengthscale_{d}": float(value) for d, value in enumerate(lengthscales)})
        else:
            for kind in ("min", "mean", "max"):
                scalars[f"{name}/lengthscale_{kind}"] = float(getattr(np, kind)(lengthscales))
    for name, parameter in gpflow.utilities.parameter_dict(model.likelihood).items():
        if np.size(parameter.numpy()) == 1:
            scalars[f"likelihood/{name.lstrip('.').replace('.', '_')}"] = float(parameter.numpy())
    return scalars


def histograms(model: DeepGP) -> dict[str, NDArray[Any]]:
    """Of every layer: means of q(u), diagonals of its factors (1 and 0 off the prior if whitened), and lengthscales."""
    shown: dict[str, NDArray[Any]] = {}
    for number, layer in enumerate(model.layers, start=1):
        q_sqrt = layer.q_sqrt.numpy()
        shown[f"layer_{number}/q_mu"] = layer.q_mu.numpy()
        shown[f"layer_{number}/q_sqrt_diagonal"] = q_sqrt if layer.q_diag else np.diagonal(q_sqrt, axis1=1, axis2=2)
        found = [np.ravel(kernel.lengthscales) for kernel in layer.latent_kernels if hasattr(kernel, "lengthscales")]
        if found:
            shown[f"layer_{number}/lengthscales"] = np.concatenate(found)
    return shown


def num_parameters(model: DeepGP) -> int:
    """Numbers that the model is made of, trained or fixed."""
    return sum(int(np.prod(parameter.shape)) for parameter in model.parameters)


def linear_baseline(units: Units, train: Part, parts: Mapping[str, Part], likelihood: str) -> dict[str, Any]:
    """Least squares with Gaussian noise of the training residuals' variance, scored like a deep GP.

    :param train: the training rows in the units of the data.
    :param likelihood: of the deep GP that it is compared with.
    :return: scores of each part by its name, and "num_parameters".
    :raises ValueError: if the targets are not real numbers, or the training rows are fitted exactly.
    """
    if likelihood not in REAL_TARGETS:
        raise ValueError("compare=linear needs a regression with real targets; leave it out.")

    def with_one(X: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([X, np.ones([len(X), 1])], axis=1)

    X, Y = (array.astype(np.float64) for array in units.transform(*train))
    weights = np.linalg.lstsq(with_one(X), Y, rcond=None)[0]
    variance = np.mean(np.square(Y - with_one(X) @ weights), axis=0)
    if not np.all(variance > 1e-12):
        raise ValueError("compare=linear fits the training rows exactly, so it has no likelihood; leave it out.")
    scores = {}
    for name, (X, Y) in parts.items():
        mean = with_one(units.x.transform(X)) @ weights
        terms = np.log(2 * np.pi * variance) + np.square(units.y.transform(Y) - mean) / variance
        log_density = -0.5 * terms.sum(axis=1) - units.y.log_volume
        scores[name] = metrics("regression", Y, units.y.inverse_transform(mean), log_density)
    return {"num_parameters": weights.size + variance.size, **scores}


class FitOnGrid(NamedTuple):
    """A model of one input over the range of the data.

    :ivar X: inputs [G, 1] in the units of the data.
    :ivar layers: for each inner layer draws of its first output, [S, G].
    :ivar predicted: the targets at X.
    """

    X: NDArray[np.float64]
    layers: list[NDArray[Any]]
    predicted: Predicted


def fit_on_grid(predictor: Predictor, X: NDArray[Any], *, num_points: int = 200, num_draws: int = 20) -> FitOnGrid:
    """The fit of a model with one input over the range of X [N, 1] and a tenth of it to either side.

    :raises ValueError: if the model has several inputs.
    """
    if X.shape[1] != 1:
        raise ValueError(f"a fit is drawn over one input, got {X.shape[1]}; give a model of one input.")
    scaled = predictor.units.x.transform(X)
    low, high = scaled.min(), scaled.max()
    grid = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), num_points)[:, None]
    draws = predictor.model.predict_all_layers(grid.astype(gpflow.default_float()), num_draws, full_cov=True)
    raw = predictor.units.x.inverse_transform(grid)
    layers = [np.asarray(draw)[:, :, 0] for draw in draws.samples[:-1]]
    return FitOnGrid(raw, layers, predictor.predict(raw, num_samples=1000))


def title(num_layers: int) -> str:
    """What a model of so many layers is called."""
    return "GP (1 layer)" if num_layers == 1 else f"deep GP ({num_layers} layers)"


def table(models: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Scores of all models as the cells of a table, with a line of headers.

    :param models: name -> scores of "valid" and "test" by their names, "train_seconds", and of a deep GP "num_layers"
        and "num_steps". The last one says which scores there are.
    """
    last: Sequence[Mapping[str, Any]] = list(models.values())[-1:]
    columns = [(part, key) for part in ("valid", "test") for key in HEADERS for m in last if key in m.get(part, {})]
    lines = [["", *(f"{part} {HEADERS[key]}" for part, key in columns), "steps", "seconds"]]
    for name, model in models.items():
        label = title(model["num_layers"]) if "num_layers" in model else name
        cells = [f"{model[part].get(key, np.nan):.4f}" for part, key in columns]
        lines.append([label, *cells, str(model.get("num_steps", "")), f"{model['train_seconds']:.1f}"])
    return lines


def _tagged(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"{part}/{name}": value for part, values in scores.items() for name, value in values.items()}
