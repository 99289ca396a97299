"""`DARNDensity` as scikit-learn wants it."""

import itertools
import warnings

import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from darn import DARNDensity

N_X = 5
TINY = DARNDensity(hidden=3, units=4, learning_rate=0.01, max_steps=50)


@pytest.fixture(scope="module")
def bits() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.integers(0, 2, (3, N_X))[rng.integers(0, 3, 200)] ^ (rng.uniform(size=(200, N_X)) < 0.1)).astype(int)


@pytest.fixture(scope="module")
def fitted(bits: np.ndarray) -> DARNDensity:
    return clone(TINY).fit(bits)


def every_row() -> np.ndarray:
    return np.array(list(itertools.product((0, 1), repeat=N_X)))


def test_it_is_a_density_in_nats(fitted: DARNDensity, bits: np.ndarray) -> None:
    log_p = fitted.score_samples(every_row())
    assert np.exp(log_p).sum() == pytest.approx(1.0, abs=1e-5)
    assert fitted.score(bits) == pytest.approx(fitted.score_samples(bits).mean())
    means = bits.mean(axis=0).clip(0.01, 0.99)
    independent = np.where(bits, np.log(means), np.log(1 - means)).sum(axis=1).mean()
    assert fitted.score(bits) > independent


def test_samples_have_the_frequencies_of_the_density(fitted: DARNDensity) -> None:
    """A frequency of 4,000 draws is beyond five standard errors in 6e-7 of all cases; 32 rows are looked at."""
    drawn, rows = fitted.sample(4000), every_row()
    assert drawn.shape == (4000, N_X)
    p = np.exp(fitted.score_samples(rows))
    found = (drawn[:, None] == rows[None]).all(axis=2).mean(axis=0)
    assert np.all(np.abs(found - p) < 5 * np.sqrt(p / 4000) + 1e-3)
    np.testing.assert_array_equal(fitted.sample(7), fitted.sample(7))
    assert not np.array_equal(fitted.sample(50), fitted.sample(50, random_state=1))


def test_the_code_is_the_more_probable_value_of_each_unit(fitted: DARNDensity) -> None:
    rows = every_row()
    h = fitted.transform(rows)
    assert h.shape == (32, 3)
    x = tf.constant(rows, tf.float32)
    (logits,) = fitted.model_.encoder_logits(x, (tf.constant(h),))
    np.testing.assert_array_equal(h, (logits > 0).numpy())


def test_the_same_seed_is_the_same_model(fitted: DARNDensity, bits: np.ndarray) -> None:
    again = clone(TINY).fit(bits)
    np.testing.assert_array_equal(again.score_samples(bits), fitted.score_samples(bits))


def test_the_architecture_is_chosen_if_not_given(bits: np.ndarray) -> None:
    density = DARNDensity(units=4, weight_decay=0.0, learning_rate=0.01, candidates=1, max_steps=25).fit(bits)
    assert density.choice_ is not None
    assert density.model_.config.hidden == density.choice_.model.hidden
    assert density.model_.config.visible_conditional == "linear"


def test_what_is_wrong_is_said(fitted: DARNDensity, bits: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"X must be 0 or 1 everywhere, got 0.5 in row 0, column 0; give threshold"):
        clone(TINY).fit(bits + 0.5)
    with pytest.raises(NotFittedError):
        clone(TINY).sample()
    with pytest.raises(ValueError, match="n_samples must be at least 1"):
        fitted.sample(0)
    with pytest.raises(ValueError, match=r"validation_fraction must be in \(0, 1\), got 1"):
        clone(TINY).set_params(validation_fraction=1).fit(bits)


@pytest.mark.slow
@pytest.mark.ci
def test_scikit_learn_checks_it(global_generator: None) -> None:
    """All of its checks, of bits that are numbers above a threshold."""
    estimator = DARNDensity(hidden=2, units=3, max_steps=25, threshold=0.0, dtype="float64")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(estimator)


@pytest.mark.slow
def test_it_serves_cross_validation(bits: np.ndarray) -> None:
    scores = cross_val_score(clone(TINY), bits, cv=3)
    assert scores.shape == (3,)
    assert np.all(scores < 0)
