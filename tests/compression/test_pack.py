"""Each number of a packed network: of which network it is, on which rows, in which unit."""

import importlib
import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.files.container import kernels_of, load_bcz
from compression.files.pack import PackConfig, Packed, pack_files, rounding_error, tuned_codebooks
from compression.graph.sizes import Size
from compression.rounding import bits
from compression.rounding.codebook import codebook
from compression.rounding.rate_rounding import RATES, rate_book
from compression.train.recipes.classification import parts_of
from tests.compression.networks import quantiles, randomise
from tests.compression.oracles import log_softmax, masked_outputs, network_outputs, percent_wrong

MODULE = importlib.import_module("compression.files.pack")  # `compression.pack` is the function
D, UNITS, K = 8, 10, 3
WEIGHTS = D * UNITS + UNITS * K
PARAMETERS = WEIGHTS + UNITS + K
SIZES = {"train": 60, "valid": 40, "test": 50}


def bayesian(prior: str = "gnj", seed: int = 0) -> keras.Model:
    layers = [keras.layers.Dense(UNITS, "relu", name="first"), keras.layers.Dense(K, name="second")]
    model = bc.compress(keras.Sequential([keras.Input([D]), *layers]), num_train=SIZES["train"], prior=prior)
    return randomise(model, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def parts() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Labels by chance, so that the parts have errors of their own."""
    rng = np.random.default_rng(1)
    return {name: (rng.normal(size=(n, D)).astype(np.float32), rng.integers(0, K, n)) for name, n in SIZES.items()}


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return bayesian()


@pytest.fixture(scope="module")
def thresholds(model: keras.Model) -> dict[str, float]:
    return quantiles(model, 0.6)


@pytest.fixture(scope="module")
def packed(model: keras.Model, parts: dict, thresholds: dict, tmp_path_factory: pytest.TempPathFactory) -> Packed:
    folder = tmp_path_factory.mktemp("packed") / "files"
    before = [np.array(variable) for variable in model.variables]
    found = pack_files(
        model, parts, PackConfig(tolerance=5.0, codebooks=(8, 3), rate_codebooks=(8,)), folder, thresholds=thresholds
    )
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)  # masks, too
    return found


def file_of(packed: Packed, name: str) -> Path:
    file = packed.networks[name].file
    assert file is not None
    return file


def test_the_masked_network_is_measured_on_its_own(
    packed: Packed, model: keras.Model, thresholds: dict, parts: dict
) -> None:
    for part, found in (("valid", packed.networks["masked"].valid_percent),
                        ("test", packed.networks["masked"].test_percent)):  # fmt: skip
        X, labels = parts[part]
        assert found == pytest.approx(percent_wrong(masked_outputs(model, X, thresholds), labels))
        whole = masked_outputs(model, X, dict.fromkeys(thresholds, math.inf))
        assert np.any(np.argmax(whole, axis=1) != np.argmax(masked_outputs(model, X, thresholds), axis=1))
    assert packed.networks["masked"][2:] == (None, None, None)
    assert packed.thresholds == thresholds


def test_the_shrunk_network_is_the_masked_one(
    packed: Packed, model: keras.Model, thresholds: dict, parts: dict
) -> None:
    X = parts["test"][0]
    expected = masked_outputs(model, X, thresholds)
    np.testing.assert_allclose(network_outputs(packed.model, X), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert packed.networks["shrunk"][:2] == packed.networks["masked"][:2]


def test_files_are_measured_as_they_are_read(packed: Packed, parts: dict) -> None:
    names = {"shrunk": "shrunk", "rule": "fixed_rule", "search": "fixed", "book 8": "book_8", "book 3": "book_3"}
    names["rate 8"] = "rate_8"
    assert list(packed.networks) == ["masked", *names]
    for name, file in names.items():
        network, path = packed.networks[name], file_of(packed, name)
        assert path.name == f"{file}.bcz"
        loaded = load_bcz(path)
        for part, found in (("valid", network.valid_percent), ("test", network.test_percent)):
            X, labels = parts[part]
            assert found == pytest.approx(percent_wrong(network_outputs(loaded, X), labels)), (name, part)
        assert network.bytes == path.stat().st_size
        assert network.file_rate == pytest.approx(4 * PARAMETERS / path.stat().st_size)
    assert {other.name for other in path.parent.iterdir()} == {f"{file}.bcz" for file in names.values()}


def test_kernels_in_the_files_are_rounded_as_it_says(packed: Packed) -> None:
    plain = kernels_of(packed.model)
    for name in ("rule", "search"):
        loaded = kernels_of(load_bcz(file_of(packed, name)))
        for kernel, stored, code in zip(plain, loaded, packed.codes[name], strict=True):
            np.testing.assert_array_equal(
                stored, np.floor(kernel.astype(float) * 2.0**code.significant + 0.5) / 2.0**code.significant
            )
            assert code.bits == 1 + code.exponent + code.significant
        assert packed.bits[name] == [code.bits for code in packed.codes[name]]
    for k in (8, 3):
        loaded = kernels_of(load_bcz(file_of(packed, f"book {k}")))
        assert all(len(np.unique(stored)) <= k for stored in loaded)


def test_rounding_by_rate_takes_the_variances_and_stays_within_the_tolerance(
    packed: Packed, model: keras.Model, thresholds: dict
) -> None:
    shrunk, loaded = bc.shrink_details(model, thresholds), kernels_of(load_bcz(file_of(packed, "rate 8")))
    kernels = kernels_of(shrunk.model)
    rates = [
        rate
        for rate in RATES
        for books in [[rate_book(w, V, 8, rate=rate) for w, V in zip(kernels, shrunk.variances, strict=True)]]
        if all(np.array_equal(book.values, stored) for book, stored in zip(books, loaded, strict=True))
    ]
    assert rates
    assert packed.networks["rate 8"].valid_percent <= packed.networks["shrunk"].valid_percent + 5.0
    with pytest.raises(ValueError, match="rate_codebooks must list different numbers from 2 to 256, got 1"):
        PackConfig(rate_codebooks=(1,))


def test_bits_are_those_of_the_variances_of_the_weights_that_are_left(
    packed: Packed, model: keras.Model, thresholds: dict
) -> None:
    for number, layer in enumerate(bc.bayesian_layers(model)):
        mean, variance = (np.asarray(moment, float)[:, None] for moment in layer.scale_moments())
        weights, spread = layer.kernel_mean.numpy().astype(float), np.exp(np.asarray(layer.kernel_log_var, float))
        V = variance * (spread + weights**2) + spread * mean**2  # Eq. (11)
        kept = bc.shrink_details(model, thresholds).kept[layer.name]
        V = V[np.ix_(kept.inputs, kept.outputs)]
        np.testing.assert_allclose(np.sort(packed.variances[number]), np.sort(V.ravel()), rtol=1e-4)
        counts = [sum(2 * v < 2.0**-t for t in range(1, 24)) for v in V.ravel()]
        assert packed.codes["rule"][number].significant == math.ceil(np.mean(counts))
        assert packed.kept_weights[number] == V.size == kernels_of(packed.model)[number].size


def test_rates_are_counted_as_in_the_paper(packed: Packed) -> None:
    assert packed.original[:2] == (WEIGHTS, PARAMETERS)
    assert packed.architecture == tuple(kernel.shape[0] for kernel in kernels_of(packed.model))
    assert sum(packed.kept_weights) < 0.7 * WEIGHTS
    for name, rates in packed.rates.items():
        spent = sum(n * b for n, b in zip(packed.kept_weights, packed.bits[name], strict=True))
        assert rates.pruning == pytest.approx(WEIGHTS / sum(packed.kept_weights))
        assert rates.fast == pytest.approx(32 * WEIGHTS / spent)
        assert rates.maximum == pytest.approx(32 * WEIGHTS / (5 * sum(packed.kept_weights) + 2 * 32 * 32))


def test_the_search_stays_within_the_tolerance_on_valid(packed: Packed, parts: dict) -> None:
    most = packed.networks["shrunk"].valid_percent + 5.0
    error_of = rounding_error(packed.model, parts_of(parts)["valid"])
    assert error_of(packed.codes["search"]) <= most + 1e-6
    used = [sum(code.significant for code in packed.codes[name]) for name in ("search", "rule")]
    assert used[0] < used[1]


def test_a_search_that_may_add_any_error_leaves_no_significant_bits(
    model: keras.Model, parts: dict, tmp_path: Path
) -> None:
    found = pack_files(model, parts, PackConfig(tolerance=100.0, codebooks=()), tmp_path, thresholds=math.inf)
    assert [code.significant for code in found.codes["search"]] == [0, 0]


def test_original_size_and_automatic_thresholds(model: keras.Model, parts: dict, tmp_path: Path) -> None:
    config = PackConfig(bits="rule", codebooks=())
    found = pack_files(model, parts, config, tmp_path, original=Size(1000, 2000))
    assert list(found.networks) == ["masked", "shrunk", "rule"]
    assert found.thresholds == bc.thresholds_of(model, "auto")
    assert found.chosen == "rule"
    assert {path.name for path in tmp_path.iterdir()} == {"shrunk.bcz", "fixed.bcz"}
    assert found.rates["rule"].pruning == pytest.approx(1000 / sum(found.kept_weights))
    assert found.networks["rule"].file_rate == pytest.approx(8000 / (tmp_path / "fixed.bcz").stat().st_size)


def test_single_weights_are_counted_with_their_places(parts: dict, tmp_path: Path) -> None:
    """In the CSC format: 32 bits more for each weight, and for each column and one more."""
    model = bayesian("svd")
    found = pack_files(model, parts, PackConfig(bits="rule", codebooks=()), tmp_path, thresholds=quantiles(model, 0.5))
    kernels = kernels_of(found.model)
    nonzero = [int(np.count_nonzero(kernel)) for kernel in kernels]
    assert list(found.kept_weights) == nonzero
    assert any(count < kernel.size for count, kernel in zip(nonzero, kernels, strict=True))
    words = sum(2 * n + kernel.shape[1] + 1 for n, kernel in zip(nonzero, kernels, strict=True))
    assert found.rates["rule"].pruning == pytest.approx(WEIGHTS / words)
    assert [len(variance) for variance in found.variances] == nonzero


# Codebooks


def shaped(model: keras.Model) -> list[keras.Layer]:
    return [layer for layer in model.layers if isinstance(layer, keras.layers.Dense)]


def loss(model: keras.Model, kernels: list, X: np.ndarray, labels: np.ndarray) -> float:
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    for layer, kernel in zip(shaped(copy), kernels, strict=True):
        layer.kernel.assign(kernel.values)
    log_p = log_softmax(network_outputs(copy, X))
    return -float(np.mean([p[label] for p, label in zip(log_p, labels, strict=True)]))


def test_codebooks_are_tuned_on_the_training_examples(packed: Packed, parts: dict) -> None:
    """Weights keep their places in the book, the loss falls, and the network stays as it is."""
    train, before = parts_of(parts)["train"], packed.model.get_weights()
    plain = [codebook(kernel, 4) for kernel in kernels_of(packed.model)]
    tuned, again, other = (
        tuned_codebooks(
            packed.model, plain, train, name="books", steps=60, batch_size=30, learning_rate=0.01, seed=seed
        )
        for seed in (0, 0, 1)
    )
    assert loss(packed.model, tuned, *parts["train"]) < loss(packed.model, plain, *parts["train"]) - 0.01
    for a, b, c in zip(plain, tuned, again, strict=True):
        places = set(zip(a.indices.ravel().tolist(), b.indices.ravel().tolist(), strict=True))
        assert len(places) == len(a.centres)  # weights that shared a centre do so still
        np.testing.assert_array_equal(b.centres, c.centres)
    assert any(np.any(a.centres != b.centres) for a, b in zip(tuned, other, strict=True))
    for a, b in zip(before, packed.model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_tuning_goes_by_the_settings(
    parts: dict, packed: Packed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called: list[Any] = []

    def spy(model: keras.Model, books: list, part: Any, *, name: str, **settings: Any) -> list:
        called.append((name, len(part.X), settings))
        return books

    monkeypatch.setattr(MODULE, "tuned_codebooks", spy)
    config = PackConfig(bits="rule", codebooks=(5, 2), tune_steps=7)
    pack_files(bayesian(), parts, config, tmp_path, thresholds=math.inf, batch_size=11, learning_rate=0.02, seed=3)
    settings = {"steps": 7, "batch_size": 11, "learning_rate": pytest.approx(0.002), "seed": 3}
    assert called == [("books/5", SIZES["train"], settings), ("books/2", SIZES["train"], settings)]


def test_rounding_error_is_of_the_rounded_kernels(packed: Packed, parts: dict) -> None:
    X, labels = parts["valid"]
    codes = [bits.fixed_point(kernel, 0) for kernel in kernels_of(packed.model)]
    copy = keras.models.clone_model(packed.model)
    copy.set_weights(packed.model.get_weights())
    for layer, code in zip(shaped(copy), codes, strict=True):
        layer.kernel.assign(np.floor(layer.kernel.numpy() + 0.5))
        np.testing.assert_array_equal(layer.kernel, code.values)
    found = rounding_error(packed.model, parts_of(parts)["valid"])(codes)
    assert found == pytest.approx(percent_wrong(network_outputs(copy, X), labels))
    assert tf.reduce_any(copy.layers[-1].kernel != packed.model.layers[-1].kernel)


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bits": "none"}, "bits must be rule or search, got 'none'"),
        ({"tolerance": -0.1}, "tolerance must be finite and at least 0, got -0.1"),
        ({"codebooks": (16, 1000)}, "codebooks must list different numbers from 1 to 256, got 16,1000"),
        ({"codebooks": (0,)}, "codebooks must list different numbers"),
        ({"codebooks": (16, 16)}, "codebooks must list different numbers"),
        ({"tune_steps": -1}, "tune_steps must be at least 0, got -1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PackConfig(**settings)


def test_networks_that_no_file_can_hold_are_refused_before_training() -> None:
    layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.PReLU(), keras.layers.Dense(K)]
    PackConfig().check(keras.Sequential([keras.Input([D]), *layers]))
    layers[2] = keras.layers.Lambda(abs, name="own")
    with pytest.raises(ValueError, match="layer 'own' is a Lambda, and files hold layers of Keras"):
        PackConfig().check(keras.Sequential([keras.Input([D]), *layers]))


def test_a_layer_that_is_pruned_to_nothing_is_refused(model: keras.Model, parts: dict, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the layer first is pruned to nothing"):
        pack_files(model, parts, PackConfig(), tmp_path, thresholds=-math.inf)
