"""The averaged parameters as a model, and its log Z: tracked as that of the parameters is.

The average of the parameters is often the better model; its particles do not exist. Those of the parameters theta are
led to it on a straight line by annealed importance sampling, with weights of the mean Z_average / Z_theta (Eq. 3 in
steps), so that the log of their mean takes the filter's log Z from one to the other:

    log Z_average = log Z_theta + log mean w.

That mean is over samples of theta, which particles in training are not: the last updates have lowered the probability
of where they are, and the average, which knows less of these updates, has more of it there. Therefore the ladder first
goes on at fixed parameters. Without that log Z_average is up to 2.5 nats too high where the rate is 0.1.

The last steps of training, with a population in place of chains: the masses of modes are right in it.

Chains do not come from one mode to another, so that how many of them are in each says little of its mass, and a mode
that no row is in stays in the model where no chain is. The chains of AIS in strata carry the mass of their mode as a
weight w, also in modes that only a search for maxima finds. They go on from one step of the parameters to the next,

    w <- w q~_{t+1}(v) / q~_t(v),      then h | v and v | h at theta_{t+1},

which is AIS along these steps: the gradient of the likelihood is that of the rows less the weighted mean over v, and a
step is halved until few of the weights degenerate (Krause, Fischer and Igel, "Population-contrastive-divergence", 2018,
weigh the states of CD so).

Particles that drive a step understate the change of log Z by it. So each other chain drives, and the rest measure it,
by which the likelihood of rows that were set aside decides what step is the last.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.special import softmax

from rbm_tracking.estimates.ais import AISResult, effective, result_of
from rbm_tracking.estimates.trajectories import anneal
from rbm_tracking.model import plain
from rbm_tracking.model.random import Execution
from rbm_tracking.model.rbm import RBM, activations
from rbm_tracking.track.filtering import log_mean_exp, log_z_std
from rbm_tracking.track.settings import PenaltyConfig
from rbm_tracking.track.state import SMLState
from rbm_tracking.track.tempering import sample

__all__ = ["Settled", "averaged", "model_scalars", "settled"]

_BURN_IN = 100  # rounds of parallel tempering at fixed parameters
_THIN = 20
_NUM_PARTICLES = 100


def averaged(
    state: SMLState, *, seed: tf.Tensor, num_steps: int = 20, generator: str = "threefry", jit_compile: bool = True
) -> SMLState:
    """The state with the averaged parameters in place of the parameters, for all that evaluates a state.

    Its tracker has their log Z at beta = 1, with the variance of the weights on top of the filter's; the other
    temperatures stay as they were. A state without averages is returned as it is.

    :param seed: int32 [2]; with the number of the update it determines the noise.
    :param num_steps: steps of AIS from the parameters to their average.
    """
    if not state.average:
        return state
    first, second = tf.unstack(tf.random.experimental.stateless_split(tf.random.fold_in(seed, state.step), 2))
    options: Execution = {"generator": generator, "jit_compile": jit_compile}
    rounds = {"burn_in": _BURN_IN, "thin": _THIN, "seed": first}
    # Samples of the parameters, led by AIS to their average: the change of log Z.
    rows = sample(state.rbm, state.chains, state.ladder.beta.numpy(), _NUM_PARTICLES, **rounds, **options)
    v = tf.constant(rows, state.rbm.W.dtype)
    _, log_weights = anneal(state.rbm, state.average, num_steps, v, seed=second, **options)
    change = log_mean_exp(log_weights)
    # Only log Z at beta = 1 moves, with the variance of the change.
    top = tf.one_hot(0, state.tracker.mean.shape[0], dtype=tf.float64)
    tracker = state.tracker._replace(
        mean=state.tracker.mean + change.value * top,
        cov=state.tracker.cov + change.variance * top[:, None] * top[None],
    )
    rbm = state.average
    chains = state.chains._replace(a=activations(rbm, state.chains.v))
    return state._replace(rbm=rbm, chains=chains, tracker=tracker)


def model_scalars(model: SMLState) -> dict[str, float]:
    """Log Z of the model and its standard deviation, nats, under the names that the filter's have in logs."""
    return {
        "tracker/log_z_nats": float(model.tracker.mean[0]),
        "tracker/log_z_std_nats": float(log_z_std(model.tracker)),
    }


_FIRST_STEP = 0.01
_LONGEST_STEP = 0.1
_SHORTEST_STEP = 1e-5
_LONGER = 1.5
_KEPT = 0.9  # of the effective chains in a step
_BATCH = 1000  # rows
_EVERY = 5  # steps from one look at the rows set aside to the next


class Settled(NamedTuple):
    """Parameters after the last step, log Z by the chains that measure, and by how much the rows set aside gained."""

    rbm: RBM
    population: AISResult
    gain: float


def settled(
    rbm: RBM,
    rows: np.ndarray,
    population: AISResult,
    num_strata: int,
    valid: np.ndarray,
    valid_weights: np.ndarray | None,
    num_steps: int,
    penalties: PenaltyConfig,
    rng: np.random.Generator,
) -> Settled | None:
    """The parameters after up to `num_steps` steps of gradient ascent; None where the rows set aside gain nothing.

    :param rbm: of float32.
    :param rows: [N, n_v], in random order.
    :param population: the chains of `strata.stratified`, an even number from each of its `num_strata` starts.
    :param valid: rows set aside, [N', n_v], and how much each counts, [N'].
    :param penalties: `l2` and `l1`.
    """
    at = plain.arrays(rbm)
    v = population.v.astype(at.W.dtype)
    valid = valid.astype(at.W.dtype)
    v_mean = rows.mean(axis=0, dtype=at.W.dtype)
    log_w = population.log_weights.copy()
    step = _FIRST_STEP
    best = None
    before = 0.0
    with np.errstate(over="ignore"):
        for number in range(num_steps + 1):
            # A look at the rows set aside, by log Z of the chains that do not drive.
            if number % _EVERY == 0 or number == num_steps:
                measured = result_of(log_w[1::2], v[1::2], num_strata=num_strata)
                value = float(np.average(_log_q(at, valid), weights=valid_weights)) - measured.log_z
                before = value if number == 0 else before
                if value > (before if best is None else before + best.gain):
                    best = Settled(at, measured, value - before)
            # The centred gradient: rows less the weighted mean over chains that drive.
            batch = rows[np.arange(number * _BATCH, (number + 1) * _BATCH) % len(rows)] if len(rows) > _BATCH else rows
            direction = _direction(at, batch.astype(at.W.dtype), v[::2], log_w[::2], v_mean, penalties)
            # The longest step that leaves most weights as even as they are.
            log_q = _log_q(at, v)
            least = _KEPT * effective(log_w)
            while True:
                parts = (part + np.float32(step) * d for part, d in zip(at[:3], direction, strict=True))
                new = RBM(*parts, *at[3:])
                change = _log_q(new, v) - log_q
                if effective(log_w + change) >= least:
                    break
                step /= 2
                if step < _SHORTEST_STEP:
                    return _with_tensors(best)
            at = new
            log_w += change
            step = min(_LONGER * step, _LONGEST_STEP)
            v = plain.draw_visible(at, plain.draw_units(at.hidden, plain.activations(at, v), rng), rng)
    return _with_tensors(best)


def _log_q(at: RBM, v: np.ndarray) -> np.ndarray:
    """log q~(v) but for the measure of units, which stays, [N]."""
    return np.asarray(plain.hidden_sum(at.hidden, plain.activations(at, v)) + v @ at.b, np.float64)


def _direction(
    at: RBM, rows: np.ndarray, v: np.ndarray, log_w: np.ndarray, v_mean: np.ndarray, penalties: PenaltyConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The centred gradient of the penalised log-likelihood by W, b and c."""
    w = softmax(log_w).astype(at.W.dtype)
    h_data = plain.hidden_mean(at.hidden, plain.activations(at, rows))
    h_model = plain.hidden_mean(at.hidden, plain.activations(at, v))
    h_mean = h_data.mean(axis=0)
    d_v = rows.mean(axis=0) - w @ v
    d_h = h_mean - w @ h_model
    d_W = h_data.T @ rows / len(rows) - (h_model * w[:, None]).T @ v
    d_W, d_b, d_c = plain.centred(d_W, d_v, d_h, (v_mean, h_mean))
    d_W -= np.float32(penalties.l2) * at.W + np.float32(penalties.l1) * np.sign(at.W)
    # What L1 has pulled to 0 stays there.
    return np.where(at.W == 0, np.float32(0), d_W) if penalties.l1 else d_W, d_b, d_c


def _with_tensors(best: Settled | None) -> Settled | None:
    if best is None:
        return None
    W, b, c, *units = best.rbm
    return best._replace(rbm=RBM(tf.constant(W), tf.constant(b), tf.constant(c), *units))
