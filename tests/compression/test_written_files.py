"""A file is put in place only if it gives back its network: every layer with every argument of its call."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from compression.files.container import load_bcz, save_bcz
from compression.files.contents import contents_of
from compression.files.single_file import pack
from compression.graph.supported import STORED

LAYERS = keras.layers


class Case(NamedTuple):
    """How a layer is made and called: settings, shapes of its inputs, and whether it takes a list of them."""

    settings: Mapping[str, Any] = {}
    shapes: tuple[tuple[int, ...], ...] = ((4,),)
    is_list: bool = False
    dtype: str = "float32"


_LINE, _IMAGE, _VOLUME = ((6, 3),), ((6, 6, 3),), ((4, 4, 4, 3),)
_BY_RANK = {"1D": _LINE, "2D": _IMAGE, "3D": _VOLUME}
_PAIR = ((5, 3), (5, 3))
_CASES = {
    "Dense": Case({"units": 2}),
    "Activation": Case({"activation": "relu"}),
    "SelectInputs": Case({"indices": [0, 2]}),
    "PlaceInputs": Case({"indices": [1, -1, 0]}),
    "Rescaling": Case({"scale": 0.5, "offset": 1.0}),
    "RepeatVector": Case({"n": 3}),
    "EinsumDense": Case({"equation": "ab,bc->ac", "output_shape": 3}),
    "Embedding": Case({"input_dim": 7, "output_dim": 2}, dtype="int32"),
    "ReversibleEmbedding": Case({"input_dim": 7, "output_dim": 4}),
    "Dot": Case({"axes": 1}, ((4,), (4,)), is_list=True),
    "GroupNormalization": Case({"groups": 2}),
    "Normalization": Case({"mean": 1.0, "variance": 2.0}),
    "Resizing": Case({"height": 3, "width": 3}, _IMAGE),
    "CenterCrop": Case({"height": 3, "width": 3}, _IMAGE),
    "Reshape": Case({"target_shape": (2, 2)}),
    "Permute": Case({"dims": (2, 1)}, _LINE),
    "LSTM": Case({"units": 3}, _LINE),
    "GRU": Case({"units": 3}, _LINE),
    "SimpleRNN": Case({"units": 3}, _LINE),
    "MultiHeadAttention": Case({"num_heads": 2, "key_dim": 2}, _PAIR),
    "GroupedQueryAttention": Case({"head_dim": 2, "num_query_heads": 2, "num_key_value_heads": 1}, _PAIR),
    "Attention": Case({}, _PAIR, is_list=True),
    "AdditiveAttention": Case({}, _PAIR, is_list=True),
    "Masking": Case({}, _LINE),
    "Flatten": Case({}, _LINE),
    "CategoryEncoding": Case({"num_tokens": 7, "output_mode": "count"}, dtype="int32"),
    "Discretization": Case({"bin_boundaries": [-0.5, 0.5]}),
    "IntegerLookup": Case({"vocabulary": [5, 3]}, dtype="int32"),
    "StringLookup": Case({"vocabulary": ["a", "b"]}, dtype="string"),
    "TextVectorization": Case({"vocabulary": ["a", "b"], "output_sequence_length": 2}, ((1,),), dtype="string"),
    "RandomCrop": Case({"height": 3, "width": 3}, _IMAGE),
    "Hashing": Case({"num_bins": 3}, dtype="int32"),
    "HashedCrossing": Case({"num_bins": 3}, ((1,), (1,)), is_list=True, dtype="int32"),
    "MelSpectrogram": Case({"num_mel_bins": 4, "sequence_stride": 64, "fft_length": 128}, ((512,),)),
    "STFTSpectrogram": Case({"frame_length": 8, "frame_step": 4}, ((20, 1),)),
    "LayerScale": Case({"init_values": 0.5, "projection_dim": 4}),
    "CustomScaleLayer": Case({"scale": 0.3}, ((4,), (4,)), is_list=True),
    "TimeDistributed": Case({"layer": ("Dense", {"units": 2})}, _LINE),
    "Bidirectional": Case({"layer": ("GRU", {"units": 3})}, _LINE),
    "SpectralNormalization": Case({"layer": ("Dense", {"units": 2})}),
    "RNN": Case({"cell": ("LSTMCell", {"units": 3, "use_bias": False})}, _LINE),
    "Pipeline": Case({"layers": [("RandomFlip", {}), ("Rescaling", {"scale": 0.5}), ("Dense", {"units": 2})]}, _LINE),
    "TFDConcat": Case({"axis": -1}, ((4,), (4,)), is_list=True),
}
_ATTENTION = ("MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention")


def case_of(kind: str) -> Case:
    if kind in _CASES:
        return _CASES[kind]
    if kind in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate"):
        return Case({}, ((4,), (4,)), is_list=True)
    if kind.startswith("Adaptive"):
        return Case({"output_size": 2}, _BY_RANK[kind[-2:]])
    if kind.startswith("Average"):
        return Case({"pool_size": 2}, _BY_RANK[kind[-2:]])
    shapes = next((shapes for rank, shapes in _BY_RANK.items() if rank in kind), ((4,),))
    if kind.startswith("ConvLSTM"):
        return Case({"filters": 2, "kernel_size": 2, "padding": "same"}, ((4, *shapes[0]),))
    if "Conv" in kind:
        sizes = {"kernel_size": 2} if "Depthwise" in kind else {"filters": 4, "kernel_size": 2}
        return Case(sizes, shapes)
    return Case({}, shapes)


def arguments_of(kind: str) -> list[str]:
    """Arguments of a call besides the first; what a model says of `training` overrides that of a call."""
    layer: Any = STORED[kind]
    names = list(inspect.signature(layer.call).parameters)[1:]
    required = ("value",) if kind in _ATTENTION[:2] else ()
    return [name for name in names[1:] if name not in ("training", *required)]


CALLS: list[tuple[str, tuple[str, ...]]] = [(kind, (name,)) for kind in STORED for name in arguments_of(kind)]
CALLS += [(kind, tuple(arguments_of(kind))) for kind in STORED if len(arguments_of(kind)) != 1]


def network_of(kind: str, names: tuple[str, ...]) -> keras.Model:
    """One layer, called with these arguments, with random weights."""
    case, rng = case_of(kind), np.random.default_rng(0)
    inputs = [keras.Input(shape, dtype=case.dtype) for shape in case.shapes]
    steps = case.shapes[0][0]
    settings = dict(case.settings)
    for key in settings.keys() & {"layer", "cell", "layers"}:
        entries = settings[key] if key == "layers" else [settings[key]]
        inner = [getattr(keras.layers, name)(**its_settings) for name, its_settings in entries]
        settings[key] = inner if key == "layers" else inner[0]
    layer = STORED[kind](**settings)
    first = list(inputs) if case.is_list else inputs[0]
    more: dict[str, Any] = {}
    shape: tuple[int, ...]
    for name in names:
        if name in ("return_attention_scores", "use_causal_mask", "reverse"):
            more[name] = True
            continue
        if name == "initial_state":
            shape = (*case.shapes[0][1:-1], 2) if kind.startswith("ConvLSTM") else (3,)
            states = [keras.Input(shape) for _ in range(1 if kind in ("GRU", "SimpleRNN") else 2)]
            inputs += states
            more[name] = states
            continue
        if name == "count_weights":
            inputs.append(keras.Input(case.shapes[0]))
            more[name] = inputs[-1]
            continue
        if name == "key":
            inputs.append(keras.Input(case.shapes[1]))
            more[name] = inputs[-1]
            continue
        shape = (steps, steps) if name == "attention_mask" else (steps,)
        if kind in ("Softmax", "BatchNormalization"):
            shape = case.shapes[0] if kind == "Softmax" else ()
        masks = [keras.Input(shape, dtype="bool") for _ in range(2 if case.is_list else 1)]
        inputs += masks
        more[name] = masks if case.is_list else masks[0]
    outputs = layer(*inputs[:2], **more) if kind in _ATTENTION[:2] else layer(first, **more)
    model = keras.Model(inputs if len(inputs) > 1 else inputs[0], outputs)
    for variable in model.weights:
        variable.assign(np.abs(rng.normal(size=variable.shape)) + 0.1)
    return model


def values_for(model: keras.Model, rng: np.random.Generator) -> list[tf.Tensor]:
    makers = {
        "bool": lambda shape: rng.integers(0, 2, shape) > 0,
        "int32": lambda shape: rng.integers(0, 7, shape),
        "string": lambda shape: rng.choice(["a", "b", "c"], shape),
    }
    drawn = [
        makers.get(each.dtype, lambda shape: rng.normal(size=shape))((3, *each.shape[1:])) for each in model.inputs
    ]
    return [tf.constant(part, each.dtype) for part, each in zip(drawn, model.inputs, strict=True)]


def outputs_of(model: keras.Model, values: list[tf.Tensor]) -> list[np.ndarray]:
    given = values if len(values) > 1 else values[0]
    return [np.asarray(part) for part in keras.tree.flatten(model(given, training=False))]


@pytest.mark.parametrize(("kind", "names"), CALLS)
def test_every_layer_with_every_argument_comes_back(
    kind: str, names: tuple[str, ...], tmp_path: Path, rng: np.random.Generator
) -> None:
    """It comes back with equal outputs; none of them needs to be refused."""
    path = tmp_path / "n.bcz"
    path.write_bytes(b"old")
    model = network_of(kind, names)
    save_bcz(model, path)
    loaded = load_bcz(path)
    values = values_for(model, rng)
    before, after = outputs_of(model, values), outputs_of(loaded, values)
    assert len(before) == len(after) >= 1
    assert np.ptp(before[0]) > 0
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def decoder() -> keras.Model:
    """An encoder's states are those that a decoder begins with."""
    e, d = keras.Input((5, 6)), keras.Input((5, 6))
    _, h, c = LAYERS.LSTM(8, return_state=True)(e)
    return keras.Model([e, d], LAYERS.Dense(6)(LAYERS.LSTM(8, return_sequences=True)(d, initial_state=[h, c])))


def test_an_encoder_and_its_decoder(tmp_path: Path, rng: np.random.Generator) -> None:
    model = decoder()
    packed = pack(model, tmp_path / "n.bcz", validate=lambda network: float(len(network.weights)))
    assert packed.bytes == (tmp_path / "n.bcz").stat().st_size
    save_bcz(model, tmp_path / "n.bcz")
    values = values_for(model, rng)
    np.testing.assert_array_equal(outputs_of(load_bcz(tmp_path / "n.bcz"), values)[0], outputs_of(model, values)[0])


def test_layers_that_are_activations_come_back_behind_others(tmp_path: Path, rng: np.random.Generator) -> None:
    leaky = LAYERS.LeakyReLU(negative_slope=0.1)
    shared = LAYERS.Dense(6, activation=leaky)
    i = keras.Input((5, 6))
    x = LAYERS.Conv1D(6, 3, padding="same", activation=LAYERS.ReLU(6.0))(shared(shared(i)))
    x = LAYERS.EinsumDense("abc,cd->abd", (None, 4), activation=LAYERS.Softmax(axis=1))(x)
    model = keras.Model(i, LAYERS.Dense(2, activation=leaky)(x))
    rows = rng.normal(size=(3, 5, 6)).astype(np.float32)
    path = tmp_path / "n.bcz"
    save_bcz(model, path)
    np.testing.assert_array_equal(load_bcz(path)(rows), model(rows))
    assert pack(model, path, calibration=rows, bits=12).bytes < 1200
    np.testing.assert_allclose(load_bcz(path)(rows), model(rows), atol=0.02)
    # What has weights of its own stays where it is.
    slopes = keras.Sequential([keras.Input((4,)), LAYERS.Dense(3, activation=LAYERS.PReLU()), LAYERS.Dense(1)])
    with pytest.raises(ValueError, match="has the activation <PReLU"):
        save_bcz(slopes, path)


@pytest.mark.parametrize("first", [LAYERS.Embedding(9, 4, mask_zero=True), LAYERS.Masking()])
def test_masks_that_keras_makes_are_made_again(first: keras.Layer, tmp_path: Path, rng: np.random.Generator) -> None:
    is_words = isinstance(first, LAYERS.Embedding)
    inputs = keras.Input((6,) if is_words else (6, 4), dtype="int32" if is_words else "float32")
    model = keras.Model(inputs, LAYERS.Dense(2)(LAYERS.GRU(3)(LAYERS.LSTM(5, return_sequences=True)(first(inputs)))))
    save_bcz(model, tmp_path / "n.bcz")
    x = rng.integers(0, 9, (4, 6)).astype("int32") if is_words else rng.normal(size=(4, 6, 4)).astype("float32")
    x[:, 3:] = 0
    loaded = load_bcz(tmp_path / "n.bcz")
    np.testing.assert_array_equal(loaded(x), model(x))
    x[:, 3] = 1
    assert np.ptp(np.asarray(loaded(x)) - np.asarray(model(x))) == 0


def of_cells() -> keras.Model:
    """Cells of two kinds, one after the other, and of another kind there and back."""
    inputs = keras.Input((5, 3))
    x = LAYERS.RNN([LAYERS.GRUCell(4), LAYERS.SimpleRNNCell(3)], return_sequences=True)(inputs)
    return keras.Model(inputs, LAYERS.Bidirectional(LAYERS.RNN(LAYERS.LSTMCell(2)))(LAYERS.Masking()(x)))


def chain_over_time() -> keras.Model:
    """A chain of layers for each image of a film; dropout in it does nothing."""
    image = [LAYERS.Conv2D(2, 2, activation="relu"), LAYERS.Dropout(0.5), LAYERS.Flatten(), LAYERS.Dense(3)]
    inputs = keras.Input((4, 5, 5, 1))
    x = LAYERS.TimeDistributed(keras.Sequential([keras.Input((5, 5, 1)), *image]))(inputs)
    return keras.Model(inputs, LAYERS.GRU(2)(x))


def functional_over_time() -> keras.Model:
    """The same as a functional model within another."""
    image = x = keras.Input((5, 5, 1))
    for layer in (LAYERS.Conv2D(2, 2, activation="relu"), LAYERS.Flatten(), LAYERS.Dense(3)):
        x = layer(x)
    inputs = keras.Input((4, 5, 5, 1))
    return keras.Model(inputs, LAYERS.GRU(2)(LAYERS.TimeDistributed(keras.Model(image, x))(inputs)))


def encoded_features() -> keras.Model:
    """What Keras makes of the columns of a table."""
    space = keras.utils.FeatureSpace(
        {"size": "float_normalized", "kind": "string_categorical", "count": "integer_categorical"}, output_mode="concat"
    )
    rows = {"size": np.arange(6.0), "kind": np.array([*"abbacd"]), "count": np.array([3, 1, 4, 1, 5, 1])}
    space.adapt(tf.data.Dataset.from_tensor_slices(rows))
    return keras.Model([*space.get_inputs().values()], LAYERS.Dense(2)(space.get_encoded_features()))


@pytest.mark.parametrize("make", [of_cells, chain_over_time, functional_over_time, encoded_features])
def test_layers_in_layers_come_back(make: Callable[[], keras.Model], tmp_path: Path, rng: np.random.Generator) -> None:
    model = make()
    save_bcz(model, tmp_path / "n.bcz")
    values = values_for(model, rng)
    expected = outputs_of(model, values)[0]
    assert np.ptp(expected, axis=0).max() > 1e-3
    np.testing.assert_array_equal(outputs_of(load_bcz(tmp_path / "n.bcz"), values)[0], expected)


def masked_by_hand() -> keras.Model:
    """A mask that Keras would not make, which the next layer gets from Keras."""
    inputs = keras.Input((6,), dtype="int32")
    x = LAYERS.LSTM(3, return_sequences=True)(LAYERS.Embedding(9, 4)(inputs), mask=keras.ops.not_equal(inputs, 3))
    return keras.Model(inputs, LAYERS.Dense(2)(LAYERS.GRU(3)(x)))


def masked_from_outside() -> keras.Model:
    """A nested model, whose layers get the mask of what it is given."""
    inputs = keras.Input((6,), dtype="int32")
    inner = keras.Sequential([keras.Input((6, 4)), LAYERS.LSTM(3), LAYERS.Dense(2)])
    return keras.Model(inputs, inner(LAYERS.Embedding(9, 4, mask_zero=True)(inputs)))


@pytest.mark.parametrize("make", [masked_by_hand, masked_from_outside])
def test_masks_by_hand_and_from_outside_come_back(make: Callable[[], keras.Model], tmp_path: Path) -> None:
    model = make()
    save_bcz(model, tmp_path / "n.bcz")
    words = np.array([[3, 1, 2, 3, 3, 5], [3, 1, 2, 0, 0, 0], [4, 1, 2, 0, 0, 0]], np.int32)
    expected = np.asarray(model(words))
    assert np.ptp(expected, axis=0).max() > 1e-3
    np.testing.assert_array_equal(load_bcz(tmp_path / "n.bcz")(words), expected)


def test_what_would_not_come_back_is_refused_before_work_and_the_old_file_stays(tmp_path: Path) -> None:
    """States that are kept from batch to batch: a file has no size of batches."""
    layer = LAYERS.Bidirectional(LAYERS.LSTM(3, stateful=True), name="both")
    model = keras.Sequential([keras.Input(batch_shape=(2, 4, 3)), layer])
    path = tmp_path / "n.bcz"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="layer 'both' keeps states from batch to batch"):
        save_bcz(model, path)

    def validate(network: keras.Model) -> float:
        raise AssertionError("it is asked for an error before the network is refused")

    with pytest.raises(ValueError, match="layer 'both' keeps states"):
        pack(model, path, validate=validate)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["n.bcz"]


@pytest.mark.parametrize("part", ["weights", "calls", "outputs"])
def test_what_differs_is_said(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that gives back another network: the writer asks it, and the old file stays."""
    from compression.files import checking

    def other(content: bytes) -> Any:
        found = read(content)
        if part == "weights":
            found.weights[0].kernel[0, 0] += 1
        if part == "calls":
            found.graph.nodes[-1].kwargs["mask"] = None
        if part == "outputs":
            found.layers[0].activation = keras.activations.exponential
        return found

    read = contents_of
    monkeypatch.setattr(checking, "contents_of", other)
    inputs = keras.Input((4,))
    hidden = LAYERS.Dense(3, "relu")(inputs)
    model = keras.Model(inputs, LAYERS.Add()([LAYERS.Dense(3)(hidden), hidden]))
    (tmp_path / "n.bcz").write_bytes(b"old")
    with pytest.raises(ValueError, match="would not come back"):
        save_bcz(model, tmp_path / "n.bcz")
    assert (tmp_path / "n.bcz").read_bytes() == b"old"


def test_constants_among_arguments_come_back(tmp_path: Path) -> None:
    inputs = keras.Input((5, 3))
    state = np.ones((1, 4), np.float32)
    model = keras.Model(inputs, LAYERS.GRU(4, name="gru")(inputs, initial_state=[keras.ops.convert_to_tensor(state)]))
    save_bcz(model, tmp_path / "n.bcz")
    rows = np.linspace(-1, 1, 15, dtype=np.float32).reshape(1, 5, 3)
    np.testing.assert_array_equal(load_bcz(tmp_path / "n.bcz")(rows), model(rows))
