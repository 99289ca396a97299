"""Short calls of everything that the packages compile, by the name of what they compile; see `compiled`.

Arrays have sizes as in use: TensorFlow makes constants of small ones, which in the memory of a GPU would be made there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from unittest import mock

import keras
import numpy as np
import scipy.sparse
import tensorflow as tf
from gpflow.likelihoods import Gaussian

import compression
import darn
import ebp
import gpflow_deep
import gpflow_deep.keras
from compression import networks
from compression.rounding.codebook import codebook, fine_tune
from darn.train.training import Trainer as DARNTrainer
from gpflow_deep.model.scaling import Scale
from gpflow_deep_base.numbers.groups import by_group
from gpflow_deep_runs.run import devices
from rbm_tracking import trajectories
from rbm_tracking.estimates import ais, trajectory_tempering
from rbm_tracking.model import exact, rbm, visible
from rbm_tracking.model.families import softmax
from rbm_tracking.track import tempering
from rbm_tracking.track.updates import learning
from rbm_tracking.use.estimator import TrackedRBM
from rbm_tracking.use.estimator_config import LadderConfig, TrainingConfig
from rbm_tracking.use.training import Trainer as RBMTrainer

SEED = tf.constant([1, 2])
N, D = 500, 11

Call = Callable[[], Any]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def bits(*shape: int) -> np.ndarray:
    return (normal(*shape) > 0.5).astype(np.float32)


def signs(*shape: int) -> np.ndarray:
    return 2 * bits(*shape) - 1


# Deep Gaussian processes.


def regression(**options: Any) -> gpflow_deep.DeepGP:
    return gpflow_deep.paper2017(normal(N, D), normal(N, 1), 2, num_inducing=100, **options)


def dgp_step(task: Any = "regression", *, is_mirrored: bool = False, **config: Any) -> None:
    X, Y = normal(N, D), normal(N, 1) if task == "regression" else np.arange(float(N))[:, None] % 3
    strategy = tf.distribute.MirroredStrategy(["CPU:0"]) if is_mirrored else None
    with devices.scope(strategy):
        model = gpflow_deep.ModelConfig(**config).for_task(task, [Y]).build(X, Y, num_classes=3)
    batch = tuple(map(tf.constant, (X, Y)))
    gpflow_deep.Trainer(model, strategy=strategy).advance(lambda step: batch, 0, 1, SEED)


def dgp_images() -> None:
    """A convolutional layer, and a weighted one."""
    images = gpflow_deep.ImageConfig((28, 28), stride=2)
    config = gpflow_deep.ModelConfig(kernel="convolutional", images=images, num_inducing=50)
    X, Y = normal(100, 784), np.arange(100.0)[:, None] % 3
    model = config.for_task("multiclass").build(X, Y, num_classes=3)
    gpflow_deep.Trainer(model).advance(lambda step: tuple(map(tf.constant, (X, Y))), 0, 1, SEED)


def dgp_softmax_step() -> None:
    """As on a machine with a GPU."""
    gpus = [tf.config.LogicalDevice("/device:GPU:0", "GPU")]
    with mock.patch.object(tf.config, "list_logical_devices", return_value=gpus):
        dgp_step("multiclass", likelihood="softmax")


def dgp_chain(*, is_moving: bool = False) -> None:
    """Steps of a chain, or one of the hyperparameters that move with it."""
    steps = {"burn_in": 4, "sampling_steps": 4, "hyper_steps": 4, "window": 4}
    config = gpflow_deep.SamplingConfig(num_kept=4, temperature=1.0, **steps)
    sampler = gpflow_deep.Sampler(regression(), normal(N, D), normal(N, 1), config)
    if is_moving:
        sampler._move(8, tf.range(N))
    sampler.advance(0, 2)


def dgp_evaluation() -> None:
    units = gpflow_deep.Units(Scale.identity(D), Scale.identity(1))
    gpflow_deep.Predictor(regression(), units).evaluate(normal(N, D), normal(N, 1))


def dgp_loss(is_iterator: bool) -> None:
    data = tuple(map(tf.constant, (normal(N, D), normal(N, 1))))
    rows = iter(tf.data.Dataset.from_tensors(data).repeat()) if is_iterator else data
    regression().training_loss_closure(rows, seed=SEED)()


def keras_model() -> keras.Model:
    gps = [gpflow_deep.keras.GPLayer(size, num_data=N, num_inducing=50) for size in (20, 1)]
    return keras.Sequential([keras.Input([D]), keras.layers.Dense(20, "tanh"), *gps])


# Networks of bits.

LOCAL_UNITS = darn.LocalConfig((28, 28), (7, 3), (7, 1), (8, 4), stochastic=True)
PIXELCNN = darn.PixelCNNConfig((28, 28))


def darn_model(**config: Any) -> darn.DARN:
    return darn.DARN(
        darn.DARNConfig(**{"visible": 784, "hidden": (500,), "visible_conditional": "factorial", **config})
    )


def darn_step(training: Mapping[str, Any] | None = None, *, jit_compile: bool = False, **config: Any) -> None:
    settings = darn.TrainingConfig(**by_group(darn.TrainingConfig, training or {}))
    trainer = DARNTrainer(darn_model(**config), settings, num_data=N, jit_compile=jit_compile)
    trainer.advance(bits(N, 784).astype(np.uint8), np.zeros([3, 100], int), SEED)


def rbm_start(n_h: int = 500, units: str = "bernoulli") -> tuple[Any, np.ndarray]:
    groups = tuple(tuple(range(first, first + 8)) for first in range(0, 784, 8))
    families: dict[str, Any] = {"bernoulli": visible.Bernoulli(), "softmax": softmax.Softmax(784, groups)}
    families["gaussian"] = visible.Gaussian(np.ones(784), is_learnt=True)
    data = {"gaussian": normal(N, 784), "softmax": np.eye(8, dtype=np.uint8)[np.arange(98 * N) % 8].reshape(N, 784)}
    rows = data.get(units, bits(N, 784).astype(np.uint8))
    model = rbm.initial_rbm(n_h, seed=SEED, data=rows, visible=families[units])
    return learning.initial_state(
        model, tempering.linear_ladder(10), 20, seed=SEED, data=rows, config=learning.SMLConfig.paper()
    ), rows


def rbm_updates(jit_compile: bool, units: str = "bernoulli", **config: Any) -> None:
    state, data = rbm_start(units=units)
    trainer = RBMTrainer(state, learning.SMLConfig.paper(**config), jit_compile=jit_compile)
    trainer.advance(data, np.zeros([3, 100], int), SEED)


def rbm_partial_fit(jit_compile: bool) -> None:
    data = bits(50, 20).astype(np.uint8)
    training = TrainingConfig(ladder=LadderConfig(3, 4), jit_compile=jit_compile, generator="threefry")
    TrackedRBM(8, training=training, random_state=0).partial_fit(data)


def rbm_samples(jit_compile: bool) -> None:
    state, _ = rbm_start()
    tempering.sample(state.rbm, state.chains, state.ladder.beta, 20, seed=SEED, jit_compile=jit_compile)


def rbm_annealing(jit_compile: bool, units: str = "bernoulli") -> None:
    state, _ = rbm_start(units=units)
    trajectories.anneal(state.rbm, state.rbm, 3, state.chains.v[0], seed=SEED, jit_compile=jit_compile)


def rbm_trajectory(jit_compile: bool) -> None:
    state, _ = rbm_start()
    run = trajectory_tempering.compiled_rounds([state.rbm, state.rbm], seed=SEED, jit_compile=jit_compile)
    run([state.chains.v[0], state.chains.v[1]], tf.constant(1), tf.constant(2))


def rbm_ais(jit_compile: bool, units: str = "bernoulli", **options: Any) -> None:
    ais.ais(rbm_start(units=units)[0].rbm, ais.linear_schedule(50), seed=SEED, jit_compile=jit_compile, **options)


# Expectation backpropagation.


def ebp_epoch(prior: Any = "binary", *, is_sparse: bool = False, head: str = "multiclass", **options: Any) -> None:
    X, outputs = normal(N, 783), 1 if head == "binary" else 10
    network = ebp.EBPNetwork((783, 120, outputs), prior, head=head)
    Y = {"regression": normal(N, 10), "softmax": 2 * np.eye(10)[np.arange(N) % 10] - 1}.get(head, signs(N, outputs))
    ebp.fit_epoch(network, scipy.sparse.csr_matrix(X * bits(N, 783)) if is_sparse else X, Y, **options)


def ebp_stream(is_sparse: bool) -> None:
    network = ebp.EBPNetwork((783, 120, 10), head="multiclass")
    rows = normal(N, 783).astype(np.float32)
    rows = tf.sparse.from_dense(rows * bits(N, 783)) if is_sparse else rows
    ebp.fit_stream(network, tf.data.Dataset.from_tensor_slices((rows, signs(N, 10))).batch(10))


def ebp_prediction(prior: Any = "binary", *, is_sparse: bool = False, **options: Any) -> None:
    X = normal(N, 783)
    network = ebp.EBPNetwork((783, 120, 10), prior, head="multiclass", **options)
    network.predict_moments(scipy.sparse.csr_matrix(X * bits(N, 783)) if is_sparse else X)


# Bayesian compression.


def tuned_centres() -> None:
    weights = normal(300, 100)
    fine_tune([codebook(weights, 8)], lambda kernels, step: tf.reduce_sum(kernels[0] ** 2), steps=5)


def coded_network() -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tempfile.TemporaryDirectory() as folder:
        compression.random_code(
            *(networks.lenet_300_100(), f"{folder}/n.bcz", normal(N, 28, 28, 1).astype("float32"), np.arange(N) % 10),
            loss=loss,
            num_bytes=300,
            epochs=0.05,
            code_epochs=0,
        )


# What the packages compile.


def replica_step() -> None:
    weights = tf.Variable(tf.zeros([D]))

    def loss(batch: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return tf.reduce_mean((tf.linalg.matvec(batch, weights) - 1.0) ** 2), {}

    step = devices.make_train_step(None, loss, keras.optimizers.Adam(), [weights])
    step(tf.constant(normal(N, D), tf.float32), SEED)


COMPILED: dict[str, dict[str, Call]] = {
    "compression.rounding.codebook.fine_tune.<locals>.run": {"": tuned_centres},
    "compression.files.random_codes.miracle._Posterior.steps_function.<locals>.run": {"": coded_network},
    "darn.model.description_length.compiled_code_lengths.<locals>.make.<locals>.run": {
        "": lambda: darn.description_length(darn_model(), bits(N, 784), seed=SEED),
    },
    "darn.more.distribution._compiled.<locals>.run": {
        "": lambda: darn_model().log_prob(bits(N, 784), num_samples=5),
        "exact": lambda: darn_model(hidden=(12,)).log_prob(bits(N, 784)),
    },
    "darn.model.description_length._compiled_exact.<locals>.block": {
        "factorial": lambda: darn.exact_log_likelihood(darn_model(hidden=(12,)), bits(N, 784)),
        "made": lambda: darn.exact_log_likelihood(darn_model(hidden=(12,), visible_conditional="made"), bits(N, 784)),
    },
    "darn.model.description_length._compiled_importance.<locals>.run": {
        "": lambda: darn.importance_log_likelihood(darn_model(), bits(N, 784), seed=SEED),
        "XLA": lambda: darn.importance_log_likelihood(darn_model(), bits(N, 784), seed=SEED, jit_compile=True),
    },
    "darn.model.autoregressive.Sampler.__init__.<locals>.<lambda>": {
        "": lambda: darn.Sampler(darn_model())(10, SEED),
        "pixelcnn": lambda: darn.Sampler(darn_model(visible_conditional="pixelcnn", pixelcnn=PIXELCNN))(10, SEED),
        "XLA": lambda: darn.Sampler(darn_model(visible_conditional="nade"), jit_compile=True)(10, SEED),
    },
    "darn.train.training.Trainer.compiled_steps.<locals>.run": {
        "": darn_step,
        "XLA": partial(darn_step, jit_compile=True),
        "rloo": partial(darn_step, {"estimator": "rloo", "optimizer": "rmsprop", "clip_norm": 1.0, "average": 0.99}),
        "weight noise": partial(darn_step, {"weight_noise": "reparameterised", "sparsity": 0.05}),
        "autoregressive": partial(darn_step, encoder="made", prior="eonade", visible_conditional="nade", units=(100,)),
        "local": partial(darn_step, local=darn.LocalConfig((28, 28)), visible_conditional="local"),
        "stack": partial(darn_step, local=LOCAL_UNITS, hidden=(*LOCAL_UNITS.hidden, 100)),
        "pixelcnn": partial(darn_step, visible_conditional="pixelcnn", pixelcnn=PIXELCNN),
    },
    "ebp.training.loops.dense_epoch.<locals>.epoch": {
        "binary": partial(ebp_epoch, batch_size=10, jit_compile=False),
        "real": partial(ebp_epoch, "real", batch_size=10, jit_compile=False, head="softmax"),
        "ternary": partial(ebp_epoch, "ternary", batch_size=10, jit_compile=False, head="regression"),
        "XLA": partial(ebp_epoch, batch_size=10, jit_compile=True),
    },
    "ebp.training.loops.sparse_epoch.<locals>.epoch": {
        "batches": partial(ebp_epoch, is_sparse=True, batch_size=10),
        "rows": partial(ebp_epoch, is_sparse=True, head="binary"),
    },
    "ebp.training.loops.stream_epoch.<locals>.stream": {
        "dense": partial(ebp_stream, False),
        "sparse": partial(ebp_stream, True),
    },
    "ebp.network.network._compiled_moments.<locals>.moments": {
        "dense": ebp_prediction,
        "sparse": partial(ebp_prediction, is_sparse=True),
        "full covariance": partial(ebp_prediction, "real", covariance="full"),
    },
    "ebp.training.online.online_epoch.<locals>.epoch": {
        "binary": partial(ebp_epoch, jit_compile=True),
        "real": partial(ebp_epoch, "real", jit_compile=True, head="softmax"),
    },
    "gpflow_deep_runs.run.devices.make_train_step.<locals>.step": {"": replica_step},
    "gpflow_deep.model.deep_gp.DeepGP.training_loss_closure.<locals>.closure": {"": partial(dgp_loss, False)},
    "gpflow_deep.model.deep_gp.DeepGP.training_loss_closure.<locals>.loss": {"": partial(dgp_loss, True)},
    "gpflow_deep.keras.prediction.Predictor._outputs": {
        "": lambda: gpflow_deep.keras.Predictor(keras_model(), Gaussian()).predict(normal(N, D)),
    },
    "gpflow_deep.train.predictor.Predictor._compiled.<locals>.moments": {"": dgp_evaluation},
    "gpflow_deep.posteriors.sampling.Sampler._hyper_step.<locals>.step": {"": partial(dgp_chain, is_moving=True)},
    "gpflow_deep.posteriors.sampling.Sampler._steps.<locals>.steps": {"": dgp_chain},
    "gpflow_deep.train.training._distributed_step.<locals>.step": {
        "": partial(dgp_step, is_mirrored=True, natgrad=True)
    },
    "gpflow_deep.train.training.make_train_step.<locals>.step": {
        "mixed": dgp_step,
        "fast": partial(dgp_step, precision="fast"),
        "full, natural gradients": partial(dgp_step, precision="full", natgrad=True),
        "not whitened, Student": partial(dgp_step, whiten=False, likelihood="studentt", input_propagation=True),
        "robustmax": partial(dgp_step, "multiclass"),
        "softmax": dgp_softmax_step,
        "convolutional": dgp_images,
    },
    "rbm_tracking.estimates.annealing._chunk": {
        "": partial(rbm_ais, False),
        "XLA": partial(rbm_ais, True, generator="hash", base_b=np.zeros(784)),
        **{units: partial(rbm_ais, False, units) for units in ("softmax", "gaussian")},
    },
    "rbm_tracking.use.estimator._update.<locals>.run": {
        "": partial(rbm_partial_fit, False),
        "XLA": partial(rbm_partial_fit, True),
    },
    "rbm_tracking.model.exact._block": {"": lambda: exact.log_z_exact(rbm.initial_rbm(25, n_v=784, seed=SEED))},
    "rbm_tracking.track.updates.learning._compiled.<locals>.run": {
        "": partial(rbm_updates, False),
        "XLA": partial(rbm_updates, True),
        "adaptive": partial(rbm_updates, False, adaptive=True, centred=True),
        "hash": partial(rbm_updates, False, generator="hash", gradient_chains=10),
        **{units: partial(rbm_updates, False, units) for units in ("softmax", "gaussian")},
    },
    "rbm_tracking.estimates.trajectories._piece_plain": {
        "": partial(rbm_annealing, False),
        **{units: partial(rbm_annealing, False, units) for units in ("softmax", "gaussian")},
        "XLA": partial(rbm_annealing, True),
    },
    "rbm_tracking.estimates.trajectory_tempering.compiled_rounds.<locals>.rounds": {
        "": partial(rbm_trajectory, False),
        "XLA": partial(rbm_trajectory, True),
    },
    "rbm_tracking.track.tempering._rounds_plain": {
        "": partial(rbm_samples, False),
        "XLA": partial(rbm_samples, True),
    },
}
"""Calls by what they compile, and by what is special about them."""

LEFT_OUT = {
    "darn.more.distribution.export.<locals>.draw": "is traced by saving it, with operations of `darn.Sampler`",
    "darn.more.distribution.export.<locals>.score": "is traced by saving it, with operations of `DARN.log_prob`",
    "gpflow_deep_runs.run.devices._of_all_replicas.<locals>.gather": "compares the workers when a run starts and when "
    "it is evaluated, not in a step",
    "gpflow_deep.trieste.Draws._values": "calls compiled functions from Python, as trieste asks for values",
    "gpflow_deep.trieste.Trajectory._values": "the same",
    "gpflow_deep.files.stored_keras._spec.<locals>.initial_value": "is traced for the shape of its result alone",
}
"""What need not run on a GPU, and why not."""


# What users compile themselves.


def prediction(name: str, **options: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    X, Y = tf.constant(normal(N, D)), tf.constant(normal(N, 1))
    return getattr(regression(**options), name), ((X, Y),) if name == "predict_log_density" else (X,)


def cached_prediction(**options: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return regression().posterior(**options).predict_y, (tf.constant(normal(N, D)),)


def keras_step() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    model = keras.Sequential([*keras_model().layers, gpflow_deep.keras.LikelihoodLayer(Gaussian())])
    model.compile("adam", gpflow_deep.keras.DeepGPLikelihoodLoss())
    batch = tuple(tf.constant(rows, tf.float32) for rows in (normal(N, D), normal(N, 1)))
    model(batch[0])
    model.optimizer.build(model.trainable_variables)
    return model.train_step, (batch,)


def network_prediction(prior: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    model = compression.compress(networks.lenet_300_100(), num_train=N, prior=prior)
    return partial(model, training=False), (tf.constant(normal(N, 28, 28, 1), tf.float32),)


BY_USERS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "predict_f": partial(prediction, "predict_f"),
    "predict_y, full": partial(prediction, "predict_y", precision="full"),
    "predict_log_density, fast": partial(prediction, "predict_log_density", precision="fast"),
    "cached": cached_prediction,
    "cached, float32": partial(cached_prediction, dtype=tf.float32),
    "keras": keras_step,
    "compressed": partial(network_prediction, "gnj"),
}
"""Functions of models that are made for being compiled, with arguments."""
