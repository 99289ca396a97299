"""Bits of a layer against the definition of the unit round-off, rounding against its error bound, and the search."""

from collections.abc import Callable

import numpy as np
import pytest

from compression.rounding.bits import (
    FixedPoint,
    exponent_bits,
    fixed_point,
    layer_bits,
    search_bits,
    significant_bits,
)


def slow_bits(variance: float) -> int:
    """How many t from 1 to 23 have 2 V < u(t) = 1/2 * 2**(1 - t)."""
    return sum(2 * variance < 0.5 * 2.0 ** (1 - t) for t in range(1, 24))


def test_significant_bits_count_the_formats_that_are_too_coarse(rng: np.random.Generator) -> None:
    variances = np.concatenate([10.0 ** rng.uniform(-12, 2, 500), 2.0 ** -np.arange(30.0), [0.0]])
    np.testing.assert_array_equal(significant_bits(variances), [slow_bits(v) for v in variances])


def test_the_two_rules() -> None:
    variances = [np.array([[2.0**-9, 0.5, 0.5]])]  # 7, 0 and 0 bits; their mean variance has none
    assert significant_bits(variances[0]).tolist() == [[7, 0, 0]]
    assert layer_bits(variances) == [3]
    assert layer_bits(variances, rule="bits_of_mean") == [0]


def test_the_exponent_is_three_or_as_large_as_needed() -> None:
    assert [exponent_bits([x]) for x in (0.0, 0.1, -7.99, 8.0, -8.0, 16.5)] == [3, 3, 3, 4, 4, 5]
    assert [exponent_bits([x], minimum=0) for x in (0.0, 0.3, 0.99, 1.0, 3.9)] == [0, 0, 0, 1, 2]


@pytest.mark.parametrize("significant", [0, 1, 7, 20, 23])
def test_rounding_stays_within_half_a_step(rng: np.random.Generator, significant: int) -> None:
    weights = rng.normal(size=(4, 50)).astype(np.float32)
    rounded = fixed_point(weights, significant)
    assert rounded.values.dtype == np.float32
    assert rounded.bits == significant + 4
    assert np.abs(rounded.values.astype(np.float64) - weights).max() <= 2.0 ** -(significant + 1)
    steps = rounded.values.astype(np.float64) * 2**significant
    np.testing.assert_array_equal(steps, np.round(steps))
    np.testing.assert_array_equal(fixed_point(rounded.values, significant).integers, rounded.integers)


def test_halves_go_up_and_the_top_is_the_largest_number() -> None:
    assert fixed_point([0.25, -0.25, 0.75], 1).values.tolist() == [0.5, 0.0, 1.0]
    assert fixed_point([7.99, -7.99], 1, 3).values.tolist() == [7.5, -8.0]


def test_large_weights_raise_the_exponent_or_are_refused() -> None:
    assert fixed_point([9.0], 2).exponent == 4
    with pytest.raises(ValueError, match=r"with 3 exponent bits holds \|w\| < 8, got \|w\| = 9; use exponent=4"):
        fixed_point([9.0], 2, 3)
    with pytest.raises(ValueError, match="finite and below"):
        fixed_point([np.nan], 2)
    with pytest.raises(ValueError, match="more than the 32 of a float"):
        fixed_point([60000.0], 23)
    with pytest.raises(ValueError, match="significant bits must be 0 to 23, got 24"):
        fixed_point([1.0], 24)


@pytest.mark.parametrize("bad", [[-1.0], [np.nan]])
def test_variances_must_be_variances(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="variances must be at least 0"):
        significant_bits(bad)


def test_layers_must_have_weights_and_rules_names() -> None:
    with pytest.raises(ValueError, match="layer 2 has no weights left"):
        layer_bits([[0.1], []])
    with pytest.raises(ValueError, match="rule must be"):
        layer_bits([[0.1]], rule="median")


def distances(kernels: list[np.ndarray], weights: tuple[float, ...]) -> Callable[[list[FixedPoint]], float]:
    def error(layers: list[FixedPoint]) -> float:
        parts = [np.abs(f.values - k).max() * w for f, k, w in zip(layers, kernels, weights, strict=True)]
        return float(sum(parts))

    return error


def test_the_search_drops_bits_of_the_layer_that_matters_less(rng: np.random.Generator) -> None:
    kernels = [rng.normal(size=(30, 30)), rng.normal(size=(30, 30))]
    error_of = distances(kernels, (1.0, 0.05))
    found = search_bits(kernels, error_of, start=[12, 12], max_error=0.01)
    assert error_of(found) <= 0.01
    assert found[0].significant > found[1].significant
    for i in range(2):  # no layer can lose another bit
        fewer = list(found)
        fewer[i] = fixed_point(kernels[i], found[i].significant - 1)
        assert error_of(fewer) > 0.01


def test_the_search_adds_bits_if_it_starts_with_too_few(rng: np.random.Generator) -> None:
    kernels = [rng.normal(size=(5, 5))]
    found = search_bits(kernels, distances(kernels, (1.0,)), start=[1], max_error=0.01)
    assert found[0].significant in (5, 6)


def test_the_search_says_if_the_bound_is_impossible() -> None:
    with pytest.raises(ValueError, match="allow more than the error of the unrounded network"):
        search_bits([np.ones(3)], lambda layers: 1.0, start=[4], max_error=0.5)
    with pytest.raises(ValueError, match="start must have one number of bits for each of 1 layers, got 2"):
        search_bits([np.ones(3)], lambda layers: 0.0, start=[4, 4], max_error=0.5)
