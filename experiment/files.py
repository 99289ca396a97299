"""Files that are whole or absent, and JSON: the ground floor."""

import errno
import hashlib
import json
import math
import os
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "atomic_path",
    "jsonable",
    "make_folder",
    "read_jsonl",
    "read_npz",
    "sha256",
    "sync_file",
    "sync_folder",
    "write_json",
    "write_text",
]


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; rename it to `path` at the end, or remove it on an error.

    The temporary name keeps the suffix of `path`, which `np.savez` and Matplotlib look at. The parent folder is
    created. `path` holds either its former content or all of the new one, never a part, also after a power failure:
    the file is synchronised before it is renamed, and its folder after.

    :raises FileNotFoundError: if the body of the `with` wrote nothing.
    """
    final = Path(path)
    make_folder(final.parent)
    temporary = final.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{final.name}")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, final)
        sync_folder(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder, and those above it that are missing, under names that survive a power failure.

    :raises OSError: if one of them cannot be created, or is a file.
    """
    folder = Path(path)
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_file(path: str | os.PathLike[str]) -> None:
    """Make a file and its name survive a power failure: both are on disk when this returns."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    sync_folder(Path(path).parent)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make the names in a folder survive a power failure: a rename is on disk when this returns."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot do it
            raise
    finally:
        os.close(descriptor)


def sha256(path: str | os.PathLike[str]) -> str:
    """Checksum of a file, as 64 hexadecimal digits; read a megabyte at a time."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` (UTF-8) in one piece; see :func:`atomic_path`."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], obj: Any) -> None:
    """Write `obj` to `path` as indented JSON in one piece, through :func:`jsonable`."""
    write_text(path, json.dumps(jsonable(obj), indent=2, allow_nan=False) + "\n")


def jsonable(obj: Any) -> Any:
    """`obj` with NumPy, TensorFlow and path objects replaced by what strict JSON can hold; NaN and inf become None.

    :raises ValueError: if `obj` contains something else that JSON cannot hold, or bytes that are not UTF-8 text.
    """
    if obj is None or isinstance(obj, str | bool | int):
        return obj
    if isinstance(obj, bytes):  # a string tensor holds these
        return obj.decode()
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if isinstance(obj, Mapping):
        return {str(key): jsonable(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [jsonable(value) for value in obj]
    if isinstance(obj, os.PathLike):
        return os.fspath(obj)
    if isinstance(obj, np.ndarray | np.generic) and obj.dtype.kind in "biufSU":
        return jsonable(obj.tolist())
    if callable(numpy := getattr(obj, "numpy", None)) and not isinstance(obj, type):  # a tensor or a variable
        return jsonable(numpy())
    raise ValueError(f"JSON must get numbers, strings, lists and dictionaries, got {type(obj).__name__}: {obj!r}.")


def read_jsonl(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, such as `scalars.jsonl`: "step" and the tags.

    :raises OSError: if it cannot be read.
    """
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def read_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file by name; never unpickles.

    :raises ValueError: if the file is damaged or holds Python objects.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (
        *(AttributeError, TypeError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error),
    ) as error:
        raise ValueError(f"{path} is no readable .npz file of plain arrays ({error}); write it again.") from error
