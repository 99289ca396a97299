"""Architecture and learning rate by validation rows, as the paper chose them (Gregor et al., 2014, Section 5.1).

    choice = choose(x, x_valid, seed=0)
    choice.model, choice.training           # DARNConfig and TrainingConfig, to train with early stopping
    choice.to_json()                        # what was tried, with the validation nats of each

The paper tried 100 to 500 tanh units, 8 to 256 stochastic units with an autoregressive prior, an autoregressive
decoder, and three learning rates of RMSProp. Here candidates are drawn from these, with higher rates and weight decay
beside, and go through successive halving (Jamieson and Talwalkar, 2016): all train for a few epochs, the best third
goes on for three times as many steps, and so on; whoever is left trains until validation rows say stop. Then the
neighbours of the best, which differ from it in one value, do the same.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from darn.candidates import OPTIMIZER, Candidate, as_sizes, draw_candidates, neighbours, value_spaces
from darn.fitting import Course, evaluation_interval
from darn.model import DARN, DARNConfig, check_data
from darn.optimization import TrainingConfig
from darn.seeds import Seed, as_seed
from darn.serialization import write_whole
from darn.training import Trainer

__all__ = ["Choice", "SearchConfig", "Trial", "choose", "stored_choice"]

_FACTOR = 3  # of candidates that are left out, and of steps


@dataclass(frozen=True)
class SearchConfig:
    """How to choose.

    :param candidates: how many candidates to begin with.
    :param search_epochs: epochs after which the first candidates are left out; at least 500 steps, at most 1,500.
    :param search_steps: most steps of a candidate.
    :param search_patience: evaluations in a row without improvement after which a candidate stops.
    :param neighbours: also try what differs from the best candidate in one value.
    :raises ValueError: naming the field that is wrong.
    """

    candidates: int = 18
    search_epochs: int = 5
    search_steps: int = 20_000
    search_patience: int = 10
    neighbours: bool = True

    def __post_init__(self) -> None:
        for name in ("candidates", "search_epochs", "search_steps", "search_patience"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")

    def first_steps(self, num_rows: int, batch_size: int) -> int:
        """Steps of the first round, a multiple of the evaluation interval."""
        interval = evaluation_interval(num_rows, batch_size)
        wanted = min(max(self.search_epochs * -(-num_rows // batch_size), 500), 1500, self.search_steps)
        return -(-wanted // interval) * interval


@dataclass(frozen=True)
class Trial:
    """What a candidate reached.

    :ivar round: in which it was left out, from 1. :ivar is_done: not left out, but trained to the end.
    :ivar steps: that it made. :ivar best_step: of its best evaluation.
    :ivar valid_nats: description length of the validation rows there; infinite if training diverged.
    :ivar kl_nats: of it, what the stochastic units carry: E[log q(h | x) - log p(h)].
    """

    candidate: Candidate
    round: int
    is_done: bool
    steps: int
    best_step: int
    valid_nats: float
    kl_nats: float


@dataclass(frozen=True)
class Choice:
    """The best candidate, as configurations, and all trials from the best to the worst.

    :ivar alone: the trial of the same decoder without stochastic units, which shows what these are good for.
    """

    model: DARNConfig
    training: TrainingConfig
    trials: tuple[Trial, ...]
    alone: Trial

    def to_json(self) -> dict[str, Any]:
        """The configurations, and chosen and rejected candidates with their scores, as JSON has them."""
        chosen, *rejected = [_flat(trial) for trial in self.trials]
        configs = {"model": json.loads(self.model.to_json()), "training": dataclasses.asdict(self.training)}
        return {**configs, "chosen": chosen, "rejected": rejected, "without_stochastic_units": _flat(self.alone)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Choice:
        """The choice that :meth:`to_json` gave.

        :raises ValueError: if it is something else.
        """
        try:
            trials = tuple(_trial(flat) for flat in (found["chosen"], *found["rejected"]))
            model = DARNConfig.from_json(json.dumps(found["model"]))
            return cls(model, TrainingConfig(**found["training"]), trials, _trial(found["without_stochastic_units"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no choice of a model ({error}).") from error

    def notes(self) -> list[str]:
        """The choice and its rival without stochastic units, as lines of text."""
        best, alone, bits = self.trials[0], self.alone, 1.0 / math.log(2.0)
        of, sizes = best.candidate, (self.model.hidden, self.model.units)
        hidden, units = (", ".join(map(str, numbers)) for numbers in sizes)
        lines = [
            f"chosen of {len(self.trials)} on the validation rows: {hidden} stochastic and {units} deterministic "
            f"units, learning rate {of.learning_rate:g}, weight decay {of.weight_decay:g}: {best.valid_nats:.3f} nats, "
            f"{bits * best.kl_nats:.2f} bits in the stochastic units; without these {alone.valid_nats:.3f} nats"
        ]
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
    training: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Choice:
    """Choose stochastic units, tanh units, learning rate and weight decay by the description length of `valid`.

    :param x: training rows [N, n_x], zeros and ones. :param valid: validation rows [N', n_x].
    :param seed: of candidates, initial weights, minibatches and noise; the same gives the same choice.
    :param model: fields of `DARNConfig` that are given; `hidden` and `units` among them are not chosen then.
    :param training: fields of `TrainingConfig` that are given, likewise.
    :param report: gets a line of text for each round.
    :raises ValueError: for rows that are not zeros and ones, of different widths, or a field that is wrong.
    """
    x, model, training = np.asarray(x), dict(model or {}), dict(training or {})
    check_data(x, DARNConfig(np.shape(x)[-1] if np.ndim(x) else 1, **_without(model, "hidden", "units")), "x")
    maker = _Maker(x, check_data(valid, DARNConfig(x.shape[1]), "valid"), as_seed(seed), batch_size, model, training)
    spaces = value_spaces(model, training)
    trials = _halve(maker, draw_candidates(search.candidates, seed, spaces), search, report)
    if search.neighbours and math.isfinite(trials[0].valid_nats):
        known = {trial.candidate for trial in trials if trial.is_done}
        near = [candidate for candidate in neighbours(trials[0].candidate, spaces) if candidate not in known]
        trials = sorted([*trials, *_halve(maker, near, search, report)], key=lambda trial: trial.valid_nats)
    if not math.isfinite(trials[0].valid_nats):
        raise FloatingPointError("training diverged for all candidates; give a smaller learning rate.")
    best = trials[0].candidate
    alone = maker.rival(dataclasses.replace(best, hidden=0, units=0))
    alone.advance(search.search_steps, search.search_patience)
    return Choice(maker.model(best), maker.training(best), tuple(trials), alone.trial(1, is_done=True))


def stored_choice(path: Path, make: Callable[[], Choice]) -> Choice:
    """The choice in a JSON file; made and written if there is no such file.

    :raises ValueError: if the file holds something else.
    """
    if not path.exists():
        text = json.dumps(make().to_json(), indent=1)
        write_whole(path, lambda stream: stream.write(text.encode()))
    return Choice.from_json(json.loads(path.read_text(encoding="utf-8")))


def _halve(
    maker: _Maker, candidates: Sequence[Candidate], search: SearchConfig, report: Callable[[str], None]
) -> list[Trial]:
    """Successive halving: a trial of each candidate, the best first."""
    rivals, trials = [maker.rival(candidate) for candidate in candidates], list[Trial]()
    steps = search.first_steps(len(maker.x), maker.batch_size)
    for number in itertools.count(1):
        if not rivals:
            break
        is_last = len(rivals) <= 2 or steps >= search.search_steps
        for rival in rivals:
            rival.advance(search.search_steps if is_last else steps, search.search_patience)
        rivals.sort(key=lambda rival: rival.value)
        report(f"round {number}: {len(rivals)} candidates, the best {rivals[0].value:.3f} nats: {rivals[0].candidate}")
        left = [] if is_last else rivals[: max(2, round(len(rivals) / _FACTOR))]
        trials += [rival.trial(number, is_done=is_last) for rival in rivals[len(left) :]]
        rivals, steps = left, steps * _FACTOR
    return sorted(trials, key=lambda trial: trial.valid_nats)


def _without(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names and value is not None}


@dataclass(frozen=True)
class _Maker:
    """Makes what a candidate is trained with."""

    x: Any
    valid: Any
    seed: tf.Tensor
    batch_size: int
    given: dict[str, Any]
    given_training: dict[str, Any]

    @functools.cached_property
    def rows(self) -> tf.Tensor:
        """`x` as a tensor, which all share."""
        return tf.constant(self.x)

    def model(self, candidate: Candidate) -> DARNConfig:
        fields = _without(self.given, "hidden", "units")
        hidden, units = as_sizes(candidate.hidden), as_sizes(candidate.units)
        if not hidden:
            fields = _without(fields, "prior", "encoder", "skip")
        return DARNConfig(visible=self.x.shape[1], hidden=hidden, units=units, **fields)

    def training(self, candidate: Candidate) -> TrainingConfig:
        fields = {**OPTIMIZER, **_without(self.given_training)}
        fields |= {"learning_rate": candidate.learning_rate, "weight_decay": candidate.weight_decay}
        return TrainingConfig(**fields)

    def rival(self, candidate: Candidate) -> _Rival:
        return _Rival(self, candidate)


class _Rival:
    """A candidate in training."""

    def __init__(self, maker: _Maker, candidate: Candidate) -> None:
        self.candidate, self._maker = candidate, maker
        self._course: Course | None = None
        self._diverged = False

    @property
    def value(self) -> float:
        return self._course.best_value if self._course and not self._diverged else math.inf

    def advance(self, until: int, patience: int) -> None:
        """As :meth:`Course.advance`; a candidate that diverges is out."""
        maker = self._maker
        if self._course is None:
            init, other = tf.unstack(tf.random.experimental.stateless_split(maker.seed, 2))
            model = DARN(maker.model(self.candidate), seed=init, data=maker.x)
            trainer = Trainer(model, maker.training(self.candidate), num_data=len(maker.x))
            self._course = Course(trainer, maker.rows, maker.valid, seed=other, batch_size=maker.batch_size)
        try:
            if not self._diverged:
                self._course.advance(until, patience)
        except FloatingPointError:
            self._diverged = True

    def trial(self, number: int, *, is_done: bool) -> Trial:
        """What it reached when it was left out in round `number`; its trainer is given up."""
        course, value = self._course, self.value
        self._course = None
        assert course is not None
        return Trial(self.candidate, number, is_done, course.step, course.best_step, value, course.best_kl)


def _flat(trial: Trial) -> dict[str, Any]:
    fields = dataclasses.asdict(trial)
    value = fields["valid_nats"]
    return {**fields.pop("candidate"), **fields, "valid_nats": value if math.isfinite(value) else None}


def _trial(flat: Mapping[str, Any]) -> Trial:
    own = {field.name: flat[field.name] for field in dataclasses.fields(Candidate)}
    sizes = {name: tuple(v) if isinstance(v := own[name], list) else v for name in ("hidden", "units")}
    rest = {field.name: flat[field.name] for field in dataclasses.fields(Trial) if field.name != "candidate"}
    value = rest["valid_nats"]
    return Trial(Candidate(**{**own, **sizes}), **{**rest, "valid_nats": math.inf if value is None else value})
