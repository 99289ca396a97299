"""gpflow_deep_base.numbers.scores: what is not seen through the classifiers that are judged by it."""

import math

import numpy as np
import pytest

from gpflow_deep_base.numbers.scores import label_scores, standard_error


def test_the_standard_error_of_a_mean() -> None:
    assert standard_error([1.0, 2.0, 3.0, 6.0]) == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3 / 4), rel=1e-12)
    assert math.isnan(standard_error([1.0]))
    assert standard_error([1.0], of_one=0.0) == 0.0


def test_a_classifier_that_diverged_has_scores() -> None:
    scores = label_scores(np.array([[np.nan, np.nan], [-0.1, -3.0]]), np.array([1, 0]))
    assert scores["error"] == 50.0
    assert math.isnan(scores["calibration"])
    assert math.isnan(scores["log_loss"])
