"""`bcz`: what is in a file, exports, and whether they give the same."""

from pathlib import Path

import keras
import numpy as np
import pytest

import compression as bc
from compression.__main__ import main

L = keras.layers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two inputs, one of them integers."""
    first, second = keras.Input((6,), name="numbers"), keras.Input((1,), dtype="int32", name="kind")
    x = L.Concatenate()([L.Dense(5, "tanh")(first), L.Flatten()(L.Embedding(3, 2)(second))])
    bc.save_bcz(tmp_path / "n.bcz", keras.Model([first, second], L.Dense(2)(x)))
    return tmp_path / "n.bcz"


@pytest.mark.parametrize("kind", ["npz", "keras", pytest.param("tflite", marks=pytest.mark.slow)])
def test_exports_give_the_same(kind: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(path), "--to", kind]) == 0
    assert path.with_suffix(f".{kind}").stat().st_size > 100
    assert main(["verify", str(path), "--to", kind]) == 0
    said = capsys.readouterr().out
    assert f"n.{kind}: " in said
    assert "n.bcz: whole, 57 weights, outputs finite" in said
    assert f"{kind}: largest difference " in said


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
