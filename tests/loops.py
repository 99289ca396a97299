"""What trains and samples, as functions of the number of steps: small, and made anew by each call of a maker.

`LOOPS` has every compiled function that makes many steps in one call, by its name (see `compiled`); `STEPS` those that
are called once for each step; `ONCE` says why the others make none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import scipy.sparse
import tensorflow as tf

import darn
import ebp
import gpflow_deep
from compression.files.random_codes import miracle
from compression.rounding.codebook import codebook, fine_tune
from darn.train.training import Trainer as DARNTrainer
from gpflow_deep_runs.run import devices
from rbm_tracking import trajectories
from rbm_tracking.estimates import ais, trajectory_tempering
from rbm_tracking.model import rbm
from rbm_tracking.track import tempering
from rbm_tracking.track.updates import learning
from rbm_tracking.use.training import Trainer as RBMTrainer
from tests.examples import bits, normal, signs

SEED = tf.constant([3, 4])
B = 4

Loop = Callable[[int], Any]


def darn_steps() -> Loop:
    model = darn.DARN(darn.DARNConfig(visible=6, hidden=(4,)))
    trainer = DARNTrainer(model, darn.TrainingConfig(), num_data=20)
    return lambda count: trainer.advance(bits(20, 6), np.zeros([count, B], int), SEED)


def chain_steps() -> Loop:
    X, Y = normal(20, 2), normal(20, 1)
    sampler = gpflow_deep.Sampler(gpflow_deep.paper2017(X, Y, 2, num_inducing=5), X, Y)
    rows, first, temperature = np.zeros([12, B], np.int32), tf.constant(0), tf.constant(1.0, tf.float64)
    return lambda count: sampler._steps(tf.constant(rows[:count]), first, temperature)


def rbm_state() -> tuple[Any, np.ndarray]:
    data = bits(20, 6).astype(np.uint8)
    start = rbm.initial_rbm(4, seed=SEED, data=data)
    return learning.initial_state(
        start, tempering.linear_ladder(3), 4, seed=SEED, data=data, config=learning.SMLConfig.paper()
    ), data


def rbm_updates() -> Loop:
    state, data = rbm_state()
    trainer = RBMTrainer(state, learning.SMLConfig.paper(), jit_compile=False)
    return lambda count: trainer.advance(data, np.zeros([count, B], int), SEED)


def rbm_rounds() -> Loop:
    state, _ = rbm_state()
    arguments = state.rbm, state.chains, state.ladder.beta, 1
    return lambda count: tempering.sample(*arguments, burn_in=count, thin=count, seed=SEED, jit_compile=False)


def ais_temperatures() -> Loop:
    model = rbm_state()[0].rbm
    return lambda count: ais.ais(model, ais.linear_schedule(count), seed=SEED, jit_compile=False)


def annealing_steps() -> Loop:
    state, _ = rbm_state()
    arguments = state.rbm, state.rbm
    return lambda count: trajectories.anneal(*arguments, count, state.chains.v[0], seed=SEED, jit_compile=False)


def trajectory_rounds() -> Loop:
    state, _ = rbm_state()
    run = trajectory_tempering.compiled_rounds([state.rbm, state.rbm], seed=SEED, jit_compile=False)
    v = [state.chains.v[0], state.chains.v[1]]
    return lambda count: run(v, tf.constant(1), tf.constant(count))


def ebp_pass(batch_size: int = B, *, is_sparse: bool = False, jit_compile: bool = False) -> Loop:
    network = ebp.EBPNetwork((5, 4, 1), head="binary")

    def run(count: int) -> None:
        X, Y = normal(batch_size * count, 5), signs(batch_size * count, 1)
        options: dict[str, Any] = {} if is_sparse else {"jit_compile": jit_compile}
        ebp.fit_epoch(network, scipy.sparse.csr_matrix(X) if is_sparse else X, Y, batch_size=batch_size, **options)

    return run


def ebp_stream() -> Loop:
    network = ebp.EBPNetwork((5, 4, 1), head="binary")
    arrays = normal(100, 5).astype(np.float32), signs(100, 1)
    return lambda count: ebp.fit_stream(network, tf.data.Dataset.from_tensor_slices(arrays).batch(B), max_steps=count)


def tuned_centres() -> Loop:
    book = codebook(normal(6, 3), 4)
    return lambda count: fine_tune([book], lambda kernels, step: tf.reduce_sum(kernels[0] ** 2), steps=count)


def random_code_steps() -> Loop:
    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    code = miracle._empty_code(model, 400, 2, (1, 1), 0)
    posterior = miracle._Posterior(model, code, keras.losses.MeanSquaredError(), 20, 1e-3)
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(posterior.trained)
    rows = tf.data.Dataset.from_tensors((tf.constant(normal(B, 5), tf.float32), tf.constant(normal(B, 3), tf.float32)))
    run, batches = posterior.steps_function(optimizer), iter(rows.repeat())
    return lambda count: run(batches, tf.constant(count))


LOOPS: dict[str, Callable[[], Loop]] = {
    "compression.rounding.codebook.fine_tune.<locals>.run": tuned_centres,
    "compression.files.random_codes.miracle._Posterior.steps_function.<locals>.run": random_code_steps,
    "darn.train.training.Trainer.compiled_steps.<locals>.run": darn_steps,
    "ebp.training.loops.dense_epoch.<locals>.epoch": ebp_pass,
    "ebp.training.loops.sparse_epoch.<locals>.epoch": partial(ebp_pass, is_sparse=True),
    "ebp.training.loops.stream_epoch.<locals>.stream": ebp_stream,
    "ebp.training.online.online_epoch.<locals>.epoch": partial(ebp_pass, 1, jit_compile=True),
    "gpflow_deep.posteriors.sampling.Sampler._steps.<locals>.steps": chain_steps,
    "rbm_tracking.estimates.annealing._chunk": ais_temperatures,
    "rbm_tracking.track.updates.learning._compiled.<locals>.run": rbm_updates,
    "rbm_tracking.track.tempering._rounds_plain": rbm_rounds,
    "rbm_tracking.estimates.trajectories._piece_plain": annealing_steps,
    "rbm_tracking.estimates.trajectory_tempering.compiled_rounds.<locals>.rounds": trajectory_rounds,
}


def dgp_steps(batch_size: int = 20) -> Loop:
    X, Y = normal(20, 2), normal(20, 1)
    trainer = gpflow_deep.Trainer(gpflow_deep.paper2017(X, Y, 2, num_inducing=5))
    everything = tf.constant(X), tf.constant(Y)
    minibatch = X[:batch_size], Y[:batch_size]
    is_whole = batch_size == len(X)
    batch_at = lambda step: everything if is_whole else tuple(map(tf.constant, minibatch))  # noqa: E731
    return lambda count: trainer.advance(batch_at, 0, count, SEED)


def replica_steps() -> Loop:
    weights, batch = tf.Variable(tf.zeros([5])), tf.constant(normal(20, 5), tf.float32)

    def loss(batch: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return tf.reduce_mean((tf.linalg.matvec(batch, weights) - 1.0) ** 2), {}

    step = devices.make_train_step(None, loss, keras.optimizers.Adam(), [weights])
    return lambda count: [step(batch, SEED) for _ in range(count)]


def dgp_losses() -> Loop:
    X, Y = normal(20, 2), normal(20, 1)
    data = tf.constant(X), tf.constant(Y)
    closure = gpflow_deep.paper2017(X, Y, 2, num_inducing=5).training_loss_closure(data, seed=SEED)
    return lambda count: [closure() for _ in range(count)]


STEPS: dict[str, Callable[[], Loop]] = {
    "gpflow_deep_runs.run.devices.make_train_step.<locals>.step": replica_steps,
    "gpflow_deep.model.deep_gp.DeepGP.training_loss_closure.<locals>.closure": dgp_losses,
    "gpflow_deep.train.training.make_train_step.<locals>.step": dgp_steps,
}

ONCE = {
    "darn.model.description_length.compiled_code_lengths.<locals>.make.<locals>.run": "part of an evaluation's rows",
    "darn.more.distribution._compiled.<locals>.run": "the rows of a call of log_prob",
    "darn.model.description_length._compiled_importance.<locals>.run": "part of an evaluation's rows",
    "darn.model.description_length._compiled_exact.<locals>.block": "part of an evaluation's rows",
    "darn.model.autoregressive.Sampler.__init__.<locals>.<lambda>": "all draws",
    "ebp.network.network._compiled_moments.<locals>.moments": "a part of the rows of a prediction",
    "gpflow_deep.model.deep_gp.DeepGP.training_loss_closure.<locals>.loss": "takes its rows from an iterator",
    "gpflow_deep.keras.prediction.Predictor._outputs": "a part of the rows of a prediction",
    "gpflow_deep.train.predictor.Predictor._compiled.<locals>.moments": "a part of the rows of a prediction",
    "gpflow_deep.posteriors.sampling.Sampler._hyper_step.<locals>.step": "one for four steps of a chain",
    "gpflow_deep.train.training._distributed_step.<locals>.step": "of several devices: their rows come from the host",
    "rbm_tracking.use.estimator._update.<locals>.run": "the batch of a `partial_fit`, which its caller hands over",
    "rbm_tracking.model.exact._block": "a part of the sum",
}
