import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpflow_deep_runs.data.files import packed
from gpflow_deep_runs.data.files.packed import Pieces, compression_of, open_unpacked

CONTENT = b"a,b\n" + b"1,2\n" * 10_000
PACK: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def _zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, CONTENT)
    return buffer.getvalue()


def test_names_of_packed_files() -> None:
    assert [compression_of(f"t.csv{end}") for end in ("", ".gz", ".GZ", ".bz2", ".xz", ".zip", ".7z")] == [
        *("", "gz", "gz", "bz2", "xz", "zip", "")
    ]


@pytest.mark.parametrize("kind", PACK)
def test_unpacked_bytes(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.csv.{kind}"
    path.write_bytes(PACK[kind](CONTENT[:7]) + PACK[kind](CONTENT[7:]))  # files of several streams, too
    with open_unpacked(path) as stream:
        assert stream.read(5) == CONTENT[:5]
        assert stream.read() == CONTENT[5:]


def test_zip(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.zip"
    path.write_bytes(_zipped("folder/", "folder/t.csv", "__MACOSX/t.csv"))
    with open_unpacked(path) as stream:
        assert stream.read() == CONTENT
    for names in ((), ("a.csv", "b.csv")):
        path.write_bytes(_zipped(*names))
        with pytest.raises(ValueError, match=f"must hold one file, got {len(names)}"):
            open_unpacked(path)


@pytest.mark.parametrize("kind", [*PACK, "zip"])
def test_a_file_that_unpacks_to_far_more_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"t.csv.{kind}"
    path.write_bytes(_zipped("t.csv") if kind == "zip" else PACK[kind](CONTENT))
    monkeypatch.setattr(packed, "_MAX_BYTES", 1000)
    monkeypatch.setattr(packed, "_MAX_RATIO", 1)
    with open_unpacked(path) as stream, pytest.raises(ValueError, match=r"takes more than [\d,]+ bytes unpacked"):
        stream.read()
    monkeypatch.setattr(packed, "_MAX_BYTES", 10 * len(CONTENT))
    with open_unpacked(path) as stream:
        assert stream.read() == CONTENT


def test_pieces_as_a_stream() -> None:
    stream = io.BufferedReader(Pieces(iter([b"abc", b"", b"defgh", b"i"])), 2)
    assert [stream.read(4), stream.read(4), stream.read(4), stream.read(4)] == [b"abcd", b"efgh", b"i", b""]
