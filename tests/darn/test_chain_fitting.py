"""Fits against their optimality conditions and enumeration."""

import itertools

import numpy as np
import pytest

from darn.more.ordered import as_categories
from darn.train.chain_fitting import (
    fit_chain,
    fit_chow_liu,
    fit_mixture_of_bernoullis,
)
from tests.darn.rows import every_row

N = 8


def clusters(num: int, seed: int) -> np.ndarray:
    """Three patterns with noise."""
    patterns = np.random.default_rng(0).integers(0, 2, (3, N))
    rng = np.random.default_rng([1, seed])
    return patterns[rng.integers(0, 3, num)] ^ (rng.uniform(size=(num, N)) < 0.15)


def one_hot(num: int, seed: int) -> np.ndarray:
    """Two attributes with three levels, the second depends on the first, and two bits; the second may be missing."""
    rng = np.random.default_rng([2, seed])
    a = rng.choice(3, num, p=[0.6, 0.3, 0.1])
    b = np.where(rng.uniform(size=num) < 0.7, a, rng.integers(0, 4, num))
    bits = rng.uniform(size=(num, 2)) < 0.2 + 0.3 * np.stack([a == 1, b == 2], axis=1)
    return np.concatenate([np.eye(3)[a], np.eye(4)[b][:, :3], bits], axis=1).astype(int)


GROUPS = ((0, 1, 2), (3, 4, 5))


def test_each_regression_is_at_its_optimum() -> None:
    """|gradient| <= 1 / C, with equality and the sign of the weight where it is not zero. liblinear stops when the sum
    of what is missing is 1e-3 of that at the start, where it is at most the sum of all gradients."""
    x = clusters(400, 0)
    C = 0.2
    order = np.random.default_rng(3).permutation(N)
    chain = fit_chain(x, C, order=order)
    W = chain.weights.toarray()
    for i, j in enumerate(order[1:], start=1):
        before = order[:i]
        y = x[:, j]
        residual = y - 1.0 / (1.0 + np.exp(-chain.bias[j] - x[:, before] @ W[before, j]))
        gradient = x[:, before].T @ residual
        w = W[before, j]
        short = np.where(w != 0, np.abs(gradient - np.sign(w) / C), np.maximum(np.abs(gradient) - 1.0 / C, 0.0))
        at_start = np.abs(x[:, before].T @ (y - 0.5)).sum() + 10.0 * np.abs((y - 0.5).sum())
        assert short.sum() <= 1e-3 * at_start + 1e-9
        # Columns behind it in the order have no weights.
        assert not W[order[i:], j].any()
    assert 0 < chain.num_weights < N * (N - 1) // 2


def test_columns_that_do_not_vary_have_the_logit_of_half_a_row_more() -> None:
    x = np.array([[0, 1, 0], [0, 1, 1], [0, 1, 0]])
    chain = fit_chain(x, 100.0)
    np.testing.assert_allclose(chain.bias[:2], [np.log(0.5 / 3.5), np.log(3.5 / 0.5)])
    assert np.isfinite(chain.log_prob(np.array([[1, 0, 0]]))).all()


def test_levels_are_fitted_to_the_rows_that_have_no_earlier_level() -> None:
    """Without weights, a level has its share among these rows, with half a row more for each value."""
    x = one_hot(500, 0)
    categories = as_categories(GROUPS, x)
    assert [category.is_always for category in categories] == [True, False]
    chain = fit_chain(x, 1e-6, categories=categories)
    counts = x.sum(axis=0)
    left = len(x)
    for j in GROUPS[1]:
        assert chain.bias[j] == pytest.approx(np.log((counts[j] + 0.5) / (left - counts[j] + 0.5)))
        left -= counts[j]
    every = every_row(N)
    for fitted in (chain, fit_chain(x, 1.0, categories=categories), fit_chow_liu(x, categories=categories)):
        p = np.exp(fitted.log_prob(every))
        assert p.sum() == pytest.approx(1.0, abs=1e-12)
        assert not p[every[:, :3].sum(axis=1) != 1].any()
        assert not p[every[:, 3:6].sum(axis=1) > 1].any()


def test_with_categories_a_chain_is_better_than_with_free_bits() -> None:
    x = one_hot(500, 0)
    test = one_hot(5000, 1)
    plain = fit_chain(x, 1.0)
    known = fit_chain(x, 1.0, categories=as_categories(GROUPS, x))
    assert known.log_prob(test).mean() > plain.log_prob(test).mean()


def test_the_tree_is_the_best_of_all_trees() -> None:
    """By the mutual information of its edges, over all spanning trees of five columns."""
    x = clusters(300, 2)[:, :5]

    def information(a: np.ndarray, b: np.ndarray) -> float:
        p = (np.bincount(2 * a + b, minlength=4).reshape(2, 2) + 0.5) / (len(a) + 2.0)
        return float((p * np.log(p / np.outer(p.sum(axis=1), p.sum(axis=0)))).sum())

    pairs = {pair: information(x[:, pair[0]], x[:, pair[1]]) for pair in itertools.combinations(range(5), 2)}

    def is_tree(edges: tuple[tuple[int, int], ...]) -> bool:
        reached = {0}
        for _ in edges:
            reached |= {node for edge in edges if {*edge} & reached for node in edge}
        return len(reached) == 5

    best = max(sum(pairs[e] for e in edges) for edges in itertools.combinations(pairs, 4) if is_tree(edges))
    tree = fit_chow_liu(x)
    rows, columns = tree.weights.nonzero()
    assert sum(pairs[min(e), max(e)] for e in zip(rows, columns, strict=True)) == pytest.approx(best)
    every = every_row(5)
    assert np.exp(tree.log_prob(every)).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("groups", [(), GROUPS])
def test_a_mixture_is_a_density_better_than_its_parts(groups: tuple[tuple[int, ...], ...]) -> None:
    x = one_hot(400, 0) if groups else clusters(400, 0)
    categories = as_categories(groups, x)
    one, three = (fit_mixture_of_bernoullis(x, members, categories=categories) for members in (1, 3))
    every = every_row(N)
    assert np.exp(three.log_prob(every)).sum() == pytest.approx(1.0, abs=1e-12)
    assert three.log_prob(x).mean() > one.log_prob(x).mean()
    if groups:
        drawn = three.sample(1000)
        assert (drawn[:, :3].sum(axis=1) == 1).all()
        assert (drawn[:, 3:6].sum(axis=1) <= 1).all()


def test_a_mixture_of_many_rows_with_columns_that_do_not_vary_is_finite(rng: np.random.Generator) -> None:
    """Their sums in single precision come to more rows than there are."""
    x = np.ones((20_000, 6), np.uint8)
    x[:, :2] = rng.integers(0, 2, (20_000, 2))
    log_p = fit_mixture_of_bernoullis(x, 4).log_prob(x[:100])
    assert log_p.mean() == pytest.approx(-2 * np.log(2), abs=0.05)


def test_a_row_of_weight_two_counts_as_two_rows() -> None:
    x = one_hot(300, 0)
    weights = np.random.default_rng(1).integers(1, 4, 300)
    repeated = np.repeat(x, weights, axis=0)
    categories = as_categories(GROUPS, x)
    for weighted, plain in (
        (fit_chow_liu(x, categories=categories, weights=weights), fit_chow_liu(repeated, categories=categories)),
        (fit_chain(x, 1.0, weights=weights), fit_chain(repeated, 1.0)),
        (fit_mixture_of_bernoullis(x, 1, weights=weights), fit_mixture_of_bernoullis(repeated, 1)),
    ):
        np.testing.assert_allclose(weighted.log_prob(x), plain.log_prob(x), atol=0.02)
    for wrong in (np.ones(3), -np.ones(300), np.zeros(300), np.full(300, np.nan)):
        with pytest.raises(ValueError, match="weights must be 300 numbers, one a row, none negative and not all 0"):
            fit_chain(x, weights=wrong)


@pytest.mark.parametrize(
    "settings", [{"strength": 0.0}, {"strength": [1.0, 2.0]}, {"strength": "1"}, {"order": [0, 1]}, {"order": [0] * N}]
)
def test_settings_are_checked(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"strength must be positive|order each of its"):
        fit_chain(clusters(20, 0), **settings)  # type: ignore[arg-type]
    for rows, members in ((20, 0), (20, -1), (0, 2)):
        with pytest.raises(ValueError, match=f"there must be rows and members, got {rows} and {members}"):
            fit_mixture_of_bernoullis(clusters(20, 0)[:rows], members)
