"""`gpflow_deep.design` beside closed forms: refitted GPs, quadrature, rows that are really left out."""

import gpflow
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm

from gpflow_deep import DeepGPRegressor, ModelConfig, Predictor, Scale, Units, design, modern
from gpflow_deep.train.choosing import imputation
from gpflow_deep.train.choosing.imputation import INNER, impute
from gpflow_deep.train.choosing.selection import build_imputed, build_single
from gpflow_deep.train.choosing.single_layer import SingleLayer

Array = NDArray[np.float64]


def units() -> Units:
    return Units(Scale(np.array([1.0, -2.0]), np.array([2.0, 0.5])), Scale(np.array([10.0]), np.array([3.0])))


@pytest.fixture(scope="module")
def fitted() -> tuple[Predictor, Array, Array, SingleLayer]:
    """An exact single layer of 12 rows, which are given in the units of the data."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=(12, 1))
    single = SingleLayer("matern52", np.log([1.3, 0.8, 1.1, 0.05]), None, 0.0, 0)
    predictor = Predictor(build_single(single, x, y, ModelConfig(num_layers=1, preset="modern")), units())
    return predictor, units().x.inverse_transform(x), units().y.inverse_transform(y), single


def covariance(single: SingleLayer, x: Array, new: Array) -> Array:
    """Of the function at new inputs, given rows x."""
    K = single.covariance(x, x) + single.noise * np.eye(len(x))
    across = single.covariance(x, new)
    return single.covariance(new, new) - across.T @ np.linalg.solve(K, across)


def test_the_variance_falls_as_it_does_with_one_more_row(
    fitted: tuple[Predictor, Array, Array, SingleLayer], rng: np.random.Generator
) -> None:
    predictor, X, _, single = fitted
    candidates, reference = rng.normal(size=(4, 2)), rng.normal(size=(7, 2))
    x, new, at = (units().x.transform(rows) for rows in (X, candidates, reference))
    alm = design.predictive_variance(predictor, candidates)
    np.testing.assert_allclose(alm, np.diag(covariance(single, x, new)), rtol=1e-4)  # jitter of 1e-6
    alc = design.variance_reduction(predictor, candidates, reference)
    before = np.diag(covariance(single, x, at)).mean()
    after = [np.diag(covariance(single, np.vstack([x, row]), at)).mean() for row in new]
    np.testing.assert_allclose(alc, before - np.array(after), rtol=1e-3)


@pytest.mark.parametrize("maximise", [False, True])
def test_expected_improvement_is_the_integral(
    maximise: bool, fitted: tuple[Predictor, Array, Array, SingleLayer], rng: np.random.Generator
) -> None:
    predictor, X, Y, single = fitted
    candidates = rng.normal(size=(3, 2))
    x, new = units().x.transform(X), units().x.transform(candidates)
    best = float(Y.max() if maximise else Y.min())
    mean, variance = single.predict(x, units().y.transform(Y), new)
    nodes = np.linspace(-8, 8, 4001)
    values = 10 + 3 * (mean[:, 0, None] + np.sqrt(variance - single.noise)[:, None] * nodes)
    gain = np.maximum(values - best, 0) if maximise else np.maximum(best - values, 0)
    expected = (gain * norm.pdf(nodes)).sum(axis=1) * (nodes[1] - nodes[0])
    found = design.expected_improvement(predictor, candidates, best, maximise=maximise)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_rows_are_left_out(fitted: tuple[Predictor, Array, Array, SingleLayer]) -> None:
    predictor, X, Y, single = fitted
    found = design.leave_one_out(predictor, X, Y[:, 0])
    x, y = units().x.transform(X), units().y.transform(Y)
    for n in range(len(X)):
        others = np.arange(len(X)) != n
        mean, variance = single.predict(x[others], y[others], x[n : n + 1])
        np.testing.assert_allclose(found.mean[n], 10 + 3 * mean[0], rtol=1e-6)
        np.testing.assert_allclose(found.std[n], 3 * np.sqrt(variance), rtol=1e-6)
        expected = norm.logpdf(Y[n, 0], 10 + 3 * mean[0, 0], 3 * np.sqrt(variance[0]))
        np.testing.assert_allclose(found.log_density[n], expected, rtol=1e-6)
    x = np.zeros([5, 2])
    deep = Predictor(modern(x, np.zeros([5, 1]), 2, num_inducing=3), units())
    with pytest.raises(ValueError, match="one SVGPLayer with one kernel and Gaussian noise"):
        design.leave_one_out(deep, X, Y)


def test_rows_are_left_out_of_drawn_inner_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside chains without the row, with the same parameters. A row that was seen has a standard deviation of 1e-3."""
    X = np.random.default_rng(0).uniform(-1.5, 1.5, (12, 1))
    Y = np.tanh(4 * X)
    single = SingleLayer(INNER, np.log([1.0, 1.0, 1e-6]), None, 0.0, 0)
    drawn = impute(single, INNER, X, Y, seed=0)
    config = ModelConfig(preset="modern", posterior="imputed")
    predictor = Predictor(build_imputed(drawn, X, Y, config), Units(Scale(np.zeros(1), np.ones(1)), units().y))
    found = design.leave_one_out(predictor, X, 10 + 3 * Y)
    means, stds, densities = [], [], []
    for n in range(len(X)):
        others = np.arange(len(X)) != n
        chains = imputation._Chains(single, INNER, X[others], Y[others], n, 3)
        chains.inner, chains.outer = drawn.inner, drawn.outer
        monkeypatch.setattr(chains, "_climb", lambda step: None)
        mean, variance = chains.run().predict(X[others], Y[others], X[n : n + 1], seed=n)
        means.append(mean.mean())
        stds.append(np.sqrt(mean.var() + variance.mean()))
        logs = norm.logpdf(Y[n, 0], mean[:, 0, 0], np.sqrt(variance[:, 0]))
        densities.append(logsumexp(logs) - np.log(len(logs)))
    mean, std = (found.mean[:, 0] - 10) / 3, found.std[:, 0] / 3
    ratios = np.log(std / stds)
    assert np.abs(np.median(ratios)) < np.log(1.5)
    assert np.all(np.abs(ratios) < np.log(4))
    assert np.all(np.abs(mean - means) < 2 * (std + stds))
    assert abs(found.log_density.mean() + np.log(3) - np.mean(densities)) < 0.5
    with pytest.raises(ValueError, match="inner outputs were drawn at the training rows"):
        design.leave_one_out(predictor, X[1:], Y[1:])


def test_draws_go_through_both_emulators(fitted: tuple[Predictor, Array, Array, SingleLayer]) -> None:
    """The mean over draws of g(f(x)) of a nearly known f is g of its mean."""
    first = fitted[0].sample_functions(40, num_features=16, seed=1)
    x = np.linspace(-2, 2, 9)[:, None]
    one = Units(Scale(np.array([10.0]), np.array([3.0])), Scale(np.array([0.0]), np.array([1.0])))
    single = SingleLayer("squared_exponential", np.log([1.0, 1.0, 1e-6]), None, 0.0, 0)
    line = build_single(single, x, x, ModelConfig(num_layers=1, preset="modern"))  # g(f) = (f - 10) / 3
    second = Predictor(line, one).sample_functions(40, num_features=16, seed=2)
    X = np.array([[1.0, -2.0], [1.5, -2.1]])
    values = design.link([first, second])(X)
    assert values.shape == (40, 2, 1)
    inside = np.abs((first(X).numpy() - 10) / 3) < 1.5  # where the line was seen
    assert inside.mean() > 0.5
    np.testing.assert_allclose(values[inside], ((first(X).numpy() - 10) / 3)[inside], atol=0.02)
    with pytest.raises(ValueError, match="equally many of each"):
        design.link([first, Predictor(line, one).sample_functions(3, num_features=16, seed=2)])


def test_labels_have_no_designs() -> None:
    rows = np.zeros([4, 2])
    model = modern(rows, np.zeros([4, 1]), 1, num_inducing=2, likelihood=gpflow.likelihoods.Bernoulli())
    predictor = Predictor(model, units(), task="binary", class_names=("a", "b"))
    with pytest.raises(ValueError, match="targets that are numbers"):
        design.predictive_variance(predictor, rows)
    for call in (design.predictive_variance, lambda model, X: design.leave_one_out(model, X, X)):
        with pytest.raises(ValueError, match="designs take a Predictor, got DeepGPRegressor; give predictor_"):
            call(DeepGPRegressor(), rows)  # type: ignore[operator]
