"""gpflow_deep_base.files: whole or absent, also after a power failure; strict JSON."""

import errno
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_base.files import (
    atomic_path,
    entries,
    files_below,
    jsonable,
    leftovers,
    make_folder,
    parse_json,
    read_jsonl,
    sha256,
    sync_folder,
    write_bytes,
    write_json,
    write_text,
)
from tests.gpflow_deep_runs.recording import record_disk


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_folder_that_vanishes_while_it_is_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process removes a folder between the time that its name is read and the time that it is opened."""
    for name in ("kept", "gone"):
        write_text(tmp_path / name / "deep" / "step-1", name)
    scan = os.scandir

    def scandir(path: Any) -> Any:
        if not isinstance(path, int) and Path(path).name == "gone":
            shutil.rmtree(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert entries(tmp_path, "step-*", below=True) == [tmp_path / "kept" / "deep" / "step-1"]
    assert entries(tmp_path / "kept") == [tmp_path / "kept" / "deep"]
    assert entries(tmp_path / "gone") == []
    assert [facts.st_size for facts in files_below(tmp_path).values()] == [4]


def test_no_program_walks_a_folder_that_may_change_in_another_way() -> None:
    """`Path.iterdir`, `glob` and `rglob` raise FileNotFoundError where an entry vanishes."""
    own = {"gpflow_deep", "report"}  # a folder that nobody else knows, and files of the repository
    root = Path(entries.__code__.co_filename).parents[1]
    packages = ("compression", "darn", "ebp", "gpflow_deep_runs", "gpflow_deep_base", "rbm_tracking", "scripts")
    sources = [path for package in packages for path in (root / package).rglob("*.py") if path.parent.name not in own]
    walks = re.compile(r"\.(?:rglob|iterdir|scandir|listdir)\(")
    assert [path.name for path in sources if walks.search(path.read_text(encoding="utf-8"))] == []


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


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synchronised and renamed, in this order, by names relative to the folder of the test."""

    def name(path: Any) -> str:
        relative = Path(path).relative_to(tmp_path).as_posix()
        return "TEMPORARY" if ".tmp-" in relative else relative

    return record_disk(monkeypatch, name)


def test_a_file_is_on_disk_before_it_has_its_name_and_the_name_when_the_call_returns(
    tmp_path: Path, calls: list[str]
) -> None:
    write_text(tmp_path / "a.txt", "text")
    assert calls == ["sync TEMPORARY", "rename TEMPORARY to a.txt", "sync ."]


def test_each_new_folder_has_its_name_on_disk_when_the_call_returns(tmp_path: Path, calls: list[str]) -> None:
    make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert sorted(calls) == ["sync .", "sync a", "sync a/b"]
    calls.clear()
    make_folder(tmp_path / "a" / "b" / "c")
    assert calls == []  # all of them were there
    write_text(tmp_path / "x" / "y.txt", "text")
    assert calls == ["sync .", "sync TEMPORARY", "rename TEMPORARY to x/y.txt", "sync x"]


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match="exists"):
            make_folder(path)


def test_only_folders_are_synced_as_folders(tmp_path: Path, calls: list[str]) -> None:
    sync_folder(tmp_path)
    sync_folder(str(tmp_path))
    assert calls == ["sync .", "sync ."]
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "absent")


@pytest.mark.parametrize(("number", "is_fatal"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)])
def test_a_file_system_that_cannot_sync_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_fatal: bool
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    if is_fatal:
        with pytest.raises(OSError, match=os.strerror(number)):
            sync_folder(tmp_path)
    else:
        sync_folder(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**20 + 1])
def test_checksum_of_a_file_of_any_size(tmp_path: Path, size: int) -> None:
    content = bytes(i % 251 for i in range(size))
    (tmp_path / "a").write_bytes(content)
    assert sha256(tmp_path / "a") == hashlib.sha256(content).hexdigest()


def test_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 3, "µ": null}\n', encoding="utf-8")
    assert read_jsonl(tmp_path / "a.jsonl") == [{"step": 1, "loss": 2.5}, {"step": 3, "µ": None}]
    (tmp_path / "a.jsonl").write_text('{"a": "\u2028\x85"}\n', encoding="utf-8")
    assert read_jsonl(tmp_path / "a.jsonl") == [{"a": "\u2028\x85"}]  # neither ends a line
    (tmp_path / "a.jsonl").write_text("")
    assert read_jsonl(str(tmp_path / "a.jsonl")) == []
    with pytest.raises(FileNotFoundError):
        read_jsonl(tmp_path / "absent.jsonl")


def test_a_symbolic_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    target = tmp_path / "data" / "model.npz"
    target.write_text("old")
    link = tmp_path / "model.npz"
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    (tmp_path / "later").symlink_to(tmp_path / "data" / "absent")  # leads to a file that is not there yet
    write_text(tmp_path / "later", "first")
    assert (tmp_path / "data" / "absent").read_text() == "first"


def test_permissions_stay_and_a_protected_file_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "model.npz"
    target.write_text("old")
    target.chmod(0o640)
    write_text(target, "new")
    assert target.stat().st_mode & 0o777 == 0o640
    target.chmod(0o444)
    with pytest.raises(PermissionError, match="write-protected"):
        write_text(target, "newer")
    assert target.read_text() == "new"


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_only_files_are_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    if kind == "folder":
        target.mkdir()
    else:
        os.mkfifo(target)
    with pytest.raises(OSError, match="folder" if kind == "folder" else "no regular file"):
        write_text(target, "text")
    assert target.exists()
    assert files(tmp_path) == ["target"]


def test_folders_that_cannot_be_opened_and_files_that_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system such as Windows, and a network share: what is written is there and no error is raised."""
    original = os.open

    def refuse_folders(path: Any, *args: Any, **kwargs: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "folders cannot be opened", str(path))
        return original(path, *args, **kwargs)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "open", refuse_folders)
    monkeypatch.setattr(os, "fsync", fail)
    write_text(tmp_path / "new" / "a.txt", "text")
    assert files(tmp_path) == ["new", "new/a.txt"]


def test_what_reads_back_as_something_else_does_not_take_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "a", "old")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda path: b"rotten")
        with pytest.raises(OSError, match="reads back as something else"):
            write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_text() == "old"
    assert files(tmp_path) == ["a"]


def test_leftovers_are_temporary_files_alone(tmp_path: Path) -> None:
    for name in (".tmp-0123abcd-a.npz", ".tmp-0123abcd-b\nc", ".tmp-xyz-a", "tmp-0123abcd-a", "a"):
        (tmp_path / name).write_text("")
    (tmp_path / ".tmp-0123abcd-folder").mkdir()
    assert [path.name for path in leftovers(tmp_path)] == [".tmp-0123abcd-a.npz", ".tmp-0123abcd-b\nc"]


def test_names_as_long_as_a_system_allows(tmp_path: Path) -> None:
    names = ["n" * 250 + ".json", "\u5b57" * 83 + ".json"]  # 255 and 254 bytes
    for name in names:
        write_text(tmp_path / name, "text")
    assert files(tmp_path) == names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 10**5, "nested too deeply"),
        ('{"a": NaN}', "has NaN"),
        ("[-Infinity]", "has -Infinity"),
        ("[1e999]", "has 1e999"),
        ('{"a": 1, "a": 2}', "two members of one name"),
        ("{", "damaged"),
        (b"\xff\xfe\xff", "JSON"),
    ],
)
def test_json_of_strangers(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)
    assert parse_json('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
