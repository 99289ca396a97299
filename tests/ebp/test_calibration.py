"""`ebp.estimators.calibration`: known scales and offsets are found."""

import numpy as np
import pytest
from scipy import special, stats

from ebp.estimators.calibration import (
    LOG_SCALE_DEVIATION,
    OFFSET_DEVIATION,
    PRIOR_SCALE,
    Calibration,
    Scored,
    _loss,
    fit_calibration,
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


def test_without_examples_logits_are_half_of_those_of_the_signs() -> None:
    """|logistic(1.702 z) - Phi(z)| < 0.01 for all z."""
    none = fit_calibration(np.zeros((0, 1)), np.zeros(0, int))
    assert none.scale == pytest.approx(PRIOR_SCALE)
    assert none == Calibration(none.scale, 0.0)
    z = np.linspace(-5, 5, 101)[:, None]
    p = np.exp(log_probabilities(2.0 * none(z), are_logits=True))
    np.testing.assert_allclose(p, np.exp(log_probabilities(z, are_logits=False)), atol=0.01)


def test_one_wrong_example_does_not_move_it_far() -> None:
    found = fit_calibration(np.array([[3.0]]), np.array([0]))
    assert 0.1 < found.scale < PRIOR_SCALE


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_the_loss_is_minus_the_log_posterior(num_outputs: int, rng: np.random.Generator) -> None:
    """Prior and labels as SciPy has them, up to a constant; its gradient is that of the same number.

    Central differences with a step of 1e-5 are right to about 1e-9 of numbers of this size.
    """
    scores = rng.normal(size=(8, num_outputs))
    classes = rng.integers(0, max(2, num_outputs), 8)
    weight = rng.uniform(0.5, 2.0, 8)
    examples = Scored(scores, classes, weight)

    def expected(parameters: np.ndarray) -> float:
        prior = stats.norm(0, LOG_SCALE_DEVIATION).logpdf(parameters[0])
        offset = 0.0
        if num_outputs == 1:
            offset = parameters[1]
            prior += stats.norm(0, OFFSET_DEVIATION).logpdf(offset)
        logits = PRIOR_SCALE * np.exp(parameters[0]) * scores + offset
        p = (
            special.softmax(logits, axis=1)
            if num_outputs > 1
            else np.hstack([1 - special.expit(logits), special.expit(logits)])
        )
        return -prior - float(np.sum(weight * np.log(p[np.arange(8), classes])))

    origin = np.zeros(1 + (num_outputs == 1))
    for _ in range(5):
        parameters = rng.normal(size=len(origin))
        value, gradient = _loss(parameters, examples)
        assert value - _loss(origin, examples)[0] == pytest.approx(expected(parameters) - expected(origin), abs=1e-10)
        for axis, step in enumerate(1e-5 * np.eye(len(origin))):
            slope = (_loss(parameters + step, examples)[0] - _loss(parameters - step, examples)[0]) / 2e-5
            assert gradient[axis] == pytest.approx(slope, abs=1e-7)


def test_the_last_examples_are_kept() -> None:
    first, second = (
        Scored(np.full((n, 1), value), np.full(n, n), np.full(n, 2.0 * n)) for n, value in ((4, 0.1), (3, 0.2))
    )
    kept = first.then(second, 5)
    np.testing.assert_array_equal(kept.scores[:, 0], [0.1, 0.1, 0.2, 0.2, 0.2])
    np.testing.assert_array_equal(kept.classes, [4, 4, 3, 3, 3])
    np.testing.assert_array_equal(kept.weight, [8, 8, 6, 6, 6])
    np.testing.assert_array_equal(first.then(second, 2).scores, second.scores[:2])
    assert len(first.then(second, 100).classes) == 7


def test_probabilities_of_signs(rng: np.random.Generator) -> None:
    """Two classes: Phi(z). More: codes with one +1, by multiplication."""
    z = rng.normal(size=(6, 1))
    np.testing.assert_allclose(np.exp(log_probabilities(z, are_logits=False))[:, 1], stats.norm.cdf(z[:, 0]))
    z = rng.normal(size=(6, 3))
    plus, minus = stats.norm.cdf(z), stats.norm.cdf(-z)
    p = np.stack([plus[:, k] * np.prod(np.delete(minus, k, axis=1), axis=1) for k in range(3)], axis=1)
    expected = p / p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(log_probabilities(z, are_logits=False)), expected)
