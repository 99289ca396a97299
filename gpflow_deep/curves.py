"""What the plots of a run show, as arrays in the units of the data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import gpflow
import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.scores import confidence_bins

from . import pages, report
from .judge.evaluation import Evaluation
from .model.scores import Task
from .train.fitting import Part
from .train.predictor import Predicted, Predictor

__all__ = [
    "Calibration",
    "FitOnGrid",
    "Intervals",
    "calibration",
    "drawings",
    "fit_on_grid",
    "intervals",
    "pit_histogram",
    "tags",
]


def tags(task: Task, parts: Iterable[str]) -> list[str]:
    """Tags of the scalars that show the course of training: the bound, and the scores of each part."""
    scores = ("log_likelihood_nats", "rmse" if task == "regression" else "accuracy")
    return ["train/elbo_nats", *(f"{part}/{score}" for part in parts for score in scores)]


class Intervals(NamedTuple):
    """Predicted targets beside the true ones, in the units of the data.

    :ivar Y: true targets [N, P].
    :ivar mean: predicted means [N, P]; and limits `lower` and `upper` [N, P].
    :ivar interval: what the limits are, see `Predicted.interval`.
    :ivar names: of the targets.
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
    lower, upper, interval = predicted.interval
    return Intervals(Y[rows], predicted.mean, lower, upper, interval, predictor.target_names)


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
    # The range of the inputs, and a tenth of it to either side, in the units of the model.
    scaled = predictor.units.x.transform(X)
    low = scaled.min()
    high = scaled.max()
    points = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), num_points)[:, None]
    draws = predictor.model.predict_all_layers(points.astype(gpflow.default_float()), num_draws, full_cov=True)
    grid = predictor.units.x.inverse_transform(points)
    layers = [np.asarray(draw)[:, :, 0] for draw in draws.samples[:-1]]
    predicted = predictor.predict(grid, num_samples=1000)
    lower, upper, interval = predicted.interval
    return FitOnGrid(train, grid, layers, (predicted.mean, lower, upper), interval)


class Calibration(NamedTuple):
    """Panels of lines, by title and label: x, y, half the length of error bars or None, and a Matplotlib format."""

    panels: dict[str, dict[str, tuple[Any, ...]]]
    xlabel: str
    ylabel: str


def calibration(title: str, judged: Evaluation, *, num_bins: int = 10) -> Calibration | None:
    """A calibration plot: its line stays in the band about the diagonal if the model's probabilities are right.

    Of numbers: probabilities, and the shares of targets below these quantiles. Of labels: mean confidence of the rows
    in bins, the shares of them whose label is right, and their standard errors.

    :return: None for likelihoods without a distribution function.
    """
    p = np.linspace(0, 1, 101)
    spread = None
    if judged.pit is not None:
        # Numbers: the distribution of their transforms, in the band of samples from right ones.
        pit = np.sort(np.ravel(judged.pit))
        spread = 1.96 * np.sqrt(p * (1 - p) / len(pit))
        title = f"{title}: {pages.calibration_in_words(judged)}"
        line: tuple[Any, ...] = (pit, np.arange(1, len(pit) + 1) / len(pit), None, "-")
        axes = ("probability", "share of targets below this quantile")
    elif judged.confidence is not None and judged.is_right is not None:
        # Labels: the share of right ones, by bins of confidence.
        bins = confidence_bins(judged.confidence, num_bins)
        groups = [(judged.confidence[bins == b], judged.is_right[bins == b]) for b in np.unique(bins)]
        share = np.array([is_right.mean() for _, is_right in groups])
        error = np.sqrt(share * (1 - share) / [len(is_right) for _, is_right in groups])
        line = ([confidence.mean() for confidence, _ in groups], share, error, "o")
        axes = ("confidence", "share of right labels")
        if (calibration_error := judged.calibration_error) is not None:
            title = f"{title}: calibration error {calibration_error.value:.3f} ± {calibration_error.error:.2g}"
    else:
        return None
    of_right = "right probabilities" if spread is None else "right probabilities, 95% of samples"
    return Calibration({title: {"test rows": line, of_right: (p, p, spread, "k--")}}, *axes)


def pit_histogram(judged: Evaluation, *, num_bins: int = 20) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """Counts [bins] and edges [bins + 1] of the probability integral transforms, which are uniform if predicted
    distributions are right; None where there are none.
    """
    return None if judged.pit is None else np.histogram(np.ravel(judged.pit), num_bins, (0.0, 1.0))


def drawings(
    predictor: Predictor,
    judged: Evaluation,
    predicted: Predicted,
    train: Part,
    test: Part,
    rng: np.random.Generator,
    *,
    input_name: str = "x",
) -> dict[str, tuple[str, dict[str, Any]]]:
    """All plots of a trained model: name -> (kind, arguments).

    The kinds are "lines", "histograms", "confusion_matrix", "predicted_vs_true" and "fit_1d".

    :param judged: and `predicted`: of the test rows.
    :param rng: chooses some of them, where there are many.
    :param input_name: of the only input.
    """
    title = report.title(report.depth(predictor.model))
    names = predictor.target_names
    (X, Y) = test
    drawn: dict[str, tuple[str, dict[str, Any]]] = {}
    if (diagram := calibration(title, judged)) is not None:
        drawn["calibration"] = "lines", diagram._asdict()
    if (pit := pit_histogram(judged)) is not None:
        drawn["pit"] = "histograms", {"panels": {title: (*pit, {})}, "xlabel": "probability integral transform"}
    if predictor.task != "regression":
        labels = {"labels": Y[:, 0], "predicted": predicted.labels, "class_names": predictor.class_names}
        return {**drawn, "confusion_matrix": ("confusion_matrix", labels)}
    drawn["predicted_vs_true"] = "predicted_vs_true", intervals(predictor, test, rng)._asdict()
    if X.shape[1] == 1:
        drawn["fit"] = "fit_1d", {**fit_on_grid(predictor, train)._asdict(), "names": (input_name, names[0])}
    return drawn
