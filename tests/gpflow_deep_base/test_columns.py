"""`gpflow_deep_base.columns`: frames of numbers pass, others are refused by the names of their columns."""

from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest

from gpflow_deep_base.columns import check_columns


class Model:
    """A stand-in for an estimator."""


NUMBERS = {
    "real": [0.5, 1.5],
    "whole": [1, 2],
    "flag": [True, False],
}


def test_numbers_pass() -> None:
    frame = pd.DataFrame(NUMBERS)
    others = frame.astype({"whole": "Int64", "flag": "boolean", "real": object})
    doubled = pd.concat([frame, frame], axis=1)  # names that occur twice
    for X in (frame, others, doubled, polars.DataFrame(NUMBERS), frame.to_numpy(), [["a"]], None):
        check_columns(X, Model())


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
def test_other_columns_are_named_with_the_cure(name: str, values: Any) -> None:
    for frame in (pd.DataFrame({name: values}), pd.DataFrame(NUMBERS).assign(**{name: values})):
        with pytest.raises(ValueError, match=rf"but '{name}' \(.*make_pipeline\(TableEncoder\(\), Model\(") as caught:
            check_columns(frame, Model())
        assert "\n" not in str(caught.value)


def test_frames_of_polars() -> None:
    for values in (["a", "b"], [None, 1.0], [float("nan"), 1.0]):
        with pytest.raises(ValueError, match="'x' "):
            check_columns(polars.DataFrame({"x": values}), Model())


def test_gaps_pass_where_they_are_taken() -> None:
    check_columns(pd.DataFrame({"x": [np.nan, 1.0]}), Model(), may_miss=True)


def test_many_columns_are_not_all_named() -> None:
    with pytest.raises(ValueError, match=r"'c4' \(.*\) and 7 more are none"):
        check_columns(pd.DataFrame({f"c{d}": ["a"] for d in range(12)}), Model())
