"""Checkpoints that are whole or absent: `tf.train.Checkpoint` files, checked on restore by checksum, name and shape.

    directory/step-0000001000/state.index, state.data-00000-of-00001, manifest.json

Pass every stateful object by name, the same names to `save` and `restore`:

    optimizer = tf.keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)  # creates Adam's moments; without it there is nothing to restore into
    step = tf.Variable(0, dtype=tf.int64)
    restored = checkpoints.restore(run.checkpoint_dir, model=model, optimizer=optimizer, step=step)
    ...
    checkpoints.save(run.checkpoint_dir, step, model=model, optimizer=optimizer, step=step)
"""

import hashlib
import json
import os
import re
import shutil
import uuid
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from gpflow_deep_base.files import entries, make_folder, sha256, sync_folder, write_json

__all__ = ["restore", "save"]

_PREFIX = "state"
_MANIFEST = "manifest.json"


def save(directory: str | os.PathLike[str], step: int | tf.Variable, /, *, keep: int = 2, **objects: Any) -> Path:
    """Save `objects` as the checkpoint of `step`, then delete all but the `keep` newest up to this step.

    :param directory: folder of the run's checkpoints; created if missing.
    :param step: number of finished steps; names the checkpoint. A checkpoint of the same step is replaced.
    :param keep: how many checkpoints to leave; with 2 or more, one damaged file does not lose the run.
    :param objects: modules, optimizers, variables by name, everything that changes during training.
    :return: folder of the new checkpoint.
    :raises ValueError: if `objects` is empty or holds something TensorFlow cannot save, or if `step` or `keep` is
        out of range.
    :raises OSError: if writing fails (disk full, no permission). Earlier checkpoints are untouched.
    """
    # Nothing is touched before all arguments are known to be good.
    step = int(step)
    if step < 0 or keep < 1 or not objects:
        raise ValueError(f"save needs step >= 0, keep >= 1 and objects, got {step=}, {keep=}, objects {list(objects)}.")
    variables = _variables(objects)
    # Written under a name that is no checkpoint's until all of it is on the disk.
    directory = Path(directory)
    final = directory / f"step-{step:010d}"
    temporary = directory / f".tmp-{uuid.uuid4().hex[:8]}"
    try:
        make_folder(directory)
        temporary.mkdir()
        tf.train.Checkpoint(**objects).write(str(temporary / _PREFIX))
        _read_all(temporary / _PREFIX)  # a write that failed without an error shows here, before anything is replaced
        # Checksums of the files, and names and shapes of the variables, for `restore` to compare.
        files = {file.name: _synced_sha256(file) for file in entries(temporary)}
        content = {"step": step, "files": files, "variables": variables}
        write_json(temporary / _MANIFEST, {**content, "sha256": _json_sha256(content)})
        # From here on it is a checkpoint.
        _move(temporary, final)
        sync_folder(directory)
    except (OSError, tf.errors.OpError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise OSError(
            f"checkpoint of step {step} could not be written to {directory}: {error}. Earlier checkpoints there are "
            f"intact; free some space or check the permissions, then continue with --resume."
        ) from error

    # What an earlier process left unfinished, and the checkpoints that are no longer needed.
    for path in entries(directory, ".tmp-*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in [path for number, path in _steps(directory) if number <= step][:-keep]:
        removed = path.with_name(f".tmp-{path.name}")  # so that one that is half removed is no checkpoint
        os.replace(path, removed)
        shutil.rmtree(removed, ignore_errors=True)
    return final


def restore(directory: str | os.PathLike[str], /, **objects: object) -> int | None:
    """Restore `objects` from the newest whole checkpoint.

    A damaged checkpoint is skipped with a logged warning. Names and shapes are compared before anything is assigned,
    so after an error `objects` are as they were.

    :param directory: folder of the run's checkpoints.
    :param objects: what :func:`save` was given, under the same names. An optimizer has to be built (see the module's
        docstring).
    :return: step of the checkpoint, or None if there is none (a new run).
    :raises ValueError: if the checkpoint is from another model, naming the first variable that differs with both
        shapes; or if every checkpoint is damaged, naming the newest damaged file.
    """
    damage = ""
    # From the newest on, until one is whole.
    for step, path in reversed(_steps(Path(directory))):
        try:
            manifest = _read_manifest(path)
        except ValueError as error:
            logging.warning("Checkpoint of step %d is damaged and skipped: %s", step, error)
            damage = damage or str(error)
            continue
        # Everything is compared before anything is assigned.
        _check_variables(path, stored=manifest["variables"], expected=_variables(objects))
        tf.train.Checkpoint(**objects).read(str(path / _PREFIX)).assert_consumed()
        if damage:
            logging.warning("Restored the earlier checkpoint of step %d instead.", step)
        return step
    if damage:
        raise ValueError(f"no usable checkpoint in {directory}: {damage}. Restore the file or start a new --run_dir.")
    return None


def _steps(directory: Path) -> list[tuple[int, Path]]:
    """Checkpoints in `directory`, oldest first."""
    matches = [(re.fullmatch(r"step-(\d+)", path.name), path) for path in entries(directory, "step-*")]
    return sorted((int(match[1]), path) for match, path in matches if match)


def _variables(objects: Mapping[str, object]) -> dict[str, str]:
    """Path -> "dtype [shape]" of each variable, breadth first within each object, in the order of `objects`."""
    descriptions = {}
    for name, root in objects.items():
        # Breadth first: the shortest path to a variable is the one that names it.
        queue = deque([(name, root)])
        visited = {id(root)}
        while queue:
            path, node = queue.popleft()
            if isinstance(node, tf.Variable | tf.keras.Variable):
                # Its type and shape are what `restore` compares.
                descriptions[path] = f"{tf.as_dtype(node.dtype).name} {list(node.shape)}"
            try:
                children = tf.train.TrackableView.children(node)
            except AttributeError as error:
                raise ValueError(
                    f"{path} must be a tf.Module, tf.Variable, optimizer or another trackable object, "
                    f"got {type(node).__name__}; wrap numbers in tf.Variable."
                ) from error
            # An object that is shared is named once, where it is met first.
            for child_name, child in children.items():
                if id(child) not in visited:
                    visited.add(id(child))
                    queue.append((f"{path}/{child_name}", child))
    return descriptions


def _check_variables(path: Path, *, stored: dict[str, str], expected: dict[str, str]) -> None:
    for name in [*expected, *stored]:
        if stored.get(name) != expected.get(name):
            raise ValueError(
                f"{path} is a checkpoint from another model: {name} is {expected.get(name, 'absent')} here but "
                f"{stored.get(name, 'absent')} in the checkpoint. Build the model with the flags of the run, and the "
                f"optimizer with optimizer.build(variables), before restoring."
            )


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        # The checksum of the manifest covers those of the files that it lists.
        manifest: dict[str, Any] = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        if manifest.pop("sha256") != _json_sha256(manifest):
            raise ValueError(f"{path / _MANIFEST} is corrupt (its checksum does not match)")
        for name, checksum in manifest["files"].items():
            if sha256(path / name) != checksum:
                raise ValueError(f"{path / name} is truncated or corrupt (its checksum does not match)")
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is incomplete: {_MANIFEST} or a file it lists cannot be read ({error})") from error
    return manifest


def _move(temporary: Path, final: Path) -> None:
    """Rename the folder `temporary` to `final`. A folder cannot replace another, so an old `final` steps aside."""
    aside = final.with_name(f"{temporary.name}-replaced")
    if final.exists():
        os.replace(final, aside)
    try:
        os.replace(temporary, final)
    except OSError:
        # The new folder could not take the place: the old one gets it back.
        if aside.exists():
            os.replace(aside, final)
        raise


def _read_all(prefix: Path) -> None:
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (IndexError, RuntimeError, ValueError, tf.errors.OpError) as error:  # a short file is an IndexError
        raise OSError(f"what was written cannot be read back ({error})") from error


def _json_sha256(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _synced_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return sha256(path)
