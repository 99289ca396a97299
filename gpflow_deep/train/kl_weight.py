"""How much the KL weighs in the objective of deep sigma points, chosen by held-out rows.

No one weight is good for all tables (Jankowiak et al. 2020 choose it so, too): noisy tables of many rows want little of
it, and of some hundred smooth rows a bound says more than any weight does.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_base.files import write_text

from ..posteriors.sigma_points import KL_WEIGHT
from .config import ModelConfig

__all__ = ["KL_WEIGHTS", "KLWeight", "best_kl_weight", "stored_kl_weight"]

#: Candidates.
KL_WEIGHTS = (0.2, 1.0, KL_WEIGHT, 20.0, 100.0)


@dataclasses.dataclass(frozen=True)
class KLWeight:
    """A weight of the KL, chosen by held-out rows.

    :param kl_weight: the chosen one.
    :param scores: mean log density of the held-out rows by weight, nats per row.
    :param gaussian: the same of a Gaussian posterior, trained by a bound.
    :param note: says so if that one is better by more than a standard error; or else None.
    """

    kl_weight: float
    scores: dict[float, float]
    gaussian: float
    note: str | None = None


def best_kl_weight(config: ModelConfig, log_densities: Callable[[ModelConfig], NDArray[np.float64]]) -> KLWeight:
    """The weight with the highest log density; weights around the best so far are tried until none is better.

    :param config: with `posterior="sigma_points"`.
    :param log_densities: trains a model and says the log densities of held-out rows [n], nats.
    """
    log_p: dict[float, NDArray[np.float64]] = {}

    def score(number: int) -> float:
        weight = KL_WEIGHTS[number]
        if weight not in log_p:
            log_p[weight] = log_densities(
                dataclasses.replace(config, points=dataclasses.replace(config.points, kl_weight=weight))
            )
        return float(log_p[weight].mean())

    # From the usual weight to the best of its neighbours, until none is better.
    best = -1
    position = KL_WEIGHTS.index(KL_WEIGHT)
    while position != best:
        best = position
        neighbours = range(max(best - 1, 0), min(best + 2, len(KL_WEIGHTS)))
        position = max(neighbours, key=score)
    weight = KL_WEIGHTS[best]
    # Beside it a Gaussian posterior, trained by a bound.
    plain = log_densities(config.plain(config.num_layers))
    loss = plain - log_p[weight]
    note = None
    if loss.mean() > loss.std() / np.sqrt(len(loss)):
        note = (
            f"posterior=sigma_points has {log_p[weight].mean():.3f} nats per row on {len(plain)} held-out rows with "
            f"its best kl_weight, {weight:g}, and posterior=gaussian {plain.mean():.3f}: use that one for these data."
        )
    scores = {weight: float(values.mean()) for weight, values in sorted(log_p.items())}
    return KLWeight(weight, scores, float(plain.mean()), note)


def stored_kl_weight(path: Path, make: Callable[[], KLWeight]) -> KLWeight:
    """The weight in a JSON file; chosen and written if there is no such file.

    :raises ValueError: if the file holds something else.
    """
    if not path.exists():
        write_text(path, json.dumps(dataclasses.asdict(make()), indent=1))
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        scores = {float(weight): float(score) for weight, score in stored["scores"].items()}
        return KLWeight(float(stored["kl_weight"]), scores, float(stored["gaussian"]), stored["note"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no weight of the KL: {error!r}; delete it to choose one anew.") from error
