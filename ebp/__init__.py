"""Expectation backpropagation: learning-rate-free Bayesian training of multilayer networks (Soudry et al. 2014)."""

from .classifier import EBPClassifier
from .heads import RegressionHead, SignHead, SoftmaxHead, encode_labels
from .mills import mills_ratio
from .network import EBPNetwork, Posterior
from .packed import PackedNetwork, export_network, export_packed
from .posterior import BinaryWeights, FiniteSetWeights, GaussianWeights, TernaryWeights, WeightPrior
from .prepared import InputCodingWarning, Prepared, prepare
from .training import EpochStats, fit, fit_epoch, fit_stream

__all__ = [
    "BinaryWeights",
    "EBPClassifier",
    "EBPNetwork",
    "EpochStats",
    "FiniteSetWeights",
    "GaussianWeights",
    "InputCodingWarning",
    "PackedNetwork",
    "Posterior",
    "Prepared",
    "RegressionHead",
    "SignHead",
    "SoftmaxHead",
    "TernaryWeights",
    "WeightPrior",
    "encode_labels",
    "export_network",
    "export_packed",
    "fit",
    "fit_epoch",
    "fit_stream",
    "mills_ratio",
    "prepare",
]
