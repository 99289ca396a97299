"""gpflow_deep_base.storage.container: what is written comes back; what a stranger writes is loaded or refused, at its
cost."""

import io
import json
import re
import resource
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpflow_deep_base.storage.container import container_bytes, load_container, read_npz, save_container

KIND = "a test model"
HEADER = {"step": 3, "names": ["a", "µ"], "nested": {"rate": 0.1, "none": None}}
ARRAYS = {
    "W": np.arange(6.0).reshape(2, 3),
    "path/like": np.array([1, -2], np.int32),
    "text": np.array(["a", "βγ"]),
    "empty": np.zeros([0, 4]),
    "scalar": np.array(2.5),
    "big_endian": np.arange(3, dtype=">i2"),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def load(path: Path, **options: Any) -> Any:
    return load_container(path, kind=KIND, versions=(1, 2), **options)


def save(path: Path, header: dict[str, Any] = HEADER, arrays: dict[str, Any] = ARRAYS) -> None:
    save_container(path, kind=KIND, version=2, header=header, arrays=arrays)


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(path: Path, members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def refusal(path: Path) -> str | None:
    """Why a file is refused, or None."""
    try:
        load(path)
    except ValueError as error:
        return str(error)
    return None


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    save(tmp_path / "new" / "model.npz")
    version, header, arrays = load(tmp_path / "new" / "model.npz")
    assert version == 2
    assert header == HEADER
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype.newbyteorder("=")
    with np.load(tmp_path / "new" / "model.npz") as stored:
        np.testing.assert_array_equal(stored["W"], ARRAYS["W"])


def test_equal_content_is_equal_bytes() -> None:
    first, second = (container_bytes(kind=KIND, version=1, header=HEADER, arrays=ARRAYS) for _ in range(2))
    assert first == second


def test_what_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    for array in (np.array([None]), np.zeros(2, [("a", int)])):
        with pytest.raises(ValueError, match="numbers or text"):
            save(tmp_path / "model.npz", arrays={"x": array})
    for arrays in ({"header.json": np.zeros(1)}, {"a\0b": np.zeros(1)}):
        with pytest.raises(ValueError, match="must have a name of its own"):
            save(tmp_path / "model.npz", arrays=arrays)
    with pytest.raises(ValueError, match="less than 5000 arrays, got 5000"):  # which could not be read
        save(tmp_path / "model.npz", arrays={str(number): np.zeros(1) for number in range(5000)})
    assert not (tmp_path / "model.npz").exists()


def test_each_change_of_a_byte_is_refused_in_one_line_or_changes_nothing(tmp_path: Path) -> None:
    """Bytes that say nothing, such as the times of zip members, may change."""
    path = tmp_path / "model.npz"
    save(path, arrays={"W": np.arange(4.0)})
    content = path.read_bytes()
    expected = load(path)
    refused = 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        reason = refusal(path)
        if reason is None:
            container = load(path)
            assert container.header == expected.header
            np.testing.assert_array_equal(container.arrays["W"], expected.arrays["W"])
        else:
            assert reason.startswith(f"{path} cannot be read as {KIND} (")
            assert "\n" not in reason
            refused += 1
    assert refused > len(content) // 2


def test_other_files_are_refused_by_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    for content, reason in [(None, "No such file"), (b"", "not a zip"), (b"PK\x03\x04 and more", "not a zip")]:
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            load(path)
    save_container(path, kind="another\nmodel", version=2, header={}, arrays={})
    with pytest.raises(ValueError, match="it is another model"):
        load(path)
    save_container(path, kind=KIND, version=9, header={}, arrays={})
    with pytest.raises(ValueError, match="version 9, and this program reads 1 and 2"):
        load(path)
    np.savez(path, W=np.zeros(3))
    with pytest.raises(ValueError, match=re.escape("it has no header.json")):
        load(path)


def test_shapes_are_compared_with_the_header_before_arrays_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save(path, {"n": 4}, {"W": np.zeros([4, 2]), "b": np.zeros(4)})

    def shapes(W: tuple[int, ...], **others: tuple[int, ...]) -> Callable[[dict[str, Any]], Any]:
        return lambda header: {"W": W, **others}

    assert load(path, expected=lambda header: {"W": (header["n"], 2), "b": (4,)}).header == {"n": 4}
    for expected, reason in [
        (shapes((3, 2), b=(4,)), r"W must have the shape \[3, 2\] that its header says, got \[4, 2\]"),
        (shapes((4, 2)), "must not have the array b"),
        (shapes((4, 2), b=(4,), c=(1,)), "lacks the array c"),
    ]:
        with pytest.raises(ValueError, match=reason):
            load(path, expected=expected)


def npy(shape: str, data: bytes, descr: str = "'<f8'") -> bytes:
    """A member whose header says whatever it likes."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


ZEROS = b"\0" * (400 * 2**20)

CRAFTED = {
    "packed zeros": ("(52428800,)", ZEROS, "'<f8'"),
    "size that overflows": ("(2305843009213693952, 8)", b"", "'<f8'"),
    "negative size": ("(-1,)", b"", "'<f8'"),
    "more than is there": ("(1000000000,)", b"\0" * 64, "'<f8'"),
    "no rows of many columns": ("(0, 100000000000)", b"", "'<f8'"),
    "many rows of no columns": ("(1000000000, 0)", b"", "'<f8'"),
    "no texts of great length": ("(0,)", b"", "'<U100000000'"),
    "objects": ("(1,)", b"\x80\x04N.", "'|O'"),
    "fields": ("(1,)", b"\0" * 8, "[('a', '<f8')]"),
    "no shape": ("'x'", b"", "'<f8'"),
    "nested": ("(" * 500, b"", "'<f8'"),
    "call": ("(1,)", b"\0" * 8, "__import__('os')"),
}


@pytest.mark.parametrize("name", CRAFTED)
@pytest.mark.parametrize("reader", ["container", "npz"])
def test_crafted_arrays_are_refused_at_small_cost(tmp_path: Path, name: str, reader: str) -> None:
    """The member is deflated, so that 400 MB are a file of 0.4 MB; both readers refuse it for at most 100 MB."""
    path = tmp_path / "bomb.npz"
    save(path, arrays={})
    members = members_of(path) if reader == "container" else {}
    shape, data, descr = CRAFTED[name]
    write_members(path, {**members, "W.npy": npy(shape, data, descr)}, zipfile.ZIP_DEFLATED)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    with pytest.raises(ValueError, match="cannot be read as") as raised:
        load(path) if reader == "container" else read_npz(path)
    assert "\n" not in str(raised.value)
    assert time.process_time() - start < 1
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 100


def test_larger_files_are_read_where_the_caller_says_so(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros(2 * 10**7))
    with pytest.raises(ValueError, match="max_bytes="):
        read_npz(path)
    assert read_npz(path, max_bytes=2 * 10**8)["x"].shape == (2 * 10**7,)


def test_a_plain_archive_of_any_program(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez_compressed(path, X=np.eye(3), y=np.arange(3))
    arrays = read_npz(path)
    np.testing.assert_array_equal(arrays["X"], np.eye(3))
    np.testing.assert_array_equal(arrays["y"], np.arange(3))
    np.savez(path, X=np.array([None, 1]))
    with pytest.raises(ValueError, match="numbers or text"):
        read_npz(path)
    write_members(path, {"X.npy": npy("(3,)", b"\0" * 64)})
    with pytest.raises(ValueError, match=r"must have 24 bytes for shape \[3\], got 64"):
        read_npz(path)
    path.write_bytes(io.BytesIO(b"PK").getvalue())
    with pytest.raises(ValueError, match=r"cannot be read as an \.npz file of plain arrays"):
        read_npz(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda start: start | {"header": []},
        lambda start: start | {"more": 1},
        lambda start: start | {"version": True},
        lambda start: start | {"version": [2]},
        lambda start: start | {"sha256": None},
        lambda start: start | {"kind": {"a": 1}},
        lambda start: [start],
        lambda start: None,
    ],
)
def test_headers_that_make_no_sense(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    path = tmp_path / "model.npz"
    save(path)
    members = members_of(path)
    write_members(path, members | {"header.json": json.dumps(change(json.loads(members["header.json"]))).encode()})
    with pytest.raises(ValueError, match="cannot be read as a test model"):
        load(path)


def test_arrays_of_another_file_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save(path, arrays={"W": np.zeros(3)})
    header = members_of(path)["header.json"]
    save(path, arrays={"W": np.ones(3)})
    write_members(path, members_of(path) | {"header.json": header})
    with pytest.raises(ValueError, match="checksum does not match"):
        load(path)


def test_the_header_counts_among_what_a_file_may_take(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save(path, header={"names": ["x" * 1000] * 20}, arrays={"W": np.zeros(3)})
    with pytest.raises(ValueError, match=r"its header takes 20,\d+ bytes, and all of it may take 15,000"):
        load(path, max_bytes=15_000)
    assert load(path, max_bytes=30_000).arrays["W"].shape == (3,)
