"""What is said about a deep GP while it is trained and at the end: numbers by name, tables as cells, curves as arrays.

Tags are `part/quantity_unit`. Scores are in the units of the data; log-likelihoods are nats per row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
from numpy.typing import NDArray

from .config import ModelConfig
from .deep_gp import DeepGP
from .diagnostics import diagnose
from .layers import SVGPLayer
from .predictor import Predicted, Predictor
from .scaling import REAL_TARGETS, Units
from .scores import Task, metrics
from .training import Trainer, clear_errors

__all__ = [
    "Final",
    "FitOnGrid",
    "Intervals",
    "Watch",
    "caption",
    "curve_tags",
    "evaluate",
    "fit_on_grid",
    "histograms",
    "intervals",
    "layer_scalars",
    "linear_baseline",
    "notes",
    "num_parameters",
    "summary",
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
    :ivar scalars: to log: as `evaluate` gives them, of the rows to look at during training.
    :ivar predicted: of all rows of each part.
    """

    scores: dict[str, dict[str, float]]
    scalars: dict[str, float]
    predicted: dict[str, Predicted]


class Watch:
    """Scores of some rows while a model is trained, and of all rows at the end.

    :param parts: what is scored, by name, in the units of the data.
    :param eval_rows: rows of each part, drawn without replacement, to look at during training.
    :param rng: the generator that draws the rows of a part, by the name of the part.
    :raises ValueError: if `eval_rows` is not positive.
    """

    def __init__(
        self,
        predictor: Predictor,
        parts: Mapping[str, Part],
        *,
        eval_rows: int = 10_000,
        rng: Callable[[str], np.random.Generator] = lambda name: np.random.default_rng(0),
    ) -> None:
        if eval_rows < 1:
            raise ValueError(f"eval_rows must be at least 1, got {eval_rows}.")
        self.predictor, self.parts = predictor, parts
        self.rows: dict[str, NDArray[np.int64]] = {}
        for name, (X, _) in parts.items():
            chosen = np.arange(len(X)) if len(X) <= eval_rows else rng(name).choice(len(X), eval_rows, replace=False)
            self.rows[name] = np.sort(chosen)

    def during(self) -> dict[str, float]:
        """`evaluate` of the rows to look at."""
        return evaluate(self.predictor, {n: (X[self.rows[n]], Y[self.rows[n]]) for n, (X, Y) in self.parts.items()})

    def final(self) -> Final:
        """Scores of all rows, and again of those to look at."""
        predicted = {name: self.predictor.evaluate(*part) for name, part in self.parts.items()}
        scores, seen = {}, {}
        for name, (_, Y) in self.parts.items():
            found, rows = predicted[name], self.rows[name]
            density = found.log_density
            some = Predicted(found.mean[rows], log_density=None if density is None else density[rows])
            scores[name], seen[name] = self.predictor.scores(Y, found), self.predictor.scores(Y[rows], some)
        return Final(scores, {**_tagged(seen), **layer_scalars(self.predictor.model)}, predicted)


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
        if layer.condition_number is not None and layer.jitter is not None:
            scalars[f"{name}/condition_Kuu"], scalars[f"{name}/jitter"] = layer.condition_number, layer.jitter
        scalars[f"{name}/noise_variance"] = layer.noise_variance
        if len(layer.kernel_variances):
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
    """Of every GP layer: means of q(u), diagonals of its factors (of the prior: 0 and 1, if whitened), lengthscales."""
    shown: dict[str, NDArray[Any]] = {}
    for number, layer in enumerate(model.layers, start=1):
        if not isinstance(layer, SVGPLayer):
            continue
        q_sqrt = layer.q_sqrt.numpy()
        shown[f"layer_{number}/q_mu"] = layer.q_mu.numpy()
        shown[f"layer_{number}/q_sqrt_diagonal"] = q_sqrt if layer.q_diag else np.diagonal(q_sqrt, axis1=1, axis2=2)
        found = [np.ravel(kernel.lengthscales) for kernel in layer.latent_kernels if hasattr(kernel, "lengthscales")]
        if found:
            shown[f"layer_{number}/lengthscales"] = np.concatenate(found)
    return shown


def summary(trainer: Trainer, final: Final) -> dict[str, Any]:
    """What a report says of one model: its size, the seconds of training, and its scores by part."""
    return {
        "num_layers": len(trainer.model.layers),
        "train_seconds": float(trainer.seconds),
        "num_parameters": num_parameters(trainer.model),
        **final.scores,
    }


def num_parameters(model: DeepGP) -> int:
    """Numbers that the model is made of, trained or fixed."""
    return sum(int(np.prod(parameter.shape)) for parameter in model.parameters)


def linear_baseline(units: Units, train: Part, parts: Mapping[str, Part], likelihood: str) -> dict[str, Any]:
    """Least squares with Gaussian noise of the training residuals' variance, scored like a deep GP.

    :param train: the training rows in the units of the data.
    :param likelihood: of the deep GP that it is compared with.
    :return: scores of each part by its name, "train_seconds" and "num_parameters".
    :raises ValueError: if the targets are not real numbers, or the training rows are fitted exactly.
    """
    if likelihood not in REAL_TARGETS:
        raise ValueError("compare=linear needs a regression with real targets; leave it out.")
    start = time.monotonic()

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
    seconds = time.monotonic() - start
    return {"train_seconds": seconds, "num_parameters": weights.size + variance.size, **scores}


class Intervals(NamedTuple):
    """Predicted targets beside the true ones, in the units of the data.

    :ivar Y: true targets [N, P]. :ivar mean: predicted means [N, P]; and limits `lower` and `upper` [N, P].
    :ivar interval: what the limits are, see `Predicted.interval`. :ivar names: of the targets.
    """

    Y: NDArray[Any]
    mean: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    interval: str
    names: tuple[str, ...]


def intervals(predictor: Predictor, part: Part, rng: np.random.Generator, *, max_rows: int = 2000) -> Intervals:
    """Predictions for at most `max_rows` rows of a part, drawn at random, in their order."""
    X, Y = part
    rows = np.sort(rng.permutation(len(X))[:max_rows])
    predicted = predictor.predict(X[rows])
    lower, upper, what = predicted.interval
    return Intervals(Y[rows], predicted.mean, lower, upper, what, predictor.target_names)


class FitOnGrid(NamedTuple):
    """A model of one input over the range of the data, in the units of the data.

    :ivar train: inputs [N, 1] and targets [N, P] that it learned from.
    :ivar grid: inputs [G, 1].
    :ivar layers: for each inner layer draws of its first output at the grid, [S, G].
    :ivar band: mean, lower and upper limits of the targets at the grid, [G, P] each.
    :ivar interval: what the limits are, see `Predicted.interval`.
    """

    train: Part
    grid: NDArray[np.float64]
    layers: list[NDArray[Any]]
    band: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
    interval: str


def fit_on_grid(predictor: Predictor, train: Part, *, num_points: int = 200, num_draws: int = 20) -> FitOnGrid:
    """The fit of a model with one input over the range of the training inputs and a tenth of it to either side.

    :raises ValueError: if the model has several inputs.
    """
    X, _ = train
    if X.shape[1] != 1:
        raise ValueError(f"a fit is drawn over one input, got {X.shape[1]}; give a model of one input.")
    scaled = predictor.units.x.transform(X)
    low, high = scaled.min(), scaled.max()
    points = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), num_points)[:, None]
    draws = predictor.model.predict_all_layers(points.astype(gpflow.default_float()), num_draws, full_cov=True)
    grid = predictor.units.x.inverse_transform(points)
    layers = [np.asarray(draw)[:, :, 0] for draw in draws.samples[:-1]]
    predicted = predictor.predict(grid, num_samples=1000)
    lower, upper, what = predicted.interval
    return FitOnGrid(train, grid, layers, (predicted.mean, lower, upper), what)


def notes(config: ModelConfig, units: Units, feature_names: Sequence[str], num_rows: int) -> list[str]:
    """What a user may want to change: inputs that do not vary, and more inducing inputs than training rows."""
    found = []
    if names := [feature_names[d] for d in units.x.constant_columns]:
        found.append(f"these inputs do not vary in the training part and have no effect: {', '.join(names)}.")
    if num_rows < config.num_inducing:
        found.append(f"num_inducing={config.num_inducing} is more than the {num_rows} training rows; fewer would do.")
    return found


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


def caption(task: Task, target_names: Sequence[str]) -> str:
    """What the units of the scores in a table are."""
    scores = f"; it and RMSE in the units of {', '.join(target_names)!r}" if task == "regression" else ""
    return f"log-likelihood: nats per row{scores}"


def curve_tags(task: Task, parts: Iterable[str]) -> list[str]:
    """Tags of the scalars that show the course of training: the bound, and the scores of each part."""
    scores = ("log_likelihood_nats", "rmse" if task == "regression" else "accuracy")
    return ["train/elbo_nats", *(f"{part}/{score}" for part in parts for score in scores)]


def _tagged(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"{part}/{name}": value for part, values in scores.items() for name, value in values.items()}
