"""`EBPRegressor`: scikit-learn's checks, intervals that cover what they say, streams, several targets and networks."""

import dataclasses
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from ebp import EBPRegressor

#: Rows are learned one after the other in a random order, so two copies are not one row of weight 2.
ORDER = {
    f"check_sample_weight_equivalence_on_{kind}_data": "the result depends on the order of the rows"
    for kind in ("dense", "sparse")
}


@parametrize_with_checks([EBPRegressor()], expected_failed_checks=lambda estimator: ORDER)
@pytest.mark.filterwarnings("ignore:Skipping check")
@pytest.mark.usefixtures("global_generator")
def test_scikit_learn_accepts_the_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


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


def test_a_real_table() -> None:
    """442 patients; the s.d. of the target is 77, and no model known comes below an error of 53."""
    X, y = load_diabetes(return_X_y=True)
    model = EBPRegressor(epochs=10).fit(X[::2], y[::2])
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
    for posterior, noise in zip(model.posteriors_, model.noises_, strict=True):
        one = clone(model).fit(X, y)
        one.posteriors_, one.noises_ = [posterior], [noise]
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
    one = EBPRegressor(5, batch_size=100, epochs=10, max_count=3).fit(
        X, wrong, sample_weight=np.r_[np.ones(40), np.full(20, 1e-9)]
    )
    other = EBPRegressor(5, batch_size=100, epochs=10, max_count=3).fit(X[:40], y[:40])
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": "wide"}, "hidden must be a positive whole number or a sequence of them .* got 'wide'"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"num_networks": 1.5}, "num_networks must be a whole number of at least 1, got 1.5"),
    ],
)
def test_impossible_parameters(options: dict[str, Any], message: str, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=message):
        EBPRegressor(**options).fit(rng.normal(size=(4, 2)), [0.0, 1.0, 2.0, 3.0])


def test_rows_without_weight_take_no_part() -> None:
    """Three rows are left to hold back from."""
    X, y = waves(np.random.default_rng(2), 30, 0.1)
    EBPRegressor(5, epochs=3).fit(X, y, sample_weight=np.where(np.arange(30) < 3, 1.0, 0.0))


# Tables that nobody tuned for.


def hull(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """As of the resistance of hulls: a grid of shapes, and a resistance from 0 to 60 that grows exponentially."""
    X = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=(num_rows, 6))
    X[:, 5] = rng.choice(np.linspace(0.125, 0.45, 14), size=num_rows)
    y = 0.02 * np.exp(17.5 * X[:, 5]) * (1 + 0.1 * X[:, 0] - 0.05 * X[:, 1] * X[:, 2])
    return X, y + 0.02 * rng.normal(size=num_rows)


def exponential(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(0, 1, (num_rows, 4))
    return X, np.exp(8 * X[:, 0]) * (1 + 0.02 * rng.normal(size=num_rows))


def log_normal(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(num_rows, 6))
    return X, np.exp(2 * X[:, 0] + 0.3 * rng.normal(size=num_rows))


def heavy_tails(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(num_rows, 5))
    return X, X[:, 0] + 0.5 * np.abs(X[:, 1]) + 0.3 * rng.standard_t(1.5, num_rows)


def one_huge_target(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(num_rows, 5))
    y = X[:, 0] + 0.1 * rng.normal(size=num_rows)
    y[7] = 1e4
    return X, y


def heavy_inputs(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.standard_t(1.2, size=(num_rows, 5))
    return X, np.sin(np.clip(X[:, 0], -5, 5)) + 0.1 * rng.normal(size=num_rows)


@pytest.mark.parametrize("table", [hull, exponential, log_normal, heavy_tails, one_huge_target, heavy_inputs])
def test_no_table_makes_it_explode(table: Any) -> None:
    """Training errors are at most those of the mean, but for the scatter of last layers that learn nothing (a tenth).

    With unbounded updates, log-normal targets have a test error of 14 times the mean's, and hulls 27 to 223 units.
    """
    for seed in range(2):
        X, y = table(np.random.default_rng(seed), 300)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = EBPRegressor(max_count=8).fit(X, y)
        assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 1.1 * np.std(y)
        inner = np.max(np.abs(X - X.mean(axis=0)) / X.std(axis=0), axis=1) < 4  # rows among those that were learned
        other_X, other_y = table(np.random.default_rng(100 + seed), 300)
        among = np.all((other_X >= X[inner].min(axis=0)) & (other_X <= X[inner].max(axis=0)), axis=1)
        errors = model.predict(other_X[among]) - other_y[among]
        assert np.sqrt(np.mean(errors**2)) < 1.5 * np.std(np.r_[y, other_y])


def test_targets_that_rule_all_others_are_named(rng: np.random.Generator) -> None:
    """One, and two of a log-normal kind; not of a rare event, of one row in ten, or of fewer rows than 30."""
    X, y = one_huge_target(rng, 60)
    y[7] = 25.0
    with pytest.warns(ConvergenceWarning, match=r"of the variance of y are of 1 of 60 targets \(25\)"):
        EBPRegressor(5, epochs=1).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="take logarithms of y"):
        EBPRegressor(5, epochs=1).fit(X, np.exp(3.0 * X[:, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EBPRegressor(5, epochs=1).fit(X, np.arange(60) % 10 == 0)
        EBPRegressor(5, epochs=10).fit(X[:20], y[:20])


def test_a_fit_that_fails_says_so(rng: np.random.Generator) -> None:
    X, y = waves(rng, 60, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = EBPRegressor(5, epochs=2).fit(X, y)
    posterior = model.posteriors_[0]
    model.posteriors_ = [posterior._replace(mean=(*posterior.mean[:-1], posterior.mean[-1] + 9.0))]
    with pytest.warns(ConvergenceWarning, match="the fit has failed: the mean squared error on the training data is"):
        model._warn_if_worse_than_the_mean(model._check(X, y, None, reset=False))


def test_a_row_counts_once_where_it_says_nothing() -> None:
    """200 rows of 20 inputs and targets that are noise: 90 % intervals of new rows cover 90 %, and R^2 is about 0.

    The noise's size is known to 5 % from 200 rows, which moves the coverage by 2 %; five tables of 1,000 rows each.
    """
    covered, explained = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(1200, 20)), rng.normal(size=1200)
        model = EBPRegressor().fit(X[:200], y[:200])
        mean, std = model.predict(X[200:], return_std=True)
        covered.append(np.mean(np.abs(mean - y[200:]) < stats.norm.ppf(0.95) * std))
        explained.append(1 - np.mean((mean - y[200:]) ** 2) / np.var(y[200:]))
    assert 0.85 < np.mean(covered) < 0.95  # 0.47 if 40 passes count as 25 rows each
    assert np.mean(explained) > -0.15  # -0.57


def test_no_row_that_came_last_rules(rng: np.random.Generator) -> None:
    """What 200 rows of noise say of the mean has a standard error of 0.07; predictions are within three of them.

    After the last row, rather than on the mean over the last pass, half of these seeds are beyond them, up to 0.9.
    """
    X, y = rng.normal(size=(200, 20)), rng.normal(size=200)
    for seed in range(6):
        model = EBPRegressor(random_state=seed, max_count=1).fit(X, y)
        assert abs(np.mean(model.predict(X)) - np.mean(y)) < 3 * np.std(y) / np.sqrt(200)


def test_groups_are_held_back_as_a_whole(rng: np.random.Generator) -> None:
    """Each row stands nearly eight times in the table: single rows held back would be known by heart."""
    X, y = rng.normal(size=(40, 10)), rng.normal(size=40)
    X, y, groups = np.repeat(X, 8, axis=0), np.repeat(y, 8), np.repeat(np.arange(40), 8)
    X += 1e-6 * rng.normal(size=X.shape)
    assert EBPRegressor().fit(X, y, groups=groups).count_ == 1
    assert EBPRegressor().fit(X, y).count_ == 8
    with pytest.raises(ValueError, match=r"groups must name a group for each of 320 rows, got shape \[40\]"):
        EBPRegressor().fit(X, y, groups=np.arange(40))
    with pytest.raises(ValueError, match="groups must be at least two"):
        EBPRegressor().fit(X, y, groups=np.zeros(320))


@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_the_first_call_fixes_no_scale(chunk: int) -> None:
    """Prices of 1e5 with a deviation of 2e4, of which inputs tell nearly all, row by row."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(600, 3))
    y = 1e5 + 2e4 * (X[:, 0] + 0.1 * rng.normal(size=600))
    model = EBPRegressor(20)
    for start in range(0, 400, chunk):
        model.partial_fit(X[start : start + chunk], y[start : start + chunk])
    mean, std = model.predict(X[400:], return_std=True)
    assert np.sqrt(np.mean((mean - y[400:]) ** 2)) < 0.4 * 2e4  # 1.0 with the scale of the first row
    assert np.mean(np.abs(mean - y[400:]) < 3 * std) > 0.95


def test_targets_that_begin_to_vary_late() -> None:
    """A hundred equal ones, then prices; and the other way round: a hundred far apart, then near each other."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(1200, 3))
    signal = X[:, 0] + 0.1 * rng.normal(size=1200)
    for y in (
        np.where(np.arange(1200) < 100, 7.0, 1e5 + 2e4 * signal),
        np.where(np.arange(1200) < 100, 1e3, 1.0) * signal,
    ):
        model = EBPRegressor(20)
        for start in range(0, 1000, 20):
            model.partial_fit(X[start : start + 20], y[start : start + 20])
        scale = np.std(y[:1000])
        assert np.sqrt(np.mean((model.predict(X[1000:]) - y[1000:]) ** 2)) < 0.5 * scale


def test_new_units_change_no_prediction(rng: np.random.Generator) -> None:
    """The last layer in other units predicts the same means; where the units shrink, the same deviations, too."""
    X, y = waves(rng, 200, 0.2)
    model = EBPRegressor(10, epochs=3).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    old = model._targets
    for factor in (0.8, 3.0):
        other = pickle.loads(pickle.dumps(model))
        other._change_units(dataclasses.replace(old, mean=old.mean + 5.0, deviation=old.deviation * factor))
        new_mean, new_std = other.predict(X, return_std=True)
        np.testing.assert_allclose(new_mean, mean, rtol=1e-9)
        assert np.all(new_std >= std * (1 - 1e-9))
        if factor < 1:
            np.testing.assert_allclose(new_std, std, rtol=1e-9)


@pytest.mark.parametrize("factor", [1e-200, 1e-30, 1e200])
def test_targets_and_inputs_of_any_size(factor: float, rng: np.random.Generator) -> None:
    X, y = waves(rng, 60, 0.1)
    plain = EBPRegressor(5, epochs=3).fit(X, y)
    mean, std = plain.predict(X, return_std=True)
    scaled_mean, scaled_std = EBPRegressor(5, epochs=3).fit(X / factor, y * factor).predict(X / factor, return_std=True)
    np.testing.assert_allclose(scaled_mean / factor, mean, rtol=1e-6)
    np.testing.assert_allclose(scaled_std / factor, std, rtol=1e-6)


def test_verbose_tells_of_passes(capsys: pytest.CaptureFixture[str]) -> None:
    X = np.linspace(-1, 1, 20)[:, None]
    for verbose, count in ((0, 0), (1, 10), (2, 20)):
        EBPRegressor(hidden=2, epochs=20, max_count=1, verbose=verbose).fit(X, X[:, 0])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == count
        assert not count or lines[-1].startswith("pass 20 of 20")


def test_variances_are_those_of_rows_held_back() -> None:
    """Of 108 rows with 18 inputs the posterior alone is too sure: its 90 % intervals held 73 %."""
    rng = np.random.default_rng(1016)
    X = rng.normal(size=(1108, 18))
    y = np.tanh(X @ rng.normal(size=(18, 5))) @ rng.normal(size=5)
    y = y / y.std() + rng.normal(size=len(X))
    model = EBPRegressor(50, epochs=20).fit(X[:108], y[:108])
    mean, std = model.predict(X[108:], return_std=True)
    assert model._spread[0] > 1.1
    assert 0.8 < np.mean(np.abs(mean - y[108:]) < 1.645 * std) < 0.97
    normal = -0.5 * np.log(2 * np.pi * std**2) - 0.5 * ((y[108:] - mean) / std) ** 2
    np.testing.assert_allclose(model.log_density(X[108:], y[108:]), normal, rtol=1e-9)
    plain = EBPRegressor(50, epochs=20, max_count=model.count_).fit(X[:108], y[:108])
    np.testing.assert_array_equal(plain._spread, [1.0])
    np.testing.assert_allclose(std, plain.predict(X[108:], return_std=True)[1] * np.sqrt(model._spread[0]))


def test_equal_rows_are_held_back_together(rng: np.random.Generator) -> None:
    """A copy of a row that is learned says nothing of the errors for new ones; 20 % were covered where nine told."""
    X, y = rng.normal(size=(260, 6)), rng.normal(size=260)
    model = EBPRegressor(5, epochs=8).fit(np.repeat(X[:20], 9, axis=0), np.repeat(y[:20], 9))
    mean, std = model.predict(X[20:], return_std=True)
    assert np.mean(np.abs(mean - y[20:]) < 1.645 * std) > 0.7


def test_one_row_far_from_all_others_does_not_widen_their_intervals(rng: np.random.Generator) -> None:
    """Networks that never saw such a row can be wrong by as much as it is far away."""
    X, y = waves(rng, 60, 0.1)
    X[3] = 1e9
    std = EBPRegressor(5, epochs=4).fit(X, y).predict(X, return_std=True)[1]
    assert np.all(std < 10 * np.std(y))
