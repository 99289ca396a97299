"""Expectation backpropagation: learning-rate-free Bayesian training of multilayer networks (Soudry et al. 2014)."""

from .architecture import Posterior
from .classifier import EBPClassifier
from .coding import InputCoding, common_fraction_bits
from .comparison import Comparison, ComparisonConfig
from .heads import RegressionHead, SignHead, SoftmaxHead, encode_labels
from .mills import mills_ratio
from .network import EBPNetwork
from .packed import PackedNetwork, export_checked, export_network, export_packed
from .posterior import BinaryWeights, FiniteSetWeights, GaussianWeights, TernaryWeights, WeightPrior
from .prepared import InputCodingWarning, Prepared, prepare
from .results import errors_percent
from .training import EpochStats, fit, fit_epoch, fit_stream

__all__ = [
    "BinaryWeights",
    "Comparison",
    "ComparisonConfig",
    "EBPClassifier",
    "EBPNetwork",
    "EpochStats",
    "FiniteSetWeights",
    "GaussianWeights",
    "InputCoding",
    "InputCodingWarning",
    "PackedNetwork",
    "Posterior",
    "Prepared",
    "RegressionHead",
    "SignHead",
    "SoftmaxHead",
    "TernaryWeights",
    "WeightPrior",
    "common_fraction_bits",
    "encode_labels",
    "errors_percent",
    "export_checked",
    "export_network",
    "export_packed",
    "fit",
    "fit_epoch",
    "fit_stream",
    "mills_ratio",
    "prepare",
]
