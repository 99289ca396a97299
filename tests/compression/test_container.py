"""`.bcz` files: what comes back is bit for bit what was measured; sizes; damaged files are refused."""

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from compression.__main__ import main
from compression.files.container import (
    Kernel,
    Raw,
    check_storable,
    kernels_of,
    kinds,
    load_bcz,
    read_bcz,
    save_bcz,
    with_kernels,
)
from compression.files.contents import VERSIONS
from compression.graph.graph import graph_of
from compression.graph.kept_inputs import SelectInputs
from compression.graph.supported import ACTIVATIONS, CHAIN_LAYERS, IDLE
from compression.rounding.bits import fixed_point
from compression.rounding.codebook import codebook
from gpflow_deep_base.storage.frame import leb128
from tests.compression.oracles import entropy_bits


def set_random(model: keras.Model, rng: np.random.Generator) -> keras.Model:
    model.set_weights([rng.normal(size=w.shape).astype(np.float32) for w in model.get_weights()])
    return model


@pytest.fixture
def lenet(rng: np.random.Generator) -> keras.Model:
    """The shape of the paper's shrunk LeNet-5: 5-10-76-16."""
    kept = np.sort(rng.permutation(160)[:76]).tolist()
    x = inputs = keras.Input([28, 28, 1])
    for filters in (5, 10):
        x = keras.layers.MaxPooling2D()(keras.layers.Conv2D(filters, 5, activation="relu")(x))
    x = SelectInputs(kept)(keras.layers.Flatten()(x))
    x = keras.layers.Dropout(0.5)(keras.layers.Dense(16, activation="relu")(x))
    return set_random(keras.Model(inputs, keras.layers.Dense(10)(x)), rng)


CHAIN = bytes([0x80])
"""Flags of a chain with biases in float32."""


def codes(model: keras.Model, scheme: str) -> list[Kernel]:
    make: dict[str, Callable[[np.ndarray], Kernel]] = {
        "raw": Raw,
        "fixed": lambda w: fixed_point(w, 7),
        "book": lambda w: codebook(w, 16),
        "one centre": lambda w: codebook(w, 1),
    }
    return [make[scheme](kernel) for kernel in kernels_of(model)]


def assert_same(a: keras.Model, b: keras.Model) -> None:
    assert len(a.weights) == len(b.weights)
    for u, v in zip(a.get_weights(), b.get_weights(), strict=True):
        assert u.dtype == v.dtype
        np.testing.assert_array_equal(u.view(np.uint32), v.view(np.uint32))


@pytest.mark.parametrize("entropy_coded", [True, False])
@pytest.mark.parametrize("biases", ["float16", "float32", np.int64(5)])
@pytest.mark.parametrize("scheme", ["raw", "fixed", "book", "one centre"])
def test_a_file_gives_back_the_network_that_was_measured(
    tmp_path: Path, rng: np.random.Generator, lenet: keras.Model, scheme: str, biases: str | int, entropy_coded: bool
) -> None:
    kernels = codes(lenet, scheme)
    measured = with_kernels(lenet, kernels, biases=biases)
    size = save_bcz(lenet, tmp_path / "n.bcz", kernels, biases=biases, entropy_coded=entropy_coded)
    loaded = load_bcz(tmp_path / "n.bcz")
    assert size == os.path.getsize(tmp_path / "n.bcz")
    assert_same(loaded, measured)
    X = rng.normal(size=(3, 28, 28, 1)).astype(np.float32)
    np.testing.assert_array_equal(loaded(X), measured(X))
    assert os.listdir(tmp_path) == ["n.bcz"]


def test_without_kernels_the_weights_stay_as_they_are(tmp_path: Path, lenet: keras.Model) -> None:
    save_bcz(lenet, tmp_path / "n.bcz")
    assert_same(load_bcz(tmp_path / "n.bcz"), lenet)


def test_sizes_are_those_of_the_weights_and_a_short_header(tmp_path: Path, lenet: keras.Model) -> None:
    """Header and layers stay below the 48 bytes of our budget, plus 20 of the mask and 4 for each kernel."""
    counts = [kernel.size for kernel in kernels_of(lenet)]
    assert counts == [125, 1250, 1216, 160]
    overhead = 48 + 20 + 4 * 4
    biases = 4 * (5 + 10 + 16 + 10)
    raw = save_bcz(lenet, tmp_path / "raw")
    assert 4 * sum(counts) + biases < raw <= 4 * sum(counts) + biases + overhead
    points = [fixed_point(kernel, 7) for kernel in kernels_of(lenet)]
    fixed = save_bcz(lenet, tmp_path / "fixed", points, entropy_coded=False)
    packed = sum(-(-11 * n // 8) for n in counts)
    assert packed + biases < fixed <= packed + biases + overhead
    books = [codebook(kernel, 16) for kernel in kernels_of(lenet)]
    plain = save_bcz(lenet, tmp_path / "plain", books, biases="float16", entropy_coded=False)
    assert plain <= sum(-(-4 * n // 8) for n in counts) + 4 * 32 + biases // 2 + overhead
    coded = save_bcz(lenet, tmp_path / "coded", books, biases="float16")
    entropy = sum(n * entropy_bits(book.counts) / 8 for n, book in zip(counts, books, strict=True))
    # At most 0.1 bits over the entropy for each weight, lengths of 8 bytes, 2 bytes of size for each kernel.
    assert entropy < coded <= entropy + 0.1 * sum(counts) / 8 + 4 * (32 + 8 + 2) + biases // 2 + overhead
    assert coded < plain
    assert save_bcz(lenet, tmp_path / "coded", points) < fixed


def test_every_coding_is_used_where_it_is_shortest(tmp_path: Path, rng: np.random.Generator) -> None:
    """Schemes by the byte before a kernel: raw, packed and coded points, packed and coded codebooks."""
    model = set_random(sequential(keras.layers.Dense(40, use_bias=False), shape=(50,)), rng)
    w = kernels_of(model)[0]
    uniform = codebook(rng.integers(0, 16, w.shape) / 16, 16)
    sparse = codebook(np.where(rng.uniform(size=w.shape) < 0.9, 0.0, np.round(2 * w)), 16)
    cases: list[tuple[Kernel, set[int]]] = [
        (Raw(w), {0}),
        (fixed_point(rng.uniform(-8, 8, w.shape), 0), {1}),
        (fixed_point(w, 3), {7}),
        (uniform, {2}),
        (sparse, {6}),
    ]
    for kernel, schemes in cases:
        save_bcz(model, tmp_path / "n.bcz", [kernel])
        assert (tmp_path / "n.bcz").read_bytes()[9 + 7] in schemes
        np.testing.assert_array_equal(kernels_of(load_bcz(tmp_path / "n.bcz"))[0], kernel.values)


@pytest.mark.parametrize("head", [keras.layers.GlobalAveragePooling2D, keras.layers.GlobalMaxPooling2D])
def test_every_kind_of_layer_and_option_survives(
    head: type[keras.Layer], tmp_path: Path, rng: np.random.Generator
) -> None:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input([11, 9, 3]),
            layers.Conv2D(4, (3, 2), strides=(2, 1), padding="same", activation="tanh", use_bias=False),
            layers.ReLU(),
            layers.AveragePooling2D((2, 1), strides=(1, 2), padding="same"),
            layers.SpatialDropout2D(0.1),
            layers.Conv2D(30, 1, activation="mish"),
            layers.LeakyReLU(0.15),
            layers.GaussianNoise(0.1),
            layers.ReLU(6.0, negative_slope=0.1, threshold=0.25),
            layers.Conv2D(300, 1),
            layers.Activation("elu"),
            layers.ELU(0.7),
            layers.MaxPooling2D((3, 2)),
            head(),
            layers.Flatten(),
            SelectInputs(list(range(0, 300, 7))),
            layers.Dense(130, activation="sigmoid", use_bias=False),
            layers.Dense(3),
            layers.Softmax(),
        ]
    )
    set_random(model, rng)
    save_bcz(model, tmp_path / "n.bcz")
    loaded = load_bcz(tmp_path / "n.bcz")
    assert_same(loaded, model)
    heads = {layers.GlobalAveragePooling2D, layers.GlobalMaxPooling2D}
    stored = [layer for layer in model.layers if type(layer) not in IDLE]
    assert {type(layer) for layer in stored} | heads == set(CHAIN_LAYERS)
    assert {kind.__name__ for kind in CHAIN_LAYERS} < set(kinds())
    assert read_bcz(tmp_path / "n.bcz").version == 4
    X = rng.normal(size=(2, 11, 9, 3)).astype(np.float32)
    np.testing.assert_array_equal(loaded(X), model(X, training=False))
    for a, b in zip(stored, loaded.layers, strict=True):
        assert {**a.get_config(), "name": ""} == {**b.get_config(), "name": ""} or type(a) is layers.Conv2D


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_survives(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    model = set_random(sequential(keras.layers.Dense(5, name), keras.layers.Activation(name), shape=(4,)), rng)
    save_bcz(model, tmp_path / "n.bcz")
    x = rng.normal(size=(7, 4)).astype(np.float32)
    np.testing.assert_array_equal(load_bcz(tmp_path / "n.bcz")(x), model(x))


def test_images_of_any_size(tmp_path: Path, rng: np.random.Generator) -> None:
    layers = keras.layers
    model = sequential(layers.Conv2D(4, 3), layers.GlobalMaxPooling2D(), layers.Dense(2), shape=(None, None, 3))
    save_bcz(set_random(model, rng), tmp_path / "n.bcz")
    loaded = load_bcz(tmp_path / "n.bcz")
    assert loaded.input_shape == (None, None, None, 3)
    x = rng.normal(size=(2, 9, 7, 3)).astype(np.float32)
    np.testing.assert_array_equal(loaded(x), model(x))


@pytest.fixture
def content(tmp_path: Path, lenet: keras.Model) -> bytes:
    save_bcz(lenet, tmp_path / "good.bcz", codes(lenet, "book"))
    return (tmp_path / "good.bcz").read_bytes()


def refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad.bcz").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_bcz(tmp_path / "bad.bcz")


def test_damaged_foreign_and_unknown_files_are_refused(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path, b"PK\3\4" + content, "it starts with b")
    refused(tmp_path, b"", "it starts with b")
    refused(tmp_path, content[:7], "too few for a header")
    for version in (0, min(VERSIONS) - 1, max(VERSIONS) + 2):
        other = content[:4] + bytes([version]) + content[5:]
        refused(tmp_path, other, f"version {version}, and this program reads 4 and 5")
    refused(tmp_path, content + b"\0", "truncated or damaged")
    with pytest.raises(FileNotFoundError):
        load_bcz(tmp_path / "nothing.bcz")


def test_impossible_content_with_a_matching_checksum_is_refused(
    tmp_path: Path, content: bytes, rng: np.random.Generator
) -> None:
    def signed(body: bytes) -> bytes:
        return content[:5] + zlib.crc32(body).to_bytes(4, "little") + body

    dense = bytes([0])
    huge = CHAIN + b"\1" + leb128(1000) + leb128(1) + dense + leb128(10**6) + leb128(0)  # 1,000 to 1,000,000 outputs
    for scheme in (b"\0", b"\2\0\0\0", b"\7\5\3\0\x1e" + 30 * b"\0"):
        refused(tmp_path, signed(huge + scheme), "cannot be read .*max_bytes=")
    many = CHAIN + b"\1" + leb128(1000) + leb128(1) + dense + leb128(4_000) + leb128(0)  # 4,000,000 weights in no bytes
    refused(tmp_path, signed(many + b"\7\5\3\0\0"), "0 bytes is too short for 1000 x 4000 numbers")
    refused(tmp_path, signed(many + b"\6\0" + bytes(2) + b"\0\4"), "the order 4 of numbers is not known")
    refused(tmp_path, signed(many + b"\6\0" + bytes(2) + b"\0\2\0\5"), "neighbours are 0 and 5 rows apart")
    refused(tmp_path, signed(bytes([0x80 + 30]) + b"\1\1\0"), "the type 30 of biases is not known")
    for scheme in (b"\3", b"\4", b"\5", b"\x0a"):
        refused(tmp_path, signed(many + scheme + bytes(8)), f"scheme {scheme[0]} is not known")
    refused(tmp_path, signed(many + b"\1\xff\xff"), "fixed-point numbers have")
    refused(tmp_path, signed(CHAIN + leb128(9)), "9 axes")
    refused(tmp_path, signed(CHAIN + b"\1\1" + leb128(5000)), "5000 layers")
    body = content[9:]
    for wrong in (body + b"\0", body[:-1], body[:3], b"\7" + body[1:], body[:5] + b"\xff" + body[6:]):
        refused(tmp_path, signed(wrong), "cannot be read as a .bcz network")


def test_what_is_in_a_file(tmp_path: Path, lenet: keras.Model, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "n.bcz"
    size = save_bcz(lenet, path, [fixed_point(w, 7) if i else codebook(w, 16) for i, w in enumerate(kernels_of(lenet))])
    found = read_bcz(path)
    assert found.input_shape == (28, 28, 1)
    assert [stored.shape for stored in found.weights] == [kernel.shape for kernel in kernels_of(lenet)]
    assert found.weights[0].coding.startswith("codebook")
    assert found.weights[1].coding.startswith("fixed point")
    assert size - 100 < sum(stored.bytes for stored in found.weights) < size == found.bytes
    assert main(["info", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("inputs (28, 28, 1): Conv2D MaxPooling2D")
    assert [line.split()[0] for line in lines[1:]] == ["layer", "Conv2D", "Conv2D", "Dense", "Dense", "file"]
    assert f"{lenet.count_params():,}" in lines[-1]
    assert f"{4 * lenet.count_params() / size:.1f}" in lines[-1]
    (tmp_path / "bad.bcz").write_bytes(b"PK")
    assert main(["info", str(tmp_path / "bad.bcz")]) == 2
    assert "bcz: error:" in capsys.readouterr().err


def sequential(*layers: keras.Layer, shape: tuple[int | None, ...] = (8, 8, 2)) -> keras.Model:
    return keras.Sequential([keras.Input(shape), *layers])


@keras.saving.register_keras_serializable("tests")
class Own(keras.layers.Layer):
    """A layer with code of its own."""

    def call(self, x: object) -> object:
        return x


def test_networks_that_a_file_cannot_hold_are_refused_by_name() -> None:
    layers = keras.layers
    for layer, message in (
        (Own(name="mine"), "'mine' is a Own, and files hold layers of Keras without code of their own"),
        (layers.Lambda(lambda x: 2 * x, name="double"), "'double' is a Lambda"),
        (layers.Conv2D(4, 3, activation="glu", name="c"), "'c' has the activation glu"),
        (layers.Conv2D(4, 3, activation=lambda x: x, name="c"), "'c' has the activation <lambda>"),
        (layers.Dense(3, dtype="float64", name="d"), "'d' must have weights in float32"),
    ):
        with pytest.raises(ValueError, match=message):
            check_storable(sequential(layer))
    with pytest.raises(ValueError, match="must be a built Sequential or functional model"):
        check_storable(keras.Sequential([layers.Dense(3)]))
    with pytest.raises(ValueError, match=r"is a Dense of tests\.compression\.test_container, another class"):
        check_storable(sequential(type("Dense", (layers.Dense,), {"__module__": __name__})(2)))


def test_a_network_that_was_loaded_is_the_same_chain(tmp_path: Path, rng: np.random.Generator) -> None:
    layers = keras.layers
    model = set_random(sequential(layers.Conv2D(3, 3), layers.ReLU(), layers.Flatten(), layers.Dense(2)), rng)
    model.save(tmp_path / "n.keras")
    loaded = keras.models.load_model(tmp_path / "n.keras")
    assert [type(node.layer) for node in graph_of(loaded).nodes] == [type(layer) for layer in model.layers]
    save_bcz(loaded, tmp_path / "n.bcz")
    x = rng.normal(size=(5, 8, 8, 2)).astype(np.float32)
    np.testing.assert_array_equal(load_bcz(tmp_path / "n.bcz")(x), model(x))


def test_kernels_must_fit_and_be_numbers(tmp_path: Path, rng: np.random.Generator) -> None:
    model = set_random(sequential(keras.layers.Dense(3, name="d"), shape=(4,)), rng)
    with pytest.raises(ValueError, match="one for each of 1 kernels of the network, got 2"):
        save_bcz(model, tmp_path / "n", [Raw(np.ones((4, 3), np.float32))] * 2)
    with pytest.raises(ValueError, match=r"'d' must be \(4, 3\), got \(3, 4\)"):
        with_kernels(model, [np.ones((3, 4))])
    with pytest.raises(ValueError, match="weights of layer 'd' must be finite"):
        save_bcz(model, tmp_path / "n", [Raw(np.full((4, 3), np.nan, np.float32))])
    with pytest.raises(ValueError, match='biases must be "float32" or "float16"'):
        save_bcz(model, tmp_path / "n", biases="half")
    with pytest.raises(ValueError, match=r"significant bits from 0 to 23, got 3\.5"):
        save_bcz(model, tmp_path / "n", biases=3.5)  # type: ignore[arg-type]
    model.layers[-1].bias.assign([1e6, 0.0, 0.0])
    with pytest.raises(ValueError, match="biases of layer 'd' must be finite, and below 65504"):
        save_bcz(model, tmp_path / "n", biases="float16")
    assert os.listdir(tmp_path) == []


def graph_file(path: Path, **changes: Any) -> Path:
    """A file of a graph, Dense(2) on 3 inputs twice, with a hostile part, and weights for the right one."""
    dense = [["Dense", "a", {"units": 2}], ["Dense", "b", {"units": 2}], ["Add", "sum", {}]]
    calls = [[0, [{"#": 0}], {}, 1], [1, [{"#": 0}], {}, 1], [2, [[{"#": 1}, {"#": 2}]], {}, 1]]
    content = {"inputs": [[[3], "float32", "x"]], "takes": {"#": 0}, "gives": {"#": 3}, "layers": dense, "calls": calls}
    text = changes.pop("text", None) or json.dumps({**content, **changes}).encode()
    packed = zlib.compress(text)
    body = b"\0" + leb128(len(packed)) + packed + 2 * (b"\0" + np.ones(8, "<f4").tobytes())
    path.write_bytes(b"\x89BCZ\4" + zlib.crc32(body).to_bytes(4, "little") + body)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": [["Lambda", "a", {}]]}, "kind 'Lambda', which is not known"),
        ({"layers": [["Dense", "a", {"units": 10**12}]] * 3}, "max_bytes="),
        ({"layers": [["Embedding", "a", {"input_dim": 10**12, "output_dim": 10**6}]] * 3}, "max_bytes="),
        (
            {"layers": [["Dense", "a", {"units": 2, "kernel_initializer": "ones"}]]},
            "the setting 'kernel_initializer'",
        ),
        ({"layers": [["Dense", "a", {"units": 2, "activation": "os.system"}]]}, "activation is 'os.system'"),
        ({"layers": [["Dense", "a", {"units": {"class_name": "Lambda"}}]]}, "units is"),
        ({"layers": [["Embedding", "a", {"input_dim": 2, "output_dim": 2, "weights": [1]}]]}, "the setting 'weights'"),
        ({"layers": [["Dense", "a", {"units": 2}]] * 5000}, "too long or does not end"),
        ({"layers": [["Dense", "a", {"units": 2}]] * 3}, "cannot be read as a .bcz network"),
        ({"calls": [[7, [{"#": 0}], {}, 1]]}, "no such layer"),
        ({"calls": [[0, [{"#": 5}], {}, 1]]}, "not there yet"),
        ({"calls": [[0, [{"#": 0}], {"training": True}, 1]]}, "an argument that is not known"),
        ({"calls": [[0, [{"#": 0}], {}, 10**9]]}, "1000000000 outputs"),
        ({"gives": {"#": 9}}, "not there yet"),
        ({"inputs": [[[3], "complex64", "x"]]}, "an input of type complex64"),
        ({"inputs": [[[-3], "float32", "x"]]}, "an input of type float32"),
        ({"text": b"[" * 100_000}, "cannot be read as a .bcz network"),
        ({"text": b" " * 2**24}, "too long or does not end"),
        ({"text": b"{}"}, "cannot be read as a .bcz network"),
    ],
)
def test_hostile_graphs_are_refused(changes: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_bcz(graph_file(tmp_path / "bad.bcz", **changes))
    with keras.StatelessScope():  # at its end Keras gives values to all variables that have none yet
        pass


def test_a_graph_by_hand(tmp_path: Path) -> None:
    path = graph_file(tmp_path / "n.bcz")
    assert load_bcz(path)(np.array([[1, 2, 3]], np.float32)).numpy().tolist() == [[14.0, 14.0]]


def test_info_of_several_inputs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words, numbers = keras.Input((), dtype="int32", name="word"), keras.Input((None, 3), name="numbers")
    pooled = keras.layers.GlobalMaxPooling1D()(numbers)
    embedded = keras.layers.Embedding(4, 2)(words)
    model = keras.Model([words, numbers], keras.layers.Concatenate()([embedded, pooled]))
    save_bcz(model, tmp_path / "n.bcz")
    assert main(["info", str(tmp_path / "n.bcz")]) == 0
    assert capsys.readouterr().out.startswith("inputs word () int32, numbers (None, 3) float32: ")


def test_info_of_a_graph(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["info", str(graph_file(tmp_path / "n.bcz"))]) == 0
    text = capsys.readouterr().out
    assert "inputs (3,): Dense Dense Add" in text
    assert "3 x 2" in text
    assert "version 4" in text
