"""The folder of one run: its layout, atomic writes, and what is recorded so that a number can be reproduced.

run_dir/flags.txt        the flags; `--flagfile=run_dir/flags.txt --run_dir=NEW` repeats the run
        provenance.json  versions, commit, devices, command line, data checksum; one more entry per resume
        result.json      the numbers the run reports
        columns.json     how the columns of --data were read, for new rows to be read alike; of tables only
        scalars.jsonl    one JSON object a line, and the same scalars for TensorBoard in tensorboard/NAME/
        checkpoints/  tensorboard/  plots/
        .lock            who holds the folder; failed-1/ what an earlier run left that reached no checkpoint
"""

import itertools
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf
from absl import logging

from gpflow_deep_base.files import entries, make_folder, write_json, write_text
from gpflow_deep_base.locks import LOCK, refuse_if_held, remove_leftovers

__all__ = [
    "FREE_ON_RESUME",
    "RunDir",
    "check_free",
    "is_resumed",
    "open_folder",
    "provenance",
    "versions_text",
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

_PACKAGES = ("gpflow-deep", "tensorflow", "tensorflow-probability", "tf_keras", "keras", "gpflow", "numpy")


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
    _refuse(run, is_resumed(path, resume))


def open_folder(
    path: str | os.PathLike[str],
    *,
    name: str = "run",
    flags_text: str,
    provenance: Mapping[str, Any],
    resume: bool,
    free: Collection[str] = (),
) -> RunDir:
    """Create the folder of a run, or check that `path` holds this very run and continue it.

    What a run left that failed before its first checkpoint is moved to `failed-1`, `failed-2`, ...

    :param path: a new or empty folder, or with `resume` the folder of an earlier run.
    :param name: what TensorBoard calls the run.
    :param flags_text: one flag a line, as `gpflow_deep_runs.cli.flags.text` returns it. `--resume` is not stored.
    :param provenance: the dictionary of :func:`provenance`.
    :param resume: continue the run in `path`. Its flags must be the same except those in `FREE_ON_RESUME` and `free`,
        and so must the data's checksum. Stores the new flags and appends `provenance` under the key "resumed".
    :param free: more flags that may differ, such as those that only say what is reported in the end.
    :raises ValueError: as :func:`check_free`, and if flags or data differ.
    """
    run = RunDir(Path(path).expanduser(), name)
    _refuse(run, resume)
    record = dict(provenance)
    if resume:
        _check_same_flags(run, flags_text, free)
        record = _with_resumption(run, record)
    elif run.flags_file.exists():
        _move_aside(run)
    remove_leftovers(run.path)
    for folder in (run.path, run.checkpoint_dir, run.tensorboard_dir, run.plots_dir):
        make_folder(folder)
    write_json(run.provenance_file, record)
    lines = [line for line in flags_text.splitlines() if line.strip() and _flag_name(line) != "resume"]
    write_text(run.flags_file, "\n".join(lines) + "\n")
    return run


def provenance(data_sha256: str, **extra: Any) -> dict[str, Any]:
    """What a run's numbers depend on besides its flags, as a JSON-able dictionary.

    :param data_sha256: checksum of the data set, for example `Rows.sha256`.
    :param extra: further entries, for example `seed=0`.
    :return: start time (UTC), command line, versions, git commit (None outside a checkout of this project; with
        `git_dirty` True if tracked files were modified), platform, devices, the checksum and `extra`.
    """
    commit, dirty = _git_state()
    return {
        "start_time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "git_commit": commit,
        "git_dirty": dirty,
        "devices": _devices(),
        "data_sha256": data_sha256,
        **extra,
    }


def versions_text(record: Mapping[str, Any]) -> str:
    """Python, packages and commit of a record of :func:`provenance`, one a line."""
    packages = [f"{name} {version}" for name, version in record["versions"].items()]
    return "\n".join([f"python {platform.python_version()}", *packages, f"commit {record['git_commit']}"])


def _refuse(run: RunDir, resume: bool) -> None:
    if run.path.exists() and not run.path.is_dir():
        raise ValueError(f"--run_dir must be a folder, got the file {run.path}; give another --run_dir.")
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
        if not _is_failed(entry):
            yield entry
            yield from entries(entry, below=True)


def _is_failed(entry: Path) -> bool:
    return entry.is_dir() and re.fullmatch(r"failed-\d+", entry.name) is not None


def _is_of_a_start(run: RunDir, path: Path) -> bool:
    """Whether a start can have left this file that was stopped before it had written the flags."""
    name = re.sub(r"^\.tmp-[0-9a-f]{8}-", "", path.name)  # see `files.atomic_path`
    return path.parent == run.path and name in (LOCK, run.provenance_file.name, run.flags_file.name)


def _is_abandoned(run: RunDir) -> bool:
    """Whether the run in a folder has left neither a checkpoint nor a result."""
    return not any(path.name == "result.json" or path.name.startswith("step-") for path in _content(run))


def _move_aside(run: RunDir) -> None:
    number = next(n for n in itertools.count(1) if not (run.path / f"failed-{n}").exists())
    aside = run.path / f"failed-{number}"
    aside.mkdir()
    for entry in sorted(entries(run.path), key=run.flags_file.__eq__):  # the flags last, as they mark a run
        if entry.name != LOCK and not _is_failed(entry):
            os.replace(entry, aside / entry.name)
    logging.warning("The run in %s ended before its first checkpoint; its files are now in %s.", run.path, aside)


def _flag_name(line: str) -> str:
    """The name in `--name=value`, `--name` or `--noname` (booleans are told apart by their line, not by the name)."""
    name, has_value, _ = line.strip().lstrip("-").partition("=")
    return name if has_value else name.removeprefix("no")


def _flags_by_name(text: str) -> dict[str, str]:
    by_name: dict[str, list[str]] = {}
    for line in filter(str.strip, text.splitlines()):
        by_name.setdefault(_flag_name(line), []).append(line.strip())
    return {name: " ".join(lines) for name, lines in by_name.items()}


def _check_same_flags(run: RunDir, flags_text: str, free: Collection[str]) -> None:
    try:
        stored = _flags_by_name(run.flags_file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{run.flags_file} cannot be read ({error}); start again in a new --run_dir.") from error
    given = _flags_by_name(flags_text)
    differing = [
        f"{stored.get(name, '(not set)')} is now {given.get(name, '(not set)')}"
        for name in sorted((stored.keys() | given.keys()) - FREE_ON_RESUME - set(free))
        if stored.get(name) != given.get(name)
    ]
    if differing:
        raise ValueError(
            f"--resume needs the flags of the run in {run.path}, but {'; '.join(differing)}. "
            f"Use the stored flags (--flagfile={run.flags_file}) or a new --run_dir."
        )


def _with_resumption(run: RunDir, record: dict[str, Any]) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = dict(json.loads(run.provenance_file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{run.provenance_file} cannot be read ({error}); start again in a new --run_dir.") from error
    if stored.get("data_sha256") != record.get("data_sha256"):
        raise ValueError(
            f"--resume needs the data of the run in {run.path} (sha256 {stored.get('data_sha256')}), "
            f"got other data (sha256 {record.get('data_sha256')}); give the same data or a new --run_dir."
        )
    return {**stored, "resumed": [*stored.get("resumed", []), record]}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> list[str]:
    devices = []
    for device in tf.config.list_physical_devices():
        details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
        devices.append(" ".join(filter(None, [device.name, details.get("device_name")])))
    return devices


def _git_state() -> tuple[str | None, bool | None]:
    """Commit of the repository that tracks this very file, and whether tracked files are modified."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # not some repository that merely contains a venv
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None
