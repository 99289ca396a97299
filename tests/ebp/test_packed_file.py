"""The file of a packed network: whatever its bytes are, it can only be loaded or refused."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ebp
from ebp.network.convolution import Convolved
from ebp.packed.export import Weights, export_packed
from ebp.packed.packed import FILE_VERSION, PackedNetwork
from gpflow_deep_base.storage.frame import Reader, framed, leb128

START = 8 + 1 + 4
"""Where the payload begins: behind the magic, the version and the checksum."""


def sealed(payload: bytes, version: int = FILE_VERSION) -> bytes:
    """With the right checksum: what a stranger can write."""
    return framed(b"EBPACKED", version, payload)


def parts_of(content: bytes) -> tuple[bytes, bytes]:
    """The header and the numbers behind it."""
    reader = Reader(content, START)
    return reader.take(reader.integer()), content[reader.place :]


def numbers_start(content: bytes) -> int:
    """Their place in the payload."""
    return len(content) - len(parts_of(content)[1]) - START


def header_of(content: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(parts_of(content)[0])
    return header


def with_header(content: bytes, header: Any) -> bytes:
    """Another header before the same numbers."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return sealed(leb128(len(head)) + head + parts_of(content)[1])


@pytest.fixture
def file(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Two voting networks with a coding and names of classes."""
    networks = [
        Weights([rng.choice([-1, 1], (30, 20)), rng.choice([-1, 1], (20, 1))], [rng.normal(size=20), None])
        for _ in range(2)
    ]
    coding = ebp.InputCoding.fit("zscore", rng.normal(size=(40, 30)))
    export_packed(networks, tmp_path / "net", coding=coding, classes=["no", "yes"])
    return tmp_path / "net"


def test_foreign_file(file: Path) -> None:
    np.savez(file.with_suffix(".npz"), a=1)
    with pytest.raises(ValueError, match=r"net.npz cannot be read as a packed network .it starts with b'PK"):
        PackedNetwork.load(file.with_suffix(".npz"))
    with pytest.raises(ValueError, match="nothing cannot be read as a packed network"):
        PackedNetwork.load(file.with_name("nothing"))


@pytest.mark.parametrize("version", [3, FILE_VERSION + 1])
def test_other_version(version: int, file: Path) -> None:
    file.write_bytes(sealed(file.read_bytes()[START:], version))
    with pytest.raises(ValueError, match=f"it has version {version}, and this program reads {FILE_VERSION}"):
        PackedNetwork.load(file)


def test_header_that_does_not_fit_the_size(file: Path) -> None:
    file.write_bytes(sealed(file.read_bytes()[START:].replace(b"[[30,20],[20,1]]", b"[[30,21],[21,1]]")))
    with pytest.raises(ValueError, match="cannot be read as a packed network"):
        PackedNetwork.load(file)


@pytest.mark.parametrize(("threshold", "is_refused"), [(-(2**31), True), (-(2**31) + 1, False), (2**31 - 1, False)])
def test_thresholds_that_cannot_be_negated_are_refused(threshold: int, is_refused: bool, file: Path) -> None:
    """-(-2^31) is no int32, in which sums are compared."""
    content = file.read_bytes()
    start = numbers_start(content) + 8 * 60  # behind the coding of 30 inputs
    start += 20 * 4  # and the bits of 20 neurons of 30 inputs
    payload = content[START:]
    file.write_bytes(sealed(payload[:start] + struct.pack("<i", threshold) + payload[start + 4 :]))
    if is_refused:
        with pytest.raises(ValueError, match="its biases must be finite numbers"):
            PackedNetwork.load(file)
    else:
        assert PackedNetwork.load(file).networks[0][0].numbers[0] == threshold


BAD_FIELDS: list[tuple[str, Any]] = [
    ("shapes", []),
    ("shapes", None),
    ("shapes", [[30, 20], [21, 1]]),
    ("shapes", [[30, 20, 1]]),
    ("shapes", [["30", 20], [20, 1]]),
    ("shapes", [[-30, 20], [20, 1]]),
    ("shapes", [[30, 0], [0, 1]]),
    ("shapes", [[2**62, 2**62], [2**62, 1]]),
    ("shapes", [[30, True], [True, 1]]),
    ("networks", 0),
    ("networks", -1),
    ("networks", 10**30),
    ("networks", 2.0),
    ("networks", "2"),
    ("fraction_bits", "x"),
    ("fraction_bits", -1),
    ("fraction_bits", 25),
    ("fraction_bits", 7),
    ("fraction_bits", 8.0),
    ("fraction_bits", True),
    ("bias_dtype", "O"),
    ("bias_dtype", "<f2"),
    ("bias_dtype", ["<f4"]),
    ("coding", "log"),
    ("coding", {"kind": "zscore"}),
    ("coding", None),
    ("coding", "scaled"),
    ("coding", "sign"),
    ("classes", []),
    ("classes", ["a"]),
    ("classes", ["a", "b", "c"]),
    ("classes", ["a", "a"]),
    ("classes", ["a", 1]),
    ("classes", [1, 2**70]),
    ("classes", [[], []]),
    ("classes", "ab"),
    ("extra", 1),
]


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS, ids=str)
def test_every_field_is_checked(field: str, value: Any, file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(with_header(content, header_of(content) | {field: value}))
    with pytest.raises(ValueError, match="net cannot be read as a packed network"):
        PackedNetwork.load(file)


IMAGE = [6, 6, 1, 3, 2, 2]
BAD_CONVOLUTIONS: list[Any] = [
    None,
    [],
    [None, None],
    [IMAGE, IMAGE],
    [None, IMAGE],
    [IMAGE],
    [IMAGE[:5], None],
    [[*IMAGE, 1], None],
    [[6, 6, 1, 3, 2, 3], None],
    [[6, 6, 1, 3, 3, 2], None],
    [[6, 6, 9, 1, 2, 2], None],
    [[7, 7, 1, 3, 2, 2], None],
    [[2**22, 2**22, 1, 3, 2, 2], None],
    [[2**40, 6, 1, 3, 2, 2], None],
    [[6, -6, 1, 3, 2, 2], None],
    [[6, 6.0, 1, 3, 2, 2], None],
    [[True, 6, 1, 3, 2, 2], None],
    [[2, 2, 1, 3, 2, 2], None],
    [{"height": 6}, None],
    "[]",
]


@pytest.mark.parametrize("stored", BAD_CONVOLUTIONS, ids=str)
def test_every_number_of_a_convolution_is_checked(stored: Any, tmp_path: Path, rng: np.random.Generator) -> None:
    shared = Convolved(*IMAGE)
    signs = [rng.choice([-1, 1], (9, 2)), rng.choice([-1, 1], (8, 1))]
    export_packed(Weights(signs, [rng.normal(size=2), None], (shared, None)), tmp_path / "net", fraction_bits=0)
    content = (tmp_path / "net").read_bytes()
    assert header_of(content)["convolutions"] == [IMAGE, None]
    assert PackedNetwork.load(tmp_path / "net").layer_sizes == (36, 8, 1)
    (tmp_path / "net").write_bytes(with_header(content, header_of(content) | {"convolutions": stored}))
    with pytest.raises(ValueError, match="net cannot be read as a packed network"):
        PackedNetwork.load(tmp_path / "net")


@pytest.mark.parametrize("field", ["shapes", "networks", "fraction_bits", "bias_dtype", "coding", "classes"])
def test_no_field_may_be_missing(field: str, file: Path) -> None:
    content = file.read_bytes()
    header = header_of(content)
    del header[field]
    file.write_bytes(with_header(content, header))
    with pytest.raises(ValueError, match="its header must have the fields"):
        PackedNetwork.load(file)


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b"null", b"[]", b"\xff", b"[" * 100_000, b'{"shapes": NaN}', b"9" * 5000, b"{}" + b" " * 2**21],
    ids=lambda header: repr(header[:12]),
)
def test_headers_that_are_none(header: bytes, file: Path) -> None:
    file.write_bytes(with_header(file.read_bytes(), header))
    with pytest.raises(ValueError, match="net cannot be read as a packed network"):
        PackedNetwork.load(file)


def test_a_header_that_is_longer_than_the_file(file: Path) -> None:
    file.write_bytes(sealed(leb128(2**32 - 1) + b"{}"))
    with pytest.raises(ValueError, match="the length of its header must be at most 1048576, got 4294967295"):
        PackedNetwork.load(file)


@pytest.mark.parametrize(
    ("place", "what"), [(0, "numbers of its coding"), (8 * 30, "numbers of its coding"), (-8, "biases must be finite")]
)
def test_numbers_that_are_none(place: int, what: str, file: Path) -> None:
    """NaN as a mean, as a factor, and as the bias of the last network."""
    content = file.read_bytes()
    payload = bytearray(content[START:])
    start = numbers_start(content) + place if place >= 0 else len(payload) + place
    payload[start : start + 8] = struct.pack("<d", float("nan"))
    file.write_bytes(sealed(bytes(payload)))
    with pytest.raises(ValueError, match=what):
        PackedNetwork.load(file)


def test_bits_behind_the_weights(file: Path) -> None:
    """They would be counted."""
    content = file.read_bytes()
    payload = bytearray(content[START:])
    payload[numbers_start(content) + 2 * 8 * 30 + 3] |= 0x80  # of 30 inputs the last byte has six
    file.write_bytes(sealed(bytes(payload)))
    with pytest.raises(ValueError, match="bits behind the weights of a neuron must be 0"):
        PackedNetwork.load(file)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match="it is no file"):
            PackedNetwork.load(path)
