"""Layers of a deep GP, and what a `DeepGP` asks of one: `Layer`."""

from .convolutional import ConvolutionalLayer, Patches
from .features import FeatureLayer
from .global_inducing import GlobalInducingLayer
from .latent import Encoder, LatentVariableLayer
from .linear import BayesianLinearLayer
from .moments import LayerMoments
from .protocol import Layer
from .svgp import CachedFactors, CachedForms, LayerFactors, Precision, SVGPLayer
from .weighted_convolutional import WeightedConvolutionalLayer

__all__ = [
    "BayesianLinearLayer",
    "CachedFactors",
    "CachedForms",
    "ConvolutionalLayer",
    "Encoder",
    "FeatureLayer",
    "GlobalInducingLayer",
    "LatentVariableLayer",
    "Layer",
    "LayerFactors",
    "LayerMoments",
    "Patches",
    "Precision",
    "SVGPLayer",
    "WeightedConvolutionalLayer",
]
