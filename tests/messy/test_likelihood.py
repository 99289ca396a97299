"""What reading a messy table costs against preparing it by hand: nothing, in nats per test row of the same model."""

import pytest

from tests.messy.comparison import compared
from tests.messy.tables import TABLES


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", TABLES)
def test_reading_is_as_good_as_preparation_by_hand(name: str) -> None:
    """The allowance is two standard errors of the paired difference over all rows: an error of 2.3 % in each test."""
    found = compared(name)
    assert found.difference >= -2 * found.error, found
