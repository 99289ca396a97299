"""`ebp.estimators.inputs.decorrelation`: what is in small differences of columns is learned, and the rest stays as it
is."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ebp import EBPGaussianClassifier, EBPRegressor
from ebp.estimators.inputs.decorrelation import MAX_COLUMNS, decorrelation


def root_of(X: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
    found = decorrelation(X, weight)
    assert found is not None
    return found


def test_columns_lose_their_correlations(rng: np.random.Generator) -> None:
    """As far as N rows tell them; single columns change least, so that uncorrelated ones stay."""
    X = rng.normal(size=(2000, 4)) @ rng.normal(size=(4, 4))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    weight = np.ones(len(X))
    found = root_of(X, weight)
    np.testing.assert_allclose(found, found.T, atol=1e-12)
    np.testing.assert_allclose(np.cov((X @ found).T), np.eye(4), atol=0.1)
    plain = root_of(np.linalg.qr(X)[0] * np.sqrt(len(X)), weight)
    np.testing.assert_allclose(plain, np.eye(4), atol=1e-12)
    # A weight counts rows; a column that does not vary is left alone.
    twice = np.where(np.arange(len(X)) < 1000, 2.0, 0.0)
    np.testing.assert_allclose(root_of(X, twice), root_of(np.vstack([X[:1000]] * 2), weight))
    still = root_of(np.hstack([X, np.zeros((len(X), 1))]), weight)
    np.testing.assert_allclose(still[4], np.eye(5)[4], atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 4), (3, 10), (1, 3), (50, 1), (2 * MAX_COLUMNS, MAX_COLUMNS)])
def test_few_rows_and_many_columns_are_left_alone(shape: tuple[int, int]) -> None:
    assert decorrelation(np.ones(shape), np.ones(shape[0])) is None


def test_a_small_difference_of_columns_is_learned(rng: np.random.Generator) -> None:
    """A twentieth of two columns that are else the same; without the map the score is 0.18."""
    common, difference = rng.normal(size=(2, 400))
    X = np.stack([common, common + 0.05 * difference], axis=1)
    model = EBPRegressor(10, epochs=10, max_count=3).fit(X[:300], difference[:300])
    assert model.score(X[300:], difference[300:]) > 0.9
    # Of equal columns nothing is known of their difference, so it is not made larger.
    same = root_of(np.stack([common, common], axis=1), np.ones(400))
    np.testing.assert_allclose(same @ [1.0, -1.0], [1.0, -1.0])


def test_rows_held_back_choose_whether_a_classifier_has_correlated_inputs(rng: np.random.Generator) -> None:
    """A border in a twentieth of two columns that are else the same is learned; where it is in both, they stay."""
    common, difference = rng.normal(size=(2, 1300))
    X = np.stack([common, common + 0.05 * difference], axis=1)
    X = np.hstack([X, rng.normal(size=(1300, 2))])
    small = EBPGaussianClassifier(10).fit(X[:300], difference[:300] > 0)
    assert small._design.is_decorrelated
    assert small.score(X[300:], difference[300:] > 0) > 0.9
    plain = EBPGaussianClassifier(10, decorrelate=False).fit(X[:300], difference[:300] > 0)
    assert plain.score(X[300:], difference[300:] > 0) < 0.8
    # Rows that come later are coded in the same way.
    small.partial_fit(X[300:400], difference[300:400] > 0)
    assert small.score(X[400:], difference[400:] > 0) > 0.9
    large = EBPGaussianClassifier(10).fit(X[:300], common[:300] > 0)
    assert not large._design.is_decorrelated
    # A number in place of the race leaves them, unless it is asked for.
    assert not EBPGaussianClassifier(5, epochs=1, max_count=1).fit(X, common > 0)._design.is_decorrelated
    asked = EBPGaussianClassifier(5, epochs=1, max_count=1, decorrelate=True).fit(X, common > 0)
    assert asked._decorrelation is not None
    with pytest.raises(ValueError, match="decorrelate must be True, False or 'auto', got 'yes'"):
        EBPGaussianClassifier(decorrelate="yes").fit(X, common > 0)
