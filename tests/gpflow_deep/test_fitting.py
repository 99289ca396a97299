"""`gpflow_deep.fitting`: batches and stopping rules as functions, and a fit in the units of the data."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import ModelConfig, Trainer, TrainingConfig, fitting
from gpflow_deep.fitting import Schedule
from gpflow_deep.forecasts import LinearModel


@pytest.fixture
def eagerly() -> Iterator[None]:
    """A few steps are quicker without compiling them."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


SMALL = ModelConfig(num_layers=1, num_inducing=5, preset="modern", natgrad=False)


def test_batches_are_a_function_of_seed_and_step() -> None:
    """Each row once in N draws; the same at any time; another seed, another order."""
    drawn = [fitting.minibatch(3, step, 10, 4) for step in range(5)]
    np.testing.assert_array_equal(np.sort(np.concatenate(drawn)[:10]), np.arange(10))
    np.testing.assert_array_equal(np.sort(np.concatenate(drawn)[10:]), np.arange(10))
    for step in (4, 0, 2):
        np.testing.assert_array_equal(fitting.minibatch(3, step, 10, 4), drawn[step])
    assert any(np.any(fitting.minibatch(4, step, 10, 4) != drawn[step]) for step in range(5))
    np.testing.assert_array_equal(fitting.minibatch(3, 7, 10, 10), np.arange(10))


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
    assert fitting.has_settled(values, 0.01, 3) is expected


def test_learning_rate_falls_on_a_line() -> None:
    shares = [fitting.learning_rate_share(t, 6, 10) for t in range(10)]
    np.testing.assert_allclose(shares, [1, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25])


class _Recorder:
    """In a trainer's place: bounds as told, and the learning rates that it was given."""

    def __init__(self, bounds: Any) -> None:
        self.model, self.optimizer = Trainer(*_tiny()).model, tf.keras.optimizers.Adam(0.5)
        self.model.num_data, self.seconds = 2, 0.0
        self.bounds, self.rates, self.steps = bounds, list[float](), list[int]()

    def advance(self, batch_at: Any, first: int, count: int, seed: Any) -> float:
        self.steps.append(first)
        self.rates.append(float(self.optimizer.learning_rate))
        return float(self.bounds(first))

    def scalars(self) -> dict[str, float]:
        return {}


def _tiny() -> tuple[Any, TrainingConfig]:
    X = np.linspace(-1, 1, 5)[:, None]
    return SMALL.for_task("regression").build(X, X), TrainingConfig()


def _train(recorder: Any, schedule: Schedule, **options: Any) -> fitting.Course:
    batch_at: Any = lambda step: ()  # noqa: E731
    return fitting.train(recorder, batch_at, tf.constant([0, 0]), schedule, **options)


def test_a_rising_bound_takes_all_steps() -> None:
    recorder = _Recorder(lambda step: 2.0 * step)
    course = _train(recorder, Schedule(max_iter=800, n_iter_no_change=2))
    assert (course.num_steps, course.is_settled, recorder.steps) == (800, False, list(range(800)))
    np.testing.assert_allclose(course.bounds, np.arange(49.5, 800, 100))  # per row of 2
    np.testing.assert_allclose(recorder.rates, [0.5] * 600 + [0.5 * (800 - t) / 200 for t in range(600, 800)])
    assert float(recorder.optimizer.learning_rate) == 0.5


def test_a_settled_bound_ends_after_the_rate_has_fallen() -> None:
    """Settled after 300 + 2 * 100 steps: two windows without a rise; a quarter of all steps is for the fall."""
    recorder = _Recorder(lambda step: min(step, 300))
    course = _train(recorder, Schedule(max_iter=100_000, n_iter_no_change=2))
    assert course.is_settled
    assert course.num_steps == 600 + 200
    assert recorder.rates[599] == 0.5
    assert recorder.rates[-1] == pytest.approx(0.5 / 200)


def test_held_out_rows_decide_and_the_best_parameters_stay() -> None:
    recorder = _Recorder(lambda step: float(step))
    variable = recorder.model.layers[0].q_mu.unconstrained_variable
    given = iter([-3.0, -1.0, -2.0, -2.0, -2.0, -2.0])

    def score() -> float:
        variable.assign(np.full(variable.shape, found := next(given)))
        return found

    course = _train(recorder, Schedule(max_iter=100_000, n_iter_no_change=2), score=score)
    assert course.scores == (-3.0, -1.0, -2.0, -2.0, -2.0, -2.0)
    assert course.num_steps == 400 + 133  # and for two windows the rate has fallen
    np.testing.assert_array_equal(variable, np.full(variable.shape, -1.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be at least 1, got 0"),
        ({"validation_fraction": 1.0}, "validation_fraction must be at least 0 and less than 1, got 1.0"),
        ({"decay_share": -0.1}, "decay_share must be at least 0 and less than 1, got -0.1"),
    ],
    ids=str,
)
def test_impossible_schedules_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Schedule(**settings)


def test_simplest_models(rng: np.random.Generator) -> None:
    """Least squares, one rate and the frequencies, written out."""
    X, Y = rng.normal(size=(50, 2)), rng.normal(size=(50, 1))
    linear = LinearModel.fit(X, Y).forecast(X, Y).log_density.mean()
    baseline: Any = fitting.baseline_log_density
    np.testing.assert_allclose(baseline("studentt", X, Y), linear)
    assert fitting.baseline_log_density("gaussian", X, X[:, :1]) is None
    labels = np.array([0.0, 0.0, 0.0, 1.0])[:, None]
    frequencies = (3 * np.log(0.75) + np.log(0.25)) / 4
    np.testing.assert_allclose(baseline("bernoulli", X[:4], labels), frequencies)
    counts = np.array([0.0, 1.0, 5.0])[:, None]
    poisson = np.mean(counts * np.log(2.0) - 2.0 - np.log([[1.0], [1.0], [120.0]]))
    np.testing.assert_allclose(baseline("poisson", X[:3], counts), poisson)


def test_fit_is_a_function_of_data_and_seed(rng: np.random.Generator, eagerly: None) -> None:
    """In any units; held-out rows are no rows of the model; lines of progress on request."""
    X = rng.normal(size=(40, 2))
    Y = X[:, :1] + 0.1 * rng.normal(size=(40, 1))
    schedule, lines = Schedule(max_iter=4, batch_size=16, validation_fraction=0.25), list[str]()
    runs = [fitting.fit(SMALL, X, Y, schedule=schedule, seed=seed, show=lines.append) for seed in (1, 1, 2)]
    means = [run.predictor.predict(X).mean for run in runs]
    np.testing.assert_array_equal(means[0], means[1])
    assert np.any(means[0] != means[2])
    assert runs[0].trainer.model.num_data == 30
    assert lines[0].startswith("step 3 of at most 4: bound ")
    scaled = fitting.fit(SMALL, 100 * X + 7, 1000 * Y - 3, schedule=schedule, seed=1).predictor
    np.testing.assert_allclose(scaled.predict(100 * X + 7).mean, 1000 * means[0] - 3, rtol=1e-6, atol=1e-4)
