"""Doubly stochastic deep Gaussian processes as GPflow models (Salimbeni & Deisenroth 2017)."""

from . import report
from .config import ModelConfig
from .deep_gp import DeepGP, DeepGPQuad
from .diagnostics import LayerDiagnostics, diagnose
from .estimators import DeepGPClassifier, DeepGPRegressor
from .initialization import inducing_inputs, linear_mean
from .layers import SVGPLayer
from .posterior import DeepGPPosterior
from .predictor import Predicted, Predictor, float_type
from .presets import modern, paper2017
from .propagation import Propagation
from .quadrature import GaussHermite, MonteCarlo
from .scaling import Scale, Units
from .serialization import check_savable, load_model, save_model
from .training import Trainer, TrainingConfig, make_train_step

__all__ = [
    "DeepGP",
    "DeepGPClassifier",
    "DeepGPPosterior",
    "DeepGPQuad",
    "DeepGPRegressor",
    "GaussHermite",
    "LayerDiagnostics",
    "ModelConfig",
    "MonteCarlo",
    "Predicted",
    "Predictor",
    "Propagation",
    "SVGPLayer",
    "Scale",
    "Trainer",
    "TrainingConfig",
    "Units",
    "check_savable",
    "diagnose",
    "float_type",
    "inducing_inputs",
    "linear_mean",
    "load_model",
    "make_train_step",
    "modern",
    "paper2017",
    "report",
    "save_model",
]
