"""`ebp.training.passes`: held rows are drawn by the seed, and what is chosen is what they say."""

from typing import Any

import numpy as np
import pytest

from ebp import EBPGaussianClassifier, EBPRegressor
from ebp.estimators.second_order_estimator import Rows
from ebp.training.passes import MAX_HELD, MAX_TRIED_ROWS, held_folds, held_rows, judging_folds, tried_counts, winner


def choice(told: dict[int, Any], epochs: int, num_rows: int = 100) -> int:
    """That of scores by how often a row counts."""

    def scores(count: int, held: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.atleast_1d(told[count]), np.ones(1)

    return winner(tried_counts(epochs, num_rows), scores, [np.arange(1)])


def test_the_best_score_is_chosen() -> None:
    assert choice({1: 0.0, 3: 1.0, 8: 0.5}, 9) == 3


def test_what_is_no_number_is_never_chosen() -> None:
    assert choice({1: -3.0, 3: np.nan, 8: -np.inf}, 8) == 1


def test_few_passes_and_many_rows() -> None:
    """With two passes a row counts once or twice; of many rows nothing is tried."""
    assert choice({1: 0.0, 2: 1.0}, 2) == 2
    assert choice({}, 40, num_rows=MAX_TRIED_ROWS + 1) == 3
    assert choice({}, 40, num_rows=1) == 1


def test_a_race_decides_by_all_rows_where_a_part_does_not() -> None:
    """Of two that differ by 0.02 nats, with a standard deviation of 0.14 over rows, 400 rows find the better.

    z = 0.02 / 0.14 * 20 = 2.9, so in 0.2 % of races it is not that one; by 50 rows it would be 16 %. One that is worse
    by 1 runs on the first part only.
    """
    wrong, runs = 0, {1: 0, 3: 0, 8: 0}
    for seed in range(300):
        rng = np.random.default_rng(seed)
        base = rng.normal(size=400)
        told = {1: base - 1.0, 3: base + 0.14 * rng.normal(size=400) - 0.02, 8: base}
        folds = held_folds(400, seed)

        def scores(count: int, held: Any, told: dict[int, Any] = told) -> tuple[np.ndarray, np.ndarray]:
            runs[count] += 1
            return told[count][held], np.ones(len(held))

        wrong += winner((1, 3, 8), scores, folds) != 8
    assert wrong <= 5  # 0.2 % and the few that drop out too early: more than 5 of 300 in one of a thousand such tests
    assert runs[1] == 300


def test_parts_of_a_race() -> None:
    """No row twice, a third of each class at most, all rows of a small table and 400 of others; groups as a whole."""
    for size, expected in (
        (1, [0]),
        (2, [0]),
        (3, [1] * 3),
        (300, [100] * 3),
        (900, [300] * 2),
        (2000, [400]),
        (4000, [500]),
    ):
        folds = held_folds(size, 0)
        assert [len(rows) for rows in folds] == expected
        assert len(np.unique(np.concatenate(folds))) == sum(expected)
    y = np.repeat([0, 1, 2], [80, 17, 2])
    for held in held_folds(99, 5, strata=y):
        assert np.bincount(y[held], minlength=3).tolist() == [26, 5, 0]
    groups = np.repeat(np.arange(33), 3)
    folds = held_folds(99, 5, groups=groups)
    assert [len(held) for held in folds] == [33] * 3
    assert len({group for held in folds for group in set(groups[held])}) == 33
    assert [len(held) for held in held_folds(4, 0, groups=[0, 0, 1, 1])] == [2, 2]


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(7, None), (8, [1] * 8), (50, [6] * 8), (400, [50] * 8), (1000, [125] * 4), (3199, [399] * 2), (3200, None)],
)
def test_networks_of_seven_eighths_judge(size: int, sizes: list[int] | None) -> None:
    """By 400 rows or all, no row twice; the parts of the race where there are too few rows, or these are eighths."""
    folds = held_folds(size, 3)
    judging = judging_folds(folds, size, 3)
    if sizes is None:
        assert judging is folds
        return
    assert [len(rows) for rows in judging] == sizes
    assert len(np.unique(np.concatenate(judging))) == sum(sizes)
    groups = np.arange(size) // 2
    for held in judging_folds(folds, size, 3, groups):
        assert not set(groups[held]) & set(np.delete(groups, held))


def test_held_rows_are_an_eighth_of_each_class_wherever_they_are() -> None:
    """In a file sorted by class or by anything else, any row is as likely: 5 standard errors of 400 seeds."""
    y = np.repeat([0, 1, 2], [80, 16, 7])
    times = np.zeros(len(y))
    for seed in range(400):
        held = held_rows(len(y), seed, strata=y)
        assert np.bincount(y[held], minlength=3).tolist() == [10, 2, 0]
        times[held] += 1
    assert np.all(np.abs(times[:96] / 400 - 1 / 8) < 5 * np.sqrt(1 / 8 * 7 / 8 / 400))
    np.testing.assert_array_equal(held_rows(len(y), 3, strata=y), held_rows(len(y), 3, strata=y))
    assert len(held_rows(10**5, 0)) == MAX_HELD


def test_groups_stay_together() -> None:
    """About an eighth of the rows; no class as a whole, though it is of one group."""
    groups = np.repeat(np.arange(40), 5)
    y = np.where(groups == 7, 1, 0)
    for seed in range(50):
        held = held_rows(200, seed, strata=y, groups=groups)
        assert not set(groups[held]) & set(np.delete(groups, held))
        assert len(held) == 25
        assert not np.any(y[held])
    with pytest.raises(ValueError, match="groups must be at least two"):
        held_rows(200, 0, groups=np.zeros(200))


@pytest.mark.parametrize("kind", [EBPRegressor, EBPGaussianClassifier])
def test_rows_held_back_choose_between_units_and_none(kind: Any, rng: np.random.Generator) -> None:
    """Of 60 rows a linear function of 20 inputs is learned without units; a product is not, and takes them."""
    X = rng.normal(size=(600, 20))
    linear = 2.0 * X[:, 0] - X[:, 1] + X[:, 2] + 0.5 * rng.normal(size=600)
    bent = X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=600)

    def target(f: np.ndarray) -> np.ndarray:
        return f if kind is EBPRegressor else f > np.median(f)

    model = kind(epochs=10).fit(X[:60], target(linear)[:60])
    assert len(model.posteriors_[0].mean) == 1
    with_units = kind(50, epochs=10).fit(X[:60], target(linear)[:60])
    assert len(with_units.posteriors_[0].mean) == 2
    rows = Rows(X[60:], target(linear)[60:].reshape(540, -1) if kind is EBPRegressor else target(linear)[60:], None)
    assert np.mean(model._scores(rows)) > np.mean(with_units._scores(rows))
    small = X[:300, :3]
    assert len(kind(epochs=10).fit(small, target(bent)[:300]).posteriors_[0].mean) == 2
    # Where nothing is tried, there are units.
    assert len(kind(epochs=1, max_count=1).fit(X[:60], target(linear)[:60]).posteriors_[0].mean) == 2
    many = np.arange(60) % 15 if kind is EBPGaussianClassifier else np.repeat(linear[:60, None], 15, axis=1)
    assert kind(epochs=1, max_count=1).fit(X[:60], many).posteriors_[0].mean[0].shape[1] == 75  # five an output
    with pytest.raises(ValueError, match="hidden must be a positive whole number or a sequence"):
        kind("car").fit(X, target(linear))
