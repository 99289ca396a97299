"""`gpflow_deep.stored_arrays`: a structure and arrays come back, and no file takes more memory than it is long."""

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpflow_deep import stored_arrays
from gpflow_deep.stored_arrays import pack, unpack

ARRAYS = {
    "a.b[0]": np.arange(6.0).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 3)),
    "text": np.array(["ä", "longer"]),
    "bytes": np.array([b"x", b""]),
    "swapped": np.arange(3, dtype=">f8"),
    "complex": np.array([1 + 2j]),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.npz"


def test_round_trip(path: Path) -> None:
    structure = {"format": 1, "names": ["ü", None, 1.5]}
    path.write_bytes(pack(structure, ARRAYS))
    found, arrays = unpack(path)
    assert found == structure
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype.newbyteorder("=")


def test_numpy_reads_it_and_equal_input_gives_an_equal_file(path: Path) -> None:
    path.write_bytes(pack({}, ARRAYS))
    with np.load(path) as stored:
        np.testing.assert_array_equal(stored["a.b[0]"], ARRAYS["a.b[0]"])
    assert pack({}, ARRAYS) == path.read_bytes()


def test_objects_and_long_structures_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        pack({}, {"a": np.array([object()])})
    monkeypatch.setattr(stored_arrays, "MAX_STRUCTURE_BYTES", 1000)
    with pytest.raises(
        ValueError, match="takes 6007 bytes, more than 1000; keep long lists of numbers as NumPy arrays"
    ):
        pack({"a": [0.125] * 1000}, {})


def member(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array(content, array, allow_pickle=allow_pickle)
    return content.getvalue()


def header(shape: str, dtype: str = "<f8") -> bytes:
    """A member that claims a shape and has no numbers."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def archive(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as file:
        for name, data in members:
            file.writestr(name, data)
    return content.getvalue()


def overlapping() -> bytes:
    """Many entries of the directory for one member, as a zip bomb without compression has them."""
    content = archive([("structure.json", b"{}"), ("a.npy", member(np.zeros(10_000)))])
    start = content.index(b"PK\x01\x02")
    second = content.index(b"PK\x01\x02", start + 1)
    end = content.index(b"PK\x05\x06")
    entry, directory, count = content[second:end], content[start:end], 500
    for i in range(count):
        directory += entry.replace(b"a.npy", f"{i:05d}".encode())
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count + 2, count + 2, len(directory), start, 0)
    return content[:start] + directory + tail


def flipped(flag_byte: int) -> bytes:
    """A member whose flags in the directory say, for example, that it is encrypted."""
    content = bytearray(archive([("structure.json", b"{}")]))
    content[content.index(b"PK\x01\x02") + 8] |= flag_byte
    return bytes(content)


STRUCTURE = ("structure.json", b"{}")
BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "not a zip file"),
    "other": (lambda: b"x" * 1000, "not a zip file"),
    "no_structure": (lambda: archive([("a.npy", member(np.zeros(2)))]), r"no structure\.json"),
    "no_object": (lambda: archive([("structure.json", b"[1]")]), "is no object"),
    "no_json": (lambda: archive([("structure.json", b"{'a': 1}")]), "property name"),
    "no_text": (lambda: archive([("structure.json", b"\xff\xfe{}")]), "Expecting value|codec"),
    "not_a_number": (lambda: archive([("structure.json", b'{"a": NaN}')]), "has NaN"),
    "deep": (lambda: archive([("structure.json", b'{"a": ' + b"[" * 200_000)]), "recursion"),
    "twice": (lambda: archive([STRUCTURE, ("b", b""), STRUCTURE]), "two members of one name"),
    "compressed": (
        lambda: archive([STRUCTURE, ("a.npy", member(np.zeros(10**6)))], zipfile.ZIP_DEFLATED),
        r"structure\.json is compressed",
    ),
    "overlapping": (overlapping, "members claim .* bytes, but it has"),
    "encrypted": (lambda: flipped(1), "encrypted"),
    "no_array": (lambda: archive([STRUCTURE, ("a.npy", b"1234")]), "magic"),
    "huge": (lambda: archive([STRUCTURE, ("a.npy", header("(1000000, 1000000)"))]), "must have 8000000000000 bytes"),
    "huge_text": (lambda: archive([STRUCTURE, ("a.npy", header("(1,)", "<U500000000"))]), "must have 2000000000"),
    "overflow": (lambda: archive([STRUCTURE, ("a.npy", header(f"({2**62}, {2**62})"))]), "must have"),
    "negative": (lambda: archive([STRUCTURE, ("a.npy", header("(-1, -1)", "<f8") + bytes(8))]), "must have"),
    "too_long": (lambda: archive([STRUCTURE, ("a.npy", member(np.zeros(2)) + b"x")]), "must have 16 bytes"),
    "record": (lambda: archive([STRUCTURE, ("a.npy", member(np.zeros(2, "f8,f8")))]), "numbers or text"),
    "pickle": (
        lambda: archive([STRUCTURE, ("a.npy", member(np.array([object()]), allow_pickle=True))]),
        "must have numbers or text, got object",
    ),
    "version": (lambda: archive([STRUCTURE, ("a.npy", b"\x93NUMPY\x07\x00" + bytes(100))]), "unknown version"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", BAD)
def test_bad_files(name: str, path: Path) -> None:
    make, message = BAD[name]
    path.write_bytes(make())
    length = path.stat().st_size
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as error:
            unpack(path)
        assert tracemalloc.get_traced_memory()[1] < 30 * length + 10**6
    finally:
        tracemalloc.stop()
    assert "\n" not in str(error.value)


def test_a_missing_file(path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        unpack(path)


def test_each_damaged_byte_is_found_or_harmless(rng: np.random.Generator, path: Path) -> None:
    arrays = {"a": rng.normal(size=(3, 2)), "b": np.arange(4)}
    structure = {"format": 1, "c": ["text", 2]}
    content = pack(structure, arrays)
    num_found = 0
    for place in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            found, read = unpack(path)
        except ValueError:
            num_found += 1
            continue
        assert found == structure
        assert all(np.array_equal(read[name], array) for name, array in arrays.items() if name in read)
    assert num_found > len(content) / 6  # others are in dates, attributes and the like
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"not a zip file|magic number"):
            unpack(path)
