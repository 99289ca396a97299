"""Scores of models and their standard errors, against plain formulas and simulated rows."""

from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, StudentT
from scipy import stats

from gpflow_deep.judge import evaluation
from gpflow_deep.judge.evaluation import coverage_in_words, evaluate
from gpflow_deep.judge.forecasts import Forecast, LinearModel
from gpflow_deep.judge.predictive import gaussian
from gpflow_deep.train import presets
from gpflow_deep_base.numbers.scores import calibration_error, label_scores


class Known:
    """Gaussian forecasts that are right, or too wide by a factor."""

    task = "regression"

    def __init__(self, factor=1.0):
        self.factor = factor

    def forecast(self, X, Y):
        mean, deviation = X[:, :1], 0.5 * self.factor * np.ones_like(X[:, :1])
        log_density = stats.norm.logpdf(Y, mean, deviation).sum(axis=1)
        return Forecast(log_density, mean, gaussian(np.ones(1), mean[None], np.square(deviation)[None]))


def _rows(rng, count=4000):
    X = rng.normal(size=(count, 2))
    return X, X[:, :1] + 0.5 * rng.normal(size=(count, 1))


def test_scores_of_known_forecasts(rng):
    X, Y = _rows(rng)
    found: Any = evaluate(Known(), (X, Y))
    assert found.num_rows == 4000
    z = (Y - X[:, :1]) / 0.5
    np.testing.assert_allclose(found.log_density.value, np.mean(stats.norm.logpdf(z)) - np.log(0.5))
    np.testing.assert_allclose(found.log_density.error, np.std(stats.norm.logpdf(z), ddof=1) / np.sqrt(4000))
    np.testing.assert_allclose(found.rmse.value, np.sqrt(np.mean(np.square(Y - X[:, :1]))))
    expected = 0.5 * (
        z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    )  # Gneiting & Raftery
    np.testing.assert_allclose(found.crps.value, expected.mean(), rtol=1e-9)
    for level, share in found.coverage.items():
        inside = np.mean(np.abs(z) <= stats.norm.ppf(0.5 + level / 2))
        np.testing.assert_allclose(share.value, inside)
        assert abs(share.value - level) < 5 * share.error
    np.testing.assert_allclose(found.pit, stats.norm.cdf(z))


def test_an_estimator_is_judged_by_its_predictor(rng):
    data = _rows(rng, 9)
    assert evaluate(SimpleNamespace(predictor_=Known()), data).crps == evaluate(Known(), data).crps


def test_standard_errors_are_the_spread_over_samples(rng):
    repeated = [evaluate(Known(), _rows(rng, 100)) for _ in range(100)]
    for name in ("log_density", "rmse", "crps"):
        values, errors = np.array([getattr(found, name) for found in repeated]).T
        np.testing.assert_allclose(np.mean(errors), np.std(values), rtol=0.35)  # 5 standard errors of the right side


def test_too_wide_intervals_are_seen(rng):
    found: Any = evaluate(Known(2.0), _rows(rng))
    assert found.coverage[0.5].value > 0.5 + 10 * found.coverage[0.5].error


@pytest.mark.parametrize(
    ("factor", "can_have_tails", "said"),
    [
        (2.0, False, 'hold 82% of the rows: the noise has heavier tails than a Gaussian; try likelihood="studentt"'),
        (2.0, True, "the noise that was learned is too wide"),
        (0.5, False, "of the rows: predictions are too sure"),
    ],
)
def test_wrong_coverage_is_said_in_words(rng, factor, can_have_tails, said):
    """Twice as wide: P(|z| < 1.349) = 0.8227, half as wide: P(|z| < 0.337) = 0.2641, to 0.001."""
    X = rng.normal(size=(200_000, 1))
    found = evaluate(Known(factor), (X, X + 0.5 * rng.normal(size=(200_000, 1))))
    assert said in (coverage_in_words(found, can_have_tails=can_have_tails) or "")


def test_nothing_is_said_of_right_coverage_of_few_rows_and_of_labels(rng):
    assert coverage_in_words(evaluate(Known(), _rows(rng))) is None
    few = evaluate(Known(2.0), _rows(rng, 6))
    for share in (0.0, 1.0):  # all six rows on one side, whose sample has a standard error of 0
        assert coverage_in_words(few._replace(coverage={0.5: evaluation.Score(share, 0.0)})) is None
    assert coverage_in_words(few._replace(coverage=None)) is None


def test_another_unit_of_the_target(rng):
    """Targets times 1000: log densities shift by -log 1000 exactly, RMSE and CRPS are 1000 times larger."""
    X, Y = _rows(rng, 300)
    found: Any = [evaluate(LinearModel.fit(X, s * Y), (X, s * Y)) for s in (1.0, 1000.0)]
    plain, scaled = found
    np.testing.assert_allclose(scaled.log_density.value, plain.log_density.value - np.log(1000), rtol=1e-12)
    np.testing.assert_allclose(scaled.rmse, 1000 * np.array(plain.rmse), rtol=1e-9)
    np.testing.assert_allclose(scaled.crps, 1000 * np.array(plain.crps), rtol=1e-9)
    assert scaled.coverage == plain.coverage


def test_rows_are_judged_in_pieces(rng, monkeypatch):
    data = _rows(rng, 100)
    whole: Any = evaluate(Known(), data)
    monkeypatch.setattr(evaluation, "BATCH_ROWS", 7)
    found: Any = evaluate(Known(), data)
    np.testing.assert_allclose([found.log_density, found.crps], [whole.log_density, whole.crps], rtol=1e-12)
    np.testing.assert_array_equal(found.pit, whole.pit)


def test_gpflow_models_are_judged_as_they_are(rng):
    X, Y = _rows(rng, 60)
    model = gpflow.models.GPR((X, Y), SquaredExponential(), noise_variance=0.25)
    found: Any = evaluate(model, (X, Y))
    mean, variance = (np.asarray(m) for m in model.predict_y(X))
    np.testing.assert_allclose(
        found.log_density.value, np.mean(stats.norm.logpdf(Y, mean, np.sqrt(variance))), rtol=1e-9
    )
    deep = presets.paper2017(X, Y, 2, num_inducing=5, likelihood=StudentT())
    judged: Any = evaluate(deep, (X, Y))
    np.testing.assert_allclose(judged.log_density.value, np.mean(deep.predict_log_density((X, Y))), rtol=1e-9)
    assert judged.crps is not None
    assert 0 < judged.coverage[0.9].value <= 1


def test_labels(rng):
    X = rng.normal(size=(50, 1))
    labels = (X + 0.3 * rng.normal(size=X.shape) > 0).astype(np.int64)
    model = gpflow.models.VGP((X, labels.astype(float)), SquaredExponential(), Bernoulli())
    found: Any = evaluate(model, (X, labels))
    mean = np.asarray(model.predict_y(X)[0])
    np.testing.assert_allclose(found.error.value, np.mean((mean > 0.5) != labels))
    np.testing.assert_allclose(found.confidence, np.maximum(mean, 1 - mean)[:, 0])
    assert found.rmse is None
    assert found.crps is None
    assert found.calibration_error.error > 0


def test_calibration_error_by_hand():
    confidence = np.array([0.95, 0.95, 0.55, 0.55])
    is_right = np.array([True, False, True, True])
    assert calibration_error(confidence, is_right, num_bins=10) == pytest.approx(0.5 * 0.45 + 0.5 * 0.45)
    assert calibration_error(np.ones(3), np.array([True, True, True])) == 0


def test_scores_of_labels_by_hand():
    """Right with 0.8, wrong with 0.6 of the other label, in two bins."""
    found = label_scores(np.log([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 0]))
    assert found["error"] == 50
    assert found["calibration"] == pytest.approx(100 * (0.5 * 0.2 + 0.5 * 0.6))
    assert found["log_loss"] == pytest.approx(-0.5 * np.log(0.8 * 0.4))


def test_calibrated_confidence_has_a_small_error(rng):
    confidence = rng.uniform(0.5, 1, size=100_000)
    assert calibration_error(confidence, rng.random(100_000) < confidence) < 0.01
    assert calibration_error(confidence, rng.random(100_000) < confidence - 0.2) > 0.15


def test_linear_model_is_least_squares(rng):
    X = rng.normal(size=(200, 3)) * [1, 1e6, 1e-6] + [0, 1e7, 0]
    Y = (X / [1, 1e6, 1e-6]) @ rng.normal(size=(3, 2)) + rng.normal(size=(200, 2))
    model = LinearModel.fit(X, Y)
    design = np.concatenate([(X - X.mean(0)) / X.std(0), np.ones((200, 1))], axis=1)
    fitted = design @ np.linalg.lstsq(design, Y, rcond=None)[0]
    np.testing.assert_allclose(model.predict(X), fitted, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="fits the training rows exactly"):
        LinearModel.fit(X, X[:, :1])


def test_tables_and_numbers_for_reports(rng):
    found: Any = evaluate(Known(), _rows(rng))
    numbers = found.to_json()
    assert set(numbers) >= {
        "log_density_nats",
        "log_density_nats_se",
        "rmse",
        "crps_se",
        "coverage_90",
        "coverage_95_se",
    }
    lines = evaluation.table({"known": found})
    assert lines[0] == ["", "log density", "RMSE", "CRPS", "in 50%", "in 90%", "in 95%"]
    assert lines[1][0] == "known"
    assert "±" in lines[1][1]


class Votes:
    """A classifier with given probabilities, as scikit-learn's are."""

    def __init__(self, probabilities: list[list[float]], classes: Any = None) -> None:
        self.p = np.array(probabilities)
        self.classes_ = np.arange(self.p.shape[1]) if classes is None else np.asarray(classes)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.p[: len(X)]


@pytest.mark.parametrize(
    "p", [[[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [[0.5, 0.2, 0.3], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]]
)
def test_a_classifier_of_scikit_learn_is_judged(p: list[list[float]]) -> None:
    """Of labels 0, 1, 0: by hand."""
    found = evaluate(Votes(p), (np.zeros([3, 1]), np.array([0, 1, 0])))
    assert found.log_density.value == pytest.approx(np.mean(np.log([p[0][0], p[1][1], p[2][0]])), rel=1e-15)
    assert found.error is not None
    assert found.confidence is not None
    assert found.error.value == pytest.approx(
        np.mean([max(row) != row[label] for row, label in zip(p, (0, 1, 0), strict=True)])
    )
    assert found.confidence.tolist() == [max(row) for row in p]


def test_a_classifier_is_judged_by_numbers_that_it_knows() -> None:
    with pytest.raises(ValueError, match=r"labels of Votes must be 0, 1, .*got \['a' 'b'\]; train it on these numbers"):
        evaluate(Votes([[0.5, 0.5]], ["a", "b"]), (np.zeros([1, 1]), np.zeros(1)))
    with pytest.raises(ValueError, match=r"labels must be those of the training rows, 0, \.\.\., 1"):
        evaluate(Votes([[0.5, 0.5]]), (np.zeros([1, 1]), np.array([2])))
    impossible = evaluate(Votes([[1.0, 0.0]]), (np.zeros([1, 1]), np.ones(1)))
    assert impossible.log_density.value == -np.inf


def test_what_is_refused(rng):
    X, Y = _rows(rng, 5)
    with pytest.raises(ValueError, match="equally many rows, at least one, got 5 and 4"):
        evaluate(Known(), (X, Y[:4]))
    with pytest.raises(ValueError, match=r"coverages must be between 0 and 1, got \(95,\)"):
        evaluate(Known(), (X, Y), coverages=(95,))
    Y[3] = np.nan
    with pytest.raises(ValueError, match=r"data must have finite targets, got \[nan\] in row 3"):
        evaluate(Known(), (X, Y))
    with pytest.raises(ValueError, match="must have forecast"):
        evaluate(object(), (X, X))


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (-4.70965, 0.01076, "-4.710 ± 0.011"),
        (-5.1576, 0.01974, "-5.158 ± 0.020"),
        (12345.6, 67.0, "12346 ± 67"),
        (1.2e9, 3e5, "1.2e+09 ± 3e+05"),
        (1.2e-8, 1e-9, "1.2e-08 ± 1e-09"),
        (0.5, 0.0, "0.5 ± 0"),
    ],
)
def test_a_score_is_shown_with_two_digits_of_its_error(value: float, error: float, shown: str) -> None:
    assert str(evaluation.Score(value, error)) == shown
