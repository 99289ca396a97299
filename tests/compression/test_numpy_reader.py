"""The reader on NumPy alone: the same bits as the other one, by another program, and without TensorFlow."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import compression.numpy_reader as numpy_reader
from compression.files.container import coded_variables, kernels_of, read_bcz, save_bcz
from compression.files.random_codes.random_coding import RandomCode
from compression.graph.kept_inputs import SelectInputs
from compression.rounding.bits import fixed_point, grid
from compression.rounding.codebook import codebook

L = keras.layers
FOLDER = Path(numpy_reader.__file__).parent


def chain() -> keras.Model:
    layers = [L.Conv2D(6, (3, 2), strides=(1, 2), activation="relu", padding="same"), L.MaxPooling2D(), L.Flatten()]
    more = [SelectInputs(np.arange(0, 48, 3)), L.Dense(9, "tanh"), L.LeakyReLU(0.2), L.Dense(4, use_bias=False)]
    return keras.Sequential([keras.Input((8, 8, 2)), *layers, *more])


def graph() -> keras.Model:
    inputs = keras.Input((5, 3))
    hidden = L.BatchNormalization()(L.LSTM(4)(inputs))
    return keras.Model(inputs, L.Dense(2)(L.Add()([hidden, L.Dense(4, "relu")(hidden)]) / 2.0))


CODINGS: dict[str, Any] = {
    "raw": lambda w: None,
    "fixed": lambda w: fixed_point(w, 5),
    "grid": lambda w: grid(w, 9),
    "sparse grid": lambda w: grid(np.where(np.abs(w) > np.quantile(np.abs(w), 0.8), w, 0.0), 12),
    "codebook": lambda w: codebook(w, 8),
}


def same(path: Path) -> None:
    found, expected = numpy_reader.read(str(path)), read_bcz(path)
    parts = [part for each in expected.weights for part in (each.kernel, each.bias) if part is not None]
    assert len(parts) == len(found["weights"]) >= 3
    for a, b in zip(found["weights"], parts, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [kind for kind, *_ in found["layers"]][:2] == [type(node.layer).__name__ for node in expected.graph.nodes][
        :2
    ]


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("make", [chain, graph])
def test_weights_are_those_of_the_other_reader(make: Any, coding: str, tmp_path: Path) -> None:
    model = make()
    kernels = None if coding == "raw" else [CODINGS[coding](kernel) for kernel in kernels_of(model)]
    for biases, entropy_coded in (("float16", False), (6, True)):
        save_bcz(model, tmp_path / "n.bcz", kernels, biases=biases, entropy_coded=entropy_coded)
        same(tmp_path / "n.bcz")


def test_images_have_neighbours(tmp_path: Path, rng: np.random.Generator) -> None:
    model = keras.Sequential([keras.Input((9, 9)), L.Flatten(), L.Dense(7), L.Dense(3)])
    near = np.repeat(np.repeat(rng.normal(size=(3, 3, 7)), 3, axis=0), 3, axis=1).reshape(81, 7)
    model.layers[-2].kernel.assign(near)
    save_bcz(model, tmp_path / "n.bcz", [fixed_point(kernel, 3) for kernel in kernels_of(model)])
    same(tmp_path / "n.bcz")


def test_random_draws_without_tensorflow(tmp_path: Path, rng: np.random.Generator) -> None:
    """In a program of its own, with both files beside it."""
    path, model = tmp_path / "n.bcz", chain()
    shapes = tuple(tuple(int(size) for size in variable.shape) for variable in coded_variables(model))
    sharing = (1, 1, 3, 1, 1)[: len(shapes)]
    code = RandomCode(5, 10, (90,) * len(shapes), sharing, rng.integers(0, 1024, 40), shapes)
    save_bcz(model, path, code)
    same(path)
    program = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import numpy_reader\n"
        f"weights = numpy_reader.read({str(path)!r})['weights']\n"
        "assert not {'tensorflow', 'keras', 'numba', 'compression'} & set(sys.modules)\n"
        "print(*(float(part.sum()) for part in weights))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert [float(word) for word in done.stdout.split()] == [float(part.sum()) for part in code.values()]


def test_damage_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "n.bcz"
    save_bcz(chain(), path)
    content = path.read_bytes()
    short = ((content[:4], "no .bcz network"), (content[:7], "truncated or damaged"))
    for wrong, message in ((content[:-1], "truncated or damaged"), (b"PK" + content, "no .bcz network"), *short):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=message):
            numpy_reader.read(str(path))
