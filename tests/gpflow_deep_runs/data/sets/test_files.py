import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from gpflow_deep_runs.data.sets import files
from gpflow_deep_runs.data.sets.files import File, find, folder_of, read_numbers


def sum_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("where", ["", "set", "set/a.bin"])
def test_a_file_is_found_in_its_folder_in_the_one_above_and_by_its_path(tmp_path: Path, where: str) -> None:
    path = tmp_path / "set" / "a.bin"
    path.parent.mkdir()
    path.write_bytes(b"1")
    assert find([File("set/a.bin")], tmp_path / where, "toy", "") == [path]


def test_the_first_that_is_there_is_taken(tmp_path: Path) -> None:
    file = File("a.bin", ("b.bin", "c.bin"))
    for name in ("c.bin", "b.bin", "a.bin"):
        (tmp_path / name).write_bytes(b"1")
        assert find([file], tmp_path, "toy", "") == [tmp_path / name]


def test_one_of_several_files_stands_for_their_folder(tmp_path: Path) -> None:
    wanted = [File("set/a.bin"), File("set/b.bin")]
    paths = [tmp_path / "a.bin", tmp_path / "b.bin"]
    for path in paths:
        path.write_bytes(b"1")
    assert find(wanted, paths[1], "toy", "") == paths


def test_a_missing_file_says_what_to_get(tmp_path: Path) -> None:
    wanted = [File("set/a.bin", ("set/a.txt",))]
    message = r"data set 'toy' needs set/a.bin or set/a.txt, and {}\. Get it there\. Then give --data_dir=FOLDER"
    with pytest.raises(ValueError, match=message.format("no --data_dir was given")):
        find(wanted, None, "toy", "Get it there.")
    with pytest.raises(ValueError, match=message.format(f"it was not found in {tmp_path}")):
        find(wanted, tmp_path, "toy", "Get it there.")
    assert find([File("set/a.bin", is_optional=True)], tmp_path, "toy", "") == []


def test_checksums_of_a_file_and_of_the_same_packed(tmp_path: Path) -> None:
    file = File("a.bin", ("a.bin.gz", "a.txt"), sum_of(b"content"))
    for name, good, bad in (
        ("a.bin", b"content", b"Content"),
        ("a.bin.gz", gzip.compress(b"content", mtime=0), gzip.compress(b"Content", mtime=0)),
    ):
        (tmp_path / name).write_bytes(good)
        assert find([file], tmp_path / name, "toy", "") == [tmp_path / name]
        (tmp_path / name).write_bytes(bad)
        with pytest.raises(ValueError, match=rf"{name} must have the SHA-256 {file.sha256}, got {sum_of(b'Content')}:"):
            find([file], tmp_path / name, "toy", "")
    (tmp_path / "a.bin.gz").write_bytes(gzip.compress(b"content" * 100)[:-10])
    with pytest.raises(ValueError, match=r"a.bin.gz cannot be read or is not complete .*get it again"):
        find([file], tmp_path / "a.bin.gz", "toy", "")
    (tmp_path / "a.txt").write_bytes(b"another format, whose reader checks it")
    assert find([file], tmp_path / "a.txt", "toy", "") == [tmp_path / "a.txt"]


def test_checks_are_told_to_people() -> None:
    assert File("s/a.bin", ("s/a.bin.gz",), "0" * 64).check == f"SHA-256 {'0' * 64} for a.bin"
    assert File("s/a.bin").check == "what a.bin holds, as no checksum is known"
    both = File("s/a.npz", ("s/a.txt", "s/b.txt"), "0" * 64).check
    assert both == f"SHA-256 {'0' * 64} for a.npz; what a.txt and b.txt holds, as no checksum is known"


def test_folder_of_data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder_of(None) is None
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder_of("~") == tmp_path
    with pytest.raises(ValueError, match=r"--data_dir must be a folder or a file, but there is nothing at .*absent"):
        folder_of(tmp_path / "absent")


@pytest.mark.parametrize("rows", [None, 7])
def test_numbers_are_read_in_pieces_to_the_last_digit(
    rows: int | None, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK_ROWS", 3)
    table = rng.normal(size=(7, 4))
    path = tmp_path / "a.txt"
    np.savetxt(path, table, delimiter=",", fmt="%.17g")
    np.testing.assert_array_equal(read_numbers(path, (rows, 4), ","), table)
    for wrong in (6, 8):
        with pytest.raises(ValueError, match=f"must have {wrong} rows, got 7: it is not complete or another version"):
            read_numbers(path, (wrong, 4), ",")
    with pytest.raises(ValueError, match=r"must hold 5 numbers in each line \(4 columns instead of 5\)"):
        read_numbers(path, (rows, 5), ",")
    path.write_text(path.read_text() + "1,2,x,4\n")
    with pytest.raises(ValueError, match=r"a.txt must hold 4 numbers in each line .*get it again"):
        read_numbers(path, (rows, 4), ",")


def test_truncated_text_is_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "a.csv.gz"
    np.savetxt(path, rng.integers(0, 2, size=(500, 19)), delimiter=",")
    content = path.read_bytes()
    for broken in (content[:-100], content[:200] + b"\xff" * 50 + content[250:]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"a.csv.gz must hold 19 numbers in each line .* get it again"):
            read_numbers(path, (500, 19), ",")
