"""The averaged parameters as a model, and its log Z: tracked as that of the parameters is.

The average of the parameters is often the better model; its particles do not exist. Those of the parameters theta are
led to it on a straight line by annealed importance sampling, with weights of the mean Z_average / Z_theta (Eq. 3 in
steps), so that the log of their mean takes the filter's log Z from one to the other:

    log Z_average = log Z_theta + log mean w.

That mean is over samples of theta, which particles in training are not: the last updates have lowered the probability
of where they are, and the average, which knows less of these updates, has more of it there. Therefore the ladder first
goes on at fixed parameters. Without that log Z_average is up to 2.5 nats too high where the rate is 0.1.
"""

import tensorflow as tf

from rbm_tracking.estimates.trajectories import anneal
from rbm_tracking.model.random import Execution
from rbm_tracking.model.rbm import activations
from rbm_tracking.track.filtering import log_mean_exp, log_z_std
from rbm_tracking.track.state import SMLState
from rbm_tracking.track.tempering import sample

__all__ = ["averaged", "model_scalars"]

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
    # Samples of the parameters, led by AIS to their average: the change of log Z
    rows = sample(state.rbm, state.chains, state.ladder.beta.numpy(), _NUM_PARTICLES, **rounds, **options)
    v = tf.constant(rows, state.rbm.W.dtype)
    _, log_weights = anneal(state.rbm, state.average, num_steps, v, seed=second, **options)
    change = log_mean_exp(log_weights)
    # Only log Z at beta = 1 moves, with the variance of the change
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
