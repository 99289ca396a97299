"""Forty ordinary Keras models, small and with random weights, as users have them; and those of keras.applications."""

from collections.abc import Callable

import keras
import numpy as np

from compression.graph.graph import graph_of, layers_of

layers = keras.layers


def sequential(shape: tuple[int | None, ...], *parts: keras.layers.Layer, dtype: str = "float32") -> keras.Model:
    return keras.Sequential([keras.Input(shape, dtype=dtype), *parts])


def image(*parts: keras.layers.Layer, side: int | None = 8, channels: int = 3, units: int = 3) -> keras.Model:
    """Layers on images, then the mean over pixels and classes."""
    return sequential((side, side, channels), *parts, layers.GlobalAveragePooling2D(), layers.Dense(units))


def conv(filters: int = 6, size: int = 3, activation: str | None = "relu", **settings: object) -> keras.layers.Layer:
    return layers.Conv2D(filters, size, padding="same", activation=activation, **settings)


def mnist_convnet() -> keras.Model:
    body = [conv(6), layers.MaxPooling2D(), conv(8), layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.5)]
    return sequential((12, 12, 1), *body, layers.Dense(4, activation="softmax"))


def conv_bn_relu() -> keras.Model:
    parts = [conv(6, activation=None, use_bias=False), layers.BatchNormalization(), layers.ReLU()]
    return image(*parts, conv(5, activation=None), layers.BatchNormalization(), layers.ReLU())


def mlp_dropout() -> keras.Model:
    return sequential((9,), layers.Dense(8, "relu"), layers.Dropout(0.3), layers.Dense(7, "tanh"), layers.Dense(2))


def autoencoder() -> keras.Model:
    return sequential((9,), *(layers.Dense(units, "relu") for units in (7, 3, 7)), layers.Dense(9, "sigmoid"))


def regularised() -> keras.Model:
    bound = keras.constraints.MaxNorm(3.0)
    return sequential((9,), layers.Dense(8, "relu", kernel_regularizer="l2", kernel_constraint=bound), layers.Dense(2))


def mixed_precision() -> keras.Model:
    body = [layers.Dense(8, "relu", dtype="mixed_float16"), layers.Dense(6, "relu", dtype="mixed_float16")]
    return sequential((9,), *body, layers.Dense(2, dtype="float32"))


def two_inputs() -> keras.Model:
    pixels, table = keras.Input((6, 6, 2), name="pixels"), keras.Input((5,), name="table")
    x = layers.Flatten()(conv(4)(pixels))
    y = layers.Dense(6, "relu")(table)
    x = layers.Dense(8, "relu")(layers.Concatenate()([x, y]))
    return keras.Model({"pixels": pixels, "table": table}, layers.Dense(2)(x))


def two_outputs() -> keras.Model:
    inputs = keras.Input((9,))
    x = layers.Dense(8, "relu")(inputs)
    value = layers.Dense(1, name="value")(layers.Dense(6, "relu")(x))
    return keras.Model(inputs, {"value": value, "label": layers.Dense(3, "softmax", name="label")(x)})


def recurrent(kind: type) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        body = [layers.Dense(6, "relu"), kind(5), layers.Dense(6, "relu")]
        return sequential((None, 4), *body, layers.Dense(2))

    return build


def embedding() -> keras.Model:
    body = [layers.Embedding(11, 6), layers.GlobalAveragePooling1D(), layers.Dense(7, "relu"), layers.Dense(2)]
    return sequential((None,), *body, dtype="int32")


def transformer() -> keras.Model:
    inputs = keras.Input((7,), dtype="int32")
    x = layers.Embedding(11, 8)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(12, "relu")(x)))
    return keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))


def skip() -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    x = conv(6)(inputs)
    for _ in range(2):
        y = layers.BatchNormalization()(conv(6, activation=None)(conv(5)(x)))
        x = layers.ReLU()(layers.Add()([x, y]))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def concatenated() -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    x = conv(4)(inputs)
    x = layers.Concatenate()([x, conv(3)(x), layers.MaxPooling2D(3, 1, padding="same")(conv(2, 1)(x))])
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(conv(4)(x))))


def squeeze_and_excite() -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    x = conv(6)(inputs)
    gate = layers.Reshape((1, 1, 6))(layers.GlobalAveragePooling2D()(x))
    gate = conv(6, 1, "sigmoid")(conv(3, 1)(gate))
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(conv(4)(x * gate))))


def depthwise() -> keras.Model:
    parts = [conv(6, activation=None), layers.BatchNormalization(), layers.ReLU(6.0)]
    parts += [layers.DepthwiseConv2D(3, padding="same", use_bias=False), layers.BatchNormalization(), layers.ReLU(6.0)]
    return image(*parts, conv(5, 1))


def generator() -> keras.Model:
    body = [layers.Dense(2 * 2 * 6, "relu"), layers.Reshape((2, 2, 6))]
    body += [
        layers.Conv2DTranspose(5, 3, 2, "same", activation="relu"),
        layers.Conv2DTranspose(4, 2, activation="relu"),
    ]
    return sequential((7,), *body, layers.Conv2D(2, 3, padding="same", activation="sigmoid"))


def u_net() -> keras.Model:
    inputs = keras.Input((8, 8, 2))
    before = conv(4)(inputs)
    x = conv(6)(layers.MaxPooling2D()(before))
    x = layers.Concatenate()([before, layers.UpSampling2D()(x)])
    return keras.Model(inputs, conv(1, 1, "sigmoid")(conv(5)(x)))


def normalised_table() -> keras.Model:
    first = layers.Normalization()
    first.adapt(np.random.default_rng(0).normal(2.0, 3.0, size=(50, 6)))
    return sequential((6,), first, layers.Dense(8, "relu"), layers.Dense(2))


def augmented() -> keras.Model:
    first = [layers.RandomFlip("horizontal"), layers.RandomRotation(0.1), layers.Rescaling(1 / 127.5, offset=-1)]
    return image(*first, conv(5), layers.MaxPooling2D())


def nested() -> keras.Model:
    base = image(conv(5), layers.BatchNormalization(), conv(6), units=7)
    inputs = keras.Input((8, 8, 3))
    x = base(layers.Rescaling(1 / 255)(inputs), training=False)
    return keras.Model(inputs, layers.Dense(3)(layers.Dense(6, "relu")(x)))


def siamese() -> keras.Model:
    tower = sequential((6,), layers.Dense(5, "relu"), layers.Dense(4))
    a, b = keras.Input((6,)), keras.Input((6,))
    x = layers.Subtract()([tower(a), tower(b)])
    return keras.Model([a, b], layers.Dense(1)(layers.Dense(6, "relu")(x)))


def prelu() -> keras.Model:
    return image(conv(6, activation=None), layers.PReLU(shared_axes=[1, 2]), conv(5, activation=None), layers.PReLU())


def video() -> keras.Model:
    """A model that is no chain, for each image of a sequence."""
    frame, steps = keras.Input((6, 6, 1)), keras.Input((5, 6, 6, 1))
    body = conv(5)(layers.Add()([conv(4)(frame), conv(4, 1)(frame)]))
    images = layers.TimeDistributed(keras.Model(frame, layers.GlobalAveragePooling2D()(body)))
    return keras.Model(steps, layers.Dense(2)(layers.GRU(4)(images(steps))))


MODELS: dict[str, Callable[[], keras.Model]] = {
    "mnist_convnet": mnist_convnet,
    "conv_bn_relu": conv_bn_relu,
    "mlp_dropout": mlp_dropout,
    "autoencoder": autoencoder,
    "regularised": regularised,
    "mixed_precision": mixed_precision,
    "leaky_relu": lambda: image(conv(6, activation=None), layers.LeakyReLU(0.2), conv(5)),
    "elu": lambda: image(conv(6, activation=None), layers.ELU(0.7), conv(5)),
    "relu6": lambda: image(conv(6, activation=None), layers.ReLU(6.0), conv(5)),
    "global_max": lambda: sequential((8, 8, 3), conv(6), conv(5), layers.GlobalMaxPooling2D(), layers.Dense(3)),
    "mish": lambda: image(conv(6, activation="mish"), conv(5, activation="hard_sigmoid")),
    "open_size": lambda: image(conv(6), conv(5), side=None),
    "two_inputs": two_inputs,
    "video": video,
    "two_outputs": two_outputs,
    "lstm": recurrent(layers.LSTM),
    "gru": recurrent(layers.GRU),
    "embedding": embedding,
    "transformer": transformer,
    "skip": skip,
    "concatenated": concatenated,
    "squeeze_and_excite": squeeze_and_excite,
    "depthwise": depthwise,
    "separable": lambda: image(
        layers.SeparableConv2D(6, 3, activation="relu"), layers.SeparableConv2D(5, 3, padding="same")
    ),
    "conv1d": lambda: sequential(
        (12, 3),
        layers.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="relu"),
        layers.MaxPooling1D(),
        layers.Conv1D(5, 3, activation="relu"),
        layers.GlobalMaxPooling1D(),
        layers.Dense(3),
    ),
    "conv3d": lambda: sequential(
        (6, 6, 6, 1),
        layers.Conv3D(5, 3, padding="same", activation="relu"),
        layers.AveragePooling3D(2),
        layers.Conv3D(4, 2, activation="relu"),
        layers.Flatten(),
        layers.Dense(3),
    ),
    "generator": generator,
    "u_net": u_net,
    "dilated": lambda: image(conv(6, dilation_rate=2), layers.Conv2D(5, 2, dilation_rate=2, activation="relu")),
    "normalisation_after_activation": lambda: image(conv(6), layers.BatchNormalization(), conv(5, activation="tanh")),
    "normalisation_first": lambda: image(layers.BatchNormalization(), conv(6), conv(5)),
    "rescaling_first": lambda: image(layers.Rescaling(1 / 255, -0.5), conv(6), conv(5)),
    "normalised_table": normalised_table,
    "augmented": augmented,
    "zero_padding": lambda: image(
        conv(6, activation="sigmoid"), layers.ZeroPadding2D(1), layers.Conv2D(5, 3, strides=2, activation="relu")
    ),
    "reshape": lambda: sequential(
        (12,), layers.Reshape((6, 2)), layers.Conv1D(5, 3), layers.Flatten(), layers.Dense(2)
    ),
    "prelu": prelu,
    "noise": lambda: image(conv(6), layers.SpatialDropout2D(0.2), conv(5), layers.GaussianNoise(0.1)),
    "nested": nested,
    "siamese": siamese,
    "dense_on_sequences": lambda: sequential(
        (7, 4), layers.Dense(6, "relu"), layers.Dense(5, "relu"), layers.Flatten(), layers.Dense(2)
    ),
}
"""By name. With those of APPLICATIONS there are more than forty."""

APPLICATIONS: dict[str, Callable[[], keras.Model]] = {
    "VGG16": lambda: keras.applications.VGG16(weights=None, input_shape=(32, 32, 3), classes=10),
    "ResNet50": lambda: keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=10),
    "MobileNetV2": lambda: keras.applications.MobileNetV2(
        weights=None, input_shape=(32, 32, 3), classes=10, alpha=0.35
    ),
}


_ROWS_OF_STATISTICS = 64
_SHALLOW = 10


def randomise(model: keras.Model, rng: np.random.Generator) -> keras.Model:
    """Weights that keep signals at their size, and statistics of batch normalisation from random inputs.

    Biases are the same for all inputs, and drown what differs if many layers without normalisation add theirs.
    """
    parts = [node.layer for node in layers_of(graph_of(model))]
    num_kernels = sum(1 for layer in parts if any(variable.name == "kernel" for variable in layer.weights))
    is_deep = num_kernels > _SHALLOW and not any(map(_is_batch_normalisation, parts))
    spread = 0.03 if is_deep else 0.3
    for variable in model.weights:
        shape = tuple(variable.shape)
        if "variance" in variable.name or variable.name == "gamma":
            value = np.exp(0.3 * rng.normal(size=shape))
        elif len(shape) > 1:
            value = rng.normal(size=shape) * np.sqrt(2.0 / max(1, np.prod(shape[:-1])))
        elif variable.name != "count":
            value = spread * rng.normal(size=shape)
        else:
            continue
        variable.assign(value.astype(variable.dtype))
    set_statistics(model, inputs_of(model, rng, _ROWS_OF_STATISTICS))
    return model


def set_statistics(model: keras.Model, x: object) -> None:
    """Means and variances of batch normalisation become those of these inputs, or signals die out in deep networks."""
    normalisations = [node.layer for node in layers_of(graph_of(model)) if _is_batch_normalisation(node.layer)]
    momenta = [layer.momentum for layer in normalisations]
    for layer in normalisations:
        layer.momentum = 0.0
    if normalisations:
        model(x, training=True)
    for layer, momentum in zip(normalisations, momenta, strict=True):
        layer.momentum = momentum


def _is_batch_normalisation(layer: object) -> bool:
    return isinstance(layer, layers.BatchNormalization)


def inputs_of(model: keras.Model, rng: np.random.Generator, rows: int = 4) -> object:
    """Random inputs of a model, nested as it takes them: each row has means of its own, which pooling leaves in place;
    a network that rescales gets pixels from 0 to 255."""
    takes_pixels = any(isinstance(node.layer, layers.Rescaling) for node in graph_of(model).nodes)

    def one(tensor: keras.KerasTensor) -> np.ndarray:
        shape = (rows, *(9 if size is None else size for size in tensor.shape[1:]))
        if "int" in tensor.dtype:
            return rng.integers(0, 11, shape).astype("int32")
        means = rng.normal(size=(rows, *(1 for _ in shape[2:]), *shape[-1:])[: len(shape)])
        values = means + rng.normal(size=shape)
        return (np.clip(127.5 + 60.0 * values, 0.0, 255.0) if takes_pixels else values).astype("float32")

    return keras.tree.map_structure(one, getattr(model, "_functional", model)._inputs_struct)
