"""The known data sets by name: what each is, the files it is read from, and its views.

    names("binary"), describe("boston")
    data = read("boston", "supervised", "~/data")       # in one part "all"; `views.load` divides it

Nothing is downloaded. `describe(name)`, and the error of :func:`read` when a file is missing, say what to get and where
to put it. Files with a known checksum are checked against it, the others by what they hold.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.sets import binary, flights, images, supervised, text, uci
from gpflow_deep_runs.data.sets.files import KNOWN, File, files_of, find, folder_of

__all__ = ["ENTRIES", "Entry", "Reader", "View", "describe", "get", "names", "read"]

View = Literal["supervised", "binary", "grey", "images", "text"]
"""What a model wants of a data set; `gpflow_deep_runs.data.views` says what each holds."""

Reader = Callable[[str, Sequence[Path]], Rows]
"""Name of the data set, and where its files are -> its rows."""

_MODULES = {module.__name__.rpartition(".")[2]: module for module in (binary, flights, images, supervised, text, uci)}


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


def _entry(name: str, known: Mapping[str, Any]) -> Entry:
    views: dict[Any, Reader] = {}
    # Readers are named in the file of facts.
    for view, reader in known["views"].items():  # such as "uci.read"
        module, _, function = reader.partition(".")
        views[view] = getattr(_MODULES[module], function)
    return Entry(name, known["about"], views, files_of(known), known.get("get", ""))


ENTRIES: Mapping[str, Entry] = {name: _entry(name, facts) for name, facts in KNOWN.items()}
"""All known data sets by name."""


def names(view: View | None = None) -> list[str]:
    """Names of the known data sets, sorted; of those that have a view, if one is given."""
    return sorted(name for name, entry in ENTRIES.items() if view is None or view in entry.views)


def get(name: str) -> Entry:
    """A known data set.

    :raises ValueError: if the name is not known.
    """
    if name not in ENTRIES:
        raise ValueError(f"--dataset must be one of {', '.join(names())}, got {name!r}; for own data use --data.")
    return ENTRIES[name]


def read(name: str, view: View, data_dir: str | os.PathLike[str] | None = None) -> Rows:
    """The rows of a known data set: in one part "all" of the views "supervised" and "text", else in parts.

    :param data_dir: where its files are: the file itself, its folder, or the folder above that; None if it needs none.
    :raises ValueError: if the name is not known, the set has no such view (says which have it), or as `Entry.read`.
    """
    if name not in ENTRIES:
        raise ValueError(f"--dataset must be one of {', '.join(names(view))}, got {name!r}; for own data use --data.")
    # The view must be one that the set has.
    entry = ENTRIES[name]
    if view not in entry.views:
        raise ValueError(
            f"--dataset must have the view {view!r} here, as {', '.join(names(view))}; {name!r} has "
            f"{', '.join(entry.views)} only."
        )
    return entry.read(view, data_dir)


def describe(name: str) -> str:
    """What a data set is, its views, which files it needs and how they are checked.

    :raises ValueError: if the name is not known.
    """
    entry = get(name)
    checks = "; ".join(file.check for file in entry.files) or "the installed package"
    return (
        f"{name}: {entry.about}\nViews: {', '.join(entry.views)}\nFiles: {entry.get or 'none are needed.'}\n"
        f"Checked by: {checks}.\n"
    )
