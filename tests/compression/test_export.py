"""Exported networks against the Keras model they come from."""

import os
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from compression.files.export import (
    TFLITE_KINDS,
    export_all,
    export_npz,
    export_onnx,
    export_saved_model,
    export_tflite,
    is_new_folder,
    tflite_outputs,
)
from compression.graph.select_inputs import SelectInputs


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


def test_everything_is_written_to_a_new_folder_only(tmp_path: Path, model: keras.Model, X: np.ndarray) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="must be a new or empty folder"):
        export_all(tmp_path, model, X)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.slow
def test_every_form_is_written_as_alone(tmp_path: Path, model: keras.Model, X: np.ndarray) -> None:
    export_all(tmp_path / "all", model, X)
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "all" / "network.keras")(X), model(X))
    saved = tf.saved_model.load(str(tmp_path / "all" / "saved_model"))
    np.testing.assert_allclose(saved.serve(X), model(X), rtol=1e-5, atol=1e-5)
    for kind in TFLITE_KINDS:
        export_tflite(tmp_path / "alone.tflite", model, kind=kind, representative=X)
        found, alone = (tflite_outputs(tmp_path / name, X) for name in (f"all/{kind}.tflite", "alone.tflite"))
        np.testing.assert_array_equal(found, alone)
    export_npz(tmp_path / "alone.npz", model)
    with np.load(tmp_path / "all" / "weights.npz") as found_arrays, np.load(tmp_path / "alone.npz") as arrays:
        assert {name: found_arrays[name].tolist() for name in found_arrays.files} == {
            name: arrays[name].tolist() for name in arrays.files
        }


def test_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    model = keras.Sequential([keras.Input([6]), SelectInputs([0, 3, 5]), keras.layers.Dense(3, "relu")])
    with monkeypatch.context() as without:
        without.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ValueError, match="needs the package tf2onnx: pip install tf2onnx"):
            export_onnx(tmp_path / "n.onnx", model)
    assert not (tmp_path / "n.onnx").exists()
    pytest.importorskip("tf2onnx")
    onnx = pytest.importorskip("onnx")
    assert export_onnx(tmp_path / "n.onnx", model) == (tmp_path / "n.onnx").stat().st_size
    graph = onnx.load(tmp_path / "n.onnx")
    x = rng.normal(size=(4, 6)).astype("float32")
    (found,) = pytest.importorskip("onnx.reference").ReferenceEvaluator(graph).run(None, {graph.graph.input[0].name: x})
    np.testing.assert_allclose(found, model(x), atol=1e-6)


def test_new_folders_are_absent_or_empty(tmp_path: Path) -> None:
    assert is_new_folder(tmp_path / "nothing")
    assert is_new_folder(tmp_path)
    (tmp_path / "file").touch()
    assert not is_new_folder(tmp_path)
    assert not is_new_folder(tmp_path / "file")
