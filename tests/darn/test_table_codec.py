"""Files that give a table back: byte for byte, whatever the table; as short as promised; damage is refused."""

import bz2
import hashlib
import lzma
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from darn.codec.table import _table, decode_table, encode_table, method_of, other_lengths
from darn.codec.table_columns import LINE_ENDS, column_of, from_differences, layout_of
from darn.codec.table_model import new_state
from gpflow_deep_base.storage.frame import framed, leb128

MAGIC = b"\x89GDT"
NO_TABLES = {"empty", "one byte", "line end only", "names only", "garbage", "UTF-16"}
CONSTANTS = "b6e985be69c61253"
WRITTEN_BEFORE = (
    "894744540165a961fe02005742edf6022c013c03010014000601000c020100341e9b7c3703210de1d495405e6826adf96cdf"
    "ca6bc836515165de78dd9fec4d00fff863e7759bb14c27335f094b6eef8f61fe39ed95776bd5032a3408c9599be155c8e0"
)


def schedule(rng: np.random.Generator, N: int) -> bytes:
    """A table whose columns depend on one another: routes, their carrier and hour, a day, and whether it was late."""
    route = rng.integers(0, 40, N)
    carrier = np.where(rng.random(N) < 0.9, route % 7, rng.integers(0, 7, N))
    hour = 6 + (route * 5 + rng.integers(0, 3, N)) % 16
    late = rng.random(N) < 0.02 * hour
    rows = zip(carrier, route, rng.integers(0, 7, N), hour, late.astype(int), strict=True)
    lines = [f"C{c},{chr(65 + r % 26)}{chr(65 + r // 26)}X,{d},{h},{x}" for c, r, d, h, x in rows]
    return "\n".join(["carrier,route,day,hour,late", *lines, ""]).encode()


def wide(rng: np.random.Generator) -> bytes:
    values = rng.integers(0, 3, (60, 100))
    return b"\n".join(b",".join(b"%d" % v for v in row) for row in values)


_RNG = np.random.default_rng(0)
TABLES: dict[str, bytes] = {
    "empty": b"",
    "one byte": b"a",
    "line end only": b"\n",
    "line ends only": b"\n\n\r\n\r",
    "names only": b"a,b,c\n",
    "one column": b"\n".join(b"%d" % (i % 7) for i in range(300)),
    "a count": b"".join(b"%d,x\n" % i for i in range(-200, 800)),
    "leading zeros": b"".join(b"%05d;%d\n" % (i * 7 % 900, i % 3) for i in range(500)),
    "CRLF": b"a,b\r\n" + b"1,x\r\n2,y\r\n" * 200,
    "CR": b"a,b\r" + b"1,x\r2,y\r" * 200,
    "mixed line ends": b"a,b\n" + b"1,x\r\n2,y\n3,z\r" * 200,
    "no final line end": b"a,b\n" + b"1,x\n2,y\n" * 200 + b"3,z",
    "blank lines at the end": b"a,b\n" + b"1,x\n2,y\n" * 200 + b"\n\n",
    "quotes": b'a,b\n"x, ""y""","two\nlines"\n1,"2"\n' * 150,
    "quotes, CRLF within": b'a;b\r\n"x;\r\ny";2\r\n1;"2\n3"\r\n' * 150,
    "an open quote": b"a,b\n" + b"1,2\n" * 100 + b'5" nail,3\n' + b"1,2\n" * 100,
    "ragged": b"a,b,c\n" + b"1,2,3\n4,5\n6\n\n7,8,9,10\n" * 100,
    "tabs": b"a\tb\n" + b"1\tx y\n2\tz, w\n" * 100,
    "empty cells": b"a,b,c\n" + b",,\n,1,\n" * 100,
    "byte order mark": b"\xef\xbb\xbfa,b\n" + b"1,2\n2,3\n" * 100,
    "Latin-1": "città,größe\n".encode("latin-1") + "è,ß\né,ä\n".encode("latin-1") * 100,
    "UTF-16": ("a,b\n" + "1,é\n2,x\n" * 100).encode("utf-16"),
    "long cells": b"a,b\n" + b"x" * 5000 + b",1\n" + bytes(97 + _RNG.integers(0, 26, 3000).astype(np.uint8)) + b",2\n",
    "garbage": _RNG.integers(0, 256, 3000).astype(np.uint8).tobytes(),
    "garbage without 0": _RNG.integers(1, 256, 3000).astype(np.uint8).tobytes(),
    "prose": b"It was a bright cold day in April, and the clocks were striking thirteen.\n" * 40,
    "wide": wide(_RNG),
    "floats": b"".join(b"%d,%.4f,%.1f\n" % (i // 9, x, 2 * x) for i, x in enumerate(_RNG.normal(size=400))),
    "schedule": schedule(_RNG, 1500),
}


@pytest.mark.parametrize("name", TABLES)
def test_gives_the_table_back(name: str) -> None:
    content = TABLES[name]
    data = encode_table(content)
    assert decode_table(data) == content
    strongest = 9 | lzma.PRESET_EXTREME
    assert len(data) <= len(lzma.compress(content, preset=strongest))
    assert len(data) <= len(content) + 20
    assert encode_table(content) == data


def as_table(content: bytes) -> bytes | None:
    """A file by the method of tables, also where another is shorter; None where there is no table."""
    layout = layout_of(content)
    body = _table(layout) if layout is not None and layout.columns else None
    if body is None:
        return None
    return framed(MAGIC, 1, b"\2" + zlib.crc32(content).to_bytes(4, "little") + leb128(len(content)) + body)


@pytest.mark.parametrize("name", TABLES)
def test_the_method_of_tables_gives_the_table_back(name: str) -> None:
    data = as_table(TABLES[name])
    if data is None:
        assert name in NO_TABLES
    else:
        assert method_of(data) == "table"
        assert decode_table(data) == TABLES[name]


def test_layouts() -> None:
    """Delimiters, quotes, line ends; lines that are no rows are kept apart."""
    layout = layout_of(TABLES["quotes, CRLF within"])
    assert layout is not None
    assert (layout.delimiter, layout.quote, LINE_ENDS[layout.line_end], layout.ends) == (b";", b'"', b"\r\n", True)
    assert layout.columns[0][:3] == [b'"x;\r\ny"', b"1", b"a"]
    ragged = layout_of(b"a,b\n1,2\n3\n4,5\n6,7")
    assert ragged is not None
    assert (ragged.width, ragged.odd, ragged.ends) == (2, {0: b"a,b", 2: b"3"}, False)
    assert ragged.columns == [[b"1", b"4", b"6"], [b"2", b"5", b"7"]]


def test_a_quote_that_is_never_closed_takes_nothing_with_it() -> None:
    layout = layout_of(TABLES["an open quote"])
    assert layout is not None
    assert len(layout.columns[0]) == 201


def test_columns() -> None:
    """Ranks in the order of numbers; a count by its differences; keys as text."""
    ranked = column_of([b"10", b"9", b"9", b"x", b"10", b"9"])
    assert (ranked.levels, ranked.ranks.tolist()) == ([b"9", b"10", b"x"], [1, 0, 0, 2, 1, 0])
    count = column_of([b"%d" % (3 * i) for i in range(100)])
    assert (count.is_difference, count.levels) == (True, [b"0", b"3"])
    assert from_differences(count.cells) == [b"%d" % (3 * i) for i in range(100)]
    assert column_of([b"%03d" % i for i in range(100)]).levels == []


def test_shorter_than_general_compressors(rng: np.random.Generator) -> None:
    """Columns that depend on one another: below bz2 and xz, and near the entropy of the source."""
    N = 4000
    content = schedule(rng, N)
    length = len(encode_table(content))
    assert length < len(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
    assert length < len(bz2.compress(content))
    # entropy: route 40, carrier 0.9 + 0.1 / 7, day 7, hour 3, late; 160 bytes of levels and 15 % of learning
    right = 0.9 + 0.1 / 7
    carrier = -right * np.log2(right) - 6 / 7 * 0.1 * np.log2(0.1 / 7)
    p = 0.02 * np.arange(6, 22)
    late = -(p * np.log2(p) + (1 - p) * np.log2(1 - p)).mean()
    bits = np.log2(40) + carrier + np.log2(7) + np.log2(3) + late
    assert 0.98 * N * bits / 8 < length < 1.15 * N * bits / 8 + 160
    assert length == len(encode_table(content))


def test_what_is_printed_beside() -> None:
    content = TABLES["schedule"]
    lengths = other_lengths(content)
    assert lengths["bz2"] == len(bz2.compress(content))
    assert lengths["xz"] == len(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
    assert lengths.get("Parquet, zstd", 1) > 0


def test_same_on_each_machine_and_in_threads() -> None:
    """All that is learned is an integer; a file of another machine; several at once."""
    state = new_state(10, 10, 2, np.zeros(9, np.uint8), decodes=False)
    assert {array.dtype.kind for array in state} == {"i", "u"}
    assert hashlib.sha256(b"".join(array.tobytes() for array in state[-3:])).hexdigest()[:16] == CONSTANTS
    content = b"day,shop,sold\n" + b"".join(b"%d,%c,%d\n" % (i // 6, 65 + i % 3, i * i % 11) for i in range(60))
    assert decode_table(bytes.fromhex(WRITTEN_BEFORE)) == content
    data = encode_table(TABLES["schedule"])
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(decode_table, [data] * 8)) == {TABLES["schedule"]}


def refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^this cannot be read as a coded table \(.*\); copy the file again\.$"):
        decode_table(data)


@pytest.mark.parametrize("name", ["schedule", "ragged", "floats", "a count", "prose"])
def test_forged_files_are_refused_or_exact(rng: np.random.Generator, name: str) -> None:
    """Payloads that were changed and got a new checksum."""
    content = TABLES[name][:4000]
    data = as_table(content)
    assert data is not None
    payload = data[len(MAGIC) + 5 :]
    for _ in range(60):
        forged = bytearray(payload)
        place = int(rng.integers(len(forged)) if rng.random() < 0.5 else rng.integers(min(60, len(forged))))
        forged[place] = int(rng.integers(256))
        if rng.random() < 0.2:
            del forged[int(rng.integers(len(forged))) :]
        reason = None
        try:
            restored = decode_table(framed(MAGIC, 1, bytes(forged)))
        except ValueError as error:
            reason = str(error)
        assert restored == content if reason is None else reason.startswith("this cannot be read as a coded table")


@pytest.mark.parametrize("method", range(5))
@pytest.mark.parametrize("length", [0, 1, 10**6, 10**12, 2**69])
def test_stated_sizes_are_checked(method: int, length: int) -> None:
    """Before room is made: a file of 40 bytes that states a size; it takes no longer than it is."""
    for body in (b"", b"\0" * 20, b"\xff" * 20, b",\1" + leb128(10**5) + leb128(10) + b"\0" * 40):
        refused(framed(MAGIC, 1, bytes([method]) + b"\0\0\0\1" + leb128(length) + body))


def test_memory_can_be_limited() -> None:
    data = encode_table(TABLES["schedule"])
    with pytest.raises(ValueError, match="allow more with max_bytes="):
        decode_table(data, max_bytes=1000)
    assert decode_table(data, max_bytes=10**8) == TABLES["schedule"]


def test_only_bytes() -> None:
    with pytest.raises(ValueError, match="content must be bytes, got str"):
        encode_table("a,b\n1,2\n")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="data must be bytes, got str; read the file in binary mode"):
        decode_table("table.csv.gdt")  # type: ignore[arg-type]


def test_what_is_no_table_is_stored_or_packed_by_lzma(rng: np.random.Generator) -> None:
    noise = rng.integers(0, 256, 3000).astype(np.uint8).tobytes()
    for content, method in ((noise, "stored"), (3 * noise, "lzma")):
        data = encode_table(content)
        assert method_of(data) == method
        assert len(data) < 3100
        assert decode_table(data) == content
