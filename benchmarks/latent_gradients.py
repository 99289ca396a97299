#!/usr/bin/env python3
"""How noisy are gradients of the importance-weighted bound with respect to q(w), against the number K of samples?

    latent_gradients.py --threads=1 --output=found.json

Two layers on [x, w] for y = +-sin(2x) + noise, after --num_steps steps with K = 5. Then, with these parameters, --draws
gradients of the bound of the same 100 rows with respect to the encoder's weights, for each K: by the doubly
reparametrised estimator, which `DeepGP.elbo` has, and by automatic differentiation of the bound as it is written, draws
of the inner layer among it. Shown are the signal-to-noise ratio |mean| / standard deviation, the median over all
weights, and the norm of the mean.
"""

import bench
import numpy as np
import tensorflow as tf
from absl import flags
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import Identity

from gpflow_deep import DeepGP, Encoder, LatentVariableLayer, SVGPLayer, Trainer, TrainingConfig, inducing_inputs
from gpflow_deep.model.likelihoods import variational_expectations

COUNTS = (1, 5, 20, 80)


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_integer("num_steps", 500, "Steps of training.", 1, flag_values=fv)
    flags.DEFINE_integer("draws", 200, "Gradients for each K.", 2, flag_values=fv)
    bench.define_common(fv)


def untrained(X: np.ndarray) -> DeepGP:
    """Two layers on [x, w]."""
    latent = LatentVariableLayer(1, 1, encoder=Encoder(2, 1))
    Z = latent.extend(inducing_inputs(X, 60))
    kernels = [SquaredExponential(lengthscales=np.ones(2)) for _ in range(2)]
    inner = SVGPLayer(kernels[0], Z, num_latent_gps=2, mean_function=Identity(), q_sqrt_scale=1e-5)
    layers = [latent, inner, SVGPLayer(kernels[1], Z, num_latent_gps=1)]
    return DeepGP(layers, Gaussian(0.05), num_data=len(X), num_importance_samples=5)


def plain_bound(model: DeepGP, X: tf.Tensor, Y: tf.Tensor, K: int, seed: tf.Tensor) -> tf.Tensor:
    """sum_n log 1/K sum_k p(y_n | w_nk) p(w_nk) / q(w_nk) as it is written, w = a + b eps; one draw of the inner layer
    at the K inputs of a row, by the Cholesky factor of their covariance."""
    latent, inner, last = model.layers
    # w = a + b eps.
    mean, std = (part[:, None] for part in latent.posterior(X, Y))
    eps, noise = (
        tf.random.stateless_normal([len(X), K, layer.num_latent_gps], tf.random.fold_in(seed, i), dtype=X.dtype)
        for i, layer in enumerate((latent, inner))
    )
    w = mean + std * eps
    # The inner layer at the K inputs of a row, by their joint covariance.
    _, part, of_last = model.factors()
    inputs = tf.concat([tf.repeat(X[:, None], K, axis=1), w], axis=-1)  # [B, K, 2]
    F = inner.sample(inputs, inner.latent_moments(inputs, part, full_cov=True), noise, full_cov=True)
    f_mean, f_var = (tf.transpose(moment, [1, 0, 2]) for moment in last.predict(F, factors=of_last))  # [K, B, 1] each
    # The terms of each w, and the log of their mean.
    ratio = 0.5 * tf.square(eps) + tf.math.log(std) - 0.5 * tf.square(w)  # log p(w) - log q(w)
    terms = variational_expectations(model.likelihood, X, f_mean, f_var, Y, seed)
    terms = terms + tf.transpose(tf.reduce_sum(ratio, axis=-1))
    return tf.reduce_sum(tf.reduce_logsumexp(terms, axis=0) - np.log(K))


def gradients(model: DeepGP, X: tf.Tensor, Y: tf.Tensor, K: int, *, is_plain: bool, draws: int) -> np.ndarray:
    """Gradients of the bound of these rows with respect to the encoder's weights, [draws, weights]."""
    model.num_importance_samples = K
    model.num_data = None
    weights = model.layers[0].trainable_variables

    @tf.function(autograph=False)
    def gradient(seed: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            bound = plain_bound(model, X, Y, K, seed) if is_plain else model.elbo((X, Y), seed=seed)
        return tf.concat([tf.reshape(part, [-1]) for part in tape.gradient(bound, weights)], axis=0)

    return np.stack([gradient(tf.constant([K, t])).numpy() for t in range(draws)])


def main(FLAGS: flags.FlagValues) -> None:
    results = list[bench.Row]()
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 1))
    Y = rng.choice([-1, 1], (400, 1)) * np.sin(2 * X) + 0.05 * rng.standard_normal((400, 1))
    # A model that is trained a little, at which all gradients are taken.
    model = untrained(X)
    batches = [rng.integers(400, size=100) for _ in range(FLAGS.num_steps)]
    seed = tf.constant([0, 0])
    trainer = Trainer(model, TrainingConfig(learning_rate=0.01), num_steps=FLAGS.num_steps)
    trainer.advance(lambda t: (tf.constant(X[batches[t]]), tf.constant(Y[batches[t]])), 0, FLAGS.num_steps, seed)
    rows = tf.constant(X[:100]), tf.constant(Y[:100])
    for K in COUNTS:
        for name in ("doubly reparametrised", "as it is written"):
            draws = gradients(model, *rows, K, is_plain=name == "as it is written", draws=FLAGS.draws)
            mean = draws.mean(axis=0)
            std = draws.std(axis=0)
            ratio = np.median(np.abs(mean) / np.maximum(std, 1e-300))
            norm = np.linalg.norm(mean)
            results.append({"K": K, "estimator": name, "ratio": round(float(ratio), 4), "norm": round(float(norm), 4)})
            print(results[-1], flush=True)
    bench.keep({"metrics": results}, "simulated")


if __name__ == "__main__":
    bench.run(define_flags, main)
