"""Networks for MNIST of Louizos, Ullrich and Welling (2017), Sec. 5, and a small one, as plain Keras models of logits.

Weights are initialised by He et al. (2015), as in the paper, biases by zero.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras

from gpflow_deep_base.seeds import named_seed

from .files.container import load_bcz

__all__ = [
    "NETWORKS",
    "NetworkConfig",
    "build",
    "lenet_5_caffe",
    "lenet_300_100",
    "load",
    "small",
]


def lenet_300_100(input_shape: Sequence[int] = (28, 28, 1), num_classes: int = 10, *, seed: int = 0) -> keras.Model:
    """784-300-100-10 with ReLU: 266,200 weights for images of MNIST.

    :param input_shape: height, width and channels of an image; pixels become inputs row by row.
    """
    return _network("lenet_300_100", input_shape, num_classes, [], [300, 100], seed)


def lenet_5_caffe(input_shape: Sequence[int] = (28, 28, 1), num_classes: int = 10, *, seed: int = 0) -> keras.Model:
    """Convolutions of 20 and 50 maps, 5 x 5, each with ReLU and pooling, then 500 units: 430,500 weights for MNIST."""
    return _network("lenet_5_caffe", input_shape, num_classes, [(20, 5), (50, 5)], [500], seed)


def small(input_shape: Sequence[int] = (8, 8, 1), num_classes: int = 10, *, seed: int = 0) -> keras.Model:
    """Convolutions of 16 and 16 maps, 3 x 3 and 2 x 2, and 64 units, for images of 8 x 8."""
    return _network("small", input_shape, num_classes, [(16, 3), (16, 2)], [64], seed)


#: Name -> function of input shape and number of classes, with a seed.
NETWORKS: dict[str, Callable[..., keras.Model]] = {
    "small": small,
    "lenet300": lenet_300_100,
    "lenet5": lenet_5_caffe,
}

#: Name -> least height and width of an image: a smaller one is pooled to nothing.
_SMALLEST = {"small": 8, "lenet5": 16}

_FILES = (".keras", ".bcz")


@dataclass(frozen=True)
class NetworkConfig:
    """Which network to compress.

    :param network: what to compress: a .keras or .bcz file, or a name; auto: small for digits, else lenet300; own: that
        of pretrained.
    :param pretrained: a .keras or .bcz file: the network itself (own), or weights to begin with.
    """

    network: str = "auto"
    pretrained: str | None = None

    def __post_init__(self) -> None:
        # A file is the network itself; a name may have weights of a file.
        if self.network not in ("auto", "own", *NETWORKS) and not self.network.endswith(_FILES):
            raise ValueError(
                f"network must be a .keras or .bcz file, auto, own or one of {', '.join(NETWORKS)}, "
                f"got {self.network!r}."
            )
        if self.network.endswith(_FILES) and self.pretrained is not None:
            raise ValueError(f"give network={self.network} or pretrained={self.pretrained}, not both.")
        if self.network == "own" and self.pretrained is None:
            raise ValueError("network=own needs the file of the network: give pretrained=FILE.keras.")

    def name_for(self, dataset: str) -> str:
        """The name of the network, for a data set of this name if it is "auto"."""
        if self.network == "auto":
            return "small" if dataset == "digits" else "lenet300"
        return "own" if self.network.endswith(_FILES) else self.network

    @property
    def file(self) -> str | None:
        """The file of the network or of its weights."""
        return self.network if self.network.endswith(_FILES) else self.pretrained


def build(
    name: str,
    input_shape: Sequence[int],
    num_classes: int,
    *,
    pretrained: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> keras.Model:
    """One of `NETWORKS`, with random weights or those of a file; or the network of a file.

    :param name: a name in `NETWORKS`, or "own" for the network in the file `pretrained` itself.
    :param pretrained: a .keras or .bcz file.
    :param seed: of the random weights.
    :raises ValueError: if there is no such network or file, if images are too small for it, or if the weights in the
        file have other shapes.
    """
    if name == "own":
        if pretrained is None:
            raise ValueError("network=own needs the file of the network: give pretrained=FILE.keras.")
        return load(pretrained)
    if name not in NETWORKS:
        raise ValueError(f"network must be own or one of {', '.join(NETWORKS)}, got {name!r}.")
    # Pooling would leave nothing of a smaller image.
    min_pixels = _SMALLEST.get(name, 1)
    if min(input_shape[:-1], default=1) < min_pixels:
        pixels = " x ".join(map(str, input_shape[:-1]))
        raise ValueError(
            f"network={name} needs images of at least {min_pixels} x {min_pixels} pixels, got {pixels}: choose another."
        )
    # Random weights by the seed, or those of the file, if shapes agree.
    init = int(named_seed(seed, "init")[0]) % 100_000
    model = NETWORKS[name](tuple(input_shape), num_classes, seed=init)
    if pretrained is not None:
        other = load(pretrained)
        expected_shapes, file_shapes = (
            [tuple(weight.shape) for weight in network.weights] for network in (model, other)
        )
        if expected_shapes != file_shapes:
            raise ValueError(f"the weights in {pretrained} must have shapes {expected_shapes}, got {file_shapes}.")
        model.set_weights(other.get_weights())
    return model


def load(path: str | os.PathLike[str]) -> keras.Model:
    """The network in a .keras or .bcz file.

    :raises ValueError: if there is no such file, or it holds no network.
    """
    if not Path(path).is_file():
        raise ValueError(f"pretrained must be a .keras or .bcz file, but there is none at {os.fspath(path)}.")
    return load_bcz(path) if Path(path).suffix == ".bcz" else keras.models.load_model(path)


def _network(
    name: str,
    input_shape: Sequence[int],
    num_classes: int,
    convolutions: Sequence[tuple[int, int]],
    units: Sequence[int],
    seed: int,
) -> keras.Model:
    """Convolutions of so many maps and this size, each with pooling, then dense layers, the last of which gives logits.

    Names of layers do not depend on what else was made before: what a run logs, and its checkpoints, go by them.
    """
    seeds = iter(range(1000 * seed, 1000 * seed + 1000))

    def he() -> keras.Initializer:
        return keras.initializers.HeNormal(seed=next(seeds))

    x = inputs = keras.Input(tuple(input_shape))
    for number, (maps, size) in enumerate(convolutions):
        convolution = keras.layers.Conv2D(
            maps, size, activation="relu", kernel_initializer=he(), name=_numbered("conv2d", number)
        )
        x = convolution(x)
        x = keras.layers.MaxPooling2D(name=_numbered("max_pooling2d", number))(x)
    x = keras.layers.Flatten(name="flatten")(x)
    # Hidden layers with ReLU, and logits of the classes.
    for number, size in enumerate(units):
        x = keras.layers.Dense(size, "relu", kernel_initializer=he(), name=_numbered("dense", number))(x)
    logits = keras.layers.Dense(num_classes, kernel_initializer=he(), name=_numbered("dense", len(units)))(x)
    return keras.Model(inputs, logits, name=name)


def _numbered(kind: str, number: int) -> str:
    """As Keras names layers of a kind."""
    return f"{kind}_{number}" if number else kind
