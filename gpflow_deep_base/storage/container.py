"""A model in one file: a header of JSON and arrays, in an .npz archive that `numpy.load` reads, too.

    save_container("model.npz", kind="an RBM", version=1, header={"step": 3}, arrays={"W": W})
    header, arrays = load_container("model.npz", kind="an RBM", versions=(1,))[1:]

The header is the member header.json: what the file is, its version, the caller's header, and a SHA-256 of it and of all
arrays. No object is pickled. A reader compares sizes with a budget (:mod:`gpflow_deep_base.storage.limits`) and with
the shapes that the caller computes from the header, before any array is unpacked.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from ..files import PathLike, jsonable, parse_json, write_bytes
from .limits import Budget, budget_of, one_line, refuse_damaged

__all__ = [
    "Arrays",
    "Container",
    "Header",
    "Shapes",
    "container_bytes",
    "load_container",
    "read_container",
    "read_npy",
    "read_npz",
    "save_container",
]

Arrays: TypeAlias = dict[str, np.ndarray]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
#: What JSON gives.
Header: TypeAlias = dict[str, Any]

_HEADER = "header.json"
_MAX_HEADER_BYTES = 16 * 2**20
_MAX_ARRAYS = 5_000
_NUMBERS_AND_TEXT = "biufcSUmM"
_LONGEST_START = 64 * 2**10

#: What reading a damaged archive raises, besides ValueError.
_DAMAGED = (
    *(OSError, EOFError, KeyError, IndexError, TypeError, AttributeError, OverflowError, MemoryError, SyntaxError),
    *(RuntimeError, NotImplementedError, RecursionError, zipfile.BadZipFile, zlib.error),
    tokenize.TokenError,  # of NumPy, from the header of an array
)


class Container(NamedTuple):
    """What is in a file.

    :ivar version: of its content.
    :ivar header: what the writer gave.
    :ivar arrays: by name.
    """

    version: int
    header: Header
    arrays: Arrays


class _Member(NamedTuple):
    """An array in an archive, of which only the start was read."""

    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype


def save_container(
    path: PathLike, *, kind: str, version: int, header: Mapping[str, object], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a file in one piece; it is read back and compared before it takes its name.

    :param path: where; missing folders are made.
    :param kind: what the file is, such as "an RBM"; another kind is refused when it is read.
    :param version: of the content, a whole number.
    :param header: what JSON can hold; NumPy numbers become numbers.
    :param arrays: of numbers or text, by names without slashes at their ends.
    :raises ValueError: if an array has objects, or there are too many of them, or the header is too large.
    :raises OSError: if it cannot be written; what was there before stays.
    """
    write_bytes(path, container_bytes(kind=kind, version=version, header=header, arrays=arrays))


def container_bytes(
    *, kind: str, version: int, header: Mapping[str, object], arrays: Mapping[str, np.ndarray]
) -> bytes:
    """What :func:`save_container` writes; equal content for equal input. Parameters and errors as there."""
    # What cannot be read back is not written: objects, names that clash, more arrays than a reader takes.
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in plain.items():
        if array.dtype.kind not in _NUMBERS_AND_TEXT or array.dtype.names is not None:
            raise ValueError(f"the array {name} must have numbers or text, got {array.dtype}.")
        if name == _HEADER or "\0" in name:
            raise ValueError(f"an array must have a name of its own, not {name!r}.")
    if len(plain) >= _MAX_ARRAYS:
        raise ValueError(f"a file may have less than {_MAX_ARRAYS} arrays, got {len(plain)}; join small ones.")
    # The first member: what the file is, its checksum, and the header.
    content = jsonable(header)
    start = {"kind": kind, "version": int(version), "sha256": _digest(kind, version, content, plain), "header": content}
    text = json.dumps(start, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > _MAX_HEADER_BYTES:
        raise ValueError(
            f"the header takes {len(text)} bytes, more than {_MAX_HEADER_BYTES}; keep long lists of numbers as arrays."
        )
    # Uncompressed, and without times, so that equal content makes equal files.
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_HEADER), text)
        for name, array in plain.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getbuffer())
    return stream.getvalue()


def load_container(
    path: PathLike,
    *,
    kind: str,
    versions: Collection[int],
    expected: Callable[[Header], Shapes] | None = None,
    max_bytes: int | None = None,
) -> Container:
    """Read a file of :func:`save_container`.

    :param path: of the file.
    :param kind: as it was written.
    :param versions: that the caller can read.
    :param expected: the shapes of all arrays, from the header; called before any array is unpacked. It may raise
        ValueError for a header that makes no sense.
    :param max_bytes: that the content may take; None: 100 MB and three times the file's length.
    :raises ValueError: in one line, if the file is missing, damaged, of another kind or version, or takes more.
    """
    try:
        with open(os.path.expanduser(path), "rb") as file:
            length = os.fstat(file.fileno()).st_size
            return read_container(file, length, kind=kind, versions=versions, expected=expected, max_bytes=max_bytes)
    except (ValueError, *_DAMAGED) as error:
        refuse_damaged(path, kind, error)


def read_container(
    file: IO[bytes],
    length: int,
    *,
    kind: str,
    versions: Collection[int],
    expected: Callable[[Header], Shapes] | None = None,
    max_bytes: int | None = None,
) -> Container:
    """:func:`load_container` for an open file.

    :param file: binary and seekable.
    :param length: of the file, bytes.
    :raises Exception: whatever a damaged archive raises; :func:`load_container` makes one message of it.
    """
    budget = budget_of(length, max_bytes)
    with zipfile.ZipFile(file) as archive:
        # The header first, then the start of each array; nothing large is read before all of it fits.
        infos = _members(archive, length)
        if _HEADER not in infos:
            raise ValueError(f"it has no {_HEADER}: it is of an earlier version, or of another program")
        version, header, digest = _start(archive, infos.pop(_HEADER), budget, kind, versions)
        members = {name: _member(archive, info, budget) for name, info in infos.items()}
        if expected is not None:
            _check_shapes(members, expected(header))
        arrays = {name: _array(archive, member) for name, member in members.items()}
    # The checksum covers what was read, not the bytes of the archive.
    if _digest(kind, version, header, arrays) != digest:
        raise ValueError("its checksum does not match its content")
    return Container(version, header, arrays)


def read_npy(path: PathLike) -> np.ndarray:
    """The array of an .npy file of any program; never unpickles, and takes no more memory than the file is long.

    :param path: of the file.
    :raises ValueError: in one line, if the file is missing or damaged, holds Python objects, or claims more.
    """
    try:
        # Mapped, so that nothing is read before the size that is claimed was compared.
        mapped = np.load(os.path.expanduser(path), mmap_mode="r", allow_pickle=False)
        if not isinstance(mapped, np.ndarray):
            raise ValueError("it is an archive")
        budget_of(os.path.getsize(path)).take(_claimed(mapped.shape, mapped.dtype), "it")
        return np.array(mapped)
    except (ValueError, *_DAMAGED) as error:
        refuse_damaged(path, "an .npy file of one plain array", error)


def read_npz(path: PathLike, *, max_bytes: int | None = None) -> Arrays:
    """All arrays of an .npz file by name, of any program; never unpickles.

    :param path: of the file.
    :param max_bytes: that the arrays may take; None: 100 MB and three times the file's length.
    :raises ValueError: in one line, if the file is missing or damaged, holds Python objects, or takes more.
    """
    try:
        with open(os.path.expanduser(path), "rb") as file, zipfile.ZipFile(file) as archive:
            length = os.fstat(file.fileno()).st_size
            budget = budget_of(length, max_bytes)
            members = {name: _member(archive, info, budget) for name, info in _members(archive, length).items()}
            return {name: _array(archive, member) for name, member in members.items()}
    except (ValueError, *_DAMAGED) as error:
        refuse_damaged(path, "an .npz file of plain arrays", error)


def _members(archive: zipfile.ZipFile, length: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name without .npy, if they fit into the file side by side."""
    # Neither so many members nor so much content that a small file could claim all memory.
    infos = archive.infolist()
    if len(infos) > _MAX_ARRAYS:
        raise ValueError(f"it has {len(infos)} members, more than {_MAX_ARRAYS}")
    members = {info.filename.removesuffix(".npy"): info for info in infos}
    if len(members) < len(infos):
        raise ValueError("it has two members of one name")
    packed = sum(info.compress_size for info in infos)
    if packed > length:
        raise ValueError(f"its members claim {packed} bytes, but it has {length}")
    return members


def _start(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: Budget, kind: str, versions: Collection[int]
) -> tuple[int, Header, str]:
    """Version, header and checksum."""
    # The header is read as a whole, so that its size comes first.
    if info.file_size > _MAX_HEADER_BYTES:
        raise ValueError(f"its header has {info.file_size} bytes, more than {_MAX_HEADER_BYTES}")
    budget.take(info.file_size, "its header")
    start = parse_json(archive.read(info))
    if not isinstance(start, dict) or set(start) != {"kind", "version", "sha256", "header"}:
        raise ValueError("its header has other members than kind, version, sha256 and header")
    # Of this kind and a version that can be read.
    if start["kind"] != kind:
        raise ValueError(f"it is {one_line(start['kind'], 60)}")
    version = start["version"]
    header = start["header"]
    digest = start["sha256"]
    if type(version) is not int or version not in versions:
        readable = " and ".join(map(str, sorted(versions)))
        raise ValueError(f"it has version {one_line(version, 20)}, and this program reads {readable}")
    if not isinstance(header, dict) or not isinstance(digest, str):
        raise ValueError("its header is no object, or its checksum no text")
    return version, header, digest


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: Budget) -> _Member:
    """Shape and type of an array, from the first bytes of its member.

    :param budget: of the whole file. Arrays without elements count as if each axis had one: whoever reads no rows of
        10^11 columns makes room for the columns.
    """
    with archive.open(info) as stream:
        start = io.BytesIO(stream.read(_LONGEST_START))
    # The array's own header, in one of two versions of NumPy's format.
    format_version = np.lib.format.read_magic(start)
    if format_version not in ((1, 0), (2, 0)):
        raise ValueError(f"its member {one_line(info.filename, 60)} has an unknown version")
    is_first = format_version == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(start)
    name = one_line(info.filename, 60)
    if dtype.kind not in _NUMBERS_AND_TEXT or dtype.names is not None or dtype.hasobject:
        raise ValueError(f"its member {name} must have numbers or text, got {one_line(dtype, 60)}")
    if min(shape, default=0) < 0:
        raise ValueError(f"its member {name} has a negative size")
    # As many bytes as shape and type need, and no more than the file may claim.
    needed = math.prod(shape) * dtype.itemsize
    present = info.file_size - start.tell()
    if present != needed:
        raise ValueError(
            f"its member {name} must have {needed} bytes for shape {one_line(list(shape), 60)}, got {present}"
        )
    budget.take(max(info.file_size, _claimed(shape, dtype)), f"its array {name}")
    return _Member(info, shape, dtype)


def _claimed(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Bytes of an array in which no axis is empty."""
    return max(1, dtype.itemsize) * math.prod(max(1, size) for size in shape)


def _check_shapes(members: Mapping[str, _Member], shapes: Shapes) -> None:
    """Compare what is there with what the header asks for."""
    # No array too few or too many, and each of the right shape.
    for name in sorted(members.keys() ^ shapes.keys()):
        is_missing = name in shapes
        raise ValueError(f"it {'lacks' if is_missing else 'must not have'} the array {one_line(name, 60)}")
    for name, member in members.items():
        if member.shape != tuple(shapes[name]):
            raise ValueError(
                f"its array {one_line(name, 60)} must have the shape {one_line(list(shapes[name]), 60)} that its "
                f"header says, got {one_line(list(member.shape), 60)}"
            )


def _array(archive: zipfile.ZipFile, member: _Member) -> np.ndarray:
    # In the machine's own byte order, whatever the writer's was.
    stream = io.BytesIO(archive.read(member.info))
    array = np.lib.format.read_array(stream, allow_pickle=False)
    return np.asarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _digest(kind: str, version: int, header: object, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of everything in a file, whatever the machine's byte order and the names' order in the header."""
    text = json.dumps([kind, int(version), header], sort_keys=True, allow_nan=False, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("ascii"))
    for name in sorted(arrays):
        # Little endian, row by row, on every machine.
        little = np.asarray(arrays[name], order="C")
        little = little.astype(little.dtype.newbyteorder("<"), copy=False)
        digest.update(f"\n{name} {little.dtype.str} {list(little.shape)}\n".encode())
        digest.update(little.tobytes())
    return digest.hexdigest()
