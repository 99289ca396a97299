"""A DARN in Keras: the steps of `Trainer`, callbacks, files."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from darn.model.model import DARN, DARNConfig
from darn.model.serialization import named_variables
from darn.train.keras_model import KerasDARN
from darn.train.training import Trainer, TrainingConfig

CONFIG = DARNConfig(6, (3,), (4,))


def rows(rng: np.random.Generator, N: int) -> np.ndarray:
    return (rng.random((N, 6)) < rng.random((N, 1))).astype(np.uint8)


def test_steps_are_those_of_the_trainer(rng: np.random.Generator) -> None:
    x = rows(rng, 12)
    trainer = Trainer(DARN(CONFIG, seed=1), TrainingConfig(learning_rate=0.05), num_data=12)
    observed = trainer.advance(x, np.arange(12).reshape(3, 4), 7)
    network = KerasDARN(DARN(CONFIG, seed=1), seed=7)
    network.compile(tf.keras.optimizers.Adam(0.05))
    history = network.fit(x, batch_size=4, epochs=1, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["loss"][-1], observed.objective.mean(), rtol=1e-5)
    for own, other in zip(network.darn.trainable_variables, trainer.model.trainable_variables, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)


def test_callbacks_files_and_going_on(rng: np.random.Generator, tmp_path: Path) -> None:
    x, valid = rows(rng, 64), rows(rng, 32)
    network = KerasDARN(DARN(CONFIG, seed=1, data=x), seed=3)
    network.compile(tf.keras.optimizers.Adam(0.2))
    settings = {"batch_size": 16, "validation_data": (valid,), "shuffle": False, "verbose": 0}
    stop = tf.keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True)
    history = network.fit(x, epochs=30, callbacks=[stop], **settings).history
    found = network.evaluate(valid, batch_size=32, verbose=0, return_dict=True)
    assert len(history["loss"]) < 30
    assert isinstance(found, dict)
    assert 0 < found["kl"] < found["loss"]
    assert found["loss"] == pytest.approx(min(history["val_loss"]), rel=0.1)  # other noise: batches of another size
    log_p = network.predict(valid, verbose=0)
    np.testing.assert_allclose(log_p, network.darn.log_prob(valid), rtol=1e-5)
    network.save(tmp_path / "model.keras")
    restored = tf.keras.models.load_model(tmp_path / "model.keras")
    for name, variable in named_variables(restored.darn).items():
        np.testing.assert_array_equal(variable, named_variables(network.darn)[name])
    for each in (network, restored):  # with the optimizer's state, both go on alike
        each.fit(x, epochs=1, **settings)
    np.testing.assert_array_equal(network.get_weights()[0], restored.get_weights()[0])


@pytest.mark.parametrize("value", [np.nan, 2.0])
def test_rows_of_something_else_change_no_weight(rng: np.random.Generator, value: float) -> None:
    x = rows(rng, 12).astype(np.float32)
    x[7, 2] = value
    network = KerasDARN(DARN(CONFIG, seed=1), seed=7)
    network.compile("adam")
    before = network.get_weights()
    for call in (
        lambda: network.fit(x, verbose=0),
        lambda: network.fit(np.zeros_like(x), validation_data=(x,), verbose=0),
        lambda: network.evaluate(x, verbose=0),
        lambda: network.predict(tf.constant(x), verbose=0),
    ):
        with pytest.raises(ValueError, match=r"must be 0 or 1 everywhere, got .* in row 7, column 2"):
            call()
    with pytest.raises(tf.errors.InvalidArgumentError, match="x must be 0 or 1 everywhere"):
        network.fit(tf.data.Dataset.from_tensor_slices(x).batch(12), shuffle=False, verbose=0)
    for own, other in zip(network.get_weights(), before, strict=True):
        np.testing.assert_array_equal(own, other)
    with pytest.raises(ValueError, match="x must have 6 columns"):
        network.fit(x[:, 1:], verbose=0)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'rloo' needs several draws"):
        KerasDARN(DARN(CONFIG), estimator="rloo")
    KerasDARN(DARN(CONFIG)).save_weights(tmp_path / "a.weights.h5")
    with pytest.raises(ValueError, match="weights of another DARN"):
        KerasDARN(DARN(DARNConfig(6, (2,)))).load_weights(tmp_path / "a.weights.h5")
