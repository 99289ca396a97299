"""Networks by name, from files, and how large they are."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import compression as bc
from compression.files.container import save_bcz
from compression.graph.sizes import Size, size_of
from compression.networks import NETWORKS, NetworkConfig, build, load

SHAPES = {
    "small": (8, 8, 1),
    "lenet300": (28, 28, 1),
    "lenet5": (28, 28, 1),
}


@pytest.mark.parametrize(
    ("name", "size"),
    [
        # 9 16 + 4 16^2 + 16 64 + 640, and 16 + 16 + 64 + 10 biases; convolutions at 6 x 6 and 2 x 2 places
        ("small", Size(2832, 2938, 36 * 144 + 4 * 1024 + 1664)),
        ("lenet300", Size(266_200, 266_610, 266_200)),
        ("lenet5", Size(430_500, 431_080, 576 * 500 + 64 * 25_000 + 405_000)),
    ],
)
def test_sizes_are_those_of_the_paper(name: str, size: Size) -> None:
    model = build(name, SHAPES[name], 10)
    assert size_of(model) == size
    assert size_of(bc.compress(model, num_train=9)) == size


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (keras.layers.DepthwiseConv2D(3, depth_multiplier=2), (5, 5, 4), 9 * 4 * 2 * 9),
        (keras.layers.SeparableConv2D(6, 3), (5, 5, 4), (9 * 4 + 4 * 6) * 9),
        (keras.layers.Conv2DTranspose(6, 3, strides=2), (5, 5, 4), 9 * 4 * 6 * 25),
        (keras.layers.Conv1D(6, 3, groups=2), (7, 4), 3 * 2 * 6 * 5),
        (keras.layers.Dense(6), (7, 4), 4 * 6 * 7),
        (keras.layers.Conv1D(6, 3), (None, 4), None),
        (keras.layers.BatchNormalization(), (7, 4), 0),
    ],
)
def test_products_are_counted(layer: keras.Layer, shape: tuple[int | None, ...], expected: int | None) -> None:
    model = keras.Sequential([keras.Input(shape), layer])
    assert size_of(model).multiplications == expected


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_a_function_of_its_seed(name: str) -> None:
    """Its names as well, whatever was made before: logs and checkpoints go by them."""
    one, again, other = (build(name, SHAPES[name], 7, seed=seed) for seed in (3, 3, 4))
    assert [layer.name for layer in one.layers[1:]] == [layer.name for layer in again.layers[1:]]
    assert len({layer.name for layer in one.layers}) == len(one.layers)
    assert one.output_shape == (None, 7)
    for a, b in zip(one.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.any(one.get_weights()[0] != other.get_weights()[0])
    kernels = [weight for weight in one.get_weights() if weight.ndim > 1]
    for kernel in kernels:
        if kernel.size > 200:  # He et al.: the standard deviation is sqrt(2 / inputs), to 5 standard errors
            expected = np.sqrt(2 / np.prod(kernel.shape[:-1]))
            assert kernel.std() == pytest.approx(expected, rel=5 / np.sqrt(2 * kernel.size))


def test_names_of_layers_count_from_none() -> None:
    names = [layer.name for layer in build("small", (8, 8, 1), 10).layers[1:]]
    assert names == ["conv2d", "max_pooling2d", "conv2d_1", "max_pooling2d_1", "flatten", "dense", "dense_1"]


def test_weights_and_networks_come_from_files(tmp_path: Path) -> None:
    saved = build("small", (8, 8, 1), 10, seed=1)
    saved.save(tmp_path / "saved.keras")
    save_bcz(saved, tmp_path / "saved.bcz")
    for found in (
        build("small", (8, 8, 1), 10, seed=2, pretrained=tmp_path / "saved.keras"),
        build("own", (8, 8, 1), 10, pretrained=tmp_path / "saved.keras"),
        load(tmp_path / "saved.keras"),
        load(tmp_path / "saved.bcz"),
    ):
        for a, b in zip(saved.get_weights(), found.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(
        ValueError, match=r"the weights in .*saved\.keras must have shapes .*\(64, 7\).*, got .*\(64, 10\)"
    ):
        build("small", (8, 8, 1), 7, pretrained=tmp_path / "saved.keras")
    with pytest.raises(
        ValueError, match=r"pretrained must be a \.keras or \.bcz file, but there is none at nothing\.keras"
    ):
        load("nothing.keras")


def test_names_are_chosen_by_the_data() -> None:
    names = {name: NetworkConfig().name_for(name) for name in ("digits", "mnist", "mine")}
    assert names == {"digits": "small", "mnist": "lenet300", "mine": "lenet300"}
    assert NetworkConfig(network="lenet5").name_for("digits") == "lenet5"
    own = NetworkConfig(network="mine.keras")
    assert (own.name_for("digits"), own.file) == ("own", "mine.keras")
    assert NetworkConfig(network="mine.bcz").file == "mine.bcz"
    assert NetworkConfig(network="own", pretrained="mine.keras").file == "mine.keras"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"network": "resnet"},
            "network must be a .keras or .bcz file, auto, own or one of small, .*, got 'resnet'",
        ),
        ({"network": "own"}, "network=own needs the file of the network: give pretrained=FILE.keras"),
        ({"network": "a.keras", "pretrained": "b.keras"}, "give network=a.keras or pretrained=b.keras, not both"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NetworkConfig(**settings)


def test_unknown_networks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"network must be own or one of small, .*, got 'auto'"):
        build("auto", (8, 8, 1), 10)
    with pytest.raises(ValueError, match="network=own needs the file of the network"):
        build("own", (8, 8, 1), 10)


@pytest.mark.parametrize(("name", "least"), [("small", 8), ("lenet5", 16)])
def test_images_that_are_too_small_are_refused(name: str, least: int) -> None:
    assert build(name, (least, least, 1), 10).output_shape == (None, 10)
    with pytest.raises(
        ValueError, match=f"network={name} needs images of at least {least} x {least} pixels, got 8 x 7: "
    ):
        build(name, (8, 7, 1), 10)
