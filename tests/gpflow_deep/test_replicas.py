"""The deep GP's step on two replicas does what one device does with all rows.

Devices have to be set before TensorFlow starts, so the comparisons run in a process with two logical CPU devices.
"""

from typing import Any

import pytest

from tests.scripts.running import results_of

_PROGRAM = """
import json
import numpy as np
import tensorflow as tf
import gpflow, gpflow_deep
from gpflow_deep_runs.run import checkpoints, devices
from gpflow.likelihoods import Bernoulli
from gpflow_deep.posteriors.noise import SquaredErrors, fit_noise
from gpflow_deep.model.upstream import mark_copies

folder = __FOLDER__
strategy = devices.make_strategy("mirrored")
rng = np.random.default_rng(0)
X = rng.normal(size=(64, 3))
Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(64, 1))
seed = tf.constant([3, 5])
results = {}


def difference(one, two):
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(one, two, strict=True)]
    return {
        "difference": max(float(np.abs(a - b).max() / max(1, np.abs(a).max())) for a, b in pairs),
        "shapes_agree": [a.shape for a, _ in pairs] == [b.shape for _, b in pairs],
    }


def copies_agree(variables):
    return all(np.array_equal(*[np.asarray(copy) for copy in variable.values]) for variable in variables)


def deep_gp(preset, likelihood=None, **settings):
    labels = Y if likelihood is None else (Y > 0).astype(float)
    model = preset(X, labels, 2, num_inducing=8, likelihood=likelihood, precision="full", num_samples=2, **settings)
    for layer in model.layers:  # well away from the singular start, so that rounding is not amplified
        layer.kernel.lengthscales.assign(np.full(3, 0.5))
    return model


for name, preset, gamma, likelihood, settings in [
    ("adam", gpflow_deep.paper2017, None, None, {}),
    ("natural gradients", gpflow_deep.modern, 0.1, None, {"natural_gradients": True}),
    ("classes", gpflow_deep.paper2017, None, Bernoulli, {}),
]:
    models, steps, optimizers = [], [], []
    for where in (None, strategy):
        with devices.scope(where):
            model = deep_gp(preset, None if likelihood is None else likelihood(), **settings)
            optimizer = tf.keras.optimizers.Adam(0.01)
        models.append(model)
        optimizers.append(optimizer)
        steps.append(gpflow_deep.make_train_step(model, optimizer, natgrad_gamma=gamma, strategy=where))
    values = [v.numpy() for v in models[0].variables]
    bounds = []
    for t in range(3):
        rows = slice(16 * t, 16 * t + 16)
        labels = Y if likelihood is None else (Y > 0).astype(float)
        batch = tf.constant(X[rows]), tf.constant(labels[rows])
        key = tf.random.fold_in(seed, t)
        parts = devices.split_batch(strategy, batch)
        bounds.append([float(steps[0](batch, key)["elbo_nats"]), float(steps[1](parts, key)["elbo_nats"])])
        if t == 0:
            # Adam's first moment after one step is a tenth of the gradient.
            moments = [[v for v in o.variables if "momentum" in v.path] for o in optimizers]
            results[f"{name}: gradients"] = difference(*moments)
    results[f"{name}: parameters"] = difference(models[0].variables, models[1].variables)
    results[f"{name}: bounds"] = difference(*zip(*bounds))
    moved = [float(np.abs(v.numpy() - old).max()) for v, old in zip(models[0].variables, values)]
    results[f"{name}: facts"] = {
        "moved": sum(change > 1e-6 for change in moved),
        "copies_agree": copies_agree(models[1].variables),
        "traced": steps[1].experimental_get_tracing_count(),
        "trainable": [len(m.trainable_variables) for m in models],
    }

def rows_at(t):
    return tf.constant(X[16 * t : 16 * t + 16]), tf.constant(Y[16 * t : 16 * t + 16])


found, kept = [], []
for where in (None, strategy):
    with devices.scope(where):
        model = deep_gp(gpflow_deep.paper2017, num_data=64)
        model.likelihood.variance.assign(50.0)
    if where is not None:
        mark_copies(model)
    found.append(fit_noise(SquaredErrors(model), devices.shared(where, rows_at), 3, strategy=where))
    kept.append(model.likelihood.variance.numpy())
results["noise: values"] = {"noise": [*found, *map(float, kept)], **difference(found, kept)}

step = tf.Variable(3, dtype=tf.int64)
checkpoints.save(folder, step, model=models[1], optimizer=optimizers[1], step=step)
fresh, again = deep_gp(gpflow_deep.paper2017, Bernoulli()), tf.keras.optimizers.Adam(0.01)
again.build(fresh.trainable_variables)
results["restored on one device"] = {
    "step": checkpoints.restore(folder, model=fresh, optimizer=again, step=step),
    **difference([*fresh.variables, *again.variables], [*models[1].variables, *optimizers[1].variables]),
}
with strategy.scope():
    fresh, again = deep_gp(gpflow_deep.paper2017, Bernoulli()), tf.keras.optimizers.Adam(0.01)
    again.build(fresh.trainable_variables)
results["restored on two devices"] = {
    "step": checkpoints.restore(folder, model=fresh, optimizer=again, step=step),
    "copies_agree": copies_agree(fresh.variables),
    **difference([*fresh.variables, *again.variables], [*models[1].variables, *optimizers[1].variables]),
}

try:
    gpflow_deep.make_train_step(models[0], tf.keras.optimizers.Adam(0.1), natgrad_gamma=0.1)
except ValueError as error:
    results["frozen"] = str(error)
print("RESULTS" + json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program above finds."""
    folder = str(tmp_path_factory.mktemp("replicas") / "checkpoints")
    program = _PROGRAM.replace("__FOLDER__", repr(folder))
    return results_of(program)


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "natural gradients", "classes"])
@pytest.mark.parametrize("what", ["gradients", "parameters", "bounds"])
def test_two_replicas_equal_one_device(name: str, what: str, results: dict[str, Any]) -> None:
    found = results[f"{name}: {what}"]
    assert found["shapes_agree"]
    assert found["difference"] < 1e-10, found


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "natural gradients", "classes"])
def test_all_parameters_move_and_all_copies_agree(name: str, results: dict[str, Any]) -> None:
    facts = results[f"{name}: facts"]
    assert facts["copies_agree"]
    assert facts["traced"] == 1
    one, two = facts["trainable"]
    assert one == two
    assert facts["moved"] >= one  # natural gradients move two that are not marked trainable


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("where", ["one device", "two devices"])
def test_checkpoint_of_two_replicas_restores(where: str, results: dict[str, Any]) -> None:
    found = results[f"restored on {where}"]
    assert (found["step"], found["difference"], found["shapes_agree"]) == (3, 0.0, True)
    assert found.get("copies_agree", True)


@pytest.mark.ci
@pytest.mark.slow
def test_natural_gradients_need_their_parameters(results: dict[str, Any]) -> None:
    assert "natgrad_gamma needs" in results["frozen"]


@pytest.mark.ci
@pytest.mark.slow
def test_noise_in_closed_form_is_that_of_one_device(results: dict[str, Any]) -> None:
    found = results["noise: values"]
    assert found["difference"] < 1e-10, found
    assert len({round(value, 10) for value in found["noise"]}) == 1
