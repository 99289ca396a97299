"""Doubly stochastic deep Gaussian processes as GPflow models (Salimbeni & Deisenroth 2017).

`gpflow_deep.keras`, layers for Keras models, is imported when it is first used.
"""

import importlib
from typing import Any

from . import report
from .collapsed import fit_collapsed
from .config import ModelConfig
from .deep_gp import DeepGP
from .deep_gp_quad import DeepGPQuad
from .diagnostics import LayerDiagnostics, diagnose
from .estimators import DeepGPClassifier, DeepGPRegressor
from .images import PatchConfig, convolutional
from .initialization import inducing_inputs, linear_mean
from .layers import (
    BayesianLinearLayer,
    ConvolutionalLayer,
    Encoder,
    FeatureLayer,
    GlobalInducingLayer,
    LatentVariableLayer,
    Layer,
    Patches,
    SVGPLayer,
    WeightedConvolutionalLayer,
)
from .posterior import DeepGPPosterior
from .predictor import Predicted, Predictor, float_type
from .presets import Preset, modern, paper2017, with_global_inducing, with_sigma_points
from .propagation import Propagation
from .quadrature import GaussHermite, MonteCarlo, Sobol
from .sampled_training import SampledTrainer
from .sampling import Sampler, SamplingConfig
from .scaling import Scale, Units
from .serialization import check_savable, load_model, save_model
from .sigma_points import DeepSigmaPointProcess, SigmaPoints
from .training import Trainer, TrainingConfig, make_train_step

__version__ = "0.2.0"  # the one place: pyproject.toml reads it

__all__ = [
    "BayesianLinearLayer",
    "ConvolutionalLayer",
    "DeepGP",
    "DeepGPClassifier",
    "DeepGPPosterior",
    "DeepGPQuad",
    "DeepGPRegressor",
    "DeepSigmaPointProcess",
    "Encoder",
    "FeatureLayer",
    "GaussHermite",
    "GlobalInducingLayer",
    "LatentVariableLayer",
    "Layer",
    "LayerDiagnostics",
    "ModelConfig",
    "MonteCarlo",
    "PatchConfig",
    "Patches",
    "Predicted",
    "Predictor",
    "Preset",
    "Propagation",
    "SVGPLayer",
    "SampledTrainer",
    "Sampler",
    "SamplingConfig",
    "Scale",
    "SigmaPoints",
    "Sobol",
    "Trainer",
    "TrainingConfig",
    "Units",
    "WeightedConvolutionalLayer",
    "check_savable",
    "convolutional",
    "diagnose",
    "fit_collapsed",
    "float_type",
    "inducing_inputs",
    "linear_mean",
    "load_model",
    "make_train_step",
    "modern",
    "paper2017",
    "report",
    "save_model",
    "with_global_inducing",
    "with_sigma_points",
]


def __getattr__(name: str) -> Any:
    if name == "keras":
        return importlib.import_module(".keras", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
