"""Files are whole or absent."""

from pathlib import Path

import pytest

from compression.files import atomic_path, is_new_folder


def test_a_file_appears_in_one_piece(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "file") as temporary:
        temporary.write_text("new")
        assert not (tmp_path / "file").exists()
    assert (tmp_path / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_after_an_error_the_old_file_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(OSError, match="full"), atomic_path(tmp_path / "file") as temporary:
        temporary.write_text("half")
        raise OSError("disk full")
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_new_folders_are_absent_or_empty(tmp_path: Path) -> None:
    assert is_new_folder(tmp_path / "nothing")
    assert is_new_folder(tmp_path)
    (tmp_path / "file").touch()
    assert not is_new_folder(tmp_path)
    assert not is_new_folder(tmp_path / "file")
