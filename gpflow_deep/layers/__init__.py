"""Layers of a deep GP, and what a `DeepGP` asks of one: `Layer`.

protocol        what a layer is
svgp            Eqs. (4)-(9): a sparse variational GP with its own inducing variables
moments         Eq. (15): draws of a layer's outputs by their means and variances; covariances and factors
joint           the same for all rows together
global_inducing inducing outputs that follow those of the layer before (Ober and Aitchison, 2021)
latent          latent variables beside the inputs (Salimbeni et al., 2019)
linear          Bayesian linear maps
features        a network of TensorFlow in front of a GP
chunking        rows piece by piece

Layers for images are in `gpflow_deep.layers.images`, and importable from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "features": ["FeatureLayer"],
        "global_inducing": ["GlobalInducingLayer"],
        "images.convolutional": ["ConvolutionalLayer", "Patches"],
        "images.weighted_convolutional": ["WeightedConvolutionalLayer"],
        "latent": ["Encoder", "LatentVariableLayer"],
        "linear": ["BayesianLinearLayer"],
        "moments": ["LayerMoments"],
        "protocol": ["Layer"],
        "svgp": ["CachedFactors", "CachedForms", "LayerFactors", "Precision", "SVGPLayer"],
    },
)
