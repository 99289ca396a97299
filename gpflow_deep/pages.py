"""What a report of a trained model shows, as parts of a page; see :func:`gpflow_deep.report.html`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.page import Band, Bars, Line, Panel, Panels, Points, Table, smoothed
from gpflow_deep_base.scores import confidence_bins

from .judge import evaluation
from .judge.evaluation import Evaluation
from .train.predictor import Predictor

__all__ = ["Dependence", "calibration_in_words", "calibration_parts", "course_part", "dependences", "model_parts"]

Array = NDArray[np.float64]
MOST_INPUTS = 20
"""Of more inputs only the first are varied, as each costs a few hundred predictions; of pixels, none."""
PIXELS = 200
SHOWN_INPUTS = 6
NUM_ROWS = 40
NUM_POINTS = 15
MOST_RESIDUALS = 2000
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


def dependences(
    predictor: Predictor, X: NDArray[Any], *, label: int = 0, columns: Sequence[int] | None = None
) -> list[Dependence]:
    """Partial dependence of the predictions on each input, the most relevant first; of at most 20 inputs.

    All of them are predicted together, a few hundred rows for each.

    :param predictor: a trained model.
    :param X: inputs [N, D], of which at most 40 rows are used, evenly spread.
    :param label: of several labels, whose probability it is; of two it is that of the second.
    :param columns: numbers of the inputs; None: the first 20.
    """
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
    # means over the rows, of each value of each input
    output = label if predictor.task == "multiclass" else 0
    curves = [predicted.mean[:, output]]
    if predictor.task == "regression":
        low_limit, high_limit, _ = predicted.interval
        curves += [low_limit[:, 0], high_limit[:, 0]]
    means = [curve.reshape(-1, len(rows)).mean(axis=1) for curve in curves]
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
    predictor: Predictor, judged: Mapping[str, Evaluation], X: NDArray[Any], Y: NDArray[Any], names: Sequence[str]
) -> list[Table | Panels]:
    """Scores, calibration, the function over its most relevant inputs, relevance of inputs, and residuals.

    :param predictor: the model that the report is of.
    :param judged: this model and those that it is compared with, by name, on the same rows.
    :param X: inputs of these rows, [N, D].
    :param Y: their targets [N, P], or labels [N, 1].
    :param names: of the D inputs.
    """
    scores = Table("Scores", evaluation.table(judged), "Rows that the model has not seen: mean ± standard error.")
    parts: list[Table | Panels] = [scores, *calibration_parts(judged)]
    parts += _function_parts(predictor, X, names)
    if predictor.task == "regression":
        parts.append(_residuals(predictor, X, Y))
    return parts


def course_part(courses: Mapping[str, Sequence[Mapping[str, Any]]], tags: Sequence[str]) -> Panels:
    """The course of training: what was logged, and where there is much of it its running mean in front.

    :param courses: records of a run by its title, as they are in scalars.jsonl.
    :param tags: of the scalars that are shown.
    """
    panels = []
    for tag in tags:
        marks = list[Any]()
        for title, records in courses.items():
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


def _of_pit(name: str, found: Evaluation) -> list[Panel]:
    pit = np.sort(np.ravel(np.asarray(found.pit)))
    # The distribution of the transforms, in the band of as many right ones.
    count = len(pit)
    p = np.linspace(0, 1, 101)
    half = Z95 * np.sqrt(p * (1 - p) / count)
    title = f"{name}: {calibration_in_words(found)}"
    share = np.searchsorted(pit, p, side="right") / count
    curve: list[Any] = [Band(p, p - half, p + half, "right, 95% of samples"), Line(p, share, "test rows")]
    curve.append(Line([0, 1], [0, 1], "right", is_dashed=True))
    # Their histogram, with the same band of its bars.
    counts, edges = np.histogram(pit, NUM_BINS, (0.0, 1.0))
    mean = count / NUM_BINS
    spread = Z95 * np.sqrt(count / NUM_BINS * (1 - 1 / NUM_BINS))
    band = Band([0, 1], [mean - spread] * 2, [mean + spread] * 2, "")
    return [
        Panel(title, curve, "probability of a quantile", "share of targets below it"),
        Panel(f"{name}: where targets fall", [band, Bars(counts, edges)], "probability integral transform", "rows"),
    ]


def _of_confidence(name: str, found: Evaluation) -> Panel:
    confidence = np.asarray(found.confidence)
    is_right = np.asarray(found.is_right)
    bins = confidence_bins(confidence, 10)
    groups = [bins == b for b in np.unique(bins)]
    x = np.array([confidence[group].mean() for group in groups])
    share = np.array([is_right[group].mean() for group in groups])
    half = Z95 * np.sqrt(x * (1 - x) / [group.sum() for group in groups])
    error = found.calibration_error
    title = name if error is None else f"{name}: calibration error {error.value:.3f} ± {error.error:.2g}"
    marks: list[Any] = [
        Line([0, 1], [0, 1], "right", is_dashed=True),
        Points(x, share, "bins of rows, 95% if right", half),
    ]
    return Panel(title, marks, "confidence", "share of right labels")


def _function_parts(predictor: Predictor, X: NDArray[Any], names: Sequence[str]) -> list[Panels]:
    if X.shape[1] >= PIXELS:
        return []
    curves = dependences(predictor, X)
    is_regression = predictor.task == "regression"
    target = predictor.target_names[0] if is_regression else f"probability of {_label_of(predictor)}"
    # The function over each of the most relevant inputs.
    panels = []
    for curve in curves[:SHOWN_INPUTS]:
        marks: list[Any] = [Line(curve.grid, curve.mean, "mean")]
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


def _residuals(predictor: Predictor, X: NDArray[Any], Y: NDArray[Any]) -> Panels:
    rows = np.unique(np.linspace(0, len(X) - 1, min(len(X), MOST_RESIDUALS)).astype(int))
    X = X[rows]
    Y = Y[rows]
    predicted = predictor.predict(X)
    target = predictor.target_names[0]
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
