"""Random codes: the law of the draws by enumeration, sizes, the same weights everywhere, and what strangers write."""

import math
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chi2, kstest, norm

from compression import load_bcz, save_bcz
from compression.__main__ import main
from compression.files.coding.kernel_coding import Reader
from compression.files.container import bcz_bytes, coded_variables, read_bcz
from compression.files.random_codes.random_coding import (
    RandomCode,
    code_bytes,
    draw_index,
    header_bytes,
    index_log_weights,
    near_scale,
    read_code,
    scale_of,
)
from compression.files.random_codes.random_numbers import UNIT, chosen_normals, normal_table
from gpflow_deep_base.storage.frame import leb128

layers = keras.layers


@pytest.fixture
def key(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def draws(key: int, block: int, bits: int, size: int) -> np.ndarray:
    """All standard normal draws of a block, [2**bits, size]."""
    each = [chosen_normals(normal_table(), key, block, np.array([k]), np.array([size])) for k in range(2**bits)]
    return np.array(each) / UNIT


def test_the_index_has_the_law_of_importance_sampling(rng: np.random.Generator, key: int) -> None:
    """By enumeration of the 64 draws of a block of three weights, with SciPy's densities."""
    mean, std, scale = rng.normal(size=3), rng.uniform(0.3, 0.9, size=3), np.array([1.0, 0.5, 2.0])
    w = draws(key, 3, 6, 3) * scale
    exact = np.sum(norm.logpdf(w, mean, std) - norm.logpdf(w, 0, scale), axis=1)
    found = index_log_weights(mean, std, scale, key, 3, 6)
    np.testing.assert_allclose(found - found[0], exact - exact[0], rtol=0, atol=1e-9)
    law, count = np.exp(exact - logsumexp(exact)), 20_000
    seen = np.bincount([draw_index(found, rng) for _ in range(count)], minlength=64)
    likely = law * count > 5
    expected = np.append(law[likely], law[~likely].sum()) * count
    observed = np.append(seen[likely], seen[~likely].sum())
    used = expected > 0
    statistic = np.sum((observed - expected)[used] ** 2 / expected[used])
    assert chi2.sf(statistic, used.sum() - 1) > 1e-6


def test_with_enough_draws_it_is_a_sample_of_the_posterior(rng: np.random.Generator, key: int) -> None:
    """At a KL of 1.2 nats and 2^9 draws: 300 blocks of one weight, by the Kolmogorov-Smirnov test."""
    mean, std, scale = np.array([0.9]), np.array([0.4]), np.array([1.5])
    found = []
    for block in range(300):
        index = draw_index(index_log_weights(mean, std, scale, key, block, 9), rng)
        found.append(chosen_normals(normal_table(), key, block, np.array([index]), np.array([1]))[0] / UNIT * 1.5)
    assert kstest(found, norm(0.9, 0.4).cdf).pvalue > 1e-6


def code_of(rng: np.random.Generator, shapes: tuple[tuple[int, ...], ...], **changes: Any) -> RandomCode:
    given: dict[str, Any] = {"seed": 70_000, "block_bits": 11, "sharing": (1,) * len(shapes), "shapes": shapes}
    code = RandomCode(scales=tuple(range(160, 160 + len(shapes))), indices=rng.integers(0, 2**11, 9), **given)
    return code._replace(**changes)


SHAPES = ((3, 4), (4,), (2, 2, 4, 3), (3,))


@pytest.mark.parametrize("sharing", [(1, 1, 1, 1), (1, 1, 5, 1)])
def test_sizes_and_round_trips(rng: np.random.Generator, sharing: tuple[int, ...]) -> None:
    """The header, and C bits for each block; bytes and weights."""
    code = code_of(rng, SHAPES, sharing=sharing)
    content = code_bytes(code)
    head = 1 + len(leb128(70_000)) + 1 + 4 + (4 if max(sharing) > 1 else 0)
    assert len(header_bytes(code)) == head
    assert len(content) == head + math.ceil(9 * 11 / 8)
    again = read_code(Reader(content), SHAPES)
    np.testing.assert_array_equal(again.indices, code.indices)
    assert again._replace(indices=code.indices) == code
    values = code.values()
    for value, same, shape in zip(values, again.values(), SHAPES, strict=True):
        np.testing.assert_array_equal(value, same)
        assert value.shape == shape
        assert value.dtype == np.float32
    distinct = [len(np.unique(value)) for value in values]
    for count, value, share in zip(distinct, values, sharing, strict=True):
        if share == 1:  # two of 8192 numbers may be equal: five times among 48 with a probability below 1e-6
            assert value.size - 5 < count <= value.size
        else:
            assert count <= math.ceil(value.size / share)


def test_weights_are_draws_from_the_prior(rng: np.random.Generator) -> None:
    """Of whatever indices: mean 0 and the standard deviations of the scales."""
    code = code_of(rng, ((100, 400), (50, 30)), scales=(190, 170), indices=rng.integers(0, 2**11, 300))
    for value, number in zip(code.values(), code.scales, strict=True):
        z = value.ravel() / scale_of(number)
        assert abs(z.mean()) < 6 / np.sqrt(z.size)
        assert abs(np.square(z).mean() - 0.99984) < 6 * np.sqrt(2 / z.size)


def test_scales() -> None:
    assert [scale_of(number) for number in (0, 192, 193, 255)] == [2.0**-24, 1.0, 1.125, 240.0]
    for number in (0, 77, 255):
        assert near_scale(scale_of(number)) == near_scale(1.02 * scale_of(number)) == number
    assert near_scale(0.0) == 0


def test_impossible_codes_are_refused(rng: np.random.Generator) -> None:
    def refused(content: bytes, message: str, shapes: tuple[tuple[int, ...], ...] = SHAPES) -> None:
        with pytest.raises(ValueError, match=message):
            read_code(Reader(content), shapes)

    good = code_bytes(code_of(rng, SHAPES))
    for length in range(len(good)):
        refused(good[:length], "bytes too early")
    refused(b"\0" + good[1:], "has 0 bits a block")
    refused(b"\x19" + good[1:], "has 25 bits a block")
    refused(bytes([11]) + leb128(2**31) + good[4:], "the seed 2147483648")
    refused(bytes([0x80 | 11, 5, 9]) + bytes(4) + b"\1\1\0\1" + bytes(20), "shared weights")
    refused(bytes([11, 5, 0]) + bytes(20), "0 blocks of 67 weights")
    refused(bytes([11, 5, 68]) + bytes(200), "68 blocks of 67 weights")
    refused(bytes([11, 5, 0]), "has 0 weights, and 1 to 33554432 are possible", ())
    refused(bytes([11, 5, 5, 9]) + bytes(20), "has 100000000 weights, and 1 to", ((10_000, 10_000),))
    refused(bytes([11, 5, 5, 9]) + bytes(20), "5 blocks of 1000000 weights", ((1000, 1000),))
    share = bytes([0x80 | 11, 5, 1, 9]) + leb128(10**6) + bytes(20)  # one weight at 10^6 places
    refused(share, "too few for its shared weights", ((1000, 1000),))


@pytest.fixture
def model(rng: np.random.Generator) -> keras.Model:
    """Layers of which all, some and no weights are coded."""
    inputs = keras.Input([8, 8, 1])
    h = layers.Conv2D(3, 3, activation="relu")(inputs)
    h = layers.Flatten()(layers.BatchNormalization()(h))
    outputs = layers.Add()([layers.Dense(4)(h), layers.Dense(4, use_bias=False)(h)])
    model = keras.Model(inputs, outputs)
    model.set_weights([rng.uniform(0.5, 1, size=w.shape).astype(np.float32) for w in model.get_weights()])
    return model


def coded(model: keras.Model, rng: np.random.Generator) -> RandomCode:
    return code_of(rng, tuple(tuple(variable.shape) for variable in coded_variables(model)))


def test_files_hold_codes(
    model: keras.Model, tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    path, code = tmp_path / "n.bcz", coded(model, rng)
    size = save_bcz(model, path, code)
    assert read_bcz(path).version == 5
    assert size == len(bcz_bytes(model, code._replace(indices=code.indices[:1]))) + math.ceil(9 * 11 / 8) - 2
    loaded, values = load_bcz(path), iter(code.values())
    for new, old in zip(loaded.layers, model.layers, strict=True):
        for a, b in zip(new.weights, old.weights, strict=True):
            expected = b if isinstance(old, layers.BatchNormalization) else next(values)
            np.testing.assert_array_equal(a, expected)
    assert next(values, None) is None
    assert main(["info", str(path)]) == 0
    assert "random code" in capsys.readouterr().out
    with pytest.raises(ValueError, match="the code must be of kernels and biases"):
        save_bcz(model, path, code_of(rng, SHAPES))


def test_a_file_of_today_is_read_for_ever(tmp_path: Path) -> None:
    """Its bytes, and the checksum of its weights."""
    model = keras.Sequential([keras.Input([5]), layers.Dense(7, "relu"), layers.Dense(2)])
    code = RandomCode(3, 10, (180, 170, 185, 171), (1, 1, 2, 1), np.arange(0, 1000, 200), ((5, 7), (7,), (7, 2), (2,)))
    content = bcz_bytes(model, code)
    assert content.hex() == FILE
    (tmp_path / "n.bcz").write_bytes(content)
    weights = b"".join(w.astype("<f4").tobytes() for w in load_bcz(tmp_path / "n.bcz").get_weights())
    assert zlib.crc32(weights) == WEIGHTS


@pytest.mark.slow
@pytest.mark.ci
def test_a_new_process_gives_the_same_bits(model: keras.Model, tmp_path: Path, rng: np.random.Generator) -> None:
    save_bcz(model, tmp_path / "n.bcz", coded(model, rng))
    program = (
        "import sys, zlib, compression as bc\n"
        "print(zlib.crc32(b''.join(w.tobytes() for w in bc.load(sys.argv[1]).get_weights())))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "n.bcz")], capture_output=True, text=True, check=True
    )
    here = zlib.crc32(b"".join(w.tobytes() for w in load_bcz(tmp_path / "n.bcz").get_weights()))
    assert int(run.stdout.split()[-1]) == here


FILE = "8942435a05aefc64849a0105020007210002208a0305b4aab9ab01010201000c864258c800"
WEIGHTS = 2805197615
