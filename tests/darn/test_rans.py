"""The coder against its own inverse, the entropy, plain Python integers, and its compiled twin."""

import functools

import numpy as np
import pytest

from darn import rans
from darn.rans import PRECISION_BITS, RansCoder, compiled_kernels, entropy_bits

M = 1 << PRECISION_BITS
ENGINES = ["numpy"] + ["numba"] * (compiled_kernels() is not None)


def random_symbols(rng: np.random.Generator, n: int, B: int, spread: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    """Bits [n, B] and their frequencies, among them the smallest and the largest one."""
    frequencies = np.clip(np.rint(M / (1 + np.exp(-spread * rng.normal(size=(n, B))))), 1, M - 1).astype(np.int32)
    frequencies[rng.random((n, B)) < 0.02] = 1
    frequencies[rng.random((n, B)) < 0.02] = M - 1
    return (rng.random((n, B)) < frequencies / M).astype(np.uint8), frequencies


def plain_push(state: int, stack: list[int], bit: int, frequency: int) -> int:
    """One lane in Python's integers, from the definition."""
    F, C = (frequency, M - frequency) if bit else (M - frequency, 0)
    while state >= F << 28:
        stack.append(state & 255)
        state >>= 8
    return (state // F) * M + C + state % F


@pytest.mark.parametrize("engine", ENGINES)
def test_one_lane_is_the_definition(rng: np.random.Generator, engine: str) -> None:
    bits, frequencies = random_symbols(rng, 300, 1)
    bits[::7] ^= 1  # improbable symbols, too, that move two or three bytes
    coder = RansCoder(12345, engine)
    coder.push(bits, frequencies)
    state = (1 << 40) + 12345
    stack: list[int] = []
    for bit, frequency in zip(bits[:, 0].tolist(), frequencies[:, 0].tolist(), strict=True):
        state = plain_push(state, stack, bit, frequency)
    assert coder.to_bytes() == bytes(stack) + state.to_bytes(6, "little")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", range(12))
def test_round_trip(rng: np.random.Generator, engine: str, case: int) -> None:
    """Random shapes and lanes, pushes in several parts, through bytes; the last group of images may be smaller."""
    num_lanes, initial = int(rng.integers(1, 40)), int(rng.integers(1 << 40))
    parts = [random_symbols(rng, int(rng.integers(1, 60)), int(rng.integers(1, 90))) for _ in range(4)]
    for bits, _ in parts:
        bits[rng.random(bits.shape) < 0.05] ^= 1
    coder = RansCoder(initial, engine)
    coder.set_lanes(num_lanes)
    for bits, frequencies in parts:
        coder.push(bits, frequencies)
    decoder = RansCoder.from_bytes(coder.to_bytes(), num_lanes, engine)
    for bits, frequencies in reversed(parts):
        np.testing.assert_array_equal(decoder.pop(frequencies[::-1]), bits[::-1])
    decoder.set_lanes(1)
    assert decoder.check_finished() == initial


@pytest.mark.parametrize("engine", ENGINES)
def test_popping_first_and_pushing_back(rng: np.random.Generator, engine: str) -> None:
    """Bits back: symbols come out of any stack, of the seed if it is empty, and go back in."""
    _, frequencies = random_symbols(rng, 80, 30)
    coder = RansCoder(7, engine)
    before = coder.to_bytes()
    coder.set_lanes(5)
    bits = coder.pop(frequencies)
    in_between = coder.to_bytes()
    assert len(in_between) > len(before)  # what was read of the seed is in the file
    decoder = RansCoder.from_bytes(in_between, 5, engine)
    decoder.push(bits[::-1], frequencies[::-1])
    decoder.set_lanes(1)
    assert decoder.check_finished() == 7


@pytest.mark.parametrize("engine", ENGINES)
def test_popped_bits_have_their_probabilities(rng: np.random.Generator, engine: str) -> None:
    """2000 columns from random bytes: no unit is 6 standard deviations away from its probability."""
    p = np.array([0.01, 0.3, 0.5, 0.9])
    coder = RansCoder(engine=engine)
    coder.set_lanes(16)
    coder.push(rng.integers(0, 2, (400, 160), np.uint8), np.full((400, 160), M // 2))
    bits = coder.pop(np.repeat(np.rint(p[:, None] * M).astype(np.int32), 2000, axis=1))
    assert np.all(np.abs(bits.mean(axis=1) - p) < 6 * np.sqrt(p * (1 - p) / 2000))


@pytest.mark.parametrize("num_lanes", [1, 33])
def test_length_is_the_entropy(rng: np.random.Generator, num_lanes: int) -> None:
    """Within 2^-19 bits a symbol for the bits held, and within the unused part of the states for the bytes."""
    bits, frequencies = random_symbols(rng, 500, 66)
    coder = RansCoder()
    coder.set_lanes(num_lanes)
    before = coder.num_bits
    coder.push(bits, frequencies)
    entropy = entropy_bits(bits, frequencies)
    assert entropy > 5000
    assert abs(coder.num_bits - before - entropy) < bits.size * 2.0**-19
    assert 0 <= 8 * len(coder.to_bytes()) - before - entropy < 8 * num_lanes + 1


@pytest.mark.skipif(len(ENGINES) == 1, reason="needs Numba")
@pytest.mark.parametrize("num_lanes", [1, 2, 17, 200])
def test_engines_give_the_same_bytes(rng: np.random.Generator, num_lanes: int) -> None:
    bits, frequencies = random_symbols(rng, 60, 150)
    bits[rng.random(bits.shape) < 0.05] ^= 1
    coders = [RansCoder(engine=engine) for engine in ENGINES]
    for coder in coders:
        coder.set_lanes(num_lanes)
        coder.push(bits, frequencies)
        coder.pop(frequencies[:37, :101])
    assert coders[0].to_bytes() == coders[1].to_bytes()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("dtype", "n"), [(np.float32, 70), (np.float64, 30)])
def test_dependent_bits(rng: np.random.Generator, engine: str, dtype: type, n: int) -> None:
    """Push bits whose logits are known, and pop them with logits that grow bit by bit."""
    B, num_lanes, scale = 21, 8, 0.25
    table = np.clip(np.rint(M / (1 + np.exp(-np.arange(-400, 401) / 50))), 1, M - 1).astype(np.int32)
    earlier: np.ndarray = np.triu(np.rint(300 * rng.normal(size=(n, n))), 1).astype(dtype)
    logits = np.rint(800 * rng.normal(size=(n, B))).astype(dtype)
    bits = rng.integers(0, 2, (n, B), np.uint8)
    full = logits + earlier.T @ bits.astype(dtype)
    frequencies = table[np.clip(np.floor(scale * full.astype(np.float64) + 400.5), 0, 800).astype(int)]
    coder = RansCoder(3, engine)
    coder.set_lanes(num_lanes)
    coder.push(bits[::-1], frequencies[::-1])
    decoder = RansCoder.from_bytes(coder.to_bytes(), num_lanes, engine)
    np.testing.assert_array_equal(decoder.pop_linear(logits, earlier, table, scale), bits)
    decoder.set_lanes(1)
    assert decoder.check_finished() == 3


def test_lanes_come_and_go(rng: np.random.Generator) -> None:
    bits, frequencies = random_symbols(rng, 200, 6)
    coder = RansCoder(5)
    coder.push(bits, frequencies)
    before = coder.to_bytes()
    for num_lanes in (4, 10, 3, 1):
        coder.set_lanes(num_lanes)
    assert coder.to_bytes() == before


def test_decoding_past_the_end(rng: np.random.Generator) -> None:
    bits, frequencies = random_symbols(rng, 20, 4)
    coder = RansCoder()
    coder.push(bits, frequencies)
    decoder = RansCoder.from_bytes(coder.to_bytes(), 1)
    with pytest.raises(ValueError, match="end too early"):
        decoder.pop(np.full((2000, 4), M // 2))


def test_damaged_states() -> None:
    with pytest.raises(ValueError, match="at least 12 bytes, got 5"):
        RansCoder.from_bytes(b"12345", 2)
    with pytest.raises(ValueError, match="out of its range"):
        RansCoder.from_bytes(bytes(6), 1)
    with pytest.raises(ValueError, match="bytes are left"):
        RansCoder.from_bytes(b"x" + (1 << 40).to_bytes(6, "little"), 1).check_finished()
    decoder = RansCoder.from_bytes(2 * (1 << 47).to_bytes(6, "little"), 2)
    with pytest.raises(ValueError, match="more than its first 40 bits"):
        decoder.set_lanes(1)


def test_bad_input() -> None:
    coder = RansCoder()
    with pytest.raises(ValueError, match="must both be"):
        coder.push(np.zeros((2, 3), np.uint8), np.ones((3, 2), np.int32))
    for frequency in (0, M):
        with pytest.raises(ValueError, match="from 1 to 2"):
            coder.push(np.zeros((1, 1), np.uint8), np.full((1, 1), frequency))
    with pytest.raises(ValueError, match="num_lanes must be at least 1"):
        coder.set_lanes(0)
    with pytest.raises(ValueError, match="initial must be"):
        RansCoder(1 << 40)
    with pytest.raises(ValueError, match="engine must be one of"):
        RansCoder(engine="fast")


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rans, "compiled_kernels", functools.cache(lambda: None))
    with pytest.raises(ValueError, match="needs Numba"):
        RansCoder(engine="numba")
    RansCoder(engine="auto").push(np.ones((1, 1), np.uint8), np.full((1, 1), 5))
