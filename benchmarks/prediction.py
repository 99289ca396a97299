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

import os
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import gpflow
import numpy as np
import tensorflow as tf
from absl import app, flags

import gpflow_deep
from gpflow_deep_base.files import write_json
from gpflow_deep_runs.run.devices import apply_threads
from gpflow_deep_runs.run.folder import provenance

NUM_DATA, M, D = 10_000, 100, 8

MeanAndVariance = tuple[tf.Tensor, tf.Tensor]


class Flops(NamedTuple):
    """Operations in each float type."""

    float64: float
    float32: float


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define this script's flags."""
    fv = flag_values
    flags.DEFINE_list("layers", ["2", "3"], "Numbers of layers.", flag_values=fv)
    flags.DEFINE_integer("points", 1000, "Number of points.", 1, flag_values=fv)
    flags.DEFINE_integer("samples", 100, "Number of draws of the inner layers.", 1, flag_values=fv)
    flags.DEFINE_integer("repetitions", 7, "Timed calls of each method, after 1 other.", 1, flag_values=fv)
    flags.DEFINE_integer("threads", 0, "CPU threads; 0 lets TensorFlow choose.", 0, flag_values=fv)
    flags.DEFINE_string("output", None, "Write the results to this JSON file.", flag_values=fv)


# Operations.


def layer_flops(method: str, *, n: int, M: int, D: int, P: int, is_last: bool) -> Flops:
    """Operations of one layer at n points, as in the module's docstring.

    :param method: "gpflux", or one of ours: "full", "full, cached", "mixed", "mixed, cached", "float32, cached".
    """
    others, projection = 2 * M * n * (D + 2) + 2 * P * M * n, 2 * M**2 * n
    variance = 2 * P * M**2 * n
    if method == "gpflux":
        return Flops(variance + others + M**2 * n + M**3 / 3, 0.0)
    factors = 0.0 if method.endswith("cached") else M**3 / 3 + M**3 + 2 * P * M**3
    if method == "float32, cached":
        return Flops(0.0, variance + others + projection)
    if method.startswith("mixed") and not is_last:
        return Flops(others + projection + factors, variance)
    return Flops(variance + others + (factors and factors + 4 * P * M**3), 0.0)


def prediction_flops(method: str, num_layers: int, num_points: int, num_samples: int) -> Flops:
    """Operations of all layers, D outputs in every inner one and one in the last."""
    parts = []
    for number in range(1, num_layers + 1):
        is_last = number == num_layers
        n = num_points if number == 1 and method != "gpflux" else num_points * num_samples
        parts.append(layer_flops(method, n=n, M=M, D=D, P=1 if is_last else D, is_last=is_last))
    factors_of_further_calls = (num_samples - 1) * num_layers * M**3 / 3 if method == "gpflux" else 0.0
    totals = [float(sum(column)) for column in zip(*parts, strict=True)]
    return Flops(totals[0] + factors_of_further_calls, totals[1])


# The models, with equal parameters.


def kernels(num_layers: int) -> list[gpflow.kernels.Kernel]:
    """GPflux's starting values: lengthscales 2, variance 1e-6 in inner layers and 1 in the last."""
    variances = [1e-6] * (num_layers - 1) + [1.0]
    return [
        gpflow.kernels.SquaredExponential(variance=variance, lengthscales=np.full(D, 2.0)) for variance in variances
    ]


def move(layers: Sequence[Any]) -> None:
    """Give the layers a q(u) that moves the inner ones by about 0.1 and makes the last one's random."""
    rng = np.random.default_rng(1)
    for i, layer in enumerate(layers):
        scale = 1 if i == len(layers) - 1 else 100
        layer.q_mu.assign(scale * rng.normal(size=layer.q_mu.shape))
        layer.q_sqrt.assign(0.5 * np.eye(M) + 0.02 * np.tril(rng.normal(size=layer.q_sqrt.shape)))


def ours(X: np.ndarray, Y: np.ndarray, Z: np.ndarray, num_layers: int, precision: Any, S: int) -> gpflow_deep.DeepGP:
    model = gpflow_deep.paper2017(
        X, Y, num_layers, num_inducing=M, kernels=kernels(num_layers), Z=Z, noise_variance=None, precision=precision
    )
    model.num_predict_samples = S
    move(model.layers)
    return model


def gpflux(X: np.ndarray, Z: np.ndarray, num_layers: int, num_samples: int) -> Callable[[tf.Tensor], MeanAndVariance]:
    """Moments of the mixture of `num_samples` calls; the sums over the calls count as GPflux's time, too."""
    from gpflux.architectures.constant_input_dim_deep_gp import Config, build_constant_input_dim_deep_gp

    config = Config(num_inducing=M, inner_layer_qsqrt_factor=1e-5, likelihood_noise_variance=0.01, whiten=True)
    model = build_constant_input_dim_deep_gp(X, num_layers, config)
    for layer in model.f_layers:
        layer.inducing_variable.inducing_variable.Z.assign(Z)
    move(model.f_layers)
    predict_f = tf.function(model.predict_f)

    def predict(Xnew: tf.Tensor) -> MeanAndVariance:
        mean, second = 0.0, 0.0
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


def time_in_turn(
    functions: Mapping[str, Callable[[int], Any]], repetitions: int, warmup: int = 1
) -> dict[str, np.ndarray]:
    """Milliseconds of each function, called in turn with the number of the repetition: [repetitions]."""
    names = list(functions)
    times: dict[str, list[float]] = {name: [] for name in names}
    for i in range(warmup + repetitions):
        shift = i % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.perf_counter()
            functions[name](i)
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: np.array(values[warmup:]) for name, values in times.items()}


def product_timer(dtype: tf.DType, times: list[float]) -> Callable[[int], None]:
    """Append the seconds of twenty products [D M, M] x [M, 1000] to `times` at every call."""
    left, right = (tf.random.stateless_normal(shape, [0, 0], dtype=dtype) for shape in ([D * M, M], [M, 1000]))

    def run(_: int) -> None:
        for _ in range(20):
            start = time.perf_counter()
            tf.matmul(left, right)
            times.append(time.perf_counter() - start)

    return run


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
    seconds: dict[str, list[float]] = {"float64": [], "float32": []}
    timers = {dtype: product_timer(tf.as_dtype(dtype), values) for dtype, values in seconds.items()}
    times = time_in_turn({**{name: timed(method, Xnew) for name, method in predict.items()}, **timers}, repetitions)
    rate = {dtype: 2 * D * M**2 * 1000 / min(values) for dtype, values in seconds.items()}
    rows = []
    for name in predict:
        values = times[name]
        flops = prediction_flops(name, num_layers, num_points, num_samples)
        floor = 1e3 * (flops.float64 / rate["float64"] + flops.float32 / rate["float32"])
        errors = [float(np.max(np.abs(ours - full))) for ours, full in zip(moments[name], moments["full"], strict=True)]
        rows.append(
            {
                "layers": num_layers,
                "method": name,
                "min_ms": float(np.min(values)),
                "median_ms": float(np.median(values)),
                "ratio_of_minima": float(np.min(times["gpflux"]) / np.min(values)),
                "ratio_quartiles": np.percentile(times["gpflux"] / values, [25, 50, 75]).tolist(),
                "gflop_float64": flops.float64 / 1e9,
                "gflop_float32": flops.float32 / 1e9,
                "rate_float64_gflops": rate["float64"] / 1e9,
                "rate_float32_gflops": rate["float32"] / 1e9,
                "floor_ms": floor,
                "reached": floor / float(np.min(values)),
                "mean_difference": errors[0],
                "variance_difference": None if name == "gpflux" else errors[1],
            }
        )
    return rows


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    header = ["method", "min ms", "median ms", "ratio of minima", "median ratio [quartiles]"]
    header += ["GFLOP f64 + f32", "at GFLOP/s", "floor ms", "reached", "mean", "variance"]
    lines = [header]
    for row in rows:
        low, middle, high = row["ratio_quartiles"]
        variance = row["variance_difference"]
        lines.append(
            [
                row["method"],
                f"{row['min_ms']:.1f}",
                f"{row['median_ms']:.1f}",
                f"{row['ratio_of_minima']:.1f}",
                f"{middle:.1f} [{low:.1f}, {high:.1f}]",
                f"{row['gflop_float64']:.2f} + {row['gflop_float32']:.2f}",
                f"{row['rate_float64_gflops']:.0f}, {row['rate_float32_gflops']:.0f}",
                f"{row['floor_ms']:.1f}",
                f"{row['reached']:.0%}",
                f"{row['mean_difference']:.1e}",
                "" if variance is None else f"{variance:.1e}",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)


def main(argv: Sequence[str]) -> None:
    FLAGS = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"no arguments besides flags, got {argv[1:]}")
    apply_threads(FLAGS.threads)
    results: list[dict[str, Any]] = []
    for num_layers in map(int, FLAGS.layers):
        print(f"\n{num_layers} layers, {FLAGS.points} points, {FLAGS.samples} draws")
        rows = measure(num_layers, FLAGS.points, FLAGS.samples, FLAGS.repetitions)
        print_rows(rows)
        results += rows
    if FLAGS.output:
        record = provenance("none: drawn with seed 0", gpflux=metadata.version("gpflux"), cpus=os.cpu_count())
        settings = {name: FLAGS[name].value for name in ("layers", "points", "samples", "repetitions", "threads")}
        write_json(FLAGS.output, {"flags": settings, "metrics": results, "provenance": record})
        print(f"\nwrote {FLAGS.output}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
