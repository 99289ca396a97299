"""Files of a stream, wherever they are: local ones by plain Python, paths with "://" by the file systems of pyarrow.

Those are, among others, `gs://bucket/trips/*.parquet`, `s3://...`, `hdfs://...` and `file:///...`.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
import re
from typing import IO

from gpflow_deep_runs.data.libraries import pa

__all__ = ["find", "is_folder", "is_remote", "open_file", "size"]


def is_remote(path: str) -> bool:
    """Whether a path is for the file systems of pyarrow."""
    return "://" in path


def open_file(path: str) -> IO[bytes]:
    """A file to read bytes from, at any place.

    :raises OSError: if it is not there or cannot be read, here or while it is read.
    """
    if not is_remote(path):
        return open(path, "rb")
    system, place = _located(path)
    return io.BufferedReader(system.open_input_file(place), 2**20)


def size(path: str) -> int:
    """Bytes of a file.

    :raises OSError: if it is not there.
    """
    if not is_remote(path):
        return os.stat(path).st_size
    system, place = _located(path)
    info = system.get_file_info(place)
    if not info.is_file:
        raise FileNotFoundError(f"there is no file {path}")
    return int(info.size)


def is_folder(path: str) -> bool:
    """Whether there is a folder of this name."""
    if not is_remote(path):
        return os.path.isdir(path)
    system, place = _located(path)
    return bool(system.get_file_info(place).type == pa.fs.FileType.Directory)


def find(pattern: str) -> list[str]:
    """Paths that match a pattern with `*`, `?` and `[...]`, none of which stands for "/", sorted.

    A local file of that very name goes first, and local names that begin with a dot are hidden, as in a shell.
    """
    if not is_remote(pattern):
        return [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
    # The folder above the first wildcard, and the patterns below it
    folder, _, names = re.sub(r"/([^/]*[*?\[].*)$", r"\n\1", pattern).partition("\n")
    if not names:
        system, place = _located(pattern)
        return [pattern] if system.get_file_info(place).is_file else []
    system, place = _located(folder)
    parts = names.split("/")
    chosen = pa.fs.FileSelector(place, allow_not_found=True, recursive=len(parts) > 1)
    inner = [entry.path[len(place) :].strip("/") for entry in system.get_file_info(chosen) if entry.is_file]
    return sorted(f"{folder}/{path}" for path in inner if _fits(path.split("/"), parts))


def _fits(names: list[str], patterns: list[str]) -> bool:
    """Whether each name of a path fits the pattern in its place."""
    return len(names) == len(patterns) and all(map(fnmatch.fnmatchcase, names, patterns))


def _located(path: str) -> tuple[pa.fs.FileSystem, str]:
    """The file system of a path, and the place in it.

    :raises OSError: if pyarrow has none.
    """
    try:
        system, place = pa.fs.FileSystem.from_uri(path)
    except (pa.ArrowException, ImportError) as error:
        raise OSError(f"{path} is on no file system of pyarrow ({error})") from error
    return system, str(place)
