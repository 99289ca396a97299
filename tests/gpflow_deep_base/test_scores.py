"""gpflow_deep_base.numbers.scores: what is not seen through the classifiers that are judged by it."""

import math

import pytest

from gpflow_deep_base.numbers.scores import standard_error


def test_the_standard_error_of_a_mean() -> None:
    assert standard_error([1.0, 2.0, 3.0, 6.0]) == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3 / 4), rel=1e-12)
    assert math.isnan(standard_error([1.0]))
    assert standard_error([1.0], of_one=0.0) == 0.0
