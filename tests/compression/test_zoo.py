"""Ordinary Keras models of all kinds: the shrunk network is the masked one, and comes back from a file bit for bit."""

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest

import compression as bc
from compression.files.container import kernels_of, with_kernels
from compression.graph.graph import graph_of
from compression.rounding.bits import fixed_point
from tests.compression.zoo import APPLICATIONS, MODELS, inputs_of, randomise, set_statistics


def outputs_of(model: keras.Model, x: object) -> list[np.ndarray]:
    return [np.asarray(part, np.float32) for part in keras.tree.flatten(model(x, training=False))]


TOLERANCE = 1e-5
"""Of two orders of the same float32 operations, as part of the size of the outputs."""


def size_of(output: np.ndarray) -> float:
    return max(1.0, float(np.abs(output).max()))


def assert_close(model: keras.Model, expected: list[np.ndarray], x: object, tolerance: float) -> None:
    for a, b in zip(outputs_of(model, x), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * size_of(b))


def assert_varies(outputs: list[np.ndarray]) -> None:
    """Inputs make a thousand times the difference that a comparison lets pass, or it says nothing."""
    for output in outputs:
        assert np.ptp(output, axis=0).max() > 1000 * TOLERANCE * size_of(output)


def assert_every_layer_matters(model: keras.Model, x: object) -> None:
    """Without a layer's groups the outputs move by a hundred times what a comparison lets pass."""
    before = outputs_of(model, x)
    for layer in bc.bayesian_layers(model):
        mask = layer.mask.numpy()
        layer.mask.assign(np.zeros_like(mask))
        moved = max(np.abs(a - b).max() / size_of(b) for a, b in zip(outputs_of(model, x), before, strict=True))
        layer.mask.assign(mask)
        assert moved > 100 * TOLERANCE, layer.name


def rounding_of(model: keras.Model, x: object, rng: np.random.Generator) -> float:
    """The error of other roundings, as part of the outputs: float32's, from each layer, independent of one another, and
    magnified as a small change of the inputs is."""
    change = 1e-4
    float32 = 2.0**-24

    def moved(values: np.ndarray) -> np.ndarray:
        return (
            values if values.dtype.kind == "i" else (values * (1 + change * rng.normal(size=values.shape))).astype("f4")
        )

    pairs = zip(outputs_of(model, keras.tree.map_structure(moved, x)), outputs_of(model, x), strict=True)
    magnified = max(np.abs(a - b).max() / size_of(b) for a, b in pairs) / change
    return max(TOLERANCE, float(magnified * float32 * np.sqrt(len(graph_of(model).nodes))))


def mask_some(model: keras.Model, rng: np.random.Generator, part: float) -> None:
    """Switch off this part of the groups of each layer, one at least staying, and raise the biases, which are folded.

    Others in their place would silence deep networks, whose biases are those of batch normalisation.
    """
    for layer in bc.bayesian_layers(model):
        size = int(np.prod(layer.mask.shape))
        mask = (np.argsort(rng.permutation(size)) >= int(part * size)).astype("float32")
        layer.mask.assign(mask.reshape(layer.mask.shape))
        layer.bias.assign_add(0.2 * np.abs(rng.normal(size=layer.bias.shape)))


def check(
    build: Callable[[], keras.Model], rng: np.random.Generator, folder: Path, *, entropy_coded: bool = True
) -> None:
    model = randomise(build(), rng)
    x = inputs_of(model, rng)
    bayesian = bc.compress(model, num_train=100)
    precise = all(layer.compute_dtype == "float32" for layer in model.layers)
    assert_varies(outputs_of(model, x))
    assert_close(bayesian, outputs_of(model, x), x, rounding_of(model, x, rng) if precise else 2e-2)
    mask_some(bayesian, rng, 0.4)
    expected = outputs_of(bayesian, x)
    assert_varies(expected)
    assert_every_layer_matters(bayesian, x)
    small = bc.shrink(bayesian, np.inf)
    assert small.count_params() < bc.size_of(model).parameters
    assert_close(small, expected, x, TOLERANCE)
    smaller, kept = bc.shrink_bayesian(bayesian, np.inf)
    assert_close(smaller, expected, x, TOLERANCE)
    assert smaller.count_params() < bayesian.count_params()
    mask_some(smaller, rng, 0.2)
    expected = outputs_of(smaller, x)
    smallest, then = bc.shrink_bayesian(smaller, np.inf)
    assert_close(smallest, expected, x, TOLERANCE)
    sliced = bc.slice_bayesian(bayesian, bc.compose(kept, then))
    assert [w.shape for w in sliced.weights] == [w.shape for w in smallest.weights]
    sliced.set_weights(smallest.get_weights())  # what restoring a checkpoint does
    assert_close(sliced, expected, x, TOLERANCE)
    codes = [fixed_point(kernel, 8) for kernel in kernels_of(small)]
    rounded = with_kernels(small, codes, biases="float16")
    bc.save_bcz(small, folder / "raw.bcz")
    bc.save_bcz(small, folder / "rounded.bcz", codes, biases="float16", entropy_coded=entropy_coded)
    for name, wanted in (("raw", small), ("rounded", rounded)):
        for a, b in zip(outputs_of(bc.load(folder / f"{name}.bcz"), x), outputs_of(wanted, x), strict=True):
            np.testing.assert_array_equal(a, b)
    assert (folder / "rounded.bcz").stat().st_size < (folder / "raw.bcz").stat().st_size


SLOW = [pytest.mark.slow, pytest.mark.ci]
NAMES = [pytest.param(name, marks=SLOW if number % 3 else []) for number, name in enumerate(MODELS)]


@pytest.mark.parametrize("name", NAMES)
def test_any_graph_is_cut_written_and_read(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    check(MODELS[name], rng, tmp_path)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", APPLICATIONS)
def test_keras_applications_are_cut_written_and_read(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    check(APPLICATIONS[name], rng, tmp_path, entropy_coded=False)  # which would take minutes


#: All but two of 200 and 350 million weights.
FAMILIES = sorted({name for name in dir(keras.applications) if name[0].isupper()} - {"ConvNeXtLarge", "ConvNeXtXLarge"})


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_files_of_all_keras_applications(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    size = {"InceptionResNetV2": 75, "InceptionV3": 75, "Xception": 75}.get(name, 32)
    options = {"weights": None, "input_shape": (size, size, 3), "classes": 10, "classifier_activation": None}
    model, other = (getattr(keras.applications, name)(**options) for _ in range(2))
    x = rng.uniform(0, 255, (3, size, size, 3)).astype(np.float32)
    set_statistics(model, x)
    expected = np.asarray(model(x, training=False))
    assert np.ptp(expected, axis=0).max() > 1e-4 * np.abs(expected).max()
    bc.pack_weights(model, tmp_path / "weights.bcz")
    bc.load_weights(other, tmp_path / "weights.bcz")
    np.testing.assert_array_equal(other(x, training=False), expected)
    bc.save_bcz(model, tmp_path / "graph.bcz")
    np.testing.assert_array_equal(bc.load(tmp_path / "graph.bcz", max_bytes=10**10)(x, training=False), expected)


@pytest.mark.parametrize("name", [*MODELS, pytest.param("MobileNetV2", marks=SLOW)])
def test_outputs_vary_with_inputs(name: str, rng: np.random.Generator) -> None:
    """What the tests above take for granted."""
    model = randomise({**MODELS, **APPLICATIONS}[name](), rng)
    assert_varies(outputs_of(model, inputs_of(model, rng)))


@pytest.mark.parametrize("name", ["depthwise", "skip"])
def test_the_state_of_the_optimizer_goes_through_a_graph(name: str, rng: np.random.Generator) -> None:
    """Of layers that stay plain, too: the moments of batch normalisation are those of the channels that are kept."""
    model = bc.compress(randomise(MODELS[name](), rng), num_train=100)
    mask_some(model, rng, 0.4)
    optimizer = keras.optimizers.Adam(0.02)
    optimizer.build(model.trainable_variables)
    optimizer.apply([rng.normal(size=v.shape).astype("float32") for v in model.trainable_variables])
    smaller, kept = bc.shrink_bayesian(model, np.inf)
    carried = bc.carry_optimizer(optimizer, model, smaller, kept)
    assert int(carried.iterations) == 1
    old, new = (
        {variable.path: moment for variable, moment in zip(m.trainable_variables, o._momentums, strict=True)}
        for m, o in ((model, optimizer), (smaller, carried))
    )
    assert set(new) <= set(old)
    checked = 0
    for layer in smaller.layers:
        for variable in layer.trainable_variables:
            if variable.name in ("bias", "gamma", "beta") and layer.name in kept:
                expected = np.asarray(old[variable.path])[kept[layer.name].outputs]
                np.testing.assert_array_equal(new[variable.path], expected)
                checked += 1
    assert checked >= 5
