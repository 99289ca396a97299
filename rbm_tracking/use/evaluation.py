"""What is measured of an RBM's log Z and log-likelihood: by the filter, by AIS, exactly; which evaluation is the best.

    evaluations = Evaluations({"train": X, "valid": X_valid})
    scalars = evaluations(trainer.state, trainer.observed, by_ais)     # in training, again and again
    found = final(trainer.state, trainer.saved(), {"train": X, "test": X_test}, seeds)
    found["evidence"]["test_log_likelihood_nats"], found["evidence"]["statement"]

What follows from the measurements is decided in :mod:`rbm_tracking.evidence` alone. `seeds` gives the seed, int32 [2],
of the stream of a name. Log-likelihoods are means over rows, in nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.stopping import Best
from rbm_tracking.estimates import ais, strata
from rbm_tracking.estimates.trajectories import Trajectory, allotted, annealed, distances, trajectory
from rbm_tracking.estimates.trajectory_tempering import trajectory_bracket
from rbm_tracking.model import exact, plain
from rbm_tracking.model.random import Execution
from rbm_tracking.model.rbm import RBM, base_rate_biases, log_probs_unnormalised
from rbm_tracking.model.serialization import SavedRBM
from rbm_tracking.track.evidence import (
    Z_95,
    Annealing,
    Choice,
    Evidence,
    Tracking,
    Verdict,
    choice,
    flag_names,
    half_width,
    is_better,
    is_candidate,
    is_in_doubt,
    judge,
    rise,
    statement,
    stronger,
)
from rbm_tracking.track.tempering import sample
from rbm_tracking.track.updates.learning import Observed, SMLConfig, SMLState, log_likelihoods
from rbm_tracking.use.averages import model_scalars

__all__ = [
    "SMOOTHING",
    "Evaluations",
    "EvidenceConfig",
    "ais_scalars",
    "along_training",
    "annealing",
    "bracket",
    "checked_again",
    "checked_scalars",
    "exact_scalars",
    "final",
    "highest",
    "interval",
    "mean_log_prob_unnormalised",
    "reverse",
    "schedule",
    "tracking",
]

Seeds = Callable[[str], tf.Tensor]
SMOOTHING = 8.0  # of the parameters along the way: of 2, 4 and 8 the shortest path of a large model
Rows = np.ndarray


@dataclass(frozen=True)
class EvidenceConfig:
    """How log Z is estimated besides tracking.

    :param ais_betas: number of temperatures of AIS during training, or paper for its 21,000.
    :param final_ais_betas: number of temperatures of the AIS bracket at the end, or paper for its 21,000; 0 for none.
    :param trajectory_steps: steps of AIS along the parameters that training went through, where they were kept.
    :param trajectory_beta: inverse temperature of these, see `trajectories.trajectory`.
    :param ais_chains: chains of AIS.
    :raises ValueError: naming the field that is wrong.
    """

    ais_betas: str = "1000"
    final_ais_betas: str = "paper"
    trajectory_steps: int = 2000
    trajectory_beta: float = 0.5
    ais_chains: int = 100

    def __post_init__(self) -> None:
        for name, also in (("ais_betas", ()), ("final_ais_betas", ("0",))):
            value = getattr(self, name)
            is_number = value.isdecimal() and int(value) >= 2
            if not (is_number or value == "paper" or value in also):
                zero = ", or 0 for none" if also else ""
                raise ValueError(f"{name} must be a number of at least 2, or paper{zero}, got {value!r}.")
        if self.trajectory_steps < 2:
            raise ValueError(f"trajectory_steps must be at least 2, got {self.trajectory_steps}.")
        if not 0 < self.trajectory_beta <= 1:
            raise ValueError(f"trajectory_beta must be above 0 and at most 1, got {self.trajectory_beta}.")
        if self.ais_chains < 2:
            raise ValueError(f"ais_chains must be at least 2, got {self.ais_chains}.")


_SOON_LEARNED = 1000  # rows
_ROUNDS = 4  # of AIS along training at the end
# rounds of parallel tempering before reverse AIS in training
_BURN_IN = 200
_THIN = 50

# In training.


class Evaluations:
    """Evaluates an RBM in training, and remembers what the evidence needs: whether the filter stands refuted, and what
    the best evaluation was.

    :ivar store: module with this memory, for checkpoints.
    :ivar verdict: of the last evaluation; None before the first.
    :ivar choice: what it is chosen by.
    :ivar news: what to tell the user: that the filter has just been refuted, or cleared again; None if there is none.

    :param parts: "valid", which evaluations are chosen by, and others: binary rows.
    :param config: its `ais_chains` are those of `by_ais`.
    :param weights: how much each row of a part counts, [N]; alike, if it is not given.
    """

    def __init__(
        self,
        parts: Mapping[str, Rows],
        config: EvidenceConfig = EvidenceConfig(),
        *,
        weights: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.store = tf.Module(name="evaluations")
        self.verdict: Verdict | None = None
        self.choice = Choice()
        self.news: str | None = None
        self.store.memory = tf.Variable([0.0, *map(float, Choice())], dtype=tf.float64, trainable=False)
        self.config = config
        self._parts = parts
        self._weights = weights or {}

    def __call__(
        self,
        state: SMLState,
        observed: Observed | None,
        by_ais: Callable[..., Mapping[str, float]] | None = None,
    ) -> dict[str, float]:
        """The tracked log Z, log-likelihoods of the parts by it, what the evidence says of it, and of "valid" by it.

        :param observed: what the last updates saw; None before the first.
        :param by_ais: gives :func:`ais_scalars`. It is called if the filter doubts itself or stands refuted, and
            always if the evaluation could be about to become the best; with `is_reverse=True` where AIS is below the
            filter, to see which of them is wrong. None: never.
        """
        was_refuted, log_likelihood, std, is_trusted = self.store.memory.numpy()
        best = Choice(float(log_likelihood), float(std), bool(is_trusted))
        # Log-likelihoods of all parts by the tracked log Z.
        by_part = {name: log_likelihoods(state, rows) for name, rows in self._parts.items()}
        scalars = {
            f"{name}/log_likelihood_nats": float(np.average(rows, weights=self._weights.get(name)))
            for name, rows in by_part.items()
        }
        largest = max(float(rows.max()) for rows in by_part.values())
        # The verdict of the filter and the rows alone.
        tracked = tracking(state, observed)
        mean_log_q = scalars["valid/log_likelihood_nats"] + tracked.log_z
        bound = state.rbm.visible.highest_log_p(state.rbm.b.shape[0])
        evidence = Evidence(tracked, highest_log_q=largest + tracked.log_z - bound)
        verdict = judge(evidence, was_refuted=bool(was_refuted))
        # AIS where the filter is in doubt, or the evaluation may be about to become the best.
        is_doubted = tracked.flags != 0 or verdict.is_refuted
        if by_ais is not None and (is_doubted or is_candidate(choice(mean_log_q, verdict), best)):
            estimate = by_ais()
            by_log_z = {"valid/ais_log_likelihood_nats": mean_log_q - estimate["ais/log_z_nats"]}
            scalars |= {**estimate, **by_log_z}
            evidence = evidence._replace(ais=_logged(estimate, self.config))
            verdict = judge(evidence, was_refuted=bool(was_refuted))
            # AIS below the filter: reverse AIS says which of them is wrong.
            if is_in_doubt(evidence, verdict):
                scalars |= (upper := by_ais(is_reverse=True))
                evidence = evidence._replace(reverse=_logged(upper, self.config, "reverse_ais"))
                verdict = judge(evidence, was_refuted=bool(was_refuted))
        # The best evaluation so far is remembered with its interval.
        current_choice = choice(mean_log_q, verdict)
        self.verdict = verdict
        self.choice = current_choice
        self.news = _news(verdict, bool(was_refuted))
        self.store.memory.assign(
            [float(verdict.is_refuted), *map(float, current_choice if is_better(current_choice, best) else best)]
        )
        of_model = {**model_scalars(state), "tracker/highest_log_p_nats": largest}
        return {**of_model, **scalars, **_scalars(current_choice, verdict)}


def interval(num_rows: int, batch_size: int) -> int:
    """Updates between evaluations, from 50 to 500: twenty passes over the rows, ten over fewer than a thousand, which
    are soon learned by heart."""
    passes = 10 if num_rows < _SOON_LEARNED else 20
    return min(max(passes * -(-num_rows // batch_size), 50), 500)


def tracking(state: SMLState, observed: Observed | None) -> Tracking:
    """What the filter says after the last update."""
    log_z = float(state.tracker.mean[0])
    std = float(np.sqrt(max(float(state.tracker.cov[0, 0]), 0.0)))
    if observed is None:
        return Tracking(log_z, std)
    return Tracking(log_z, std, float(np.ravel(observed.lag)[-1]), int(np.ravel(observed.flags)[-1]))


def exact_scalars(rbm: RBM) -> dict[str, float]:
    """Log Z by enumeration, if :func:`exact.is_enumerable`, else nothing."""
    return {"exact/log_z_nats": exact.log_z_exact(rbm)} if exact.is_enumerable(rbm) else {}


def checked_scalars(model: SMLState) -> dict[str, float]:
    """Log Z as it is tracked and by enumeration, as far as that goes."""
    return {**model_scalars(model), **exact_scalars(model.rbm)}


def ais_scalars(
    state: SMLState,
    base_b: ArrayLike,
    config: EvidenceConfig,
    seed: tf.Tensor,
    generator: str = "threefry",
    *,
    is_reverse: bool = False,
    jit_compile: bool = True,
) -> dict[str, float]:
    """Log Z by AIS with `ais_betas`, its standard error, and the effective number of chains.

    :param base_b: visible biases [n_v] that AIS starts from, for example `base_rate_biases` of the training rows.
    :param seed: int32 [2], of all estimates; the noise is a function of it and of the number of the update.
    :param is_reverse: from above, from the particles of `state` after some rounds of parallel tempering.
    """
    # Another seed at each step, and for each direction.
    at_step = tf.random.fold_in(seed, int(state.step))
    name = "reverse_ais" if is_reverse else "ais"
    if is_reverse:
        betas = config.ais_betas
        reverse_seed = tf.random.fold_in(at_step, 1)
        estimate = _reverse_ais(
            state, base_b, betas, config, reverse_seed, generator, jit_compile, burn_in=_BURN_IN, thin=_THIN
        )
    else:
        estimate = _ais(state.rbm, base_b, config.ais_betas, config, at_step, generator, jit_compile)
    return {
        f"{name}/log_z_nats": estimate.log_z,
        f"{name}/log_z_std_nats": estimate.standard_error,
        f"{name}/ess": estimate.ess,
    }


def highest() -> Callable[[int, Best, Mapping[str, float]], Best]:
    """The rule of a training loop that keeps the evaluation with the best validation log-likelihood.

    :return: (step, best so far, scalars of :class:`Evaluations`) to the best now, whose value is minus the
        log-likelihood, and since which only evaluations count that were worse for sure.
    """

    def rule(step: int, best: Best, scalars: Mapping[str, float]) -> Best:
        new = _choice(scalars)
        old = Choice(-best.value, best.std, best.is_trusted) if best.step >= 0 else Choice()
        found = Best(step, -new.log_likelihood, std=new.std, is_trusted=new.is_trusted)
        return best.judged(found, is_better=is_better(new, old))

    return rule


# At the end.


def final(
    state: SMLState,
    saved: SavedRBM,
    parts: Mapping[str, Rows],
    seeds: Seeds,
    config: EvidenceConfig = EvidenceConfig(),
    training: SMLConfig = SMLConfig(),
    *,
    records: Sequence[Mapping[str, float]] = (),
    along: Sequence[RBM] = (),
) -> dict[str, Any]:
    """Log-likelihoods of all parts by the tracked log Z, by a bracket of AIS, exactly, and by all of the evidence.

    :param state: the last one, whose chains the upper end of the bracket is sampled from.
    :param saved: the parameters to report, which may be earlier ones, with their tracked log Z.
    :param parts: "train", from whose base rates AIS starts, and others.
    :param seeds: the streams "final_ais" and "trajectory".
    :param records: what was logged: flags, lag and earlier AIS are those of the step of `saved`.
    :param along: parameters that training went through, for a bracket along them as well.
    :return: "step", and for each of "tracked", "exact", "ais", "reverse_ais", "trajectory_ais",
        "reverse_trajectory_ais" and "evidence" what it says.
    """
    state = state._replace(rbm=saved.rbm)
    line = next((line for line in records if line["step"] == saved.step), {})
    evidence = Evidence()
    estimates: dict[str, Any] = {}
    # The filter.
    if training.track:
        lag = line.get("tracker/lag_nats")
        flags = line.get("tracker/flags")
        tracked = Tracking(saved.log_z, saved.log_z_std, lag or 0.0, int(flags or 0))
        evidence = evidence._replace(tracked=tracked)
        estimates["tracked"] = {"log_z_nats": saved.log_z, "std_nats": saved.log_z_std}
        if flags is not None:
            reasons = {"half_width_nats": half_width(tracked), "flags": flag_names(tracked.flags)}
            estimates["tracked"] |= {"lag_nats": lag, **reasons}
    # Enumeration, where it is cheap.
    if by_enumeration := exact_scalars(state.rbm):
        evidence = evidence._replace(exact=by_enumeration["exact/log_z_nats"])
        estimates["exact"] = {"log_z_nats": evidence.exact}
    # AIS and reverse AIS along temperatures.
    if config.final_ais_betas != "0":
        both = bracket(
            state,
            base_rate_biases(parts["train"], visible=saved.rbm.visible),
            seeds("final_ais"),
            config,
            training.generator,
        )
        estimates |= {name: _entry(result) for name, result in zip(("ais", "reverse_ais"), both, strict=True)}
        lower, upper = (annealing(result) for result in both)
        evidence = evidence._replace(ais=lower, reverse=upper)
    elif line.get("ais/log_z_nats") is not None:
        evidence = evidence._replace(ais=_logged(line, config))
    # The same along the parameters of training.
    if along:
        base_b = base_rate_biases(parts["train"], visible=state.rbm.visible)
        path = trajectory([*along, state.rbm], base_b=base_b, smoothing=SMOOTHING, beta=config.trajectory_beta)
        both = trajectory_bracket(
            path,
            config.trajectory_steps,
            num_chains=config.ais_chains,
            seed=seeds("trajectory"),
            generator=training.generator,
        )
        names = ("trajectory_ais", "reverse_trajectory_ais")
        estimates |= {name: _entry(result) for name, result in zip(names, both, strict=True)}
        lower, upper = (annealing(result) for result in both)
        evidence = evidence._replace(
            ais=stronger(evidence.ais, lower), reverse=stronger(evidence.reverse, upper, is_reverse=True)
        )
    return {"step": saved.step, **_with_likelihoods(state.rbm, parts, evidence, estimates, line)}


def bracket(
    state: SMLState,
    base_b: ArrayLike,
    seed: tf.Tensor,
    config: EvidenceConfig,
    generator: str = "threefry",
    *,
    jit_compile: bool = True,
) -> ais.Bracket:
    """AIS from below, and from above by samples of parallel tempering that start from the particles of `state`.

    :param base_b: visible biases [n_v] that AIS starts from, for example those of the data's base rates.
    :param seed: int32 [2].
    """
    # From below, then from above with seeds of its own.
    forward_seed, *seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 3))
    betas = config.final_ais_betas
    lower = _ais(state.rbm, base_b, betas, config, forward_seed, generator, jit_compile)
    return ais.Bracket(lower, _reverse_ais(state, base_b, betas, config, seeds, generator, jit_compile))


def checked_again(
    rbm: RBM,
    base_b: NDArray[np.float64],
    num_temps: int,
    seed: tf.Tensor,
    generator: str = "threefry",
    *,
    num_chains: int = 100,
    jit_compile: bool = True,
) -> tuple[Annealing, float]:
    """Log Z from below by AIS in strata, at two lengths: each cluster of the rows has chains of its own, and so
    has each mode that :mod:`rbm_tracking.estimates.maxima` finds.

    :param base_b: visible biases that AIS starts from, [K, n_v], of :func:`strata.starts`.
    :param num_temps: of a single AIS in training; the long one of each stratum has an eighth of it, the short one,
        whose last states are the cells of the long one, a 32nd.
    :param seed: int32 [2].
    :param num_chains: of one AIS in one stratum.
    :return: the long one, and by how much it is above the short one, see `evidence.rise`.
    """
    options: Execution = {"generator": generator, "jit_compile": jit_compile}
    short_seed, long_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
    # Modes that the rows do not lead to are strata, too.
    base_b = strata.with_maxima(rbm, base_b, plain.noise_of(seed.numpy(), 0))
    # The last states of the short AIS are the cells of the long one.
    few, many = (ais.linear_schedule(max(2, num_temps // divisor)) for divisor in (32, 8))
    short = strata.stratified(rbm, few, base_b, base_b, num_chains=num_chains, seed=short_seed, **options)
    cells = strata.arrivals(short, len(base_b), rbm.visible)
    long = annealing(strata.stratified(rbm, many, base_b, cells, num_chains=num_chains, seed=long_seed, **options))
    return long, rise(annealing(short), long)


def along_training(
    path: Trajectory,
    num_steps: int,
    seed: tf.Tensor,
    generator: str = "threefry",
    *,
    num_chains: int = 100,
    jit_compile: bool = True,
) -> Annealing:
    """Log Z of the last RBM from below, by AIS along those that training went through, of four times as many chains.

    In training modes appear one after the other, where cooling meets them all at once behind a first-order transition:
    this path is independent of all that goes through temperatures. A path at beta < 1 would end in such a cooling.

    :param path: of `trajectories.trajectory`, at beta = 1.
    :param num_steps: along it, at least one for each of its pieces.
    :param seed: int32 [2].
    """
    options: Execution = {"generator": generator, "jit_compile": jit_compile}
    count = 1 if ais.is_at_once(generator) else _ROUNDS  # of the pilot's shape
    pilot, *seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 1 + count))
    # A pilot measures the path, and steps are allotted by its distances.
    lengths = distances(path, num_chains=num_chains, seed=pilot, **options)
    steps = allotted(lengths, max(num_steps, len(lengths)))
    num_chains = num_chains * _ROUNDS // count
    rounds = [annealed(path, steps, num_chains=num_chains, seed=round_seed, **options) for round_seed in seeds]
    return annealing(ais.pooled(rounds))


def reverse(
    state: SMLState,
    base_b: ArrayLike,
    num_temps: int,
    seed: tf.Tensor,
    generator: str = "threefry",
    *,
    jit_compile: bool = True,
) -> Annealing:
    """Log Z from above, from the particles of `state` after some rounds of parallel tempering.

    :param base_b: visible biases [n_v] that AIS ends at.
    :param num_temps: of AIS.
    :param seed: int32 [2].
    """
    config = EvidenceConfig(ais_betas=str(num_temps))
    scalars = ais_scalars(state, base_b, config, seed, generator, is_reverse=True, jit_compile=jit_compile)
    return _logged(scalars, config, "reverse_ais")


def mean_log_prob_unnormalised(rbm: RBM, rows: Rows) -> float:
    """Mean of log q~(v) over the rows, nats: the log-likelihood without log Z."""
    return float(log_probs_unnormalised(rbm, rows).mean())


def schedule(betas: str) -> NDArray[np.float64]:
    """The inverse temperatures that `EvidenceConfig` names: so many at even distances, or those of the paper."""
    return ais.paper_schedule() if betas == "paper" else ais.linear_schedule(int(betas))


def _ais(
    rbm: RBM,
    base_b: ArrayLike,
    betas: str,
    config: EvidenceConfig,
    seed: tf.Tensor,
    generator: str,
    jit_compile: bool,
) -> ais.AISResult:
    return ais.ais(
        rbm,
        schedule(betas),
        num_chains=config.ais_chains,
        seed=seed,
        base_b=base_b,
        generator=generator,
        jit_compile=jit_compile,
    )


def _reverse_ais(
    state: SMLState,
    base_b: ArrayLike,
    betas: str,
    config: EvidenceConfig,
    seed: tf.Tensor | Sequence[tf.Tensor],
    generator: str,
    jit_compile: bool,
    **rounds: int,
) -> ais.AISResult:
    """From samples of parallel tempering, which starts at the particles.

    :param seed: int32 [2], or one for the samples and one for AIS.
    """
    # Samples from the particles as they are now, then AIS from these.
    stage_seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 2)) if tf.is_tensor(seed) else seed
    chains = state.chains._replace(a=tf.linalg.matmul(state.chains.v, state.rbm.W, transpose_b=True) + state.rbm.c)
    beta = state.ladder.beta.numpy()
    options: Execution = {"generator": generator, "jit_compile": jit_compile}
    samples = sample(state.rbm, chains, beta, config.ais_chains, seed=stage_seeds[0], **rounds, **options)
    return ais.reverse_ais(state.rbm, schedule(betas), samples, seed=stage_seeds[1], base_b=base_b, **options)


def _logged(scalars: Mapping[str, float], config: EvidenceConfig, name: str = "ais") -> Annealing:
    log_z, std, ess = (scalars[f"{name}/{value}"] for value in ("log_z_nats", "log_z_std_nats", "ess"))
    return Annealing(log_z, std, ess, config.ais_chains)


def annealing(result: ais.AISResult) -> Annealing:
    """What :mod:`rbm_tracking.evidence` has to know of AIS."""
    return Annealing(result.log_z, result.standard_error, result.ess, len(result.log_weights))


def _entry(result: ais.AISResult) -> dict[str, float | list[float]]:
    return {"log_z_nats": result.log_z, "three_sigma_nats": list(result.interval), "ess": result.ess}


def _news(verdict: Verdict, was_refuted: bool) -> str | None:
    # Nothing is told twice.
    if verdict.is_refuted == was_refuted:
        return None
    if was_refuted:
        return "AIS agrees with the tracked log Z again"
    return f"{statement(verdict)} ({verdict.reasons[0]}); lower learning_rate"


def _scalars(found: Choice, verdict: Verdict) -> dict[str, float]:
    scalars = {"evidence/log_z_nats": verdict.log_z, "evidence/low_nats": verdict.low}
    if math.isfinite(verdict.high):
        scalars["evidence/high_nats"] = verdict.high
    scalars |= {"evidence/is_trusted": float(verdict.is_trusted), "evidence/is_refuted": float(verdict.is_refuted)}
    return {**scalars, "evidence/valid_log_likelihood_nats": found.log_likelihood}


def _choice(scalars: Mapping[str, float]) -> Choice:
    """That of :func:`_scalars`."""
    high = scalars.get("evidence/high_nats", math.inf)
    std = (high - scalars["evidence/log_z_nats"]) / Z_95
    return Choice(scalars["evidence/valid_log_likelihood_nats"], std, scalars["evidence/is_trusted"] > 0)


def _with_likelihoods(
    rbm: RBM, parts: Mapping[str, Rows], evidence: Evidence, found: dict[str, Any], line: Mapping[str, float]
) -> dict[str, Any]:
    """What was found, with the verdict on all of it and the log-likelihoods of the parts by each log Z."""
    # The verdict; rows bound log Z from below.
    log_q = {name: log_probs_unnormalised(rbm, rows) for name, rows in parts.items()}
    if found:
        bound = rbm.visible.highest_log_p(rbm.b.shape[0])
        evidence = evidence._replace(highest_log_q=max(float(values.max()) for values in log_q.values()) - bound)
        verdict = judge(evidence, was_refuted=bool(line.get("evidence/is_refuted")))
        found["evidence"] = {
            "log_z_nats": verdict.log_z,
            "interval_nats": [verdict.low, verdict.high],
            "is_trusted": verdict.is_trusted,
            "chains_miss_a_mode": verdict.is_refuted,
            "statement": statement(verdict),
            "reasons": list(verdict.reasons),
        }
    # By each log Z, that of the verdict among them.
    for entry in found.values():
        for name, values in log_q.items():
            entry[f"{name}_log_likelihood_nats"] = float(values.mean()) - entry["log_z_nats"]
    return found
