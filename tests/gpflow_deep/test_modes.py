"""Modes of predictive densities."""

from typing import Any

import gpflow
import numpy as np
import pytest
from scipy.stats import norm, poisson

from gpflow_deep.judge.modes import Modes, find_modes, joined
from gpflow_deep.judge.predictive import gaussian, predictive


def mixture(weights: Any, means: Any, deviations: Any) -> Any:
    """One row and target."""
    arrays = (np.array(part, np.float64)[:, None, None] for part in (means, deviations))
    means, deviations = arrays
    return gaussian(np.array(weights), means, np.square(deviations))


def test_one_gaussian_has_its_mean() -> None:
    rng = np.random.default_rng(0)
    means, deviations = rng.normal(size=(1, 5, 2)), rng.uniform(0.01, 3.0, (1, 5, 2))
    found = find_modes(gaussian(np.ones(1), means, np.square(deviations)))
    np.testing.assert_array_equal(found.counts, 1)
    np.testing.assert_allclose(found.values, np.moveaxis(means, 0, -1), atol=1e-3 * deviations.max())
    np.testing.assert_allclose(found.densities[..., 0], norm.pdf(0.0) / deviations[0], rtol=1e-3)
    np.testing.assert_allclose(found.masses, 1.0, atol=1e-9)


def test_branches_with_their_probabilities() -> None:
    """Two far components of other widths, and a narrow one that covers less than a cell; the highest first."""
    found = find_modes(mixture([0.5, 0.3, 0.2], [0.0, 5.0, 9.0], [0.5, 0.2, 1e-4]))
    np.testing.assert_array_equal(found.counts, [[3]])
    np.testing.assert_allclose(found.values[0, 0], [9.0, 5.0, 0.0], atol=5e-3)
    np.testing.assert_allclose(found.masses[0, 0], [0.2, 0.3, 0.5], atol=3e-3)
    np.testing.assert_allclose(found.densities[0, 0, 1:], [0.3 * norm.pdf(0) / 0.2, 0.5 * norm.pdf(0) / 0.5], rtol=1e-2)


def test_bumps_of_draws_are_no_modes() -> None:
    """256 components of two branches, whose means scatter by less than their deviation; NaN where there are fewer."""
    rng, S = np.random.default_rng(1), 256
    sign = np.where(np.arange(S) % 2, 1.0, -1.0)[:, None, None]
    means = sign * np.array([0.0, 2.0])[None, :, None] + 0.1 * rng.standard_normal((S, 2, 1))
    found = find_modes(gaussian(np.full(S, 1 / S), means, np.full(means.shape, 0.2**2)))
    np.testing.assert_array_equal(found.counts, [[1], [2]])
    assert np.isnan(found.values[0, 0, 1])
    assert np.isnan(found.densities[0, 0, 1])
    np.testing.assert_allclose(np.sort(found.values[1, 0]), [-2.0, 2.0], atol=0.1)
    np.testing.assert_allclose(found.masses[1, 0], 0.5, atol=1e-3)


def test_prominence_decides_what_a_mode_is() -> None:
    """The density between two equal components at 2.6 deviations is 0.858 of their height."""
    two = mixture([0.5, 0.5], [-1.3, 1.3], [1.0, 1.0])
    assert find_modes(two, prominence=0.1).counts == 2
    assert find_modes(two).counts == 1
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match="prominence must be between 0 and 1, got"):
            find_modes(two, prominence=wrong)


def test_counts_and_positive_numbers() -> None:
    """The most probable number of Poisson targets; an exponential density is highest at 0."""
    f, small = np.log(np.array([[[0.4], [7.5], [3000.5]]])), np.full((1, 3, 1), 1e-12)
    found = find_modes(predictive(gpflow.likelihoods.Poisson(), np.zeros((3, 1)), f, small))
    np.testing.assert_allclose(found.values[..., 0], [[0.0], [7.0], [3000.0]], atol=1e-9)
    np.testing.assert_allclose(found.densities[:2, 0, 0], poisson.pmf([0, 7], [0.4, 7.5]), rtol=1e-3)
    found = find_modes(predictive(gpflow.likelihoods.Exponential(), np.zeros((3, 1)), f, small))
    np.testing.assert_array_equal(found.counts, 1)
    np.testing.assert_allclose(found.values[:, 0, 0], 0.0, atol=0.02 * np.exp(f[0].max()))


def test_counts_far_apart() -> None:
    """So many that a cell has several of them, in one row; another row has one for each."""
    f = np.log(np.array([[[150.0], [3.5]], [[1e5], [3.5]]]))
    found = find_modes(
        predictive(
            gpflow.likelihoods.Poisson(), np.zeros((2, 1)), f, np.full(f.shape, 1e-12), weights=np.array([0.3, 0.7])
        )
    )
    np.testing.assert_array_equal(found.counts, [[2], [1]])
    np.testing.assert_allclose(found.values[0, 0], [150.0, 1e5], atol=20)
    np.testing.assert_allclose(found.masses[0, 0], [0.3, 0.7], atol=2e-3)
    assert found.values[1, 0, 0] == 3.0


def test_parts_are_joined() -> None:
    one, two = mixture([1.0], [3.0], [1.0]), mixture([0.5, 0.5], [-4.0, 4.0], [1.0, 0.9])
    found = joined([find_modes(one), find_modes(two)])
    assert isinstance(found, Modes)
    assert found.values.shape == (2, 1, 2)
    np.testing.assert_array_equal(found.counts, [[1], [2]])
