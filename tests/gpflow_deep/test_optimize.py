"""Thompson sampling: the returned points are where the drawn functions are largest."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gpflow_deep import DeepGPRegressor, Predictor, Units, float_type
from gpflow_deep.functions.optimize import thompson
from gpflow_deep.model.scaling import Scale
from tests.gpflow_deep.builders import make_model


@pytest.mark.parametrize("maximize", [True, False])
def test_points_are_the_best_of_a_fine_grid(rng: np.random.Generator, maximize: bool) -> None:
    """201 x 201 points, each at most 1/200 of a side from the maximiser: points of ascent are at least as good."""
    model, sign = make_model(rng, (2, 2, 1)), 1 if maximize else -1
    bounds = [(-2.0, 1.0), (0.5, 2.0)]
    points = thompson(model, bounds, 3, maximize=maximize, seed=4)
    axes = [np.linspace(*limits, 201) for limits in bounds]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    functions = model.sample_functions(3, seed=4)
    best = (sign * functions(grid).numpy()[..., 0]).max(axis=1)
    found = sign * np.diagonal(functions(points).numpy()[..., 0])
    assert points.shape == (3, 2)
    assert np.all(found >= best - 1e-9)
    assert np.all((points >= [-2.0, 0.5]) & (points <= [1.0, 2.0]))
    np.testing.assert_array_equal(thompson(model, bounds, 3, maximize=maximize, seed=4), points)


def test_units_of_a_predictor(rng: np.random.Generator) -> None:
    """Functions of a model in units: y.mean + y.scale f((x - x.mean) / x.scale); and points in these units."""
    model = make_model(rng, (2, 1))
    units = Units(Scale(np.array([10.0, -3.0]), np.array([5.0, 0.1])), Scale(np.array([7.0]), np.array([1000.0])))
    predictor, X = Predictor(model, units), rng.uniform(-2, 2, (6, 2))
    expected = 7.0 + 1000.0 * model.sample_functions(2, seed=1)(X)
    functions = predictor.sample_functions(2, seed=1)
    np.testing.assert_allclose(functions(units.x.inverse_transform(X)), expected, rtol=1e-9)
    points = thompson(predictor, units.x.inverse_transform(np.array([[-2, -1], [2, 1.0]])).T, 2, seed=1)
    again = thompson(model, [(-2, 2), (-1, 1)], 2, seed=1)
    values = functions(points).numpy().diagonal()
    np.testing.assert_allclose(values, 7.0 + 1000.0 * model.sample_functions(2, seed=1)(again).numpy().diagonal())


def test_flat_functions_and_float32(rng: np.random.Generator) -> None:
    with float_type("float32"):
        points = thompson(make_model(rng, (2, 1)), [(0, 1), (0, 1)], 2, seed=0, num_candidates=8)
        assert np.all((points >= 0) & (points <= 1))
    model = make_model(rng, (2, 1))
    model.layers[0].kernel.variance.assign(1e-300)
    model.layers[0].q_mu.assign(0 * model.layers[0].q_mu)
    assert np.all(np.isfinite(thompson(model, [(0, 1), (0, 1)], 2, num_candidates=8)))


@pytest.mark.filterwarnings("error")
def test_any_number_of_candidates(rng: np.random.Generator) -> None:
    """Without a warning; a power of 2 has the points that it has alone."""
    model, bounds = make_model(rng, (2, 1)), [(0.0, 1.0)] * 2
    for count in (1, 7, 1000):
        assert thompson(model, bounds, num_candidates=count, num_starts=1, seed=0).shape == (1, 2)
    few, many = (thompson(model, bounds, num_candidates=n, max_iter=0, seed=0) for n in (513, 1024))
    f = model.sample_functions(1, seed=0)
    assert float(f(few)[0, 0, 0]) <= float(f(many)[0, 0, 0])


def test_estimators(rng: np.random.Generator) -> None:
    X = rng.uniform(size=(20, 2))
    estimator = DeepGPRegressor(num_layers=1, num_inducing=5, max_iter=1)
    bounds = [(0.0, 1.0)] * 2
    with pytest.raises(TypeError, match="fitted estimator, got DeepGPRegressor; fit it"):
        thompson(estimator, bounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(X, X[:, 0])
    np.testing.assert_array_equal(
        thompson(estimator, bounds, 2, seed=1), thompson(estimator.predictor_, bounds, 2, seed=1)
    )


@pytest.mark.parametrize(
    ("bounds", "options", "message"),
    [
        ([(1.0, 0.0), (0.0, 1.0)], {}, "bounds must be finite pairs"),
        ([(0.0, np.inf), (0.0, 1.0)], {}, "bounds must be finite pairs"),
        ([0.0, 1.0], {}, "bounds must be finite pairs"),
        ([(0.0, 1.0)] * 3, {}, "bounds must be a pair for each of the 2 inputs, got 3 pairs"),
        ([(0.0, 1.0)] * 2, {"batch": 0}, "batch must be at least 1, got 0"),
        ([(0.0, 1.0)] * 2, {"num_starts": 0}, "num_starts must be at least 1"),
    ],
)
def test_wrong_arguments(rng: np.random.Generator, bounds: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        thompson(make_model(rng, (2, 1)), bounds, **options)
    with pytest.raises(ValueError, match="one output to optimise, got 2"):
        thompson(make_model(rng, (2, 2)), [(0.0, 1.0)] * 2)
