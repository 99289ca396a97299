"""Files of every kind: delimiters, encodings, headers, rows, archives; each the right values or one clear error."""

import bz2
import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.messy.reading import read, refused, write
from tests.messy.writing import written, zipped

PLAIN = b"a,b,y\n1,0.5,1\n2,1.5,2\n3,2.5,4\n"
VALUES = {"a": [1.0, 2.0, 3.0], "b": [0.5, 1.5, 2.5], "y": [1.0, 2.0, 4.0]}


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(name, PLAIN)
    return buffer.getvalue()


def parquet(**columns: Any) -> bytes:
    return written(lambda file: pq.write_table(pa.table(columns), file))


SAME: list[tuple[str, str, bytes]] = [
    ("semicolon and decimal comma", "t.csv", PLAIN.replace(b",", b";").replace(b".", b",")),
    ("tab in .txt", "t.txt", PLAIN.replace(b",", b"\t")),
    ("comma in .txt", "t.txt", PLAIN),
    ("CAPITALS", "T.CSV", PLAIN),
    ("mixed ends", "t.csv", PLAIN.replace(b"\n", b"\r\n", 2)),
    ("empty lines after the end", "t.csv", PLAIN + b"\n\n"),
    ("spaces in the header", "t.csv", PLAIN.replace(b"a,b,y", b"a , b,y ")),
    ("spaces after commas", "t.csv", PLAIN.replace(b",", b", ")),
    ("all quoted", "t.csv", b'"a","b","y"\n"1","0.5","1"\n"2","1.5","2"\n"3","2.5","4"\n'),
    ("gzip in two members", "t.csv.gz", gzip.compress(PLAIN[:9], mtime=0) + gzip.compress(PLAIN[9:], mtime=0)),
    ("bzip2", "t.csv.bz2", bz2.compress(PLAIN)),
    ("zip", "t.csv.zip", zipped(PLAIN, "t.csv")),
    ("parquet", "t.parquet", parquet(a=[1, 2, 3], b=[0.5, 1.5, 2.5], y=[1, 2, 4])),
    ("parquet of texts", "t.parquet", parquet(a=["1", "2", "3"], b=["0.5", "1.5", "2.5"], y=["1", "2", "4"])),
    (
        "parquet in small types",
        "t.parquet",
        parquet(
            a=pa.array([1, 2, 3], pa.uint8()),
            b=pa.array(np.array([0.5, 1.5, 2.5], np.float16)),
            y=pa.array([1, 2, 4], pa.int16()),
        ),
    ),
    (
        "parquet, a dictionary of numbers as text",
        "t.parquet",
        parquet(a=pa.array(["1", "2", "3"]), b=[0.5, 1.5, 2.5], y=pa.array([1.0, 2.0, 4.0], pa.float32())),
    ),
    ("a comment", "t.csv", b"# made by hand\n" + PLAIN),
    ("a comment with commas", "t.csv", b"# made by hand, in May\n" + PLAIN),
    ("spaces in a .txt", "t.txt", b"a  b   y\n1  0.5 1\n2  1.5 2\n3  2.5 4\n"),
    ("npz", "t.npz", written(lambda file: np.savez(file, a=[1, 2, 3], b=[0.5, 1.5, 2.5], y=[1, 2, 4]))),
]

WRONG: list[tuple[str, str, bytes, str]] = [
    ("latin-1 in a cell", "t.csv", PLAIN + "5,ö,6\n".encode("latin-1"), "'ö' in row 3"),
    ("header alone", "t.csv", b"a,b,y\n", "at least 2 rows"),
    ("one row", "t.csv", b"a,b,y\n1,2,3\n", "at least 2 rows"),
    ("one column", "t.csv", b"y\n1\n2\n4\n", r"no column besides the target"),
    ("another suffix", "t.sav", b"x", r"must end in \.csv, \.tsv, .*\.parquet or \.npz, got t\.sav"),
    ("gzip of another sum", "t.csv.gz", gzip.compress(PLAIN, mtime=0)[:-8] + b"\0" * 8, "CRC"),
    ("no npz", "t.npz", PLAIN, "cannot be read as"),
    ("gzip cut off", "t.csv.gz", gzip.compress(PLAIN, mtime=0)[:-9], r"t\.csv\.gz"),
    ("no gzip", "t.csv.gz", PLAIN, r"t\.csv\.gz"),
    ("no xz", "t.csv.xz", PLAIN, r"t\.csv\.xz"),
    ("no bzip2", "t.csv.bz2", PLAIN, r"t\.csv\.bz2"),
    ("no zip", "t.csv.zip", PLAIN, r"t\.csv\.zip"),
    ("zip of two", "t.csv.zip", archive("a.csv", "b.csv"), r"t\.csv\.zip.*one"),
    ("zip of none", "t.csv.zip", archive(), r"t\.csv\.zip.*one"),
    ("gzip called .csv", "t.csv", gzip.compress(PLAIN, mtime=0), r"t\.csv"),
    ("parquet called .csv", "t.csv", parquet(a=[1, 2, 3], y=[1, 2, 4]), r"t\.csv"),
    ("csv called .parquet", "t.parquet", PLAIN, "parquet"),
    ("parquet cut off", "t.parquet", parquet(a=[1, 2, 3], y=[1, 2, 4])[:-30], "parquet"),
    ("spreadsheet", "t.xlsx", archive("xl/workbook.xml"), r"t\.xlsx"),
    (
        "npz of objects",
        "t.npz",
        written(lambda file: np.savez(file, a=np.array([{}, 1, "x"], object), y=[1, 2, 4])),
        "t.npz",
    ),
    ("npz of matrices", "t.npz", written(lambda file: np.savez(file, a=np.ones((3, 2)), y=[1, 2, 4])), "t.npz"),
    ("parquet of lists", "t.parquet", parquet(a=[[1], [2, 3], []], y=[1, 2, 4]), "'a'.*list"),
    (
        "parquet of maps",
        "t.parquet",
        parquet(a=pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int64())), y=[1, 2, 4]),
        "'a'.*map",
    ),
]


@pytest.mark.parametrize(("name", "content"), [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_the_same_table(name: str, content: bytes, tmp_path: Path) -> None:
    assert read(write(tmp_path, name, content)) == VALUES


@pytest.mark.parametrize(("name", "content", "match"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_files_that_cannot_be_read(name: str, content: bytes, match: str, tmp_path: Path) -> None:
    message = refused(write(tmp_path, name, content), match)
    assert name in message


def test_a_column_without_a_name(tmp_path: Path) -> None:
    found = read(write(tmp_path, "t.csv", PLAIN.replace(b"b", b"", 1)))
    assert found == {"a": VALUES["a"], "Unnamed: 1": VALUES["b"], "y": VALUES["y"]}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    refused(tmp_path / "t.csv", "there is none")
    refused(tmp_path, "must be a file")


def test_names_with_everything_in_them(tmp_path: Path) -> None:
    content = 'größe,"a, b","say ""x""",😀,y\n1,2,3,4,5\n2,3,4,5,7\n'.encode()
    assert list(read(write(tmp_path, "t.csv", content))) == ["größe", "a, b", 'say "x"', "😀", "y"]


def test_a_line_break_in_a_name(tmp_path: Path) -> None:
    found = read(write(tmp_path, "t.csv", b'"in\ndegrees",y\n1,5\n2,7\n'))
    assert found["in\ndegrees"] == [1.0, 2.0]


def test_five_thousand_columns(tmp_path: Path) -> None:
    names = ",".join(f"c{i}" for i in range(5000))
    row = ",".join(["0.25"] * 5000)
    found = read(write(tmp_path, "t.csv", f"{names},y\n{row},1\n{row},2\n{row},4\n".encode()))
    assert len(found) == 5001
    assert found["c4999"] == [0.25] * 3


def test_a_column_of_nothing(tmp_path: Path) -> None:
    found = read(write(tmp_path, "t.parquet", parquet(a=pa.nulls(3), b=[1, 2, 3], y=[1, 2, 4])))
    assert list(found) == ["b", "y"]


def test_a_very_long_cell(tmp_path: Path) -> None:
    long = "x" * 3_000_000
    refused(write(tmp_path, "t.csv", f"a,y\n{long},1\nb,2\nc,\n".encode()), r"'y' \(1\)", missing="error")
