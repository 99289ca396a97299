"""Which folder a run may have, before TensorFlow starts: the files in it, and what refuses a folder.

run_dir/flags.txt        the flags; `--flagfile=run_dir/flags.txt --run_dir=NEW` repeats the run
        provenance.json  versions, commit, devices, command line, data checksum; one more entry per resume
        result.json      the numbers the run reports
        columns.json     how the columns of --data were read, for new rows to be read alike; of tables only
        scalars.jsonl    one JSON object a line, and the same scalars for TensorBoard in tensorboard/NAME/
        checkpoints/  tensorboard/  plots/
        .lock            who holds the folder; failed-1/ what an earlier run left that reached no checkpoint
"""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpflow_deep_base.files import entries
from gpflow_deep_base.storage.locks import LOCK, refuse_if_held

__all__ = [
    "FREE_ON_RESUME",
    "RunDir",
    "check_free",
    "check_same_flags",
    "flag_name",
    "is_failed",
    "is_resumed",
    "refuse",
]

FREE_ON_RESUME = frozenset(
    {
        "checkpoint_every",
        "checkpoint_seconds",
        "data",
        "data_dir",
        "eval_every",
        "flagfile",
        "log_every",
        "max_seconds",
        "num_steps",
        "progress",
        "resume",
        "run_dir",
        "threads",
    }
)
"""Flags that may differ when a run is resumed: none of them changes what a training step computes.

`data` and `data_dir` are free because the data may have moved; the stored checksum still has to match.
(`threads` may change the last bit of a sum.)
"""


@dataclass(frozen=True)
class RunDir:
    """Paths of one run; see the module's docstring.

    :param path: the folder.
    :param name: what TensorBoard calls the run.
    :param home: folder of the run that this one is a part of, whose TensorBoard folder it shares.
    """

    path: Path
    name: str = "run"
    home: Path | None = None

    @property
    def flags_file(self) -> Path:
        """The flags of the run, one a line. Written last, so its presence says that the folder holds a run."""
        return self.path / "flags.txt"

    @property
    def provenance_file(self) -> Path:
        """What the run was made with: the dictionary of :func:`provenance`."""
        return self.path / "provenance.json"

    @property
    def columns_file(self) -> Path:
        """How the columns of a table of the user's own were read: `Schema.to_json` of the data."""
        return self.path / "columns.json"

    @property
    def result_file(self) -> Path:
        """The numbers that the run reports."""
        return self.path / "result.json"

    @property
    def checkpoint_dir(self) -> Path:
        """Folder for `gpflow_deep_runs.run.checkpoints`."""
        return self.path / "checkpoints"

    @property
    def scalars_file(self) -> Path:
        """Scalars over the steps, one JSON object a line."""
        return self.path / "scalars.jsonl"

    @property
    def tensorboard_dir(self) -> Path:
        """Folder of TensorBoard's events over the steps; `tensorboard --logdir` takes any folder above it."""
        return (self.home or self.path) / "tensorboard" / self.name

    @property
    def plots_dir(self) -> Path:
        """Folder for images."""
        return self.path / "plots"


def is_resumed(path: str | os.PathLike[str], resume: bool | Literal["auto"]) -> bool:
    """Whether an earlier run is continued: what `resume` says, or for "auto" whether there is one to continue."""
    if resume != "auto":
        return resume
    run = RunDir(Path(path).expanduser())
    return run.flags_file.is_file() and not _is_abandoned(run)


def check_free(path: str | os.PathLike[str], *, resume: bool | Literal["auto"]) -> None:
    """Refuse a folder that a run cannot have, before anything is read or computed.

    A folder whose run ended before its first checkpoint is free again.

    :param path: the folder.
    :param resume: continue the run in it; "auto": if there is one that has a checkpoint.
    :raises ValueError: if `path` is a file, holds a run or other files without `resume`, or no run with it; or if
        another process has it, which is named.
    """
    run = RunDir(Path(path).expanduser())
    refuse_if_held(run.path)
    refuse(run, is_resumed(path, resume))


def refuse(run: RunDir, resume: bool) -> None:
    """What :func:`check_free` says of a folder that nobody holds.

    :raises ValueError: as :func:`check_free`.
    """
    # The path itself: no file, no link that leads nowhere, no file among the folders above.
    if run.path.exists() and not run.path.is_dir():
        raise ValueError(f"--run_dir must be a folder, got the file {run.path}; give another --run_dir.")
    if link := next((path for path in (run.path, *run.path.parents) if path.is_symlink() and not path.exists()), None):
        raise ValueError(
            f"--run_dir={run.path} cannot be made, as the link {link} leads nowhere; give another --run_dir."
        )
    parent = next((folder for folder in run.path.parents if folder.exists()), run.path)
    if parent.is_file():
        raise ValueError(f"--run_dir={run.path} cannot be made, as {parent} is a file; give another --run_dir.")
    # What is in the folder: a run to continue, or nothing but what a failed start left.
    if resume:
        if not run.flags_file.is_file():
            raise ValueError(f"--run_dir={run.path} holds no run to resume (no flags.txt); check it or drop --resume.")
    elif run.flags_file.exists():
        if not _is_abandoned(run):
            raise ValueError(
                f"--run_dir={run.path} already holds a run; give a new --run_dir, or --resume to continue it."
            )
    elif any(not path.is_dir() and not _is_of_a_start(run, path) for path in _content(run)):
        raise ValueError(f"--run_dir={run.path} must be a new or empty folder, it holds other files; give a new one.")


def _content(run: RunDir) -> Iterator[Path]:
    """All files and folders of a run, without what failed runs left."""
    for entry in entries(run.path):
        if not is_failed(entry):
            yield entry
            yield from entries(entry, below=True)


def is_failed(entry: Path) -> bool:
    """Whether this is what a failed run left."""
    return entry.is_dir() and re.fullmatch(r"failed-\d+", entry.name) is not None


def _is_of_a_start(run: RunDir, path: Path) -> bool:
    """Whether a start can have left this file that was stopped before it had written the flags."""
    name = re.sub(r"^\.tmp-[0-9a-f]{8}-", "", path.name)  # see `files.atomic_path`
    return path.parent == run.path and name in (LOCK, run.provenance_file.name, run.flags_file.name)


def _is_abandoned(run: RunDir) -> bool:
    """Whether the run in a folder has left neither a checkpoint nor a result."""
    return not any(path.name == "result.json" or path.name.startswith("step-") for path in _content(run))


def flag_name(line: str) -> str:
    """The name in `--name=value`, `--name` or `--noname` (booleans are told apart by their line, not by the name)."""
    name, has_value, _ = line.strip().lstrip("-").partition("=")
    return name if has_value else name.removeprefix("no")


def _flags_by_name(text: str) -> dict[str, str]:
    by_name: dict[str, list[str]] = {}
    for line in filter(str.strip, text.splitlines()):
        by_name.setdefault(flag_name(line), []).append(line.strip())
    return {name: " ".join(lines) for name, lines in by_name.items()}


def check_same_flags(run: RunDir, flags_text: str, free: Collection[str], known: Collection[str] = ()) -> None:
    """Compare flags with those of the run in a folder.

    :param flags_text: one flag a line.
    :param free: those that may differ, besides `FREE_ON_RESUME`.
    :param known: names of all flags of the program; () for any.
    :raises ValueError: if others differ, or the run is one of another program.
    """
    try:
        stored = _flags_by_name(run.flags_file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{run.flags_file} cannot be read ({error}); start again in a new --run_dir.") from error
    new_flags = _flags_by_name(flags_text)
    if known and (strange := sorted(stored.keys() - set(known))):
        raise ValueError(
            f"--resume needs a run of this program, but that in {run.path} has --{strange[0]}; give another --run_dir."
        )
    # Of all flags that either has, those that may not differ and do.
    differing = [
        f"{stored.get(name, '(not set)')} is now {new_flags.get(name, '(not set)')}"
        for name in sorted((stored.keys() | new_flags.keys()) - FREE_ON_RESUME - set(free))
        if stored.get(name) != new_flags.get(name)
    ]
    if differing:
        raise ValueError(
            f"--resume needs the flags of the run in {run.path}, but {'; '.join(differing)}. "
            f"Use the stored flags (--flagfile={run.flags_file}) or a new --run_dir."
        )
