"""One training step as a `tf.function`, and what to look at while training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.optimizers import NaturalGradient

from .deep_gp import DeepGP
from .layers import SVGPLayer
from .numerics import condition_number
from .quadrature import MonteCarlo

__all__ = ["LayerDiagnostics", "diagnose", "make_train_step"]


def make_train_step(
    model: DeepGP,
    optimizer: Any,
    *,
    natgrad_gamma: float | None = None,
    jit_compile: bool = False,
    strategy: tf.distribute.Strategy | None = None,
) -> Callable[[RegressionData, tf.Tensor], dict[str, tf.Tensor]]:
    """A compiled function `(batch, seed) -> scalars` that updates the parameters once.

    :param optimizer: a Keras optimizer (`tf.keras.optimizers.Adam(0.01)`) for the trainable parameters.
    :param natgrad_gamma: step size of natural gradients for the last layer's q(u), or None to leave it to `optimizer`.
        The layer's `q_mu` and `q_sqrt` have to be marked untrainable, as `modern` does.
    :param jit_compile: compile with XLA; slower on a CPU.
    :param strategy: build model and optimizer in its scope, and the batch has to be distributed over its replicas, in
        equal parts: then the step is that of one device on all their rows. Each replica takes its rows of the draws
        that one device would make (but for likelihoods that draw themselves, as Softmax, it draws its own).
    :return: the step. `seed`, int32 [2], fixes its draws. `scalars` has "elbo_nats", the bound before the update.
    :raises ValueError: if the last layer's q(u) is trainable and `natgrad_gamma` is given, or untrainable without it.
    """
    if strategy is not None:
        _mark_copies(model)
    last = model.layers[-1]
    is_left_out = not (last.q_mu.trainable or last.q_sqrt.trainable)
    if natgrad_gamma is None:
        if is_left_out:
            raise ValueError(
                "q_mu and q_sqrt of the last layer are untrainable, so nothing would train them: give natgrad_gamma, "
                "or call gpflow.set_trainable(model.layers[-1].q_mu, True), and so for q_sqrt."
            )
    elif last.q_mu.trainable or last.q_sqrt.trainable or last.q_diag:
        raise ValueError(
            "natgrad_gamma needs a full q_sqrt and q_mu and q_sqrt of the last layer marked untrainable: "
            "use gpflow.set_trainable(model.layers[-1].q_mu, False), and so for q_sqrt, or the preset `modern`."
        )
    variables = model.trainable_variables
    q_variables = [last.q_mu.unconstrained_variable, last.q_sqrt.unconstrained_variable]
    natgrad = None if natgrad_gamma is None else NaturalGradient(gamma=natgrad_gamma)
    if strategy is not None:
        with strategy.scope():
            if not optimizer.built:
                optimizer.build(variables)
        return _distributed_step(model, optimizer, natgrad, variables, q_variables, strategy)
    if not optimizer.built:
        optimizer.build(variables)

    def step(batch: RegressionData, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss(batch, seed=seed)
        bound = -loss - model.log_prior_density()  # before the parameters change
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        if natgrad is not None:
            natgrad.minimize(lambda: model.training_loss(batch, seed=seed), [(last.q_mu, last.q_sqrt)])
        return {"elbo_nats": bound}

    # Without AutoGraph, which nothing here needs, the first trace takes a quarter of the time.
    return tf.function(step, jit_compile=jit_compile, autograph=False)


def _distributed_step(
    model: DeepGP,
    optimizer: Any,
    natgrad: NaturalGradient | None,
    variables: Sequence[tf.Variable],
    q_variables: Sequence[tf.Variable],
    strategy: tf.distribute.Strategy,
) -> Callable[[RegressionData, tf.Tensor], dict[str, tf.Tensor]]:
    last = model.layers[-1]

    def bound_and_gradients(
        batch: RegressionData, seed: tf.Tensor, sources: Sequence[tf.Variable]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """This replica's share: over the replicas the results add up to those of all rows."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            context = tf.distribute.get_replica_context()
            bound = _replica_elbo(model, batch, seed, context) / context.num_replicas_in_sync
            loss = -bound - model.log_prior_density() / context.num_replicas_in_sync
        return bound, tape.gradient(loss, sources)

    def adam(batch: RegressionData, seed: tf.Tensor) -> tf.Tensor:
        bound, gradients = bound_and_gradients(batch, seed, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))  # Keras adds up those of all replicas
        return bound

    def q_gradients(batch: RegressionData, seed: tf.Tensor) -> list[tf.Tensor]:
        return bound_and_gradients(batch, seed, q_variables)[1]

    def step(batch: RegressionData, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        bound = strategy.reduce("SUM", strategy.run(adam, args=(batch, seed)), axis=None)
        if natgrad is not None:
            shares = strategy.run(q_gradients, args=(batch, seed))
            q_mu_gradient, q_sqrt_gradient = (strategy.reduce("SUM", share, axis=None) for share in shares)
            # `minimize` would not add up the gradients of the replicas.
            natgrad._natgrad_apply_gradients(q_mu_gradient, q_sqrt_gradient, last.q_mu, last.q_sqrt)
        return {"elbo_nats": bound}

    return tf.function(step, autograph=False)


def _replica_elbo(
    model: DeepGP, batch: RegressionData, seed: tf.Tensor, context: tf.distribute.ReplicaContext
) -> tf.Tensor:
    """The bound with this replica's rows of the draws for all rows; its mean over the replicas is that of all rows."""
    if not isinstance(model.integrator, MonteCarlo):
        return model.elbo(batch, seed=seed)
    X = batch[0]
    dims = [layer.num_latent_gps for layer in model.layers[:-1]]
    count = model.integrator.num_components(dims, model.num_samples)
    rows = tf.shape(X)[0]
    noise = model.integrator.noise(dims, 0, count, rows * context.num_replicas_in_sync, seed, X.dtype)
    start = rows * tf.cast(context.replica_id_in_sync_group, tf.int32)
    mine = [eps[:, start : start + rows] for eps in noise]
    return model.elbo(batch, seed=tf.random.fold_in(seed, context.replica_id_in_sync_group), noise=mine)


def _mark_copies(model: DeepGP) -> None:
    """`gpflow.set_trainable` marks a distributed variable, but TensorFlow asks its copies."""
    for variable in model.variables:
        if isinstance(variable, tf.distribute.DistributedValues) and "_trainable" in vars(variable):
            for copy in variable.values:
                copy._trainable = variable._trainable


class LayerDiagnostics(NamedTuple):
    """State of one layer, for logs.

    :ivar label: e.g. "layer 1 of 2".
    :ivar kl_nats: KL[q(u) || p(u)] in nats.
    :ivar condition_number: of Kuu as it is factorised, with noise and jitter; the worst if there are several.
    :ivar jitter: what had to be added to the diagonal of Kuu; larger than the default if a factorisation failed.
    :ivar lengthscales: of each kernel that has them, flattened.
    :ivar kernel_variances: of each kernel that has one.
    :ivar noise_variance: of the noise between layers; 0 without.
    """

    label: str
    kl_nats: float
    condition_number: float
    jitter: float
    lengthscales: np.ndarray
    kernel_variances: np.ndarray
    noise_variance: float


def diagnose(model: DeepGP) -> list[LayerDiagnostics]:
    """Look at every layer: KL, conditioning and jitter of Kuu, lengthscales, variances. Costs one factorisation each.

    A layer whose `jitter` is above `gpflow.config.default_jitter()` has a nearly singular Kuu: inducing inputs on top
    of one another, or lengthscales much longer than the distances between them.
    """
    return [_diagnose(layer) for layer in model.layers]


def _diagnose(layer: SVGPLayer) -> LayerDiagnostics:
    factors = layer.factors()
    K = tf.matmul(factors.Luu, factors.Luu, transpose_b=True)
    jitter = tf.reduce_max(tf.linalg.diag_part(K) - tf.linalg.diag_part(layer.prior_covariance()))
    kernels = layer.latent_kernels
    return LayerDiagnostics(
        label=layer.label,
        kl_nats=float(layer.prior_kl(factors)),
        condition_number=float(condition_number(K)),
        jitter=float(jitter),
        lengthscales=_values(kernels, "lengthscales"),
        kernel_variances=_values(kernels, "variance"),
        noise_variance=0.0 if layer.noise_variance is None else float(layer.noise_variance.numpy()),
    )


def _values(kernels: tuple[Any, ...], name: str) -> np.ndarray:
    values = [np.ravel(getattr(kernel, name).numpy()) for kernel in kernels if hasattr(kernel, name)]
    return np.concatenate(values) if values else np.zeros(0)
