"""Files of a stream, wherever they are: local ones by plain Python, paths with "://" by TensorFlow's file systems.

TensorFlow is imported for a path such as `gs://bucket/trips/*.parquet`, and only then. Its errors are `OSError` here.
"""

import glob
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

__all__ = ["find", "is_folder", "is_remote", "open_file", "size", "tensorflow_errors"]


def is_remote(path: str) -> bool:
    """Whether a path is for TensorFlow's file systems."""
    return "://" in path


def open_file(path: str) -> IO[bytes]:
    """A file to read bytes from, at any place.

    :raises OSError: if it is not there or cannot be read, here or while it is read.
    """
    if not is_remote(path):
        return open(path, "rb")
    return io.BufferedReader(_RemoteFile(path), 2**20)  # type: ignore[arg-type]  # which has all of RawIOBase


def size(path: str) -> int:
    """Bytes of a file."""
    if not is_remote(path):
        return os.stat(path).st_size
    with tensorflow_errors() as tf:
        return int(tf.io.gfile.stat(path).length)


def is_folder(path: str) -> bool:
    """Whether there is a folder of this name."""
    if not is_remote(path):
        return os.path.isdir(path)
    with tensorflow_errors() as tf:
        return bool(tf.io.gfile.isdir(path))


def find(pattern: str) -> list[str]:
    """Paths that match a pattern with `*`, `?` and `[...]`, none of which stands for "/", sorted.

    A local file of that very name goes first, and local names that begin with a dot are hidden, as in a shell.
    """
    if is_remote(pattern):
        with tensorflow_errors() as tf:
            return sorted(map(str, tf.io.gfile.glob(pattern)))
    return [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))


@contextmanager
def tensorflow_errors() -> Iterator[Any]:
    """Yields TensorFlow, imported here; what it raises becomes an `OSError` with its message in one line."""
    import tensorflow as tf  # only here: who reads local tables need not wait for it

    try:
        yield tf
    except tf.errors.OpError as error:
        text = " ".join(str(error.message).split(" [[{{node")[0].split())
        raise OSError(text or type(error).__name__) from error


class _RemoteFile(io.RawIOBase):
    """A file of `tf.io.gfile`."""

    def __init__(self, path: str) -> None:
        with tensorflow_errors() as tf:
            self._file = tf.io.gfile.GFile(path, "rb")
            self._size = int(self._file.size())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with tensorflow_errors():
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        position = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._size}[whence] + offset
        with tensorflow_errors():
            self._file.seek(position)
        return position

    def close(self) -> None:
        self._file.close()
        super().close()
