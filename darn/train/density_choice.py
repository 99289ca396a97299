"""The best density of a table of bits by its validation rows: a tree, mixtures, chains, networks, or a mean of them.

    choice = choose_density(x, valid, seed=0)
    choice.model                               # a Chain, a MaskedNetwork, or a Mixture
    print(choice.table())

What is tried: the tree of Chow and Liu; an L1 chain, whose strength C goes up or down as long as that is better, and is
one for each column where that pays on rows that did not choose it; mixtures of independent columns, with four times as
many as long as that is better and may come near the best, then half and twice as many; a masked network in several
orders of the columns, whose size and dropout are moved likewise. Other orders are tried of the kinds that are near the
best. At last comes the mean of all of them with the weights that are most probable for the validation rows, where it is
better than the best by more than the standard error of the difference. No choice looks at the clock: work is counted in
operations.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darn.more.mixture import Density, Member, Mixture, load_density, log_prob, num_parameters, save_density
from darn.more.ordered import Category, as_categories, checked_bits
from darn.train.chain_fitting import (
    Regression,
    Regressions,
    fit_chain,
    fit_chow_liu,
    fit_mixture_of_bernoullis,
    row_weights,
)
from darn.train.network_fitting import FittedNetwork, NetworkSettings, fit_network
from gpflow_deep_base.files import write_text
from gpflow_deep_base.text import aligned

__all__ = ["KINDS", "NEAR", "DensityChoice", "DensityTrial", "choose_density", "stored_density"]

KINDS = ("chain", "network")

NEAR = 0.015
"""Of the nats of the best: what is not further away is tried in other orders, or trained further."""

_FIRST = 1.0  # the strength that is tried first
_FACTOR = math.sqrt(10.0)  # between strengths, before the steps are halved
_HALVINGS = 2
_FEW_COLUMNS = 64  # whose conditionals choose the strength
_LEAST_COLUMNS = 16  # likewise, where there is much work
_MOST_STEPS = 12  # a million times weaker or stronger
_MAX_WORK = 3e7  # ones in the rows of a fit times half the columns
_MAX_MIXTURE_WORK = 5e8  # members times rows times columns
_MOST_MEMBERS = 1024  # of a mixture, as its file may hold; there are no more than rows
_NETWORK_WORK = 5e11  # multiplications of fits that choose the settings of networks: about half a minute
_ORDERS_WORK = 4e11  # of networks in other orders
_BEHIND = 0.5  # of this work for networks that are behind another kind by half of NEAR
_SHARE = 0.6  # of the work that one fit may take
_LEAST_SHARE = 0.05  # of a mean: who has less is left out
_MEAN_STEPS = 200
_MOST_HIDDEN = 3200
_MOST_DROPOUT = 0.99  # one unit in a hundred is left
_HIDDEN = 300  # units that are tried first, or four a column
_LEAST_HIDDEN = 16


@dataclass(frozen=True)
class DensityTrial:
    """What was tried.

    :ivar name: of the kind and its settings.
    :ivar valid_nats: -log p of the validation rows, nats a row.
    :ivar valid_error: standard error of that.
    :ivar num_parameters: numbers of it that are not zero.
    :ivar seconds: of CPU that it took, with what chose its settings; trials are equal whatever it is.
    """

    name: str
    valid_nats: float
    valid_error: float
    num_parameters: int
    seconds: float = dataclasses.field(default=0.0, compare=False)


@dataclass(frozen=True)
class DensityChoice:
    """The best of what was tried.

    :ivar model: of it.
    :ivar log_p: log p of the validation rows, [N'], nats.
    :ivar trials: from the best to the worst.
    :ivar weights: of the validation rows, [N'], which sum to 1.
    """

    model: Density
    log_p: NDArray[np.float64]
    trials: tuple[DensityTrial, ...]
    weights: NDArray[np.float64]

    @property
    def valid_nats(self) -> float:
        """-log p of the validation rows, nats a row."""
        return -float(self.weights @ self.log_p)

    def with_rival(self, name: str, model: Member, log_p: NDArray[np.float64], seconds: float = 0.0) -> DensityChoice:
        """The choice with one more candidate, and with the mean of it and the best where that pays.

        :param name: of its kind and settings.
        :param model: of the same columns.
        :param log_p: of the same validation rows, [N'], nats.
        :param seconds: of CPU that it took.
        """
        # Beside the best so far, with the mean of both.
        ours = _Tried(self.trials[0].name, self.model, self.log_p, self.weights)
        rival = _Tried(name, model, log_p, self.weights, seconds)
        trials = [*self.trials, rival.trial]
        best = min(ours, rival, key=lambda tried: tried.nats)
        mean = _mean_of([ours, rival])
        if mean is not None and mean.is_better(best):
            trials.append(mean.trial)
            best = mean
        trials.sort(key=lambda trial: trial.valid_nats)
        return DensityChoice(best.model, best.log_p, tuple(trials), self.weights)

    def table(self) -> str:
        """The candidates, one a line: nats of the validation rows with their standard error, numbers, CPU seconds."""
        lines = [["nats", "", "numbers", "CPU s"]]
        for trial in self.trials:
            numbers = [f"{trial.valid_nats:.3f}", f"± {trial.valid_error:.3f}", f"{trial.num_parameters}"]
            lines.append([*numbers, f"{trial.seconds:.1f}"])
        names = ["candidate", *(trial.name for trial in self.trials)]
        numbers_of = aligned(lines).splitlines()
        return aligned([[line, name] for line, name in zip(numbers_of, names, strict=True)], is_text=True)


@dataclass(frozen=True)
class _Tried:
    """A candidate, and log p of the validation rows with their weights."""

    name: str
    model: Density
    log_p: NDArray[np.float64]
    weights: NDArray[np.float64]
    seconds: float = 0.0

    @property
    def nats(self) -> float:
        return -float(self.weights @ self.log_p)

    @property
    def trial(self) -> DensityTrial:
        error = _error(self.log_p, self.weights)
        return DensityTrial(self.name, self.nats, error, num_parameters(self.model), self.seconds)

    def is_better(self, other: _Tried) -> bool:
        """Whether it is better by more than the standard error of the difference."""
        gain = self.log_p - other.log_p
        mean = float(self.weights @ gain)
        return mean > 0.0 and mean > _error(gain, self.weights)


def choose_density(
    x: ArrayLike,
    valid: ArrayLike,
    *,
    seed: int = 0,
    groups: Sequence[Sequence[int]] = (),
    kinds: Sequence[str] = KINDS,
    weights: ArrayLike | None = None,
    valid_weights: ArrayLike | None = None,
    report: Callable[[str], None] = lambda line: None,
    look: Callable[[], None] = lambda: None,
) -> DensityChoice:
    """The best density, or the mean of several, by the validation rows.

    :param x: training rows [N, n], zeros and ones.
    :param valid: validation rows [N', n].
    :param seed: of random orders, rows, starts and minibatches; the same gives the same choice.
    :param groups: columns of each category, which is one variable.
    :param kinds: what is tried beside trees and mixtures, of :data:`KINDS`.
    :param weights: of the rows, [N]; all alike if not given.
    :param valid_weights: likewise, [N'].
    :param report: gets a line of text for each candidate.
    :param look: is called after each candidate; what it raises ends the choice.
    :raises ValueError: for other values, no rows, or a group that is no category.
    """
    if not {*kinds} <= {*KINDS}:
        raise ValueError(f"kinds must be some of {', '.join(KINDS)} in a sequence, got {kinds!r}.")
    rows = checked_bits(x, np.shape(x)[-1] if np.ndim(x) else 1)
    held_out = checked_bits(valid, rows.shape[1])
    if not len(rows) or not len(held_out):
        raise ValueError(f"there must be training and validation rows, got {len(rows)} and {len(held_out)}.")
    counted = [
        row_weights(given_weights, len(part)) for given_weights, part in ((weights, rows), (valid_weights, held_out))
    ]
    # Kinds from the quickest to the slowest, then other orders of the columns for those that are near the best.
    search = _Search(rows, held_out, counted, as_categories(groups, rows, held_out), seed, report, look)
    search.tree()
    if "chain" in kinds:
        search.chain()
    search.mixtures()
    if "network" in kinds and rows.shape[1] > 1:
        search.network()
    search.other_orders()
    return search.choice()


def stored_density(path: Path, valid: ArrayLike, make: Callable[[], DensityChoice]) -> DensityChoice:
    """The choice in a file of :func:`darn.save_density` and one of its candidates beside it, as JSON; made and written
    if there is none.

    :param path: of the model; the other file has the suffix .json.
    :param valid: validation rows of the choice, [N', n].
    :param make: makes it.
    :raises ValueError: if the files hold something else.
    """
    # The choice is made once; later its files are read.
    table = path.with_suffix(".json")
    if not table.exists():
        choice = make()
        save_density(choice.model, path)
        write_text(table, json.dumps([dataclasses.asdict(trial) for trial in choice.trials], indent=1))
    model = load_density(path)
    try:
        trials = tuple(DensityTrial(**trial) for trial in json.loads(table.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{table} is no table of candidates ({error}); delete it to choose anew.") from error
    log_p = log_prob(model, valid)
    return DensityChoice(model, log_p, trials, np.full(len(log_p), 1.0 / len(log_p)))


class _Search:
    """What was tried, and what is to be tried.

    :param rows: training rows, [N, n].
    :param valid: validation rows, [N', n].
    :param weights: of both.
    """

    def __init__(
        self,
        rows: NDArray[np.uint8],
        valid: NDArray[np.uint8],
        weights: Sequence[NDArray[np.float64]],
        categories: Sequence[Category],
        seed: int,
        report: Callable[[str], None],
        look: Callable[[], None],
    ) -> None:
        self._rng = np.random.default_rng([seed, 5])
        # A fit of a chain takes about as long as there are ones times columns before them.
        self._work = int(rows.sum()) * rows.shape[1] / 2
        most = max(1, int(len(rows) * min(1.0, _MAX_WORK / max(self._work, 1.0))))
        some = np.arange(len(rows)) if most == len(rows) else np.sort(self._rng.choice(len(rows), most, replace=False))
        if most < len(rows):
            report(f"chains are fitted to {most} of the {len(rows)} training rows, drawn by the seed")
        # Rows that chains are fitted to, and all rows, for networks.
        self._all_rows = rows
        self._all_weights = weights[0]
        self.rows = rows[some]
        self._row_weights = weights[0][some] if weights[0][some].any() else np.ones(most)
        self.valid = valid
        self._shares = weights[1] / weights[1].sum()
        self.categories = tuple(categories)
        self.n = rows.shape[1]
        self._seed = seed
        self._report = report
        self._look = look
        self._start = time.process_time()
        self.tried: list[_Tried] = []
        means = self._row_weights @ self.rows
        self._orders = {"as they are": np.arange(self.n), "rare ones first": np.argsort(means, kind="stable")}
        self._chain: tuple[NDArray[np.float64], str, float] | None = None
        self._network: tuple[NetworkSettings, FittedNetwork] | None = None

    def keep(self, name: str, model: Density, log_p: NDArray[np.float64] | None = None) -> _Tried:
        """Score a candidate."""
        log_p = log_prob(model, self.valid) if log_p is None else log_p
        end = time.process_time()
        tried = _Tried(name, model, log_p, self._shares, end - self._start)
        self._start = end
        self.tried.append(tried)
        self._report(f"{tried.nats:9.3f} nats: {name}")
        self._look()
        return tried

    def tree(self) -> None:
        """The tree of Chow and Liu."""
        tree = fit_chow_liu(self.rows, categories=self.categories, weights=self._row_weights)
        self._orders["those of the tree"] = tree.order
        self._orders["from the last to the first"] = np.arange(self.n)[::-1]
        self._orders["drawn by the seed"] = self._rng.permutation(self.n)
        self.keep("tree of Chow and Liu", tree)

    def mixtures(self) -> None:
        """Mixtures of independent columns, with four times as many members as long as that is better, and may come near
        the best: a step gains no more than the one before. Of these the best one's half and double are tried."""
        nats: dict[int, float] = {}
        last = math.inf
        for members in itertools.accumulate(itertools.repeat(4), lambda number, factor: number * factor, initial=1):
            if not self._can_have(members):
                break
            nats[members] = self._mixture(members)
            # With as much gain again it would still not come near the best.
            gain = last - nats[members]
            if gain <= 0.0 or nats[members] - gain > self._near(NEAR):
                break
            last = nats[members]
        # Steps of four may have passed the best number.
        best = min(nats, key=nats.__getitem__)
        if nats[best] <= self._near(NEAR):
            for members in (best // 2, 2 * best):
                if members > 1 and self._can_have(members):
                    self._mixture(members)

    def _can_have(self, members: int) -> bool:
        """Whether a mixture has rows enough for so many members, and takes no longer than it may."""
        is_quick = members == 1 or members * len(self.rows) * self.n <= _MAX_MIXTURE_WORK
        return is_quick and members <= min(len(self.rows), _MOST_MEMBERS)

    def _mixture(self, members: int) -> float:
        """Nats of a mixture of so many products of Bernoullis, which is a candidate."""
        fitted = fit_mixture_of_bernoullis(
            self.rows, members, categories=self.categories, weights=self._row_weights, seed=self._seed
        )
        return self.keep(f"mixture of {members} products of Bernoullis", fitted).nats

    def chain(self) -> None:
        """An L1 chain with rare columns first, and its strengths."""
        title = "rare ones first"
        fits = Regressions(self.rows, self._orders[title], self.categories, self._row_weights)
        strength = self._strength(fits)
        self._report(f"strength of the penalty: C = {strength:.3g}")
        fitted, strengths, name = self._strengths(fits, strength)
        tried = self.keep(f"L1 chain, columns {title}, {name}", fits.chain(fitted))
        self._chain = (strengths, name, tried.nats)

    def network(self) -> None:
        """Masked networks: settings are moved one after the other as long as that is better and there is work left."""
        spent = 0.0
        best: FittedNetwork | None = None
        settings = NetworkSettings(hidden=min(_HIDDEN, max(_LEAST_HIDDEN, 4 * self.n)))
        order = "as they are"
        attempted: set[tuple[NetworkSettings, str]] = set()

        def attempt(changed: NetworkSettings, title: str) -> bool:
            """Whether it is better; it is the one to start from then."""
            nonlocal best, settings, order, spent
            # Not twice, and not beyond the work that is left.
            if (changed, title) in attempted or spent >= self._work_for(best, _NETWORK_WORK):
                return False
            attempted.add((changed, title))
            fitted = self._fit(changed, title, _SHARE * _NETWORK_WORK, best)
            spent += fitted.work
            if best is not None and self._shares @ fitted.log_p <= self._shares @ best.log_p:
                return False
            best = fitted
            settings = changed
            order = title
            return True

        # More units as long as that is better, for too few learn slowly and use up the work of all that comes later;
        # then the order, and one setting after the other, up or down, until none is better.
        attempt(settings, order)
        while (wider := _with_hidden(settings, 2.0)) is not None and attempt(wider, order):
            pass
        attempt(settings, "rare ones first")
        is_better = True
        while is_better and spent < self._work_for(best, _NETWORK_WORK):
            is_better = False
            for moves in _moves():
                for move in moves:
                    has_moved = False
                    while (changed := move(settings)) is not None and attempt(changed, order):
                        is_better = has_moved = True
                    if has_moved:
                        break
        assert best is not None
        self._network = (settings, best)

    def other_orders(self) -> None:
        """The columns in other orders, of the kinds that are near the best."""
        # Chains with the strengths that were chosen, then networks while there is work left.
        near = self._near(NEAR)
        if self._chain is not None and self._chain[2] <= near:
            strengths, name, _ = self._chain
            for title, order in self._others("L1 chain"):
                chain = fit_chain(
                    self.rows, strengths, order=order, categories=self.categories, weights=self._row_weights
                )
                self.keep(f"L1 chain, columns {title}, {name}", chain)
        if self._network is not None and -float(self._shares @ self._network[1].log_p) <= near:
            settings, best = self._network
            spent = 0.0
            for title, _ in self._others(f"network of {settings}"):
                if spent >= self._work_for(best, _ORDERS_WORK):
                    break
                spent += self._fit(settings, title, _SHARE * _ORDERS_WORK, best).work

    def choice(self) -> DensityChoice:
        """The best, or the mean of several where that is better by more than its standard error."""
        self.tried.sort(key=lambda tried: tried.nats)
        best = self.tried[0]
        mean = _mean_of(self.tried)
        if mean is not None and mean.is_better(best):
            self._report(f"{mean.nats:9.3f} nats: {mean.name}")
            self.tried.insert(0, mean)
            best = mean
        trials = [candidate.trial for candidate in self.tried]
        return DensityChoice(best.model, best.log_p, tuple(trials), self._shares)

    # Private.

    def _near(self, share: float) -> float:
        """Nats of what is behind the best so far by this share of them."""
        return (1.0 + share) * min(candidate.nats for candidate in self.tried)

    def _work_for(self, best: FittedNetwork | None, most: float) -> float:
        """Of the most work, what networks get whose best one is this."""
        if best is None:
            return most
        nearest = self._near(0.5 * NEAR)
        return _BEHIND * most if -float(self._shares @ best.log_p) > nearest else most

    def _fit(
        self, settings: NetworkSettings, title: str, most_work: float, best: FittedNetwork | None
    ) -> FittedNetwork:
        """A network, kept as a candidate; it is given up where it is far behind the best one so far."""
        # Given up where it is worse by a share of NEAR after as many steps as the best one took.
        behind = None
        if best is not None:
            behind = (best.best_step, -float(self._shares @ best.log_p) * (1.0 + NEAR))
        fitted = fit_network(
            self._all_rows,
            self.valid,
            settings,
            order=self._orders[title],
            categories=self.categories,
            weights=self._all_weights,
            valid_weights=self._shares,
            seed=self._seed,
            most_work=most_work,
            behind=behind,
        )
        self.keep(f"network of {settings}, columns {title}", fitted.model, fitted.log_p)
        return fitted

    def _others(self, start: str) -> list[tuple[str, np.ndarray]]:
        """Orders in which a kind was not tried yet, each once."""
        # An order under another title is the same order: that of the tree may be that of the columns.
        done = [
            title for title in self._orders if any(t.name.startswith(f"{start}, columns {title}") for t in self.tried)
        ]
        orders: list[tuple[str, np.ndarray]] = []
        known_orders = [self._orders[title] for title in done]
        for title, order in self._orders.items():
            if title not in done and not any(np.array_equal(order, other) for other in known_orders):
                known_orders.append(order)
                orders.append((title, order))
        return orders

    def _strength(self, fits: Regressions) -> float:
        """C of the least loss of some columns: steps of a factor as long as that is better, then steps half as long."""
        # Some columns tell nearly as much of the strength as all do; in large tables these are fewer.
        number = round(_FEW_COLUMNS * min(1.0, _MAX_WORK / (5.0 * max(self._work, 1.0))))
        columns = np.sort(self._rng.permutation(self.n)[: max(number, _LEAST_COLUMNS)])
        losses: dict[float, float] = {}

        def loss(exponent: float) -> float:
            if exponent not in losses:
                strength = _FIRST * _FACTOR**exponent
                fitted = {int(j): fits.column(int(j), strength) for j in columns}
                losses_by_column = (float(self._shares @ fits.losses(j, one, self.valid)) for j, one in fitted.items())
                losses[exponent] = sum(losses_by_column)
                self._look()
            return losses[exponent]

        # A step up or down as long as that is better, then steps half as long.
        # Exponents of the factor; losses are kept, for steps come back to them.
        best = 0.0
        step = 1.0
        for _ in range(1 + _HALVINGS):
            for direction in (-step, step):
                while abs(best + direction) <= _MOST_STEPS and loss(best + direction) < loss(best):
                    best += direction
            step /= 2.0
        return float(_FIRST * _FACTOR**best)

    def _strengths(self, fits: Regressions, strength: float) -> tuple[dict[int, Regression], NDArray[np.float64], str]:
        """Regressions of all columns, their strengths, and in words: one for all, or one for each column where that is
        better on validation rows that did not choose it."""
        # Losses of each strength, column and half of the validation rows.
        tried = strength * _FACTOR ** np.array([-1.0, 0.0, 1.0])
        half = self._rng.permutation(len(self.valid)) % 2
        fitted = [{j: fits.column(j, float(C)) for j in range(self.n)} for C in tried]
        losses = np.zeros([len(tried), self.n, 2])
        for number, regressions in enumerate(fitted):
            for j in range(self.n):
                loss = self._shares * fits.losses(j, regressions[j], self.valid)
                losses[number, j] = np.bincount(half, loss, minlength=2)
        # Each half chooses for the other one.
        crossed = np.take_along_axis(losses[:, :, ::-1], losses.argmin(axis=0)[None], axis=0)
        if crossed.sum() < losses[1].sum():
            places = losses.sum(axis=2).argmin(axis=0)
            chosen = {j: fitted[place][j] for j, place in enumerate(places)}
            return chosen, tried[places], f"C by column from {tried[0]:.3g} to {tried[-1]:.3g}"
        return fitted[1], np.full(self.n, strength), f"C = {strength:.3g}"


def _moves() -> list[tuple[Callable[[NetworkSettings], NetworkSettings | None], ...]]:
    """Steps of one setting up or down, which has no last value: dropout by its odds, sizes by their half or double."""

    def dropout(settings: NetworkSettings, factor: float) -> NetworkSettings | None:
        return dataclasses.replace(settings, dropout=_by_odds(settings.dropout, factor))

    def input_dropout(settings: NetworkSettings, factor: float) -> NetworkSettings | None:
        return dataclasses.replace(settings, input_dropout=_by_odds(settings.input_dropout, factor))

    return [
        (lambda s: input_dropout(s, 3.0), lambda s: input_dropout(s, 1.0 / 3.0)),
        (lambda s: dropout(s, 3.0), lambda s: dropout(s, 1.0 / 3.0)),
        (lambda s: _with_hidden(s, 2.0), lambda s: _with_hidden(s, 0.5)),
    ]


def _with_hidden(settings: NetworkSettings, factor: float) -> NetworkSettings | None:
    """So many times as many hidden units; None if these are too few or too many."""
    number = round(settings.hidden * factor)
    return dataclasses.replace(settings, hidden=number) if 10 <= number <= _MOST_HIDDEN else None


def _by_odds(share: float, factor: float) -> float:
    """A share whose odds are so many times those of another; 0 below 3 % and from 0 to 5 %."""
    if share == 0.0:
        return 0.05 if factor > 1.0 else 0.0
    # Odds have no ends: no step up reaches 1.
    odds = share / (1.0 - share) * factor
    new_share = odds / (1.0 + odds)
    return 0.0 if new_share < 0.03 else min(round(new_share, 3), _MOST_DROPOUT)


def _error(values: NDArray[np.float64], shares: NDArray[np.float64]) -> float:
    """Standard error of the weighted mean of rows."""
    # Of rows with unequal weights: sum of w^2 (value - mean)^2.
    spread = values - shares @ values
    return math.sqrt(float(np.square(shares) @ np.square(spread)))


def _mean_of(tried: Sequence[_Tried]) -> _Tried | None:
    """The mixture of candidates with the weights that are most probable for the validation rows; None if all but one
    are left out. Members of mixtures are members of it."""
    candidates = list(tried)
    while len(candidates) > 1:
        # Expectation maximisation of the weights; p is relative to the best candidate of each row.
        log_p = np.stack([candidate.log_p for candidate in candidates])
        best = log_p.max(axis=0)
        p = np.exp(log_p - np.where(np.isfinite(best), best, 0.0))
        shares = np.full(len(candidates), 1.0 / len(candidates))
        for _ in range(_MEAN_STEPS):
            shares = shares * (p @ (candidates[0].weights / np.maximum(shares @ p, 1e-300)))
        least = int(shares.argmin())
        if shares[least] >= _LEAST_SHARE:
            break
        del candidates[least]
    if len(candidates) == 1:
        return None
    # A mixture of mixtures is one mixture.
    log_w = np.log(shares / shares.sum())
    members: list[Member] = []
    log_weights: list[float] = []
    for candidate, log_share in zip(candidates, log_w, strict=True):
        if isinstance(candidate.model, Mixture):
            members += candidate.model.members
            log_weights += (candidate.model.log_weights + log_share).tolist()
        else:
            members.append(candidate.model)
            log_weights.append(float(log_share))
    name = "mean: " + "; ".join(
        f"{share:.0%} {candidate.name}" for share, candidate in zip(np.exp(log_w), candidates, strict=True)
    )
    mean_log_p = np.logaddexp.reduce(log_p + log_w[:, None], axis=0)
    return _Tried(name, Mixture(tuple(members), np.array(log_weights)), mean_log_p, candidates[0].weights)
