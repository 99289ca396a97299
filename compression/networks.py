"""The networks of Section 5 of Louizos, Ullrich and Welling (2017), and a small one, as plain Keras models of logits.

Weights are initialised by He et al. (2015), as in the paper, biases by zero.
"""

from collections.abc import Callable, Sequence

import keras

__all__ = ["NETWORKS", "lenet_5_caffe", "lenet_300_100", "small", "vgg"]

#: Maps of the convolutions of the VGG network; "pool" halves the image.
_VGG = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool")


def lenet_300_100(input_shape: Sequence[int] = (28, 28, 1), num_classes: int = 10, *, seed: int = 0) -> keras.Model:
    """784-300-100-10 with ReLU: 266,200 weights for images of MNIST.

    :param input_shape: height, width and channels of an image; pixels become inputs row by row.
    """
    he = _initializers(seed)
    x = inputs = keras.Input(tuple(input_shape))
    x = keras.layers.Flatten()(x)
    for units in (300, 100):
        x = keras.layers.Dense(units, "relu", kernel_initializer=he())(x)
    return keras.Model(inputs, keras.layers.Dense(num_classes, kernel_initializer=he())(x), name="lenet_300_100")


def lenet_5_caffe(input_shape: Sequence[int] = (28, 28, 1), num_classes: int = 10, *, seed: int = 0) -> keras.Model:
    """Convolutions of 20 and 50 maps, 5 x 5, each with ReLU and pooling, then 500 units: 430,500 weights for MNIST."""
    return _convolutional("lenet_5_caffe", input_shape, num_classes, [(20, 5), (50, 5)], 500, seed)


def small(input_shape: Sequence[int] = (8, 8, 1), num_classes: int = 10, *, seed: int = 0) -> keras.Model:
    """Convolutions of 16 and 16 maps, 3 x 3 and 2 x 2, and 64 units, for images of 8 x 8."""
    return _convolutional("small", input_shape, num_classes, [(16, 3), (16, 2)], 64, seed)


def vgg(
    input_shape: Sequence[int] = (32, 32, 3), num_classes: int = 10, *, seed: int = 0, divisor: int = 1
) -> keras.Model:
    """13 convolutions of 3 x 3 with 64 to 512 maps and 512 units, without normalisation: 14,977,728 weights.

    :param input_shape: height and width are at least 32.
    :param divisor: divide the number of maps and units by it.
    """
    he = _initializers(seed)
    x = inputs = keras.Input(tuple(input_shape))
    for maps in _VGG:
        if maps == "pool":
            x = keras.layers.MaxPooling2D()(x)
        else:
            conv = keras.layers.Conv2D(
                int(maps) // divisor, 3, padding="same", activation="relu", kernel_initializer=he()
            )
            x = conv(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(512 // divisor, "relu", kernel_initializer=he())(x)
    return keras.Model(inputs, keras.layers.Dense(num_classes, kernel_initializer=he())(x), name="vgg")


#: Name -> function of input shape and number of classes, with a seed.
NETWORKS: dict[str, Callable[..., keras.Model]] = {
    "small": small,
    "lenet300": lenet_300_100,
    "lenet5": lenet_5_caffe,
    "vgg": vgg,
}


def _initializers(seed: int) -> Callable[[], keras.initializers.Initializer]:
    numbers = iter(range(1000 * seed, 1000 * seed + 1000))
    return lambda: keras.initializers.HeNormal(seed=next(numbers))


def _convolutional(
    name: str,
    input_shape: Sequence[int],
    num_classes: int,
    convolutions: Sequence[tuple[int, int]],
    units: int,
    seed: int,
) -> keras.Model:
    he = _initializers(seed)
    x = inputs = keras.Input(tuple(input_shape))
    for maps, size in convolutions:
        x = keras.layers.Conv2D(maps, size, activation="relu", kernel_initializer=he())(x)
        x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(units, "relu", kernel_initializer=he())(x)
    return keras.Model(inputs, keras.layers.Dense(num_classes, kernel_initializer=he())(x), name=name)
