#!/usr/bin/env python3
"""Train this package's deep GP for time_to_quality.py: as `DeepGPRegressor` does with its defaults, or otherwise.

Batches and draws are those of `gpflow_deep.train.fitting`; the rows come standardised. --rate=0 is the default rate.
Without
flags of its own it is the default; --preset=paper2017 is the model of 2017 with its Adam rate 0.01, kept throughout.
The other flags are for trying what else might be faster.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import gpflow
import numpy as np
import tensorflow as tf
import turns

from gpflow_deep import (
    DeepGPRegressor,
    ModelConfig,
    MonteCarlo,
    TrainingConfig,
)
from gpflow_deep.train import fitting


class Antithetic(MonteCarlo):
    """Draws in pairs, eps and -eps."""

    def noise(
        self, dims: Sequence[int], num_components: int, num_points: tf.Tensor, seed: tf.Tensor, dtype: tf.DType
    ) -> list[tf.Tensor]:
        half = super().noise(dims, num_components // 2, num_points, seed, dtype)
        return [tf.concat([eps, -eps], axis=0) for eps in half]


def own_arguments() -> argparse.Namespace:
    """This program's flags, taken off the command line."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--preset", help="starting values; the estimator's if left out")
    parser.add_argument("--natgrad_gamma", type=float, default=0.0, help="natural gradients for the last layer")
    parser.add_argument("--pairs", action="store_true", help="an antithetic pair of draws in place of one draw")
    parser.add_argument("--max_iter", type=int, default=0, help="all steps, of which the last have a lower rate")
    parser.add_argument("--decay_share", type=float, help="of the steps")
    parser.add_argument("--precision", help="of the inner layers")
    args, sys.argv[1:] = parser.parse_known_args()
    return args


def settings(own: argparse.Namespace, rate: float) -> tuple[ModelConfig, TrainingConfig, int]:
    """Of the estimator, two layers, but for what is given; and the largest number of steps."""
    model: dict[str, Any] = {"preset": "modern"}
    course: dict[str, Any] = {}
    if own.preset == "paper2017":
        course |= {"learning_rate": 0.01, "decay_share": 0.0, "n_iter_no_change": 0}
    model |= _given(preset=own.preset, precision=own.precision)
    model |= _given(natgrad=bool(own.natgrad_gamma), num_samples=2 * own.pairs)
    course |= _given(learning_rate=rate, natgrad_gamma=own.natgrad_gamma, decay_share=own.decay_share)
    return ModelConfig(**model), TrainingConfig(**course), own.max_iter or DeepGPRegressor().max_iter


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value}


def main() -> None:
    own_args = own_arguments()
    args = turns.arguments(__doc__ or "")
    # One thread and the rows that all programs have.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    data = turns.load(args.data)
    # The model before its first step; pairs of draws take the place of independent ones if that is asked for.
    config, training, max_iter = settings(own_args, args.rate)
    training = training.for_rows(len(data.X), args.batch_size)
    predictor, trainer = fitting.start(config, data.X, data.Y, training=training, max_iter=max_iter, seed=args.seed)
    model = predictor.model
    if own_args.pairs:
        model.integrator = Antithetic()
    X, Y = (predictor.units.transform(data.X, data.Y)[i] for i in range(2))

    def score() -> float:
        test = predictor.units.transform(data.X_test, data.Y_test)
        densities = model.predict_log_density(test, num_samples=turns.NUM_DRAWS)
        return float(np.mean(densities)) - data.log_scale - float(np.log(np.std(data.Y)))

    # Compiled before the clock starts.
    score()
    clock = turns.Clock(score, args.steps)

    def batch_at(step: int) -> tuple[tf.Tensor, tf.Tensor]:
        clock.before(step)
        rows = fitting.minibatch(args.seed, step, len(X), args.batch_size)
        return tf.constant(X[rows], gpflow.default_float()), tf.constant(Y[rows], gpflow.default_float())

    num_steps, _ = fitting.train(trainer, batch_at, fitting.draws(args.seed))
    clock.end(num_steps)


if __name__ == "__main__":
    main()
