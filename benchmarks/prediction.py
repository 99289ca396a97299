#!/usr/bin/env python3
"""How long do the moments of 100 draws at 1000 points take beside 100 predictions by GPflux, and what is the floor?

    prediction.py --layers=2 --repetitions=20 --output=prediction.json

`predict_f` of a deep GP (M = 100, D = 8 inputs and inner outputs, one output) under `tf.function`, in the precisions
"full" and "mixed" (the default): with the factors of Kuu computed within the call, and from a posterior's cache in
float64 and float32. GPflux's `predict_f` makes one draw of the inner layers in a call, so it is called 100 times. All
models have the same parameters, with a q(u) that moves the inner layers. "mean" and "variance" are the largest
differences from "full", whose draws all of ours share, and for GPflux, which has other draws, of its mean only.

The methods are timed in turn within one process, so that all see the same load; "ratio" is GPflux's time over the
method's. "floor" is the time of the matrix arithmetic at the rate of the product [P M, M] x [M, 1000] (P = D = 8),
measured in turn, too; "reached" is floor / minimum. Operations of a layer with P outputs at n points (n is the number
of points in our first layer, else points times draws; GPflux computes its first layer for every draw):

    variance product   2 P M^2 n
    projection         2 M^2 n       ours with float32 (inner layers of "mixed"), by the inverse of the Cholesky factor
    triangular solve   M^2 n         GPflux
    kernel             2 M n (D+2)
    mean               2 P M n
    factors            M^3/3, and ours M^3 + 2 P M^3 for the inverse and S = q_sqrt q_sqrt', 4 P M^3 for the two around
                       I - S where there is no projection; nothing where cached
"""

from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import bench
import numpy as np
import tensorflow as tf
from absl import flags

import gpflow_deep

NUM_DATA = 10_000
M = 100
D = 8

MeanAndVariance = tuple[tf.Tensor, tf.Tensor]


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("layers", ["2", "3"], "Numbers of layers.", flag_values=fv)
    flags.DEFINE_integer("points", 1000, "Number of points.", 1, flag_values=fv)
    flags.DEFINE_integer("samples", 100, "Number of draws of the inner layers.", 1, flag_values=fv)
    flags.DEFINE_integer("repetitions", 7, "Timed calls of each method, after 1 other.", 1, flag_values=fv)
    bench.define_common(fv)


# Operations.


def layer_flops(method: str, *, n: int, M: int, D: int, P: int, is_last: bool) -> bench.Flops:
    """Operations of one layer at n points, as in the module's docstring.

    :param method: "gpflux", or one of ours: "full", "full, cached", "mixed", "mixed, cached", "float32, cached".
    """
    others = 2 * M * n * (D + 2) + 2 * P * M * n
    projection = 2 * M**2 * n
    variance = 2 * P * M**2 * n
    if method == "gpflux":
        return bench.Flops(variance + others + M**2 * n + M**3 / 3, 0.0)
    factors = 0.0 if method.endswith("cached") else M**3 / 3 + M**3 + 2 * P * M**3
    if method == "float32, cached":
        return bench.Flops(0.0, variance + others + projection)
    if method.startswith("mixed") and not is_last:
        return bench.Flops(others + projection + factors, variance)
    return bench.Flops(variance + others + (factors and factors + 4 * P * M**3), 0.0)


def prediction_flops(method: str, num_layers: int, num_points: int, num_samples: int) -> bench.Flops:
    """Operations of all layers, D outputs in every inner one and one in the last."""
    parts = []
    for number in range(1, num_layers + 1):
        is_last = number == num_layers
        n = num_points if number == 1 and method != "gpflux" else num_points * num_samples
        parts.append(layer_flops(method, n=n, M=M, D=D, P=1 if is_last else D, is_last=is_last))
    factors_of_further_calls = (num_samples - 1) * num_layers * M**3 / 3 if method == "gpflux" else 0.0
    totals = [float(sum(column)) for column in zip(*parts, strict=True)]
    return bench.Flops(totals[0] + factors_of_further_calls, totals[1])


# The models, with equal parameters.


def move(layers: Sequence[Any]) -> None:
    """Give the layers a q(u) that moves the inner ones by about 0.1 and makes the last one's random."""
    rng = np.random.default_rng(1)
    for i, layer in enumerate(layers):
        scale = 1 if i == len(layers) - 1 else 100
        layer.q_mu.assign(scale * rng.normal(size=layer.q_mu.shape))
        layer.q_sqrt.assign(0.5 * np.eye(M) + 0.02 * np.tril(rng.normal(size=layer.q_sqrt.shape)))


def ours(X: np.ndarray, Y: np.ndarray, Z: np.ndarray, num_layers: int, precision: Any, S: int) -> gpflow_deep.DeepGP:
    model = bench.model_like_gpflux(X, Y, Z, num_layers, precision)
    model.num_predict_samples = S
    move(model.layers)
    return model


def gpflux(X: np.ndarray, Z: np.ndarray, num_layers: int, num_samples: int) -> Callable[[tf.Tensor], MeanAndVariance]:
    """Moments of the mixture of `num_samples` calls; the sums over the calls count as GPflux's time, too."""
    model = bench.gpflux_model(X, Z, num_layers)
    move(model.f_layers)
    predict_f = tf.function(model.predict_f)

    def predict(Xnew: tf.Tensor) -> MeanAndVariance:
        mean = 0.0
        second = 0.0
        for _ in range(num_samples):
            component_mean, component_var = predict_f(Xnew)
            mean += component_mean / num_samples
            second += (component_var + component_mean**2) / num_samples
        return mean, second - mean**2

    return predict


def methods(
    X: np.ndarray, Y: np.ndarray, Z: np.ndarray, num_layers: int, S: int
) -> dict[str, Callable[[tf.Tensor], MeanAndVariance]]:
    full, mixed = (ours(X, Y, Z, num_layers, precision, S) for precision in ("full", "mixed"))
    return {
        "gpflux": gpflux(X, Z, num_layers, S),
        "full": tf.function(full.predict_f),
        "full, cached": tf.function(full.posterior().predict_f),
        "mixed": tf.function(mixed.predict_f),
        "mixed, cached": tf.function(mixed.posterior().predict_f),
        "float32, cached": tf.function(mixed.posterior(dtype=tf.float32).predict_f),
    }


# Measurement.


def timed(method: Callable[[tf.Tensor], MeanAndVariance], Xnew: tf.Tensor) -> Callable[[int], Any]:
    return lambda _: method(Xnew)[1].numpy()


def measure(num_layers: int, num_points: int, num_samples: int, repetitions: int) -> list[dict[str, Any]]:
    """One row of results for each method."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(NUM_DATA, D))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(NUM_DATA, 1))
    Xnew = tf.constant(rng.normal(size=(num_points, D)))
    predict = methods(X, Y, gpflow_deep.inducing_inputs(X, M, seed=0), num_layers, num_samples)
    moments = {name: [part.numpy() for part in method(Xnew)] for name, method in predict.items()}
    products = bench.Products(M, D, 1000, calls=20)
    calls = {name: timed(method, Xnew) for name, method in predict.items()}
    times = bench.time_in_turn({**calls, **products.timers()}, repetitions)
    rate = products.rate()
    reference = 1e3 * times["gpflux"].wall
    rows = []
    for name in predict:
        values = 1e3 * times[name].wall
        flops = prediction_flops(name, num_layers, num_points, num_samples)
        floor = 1e3 * flops.seconds(rate)
        errors = [float(np.max(np.abs(ours - full))) for ours, full in zip(moments[name], moments["full"], strict=True)]
        rows.append(
            {
                "layers": num_layers,
                "method": name,
                **bench.compared(values, reference, "ms"),
                **flops.to_row(rate),
                "floor_ms": floor,
                "reached": floor / float(np.min(values)),
                "mean_difference": errors[0],
                "variance_difference": None if name == "gpflux" else errors[1],
            }
        )
    return rows


COLUMNS = {
    "method": "{method}",
    "min ms": "{min_ms:.1f}",
    "median ms": "{median_ms:.1f}",
    "ratio of minima": "{ratio_of_minima:.1f}",
    "median ratio [quartiles]": "{ratio_quartiles[1]:.1f} [{ratio_quartiles[0]:.1f}, {ratio_quartiles[2]:.1f}]",
    "GFLOP f64 + f32": "{gflop_float64:.2f} + {gflop_float32:.2f}",
    "at GFLOP/s": "{rate_float64_gflops:.0f}, {rate_float32_gflops:.0f}",
    "floor ms": "{floor_ms:.1f}",
    "reached": "{reached:.0%}",
    "mean": "{mean_difference:.1e}",
    "variance": "{variance_difference:.1e}",
}


def main(FLAGS: flags.FlagValues) -> None:
    results: list[dict[str, Any]] = []
    for num_layers in map(int, FLAGS.layers):
        print(f"\n{num_layers} layers, {FLAGS.points} points, {FLAGS.samples} draws")
        rows = measure(num_layers, FLAGS.points, FLAGS.samples, FLAGS.repetitions)
        bench.print_table(rows, COLUMNS)
        results += rows
    bench.write({"metrics": results}, "none: drawn with seed 0", gpflux=metadata.version("gpflux"))


if __name__ == "__main__":
    bench.run(define_flags, main)
