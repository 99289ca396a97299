"""What was tried before a model was taken, and which one it is: a table that is printed and kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpflow_deep_base.text import aligned, within

from ..config import ModelConfig

__all__ = ["FREE", "Candidate", "Choice"]

FREE = ("num_layers", "num_inducing", "kernel", "likelihood", "posterior")
"""What can be chosen."""


@dataclass(frozen=True)
class Candidate:
    """A line of the table.

    :param name: what was tried.
    :param score: mean log density of held-out or left-out rows, nats per row in the units of the targets; the marginal
        likelihood or bound per row where `error` is None; None if it was not tried.
    :param error: standard error of the score.
    :param cpu_seconds: of the process.
    :param note: what became of it.
    :param gain: over the best before, mean of the paired differences, nats per row; of functions without noise what the
        CRPS is smaller by, in standard deviations of the targets; None where nothing was compared.
    :param gain_error: its standard error; the candidate is taken if the gain is larger.
    """

    name: str
    score: float | None
    error: float | None
    cpu_seconds: float
    note: str = ""
    gain: float | None = None
    gain_error: float | None = None


@dataclass(frozen=True)
class Choice:
    """What was tried and what was taken; printed as a table.

    :param candidates: in the order in which they were tried.
    :param config: the model that was taken.
    :param judged_by: which rows give the scores.
    :param advice: diagnoses in words, each with the argument to try.
    """

    candidates: tuple[Candidate, ...]
    config: ModelConfig
    judged_by: str
    advice: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Plain numbers and words."""
        chosen = {name: getattr(self.config, name) for name in FREE}
        rows = [dataclasses.asdict(candidate) for candidate in self.candidates]
        return {"candidates": rows, "chosen": chosen, "judged_by": self.judged_by, "advice": list(self.advice)}

    @staticmethod
    def from_json(stored: Mapping[str, Any], config: ModelConfig) -> Choice:
        """What `to_json` gave.

        :param config: for all that was not chosen.
        :raises KeyError: if something is missing; or `TypeError` or `ValueError`, if it is something else.
        """
        candidates = tuple(Candidate(**row) for row in stored["candidates"])
        chosen = dataclasses.replace(config, **{name: stored["chosen"][name] for name in FREE})
        return Choice(candidates, chosen, str(stored["judged_by"]), tuple(stored["advice"]))

    def __str__(self) -> str:
        # A line for each candidate, and below them what the scores are and what to try.
        cells = [("candidate", "nats per row", "CPU s", "")]
        for row in self.candidates:
            score = "-" if row.score is None else f"{row.score:.3f}"
            score += "" if row.error is None else f" ± {row.error:.3f}"
            cells.append((row.name, score, f"{row.cpu_seconds:.1f}", row.note))
        table = [aligned(cells, is_text=True), f"nats per row: {self.judged_by}"] if self.candidates else []
        return within("\n".join([*table, *self.advice]))
