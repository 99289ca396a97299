"""`gpflow_deep_runs.data.streams.storage`: local files, and those of other file systems as if they were local."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.data.streams import storage

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(params=["", "file://"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder with two files, by plain Python and by a file system of pyarrow."""
    for name, content in (("b.csv", b"0123456789" * 300_000), ("a.csv", b"a,b\n1,2\n")):
        (tmp_path / name).write_bytes(content)
    return f"{request.param}{tmp_path}"


def test_files_are_listed_measured_and_read(folder: str) -> None:
    assert storage.is_folder(folder)
    assert not storage.is_folder(f"{folder}/a.csv")
    assert storage.find(f"{folder}/*") == [f"{folder}/a.csv", f"{folder}/b.csv"]
    assert storage.find(f"{folder}/[ab].csv") == storage.find(f"{folder}/?.csv") == storage.find(f"{folder}/*")
    assert storage.find(f"{folder}/none*") == []
    assert storage.size(f"{folder}/b.csv") == 3_000_000
    with storage.open_file(f"{folder}/b.csv") as file:
        assert file.seek(2_000_001) == 2_000_001
        assert file.read(4) == b"1234"
        assert file.tell() == 2_000_005
        assert file.seek(-3, os.SEEK_END) == 2_999_997
        assert file.read() == b"789"
    with storage.open_file(f"{folder}/a.csv") as file:
        assert list(file) == [b"a,b\n", b"1,2\n"]


def test_absent_file_is_an_error_of_the_system(folder: str) -> None:
    for call in (storage.size, storage.open_file):
        with pytest.raises(OSError, match=r"none.csv"):
            call(f"{folder}/none.csv")


def test_file_systems_that_nobody_knows(tmp_path: Path) -> None:
    for call in (storage.size, storage.open_file, storage.find, storage.is_folder):
        with pytest.raises(OSError, match=r"nowhere://a/b\.csv is on no file system of pyarrow"):
            call("nowhere://a/b.csv")


def test_local_names_with_brackets_and_hidden_ones(tmp_path: Path) -> None:
    for name in ("part[1].csv", "part1.csv", ".part2.csv"):
        (tmp_path / name).write_bytes(b"")
    assert storage.find(f"{tmp_path}/part[1].csv") == [f"{tmp_path}/part[1].csv"]
    assert storage.find(f"{tmp_path}/part[0-9].csv") == [f"{tmp_path}/part1.csv"]
    assert len(storage.find(f"{tmp_path}/*")) == 2


WITHOUT_TENSORFLOW = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "keras", "tensorflow_probability", "gpflow"):
            raise ImportError(f"{name} is imported")

sys.meta_path.insert(0, Blocked())
from gpflow_deep_runs.data import supply, views
from gpflow_deep_runs.data.spec import TableSpec
from gpflow_deep_runs.data.streams.convert import convert
from gpflow_deep_runs.data.streams.scan import StreamSpec

convert(sys.argv[1], sys.argv[2])
table = TableSpec(target=("y",))
for seed in range(2):
    data = supply.load(
        views.Source(data=sys.argv[2]), supply.Division(), StreamSpec(stream=True), table=table, seed=seed
    )
    print(sum(data.stream.counts.values()), *data.rows.feature_names)
"""


def test_a_local_stream_is_looked_at_without_tensorflow(rng: np.random.Generator, tmp_path: Path) -> None:
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "y"])
    frame["c"] = np.where(frame["a"] > 0, "up", "down")
    frame.to_csv(tmp_path / "a.csv", index=False)
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, str(tmp_path / "a.csv"), str(tmp_path / "b")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["200 a b c=down c=up"] * 2
