"""The codec: lossless, as long as the description length, the same bytes however it is run; it refuses bad files."""

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from darn import DARNDensity
from darn.codec import coding
from darn.codec.coding import _crc, decode, encode, read_header
from darn.codec.integer_model import IntegerModel
from darn.model.description_length import description_length
from darn.model.model import DARN, DARNConfig
from gpflow_deep_base.storage.frame import leb128

LOCAL = {"image_shape": (5, 4), "kernels": (4, 2), "strides": (2, 1), "filters": (3, 2), "period": 2}
WINDOW = {"visible_kernel": 5, "visible_period": 3}

CONFIGS = {
    "visible": DARNConfig(20, (), visible_conditional="linear"),
    "factorial": DARNConfig(20, (8,), prior="factorial", visible_conditional="factorial"),
    "linear": DARNConfig(20, (8,), visible_conditional="linear", encoder="linear"),
    "tanh": DARNConfig(20, (8,), (9,), visible_conditional="linear"),
    "deep": DARNConfig(20, (8, 6, 5), (7,)),
    "made": DARNConfig(20, (8,), visible_conditional="made", prior="made", encoder="made", conditional_units=7),
    "nade": DARNConfig(20, (8,), (5,), visible_conditional="nade", prior="nade", encoder="nade", conditional_units=7),
    "one order": DARNConfig(20, (8,), visible_conditional="eonade", prior="eonade", conditional_units=7, orders=1),
    "local": DARNConfig(20, (8,), local={**LOCAL}, visible_conditional="factorial"),  # type: ignore[arg-type]
    "window": DARNConfig(20, (8,), local={**LOCAL, **WINDOW}, visible_conditional="local"),  # type: ignore[arg-type]
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


@pytest.mark.parametrize("N", [1, 90])
@pytest.mark.parametrize("name", CONFIGS)
def test_lossless(rng: np.random.Generator, name: str, N: int) -> None:
    images = random_images(rng, N)
    data = encode(integer_model(name), images)
    np.testing.assert_array_equal(decode(integer_model(name), data), images)
    assert read_header(data).num_images == N


@pytest.mark.parametrize("name", ["linear", "deep", "made", "nade", "local"])
def test_same_bytes_however_it_is_run(rng: np.random.Generator, name: str) -> None:
    """Batch sizes, dtypes of the images, the float or the integer model, eagerly or in a graph."""
    images = random_images(rng, 80)
    data = encode(integer_model(name), images)
    assert encode(integer_model(name), images, batch_size=3) == data
    np.testing.assert_array_equal(decode(integer_model(name), data, batch_size=7), images)
    assert encode(random_model(CONFIGS[name]), images.astype(bool)) == data
    assert encode(integer_model(name), images.astype(np.float32)) == data
    in_graph: list[bytes] = []
    tf.function(lambda: in_graph.append(encode(integer_model(name), images)), autograph=False)()
    assert in_graph == [data]


def test_length_is_the_description_length(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """On draws from the model, with a poor encoder: within 0.1 %, header and all.

    The file is one draw of each image's code length, and its mean over images has a standard error; 5 of them are
    allowed besides.
    """
    model = random_model(DARNConfig(200, (20,)), 0.1)
    images = model.sample(1000, seed).x.numpy()
    expected = description_length(model, images, seed=seed, num_samples=20, unit="bits")
    one = description_length(model, images, seed=seed, unit="bits")
    noise = float(np.std(one.total - expected.total)) / np.sqrt(len(images))
    assert 5 * noise < 0.008 * expected.total.mean()
    bits = 8 * len(encode(model, images)) / len(images)
    assert abs(bits / expected.total.mean() - 1) < 0.001 + 5 * noise / expected.total.mean()


def test_images_without_information(rng: np.random.Generator) -> None:
    """Images that cost less than what popping needs: what an empty stack gives is in the file once.

    A round of 5000 / 64 = 78 images pops 8 bits each; header, state and images take 42 bytes.
    """
    model = random_model(DARNConfig(20, (8,)), 0.0)
    model.decoders[0].conditional.bias.assign(tf.fill([20], 20.0))
    images = np.ones((5000, 20), np.uint8)
    data = encode(model, images)
    np.testing.assert_array_equal(decode(model, data), images)
    assert read_header(data).growth == 1
    assert len(data) <= 78 + 42


def test_units_that_carry_nothing_cost_little(rng: np.random.Generator) -> None:
    """200 stochastic units that nothing depends on beside 20 bits of an image: rounds shrink until bits come back."""
    model = random_model(DARNConfig(20, (200,), visible_conditional="factorial"), 0.0)
    images = (rng.random((2000, 20)) < 0.5).astype(np.uint8)
    data = encode(model, images)
    np.testing.assert_array_equal(decode(model, data), images)
    assert read_header(data).growth < 18
    assert 8 * len(data) < 1.05 * 2000 * 20


def test_rounds_grow_as_fast_as_bits_come_back(rng: np.random.Generator) -> None:
    """An image writes 20 bits besides what it pops: 8 units of an encoder that knows nothing pop 8, so that rounds may
    grow to 20 / 8 = 2.5 times what came before; 64 units pop 64."""
    for hidden, growth in ((8, 128), (64, 20)):
        model = random_model(DARNConfig(20, (hidden,), prior="factorial", visible_conditional="factorial"), 0.0)
        images = (rng.random((1000, 20)) < 0.5).astype(np.uint8)
        data = encode(model, images)
        np.testing.assert_array_equal(decode(model, data), images)
        assert 0.6 * growth <= read_header(data).growth <= growth


def test_the_shorter_of_two_codes_is_kept(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one code of each round, files are longer on average."""
    sets = [random_images(rng, 100) for _ in range(12)]
    shorter = [len(encode(integer_model("deep"), images)) for images in sets]
    monkeypatch.setattr(coding, "_TWICE", 0)
    assert sum(shorter) < sum(len(encode(integer_model("deep"), images)) for images in sets)


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
            with pytest.raises(ValueError, match=r"truncated|damaged"):
                self.decode(self.data[:length])

    def test_any_byte_changed(self) -> None:
        for place in range(len(self.data)):
            changed = bytearray(self.data)
            changed[place] ^= 0x15
            with pytest.raises(ValueError, match=r"no file coded|version|truncated|damaged"):
                self.decode(bytes(changed))

    def test_bytes_added(self) -> None:
        for more in (b"\0", b"x", self.data):
            with pytest.raises(ValueError, match="damaged"):
                self.decode(self.data + more)

    @pytest.mark.parametrize("data", [b"", b"PK\3\4 something else that is longer than a header"])
    def test_other_file(self, data: bytes) -> None:
        with pytest.raises(ValueError, match="no file coded with a DARN"):
            self.decode(data)

    def test_other_version(self) -> None:
        for version in (2, 9):
            with pytest.raises(
                ValueError, match=f"version {version}, this program reads 3; decode it with the release"
            ):
                self.decode(b"DAR" + bytes([version]) + self.data[4:])

    @pytest.mark.parametrize("num_images", [10**7, 2**40, 2**60])
    def test_more_images_than_the_bytes_can_hold(self, num_images: int) -> None:
        with pytest.raises(ValueError, match=r"cannot hold|ends too early"):
            self.decode(self.changed(num_images=num_images))

    def test_other_model(self) -> None:
        with pytest.raises(ValueError, match="give the model it was coded with"):
            decode(integer_model("tanh"), self.data)

    def changed(self, place: int | None = None, num_images: int | None = None) -> bytes:
        """The file with another byte or number of images, and the CRC that belongs to it."""
        header = read_header(self.data)
        code = bytearray(self.data[header.code_start :])
        if place is not None:
            code[place] ^= 1
        head = self.data[:7] + leb128(num_images or header.num_images)
        return head + _crc(head, bytes(code)) + bytes(code)

    def test_damage_that_the_crc_does_not_show(self) -> None:
        """A file made wrong on purpose, with a right CRC: the decoder notices at its end, and never loops."""
        size = len(self.data) - read_header(self.data).code_start
        assert self.changed() == self.data
        for changed in (*(self.changed(place) for place in range(0, size, 3)), self.changed(num_images=49)):
            with pytest.raises(ValueError, match="damaged"):
                self.decode(changed)


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


def test_what_is_no_model_and_no_file_is_named() -> None:
    with pytest.raises(ValueError, match="model must be a DARN, its integer form or a chain, got DARNDensity"):
        encode(DARNDensity(), np.zeros((3, 20)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="data must be bytes, got str; read the file in binary mode"):
        decode(integer_model("linear"), "images.darn")  # type: ignore[arg-type]


def test_a_batch_has_rows() -> None:
    model = integer_model("linear")
    for call in (lambda: encode(model, np.zeros((3, 20)), batch_size=0), lambda: decode(model, b"", batch_size=0)):
        with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
            call()
