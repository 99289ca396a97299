"""Integer arithmetic of a DARN: that of Python's integers, close to the float model, the same however it is run."""

import fractions
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from darn.codec.integer_model import (
    PRECISION_BITS,
    Exact,
    IntegerLayer,
    IntegerModel,
    logit_index,
    probability_table,
    tanh_table,
)
from darn.model.config import LocalConfig
from darn.model.model import DARN, DARNConfig

M = 1 << PRECISION_BITS

LOCAL = LocalConfig((6, 5), (4, 2), (2, 1), (3, 2), period=2, visible_kernel=5, visible_period=3)
CONFIGS = {
    "factorial": DARNConfig(30, (12,), prior="factorial"),
    "visible": DARNConfig(30, (), visible_conditional="linear"),
    "linear": DARNConfig(30, (12,), visible_conditional="linear", encoder="linear"),
    "tanh": DARNConfig(30, (12,), (9, 7), visible_conditional="linear"),
    "relu": DARNConfig(30, (12,), (9,), activation="relu"),
    "deep": DARNConfig(30, (12, 8, 5), (9,), skip=True, encoder="linear"),
    "made": DARNConfig(30, (12,), visible_conditional="made", encoder="made", prior="made", conditional_units=9),
    "nade": DARNConfig(30, (12,), visible_conditional="nade", encoder="nade", prior="nade", conditional_units=9),
    "one order": DARNConfig(30, (12,), visible_conditional="eonade", prior="eonade", conditional_units=9, orders=1),
    "window": DARNConfig(30, (12,), local=LOCAL, visible_conditional="local"),
    "deep float64": DARNConfig(30, (12, 8, 5), dtype="float64"),
}


def random_model(config: DARNConfig, rng: np.random.Generator, scale: float = 0.5) -> DARN:
    """A model with all weights drawn."""
    model = DARN(config, seed=1)
    for variable in model.trainable_variables:
        variable.assign(scale * rng.normal(size=variable.shape))
    model.visible_mean.assign(rng.random(config.visible))
    return model


def random_bits(rng: np.random.Generator, n: int, B: int) -> np.ndarray:
    return rng.integers(0, 2, (n, B), np.uint8)


def layers(integer: IntegerModel) -> list[IntegerLayer]:
    return [*integer.encoders, *integer.decoders]


def all_logits(integer: IntegerModel, bits: list[np.ndarray], batch_size: int) -> list[np.ndarray]:
    """Of the encoder's layers, then of the decoder's."""
    wiring, num = integer.wiring, bits[0].shape[1]
    found = []
    for level, layer in enumerate(integer.encoders, start=1):
        offset = integer.encoder_offset(level, wiring.seen_below(bits, level), batch_size)
        found.append(layer.logits(bits[level], offset, batch_size))
    for level, layer in enumerate(integer.decoders):
        offset = integer.decoder_offset(level, wiring.seen_above(bits, level), num, batch_size)
        found.append(layer.logits(bits[level], offset, batch_size))
    return found


def test_probability_table() -> None:
    table = probability_table()
    logits = np.arange(0, 14 * 256 + 1) / 256
    assert len(table) == len(logits)
    np.testing.assert_allclose(table, np.maximum(M / (1 + np.exp(logits)), 1), atol=0.5 + 1e-6)
    assert np.all(np.diff(table) <= 0)
    assert (table.min(), table[0]) == (1, M // 2)
    places = logit_index(np.array([0.0, -1.0, 1.0, 1.0 + 0.4 / 256, -1.0 - 0.6 / 256, 99.0, -1e9]))
    np.testing.assert_array_equal(places, [0, 256, 256, 256, 257, 14 * 256, 14 * 256])


def test_tanh_table() -> None:
    table = tanh_table()
    inputs = np.arange(-6 * 1024, 6 * 1024 + 1) / 1024
    np.testing.assert_allclose(table, 4096 * np.tanh(inputs), atol=0.5 + 1e-8)
    np.testing.assert_array_equal(table, -table[::-1])
    assert (table[0], table[-1]) == (-4096, 4096)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_the_float_model(rng: np.random.Generator, name: str) -> None:
    """Weights are rounded to 2^-13 or finer here, tanh units to 2^-13, their inputs to 2^-11; logits move by 0.01."""
    model = random_model(CONFIGS[name], rng)
    integer = IntegerModel(model)
    bits = [random_bits(rng, n, 40) for n in integer.wiring.sizes]
    x, *h = (tf.constant(part.T, model.dtype) for part in bits)
    expected = list(model.encoder_logits(x, h))
    for level, layer in enumerate(model.decoders):
        parents = [2.0 * h[above - 1] - 1.0 for above in integer.wiring.above(level)]
        offset = layer.offset(tf.concat(parents, -1)) if parents else None
        expected.append(layer.conditional.logits((x, *h)[level], offset))
    ours = all_logits(integer, bits, 40)
    assert len(ours) == len(expected) == len(integer.encoders) + len(integer.decoders)
    for a, b in zip(ours, expected, strict=True):
        assert np.std(a) > 0.2
        np.testing.assert_allclose(a.T, b, atol=0.02)


@pytest.mark.parametrize("name", CONFIGS)
def test_bit_by_bit_is_all_at_once(rng: np.random.Generator, name: str) -> None:
    """The logits that bits are drawn with one after the other are, in every digit, those of the known bits."""
    for layer in layers(IntegerModel(random_model(CONFIGS[name], rng))):
        offset, seen = rng.integers(-500, 500, (layer.n, 6)) / 256.0, list[np.ndarray]()

        def draw(logits: np.ndarray, seen: list[np.ndarray] = seen) -> np.ndarray:
            seen.append(logits)
            return random_bits(rng, len(logits), 6)

        bits = layer.draw(offset, draw)
        assert len(seen) == (layer.n if layer.is_sequential else 1)
        np.testing.assert_array_equal(np.concatenate(seen), layer.logits(bits, offset, 4))


@pytest.mark.parametrize("name", ["linear", "deep float64"])
def test_sums_are_exact(rng: np.random.Generator, name: str) -> None:
    """Against Python's integers; the weights are recomputed from the model by fractions."""
    model = random_model(CONFIGS[name], rng)
    integer = IntegerModel(model)
    layer, of_model = integer.encoders[0], model.encoders[0]
    x = random_bits(rng, 30, 5)
    bits = layer.sums[-1].bits
    scale = 1 << bits
    kernel = of_model.network.kernels[0].numpy().astype(np.float64)
    mean, bias = model.visible_mean.numpy().astype(np.float64), of_model.conditional.bias.numpy().astype(np.float64)
    K = [[round(fractions.Fraction(value) * scale) for value in row] for row in kernel.tolist()]
    m = [round(fractions.Fraction(value) * (1 << 16)) for value in mean.tolist()]
    offset = layer.offset(x, 2) * scale
    for j in range(12):
        shift = (sum(m[i] * K[i][j] for i in range(30)) + (1 << 15)) >> 16
        constant = round(fractions.Fraction(float(bias[j])) * scale) - shift
        for b in range(5):
            assert int(offset[j, b]) == constant + sum(K[i][j] for i in range(30) if x[i, b])


@pytest.mark.parametrize("name", CONFIGS)
def test_limits_hold_for_any_input(rng: np.random.Generator, name: str) -> None:
    """Inputs chosen to make the sums as large as possible stay within the limit that was checked."""
    for layer in layers(IntegerModel(random_model(CONFIGS[name], rng, 3.0))):
        for sums in layer.sums:
            assert sums.limit < 2.0 ** (24 if sums.dtype is np.float32 else 53)
            if isinstance(sums.kernel, np.ndarray) and len(layer.sums) == 1:
                worst = (sums.kernel > 0).T.astype(np.uint8)  # a column for each output
                reached = np.abs(sums(Exact(worst, 0), 7).integers).max()
                assert 0.2 * sums.limit < reached <= sums.limit


def test_small_weights_are_computed_in_float32(rng: np.random.Generator) -> None:
    assert {layer.sums[0].dtype for layer in layers(IntegerModel(random_model(CONFIGS["linear"], rng)))} == {np.float32}
    large = random_model(CONFIGS["linear"], rng, 1e5)
    assert {layer.sums[0].dtype for layer in layers(IntegerModel(large))} == {np.float64}


@pytest.mark.parametrize("name", ["linear", "deep", "relu", "made", "window"])
def test_batch_size_changes_nothing(rng: np.random.Generator, name: str) -> None:
    integer = IntegerModel(random_model(CONFIGS[name], rng))
    bits = [random_bits(rng, n, 23) for n in integer.wiring.sizes]
    whole = all_logits(integer, bits, 100)
    for batch_size in (1, 5, 23):
        for a, b in zip(all_logits(integer, bits, batch_size), whole, strict=True):
            np.testing.assert_array_equal(a, b)


def test_digest_says_whether_models_are_equal(rng: np.random.Generator) -> None:
    model = random_model(CONFIGS["deep"], rng)
    before = IntegerModel(model).digest
    assert IntegerModel(model).digest == before
    bias = model.encoders[2].conditional.bias
    bias.assign(bias + tf.one_hot(3, 5) * 0.01)
    assert IntegerModel(model).digest != before


_DIGEST_OF_PROBABILITIES = """
import hashlib, sys
import numpy as np, tensorflow as tf
from darn.codec.integer_model import IntegerModel
from darn.model.config import LocalConfig
from darn.model.model import DARN, DARNConfig
model = DARN(DARNConfig(300, (150, 80), (60,)), seed=3)
if sys.argv[1] == "graph":
    tf.config.run_functions_eagerly(False)
integer = IntegerModel(model)
bits = [np.random.default_rng(0).integers(0, 2, (n, 64), np.uint8) for n in integer.wiring.sizes]
digest = hashlib.sha256(integer.digest)
for level in range(3):
    above = integer.wiring.seen_above(bits, level)
    digest.update(integer.decoder_offset(level, above, 64, int(sys.argv[2])).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_threads_change_nothing() -> None:
    """In processes of their own, with different numbers of BLAS threads and batch sizes."""
    found = set()
    for threads, batch_size in (("1", "64"), ("2", "64"), ("2", "7")):
        env = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-c", _DIGEST_OF_PROBABILITIES, "eager", batch_size]
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, cwd=root)
        found.add(done.stdout.split()[-1])
    assert len(found) == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (DARNConfig(6, (4,), prior="eonade"), "decoder 1, own bits: a mixture over several orders .* cannot be coded"),
        (DARNConfig(6, (4,), observations="intensities"), "only models of binary data can code"),
    ],
)
def test_models_that_cannot_be_coded(config: DARNConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IntegerModel(DARN(config))


@pytest.mark.parametrize(("value", "message"), [(1e15, "do not fit into 53 bits"), (math.nan, "must be finite")])
def test_bad_weights(value: float, message: str) -> None:
    model: Any = DARN(CONFIGS["linear"])
    model.prior.bias.assign(tf.fill([12], value))
    with pytest.raises(ValueError, match=message):
        IntegerModel(model)


def test_inexact_products() -> None:
    """A BLAS that multiplies numbers of 8 digits, as bfloat16 has them, is found out."""
    integer = IntegerModel(DARN(CONFIGS["linear"], seed=1))
    sums = integer.encoders[0].sums[0]
    sums.check_products(1.0)

    class Rounded(np.ndarray):
        def __matmul__(self, other: Any) -> Any:
            exact = np.asarray(self)
            if exact.dtype.kind == "i":
                return exact @ other
            unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), 1))) - 7)
            return (exact // unit * unit) @ other

    sums.kernel = sums.kernel.view(Rounded)
    with pytest.raises(ValueError, match="are not exact here"):
        sums.check_products(1.0)
