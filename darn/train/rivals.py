"""Candidates of a selection in training. What each has reached can be kept in a folder, so that a selection which was
interrupted goes on where it was, to the same bits.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from darn.model.config import used_fields
from darn.model.model import DARN, DARNConfig
from darn.train.optimization import TrainingConfig
from darn.train.training import Course, Trainer
from gpflow_deep_base.files import atomic_path, write_text
from gpflow_deep_base.numbers.groups import by_group
from gpflow_deep_base.seeds import Seed, as_seed
from gpflow_deep_base.storage.container import read_npz

__all__ = [
    "HIDDEN",
    "NONE",
    "OPTIMIZER",
    "RATES",
    "UNITS",
    "WEIGHT_DECAYS",
    "Budget",
    "Candidate",
    "Maker",
    "Rival",
    "Spaces",
    "Trial",
    "as_sizes",
    "claim",
    "draw_candidates",
    "extended",
    "given",
    "is_beyond",
    "neighbours",
    "value_spaces",
]

#: Stochastic units, tanh units and RMSProp's rates to choose among; the paper's 1e-5 needs too many steps.
HIDDEN = (8, 12, 16, 32, 64, 128, 256)
UNITS = (100, 200, 300, 400, 500)
RATES = (6.75e-5, 2.5e-4, 1e-3, 3e-3)
WEIGHT_DECAYS = (0.0, 0.1, 0.3, 1.0, 3.0)

#: Of all candidates: the paper's RMSProp; validation rows see a running average of the parameters.
OPTIMIZER: Mapping[str, Any] = {"optimizer": "rmsprop", "average": 0.999}

NONE = 0
"""In place of `Candidate.hidden` and `units`: the rival of the best that has no stochastic units."""

Spaces: TypeAlias = Mapping[str, Sequence[Any]]
"""Values of each field of a candidate, in order."""


@dataclass(frozen=True)
class Candidate:
    """What is chosen: stochastic units of one layer (`NONE` for none), tanh units, learning rate and weight decay.

    `hidden` and `units` are what was given, one number a layer, where they are not chosen. `cosine` is the step at
    which the learning rate has fallen to 0, if it does.
    """

    hidden: int | tuple[int, ...]
    units: int | tuple[int, ...]
    learning_rate: float
    weight_decay: float
    cosine: int | None = None


def draw_candidates(number: int, seed: Seed, spaces: Spaces | None = None) -> list[Candidate]:
    """Different candidates in which each value of a field is as frequent as the others, but for one.

    :param spaces: values of each field, in order; all that there are if not given.
    """
    rng = np.random.default_rng(as_seed(seed).numpy().astype(np.uint32))
    spaces = spaces or value_spaces()
    number = min(number, math.prod(len(values) for values in spaces.values()))
    candidates: dict[Candidate, None] = {}
    # Each value as often as the others, in random pairs; candidates that are drawn twice count once.
    while len(candidates) < number:
        columns = [_dealt(values, number, rng) for values in spaces.values()]
        candidates |= dict.fromkeys(Candidate(*row) for row in zip(*columns, strict=True))
    return list(candidates)[:number]


def neighbours(of: Candidate, spaces: Spaces) -> list[Candidate]:
    """Candidates that differ in one field, by the next lower or the next higher value: that beyond the end of a space
    for a value at its end."""
    near = []
    for name, values in spaces.items():
        value = getattr(of, name)
        steps = extended(values, value)
        place = steps.index(value)
        near += [dataclasses.replace(of, **{name: steps[i]}) for i in (place - 1, place + 1) if 0 <= i < len(steps)]
    return near


def extended(values: Sequence[Any], value: Any) -> list[Any]:
    """The values of a field and `value`, in order, with one more at each end, as far from it as the next one by its
    ratio. There is none beyond 0, and nothing is added to a field that is not chosen."""
    # A field that is given has one value.
    if len(values) == 1:
        return list(values)
    # The next value by the ratio of the last two: a^2 / b lies as far from a as a from b.
    steps = sorted({*values, value})
    first, last = ((a * a / b) if b else 0 for a, b in ((steps[0], steps[1]), (steps[-1], steps[-2])))
    if isinstance(steps[0], int):
        first, last = (round(end) for end in (first, last))
    return [*([first] if 0 < first < steps[0] else []), *steps, *([last] if last > steps[-1] else [])]


def is_beyond(of: Candidate, spaces: Spaces) -> bool:
    """Whether a value lies beyond the ends of its space."""
    return any(getattr(of, name) not in values for name, values in spaces.items())


def value_spaces(model: Mapping[str, object] | None = None, training: Mapping[str, object] | None = None) -> Spaces:
    """Values of each field of a candidate: those to choose among, or the given one. No layers have no units."""
    hidden = _values(model, "hidden", HIDDEN)
    return {
        "hidden": hidden,
        "units": _values(model, "units", ((),) if tuple(hidden) == ((),) else UNITS),
        "learning_rate": _values(training, "learning_rate", RATES),
        "weight_decay": _values(training, "weight_decay", WEIGHT_DECAYS),
    }


def as_sizes(number: int | Sequence[int] | None) -> tuple[int, ...]:
    """Numbers of units of layers, given as one number or several; None and 0 are no layers. They are not checked."""
    if number is None or (isinstance(number, int) and number == 0):
        return ()
    return tuple(np.ravel(number).tolist())


def _dealt(values: Sequence[object], number: int, rng: np.random.Generator) -> list[Any]:
    """`number` of the values in a random order, each as often as the others, but for one."""
    # Whole decks of the values, shuffled together, of which the first are taken.
    order = rng.permutation(-(-number // len(values)) * len(values)) % len(values)
    return [values[i] for i in order[:number]]


def _values(given: Mapping[str, object] | None, name: str, values: Sequence[object]) -> Sequence[Any]:
    value = (given or {}).get(name)
    return values if value is None else (value,)


_STORE_SECONDS = 60.0  # at most about so much of a candidate's training is lost
_OF_UNITS = ("estimator", "entropy", "num_samples", "sparsity", "sparsity_weight")  # stochastic ones
_FOR_THE_LAST = 0.2  # of the steps of a search: for the rival without stochastic units


@dataclass(frozen=True)
class Trial:
    """What a candidate reached.

    :ivar round: in which it was left out, from 1.
    :ivar is_done: not left out, but trained to the end.
    :ivar steps: that it made.
    :ivar best_step: of its best evaluation.
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


def given(fields: Mapping[str, object], *without: str) -> dict[str, Any]:
    """The fields that are not None, but for some."""
    return {name: value for name, value in fields.items() if name not in without and value is not None}


class Budget:
    """Training steps that a search may make, of all its candidates together. Counting steps and not seconds, a search
    chooses the same on a busy machine, and after it was interrupted.

    :ivar spent: steps made.
    :ivar has_cut: whether a candidate was not trained as far as it should have been, because they were spent.

    :param limit: most steps; 0: as many as it takes.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit or math.inf
        self.spent = 0
        self.has_cut = False

    def is_spent(self, *, is_last: bool = False) -> bool:
        """Whether no more should be trained. The last rival has all steps, others before it four fifths of them."""
        return self.spent >= self._limit * (1.0 if is_last else 1.0 - _FOR_THE_LAST)


@dataclass(frozen=True)
class Maker:
    """Makes what a candidate is trained with.

    :ivar x: training rows.
    :ivar valid: validation rows.
    :ivar fields: of `DARNConfig` that are given.
    :ivar training_fields: of `TrainingConfig`, likewise.
    :ivar folder: where rivals are kept; None: nowhere.
    :ivar budget: of the search.
    :ivar look: is called after each evaluation, when all is kept that it may interrupt.
    """

    x: NDArray
    valid: NDArray
    seed: tf.Tensor
    batch_size: int
    fields: dict[str, Any]
    training_fields: dict[str, Any]
    folder: Path | None = None
    budget: Budget = dataclasses.field(default_factory=Budget)
    look: Callable[[], None] = lambda: None

    @functools.cached_property
    def rows(self) -> tf.Tensor:
        """`x` as a tensor, which all share."""
        return tf.constant(self.x)

    def model(self, candidate: Candidate) -> DARNConfig:
        """What the candidate's model is made of."""
        fields = {"visible": self.x.shape[1], **given(self.fields)}
        fields |= {"hidden": as_sizes(candidate.hidden), "units": as_sizes(candidate.units)}
        return DARNConfig(**(used_fields(fields) if candidate.hidden == NONE else fields))

    def training(self, candidate: Candidate) -> TrainingConfig:
        """How the candidate is trained."""
        # What is given, then what the candidate says; the rival without units has no estimator.
        fields = {**OPTIMIZER, **given(self.training_fields)}
        fields |= {"learning_rate": candidate.learning_rate, "weight_decay": candidate.weight_decay}
        if candidate.cosine is not None:
            fields["cosine"] = candidate.cosine
        fields = given(fields, *_OF_UNITS) if candidate.hidden == NONE else fields
        return TrainingConfig(**by_group(TrainingConfig, fields))

    def course(self, candidate: Candidate) -> Course:
        """The candidate before its first step.

        :raises ValueError: if the given fields do not fit each other or the candidate.
        """
        # All candidates start from one seed, so that they differ by what they are alone.
        init, other = tf.unstack(tf.random.experimental.stateless_split(self.seed, 2))
        model = DARN(self.model(candidate), seed=init, data=self.x)
        trainer = Trainer(model, self.training(candidate), num_data=len(self.x))
        return Course(trainer, self.rows, self.valid, seed=other, batch_size=self.batch_size)


def claim(maker: Maker, search: Mapping[str, object]) -> bool:
    """Make the folder of the rivals, or see that it belongs to this search; whether it was there.

    :param search: its settings.
    :raises ValueError: if it belongs to another one.
    """
    if maker.folder is None:
        return False
    # What a search is known by: its rows, its seed and its settings.
    rows = [[*np.shape(part), zlib.crc32(np.ascontiguousarray(part).tobytes())] for part in (maker.x, maker.valid)]
    record = {"rows": rows, "seed": maker.seed.numpy().tolist(), "batch_size": maker.batch_size}
    record |= {"search": dict(search), "model": maker.fields, "training": maker.training_fields}
    text = json.dumps(record, sort_keys=True, indent=1, default=str)
    path = maker.folder / "search.json"
    if not path.exists():
        write_text(path, text)
        return False
    if path.read_text(encoding="utf-8") != text:
        raise ValueError(f"{maker.folder} belongs to a search with other rows or settings; give another folder.")
    return True


class Rival:
    """A candidate in training.

    :param name: of its file in the maker's folder, which is read if it is there.
    """

    def __init__(self, maker: Maker, candidate: Candidate, name: str) -> None:
        self.candidate = candidate
        self._maker = maker
        self._path = None if maker.folder is None else maker.folder / f"{name}.npz"
        self._course: Course | None = None
        self._diverged = False
        self._charged = 0

    def value(self, until: int) -> float:
        """The best evaluation up to step `until`, nats; infinite if training diverged before."""
        course = self._course
        if course is None or (self._diverged and course.step < until):
            return math.inf
        return min((value for step, value in course.values if step <= until), default=math.inf)

    def advance(self, until: int, patience: int | None, *, is_first: bool = False, is_last: bool = False) -> None:
        """As :meth:`Course.advance`, while the budget of the search allows it; a candidate that diverges is out. What
        was done already, before an interruption, counts and is not done again.

        :param is_first: of the search: at least one evaluation is made, as by the last one.
        """
        budget = self._maker.budget
        if budget.is_spent(is_last=is_last) and self._course is None and not (is_first or is_last):
            budget.has_cut = True
            return
        # The candidate goes on from its last step.
        course = self._course = self._course or self._started()
        stored = time.monotonic()
        start = course.step
        self._charge(until)
        while not self.is_done(until, patience):
            # The first and the last candidate make at least one evaluation.
            if budget.is_spent(is_last=is_last) and (course.step or not (is_first or is_last)):
                budget.has_cut = True
                break
            try:
                course.advance(min(course.step + course.interval, until), patience)
            except FloatingPointError:
                self._diverged = True
            self._charge(until)
            # So that an interruption loses about a minute at most.
            if time.monotonic() - stored > _STORE_SECONDS:
                self._store()
                stored = time.monotonic()
            try:
                self._maker.look()
            except BaseException:
                self._store()
                raise
        if course.step > start or self._diverged:
            self._store()

    def _charge(self, until: int) -> None:
        """Count the steps up to `until` that were not counted yet; further ones are of a later round."""
        assert self._course is not None
        steps = min(self._course.step, until)
        self._maker.budget.spent += max(0, steps - self._charged)
        self._charged = max(steps, self._charged)

    @property
    def is_started(self) -> bool:
        """Whether it was evaluated; not if the steps were spent before."""
        return self._course is not None and (self._course.step > 0 or self._diverged)

    def is_done(self, until: int, patience: int | None) -> bool:
        """Whether there is nothing left for :meth:`advance` to do."""
        return self._course is not None and (self._diverged or self._course.is_done(until, patience))

    def trial(self, number: int, *, is_done: bool) -> Trial:
        """What it reached when it was left out in round `number`; its trainer is given up. It must have started."""
        # What it reached stays, the trainer's variables are let go.
        course = self._course
        diverged = self._diverged
        assert course is not None
        self._store(is_whole=False)
        self._course = None
        value = math.inf if diverged else course.best_value
        return Trial(self.candidate, number, is_done, course.step, course.best_step, value, course.best_kl)

    def _started(self) -> Course:
        course = self._maker.course(self.candidate)
        if self._path is not None and self._path.exists():
            try:
                content = read_npz(self._path)
                self._diverged = bool(content["diverged"])
                course.restore(content)
            except (KeyError, ValueError) as error:
                raise ValueError(f"{self._path} cannot be read ({error}); delete its folder to search anew.") from error
        return course

    def _store(self, *, is_whole: bool = True) -> None:
        if self._path is None or self._course is None:
            return
        # The file appears when it is whole, so that an interruption leaves the one before.
        content = {"diverged": np.array(self._diverged), **self._course.stored(is_whole=is_whole)}
        with atomic_path(self._path) as temporary:
            np.savez(temporary, **content)
