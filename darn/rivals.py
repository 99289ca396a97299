"""Candidates of a selection in training. What each has reached can be kept in a folder, so that a selection which was
interrupted goes on where it was, to the same bits.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import time
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from darn.candidates import NONE, OPTIMIZER, Candidate, as_sizes
from darn.config import used_fields
from darn.fitting import Course
from darn.model import DARN, DARNConfig
from darn.optimization import TrainingConfig
from darn.serialization import write_whole
from darn.training import Trainer

__all__ = ["Maker", "Rival", "Trial", "claim", "given"]

_STORE_SECONDS = 60.0  # at most about so much of a candidate's training is lost
_OF_UNITS = ("estimator", "entropy", "num_samples", "sparsity", "sparsity_weight")  # stochastic ones
_INTERVALS = 10  # evaluations between two looks at the clock


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


def given(fields: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """The fields that are not None, but for some."""
    return {name: value for name, value in fields.items() if name not in without and value is not None}


@dataclass(frozen=True)
class Maker:
    """Makes what a candidate is trained with.

    :ivar x: training rows. :ivar valid: validation rows. :ivar fields: of `DARNConfig` that are given. :ivar
        training_fields: of `TrainingConfig`, likewise. :ivar folder: where rivals are kept; None: nowhere.
    """

    x: Any
    valid: Any
    seed: tf.Tensor
    batch_size: int
    fields: dict[str, Any]
    training_fields: dict[str, Any]
    folder: Path | None = None

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
        fields = {**OPTIMIZER, **given(self.training_fields)}
        fields |= {"learning_rate": candidate.learning_rate, "weight_decay": candidate.weight_decay}
        if candidate.cosine is not None:
            fields["cosine"] = candidate.cosine
        return TrainingConfig(**(given(fields, *_OF_UNITS) if candidate.hidden == NONE else fields))

    def course(self, candidate: Candidate) -> Course:
        """The candidate before its first step.

        :raises ValueError: if the given fields do not fit each other or the candidate.
        """
        init, other = tf.unstack(tf.random.experimental.stateless_split(self.seed, 2))
        model = DARN(self.model(candidate), seed=init, data=self.x)
        trainer = Trainer(model, self.training(candidate), num_data=len(self.x))
        return Course(trainer, self.rows, self.valid, seed=other, batch_size=self.batch_size)


def claim(maker: Maker, search: Any) -> bool:
    """Make the folder of the rivals, or see that it belongs to this search; whether it was there.

    :raises ValueError: if it belongs to another one.
    """
    if maker.folder is None:
        return False
    rows = [[*np.shape(part), zlib.crc32(np.ascontiguousarray(part).tobytes())] for part in (maker.x, maker.valid)]
    own = {"rows": rows, "seed": maker.seed.numpy().tolist(), "batch_size": maker.batch_size}
    own |= {"search": dataclasses.asdict(search), "model": maker.fields, "training": maker.training_fields}
    text, path = json.dumps(own, sort_keys=True, indent=1, default=str), maker.folder / "search.json"
    if not path.exists():
        write_whole(path, lambda stream: stream.write(text.encode()))
        return False
    if path.read_text(encoding="utf-8") != text:
        raise ValueError(f"{maker.folder} belongs to a search with other rows or settings; give another folder.")
    return True


class Rival:
    """A candidate in training.

    :param name: of its file in the maker's folder, which is read if it is there.
    """

    def __init__(self, maker: Maker, candidate: Candidate, name: str) -> None:
        self.candidate, self._maker = candidate, maker
        self._path = None if maker.folder is None else maker.folder / f"{name}.npz"
        self._course: Course | None = None
        self._diverged = False

    def value(self, until: int) -> float:
        """The best evaluation up to step `until`, nats; infinite if training diverged before."""
        course = self._course
        if course is None or (self._diverged and course.step < until):
            return math.inf
        return min((value for step, value in course.values if step <= until), default=math.inf)

    def advance(self, until: int, patience: int | None) -> None:
        """As :meth:`Course.advance`; a candidate that diverges is out. What was done already is not done again."""
        course = self._course = self._course or self._started()
        stored, start = time.monotonic(), course.step
        while not (self._diverged or course.is_done(until, patience)):
            try:
                course.advance(min(course.step + _INTERVALS * course.interval, until), patience)
            except FloatingPointError:
                self._diverged = True
            if time.monotonic() - stored > _STORE_SECONDS:
                self._store()
                stored = time.monotonic()
        if course.step > start or self._diverged:
            self._store()

    def trial(self, number: int, *, is_done: bool) -> Trial:
        """What it reached when it was left out in round `number`; its trainer is given up."""
        course, diverged = self._course, self._diverged
        assert course is not None
        self._store(is_whole=False)
        self._course = None
        value = math.inf if diverged else course.best_value
        return Trial(self.candidate, number, is_done, course.step, course.best_step, value, course.best_kl)

    def _started(self) -> Course:
        course = self._maker.course(self.candidate)
        if self._path is not None and self._path.exists():
            try:
                with np.load(self._path, allow_pickle=False) as content:
                    self._diverged = bool(content["diverged"])
                    course.restore(content)
            except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
                raise ValueError(f"{self._path} cannot be read ({error}); delete its folder to search anew.") from error
        return course

    def _store(self, *, is_whole: bool = True) -> None:
        if self._path is None or self._course is None:
            return
        content = {"diverged": np.array(self._diverged), **self._course.stored(is_whole=is_whole)}
        write_whole(self._path, lambda stream: np.savez(stream, **content))
