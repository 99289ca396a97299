"""`gpflow_deep.train.course`: learning rates and ends for given bounds, and the same ones after a checkpoint."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep.train.course import Course, TrainingConfig, has_settled


def followed(course: Course, bound: Callable[[int], float], first: int = 0, last: int = 10**9) -> list[float]:
    """Learning rates of the steps from `first` to the end of the course, or before `last`."""
    rates, step = list[float](), first
    while step < min(course.end, last):
        rates.append(course.learning_rate(step))
        course.observe(step, tf.constant(bound(step), tf.float64))
        step += 1
    return rates


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 1.0, 1.005, 1.009], False),  # the last three are all new highs, and more than 0.01 above the first
        ([1.0, 1.005, 0.9, 1.009], True),
        ([1.0, 1.005, 0.9], False),  # too early
        ([1.0, 1.005, 0.9, 1.02], False),
        ([2.0, 1.0, 1.1, 1.2], True),  # on its way back, but nothing new
        ([], False),
    ],
)
def test_settled(values: list[float], expected: bool) -> None:
    assert has_settled(values, 0.01, 3) is expected


def test_a_rising_bound_takes_all_steps() -> None:
    course = Course(TrainingConfig(0.5, n_iter_no_change=2, decay_share=0.25), 800, num_data=2)
    rates = followed(course, lambda step: 2.0 * step)
    assert not course.is_settled
    np.testing.assert_allclose(course.bounds, np.arange(49.5, 800, 100))  # per row of 2
    np.testing.assert_allclose(rates, [0.5] * 600 + [0.5 * (800 - t) / 200 for t in range(600, 800)])


def test_a_settled_bound_ends_after_the_rate_has_fallen() -> None:
    """Settled after 300 + 3 * 100 steps: the window of step 300 to 399 is the last that rises; then two without."""
    course = Course(TrainingConfig(0.5, n_iter_no_change=2, decay_share=0.25), 100_000)
    rates = followed(course, lambda step: min(step, 300))
    assert course.is_settled
    assert len(rates) == course.end == 600 + 200
    assert rates[599] == 0.5
    assert rates[-1] == pytest.approx(0.5 / 200)


def test_a_flat_bound_that_is_not_asked_for_takes_all_steps() -> None:
    course = Course(TrainingConfig(0.5, n_iter_no_change=0, decay_share=0), 900)
    assert followed(course, lambda step: 1.0) == [0.5] * 900
    assert not course.is_settled


def test_settling_while_the_rate_falls_changes_nothing() -> None:
    course = Course(TrainingConfig(decay_share=0.25), 1000)
    course.settle(800)
    assert not course.is_settled
    course.settle(400)
    assert (course.is_settled, course.decay_from, course.end) == (True, 400, 600)  # 400 / 0.75, in whole windows


def test_no_learning_rate_is_negative() -> None:
    course = Course(TrainingConfig(0.5, decay_share=0.25), 1000)
    course.settle(400)
    assert [course.learning_rate(step) for step in (599, 600, 900, 2000)] == [0.5 / 200, 0.0, 0.0, 0.0]
    assert Course(TrainingConfig(0.5, decay_share=0), 10).learning_rate(10) == 0.0


@pytest.mark.parametrize("stop", [250, 500, 650])
def test_a_checkpoint_anywhere_changes_nothing(stop: int, tmp_path: object) -> None:
    """In the middle of a window, between two, and when the rate is falling."""
    config = TrainingConfig(n_iter_no_change=2)
    bounds = np.random.default_rng(0).normal(size=2000).cumsum()
    bounds[300:] = bounds[:300].max() - 1.0
    whole = followed(Course(config, 2000), lambda step: float(bounds[step]))
    assert 500 < len(whole) < 2000
    course = Course(config, 2000)
    first = followed(course, lambda step: float(bounds[step]), last=stop)
    course.flush()
    saved = tf.train.Checkpoint(course=course).write(f"{tmp_path}/saved")
    again = Course(config, 2000)
    tf.train.Checkpoint(course=again).read(saved).assert_consumed()
    assert first + followed(again, lambda step: float(bounds[step]), first=stop) == whole


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_iter_no_change": -1}, "n_iter_no_change must not be negative, got -1; 0 makes all steps"),
        ({"decay_share": -0.1}, "decay_share must be at least 0 and less than 1, got -0.1"),
        ({"decay_share": 1.0}, "decay_share must be at least 0 and less than 1, got 1.0"),
        ({"tol": float("nan")}, "tol must be a finite number, got nan"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        TrainingConfig(**settings)  # type: ignore[arg-type]
