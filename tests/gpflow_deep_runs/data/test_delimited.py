import io
import time

import numpy as np
import pyarrow as pa
import pytest

from gpflow_deep_runs.data.files.delimited import HEAD_BYTES, Dialect, check_quotes, dialect_of, read_text


def _read(text: str | bytes, *, where: str = "F.csv") -> dict[str, list[str]]:
    content = text if isinstance(text, bytes) else text.encode()
    dialect = dialect_of(content, where, is_whole=True)
    table = read_text(content, dialect, where)
    assert set(table.schema.types) == {pa.string()}
    return table.to_pydict()


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b\n1,2\n", ","),
        ("a;b\n1,5;2\n3,5;4", ";"),
        ("a\tb\n1\t2\n", "\t"),
        ("a|b\n1|2\n", "|"),
        ("a\n1\n", ","),
        ('a,b\n"1,5","2;3"\n', ","),
        ("a,b\n1;x,2;y\n", ","),
        ('"a;x";b\n"1,5";2\n', ";"),
        ("a;b,c\n1;2,5\n2;3\n", ";"),  # with commas rows would have another length than the header
        ("name\tlast, first\nx\ty, z\n", "\t"),
        ("a,b", ","),
    ],
)
def test_delimiters(text: str, delimiter: str) -> None:
    assert dialect_of(text.encode(), "F", is_whole=True).delimiter == delimiter


def test_columns_of_fixed_width() -> None:
    """Spaces within a value, values that are missing, and a name of two words."""
    lines = [
        "name         size now",
        "New York      1.5",
        "Bonn         22.5   3",
        "Los Angeles   3.5",
        "Ulm          14.0  17",
    ]
    text = "\n".join(lines) + "\n"
    dialect = dialect_of(text.encode(), "F", is_whole=True)
    assert dialect.notes == ("columns of fixed width, from the characters 0, 13, 18 (from 0) on",)
    assert _read(text) == {
        "name": ["New York", "Bonn", "Los Angeles", "Ulm"],
        "size": ["1.5", "22.5", "3.5", "14.0"],
        "now": ["", "3", "", "17"],
    }
    with pytest.raises(ValueError, match=r"row 2 \(from 0\) has no space between two"):
        late = text.replace("Los Angeles   3.5", "Los Angeles-CA 3.5")
        read_text(late.encode(), dialect, "F")


def test_two_delimiters_that_fit_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"F may be divided by commas \(the first is 'a'\) or by semicolons \(.*'a,b'\)"
    ):
        dialect_of(b"a,b;c,d\n1,2;3,4\n", "F", is_whole=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n3,4\n", {"a": ["1", "3"], "b": ["2", "4"]}),
        ("a,b\r\n1,2\r\n", {"a": ["1"], "b": ["2"]}),
        ("a,b\r1,2\r", {"a": ["1"], "b": ["2"]}),
        ("\ufeffa,b\n1,2", {"a": ["1"], "b": ["2"]}),
        ('\ufeff"a",b\n1,2', {"a": ["1"], "b": ["2"]}),
        ("\n\na , b\n\n1, 2\n   \n3,4\n\n", {"a": ["1", "3"], "b": [" 2", "4"]}),
        ('a,b\n1,"x\ny"\n3,4\n', {"a": ["1", "3"], "b": ["x\ny", "4"]}),
        ('a,b\n1,"x ""q"", y"\n', {"a": ["1"], "b": ['x "q", y']}),
        ('"a\nb",c\n1,2\n', {"a\nb": ["1"], "c": ["2"]}),
        ('a,b\n1,5" pipe\n', {"a": ["1"], "b": ['5" pipe']}),
        ("a,b\n,\n", {"a": [""], "b": [""]}),
        ("a,b\nNA,null\n", {"a": ["NA"], "b": ["null"]}),
        ("a\n1\n\n2\n", {"a": ["1", "2"]}),
        ("# by NumPy\n# a b\n1 2.5\n3 4.5\n", {"a": ["1", "3"], "b": ["2.5", "4.5"]}),
        ("a,b\n", {"a": [], "b": []}),
        ("a,b\n1,é\n".encode("utf-16"), {"a": ["1"], "b": ["é"]}),
        (b"\xfe\xff" + "a,b\n1,é\n".encode("utf-16-be"), {"a": ["1"], "b": ["é"]}),
    ],
)
def test_cells_are_as_they_are_written(text: str | bytes, expected: dict[str, list[str]]) -> None:
    assert _read(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"F\.csv is empty"),
        ("1 0\n0 1\n", r"must hold column names, got numbers .*--names=NAME"),
        (" \n\n", r"F\.csv is empty"),
        ("1,2\n3,4\n", r"first line of F\.csv must hold column names, got numbers \(1, \.\.\.\)"),
        ("a,-1.5e3\n3,4\n", "must hold column names"),
        (
            "a,b\n1,2\n\n3,4,5\n",
            r"more values than column names, the first is row 1 \(from 0\) with 3 instead of 2: '3,4,5'",
        ),
        (
            'a,b\n"1\n2",2\n1,2\n3\n',
            r"fewer values .*row 2 .* with 1 instead of 2: '3'; check its commas, and that .*complete",
        ),
        ("a;b\n1;2;3\n4;5;6\n", "row 0 .* check its semicolons"),
        ('a,b\n1,"x\n3,4\n5,6\n', "quotation mark in row 0 .* never closed"),
        ('a,b\n1,2\n3,"x\n3,4\n', "quotation mark in row 1 .* never closed"),
        ('a,b\n1,2\n"3,4\n5,6\n', "quotation mark in row 1 .* never closed"),
        ('"a,b\n1,2\n', "quotation mark in its line of names that is never closed"),
        ("a,b\n1,é\n".encode("utf-16-le"), "UTF-16 needs a byte order mark"),
        (b"a,b\n1,\x00\n", "zero bytes"),
        ("a,b\n1,é\n".encode("utf-16")[:-1], "UTF-8"),
    ],
)
def test_what_cannot_be_read(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        _read(text)
    assert "\n" not in str(caught.value)


def test_errors_far_behind_the_head() -> None:
    rows = b"1,2\n" * (HEAD_BYTES // 2)
    for tail, message in (
        (b"1,2,3\n", f"row {HEAD_BYTES // 2} "),
        (b"1,\xe9\n", "in UTF-8 .*--encoding"),
        (b'1,"2\n', f"quotation mark in row {HEAD_BYTES // 2} "),
        (b'1,"2\n' + rows * 20, "never closed"),
    ):
        content = b"a,b\n" + rows + tail
        dialect = dialect_of(content[:HEAD_BYTES], "F", is_whole=False)
        with pytest.raises(ValueError, match=message):
            read_text(io.BytesIO(content), dialect, "F")


def test_a_text_between_spaces_in_another_encoding() -> None:
    content = b"a b\n" + b"1 2\n" * HEAD_BYTES + b"1 \xe9\n"
    with pytest.raises(ValueError, match=r"F is no readable, .* in UTF-8 .*--encoding"):
        read_text(content, dialect_of(content[:HEAD_BYTES], "F", is_whole=False), "F")


def test_thousands_of_columns_of_one_name() -> None:
    start = time.process_time()
    names = list(_read(",".join(["a"] * 3000) + "\n" + ",".join(["x"] * 3000) + "\n"))
    assert names == ["a", *(f"a.{number}" for number in range(1, 3000))]
    assert time.process_time() - start < 10  # 0.3 s


def test_a_long_line_that_nearly_is_drawn() -> None:
    start = time.process_time()
    assert _read(f"a,b\n1,{'-' * 50_000}x\n") == {"a": ["1"], "b": ["-" * 50_000 + "x"]}
    assert time.process_time() - start < 10  # 0.1 s


def test_a_head_that_ends_anywhere(rng: np.random.Generator) -> None:
    content = 'größe;"b;c";d\n' + "1,5;ä;x\n" * 50
    whole = content.encode()
    for end in rng.integers(30, len(whole), 50):
        assert dialect_of(whole[:end], "F", is_whole=False) == Dialect(("größe", "b;c", "d"), ";")
    wide = content.encode("utf-16")
    for end in rng.integers(90, len(wide), 50):
        assert dialect_of(wide[:end], "F", is_whole=False) == Dialect(("größe", "b;c", "d"), ";", "utf-16")


def test_blocks_of_rows() -> None:
    dialect = Dialect(("a", "b"), ";", has_header=False)
    assert read_text(b"1;2\n3;4", dialect, "F").to_pydict() == {"a": ["1", "3"], "b": ["2", "4"]}
    with pytest.raises(ValueError, match="the first is row 1 "):
        read_text(b"1;2\n3;4;5\n", dialect, "F")


def test_names_may_be_left_out() -> None:
    content = b"0,1,0\n1,1,0\n"
    dialect = dialect_of(content, "F", is_whole=True, names_optional=True)
    assert dialect == Dialect(("x0", "x1", "x2"), ",", has_header=False)
    assert read_text(content, dialect, "F").num_rows == 2
    assert dialect_of(b"a,b\n0,1\n", "F", is_whole=True, names_optional=True).has_header


def test_long_cells() -> None:
    long = "x" * 3_000_000
    content = f"a,b\n{long},1\n2,3\n".encode()
    dialect = dialect_of(content[:HEAD_BYTES], "F", is_whole=False)
    assert read_text(content, dialect, "F")["a"].to_pylist() == [long, "2"]
    check_quotes(io.BytesIO(content), dialect, "F")


def test_quotes_that_join_rows() -> None:
    dialect = Dialect(("a", "b"), ",")
    check_quotes(io.BytesIO(b'a,b\n1,"x ""q"" \ny"\n3,4\n'), dialect, "F")
    with pytest.raises(ValueError, match=r"F has a quotation mark that is not closed.* up to line 4"):
        check_quotes(io.BytesIO(b'a,b\n1,"x\n3,4\n5,"y"\n'), dialect, "F")
