"""gpflow_deep_base.text: columns that line up."""

import pytest

from gpflow_deep_base.text import aligned


def test_the_first_column_to_the_left_and_numbers_to_the_right() -> None:
    rows = [["", "nll", "rmse"], ["linear model", "1.5", "10.25"], ["dgp", "-0.123", "9"]]
    assert aligned(rows).splitlines() == [
        "                 nll   rmse",
        "linear model     1.5  10.25",
        "dgp           -0.123      9",
    ]


def test_no_spaces_at_the_end_of_a_line() -> None:
    assert aligned([["a", "1"], ["long", ""]]) == "a     1\nlong"
    assert aligned([["a"], ["bc"]]) == "a\nbc"
    assert aligned([]) == ""


def test_rows_of_different_lengths_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        aligned([["a", "b"], ["c"]])
