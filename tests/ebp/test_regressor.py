"""`EBPRegressor`: scikit-learn's checks, intervals that cover what they say, streams, several targets and networks."""

import pickle
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.utils.estimator_checks import parametrize_with_checks

from ebp import EBPRegressor

#: Rows are learned one after the other in a random order, so two copies are not one row of weight 2.
ORDER = {"check_sample_weight_equivalence_on_dense_data": "the result depends on the order of the rows"}


@parametrize_with_checks([EBPRegressor()], expected_failed_checks=lambda estimator: ORDER)
@pytest.mark.filterwarnings("ignore:Skipping check")
def test_scikit_learn_accepts_the_estimator(estimator: Any, check: Any) -> None:
    state = np.random.get_state()  # noqa: NPY002 (some checks draw from NumPy's global generator)
    check(estimator)
    np.random.set_state(state)  # noqa: NPY002


def waves(rng: np.random.Generator, num_rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of two of three inputs, in units of its own."""
    X = rng.normal(size=(num_rows, 3)) * [1.0, 5.0, 100.0] + [0.0, 7.0, 0.0]
    f = np.sin(1.5 * X[:, 0]) + 0.4 * (X[:, 1] - 7.0) / 5.0
    return X, 50.0 + 10.0 * (f + noise * rng.normal(size=num_rows))


@pytest.mark.parametrize("noise", [0.05, 0.5])
def test_intervals_cover_what_they_say(noise: float) -> None:
    """Of 1,000 test rows 90 % intervals cover 85 to 95 %, whatever the noise (s.e. 1 %): its size is learned."""
    rng = np.random.default_rng(0)
    X, y = waves(rng, 1000, noise)
    X_test, y_test = waves(rng, 1000, noise)
    model = EBPRegressor().fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(X_test))
    assert 0.85 < np.mean(np.abs(y_test - mean) < stats.norm.ppf(0.95) * std) < 0.95
    assert np.sqrt(np.mean((y_test - mean) ** 2)) < 10 * noise * 1.1 + 1.5
    assert model.noise_std_ == pytest.approx(10 * noise, rel=0.15) if noise > 0.1 else model.noise_std_ < 1.5
    np.testing.assert_allclose(model.log_density(X_test, y_test), stats.norm.logpdf(y_test, mean, std))
    far = model.predict(X_test * [1, 1, 1] + [30.0, 0.0, 0.0], return_std=True)[1]
    assert np.median(far) > 2 * np.median(std)  # nothing is known there


def test_more_data_make_surer(rng: np.random.Generator) -> None:
    """The s.d. of the mean, without the noise, falls with the rows."""
    X, y = waves(rng, 2000, 0.3)
    spreads = []
    for num_rows in (30, 2000):
        model = EBPRegressor(epochs=5).fit(X[:num_rows], y[:num_rows])
        std = model.predict(X, return_std=True)[1]
        spreads.append(np.median(np.sqrt(std**2 - model.noise_std_**2)))
    assert spreads[1] < 0.4 * spreads[0]


@pytest.mark.parametrize("units", ["relu", "sign"])
def test_a_real_table(units: str) -> None:
    """442 patients; the s.d. of the target is 77, and no model known comes below an error of 53."""
    X, y = load_diabetes(return_X_y=True)
    model = EBPRegressor(units=units, epochs=10).fit(X[::2], y[::2])
    assert np.sqrt(np.mean((model.predict(X[1::2]) - y[1::2]) ** 2)) < 66


def test_streams(rng: np.random.Generator) -> None:
    X, y = waves(rng, 1200, 0.2)
    model = EBPRegressor()
    for start in range(0, 1000, 50):
        model.partial_fit(X[start : start + 50], y[start : start + 50])
    assert (model.n_epochs_, model.n_samples_seen_) == (20, 1000)
    assert np.std(model.predict(X[1000:]) - y[1000:]) < 0.6 * np.std(y)
    other = pickle.loads(pickle.dumps(model))
    for one in (model, other):
        one.partial_fit(X[1000:1010], y[1000:1010])
    np.testing.assert_array_equal(model.predict(X), other.predict(X))
    with pytest.raises(ValueError, match="y must have 1 targets as in the first call, got 2"):
        model.partial_fit(X, np.stack([y, y], axis=1))


def test_several_targets(rng: np.random.Generator) -> None:
    """Of different units; the joint density is the product."""
    X, y = waves(rng, 500, 0.1)
    Y = np.stack([y, -1000.0 * y + 3.0], axis=1)
    model = EBPRegressor(epochs=10).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (500, 2)
    assert model.score(X, Y) > 0.7
    np.testing.assert_allclose(model.log_density(X, Y), stats.norm.logpdf(Y, mean, std).sum(axis=1))
    np.testing.assert_allclose(std[:, 1] / std[:, 0], 1000, rtol=0.5)


def test_an_ensemble_mixes_its_networks(rng: np.random.Generator) -> None:
    """Density: the mean of the networks'; variance: their mean, and the variance of their means."""
    X, y = waves(rng, 200, 0.2)
    model = EBPRegressor(num_networks=3, epochs=5).fit(X, y)
    parts = []
    for network in model.networks_:
        one = clone(model).fit(X, y)
        one.networks_ = [network]
        parts.append((*one.predict(X, return_std=True), one.log_density(X, y)))
    means, stds, densities = (np.array(part) for part in zip(*parts, strict=True))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, means.mean(axis=0))
    np.testing.assert_allclose(std**2, (stds**2).mean(axis=0) + means.var(axis=0))
    np.testing.assert_allclose(np.exp(model.log_density(X, y)), np.exp(densities).mean(axis=0))
    assert np.all(means.std(axis=0) > 0)


def test_a_weight_counts_rows(rng: np.random.Generator) -> None:
    """Rows of weight 0 are as if they were not there, in one batch; wrong rows of little weight do little harm."""
    X, y = waves(rng, 60, 0.1)
    wrong = y.copy()
    wrong[40:] += 100.0
    one = EBPRegressor(5, batch_size=100).fit(X, wrong, sample_weight=np.r_[np.ones(40), np.full(20, 1e-9)])
    other = EBPRegressor(5, batch_size=100).fit(X[:40], y[:40])
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": "wide"}, "hidden must be a positive whole number or a sequence of them .* got 'wide'"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"num_networks": 1.5}, "num_networks must be a whole number of at least 1, got 1.5"),
        ({"units": "tanh"}, "units must be one of 'relu', 'sign', got 'tanh'"),
    ],
)
def test_impossible_parameters(options: dict[str, Any], message: str, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=message):
        EBPRegressor(**options).fit(rng.normal(size=(4, 2)), [0.0, 1.0, 2.0, 3.0])


def test_early_stopping_finds_the_number_of_passes() -> None:
    """10 passes are too few where the noise is small; 80 overfit inputs that say nothing of a few noisy targets."""
    rng = np.random.default_rng(1)
    X, y = waves(rng, 200, 0.01)
    assert EBPRegressor(20, epochs=40, early_stopping=True).fit(X, y).n_epochs_ > 10
    X_noise, y_noise = rng.normal(size=(560, 10)), rng.normal(size=560)
    early = EBPRegressor(20, epochs=80, early_stopping=True).fit(X_noise[:60], y_noise[:60])
    assert early.n_epochs_ == 10
    plain, late = (EBPRegressor(20, epochs=epochs).fit(X_noise[:60], y_noise[:60]) for epochs in (10, 80))
    np.testing.assert_array_equal(early.predict(X_noise), plain.predict(X_noise))  # the number is all that is chosen
    assert np.mean(early.log_density(X_noise[60:], y_noise[60:]) - late.log_density(X_noise[60:], y_noise[60:])) > 0.2


def test_early_stopping_of_rows_without_weight() -> None:
    X, y = waves(np.random.default_rng(2), 30, 0.1)
    weight = np.where(np.arange(30) < 3, 1.0, 0.0)
    EBPRegressor(5, epochs=20, early_stopping=True).fit(X, y, sample_weight=weight)
    assert EBPRegressor(5, epochs=3, early_stopping=True).fit(X[:1], y[:1]).n_epochs_ == 3
