"""rbm_tracking.use.frames: a frame's columns as bits, categories and numbers of an RBM."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.integrate

from rbm_tracking import TrackedRBM
from rbm_tracking.use.frames import units_of_frame


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.choice(["flat", "house", "loft"], 200, p=[0.5, 0.3, 0.2])
    area = np.where(kind == "house", 150.0, 60.0) + 10 * rng.normal(size=200)
    return pd.DataFrame({"area": area, "kind": kind, "garden": rng.random(200) < 0.5})


def fitted(frame: pd.DataFrame | pa.Table) -> TrackedRBM:
    return TrackedRBM(4, max_updates=200, random_state=0).fit(frame)


def test_density_is_that_of_the_units_of_the_frame(frame: pd.DataFrame) -> None:
    """It sums to one over the levels, and over the numbers by quadrature."""
    rbm = fitted(frame)
    areas = np.linspace(-100, 400, 2001)
    total = 0.0
    for kind in ("flat", "house", "loft"):
        for garden in (True, False):
            rows = pd.DataFrame({"area": areas, "kind": kind, "garden": garden})
            total += scipy.integrate.trapezoid(np.exp(rbm.score_samples(rows)), areas)
    assert total == pytest.approx(1, abs=1e-4)
    # Another unit of the number moves the density alone.
    feet = frame.assign(area=frame["area"] * 10.7639)
    np.testing.assert_allclose(fitted(feet).score_samples(feet), rbm.score_samples(frame) - np.log(10.7639), rtol=1e-4)


def test_samples_and_what_is_filled_in_are_in_the_units_of_the_frame(frame: pd.DataFrame) -> None:
    rbm = fitted(frame)
    rows = rbm.sample(200, random_state=0)
    np.testing.assert_array_equal(rows[:, 1:4].sum(axis=1), 1)
    assert 60 < rows[:, 0].mean() < 120
    holes = frame.head(3).assign(area=[np.nan, 70.0, np.nan])
    found = rbm.impute(holes)
    assert found.values[1, 0] == pytest.approx(70.0)
    assert (found.values[[0, 2], 0] > 20).all()
    # Rows with holes are learnt from.
    with_holes = frame.assign(area=frame["area"].where(np.arange(len(frame)) % 9 > 0))
    assert np.isfinite(fitted(with_holes).score(frame))


def test_bits_and_plain_arrays_stay_bits(frame: pd.DataFrame) -> None:
    bits = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (50, 6)))
    as_frame, as_array = fitted(bits), fitted(bits.to_numpy())
    np.testing.assert_array_equal(as_frame.score_samples(bits), as_array.score_samples(bits.to_numpy()))
    assert units_of_frame(None, bits) is None
    assert units_of_frame(None, bits * 0.5) is None  # probabilities of bits
    units = units_of_frame(None, frame[["area"]])
    assert units is not None
    assert units.layer == {"gaussian": [0]}


def test_a_number_that_does_not_vary_is_named(frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="'area' of X is 3 in every row"):
        fitted(frame.assign(area=3.0))


def test_missing_values_of_pandas_are_absent() -> None:
    """In nullable columns, of bits and of numbers."""
    bits = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (50, 6)))
    for table in (bits, bits.assign(age=np.arange(50))):
        holes = table.mask(np.random.default_rng(1).random(table.shape) < 0.1)
        nullable = holes.convert_dtypes()
        assert nullable.dtypes.astype(str).eq("Int64").all()
        found, expected = fitted(nullable), fitted(holes)
        np.testing.assert_array_equal(found.score_samples(table), expected.score_samples(table))
        np.testing.assert_array_equal(found.impute(nullable).values, expected.impute(holes).values)


def test_a_level_that_fit_has_not_seen_is_an_error_that_says_so(frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"exactly one 1 .* level of a frame that fit has not seen"):
        fitted(frame).score(frame.assign(kind="castle"))


def test_a_table_of_arrow_is_a_frame(frame: pd.DataFrame) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    np.testing.assert_array_equal(fitted(table).score_samples(table), fitted(frame).score_samples(frame))
