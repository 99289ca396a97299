"""A choice in a folder: what was chosen, and the models as they were then, for whoever trains on, or again.

    begun = stored_choice(run_dir / "choice", lambda: begin_chosen(config, FREE, X, Y), config, TrainingConfig())

choice.json has what `Choice.to_json` says, with the rate and the minibatch of the training to come; it is written last.
model/ and single/ are what `Predictor.save` writes. What is read is what was written, in every bit of the models.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_deep_base.files import make_folder, write_text

from ...model.deep_gp import DeepGP
from ..config import ModelConfig
from ..course import Course, TrainingConfig
from ..predictor import Predictor
from .choice import Choice
from .selection import Begun

__all__ = ["FoundTrainer", "is_stored", "stored_choice"]

FILE = "choice.json"
MODEL = "model"
SINGLE = "single"


def is_stored(folder: Path) -> bool:
    """Whether a folder holds a choice."""
    return (folder / FILE).exists()


def stored_choice(folder: Path, make: Callable[[], Begun], config: ModelConfig, training: TrainingConfig) -> Begun:
    """What a folder holds; made and written if it holds none.

    :param config: of all that was not chosen.
    :param training: likewise.
    :raises ValueError: if the folder holds something else.
    """
    # Also what was made just now is read, so that both are the same.
    if not is_stored(folder):
        _write(folder, make())
    try:
        stored: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return Begun(
            Choice.from_json(stored["choice"], config),
            Predictor.load(folder / MODEL) if stored["has_model"] else None,
            bool(stored["is_finished"]),
            Predictor.load(folder / SINGLE) if stored["has_single"] else None,
            dataclasses.replace(training, learning_rate=stored["learning_rate"]),
            int(stored["batch_size"]),
            float(stored["single_seconds"]),
        )
    except KeyError as error:
        raise ValueError(
            f"{folder / FILE} does not say {error.args[0]!r}, as another version wrote it; continue the run with that "
            "version, or give a new --run_dir."
        ) from error
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{folder} holds no choice of a model ({error}); give a new --run_dir.") from error


def _write(folder: Path, begun: Begun) -> None:
    # The models first: choice.json says that all is there.
    models = {MODEL: begun.model, SINGLE: begun.single}
    for name, predictor in models.items():
        if predictor is not None:
            make_folder(folder / name)
            predictor.save(folder / name)
    stored = {
        "choice": begun.choice.to_json(),
        "has_model": begun.model is not None,
        "has_single": begun.single is not None,
        "is_finished": begun.is_finished,
        "learning_rate": begun.training.learning_rate,
        "batch_size": begun.batch_size,
        "single_seconds": begun.single_seconds,
    }
    make_folder(folder)
    write_text(folder / FILE, json.dumps(stored, indent=1) + "\n")


class FoundTrainer:
    """A model that is trained already, with the members of a `Trainer`: a single step changes nothing.

    :param model: what the search found.
    :param data: training rows X [N, D] and Y [N, P] in the units of the model.
    :param seconds: that the search took.
    """

    course: Course | None = None
    max_steps = 1
    is_settled = True

    def __init__(self, model: DeepGP, data: tuple[np.ndarray, np.ndarray], *, seconds: float) -> None:
        self.model = model
        self.seconds = tf.Variable(seconds, dtype=tf.float64)
        self._bound = float(model.elbo(tuple(map(tf.constant, data))))

    def advance(self, *_: object) -> tf.Tensor:
        """Nothing; the bound, [], nats. Arguments as of `Trainer.advance`."""
        return tf.constant(self._bound, tf.float64)

    def is_done(self, step: int) -> bool:
        """Whether so many steps are all that have to be made."""
        return step >= self.max_steps

    def scalars(self) -> dict[str, float]:
        """The bound in nats, and the seconds of the search."""
        return {"train/elbo_nats": self._bound, "train/seconds": float(np.asarray(self.seconds))}

    def state(self) -> dict[str, object]:
        """All that changes, by name, for a checkpoint."""
        return {"model": self.model, "seconds": self.seconds}
