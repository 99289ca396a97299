"""Gaussian processes as Keras 3 layers, on the TensorFlow backend: stacked they are a deep GP.

    import gpflow_deep.keras                            # also before `keras.models.load_model` of such a model

    from gpflow_deep.keras import DeepGPLikelihoodLoss, GPLayer, LikelihoodLayer

    gp, noise = GPLayer(1, num_data=len(X)), LikelihoodLayer(gpflow.likelihoods.Gaussian())
    model = keras.Sequential([keras.layers.Dense(20, "tanh"), gp, noise])
    gpflow_deep.keras.adapt(model, X)                   # inducing inputs from data
    model.compile("adam", DeepGPLikelihoodLoss())
    model.fit(X, Y)
    gpflow_deep.keras.Predictor(model).quantiles(X, [0.05, 0.95])

layer, likelihood, prediction; passes, origins: what a pass tells the loss; weights, stored: variables and parts of GPs
as Keras keeps them. `import gpflow_deep` alone imports none of it.
"""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"gpflow_deep.keras needs Keras' backend tensorflow, got {keras.backend.backend()}; set the environment "
        "variable KERAS_BACKEND=tensorflow before keras is imported."
    )

from .layer import GPLayer
from .likelihood import DeepGPLikelihoodLoss, LikelihoodLayer
from .prediction import Predictor, adapt

__all__ = ["DeepGPLikelihoodLoss", "GPLayer", "LikelihoodLayer", "Predictor", "adapt"]
