"""Rows as they come: weights, absent entries, categories; rows at another temperature and with clamped units."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy import sparse

from rbm_tracking.model.conditionals import fill_in, impute
from rbm_tracking.model.exact import log_z_exact, moments_exact
from rbm_tracking.model.families.mixed import Mixed
from rbm_tracking.model.families.rectified import DReLU, ReLU
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible
from rbm_tracking.use.estimator_rows import (
    as_categories,
    at_temperature,
    drawn,
    drawn_given,
    filled,
    minibatches,
    one_hot,
    resampled,
)
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import Settings, tracked_rbm
from tests.statistical import assert_mean_close

QUICK: Settings = {
    "n_components": 4,
    "max_updates": 300,
    "n_temps": 3,
    "n_chains": 5,
    "n_target_chains": 20,
    "batch_size": 30,
    "ais_temps": 20,
    "early_stopping": False,
    "random_state": 0,
}


def make(rng: np.random.Generator, visible: Visible, n_v: int = 5) -> RBM:
    return RBM(*map(tf.constant, oracles.random_rbm(rng, 3, n_v)))._replace(visible=visible)


def test_rows_are_drawn_as_often_as_their_weights_say(rng: np.random.Generator) -> None:
    """Each row of n times its share, up to less than one; in all minibatches of many passes their share exactly."""
    weights = rng.exponential(size=50)
    share = 50 * weights / weights.sum()
    for seed in range(20):
        counts = np.bincount(resampled(np.random.RandomState(seed), weights, np.arange(50)), minlength=50)
        assert counts.sum() == 50
        assert (np.abs(counts - share) < 1 + 1e-9).all()
    batches = minibatches(np.random.RandomState(0), 50, 20, weights)
    counts = np.bincount(np.concatenate([next(batches) for _ in range(2000)]), minlength=50)
    np.testing.assert_allclose(counts / counts.sum(), weights / weights.sum(), atol=0.002)


def test_absent_entries_of_sparse_rows_are_those_of_dense_ones(rng: np.random.Generator) -> None:
    rows = (rng.random((30, 4)) < 0.4).astype(float)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    dense, sparse_rows = (filled(X, (), np.random.RandomState(0)) for X in (rows, sparse.csr_matrix(rows)))
    np.testing.assert_array_equal(sparse_rows[0], dense[0])
    assert sparse_rows[1] is not None
    np.testing.assert_array_equal(sparse_rows[1], np.isnan(rows))


def test_sparse_rows_are_never_dense_numbers_of_64_bits() -> None:
    rows = sparse.random_array((30, 40), density=0.1, format="csr", rng=0)
    rows.data[:] = 1.0
    found = drawn(rows, "bernoulli", np.random.RandomState(0))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, rows.toarray())


def test_absent_entries_begin_as_values_of_other_rows() -> None:
    X = np.array([[1.0, 0, np.nan], [0, 1, 1], [np.nan, np.nan, 1]])
    rows, is_missing = filled(X, [[0, 1]], np.random.RandomState(0))
    assert is_missing is not None
    np.testing.assert_array_equal(is_missing, np.isnan(X))
    np.testing.assert_array_equal(rows[~is_missing], X[~np.isnan(X)])
    assert rows[0, 2] == 1
    assert rows[2, :2].tolist() in ([1, 0], [0, 1])
    assert filled(rows, [], np.random.RandomState(0))[1] is None
    with pytest.raises(ValueError, match=r"columns \[0, 2\] are one category, of which all or none must be NaN"):
        filled(X, [[0, 2]], np.random.RandomState(0))
    with pytest.raises(ValueError, match="column 1 of X is NaN in every row"):
        filled(np.array([[1.0, np.nan]]), [], np.random.RandomState(0))


@pytest.mark.parametrize("visible", [Bernoulli(), Softmax(5, ((0, 1, 2), (3, 4)), (True, False)), Gaussian(np.ones(5))])
def test_absent_entries_are_drawn_given_the_others(rng: np.random.Generator, visible: Visible) -> None:
    """Their means over many rounds are the exact conditional ones, and what is there stays."""
    rbm = make(rng, visible)
    row = np.array([1.0, 0, 0, 1, 0])
    mask = np.array([True, True, True, False, False])
    rows = np.repeat(row[None], 4000, axis=0)
    found = fill_in(rbm, rows, np.broadcast_to(mask, rows.shape), rng=rng, num_steps=25)
    np.testing.assert_array_equal(found[:, ~mask], rows[:, ~mask])
    expected = impute(rbm, row[None], mask[None], rng=rng)
    assert expected.is_exact.all()
    assert_mean_close(found[:, mask], expected.values[0, mask], min_detectable=0.12)
    given = drawn_given(rbm, np.where(mask, np.nan, row), 4000, 25, rng)
    assert_mean_close(given[:, mask].astype(float), expected.values[0, mask], min_detectable=0.12)
    with pytest.raises(ValueError, match=r"given must be \[5\], one value or NaN for each unit"):
        drawn_given(rbm, row[:3], 2, 1, rng)


def test_at_a_temperature_all_energies_are_divided_by_it(rng: np.random.Generator) -> None:
    rbm = make(rng, Bernoulli())
    parameters = [np.asarray(part) for part in rbm[:3]]
    expected = oracles.log_z([part / 0.5 for part in parameters])
    assert log_z_exact(at_temperature(rbm, 0.5)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "units",
    [
        Spin(),
        Softmax(3, ((0, 1, 2),), (True,)),
        Gaussian(np.array([0.5, 1.0, 2.0])),
        ReLU(np.array([0.5, 0.0, -1.0])),
        DReLU(np.array([0.5, 0.0, -1.0]), np.array([0.2, 1.0, 0.0]), np.array([0.3, -0.5, 0.0])),
        Mixed(((0, 2), (1,)), (ReLU(np.array([0.5, -1.0])), Gaussian(np.array([3.0])))),
    ],
)
def test_at_a_temperature_measures_are_powers(units: Visible, rng: np.random.Generator) -> None:
    """Of units of either layer: log m(v) is divided as the rest of the energy is."""
    rbm = make(rng, units, n_v=3)._replace(hidden=units)
    colder = at_temperature(rbm, 0.4)
    rows = np.abs(rng.normal(size=(5, 3)))
    for family, cold in ((units, colder.visible), (units, colder.hidden)):
        np.testing.assert_allclose(cold.log_measure(rows), family.log_measure(rows) / 0.4, rtol=1e-6)


@pytest.mark.parametrize(
    "X",
    [
        np.array([["a", "x"], ["b", "y"], [None, "x"], ["c", "y"]], object),
        np.array([[1.0, 3], [2, 4], [np.nan, 3], [5, 4]]),
        pd.DataFrame({"u": ["a", "b", None, "c"], "w": pd.Categorical(["x", "y", "x", "y"])}),
    ],
)
def test_categories_as_they_come_are_a_column_for_each_level(X: Any) -> None:
    encoder = as_categories(X)
    assert encoder is not None
    levels = one_hot(encoder, X)
    expected = [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [np.nan, np.nan, np.nan, 1, 0], [0, 0, 1, 0, 1]]
    np.testing.assert_array_equal(levels, np.array(expected))


def test_what_is_no_category_is_left_alone() -> None:
    assert as_categories(np.array([[0.0, 1], [np.nan, 1]])) is None
    assert as_categories(np.array([[0.5, 1]])) is None
    assert as_categories(sparse.csr_array(np.eye(2))) is None
    encoder = as_categories(np.array([["a"], ["b"]]))
    assert encoder is not None
    with pytest.raises(ValueError, match=r"column 0 of X must hold levels that fit has seen, a, b, got 'c'"):
        one_hot(encoder, np.array([["c"]]))


@pytest.fixture(scope="module")
def codes() -> np.ndarray:
    """Two kinds of rows with four categories, 400 rows."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 400)
    return 1 + np.where(rng.random((400, 4)) < 0.85, 2 * kind[:, None], rng.integers(0, 3, (400, 4)))


def test_absent_categories_are_learned_around(codes: np.ndarray) -> None:
    """Half of the entries are enough to say what the other half is, far better than their shares."""
    rng = np.random.default_rng(1)
    is_absent = rng.random(codes.shape) < 0.4
    model = tracked_rbm(visible="softmax", **QUICK).fit(np.where(is_absent, np.nan, codes))
    assert isinstance(model.rbm_.visible, Softmax)
    assert model.rbm_.visible.is_required == (True,) * 4
    found = model.impute(np.where(is_absent, np.nan, codes)).values.reshape(400, 4, 3)
    right = np.take_along_axis(found, (codes - 1)[..., None], axis=2)[..., 0][is_absent]
    assert np.log(right).mean() > -0.95  # by the shares of the levels: -1.09
    assert abs(model.log_z_ - log_z_exact(model.rbm_)) < 0.2
    assert model.score(codes) > 4 * np.log(1 / 3) + 0.5
    with pytest.raises(ValueError, match="no missing values here, got NaN; fit takes them"):
        model.score(np.where(is_absent, np.nan, codes))


def test_rows_with_gaps_are_no_validation_rows(rng: np.random.Generator) -> None:
    X = rng.integers(0, 2, (40, 6)).astype(float)
    X[:15, 0] = np.nan
    model = tracked_rbm(**{**QUICK, "early_stopping": True, "max_updates": 50, "validation_fraction": 0.5}).fit(X)
    assert model.validation_scores_
    X[:25, 0] = np.nan
    model.fit(X)
    assert model.validation_scores_ == []


def test_weights_of_rows_are_their_shares(rng: np.random.Generator) -> None:
    """The model of weighted rows has their weighted means, without rows of weight 0."""
    X = np.repeat([[1.0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], 30, axis=0)
    weights = np.repeat([3.0, 1.0, 0.0], 30)
    model = tracked_rbm(**QUICK).fit(X, sample_weight=weights)
    np.testing.assert_allclose(moments_exact(model.rbm_).v, [0.75, 0.75, 0.25, 0.25], atol=0.05)
    with pytest.raises(ValueError, match=r"sample_weight\.shape == \(5,\)"):
        tracked_rbm(**QUICK).fit(X, sample_weight=weights[:5])


@pytest.mark.parametrize("average", [0.0, 0.999])
def test_weights_that_l1_pulls_to_zero_are_zero(average: float, rng: np.random.Generator) -> None:
    X = rng.integers(0, 2, (60, 5)).astype(float)
    model = tracked_rbm(**{**QUICK, "max_updates": 40, "average": average}, l1=0.3).fit(X)
    assert (model.components_ == 0).mean() > 0.5
    assert abs(model.log_z_ - log_z_exact(model.rbm_)) < 0.1


def test_rows_of_a_fitted_model_at_a_temperature_and_given_units(codes: np.ndarray) -> None:
    model = tracked_rbm(visible="softmax", **QUICK).fit(codes)
    given = np.r_[[0.0, 0, 1], np.full(9, np.nan)]
    rows = model.sample(200, given=given, burn_in=20, random_state=0)
    assert (rows[:, 2] == 1).all()
    assert rows[:, 5].mean() > rows[:, 3].mean()
    cold = model.sample(200, temperature=0.3, burn_in=50, thin=5, random_state=0)
    warm = model.sample(200, burn_in=50, thin=5, random_state=0)
    mean = model._parameters.visible
    mean.check(cold)
    log_q = [model.score_samples(rows.astype(float)).mean() for rows in (cold, warm)]  # type: ignore[union-attr]
    assert log_q[0] > log_q[1]
    with pytest.raises(ValueError, match="temperature must be positive"):
        model.sample(1, temperature=0.0)
