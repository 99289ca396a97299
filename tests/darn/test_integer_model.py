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

from darn.integer_model import IntegerLayer, IntegerModel, probability_table, tanh_table
from darn.model import DARN, DARNConfig
from darn.rans import PRECISION_BITS

M = 1 << PRECISION_BITS

CONFIGS = {
    "factorial": DARNConfig(30, (12,), prior="factorial"),
    "visible": DARNConfig(30, (), visible_conditional="linear"),
    "linear": DARNConfig(30, (12,), visible_conditional="linear", encoder="linear"),
    "tanh": DARNConfig(30, (12,), (9, 7), visible_conditional="linear"),
    "relu": DARNConfig(30, (12,), (9,), activation="relu"),
    "deep": DARNConfig(30, (12, 8, 5), (9,), skip=True, encoder="linear"),
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
    return [*integer.encoders, *integer.decoders, *([integer.prior] if integer.prior else [])]


def test_probability_table() -> None:
    table = probability_table()
    logits = np.arange(-14 * 256, 14 * 256 + 1) / 256
    assert len(table) == len(logits)
    np.testing.assert_allclose(table, np.clip(M / (1 + np.exp(-logits)), 1, M - 1), atol=0.5 + 1e-6)
    assert table[len(table) // 2] == M // 2
    np.testing.assert_array_equal(table + table[::-1], M)
    assert np.all(np.diff(table) >= 0)
    assert (table.min(), table.max()) == (1, M - 1)


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
    x, h = random_bits(rng, 30, 40), [random_bits(rng, n, 40) for n in integer.hidden]
    as_floats = [tf.constant(bits.T, model.dtype) for bits in (x, *h)]
    expected = list(model.encoder_logits(as_floats[0], as_floats[1:]))
    ours = [
        layer.logits(h[level], layer.offset(integer.below(x, h, level), 40), 40) * 2.0**-layer.bits
        for level, layer in enumerate(integer.encoders)
    ]
    expected.append(model.visible_logits(as_floats[0], as_floats[1:]))
    for level, layer in enumerate(integer.decoders):
        bits = (x, *h)[level]
        parents = integer.above(h, level) if h else x[:0]
        ours.append(layer.logits(bits, layer.offset(parents, 40), 40) * 2.0**-layer.bits)
        if level:
            parents = (
                2.0 * tf.concat(as_floats[level + 1 :] if integer.skip else as_floats[level + 1 : level + 2], -1) - 1
            )
            layer_of_model = model.decoders[level]
            expected.append(layer_of_model.conditional.logits(as_floats[level], layer_of_model.offset(parents)))
    assert len(ours) == len(expected) == len(integer.encoders) + len(integer.decoders)
    for a, b in zip(ours, expected, strict=True):
        assert np.std(a) > 0.5
        np.testing.assert_allclose(a.T, b, atol=0.02)


@pytest.mark.parametrize("name", ["linear", "deep float64"])
def test_sums_are_exact(rng: np.random.Generator, name: str) -> None:
    """Against Python's integers; the weights are recomputed from the model by fractions."""
    model = random_model(CONFIGS[name], rng)
    integer = IntegerModel(model)
    layer, of_model = integer.encoders[0], model.encoders[0]
    x = random_bits(rng, 30, 5)
    scale = 1 << layer.bits
    kernel = of_model.network.kernels[0].numpy().astype(np.float64)
    mean, bias = model.visible_mean.numpy().astype(np.float64), of_model.conditional.bias.numpy().astype(np.float64)
    K = [[round(fractions.Fraction(value) * scale) for value in row] for row in kernel.tolist()]
    m = [round(fractions.Fraction(value) * (1 << 16)) for value in mean.tolist()]
    offset = layer.offset(x, 2)
    for j in range(12):
        shift = (sum(m[i] * K[i][j] for i in range(30)) + (1 << 15)) >> 16
        constant = round(fractions.Fraction(float(bias[j])) * scale) - shift
        for b in range(5):
            assert int(offset[j, b]) == constant + sum(K[i][j] for i in range(30) if x[i, b])


@pytest.mark.parametrize("name", CONFIGS)
def test_limits_hold_for_any_input(rng: np.random.Generator, name: str) -> None:
    """Inputs chosen to make the sums as large as possible stay within the limit that was checked."""
    for layer in layers(IntegerModel(random_model(CONFIGS[name], rng, 3.0))):
        for sums in (*layer.hidden, layer._sums):
            assert sums.limit < 2.0 ** (24 if sums.dtype is np.float32 else 53)
            if sums.kernel is not None and not layer.hidden:
                worst = (sums.kernel > 0).T.astype(np.uint8)  # a column for each output
                reached = np.abs(sums(worst, 7)).max()
                assert 0.2 * sums.limit < reached <= sums.limit


def test_small_weights_are_computed_in_float32(rng: np.random.Generator) -> None:
    assert {layer._sums.dtype for layer in layers(IntegerModel(random_model(CONFIGS["linear"], rng)))} == {np.float32}
    large = random_model(CONFIGS["linear"], rng, 1e5)
    assert {layer._sums.dtype for layer in layers(IntegerModel(large))} == {np.float64}


@pytest.mark.parametrize("name", ["linear", "deep", "relu"])
def test_batch_size_changes_nothing(rng: np.random.Generator, name: str) -> None:
    integer = IntegerModel(random_model(CONFIGS[name], rng))
    x, h = random_bits(rng, 30, 23), [random_bits(rng, n, 23) for n in integer.hidden]
    for level, layer in enumerate(integer.decoders):
        bits, parents = (x, *h)[level], integer.above(h, level)
        whole = layer.logits(bits, layer.offset(parents, 100), 100)
        for batch_size in (1, 5, 23):
            np.testing.assert_array_equal(layer.logits(bits, layer.offset(parents, batch_size), batch_size), whole)


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
from darn.integer_model import IntegerModel
from darn.model import DARN, DARNConfig
model = DARN(DARNConfig(300, (150, 80), (60,)), seed=3)
if sys.argv[1] == "graph":
    tf.config.run_functions_eagerly(False)
integer = IntegerModel(model)
h = [np.random.default_rng(0).integers(0, 2, (n, 64), np.uint8) for n in (150, 80)]
digest = hashlib.sha256(integer.digest)
for level, layer in enumerate(integer.decoders):
    digest.update(layer.frequencies(layer.offset(integer.above(h, level), int(sys.argv[2]))).tobytes())
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
        (DARNConfig(6, (4,), prior="nade"), "prior: only factorial and linear conditionals can be coded, got NADE"),
        (DARNConfig(6, (4,), visible_conditional="made"), "decoder 0: only factorial"),
        (DARNConfig(6, (4,), encoder="nade"), "encoder 1: only factorial"),
        (DARNConfig(6, (4,), observations="intensities"), "only models of binary data can code"),
        (
            DARNConfig(16, (4,), local={"image_shape": (4, 4), "kernels": (2,), "strides": (2,), "filters": (1,)}),  # type: ignore[arg-type]
            "decoder 0: only dense networks can be coded, got LocalDecoder",
        ),
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
    sums = integer.encoders[0]._sums
    sums._check_products(1.0, "encoder")
    assert sums.kernel is not None

    class Rounded(np.ndarray):
        def __matmul__(self, other: Any) -> Any:
            exact = np.asarray(self)
            if exact.dtype.kind == "i":
                return exact @ other
            unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), 1))) - 7)
            return (exact // unit * unit) @ other

    sums.kernel = sums.kernel.view(Rounded)
    with pytest.raises(ValueError, match="are not exact here"):
        sums._check_products(1.0, "encoder")
