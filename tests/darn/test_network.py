"""Masked networks against enumeration of all rows, and their fits against finite differences and rivals."""

import math
from pathlib import Path

import numpy as np
import pytest

from darn.more.masked import MaskedNetwork, masks
from darn.more.mixture import Mixture, load_density, save_density
from darn.more.ordered import Category, as_categories
from darn.train.chain_fitting import fit_chain, fit_mixture_of_bernoullis
from darn.train.network_fitting import NetworkSettings, _Training, fit_network
from tests.darn.rows import every_row

N = 6
H = 9
CATEGORIES = (Category((1, 4, 5), True), Category((0, 2), False))


def made(*categories: Category) -> MaskedNetwork:
    """A network with random numbers."""
    rng = np.random.default_rng(0)
    order = rng.permutation(N).astype(np.int32)
    seen = np.sort(rng.integers(0, N + 1, H)).astype(np.int32)
    shapes = masks(order, seen)
    direct, into, out = (np.where(mask, rng.normal(size=mask.shape), 0.0).astype(np.float32) for mask in shapes)
    bias, hidden_bias = (rng.normal(size=size).astype(np.float32) for size in (N, H))
    return MaskedNetwork(order, bias, direct, seen, hidden_bias, into, out, categories)


def test_a_logit_depends_on_the_columns_before_it_alone() -> None:
    model = made()
    rows = every_row(N).astype(float)
    place = np.argsort(model.order)
    a = model.logits(rows)
    depends = np.zeros([N, N], bool)
    for k in range(N):
        flipped = rows.copy()
        flipped[:, k] = 1.0 - flipped[:, k]
        depends[k] = (model.logits(flipped) != a).any(axis=0)
    np.testing.assert_array_equal(depends, place[:, None] < place[None])
    filled = np.zeros(rows.shape)
    logit = model.turns(filled)
    for j in model.order.tolist():
        np.testing.assert_allclose(logit(j), a[:, j], atol=1e-12)
        filled[:, j] = rows[:, j]


@pytest.mark.parametrize("categories", [(), CATEGORIES])
def test_it_is_a_density_that_draws_and_completes(
    categories: tuple[Category, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frequency is beyond five standard errors in 6e-7 of all cases; 64 rows are looked at."""
    model, rows = made(*categories), every_row(N)
    p = np.exp(model.log_prob(rows))
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    drawn = model.sample(50_000, seed=1)
    counts = np.bincount(drawn @ (1 << np.arange(N)[::-1]), minlength=len(rows))
    assert np.all(np.abs(counts / 5e4 - p) <= 5.0 * np.sqrt(p / 5e4) + 1e-4)
    row, mask = model.sample(1, seed=2)[0], np.array([True, True, False, False, True, False])
    fitting = (rows == row)[:, ~mask].all(axis=1)
    expected = p[fitting] @ rows[fitting] / p[fitting].sum()
    np.testing.assert_allclose(model.complete(row[None], mask[None]).probabilities[0], expected, atol=1e-12)
    # Some states alone, in single precision: four standard errors of the mean of 500.
    monkeypatch.setattr(MaskedNetwork, "max_states", 1)
    monkeypatch.setattr("darn.more.ordered._FIRST", 3)
    found = model.complete(np.tile(row, [500, 1]), np.tile(mask, [500, 1]), min_effective=1e-9)
    ratios = np.exp(found.log_known) / p[fitting].sum()
    assert abs(ratios.mean() - 1.0) <= 4.0 * ratios.std() / np.sqrt(500.0) + 1e-6


def test_its_file_gives_it_back_and_is_checked(tmp_path: Path) -> None:
    model = made(*CATEGORIES)
    both = Mixture((model, fit_chain(model.sample(50), 1.0, categories=CATEGORIES)), np.log([0.5, 0.5]))
    for density in (model, both):
        save_density(density, tmp_path / "density.npz")
        again = load_density(tmp_path / "density.npz")
        np.testing.assert_array_equal(again.log_prob(every_row(N)), density.log_prob(every_row(N)))
    for name in ("direct", "into", "out"):
        changed = made()
        getattr(changed, name)[:] = 1.0
        save_density(changed, tmp_path / "density.npz")
        with pytest.raises(ValueError, match=f"its weights {name} must be zero where the order says so"):
            load_density(tmp_path / "density.npz")


@pytest.mark.parametrize("categories", [(), CATEGORIES])
def test_gradients_are_those_of_the_mean_of_log_p(
    categories: tuple[Category, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the difference of log p of weighted rows along a random direction, in single precision."""
    rows = made(*categories).sample(40, seed=3)
    weights = np.random.default_rng(4).uniform(0.5, 2.0, 40)
    settings = NetworkSettings(hidden=7, dropout=0.0)
    rng = np.random.default_rng(5)
    training = _Training(rows, np.arange(N, dtype=np.int32)[::-1], settings, categories, weights, rng)
    gradients = training._gradients(np.arange(40))
    share = weights / weights.sum()
    for part, gradient, mask in zip(training._now, gradients, training._masks, strict=True):
        direction = rng.normal(size=part.shape).astype(np.float32)
        direction *= 1.0 if mask is None else mask
        values = []
        for step in (0.01, -0.01):
            moved = part + np.float32(step) * direction
            index = next(i for i, each in enumerate(training._now) if each is part)
            parameters = training._now._replace(**{training._now._fields[index]: moved})
            values.append(-share @ training.model(parameters).log_prob(rows))
        expected = (values[0] - values[1]) / 0.02
        assert float((gradient * direction).sum()) == pytest.approx(expected, rel=1e-2, abs=1e-3)


def patterns(num: int, seed: int) -> np.ndarray:
    """A bit, another one, whether they differ, and noise: no chain of logistic regressions knows."""
    rng = np.random.default_rng([1, seed])
    x = rng.integers(0, 2, (num, N))
    x[:, 2] = x[:, 0] ^ x[:, 1]
    return x


def test_a_fit_finds_what_no_chain_can() -> None:
    x, valid, test = patterns(500, 0), patterns(200, 1), patterns(2000, 2)
    fitted = fit_network(x, valid, NetworkSettings(hidden=30, dropout=0.1), seed=1, patience=20)
    again = fit_network(x, valid, NetworkSettings(hidden=30, dropout=0.1), seed=1, patience=20)
    np.testing.assert_array_equal(fitted.log_p, again.log_p)
    np.testing.assert_array_equal(fitted.log_p, fitted.model.log_prob(valid))
    truth = 5.0 * np.log(2.0)
    assert -fit_chain(x, 1.0).log_prob(test).mean() > truth + 0.5
    assert -fitted.model.log_prob(test).mean() < truth + 0.2
    short = fit_network(x, valid, NetworkSettings(hidden=30), most_work=1.0)
    assert short.work < fitted.work


def test_a_fit_that_is_behind_is_given_up_once_it_had_as_many_steps() -> None:
    x, valid, settings = patterns(100, 0), patterns(50, 1), NetworkSettings(hidden=4)
    one_look = fit_network(x, valid, settings, most_work=1.0).work
    for behind, looks in (((1, 0.0), 1), ((1, math.inf), 3), ((10**6, 0.0), 3)):
        fitted = fit_network(x, valid, settings, behind=behind, most_work=2.5 * one_look)
        assert fitted.work == looks * one_look, behind


def test_weights_count_rows() -> None:
    """A row of weight 2 counts as two rows: the means that a fit starts from are theirs."""
    x = patterns(60, 0)
    weights = 1.0 + (np.arange(60) < 20)
    order = np.arange(N, dtype=np.int32)
    share = _Training(x, order, NetworkSettings(hidden=4), (), weights, np.random.default_rng(0))._mean
    np.testing.assert_allclose(share, np.concatenate([x, x[:20]]).mean(axis=0), rtol=1e-6)


def test_settings_of_a_fit_are_checked() -> None:
    for settings in ({"hidden": -1}, {"hidden": 2.5}, {"dropout": 1.0}, {"input_dropout": -0.1}):
        with pytest.raises(ValueError, match=f"{next(iter(settings))} must be"):
            NetworkSettings(**settings)  # type: ignore[arg-type]
    x = patterns(60, 0)
    for given in ({"order": [0, 0, 1]}, {"weights": np.ones(3)}, {"weights": -np.ones(60)}):
        with pytest.raises(ValueError, match=r"order must have each|weights must be 60 numbers"):
            fit_network(x, x, **given)  # type: ignore[arg-type]


def test_categories_in_a_fit() -> None:
    """None of its samples is impossible, and it is better than free bits."""
    rng = np.random.default_rng(6)
    x, valid = (np.eye(4)[rng.integers(0, 4, num)][:, [0, 1, 2, 3, 3, 3]] for num in (300, 100))
    x[:, 4:], valid[:, 4:] = rng.integers(0, 2, (300, 2)), rng.integers(0, 2, (100, 2))
    categories = as_categories([(0, 1, 2, 3)], x)
    known, free = (fit_network(x, valid, NetworkSettings(hidden=8), categories=c) for c in (categories, ()))
    assert (known.model.sample(10_000)[:, :4].sum(axis=1) == 1).all()
    assert known.log_p.mean() > free.log_p.mean()
    assert -known.log_p.mean() == pytest.approx(4.0 * np.log(2.0), abs=0.1)
    independent = fit_mixture_of_bernoullis(x, 1, categories=categories)
    assert known.log_p.mean() > independent.log_prob(valid).mean() - 0.05
