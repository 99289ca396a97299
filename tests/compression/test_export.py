"""Exported networks against the Keras model they come from."""

import os
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from compression.export import export_npz, export_saved_model, export_tflite, tflite_outputs
from compression.select_inputs import SelectInputs


@pytest.fixture(scope="module")
def model() -> keras.Model:
    x = inputs = keras.Input([8, 8, 1])
    x = keras.layers.MaxPooling2D()(keras.layers.Conv2D(3, 3, activation="relu")(x))
    x = SelectInputs([0, 3, 4, 10, 26])(keras.layers.Flatten()(x))
    model = keras.Model(inputs, keras.layers.Dense(4)(x))
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    return model


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-1, 1, (20, 8, 8, 1)).astype(np.float32)


def test_a_saved_model_gives_the_same_outputs_and_replaces_nothing(
    tmp_path: Path, model: keras.Model, X: np.ndarray
) -> None:
    export_saved_model(tmp_path / "saved", model)
    served = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(served.serve(X), model(X), rtol=1e-5, atol=1e-5)
    assert os.listdir(tmp_path) == ["saved"]
    with pytest.raises(ValueError, match="must be a new or empty folder"):
        export_saved_model(tmp_path / "saved", model)


def test_float_tflite_gives_the_same_outputs(tmp_path: Path, model: keras.Model, X: np.ndarray) -> None:
    size = export_tflite(tmp_path / "n.tflite", model)
    assert size == os.path.getsize(tmp_path / "n.tflite")
    np.testing.assert_allclose(tflite_outputs(tmp_path / "n.tflite", X), model(X), rtol=1e-5, atol=1e-5)
    assert os.listdir(tmp_path) == ["n.tflite"]


def test_int8_tflite_stays_within_its_steps(tmp_path: Path, model: keras.Model, X: np.ndarray) -> None:
    """Weights and activations are off by up to 1/255 of their ranges, outputs by a few percent of theirs."""
    export_tflite(tmp_path / "n.tflite", model, kind="int8", representative=X)
    expected = np.asarray(model(X))
    difference = np.abs(tflite_outputs(tmp_path / "n.tflite", X) - expected).max()
    assert 0 < difference < 0.05 * np.ptp(expected)


def test_tflite_says_what_it_needs(tmp_path: Path, model: keras.Model, X: np.ndarray) -> None:
    with pytest.raises(ValueError, match="kind must be one of float32, float16, int8, got 'int4'"):
        export_tflite(tmp_path / "n", model, kind="int4")
    for wrong in (None, X[:, :5], X[:0]):
        with pytest.raises(ValueError, match=r"int8 needs representative inputs of shape \(n, 8, 8, 1\)"):
            export_tflite(tmp_path / "n", model, kind="int8", representative=wrong)
    assert os.listdir(tmp_path) == []


def test_arrays_hold_all_weights_and_the_mask(tmp_path: Path, model: keras.Model) -> None:
    export_npz(tmp_path / "n.npz", model)
    with np.load(tmp_path / "n.npz") as stored:
        arrays = dict(stored)
    assert sorted(arrays) == [
        "0_conv2d/bias",
        "0_conv2d/kernel",
        "3_selectinputs/indices",
        "4_dense/bias",
        "4_dense/kernel",
    ]
    assert arrays["3_selectinputs/indices"].tolist() == [0, 3, 4, 10, 26]
    for name, value in zip(("0_conv2d/kernel", "0_conv2d/bias"), model.get_weights(), strict=False):
        np.testing.assert_array_equal(arrays[name], value)
