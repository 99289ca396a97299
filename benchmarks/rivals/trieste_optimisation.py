#!/usr/bin/env python3
"""Propose points by trieste's deep GP for optimisation.py, in an environment of its own:

    python3.11 -m venv ENV
    ENV/bin/pip install trieste[qhsri]==4.6.1 gpflux==0.4.5

    optimisation.py --methods=trieste --trieste=ENV/bin/python ...

Arguments: highest value of every input (the lowest is 0), seed, number of batches, points of a batch. Reads lines of
JSON with points and their values, answers each with a line of further points. The model is `build_vanilla_deep_gp`, two
layers, with inducing inputs at all rows, of standardised values; it is trained anew for every batch with the settings
of trieste's `DeepGaussianProcess` (400 epochs of Adam); points are by its `ParallelContinuousThompsonSampling`.
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = "1"  # trieste computes when imported

import numpy as np
import tensorflow as tf
from trieste.acquisition.function import ParallelContinuousThompsonSampling
from trieste.acquisition.rule import EfficientGlobalOptimization
from trieste.data import Dataset
from trieste.models.gpflux import DeepGaussianProcess, build_vanilla_deep_gp
from trieste.space import Box


def main() -> None:
    high = float(sys.argv[1])
    (seed, rounds, batch) = map(int, sys.argv[2:5])
    np.random.seed(seed)  # noqa: NPY002, of GPflux's k-means
    tf.random.set_seed(seed)
    X = np.zeros((0, 0))
    Y = np.zeros((0, 1))
    for _ in range(rounds):
        new, values = (np.array(part) for part in json.loads(sys.stdin.readline()))
        X = np.concatenate([X.reshape(-1, new.shape[1]), new])
        Y = np.concatenate([Y, values])
        space = Box([0.0] * X.shape[1], [1.0] * X.shape[1])
        data = Dataset(tf.constant(X / high), tf.constant((Y - Y.mean()) / Y.std()))
        model = DeepGaussianProcess(build_vanilla_deep_gp(data, space, 2, len(X)))
        model.optimize(data)
        rule = EfficientGlobalOptimization(ParallelContinuousThompsonSampling(), num_query_points=batch)
        points = rule.acquire_single(space, model, dataset=data)
        print(json.dumps((high * points.numpy()).tolist()), flush=True)


if __name__ == "__main__":
    main()
