"""A model as a function of its parameters: against the model whose variables have these values."""

import numpy as np
import pytest
import tensorflow as tf

from darn import DARN, DARNConfig, LocalConfig, NoiseConfig, Trainer, TrainingConfig
from darn.model.gradients import estimate
from darn.model.weight_noise import with_values

N_X = 16
CONFIGS = {
    "nade": DARNConfig(N_X, (4, 3), (5,), visible_conditional="nade", prior="eonade", conditional_units=3, orders=2),
    "made": DARNConfig(N_X, (4,), encoder="made", visible_conditional="made", conditional_units=3, orders=3),
    "local": DARNConfig(
        N_X, (4,), visible_conditional="local", local=LocalConfig((4, 4), (4,), (2,), (3,), 2, visible_kernel=3)
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_values_in_place_of_variables_give_the_same_loss_and_gradients(name: str, seed: tf.Tensor) -> None:
    """To the last bit, and neither the model nor what TensorFlow knows of it changes."""
    model = DARN(CONFIGS[name], seed=seed)
    variables = model.trainable_variables
    values = [v + 0.3 * tf.random.stateless_normal(v.shape, seed) for v in variables]
    x = tf.cast(tf.random.stateless_uniform([6, N_X], seed) < 0.5, tf.float32)
    noise, before = model.encoder_noise(6, seed), [v.numpy() for v in variables]
    with tf.GradientTape() as tape:
        tape.watch(values)
        view = with_values(model, variables, values)
        loss = tf.reduce_mean(estimate(view.in_training(seed), x, noise).loss)
    gradients = tape.gradient(loss, values, unconnected_gradients="zero")
    for variable, old in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable, old)
    assert len(model.trainable_variables) == len(variables)
    assert not view.trainable_variables
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    with tf.GradientTape() as tape:
        expected = tf.reduce_mean(estimate(model.in_training(seed), x, noise).loss)
    np.testing.assert_array_equal(loss, expected)
    for found, wanted in zip(gradients, tape.gradient(expected, variables, unconnected_gradients="zero"), strict=True):
        np.testing.assert_array_equal(tf.convert_to_tensor(found), tf.convert_to_tensor(wanted))


def test_weight_noise_assigns_nothing_but_updates(seed: tf.Tensor) -> None:
    """An interruption cannot leave drawn weights behind: of a step only the optimizer writes to the parameters."""
    trainer = Trainer(DARN(DARNConfig(N_X, (4,))), TrainingConfig(noise=NoiseConfig("graves")), num_data=20)
    step = tf.function(trainer.step, autograph=False).get_concrete_function(
        tf.TensorSpec([5, N_X], tf.float32), tf.TensorSpec([2], tf.int32)
    )
    own = {id(variable.handle) for variable in trainer.model.trainable_variables}
    captured = {id(inner): id(outer) for outer, inner in step.graph.captures}
    written = [
        op.type
        for op in step.graph.get_operations()
        if op.type.startswith(("Assign", "ResourceApply")) and captured.get(id(op.inputs[0])) in own
    ]
    assert written == ["ResourceApplyAdam"] * len(own)
