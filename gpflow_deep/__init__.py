"""Doubly stochastic deep Gaussian processes as GPflow models (Salimbeni & Deisenroth 2017)."""

from .deep_gp import DeepGP, DeepGPQuad, Propagation
from .initialization import inducing_inputs, linear_mean
from .layers import SVGPLayer
from .posterior import DeepGPPosterior
from .presets import modern, paper2017
from .quadrature import GaussHermite, MonteCarlo
from .serialization import load_model, save_model
from .training import LayerDiagnostics, diagnose, make_train_step

__all__ = [
    "DeepGP",
    "DeepGPPosterior",
    "DeepGPQuad",
    "GaussHermite",
    "LayerDiagnostics",
    "MonteCarlo",
    "Propagation",
    "SVGPLayer",
    "diagnose",
    "inducing_inputs",
    "linear_mean",
    "load_model",
    "make_train_step",
    "modern",
    "paper2017",
    "save_model",
]
