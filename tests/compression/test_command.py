"""`bcz`: what is in a file, exports, and whether they give the same."""

from pathlib import Path

import keras
import numpy as np
import pytest

import compression as bc
from compression.__main__ import _apart, main

L, ops = keras.layers, keras.ops


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two inputs, one of them integers, and two outputs of other shapes, whose names are not in their order."""
    first, second = keras.Input((6,), name="numbers"), keras.Input((1,), dtype="int32", name="kind")
    x = L.Concatenate()([L.Dense(5, "tanh")(first), L.Flatten()(L.Embedding(3, 2)(second))])
    outputs = [L.Dense(2, name="z")(x), {"a": L.Dense(1, name="a")(x)}]
    bc.save_bcz(keras.Model({"numbers": first, "kind": [second]}, outputs), tmp_path / "n.bcz")
    return tmp_path / "n.bcz"


_SLOW = ("tflite", "saved_model")


@pytest.mark.parametrize("kind", ["npz", "keras", *(pytest.param(kind, marks=pytest.mark.slow) for kind in _SLOW)])
def test_exports_give_the_same(kind: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = path.with_suffix(f".{kind}")
    assert main(["export", str(path), "--to", kind, "--output", str(output)]) == 0
    assert output.stat().st_size > 100
    assert main(["verify", str(path), "--to", kind]) == 0
    said = capsys.readouterr().out
    assert f"n.{kind}: " in said
    assert "n.bcz: whole, 65 weights, outputs finite" in said
    assert f"{kind}: largest difference " in said


@pytest.mark.slow
def test_integers_by_typical_inputs(path: Path, capsys: pytest.CaptureFixture[str], rng: np.random.Generator) -> None:
    typical = path.with_name("typical.npz")
    np.savez(typical, numbers=rng.normal(size=(50, 6)).astype("float32"), kind=rng.integers(0, 3, (50, 1)))
    command = ["verify", str(path), "--to", "tflite", "--int8", str(typical)]
    assert main(command) == 0
    assert "tflite: largest difference 0.0" in capsys.readouterr().out
    np.savez(typical, numbers=np.zeros((50, 6)))
    assert main(command) == 2
    assert "must have the inputs kind, numbers, got numbers" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("layer", [L.LSTM(3), L.Conv1D(3, 2)])
def test_loops_over_time_and_open_sizes(layer: keras.Layer, tmp_path: Path) -> None:
    words, more = keras.Input((None,), dtype="int64"), keras.Input((None, 2), dtype="float64")
    x = layer(L.Concatenate()([L.Embedding(3, 2)(words), ops.cast(more, "float32")]))
    bc.save_bcz(keras.Model([words, more], L.Dense(2)(x)), tmp_path / "n.bcz")
    assert main(["verify", str(tmp_path / "n.bcz"), "--to", "tflite"]) == 0


def test_words(tmp_path: Path) -> None:
    word = keras.Input((1,), dtype="string")
    x = L.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(word)
    bc.save_bcz(keras.Model(word, L.Dense(2)(x)), tmp_path / "n.bcz")
    assert main(["verify", str(tmp_path / "n.bcz")]) == 0


@pytest.mark.parametrize("kind", ["npz", "keras", "saved_model"])
def test_words_truth_values_and_small_integers_among_outputs(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = keras.Input((3,))
    x = L.Dense(3)(numbers)
    best = ops.argmax(x, axis=-1)
    words = L.StringLookup(vocabulary=["a", "b"], invert=True)(best)
    bc.save_bcz(keras.Model(numbers, [words, x > 0, ops.cast(best, "uint8"), x]), tmp_path / "n.bcz")
    assert main(["verify", str(tmp_path / "n.bcz"), "--to", kind]) == 0
    assert f"{kind}: largest difference 0 of the largest" in capsys.readouterr().out


def test_words_that_differ_are_told() -> None:
    assert _apart(np.array([b"a", b"b"], object), np.array([b"a", b"c"], object)) == np.inf
    assert _apart(np.array([3, 1], np.uint8), np.array([1, 3], np.uint8)) == 2


def test_files_of_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.bcz"
    model = keras.Sequential([keras.Input((12,)), L.Dense(10), L.Dense(2, dtype="float16")])
    bc.pack_weights(model, path, bits=5)
    assert main(["info", str(path)]) == 0
    assert main(["verify", str(path)]) == 0
    assert main(["export", str(path), "--to", "npz", "--output", str(tmp_path / "w.npz")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("weights only")
    assert said[2].split()[:6] == ["sequential/dense/kernel", "float32", "12", "x", "10", "grid"]
    assert f"{path}: 4 variables, whole" in said
    with np.load(tmp_path / "w.npz") as stored:
        assert stored.files[1] == "1_sequential/dense/bias"
        np.testing.assert_array_equal(stored["1_sequential/dense/bias"], model.weights[1])
    assert main(["export", str(path), "--to", "keras"]) == 2
    assert "holds weights only, which can be exported to npz" in capsys.readouterr().err


def test_damage_and_wrong_flags_are_one_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    for command in (["info", str(path)], ["verify", str(path)], ["export", str(path), "--to", "npz"]):
        assert main(command) == 2
        assert capsys.readouterr().err.startswith("bcz: error: ")
    with pytest.raises(SystemExit):
        main(["verify", str(path), "--to", "onnx", "--int8", "x.npy"])
