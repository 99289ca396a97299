"""A training of two small variables with noise: all that a run needs, at a few microseconds a step; clock, workers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_runs.run import Fitted, Run, Settings, lowest, open_run

FLAGS = "--batch_size=5\n--nofloat32\n--seed=0\n"


@dataclass(frozen=True)
class Data:
    """What a run says about its data."""

    name: str = "toy"
    source: str = "made up"
    sha256: str = "abc"
    sizes: Mapping[str, int] = field(default_factory=lambda: {"train": 5})
    schema: Any = None


class Toy:
    """Noisy gradient descent with momentum on |position - 3|^2 / 2, of which each step has its own noise."""

    def __init__(self) -> None:
        self.position = tf.Variable(tf.zeros([3], tf.float64))
        self.velocity = tf.Variable(tf.zeros([3], tf.float64))
        self.calls: list[tuple[int, int]] = []

    @property
    def objects(self) -> dict[str, Any]:
        return {"position": self.position, "velocity": self.velocity}

    def advance(self, first: int, count: int) -> float:
        """Make the steps; return the loss before the last of them."""
        self.calls.append((first, count))
        loss = 0.0
        for step in range(first, first + count):
            noise = numpy_rng(0, f"noise/{step}").normal(size=3)
            loss = float(tf.reduce_sum((self.position - 3.0) ** 2)) / 2
            self.velocity.assign(0.9 * self.velocity - 0.1 * (self.position - 3.0 + noise))
            self.position.assign_add(self.velocity)
        return loss

    def scalars(self, loss: float) -> dict[str, float]:
        return {"train/loss": loss}

    def evaluate(self, step: int) -> dict[str, float]:
        return {"valid/distance": float(tf.norm(self.position - 3.0))}

    def bits(self) -> list[bytes]:
        """Every bit of the state."""
        return [variable.numpy().tobytes() for variable in (self.position, self.velocity)]


def settings(run_dir: Path, **changes: Any) -> Settings:
    every = {"log_every": 1, "eval_every": 2, "checkpoint_every": 2}
    return Settings(**{"run_dir": str(run_dir), "num_steps": 6, "progress": False, **every, **changes})


def train(
    run_dir: Path,
    *,
    toy: Toy | None = None,
    advance: Callable[[int, int], float] | None = None,
    child: str | None = None,
    finish: bool = False,
    flags: str = FLAGS,
    options: Mapping[str, Any] | None = None,
    **changes: Any,
) -> tuple[Toy, Fitted]:
    """A run of the toy from the beginning, or with `resume=True` from its newest checkpoint.

    :param advance: in place of that of the toy.
    :param child: name of a run within the run, which is trained in its place.
    :param options: for `Run.fit`. :param changes: of the settings.
    """
    toy = toy or Toy()

    def keep(path: Path) -> None:
        np.savez(path, position=toy.position.numpy())

    with open_run(settings(run_dir, **changes), flags, Data()) as opened:
        run = opened if child is None else opened.child(child)
        fitted = fit(run, toy, advance=advance or toy.advance, **{"keep": keep, **(options or {})})
        if finish:
            distance = toy.evaluate(0)["valid/distance"]
            text = f"distance {fitted.best.value}"
            run.finish({"test": {"distance": distance}}, text=text, metrics={"rmse": distance})
    return toy, fitted


def fit(run: Run, toy: Toy, **options: Any) -> Fitted:
    given = {
        "advance": toy.advance,
        "state": lambda: toy.objects,
        "scalars": toy.scalars,
        "evaluate": toy.evaluate,
        "rule": lowest("valid/distance"),
    }
    return run.fit(**{**given, **options})


class Clock:
    """Seconds that pass only where a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def two_workers(index: int, num_replicas: int, jobs: dict[str, int]) -> Any:
    """What of a strategy says which of several workers this is, counted with the chief first."""
    spec = SimpleNamespace(as_dict=lambda: jobs, num_tasks=lambda job: jobs[job], jobs=list(jobs))
    names = [(job, i) for job in jobs for i in range(jobs[job])]
    resolver = SimpleNamespace(cluster_spec=lambda: spec, task_type=names[index][0], task_id=names[index][1])
    return SimpleNamespace(cluster_resolver=resolver, num_replicas_in_sync=num_replicas)
