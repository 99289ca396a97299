"""gpflow_deep_runs.run.folder: which folders and flags a run accepts, who holds a folder, and what is recorded."""

import dataclasses
import errno
import fcntl
import json
import os
import platform
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_base.files import jsonable
from gpflow_deep_base.storage.locks import LostFolder, lock
from gpflow_deep_runs.run import checkpoints, folder
from gpflow_deep_runs.run.folder import open_folder, provenance
from gpflow_deep_runs.run.start import Settings
from gpflow_deep_runs.run_dir import FREE_ON_RESUME, RunDir, check_free, is_resumed

FLAGS = "--batch_size=100\n--dataset=boston\n--nofloat32\n--num_steps=10\n--seed=0\n"
RECORD = {"data_sha256": "abc", "start_time": "now"}


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


# ---------------------------------------------------------------------------------------------- opening


def test_a_new_run(tmp_path: Path) -> None:
    run = open_folder(tmp_path / "runs" / "first", flags_text=FLAGS + "--resume\n", provenance=RECORD, resume=False)
    assert run.path == tmp_path / "runs" / "first"
    assert run.flags_file.read_text() == FLAGS
    assert json.loads(run.provenance_file.read_text()) == RECORD
    assert files(run.path) == ["checkpoints", "flags.txt", "plots", "provenance.json", "tensorboard", "tensorboard/run"]


def test_an_empty_folder_will_do_and_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_folder("~", flags_text=FLAGS, provenance=RECORD, resume=False).path == tmp_path


def test_all_files_are_inside() -> None:
    run = RunDir(Path("r"))
    paths = [getattr(run, name) for name in dir(RunDir) if name.endswith(("_file", "_dir"))]
    assert len(paths) == len(set(paths)) == 8
    assert all(path.is_relative_to(run.path) for path in paths)


def test_a_folder_in_use_is_refused_and_untouched(tmp_path: Path) -> None:
    run = open_folder(tmp_path / "run", flags_text=FLAGS, provenance=RECORD, resume=False)
    (run.checkpoint_dir / "step-0000000002").mkdir()
    with pytest.raises(ValueError, match="already holds a run; give a new --run_dir, or --resume"):
        open_folder(run.path, flags_text=FLAGS + "--x=1\n", provenance={}, resume=False)
    assert run.flags_file.read_text() == FLAGS


@pytest.mark.parametrize("name", ["absent", "."])
def test_nothing_to_resume(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="holds no run to resume"):
        open_folder(tmp_path / name, flags_text=FLAGS, provenance=RECORD, resume=True)
    assert files(tmp_path) == []


def test_auto_starts_or_continues(tmp_path: Path) -> None:
    """What has a checkpoint is continued; all else is what it would be without --resume."""
    folder = tmp_path / "run"
    assert not is_resumed(folder, "auto")
    open_folder(folder, flags_text=FLAGS, provenance=RECORD, resume=False)
    assert not is_resumed(folder, "auto")  # it would begin again, also with other flags
    (folder / "checkpoints" / "step-0000000001").mkdir()
    assert is_resumed(folder, "auto")
    check_free(folder, resume="auto")
    assert [is_resumed(folder, resume) for resume in (True, False)] == [True, False]

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="it holds other files"):
        check_free(tmp_path / "other", resume="auto")


@pytest.mark.parametrize("name", ["a[1]", "b]", "c*", "d?", "e\nf", "g\x1b[2J", "h\u2028i", "j*/k"])
def test_a_name_that_is_a_pattern_or_no_line_is_refused(tmp_path: Path, name: str) -> None:
    """By name, when it is first looked at, and nothing is made."""
    message = re.escape(f"--run_dir must have none of [ ] * ? and no control characters, got {str(tmp_path / name)!r}.")
    with pytest.raises(ValueError, match=message):
        check_free(tmp_path / name, resume=False)
    with pytest.raises(ValueError, match=message), lock(tmp_path / name):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a b", "%s{y}", "a,b=c", "#x", "it's", 'say "x"', "\u00fc\u4e2d", "~x", "$HOME"])
def test_odd_names_will_do(tmp_path: Path, name: str) -> None:
    check_free(tmp_path / name, resume=False)
    run = open_folder(tmp_path / name, flags_text=FLAGS, provenance=RECORD, resume=False)
    path = checkpoints.save(run.checkpoint_dir, 1, step=tf.Variable(1))
    assert path.parent.parent == tmp_path / name
    assert checkpoints.restore(run.checkpoint_dir, step=tf.Variable(0)) == 1


def test_flags_that_are_damaged_are_named(tmp_path: Path) -> None:
    run = open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    run.flags_file.write_bytes(b"--seed=\xff\n")
    with pytest.raises(ValueError, match=r"flags\.txt cannot be read"):
        open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=True)


def test_a_start_that_failed_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags are written last: without them the folder holds no run, and the same command works again."""

    def no_flags(path: Path, text: str) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_text", no_flags)
        with pytest.raises(OSError, match="disk full"):
            open_folder(tmp_path / "run", flags_text=FLAGS, provenance=RECORD, resume=False)
    run = open_folder(tmp_path / "run", flags_text=FLAGS, provenance=RECORD, resume=False)
    assert run.flags_file.read_text() == FLAGS


def test_resuming_updates_free_flags_and_keeps_a_record(tmp_path: Path) -> None:
    open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    longer = FLAGS.replace("num_steps=10", "num_steps=20") + "--threads=2\n--noprogress\n--resume\n--data_dir=/new\n"
    for _ in range(2):
        run = open_folder(tmp_path, flags_text=longer, provenance={**RECORD, "start_time": "later"}, resume=True)
    assert run.flags_file.read_text() == longer.replace("--resume\n", "")
    stored = json.loads(run.provenance_file.read_text())
    assert stored == {**RECORD, "resumed": [{**RECORD, "start_time": "later"}] * 2}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (FLAGS.replace("seed=0", "seed=1"), r"--seed=0 is now --seed=1\."),
        (FLAGS.replace("nofloat32", "float32"), r"--nofloat32 is now --float32\."),
        (FLAGS.replace("--dataset=boston\n", ""), r"--dataset=boston is now \(not set\)\."),
        (FLAGS + "--learning_rate=0.1\n", r"\(not set\) is now --learning_rate=0\.1\."),
        (FLAGS + "--num_layers=2\n", r"\(not set\) is now --num_layers=2\."),
        (
            FLAGS.replace("100", "50").replace("boston", "energy"),
            r"--batch_size=100 .*=50; --dataset=boston is .*energy",
        ),
    ],
)
def test_resuming_with_other_flags_lists_them(tmp_path: Path, given: str, message: str) -> None:
    run = open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    with pytest.raises(ValueError, match=message) as info:
        open_folder(tmp_path, flags_text=given, provenance=RECORD, resume=True)
    assert f"--flagfile={run.flags_file}" in str(info.value)
    assert run.flags_file.read_text() == FLAGS
    assert json.loads(run.provenance_file.read_text()) == RECORD


def test_only_when_and_where_a_run_works_is_free() -> None:
    """What a step computes is not: seed, batch size, and every flag of a paper."""
    settings = {field.name for field in dataclasses.fields(Settings)} - {"seed", "batch_size"}
    assert settings | {"data", "data_dir", "flagfile", "threads"} >= FREE_ON_RESUME


def test_flags_of_several_lines_and_any_order(tmp_path: Path) -> None:
    open_folder(tmp_path, flags_text="--width=1\n--width=2\n--seed=0\n", provenance=RECORD, resume=False)
    open_folder(tmp_path, flags_text="--seed=0\n\n--width=1\n--width=2", provenance=RECORD, resume=True)
    with pytest.raises(ValueError, match="--width=1 --width=2 is now --width=1 --width=3"):
        open_folder(tmp_path, flags_text="--seed=0\n--width=1\n--width=3\n", provenance=RECORD, resume=True)


def test_resuming_with_other_data_or_a_damaged_record(tmp_path: Path) -> None:
    run = open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    with pytest.raises(ValueError, match=r"sha256 abc\), got other data \(sha256 def\)"):
        open_folder(tmp_path, flags_text=FLAGS, provenance={"data_sha256": "def"}, resume=True)
    for damaged in ("", '{"data_sha256": ', "[1]", "\udcff", "[" * 10**5):
        run.provenance_file.write_text(damaged, errors="surrogateescape")
        with pytest.raises(ValueError, match=r"provenance\.json cannot be read"):
            open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=True)


@pytest.mark.parametrize("name", ["flags.txt", "provenance.json"])
def test_a_start_that_was_killed_can_be_repeated(tmp_path: Path, name: str) -> None:
    """In the middle of `atomic_path`, which could not remove its file; any other file still means another folder."""
    open_folder(tmp_path / "run", flags_text=FLAGS, provenance=RECORD, resume=False)
    (tmp_path / "run" / "flags.txt").rename(tmp_path / "run" / f".tmp-0123abcd-{name}")
    (tmp_path / "run" / ".lock").write_text("process 1 on host\n")
    run = open_folder(tmp_path / "run", flags_text=FLAGS, provenance=RECORD, resume=False)
    assert run.flags_file.read_text() == FLAGS


@pytest.mark.parametrize("name", [".tmp-0123abcd-thesis.tex", ".tmp-flags.txt", "plots/provenance.json"])
def test_other_hidden_files_are_not_those_of_a_start(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match="it holds other files"):
        check_free(tmp_path, resume=False)


def test_a_large_folder_is_refused_by_its_first_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a home folder: to look at all files in it would take minutes."""
    (tmp_path / "file").write_text("")
    (tmp_path / "large").mkdir()
    rglob = Path.rglob

    def no_walk(path: Path, pattern: str) -> Any:
        assert path.name != "large", "looked into a large folder"
        return rglob(path, pattern)

    monkeypatch.setattr(Path, "rglob", no_walk)
    monkeypatch.setattr(Path, "iterdir", lambda path: iter([path / "file", path / "large"]))
    with pytest.raises(ValueError, match="it holds other files"):
        check_free(tmp_path, resume=False)


# ---------------------------------------------------------------------------------------------- used again


@pytest.mark.parametrize("number", [1, 3])
def test_what_a_run_left_that_reached_no_checkpoint_steps_aside(tmp_path: Path, number: int) -> None:
    """All of it is kept, but the lock, which stays where it is."""
    for earlier in range(1, number):
        (tmp_path / f"failed-{earlier}").mkdir()
        (tmp_path / f"failed-{earlier}" / "result.json").write_text("{}")
    open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    left = {
        "scalars.jsonl": '{"step": 1}\n',
        "best.npz": "model",
        "tensorboard/run/events": "e",
        "gp/scalars.jsonl": "g",
    }
    for name, content in left.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / ".lock").write_text("process 1 on host\n")

    check_free(tmp_path, resume=False)  # looks, and changes nothing
    assert (tmp_path / "scalars.jsonl").exists()
    other = FLAGS.replace("seed=0", "seed=1")
    run = open_folder(tmp_path, flags_text=other, provenance={**RECORD, "start_time": "later"}, resume=False)
    assert run.flags_file.read_text() == other
    assert json.loads(run.provenance_file.read_text())["start_time"] == "later"
    assert not run.scalars_file.exists()
    assert not any(run.tensorboard_dir.iterdir())
    aside = tmp_path / f"failed-{number}"
    assert {name: (aside / name).read_text() for name in left} == left
    assert (aside / "flags.txt").read_text() == FLAGS
    assert not (aside / ".lock").exists()
    assert (tmp_path / ".lock").exists()


@pytest.mark.parametrize("name", ["result.json", "checkpoints/step-0000000001", "gp/checkpoints/step-0000000001"])
def test_a_checkpoint_or_a_result_keeps_the_folder(tmp_path: Path, name: str) -> None:
    """Those of a run within the run, too."""
    run = open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    (tmp_path / name).mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="already holds a run"):
            check_free(tmp_path, resume=False)
        with pytest.raises(ValueError, match="already holds a run"):
            open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    check_free(tmp_path, resume=True)
    assert run.flags_file.read_text() == FLAGS
    assert not list(tmp_path.glob("failed-*"))


def test_moving_aside_that_was_stopped_goes_on_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags go last: as long as anything is left, the folder is one of a run."""
    run = open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    run.scalars_file.write_text("")
    replace, moved = os.replace, 0

    def stopped(source: Any, target: Any) -> None:
        nonlocal moved
        moved += 1
        if moved == 3:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    assert run.flags_file.exists()
    open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    found = [name.split("/", 1)[1] for name in files(tmp_path) if name.startswith("failed-") and "/" in name]
    assert {"flags.txt", "provenance.json", "scalars.jsonl"} <= set(found)


# ---------------------------------------------------------------------------------------------- lock


def test_the_lock_says_who_holds_it(tmp_path: Path) -> None:
    """A second opening is refused as that of another process would be; see also test_start.py."""
    with lock(tmp_path / "new"):
        me = f"process {os.getpid()} on {platform.node()}"
        assert (tmp_path / "new" / ".lock").read_text() == f"{me}\n"
        for refused in (lambda: lock(tmp_path / "new").__enter__(), lambda: check_free(tmp_path / "new", resume=False)):
            with pytest.raises(ValueError, match="is in use by") as info:
                refused()
            assert str(info.value) == (
                f"--run_dir={tmp_path / 'new'} is in use by {me}; wait for its end, or give another --run_dir."
            )
    check_free(tmp_path / "new", resume=False)
    with lock(tmp_path / "new"):
        pass


def test_the_folder_is_held_and_not_the_note_in_it(tmp_path: Path) -> None:
    """By a symbolic link, after the note was removed, and under a new name of the folder: one process has it."""
    run = tmp_path / "run"
    (tmp_path / "link").symlink_to("run")
    with lock(run):
        for path in (run, tmp_path / "link"):
            with pytest.raises(ValueError, match=f"in use by process {os.getpid()} "):
                check_free(path, resume=False)
        (run / ".lock").unlink()
        for path in (run, tmp_path / "link"):
            for enter in (lambda path: lock(path).__enter__(), lambda path: check_free(path, resume=False)):
                with pytest.raises(ValueError, match="in use by another process;"):
                    enter(path)
        run.rename(tmp_path / "renamed")
        with pytest.raises(ValueError, match="in use"), lock(tmp_path / "renamed"):
            pass
        assert not (tmp_path / "renamed" / ".lock").exists()
    check_free(tmp_path / "renamed", resume=False)


@pytest.mark.parametrize("change", ["renamed", "removed", "replaced", "below a file"])
def test_a_folder_that_is_lost_is_noticed(tmp_path: Path, change: str) -> None:
    home = tmp_path / "home"
    with lock(home / "run") as held:
        held.check()
        (home / "run" / ".lock").unlink()
        held.check()  # the note is only a note
        home.rename(tmp_path / "away")
        if change == "removed":
            (tmp_path / "away" / "run").rmdir()
        elif change == "replaced":
            (home / "run").mkdir(parents=True)
        elif change == "below a file":
            home.write_text("")
        with pytest.raises(LostFolder, match=r"--run_dir=.*run was renamed, removed or replaced by others; nothing"):
            held.check()
    assert (home / "run").exists() == (change == "replaced")


def test_where_folders_cannot_be_locked_the_note_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS, which locks only what is open for writing."""
    flock = fcntl.flock

    def flock_of_nfs(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_of_nfs)
    check_free(tmp_path, resume=False)
    assert files(tmp_path) == []
    with lock(tmp_path):
        for enter in (lambda: lock(tmp_path).__enter__(), lambda: check_free(tmp_path, resume=False)):
            with pytest.raises(ValueError, match=f"in use by process {os.getpid()} "):
                enter()
    check_free(tmp_path, resume=False)
    with lock(tmp_path):
        pass


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    """By the next start; what the user has put there, and what failed runs left, stays."""
    run = open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    gone = [".tmp-0123abcd-rbm.npz", "child/.tmp-0123abcd-best.npz", "checkpoints/.tmp-0123abcd/state.index"]
    gone += ["checkpoints/.tmp-step-0000000002/state.index", "checkpoints/.tmp-0123abcd-replaced/state.index"]
    kept = ["rbm.npz", ".tmp-notes.txt", "checkpoints/step-0000000001/state.index", "plots/tmp-0123abcd-a.png"]
    for name in [*gone, *kept]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    check_free(tmp_path, resume=True)
    assert all((tmp_path / name).exists() for name in gone)  # by who only looks, nothing is
    open_folder(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=True)
    assert [name for name in gone if (tmp_path / name).exists()] == []
    assert [name for name in kept if not (tmp_path / name).exists()] == []
    assert not any(path.name.startswith(".tmp-") for path in run.checkpoint_dir.iterdir())


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_is_not_ours_gets_no_file(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "chapter.tex").write_text("text")
    with pytest.raises(ValueError, match="holds no run to resume" if resume else "it holds other files"):
        check_free(tmp_path, resume=resume)
    assert files(tmp_path) == ["chapter.tex"]
    with pytest.raises(ValueError, match=r"must be a folder, got the file .*chapter\.tex"):
        check_free(tmp_path / "chapter.tex", resume=resume)
    (tmp_path / "link").symlink_to("link")
    for path in (tmp_path / "link", tmp_path / "link" / "below"):
        with pytest.raises(ValueError, match="cannot be made, as the link"):
            check_free(path, resume=resume)


# ---------------------------------------------------------------------------------------------- provenance


def test_provenance_is_complete_and_json(tmp_path: Path) -> None:
    record = provenance("abc", seed=3)
    assert jsonable(record) == record
    assert record["data_sha256"] == "abc"
    assert record["seed"] == 3
    assert record["versions"]["tensorflow"] == tf.__version__
    assert record["versions"]["numpy"] == np.__version__
    assert record["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}.")
    assert any("CPU" in device for device in record["devices"])
    assert record["start_time"].endswith("+00:00")


def test_git_commit_is_ours_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit counts only if that repository tracks this project; another one may just contain the environment."""

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    module = tmp_path / "gpflow_deep_runs" / "run" / "folder.py"
    module.parent.mkdir(parents=True)
    module.write_text("1")
    monkeypatch.setattr(folder, "__file__", str(module))
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)

    def state() -> tuple[Any, Any]:
        record = provenance("abc")
        return record["git_commit"], record["git_dirty"]

    git("init")
    assert state() == (None, None)  # a repository without a commit that does not track the file
    git("add", ".")
    git("commit", "-m", "first")
    assert state() == (git("rev-parse", "HEAD"), False)
    module.write_text("2")
    assert state() == (git("rev-parse", "HEAD"), True)
    monkeypatch.setenv("PATH", str(tmp_path))  # git is not installed
    assert state() == (None, None)
