"""Codes of earlier files: round trips, sizes between the entropy and one bit more, the best by enumeration, damage."""

import itertools

import numpy as np
import pytest

from compression.entropy_coding import MAX_LENGTH, decode, decode_adaptive, entropy_bits
from tests.compression.adaptive import encode_adaptive
from tests.compression.huffman import code_lengths, encode


@pytest.mark.parametrize("k", [2, 3, 16, 200])
@pytest.mark.parametrize("skew", [0.0, 1.0, 8.0])
def test_round_trip_within_the_entropy_and_a_bit(rng: np.random.Generator, k: int, skew: float) -> None:
    p = np.exp(-skew * np.arange(k) / k)
    symbols = rng.choice(k, size=5000, p=p / p.sum())
    counts = np.bincount(symbols, minlength=k)
    lengths = code_lengths(counts)
    stream = encode(symbols, lengths)
    np.testing.assert_array_equal(decode(stream, lengths, 5000), symbols)
    bits = int(np.sum(counts * lengths))
    assert len(stream) == -(-bits // 8)
    assert 5000 * entropy_bits(counts) <= bits < 5000 * (entropy_bits(counts) + 1)


def test_lengths_of_a_code_by_hand() -> None:
    assert code_lengths([8, 4, 2, 1, 1]).tolist() == [1, 2, 3, 4, 4]
    assert code_lengths([0, 5, 0, 5]).tolist() == [0, 1, 0, 1]
    # Words 0, 10, 110, 1110, 1111 of the symbols 0, 1, 4: 0 10 1111
    assert encode([0, 1, 4], [1, 2, 3, 4, 4]) == bytes([0b01011110])


def test_lengths_are_the_best_of_all_complete_codes(rng: np.random.Generator) -> None:
    counts = rng.integers(1, 50, size=5)
    lengths = itertools.product(range(1, 5), repeat=5)
    best = min(int(np.dot(counts, L)) for L in lengths if sum(2.0**-length for length in L) == 1.0)
    assert int(np.dot(counts, code_lengths(counts))) == best


def test_lengths_are_limited_where_huffman_codes_would_be_longer() -> None:
    fibonacci = [1, 1]
    while len(fibonacci) < 25:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    lengths = code_lengths(fibonacci)
    assert lengths.max() == MAX_LENGTH
    assert sum(2.0 ** -lengths.astype(float)) == 1.0
    symbols = np.arange(25)
    np.testing.assert_array_equal(decode(encode(symbols, lengths), lengths, 25), symbols)


def test_one_symbol_takes_no_bits() -> None:
    lengths = code_lengths([0, 7, 0])
    assert encode([1] * 7, lengths) == b""
    assert decode(b"", lengths, 7).tolist() == [1] * 7
    with pytest.raises(ValueError, match="empty stream, got 1 bytes"):
        decode(b"x", lengths, 7)


def test_no_symbols_at_all() -> None:
    assert encode([], [1, 1]) == b""
    assert decode(b"", [1, 1], 0).tolist() == []


def test_streams_of_another_length_are_refused(rng: np.random.Generator) -> None:
    symbols = rng.integers(0, 4, size=100)
    lengths = code_lengths(np.bincount(symbols))
    stream = encode(symbols, lengths)
    for wrong, count in ((stream[:-1], 100), (stream + b"\0", 100), (b"", 100), (stream, 50)):
        with pytest.raises(ValueError, match="the stream"):
            decode(wrong, lengths, count)


def test_lengths_that_are_no_code_are_refused() -> None:
    with pytest.raises(ValueError, match="complete prefix code"):
        decode(b"\0", [1, 1, 1], 1)
    with pytest.raises(ValueError, match="0 to 15"):
        decode(b"\0", [0, 0], 1)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 30.0, 1e5, 1e8])
def test_adaptive_round_trip(rng: np.random.Generator, scale: float) -> None:
    for size in (0, 1, 2, 17, 500):
        values = np.round(rng.normal(size=size) * scale).astype(np.int64)
        np.testing.assert_array_equal(decode_adaptive(encode_adaptive(values), size), values)


def test_adaptive_coding_of_many_short_streams(rng: np.random.Generator) -> None:
    """Short streams end in every way that the last bytes and a carry can."""
    for _ in range(500):
        values = np.round(rng.normal(size=rng.integers(1, 12)) * 10 ** rng.uniform(-1, 3)).astype(np.int64)
        np.testing.assert_array_equal(decode_adaptive(encode_adaptive(values), len(values)), values)


def test_carries_run_through_full_bytes() -> None:
    """Decisions that follow the upper end of the interval put bytes of 255 before a carry."""
    for count in range(1, 60):
        values = [-(2**31 - 1)] * count + [0, 1] * 3
        assert decode_adaptive(encode_adaptive(values), len(values)).tolist() == values


@pytest.mark.parametrize(("zeros", "scale"), [(0.0, 4.0), (0.98, 4.0), (0.5, 1.0)])
def test_adaptive_size_is_close_to_the_entropy(rng: np.random.Generator, zeros: float, scale: float) -> None:
    """Each decision that is learned costs (log2 N) / 2 + 1 bits (Krichevsky and Trofimov) above the entropy."""
    N = 20_000
    values = np.round(rng.normal(size=N) * scale).astype(np.int64) * (rng.uniform(size=N) >= zeros)
    different, counts = np.unique(values, return_counts=True)
    decisions = len(different) + int(np.abs(values).max()).bit_length() + 1
    least = N * entropy_bits(counts) / 8
    assert least < len(encode_adaptive(values)) <= least + decisions * (np.log2(N) / 2 + 1) / 8 + 4


def test_zeros_take_next_to_nothing() -> None:
    assert len(encode_adaptive(np.zeros(100_000, int))) <= 2
