"""`ebp.estimators.calibration`: known scales and offsets are found, log loss and calibration error by loops."""

import numpy as np
import pytest
from scipy import special, stats

from ebp.estimators.calibration import (
    PRIOR_SCALE,
    Calibration,
    calibration_error,
    fit_calibration,
    log_loss,
    log_probabilities,
)


def test_scale_and_offset_are_found(rng: np.random.Generator) -> None:
    """Of 4,000 labels drawn by them; standard errors are about 0.2 and 0.05."""
    z = rng.normal(size=(4000, 1))
    classes = (rng.random(4000) < special.expit(5.0 * z[:, 0] - 0.7)).astype(int)
    found = fit_calibration(z, classes)
    assert found.scale == pytest.approx(5.0, abs=1.0)
    assert found.offset == pytest.approx(-0.7, abs=0.3)
    doubled = fit_calibration(np.vstack([z, z]), np.r_[classes, classes])
    weighted = fit_calibration(z, classes, weight=np.full(4000, 2.0))
    assert weighted.scale == pytest.approx(doubled.scale, rel=1e-3)


def test_scale_of_several_classes(rng: np.random.Generator) -> None:
    z = rng.normal(size=(4000, 3))
    p = special.softmax(4.0 * z, axis=1)
    classes = np.array([rng.choice(3, p=one) for one in p])
    found = fit_calibration(z, classes)
    assert found.scale == pytest.approx(4.0, abs=0.6)
    assert found.offset == 0.0


def test_without_examples_probabilities_are_nearly_those_of_the_signs() -> None:
    """|logistic(1.702 z) - Phi(z)| < 0.01 for all z."""
    none = fit_calibration(np.zeros((0, 1)), np.zeros(0, int))
    assert none.scale == pytest.approx(PRIOR_SCALE)
    assert none == Calibration(none.scale, 0.0)
    z = np.linspace(-5, 5, 101)[:, None]
    p = np.exp(log_probabilities(none(z), are_logits=True))
    np.testing.assert_allclose(p, np.exp(log_probabilities(z, are_logits=False)), atol=0.01)


def test_one_wrong_example_does_not_move_it_far() -> None:
    found = fit_calibration(np.array([[3.0]]), np.array([0]))
    assert 0.1 < found.scale < PRIOR_SCALE


def test_probabilities_of_signs(rng: np.random.Generator) -> None:
    """Two classes: Phi(z). More: codes with one +1, by multiplication."""
    z = rng.normal(size=(6, 1))
    np.testing.assert_allclose(np.exp(log_probabilities(z, are_logits=False))[:, 1], stats.norm.cdf(z[:, 0]))
    z = rng.normal(size=(6, 3))
    plus, minus = stats.norm.cdf(z), stats.norm.cdf(-z)
    p = np.stack([plus[:, k] * np.prod(np.delete(minus, k, axis=1), axis=1) for k in range(3)], axis=1)
    expected = p / p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(log_probabilities(z, are_logits=False)), expected)


def test_log_loss_and_calibration_error(rng: np.random.Generator) -> None:
    p = rng.dirichlet(np.ones(3), size=40)
    classes = rng.integers(0, 3, 40)
    assert log_loss(np.log(p), classes) == pytest.approx(-np.mean([np.log(p[i, c]) for i, c in enumerate(classes)]))
    bins: list[list[float]] = [[] for _ in range(15)]
    for one, c in zip(p, classes, strict=True):
        bins[int(one.max() * 15)].append(one.max() - (one.argmax() == c))
    expected = 100 * sum(abs(sum(gaps)) for gaps in bins) / 40
    assert calibration_error(np.log(p), classes) == pytest.approx(expected)
    certain = np.log(np.clip(np.eye(3)[classes], 1e-12, 1))
    assert calibration_error(certain, classes) == pytest.approx(0.0, abs=1e-6)
