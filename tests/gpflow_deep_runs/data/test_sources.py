import gzip
import lzma
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from gpflow_deep_runs.data.files.sources import is_delimited, read_source
from gpflow_deep_runs.data.streams.files import column_names
from gpflow_deep_runs.data.table.spec import FileSpec, TableSpec

TEXT = b"a,b\n1,x\n2,y\n"


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_text_files(tmp_path: Path) -> None:
    for name, content in (
        ("t.csv", TEXT),
        ("t.TXT", TEXT),
        ("t.csv.gz", gzip.compress(TEXT, mtime=0)),
        ("t.tsv.xz", lzma.compress(TEXT)),
        ("t.zip", None),
    ):
        assert is_delimited(name)
        if content is None:
            with zipfile.ZipFile(tmp_path / name, "w") as archive:
                archive.writestr("t.csv", TEXT)
        else:
            _write(tmp_path / name, content)
        table = read_source(str(tmp_path / name))
        assert table.columns.to_pydict() == {"a": ["1", "2"], "b": ["x", "y"]}
        assert (table.where, table.name, table.delimiter) == (str(tmp_path / name), "t", ",")
        assert (table.targets, table.splits) == ((), None)
    assert not any(is_delimited(name) for name in ("t.parquet", "t.npz", "t.npz.zip", "t.csv.rar", "csv"))
    assert read_source(_write(tmp_path / "t.csv", b"0,1\n1,1\n"), names_optional=True).columns.num_rows == 2


@pytest.mark.parametrize("ending", [".data", ".test", ".train", ".tra", ".tes"])
def test_parts_of_a_data_set_have_no_names_of_columns(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"adult{ending}"
    path.write_text("|1x3 Cross validator\n" + "25, Private, <=50K.\n38, State-gov, >50K.\n" * 3)
    table = read_source(path)
    assert table.columns.column_names == ["x0", "x1", "x2"]
    assert table.columns.num_rows == 6


def test_an_encrypted_archive(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("t.csv", TEXT)
    content = bytearray(path.read_bytes())
    content[6] |= 1  # the flag of encryption in the local header
    content[content.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    path.write_bytes(content)
    with pytest.raises(ValueError, match="encrypted"):
        read_source(path)


def test_parquet(tmp_path: Path) -> None:
    frame = pd.DataFrame({"c": pd.Categorical(["u", "v", "u"]), "a": [0.1, 0.2, np.nan]}, index=[5, 3, 1])
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_source(tmp_path / "t.parquet")
    assert table.columns.column_names == ["c", "a"]  # the index is no column
    assert table.columns["c"].to_pylist() == ["u", "v", "u"]
    with pytest.raises(ValueError, match=r"no readable parquet file .its 3 values of .*may take 10; .* max_bytes="):
        read_source(tmp_path / "t.parquet", spec=TableSpec(file=FileSpec(max_bytes=10)))


@pytest.mark.parametrize(
    "column",
    [
        pa.DictionaryArray.from_arrays(pa.array([0] * 30), pa.array(["x" * 100_000])).cast(pa.string()),
        pa.ListArray.from_arrays(np.arange(21) * 10**4, np.zeros(20 * 10**4, np.int8)),
    ],
    ids=["one text", "lists"],
)
def test_parquet_of_few_bytes_takes_little(tmp_path: Path, column: pa.Array) -> None:
    """A kilobyte holds a value that many cells repeat."""
    pa.parquet.write_table(pa.table({"a": column}), tmp_path / "t.parquet", compression="zstd")
    with pytest.raises(ValueError, match=r"its (texts of a|200,000 values of a.list.element) takes"):
        read_source(tmp_path / "t.parquet", spec=TableSpec(file=FileSpec(max_bytes=10**6)))


def test_npz(tmp_path: Path, rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
    np.savez(tmp_path / "m.npz", X=X, Y=Y, feature_names=["u", "v"], train_idx=[[0, 1, 2]], test_idx=[[3]])
    table = read_source(tmp_path / "m.npz")
    assert table.targets == ("Y0", "Y1")
    np.testing.assert_array_equal(np.stack([column.to_numpy() for column in table.columns], axis=1), np.hstack([X, Y]))
    assert table.columns.column_names == ["u", "v", "Y0", "Y1"]
    assert table.splits is not None
    assert [rows.tolist() for rows in table.splits[0]] == [[0, 1, 2], [3]]
    np.savez(
        tmp_path / "c.npz",
        f=np.array([0.5, 1.5], np.float16),
        i=np.array([1, 2], np.int8),
        b=[True, False],
        t=["é", "x"],
        s=[b"u", b"v"],
        d=np.array(["2020-01-01", "NaT"], "datetime64[D]"),
    )
    columns = read_source(tmp_path / "c.npz").columns.to_pydict()
    assert columns["f"] == [0.5, 1.5]
    assert columns["b"] == [True, False]
    assert (columns["t"], columns["s"]) == (["é", "x"], ["u", "v"])
    assert columns["d"][1] is None
    np.savez(tmp_path / "z.npz", a=[1j, 2.0])
    with pytest.raises(ValueError, match=r"a in .* must hold real numbers, .* got type complex128"):
        read_source(tmp_path / "z.npz")


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2)])
def test_npz_of_images(tmp_path: Path, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    """Rows of pixels, the channels of a pixel together; a data set of them knows height and width."""
    X = rng.integers(0, 9, (6, *shape)).astype(np.uint8)
    np.savez(tmp_path / "images.npz", X=X, y=[0, 1, 0, 1, 1, 0])
    table = read_source(tmp_path / "images.npz")
    assert (table.image_shape, table.targets) == ((3, 4), ("y",))
    pixels = np.stack([column.to_numpy() for column in table.columns.columns[:-1]], axis=1)
    np.testing.assert_array_equal(pixels, X.reshape(6, -1))
    np.savez(tmp_path / "bad.npz", X=np.zeros((6, 3, 4, 2, 1)), y=np.arange(6))
    with pytest.raises(ValueError, match=r"X in .* must be \[N, D\] .*, or images \[N, H, W\] or \[N, H, W, C\], got"):
        read_source(tmp_path / "bad.npz")


class _Exported:
    """A frame of a library that only shares the interface of Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def test_frames_of_other_libraries() -> None:
    texts = pa.array(["u" * 20, None, "u"])
    table = pa.table(
        {
            "large": texts.cast(pa.large_string()),
            "view": texts.cast(pa.string_view()) if hasattr(pa, "string_view") else texts,
            "category": texts.cast(pa.large_string()).dictionary_encode(),
        }
    )
    for source in (table, _Exported(table)):
        found = read_source(source).columns
        assert [str(kind) for kind in found.schema.types[:2]] == ["string", "string"]
        assert found.schema.types[2].value_type == pa.string()
        assert all(column == ["u" * 20, None, "u"] for column in found.to_pydict().values())


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {"a": [1.5, None], "s": ["u", "v"], "c": polars.Series(["p", "q"], dtype=polars.Categorical)}
    )
    assert read_source(frame).columns.to_pydict() == {"a": [1.5, None], "s": ["u", "v"], "c": ["p", "q"]}


@pytest.mark.parametrize(
    "said",
    [
        b"{",
        b"[1]",
        b'{"columns": 3, "index_columns": {"kind": "range"}}',
        b'{"columns": [{"name": "a"}, 7, {"pandas_type": "categorical"}], "index_columns": [null, ["a"], "x"]}',
        b'{"columns": [{"name": ["a"], "pandas_type": "categorical"}], "index_columns": null}',
    ],
)
def test_what_a_parquet_file_says_of_pandas_may_be_anything(said: bytes, tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}).replace_schema_metadata({b"pandas": said})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    assert list(read_source(tmp_path / "t.parquet").columns.column_names) == ["a", "b"]
    assert column_names(str(tmp_path / "t.parquet")) == ["a", "b"]
