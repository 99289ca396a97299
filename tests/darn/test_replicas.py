"""Two replicas of `tf.distribute` do what one device does with all rows.

Devices have to be set before TensorFlow starts, so the comparison runs in a process with two logical CPU devices.
"""

from typing import Any

import pytest
import tensorflow as tf

from darn.model.model import DARN, DARNConfig
from darn.model.replicas import mean_over_replicas, num_replicas, own_rows, sum_over_replicas
from darn.train.training import Trainer, TrainingConfig
from tests.scripts.running import results_of

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "deep": (
        {"hidden": (5, 4), "units": (6,), "skip": True},
        {"average": 0.9, "clip_norm": 0.5, "weight_decay": 0.1, "half_life": 5.0},
    ),
    "sparse": ({}, {"optimizer": "rmsprop", "sparsity": 0.2}),
    "straight_through": ({}, {"estimator": "straight_through"}),
    "reinforce": ({}, {"estimator": "reinforce"}),
    "rloo": ({}, {"estimator": "rloo", "num_samples": 3}),
    "disarm": ({}, {"estimator": "disarm"}),
    "simpson": ({}, {"estimator": "simpson"}),
    "graves": ({}, {"weight_noise": "graves"}),
    "reparameterised": ({}, {"weight_noise": "reparameterised"}),
    "eonade": ({"visible_conditional": "eonade"}, {}),
    "made": ({"visible_conditional": "made"}, {}),
}

_PROGRAM = """
import json, sys
import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
from darn.model.model import DARN, DARNConfig
from darn.train.training import Trainer, TrainingConfig
from gpflow_deep_base.numbers.groups import by_group
from tests.darn.test_replicas import CASES

x = (np.random.default_rng(0).random((48, 9)) < 0.4).astype(float)
rows = np.arange(48, dtype=np.int32).reshape(3, 16)
seed = tf.constant([3, 5])
results = {}
for name, (model, training) in CASES.items():
    found = []
    for where in (None, strategy):
        config = DARNConfig(**{"visible": 9, "hidden": (5,), "dtype": "float64", **model})
        if where is None:
            darn = DARN(config, seed=seed, data=x)
        else:
            with where.scope():
                darn = DARN(config, seed=seed, data=x)
        start = [v.numpy() for v in darn.trainable_variables]
        config = TrainingConfig(**by_group(TrainingConfig, {"learning_rate": 0.01, **training}))
        trainer = Trainer(darn, config, num_data=48, strategy=where)
        observed = trainer.compiled_steps()(tf.constant(x), tf.constant(rows), tf.constant(3), seed)
        moments = [v for v in trainer.optimizer.variables if v.dtype != "int64"]
        noise = [] if trainer.noise is None else trainer.noise.log_variances
        parts = {"parameters": darn.trainable_variables, "averages": trainer.averages, "observed": observed}
        parts.update(moments=moments, noise=noise)
        found.append({k: [np.asarray(v) for v in values] for k, values in parts.items()})
        moved = [float(np.abs(v.numpy() - old).max()) for v, old in zip(darn.trainable_variables, start)]
    one, two = found
    results[name] = {
        "difference": {
            k: max([float(np.abs(a - b).max()) for a, b in zip(one[k], two[k], strict=True)], default=0.0) for k in one
        },
        "least_moved": min(moved),
        "copies_agree": all(np.array_equal(*[np.asarray(c) for c in v.values]) for v in darn.trainable_variables),
        "sizes": {k: len(values) for k, values in one.items()},
    }
    if name == "plain":
        errors = []
        for call in (lambda: trainer.compiled_steps(jit_compile=True), lambda: trainer.step(tf.constant(x[:15]), seed)):
            try:
                call()
            except ValueError as error:
                errors.append(str(error))
        results["errors"] = errors
print("RESULTS" + json.dumps(results))
"""


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """What the program above finds."""
    return results_of(_PROGRAM)


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_two_replicas_equal_one_device(name: str, results: dict[str, Any]) -> None:
    found = results[name]
    assert max(found["difference"].values()) < 1e-10, found
    assert found["copies_agree"]
    assert found["least_moved"] > 1e-6
    assert found["sizes"]["moments"] > 0
    assert (found["sizes"]["averages"] > 0) == (name == "deep")
    assert (found["sizes"]["noise"] > 0) == (name in ("graves", "reparameterised"))


@pytest.mark.ci
@pytest.mark.slow
def test_errors_with_two_replicas(results: dict[str, Any]) -> None:
    xla, rows = results["errors"]
    assert "XLA is for one device here" in xla
    assert "a minibatch must be a multiple of the 2 replicas, got 15 rows" in rows


def test_one_device_is_left_alone(seed: tf.Tensor) -> None:
    asked: list[int] = []

    def draw(rows: Any) -> tuple[tf.Tensor, ...]:
        asked.append(int(rows))
        return (tf.random.stateless_normal([rows, 2], seed),)

    (noise,) = own_rows(draw, 3, copies=2)
    assert asked == [6]
    assert noise.shape == (6, 2)
    value = tf.constant([1.0, 2.0])
    assert sum_over_replicas(value) is value
    assert mean_over_replicas(value) is value
    assert num_replicas() == 1


def test_clipping_is_of_the_whole_gradient(seed: tf.Tensor) -> None:
    x = tf.constant([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]], tf.float64)
    moves = {}
    for clip_norm in (None, 1e3, 0.01):
        darn = DARN(DARNConfig(visible=3, hidden=(2,), dtype="float64"), seed=seed)
        start = tf.concat([tf.reshape(v, [-1]) for v in darn.trainable_variables], 0)
        config = TrainingConfig(optimizer="rmsprop", momentum=0.0, learning_rate=1e-3, clip_norm=clip_norm)
        observed = Trainer(darn, config, num_data=2).step(x, seed)
        assert observed.gradient_norm > 0.02  # the norm before it is clipped
        moves[clip_norm] = tf.concat([tf.reshape(v, [-1]) for v in darn.trainable_variables], 0) - start
    tf.debugging.assert_equal(moves[None], moves[1e3])
    assert tf.norm(moves[0.01]) < 0.2 * tf.norm(moves[None])
