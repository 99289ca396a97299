#!/usr/bin/env python3
"""Compress a delimited table without a model, and give it back byte for byte.

    gpflow-deep compress table.csv
    gpflow-deep decompress table.csv.gdt --output=again.csv

Columns, quotes, line ends and bytes of any encoding come back as they were; a file that is no table does, too. The
first line names the file that is written and says how long bz2, xz and Parquet of the table are.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before anything is read)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import at_least, positional

from gpflow_deep_base.files import write_bytes
from gpflow_deep_base.text import aligned

_SUFFIX = ".gdt"


@dataclass(frozen=True)
class Compress:
    """Compress a delimited table without loss; nothing is needed beside the file.

    :param input: table to compress, such as table.csv.
    :param output: file to write, replaced if it exists; the input's name and .gdt if this is not given.
    :param max_megabytes: that giving it back may take; 256 MB and 100 times the output if this is not given.
    """

    input: str = positional()
    output: str | None = None
    max_megabytes: int | None = None

    def __post_init__(self) -> None:
        at_least(self, {"max_megabytes": 1})

    @property
    def max_bytes(self) -> int | None:
        """The same in bytes."""
        return None if self.max_megabytes is None else self.max_megabytes * 10**6

    @property
    def target(self) -> Path:
        """The file to write."""
        return Path(self.output or f"{self.input}{_SUFFIX}").expanduser()

    def read(self) -> bytes:
        """The content of the input."""
        path = Path(self.input).expanduser()
        if not path.is_file():
            raise ValueError(f"--input must be a file; there is no file {path}.")
        return path.read_bytes()


@dataclass(frozen=True)
class Decompress(Compress):
    """Restore the table from a file that `compress` wrote, byte for byte.

    :param input: file to restore, such as table.csv.gdt.
    :param output: file to write, replaced if it exists; a new file, the input's name without .gdt, if this is not
        given.
    :param max_megabytes: that giving it back may take; 256 MB and 100 times the input if this is not given.
    """

    @property
    def target(self) -> Path:
        """The file to write."""
        if self.output is not None:
            return Path(self.output).expanduser()
        path = Path(self.input.removesuffix(_SUFFIX)).expanduser()
        if not self.input.endswith(_SUFFIX):
            raise ValueError(f"--output must be given where the input does not end in {_SUFFIX}, got {self.input}.")
        if path.exists():
            raise ValueError(f"{path} exists; give another name, or the same to replace it: --output={path}.")
        return path


def compress(flags: Compress) -> None:
    """Write a table's file once it is known to give the table back, and print how long it is."""
    from darn.codec import table  # half a second, before which wrong flags have been answered

    content = flags.read()
    start = time.process_time()
    data = table.encode_table(content)
    seconds = time.process_time() - start
    # Written only if it gives the table back.
    if table.decode_table(data, max_bytes=flags.max_bytes) != content:
        raise ValueError(f"{flags.input} cannot be restored; nothing was written, please report this with the table.")
    write_bytes(flags.target, data)
    print(f"{flags.target}: {len(data):,} bytes by {table.method_of(data)}, {seconds:.2f} CPU s; restores the table")
    lengths = {"as it is": len(content), "compressed": len(data), **table.other_lengths(content)}
    print(aligned([["", "bytes"], *([name, f"{length:,}"] for name, length in lengths.items())]))


def decompress(flags: Decompress) -> None:
    """Write the table that a file holds."""
    target = flags.target
    from darn.codec import table  # as in `compress`

    try:
        content = table.decode_table(flags.read(), max_bytes=flags.max_bytes)
    except ValueError as error:
        raise ValueError(f"--input={flags.input}: {error}") from error
    write_bytes(target, content)
    print(f"{target}: {len(content):,} bytes")


COMMANDS: dict[str, Callable[[Any], None]] = {"compress": compress, "decompress": decompress}
command = functools.partial(cli.run, COMMANDS)

if __name__ == "__main__":
    command()
