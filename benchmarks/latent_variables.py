#!/usr/bin/env python3
"""What does a latent variable add where Gaussian noise does not fit: two branches, skewed or uneven noise, tables?

    latent_variables.py --threads=1 --output=found.json
    latent_variables.py --data=taxi,boston,energy --data_dir=DATA --num_steps=3000 --output=tables.json

Simulated, 400 rows to train with and 400 to test with, for each seed:

    branches  y = +-sin(2x) + 0.05 noise, each sign with probability 1/2. With known parameters a row has 0.88 nats
              where the branches are apart.
    skewed    y = sin(3x) / 2 + (0.05 + 0.4 sigmoid(3x)) (e - 1) with exponential e: the noise has a tail, and a scale
              that depends on x. With known parameters a row has 0.70 nats.

Any other name is a data set with a table, in its standard split of that number. Models: a GP, two layers, two layers on
[x, w] (`LatentVariableLayer` with its encoder) with K = 1, 5 and 20 importance samples, all with Gaussian noise or
that of Student's t (--noise), and a mixture-density network: two layers of 64 tanh, ten Gaussians, Adam 0.001, after
the best epoch for a tenth of the rows, trained for as many CPU seconds as K = 5 (put `mdn` behind `latent_5`). M = 60
for simulated rows, else 100; --num_steps minibatches of --batch_size rows, Adam 0.03, the package's rate for
minibatches.
Shown are the mean test log density in nats per row, in the units of the data, and CPU seconds of training.
"""

import time
from collections.abc import Callable

import bench
import numpy as np
import tensorflow as tf
from absl import app, flags
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian, Likelihood, StudentT
from gpflow.mean_functions import Identity
from numpy.typing import NDArray

from gpflow_deep import (
    DeepGP,
    Encoder,
    LatentConfig,
    LatentVariableLayer,
    ModelConfig,
    SVGPLayer,
    Trainer,
    TrainingConfig,
    inducing_inputs,
)

Array = NDArray[np.float64]

MODELS = {"gp": (1, 0), "two_layers": (2, 0), "latent_1": (2, 1), "latent_5": (2, 5), "latent_20": (2, 20)}
"""Numbers of layers, and of importance samples: 0 for none of the latent variables."""

RATE = 0.03
COMPONENTS = 10
WIDTH = 64
NETWORK_BATCH = 100


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("data", ["branches"], "branches, skewed, or data sets.", flag_values=fv)
    flags.DEFINE_list("models", list(MODELS), f"Some of {', '.join(MODELS)}, mdn.", flag_values=fv)
    flags.DEFINE_enum("noise", "gaussian", ["gaussian", "studentt"], "Of the deep GPs.", flag_values=fv)
    flags.DEFINE_integer("num_steps", 1500, "Steps of training.", 1, flag_values=fv)
    flags.DEFINE_integer("batch_size", 100, "Rows of a minibatch.", 1, flag_values=fv)
    flags.DEFINE_integer("seeds", 3, "Seeds of data and models; of tables the splits.", 1, flag_values=fv)
    flags.DEFINE_string("data_dir", "data", "Folder of the data sets.", flag_values=fv)
    bench.define_common(fv, output="Keep the results in this JSON file; go on with what it has.")


def branches(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Inputs and targets [count, 1]."""
    x = rng.uniform(-2, 2, (count, 1))
    return x, rng.choice([-1, 1], (count, 1)) * np.sin(2 * x) + 0.05 * rng.standard_normal((count, 1))


def skewed(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Inputs and targets [count, 1]."""
    x = rng.uniform(-2, 2, (count, 1))
    scale = 0.05 + 0.4 / (1 + np.exp(-3 * x))
    return x, np.sin(3 * x) / 2 + scale * (rng.exponential(size=(count, 1)) - 1)


SIMULATED: dict[str, Callable[[np.random.Generator, int], tuple[Array, Array]]] = {
    "branches": branches,
    "skewed": skewed,
}


def parts_of(name: str, rng: np.random.Generator, seed: int, data_dir: str) -> bench.Standardised:
    """Simulated rows as they are; of a table the split of this number, in standard units."""
    if name in SIMULATED:
        return bench.Standardised(*SIMULATED[name](rng, 400), *SIMULATED[name](rng, 400))
    return bench.standardised(name, data_dir, seed, valid_fraction=0.0)


def noise_model(name: str, variance: float) -> Likelihood:
    """Gaussian noise, or that of Student's t with three degrees of freedom, of this variance."""
    return Gaussian(variance) if name == "gaussian" else StudentT(scale=float(np.sqrt(variance / 3)), df=3.0)


def simulated_model(X: Array, num_layers: int, K: int, likelihood: Likelihood, seed: int) -> DeepGP:
    """A model before training; K = 0 for none of the latent variables."""
    # Latent variables of the rows are another column of the inputs.
    Z = inducing_inputs(X, 60, seed=seed)
    layers = []
    if K:
        latent = LatentVariableLayer(1, 1, encoder=Encoder(2, 1, seed=seed))
        Z = latent.extend(Z, seed=seed)
        layers = [latent]
    # Inner layers begin as the identity, with little noise.
    D = Z.shape[1]
    for _ in range(num_layers - 1):
        kernel = SquaredExponential(lengthscales=np.ones(D))
        mean = Identity()
        layers.append(SVGPLayer(kernel, Z, num_latent_gps=D, mean_function=mean, q_sqrt_scale=1e-5))
    layers.append(SVGPLayer(SquaredExponential(lengthscales=np.ones(D)), Z, num_latent_gps=1))
    draws = 512 if K else 32
    return DeepGP(layers, likelihood, num_data=len(X), num_importance_samples=max(K, 1), num_predict_samples=draws)


def table_model(X: Array, Y: Array, num_layers: int, K: int, noise: str, seed: int) -> DeepGP:
    """The package's preset, on [x, w] if K is not 0."""
    options: bench.Row = {"likelihood": noise}
    if K:
        options |= {"latents": LatentConfig(1, K), "num_predict_samples": 512}
    return ModelConfig(num_layers, preset="modern", **options).build(X, Y, seed=seed)


def deep_gp_score(
    name: str, model: str, noise: str, parts: bench.Standardised, batches: list[NDArray[np.int64]], seed: int
) -> dict[str, float]:
    """Train one of `MODELS`: test log density and CPU seconds."""
    # Simulated rows have a model by hand, tables that of the preset.
    num_layers, K = MODELS[model]
    begin = time.process_time()
    if name in SIMULATED:
        built = simulated_model(parts.X, num_layers, K, noise_model(noise, 0.05), seed)
    else:
        built = table_model(parts.X, parts.Y, num_layers, K, noise, seed)
    trainer = Trainer(built, TrainingConfig(learning_rate=RATE), num_steps=len(batches))
    rows = [(tf.constant(parts.X[index]), tf.constant(parts.Y[index])) for index in batches]
    trainer.advance(rows.__getitem__, 0, len(batches), tf.constant([0, seed]))
    seconds = time.process_time() - begin
    # In pieces of 200 rows, as each has many draws of w.
    log_densities = [
        np.asarray(built.predict_log_density((parts.X_test[start : start + 200], parts.Y_test[start : start + 200])))
        for start in range(0, len(parts.X_test), 200)
    ]
    return {"log_density": float(np.mean(np.concatenate(log_densities))) - parts.log_scale, "seconds": seconds}


def mixture_log_density(outputs: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """Log density [N] of targets [N, 1] under the mixtures that a network's outputs [N, 3 components] describe."""
    logits, mean, raw = tf.split(outputs, 3, axis=-1)
    variance = tf.nn.softplus(raw) ** 2 + 1e-6
    terms = -0.5 * (tf.math.log(2 * np.pi * variance) + tf.square(Y - mean) / variance)
    return tf.reduce_logsumexp(tf.nn.log_softmax(logits) + terms, axis=-1)


class BestInTime(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Ends a fit after so many CPU seconds, with the weights of the best epoch for held-out rows."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.end = time.process_time() + seconds
        self.best = np.inf
        self.weights = None

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        loss = (logs or {})["val_loss"]
        if loss < self.best:
            self.best = loss
            self.weights = self.model.get_weights()
        self.model.stop_training = time.process_time() > self.end

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        self.model.set_weights(self.weights)


def network_score(parts: bench.Standardised, seconds: float, seed: int) -> dict[str, float]:
    """A mixture-density network trained for so long."""
    tf.keras.utils.set_random_seed(seed)
    dense = tf.keras.layers.Dense
    network = tf.keras.Sequential([dense(WIDTH, "tanh"), dense(WIDTH, "tanh"), dense(3 * COMPONENTS)])
    network.compile(tf.keras.optimizers.Adam(1e-3), lambda Y, outputs: -mixture_log_density(outputs, Y))
    # A tenth of the rows is held out, to choose the epoch.
    order = np.random.default_rng(seed).permutation(len(parts.X))
    X = parts.X[order].astype(np.float32)
    Y = parts.Y[order].astype(np.float32)
    held = len(X) // 10
    begin = time.process_time()
    network.fit(
        X[held:],
        Y[held:],
        batch_size=NETWORK_BATCH,
        epochs=10**6,
        validation_data=(X[:held], Y[:held]),
        callbacks=[BestInTime(seconds)],
        verbose=0,
    )
    spent = time.process_time() - begin
    # The density in the units of the data.
    outputs = network(parts.X_test.astype(np.float32))
    log_densities = mixture_log_density(outputs, parts.Y_test.astype(np.float32))
    return {"log_density": float(tf.reduce_mean(log_densities)) - parts.log_scale, "seconds": spent}


def main(FLAGS: flags.FlagValues) -> None:
    if not set(FLAGS.models) <= {*MODELS, "mdn"}:
        raise app.UsageError(f"--models are some of {', '.join(MODELS)}, mdn; got {','.join(FLAGS.models)}")
    rows = bench.kept()
    seconds = {(row["data"], row["seed"], row["model"]): row["seconds"] for row in rows}
    for seed in range(FLAGS.seeds):
        for name in FLAGS.data:
            rng = np.random.default_rng(seed)
            parts = parts_of(name, rng, seed, FLAGS.data_dir)
            batches = [rng.integers(len(parts.X), size=FLAGS.batch_size) for _ in range(FLAGS.num_steps)]
            # A network has the time that the deep GP took.
            for model in (model for model in FLAGS.models if (name, seed, model) not in seconds):
                if model != "mdn":
                    scores = deep_gp_score(name, model, FLAGS.noise, parts, batches, seed)
                elif (name, seed, "latent_5") in seconds:
                    scores = network_score(parts, seconds[name, seed, "latent_5"], seed)
                else:
                    raise app.UsageError("mdn is trained as long as latent_5; put latent_5 before it in --models.")
                rounded = {key: round(value, 4) for key, value in scores.items()}
                rows.append({"data": name, "model": model, "noise": FLAGS.noise, "seed": seed, **rounded})
                seconds[name, seed, model] = scores["seconds"]
                print(rows[-1], flush=True)
                bench.keep({"metrics": rows}, "by name")


if __name__ == "__main__":
    bench.run(define_flags, main)
