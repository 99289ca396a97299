"""`gpflow_deep.train.fitting`: batches as functions of the step, the simplest models, and a fit in the units of the
data."""

import itertools
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import ModelConfig, Trainer, TrainingConfig
from gpflow_deep.judge.forecasts import LinearModel
from gpflow_deep.train import fitting

SMALL = ModelConfig(num_layers=1, num_inducing=5, preset="modern")


def test_batches_are_a_function_of_seed_and_step() -> None:
    """Each row once in N draws; the same at any time; another seed, another order."""
    drawn = [fitting.minibatch(3, step, 10, 4) for step in range(5)]
    np.testing.assert_array_equal(np.sort(np.concatenate(drawn)[:10]), np.arange(10))
    np.testing.assert_array_equal(np.sort(np.concatenate(drawn)[10:]), np.arange(10))
    for step in (4, 0, 2):
        np.testing.assert_array_equal(fitting.minibatch(3, step, 10, 4), drawn[step])
    assert any(np.any(fitting.minibatch(4, step, 10, 4) != drawn[step]) for step in range(5))
    np.testing.assert_array_equal(fitting.minibatch(3, 7, 10, 10), np.arange(10))


def test_the_end_of_the_course_is_the_end(rng: np.random.Generator, eagerly: None) -> None:
    trainer = Trainer(*_tiny(), num_steps=5)
    num_steps, scores = fitting.train(trainer, _rows(), tf.constant([0, 0]))
    assert (num_steps, scores) == (5, [])
    with pytest.raises(ValueError, match="has no num_steps"):
        fitting.train(Trainer(*_tiny()), _rows(), tf.constant([0, 0]))


def test_held_out_rows_decide_and_the_best_parameters_stay() -> None:
    """Two windows of 100 steps after the best score the rate starts to fall, for a quarter of all steps."""
    model, _ = _tiny()
    trainer = Trainer(model, TrainingConfig(n_iter_no_change=2, decay_share=0.25), num_steps=100_000)
    trainer._step = lambda batch, seed: {"elbo_nats": tf.constant(float(next(bounds)))}  # type: ignore[assignment]
    variable, bounds = model.layers[0].q_mu.unconstrained_variable, itertools.count()
    given = iter([-3.0, -1.0, -2.0, -2.0, -2.0, -2.0])

    def score() -> float:
        variable.assign(np.full(variable.shape, found := next(given)))
        return found

    num_steps, scores = fitting.train(trainer, _rows(), tf.constant([0, 0]), score=score)
    assert scores == [-3.0, -1.0, -2.0, -2.0, -2.0, -2.0]
    assert num_steps == 400 + 200  # a quarter of all, in whole windows
    np.testing.assert_array_equal(variable, np.full(variable.shape, -1.0))


def _tiny() -> tuple[Any, TrainingConfig]:
    X = np.linspace(-1, 1, 5)[:, None]
    return SMALL.for_task("regression").build(X, X), TrainingConfig()


def _rows() -> Any:
    X = np.linspace(-1, 1, 5)[:, None]
    return lambda step: (tf.constant(X), tf.constant(X))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"validation_fraction": 1.0}, "validation_fraction must be at least 0 and less than 1, got 1.0"),
        ({"validation_fraction": 0.99}, "validation_fraction=0.99 leaves none of 5 rows; lower it"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    X = np.linspace(-1, 1, 5)[:, None]
    with pytest.raises(ValueError, match=f"^{message}"):
        fitting.fit(SMALL, X, X, **settings)


def test_simplest_models(rng: np.random.Generator) -> None:
    """Least squares, one rate and the frequencies, written out."""
    X, Y = rng.normal(size=(50, 2)), rng.normal(size=(50, 1))
    linear = LinearModel.fit(X, Y).forecast(X, Y).log_density.mean()

    def baseline(likelihood: Any, X: np.ndarray, Y: np.ndarray) -> float:
        density = fitting.simplest_model(likelihood, X, Y)
        assert density is not None
        return float(np.mean(density(X, Y)))

    np.testing.assert_allclose(baseline(gpflow.likelihoods.StudentT(), X, Y), linear)
    labels = np.array([0.0, 0.0, 0.0, 1.0])[:, None]
    frequencies = (3 * np.log(0.75) + np.log(0.25)) / 4
    np.testing.assert_allclose(baseline(gpflow.likelihoods.Bernoulli(), X[:4], labels), frequencies)
    counts = np.array([0.0, 1.0, 5.0])[:, None]
    poisson = np.mean(counts * np.log(2.0) - 2.0 - np.log([[1.0], [1.0], [120.0]]))
    np.testing.assert_allclose(baseline(gpflow.likelihoods.Poisson(), X[:3], counts), poisson)


def test_fit_is_a_function_of_data_and_seed(rng: np.random.Generator, eagerly: None) -> None:
    """In any units; held-out rows are no rows of the model; lines of progress on request."""
    X = rng.normal(size=(40, 2))
    Y = X[:, :1] + 0.1 * rng.normal(size=(40, 1))
    options: dict[str, Any] = {"max_iter": 4, "batch_size": 16, "validation_fraction": 0.25}
    lines = list[str]()
    runs = [fitting.fit(SMALL, X, Y, **options, seed=seed, show=lines.append) for seed in (1, 1, 2)]
    means = [run.predictor.predict(X).mean for run in runs]
    np.testing.assert_array_equal(means[0], means[1])
    assert np.any(means[0] != means[2])
    assert runs[0].trainer.model.num_data == 30
    assert lines[0].startswith("step 4 of at most 4: bound ")
    scaled = fitting.fit(SMALL, 100 * X + 7, 1000 * Y - 3, **options, seed=1).predictor
    np.testing.assert_allclose(scaled.predict(100 * X + 7).mean, 1000 * means[0] - 3, rtol=1e-6, atol=1e-4)


def test_least_squares_that_is_exact_is_a_rival_too(rng: np.random.Generator) -> None:
    """It errs by a hundredth of a standard deviation then; with as many weights as rows it says nothing."""
    X = rng.normal(size=(40, 3))
    Y = 5 + 2 * X.sum(axis=1, keepdims=True)
    likelihood = gpflow.likelihoods.Gaussian()
    expected = -0.5 * np.log(2 * np.pi * 1e-4 * Y.var())
    assert fitting.worse_than_simplest(likelihood, expected + 0.01, (X, Y), (X, Y)) is None
    words = fitting.worse_than_simplest(likelihood, expected - 0.01, (X, Y), (X, Y))
    assert words is not None
    assert words.startswith("worse than least squares")
    few = (X[:4], Y[:4])
    assert fitting.worse_than_simplest(likelihood, -100.0, few, few) is None
    constant = (X, np.ones_like(Y))
    assert fitting.worse_than_simplest(likelihood, -100.0, constant, constant) is None
