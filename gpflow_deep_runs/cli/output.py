"""Standard output and error of a training, which goes on without them when nobody reads them any more."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO, cast

__all__ = ["open_streams", "output_may_be_lost", "print_asked_for"]


class _MayBeLost:
    """A stream whose text is dropped from the first time on that it cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        attribute: object = getattr(self._stream, name)
        return attribute

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):  # ValueError: it is closed
            self._lose()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._lose()

    def _lose(self) -> None:
        """Lead what is still to be written, also by the interpreter at its end and by libraries, to nowhere."""
        # The descriptor itself is led elsewhere, as libraries write to it past Python's stream.
        with contextlib.suppress(OSError, ValueError):
            descriptor = self._stream.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


@contextlib.contextmanager
def output_may_be_lost() -> Iterator[None]:
    """Within it, a pipe that was closed (`| head`), a disk that is full or a terminal that is gone ends no program."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and cast("TextIO", _MayBeLost(stream)) for stream in streams)
    # At the end what is buffered is written here, where its loss can be borne.
    try:
        yield
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # a process may have none
                stream.flush()
    finally:
        sys.stdout, sys.stderr = streams


def print_asked_for(text: object) -> None:
    """Print what the command line asks for, such as help, of which nobody has to read all (`| head`)."""
    with output_may_be_lost():
        print(text)


def open_streams() -> None:
    """Give a process that was started without standard input, output or error (`>&-`) streams that lead nowhere.

    The next file it opened would else get their numbers, and what libraries print. Where the locale has no ± or ß, they
    are printed as \\xb1 and \\xdf.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the smallest free number
    # The interpreter had none to open them on, so they are None.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (as long as the process)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
