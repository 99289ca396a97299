"""rbm_tracking.model.families.groups and units: categories found in bits, given, or known; what the visible units
become."""

from typing import Any

import numpy as np
import pytest

from rbm_tracking.model.families.groups import find_groups, fitting, group_text, parse_groups, softmax
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.units import UnitsConfig, choose_units
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin


def one_hot(rng: np.random.Generator, count: int, *sizes: int) -> np.ndarray:
    return np.hstack([np.eye(size, dtype=np.uint8)[rng.integers(0, size, count)] for size in sizes])


def test_categories_are_found_and_bits_left_alone(rng: np.random.Generator) -> None:
    bits = rng.integers(0, 2, (400, 3)).astype(np.uint8)
    bits[:2] = 1  # they are 1 together
    rows = np.hstack([one_hot(rng, 400, 3, 4), bits, one_hot(rng, 400, 2)])
    assert find_groups(rows) == ((0, 1, 2), (3, 4, 5, 6), (10, 11))
    units = softmax(rows, find_groups(rows))
    assert isinstance(units, Softmax)
    assert units.is_required == (True, True, True)
    rows[5, 3:7] = 0  # one row without the second category
    units = softmax(rows, ((0, 1, 2), (3, 4, 5, 6)))
    assert isinstance(units, Softmax)
    assert units.is_required == (True, False)


def test_levels_that_no_row_has_do_not_shift_the_groups(rng: np.random.Generator) -> None:
    """Sites of 21 letters, of which the first and the last ones are rare: all groups are of 21 columns."""
    for _ in range(20):
        letters = rng.integers(rng.integers(0, 4), rng.integers(15, 22), (300, 7))
        letters[:, 3] = rng.integers(2, 12, 300)
        rows = np.eye(21, dtype=np.uint8)[letters].reshape(300, -1)
        assert find_groups(rows) == tuple(tuple(range(21 * site, 21 * site + 21)) for site in range(7))


def test_rare_columns_that_happen_to_exclude_one_another_are_no_category() -> None:
    rows = np.zeros((2000, 6), np.uint8)
    rows[np.arange(60), np.arange(60) % 6] = 1  # 0.5 % ones; independent columns would have 0.75 pairs in all rows
    assert find_groups(rows) == ()
    assert find_groups(rows, min_together=0.5) == ((0, 1, 2, 3, 4, 5),)


def test_groups_that_other_rows_refute_are_dropped(rng: np.random.Generator) -> None:
    rows = one_hot(rng, 100, 3, 3)
    other = rows[:5].copy()
    other[2, :2] = 1
    assert fitting(find_groups(rows), other) == ((3, 4, 5),)
    found = choose_units(UnitsConfig(visible="softmax"), {"train": rows, "valid": other, "test": rows})
    assert found.visible == Softmax(6, ((3, 4, 5),), (True,))
    assert found.note == (
        "visible units: 1 softmax groups (found: contiguous columns, at most one of them 1) 3-5; 3 bits"
    )
    with pytest.raises(ValueError, match=r"the test part must have exactly one 1 .* got 2 in row 2, group 0-2"):
        choose_units(UnitsConfig(visible="softmax"), {"train": rows, "valid": rows, "test": other})


def test_groups_as_they_are_written() -> None:
    groups = parse_groups("0-2, 5+3,7-8")
    assert groups == ((0, 1, 2), (5, 3), (7, 8))
    assert group_text(groups) == "0-2,5+3,7-8"
    assert group_text(groups, limit=1) == "0-2 and 2 more"
    for wrong in ("2-1", "3", "a-b", "1-2-3", "1+", "0-99999999"):
        with pytest.raises(ValueError, match=r"groups must be like 0-2,3-5 or 0\+4\+7"):
            parse_groups(wrong)


def test_what_the_rows_call_for(rng: np.random.Generator) -> None:
    parts = {"train": one_hot(rng, 50, 3, 2), "test": one_hot(rng, 9, 3, 2)}
    known = ((0, 1, 2), (3, 4))
    assert choose_units(UnitsConfig(), parts).visible == Bernoulli()
    assert choose_units(UnitsConfig(), parts, known).visible == Softmax(5, known, (True, True))
    assert choose_units(UnitsConfig(visible="bernoulli"), parts, known).visible == Bernoulli()
    given = choose_units(UnitsConfig(visible="softmax", groups="3-4"), parts, known)
    assert given.visible == Softmax(5, ((3, 4),), (True,))
    spins = choose_units(UnitsConfig(visible="spin"), parts)
    assert spins.visible == Spin()
    np.testing.assert_array_equal(spins.parts["test"], 2.0 * parts["test"] - 1)
    numbers = {"train": rng.normal(size=(50, 2)) * [1, 3]}
    found = choose_units(UnitsConfig(visible="gaussian", learn_variances=False), numbers).visible
    assert isinstance(found, Gaussian)
    assert not found.is_learnt
    np.testing.assert_allclose(found.precision, 1 / numbers["train"].var(axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"visible": "potts"}, "visible must be one of auto, bernoulli, softmax, spin, gaussian, got 'potts'"),
        ({"groups": "0-2"}, "groups are of softmax units; give visible=softmax"),
        ({"visible": "softmax", "groups": "0:2"}, "groups must be like"),
    ],
)
def test_impossible_settings(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UnitsConfig(**options)


def test_rows_without_categories_say_so(rng: np.random.Generator) -> None:
    rows = np.vstack([np.ones((1, 4), np.uint8), rng.integers(0, 2, (20, 4)).astype(np.uint8)])
    with pytest.raises(ValueError, match=r"no groups of columns were found .* name them by groups"):
        choose_units(UnitsConfig(visible="softmax"), {"train": rows})
    with pytest.raises(ValueError, match="groups must name columns from 0 to 3, got 4"):
        choose_units(UnitsConfig(visible="softmax", groups="3-4"), {"train": rows})
