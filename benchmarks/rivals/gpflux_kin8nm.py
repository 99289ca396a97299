#!/usr/bin/env python3
"""Train GPflux's deep GP for time_to_quality.py, in an environment of its own:

    python3.11 -m venv ENV
    ENV/bin/pip install gpflux==0.4.5 gpflow==2.11.2 tensorflow==2.21.0 tf_keras==2.21.0 tensorflow-probability==0.25.0

    time_to_quality.py --gpflux=ENV/bin/python ...

`build_constant_input_dim_deep_gp` with two layers and the settings of GPflux's documentation: inner outputs as many as
inputs, inner q_sqrt scaled by 1e-5, whitened, noise variance 0.01. Adam trains everything, in a compiled step without
the overhead of Keras' `fit`. float64, and one draw of the inner layer, as GPflux has it.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf
import tf_keras
import turns
from gpflux.architectures.constant_input_dim_deep_gp import Config, build_constant_input_dim_deep_gp

TILES = 10  # copies of the test rows in one prediction


def main() -> None:
    args = turns.arguments(__doc__)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    np.random.seed(args.seed)  # noqa: NPY002, of GPflux's k-means
    tf.random.set_seed(args.seed)
    data = turns.load(args.data)
    config = Config(len(data.Z), inner_layer_qsqrt_factor=1e-5, likelihood_noise_variance=0.01, whiten=True)
    model = build_constant_input_dim_deep_gp(data.X, 2, config)
    optimizer = tf_keras.optimizers.Adam(args.rate)
    variables = model.trainable_variables

    @tf.function
    def step(X: tf.Tensor, Y: tf.Tensor) -> None:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = -model.elbo((X, Y)) / len(data.X)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    predict = tf.function(model.predict_f)
    tiled = tf.constant(np.tile(data.X_test, [TILES, 1]))

    def score() -> float:
        moments = [predict(tiled) for _ in range(turns.NUM_DRAWS // TILES)]
        means, variances = (np.reshape(part, [turns.NUM_DRAWS, -1]) for part in zip(*moments, strict=True))
        return turns.mean_log_density(means, variances + model.likelihood_layer.likelihood.variance.numpy(), data)

    turns.train(lambda rows: step(tf.constant(data.X[rows]), tf.constant(data.Y[rows])), score, data, args)


if __name__ == "__main__":
    main()
