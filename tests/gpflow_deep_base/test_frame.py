"""gpflow_deep_base.storage.frame: bytes that come back, or are refused; nothing is read beyond the end."""

import zlib
from collections.abc import Callable

import pytest

from gpflow_deep_base.storage.frame import Reader, framed, leb128, unframed
from gpflow_deep_base.storage.limits import Budget, budget_of, inflated, one_line, refuse_damaged

MAGIC = b"\x89TST"


@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(256))])
def test_a_frame_comes_back(payload: bytes) -> None:
    assert unframed(framed(MAGIC, 3, payload), magic=MAGIC, versions=(2, 3)) == (3, payload)


def test_every_change_of_a_byte_is_refused() -> None:
    content = framed(MAGIC, 3, b"some payload")
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        with pytest.raises(ValueError, match=r"starts with|version|checksum"):
            unframed(bytes(damaged), magic=MAGIC, versions=(3,))
    for length in range(len(content)):
        with pytest.raises(ValueError, match=r"starts with|too few|checksum"):
            unframed(content[:length], magic=MAGIC, versions=(3,))


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**35 - 1, 2**70 - 1])
def test_numbers_come_back_in_as_few_bytes_as_they_need(number: int) -> None:
    content = leb128(number)
    assert len(content) == max(1, -(-number.bit_length() // 7))
    reader = Reader(content)
    assert reader.integer() == number
    reader.end()


@pytest.mark.parametrize("number", [-1, 2**70])
def test_numbers_that_cannot_be_written(number: int) -> None:
    with pytest.raises(ValueError, match="from 0 to"):
        leb128(number)


def test_nothing_is_read_beyond_the_end() -> None:
    reader = Reader(b"\x03abc\xff")
    assert reader.take(reader.integer(most=3)) == b"abc"
    with pytest.raises(ValueError, match="bytes behind its end"):
        reader.end()
    with pytest.raises(ValueError, match="too early"):
        reader.integer()
    for count in (-1, 2):
        with pytest.raises(ValueError, match="too early"):
            Reader(b"a").take(count)
    with pytest.raises(ValueError, match="units must be at most 2, got 3"):
        Reader(b"\x03").integer(most=2, what="units")
    with pytest.raises(ValueError, match="more than 10 bytes"):
        Reader(b"\x80" * 20).integer()


def test_a_budget_is_what_all_of_a_file_may_take() -> None:
    assert budget_of(1000).max_bytes == 10**8 + 3000
    assert budget_of(1000, 5).max_bytes == 5
    budget = Budget(100)
    budget.take(60, "the first")
    with pytest.raises(ValueError, match=r"the second takes 41 bytes, and all of it may take 100.*max_bytes="):
        budget.take(41, "the second")
    budget.take(40, "the third")
    with pytest.raises(ValueError, match="negative"):
        budget.take(-1, "nothing")
    with pytest.raises(ValueError, match="must be positive"):
        budget_of(1, 0)


def test_messages_of_strangers_are_one_line() -> None:
    assert one_line("a\n\x1b[31mb\t c\x07") == "a b c"
    assert one_line("x" * 300, 10) == "xxxxxxx..."
    with pytest.raises(ValueError, match=r"^a/b.npz cannot be read as a model \(two lines\); ") as raised:
        refuse_damaged("a/b.npz", "a model", ValueError("two\nlines"))
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(ValueError, match=r"\(EOFError\)"):
        refuse_damaged("a", "a model", EOFError())


@pytest.mark.parametrize("change", [lambda packed: packed[:-1], lambda packed: packed + b"x"])
def test_what_is_inflated_ends_where_it_says(change: Callable[[bytes], bytes]) -> None:
    packed = zlib.compress(b"a" * 1000)
    assert inflated(packed, 1001, "too long") == b"a" * 1000
    with pytest.raises(ValueError, match="too long"):
        inflated(packed, 999, "too long")
    with pytest.raises(ValueError, match="no end"):
        inflated(change(packed), 1001, "no end")
