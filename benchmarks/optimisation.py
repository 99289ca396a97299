#!/usr/bin/env python3
"""Does Bayesian optimisation with a deep GP find better values than with a GP, or with trieste's deep GP?

    optimisation.py --output=found.json
    optimisation.py --methods=trieste --trieste=ENV/bin/python --output=trieste.json

Minimises Michalewicz 2 and 5 and Hartmann 6 from --initial Sobol points and --rounds batches of --batch points, for
each of --seeds seeds. Every batch is by Thompson sampling (`gpflow_deep.functions.optimize.thompson`): the minimisers
of as many
drawn functions. Methods, all with the same points to start from:

    deep      two layers, inducing inputs at all rows, trained anew for every batch (Adam, --num_steps steps); the
              functions have no noise, so that of the models stays at --noise_variance (of targets with variance 1)
    global    the same with global inducing outputs, which start from the values at the rows
    gp        the same with one layer
    random    further Sobol points
    trieste   trieste's deep GP (GPflux) and its parallel Thompson sampling, in an environment of its own:
              benchmarks/rivals/trieste_optimisation.py

Shown is the simple regret, the best value found less the minimum, after each batch; CPU seconds of a run.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import bench
import numpy as np
import tensorflow as tf
from absl import flags
from gpflow.utilities import set_trainable
from scipy.stats import qmc

import gpflow_deep
from gpflow_deep.functions.optimize import thompson

RIVAL = Path(__file__).parent / "rivals" / "trieste_optimisation.py"
_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_P = np.array(
    [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ]
)


class Problem(NamedTuple):
    """A function [N, D] -> [N, 1] on a cube, and its minimum."""

    function: Callable[[np.ndarray], np.ndarray]
    num_inputs: int
    high: float
    minimum: float


def michalewicz(X: np.ndarray) -> np.ndarray:
    """-sum_d sin(x_d) sin(d x_d^2 / pi)^20 on [0, pi]^D: steep valleys on flat ground."""
    d = np.arange(1, X.shape[1] + 1)
    return -np.sum(np.sin(X) * np.sin(d * X**2 / np.pi) ** 20, axis=1, keepdims=True)


def hartmann(X: np.ndarray) -> np.ndarray:
    """The Hartmann function of six inputs on [0, 1]^6: four wells."""
    inner = np.sum(_A * np.square(X[:, None, :] - _P), axis=-1)
    return -np.sum(np.array([1.0, 1.2, 3.0, 3.2]) * np.exp(-inner), axis=1, keepdims=True)


PROBLEMS = {
    "michalewicz2": Problem(michalewicz, 2, math.pi, -1.8013034),
    "michalewicz5": Problem(michalewicz, 5, math.pi, -4.6876582),
    "hartmann6": Problem(hartmann, 6, 1.0, -3.32237),
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("problems", list(PROBLEMS), "Functions to minimise.", flag_values=fv)
    flags.DEFINE_list("methods", ["deep", "global", "gp", "random"], "Of those above.", flag_values=fv)
    flags.DEFINE_integer("seeds", 5, "Seeds.", 1, flag_values=fv)
    flags.DEFINE_integer("initial", 20, "Points before the first batch.", 1, flag_values=fv)
    flags.DEFINE_integer("rounds", 5, "Batches.", 1, flag_values=fv)
    flags.DEFINE_integer("batch", 8, "Points of a batch.", 1, flag_values=fv)
    flags.DEFINE_integer("num_steps", 400, "Steps of training for every batch.", 1, flag_values=fv)
    flags.DEFINE_float("noise_variance", 1e-3, "Of the models, in standard units.", 0, flag_values=fv)
    flags.DEFINE_float("learning_rate", 0.02, "Of Adam.", flag_values=fv)
    flags.DEFINE_string("trieste", None, "Python of an environment with trieste.", flag_values=fv)
    bench.define_common(fv)


def fitted(X: np.ndarray, Y: np.ndarray, method: str, FLAGS: flags.FlagValues) -> gpflow_deep.Predictor:
    """A GP or deep GP with inducing inputs at all rows, in the units of the data."""
    # Rows in standard units, with an inducing input at each.
    units = gpflow_deep.Units.fit(X, Y, "gaussian")
    rows = units.transform(X, Y)
    model = gpflow_deep.paper2017(*rows, 1 if method == "gp" else 2, Z=rows[0], noise_variance=None)
    model.likelihood.variance.assign(FLAGS.noise_variance)
    if method == "global":
        model = gpflow_deep.with_global_inducing(model, rows)
        set_trainable(model.layers[0].Z, False)
    else:
        for layer in model.layers:
            set_trainable(layer.inducing_variable, False)
    # The noise is known.
    set_trainable(model.likelihood.variance, False)
    training = gpflow_deep.TrainingConfig(learning_rate=FLAGS.learning_rate)
    trainer = gpflow_deep.Trainer(model, training, num_steps=FLAGS.num_steps)
    batch = tuple(map(tf.constant, rows))
    trainer.advance(lambda step: batch, 0, FLAGS.num_steps, tf.constant([0, len(X)]))
    return gpflow_deep.Predictor(model, units)


def start(problem: Problem, count: int, seed: int) -> np.ndarray:
    """The first points, [count, D]."""
    return problem.high * qmc.Sobol(problem.num_inputs, seed=seed).random(count)


def values_found(problem: Problem, method: str, seed: int, FLAGS: flags.FlagValues) -> np.ndarray:
    """All values in the order of their evaluation, [initial + rounds batch]."""
    count = FLAGS.initial
    batch = FLAGS.batch
    # More of the same sequence of points.
    if method == "random":
        return problem.function(start(problem, count + FLAGS.rounds * batch, seed))[:, 0]
    X = start(problem, count, seed)
    if method == "trieste":
        return rivals_values(problem, X, seed, FLAGS)
    Y = problem.function(X)
    # A batch by Thompson sampling from a model of all points so far.
    for number in range(FLAGS.rounds):
        predictor = fitted(X, Y, method, FLAGS)
        bounds = [(0.0, problem.high)] * problem.num_inputs
        new = thompson(predictor, bounds, batch, maximize=False, seed=1000 * seed + number)
        X = np.concatenate([X, new])
        Y = np.concatenate([Y, problem.function(new)])
    return Y[:, 0]


def rivals_values(problem: Problem, X: np.ndarray, seed: int, FLAGS: flags.FlagValues) -> np.ndarray:
    """The same by trieste, whose program asks for values line by line."""
    with bench.Rival(FLAGS.trieste, RIVAL, problem.high, seed, FLAGS.rounds, FLAGS.batch) as rival:
        values = [problem.function(X)]
        for _ in range(FLAGS.rounds):
            X = np.array(rival.ask([X.tolist(), values[-1].tolist()]))
            values.append(problem.function(X))
    return np.concatenate(values)[:, 0]


def main(FLAGS: flags.FlagValues) -> None:
    rows: list[bench.Row] = []
    for seed in range(FLAGS.seeds):  # a run that is stopped has the first seeds of all
        for name in FLAGS.problems:
            for method in FLAGS.methods:
                before = bench.cpu_seconds()
                evaluations = values_found(PROBLEMS[name], method, seed, FLAGS)
                # Regret after the first points and after each batch.
                best = np.minimum.accumulate(evaluations)[FLAGS.initial - 1 :: FLAGS.batch] - PROBLEMS[name].minimum
                row = {"problem": name, "method": method, "seed": seed, "regret": np.round(best, 5).tolist()}
                rows.append({**row, "seconds": round(bench.cpu_seconds() - before, 1)})
                print(rows[-1], flush=True)
                bench.keep({"metrics": rows}, "simulated")


if __name__ == "__main__":
    bench.run(define_flags, main)
