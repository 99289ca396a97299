"""assert_mean_close has to accept fair draws, see biased ones, and refuse to judge from too few."""

import numpy as np
import pytest
from scipy import stats

from tests.statistical import assert_mean_close


def test_sees_a_biased_mean(rng: np.random.Generator) -> None:
    """A bias of 0.2 is 12.8 standard errors; it is missed if the noise makes up for 7.8 of them (p < 1e-14)."""
    with pytest.raises(AssertionError, match=r"expected 2: off by .* standard errors, more than 5"):
        assert_mean_close(rng.normal(2.2, 1.0, 4096), 2.0, min_detectable=0.1)


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_refuses_too_few_draws_whatever_their_mean(rng: np.random.Generator, bias: float) -> None:
    """100 draws have 5 standard errors of 0.5: an error of 0.1 could not be seen, so a pass would mean nothing."""
    with pytest.raises(AssertionError, match=r"100 draws cannot show an error of min_detectable=0\.1"):
        assert_mean_close(rng.normal(bias, 1.0, 100), 0.0, min_detectable=0.1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_refuses_draws_that_are_not_finite(rng: np.random.Generator, bad: float) -> None:
    draws = rng.normal(size=1000)
    draws[7] = bad
    with pytest.raises(AssertionError, match="1 of the draws are not finite"):
        assert_mean_close(draws, 0.0, min_detectable=1.0)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 3])
def test_refuses_draws_that_do_not_vary(value: float) -> None:
    with pytest.raises(AssertionError, match="do not vary"):
        assert_mean_close(np.full(1000, value), value, min_detectable=0.1)


def test_false_alarms_are_as_rare_as_stated(rng: np.random.Generator) -> None:
    """10 normal draws at 2 standard errors: a rate of 4.55%, thanks to Student's t (7.7% without it)."""
    num_tests, expected = 4000, 2 * stats.norm.sf(2.0)
    alarms = 0
    for draws in rng.normal(size=[num_tests, 10]):
        try:
            assert_mean_close(draws, 0.0, num_se=2.0, min_detectable=100.0)
        except AssertionError:
            alarms += 1
    standard_error = np.sqrt(expected * (1 - expected) / num_tests)  # 0.33%
    assert abs(alarms / num_tests - expected) < 5 * standard_error
