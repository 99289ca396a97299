"""The script gives a table back byte for byte, without TensorFlow, and says how long it is."""

import bz2
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpflow_deep_runs.verbs import script_of
from scripts.compress_table import Compress, Decompress, compress, decompress
from tests.gpflow_deep_runs.cli.test_described import ROOT, WITHOUT_TENSORFLOW

CONTENT = b'day;"shop, city"\r\n' + b'1;"a;b"\r\n2;c\r\n' * 200


def test_a_table_comes_back_byte_for_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed beside; a damaged file is refused, and what was there stays."""
    table = tmp_path / "in.csv"
    table.write_bytes(CONTENT)
    compress(Compress(str(table)))
    packed = tmp_path / "in.csv.gdt"
    printed = capsys.readouterr().out
    assert f"{packed}: {packed.stat().st_size} bytes by " in printed
    for name, length in {"as it is": f"{len(CONTENT):,}", "bz2": str(len(bz2.compress(CONTENT)))}.items():
        assert re.search(rf"^{name} +{length}$", printed, re.MULTILINE)
    with pytest.raises(ValueError, match=r"in.csv exists; give another name, or the same to replace it: --output="):
        decompress(Decompress(str(packed)))
    table.unlink()
    decompress(Decompress(str(packed)))
    assert table.read_bytes() == CONTENT
    other = tmp_path / "small"
    compress(Compress(str(table), output=str(other)))
    with pytest.raises(ValueError, match=r"--output must be given where the input does not end in .gdt"):
        decompress(Decompress(str(other)))
    packed.write_bytes(packed.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"--input=.*in.csv.gdt: this cannot be read as a coded table \(its checksum"):
        decompress(Decompress(str(packed), output=str(table)))
    with pytest.raises(ValueError, match=r"--input must be a file; there is no file .*none.csv"):
        compress(Compress(str(tmp_path / "none.csv"), output=str(table)))
    assert table.read_bytes() == CONTENT


def test_needs_no_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"a,b\n1,2\n")
    arguments = ["scripts/compress_table.py", "compress", str(tmp_path / "in.csv")]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "in.csv.gdt: 23 bytes by stored" in done.stdout


def test_a_file_in_place_of_flags_is_a_table() -> None:
    assert script_of("compress", ["table.csv", "--output=x"]) == "compress_table"
    assert script_of("decompress", ["table.csv.gdt"]) == "compress_table"
    assert script_of("compress", ["--run_dir=runs/first"]) == script_of("compress", []) == "compress_network"
