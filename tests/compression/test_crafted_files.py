"""`.bcz` files that were crafted to take memory or time: each is refused by its budget before room is made, or loaded.

A file has a right checksum here, so that all of its content is looked at.
"""

import base64
import json
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from compression.files.container import load_bcz, save_bcz
from gpflow_deep_base.storage.frame import framed, leb128

SECONDS = 10.0
"""CPU time of one file; ten times what is promised, for slow machines."""
CHAIN = 0x80
_BUDGET = "max_bytes="


def file_of(body: bytes, version: int = 4) -> bytes:
    return framed(b"\x89BCZ", version, body)


def chain(shape: list[int], layers: list[bytes], flags: int = CHAIN) -> bytes:
    """The short form of layers."""
    return bytes([flags]) + leb128(len(shape)) + b"".join(map(leb128, shape)) + leb128(len(layers)) + b"".join(layers)


def dense(units: int) -> bytes:
    """In the short form, without biases."""
    return b"\0" + leb128(units) + leb128(0)


def graph(content: dict[str, Any]) -> bytes:
    packed = zlib.compress(json.dumps(content).encode(), 9)
    return b"\0" + leb128(len(packed)) + packed


def line(shape: list[int], layers: list[list[Any]], dtype: str = "float32", **changes: Any) -> bytes:
    """A graph of layers one after the other."""
    calls = [[i, [{"#": i}], {}, 1] for i in range(len(layers))]
    ends = {"takes": {"#": 0}, "gives": {"#": len(layers)}}
    return graph({"inputs": [[shape, dtype, "i"]], "layers": layers, "calls": calls, **ends, **changes})


def coded(stream: bytes) -> bytes:
    """A kernel of fixed-point numbers, coded with contexts."""
    return b"\7\1\1\0" + leb128(len(stream)) + stream


def array(content: bytes, shape: list[int], dtype: str = "float32") -> dict[str, Any]:
    """Numbers among the arguments of a call."""
    return {"array": base64.b64encode(zlib.compress(content, 9)).decode(), "type": dtype, "shape": shape}


def adding(part: Any) -> bytes:
    """A graph of one sum."""
    return line([4], [["ops.Add", "a", {}]], calls=[[0, [{"#": 0}, part], {}, 1]])


def wrapped(depth: int) -> list[Any]:
    """A dense layer in so many wrappers."""
    inner = wrapped(depth - 1) if depth else ["Dense", "d", {"units": 2}]
    return ["TimeDistributed", f"w{depth}", {"layer": inner}] if depth else inner


ONE_CENTRE = b"\2\0\0\0"
"""A kernel of one value, 0 bits a weight."""
RELU = ["Activation", "a", {"activation": "relu"}]
WIDE = chain([2**13], [dense(2**13)])
BLOCKS = 2**13
DRAWN = chain([2**12], [dense(2**13)], CHAIN | 26)

COSTLY = {
    "0 bits a weight": WIDE + ONE_CENTRE,
    "0 bits a weight, twice as many": chain([2**13], [dense(2**14)]) + ONE_CENTRE,
    "contexts, sure of themselves": WIDE + coded(b"\xff" * 600),
    "contexts, zeros": WIDE + coded(bytes(600)),
    "an embedding": line([4], [["Embedding", "e", {"input_dim": 2**26, "output_dim": 2}]], "int32") + ONE_CENTRE,
    "a wide LSTM": line([4, 4], [["LSTM", "e", {"units": 5000}]]) + 2 * ONE_CENTRE + bytes(80_000),
    "a wide LSTM, orthogonal": line([4, 4], [["LSTM", "e", {"units": 2500, "use_bias": False}]]) + 2 * ONE_CENTRE,
    "statistics of a large input": line([2 * 10**8], [["Normalization", "n", {"mean": 0.0, "variance": 1.0}]]),
    "statistics of repeated numbers": line(
        [4], [["RepeatVector", "r", {"n": 10**8}], ["Normalization", "n", {"axis": 1, "mean": 0.0, "variance": 1.0}]]
    ),
    "statistics of a layer": line([10**7], [["BatchNormalization", "b", {}]]),
    "4,000 layers": line([4], [["Activation", f"a{i}", {"activation": "relu"}] for i in range(4000)]),
    "4,096 layers in a chain": chain([4], [b"\6\1"] * 4096),
    "an array in a call": adding(array(bytes(8), [10**10])),
    "16,000 calls": graph(
        {
            "inputs": [[[4], "float32", "i"]],
            "layers": [RELU],
            "calls": [[0, [{"#": i}], {}, 1] for i in range(16_000)],
            "takes": {"#": 0},
            "gives": {"#": 16_000},
        }
    ),
    "long runs of words": line([1], [["TextVectorization", "t", {"ngrams": 2**31, "vocabulary": ["a"]}]], "string"),
    "many parts of a tensor": line([4], [["ops.Split", "s", {"indices_or_sections": 2**31}]]),
    "many rows of a tensor": line([4], [["ops.Unstack", "s", {"num": 2**31}]]),
    "places for unknown words": line(
        [1], [["Pipeline", "p", {"layers": [["IntegerLookup", "i", {"num_oov_indices": 2**31, "vocabulary": [1]}]]}]]
    ),
    "300 attention layers": graph(
        {
            "inputs": [[[4, 4], "float32", "i"]],
            "layers": [["MultiHeadAttention", "m", {"num_heads": 1, "key_dim": 1}]],
            "calls": [[0, [{"#": i}, {"#": i}], {}, 1] for i in range(300)],
            "takes": {"#": 0},
            "gives": {"#": 300},
        }
    ),
}
RANDOM = {
    "random draws": chain([2**12], [dense(2**13)], CHAIN | 26)
    + b"\1"
    + leb128(0)
    + leb128(BLOCKS)
    + b"\x64"
    + bytes(BLOCKS // 8),
    "shared random draws": DRAWN + b"\x81" + leb128(0) + leb128(BLOCKS) + b"\x64" + leb128(4095) + bytes(BLOCKS // 8),
}
WRONG = {
    "steps of 0": line([8, 8, 3], [["MaxPooling2D", "n", {"pool_size": [2, 2], "strides": [0, 0]}]]),
    "steps of 0 in a chain": chain([8, 8, 3], [b"\2" + leb128(2) + leb128(2) + leb128(0) + leb128(0) + leb128(0)]),
    "steps of 0 of a convolution": chain(
        [8, 8, 3], [b"\1" + leb128(4) + leb128(3) + leb128(3) + leb128(0) + leb128(0) + leb128(0)]
    ),
    "a window of 0": chain([8, 8, 3], [b"\1" + leb128(4) + leb128(0) + leb128(0) + leb128(1) + leb128(1) + leb128(0)]),
    "no units": chain([8], [dense(0)]) + b"\0",
    "negative units": line([4, 4], [["GRU", "e", {"units": -5}]]),
    "NaN": line([4], [["Rescaling", "r", {"scale": float("nan")}]]),
    "infinity": line([4], [["Rescaling", "r", {"scale": float("inf")}]]),
    "NaN in a chain": chain([4], [bytes([10]) + struct.pack("<d", float("nan"))]),
    "a weight that is NaN": chain([1], [dense(1)]) + b"\0" + struct.pack("<f", float("nan")),
    "an infinite number of weights": line([4], [["Dense", "d", {"units": 10**30}]]),
    "an equation": line([4, 4], [["EinsumDense", "e", {"equation": "a" * 5000 + ",b->c", "output_shape": [None, 4]}]]),
    "a text of a million numbers": line([4], [["SelectInputs", "p", {"indices": [0] * 10**6}]]),
    "an index": line([4], [["SelectInputs", "p", {"indices": [10**12]}]]),
    "places": line([4], [["PlaceInputs", "p", {"indices": [0, 1, -1] * 300_000}]]) + bytes(3_600_000),
    "an axis": line([4], [["BatchNormalization", "b", {"axis": 99}]]),
    "a name that moves the cursor": line([4], [["Activation", "../../x\x1b[31m", {"activation": "relu"}]]),
    "a name that is no text": line([4], [["Activation", "a\ud83d", {"activation": "relu"}]]),
    "a long number": graph({"inputs": [], "layers": [], "calls": [[0, [], {}, 10**4000]], "takes": 0, "gives": 0}),
    "no input": graph({"inputs": [], "layers": [], "calls": [], "takes": [], "gives": []}),
    "a word for an input": line([4], [RELU], takes="x"),
    "nothing for an output": line([4], [RELU], gives=None),
    "an operation of numbers alone": graph(
        {
            "inputs": [[[4], "float32", "i"]],
            "layers": [["ops.Tile", "t", {"repeats": [10**9]}], ["ops.Add", "a", {}]],
            "calls": [[0, [array(b"\0\0\x80\x3f", [1])], {}, 1], [1, [{"#": 0}, {"#": 1}], {}, 1]],
            "takes": {"#": 0},
            "gives": {"#": 2},
        }
    ),
    "an array that is longer than its shape": adding(array(bytes(2 * 10**7), [4])),
    "an array that is shorter": adding(array(bytes(12), [4])),
    "an array of a negative size": adding(array(bytes(2 * 10**7), [-1], "int8")),
    "an array of two negative sizes": adding(array(bytes(16), [-1, -4])),
    "an array of truth values that are none": adding(array(bytes([2] * 4), [4], "bool")),
    "an array of objects": adding(array(bytes(32), [4], "object")),
    "an array that is not compressed": adding(array(b"", [0]) | {"array": "AAAA"}),
    "wrappers in wrappers": line([4, 4], [wrapped(5)]),
    "an operation in a wrapper": line([4, 4], [["TimeDistributed", "t", {"layer": ["ops.Relu", "r", {}]}]]),
    "a vocabulary in another file": line([1], [["StringLookup", "s", {"vocabulary": "/etc/passwd"}]], "string"),
    "code for an argument": line([4], [RELU], calls=[[0, [{"#": 0}], {"name": "os.system"}, 1]]),
}
EITHER = {
    "an empty name": line([4], [["Activation", "", {"activation": "relu"}]]),
    "numbers of a scale": line([4], [["Rescaling", "r", {"scale": [1.0] * 1000}]]),
    "a repeated vector": line([4], [["RepeatVector", "r", {"n": 10**9}]]),
    "a large image": line([4, 4, 3], [["UpSampling2D", "r", {"size": [10**5, 10**5]}]]),
    "another size": line([4, 4, 3], [["Resizing", "r", {"height": 10**6, "width": 10**6}]]),
    "many parts": line([4], [["Concatenate", "c", {}]], calls=[[0, [[{"#": 0}] * 2000], {}, 1]]),
    "parts that double": line(
        [4],
        [["Concatenate", f"c{i}", {}] for i in range(40)],
        calls=[[i, [[{"#": i}, {"#": i}]], {}, 1] for i in range(40)],
    ),
}


def refusal(path: Path, content: bytes) -> str:
    """What a reader says of a file; empty if it is loaded."""
    path.write_bytes(content)
    start = time.process_time()
    try:
        load_bcz(path)
        message = ""
    except ValueError as error:
        message = str(error)
        assert message.startswith(f"{path} cannot be read as a .bcz network (")
        assert "\n" not in message
    assert time.process_time() - start < SECONDS
    return message


@pytest.mark.parametrize("name", COSTLY)
def test_what_takes_too_much_is_refused_by_the_budget(name: str, tmp_path: Path) -> None:
    assert _BUDGET in refusal(tmp_path / "n.bcz", file_of(COSTLY[name]))


@pytest.mark.parametrize("name", RANDOM)
def test_random_draws_have_the_same_budget(name: str, tmp_path: Path) -> None:
    assert _BUDGET in refusal(tmp_path / "n.bcz", file_of(RANDOM[name], 5))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    assert refusal(tmp_path / "n.bcz", file_of(WRONG[name]))


def test_an_array_in_a_call_is_read(tmp_path: Path) -> None:
    """Those above are refused for what is wrong with them."""
    (tmp_path / "n.bcz").write_bytes(file_of(adding(array(np.arange(4, dtype="<f4").tobytes(), [4]))))
    np.testing.assert_array_equal(load_bcz(tmp_path / "n.bcz")(np.ones((1, 4), np.float32)), [[1, 2, 3, 4]])


@pytest.mark.parametrize("name", EITHER)
def test_shapes_alone_take_no_memory(name: str, tmp_path: Path) -> None:
    refusal(tmp_path / "n.bcz", file_of(EITHER[name]))


def test_a_text_in_brackets(tmp_path: Path) -> None:
    packed = zlib.compress(b'{"inputs":' + b"[" * 50_000 + b"]" * 50_000 + b"}", 9)
    assert refusal(tmp_path / "n.bcz", file_of(b"\0" + leb128(len(packed)) + packed))


def test_the_caller_can_allow_more(tmp_path: Path) -> None:
    """A network of 5 million equal weights: some 20 bytes that take more than 100 MB."""
    path = tmp_path / "n.bcz"
    path.write_bytes(file_of(chain([2500], [dense(2000)]) + ONE_CENTRE))
    with pytest.raises(ValueError, match="max_bytes="):
        load_bcz(path)
    assert load_bcz(path, max_bytes=10**9).count_params() == 5_000_000
    with pytest.raises(ValueError, match="max_bytes must be positive, got 0"):
        load_bcz(path, max_bytes=0)


def test_weights_are_not_drawn_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = keras.Input([4, 3])
    attended = keras.layers.MultiHeadAttention(2, 2)(inputs, inputs)
    model = keras.Model(
        inputs, keras.layers.Dense(2)(keras.layers.GRU(3)(keras.layers.LSTM(4, return_sequences=True)(attended)))
    )
    save_bcz(model, tmp_path / "n.bcz")

    def drawn(*_: object, **__: object) -> None:
        raise AssertionError("initial weights are drawn")

    for kind in (keras.initializers.Orthogonal, keras.initializers.GlorotUniform):
        monkeypatch.setattr(kind, "__call__", drawn)
    loaded = load_bcz(tmp_path / "n.bcz")
    monkeypatch.undo()
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(loaded(x), model(x))
    for a, b in zip(loaded.layers, model.layers, strict=True):
        assert {**a.get_config(), "name": ""} == {**b.get_config(), "name": ""}
