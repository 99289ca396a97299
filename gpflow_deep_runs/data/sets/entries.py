"""What the known data sets are: one entry each, with its files, where to get them, and the readers of its views.

The entries are those of `sets.json`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.sets import binary, flights, images, supervised, text, uci
from gpflow_deep_runs.data.sets.files import KNOWN, File, files_of, find, folder_of

__all__ = ["ENTRIES", "Entry", "Reader", "View"]

View = Literal["supervised", "binary", "grey", "images", "text"]
"""What a model wants of a data set; `gpflow_deep_runs.data.views` says what each holds."""

Reader = Callable[[str, Sequence[Path]], Rows]
"""Name of the data set, and where its files are -> its rows."""

_MODULES = {
    "binary": binary,
    "flights": flights,
    "images": images,
    "supervised": supervised,
    "text": text,
    "uci": uci,
}


@dataclass(frozen=True)
class Entry:
    """A known data set.

    :param name: what --dataset calls it.
    :param about: what it is: rows, columns, task, parts.
    :param views: the views that it has, and what reads each from the files.
    :param files: what it is read from; () if it comes with an installed package.
    :param get: what to get, from where, and where to put it; "" if no file is needed.
    """

    name: str
    about: str
    views: Mapping[View, Reader]
    files: tuple[File, ...] = ()
    get: str = ""

    def read(self, view: View, data_dir: str | os.PathLike[str] | None = None) -> Rows:
        """The rows in a view that it has.

        :param data_dir: where the files are: the file itself, its folder, or the folder above that. Not needed for data
            sets that come with an installed package.
        :raises ValueError: if a file is missing (says what to get and where to put it), damaged, incomplete or has
            another checksum than expected.
        """
        return self.views[view](self.name, find(self.files, folder_of(data_dir), self.name, self.get))


def _reader(name: str) -> Reader:
    """A reader by its name, as "uci.read"."""
    module, _, function = name.partition(".")
    reader: Reader = getattr(_MODULES[module], function)
    return reader


def _entry(name: str, known: Mapping[str, Any]) -> Entry:
    views: Mapping[Any, Reader] = {view: _reader(reader) for view, reader in known["views"].items()}
    return Entry(name, known["about"], views, files_of(known), known.get("get", ""))


ENTRIES: Mapping[str, Entry] = {name: _entry(name, known) for name, known in KNOWN.items()}
"""All known data sets by name."""
