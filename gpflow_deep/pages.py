"""What a report of a trained model shows, as parts of a page; see :func:`gpflow_deep.report.html`.

The same as plots in Matplotlib, made and drawn as scikit-learn's displays are:

    CalibrationDisplay.from_estimator(model, X_test, y_test).plot()
    DependenceDisplay.from_estimator(model, X_test, "area").plot(axes)

A display holds the numbers that it draws. `gpflow_deep.report.html` shows the same in one file, without Matplotlib.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import gpflow
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.numbers.columns import as_numbers
from gpflow_deep_base.numbers.scores import confidence_bins
from gpflow_deep_base.page import Band, Bars, Line, Mark, Panel, Panels, Points, Table, smoothed

from .judge import evaluation
from .judge.evaluation import Evaluation, evaluate
from .model.likelihoods import Task
from .train.fitting import Part
from .train.predictor import Predicted, Predictor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "CalibrationDisplay",
    "Dependence",
    "DependenceDisplay",
    "FitOnGrid",
    "calibration_in_words",
    "calibration_parts",
    "course_part",
    "dependences",
    "fit_on_grid",
    "inputs_and_names",
    "model_parts",
    "prediction_parts",
    "shares_below",
    "tags",
]

Array = NDArray[np.float64]
MOST_INPUTS = 20
"""Of more inputs only the first are varied, as each costs a few hundred predictions; of pixels, none."""
PIXELS = 200
SHOWN_INPUTS = 6
NUM_ROWS = 40
NUM_POINTS = 15
MOST_RESIDUALS = 2000
MOST_INTERVALS = 200
MOST_CLASSES = 30
NUM_BINS = 20
Z95 = 1.96


class Dependence(NamedTuple):
    """How predictions depend on one input, the others being as in some rows of the data (Friedman, 2001, Sec. 8.2).

    :ivar column: number of the input.
    :ivar grid: values of the input, from its 2% to its 98% quantile, [G].
    :ivar mean: of the predictions over the rows, [G]: of the first target, or of the probability of a label.
    :ivar low: and `high`: mean limits of the central 95% of new targets, [G]; None for labels.
    """

    column: int
    grid: Array
    mean: Array
    low: Array | None = None
    high: Array | None = None

    @property
    def relevance(self) -> float:
        """Standard deviation of the mean over the grid, in the units of the target."""
        return float(np.std(self.mean))


def inputs_and_names(model: object, X: ArrayLike) -> tuple[Array, list[str]]:
    """Inputs [N, D] as the predictor of a model takes them, and their names: x0, x1, ... if they have none.

    :param model: an estimator, which may have read a frame with texts and dates when it was fitted, or a `Predictor`.
    :raises ValueError: naming the column, if X is a frame that the model cannot read.
    """
    X = as_numbers(X, model, reset=False)
    encoder = getattr(model, "table_encoder_", None)
    if encoder is None:
        names = getattr(X, "columns", getattr(model, "feature_names_in_", None))
    else:
        names = encoder.get_feature_names_out()
    inputs = np.asarray(X, np.float64)
    return inputs, [f"x{d}" for d in range(inputs.shape[1])] if names is None else [str(name) for name in names]


def dependences(
    predictor: Predictor, X: np.ndarray, *, label: int = 0, columns: Sequence[int] | None = None
) -> list[Dependence]:
    """Partial dependence of the predictions on each input, the most relevant first; of at most 20 inputs.

    All of them are predicted together, a few hundred rows for each.

    :param predictor: a trained model.
    :param X: inputs [N, D], of which at most 40 rows are used, evenly spread.
    :param label: of several labels, whose probability it is; of two it is that of the second.
    :param columns: numbers of the inputs; None: the first 20.
    """
    # Some rows, and the inputs that are varied.
    X = np.asarray(X, np.float64)
    columns = range(min(X.shape[1], MOST_INPUTS)) if columns is None else columns
    rows = X[np.unique(np.linspace(0, len(X) - 1, min(len(X), NUM_ROWS)).astype(int))]
    grids = list[Array]()
    varied = list[Array]()
    # For each input its grid, and all rows with each of these values.
    for column in columns:
        values = np.unique(X[:, column])
        low, high = np.quantile(X[:, column], [0.02, 0.98])
        grids.append(values if len(values) <= 10 else np.linspace(low, high, NUM_POINTS))
        block = np.repeat(rows[None], len(grids[-1]), axis=0)
        block[:, :, column] = grids[-1][:, None]
        varied.append(block.reshape(-1, X.shape[1]))
    predicted = predictor.predict(np.concatenate(varied))
    # Means over the rows, of each value of each input.
    output = label if predictor.task == "multiclass" else 0
    curves = [predicted.mean[:, output]]
    if predictor.task == "regression":
        low_limit, high_limit, _ = predicted.interval
        curves += [low_limit[:, 0], high_limit[:, 0]]
    means = [curve.reshape(-1, len(rows)).mean(axis=1) for curve in curves]
    # The curve of each input.
    ends = np.cumsum([len(grid) for grid in grids])[:-1]
    of_inputs = zip(*(np.split(mean, ends) for mean in means), strict=True)
    all_inputs = [
        Dependence(d, grid, *curves_of_input)
        for d, grid, curves_of_input in zip(columns, grids, of_inputs, strict=True)
    ]
    return sorted(all_inputs, key=lambda dependence: -dependence.relevance)


def calibration_parts(judged: Mapping[str, Evaluation]) -> list[Panels]:
    """Calibration of models, each with the band that right probabilities would stay in.

    :param judged: by the name of the model.
    """
    panels = []
    for name, judged_model in judged.items():
        if judged_model.pit is not None:
            panels += _of_pit(name, judged_model)
        elif judged_model.confidence is not None and judged_model.is_right is not None:
            panels.append(_of_confidence(name, judged_model))
    if not panels:
        return []
    note = (
        "Bands: where 95% of samples of this size would be if the probabilities were right. Distance: the largest one "
        "from the diagonal. Bars: too many in the middle is too wide, too many at the ends too narrow."
    )
    return [Panels("Calibration", panels, note)]


def calibration_in_words(found: Evaluation) -> str:
    """Whether the distributions of N targets may be right: by Kolmogorov's test at 5%, with the distance."""
    distance = found.pit_distance
    if found.pit is None or distance is None:
        return ""
    is_right = distance <= 1.36 / np.sqrt(np.size(found.pit))
    half = 0.5 if found.coverage is None or 0.5 not in found.coverage else found.coverage[0.5].value
    verdict = "not calibrated" if abs(half - 0.5) < 0.05 else "too wide" if half > 0.5 else "too narrow"
    return f"{'calibrated' if is_right else verdict} (distance {distance:.3f})"


def model_parts(
    predictor: Predictor,
    judged: Mapping[str, Evaluation],
    X: np.ndarray,
    Y: np.ndarray,
    names: Sequence[str],
    train: Part | None = None,
) -> list[Table | Panels]:
    """Scores, calibration, the function over its most relevant inputs, relevance of inputs, and `prediction_parts`.

    :param predictor: the model that the report is of.
    :param judged: this model and those that it is compared with, by name, on the same rows.
    :param X: inputs of these rows, [N, D].
    :param Y: their targets [N, P], or labels [N, 1].
    :param names: of the D inputs.
    :param train: training rows, beside which a model of one input is drawn.
    """
    scores = Table("Scores", evaluation.table(judged), "Rows that the model has not seen: mean ± standard error.")
    parts: list[Table | Panels] = [scores, *calibration_parts(judged)]
    parts += _function_parts(predictor, X, names)
    return parts + prediction_parts(predictor, X, Y, train=train, input_name=names[0])


def course_part(courses: Mapping[str, Sequence[Mapping[str, float | None]]], tags: Sequence[str]) -> Panels:
    """The course of training: what was logged, and where there is much of it its running mean in front.

    :param courses: records of a run by its title, as they are in scalars.jsonl.
    :param tags: of the scalars that are shown.
    """
    panels = []
    for tag in tags:
        marks = list[Mark]()
        for title, records in courses.items():
            # Not every record has every scalar.
            logged = [(record["step"], record[tag]) for record in records if record.get(tag) is not None]
            if not logged:
                continue
            steps, values = map(np.asarray, zip(*logged, strict=True))
            # Of many values the running mean.
            is_noisy = len(values) > 40
            late = steps >= 0.05 * steps[-1] if is_noisy else np.ones(len(steps), bool)  # the start hides the rest
            shown = smoothed(values[late]) if is_noisy else values[late]
            marks.append(Line(steps[late], shown, title) if len(shown) > 1 else Points(steps, values, title))
        if marks:
            name = tag.removesuffix("_nats").replace("/", ": ").replace("_", " ")
            panels.append(Panel(name, marks, "step", _unit(tag)))
    return Panels("Course of training", panels, "Scores of minibatches are running means over 5% of the course.")


def tags(task: Task, parts: Iterable[str]) -> list[str]:
    """Tags of the scalars that show the course of training: the bound, and the scores of each part."""
    scores = ("log_likelihood_nats", "rmse" if task == "regression" else "accuracy")
    return ["train/elbo_nats", *(f"{part}/{score}" for part in parts for score in scores)]


class FitOnGrid(NamedTuple):
    """A model of one input over the range of the data, in the units of the data.

    :ivar grid: inputs [G, 1].
    :ivar layers: for each inner layer draws of its first output at the grid, [S, G].
    :ivar band: mean, lower and upper limits of the targets at the grid, [G, P] each.
    :ivar interval: what the limits are, see `Predicted.interval`.
    """

    grid: Array
    layers: list[np.ndarray]
    band: tuple[Array, Array, Array]
    interval: str


def fit_on_grid(predictor: Predictor, X: np.ndarray, *, num_points: int = 200, num_draws: int = 20) -> FitOnGrid:
    """The fit of a model with one input over the range of the training inputs and a tenth of it to either side.

    :param X: training inputs [N, 1].
    :raises ValueError: if the model has several inputs.
    """
    if X.shape[1] != 1:
        raise ValueError(f"a fit is drawn over one input, got {X.shape[1]}; give a model of one input.")
    # The range of the inputs, and a tenth of it to either side, in the units of the model.
    scaled = predictor.units.x.transform(X)
    low = scaled.min()
    high = scaled.max()
    points = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), num_points)[:, None]
    # Draws of the inner layers, and what is predicted there.
    draws = predictor.model.predict_all_layers(points.astype(gpflow.default_float()), num_draws, full_cov=True)
    grid = predictor.units.x.inverse_transform(points)
    layers = [np.asarray(draw)[:, :, 0] for draw in draws.samples[:-1]]
    predicted = predictor.predict(grid, num_samples=1000)
    lower, upper, interval = predicted.interval
    return FitOnGrid(grid, layers, (predicted.mean, lower, upper), interval)


def prediction_parts(
    predictor: Predictor, X: np.ndarray, Y: np.ndarray, *, train: Part | None = None, input_name: str = "x"
) -> list[Table | Panels]:
    """Predictions beside the truth: numbers with their intervals and residuals, and the fit over a single input; of
    labels how many rows of each were given which.

    :param X: inputs that the model has not seen, [N, D], of which at most 2,000 rows are used, evenly spread.
    :param Y: their targets [N, P], or labels [N, 1].
    :param train: training rows, [N, D] and [N, P], beside which the fit is drawn.
    :param input_name: of the only input.
    """
    # Evenly spread rows; of labels a table, of numbers plots.
    rows = np.unique(np.linspace(0, len(X) - 1, min(len(X), MOST_RESIDUALS)).astype(int))
    predicted = predictor.predict(X[rows])
    if predictor.task != "regression":
        return _confusion(Y[rows, 0], predicted.labels, predictor.class_names)
    parts: list[Table | Panels] = [_intervals(predicted, Y[rows], predictor.target_names)]
    parts.append(_residuals(predicted, Y[rows], predictor.target_names[0]))
    if train is not None and X.shape[1] == 1:
        parts.append(_fit(fit_on_grid(predictor, train[0]), train, input_name, predictor.target_names[0]))
    return parts


def _intervals(predicted: Predicted, Y: np.ndarray, names: Sequence[str]) -> Panels:
    """Predicted beside true numbers, a plot for each target."""
    lower, upper, interval = predicted.interval
    few = np.unique(np.linspace(0, len(Y) - 1, min(len(Y), MOST_INTERVALS)).astype(int))
    panels = []
    for p, name in enumerate(names):
        # How often the interval holds, of all rows and not only of those drawn.
        is_inside = np.mean((Y[:, p] >= lower[:, p]) & (Y[:, p] <= upper[:, p]))
        title = f"{interval} interval holds {100 * is_inside:.0f}% of {len(Y)} rows"
        # Those that are drawn, with their intervals, and the line on which predictions are right.
        mean = predicted.mean[:, p]
        reach = np.maximum(np.stack([mean[few] - lower[few, p], upper[few, p] - mean[few]]), 0.0)
        ends = [min(Y[:, p].min(), mean.min()), max(Y[:, p].max(), mean.max())]
        marks: list[Mark] = [Line(ends, ends, "", is_dashed=True), Points(Y[few, p], mean[few], half=reach)]
        panels.append(Panel(title, marks, f"true {name}", f"predicted {name}"))
    note = f"At most {MOST_INTERVALS} rows are drawn, each with its interval; on the dashed line predictions are right."
    return Panels("Predicted and true", panels, note)


def _fit(fit: FitOnGrid, train: Part, input_name: str, target: str) -> Panels:
    """Draws of the inner layers, and data with the prediction of the first target."""
    x = fit.grid[:, 0]
    panels = []
    for number, draws in enumerate(fit.layers, start=1):
        lines = [Line(x, draw, is_faint=True) for draw in draws]
        panels.append(Panel(f"layer {number}, draws given the data", lines, input_name))
    mean, lower, upper = (part[:, 0] for part in fit.band)
    X, Y = train
    band = Band(x, lower, upper, fit.interval)
    marks: list[Mark] = [band, Line(x, mean, "mean"), Points(X[:, 0], Y[:, 0], "training data")]
    return Panels("Fit", [*panels, Panel("prediction", marks, input_name, target)])


def _confusion(labels: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> list[Table | Panels]:
    """How many rows of each class were given which label; of many classes, nothing."""
    C = len(names)
    if C > MOST_CLASSES:
        return []
    # Row i, column j: rows of class i that were given label j.
    counts = np.zeros([C, C], np.int64)
    np.add.at(counts, (labels.astype(np.int64), predicted), 1)
    rows = [["true", *names], *([name, *map(str, row)] for name, row in zip(names, counts, strict=True))]
    return [Table("Labels", rows, f"{np.trace(counts)} of {counts.sum()} test rows right; columns: predicted.")]


def shares_below(pit: ArrayLike) -> tuple[Array, Array, Array]:
    """Probabilities p from 0 to 1, [101] as all of these: shares of probability integral transforms of at most p, and
    half of the width of the band that holds 95 % of those of as many right ones.

    :param pit: of any shape.
    """
    # The share of n right ones has the standard deviation sqrt(p (1 - p) / n).
    ordered = np.sort(np.ravel(np.asarray(pit, np.float64)))
    p = np.linspace(0.0, 1.0, 101)
    share = np.searchsorted(ordered, p, side="right") / len(ordered)
    return p, share, Z95 * np.sqrt(p * (1 - p) / len(ordered))


def _of_pit(name: str, found: Evaluation) -> list[Panel]:
    pit = np.ravel(np.asarray(found.pit))
    # The distribution of the transforms, in the band of as many right ones.
    count = len(pit)
    p, share, half = shares_below(pit)
    title = f"{name}: {calibration_in_words(found)}"
    low, high = np.clip([p - half, p + half], 0.0, 1.0)
    curve: list[Mark] = [Band(p, low, high, "right, 95% of samples"), Line(p, share, "test rows")]
    curve.append(Line([0, 1], [0, 1], "right", is_dashed=True))
    # Their histogram, with the same band of its bars.
    counts, edges = np.histogram(pit, NUM_BINS, (0.0, 1.0))
    mean = count / NUM_BINS
    spread = Z95 * np.sqrt(count / NUM_BINS * (1 - 1 / NUM_BINS))
    band = Band([0, 1], [max(mean - spread, 0.0)] * 2, [mean + spread] * 2, "")
    return [
        Panel(title, curve, "probability of a quantile", "share of targets below it"),
        Panel(f"{name}: where targets fall", [band, Bars(counts, edges)], "probability integral transform", "rows"),
    ]


def _of_confidence(name: str, found: Evaluation) -> Panel:
    confidence = np.asarray(found.confidence)
    is_right = np.asarray(found.is_right)
    # Of each bin mean confidence and share of right labels, with the spread of as many labels that are right so often.
    bins = confidence_bins(confidence, 10)
    groups = [bins == b for b in np.unique(bins)]
    x = np.array([confidence[group].mean() for group in groups])
    share = np.array([is_right[group].mean() for group in groups])
    half = Z95 * np.sqrt(x * (1 - x) / [group.sum() for group in groups])
    error = found.calibration_error
    title = name if error is None else f"{name}: calibration error {error.value:.3f} ± {error.error:.2g}"
    marks: list[Mark] = [
        Line([0, 1], [0, 1], "right", is_dashed=True),
        Points(x, share, "bins of rows, 95% if right", half),
    ]
    return Panel(title, marks, "confidence", "share of right labels")


def _function_parts(predictor: Predictor, X: np.ndarray, names: Sequence[str]) -> list[Panels]:
    if X.shape[1] >= PIXELS:
        return []
    curves = dependences(predictor, X)
    is_regression = predictor.task == "regression"
    target = predictor.target_names[0] if is_regression else f"probability of {_label_of(predictor)}"
    # The function over each of the most relevant inputs.
    panels = []
    for curve in curves[:SHOWN_INPUTS]:
        marks: list[Mark] = [Line(curve.grid, curve.mean, "mean")]
        if curve.low is not None and curve.high is not None:
            marks.insert(0, Band(curve.grid, curve.low, curve.high, "95% of new targets"))
        panels.append(Panel(names[curve.column], marks, names[curve.column], target))
    # How far it varies over each of more inputs.
    shown_curves = curves[:20]
    bars = Bars([curve.relevance for curve in shown_curves], names=[names[curve.column] for curve in shown_curves])
    relevance = Panel("standard deviation along an input", [bars], f"units of {target}")
    note = f"Mean over {min(len(X), NUM_ROWS)} rows with this input varied and the others as they are."
    cut = f" Only the first {MOST_INPUTS} of {X.shape[1]} inputs were varied." if X.shape[1] > MOST_INPUTS else ""
    return [
        Panels("The function, by its most relevant inputs", panels, note),
        Panels("Relevance of inputs", [relevance], f"How far the curves above vary; 0 has no effect.{cut}"),
    ]


def _label_of(predictor: Predictor) -> str:
    names = predictor.class_names
    number = 0 if predictor.task == "multiclass" else 1
    return names[number] if number < len(names) else str(number)


def _residuals(predicted: Predicted, Y: np.ndarray, target: str) -> Panels:
    # Over the predictions: no trend and no funnel, if all is right.
    residual = Y[:, 0] - predicted.mean[:, 0]
    mean = predicted.mean[:, 0]
    zero = Line([mean.min(), mean.max()], [0, 0], "", is_dashed=True)
    panels = [
        Panel("true minus predicted", [zero, Points(mean, residual)], f"predicted {target}", f"residual, {target}")
    ]
    # Where deviations are predicted: whether errors are larger where these are.
    if predicted.std is not None:
        share = np.abs(residual) / predicted.std[:, 0]
        panels.append(
            Panel(
                "error by the deviation that was predicted",
                [
                    Points(predicted.std[:, 0], np.abs(residual)),
                    Line(*_running(predicted.std[:, 0], np.abs(residual)), "mean"),
                ],
                f"predicted standard deviation, {target}",
                f"absolute error, {target}",
            )
        )
        note = f"{np.mean(share > 3):.1%} of the errors are more than three predicted standard deviations."
        return Panels("Residuals", panels, note)
    return Panels("Residuals", panels)


def _running(x: Array, y: Array) -> tuple[Array, Array]:
    """Running mean of y in the order of x."""
    order = np.argsort(x)
    return x[order], smoothed(y[order], share=0.2)


def _unit(tag: str) -> str:
    name = tag.rpartition("/")[2]
    return "nats" if name.endswith("nats") else "units of the target" if name == "rmse" else name


class CalibrationDisplay(NamedTuple):
    """How often targets are below their predicted quantiles, with the band that right distributions would stay in.

    :ivar probability: of the quantiles, [101], from 0 to 1.
    :ivar share: of the targets below them, [101].
    :ivar half_width: of the band that holds 95% of samples of this size at each probability, [101].
    :ivar name: of the model.
    """

    probability: Array
    share: Array
    half_width: Array
    name: str = ""

    @classmethod
    def from_estimator(cls, estimator: object, X: ArrayLike, y: ArrayLike, *, name: str = "") -> CalibrationDisplay:
        """Of a model of numbers.

        :param estimator: whatever :func:`gpflow_deep.judge.evaluation.evaluate` takes, or a fitted `DeepGPRegressor`.
        :param X: inputs [N, D] that it has not seen; a data frame as it was fitted to.
        :param y: targets [N] or [N, P].
        :param name: for the legend.
        :raises ValueError: if it predicts labels; `sklearn.calibration.CalibrationDisplay` is for these.
        """
        inputs, _ = inputs_and_names(estimator, X)
        judged = evaluate(getattr(estimator, "predictor_", estimator), (inputs, np.asarray(y)))
        if judged.pit is None:
            raise ValueError(
                "estimator must predict numbers, got one of labels; use sklearn.calibration.CalibrationDisplay."
            )
        return cls.from_predictions(judged.pit, name=name)

    @classmethod
    def from_predictions(cls, pit: ArrayLike, *, name: str = "") -> CalibrationDisplay:
        """Of probability integral transforms.

        :param pit: predicted probabilities of a value of at most the true one, of any shape.
        :param name: for the legend.
        :raises ValueError: if there are none, or one is not between 0 and 1.
        """
        values = np.asarray(pit, np.float64)
        if not values.size or not (values.min() >= 0 and values.max() <= 1):
            raise ValueError("pit must be probabilities between 0 and 1, at least one.")
        return cls(*shares_below(values), name)

    @property
    def distance(self) -> float:
        """The largest distance of a share from its probability: 0 is best."""
        return float(np.abs(self.share - self.probability).max())

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw it.

        :param axes: Matplotlib's; None: new ones.
        :return: the axes.
        """
        axes = _axes(axes)
        p = self.probability
        low, high = np.clip([p - self.half_width, p + self.half_width], 0.0, 1.0)
        axes.fill_between(p, low, high, color="0.8", label="right, 95% of samples")
        axes.plot([0, 1], [0, 1], "k--", linewidth=0.8)
        axes.plot(p, self.share, label=f"{self.name or 'model'}: distance {self.distance:.3f}")
        axes.set(xlabel="probability of a quantile", ylabel="share of targets below it", xlim=(0, 1), ylim=(0, 1))
        axes.legend(loc="upper left")
        return axes


class DependenceDisplay(NamedTuple):
    """How predictions depend on one input, the others being as in some rows (Friedman, 2001, Sec. 8.2).

    :ivar grid: values of the input, [G].
    :ivar mean: of the predictions, or of the probability of a label, [G].
    :ivar low: and `high`: mean limits of the central 95% of new targets, [G]; None for labels.
    :ivar feature_name: of the input.
    """

    grid: Array
    mean: Array
    low: Array | None
    high: Array | None
    feature_name: str

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, feature: SupportsIndex | str, *, label: int = 0
    ) -> DependenceDisplay:
        """Of a model and one of its inputs.

        :param estimator: a fitted `DeepGPRegressor` or `DeepGPClassifier`, or a `Predictor`.
        :param X: inputs [N, D], of which at most 40 rows are used, evenly spread; a data frame has names of columns.
        :param feature: number of the input, or its name.
        :param label: of several labels, whose probability it is; of two it is that of the second.
        :raises ValueError: if X has no such input.
        """
        inputs, names = inputs_and_names(estimator, X)
        # A name, or a number.
        column = names.index(feature) if feature in names else feature
        if not isinstance(column, int | np.integer) or not 0 <= column < len(names):
            raise ValueError(f"feature must be one of {', '.join(names)}, or its number, got {feature!r}.")
        predictor = getattr(estimator, "predictor_", estimator)
        (curve,) = dependences(predictor, inputs, label=label, columns=[int(column)])
        return cls(curve.grid, curve.mean, curve.low, curve.high, names[column])

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw it.

        :param axes: Matplotlib's; None: new ones.
        :return: the axes.
        """
        axes = _axes(axes)
        if self.low is not None and self.high is not None:
            axes.fill_between(self.grid, self.low, self.high, alpha=0.2, label="95% of new targets")
        axes.plot(self.grid, self.mean, label="mean")
        axes.set(xlabel=self.feature_name, ylabel="prediction")
        axes.legend(loc="upper left")
        return axes


def _axes(axes: Axes | None) -> Axes:
    if axes is not None:
        return axes
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]
