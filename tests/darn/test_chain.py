"""Chains against enumeration of all rows."""

import numpy as np
import pytest
import scipy.sparse

from darn.codec.coding import decode, encode
from darn.more.chain import Chain
from darn.more.mixture import Mixture
from darn.more.ordered import Category, as_categories
from tests.darn.rows import every_row

N = 7
CATEGORIES = (Category((1, 4, 5), True), Category((6, 2), False))


def made(*categories: Category) -> Chain:
    """A chain with random numbers, about half of whose weights are zero."""
    rng = np.random.default_rng(0)
    order = rng.permutation(N)
    place = np.argsort(order)
    W = rng.normal(size=(N, N)) * (rng.uniform(size=(N, N)) < 0.5) * (place[:, None] < place[None, :])
    return Chain(order.astype(np.int32), rng.normal(size=N), scipy.sparse.csc_matrix(W), categories)


def is_possible(rows: np.ndarray) -> np.ndarray:
    return (rows[:, [1, 4, 5]].sum(axis=1) == 1) & (rows[:, [2, 6]].sum(axis=1) <= 1)


def test_it_is_the_product_of_logistic_regressions_in_its_order() -> None:
    chain = made()
    rows = every_row(N)
    W = chain.weights.toarray()
    by_column = chain.log_prob_by_column(rows)
    for row, found in zip(rows, by_column, strict=True):
        for i, j in enumerate(chain.order):
            before = chain.order[:i]
            p = 1.0 / (1.0 + np.exp(-chain.bias[j] - row[before] @ W[before, j]))
            assert found[j] == pytest.approx(np.log(p if row[j] else 1.0 - p), abs=1e-12)
    assert np.exp(chain.log_prob(rows)).sum() == pytest.approx(1.0, abs=1e-12)


def test_a_category_is_one_variable() -> None:
    chain = made(*CATEGORIES)
    p = np.exp(chain.log_prob(every_row(N)))
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_array_equal(p > 0, is_possible(every_row(N)))


@pytest.mark.parametrize("categories", [(), CATEGORIES])
def test_samples_have_the_frequencies_of_the_density(categories: tuple[Category, ...]) -> None:
    """A frequency is beyond five standard errors in 6e-7 of all cases; 128 rows are looked at."""
    chain, rows = made(*categories), every_row(N)
    drawn = chain.sample(100_000, seed=1)
    assert drawn.dtype == np.uint8
    p = np.exp(chain.log_prob(rows))
    counts = np.bincount(drawn @ (1 << np.arange(N)[::-1]), minlength=len(rows))
    assert np.all(np.abs(counts / 1e5 - p) <= 5.0 * np.sqrt(p / 1e5) + 5e-5)
    if categories:
        assert is_possible(drawn).all()
    np.testing.assert_array_equal(chain.sample(20, seed=1), chain.sample(20, seed=1))
    assert not np.array_equal(chain.sample(20, seed=1), chain.sample(20, seed=2))


def enumerated(chain: Chain, row: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, float]:
    """P(bit = 1 | known) and log p(known) by all rows."""
    rows = every_row(N)
    fitting = rows[(rows == row)[:, ~mask].all(axis=1)]
    p = np.exp(chain.log_prob(fitting))
    return p @ fitting / p.sum(), float(np.log(p.sum()))


@pytest.mark.parametrize("categories", [(), CATEGORIES])
def test_missing_bits_given_the_known_ones(categories: tuple[Category, ...]) -> None:
    chain = made(*categories)
    x = chain.sample(12, seed=3)
    mask = np.random.default_rng(4).uniform(size=x.shape) < 0.5
    found = chain.complete(np.where(mask, 9, x), mask)
    for i, row in enumerate(x):
        p, log_known = enumerated(chain, row, mask[i])
        np.testing.assert_allclose(found.probabilities[i], p, atol=1e-12)
        assert found.log_known[i] == pytest.approx(log_known, abs=1e-12)
    assert np.all(np.isinf(found.effective))


@pytest.mark.parametrize("categories", [(), CATEGORIES])
def test_sums_over_some_states_are_unbiased(categories: tuple[Category, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Means of 1,500 sums over three states of at least twelve: five standard errors."""
    monkeypatch.setattr(Chain, "max_states", 1)
    monkeypatch.setattr("darn.more.ordered._FIRST", 3)
    chain = made(*categories)
    row, mask = chain.sample(1, seed=3)[0], ~np.isin(np.arange(N), chain.order[[3, 6]])
    p, log_known = enumerated(chain, row, mask)
    many = np.tile(row, [1500, 1]), np.tile(mask, [1500, 1])
    found = chain.complete(*many, min_effective=1e-9)
    ratios = np.exp(found.log_known - log_known)
    assert abs(ratios.mean() - 1.0) <= 5.0 * ratios.std() / np.sqrt(1500.0)
    assert ratios.std() > 1e-3
    assert np.all(found.probabilities[:, mask] > 0.0)
    assert np.all(np.isfinite(found.effective))
    # As many states as it takes, until there are all.
    more = chain.complete(*(part[:20] for part in many), min_effective=1000.0)
    assert np.all(more.effective >= 1000.0)
    np.testing.assert_allclose(more.probabilities, np.tile(p, [20, 1]), atol=5.0 * np.sqrt(0.25 / 1000.0))
    again = chain.complete(*(part[:20] for part in many), min_effective=1000.0)
    np.testing.assert_array_equal(again.probabilities, more.probabilities)


def test_a_missing_category_is_a_distribution_over_its_levels() -> None:
    chain = made(*CATEGORIES)
    x = chain.sample(50, seed=5)
    mask = np.zeros(x.shape, bool)
    mask[:, [1, 4, 5]] = True
    found = chain.complete(x, mask).probabilities
    np.testing.assert_allclose(found[:, [1, 4, 5]].sum(axis=1), 1.0, atol=1e-12)


def test_known_levels_say_what_the_others_are() -> None:
    """Other levels are 0 beside a 1, and the last one is 1 where one must be; nothing is drawn for that."""
    chain = made(*CATEGORIES)
    x = np.zeros([3, N], int)
    x[:, 1] = 1
    x[2, 2] = 1
    mask = np.zeros(x.shape, bool)
    mask[0, [4, 5]] = True
    mask[1, 1] = True
    mask[2, 6] = True
    found = chain.complete(x, mask)
    np.testing.assert_array_equal(found.probabilities, x)
    np.testing.assert_allclose(found.log_known, chain.log_prob(x))


@pytest.mark.parametrize("is_exact", [True, False])
def test_known_bits_that_no_row_has_are_refused(is_exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_exact:
        monkeypatch.setattr(Chain, "max_states", 1)
        monkeypatch.setattr("darn.more.ordered._FIRST", 1)
    chain = made(*CATEGORIES)
    x = chain.sample(3, seed=6)
    x[1, [1, 4]] = 1
    mask = np.zeros(x.shape, bool)
    mask[:, 0] = True
    with pytest.raises(ValueError, match="the known bits of row 1 are those of no possible row"):
        chain.complete(x, mask, max_samples=500)


@pytest.mark.parametrize("categories", [(), CATEGORIES])
def test_as_a_darn_it_has_the_same_density_and_codes(categories: tuple[Category, ...]) -> None:
    """What is certain has a probability of 1 - 1e-13: n of them are off by 1e-12 in all."""
    chain = made(*categories)
    model = chain.as_darn("float64")
    rows = every_row(N) if not categories else every_row(N)[is_possible(every_row(N))]
    log_p = model.log_prob(rows[:, chain.order]).numpy()
    np.testing.assert_allclose(log_p, chain.log_prob(rows), atol=1e-11)
    pytest.importorskip("constriction")
    drawn = chain.sample(2000, seed=8)
    data = encode(chain, drawn)
    np.testing.assert_array_equal(decode(chain, data), drawn)
    assert data == encode(model, drawn[:, chain.order])
    with pytest.raises(ValueError, match="a mixture of several densities cannot be coded"):
        encode(Mixture((chain,), np.zeros(1)), drawn)  # type: ignore[arg-type]
    bits = -chain.log_prob(drawn).sum() / np.log(2.0)
    assert 8 * len(data) < 1.01 * bits + 200.0


@pytest.mark.parametrize("wrong", [np.zeros([2, N + 1]), np.zeros(N), np.full([2, N], 2), np.full([2, N], np.nan)])
def test_other_rows_are_refused(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="x must be"):
        made().log_prob(wrong)
    for answer in (made().complete, made().fill):
        for mask in (np.zeros([2, N], int), np.zeros([1, N], bool)):
            with pytest.raises(ValueError, match="is_missing must be booleans of the shape of x"):
                answer(np.zeros([2, N]), mask)
    with pytest.raises(ValueError, match="max_samples must be at least 1 and min_effective positive"):
        made().complete(np.zeros([2, N]), np.ones([2, N], bool), max_samples=0)


def test_categories_are_checked() -> None:
    rows = np.array([[1, 0, 0, 1], [0, 1, 0, 0]])
    assert as_categories([(0, 1), (2, 3)], rows) == (Category((0, 1), True), Category((2, 3), False))
    for groups in ([(0,)], [(0, 0)], [(0, 4)], [(-1, 0)], [(0, 1), (1, 2)]):
        with pytest.raises(ValueError, match="a category must be at least two of the columns 0 to 3 that no other has"):
            as_categories(groups, rows)
    with pytest.raises(ValueError, match=r"the columns \(0, 3\) must be one category, .* got 2 ones in row 0"):
        as_categories([(0, 3)], rows)
