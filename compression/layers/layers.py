"""The layers: dense and convolutional, for three priors.

|            | normal-Jeffreys | horseshoe   | each weight (sparse VD) |
|------------|-----------------|-------------|-------------------------|
| dense      | `DenseGNJ`      | `DenseGHS`  | `DenseSVD`              |
| 2-D conv.  | `Conv2DGNJ`     | `Conv2DGHS` | `Conv2DSVD`             |

and `Conv1D`, `Conv3D` and `Conv2DTranspose` in the same way. The groups of a dense layer are its inputs, those of a
convolution its output filters.

    model = keras.Sequential([
        keras.Input([784]),
        DenseGNJ(300, activation="relu", num_train=60_000),
        DenseGNJ(100, activation="relu", num_train=60_000),
        DenseGNJ(10, num_train=60_000),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, epochs=50, callbacks=[KLWarmup(10)])
"""

import inspect

import keras

from .base import PACKAGE
from .linear import BayesianConv1D, BayesianConv2D, BayesianConv3D, BayesianConvTranspose, BayesianDense
from .scales import Horseshoe, NormalJeffreys, PerWeight

__all__ = [
    "Conv1DGHS",
    "Conv1DGNJ",
    "Conv1DSVD",
    "Conv2DGHS",
    "Conv2DGNJ",
    "Conv2DSVD",
    "Conv2DTransposeGHS",
    "Conv2DTransposeGNJ",
    "Conv2DTransposeSVD",
    "Conv3DGHS",
    "Conv3DGNJ",
    "Conv3DSVD",
    "DenseGHS",
    "DenseGNJ",
    "DenseSVD",
]

_register = keras.saving.register_keras_serializable(package=PACKAGE)


def _documented(kind: str, prior: type) -> str:
    """What a layer is, and below it the docstring of its prior."""
    return f"{kind}\n\n{inspect.cleandoc(prior.__doc__ or '')}"


@_register
class DenseGNJ(NormalJeffreys, BayesianDense):
    __doc__ = _documented("Dense layer, normal-Jeffreys prior on the scale of each input.", NormalJeffreys)


@_register
class DenseGHS(Horseshoe, BayesianDense):
    __doc__ = _documented("Dense layer, horseshoe prior on the scale of each input.", Horseshoe)


@_register
class DenseSVD(PerWeight, BayesianDense):
    __doc__ = _documented("Dense layer, log-uniform prior on each weight.", PerWeight)


@_register
class Conv1DGNJ(NormalJeffreys, BayesianConv1D):
    __doc__ = _documented(
        "Convolution over sequences, normal-Jeffreys prior on the scale of each filter.", NormalJeffreys
    )


@_register
class Conv2DGNJ(NormalJeffreys, BayesianConv2D):
    __doc__ = _documented("Convolution, normal-Jeffreys prior on the scale of each filter.", NormalJeffreys)


@_register
class Conv3DGNJ(NormalJeffreys, BayesianConv3D):
    __doc__ = _documented(
        "Convolution over volumes, normal-Jeffreys prior on the scale of each filter.", NormalJeffreys
    )


@_register
class Conv2DTransposeGNJ(NormalJeffreys, BayesianConvTranspose):
    __doc__ = _documented("Transposed convolution, normal-Jeffreys prior on the scale of each filter.", NormalJeffreys)


@_register
class Conv1DGHS(Horseshoe, BayesianConv1D):
    __doc__ = _documented("Convolution over sequences, horseshoe prior on the scale of each filter.", Horseshoe)


@_register
class Conv2DGHS(Horseshoe, BayesianConv2D):
    __doc__ = _documented("Convolution, horseshoe prior on the scale of each filter.", Horseshoe)


@_register
class Conv3DGHS(Horseshoe, BayesianConv3D):
    __doc__ = _documented("Convolution over volumes, horseshoe prior on the scale of each filter.", Horseshoe)


@_register
class Conv2DTransposeGHS(Horseshoe, BayesianConvTranspose):
    __doc__ = _documented("Transposed convolution, horseshoe prior on the scale of each filter.", Horseshoe)


@_register
class Conv1DSVD(PerWeight, BayesianConv1D):
    __doc__ = _documented("Convolution over sequences, log-uniform prior on each weight.", PerWeight)


@_register
class Conv2DSVD(PerWeight, BayesianConv2D):
    __doc__ = _documented("Convolution, log-uniform prior on each weight.", PerWeight)


@_register
class Conv3DSVD(PerWeight, BayesianConv3D):
    __doc__ = _documented("Convolution over volumes, log-uniform prior on each weight.", PerWeight)


@_register
class Conv2DTransposeSVD(PerWeight, BayesianConvTranspose):
    __doc__ = _documented("Transposed convolution, log-uniform prior on each weight.", PerWeight)
