"""`gpflow_deep.model.scaling`: standardisation, its way back, and which likelihood has standardised targets."""

import json

import gpflow
import numpy as np
import pytest

from gpflow_deep import Scale, Units


def test_scale_uses_the_given_part_and_inverts(rng: np.random.Generator) -> None:
    array = rng.normal(3.0, 5.0, size=(100, 4))
    scale = Scale.fit(array)
    standard = scale.transform(array)
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-14)  # rounding of sums of 100 terms of size 1
    np.testing.assert_allclose(standard.std(axis=0), 1, rtol=1e-14)
    other = rng.normal(size=(7, 4))
    np.testing.assert_allclose(scale.inverse_transform(scale.transform(other)), other, rtol=0, atol=1e-13)
    stacked = scale.inverse_transform(np.zeros((2, 5, 4)))  # samples have leading axes
    np.testing.assert_array_equal(stacked, np.broadcast_to(scale.mean, (2, 5, 4)))


def test_scale_of_constant_columns_is_one(rng: np.random.Generator) -> None:
    array = np.stack([np.full(1000, 0.1), np.arange(1000.0), np.full(1000, 0.0), np.full(1000, 3.3e9)], axis=1)
    scale = Scale.fit(array)
    assert scale.constant_columns == (0, 2, 3)
    np.testing.assert_array_equal(scale.scale[[0, 2, 3]], 1)
    np.testing.assert_array_equal(scale.transform(array)[:, [0, 2, 3]], 0)
    little = Scale.fit(1.0 + 1e-9 * np.arange(10.0)[:, None])
    assert little.constant_columns == ()
    np.testing.assert_allclose(little.scale, 1e-9 * np.std(np.arange(10.0)), rtol=1e-6)  # 1e-16 / 1e-9 of rounding


def test_log_volume_is_the_log_of_the_determinant() -> None:
    assert Scale(np.zeros(3), np.array([2.0, 5.0, 0.1])).log_volume == pytest.approx(0.0, abs=1e-15)
    assert Scale(np.zeros(2), np.array([1000.0, 1.0])).log_volume == pytest.approx(np.log(1000.0), rel=1e-15)


def test_scale_survives_json_exactly(rng: np.random.Generator) -> None:
    fitted = Scale.fit(np.concatenate([rng.normal(size=(50, 3)), np.ones((50, 1))], axis=1))
    read = Scale.from_json(json.loads(json.dumps(fitted.to_json())))
    np.testing.assert_array_equal(read.mean, fitted.mean)
    np.testing.assert_array_equal(read.scale, fitted.scale)
    assert read.constant_columns == fitted.constant_columns == (3,)


def test_scale_refuses_bad_input() -> None:
    with pytest.raises(ValueError, match="column 1 must be finite to be standardised"):
        Scale.fit(np.array([[1.0, np.nan]]))
    with pytest.raises(ValueError, match=r"must be a matrix of numbers with rows and columns, got float64 \(0, 2\)"):
        Scale.fit(np.empty((0, 2)))
    with pytest.raises(ValueError, match="must be a matrix of numbers"):
        Scale.fit(np.array([["a"], ["b"]]))
    with pytest.raises(ValueError, match=r"column 0 has values up to 1e\+300, too large"):
        Scale.fit(np.array([[1e300], [-1e300]]))
    with pytest.raises(ValueError, match=r"must have 2 columns as the fitted one, got shape \(3, 1\)"):
        Scale.identity(2).transform(np.ones((3, 1)))
    good = Scale.identity(2).to_json()
    for bad in ({}, {**good, "scale": [1.0]}, {**good, "scale": [1.0, 0.0]}, {**good, "mean": "x"}):
        with pytest.raises(ValueError, match="the stored standardisation"):
            Scale.from_json(bad)


@pytest.mark.parametrize(
    ("likelihood", "is_scaled"),
    [("gaussian", True), ("studentt", True), ("poisson", False), ("bernoulli", False), ("softmax", False)],
)
def test_targets_are_standardised_where_they_are_real(
    likelihood: str, is_scaled: bool, rng: np.random.Generator
) -> None:
    X, Y = rng.normal(2.0, 3.0, size=(30, 2)), rng.integers(0, 5, size=(30, 1))
    x, y = Units.fit(X, Y, likelihood).transform(X, Y)
    np.testing.assert_allclose(x, (X - X.mean(axis=0)) / X.std(axis=0), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(y, (Y - Y.mean()) / Y.std() if is_scaled else Y, rtol=1e-14, atol=1e-15)
    kept = Units.fit(X, Y, likelihood, standardise=False)
    np.testing.assert_array_equal(kept.transform(X, Y)[0], X)
    np.testing.assert_array_equal(kept.transform(X, Y)[1], y)


def test_known_scales_take_the_place_of_those_of_a_sample(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(5, 2)), rng.normal(size=(5, 1))
    known = Scale(np.full(2, 4.0), np.full(2, 2.0)), Scale(np.full(1, -1.0), np.full(1, 3.0))
    x, y = Units.fit(X, Y, "gaussian", known=known).transform(X, Y)
    np.testing.assert_array_equal(x, (X - 4.0) / 2.0)
    np.testing.assert_array_equal(y, (Y + 1.0) / 3.0)
    x, y = Units.fit(X, Y, "bernoulli", known=known, standardise=False).transform(X, Y)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)


def test_rows_have_gpflows_float_type(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(5, 2)), rng.normal(size=(5, 1))
    units = Units.fit(X, Y, "gaussian")
    assert {a.dtype for a in units.transform(X, Y)} == {np.dtype(np.float64)}
    gpflow.config.set_default_float(np.float32)
    assert {a.dtype for a in units.transform(X, Y)} == {np.dtype(np.float32)}
