"""Fits against their optimality conditions, and the choice against rivals on rows that chose nothing."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darn.more.mixture import Mixture
from darn.more.ordered import Category, as_categories
from darn.train.chain_fitting import (
    DensityChoice,
    choose_chain,
    fit_chain,
    fit_chow_liu,
    fit_mixture_of_bernoullis,
    stored_chains,
)

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
    every = np.array(list(itertools.product((0, 1), repeat=N)))
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
    every = np.array(list(itertools.product((0, 1), repeat=5)))
    assert np.exp(tree.log_prob(every)).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("groups", [(), GROUPS])
def test_a_mixture_is_a_density_better_than_its_parts(groups: tuple[tuple[int, ...], ...]) -> None:
    x = one_hot(400, 0) if groups else clusters(400, 0)
    categories = as_categories(groups, x)
    one, three = (fit_mixture_of_bernoullis(x, members, categories=categories) for members in (1, 3))
    every = np.array(list(itertools.product((0, 1), repeat=N)))
    assert np.exp(three.log_prob(every)).sum() == pytest.approx(1.0, abs=1e-12)
    assert three.log_prob(x).mean() > one.log_prob(x).mean()
    if groups:
        drawn = three.sample(1000)
        assert (drawn[:, :3].sum(axis=1) == 1).all()
        assert (drawn[:, 3:6].sum(axis=1) <= 1).all()


def copies(num: int, seed: int) -> np.ndarray:
    """Four bits and their copies."""
    bits = np.random.default_rng([4, seed]).integers(0, 2, (num, 4))
    return np.concatenate([bits, bits], axis=1)


def noise(num: int, seed: int) -> np.ndarray:
    return np.random.default_rng([5, seed]).integers(0, 2, (num, N))


def chosen_strength(kind: Callable[[int, int], np.ndarray]) -> float:
    lines: list[str] = []
    choose_chain(kind(400, 0), kind(200, 1), report=lines.append)
    (line,) = (line for line in lines if line.startswith("strength"))
    return float(line.split("=")[1])


def test_the_strength_has_no_edge() -> None:
    """Copies want no penalty, and get a thousand times less than the one that is tried first."""
    assert chosen_strength(copies) > 1000.0


def test_noise_gets_a_penalty_that_leaves_next_to_no_weights() -> None:
    assert fit_chain(noise(400, 0), chosen_strength(noise)).num_weights <= 2


@pytest.mark.parametrize("kind", [clusters, one_hot, noise, copies])
def test_the_choice_is_not_behind_its_rivals_on_other_rows(kind: Callable[[int, int], np.ndarray]) -> None:
    """Within 0.1 nats of the best of an L1 chain, a tree and a mixture, each with its best setting of the test rows."""
    x, valid, test = kind(600, 0), kind(300, 1), kind(5000, 2)
    choice = choose_chain(x, valid)
    rivals: list[Any] = [fit_chain(x, C) for C in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)]
    rivals += [fit_chow_liu(x), *(fit_mixture_of_bernoullis(x, members) for members in (1, 2, 3, 4, 8))]
    best = min(-rival.log_prob(test).mean() for rival in rivals)
    assert -choice.model.log_prob(test).mean() < best + 0.1


def test_the_choice_is_the_best_of_its_table_and_depends_on_the_seed_alone() -> None:
    x, valid = one_hot(300, 0), one_hot(200, 1)
    choice = choose_chain(x, valid, seed=3, groups=GROUPS)
    again = choose_chain(x, valid, seed=3, groups=GROUPS)
    assert choice.trials == again.trials
    np.testing.assert_array_equal(choice.log_p, again.log_p)
    values = [trial.valid_nats for trial in choice.trials]
    assert values == sorted(values)
    assert choice.valid_nats == values[0]
    np.testing.assert_allclose(choice.model.log_prob(valid), choice.log_p)
    assert len(choice.table().splitlines()) == 1 + len(values)
    model: Any = choice.model
    assert (model.sample(500)[:, :3].sum(axis=1) == 1).all()


def test_a_mean_of_two_is_taken_where_it_is_better_by_more_than_its_error() -> None:
    """Two chains that are each right about half of the rows; a third one that is no better than the first."""
    x, valid = clusters(200, 0), clusters(400, 1)
    choice = choose_chain(x, valid)
    chain = fit_chain(x, 1.0)
    gain = np.where(np.arange(400) % 2, 3.0, -3.0)
    joined = choice.with_rival("another", chain, choice.log_p + gain)
    assert isinstance(joined.model, Mixture)
    assert joined.trials[0].name == f"half each: {choice.trials[0].name}; another"
    np.testing.assert_allclose(joined.log_p, choice.log_p + np.log(0.5 + 0.5 * np.exp(gain)))
    assert np.exp(joined.model.log_weights).sum() == pytest.approx(1.0)
    same = choice.with_rival("another", chain, choice.log_p - 1e-9)
    assert same.model is choice.model
    assert [trial.name for trial in same.trials[:2]] == [choice.trials[0].name, "another"]
    better = choice.with_rival("another", chain, choice.log_p + 5.0)
    assert better.model is chain
    assert better.trials[0].name == "another"


def test_a_choice_is_stored_and_made_once(tmp_path: Path) -> None:
    x, valid = clusters(100, 0), clusters(50, 1)
    choice = choose_chain(x, valid)
    first = stored_chains(tmp_path / "chains.npz", valid, lambda: choice)

    def never() -> DensityChoice:
        raise AssertionError

    again = stored_chains(tmp_path / "chains.npz", valid, never)
    for stored in (first, again):
        assert stored.trials == choice.trials
        np.testing.assert_array_equal(stored.log_p, choice.log_p)
    for text in ("5", "[{}]", "{"):
        (tmp_path / "chains.json").write_text(text)
        with pytest.raises(ValueError, match=r"chains\.json is no table of candidates .* delete it to choose anew"):
            stored_chains(tmp_path / "chains.npz", valid, never)


def test_a_choice_can_be_interrupted() -> None:
    class Stopped(Exception):
        pass

    def look() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        choose_chain(clusters(50, 0), clusters(50, 1), look=look)


def test_large_tables_are_fitted_to_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darn.train.chain_fitting._MAX_WORK", 400.0)
    lines: list[str] = []
    choose_chain(clusters(400, 0), clusters(50, 1), report=lines.append)
    number = int(lines[0].split()[4])
    assert lines[0] == f"chains are fitted to {number} of the 400 training rows, drawn by the seed"
    assert 4.0 * clusters(400, 0).sum() * number / 400 == pytest.approx(400.0, rel=0.1)


@pytest.mark.parametrize("settings", [{"strength": 0.0}, {"order": [0, 1]}, {"order": [0] * N}])
def test_settings_are_checked(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"strength must be positive|order each of its"):
        fit_chain(clusters(20, 0), **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there must be training and validation rows"):
        choose_chain(clusters(20, 0), clusters(0, 1))
    with pytest.raises(ValueError, match="a category must be"):
        choose_chain(clusters(20, 0), clusters(20, 1), groups=[(0,)])
    assert Category((0, 1), True).is_always
