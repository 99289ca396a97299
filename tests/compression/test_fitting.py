"""A trained model made small in one call, and written in one: losses, data, choices, refusals."""

import logging
import math
import re
from functools import partial
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.files.container import kernels_of
from compression.graph.graph import graph_of
from compression.graph.removal.ordering import ordered
from compression.train.recipes.classification import parts_of
from compression.train.recipes.likelihood import LearntNoise, likelihood_of

N, D = 160, 6


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The target is a function of one of the inputs."""
    X = rng.normal(size=(N, D)).astype(np.float32)
    return X, (np.tanh(2 * X[:, :1]) + 0.1 * rng.normal(size=(N, 1))).astype(np.float32)


def trained(X: np.ndarray, Y: np.ndarray, loss: Any = "mse", outputs: int = 1) -> keras.Model:
    he = [keras.initializers.HeNormal(seed=seed) for seed in (0, 1)]
    layers = [
        keras.layers.Dense(12, "tanh", kernel_initializer=he[0]),
        keras.layers.Dense(outputs, kernel_initializer=he[1]),
    ]
    model = keras.Sequential([keras.Input((D,)), *layers])
    model.compile(keras.optimizers.Adam(0.02), loss)
    model.fit(X, Y, epochs=40, batch_size=N, verbose=0, shuffle=False)
    return model


def small_of(model: keras.Model, X: np.ndarray, Y: np.ndarray, **options: Any) -> keras.Model:
    settings = {"epochs": 40, "batch_size": 40, "optimizer": keras.optimizers.Adam(0.02)}
    method = bc.Bayesian(kl_weight=options.pop("kl_weight"), settings={"scale_speed": 16.0})
    more = {"loss": "mse", "validation_data": (X[:40], Y[:40]), "method": method}
    return bc.fit(model, X, Y, **{**settings, **more, **options})


def error(model: keras.Model, X: np.ndarray, Y: np.ndarray) -> float:
    return float(np.mean((np.asarray(model(X)) - Y) ** 2))


@pytest.mark.slow
@pytest.mark.ci
def test_a_regression_gets_small_and_stays_good(
    data: tuple[np.ndarray, np.ndarray], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    X, Y = data
    model = trained(X, Y)
    before = [w.copy() for w in model.get_weights()]
    with caplog.at_level(logging.INFO, "compression.train.fitting"):
        small = small_of(model, X, Y, kl_weight=1.0, metrics=["mae"])
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert type(small.layers[-1]) is keras.layers.Dense
    assert small.count_params() < 0.5 * model.count_params()
    assert f"KL of weight 1: {small.count_params()} of {model.count_params()} parameters are left" in caplog.text
    assert error(small, X, Y) < error(model, X, Y) + 0.01
    assert isinstance(graph_of(small).nodes[0].layer, bc.SelectInputs)
    assert {type(part).__module__.split(".")[0] for part in small.operations} == {"keras"}
    assert set(small.evaluate(X, Y, verbose=0, return_dict=True)) == {"loss", "mae"}

    packed = bc.pack(small, tmp_path / "n.bcz", validate=lambda m: error(m, X, Y), max_rise=1e-3, original=model)
    loaded = bc.load(tmp_path / "n.bcz")
    assert packed.error == error(loaded, X, Y) <= packed.error_before + 1e-3
    assert packed.bytes == (tmp_path / "n.bcz").stat().st_size
    assert packed.file_rate == 4 * model.count_params() / packed.bytes > 4


def largest_difference(model: keras.Model, X: np.ndarray, reference: np.ndarray) -> float:
    return float(np.abs(np.asarray(model(X)) - reference).max())


def test_codebooks_and_fixed_points_compete(data: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    """Weights of four values that no short fixed-point number has; and small integers, of which there are many."""
    X, Y = data
    model = trained(X, Y)
    few = [
        np.take([-0.7123, 0.1234, 0.3217, 0.9871], np.arange(w.size).reshape(w.shape) % 4) for w in model.get_weights()
    ]
    many = [np.arange(w.size).reshape(w.shape) / 4.0 - 3 for w in model.get_weights()]
    for weights, coding in ((few, "codebooks"), (many, "fixed point")):
        model.set_weights([weights[0], 0 * weights[1], weights[2], 0 * weights[3]])
        reference = np.asarray(model(X))
        packed = bc.pack(
            model, tmp_path / "n.bcz", validate=partial(largest_difference, X=X, reference=reference), max_rise=0.05
        )
        assert packed.coding == coding
        assert packed.error <= 0.05
    assert packed.rates.pruning == 1.0


@pytest.mark.slow
@pytest.mark.ci
def test_the_smallest_network_that_does_no_harm(
    data: tuple[np.ndarray, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    X, Y = data
    model = trained(X, Y)
    with caplog.at_level(logging.INFO, "compression.train.fitting"):
        small = small_of(model, X, Y, kl_weight=(300.0, 0.1, 0.01), epochs=20)
    pattern = r"KL of weight (\S+): (\d+) of \d+ parameters are left, .* validation loss (\S+) \(before (\S+)\)"
    tried = [list(map(float, match)) for match in re.findall(pattern, caplog.text)]
    # First what the highest weight left in the end; at most as many as there are weights.
    assert tried[0][0] == 300.0
    assert len(tried) <= 3
    assert small.count_params() in [parameters for _, parameters, _, _ in tried]
    harmless = [parameters for _, parameters, loss, before in tried if loss <= before]
    assert small.count_params() <= min(harmless, default=97)
    with pytest.raises(ValueError, match="kl_weight must be a number or several"):
        bc.fit(model, X, Y, loss="mse", method=bc.Bayesian(kl_weight=()))


@pytest.mark.parametrize("kind", ["lambda", "cross-entropy", "dataset"])
def test_losses_and_data_of_all_kinds(kind: str, data: tuple[np.ndarray, np.ndarray]) -> None:
    X, Y = data
    labels = (X[:, 0] > 0).astype(np.int32)
    losses: dict[str, Any] = {
        "lambda": lambda y, f: tf.reduce_mean(tf.square(y - f), axis=-1),
        "cross-entropy": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "dataset": "mse",
    }
    targets = labels if kind == "cross-entropy" else Y
    model = trained(X, targets, losses[kind], 2 if kind == "cross-entropy" else 1)
    common = {"loss": losses[kind], "epochs": 4, "last_epochs": 2, "method": bc.Bayesian(kl_weight=1.0)}
    seen: list[int] = []
    common["callbacks"] = [keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))]
    if kind == "dataset":
        batches = tf.data.Dataset.from_tensor_slices((X, targets)).batch(40)
        common["optimizer"] = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
        small = bc.fit(model, batches, validation_data=batches, **common)
    else:
        small = bc.fit(model, X, targets, **common)
    assert seen == [0, 1, 2, 3, 0, 1]
    assert np.all(np.isfinite(small(X)))
    assert small.optimizer is not None


def test_the_last_phase_does_not_make_it_worse(data: tuple[np.ndarray, np.ndarray]) -> None:
    """Where it ruins the network, the weights from before come back."""

    class Ruin(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if type(self.model.layers[-1]) is keras.layers.Dense:
                self.model.layers[-1].bias.assign([100.0])

    X, Y = data
    model = trained(X, Y)
    ruined = small_of(model, X, Y, epochs=4, last_epochs=3, kl_weight=1.0, callbacks=[Ruin()])
    assert abs(float(ruined.layers[-1].bias[0])) < 10
    assert error(ruined, X, Y) < 2 * error(model, X, Y)


def test_weights_of_the_kl() -> None:
    """KL / N goes with the negative log-likelihood of an example, in nats, over what makes the loss of it."""
    assert likelihood_of("sparse_categorical_crossentropy", (None, 10)) == (1, None, 1.0)
    assert likelihood_of(keras.losses.CategoricalCrossentropy(), (None, 7, 7, 10)).terms == 49
    assert likelihood_of("binary_crossentropy", (None, 64)).terms == 64
    assert likelihood_of("mse", (None, 3)) == (3, "noise_variance", 0.5)
    assert likelihood_of(keras.losses.MeanSquaredError(name="mine"), (None, 3)) == likelihood_of("mse", (None, 3))
    assert likelihood_of("mae", (None, 3)) == (3, "noise_width", 1.0)
    assert likelihood_of(lambda y, f: f, (None, 3)) == (1, None, 1.0)
    mse = LearntNoise(likelihood_of("mse", (None, 3)), 0.3)
    assert float(mse.factor) == pytest.approx(2 * 0.3 / 3)
    mse.on_epoch_end(1, {"noise_variance": 0.2})
    mse.on_epoch_end(2, {"noise_variance": math.nan})
    assert float(mse.factor) == pytest.approx(2 * 0.2 / 3)
    assert float(LearntNoise(likelihood_of("mae", (None, 3)), 0.3).factor) == pytest.approx(0.3 / 3)
    assert float(LearntNoise(likelihood_of("binary_crossentropy", (None, 64))).factor) == pytest.approx(1 / 64)


def test_wrong_arguments_are_refused(data: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, Y = data
    model = keras.Sequential([keras.Input((D,)), keras.layers.Dense(1)])
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(40)
    for arguments, options, message in (
        ((batches,), {}, "validation_data must be given with a Dataset"),
        ((batches.repeat(),), {"validation_data": (X, Y)}, "Dataset that ends"),
        ((X, Y[:5]), {}, r"equally many examples, at least 2, got \(160, 6\) and \(5, 1\)"),
        ((X,), {}, "equally many examples"),
        ((X, Y), {"validation_split": 1.0}, "validation_split must be between 0 and 1, got 1.0"),
        ((X, Y), {"validation_data": (X, Y[:3])}, "validation_data must have equally many"),
        ((X, Y), {"validation_data": batches.repeat()}, "validation_data must be a Dataset that ends"),
        ((X, Y), {"validation_data": batches.take(0)}, "validation_data must have examples"),
        ((batches.take(0),), {"validation_data": batches}, "x must have examples"),
        ((batches.unbatch(),), {"validation_data": batches}, "x must be a Dataset of batches of inputs and targets"),
        ((batches.map(lambda x, y: x),), {"validation_data": batches}, "x must be a Dataset of batches of inputs and"),
        ((X, Y), {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ((X, Y), {"epochs": 0}, "epochs must be at least 1, and last_epochs at least 0, got epochs=0"),
        ((X, Y), {"last_epochs": -1, "method": "magnitude"}, "last_epochs=-1"),
    ):
        with pytest.raises(ValueError, match=message):
            bc.fit(model, *arguments, loss="mse", **options)
    for settings in ({"keep": (0.5, 2.0)}, {"keep": 0}, {"values": 256}):
        with pytest.raises(ValueError, match=r"^(keep must be above 0 and at most 1|values must be 1 to 255), got"):
            bc.Magnitude(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_steps must be at least 8 for 1 epochs and 4 values of keep, got 7"):
        bc.fit(model, X, Y, loss="mse", method="magnitude", batch_size=72, max_steps=7)
    for name, place in (
        ("kl_weight", "Bayesian(kl_weight=...)"),
        ("values", "Magnitude(values=...)"),
        ("scale_speed", 'Bayesian(settings={"scale_speed": ...})'),
    ):
        words = f"fit() has no {name}=; say it of the method: method=compression.{place}"
        with pytest.raises(TypeError, match=re.escape(words)):
            bc.fit(model, X, Y, loss="mse", **{name: 1})  # type: ignore[arg-type]
    for name in ("class_weight", "sample_weight"):
        with pytest.raises(TypeError, match=f"fit.. has no {name}=; give a loss that weighs each example"):
            bc.fit(model, X, Y, loss="mse", **{name: {0: 1.0}})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be a built Sequential or functional model"):
        bc.fit(keras.Sequential([keras.layers.Dense(1)]), X, Y, loss="mse")
    with pytest.raises(ValueError, match=r"no kernels to round; save_bcz\(\) writes it"):
        bc.pack(keras.Sequential([keras.Input([D]), keras.layers.ReLU()]), tmp_path / "n.bcz", calibration=X, bits=3)
    with pytest.raises(ValueError, match="max_rise"):
        bc.pack(model, tmp_path / "n.bcz", validate=lambda m: 0.0, max_rise=-1.0)
    with pytest.raises(ValueError, match="finite number"):
        bc.pack(model, tmp_path / "n.bcz", validate=lambda m: math.nan)
    assert not (tmp_path / "n.bcz").exists()


@pytest.mark.slow
@pytest.mark.ci
def test_several_inputs_and_outputs(rng: np.random.Generator, tmp_path: Path) -> None:
    """Losses by output, inputs by name; and the units that nothing depends on go."""
    a, b = keras.Input((3,), name="a"), keras.Input((2,), name="b")
    x = keras.layers.Dense(12, "tanh")(keras.layers.Concatenate()([a, b]))
    outputs = {"value": keras.layers.Dense(1)(x), "label": keras.layers.Dense(2, "softmax")(x)}
    model = keras.Model({"a": a, "b": b}, outputs)
    X = {"a": rng.normal(size=(300, 3)).astype("float32"), "b": rng.normal(size=(300, 2)).astype("float32")}
    Y = {"value": X["a"][:, :1], "label": (X["b"][:, 0] > 0).astype("int32")}
    losses = {"value": "mae", "label": "sparse_categorical_crossentropy"}
    model.compile(keras.optimizers.Adam(0.02), losses)
    model.fit(X, Y, epochs=20, verbose=0)
    options: dict[str, Any] = {"metrics": {"label": ["accuracy"]}, "optimizer": keras.optimizers.Adam(0.01)}
    options["method"] = bc.Bayesian(kl_weight=np.float32(0.5))  # type: ignore[arg-type]
    small = bc.fit(model, X, Y, loss=losses, **options, epochs=20, last_epochs=5, seed=1)
    assert small.count_params() < 0.7 * model.count_params()
    before, after = (m.evaluate(X, Y, verbose=0, return_dict=True)["loss"] for m in (model, small))
    assert after < before + 0.2
    packed = bc.pack(small, tmp_path / "n.bcz", validate=lambda m: float(np.mean(abs(m(X)["value"] - Y["value"]))),
                     max_rise=0.05)  # fmt: skip
    assert packed.error <= packed.error_before + 0.05
    loaded = bc.load(tmp_path / "n.bcz")
    assert set(loaded(X)) == {"value", "label"}
    with pytest.raises(ValueError, match="loss must have one for each output, got none for value"):
        bc.fit(model, X, Y, loss={"label": "mae"})
    with pytest.raises(ValueError, match="one for each of 2 outputs, got 3"):
        bc.fit(model, X, Y, loss=["mae"] * 3)


def test_shared_values_are_kept_and_biases_are_coarse(rng: np.random.Generator, tmp_path: Path) -> None:
    """However much error is allowed, as weights were trained for these values; and units come sorted."""
    model = keras.Sequential([keras.Input([20]), keras.layers.Dense(30, "relu"), keras.layers.Dense(2)])
    values = np.array([-0.7, 0.0, 0.0, 0.0, 0.3, 1.1], np.float16)
    weights = [rng.choice(values, w.shape).astype(np.float32) for w in model.get_weights()]
    model.set_weights([weights[0], rng.normal(size=30), weights[2], rng.normal(size=2)])
    loaded = bc.load(bc.pack(model, tmp_path / "n.bcz", validate=lambda network: 0.0, max_rise=1.0).path)
    biases = loaded.get_weights()[1]
    np.testing.assert_array_equal(biases, np.rint(biases))
    reference, x = ordered(model), rng.normal(size=(5, 20)).astype(np.float32)
    packed = bc.pack(
        model, tmp_path / "n.bcz", validate=lambda network: difference(network, reference, x), max_rise=0.05
    )
    assert packed.coding == "codebooks"
    for a, b in zip(kernels_of(bc.load(packed.path)), kernels_of(reference), strict=True):
        np.testing.assert_array_equal(a, b)


def difference(a: keras.Model, b: keras.Model, x: np.ndarray) -> float:
    return float(np.abs(np.asarray(a(x)) - np.asarray(b(x))).max())


class Doubled(keras.layers.Layer):
    """Code that no file holds."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return 2 * x


@pytest.mark.parametrize("method", ["bayesian", "magnitude"])
@pytest.mark.parametrize(
    ("part", "cause"),
    [("layer", "'mine' is a Doubled"), ("operation", "the operation VectorizedMap of keras"), ("nothing", "")],
)
def test_it_is_said_before_the_first_step_that_no_file_can_hold_the_network(
    part: str, cause: str, method: Literal["bayesian", "magnitude"], caplog: pytest.LogCaptureFixture
) -> None:
    """The warning comes before examples are looked at: there are none here."""
    inputs = keras.Input([6, 3])
    x = keras.layers.Dense(4, "relu", dtype="float32" if method == "magnitude" else "mixed_float16")(inputs)
    x = Doubled(name="mine", dtype="float32")(x) if part == "layer" else x
    x = keras.layers.GlobalAveragePooling1D()(x)
    x = keras.ops.vectorized_map(lambda row: row, x) if part == "operation" else x
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    with pytest.raises(ValueError, match="first_step"):
        bc.fit(model, _Stop(), loss="mse", method=method)
    said = [record.getMessage() for record in caplog.records if "pack() will refuse" in record.getMessage()]
    assert len(said) == (part != "nothing")
    assert all(cause in each for each in said)


class _Batches(keras.utils.PyDataset):
    """Two batches."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((4, D)), np.zeros((4, 1))


def test_data_that_no_training_can_use_are_refused_before_the_first_step() -> None:
    model = keras.Sequential([keras.Input((D,)), keras.layers.Dense(1)])
    X, Y = np.zeros((8, D), np.float32), np.zeros((8, 1), np.float32)
    bad_X, bad_Y = X.copy(), Y.copy()
    bad_X[3, 2], bad_Y[[1, 5]] = np.inf, np.nan
    batches = tf.data.Dataset.from_tensor_slices((X, bad_Y)).batch(4)
    for x, y, valid, message in (
        (_Batches(), None, (X, Y), "x must be arrays or a tf.data.Dataset, got a _Batches"),
        ((part for part in [(X, Y)]), None, (X, Y), "x must be arrays or a tf.data.Dataset, got a generator"),
        (X, Y, _Batches(), "validation_data must be inputs and targets, or a Dataset, got a _Batches"),
        (bad_X, Y, None, "x must be finite, got NaN or infinite numbers in 1 of 8"),
        (X, bad_Y, None, "y must be finite, got NaN or infinite numbers in 2 of 8"),
        (X, Y, (bad_X, Y), "inputs of validation_data must be finite"),
        (X, Y, batches, "targets of validation_data must be finite"),
        (batches, None, (X, Y), "targets in x must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            bc.fit(model, x, y, loss="mse", validation_data=valid)
    with pytest.raises(ValueError, match="inputs of train must be finite"):
        parts_of({name: (bad_X, np.zeros(8, int)) for name in ("train", "valid", "test")})
    model.set_weights([np.full_like(part, np.nan) for part in model.get_weights()])
    with pytest.raises(ValueError, match="validation loss of the model is nan before training"):
        bc.fit(model, X, Y, loss="mse", method="magnitude")


@pytest.mark.parametrize("kind", ["int8", "LoRA", "bfloat16", "float16", "float64"])
def test_weights_that_are_no_plain_numbers_are_named_before_the_first_step(kind: str, tmp_path: Path) -> None:
    layer = keras.layers.Dense(4, name="odd", dtype="float32" if kind in ("int8", "LoRA") else kind)
    model = keras.Sequential([keras.Input((D,)), layer, keras.layers.Dense(1, dtype="float32")])
    if kind == "int8":
        layer.quantize("int8")
    if kind == "LoRA":
        layer.enable_lora(2)
    said = {"int8": "'odd' is quantised .int8.", "LoRA": "'odd' has LoRA weights"}.get(
        kind, f"of type {kind}, and they"
    )
    for method in ("bayesian", "magnitude"):
        with pytest.raises(ValueError, match=said):
            bc.fit(model, _Stop(), loss="mse", method=method)  # type: ignore[arg-type]
    if kind in ("int8", "LoRA"):
        with pytest.raises(ValueError, match=said):
            bc.compress(model, num_train=1)
        with pytest.raises(ValueError, match=said):
            bc.save_bcz(model, tmp_path / "n.bcz")


class _Stop:
    """Examples that must not be asked for before the warning."""

    def __getattribute__(self, name: str) -> object:
        raise ValueError("first_step")


@pytest.mark.parametrize("kind", [object, str, tf.string])
def test_words_are_inputs_too(kind: Any, rng: np.random.Generator) -> None:
    """As a list of two inputs; Keras itself takes words as tensors only."""
    words = rng.choice(["a", "b", "c"], (60, 1))
    given = tf.constant(words) if kind is tf.string else words.astype(kind)
    word, number = keras.Input((1,), dtype="string"), keras.Input((2,))
    x = keras.layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(word)
    x = keras.layers.Dense(6, "relu")(keras.layers.Concatenate()([x, number]))
    model = keras.Model([word, number], keras.layers.Dense(1)(x))
    X = [given, rng.normal(size=(60, 2)).astype(np.float32)]
    method = bc.Bayesian(kl_weight=0.1)
    small = bc.fit(model, X, (words == "a").astype(np.float32), loss="mse", epochs=2, last_epochs=1, method=method)
    assert small([words[:3], X[1][:3]]).shape == (3, 1)
