"""A power failure at any moment of a run: --resume gives the same log and the same parameters, and no work is lost.

One run is watched, with all that is on disk at each moment; then the run is continued from each of these.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpflow_deep_base import files
from gpflow_deep_runs.run import checkpoints, folder
from gpflow_deep_runs.run.writer import Writer
from tests.gpflow_deep_runs.run.disk import Disk, State
from tests.gpflow_deep_runs.run.toy import Toy, train

NUM_STEPS = 5


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions and commits are not asked for anew in each of the runs."""
    record: dict[str, Any] = {"data_sha256": "abc", "versions": {}, "git_commit": None}
    monkeypatch.setattr(folder, "provenance", lambda sha256, **extra: {**record, **extra})


class Outcome(NamedTuple):
    """What a run leaves: its log, its parameters, and the best model."""

    log: bytes
    bits: list[bytes]
    best: bytes


def outcome(path: Path, toy: Toy) -> Outcome:
    best = path / "best.npz"
    return Outcome((path / "scalars.jsonl").read_bytes(), toy.bits(), best.read_bytes() if best.exists() else b"")


@contextmanager
def watched(path: Path) -> Iterator[Disk]:
    """Of everything in the folder `path`, which is on disk itself."""
    path.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(path, patch)
        yield disk
    disk.close()


def first_run(path: Path, child: str | None = None) -> tuple[Outcome, list[tuple[State, Any]]]:
    """A run, and what is on disk at each moment with the newest step that `Run.fit` has called saved."""
    toy = Toy()
    with watched(path) as disk:
        disk.note = 0

        def saved() -> None:
            disk.note = max(disk.note, toy.calls[-1][0] + toy.calls[-1][1])

        train(path / "run", toy=toy, child=child, num_steps=NUM_STEPS, options={"saved": saved})
        disk.record()
    distinct: list[tuple[State, Any]] = []
    for found in disk.states:
        if not any(found == other for other in distinct[-4:]):
            distinct.append(found)
    return outcome(path / "run" / (child or ""), toy), distinct


def failures(path: Path, expected: Outcome, states: list[tuple[State, Any]], child: str | None = None) -> list[str]:
    """Continue the run after a power failure at each moment; what is not as if there had been none."""
    found = []
    for number, (state, newest) in enumerate(states):
        state.write(path / str(number))
        run_dir, toy = path / str(number) / "run", Toy()
        try:
            train(run_dir, toy=toy, child=child, num_steps=NUM_STEPS, resume=(run_dir / "flags.txt").exists())
        except (ValueError, OSError) as error:
            found.append(f"state {number}: {error}")
            continue
        first = toy.calls[0][0] if toy.calls else NUM_STEPS
        if first < newest:
            found.append(f"state {number}: step {newest} was saved, but the run began again at {first}")
        outcome_now = outcome(run_dir / (child or ""), toy)
        if outcome_now[:2] != expected[:2]:
            found.append(f"state {number}: the log or the parameters differ")
        if outcome_now.best != expected.best:
            found.append(f"state {number}: the best model differs")
    return found


@contextmanager
def no_disk() -> Iterator[None]:
    """The runs that are continued need not be safe themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.mark.parametrize("child", [None, "gp"], ids=["run", "child"])
def test_a_power_failure_at_any_moment_loses_nothing(tmp_path: Path, child: str | None) -> None:
    expected, states = first_run(tmp_path / "first", child)
    assert [newest for _, newest in states] == sorted(newest for _, newest in states)
    assert {newest for _, newest in states} == {0, 2, 4, 5}
    assert len(states) > 50
    with no_disk():  # a child differs in its folders alone: some moments will do
        assert failures(tmp_path, expected, states if child is None else states[3::5], child) == []


def unsynced_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writer, "sync", lambda writer: None)


def unsynced_folders(patch: pytest.MonkeyPatch) -> None:
    for module in (files, checkpoints):
        patch.setattr(module, "sync_folder", lambda path: None)


def unsynced_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoints, "_synced_sha256", files.sha256)


def unsynced_best(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("gpflow_deep_runs.run.start.sync_file", lambda path: None)


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        (unsynced_log, "the log or the parameters differ"),
        (unsynced_folders, "was saved, but the run began again"),
        (unsynced_state, "no usable checkpoint|was saved, but the run began again"),
        (unsynced_best, "the best model differs"),
    ],
)
def test_the_test_sees_what_is_not_synchronised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutation: Callable[[pytest.MonkeyPatch], None], message: str
) -> None:
    """Each kind of fsync is needed: without it some moment loses something. The last moments are enough to see it."""
    with monkeypatch.context() as patch:
        mutation(patch)
        expected, states = first_run(tmp_path / "first")
    with no_disk():
        found = failures(tmp_path, expected, states[-8:])
    assert any(re.search(message, line) for line in found), found
