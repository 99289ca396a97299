"""Variables that decide others: no samples that cannot be, in any order of the columns, and no rules by chance."""

import numpy as np
import pytest

from darn.model.categories import Category, as_categories
from darn.train.chain_fitting import clauses_of, filled, fit_chain

GROUPS = (tuple(range(12)), tuple(range(12, 16)))  # twelve cities of four states, then a bit and its opposite
CATEGORIES = (Category(GROUPS[0], True), Category(GROUPS[1], True))


def places(rng: np.random.Generator, count: int) -> np.ndarray:
    """Rows of cities of very unequal size, their states, and two bits."""
    city = rng.choice(12, count, p=rng.dirichlet(np.ones(12)) * 0.94 + 0.005)
    bit = rng.random(count) < np.where(city % 2 > 0, 0.8, 0.3)
    return np.column_stack([np.eye(12)[city], np.eye(4)[city // 3], bit, ~bit]).astype(np.uint8)


def are_places(rows: np.ndarray) -> np.ndarray:
    return (rows[:, :12].argmax(axis=1) // 3 == rows[:, 12:16].argmax(axis=1)) & (rows[:, 16] != rows[:, 17])


@pytest.mark.parametrize("number", range(4))
def test_samples_are_of_pairs_that_there_are(number: int) -> None:
    """Cities first, states first, rare levels first, and any order."""
    rng = np.random.default_rng(number)
    rows, other_rows = np.split(places(rng, 3000), [1000])
    orders = [np.arange(18), np.arange(18)[::-1], np.argsort(rows.sum(axis=0), kind="stable"), rng.permutation(18)]
    chain = fit_chain(rows, 1.0, order=orders[number], categories=CATEGORIES)
    # The rule of succession leaves some 15 in a million.
    assert are_places(chain.sample(50_000, seed=1)).sum() > 49_995
    # What is open is as it was: states and cities are as frequent, and the bit is told by the city.
    is_open = [j for j in range(18) if rows[:, j].sum() > 30]
    drawn = chain.sample(50_000, seed=2).mean(axis=0)
    np.testing.assert_allclose(drawn[is_open], rows.mean(axis=0)[is_open], atol=0.03)
    counts = np.unique(other_rows, axis=0, return_counts=True)[1]
    entropy = -(counts / counts.sum()) @ np.log(counts / counts.sum())
    assert chain.log_prob(other_rows).mean() == pytest.approx(-entropy, abs=0.1)
    # One row in which a city is elsewhere: improbable, and not impossible.
    spoilt = rows[:1].copy()
    spoilt[0, 12:16] = np.roll(spoilt[0, 12:16], 1)
    assert -60.0 < chain.log_prob(spoilt)[0] < chain.log_prob(rows[:1])[0] - 8.0


def test_gaps_are_filled_with_what_can_be(rng: np.random.Generator) -> None:
    rows = places(rng, 1000)
    is_missing = np.repeat(rng.random([1000, 4]) < 0.08, [12, 4, 1, 1], axis=1)
    assert are_places(filled(rows, is_missing, groups=GROUPS)).all()


def test_levels_that_may_be_missing_decide_with_them(rng: np.random.Generator) -> None:
    """Where a category has none of its levels another bit is 1."""
    level = rng.integers(0, 3, 600)
    rows = np.column_stack([level == 0, level == 1, level == 2]).astype(np.uint8)
    for order in ([0, 1, 2], [2, 1, 0], [0, 2, 1]):
        chain = fit_chain(rows, order=np.array(order), categories=(Category((0, 1), False),))
        drawn = chain.sample(20_000)
        assert (drawn.sum(axis=1) == 1).sum() > 19_995
        np.testing.assert_allclose(drawn.mean(axis=0), 1 / 3, atol=0.05)


def test_no_rules_by_chance(rng: np.random.Generator) -> None:
    """Numbers of rows, independent columns, bits that are hardly ever 1, constant ones, and one exception."""
    names = np.eye(300, dtype=np.uint8)
    two = (rng.random([300, 2]) < 0.5).astype(np.uint8)
    rare = (np.arange(300) < 3).astype(np.uint8)[:, None]
    never = np.zeros([300, 1], np.uint8)
    rows = np.column_stack([names, two, rare, rare, never])
    assert not clauses_of(rows, np.arange(305), as_categories([range(300)], rows))
    rows = places(rng, 1000)
    assert clauses_of(rows, np.arange(18), CATEGORIES).keys() >= {12, 13, 14, 17}
    rows[0, 12:16] = np.roll(rows[0, 12:16], 1)
    assert clauses_of(rows, np.arange(18), CATEGORIES).keys() == {17}
