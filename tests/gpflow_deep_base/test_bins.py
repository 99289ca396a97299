"""Ordered bins of numbers."""

import json

import numpy as np
import pytest

from gpflow_deep_base.numbers.bins import Bins


def test_few_values_have_a_bin_each() -> None:
    bins = Bins.of(np.array([3.0, np.nan, 1.0, 1.0, 10.0]), 4)
    assert bins.names == ("1", "3", "10")
    assert bins.values.tolist() == [1.0, 3.0, 10.0]
    levels = bins.levels(np.array([-5.0, 1.9, 2.1, 99.0, np.nan]))
    assert levels[:4].argmax(axis=1).tolist() == [0, 0, 1, 2]
    assert levels[:4].sum(axis=1).tolist() == [1.0] * 4
    assert np.isnan(levels[4]).all()


def test_many_values_have_bins_of_about_as_many_rows(rng: np.random.Generator) -> None:
    values = rng.normal(size=1000)
    bins = Bins.of(values, 8)
    assert bins.levels(values).sum(axis=0).tolist() == [125.0] * 8
    assert np.isin(bins.values, values).all()
    # Half of the rows have one value.
    heavy = Bins.of(np.where(np.arange(1000) < 500, 0.0, np.abs(values)), 8)
    assert heavy.levels(np.zeros(1)).argmax() == 0
    assert 2 <= len(heavy.values) <= 8
    assert heavy.names[0].startswith("0")


def test_json() -> None:
    bins = Bins.of(np.arange(100.0), 3)
    stored = json.loads(json.dumps(bins.to_json()))
    again = Bins.from_json(stored)
    np.testing.assert_array_equal(again.levels(np.arange(100.0)), bins.levels(np.arange(100.0)))
    assert again.names == bins.names
    for changed in ({"edges": [5.0, 4.0]}, {"edges": [1.0]}, {"names": ["a"]}):
        with pytest.raises(ValueError, match="no ascending edges"):
            Bins.from_json({**stored, **changed})
    with pytest.raises(ValueError, match="at least one that is not missing"):
        Bins.of(np.full(3, np.nan), 4)
