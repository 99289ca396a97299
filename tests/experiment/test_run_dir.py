"""experiment.run_dir: atomic writes, strict JSON, and which folders and flags a run accepts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from experiment import run_dir
from experiment.files import atomic_path, jsonable, write_json, write_text
from experiment.run_dir import RunDir, open_run, provenance

FLAGS = "--batch_size=100\n--dataset=boston\n--nofloat32\n--num_steps=10\n--seed=0\n"
RECORD = {"data_sha256": "abc", "start_time": "now"}


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


# ---------------------------------------------------------------------------------------------- writing


def test_atomic_path_shows_the_old_content_until_the_end(tmp_path: Path) -> None:
    target = tmp_path / "new" / "table.npz"
    with atomic_path(target) as temporary:
        assert temporary.parent == target.parent  # a rename across file systems would not be atomic
        assert temporary.suffix == ".npz"
        np.savez(temporary, x=np.arange(3))
        assert not target.exists()
    with atomic_path(target) as temporary:
        temporary.write_bytes(b"half")
        np.testing.assert_array_equal(np.load(target)["x"], [0, 1, 2])
    assert target.read_bytes() == b"half"
    assert files(tmp_path) == ["new", "new/table.npz"]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("wrote_something", [False, True])
def test_atomic_path_leaves_nothing_behind_on_an_error(
    tmp_path: Path, error: BaseException, wrote_something: bool
) -> None:
    target = tmp_path / "result.json"
    target.write_text("old")
    with pytest.raises(type(error)), atomic_path(target) as temporary:
        if wrote_something:
            temporary.write_text("half of the n")
        raise error
    assert target.read_text() == "old"
    assert files(tmp_path) == ["result.json"]


def test_atomic_path_that_wrote_nothing_is_an_error(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    target.write_text("old")
    with pytest.raises(FileNotFoundError), atomic_path(target):
        pass
    assert target.read_text() == "old"


def test_failed_rename_or_encoding_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.txt", "\ud800")
    with pytest.raises(ValueError, match="JSON must get numbers"):
        write_json(tmp_path / "a.json", {"model": object()})
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        write_text(tmp_path / "a.txt", "text")
    assert files(tmp_path) == []


def test_json_is_strict_and_reads_back(tmp_path: Path) -> None:
    obj = {
        "nan": float("nan"),
        "inf": [np.inf, -np.float32(np.inf), tf.constant(np.nan)],
        "numbers": (1, 2.5, True, None, np.int64(3), np.float32(0.5), np.bool_(True), np.float64(1e300)),
        "arrays": [np.arange(4).reshape(2, 2), np.array([np.nan, 1.0]), tf.Variable([1, 2]), np.zeros([0, 2])],
        "text": ["µ", np.str_("a"), tf.constant("b"), Path("x/y")],
        3: {"nested": np.array(["u", "v"])},
    }
    write_json(tmp_path / "a.json", obj)

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    assert json.loads((tmp_path / "a.json").read_text("utf-8"), parse_constant=refuse) == {
        "nan": None,
        "inf": [None, None, None],
        "numbers": [1, 2.5, True, None, 3, 0.5, True, 1e300],
        "arrays": [[[0, 1], [2, 3]], [None, 1.0], [1, 2], []],
        "text": ["µ", "a", "b", os.path.join("x", "y")],
        "3": {"nested": ["u", "v"]},
    }


@pytest.mark.parametrize("obj", [object(), {1, 2}, 1j, {"a": [slice(3)]}, np.array(1j), np.array([None])])
def test_what_json_cannot_hold(obj: Any) -> None:
    with pytest.raises(ValueError, match="JSON must get numbers, strings, lists and dictionaries, got"):
        jsonable(obj)


# ---------------------------------------------------------------------------------------------- opening


def test_a_new_run(tmp_path: Path) -> None:
    run = open_run(tmp_path / "runs" / "first", flags_text=FLAGS + "--resume\n", provenance=RECORD, resume=False)
    assert run.path == tmp_path / "runs" / "first"
    assert run.flags_file.read_text() == FLAGS
    assert json.loads(run.provenance_file.read_text()) == RECORD
    assert files(run.path) == ["checkpoints", "flags.txt", "plots", "provenance.json", "tensorboard"]


def test_an_empty_folder_will_do_and_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_run("~", flags_text=FLAGS, provenance=RECORD, resume=False).path == tmp_path


def test_all_files_are_inside() -> None:
    run = RunDir(Path("r"))
    paths = [getattr(run, name) for name in dir(RunDir) if name.endswith(("_file", "_dir"))]
    assert len(paths) == len(set(paths)) == 7
    assert all(path.parent == run.path for path in paths)


def test_a_folder_in_use_is_refused_and_untouched(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", flags_text=FLAGS, provenance=RECORD, resume=False)
    with pytest.raises(ValueError, match="already holds a run; give a new --run_dir, or --resume"):
        open_run(run.path, flags_text=FLAGS + "--x=1\n", provenance={}, resume=False)
    assert run.flags_file.read_text() == FLAGS

    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("text")
    with pytest.raises(ValueError, match="must be a new or empty folder, it holds other files"):
        open_run(tmp_path / "thesis", flags_text=FLAGS, provenance=RECORD, resume=False)
    assert files(tmp_path / "thesis") == ["chapter.tex"]
    with pytest.raises(ValueError, match=r"must be a folder, got the file .*chapter\.tex"):
        open_run(tmp_path / "thesis" / "chapter.tex", flags_text=FLAGS, provenance=RECORD, resume=False)


@pytest.mark.parametrize("name", ["absent", "."])
def test_nothing_to_resume(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="holds no run to resume"):
        open_run(tmp_path / name, flags_text=FLAGS, provenance=RECORD, resume=True)
    assert files(tmp_path) == []


def test_a_start_that_failed_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags are written last: without them the folder holds no run, and the same command works again."""

    def no_flags(path: Path, text: str) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(run_dir, "write_text", no_flags)
        with pytest.raises(OSError, match="disk full"):
            open_run(tmp_path / "run", flags_text=FLAGS, provenance=RECORD, resume=False)
    run = open_run(tmp_path / "run", flags_text=FLAGS, provenance=RECORD, resume=False)
    assert run.flags_file.read_text() == FLAGS


def test_resuming_updates_free_flags_and_keeps_a_record(tmp_path: Path) -> None:
    open_run(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    longer = FLAGS.replace("num_steps=10", "num_steps=20") + "--threads=2\n--noprogress\n--resume\n--data_dir=/new\n"
    for _ in range(2):
        run = open_run(tmp_path, flags_text=longer, provenance={**RECORD, "start_time": "later"}, resume=True)
    assert run.flags_file.read_text() == longer.replace("--resume\n", "")
    stored = json.loads(run.provenance_file.read_text())
    assert stored == {**RECORD, "resumed": [{**RECORD, "start_time": "later"}] * 2}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (FLAGS.replace("seed=0", "seed=1"), r"--seed=0 is now --seed=1\."),
        (FLAGS.replace("nofloat32", "float32"), r"--nofloat32 is now --float32\."),
        (FLAGS.replace("--dataset=boston\n", ""), r"--dataset=boston is now \(not set\)\."),
        (FLAGS + "--num_layers=2\n", r"\(not set\) is now --num_layers=2\."),
        (
            FLAGS.replace("100", "50").replace("boston", "energy"),
            r"--batch_size=100 .*=50; --dataset=boston is .*energy",
        ),
    ],
)
def test_resuming_with_other_flags_lists_them(tmp_path: Path, given: str, message: str) -> None:
    run = open_run(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    with pytest.raises(ValueError, match=message) as info:
        open_run(tmp_path, flags_text=given, provenance=RECORD, resume=True)
    assert f"--flagfile={run.flags_file}" in str(info.value)
    assert run.flags_file.read_text() == FLAGS
    assert json.loads(run.provenance_file.read_text()) == RECORD


def test_flags_of_several_lines_and_any_order(tmp_path: Path) -> None:
    open_run(tmp_path, flags_text="--width=1\n--width=2\n--seed=0\n", provenance=RECORD, resume=False)
    open_run(tmp_path, flags_text="--seed=0\n\n--width=1\n--width=2", provenance=RECORD, resume=True)
    with pytest.raises(ValueError, match="--width=1 --width=2 is now --width=1 --width=3"):
        open_run(tmp_path, flags_text="--seed=0\n--width=1\n--width=3\n", provenance=RECORD, resume=True)


def test_resuming_with_other_data_or_a_damaged_record(tmp_path: Path) -> None:
    run = open_run(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=False)
    with pytest.raises(ValueError, match=r"sha256 abc\), got other data \(sha256 def\)"):
        open_run(tmp_path, flags_text=FLAGS, provenance={"data_sha256": "def"}, resume=True)
    for damaged in ("", '{"data_sha256": ', "[1]", "\udcff"):
        run.provenance_file.write_text(damaged, errors="surrogateescape")
        with pytest.raises(ValueError, match=r"provenance\.json cannot be read"):
            open_run(tmp_path, flags_text=FLAGS, provenance=RECORD, resume=True)


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

    module = tmp_path / "experiment" / "run_dir.py"
    module.parent.mkdir()
    module.write_text("1")
    monkeypatch.setattr(run_dir, "__file__", str(module))
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
