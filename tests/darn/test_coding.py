"""The codec: lossless, as long as the description length, the same bytes however it is run; it refuses bad files."""

import functools
import zlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from darn.coding import decode, encode, read_header
from darn.description_length import description_length
from darn.integer_model import IntegerModel
from darn.model import DARN, DARNConfig
from darn.rans import compiled_kernels

ENGINES = ["numpy"] + ["numba"] * (compiled_kernels() is not None)

CONFIGS = {
    "visible": DARNConfig(20, (), visible_conditional="linear"),
    "factorial": DARNConfig(20, (8,), prior="factorial"),
    "linear": DARNConfig(20, (8,), visible_conditional="linear", encoder="linear"),
    "tanh": DARNConfig(20, (8,), (9,), visible_conditional="linear"),
    "deep": DARNConfig(20, (8, 6, 5), (7,)),
    "deep skip": DARNConfig(20, (8, 6, 5), (7, 7), skip=True, encoder="linear", activation="relu"),
}


def random_model(config: DARNConfig, scale: float = 0.6) -> DARN:
    """A model with all weights drawn, the same in each call."""
    rng = np.random.default_rng(0)
    model = DARN(config, seed=1)
    for variable in model.trainable_variables:
        variable.assign(scale * rng.normal(size=variable.shape))
    return model


@functools.cache
def integer_model(name: str) -> IntegerModel:
    return IntegerModel(random_model(CONFIGS[name]))


def random_images(rng: np.random.Generator, N: int) -> np.ndarray:
    return (rng.random((N, 20)) < rng.random(20)).astype(np.uint8)


@pytest.mark.parametrize("N", [1, 2, 150])
@pytest.mark.parametrize("name", CONFIGS)
def test_lossless(rng: np.random.Generator, name: str, N: int) -> None:
    images = random_images(rng, N)
    data = encode(integer_model(name), images)
    np.testing.assert_array_equal(decode(integer_model(name), data), images)
    header = read_header(data)
    assert (header.num_images, header.width) == (N, 20)


@pytest.mark.parametrize("name", ["linear", "deep"])
def test_same_bytes_however_it_is_run(rng: np.random.Generator, name: str) -> None:
    """Engines, batch sizes, dtypes of the images, the float or the integer model, eagerly or in a graph."""
    images = random_images(rng, 900)
    data = encode(integer_model(name), images)
    assert read_header(data).num_lanes > 1
    for engine, batch_size in zip(ENGINES, (64, 1), strict=False):
        assert encode(integer_model(name), images, batch_size=batch_size, engine=engine) == data
        np.testing.assert_array_equal(decode(integer_model(name), data, batch_size=batch_size, engine=engine), images)
    assert encode(random_model(CONFIGS[name]), images.astype(bool)) == data
    assert encode(integer_model(name), images.astype(np.float32)) == data
    in_graph: list[bytes] = []
    tf.function(lambda: in_graph.append(encode(integer_model(name), images)), autograph=False)()
    assert in_graph == [data]


def test_length_is_the_description_length(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """On draws from the model, with a poor encoder: within 0.5 %, header and all.

    The file is one draw of each image's code length, and its mean over images has a standard error; 5 of them are
    allowed besides.
    """
    model = random_model(DARNConfig(200, (20,)), 0.2)
    images = model.sample(3000, seed).x.numpy()
    expected = description_length(model, images, seed=seed, num_samples=20, unit="bits")
    one = description_length(model, images, seed=seed, unit="bits")
    noise = float(np.std(one.total - expected.total)) / np.sqrt(len(images))
    assert 5 * noise < 0.005 * expected.total.mean()
    bits = 8 * len(encode(model, images)) / len(images)
    assert abs(bits / expected.total.mean() - 1) < 0.005 + 5 * noise / expected.total.mean()


def test_images_without_information(rng: np.random.Generator) -> None:
    """Images that cost less than what popping needs: the seed's bytes fill in, and are in the file once.

    A round of 5000 / 64 = 78 images pops 8 bits each; header, state and images take 42 bytes.
    """
    model = random_model(DARNConfig(20, (8,)), 0.0)
    model.decoders[0].conditional.bias.assign(tf.fill([20], 20.0))
    images = np.ones((5000, 20), np.uint8)
    data = encode(model, images)
    np.testing.assert_array_equal(decode(model, data), images)
    assert len(data) <= 78 + 42


def test_images_of_probability_near_zero(rng: np.random.Generator) -> None:
    model = random_model(DARNConfig(20, (8,)), 30.0)
    images = random_images(rng, 60)
    np.testing.assert_array_equal(decode(model, encode(model, images)), images)


class TestBadFiles:
    images = (np.random.default_rng(1).random((50, 20)) < 0.5).astype(np.uint8)

    @functools.cached_property
    def data(self) -> bytes:
        return encode(integer_model("linear"), self.images)

    def decode(self, data: bytes) -> Any:
        return decode(integer_model("linear"), data)

    def test_truncated(self) -> None:
        for length in [*range(1, 40), len(self.data) // 2, len(self.data) - 1]:
            with pytest.raises(ValueError, match="truncated"):
                self.decode(self.data[:length])

    def test_any_byte_changed(self) -> None:
        for place in range(len(self.data)):
            changed = bytearray(self.data)
            changed[place] ^= 0x15
            with pytest.raises(ValueError, match=r"no file coded|version|truncated|damaged"):
                self.decode(bytes(changed))

    def test_bytes_added(self) -> None:
        with pytest.raises(ValueError, match="damaged"):
            self.decode(self.data + b"\0")

    @pytest.mark.parametrize("data", [b"", b"PK\3\4 something else that is longer than a header"])
    def test_other_file(self, data: bytes) -> None:
        with pytest.raises(ValueError, match="no file coded with a DARN"):
            self.decode(data)

    def test_other_version(self) -> None:
        with pytest.raises(ValueError, match="version 9, this program reads 1"):
            self.decode(b"DARN\x09" + self.data[5:])

    def test_other_model(self) -> None:
        with pytest.raises(ValueError, match="give the model it was coded with"):
            decode(integer_model("factorial"), self.data)

    def test_damage_that_the_crc_does_not_show(self) -> None:
        """A file made wrong on purpose, with a right CRC: the decoder notices at its end, and never loops."""
        header = read_header(self.data)
        for place in range(header.code_start, len(self.data), 3):
            changed = bytearray(self.data)
            changed[place] ^= 1
            start = header.code_start
            crc = zlib.crc32(changed[start:], zlib.crc32(changed[: start - 4]))
            changed[start - 4 : start] = crc.to_bytes(4, "little")
            with pytest.raises(ValueError, match="damaged"):
                self.decode(bytes(changed))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((3, 19)), r"must be \[N, 20\]"),
        (np.zeros((0, 20)), "at least one row"),
        (np.zeros(20), r"must be \[N, 20\]"),
        (np.full((3, 20), 0.5), "0 or 1 everywhere"),
        (np.full((3, 20), np.nan), "0 or 1 everywhere"),
        (np.full((3, 20), "1"), "0 or 1 everywhere"),
    ],
)
def test_bad_images(images: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(integer_model("linear"), images)
