"""Bayesian layers on two devices: the same gradients and parameters as on one with all rows.

Devices have to be set before TensorFlow starts, so the comparisons run in a process with two logical CPU devices.
"""

from typing import Any

import pytest

from tests.scripts.running import results_of

PRIORS = ["GNJ", "GHS", "SVD"]

_PROGRAM = """
import json
import sys
import keras
import numpy as np
import tensorflow as tf
import compression
from compression.train.recipes.classification import Examples
from compression.train.engine import epoch_function
from gpflow_deep_runs.run import devices

CAP, STEPS, ROWS = 0.38, 3, 8
strategy = devices.make_strategy("mirrored")
rng = np.random.default_rng(0)
images = rng.normal(size=(STEPS * ROWS, 4, 4, 2))
targets = rng.normal(size=(STEPS * ROWS, 3))


def network(prior, dtype="float64"):
    settings = {"num_train": 20, "initial_log_std": -1.0, "std_cap": CAP, "dtype": dtype}
    if prior == "GHS":
        settings["tau0"] = 0.1
    convolution, dense = (getattr(compression, f"{kind}{prior}") for kind in ("Conv2D", "Dense"))
    return keras.Sequential([
        keras.Input(images.shape[1:], dtype=dtype),
        convolution(3, 2, activation="tanh", kernel_initializer=keras.initializers.HeNormal(1), seed=5, **settings),
        keras.layers.Flatten(dtype=dtype),
        dense(3, kernel_initializer=keras.initializers.HeNormal(2), seed=6, **settings),
    ])


def difference(one, two):
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(one, two, strict=True)]
    assert [a.shape for a, _ in pairs] == [b.shape for _, b in pairs]
    return max(float(np.abs(a - b).max() / max(1e-3, np.abs(a).max())) for a, b in pairs)


def copies(variable):
    return [np.asarray(copy) for copy in variable.value.values]


def of_network(prior):
    models, steps, optimizers, losses = [], [], [], []
    for where in (None, strategy):
        with devices.scope(where):
            model, optimizer = network(prior), keras.optimizers.Adam(0.05)

        def loss(batch, seed, model=model):
            X, Y = batch
            error = tf.reduce_mean(tf.square(model(X, training=True) - Y))
            return error + tf.add_n(model.losses), {"error": error, "kl": tf.add_n(model.losses)}

        models.append(model)
        optimizers.append(optimizer)
        steps.append(devices.make_train_step(where, loss, optimizer, model.trainable_variables))
    found = {"start": difference(models[0].variables, models[1].variables)}
    start = [variable.numpy() for variable in models[0].trainable_variables]
    for t in range(STEPS):
        rows = slice(ROWS * t, ROWS * t + ROWS)
        batch = tf.constant(images[rows]), tf.constant(targets[rows])
        seed = tf.constant([0, t])
        scalars = steps[0](batch, seed), steps[1](devices.split_batch(strategy, batch), seed)
        losses.append([[float(s[key]) for s in scalars] for key in ("error", "kl")])
        if t == 0:
            # Adam's first moment after one step is a tenth of the gradient.
            moments = [[v for v in o.variables if "momentum" in v.path] for o in optimizers]
            found["gradients"] = difference(*moments)
            found["smallest gradient"] = min(float(np.abs(v.numpy()).max()) for v in moments[0])
    layers = [compression.bayesian_layers(model) for model in models]
    return found | {
        "parameters": difference(models[0].variables, models[1].variables),
        "losses": max(difference(*np.array(values).T[:, :, None]) for values in losses),
        "smallest move": min(
            float(np.abs(v.numpy() - old).max()) for v, old in zip(models[0].trainable_variables, start, strict=True)
        ),
        "copies agree": all(np.array_equal(*copies(variable)) for variable in models[1].variables),
        "draws": [[layer.noise_state.numpy().tolist() for layer in of_model] for of_model in layers],
        "stds": [float(np.exp(0.5 * np.max(layer.kernel_log_var))) for of_model in layers for layer in of_model],
    }


def of_epoch():
    # By gradient descent, whose step grows with the gradient, unlike Adam's.
    labels = tf.constant(rng.integers(0, 3, STEPS * ROWS), tf.int32)
    examples = Examples(tf.constant(images, tf.float32), labels)
    models, scalars = [], []
    for where in (None, strategy):
        with devices.scope(where):
            model, optimizer = network("GNJ", "float32"), keras.optimizers.SGD(0.01)
            optimizer.build(model.trainable_variables)
            optimizer.iterations.assign(4)
        run = epoch_function(
            model,
            optimizer,
            examples,
            batch_size=ROWS,
            learning_rate=lambda step: 0.01 * (1.0 + step),
            kl_weight=lambda step: 0.1 * step,
            strategy=where,
        )
        scalars.append([np.asarray(value, float)[None] for value in run(tf.constant([1, 2]))])
        models.append(model)
    start = network("GNJ", "float32").trainable_variables
    return {
        "parameters": difference(models[0].variables, models[1].variables),
        "scalars": difference(*scalars),
        "nll": float(scalars[0][0][0]),
        "smallest move": min(
            float(np.abs(np.asarray(a) - np.asarray(b)).max())
            for a, b in zip(start, models[0].trainable_variables, strict=True)
        ),
    }


found = {prior: of_network(prior) for prior in sys.argv[1:]}
print("RESULTS" + json.dumps({**found, "epoch": of_epoch()}))
"""


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """What the program above finds, by prior, with a convolution and a dense layer."""
    return results_of(_PROGRAM, *PRIORS)


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
def test_two_replicas_equal_one_device(prior: str, results: dict[str, dict[str, Any]]) -> None:
    found = results[prior]
    assert found["start"] == 0.0
    for what in ("gradients", "parameters", "losses"):
        assert found[what] < 1e-10, found
    assert found["smallest gradient"] > 1e-6  # what is compared is there
    assert found["smallest move"] > 1e-3


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
def test_noise_and_constraints_of_all_copies(prior: str, results: dict[str, dict[str, Any]]) -> None:
    found = results[prior]
    assert found["copies agree"]
    one, two = found["draws"]
    assert one == two
    assert [draws for _, draws in two] == ([3, 3] if prior == "SVD" else [6, 6])  # outputs; scales and outputs
    assert found["stds"] == pytest.approx([0.38] * len(found["stds"]))  # the cap is reached and kept


@pytest.mark.ci
@pytest.mark.slow
def test_an_epoch_on_two_replicas_is_that_of_one_device(results: dict[str, dict[str, Any]]) -> None:
    """By gradient descent: the loss of each replica has to count for its part of the rows."""
    found = results["epoch"]
    assert found["nll"] > 0.1
    assert found["smallest move"] > 1e-4  # what is compared has moved
    assert found["parameters"] < 1e-6, found  # sums over the rows in float32
    assert found["scalars"] < 1e-6, found
