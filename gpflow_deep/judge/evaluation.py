"""How good a model is on rows that it has not seen: scores with their standard errors over these rows.

    found = evaluate(model, (X_test, Y_test))       # a Predictor, a LinearModel, or any GPflow model as it is
    found.log_density, found.rmse, found.crps       # Score(value=-2.31, error=0.05), in nats and in the units of Y
    found.coverage[0.9].value                       # share of targets within the central 90% intervals
    found.pit                                       # uniform on [0, 1] if the predicted distributions are right

| score               | of      | what it is                                                                 |
|---------------------|---------|----------------------------------------------------------------------------|
| `log_density`       | all     | mean of log p(y_n), nats per row                                           |
| `rmse`              | numbers | root mean square error of the means                                        |
| `crps`              | numbers | mean of int (P(y_n <= z) - [y_n <= z])^2 dz over rows and targets          |
| `coverage`          | numbers | share of targets within central intervals of 50, 90 and 95%                |
| `error`             | labels  | share of rows whose most probable label is wrong                           |
| `calibration_error` | labels  | mean |accuracy - confidence| over 15 bins of confidence (Guo et al., 2017) |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest

from gpflow_deep_base.numbers.scores import calibration_error, standard_error
from gpflow_deep_base.text import plus_minus

from .forecasts import Forecast, forecaster_of

__all__ = [
    "COVERAGES",
    "Evaluation",
    "Score",
    "coverage_in_words",
    "difference",
    "evaluate",
    "table",
]

Array = NDArray[np.float64]

COVERAGES = (0.5, 0.9, 0.95)
"""Probabilities of the central intervals."""

#: Share of rows within the central 50% intervals from which on, and up to which, something is said.
TOO_WIDE = 0.6
TOO_NARROW = 0.4
BATCH_ROWS = 10_000
_NUM_RESAMPLES = 200
_MOST_DECIMALS = 6
_LARGE = 1e7


class Score(NamedTuple):
    """A mean over rows and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        """Both with two digits of the error: "-4.710 ± 0.011"; very large and very small ones by powers of ten."""
        decimals = max(0, 1 - math.floor(math.log10(self.error))) if 0 < self.error < math.inf else _MOST_DECIMALS + 1
        if decimals > _MOST_DECIMALS or abs(self.value) >= _LARGE:
            return f"{self.value:.4g} ± {self.error:.2g}"
        return plus_minus(self.value, self.error, decimals)


class Evaluation(NamedTuple):
    """Scores of N rows; those that the task does not have are None. The module's docstring says what each is.

    :ivar coverage: probability of a central interval -> share of targets in it.
    :ivar pit: probability integral transforms [N, P] of numbers (of counts, the middle of their steps).
    :ivar confidence: of labels: probability of the most probable one, [N], and `is_right`, whether it is the label.
    :ivar log_densities: of each row, [N], nats.
    :ivar means: what a `Forecast` has as `mean`, [N, P], [N, 1] or [N, C].
    """

    num_rows: int
    log_density: Score
    rmse: Score | None = None
    crps: Score | None = None
    coverage: dict[float, Score] | None = None
    error: Score | None = None
    calibration_error: Score | None = None
    pit: Array | None = None
    confidence: Array | None = None
    is_right: NDArray[np.bool_] | None = None
    log_densities: Array | None = None
    means: Array | None = None

    @property
    def pit_distance(self) -> float | None:
        """Kolmogorov's distance of `pit` from the uniform distribution, between 0 and 1; None without `pit`."""
        return None if self.pit is None else float(kstest(np.ravel(self.pit), "uniform").statistic)

    def to_json(self) -> dict[str, float]:
        """The scores as plain numbers, for a report: "crps" and "crps_se", "coverage_90" and "coverage_90_se", ..."""
        units = {"log_density": "log_density_nats"}
        scores: dict[str, Score | None] = {
            units.get(name, name): getattr(self, name)
            for name in ("log_density", "rmse", "crps", "error", "calibration_error")
        }
        scores |= {f"coverage_{100 * level:g}": score for level, score in (self.coverage or {}).items()}
        numbers: dict[str, float] = {"num_rows": self.num_rows}
        for name, score in scores.items():
            if score is not None:
                numbers |= {name: score.value, f"{name}_se": score.error}
        if self.pit_distance is not None:
            numbers["pit_distance"] = self.pit_distance
        return numbers


def evaluate(
    model: object, data: tuple[np.ndarray, np.ndarray], *, coverages: tuple[float, ...] = COVERAGES
) -> Evaluation:
    """Judge a model on some rows.

    :param model: a `Forecaster`, such as `Predictor` or `LinearModel`; or a GPflow model, a deep GP among them, which
        is judged in the units that it was trained in; or a classifier with `predict_proba`, as scikit-learn's.
    :param data: inputs X [N, D] and targets Y: numbers [N, P], or labels 0, 1, ... [N, 1].
    :param coverages: probabilities of the central intervals whose share of targets is wanted.
    :raises ValueError: if there are no rows, or X and Y do not have equally many, or a target is not finite, or a
        probability is not between 0 and 1, or the model cannot be judged.
    """
    X, Y = (np.asarray(array) for array in data)
    Y = Y[:, None] if Y.ndim == 1 else Y
    if len(X) == 0 or len(X) != len(Y):
        raise ValueError(f"data must be X and Y of equally many rows, at least one, got {len(X)} and {len(Y)}.")
    if not all(0 < level < 1 for level in coverages):
        raise ValueError(f"coverages must be between 0 and 1, got {coverages}.")
    if Y.dtype.kind == "f" and not np.all(np.isfinite(Y)):
        row = np.flatnonzero(~np.isfinite(Y).all(axis=1))[0]
        raise ValueError(f"data must have finite targets, got {Y[row]} in row {row}; leave such rows out.")
    # Some rows at a time, as their distributions take memory.
    forecaster = forecaster_of(model)
    rows = []
    for start in range(0, len(X), BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        rows.append(_rows(forecaster.forecast(X[part], Y[part]), forecaster.task, Y[part], coverages))
    joined = _Rows._make(None if values[0] is None else np.concatenate(values) for values in zip(*rows, strict=True))
    return _of_labels(joined) if forecaster.task != "regression" else _of_numbers(joined, coverages)


def coverage_in_words(
    found: Evaluation, *, can_have_tails: bool = False, is_trained_by_steps: bool = True
) -> str | None:
    """What the share of rows within the central intervals of 50% says, and what to try.

    :param can_have_tails: whether the noise of the model is one with tails already.
    :param is_trained_by_steps: whether it has steps and layers that could be fewer.
    :return: None if that share is between 40 and 60%, or less than three standard errors of a share of 50% away from
        it, or not known.
    """
    # Shares near a half, or of too few rows to tell, say nothing.
    half = (found.coverage or {}).get(0.5)
    if half is None or TOO_NARROW < half.value < TOO_WIDE or abs(half.value - 0.5) <= 1.5 / np.sqrt(found.num_rows):
        return None
    share = f"central 50% intervals hold {half.value:.0%} of the rows"
    if half.value < 0.5:
        cure = "fewer steps, more training rows or fewer layers" if is_trained_by_steps else "more training rows"
        return f"{share}: predictions are too sure; try {cure}."
    if can_have_tails:
        return f"{share}: the noise that was learned is too wide; train it for more steps."
    return f'{share}: the noise has heavier tails than a Gaussian; try likelihood="studentt" (--likelihood=studentt).'


class _Rows(NamedTuple):
    """Scores of each of n rows, [n], and of each coverage [n, levels] and target [n, P]."""

    log_density: Array
    means: Array
    square: Array | None = None
    crps: Array | None = None
    inside: Array | None = None
    pit: Array | None = None
    confidence: Array | None = None
    is_right: NDArray[np.bool_] | None = None


def _rows(found: Forecast, task: str, Y: np.ndarray, coverages: tuple[float, ...]) -> _Rows:
    # Labels: the probability of the most probable one, and whether it is right.
    if task != "regression":
        p = found.mean if found.mean.shape[1] > 1 else np.concatenate([1 - found.mean, found.mean], axis=1)
        is_right = p.argmax(axis=1) == Y[:, 0]
        return _Rows(found.log_density, found.mean, confidence=p.max(axis=1), is_right=is_right)
    # Numbers: squared errors, and what the distributions say.
    rows = _Rows(found.log_density, found.mean, np.mean(np.square(found.mean - Y), axis=1))
    if found.predictive is None:
        return rows
    # Of counts P(target <= y) jumps at y: a row is inside where the jump meets the interval.
    below, up_to = found.predictive.probabilities(Y)
    tails = [0.5 * (1 - level) for level in coverages]
    inside = np.stack([np.mean((up_to >= tail) & (below <= 1 - tail), axis=1) for tail in tails], axis=1)
    crps = found.predictive.crps(Y).mean(axis=1)
    return rows._replace(crps=crps, inside=inside, pit=0.5 * (below + up_to))


def _of_numbers(rows: _Rows, coverages: tuple[float, ...]) -> Evaluation:
    assert rows.square is not None  # of mypy: numbers have it
    # The error of a root is that of the square over twice the root.
    square = _mean(rows.square)
    rmse = float(np.sqrt(square.value))
    scores = Evaluation(
        len(rows.log_density),
        _mean(rows.log_density),
        Score(rmse, square.error / (2 * rmse) if rmse else 0.0),
        log_densities=rows.log_density,
        means=rows.means,
    )
    if rows.inside is None or rows.crps is None:
        return scores
    coverage = {level: _mean(rows.inside[:, i]) for i, level in enumerate(coverages)}
    return scores._replace(crps=_mean(rows.crps), coverage=coverage, pit=rows.pit)


def _of_labels(rows: _Rows) -> Evaluation:
    assert rows.confidence is not None
    assert rows.is_right is not None  # of mypy: labels have them
    confidence = rows.confidence
    is_right = rows.is_right
    count = len(rows.is_right)
    # The error of the calibration, by drawing rows again.
    rng = np.random.default_rng(0)
    drawn = (rng.integers(count, size=count) for _ in range(_NUM_RESAMPLES))
    resampled = [calibration_error(confidence[sample], is_right[sample]) for sample in drawn]
    calibration = Score(calibration_error(confidence, is_right), float(np.std(resampled, ddof=1)))
    return Evaluation(
        count,
        _mean(rows.log_density),
        error=_mean(1.0 - is_right),
        calibration_error=calibration,
        confidence=confidence,
        is_right=is_right,
        log_densities=rows.log_density,
        means=rows.means,
    )


def difference(found: Evaluation, other: Evaluation) -> Score | None:
    """Mean log density of one model minus that of another on the same rows, nats a row, with its paired error.

    :return: None if they were not judged on equally many rows.
    """
    if found.log_densities is None or other.log_densities is None or found.num_rows != other.num_rows:
        return None
    return _mean(found.log_densities - other.log_densities)


def _mean(values: np.ndarray) -> Score:
    """The mean over rows and its standard error; NaN for a single row."""
    return Score(float(np.mean(values)), standard_error(values))


def table(evaluations: Mapping[str, Evaluation]) -> list[list[str]]:
    """Scores of models by name as the cells of a table, with a line of headers: value ± standard error."""
    # Columns that at least one of the models has.
    names = ("log_density", "rmse", "crps", "error", "calibration_error")
    headers = {"log_density": "log density", "rmse": "RMSE", "crps": "CRPS", "calibration_error": "calibration error"}
    shown = [name for name in names if any(getattr(e, name) is not None for e in evaluations.values())]
    levels = sorted({level for e in evaluations.values() for level in e.coverage or {}})
    lines = [["", *(headers.get(name, name) for name in shown), *(f"in {100 * level:g}%" for level in levels)]]
    for name, evaluation in evaluations.items():
        scores = [getattr(evaluation, score) for score in shown]
        cells = ["" if score is None else str(score) for score in scores]
        cells += [f"{100 * evaluation.coverage[level].value:.1f}%" if evaluation.coverage else "" for level in levels]
        lines.append([name, *cells])
    return lines
