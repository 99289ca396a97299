#!/usr/bin/env python3
"""What does a latent variable add where targets have two branches?

    latent_variables.py --threads=1 --output=found.json

y = +-sin(2x) + 0.05 noise, each sign with probability 1/2: 400 rows to train with, 400 to test with. A GP, two layers,
and two layers on [x, w] (`LatentVariableLayer` with its encoder) with K = 1, 5 and 20 importance samples: M = 60, Adam
0.01, --num_steps minibatches of 100 rows. Shown are the mean test log density in nats per row, 512 components for
latent variables, and CPU seconds of training. With known parameters it would be 0.88 where the branches are apart.
"""

import os
import time
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app, flags
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import Identity

from experiment.files import write_json
from experiment.run.devices import apply_threads
from experiment.run.folder import provenance
from gpflow_deep import DeepGP, Encoder, LatentVariableLayer, SVGPLayer, Trainer, TrainingConfig, inducing_inputs

MODELS = {"gp": (1, 0), "two layers": (2, 0), "latent, K=1": (2, 1), "latent, K=5": (2, 5), "latent, K=20": (2, 20)}


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define this script's flags."""
    fv = flag_values
    flags.DEFINE_list("models", None, "Numbers of the models, from 0; all if left out.", flag_values=fv)
    flags.DEFINE_integer("num_steps", 1500, "Steps of training.", 1, flag_values=fv)
    flags.DEFINE_integer("seeds", 3, "Seeds of data and models.", 1, flag_values=fv)
    flags.DEFINE_integer("threads", 0, "CPU threads; 0 lets TensorFlow choose.", 0, flag_values=fv)
    flags.DEFINE_string("output", None, "Write the results to this JSON file.", flag_values=fv)


def rows_of(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets [count, 1]."""
    x = rng.uniform(-2, 2, (count, 1))
    return x, rng.choice([-1, 1], (count, 1)) * np.sin(2 * x) + 0.05 * rng.standard_normal((count, 1))


def built(X: np.ndarray, num_layers: int, K: int, seed: int) -> DeepGP:
    """A model before training; K = 0 for none of the latent variables."""
    Z, layers = inducing_inputs(X, 60, seed=seed), []
    if K:
        latent = LatentVariableLayer(1, 1, encoder=Encoder(2, 1, seed=seed))
        Z, layers = latent.extend(Z, seed=seed), [latent]
    D = Z.shape[1]
    for _ in range(num_layers - 1):
        kernel, mean = SquaredExponential(lengthscales=np.ones(D)), Identity()
        layers.append(SVGPLayer(kernel, Z, num_latent_gps=D, mean_function=mean, q_sqrt_scale=1e-5))
    layers.append(SVGPLayer(SquaredExponential(lengthscales=np.ones(D)), Z, num_latent_gps=1))
    draws = 512 if K else 32
    return DeepGP(layers, Gaussian(0.05), num_data=len(X), num_importance_samples=max(K, 1), num_predict_samples=draws)


def main(argv: Sequence[str]) -> None:
    FLAGS = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"no arguments besides flags, got {argv[1:]}")
    apply_threads(FLAGS.threads)
    begun, found = time.monotonic(), []
    for seed in range(FLAGS.seeds):
        rng = np.random.default_rng(seed)
        (X, Y), test = rows_of(rng, 400), rows_of(rng, 400)
        batches = [rng.integers(400, size=100) for _ in range(FLAGS.num_steps)]
        for number, (name, (num_layers, K)) in enumerate(MODELS.items()):
            if FLAGS.models and str(number) not in FLAGS.models:
                continue
            model, start = built(X, num_layers, K, seed), time.process_time()
            trainer = Trainer(model, TrainingConfig(learning_rate=0.01), num_steps=FLAGS.num_steps)
            parts = [(tf.constant(X[rows]), tf.constant(Y[rows])) for rows in batches]
            trainer.advance(parts.__getitem__, 0, FLAGS.num_steps, tf.constant([0, seed]))
            row = {"model": name, "seed": seed, "seconds": round(time.process_time() - start, 1)}
            row["log_density"] = round(float(tf.reduce_mean(model.predict_log_density(test))), 4)
            found.append(row)
            print(row, flush=True)
    if FLAGS.output:
        record = provenance("simulated", seconds=time.monotonic() - begun, cpus=os.cpu_count())
        write_json(FLAGS.output, {"metrics": found, "provenance": record})


if __name__ == "__main__":
    define_flags()
    app.run(main)
