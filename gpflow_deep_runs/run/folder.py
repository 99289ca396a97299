"""The folder of one run: atomic writes, and what is recorded so that a number can be reproduced.

`gpflow_deep_runs.run_dir` says which files it has, and which folder a run may have.
"""

import itertools
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Collection, Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from gpflow_deep_base.files import entries, make_folder, parse_json, write_json, write_text
from gpflow_deep_base.storage.locks import LOCK, remove_leftovers
from gpflow_deep_runs.run_dir import (
    RunDir,
    check_same_flags,
    flag_name,
    is_failed,
    refuse,
)

__all__ = ["open_folder", "provenance", "versions_text"]

_PACKAGES = ("gpflow-deep", "tensorflow", "tensorflow-probability", "tf_keras", "keras", "gpflow", "numpy")


def open_folder(
    path: str | os.PathLike[str],
    *,
    name: str = "run",
    flags_text: str,
    provenance: Mapping[str, object],
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
    # Continue the run, take the place of one that came to nothing, or begin.
    run = RunDir(Path(path).expanduser(), name)
    refuse(run, resume)
    record = dict(provenance)
    if resume:
        check_same_flags(run, flags_text, free)
        record = _with_resumption(run, record)
    elif run.flags_file.exists():
        _move_aside(run)
    remove_leftovers(run.path)
    for folder in (run.path, run.checkpoint_dir, run.tensorboard_dir, run.plots_dir):
        make_folder(folder)
    write_json(run.provenance_file, record)
    # The flags come last: their file says that the folder holds a run.
    lines = [line for line in flags_text.splitlines() if line.strip() and flag_name(line) != "resume"]
    write_text(run.flags_file, "\n".join(lines) + "\n")
    return run


def provenance(data_sha256: str, **extra: object) -> dict[str, Any]:
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


def _move_aside(run: RunDir) -> None:
    # A folder with the first number that no earlier failed run has.
    number = next(n for n in itertools.count(1) if not (run.path / f"failed-{n}").exists())
    aside = run.path / f"failed-{number}"
    aside.mkdir()
    # Everything goes there but the lock, which this process holds, and earlier failed runs.
    for entry in sorted(entries(run.path), key=run.flags_file.__eq__):  # the flags last, as they mark a run
        if entry.name != LOCK and not is_failed(entry):
            os.replace(entry, aside / entry.name)
    logging.warning("The run in %s ended before its first checkpoint; its files are now in %s.", run.path, aside)


def _with_resumption(run: RunDir, record: dict[str, Any]) -> dict[str, Any]:
    # The record as it is; a resumed run has the data of the first.
    try:
        stored: dict[str, Any] = dict(parse_json(run.provenance_file.read_bytes()))
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

    # An installed package may lie in a repository of something else, which does not track this file.
    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None
