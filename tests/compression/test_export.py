"""Exported networks against the Keras model they come from."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.files.export import (
    TFLITE_KINDS,
    distinct_names,
    export_all,
    export_npz,
    export_onnx,
    export_saved_model,
    export_tflite,
    is_new_folder,
    tflite_outputs,
)
from compression.graph.graph import graph_of
from compression.graph.kept_inputs import PlaceInputs, SelectInputs
from tests.processes import LIMIT_SECONDS


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
    export_saved_model(model, tmp_path / "saved")
    served = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(served.serve(X), model(X), rtol=1e-5, atol=1e-5)
    assert os.listdir(tmp_path) == ["saved"]
    with pytest.raises(ValueError, match="must be a new or empty folder"):
        export_saved_model(model, tmp_path / "saved")


def test_float_tflite_gives_the_same_outputs(tmp_path: Path, model: keras.Model, X: np.ndarray) -> None:
    size = export_tflite(model, tmp_path / "n.tflite")
    assert size == os.path.getsize(tmp_path / "n.tflite")
    np.testing.assert_allclose(tflite_outputs(tmp_path / "n.tflite", X)[0], model(X), rtol=1e-5, atol=1e-5)
    assert os.listdir(tmp_path) == ["n.tflite"]


def test_int8_tflite_stays_within_its_steps(tmp_path: Path, model: keras.Model, X: np.ndarray) -> None:
    """Weights and activations are off by up to 1/255 of their ranges, outputs by a few percent of theirs."""
    export_tflite(model, tmp_path / "n.tflite", kind="int8", representative=X)
    expected = np.asarray(model(X))
    difference = np.abs(tflite_outputs(tmp_path / "n.tflite", X)[0] - expected).max()
    assert 0 < difference < 0.05 * np.ptp(expected)


def test_tflite_says_what_it_needs(tmp_path: Path, model: keras.Model, X: np.ndarray) -> None:
    with pytest.raises(ValueError, match="kind must be one of float32, float16, int8, got 'int4'"):
        export_tflite(model, tmp_path / "n", kind="int4")
    for wrong in (None, X[:, :5], X[:0]):
        with pytest.raises(ValueError, match=r"int8 needs representative inputs of shape \(n, 8, 8, 1\)"):
            export_tflite(model, tmp_path / "n", kind="int8", representative=wrong)
    assert os.listdir(tmp_path) == []


def test_arrays_hold_all_weights_and_the_mask(tmp_path: Path, model: keras.Model) -> None:
    export_npz(model, tmp_path / "n.npz")
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


def test_arrays_hold_weights_whose_names_are_the_same_within_a_layer(tmp_path: Path) -> None:
    inputs = keras.Input([5, 4])
    attended = keras.layers.MultiHeadAttention(2, 3)(inputs, inputs)
    model = keras.Model(inputs, keras.layers.Bidirectional(keras.layers.GRU(2))(attended))
    export_npz(model, tmp_path / "n.npz")
    with np.load(tmp_path / "n.npz") as stored:
        arrays = dict(stored)
    assert {"0_multiheadattention/query/kernel", "0_multiheadattention/attention_output/bias"} < set(arrays)
    for value, array in zip(model.get_weights(), arrays.values(), strict=True):
        np.testing.assert_array_equal(array, value)


def test_names_are_as_short_as_they_differ() -> None:
    paths = ["a/query/kernel", "a/key/kernel", "a/gamma", "a/f/c/kernel", "a/b/c/kernel", "a/seed", "a/seed"]
    expected = ["query/kernel", "key/kernel", "gamma", "f/c/kernel", "b/c/kernel", "seed", "seed_1"]
    assert distinct_names(paths) == expected


def test_everything_is_written_to_a_new_folder_only(tmp_path: Path, model: keras.Model, X: np.ndarray) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="must be a new or empty folder"):
        export_all(model, tmp_path, X)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.slow
def test_every_form_is_written_as_alone(tmp_path: Path, model: keras.Model, X: np.ndarray) -> None:
    export_all(model, tmp_path / "all", X)
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "all" / "network.keras")(X), model(X))
    saved = tf.saved_model.load(str(tmp_path / "all" / "saved_model"))
    np.testing.assert_allclose(saved.serve(X), model(X), rtol=1e-5, atol=1e-5)
    for kind in TFLITE_KINDS:
        export_tflite(model, tmp_path / "alone.tflite", kind=kind, representative=X)
        found, alone = (tflite_outputs(tmp_path / name, X) for name in (f"all/{kind}.tflite", "alone.tflite"))
        np.testing.assert_array_equal(found, alone)
    export_npz(model, tmp_path / "alone.npz")
    with np.load(tmp_path / "all" / "weights.npz") as found_arrays, np.load(tmp_path / "alone.npz") as arrays:
        assert {name: found_arrays[name].tolist() for name in found_arrays.files} == {
            name: arrays[name].tolist() for name in arrays.files
        }


def test_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    model = keras.Sequential([keras.Input([6]), SelectInputs([0, 3, 5]), keras.layers.Dense(3, "relu")])
    with monkeypatch.context() as without:
        without.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ValueError, match="needs the package tf2onnx: pip install tf2onnx"):
            export_onnx(model, tmp_path / "n.onnx")
    assert not (tmp_path / "n.onnx").exists()
    pytest.importorskip("tf2onnx")
    onnx = pytest.importorskip("onnx")
    assert export_onnx(model, tmp_path / "n.onnx") == (tmp_path / "n.onnx").stat().st_size
    graph = onnx.load(tmp_path / "n.onnx")
    x = rng.normal(size=(4, 6)).astype("float32")
    (found,) = pytest.importorskip("onnx.reference").ReferenceEvaluator(graph).run(None, {graph.graph.input[0].name: x})
    np.testing.assert_allclose(found, model(x), atol=1e-6)


@pytest.fixture(scope="module")
def mixed() -> keras.Model:
    """Numbers and words, by name."""
    numbers, words = keras.Input([8], name="numbers"), keras.Input([5], dtype="int32", name="a_word")
    embedded = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(9, 6)(words))
    hidden = keras.layers.Concatenate()([keras.layers.Dense(6, "relu")(numbers), embedded])
    model = keras.Model({"numbers": numbers, "a_word": words}, keras.layers.Dense(3)(hidden))
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    return model


@pytest.fixture
def rows(rng: np.random.Generator) -> dict[str, np.ndarray]:
    numbers = rng.normal(size=(20, 8)).astype(np.float32)
    return {"numbers": numbers, "a_word": rng.integers(0, 9, (20, 5)).astype(np.int32)}


@pytest.mark.parametrize("kind", TFLITE_KINDS)
def test_tflite_takes_several_inputs_and_integers(
    kind: str, tmp_path: Path, mixed: keras.Model, rows: dict[str, np.ndarray]
) -> None:
    """float16 keeps 11 bits of a weight; int8 is off by some percent of the range of the outputs."""
    export_tflite(mixed, tmp_path / "n.tflite", kind=kind, representative=rows)
    found, expected = tflite_outputs(tmp_path / "n.tflite", rows)[0], np.asarray(mixed(rows))
    most = {"float32": 1e-6, "float16": 2e-3, "int8": 0.05}[kind]
    assert np.abs(found - expected).max() < most * np.ptp(expected)
    with pytest.raises(ValueError, match=r"has the inputs \['a_word', 'numbers'\], got \['numbers'\]"):
        tflite_outputs(tmp_path / "n.tflite", {"numbers": rows["numbers"]})
    for wrong in (rows["numbers"][:, :3], rows["numbers"][:0], rows["numbers"][:7]):
        with pytest.raises(ValueError, match=r"must have one row or more of shape \[n, [58]\], as many as others, got"):
            tflite_outputs(tmp_path / "n.tflite", {**rows, "numbers": wrong})


def test_tflite_looks_words_up(tmp_path: Path) -> None:
    """A file for any number of examples would fail at its first operation: one that runs is written."""
    words = keras.Input([1], dtype="string")
    codes = keras.layers.StringLookup(vocabulary=["a", "b", "c"])(words)
    model = keras.Model(words, keras.layers.Dense(2)(keras.layers.Flatten()(keras.layers.Embedding(5, 3)(codes))))
    export_tflite(model, tmp_path / "words.tflite")
    texts = np.array([["a"], ["b"], ["other"], ["c"]])
    (outputs,) = tflite_outputs(tmp_path / "words.tflite", texts)
    np.testing.assert_allclose(outputs, model(tf.constant(texts)), atol=1e-6)


def test_tflite_has_the_places_of_the_largest_and_smallest(tmp_path: Path, rng: np.random.Generator) -> None:
    """Of Keras' own operations for them it has none."""
    i = keras.Input((4, 3))
    x = keras.layers.Dense(5)(i)
    places = keras.ops.argmax(x, axis=-1), keras.ops.argmin(x, axis=1, keepdims=True)
    model = keras.Model(i, [*places, keras.layers.Dense(2)(keras.ops.cast(places[0], "float32"))])
    export_tflite(model, tmp_path / "n.tflite")
    rows = rng.normal(size=(6, 4, 3)).astype(np.float32)
    for found, expected in zip(tflite_outputs(tmp_path / "n.tflite", rows), model(rows), strict=True):
        assert np.ptp(expected) > 0
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_steps_of_a_sequence_of_any_length(tmp_path: Path, rng: np.random.Generator) -> None:
    """TimeDistributed of Keras takes the number of examples for that of steps where both are open."""
    i = keras.Input((None, 3))
    x = keras.layers.TimeDistributed(keras.layers.Dense(4, "softmax"))(keras.layers.Masking()(i))
    model = keras.Model(i, keras.layers.TimeDistributed(keras.layers.Dense(2))(x))
    rows = rng.normal(size=(2, 7, 3)).astype(np.float32)
    expected = np.asarray(model(rows))
    export_saved_model(model, tmp_path / "saved")
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.serve(rows), expected, atol=1e-6)
    export_tflite(model, tmp_path / "n.tflite")
    np.testing.assert_allclose(tflite_outputs(tmp_path / "n.tflite", rows)[0], expected, atol=1e-6)


def test_what_tflite_has_not_is_named(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Conv2DTranspose(2, 3, dilation_rate=2)])
    with pytest.raises(
        ValueError, match=r"cannot hold the network \w+: it has no Conv2DBackpropInput of TensorFlow\.$"
    ):
        export_tflite(model, tmp_path / "n.tflite")
    i = keras.Input((3,))
    double = keras.Model(i, keras.ops.relu(2 * keras.ops.cast(i, "float64")))
    with pytest.raises(ValueError, match=r"it has no Mul of float64, Relu of float64 of TensorFlow\.$"):
        export_tflite(double, tmp_path / "n.tflite")
    # Loops over time hide at first what else is missing, and some layers the number of examples that loops need.
    hashed = [keras.Input([1], dtype="string"), keras.layers.Hashing(8), keras.layers.Embedding(8, 3)]
    with pytest.raises(ValueError, match=r"it has no StringToHashBucketFast of TensorFlow\.$"):
        export_tflite(keras.Sequential([*hashed, keras.layers.LSTM(2)]), tmp_path / "n.tflite")
    words = keras.layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=3)
    texts = [keras.Input([1], dtype="string"), words, keras.layers.Embedding(4, 3), keras.layers.LSTM(2)]
    with pytest.raises(ValueError, match="it has no loop over time behind an operation that leaves the number of exam"):
        export_tflite(keras.Sequential(texts), tmp_path / "n.tflite")
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_of_a_folder_that_could_not_be_written(
    tmp_path: Path, model: keras.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(network: keras.Model, path: str, **_: object) -> None:
        Path(path).mkdir()
        raise RuntimeError("no space left")

    monkeypatch.setattr(keras.Model, "export", fail)
    with pytest.raises(RuntimeError, match="no space left"):
        export_saved_model(model, tmp_path / "saved")
    assert not list(tmp_path.iterdir())


def test_int8_says_which_inputs_it_needs(tmp_path: Path, mixed: keras.Model, rows: dict[str, np.ndarray]) -> None:
    short = {**rows, "numbers": rows["numbers"][:5]}
    for wrong in (None, rows["numbers"], short):
        with pytest.raises(ValueError, match=r"of shape \(n, 5\) and \(n, 8\), got"):
            export_tflite(mixed, tmp_path / "n", kind="int8", representative=wrong)


def test_onnx_takes_several_inputs_and_integers(
    tmp_path: Path, mixed: keras.Model, rows: dict[str, np.ndarray]
) -> None:
    pytest.importorskip("tf2onnx")
    onnx = pytest.importorskip("onnx")
    export_onnx(mixed, tmp_path / "n.onnx")
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator(onnx.load(tmp_path / "n.onnx"))
    np.testing.assert_allclose(evaluator.run(None, rows)[0], mixed(rows), atol=1e-5)


def test_onnx_has_gelu_and_refuses_what_it_has_not(tmp_path: Path, rng: np.random.Generator) -> None:
    pytest.importorskip("tf2onnx")
    onnx = pytest.importorskip("onnx")
    model = keras.Sequential([keras.Input([6]), keras.layers.Dense(5, "gelu"), keras.layers.Dense(2)])
    path = tmp_path / "n.onnx"
    export_onnx(model, path)
    x = 3 * rng.normal(size=(4, 6)).astype(np.float32)
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator(onnx.load(path))
    np.testing.assert_allclose(evaluator.run(None, {evaluator.input_names[0]: x})[0], model(x), atol=1e-5)
    # Nothing is written where an operation is missing.
    content = path.read_bytes()
    inputs = keras.Input([6])
    with pytest.raises(ValueError, match=r"ONNX cannot hold the network .*Erfinv"):
        export_onnx(keras.Model(inputs, keras.ops.erfinv(keras.ops.tanh(inputs))), path)
    assert path.read_bytes() == content


def cut(rng: np.random.Generator) -> keras.Model:
    """A network with inputs selected and constants placed."""
    inputs = keras.Input([6])
    hidden = SelectInputs([0, 3, 5])(inputs)
    place = PlaceInputs([2, -1, 0, 1])
    model = keras.Model(inputs, keras.layers.Dense(3)(place(keras.layers.Dense(3, "relu")(hidden))))
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    place.fill.assign([0.0, 0.7, 0.0, 0.0])
    return model


_ALONE = """
import sys
import keras, numpy as np
model = keras.models.load_model(sys.argv[1])
assert not [name for name in sys.modules if name.split(".")[0] == "compression"]
np.save(sys.argv[2], np.asarray(model(np.load(sys.argv[3]))))
"""


def test_a_portable_network_loads_without_this_package(tmp_path: Path, rng: np.random.Generator) -> None:
    model, X = cut(rng), rng.normal(size=(7, 6)).astype(np.float32)
    bc.portable(model).save(tmp_path / "n.keras")
    np.save(tmp_path / "x.npy", X)
    names = [str(tmp_path / name) for name in ("n.keras", "y.npy", "x.npy")]
    subprocess.run([sys.executable, "-c", _ALONE, *names], check=True, timeout=LIMIT_SECONDS)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model(X), rtol=1e-6, atol=1e-6)


def test_a_portable_network_is_read_as_the_one_it_was(tmp_path: Path, rng: np.random.Generator) -> None:
    """Layers, weights and files are the same again, and a network without such layers is given back itself."""
    model = cut(rng)
    copy = bc.portable(model)
    kinds = [type(node.layer).__name__ for node in graph_of(model).nodes]
    assert [type(node.layer).__name__ for node in graph_of(copy).nodes] == kinds
    assert not {type(layer).__name__ for layer in copy.layers} & {"SelectInputs", "PlaceInputs"}
    for network, name in ((model, "a.bcz"), (copy, "b.bcz")):
        bc.save_bcz(network, tmp_path / name)
    X = rng.normal(size=(7, 6)).astype(np.float32)
    for name in ("a.bcz", "b.bcz"):
        np.testing.assert_array_equal(bc.load(tmp_path / name)(X), model(X))
    plain = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    assert bc.portable(plain) is plain


def test_new_folders_are_absent_or_empty(tmp_path: Path) -> None:
    assert is_new_folder(tmp_path / "nothing")
    assert is_new_folder(tmp_path)
    (tmp_path / "file").touch()
    assert not is_new_folder(tmp_path)
    assert not is_new_folder(tmp_path / "file")
