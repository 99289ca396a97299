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


@_register
class DenseGNJ(NormalJeffreys, BayesianDense):
    __doc__ = f"Dense layer, normal-Jeffreys prior on the scale of each input.\n{NormalJeffreys.__doc__}"


@_register
class DenseGHS(Horseshoe, BayesianDense):
    __doc__ = f"Dense layer, horseshoe prior on the scale of each input.\n{Horseshoe.__doc__}"


@_register
class DenseSVD(PerWeight, BayesianDense):
    __doc__ = f"Dense layer, log-uniform prior on each weight.\n{PerWeight.__doc__}"


@_register
class Conv1DGNJ(NormalJeffreys, BayesianConv1D):
    __doc__ = (
        f"Convolution over sequences, normal-Jeffreys prior on the scale of each filter.\n{NormalJeffreys.__doc__}"
    )


@_register
class Conv2DGNJ(NormalJeffreys, BayesianConv2D):
    __doc__ = f"Convolution, normal-Jeffreys prior on the scale of each filter.\n{NormalJeffreys.__doc__}"


@_register
class Conv3DGNJ(NormalJeffreys, BayesianConv3D):
    __doc__ = f"Convolution over volumes, normal-Jeffreys prior on the scale of each filter.\n{NormalJeffreys.__doc__}"


@_register
class Conv2DTransposeGNJ(NormalJeffreys, BayesianConvTranspose):
    __doc__ = f"Transposed convolution, normal-Jeffreys prior on the scale of each filter.\n{NormalJeffreys.__doc__}"


@_register
class Conv1DGHS(Horseshoe, BayesianConv1D):
    __doc__ = f"Convolution over sequences, horseshoe prior on the scale of each filter.\n{Horseshoe.__doc__}"


@_register
class Conv2DGHS(Horseshoe, BayesianConv2D):
    __doc__ = f"Convolution, horseshoe prior on the scale of each filter.\n{Horseshoe.__doc__}"


@_register
class Conv3DGHS(Horseshoe, BayesianConv3D):
    __doc__ = f"Convolution over volumes, horseshoe prior on the scale of each filter.\n{Horseshoe.__doc__}"


@_register
class Conv2DTransposeGHS(Horseshoe, BayesianConvTranspose):
    __doc__ = f"Transposed convolution, horseshoe prior on the scale of each filter.\n{Horseshoe.__doc__}"


@_register
class Conv1DSVD(PerWeight, BayesianConv1D):
    __doc__ = f"Convolution over sequences, log-uniform prior on each weight.\n{PerWeight.__doc__}"


@_register
class Conv2DSVD(PerWeight, BayesianConv2D):
    __doc__ = f"Convolution, log-uniform prior on each weight.\n{PerWeight.__doc__}"


@_register
class Conv3DSVD(PerWeight, BayesianConv3D):
    __doc__ = f"Convolution over volumes, log-uniform prior on each weight.\n{PerWeight.__doc__}"


@_register
class Conv2DTransposeSVD(PerWeight, BayesianConvTranspose):
    __doc__ = f"Transposed convolution, log-uniform prior on each weight.\n{PerWeight.__doc__}"
