#!/usr/bin/env python3
"""How large are VGG and ResNet-20, networks for photographs, as they go into compression?

    photographs.py --network=vgg --normalization --file=vgg.keras
    gpflow-deep compress --run_dir=runs/vgg --network=vgg.keras --dataset=cifar10 --data_dir=DATA --shift=4 --flip \\
        --pretrain_epochs=100 --epochs=200 --warmup=20

The first is the network of Section 5 of Louizos, Ullrich and Welling (2017) for CIFAR-10, which needs a GPU to be
trained, and batch normalisation behind its convolutions, which compression folds into the weights. The second is of He
et al. (2016), Sec. 4.2. Weights are initialised by He et al. (2015).
"""

from collections.abc import Sequence

import bench
import keras
from absl import flags

import compression as bc

VGG = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool")
"""Maps of the convolutions; "pool" halves the image."""


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_enum("network", "vgg", ["vgg", "resnet20"], "Which network.", flag_values=fv)
    flags.DEFINE_integer("divisor", 1, "Divide the maps and units of vgg by it.", 1, 64, flag_values=fv)
    flags.DEFINE_bool("normalization", False, "Batch normalisation behind the convolutions of vgg.", flag_values=fv)
    flags.DEFINE_string("file", None, "Write the network to this .keras file.", flag_values=fv)
    flags.DEFINE_integer("seed", 0, "Of its weights.", flag_values=fv)
    bench.define_common(fv)


def convolution(maps: int, size: int, *, strides: int = 1, has_normalization: bool = True) -> list[keras.Layer]:
    """A convolution of an image that keeps its size, and batch normalisation, if that is wanted."""
    products = keras.layers.Conv2D(
        maps, size, strides, padding="same", use_bias=not has_normalization, kernel_initializer="he_normal"
    )
    return [products, keras.layers.BatchNormalization()] if has_normalization else [products]


def vgg(divisor: int = 1, *, has_normalization: bool = False) -> keras.Model:
    """13 convolutions of 3 x 3 with 64 to 512 maps and 512 units: 14,977,728 weights."""
    layers: list[keras.Layer] = [keras.Input((32, 32, 3))]
    for maps in VGG:
        if maps == "pool":
            layers.append(keras.layers.MaxPooling2D())
        else:
            layers += convolution(int(maps) // divisor, 3, has_normalization=has_normalization)
            layers.append(keras.layers.ReLU())
    units = keras.layers.Dense(512 // divisor, "relu", kernel_initializer="he_normal")
    return keras.Sequential([*layers, keras.layers.Flatten(), units, keras.layers.Dense(10)])


def resnet_20() -> keras.Model:
    """Nine residual blocks of two convolutions of 3 x 3, of 16, 32 and 64 maps, with batch normalisation: 270,896
    weights. Where the number of maps changes, the shortcut is a convolution of 1 x 1."""

    def through(layers: Sequence[keras.Layer], x: keras.KerasTensor) -> keras.KerasTensor:
        for layer in layers:
            x = layer(x)
        return x

    relu = keras.layers.ReLU
    # A convolution, nine blocks, a mean over the image, ten outputs.
    inputs = keras.Input((32, 32, 3))
    x = through([*convolution(16, 3), relu()], inputs)
    for maps in (16, 32, 64):
        for block in range(3):
            # The first block of 32 and of 64 maps halves the image.
            strides = 2 if maps > 16 and block == 0 else 1
            shortcut = through(convolution(maps, 1, strides=strides), x) if strides == 2 else x
            x = through([*convolution(maps, 3, strides=strides), relu(), *convolution(maps, 3)], x)
            x = relu()(keras.layers.Add()([x, shortcut]))
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(10)(x))


def main(flag: flags.FlagValues) -> None:
    """Make the network, print its size, and write it."""
    keras.utils.set_random_seed(flag.seed)
    is_vgg = flag.network == "vgg"
    model = vgg(flag.divisor, has_normalization=flag.normalization) if is_vgg else resnet_20()
    row = {"network": flag.network, **bc.size_of(model)._asdict()}
    bench.print_table([row], {name: f"{{{name}}}" for name in row})
    if flag.file:
        model.save(flag.file)
    bench.write({"metrics": [row]}, "none")


if __name__ == "__main__":
    bench.run(define_flags, main)
