"""Real weights in whole numbers: the same in C as here, on PCs and on AVR, with no product beyond 32 bits."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from sklearn.datasets import load_digits

import ebp
from ebp.packed.c_code import Inputs
from ebp.packed.rounded import RANGES, RoundedNetwork, _of_columns, fit_within, round_network
from ebp.second_order.second_order import Gaussian

GCC = shutil.which("gcc")
STRICT = ["-std=c99", "-Os", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Werror"]

MAIN = """
#include <stdio.h>
#include "net.h"
int main(void)
{
    TYPE x[NET_NUM_INPUTS];
    uint8_t p[NET_NUM_CLASSES];
    int k;
    while (fread(x, sizeof x, 1, stdin) == 1) {
        printf("%d", net(x));
        net_probabilities(x, p);
        for (k = 0; k < NET_NUM_CLASSES; k++)
            printf(" %d", p[k]);
        printf("\\n");
    }
    return 0;
}
"""

PGMSPACE = """
#define PROGMEM
#define pgm_read_byte(p) (*(const uint8_t *)(p))
#define pgm_read_word(p) (*(const uint16_t *)(p))
#define pgm_read_dword(p) (*(const uint32_t *)(p))
"""


def learned(
    hidden: tuple[int, ...], num_classes: int, inputs: str, rng: np.random.Generator
) -> tuple[Any, np.ndarray, np.ndarray]:
    """A model, raw rows with a constant input among them, and labels."""
    least, most = RANGES[inputs]
    X = rng.integers(max(least, -200), min(most, 200) + 1, (240, 9))
    X[:, 4] = 7
    y = np.argmax(X[:, :num_classes] + rng.normal(size=(240, num_classes)), axis=1)
    model = ebp.EBPGaussianClassifier(hidden, epochs=4, max_count=3).fit(X, np.array(list("abcd"))[y])
    return model, X, np.array(list("abcd"))[y]


@pytest.mark.skipif(GCC is None, reason="no gcc")
@pytest.mark.parametrize(
    ("hidden", "num_classes", "inputs", "bits", "is_avr"),
    [
        ((7,), 3, "uint8", 4, False),
        ((7,), 3, "uint8", 4, True),
        ((5, 6), 4, "int8", 2, False),
        ((9,), 2, "int16", 8, False),
        ((), 3, "uint8", 8, False),
        ((), 2, "uint8", 8, True),
    ],
)
def test_c_predicts_the_same(
    hidden: tuple[int, ...],
    num_classes: int,
    inputs: str,
    bits: int,
    is_avr: bool,
    tmp_path: Path,
    rng: np.random.Generator,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, X, y = learned(hidden, num_classes, inputs, rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *args, **options: None)
        source = ebp.export_c(
            model, tmp_path / "net.c", name="net", inputs=cast(Inputs, inputs), X=X, y=y, bits=bits, probabilities=True
        )
    assert "right, predict" in capsys.readouterr().out
    assert "64_t" not in source
    assert "double" not in source
    network = round_network(model, X, bits=bits, inputs=inputs)
    least, most = RANGES[inputs]
    rows = np.concatenate([X, rng.integers(least, most + 1, (50, 9)), np.full((1, 9), least), np.full((1, 9), most)])
    kind = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t"}[inputs]
    (tmp_path / "main.c").write_text(MAIN.replace("TYPE", kind))
    (tmp_path / "avr").mkdir()
    (tmp_path / "avr" / "pgmspace.h").write_text(PGMSPACE)
    options = [*STRICT, "-fsanitize=undefined", "-fno-sanitize-recover", "-I.", *(["-D__AVR__"] if is_avr else [])]
    subprocess.run(["gcc", *options, "net.c", "main.c", "-o", "net"], cwd=tmp_path, check=True)
    raw = np.ascontiguousarray(rows, inputs).tobytes()
    lines = subprocess.run([tmp_path / "net"], input=raw, check=True, capture_output=True).stdout.splitlines()
    found = np.array([[int(part) for part in line.split()] for line in lines])
    np.testing.assert_array_equal(network.classes[found[:, 0]], network.predict(rows))
    np.testing.assert_array_equal(found[:, 1:], np.rint(255 * network.predict_proba(rows)))


@pytest.fixture(scope="module")
def digits() -> tuple[Any, np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    model = ebp.EBPGaussianClassifier(12, epochs=6, max_count=8, common_scale=True).fit(X[:700], y[:700])
    return model, X, y


def test_few_bits_are_nearly_as_good(digits: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Each weight rounded alone, to the nearest of 16, would lose ten times as many digits."""
    model, X, y = digits
    right = model.score(X[700:], y[700:])
    losses = {}
    for bits in (8, 4):
        network = round_network(model, X[:700], bits=bits)
        losses[bits] = right - np.mean(network.predict(X[700:]) == y[700:])
        mine = np.log(np.maximum(network.predict_proba(X[700:]), 1.0 / 510.0))[np.arange(len(X) - 700), y[700:]]
        theirs = model.predict_log_proba(X[700:])[np.arange(len(X) - 700), y[700:]]
        assert -np.mean(mine) < -np.mean(theirs) + (0.02 if bits == 8 else 0.1)
    assert losses[8] < 0.005
    assert losses[4] < 0.03
    ebp.export_c(model, X=X[:700], y=y[:700], bits=8)
    assert "weights of 8 bits, with the label of predict in" in capsys.readouterr().out


def test_a_network_of_inputs_without_correlations_is_exported_as_one_of_the_columns(rng: np.random.Generator) -> None:
    common, difference = rng.integers(0, 120, 900), rng.integers(0, 10, 900)
    X, y = np.stack([common, common + difference, rng.integers(0, 120, 900)], axis=1), difference > 4
    model = ebp.EBPGaussianClassifier(10, max_count=3, decorrelate=True).fit(X[:500], y[:500])
    network = round_network(model, X[:500], bits=8)
    assert np.mean(network.predict(X[500:]) == model.predict(X[500:])) > 0.97
    assert np.mean(network.predict(X[500:]) == y[500:]) > 0.93


def test_weights_of_columns_have_the_sums_and_variances_of_those_of_the_network(rng: np.random.Generator) -> None:
    root = rng.normal(size=(3, 3))
    mean, gain = rng.normal(size=(4, 2)), rng.uniform(1.0, 9.0, (4, 2))
    found = _of_columns(Gaussian((mean,), (gain,)), 0.3 * (root + root.T))
    X = rng.normal(size=(5, 3))
    np.testing.assert_allclose(X @ found.mean[0][:-1], X @ (0.3 * (root + root.T)) @ mean[:-1])
    for output in range(2):
        variance = 1.0 / (1.0 + gain[:-1, output])
        covariance = 0.09 * (root + root.T) @ np.diag(variance) @ (root + root.T)
        # No weight is less sure than a priori.
        np.testing.assert_allclose(found.var[0][:-1, output], np.minimum(np.diag(covariance), 1.0))
    np.testing.assert_allclose([found.mean[0][-1], found.gain[0][-1]], [mean[-1], gain[-1]])


def test_a_unit_that_is_never_active_is_exported(rng: np.random.Generator) -> None:
    X, y = rng.integers(0, 100, (200, 3)), rng.integers(0, 2, 200)
    model = ebp.EBPGaussianClassifier(4, epochs=1, max_count=1).fit(X, y)
    model.posteriors_[0].mean[0][-1, 2] = -1e3
    network = round_network(model, X, bits=8)
    assert np.mean(network.predict(X) == model.predict(X)) > 0.95


def test_the_rest_makes_good_what_rounding_one_has_changed(digits: Any) -> None:
    """The hidden sums of the rows are nearer to those of real weights than with each weight rounded to the nearest."""
    model, X, _ = digits
    network = round_network(model, X[:700], bits=4)
    layer, mean = network.layers[0], model.posteriors_[0].mean[0]
    real = model._units.standardised(X[:700]) @ mean[:-1] + mean[-1]
    weights = (mean[:-1] / model._units.scale[:, None])[network.used]
    bias = mean[-1] - (model._units.mean / model._units.scale)[network.used] @ mean[:-1][network.used]
    step = np.max(np.abs(weights), axis=0) / 15.0
    nearest = step * (2.0 * np.rint((weights / step - 1.0) / 2.0) + 1.0)
    ours = layer.sums(X[:700].astype(int)[:, network.used])
    errors = []
    for found in (ours, X[:700][:, network.used] @ nearest + bias):
        scale = np.sum(found * real, axis=0) / np.sum(found * found, axis=0)  # of the step of each neuron
        active = real > 0
        errors.append(np.sum(active * (found * scale - real) ** 2))
    assert errors[0] < 0.3 * errors[1]


@pytest.mark.skipif(GCC is None, reason="no gcc")
@pytest.mark.filterwarnings("ignore:the file has")
def test_as_wide_as_so_many_bytes_allow(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code and constants take no more, and hardly less where a hidden layer helps."""
    _, X, _ = learned((), 3, "uint8", rng)
    X = X[:90]
    y = np.where((X[:, 0] > 100) == (X[:, 1] > 100), "a", np.where(X[:, 2] > 100, "b", "c"))
    template = ebp.EBPGaussianClassifier(epochs=1, max_count=1, batch_size=30)
    chosen = fit_within(template, X, y, 500)
    monkeypatch.setattr("ebp.packed.c_code.fit_within", lambda *args, **options: chosen)
    source = ebp.export_c(template, tmp_path / "net.c", X=X, y=y, max_bytes=500, name="net")
    assert not hasattr(template, "posteriors_")
    assert f"hidden weights of {chosen[1]} bits" in source
    subprocess.run(["gcc", *STRICT, "-c", "-fno-pic", "net.c", "-o", "net.o"], cwd=tmp_path, check=True)
    sizes = subprocess.run(["size", "net.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert (400 if chosen[0].hidden else 0) < sum(map(int, sizes.splitlines()[1].split()[:2])) <= 500


def test_bad_calls(digits: Any, rng: np.random.Generator) -> None:
    model, X, _ = digits
    with pytest.raises(ValueError, match="bits must be one of 8, 4, 2, got 3"):
        round_network(model, X, bits=3)
    with pytest.raises(ValueError, match="inputs must be one of int8, uint8, int16 for real weights, got 'float32'"):
        ebp.export_c(model, X=X, inputs="float32")
    with pytest.raises(ValueError, match="give them as X"):
        ebp.export_c(model)
    with pytest.raises(ValueError, match="give X and y with it, and no bits"):
        ebp.export_c(model, X=X, max_bytes=1500)
    with pytest.raises(ValueError, match=r"max_bytes must be at least 4[0-9]{2} for 61 inputs, got 300"):
        ebp.export_c(model, X=X, y=np.arange(len(X)) % 3, max_bytes=300)
    with pytest.raises(ValueError, match="whole numbers from 0 to 255 for uint8"):
        round_network(model, X[:50]).predict(X[:2] + 0.5)
    with pytest.raises(ValueError, match=r"rows must be of shape \[N, 64\], got \[2, 3\]"):
        round_network(model, X[:50]).predict(X[:2, :3])
    with pytest.raises(ValueError, match=r"rows must be of shape \[N, 64\], got \[50, 3\]"):
        round_network(model, X[:50, :3])
    with pytest.raises(ValueError, match="y must hold a label for each of 50 rows"):
        ebp.export_c(model, X=X[:50], y=[1])
    with pytest.raises(ValueError, match=r"y must hold labels as the file gives them, 0, 1, 2, .* got 'a'"):
        ebp.export_c(model, X=X[:50], y=["a"] * 50)
    stream = ebp.EBPGaussianClassifier().partial_fit(X[:50], np.arange(50) % 2)
    for other in (stream, ebp.EBPRegressor(2, epochs=1, max_count=1).fit(X[:9], X[:9, 20])):
        with pytest.raises(ValueError, match="one network of relu units that was trained by fit"):
            ebp.export_c(other, X=X)
    wide = ebp.EBPGaussianClassifier((), epochs=1, max_count=1).fit(rng.normal(size=(20, 2000)), np.arange(20) % 2)
    with pytest.raises(ValueError, match="sums of a layer may not fit in 32 bits"):
        round_network(wide, rng.integers(-9, 9, (5, 2000)), inputs="int16")
    assert isinstance(round_network(model, X[:50], bits=2), RoundedNetwork)
