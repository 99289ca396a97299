"""The evidence for an RBM: log-likelihoods by the tracked log Z, by AIS, and exactly; which evaluation is the best.

    evaluate(trainer, {"train": X, "valid": X_valid})                                    # at an evaluation
    found = final(trainer.state, trainer.saved(), {"train": X, "test": X_test}, seeds)
    found["tracked"]["test_log_likelihood_nats"], found["ais"]["three_sigma_nats"]

Everything is a pure function of a state, rows and seeds. `seeds` gives the seed, int32 [2], of the stream of a name.
Log-likelihoods are means over rows, in nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from rbm_tracking import ais, exact
from rbm_tracking.learning import SMLConfig, SMLState, log_likelihoods
from rbm_tracking.rbm import RBM, base_rate_biases, log_prob_unnormalised
from rbm_tracking.serialization import SavedRBM
from rbm_tracking.tempering import sample
from rbm_tracking.tracker import TRAILS, flag_names
from rbm_tracking.training import Trainer

__all__ = [
    "Choice",
    "EvidenceConfig",
    "ais_scalars",
    "bracket",
    "choice",
    "evaluate",
    "exact_scalars",
    "final",
    "highest",
    "is_better",
    "mean_log_prob_unnormalised",
    "schedule",
    "warning",
]

Seeds = Callable[[str], tf.Tensor]
Rows = NDArray[Any]

Z_VALUE = 1.645  # one-sided 95 %
MIN_AIS_ESS = 0.1  # of the chains of AIS, for its estimate to be taken in place of a flagged one


@dataclass(frozen=True)
class EvidenceConfig:
    """How log Z is estimated besides tracking.

    :param ais_if_flagged: with early stopping, use AIS wherever a health flag says not to trust the tracked log Z.
    :param ais_betas: number of temperatures of AIS during training, or paper for its 21,000.
    :param final_ais_betas: number of temperatures of the AIS bracket at the end, or paper for its 21,000; 0 for none.
    :param ais_chains: chains of AIS.
    :raises ValueError: naming the field that is wrong.
    """

    ais_if_flagged: bool = True
    ais_betas: str = "1000"
    final_ais_betas: str = "paper"
    ais_chains: int = 100

    def __post_init__(self) -> None:
        for name, also in (("ais_betas", ()), ("final_ais_betas", ("0",))):
            value = getattr(self, name)
            is_number = value.isdecimal() and int(value) >= 2
            if not (is_number or value == "paper" or value in also):
                zero = ", or 0 for none" if also else ""
                raise ValueError(f"{name} must be a number of at least 2, or paper{zero}, got {value!r}.")
        if self.ais_chains < 2:
            raise ValueError(f"ais_chains must be at least 2, got {self.ais_chains}.")


# In training


def evaluate(
    trainer: Trainer,
    parts: Mapping[str, Rows],
    config: EvidenceConfig = EvidenceConfig(),
    by_ais: Callable[[], Mapping[str, float]] | None = None,
) -> dict[str, float]:
    """Log-likelihoods of the parts by the tracked log Z, and of "valid" by AIS if a health flag asks for it.

    :param parts: "valid" and others.
    :param by_ais: gives :func:`ais_scalars`; called if a flag other than `trails` says not to trust the tracked log Z.
        None: never.
    """
    each = {name: log_likelihoods(trainer.state, rows) for name, rows in parts.items()}
    found = {f"{name}/log_likelihood_nats": float(rows.mean()) for name, rows in each.items()}
    largest = max(float(rows.max()) for rows in each.values())
    if trainer.flags & ~TRAILS and by_ais is not None:
        estimate = by_ais()
        change = trainer.saved().log_z - estimate["ais/log_z_nats"]
        found |= {**estimate, "valid/ais_log_likelihood_nats": found["valid/log_likelihood_nats"] + change}
        if _is_reliable(estimate, config):
            largest += change
    return {"tracker/highest_log_p_nats": largest, **found}


def warning(step: int, scalars: Mapping[str, float]) -> str | None:
    """What to tell the user about the scalars of :func:`evaluate`: that a row has log p > 0."""
    largest = scalars["tracker/highest_log_p_nats"]
    if not largest > 0:
        return None
    return (
        f"update {step}: log Z is too low by {largest:.1f} nats or more, since a row has log p = {largest:.1f}: chains "
        "miss a mode. Lower learning_rate."
    )


def exact_scalars(rbm: RBM) -> dict[str, float]:
    """Log Z by enumeration, if a side has at most `exact.MAX_UNITS` units, else nothing."""
    return {"exact/log_z_nats": exact.log_z_exact(rbm)} if min(rbm.W.shape) <= exact.MAX_UNITS else {}


def ais_scalars(
    state: SMLState, train: Rows, config: EvidenceConfig, seed: tf.Tensor, generator: str = "threefry"
) -> dict[str, float]:
    """Log Z by AIS with `ais_betas`, its standard error, and the effective number of chains.

    :param train: training rows, whose base rates AIS starts from.
    :param seed: int32 [2], of all estimates; the noise is a function of it and of the number of the update.
    """
    found = _ais(state.rbm, train, config.ais_betas, config, tf.random.fold_in(seed, int(state.step)), generator)
    return {"ais/log_z_nats": found.log_z, "ais/log_z_std_nats": found.standard_error, "ais/ess": found.ess}


# Which evaluation is the best


class Choice(NamedTuple):
    """What an evaluation is chosen by: validation log-likelihood and its standard deviation, nats; whether it has a
    health flag; whether no row is more probable than 1, beyond that deviation."""

    log_likelihood: float = -math.inf
    std: float = 0.0
    is_flagged: bool = True
    is_possible: bool = True


def choice(scalars: Mapping[str, float], config: EvidenceConfig = EvidenceConfig()) -> Choice:
    """That of the scalars of an evaluation: by AIS where the tracked log Z is flagged and AIS may be trusted.

    :param scalars: of :func:`evaluate` and `report.filter_scalars`.
    """
    value, std = scalars["valid/log_likelihood_nats"], float(scalars["tracker/log_z_std_nats"])
    is_flagged = int(scalars["tracker/flags"]) & ~TRAILS != 0
    if is_flagged and "valid/ais_log_likelihood_nats" in scalars and _is_reliable(scalars, config):
        value, std, is_flagged = scalars["valid/ais_log_likelihood_nats"], scalars["ais/log_z_std_nats"], False
    return Choice(value, std, is_flagged, scalars["tracker/highest_log_p_nats"] <= Z_VALUE * std)


def is_better(new: Choice, best: Choice) -> bool | None:
    """True if an evaluation is better than the best one, False if it is worse, None if that is open.

    Better is a higher lower end of the one-sided 95 % interval, worse a difference beyond the errors of both. One with
    a health flag never takes the place of one without; one that is not possible takes no place.
    """
    is_higher = new.log_likelihood - Z_VALUE * new.std > best.log_likelihood - Z_VALUE * best.std
    if new.is_possible and (best.is_flagged if new.is_flagged != best.is_flagged else is_higher):
        return True
    gain = new.log_likelihood - best.log_likelihood + Z_VALUE * math.hypot(new.std, best.std)
    return False if gain < 0 or (new.is_flagged and not best.is_flagged) else None


def highest(config: EvidenceConfig = EvidenceConfig()) -> Callable[[int, Any, Mapping[str, float]], Any]:
    """The rule of a training loop that keeps the evaluation with the best validation log-likelihood.

    :return: (step, best so far, scalars of an evaluation) to the best now. The best is a NamedTuple with the fields
        `step`, -1 at the start, `value`, minus the log-likelihood, `std`, `is_trusted` and `num_worse`, the evaluations
        in a row that were worse.
    """

    def rule(step: int, best: Any, scalars: Mapping[str, float]) -> Any:
        new, old = choice(scalars, config), Choice(-best.value, best.std, best.step < 0 or not best.is_trusted)
        verdict = is_better(new, old)
        if verdict:
            return best._replace(
                step=step, value=-new.log_likelihood, num_worse=0, std=new.std, is_trusted=not new.is_flagged
            )
        return best._replace(num_worse=best.num_worse + 1 if verdict is False else 0)

    return rule


# At the end


def final(
    state: SMLState,
    saved: SavedRBM,
    parts: Mapping[str, Rows],
    seeds: Seeds,
    config: EvidenceConfig = EvidenceConfig(),
    training: SMLConfig = SMLConfig(),
    *,
    records: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Log-likelihoods of all parts by the tracked log Z, by a bracket of AIS and, if a side is small, exactly.

    :param state: the last one, whose chains the upper end of the bracket is sampled from.
    :param saved: the parameters to report, which may be earlier ones, with their tracked log Z.
    :param parts: "train", from whose base rates AIS starts, and others.
    :param seeds: the stream "final_ais".
    :param records: what was logged: health flags and lag are those of the step of `saved`.
    :return: "step", and for each of "tracked", "exact", "ais", "reverse_ais" what it says.
    """
    state = state._replace(rbm=saved.rbm)
    found: dict[str, Any] = {}
    if training.track:
        found["tracked"] = {"log_z_nats": saved.log_z, "std_nats": saved.log_z_std}
        for line in records:
            if line["step"] == saved.step and line.get("tracker/flags") is not None:
                reasons = flag_names(int(line["tracker/flags"]))
                found["tracked"] |= {"lag_nats": line["tracker/lag_nats"], "flags": reasons}
    if by_enumeration := exact_scalars(state.rbm):
        found["exact"] = {"log_z_nats": by_enumeration["exact/log_z_nats"]}
    if config.final_ais_betas != "0":
        found |= bracket(state, parts["train"], seeds("final_ais"), config, training.generator)
    mean_log_q = {name: mean_log_prob_unnormalised(state.rbm, rows) for name, rows in parts.items()}
    for entry in found.values():
        for name, value in mean_log_q.items():
            entry[f"{name}_log_likelihood_nats"] = value - entry["log_z_nats"]
    return {"step": saved.step, **found}


def bracket(
    state: SMLState, train: Rows, seed: tf.Tensor, config: EvidenceConfig, generator: str = "threefry"
) -> dict[str, dict[str, Any]]:
    """AIS from below, and from above by samples of parallel tempering that start from the particles of `state`.

    :param seed: int32 [2].
    :return: "ais" and "reverse_ais": log Z, its three-sigma interval, and the effective number of chains.
    """
    forward_seed, sample_seed, reverse_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 3))
    lower = _ais(state.rbm, train, config.final_ais_betas, config, forward_seed, generator)
    chains = state.chains._replace(a=tf.linalg.matmul(state.chains.v, state.rbm.W, transpose_b=True) + state.rbm.c)
    beta = state.ladder.beta.numpy()
    samples = sample(state.rbm, chains, beta, config.ais_chains, seed=sample_seed, generator=generator)
    betas, base_b = schedule(config.final_ais_betas), base_rate_biases(train)
    upper = ais.reverse_ais(state.rbm, betas, samples, seed=reverse_seed, base_b=base_b, generator=generator)
    return {
        name: {"log_z_nats": result.log_z, "three_sigma_nats": list(result.interval), "ess": result.ess}
        for name, result in (("ais", lower), ("reverse_ais", upper))
    }


def mean_log_prob_unnormalised(rbm: RBM, rows: Rows, chunk: int = 5000) -> float:
    """Mean of log q~(v) over the rows, nats: the log-likelihood without log Z."""
    sums = [
        tf.reduce_sum(tf.cast(log_prob_unnormalised(rbm, tf.cast(rows[i : i + chunk], rbm.W.dtype)), tf.float64))
        for i in range(0, len(rows), chunk)
    ]
    return float(tf.add_n(sums)) / len(rows)


def schedule(betas: str) -> NDArray[np.float64]:
    """The inverse temperatures that `EvidenceConfig` names: so many at even distances, or those of the paper."""
    return ais.paper_schedule() if betas == "paper" else ais.linear_schedule(int(betas))


def _ais(rbm: RBM, train: Rows, betas: str, config: EvidenceConfig, seed: tf.Tensor, generator: str) -> ais.AISResult:
    base_b = base_rate_biases(train)
    return ais.ais(rbm, schedule(betas), num_chains=config.ais_chains, seed=seed, base_b=base_b, generator=generator)


def _is_reliable(scalars: Mapping[str, float], config: EvidenceConfig) -> bool:
    return scalars["ais/ess"] >= MIN_AIS_ESS * config.ais_chains
