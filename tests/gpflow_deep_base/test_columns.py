"""`gpflow_deep_base.numbers.columns`: frames of numbers pass, others are read by an encoder that the model keeps."""

from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest

from gpflow_deep_base.numbers.columns import as_numbers


class Model:
    """A stand-in for an estimator."""

    table_encoder_: Any


NUMBERS = {"real": [0.5, 1.5], "whole": [1, 2], "flag": [True, False]}


def test_numbers_pass() -> None:
    frame = pd.DataFrame(NUMBERS)
    others = frame.astype({"whole": "Int64", "flag": "boolean", "real": object})
    methods = pd.DataFrame({"collect": [1, 2], "column_names": [3, 4], "to_pandas": [5, 6]})
    doubled = pd.concat([frame, frame], axis=1)  # names that occur twice
    for X in (frame, others, methods, doubled, polars.DataFrame(NUMBERS), frame.to_numpy(), [["a"]], None):
        model = Model()
        assert as_numbers(X, model, reset=True) is X
        assert not vars(model)
    with pytest.raises(ValueError, match=r"LazyFrame of polars; call its collect\(\)"):
        as_numbers(polars.LazyFrame(NUMBERS), Model(), reset=True)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("text", ["red", "blue"]),
        ("code", ["01", "12"]),
        ("level", pd.Categorical([1, 2])),
        ("day", pd.to_datetime(["2020-01-01", "2020-01-02"])),
        ("gap", [np.nan, 1.0]),
        ("gap", pd.array([None, 1], "Int64")),
        ("mixed", [1, "two"]),
    ],
)
def test_other_columns_are_read(name: str, values: Any) -> None:
    """In fit and later alike; a model that was fitted to numbers refuses them by name."""
    for frame in (pd.DataFrame({name: values}), pd.DataFrame(NUMBERS).assign(**{name: values})):
        model = Model()
        X = as_numbers(frame, model, reset=True)
        assert X.dtype == np.float64
        assert np.isfinite(X).all()
        np.testing.assert_array_equal(as_numbers(frame, model, reset=False), X)
        with pytest.raises(ValueError, match=rf"numbers, as in fit, but '{name}' \(.*; fit Model") as caught:
            as_numbers(frame, Model(), reset=False)
        assert "\n" not in str(caught.value)
        as_numbers(X, model, reset=True)
        assert not vars(model)


def test_frames_of_polars() -> None:
    for values in (["a", "b"], [None, 1.0], [float("nan"), 1.0]):
        assert as_numbers(polars.DataFrame({"x": values}), Model(), reset=True).shape == (2, 2)


def test_gaps_pass_where_they_are_taken() -> None:
    frame = pd.DataFrame({"x": [np.nan, 1.0]})
    assert as_numbers(frame, Model(), reset=True, may_miss=True) is frame
    both = frame.assign(c=["a", None])
    np.testing.assert_array_equal(as_numbers(both, Model(), reset=True, may_miss=True), [[np.nan, 1.0], [1.0, np.nan]])


def test_masks_are_gaps() -> None:
    rows: Any = np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(as_numbers(rows, Model(), reset=True), [[1.0, np.nan], [3.0, 4.0]])


def test_questions_say_how_to_answer_in_python() -> None:
    frame = pd.DataFrame({"when": ["03/04/2024", "05/06/2024"] * 4, "x": np.arange(8.0)})
    with pytest.raises(ValueError, match=r"--dates=when:dmy .*`make_pipeline\(TableEncoder\(\.\.\.\), Model\("):
        as_numbers(frame, Model(), reset=True)


def test_many_columns_are_not_all_named() -> None:
    with pytest.raises(ValueError, match=r"'c4' \(.*\) and 7 more are none"):
        as_numbers(pd.DataFrame({f"c{d}": ["a"] for d in range(12)}), Model(), reset=False)
