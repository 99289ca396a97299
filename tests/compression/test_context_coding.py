"""Matrices coded with contexts: round trips in every order, sizes against entropies, streams from strangers."""

import numpy as np
import pytest

from compression.files.coding.context_coding import decode_matrix, encode_matrix, most_numbers
from tests.compression.oracles import entropy_bits

STRIDES = [(0, 0), (1, 7), (3, 12)]


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("strides", STRIDES)
def test_round_trip(rng: np.random.Generator, strides: tuple[int, int], by_rows: bool) -> None:
    for shape, scale in (((0, 3), 1), ((1, 1), 5), ((5, 4), 0.3), ((90, 70), 0.5), ((30, 40), 1e3), ((9, 9), 3e8)):
        values = np.clip(np.round(rng.normal(size=shape) * scale), -(2**31) + 1, 2**31 - 1).astype(np.int64)
        stream = encode_matrix(values, strides=strides, by_rows=by_rows)
        np.testing.assert_array_equal(decode_matrix(stream, shape, strides=strides, by_rows=by_rows), values)


def test_many_short_matrices(rng: np.random.Generator) -> None:
    """Short streams end in every way that the last bytes can."""
    for _ in range(300):
        shape = (int(rng.integers(1, 5)), int(rng.integers(1, 4)))
        values = np.round(rng.normal(size=shape) * 10 ** rng.uniform(-1, 4)).astype(np.int64)
        np.testing.assert_array_equal(decode_matrix(encode_matrix(values), shape), values)


def test_the_bytes_of_a_matrix_never_change() -> None:
    """Files of today have to be read by every later release, on each machine."""
    values = np.array([[0, 1, 0, -2], [0, 0, 3, 0], [7, 0, 0, -100], [0, 0, 0, 1], [0, 2**31 - 1, 0, 0]])
    assert encode_matrix(values).hex() == GOLDEN[0]
    assert encode_matrix(values, strides=(1, 2), by_rows=True).hex() == GOLDEN[1]


GOLDEN = ("4a9b28f164912363c8007f0090d9c1", "77f6bbc6df1d7ca983f71ea230")


def test_unstructured_numbers_take_their_entropy(rng: np.random.Generator) -> None:
    """At most a twentieth more, and 100 bytes to learn: contexts cannot help, and must not cost."""
    for zeros, scale in ((0.98, 4.0), (0.5, 1.0), (0.0, 3.0)):
        values = np.round(rng.normal(size=(200, 150)) * scale).astype(int) * (rng.uniform(size=(200, 150)) >= zeros)
        least = values.size * entropy_bits(np.unique(values, return_counts=True)[1]) / 8
        assert 0.99 * least < len(encode_matrix(values)) < 1.05 * least + 100


def test_structure_is_used(rng: np.random.Generator) -> None:
    """Full rows, full columns and patches of an image take much less than the entropy of single numbers."""
    by_row = rng.uniform(size=(28 * 28, 60)) < np.where(rng.uniform(size=(28 * 28, 1)) < 0.1, 0.3, 0.001)
    patches = np.zeros((28, 28, 60), bool)
    for unit, (y, x) in enumerate(rng.integers(0, 25, size=(60, 2))):
        patches[y : y + 3, x : x + 3, unit] = True
    for matrix, strides, part in (
        (by_row, (0, 0), 0.75),
        (by_row.T, (0, 0), 0.75),
        (patches.reshape(28 * 28, 60), (1, 28), 0.5),
    ):
        least = matrix.size * entropy_bits(np.bincount(matrix.ravel())) / 8
        assert len(encode_matrix(matrix, strides=strides)) < part * least


def test_zeros_take_next_to_nothing() -> None:
    assert len(encode_matrix(np.zeros((1000, 100), int))) <= 40
    with pytest.raises(ValueError, match=r"below 2\*\*31 in size"):
        encode_matrix([[2**31]])
    with pytest.raises(ValueError, match=r"a matrix .* got the shape \(3,\)"):
        encode_matrix([1, 2, 3])


@pytest.mark.parametrize("strides", [(3, 3), (4, 2), (0, 2), (-1, 2)])
def test_neighbours_come_before_a_number(strides: tuple[int, int]) -> None:
    """Else a number would be coded by itself, or one outside of the matrix be read."""
    values = np.ones((5, 2), int)
    for run in (lambda: encode_matrix(values, strides=strides), lambda: decode_matrix(b"aaa", (5, 2), strides=strides)):
        with pytest.raises(ValueError, match=rf"0 < left < above rows .* got {strides[0]} and {strides[1]}\."):
            run()


def test_any_stream_is_decoded_or_refused(rng: np.random.Generator) -> None:
    for length in rng.integers(0, 60, size=50):
        stream = rng.bytes(int(length))
        try:
            assert decode_matrix(stream, (20, 10), strides=(1, 5)).shape == (20, 10)
        except ValueError as error:
            assert "too large" in str(error)  # noqa: PT017
    with pytest.raises(ValueError, match="0 bytes is too short for 10000 x 1000 numbers"):
        decode_matrix(b"", (10_000, 1000))
    assert most_numbers(bytes(1000)) < 2**27


@pytest.mark.slow
def test_a_million_numbers_a_second(rng: np.random.Generator) -> None:
    """A tenth of it on a machine that does other things, too."""
    import time

    shape = (1000, 1000)
    values = (rng.uniform(size=shape) < 0.05).astype(int)
    stream = encode_matrix(values[:10])
    start = time.process_time()
    stream = encode_matrix(values)
    decode_matrix(stream, shape)
    assert 2 * values.size / (time.process_time() - start) > 1e5
