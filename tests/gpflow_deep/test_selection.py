"""`gpflow_deep.train.choosing.selection`: values and gradients beside GPflow's, and that the rows decide as they
should."""

import dataclasses
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from scipy.optimize import approx_fprime
from scipy.stats import halfnorm, norm, qmc, t
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import BayesianRidge, LinearRegression

from gpflow_deep import Choice, DeepGPRegressor, ModelConfig, Predictor, Trainer, TrainingConfig, modern
from gpflow_deep.files.serialization import load_model, save_model
from gpflow_deep.model.scaling import Units
from gpflow_deep.posteriors.noise import ABOVE_BOUND
from gpflow_deep.train.choosing import selection, single_layer
from gpflow_deep.train.choosing.choice import FREE
from gpflow_deep.train.choosing.single_layer import CANDIDATES, SingleLayer
from gpflow_deep.train.config import LINEAR, KernelName, make_kernel

Array = NDArray[np.float64]


def rows(rng: np.random.Generator, num_rows: int = 30, num_targets: int = 2) -> tuple[Array, Array]:
    X = rng.normal(size=(num_rows, 3))
    return X, np.sin(X @ rng.normal(size=(3, num_targets))) + 0.1 * rng.normal(size=(num_rows, num_targets))


def begun(X: Array, Y: Array, *, free: Collection[str] = FREE, max_iter: int = 10) -> Any:
    """A search that has not tried anything."""
    course = selection._Course(TrainingConfig(), max_iter, 10, 0.0, 0)
    return selection._Search(ModelConfig(preset="modern"), free, X, Y, course, None, show_steps=False)


def theta_of(kernel: KernelName, rng: np.random.Generator) -> Array:
    return (
        0.3 * rng.normal(size=5 + kernel.endswith(LINEAR)) - np.array([0, 0, 0, 0, 2, 2])[: 5 + kernel.endswith(LINEAR)]
    )


def gpflow_kernel(single: SingleLayer) -> gpflow.kernels.Kernel:
    kernel = make_kernel(single.kernel, 3, lengthscales=single.lengthscales, variance=single.variance)
    if single.has_linear:
        kernel.kernels[1].variance.assign(single.linear)
    return kernel


@pytest.mark.parametrize("kernel", CANDIDATES)
def test_the_marginal_likelihood_is_gpflows_and_has_its_gradient(kernel: KernelName, rng: np.random.Generator) -> None:
    X, Y = rows(rng)
    theta = theta_of(kernel, rng)
    value, gradient = single_layer.log_marginal_likelihood(theta, kernel, X, Y)
    single = SingleLayer(kernel, theta, None, value, 0)
    model = gpflow.models.GPR((X, Y), gpflow_kernel(single), noise_variance=single.noise)
    np.testing.assert_allclose(value, float(model.log_marginal_likelihood()), rtol=1e-9)
    numbers = approx_fprime(theta, lambda x: single_layer.log_marginal_likelihood(x, kernel, X, Y)[0], 1e-6)
    np.testing.assert_allclose(gradient, numbers, atol=1e-5 * np.abs(gradient).max())  # of differences: eps / 1e-6


@pytest.mark.parametrize("kernel", CANDIDATES)
def test_the_collapsed_bound_is_gpflows_and_has_its_gradient(kernel: KernelName, rng: np.random.Generator) -> None:
    X, Y = rows(rng)
    theta, Z = theta_of(kernel, rng), rng.normal(size=(6, 3))
    packed = np.concatenate([theta, Z.ravel()])
    value, gradient = single_layer.collapsed_bound(packed, kernel, X, Y, 6)
    single = SingleLayer(kernel, theta, Z, value, 0)
    model = gpflow.models.SGPR((X, Y), gpflow_kernel(single), Z, noise_variance=single.noise)
    np.testing.assert_allclose(value, float(model.elbo()), rtol=1e-9)
    numbers = approx_fprime(packed, lambda x: single_layer.collapsed_bound(x, kernel, X, Y, 6)[0], 1e-6)
    np.testing.assert_allclose(gradient, numbers, atol=1e-5 * np.abs(gradient).max())


@pytest.mark.parametrize("is_student_t", [False, True])
def test_leave_one_out_is_what_the_other_rows_say(is_student_t: bool, rng: np.random.Generator) -> None:
    X, Y = rows(rng, 12)
    weights = rng.uniform(0.1, 1, 12) if is_student_t else None
    single = SingleLayer("matern52+linear", theta_of("matern52+linear", rng), None, 0.0, 0, weights)
    residuals, log_densities = single_layer.leave_one_out(single, X, Y)
    for n in range(12):
        others = np.arange(12) != n
        part = single if weights is None else dataclasses.replace(single, weights=weights[others])
        mean, variance = part.predict(X[others], Y[others], X[n : n + 1])
        expected = single_layer.judge(single, Y[n : n + 1], mean, variance)
        np.testing.assert_allclose(residuals[n], expected[0][0], rtol=1e-8)
        np.testing.assert_allclose(log_densities[n], expected[1][0], rtol=1e-8)
        if not is_student_t:
            np.testing.assert_allclose(log_densities[n], norm.logpdf(Y[n], mean[0], np.sqrt(variance[0])), rtol=1e-8)


@pytest.mark.parametrize("objective", [single_layer.log_marginal_likelihood, single_layer.log_posterior])
def test_the_bound_with_student_t_noise_has_its_gradient(objective: Any, rng: np.random.Generator) -> None:
    X, Y = rows(rng, 9, 1)
    packed = np.concatenate([theta_of("matern52+linear", rng), -rng.random(9)])
    value, gradient = single_layer.student_t_bound(packed, "matern52+linear", X, Y, objective)
    numbers = approx_fprime(
        packed, lambda x: single_layer.student_t_bound(x, "matern52+linear", X, Y, objective)[0], 1e-6
    )
    np.testing.assert_allclose(gradient, numbers, atol=1e-5 * np.abs(gradient).max())
    assert np.isfinite(value)


def test_without_a_function_the_bound_is_student_t(rng: np.random.Generator) -> None:
    """Nothing is unknown but the weights, each of whose q is exact; and densities far out are not of a Gaussian."""
    X, Y = rows(rng, 9, 1)
    df, square = single_layer.DF, 0.5
    expected = t.logpdf(Y, df, scale=np.sqrt(square))
    weights = (df + 1) / (df + np.square(Y[:, 0]) / square)
    theta = np.array([-40.0, 0.0, 0.0, 0.0, np.log(square)])
    packed = np.concatenate([theta, np.log(weights)])
    np.testing.assert_allclose(single_layer.student_t_bound(packed, "matern52", X, Y)[0], expected.sum(), rtol=1e-9)
    single = SingleLayer("matern52", theta, None, 0.0, 0, weights)
    residuals, log_densities = single_layer.judge(single, 30 * Y, np.zeros_like(Y), np.full(9, square))
    np.testing.assert_allclose(log_densities, t.logpdf(30 * Y, df, scale=np.sqrt(square)), rtol=1e-9)
    np.testing.assert_allclose(norm.cdf(residuals), t.cdf(30 * Y, df, scale=np.sqrt(square)), rtol=1e-6, atol=1e-12)


def test_a_gross_outlier_among_few_rows_moves_nothing(rng: np.random.Generator) -> None:
    """One target is off by 50 standard deviations of the noise; with Gaussian noise others are missed by 0.8 to 2.8."""
    X, X_new = rng.normal(size=(2, 25, 3))
    Y = 2 * X[:, :1] + 0.3 * rng.normal(size=(25, 1))
    Y[3] += 15
    search = begun(X, Y, max_iter=200)
    single, deeper, _ = search._choose()
    mean = single.predict(search.x, search.y, search.units.x.transform(X_new))[0]
    error = search.units.y.inverse_transform(mean) - 2 * X_new[:, :1]
    assert np.sqrt(np.mean(np.square(error))) < 0.5
    assert search.config.likelihood == "studentt"
    assert deeper is None
    assert "studentt" in search.candidates[1].name


@pytest.mark.parametrize("design", [1, 4])
def test_narrow_valleys_are_no_outliers(design: int) -> None:
    """Of the Michalewicz function, which has no noise, a tenth of the rows lie in them."""
    X = qmc.LatinHypercube(2, seed=design).random(100)
    Y = -np.sum(np.sin(np.pi * X) * np.sin(np.arange(1, 3) * np.square(X) * np.pi) ** 20, axis=1, keepdims=True)
    search = begun(X, Y, max_iter=200)
    single = search._single(np.arange(100))
    assert search._left_out(single)[0] is single
    assert "studentt" in search.candidates[-1].name


def test_jumps_of_a_simulator_are_no_outliers(rng: np.random.Generator) -> None:
    """Without noise and not rough: long tails of left-out residuals ask for depth."""
    X, Y = rows(rng, 40, 1)
    search = begun(X, Y)
    single = SingleLayer("matern52", np.log([1.0, 1.0, 1.0, 1.0, 1e-6]), None, 0.0, 0)
    search.left_out_error = 0.5
    residuals = rng.standard_t(1, (40, 1))
    assert search._with_long_tails(single, residuals, np.zeros((40, 1)))[0] is single
    assert not search.candidates


@pytest.mark.parametrize("num_inducing", [None, 9])
def test_the_model_predicts_as_the_search_does(num_inducing: int | None, rng: np.random.Generator) -> None:
    """With an inducing input at each row of noise of its own."""
    X, Y = rows(rng)
    Z = None if num_inducing is None else X[:num_inducing] + 0.1
    weights = rng.uniform(0.1, 1, len(X)) if Z is None else None
    single = SingleLayer("matern32+linear", theta_of("matern32+linear", rng), Z, 0.0, 0, weights)
    model = selection.build_single(single, X, Y, ModelConfig(num_layers=1, preset="modern"))
    X_new = rng.normal(size=(20, 3))
    mean, variance = model.predict_f(tf.constant(X_new))
    expected_mean, expected_variance = single.predict(X, Y, X_new)
    # Of the sparse one GPflow's jitter, 1e-6, is beside a noise of about 0.1.
    tolerance = 1e-9 if Z is None else 1e-4
    np.testing.assert_allclose(mean, expected_mean, rtol=tolerance, atol=tolerance)
    expected_variances = np.tile(expected_variance[:, None] - single.noise, 2)
    np.testing.assert_allclose(variance, expected_variances, rtol=tolerance, atol=1e-9)


@pytest.mark.parametrize("variance", [150.0, 5e4])
@pytest.mark.parametrize("noise", [2e-6, 1e-8])
def test_hardly_any_noise_beside_a_smooth_function(
    variance: float, noise: float, rng: np.random.Generator, tmp_path: Path
) -> None:
    """The exact GP, or with less noise than 1e-6 a nugget j of 1e-6 in the variance; whatever GPflow's jitter is, also
    from a file. Products of covariances, in place of their factors, would be nothing but rounding.

    With j, K = Q diag(l) Q' gives E f = k'Q diag(w) Q'y and V f = k(x, x) - k'Q diag(w l / (l + j)) Q'k, where
    w = (l / s) / (l + j + l^2 / s), and of the exact GP 1 / (l + s) in both. Rounding of a factorisation is N times
    that of the largest l, N k(x, x).
    """
    rounding = float(np.finfo(np.float64).eps) * 50**2 * variance
    X = rng.normal(size=(50, 2))
    Y = np.sin(X[:, :1]) + 0.1 * X[:, 1:]
    single = SingleLayer("squared_exponential", np.log([variance, 1.4, 38.0, ABOVE_BOUND * noise]), None, 0.0, 0)
    X_new = rng.uniform(-1, 1, (200, 2))
    kernel = gpflow_kernel(single)
    values, Q = np.linalg.eigh(kernel(X).numpy())
    projected = Q.T @ kernel(X, X_new).numpy()
    weights = shares = 1 / (values + single.noise)
    if noise < 1e-6:
        jittered = values + 1e-6
        weights = values / single.noise / (jittered + values**2 / single.noise)
        shares = weights * values / jittered
    expected_variance = variance - np.sum(projected**2 * shares[:, None], axis=0) + single.noise
    expected_mean = projected.T @ (weights[:, None] * (Q.T @ Y))
    model = selection.build_single(single, X, Y, ModelConfig(num_layers=1, preset="modern"))
    save_model(model, tmp_path / "model.npz")
    predicted = model.posterior().predict_y(tf.constant(X_new))
    np.testing.assert_allclose(predicted[0], expected_mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(predicted[1][:, 0], expected_variance, rtol=0, atol=rounding + 1e-6 * noise)
    for jitter in (1e-6, 1e-3):
        with gpflow.config.as_context(gpflow.config.Config(jitter=jitter)), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a file from another setting
            loaded = load_model(tmp_path / "model.npz").posterior().predict_y(tf.constant(X_new))
        np.testing.assert_array_equal(loaded, predicted)


def test_a_rough_function_gets_a_rough_kernel(rng: np.random.Generator) -> None:
    X = np.sort(rng.uniform(0, 10, (150, 1)), axis=0)
    smooth = np.sin(2 * X) + 0.01 * rng.normal(size=X.shape)
    covariance = gpflow.kernels.Matern32()(X).numpy()
    rough = np.linalg.cholesky(covariance + 1e-8 * np.eye(150)) @ rng.normal(size=(150, 1))
    kernels = [single_layer.search_exact(X, Y, CANDIDATES).kernel for Y in (smooth, rough)]
    assert kernels[0].startswith("squared_exponential")
    assert kernels[1].startswith("matern32")


def test_the_search_ends_no_lower_than_from_any_start(rng: np.random.Generator) -> None:
    """Little noise and short lengthscales are another solution than much noise: both are tried."""
    X = np.sort(rng.uniform(0, 1, (20, 1)), axis=0)
    Y = np.where(X > 0.5, 1.0, -1.0)
    found = single_layer.search_exact(X, Y, ["matern32"])
    for noise in single_layer._STARTS:
        begin = SingleLayer("matern32", single_layer.first_theta("matern32", 1, noise), None, 0.0, 0)
        assert found.value >= single_layer.climb_exact(begin, X, Y, 500).value - 1e-6
    assert found.noise < 1e-6


def test_the_rows_of_the_race_do_not_decide_how_much_noise_there_is() -> None:
    """Twelve shapes in four columns and few values of others: with a tenth of its variance the noise of this table is
    another solution, found from less noise than rows have, whichever of them are raced."""
    rng = np.random.default_rng(0)
    shapes = np.random.default_rng(1).uniform(-1, 1, (12, 4))
    height = np.random.default_rng(2).normal(0, 5, 12)
    fine = np.random.default_rng(3).normal(0, 0.3, (12, 6))
    shape, side = rng.integers(0, 12, 260), rng.integers(0, 4, 260)
    area = rng.choice([0, 0.1, 0.25, 0.4], 260)
    spread = np.where(area > 0, rng.integers(1, 6, 260), 0)
    X = np.column_stack([shapes[shape], side, area, spread])
    Y = height[shape] + area * (10 + height[shape] + 2 * fine[shape, spread]) + 0.05 * rng.normal(size=260)
    x, y = Units.fit(X, Y[:, None], "gaussian").transform(X, Y[:, None])
    noise = (0.05 / Y.std()) ** 2
    assert noise / 1.5 < single_layer.search_exact(x, y, CANDIDATES, seed=2).noise < 1.5 * noise


def test_few_rows_of_categories_are_no_plane() -> None:
    """Six categories and three, whose effects are multiplied: 30 rows of ten columns are evidence enough of that."""
    gains = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        first, second, x = rng.integers(0, 6, 1030), rng.integers(0, 3, 1030), rng.uniform(0, 1, 1030)
        X = np.column_stack([np.eye(6)[first], np.eye(3)[second], x])
        effects = np.random.default_rng(5).normal(size=6)
        Y = (effects[first] * (1 + (second == 1)) + 2 * x + 0.3 * rng.normal(size=1030))[:, None]
        units = Units.fit(X[:30], Y[:30], "gaussian")
        x_train, y_train = units.transform(X[:30], Y[:30])
        x_test, y_test = units.transform(X[30:], Y[30:])
        found = single_layer.search_exact(x_train, y_train, CANDIDATES)
        trend = single_layer._trend_alone(x_train, y_train, 200)
        scores = [
            single_layer.judge(single, y_test, *single.predict(x_train, y_train, x_test))[1].mean()
            for single in (found, trend)
        ]
        gains.append(scores[0] - scores[1])
    assert np.mean(gains) > 0.05
    assert np.count_nonzero(np.abs(gains) > 1e-3) >= 2  # it is no plane


def test_few_noisy_rows_are_no_function_without_noise() -> None:
    """Of 15 rows of a line with much noise in three inputs a function through all of them has the largest likelihood;
    of as many without noise the noise is still learnt down to its bound."""
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(-1.7, 1.7, (2, 15, 3))
    line, line_new = (rows @ [[0.2], [0.4], [0.6]] for rows in (X, X_new))
    noisy = line + 0.5 * rng.normal(size=line.shape)
    with_noise, without = (single_layer.search_exact(X, Y, CANDIDATES) for Y in (noisy, line))
    mean, _ = with_noise.predict(X, noisy, X_new)
    assert with_noise.noise > 0.05
    assert np.mean(np.abs(mean - line_new)) < 0.35  # by the largest likelihood 0.41
    assert without.noise < 2 * single_layer.LEAST_NOISE


def test_a_hundred_noisy_rows_of_ten_inputs_are_no_wild_function() -> None:
    """The largest likelihood of these has no noise at all, and new rows at -1.01 nats where noise of 0.5 has -0.72."""
    rng = np.random.default_rng([100, 0, 6])
    weights = rng.normal(size=(10, 1)) * (np.arange(10) < 3)[:, None]
    X = rng.normal(size=(100, 10))
    Y = X @ weights + 0.5 * np.linalg.norm(weights) * rng.normal(size=(100, 1))
    single = single_layer.search_exact(X, (Y - Y.mean()) / Y.std(), CANDIDATES)
    assert single.has_prior
    assert 0.1 < single.noise < 0.3


@pytest.mark.parametrize(("num_rows", "seed"), [(200, 0), (300, 2)])
def test_noisy_rows_on_a_plane_are_no_rough_function(num_rows: int, seed: int) -> None:
    """The largest likelihood of these takes all noise for a function with a twentieth of a lengthscale."""
    rng = np.random.default_rng([seed, num_rows, 323])
    X = rng.normal(size=(num_rows + 1000, 5))
    weights = rng.normal(size=5)
    Y = (X @ weights + 0.5 * np.linalg.norm(weights) * rng.normal(size=len(X)))[:num_rows, None]
    single = single_layer.search_exact(X[:num_rows], (Y - Y.mean()) / Y.std(), CANDIDATES)
    assert 0.1 < single.noise < 0.3


def test_noise_that_grows_is_no_rough_function() -> None:
    """Where there is hardly any noise a function through all rows is seen, with which others are 19 nats off."""
    rng = np.random.default_rng([0, 60, 647])
    X = rng.uniform(0, 3, (1060, 2))
    Y = (np.sin(2 * X[:, 0]) + (0.05 + 0.4 * np.square(X[:, 1]) / 3) * rng.normal(size=1060))[:60, None]
    single = single_layer.search_exact(*Units.fit(X[:60], Y, "gaussian").transform(X[:60], Y), CANDIDATES)
    assert single.noise > 0.1


def test_few_rows_of_a_noisy_line_are_a_line() -> None:
    """Of 20 whole numbers around a line; without the trend the line is missed by 0.27."""
    rng = np.random.default_rng([0, 20, 1])
    X = rng.normal(size=(20, 1))
    Y = np.round(4 * X + 0.6 * rng.normal(size=(20, 1)))
    X_new = rng.normal(size=(200, 1))
    units = Units.fit(X, Y, "gaussian")
    x, y = units.transform(X, Y)
    x_new, line = units.transform(X_new, 4 * X_new)
    single = single_layer.search_exact(x, y, CANDIDATES)
    mean, _ = single.predict(x, y, x_new)
    assert single.has_linear
    assert Y.std() * np.sqrt(np.mean(np.square(mean - line))) < 0.2


@pytest.mark.parametrize(("num_rows", "num_inputs", "seed"), [(12, 10, 0), (12, 10, 1), (20, 20, 0), (20, 20, 1)])
def test_as_many_inputs_as_rows_are_no_function_with_outliers(num_rows: int, num_inputs: int, seed: int) -> None:
    """A noisy plane in three of the inputs: functions with Student's t noise through all rows but some are 1.4 to 17
    nats behind Bayesian linear regression. They have the prior of few rows beside a trend, too."""
    rng = np.random.default_rng([seed, num_rows, num_inputs])
    X = rng.normal(size=(num_rows + 400, num_inputs))
    y = X[:, :3] @ [1.0, 0.5, -0.5] + 0.5 * rng.normal(size=len(X))
    train = slice(num_rows)
    test = slice(num_rows, None)
    found = DeepGPRegressor().fit(X[train], y[train]).log_density(X[test], y[test])
    mean, std = BayesianRidge().fit(X[train], y[train]).predict(X[test], return_std=True)
    assert np.mean(found) > np.mean(norm.logpdf(y[test], mean, std)) - 0.5


def test_the_density_with_a_prior_has_its_gradient(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(9, 2)), rng.normal(size=(9, 1))
    theta = rng.normal(size=4)
    value, gradient = single_layer.log_posterior(theta, "matern52", X, Y)
    numbers = approx_fprime(theta, lambda x: single_layer.log_posterior(x, "matern52", X, Y)[0], 1e-6)
    np.testing.assert_allclose(gradient, numbers, rtol=1e-4, atol=1e-4)
    expected = single_layer.log_marginal_likelihood(theta, "matern52", X, Y)[0]
    # In units of the logarithm of the variance of the noise, and of those of lengthscales.
    expected += halfnorm.logpdf(np.exp(theta[3] / 2)) + theta[3] / 2 - halfnorm.logpdf(0)
    expected -= 0.5 * np.sum(np.square(theta[1:3] - np.log(4 * np.sqrt(2))))
    np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_more_inducing_inputs_only_where_they_help(rng: np.random.Generator) -> None:
    X = rng.uniform(0, 20, (300, 1))
    wavy, straight = np.sin(3 * X), X / 6
    counts = []
    for Y in (wavy, straight):
        noisy = Y + 0.1 * rng.normal(size=Y.shape)
        single = single_layer.search_sparse(X, noisy, ["squared_exponential"], 8, max_iter=50)
        grown = single_layer.grow(single, X, noisy, 64, max_iter=50, seed=0)
        assert grown.value >= single.value
        assert grown.Z is not None
        counts.append(len(grown.Z))
    assert counts[0] >= 32
    assert counts[1] <= 16


def test_long_tails_are_seen(rng: np.random.Generator) -> None:
    """Excess kurtosis of 4,000 Gaussian numbers is above 2 standard errors once in 40 seeds; of Student's t with 4
    degrees of freedom it has no end."""
    gaussian = [selection.is_long_tailed(rng.normal(size=(4000, 1))) for _ in range(40)]
    assert sum(gaussian) <= 5  # of Binomial(40, 0.023): more happens once in 2,000
    assert all(selection.is_long_tailed(rng.standard_t(4, size=(4000, 1))) for _ in range(10))
    assert not selection.is_long_tailed(np.zeros([5, 1]))


def test_residuals_that_are_large_in_one_place_are_clustered(rng: np.random.Generator) -> None:
    found = {"noise": 0, "valley": 0}
    for _ in range(20):
        x, noise = rng.uniform(size=(100, 2)), rng.normal(size=(100, 1))
        found["noise"] += selection.is_clustered(noise, x / 0.3)
        found["valley"] += selection.is_clustered(noise * np.where(x[:, :1] > 0.5, 1.0, 0.1), x / 0.3)
    assert found == {"noise": 0, "valley": 20}
    assert not selection.is_clustered(np.ones([8, 1]), np.zeros([8, 2]))


def test_an_exact_line_is_learnt_and_said_to_have_no_noise(rng: np.random.Generator) -> None:
    """The sum of three equal columns, which stationary kernels only approach: least squares fits it exactly."""
    column = rng.normal(size=(60, 1))
    X = 50 + 10 * np.repeat(column, 3, axis=1)
    model = DeepGPRegressor().fit(X, X.sum(axis=1))
    X_new = 50 + 10 * np.repeat(rng.normal(size=(40, 1)), 3, axis=1)
    np.testing.assert_allclose(model.predict(X_new), X_new.sum(axis=1), rtol=1e-6)
    choice = model.choice_
    assert isinstance(choice, Choice)
    assert choice.config.kernel.endswith(LINEAR)
    assert choice.config.num_layers == 1
    assert float(model.predictor_.model.likelihood.variance.numpy()) < 2 * single_layer.LEAST_NOISE
    assert any("noise is at its lower bound" in line for line in choice.advice)


def test_few_noisy_rows_have_one_layer_and_a_table(
    rng: np.random.Generator, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    X = rng.normal(size=(20, 2))
    y = 100 + 10 * X[:, 0] + 5 * rng.normal(size=20)
    model = DeepGPRegressor(verbose=1).fit(X, y)
    text = capsys.readouterr().out
    assert model.choice_ is not None
    assert str(model.choice_) in text
    assert "1 layer" in text
    assert model.choice_.config.num_layers == 1
    assert all(row.cpu_seconds >= 0 for row in model.choice_.candidates)
    model.predictor_.save(tmp_path)
    assert Predictor.load(tmp_path).schema["choice"] == model.choice_.to_json()
    again = DeepGPRegressor().fit(X, y)
    assert capsys.readouterr().out == ""
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_what_is_asked_for_is_fitted(rng: np.random.Generator) -> None:
    X, Y = rows(rng, 40, 1)
    model = DeepGPRegressor(1, num_inducing=7, kernel="matern52", likelihood="gaussian", max_iter=20).fit(X, Y[:, 0])
    layer = model.predictor_.model.layers[0]
    assert layer.inducing_variable.Z.shape == (7, 3)
    assert type(layer.kernel) is gpflow.kernels.Matern52
    assert len(model.predictor_.model.layers) == 1
    units = Units.fit(X, Y, "gaussian")
    x, y = units.transform(X, Y)
    start = single_layer.search_sparse(x, y, ["matern52"], 7, max_iter=1)
    assert model.bounds_[-1] > start.value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        deep = DeepGPRegressor(2, num_inducing=5, max_iter=2).fit(X, Y[:, 0])
    assert len(deep.predictor_.model.layers) == 2
    assert deep.choice_ is not None
    assert deep.choice_.config.kernel in CANDIDATES


def test_one_step_of_another_likelihood(rng: np.random.Generator) -> None:
    """Fewer steps than a window; nothing is known of the bound then."""
    X = rng.normal(size=(60, 1))
    y = rng.standard_t(1.5, size=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fields = {"num_predict_samples": 4}
        model = DeepGPRegressor(1, num_inducing=4, kernel="matern32", max_iter=1, model=fields).fit(X, y)
    assert model.choice_ is not None
    assert [row.name.endswith("studentt") for row in model.choice_.candidates[:2]] == [False, True]
    assert np.all(np.isfinite(model.log_density(X, y)))


@pytest.mark.slow
def test_depth_is_taken_only_where_held_out_rows_are_clearly_better(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waves that are fast on one side and slow on the other: a stationary kernel has one lengthscale for both."""
    monkeypatch.setattr(selection, "is_long_tailed", lambda residuals: True)  # in any case two layers are tried
    monkeypatch.setattr(selection, "FEW_NOISY_ROWS", 0)
    X = rng.uniform(-1, 1, (200, 1))
    y = np.where(X[:, 0] > 0, np.sin(40 * X[:, 0]), np.sin(2 * X[:, 0])) + 0.02 * rng.normal(size=200)
    model = DeepGPRegressor(likelihood="gaussian", posterior="gaussian").fit(X, y)
    assert model.choice_ is not None
    (tried,) = [row for row in model.choice_.candidates if row.name.startswith("2 layers")]
    assert tried.gain is not None
    assert tried.gain_error is not None
    assert (model.choice_.config.num_layers == 2) == (tried.gain > tried.gain_error)
    assert len(model.predictor_.model.layers) == model.choice_.config.num_layers
    single = DeepGPRegressor(1, likelihood="gaussian").fit(X, y)
    X_new = rng.uniform(-1, 1, (400, 1))
    waves = np.where(X_new[:, 0] > 0, np.sin(40 * X_new[:, 0]), np.sin(2 * X_new[:, 0]))
    y_new = waves + 0.02 * rng.normal(size=400)
    gain = model.log_density(X_new, y_new) - single.log_density(X_new, y_new)
    assert gain.mean() >= -2 * gain.std() / np.sqrt(400)  # never behind the plain GP


@pytest.mark.parametrize("is_uneven", [True, False])
def test_sigma_points_are_tried_where_the_noise_of_many_rows_has_long_tails(
    is_uneven: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = rows(rng, 1200, 1)
    search = begun(X, Y)
    tried: list[str] = []

    def behind(config: ModelConfig, single: SingleLayer, folds: Any, scores: Any, **_: Any) -> tuple[None, Any]:
        tried.append(config.posterior)
        return None, scores

    monkeypatch.setattr(search, "_try", behind)
    single = SingleLayer("matern52", np.zeros(5), X[:4], 0.0, 1)
    residuals = rng.standard_t(2, (200, 1)) if is_uneven else rng.normal(size=(200, 1))
    search.is_exact = False
    scores = selection.Scores(np.zeros(200), np.zeros(200))
    assert search._rivals(single, [(np.arange(1000), np.arange(1000, 1200))], scores, residuals) is None
    assert ("sigma_points" in tried) == is_uneven


def test_a_gain_is_judged_by_paired_differences() -> None:
    others = np.linspace(-5, 5, 100)
    gain, error = single_layer.paired_gain(others + np.tile([0.0, 0.2], 50), others)
    np.testing.assert_allclose([gain, error], [0.1, 0.1 / np.sqrt(99)])


def test_a_course_begins_again(rng: np.random.Generator) -> None:
    """With the first parameters the same steps again, bit for bit."""
    X, Y = rows(rng, 30, 1)
    model = modern(X, Y, 2, num_inducing=5)
    trainer = Trainer(model, TrainingConfig(learning_rate=0.05), num_steps=4)
    first = gpflow.utilities.deepcopy(gpflow.utilities.parameter_dict(model))
    ends = []
    for _ in range(2):
        trainer.advance(lambda step: (X, Y), 0, 4, tf.constant([0, 1]))
        ends.append([value.numpy().copy() for value in gpflow.utilities.parameter_dict(model).values()])
        gpflow.utilities.multiple_assign(model, first)
        trainer.restart(4, num_data=30)
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)


def test_roughness_that_stands_for_noise_makes_no_deeper_model(rng: np.random.Generator) -> None:
    """Lengthscales far below the distances of rows explain noise as well as noise does."""
    X, Y = rng.normal(size=(80, 5)), rng.normal(size=(80, 1))
    search = begun(X, Y, free=set(FREE) - {"likelihood"})
    theta = np.log([1.0, *[0.01] * 5, single_layer.LEAST_NOISE])
    single = SingleLayer("matern32", theta, None, 0.0, 0)
    _, residuals = search._left_out(single)
    assert search.by_crps
    assert search._rivals(single, [(np.arange(40), np.arange(40, 80))], None, residuals) is None
    assert search.candidates[-1].note.startswith("not tried")
    search._say_if_noise_free(single.noise, single)
    assert "as rough as noise" in search.advice[-1]


def test_functions_without_noise_are_compared_by_the_crps(rng: np.random.Generator) -> None:
    """Of a Gaussian: Gneiting and Raftery (2007), Eq. (21)."""
    X, Y = rows(rng, 30, 1)
    search = begun(X, Y)
    single = SingleLayer("matern52", np.log([1.0, 1.0, 1.0, 1.0, 1e-6]), None, 0.0, 0)
    train, held = np.arange(20), np.arange(20, 30)
    search.by_crps = True
    residuals, scores = search._held_out(single, [(train, held)])
    mean, variance = single.predict(search.x[train], search.y[train], search.x[held])
    u, std = residuals[:, 0], np.sqrt(variance)
    np.testing.assert_allclose(u, (search.y[held, 0] - mean[:, 0]) / std)
    crps = std * (u * (2 * norm.cdf(u) - 1) + 2 * norm.pdf(u) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(scores.merit, -crps, rtol=1e-9)


@pytest.mark.parametrize(("noise", "is_tried"), [(1e-1, False), (1e-6, True)])
def test_of_few_noisy_rows_no_deeper_model_is_tried(
    noise: float, is_tried: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = rows(rng, 120, 1)
    search = begun(X, Y)
    tried: list[int] = []
    monkeypatch.setattr(search, "_try_imputed", lambda *_: tried.append(2))
    monkeypatch.setattr(selection, "is_long_tailed", lambda residuals: True)
    search.left_out_error = 0.3
    single = SingleLayer("matern52", np.log([1.0, 1.0, 1.0, 1.0, noise]), None, 0.0, 0)
    search._rivals(single, [(np.arange(96), np.arange(96, 120))], None, rng.normal(size=(120, 1)))
    assert (2 in tried) == is_tried


@pytest.mark.parametrize("seed", [1000, 1001, 1002])
def test_of_few_rows_on_a_plane_the_trend_is_all_that_is_taken(seed: int) -> None:
    """With a short lengthscale a function through noise had nearly no noise, and predictions were sure and wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(220, 2))
    Y = X @ np.array([[2.0], [1.0]]) + 0.2 * rng.normal(size=(220, 1))
    units = Units.fit(X[:20], Y[:20], "gaussian")
    x, y = units.transform(X, Y)
    single = single_layer.search_exact(x[:20], y[:20], CANDIDATES)
    plane = LinearRegression().fit(x[:20], y[:20])
    scale = np.sqrt(np.sum(np.square(y[:20] - plane.predict(x[:20]))) / (20 - 3))
    mean, variance = single.predict(x[:20], y[:20], x[20:])
    ours = norm.logpdf(y[20:], mean, np.sqrt(variance)).mean()
    assert single.variance < 1e-4
    assert ours > norm.logpdf(y[20:], plane.predict(x[20:]), scale).mean() - 0.1
