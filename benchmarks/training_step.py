#!/usr/bin/env python3
"""How long does one training step take beside GPflux and GPflow's SVGP, and how near is it to the arithmetic's floor?

    training_step.py --batch_sizes=1000 --layers=2 --repetitions=50 --output=step.json

One Adam step of a deep GP (M = 100, D = 8 inputs and inner outputs, one output, Gaussian likelihood) as a
`tf.function`: ours in each precision, GPflux's `build_constant_input_dim_deep_gp`, and for one layer
`gpflow.models.SVGP`. All models have the same inducing inputs, kernels and q(u), and none has noise between layers.
First the bounds of all models are compared: at the starting values, and with a q(u) that makes every layer matter. They
may differ by the draws of the inner layers (standard error) and by the jitter that ours adds to the variances it draws
from.

The models are timed in turn within one process, so that all see the same load. "ratio" is GPflux's time over the
model's: of the minima, and the median of the ratios of neighbouring steps with its quartiles.

"floor" is the time of the step's matrix arithmetic at the rate of the product [P M, M] x [M, B] (P = D = 8, and at most
1000 columns), in float64 and float32, measured in turn with the steps; "reached" is floor / minimum. Operations of a
layer with P outputs, forward and backward (one multiplication and one addition are two):

    variance product      4 P M^2 B    ours: S A and the gradient of S, see `gpflow_deep.layers.moments.quadratic_form`
                          6 P M^2 B    GPflux and GPflow: q_sqrt' A and both its gradients
    S = q_sqrt q_sqrt'    6 P M^3      ours only
    triangular solve      4 M^2 B      1 forward, 1 for Kuf, 2 for the factor
    kernel Kuf            6 M B (D+2)  4 in the first layer, whose inputs are data
    mean                  6 P M B
    Cholesky              13/3 M^3     1/3 forward; a product and two solves backward

Exponentials and sums over [P, M, B] arrays are not counted. "mixed" has the first two terms of the inner layers in
float32, "fast" all but the Cholesky factorisations.
"""

from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, NamedTuple

import bench
import gpflow
import numpy as np
import tensorflow as tf
from absl import flags

import gpflow_deep

NUM_DATA, M, D = 10_000, 100, 8
PRECISIONS = ("full", "mixed", "fast")
#: Bounds with the same parameters may differ by this part of their size; both sides have other draws and jitters.
BOUND_TOLERANCE = 1e-4

Batch = tuple[tf.Tensor, tf.Tensor]


class Model(NamedTuple):
    """A model under test: its parts that have to be equal to those of the others, and what is timed."""

    layers: list[Any]
    bound: Callable[[Batch, tf.Tensor], tf.Tensor]
    step: Callable[[Batch, tf.Tensor], tf.Tensor]


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("layers", ["1", "2", "3", "4", "5"], "Numbers of layers.", flag_values=fv)
    flags.DEFINE_list("batch_sizes", ["1000", "10000"], "Numbers of rows in a batch.", flag_values=fv)
    flags.DEFINE_list("precisions", list(PRECISIONS), "Our precisions.", flag_values=fv)
    flags.DEFINE_integer("repetitions", 15, "Timed steps of each model, after 3 others.", 1, flag_values=fv)
    bench.define_common(fv)


# Operations.


def layer_flops(model: str, *, B: int, M: int, D: int, P: int, is_first: bool, is_last: bool) -> bench.Flops:
    """Operations of one layer's forward and backward pass, as in the module's docstring.

    :param model: "gpflux", "svgp" or one of our precisions.
    """
    is_ours = model in PRECISIONS
    variance = (4 if is_ours else 6) * P * M**2 * B + (6 * P * M**3 if is_ours else 0)
    others = 4 * M**2 * B + (4 if is_first else 6) * M * B * (D + 2) + 6 * P * M * B
    cholesky = 13 / 3 * M**3
    if model == "fast":
        return bench.Flops(cholesky, variance + others)
    if model == "mixed" and not is_last:
        return bench.Flops(others + cholesky, variance)
    return bench.Flops(variance + others + cholesky, 0.0)


def step_flops(model: str, num_layers: int, B: int) -> bench.Flops:
    """Operations of a step of a deep GP with D outputs in every inner layer and one in the last."""
    parts = []
    for number in range(1, num_layers + 1):
        is_last = number == num_layers
        P = 1 if is_last else D
        parts.append(layer_flops(model, B=B, M=M, D=D, P=P, is_first=number == 1, is_last=is_last))
    return bench.Flops(*(float(sum(column)) for column in zip(*parts, strict=True)))


# The models, with equal starting values.


def ours(X: np.ndarray, Y: np.ndarray, Z: np.ndarray, num_layers: int, precision: Any) -> Model:
    model = bench.model_like_gpflux(X, Y, Z, num_layers, precision)
    step = gpflow_deep.make_train_step(model, tf.keras.optimizers.Adam(0.01))
    return Model(
        layers=model.layers,
        bound=lambda batch, seed: model.elbo(batch, seed=seed),
        step=lambda batch, seed: step(batch, seed)["elbo_nats"],
    )


def gpflux(X: np.ndarray, Y: np.ndarray, Z: np.ndarray, num_layers: int) -> Model:
    import tf_keras

    model = bench.gpflux_model(X, Z, num_layers)
    optimizer, variables = tf_keras.optimizers.Adam(0.01), model.trainable_variables

    @tf.function
    def step(batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = -model.elbo(batch)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return -loss

    return Model(layers=list(model.f_layers), bound=lambda batch, seed: model.elbo(batch), step=step)


def svgp(X: np.ndarray, Y: np.ndarray, Z: np.ndarray) -> Model:
    likelihood = gpflow.likelihoods.Gaussian(variance=0.01)
    model = gpflow.models.SVGP(bench.gpflux_kernels(1, D)[0], likelihood, Z.copy(), num_data=len(X))
    optimizer, variables = tf.keras.optimizers.Adam(0.01), model.trainable_variables
    optimizer.build(variables)

    @tf.function
    def step(batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss(batch)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return -loss

    return Model(layers=[model], bound=lambda batch, seed: model.elbo(batch), step=step)


def compare_bounds(models: Mapping[str, Model], batch: Batch, num_draws: int = 8) -> dict[str, dict[str, float]]:
    """Difference of each model's bound from GPflux's in nats: at the starting values and with another q(u).

    The second one moves the inner layers by about 0.1 and makes the last one's q(u) random, and averages over draws.

    :raises ValueError: if a bound differs by more than `BOUND_TOLERANCE`.
    """
    results: dict[str, dict[str, float]] = {name: {} for name in models}
    start = [(layer.q_mu.numpy(), layer.q_sqrt.numpy()) for layer in models["gpflux"].layers]
    rng = np.random.default_rng(1)
    moved = []
    for i, (q_mu, q_sqrt) in enumerate(start):
        is_last = i == len(start) - 1
        noise = np.tril(rng.normal(size=q_sqrt.shape))
        moved.append(((1 if is_last else 100) * rng.normal(size=q_mu.shape), 0.5 * np.eye(M) + 0.02 * noise))
    for label, values in (("moved", moved), ("start", start)):
        draws = {}
        for name, model in models.items():
            for layer, (q_mu, q_sqrt) in zip(model.layers, values, strict=True):
                layer.q_mu.assign(q_mu)
                layer.q_sqrt.assign(q_sqrt)
            draws[name] = [float(model.bound(batch, tf.constant([0, i]))) for i in range(num_draws)]
        reference = float(np.mean(draws["gpflux"]))
        for name, bounds in draws.items():
            difference = float(np.mean(bounds)) - reference
            variances = np.var(bounds, ddof=1) + np.var(draws["gpflux"], ddof=1)
            results[name][f"bound_{label}_nats"] = float(np.mean(bounds))
            results[name][f"difference_{label}_nats"] = difference
            results[name][f"standard_error_{label}_nats"] = float(np.sqrt(variances / num_draws))
            if not abs(difference) <= BOUND_TOLERANCE * abs(reference):
                raise ValueError(
                    f"the bound of {name} must equal that of GPflux to a part of {BOUND_TOLERANCE}, got {bounds} and "
                    f"{draws['gpflux']} ({label}); check that the models have equal parameters."
                )
    return results


# Measurement.


def timed(model: Model, batch: Batch) -> Callable[[int], Any]:
    return lambda i: model.step(batch, tf.constant([0, i])).numpy()


def measure(models: Mapping[str, Model], batch: Batch, num_layers: int, repetitions: int) -> list[dict[str, Any]]:
    """One row of results for each model."""
    B = int(batch[0].shape[0])
    functions = {name: timed(model, batch) for name, model in models.items()}
    products = bench.Products(M, D, min(B, 1000), calls=5)
    times = bench.time_in_turn({**functions, **products.timers()}, repetitions, warm_up=3)
    rate, reference = products.rate(), 1e3 * times["gpflux"].wall
    rows = []
    for name in models:
        values = 1e3 * times[name].wall
        flops = step_flops(name, num_layers, B)
        floor = 1e3 * flops.seconds(rate)
        rows.append(
            {
                "batch_size": B,
                "layers": num_layers,
                "model": name,
                **bench.compared(values, reference, "ms"),
                **flops.to_row(rate),
                "floor_ms": floor,
                "reached": floor / float(np.min(values)),
            }
        )
    return rows


BOUNDS = {
    "model": "{model}",
    "bound at start": "{bound_start_nats:.2f}",
    "less GPflux's": "{difference_start_nats:+.3f}",
    "bound, moved q(u)": "{bound_moved_nats:.2f}",
    "less GPflux's (standard error)": "{difference_moved_nats:+.3f} ({standard_error_moved_nats:.3f})",
}
TIMES = {
    "model": "{model}",
    "min ms": "{min_ms:.2f}",
    "median ms": "{median_ms:.2f}",
    "ratio of minima": "{ratio_of_minima:.2f}",
    "median ratio [quartiles]": "{ratio_quartiles[1]:.2f} [{ratio_quartiles[0]:.2f}, {ratio_quartiles[2]:.2f}]",
    "GFLOP f64 + f32": "{gflop_float64:.3f} + {gflop_float32:.3f}",
    "at GFLOP/s": "{rate_float64_gflops:.0f}, {rate_float32_gflops:.0f}",
    "floor ms": "{floor_ms:.2f}",
    "reached": "{reached:.0%}",
}


def main(FLAGS: flags.FlagValues) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(NUM_DATA, D))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(NUM_DATA, 1))
    Z = gpflow_deep.inducing_inputs(X, M, seed=0)
    results: list[dict[str, Any]] = []
    for num_layers in map(int, FLAGS.layers):
        models = {"gpflux": gpflux(X, Y, Z, num_layers)}
        if num_layers == 1:
            models["svgp"] = svgp(X, Y, Z)
        models |= {precision: ours(X, Y, Z, num_layers, precision) for precision in FLAGS.precisions}
        print(f"\n{num_layers} layers, bounds in nats")
        bounds = compare_bounds(models, (tf.constant(X[:1000]), tf.constant(Y[:1000])))
        bench.print_table([{"model": name, **row} for name, row in bounds.items()], BOUNDS)
        for B in map(int, FLAGS.batch_sizes):
            print(f"\n{num_layers} layers, batch of {B}")
            rows = measure(models, (tf.constant(X[:B]), tf.constant(Y[:B])), num_layers, FLAGS.repetitions)
            bench.print_table(rows, TIMES)
            results += [{**row, **bounds[row["model"]]} for row in rows]
    bench.write({"metrics": results}, "none: drawn with seed 0", gpflux=metadata.version("gpflux"))


if __name__ == "__main__":
    bench.run(define_flags, main)
