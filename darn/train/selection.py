"""Architecture and learning rate by validation rows, as the paper chose them (Gregor et al., 2014, Section 5.1).

    choice = choose(x, x_valid, seed=0)
    choice.model, choice.training           # DARNConfig and TrainingConfig, to train with early stopping
    choice.to_json()                        # what was tried, with the validation nats of each

The paper tried 100 to 500 tanh units, 8 to 256 stochastic units with an autoregressive prior, an autoregressive
decoder, and three learning rates of RMSProp. Here candidates are drawn from these, with higher rates and weight decay
beside, and go through successive halving (Jamieson and Talwalkar, 2016): all train for a few epochs, the best third
goes on for three times as many steps, and so on; whoever is left trains until validation rows say stop. Then the
neighbours of the best, which differ from it in one value, do the same. At last the best one is trained anew with a
learning rate that falls to 0 over twice the steps that it took, with its weight decay and with the next stronger one,
and again over twice as many as long as that is better.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from darn.model.config import check_numbers
from darn.model.model import DARNConfig, check_data
from darn.train.optimization import TrainingConfig
from darn.train.rivals import (
    NONE,
    Budget,
    Candidate,
    Maker,
    Rival,
    Trial,
    as_sizes,
    claim,
    draw_candidates,
    extended,
    given,
    is_beyond,
    neighbours,
    value_spaces,
)
from darn.train.training import evaluation_interval
from gpflow_deep_base.files import write_text
from gpflow_deep_base.numbers.groups import by_group, flat
from gpflow_deep_base.seeds import Seed, as_seed

__all__ = ["Choice", "SearchConfig", "Trial", "choose", "few_steps", "stored_choice"]

_FACTOR = 3  # of candidates that are left out, and of steps
_CANDIDATES = 18
_TOTAL_STEPS = 60_000
_FEW_CANDIDATES = 4  # where other kinds of densities are tried, too


def few_steps(width: int) -> int:
    """Steps of a search beside other kinds of densities, whose steps take longer in wide tables.

    :param width: n_x.
    """
    return 1000 * min(4, max(2, 1500 // width))


@dataclass(frozen=True)
class SearchConfig:
    """How to choose.

    :param candidates: how many candidates to begin with; 18 if this is not given, or 4 beside other kinds of densities.
    :param search_epochs: epochs after which the first candidates are left out; at least 500 steps, at most 1,500.
    :param search_steps: most steps of a candidate; twice as many while its learning rate falls.
    :param search_patience: evaluations in a row without improvement after which a candidate stops.
    :param neighbours: also try what differs from the best candidate in one value.
    :param falling: also try the best candidate with a learning rate that falls to 0.
    :param search_total_steps: after so many steps of all candidates together the best so far is chosen; 0 for no limit;
        60,000 if this is not given, or 2,000 to 4,000 beside other kinds of densities.
    :param validation_fraction: share of the rows that choose, and that stop the training, of `DARNDensity`.
    :raises ValueError: naming the field that is wrong.
    """

    candidates: int | None = None
    search_epochs: int = 5
    search_steps: int = 20_000
    search_patience: int = 10
    neighbours: bool = True
    falling: bool = True
    search_total_steps: int | None = None
    validation_fraction: float = 0.1

    def __post_init__(self) -> None:
        counts = ("candidates", "search_epochs", "search_steps", "search_patience")
        check_numbers(self, *counts, "search_total_steps", "validation_fraction")
        for name in counts:
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        if self.search_total_steps is not None and self.search_total_steps < 0:
            raise ValueError(f"search_total_steps must not be negative, got {self.search_total_steps}; 0 is no limit.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be in (0, 1), got {self.validation_fraction}.")

    def beside_others(self, width: int) -> SearchConfig:
        """What was not given is less, for the search is one of several.

        :param width: n_x.
        """
        total = few_steps(width) if self.search_total_steps is None else self.search_total_steps
        return dataclasses.replace(self, candidates=self.candidates or _FEW_CANDIDATES, search_total_steps=total)

    def first_steps(self, num_rows: int, batch_size: int) -> int:
        """Steps of the first round, a multiple of the evaluation interval."""
        # Whole intervals, so that all candidates are compared after an evaluation.
        interval = evaluation_interval(num_rows, batch_size)
        num_steps = min(max(self.search_epochs * -(-num_rows // batch_size), 500), 1500, self.search_steps)
        return -(-num_steps // interval) * interval


@dataclass(frozen=True)
class Choice:
    """The best candidate, as configurations, and all trials from the best to the worst.

    :ivar model: of the best candidate.
    :ivar training: how it is trained.
    :ivar trials: of all candidates.
    :ivar alone: the trial of the same decoder without stochastic units, which shows what these are good for.
    :ivar is_cut: whether the steps were spent before all was tried.
    """

    model: DARNConfig
    training: TrainingConfig
    trials: tuple[Trial, ...]
    alone: Trial
    is_cut: bool = False

    def to_json(self) -> dict[str, Any]:
        """The configurations, and chosen and rejected candidates with their scores, as JSON has them."""
        chosen, *rejected = [_flat(trial) for trial in self.trials]
        configs: dict[str, Any] = {"model": json.loads(self.model.to_json())}
        configs["training"] = flat(TrainingConfig, vars(self.training))
        configs["ended_by_search_total_steps"] = self.is_cut
        return {**configs, "chosen": chosen, "rejected": rejected, "without_stochastic_units": _flat(self.alone)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Choice:
        """The choice that :meth:`to_json` gave.

        :raises ValueError: if it is something else.
        """
        try:
            trials = tuple(_trial(flat) for flat in (found["chosen"], *found["rejected"]))
            model = DARNConfig.from_json(json.dumps(found["model"]))
            training = TrainingConfig(**by_group(TrainingConfig, found["training"]))
            alone = _trial(found["without_stochastic_units"])
            return cls(model, training, trials, alone, found["ended_by_search_total_steps"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no choice of a model ({error}).") from error

    def notes(self) -> list[str]:
        """The choice and its rival without stochastic units, as lines of text."""
        # The best, in bits what its units carry, and what the decoder reaches without them.
        best = self.trials[0]
        alone = self.alone
        bits = 1.0 / math.log(2.0)
        candidate = best.candidate
        sizes = (self.model.hidden, self.model.units)
        falling = f" (falling to 0 at step {candidate.cosine})" if candidate.cosine else ""
        hidden, units = (", ".join(map(str, numbers)) for numbers in sizes)
        lines = [
            f"chosen of {len(self.trials)} on the validation rows: {hidden} stochastic and {units} deterministic "
            f"units, learning rate {candidate.learning_rate:g}{falling}, weight decay {candidate.weight_decay:g}: "
            f"{best.valid_nats:.3f} nats, {bits * best.kl_nats:.2f} bits in the stochastic units; without these "
            f"{alone.valid_nats:.3f} nats"
        ]
        # What a user may want to change.
        if self.is_cut:
            lines.append(
                "the choice ended when its steps were spent, before all was tried: the best so far was taken; more "
                "steps (--search_total_steps, 0 for no limit) may find a better one"
            )
        if bits * best.kl_nats < 1.0:
            lines.append(
                "the stochastic units carry less than a bit a row: these columns need none; compare with --hidden="
            )
        return lines


def choose(
    x: ArrayLike,
    valid: ArrayLike,
    *,
    seed: Seed = 0,
    search: SearchConfig = SearchConfig(),
    batch_size: int = 100,
    model: Mapping[str, Any] | None = None,
    training: Mapping[str, object] | None = None,
    report: Callable[[str], None] = lambda line: None,
    folder: Path | None = None,
    look: Callable[[], None] = lambda: None,
) -> Choice:
    """Choose stochastic units, tanh units, learning rate and weight decay by the description length of `valid`.

    :param x: training rows [N, n_x], zeros and ones.
    :param valid: validation rows [N', n_x].
    :param seed: of candidates, initial weights, minibatches and noise; the same gives the same choice.
    :param model: fields of `DARNConfig` that are given; `hidden` and `units` among them are not chosen then.
    :param training: fields of `TrainingConfig` that are given, likewise.
    :param report: gets a line of text for each round.
    :param folder: where candidates are kept on the way: a search that was interrupted goes on, and chooses the same. It
        may be deleted afterwards.
    :param look: is called after each evaluation; what it raises interrupts the search.
    :raises ValueError: for rows that are not zeros and ones, of different widths, a field that is wrong, or the folder
        of another search.
    """
    # What is given, what is to be chosen, and the candidates drawn.
    x = np.asarray(x)
    model = dict(model or {})
    training = dict(training or {})
    model |= {name: as_sizes(model[name]) for name in ("hidden", "units") if model.get(name) is not None}
    spaces = value_spaces(model, training)
    drawn = draw_candidates(search.candidates or _CANDIDATES, seed, spaces)
    budget = Budget(_TOTAL_STEPS if search.search_total_steps is None else search.search_total_steps)
    maker = Maker(x, np.asarray(valid), as_seed(seed), batch_size, model, training, folder, budget, look)
    # All that may be wrong is said before anything is trained.
    check_data(x, DARNConfig(np.shape(x)[-1] if np.ndim(x) else 1), "x")
    check_data(valid, DARNConfig(x.shape[1]), "valid")
    for candidate in (drawn[0], _without_units(drawn[0])):
        maker.course(candidate)  # what does not fit is said before anything is trained
    if claim(maker, dataclasses.asdict(search)):
        report(f"continuing the search in {folder}")
    # Successive halving, then neighbours of the best one.
    trials = _halve(maker, _rivals(maker, "drawn", drawn), search, report, is_first=True)
    for number in itertools.count(1) if search.neighbours else ():
        leader = trials[0]
        if not math.isfinite(leader.valid_nats):
            break
        known_candidates = {trial.candidate for trial in trials if trial.is_done}
        near = [candidate for candidate in neighbours(leader.candidate, spaces) if candidate not in known_candidates]
        more = _halve(maker, _rivals(maker, f"near-{number}", near), search, report)
        trials = sorted([*trials, *more], key=lambda trial: trial.valid_nats)
        # A value at the end of its space says little: as long as values beyond it are better, the next one is tried.
        if budget.has_cut or trials[0] is leader or not is_beyond(trials[0].candidate, spaces):
            break
    if not math.isfinite(trials[0].valid_nats):
        raise FloatingPointError("training diverged for all candidates; give a smaller learning rate.")
    # The learning rate of the best one falls to 0.
    if search.falling and not given(training).keys() & {"cosine", "half_life"}:
        trials = _fall(maker, trials, spaces["weight_decay"], search, report)
    best = trials[0].candidate
    if budget.has_cut:
        report(f"{budget.spent} steps are spent (search_total_steps): the best candidate so far is taken")
    # Its rival without stochastic units.
    alone = Rival(maker, _without_units(best), "alone")
    until, patience = (search.search_steps, search.search_patience) if best.cosine is None else (best.cosine, None)
    alone.advance(until, patience, is_last=True)
    last = alone.trial(1, is_done=alone.is_done(until, patience))
    return Choice(maker.model(best), maker.training(best), tuple(trials), last, budget.has_cut)


def stored_choice(path: Path, make: Callable[[Path], Choice]) -> Choice:
    """The choice in a JSON file; made and written if there is no such file.

    :param make: makes it; gets a folder beside the file for what is known on the way, which is deleted in the end.
    :raises ValueError: if the file holds something else.
    """
    # What the search kept on its way is of no use beside its result.
    folder = path.with_suffix(".search")
    if not path.exists():
        text = json.dumps(make(folder).to_json(), indent=1)
        write_text(path, text)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        return Choice.from_json(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{path} holds no choice of a model ({error}); delete it to choose anew.") from error


def _without_units(candidate: Candidate) -> Candidate:
    return dataclasses.replace(candidate, hidden=NONE, units=NONE)


def _rivals(maker: Maker, stage: str, candidates: Sequence[Candidate]) -> list[Rival]:
    return [Rival(maker, candidate, f"{stage}-{number}") for number, candidate in enumerate(candidates)]


def _halve(
    maker: Maker, rivals: list[Rival], search: SearchConfig, report: Callable[[str], None], *, is_first: bool = False
) -> list[Trial]:
    """Successive halving: a trial of each candidate that was started, the best first."""
    trials = list[Trial]()
    patience = search.search_patience
    steps = search.first_steps(len(maker.x), maker.batch_size)
    for number in itertools.count(1):
        is_last = len(rivals) <= 2 or steps >= search.search_steps
        until = search.search_steps if is_last else steps
        # All candidates go on to the same step.
        for i, rival in enumerate(rivals):
            rival.advance(until, patience, is_first=is_first and number == 1 and i == 0)
        is_cut = not all(rival.is_done(until, patience) for rival in rivals)
        rivals = sorted((rival for rival in rivals if rival.is_started), key=lambda rival: rival.value(until))
        if not rivals:
            break
        best = rivals[0]
        report(f"round {number}: {len(rivals)} candidates, the best {best.value(until):.3f} nats: {best.candidate}")
        # The best of them stay, and get as many times more steps as there are fewer of them.
        survivors = [] if is_last or is_cut else rivals[: max(2, round(len(rivals) / _FACTOR))]
        out = rivals[len(survivors) :]
        trials += [rival.trial(number, is_done=is_last and rival.is_done(until, patience)) for rival in out]
        rivals = survivors
        steps = steps * _FACTOR
    return sorted(trials, key=lambda trial: trial.valid_nats)


def _fall(
    maker: Maker, trials: list[Trial], decays: Sequence[float], search: SearchConfig, report: Callable[[str], None]
) -> list[Trial]:
    """The trials, with those in which the learning rate of the best falls to 0; the best first."""
    start = trials[0]
    interval = evaluation_interval(len(maker.x), maker.batch_size)
    # The fall ends at twice the best step; then later, as long as that is better.
    steps = 2 * start.best_step
    most = 2 * search.search_steps
    stronger = [
        decay for decay in extended(decays, start.candidate.weight_decay) if decay > start.candidate.weight_decay
    ]
    tried = [start.candidate.weight_decay, *stronger[:1]]
    while steps:
        cosine = -(-min(steps, most) // interval) * interval
        best = trials[0]
        # With the same weight decay, and with the next stronger one.
        for decay in tried:
            candidate = dataclasses.replace(start.candidate, weight_decay=decay, cosine=cosine)
            rival = Rival(maker, candidate, f"falling-{cosine}-{decay:g}")
            rival.advance(cosine, None)
            if rival.is_started:
                trials.append(rival.trial(1, is_done=rival.is_done(cosine, None)))
        trials.sort(key=lambda trial: trial.valid_nats)
        leader = trials[0]
        if maker.budget.has_cut:
            break
        report(
            f"learning rate falling to 0 at step {cosine}: the best {leader.valid_nats:.3f} nats: {leader.candidate}"
        )
        steps = min(2 * steps, most)
        if leader is best or steps < 1.5 * cosine:
            break
        tried = [leader.candidate.weight_decay]
    return trials


def _flat(trial: Trial) -> dict[str, Any]:
    # JSON has no infinity: training that diverged has no value.
    fields = dataclasses.asdict(trial)
    value = fields["valid_nats"]
    return {**fields.pop("candidate"), **fields, "valid_nats": value if math.isfinite(value) else None}


def _trial(flat: Mapping[str, Any]) -> Trial:
    values = {field.name: flat[field.name] for field in dataclasses.fields(Candidate)}
    sizes = {name: tuple(v) if isinstance(v := values[name], list) else v for name in ("hidden", "units")}
    rest = {field.name: flat[field.name] for field in dataclasses.fields(Trial) if field.name != "candidate"}
    value = rest["valid_nats"]
    return Trial(Candidate(**{**values, **sizes}), **{**rest, "valid_nats": math.inf if value is None else value})
