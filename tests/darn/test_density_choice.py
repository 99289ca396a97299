"""The choice among densities against rivals on rows that chose nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darn.more.mixture import Mixture
from darn.more.ordered import as_categories
from darn.train.chain_fitting import fit_chain, fit_chow_liu, fit_mixture_of_bernoullis
from darn.train.density_choice import DensityChoice, _by_odds, _mean_of, _Tried, choose_density, stored_density
from darn.train.network_fitting import NetworkSettings, fit_network
from tests.darn.rows import every_row
from tests.darn.test_chain_fitting import GROUPS, N, clusters, one_hot


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two or three networks are tried, which take a moment."""
    monkeypatch.setattr("darn.train.density_choice._NETWORK_WORK", 3e9)
    monkeypatch.setattr("darn.train.density_choice._ORDERS_WORK", 0.0)


def copies(num: int, seed: int) -> np.ndarray:
    """Four bits and their copies."""
    bits = np.random.default_rng([4, seed]).integers(0, 2, (num, 4))
    return np.concatenate([bits, bits], axis=1)


def noise(num: int, seed: int) -> np.ndarray:
    return np.random.default_rng([5, seed]).integers(0, 2, (num, N))


def modes(num: int, seed: int) -> np.ndarray:
    """Eight rows of fifteen bits, of which one in ten is another."""
    rows = np.random.default_rng(6).random((8, 15)) < 0.4
    rng = np.random.default_rng([7, seed])
    return (rows[rng.integers(0, len(rows), num)] ^ (rng.random((num, 15)) < 0.1)).astype(np.uint8)


def chosen_strength(kind: Callable[[int, int], np.ndarray]) -> float:
    lines: list[str] = []
    choose_density(kind(400, 0), kind(200, 1), kinds=["chain"], report=lines.append)
    (line,) = (line for line in lines if line.startswith("strength"))
    return float(line.split("=")[1])


def majority(num: int, seed: int) -> np.ndarray:
    """Four bits, and whether most of the first three are 1."""
    bits = np.random.default_rng([4, seed]).integers(0, 2, (num, 4))
    return np.concatenate([bits, bits[:, :3].sum(axis=1, keepdims=True) >= 2], axis=1)


def test_the_strength_has_no_edge() -> None:
    """What a sum of bits decides wants no penalty, and gets less than a tenth of the one that is tried first."""
    assert chosen_strength(majority) > 10.0


def test_noise_gets_a_penalty_that_leaves_next_to_no_weights() -> None:
    assert fit_chain(noise(400, 0), chosen_strength(noise)).num_weights <= 2


@pytest.mark.parametrize("kind", [clusters, one_hot, noise, copies])
def test_the_choice_is_not_behind_its_rivals_on_other_rows(kind: Callable[[int, int], np.ndarray]) -> None:
    """Within 0.1 nats of the best of an L1 chain, a tree and a mixture, each with its best setting of the test rows."""
    x, valid, test = kind(600, 0), kind(300, 1), kind(5000, 2)
    choice = choose_density(x, valid)
    rivals: list[Any] = [fit_chain(x, C) for C in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)]
    rivals += [fit_chow_liu(x), *(fit_mixture_of_bernoullis(x, members) for members in (1, 2, 3, 4, 8))]
    best = min(-rival.log_prob(test).mean() for rival in rivals)
    assert -choice.model.log_prob(test).mean() < best + 0.1


def test_half_and_twice_as_many_members_are_tried_too() -> None:
    """Of a table of eight modes, of which four are too few."""
    choice = choose_density(modes(200, 0), modes(100, 1), kinds=[])
    titles = [trial.name.split() for trial in choice.trials if trial.name.startswith("mixture of")]
    tried = [int(title[2]) for title in titles]  # from the best to the worst
    of_steps = [members for members in tried if members in (1, 4, 16, 64)]
    assert {of_steps[0] // 2, 2 * of_steps[0]} <= set(tried)
    assert tried[0] >= 8


def test_the_choice_is_the_best_of_its_table_and_depends_on_the_seed_alone() -> None:
    x, valid = one_hot(300, 0), one_hot(200, 1)
    choice = choose_density(x, valid, seed=3, groups=GROUPS)
    again = choose_density(x, valid, seed=3, groups=GROUPS)
    assert choice.trials == again.trials
    np.testing.assert_array_equal(choice.log_p, again.log_p)
    values = [trial.valid_nats for trial in choice.trials]
    assert values == sorted(values)
    assert choice.valid_nats == values[0]
    np.testing.assert_allclose(choice.model.log_prob(valid), choice.log_p)
    lines = choice.table().splitlines()  # of long names several for one candidate
    assert [line[:5] for line in lines if line[:1].isdigit()] == [f"{value:.3f}" for value in values]
    model: Any = choice.model
    assert (model.sample(500)[:, :3].sum(axis=1) == 1).all()


def test_a_mean_of_two_is_taken_where_it_is_better_by_more_than_its_error() -> None:
    """Two chains that are each right about half of the rows; a third one that is no better than the first."""
    x, valid = clusters(200, 0), clusters(400, 1)
    choice = choose_density(x, valid, kinds=["chain"])
    chain = fit_chain(x, 1.0)
    gain = np.where(np.arange(400) % 2, 3.0, -3.0)
    joined = choice.with_rival("another", chain, choice.log_p + gain)
    assert isinstance(joined.model, Mixture)
    assert joined.trials[0].name == f"mean: 50% {choice.trials[0].name}; 50% another"
    np.testing.assert_allclose(joined.log_p, choice.log_p + np.log(0.5 + 0.5 * np.exp(gain)), atol=1e-6)
    assert np.exp(joined.model.log_weights).sum() == pytest.approx(1.0)
    same = choice.with_rival("another", chain, choice.log_p - 1e-9)
    assert same.model is choice.model
    assert [trial.name for trial in same.trials[:2]] == [choice.trials[0].name, "another"]
    better = choice.with_rival("another", chain, choice.log_p + 5.0)
    assert better.model is chain
    assert better.trials[0].name == "another"


def test_a_choice_is_stored_and_made_once(tmp_path: Path) -> None:
    x, valid = clusters(100, 0), clusters(50, 1)
    choice = choose_density(x, valid, kinds=["chain"])
    first = stored_density(tmp_path / "exact.npz", valid, lambda: choice)

    def never() -> DensityChoice:
        raise AssertionError

    again = stored_density(tmp_path / "exact.npz", valid, never)
    for stored in (first, again):
        assert stored.trials == choice.trials
        np.testing.assert_array_equal(stored.log_p, choice.log_p)
        assert stored.valid_nats == pytest.approx(choice.valid_nats)
    for text in ("5", "[{}]", "{"):
        (tmp_path / "exact.json").write_text(text)
        with pytest.raises(ValueError, match=r"exact\.json is no table of candidates .* delete it to choose anew"):
            stored_density(tmp_path / "exact.npz", valid, never)


def test_a_choice_can_be_interrupted() -> None:
    class Stopped(Exception):
        pass

    def look() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        choose_density(clusters(50, 0), clusters(50, 1), look=look)


def test_large_tables_are_fitted_to_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darn.train.density_choice._MAX_WORK", 400.0)
    lines: list[str] = []
    choose_density(clusters(400, 0), clusters(50, 1), kinds=["chain"], report=lines.append)
    number = int(lines[0].split()[4])
    assert lines[0] == f"chains are fitted to {number} of the 400 training rows, drawn by the seed"
    assert 4.0 * clusters(400, 0).sum() * number / 400 == pytest.approx(400.0, rel=0.1)


def parity(num: int, seed: int) -> np.ndarray:
    """Pairs of bits and whether they differ: no chain, tree or mixture of few members knows."""
    x = np.random.default_rng([7, seed]).integers(0, 2, (num, N))
    x[:, 2] = x[:, 0] ^ x[:, 1]
    x[:, 5] = x[:, 3] ^ x[:, 4]
    x[:, 7] = x[:, 6] ^ x[:, 0]
    return x


def test_networks_are_chosen_where_they_are_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darn.train.density_choice._NETWORK_WORK", 2e10)
    monkeypatch.setattr("darn.train.density_choice._ORDERS_WORK", 2e9)
    x, valid, test = parity(600, 0), parity(300, 1), parity(2000, 2)
    choice = choose_density(x, valid)
    assert -choice.model.log_prob(test).mean() < (N - 3) * np.log(2.0) + 0.3
    assert "network of" in choice.trials[0].name
    chains = choose_density(x, valid, kinds=["chain"])
    assert not any("network" in trial.name for trial in chains.trials)
    assert {trial.name for trial in chains.trials if "mean" not in trial.name} < {t.name for t in choice.trials}
    lines = choice.table().splitlines()
    assert lines[0].split() == ["nats", "numbers", "CPU", "s", "candidate"]
    best = choice.trials[0]
    assert f"{best.valid_nats:.3f}  ± {best.valid_error:.3f}" in lines[1]
    assert best.valid_error == pytest.approx(choice.log_p.std() / np.sqrt(300))


def test_settings_of_networks_have_no_edge() -> None:
    share = 0.1
    for _ in range(12):
        share = _by_odds(share, 3.0)
    assert share == 0.99  # one unit in a hundred is left
    assert _by_odds(0.05, 1.0 / 3.0) == 0.0
    assert _by_odds(0.0, 3.0) == 0.05
    assert _by_odds(0.0, 1.0 / 3.0) == 0.0


def test_a_mean_has_the_weights_that_are_most_probable() -> None:
    """Against a grid, of two candidates beside one that is nowhere better, which is left out."""
    x = clusters(200, 0)
    rng = np.random.default_rng(0)
    shares = np.full(400, 1 / 400)
    model = fit_chain(x, 1.0)
    first, second = rng.normal(size=(2, 400))
    tried = [_Tried(name, model, log_p, shares) for name, log_p in (("a", first), ("b", second), ("c", first - 9.0))]
    mean = _mean_of(tried)
    assert mean is not None
    weights = np.linspace(0.001, 0.999, 999)[:, None]
    values = np.logaddexp(np.log(weights) + first, np.log(1.0 - weights) + second).mean(axis=1)
    assert mean.log_p.mean() == pytest.approx(values.max(), abs=1e-4)
    assert "c" not in mean.name
    assert _mean_of([tried[0], tried[2]]) is None


def test_weights_count_validation_rows() -> None:
    x, valid = clusters(300, 0), clusters(100, 1)
    weights = np.random.default_rng(2).integers(1, 4, 100)
    weighted = choose_density(x, valid, kinds=["chain"], valid_weights=weights)
    log_p = np.repeat(weighted.log_p, weights)
    assert weighted.valid_nats == pytest.approx(-log_p.mean())
    assert np.isfinite(fit_network(x, valid, NetworkSettings(hidden=4), valid_weights=weights).log_p).all()


@pytest.mark.parametrize("groups", [(), GROUPS])
def test_log_p_of_a_mean_by_column_sums_to_it(groups: tuple[tuple[int, ...], ...]) -> None:
    x = one_hot(300, 0)
    orders = (np.arange(N), np.arange(N)[::-1])
    members = [fit_chain(x, 1.0, order=order, categories=as_categories(groups, x)) for order in orders]
    both = Mixture(tuple(members), np.log([0.3, 0.7]))
    every = every_row(N)
    by_column = both.log_prob_by_column(every)
    log_p = both.log_prob(every)
    np.testing.assert_allclose(by_column.sum(axis=1), log_p, atol=1e-9)
    with pytest.raises(ValueError, match="there must be training and validation rows"):
        choose_density(x, x[:0])
    with pytest.raises(ValueError, match="a category must be"):
        choose_density(x, x, groups=[(0,)])
    with pytest.raises(ValueError, match="kinds must be some of chain, network in a sequence, got"):
        choose_density(x, x, kinds=["made"])
