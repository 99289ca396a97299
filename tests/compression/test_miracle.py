"""Minimal random code learning: KLs and sizes by NumPy, what training mends, and files that give the network back."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.files.container import bcz_bytes, coded_variables
from compression.files.random_codes.random_coding import RandomCode, block_ends, scale_of
from compression.files.random_codes.random_numbers import permutation

layers = keras.layers
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that a line divides."""
    X = rng.normal(size=(400, 6)).astype(np.float32)
    return X, (X[:, 0] + X[:, 1] > 0).astype(np.int32)


@pytest.fixture
def model(rng: np.random.Generator) -> keras.Model:
    model = keras.Sequential(
        [keras.Input([6]), layers.Dense(12, "relu", name="a"), layers.BatchNormalization(), layers.Dense(2, name="b")]
    )
    model.set_weights([rng.uniform(0.1, 0.5, size=w.shape).astype(np.float32) for w in model.get_weights()])
    return model


def file_size(model: keras.Model, blocks: int, bits: int) -> int:
    shapes = tuple(tuple(v.shape) for v in coded_variables(model))
    ones = (1,) * len(shapes)
    return len(bcz_bytes(model, RandomCode(5, bits, ones, ones, np.zeros(blocks, np.int64), shapes)))


def same(a: keras.Model, b: keras.Model) -> bool:
    return all(np.array_equal(v, w) for v, w in zip(a.get_weights(), b.get_weights(), strict=True))


def test_a_network_in_so_many_bytes(model: keras.Model, data: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    """A file of the size that was asked for; the same in each call; and it does what it learnt."""
    before = [w.copy() for w in model.get_weights()]
    size = file_size(model, 30, 8)
    settings: dict[str, Any] = {"loss": LOSS, "num_bytes": size, "block_bits": 8, "learning_rate": 3e-3, "seed": 5}
    settings |= {"epochs": 60, "code_epochs": 30, "batch_size": 50}
    coded = bc.random_code(model, tmp_path / "n.bcz", *data, **settings)
    assert size - 2 <= coded.bytes == (tmp_path / "n.bcz").stat().st_size <= size  # names of copies have other lengths
    assert abs(len(coded.kl_bits) - 30) <= 2
    loaded = bc.load(tmp_path / "n.bcz")
    assert same(loaded, coded.model)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    for part in ("gamma", "beta", "moving_mean", "moving_variance"):
        np.testing.assert_array_equal(getattr(loaded.layers[1], part), getattr(model.layers[1], part))
    assert not np.array_equal(loaded.get_layer("a").bias, model.get_layer("a").bias)
    assert np.mean(np.argmax(loaded(data[0]), axis=1) != data[1]) < 0.1
    assert 0.5 * 8 < np.mean(coded.kl_bits) < 1.3 * 8
    again = bc.random_code(model, tmp_path / "m.bcz", *data, **settings | {"epochs": 1, "code_epochs": 0.5})
    assert again.bytes == coded.bytes
    twice = bc.random_code(model, tmp_path / "m.bcz", *data, **settings | {"epochs": 1, "code_epochs": 0.5})
    assert same(again.model, twice.model)
    assert not same(again.model, coded.model)


def test_the_kl_of_each_block(model: keras.Model, data: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    """Without training: Gaussians around the weights with 0.3 of the prior's scale, the root of their mean square."""
    coded = bc.random_code(
        model,
        tmp_path / "n.bcz",
        *data,
        loss=LOSS,
        num_bytes=file_size(model, 40, 8),
        block_bits=8,
        epochs=0,
        code_epochs=0,
        seed=3,
    )
    a, b = model.get_layer("a"), model.get_layer("b")
    weights = [np.asarray(w, np.float64) for w in (a.kernel, a.bias, b.kernel, b.bias)]
    kl = []
    for w, number in zip(weights, coded.code.scales, strict=True):
        root = np.sqrt(np.mean(w**2))
        scale = scale_of(number)
        assert abs(np.log(scale / root)) <= np.log(1.125) / 2 + 1e-3
        kl.append(np.log(scale / (0.3 * root)) + ((0.3 * root) ** 2 + w.ravel() ** 2) / (2 * scale**2) - 0.5)
    blocks = np.split(np.concatenate(kl)[permutation(3, 110)], block_ends(110, len(coded.kl_bits))[:-1])
    np.testing.assert_allclose(coded.kl_bits, [block.sum() / np.log(2) for block in blocks], rtol=1e-4)


def test_a_weight_has_one_block_however_many_bytes_there_are(
    model: keras.Model, data: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    settings = {"loss": LOSS, "block_bits": 4, "epochs": 0, "code_epochs": 0}
    coded = bc.random_code(model, tmp_path / "n.bcz", *data, num_bytes=10**12, **settings)
    assert len(coded.kl_bits) == 110


def test_training_between_blocks_makes_up_for_the_draws(
    data: tuple[np.ndarray, np.ndarray], tmp_path: Path, rng: np.random.Generator
) -> None:
    """The loss on the training data with and without it, after the same posterior."""
    model = keras.Sequential([keras.Input([6]), layers.Dense(30, "tanh"), layers.Dense(2)])
    model.set_weights([rng.normal(scale=0.4, size=w.shape) for w in model.get_weights()])
    losses = np.zeros([2, 3])
    for i, code_epochs in enumerate((0, 40)):
        for seed in range(3):
            coded = bc.random_code(
                *(model, tmp_path / "n.bcz", *data),
                loss=LOSS,
                num_bytes=60,
                block_bits=6,
                epochs=40,
                code_epochs=code_epochs,
                batch_size=50,
                learning_rate=3e-3,
                seed=seed,
            )
            losses[i, seed] = float(tf.reduce_mean(LOSS(data[1], coded.model(data[0]))))
    without, with_it = losses.mean(axis=1)
    assert with_it < 0.8 * without  # 0.45 to 0.65 of it


def test_shared_weights_datasets_and_several_outputs(rng: np.random.Generator, tmp_path: Path) -> None:
    inputs = keras.Input([4])
    h = layers.Dropout(0.5)(layers.Dense(50, "relu", name="wide")(inputs))
    model = keras.Model(inputs, [layers.Dense(1, name="y")(h), layers.Dense(3, name="z")(h)])
    X = rng.normal(size=(40, 4)).astype(np.float32)
    targets = (X[:, :1], np.arange(40) % 3)
    rows = tf.data.Dataset.from_tensor_slices((X, targets)).batch(10)
    settings: dict[str, Any] = {"loss": ["mse", LOSS], "num_bytes": 330, "block_bits": 6, "epochs": 1, "code_epochs": 1}
    coded = bc.random_code(model, tmp_path / "n.bcz", rows, **settings, sharing={"wide": 10})
    kernel = bc.load(tmp_path / "n.bcz").get_layer(index=1).kernel
    assert kernel.shape == (4, 50)
    assert len(np.unique(kernel)) <= 20
    assert coded.code.sharing == (10, 1, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="sharing names the layer 'high', which has no kernel"):
        bc.random_code(model, tmp_path / "m.bcz", rows, **settings, sharing={"high": 10})
    with pytest.raises(ValueError, match="sharing must be at least 1"):
        bc.random_code(model, tmp_path / "m.bcz", rows, **settings, sharing={"wide": 0})
    with pytest.raises(ValueError, match=r"leave out repeat\(\)"):
        bc.random_code(model, tmp_path / "m.bcz", rows.repeat(), **settings)


def test_several_inputs_as_a_list(rng: np.random.Generator, tmp_path: Path) -> None:
    """Two of the same shape, which could be taken for one."""
    a, b = keras.Input([3]), keras.Input([3])
    model = keras.Model([a, b], layers.Dense(2)(layers.Subtract()([layers.Dense(5)(a), layers.Dense(5)(b)])))
    X = [rng.normal(size=(2, 3)).astype(np.float32) for _ in range(2)]
    coded = bc.random_code(
        model, tmp_path / "n.bcz", X, np.zeros((2, 2)), loss="mse", num_bytes=400, epochs=1, code_epochs=1
    )
    np.testing.assert_array_equal(bc.load(coded.path)(X), coded.model(X))


def test_settings_out_of_range(
    model: keras.Model, data: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(message: str, model: keras.Model = model, x: Any = data[0], **changes: Any) -> None:
        with pytest.raises(ValueError, match=message):
            bc.random_code(model, tmp_path / "n.bcz", x, data[1], **{"loss": LOSS, "num_bytes": 900} | changes)
        assert not list(tmp_path.iterdir())

    refused("block_bits must be 1 to 24", block_bits=25)
    refused("seed 0 or more", seed=-1)
    refused("epochs not negative", epochs=-1)
    refused("equally many examples", x=data[0][:-1])
    refused(r"num_bytes must be at least \d+ for 110 weights in blocks of at most 4096, got 3", num_bytes=3)
    refused("has no kernels, so there is nothing to code", keras.Sequential([keras.Input([6]), layers.ReLU()]))
    refused("x must be finite, got NaN or infinite", x=np.where(data[0] > 1, np.nan, data[0]), epochs=1, code_epochs=0)
    with monkeypatch.context() as patch:
        patch.setattr("compression.files.random_codes.miracle.MAX_WEIGHTS", 100)
        refused("must have at most 100 weights, got 110; shrink it first")
    own = keras.Sequential([keras.Input([6]), layers.Lambda(lambda x: x, name="mine"), layers.Dense(2)])
    refused("'mine' is a Lambda", own)
