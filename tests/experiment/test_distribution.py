"""`experiment.distribution` and the deep GP's step: two replicas do what one device does with all rows.

Devices have to be set before TensorFlow starts, so the comparisons run in a process with two logical CPU devices.
"""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from experiment.distribution import (
    Worker,
    check_same_step,
    make_strategy,
    make_train_step,
    replica_noise,
    scope,
    worker_of,
)
from tests.scripts.running import results_of

_PROGRAM = """
import json
import numpy as np
import tensorflow as tf
import gpflow, gpflow_deep
from experiment import checkpoints, distribution
from gpflow.likelihoods import Bernoulli

folder = __FOLDER__
strategy = distribution.make_strategy("mirrored")
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
    ("natural gradients", gpflow_deep.modern, 0.1, None, {}),
    ("classes", gpflow_deep.paper2017, None, Bernoulli, {}),
]:
    models, steps, optimizers = [], [], []
    for where in (None, strategy):
        with distribution.scope(where):
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
        parts = distribution.split_batch(strategy, batch)
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


# A Keras network with weight noise and binary units, as the other papers have.
nets, losses = [], []
for where in (None, strategy):
    with distribution.scope(where):
        tf.keras.utils.set_random_seed(1)
        net = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(4, dtype="float64"),
                                   tf.keras.layers.Dense(1, dtype="float64")])
        optimizer = tf.keras.optimizers.Adam(0.01)

    def loss(batch, seed, net=net):
        X, Y = batch
        rows = X.shape[0]
        noise = distribution.replica_noise(lambda n: tf.random.stateless_normal([n, 4], seed, dtype=X.dtype), rows)
        u = distribution.replica_noise(lambda n: tf.random.stateless_uniform([n, 4], seed, dtype=X.dtype), rows)
        logits = net.layers[0](X) + 0.1 * noise
        h = tf.cast(u < tf.sigmoid(logits), X.dtype)
        error = tf.square(net.layers[1](h) - Y)
        log_q = -tf.nn.sigmoid_cross_entropy_with_logits(h, logits)
        estimate = error + tf.stop_gradient(error) * tf.reduce_sum(log_q, axis=1, keepdims=True)
        penalty = sum(tf.reduce_sum(tf.square(w)) for w in net.trainable_variables)
        return tf.reduce_mean(estimate) + 0.01 * penalty, {"error": tf.reduce_mean(error)}

    nets.append(net)
    step = distribution.make_train_step(where, loss, optimizer, net.trainable_variables)
    for t in range(3):
        batch = tf.constant(X[16 * t : 16 * t + 16]), tf.constant(Y[16 * t : 16 * t + 16])
        scalars = step(batch if where is None else distribution.split_batch(where, batch), tf.random.fold_in(seed, t))
        losses.append(float(scalars["error"]))
results["network: parameters"] = difference(nets[0].variables, nets[1].variables)
results["network: scalars"] = difference(losses[:3], losses[3:])

worker = distribution.worker_of(strategy)
results["worker"] = [worker.index, worker.count, worker.num_replicas, worker.is_chief]
distribution.check_same_step(strategy, 5)
errors = {}
for name, call in {
    "rows": lambda: distribution.split_batch(strategy, (tf.zeros([3, 1]),)),
    "late": lambda: distribution.make_strategy("mirrored", num_replicas=3),
    "frozen": lambda: gpflow_deep.make_train_step(models[0], tf.keras.optimizers.Adam(0.1), natgrad_gamma=0.1),
}.items():
    try:
        call()
    except ValueError as error:
        errors[name] = str(error)
results["errors"] = errors
print("RESULTS" + json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program above finds."""
    folder = str(tmp_path_factory.mktemp("distribution") / "checkpoints")
    program = _PROGRAM.replace("__FOLDER__", repr(folder))
    return results_of(program)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "natural gradients", "classes"])
@pytest.mark.parametrize("what", ["gradients", "parameters", "bounds"])
def test_two_replicas_equal_one_device(name: str, what: str, results: dict[str, Any]) -> None:
    found = results[f"{name}: {what}"]
    assert found["shapes_agree"]
    assert found["difference"] < 1e-10, found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "natural gradients", "classes"])
def test_all_parameters_move_and_all_copies_agree(name: str, results: dict[str, Any]) -> None:
    facts = results[f"{name}: facts"]
    assert facts["copies_agree"]
    assert facts["traced"] == 1
    one, two = facts["trainable"]
    assert one == two
    assert facts["moved"] >= one  # natural gradients move two that are not marked trainable


@pytest.mark.slow
@pytest.mark.parametrize("where", ["one device", "two devices"])
def test_checkpoint_of_two_replicas_restores(where: str, results: dict[str, Any]) -> None:
    found = results[f"restored on {where}"]
    assert (found["step"], found["difference"], found["shapes_agree"]) == (3, 0.0, True)
    assert found.get("copies_agree", True)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["parameters", "scalars"])
def test_any_network_with_noise(what: str, results: dict[str, Any]) -> None:
    assert results[f"network: {what}"]["difference"] < 1e-12, results[f"network: {what}"]


@pytest.mark.slow
def test_worker_and_errors_with_two_devices(results: dict[str, Any]) -> None:
    assert results["worker"] == [0, 1, 2, True]
    errors = results["errors"]
    assert "a batch must be a multiple of the 2 replicas, got 3 rows" in errors["rows"]
    assert "--strategy=mirrored came too late" in errors["late"]
    assert "natgrad_gamma needs" in errors["frozen"]


def test_without_a_strategy(seed: tf.Tensor) -> None:
    strategy = make_strategy("none")
    assert strategy is None
    assert worker_of(strategy) == Worker(0, 1, 1)
    check_same_step(strategy, 7)
    with scope(strategy):
        variable = tf.Variable([1.0, -1.0])
    step = make_train_step(
        strategy,
        lambda x, seed: (tf.reduce_mean(x * variable), {"noise": tf.random.stateless_normal([], seed)}),
        tf.keras.optimizers.SGD(1.0),
        [variable],
    )
    scalars = step(tf.constant([2.0, 4.0]), seed)
    np.testing.assert_allclose(variable, [0.0, -3.0])  # the gradient is x / 2
    np.testing.assert_allclose(scalars["noise"], tf.random.stateless_normal([], seed))
    noise = replica_noise(lambda rows: tf.random.stateless_normal([rows, 2], seed), 3)
    np.testing.assert_array_equal(noise, tf.random.stateless_normal([3, 2], seed))


def test_rows_of_a_worker() -> None:
    assert Worker(1, 2, 4).batch_size(16) == 8
    assert not Worker(1, 2).is_chief
    with pytest.raises(ValueError, match="--batch_size must be a multiple of the 8 replicas, got 20"):
        Worker(1, 2, 4).batch_size(20)


@pytest.mark.parametrize(
    ("name", "num_replicas", "message"),
    [
        ("all", None, "--strategy must be one of none, mirrored, multi_worker, got 'all'"),
        ("none", 2, "--replicas must be at least 1 and needs --strategy=mirrored"),
        ("mirrored", 0, "--replicas must be at least 1"),
    ],
)
def test_bad_strategies(name: str, num_replicas: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_strategy(name, num_replicas=num_replicas)


@pytest.mark.parametrize(
    "config",
    [
        None,
        "no json",
        "{}",
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_bad_tf_config(config: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="--strategy=multi_worker needs the environment variable TF_CONFIG, such as"):
        make_strategy("multi_worker")
